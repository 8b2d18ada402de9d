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

from ggpm.families.special.bessel import BesselRatio
from ggpm.families.special.quadrature import trapezoid
from ggpm.families.special.tables import Table

Array = NDArray[np.float64]

# The table in t, to 1e-11, its second derivative to 1e-7. The series of g about both ends have one or two exponentials
# there, up to a spread of two.
_LOW, _HIGH, _PER_UNIT, _DEGREE = -14.0, 14.0, 4, 7
_CELLS = int(_HIGH - _LOW) * _PER_UNIT
_SPREAD, _TERMS = 2.0, 40  # of the table in s, and its even polynomials, whose coefficients fall to 1e-11
# A wider normal is the sum of one of spread one and another, over which a function so smooth is averaged at unit steps.
# With the widest that are told apart E[k] is e^50 times the median, and G is not seen beside it.
_WIDEST, _REACH = 10.0, 9.0


def mean_log_bessel(t: Array, sd: Array) -> tuple[Array, Array, Array]:
    """G(t, s) and its first two derivatives in t, for any t (..., k) and spreads s (k,).

    >>> value, slope, second = mean_log_bessel(np.array([0.0]), np.zeros(1))
    >>> bool(abs(value[0] - (np.log(np.i0(1.0)) - 1.0)) < 1e-10)
    True
    """
    inside = np.clip(t, _LOW, _HIGH)
    within = (inside - _LOW) * _PER_UNIT
    cell = np.minimum(within.astype(np.intp), _CELLS - 1)
    within -= cell
    low, high = (cell.min(), cell.max() + 1) if cell.size else (0, 1)  # of all cells, those that are asked for
    even = np.cos(np.multiply.outer(np.arccos(np.minimum(sd / _SPREAD, 1.0)), 2.0 * np.arange(_TERMS)))
    powers = np.tensordot(even, _table()[:, low:high], axes=1)
    for row in np.flatnonzero(sd > _SPREAD):
        powers[row] = _widened(min(float(sd[row]), _WIDEST))[low:high]
    place = (cell + (np.arange(len(sd)) * (high - low) - low)).ravel()
    powers = powers.reshape(-1, _DEGREE + 1).take(place, axis=0).reshape(*t.shape, -1)
    value, slope, second = powers[..., -1].copy(), np.zeros(t.shape), np.zeros(t.shape)
    for j in range(_DEGREE - 1, -1, -1):
        second *= within
        second += slope
        slope *= within
        slope += value
        value *= within
        value += powers[..., j]
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
    """Chebyshev coefficients in s of the polynomials in t on all cells, (terms, cells, degree + 1)."""
    angle = np.pi * (np.arange(_TERMS) + 0.5) / (2 * _TERMS)
    powers = np.stack([_powers(sd, _LOW, _HIGH).ravel() for sd in _SPREAD * np.cos(angle)])
    cosines = np.cos(np.multiply.outer(angle, 2.0 * np.arange(_TERMS)))
    return np.asarray(np.linalg.solve(cosines, powers).reshape(_TERMS, _CELLS, -1), dtype=np.float64)


def _widened(sd: float) -> Array:
    """Polynomials on the cells for a spread beyond the table's, (cells, degree + 1)."""
    extra, powers = np.sqrt(sd**2 - 1.0), _wide_powers()
    z, weights = trapezoid(1, 1.0 / extra, _REACH)
    # whole units of t are whole cells
    first = (len(powers) - _CELLS) // 2 + _PER_UNIT * np.rint(z[:, 0] * extra).astype(int)
    return sum(w * powers[i : i + _CELLS] for w, i in zip(weights, first))


@lru_cache(maxsize=1)
def _wide_powers() -> Array:
    reach = np.ceil(_REACH * _WIDEST)
    return _powers(1.0, _LOW - reach, _HIGH + reach)


def _powers(sd: float, low: float, high: float) -> Array:
    """Polynomials in t on the cells between two whole numbers, ascending powers, (cells, degree + 1)."""
    z, weights = trapezoid(1, 0.125, 9.0)

    def average(t: Array) -> dict[str, Array]:
        return {"G": BesselRatio(0.0, np.exp(t[:, None] + sd * z[:, 0])).log @ weights}

    return Table.of(average, low, high, int(high - low) * _PER_UNIT, _DEGREE).coefficients["G"].T
