"""Averages over a direction and a concentration that are both uncertain: each row by the cheapest rule that serves it.

Most rows are sums over a lattice (`ggpm.families.special.lattice`), of a spacing that is guessed and made smaller where
the sum itself says that it is too coarse. Where the direction may turn round within less than the latents' spread,
rays are better (`ggpm.families.special.rays`); what is left for densities is `ggpm.families.special.turned`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.adaptive import cholesky_root
from ggpm.families.special.lattice import SPACINGS, lattice_densities, lattice_moments
from ggpm.families.special.rays import ray_densities, ray_moments
from ggpm.families.special.steps import LARGEST
from ggpm.families.special.turned import log_turned

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
T = TypeVar("T", int, float)
Found = tuple[Array, NDArray[np.bool_], NDArray[np.bool_]]  # values, good ones, and those for which finer ones may be

# Difficulties up to which rows begin with each spacing of the lattice, for densities and for moments; above the last
# they are left to rays at once. They are where expected times are least (1200 rows, standard deviations 0.1 to 0.7).
_FIRST = {"density": (0.16, 0.24, 0.38, 0.44, 0.8, 1.3), "moment": (0.16, 0.24, 0.34, 0.44, 0.8, 4.0)}
_WIDEST, _WIDEST_OF_RAYS = 1.5, 2.0  # standard deviations of the latents up to which lattices and rays are tried
_NARROWEST = 1e-6  # ratio of standard deviations of a and b of rays
_HEIGHT = 7.0  # standard deviations of log k that stay below the largest
_ANGLES = (64, 128, 256)
_LATTICE_ROWS, _RAY_ROWS = 320, 24  # that are worked on at once: arrays that stay in the cache


def log_density(mean: Array, cov: Array, y: Array) -> Array:
    """log of 2 pi E[p(y)], (m,), for latents (a, b, c) ~ N(mean, cov) and y in radians.

    >>> log_density(np.zeros((1, 3)), np.eye(3)[None], np.ones(1)).round(6) + 0.0  # no direction is preferred
    array([0.])
    """
    root, out = cholesky_root(cov), np.empty(len(mean))

    def lattice(rows: Rows, spacing: float) -> Found:
        return lattice_densities(mean[rows], root[rows], y[rows], spacing)

    def rays(rows: Rows, angles: int) -> Found:
        value, good = ray_densities(mean[rows], cov[rows], y[rows], angles)
        return value, good, ~good

    for i in _averaged(mean, cov, out, lattice, rays, "density"):
        out[i] = log_turned(mean[i], cov[i], float(y[i])) + np.log(2.0 * np.pi)
    return out


def moments(mean: Array, cov: Array) -> Array:
    """E[A(k) (cos, sin)], (m, 2): the mean of (cos y, sin y). nan in rows that no rule here serves.

    >>> moments(np.array([[3.0, 0.0, 40.0]]), np.zeros((1, 3, 3))).shape
    (1, 2)
    """
    root, out = cholesky_root(cov), np.full((len(mean), 2), np.nan)

    def lattice(rows: Rows, spacing: float) -> Found:
        value, good = lattice_moments(mean[rows], root[rows], spacing)
        return value, good, np.ones(len(rows), dtype=bool)

    def rays(rows: Rows, angles: int) -> Found:
        value, good = ray_moments(mean[rows], cov[rows], angles)
        return value, good, ~good

    _averaged(mean, cov, out, lattice, rays, "moment")
    return out


def _averaged(
    mean: Array,
    cov: Array,
    out: Array,
    lattice: Callable[[Rows, float], Found],
    rays: Callable[[Rows, int], Found],
    what: str,
) -> Rows:
    """Fill in what lattices and rays give; the rows that are left."""
    sd = np.sqrt(np.maximum(np.einsum("njj->nj", cov), 0.0))
    # principal standard deviations of (a, b)
    middle, apart = 0.5 * (sd[:, 0] ** 2 + sd[:, 1] ** 2), np.hypot(0.5 * (sd[:, 0] ** 2 - sd[:, 1] ** 2), cov[:, 0, 1])
    wide, narrow = np.sqrt(middle + apart), np.sqrt(np.maximum(middle - apart, 0.0))
    low = mean[:, 2] + _HEIGHT * sd[:, 2] < LARGEST
    start = np.searchsorted(_FIRST[what], _difficulty(mean, cov, wide))
    start[~low | (np.maximum(wide, sd[:, 2]) > _WIDEST)] = len(_FIRST[what])
    left = np.empty(0, dtype=np.intp)
    for level, spacing in enumerate(SPACINGS):
        left = np.concatenate([left, np.flatnonzero(start == level)])
        left, hopeless = _tried(left, _LATTICE_ROWS, out, lattice, spacing)
        start[hopeless] = len(_FIRST[what])
    left = np.concatenate([left, np.flatnonzero(start == len(_FIRST[what]))])
    able = low & (np.maximum(wide, sd[:, 2]) <= _WIDEST_OF_RAYS) & (narrow > _NARROWEST * np.maximum(wide, _NARROWEST))
    rest, left = left[~able[left]], left[able[left]]
    for angles in _ANGLES:
        left, _ = _tried(left, _RAY_ROWS * _ANGLES[0] // angles, out, rays, angles)
    return np.concatenate([rest, left])


def _tried(rows: Rows, together: int, out: Array, rule: Callable[[Rows, T], Found], fineness: T) -> tuple[Rows, Rows]:
    """Rows that a finer rule of the kind may serve, and others that none will; those that are good are filled in."""
    finer, hopeless = [rows[:0]], [rows[:0]]
    for begin in range(0, len(rows), together):
        some = rows[begin : begin + together]
        value, good, able = rule(some, fineness)
        out[some[good]] = value[good]
        finer.append(some[~good & able])
        hopeless.append(some[~good & ~able])
    return np.concatenate(finer), np.concatenate(hopeless)


def _difficulty(mean: Array, cov: Array, wide: Array) -> Array:
    """About how far from smooth integrands are over the latents' spread: zero is easiest.

    The direction turns round about the point where a and b vanish, within exp(-c): that matters as far as the point is
    within their spread. Far from it the direction changes within a distance of one.
    """
    Vaa, Vab, Vbb = cov[:, 0, 0], cov[:, 0, 1], cov[:, 1, 1]
    a, b = mean[:, 0], mean[:, 1]
    det = Vaa * Vbb - Vab**2
    with np.errstate(divide="ignore", invalid="ignore"):
        square = (Vbb * a * a - 2.0 * Vab * a * b + Vaa * b * b) / det
    away = np.sqrt(np.maximum(np.nan_to_num(square, nan=np.inf), 0.0))
    turning = np.exp(np.minimum(mean[:, 2], LARGEST) - 0.6 * np.maximum(away - 2.0, 0.0)) * wide
    return np.hypot(turning, 0.5 * wide)
