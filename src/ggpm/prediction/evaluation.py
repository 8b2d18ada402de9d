"""Evaluation of predictions on rows that were not fitted: log density, error, coverage."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.data.gaps import rows_with_y
from ggpm.prediction.bounds import bounds_of
from ggpm.prediction.calibration import coverage_depth
from ggpm.prediction.kinds import kind_of

__all__ = ["evaluate"]


def evaluate(model: Any, X: Any, y: Any, *, level: float = 0.9, offset: Any = None) -> dict[str, Any]:
    """Mean log predictive density, score, error and coverage of credible regions.

    The error is in the units of y: mean absolute error for numbers and counts, mean angle for directions, mean
    total variation distance for compositions, error rate for labels. The coverage should be near the level. Rows whose
    y is missing are left out, with a warning; ``rows`` are the others. Score and error are those of rows
    whose y is known, not of those with bounds alone.

    Examples
    --------
    >>> import ggpm
    >>> x = np.arange(20.0)
    >>> model = ggpm.GGPRegressor("poisson").fit(x[::2, None], x[::2])
    >>> sorted(evaluate(model, x[1::2, None], x[1::2]))[:3]
    ['coverage', 'error', 'error_name']
    """
    X, y, offset = rows_with_y(X, y, offset)
    dist, codes = model.predict_dist(X, offset=offset), model.codes(y)
    support, bounds = model.family_.support, bounds_of(model, y)
    known = dist.mean()
    if bounds is not None:
        seen = bounds[:, 0] == bounds[:, 1]
        known, codes = known[seen], bounds[seen, 0]
    if model.family_.kind == "classes":
        inside = kind_of(model.family_).inside(dist, model.family_.encode(codes), np.empty(0), level)
    else:
        inside = coverage_depth(model, X, y, offset=offset) <= level
    return {
        "rows": len(dist),
        "log_density": float(np.mean(model.log_predictive_density(X, y, offset=offset))),
        "score": float(model.score(X, y, offset=offset)) if len(codes) else np.nan,
        "error": float(np.mean(support.error(np.asarray(codes, dtype=float), known))) if len(codes) else np.nan,
        "error_name": support.error_name,
        "level": level,
        "coverage": float(np.mean(inside)),
    }
