"""Gamma: positive outputs with a constant coefficient of variation."""

from __future__ import annotations

import numpy as np
from scipy.special import gammainc, gammaincc

from ggpm.families.base import Array, PositiveMean
from ggpm.families.special.gamma import gamma_hazard, log_gamma_tails
from ggpm.families.special.stable import HALF_LOG_2PI, linear_minus_log, log_minus_digamma, moderate, stirling_error
from ggpm.families.support import Positive

TAIL_NODES = 80  # of an integral over a tail: 1e-10 of it for shapes from 1e-3 to 1e3


class Gamma(PositiveMean):
    """Positive numbers with mean mu and variance phi mu² (shape 1/phi).

    ========  =============================================================================
    support   y > 0
    T, b      y, -log(-theta)
    h         y^(1/phi - 1) phi^(-1/phi)/Gamma(1/phi)
    a         phi
    link      theta = -1/mu, xi = log mu; mu = exp(eta), or softplus(eta)
    U         y/(phi mu) (log link)
    ========  =============================================================================

    Parameters
    ----------
    phi : float
        Dispersion, the squared coefficient of variation.
    phi_bounds : (low, high) or "fixed"
    link : "log" or "softplus"
        How the latent value becomes the mean: ``exp(eta)`` or ``log(1 + exp(eta))``.

    Examples
    --------
    >>> import numpy as np
    >>> Gamma(phi=0.5).u(np.array([[0.0]]), np.array([3.0]))
    array([[4.]])
    """

    support = Positive()

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        shape, mu = 1.0 / self.phi, np.exp(xi)
        # the saturated density (mu = y) by Stirling's formula, less half the deviance
        log_y = np.log(y)
        saturated = 0.5 * np.log(shape) - HALF_LOG_2PI - stirling_error(np.asarray(shape)) - log_y
        if np.all(moderate(shape)):
            return saturated - shape * (y / mu - 1.0 - (log_y - xi))
        return saturated - shape * linear_minus_log(y, mu, y - mu)

    def score(self, xi: Array, y: Array) -> Array:
        mu = np.exp(xi)
        return (y - mu) / (self.phi * mu)

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        mu = np.exp(xi)
        ratio = y / (self.phi * mu)
        return (y - mu) / (self.phi * mu), -ratio, ratio

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        shape, mu = 1.0 / self.phi, np.exp(xi)
        lp = shape * (linear_minus_log(y, mu, y - mu) - log_minus_digamma(np.asarray(shape)))
        l1, l2, _ = self.derivatives(xi, y)
        return lp[..., None], -l1[..., None], -l2[..., None]

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        info = np.full(np.broadcast_shapes(xi.shape, y.shape), 1.0 / self.phi)
        return info, np.zeros_like(info), -info[..., None]

    def expected_log_prob(self, mean: Array, var: Array, y: Array) -> tuple[Array, Array, Array] | None:
        """E[log p] for eta ~ N(mean, var), (n,), with its derivatives in both, (n, 1); None if not in closed form."""
        if self.link != "log":
            return None
        # log p is linear in eta and in exp(-eta), and E[exp(-eta)] = exp(-mean + var/2)
        ratio = y[:, None] * np.exp(0.5 * var - mean) / self.phi
        at_mean = y / np.exp(mean[:, 0]) / self.phi
        value = self.log_prob(mean, y) + at_mean - ratio[:, 0]
        return value, ratio - 1.0 / self.phi, -0.5 * ratio

    def expansion(self, y: Array) -> Array:
        return self._link.inverse(np.log(y))[..., None]

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return self.phi * self.moment(eta) ** 2

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        return gammainc(1.0 / self.phi, np.maximum(y, 0.0) / (self.phi * self.moment(eta)))

    def sf(self, eta: Array, y: Array) -> Array:
        return gammaincc(1.0 / self.phi, np.maximum(y, 0.0) / (self.phi * self.moment(eta)))

    def log_tails(self, xi: Array, y: Array) -> tuple[Array, Array]:
        """log P(Y <= y) and log P(Y > y)."""
        return log_gamma_tails(1.0 / self.phi, y / (self.phi * np.exp(xi)))

    def survival_jet(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """First three derivatives of log P(Y > y) in xi."""
        shape, x = 1.0 / self.phi, y / (self.phi * np.exp(xi))
        r, over = gamma_hazard(shape, x)
        return r, -r * over, r * (over * over + r * over - x)

    def tail_phi(self, xi: Array, y: Array) -> Array:
        """Derivative of P(Y <= y) in log phi, divided by y p(y): an integral over the nearer tail."""
        nodes, weights = np.polynomial.legendre.leggauss(TAIL_NODES)
        shape = 1.0 / self.phi
        z = np.log(y) - xi
        left = z < 0
        # within it exp(shape (t - exp(z) expm1(t))) falls by exp(-40): along its slope at zero if not before
        middle, fall = np.sqrt(80.0 * self.phi), 40.0 * self.phi
        reach = np.where(left, middle + fall, np.minimum(middle, np.log1p(middle + fall)))
        with np.errstate(divide="ignore", over="ignore"):
            reach = np.minimum(reach, fall / np.abs(np.expm1(z)))
        share = 0.5 * (nodes + 1.0).reshape(-1, *[1] * z.ndim)
        t = np.where(left, -1.0, 1.0) * reach * share
        there = np.exp(z) * np.exp(t)
        ratio = np.exp(shape * (t - np.exp(z) * np.expm1(t)))
        slope = shape * (there - 1.0 - (z + t) - log_minus_digamma(np.asarray(shape)))
        total = np.tensordot(0.5 * weights, ratio * slope, axes=1) * reach
        return np.where(left, total, -total)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        y = self.moment(eta) * self.phi * rng.gamma(1.0 / self.phi, size=eta.shape[:-1])
        return np.maximum(y, np.finfo(float).tiny)  # a small shape has mass below the smallest float

    def loss(self, y: Array, prediction: Array) -> Array:
        return 2.0 * linear_minus_log(y, prediction, y - prediction)  # unit deviance
