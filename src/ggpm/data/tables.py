"""Tables from files of others: CSV and Parquet, read with nothing trusted and every fault named by its column."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.columns import Column, Columns
from ggpm.data.files import TableError, replacing
from ggpm.data.separated import MAX_COLUMNS, PADDED, WILD, read_csv
from ggpm.data.text import did_you_mean, stacklevel

__all__ = [
    "TableError", "beside", "check_writable", "column_as_numbers", "features_of", "kept_columns", "left_out",
    "read_table", "side_by_side", "split_columns", "target_of", "write_table",
]  # fmt: skip

MAX_EXPANSION = 200
"""A Parquet file may claim at most this many bytes of values per byte of file, beyond a fixed allowance."""
ALLOWANCE = 2**26


def split_columns(text: str) -> list[str]:
    """Names separated by commas; one that has commas or spaces at its ends stands in double quotes.

    >>> split_columns('sand, silt,"a,b"," x "')
    ['sand', 'silt', 'a,b', ' x ']
    """
    parts = re.findall(r'\s*(?:"((?:[^"]|"")*)"\s*(?=,|$)|([^,]*))(?:,|$)', text)
    return [name for quoted, bare in parts if (name := quoted.replace('""', '"') if quoted else bare.strip())]


def read_table(path: str | os.PathLike, text: Sequence[str] = ()) -> Any:
    """A CSV or Parquet file (by its ending) as a pandas data frame.

    Columns in ``text`` are labels: in a CSV file they stay as they are written, so that 001 and 01 are two. Separators
    other than commas, and decimal commas beside them, are known by their looks (`ggpm.data.separated.Dialect`).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("hour,wind\\n1,350\\n2,10\\n")
    ...     read_table(Path(folder, "t.csv")).columns.tolist()
    ['hour', 'wind']
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet", ".pq"):
        raise TableError(f"{path}: expected a file ending in .csv or .parquet; got {kind or 'no ending'!r}.")
    if path.stat().st_size == 0:
        raise TableError(f"{path}: the file is empty.")
    try:
        table = read_csv(path, text) if kind == ".csv" else _read_parquet(path)
    except TableError:
        raise
    # pandas and pyarrow raise a dozen kinds of errors for files that are not what they claim to be
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise TableError(f"{path}: not a readable {kind[1:].upper()} file ({first}).") from None
    if len(table) == 0:
        raise TableError(f"{path}: the table has no rows.")
    repeated = table.columns[table.columns.duplicated()].tolist()
    if repeated:
        raise TableError(f"{path}: column {repeated[0]!r} occurs more than once.")
    return table


def _read_parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    facts = pq.read_metadata(path)
    if facts.num_columns > MAX_COLUMNS:
        raise TableError(f"{path}: more than {MAX_COLUMNS} columns; is this a table?")
    size = path.stat().st_size
    claimed = 8 * facts.num_rows * max(facts.num_columns, 1)
    uncompressed = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
    limit = MAX_EXPANSION * size + ALLOWANCE
    if claimed > limit or uncompressed > limit or facts.num_rows < 0:
        raise TableError(
            f"{path}: {facts.num_rows} rows are claimed in a file of {size} bytes, more than it can plausibly hold."
        )
    return pq.read_table(path).to_pandas()


def write_table(table: Any, path: str | os.PathLike) -> None:
    """Write a data frame to a CSV or Parquet file, by its ending; the file appears only when it is complete.

    >>> import tempfile, pandas
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table(pandas.DataFrame({"a": [1]}), f"{folder}/t.csv")
    ...     Path(folder, "t.csv").read_text()
    'a\\n1\\n'
    """
    kind = Path(path).suffix.lower()
    if kind not in (".csv", ".parquet", ".pq"):
        raise TableError(f"{path}: expected a file ending in .csv or .parquet; got {kind or 'no ending'!r}.")
    with replacing(path) as temporary:
        (table.to_csv if kind == ".csv" else table.to_parquet)(temporary, index=False)


def check_writable(path: str | os.PathLike, kinds: Sequence[str] = ()) -> None:
    """Raise TableError where a file cannot be written: before hours of work, not after.

    >>> check_writable("there/is/no/such/folder/m.ggpm")
    Traceback (most recent call last):
    ...
    ggpm.data.files.TableError: there/is/no/such/folder/m.ggpm: the folder there/is/no/such/folder does not exist.
    """
    path = Path(path)
    if kinds and path.suffix.lower() not in kinds:
        told = ", ".join(kinds[:-1]) + " or " * (len(kinds) > 1) + kinds[-1]
        raise TableError(f"{path}: expected a file ending in {told}; got {path.suffix or 'no ending'!r}.")
    if not path.parent.is_dir():
        raise TableError(f"{path}: the folder {path.parent} does not exist.")
    if path.is_dir():
        raise TableError(f"{path}: this is a folder; name a file in it.")
    if not os.access(path.parent, os.W_OK):
        raise TableError(f"{path}: no file can be written into the folder {path.parent}.")


