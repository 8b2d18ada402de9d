"""Beta whose precision is a function of the inputs too."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from scipy.special import expit, gammaln

from ggpm.families.base import Array, moments
from ggpm.families.beta import Beta
from ggpm.families.special.log_gamma import log_gamma_factors
from ggpm.families.special.rising import stirling_jet
from ggpm.families.special.stable import bernoulli_kl
from ggpm.families.support import UnitInterval
from ggpm.families.two_parameters import Information, WithDispersion

TINY = float(np.finfo(float).tiny)
DIRECT = 2.0**16  # precision up to which predictive densities take log Gamma directly: it is rounded to 1e-10


class BetaMeanPrecision(WithDispersion):
    """Numbers in (0, 1) whose mean mu and precision phi both vary with the inputs.

    The variance is mu (1 - mu)/(1 + phi).

    ========  =========================================================================================
    support   0 < y < 1
    latents   a = logit mu, b = log phi; alpha = phi mu, beta = phi (1 - mu)
    log p     g(alpha) + g(beta) - g(phi) - phi KL(mu || y) - log y (1 - y), g = k log k - k - log Gamma(k)
    U         see the source: the two parameters are not orthogonal
    expected  [phi mu nu + nu² m_alpha + mu² m_beta, nu m_alpha - mu m_beta; ., m_alpha + m_beta - m_phi],
              nu = 1 - mu, m_k = k² psi'(k) - k
    ========  =========================================================================================

    With ``kernel=None`` each latent has a kernel of its own.

    Densities are those of real numbers. Under precisions below one shares lie so near to 1 that floats have no number
    there: of a precision around 0.4 (b of mean -1 and standard deviation 0.5) about a hundredth, around 0.14 a tenth.

    Examples
    --------
    >>> import numpy as np
    >>> BetaMeanPrecision().spread(np.array([[0.0, np.log(4.0)]])).round(12)
    array([0.05])
    """

    support = UnitInterval()
    parameters = ("mean", "precision")
    needs_spread = (1e-7, "beta")  # squared, it is the rounding error of the mean

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        (mean, variance), out = moments(self.encode(y), weight), copy.copy(self)
        ratio = mean * (1.0 - mean) / (variance or 0.1 * mean * (1.0 - mean))
        out._origin = np.array([np.log(mean / (1.0 - mean)), np.log(max(ratio - 1.0, 0.1))])
        return out

    def at(self, b: Array) -> Beta:
        return Beta(phi=np.exp(b))  # type: ignore[arg-type]

    def prepared(self, b: Array, y: Array) -> tuple[Array, ...]:
        log_rest, phi = np.log1p(-y), np.exp(b)
        return b, y, phi, np.log(y) - log_rest, phi * log_rest + gammaln(phi) - np.log(y) - log_rest

    def along(self, a: Array, *prepared: Array) -> Array:
        b, y, phi, logit, top = prepared
        far, e = phi > DIRECT, np.exp(-np.abs(a))
        large = phi / (1.0 + e)
        small = np.maximum(large * e, TINY)
        (P, L), (Q, M) = log_gamma_factors(large), log_gamma_factors(small)
        L += M
        P *= Q
        value = np.log(P, out=P)
        value -= L
        value += np.where(a > 0, large, small) * logit
        value += top
        if far.any():
            value[..., far] = super().along(a[..., far], b[far], y[far])
        return value

    def bent(self, a: Array, b: Array, y: Array) -> tuple[Array, Array]:
        # peaks only centre nodes: three digits of the digamma function and its slope are enough
        phi, mu, nu = np.exp(b), expit(a), expit(-a)
        (da, ta), (db, tb) = (_rough_digamma(np.maximum(phi * x, TINY)) for x in (mu, nu))
        f = phi * mu * nu
        slope, expected = f * (np.log(y) - np.log1p(-y) - da + db), f * f * (ta + tb)
        observed = expected - (nu - mu) * slope
        return slope, np.where(observed > 0, observed, expected)

    def curved(self, a: Array, b: Array, y: Array) -> tuple[Array, Array, Array]:
        phi, mu, nu = np.exp(b), expit(a), expit(-a)
        (_, a2, a3), (_, b2, b3), (_, p2, p3) = (stirling_jet(k) for k in (phi * mu, phi * nu, phi))
        cost = phi * bernoulli_kl(mu, nu, y, 1.0 - y, np.log(y), np.log1p(-y))
        slope = phi * mu * nu * (a - np.log(y) + np.log1p(-y))
        return a2 + b2 - p2 - cost, nu * a3 - mu * b3 - slope, a3 + b3 - p3 - cost

    def information_b(self, a: Array, b: Array, y: Array) -> Information:
        phi, mu, nu = np.exp(b), expit(a), expit(-a)
        (ma, sa), (mb, sb), (mp, sp) = (
            (g1 - g2, g2 - g3) for g1, g2, g3 in (stirling_jet(k) for k in (phi * mu, phi * nu, phi))
        )
        zero, v = 0.0 * y, mu * nu
        cross, cross_b = nu * ma - mu * mb + zero, nu * sa - mu * sb + zero
        return Information(
            (zero, cross, ma + mb - mp + zero),
            (zero, nu * nu * sa + mu * mu * sb - v * (ma + mb) + zero, cross_b),
            (zero, cross_b, sa + sb - sp + zero),
        )

    def natural(self, eta: Array) -> tuple[Array, Array]:
        """theta = (alpha, beta) and b = log Gamma(alpha) Gamma(beta)/Gamma(phi)."""
        phi = np.exp(eta[..., 1])
        theta = np.maximum(phi[..., None] * expit(np.stack([eta[..., 0], -eta[..., 0]], axis=-1)), TINY)
        return theta, gammaln(theta).sum(axis=-1) - gammaln(phi)

    def statistic(self, y: Array) -> tuple[Array, Array]:
        """log y and log(1 - y), and minus their sum."""
        logs = np.stack([np.log(y), np.log1p(-y)], axis=-1)
        return logs, -logs.sum(axis=-1)

    def expansion(self, y: Array) -> Array:
        return np.stack([np.log(y) - np.log1p(-y), np.zeros_like(y)], axis=-1)

    def loss(self, y: Array, prediction: Array) -> Array:
        return Beta().loss(y, prediction)


def _rough_digamma(x: Array) -> tuple[Array, Array]:
    """psi and its derivative to 1e-3, for x > 0: Stirling's series at x + 2."""
    w, p, q = 1.0 / (x + 2.0), 1.0 / x, 1.0 / (x + 1.0)
    value = -np.log(w) - w * (0.5 + w / 12.0) - p - q
    return value, w * (1.0 + w * (0.5 + w / 6.0)) + p * p + q * q
