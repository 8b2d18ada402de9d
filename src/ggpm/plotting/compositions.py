"""Compositions of three parts on a triangle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ggpm.data.text import Hint, Message
from ggpm.plotting import ternary
from ggpm.plotting._common import (
    Array,
    Held,
    axes_for,
    check_kind,
    feature_index,
    feature_name,
    legend_beside,
    part_names,
    points_of,
    predictive_of,
)
from ggpm.plotting.along import Along
from ggpm.plotting.style import COLOURS, MEAN, POINTS
from ggpm.prediction.predictive import Predictive
from ggpm.prediction.regions import log_density


def plot_ternary(
    model: Any,
    feature: int | str = 0,
    *,
    data: Any = None,
    limits: tuple[float, float] | None = None,
    at: Mapping[int | str, Any] | None = None,
    n: int = 100,
    level: float = 0.9,
    regions: int = 3,
    ax: Any = None,
) -> Any:
    """Compositions of three parts on a triangle: observations and the path of the mean, coloured by the input.

    At ``regions`` places along the path the highest-density region of the level is drawn: where the next observation
    is expected. ``regions=0`` draws none. Over a column of labels there is no path: each label has a colour, its mean,
    and its region, ``regions`` of them. Other columns are at their medians, but for those whose values ``at`` names.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.linspace(0, 1, 12)
    >>> y = np.stack([0.2 + 0.4 * x, 0.5 - 0.3 * x, 0.3 - 0.1 * x], axis=1)
    >>> model = ggpm.GGPRegressor("dirichlet", optimizer=None).fit(x[:, None], y)
    >>> plot_ternary(model, n=20, regions=0).get_aspect()
    1.0
    """
    _check_three(model)
    ax = axes_for(ax, figsize=(6, 5))
    feature, held = feature_index(model, feature), Held(model, at)
    points = points_of(model, data)
    along = Along.of(model, feature, held, n, limits, points)
    grid, points = along.places, along.within(points)
    predictive = predictive_of(model, along.X)
    ternary.frame(ax, part_names(model, 3))
    path = ternary.project(ternary.closed(predictive.mean()))
    labels = along.labels
    colours = _path(ax, path, grid, feature_name(model, feature)) if labels is None else _places(ax, path, labels)
    if points is not None:
        xy = ternary.project(ternary.closed(points[1]))
        ax.scatter(*xy.T, c=[colours(v) for v in along.place(points)], s=14, alpha=0.75, lw=0, zorder=3)
    if labels is not None:
        legend_beside(ax, feature_name(model, feature))
    for i in np.linspace(0, len(grid) - 1, min(regions, len(grid))).round().astype(int):
        how = {"colors": [colours(grid[i])], "linestyles": "--", "linewidths": 1.6}
        _outline(ax, _on_mesh(predictive, i), level, zorder=4, **how)
    held.tell(ax, feature, above="mean composition" + (f" and {level:.0%} regions" if regions else ""))
    return ax


def _path(ax: Any, path: Array, grid: Array, name: str) -> Callable[[float], Any]:
    """Draw a path, coloured by the values of a column; the colour of a value."""
    from matplotlib.collections import LineCollection

    segments = list(np.stack([path[:-1], path[1:]], axis=1))
    ax.add_collection(LineCollection(segments, color="white", lw=5.5, zorder=4, capstyle="round"))
    line = LineCollection(segments, cmap="viridis", lw=3.2, zorder=5, capstyle="round")
    line.set_array(grid[:-1])
    line.set_clim(grid[0], grid[-1])
    ax.add_collection(line)
    ax.figure.colorbar(line, ax=ax, shrink=0.7, label=name)
    return lambda value: line.to_rgba(np.array([value]))[0]


def _places(ax: Any, path: Array, labels: Sequence[str]) -> Callable[[float], Any]:
    """Draw the means of labels, each in its colour; the colour of a label by its place."""
    for k, (xy, label) in enumerate(zip(path, labels)):
        ax.plot(*xy, "o", color=COLOURS[k % len(COLOURS)], mec="white", mew=1.4, ms=9, zorder=5, label=label)
    return lambda place: COLOURS[int(place) % len(COLOURS)]


def plot_ternary_density(
    model: Any, X: Any, *, row: int = 0, levels: Sequence[float] = (0.5, 0.9), data: Any = False, ax: Any = None
) -> Any:
    """Density of a composition of three parts at one row of X, with its highest-density regions.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.linspace(0, 1, 12)
    >>> y = np.stack([0.2 + 0.4 * x, 0.5 - 0.3 * x, 0.3 - 0.1 * x], axis=1)
    >>> model = ggpm.GGPRegressor("dirichlet", optimizer=None).fit(x[:, None], y)
    >>> plot_ternary_density(model, [[0.5]]).get_aspect()
    1.0
    """
    _check_three(model)
    ax = axes_for(ax, figsize=(5.4, 4.8))
    predictive = predictive_of(model, X)
    values = _on_mesh(predictive, row)
    relative = np.exp(values - values.max())
    ax.tricontourf(ternary.mesh()[1], relative, levels=np.linspace(0.02, 1.0, 15), cmap="Blues", zorder=1)
    for level, style in zip(sorted(levels), ("-", "--", ":", "-.")):
        _outline(ax, values, level, colors=[MEAN], linestyles=[style], linewidths=1.4, zorder=3)
        ax.plot([], [], style, color=MEAN, label=f"{level:.0%}")
    mean = ternary.project(ternary.closed(predictive.mean()[row][None]))[0]
    ax.plot(*mean, "o", color="white", mec=MEAN, ms=7, mew=1.6, zorder=5, label="mean")
    points = points_of(model, data)
    if points is not None:
        ax.plot(*ternary.project(ternary.closed(points[1])).T, ".", color=POINTS, ms=3, alpha=0.4, zorder=2)
    ternary.frame(ax, part_names(model, 3))
    ax.legend(loc="upper left", frameon=False, fontsize="small", title="highest density", title_fontsize="small")
    return ax


def _check_three(model: Any) -> None:
    check_kind(model, model.family_.kind == "compositions", "compositions")
    if model.family_.support.columns != 3:
        raise ValueError(
            Message(
                f"a triangle shows 3 parts; this model has {model.family_.support.columns}. Try ",
                Hint("plot_parts", "picture", "parts"),
                ".",
            )
        )


def _on_mesh(predictive: Any, row: int) -> Array:
    """Log density of one row on the triangle's mesh."""
    one = Predictive(predictive.family, predictive.latent_mean[row : row + 1], predictive.latent_cov[row : row + 1])
    family: Any = one.family
    y = family.encode(family.support.total * ternary.mesh()[0])
    return log_density(one, y[:, None, :])[:, 0]


def _outline(ax: Any, values: Array, level: float, **style: Any) -> None:
    """Draw the highest-density region: the mesh points weigh the same, and the heaviest make up the level."""
    weight = np.exp(values - values.max())
    order = np.argsort(-values)
    share = np.cumsum(weight[order]) / weight.sum()
    threshold = values[order[min(int(np.searchsorted(share, level)), len(order) - 1)]]
    ax.tricontour(ternary.mesh()[1], values, levels=[threshold], **style)
