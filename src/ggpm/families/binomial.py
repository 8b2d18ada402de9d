"""Binomial: successes out of a known number of trials."""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, expit, gammaln, log_expit

from ggpm.families.base import Array, ScalarFamily
from ggpm.families.special import SoftplusTerms
from ggpm.families.special.stable import HALF_LOG_2PI, bernoulli_kl, moderate, otherwise, stirling_error
from ggpm.families.support import CountVectors, Support


class Binomial(ScalarFamily):
    """Successes k and failures N - k of N trials, each a success with probability p.

    ========  =========================================================
    support   (k, N - k), non-negative integers with N >= 1
    T, b, h   k, N log(1 + exp(theta)), N choose k
    a         1
    link      theta = eta = logit p (canonical)
    U         N p (1 - p)
    ========  =========================================================

    Predictions (`moment`, `loss`) are the proportion p; with ``trials`` given, the expected successes.

    Examples
    --------
    >>> import numpy as np
    >>> Binomial().u(np.array([[0.0]]), np.array([[3.0, 1.0]]))
    array([[1.]])
    """

    support: Support = CountVectors(columns=2)
    countable = True

    def _rows(self, y: Array) -> tuple[int, ...]:
        return y.shape[:-1]

    def _counts(self, y: Array) -> tuple[Array, Array]:
        """Successes and failures."""
        return y[..., 0], y[..., 1]

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        return self.log_prob_and_score(xi, y)[0]

    def log_prob_and_score(self, xi: Array, y: Array) -> tuple[Array, Array]:
        (k, miss), logistic = self._counts(y), SoftplusTerms(xi)
        log_h = gammaln(k + miss + 1.0) - gammaln(k + 1.0) - gammaln(miss + 1.0)
        direct = log_h - k * logistic.mirrored - miss * logistic.value
        value = otherwise(direct, moderate(k + miss), self._careful_log_prob, xi, k, miss)
        return value, k * logistic.complement - miss * logistic.slope

    @staticmethod
    def _careful_log_prob(xi: Array, k: Array, miss: Array) -> Array:
        total = k + miss
        kl = bernoulli_kl(k / total, miss / total, expit(xi), expit(-xi), log_expit(xi), log_expit(-xi))
        # the density at p = k/N by Stirling's formula (Loader 2000); it is 1 at either end
        inner = (k > 0) & (miss > 0)
        a, b, n = (np.where(inner, v, 1.0) for v in (k, miss, total))
        peak = 0.5 * np.log(n / (a * b)) - HALF_LOG_2PI
        peak = peak + stirling_error(n) - stirling_error(a) - stirling_error(b)
        return np.where(inner, peak, 0.0) - total * kl

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        k, miss = self._counts(y)
        p, q = expit(xi), expit(-xi)
        npq = (k + miss) * p * q
        return k * q - miss * p, -npq, -npq * (q - p)

    def expansion(self, y: Array) -> Array:
        k, miss = self._counts(y)
        ends = np.where((k > 0) & (miss > 0), 0.0, 0.5)
        return (np.log(k + ends) - np.log(miss + ends))[..., None]

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        p = expit(eta[..., 0])
        return p if trials is None else trials * p

    def constant(self, y: Array, weight: Array | None = None) -> Array:
        k, miss = self._counts(y)
        w = np.ones_like(k) if weight is None else weight
        return np.array([np.sum(w * k) / np.sum(w * (k + miss))])

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return self.moment(eta, trials) * expit(-eta[..., 0])

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(no more than k successes of N | eta)."""
        k, miss = self._counts(y)
        below = betainc(np.maximum(miss, 1.0), np.maximum(k, 0.0) + 1.0, expit(-eta[..., 0]))
        return np.where(miss <= 0, 1.0, np.where(k < 0, 0.0, below))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        total = np.ones(1) if trials is None else np.asarray(trials)
        k = rng.binomial(total.astype(np.int64), expit(eta[..., 0])).astype(float)
        return np.stack([k, total - k], axis=-1)

    def loss(self, y: Array, prediction: Array) -> Array:
        k, miss = self._counts(y)
        total = k + miss
        with np.errstate(divide="ignore"):  # a prediction of exactly 0 or 1 that fails costs infinity
            log_p, log_q = np.log(prediction), np.log1p(-prediction)
        return 2.0 * total * bernoulli_kl(k / total, miss / total, prediction, 1.0 - prediction, log_p, log_q)
