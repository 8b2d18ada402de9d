"""Weibull: positive outputs, lifetimes above all, whose hazard is a power of time."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from scipy.special import gammaln

from ggpm.families.base import Array, Bounds, PositiveMean, moments
from ggpm.families.links import Identity, Link
from ggpm.families.support import Positive
from ggpm.families.two_parameters import STEEPEST

EULER = 0.5772156649015329


class Weibull(PositiveMean):
    """Positive numbers with survival function exp(-(y/lambda)^phi); lambda = exp(eta) is passed by 37 % of them.

    ========  =============================================================================
    support   y > 0
    latent    eta = log lambda, the logarithm of the scale; z = phi (log y - eta)
    log p     log phi + z - exp(z) - log y
    hazard    phi/y exp(z): it rises with time for phi > 1, and falls for phi < 1
    U         phi² exp(z)
    ========  =============================================================================

    Parameters
    ----------
    phi : float
        Shape.
    phi_bounds : (low, high) or "fixed"

    Examples
    --------
    >>> import numpy as np
    >>> Weibull(phi=2.0).cdf(np.array([[0.0]]), np.array([1.0])).round(4)
    array([0.6321])
    """

    support = Positive()

    def __init__(self, phi: float | None = 1.0, phi_bounds: Bounds = (1e-2, 1e3)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    @property
    def _link(self) -> Link:
        return Identity()

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        out = copy.copy(self)
        # the mean of log y is eta - gamma/phi
        out._origin = np.atleast_1d(moments(np.log(self.encode(y)), weight)[0] + EULER / float(self.phi))
        return out

    def _z(self, xi: Array, y: Array) -> Array:
        return self.phi * (np.log(y) - xi)

    @staticmethod
    def _exp(z: Array) -> Array:
        """exp(z), which is a number whatever z: a log p of -1e130 is as good as one of -1e300."""
        return np.exp(np.minimum(z, STEEPEST))

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        z = self._z(xi, y)
        return np.log(self.phi) - np.log(y) + z - self._exp(z)

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        k, e = self.phi, self._exp(self._z(xi, y))
        return k * (e - 1.0), -(k**2) * e, k**3 * e

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        k, z = self.phi, self._z(xi, y)
        e = self._exp(z)
        return (1.0 + z - z * e)[..., None], (k * (e - 1.0 + z * e))[..., None], (-(k**2) * e * (2.0 + z))[..., None]

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        info = np.full(np.broadcast_shapes(xi.shape, y.shape), float(self.phi) ** 2)
        return info, np.zeros_like(info), 2.0 * info[..., None]

    def expected_log_prob(self, mean: Array, var: Array, y: Array) -> tuple[Array, Array, Array]:
        """E[log p] for eta ~ N(mean, var), (n,), with its derivatives in both, (n, 1)."""
        k, z = self.phi, self._z(mean[:, 0], y)
        e = self._exp(z + 0.5 * k**2 * var[:, 0])  # E[exp(z)]
        value = np.log(k) - np.log(y) + z - e
        return value, (k * (e - 1.0))[:, None], (-0.5 * k**2 * e)[:, None]

    def expansion(self, y: Array) -> Array:
        return np.log(y)[..., None]

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return np.exp(eta[..., 0] + gammaln(1.0 + 1.0 / self.phi))

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        # (Gamma(1 + 2/k)/Gamma(1 + 1/k)² - 1) times the squared mean
        return np.expm1(gammaln(1.0 + 2.0 / self.phi) - 2.0 * gammaln(1.0 + 1.0 / self.phi)) * self.moment(eta) ** 2

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        with np.errstate(divide="ignore"):
            return -np.expm1(-self._exp(self._z(eta[..., 0], np.maximum(y, 0.0))))

    def log_tails(self, xi: Array, y: Array) -> tuple[Array, Array]:
        """log P(Y <= y) and log P(Y > y)."""
        z = self._z(xi, y)
        e = self._exp(z)
        # log(1 - exp(-e)) = z + log((1 - exp(-e))/e)
        small = np.minimum(e, 1.0)
        near = z + np.log1p(
            np.where(small > 1e-8, -(np.expm1(-small) + small) / np.maximum(small, 1e-300), -0.5 * small)
        )
        return np.where(e < 1.0, near, np.log1p(-np.exp(-np.maximum(e, 1.0)))), -e

    def survival_jet(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """First three derivatives of log P(Y > y) in xi."""
        k, e = self.phi, self._exp(self._z(xi, y))
        return k * e, -(k**2) * e, k**3 * e

    def tail_phi(self, xi: Array, y: Array) -> Array:
        """Derivative of P(Y <= y) in log phi, divided by y p(y)."""
        return np.log(y) - xi  # phi stretches log y about eta

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        y = np.exp(eta[..., 0] + np.log(rng.standard_exponential(eta.shape[:-1])) / self.phi)
        return np.maximum(y, np.finfo(float).tiny)
