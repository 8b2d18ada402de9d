"""What a node is: a kernel at some points by blocks of rows, with its pullbacks; `node` finds that of a kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels.distances import Distances, Pairs

Array = NDArray[np.float64]
Block = Array | float  # the rows of a kernel matrix; a number where they are constant
Pulled = tuple[Array, Array | None]  # dL/dtheta (size,) and dL/dZ (m, features), None for zero

# Step of central differences, relative: balances rounding (eps/h) and truncation (h^2).
DIFFERENCE_STEP = float(np.finfo(float).eps ** (1 / 3))


def is_free(kernel: sk.Kernel, name: str) -> bool:
    """Whether a hyperparameter is there, and not held."""
    bounds = getattr(kernel, name + "_bounds")
    return getattr(kernel, name) is not None and not (isinstance(bounds, str) and bounds == "fixed")


class Node:
    """A kernel at some points, evaluated by blocks of rows."""

    hyperparameters: ClassVar[tuple[str, ...]] = ()  # in scikit-learn's order
    children: ClassVar[tuple[str, ...]] = ()

    def __init__(self, kernel: Any, points: Distances) -> None:
        self.kernel = kernel
        self.points = points
        self.free = [is_free(kernel, name) for name in self.hyperparameters]
        sizes = (np.size(getattr(kernel, name)) for name in self.hyperparameters)
        self.size = sum(size for size, free in zip(sizes, self.free) if free)

    def value(self, rows: slice, out: Array | None = None) -> Block:
        """Rows of K: a number, or an array (in ``out`` if given) that belongs to the caller."""
        raise NotImplementedError

    def add_to(self, rows: slice, block: Array) -> Array:
        """Add rows of K to a block, in place."""
        block += self.value(rows)
        return block

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        """Contribution of some rows to both pullbacks; ``value`` is what `value` gives for them, if known."""
        raise NotImplementedError

    def diag_pull(self, g: Array) -> Array:
        """``dL/dtheta`` from the cotangent of the diagonal; zero for a stationary kernel."""
        return np.zeros(self.size)

    @property
    def has_noise(self) -> bool:
        """Whether some of the variance belongs to a row alone: k(x, x') is less for another row at the same place."""
        return False

    def shared_diag(self) -> Array:
        """The diagonal without what belongs to a row alone, (n,)."""
        return np.asarray(self.kernel.diag(self.points.X), dtype=np.float64)

    def shared_diag_pull(self, g: Array) -> Array:
        """``dL/dtheta`` from the cotangent of `shared_diag`."""
        return self.diag_pull(g)

    def block(self, rows: slice) -> Array:
        return np.empty((rows.stop - rows.start, self.points.shape[1]))


class Other(Node):
    """Any other kernel, through its own ``__call__`` and ``diag``.

    dK/dtheta is the kernel's own for K(X, X), an n×n×p array; where it has none, for K(X, Z), for the
    diagonal and for dK/dZ it is by central differences, with an error of about 1e-10 for smooth kernels.
    """

    def __init__(self, kernel: Any, points: Distances) -> None:
        self.kernel, self.points = kernel, points
        self.size = kernel.n_dims

    @cached_property
    def matrix(self) -> Array:
        K = np.asarray(self.call(self.kernel), dtype=np.float64)
        if K.shape != self.points.shape:
            name = type(self.kernel).__name__
            raise ValueError(f"{name} must give a matrix of shape {self.points.shape} here; got {K.shape}.")
        return K

    def call(self, kernel: Any) -> Any:
        if isinstance(self.points, Pairs):
            return self.points.call(kernel)
        return kernel(self.points.X) if self.points.square else kernel(self.points.X, self.points.Z)

    @cached_property
    def gradient(self) -> Array:
        """dK/dtheta, (n, m, p)."""
        if self.points.square and "eval_gradient" in inspect.signature(self.kernel.__call__).parameters:
            return np.asarray(self.kernel(self.points.X, eval_gradient=True)[1], dtype=np.float64)
        return np.stack(self.theta_differences(self.call), axis=-1)

    def theta_differences(self, function: Callable[[Any], Any]) -> list[Array]:
        """Central differences of a function of the kernel in every free log-hyperparameter."""
        theta, h = self.kernel.theta, DIFFERENCE_STEP
        return [
            (
                np.asarray(function(self.kernel.clone_with_theta(theta + step)), dtype=np.float64)
                - np.asarray(function(self.kernel.clone_with_theta(theta - step)), dtype=np.float64)
            )
            / (2.0 * h)
            for step in h * np.eye(len(theta))
        ]

    def value(self, rows: slice, out: Array | None = None) -> Block:
        out = self.block(rows) if out is None else out
        out[...] = self.matrix[rows]
        return out

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        grad = np.einsum("ij,ijp->p", G, self.gradient[rows]) if self.size else np.zeros(0)
        return grad, self._input_differences(rows, G) if inputs else None

    def _input_differences(self, rows: slice, G: Array) -> Array:
        """All columns move at once, one feature at a time: K_ij depends on no other point of Z than z_j."""
        X, Z = self.points.rows, self.points.columns
        grad = np.zeros(Z.shape)
        spread = np.maximum(np.ptp(X, axis=0), np.ptp(Z, axis=0))
        for f, h in enumerate(DIFFERENCE_STEP * np.where(spread > 0, spread, 1.0)):
            above, below = Z.copy(), Z.copy()
            above[:, f] += h
            below[:, f] -= h
            change = self.kernel(X[rows], above) - self.kernel(X[rows], below)
            grad[:, f] = np.einsum("ij,ij->j", G, change) / (above[:, f] - below[:, f])
        return grad

    def diag_pull(self, g: Array) -> Array:
        slopes = self.theta_differences(lambda kernel: kernel.diag(self.points.X))
        return np.array([g @ slope for slope in slopes])


NODES: dict[type, type[Node]] = {}
"""Nodes by the exact type of a kernel; the modules that have them enter them here."""


def node(kernel: sk.Kernel, points: Distances) -> Node:
    """The kernel's node at some points: that of its exact type, or `Other`."""
    return NODES.get(type(kernel), Other)(kernel, points)
