"""Dirichlet: compositions."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, digamma

from ggpm.families.base import Array
from ggpm.families.composition import Composition, Zeros
from ggpm.families.curvature import NU2_MAX, Marginals, RankOne
from ggpm.families.dirichlet_multinomial import log_dirichlet_draws
from ggpm.families.links import LINKS, Link
from ggpm.families.special import (
    digamma_increment,
    information_gap,
    sum_of_others,
    tetragamma,
    trigamma,
)
from ggpm.families.special.stable import excess_log, log_minus_digamma, stirling_error

_TINY = 1e-290  # alpha below it is set to it: exp(eta) is about to underflow to zero, where no density exists
# The density around y = alpha/S is narrower than the rounding of y from about here on: S eps^2 is of order one.
_LARGEST = 1e30


class _Terms(NamedTuple):
    """Terms that all derivatives share; J, J2, J3 are the derivatives of alpha in eta."""

    alpha: Array
    others: Array  # sum of the other parts
    S: Array  # sum of all parts
    J: Array
    J2: Array
    J3: Array
    g1: Array  # derivatives of log alpha in eta
    g2: Array
    g3: Array
    small: NDArray[np.bool_]  # where the poles at alpha = 0 are split off
    shift: Array  # alpha, or 1 + alpha where small: where the polygammas are taken


class Dirichlet(Composition):
    """Compositions: rows of d positive parts that sum to one.

    ========  ==========================================================================================
    support   (n, d) positive, rows sum to 1
    T, b, h   log y, sum_j log Gamma(theta_j) - log Gamma(S), 1/prod_j y_j, with S = sum_j theta_j
    a         1
    link      theta = alpha = log(1 + exp(eta)) ("softplus", paper sec. 4.3) or exp(eta) ("exp"), D = d
    U         gamma = J^2 psi1(theta) - theta'' [log y - psi0(theta) + psi0(S)], omega ~ J, rho ~ psi1(S)
    ========  ==========================================================================================

    J is the link's derivative. omega is given as J/S and rho as S^2 psi1(S): the same matrix, and no overflow
    for small S. gamma can be negative; the expected curvature (without the second term) never is.

    Parameters
    ----------
    link : "softplus" or "exp"
        How the latent values become alpha.
    zeros : "error", "additive" or "squeeze"
        What to do about parts that are exactly zero, where log y does not exist. "additive" turns every row
        into (y + zeros_epsilon)/(1 + d zeros_epsilon); "squeeze" into (y (n - 1) + 1/d)/n with n the number
        of rows that were fitted (Smithson and Verkuilen 2006). Both act on all rows, and are undone in
        predictions, intervals and samples, where what falls below zero is zero; densities are per unit of y as given.
    zeros_epsilon : float
        What "additive" adds to every part.
    closure : bool
        Divide every row by its sum first (percentages, raw amounts). If the sums of all rows agree to within 1 %
        (100, or 99 to 101 for rounded percentages), predictions, intervals and samples come back in that total, and
        densities are per its unit; if they differ, as shares.

    Examples
    --------
    >>> import numpy as np
    >>> Dirichlet(link="exp").moment(np.log([[1.0, 3.0]]))
    array([[0.25, 0.75]])
    >>> percent = Dirichlet(closure=True).resolve([[20.0, 80.0], [70.0, 30.0]])
    >>> percent.decode(np.array([0.25, 0.75]))
    array([25., 75.])
    """

    def __init__(
        self,
        link: Literal["softplus", "exp"] = "softplus",
        zeros: Zeros = "error",
        zeros_epsilon: float = 1e-3,
        closure: bool = False,
    ):
        self.link = link
        self.zeros = zeros
        self.zeros_epsilon = zeros_epsilon
        self.closure = closure

    @property
    def _link(self) -> Link:
        if self.link not in ("softplus", "exp"):
            raise ValueError(f"link must be 'softplus' or 'exp'; got {self.link!r}.")
        return LINKS[self.link]

    # ---- data --------------------------------------------------------------------------------------------
    def resolve(self, y: Any) -> Self:
        _ = self._link
        out = super().resolve(y)
        out.latent_dim = out._parts or 0
        return out

    def encode(self, y: Any) -> Array:
        return self.shares(y)

    def decode(self, y: Array) -> Array:
        return self.amounts(y, whole=False)  # quantiles are of each part alone

    # ---- density -----------------------------------------------------------------------------------------
    def _alpha(self, eta: Array) -> Array:
        return np.maximum(self._link(eta), _TINY)

    def _terms(self, eta: Array) -> _Terms:
        alpha = self._alpha(eta)
        J, J2, J3 = self._link.derivatives(eta)
        small = alpha < 1.0
        if self.link == "exp":
            g1, g2, g3 = np.ones_like(eta), np.zeros_like(eta), np.zeros_like(eta)
        else:
            g1, g2, g3 = LINKS["log_softplus"].derivatives(np.where(small, eta, 0.0))
        shift = np.where(small, 1.0 + alpha, alpha)
        return _Terms(alpha, sum_of_others(alpha), alpha.sum(axis=-1), J, J2, J3, g1, g2, g3, small, shift)

    def _score(self, t: _Terms, y: Array) -> tuple[Array, Array]:
        """``B = log y - psi0(alpha) + psi0(S)``, and B without the pole 1/alpha where alpha is small."""
        # a part that dominates has y and alpha/S next to one: log(y S/alpha) would lose the digits of both
        top = t.others < t.alpha
        ratio = np.where(top, y, y * (t.S[..., None] / t.alpha))
        stirling = np.log(ratio) + log_minus_digamma(t.alpha) - log_minus_digamma(t.S)[..., None]
        increment = np.zeros_like(t.alpha)
        increment[top] = digamma_increment(t.alpha[top], t.others[top])
        full = np.where(top, np.log(ratio) + increment, stirling)
        split = np.log(y) - digamma(t.shift) + digamma(t.S)[..., None]
        return full, np.where(t.small, split, full)

    def log_prob(self, eta: Array, y: Array) -> Array:
        # all gamma functions by Stirling: what is left is S KL(alpha/S || y), and no large numbers cancel
        alpha = self._alpha(eta)
        S = alpha.sum(axis=-1, keepdims=True)
        d = alpha.shape[-1]
        log_y = np.log(y)
        fit = S[..., 0] * excess_log(alpha / S, y, log_b=log_y).sum(axis=-1)
        S = S[..., 0]
        parts = 0.5 * np.log(alpha) - stirling_error(alpha)
        # per unit of the user's: a density over d - 1 parts
        head = stirling_error(S) - 0.5 * np.log(S) - (d - 1) * math.log(math.sqrt(2.0 * math.pi) * self.unit)
        value = head + parts.sum(axis=-1) - fit - log_y.sum(axis=-1)
        return np.where(S > _LARGEST, -np.inf, value)

    def u(self, eta: Array, y: Array) -> Array:
        t = self._terms(eta)
        return t.J * self._score(t, y)[0]

    def U(self, eta: Array, y: Array, expected: bool = False) -> RankOne:
        eta = np.broadcast_to(eta, np.broadcast_shapes(eta.shape, y.shape))
        t = self._terms(eta)
        S2psi1 = _square_trigamma(t.S)
        omega = t.J / t.S[..., None]
        J2psi1 = t.J**2 * trigamma(t.shift)
        information = J2psi1 + np.where(t.small, t.g1**2, 0.0)  # J^2 psi1(alpha)
        strength = S2psi1[..., None] * omega**2
        gap = information_gap(t.alpha)
        if expected:
            return RankOne(information, omega, S2psi1, nu=np.sqrt(strength / information), gap=gap)
        full, split = self._score(t, y)
        gamma = J2psi1 - np.where(t.small, t.g2, 0.0) - t.J2 * split
        if np.any(gamma <= strength / NU2_MAX):  # negative, or next to it: no square roots
            return RankOne(gamma, omega, S2psi1)
        # 1 - sum_j strength_j/gamma_j from that of the expected curvature, where gamma = information - J2 B
        gap = gap - np.sum(strength / information * (t.J2 * full / gamma), axis=-1)
        gap = np.where(t.S < 1.0, self._gap_small(t, y, gamma), gap)
        return RankOne(gamma, omega, S2psi1, nu=np.sqrt(strength / gamma), gap=gap)

    @staticmethod
    def _gap_small(t: _Terms, y: Array, gamma: Array) -> Array:
        """``sum_j (m_j - strength_j/gamma_j)``, m = alpha/S, for S < 1, where U tends to diag(m) - m m^T.

        That limit is singular. The poles of psi(alpha) and psi(S) at zero, which cancel in
        m gamma - strength, are taken out by hand.
        """
        S = np.minimum(t.S, 1.0)[..., None]
        alpha = np.minimum(t.alpha, 1.0)
        smooth = np.log(y) - digamma(1.0 + alpha) + digamma(1.0 + S)
        inner = t.J**2 * trigamma(1.0 + alpha) - t.g2 * (t.others / S) - t.J2 * smooth
        inner = inner - t.J * (t.J / alpha) * S * trigamma(1.0 + S)
        return np.sum(alpha / S * (inner / gamma), axis=-1)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        t = self._terms(eta)
        S = t.S[..., None]
        # everything with S is scaled by its powers, so that small S does not overflow
        S2psi1, S3psi2 = _square_trigamma(S), _cube_tetragamma(S)
        omega, bent = t.J / S, t.J2 / S
        V_omega = V.dot(omega)
        quad = np.sum(omega * V_omega, axis=-1, keepdims=True)
        psi1, psi2 = trigamma(t.shift), tetragamma(t.shift)
        if expected:
            own = t.J * (2.0 * t.J2 * psi1 + t.J**2 * psi2) + np.where(t.small, 2.0 * t.g1 * t.g2, 0.0)
            shared = S3psi2 * quad
        else:
            own = t.J * (3.0 * t.J2 * psi1 + t.J**2 * psi2) - np.where(t.small, t.g3, 0.0)
            own = own - t.J3 * self._score(t, y)[1]
            shared = S3psi2 * quad + S2psi1 * np.sum(V.diag * bent, axis=-1, keepdims=True)
        return V.diag * own - omega * shared - 2.0 * S2psi1 * bent * V_omega, np.zeros(0)

    def expansion(self, y: Array) -> Array:
        return y.copy()  # paper sec. 4.3: the observation itself

    # ---- in the space of y -------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        alpha = self._alpha(eta)
        return alpha / alpha.sum(axis=-1, keepdims=True)

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        alpha = self._alpha(eta)
        S = alpha.sum(axis=-1, keepdims=True)
        m = alpha / S
        cov = -m[..., :, None] * m[..., None, :]
        np.einsum("...jj->...j", cov)[...] = m * (sum_of_others(alpha) / S)
        return cov / (1.0 + S[..., None])

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y_j <= y_j | eta) for every part, (..., d)."""
        alpha = self._alpha(eta)
        return betainc(alpha, sum_of_others(alpha), y)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        alpha = self._alpha(eta)
        log_g = log_dirichlet_draws(alpha, rng)
        parts = np.exp(log_g - log_g.max(axis=-1, keepdims=True))
        return self.amounts(parts / parts.sum(axis=-1, keepdims=True))

    def loss(self, y: Array, prediction: Array) -> Array:
        return self._divergence(y, prediction)


def _square_trigamma(x: Array) -> Array:
    """``x^2 psi1(x)``."""
    low = np.minimum(x, 1.0)
    high = np.maximum(x, 1.0)
    return np.where(x < 1.0, 1.0 + low**2 * trigamma(1.0 + low), high**2 * trigamma(high))


def _cube_tetragamma(x: Array) -> Array:
    """``x^3 psi2(x)``."""
    low = np.minimum(x, 1.0)
    high = np.maximum(x, 1.0)
    return np.where(x < 1.0, -2.0 + low**3 * tetragamma(1.0 + low), high**3 * tetragamma(high))
