"""Distribution functions of parts of softmax(f), f normal and wide: by one difference of latents after the other.

A part j is above a share with logit z where sum_k exp(g_k) < exp(-z), g_k = f_k - f_j for the other k. Given those
before it, g_k must leave something of that sum, of which the chance is a normal distribution function, and has a
truncated normal law then: the probability is an average of products of distribution functions, as those of orthants
are (Genz 1992). Of wide latents sums of exponentials are about the largest of these, and the products are smooth where
the law of a part's logit, given the rest, is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ggpm.families.special.logsumexp import normal_distribution
from ggpm.families.special.quadrature import sobol

Array = NDArray[np.float64]

# Logarithm (base 2) of numbers of points, and one more from eight parts on.
POINTS = 16
LEAST, NEXT_TO_ONE = 1e-300, 1.0 - 1e-16  # probabilities whose normal quantiles are finite
SHORTEST = 1e-15  # of what is left of the sum, on the scale of logarithms


@dataclass(frozen=True)
class ShareTails:
    """Distribution functions of the logits of the parts of softmax(f), f ~ N(mean, root root^T), (d,) and (d, D).

    Examples
    --------
    >>> tails = ShareTails(np.array([1.0, 0.0]), 2.0 * np.eye(2))
    >>> float(tails.below(0, 1.0).round(6))
    0.5
    """

    mean: Array
    root: Array

    def below(self, part: int, z: float) -> float:
        """P(logit of the part <= z)."""
        m = np.delete(self.mean, part) - self.mean[part]
        A = np.delete(self.root, part, axis=0) - self.root[part]
        order, L = _ordered(m, A @ A.T, -z)
        m, n = m[order], len(m)
        u = _uniform(n - 1, POINTS + (n > 6)) if n > 1 else np.zeros((0, 1))
        x, left, product = np.zeros((n, u.shape[1])), np.full(u.shape[1], -z), np.ones(u.shape[1])
        for k in range(n):
            at = m[k] + L[k, :k] @ x[:k]
            p = ndtr((left - at) / L[k, k])
            product *= p
            if k < n - 1:
                x[k] = ndtri(np.clip(p * u[k], LEAST, NEXT_TO_ONE))
                left = left + _log_rest(at + L[k, k] * x[k] - left)
        return 1.0 - product.mean()


def _ordered(m: Array, C: Array, left: float) -> tuple[NDArray[np.intp], Array]:
    """Order of the differences, the least likely first (Gibson, Glasbey and Elston 1994), and the root of their C."""
    n = len(m)
    order, L, x = np.arange(n), np.zeros((n, n)), np.zeros(n)
    for k in range(n):
        its = order[k:]
        sd = np.sqrt(np.maximum(C[its, its] - np.square(L[k:, :k]).sum(axis=1), LEAST))
        away = (left - m[its] - L[k:, :k] @ x[:k]) / sd
        first = k + int(away.argmin())
        order[[k, first]], L[[k, first]] = order[[first, k]], L[[first, k]]
        L[k, k] = sd[first - k]
        L[k + 1 :, k] = (C[order[k + 1 :], order[k]] - L[k + 1 :, :k] @ L[k, :k]) / L[k, k]
        below, density = normal_distribution(away[[first - k]])
        x[k] = -(density / np.maximum(below, LEAST))[0]  # mean of what is below
        left += float(_log_rest(m[order[k]] + L[k, : k + 1] @ x[: k + 1] - left))
    return order, L


def _log_rest(g: Array | float) -> Array:
    """log(1 - exp(g)) for g < 0."""
    return np.log(-np.expm1(np.minimum(g, -SHORTEST)))


@lru_cache(maxsize=4)
def _uniform(D: int, log2: int) -> Array:
    """Quasi-random points (D, S) of the unit cube."""
    return np.ascontiguousarray(sobol(D).random_base2(log2).T)
