"""Averages over an uncertain direction and concentration, along rays: many rows at a time.

Latents are (a, b, c) ~ N(mean, cov), the concentration is given by log k = c + log(rho/sqrt(1 + rho^2)) for
rho = |(a, b)|. Coordinates are those of `ggpm.families.special.turned`: the angle of a ray, the radius
rho = s log(1 + e^u) on it, s its own standard deviation there, and log k. All three have equal steps, in a variable in
which integrands are smooth and vanish at both ends, or are periodic; nodes without weight are left out. So the place
about which the direction turns, where a and b vanish, is no harder than others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.stable import HALF_LOG_2PI
from ggpm.families.special.steps import LARGEST, log_needle, resultant

Array = NDArray[np.float64]

_ABOUT = 8.0  # root of the concentration up to which angles are even on the circle; then they are closer about y
_LOWEST, _REACH, _RADII = -7.0, 6.0, 28  # first u, standard deviations of a radius, and the number of radii
# Steps and reach of the standard normal of log k, and the largest step of log k itself.
_STEP, _HEIGHT, _UNIT_STEP = 0.8, 5.5, 0.7
_NOTHING = 25.0  # logarithm of weights that do not count beside the largest
# What halves of the nodes may differ by, relative: angles and radii, whose sums are off by the square of it, and log k,
# for which it is the fourth power.
APART = np.array([1e-4, 3e-4, 5e-3])


@dataclass(frozen=True)
class _Nodes:
    """Nodes of all rows one after the other, (S,)."""

    row: NDArray[np.intp]
    angle: NDArray[np.intp]
    radius: NDArray[np.intp]
    cos: Array
    """Of the angle from the row's origin of angles, as the next two."""
    sin: Array
    half: Array
    """(1 - cos)/2."""
    log_k: Array
    """Mean of log k for the node's direction."""
    sd: Array
    """Standard deviation of log k."""
    weight: Array
    count: int
    """Rows."""

    def average(self, function: Callable[[Array], Array], factors: list[Array]) -> tuple[Array, Array]:
        """Averages (k, F) of a function of log k (S,) times each of some factors, and what halves differ by (k, 3)."""
        size = int(np.ceil(_HEIGHT / min(_STEP, _UNIT_STEP / max(float(self.sd.max()), 1e-300))))
        z = np.linspace(-_HEIGHT, _HEIGHT, 2 * size + 1)
        heights = np.exp(-0.5 * z**2)
        values = np.zeros((2, len(self.row)))
        for j, (x, height) in enumerate(zip(z, heights / heights.sum(), strict=True)):
            values[j % 2] += height * function(self.log_k + x * self.sd)
        even, odd = values * self.weight
        signs = (2 * (self.angle % 2) - 1, 2 * (self.radius % 2) - 1)
        total, apart = np.empty((self.count, len(factors))), np.zeros((self.count, 3))
        for j, factor in enumerate(factors):
            whole = (even + odd) * factor
            total[:, j] = np.bincount(self.row, whole, self.count)
            for i, part in enumerate((whole * signs[0], whole * signs[1], (even - odd) * factor)):
                apart[:, i] = np.maximum(apart[:, i], np.abs(np.bincount(self.row, part, self.count)))
        return total, apart


def ray_densities(mean: Array, cov: Array, y: Array, angles: int) -> tuple[Array, NDArray[np.bool_]]:
    """log of 2 pi E[p(y)], (k,), for y in radians, and whether so many rays are enough for seven digits."""
    about = np.minimum(1.0, _ABOUT * np.exp(-0.5 * (mean[:, 2] + 2.0 * np.sqrt(cov[:, 2, 2]))))
    nodes = _nodes(mean, cov, y, about, angles)
    lost = 2.0 * nodes.half

    def density(log_k: Array) -> Array:
        k = np.exp(np.minimum(log_k, LARGEST))
        k *= lost
        return np.exp(log_needle(log_k) - k)

    total, apart = nodes.average(density, [np.ones(1)])
    with np.errstate(divide="ignore"):
        return np.log(total[:, 0]), np.all(apart <= APART * total, axis=1)


