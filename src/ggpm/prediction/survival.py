"""Survival and reliability: what a predictive distribution of times says, and how good it was.

Times are outputs of a fitted model, mostly `ggpm.families.Censored` around a Weibull, a log-normal or a gamma.
Functions have the names that users of lifelines and scikit-survival know. Where events of new rows are compared, y is
as `ggpm.families.right_censored` makes it: lower and upper bound, equal where the event was seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from scipy.special import ndtri

from ggpm.data.checks import as_numbers, check_level
from ggpm.prediction.predictive import Predictive

__all__ = [
    "concordance_index", "hazard", "integrated_brier_score", "kaplan_meier", "median_survival_time",
    "survival_function", "survival_interval",
]  # fmt: skip

Array = NDArray[np.float64]


def _times(times: Any) -> Array:
    out = np.atleast_1d(as_numbers(times, "times", "positive numbers"))
    if out.ndim != 1 or not np.all(out > 0):
        raise ValueError(f"times must be positive numbers in one dimension; got {times!r}.")
    return out


def survival_function(dist: Predictive, times: Any) -> Array:
    """P(Y > t) of every row at every time, (m, number of times), the latent integrated out.

    >>> from ggpm.families import Weibull
    >>> dist = Predictive(Weibull(phi=1.0), np.zeros((1, 1)), np.zeros((1, 1, 1)))
    >>> survival_function(dist, [1.0, 2.0]).round(4)
    array([[0.3679, 0.1353]])
    """
    return np.stack([1.0 - dist.cdf(np.full(len(dist), t)) for t in _times(times)], axis=1)


def hazard(dist: Predictive, times: Any) -> Array:
    """Rate of events among those still there, p(t)/P(Y > t), (m, number of times).

    >>> from ggpm.families import Weibull
    >>> dist = Predictive(Weibull(phi=2.0), np.zeros((1, 1)), np.zeros((1, 1, 1)))
    >>> hazard(dist, [1.0, 2.0]).round(4)
    array([[2., 4.]])
    """
    at = _times(times)
    density = np.stack([np.exp(dist.log_prob(np.full(len(dist), t))) for t in at], axis=1)
    return density / survival_function(dist, at)


def survival_interval(dist: Predictive, times: Any, level: float = 0.9) -> Array:
    """Credible interval of the survival function, (m, number of times, 2): how sure the curve itself is.

    >>> from ggpm.families import Weibull
    >>> dist = Predictive(Weibull(phi=1.0), np.zeros((1, 1)), np.full((1, 1, 1), 0.1))
    >>> survival_interval(dist, [1.0]).round(3)
    array([[[0.186, 0.552]]])
    """
    low, high = _latent_ends(dist, level)
    cdf = dist.family.cdf
    ends = [np.stack([1.0 - cdf(e, np.full(len(dist), t)) for t in _times(times)], axis=1) for e in (low, high)]
    return np.stack(ends, axis=-1)


def median_survival_time(dist: Predictive, level: float = 0.9) -> tuple[Array, Array]:
    """Median time of every row, (m,), and the credible interval of the median given the latent, (m, 2).

    >>> from ggpm.families import LogNormal
    >>> dist = Predictive(LogNormal(phi=1.0), np.zeros((1, 1)), np.full((1, 1, 1), 0.1))
    >>> median, band = median_survival_time(dist)
    >>> median.round(3), band.round(3)
    (array([1.]), array([[0.594, 1.682]]))
    """
    low, high = _latent_ends(dist, level)
    none = np.zeros((len(dist), 1, 1))
    ends = [Predictive(dist.family, e, none).quantile(0.5) for e in (low, high)]
    return dist.quantile(0.5), np.stack(ends, axis=-1)


def _latent_ends(dist: Predictive, level: float) -> tuple[Array, Array]:
    """The latent at the ends of its credible interval: all times rise with it."""
    check_level(level, "level")
    if dist.latent_mean.shape[1] != 1:
        raise ValueError(f"bands are for families with one latent; {type(dist.family).__name__} has more.")
    reach = ndtri((1 + level) / 2) * np.sqrt(np.maximum(dist.latent_cov[:, :, 0], 0.0))
    return dist.latent_mean - reach, dist.latent_mean + reach


# ---- scores --------------------------------------------------------------------------------------------------------
def _seen(y: Any) -> tuple[Array, NDArray[np.bool_]]:
    """Times, and whether the event was seen then."""
    y = as_numbers(y, "y", "times, or lower and upper bounds in two columns")
    if y.ndim == 1:
        return y, np.ones(len(y), dtype=bool)
    if y.shape[1:] != (2,) or np.any((y[:, 0] != y[:, 1]) & np.isfinite(y[:, 1])):
        raise ValueError("scores are for times that are known or censored on the right; see right_censored.")
    return y[:, 0], y[:, 0] == y[:, 1]


def concordance_index(y: Any, predicted: Any) -> float:
    """Share of comparable pairs whose predicted times are in the right order, equal ones half (Harrell 1996).

    A pair is comparable if the earlier of its times is that of an event.

    >>> concordance_index([[1.0, 1.0], [2.0, np.inf], [3.0, 3.0]], [0.5, 2.0, 1.5])
    1.0
    """
    time, event = _seen(y)
    p = as_numbers(predicted, "predicted", "one number per row")
    # at equal times an event comes before what is censored then
    later = (time[:, None] < time) | ((time[:, None] == time) & ~event)
    pairs = event[:, None] & later
    if not pairs.any():
        raise ValueError("no pair of rows can be compared: there are fewer than two events at different times.")
    right = (p[:, None] < p) + 0.5 * (p[:, None] == p)
    return float(np.sum(right * pairs) / np.sum(pairs))


def kaplan_meier(time: Any, event: Any, at: Any, reverse: bool = False) -> Array:
    """The product-limit estimate of P(Y > t) at some times (Kaplan and Meier 1958).

    With ``reverse`` that of being censored after t; where both happen at once, events come first.

    >>> kaplan_meier([1.0, 2.0, 3.0], [True, False, True], [0.5, 1.0, 3.0]).round(3)
    array([1.   , 0.667, 0.   ])
    """
    time, event = np.asarray(time, dtype=float), np.asarray(event).astype(bool)
    counted = ~event if reverse else event
    places = np.unique(time[counted])
    there = time == places[:, None]
    at_risk = np.sum(time >= places[:, None], axis=1) - (np.sum(there & event, axis=1) if reverse else 0)
    curve = np.concatenate([[1.0], np.cumprod(1.0 - np.sum(there & counted, axis=1) / at_risk)])
    return curve[np.searchsorted(places, np.asarray(at, dtype=float), side="right")]


def integrated_brier_score(y_train: Any, y: Any, survival: Any, times: Any) -> float:
    """Squared error of survival probabilities, averaged over times, rows weighted for censoring (Graf et al. 1999).

    Parameters
    ----------
    y_train : times or bounds from which the distribution of censoring is estimated
    y : those that were predicted
    survival : P(Y > t) of every row at every time, as `survival_function` gives it
    times : increasing, within the range of both

    Examples
    --------
    >>> y = np.array([1.0, 2.0, 3.0, 4.0])
    >>> round(integrated_brier_score(y, y, np.full((4, 2), 0.5), [1.5, 2.5]), 3)
    0.25
    """
    at, S = _times(times), np.asarray(survival, dtype=float)
    if len(at) < 2 or np.any(np.diff(at) <= 0):
        raise ValueError("times must be two or more and increase.")
    (time, event), (train_time, train_event) = _seen(y), _seen(y_train)
    if S.shape != (len(time), len(at)):
        raise ValueError(f"survival must have shape {(len(time), len(at))}; got {S.shape}.")
    still_seen = kaplan_meier(train_time, train_event, at, reverse=True)
    seen_then = kaplan_meier(train_time, train_event, time, reverse=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        gone = np.where((time[:, None] <= at) & event[:, None], S**2 / seen_then[:, None], 0.0)
        there = np.where(time[:, None] > at, (1.0 - S) ** 2 / still_seen, 0.0)
    score = np.mean(gone + there, axis=0)
    return float(trapezoid(score, at) / (at[-1] - at[0]))
