"""Scikit-learn's kernels with *pullbacks*: from the cotangent of K to the gradient of the objective.

For an objective L with G = dL/dK, `evaluate` gives K and the maps

    G  ->  dL/dtheta = sum_ij G_ij dK_ij/dtheta      (scikit-learn's free log-hyperparameters, in its order)
    G  ->  dL/dZ                                     (the points of the columns of K(X, Z))

in O(n m p) time, without the n×n×p array of ``kernel(X, eval_gradient=True)``. Everything runs over blocks of
rows that fit into the processor's cache. Nothing of size n×m is kept beside K except distances: those of
isotropic kernels do not depend on the hyperparameters and live in a `Distances` object that one fit shares;
those of a kernel with one length scale per feature live in its evaluation. A pullback takes the exponentials
of a block again, which costs no more than fetching them from memory would, and so does not need K: the
caller may overwrite it.

ConstantKernel, WhiteKernel, RBF, Matern, RationalQuadratic, ExpSineSquared, DotProduct, Sum, Product and
Exponentiation are known by their exact type. A subclass may compute anything, so it is treated like every
other kernel: by its own ``eval_gradient=True`` for K(X, X), and by central differences for K(X, Z).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from ggpm.data.checks import as_numbers
from ggpm.data.columns import Columns
from ggpm.kernels.defaults import default_kernel
from ggpm.kernels.distances import Distances
from ggpm.kernels.pullbacks import NODES, Array, is_free, node
from ggpm.kernels.structure import placed

__all__ = [
    "Distances",
    "KernelEvaluation",
    "RowVariance",
    "diag",
    "diag_pullback",
    "evaluate",
    "log_bounds",
    "log_hyper",
    "resolve_kernel",
    "with_log_hyper",
]

# Elements of one block of rows: half a megabyte, so that a few of them stay in the second-level cache.
BLOCK_SIZE = 65_536
# hyperparameters of scikit-learn's kernels that are divisors, and those that may be zero where they are fixed
POSITIVE = ("length_scale", "periodicity", "period", "alpha")
NOT_NEGATIVE = ("constant_value", "noise_level", "sigma_0")


class KernelEvaluation:
    """A kernel at given points: the matrix K and its pullbacks; see `evaluate`."""

    def __init__(self, kernel: sk.Kernel, points: Distances) -> None:
        self._node = node(kernel, points)
        self._points = points

    @cached_property
    def K(self) -> Array:
        """The kernel matrix (n, m), computed when first used, C-contiguous, and the caller's to overwrite."""
        return self.write(np.empty(self._points.shape))

    def write(self, out: Array) -> Array:
        """Write the kernel matrix into a buffer (n, m) and return it."""
        for rows in _blocks(self._points.shape):
            block = out[rows]
            value = self._node.value(rows, block)
            if value is not block:
                block[...] = value
        return out

    def pullback(self, G: Array) -> Array:
        """``dL/dtheta`` (p,) from ``G = dL/dK`` (n, m)."""
        return self._pull(G, inputs=False)[0]

    def pullback_inputs(self, G: Array) -> Array:
        """``dL/dZ`` (m, features) from ``G = dL/dK`` (n, m).

        Without Z it is ``dL/dX`` of K(X, X), where X enters as rows and as columns. Kernels with a kink at
        coincident points (Matern with nu <= 1/2) have gradient 0 there.
        """
        return self._pull(G, inputs=True)[1]

    def pullback_both(self, G: Array) -> tuple[Array, Array]:
        """``(dL/dtheta, dL/dZ)`` in one pass."""
        return self._pull(G, inputs=True)

    def _pull(self, G: Array, inputs: bool) -> tuple[Array, Array]:
        points, G = self._points, np.asarray(G, dtype=np.float64)
        if points.shape != G.shape:
            raise ValueError(f"The cotangent must have the shape of K, {points.shape}; got {G.shape}.")
        both_sides = points.square and inputs  # X moves rows and columns of K(X, X)
        # For symmetric dK/dtheta, G and G^T pull back to the same dL/dtheta.
        if points.square and G.flags.f_contiguous:
            G = G.T
        grad = np.zeros(self._node.size)
        grad_inputs = np.zeros(points.columns.shape if inputs else (0, 0))
        if grad.size == 0 and not inputs:
            return grad, grad_inputs
        for rows in _blocks(points.shape):
            G_block = G[rows] + G[:, rows].T if both_sides else np.ascontiguousarray(G[rows])
            g, g_inputs = self._node.pull(rows, G_block, None, inputs)
            grad += g
            if g_inputs is not None:
                grad_inputs += g_inputs
        return (0.5 * grad if both_sides else grad), grad_inputs


