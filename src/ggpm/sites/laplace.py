"""Laplace inference: the expansion at the posterior mode (paper, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import check_positive, check_whole
from ggpm.families.curvature import Curvature
from ggpm.fields.dense import Joint, Solution, factorise
from ggpm.kernels.linalg import NotPositiveDefinite
from ggpm.sites.base import (
    Approximation,
    InferenceError,
    Problem,
    assemble,
    curvature_pullback,
    expand,
    kernel_dot,
)
from ggpm.sites.sensitivity import Cotangent, as_marginals, is_diagonal, posterior_map, shaped

Array = NDArray[np.float64]

_State = tuple[Array, Array, float]  # z, f = K z, and the objective there

CHORD_SIZE = 256  # nD from which steps with an old factorisation pay
# One factorisation costs about n / CHORD_... such steps (measured, one thread)
CHORD_COUPLED = 12
CHORD_SINGLE = 120
CHORD_MOST = 15
SUFFICIENT = 1e-4  # Armijo: the share of the predicted gain that a step must bring
ROUNDING = 1e-13  # relative size of differences of the objective that are rounding
CONSISTENT = 0.1  # two forms of the Newton decrement that differ by more than this share say that digits are lost
DENSE_SIZE = 3000  # nD up to which a lost direction is computed again by elimination with pivoting


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

    def __post_init__(self) -> None:
        check_whole(self.max_iter, "max_iter", 1)
        check_positive(self.tol, "tol")

    def infer(self, problem: Problem, K: Sequence[Array], start: tuple[Array, Array] | None = None) -> Approximation:
        """Posterior at the mode; ``start`` is the `start` of an earlier result."""
        z, f, psi = self._start(problem, K, start)
        trace, accepted = [psi], np.inf
        site: _Site | None = None
        for iteration in range(self.max_iter + 1):
            eta = f + problem.offset
            u, U = problem.family.u_and_U(eta, problem.y)
            if site is None or site.expected.any() or not _equal(U, site.U):
                site = None  # gives its memory back before the next one is built
                site = _factorise(problem, K, eta, U)
            dz, df, decrement = _direction(site, K, u - z)
            small = decrement <= self.tol * (1.0 + abs(psi))
            # at the limit of rounding the decrement no longer falls
            stalled = decrement <= 1e-10 * (1.0 + abs(psi)) and decrement >= 0.25 * accepted
            if small or stalled or iteration == self.max_iter:
                break
            accepted = decrement
            step = _line_search(problem, z, f, dz, df, psi, decrement)
            if step is None and not site.expected.any():
                site = None
                site = _factorise(problem, K, eta, None)
                dz, df, ascent = _direction(site, K, u - z)
                step = _line_search(problem, z, f, dz, df, psi, ascent)
            if step is None:
                break
            steps = [step]
            if z.size >= CHORD_SIZE:
                steps += self._chord(problem, K, site, step, decrement)
            z, f, psi = steps[-1]
            trace += [s[2] for s in steps]
        assert site is not None
        log_prob = psi + 0.5 * float(np.sum(z * f))
        return assemble(
            problem, K, f, log_prob, u, site.U, site.solution, z + dz if small or stalled else z, site.expected,
            converged=bool((small or stalled) and not site.expected.any()), n_iter=iteration, trace=tuple(trace),
        )  # fmt: skip

    def _chord(
        self, problem: Problem, K: Sequence[Array], site: _Site, state: _State, decrement: float
    ) -> list[_State]:
        """Further steps with the factorisation in hand, as long as they lead to the end for less than a new one.

        They cost O(D n^2) each and converge linearly; Newton's method proper would need one or two more O(D n^3)
        factorisations.
        """
        steps: list[_State] = []
        n, D = problem.shape
        budget = min(n / (CHORD_COUPLED if D > 1 else CHORD_SINGLE), CHORD_MOST)
        while True:
            z, f, psi = state
            dz, df, new = _direction(site, K, problem.family.u(f + problem.offset, problem.y) - z)
            target = self.tol * (1.0 + abs(psi))
            if not target < new < decrement or np.log(target / new) < budget * np.log(new / decrement):
                break
            psi_new = _objective(problem, z + dz, f + df)
            if psi_new < psi - ROUNDING * (1.0 + abs(psi)):
                break
            state, decrement = (z + dz, f + df, psi_new), new
            steps.append(state)
        return steps

    def gradient(self, approximation: Approximation) -> tuple[list[Array], Array]:
        """Cotangents of the kernel matrices and gradient in the family's hyperparameters."""
        return approximation.gradient(moves_with_mode=True)

    def pullback(self, approximation: Approximation, cotangent: Cotangent) -> tuple[list[Array], Array]:
        """Cotangents of the kernel matrices and gradient in phi of any quantity of the fitted sites.

        Mean, z and U are functions of the mode, and the mode moves with everything.
        """
        a = approximation
        p, eta, diagonal = a.problem, a.mean + a.problem.offset, is_diagonal(a.solution)
        to = posterior_map(a.K, a.U, a.solution, a.z, a.mean)
        V_bar = shaped(cotangent.V, diagonal)
        nothing = np.zeros(p.shape)
        U_bar = shaped(cotangent.U, diagonal) + to.sites(nothing, V_bar)[1]
        d_eta, d_phi = curvature_pullback(p, eta, as_marginals(U_bar), a.expected_rows)
        mean_bar = cotangent.mean + d_eta - p.family.U(eta, p.y).dot(cotangent.z)
        u_bar = cotangent.z + kernel_dot(a.K, a.solution.solve(mean_bar))
        phi = cotangent.phi + d_phi + np.einsum("nj,njp->p", u_bar, p.family.u_phi(eta, p.y))
        return to.kernels(mean_bar, V_bar), phi

    def _start(self, problem: Problem, K: Sequence[Array], start: tuple[Array, Array] | None) -> _State:
        """The earlier z if it is better than the prior mean; else what a Newton step from the earlier latent values,
        or from the Taylor point, leads to, if that is."""
        zero = np.zeros(problem.shape)
        best = zero, zero, problem.log_prob(zero)
        if start is not None:
            best = _better(problem, K, best, start[0])
        if best[0] is zero:
            point = problem.family.expansion(problem.y) - problem.offset if start is None else start[1]
            with suppress(np.linalg.LinAlgError):
                best = _better(problem, K, best, expand(problem, K, point).z)
        if not np.isfinite(best[2]):
            raise InferenceError(
                "the log-likelihood is not finite at the prior mean nor at the start; check the scale of y and offset"
            )
        return best


