"""Zero-inflated: counts with more zeros than their family has: some of another kind."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logsumexp

from ggpm.families.base import Array
from ggpm.families.two_parameters import Information
from ggpm.families.zeros import Zeros, jet, softplus_jet


class ZeroInflated(Zeros):
    """Numbers of a scalar family, or zero with a probability pi that is a function of the inputs too.

    ========  ======================================================================================
    support   that of the family f inside, and zero
    latents   a, the latent of f; b = log(pi/(1 - pi))
    y = 0     log(pi + (1 - pi) f(0|a)); w = pi/p(0) is the probability that it is of the other kind
    y > 0     log(1 - pi) + log f(y|a)
    expected  [(1 - pi) I - pi v f0'², pi v f0'; ., pi² (1 - pi)(1 - f(0))/p(0)], v = 1 - w, f0' = d log f(0)/da
    ========  ======================================================================================

    For positive numbers and shares, which have no zeros of their own, it is the same as `Hurdle`.

    Parameters
    ----------
    base : a family with one latent: Poisson(), NegativeBinomial(), Gamma(), Beta(), ...

    Examples
    --------
    >>> import numpy as np
    >>> family = ZeroInflated()
    >>> np.exp(family.log_prob(np.zeros((1, 2)), np.zeros(1))).round(4)  # (1 + exp(-1))/2
    array([0.6839])
    """

    @property
    def needs_events(self) -> bool:  # type: ignore[override]
        return self.counts

    @property
    def apart(self) -> bool:
        return not self.counts

    def log_prob(self, eta: Array, y: Array) -> Array:
        a, b = eta[..., 0], eta[..., 1]
        zero, some = self.some(y)
        s = softplus_jet(b)[0]
        other = self.scalar.log_prob_xi(self.scalar._link(a), np.where(zero, 1.0, y) if self.counts else some)
        if not self.counts:
            return np.where(zero, b, other) - s
        none = self.log_none(a)
        return np.where(zero, np.logaddexp(b, none), other) - s

    def _zero(self, a: Array, b: Array, y: Array) -> tuple:
        """w, v, and the jet of log f(0)."""
        g = self.none(a, y)
        w = expit(b - g.value)
        return w, expit(g.value - b), g

    def first(self, eta: Array, y: Array) -> tuple[Array, Array]:
        a, b = eta[..., 0], eta[..., 1]
        zero, some = self.some(y)
        _, s1, _, _ = softplus_jet(b)
        d1 = jet(self.scalar, a, some).d1
        if not self.counts:
            return np.where(zero, 0.0, d1), np.where(zero, 1.0, 0.0) - s1
        w, v, g = self._zero(a, b, y)
        return np.where(zero, v * g.d1, d1), np.where(zero, w, 0.0) - s1

    def second(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        a, b = eta[..., 0], eta[..., 1]
        zero, some = self.some(y)
        _, _, s2, _ = softplus_jet(b)
        d2 = jet(self.scalar, a, some).d2
        if not self.counts:
            return np.where(zero, 0.0, d2), 0.0 * (d2 + b), 0.0 * d2 - s2
        w, v, g = self._zero(a, b, y)
        c = np.where(zero, w * v, 0.0)
        return np.where(zero, c * g.d1**2 + v * g.d2, d2), -c * g.d1, c - s2

    def third(self, eta: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        a, b = eta[..., 0], eta[..., 1]
        zero, some = self.some(y)
        s3 = softplus_jet(b)[3]
        d3 = jet(self.scalar, a, some).d3
        if not self.counts:
            none = 0.0 * (d3 + b)
            return np.where(zero, 0.0, d3), none, none, none - s3
        w, v, g = self._zero(a, b, y)
        c = np.where(zero, w * v, 0.0)
        t = c * (v - w)  # derivative of w v in b
        aaa = np.where(zero, -t * g.d1**3 + 3.0 * c * g.d1 * g.d2 + v * g.d3, d3)
        return aaa, t * g.d1**2 - c * g.d2, -t * g.d1, t - s3

    def information(self, eta: Array, y: Array) -> Information:
        a, b = eta[..., 0], eta[..., 1]
        _, some = self.some(y)
        I, I_a, I_phi = self.scalar_information(a, some)
        p, q = expit(b), expit(-b)
        if not self.counts:
            none = 0.0 * (I + b)
            return Information((q * I, None, p * q + none), (q * I_a, None, none), (-p * q * I, None, p * q * (q - p)),
                               (q[..., None] * I_phi, None, np.zeros_like(I_phi)))  # fmt: skip
        w, v, g = self._zero(a, b, y)
        v_a, v_b = w * v * g.d1, -w * v
        k, k_a, k_b = p * v, p * v_a, p * q * v + p * v_b
        # 1 - pi - v = pi (1 - pi)(1 - f(0))/p(0), without the difference
        log_p0 = logsumexp(np.stack(np.broadcast_arrays(np.log(p), np.log(q) + g.value)), axis=0)
        gap = p * q * -np.expm1(g.value) * np.exp(-log_p0)
        entries = q * I - k * g.d1**2, k * g.d1, p * gap
        in_a = q * I_a - k_a * g.d1**2 - 2.0 * k * g.d1 * g.d2, k_a * g.d1 + k * g.d2, -p * v_a
        in_b = -p * q * I - k_b * g.d1**2, k_b * g.d1, p * q * gap + p * (-p * q - v_b)
        if not self.log_hyper.size:
            return Information(entries, in_a, in_b)
        k_phi = (p * w * v)[..., None] * g.phi
        d1 = g.d1[..., None]
        in_phi = (
            q[..., None] * I_phi - k_phi * d1**2 - 2.0 * k[..., None] * d1 * g.d1_phi,
            k_phi * d1 + k[..., None] * g.d1_phi, -k_phi,
        )  # fmt: skip
        return Information(entries, in_a, in_b, in_phi)

    def phi_partials(self, eta: Array, y: Array) -> tuple[Array, tuple[Array, Array], tuple[Array, Array, Array]]:
        a, b = eta[..., 0], eta[..., 1]
        zero, some = self.some(y)
        j = jet(self.scalar, a, some)
        at, none = np.broadcast_to(zero, j.value.shape)[..., None], np.zeros_like(j.phi)
        if not self.counts:
            return np.where(at, 0.0, j.phi), (np.where(at, 0.0, j.d1_phi), none), (
                np.where(at, 0.0, j.d2_phi), none, none)  # fmt: skip
        w, v, g = self._zero(a, b, y)
        c, t, v = (x[..., None] for x in (w * v, w * v * (v - w), v))
        d1, d2 = g.d1[..., None], g.d2[..., None]
        # v rises with log f(0) by w v, and w v by t the other way
        aa = -t * g.phi * d1**2 + 2.0 * c * d1 * g.d1_phi + c * g.phi * d2 + v * g.d2_phi
        return (
            np.where(at, v * g.phi, j.phi),
            (np.where(at, c * g.phi * d1 + v * g.d1_phi, j.d1_phi), np.where(at, -c * g.phi, 0.0)),
            (np.where(at, aa, j.d2_phi), np.where(at, t * g.phi * d1 - c * g.d1_phi, 0.0),
             np.where(at, -t * g.phi, 0.0)),
        )  # fmt: skip

    # ---- in the space of y -----------------------------------------------------------------------------------
    def inner_moments(self, a: Array) -> tuple[Array, Array]:
        mean = self.scalar.moment(a[..., None])
        return mean, self.scalar.spread(a[..., None]) + mean**2

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta), with its jump at zero."""
        p, q = expit(eta[..., 1]), expit(-eta[..., 1])
        some = y if self.counts else np.where(y > 0, y, self.some(0.0 * y)[1])
        below = self.scalar.cdf(eta[..., :1], some)
        inner = below if self.counts else np.where(y > 0, below, 0.0)
        return np.where(y < 0, 0.0, p + q * inner)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        y = self.scalar.sample(eta[..., :1], rng)
        return np.where(rng.uniform(size=y.shape) < expit(eta[..., 1]), 0.0, y)