def evaluate(
    kernel: sk.Kernel, X: ArrayLike, Z: ArrayLike | None = None, cache: Distances | None = None
) -> KernelEvaluation:
    """Kernel matrix K(X, X), or K(X, Z), with its pullbacks.

    Parameters
    ----------
    kernel : scikit-learn kernel
    X : array (n, features)
    Z : array (m, features), optional
    cache : Distances, optional
        Of the same X and Z; shared by evaluations at different hyperparameters.

    Returns
    -------
    KernelEvaluation
        With ``K`` (n, m), ``pullback(G)`` (p,) and ``pullback_inputs(G)`` (m, features).

    Examples
    --------
    >>> X = np.array([[0.0], [1.0]])
    >>> at = evaluate(2.0 * sk.RBF(length_scale=1.0), X)
    >>> at.K.round(4)
    array([[2.    , 1.2131],
           [1.2131, 2.    ]])
    >>> at.pullback(np.ones((2, 2))).round(4)
    array([6.4261, 2.4261])
    """
    if cache is None:
        cache = Distances(X, Z)
    elif not cache.belongs_to(X, Z):
        raise ValueError(
            "The distances given as cache are those of other points: expected Distances(X, Z) of the same X "
            f"and Z, got one of shape {cache.shape}. Make one Distances for each set of points."
        )
    return KernelEvaluation(kernel, cache)


def diag(kernel: sk.Kernel, X: ArrayLike) -> Array:
    """Prior variances k(x_i, x_i), (n,).

    >>> diag(2.0 * sk.RBF(), np.zeros((3, 1)))
    array([2., 2., 2.])
    """
    return np.asarray(kernel.diag(X), dtype=np.float64)


def diag_pullback(kernel: sk.Kernel, X: ArrayLike, g: Array) -> Array:
    """Gradient of ``sum_i g_i k(x_i, x_i)`` in the kernel's free log-hyperparameters, (p,).

    >>> diag_pullback(2.0 * sk.RBF(), np.zeros((3, 1)), np.ones(3))
    array([6., 0.])
    """
    return node(kernel, Distances(X)).diag_pull(np.asarray(g, dtype=np.float64))


class RowVariance:
    """The prior variance of rows in its two parts: what a row shares with others at its place, and what is its own.

    ``shared`` (n,) is k(x, x') for another row x' = x; ``own`` (n,) is what `WhiteKernel` adds for the row itself, or
    None where no part of the kernel does. A kernel of a class that is not known here is taken to have none.

    >>> parts = RowVariance(2.0 * sk.RBF() + sk.WhiteKernel(0.5), np.zeros((2, 1)))
    >>> parts.shared, parts.own
    (array([2., 2.]), array([0.5, 0.5]))
    """

    def __init__(self, kernel: sk.Kernel, X: ArrayLike) -> None:
        self._node = node(kernel, Distances(X))
        self.shared = self._node.shared_diag()
        self.own = diag(kernel, X) - self.shared if self._node.has_noise else None

    def pullback(self, shared: Array, own: Array | None) -> Array:
        """Gradient in the free log-hyperparameters from the derivatives in both parts, (p,)."""
        if own is None:
            return self._node.shared_diag_pull(shared)
        return self._node.shared_diag_pull(shared - own) + self._node.diag_pull(own)


def resolve_kernel(
    kernel: Any,
    latent_dim: int,
    X: Array,
    columns: Columns | None = None,
    weight: Array | None = None,
    variance: float | tuple[float, ...] = 1.0,
) -> list[sk.Kernel]:
    """Kernels of the latent dimensions, as fresh clones with their columns found: one that all share, or one for each.

    None means `default_kernel`, with its scale from rows of some weight and its variances from ``variance``; several of
    these ask for one kernel each.

    >>> resolve_kernel(None, 3, np.array([[0.0], [4000.0], [8000.0]]))
    [1**2 * RBF(length_scale=4e+03) + 1**2]
    """
    columns = Columns(X.shape[1]) if columns is None else columns
    if kernel is None:
        variances = variance if isinstance(variance, tuple) else (variance,)
        return [placed(default_kernel(X, columns, weight, v), columns) for v in variances]
    if isinstance(kernel, list | tuple):
        for j, member in enumerate(kernel):
            _check_kernel(member, f"kernel[{j}]")
        if len(kernel) != latent_dim:
            raise ValueError(
                f"A list of kernels needs one for each latent dimension: expected {latent_dim}, got "
                f"{len(kernel)}. Give a list of that length, or a single kernel that all dimensions share."
            )
        return [placed(clone(member), columns) for member in kernel]
    _check_kernel(kernel, "kernel")
    return [placed(clone(kernel), columns)]


