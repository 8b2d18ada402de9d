"""The sparse objective: mode, evidence and gradient from sums over chunks of rows.

With ``H = I + sum_i A_i^T U_i A_i`` (order MD) and v at the mode of ``psi = sum_i log p_i - |v|^2/2``,

    objective = psi - 1/2 log|H| - 1/2 sum_i sum_j [U_i]_jj k~_i^j.

For the Gaussian family this is Titsias' bound. Gradient: with ``P = H^-1``,
``s_i = -1/2 d<A_i P A_i^T + k~_i, U_i>/df`` and ``w = P A^T s`` (the mode moves; Taylor: s = 0 here),

    dL/dA_j  = u_j (v_j + w_j)^T + (s - U A w)_j v_j^T - sum_k U_jk A_k P_kj + U_jj A_j         row by row
    dL/dk_jj = -1/2 U_jj,        dL/dK_uu = -1/2 L^-T S L^-1,
    S_j      = A_j^T dL/dA_j     = v v^T + v w^T + w v^T + P_jj + H_jj - 2 I

S needs no pass of its own. That it is symmetric says that the objective does not depend on which square root of
K_uu was taken.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm import kernels as kernels_module
from ggpm.data.rows import Rows, Statistics
from ggpm.families.base import Family
from ggpm.fields.inducing.passes import (
    Model,
    factor_inducing,
    gradient_pass,
    mode_pass,
    newton_pass,
    unwhiten,
    value_pass,
)
from ggpm.fields.inducing.posterior import SparsePosterior
from ggpm.fields.inducing.sites import LaplaceSites, TaylorSites, sites_of
from ggpm.fields.inducing.variational import VariationalSearch, carried, precision_matrix
from ggpm.kernels.linalg import (
    NotPositiveDefinite,
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    log_det_lower,
    mirror,
    solve_lower,
)
from ggpm.learning.objective import Learned
from ggpm.learning.priors import Priors
from ggpm.sites import InferenceError, Laplace, Taylor
from ggpm.sites.laplace import ROUNDING, SUFFICIENT

Array = NDArray[np.float64]

HALVINGS = 12  # step lengths that one pass of the line search tries at once


@dataclass(frozen=True)
class SparseApproximation:
    """The posterior of the whitened inducing values, and its evidence."""

    model: Model
    v: Array
    """Mode, (D, M)."""
    H: Array
    """Precision, (DM, DM)."""
    L_H: Array
    log_evidence: float
    converged: bool
    n_iter: int
    n_passes: int
    expected: bool
    """Whether the expected curvature had to be used."""
    trace: tuple[float, ...] = field(default=(), repr=False)

    @property
    def start(self) -> Any:
        """What a search nearby may start from: ``K_uu^-1`` times the inducing values, or the whole posterior."""
        if self.model.sites.takes_marginals:
            return list(self.model.L), self.v, self.H
        return unwhiten(self.model, self.v)

    def covariance(self) -> Array:
        """Posterior covariance of v, (D, M, D, M)."""
        D, M = self.v.shape
        return mirror(cholesky_inverse(self.L_H.copy(order="F"))).T.reshape(D, M, D, M)

    def posterior(self) -> SparsePosterior:
        """What predictions need."""
        m = self.model
        return SparsePosterior(list(m.kernels), m.Z, list(m.L), self.v, self.covariance())


class SparseEvidence(Learned):
    """The objective and its gradient at any theta, for fixed rows, family, kernels and inducing inputs."""

    def __init__(
        self, family: Family, kernels: Sequence, rows: Rows, Z: Array, inference: Any, jitter: float = 1e-8,
        priors: Priors | None = None,
    ) -> None:  # fmt: skip
        self.family, self.kernels, self.rows, self.Z = family, list(kernels), rows, np.asarray(Z, dtype=float)
        self.inference, self.jitter, self.priors = inference, jitter, priors
        self.sites = sites_of(inference, family.latent_dim)

    def with_inputs(self, Z: Array) -> Self:
        """The same objective with other inducing inputs."""
        other = copy.copy(self)
        other.Z = Z
        return other

    # ---- evaluation --------------------------------------------------------------------------------------------
    def evaluate(self, start: Any = None, gradient: bool = True) -> tuple[float, Array | None, SparseApproximation]:
        """Objective, its gradient in `theta` if asked for, and the approximation behind it."""
        approximation = self.infer(start)
        if not gradient:
            return approximation.log_evidence, None, approximation
        return approximation.log_evidence, self.gradient(approximation, inputs=False)[0], approximation

    def learn(self, start: Any = None) -> tuple[float, Array, SparseApproximation]:
        """What the hyperparameters maximise: the objective plus the log density of their priors."""
        value, gradient, approximation = self.evaluate(start)
        assert gradient is not None
        return *self.with_prior(value, gradient), approximation

    def model(self) -> Model:
        """What a pass must know."""
        try:
            L = factor_inducing(self.kernels, self.Z, self.jitter)
        except NotPositiveDefinite as err:
            raise InferenceError(
                f"the kernel matrix of the inducing points is not positive definite ({err}). Two of them may coincide: "
                f"use fewer points, or Inducing(jitter=...) above {self.jitter:g}."
            ) from None
        return Model(self.family, self.kernels, self.Z, L, self.sites)

    def infer(self, start: Any = None) -> SparseApproximation:
        """The posterior of the inducing values, with one pass over the rows per step."""
        model = self.model()
        if not model.sites.takes_marginals:
            return _Search(self.rows, model, self.inference).run(start)
        n_passes = 0
        if start is None:
            laplace = replace(model, sites=LaplaceSites())
            try:
                found = _Search(self.rows, laplace, Laplace()).run(None)
                m, H, n_passes = found.v, found.H, found.n_passes
            except InferenceError:
                m, H = np.zeros((model.D, model.M)), np.eye(model.D * model.M)
        else:
            m, H = carried(start, model)
        search = VariationalSearch(self.rows, model, self.inference)
        if not model.coupled:
            H = block_diagonal(H, model.D)
        state, converged, n_iter, bounds = search.run(m, H)
        return SparseApproximation(
            model, state.m, state.H, state.L, state.bound, converged, n_iter, n_passes + search.n_passes, False,
            tuple(bounds),
        )  # fmt: skip

    def gradient(self, a: SparseApproximation, inputs: bool = True) -> tuple[Array, Array]:
        """Gradient in `theta`, (p,), and in the inducing inputs, (M, features)."""
        m, P = a.model, a.covariance()
        D, M = a.v.shape
        moved = _sweep(self.rows, gradient_pass, m, (a.v, P, a.expected, inputs))
        w = np.zeros_like(a.v)
        if m.sites.moves_with_mode and np.any(moved["move"]):
            w = cholesky_solve(a.L_H, moved["move"].ravel()).reshape(D, M)
            more = _sweep(self.rows, mode_pass, m, (a.v, w, a.expected, inputs))
            for name in ("theta", "phi", "Z"):
                moved[name] = moved[name] + more[name]
        H = a.H.reshape(D, M, D, M)
        theta, grad_Z, used = moved["theta"].copy(), moved["Z"], 0
        for k, kernel in enumerate(m.kernels):
            S = np.zeros((M, M))
            for j in m.members(k):
                cross = np.outer(a.v[j], w[j])
                S += np.outer(a.v[j], a.v[j]) + cross + cross.T + P[j, :, j] + H[j, :, j]
                S.flat[:: M + 1] -= 2.0
            half = solve_lower(m.L[k], S, transposed=True)
            G = -0.5 * solve_lower(m.L[k], half.T, transposed=True)
            G = (G + G.T) / 2
            G.flat[:: M + 1] *= 1.0 + self.jitter
            g, g_Z = kernels_module.evaluate(kernel, self.Z, self.Z).pullback_both(G)
            theta[used : used + g.size] += g
            grad_Z = grad_Z + 2.0 * g_Z  # Z enters K_uu as rows and as columns
            used += g.size
        if self.family.learns_phi:
            theta = np.concatenate([theta, moved["phi"]])
        return theta, grad_Z


def _sweep(rows: Rows, task: Any, model: Model, arguments: tuple[Any, ...]) -> Statistics:
    return rows.map_reduce(task, (model, *arguments), model.piece_rows)


class _Search:
    """Damped Newton on v; counts its passes."""

    def __init__(self, rows: Rows, model: Model, inference: Any) -> None:
        self.rows, self.model = rows, model
        self.max_iter = getattr(inference, "max_iter", 100)
        self.tol = getattr(inference, "tol", 1e-18)
        self.n_passes = 0

    def run(self, start: Array | None) -> SparseApproximation:
        expected, psi = False, -np.inf
        if start is not None and self.model.sites.moves_with_mode:
            v = np.stack([self.model.L[self.model.of(j)].T @ z for j, z in enumerate(start)])
            state, psi = self._state(v, expected)
        if psi == -np.inf:
            v = self._start()
            state, psi = self._state(v, expected)
        trace, accepted = [psi], np.inf
        for iteration in range(self.max_iter + 1):
            try:
                H, L = self._factor(state)
            except NotPositiveDefinite as err:
                if expected:
                    raise InferenceError(f"the posterior precision is not positive definite ({err})") from None
                expected = True
                state, psi = self._state(v, expected)
                continue
            slope = state["score"] - v
            dv = cholesky_solve(L, slope.ravel()).reshape(v.shape)
            decrement = float(np.sum(slope * dv))
            small = decrement <= self.tol * (1.0 + abs(psi))
            # at the limit of rounding the decrement no longer falls
            stalled = decrement <= 1e-10 * (1.0 + abs(psi)) and decrement >= 0.25 * accepted
            if small or stalled or iteration == self.max_iter:
                break
            accepted = decrement
            step = self._step(v, dv, psi, decrement, state)
            if step is None and not expected:
                expected = True
                state, psi = self._state(v, expected)
                continue
            if step is None:
                break
            v, state, psi = step
            expected = False
            trace.append(psi)
        value = psi - 0.5 * log_det_lower(L) - 0.5 * float(state["trace"])
        if not np.isfinite(value):
            raise InferenceError("the evidence is not finite at these hyperparameters")
        return SparseApproximation(
            self.model, v, H, L, float(value), bool((small or stalled) and not expected), iteration, self.n_passes,
            expected, tuple(trace),
        )  # fmt: skip

    # ---- parts -------------------------------------------------------------------------------------------------
    def _sweep(self, task: Any, *arguments: Any) -> Statistics:
        self.n_passes += 1
        return _sweep(self.rows, task, self.model, arguments)

    def _state(self, v: Array, expected: bool, last: Statistics | None = None) -> tuple[Statistics, float]:
        """Sums and objective at v; sites that do not move keep the curvature of the last state."""
        keep = last is not None and not self.model.sites.moves_with_mode
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            state = self._sweep(newton_pass, v, expected, not keep)
        return {**last, **state} if last is not None and keep else state, _psi(float(state["value"]), v)

    def _factor(self, state: Statistics) -> tuple[Array, Array]:
        H = precision_matrix(state, self.model.D, self.model.M)
        if not np.all(np.isfinite(H)):
            raise InferenceError("the curvature is not finite at these hyperparameters")
        return H, cholesky(H.copy())

    def _start(self) -> Array:
        """The better of the prior mean and a Newton step from the Taylor point."""
        m = self.model
        zero = np.zeros((m.D, m.M))
        if not m.sites.moves_with_mode:
            return zero
        taylor = _Search(self.rows, Model(m.family, m.kernels, m.Z, m.L, TaylorSites(Taylor())), None)
        try:
            state, _ = taylor._state(zero, False)
            _, L = taylor._factor(state)
            first = cholesky_solve(L, state["score"].ravel()).reshape(zero.shape)
        except np.linalg.LinAlgError:
            first = zero
        self.n_passes += taylor.n_passes
        values = self._sweep(value_pass, np.stack([zero, first]))["value"]
        at_zero, at_first = (_psi(float(value), v) for value, v in zip(values, (zero, first)))
        if max(at_zero, at_first) == -np.inf:
            raise InferenceError(
                "the log-likelihood is not finite at the prior mean nor at the start; check the scale of y and offset"
            )
        return first if at_first > at_zero else zero

    def _step(
        self, v: Array, dv: Array, psi: float, decrement: float, last: Statistics
    ) -> tuple[Array, Statistics, float] | None:
        """The full step if it gains enough, else the longest of its halves that does; None if none does."""
        slack = ROUNDING * (1.0 + abs(psi))

        def enough(t: float, value: float) -> bool:
            return value >= psi + SUFFICIENT * t * decrement - slack

        state, value = self._state(v + dv, False, last)
        if enough(1.0, value):
            return v + dv, state, value
        for block in range(3):
            steps = 0.5 ** np.arange(1 + block * HALVINGS, 1 + (block + 1) * HALVINGS)
            trials = v + steps[:, None, None] * dv
            values = self._sweep(value_pass, trials)["value"]
            for t, trial, log_prob in zip(steps, trials, values):
                if enough(t, _psi(float(log_prob), trial)):
                    state, value = self._state(trial, False)
                    return trial, state, value
        return None


def block_diagonal(H: Array, D: int) -> Array:
    """H without the blocks between latent dimensions."""
    M = len(H) // D
    blocks = H.reshape(D, M, D, M)
    out = np.zeros_like(blocks)
    for j in range(D):
        out[j, :, j] = blocks[j, :, j]
    return out.reshape(H.shape)


def _psi(log_prob: float, v: Array) -> float:
    """log p(y|v) - |v|²/2."""
    value = log_prob - 0.5 * float(np.sum(v * v))
    return value if np.isfinite(value) else -np.inf
