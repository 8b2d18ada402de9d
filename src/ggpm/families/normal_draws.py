"""Draws of outputs that are Gaussian, or functions of Gaussian ones, by their predictive densities (`OwnDraws`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from ggpm.families.special.quadrature import normal_points

Array = NDArray[np.float64]
BATCH = 2**14  # draws that are worked on at once


@dataclass(frozen=True)
class NormalDraws:
    """n equally probable densities of Gaussian vectors: half a chi-square below their largest.

    >>> NormalDraws(np.zeros(1), 2, 4).rough().round(3)
    array([[-2.079, -0.981, -0.47 , -0.134]])
    """

    top: Array
    """Log densities at the mean, (m,)."""
    d: int
    n: int

    def rough(self) -> Array:
        """Log predictive densities of all draws, (m, n)."""
        return self.top[:, None] - self._below

    def fine(self, rows: NDArray[np.intp], which: NDArray[np.intp]) -> Array:
        """Log predictive densities of some draws (k, n') of some rows (k,)."""
        return self.top[rows, None] - self._below[which]

    def quantile(self, q: float) -> Array:
        """The q-quantile of the log densities of every row, (m,)."""
        return self.top - gammaincinv(0.5 * self.d, 1.0 - q)

    @property
    def _below(self) -> Array:
        return gammaincinv(0.5 * self.d, (np.arange(self.n, 0.0, -1.0) - 0.5) / self.n)


@dataclass(frozen=True)
class TransformedDraws:
    """2^log2 draws z = mean + root e of Gaussian vectors, e the same quasi-random points in all rows, and of what they
    are made into: ``log_volume(z)`` is the logarithm of the volume of z per volume of that."""

    top: Array
    """Log densities of z at its mean, (m,)."""
    mean: Array
    root: Array
    log_volume: Callable[[Array], Array]
    log2: int

    def rough(self) -> Array:
        """Log predictive densities of all draws, (m, N)."""
        rows = np.arange(len(self.mean))
        return self._log_densities(rows, np.broadcast_to(np.arange(2**self.log2), (len(rows), 2**self.log2)))

    def fine(self, rows: NDArray[np.intp], which: NDArray[np.intp]) -> Array:
        """Log predictive densities of some draws (k, n) of some rows (k,)."""
        return self._log_densities(rows, which)

    def quantile(self, q: float) -> None:
        """Nothing: there is no closed form."""

    def _log_densities(self, rows: NDArray[np.intp], which: NDArray[np.intp]) -> Array:
        e = normal_points(self.mean.shape[1], self.log2)
        below, out = 0.5 * np.sum(e**2, axis=1), np.empty(which.shape)
        step = max(1, BATCH // which.shape[1])
        for i in range(0, len(rows), step):
            r, w = rows[i : i + step], which[i : i + step]
            z = self.mean[r, None] + e[w] @ self.root[r].swapaxes(1, 2)
            out[i : i + step] = self.top[r, None] - below[w] + self.log_volume(z)
        return out