def _check_kernel(kernel: Any, name: str) -> None:
    if isinstance(kernel, sk.CompoundKernel):
        raise TypeError(
            f"{name} is a CompoundKernel, which is not a single covariance function: "
            "give its members as a list, kernel=compound.kernels, one for each latent dimension."
        )
    if not isinstance(kernel, sk.Kernel):
        got = f"the class {kernel.__name__}" if isinstance(kernel, type) else f"{kernel!r}"
        raise TypeError(
            f"{name} must be a kernel of scikit-learn, such as ConstantKernel() * RBF() from "
            f"sklearn.gaussian_process.kernels; got {got}. Use kernel=None for the default."
        )
    values = kernel.get_params()
    for h in kernel.hyperparameters:
        positive = not h.fixed or h.name.endswith(POSITIVE)
        if positive or h.name.endswith(NOT_NEGATIVE):  # others that are held fixed are their kernel's own affair
            what = "positive and finite" if positive else "zero or more and finite"
            value = as_numbers(values[h.name], f"{h.name} of {name}", what)
            if not np.all(np.isfinite(value) & ((value > 0) if positive else (value >= 0))):
                raise ValueError(f"{h.name} of {name} must be {what}; got {values[h.name]!r}.")
        if not h.fixed:
            what = '"fixed" or (low, high) with 0 <= low <= high'
            bounds = as_numbers(h.bounds, f"{h.name}_bounds of {name}", what)
            if bounds.shape[-1] != 2 or not np.all((bounds[:, 0] >= 0) & (bounds[:, 0] <= bounds[:, 1])):
                raise ValueError(f"{h.name}_bounds of {name} must be {what}; got {bounds.tolist()}.")


def log_hyper(kernels: Sequence[sk.Kernel]) -> Array:
    """Free log-hyperparameters of some kernels, one after the other, (p,).

    >>> log_hyper([sk.RBF(1.0), 1.0 * sk.RBF(1.0)])
    array([0., 0., 0.])
    """
    return np.concatenate([np.zeros(0), *(kernel.theta for kernel in kernels)])


def log_bounds(kernels: Sequence[sk.Kernel]) -> Array:
    """Bounds of `log_hyper`, (p, 2).

    >>> log_bounds([sk.RBF(1.0, (1.0, 1.0)), sk.RBF(1.0, "fixed")])
    array([[0., 0.]])
    """
    return np.concatenate([np.zeros((0, 2)), *(np.reshape(kernel.bounds, (-1, 2)) for kernel in kernels)])


def with_log_hyper(kernels: Sequence[sk.Kernel], values: Array) -> list[sk.Kernel]:
    """Copies of some kernels with other free log-hyperparameters (the inverse of `log_hyper`).

    >>> with_log_hyper([sk.RBF(1.0), 1.0 * sk.RBF(1.0)], np.log([2.0, 3.0, 4.0]))
    [RBF(length_scale=2), 1.73**2 * RBF(length_scale=4)]
    """
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        representable = np.isfinite(np.exp(2.0 * np.abs(values)))
    if not representable.all():  # a LinAlgError: a search retreats from there
        raise np.linalg.LinAlgError(
            f"log-hyperparameters must be numbers between -350 and 350, so that squares of their exponentials and of "
            f"the inverses exist; got {values.tolist()}."
        )
    changed, used = [], 0
    for kernel in kernels:
        kernel, count = _with_log_hyper(kernel, values[used:])
        changed.append(kernel)
        used += count
    if used != len(values):
        raise ValueError(f"Expected {used} log-hyperparameters for these kernels, got {len(values)}.")
    return changed


def _with_log_hyper(kernel: sk.Kernel, values: Array) -> tuple[sk.Kernel, int]:
    """The kernel with the first of the values, and how many it took; several times faster than a clone."""
    kind = type(kernel)
    if kind not in NODES:
        count = kernel.n_dims
        return kernel.clone_with_theta(values[:count]), count
    other, used = copy.copy(kernel), 0
    for name in NODES[kind].children:
        child, count = _with_log_hyper(getattr(kernel, name), values[used:])
        setattr(other, name, child)
        used += count
    for name in NODES[kind].hyperparameters:
        if is_free(kernel, name):
            count = np.size(getattr(kernel, name))
            if used + count > len(values):
                raise ValueError(f"Too few log-hyperparameters: {kernel} was left with {len(values)}.")
            setattr(other, name, np.exp(values[used : used + count] if count > 1 else values[used]))
            used += count
    return other, used


def _blocks(shape: tuple[int, int]) -> Iterator[slice]:
    step = max(1, BLOCK_SIZE // max(1, shape[1]))
    return (slice(start, min(start + step, shape[0])) for start in range(0, shape[0], step))
