"""`Scaled`: kernels that do not ask for the units of the columns, which they see in units of their spreads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels.distances import Distances
from ggpm.kernels.nodes import NODES, node
from ggpm.kernels.wrapping import Wrapping, WrappingNode

__all__ = ["Scaled"]

Array = NDArray[np.float64]


Knots = tuple[tuple[tuple[float, ...], tuple[float, ...]] | tuple[()], ...]


@dataclass(frozen=True)
class Standardise:
    """The function (x - centre)/spread of every column, or a curve through knots; equal ones are one and the same."""

    centre: tuple[float, ...]
    spread: tuple[float, ...]
    knots: Knots = ()
    """For every column places and values of a curve, which goes on with slope 1/spread beyond them; () for a line."""

    def __call__(self, X: Any) -> Array:
        X = np.atleast_2d(np.asarray(X, dtype=np.float64))
        if X.shape[1] != len(self.spread):
            raise ValueError(
                f"Scaled knows the spreads of {len(self.spread)} column(s); got X with {X.shape[1]}. Choose them: "
                "On(Scaled(...), columns)."
            )
        out = (X - np.array(self.centre)) / np.array(self.spread)
        for j, (places, values) in self._curves():
            inside = np.clip(X[:, j], places[0], places[-1])
            out[:, j] = np.interp(inside, places, values) + (X[:, j] - inside) / self.spread[j]
        return out

    def slopes(self, X: Array) -> Array:
        """Derivative of every column's function at X, (n, columns)."""
        out = np.broadcast_to(1.0 / np.array(self.spread, dtype=np.float64), X.shape).copy()
        for j, (places, values) in self._curves():
            steps = np.concatenate([out[:1, j], np.diff(values) / np.diff(places), out[:1, j]])
            out[:, j] = steps[np.searchsorted(places, X[:, j])]
        return out

    def _curves(self) -> Iterator[tuple[int, tuple[tuple[float, ...], tuple[float, ...]]]]:
        return ((j, curve) for j, curve in enumerate(self.knots) if curve)


class Scaled(Wrapping):
    """A kernel of columns less their centres, in units of their spreads: ``k((x - centre)/spread)``.

    Length scales inside have no unit, and one of them may be shared by columns in metres and in degrees.

    Parameters
    ----------
    kernel : kernel of scikit-learn
    centre, spread : sequences of numbers, one for each column
        Held: they are no hyperparameters.
    knots : a pair of sequences for each column, or () for a column that is measured in its spread
        Rising places and values of a curve through which a column is seen instead (`kernel=None` makes curves from
        ranks); beyond its ends it goes on with slope 1/spread.

    Examples
    --------
    >>> metres = np.array([[0.0, 1.0], [2000.0, 1.0]])
    >>> Scaled(sk.RBF(), centre=(1000.0, 1.0), spread=(1000.0, 1.0))(metres).round(3)
    array([[1.   , 0.135],
           [0.135, 1.   ]])
    >>> Scaled(sk.RBF(2.0), (0.0,), (3.0,))
    Scaled(RBF(length_scale=2))
    >>> Scaled(sk.RBF(), (0.0,), (10.0,), knots=[([1.0, 100.0], [-1.0, 1.0])]).seen([[1.0], [50.5], [110.0]]).ravel()
    array([-1.,  0.,  2.])
    """

    def __init__(
        self, kernel: sk.Kernel, centre: Sequence[float], spread: Sequence[float], knots: Sequence[Any] = ()
    ) -> None:
        self.kernel = kernel
        self.centre = centre
        self.spread = spread
        self.knots = knots

    @property
    def seen(self) -> Standardise:  # type: ignore[override]
        """The function of X whose values the inner kernel gets."""
        curves = tuple(tuple(tuple(map(float, numbers)) for numbers in curve) for curve in self.knots)
        return Standardise(tuple(map(float, self.centre)), tuple(map(float, self.spread)), curves)  # type: ignore[arg-type]

    def around(self, kernel: sk.Kernel) -> Scaled:
        """Another kernel that sees the columns as this one does."""
        return Scaled(kernel, self.centre, self.spread, self.knots)

    def __repr__(self) -> str:
        return f"Scaled({self.kernel!r}{', by ranks' if any(self.knots) else ''})"


class ScaledNode(WrappingNode):
    def __init__(self, kernel: Any, points: Distances) -> None:
        self.kernel, self.points = kernel, points
        self.inner = node(kernel.kernel, points.embedded(kernel.seen))

    def carried_back(self, part: Array) -> Array:
        return part * self.kernel.seen.slopes(self.points.columns)


NODES[Scaled] = ScaledNode
