"""Columns of frames and arrays of every make as raw values: NumPy's own types, or objects with labels."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data import frames

__all__ = ["Raw", "raw_columns"]


@dataclass(frozen=True)
class Raw:
    """A column before anything is known of it: values of a NumPy type, or objects.

    >>> Raw(np.array([True, False])).found
    'booleans'
    """

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


def raw_columns(X: Any) -> Iterator[Raw]:
    """Raw values of every column of a frame or an array, in order.

    >>> [raw.found for raw in raw_columns([[1.5, "red"], [2.0, "blue"]])]
    ['numbers', 'text or labels']
    """
    kind = frames.kind_of(X)
    if kind is None:
        X = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
        for j in range(X.shape[1]):
            yield _raw(X[:, j], f"column {j}")
    else:
        read = _from_pandas if kind == "pandas" else _from_polars
        for j, name in enumerate(X.columns):
            series = X.iloc[:, j] if kind == "pandas" else X[name]
            yield read(series, f"column {str(name)!r}")


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
        return _raw(np.asarray(series), where)  # pyarrow's times are objects in older versions of pandas
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
