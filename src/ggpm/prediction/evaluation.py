"""Evaluation of predictions on rows that were not fitted: log density, error, coverage."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.data.checks import as_weight
from ggpm.data.gaps import rows_with_y
from ggpm.prediction.bounds import bounds_of
from ggpm.prediction.calibration import average, copies, coverage_depth, shares
from ggpm.prediction.kinds import kind_of

__all__ = ["evaluate"]


def evaluate(
    model: Any, X: Any, y: Any, *, level: float = 0.9, offset: Any = None, sample_weight: Any = None
) -> dict[str, Any]:
    """Mean log predictive density, score, error and coverage of credible regions.

    The error is in the units of y: mean absolute error for numbers and counts, mean angle for directions, mean
    total variation distance for compositions, error rate for labels. The coverage should be near the level. Rows whose
    y is missing are left out, with a warning; ``rows`` are the others. Score and error are those of rows
    whose y is known, not of those with bounds alone. ``sample_weight`` is how many times each row counts, as in `fit`.

    Examples
    --------
    >>> import ggpm
    >>> x = np.arange(20.0)
    >>> model = ggpm.GGPRegressor("poisson").fit(x[::2, None], x[::2])
    >>> sorted(evaluate(model, x[1::2, None], x[1::2]))[:3]
    ['coverage', 'error', 'error_name']
    """
    X, y, offset, sample_weight = rows_with_y(X, y, offset, sample_weight)
    weight = None if sample_weight is None else as_weight(sample_weight, len(y))
    dist, codes = model.predict_dist(X, offset=offset), model.codes(y)
    support, bounds = model.family_.support, bounds_of(model, y)
    known, sure, share = dist.mean(), weight, weight
    if bounds is not None:
        seen = bounds[:, 0] == bounds[:, 1]
        known, codes, sure = known[seen], bounds[seen, 0], None if weight is None else weight[seen]
    if model.family_.kind == "classes":
        inside = kind_of(model.family_).inside(dist, model.family_.encode(codes), np.empty(0), level)
    else:
        rows = copies(weight, len(dist))
        inside, share = coverage_depth(model, X, y, offset=offset, rows=rows) <= level, shares(weight, rows)
    return {
        "rows": len(dist),
        "log_density": average(model.log_predictive_density(X, y, offset=offset), weight),
        "score": float(model.score(X, y, weight, offset=offset)) if len(codes) else np.nan,
        "error": average(support.error(np.asarray(codes, dtype=float), known), sure) if len(codes) else np.nan,
        "error_name": support.error_name,
        "level": level,
        "coverage": average(inside, share),
    } | ({} if weight is None else {"weight": float(weight.sum())})
