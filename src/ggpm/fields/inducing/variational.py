"""Variational inference over inducing values: natural gradients, one pass over the rows per step.

q(v) = N(m, P), ``P^-1 = H``, and with ``V_i = A_i P A_i^T + k~_i`` the marginal covariance of a row,

    ELBO = sum_i E[log p_i] - 1/2 (|m|^2 + tr P - MD + log|H|),        expectations under N(A_i m, V_i).

A natural-gradient step of length one is ``H <- I + sum_i A_i^T E[U_i] A_i``, ``H m <- H m + sum_i A_i^T E[u_i] - m``
with the new H on both sides; shorter steps mix the natural parameters H and H m (Khan & Lin 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import Rows, Statistics
from ggpm.fields.inducing.passes import Model, newton_pass, pairs
from ggpm.kernels.linalg import (
    NotPositiveDefinite,
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    log_det_lower,
    mirror,
    solve_lower,
)
from ggpm.sites import InferenceError

Array = NDArray[np.float64]

ROUNDING = 1e-12  # relative size of differences of the bound that are rounding
ROUNDED = 1e-5  # a search that rounding stops has converged if its parameters still move less than this
SHORTEST = 2.0**-12  # shortest step that is tried
MEMORY = 5  # earlier steps that the extrapolation looks at
# Steps whose residuals point the same way say nothing new, and their normal equations are singular. This share of
# the diagonal keeps them solvable; it is above their rounding (1e-16 times the number of entries) and far below the
# differences that matter. It changes which step is tried, never where the search ends: a step counts only if the
# bound rises.
DAMPING = 1e-10


@dataclass(frozen=True)
class State:
    """A Gaussian q(v), its bound, and the natural parameters that a full step would lead to."""

    m: Array
    H: Array
    L: Array
    bound: float
    target_H: Array
    target_Hm: Array

    @property
    def natural(self) -> Array:
        """H m and H, flat."""
        return np.concatenate([self.H @ self.m.ravel(), self.H.ravel()])

    @property
    def target(self) -> Array:
        """The same after a full step."""
        return np.concatenate([self.target_Hm, self.target_H.ravel()])


class VariationalSearch:
    """The best q(v); counts its passes."""

    def __init__(self, rows: Rows, model: Model, inference: Any) -> None:
        self.rows, self.model, self.inference = rows, model, inference
        self.n_passes = 0

    def run(self, m: Array, H: Array) -> tuple[State, bool, int, list[float]]:
        """From N(m, H^-1) to the best q; the state, whether it converged, steps and bounds."""
        state = self._state(m, H)
        if state is None or state.bound == -np.inf:
            # an earlier posterior may be far too narrow or wide: the prior always has a bound
            state = self._state(np.zeros_like(m), np.eye(len(H)))
        if state is None or not np.isfinite(state.bound):
            raise InferenceError("the evidence lower bound is not finite at these hyperparameters")
        bounds, least, idle = [state.bound], np.inf, 0
        history: list[tuple[Array, Array]] = []
        converged, iteration = False, 0
        for iteration in range(self.inference.max_iter + 1):
            natural, target = state.natural, state.target
            change = _change(natural, target, state.m.size)
            idle = 0 if change < 0.7 * least else idle + 1
            least = min(least, change)
            # at the limit of rounding the parameters no longer come closer
            converged = change <= self.inference.tol or (idle >= 8 and change <= ROUNDED)
            if converged or iteration == self.inference.max_iter:
                break
            history = [*history, (natural, target)][-MEMORY:]
            step = self._step(state, history)
            if step is None:
                converged = change <= ROUNDED
                break
            state = step
            bounds.append(state.bound)
        return state, bool(converged), iteration, bounds

    def _step(self, state: State, history: list[tuple[Array, Array]]) -> State | None:
        """An extrapolated step if it raises the bound, else the longest plain one that does."""
        slack = ROUNDING * (1.0 + abs(state.bound))
        if len(history) > 1:
            trial = self._at(_extrapolated(history), state)
            if trial is not None and trial.bound >= state.bound - slack:
                return trial
        natural, target, t = state.natural, state.target, 1.0
        while t >= SHORTEST:
            trial = self._at(natural + t * (target - natural), state)
            if trial is not None and trial.bound >= state.bound - slack:
                return trial
            t *= 0.5
        return None

    def _at(self, natural: Array, like: State) -> State | None:
        """The state with these natural parameters, if they are those of a Gaussian."""
        size = like.m.size
        H = natural[size:].reshape(size, size)
        try:
            L = cholesky((H + H.T) / 2)
        except NotPositiveDefinite:
            return None
        return self._state(cholesky_solve(L, natural[:size]).reshape(like.m.shape), (H + H.T) / 2)

    def _state(self, m: Array, H: Array) -> State | None:
        """The bound and the full step from N(m, H^-1): one pass."""
        D, M = m.shape
        try:
            L = cholesky(H.copy())
        except NotPositiveDefinite:
            return None
        P = mirror(cholesky_inverse(L.copy(order="F"))).T
        self.n_passes += 1
        arguments = (self.model, m, False, True, P.reshape(D, M, D, M))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                sums = self.rows.map_reduce(newton_pass, arguments, self.model.piece_rows)
            except np.linalg.LinAlgError:  # a marginal covariance without a root
                return None
        target_H = precision_matrix(sums, D, M)
        kl = 0.5 * (float(np.sum(m**2)) + float(np.trace(P)) - D * M + log_det_lower(L))
        bound = float(sums["value"]) - kl
        if not (np.isfinite(bound) and np.all(np.isfinite(target_H))):
            return None
        target_Hm = target_H @ m.ravel() + (sums["score"] - m).ravel()
        return State(m, H, L, bound, target_H, target_Hm)


def precision_matrix(sums: Statistics, D: int, M: int) -> Array:
    """``I + sum_i A_i^T U_i A_i`` (DM, DM) from the sums of a pass."""
    H: Array = np.zeros((D, M, D, M))
    blocks = sums["precision"]
    for block, (j, k) in zip(blocks, pairs(D, coupled=len(blocks) > D or D == 1)):
        H[j, :, k], H[k, :, j] = block, block.T
    H = H.reshape(D * M, D * M)
    H.flat[:: D * M + 1] += 1.0
    return H


def carried(start: tuple[Any, Array, Array], model: Model) -> tuple[Array, Array]:
    """Mean and precision of an earlier posterior in the coordinates of a new factor of K_uu.

    With ``T = L_old^-1 L_new`` the same sites in the space of functions are ``T^T (H - I) T + I``.
    """
    factors, v, H = start
    D, M = v.shape
    T = [solve_lower(old, new.copy(order="F")) for old, new in zip(factors, model.L)]
    blocks = (H - np.eye(D * M)).reshape(D, M, D, M).copy()
    for j in range(D):
        for k in range(D):
            blocks[j, :, k] = T[model.of(j)].T @ blocks[j, :, k] @ T[model.of(k)]
    moved = np.stack([T[model.of(j)].T @ v[j] for j in range(D)])
    return moved, blocks.reshape(D * M, D * M) + np.eye(D * M)


def _change(natural: Array, target: Array, size: int) -> float:
    """The largest move of a full step, relative to the largest parameter, of H m and of H."""
    parts = (slice(None, size), slice(size, None))
    return max(
        float(np.max(np.abs(target[p] - natural[p])) / (1.0 + np.max(np.abs(target[p])))) for p in parts
    )  # fmt: skip


def _extrapolated(history: list[tuple[Array, Array]]) -> Array:
    """Anderson's mixing of the last steps: where their residuals, combined, would vanish."""
    natural, target = history[-1]
    residual = target - natural
    past = [(residual - (t - n), target - t) for n, t in history[:-1]]
    R = np.stack([r for r, _ in past], axis=1)
    gram = R.T @ R
    gram.flat[:: len(gram) + 1] *= 1.0 + DAMPING
    try:
        weights = np.linalg.solve(gram, R.T @ residual)
    except np.linalg.LinAlgError:
        return target
    return target - np.stack([t for _, t in past], axis=1) @ weights