def _require(table: Any, names: Sequence[str], path: Any) -> None:
    columns = [str(c) for c in table.columns]
    missing = [name for name in names if name not in columns]
    if missing:
        hint = did_you_mean(missing[0], columns) or f" It has {', '.join(map(repr, columns[:12]))}."
        raise TableError(f"{path}: there is no column {missing[0]!r}.{hint}")


def _numeric(column: Any) -> Any:
    """A column as numbers, missing where there is none."""
    import pandas as pd

    # exponents that no integer holds crash pandas (2.3), whole numbers of more than 64 bits it does not coerce
    texts = (value for value in column if isinstance(value, str)) if column.dtype.kind not in "iufb" else ()
    if not any(re.search(WILD, text) for text in texts):
        with suppress(ValueError, OverflowError):
            return pd.to_numeric(column, errors="coerce")
    return column.map(_float).astype(float)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def column_as_numbers(table: Any, name: str, path: Any, gaps: bool = False) -> NDArray[np.float64]:
    """One column as finite numbers, or missing ones (NaN) where ``gaps`` allows them.

    >>> import pandas
    >>> column_as_numbers(pandas.DataFrame({"a": [1, 2]}), "a", "t.csv")
    array([1., 2.])
    """

    _require(table, [name], path)
    column = table[name]
    values = _numeric(column).to_numpy(dtype=float, na_value=np.nan)
    text = np.flatnonzero(np.isnan(values) & column.notna().to_numpy())
    if text.size:
        raise TableError(
            f"{path}, column {name!r}, row {text[0] + 1}: {str(column.iloc[text[0]])[:40]!r} is not a number."
        )
    bad = np.flatnonzero(np.isinf(values) if gaps else ~np.isfinite(values))
    if bad.size:
        kind = "missing" if np.isnan(values[bad[0]]) else "infinite"
        raise TableError(
            f"{path}, column {name!r}, row {bad[0] + 1}: the value is {kind} ({bad.size} such row(s)). "
            "Remove or fill those rows first."
        )
    return values


def features_of(
    table: Any, names: str | Sequence[str] | None, *, exclude: Sequence[str], path: Any, like: Columns | None = None,
    gaps: bool = False, kinds: Mapping[str, str] | None = None,
) -> Any:  # fmt: skip
    """The input columns as a data frame of numbers, booleans, labels and times: those named, or all not excluded.

    Without names, columns that only number the rows, text that differs in every row, and columns without any value are
    left out, with a warning.
    ``like`` are the columns of a fitted model, which say what each one holds, ``kinds`` ("category" or "time" by name)
    what the user says; ``gaps`` lets values be missing.

    >>> import pandas
    >>> table = pandas.DataFrame({"hour": [1, 2, 3], "station": ["a", "b", "a"], "wind": [3, 4, 5]})
    >>> features_of(table, None, exclude=["wind"], path="t.csv").columns.tolist()
    ['hour', 'station']
    """
    import pandas as pd

    kinds = kinds or {}
    _require(table, list(kinds), path)
    if names is None:
        useless = left_out(table, [*exclude, *kinds])
        chosen = [str(c) for c in table.columns if c not in exclude and c not in useless]
        told = "; ".join(f"{name!r} {why}" for name, why in useless.items())
        if not chosen:
            why = f" ({told})" if told else ""
            raise TableError(
                f"{path}: there is no column of use beside the target{why}. Name the inputs with --features."
            )
        if useless:
            warnings.warn(f"left out: {told}. To use it, name it in --features.", UserWarning, stacklevel=stacklevel())
    else:
        chosen = split_columns(names) if isinstance(names, str) else list(names)
    _require(table, chosen, path)
    known = dict(zip(chosen, like.kinds)) if like is not None else dict(kinds)
    texts = dict(zip(chosen, map(_text_labels, like.members))) if like is not None and like.members else {}
    columns = {name: _feature(table, name, path, known.get(name), gaps, texts.get(name, True)) for name in chosen}
    return pd.DataFrame(columns)


def _text_labels(member: Column) -> bool:
    """Whether the labels of a category are text."""
    return member.labels is None or isinstance(member.labels[0], str)


def left_out(table: Any, exclude: Sequence[str]) -> dict[str, str]:
    """Columns that are no inputs unless they are asked for, each with the reason.

    >>> import pandas
    >>> left_out(pandas.DataFrame({"id": [1, 2, 3], "hour": [0, 5, 7]}), [])
    {'id': 'numbers the rows'}
    """
    names = [str(c) for c in table.columns if c not in exclude]
    return {name: why for name in names if (why := _useless(table[name])) is not None}


