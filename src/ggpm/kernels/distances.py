"""Distances and inner products of pairs of points, computed once and shared by all kernels of a fit."""

from __future__ import annotations

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

    @cached_property
    def centred(self) -> tuple[Array, Array]:
        """X and Z (or X) without the mean of Z."""
        centre = self.columns.mean(axis=0)
        columns = self.columns - centre
        return (columns if self.square else self.rows - centre), columns

    def forget(self) -> None:
        """Give back the memory of the matrices; they are computed again when needed.

        >>> shared = Distances(np.zeros((2, 1)))
        >>> _ = shared.squared
        >>> shared.forget()
        >>> "squared" in vars(shared)
        False
        """
        for name in ("squared", "inner", "centred"):
            self.__dict__.pop(name, None)

    def belongs_to(self, X: Any, Z: Any = None) -> bool:
        """Whether these are the distances of these points."""
        return _same(self.X, X) and _same(self.Z, Z)


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return a is not None and b is not None and np.shape(a) == np.shape(b) and bool(np.array_equal(a, b))
