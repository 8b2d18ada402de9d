"""Roots of many increasing functions at once: quantiles from distribution functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from ggpm.families.support import Support

Array = NDArray[np.float64]

LARGEST = 1e300  # count up to which a quantile is looked for


def root(excess: Callable[[Array], Array], near: Array, support: Support) -> Array:
    """Root of an increasing function on a continuous support, near a point within it.

    By the Illinois method (Dowell and Jarratt 1971).
    """
    with np.errstate(divide="ignore"):  # at the end of the support, or beyond the floats: a start within reach will do
        if np.isfinite(support.high):  # the coordinate in which the support is the real line
            start, back = np.clip(logit(near), -35.0, 35.0), expit
        elif np.isfinite(support.low):
            start, back = np.clip(np.log(near), -690.0, 690.0), np.exp
        else:
            start, back = near, lambda t: t
    low, high = start - 1.0, start + 1.0
    f_low, f_high = excess(back(low)), excess(back(high))
    while (short := (f_low > 0) & (low > -700)).any():  # exp(-700) is next to the smallest float
        low = np.where(short, low - 2.0 * (high - low), low)
        f_low = excess(back(low))
    while (short := (f_high < 0) & (high < 700)).any():
        high = np.where(short, high + 2.0 * (high - low), high)
        f_high = excess(back(high))
    for _ in range(60):
        middle = np.where(
            f_high > f_low, high - f_high * (high - low) / np.where(f_high > f_low, f_high - f_low, 1), low
        )
        middle = np.clip(middle, low, high)
        f = excess(back(middle))
        if np.all((np.abs(f) < 1e-12) | (high - low < 1e-12 * (1 + np.abs(high)))):
            break
        above = f > 0
        # halving the value at the end that stays keeps the bracket shrinking from both sides
        f_low, f_high = np.where(above, 0.5 * f_low, f), np.where(above, f, 0.5 * f_high)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return back(middle)


def integer_root(excess: Callable[[Array], Array], near: Array) -> Array:
    """Smallest integer k >= 0 at which an increasing step function is not negative.

    From 2^53 on, where floats lie further apart than integers, the smallest such float; infinity beyond `LARGEST`.

    >>> integer_root(lambda k: k - 6.5, np.array([0.0, 1e300]))
    array([7., 7.])
    """
    low, high = np.full_like(near, -1.0), np.minimum(np.ceil(near), LARGEST) + 1.0
    while (short := (excess(high) < 0) & (high < LARGEST)).any():
        high = np.where(short, np.minimum(2.0 * high, LARGEST), high)
    beyond = excess(high) < 0
    while np.any(high - low > np.maximum(1.0, np.spacing(high))):
        middle = np.floor(low + 0.5 * (high - low))
        reached = excess(middle) >= 0
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return np.where(beyond, np.inf, high)
