"""Columns of X: numbers, booleans, categories, times and durations as people have them, and as floats inside.

A category becomes the number of its label, a time the hours since 1970-01-01 00:00 (UTC where it has a zone),
whatever its resolution, a duration hours. What was learned of the columns (`Columns`) is kept with a fit, and later
rows are read by it: a label that was not seen gets a number of its own, everything else that differs is an error that
names the column.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ggpm.data import frames
from ggpm.data.text import did_you_mean, stacklevel

__all__ = ["Column", "Columns", "check_finite"]

Array = NDArray[np.float64]
Kind = Literal["number", "boolean", "category", "time", "duration"]

KINDS: tuple[Kind, ...] = ("number", "boolean", "category", "time", "duration")
HOUR = np.timedelta64(1, "h")
ADVICE = "Drop those rows, or fill them in first (scikit-learn's SimpleImputer in a pipeline)."
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
        for member, (_, raw) in zip(self.members, _split(X), strict=True):
            if member.labels is not None:
                seen = raw.values if raw.text is None or not isinstance(member.labels[0], str) else raw.text
                new = [label for label in dict.fromkeys(seen.tolist()) if label is not None and label == label]
                more = tuple(label for label in new if label not in member.labels)
                member = replace(member, labels=member.labels + more)
            members.append(member)
        return replace(self, members=tuple(members))

    def centre(self, X: Array) -> Array:
        """A row in the middle of encoded ones: means, and for categories the label that occurs most often.

        >>> Columns(2, None, (Column(None), Column(None, "category", ("a", "b")))).centre(
        ...     np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 0.0]])
        ... )
        array([2., 1.])
        """
        out = X.mean(axis=0)
        for j, kind in enumerate(self.kinds):
            if kind in ("category", "boolean"):
                values, counts = np.unique(X[:, j], return_counts=True)
                out[j] = values[counts.argmax()]
        return out

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

    def encode(self, X: Any) -> Array:
        """Rows as users have them, (n, features) floats; columns are taken in order, their names were checked before.

        >>> columns, X = learn([["a", 2.5], ["b", 3.5]])
        >>> columns.kinds, columns.encode([["b", 1.0]])
        (('category', 'number'), array([[1., 1.]]))
        """
        members = self.members or tuple(Column(None) for _ in range(self.count))
        out = [m.encode(raw, self.called(j)) for j, (m, (_, raw)) in enumerate(zip(members, _split(X), strict=True))]
        X = np.stack(out, axis=1)
        check_finite(X, self)
        return X


def learn(X: Any, names: Sequence[str] | None = None) -> tuple[Columns, Array]:
    """What the columns of X are, and X as floats (n, features).

    >>> times = np.array(["1970-01-02", "1970-01-03"], dtype="datetime64[D]")
    >>> learn(times[:, None])[1]
    array([[24.],
           [48.]])
    """
    split = list(_split(X))
    known = Columns(len(split), None if names is None else tuple(names))
    members, values = [], []
    for j, (_, raw) in enumerate(split):
        member = _column(None if names is None else names[j], raw, known.called(j))
        members.append(member)
        values.append(member.encode(raw, known.called(j)))
    out = np.stack(values, axis=1)
    columns = Columns(known.count, known.names, tuple(members))
    check_finite(out, columns)
    return columns, out


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


def check_finite(X: Array, columns: Columns) -> None:
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
            told = [
                f"{columns.called(j)} in {mask[:, j].sum()} of {len(X)} row(s), first in row {mask[:, j].argmax()}"
                for j in found[:MOST_NAMED]
            ]
            more = f"; and {len(found) - MOST_NAMED} more column(s)" if len(found) > MOST_NAMED else ""
            raise ValueError(f"Input X contains {what}: {'; '.join(told)}{more}. {ADVICE}")


# ---- raw columns ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raw:
    """A column before anything is known of it: values of a NumPy type, or objects."""

    values: NDArray
    """Booleans, numbers, times or durations; objects for text and categories."""
    labels: tuple[Any, ...] | None = None
    """Labels that a categorical type declares, or that were found in text."""
    zone: bool = False
    text: NDArray | None = None
    """The cells themselves where numbers came as text: labels of a category may look like numbers."""

    @property
    def found(self) -> str:
        """What it holds, in words."""
        if self.labels is not None:
            return "text or labels"
        return {"M": "times", "m": "durations", "b": "booleans"}.get(self.values.dtype.kind, "numbers")


def _split(X: Any) -> Iterator[tuple[str | None, Raw]]:
    """Name and raw values of every column of a frame or an array."""
    kind = frames.kind_of(X)
    if kind is None:
        X = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
        for j in range(X.shape[1]):
            yield None, _raw(X[:, j], f"column {j}")
    else:
        read = _from_pandas if kind == "pandas" else _from_polars
        for j, name in enumerate(X.columns):
            series = X.iloc[:, j] if kind == "pandas" else X[name]
            yield str(name), read(series, f"column {str(name)!r}")


def _from_pandas(series: Any, where: str) -> Raw:
    dtype = series.dtype
    if hasattr(dtype, "categories"):
        return _category(series.astype(object).to_numpy(), dtype.categories.tolist(), series.isna().to_numpy())
    kind = getattr(dtype, "kind", "O")
    if getattr(dtype, "tz", None) is not None:
        return Raw(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(), zone=True)
    if kind in "iufb" and not isinstance(dtype, np.dtype):  # types of pandas that know missing values
        missing = series.isna().to_numpy()
        whole = kind == "b" and not missing.any()
        return Raw(series.to_numpy(bool) if whole else series.to_numpy(dtype=float, na_value=np.nan))
    if kind in "iufbmM":
        return Raw(np.asarray(series))
    if kind == "O" or kind == "U":
        return _raw(series.to_numpy(dtype=object), where)
    raise ValueError(f"{where} has the type {dtype}, which is not a number, category, text, time or duration.")


def _from_polars(series: Any, where: str) -> Raw:
    name = type(series.dtype).__name__
    if name in ("DataTypeClass", "type"):
        name = str(series.dtype)
    if name in ("Categorical", "Enum"):
        values = np.array(series.to_list(), dtype=object)
        # a Categorical does not say which labels are its own: those that occur are
        labels = series.dtype.categories.to_list() if name == "Enum" else sorted({v for v in values if v is not None})
        return _category(values, labels, series.is_null().to_numpy())
    if name in ("Datetime", "Date", "Duration"):
        zone = getattr(series.dtype, "time_zone", None)
        if zone is not None:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return Raw(series.to_numpy(), zone=zone is not None)
    if name == "Boolean" and not series.null_count():
        return Raw(series.to_numpy().astype(bool))
    if series.dtype.is_numeric() or name == "Boolean":
        return Raw(series.cast(float).to_numpy())
    return _raw(np.array(series.to_list(), dtype=object), where)


def _category(values: NDArray, labels: Sequence[Any], missing: NDArray) -> Raw:
    out = np.empty(len(values), dtype=object)
    out[:] = [None if gone else _label(value) for value, gone in zip(values.tolist(), missing)]
    return Raw(out, tuple(_label(label) for label in labels))


def _label(value: Any) -> Any:
    """A label that can be compared and written to a file: text and numbers as they are, everything else as text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | bool | int | float) else str(value)


