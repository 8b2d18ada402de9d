"""Dirichlet: compositions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln

from ggpm.families.base import Array
from ggpm.families.composition import Composition, Zeros
from ggpm.families.curvature import NU2_MAX, Marginals, RankOne
from ggpm.families.dirichlet_multinomial import log_dirichlet_draws
from ggpm.families.links import LINKS, Link
from ggpm.families.special import (
    LogGamma1p,
    SoftplusTerms,
    digamma_increment,
    information_gap,
    largest,
    softmax,
    sum_of_others,
)
from ggpm.families.special.log_gamma import log_gamma, log_gamma_factors
from ggpm.families.special.share_moments import composition_moments
from ggpm.families.special.stable import HALF_LOG_2PI, excess_log, log_minus_digamma, stirling_error
from ggpm.families.special.weighted_lattice import MOST_DIMENSIONS
from ggpm.families.special.wide_parts import WidePart, log_logit_density

_TINY = 1e-290  # alpha below it is set to it: exp(eta) is about to underflow to zero, where no density exists
_HUGE = 1e300  # and above it: exp(eta) is about to overflow
# The density around y = alpha/S is narrower than the rounding of y from about here on: S eps^2 is of order one.
_LARGEST = 1e30
_LARGE_SHAPE = 1e4  # alpha above which terms of gamma densities that nearly cancel are combined
_PINNED = math.log(1e12)
_LARGE_SUM = 1e8  # sums of alpha above which differences of log-gamma functions lose digits of densities of parts
# Rows with no part below the first times their sum, and a sum below the second, have direct formulas. They are off by
# rounding of numbers of the size of log Gamma(64) there; beyond, terms that nearly cancel are combined by hand.
_ORDINARY = 1e-5, 64.0
_MOMENTS = 3e-8  # error of means and covariances of predictive distributions
# Standard deviation of a latent with link "exp" from which on parts have laws of their own, for up to three parts and
# for more: nodes take about as long there, and are off by 1e-4 of probability and 1e-3 of the spread.
_WIDE = 1.2, 1.0
_SMALL_GAP = 0.01  # a difference from one that is larger has lost two digits at most


class _Terms(NamedTuple):
    """Terms that log p and its derivatives share."""

    alpha: Array
    J: Array  # derivative of alpha in eta
    softplus: SoftplusTerms | None  # of eta; None with link "exp"
    S: Array  # sum of all parts
    parts: LogGamma1p  # of alpha
    total: LogGamma1p  # of S
    ordinary: NDArray[np.bool_]  # rows in which direct formulas keep their digits

    def bends(self) -> tuple[Array, Array, Array]:
        """Second derivative of alpha in eta; first and second one of log alpha."""
        if self.softplus is None:
            return self.J, np.ones_like(self.J), np.zeros_like(self.J)
        g1 = self.softplus.log_slope
        return self.J * self.softplus.complement, g1, self.softplus.log_bend(g1)

    def careful_rows(self, y: Array) -> tuple[NDArray[np.bool_], Array, Array]:
        """The other rows, as a mask of all that alpha and y make together, and their alpha and y, (m, d) each."""
        shape = np.broadcast_shapes(self.alpha.shape, y.shape)
        rows = np.broadcast_to(~self.ordinary, shape[:-1])
        return rows, np.broadcast_to(self.alpha, shape)[rows], np.broadcast_to(y, shape)[rows]


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
    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        _ = self._link
        out = super().resolve(y, weight)
        out.latent_dim = out._parts or 0
        return out

    def encode(self, y: Any) -> Array:
        return self.shares(y)

    def decode(self, y: Array) -> Array:
        return self.amounts(y, whole=False)  # quantiles are of each part alone

    # ---- density -----------------------------------------------------------------------------------------
    def _alpha(self, eta: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.clip(self._link(eta), _TINY, _HUGE)

    def _terms(self, eta: Array) -> _Terms:
        softplus = SoftplusTerms(eta) if self.link == "softplus" else None
        alpha, J = self._link.with_slope(eta) if softplus is None else (softplus.value, softplus.slope)
        alpha = np.maximum(alpha, _TINY)
        least = alpha[..., 0]
        for j in range(1, alpha.shape[-1]):
            least = np.minimum(least, alpha[..., j])
        S = alpha @ np.ones(alpha.shape[-1])
        ordinary = (_ORDINARY[1] > S) & (least > _ORDINARY[0] * S)
        return _Terms(alpha, J, softplus, S, LogGamma1p(alpha), LogGamma1p(S), ordinary)

    # All derivatives are written with polygammas at 1 + alpha: the poles at alpha = 0 combine with derivatives of
    # alpha to those of log alpha, g1, g2 and g3, which are elementary.
    def _score(self, t: _Terms, log_y: Array, y: Array) -> tuple[Array, Array]:
        """``B = log y - psi0(alpha) + psi0(S)``, and B - 1/alpha, which has no pole."""
        split = (t.total.digamma - 1.0 / t.S)[..., None] - t.parts.digamma + log_y
        full = split + 1.0 / t.alpha
        if not t.ordinary.all():
            rows, alpha, y = t.careful_rows(y)
            full[rows] = careful = _careful_score(alpha, y)
            split[rows] = np.where(alpha < 1.0, split[rows], careful - 1.0 / alpha)
        return full, split

    def _log_prob(self, t: _Terms, log_y: Array, y: Array) -> Array:
        d = t.alpha.shape[-1]
        ones = np.ones(d)
        value = t.total.value - np.log(t.S) + (np.log(t.alpha) - t.parts.value) @ ones
        # per unit of the user's: a density over d - 1 parts
        value = value + np.einsum("...j,...j->...", t.alpha, log_y) - (log_y @ ones + (d - 1) * math.log(self.unit))
        return self._with_careful_rows(value, t.ordinary, t.alpha, y)

    def _with_careful_rows(self, value: Array, ordinary: NDArray[np.bool_], alpha: Array, y: Array) -> Array:
        if not ordinary.all():
            rows = ~np.broadcast_to(ordinary, value.shape)
            shape = (*value.shape, alpha.shape[-1])
            alpha, y = np.broadcast_to(alpha, shape)[rows], np.broadcast_to(y, shape)[rows]
            value[rows] = self._careful_log_prob(alpha, y)
        return value

    def _careful_log_prob(self, alpha: Array, y: Array) -> Array:
        # all gamma functions by Stirling: what is left is S KL(alpha/S || y), and no large numbers cancel
        S = alpha.sum(axis=-1, keepdims=True)
        d = alpha.shape[-1]
        log_y = np.log(y)
        fit = S[..., 0] * excess_log(alpha / S, y, log_b=log_y).sum(axis=-1)
        S = S[..., 0]
        parts = 0.5 * np.log(alpha) - stirling_error(alpha)
        head = stirling_error(S) - 0.5 * np.log(S) - (d - 1) * math.log(math.sqrt(2.0 * math.pi) * self.unit)
        value = head + parts.sum(axis=-1) - fit - log_y.sum(axis=-1)
        return np.where(S > _LARGEST, -np.inf, value)

    def log_prob(self, eta: Array, y: Array) -> Array:
        # what derivatives would need costs as much again
        alpha, log_y, d = self._alpha(eta), np.log(y), eta.shape[-1]
        S, value = alpha @ np.ones(d), np.einsum("...j,...j->...", alpha, log_y)
        value -= log_y @ np.ones(d) + (d - 1) * math.log(self.unit)
        # log Gamma(S) - sum_j log Gamma(alpha_j), part by part on long arrays, with one logarithm for a few parts
        top = np.minimum(S, _ORDINARY[1])  # larger ones are done with care below
        products, L = log_gamma_factors(top)
        value += L
        products, least = 1.0 / products, top
        for j in range(d):
            part = np.minimum(np.ascontiguousarray(alpha[..., j]), top)
            P, L = log_gamma_factors(part)
            value -= L
            products *= P
            least = np.minimum(least, part)
            if j % 16 == 15:  # what may overflow after some more
                value += np.log(products)
                products = np.ones_like(products)
        value += np.log(products)
        return self._with_careful_rows(value, (_ORDINARY[1] > S) & (least > _ORDINARY[0] * S), alpha, y)

    def scale_terms(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """(alpha - 1) log y - log Gamma(alpha) and alpha: parts are gamma variables divided by their sum exp(tau)."""
        alpha = self._alpha(eta)
        return (alpha - 1.0) * np.log(y) - log_gamma(alpha), alpha

    def scale_slopes(self, eta: Array, y: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        alpha, (J, J2, _) = self._alpha(eta), self._link.derivatives(eta)
        gamma = LogGamma1p(alpha)
        score = np.log(y) - gamma.digamma + 1.0 / alpha
        return (J * score, J2 * score - J**2 * gamma.trigamma - (J / alpha) ** 2), (J, J2)

    def scale_weight(self, tau: Array, y: Array) -> tuple[Array, Array]:
        return tau, -np.exp(tau) * y

    def scale_factor(self, eta: Array, tau: Array, y: Array) -> Array:
        alpha, log_x = self._alpha(eta), tau + np.log(y)
        value = alpha * log_x - np.exp(log_x) - np.log(y) - log_gamma(np.minimum(alpha, _LARGEST))
        large = alpha > _LARGE_SHAPE
        if large.any():  # gamma densities by Stirling's formula
            a, log_x = alpha[large], np.broadcast_to(log_x, alpha.shape)[large]
            careful = 0.5 * np.log(a) - HALF_LOG_2PI - stirling_error(a) - excess_log(a, np.exp(log_x), log_b=log_x)
            value[large] = careful - np.broadcast_to(np.log(y), alpha.shape)[large]
        return value

    def scale_pinned(self, tau: Array, y: Array) -> tuple[Array, Array]:
        """With link "exp" latents of parts exp(tau) y beyond 1e12 are known to their logarithm, and 1e-6."""
        log_x = tau + np.log(y)
        far = (log_x > _PINNED) & (self.link == "exp")
        return np.where(far, log_x, np.nan), -np.log(y)

    def scale_mode(self, S: Array, y: Array) -> tuple[Array, Array, Array]:
        return np.log(S), S, np.ones_like(S)

    def scale_constant(self, y: Array) -> Array:
        return np.full(y.shape[1], -(len(y) - 1) * math.log(self.unit))

    def u(self, eta: Array, y: Array) -> Array:
        t = self._terms(eta)
        return t.J * self._score(t, np.log(y), y)[0]

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        t, log_y = self._terms(eta), np.log(y)
        return self._log_prob(t, log_y, y), t.J * self._score(t, log_y, y)[0]

    def U(self, eta: Array, y: Array, expected: bool = False) -> RankOne:
        return self._U(eta, y, expected)[1]

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, RankOne]:
        return self._U(eta, y, expected=False)

    def _U(self, eta: Array, y: Array, expected: bool) -> tuple[Array, RankOne]:
        eta = np.broadcast_to(eta, np.broadcast_shapes(eta.shape, y.shape))
        t = self._terms(eta)
        full, split = self._score(t, np.log(y), y)
        u = t.J * full
        J2, g1, g2 = t.bends()
        S2psi1 = t.S + t.total.excess
        omega = t.J / t.S[..., None]
        strength = S2psi1[..., None] * omega**2
        curved = t.J**2 * t.parts.trigamma
        information = curved + g1**2  # J^2 psi1(alpha)
        if expected:
            nu2 = strength / information
            return u, RankOne(
                information, omega, S2psi1, nu=np.sqrt(nu2), gap=_gap(nu2, lambda rows: information_gap(t.alpha[rows]))
            )
        gamma = curved - g2 - J2 * split
        if np.any(gamma <= strength / NU2_MAX):  # negative, or next to it: no square roots
            return u, RankOne(gamma, omega, S2psi1)
        nu2 = strength / gamma

        def careful(rows: NDArray[np.bool_]) -> Array:
            alpha, J, bend, own = t.alpha[rows], t.J[rows], J2[rows], gamma[rows]
            # from that of the expected curvature, where gamma = information - J2 B
            change = strength[rows] / information[rows] * (bend * full[rows] / own)
            gap = information_gap(alpha) - change.sum(axis=-1)
            small = _gap_small(alpha, J, bend, g2[rows], np.broadcast_to(y, eta.shape)[rows], own)
            return np.where(t.S[rows] < 1.0, small, gap)

        return u, RankOne(gamma, omega, S2psi1, nu=np.sqrt(nu2), gap=_gap(nu2, careful))

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        t = self._terms(eta)
        S, (J, J2, J3) = t.S[..., None], self._link.derivatives(eta)
        g1, g2, g3 = LINKS["identity" if self.link == "exp" else "log_softplus"].derivatives(eta)  # of log alpha
        # everything with S is scaled by its powers, so that small S does not overflow
        S2psi1, S3psi2 = (t.S + t.total.excess)[..., None], (t.S**3 * t.total.tetragamma - 2.0)[..., None]
        omega, bent = J / S, J2 / S
        V_omega = V.dot(omega)
        quad = np.sum(omega * V_omega, axis=-1, keepdims=True)
        psi1, psi2 = t.parts.trigamma, t.parts.tetragamma
        if expected:
            own = J * (2.0 * J2 * psi1 + J**2 * psi2) + 2.0 * g1 * g2
            shared = S3psi2 * quad
        else:
            own = J * (3.0 * J2 * psi1 + J**2 * psi2) - g3 - J3 * self._score(t, np.log(y), y)[1]
            shared = S3psi2 * quad + S2psi1 * np.sum(V.diag * bent, axis=-1, keepdims=True)
        return V.diag * own - omega * shared - 2.0 * S2psi1 * bent * V_omega, np.zeros(0)

    def expansion(self, y: Array) -> Array:
        return y.copy()  # paper sec. 4.3: the observation itself

    # ---- in the space of y -------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        if self.link == "exp":
            return softmax(eta)  # also where exp(eta) overflows
        alpha = self._alpha(eta)
        return alpha / (alpha @ np.ones(alpha.shape[-1]))[..., None]

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        alpha = self._alpha(eta)
        S = alpha.sum(axis=-1, keepdims=True)
        m = alpha / S
        cov = -m[..., :, None] * m[..., None, :]
        np.einsum("...jj->...j", cov)[...] = m * (sum_of_others(alpha) / S)
        return cov / (1.0 + S[..., None])

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array] | None:
        if mean.shape[1] < 3:  # averages over two latents cost less
            return None
        return composition_moments(self._alpha, mean, cov, _MOMENTS)

    def share_spread(self, eta: Array, trials: Array | None = None) -> Array:
        return 1.0 / (1.0 + self._alpha(eta) @ np.ones(eta.shape[-1]))

    def natural(self, eta: Array) -> tuple[Array, Array]:
        """theta = alpha and b = sum_j log Gamma(alpha_j) - log Gamma(S)."""
        alpha = self._alpha(eta)
        ones = np.ones(alpha.shape[-1])
        return alpha, gammaln(alpha) @ ones - gammaln(alpha @ ones)

    def statistic(self, y: Array) -> tuple[Array, Array]:
        """log y, and -sum_j log y_j per unit of the user's y."""
        log_y = np.log(y)
        return log_y, -(log_y @ np.ones(y.shape[-1])) - (y.shape[-1] - 1) * math.log(self.unit)

    def part_log_prob(self, eta: Array, z: Array) -> Array:
        """Log densities of the logits of the parts, which are beta variables, at every node."""
        alpha = self._alpha(eta)
        own, others = alpha.swapaxes(1, 2), sum_of_others(alpha).swapaxes(1, 2)  # (n, d, S)
        log_B = gammaln(own) + gammaln(others) - gammaln(alpha.sum(axis=-1))[:, None]
        # log y, log(1 - y), and a column for what does not depend on y
        less = np.log1p(np.exp(-np.abs(z)))  # a fifth of the time of SciPy's log_expit
        T = np.stack([np.minimum(z, 0.0) - less, np.minimum(-z, 0.0) - less, np.full_like(z, -1.0)], axis=-1)
        out = np.matmul(np.stack([own, others, log_B], axis=-1), T.transpose(0, 2, 3, 1))
        rows, nodes = np.nonzero(alpha.sum(axis=-1) > _LARGE_SUM)
        if rows.size:
            a, b = (np.log(np.minimum(v[rows, :, nodes], _LARGEST))[..., None] for v in (own, others))
            out[rows, :, nodes] = log_logit_density(a, b, z[rows].swapaxes(1, 2))
        return out

    def part_tails(self, eta: Array, low: Array, high: Array) -> Array:
        alpha = self._alpha(eta)
        others = sum_of_others(alpha)
        return np.stack([betainc(alpha, others, low), betainc(others, alpha, high)])

    def part_laws(self, mean: Array, cov: Array) -> list[list[WidePart] | None]:
        out: list[list[WidePart] | None] = [None] * len(mean)
        if self.link == "exp" and mean.shape[1] <= MOST_DIMENSIONS:
            wide = _WIDE[mean.shape[1] > 3]
            for row in np.flatnonzero(np.einsum("njj->nj", cov).max(axis=1) > wide**2):
                out[row] = [WidePart(mean[row], cov[row], j) for j in range(mean.shape[1])]
        return out

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y_j <= y_j | eta) for every part, (..., d)."""
        alpha = self._alpha(eta)
        return betainc(alpha, sum_of_others(alpha), y)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        alpha = self._alpha(eta)
        log_g = log_dirichlet_draws(alpha, rng)
        if self.link == "exp":  # beyond all floats a gamma variable is its mean, for all that shares tell
            log_g = np.where(alpha >= _HUGE, eta, log_g)
        # a part below the smallest float would be a zero, which has no density
        parts = np.exp(np.maximum(log_g - largest(log_g)[..., None], -700.0))
        return self.amounts(parts / (parts @ np.ones(parts.shape[-1]))[..., None])

    def loss(self, y: Array, prediction: Array) -> Array:
        return self._divergence(y, prediction)


def _careful_score(alpha: Array, y: Array) -> Array:
    """``log y - psi0(alpha) + psi0(S)`` for rows (m, d), also where a part dominates or all are large."""
    others, S = sum_of_others(alpha), alpha.sum(axis=-1, keepdims=True)
    # a part that dominates has y and alpha/S next to one: log(y S/alpha) would lose the digits of both
    top = others < alpha
    log_ratio = np.log(np.where(top, y, y * (S / alpha)))
    stirling = log_ratio + log_minus_digamma(alpha) - log_minus_digamma(S)
    stirling[top] = log_ratio[top] + digamma_increment(alpha[top], others[top])
    return stirling


def _gap(nu2: Array, careful: Callable[[NDArray[np.bool_]], Array]) -> Array:
    """``1 - sum_j nu_j^2``, by a formula that does not cancel in the rows where this difference is small."""
    gap = 1.0 - nu2 @ np.ones(nu2.shape[-1])
    small = gap < _SMALL_GAP
    if small.any():
        gap[small] = careful(small)
    return gap


def _gap_small(alpha: Array, J: Array, J2: Array, g2: Array, y: Array, gamma: Array) -> Array:
    """``sum_j (m_j - strength_j/gamma_j)``, m = alpha/S, for S < 1, where U tends to diag(m) - m m^T.

    That limit is singular. The poles of psi(alpha) and psi(S) at zero, which cancel in
    m gamma - strength, are taken out by hand.
    """
    S = np.minimum(alpha.sum(axis=-1, keepdims=True), 1.0)
    others, alpha = sum_of_others(alpha), np.minimum(alpha, 1.0)
    parts, total = LogGamma1p(alpha), LogGamma1p(S)
    smooth = np.log(y) - parts.digamma + total.digamma
    inner = J**2 * parts.trigamma - g2 * (others / S) - J2 * smooth
    inner = inner - J * (J / alpha) * S * total.trigamma
    return np.sum(alpha / S * (inner / gamma), axis=-1)
