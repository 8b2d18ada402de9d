"""Tables from files of others: CSV and Parquet, read with nothing trusted and every fault named by its column."""

from __future__ import annotations

import csv
import itertools
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.columns import Columns
from ggpm.data.files import replacing
from ggpm.data.text import did_you_mean, stacklevel

__all__ = [
    "TableError", "beside", "column_as_numbers", "features_of", "kept_columns", "read_table", "side_by_side",
    "split_columns", "target_of", "write_table",
]  # fmt: skip

MAX_COLUMNS = 10_000
"""More columns than this are taken for a file that is no table."""
MAX_EXPANSION = 200
"""A Parquet file may claim at most this many bytes of values per byte of file, beyond a fixed allowance."""
ALLOWANCE = 2**26


class TableError(ValueError):
    """A table that cannot be used; the message names the file and the column."""


def split_columns(text: str) -> list[str]:
    """Names separated by commas.

    >>> split_columns("sand, silt,clay")
    ['sand', 'silt', 'clay']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def read_table(path: str | os.PathLike) -> Any:
    """A CSV or Parquet file (by its ending) as a pandas data frame.

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
        table = _read_csv(path) if kind == ".csv" else _read_parquet(path)
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


def _read_csv(path: Path) -> Any:
    import pandas as pd

    with open(path, "rb") as file:
        header = file.readline(16 * MAX_COLUMNS)
    if header.count(b",") >= MAX_COLUMNS:
        raise TableError(f"{path}: more than {MAX_COLUMNS} columns; is this a table?")
    if b"\0" in header:
        raise TableError(f"{path}: not a readable CSV file (its first line has zero bytes).")
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        names, first = ([*itertools.islice(filter(None, csv.reader(file)), 2), [], []])[:2]
    # pandas would take the first field for a label of the row; longer rows further down it refuses by itself
    if len(first) > len(names):
        raise TableError(
            f"{path}: row 1 has {len(first)} fields, the header {len(names)}: values would stand under the wrong names."
        )
    return pd.read_csv(path, encoding="utf-8", low_memory=False)


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


def _require(table: Any, names: Sequence[str], path: Any) -> None:
    columns = [str(c) for c in table.columns]
    missing = [name for name in names if name not in columns]
    if missing:
        hint = did_you_mean(missing[0], columns) or f" It has {', '.join(columns[:12])}."
        raise TableError(f"{path}: there is no column {missing[0]!r}.{hint}")


def column_as_numbers(table: Any, name: str, path: Any) -> NDArray[np.float64]:
    """One column as finite numbers.

    >>> import pandas
    >>> column_as_numbers(pandas.DataFrame({"a": [1, 2]}), "a", "t.csv")
    array([1., 2.])
    """
    import pandas as pd

    _require(table, [name], path)
    column = table[name]
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    text = np.flatnonzero(np.isnan(values) & column.notna().to_numpy())
    if text.size:
        raise TableError(
            f"{path}, column {name!r}, row {text[0] + 1}: {str(column.iloc[text[0]])[:40]!r} is not a number."
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        kind = "missing" if np.isnan(values[bad[0]]) else "infinite"
        raise TableError(
            f"{path}, column {name!r}, row {bad[0] + 1}: the value is {kind} ({bad.size} such row(s)). "
            "Remove or fill those rows first."
        )
    return values


def features_of(
    table: Any, names: str | Sequence[str] | None, *, exclude: Sequence[str], path: Any, like: Columns | None = None,
    gaps: bool = False,
) -> Any:  # fmt: skip
    """The input columns as a data frame of numbers, booleans, labels and times: those named, or all not excluded.

    Without names, columns that only number the rows and text that differs in every row are left out, with a warning.
    ``like`` are the columns of a fitted model, which say what each one holds; ``gaps`` lets values be missing.

    >>> import pandas
    >>> table = pandas.DataFrame({"hour": [1, 2, 3], "station": ["a", "b", "a"], "wind": [3, 4, 5]})
    >>> features_of(table, None, exclude=["wind"], path="t.csv").columns.tolist()
    ['hour', 'station']
    """
    import pandas as pd

    if names is None:
        chosen = [str(c) for c in table.columns if c not in exclude]
        useless = {name: why for name in chosen if (why := _useless(table[name])) is not None}
        chosen = [name for name in chosen if name not in useless]
        if not chosen:
            raise TableError(f"{path}: there is no column of use beside the target. Name the inputs with --features.")
        if useless:
            told = "; ".join(f"{name!r} {why}" for name, why in useless.items())
            warnings.warn(f"left out: {told}. To use it, name it in --features.", UserWarning, stacklevel=stacklevel())
    else:
        chosen = split_columns(names) if isinstance(names, str) else list(names)
    _require(table, chosen, path)
    kinds = [None] * len(chosen) if like is None else like.kinds
    return pd.DataFrame({name: _feature(table, name, path, kind, gaps) for name, kind in zip(chosen, kinds)})


COUNTERS = ("", "id", "index", "no", "nr", "row", "rowid", "rownames", "row_names")
"""Names of columns that number the rows, where their values count up by one."""


def _useless(column: Any) -> str | None:
    """Reason not to learn from a column unless it is asked for; None: there is none."""
    import pandas as pd

    name = str(column.name).strip().lower()
    counter = (name in COUNTERS or name.startswith("unnamed:")) and column.dtype.kind in "iu" and len(column) > 1
    if counter and np.all(np.diff(column.to_numpy()) == 1):
        return "numbers the rows"
    text = column.dtype.kind == "O" or pd.api.types.is_string_dtype(column)
    own = text and len(column) > 2 and column.nunique() == len(column) and _times(column) is None
    return "is text that differs in every row" if own and pd.to_numeric(column, errors="coerce").isna().all() else None


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


def _feature(table: Any, name: str, path: Any, kind: str | None, gaps: bool) -> Any:
    """One input column in the type in which the door expects it."""
    import pandas as pd

    column = table[name]
    if not gaps and column.isna().any():
        bad = np.flatnonzero(column.isna().to_numpy())
        raise TableError(
            f"{path}, column {name!r}, row {bad[0] + 1}: the value is missing ({bad.size} such row(s)). Remove or fill "
            "those rows first."
        )
    times = _times(column) if column.dtype.kind == "O" or pd.api.types.is_string_dtype(column) else None
    if times is not None and kind in (None, "time"):
        return times
    if kind == "category" or column.dtype.kind in "bmM" or hasattr(column.dtype, "tz"):
        return column
    values = pd.to_numeric(column, errors="coerce")
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


def target_of(table: Any, names: Sequence[str], *, labels: bool, path: Any, like: NDArray | None = None) -> Any:
    """The target: a series of numbers or labels, or a frame of numbers for several columns.

    ``like`` are the labels of a fitted model, whose type those in the table are brought to.

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
        if empty.size:
            raise TableError(
                f"{path}, column {names[0]!r}, row {empty[0] + 1}: the label is missing ({empty.size} such row(s))."
            )
        number = column.dtype.kind in "biuf"
        text = like is not None and like.dtype.kind in "OU"
        values = column.astype(str).to_numpy(dtype=object) if text or not number else column.to_numpy()
        return pd.Series(values.astype(str) if values.dtype == object else values, name=names[0])
    columns = {name: column_as_numbers(table, name, path) for name in names}
    return pd.Series(columns[names[0]], name=names[0]) if len(names) == 1 else pd.DataFrame(columns)
