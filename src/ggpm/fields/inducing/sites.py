"""The Gaussian site that each row gets, one chunk at a time: what the inference methods differ in.

A site method answers, for the latent of some rows, with the value of the (approximate) log-likelihood, its
gradient and its curvature; the posterior over the inducing values follows from their sums alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import Chunk
from ggpm.families.base import Family
from ggpm.families.curvature import Curvature, Diagonal, Marginals, PlusOuter
from ggpm.sites import Laplace, Problem, Taylor, Variational
from ggpm.sites.base import curvature_pullback
from ggpm.sites.expectations import expect, expect_phi, root

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Site:
    """Value, gradient (c, D) and curvature of the log-likelihood of some rows at their latent f."""

    value: float
    u: Array
    U: Curvature


class Sites(Protocol):
    """An inference method, for chunks of rows."""

    moves_with_mode: bool
    """Whether the sites are an expansion at the latent that they lead to (Laplace)."""
    takes_marginals: bool
    """Whether a site depends on the covariance of the latent too (variational)."""

    def value(self, family: Family, chunk: Chunk, f: Array) -> float:
        """The (approximate) log-likelihood alone, for line searches."""
        ...

    def at(self, family: Family, chunk: Chunk, f: Array, expected: bool, V: Marginals | None = None) -> Site:
        """The site at f (and V); ``expected`` asks for the expected curvature."""
        ...

    def pull(self, family: Family, chunk: Chunk, f: Array, V: Marginals, expected: bool) -> tuple[Array, Array]:
        """``s = -1/2 d<V, U>/df`` (c, D) with the marginals held, and the explicit gradient in phi, (p,)."""
        ...


class LaplaceSites:
    """The second-order expansion at f itself."""

    moves_with_mode = True
    takes_marginals = False

    def value(self, family: Family, chunk: Chunk, f: Array) -> float:
        return Problem(family, chunk.y, chunk.offset).log_prob(f)

    def at(self, family: Family, chunk: Chunk, f: Array, expected: bool, V: Marginals | None = None) -> Site:
        eta = f + chunk.offset
        return Site(self.value(family, chunk, f), family.u(eta, chunk.y), family.U(eta, chunk.y, expected=expected))

    def pull(self, family: Family, chunk: Chunk, f: Array, V: Marginals, expected: bool) -> tuple[Array, Array]:
        eta = f + chunk.offset
        d_eta, d_phi = family.U_pullback(eta, chunk.y, V, expected=expected)
        return -0.5 * d_eta, family.log_prob_phi(eta, chunk.y).sum(axis=0) - 0.5 * d_phi


@dataclass(frozen=True)
class TaylorSites:
    """The second-order expansion at a point that y chooses, as a quadratic function of f."""

    method: Taylor
    moves_with_mode = False
    takes_marginals = False

    def _expansion(self, family: Family, chunk: Chunk) -> tuple[Array, Array, Curvature, NDArray[np.bool_]]:
        """f~, and u, U there (expected in rows where the observed is indefinite), and which rows those are."""
        problem = Problem(family, chunk.y, chunk.offset)
        method = self.method
        if isinstance(method.expansion, np.ndarray):
            given = method.expansion[chunk.start : chunk.start + len(chunk)]
            method = Taylor(given, method.c)
        point = method._point(problem)
        eta = point + chunk.offset
        U = family.U(eta, chunk.y)
        definite = U.semidefinite()
        if not definite.all():
            U = U.select(definite, family.U(eta, chunk.y, expected=True))
        return point, family.u(eta, chunk.y), U if method.c else U.diagonal(), ~definite

    def value(self, family: Family, chunk: Chunk, f: Array) -> float:
        return self.at(family, chunk, f, False).value

    def at(self, family: Family, chunk: Chunk, f: Array, expected: bool, V: Marginals | None = None) -> Site:
        point, u, U, _ = self._expansion(family, chunk)
        r = f - point
        Ur = U.dot(r)
        value = LaplaceSites().value(family, chunk, point) + float(np.sum(r * (u - 0.5 * Ur)))
        return Site(value, u - Ur, U)

    def pull(self, family: Family, chunk: Chunk, f: Array, V: Marginals, expected: bool) -> tuple[Array, Array]:
        point, _, U, rows = self._expansion(family, chunk)
        problem, eta, r = Problem(family, chunk.y, chunk.offset), point + chunk.offset, f - point
        M = PlusOuter(V, r)
        d_eta, d_phi = curvature_pullback(problem, eta, M if self.method.c else Diagonal(M.diag), rows)
        s = -0.5 * d_eta
        if rows.any() or not self.method.c:
            # u moves by the observed curvature, the site by the expected one, or by its diagonal
            s += U.dot(r) - family.U(eta, chunk.y).dot(r)
        grad_phi = family.log_prob_phi(eta, chunk.y).sum(axis=0) - 0.5 * d_phi
        grad_phi = grad_phi + np.einsum("nj,njp->p", r, family.u_phi(eta, chunk.y))
        if self.method.expansion is None:
            grad_phi = grad_phi + family.expansion_pullback(chunk.y, s)
        return np.zeros_like(s), grad_phi


@dataclass(frozen=True)
class VariationalSites:
    """Expectations under N(f, V) of the log-likelihood and its derivatives.

    The bound is stationary in the mean and covariance of the inducing values, so that its gradient in everything
    else is the partial one: Taylor's, with expectations in the place of u and U.
    """

    method: Variational
    factorised: bool
    moves_with_mode = False
    takes_marginals = True

    def value(self, family: Family, chunk: Chunk, f: Array) -> float:
        raise NotImplementedError("a variational site needs the covariance of the latent")

    def at(self, family: Family, chunk: Chunk, f: Array, expected: bool, V: Marginals | None = None) -> Site:
        assert V is not None
        problem = Problem(family, chunk.y, chunk.offset)
        found = expect(problem, f, root(V, self.factorised), self.method.accuracy)
        return Site(float(np.sum(found.value)), found.u, found.U)

    def pull(self, family: Family, chunk: Chunk, f: Array, V: Marginals, expected: bool) -> tuple[Array, Array]:
        problem = Problem(family, chunk.y, chunk.offset)
        phi = expect_phi(problem, f, root(V, self.factorised), self.method.accuracy)
        return np.zeros_like(f), phi.sum(axis=0)


def sites_of(inference: Any, latent_dim: int) -> Sites:
    """The sites that belong to an inference method."""
    if isinstance(inference, Laplace):
        return LaplaceSites()
    if isinstance(inference, Taylor):
        if inference.expansion is not None and not callable(inference.expansion):
            return TaylorSites(Taylor(np.asarray(inference.expansion, dtype=float), inference.c))
        return TaylorSites(inference)
    if isinstance(inference, Variational):
        # full blocks cost no more than factorised ones here: "auto" takes them
        return VariationalSites(inference, latent_dim == 1 or inference.sites == "factorised")
    raise TypeError(
        f"inducing points work with inference 'taylor', 'laplace' and 'variational'; got {inference!r}. "
        "Use one of those, or inducing=None for exact inference."
    )
