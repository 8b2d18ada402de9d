"""Negative binomial whose dispersion is a function of the inputs too."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from scipy.special import expit, gammaln, log_expit

from ggpm.families.base import Array, moments
from ggpm.families.negative_binomial import NegativeBinomial
from ggpm.families.special.log_gamma import LogGamma1p
from ggpm.families.special.rising import log_rising
from ggpm.families.special.softplus import SoftplusTerms
from ggpm.families.special.stable import moderate
from ggpm.families.support import Counts
from ggpm.families.two_parameters import Information, WithDispersion

BEYOND = 60.0  # of -b: there is no overdispersion left, and r would overflow
STEP = 0.25  # of the trapezoidal rule in log t: off by exp(-pi²/STEP), which is below rounding


class NegativeBinomialMeanDispersion(WithDispersion):
    """Counts whose mean mu and overdispersion phi both vary with the inputs; the variance is mu + phi mu².

    ========  =========================================================================================
    support   0, 1, 2, ...
    latents   a = log mu, b = log phi; r = 1/phi
    log p     log Gamma(r + y)/(Gamma(r) y!) + r log(r/(r + mu)) + y log(mu/(r + mu))
    U         see the source
    expected  [r mu/(r + mu), 0; 0, r² (psi'(r) - E psi'(r + y)) - r mu/(r + mu)]: orthogonal
    ========  =========================================================================================

    The expectation over y is an integral, E psi'(r + y) = int_0^inf t exp(-r t)/x (1 + phi mu x)^-r dt with
    x = 1 - exp(-t). With ``kernel=None`` each latent has a kernel of its own.

    Examples
    --------
    >>> import numpy as np
    >>> NegativeBinomialMeanDispersion().spread(np.log([[3.0, 0.5]])).round(12)
    array([7.5])
    """

    support = Counts()
    parameters = ("mean", "dispersion")
    needs_spread = (0.0, "poisson")  # fits to counts that are all alike, zeros or not, do not end

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        (mean, variance), out = moments(self.encode(y), weight), copy.copy(self)
        mean = max(mean, 0.1)
        out._origin = np.log([mean, max((variance - mean) / mean**2, 0.01)])
        return out

    def at(self, b: Array) -> NegativeBinomial:
        return NegativeBinomial(phi=np.exp(b))  # type: ignore[arg-type]

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        a, b = eta[..., 0], eta[..., 1]
        r, odds, some = np.exp(np.minimum(-b, BEYOND)), SoftplusTerms(a + b), y > 0
        # Gamma(y + r)/Gamma(r) = r Gamma(y + r)/Gamma(1 + r), whose parts have no pole
        top, low = LogGamma1p(r + np.maximum(y - 1.0, 0.0)), LogGamma1p(r)
        value = np.where(some, top.value - low.value - b, 0.0) - gammaln(y + 1.0) - y * odds.mirrored - r * odds.value
        first = y * odds.complement
        rising = np.where(some, 1.0 + r * (top.digamma - low.digamma), 0.0)
        u = np.stack([first - r * odds.slope, first - rising - r * (odds.slope - odds.value)], axis=-1)
        far = ~(moderate(y) & moderate(r))
        if far.any():
            value[far], u[far] = super().log_prob_and_u(eta[far], np.broadcast_to(y, far.shape)[far])
        return value, u

    def prepared(self, b: Array, y: Array) -> tuple[Array, ...]:
        r = np.exp(np.minimum(-b, BEYOND))
        a = np.log(np.maximum(y, 0.5))
        top = self.at(b).log_prob_xi(a, y) - y * (a + b) + (y + r) * np.logaddexp(0.0, a + b)
        return b, y, r, top

    def along(self, a: Array, *prepared: Array) -> Array:
        b, y, r, top = prepared
        odds = a + b
        value = top + y * odds - (y + r) * (np.maximum(odds, 0.0) + np.log1p(np.exp(-np.abs(odds))))
        far = ~(moderate(y) & moderate(r))
        if far.any():
            value[..., far] = super().along(a[..., far], b[far], y[far])
        return value

    def curved(self, a: Array, b: Array, y: Array) -> tuple[Array, Array, Array]:
        # in log r = -b: r log s, s = r/(r + mu) and t = 1 - s, with ds/dlog r = s t and ds/da = -s t
        r, logit = np.exp(-b), a + b
        s, t, log_s = expit(-logit), expit(logit), log_expit(-logit)
        _, w, w3 = log_rising(r, y)
        st = (r + y) * s * t
        bb = w + r * log_s + 2.0 * r * t - st
        abb = 2.0 * r * s * t - r * t - st * (s - t)
        bbb = w3 + r * log_s + 3.0 * r * t * t - st * (t - s)
        return bb, abb, -bbb

    def information_b(self, a: Array, b: Array, y: Array) -> Information:
        r, logit = np.exp(-b), a + b
        s, t = expit(-logit), expit(logit)
        J, J_a, J_r = _trigamma_fall(r, np.exp(logit), a)
        zero, rt = 0.0 * (a + y), r * t
        # a difference of nearly equal numbers where there is no overdispersion to speak of
        bb = np.maximum(r * r * J - rt, 0.0)
        bb_a, bb_r = r * r * J_a - rt * s, r * r * (2.0 * J + J_r) - rt * t
        return Information((zero, None, bb + zero), (zero, None, bb_a + zero), (zero, None, -bb_r + zero))

    def expansion(self, y: Array) -> Array:
        return np.stack([np.log(np.maximum(y, 0.5)), np.zeros_like(y)], axis=-1)

    def loss(self, y: Array, prediction: Array) -> Array:
        return NegativeBinomial(phi=1.0).loss(y, prediction)  # the deviance at a dispersion of one


def _trigamma_fall(r: Array, m: Array, a: Array) -> tuple[Array, Array, Array]:
    """psi'(r) - E psi'(r + y) for a mean r m = exp(a), and its derivatives in a and in log r.

    The integral over t runs in log t, from where nothing is left of exp(-r t) down to where (mu t)² is below rounding.
    """
    high = np.log(60.0 / r)
    low = -20.0 - np.maximum(a, 0.0)
    count = int(np.max((high - low) / STEP)) + 1
    tau = high[..., None] - STEP * np.arange(count)
    t, r, m = np.exp(tau), r[..., None], m[..., None]
    x = -np.expm1(-t)
    weight = STEP * t * (t / x) * np.exp(-r * t)
    log_grown = np.log1p(m * x)
    kept = np.exp(-r * log_grown)
    lost = -np.expm1(-r * log_grown)
    slope = r * m * x / (1.0 + m * x) * kept
    turned = -r * t * lost + r * log_grown * kept - slope
    return (weight * lost).sum(axis=-1), (weight * slope).sum(axis=-1), (weight * turned).sum(axis=-1)
