"""Ordered outputs: mean and bands, in one picture or a panel for every part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ggpm.families.between import BEYOND
from ggpm.plotting._common import (
    Array,
    Held,
    axes_for,
    check_kind,
    feature_index,
    has_bands,
    legend_beside,
    padded,
    part_names,
    points_of,
    predictive_of,
    target_name,
)
from ggpm.plotting.along import Along
from ggpm.plotting.style import BAND, COLOURS, MEAN, POINTS


def plot_bands(
    model: Any,
    feature: int | str = 0,
    *,
    level: float = 0.9,
    data: Any = None,
    limits: tuple[float, float] | None = None,
    at: Mapping[int | str, Any] | None = None,
    n: int = 200,
    ax: Any = None,
) -> Any:
    """Mean and central interval of ordered outputs: numbers, counts, proportions, parts of a composition.

    Over a column of labels there is a point with a bar for each label that occurs.

    Parameters
    ----------
    model : fitted estimator
    feature : int or str
        The input on the horizontal axis.
    level : probability of the intervals
    data : (X, y), None or False
        Points to draw: None means the training rows, False none. Censored rows are triangles at their bound, which
        point to where the number lies, or lines from the lower bound to the upper.
    limits : range of the input; None: that of the training rows and of the points
    at : values of other columns, such as ``{"depth": 2.0}``; those that it does not name are at their medians

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
    feature, held = feature_index(model, feature), Held(model, at)
    points = points_of(model, data)
    along = Along.of(model, feature, held, n, limits, points)
    points = along.within(points)
    predictive = predictive_of(model, along.X)
    mean, interval = predictive.mean(), predictive.interval(level)
    many = mean.ndim == 2
    names = part_names(model, mean.shape[1]) if many else []
    for j in range(mean.shape[1] if many else 1):
        m, band = (mean[:, j], interval[:, j]) if many else (mean, interval)
        y = None if points is None else points[1][:, j] if many else points[1].reshape(len(points[1]), -1)
        said = {"mean": f"{names[j]}, mean"} if many else {"mean": "mean", "band": f"{level:.0%} interval"}
        colour = COLOURS[j % len(COLOURS)] if many else None
        _band(ax, along, m, band, colour, said, step=family.support.integer)
        if points is not None and y is not None:
            ink, x = POINTS if colour is None else colour, along.spread(points)
            if not many and y.shape[1] == 2:
                x, y = _bounds(ax, x, y, family.support)
            ax.plot(x, y, ".", color=ink, ms=4, alpha=0.6, label=None if many else "observed")
    ax.set_ylabel(target_name(model, "y"))
    along.finish(ax)
    if family.kind == "compositions":
        total = family.support.total
        ax.set(ylim=padded(0, total), ylabel="share" if total == 1 else f"part of {total:g}")
    held.tell(ax, feature)
    legend_beside(ax, f"with {level:.0%} intervals" if many else None)
    return ax


def _bounds(ax: Any, x: Array, y: Array, support: Any) -> tuple[Array, Array]:
    """Draw rows of which bounds are known as what they are, from there upwards or downwards; the other rows."""
    lower, upper = np.asarray(y, dtype=float).T
    known = lower == upper
    # infinity has a number in the place of it inside, and a lower bound of none is the end of the support
    left = ~known & ((lower < support.low) if support.integer else (lower <= max(support.low, -BEYOND)))
    right = ~known & (upper >= min(support.high, BEYOND))
    how = {"color": POINTS, "mfc": "none", "ms": 5, "mew": 0.8, "alpha": 0.8, "ls": "none"}
    for rows, at, marker, label in ((right, lower, "^", "at least"), (left, upper, "v", "at most")):
        if rows.any():
            ax.plot(x[rows], at[rows], marker=marker, label=label, **how)
    between = ~(known | left | right)
    if between.any():
        ax.vlines(x[between], lower[between], upper[between], color=POINTS, lw=1.0, alpha=0.6, label="between")
    return x[known], lower[known]


MOST_ACROSS = 4  # panels in a line


