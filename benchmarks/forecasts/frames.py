"""What a loader of the benchmark of forecasts gives, and what loaders share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True)
class Data:
    """Inputs, outputs and groups of one set.

    Parameters
    ----------
    X : data frame of numbers and categories
    y : array (n,) or (n, d): angles in radians, unit vectors, shares, counts, codes of classes or grades, numbers
    groups : array (n,) of labels; None if every row stands alone
    """

    X: pd.DataFrame
    y: NDArray
    groups: NDArray | None = None


def shares(parts: Any) -> NDArray:
    """Rows divided by their sums."""
    parts = np.asarray(parts, dtype=float)
    return parts / parts.sum(axis=1, keepdims=True)


def flags(frame: pd.DataFrame, **levels: str) -> pd.DataFrame:
    """Columns that say yes or no as 1 and 0: ``sex="m"`` is 1 where the column `sex` is "m"."""
    return frame.assign(**{name: (frame[name] == level).astype(float) for name, level in levels.items()})


def unit(latitude: Any, longitude: Any) -> NDArray:
    """Points of the globe as unit vectors, (n, 3)."""
    lat, long = np.radians(latitude), np.radians(longitude)
    return np.stack([np.cos(lat) * np.cos(long), np.cos(lat) * np.sin(long), np.sin(lat)], axis=1)


def labels(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """These columns as categories."""
    return frame.assign(**{name: pd.Categorical(frame[name].astype(str)) for name in names})


def of_two(successes: pd.Series, trials: pd.Series) -> NDArray:
    """Successes and failures, two columns."""
    return np.stack([successes, trials - successes], axis=1).astype(float)


def days_from(dates: pd.Series) -> pd.Series:
    """Days since the first date."""
    times = pd.to_datetime(dates)
    return (times - times.min()).dt.days.astype(float)


def directions(measures: Any) -> tuple[NDArray, NDArray]:
    """Shapes and sizes: rows divided by their lengths, and the lengths."""
    measures = np.asarray(measures, dtype=float)
    size = np.linalg.norm(measures, axis=1)
    return measures / size[:, None], size
