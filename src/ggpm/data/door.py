"""The door: checks that turn what a user passes to `fit` into chunks of encoded rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import as_numbers, as_offset, check_labels, check_squares
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
    """Checks and encodes one chunk: numbers, finite, as many columns as before, y in the family's support."""

    family: Family
    classes: NDArray | None
    n_features: int
    weight: Array | None = None
    """Weights of all rows, by their numbers."""

    def __call__(self, chunk: Chunk) -> Chunk:
        X = checked_inputs(chunk, self.n_features)
        try:
            y = self.family.encode(chunk.y if self.classes is None else codes_of(chunk.y, self.classes))
        except ValueError as err:
            raise ValueError(Message(f"{where(chunk)}: ", err)) from None
        if len(y) != len(X):
            raise ValueError(f"{where(chunk)}: X has {len(X)} rows and y {len(y)}. Give both the same partitions.")
        if self.weight is not None:
            y = with_weight(y, self.weight[chunk.start : chunk.start + len(chunk)])
        offset = as_offset(chunk.offset, len(chunk), self.family.latent_dim, f"{where(chunk)}: offset")
        return Chunk(X, y, offset + self.family.origin, chunk.start)


def where(chunk: Chunk) -> str:
    """The chunk in words."""
    return f"in the chunk of rows {chunk.start} to {chunk.start + len(chunk) - 1} (rows below count from its first)"


def checked_inputs(chunk: Chunk, n_features: int) -> Array:
    """X of a chunk as finite numbers."""
    if np.asarray(chunk.X).dtype.kind in "mM":  # NumPy would count in units of their resolution
        raise ValueError(f"{where(chunk)}: X must be numbers; got times. Pass hours since a start in their place.")
    try:
        X = np.ascontiguousarray(chunk.X, dtype=np.float64)
    except (TypeError, ValueError) as err:
        raise ValueError(f"{where(chunk)}: X must be numbers; {err}.") from None
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"{where(chunk)}: X must have {n_features} columns; got shape {X.shape}.")
    finite = np.isfinite(X)
    if not finite.all():
        bad = np.argwhere(~finite)
        kind = "NaN" if np.isnan(X).any() else "infinity"
        raise ValueError(
            f"Input X contains {kind}: {where(chunk)}, {len(bad)} value(s), the first in row "
            f"{chunk.start + int(bad[0][0])}, column {int(bad[0][1])}. Remove or impute those rows before fitting."
        )
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


def facts_about_y(chunk: Chunk, n_features: int, labels: bool) -> dict[str, Any]:
    """Facts about the raw y of one chunk: its labels, or the rows that hold its largest values."""
    checked_inputs(chunk, n_features)
    y = np.asarray(chunk.y)
    if len(y) != len(chunk):
        raise ValueError(
            f"{where(chunk)}: X has {len(chunk)} rows and y {len(y)}. Give X and y the same rows and partitions."
        )
    if labels:
        check_labels(y)
        return {"labels": np.unique(y)}
    numbers = as_numbers(y, f"{where(chunk)}: y", "numbers")
    if not np.all(np.isfinite(numbers)):
        bad = int(np.argwhere(~np.isfinite(numbers))[0][0])
        raise ValueError(
            f"y contains NaN or infinity: {where(chunk)}, first in row {chunk.start + bad}. Remove or impute those "
            "rows before fitting."
        )
    flat = numbers.reshape(len(numbers), -1)
    return {"extremes": y[np.unique(np.concatenate([flat.argmax(axis=0), flat.argmin(axis=0)]))]}


def rows_with_numbers(chunk: Chunk, indices: NDArray[np.int64]) -> Chunk:
    """Rows of a chunk whose numbers, among all rows, are in a sorted list."""
    first, last = np.searchsorted(indices, [chunk.start, chunk.start + len(chunk)])
    rows = indices[first:last] - chunk.start
    return Chunk(
        np.asarray(chunk.X)[rows],
        np.asarray(chunk.y)[rows],
        None if chunk.offset is None else np.asarray(chunk.offset)[rows],
        chunk.start,
    )


def take_rows(rows: Rows, indices: NDArray[np.int64]) -> Chunk:
    """The rows with these numbers, in the order of their numbers, as one chunk."""
    return concatenated(rows.collect(rows_with_numbers, (np.sort(indices),)))


def concatenated(chunks: list[Chunk]) -> Chunk:
    """Chunks one after the other, as one chunk whose rows are numbered from 0."""
    return Chunk(
        np.concatenate([c.X for c in chunks]),
        np.concatenate([c.y for c in chunks]),
        None if chunks[0].offset is None else np.concatenate([c.offset for c in chunks]),
        0,
    )
