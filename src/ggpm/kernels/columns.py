"""Kernels on columns: any kernel on some of them, groups, the globe, cycles. Each is a kernel of scikit-learn.

Columns are named as in the data frame that `fit` gets, or numbered from 0. Names become numbers in `fit`, where they
are known (`at`); until then a kernel with names can be called on data frames only.

    On(RBF(), "temperature") + On(Cyclic(24), "time") + Category("station")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels.distances import Distances, Pairs
from ggpm.kernels.nodes import NODES, Array, Block, Node, Pulled, node
from ggpm.kernels.stationary import ExpSineSquaredNode, MaternNode
from ggpm.kernels.wrapping import Wrapping, WrappingNode

__all__ = ["Category", "Cyclic", "On", "Sphere", "chosen_columns", "unit_vectors"]

Names = str | int | Sequence[str | int]
Bounds = tuple[float, float] | str


def listed(columns: Names) -> list[str | int]:
    """Columns as a list, from one of them or several."""
    return [columns] if isinstance(columns, str | int | np.integer) else list(columns)


def chosen_columns(X: Any, columns: Names, at: Sequence[int] | None) -> Any:
    """The columns of X, an array or a data frame, that a kernel looks at.

    >>> chosen_columns(np.array([[1.0, 2.0, 3.0]]), 2, None)
    array([[3.]])
    """
    names = listed(columns)
    if at is None and hasattr(X, "columns"):
        if all(isinstance(name, str) for name in names):
            return np.asarray(X[names])
        X = np.asarray(X)
    if at is None and any(isinstance(name, str) for name in names):
        raise ValueError(
            f"the columns {', '.join(map(repr, names))} are known by name only: fit a ggpm estimator to a data "
            "frame, or give their numbers."
        )
    return np.atleast_2d(X)[:, [int(j) for j in (names if at is None else at)]]


class On(Wrapping):
    """A kernel that looks at some columns of X alone.

    Parameters
    ----------
    kernel : kernel of scikit-learn
    columns : name, number, or list of them
    at : tuple of numbers, optional
        Where these columns are in X; `fit` sets it.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> On(RBF(), 0)([[0.0, 5.0], [0.0, 7.0]])
    array([[1., 1.],
           [1., 1.]])
    >>> On(RBF(2.0), ["lat", "lon"]) + On(RBF(), "height")
    On(RBF(length_scale=2), ['lat', 'lon']) + On(RBF(length_scale=1), 'height')
    """

    def __init__(self, kernel: sk.Kernel, columns: Names, at: Sequence[int] | None = None) -> None:
        self.kernel = kernel
        self.columns = columns
        self.at = at

    def seen(self, X: Any) -> Any:
        """These columns of X."""
        return chosen_columns(X, self.columns, self.at)

    def __repr__(self) -> str:
        return f"On({self.kernel!r}, {self.columns!r})"


class Category(sk.NormalizedKernelMixin, sk.Kernel):
    """1 for rows of the same group, 0 for others: every group has a level of its own.

    Times another kernel every group has a curve of its own; times a constant, ``ConstantKernel() *
    Category("subject")``, the variance between groups is learned. With a length scale l groups are alike, and so are
    their curves: rows whose labels differ in d of the columns have ``exp(-d/(2 l²))``, an RBF of indicators.

    Parameters
    ----------
    columns : name, number, or list of them
        Rows are of one group where they agree in all of these.
    at : tuple of numbers, optional
        Where these columns are in X; `fit` sets it.
    length_scale : float, or one for each column, optional
        Without unit: far above 1 for labels that hardly matter. None: groups have nothing in common.
    length_scale_bounds : pair of floats or "fixed"
        It is held unless bounds are given.

    Examples
    --------
    >>> Category(1)([[0.5, 3.0], [0.7, 3.0], [0.5, 4.0]])
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.]])
    >>> Category([0, 1], length_scale=1.0)([[0.0, 3.0], [0.0, 4.0], [1.0, 4.0]]).round(3)
    array([[1.   , 0.607, 0.368],
           [0.607, 1.   , 0.607],
           [0.368, 0.607, 1.   ]])
    """

    def __init__(
        self, columns: Names, at: Sequence[int] | None = None, length_scale: Any = None,
        length_scale_bounds: Any = "fixed",
    ) -> None:  # fmt: skip
        self.columns = columns
        self.at = at
        self.length_scale = length_scale
        self.length_scale_bounds = length_scale_bounds

    @property
    def hyperparameter_length_scale(self) -> sk.Hyperparameter:
        """The length scale, or all of them."""
        return sk.Hyperparameter("length_scale", "numeric", self.length_scale_bounds, np.size(self.length_scale))

    @property
    def hyperparameters(self) -> list[sk.Hyperparameter]:
        """The length scale, where there is one."""
        return [] if self.length_scale is None else [self.hyperparameter_length_scale]

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        rows = chosen_columns(X, self.columns, self.at)
        columns = rows if Y is None else chosen_columns(Y, self.columns, self.at)
        if self.length_scale is None:
            K = _equal(rows, columns)
            return (K, np.empty((*K.shape, 0))) if eval_gradient else K
        parts = [unlike / length**2 for unlike, length in zip(_unlike(rows, columns), self.lengths(rows.shape[1]))]
        K = np.exp(-0.5 * sum(parts))
        if not eval_gradient:
            return K
        if self.n_dims < 2:
            parts = [sum(parts)][: self.n_dims]
        return K, np.stack([K * part for part in parts], axis=-1) if parts else np.empty((*K.shape, 0))

    def lengths(self, count: int) -> Array:
        """The length scale of each of so many columns."""
        if np.size(self.length_scale) not in (1, count):
            raise ValueError(
                f"Category needs one length scale, or one for each of its {count} column(s); got {self.length_scale!r}."
            )
        return np.broadcast_to(np.asarray(self.length_scale, dtype=np.float64), count)

    def of_columns(self, columns: Names, at: Sequence[int], keep: Sequence[int] | None = None) -> Category:
        """This kernel of other columns, or of those that are kept of its own."""
        length, bounds = self.length_scale, self.length_scale_bounds
        if keep is not None and np.size(length) > 1:
            length = np.asarray(length)[list(keep)]
            bounds = bounds if np.ndim(bounds) < 2 else np.asarray(bounds)[list(keep)]
        return Category(columns, at, length, bounds)

    def is_stationary(self) -> bool:
        """Whether k depends on differences alone: it does."""
        return True

    def __repr__(self) -> str:
        if self.length_scale is None:
            return f"Category({self.columns!r})"
        shown = ", ".join(f"{length:.3g}" for length in np.ravel(self.length_scale))
        return f"Category({self.columns!r}, length_scale={shown if np.ndim(self.length_scale) == 0 else f'[{shown}]'})"


def _equal(rows: NDArray, columns: NDArray, out: Array | None = None) -> Array:
    """1.0 where a row agrees with another in every column, (n, m)."""
    out = np.empty((len(rows), len(columns))) if out is None else out
    np.equal(rows[:, :1], columns[:, 0], out=out, casting="unsafe", dtype=None)
    for j in range(1, rows.shape[1]):
        out *= rows[:, j : j + 1] == columns[:, j]
    return out


def _unlike(rows: NDArray, columns: NDArray) -> Iterator[NDArray[np.bool_]]:
    """Whether a row differs from another in a column, (n, m), one column after the other."""
    return (a[:, None] != b for a, b in zip(rows.T, columns.T))


class MaternOfColumns(sk.NormalizedKernelMixin, sk.Kernel):
    """What kernels share that are Matérn's, with one length scale, of something made of the columns."""

    length_scale: float
    nu: float
    length_scale_bounds: Bounds

    @property
    def hyperparameter_length_scale(self) -> sk.Hyperparameter:
        """The length scale."""
        return sk.Hyperparameter("length_scale", "numeric", self.length_scale_bounds)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length_scale={np.ravel(self.length_scale)[0]:.3g}, nu={self.nu:.3g})"


