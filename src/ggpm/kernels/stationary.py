"""Nodes of stationary kernels: profiles of the scaled distance, with gradients through one weight."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma, kv

from ggpm.kernels.distances import Pairs
from ggpm.kernels.linalg import product, sum_of_products
from ggpm.kernels.nodes import Block, Node, Pulled

Array = NDArray[np.float64]

# sum_ij H_ij (a_i - b_j)^2 is a matrix product while |a|, |b| stay below this many length scales (it then
# loses at most 4 of 16 digits to cancellation); beyond, differences are taken one feature at a time.
SPREAD_MAX = 100.0


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
    """``k = exp(-r²/2)``."""

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
