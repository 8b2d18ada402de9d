"""Rows in Parquet files that need not fit into memory: read for a fit, and predicted row by row of chunks.

Needs pyarrow (``pip install ggpm[parquet]``).
"""

from __future__ import annotations

import contextlib
import glob
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.files import replacing
from ggpm.data.rows import Chunk, ChunkedRows, Prepare
from ggpm.data.text import did_you_mean, stacklevel

Array = NDArray[np.float64]
Paths = str | os.PathLike | Sequence[str | os.PathLike]


class ParquetRows(ChunkedRows):
    """Rows of Parquet files as a source for ``fit``: read in chunks, once per pass, never held.

    Parameters
    ----------
    path : path, pattern with wildcards, directory, or list of paths
        Files with the same columns; directories stand for the ``*.parquet`` files within, in the order of their names.
    features : list of column names
        The columns of X, in this order.
    target : column name or list of names
        y: one column, or several for outputs with parts.
    offset : column name or list of names, optional
        Known part of the latent (for counts: the logarithm of the exposure).
    chunk_rows : int
        Rows that are read at a time.
    weight : column name, optional
        How many times each row counts: `sample_weight` of ``fit``.

    Columns of X may hold numbers, booleans, text, categories, times and durations. Rows in which all of y is missing,
    or whose weight is zero, are left out; parts of y may be missing where the family allows it.

    Examples
    --------
    >>> import tempfile, pandas as pd
    >>> from ggpm import GGPRegressor
    >>> folder = tempfile.mkdtemp()
    >>> frame = pd.DataFrame({"x": np.arange(200.0), "n": np.arange(200) % 7})
    >>> frame.to_parquet(f"{folder}/counts.parquet")
    >>> rows = ParquetRows(f"{folder}/counts.parquet", features=["x"], target="n")
    >>> model = GGPRegressor("poisson", inducing=20, optimizer=None).fit(rows)
    >>> model.predict(frame[["x"]]).shape
    (200,)
    """

    def __init__(
        self,
        path: Paths,
        features: Sequence[str],
        target: str | Sequence[str],
        offset: str | Sequence[str] | None = None,
        chunk_rows: int = 65_536,
        weight: str | None = None,
    ):
        if isinstance(features, str):
            raise ValueError(f"features must be a list of column names; got the string {features!r}.")
        self.files = parquet_files(path)
        self.feature_names, self.target, self.offset, self.weight = list(features), target, offset, weight
        self.chunk_rows = int(chunk_rows)
        self.prepare: Prepare | None = None
        self.n_features = len(self.feature_names)
        self.n_rows = 0
        for name in self.files:
            file = _open(name)
            missing = [c for c in self.columns if c not in file.schema_arrow.names]
            if missing:
                known = ", ".join(file.schema_arrow.names[:20])
                raise ValueError(f"{name} has no column {', '.join(missing)}; its columns are {known}.")
            self.n_rows += file.metadata.num_rows
        if self.n_rows == 0:
            raise ValueError(f"{self.files[0]} has no rows.")

    def __repr__(self) -> str:
        return f"ParquetRows({len(self.files)} file(s), {self.n_rows} rows)"

    @property
    def target_names(self) -> list[str]:
        """The columns of y."""
        return _listed(self.target)

    @property
    def columns(self) -> list[str]:
        """All columns that are read."""
        return [*self.feature_names, *_listed(self.target), *_listed(self.offset), *_listed(self.weight)]

    def chunks(self) -> Iterator[Chunk]:
        """The rows, in order."""
        start = 0
        for batch in read_batches(self.files, list(dict.fromkeys(self.columns)), self.chunk_rows):
            chunk = Chunk(
                _inputs(batch, self.feature_names),
                _values(batch, self.target),
                None if self.offset is None else _whole(batch, self.offset),
                start,
                None if self.weight is None else _whole(batch, self.weight),
            )
            start += len(chunk)
            yield chunk if self.prepare is None else self.prepare(chunk)

    def prepared(self, prepare: Prepare) -> ParquetRows:
        """The same rows, every chunk prepared before tasks see it."""
        other = object.__new__(ParquetRows)
        other.__dict__.update(self.__dict__)
        other.prepare, other.n_rows = prepare, prepare.n_rows
        return other


