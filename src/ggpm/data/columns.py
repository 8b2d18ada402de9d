"""Columns of X: numbers, booleans, categories, times and durations as people have them, and as floats inside.

A category becomes the number of its label, a time the hours since 1970-01-01 00:00 (UTC where it has a zone),
whatever its resolution, a duration hours. What was learned of the columns (`Columns`) is kept with a fit, and later
rows are read by it: a label that was not seen gets a number of its own, everything else that differs is an error that
names the column.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ggpm.data import frames
from ggpm.data.raw import Raw, raw_columns
from ggpm.data.text import did_you_mean, stacklevel

__all__ = ["Column", "Columns", "check_finite", "merged"]

Array = NDArray[np.float64]
Kind = Literal["number", "boolean", "category", "time", "duration"]

KINDS: tuple[Kind, ...] = ("number", "boolean", "category", "time", "duration")
HOUR = np.timedelta64(1, "h")
ADVICE = "Drop those rows, or fill them in first (scikit-learn's SimpleImputer in a pipeline)."
MIXED_ADVICE = (
    "Drop those rows, or fill them in first: in a pipeline, by a ColumnTransformer of SimpleImputer(strategy='median') "
    "for numbers and SimpleImputer(strategy='constant', fill_value='unknown') for text, with remainder='passthrough' "
    "and .set_output(transform='pandas')."
)
MOST_NAMED = 5  # columns or labels that a message lists


@dataclass(frozen=True)
class Column:
    """One column of X as the door saw it: its name, what it holds, and the labels of a category.

    >>> Column("station", "category", ("a", "b")).labels
    ('a', 'b')
    """

    name: str | None
    kind: Kind = "number"
    labels: tuple[Any, ...] | None = None
    """Labels of a category; code j stands for the j-th."""
    zone: bool = False
    """Whether times came with a time zone, and are hours in UTC."""

    def decode(self, values: Array) -> Any:
        """Encoded values as users have them; times are rounded to microseconds."""
        if self.kind == "category":
            assert self.labels is not None
            out = np.empty(len(values), dtype=object)
            out[:] = [self.labels[int(code)] for code in values]
            return out
        if self.kind in ("time", "duration"):
            span = np.round(values * 3.6e9).astype("timedelta64[us]")
            times = span if self.kind == "duration" else np.datetime64(0, "us") + span
            return frames.require("pandas").DatetimeIndex(times).tz_localize("UTC") if self.zone else times
        return values.astype(bool) if self.kind == "boolean" else values

    def encode(self, raw: Raw, where: str) -> Array:
        """The column as floats (n,), NaN where it is missing."""
        if self.kind == "category":
            assert self.labels is not None
            return _codes(raw, self.labels, where)
        if self.kind in ("time", "duration"):
            if raw.values.dtype.kind != ("M" if self.kind == "time" else "m"):
                raise ValueError(f"{where} must be {_plural(self.kind)}, as in fit; got {raw.found}.")
            if self.kind == "time" and raw.zone != self.zone:
                with_or_not = "with" if self.zone else "without"
                raise ValueError(f"{where} must be times {with_or_not} a time zone, as in fit; got the other kind.")
            return hours(raw.values)
        if raw.labels is not None or raw.values.dtype.kind in "mM":
            raise ValueError(f"{where} must be {_plural(self.kind)}, as in fit; got {raw.found}.")
        return _numbers(raw.values, where)


@dataclass(frozen=True)
class Columns:
    """Columns of X: their number, their names, and what each holds (None: numbers, all of them).

    >>> Columns(2, ("height", "depth")).count
    2
    """

    count: int
    names: tuple[str, ...] | None = None
    members: tuple[Column, ...] | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each column holds.

        >>> Columns(2).kinds
        ('number', 'number')
        """
        return ("number",) * self.count if self.members is None else tuple(column.kind for column in self.members)

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers (or booleans, which are 0 and 1)."""
        return all(kind in ("number", "boolean") for kind in self.kinds)

    def called(self, j: int) -> str:
        """Column j in words.

        >>> Columns(2, ("hour", "station")).called(1), Columns(2).called(1)
        ("column 'station'", 'column 1')
        """
        return f"column {j}" if self.names is None else f"column {self.names[j]!r}"

    def position(self, column: str | int) -> int:
        """Number of the column with a name (or a number).

        >>> Columns(2, ("hour", "station")).position("station")
        1
        """
        if isinstance(column, str):
            if self.names is None:
                raise ValueError(
                    f"X came without column names, so that there is no column {column!r}: pass a data frame, or name "
                    f"columns by number, 0 to {self.count - 1}."
                )
            if column not in self.names:
                hint = did_you_mean(column, self.names) or f" It has {', '.join(self.names[:12])}."
                raise ValueError(f"X has no column {column!r}.{hint}")
            return self.names.index(column)
        if not 0 <= column < self.count:
            raise ValueError(f"X has columns 0 to {self.count - 1}; got column {column!r}.")
        return int(column)

    def part(self, at: Sequence[int]) -> Columns:
        """Some of the columns.

        >>> Columns(2, ("hour", "station")).part([1]).names
        ('station',)
        """
        return Columns(
            len(at),
            None if self.names is None else tuple(self.names[j] for j in at),
            None if self.members is None else tuple(self.members[j] for j in at),
        )

    def extended(self, X: Any) -> Columns:
        """The same columns with the labels of X that are new, after those that are known.

        >>> learn([["a"], ["b"]])[0].extended([["c"], ["a"]]).members[0].labels
        ('a', 'b', 'c')
        """
        if self.members is None or "category" not in self.kinds:
            return self
        members = []
        for member, raw in zip(self.members, raw_columns(X), strict=True):
            if member.labels is not None:
                seen = raw.values if raw.text is None or not isinstance(member.labels[0], str) else raw.text
                new = [label for label in dict.fromkeys(seen.tolist()) if label is not None and label == label]
                more = tuple(label for label in new if label not in member.labels)
                member = replace(member, labels=member.labels + more)
            members.append(member)
        return replace(self, members=tuple(members))

    def code(self, j: int, value: Any) -> float:
        """One value of column j as the user writes it, encoded.

        >>> learn([["a", 2.5], ["b", 3.5]])[0].code(0, "b")
        1.0
        """
        member = Column(None) if self.members is None else self.members[j]
        if member.labels is not None and value not in member.labels:
            known = ", ".join(repr(label) for label in member.labels[:MOST_NAMED])
            raise ValueError(f"{self.called(j)} has no label {value!r}; there are {known}.")
        (raw,) = raw_columns(np.array([[value]], dtype=object))
        found = member.encode(raw, self.called(j))
        check_finite(found[:, None], Columns(1, None if self.names is None else (self.names[j],)), 0)
        return float(found[0])

    def decode(self, X: Array) -> Any:
        """Encoded rows as users have them: a pandas frame where the columns have names, else an array.

        >>> learn([["a", 2.5], ["b", 3.5]])[0].decode(np.array([[1.0, 7.0]])).tolist()
        [['b', 7.0]]
        """
        if self.names is None and self.plain:
            return X
        members = self.members or tuple(Column(None) for _ in range(self.count))
        values = [member.decode(X[:, j]) for j, member in enumerate(members)]
        if self.names is not None:
            return frames.require("pandas").DataFrame(dict(zip(self.names, values)))
        out = np.empty(X.shape, dtype=object)
        for j, column in enumerate(values):
            out[:, j] = column.tolist()
        return out

    def encode(self, X: Any, start: int = 0) -> Array:
        """Rows as users have them, (n, features) floats; columns are taken in order, their names were checked before.

        ``start`` is the number of the first row, for messages.

        >>> columns, X = learn([["a", 2.5], ["b", 3.5]])
        >>> columns.kinds, columns.encode([["b", 1.0]])
        (('category', 'number'), array([[1., 1.]]))
        """
        members = self.members or tuple(Column(None) for _ in range(self.count))
        out = [m.encode(raw, self.called(j)) for j, (m, raw) in enumerate(zip(members, raw_columns(X), strict=True))]
        X = np.stack(out, axis=1)
        check_finite(X, self, start)
        return X


def learn(X: Any, names: Sequence[str] | None = None, start: int = 0) -> tuple[Columns, Array]:
    """What the columns of X are, and X as floats (n, features); ``start`` is the number of the first row.

    >>> times = np.array(["1970-01-02", "1970-01-03"], dtype="datetime64[D]")
    >>> learn(times[:, None])[1]
    array([[24.],
           [48.]])
    """
    split = list(raw_columns(X))
    known = Columns(len(split), None if names is None else tuple(names))
    members, values = [], []
    for j, raw in enumerate(split):
        member = _column(None if names is None else names[j], raw, known.called(j))
        members.append(member)
        values.append(member.encode(raw, known.called(j)))
    out = np.stack(values, axis=1)
    columns = Columns(known.count, known.names, tuple(members))
    check_finite(out, columns, start)
    return columns, out


def merged(parts: Sequence[Columns]) -> Columns:
    """What columns are of which several parts were seen: labels of all of them, numbers where some were booleans.

    >>> one, other = (learn([[label]])[0] for label in "ba")
    >>> merged([one, other]).members[0].labels
    ('a', 'b')
    """
    first = parts[0]
    if all(part.members is None for part in parts):
        return first
    members = []
    for j in range(first.count):
        seen = [Column(None) if part.members is None else part.members[j] for part in parts]
        kinds = {column.kind for column in seen}
        zones = {column.zone for column in seen}
        if kinds == {"number", "boolean"}:
            kinds = {"number"}
        if len(kinds) > 1 or len(zones) > 1:
            told = " and ".join(sorted(map(_plural, kinds))) if len(kinds) > 1 else "times with and without a time zone"
            raise ValueError(f"{first.called(j)} has values of several kinds: {told}. Make them of one kind.")
        labels = tuple(dict.fromkeys(label for column in seen for label in column.labels or ()))
        if all(isinstance(label, str) for label in labels) and len({column.labels for column in seen}) > 1:
            labels = tuple(sorted(labels))  # text in the order that it has where all of it is seen at once
        members.append(replace(seen[0], kind=kinds.pop(), labels=labels or None))
    return replace(first, members=tuple(members))


def is_table(X: Any) -> bool:
    """Whether X may have columns that are not numbers: a data frame, or an array of objects, text or times.

    >>> is_table(np.zeros((2, 2))), is_table(np.zeros((2, 2), dtype="datetime64[s]"))
    (False, True)
    """
    if frames.kind_of(X) is not None:
        return hasattr(X, "columns")
    if isinstance(X, list | tuple) and X and isinstance(X[0], list | tuple):
        return any(isinstance(value, str | datetime.date | np.datetime64) for row in X for value in row)
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.size == 0:
        return False
    if X.dtype != object:
        return X.dtype.kind in "mM"
    return any(isinstance(value, str | datetime.date | datetime.timedelta | np.datetime64) for value in X.ravel())


def time_text(hours: float) -> str:
    """A time to the minute, from hours since 1970.

    >>> time_text(24.5)
    '1970-01-02 00:30'
    """
    minute = np.datetime64(0, "m") + np.timedelta64(round(60 * hours), "m")
    return str(minute).replace("T", " ")


def hours(values: NDArray) -> Array:
    """Times as hours since 1970-01-01 00:00, durations as hours; NaT is NaN. The resolution does not show.

    >>> hours(np.array(["2000-01-01T06:00"], dtype="datetime64[ns]")) == hours(np.array(["2000-01-01T06"], "M8[h]"))
    array([ True])
    """
    missing = np.isnat(values)
    filled = np.where(missing, np.zeros((), values.dtype), values)
    if values.dtype.kind == "M":
        # whole days and the rest apart: both are exact, so that the sum is the same from any resolution
        days = filled.astype("datetime64[D]")
        out = 24.0 * days.astype(np.int64) + (filled - days) / HOUR
    elif np.datetime_data(values.dtype)[0] in "YM":
        raise ValueError(f"durations in months or years have no fixed length ({values.dtype}): pass days or hours.")
    else:
        out = filled / HOUR
    return np.where(missing, np.nan, out)


def check_finite(X: Array, columns: Columns, start: int = 0) -> None:
    """Raise ValueError that names the columns with missing or infinite values, how many, and the first row.

    >>> check_finite(np.array([[1.0, np.nan]]), Columns(2, ("hour", "temp")))
    Traceback (most recent call last):
    ...
    ValueError: Input X contains NaN: column 'temp' in 1 of 1 row(s), first in row 0. Drop those rows, or fill them in \
