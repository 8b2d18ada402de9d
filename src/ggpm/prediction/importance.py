"""Columns of X: what it costs in log predictive density to lose one, and what y does on average as one varies."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.data import frames
from ggpm.data.checks import as_numbers, as_weight, check_whole

__all__ = ["importance", "partial_dependence"]


def importance(
    model: Any, X: Any, y: Any, *, offset: Any = None, sample_weight: Any = None, repeats: int = 5,
    random_state: int = 0,
) -> Any:  # fmt: skip
    """Columns ranked by what leaving them out costs: the loss of mean log predictive density, in nats per row.

    A column is left out by giving its values to other rows at random, so that it says nothing of y while the model
    stays as it is. On rows that were not fitted a column of no use costs about nothing, or a little less.

    Parameters
    ----------
    model : fitted estimator of ggpm
    X, y : rows, best ones that were not fitted
    offset, sample_weight : as in `score`
    repeats : how many times values are shuffled
    random_state : seed of the shuffling

    Returns
    -------
    pandas.DataFrame
        Indexed by column, the most important first: ``cost``, and ``standard_error`` of it over the rows.

    Examples
    --------
    >>> from ggpm import GGPRegressor
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> model = GGPRegressor("gaussian").fit(X[:40], 3 * X[:40, 1])
    >>> importance(model, X[40:], 3 * X[40:, 1]).index[0]
    'x1'
    """
    check_whole(repeats, "repeats", 1)
    columns = model.fit_.columns
    before = model.log_predictive_density(X, y, offset=offset)
    weight = as_weight(sample_weight, len(before))
    encoded, rng = columns.encode(X), np.random.default_rng(random_state)
    rows = []
    for j in range(columns.count):
        lost = np.zeros(len(before))
        for _ in range(repeats):
            shuffled = encoded.copy()
            shuffled[:, j] = rng.permutation(shuffled[:, j])
            lost += (before - model.log_predictive_density(columns.decode(shuffled), y, offset=offset)) / repeats
        cost = float(np.average(lost, weights=weight))
        error = float(np.sqrt(np.average((lost - cost) ** 2, weights=weight) / len(lost)))
        rows.append((f"x{j}" if columns.names is None else columns.names[j], cost, error))
    pandas = frames.require("pandas")
    table = pandas.DataFrame(rows, columns=["column", "cost", "standard_error"]).set_index("column")
    return table.sort_values("cost", ascending=False)


def partial_dependence(
    model: Any, X: Any, column: str | int, *, grid: Any = None, offset: Any = None, trials: Any = None, n: int = 50
) -> Any:
    """Mean of y over the rows of X with one column set to each value of a grid: a pandas frame indexed by the grid.

    Means are those of the output's kind: directions of angles, so that 350 and 10 degrees have the mean 0 and not 180,
    as arithmetic averages (`sklearn.inspection.partial_dependence`) have it; compositions and probabilities stay such.

    Parameters
    ----------
    model : fitted estimator of ggpm
    X : rows over which to average
    column : name or number of a column
    grid : values, optional
        By default ``n`` values over the range of the column, or all of its labels.
    offset, trials : as in ``predict_dist``

    Examples
    --------
    >>> from ggpm import GGPRegressor
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = GGPRegressor("von_mises", optimizer=None).fit(X, 0.1 * X[:, 0])
    >>> partial_dependence(model, X, 0, n=3).index.tolist()
    [-1.0, 0.0, 1.0]
    """
    check_whole(n, "n", 1)
    columns, family = model.fit_.columns, model.fit_.family
    j = columns.position(column)
    encoded = columns.encode(X)
    if grid is None:
        values = encoded[:, j]
        labelled = columns.kinds[j] in ("category", "boolean")
        codes = np.unique(values) if labelled else np.linspace(values.min(), values.max(), n)
        rows = np.repeat(encoded[:1], len(codes), axis=0)
        rows[:, j] = codes
        shown = columns.decode(rows)
        grid = shown[:, j] if isinstance(shown, np.ndarray) else np.asarray(shown[columns.names[j]])
    else:
        shown = columns.decode(np.repeat(encoded[:1], len(grid), axis=0))
        if isinstance(shown, np.ndarray):
            codes = as_numbers(grid, "grid", "numbers")
        else:
            shown = shown.assign(**{columns.names[j]: grid})
            codes = columns.encode(shown)[:, j]
    means = []
    for code in codes:
        encoded[:, j] = code
        dist = model.predict_dist(columns.decode(encoded), offset=offset, trials=trials)
        if family.finite:
            means.append(dist.probabilities().mean(axis=0))
        else:
            means.append(family.point(dist._moment().mean(axis=0)[None])[0])
    out = np.asarray(means).reshape(len(codes), -1)
    names = [str(label) for label in getattr(model, "classes_", [])] or model.target_names_ or []
    if len(names) != out.shape[1]:
        names = ["mean"] if out.shape[1] == 1 else [f"mean_{k}" for k in range(out.shape[1])]
    pandas = frames.require("pandas")
    called = f"x{j}" if columns.names is None else columns.names[j]
    return pandas.DataFrame(out, columns=names, index=pandas.Index(grid, name=called))
