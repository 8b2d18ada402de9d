"""Laplace inference: the expansion at the posterior mode (paper, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpm._linalg import NotPositiveDefinite
from ggpm.curvature import Curvature
from ggpm.inference.base import Approximation, InferenceError, Problem, assemble, expand, kernel_dot
from ggpm.solvers import Solution, factorise

Array = NDArray[np.float64]

SUFFICIENT = 1e-4  # Armijo: the share of the predicted gain that a step must bring
ROUNDING = 1e-13  # relative size of differences of the objective that are rounding


@dataclass(frozen=True)
class Laplace:
    """Expansion at the mode, found by a damped Newton method that never decreases the objective.

    Each step solves ``dz = (I + U K)^-1 (u - z)`` with the observed curvature where ``K^-1 + U`` is positive
    definite and with the expected one elsewhere, then halves the step until the objective rises.

    Parameters
    ----------
    max_iter : int
        Most Newton steps per mode search.
    tol : float
        The search ends when the squared Newton decrement, relative to 1 + |objective|, is below this.
        The evidence depends on the mode to first order, so this is far below what the mode itself would need.

    Examples
    --------
    >>> Laplace()
    Laplace(max_iter=100, tol=1e-18)
    """

    max_iter: int = 100
    tol: float = 1e-18

    def infer(self, problem: Problem, K: Sequence[Array], start: Array | None = None) -> Approximation:
        """Posterior at the mode; ``start`` is a z = K^-1 f to start from (an earlier result)."""
        z, f, psi = self._start(problem, K, start)
        trace, accepted = [psi], np.inf
        factorised: tuple[Curvature, Solution] | None = None
        for iteration in range(self.max_iter + 1):
            eta = f + problem.offset
            u = problem.family.u(eta, problem.y)
            U, solution, expected = _factorise(problem, K, eta, factorised)
            factorised = U, solution
            dz = solution.solve(u - z)
            df = kernel_dot(K, dz)
            decrement = float(np.sum((u - z) * df))
            small = decrement <= self.tol * (1.0 + abs(psi))
            # at the limit of rounding the decrement no longer falls
            stalled = decrement <= 1e-10 * (1.0 + abs(psi)) and decrement >= 0.25 * accepted
            if small or stalled or iteration == self.max_iter:
                break
            accepted = decrement
            step = _line_search(problem, z, f, dz, df, psi, decrement)
            if step is None and not expected.any():
                U, solution, expected = _factorise(problem, K, eta, None, force_expected=True)
                factorised = U, solution
                dz = solution.solve(u - z)
                df = kernel_dot(K, dz)
                step = _line_search(problem, z, f, dz, df, psi, float(np.sum((u - z) * df)))
            if step is None:
                break
            z, f, psi = step
            trace.append(psi)
        converged = bool((small or stalled) and not expected.any())
        return assemble(
            problem, K, f, u, U, solution, z + dz if small or stalled else z, expected,
            converged=converged, n_iter=iteration, trace=tuple(trace),
        )  # fmt: skip

    def gradient(self, approximation: Approximation) -> tuple[list[Array], Array]:
        """Cotangents of the kernel matrices and gradient in the family's hyperparameters."""
        return approximation.gradient(moves_with_mode=True)

    def _start(self, problem: Problem, K: Sequence[Array], start: Array | None) -> tuple[Array, Array, float]:
        """The best of: the prior mean, the given start, or without one a Newton step from the Taylor point."""
        zero = np.zeros(problem.shape)
        best = zero, zero, problem.log_prob(zero)
        if start is None:
            try:
                start = expand(problem, K, problem.family.expansion(problem.y) - problem.offset).z
            except np.linalg.LinAlgError:
                start = zero
        f = kernel_dot(K, start)
        psi = _objective(problem, start, f)
        if psi > best[2]:
            best = start, f, psi
        if not np.isfinite(best[2]):
            raise InferenceError(
                "the log-likelihood is not finite at the prior mean nor at the start; check the scale of y and offset"
            )
        return best


def _objective(problem: Problem, z: Array, f: Array) -> float:
    """log p(y|f) - f^T K^-1 f / 2."""
    return problem.log_prob(f) - 0.5 * float(np.sum(z * f))


def _factorise(
    problem: Problem,
    K: Sequence[Array],
    eta: Array,
    last: tuple[Curvature, Solution] | None,
    force_expected: bool = False,
) -> tuple[Curvature, Solution, NDArray[np.bool_]]:
    """Curvature and solution at eta: observed where K^-1 + U is definite, else expected; reuses an equal one."""
    everywhere = np.ones(len(eta), dtype=bool)
    if not force_expected:
        U = problem.family.U(eta, problem.y)
        if last is not None and _equal(U, last[0]):
            return U, last[1], ~everywhere
        try:
            return U, factorise(K, U), ~everywhere
        except NotPositiveDefinite:
            pass
    U = problem.family.U(eta, problem.y, expected=True)
    try:
        return U, factorise(K, U), everywhere
    except NotPositiveDefinite as err:
        raise InferenceError(f"the posterior precision is not positive definite ({err})") from None


def _equal(a: Curvature, b: Curvature) -> bool:
    """Whether two curvatures of one family are the same numbers (constant curvature: the Gaussian)."""
    return all(
        np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values()) if x is not None and y is not None
    )


def _line_search(
    problem: Problem, z: Array, f: Array, dz: Array, df: Array, psi: float, decrement: float
) -> tuple[Array, Array, float] | None:
    """Halve the step until the objective rises enough; None if no step helps."""
    slack = ROUNDING * (1.0 + abs(psi))
    t = 1.0
    for _ in range(40):
        z_new, f_new = z + t * dz, f + t * df
        psi_new = _objective(problem, z_new, f_new)
        if psi_new >= psi + SUFFICIENT * t * decrement - slack:
            return z_new, f_new, psi_new
        t *= 0.5
    return None
