"""Predictive distributions as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data import frames
from ggpm.families.support import Circle

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

__all__ = ["summarise"]


def summarise(
    predictive: Predictive,
    level: float = 0.9,
    names: list[str] | None = None,
    classes: NDArray | None = None,
    index: Any = None,
) -> Any:
    """One row per prediction: what is expected, and within which bounds, as a pandas data frame.

    Parameters
    ----------
    predictive : Predictive
    level : float
        Probability of intervals, arcs and credible sets.
    names : list of str, optional
        Names of the outputs, parts or classes.
    classes : array, optional
        The labels, for classifiers.
    index : optional
        Row labels.

    Examples
    --------
    >>> from ggpm.families import VonMises
    >>> from ggpm.prediction.predictive import Predictive
    >>> north = Predictive(VonMises(units="degrees"), np.array([[50.0, 0.0]]), 0.1 * np.eye(2)[None])
    >>> summarise(north).round(0).to_dict("list")
    {'mean': [0.0], 'sd': [8.0], 'arc_start': [347.0], 'arc_end': [13.0]}
    """
    pandas = frames.require("pandas")
    if predictive.family.finite:
        columns = _classes(predictive, level, names, classes)
    elif isinstance(predictive.family.support, Circle):
        columns = _angles(predictive, level)
    else:
        columns = _ordered(predictive, level, names)
    return pandas.DataFrame(columns, index=index)


def _classes(predictive: Predictive, level: float, names: list[str] | None, classes: NDArray | None) -> dict[str, Any]:
    p = predictive.probabilities()
    labels = np.arange(p.shape[1]) if classes is None else np.asarray(classes)
    names = [str(label) for label in labels] if names is None else names
    best = p.argmax(axis=1)
    chosen = predictive.interval(level)
    columns: dict[str, Any] = {"label": labels[best], "probability": p[np.arange(len(p)), best]}
    columns |= {f"p_{name}": p[:, j] for j, name in enumerate(names)}
    columns["credible_set"] = [", ".join(name for name, inside in zip(names, row) if inside) for row in chosen]
    return columns


def _angles(predictive: Predictive, level: float) -> dict[str, Any]:
    arcs = predictive.interval(level)
    support: Any = predictive.family.support
    # circular standard deviation sqrt(-2 log R), in the user's units
    with np.errstate(divide="ignore"):  # a uniform direction has none
        sd = np.sqrt(-2.0 * np.log1p(-predictive.var())) * support.period / (2 * np.pi)
    return {"mean": predictive.mean(), "sd": sd, "arc_start": arcs[:, 0], "arc_end": arcs[:, 1]}


def _ordered(predictive: Predictive, level: float, names: list[str] | None) -> dict[str, Any]:
    mean, interval, var = predictive.mean(), predictive.interval(level), predictive.var()
    if mean.ndim == 1:
        if interval.ndim == 3:  # successes and failures: the first is what the mean is about
            interval = interval[:, 0]
            if predictive.trials is None:  # one trial has no interval; the proportion's own uncertainty is latent
                return {"mean": mean, "sd": np.sqrt(var)}
        return {"mean": mean, "sd": np.sqrt(var), "lower": interval[:, 0], "upper": interval[:, 1]}
    if mean.ndim == 3:  # matrices: entry by entry
        names = [f"y{j}{k}" for j, k in np.ndindex(mean.shape[1:])]
        mean, interval = mean.reshape(len(mean), -1), interval.reshape(len(mean), -1, 2)
    d = mean.shape[1]
    if names is None or len(names) != d:
        names = [f"y{j}" for j in range(d)]
    columns = {f"{name}_mean": mean[:, j] for j, name in enumerate(names)}
    for j, name in enumerate(names):
        columns[f"{name}_lower"], columns[f"{name}_upper"] = interval[:, j, 0], interval[:, j, 1]
    return columns