def parquet_files(path: Paths) -> list[str]:
    """The files that a path, pattern, directory or list stands for, in order."""
    if not isinstance(path, str | os.PathLike):
        return [name for one in path for name in parquet_files(one)]
    name = os.fspath(path)
    if os.path.isdir(name):
        found = sorted(glob.glob(os.path.join(glob.escape(name), "*.parquet")))
    else:
        found = [name] if os.path.exists(name) else sorted(glob.glob(name))
    if not found:
        raise FileNotFoundError(
            f"no Parquet file at {name!r}: expected a file, a directory with *.parquet, or a pattern."
        )
    return found


def first_rows(path: Paths, rows: int = 1000) -> Any:
    """The first rows of the (first) file as a pandas data frame."""
    return next(read_batches(parquet_files(path)[:1], None, rows)).to_pandas()


def column_names(path: Paths) -> list[str]:
    """All columns, in the order of the (first) file."""
    return list(_open(parquet_files(path)[0]).schema_arrow.names)


def read_batches(files: Sequence[str], columns: list[str] | None, rows: int) -> Iterator[Any]:
    """Record batches of at most so many rows."""
    for name in files:
        yield from _open(name).iter_batches(batch_size=rows, columns=columns)


def predict_parquet(
    model: Any,
    path: Paths,
    out: str | os.PathLike,
    *,
    features: Sequence[str] | None = None,
    offset: str | Sequence[str] | float | None = None,
    level: float = 0.9,
    keep: Sequence[str] = (),
    chunk_rows: int = 65_536,
) -> int:
    """Predict the rows of Parquet files into another one, a chunk at a time, and return how many there were.

    The columns are those of the model's ``summary``.

    Parameters
    ----------
    model : fitted estimator
    path : as in `ParquetRows`
    out : path
        Replaced only once everything is written: after an error it is as it was before.
    features : list of column names, optional
        By default those that the model was fitted with.
    offset : column name, list of names, or 0 for none, optional
        By default the column that the model was fitted with.
    level : float
        Probability of intervals, arcs and sets.
    keep : column names to copy from the input
    chunk_rows : int

    Returns
    -------
    int

    Examples
    --------
    >>> import tempfile, pandas as pd
    >>> from ggpm import GGPRegressor
    >>> folder = tempfile.mkdtemp()
    >>> frame = pd.DataFrame({"x": np.arange(50.0), "n": np.arange(50) % 7})
    >>> frame.to_parquet(f"{folder}/in.parquet")
    >>> model = GGPRegressor("poisson", inducing=10, optimizer=None).fit(frame[["x"]], frame["n"])
    >>> predict_parquet(model, f"{folder}/in.parquet", f"{folder}/out.parquet")
    50
    >>> pd.read_parquet(f"{folder}/out.parquet").columns.tolist()
    ['mean', 'sd', 'lower', 'upper']
    """
    pa, pq = _arrow()
    names = list(features) if features is not None else list(getattr(model, "feature_names_in_", []))
    if not names:
        raise ValueError("features must name the columns of X: the model was fitted without column names.")
    known = column_names(path)
    if offset is None and model.fit_.offset in known:
        offset = model.fit_.offset
    columns = list(dict.fromkeys([*names, *([] if offset == 0 else _listed(offset)), *keep]))
    for name in keep:
        if name not in known:
            raise ValueError(f"keep must name columns of {path}; there is no {name!r}.{did_you_mean(name, known)}")
    rows, gaps = 0, 0
    like = _like(model, level)
    with _disk_errors_named(out), replacing(out) as temporary:
        writer = None
        try:
            for batch in read_batches(parquet_files(path), columns, chunk_rows):
                if both := [name for name in keep if name in like.names]:
                    raise ValueError(f"column {both[0]!r} cannot be kept: the predictions have one of that name.")
                summary, missing = _summary(model, batch, names, offset, level)
                columns_out = {name: batch.column(name) for name in keep}
                for field in like:
                    told = (
                        pa.nulls(batch.num_rows) if summary is None else pa.array(summary[field.name], from_pandas=True)
                    )
                    columns_out[field.name] = told.cast(field.type)
                table = pa.table(columns_out)
                if writer is None:
                    writer = pq.ParquetWriter(temporary, table.schema)
                writer.write_table(table)
                rows, gaps = rows + batch.num_rows, gaps + missing
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise ValueError(f"there are no rows to predict in {path!r}.")
    if gaps:
        warnings.warn(
            f"{gaps} of {rows} rows have no prediction, because inputs are missing.",
            UserWarning,
            stacklevel=stacklevel(),
        )
    return rows


