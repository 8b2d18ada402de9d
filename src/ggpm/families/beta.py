"""Beta: rates and shares strictly between 0 and 1."""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, expit, log_expit

from ggpm.families.base import Array, Bounds, ScalarFamily
from ggpm.families.special import tetragamma, trigamma
from ggpm.families.special.stable import HALF_LOG_2PI, bernoulli_kl, log_minus_digamma1p, stirling_error
from ggpm.families.support import UnitInterval


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

    def _divergence(self, xi: Array, y: Array) -> Array:
        """``phi KL(mu || y)`` between Bernoullis: minus the part of log p that is linear in phi."""
        return self.phi * bernoulli_kl(expit(xi), expit(-xi), y, 1.0 - y, np.log(y), np.log1p(-y))

    def _residual(self, xi: Array, y: Array) -> Array:
        """``logit y - psi(1 + a) + psi(1 + b)``.

        Everything here is written with polygammas at 1 + a and 1 + b, since psi(a) = psi(1 + a) - 1/a: the
        poles at a = 0 and b = 0 combine with the factor v to derivatives of log(a b), which are elementary.
        """
        a, b = self.phi * expit(xi), self.phi * expit(-xi)
        return (np.log(y) - np.log1p(-y) - xi) + log_minus_digamma1p(a) - log_minus_digamma1p(b)

    def _pieces(self, xi: Array) -> tuple[Array, ...]:
        """mu, v = mu (1-mu), 1 - 2 mu, and the polygammas psi', psi'' at 1 + a and 1 + b."""
        mu, one_minus_mu = expit(xi), expit(-xi)
        a, b = 1.0 + self.phi * mu, 1.0 + self.phi * one_minus_mu
        return mu, mu * one_minus_mu, one_minus_mu - mu, trigamma(a), trigamma(b), tetragamma(a), tetragamma(b)

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        phi = np.asarray(self.phi, dtype=float)
        a, b = phi * expit(xi), phi * expit(-xi)
        log_ab = np.log(phi) + log_expit(xi) + log_expit(-xi)  # log(a b/phi)
        peak = 0.5 * log_ab - HALF_LOG_2PI + stirling_error(phi) - stirling_error(a) - stirling_error(b)
        return peak - np.log(y) - np.log1p(-y) - self._divergence(xi, y)

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        _, v, c, pa, pb, ppa, ppb = self._pieces(xi)
        f = self.phi * v
        fg, f2t = f * self._residual(xi, y), f * f * (pa + pb)
        l1 = c + fg
        l2 = -2.0 * v + c * fg - f2t
        l3 = -2.0 * v * c + (c * c - 2.0 * v) * fg - 3.0 * c * f2t - f**3 * (ppa - ppb)
        return l1, l2, l3

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        mu, v, c, pa, pb, ppa, ppb = self._pieces(xi)
        phi, f = np.asarray(self.phi, dtype=float), self.phi * v
        a, b = phi * mu, phi * expit(-xi)
        drift = 1.0 + a * log_minus_digamma1p(a) + b * log_minus_digamma1p(b) - phi * log_minus_digamma1p(phi)
        lp = drift - self._divergence(xi, y)
        l1 = f * (self._residual(xi, y) + b * pb - a * pa)
        l2 = c * l1 - f * f * (2.0 * (pa + pb) + a * ppa + b * ppb)
        return lp[..., None], l1[..., None], l2[..., None]

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        mu, v, c, pa, pb, ppa, ppb = self._pieces(xi)
        one_minus_mu, f, zero = expit(-xi), self.phi * v, 0.0 * y
        info = f * f * (pa + pb) + mu**2 + one_minus_mu**2  # phi² v² (psi'(a) + psi'(b))
        info_xi = 2.0 * c * f * f * (pa + pb) + f**3 * (ppa - ppb) - 2.0 * v * c
        info_phi = f * f * (2.0 * (pa + pb) + self.phi * (mu * ppa + one_minus_mu * ppb))
        return info + zero, info_xi + zero, (info_phi + zero)[..., None]

    def expansion(self, y: Array) -> Array:
        return (np.log(y) - np.log1p(-y))[..., None]

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return expit(eta[..., 0])

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return expit(eta[..., 0]) * expit(-eta[..., 0]) / (1.0 + self.phi)

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        e = eta[..., 0]
        return betainc(self.phi * expit(e), self.phi * expit(-e), np.clip(y, 0.0, 1.0))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        e = eta[..., 0]
        y = rng.beta(self.phi * expit(e), self.phi * expit(-e))
        # mass beyond the floats next to 0 and 1 is rounded to them, so that a draw is in the support
        return np.clip(y, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)

    def loss(self, y: Array, prediction: Array) -> Array:
        # unit deviance of the variance function mu (1 - mu): the likelihood's own depends on phi
        log_p, log_q = np.log(prediction), np.log1p(-prediction)
        return 2.0 * bernoulli_kl(y, 1.0 - y, prediction, 1.0 - prediction, log_p, log_q)
