"""Roots of many increasing functions at once: quantiles from distribution functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from ggpm.families.support import Support

Array = NDArray[np.float64]
Values = Callable[[Any, Array], Array]
Pairs = Callable[[Any, Array], tuple[Array, Array]]

LARGEST = 1e300  # count up to which a quantile is looked for
# A step after a residual below this, in units of probability, is the last one: Newton's error is of the order of its
# square, and a slope that is wrong by one in a hundred leaves as little.
SETTLED = 3e-4
SHORT, EXACT = 0.03, 1e-7  # of the coordinate: steps of heavy tails are long, and bend; but not after such a residual
TAIL = 0.05  # levels nearer to 0 or 1 than this ask for residuals that are smaller in proportion
NEARLY = 0.02  # residual up to which a slope that is nearly right leads nearer
# Steps of one count or by the probability of the count, before counts are searched by halving.
COUNT_STEPS = 12
CLOSE = 1e-10  # relative error of counts from 2^53 on
MOST_HALVINGS = 100  # and steps of the secant between them


@dataclass(frozen=True)
class Coordinate:
    """The coordinate in which a support is the real line."""

    there: Callable[[Array], Array]
    back: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    """Derivative of y in it, as a function of y."""
    low: float
    high: float
    """Values between which floats tell y from the ends of the support."""

    def clipped(self, y: Array) -> Array:
        """Coordinates of y, within reach also where y is at the end of the support or beyond the floats."""
        with np.errstate(divide="ignore", over="ignore"):
            return np.clip(self.there(y), self.low, self.high)


def coordinate(support: Support) -> Coordinate:
    """Logits of shares, logarithms of positive numbers, and numbers themselves.

    >>> from ggpm.families.support import Positive
    >>> coordinate(Positive()).there(np.array([1.0]))
    array([0.])
    """
    if np.isfinite(support.high):
        return Coordinate(logit, expit, lambda y: y * (1.0 - y), -700.0, 36.7)
    if np.isfinite(support.low):
        return Coordinate(np.log, np.exp, lambda y: y, -700.0, 700.0)
    return Coordinate(lambda y: y, lambda t: t, np.ones_like, -1e300, 1e300)


def roots(
    law: Pairs,
    q: float | Array,
    start: Array,
    at: Coordinate,
    slope: Array | None = None,
    cdf: Values | None = None,
    settled: float = SETTLED,
) -> Array:
    """Coordinates at which distribution functions are q, by Newton's method on their logits within brackets.

    Parameters
    ----------
    law : function of rows and y that gives P(Y <= y) and its derivative in the coordinate
    q : of all rows, or of each (m,)
    start : coordinates to start from, (m,)
    slope, cdf : derivatives at the starts that are nearly right, and P(Y <= y) alone, which then serves for rows that
        are next to their roots already
    settled : residual after which the step by such a slope, or by any without one, is the last one

    >>> from scipy.special import ndtr
    >>> line = Coordinate(lambda y: y, lambda t: t, np.ones_like, -1e300, 1e300)
    >>> normal = lambda rows, y: (ndtr(y), np.exp(-0.5 * y * y) / np.sqrt(2 * np.pi))
    >>> roots(normal, 0.975, np.zeros(1), line).round(6)
    array([1.959964])
    """
    z, low, high = start.copy(), np.full_like(start, -np.inf), np.full_like(start, np.inf)
    todo, level = np.arange(len(z)), np.broadcast_to(q, z.shape)
    tail = np.minimum(1.0, np.minimum(level, 1.0 - level) / TAIL)  # residuals count by what is left beyond them
    if slope is not None and cdf is not None:
        F = cdf(todo, at.back(z))
        step = logit_step(F, slope, level)
        near = np.abs(F - level) < NEARLY * tail
        z = np.where(near & np.isfinite(step), z + step, z)
        todo = todo[~(near & (np.abs(F - level) < settled * tail) & np.isfinite(step))]
    last = SETTLED if slope is not None else settled
    while todo.size:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            F, f = law(todo, at.back(z[todo]))
        here, q, above = z[todo], level[todo], level[todo] <= F
        low[todo], high[todo] = np.where(above, low[todo], here), np.where(above, here, high[todo])
        step = logit_step(F, f, q)
        lost = ~np.isfinite(step)
        step = np.where(lost, np.where(above, -1.0, 1.0) * (2.0 + np.abs(here)), step)
        new = np.clip(here + np.clip(step, -2.0 - np.abs(here), 2.0 + np.abs(here)), at.low, at.high)
        outside = (new <= low[todo]) | (new >= high[todo])
        with np.errstate(invalid="ignore"):
            middle = 0.5 * (low[todo] + high[todo])
            # a step too small for floats, with nothing known on the other side, is none
            new = np.where(outside, np.where(np.isfinite(middle), middle, here), new)
            closed = (high[todo] - low[todo] <= 1e-10 * (1.0 + np.abs(here))) | (new == here)
            closed |= outside & (at.back(new) == at.back(here))  # next to the end of a support floats lie far apart
        end = np.where(above, here <= at.low, here >= at.high)  # q is passed beyond what floats tell apart
        z[todo] = np.where(end, here, new)
        short = (np.abs(step) < SHORT * (1.0 + np.abs(here))) | (np.abs(F - q) < EXACT * tail[todo])
        todo = todo[~((np.abs(F - q) < last * tail[todo]) & short & ~lost & ~outside | closed | end)]
    return z


def logit_step(F: Array, slope: Array, q: Array) -> Array:
    """Newton's step towards q on the logit of F; not finite where F or its slope say nothing."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return (logit(q) - logit(F)) * F * (1.0 - F) / slope