first (scikit-learn's SimpleImputer in a pipeline).
    """
    for bad, what in ((np.isnan, "NaN"), (np.isinf, "infinity or a value too large")):
        mask = bad(X)
        if mask.any():
            found = np.flatnonzero(mask.any(axis=0))
            first = start + mask.argmax(axis=0)
            told = [
                f"{columns.called(j)} in {mask[:, j].sum()} of {len(X)} row(s), first in row {first[j]}"
                for j in found[:MOST_NAMED]
            ]
            more = f"; and {len(found) - MOST_NAMED} more column(s)" if len(found) > MOST_NAMED else ""
            raise ValueError(
                f"Input X contains {what}: {'; '.join(told)}{more}. {ADVICE if columns.plain else MIXED_ADVICE}"
            )


# ---- from raw values to floats -------------------------------------------------------------------------------------


def _column(name: str | None, raw: Raw, where: str) -> Column:
    """What a column is, from its raw values."""
    if raw.labels is not None:
        if not raw.labels:
            raise ValueError(f"{where} has no value in any row.")
        return Column(name, "category", raw.labels)
    kind = raw.values.dtype.kind
    if kind == "c":
        raise ValueError(f"{where} must be real numbers; got complex ones.")
    kinds: dict[str, Kind] = {"M": "time", "m": "duration", "b": "boolean"}
    return Column(name, kinds.get(kind, "number"), zone=raw.zone)


def _codes(raw: Raw, labels: tuple[Any, ...], where: str) -> Array:
    """Codes of labels; one that was not seen in fit gets the next free number, in all its rows, and is told."""
    if raw.values.dtype.kind in "mM":
        raise ValueError(f"{where} must be labels, as in fit; got {raw.found}.")
    known = {label: float(code) for code, label in enumerate(labels)}
    values = (raw.values if raw.text is None or not isinstance(labels[0], str) else raw.text).tolist()
    out = np.empty(len(values))
    new: dict[Any, float] = {}
    for row, value in enumerate(values):
        if value is None or value != value:
            out[row] = np.nan
        else:
            out[row] = known.get(value, np.nan)
            if np.isnan(out[row]):
                out[row] = new.setdefault(value, float(len(labels) + len(new)))
    if new:
        if not isinstance(next(iter(new)), type(labels[0])) and not known.keys() & set(values):
            raise ValueError(
                f"{where} must be labels such as {labels[0]!r}, as in fit; got {raw.found} such as {next(iter(new))!r}."
            )
        shown = ", ".join(repr(label) for label in list(new)[:MOST_NAMED])
        warnings.warn(
            f"{where} has {len(new)} label(s) that were not seen in fit ({shown}{', ...' if len(new) > 5 else ''}): "
            "each is predicted as a new one.",
            UserWarning,
            stacklevel=stacklevel(),
        )
    return out


def _numbers(values: NDArray, where: str) -> Array:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} must be numbers; {error}.") from None


def _plural(kind: str) -> str:
    return {"category": "labels"}.get(kind, f"{kind}s")
