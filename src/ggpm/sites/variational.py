"""The variational rule: sites whose Gaussian is closest to the posterior, for any family.

q(f) has precision K^-1 + Lambda, Lambda block-diagonal by data point (Opper & Archambeau 2009). In the natural
parameters of the sites the natural gradient of the evidence lower bound is a difference, and a step of length one is
(Khan & Lin 2017)

    Lambda_i <- E_q[U_i],        lambda_i <- E_q[u_i] + E_q[U_i] m_i.

*Gradient in the hyperparameters.* A Gaussian q is a free choice of (m, V), whatever K is; at the best one the
bound is stationary in (m, V), so its derivative is the partial one at fixed (m, V), *not* at fixed sites:

    dELBO/dK = -dKL/dK = 1/2 (z z^T - (K^-1 - K^-1 V K^-1)) = 1/2 (z z^T - (K + Lambda^-1)^-1),
    dELBO/dphi = sum_i E_q[d log p_i / dphi].

The same holds among factorised q, whose (m, V_1, ..., V_D) are free too, with Lambda_jj = E_q[U_jj]. It holds to
the last digit because E_q[u] and E_q[U] are derivatives of the very sum that stands for the expectation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import check_positive, check_whole
from ggpm.families.curvature import Marginals
from ggpm.kernels.linalg import NotPositiveDefinite
from ggpm.sites.base import Problem, Rule, Sites, Slopes
from ggpm.sites.expectations import TOLERANCES, SiteMap, expect, expect_phi, expected_blocks, root, values_of

Array = NDArray[np.float64]

# Up to so many latents blocks cost about as much as diagonal sites on the dense field: D + 1 factorisations of order n.
# More latents cost (nD)^3 per step; up to the order below that is less than what the expectations cost (measured with
# one thread).
BLOCKS_CHEAP, BLOCKS_MAX_ORDER = 3, 400
# Tolerance of the sites while hyperparameters are searched, and what can be asked of the search then: the bound is
# stationary in them, so that it is known to the square of it, and its gradient to four digits or three. With three
# latents or more, whose nodes cost most, expectations have the precision "searching", which takes a quarter of them.
# The end of a search is evaluated anew.
SEARCH_TOL, MANY_TOL, MANY_FTOL, MANY_LATENTS = 1e-4, 1e-3, 1e-6, 3

# Rules by which nodes are fewer where they tell only how sites move from a point where they are known.
FEWER = 2


@dataclass(frozen=True)
class Variational(Rule):
    """The best Gaussian approximation in the sense of the evidence lower bound, found by natural gradients.

    The search starts from Laplace's sites and never decreases the bound.

    Parameters
    ----------
    sites : "auto", "blocks" or "factorised"
        Precision matrices of the sites: full D×D blocks, O(D n^3) per step for D <= 3 and O((nD)^3) above, or
        diagonal, O(D n^3), with which the latent dimensions are independent under q. "auto" takes blocks for D <= 3
        and for nD <= 400.
    accuracy : "coarse", "standard" or "fine"
        Error of each row's expectations, about 1e-4, 1e-7 or 1e-10 nats: every row has as many nodes as that takes, up
        to a limit that wide latents near a kink may reach. Not used where the family has closed forms.
    max_iter : int
        Most steps.
    tol : float
        The search ends when no site parameter moves by more than this, relative to the largest.

    Examples
    --------
    >>> Variational(sites="factorised").accuracy
    'standard'
    """

    sites: Literal["auto", "blocks", "factorised"] = "auto"
    accuracy: str = "standard"
    max_iter: int = 100
    tol: float = 1e-6
    depends_on = "covariance"

    def __post_init__(self) -> None:
        check_whole(self.max_iter, "max_iter", 1)
        check_positive(self.tol, "tol")
        if self.sites not in ("auto", "blocks", "factorised"):
            raise ValueError(f"sites must be 'auto', 'blocks' or 'factorised'; got {self.sites!r}.")
        if self.accuracy not in TOLERANCES:
            raise ValueError(f"accuracy must be one of 'coarse', 'standard', 'fine'; got {self.accuracy!r}.")

    def ftol(self, D: int) -> float:
        return max(1e-9 if D < MANY_LATENTS else MANY_FTOL, 0.1 * self.tol)

    @property
    def wobble(self) -> float:
        return TOLERANCES[self.accuracy]

    @property
    def factorised(self) -> bool:  # type: ignore[override]
        return self.sites == "factorised"

    def loosened(self, D: int) -> Self:
        many = D >= MANY_LATENTS
        accuracy = "searching" if many and self.accuracy == "standard" else self.accuracy
        return replace(self, tol=max(self.tol, MANY_TOL if many else SEARCH_TOL), accuracy=accuracy)

    def resolved(self, n: int, D: int, blocks_are_cheap: bool) -> Self:
        if D == 1:
            return replace(self, sites="factorised")
        if self.sites != "auto":
            return self
        factorised = D > BLOCKS_CHEAP and n * D > BLOCKS_MAX_ORDER and not blocks_are_cheap
        return replace(self, sites="factorised" if factorised else "blocks")

    def at(self, problem: Problem, f: Array, V: Marginals | None = None, fisher: bool = False) -> Sites:
        found = expect(problem, f, self._root(V), self.accuracy)
        return Sites(
            found.u, found.U, None, float(np.sum(found.value)), found.blocks, found.levels, found.error, found.nodes
        )

    def near(self, problem: Problem, f: Array, V: Marginals, sites: Sites) -> Callable[[Array, Marginals], Sites]:
        if sites.nodes is None:
            return lambda f, V: self.at(problem, f, V)
        nodes = np.where(sites.nodes > 0, np.maximum(sites.nodes - FEWER, 1), sites.nodes)
        few = expect(problem, f, self._root(V), self.accuracy, nodes)
        off_u, off_U = sites.u - few.u, values_of(sites.U) - values_of(few.U)

        def at(f: Array, V: Marginals) -> Sites:
            found = expect(problem, f, self._root(V), self.accuracy, nodes)
            return Sites(found.u + off_u, type(found.U)(values_of(found.U) + off_U))

        return at

    def slopes(self, problem: Problem, f: Array, V: Marginals | None, sites: Sites) -> Slopes:
        return _VariationalSlopes(problem, f, self._root(V), sites.levels, sites.nodes)

    def coupled(self, problem: Problem, f: Array, V: Marginals, sites: Sites) -> Array:
        return expected_blocks(problem, f, self._root(V)) if sites.coupling is None else sites.coupling

    def _root(self, V: Marginals | None) -> Array:
        assert V is not None, "a variational site needs the covariance of the latent"
        try:
            R = root(V, self.factorised)
        except np.linalg.LinAlgError as err:
            raise NotPositiveDefinite(str(err)) from None
        if not np.all(np.isfinite(R)):
            raise NotPositiveDefinite("a posterior variance is negative")
        return R


class _VariationalSlopes(Slopes):
    def __init__(self, problem: Problem, mean: Array, R: Array, levels: Any, nodes: Any):
        self.problem, self.mean, self.R, self.levels, self.nodes = problem, mean, R, levels, nodes

    def pullback(
        self, u_bar: Array | None, U_bar: Marginals | None, *, value: bool = False, phi: bool = True
    ) -> tuple[Array, Array | None, Array]:
        learns = phi and self.problem.family.log_hyper.size > 0
        phi_bar = np.zeros(self.problem.family.log_hyper.size)
        if value and learns:
            phi_bar = expect_phi(self.problem, self.mean, self.R, self.levels).sum(axis=0)
        if u_bar is None and U_bar is None:
            return np.zeros_like(self.mean), None, phi_bar
        a = np.zeros_like(self.mean) if u_bar is None else u_bar
        B = np.zeros_like(self.R) if U_bar is None else U_bar.diag if self.R.ndim == 2 else U_bar.dense()
        f_bar, V_bar = self._map.pullback(a, B)
        return f_bar, V_bar, phi_bar + self._map.pullback_phi(a, B) if learns else phi_bar

    @cached_property
    def _map(self) -> SiteMap:
        return SiteMap(self.problem, self.mean, self.R, self.levels, self.nodes)
