"""Rows whose y is missing: left out, and told, wherever outputs come in."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_consistent_length

from ggpm.data import frames
from ggpm.data.kinds import is_streamed
from ggpm.data.text import Message, Row, stacklevel


def rows_with_y(X: Any, y: Any, *others: Any) -> tuple[Any, ...]:
    """X, y and what else belongs to the rows, without rows in which all of y is missing; these are told.

    Among the others None and single numbers stay as they are. Rows in chunks are looked at elsewhere.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     rows_with_y(np.array([[0.0], [1.0]]), [3.0, np.nan], None, [5.0, 6.0])
    (array([[0.]]), array([3.]), None, [5.0])
    """
    if is_streamed(X) or is_streamed(y) or y is None:
        return X, y, *others
    y = _with_rows(y)
    if np.ndim(y) == 0:
        return X, y, *others  # what is wrong with it is told by the family
    missing = frames.missing_rows(y)
    if not missing.any():
        return X, y, *others
    check_consistent_length(X, y)
    if missing.all():
        raise ValueError(f"y is missing in all {len(y)} row(s): there is nothing to compare predictions with.")
    tell_missing(int(missing.sum()), len(y), int(missing.argmax()))
    index = np.flatnonzero(~missing)
    taken = []
    for value in others:
        if value is not None and np.ndim(value):
            check_consistent_length(X, value)
            value = _safe_indexing(value, index)
        taken.append(value)
    return _safe_indexing(X, index), _of_one_type(_safe_indexing(y, index)), *taken


def _with_rows(y: Any) -> Any:
    """y as an array or a frame: lists as arrays."""
    return frames.in_a_series(y) if frames.kind_of(y) or isinstance(y, np.ndarray) else frames.values_of(y)


def _of_one_type(y: Any) -> Any:
    """y as it would have come if nothing had been missing: objects for the sake of a None as numbers or text."""
    if frames.kind_of(y) == "pandas":
        return y.infer_objects()
    return np.array(y.tolist()) if isinstance(y, np.ndarray) and y.dtype == object else y


def in_their_rows(values: NDArray, y: Any) -> NDArray:
    """Values of the rows that `rows_with_y` left of y, each in its row, and NaN in the others.

    >>> in_their_rows(np.array([2.0]), [3.0, np.nan])
    array([ 2., nan])
    """
    missing = frames.missing_rows(_with_rows(y))
    if not missing.any():
        return values
    out = np.full((len(missing), *values.shape[1:]), np.nan)
    out[~missing] = values
    return out


def tell_missing(count: int, n: int, first: int) -> None:
    """Warn of rows that are left out because their y is missing."""
    warnings.warn(
        Message(f"y is missing in {count} of {n} row(s), first in row ", Row(first), ": they are left out."),
        UserWarning,
        stacklevel=stacklevel(),
    )
