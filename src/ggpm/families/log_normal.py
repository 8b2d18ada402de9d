"""Log-normal: positive outputs whose logarithm is normal."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from scipy.special import ndtr

from ggpm.families.base import Array, Bounds, PositiveMean, moments
from ggpm.families.links import Identity, Link
from ggpm.families.normal import Normal
from ggpm.families.special.stable import HALF_LOG_2PI
from ggpm.families.support import Positive


class LogNormal(Normal, PositiveMean):
    """Positive numbers whose logarithm is normal with mean eta and variance phi: exp(eta) is the median.

    ========  =============================================================================
    support   y > 0
    latent    eta, the logarithm of the median
    log p     -(log y - eta)²/(2 phi) - log(2 pi phi)/2 - log y
    U         1/phi: inference is exact
    ========  =============================================================================

    Parameters
    ----------
    phi : float
        Variance of log y.
    phi_bounds : (low, high) or "fixed"

    Examples
    --------
    >>> import numpy as np
    >>> LogNormal(phi=0.5).u(np.array([[0.0]]), np.array([np.e]))
    array([[2.]])
    """

    support = Positive()

    def __init__(self, phi: float | None = 1.0, phi_bounds: Bounds = (1e-5, 1e5)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    @property
    def _link(self) -> Link:
        return Identity()

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        out = copy.copy(self)
        out._origin = np.atleast_1d(moments(np.log(self.encode(y)), weight)[0])
        return out

    def coordinate(self, y: Array) -> tuple[Array, Array]:
        log_y = np.log(y)
        return log_y, log_y

    def expected_log_prob(self, mean: Array, var: Array, y: Array) -> tuple[Array, Array, Array]:
        """E[log p] for eta ~ N(mean, var), (n,), with its derivatives in both, (n, 1)."""
        value = self.log_prob(mean, y) - 0.5 * var[:, 0] / self.phi
        return value, self.u(mean, y), np.full_like(var, -0.5 / self.phi)

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array:
        total = cov[:, 0, 0] + self.phi
        return -0.5 * ((np.log(y) - mean[:, 0]) ** 2 / total + np.log(total)) - HALF_LOG_2PI - np.log(y)

    def expansion(self, y: Array) -> Array:
        return np.log(y)[..., None]

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return np.exp(eta[..., 0] + 0.5 * self.phi)

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return np.expm1(self.phi) * self.moment(eta) ** 2

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        with np.errstate(divide="ignore"):
            return ndtr((np.log(np.maximum(y, 0.0)) - eta[..., 0]) / np.sqrt(self.phi))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return np.exp(eta[..., 0] + np.sqrt(self.phi) * rng.standard_normal(eta.shape[:-1]))
