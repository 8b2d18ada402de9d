"""The Gaussian site that each row gets, one chunk at a time: what the inference methods differ in.

A site method answers, for the latent of some rows, with the value of the (approximate) log-likelihood, its
gradient and its curvature; the posterior over the inducing values follows from their sums alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ggpm.curvature import Curvature, Marginals, PlusOuter
from ggpm.families.base import Family
from ggpm.inference import Laplace, Problem, Taylor
from ggpm.inference.base import curvature_pullback
from ggpm.sparse.rows import Chunk

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
    """Whether the sites depend on the latent that they lead to (Laplace), or on y alone (Taylor)."""

    def value(self, family: Family, chunk: Chunk, f: Array) -> float:
        """The (approximate) log-likelihood alone, for line searches."""
        ...

    def at(self, family: Family, chunk: Chunk, f: Array, expected: bool) -> Site:
        """The site at f; ``expected`` asks for the expected curvature."""
        ...

    def pull(self, family: Family, chunk: Chunk, f: Array, V: Marginals, expected: bool) -> tuple[Array, Array]:
        """``s = -1/2 d<V, U>/df`` (c, D) with the marginals held, and the explicit gradient in phi, (p,)."""
        ...


class LaplaceSites:
    """The second-order expansion at f itself."""

    moves_with_mode = True

    def value(self, family: Family, chunk: Chunk, f: Array) -> float:
        return Problem(family, chunk.y, chunk.offset).log_prob(f)

    def at(self, family: Family, chunk: Chunk, f: Array, expected: bool) -> Site:
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

    def at(self, family: Family, chunk: Chunk, f: Array, expected: bool) -> Site:
        point, u, U, _ = self._expansion(family, chunk)
        r = f - point
        Ur = U.dot(r)
        value = LaplaceSites().value(family, chunk, point) + float(np.sum(r * (u - 0.5 * Ur)))
        return Site(value, u - Ur, U)

    def pull(self, family: Family, chunk: Chunk, f: Array, V: Marginals, expected: bool) -> tuple[Array, Array]:
        point, _, U, rows = self._expansion(family, chunk)
        problem, eta, r = Problem(family, chunk.y, chunk.offset), point + chunk.offset, f - point
        d_eta, d_phi = curvature_pullback(problem, eta, PlusOuter(V, r), rows)
        s = -0.5 * d_eta
        if rows.any():
            # u moves by the observed curvature, the site by the expected one
            s += U.dot(r) - family.U(eta, chunk.y).dot(r)
        grad_phi = family.log_prob_phi(eta, chunk.y).sum(axis=0) - 0.5 * d_phi
        grad_phi = grad_phi + np.einsum("nj,njp->p", r, family.u_phi(eta, chunk.y))
        return np.zeros_like(s), grad_phi + family.expansion_pullback(chunk.y, s)


def sites_of(inference: Any) -> Sites:
    """The sites that belong to an inference method."""
    if isinstance(inference, Laplace):
        return LaplaceSites()
    if isinstance(inference, Taylor):
        if inference.expansion is not None and not callable(inference.expansion):
            return TaylorSites(Taylor(np.asarray(inference.expansion, dtype=float), inference.c))
        return TaylorSites(inference)
    raise TypeError(
        f"inducing points work with inference 'taylor' and 'laplace'; got {inference!r}. "
        "Use one of those, or inducing=None for exact inference."
    )