COUNTERS = ("", "id", "index", "no", "nr", "row", "rowid", "rownames", "row_names")
"""Names of columns that number the rows, where their values count up by one."""


def _useless(column: Any) -> str | None:
    """Reason not to learn from a column unless it is asked for; None: there is none."""
    import pandas as pd

    if column.isna().all():
        return "has no values"
    name = str(column.name).strip().lower()
    counter = (name in COUNTERS or name.startswith("unnamed:")) and column.dtype.kind in "iu" and len(column) > 1
    if counter and np.all(np.diff(column.to_numpy()) == 1):
        return "numbers the rows"
    text = column.dtype.kind == "O" or pd.api.types.is_string_dtype(column)
    own = text and len(column) > 2 and column.nunique() == len(column) and _times(column) is None
    if own and _numeric(column).isna().all():
        return f"is text that differs in every row, such as {str(column.iloc[0])[:40]!r}"
    return None


def _times(column: Any) -> Any:
    """Text as times, where all of it is dates or times in the ISO format; else None."""
    import pandas as pd

    text = column.dropna()
    if text.empty or not text.map(lambda value: isinstance(value, str) and value[4:5] == "-").all():
        return None
    zone = text.str.contains(r"(?:Z|[+-]\d\d:?\d\d)$", regex=True).all()
    try:
        return pd.to_datetime(column, format="ISO8601", utc=bool(zone))
    except (ValueError, TypeError):
        return None


def _as_times(column: Any, name: str, path: Any) -> Any:
    """A column that the user or a model calls times; other forms than the ISO one where day and month are plain."""
    import pandas as pd

    if column.dtype.kind == "M" or hasattr(column.dtype, "tz"):
        return column
    text = column.where(column.isna(), column.astype(str)) if column.dtype.kind in "iu" else column
    times = _times(text)
    if times is not None:
        return times
    readings = []
    for first in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that day and month could be swapped: looked at below
            readings.append(pd.to_datetime(text.astype(object), errors="coerce", dayfirst=first))
    advice = "Write times as 2024-05-31 06:00."
    if column.dtype.kind == "f" or readings[0].dtype.kind != "M":
        raise TableError(f"{path}, column {name!r}: these are no times, or of several time zones. {advice}")
    wrong = np.flatnonzero((readings[0].isna() & readings[1].isna() & column.notna()).to_numpy())
    if wrong.size:
        raise TableError(
            f"{path}, column {name!r}, row {wrong[0] + 1}: {str(column.iloc[wrong[0]])[:40]!r} is not a time "
            f"({wrong.size} such row(s)). {advice}"
        )
    good = [reading for reading in readings if not (reading.isna() & column.notna()).any()]
    if len(good) != 1 and not (good and readings[0].equals(readings[1])):
        differ = np.flatnonzero((readings[0] != readings[1]).to_numpy() & column.notna().to_numpy())
        raise TableError(
            f"{path}, column {name!r}, row {differ[0] + 1}: {str(column.iloc[differ[0]])[:40]!r} could have the day or "
            f"the month first. {advice}"
        )
    return good[0]


def _as_labels(column: Any, text: bool) -> Any:
    """A column of labels, as text where they are: also those that look like numbers."""
    import pandas as pd

    if not text or isinstance(column.dtype, pd.CategoricalDtype):
        return column
    if column.dtype.kind in "iuf":
        whole = column.dropna()
        column = column.astype("Int64") if (whole == whole.round()).all() else column
    written = column.astype(str).where(column.notna(), None)
    return written.astype(pd.CategoricalDtype(sorted(written.dropna().unique())))


def _feature(table: Any, name: str, path: Any, kind: str | None, gaps: bool, text: bool = True) -> Any:
    """One input column in the type in which the door expects it."""
    import pandas as pd

    column = table[name]
    if not gaps and column.isna().any():
        bad = np.flatnonzero(column.isna().to_numpy())
        raise TableError(
            f"{path}, column {name!r}, row {bad[0] + 1}: the value is missing ({bad.size} such row(s)). Remove or fill "
            "those rows first."
        )
    if kind == "time":
        return _as_times(column, name, path)
    if kind == "category":
        return _as_labels(column, text)
    words = column.dtype.kind == "O" or pd.api.types.is_string_dtype(column)
    times = _times(column) if words and kind is None else None
    if times is not None:
        return times
    if column.dtype.kind in "bmM" or hasattr(column.dtype, "tz"):
        return column
    if words:
        _refuse_merging(column, name, path)
    values = _numeric(column)
    words = np.flatnonzero(values.isna().to_numpy() & column.notna().to_numpy())
    if words.size and (kind is not None or words.size < column.notna().sum()):
        what = "is not a number" if kind is not None else "is text among numbers"
        raise TableError(
            f"{path}, column {name!r}, row {words[0] + 1}: {str(column.iloc[words[0]])[:40]!r} {what} "
            f"({words.size} such row(s)). Mend or remove those rows first."
        )
    if words.size:
        return column
    infinite = np.flatnonzero(np.isinf(values.to_numpy(dtype=float, na_value=np.nan)))
    if infinite.size:
        raise TableError(f"{path}, column {name!r}, row {infinite[0] + 1}: the value is infinite.")
    return values.astype(float)


