"""Outputs of which only bounds are known, beside predictions: what can be said of them, and what cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.text import Message, Row
from ggpm.families.between import BEYOND
from ggpm.families.censored import Censored
from ggpm.families.weighted import Weighted
from ggpm.prediction.predictive import Predictive
from ggpm.prediction.questions import cdf_at

Array = NDArray[np.float64]


def bounds_of(model: Any, y: Any) -> Array | None:
    """Lower and upper bounds (m, 2) of y, equal where it was seen; None where y of the model has no such rows."""
    if not hasattr(model, "fit_"):  # one of somebody's own
        return None
    family = model.fit_.evidence.family
    family = family.base if isinstance(family, Weighted) else family
    if not isinstance(family, Censored) or np.ndim(y := model.codes(y)) != 2 or np.shape(y)[1] != 2:
        return None
    return Censored(model.family_).encode(y)


def transforms_within(p: Predictive, bounds: Array, random_state: Any) -> Array:
    """Probability integral transforms, (m,), each drawn between those of its bounds: uniform if the model is right.

    That holds whatever decided which rows are seen, as long as it knows no more of y than X does. Transforms of the
    rows that were seen would not do: where time is short, they are those of early events.
    """
    low, high = np.where(np.abs(bounds) >= BEYOND, np.copysign(np.inf, bounds), bounds).T
    start, end = cdf_at(p, low), cdf_at(p, high)
    out = start + np.random.default_rng(random_state).uniform(size=len(p)) * (end - start)
    seen = low == high
    if seen.any():
        out[seen] = p.rows(seen).pit(low[seen], random_state).ravel()
    return out


def numbers_of(model: Any, y: Any, what: str) -> Any:
    """y as numbers, where every row was seen; else ValueError says what takes bounds in place of ``what``."""
    bounds = bounds_of(model, y)
    if bounds is None:
        return y
    hidden = bounds[:, 0] != bounds[:, 1]
    if hidden.any():
        raise ValueError(
            Message(
                f"{what} must know y itself, and y has bounds alone in {hidden.sum()} of {len(hidden)} row(s), first "
                "in row ",
                Row(hidden.argmax()),
                ". Those that were seen alone would mislead, as they are not like the others. Bounds are taken by "
                "ggpm.calibration, plot_calibration and plot_pit, by log_predictive_density and model.loo(), and by "
                "concordance_index and integrated_brier_score of ggpm.prediction.survival.",
            )
        )
    return bounds[:, 0]