def integer_roots(steps: Pairs, q: float, start: Array, most: Array) -> Array:
    """Smallest counts k at which distribution functions are not below q, from counts that are near them.

    ``steps`` gives P(Y < k) and P(Y <= k) for rows and k. From 2^53 on, where floats lie further apart than integers,
    one that is right to `CLOSE`; infinity beyond `LARGEST`.

    >>> integer_roots(lambda rows, k: (k / 10, (k + 1) / 10), 0.55, np.array([0.0, 9.0]), np.full(2, 9.0))
    array([5., 5.])
    """
    k, todo = np.minimum(np.ceil(start), LARGEST), np.arange(len(start))
    for _ in range(COUNT_STEPS):
        before, upto = steps(todo, k[todo])
        short, long = upto < q, before >= q
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            jump = np.where(short, q - upto, q - before) / (upto - before)
        jump = np.where(short, np.maximum(1.0, np.ceil(jump)), np.minimum(-1.0, np.ceil(jump)))
        # a probability that is small beside its neighbours' would lead astray
        jump = np.clip(np.nan_to_num(jump), np.floor(-0.5 * k[todo]) - 1.0, k[todo] + 1.0)
        k[todo] = np.where(short | long, np.clip(k[todo] + jump, 0.0, np.minimum(most[todo], LARGEST)), k[todo])
        todo = todo[short | long]
        if not todo.size:
            return k
    k[todo] = _halving(lambda v: steps(todo, v)[1] - q, k[todo])
    return k


def _halving(excess: Callable[[Array], Array], near: Array) -> Array:
    low, high = np.full_like(near, -1.0), np.minimum(np.ceil(near), LARGEST) + 1.0
    while (short := (excess(high) < 0) & (high < LARGEST)).any():
        with np.errstate(over="ignore"):
            further = np.minimum(high * np.maximum(2.0, np.sqrt(high)), LARGEST)
        low, high = np.where(short, high, low), np.where(short, further, high)
    beyond = excess(high) < 0
    while np.any(high - low > np.maximum(1.0, np.where(high < 2.0**53, 0.0, CLOSE * high))):
        half, ratio = low + 0.5 * (high - low), np.sqrt(low + 1.0) * np.sqrt(high)
        middle = np.floor(np.where(high > 4.0 * (low + 1.0), ratio, half))  # tails of counts are even in logarithms
        reached = excess(middle) >= 0
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return np.where(beyond, np.inf, high)


def values_between(cdf: Callable[[Array], Array], q: float, low: Array, high: Array) -> Array:
    """Values between two others at which increasing functions are q: the Illinois method, and halving where it is slow.

    >>> values_between(lambda z: z**3, 0.125, np.zeros(1), np.ones(1)).round(9)
    array([0.5])
    """
    low, high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    below, above = cdf(low) - q, cdf(high) - q
    for step in range(MOST_HALVINGS):
        width = high - low
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where((step % 3 < 2) & (above > below), -below / (above - below), 0.5)
        z = low + width * np.clip(np.nan_to_num(share, nan=0.5), 0.0, 1.0)
        value = cdf(z) - q
        done = (np.abs(value) < 1e-9) | (width <= 4 * np.spacing(np.maximum(np.abs(low), np.abs(high))))
        if done.all():
            return z
        right = value >= 0
        # the end that stays counts half, so that it is left in the end
        low, below = np.where(right, low, z), np.where(right, 0.5 * below, value)
        high, above = np.where(right, z, high), np.where(right, value, 0.5 * above)
    return z


def integers_between(cdf: Callable[[Array], Array], q: float, low: Array, high: Array) -> Array:
    """The smallest whole numbers between two others at which increasing functions reach q, by halving.

    >>> integers_between(lambda k: k / 10, 0.45, np.zeros(1), np.full(1, 10.0))
    array([5.])
    """
    low, high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    while np.any(low < high):
        middle = np.floor(0.5 * (low + high))
        reached = cdf(middle) >= q
        low, high = np.where(reached | (low >= high), low, middle + 1.0), np.where(reached, middle, high)
    return high
