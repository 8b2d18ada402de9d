"""Kernels that do not ask for the units of the columns: `Scaled`, in units of their spreads, and `Additive`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels.distances import Distances, Pairs
from ggpm.kernels.linalg import sum_of_products
from ggpm.kernels.pullbacks import NODES, Block, MaternNode, Node, Pulled, node
from ggpm.kernels.wrapping import Wrapping, WrappingNode

__all__ = ["Additive", "Scaled"]

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


class Additive(sk.NormalizedKernelMixin, sk.Kernel):
    """Mean over the columns of a Matérn kernel of one column: a sum of functions of single columns.

    Parameters
    ----------
    length_scale : float
        One for all columns: inside `Scaled` in units of their spreads.
    nu : float
        Smoothness, as in `sklearn.gaussian_process.kernels.Matern`.
    length_scale_bounds : pair of floats or "fixed"

    Examples
    --------
    >>> Additive(1.0, nu=0.5)([[0.0, 0.0], [0.0, 50.0]]).round(3)
    array([[1. , 0.5],
           [0.5, 1. ]])
    """

    def __init__(
        self, length_scale: float = 1.0, nu: float = 2.5, length_scale_bounds: tuple[float, float] | str = (1e-5, 1e5)
    ) -> None:  # fmt: skip
        self.length_scale = length_scale
        self.nu = nu
        self.length_scale_bounds = length_scale_bounds

    @property
    def hyperparameter_length_scale(self) -> sk.Hyperparameter:
        """The length scale."""
        return sk.Hyperparameter("length_scale", "numeric", self.length_scale_bounds)

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        X = np.atleast_2d(np.asarray(X, dtype=np.float64))
        Y = None if Y is None else np.atleast_2d(np.asarray(Y, dtype=np.float64))
        one = sk.Matern(self.length_scale, self.length_scale_bounds, self.nu)
        parts = [
            one(X[:, [j]], None if Y is None else Y[:, [j]], **({"eval_gradient": True} if eval_gradient else {}))
            for j in range(X.shape[1])
        ]
        if eval_gradient:
            return sum(K for K, _ in parts) / len(parts), sum(dK for _, dK in parts) / len(parts)
        return sum(parts) / len(parts)

    def is_stationary(self) -> bool:
        """Whether k depends on differences alone: it does."""
        return True

    def __repr__(self) -> str:
        return f"Additive(length_scale={np.ravel(self.length_scale)[0]:.3g}, nu={self.nu:.3g})"


# ---- nodes ---------------------------------------------------------------------------------------------------------


class ScaledNode(WrappingNode):
    def __init__(self, kernel: Any, points: Distances) -> None:
        self.kernel, self.points = kernel, points
        self.inner = node(kernel.kernel, points.embedded(kernel.seen))

    def carried_back(self, part: Array) -> Array:
        return part * self.kernel.seen.slopes(self.points.columns)


class AdditiveNode(Node):
    """Squared differences of one column at a time are made anew: they cost less than the exponentials of them."""

    hyperparameters = ("length_scale",)

    def __init__(self, kernel: Any, points: Distances) -> None:
        super().__init__(kernel, points)
        self.one = MaternNode(sk.Matern(kernel.length_scale, kernel.length_scale_bounds, kernel.nu), points)
        self.factor = float(kernel.length_scale) ** -2
        self.count = points.rows.shape[1]

    def differences(self, f: int, rows: slice) -> Array:
        if isinstance(self.points, Pairs):
            return self.points.differences(f, rows)
        return np.subtract.outer(self.points.rows[rows, f], self.points.columns[:, f])

    def value(self, rows: slice, out: Array | None = None) -> Block:
        out = self.block(rows) if out is None else out
        part = np.empty_like(out)
        for f in range(self.count):
            squared = np.square(self.differences(f, rows))
            self.one.profile(squared, self.factor, part if f else out)
            if f:
                out += part
        out /= self.count
        return out

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        if not (self.size or inputs):
            return np.zeros(0), None
        length, moved = 0.0, np.zeros((self.points.shape[1], self.count)) if inputs else None
        for f in range(self.count):
            difference = self.differences(f, rows)
            squared = np.square(difference)
            k = np.empty_like(squared)
            self.one.profile(squared, self.factor, k)
            H = G * self.one.slopes(squared, self.factor, k)[0]
            length += sum_of_products(H, squared)
            if moved is not None:
                moved[:, f] = np.einsum("ij,ij->j", H, difference)
        share = self.factor / self.count
        return np.array([share * length] if self.size else []), None if moved is None else share * moved


NODES.update({Scaled: ScaledNode, Additive: AdditiveNode})
