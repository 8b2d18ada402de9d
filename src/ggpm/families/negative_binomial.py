"""Negative binomial: counts that vary more than Poisson's."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from scipy.special import betainc, betaincc, expit, gammainc, gammaln, log_expit, xlog1py, xlogy

from ggpm.families.base import Array, DispersedMean, moments
from ggpm.families.special import SoftplusTerms
from ggpm.families.special.stable import (
    HALF_LOG_2PI,
    digamma_drop,
    excess_log,
    linear_minus_log,
    moderate,
    otherwise,
    poisson_draws,
    stirling_error,
)
from ggpm.families.support import Counts

# Distribution functions of smaller counts are sums, a fifth of the time of the incomplete beta function, where the
# logarithm of the first probability is above -SMALL.
FEW, SMALL = 48, 600.0
# Larger counts are as a gamma variate with their mean and variance, to 7e-7; the incomplete beta function takes 0.1 ms
# and more there, and loses digits where r is larger still.
MANY = 1e10
RARE = 0.5  # standard error of the mean, relative to it, from which the latent is centred at the mean
FAR = 300.0  # of log mu: larger than any other number of the density, and no square overflows


class NegativeBinomial(DispersedMean):
    """Counts with mean mu and variance mu + phi mu²; phi -> 0 is the Poisson.

    ========  =============================================================================
    support   0, 1, 2, ...
    T, b, h   y, -log(1 - exp(theta))/phi, Gamma(y + 1/phi)/(y! Gamma(1/phi))
    a         1
    link      theta = log(phi mu/(1 + phi mu)), xi = log mu; mu = exp(eta), or softplus(eta)
    U         mu (1 + phi y)/(1 + phi mu)² (log link)
    ========  =============================================================================

    Parameters
    ----------
    phi : float
        Overdispersion.
    phi_bounds : (low, high) or "fixed"
    link : "log" or "softplus"
        How the latent value becomes the mean: ``exp(eta)`` or ``log(1 + exp(eta))``.

    Examples
    --------
    >>> import numpy as np
    >>> NegativeBinomial(phi=1.0).u(np.array([[0.0]]), np.array([3.0]))
    array([[1.]])
    """

    support = Counts()
    # Rare counts and zeros alone hardly tell phi: as it grows they become likely under any mean, and the mean is that
    # of its prior. Two standard deviations are a factor of 55, as those of the variances of default kernels.
    phi_typical = (1.0, 2.0)

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        """With the latent centred at the mean of counts so rare that they tell little of their level.

        Its posterior is then nearly as wide as its prior, and half of its variance is added to the log of the mean.
        """
        (mean, variance), out = moments(counts := self.encode(y), weight), copy.copy(self)
        n = len(counts) if weight is None else weight.sum()
        if variance >= RARE**2 * n * mean**2:
            out._origin = self._link.inverse(np.log([max(mean, 0.5 / n)]))  # of zeros alone: half an event
        return out

    @staticmethod
    def _half_deviance(y: Array, mu: Array, r: Array) -> Array:
        """``y log(y/mu) - (y + r) log((y + r)/(mu + r))``, r = 1/phi, in the form that does not cancel."""
        diff = y - mu
        poisson = excess_log(y, mu, diff) - excess_log(y + r, mu + r, diff)
        z = r * diff / (mu * (y + r))
        first = np.where(np.abs(z) < 0.5, xlog1py(y, np.maximum(z, -0.5)), xlogy(y, y * (mu + r) / (mu * (y + r))))
        return np.where(r < mu, first - r * np.log((y + r) / (mu + r)), poisson)

    def _odds(self, xi: Array) -> tuple[Array, Array]:
        """``phi mu/(1 + phi mu)`` and ``1/(1 + phi mu)``."""
        logit = xi + np.log(self.phi)
        return expit(logit), expit(-logit)

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        return self.log_prob_and_score(xi, y)[0]

    def log_prob_and_score(self, xi: Array, y: Array) -> tuple[Array, Array]:
        r, odds = np.asarray(1.0 / self.phi), SoftplusTerms(xi + np.log(self.phi))  # softplus: log(1 + phi mu)
        log_h = gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)
        direct = log_h - y * odds.mirrored - r * odds.value
        value = otherwise(direct, moderate(y) & moderate(r), self._careful_log_prob, xi, y, r)
        return value, y * odds.complement - r * odds.slope

    def _careful_log_prob(self, xi: Array, y: Array, r: Array) -> Array:
        # r/(r + y) times a binomial density in saddle-point form (Loader 2000): no term is larger than log p
        k = np.maximum(y, 1.0)
        peak = stirling_error(k + r) - stirling_error(k) - stirling_error(r) - HALF_LOG_2PI
        peak = peak + 0.5 * (np.log(r / (k + r)) - np.log(k))
        none = r * log_expit(np.log(r) - xi)
        return np.where(y > 0, peak - self._half_deviance(k, np.exp(xi), r), none)

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        t, s = self._odds(xi)
        l2 = -(1.0 / self.phi + y) * t * s
        return y * s - t / self.phi, l2, l2 * (s - t)

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        r, (t, s) = 1.0 / self.phi, self._odds(xi)
        # mu/(mu + r) is one from FAR on, and log(mu + r) is xi: what overflows is left out
        mu, beyond = np.exp(np.minimum(xi, FAR)), np.maximum(xi - FAR, 0.0)
        lp = r * (linear_minus_log(y + r, mu + r, y - mu) + beyond - digamma_drop(r, y))
        l1 = -(y * s - r * t) * t
        l2 = t * s * (y * (t - s) + 2.0 * r * t)
        return lp[..., None], l1[..., None], l2[..., None]

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        t, s = self._odds(xi)
        info = t / self.phi + 0.0 * y
        return info, info * s, (-info * t)[..., None]

    def expansion(self, y: Array) -> Array:
        return self._link.inverse(np.log(np.maximum(y, 0.5)))[..., None]

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        mu = self.moment(eta)
        return mu + self.phi * mu**2

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        k, (t, s) = np.floor(y), self._odds(self._link(eta[..., 0]))
        k, r, t, s = np.broadcast_arrays(k, 1.0 / self.phi, t, s)
        with np.errstate(divide="ignore"):
            log_none = r * np.log(s)
        few = (k >= 0) & (k < FEW) & moderate(r) & (log_none > -SMALL)
        many = k > MANY
        below, rest = np.zeros(k.shape), (k >= 0) & ~few & ~many
        below[many] = gammainc(r[many] * t[many], s[many] * (k[many] + 0.5))
        below[few] = _summed(k[few], r[few], t[few], np.exp(log_none[few]))
        # two forms of one function: each has the digits of the smaller of s and t; the second takes ten times as long
        far = rest & ~moderate(r) & (s >= t)
        rest &= ~far
        below[rest] = betainc(r[rest], k[rest] + 1.0, s[rest])
        below[far] = betaincc(k[far] + 1.0, r[far], t[far])
        return below

    def sf(self, eta: Array, y: Array) -> Array:
        k = np.floor(y)
        (t, s), r, above = self._odds(self._link(eta[..., 0])), 1.0 / self.phi, np.maximum(k, 0.0) + 1.0
        return np.where(k < 0, 1.0, np.where(s < t, betaincc(r, above, s), betainc(above, r, t)))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        rate = self.moment(eta) * rng.gamma(1.0 / self.phi, self.phi, size=eta.shape[:-1])
        return poisson_draws(rate, rng)

    def loss(self, y: Array, prediction: Array) -> Array:
        # unit deviance at this phi; a mean of zero is right about zeros and infinitely wrong about the rest
        positive = np.where(prediction > 0, prediction, 1.0)
        zero = np.where(y > 0, np.inf, 0.0)
        return np.where(prediction > 0, 2.0 * self._half_deviance(y, positive, 1.0 / self.phi), zero)


def _summed(k: Array, r: Array, t: Array, none: Array) -> Array:
    """P(Y <= k) of few counts, (n,), each probability from the one before, the first given."""
    order = np.argsort(-k, kind="stable")
    left = np.searchsorted(-k[order], -np.arange(FEW), side="left")  # so many have a k above j
    r, t, term = r[order], t[order], none[order].copy()
    total = term.copy()
    for j in range(FEW):
        n = left[j]
        if n == 0:
            break
        term[:n] *= (r[:n] + j) * (t[:n] / (j + 1.0))
        total[:n] += term[:n]
    out = np.empty(len(k))
    out[order] = np.minimum(total, 1.0)
    return out
