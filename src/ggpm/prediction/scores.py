"""Numbers by normal scores of their distribution function: quantiles at many levels, thresholds of densities.

Coordinates of y and logarithms of its density are smooth in normal scores of F(y), of averages of like distributions
too, so that a few places of y tell them at all levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtr, ndtri

from ggpm.data.rows import batches
from ggpm.prediction.nodes import Rows
from ggpm.prediction.roots import Coordinate, coordinate

if TYPE_CHECKING:
    from ggpm.learning.recalibration import Recalibration
    from ggpm.prediction.predictive import Predictive

__all__ = ["LEVELS", "REACH", "Scores", "log_threshold", "score_of", "scores_of"]

Array = NDArray[np.float64]

REACH, PLACES = 4.4, 28  # normal scores of a table, and places of y between them
LIMITS = (1e-12, 1.0 - 1e-12)  # levels that are told apart
LEVELS = 256  # of numbers whose densities are ranked: 0.4 % of a region's probability


@dataclass(frozen=True)
class Scores:
    """Places of y, in its coordinate, and normal scores of the distribution function there, (`PLACES`, m) each.

    >>> from ggpm.families.support import Real
    >>> table = Scores(coordinate(Real()), np.array([[0.0], [2.0]]), np.array([[-1.0], [1.0]]))
    >>> table.between(0, np.arange(2.0), np.zeros(1))
    array([0.5])
    """

    at: Coordinate
    place: Array
    score: Array

    @property
    def y(self) -> Array:
        """The places as values of y."""
        return self.at.back(self.place)

    def between(self, row: int, values: Array, score: Array) -> Array:
        """Values known at the places of a row, at other scores, by Hermite interpolation that keeps their order."""
        own, kept = np.unique(np.maximum.accumulate(self.score[:, row]), return_index=True)
        return interpolated(own, values[kept], score)

    def quantiles(self, rows: Rows, score: Array) -> Array:
        """Values of y with some normal scores, (S, rows)."""
        found = [self.between(int(row), self.place[:, row], score[:, k]) for k, row in enumerate(rows)]
        return self.at.back(np.stack(found, axis=1))


def interpolated(x: Array, y: Array, at: Array) -> Array:
    """Cubic Hermite interpolation that keeps the order (Fritsch and Carlson 1980), straight beyond the ends."""
    if len(x) < 2:
        return np.full_like(at, y[0])
    inside = PchipInterpolator(x, y)
    low, high = (at < x[0]), (at > x[-1])
    out = inside(np.clip(at, x[0], x[-1]))
    out[low] += inside.derivative()(x[0]) * (at[low] - x[0])
    out[high] += inside.derivative()(x[-1]) * (at[high] - x[-1])
    return out


def score_of(level: Array) -> Array:
    """Normal scores of levels between 0 and 1.

    >>> score_of(np.array([0.5, 1.0])).round(2)
    array([0.  , 7.03])
    """
    return ndtri(np.clip(level, *LIMITS))


def scores_of(p: Predictive) -> Scores:
    """Scores of some rows, at quantiles of the one distribution that has their latent's mean and covariance.

    >>> from ggpm import Predictive, families
    >>> p = Predictive(families.Gamma(), np.zeros((2, 1)), np.ones((2, 1, 1)))
    >>> scores_of(p).y.shape, scores_of(p).score[[0, -1], 0]
    ((28, 2), array([-4.4,  4.4]))
    """
    around, z, m = p.single(), np.linspace(-REACH, REACH, PLACES), len(p)
    y = np.stack([around.quantile(float(u)).reshape(m) for u in ndtr(z)])
    score = np.broadcast_to(z[:, None], y.shape)
    if around is not p:
        score = score_of(np.stack([p.cdf(row).reshape(m) for row in y]))
    at = coordinate(p.family.support)
    return Scores(at, at.clipped(y), score)


def log_threshold(p: Predictive, level: float, law: Recalibration | None = None) -> Array:
    """Threshold on the log density of the smallest regions of a level, (m,): its quantile over even levels of y.

    ``law`` is that of F(y), where it is not uniform.

    >>> from ggpm import Predictive, families
    >>> p = Predictive(families.Gaussian().resolve(np.zeros(2)), np.zeros((1, 1)), np.zeros((1, 1, 1)))
    >>> np.abs(log_threshold(p, 0.9) + 0.5 * np.log(2 * np.pi) + 1.645**2 / 2) < 0.02
    array([ True])
    """
    u = (np.arange(LEVELS) + 0.5) / LEVELS
    if law is not None:
        u = law.quantile(u)
    score, more = score_of(u), 0.0 if law is None else law.log_density(u)
    out = np.empty(len(p))
    for some in batches(len(p), PLACES):
        part = p.rows(some)
        table = scores_of(part)
        density = np.stack([part.log_prob(row) for row in table.y])
        found = [table.between(row, density[:, row], score) for row in range(len(part))]
        out[some] = np.quantile(np.stack(found, axis=1) + np.reshape(more, (-1, 1)), 1.0 - level, axis=0)
    return out
