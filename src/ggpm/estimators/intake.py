"""Rows from users: arrays, frames, memory maps, Dask collections and other sources, as rows in chunks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_feature_names, check_consistent_length, validate_data

from ggpm.data import columns as door
from ggpm.data import frames
from ggpm.data.checks import as_numbers, as_weight, check_squares, refuse_masked
from ggpm.data.columns import Columns, check_finite, merged
from ggpm.data.door import Facts, Preparation, Target, facts_about, take_rows
from ggpm.data.gaps import tell_missing
from ggpm.data.kinds import is_dask, is_streamed
from ggpm.data.rows import ArrayRows, Chunk, Rows
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
    _refuse_twins(X)
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


def _refuse_twins(X: Any) -> None:
    """Raise ValueError where two columns of a frame have one name; scikit-learn does so only from 1.7 on."""
    for name, count in Counter(frames.names_of(X) or ()).items():
        if count > 1:
            raise ValueError(f"X must have unique column names; got {name!r} {count} times. Rename or drop them.")


@dataclass(frozen=True)
class Source:
    """Rows in chunks, and what a first look at all of them has shown."""

    raw: Rows
    columns: Columns
    target_names: list[str] | None
    facts: list[Facts]
    prepare: Preparation
    """Drops rows that say nothing, and encodes X."""

    @property
    def n_rows(self) -> int:
        """Rows with a y and a positive weight."""
        return self.prepare.n_rows


def source_of(checked: Any, X: Any, y: Any, offset: Any, weight: Any, chunk_rows: int) -> Source:
    """The raw rows, what is known of their columns, and the names of y's columns where the source knows them.

    ``checked`` is an estimator on which scikit-learn's validation may note what it sees.
    """
    raw: Any
    names = columns = target_names = None
    if is_dask(X) or is_dask(y):
        from ggpm.data.cluster import dask_rows

        raw, names = dask_rows(X, y, offset, weight)
    elif is_streamed(X):
        if y is not None or offset is not None or weight is not None:
            raise ValueError(
                f"a {type(X).__name__} names its own target, offset and weight: fit(source) takes no other."
            )
        raw, names, target_names = X, getattr(X, "feature_names", None), getattr(X, "target_names", None)
    else:
        raw, columns = _array_rows(checked, X, y, offset, weight, chunk_rows)
        target_names = frames.names_of(y)
    labels = hasattr(checked, "predict_proba")
    facts = raw.collect(facts_about, (names, raw.n_features, labels))
    seen = merged([fact.columns for fact in facts])
    missing, kept = sum(fact.missing for fact in facts), [fact.kept for fact in facts]
    if not sum(kept):
        raise ValueError("no row of y is there, or none has a positive weight: there is nothing to learn from.")
    if missing:
        first = next(fact.first_missing for fact in facts if fact.missing)
        tell_missing(missing, raw.n_rows, first)
    starts = dict(zip([fact.start for fact in facts], np.cumsum([0, *kept[:-1]]).tolist()))
    return Source(raw, columns or seen, target_names, facts, Preparation(seen, sum(kept), starts))


def _array_rows(checked: Any, X: Any, y: Any, offset: Any, weight: Any, chunk_rows: int) -> tuple[Rows, Columns]:
    """Rows of arrays in memory, or mapped to it, and their columns."""
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
    y = y if isinstance(y, np.ndarray) else frames.values_of(y)
    check_consistent_length(X, y)
    if offset is not None:
        offset = as_numbers(offset, "offset", "one number per row")
        if offset.ndim == 0:
            raise ValueError(f"offset must have shape ({len(X)},) or ({len(X)}, D); got ().")
        check_consistent_length(X, offset)
    return ArrayRows(X, y, offset, chunk_rows=chunk_rows, weight=weight), columns


def rows_to_fit(X: Any, y: Any, offset: Any, weight: Any) -> tuple[Any, Any, Any, Array | None]:
    """X, y, offset and weights of the rows that say something: of positive weight, and with a y; others are told.

    Weights are None where all are one.
    """
    if is_streamed(X) or is_streamed(y) or y is None:
        return X, y, offset, weight  # rows in chunks are looked at one by one
    y = frames.in_a_series(y) if frames.kind_of(y) or isinstance(y, np.ndarray) else frames.values_of(y)
    missing = frames.missing_rows(y)
    if not len(missing):
        check_consistent_length(X, y)
        raise ValueError(f"X and y must have at least one row; got shapes {np.shape(X)} and {np.shape(y)}.")
    if missing.all():
        return X, y, offset, None  # nothing is left: the family says what it expects
    check_consistent_length(X, y)
    w = as_weight(weight, len(y))
    keep = (w > 0) & ~missing
    if missing.any():
        tell_missing(int(missing.sum()), len(y), int(missing.argmax()))
    if not keep.all():
        index = np.flatnonzero(keep)
        X, y = _safe_indexing(X, index), _safe_indexing(y, index)
        w, offset = w[keep], offset if offset is None else _safe_indexing(offset, index)
    return X, y, offset, None if np.all(w == 1) else w


def prepared(
    estimator: Any, source: Source, y: Any, sample: NDArray[np.intp]
) -> tuple[Family, NDArray | None, Rows, Chunk, Array | None]:
    """The family bound to the data, the labels (classifiers), all rows encoded, a sample of them, and its weights."""
    raw, facts = source.raw, source.facts
    picked = take_rows(raw.prepared(source.prepare), sample)
    if isinstance(raw, ArrayRows) and not isinstance(raw.y, np.memmap):
        family, _, classes = estimator.resolve_family(y, raw.weight)
    else:
        # the sample, and the rows or labels that decide how many parts, classes and levels there are
        extra = np.concatenate([fact.y for fact in facts])
        told = np.ones(len(sample)) if picked.weight is None else np.asarray(picked.weight, dtype=float)
        both = np.concatenate([picked.y, extra])
        family, _, classes = estimator.resolve_family(both, np.concatenate([told, np.zeros(len(extra))]))
        family = family.with_rows(sum(fact.weight for fact in facts))
    prepare = replace(source.prepare, family=family, classes=classes, weighted=picked.weight is not None)
    columns = Columns(picked.X.shape[1])  # encoded already
    chosen = replace(prepare, columns=columns, starts=None, weighted=False)(picked)
    if picked.weight is not None:
        family, weighted = Weighted.join(family, chosen.y, np.asarray(picked.weight, dtype=float))
        chosen = replace(chosen, y=weighted)
    return family, classes, raw.prepared(prepare), chosen, picked.weight


def offset_name(offset: Any) -> str | None:
    """Name by which a fit remembers its offset; None where there is none to speak of."""
    if offset is None or (isinstance(offset, np.ndarray) and not offset.any()):
        return None
    return ", ".join(frames.names_of(offset) or ["offset"])


def target_of(y: Any, classes: NDArray | None = None) -> Target:
    """Names and kind of y as it came from the user, with the labels of a classifier."""
    return Target(frames.names_of(y), frames.kind_of(y), classes)