class Sphere(MaternOfColumns):
    """Matérn kernel on the globe: X is two columns, latitude and longitude in degrees.

    Its distance is the chord through the globe, in radii; so it is positive definite for every ``nu``, which a Matérn
    kernel of distances along the surface is not.

    Parameters
    ----------
    length_scale : float
        In radii of the globe: 0.1 is 637 km on Earth.
    nu : float
        Smoothness, as in `sklearn.gaussian_process.kernels.Matern`.
    length_scale_bounds : pair of floats or "fixed"

    Examples
    --------
    >>> Sphere(1.0)([[90.0, 0.0], [90.0, 77.0], [-90.0, 0.0]]).round(3)  # one pole twice, and the other
    array([[1.  , 1.  , 0.14],
           [1.  , 1.  , 0.14],
           [0.14, 0.14, 1.  ]])
    """

    def __init__(
        self, length_scale: float = 1.0, nu: float = 1.5, length_scale_bounds: Bounds = (1e-5, 1e5)
    ) -> None:  # fmt: skip
        self.length_scale = length_scale
        self.nu = nu
        self.length_scale_bounds = length_scale_bounds

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        chord = sk.Matern(self.length_scale, self.length_scale_bounds, self.nu)
        return chord(unit_vectors(X), None if Y is None else unit_vectors(Y), eval_gradient=eval_gradient)

    def is_stationary(self) -> bool:
        """Whether k depends on differences of the columns alone: it does not."""
        return False


