"""Distances and inner products of pairs of points, computed once and shared by all kernels of a fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]


class Distances:
    """Points X (and Z) with what pairs of them have whatever the hyperparameters, computed when first used.

    Parameters
    ----------
    X : array (n, features)
    Z : array (m, features), optional
        Points of the columns. None stands for X itself, where `WhiteKernel` contributes.

    Examples
    --------
    >>> shared = Distances(np.array([[0.0], [3.0]]))
    >>> shared.squared
    array([[0., 9.],
           [9., 0.]])
    """

    def __init__(self, X: Any, Z: Any = None) -> None:
        self.X = X
        self.Z = Z
        self._derived: dict[Any, Distances] = {}

    @property
    def square(self) -> bool:
        """Whether this is K(X, X)."""
        return self.Z is None

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, m) of the kernel matrix."""
        return len(self.X), len(self.X if self.Z is None else self.Z)

    @cached_property
    def rows(self) -> Array:
        """X as numbers."""
        return np.atleast_2d(np.asarray(self.X, dtype=np.float64))

    @cached_property
    def columns(self) -> Array:
        """Z, or X, as numbers."""
        return self.rows if self.Z is None else np.atleast_2d(np.asarray(self.Z, dtype=np.float64))

    @cached_property
    def squared(self) -> Array:
        """Squared Euclidean distances (n, m), from differences: |x|² + |z|² - 2xz would lose digits."""
        return cdist(self.rows, self.columns, metric="sqeuclidean")

    @cached_property
    def inner(self) -> Array:
        """Inner products, (n, m)."""
        return np.inner(self.rows, self.columns)

    def scaled(self, scale: Array) -> Array:
        """Squared Euclidean distances (n, m) in units of one scale for each feature."""
        rows, columns = self.centred  # x / l far from 0 loses digits
        return cdist(rows / scale, columns / scale, metric="sqeuclidean")

    def add_own(self, rows: slice, block: Array, value: float) -> None:
        """Add a number where a row meets itself, to some rows of a matrix."""
        if self.square:
            np.einsum("ii->i", block[:, rows])[...] += value  # a view of the diagonal

    def own_sum(self, rows: slice, block: Array) -> float:
        """Sum of the entries where a row meets itself, in some rows of a matrix."""
        return float(np.trace(block[:, rows])) if self.square else 0.0

    @cached_property
    def centred(self) -> tuple[Array, Array]:
        """X and Z (or X) without the mean of Z."""
        centre = self.columns.mean(axis=0)
        columns = self.columns - centre
        return (columns if self.square else self.rows - centre), columns

    def part(self, columns: tuple[int, ...]) -> Distances:
        """The same points in some of their columns, made once: distances of it are shared too."""
        if columns == tuple(range(self.rows.shape[1])):
            return self
        at = list(columns)
        return self._made(columns, lambda X: X[:, at])

    def embedded(self, place: Callable[[Array], Array]) -> Distances:
        """The points where a function puts them, made once for every function."""
        return self._made(place, place)

    def _made(self, key: Any, function: Callable[[Array], Array]) -> Distances:
        if key not in self._derived:
            self._derived[key] = Distances(function(self.rows), None if self.square else function(self.columns))
        return self._derived[key]

    def belongs_to(self, X: Any, Z: Any = None) -> bool:
        """Whether these are the distances of these points."""
        return _same(self.X, X) and _same(self.Z, Z)


class Pairs(Distances):
    """Chosen pairs of points: entry (r, c) of the "kernel matrix" is the kernel of points first[r, c] and second[r, c].

    Parameters
    ----------
    X : array (n, features)
    first, second : numbers of points, (N, q)

    Examples
    --------
    >>> Pairs(np.array([[0.0], [3.0], [4.0]]), np.array([[0, 1]]), np.array([[1, 2]])).squared
    array([[9., 1.]])
    """

    def __init__(self, X: Any, first: NDArray[np.intp], second: NDArray[np.intp]) -> None:
        super().__init__(np.asarray(X, dtype=np.float64))
        self.first, self.second = first, second

    @property
    def square(self) -> bool:
        return False

    @property
    def shape(self) -> tuple[int, int]:
        return self.first.shape[0], self.first.shape[1]

    def differences(self, f: int, rows: slice = slice(None)) -> Array:
        """Differences in feature f, (rows, q)."""
        column = np.ascontiguousarray(self.X[:, f])
        return column[self.first[rows]] - column[self.second[rows]]

    def scaled(self, scale: Array) -> Array:
        total = np.zeros(self.shape)
        for f, length in enumerate(np.broadcast_to(scale, self.X.shape[1])):
            total += (self.differences(f) / length) ** 2
        return total

    @cached_property
    def squared(self) -> Array:
        """Squared Euclidean distances of the pairs, (N, q)."""
        return self.scaled(np.ones(1))

    @cached_property
    def inner(self) -> Array:
        """Inner products of the pairs, (N, q)."""
        return np.asarray(sum(column[self.first] * column[self.second] for column in self.X.T))

    def add_own(self, rows: slice, block: Array, value: float) -> None:
        block[self.first[rows] == self.second[rows]] += value

    def own_sum(self, rows: slice, block: Array) -> float:
        return float(block[self.first[rows] == self.second[rows]].sum())

    def _made(self, key: Any, function: Callable[[Array], Array]) -> Distances:
        if key not in self._derived:
            self._derived[key] = Pairs(function(self.rows), self.first, self.second)
        return self._derived[key]

    def call(self, kernel: Any) -> Array:
        """Any kernel at the pairs, through matrices of the points of every row."""
        out = np.empty(self.shape)
        for r, (a, b) in enumerate(zip(self.first, self.second)):
            points, position = np.unique(np.concatenate([a, b]), return_inverse=True)
            position = position.ravel()
            out[r] = np.asarray(kernel(self.X[points]))[position[: len(a)], position[len(a) :]]
        return out


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return a is not None and b is not None and np.shape(a) == np.shape(b) and bool(np.array_equal(a, b))
