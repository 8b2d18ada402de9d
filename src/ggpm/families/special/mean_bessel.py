"""Averages of log I_0 over a log-normal concentration, from one table in its median and spread.

With g(t) = log I_0(e^t) - e^t, `mean_log_bessel` is G(t, s) = E[g(t + s z)] for a standard normal z: what is left of
E[log I_0(k)], log k ~ N(t, s^2), when E[k] is taken away. G obeys the heat equation, dG/d(s^2) = G''/2. It is smooth,
even in s, about -t/2 for large t, and its slope is between -0.6 and 0 whatever t and s are. It is tabulated by
Chebyshev polynomials in s and by polynomials on cells of t: the nodes of one row, which share s, share a table in t.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ggpm.families.special.bessel import BesselRatio
from ggpm.families.special.quadrature import trapezoid
from ggpm.families.special.stable import HALF_LOG_2PI
from ggpm.families.special.tables import Table

Array = NDArray[np.float64]

# The table in t and its even polynomials in s, up to a spread beyond which the series of g about both ends of t have
# more than the one or two exponentials that are taken there. It is right to 1e-12, its second derivative and the heat
# equation to 1e-9.
_LOW, _HIGH, _PER_UNIT, _DEGREE = -14.0, 14.0, 8, 7
_CELLS = int(_HIGH - _LOW) * _PER_UNIT
_SPREAD, _TERMS = 2.0, 44


def mean_log_bessel(t: Array, sd: Array) -> tuple[Array, Array, Array]:
    """G(t, s) and its first two derivatives in t, for any t (..., k) and spreads s (k,).

    >>> value, slope, second = mean_log_bessel(np.array([0.0]), np.zeros(1))
    >>> bool(abs(value[0] - (np.log(np.i0(1.0)) - 1.0)) < 1e-10)
    True
    """
    if np.any(wide := sd > _SPREAD):
        out = np.empty((3, *t.shape))
        out[..., wide] = _widened(t[..., wide], sd[wide])
        if not np.all(wide):
            out[..., ~wide] = mean_log_bessel(t[..., ~wide], sd[~wide])
        return out[0], out[1], out[2]
    inside = np.clip(t, _LOW, _HIGH)
    within = (inside - _LOW) * _PER_UNIT
    with np.errstate(invalid="ignore"):  # what is not a number is none in any cell
        cell = np.clip(within.astype(np.intp), 0, _CELLS - 1)
    within -= cell
    low, high = (cell.min(), cell.max() + 1) if cell.size else (0, 1)  # of all cells, those that are asked for
    even = np.cos(np.multiply.outer(np.arccos(sd / _SPREAD), 2.0 * np.arange(_TERMS)))
    powers = np.matmul(even, _table()[:, low:high].swapaxes(1, 2)).reshape(_DEGREE + 1, -1)
    cell += np.arange(len(sd)) * (high - low) - low
    value, slope, second = powers[-1].take(cell), np.zeros(t.shape), np.zeros(t.shape)
    for j in range(_DEGREE - 1, -1, -1):
        second *= within
        second += slope
        slope *= within
        slope += value
        value *= within
        value += powers[j].take(cell)
    slope *= _PER_UNIT
    second *= 2.0 * _PER_UNIT**2
    return _continued(t - inside, value, slope, second) if np.any(t != inside) else (value, slope, second)


def _continued(beyond: Array, value: Array, slope: Array, second: Array) -> tuple[Array, Array, Array]:
    """Beyond the ends of the table, from value and slope there: a e^t + b e^2t below, a + b e^-t - t/2 above."""
    x = np.exp(-np.abs(beyond))
    b, c = slope - value, slope + 0.5
    a = value - b
    below, above = beyond < 0, beyond > 0
    return (
        np.where(below, x * (a + b * x), np.where(above, value + c * (1.0 - x) - 0.5 * beyond, value)),
        np.where(below, x * (a + 2.0 * b * x), np.where(above, c * x - 0.5, slope)),
        np.where(below, x * (a + 4.0 * b * x), np.where(above, -c * x, second)),
    )


@lru_cache(maxsize=1)
def _table() -> Array:
    """Chebyshev coefficients in s of the polynomials in t on all cells, (degree + 1, cells, terms)."""
    angle = np.pi * (np.arange(_TERMS) + 0.5) / (2 * _TERMS)
    powers = np.stack([_powers(sd).ravel() for sd in _SPREAD * np.cos(angle)])
    cosines = np.cos(np.multiply.outer(angle, 2.0 * np.arange(_TERMS)))
    terms = np.linalg.solve(cosines, powers).reshape(_TERMS, _CELLS, -1)
    return np.ascontiguousarray(terms.transpose(2, 1, 0), dtype=np.float64)


def _widened(t: Array, sd: Array) -> tuple[Array, Array, Array]:
    """The same for wide normals: of a smooth bend exactly, and of what is left of g, which is near 0, by a sum."""
    x, rest = _rest()
    spread = np.hypot(sd, 1.0)  # a bend averaged over a standard normal is averaged once more
    t, given = np.clip(t, -40.0 * spread, 40.0 * spread), t  # beyond it the bend is two straight lines
    z = t / spread
    below, density = ndtr(z), np.exp(-0.5 * z * z - HALF_LOG_2PI)
    value = -0.5 * (t * below + spread * density) - HALF_LOG_2PI * below
    slope = -0.5 * below - HALF_LOG_2PI * density / spread
    second = (HALF_LOG_2PI * z / spread - 0.5) * density / spread
    near = x - t[..., None]
    near /= sd[:, None]
    near *= near
    near *= -0.5
    area, lever, moment = np.moveaxis(np.exp(near, out=near) @ rest, -1, 0) / sd
    lever, moment = lever - t * area, moment - t * (2.0 * lever - t * area)  # about t
    value += area - 0.5 * np.maximum(given - t, 0.0)
    return value, slope + lever / sd**2, second + (moment / sd**2 - area) / sd**2


@lru_cache(maxsize=1)
def _rest() -> tuple[Array, Array]:
    """Places x, and g there without its bend, the average of -(t + log 2 pi)/2 for t > 0 over a standard normal.

    Times 1, x and x^2 and the weights of a sum over a normal density: of functions without singularity within pi/2 of
    the line it is right to exp(-pi^2/step), and beyond the ends nothing is left that counts.
    """
    x, step = np.linspace(-28.0, 28.0, 169, retstep=True)
    bend = (0.5 * x + HALF_LOG_2PI) * ndtr(x) + 0.5 * np.exp(-0.5 * x * x - HALF_LOG_2PI)
    rest = (BesselRatio(0.0, np.exp(x)).log + bend) * step * np.exp(-HALF_LOG_2PI)
    return x, rest[:, None] * np.vander(x, 3, increasing=True)


def _powers(sd: float) -> Array:
    """Polynomials in t on the cells, ascending powers, (cells, degree + 1)."""
    z, weights = trapezoid(1, 0.25 / max(sd, 1.0), 9.0)  # log I_0 has no singularity within pi/2 of the line

    def average(t: Array) -> dict[str, Array]:
        return {"G": BesselRatio(0.0, np.exp(t[:, None] + sd * z[:, 0])).log @ weights}

    return Table.of(average, _LOW, _HIGH, _CELLS, _DEGREE).coefficients["G"].T
