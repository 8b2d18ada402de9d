"""`Additive`: sums of functions of single columns."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels.columns import MaternOfColumns
from ggpm.kernels.distances import Distances, Pairs
from ggpm.kernels.linalg import mirror, sum_of_products
from ggpm.kernels.nodes import NODES, Block, Node, Pulled
from ggpm.kernels.stationary import MaternNode

__all__ = ["Additive"]

Array = NDArray[np.float64]

# Rows up to which a sum and its slope are kept between value and pullback: two matrices, 64 MB together.
KEPT_ROWS = 2000
STRIP = 32  # rows whose sums stay in the second-level cache


class Additive(MaternOfColumns):
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


class AdditiveNode(Node):
    """A sum over columns and its slope in the log length scale, which have their exponentials in common.

    Of a matrix K(X, X) both are made at once, from its lower triangle, and kept for the pullback.
    """

    hyperparameters = ("length_scale",)

    def __init__(self, kernel: Any, points: Distances) -> None:
        super().__init__(kernel, points)
        self.one = MaternNode(sk.Matern(kernel.length_scale, kernel.length_scale_bounds, kernel.nu), points)
        self.length, self.count = float(kernel.length_scale), points.rows.shape[1]

    @cached_property
    def kept(self) -> tuple[Array, Array] | None:
        """K and its slope of few rows of K(X, X), (n, n); else None."""
        n = len(self.points.rows)
        if not self.points.square or n > KEPT_ROWS:
            return None
        K, slope = np.empty((n, n)), np.empty((n, n))
        for start in range(0, n, STRIP):
            rows, here = slice(start, min(start + STRIP, n)), slice(min(start + STRIP, n))  # up to the diagonal
            buffers, sums = np.empty((3, rows.stop - start, here.stop)), np.zeros((2, rows.stop - start, here.stop))
            for column in self.points.rows.T:
                np.subtract.outer(column[rows], column[here], out=buffers[0])
                self._add(buffers, *sums)
            K[rows, here], slope[rows, here] = sums / self.count
        mirror(K)
        mirror(slope)
        return K, slope

    def _add(self, buffers: Array, k: Array, slope: Array | None) -> None:
        """Add the kernel of differences, which are in the first of three buffers, and its slope in log l.

        With a = sqrt(2 nu) |x - z|/l (RBF: |x - z|/l) and e = exp(-a) they are (GPML eq. 4.17)

            nu = 1/2   e                  a e
            nu = 3/2   (1 + a) e          a² e
            nu = 5/2   (1 + a + a²/3) e   a²/3 (1 + a) e
            RBF        exp(-a²/2)         a² exp(-a²/2)
        """
        a, e, t = buffers
        nu = self.kernel.nu
        if nu not in (0.5, 1.5, 2.5, np.inf):
            np.square(a, out=a)
            self.one.profile(a, self.length**-2, e)
            k += e
            if slope is not None:
                slope += self.one.slopes(a, self.length**-2, e)[0] * a / self.length**2
            return
        a *= 1.0 / self.length if nu == np.inf else np.sqrt(2.0 * nu) / self.length
        np.abs(a, out=a)
        if nu == np.inf:
            a *= a
            np.multiply(a, -0.5, out=e)
        else:
            np.negative(a, out=e)
        np.exp(e, out=e)
        if nu in (0.5, np.inf):
            k += e
            a *= e
        elif nu == 1.5:
            np.multiply(a, e, out=t)
            k += e
            k += t
            a *= t
        else:
            np.multiply(a, a, out=t)
            t *= 1.0 / 3.0
            a += 1.0
            a *= e  # (1 + a) e
            k += a
            e *= t
            k += e
            a *= t
        if slope is not None:
            slope += a

    def differences(self, f: int, rows: slice, out: Array) -> Array:
        if isinstance(self.points, Pairs):
            out[...] = self.points.differences(f, rows)
            return out
        return np.subtract.outer(self.points.rows[rows, f], self.points.columns[:, f], out=out)

    def value(self, rows: slice, out: Array | None = None) -> Block:
        out = self.block(rows) if out is None else out
        if self.kept is not None:
            out[...] = self.kept[0][rows]
            return out
        out.fill(0.0)
        buffers = np.empty((3, *out.shape))
        for f in range(self.count):
            self.differences(f, rows, buffers[0])
            self._add(buffers, out, None)
        out /= self.count
        return out

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        if not (self.size or inputs):
            return np.zeros(0), None
        if self.kept is not None and not inputs:
            return np.array([sum_of_products(G, self.kept[1][rows])]), None
        length, moved = 0.0, np.zeros((self.points.shape[1], self.count)) if inputs else None
        buffers, k, difference = np.empty((3, *G.shape)), np.zeros_like(G), np.empty_like(G)
        for f in range(self.count):
            self.differences(f, rows, difference)
            slope = np.zeros_like(G)
            buffers[0] = difference
            self._add(buffers, k, slope)
            slope *= G
            length += slope.sum()
            if moved is not None:
                difference[difference == 0.0] = np.inf  # dk/dz = slope / (x - z), 0 where points coincide
                moved[:, f] = np.sum(slope / difference, axis=0)
        grad = np.array([length / self.count] if self.size else [])
        return grad, None if moved is None else moved / self.count


NODES[Additive] = AdditiveNode
