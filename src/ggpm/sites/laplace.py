"""Laplace's rule: the expansion at the posterior mode (paper, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import check_positive, check_whole
from ggpm.families.curvature import Marginals
from ggpm.sites.base import Problem, Rule, Sites, Slopes, curvature_pullback

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Laplace(Rule):
    """Expansion at the mode, found by a damped Newton method that never decreases the objective.

    The observed curvature is used where ``K^-1 + U`` is positive definite with it, and the Fisher
    curvature elsewhere.

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
    depends_on = "mean"

    def __post_init__(self) -> None:
        check_whole(self.max_iter, "max_iter", 1)
        check_positive(self.tol, "tol")

    def loosened(self, D: int) -> Laplace:
        return _Impatient(self.max_iter, self.tol)

    def u(self, problem: Problem, f: Array) -> Array:
        return problem.family.u(f + problem.offset, problem.y)

    def at(self, problem: Problem, f: Array, V: Marginals | None = None, fisher: bool = False) -> Sites:
        eta = f + problem.offset
        u, U = problem.family.u_and_U(eta, problem.y)
        every = np.ones(len(f), dtype=bool)
        return Sites(u, problem.family.U(eta, problem.y, expected=True), every) if fisher else Sites(u, U)

    def slopes(self, problem: Problem, f: Array, V: Marginals | None, sites: Sites) -> Slopes:
        return _LaplaceSlopes(problem, f + problem.offset, sites)


class _Impatient(Laplace):
    """Laplace's rule within a search for hyperparameters.

    Where the mode is at no distance that counts (a function through every row, whose noise goes to nothing) its
    evidence is of no use, and a hundred steps with two factorisations each do not reach it.
    """

    patience = 16


@dataclass(frozen=True)
class _LaplaceSlopes(Slopes):
    problem: Problem
    eta: Array
    sites: Sites

    @cached_property
    def _phi(self) -> tuple[Array, Array]:
        return self.problem.family.phi_slopes(self.eta, self.problem.y)

    def pullback(
        self, u_bar: Array | None, U_bar: Marginals | None, *, value: bool = False, phi: bool = True
    ) -> tuple[Array, Array | None, Array]:
        p = self.problem
        f_bar, phi_bar = np.zeros_like(self.eta), np.zeros(p.family.log_hyper.size)
        if U_bar is not None:
            f_bar, phi_bar = curvature_pullback(p, self.eta, U_bar, self.sites.fisher)
        if u_bar is not None:
            f_bar = f_bar - p.family.U(self.eta, p.y).dot(u_bar)
            phi_bar = phi_bar + self.u_phi(u_bar) if phi else phi_bar
        if value and phi:
            phi_bar = phi_bar + self._phi[0].sum(axis=0)
        return f_bar, None, phi_bar

    def u_phi(self, u_bar: Array) -> Array:
        return np.einsum("nj,njp->p", u_bar, self._phi[1])
