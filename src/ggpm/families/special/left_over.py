"""Averages of what softmax leaves: E[1/(1 + sum_j exp(x_j))] of normal x, one or two of them.

It is the probability of what has no log-odds of its own, the others being those of exact zeros and ones. One wide x: on
either side of zero 1/(1 + exp(x)) is a sum of few exponentials, whose averages over half a normal are known.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray
from scipy.special import erfcx

from ggpm.families.special.adaptive import product_rule

Array = NDArray[np.float64]

# Largest standard deviation of a direction, and Gauss-Hermite nodes that then give averages to 1e-8 of themselves
# (means between -12 and 12); beyond it one x has a closed form, and of two the first is summed over.
HERMITE = ((0.0, 1), (0.05, 3), (0.2, 4), (0.3, 5), (0.4, 6), (0.5, 8), (0.6, 9), (0.7, 10), (0.85, 13), (1.0, 16))
TERMS = 13  # exponentials that make 1/(1 + exp(x)) to 1e-10 of itself
SURE = 35.0  # standard deviations from zero, under the tilt by exp(-x), beyond which the normal has one side
# Of sums over the first of two: the largest spacing, in units of x and in standard deviations, how far they reach, and
# how much further where what is left is small.
SPACING, OF_SD, REACH, FURTHER = 1.0, 0.8, 6.5, 9.0


def log_left_over(mean: Array, root: Array) -> Array:
    """log E[1/(1 + sum_j exp(x_j))], (..., k), for x = mean + root e, e standard normal.

    Parameters
    ----------
    mean : (..., k, J), J one or two
    root : (k, J, J), lower

    >>> np.exp(log_left_over(np.zeros((1, 1)), np.full((1, 1, 1), 3.0))).round(12)
    array([0.5])
    """
    sd = np.sqrt(np.sum(root**2, axis=1))
    limits, sizes = np.array([h[0] for h in HERMITE]), np.array([h[1] for h in HERMITE])
    size = sizes[np.minimum(np.searchsorted(limits, sd), len(sizes) - 1)].max(axis=1)
    size[(sd > limits[-1]).any(axis=1)] = 0
    out = np.empty(mean.shape[:-1])
    for n in np.unique(size):
        rows = np.flatnonzero(size == n)
        rule = _summed if n else (_of_one if sd.shape[1] == 1 else _over_first)
        out[..., rows] = rule(mean[..., rows, :], root[rows], int(n))
    return out


def _summed(mean: Array, root: Array, n: int) -> Array:
    """By n Gauss-Hermite nodes for every direction: exponentials of rows and of nodes, not of both."""
    e, w = product_rule(root.shape[1], n)
    top = np.maximum(mean.max(axis=-1), 0.0)
    scaled = [np.exp(mean[..., j] - top) for j in range(root.shape[1])]
    one, total, left = np.exp(-top), np.zeros(top.shape), np.empty(top.shape)
    for node, weight in zip(np.exp(np.einsum("kij,sj->sik", root, e)), w, strict=True):
        np.multiply(scaled[0], node[0], out=left)
        for x, factor in zip(scaled[1:], node[1:], strict=True):
            left += x * factor
        left += one
        total += np.divide(weight, left, out=left)
    return np.log(total) - top


def _of_one(mean: Array, root: Array, n: int) -> Array:
    """One x: that of |mean|, or the rest of it."""
    s, m = root[:, 0, 0], np.abs(mean[..., 0])
    z, step = m / (np.sqrt(2.0) * s), s / np.sqrt(2.0)
    sure = m > s * (s + SURE)
    z = np.where(sure, 0.0, z)
    value = erfcx(z)
    for k, c in enumerate(_exponentials(), 1):
        value += c * (erfcx(k * step - z) - erfcx(k * step + z))
    out = np.where(sure, 0.5 * s * s - m, np.log(0.5 * value) - z * z)
    return np.where(mean[..., 0] < 0, np.log1p(-np.exp(out)), out)


@lru_cache(maxsize=1)
def _exponentials() -> Array:
    """c_k with 1/(1 + exp(x)) = sum_k c_k exp(-k x), k = 1, 2, ..., for x >= 0."""
    series = Chebyshev.interpolate(lambda v: 1.0 / (1.0 + v), TERMS - 1, domain=[0.0, 1.0])
    return np.asarray(series.convert(kind=Polynomial).coef, dtype=np.float64)


def _over_first(mean: Array, root: Array, n: int) -> Array:
    """Two x: 1/(1 + exp(x)) of the first, times the same of the second less log(1 + exp(first)), summed over one."""
    first, follows, own = root[:, 0, 0], root[:, 1, 0], root[:, 1:, 1:]
    spacing = 1.0 / np.hypot(1.0 / OF_SD, np.maximum(first, np.abs(follows)).max() / SPACING)
    # small values come from where x is small
    ahead = min(FURTHER, max(first.max(), np.abs(follows).max()))
    total = np.full(mean.shape[:-1], -np.inf)
    for e in spacing * np.arange(-np.ceil((REACH + ahead) / spacing), np.ceil((REACH + ahead) / spacing) + 1.0):
        x = mean[..., 0] + first * e
        taken = np.logaddexp(0.0, x)
        other = mean[..., 1] + follows * e - taken
        total = np.logaddexp(total, log_left_over(other[..., None], own) - taken - 0.5 * e * e)
    return total + np.log(spacing) - 0.5 * np.log(2.0 * np.pi)
