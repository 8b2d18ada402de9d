"""The door: checks that turn what a user passes to `fit` into chunks of encoded rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import as_numbers, as_offset, as_weight, check_labels, check_squares
from ggpm.data.columns import Columns, check_finite, is_table, learn
from ggpm.data.frames import missing_rows
from ggpm.data.rows import Chunk, Rows, with_weight
from ggpm.data.text import Message

if TYPE_CHECKING:
    from ggpm.families.base import Family

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """Names of the columns of y, the kind of frame it came in, and its labels (classifiers)."""

    names: list[str] | None = None
    kind: str | None = None
    classes: NDArray | None = None


@dataclass(frozen=True)
class Preparation:
    """Checks and encodes one chunk: rows that say nothing dropped, X by its columns, y in the family's support."""

    columns: Columns
    n_rows: int
    """Rows that are left of all chunks."""
    starts: Mapping[int, int] | None = None
    """Number of the first row that is left of a chunk, by that of its first row; None: all are left."""
    family: Family | None = None
    """None: y stays as it is."""
    classes: NDArray | None = None
    weighted: bool = False

    def __call__(self, chunk: Chunk) -> Chunk:
        X = encoded_inputs(chunk, self.columns)
        chunk = replace(chunk, X=X, y=np.asarray(chunk.y))
        keep = slice(None) if self.starts is None else says_something(chunk)
        first = chunk.start if self.starts is None else self.starts[chunk.start]
        if self.family is None:
            return chunk.at(keep, first)
        left = chunk.at(keep, chunk.start)
        try:
            y = self.family.encode(left.y if self.classes is None else codes_of(left.y, self.classes))
        except ValueError as err:
            raise ValueError(Message(f"{where(chunk)}: ", err)) from None
        if len(y) != len(left):
            raise ValueError(f"{where(chunk)}: X has {len(left)} rows and y {len(y)}. Give both the same partitions.")
        if self.weighted:
            y = with_weight(y, np.ones(len(left)) if left.weight is None else np.asarray(left.weight, dtype=float))
        offset = as_offset(left.offset, len(left), self.family.latent_dim, f"{where(chunk)}: offset")
        return Chunk(left.X, y, offset + self.family.origin, first)


def says_something(chunk: Chunk) -> NDArray[np.bool_]:
    """Mask of the rows with a y, or a part of one, and a positive weight."""
    keep = ~missing_rows(chunk.y)
    return keep if chunk.weight is None else keep & (np.asarray(chunk.weight) > 0)


def where(chunk: Chunk) -> str:
    """The chunk in words."""
    return f"in the chunk of rows {chunk.start} to {chunk.start + len(chunk) - 1} (rows below count from its first)"


def _placed(error: Exception, chunk: Chunk) -> ValueError:
    """An error about X that says where; of missing values it does already."""
    return ValueError(str(error) if str(error).startswith("Input X") else f"{where(chunk)}: {error}")


def encoded_inputs(chunk: Chunk, columns: Columns) -> Array:
    """X of a chunk as finite numbers."""
    if np.ndim(chunk.X) != 2 or np.shape(chunk.X)[1] != columns.count:
        raise ValueError(f"{where(chunk)}: X must have {columns.count} columns; got shape {np.shape(chunk.X)}.")
    try:
        if columns.plain and not is_table(chunk.X):
            X = np.ascontiguousarray(chunk.X, dtype=np.float64)
            check_finite(X, columns, chunk.start)
        else:
            X = columns.encode(chunk.X, chunk.start)
    except (TypeError, ValueError) as err:
        raise _placed(err, chunk) from None
    check_squares(X)
    return X


def codes_of(y: Any, classes: NDArray) -> Array:
    """Codes of labels."""
    y = np.asarray(y).reshape(-1)
    order = np.argsort(classes)
    place = np.clip(np.searchsorted(classes, y, sorter=order), 0, len(classes) - 1)
    codes = order[place]
    unknown = classes[codes] != y
    if np.any(unknown):
        raise ValueError(f"y has labels that were not expected: {', '.join(sorted(set(map(str, y[unknown])))[:5])}.")
    return codes.astype(float)


