"""Averages over several distributions of the same rows, whose weights may differ from row to row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

__all__ = ["by_rows", "log_average", "mixed_moments", "of_one_latent", "picked"]

Array = NDArray[np.float64]


def by_rows(weight: Array, values: Array) -> Array:
    """Values (m, ...) times the weight of their row, (m,) or one for all.

    >>> by_rows(np.array([1.0, 2.0]), np.ones((2, 3))).sum(axis=1)
    array([3., 6.])
    """
    return np.reshape(weight, (-1, *[1] * (values.ndim - 1))) * values


def log_average(weighted: Sequence[tuple[Array, Array]]) -> Array:
    """Log of the average of densities, from pairs of weights (m,), which may be zero, and log densities (..., m).

    >>> np.exp(log_average([(np.array([0.5]), np.log([0.2])), (np.array([0.5]), np.log([0.4]))])).round(3)
    array([0.3])
    """
    with np.errstate(divide="ignore"):
        return np.asarray(logsumexp([np.log(weight) + found for weight, found in weighted], axis=0))


def of_one_latent(weights: Sequence[Array] | Array, sizes: Sequence[int]) -> tuple[list[int], Array]:
    """Numbers of the parts, of weights (K,) or (K, m), whose latents are as long as the first's, and their weights.

    Others are of another family, and their latents have nothing to do with these.

    >>> of_one_latent([0.5, 0.2, 0.3], [1, 3, 1])
    ([0, 2], array([0.625, 0.375]))
    """
    alike = [k for k, size in enumerate(sizes) if size == sizes[0]]
    shares = np.asarray(weights, dtype=np.float64)
    return alike, shares if len(alike) == len(sizes) else shares[alike] / shares[alike].sum(axis=0)


def mixed_moments(weights: Array, means: Sequence[Array], covs: Sequence[Array]) -> tuple[Array, Array]:
    """Mean (m, D) and covariance (m, D, D) of mixtures of Gaussians, of weights (K,) or (K, m).

    Of those that have as many latents as the first.

    >>> mean, cov = mixed_moments([0.5, 0.5], [np.zeros((1, 1)), np.full((1, 1), 2.0)], [np.ones((1, 1, 1))] * 2)
    >>> mean[0, 0], cov[0, 0, 0]
    (np.float64(1.0), np.float64(2.0))
    """
    alike, weights = of_one_latent(weights, [m.shape[1] for m in means])
    means, covs = [means[k] for k in alike], [covs[k] for k in alike]
    mean = np.sum([by_rows(w, m) for w, m in zip(weights, means)], axis=0)
    apart = [m - mean for m in means]
    squares = [by_rows(w, c + d[:, :, None] * d[:, None, :]) for w, c, d in zip(weights, covs, apart)]
    return mean, np.sum(squares, axis=0)


def picked(weights: Array, uniform: Array) -> NDArray[np.intp]:
    """Numbers of the parts, of weights (K, m), that uniform numbers (..., m) stand for.

    >>> picked(np.array([[0.5, 1.0], [0.5, 0.0]]), np.array([[0.4, 0.4], [0.6, 0.999]]))
    array([[0, 0],
           [1, 0]])
    """
    upto = np.cumsum(weights, axis=0)
    upto /= upto[-1]
    return np.sum(uniform[None] >= upto[:-1].reshape(len(upto) - 1, *[1] * (uniform.ndim - 1), upto.shape[1]), axis=0)
