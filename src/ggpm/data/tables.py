"""Tables from files of others: CSV and Parquet, read with nothing trusted and every fault named by its column."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.files import replacing
from ggpm.data.text import did_you_mean

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


def features_of(table: Any, names: str | None, *, exclude: Sequence[str], path: Any) -> Any:
    """The input columns as a data frame of numbers: those named, or all numeric ones that are not excluded.

    >>> import pandas
    >>> table = pandas.DataFrame({"hour": [1, 2], "station": ["a", "b"], "wind": [3, 4]})
    >>> features_of(table, None, exclude=["wind"], path="t.csv").columns.tolist()
    ['hour']
    """
    import pandas as pd

    if names is None:
        chosen = [str(c) for c in table.columns if c not in exclude and pd.api.types.is_numeric_dtype(table[c])]
        if not chosen:
            raise TableError(f"{path}: there is no numeric column beside the target. Name the inputs with --features.")
    else:
        chosen = split_columns(names)
    return pd.DataFrame({name: column_as_numbers(table, name, path) for name in chosen})


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
