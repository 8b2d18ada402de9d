"""Bernoulli: two classes."""

from __future__ import annotations

import numpy as np
from scipy.special import log_expit

from ggpm.families.base import Array
from ggpm.families.binomial import Binomial
from ggpm.families.support import Codes


class Bernoulli(Binomial):
    """Two classes coded 0 and 1: the `Binomial` of one trial.

    ========  =========================================================
    support   0, 1
    T, b, h   y, log(1 + exp(theta)), 1
    a         1
    link      theta = eta = logit p (canonical)
    U         p (1 - p)
    ========  =========================================================

    Examples
    --------
    >>> import numpy as np
    >>> Bernoulli().log_prob(np.array([[0.0]]), np.array([1.0])).round(4)
    array([-0.6931])
    """

    support = Codes(n_codes=2)
    countable = False
    finite = True

    def _rows(self, y: Array) -> tuple[int, ...]:
        return y.shape

    def _counts(self, y: Array) -> tuple[Array, Array]:
        return y, 1.0 - y

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        return log_expit((2.0 * y - 1.0) * xi)

    def expansion(self, y: Array) -> Array:
        return np.zeros((*y.shape, 1))

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        return super().cdf(eta, np.floor(y))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return super().sample(eta, rng)[..., 0]
