"""Questions about predictions that most outputs have an answer to: how sure is the mean, how probable a range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ggpm.data.rows import batches
from ggpm.families.special.adaptive import place
from ggpm.prediction.kinds import Angles

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

POINTS = 4096  # values of the latent whose means are ranked: 0.3 % of a level of 0.9 with Sobol points, less for D = 1


def mean_interval(p: Predictive, level: float) -> Array:
    """Quantiles of the mean of y given the latent, over the latent; of angles about the mean direction."""
    # every part of a mixture has its share of the points
    shared = [(part, _latent_points(part.latent_mean.shape[1], round(w * POINTS))) for w, part in p.components]
    shared = [(part, points) for part, points in shared if len(points)]
    tails, parts = ((1 - level) / 2, (1 + level) / 2), []
    for rows in batches(len(p), POINTS * p.latent_mean.shape[1]):
        trials = None if p.trials is None else p.trials[rows]
        mean = np.concatenate(
            [
                part.family.point(
                    part.family.moment(place(part.latent_mean[rows], part.cholesky()[rows], points), trials)
                )
                for part, points in shared
            ]
        )
        if p.family.kind != "angles":
            parts.append(np.moveaxis(np.quantile(mean, tails, axis=0, method="hazen"), 0, -1))
            continue
        circle: Any = p.family.support
        centre = p.family.point(p._moment()[rows])
        turn = np.mod(mean - centre + circle.period / 2, circle.period) - circle.period / 2
        parts.append(circle.wrap(centre[:, None] + np.quantile(turn, tails, axis=0, method="hazen").T))
    return np.concatenate(parts)


def _latent_points(D: int, count: int) -> Array:
    """Standard normal points that fill the space evenly, (count, D): the same every time."""
    if D == 1:
        return ndtri((np.arange(count) + 0.5) / max(count, 1))[:, None]
    from scipy.stats import qmc

    return ndtri(np.clip(qmc.Sobol(D, seed=0).random(POINTS)[:count], 1e-12, 1 - 1e-12))


def probability(p: Predictive, low: Any, high: Any) -> Array:
    """P(low <= y <= high) from the distribution function; of angles that of the arc from low forwards to high."""
    low, high = (np.asarray(bound, dtype=float) for bound in (low, high))
    if np.any(np.isnan(low)) or np.any(np.isnan(high)):
        raise ValueError("low and high must be numbers; got NaN.")
    if p.family.kind == "angles":
        circle: Any = p.family.support
        a, b = (circle.to_radians(p.family.encode(np.broadcast_to(bound, (len(p),)))) for bound in (low, high))
        whole = np.broadcast_to(high - low, (len(p),)) >= circle.period
        return np.where(whole, 1.0, Angles().between(p, a, b))
    if p.family.finite or p.family.countable or (p.family.support.row_ndim and p.latent_mean.shape[1] > 1):
        raise ValueError(
            f"{type(p.family).__name__} outputs are not single numbers in an order; try probabilities(), log_prob(y), "
            "or count draws of sample(size)."
        )
    if np.any(low > high):
        raise ValueError("low must not lie above high.")
    below = np.ceil(low) - 1.0 if p.family.support.integer else low
    return _cdf(p, np.floor(high) if p.family.support.integer else high) - _cdf(p, below)


def _cdf(p: Predictive, bound: Array) -> Array:
    """P(y <= bound), for bounds beyond the support too."""
    bound = np.broadcast_to(bound, (len(p),))
    support: Any = p.family.support
    out = np.where(bound >= support.high, 1.0, 0.0)
    inside = (bound < support.high) & ((bound >= support.low) if support.integer else (bound > support.low))
    if inside.any():
        some = p.rows(inside)
        out[inside] = np.reshape(some.cdf(bound[inside]), inside.sum())
    return out
