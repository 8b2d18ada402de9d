"""Multinomial: counts of d categories."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import gammaln

from ggpm.families.base import Array, Family
from ggpm.families.curvature import Marginals, RankOne
from ggpm.families.special import largest, log_softmax, softmax, sum_of_others
from ggpm.families.special.class_probabilities import class_probabilities
from ggpm.families.special.logsumexp import Smoothed, expected_logsumexp
from ggpm.families.special.rising import log_factorial_remainder
from ggpm.families.special.stable import excess_log, moderate
from ggpm.families.support import CountVectors, Support

NARROW = 0.5  # variance of latents up to which averages over three or four of them have eight digits


class Multinomial(Family):
    """Counts of d categories out of N trials; N may differ from row to row.

    ========  ============================================================================
    support   (n, d) non-negative integers with positive row totals N
    T, b, h   y/N, log sum_j exp(theta_j), N!/prod_j y_j!
    a         1/N
    link      theta = eta (canonical); pi = softmax(eta), D = d (paper sec. 4.1)
    U         N (diag(pi) - pi pi^T): gamma = N pi, omega = pi, rho = N; singular
    ========  ============================================================================

    The prediction is the vector of proportions pi, or expected counts where the trials are given. Only
    differences between latent values matter: U has the null vector (1, ..., 1).

    Examples
    --------
    >>> import numpy as np
    >>> Multinomial().u(np.zeros((1, 2)), np.array([[3.0, 1.0]]))
    array([[ 1., -1.]])
    """

    latent_dim = 0
    countable = True
    shift_invariant = True
    mean_alone = True

    @property
    def support(self) -> Support:
        return CountVectors(columns=self.latent_dim or None)

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        out = super().resolve(y, weight)
        out.latent_dim = np.shape(y)[1]
        return out

    @staticmethod
    def _log_h(y: Array) -> Array:
        """log N!/prod_j y_j!."""
        return gammaln(y.sum(axis=-1) + 1.0) - gammaln(y + 1.0).sum(axis=-1)

    def log_prob(self, eta: Array, y: Array) -> Array:
        # Loader 2000: factorials by Stirling; what is left is N KL(y/N || pi), and no large numbers cancel
        N, log_pi = y.sum(axis=-1), log_softmax(eta)
        if moderate(N).all():
            return self._log_h(y) + np.einsum("...j,...j->...", log_pi, y)
        parts = np.where(y > 0, y, 1.0)
        remainders = np.where(y > 0, log_factorial_remainder(parts), 0.0).sum(axis=-1)
        fit = excess_log(y / N[..., None], np.exp(log_pi), log_b=log_pi).sum(axis=-1)
        return log_factorial_remainder(N) - remainders - N * fit

    def natural(self, eta: Array) -> tuple[Array, Array]:
        """theta = log pi, for which b is zero."""
        return log_softmax(eta), np.zeros(eta.shape[:-1])

    def statistic(self, y: Array) -> tuple[Array, Array]:
        """The counts, and the logarithm of the multinomial coefficient."""
        return y, gammaln(y.sum(axis=-1) + 1.0) - gammaln(y + 1.0).sum(axis=-1)

    def scale_terms(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """y eta and exp(eta): counts are those of Poisson variables with a common factor exp(tau), given their sum."""
        return y * eta, np.exp(eta)

    def scale_slopes(self, eta: Array, y: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        B = np.exp(eta)
        return (y, np.zeros_like(B)), (B, B)

    def scale_weight(self, tau: Array, y: Array) -> tuple[Array, Array]:
        return -np.exp(tau), y * tau

    def scale_factor(self, eta: Array, tau: Array, y: Array) -> Array:
        u = eta + tau
        return y * u - np.exp(u)

    def scale_pinned(self, tau: Array, y: Array) -> tuple[Array, Array]:
        return np.full(tau.shape, np.nan), np.zeros(tau.shape)

    def scale_mode(self, S: Array, y: Array) -> tuple[Array, Array, Array]:
        N = y.sum(axis=0)
        return np.log(N / S), N, -N / S

    def scale_constant(self, y: Array) -> Array:
        return self._log_h(y.T) - gammaln(y.sum(axis=0))

    def u(self, eta: Array, y: Array) -> Array:
        pi, N = softmax(eta), y.sum(axis=-1, keepdims=True)
        # next to pi = 1, where y - N pi has no digits, (y - N) + N (1 - pi)
        return np.where(pi > 0.5, (y - N) + N * sum_of_others(pi), y - N * pi)

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        # one pass of exponentials; digits next to pi = 1 that `u` keeps are lost, which no expectation notices
        N = y.sum(axis=-1)
        pi = eta - largest(eta)[..., None]
        fit = np.einsum("...j,...j->...", pi, y)
        np.exp(pi, out=pi)
        total = pi @ np.ones(pi.shape[-1])
        pi *= (-N / total)[..., None]
        pi += y
        return self._log_h(y) + fit - N * np.log(total), pi

    def U(self, eta: Array, y: Array, expected: bool = False) -> RankOne:
        log_pi, N = log_softmax(eta), y.sum(axis=-1)
        rho = np.broadcast_to(N, np.broadcast_shapes(N.shape, eta.shape[:-1]))
        pi = np.broadcast_to(np.exp(log_pi), (*rho.shape, eta.shape[-1]))
        nu = np.broadcast_to(np.exp(0.5 * log_pi), pi.shape)
        return RankOne(N[..., None] * pi, pi, rho, nu=nu, gap=np.zeros(rho.shape))

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        pi, N = softmax(eta), y.sum(axis=-1, keepdims=True)
        a = V.diag - 2.0 * V.dot(pi)
        # d/deta = N pi (a - pi^T a); relative to the entry of the largest pi, so that 1 - pi never appears
        a = a - np.take_along_axis(a, np.expand_dims(pi.argmax(axis=-1), -1), axis=-1)
        return N * pi * (a - np.sum(pi * a, axis=-1, keepdims=True)), np.zeros(0)

    def expected_log_prob_factorised(self, mean: Array, var: Array, y: Array, second: bool = False) -> Smoothed:
        """E[log p] for independent latents N(mean, var), with its derivatives in both; all second ones on demand."""
        N, E = y.sum(axis=-1), expected_logsumexp(mean, var, second)
        value = self._log_h(y) + np.einsum("nj,nj->n", y, mean) - N * E.value
        N1, N2 = N[:, None], N[:, None, None]
        mixed, var_var = (None, None) if E.d_mean_var is None else (-N2 * E.d_mean_var, -N2 * E.d_var_var)
        return Smoothed(value, y - N1 * E.d_mean, -N1 * E.d_var, -N2 * E.d_mean_mean, mixed, var_var)

    def expansion(self, y: Array) -> Array:
        return np.zeros_like(y)  # paper sec. 4.1: class information ignored

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, None] | None:
        """Class probabilities; nan in rows in which averages over nodes of few, narrow latents are as good."""
        if mean.shape[1] < 3:
            return None
        out = np.full(mean.shape, np.nan)
        rows = np.flatnonzero((np.einsum("njj->nj", cov).max(axis=1) > NARROW) | (mean.shape[1] > 4))
        if rows.size:
            out[rows] = class_probabilities(mean[rows], cov[rows])[0]
        return out, None

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        pi = softmax(eta)
        return pi if trials is None else np.asarray(trials)[..., None] * pi

    def constant(self, y: Array, weight: Array | None = None) -> Array:
        total = y.sum(axis=0) if weight is None else weight @ y
        return total[None] / total.sum()

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        pi = softmax(eta)
        cov = -pi[..., :, None] * pi[..., None, :]
        np.einsum("...jj->...j", cov)[...] = pi * sum_of_others(pi)
        return cov if trials is None else np.asarray(trials)[..., None, None] * cov

    def share_spread(self, eta: Array, trials: Array | None = None) -> Array:
        return np.broadcast_to(1.0 if trials is None else np.asarray(trials), eta.shape[:-1])

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        pi = softmax(eta)
        N = np.ones(eta.shape[:-1]) if trials is None else np.broadcast_to(trials, eta.shape[:-1])
        return rng.multinomial(N.astype(np.int64), pi / pi.sum(axis=-1, keepdims=True)).astype(float)

    def loss(self, y: Array, prediction: Array) -> Array:
        N = y.sum(axis=-1, keepdims=True)
        p = prediction / prediction.sum(axis=-1, keepdims=True)  # proportions, also from expected counts
        return 2.0 * N[..., 0] * excess_log(y / N, p).sum(axis=-1)  # unit deviance
