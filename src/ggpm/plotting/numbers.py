"""Ordered outputs: mean and bands."""

from __future__ import annotations

from typing import Any

from ggpm.plotting._common import (
    axes_for,
    check_kind,
    feature_index,
    feature_name,
    has_bands,
    legend_beside,
    line_of,
    points_of,
    predictive_of,
    target_name,
)
from ggpm.plotting.style import BAND, COLOURS, MEAN, POINTS


def plot_bands(
    model: Any,
    feature: int | str = 0,
    *,
    level: float = 0.9,
    data: Any = None,
    limits: tuple[float, float] | None = None,
    n: int = 200,
    ax: Any = None,
) -> Any:
    """Mean and central interval of ordered outputs: numbers, counts, proportions, parts of a composition.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.arange(12.0)
    >>> model = ggpm.GGPRegressor("poisson", optimizer=None).fit(x[:, None], x)
    >>> plot_bands(model, n=20).get_ylabel()
    'y'
    """
    family = model.family_
    check_kind(model, has_bands(family), "ordered outputs")
    ax = axes_for(ax, figsize=(7.2, 3.8))
    feature = feature_index(model, feature)
    grid, X = line_of(model, feature, n, limits)
    predictive = predictive_of(model, X)
    mean, interval = predictive.mean(), predictive.interval(level)
    many = mean.ndim == 2
    names = (model.target_names_ if model.target_names_ else [f"y{j}" for j in range(mean.shape[1])]) if many else []
    points = points_of(model, data)
    for j in range(mean.shape[1] if many else 1):
        m, band = (mean[:, j], interval[:, j]) if many else (mean, interval)
        colour = COLOURS[j % len(COLOURS)] if many else MEAN
        fill = {"color": colour if many else BAND, "alpha": 0.18 if many else 0.3, "lw": 0}
        ax.fill_between(grid, band[:, 0], band[:, 1], step="mid" if family.support.integer else None, **fill)
        ax.plot(grid, m, color=colour, lw=1.8, label=names[j] if many else None)
        if points is not None:
            y = points[1][:, j] if many else points[1].reshape(len(points[1]), -1)[:, 0]
            ax.plot(points[0][:, feature], y, ".", color=colour if many else POINTS, ms=4, alpha=0.6)
    ax.set(xlim=(grid[0], grid[-1]), xlabel=feature_name(model, feature), ylabel=target_name(model, "y"))
    if family.kind == "compositions":
        total = family.support.total
        ax.set(ylim=(0, total), ylabel="share" if total == 1 else f"part of {total:g}")
    if many:
        legend_beside(ax)
    return ax
