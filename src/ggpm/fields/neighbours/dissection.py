"""Nested dissection: the order in which a sparse matrix is eliminated, as a tree of dense fronts.

A graph is cut into halves by coordinates; the fewest vertices that cover all cut edges (König's theorem) separate them
and are eliminated last; the halves are cut again, all parts of one level at a time (George 1973).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Order of a block whose factorisation costs as much as a solve with it (n = 5000 in the plane, m = 20, one thread)
SOLVE_COST = 20.0
WORTHWHILE = 0.4  # share of a part above which its separator is too large for a cut to save anything


@dataclass(frozen=True)
class Front:
    """A dense block of the elimination: its own vertices, which it eliminates, and later ones that they touch.

    Vertices are numbered in the order of elimination.
    """

    start: int
    stop: int
    boundary: Indices
    parent: int
    """Number of the front that it passes its update to; -1: none."""
    in_parent: Indices
    """Places of its boundary among the vertices of the parent."""
    entries: slice
    """Those of the entries of the matrix, as the tree sorts them, that it eliminates."""
    rows: Indices
    columns: Indices
    """Their places in the block, in the lower triangle."""

    @property
    def own(self) -> int:
        return self.stop - self.start

    @property
    def size(self) -> int:
        return self.stop - self.start + len(self.boundary)

    @property
    def vertices(self) -> Indices:
        """All vertices of the block."""
        return np.concatenate([np.arange(self.start, self.stop), self.boundary])


@dataclass(frozen=True)
class Tree:
    """Fronts, children before their parents."""

    fronts: list[Front]
    order: Indices
    """Vertices in the order of elimination."""
    sorted_entries: Indices
    """Entries of the matrix in the order in which fronts take them."""
    low: Indices
    high: Indices
    """The two vertices of each of these."""

    @property
    def doubles(self) -> int:
        """Numbers that a factor with one latent has."""
        return sum(front.own * front.size for front in self.fronts)

    @property
    def flops(self) -> float:
        """About how many operations a factorisation with one latent takes."""
        return float(sum(front.own * front.size**2 for front in self.fronts))

    @property
    def solves(self) -> float:
        """About how many solves cost as much as a factorisation."""
        return self.flops / SOLVE_COST / max(self.doubles, 1)

    @property
    def bandwidth(self) -> int:
        """Largest distance of two vertices that share an entry, as they were numbered."""
        return int(np.max(np.abs(self.low - self.high)))

    @property
    def largest(self) -> int:
        """Order of the largest block."""
        return max(front.size for front in self.fronts)


def dissect(points: Array, first: Indices, second: Indices, leaf: int) -> Tree:
    """Tree for a symmetric matrix with entries (first, second), one for each pair and all of the diagonal.

    >>> tree = dissect(np.arange(3.0)[:, None], np.array([0, 1, 2, 0, 1]), np.array([0, 1, 2, 1, 2]), 1)
    >>> tree.order.tolist(), len(tree.fronts)
    ([0, 2, 1], 3)
    """
    part, parents = _divide(points, first, second, leaf)
    children: list[list[int]] = [[] for _ in parents]
    for number, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(number)
    postorder: list[int] = []
    stack = [number for number, parent in enumerate(parents) if parent < 0]
    while stack:
        postorder.append(number := stack.pop())
        stack.extend(children[number])
    postorder.reverse()
    rank = np.empty(len(parents), dtype=np.intp)
    rank[postorder] = np.arange(len(parents))
    order = np.argsort(rank[part], kind="stable")
    position = np.empty(len(part), dtype=np.intp)
    position[order] = np.arange(len(part))

    low, high = np.minimum(position[first], position[second]), np.maximum(position[first], position[second])
    by_front = np.lexsort((high, low))
    low, high = low[by_front], high[by_front]
    stops = np.cumsum(np.bincount(rank[part], minlength=len(parents)))
    starts = np.concatenate([[0], stops[:-1]])
    ends = np.searchsorted(low, stops)
    fronts: list[Front] = []
    arriving: dict[int, list[Indices]] = {}
    boundaries: list[Indices] = []
    for k, number in enumerate(postorder):
        start, stop = starts[k], stops[k]
        entries = slice(int(np.searchsorted(low, start)), int(ends[k]))
        touched = np.unique(np.concatenate([high[entries], *arriving.pop(k, [])]))
        boundary = touched[touched >= stop]
        if parents[number] >= 0:
            arriving.setdefault(int(rank[parents[number]]), []).append(boundary)
        boundaries.append(boundary)
        rows = high[entries] - start
        far = high[entries] >= stop
        rows[far] = (stop - start) + np.searchsorted(boundary, high[entries][far])
        fronts.append(Front(start, stop, boundary, -1, boundary, entries, rows, low[entries] - start))
    out = []
    for k, number in enumerate(postorder):
        parent = int(rank[parents[number]]) if parents[number] >= 0 else -1
        inside = boundaries[k]
        if parent >= 0:
            inside = _places(boundaries[k], starts[parent], stops[parent], boundaries[parent])
        f = fronts[k]
        out.append(Front(f.start, f.stop, f.boundary, parent, inside, f.entries, f.rows, f.columns))
    return Tree(out, order, by_front, order[low], order[high])


def _places(vertices: Indices, start: int, stop: int, boundary: Indices) -> Indices:
    """Places of vertices in the block of a front."""
    return np.where(vertices < stop, vertices - start, (stop - start) + np.searchsorted(boundary, vertices))


def _divide(points: Array, first: Indices, second: Indices, leaf: int) -> tuple[Indices, list[int]]:
    """For every vertex the number of its part (a separator, or what is not divided), and the parent of every part."""
    n = len(points)
    own = np.full(n, -1)  # the part that a vertex stays in
    now = np.zeros(n, dtype=np.intp)  # the part that is still to be divided; -1: none
    parents, numbers = [-1], np.array([0])  # of the parts of this level
    edges = first != second
    a, b = first[edges], second[edges]
    while True:
        active = np.flatnonzero(now >= 0)
        counts = np.bincount(now[active], minlength=len(numbers))
        small = counts <= leaf
        stays = active[small[now[active]]]
        own[stays], now[stays] = numbers[now[stays]], -1
        active = np.flatnonzero(now >= 0)
        if not active.size:
            return own, parents
        inside = (now[a] >= 0) & (now[a] == now[b])
        a, b = a[inside], b[inside]
        side = np.full(n, -1)
        side[active] = _halves(points[active], now[active], counts)
        crossing = side[a] != side[b]
        left = np.where(side[a[crossing]] == 0, a[crossing], b[crossing])
        right = np.where(side[a[crossing]] == 0, b[crossing], a[crossing])
        cover = _vertex_cover(left, right, n)
        sizes = np.bincount(now[cover], minlength=len(numbers))
        whole = sizes > WORTHWHILE * counts
        cover = np.concatenate([cover[~whole[now[cover]]], active[whole[now[active]]]])
        own[cover], now[cover] = numbers[now[cover]], -1
        active = np.flatnonzero(now >= 0)
        halves = 2 * now[active] + side[active]
        used, now[active] = np.unique(halves, return_inverse=True)
        before = numbers
        numbers = np.arange(len(parents), len(parents) + len(used))
        parents.extend(before[used // 2].tolist())


def _halves(points: Array, part: Indices, counts: Indices) -> Indices:
    """0 or 1 for every point: below or above the median of its part along the widest coordinate."""
    by_part = np.argsort(part, kind="stable")
    present, starts = np.unique(part[by_part], return_index=True)
    width = np.maximum.reduceat(points[by_part], starts) - np.minimum.reduceat(points[by_part], starts)
    axis = np.zeros(len(counts), dtype=np.intp)
    axis[present] = np.argmax(width, axis=1)
    along = points[np.arange(len(points)), axis[part]]
    by_value = np.lexsort((along, part))
    rank = np.empty(len(points), dtype=np.intp)
    rank[by_value] = np.arange(len(points)) - np.searchsorted(part[by_value], part[by_value])
    return (2 * rank >= counts[part]).astype(np.intp)


def _vertex_cover(left: Indices, right: Indices, n: int) -> Indices:
    """The fewest vertices that touch all edges of a bipartite graph, from a largest matching (König 1931)."""
    graph = csr_matrix((np.ones(len(left), dtype=np.int8), (left, right)), shape=(n, n))
    partner = maximum_bipartite_matching(graph, perm_type="column")
    ends = np.unique(left)
    matched = ends[partner[ends] >= 0]
    back = np.full(n, -1)
    back[partner[matched]] = matched
    reached_left, reached_right = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    frontier = ends[partner[ends] < 0]
    while frontier.size:  # along edges to the right, along matched edges back
        reached_left[frontier] = True
        there = np.unique(graph[frontier].indices)
        there = there[~reached_right[there]]
        reached_right[there] = True
        frontier = back[there]
        frontier = frontier[~reached_left[frontier]]
    return np.concatenate([ends[~reached_left[ends]], np.flatnonzero(reached_right)])