def _refuse_merging(column: Any, name: str, path: Any) -> None:
    """Raise TableError where padded text of different labels would become one number."""
    import pandas as pd

    labels = pd.Series(column.dropna().astype(str).unique())
    padded = labels[labels.str.match(PADDED)]
    if padded.empty:
        return
    numbers = _numeric(labels)
    twice = numbers[numbers.notna() & numbers.duplicated(keep=False)]
    if len(twice):
        one, other = labels[twice[twice == twice.iloc[0]].index[:2]]
        raise TableError(
            f"{path}, column {name!r}: {one!r} and {other!r} would be one number. Name it in --category if these are "
            "labels; else write its numbers in one way."
        )


def kept_columns(table: Any, names: str | None, *, path: Any) -> Any:
    """Columns to carry along with predictions: those named, all of them for "all", or none.

    >>> import pandas
    >>> kept_columns(pandas.DataFrame({"id": ["a"], "hour": [3]}), "id", path="t.csv").columns.tolist()
    ['id']
    """
    chosen = [] if names is None else list(table.columns) if names == "all" else split_columns(names)
    _require(table, chosen, path)
    return table[chosen]


def side_by_side(kept: Any, summary: Any) -> Any:
    """Kept columns and predictions in one table; a name that both have is an error.

    >>> import pandas
    >>> side_by_side(pandas.DataFrame({"id": ["a"]}), pandas.DataFrame({"mean": [0.5]})).columns.tolist()
    ['id', 'mean']
    """
    import pandas as pd

    both = [name for name in kept.columns if name in summary.columns]
    if both:
        raise TableError(f"column {both[0]!r} cannot be kept: the predictions have one of that name. Rename it first.")
    return pd.concat([kept.reset_index(drop=True), summary.reset_index(drop=True)], axis=1)


beside = side_by_side  # its name in version 0.1


def target_of(
    table: Any, names: Sequence[str], *, labels: bool, path: Any, like: NDArray | None = None, gaps: bool = False
) -> Any:
    """The target: a series of numbers or labels, or a frame of numbers for several columns.

    ``like`` are the labels of a fitted model, whose type those in the table are brought to; ``gaps`` lets values be
    missing.

    >>> import pandas
    >>> target_of(pandas.DataFrame({"sand": [1], "clay": [3]}), ["sand", "clay"], labels=False, path="t.csv").shape
    (1, 2)
    """
    import pandas as pd

    _require(table, names, path)
    if labels:
        if len(names) != 1:
            raise TableError(f"{path}: labels are one column; got {', '.join(names)}.")
        column = table[names[0]]
        empty = np.flatnonzero(column.isna().to_numpy())
        if empty.size and not (gaps and empty.size < len(column)):
            raise TableError(
                f"{path}, column {names[0]!r}, row {empty[0] + 1}: the label is missing ({empty.size} such row(s))."
            )
        if empty.size:
            out = pd.Series(np.full(len(column), None, dtype=object), name=names[0])
            known = target_of(table.dropna(subset=names), names, labels=True, path=path, like=like)
            out[column.notna().to_numpy()] = known.to_numpy()
            return out
        text = like is not None and like.dtype.kind in "OU"
        column = column if text else _unpadded(column)
        number = column.dtype.kind in "biuf"
        values = column.astype(str).to_numpy(dtype=object) if text or not number else column.to_numpy()
        return pd.Series(values.astype(str) if values.dtype == object else values, name=names[0])
    columns = {name: column_as_numbers(table, name, path, gaps) for name in names}
    return pd.Series(columns[names[0]], name=names[0]) if len(names) == 1 else pd.DataFrame(columns)


def _unpadded(column: Any) -> Any:
    """Labels as numbers or truth values where nothing is lost by it; else the text that was written."""
    import pandas as pd

    if column.dtype.kind in "biuf":
        return column
    labels = pd.Series(column.astype(str).unique())
    if set(labels) <= {"True", "False"}:
        return column.astype(str) == "True"
    numbers = _numeric(labels)
    lost = numbers.isna().any() or numbers.duplicated().any() or labels.str.match(PADDED).any()
    return column if lost else _numeric(column)
