"""Averages over a direction and a concentration that are both uncertain: each row by the cheapest rule that serves it.

Most rows are sums over a lattice (`ggpm.families.special.lattice`), of a spacing that is guessed and made smaller where
the sum itself says that it is too coarse. Where the direction may turn round within less than the latents' spread,
Fourier series are better (`ggpm.families.special.harmonics`); what is left for densities is
`ggpm.families.special.turned`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.adaptive import cholesky_root
from ggpm.families.special.harmonics import harmonics
from ggpm.families.special.lattice import SPACINGS, lattice_densities, lattice_moments
from ggpm.families.special.steps import LARGEST
from ggpm.families.special.turned import log_turned

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Complex = NDArray[np.complex128]
Found = tuple[Array, Mask, Mask]  # values, good ones, and those for which finer ones may be

# Difficulties up to which rows begin with each spacing of the lattice, for densities and for moments; above the last
# they are left to series at once. They are where expected times are least (1200 rows, standard deviations 0.1 to 0.7).
_FIRST = {"density": (0.16, 0.24, 0.38, 0.44, 0.7), "moment": (0.16, 0.24, 0.34, 0.44, 0.8)}
_WIDEST = 1.5  # standard deviation of the latents up to which lattices are tried
_HEIGHT = 7.0  # standard deviations of log k that stay below the largest
_TOGETHER = 640  # rows: with fewer, calls cost as much as their work; arrays stay in the cache
# Smallest densities, beside that of a circle without direction, which series of some care give to 1e-6: their errors
# are below 3e-7 (in 999 of 1000 hard rows) and 1.5e-8.
_FAINTEST = {1: 0.3, 2: 0.02}


def log_density(mean: Array, cov: Array, y: Array) -> Array:
    """log of 2 pi E[p(y)], (m,), for latents (a, b, c) ~ N(mean, cov) and y in radians.

    >>> log_density(np.zeros((1, 3)), np.eye(3)[None], np.ones(1)).round(6) + 0.0  # no direction is preferred
    array([0.])
    """
    root, out = cholesky_root(cov), np.empty(len(mean))

    def lattice(rows: Rows, spacing: float) -> Found:
        return lattice_densities(mean[rows], root[rows], y[rows], spacing)

    def series(rows: Rows, c: Complex, care: int) -> tuple[Array, Mask]:
        density = 2.0 * np.sum(c.real, axis=1) - 1.0
        good = density > _FAINTEST[care]
        return np.log(np.where(good, density, 1.0)), good

    for i in _averaged(mean, cov, out, lattice, series, "density", y):
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

    def series(rows: Rows, c: Complex, care: int) -> tuple[Array, Mask]:
        return np.stack([c[:, 1].real, c[:, 1].imag], axis=1), np.ones(len(rows), dtype=bool)

    _averaged(mean, cov, out, lattice, series, "moment")
    return out


def _averaged(
    mean: Array,
    cov: Array,
    out: Array,
    lattice: Callable[[Rows, float], Found],
    series: Callable[[Rows, Complex, int], tuple[Array, Mask]],
    what: str,
    about: Array | None = None,
) -> Rows:
    """Fill in what lattices and series give; the rows that are left. The finest lattice, which costs most, is last."""
    sd = np.sqrt(np.maximum(np.einsum("njj->nj", cov), 0.0))
    # the larger of the principal standard deviations of (a, b)
    middle, apart = 0.5 * (sd[:, 0] ** 2 + sd[:, 1] ** 2), np.hypot(0.5 * (sd[:, 0] ** 2 - sd[:, 1] ** 2), cov[:, 0, 1])
    wide = np.sqrt(middle + apart)
    able = (mean[:, 2] + _HEIGHT * sd[:, 2] < LARGEST) & (np.maximum(wide, sd[:, 2]) <= _WIDEST)
    start = np.where(able, np.searchsorted(_FIRST[what], _difficulty(mean, cov, wide)), len(_FIRST[what]))
    left = np.empty(0, dtype=np.intp)
    *coarser, finest = SPACINGS
    for level, spacing in enumerate(coarser):
        left = np.concatenate([left, np.flatnonzero(start == level)])
        left = _on_lattice(left, able, out, lattice, spacing)
    left = np.sort(np.concatenate([left, np.flatnonzero((start == len(coarser)) | ~able)]))
    for care in _FAINTEST:
        rest = np.ones(len(left), dtype=bool)
        for some, c in harmonics(mean[left], cov[left], care, None if about is None else about[left]):
            value, good = series(left[some], c, care)
            out[left[some[good]]] = value[good]
            rest[some[good]] = False
        left = left[rest]
    return _on_lattice(left, able, out, lattice, finest)


def _on_lattice(rows: Rows, able: Mask, out: Array, lattice: Callable[[Rows, float], Found], spacing: float) -> Rows:
    """The rows that are left; no lattice is ``able`` to serve some of them."""
    left = [rows[~able[rows]]]
    rows = rows[able[rows]]
    for some in (rows[begin : begin + _TOGETHER] for begin in range(0, len(rows), _TOGETHER)):
        value, good, reaches = lattice(some, spacing)
        out[some[good]], able[some] = value[good], reaches
        left.append(some[~good])
    return np.concatenate(left)


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
