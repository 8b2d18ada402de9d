"""Classes: probability maps and ordinal bands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.text import Hint, Message
from ggpm.plotting._common import (
    Array,
    Held,
    axes_for,
    check_kind,
    feature_index,
    inputs_of,
    legend_beside,
    named_rows,
    padded,
    plain_text,
    points_of,
    predictive_of,
    target_name,
)
from ggpm.plotting.along import BAR, Along
from ggpm.plotting.style import COLOURS, POINTS
from ggpm.plotting.times import name_axis


def plot_class_map(
    model: Any,
    features: tuple[int | str, int | str] = (0, 1),
    *,
    data: Any = None,
    at: Mapping[int | str, Any] | None = None,
    n: int = 120,
    ax: Any = None,
) -> Any:
    """Class probabilities over two inputs: the colour tells the most probable class, its depth how probable it is.

    The name of a class stands in the widest place where it is the most probable one; classes that are so nowhere are
    in the legend. Other columns are at their medians, but for those whose values ``at`` names.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> X = np.random.default_rng(0).normal(size=(20, 2))
    >>> model = ggpm.GGPClassifier(optimizer=None).fit(X, X[:, 0] > 0)
    >>> plot_class_map(model, n=10).get_xlabel()
    'x0'
    """
    check_kind(model, hasattr(model, "classes_"), "classifiers")
    if model.n_features_in_ < 2:
        raise ValueError(
            Message("a map needs two inputs; this model has one. Try ", Hint("plot_ordinal", "picture", "ordinal"), ".")
        )
    ax = axes_for(ax, figsize=(6, 4.8))
    i, j = (feature_index(model, f) for f in features)
    held, points = Held(model, at), points_of(model, data)
    inputs = np.vstack([inputs_of(model)] + ([] if points is None else [points[0]]))
    a, b = (np.linspace(*padded(inputs[:, k].min(), inputs[:, k].max()), n) for k in (i, j))
    X = held.rows({i: np.tile(a, n), j: np.repeat(b, n)})
    p = predictive_of(model, named_rows(model, X)).probabilities()
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(COLOURS[k % len(COLOURS)]) for k in range(p.shape[1])])
    best, d = p.argmax(axis=1), p.shape[1]
    # white where nothing is known (probability 1/d), full colour where the class is certain
    depth = 0.75 * np.clip((p.max(axis=1) - 1 / d) / (1 - 1 / d), 0, 1)[:, None]
    image = (1 - depth) + depth * colours[best]
    extent = (a[0], a[-1], b[0], b[-1])
    ax.imshow(image.reshape(n, n, 3), origin="lower", extent=extent, aspect="auto", interpolation="bilinear")
    for k in range(d):
        field = p[:, k].reshape(n, n)
        if field.min() < 0.5 < field.max():
            ax.contour(a, b, field, levels=[0.5], colors=[colours[k]], linewidths=1.2)
    nowhere = []
    for k, label in enumerate(model.classes_):
        if points is not None:
            mine = points[0][points[1] == label]
            ax.plot(mine[:, i], mine[:, j], "o", color=colours[k], mec="white", mew=0.6, ms=5)
        place = _widest(best.reshape(n, n) == k)
        if place is None:
            nowhere += ax.plot([], [], "o", color=colours[k], label=plain_text(label))
        else:
            _name_in_place(ax, a[place[1]], b[place[0]], plain_text(label), colours[k])
    ax.set(xlim=extent[:2], ylim=extent[2:])
    name_axis(ax.xaxis, model, i)
    name_axis(ax.yaxis, model, j)
    held.tell(ax, i, j, above=target_name(model, ""))
    if nowhere:
        legend_beside(ax, "most probable nowhere")
    return ax


def _widest(inside: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Row and column of the cell that is farthest from all cells outside, those beyond the map included."""
    if not inside.any():
        return None
    from scipy.ndimage import distance_transform_edt

    far = distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    row, column = np.unravel_index(np.argmax(far), far.shape)
    return int(row), int(column)


def _name_in_place(ax: Any, x: float, y: float, name: str, colour: Array) -> None:
    """A name within the map, dark of its own colour, with a halo that keeps it readable over points."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=3.5, foreground="white")]
    ax.text(x, y, name, ha="center", va="center", color=0.55 * colour, weight="bold", path_effects=halo, zorder=6)


def plot_ordinal(
    model: Any,
    feature: int | str = 0,
    *,
    data: Any = None,
    limits: tuple[float, float] | None = None,
    at: Mapping[int | str, Any] | None = None,
    n: int = 200,
    ax: Any = None,
) -> Any:
    """Probabilities of ordered grades as stacked bands, lowest at the bottom; observations as a rug within them.

    Over a column of labels there is a stacked bar for each label that occurs. Other columns are at their medians,
    but for those whose values ``at`` names.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.linspace(0, 1, 18)
    >>> model = ggpm.GGPOrdinalClassifier(optimizer=None).fit(x[:, None], (3 * x).astype(int).clip(0, 2))
    >>> plot_ordinal(model, n=20).get_ylabel()
    'probability'
    """
    check_kind(model, hasattr(model, "classes_"), "classifiers")
    ax = axes_for(ax, figsize=(7.2, 3.8))
    import matplotlib

    feature, held = feature_index(model, feature), Held(model, at)
    points = points_of(model, data)
    along = Along.of(model, feature, held, n, limits, points)
    grid, points = along.places, along.within(points)
    p = predictive_of(model, along.X).probabilities()
    edges = np.concatenate([np.zeros((len(p), 1)), np.cumsum(p, axis=1)], axis=1)
    colours = matplotlib.colormaps["YlGnBu"](np.linspace(0.12, 0.9, p.shape[1]))
    for k, label in enumerate(model.classes_):
        how = {"color": colours[k], "lw": 0.6, "ec": "white", "label": plain_text(label)}
        if along.codes is None:
            ax.fill_between(grid, edges[:, k], edges[:, k + 1], **how)
        else:
            ax.bar(grid, p[:, k], bottom=edges[:, k], width=BAR, **how)
    if points is not None:
        grades = np.array([np.flatnonzero(model.classes_ == y)[0] for y in points[1]])
        x = along.place(points)
        low, high = (np.array([np.interp(v, grid, edges[:, c + s]) for v, c in zip(x, grades)]) for s in (0, 1))
        height = low + np.random.default_rng(1).uniform(0.2, 0.8, len(x)) * (high - low)
        ax.plot(along.spread(points), height, "o", color=POINTS, mec="white", mew=0.4, ms=3.2, alpha=0.8)
    ax.set(ylim=(0, 1), ylabel="probability")
    along.finish(ax)
    held.tell(ax, feature)
    legend_beside(ax, target_name(model, "") or None, reverse=True)
    return ax
