"""Proper scores of forecasts, row by row, and their means with standard errors of groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DRAWS = 400  # of every predictive distribution: the noise of a mean over 1000 rows is a thousandth of the score
MEASURES = ("log_density", "energy", "error", "depth")


def distance(kind: str, a: NDArray, b: NDArray) -> Array:
    """How far outputs are apart: arcs in radians, distances of vectors, numbers and grades, 0 and 1 for classes."""
    if kind == "angle":
        return np.abs((a - b + np.pi) % (2 * np.pi) - np.pi)
    if kind in ("direction", "composition", "counts"):
        return np.linalg.norm(a - b, axis=-1)
    return (a != b).astype(float) if kind == "class" else np.abs(a - b)


def energy(kind: str, draws: NDArray, y: NDArray) -> Array:
    """Energy score of draws (s, m, ...), E d(Y, y) - E d(Y, Y')/2: the CRPS of numbers, half the Brier of classes.

    Pairs of draws are those of consecutive ones, each taken twice.
    """
    return distance(kind, draws, y).mean(axis=0) - 0.5 * distance(kind, draws, np.roll(draws, 1, axis=0)).mean(axis=0)


def error(kind: str, draws: NDArray, y: NDArray) -> Array:
    """Error of the point forecast: degrees of mean directions, half the absolute differences of mean shares, absolute
    errors of medians, wrong classes."""
    if kind == "angle":
        centre = np.arctan2(np.sin(draws).mean(axis=0), np.cos(draws).mean(axis=0))
        return np.degrees(distance(kind, centre, y))
    if kind == "direction":
        centre = draws.mean(axis=0)
        centre /= np.linalg.norm(centre, axis=-1, keepdims=True)
        return np.degrees(2 * np.arcsin(np.clip(np.linalg.norm(centre - y, axis=-1) / 2, 0, 1)))
    if kind in ("composition", "counts"):
        return 0.5 * np.abs(draws.mean(axis=0) - y).sum(axis=-1) / y.sum(axis=-1)
    if kind == "class":
        counts = np.stack([(draws == k).sum(axis=0) for k in range(int(max(draws.max(), y.max())) + 1)])
        return (counts.argmax(axis=0) != y).astype(float)
    return np.abs(np.median(draws, axis=0) - y)


def depth(forecast: Any, draws: NDArray, log_density: Array, rng: np.random.Generator) -> Array:
    """The level of the smallest highest-density region that contains y, randomised where densities are equal.

    Uniform if the forecast is right, whatever y is; for classes and counts it is a randomised transform.
    """
    at_draws = np.stack([forecast.log_prob(draw) for draw in draws])
    tie = np.isclose(at_draws, log_density, rtol=1e-12, atol=1e-12)
    above = (at_draws > log_density) & ~tie
    return above.mean(axis=0) + rng.uniform(size=len(log_density)) * tie.mean(axis=0)


def rank_depth(draws: NDArray, y: NDArray, rng: np.random.Generator) -> Array:
    """The level of the central interval that reaches y among draws, (s, m, d), in one category of each row.

    For counts of many categories, whose probabilities at hundreds of draws would cost more than all fits.
    """
    rows, chosen = np.arange(len(y)), rng.integers(y.shape[1], size=len(y))
    one, seen = draws[:, rows, chosen], y[rows, chosen]
    u = ((one < seen).sum(axis=0) + rng.uniform(size=len(y)) * ((one == seen).sum(axis=0) + 1)) / (len(draws) + 1)
    return np.abs(2 * u - 1)


def score(kind: str, forecast: Any, y: NDArray, seed: int) -> dict[str, Array]:
    """All measures of the rows of one split; a forecast that has a `depth` of its own is asked for it."""
    rng = np.random.default_rng(seed)
    log_density = forecast.log_prob(y)
    draws = forecast.sample(DRAWS, rng)
    own = getattr(forecast, "depth", None)
    if kind == "counts":
        level = rank_depth(draws, y, rng)
    else:
        level = own(y) if own is not None else depth(forecast, draws, log_density, rng)
    values = (log_density, energy(kind, draws, y), error(kind, draws, y), level)
    return dict(zip(MEASURES, (np.asarray(value, dtype=float) for value in values)))


def mean_and_error(values: Array, groups: NDArray | None = None) -> tuple[float, float]:
    """Mean of rows and its standard error, with groups as what is drawn independently; NaN where a row is infinite.

    >>> mean_and_error(np.array([1.0, 3.0]))
    (2.0, 1.0)
    >>> mean_and_error(np.array([1.0, 1.0, 3.0, 3.0]), np.array([0, 0, 1, 1]))
    (2.0, 1.0)
    """
    mean = float(values.mean())
    if not np.isfinite(mean):  # a density of zero
        return mean, np.nan
    _, member = np.unique(np.arange(len(values)) if groups is None else groups, return_inverse=True)
    sums = np.bincount(member, values - mean)
    count = len(sums)
    return mean, float(np.sqrt(np.sum(sums**2) * count / max(count - 1, 1)) / len(values))
