"""Shares with exact zeros and ones."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp, softmax

from ggpm.families.base import Array, Bounds
from ggpm.families.beta import Beta
from ggpm.families.curvature import Blocks, Marginals
from ggpm.families.inflated import Inflated, Law
from ggpm.families.support import UnitInterval
from ggpm.families.zeros import WithAtoms


class ZeroOneInflatedBeta(Inflated):
    """Shares between 0 and 1, both included: beta, or exactly 0 or 1 with probabilities that vary with the inputs.

    ========  ====================================================================================
    support   0 <= y <= 1
    latents   a, the logit of the beta's mean; b and c, log-odds of 0 and of 1 against the rest
    p         (p0, p1, rest) = (exp b, exp c, 1)/(1 + exp b + exp c)
    log p     log p0, log p1, or log(rest) + log Beta(y|a)
    U         that of the beta where 0 < y < 1; [p0 (1 - p0), -p0 p1; ., p1 (1 - p1)] in (b, c)
    ========  ====================================================================================

    Parameters
    ----------
    phi : float
        Precision of the beta.
    phi_bounds : (low, high) or "fixed"

    Examples
    --------
    >>> np.exp(ZeroOneInflatedBeta().log_prob(np.zeros((2, 3)), np.array([0.0, 1.0]))).round(4)
    array([0.3333, 0.3333])
    """

    support = WithAtoms(UnitInterval(), (0.0, 1.0))
    latent_dim = 3
    latent_variance = (1.0, 1.0, 1.0)
    parameters = ("mean", "zero", "one")
    _phi_ndims = (0,)

    def __init__(self, phi: float = 1.0, phi_bounds: Bounds = (1e-5, 1e5)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    @property
    def _beta(self) -> Beta:
        return Beta(phi=self.phi)

    @property
    def singles(self) -> tuple[float, ...]:
        return (0.0, 1.0)

    @property
    def law(self) -> Law:
        return self._beta

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        out, values = copy.copy(self), self.encode(y)
        weight = np.ones(len(values)) if weight is None else weight
        counts = np.array([weight @ (values == v) for v in (0.0, 1.0)]) + 0.5
        rest = weight.sum() - counts.sum() + 2.0
        out._origin = np.array([0.0, *np.log(counts / rest)])
        return out

    def _split(self, y: Array) -> tuple[Any, Any, Array]:
        """Which are zero, which are one, and shares that the beta takes in all rows."""
        zero, one = y == 0.0, y == 1.0
        return zero, one, np.where(zero | one, 0.5, y)

    @staticmethod
    def _odds(eta: Array) -> Array:
        """Log-odds of 0, of 1 and of the rest."""
        return np.concatenate([eta[..., 1:], np.zeros_like(eta[..., :1])], axis=-1)

    def log_prob(self, eta: Array, y: Array) -> Array:
        zero, one, some = self._split(y)
        inner = self._beta.log_prob(eta[..., :1], some)
        odds = self._odds(eta)
        return np.where(zero, odds[..., 0], np.where(one, odds[..., 1], inner)) - logsumexp(odds, axis=-1)

    def u(self, eta: Array, y: Array) -> Array:
        zero, one, some = self._split(y)
        p = softmax(self._odds(eta), axis=-1)
        d1 = np.where(zero | one, 0.0, self._beta.u(eta[..., :1], some)[..., 0])
        return np.stack([d1, np.where(zero, 1.0, 0.0) - p[..., 0], np.where(one, 1.0, 0.0) - p[..., 1]], axis=-1)

    def U(self, eta: Array, y: Array, expected: bool = False) -> Blocks:
        zero, one, some = self._split(y)
        p = softmax(self._odds(eta), axis=-1)
        own = self._beta.U(eta[..., :1], some, expected=expected).gamma[..., 0]
        values = np.zeros((*np.broadcast_shapes(own.shape, p.shape[:-1]), 3, 3))
        values[..., 0, 0] = p[..., 2] * own if expected else np.where(zero | one, 0.0, own)
        values[..., 1, 1], values[..., 2, 2] = p[..., 0] * (1.0 - p[..., 0]), p[..., 1] * (1.0 - p[..., 1])
        values[..., 1, 2] = values[..., 2, 1] = -p[..., 0] * p[..., 1]
        return Blocks(values)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        zero, one, some = self._split(y)
        p, M = softmax(self._odds(eta), axis=-1), V.dense()
        p0, p1, rest = (p[..., k] for k in range(3))
        own = np.asarray(self._beta.U(eta[..., :1], some, expected=expected).gamma[..., 0])
        share = rest if expected else np.where(zero | one, 0.0, 1.0)
        weighted = Blocks((M[..., 0, 0] * share)[..., None, None])
        d_a, d_phi = self._beta.U_pullback(eta[..., :1], some, weighted, expected=expected)
        # of the softmax: dp_j/dlog-odds_k = p_j (delta_jk - p_k)
        m00, m11, m01 = M[..., 1, 1], M[..., 2, 2], M[..., 1, 2]
        of_p0 = m00 * (1.0 - 2.0 * p0) - 2.0 * m01 * p1
        of_p1 = m11 * (1.0 - 2.0 * p1) - 2.0 * m01 * p0
        of_rest = M[..., 0, 0] * own if expected else 0.0
        total = of_p0 * p0 + of_p1 * p1 + of_rest * rest
        return np.stack([d_a[..., 0], p0 * (of_p0 - total), p1 * (of_p1 - total)], axis=-1), d_phi

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        zero, one, some = self._split(y)
        return np.where((zero | one)[..., None], 0.0, self._beta.log_prob_phi(eta[..., :1], some))

    def u_phi(self, eta: Array, y: Array) -> Array:
        zero, one, some = self._split(y)
        own = np.where((zero | one)[..., None, None], 0.0, self._beta.u_phi(eta[..., :1], some))
        return np.concatenate([own, np.zeros((*own.shape[:-2], 2, own.shape[-1]))], axis=-2)

    def expansion(self, y: Array) -> Array:
        zero, one, some = self._split(y)
        a = self._beta.expansion(some)[..., 0]
        return np.stack([a, np.where(zero, 1.0, -1.0), np.where(one, 1.0, -1.0)], axis=-1)

    def parameter(self, name: str, eta: Array) -> Array:
        """The mean of the beta, or the probability of an exact 0 or 1."""
        if name == "mean":
            return self._beta.moment(eta[..., :1])
        return softmax(self._odds(eta), axis=-1)[..., self.parameters.index(name) - 1]

    # ---- in the space of y -----------------------------------------------------------------------------------
    def inner_moments(self, a: Array) -> tuple[Array, Array]:
        mean = self._beta.moment(a[..., None])
        return mean, self._beta.spread(a[..., None]) + mean**2

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        p = softmax(self._odds(eta), axis=-1)
        return p[..., 1] + p[..., 2] * self._beta.moment(eta[..., :1])

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        p, mean = softmax(self._odds(eta), axis=-1), self._beta.moment(eta[..., :1])
        return p[..., 1] + p[..., 2] * (self._beta.spread(eta[..., :1]) + mean**2) - self.moment(eta) ** 2

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta), with its jumps at zero and one."""
        p, inside = softmax(self._odds(eta), axis=-1), (y > 0) & (y < 1)
        inner = np.where(inside, self._beta.cdf(eta[..., :1], np.where(inside, y, 0.5)), np.where(y >= 1, 1.0, 0.0))
        return np.where(y < 0, 0.0, p[..., 0] + p[..., 2] * inner + np.where(y >= 1, p[..., 1], 0.0))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        p, y = softmax(self._odds(eta), axis=-1), self._beta.sample(eta[..., :1], rng)
        draw = rng.uniform(size=y.shape)
        return np.where(draw < p[..., 0], 0.0, np.where(draw < p[..., 0] + p[..., 1], 1.0, y))
