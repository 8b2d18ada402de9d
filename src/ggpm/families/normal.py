"""A normal number, or one whose logarithm is normal, as a scalar family: xi is the mean of t, y or log y."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy.special import log_ndtr

from ggpm.families.base import Array, ScalarFamily
from ggpm.families.special.stable import HALF_LOG_2PI


class Normal(ScalarFamily):
    """t = `coordinate`(y) is normal with mean xi and variance phi."""

    @abstractmethod
    def coordinate(self, y: Array) -> tuple[Array, Array | float]:
        """t, and the logarithm of dy/dt."""

    def _t(self, y: Array) -> Array:
        return self.coordinate(y)[0]

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        t, log_slope = self.coordinate(y)
        return -0.5 * ((t - xi) ** 2 / self.phi + np.log(self.phi)) - HALF_LOG_2PI - log_slope

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        l1 = (self._t(y) - xi) / self.phi
        return l1, np.full_like(l1, -1.0 / self.phi), np.zeros_like(l1)

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        l1, l2, _ = self.derivatives(xi, y)
        return (0.5 * self.phi * l1**2 - 0.5)[..., None], -l1[..., None], -l2[..., None]

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        info = np.full(np.broadcast_shapes(xi.shape, y.shape), 1.0 / self.phi)
        return info, np.zeros_like(info), -info[..., None]

    def log_tails(self, xi: Array, y: Array) -> tuple[Array, Array]:
        """log P(Y <= y) and log P(Y > y)."""
        t = (self._t(y) - xi) / np.sqrt(self.phi)
        return log_ndtr(t), log_ndtr(-t)

    def survival_jet(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """First three derivatives of log P(Y > y) in xi."""
        sd = np.sqrt(self.phi)
        t = (self._t(y) - xi) / sd
        h = np.exp(-0.5 * t * t - HALF_LOG_2PI - log_ndtr(-t))
        over = h - t  # in the tail h is t + 1/t
        return h / sd, -h * over / self.phi, h * (over * (over + h) - 1.0) / (sd * self.phi)

    def tail_phi(self, xi: Array, y: Array) -> Array:
        """Derivative of P(Y <= y) in log phi, divided by the density of t."""
        return -0.5 * (self._t(y) - xi)  # phi stretches t about its median
