"""Beta-binomial: successes out of trials that vary more than the binomial's."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_expit

from ggpm.families.base import Array, Bounds
from ggpm.families.binomial import Binomial
from ggpm.families.special import SoftplusTerms
from ggpm.families.special.rising import (
    expected_second,
    log_moderate_polya,
    log_polya,
    log_polya_and_slopes,
    log_rising,
)
from ggpm.families.special.stable import moderate

SMALL, LARGE = 600.0, 1e200  # -log of the first probability, and terms, beyond which floats would end
_TINY = 1e-290  # a or b below it is set to it: the probability is about to underflow to zero


class BetaBinomial(Binomial):
    """Successes k and failures N - k of N trials whose probability varies from row to row: a beta with precision phi.

    With mean probability p the variance of k is N p (1 - p) (N + phi)/(1 + phi); phi -> infinity is the binomial, and
    1/(1 + phi) the correlation of two trials of one row.

    ========  =======================================================================================
    support   (k, N - k), non-negative integers with N >= 1
    log p     log N choose k + L(k, a) + L(N - k, b) - L(N, phi), L(y, a) = log Gamma(a + y)/Gamma(a)
    link      a = phi p, b = phi (1 - p), p = expit(eta); not an exponential family
    U         p q (c_a + c_b) - q² w_a - p² w_b with q = 1 - p and c, w the first and second derivative
              of L in log a and log b; it can be negative
    ========  =======================================================================================

    Predictions (`moment`, `loss`) are the proportion p; with ``trials`` given, the expected successes. The expected
    curvature and the distribution function are sums over 0 .. N.

    Parameters
    ----------
    phi : float
        Precision: larger means less variation from row to row.
    phi_bounds : (low, high) or "fixed"

    Examples
    --------
    >>> import numpy as np
    >>> family = BetaBinomial(phi=2.0)  # a uniform probability at eta = 0: every k is as likely
    >>> np.exp(family.log_prob(np.zeros((1, 1)), np.array([[0.0, 4.0], [3.0, 1.0]]))).round(12)
    array([0.2, 0.2])
    """

    _phi_ndims = (0,)

    def __init__(self, phi: float = 10.0, phi_bounds: Bounds = (1e-3, 1e6)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        if moderate(y.sum(axis=-1) + self.phi).all():
            far = np.log(1.0 + np.exp(-np.abs(xi)))
            return log_moderate_polya(
                list(self._counts(y)), [np.minimum(xi, 0.0) - far, np.minimum(-xi, 0.0) - far], self.phi
            )
        return log_polya(y, np.stack([log_expit(xi), log_expit(-xi)], axis=-1), np.asarray(self.phi, dtype=float))

    def log_prob_and_score(self, xi: Array, y: Array) -> tuple[Array, Array]:
        logistic = SoftplusTerms(xi)
        log_pi = -np.stack([logistic.mirrored, logistic.value], axis=-1)
        value, c = log_polya_and_slopes(y, log_pi, float(self.phi))
        return value, logistic.complement * c[..., 0] - logistic.slope * c[..., 1]

    def _terms(self, xi: Array, y: Array) -> tuple[Array, Array, tuple[Array, ...], tuple[Array, ...]]:
        """p, q, and the derivatives of L(k, a) and L(N - k, b) in log a and log b."""
        (k, miss), p, q = self._counts(y), expit(xi), expit(-xi)
        return p, q, log_rising(np.maximum(self.phi * p, _TINY), k), log_rising(np.maximum(self.phi * q, _TINY), miss)

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        # dlog a/dxi = q, dlog b/dxi = -p
        p, q, (ca, wa, ta), (cb, wb, tb) = self._terms(xi, y)
        v, C = p * q, ca + cb
        l1 = q * ca - p * cb
        l2 = q * q * wa + p * p * wb - v * C
        l3 = q**3 * ta - p**3 * tb - 3.0 * v * (q * wa - p * wb) - v * (q - p) * C
        return l1, l2, l3

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        p, q, (ca, wa, ta), (cb, wb, tb) = self._terms(xi, y)
        lp = ca + cb - self._whole(y)[0]
        return (
            lp[..., None],
            (q * wa - p * wb)[..., None],
            (q * q * ta + p * p * tb - p * q * (wa + wb))[..., None],
        )

    def _whole(self, y: Array) -> tuple[Array, Array, Array]:
        """The derivatives of L(N, phi) in log phi."""
        return log_rising(np.asarray(self.phi, dtype=float), y.sum(axis=-1))

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        p, q, N = expit(xi), expit(-xi), y.sum(axis=-1)
        wa, wa_a, wa_phi = expected_second(log_expit(xi), log_expit(-xi), self.phi, N)
        wb, wb_b, wb_phi = expected_second(log_expit(-xi), log_expit(xi), self.phi, N)
        C, C_phi, _ = self._whole(y)  # E[c_a + c_b], since the score in phi has mean zero
        v = p * q
        info = v * C - q * q * wa - p * p * wb
        info_xi = v * ((q - p) * C + 2.0 * q * wa - 2.0 * p * wb) - q**3 * wa_a + p**3 * wb_b
        return info, info_xi, (v * C_phi - q * q * wa_phi - p * p * wb_phi)[..., None]

    # ---- in the space of y -------------------------------------------------------------------------------
    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        alone = super().spread(eta, trials)
        return alone if trials is None else alone * (trials + self.phi) / (1.0 + self.phi)

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(no more than k successes of N | eta)."""
        k, miss = self._counts(y)
        N = k + miss
        a, b = (np.maximum(self.phi * expit(xi), _TINY) for xi in (eta[..., 0], -eta[..., 0]))
        # sum from the end that has fewer terms, every term from the one before
        left = k < miss
        last = np.where(left, k, miss - 1.0)
        own, other = np.where(left, a, b), np.where(left, b, a)
        first = np.stack([np.zeros_like(N), N], axis=-1)
        log_p, log_q = log_expit(eta[..., 0]), log_expit(-eta[..., 0])
        pair = np.stack([np.where(left, log_p, log_q), np.where(left, log_q, log_p)], axis=-1)
        start = log_polya(first, pair, np.asarray(self.phi, dtype=float))
        # terms are relative to exp(unit), which they outgrow where the first one is too small for floats
        small = bool(np.any(start <= -SMALL))
        unit, most = np.where(start > -SMALL, 0.0, start), int(last.max(initial=0.0))
        term = np.exp(start - unit)
        total = np.where(last >= 0, term, 0.0)
        for j in range(most):
            room = np.maximum(N - j, 1.0)
            term *= own + j
            term *= room / (j + 1.0) * (j < last)  # nothing after the last
            term /= other + (room - 1.0)
            total += term
            if small and np.any(large := term > LARGE):
                unit, term, total = (
                    unit + large * np.log(LARGE),
                    *(np.where(large, x / LARGE, x) for x in (term, total)),
                )
        if small:
            with np.errstate(divide="ignore"):
                total = np.exp(np.log(total) + unit)
        tail = np.minimum(total, 1.0)
        return np.where(k < 0, 0.0, np.where(left, tail, 1.0 - tail))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        p = rng.beta(
            np.maximum(self.phi * expit(eta[..., 0]), _TINY), np.maximum(self.phi * expit(-eta[..., 0]), _TINY)
        )
        total = np.broadcast_to(1.0 if trials is None else np.asarray(trials, dtype=float), p.shape)
        k = rng.binomial(total.astype(np.int64), p).astype(float)
        return np.stack([k, total - k], axis=-1)