def _better(problem: Problem, K: Sequence[Array], state: _State, z: Array) -> _State:
    """z with its latent values and objective if that is higher than the state's."""
    f = kernel_dot(K, z)
    psi = _objective(problem, z, f)
    return (z, f, psi) if psi > state[2] else state


def _objective(problem: Problem, z: Array, f: Array) -> float:
    """log p(y|f) - f^T K^-1 f / 2."""
    return problem.log_prob(f) - 0.5 * float(np.sum(z * f))


@dataclass(frozen=True)
class _Site:
    """A curvature with its factorisation, and the rows in which it is the expected one."""

    U: Curvature
    solution: Solution
    expected: NDArray[np.bool_]


def _factorise(problem: Problem, K: Sequence[Array], eta: Array, U: Curvature | None) -> _Site:
    """The site at eta: with the observed curvature U if K^-1 + U is definite, else with the expected one."""
    everywhere = np.ones(len(eta), dtype=bool)
    if U is not None:
        try:
            return _Site(U, factorise(K, U), ~everywhere)
        except NotPositiveDefinite:
            pass
    U = problem.family.U(eta, problem.y, expected=True)
    try:
        return _Site(U, factorise(K, U), everywhere)
    except NotPositiveDefinite as err:
        raise InferenceError(f"the posterior precision is not positive definite ({err})") from None


def _direction(site: _Site, K: Sequence[Array], residual: Array) -> tuple[Array, Array, float]:
    """Newton direction in z and in f, and the squared Newton decrement.

    The decrement ``r^T df`` is also ``df^T (dz + U df)``, which is positive. Where curvature times kernel is so large
    (1e8 and more) that the structured solve loses its digits, the two differ: the direction is then computed again
    without structure, or the larger of the two is taken, so that lost digits never look like convergence.
    """
    dz, df, decrement, check = _two_decrements(site.U, K, residual, site.solution.solve(residual))
    if abs(decrement - check) > CONSISTENT * decrement and residual.size <= DENSE_SIZE:
        with suppress(np.linalg.LinAlgError):  # singular: beyond double precision altogether
            dz, df, decrement, check = _two_decrements(site.U, K, residual, _dense_solve(site.U, K, residual))
    if abs(decrement - check) > CONSISTENT * decrement:
        decrement = max(abs(decrement), abs(check))
    return dz, df, decrement


def _two_decrements(U: Curvature, K: Sequence[Array], r: Array, dz: Array) -> tuple[Array, Array, float, float]:
    df = kernel_dot(K, dz)
    return dz, df, float(np.sum(r * df)), float(np.sum(df * (dz + U.dot(df))))


def _dense_solve(U: Curvature, K: Sequence[Array], r: Array) -> Array:
    """``(I + U K)^-1 r`` by an LU factorisation of order nD."""
    n, D = r.shape
    if isinstance(K, Joint):
        A = np.matmul(U.dense(), K[0].reshape(n, D, n * D)).reshape(n * D, n * D)
    else:
        K_all = np.stack([K[j if len(K) > 1 else 0] for j in range(D)])
        A = np.einsum("ijk,kim->ijmk", U.dense(), K_all).reshape(n * D, n * D)
    A.flat[:: n * D + 1] += 1.0
    return np.linalg.solve(A, r.ravel()).reshape(n, D)


def _equal(a: Curvature, b: Curvature) -> bool:
    """Whether two curvatures of one family are the same numbers (constant curvature: the Gaussian)."""
    return all(
        np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values()) if x is not None and y is not None
    )


def _line_search(
    problem: Problem, z: Array, f: Array, dz: Array, df: Array, psi: float, decrement: float
) -> _State | None:
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
