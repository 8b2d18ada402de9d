"""Highest-density regions: thresholds on the predictive density of any continuous output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ggpm.data.checks import check_level, check_whole
from ggpm.data.rows import batches
from ggpm.families.base import Family
from ggpm.families.support import Circle
from ggpm.prediction.angles import circular_tables
from ggpm.prediction.line import Line, expect
from ggpm.prediction.nodes import gather, latent_nodes, log_densities

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

__all__ = ["HighestDensityRegion", "highest_density"]

Array = NDArray[np.float64]

# Share of the information that counts for the nodes of densities at many y: log densities then have an error of 1e-3, a
# tenth of what draws leave in a threshold.
COARSER = 0.25
MOST = 2**12  # nodes of one row
SMALLEST = 1e-200  # density below which its logarithm is computed with more care
BLOCK = 2**14  # rows that are answered at a time
TOGETHER = 4  # batches of draws that are made at once: what belongs to a row alone is made for many then


@dataclass(frozen=True)
class HighestDensityRegion:
    """For every row the set of y whose predictive density is at least a threshold: the smallest of its level."""

    predictive: Predictive
    level: float
    log_threshold: Array
    """log of the density on the border of the region, (m,)."""

    def contains(self, y: Any) -> NDArray[np.bool_]:
        """Tell whether each y lies within its row's region, (m,)."""
        p, family = self.predictive, self.predictive.family
        encoded = family.encode(interior(family, y))
        out = np.empty(len(p), dtype=bool)
        for start in range(0, len(p), BLOCK):
            rows = slice(start, start + BLOCK)
            out[rows] = log_density(p.rows(rows), encoded[None, rows])[0] >= self.log_threshold[rows]
        return out