def _raw(values: NDArray, where: str) -> Raw:
    """A column of an array: its own type, or the one that all of its objects have."""
    if values.dtype.kind in "US":
        values = values.astype(object)
    if values.dtype != object:
        return Raw(values)
    items = values.tolist()
    missing = np.array([_is_missing(v) for v in items], dtype=bool)
    first: dict[str, int] = {}
    for row, (item, gone) in enumerate(zip(items, missing)):
        if not gone:
            first.setdefault(_type_of(item), row)
    if len(first) > 1:
        told = [f"{kind} in row {row} ({str(items[row])[:40]!r})" for kind, row in sorted(first.items(), key=_last)]
        raise ValueError(
            f"{where} has values of several kinds: {', '.join(told)}. Make them of one kind, for labels with "
            "astype(str).astype('category')."
        )
    kind = next(iter(first), "number")
    if kind == "boolean" and not missing.any():
        return Raw(values.astype(bool))
    if kind in ("number", "boolean"):
        return Raw(np.array([np.nan if gone else float(v) for v, gone in zip(items, missing)]))
    if kind == "text":
        return _text(items, missing, where)
    if kind in ("time", "time with a zone"):
        return Raw(np.array([np.datetime64("NaT") if gone else _utc(v) for v, gone in zip(items, missing)],
                            dtype="datetime64[ns]"), zone=kind != "time")  # fmt: skip
    if kind == "duration":
        return Raw(np.array([np.timedelta64("NaT") if gone else np.timedelta64(v) for v, gone in zip(items, missing)],
                            dtype="timedelta64[ns]"))  # fmt: skip
    # as scikit-learn says it of arrays
    raise TypeError(f"{where}, row {first[kind]}: argument must be a string or a number, not {kind!r}.")


def _last(pair: tuple[str, int]) -> int:
    return pair[1]


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    if type(value).__name__ == "NAType":  # pandas' NA, which is neither equal to itself nor different
        return True
    different = value != value  # NaN and NaT
    return isinstance(different, bool | np.bool_) and bool(different)


def _type_of(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, datetime.datetime):
        return "time" if value.tzinfo is None else "time with a zone"
    if isinstance(value, datetime.date | np.datetime64):
        return "time"
    if isinstance(value, datetime.timedelta | np.timedelta64):
        return "duration"
    return "number" if isinstance(value, Real) or hasattr(value, "__float__") else type(value).__name__


def _utc(value: Any) -> np.datetime64:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    to_numpy = getattr(value, "to_datetime64", None)  # pandas' Timestamp knows nanoseconds
    return np.datetime64(value) if to_numpy is None else to_numpy()


def _text(items: list[Any], missing: NDArray, where: str) -> Raw:
    """Text: numbers where every cell is one, labels where none is; else it cannot be told."""
    numbers = np.full(len(items), np.nan)
    words = []
    for row, (item, gone) in enumerate(zip(items, missing)):
        if gone:
            continue
        try:
            numbers[row] = float(item)
        except ValueError:
            words.append(row)
    if not words:
        return Raw(numbers, text=np.array(items, dtype=object))
    if len(words) < len(items) - int(missing.sum()):
        raise ValueError(
            f"{where} has text among numbers: {items[words[0]][:40]!r} in row {words[0]} ({len(words)} such row(s) of "
            f"{len(items)}). Mend or drop those rows, or pass it as a category if it holds labels: astype('category')."
        )
    return _category(np.array(items, dtype=object), sorted({v for v, gone in zip(items, missing) if not gone}), missing)


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
            "each is predicted as a new one, from its prior.",
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
