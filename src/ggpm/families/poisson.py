"""Poisson: counts."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, pdtr, pdtrc

from ggpm.families.base import Array, ScalarFamily
from ggpm.families.links import Link, mean_link
from ggpm.families.special.stable import HALF_LOG_2PI, excess_log, moderate, otherwise, poisson_draws, stirling_error
from ggpm.families.support import Counts


class Poisson(ScalarFamily):
    """Counts with mean mu.

    ========  =========================================================
    support   0, 1, 2, ...
    T, b, h   y, exp(theta), 1/y!
    a         1
    link      theta = xi = log mu; mu = exp(eta), or softplus(eta)
    U         mu (log link)
    ========  =========================================================

    Parameters
    ----------
    link : "log" or "softplus"
        How the latent value becomes the mean: ``exp(eta)`` or ``log(1 + exp(eta))``.

    Examples
    --------
    >>> import numpy as np
    >>> Poisson().u(np.array([[0.0]]), np.array([3.0]))
    array([[2.]])
    """

    support = Counts()

    def __init__(self, link: str = "log"):
        self.link = link

    @property
    def _link(self) -> Link:
        return mean_link(self.link)

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        direct = y * xi - np.exp(xi) - gammaln(y + 1.0)
        return otherwise(direct, moderate(y), self._careful_log_prob, xi, y)

    @staticmethod
    def _careful_log_prob(xi: Array, y: Array) -> Array:
        # log(y^y e^-y / y!) by Stirling, and the distance to the saturated model: no large terms that cancel
        mu, some = np.exp(xi), np.maximum(y, 1.0)
        saturated = np.where(y > 0, -HALF_LOG_2PI - 0.5 * np.log(some) - stirling_error(some), 0.0)
        return saturated - excess_log(y, mu, log_b=xi)

    def score(self, xi: Array, y: Array) -> Array:
        return y - np.exp(xi)

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        mu = np.exp(xi)
        return y - mu, -mu + 0 * y, -mu + 0 * y

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        mu = np.exp(xi) + 0 * y
        return mu, mu, np.zeros((*mu.shape, 0))

    def expected_log_prob(self, mean: Array, var: Array, y: Array) -> tuple[Array, Array, Array] | None:
        """E[log p] for eta ~ N(mean, var), (n,), with its derivatives in both, (n, 1); None if not in closed form."""
        if self.link != "log":
            return None
        mu = np.exp(mean + 0.5 * var)  # E[exp(eta)]
        value = self.log_prob(mean, y) + np.exp(mean[:, 0]) - mu[:, 0]
        return value, y[:, None] - mu, -0.5 * mu

    def expansion(self, y: Array) -> Array:
        return self._link.inverse(np.log(np.maximum(y, 0.5)))[..., None]

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return np.exp(self._link(eta[..., 0]))

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return self.moment(eta)

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        return pdtr(np.floor(y), self.moment(eta))

    def sf(self, eta: Array, y: Array) -> Array:
        return np.where(y < 0, 1.0, pdtrc(np.maximum(np.floor(y), 0.0), self.moment(eta)))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return poisson_draws(self.moment(eta), rng)

    def loss(self, y: Array, prediction: Array) -> Array:
        return 2.0 * excess_log(y, prediction)  # unit deviance
