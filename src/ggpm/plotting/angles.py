"""Angles: a fan on a wrapped axis, and a polar picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ggpm.plotting._common import (
    Array,
    Held,
    axes_for,
    check_kind,
    feature_index,
    legend_beside,
    padded,
    points_of,
    predictive_of,
    target_name,
)
from ggpm.plotting.along import Along
from ggpm.plotting.style import BAND, MEAN, POINTS
from ggpm.plotting.times import feature_with_unit, show_dates


def plot_angles(
    model: Any,
    feature: int | str = 0,
    *,
    levels: Sequence[float] = (0.5, 0.9),
    data: Any = None,
    limits: tuple[float, float] | None = None,
    at: Mapping[int | str, Any] | None = None,
    n: int = 200,
    ax: Any = None,
) -> Any:
    """Angular regression as a fan: mean direction and credible arcs on an axis that wraps.

    Over a column of labels there is a point with its arcs for each label that occurs.

    Parameters
    ----------
    model : fitted GGPRegressor with angles
    feature : int or str
        The input on the horizontal axis.
    levels : probabilities of the arcs
    data : (X, y), None or False
        Points to draw: None means the training rows, False none.
    at : values of other columns, such as ``{"depth": 2.0}``; those that it does not name are at their medians

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.linspace(0, 3, 20)
    >>> model = ggpm.GGPRegressor("von_mises", optimizer=None).fit(x[:, None], 2 * x)
    >>> plot_angles(model, n=20).get_xlabel()
    'x'
    """
    check_kind(model, model.family_.kind == "angles", "angles")
    ax = axes_for(ax, figsize=(7.2, 3.8))
    feature, held = feature_index(model, feature), Held(model, at)
    low, period = model.family_.decode_start(), model.family_.support.period
    bottom, top = whole_turn(ax, model.family_)
    points = points_of(model, data)
    along = Along.of(model, feature, held, n, limits, points)
    points = along.within(points)
    predictive = predictive_of(model, along.X)
    for k, level in enumerate(sorted(levels, reverse=True)):
        arc = predictive.interval(level)
        start, width = arc[:, 0], np.mod(arc[:, 1] - arc[:, 0], period)
        # follow the arc's middle without jumps, then draw the band once per turn that meets the axis
        middle = np.unwrap(start + width / 2, period=period)
        lower, upper = middle - width / 2, middle + width / 2
        for t, turn in enumerate(turns_within(lower.min(), upper.max(), bottom, top, period)):
            how = {"color": _tint(k, len(levels)), "label": None if t else f"{level:.0%} arc"}
            if along.codes is None:
                ax.fill_between(along.places, lower - turn, upper - turn, lw=0, **how)
            else:
                ax.vlines(along.places, lower - turn, upper - turn, lw=6.0, zorder=1.5, **how)
    mean = np.unwrap(predictive.mean(), period=period)
    for t, turn in enumerate(turns_within(mean.min(), mean.max(), bottom, top, period)):
        label, shape = None if t else "mean direction", "-" if along.codes is None else "o"
        ax.plot(along.places, mean - turn, shape, color=MEAN, lw=1.8, label=label, zorder=3)
    if points is not None:
        turned = low + np.mod(points[1] - low, period)
        ax.plot(along.spread(points), turned, ".", color=POINTS, ms=4, alpha=0.7, label="observed")
    along.finish(ax)
    ax.set_ylabel(target_name(model, _unit_of(model.family_).quantity))
    held.tell(ax, feature)
    legend_beside(ax)
    return ax


def whole_turn(ax: Any, family: Any) -> tuple[float, float]:
    """Make the vertical axis one turn of the circle, with the ticks of the unit; its ends."""
    low, period, along = family.decode_start(), family.support.period, _unit_of(family).along
    ends = padded(low, low + period)
    ax.set_ylim(ends)
    if along:
        ax.yaxis.set_ticks(low + period * np.arange(len(along)) / (len(along) - 1), along)
    return ends


def part_of_turn(ax: Any, family: Any) -> None:
    """Let the ticks of a vertical axis over part of the circle be the angles that users know, also beyond its end."""
    low, period = family.decode_start(), family.support.period
    ax.yaxis.set_major_formatter(lambda value, _: f"{low + np.mod(value - low, period):.4g}")


def turns_within(low: float, high: float, bottom: float, top: float, period: float) -> Array:
    """Whole turns to take away from a curve between low and high so that all of it within the axis is drawn."""
    return np.arange(np.ceil((low - top) / period), np.floor((high - bottom) / period) + 1) * period


def _tint(k: int, n: int) -> tuple[float, ...]:
    """The colour of the k-th of n bands, from light to dark; opaque, so that the legend shows the same."""
    from matplotlib.colors import to_rgb

    depth = 0.22 + 0.28 * k / max(n - 1, 1)
    return tuple(1.0 - depth * (1.0 - c) for c in to_rgb(BAND))


class _Unit(NamedTuple):
    """Words and ticks of a unit of angle."""

    quantity: str = "direction"
    along: tuple[str, ...] = ()  # from the start of the range to its end
    around: tuple[str, ...] = ()  # of a compass or clock: from north, clockwise


# by the start and the length of the range of predictions
_UNITS = {
    (-np.pi, 2 * np.pi): _Unit(along=("−π", "−π/2", "0", "π/2", "π")),
    (0.0, 360.0): _Unit("direction", ("0° N", "90° E", "180° S", "270° W", "360° N"),
                        ("N", "NE", "E", "SE", "S", "SW", "W", "NW")),
    (0.0, 24.0): _Unit("time of day", ("0 h", "6 h", "12 h", "18 h", "24 h"),
                       tuple(f"{h} h" for h in range(0, 24, 3))),
}  # fmt: skip


def _unit_of(family: Any) -> _Unit:
    return _UNITS.get((family.decode_start(), family.support.period), _Unit())


def plot_polar(
    model: Any,
    feature: int | str = 0,
    *,
    level: float = 0.9,
    data: Any = None,
    limits: tuple[float, float] | None = None,
    at: Mapping[int | str, Any] | None = None,
    n: int = 300,
    ax: Any = None,
) -> Any:
    """Angular regression as a polar picture: direction as direction, the input as distance from the centre.

    ``ax``, if given, must be a polar one. Degrees are drawn as a compass: north up, clockwise.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.linspace(0, 3, 20)
    >>> model = ggpm.GGPRegressor("von_mises", optimizer=None).fit(x[:, None], 2 * x)
    >>> plot_polar(model, n=20).name
    'polar'
    """
    check_kind(model, model.family_.kind == "angles", "angles")
    ax = axes_for(ax, figsize=(5, 5), projection="polar")
    if ax.name != "polar":
        raise ValueError("plot_polar needs a polar ax: plt.subplots(subplot_kw={'projection': 'polar'}).")
    feature, held = feature_index(model, feature), Held(model, at)
    family = model.family_
    points = points_of(model, data)
    along = Along.of(model, feature, held, n, limits, points)
    grid, points = along.places, along.within(points)
    predictive = predictive_of(model, along.X)
    radian = 2 * np.pi / family.support.period  # of one of the user's unit
    arc = radian * predictive.interval(level)
    width = np.mod(arc[:, 1] - arc[:, 0], 2 * np.pi)
    middle = np.unwrap(arc[:, 0] + width / 2)
    low, high, arcs = middle - width / 2, middle + width / 2, f"{level:.0%} arc"
    mean = radian * np.unwrap(predictive.mean(), period=family.support.period)
    if along.codes is None:
        # one patch: out along one spiral, round the rim, back along the other, round the hub
        (low, inner), (high, outer) = (along_circle(edge, grid) for edge in (low, high))
        rim, hub = np.linspace(low[-1], high[-1], 60), np.linspace(high[0], low[0], 60)
        theta = np.concatenate([low, rim, high[::-1], hub])
        radius = np.concatenate([inner, np.full(60, grid[-1]), outer[::-1], np.full(60, grid[0])])
        ax.fill(theta, radius, color=BAND, alpha=0.3, lw=0, label=arcs)
        ax.plot(*along_circle(mean, grid), color=MEAN, lw=1.8, label="mean direction")
    else:
        for k, (a, b, r) in enumerate(zip(low, high, grid)):
            ends = along_circle(np.array([a, b]), np.array([r, r]))
            ax.plot(*ends, color=BAND, alpha=0.4, lw=5.0, solid_capstyle="butt", label=None if k else arcs)
        ax.plot(mean, grid, "o", color=MEAN, label="mean direction", zorder=3)
    if points is not None:
        ax.plot(radian * points[1], along.spread(points), ".", color=POINTS, ms=4, alpha=0.7, label="observed")
    if around := _unit_of(family).around:
        ax.set_theta_zero_location("N")
        ax.set_theta_direction(-1)
        ax.set_xticks(np.arange(len(around)) * 2 * np.pi / len(around), around)
    first, last = along.ends
    # a hole in the middle: early values are not squeezed to a point
    ax.set_rlim(min(grid[0], first) - 0.25 * (last - first), last)
    if model.fit_.columns.kinds[feature] == "time":
        show_dates(ax.yaxis)
    if along.codes is None:
        ax.set_rticks([v for v in ax.get_yticks() if grid[0] <= v <= grid[-1]][:5])
    else:
        ax.set_rticks(grid, along.labels)
    ax.set_rlabel_position(22)
    ax.tick_params(axis="y", labelsize="small", labelcolor="0.35")
    ax.set_xlabel(f"radius: {feature_with_unit(model, feature)}", fontsize="small", labelpad=8)
    held.tell(ax, feature)
    ax.legend(loc="upper left", bbox_to_anchor=(0.98, 1.12), frameon=False, fontsize="small")
    return ax


FINEST = np.radians(2.0)  # the widest angle between points of a spiral: its chord is 0.02 % shorter than the arc


def along_circle(theta: Array, radius: Array) -> tuple[Array, Array]:
    """A spiral with points between those that lie wide apart on the circle, so that no chord cuts through the disc.

    >>> theta, radius = along_circle(np.array([0.0, np.pi]), np.array([1.0, 1.0]))
    >>> len(theta), bool(np.all(radius == 1.0))
    (91, True)
    """
    steps = np.maximum(np.ceil(np.abs(np.diff(theta)) / FINEST - 1e-9), 1).astype(int)
    knots = np.concatenate([[0], np.cumsum(steps)])
    fine = np.arange(knots[-1] + 1)
    return np.interp(fine, knots, theta), np.interp(fine, knots, radius)