def highest_density(predictive: Predictive, level: float, n_draws: int = 1000) -> HighestDensityRegion:
    """The highest-density region of every row.

    The threshold is the (1 - level)-quantile of the density at ``n_draws`` of its own draws with a fixed seed (Hyndman
    1996): the region's probability is within ``sqrt(level (1 - level) / n_draws)`` (one standard error) of the level.
    Those of angles and of numbers with one latent come from tables of the density, without draws.

    >>> from ggpm.families import Dirichlet
    >>> from ggpm.prediction.predictive import Predictive
    >>> family = Dirichlet().resolve(np.array([[0.2, 0.3, 0.5]]))
    >>> region = highest_density(Predictive(family, np.full((1, 3), 6.0), 0.1 * np.eye(3)[None]), 0.9)
    >>> region.contains(np.array([[0.3, 0.3, 0.4]])), region.contains(np.array([[0.98, 0.01, 0.01]]))
    (array([ True]), array([False]))
    """
    check_level(level, "level")
    check_whole(n_draws, "n_draws", 1)
    family = predictive.family
    if family.support.integer:
        raise ValueError(f"{type(family).__name__} outputs have no density; try interval() or quantile().")
    if _on_circle(predictive):
        tables = ((rows, table.threshold(level)) for rows, table in circular_tables(predictive))
        threshold = gather(len(predictive), tables) + _log_radians(predictive)
        return HighestDensityRegion(predictive, level, threshold)
    alone = len(predictive.components) == 1 and predictive.latent_mean.shape[1] == 1
    if alone and family.has("cdf") and not family.has("predictive_log_prob"):
        line = Line(family, predictive.latent_mean[:, 0], np.sqrt(np.maximum(predictive.latent_cov[:, 0, 0], 0.0)))
        return HighestDensityRegion(predictive, level, line.log_threshold(level))
    threshold = np.empty(len(predictive))
    for rows in batches(len(predictive), max(1, n_draws // TOGETHER)):
        some = predictive.rows(rows)
        draws = interior(family, some.sample(n_draws, 0))
        encoded = family.encode(draws.reshape(-1, *draws.shape[2:]))
        values = log_density(some, encoded.reshape(n_draws, len(some), *encoded.shape[1:]))
        threshold[rows] = np.quantile(values, 1.0 - level, axis=0)
    return HighestDensityRegion(predictive, level, threshold)


def interior(family: Family, y: Any) -> Any:
    """y with parts of a composition that underflowed to zero, as small ones do in draws, next to zero instead."""
    if family.support.kind != "compositions":
        return y
    return np.maximum(np.asarray(y, dtype=float), np.finfo(float).tiny)


def log_density(predictive: Predictive, encoded: Array) -> Array:
    """Log predictive density at many encoded y per row, (N, m, ...) -> (N, m).

    One set of nodes serves all y of a row of several latents, which makes this much faster than `Predictive.log_prob`
    for many y at one row and less exact where the density is narrower than the latent's own spread.
    """
    if len(predictive.components) > 1:
        found = [np.log(w) + log_density(part, encoded) for w, part in predictive.components]
        return np.asarray(logsumexp(found, axis=0))
    family = predictive.family
    if family.has("predictive_log_prob") and not family.has("natural"):  # which serves many y at once
        closed = family.predictive_log_prob
        return np.stack([closed(predictive.latent_mean, predictive.latent_cov, y) for y in encoded])
    if predictive.latent_mean.shape[1] == 1:
        return _one_latent(predictive, encoded)
    if _on_circle(predictive) and len(encoded) == 1:  # tables serve one y as well
        angle = cast(Circle, family.support).to_radians(encoded[0])
        tables = ((rows, table.log_density(angle[rows])) for rows, table in circular_tables(predictive))
        return gather(len(predictive), tables)[None] + _log_radians(predictive)
    out = np.empty(encoded.shape[:2])
    y = np.ascontiguousarray(np.moveaxis(encoded, 0, 1))
    U = COARSER * family.U(predictive.latent_mean, y[:, 0], expected=True).dense()
    for rows, eta, weights in latent_nodes(predictive.latent_mean, predictive.cholesky(), U, 4, MOST):
        step = max(1, 2**17 // (eta.shape[1] * len(encoded)))
        share = np.broadcast_to(weights, eta.shape[:2])
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            for part in batches(len(encoded), 4 * eta.shape[1]):
                out[part, rows[some]] = _log_mixture(family, eta[some], share[some], y[rows[some], part]).T
    return out


def _log_mixture(family: Family, eta: Array, share: Array, y: Array) -> Array:
    """Log densities (k, G) of mixtures over nodes."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_p = log_densities(family, eta, y)
        top = np.zeros((len(eta), y.shape[1]))
        total = np.matmul(share[:, None, :], np.exp(log_p))[:, 0]
        if not np.all((total > SMALLEST) & (total < 1.0 / SMALLEST)):  # beyond the floats without their largest one
            top = np.nan_to_num(log_p.max(axis=1), nan=0.0, neginf=0.0)
            total = np.matmul(share[:, None, :], np.exp(log_p - top[:, None, :]))[:, 0]
        return np.log(total) + top


def _one_latent(predictive: Predictive, encoded: Array) -> Array:
    """Log densities by nodes at the step of every y."""
    family, (N, m) = predictive.family, encoded.shape[:2]
    sd = np.sqrt(np.maximum(predictive.latent_cov[:, 0, 0], 0.0))
    out = np.empty((N, m))
    for part in batches(N, m):
        y = encoded[part]
        mean, width = (np.tile(v, len(y)) for v in (predictive.latent_mean[:, 0], sd))
        flat = y.reshape(-1, *y.shape[2:])
        p = expect(family, mean, width, flat, lambda eta, v: np.exp(family.log_prob(eta, v)))[0]
        with np.errstate(divide="ignore"):
            out[part] = np.log(p).reshape(len(y), m)
    return out


def _on_circle(predictive: Predictive) -> bool:
    return predictive.family.kind == "angles"


def _log_radians(predictive: Predictive) -> float:
    """What turns log densities per radian into those per unit of the user's y."""
    return float(np.log(2 * np.pi / cast(Circle, predictive.family.support).period))
