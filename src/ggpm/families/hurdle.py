"""Hurdle: zeros that have a reason of their own, and the rest of a family without zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from ggpm.families.base import Array
from ggpm.families.curvature import Diagonal
from ggpm.families.inflated import Law
from ggpm.families.support import Support
from ggpm.families.two_parameters import Information
from ggpm.families.zeros import Jet, Zeros, jet, softplus_jet

REJECTIONS = 64  # draws of zero after which a count is found by adding up probabilities


class Hurdle(Zeros):
    """Zero with a probability pi that is a function of the inputs, or else a number of a scalar family that is not.

    ========  ==================================================================================
    support   that of the family f inside, and zero
    latents   a, the latent of f; b = log(pi/(1 - pi))
    y = 0     log pi
    y > 0     log(1 - pi) + log f(y|a) - log(1 - f(0|a))
    U         diagonal: zeros and the rest are two models
    expected  (1 - pi) (I - f0'² r)/(1 - f(0)), pi (1 - pi); r = f(0)/(1 - f(0)), f0' = d log f(0)/da
    ========  ==================================================================================

    Parameters
    ----------
    base : a family with one latent: Poisson(), NegativeBinomial(), Gamma(), LogNormal(), Beta(), ...

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(Hurdle().log_prob(np.zeros((2, 2)), np.array([0.0, 1.0]))).round(4)  # 1/2 and 1/(2 (e - 1))
    array([0.5  , 0.291])
    """

    @property
    def law(self) -> Law:
        return Positive(self) if self.counts else self.scalar

    def _truncation(self, a: Array, y: Array) -> Jet:
        """-log(1 - f(0|a)) and its derivatives."""
        g = self.none(a, y)
        e = np.exp(g.value)
        gone = -np.expm1(g.value)  # 1 - f(0)
        r = e / gone
        r1, r2 = r * (1.0 + r), r * (1.0 + r) * (1.0 + 2.0 * r)
        d1, d2, r_, r1_, r2_ = (x[..., None] for x in (g.d1, g.d2, r, r1, r2))
        return Jet(
            -np.log(gone), r * g.d1, r1 * g.d1**2 + r * g.d2, r2 * g.d1**3 + 3.0 * r1 * g.d1 * g.d2 + r * g.d3,
            r_ * g.phi, r1_ * g.phi * d1 + r_ * g.d1_phi,
            r2_ * g.phi * d1**2 + 2.0 * r1_ * d1 * g.d1_phi + r1_ * g.phi * d2 + r_ * g.d2_phi,
        )  # fmt: skip

    def log_prob(self, eta: Array, y: Array) -> Array:
        a, b = eta[..., 0], eta[..., 1]
        zero, some = self.some(y)
        other = self.scalar.log_prob_xi(self.scalar._link(a), some)
        if self.counts:
            other = other - np.log(-np.expm1(self.log_none(a)))
        return np.where(zero, b, other) - softplus_jet(b)[0]

    def _positive(self, a: Array, y: Array) -> list[Array]:
        """Derivatives in a of the log-density of what is not zero, and their slopes in phi; nothing where y is zero."""
        zero, some = self.some(y)
        found: list[Array] = list(jet(self.scalar, a, some))
        if self.counts:
            found = [one + more for one, more in zip(found, self._truncation(a, y))]
        at = np.broadcast_to(zero, found[0].shape)
        return [np.where(at if v.ndim == at.ndim else at[..., None], 0.0, v) for v in found]

    def first(self, eta: Array, y: Array) -> tuple[Array, Array]:
        return self._positive(eta[..., 0], y)[1], np.where(y == 0, 1.0, 0.0) - softplus_jet(eta[..., 1])[1]

    def second(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        d2 = self._positive(eta[..., 0], y)[2]
        return d2, np.zeros_like(d2), -softplus_jet(eta[..., 1])[2] + 0.0 * d2

    def third(self, eta: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        d3 = self._positive(eta[..., 0], y)[3]
        return d3, np.zeros_like(d3), np.zeros_like(d3), -softplus_jet(eta[..., 1])[3] + 0.0 * d3

    def information(self, eta: Array, y: Array) -> Information:
        a, b = eta[..., 0], eta[..., 1]
        _, some = self.some(y)
        I, I_a, I_phi = self.scalar_information(a, some)
        p, q = expit(b), expit(-b)
        if self.counts:
            g = self.none(a, y)
            gone = -np.expm1(g.value)
            r, d1 = np.exp(g.value) / gone, g.d1
            left = I - r * d1**2
            # r' = r (1 + r) f0', and 1/(1 - f(0)) rises by r f0' of itself
            of_a = (I_a - r * (1.0 + r) * d1**3 - 2.0 * r * d1 * g.d2 + left * r * d1) / gone
            moved = g.phi * (r * (1.0 + r) * d1**2)[..., None] + 2.0 * (r * d1)[..., None] * g.d1_phi
            I_phi = (I_phi - moved + left[..., None] * r[..., None] * g.phi) / gone[..., None]
            # beyond the digits of the difference nothing is left to know
            I, I_a = np.maximum(left, 0.0) / gone, of_a
        none = 0.0 * (I + b)
        in_b = -p * q * I, None, p * q * (q - p) + none
        in_phi = q[..., None] * I_phi, None, np.zeros_like(I_phi)
        return Information((q * I, None, p * q + none), (q * I_a, None, none), in_b, in_phi)

    def phi_partials(self, eta: Array, y: Array) -> tuple[Array, tuple[Array, Array], tuple[Array, Array, Array]]:
        _, _, _, _, phi, d1, d2 = self._positive(eta[..., 0], y)
        none = np.zeros_like(phi)
        return phi, (d1, none), (d2, none, none)

    # ---- in the space of y -----------------------------------------------------------------------------------
    def inner_moments(self, a: Array) -> tuple[Array, Array]:
        mean = self.scalar.moment(a[..., None])
        square = self.scalar.spread(a[..., None]) + mean**2
        if not self.counts:
            return mean, square
        gone = -np.expm1(self.log_none(a))
        return mean / gone, square / gone

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta), with its jump at zero."""
        p, q = expit(eta[..., 1]), expit(-eta[..., 1])
        inner = np.where(y > 0, self.law.cdf(eta[..., :1], np.where(y > 0, y, self.some(0.0 * y)[1])), 0.0)
        return np.where(y < 0, 0.0, p + q * inner)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        y = np.asarray(self.scalar.sample(eta[..., :1], rng), dtype=float)
        if self.counts:
            for _ in range(REJECTIONS):
                again = y == 0
                if not again.any():
                    break
                y[again] = self.scalar.sample(eta[again][:, :1], rng)
            y[y == 0] = self._found(eta[y == 0][:, :1], rng)
        return np.where(rng.uniform(size=y.shape) < expit(eta[..., 1]), 0.0, y)

    def _found(self, a: Array, rng: np.random.Generator) -> Array:
        """Counts above zero where nearly all are zero: the first at which the distribution function passes a draw."""
        f0 = np.exp(self.log_none(a[:, 0]))
        draw, y = rng.uniform(size=len(a)) * (1.0 - f0), np.ones(len(a))
        for _ in range(1000):
            short = self.scalar.cdf(a, y) - f0 < draw
            if not short.any():
                break
            y[short] += 1.0
        return y


@dataclass(frozen=True)
class Positive:
    """The counts of a hurdle's family that are not zero."""

    hurdle: Hurdle
    shift_invariant: ClassVar[bool] = False

    @property
    def support(self) -> Support:
        return self.hurdle.scalar.support

    def log_prob(self, eta: Array, y: Array) -> Array:
        gone = -np.expm1(self.hurdle.log_none(eta[..., 0]))
        return self.hurdle.scalar.log_prob(eta, y) - np.log(gone)

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, Diagonal]:
        d1, d2 = self.hurdle._positive(eta[..., 0], y)[1:3]
        return d1[..., None], Diagonal(-d2[..., None])

    def U(self, eta: Array, y: Array, expected: bool = False) -> Diagonal:
        return self.hurdle.scalar.U(eta, y, expected=True) if expected else self.u_and_U(eta, y)[1]

    def expansion(self, y: Array) -> Array:
        return self.hurdle.scalar.expansion(y)

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta, Y > 0), from the other side: where nearly all is zero nothing cancels."""
        gone = -np.expm1(self.hurdle.log_none(eta[..., 0]))
        return np.where(y > 0, np.clip(1.0 - self.hurdle.scalar.sf(eta, y) / gone, 0.0, 1.0), 0.0)
