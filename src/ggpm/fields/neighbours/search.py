"""Order of the points, and for each the nearest earlier ones in correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from sklearn.gaussian_process import kernels as sk

from ggpm.data.rows import batches
from ggpm.kernels import (
    Additive,
    Category,
    Cyclic,
    KernelEvaluation,
    On,
    Pairs,
    Scaled,
    Sphere,
    chosen_columns,
    diag,
    unit_vectors,
)

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

LEVELS = 32  # halvings of the grid: 2e-10 of the extent; closer points follow in random order
GROWTH = 1.5  # of the earlier points between two trees: the larger, the more of what a tree finds comes later
SMOOTH_NUGGET = 1e-8
# Under Matérn 3/2 a value r length scales from another has about r³ of variance left: below this distance 1e-9,
# which a search that makes the length twenty times longer brings near to rounding.
CLOSE = 1e-3
APART = 10.0  # length scales between two groups, whose rows are not correlated: nothing is at ten either


def embeddings(kernels: Sequence[Any], X: Array, like: Array | None = None) -> list[Array]:
    """Coordinates in which near points are correlated: for all summands of the kernels together, then for each.

    Stationary kernels measure distance in length scales, periodic ones on a circle; products put coordinates side by
    side. With one entry nearness is correlation itself; with several, what is near in any of them is a candidate.
    Centre and spread are those of the rows ``like``, which also decide how many entries there are (None: of X).

    >>> kernel = sk.RBF(2.0) + sk.ConstantKernel()
    >>> [part.ravel().tolist() for part in embeddings([kernel], np.array([[0.0], [4.0]]))]
    [[-1.0, 1.0]]
    """
    like = X if like is None else like
    parts, references = [], list[Array]()
    for kernel in kernels:
        for part, reference in zip(_summands(kernel, X, like), _summands(kernel, like, like)):
            if part.shape[1] and not any(_proportional(reference, other) for other in references):
                parts.append(part)
                references.append(reference)
    if not parts:
        parts = [X]
    return parts if len(parts) == 1 else [np.hstack(parts), *parts]


def _summands(kernel: Any, X: Array, like: Array) -> list[Array]:
    centre, spread = like.mean(axis=0), like.std(axis=0)
    match kernel:
        case sk.Sum():
            return _summands(kernel.k1, X, like) + _summands(kernel.k2, X, like)
        case sk.Product():
            first, second = (_summands(part, X, like) for part in (kernel.k1, kernel.k2))
            return [np.hstack([a, b]) for a in first for b in second]
        case sk.Exponentiation():
            return _summands(kernel.kernel, X, like)
        case On():
            return _summands(kernel.kernel, *(chosen_columns(rows, kernel.columns, kernel.at) for rows in (X, like)))
        case Scaled():
            return _summands(kernel.kernel, kernel.seen(X), kernel.seen(like))
        case Category():
            labels, known = (chosen_columns(rows, kernel.columns, kernel.at) for rows in (X, like))
            ranks = [np.searchsorted(np.unique(b), a) for a, b in zip(labels.T, known.T)]
            apart = APART if kernel.length_scale is None else 1.0 / np.asarray(kernel.length_scale)
            return [apart * np.stack(ranks, axis=1).astype(np.float64)]
        case Sphere():
            return [unit_vectors(X) / kernel.length_scale]
        case Cyclic():
            return _summands(sk.ExpSineSquared(kernel.length_scale, kernel.period), X, like)
        case sk.ConstantKernel() | sk.WhiteKernel():
            return [X[:, :0]]
        case sk.ExpSineSquared():
            angle = 2.0 * np.pi * X / kernel.periodicity
            return [np.hstack([np.cos(angle), np.sin(angle)]) / kernel.length_scale]  # an RBF of the chord
        case sk.RBF() | sk.RationalQuadratic() | Additive():
            return [(X - centre) / kernel.length_scale]
    return [(X - centre) / np.where(spread > 0, spread, 1.0)]


def _proportional(a: Array, b: Array) -> bool:
    """Whether two sets of coordinates order all distances alike."""
    if a.shape != b.shape:
        return False
    size = np.abs(b).max()
    ratio = np.abs(a).max() / size if size > 0 else 1.0
    return bool(np.allclose(a, ratio * b, rtol=1e-12, atol=1e-12 * np.abs(a).max()))


def is_rough(kernel: Any, nu: float = 1.5) -> bool:
    """Whether neighbouring values are told apart as well as by a Matérn kernel of this nu.

    Kernels on some of the columns never are: they do not tell rows apart that differ in others.

    >>> is_rough(sk.Matern(nu=1.5) + sk.ConstantKernel()), is_rough(sk.RBF()), is_rough(sk.Matern(nu=1.5), 0.5)
    (True, False, False)
    """
    match kernel:
        case sk.Sum() | sk.Product():
            return is_rough(kernel.k1, nu) or is_rough(kernel.k2, nu)
        case Scaled():
            return is_rough(kernel.kernel, nu)
        case sk.Matern():
            return bool(kernel.nu <= nu)
    return isinstance(kernel, sk.WhiteKernel)


def coarse_to_fine(points: Array) -> Indices:
    """An order in which every beginning covers the whole: approximately maximin, always the same.

    Grids of ever smaller cells: each adds one point, the one nearest to its centre, for every cell that has none yet.

    >>> coarse_to_fine(np.arange(5.0)[:, None])[:1]
    array([2])
    """
    n = len(points)
    extent = float(np.ptp(points, axis=0).max())
    chance = np.random.default_rng(0).permutation(n)
    if extent == 0:
        return chance
    scaled = (points - points.min(axis=0)) / (extent * (1.0 + 1e-12))
    left, order, cells = np.ones(n, dtype=bool), [], 1
    for _ in range(LEVELS):
        where = np.floor(scaled * cells)
        off = np.max(np.abs(scaled * cells - where - 0.5), axis=1)
        cell = np.zeros(n, dtype=np.int64)
        for column in where.T.astype(np.int64):
            cell = np.unique(cell * (column.max() + 1) + column, return_inverse=True)[1]
        taken = np.zeros(cell.max() + 1, dtype=bool)
        taken[cell[~left]] = True
        candidates = np.flatnonzero(left & ~taken[cell])
        best = candidates[np.lexsort((chance[candidates], off[candidates], cell[candidates]))]
        new = best[np.append(True, np.diff(cell[best]) > 0)] if best.size else best
        order.append(new[np.argsort(chance[new])])
        left[new] = False
        if not left.any():
            break
        cells *= 2
    rest = np.flatnonzero(left)
    return np.concatenate([*order, rest[np.argsort(chance[rest])]])


def nearest_earlier(points: Array, count: int) -> Indices:
    """For every point the nearest ``count`` before it, nearest first, (n, count); -1 where there are fewer.

    >>> nearest_earlier(np.array([[0.0], [5.0], [4.0]]), 2).tolist()
    [[-1, -1], [0, -1], [1, 0]]
    """
    n = len(points)
    found = np.full((n, count), -1)
    start = 0
    while start < n:
        stop = min(n, max(2 * count + 2, int(start * GROWTH)))
        tree, asked, k = cKDTree(points[:stop]), np.arange(start, stop), 2 * count + 2
        while asked.size:
            k = min(k, stop)
            enough = []
            for rows in batches(len(asked), 4 * k):
                at = asked[rows]
                near = tree.query(points[at], k)[1].reshape(len(at), k)
                earlier = near < at[:, None]
                rank = np.cumsum(earlier, axis=1)
                done = (rank[:, -1] >= np.minimum(count, at)) | (k == stop)
                r, c = np.nonzero(earlier & (rank <= count) & done[:, None])
                found[at[r], rank[r, c] - 1] = near[r, c]
                enough.append(done)
            asked, k = asked[~np.concatenate(enough)], 2 * k
        start = stop
    return found


def nearest(kernels: Sequence[Any], X: Array, x: Array, count: int) -> Indices:
    """Numbers of the ``count`` rows of X of largest correlation with every row of x, (m, count).

    >>> nearest([sk.RBF()], np.array([[0.0], [1.0], [5.0]]), np.array([[4.0]]), 2).tolist()
    [[2, 1]]
    """
    known, new = (embeddings(kernels, rows, X) for rows in (X, x))
    found = [cKDTree(a).query(b, count)[1].reshape(len(x), count) for a, b in zip(known, new)]
    return found[0] if len(found) == 1 else most_correlated(kernels, X, x, np.hstack(found), count)


def most_correlated(kernels: Sequence[Any], X: Array, x: Array, candidates: Indices, count: int) -> Indices:
    """Of the candidates for every row of x, numbers of rows of X or -1, the ``count`` of the largest correlation.

    With several kernels the mean of their correlations counts. Ties go to the smaller number, so that the order in
    which candidates come does not matter.
    """
    if candidates.shape[1] <= count:
        return candidates
    both = np.concatenate([X, x])
    out = np.full((len(x), count), -1)
    for rows in batches(len(x), 8 * candidates.shape[1]):
        some = np.sort(candidates[rows], axis=1)
        some[:, 1:][some[:, 1:] == some[:, :-1]] = -1  # found twice
        at = np.arange(len(X) + rows.start, len(X) + rows.stop)
        pairs = Pairs(both, np.broadcast_to(at[:, None], some.shape), np.maximum(some, 0))
        total = np.zeros(some.shape)
        for kernel in kernels:
            scale = np.sqrt(diag(kernel, X)[np.maximum(some, 0)] * diag(kernel, x[rows])[:, None])
            total += KernelEvaluation(kernel, pairs).K / np.where(scale > 0, scale, 1.0)
        total[some < 0] = -np.inf
        best = np.argsort(-total, axis=1, kind="stable")[:, :count]
        out[rows] = np.take_along_axis(some, best, axis=1)
    return out