def plot_parts(
    model: Any,
    feature: int | str = 0,
    *,
    level: float = 0.9,
    data: Any = None,
    limits: tuple[float, float] | None = None,
    at: Mapping[int | str, Any] | None = None,
    n: int = 100,
    axes: Any = None,
    figure: Any = None,
) -> Any:
    """Mean and band of every part in a panel of its own: compositions, vectors, counts in categories as shares.

    Bands of compositions and vectors are central intervals of what is observed; those of counts in categories are
    credible intervals of the shares, because how far counts scatter about them depends on their total.

    Parameters
    ----------
    model, feature, level, data, limits, at : as in `plot_bands`
    axes : as many matplotlib axes as parts, or None
    figure : an empty matplotlib figure for the panels, where no axes are given; None makes one

    Returns
    -------
    array of axes

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> X, y = np.arange(6.0)[:, None], np.array([[3, 1, 0], [2, 2, 0], [1, 2, 1]] * 2)
    >>> model = ggpm.GGPRegressor("multinomial", optimizer=None).fit(X, y)
    >>> [ax.get_title() for ax in plot_parts(model, n=10)]
    ['y0', 'y1', 'y2']
    """
    family = model.family_
    counted = family.kind == "shares"
    compositions = family.kind == "compositions"
    check_kind(model, counted or compositions or has_bands(family), "parts of ordered outputs")
    feature, held = feature_index(model, feature), Held(model, at)
    points = points_of(model, data)
    along = Along.of(model, feature, held, n, limits, points)
    points = along.within(points)
    predictive = predictive_of(model, along.X)
    mean = predictive.mean().reshape(len(predictive), -1)
    band = predictive.mean_interval(level) if counted else predictive.interval(level)
    band = band.reshape(*mean.shape, 2)
    count = mean.shape[1]
    names = part_names(model, count) if count > 1 else [target_name(model, "successes" if counted else "y")]
    lines = -(-count // MOST_ACROSS)
    across = -(-count // lines)
    if axes is None:
        if figure is None:
            figure = axes_for(None, figsize=(3.0 * across, 2.8 * lines)).figure
            figure.clear()
        panels = figure.subplots(lines, across, sharex=True, sharey=True, squeeze=False).ravel()
        axes = panels[:count]
        for ax in panels[count:]:
            ax.set_axis_off()
        for ax in axes[-across:]:  # the last panel of every column, also above one that is off
            ax.tick_params(labelbottom=True)
    y = None
    if points is not None:
        y = np.asarray(points[1], dtype=float).reshape(len(points[1]), -1)
        y = y / y.sum(axis=1, keepdims=True) if counted else y
    total = 1.0 if counted else family.support.total if compositions else None
    for j, ax in enumerate(axes):
        said = {"mean": "mean", "band": f"{level:.0%} interval" + (" of the share" if counted else "")}
        _band(ax, along, mean[:, j], band[:, j], None, said)
        if points is not None and y is not None:
            ax.plot(along.spread(points), y[:, j], ".", color=POINTS, ms=4, alpha=0.6, label="observed")
        along.finish(ax)
        ax.set_title(names[j])
        if total is not None:
            top = max(band[..., 1].max(), 0.0 if y is None or not y.size else np.nanmax(y))
            ax.set_ylim(padded(0, min(total, 1.05 * top)))
        if j < count - across:
            ax.set_xlabel("")
        if j % across == 0:
            ax.set_ylabel("y" if total is None else "share" if total == 1 else f"part of {total:g}")
    legend_beside(axes[across - 1])
    if words := held.in_words(feature):
        axes[0].figure.suptitle(words, fontsize="small")
    return axes


def _band(
    ax: Any, along: Along, mean: Array, band: Array, colour: str | None, said: Mapping[str, str], step: bool = False
) -> None:
    """A line with its band; without a colour in those of pictures that have one alone."""
    color, fill, alpha = (MEAN, BAND, 0.3) if colour is None else (colour, colour, 0.18)
    along.line(
        ax, mean, band[:, 0], band[:, 1], color=color, fill=fill, alpha=alpha,
        label=said["mean"], band=said.get("band"), step=step,
    )  # fmt: skip
