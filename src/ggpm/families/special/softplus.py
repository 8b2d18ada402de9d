"""``log(1 + exp(eta))``, its logarithm and the derivatives of both, from one exponential and a table."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.proportions import log1p_minus
from ggpm.families.special.tables import Table

Array = NDArray[np.float64]

_CELLS, _DEGREE = 128, 5


class SoftplusTerms:
    """Softplus p of eta and what its derivatives are made of, each on demand and to rounding for every eta.

    >>> SoftplusTerms(np.array([-800.0, 0.0, 800.0])).log_slope.round(6)
    array([1.      , 0.721348, 0.00125 ])
    """

    def __init__(self, eta: Array):
        self.eta = np.asarray(eta, dtype=float)
        self._e = np.exp(-np.abs(self.eta))
        self._inverse = 1.0 / (1.0 + self._e)
        self._positive = self.eta > 0
        self._place = _table().locate(self._e)
        self._ratio = _table().at("ratio", self._place)  # log(1 + e)/e

    @property
    def value(self) -> Array:
        """p = log(1 + exp(eta))."""
        return np.maximum(self.eta, 0.0) + self._e * self._ratio

    @property
    def mirrored(self) -> Array:
        """log(1 + exp(-eta))."""
        return np.maximum(-self.eta, 0.0) + self._e * self._ratio

    @property
    def log(self) -> Array:
        """log p, which is eta for very negative eta."""
        return np.log(np.where(self._positive, self.value, self._ratio)) + np.minimum(self.eta, 0.0)

    @property
    def slope(self) -> Array:
        """p' = expit(eta)."""
        return np.where(self._positive, self._inverse, self._e * self._inverse)

    @property
    def complement(self) -> Array:
        """1 - p' = expit(-eta)."""
        return np.where(self._positive, self._e * self._inverse, self._inverse)

    @property
    def log_slope(self) -> Array:
        """Derivative g1 = p'/p of log p."""
        return self._inverse / np.where(self._positive, self.value, self._ratio)

    def log_bend(self, log_slope: Array) -> Array:
        """Second derivative of log p, given the first: g1 (1 - p' - g1), also where both terms tend to 1."""
        e = self._e
        # for eta < 0 the bracket is -(e - log(1 + e))/((1 + e) log(1 + e))
        near = -self._inverse * e * _table().at("remainder", self._place) / self._ratio
        return log_slope * np.where(self._positive, e * self._inverse - log_slope, near)


@lru_cache(maxsize=1)
def _table() -> Table:
    """``log(1 + e)/e`` and ``(e - log(1 + e))/e^2`` for e from 0 to 1."""

    def functions(e: Array) -> dict[str, Array]:
        e = np.maximum(e, 1e-100)
        return {"ratio": np.log1p(e) / e, "remainder": -log1p_minus(e) / e**2}

    return Table.of(functions, 0.0, 1.0, _CELLS, _DEGREE)