def ray_moments(mean: Array, cov: Array, angles: int) -> tuple[Array, NDArray[np.bool_]]:
    """E[A(k) (cos, sin)], (k, 2), and whether so many rays are enough."""
    origin = np.arctan2(mean[:, 1], mean[:, 0])
    nodes = _nodes(mean, cov, origin, np.ones(len(mean)), angles)
    total, apart = nodes.average(resultant, [nodes.cos, nodes.sin])
    c, s = np.cos(origin), np.sin(origin)
    turned = np.stack([c * total[:, 0] - s * total[:, 1], s * total[:, 0] + c * total[:, 1]], axis=1)
    return turned, np.all(apart <= APART, axis=1)


def _nodes(mean: Array, cov: Array, origin: Array, about: Array, angles: int) -> _Nodes:
    m, k, (Vaa, Vab, Vbb) = mean.T, len(mean), (cov[:, 0, 0], cov[:, 0, 1], cov[:, 1, 1])
    det = Vaa * Vbb - Vab**2
    Paa, Pab, Pbb = Vbb / det, -Vab / det, Vaa / det
    gain_a, gain_b = Paa * cov[:, 0, 2] + Pab * cov[:, 1, 2], Pab * cov[:, 0, 2] + Pbb * cov[:, 1, 2]
    sd = np.sqrt(np.maximum(cov[:, 2, 2] - gain_a * cov[:, 0, 2] - gain_b * cov[:, 1, 2], 0.0))
    # rays (angles, k): tan(angle/2) is that of equal steps times ``about``
    t = np.pi * ((np.arange(angles) + 0.5) / angles - 0.5)[:, None]
    c, s = np.cos(t), about * np.sin(t)
    norm = c * c + s * s
    half = s * s / norm
    cos, sin = 1.0 - 2.0 * half, 2.0 * s * c / norm
    ray_a, ray_b = np.cos(origin) * cos - np.sin(origin) * sin, np.sin(origin) * cos + np.cos(origin) * sin
    # the Gaussian along a ray, in units of its standard deviation there
    scale = 1.0 / np.sqrt(Paa * ray_a**2 + 2.0 * Pab * ray_a * ray_b + Pbb * ray_b**2)
    middle = scale * (ray_a * (Paa * m[0] + Pab * m[1]) + ray_b * (Pab * m[0] + Pbb * m[1]))
    away = Paa * m[0] ** 2 + 2.0 * Pab * m[0] * m[1] + Pbb * m[1] ** 2 - middle**2
    low = np.where(middle > _REACH, middle - _REACH, _LOWEST)
    step = (np.maximum(middle, 0.0) + _REACH - low) / (_RADII - 1)
    of_ray = np.log(about / norm * (2.0 * np.pi / angles) * scale**2 * step) - 0.5 * (away + np.log(det))
    u = low + step * np.arange(_RADII)[:, None, None]  # (radii, angles, k)
    scaled = np.log1p(np.exp(-np.abs(u))) + np.maximum(u, 0.0)
    log_weights = of_ray + np.log(scaled / (1.0 + np.exp(-u))) - 0.5 * (scaled - middle) ** 2
    # below the first node terms fall like e^2u: it has the weight of all of them
    log_weights[0] -= np.where(low == _LOWEST, np.log(-np.expm1(-2.0 * step)), 0.0)
    some = np.flatnonzero(log_weights > log_weights.max(axis=(0, 1)) - _NOTHING)
    ray, row = some % (angles * k), some % k
    rho = scale.ravel()[ray] * scaled.ravel()[some]
    log_k = (gain_a * ray_a + gain_b * ray_b).ravel()[ray] * rho + np.log(rho / np.sqrt(1.0 + rho**2))
    log_k += (m[2] - gain_a * m[0] - gain_b * m[1])[row]
    return _Nodes(
        row, ray // k, some // (angles * k), cos.ravel()[ray], sin.ravel()[ray], half.ravel()[ray], log_k, sd[row],
        np.exp(log_weights.ravel()[some] - 2.0 * HALF_LOG_2PI), k,
    )  # fmt: skip
