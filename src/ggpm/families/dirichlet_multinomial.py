"""Dirichlet-multinomial: counts of d categories that vary more than the multinomial's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.families.base import Array, Bounds, Family
from ggpm.families.curvature import Blocks, Marginals
from ggpm.families.multinomial import Multinomial
from ggpm.families.special import log_softmax, sum_of_others
from ggpm.families.special.rising import expected_second, log_polya, log_polya_and_slopes, log_rising

_TINY = 1e-290  # alpha below it is set to it: the share is about to underflow to zero


class DirichletMultinomial(Multinomial):
    """Counts of d categories out of N trials whose shares vary from row to row: a Dirichlet with precision phi.

    The covariance of the counts is the multinomial's times (N + phi)/(1 + phi); phi -> infinity is the multinomial.

    ========  ======================================================================================
    support   (n, d) non-negative integers with positive row totals N
    log p     log N!/prod y_j! + sum_j L(y_j, alpha_j) - L(N, phi), L(y, a) = log Gamma(a + y)/Gamma(a)
    link      alpha = phi softmax(eta), D = d; not an exponential family
    U         diag(C pi - w) + w pi^T + pi w^T - (C + 1^T w) pi pi^T with c, w the first and second
              derivative of L in log alpha and C = 1^T c; singular, and not always positive semidefinite
    ========  ======================================================================================

    The prediction is the vector of proportions pi, or expected counts where the trials are given. The expected
    curvature is a sum over 0 .. N for every count.

    Parameters
    ----------
    phi : float
        Precision: larger means less variation from row to row.
    phi_bounds : (low, high) or "fixed"

    Examples
    --------
    >>> import numpy as np
    >>> DirichletMultinomial(phi=2.0).u(np.zeros((1, 2)), np.array([[3.0, 1.0]])).round(4)
    array([[ 0.4167, -0.4167]])
    """

    # the multinomial's are of another density
    expected_log_prob_factorised = Family.expected_log_prob_factorised  # type: ignore[assignment]
    scale_terms = Family.scale_terms  # type: ignore[assignment]

    _phi_ndims = (0,)

    natural, statistic = Family.natural, Family.statistic  # those of the multinomial are another density's

    def __init__(self, phi: float = 10.0, phi_bounds: Bounds = (1e-3, 1e6)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    def _terms(self, eta: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        """pi, and the three derivatives of L in log alpha."""
        pi = np.exp(log_softmax(np.broadcast_to(eta, np.broadcast_shapes(eta.shape, y.shape))))
        return pi, *log_rising(np.maximum(self.phi * pi, _TINY), y)

    def _whole(self, y: Array) -> tuple[Array, Array, Array]:
        """The derivatives of L(N, phi) in log phi."""
        return log_rising(np.asarray(self.phi, dtype=float), y.sum(axis=-1))

    def log_prob(self, eta: Array, y: Array) -> Array:
        return log_polya(y, log_softmax(eta), np.asarray(self.phi, dtype=float))

    def u(self, eta: Array, y: Array) -> Array:
        pi, c, _, _ = self._terms(eta, y)
        return c - pi * c.sum(axis=-1, keepdims=True)

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        log_pi = log_softmax(eta)
        value, c = log_polya_and_slopes(y, log_pi, float(self.phi))
        return value, c - np.exp(log_pi) * c.sum(axis=-1, keepdims=True)

    def _expected_w(self, eta: Array, y: Array, slopes: bool = True) -> tuple[Array, Any, Any]:
        log_pi, N = log_softmax(eta), y.sum(axis=-1, keepdims=True)
        return expected_second(log_pi, np.log(sum_of_others(np.exp(log_pi))), self.phi, N, slopes)

    def U(self, eta: Array, y: Array, expected: bool = False) -> Blocks:  # type: ignore[override]
        pi, c, w, _ = self._terms(eta, y)
        C = c.sum(axis=-1, keepdims=True)
        if expected:
            w, C = self._expected_w(eta, y, slopes=False)[0], self._whole(y)[0][..., None]
        both = w[..., :, None] * pi[..., None, :]
        total = (C + w.sum(axis=-1, keepdims=True))[..., None]
        out = both + both.swapaxes(-1, -2) - total * pi[..., :, None] * pi[..., None, :]
        np.einsum("...jj->...j", out)[...] += C * pi - w
        return Blocks(out)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        pi, c, w, t = self._terms(eta, y)
        C = c.sum(axis=-1, keepdims=True)
        if expected:
            w, w_alpha, w_phi = self._expected_w(eta, y)
            whole, whole_slope, _ = self._whole(y)
            C = whole[..., None]
        V_pi, V_w = V.dot(pi), V.dot(w)
        quad = np.sum(pi * V_pi, axis=-1, keepdims=True)
        # cotangents of w, C and pi in <V, U>
        w_bar = 2.0 * V_pi - V.diag - quad
        C_bar = np.sum(V.diag * pi, axis=-1, keepdims=True) - quad
        pi_bar = V.diag * C + 2.0 * V_w - 2.0 * (C + w.sum(axis=-1, keepdims=True)) * V_pi
        if expected:
            log_alpha_bar = w_bar * w_alpha
            log_phi_bar = np.sum(w_bar * w_phi) + np.sum(C_bar[..., 0] * whole_slope)
        else:
            log_alpha_bar = C_bar * w + w_bar * t
            log_phi_bar = np.sum(log_alpha_bar)
        inner = log_alpha_bar + pi * pi_bar
        return inner - pi * inner.sum(axis=-1, keepdims=True), np.array([log_phi_bar])

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        _, c, _, _ = self._terms(eta, y)
        return (c.sum(axis=-1) - self._whole(y)[0])[..., None]

    def u_phi(self, eta: Array, y: Array) -> Array:
        pi, _, w, _ = self._terms(eta, y)
        return (w - pi * w.sum(axis=-1, keepdims=True))[..., None]

    # ---- in the space of y -------------------------------------------------------------------------------
    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        cov = super().spread(eta, trials)
        return cov if trials is None else cov * ((trials + self.phi) / (1.0 + self.phi))[..., None, None]

    def share_spread(self, eta: Array, trials: Array | None = None) -> Array:
        own = super().share_spread(eta, trials)
        return own if trials is None else own * ((trials + self.phi) / (1.0 + self.phi))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return super().sample(
            log_dirichlet_draws(np.maximum(self.phi * np.exp(log_softmax(eta)), _TINY), rng), rng, trials
        )


def log_dirichlet_draws(alpha: Array, rng: np.random.Generator) -> Array:
    """Logarithms of Dirichlet draws up to a constant in each row: they do not underflow for small alpha."""
    # log of a gamma variate: G(alpha) = G(alpha + 1) U^(1/alpha)
    return np.log(rng.standard_gamma(alpha + 1.0)) - rng.standard_exponential(alpha.shape) / alpha
