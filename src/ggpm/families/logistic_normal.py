"""Logistic normal: compositions by log-ratios, with correlated noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ggpm.data.rows import batches
from ggpm.families.base import Array, Bounds, Family
from ggpm.families.composition import Composition, Zeros
from ggpm.families.multivariate_gaussian import MultivariateGaussian
from ggpm.families.normal_draws import TransformedDraws
from ggpm.families.special import log_softmax
from ggpm.families.special.share_mixtures import ShareMixtures, share_mixtures
from ggpm.families.special.softmax_moments import common_nodes, softmax_moments
from ggpm.families.support import Simplex

LEAST_LOG = -600.0  # sums of exponentials below this lose digits to underflow


@cache
def contrasts(d: int) -> Array:
    """Orthonormal columns that sum to zero (Helmert), (d, d - 1): the basis of the isometric log-ratios.

    >>> contrasts(2).round(4)
    array([[ 0.7071],
           [-0.7071]])
    """
    V = np.triu(np.ones((d, d - 1)))
    i = np.arange(1.0, d)
    V[np.arange(1, d), np.arange(d - 1)] = -i
    V /= np.sqrt(i * (i + 1.0))
    V.flags.writeable = False
    return V


def shares_of(z: Array) -> Array:
    """Compositions of isometric log-ratios, (..., d - 1) -> (..., d).

    >>> shares_of(np.zeros((1, 1)))
    array([[0.5, 0.5]])
    """
    return np.exp(log_softmax(z @ contrasts(z.shape[-1] + 1).T))


@dataclass(frozen=True)
class LogRatios(Simplex):
    """Compositions whose encoded form are their isometric log-ratios."""

    low = -np.inf
    high = np.inf

    def embed(self, y: Array) -> Array:
        return shares_of(y)

    def distance(self, a: Array, b: Array) -> Array:
        return super().distance(shares_of(a), shares_of(b))


class LogisticNormal(Composition, MultivariateGaussian):
    """Compositions whose isometric log-ratios are Gaussian, with noise of covariance phi.

    With z = V^T log y, V the d×(d - 1) matrix of Helmert's orthonormal contrasts (Egozcue et al. 2003):

    ========  ===========================================================================================
    support   (n, d) positive, rows sum to 1
    T, b      z, theta^T phi theta/2
    h         N(z | 0, phi)/(sqrt(d) prod_j y_j)
    a         1
    link      theta = phi^-1 eta, D = d - 1
    U         phi^-1 in every row: one factorisation per eigenvalue under a shared kernel
    ========  ===========================================================================================

    In z everything is a Gaussian process with correlated noise, so that evidence, posterior and predictive density are
    exact, and fits are as fast as those of `MultivariateGaussian`. Beside the Dirichlet it has a noise whose size and
    correlations are learned and the same everywhere; the Dirichlet's spread is tied to its mean, d latents
    instead of d - 1 let it vary with the inputs, and it bears parts next to zero better. With a kernel that all latents
    share the model does not depend on the order of the parts.

    `predict` gives the mean composition, with latent and noise integrated out by quadrature; intervals of parts are
    quantiles of their own laws, whose logits are mixtures of normal variables.

    Parameters
    ----------
    phi : array (d - 1, d - 1), optional
        Covariance of the noise in z. None: start at half the covariance of the data.
    phi_bounds : (low, high) or "fixed"
        As in `MultivariateGaussian`.
    zeros, zeros_epsilon, closure
        As in `Dirichlet`: replacement of zeros, which predictions undo, and amounts or percentages.

    Examples
    --------
    >>> import numpy as np
    >>> family = LogisticNormal(phi=[[1e-6]]).resolve([[0.2, 0.8], [0.7, 0.3]])
    >>> family.moment(family.encode([[0.25, 0.75]])).round(4)
    array([[0.25, 0.75]])
    """

    # what is normal are the log-ratios, not the parts, whose marginal distribution functions have no closed form
    predictive_normal = Family.predictive_normal  # type: ignore[assignment]
    cdf = Family.cdf  # type: ignore[assignment]

    def __init__(
        self,
        phi: ArrayLike | None = None,
        phi_bounds: Bounds = (1e-5, 1e5),
        zeros: Zeros = "error",
        zeros_epsilon: float = 1e-3,
        closure: bool = False,
    ):
        super().__init__(phi, phi_bounds)
        self.zeros = zeros
        self.zeros_epsilon = zeros_epsilon
        self.closure = closure

    @property
    def support(self) -> LogRatios:  # type: ignore[override]
        return LogRatios(columns=self._parts, total=self._total, family=type(self).__name__)

    def encode(self, y: Any) -> Array:
        shares = self.shares(y)
        return np.log(shares) @ contrasts(shares.shape[-1])

    def decode(self, y: Array) -> Array:
        return self.amounts(shares_of(y))

    # ---- density -------------------------------------------------------------------------------------------
    def _log_volume(self, y: Array) -> Array:
        """Logarithm of the volume of z per volume of d - 1 parts in the user's unit."""
        d = y.shape[-1] + 1
        log_shares = log_softmax(y @ contrasts(d).T)
        return -log_shares.sum(axis=-1) - 0.5 * math.log(d) - (d - 1) * math.log(self.unit)

    def log_prob(self, eta: Array, y: Array) -> Array:
        return super().log_prob(eta, y) + self._log_volume(y)

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array:
        return super().predictive_log_prob(mean, cov, y) + self._log_volume(y)

    def own_draws(self, mean: Array, cov: Array, n: int) -> TransformedDraws:
        top = super().predictive_log_prob(mean, cov, mean)
        root = np.asarray(np.linalg.cholesky(cov + self._noise(mean.shape[1])), dtype=np.float64)
        return TransformedDraws(top, mean, root, self._log_volume, math.ceil(math.log2(n)))

    # ---- in the space of y ---------------------------------------------------------------------------------
    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Mean and covariance of the shares for a latent N(mean, cov): latent and noise are one normal vector."""
        V = contrasts(mean.shape[-1] + 1)
        return softmax_moments(mean @ V.T, V @ (cov + self._noise(mean.shape[-1])) @ V.T)

    def part_mixtures(self, mean: Array, cov: Array) -> Iterator[ShareMixtures]:
        """Laws of the logits of all parts."""
        D = mean.shape[-1]
        return share_mixtures(mean, cov + self._noise(D), contrasts(D + 1))

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        """Mean composition given the latent, by the nodes of the noise, which is that of all rows.

        With a = exp(V eta) and b = exp(V n) at a node n, the shares are a_j b_j / sum_k a_k b_k: products of matrices,
        and no exponential for every pair of row and node.
        """
        flat = eta.reshape(-1, eta.shape[-1])
        V = contrasts(flat.shape[-1] + 1)
        nodes = common_nodes(V @ self._noise(flat.shape[-1]) @ V.T)
        if nodes is None:
            return self._both_given(flat)[0].reshape(*eta.shape[:-1], -1)
        log_a, (log_b, weights) = flat @ V.T, nodes
        log_a -= log_a.max(axis=1, keepdims=True)
        log_b -= log_b.max(axis=1, keepdims=True)
        far = np.min(log_a, axis=1, initial=0.0) + log_b.min() < LEAST_LOG
        out, a, b = np.empty_like(log_a), np.exp(log_a), np.exp(log_b)
        for rows in batches(len(a), 2 * len(b)):
            with np.errstate(divide="ignore", invalid="ignore"):  # of far rows, which are done below
                out[rows] = a[rows] * ((weights / (a[rows] @ b.T)) @ b)
        if far.any():
            out[far] = self._both_given(flat[far])[0]
        return out.reshape(*eta.shape[:-1], -1)

    def _both_given(self, eta: Array) -> tuple[Array, Array]:
        """Mean and covariance of the shares given latents (m, D)."""
        return self.predictive_moments(eta, np.zeros((*eta.shape, eta.shape[-1])))

    def constant(self, y: Array, weight: Array | None = None) -> Array:
        return Family.constant(self, y, weight)

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        out = self._both_given(eta.reshape(-1, eta.shape[-1]))[1]
        return out.reshape(*eta.shape[:-1], *out.shape[1:])

    def loss(self, y: Array, prediction: Array) -> Array:
        return self._divergence(shares_of(y), prediction)
