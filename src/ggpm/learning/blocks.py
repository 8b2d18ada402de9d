"""Blocks of rows that are left out together where candidate kernels are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.columns import Columns
from ggpm.families.base import Family
from ggpm.families.weighted import Weighted, weights_of
from ggpm.learning.objective import Evidence

__all__ = ["blocks", "copies", "total"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

BLOCKS, BLOCKS_FROM = 10, 40  # blocks of consecutive rows, and rows from which there are blocks
SORTED_RUNS, SORTED_BACK = 2, 0.1  # runs for each class, and share of steps back, up to which a table is sorted by y


def blocks(pool: Evidence, columns: Columns) -> Rows | None:
    """Blocks of rows that are left out together: consecutive in the first column of times, else in the table itself.

    Rows that follow each other in a table often hang together (the hours of a day, the visits of a patient), and single
    ones are known from their neighbours: leaving out one at a time chooses kernels that interpolate. Where rows come in
    no order, such blocks are as good as any. For few rows, and where the table is sorted by y or by combinations of
    labels, so that blocks would be whole classes or combinations, which nothing can predict, only rows that stand there
    several times are left out together: they say the same as one of so much weight. None where there are no such rows.

    >>> from ggpm import GGPRegressor
    >>> X = np.arange(60.0)[:, None]
    >>> fit = GGPRegressor("gaussian", optimizer=None).fit(X, np.sin(X[:, 0])).fit_
    >>> blocks(fit.evidence, fit.columns)[:14]
    array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2])
    """
    field: Any = pool.field
    n, kinds = field.n_rows, columns.kinds
    labels = field.X[:, [kind == "category" for kind in kinds]]
    ordered = "time" in kinds or not (_sorted(pool.family, field.y) or _by_combinations(labels))
    if total(pool) < BLOCKS_FROM or not ordered:
        return copies(field)
    place = np.arange(n)
    if "time" in kinds:
        place = np.argsort(np.argsort(field.X[:, kinds.index("time")], kind="stable"))
    return place * BLOCKS // n


def copies(field: Any) -> Rows | None:
    """Numbers of the different rows of a field, (n,); None where all are different.

    >>> from ggpm.fields.dense import DenseField
    >>> copies(DenseField(np.array([[1.0], [2.0], [1.0]]), np.array([5.0, 5.0, 5.0]), np.zeros((3, 1))))
    array([0, 1, 0])
    """
    rows = np.column_stack([field.X, field.y.reshape(len(field.y), -1), field.offset])
    alike = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    return None if alike.max() == len(rows) - 1 else alike


def total(pool: Evidence) -> float:
    """How many rows there are, each as often as it counts.

    >>> from ggpm import GGPRegressor
    >>> X = np.arange(8.0)[:, None]
    >>> total(GGPRegressor("poisson", optimizer=None).fit(X, np.arange(8), np.full(8, 2.0)).fit_.evidence)
    16.0
    """
    field: Any = pool.field
    return float(weights_of(pool.family, field.y).sum())


def _by_combinations(labels: Array) -> bool:
    """Whether blocks of consecutive rows are combinations of labels, while each label itself is in several of them.

    Rows of one combination stand together, most combinations fit into a block, and no label does: where one does (a
    patient's visits, a storm's hours), forecasts are for others, which are left out whole as they should be.
    """
    n, count = labels.shape
    if count < 2:
        return False
    cells = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    runs, different = 1 + np.sum(np.diff(cells) != 0), cells.max() + 1
    places = (np.flatnonzero(column == label) for column in labels.T for label in np.unique(column))
    fits = any(np.ptp(place) < n // BLOCKS for place in places)
    return bool(BLOCKS < different <= n // 2 and runs <= SORTED_RUNS * different and not fits)


def _sorted(family: Family, encoded: Array) -> bool:
    """Whether y hardly ever goes back on its way through the rows: rising, falling, or class by class."""
    y = family.split(encoded)[0] if isinstance(family, Weighted) else encoded
    if family.finite:
        codes = y.argmax(axis=1) if y.ndim == 2 else y.ravel()
        return bool(np.sum(np.diff(codes) != 0) <= SORTED_RUNS * len(np.unique(codes)))
    if y.ndim == 2 and y.shape[1] > 1:
        return False
    steps = np.sign(np.diff(y.ravel()))
    moves = np.sum(steps != 0)
    return bool(min(np.sum(steps > 0), np.sum(steps < 0)) <= SORTED_BACK * moves)
