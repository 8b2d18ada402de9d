"""Rows from users: arrays, frames, memory maps, Dask collections and other sources, as rows in chunks."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_feature_names, check_consistent_length, validate_data

from ggpm.data import columns as door
from ggpm.data import frames
from ggpm.data.checks import as_numbers, as_weight, check_squares, refuse_masked
from ggpm.data.columns import Columns, check_finite
from ggpm.data.door import Preparation, Target, facts_about_y, take_rows
from ggpm.data.kinds import is_dask, is_streamed
from ggpm.data.rows import ArrayRows, Chunk, Rows
from ggpm.data.text import stacklevel
from ggpm.families.base import Family
from ggpm.families.weighted import Weighted

Array = NDArray[np.float64]


def columns_of(checked: Any) -> Columns:
    """Columns of X as scikit-learn's validation noted them on an estimator."""
    names = getattr(checked, "feature_names_in_", None)
    return Columns(int(checked.n_features_in_), None if names is None else tuple(map(str, names)))


def inputs_of(checked: Any, X: Any, known: Columns | None = None) -> tuple[Array, Columns]:
    """X as finite floats (n, features), and its columns: those of an earlier fit, where ``known``, or as found now.

    ``checked`` is an estimator on which scikit-learn's validation notes the columns, or compares them.
    """
    refuse_masked(X, "X")
    settings: dict[str, Any] = {"reset": known is None}
    if not door.is_table(X) and (known is None or known.plain):
        X = validate_data(checked, X, dtype=np.float64, order="C", ensure_all_finite=False, **settings)
        columns = columns_of(checked) if known is None else known
        check_finite(X, columns)
    else:
        X = X if frames.kind_of(X) or isinstance(X, np.ndarray) else np.array(X, dtype=object)
        for count, what in zip(X.shape, ("sample", "feature")):
            if count == 0:
                raise ValueError(f"Found array with 0 {what}(s) (shape={X.shape}) while a minimum of 1 is required.")
        try:
            validate_data(checked, X, skip_check_array=True, **settings)
        except ValueError as error:  # scikit-learn does not say which columns are in another order
            expected, got = getattr(checked, "feature_names_in_", None), frames.names_of(X)
            if expected is None or got is None or sorted(expected) != sorted(got):
                raise
            told = f"They are {', '.join(expected)}; got {', '.join(got)}. Try X[{list(expected)}]."
            raise ValueError(f"{error}{told}") from None
        if known is None:
            columns, X = door.learn(X, columns_of(checked).names)
        else:
            columns, X = known, known.encode(X)
    check_squares(X)
    return X, columns


def source_of(checked: Any, X: Any, y: Any, offset: Any, chunk_rows: int) -> tuple[Rows, Columns, list[str] | None]:
    """The raw rows, what is known of their columns, and the names of y's columns where the source knows them.

    ``checked`` is an estimator on which scikit-learn's validation may note what it sees.
    """
    if is_dask(X) or is_dask(y):
        from ggpm.data.cluster import dask_rows

        rows, names = dask_rows(X, y, offset)
        return rows, _named(rows, names), None
    if is_streamed(X):
        if y is not None or offset is not None:
            raise ValueError(f"a {type(X).__name__} names its own target and offset: fit(source) takes no other.")
        return X, _named(X, getattr(X, "feature_names", None)), getattr(X, "target_names", None)
    if y is None:
        raise ValueError(f"{type(checked).__name__} requires y to be passed, but the target y is None.")
    mapped = isinstance(X, np.memmap) or (isinstance(X, np.ndarray) and isinstance(X.base, np.memmap))
    if mapped:  # checked chunk by chunk: a copy in memory is what the user wants to avoid
        if X.ndim != 2 or len(X) == 0:
            raise ValueError(f"X must be an array (n, features) with at least one row; got shape {X.shape}.")
        _check_feature_names(checked, X, reset=True)
        checked.n_features_in_ = X.shape[1]
        columns = columns_of(checked)
    else:
        X, columns = inputs_of(checked, X)
    names = frames.names_of(y)
    y = y if isinstance(y, np.ndarray) else frames.values_of(y)
    check_consistent_length(X, y)
    if offset is not None:
        offset = as_numbers(offset, "offset", "one number per row")
        if offset.ndim == 0:
            raise ValueError(f"offset must have shape ({len(X)},) or ({len(X)}, D); got ().")
        check_consistent_length(X, offset)
    return ArrayRows(X, y, offset, chunk_rows=chunk_rows), columns, names


def _named(rows: Rows, names: Any) -> Columns:
    return Columns(rows.n_features, None if names is None else tuple(map(str, names)))


def rows_to_fit(X: Any, y: Any, offset: Any, weight: Any) -> tuple[Any, Any, Any, Array | None]:
    """X, y, offset and weights of the rows that say something: of positive weight, and with a y; others are told.

    Weights are None where all are one.
    """
    if is_streamed(X) or is_streamed(y):
        if weight is not None:
            raise ValueError("sample_weight needs rows in memory: rows in chunks (Parquet, Dask) have no weights yet.")
        return X, y, offset, None
    if y is None:
        return X, y, offset, None
    y = y if frames.kind_of(y) or isinstance(y, np.ndarray) else frames.values_of(y)
    missing = frames.missing_rows(y)
    if missing.all():
        return X, y, offset, None  # nothing is left: the family says what it expects
    check_consistent_length(X, y)
    w = as_weight(weight, len(y))
    keep = (w > 0) & ~missing
    if missing.any():
        warnings.warn(
            f"y is missing in {missing.sum()} of {len(y)} row(s), first in row {missing.argmax()}: they are left out.",
            UserWarning,
            stacklevel=stacklevel(),
        )
    if not keep.all():
        index = np.flatnonzero(keep)
        X, y = _safe_indexing(X, index), _safe_indexing(y, index)
        w, offset = w[keep], offset if offset is None else _safe_indexing(offset, index)
    return X, y, offset, None if np.all(w == 1) else w


def prepared(
    estimator: Any, raw: Rows, y: Any, sample: NDArray[np.intp], labels: bool, weight: Array | None = None
) -> tuple[Family, NDArray | None, Rows, Chunk]:
    """The family bound to the data, the labels (classifiers), all rows encoded, and the encoded sample of them."""
    facts = raw.collect(facts_about_y, (raw.n_features, labels))
    picked = take_rows(raw, sample)
    if isinstance(raw, ArrayRows) and not isinstance(raw.y, np.memmap):
        family, _, classes = estimator.resolve_family(y, weight)
    else:
        # the sample, and the rows or labels that decide how many parts, classes and levels there are
        extra = [fact["labels" if labels else "extremes"] for fact in facts]
        family, _, classes = estimator.resolve_family(np.concatenate([picked.y, *extra]))
        family = family.with_rows(raw.n_rows)
    prepare = Preparation(family, classes, raw.n_features)
    chosen = prepare(picked)
    if weight is not None:
        family, y = Weighted.join(family, chosen.y, weight[np.sort(sample)])
        chosen, prepare = replace(chosen, y=y), replace(prepare, weight=weight)
    return family, classes, raw.prepared(prepare), chosen


def offset_name(offset: Any) -> str | None:
    """Name by which a fit remembers its offset; None where there is none to speak of."""
    if offset is None or (isinstance(offset, np.ndarray) and not offset.any()):
        return None
    return ", ".join(frames.names_of(offset) or ["offset"])


def target_of(y: Any, classes: NDArray | None = None) -> Target:
    """Names and kind of y as it came from the user, with the labels of a classifier."""
    return Target(frames.names_of(y), frames.kind_of(y), classes)
