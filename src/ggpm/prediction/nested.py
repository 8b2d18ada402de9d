"""Nested regions of a prediction, by kind of output: the larger the score of y, the larger the least one that holds it.

The score is the predictive depth: the level of the smallest of the model's own regions that holds y.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.families.base import Family
from ggpm.prediction.angles import CircularTable
from ggpm.prediction.kinds import Angles, Classes
from ggpm.prediction.nodes import Rows
from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

EDGE = 1e-6  # beyond the regions of level 1 - EDGE scores go on as distances: tails of a wrong model are no measure
HALVINGS = 40  # of half a turn, until an end of an arc is known to rounding
LEAST = 1e-9  # the lowest level that is asked of a model: a calibrated one may be zero


class Numbers:
    """Central intervals of numbers, of counts, and of every entry of a vector by itself."""

    def score(self, p: Predictive, y: Any) -> Array:
        """Level of the smallest interval that holds y; past 1, how many widths y lies outside of the widest one."""
        low, high = np.moveaxis(self._central(p, 1.0 - EDGE), -1, 0)
        value = self._number(p, y)
        if p.family.support.integer:
            before, upto = p._steps(p._encode(y))
            depth = np.maximum(np.maximum(1.0 - 2.0 * upto, 2.0 * before - 1.0), 0.0)
        else:
            depth = np.abs(2.0 * p.pit(y) - 1.0).reshape(low.shape)
        out = np.maximum(low - value, value - high)
        return np.where(out > 0, 1.0 + out / np.maximum(high - low, np.finfo(float).tiny), np.minimum(depth, 1.0))

    def region(self, p: Predictive, cut: Array) -> NDArray:
        """Intervals that hold scores up to the cut."""
        ends, wide = self._of_levels(p, cut), np.isfinite(cut) & (cut > 1.0)
        if wide.any():
            reach = np.where(wide, cut - 1.0, 0.0) * np.diff(self._central(p, 1.0 - EDGE))[..., 0]
            ends += np.stack([-reach, reach], axis=-1)
        support: Any = p.family.support
        least, most = widest(p.family)
        ends = np.where(np.isinf(cut)[..., None], [least, most], ends)
        if support.integer:
            ends = np.stack([np.ceil(ends[..., 0]), np.floor(ends[..., 1])], axis=-1)
        ends = np.clip(ends, least, most if p.trials is None else np.asarray(p.trials)[:, None])
        if p.family.kind == "shares":  # of successes and of failures, as `Predictive.interval` has them
            ends = np.stack([ends, np.asarray(p.trials)[:, None] - ends[:, ::-1]], axis=1)
        return ends

    def _central(self, p: Predictive, share: float) -> Array:
        """Central intervals, of successes alone where y are counts of two kinds."""
        ends = p.interval(share)
        return ends[:, 0] if p.family.kind == "shares" else ends

    def _of_levels(self, p: Predictive, cut: Array) -> Array:
        """Central intervals whose level depends on row and entry, of which there are few."""
        share = np.clip(cut, LEAST, 1.0 - EDGE)
        out = np.empty((*share.shape, 2))
        for value in np.unique(share):
            chosen = share == value
            rows = np.flatnonzero(chosen.reshape(len(share), -1).any(axis=1))
            out[chosen] = self._central(p.rows(rows), float(value))[chosen[rows]]
        return out

    @staticmethod
    def _number(p: Predictive, y: Any) -> Array:
        value = p.family.decode(p._encode(y)) if p.family.kind != "shares" else p._encode(y)[:, 0]
        return np.asarray(value, dtype=float)


class Grades(Numbers):
    """Ranges of neighbouring grades."""

    def score(self, p: Predictive, y: Any) -> Array:
        before, upto = p._steps(p._encode(y))
        return np.clip(np.maximum(1.0 - 2.0 * upto, 2.0 * before - 1.0), 0.0, 1.0)

    def region(self, p: Predictive, cut: Array) -> NDArray:
        ends, grades = self._of_levels(p, cut), np.arange(p.probabilities().shape[1])
        return (grades >= ends[:, :1]) & (grades <= ends[:, 1:]) | (cut >= 1.0)[:, None]

    def _central(self, p: Predictive, share: float) -> Array:
        return np.stack([p.quantile((1.0 - share) / 2), p.quantile((1.0 + share) / 2)], axis=-1)


class Sets:
    """The most probable classes."""

    def score(self, p: Predictive, y: Any) -> Array:
        return self._scores(p)[np.arange(len(p)), Classes.codes(p._encode(y))]

    def region(self, p: Predictive, cut: Array) -> NDArray[np.bool_]:
        return self._scores(p) <= cut[:, None]

    @staticmethod
    def _scores(p: Predictive) -> Array:
        """Probability of the classes that are more probable than each one, (m, d); equals have the same."""
        probabilities = p.probabilities()
        order = np.argsort(-probabilities, axis=1)
        falling = np.take_along_axis(probabilities, order, axis=1)
        above = np.cumsum(falling, axis=1) - falling
        equal = np.zeros(falling.shape, dtype=bool)
        equal[:, 1:] = falling[:, 1:] == falling[:, :-1]
        above = np.maximum.accumulate(np.where(equal, 0.0, above), axis=1)
        out = np.empty_like(above)
        np.put_along_axis(out, order, above, axis=1)
        return out


class Arcs:
    """Arcs about the mean direction: they are nested, which shortest arcs of two modes are not."""

    def score(self, p: Predictive, y: Any) -> Array:
        circle = Angles.circle(p)
        mean, angle = circle.to_radians(p.family.encode(p.mean())), circle.to_radians(p._encode(y))
        away = np.abs(np.mod(angle - mean + np.pi, 2 * np.pi) - np.pi)
        inside = Angles().between(p, mean - away, mean + away)
        return np.where(away >= np.pi - 1e-12, 1.0, inside) + away / np.pi * EDGE  # order also where all mass is inside

    def region(self, p: Predictive, cut: Array) -> Array:
        """Arcs (start, end); where the whole circle is needed, from opposite the mean and a whole turn on."""
        circle = Angles.circle(p)
        mean = circle.to_radians(p.family.encode(p.mean()))

        def reached(table: CircularTable, rows: Rows) -> Array:
            low, high = np.zeros(len(rows)), np.full(len(rows), np.pi)
            for _ in range(HALVINGS):
                middle = 0.5 * (low + high)
                inside = table.between(mean[rows] - middle, mean[rows] + middle) + middle / np.pi * EDGE <= cut[rows]
                low, high = np.where(inside, middle, low), np.where(inside, high, middle)
            return low

        away = np.where(cut >= 1.0 + EDGE, np.pi, Angles.from_tables(p, reached))
        ends = circle.wrap(p.family.decode(circle.from_radians(np.stack([mean - away, mean + away], axis=-1))))
        ends[away >= np.pi, 1] = ends[away >= np.pi, 0] + circle.period
        return ends


def widest(family: Family) -> tuple[float, float]:
    """Least and largest number that y can have, in the user's units: parts of a composition sum to its total."""
    support: Any = family.support
    return support.low, support.high * getattr(support, "total", 1.0)


def intervals_of(family: Family) -> Any:
    """Regions that can be written down: intervals, arcs, sets; None for outputs that have none."""
    if family.kind == "angles":
        return Arcs()
    if family.finite:
        return Grades() if family.has("cdf") and family.kind == "classes" and family.latent_dim == 1 else Sets()
    return Numbers() if family.has("cdf") else None


def below_border(p: Predictive, y: Any, level: float) -> Array:
    """How far log p(y) lies below the border of the model's own highest-density region of the level."""
    if p.family.support.integer:  # vectors of counts
        draws = p.sample(200, 0)
        border = np.quantile([p.log_prob(draw) for draw in draws], 1.0 - level, axis=0)
    else:
        border = p.highest_density(level).log_threshold
    return np.asarray(border - p.log_prob(y))