def _like(model: Any, level: float) -> Any:
    """Names and types of the columns of predictions, from one of a row that the model has."""
    pa, _ = _arrow()
    X = model.fit_.columns.decode(model.posterior_.inputs[:1])
    one = model.summary(X, level=level, offset=None if model.fit_.offset is None else 0.0)
    return pa.schema([(name, pa.array(one[name]).type) for name in one.columns])


def _summary(model: Any, batch: Any, names: list[str], offset: Any, level: float) -> tuple[Any, int]:
    """Predictions of the rows of a batch, empty where inputs are missing, and how many are; None: all are."""
    X = batch.select(names).to_pandas()
    offset = 0.0 if offset == 0 else None if offset is None else _whole(batch, offset)
    whole = X.notna().all(axis=1).to_numpy()
    if not whole.any():
        return None, len(X)
    if not hasattr(model, "feature_names_in_"):  # scikit-learn compares names where it knows them
        X = X.set_axis(range(X.shape[1]), axis=1)
    summary = model.summary(X[whole], level=level, offset=offset if np.ndim(offset) == 0 else offset[whole])
    return summary.reindex(X.index), int((~whole).sum())


@contextlib.contextmanager
def _disk_errors_named(out: str | os.PathLike) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise OSError(f"{out} could not be written ({err}); nothing was changed. Is the disk full?") from err


# ---- Arrow --------------------------------------------------------------------------------------------------------


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as err:
        raise ImportError("reading Parquet needs pyarrow: pip install 'ggpm[parquet]'.") from err
    return pa, pq


def _open(name: str) -> Any:
    pa, pq = _arrow()
    try:
        return pq.ParquetFile(name, pre_buffer=False)  # or Arrow reads ahead to the end of the file
    except pa.ArrowInvalid as err:
        raise ValueError(f"{name} is not a Parquet file ({err}).") from None


def _listed(names: Any) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def _inputs(batch: Any, names: list[str]) -> Any:
    """Columns of X as an array of numbers, or as a data frame where some are not."""
    pa, _ = _arrow()
    kinds = [batch.schema.field(name).type for name in names]
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return _matrix(batch, names)
    return batch.select(names).to_pandas()


def _values(batch: Any, names: str | Sequence[str]) -> NDArray:
    """One column (c,), or several (c, k); missing values are NaN, missing labels None."""
    return batch.column(names).to_numpy(zero_copy_only=False) if isinstance(names, str) else _matrix(batch, list(names))


def _whole(batch: Any, names: str | Sequence[str]) -> Array:
    """Numbers as by `_values`, of which none may be missing."""
    values = _matrix(batch, _listed(names))
    missing = np.isnan(values)
    if missing.any():
        row, column = np.argwhere(missing)[0]
        name = _listed(names)[column]
        raise ValueError(f"column {name} has no value in row {row} of a chunk. Remove or impute such rows.")
    return values[:, 0] if isinstance(names, str) else values


def _matrix(batch: Any, names: Sequence[str]) -> Array:
    """Columns as numbers, (c, k); missing values become NaN."""
    columns = []
    for name in names:
        try:
            columns.append(batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64))
        except (TypeError, ValueError) as err:
            raise ValueError(f"column {name} must be numbers ({err}).") from None
    return np.stack(columns, axis=1)
