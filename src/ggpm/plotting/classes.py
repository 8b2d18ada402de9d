"""Classes: probability maps and ordinal bands."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.data.text import Hint, Message
from ggpm.plotting._common import (
    axes_for,
    check_kind,
    feature_index,
    feature_name,
    inputs_of,
    legend_beside,
    line_of,
    named_rows,
    points_of,
    predictive_of,
    target_name,
)
from ggpm.plotting.style import COLOURS, POINTS


def plot_class_map(
    model: Any, features: tuple[int | str, int | str] = (0, 1), *, data: Any = None, n: int = 120, ax: Any = None
) -> Any:
    """Class probabilities over two inputs: the colour names the most probable class, its depth how probable it is.

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
    inputs = inputs_of(model)
    pad = 0.06 * np.ptp(inputs, axis=0)
    low, high = inputs.min(axis=0) - pad, inputs.max(axis=0) + pad
    a, b = np.linspace(low[i], high[i], n), np.linspace(low[j], high[j], n)
    X = np.repeat(model.fit_.columns.centre(inputs)[None], n * n, axis=0)
    X[:, i], X[:, j] = np.tile(a, n), np.repeat(b, n)
    p = predictive_of(model, named_rows(model, X)).probabilities()
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(COLOURS[k % len(COLOURS)]) for k in range(p.shape[1])])
    best, d = p.argmax(axis=1), p.shape[1]
    # white where nothing is known (probability 1/d), full colour where the class is certain
    depth = 0.75 * np.clip((p.max(axis=1) - 1 / d) / (1 - 1 / d), 0, 1)[:, None]
    image = (1 - depth) + depth * colours[best]
    extent = (low[i], high[i], low[j], high[j])
    ax.imshow(image.reshape(n, n, 3), origin="lower", extent=extent, aspect="auto", interpolation="bilinear")
    for k in range(d):
        field = p[:, k].reshape(n, n)
        if field.min() < 0.5 < field.max():
            ax.contour(a, b, field, levels=[0.5], colors=[colours[k]], linewidths=1.2)
    points = points_of(model, data)
    for k, label in enumerate(model.classes_):
        if points is not None:
            mine = points[0][points[1] == label]
            ax.plot(mine[:, i], mine[:, j], "o", color=colours[k], mec="white", mew=0.6, ms=5, label=str(label))
        else:
            ax.plot([], [], "s", color=colours[k], label=str(label))
    ax.set(xlabel=feature_name(model, i), ylabel=feature_name(model, j), xlim=extent[:2], ylim=extent[2:])
    legend_beside(ax, target_name(model, "") or None)
    return ax


def plot_ordinal(
    model: Any,
    feature: int | str = 0,
    *,
    data: Any = None,
    limits: tuple[float, float] | None = None,
    n: int = 200,
    ax: Any = None,
) -> Any:
    """Probabilities of ordered grades as stacked bands, lowest at the bottom; observations as a rug within them.

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

    feature = feature_index(model, feature)
    grid, X = line_of(model, feature, n, limits)
    p = predictive_of(model, X).probabilities()
    edges = np.concatenate([np.zeros((len(p), 1)), np.cumsum(p, axis=1)], axis=1)
    colours = matplotlib.colormaps["YlGnBu"](np.linspace(0.12, 0.9, p.shape[1]))
    for k, label in enumerate(model.classes_):
        ax.fill_between(grid, edges[:, k], edges[:, k + 1], color=colours[k], lw=0.6, ec="white", label=str(label))
    points = points_of(model, data)
    if points is not None:
        codes = np.array([np.flatnonzero(model.classes_ == y)[0] for y in points[1]])
        x = points[0][:, feature]
        inside = (x >= grid[0]) & (x <= grid[-1])
        x, codes = x[inside], codes[inside]
        low, high = (np.array([np.interp(v, grid, edges[:, c + s]) for v, c in zip(x, codes)]) for s in (0, 1))
        spread = np.random.default_rng(0).uniform(0.2, 0.8, len(x))
        ax.plot(x, low + spread * (high - low), "o", color=POINTS, mec="white", mew=0.4, ms=3.2, alpha=0.8)
    ax.set(xlim=(grid[0], grid[-1]), ylim=(0, 1), xlabel=feature_name(model, feature), ylabel="probability")
    legend_beside(ax, target_name(model, "") or None, reverse=True)
    return ax
