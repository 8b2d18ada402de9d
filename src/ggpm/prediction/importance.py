"""Columns of X: what it costs in log predictive density to lose one, and what y does on average as one varies."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.data import frames
from ggpm.data.checks import as_numbers, as_weight, check_whole
from ggpm.data.gaps import rows_with_y
from ggpm.fields.inducing.field import InducingField
from ggpm.fields.inducing.points import Inducing
from ggpm.kernels import used_columns, without_column
from ggpm.learning.fit import Fit, RowsNotStored, Search, SearchOutcome, learn, learn_in_samples
from ggpm.learning.objective import Evidence

__all__ = ["importance", "partial_dependence"]


def importance(
    model: Any, X: Any, y: Any, *, offset: Any = None, sample_weight: Any = None, how: str = "leave out",
    repeats: int = 5, random_state: int = 0,
) -> Any:  # fmt: skip
    """Columns ranked by what leaving them out costs: the loss of mean log predictive density, in nats per row.

    On rows that were not fitted a column of no use costs about nothing, or less.

    Parameters
    ----------
    model : fitted estimator of ggpm
    X, y : rows, best ones that were not fitted; those whose y is missing are left out, with a warning
    offset, sample_weight : as in `score`
    how : "leave out", "refit" or "shuffle"
        "leave out": the kernel no longer looks at the column, and the posterior is found again from the training rows
        with all other hyperparameters as they are; what other columns know of y in its place is used. "refit": these
        are learned again too, which costs a fit for each column. "shuffle": the model stays as it is, and values of the
        column are given to other rows at random: what it costs to be told wrong values, which is more.
    repeats, random_state : for "shuffle", how many times, and the seed

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
    if how not in ("leave out", "refit", "shuffle"):
        raise ValueError(f"how must be 'leave out', 'refit' or 'shuffle'; got {how!r}.")
    if how != "shuffle" and isinstance(model.fit_.evidence.field, RowsNotStored):
        raise ValueError(
            "the training rows, from which a posterior without a column is found, are not in the file of a sparse "
            "model: take how='shuffle'."
        )
    X, y, offset, sample_weight = rows_with_y(X, y, offset, sample_weight)
    columns = model.fit_.columns
    before = model.log_predictive_density(X, y, offset=offset)
    weight = as_weight(sample_weight, len(before))
    encoded, rng = columns.encode(X), np.random.default_rng(random_state)
    rows = []
    for j in range(columns.count):
        if how == "shuffle":
            lost = np.zeros(len(before))
            for _ in range(repeats):
                shuffled = encoded.copy()
                shuffled[:, j] = rng.permutation(shuffled[:, j])
                after = model.log_predictive_density(columns.decode(shuffled), y, offset=offset)
                lost += (before - after) / repeats
        elif not used_columns(model.fit_.kernels, columns.count)[j]:
            lost = np.zeros(len(before))
        else:
            other = model.from_fit(model.get_params(deep=False), _without(model.fit_, j, how == "refit"))
            lost = before - other.log_predictive_density(X, y, offset=offset)
        cost = float(np.average(lost, weights=weight))
        error = float(np.sqrt(np.average((lost - cost) ** 2, weights=weight) / len(lost)))
        rows.append((f"x{j}" if columns.names is None else columns.names[j], cost, error))
    pandas = frames.require("pandas")
    table = pandas.DataFrame(rows, columns=["column", "cost", "standard_error"]).set_index("column")
    return table.sort_values("cost", ascending=False)


def _without(fit: Fit, j: int, learned: bool) -> Fit:
    """The same model whose kernels do not look at column j."""
    evidence = fit.evidence
    kernels = [without_column(kernel, fit.columns.count, j) for kernel in fit.kernels]
    other = Evidence(evidence.family, kernels, evidence.field, evidence.rule, evidence.objective)
    outcome = SearchOutcome(other)
    if learned and other.theta.size:
        how = Search("fmin_l_bfgs_b", 0, np.random.default_rng(0), lambda what: None)
        field = evidence.field
        if isinstance(field, InducingField):
            outcome = learn_in_samples(other, Inducing(len(field.Z)), np.arange(field.n_rows), how)
        else:
            outcome = learn(other, how)
    return outcome.fit(fit.columns, fit.target, fit.offset)


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
