"""log Gamma(1 + x) and its derivatives, from tables that cover every x >= 0.

With s = c/(x + c) the range 0 <= x <= inf becomes 0 <= s <= 1. What is left of each function beside log(x + c) and
powers of 1/(x + c) is smooth for all s, because Stirling's series goes in powers of 1/x. The argument 1 + x has no
pole at x = 0; callers add what belongs to it: psi(x) = psi(1 + x) - 1/x.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, zeta

from ggpm.families.special.stable import HALF_LOG_2PI, log_minus_digamma1p, stirling_error
from ggpm.families.special.tables import Table

Array = NDArray[np.float64]

_CELLS, _DEGREE = 256, 5
_SCALE = 3.0  # c: the functions change where x is about one
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B_2, B_4, ...


class LogGamma1p:
    """``log Gamma(1 + x)`` for x >= 0 and its derivatives in x, each on demand, to 1e-14 of the larger of it and 1.

    The second and third derivative and the excess, which never vanish, have that error relative to themselves.

    >>> LogGamma1p(np.array([0.0, 3.0])).value.round(6) + 0.0  # log 3! = log 6
    array([0.      , 1.791759])
    """

    def __init__(self, x: Array):
        self.x = np.asarray(x, dtype=float)
        self._w = 1.0 / (self.x + _SCALE)
        self._table = _table()
        self._place = self._table.locate(_SCALE * self._w)

    @cached_property
    def _log(self) -> Array:
        return np.log(self.x + _SCALE)

    def _factor(self, name: str) -> Array:
        return self._table.at(name, self._place)

    @property
    def value(self) -> Array:
        """log Gamma(1 + x)."""
        return (self.x + 0.5) * self._log - self.x + self._factor("value")

    @property
    def digamma(self) -> Array:
        """psi(1 + x)."""
        return self._log - self._factor("digamma")

    @property
    def trigamma(self) -> Array:
        """psi1(1 + x)."""
        return self._w * self._factor("trigamma")

    @property
    def tetragamma(self) -> Array:
        """psi2(1 + x)."""
        return -(self._w**2) * self._factor("tetragamma")

    @property
    def excess(self) -> Array:
        """``x^2 psi1(x) - x``: 1 at x = 0, 1/2 for large x."""
        return self._factor("excess")


def log_gamma_factors(x: Array) -> tuple[Array, Array]:
    """P and L with ``log Gamma(x) = L - log P`` for 0 < x < 1e30: sums of many have one logarithm of products.

    Stirling's series at z = x + 8, where its seven terms leave 1e-14, and P = x (x + 1) ... (x + 7). Multiplications
    of long arrays cost a hundredth of SciPy's function, and a logarithm a tenth.

    >>> P, L = log_gamma_factors(np.array([0.5, 5.0]))
    >>> (L - np.log(P)).round(6)  # log sqrt(pi), log 24
    array([0.572365, 3.178054])
    """
    z, pairs = x + 8.0, x * (x + 7.0)
    P = pairs * (pairs + 6.0)
    P *= pairs + 10.0
    P *= pairs + 12.0
    w = 1.0 / z
    square, L = w * w, np.zeros(np.shape(x))
    for k in range(7, 0, -1):  # B_2k / (2k (2k - 1) z^(2k-1))
        L *= square
        L += _BERNOULLI[k - 1] / (2 * k * (2 * k - 1))
    L *= w
    L += (z - 0.5) * np.log(z)
    z -= HALF_LOG_2PI
    L -= z
    return P, L


def log_gamma(x: Array) -> Array:
    """log Gamma(x) for 0 < x < 1e30, to 1e-14 of the larger of it and 10.

    >>> bool(abs(log_gamma(np.array([3.0]))[0] - np.log(2.0)) < 1e-14)
    True
    """
    P, L = log_gamma_factors(x)
    L -= np.log(P)
    return L


@lru_cache(maxsize=1)
def _table() -> Table:
    """Smooth factors of the functions in `LogGamma1p`, in s."""

    def factors(s: Array) -> dict[str, Array]:
        c = _SCALE
        x = np.clip(c / np.maximum(s, 1e-30) - c, 0.0, 1e30)
        large = np.maximum(x, 1.0)
        stirling = HALF_LOG_2PI + stirling_error(large) - (large + 0.5) * np.log1p(c / large)
        direct = gammaln(1.0 + x) + x - (x + 0.5) * np.log(x + c)
        trigamma, tetragamma = zeta(2.0, 1.0 + x), 2.0 * zeta(3.0, 1.0 + x)
        far = np.log1p(c / large) + log_minus_digamma1p(large)
        wide = np.maximum(x, 10.0)
        series = 0.5 + np.polynomial.polynomial.polyval(wide**-2.0, _BERNOULLI) / wide  # DLMF 5.15.8
        return {
            "value": np.where(x < 1.0, direct, stirling),
            "digamma": np.where(x < 1.0, np.log(x + c) - digamma(1.0 + x), far),
            "trigamma": trigamma * (x + c),
            "tetragamma": tetragamma * (x + c) ** 2,
            "excess": np.where(x > 10.0, series, 1.0 - x + x * x * trigamma),
        }

    return Table.of(factors, 0.0, 1.0, _CELLS, _DEGREE)
