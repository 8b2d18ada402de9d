"""Inverse Gaussian: positive outputs with a heavy right tail, first passage times."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from scipy.special import erfcx, ndtr

from ggpm.families.base import Array, Bounds, PositiveMean
from ggpm.families.special.stable import HALF_LOG_2PI
from ggpm.families.support import Positive


class InverseGaussian(PositiveMean):
    """Positive numbers with mean mu and variance phi mu³.

    ========  =============================================================================
    support   y > 0
    T, b      y, -sqrt(-2 theta)
    h         (2 pi phi y³)^(-1/2) exp(-1/(2 phi y))
    a         phi
    link      theta = -1/(2 mu²), xi = log mu; mu = exp(eta), or softplus(eta)
    U         (2y - mu)/(phi mu²) (log link): negative for y < mu/2; expected 1/(phi mu)
    ========  =============================================================================

    Parameters
    ----------
    phi : float, optional
        Dispersion; phi times the mean is the squared coefficient of variation. None: start at 1/(mean of the data),
        with default bounds in that unit.
    phi_bounds : (low, high) or "fixed"
    link : "log" or "softplus"
        How the latent value becomes the mean: ``exp(eta)`` or ``log(1 + exp(eta))``.

    Examples
    --------
    >>> import numpy as np
    >>> InverseGaussian(phi=0.5).u(np.array([[0.0]]), np.array([3.0]))
    array([[4.]])
    """

    support = Positive()

    def __init__(self, phi: float | None = None, phi_bounds: Bounds = (1e-5, 1e5), link: str = "log"):
        super().__init__(phi, phi_bounds, link)

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        out = super().resolve(y, weight)
        return out._in_units(math.exp(-out.log_unit))

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        log_h = -HALF_LOG_2PI - 0.5 * np.log(self.phi) - 1.5 * np.log(y)
        return log_h - self.loss(y, np.exp(xi)) / (2.0 * self.phi)

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        mu = np.exp(xi)
        scale = 1.0 / (self.phi * mu)
        return scale * (y - mu) / mu, -scale * (2.0 * y - mu) / mu, scale * (4.0 * y - mu) / mu

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        l1, l2, _ = self.derivatives(xi, y)
        lp = self.loss(y, np.exp(xi)) / (2.0 * self.phi) - 0.5
        return lp[..., None], -l1[..., None], -l2[..., None]

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        info = 1.0 / (self.phi * np.exp(xi)) + 0.0 * y
        return info, -info, -info[..., None]

    def expected_log_prob(self, mean: Array, var: Array, y: Array) -> tuple[Array, Array, Array] | None:
        """E[log p] for eta ~ N(mean, var), (n,), with its derivatives in both, (n, 1); None if not in closed form."""
        if self.link != "log":
            return None
        # log p = log h - (y exp(-2 eta) - 2 exp(-eta) + 1/y)/(2 phi)
        two = y[:, None] * np.exp(2.0 * var - 2.0 * mean) / self.phi
        one = np.exp(0.5 * var - mean) / self.phi
        log_h = -HALF_LOG_2PI - 0.5 * np.log(self.phi) - 1.5 * np.log(y) - 0.5 / (self.phi * y)
        return log_h + (one - 0.5 * two)[:, 0], two - one, 0.5 * one - two

    def expansion(self, y: Array) -> Array:
        return self._link.inverse(np.log(y))[..., None]

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return self.phi * self.moment(eta) ** 3

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        mu, positive = self.moment(eta), np.where(y > 0, y, 1.0)
        root = 1.0 / np.sqrt(self.phi * positive)
        z, x = root * (positive / mu - 1.0), root * (positive / mu + 1.0)
        # exp(2/(phi mu)) Phi(-x) with the exponents joined: z² - x² = -4/(phi mu)
        value = ndtr(z) + 0.5 * np.exp(-0.5 * z * z) * erfcx(x / np.sqrt(2.0))
        return np.where(y > 0, value, 0.0)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        # Michael, Schucany & Haas (1976): the smaller root, as the reciprocal of the larger one
        mu, shape = self.moment(eta), eta.shape[:-1]
        w = 0.5 * self.phi * mu * rng.standard_normal(shape) ** 2
        root = 1.0 / (1.0 + w + np.sqrt(w * (w + 2.0)))
        return mu * np.where(rng.random(shape) * (1.0 + root) <= 1.0, root, 1.0 / root)

    def loss(self, y: Array, prediction: Array) -> Array:
        return ((y - prediction) / prediction) ** 2 / y  # unit deviance
