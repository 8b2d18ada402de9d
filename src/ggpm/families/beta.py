"""Beta: rates and shares strictly between 0 and 1."""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, betaincc, expit, gammaln

from ggpm.families.base import Array, Bounds, ScalarFamily
from ggpm.families.special import LogGamma1p, SoftplusTerms
from ggpm.families.special.stable import HALF_LOG_2PI, bernoulli_kl, log_minus_digamma1p, otherwise, stirling_error
from ggpm.families.support import UnitInterval

_LARGE = 64.0  # a precision below it leaves log Gamma so small that direct formulas keep their digits


class Beta(ScalarFamily):
    """Numbers in (0, 1) with mean mu and precision phi: a = mu phi, b = (1 - mu) phi.

    The variance is mu (1 - mu)/(1 + phi).

    ========  =============================================================================
    support   0 < y < 1
    T, b, h   (log y, log(1 - y)), log B(theta), 1/(y (1 - y))
    a         1
    link      theta = (a, b); mu = expit(eta)
    U         with v = mu (1 - mu), g = logit y - psi(a) + psi(b):
              phi² v² (psi'(a) + psi'(b)) - phi v (1 - 2 mu) g; its expectation is the first term
    ========  =============================================================================

    Parameters
    ----------
    phi : float
        Precision: larger means less spread about the mean.
    phi_bounds : (low, high) or "fixed"

    Examples
    --------
    >>> import numpy as np
    >>> Beta(phi=2.0).log_prob(np.array([[0.0]]), np.array([0.3])).round(12) + 0.0
    array([0.])
    """

    support = UnitInterval()

    _phi_ndims = (0,)

    def __init__(self, phi: float = 10.0, phi_bounds: Bounds = (1e-3, 1e6)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    # Everything here is written with polygammas at 1 + a and 1 + b, since psi(a) = psi(1 + a) - 1/a: the poles at a = 0
    # and b = 0 combine with the factor v to derivatives of log(a b), which are elementary.
    def _parts(self, xi: Array) -> tuple[SoftplusTerms, LogGamma1p, LogGamma1p]:
        """mu and 1 - mu as slope and complement, and the gamma functions at 1 + a and 1 + b."""
        logistic = SoftplusTerms(xi)
        return logistic, LogGamma1p(self.phi * logistic.slope), LogGamma1p(self.phi * logistic.complement)

    def _divergence(self, xi: Array, y: Array) -> Array:
        """``phi KL(mu || y)`` between Bernoullis: minus the part of log p that is linear in phi."""
        return self.phi * bernoulli_kl(expit(xi), expit(-xi), y, 1.0 - y, np.log(y), np.log1p(-y))

    def _residual(self, xi: Array, y: Array, a: LogGamma1p, b: LogGamma1p) -> Array:
        """``logit y - psi(1 + a) + psi(1 + b)``."""
        logit = np.log(y) - np.log1p(-y)
        small = np.asarray(np.less(self.phi, _LARGE))
        direct = logit - (a.digamma - b.digamma)
        return otherwise(direct, small, self._careful_residual, logit - xi, a.x, b.x)

    @staticmethod
    def _careful_residual(away: Array, a: Array, b: Array) -> Array:
        return away + log_minus_digamma1p(a) - log_minus_digamma1p(b)

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        return self._log_prob(xi, y, *self._parts(xi))

    def _log_prob(self, xi: Array, y: Array, logistic: SoftplusTerms, a: LogGamma1p, b: LogGamma1p) -> Array:
        phi, log_y, log_rest = np.asarray(self.phi, dtype=float), np.log(y), np.log1p(-y)
        log_ab = np.log(phi) - logistic.value - logistic.mirrored  # log(a b/phi)
        small = phi < _LARGE
        head = log_ab + (np.log(phi) + gammaln(phi)) - (log_y + log_rest)
        direct = head - a.value - b.value + a.x * log_y + b.x * log_rest
        return otherwise(direct, small, self._careful_log_prob, xi, y, phi, log_ab)

    @staticmethod
    def _careful_log_prob(xi: Array, y: Array, phi: Array, log_ab: Array) -> Array:
        mu, rest, log_y, log_rest = expit(xi), expit(-xi), np.log(y), np.log1p(-y)
        peak = 0.5 * log_ab - HALF_LOG_2PI + stirling_error(phi) - stirling_error(phi * mu) - stirling_error(phi * rest)
        return peak - log_y - log_rest - phi * bernoulli_kl(mu, rest, y, 1.0 - y, log_y, log_rest)

    def _score(self, xi: Array, y: Array, logistic: SoftplusTerms, a: LogGamma1p, b: LogGamma1p) -> Array:
        mu, rest = logistic.slope, logistic.complement
        return (rest - mu) + self.phi * mu * rest * self._residual(xi, y, a, b)

    def score(self, xi: Array, y: Array) -> Array:
        return self._score(xi, y, *self._parts(xi))

    def log_prob_and_score(self, xi: Array, y: Array) -> tuple[Array, Array]:
        parts = self._parts(xi)
        return self._log_prob(xi, y, *parts), self._score(xi, y, *parts)

    def _pieces(self, xi: Array) -> tuple[Array, Array, Array, LogGamma1p, LogGamma1p]:
        """mu, v = mu (1-mu), 1 - 2 mu, and the gamma functions at 1 + a and 1 + b."""
        logistic, a, b = self._parts(xi)
        mu, rest = logistic.slope, logistic.complement
        return mu, mu * rest, rest - mu, a, b

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        _, v, c, a, b = self._pieces(xi)
        f = self.phi * v
        fg, f2t = f * self._residual(xi, y, a, b), f * f * (a.trigamma + b.trigamma)
        l1 = c + fg
        l2 = -2.0 * v + c * fg - f2t
        l3 = -2.0 * v * c + (c * c - 2.0 * v) * fg - 3.0 * c * f2t - f**3 * (a.tetragamma - b.tetragamma)
        return l1, l2, l3

    def first_two(self, xi: Array, y: Array) -> tuple[Array, Array]:
        _, v, c, a, b = self._pieces(xi)
        f = self.phi * v
        fg = f * self._residual(xi, y, a, b)
        return c + fg, -2.0 * v + c * fg - f * f * (a.trigamma + b.trigamma)

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        _, v, c, a, b = self._pieces(xi)
        phi, f = np.asarray(self.phi, dtype=float), self.phi * v
        pa, pb = a.trigamma, b.trigamma
        drift = 1.0 + a.x * log_minus_digamma1p(a.x) + b.x * log_minus_digamma1p(b.x) - phi * log_minus_digamma1p(phi)
        lp = drift - self._divergence(xi, y)
        l1 = f * (self._residual(xi, y, a, b) + b.x * pb - a.x * pa)
        l2 = c * l1 - f * f * (2.0 * (pa + pb) + a.x * a.tetragamma + b.x * b.tetragamma)
        return lp[..., None], l1[..., None], l2[..., None]

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        mu, v, c, a, b = self._pieces(xi)
        one_minus_mu, f, zero = expit(-xi), self.phi * v, 0.0 * y
        f2t, ppa, ppb = f * f * (a.trigamma + b.trigamma), a.tetragamma, b.tetragamma
        info = f2t + mu**2 + one_minus_mu**2  # phi² v² (psi'(a) + psi'(b))
        info_xi = 2.0 * c * f2t + f**3 * (ppa - ppb) - 2.0 * v * c
        info_phi = 2.0 * f2t + f * f * (a.x * ppa + b.x * ppb)
        return info + zero, info_xi + zero, (info_phi + zero)[..., None]

    def expansion(self, y: Array) -> Array:
        return (np.log(y) - np.log1p(-y))[..., None]

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return expit(eta[..., 0])

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return expit(eta[..., 0]) * expit(-eta[..., 0]) / (1.0 + self.phi)

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        return betainc(*self._shapes(eta), np.clip(y, 0.0, 1.0))

    def sf(self, eta: Array, y: Array) -> Array:
        return betaincc(*self._shapes(eta), np.clip(y, 0.0, 1.0))

    def _shapes(self, eta: Array) -> list[Array]:
        # older SciPy has NaN at zero
        return [np.maximum(self.phi * expit(e), np.finfo(float).tiny) for e in (eta[..., 0], -eta[..., 0])]

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        e = eta[..., 0]
        y = rng.beta(self.phi * expit(e), self.phi * expit(-e))
        # mass beyond the floats next to 0 and 1 is rounded to them, so that a draw is in the support
        return np.clip(y, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)

    def loss(self, y: Array, prediction: Array) -> Array:
        # unit deviance of the variance function mu (1 - mu): the likelihood's own depends on phi
        log_p, log_q = np.log(prediction), np.log1p(-prediction)
        return 2.0 * bernoulli_kl(y, 1.0 - y, prediction, 1.0 - prediction, log_p, log_q)
