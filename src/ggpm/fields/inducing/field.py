"""The inducing field: every row's latent through M inducing values, from sums over chunks of rows.

Points are the whitened inducing values v (D, M), standard normal a priori (see `ggpm.fields.inducing.passes`). With
``H = I + sum_i A_i^T U_i A_i`` (order MD) a Newton step is ``H^-1 (A^T u - v)``, and the evidence of an expansion

    objective - 1/2 log|H| - 1/2 sum_i sum_j [U_i]_jj k~_i^j,

which for the Gaussian family is Titsias' bound (2009). Natural parameters are ``H v`` and H. Gradient: with
``P = H^-1``, ``s_i = -1/2 d<A_i P A_i^T + k~_i, U_i>/df`` and ``w = P A^T s`` (zero where sites stay)

    dL/dA_j  = u_j (v_j + w_j)^T + (s - U A w)_j v_j^T - sum_k U_jk A_k P_kj + U_jj A_j         row by row
    dL/dk_jj = -1/2 U_jj,        dL/dK_uu = -1/2 L^-T S L^-1,
    S_j      = A_j^T dL/dA_j     = v v^T + v w^T + w v^T + P_jj + H_jj - 2 I

S needs no pass of its own. That it is symmetric says that the objective does not depend on which square root of
K_uu was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.data.door import take_rows
from ggpm.data.rows import ArrayRows, Chunk, Rows, Statistics
from ggpm.families.base import Family
from ggpm.fields.base import Approximation, Field, Natural, Process, Trial
from ggpm.fields.inducing.passes import (
    Model,
    cavity_pass,
    factor_inducing,
    gradient_pass,
    mode_pass,
    pairs,
    sites_pass,
    value_pass,
)
from ggpm.fields.inducing.posterior import InducingPosterior
from ggpm.kernels import evaluate
from ggpm.kernels.linalg import (
    NotPositiveDefinite,
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    log_det_lower,
    mirror,
    solve_lower,
)
from ggpm.sites.base import InferenceError, Rule

Array = NDArray[np.float64]

# Step lengths that one pass of the line search tries at once: down to 1/4096, and to 1.5e-11 in three passes. A pass
# reads all rows and evaluates their kernels once, however many lengths it tries.
HALVINGS = 12


@dataclass(frozen=True)
class InducingGaussian:
    """q(v) with mean v and precision H."""

    v: Array
    """Mean of the whitened inducing values, (D, M)."""
    H: Array
    """Their precision, (DM, DM)."""
    L: Array
    """Its Cholesky factor."""

    @property
    def x(self) -> Array:
        return self.v

    @property
    def log_det(self) -> float:
        return log_det_lower(self.L)

    @cached_property
    def covariance(self) -> Array:
        """P = H^-1, (D, M, D, M)."""
        D, M = self.v.shape
        return mirror(cholesky_inverse(self.L.copy(order="F"))).T.reshape(D, M, D, M)


@dataclass(frozen=True)
class InducingLook:
    """The sums of one pass over the rows."""

    x: Array
    objective: float
    fisher: bool
    sums: Statistics


@dataclass(frozen=True)
class InducingField(Field):
    """Rows in chunks, wherever they live, and inducing inputs.

    Parameters
    ----------
    rows : Rows
        With y encoded.
    Z : inducing inputs, (M, features)
    jitter : float
        What is added to the diagonal of K_uu, relative to the diagonal itself.

    Examples
    --------
    >>> rows = ArrayRows(np.zeros((3, 1)), np.zeros(3), np.zeros((3, 1)))
    >>> InducingField(rows, np.zeros((1, 1))).n_rows
    3
    """

    rows: Rows
    Z: Array
    jitter: float = 1e-8

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    def sample(self, index: NDArray[np.intp]) -> Self:
        part = take_rows(self.rows, index)
        return replace(self, rows=ArrayRows(part.X, part.y, part.offset))

    def process(self, family: Family, kernels: Sequence[Any]) -> InducingProcess:
        try:
            L = factor_inducing(kernels, self.Z, self.jitter)
        except NotPositiveDefinite as err:
            raise InferenceError(
                f"the kernel matrix of the inducing points is not positive definite ({err}). Two of them may coincide: "
                f"use fewer points, or Inducing(jitter=...) above {self.jitter:g}."
            ) from None
        return InducingProcess(self.rows, Model(family, list(kernels), self.Z, L), self.jitter)


class InducingProcess(Process):
    """Inducing values under given kernels; counts its passes over the rows."""

    blocks_are_cheap = True
    looks_are_cheap = False

    def __init__(self, rows: Rows, model: Model, jitter: float):
        self.rows, self.model, self.jitter = rows, model, jitter
        self.shape = rows.n_rows, model.D
        self.n_passes = 0

    def _sweep(self, task: Callable[..., Statistics], *arguments: Any) -> Statistics:
        self.n_passes += 1
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self.rows.map_reduce(task, (self.model, *arguments), self.model.piece_rows)

    # ---- expansions --------------------------------------------------------------------------------------------
    def origin(self) -> Array:
        return np.zeros((self.model.D, self.model.M))

    def look(
        self, rule: Rule, x: Array, q: InducingGaussian | None = None, *, fisher: bool = False, curvature: bool = True
    ) -> InducingLook:
        sums = self._sweep(sites_pass, rule, x, fisher, curvature, None if q is None else q.covariance)
        return InducingLook(x, _objective(sums["value"], x), fisher, sums)

    def glance(self, rule: Rule, x: Array) -> float:
        return _objective(self._sweep(value_pass, rule, x[None])["value"][0], x)

    def trials(self, rule: Rule, look: InducingLook, step: Array, curvature: bool = True) -> Iterator[Trial]:
        ahead = self.look(rule, look.x + step, curvature=curvature)
        yield 1.0, ahead.objective, ahead
        for block in range(3):
            lengths = 0.5 ** np.arange(1 + block * HALVINGS, 1 + (block + 1) * HALVINGS)
            points = look.x + lengths[:, None, None] * step
            for t, x, value in zip(lengths, points, self._sweep(value_pass, rule, points)["value"]):
                yield float(t), _objective(value, x), None

    def factor(self, look: InducingLook) -> tuple[Array, Array]:
        H = precision_matrix(look.sums, self.model.D, self.model.M)
        if not np.all(np.isfinite(H)):
            raise InferenceError("the curvature is not finite at these hyperparameters")
        return H, cholesky(H.copy())

    def unchanged(self, look: InducingLook, factor: tuple[Array, Array]) -> bool:
        return "precision" not in look.sums

    def newton(self, look: InducingLook, factor: tuple[Array, Array]) -> tuple[Array, float]:
        slope = look.sums["score"] - look.x
        step = cholesky_solve(factor[1], slope.ravel()).reshape(slope.shape)
        return step, float(np.sum(slope * step))

    def gaussian(self, factor: tuple[Array, Array], x: Array) -> InducingGaussian:
        return InducingGaussian(x, *factor)

    def unexplained(self, look: InducingLook) -> float:
        return float(look.sums["trace"])

    # ---- bounds ------------------------------------------------------------------------------------------------
    def natural(self, q: InducingGaussian, factorised: bool) -> Natural:
        H = _block_diagonal(q.H, self.model.D) if factorised else q.H
        return H @ q.v.ravel(), H

    def narrowed(self, natural: Natural, q: InducingGaussian, precision: float) -> Natural:
        # of values whose prior is the standard normal: a precision of the latents in units of their prior's
        added = precision * np.repeat(
            np.resize([np.mean(k.diag(self.model.Z)) for k in self.model.kernels], self.model.D), self.model.M
        )
        return natural[0] + added * q.v.ravel(), natural[1] + np.diag(added)

    def from_natural(self, natural: Natural) -> InducingGaussian:
        H = (natural[1] + natural[1].T) / 2
        L = cholesky(H.copy())
        return InducingGaussian(cholesky_solve(L, natural[0]).reshape(self.model.D, self.model.M), H, L)

    def prior_natural(self, rule: Rule) -> Natural:
        order = self.model.D * self.model.M
        return np.zeros(order), np.eye(order)

    def target(self, look: InducingLook, q: InducingGaussian) -> Natural:
        H = precision_matrix(look.sums, self.model.D, self.model.M)
        return H @ q.v.ravel() + (look.sums["score"] - q.v).ravel(), H

    def change(self, look: InducingLook, q: InducingGaussian) -> float:
        scale = np.sqrt(np.diag(q.H))  # an inducing value that few rows see counts as much as one that many do
        dH = np.abs(precision_matrix(look.sums, self.model.D, self.model.M) - q.H) / np.outer(scale, scale)
        change = max(np.abs(look.sums["score"] - q.v).max() / (1.0 + np.abs(q.v).max()), dH.max())
        return float(change) if np.isfinite(change) else np.inf

    def overlap(self, q: InducingGaussian) -> float:
        return q.v.size - float(np.einsum("jmjm->", q.covariance))

    # ---- from one process to another -----------------------------------------------------------------------------
    def remember(self, approximation: Approximation) -> Any:
        """``K_uu^-1`` times the inducing values, or for bounds the whole posterior."""
        q = approximation.q
        if approximation.rule.depends_on == "covariance":
            return list(self.model.L), q.v, q.H
        return self.model.unwhiten(q.v)

    def resume(self, start: Any) -> tuple[Array, Array | None]:
        return np.stack([self.model.L[self.model.of(j)].T @ z for j, z in enumerate(start)]), None

    def resume_natural(self, start: Any) -> list[Natural]:
        """Mean and precision of an earlier posterior in the coordinates of a new factor of K_uu.

        With ``T = L_old^-1 L_new`` the same sites in the space of functions are ``T^T (H - I) T + I``.
        """
        factors, v, H = start
        D, M = v.shape
        of = self.model.of
        T = [solve_lower(old, new.copy(order="F")) for old, new in zip(factors, self.model.L)]
        blocks = (H - np.eye(D * M)).reshape(D, M, D, M).copy()
        for j in range(D):
            for k in range(D):
                blocks[j, :, k] = T[of(j)].T @ blocks[j, :, k] @ T[of(k)]
        moved = np.stack([T[of(j)].T @ v[j] for j in range(D)])
        H = blocks.reshape(D * M, D * M) + np.eye(D * M)
        return [(H @ moved.ravel(), H)]

    # ---- results -----------------------------------------------------------------------------------------------------
    def gradient(self, approximation: Approximation) -> tuple[Array, Array]:
        return self.gradients(approximation, inputs=False)[:2]

    def gradients(self, approximation: Approximation, inputs: bool = True) -> tuple[Array, Array, Array]:
        """Gradient in the kernels' log-hyperparameters, in the family's, and in the inducing inputs (M, features)."""
        q, rule, fisher, m = approximation.q, approximation.rule, approximation.look.fisher, self.model
        P = q.covariance
        D, M = q.v.shape
        moved = self._sweep(gradient_pass, rule, q.v, P, fisher, inputs)
        w = np.zeros_like(q.v)
        if rule.depends_on == "mean" and np.any(moved["move"]):
            w = cholesky_solve(q.L, moved["move"].ravel()).reshape(D, M)
            more = self._sweep(mode_pass, rule, q.v, w, fisher, inputs)
            for name in ("hyper", "phi", "Z"):
                moved[name] = moved[name] + more[name]
        H = q.H.reshape(D, M, D, M)
        hyper, grad_Z, used = moved["hyper"].copy(), moved["Z"], 0
        for k, kernel in enumerate(m.kernels):
            S = np.zeros((M, M))
            for j in range(D)[m.latents(k)]:
                cross = np.outer(q.v[j], w[j])
                S += np.outer(q.v[j], q.v[j]) + cross + cross.T + P[j, :, j] + H[j, :, j]
                S.flat[:: M + 1] -= 2.0
            half = solve_lower(m.L[k], S, transposed=True)
            G = -0.5 * solve_lower(m.L[k], half.T, transposed=True)
            G = (G + G.T) / 2
            G.flat[:: M + 1] *= 1.0 + self.jitter
            g, g_Z = evaluate(kernel, m.Z, m.Z).pullback_both(G)
            hyper[used : used + g.size] += g
            grad_Z = grad_Z + 2.0 * g_Z  # Z enters K_uu as rows and as columns
            used += g.size
        return hyper, moved["phi"], grad_Z

    def cavities(self, approximation: Approximation) -> tuple[Array, ...]:
        """Every row's latent without its own site and with it (means and covariances), its encoded y and its offset."""
        q = approximation.q
        arguments = self.model, approximation.rule, q.v, q.covariance, approximation.look.fisher
        chunks = self.rows.collect(_in_pieces, (self.model.piece_rows, cavity_pass, arguments))
        return tuple(np.concatenate(parts) for parts in zip(*(piece for chunk in chunks for piece in chunk)))

    def posterior(self, approximation: Approximation) -> InducingPosterior:
        m, q = self.model, approximation.q
        return InducingPosterior(list(m.kernels), m.Z, list(m.L), q.v, q.covariance)


def _in_pieces(chunk: Chunk, rows: int, task: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    return [task(piece, *arguments) for piece in chunk.pieces(rows)]


def precision_matrix(sums: Statistics, D: int, M: int) -> Array:
    """``I + sum_i A_i^T U_i A_i`` (DM, DM) from the sums of a pass."""
    H: Array = np.zeros((D, M, D, M))
    blocks = sums["precision"]
    for block, (j, k) in zip(blocks, pairs(D, coupled=len(blocks) > D or D == 1)):
        H[j, :, k], H[k, :, j] = block, block.T
    H = H.reshape(D * M, D * M)
    H.flat[:: D * M + 1] += 1.0
    return H


def _block_diagonal(H: Array, D: int) -> Array:
    """H without the blocks between latent dimensions."""
    M = len(H) // D
    blocks = H.reshape(D, M, D, M)
    out = np.zeros_like(blocks)
    for j in range(D):
        out[j, :, j] = blocks[j, :, j]
    return out.reshape(H.shape)


def _objective(value: Any, v: Array) -> float:
    """log p(y|v) - |v|²/2."""
    total = float(value) - 0.5 * float(np.sum(v * v))
    return total if np.isfinite(total) else -np.inf
