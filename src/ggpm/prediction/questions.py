"""Questions about predictions that most outputs have an answer to: how sure is the mean, how probable a range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ggpm.data.checks import check_level
from ggpm.data.rows import batches
from ggpm.families.base import Family
from ggpm.families.special.adaptive import place
from ggpm.prediction.expectations import over_latent
from ggpm.prediction.kinds import Angles
from ggpm.prediction.nodes import gather

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

POINTS = 4096  # values of the latent whose means are ranked: 0.3 % of a level of 0.9 with Sobol points, less for D = 1


@dataclass(frozen=True)
class Parameter:
    """One parameter of the family as a function of the inputs: what is known of it at the rows of a prediction."""

    predictive: Predictive
    name: str

    def mean(self) -> Array:
        """Posterior mean, (m,); of a direction, that of y."""
        if self._turns:
            return self.predictive.mean()

        def of(part: Predictive) -> Array:
            return over_latent(part, lambda eta, rows: part.family.parameter(self.name, eta))

        return self.predictive.mixed(of)

    def median(self) -> Array:
        """Posterior median, (m,)."""
        return self._quantiles((0.5,))[..., 0]

    def interval(self, level: float = 0.9) -> Array:
        """Central credible interval, (m, 2); of a direction an arc about its mean, which may wrap."""
        check_level(level, "level")
        return self._quantiles(((1 - level) / 2, (1 + level) / 2))

    mean_interval = interval

    @property
    def _turns(self) -> bool:
        family = self.predictive.family
        return family.kind == "angles" and self.name == family.parameters[0]

    def _quantiles(self, levels: tuple[float, ...]) -> Array:
        return _ranked(self.predictive, levels, lambda family, eta, rows: family.parameter(self.name, eta), self._turns)


def mean_interval(p: Predictive, level: float) -> Array:
    """Quantiles of the mean of y given the latent, over the latent; of angles about the mean direction."""

    def mean(family: Family, eta: Array, rows: Any) -> Array:
        return family.point(family.moment(eta, None if p.trials is None else p.trials[rows]))

    return _ranked(p, ((1 - level) / 2, (1 + level) / 2), mean, p.family.kind == "angles")


def _ranked(
    p: Predictive, levels: tuple[float, ...], function: Callable[[Family, Array, Any], Array], turns: bool
) -> Array:
    """Quantiles of a function of the latent, (m, ..., levels); of one that ``turns`` about the mean direction."""
    found = []
    for alike, part in p.alike():
        centres = p.family.point(part._moment()) if turns else None  # of all rows at once: each asks for a moment
        for some in batches(len(alike), POINTS * p.latent_mean.shape[1]):
            value = _over_the_latent(part, some, lambda family, eta: function(family, eta, alike[some]))  # noqa: B023
            if centres is not None:
                circle: Any = p.family.support
                centre = centres[some]
                value = np.mod(value - centre + circle.period / 2, circle.period) - circle.period / 2
            ends = np.moveaxis(np.quantile(value, levels, axis=0, method="hazen"), 0, -1)
            found.append((alike[some], ends if centres is None else circle.wrap(centre[:, None] + ends)))
    return gather(len(p), found)


def _over_the_latent(p: Predictive, rows: Any, function: Callable[[Family, Array], Array]) -> Array:
    """Values of a function of the latent at evenly spread points, (S, rows, ...): a part of a mixture has its share.

    Rows must be averages with the same weights.
    """
    counts = [(part, round(w[rows][0] * POINTS)) for w, part in p.components]
    return np.concatenate(
        [
            function(part.family, place(part.latent_mean[rows], part.cholesky()[rows], _latent_points(D, count)))
            for part, count in counts
            if count and (D := part.latent_mean.shape[1])
        ]
    )


def _latent_points(D: int, count: int) -> Array:
    """Standard normal points that fill the space evenly, (count, D): the same every time."""
    if D == 1:
        return ndtri((np.arange(count) + 0.5) / max(count, 1))[:, None]
    return _even_points(D)[:count]


@lru_cache(maxsize=8)  # every batch of rows asks for the same ones
def _even_points(D: int) -> Array:
    from scipy.stats import qmc

    points = ndtri(np.clip(qmc.Sobol(D, seed=0).random(POINTS), 1e-12, 1 - 1e-12))
    points.flags.writeable = False
    return points


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
    upto = cdf_at(p, np.floor(high) if p.family.support.integer else high)
    return upto - cdf_at(p, below) + _at_once(p, np.broadcast_to(low, (len(p),)))


def _at_once(p: Predictive, y: Array) -> Array:
    """P(Y = y), (m,), of numbers that have a probability of their own; zero elsewhere."""
    out, there = np.zeros(len(p)), np.isin(y, p.family.support.atoms)
    if there.any():
        some = p.rows(there)
        before, upto = some._steps(some._encode(y[there]))
        out[there] = upto - before
    return out


def cdf_at(p: Predictive, bound: Array) -> Array:
    """P(y <= bound), for bounds beyond the support too."""
    bound = np.broadcast_to(bound, (len(p),))
    support: Any = p.family.support
    out = np.where(bound >= support.high, 1.0, 0.0)
    closed = support.integer or support.low in support.atoms
    inside = (bound < support.high) & ((bound >= support.low) if closed else (bound > support.low))
    if inside.any():
        some = p.rows(inside)
        out[inside] = np.reshape(some.cdf(bound[inside]), inside.sum())
    return out
