"""Importance of the columns of X: what it costs in log predictive density to lose one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.data import frames
from ggpm.data.checks import as_weight, check_whole

__all__ = ["importance"]


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
