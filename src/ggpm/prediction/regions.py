"""Regions and distribution functions of predictive distributions that have no order on a line.

Angles: the density on a periodic grid, hence distribution function and the shortest arc. Any
continuous output: the highest-density region, as a threshold on the density.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ggpm.data.checks import check_level, check_whole
from ggpm.data.rows import batches
from ggpm.families.special.quadrature import standard_normal_nodes

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

__all__ = ["HighestDensityRegion", "highest_density"]

Array = NDArray[np.float64]

# ---- highest density ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class HighestDensityRegion:
    """For every row the set of y whose predictive density is at least a threshold: the smallest of its level."""

    predictive: Predictive
    level: float
    log_threshold: Array
    """log of the density on the border of the region, (m,)."""

    def contains(self, y: Any) -> NDArray[np.bool_]:
        """Tell whether each y lies within its row's region, (m,)."""
        return self._log_density(self.predictive.family.encode(y)) >= self.log_threshold

    def _log_density(self, encoded: Array) -> Array:
        return log_density(self.predictive, encoded[None])[0]


def highest_density(predictive: Predictive, level: float, n_draws: int = 1000) -> HighestDensityRegion:
    """The highest-density region of every row, its threshold read off draws with a fixed seed.

    The threshold is the (1 - level)-quantile of the density at ``n_draws`` of its own draws (Hyndman 1996): the
    region's probability is within ``sqrt(level (1 - level) / n_draws)`` (one standard error) of the level.

    >>> from ggpm.families import Dirichlet
    >>> from ggpm.prediction.predictive import Predictive
    >>> family = Dirichlet().resolve(np.array([[0.2, 0.3, 0.5]]))
    >>> region = highest_density(Predictive(family, np.full((1, 3), 6.0), 0.1 * np.eye(3)[None]), 0.9)
    >>> region.contains(np.array([[0.3, 0.3, 0.4]])), region.contains(np.array([[0.98, 0.01, 0.01]]))
    (array([ True]), array([False]))
    """
    check_level(level, "level")
    check_whole(n_draws, "n_draws", 1)
    if predictive.family.support.integer:
        raise ValueError(f"{type(predictive.family).__name__} outputs have no density; try interval() or quantile().")
    draws = predictive.sample(n_draws, 0)
    encoded = np.stack([predictive.family.encode(d) for d in draws])
    values = log_density(predictive, encoded)
    return HighestDensityRegion(predictive, level, np.quantile(values, 1.0 - level, axis=0))


def log_density(predictive: Predictive, encoded: Array) -> Array:
    """Log predictive density at many encoded y per row, (N, m, ...) -> (N, m), with fixed latent nodes.

    One set of nodes serves all y, which makes this much faster than `Predictive.log_prob` for many y at one row
    and less exact where the density is narrower than the latent's own spread.
    """
    if predictive.family.has("predictive_log_prob"):
        closed = predictive.family.predictive_log_prob
        return np.stack([closed(predictive.latent_mean, predictive.latent_cov, y) for y in encoded])
    nodes, weights = standard_normal_nodes(predictive.latent_mean.shape[1], coarse=True)
    out = np.empty(encoded.shape[:2])
    for i in range(encoded.shape[1]):
        eta = predictive._place(nodes, slice(i, i + 1))[:, 0]
        for part in batches(len(encoded), nodes.size * 4):
            log_p = predictive.family.log_prob(eta[:, None, :], encoded[part, i])
            out[part, i] = logsumexp(log_p, axis=0, b=weights[:, None])
    return out
