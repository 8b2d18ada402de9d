"""Averages over normal vectors of functions that change much along a few axes: full rules there, sparse ones beyond.

Along axes on which a function changes by about its own width or more there are nodes at equal distances. All others
together have a sparse rule (Smolyak 1963): increments from one node of Gauss and Hermite to three, five, ... in each,
and products of these whose sizes, by the changes along their axes, matter. The axes are those of
`ggpm.families.special.weighted_lattice.turned_axes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Root mean square changes of a function, in its own widths, up to which axes are in one class; the first of them are in
# the sparse rule, others have as many nodes at equal distances. Measured on entries of 3x3 covariance matrices.
WEAK = (0.0, 0.02, 0.04, 0.07, 0.11, 0.16, 0.23, 0.33, 0.45, 0.55, 0.65)
STRONG, NODES = (0.8, 1.0, 1.3, 1.7, 2.3, 3.0), (14, 16, 18, 20, 24, 30)
CLASSES = np.array([*WEAK, *STRONG])
REACH = 5.2  # standard deviations
# Rules of weak axes; what each is more than the one before, over the second, fourth, ... power of the change; and the
# weight of nodes that are left out, all together.
RULES, OFF, LEFT_OUT = (1, 3, 5, 7, 10), (0.5, 0.15, 0.03, 0.006), 3e-6


def classes_of(changes: Array) -> NDArray[np.intp]:
    """Classes of axes, as many as there are in `CLASSES` where a function changes by more than any of these."""
    return np.searchsorted(CLASSES, changes)


def size_of(classes: Sequence[int], smallest: float) -> float:
    """Number of nodes of a rule, or a few more; infinite where a function changes too much.

    >>> size_of((12, 3, 2, 1), 1e-6), size_of((3, 2), 1e-6)
    (240.0, 13.0)
    """
    if max(classes) >= len(CLASSES):
        return np.inf
    weak = tuple(c for c in classes if c < len(WEAK))
    strong = [NODES[c - len(WEAK)] for c in classes if c >= len(WEAK)]
    return float(np.prod(strong, dtype=float)) * len(_sparse(weak, smallest)[1])


def turned_product(classes: Sequence[int], smallest: float) -> tuple[Array, Array]:
    """Nodes (S, D) of the standard normal and weights (S,), of which some are negative; classes fall from axis to axis.

    Products of increments that are smaller than ``smallest`` are left out.

    >>> x, w = turned_product((12, 3, 2, 1), 1e-6)
    >>> bool(np.allclose((x * w[:, None]).T @ x, np.eye(4), atol=1e-5))
    True
    """
    x, weights = _sparse(tuple(c for c in classes if c < len(WEAK)), smallest)
    for c in classes[: len(classes) - x.shape[1]][::-1]:
        t = np.linspace(-REACH, REACH, NODES[c - len(WEAK)])
        w = np.exp(-0.5 * t * t)
        x = np.concatenate([np.repeat(t, len(x))[:, None], np.tile(x, (len(t), 1))], axis=1)
        weights = np.multiply.outer(w / w.sum(), weights).ravel()
    kept = np.abs(weights) > LEFT_OUT / len(weights)
    return x[kept], weights[kept] / weights[kept].sum()


@lru_cache(maxsize=2048)
def _sparse(classes: tuple[int, ...], smallest: float) -> tuple[Array, Array]:
    """The sparse rule of weak axes."""
    nodes, increments = _increments()
    if not classes:
        return np.zeros((1, 0)), np.ones(1)
    sizes = [[1.0, *(off * WEAK[c] ** (2 * i + 2) for i, off in enumerate(OFF))] for c in classes]
    codes, parts = [], []  # places of nodes, as one number, and their weights
    for orders in _orders(sizes, smallest):
        own = [np.flatnonzero(increments[i]) for i in orders]
        codes.append(reduce(lambda a, b: np.add.outer(len(nodes) * a, b), own).ravel())
        parts.append(reduce(np.multiply.outer, [increments[i, at] for i, at in zip(orders, own)]).ravel())
    code, which = np.unique(np.concatenate(codes), return_inverse=True)
    total = np.bincount(which, np.concatenate(parts)).astype(float)
    kept = np.abs(total) > 1e-15  # others cancel
    places = code[kept, None] // len(nodes) ** np.arange(len(classes))[::-1] % len(nodes)
    return nodes[places], total[kept]


def _orders(sizes: list[list[float]], smallest: float) -> Iterator[tuple[int, ...]]:
    """Orders of increments whose product of sizes, which fall with the order, is larger than that; and of none."""
    if not sizes:
        yield ()
        return
    for i, size in enumerate(sizes[0]):
        if i and size <= smallest:
            return
        yield from ((i, *rest) for rest in _orders(sizes[1:], smallest / size))


@lru_cache(maxsize=1)
def _increments() -> tuple[Array, Array]:
    """Nodes of all rules of Gauss and Hermite, and weights on them: what every rule is more than the one before."""
    nodes = np.unique(np.concatenate([hermegauss(n)[0] for n in RULES]).round(12))
    weights = np.zeros((len(RULES), len(nodes)))
    for i, n in enumerate(RULES):
        x, w = hermegauss(n)
        weights[i, np.abs(x[:, None] - nodes).argmin(axis=1)] = w / w.sum()
    return nodes, np.diff(weights, axis=0, prepend=0.0)