def unit_vectors(X: Any) -> Array:
    """Points on the unit sphere, (n, 3), from latitude and longitude in degrees, (n, 2).

    >>> unit_vectors([[90.0, 12.0]]).round(12)
    array([[0., 0., 1.]])
    """
    X = _columns_of(X, 2, "Sphere", "latitude and longitude")
    lat, lon = np.deg2rad(X).T
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


class Cyclic(sk.NormalizedKernelMixin, sk.Kernel):
    """Periodic kernel on one column, ``exp(-2 sin²(pi d/period)/l²)`` for a difference d.

    Parameters
    ----------
    period : float
        In units of the column; times are in hours, so that 24 is a day and 8766 a year. It is held unless bounds
        are given.
    length_scale : float
        Without unit: below 1 there are several bumps in a period, far above 1 nearly a sine.
    period_bounds, length_scale_bounds : pair of floats or "fixed"

    Examples
    --------
    >>> Cyclic(24)([[0.0], [24.0], [12.0]]).round(3)
    array([[1.   , 1.   , 0.135],
           [1.   , 1.   , 0.135],
           [0.135, 0.135, 1.   ]])
    """

    def __init__(
        self, period: float = 1.0, length_scale: float = 1.0, period_bounds: Bounds = "fixed",
        length_scale_bounds: Bounds = (1e-5, 1e5),
    ) -> None:  # fmt: skip
        self.period = period
        self.length_scale = length_scale
        self.period_bounds = period_bounds
        self.length_scale_bounds = length_scale_bounds

    @property
    def hyperparameter_length_scale(self) -> sk.Hyperparameter:
        """The length scale."""
        return sk.Hyperparameter("length_scale", "numeric", self.length_scale_bounds)

    @property
    def hyperparameter_period(self) -> sk.Hyperparameter:
        """The period."""
        return sk.Hyperparameter("period", "numeric", self.period_bounds)

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        X = _columns_of(X, 1, "Cyclic", "one column")
        wave = sk.ExpSineSquared(self.length_scale, self.period, self.length_scale_bounds, self.period_bounds)
        return wave(X, None if Y is None else np.atleast_2d(Y), eval_gradient=eval_gradient)

    def is_stationary(self) -> bool:
        """Whether k depends on differences alone: it does."""
        return True

    def __repr__(self) -> str:
        return f"Cyclic(period={self.period:.3g}, length_scale={self.length_scale:.3g})"


