"""`RowOrder`: rows that follow each other in a table hang together, though no column says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels.distances import Distances
from ggpm.kernels.linalg import sum_of_products
from ggpm.kernels.pullbacks import NODES, Block, Node, Pulled

__all__ = ["RowOrder", "of_rows"]

Array = NDArray[np.float64]
Bounds = tuple[float, float] | str

LENGTH_BOUNDS = (1.0, 30.0)  # rows: shorter is noise of each row, longer a drift that a column should tell


class RowOrder(sk.NormalizedKernelMixin, sk.Kernel):
    """``exp(-|i - j| / length_scale)`` for rows number i and j of one table; rows of two tables have nothing in common.

    What the days of one storm or the visits of one patient share, without a column that says which they are. To new
    rows it adds its variance, as `sklearn.gaussian_process.kernels.WhiteKernel` does. Inducing points and
    neighbours take it for such noise: they know no order.

    Parameters
    ----------
    length_scale : float
        In rows.
    length_scale_bounds : pair of floats or "fixed"
    rows : numbers of the rows, for some rows of a table; None for all of them

    Examples
    --------
    >>> RowOrder(2.0)(np.zeros((3, 1))).round(3)
    array([[1.   , 0.607, 0.368],
           [0.607, 1.   , 0.607],
           [0.368, 0.607, 1.   ]])
    >>> RowOrder(2.0)(np.zeros((3, 1)), np.zeros((1, 1))).ravel()
    array([0., 0., 0.])
    """

    def __init__(
        self, length_scale: float = 3.0, length_scale_bounds: Bounds = LENGTH_BOUNDS, rows: Sequence[int] | None = None
    ) -> None:
        self.length_scale = length_scale
        self.length_scale_bounds = length_scale_bounds
        self.rows = rows

    @property
    def hyperparameter_length_scale(self) -> sk.Hyperparameter:
        """The length scale."""
        return sk.Hyperparameter("length_scale", "numeric", self.length_scale_bounds)

    def numbers(self, n: int) -> Array:
        """Numbers of the rows of a table of n."""
        return np.asarray(self.rows if self.rows is not None and len(self.rows) == n else range(n), dtype=np.float64)

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        at = OrderNode(self, Distances(X, Y))
        K = at.value(slice(0, at.points.shape[0]))
        if not eval_gradient:
            return K
        return K, at.steps(slice(0, len(K)))[:, :, None] * K[:, :, None] if at.size else np.empty((*K.shape, 0))

    def is_stationary(self) -> bool:
        """Whether k depends on differences of X alone: it does not depend on X."""
        return True

    def __repr__(self) -> str:
        return f"RowOrder(length_scale={np.ravel(self.length_scale)[0]:.3g})"


def of_rows(kernel: sk.Kernel, rows: NDArray[np.intp] | None) -> sk.Kernel:
    """A kernel for some rows of its table, by their numbers; for all of them again with None.

    >>> of_rows(2.0 * RowOrder(1.0), np.array([0, 5]))(np.zeros((2, 1))).round(3)
    array([[2.   , 0.013],
           [0.013, 2.   ]])
    """
    if isinstance(kernel, RowOrder):
        return RowOrder(kernel.length_scale, kernel.length_scale_bounds, None if rows is None else tuple(rows.tolist()))
    if isinstance(kernel, sk.KernelOperator):
        first, second = of_rows(kernel.k1, rows), of_rows(kernel.k2, rows)
        return kernel if first is kernel.k1 and second is kernel.k2 else type(kernel)(first, second)
    return kernel


class OrderNode(Node):
    hyperparameters = ("length_scale",)

    def steps(self, rows: slice) -> Array:
        """How many length scales rows are apart."""
        number = self.kernel.numbers(len(self.points.X)) / float(self.kernel.length_scale)
        return np.abs(number[rows, None] - number)

    def value(self, rows: slice, out: Array | None = None) -> Array:
        out = self.block(rows) if out is None else out
        if self.points.square:
            return np.exp(-self.steps(rows), out=out)
        out.fill(0.0)
        self.points.add_own(rows, out, 1.0)
        return out

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        if not (self.size and self.points.square):
            return np.zeros(self.size), None
        steps = self.steps(rows)
        return np.array([sum_of_products(G, steps * np.exp(-steps))]), None

    @property
    def has_noise(self) -> bool:
        return True

    def shared_diag(self) -> Array:
        return np.zeros(len(self.points.X))


NODES[RowOrder] = OrderNode
