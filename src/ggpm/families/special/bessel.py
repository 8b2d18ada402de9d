"""Bessel functions for directions, from tables that cover every length of a latent vector.

With s = c/(k + c), c about nu, the range 0 <= k <= inf becomes 0 <= s <= 1. Every function here is a power of
1/(k + c), times one of k where it vanishes at zero, times a factor that is smooth and positive for all s: the
asymptotic series for large k goes in powers of 1/k, and thus of s. The factors are tabulated from `careful_bessel`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from ggpm.families.special.careful_bessel import careful_bessel_ratio, careful_log_bessel
from ggpm.families.special.tables import Table

Array = NDArray[np.float64]

_CELLS, _DEGREE = 256, 5
# Degree of the polynomial of `quick_log_bessel`, and c - nu in its s: 2e-7 for nu from 0 to 4, less for others.
_QUICK, _QUICK_SCALE = 16, 3.0
_LONGEST = 1e308  # of k in products with 1/(k + c): infinity times zero would be NaN


class BesselRatio:
    """``A = I_{nu+1}(k)/I_nu(k)`` for k >= 0, what follows from it, and the logarithm of I_nu, each on demand.

    In the paper's notation c2 = -rho. All to about 1e-12 relative.

    >>> BesselRatio(0.0, np.zeros(1)).c1  # A is about k/2 near zero
    array([0.5])
    >>> bool(np.isclose(BesselRatio(0.5, np.array(2.0)).A, 1 / np.tanh(2.0) - 0.5))
    True
    """

    def __init__(self, nu: float, k: Array):
        self.nu, self.k = nu, np.asarray(k, dtype=float)
        c, finite = _scale(nu), np.minimum(self.k, _LONGEST)
        self._w = 1.0 / (finite + c)
        self._kw = finite * self._w
        self._table = _table(nu)
        self._place = self._table.locate(c * self._w)

    def _factor(self, name: str) -> Array:
        return self._table.at(name, self._place)

    @property
    def log(self) -> Array:
        """``log[Gamma(nu + 1) (2/k)^nu I_nu(k)] - k``: zero at k = 0, about ``-(nu + 1/2) log k`` for large k."""
        return -self._kw * self._factor("log") - (self.nu + 0.5) * np.log1p(self.k / _scale(self.nu))

    @property
    def A(self) -> Array:
        """b'(k): the mean resultant length."""
        return self._kw * self._factor("c1")

    @property
    def one_minus_A(self) -> Array:
        """1 - A."""
        return self._w * self._factor("one_minus_A")

    @property
    def c1(self) -> Array:
        """A/k: curvature across the direction."""
        return self._w * self._factor("c1")

    @property
    def slope(self) -> Array:
        """A' = c1 - rho: curvature along the direction."""
        return self._w**2 * self._factor("slope")

    @property
    def rho(self) -> Array:
        """c1 - A'."""
        return self._kw**2 * self._w * self._factor("rho")

    @property
    def slope_over_c1(self) -> Array:
        """A'/c1 = 1 - rho/c1: `RankOne.gap` of the curvature."""
        return self._w * self._factor("slope_over_c1")

    @property
    def c1_slope(self) -> Array:
        """dc1/dk = -rho/k."""
        return -self._kw * self._w**2 * self._factor("rho")

    @property
    def A_second(self) -> Array:
        """A''."""
        return -self._kw * self._w * self._w**2 * self._factor("A_second")


def quick_log_bessel(nu: float, k: NDArray[Any]) -> NDArray[Any]:
    """`BesselRatio.log` to 2e-7 for a seventh of its time: for tables of densities at many points.

    One polynomial for all k, whose multiplications of long arrays cost less than looking up the cells of a table; of
    numbers with seven digits half as much again, to 1e-6.

    >>> k = np.array([0.0, 1.0, 1e6])
    >>> bool(np.allclose(quick_log_bessel(0.0, k), BesselRatio(0.0, k).log, atol=1e-6, rtol=1e-7))
    True
    """
    c = k.dtype.type(nu + _QUICK_SCALE)
    w = 1.0 / (k + c)
    x, coefficients = 2.0 * c * w - 1.0, _polynomial(nu).astype(k.dtype)
    out = np.full_like(x, coefficients[-1])
    for a in coefficients[-2::-1]:
        out *= x
        out += a
    out *= k * w
    np.log(c * w, out=x)
    x *= k.dtype.type(nu + 0.5)
    x -= out
    return x


@lru_cache(maxsize=64)
def _polynomial(nu: float) -> Array:
    """The smooth factor of the logarithm over all s, ascending powers of 2 s - 1."""
    x = chebyshev.chebpts1(8 * _QUICK)
    c = nu + _QUICK_SCALE
    k = c * (1.0 - x) / (1.0 + x)
    values = -(BesselRatio(nu, k).log + (nu + 0.5) * np.log1p(k / c)) * (k + c) / k
    return np.asarray(chebyshev.cheb2poly(chebyshev.chebfit(x, values, _QUICK)), dtype=np.float64)


def _scale(nu: float) -> float:
    """c in s = c/(k + c): the functions change where k is about as large as the order."""
    return nu + 2.0


@lru_cache(maxsize=64)
def _table(nu: float) -> Table:
    """Smooth factors of the functions in `BesselRatio`, in s."""

    def factors(s: Array) -> dict[str, Array]:
        c = _scale(nu)
        # the ends are limits: k next to 0 and to infinity, where the careful formulas hold and nothing overflows
        k = np.clip(c / np.maximum(s, 1e-30) - c, 1e-20 * c, 1e30 * c)
        w = 1.0 / (k + c)
        ratio, kw = careful_bessel_ratio(nu, k), k * w
        return {
            "log": -(careful_log_bessel(nu, k) + (nu + 0.5) * np.log1p(k / c)) / kw,
            "one_minus_A": ratio.one_minus_A / w,
            "c1": ratio.c1 / w,
            "slope": ratio.slope / w**2,
            "rho": ratio.rho / (kw**2 * w),
            "slope_over_c1": ratio.slope_over_c1 / w,
            "A_second": -ratio.A_second / (kw * w**3),
        }

    return Table.of(factors, 0.0, 1.0, _CELLS, _DEGREE)
