"""Layout of the rows: distinct points in order, the earlier points of each, and the tree of fronts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from ggpm.fields.neighbours.dissection import Tree, dissect
from ggpm.fields.neighbours.patches import Patches, patches
from ggpm.fields.neighbours.search import coarse_to_fine, embeddings, most_correlated, nearest_earlier
from ggpm.fields.neighbours.settings import Neighbours
from ggpm.kernels import Pairs, RowVariance

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

BATCH = 2**21  # pairs of points whose kernels are evaluated at a time: 16 MiB for each array
# Points times latents, and operations of a factorisation, up to which a factor is made: twenty seconds at most. In the
# plane (m = 20) 50,000 points take 3e10 operations; in twenty dimensions 6,000 points take 2e11.
DIRECT_MOST, DIRECT_FLOPS = 50_000, 2e11
KEPT = 2**26  # squared distances that are kept from one evaluation to the next: 512 MiB


@dataclass(frozen=True)
class Cliques:
    """Sets of points, the last of each conditioned on the others: ``(N, k)``, with -1 where a set is smaller."""

    X: Array
    members: Indices

    @cached_property
    def triangle(self) -> tuple[Indices, Indices]:
        """Rows and columns of the lower triangle of a matrix of order k."""
        return np.tril_indices(self.members.shape[1])

    def batches(self) -> Iterator[tuple[slice, Pairs]]:
        """Slices of the cliques, and all pairs of points within each."""
        if len(self.members) * len(self.triangle[0]) <= KEPT:
            yield from self._kept
        else:
            yield from self._made()

    @cached_property
    def _kept(self) -> list[tuple[slice, Pairs]]:
        return list(self._made())

    def _made(self) -> Iterator[tuple[slice, Pairs]]:
        a, b = self.triangle
        step = max(1, BATCH // len(a))
        for start in range(0, len(self.members), step):
            rows = slice(start, min(start + step, len(self.members)))
            some = np.maximum(self.members[rows], 0)
            yield rows, Pairs(self.X, some[:, a], some[:, b])


class Layout:
    """Points of some rows, in order, with their cliques.

    Parameters
    ----------
    X : rows, (n, features)
    kernels : under which neighbours are near
    settings : Neighbours
    """

    def __init__(self, X: Array, kernels: Sequence[Any], settings: Neighbours) -> None:
        self.kernels, self.settings = list(kernels), settings
        by_value = np.lexsort(X.T[::-1])
        points = X[by_value]
        # equal rows share one latent, unless a row's own noise makes them different points
        noisy = any(RowVariance(kernel, X[:1]).own is not None for kernel in kernels)
        new = np.append(True, noisy | np.any(np.diff(points, axis=0) != 0, axis=1))
        points, place = points[new], np.empty(len(X), dtype=np.intp)
        place[by_value] = np.cumsum(new) - 1
        spaces = embeddings(kernels, points)
        order = _order(points, spaces[0], settings.ordering)
        position = np.empty(len(order), dtype=np.intp)
        position[order] = np.arange(len(order))
        self.X = np.ascontiguousarray(points[order])
        """Distinct points, (N, features)."""
        self.place = position[place]
        """Number of the point of every row, (n,)."""
        count = min(settings.number, max(len(points) - 1, 1))
        self.on_a_line = bool(
            len(spaces) == 1 and spaces[0].shape[1] == 1 and np.all(np.diff(spaces[0][order, 0]) >= 0)
        )
        """Whether every point is conditioned on those before it along one coordinate, so that factors are bands."""
        if self.on_a_line:
            near = np.maximum(
                np.arange(len(points))[:, None] - np.arange(1, count + 1), -1
            )  # along a line: those before
        else:
            near = np.hstack([nearest_earlier(space[order], count) for space in spaces])
        near = most_correlated(kernels, self.X, self.X, near, count) if len(spaces) > 1 else near
        self.space = spaces[0][order]
        step = self.space[1:] - self.space[near[1:, 0]]
        self.closest = float(np.sqrt(np.min(np.einsum("nd,nd->n", step, step), initial=np.inf)))
        """Smallest distance of a point from the nearest before it, in length scales."""
        self.cliques = Cliques(self.X, np.hstack([near, np.arange(len(points))[:, None]]))

    @property
    def n_points(self) -> int:
        return len(self.X)

    @property
    def distinct(self) -> bool:
        """Whether every row is a point of its own."""
        return len(self.place) == len(self.X)

    def at_points(self, values: Array) -> Array:
        """Sums of the rows' values at their points."""
        out: Array
        if self.distinct:
            out = np.empty_like(values)
            out[self.place] = values
            return out
        flat = values.reshape(len(values), -1)
        sums = [np.bincount(self.place, column, minlength=self.n_points) for column in flat.T]
        out = np.stack(sums, axis=1).astype(np.float64).reshape(self.n_points, *values.shape[1:])
        return out

    @cached_property
    def generations(self) -> list[Indices]:
        """Points in groups, each after those of all its neighbours."""
        depth = [0] * self.n_points
        for i, members in enumerate(self.cliques.members[:, :-1].tolist()):
            depth[i] = 1 + max((depth[k] for k in members if k >= 0), default=-1)
        by_depth = np.argsort(depth, kind="stable")
        return np.split(by_depth, np.cumsum(np.bincount(depth))[:-1])

    @cached_property
    def _entries(self) -> tuple[Indices, Indices, NDArray[np.integer]]:
        """Pairs of points that share a clique, as two arrays, and the number of the pair of every pair in a clique."""
        n, (a, b), members = self.n_points, self.cliques.triangle, self.cliques.members
        keys = np.maximum(members[:, a], members[:, b]) * n + np.minimum(members[:, a], members[:, b])
        keys[(members[:, a] < 0) | (members[:, b] < 0)] = n * n  # last: where a clique is smaller
        found, where = np.unique(keys, return_inverse=True)
        found = found[: np.searchsorted(found, n * n)]
        return found // n, found % n, where.reshape(keys.shape).astype(np.int32 if len(found) < 2**31 - 1 else np.int64)

    @cached_property
    def tree(self) -> Tree:
        """Fronts of the posterior's precision."""
        first, second, _ = self._entries
        return dissect(self.space, first, second, self.settings.leaf)

    @cached_property
    def patches(self) -> Patches:
        """Patches within which covariances are worked out where the posterior's precision has no factor."""
        return patches(self.space)

    def iterative(self, D: int) -> bool:
        """Whether the precision of D latents is solved by conjugate gradients, not factorised."""
        if self.settings.solver != "auto" or self.on_a_line:
            return self.settings.solver == "iterative"
        return self.n_points * D > DIRECT_MOST or D**3 * self.tree.flops > DIRECT_FLOPS

    @cached_property
    def slots(self) -> NDArray[np.integer]:
        """For every pair in a clique its place among the entries that the tree sorts; one past them for none."""
        _, _, where = self._entries
        count = len(self.tree.sorted_entries)
        place = np.full(count + 1, count, dtype=where.dtype)
        place[self.tree.sorted_entries] = np.arange(count)
        slots = place[np.minimum(where, count)]
        del self.__dict__["_entries"]
        return slots

    @cached_property
    def pattern(self) -> tuple[Indices, Indices, NDArray[np.bool_]]:
        """Row pointers and columns of the matrix of the conditionals, and which members of cliques there are."""
        present = self.cliques.members >= 0
        return np.append(0, np.cumsum(present.sum(axis=1))), self.cliques.members[present], present

    def matrix(self, a: Array) -> csr_matrix:
        """Sparse matrix with the row ``a_i`` at the members of clique i."""
        pointers, columns, present = self.pattern
        return csr_matrix((a[present], columns, pointers), shape=(self.n_points, self.n_points))


def _order(points: Array, space: Array, ordering: str) -> Indices:
    varies = np.ptp(points, axis=0) > 0
    if ordering == "coordinate" or (ordering == "auto" and varies.sum() <= 1):
        return np.argsort(points[:, np.argmax(varies)], kind="stable")
    return coarse_to_fine(space)