def _columns_of(X: Any, count: int, name: str, what: str) -> Array:
    X = np.atleast_2d(np.asarray(X, dtype=np.float64))
    if X.shape[1] != count:
        raise ValueError(
            f"{name} looks at {what}; got {X.shape[1]} columns. Choose them: On({name}(...), columns)."
        )  # fmt: skip
    return X


# ---- nodes ---------------------------------------------------------------------------------------------------------


class OnNode(WrappingNode):
    def __init__(self, kernel: Any, points: Distances) -> None:
        self.kernel, self.points = kernel, points
        chosen_columns(points.rows[:1], kernel.columns, kernel.at)  # says it where names are not known
        self.at = tuple(int(j) for j in (listed(kernel.columns) if kernel.at is None else kernel.at))
        self.inner = node(kernel.kernel, points.part(self.at))

    def carried_back(self, part: Array) -> Array:
        if self.inner.points is self.points:
            return part
        whole = np.zeros(self.points.columns.shape)
        for j, column in zip(self.at, part.T):  # a column may be named twice
            whole[:, j] += column
        return whole


class CategoryNode(Node):
    hyperparameters = ("length_scale",)

    def __init__(self, kernel: Any, points: Distances) -> None:
        super().__init__(kernel, points)
        self.rows = chosen_columns(points.rows, kernel.columns, kernel.at)
        self.columns = self.rows if points.square else chosen_columns(points.columns, kernel.columns, kernel.at)
        self.factors = None if kernel.length_scale is None else kernel.lengths(self.rows.shape[1]) ** -2.0

    def value(self, rows: slice, out: Array | None = None) -> Block:
        if self.factors is not None:
            out = self.block(rows) if out is None else out
            out.fill(0.0)
            for factor, unlike in zip(self.factors, self.unlike(rows)):
                out -= 0.5 * factor * unlike
            return np.exp(out, out=out)
        if isinstance(self.points, Pairs):
            return ~np.any(list(self.unlike(rows)), axis=0) * 1.0
        return _equal(self.rows[rows], self.columns, out)

    def unlike(self, rows: slice) -> Iterator[NDArray[np.bool_]]:
        """Whether points differ in a column, one column after the other."""
        if isinstance(self.points, Pairs):
            first, second = self.points.first[rows], self.points.second[rows]
            return (labels[first] != labels[second] for labels in self.rows.T)
        return _unlike(self.rows[rows], self.columns)

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        if not self.size:
            return np.zeros(0), None  # groups do not move
        H = G * (value if isinstance(value, np.ndarray) else self.value(rows))
        slopes = self.factors * np.array([H[unlike].sum() for unlike in self.unlike(rows)])
        return slopes if self.size > 1 else slopes.sum(keepdims=True), None


class SphereNode(MaternNode):
    def __init__(self, kernel: Any, points: Distances) -> None:
        super().__init__(kernel, points.embedded(unit_vectors))
        self.angles = np.deg2rad(points.columns)
        self.given = points

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        grad, g = super().pull(rows, G, value, inputs)
        if g is None:
            return grad, None
        (sin_lat, sin_lon), (cos_lat, cos_lon) = np.sin(self.angles).T, np.cos(self.angles).T
        lat = -sin_lat * (cos_lon * g[:, 0] + sin_lon * g[:, 1]) + cos_lat * g[:, 2]
        lon = cos_lat * (cos_lon * g[:, 1] - sin_lon * g[:, 0])
        return grad, np.deg2rad(np.stack([lat, lon], axis=1))

    def shared_diag(self) -> Array:
        return np.ones(len(self.given.rows))


class CyclicNode(ExpSineSquaredNode):
    hyperparameters = ("length_scale", "period")

    def __init__(self, kernel: Any, points: Distances) -> None:
        super().__init__(kernel, points)
        _columns_of(points.rows[:1], 1, "Cyclic", "one column")


NODES.update({On: OnNode, Category: CategoryNode, Sphere: SphereNode, Cyclic: CyclicNode})
