"""Averages over normal vectors of a few dimensions, the first of which matter most: points of a lattice with weights.

Points of a rank-1 lattice serve smooth periodic functions best. Under the normal distribution function they would not
be periodic: points spread wider than the normal, with the weights that this asks for, are so nearly, as weights fall
to zero at both ends of each dimension (Sloan and Joe 1994; Dick, Kuo and Sloan 2013). Latents are turned so that
functions change most along the first axes (`turned_axes`), and vectors of the lattices are made for that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ggpm.families.special.quadrature import normal_points

Array = NDArray[np.float64]

# Vectors of the lattices by the logarithm (base 2) of how many points they have, component by component for the
# weights 1, 1/2, 1/4, 0.12, 0.06, ... of dimensions (criterion P_2), of all odd numbers up to 4096 points, of some
# hundred beyond.
VECTORS = {
    9: (1, 149, 113, 207, 81, 123, 105, 89, 135, 17, 187, 221, 161, 31, 235, 55, 21, 197, 77, 63),
    10: (1, 275, 167, 403, 317, 301, 495, 481, 231, 49, 381, 37, 245, 465, 175, 81, 371, 17, 143, 113),
    11: (1, 791, 213, 957, 843, 337, 865, 597, 697, 899, 761, 615, 979, 807, 965, 69, 623, 49, 223, 715),
    12: (1, 1557, 1087, 701, 1163, 89, 887, 629, 739, 1029, 1127, 1349, 1333, 601, 937, 33, 1759, 189, 1897, 1617),
    13: (1, 2431, 3739, 519, 567, 3459, 209, 1359, 587,
         2781, 3243, 1337, 3103, 2175, 1479, 2357, 1957, 693, 387, 989),
    14: (1, 4845, 7479, 1031, 3153, 2711, 6219, 5607, 1325,
         6503, 6857, 1219, 7327, 4317, 4937, 7371, 5561, 7977, 3325, 741),
    16: (1, 13851, 19461, 8479, 21217, 5113, 27221, 18057, 6531,
         17241, 23575, 26989, 18009, 5839, 13697, 32277, 31219, 13657, 30039, 28273),
}  # fmt: skip
MOST_DIMENSIONS = 20
# Standard deviations of points; those of later dimensions are one. With 4096 of them probabilities of entries of 3x3
# covariance matrices are off by 1.3e-5 in the median, by 1.6e-4 with 2048 Sobol points and by 5e-5 with 8192.
SPREAD = (1.7, 1.4, 1.2, 1.2, 1.2)
NEGLIGIBLE = 1e-5  # weight of points that are left out, all together
POINTS, STEP = (
    3,
    0.5,
)  # of gradients: logarithm (base 2) of their number, which are taken on both sides, and a difference
TINY = 1e-300
GRADIENTS = 4 * 2**POINTS  # values for them, for every dimension


@lru_cache(maxsize=32)
def lattice_nodes(
    D: int, log2: int, spread: tuple[float, ...] = SPREAD, left_out: float = NEGLIGIBLE
) -> tuple[Array, Array]:
    """At most 2^log2 nodes (S, D) of the standard normal and weights (S,), exact for all quadratic functions.

    Points have the standard deviations ``spread``, one in later dimensions; those that weigh ``left_out`` all together
    are left out.

    >>> x, w = lattice_nodes(4, 10)
    >>> bool(np.allclose((x * w[:, None]).T @ x, np.eye(4))), bool(abs(w @ x[:, 0] ** 4 - 3) < 1e-3)
    (True, True)
    """
    N, sd = 2**log2, np.array([*spread, *[1.0] * D])[:D]
    points = ndtri((np.multiply.outer(np.arange(N), VECTORS[log2][:D]) / N + 0.5 / N) % 1.0)
    x = sd * points
    weights = np.exp(0.5 * (points**2 - x**2).sum(axis=1))
    order = np.argsort(weights)
    kept = np.sort(order[np.cumsum(weights[order]) > left_out * weights.sum()])
    x, weights = x[kept], weights[kept] / weights[kept].sum()
    x = x - weights @ x
    root = np.linalg.cholesky((x * weights[:, None]).T @ x)
    return np.ascontiguousarray(np.linalg.solve(root, x.T).T), weights


def turned_axes(function: Callable[[Array], Array], m: int, D: int, steep: float = 0.0) -> tuple[Array, Array]:
    """Orthonormal axes (m, D, D), as columns, along which functions change most, and by how much, (m, D).

    ``function`` takes standard normal vectors x (S, D), the same in all m rows, and gives values (m, S, values). The
    axes are eigenvectors of E[g g^T], g the gradient (Constantine, Dow and Wang 2014); changes are root mean squares.
    With ``steep`` points count by that power of g^T g, so that steps that few of them see are not lost in the mean.

    >>> axes, change = turned_axes(lambda x: (x @ np.array([3.0, 4.0]))[None, :, None], 1, 2)
    >>> axes[0, :, 0].round(6), change.round(6)
    (array([0.6, 0.8]), array([[5., 0.]]))
    """
    half = normal_points(D, POINTS)
    at, steps = np.concatenate([half, -half]), STEP * np.eye(D)
    values = function((at[:, None, None] + np.stack([steps, -steps])).reshape(-1, D))
    values = values.reshape(m, len(at), 2, D, -1)
    g = (values[:, :, 0] - values[:, :, 1]) / (2.0 * STEP)
    share = (np.einsum("msiv,msiv->ms", g, g) + TINY) ** steep
    share /= share.sum(axis=1, keepdims=True)
    square, axes = np.linalg.eigh(np.einsum("msiv,msjv->mij", g * share[:, :, None, None], g))
    axes, square = axes[:, :, ::-1], square[:, ::-1]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return axes * np.where(largest < 0, -1.0, 1.0), np.sqrt(np.maximum(square, 0.0))
