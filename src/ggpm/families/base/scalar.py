"""`ScalarFamily`: a family with one latent and a link, and those with a positive mean and a dispersion."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, Self

import numpy as np

from ggpm.families.base.family import Array, Bounds, Family
from ggpm.families.base.resolving import moments
from ggpm.families.curvature import Diagonal, Marginals
from ggpm.families.links import Identity, Link, mean_link


class ScalarFamily(Family):
    """A family with one latent, written in a coordinate ``xi`` to which an elementwise link carries eta.

    A subclass gives ``support``, `log_prob_xi`, `derivatives`, `moment`, `spread`, `sample`, and where it applies
    `phi_derivatives` and `information`; the chain rule through the link is done here.
    """

    latent_dim = 1

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        _ = self._link  # an unknown link name is an error here, before any computation
        return super().resolve(y, weight)

    @property
    def _link(self) -> Link:
        return Identity()

    @abstractmethod
    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        """log p as a function of xi, (...)."""

    @abstractmethod
    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """First, second and third derivative of log p in xi."""

    def score(self, xi: Array, y: Array) -> Array:
        """First derivative of log p in xi alone; override it where the others cost more."""
        return self.derivatives(xi, y)[0]

    def log_prob_and_score(self, xi: Array, y: Array) -> tuple[Array, Array]:
        """`log_prob_xi` and `score` together; override it where they share work."""
        return self.log_prob_xi(xi, y), self.score(xi, y)

    def first_two(self, xi: Array, y: Array) -> tuple[Array, Array]:
        """First and second derivative of log p in xi alone; override it where the third costs more."""
        return self.derivatives(xi, y)[:2]

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """Derivatives in phi of log p and of its first and second derivative in xi, each (..., p)."""
        none = np.zeros((*np.broadcast_shapes(xi.shape, self._rows(y)), self.log_hyper.size))
        return none, none, none

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """Expected negative second derivative in xi, its derivative in xi, and in phi (..., p).

        The default is the observed one: right wherever log p is concave in xi.
        """
        _, l2, l3 = self.derivatives(xi, y)
        return -l2, -l3, -self.phi_derivatives(xi, y)[2]

    def all_derivatives(self, xi: Array, y: Array) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
        """`derivatives` and `phi_derivatives` together; override it where they share most of the work."""
        return self.derivatives(xi, y), self.phi_derivatives(xi, y)

    def _rows(self, y: Array) -> tuple[int, ...]:
        """Leading shape of an encoded y."""
        return y.shape

    def log_prob(self, eta: Array, y: Array) -> Array:
        return self.log_prob_xi(self._link(eta[..., 0]), y)

    def u(self, eta: Array, y: Array) -> Array:
        xi, slope = self._link.with_slope(eta[..., 0])
        return (self.score(xi, y) * slope)[..., None]

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        xi, slope = self._link.with_slope(eta[..., 0])
        log_p, score = self.log_prob_and_score(xi, y)
        return log_p, (score * slope)[..., None]

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, Diagonal]:
        e = eta[..., 0]
        (l1, l2), (g1, g2, _) = self.first_two(self._link(e), y), self._link.derivatives(e)
        return (l1 * g1)[..., None], Diagonal(-(l2 * g1**2 + l1 * g2)[..., None])

    def U(self, eta: Array, y: Array, expected: bool = False) -> Diagonal:
        if not expected:
            return self.u_and_U(eta, y)[1]
        e = eta[..., 0]
        g1, _, _ = self._link.derivatives(e)
        return Diagonal((self.information(self._link(e), y)[0] * g1**2)[..., None])

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        e, v = eta[..., 0], V.diag[..., 0]
        xi, (g1, g2, g3) = self._link(e), self._link.derivatives(e)
        if expected:
            info, info_xi, info_phi = self.information(xi, y)
            d_eta = info_xi * g1**3 + 2.0 * info * g1 * g2
            U_phi = info_phi * (g1**2)[..., None]
        else:
            (l1, l2, l3), (_, l1_phi, l2_phi) = self.all_derivatives(xi, y)
            d_eta = -(l3 * g1**3 + 3.0 * l2 * g1 * g2 + l1 * g3)
            U_phi = -(l2_phi * (g1**2)[..., None] + l1_phi * g2[..., None])
        return (v * d_eta)[..., None], np.tensordot(v, U_phi, axes=v.ndim)

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        return self.phi_derivatives(self._link(eta[..., 0]), y)[0]

    def u_phi(self, eta: Array, y: Array) -> Array:
        return self.phi_slopes(eta, y)[1]

    def phi_slopes(self, eta: Array, y: Array) -> tuple[Array, Array]:
        e = eta[..., 0]
        l_phi, l1_phi, _ = self.phi_derivatives(self._link(e), y)
        return l_phi, (l1_phi * self._link.derivatives(e)[0][..., None])[..., None, :]


class DispersedMean(ScalarFamily):
    """A scalar family with a positive mean, ``exp(eta)`` or ``softplus(eta)``, and a dispersion phi."""

    _phi_ndims = (0,)

    def __init__(self, phi: float | None = 1.0, phi_bounds: Bounds = (1e-5, 1e5), link: str = "log"):
        self.phi = phi
        self.phi_bounds = phi_bounds
        self.link = link

    @property
    def _link(self) -> Link:
        return mean_link(self.link)

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return np.exp(self._link(eta[..., 0]))


class PositiveMean(DispersedMean):
    """A `DispersedMean` of positive numbers, which have a unit: its latent starts from the mean of the data."""

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        out = super().resolve(y, weight)
        out.log_unit = float(np.log(moments(self.encode(y), weight)[0]))
        return out

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        out = copy.copy(self)
        out._origin = self._link.inverse(np.log([moments(self.encode(y), weight)[0]]))
        return out
