"""Averages over a few normal numbers of smooth functions: sums over body-centred lattices.

Points whose coordinates are all whole numbers, or all half of odd ones, take the fewest sums of all lattices for
functions whose Fourier transforms fade alike in all directions, as those of smooth functions times a normal density do:
in four dimensions half of those of a cubic lattice (Conway and Sloane 1999, chapter 4). Where a function changes along
an axis, its product with the density is narrower there by a factor, and so are the distances of the points.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def size_of(factors: tuple[float, ...], spacing: float, reach: float) -> float:
    """About how many nodes there are, in four dimensions.

    >>> round(size_of((1.0, 1.0, 1.0, 1.0), 1.2, 4.8)), len(centred_nodes((1.0, 1.0, 1.0, 1.0), 1.2, 4.8)[1])
    (632, 625)
    """
    return math.pi**2 / 4.0 * (reach / spacing) ** 4 * math.prod(factors)


def centred_nodes(factors: tuple[float, ...], spacing: float, reach: float) -> tuple[Array, Array]:
    """Nodes (S, D) of the standard normal and weights (S,), which fall, within a radius.

    ``factors`` are by how much closer nodes are along each axis; ``spacing`` that of a cubic lattice as exact as this
    one. Variances are those of the normal.

    >>> x, w = centred_nodes((2.0, 1.0, 1.0, 1.0), 1.2, 4.8)
    >>> bool(np.allclose((x * w[:, None]).T @ x, np.eye(4), atol=1e-12))
    True
    """
    steps, found = math.sqrt(2.0) * spacing / np.array(factors), []
    for shift in (0.0, 0.5):
        x, left = np.zeros((1, 0)), np.array([reach**2])
        for step in steps[::-1]:
            most = np.sqrt(left) / step
            low = np.ceil(-most - shift)
            count = np.maximum(np.floor(most - shift) - low + 1.0, 0.0).astype(int)
            of = np.repeat(np.arange(len(x)), count)
            place = low[of] + np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
            new = step * (place + shift)
            x, left = np.concatenate([new[:, None], x[of]], axis=1), left[of] - new**2
        found.append(x)
    x = np.concatenate(found)
    square = np.sum(x * x, axis=1)
    x, weights = x[np.argsort(square, kind="stable")], np.exp(-0.5 * np.sort(square, kind="stable"))
    weights /= weights.sum()
    return x / np.sqrt(weights @ x**2), weights