# ---- what is looked at before the family is known -----------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """Facts about one raw chunk that are needed before the family is known."""

    start: int
    kept: int
    """Rows with a y and a positive weight."""
    missing: int
    """Rows without a y."""
    first_missing: int
    weight: float
    """Weight of the rows that are kept."""
    columns: Columns
    y: NDArray
    """Labels, or rows that hold the largest and smallest values, and one with missing parts."""


def facts_about(chunk: Chunk, names: Sequence[str] | None, n_features: int, labels: bool) -> Facts:
    """What one chunk shows of the columns of X and of y, as users have them."""
    columns = Columns(n_features, None if names is None else tuple(names))
    if is_table(chunk.X):
        try:
            columns, X = learn(chunk.X, names, chunk.start)
        except (TypeError, ValueError) as err:
            raise _placed(err, chunk) from None
        check_squares(X)
    else:
        encoded_inputs(chunk, columns)
    y = np.asarray(chunk.y)
    if len(y) != len(chunk):
        raise ValueError(
            f"{where(chunk)}: X has {len(chunk)} rows and y {len(y)}. Give X and y the same rows and partitions."
        )
    if chunk.weight is not None:
        as_weight(chunk.weight, len(chunk), f"{where(chunk)}: sample_weight", some=False)
    missing, keep = missing_rows(y), says_something(replace(chunk, y=y))
    weight = float(keep.sum() if chunk.weight is None else np.asarray(chunk.weight, dtype=float)[keep].sum())
    first = chunk.start + int(missing.argmax())
    few = _labels(y[keep]) if labels else _extremes(y[keep], chunk)
    return Facts(chunk.start, int(keep.sum()), int(missing.sum()), first, weight, columns, few)


def _labels(y: NDArray) -> NDArray:
    check_labels(y)
    return np.unique(y.astype(str) if y.dtype == object else y)


def _extremes(y: NDArray, chunk: Chunk) -> NDArray:
    """Rows with the largest and smallest values, and the first of which parts are missing."""
    numbers = as_numbers(y, f"{where(chunk)}: y", "numbers")
    infinite = np.isinf(numbers)
    if infinite.any():
        raise ValueError(f"y contains infinity: {where(chunk)}, in {int(infinite.sum())} place(s).")
    if not len(y):
        return y
    flat = numbers.reshape(len(numbers), -1)
    partly = np.flatnonzero(np.isnan(flat).any(axis=1))[:1]
    seen = flat[:, ~np.isnan(flat).all(axis=0)]
    return y[np.unique(np.concatenate([np.nanargmax(seen, axis=0), np.nanargmin(seen, axis=0), partly]))]


def rows_with_numbers(chunk: Chunk, indices: NDArray[np.int64]) -> Chunk:
    """Rows of a chunk whose numbers, among all rows, are in a sorted list."""
    first, last = np.searchsorted(indices, [chunk.start, chunk.start + len(chunk)])
    rows = indices[first:last] - chunk.start
    return chunk.at(rows, chunk.start)


def take_rows(rows: Rows, indices: NDArray[np.int64]) -> Chunk:
    """The rows with these numbers, in the order of their numbers, as one chunk."""
    return concatenated(rows.collect(rows_with_numbers, (np.sort(indices),)))


def concatenated(chunks: list[Chunk]) -> Chunk:
    """Chunks one after the other, as one chunk whose rows are numbered from 0."""

    def joined(name: str) -> Any:
        parts = [getattr(chunk, name) for chunk in chunks]
        return None if parts[0] is None else np.concatenate(parts)

    return Chunk(joined("X"), joined("y"), joined("offset"), 0, joined("weight"))
