"""Kernels by blocks of rows: values and pullbacks of each kernel type.

Each class below evaluates one type of kernel for some rows of K(X, Z) and carries the cotangent of those rows
back to the kernel's free log-hyperparameters and to Z. `ggpm.kernels` is the door to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma, kv
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels.distances import Distances, Pairs
from ggpm.kernels.linalg import product, sum_of_products

Array = NDArray[np.float64]
Block = Array | float  # the rows of a kernel matrix; a number where they are constant

# sum_ij H_ij (a_i - b_j)^2 is a matrix product while |a|, |b| stay below this many length scales (it then
# loses at most 4 of 16 digits to cancellation); beyond, differences are taken one feature at a time.
SPREAD_MAX = 100.0

# Step of central differences, relative: balances rounding (eps/h) and truncation (h^2).
DIFFERENCE_STEP = float(np.finfo(float).eps ** (1 / 3))
Pulled = tuple[Array, Array | None]  # dL/dtheta (size,) and dL/dZ (m, features), None for zero


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


class ConstantNode(Node):
    hyperparameters = ("constant_value",)

    def value(self, rows: slice, out: Array | None = None) -> Block:
        return float(self.kernel.constant_value)

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        return self.diag_pull(G), None

    def diag_pull(self, g: Array) -> Array:
        return np.array([self.kernel.constant_value * g.sum()] if self.size else [])


class WhiteNode(Node):
    hyperparameters = ("noise_level",)

    def value(self, rows: slice, out: Array | None = None) -> Block:
        out = self.block(rows) if out is None else out
        out.fill(0.0)
        return self.add_to(rows, out)

    def add_to(self, rows: slice, block: Array) -> Array:
        self.points.add_own(rows, block, self.kernel.noise_level)
        return block

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        return self.diag_pull(np.array([self.points.own_sum(rows, G)])), None

    def diag_pull(self, g: Array) -> Array:
        return np.array([self.kernel.noise_level * g.sum()] if self.size else [])

    @property
    def has_noise(self) -> bool:
        return True

    def shared_diag(self) -> Array:
        return np.zeros(len(self.points.X))

    def shared_diag_pull(self, g: Array) -> Array:
        return np.zeros(self.size)


class DotProductNode(Node):
    hyperparameters = ("sigma_0",)

    def value(self, rows: slice, out: Array | None = None) -> Block:
        return np.add(self.points.inner[rows], self.kernel.sigma_0**2, out=out)

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        return self.diag_pull(G), product(G.T, self.points.rows[rows]) if inputs else None

    def diag_pull(self, g: Array) -> Array:
        return np.array([2.0 * self.kernel.sigma_0**2 * g.sum()] if self.size else [])


class Stationary(Node):
    """A profile k(r²) of the scaled distance, r² = sum_f (x_f - z_f)² / l_f².

    All gradients in the scale l and the inputs go through the weight w = -2 dk/dr²:

        dk/dlog l_f = w (x_f - z_f)² / l_f²,        dk/dz_f = -w (z_f - x_f) / l_f²

    Where the slope is infinite at r = 0 (Matern with nu < 1) w is set to 0 there: r² w is 0 in the limit, so
    that the gradient in l is exact. The last hyperparameter is the scale; a shape parameter comes before it.
    """

    @cached_property
    def scale(self) -> Array:
        """Length scale: () or (features,)."""
        scale = np.squeeze(np.asarray(getattr(self.kernel, self.hyperparameters[-1]), dtype=np.float64))
        if scale.ndim and scale.shape != self.points.rows.shape[1:]:
            raise ValueError(
                f"{type(self.kernel).__name__} has {scale.size} length scales but X has "
                f"{self.points.rows.shape[1]} features: give one number, or one for each feature."
            )
        return scale

    @cached_property
    def scaled_points(self) -> tuple[Array, Array]:
        """Centred rows and columns in units of the length scale."""
        rows, columns = self.points.centred
        columns = columns / self.scale
        return (columns if self.points.square else rows / self.scale), columns

    @cached_property
    def squared(self) -> tuple[Array, float]:
        """Squared distances (n, m), shared if isotropic, and the factor that makes them r²."""
        if self.scale.ndim == 0:
            return self.points.squared, float(self.scale) ** -2
        return self.points.scaled(self.scale), 1.0

    def value(self, rows: slice, out: Array | None = None) -> Array:
        squared, factor = self.squared
        out = self.block(rows) if out is None else out
        self.profile(squared[rows], factor, out)
        return out

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        if not (self.size or inputs):
            return np.zeros(0), None
        if not isinstance(value, np.ndarray):
            value = self.value(rows)
        squared, factor = self.squared
        weight, shape = self.slopes(squared[rows], factor, value)
        grad = [sum_of_products(G, shape)] if shape is not None else []
        H = G * weight
        if self.free[-1]:
            if self.scale.ndim == 0:
                grad.append(factor * sum_of_products(H, squared[rows]))
            else:
                grad.extend(self._squared_differences(rows, H))
        if not inputs:
            return np.array(grad), None
        A, B = self.scaled_points
        return np.array(grad), (product(H.T, A[rows]) - H.sum(axis=0)[:, None] * B) / self.scale

    def _squared_differences(self, rows: slice, H: Array) -> Array:
        """``sum_ij H_ij (a_if - b_jf)²`` for every feature f, with a and b in length scales."""
        if isinstance(self.points, Pairs):
            features = enumerate(self.scale)
            return np.array([sum_of_products(H, (self.points.differences(f, rows) / l) ** 2) for f, l in features])
        A, B = self.scaled_points[0][rows], self.scaled_points[1]
        sums = H.sum(axis=1) @ A**2 + H.sum(axis=0) @ B**2 - 2.0 * np.einsum("if,if->f", A, product(H, B))
        for f in np.flatnonzero(~self._near):
            difference = A[:, f, None] - B[:, f]
            difference *= difference
            sums[f] = sum_of_products(H, difference)
        return sums

    @cached_property
    def _near(self) -> NDArray[np.bool_]:
        A, B = self.scaled_points
        return np.maximum(np.abs(A).max(axis=0), np.abs(B).max(axis=0)) <= SPREAD_MAX

    def profile(self, squared: Array, factor: float, out: Array) -> None:
        """Write k(r²) for r² = factor * squared into ``out``."""
        raise NotImplementedError

    def slopes(self, squared: Array, factor: float, k: Array) -> tuple[Array, Array | None]:
        """The weight w, and dk/dlog(shape parameter) if there is a free one."""
        raise NotImplementedError


class RBFNode(Stationary):
    hyperparameters = ("length_scale",)

    def profile(self, squared: Array, factor: float, out: Array) -> None:
        np.multiply(squared, -0.5 * factor, out=out)
        np.exp(out, out=out)

    def slopes(self, squared: Array, factor: float, k: Array) -> tuple[Array, Array | None]:
        return k, None


class MaternNode(RBFNode):
    """``k = 2^(1-nu)/Gamma(nu) a^nu K_nu(a)``, ``a = sqrt(2 nu) r``; closed forms as in GPML eq. (4.17).

    ``d(a^nu K_nu)/da = -a^nu K_(nu-1)`` gives ``w = 2 nu 2^(1-nu)/Gamma(nu) a^(nu-1) K_(nu-1)(a)``.
    """

    def _a(self, squared: Array, factor: float, out: Array | None = None) -> Array:
        a = np.multiply(squared, 2.0 * self.kernel.nu * factor, out=out)
        return np.sqrt(a, out=a)

    def profile(self, squared: Array, factor: float, out: Array) -> None:
        nu = self.kernel.nu
        if nu == np.inf:
            return super().profile(squared, factor, out)
        a = self._a(squared, factor, out)
        if nu in (0.5, 1.5, 2.5):
            decay = np.negative(a)
            np.exp(decay, out=decay)
            if nu == 0.5:
                a.fill(1.0)
            elif nu == 2.5:
                a += a * a / 3.0
            if nu != 0.5:
                a += 1.0
            a *= decay
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                a[...] = 2.0 ** (1.0 - nu) / gamma(nu) * a**nu * kv(nu, a)
            a[~np.isfinite(a)] = 1.0  # K_nu overflows only where k is 1 to working precision
        return None

    def slopes(self, squared: Array, factor: float, k: Array) -> tuple[Array, Array | None]:
        nu = self.kernel.nu
        if nu == np.inf:
            return k, None
        a = self._a(squared, factor)
        if nu == 1.5:
            a += 1.0
            return np.divide(3.0 * k, a, out=a), None
        if nu == 2.5:
            return k * (1.0 + a) / (0.6 + a * (0.6 + 0.2 * a)), None
        if nu == 0.5:
            a[a == 0.0] = np.inf
            return np.divide(k, a, out=a), None
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            a = 2.0 * nu * 2.0 ** (1.0 - nu) / gamma(nu) * a ** (nu - 1.0) * kv(nu - 1.0, a)
        a[~np.isfinite(a)] = 0.0
        return a, None


class RationalQuadraticNode(Stationary):
    """``k = (1 + t)^-alpha``, ``t = r²/(2 alpha)``."""

    hyperparameters = ("alpha", "length_scale")

    def profile(self, squared: Array, factor: float, out: Array) -> None:
        alpha = float(self.kernel.alpha)
        np.multiply(squared, 0.5 * factor / alpha, out=out)
        np.log1p(out, out=out)
        out *= -alpha
        np.exp(out, out=out)

    def slopes(self, squared: Array, factor: float, k: Array) -> tuple[Array, Array | None]:
        alpha = float(self.kernel.alpha)
        t = squared * (0.5 * factor / alpha)
        shape = alpha * k * (t / (1.0 + t) - np.log1p(t)) if self.free[0] else None
        t += 1.0
        return np.divide(k, t, out=t), shape


class ExpSineSquaredNode(Stationary):
    """``k = exp(-2 sin²(pi r)/l²)``: the period is the scale of r, and l is a shape parameter.

    k and its slopes have period 1 in r; whole periods are taken off first: sines of small angles are faster.
    """

    hyperparameters = ("length_scale", "periodicity")

    def _angle(self, squared: Array, factor: float, out: Array | None = None) -> Array:
        angle = np.multiply(squared, factor, out=out)
        np.sqrt(angle, out=angle)
        angle -= np.rint(angle)
        angle *= np.pi
        return angle

    def profile(self, squared: Array, factor: float, out: Array) -> None:
        self._angle(squared, factor, out)
        np.sin(out, out=out)
        out /= self.kernel.length_scale
        out *= out
        out *= -2.0
        np.exp(out, out=out)

    def slopes(self, squared: Array, factor: float, k: Array) -> tuple[Array, Array | None]:
        angle = self._angle(squared, factor)
        sine = np.sin(angle)
        scaled = 4.0 / float(self.kernel.length_scale) ** 2 * sine * k
        shape = scaled * sine if self.free[0] else None
        scaled *= np.cos(angle, out=angle)
        r = np.sqrt(squared * (factor / np.pi**2), out=angle)  # r / pi
        r[r == 0.0] = np.inf
        return np.divide(scaled, r, out=r), shape


class Operator(Node):
    children = ("k1", "k2")

    def __init__(self, kernel: Any, points: Distances) -> None:
        self.kernel, self.points = kernel, points
        self.k1, self.k2 = node(kernel.k1, points), node(kernel.k2, points)
        self.size = self.k1.size + self.k2.size

    @property
    def has_noise(self) -> bool:
        return self.k1.has_noise or self.k2.has_noise


class SumNode(Operator):
    def value(self, rows: slice, out: Array | None = None) -> Block:
        first = self.k1.value(rows, out)
        if isinstance(first, np.ndarray):
            return self.k2.add_to(rows, first)
        second = self.k2.value(rows, out)
        second += first
        return second

    def add_to(self, rows: slice, block: Array) -> Array:
        return self.k2.add_to(rows, self.k1.add_to(rows, block))

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        return _joined(self.k1.pull(rows, G, None, inputs), self.k2.pull(rows, G, None, inputs))

    def diag_pull(self, g: Array) -> Array:
        return np.concatenate([self.k1.diag_pull(g), self.k2.diag_pull(g)])

    def shared_diag(self) -> Array:
        return self.k1.shared_diag() + self.k2.shared_diag()

    def shared_diag_pull(self, g: Array) -> Array:
        return np.concatenate([self.k1.shared_diag_pull(g), self.k2.shared_diag_pull(g)])


class ProductNode(Operator):
    def value(self, rows: slice, out: Array | None = None) -> Block:
        first = self.k1.value(rows, out)
        if isinstance(first, np.ndarray):
            first *= self.k2.value(rows)
            return first
        second = self.k2.value(rows, out)
        second *= first
        return second

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        first, second = self.k1.value(rows), self.k2.value(rows)
        return _joined(
            _pull_scaled(self.k1, rows, G, second, first, inputs),
            _pull_scaled(self.k2, rows, G, first, second, inputs),
        )

    def diag_pull(self, g: Array) -> Array:
        first, second = self.kernel.k1.diag(self.points.X), self.kernel.k2.diag(self.points.X)
        return np.concatenate([self.k1.diag_pull(g * second), self.k2.diag_pull(g * first)])

    def shared_diag(self) -> Array:
        return self.k1.shared_diag() * self.k2.shared_diag()

    def shared_diag_pull(self, g: Array) -> Array:
        first, second = self.k1.shared_diag(), self.k2.shared_diag()
        return np.concatenate([self.k1.shared_diag_pull(g * second), self.k2.shared_diag_pull(g * first)])


class ExponentiationNode(Node):
    children = ("kernel",)

    def __init__(self, kernel: Any, points: Distances) -> None:
        self.kernel, self.points = kernel, points
        self.base = node(kernel.kernel, points)
        self.size = self.base.size

    def value(self, rows: slice, out: Array | None = None) -> Block:
        base = self.base.value(rows, out)
        base **= self.kernel.exponent
        return base

    def pull(self, rows: slice, G: Array, value: Block | None, inputs: bool) -> Pulled:
        base, exponent = self.base.value(rows), self.kernel.exponent
        return _pull_scaled(self.base, rows, G, exponent * base ** (exponent - 1), base, inputs)

    def diag_pull(self, g: Array) -> Array:
        base, exponent = self.kernel.kernel.diag(self.points.X), self.kernel.exponent
        return self.base.diag_pull(g * exponent * base ** (exponent - 1))

    @property
    def has_noise(self) -> bool:
        return self.base.has_noise

    def shared_diag(self) -> Array:
        return self.base.shared_diag() ** self.kernel.exponent

    def shared_diag_pull(self, g: Array) -> Array:
        base, exponent = self.base.shared_diag(), self.kernel.exponent
        return self.base.shared_diag_pull(g * exponent * base ** (exponent - 1))


def _pull_scaled(node: Node, rows: slice, G: Array, factor: Block, value: Block, inputs: bool) -> Pulled:
    """Pull ``factor * G`` back; a constant factor is taken out, as pullbacks are linear."""
    if not (node.size or inputs):
        return np.zeros(0), None
    if isinstance(factor, np.ndarray):
        return node.pull(rows, G * factor, value, inputs)
    grad, grad_inputs = node.pull(rows, G, value, inputs)
    return factor * grad, None if grad_inputs is None else factor * grad_inputs


def _joined(first: Pulled, second: Pulled) -> Pulled:
    grad = np.concatenate([first[0], second[0]])
    if first[1] is None or second[1] is None:
        return grad, second[1] if first[1] is None else first[1]
    return grad, first[1] + second[1]


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


NODES: dict[type, type[Node]] = {
    sk.ConstantKernel: ConstantNode,
    sk.WhiteKernel: WhiteNode,
    sk.DotProduct: DotProductNode,
    sk.RBF: RBFNode,
    sk.Matern: MaternNode,
    sk.RationalQuadratic: RationalQuadraticNode,
    sk.ExpSineSquared: ExpSineSquaredNode,
    sk.Sum: SumNode,
    sk.Product: ProductNode,
    sk.Exponentiation: ExponentiationNode,
}


def node(kernel: sk.Kernel, points: Distances) -> Node:
    return NODES.get(type(kernel), Other)(kernel, points)
