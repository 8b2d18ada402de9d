"""How good are predictions on rows that were not fitted: log density, error, coverage."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.families.support import Circle, Simplex
from ggpm.plotting._common import kind_of_picture
from ggpm.prediction.calibration import coverage_depth

__all__ = ["evaluate", "kind_of_picture"]


def evaluate(model: Any, X: Any, y: Any, *, level: float = 0.9, offset: Any = None) -> dict[str, Any]:
    """Mean log predictive density, score, error and coverage of credible regions.

    The error is in the units of y: mean absolute error for numbers and counts, mean angle for directions, mean
    total variation distance for compositions, error rate for labels. The coverage should be near the level.

    Examples
    --------
    >>> import ggpm
    >>> x = np.arange(20.0)
    >>> model = ggpm.GGPRegressor("poisson").fit(x[::2, None], x[::2])
    >>> sorted(evaluate(model, x[1::2, None], x[1::2]))[:3]
    ['coverage', 'error', 'error_name']
    """
    dist = model.predict_dist(X, offset=offset)
    density = float(np.mean(model.log_predictive_density(X, y, offset=offset)))
    name, error = _error(model, dist, y)
    if hasattr(model, "classes_"):
        inside = dist.interval(level)[np.arange(len(dist)), model.codes(y).astype(int)]
        score = 1.0 - error
    else:
        inside = coverage_depth(model, X, y, offset=offset) <= level
        score = float(model.score(X, y, offset=offset))
    return {
        "rows": len(dist),
        "log_density": density,
        "score": score,
        "error": error,
        "error_name": name,
        "level": level,
        "coverage": float(np.mean(inside)),
    }


def _error(model: Any, dist: Any, y: Any) -> tuple[str, float]:
    family = model.family_
    if hasattr(model, "classes_"):
        best = dist.probabilities().argmax(axis=1)
        return "error rate", float(np.mean(best != model.codes(y)))
    mean, values = dist.mean(), np.asarray(model.codes(y), dtype=float)
    if isinstance(family.support, Circle):
        period = family.support.period
        off = np.abs(np.mod(values - mean + period / 2, period) - period / 2)
        return "mean absolute angle", float(off.mean())
    if isinstance(family.support, Simplex):
        off = values / values.sum(axis=1, keepdims=True) - mean / family.support.total
        return "mean total variation", float(0.5 * np.abs(off).sum(axis=1).mean())
    if family.countable:
        total = values.sum(axis=1)
        share = values[:, 0] / total if mean.ndim == 1 else values / total[:, None]
        return "mean absolute error of the share", float(np.abs(share - mean).mean())
    return "mean absolute error", float(np.abs(values.reshape(mean.shape) - mean).mean())
