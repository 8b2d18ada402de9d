"""Checks of a model: calibration, probability integral transforms, comparisons, the search for a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.data.gaps import rows_with_y
from ggpm.plotting._common import axes_for, legend_beside, plain_text
from ggpm.plotting.evidence import hyperparameter_names, plot_evidence  # they were here in 0.1
from ggpm.plotting.style import BAND, COLOURS, MEAN
from ggpm.prediction.bounds import bounds_of, transforms_within
from ggpm.prediction.calibration import coverage_depth

__all__ = [
    "coverage_depth",
    "hyperparameter_names",
    "plot_calibration",
    "plot_compare",
    "plot_evidence",
    "plot_pit",
    "plot_search",
]


def plot_calibration(model: Any, X: Any, y: Any, *, offset: Any = None, bins: int = 10, ax: Any = None) -> Any:
    """Promised against observed frequencies on data that were not fitted; on the diagonal if the model is right.

    For classifiers a reliability diagram of all class probabilities; else the share of y within credible regions of
    every level (arcs, central intervals, highest-density regions of compositions). The grey band is where 95 % of
    the points would be by chance.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.arange(12.0)
    >>> model = ggpm.GGPRegressor("poisson", optimizer=None).fit(x[:, None], x)
    >>> plot_calibration(model, x[:, None], x).get_xlabel()
    'promised coverage'
    """
    ax = axes_for(ax, figsize=(4.6, 4.4))
    X, y, offset = rows_with_y(X, y, offset)
    grid = np.linspace(0, 1, 101)
    if hasattr(model, "classes_"):
        p = model.predict_dist(X, offset=offset).probabilities()
        hit = np.asarray(y)[:, None] == model.classes_
        p, hit = p.ravel(), hit.ravel()
        which = np.clip((p * bins).astype(int), 0, bins - 1)
        used = [k for k in range(bins) if np.any(which == k)]
        promised = np.array([p[which == k].mean() for k in used])
        observed = np.array([hit[which == k].mean() for k in used])
        count = np.array([np.sum(which == k) for k in used])
        error = 1.96 * np.sqrt(np.maximum(promised * (1 - promised), 1e-12) / count)
        ax.fill_between(promised, np.clip(promised - error, 0, 1), np.clip(promised + error, 0, 1), color="0.88", lw=0)
        ax.plot(promised, observed, "o-", color=MEAN, ms=5)
        labels = "promised probability", "observed frequency"
    else:
        depth = coverage_depth(model, X, y, offset=offset)
        error = 1.96 * np.sqrt(grid * (1 - grid) / len(depth))
        ax.fill_between(grid, np.clip(grid - error, 0, 1), np.clip(grid + error, 0, 1), color="0.88", lw=0)
        ax.plot(grid, np.mean(depth[:, None] <= grid, axis=0), color=MEAN, lw=1.8)
        labels = "promised coverage", "observed coverage"
    ax.plot([0, 1], [0, 1], color="0.35", lw=0.9, ls="--")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel=labels[0], ylabel=labels[1], aspect="equal")
    return ax


def plot_pit(model: Any, X: Any, y: Any, *, offset: Any = None, bins: int = 10, ax: Any = None) -> Any:
    """Histogram of probability integral transforms: flat if the model is right.

    A valley means intervals that are too narrow, a hill too wide, a slope a bias. Grey: 95 % by chance.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.arange(12.0)
    >>> model = ggpm.GGPRegressor("poisson", optimizer=None).fit(x[:, None], x)
    >>> plot_pit(model, x[:, None], x).get_xlabel()
    'probability integral transform'
    """
    ax = axes_for(ax, figsize=(5.4, 3.4))
    X, y, offset = rows_with_y(X, y, offset)
    p, bounds = model.predict_dist(X, offset=offset), bounds_of(model, y)
    values = p.pit(model.codes(y)) if bounds is None else transforms_within(p, bounds, 0)
    many = values.ndim == 2 and values.shape[1] > 1
    m = len(values)
    edges = np.linspace(0, 1, bins + 1)
    from scipy.special import bdtrik

    low, high = bdtrik([0.025, 0.975], m, 1 / bins) * bins / m
    ax.axhspan(low, high, color="0.9", lw=0)
    ax.axhline(1.0, color="0.35", lw=0.9, ls="--")
    if many:
        names = model.target_names_ or [f"y{j}" for j in range(values.shape[1])]
        for j, name in enumerate(names):
            ax.hist(
                values[:, j], edges, density=True, histtype="step", color=COLOURS[j % len(COLOURS)], lw=1.6, label=name
            )
        legend_beside(ax)
    else:
        ax.hist(values.ravel(), edges, density=True, color=BAND, alpha=0.75, ec="white", lw=0.8, zorder=1)
    ax.set(xlim=(0, 1), xlabel="probability integral transform", ylabel="density")
    return ax


def plot_compare(table: Any, *, ax: Any = None) -> Any:
    """The table of `ggpm.compare` as a picture: differences from the best model, with one and two standard errors.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.arange(12.0)
    >>> fitted = ggpm.GGPRegressor("poisson", optimizer=None).fit(x[:, None], x)
    >>> plot_compare(ggpm.compare({"counts": fitted})).get_xlabel()
    'log predictive density, difference from the best (nats)'
    """
    needed = {"difference", "difference_se", "weight", "note"}
    if not needed <= set(getattr(table, "columns", ())):
        raise TypeError(f"table must be what ggpm.compare(models) returns; got {type(table).__name__}.")
    ax = axes_for(ax, figsize=(6.0, 1.2 + 0.4 * len(table)))
    place = np.arange(len(table))
    difference, error = table["difference"].to_numpy(), np.nan_to_num(table["difference_se"].to_numpy())
    ax.axvline(0.0, color="0.35", lw=0.9, ls="--")
    ax.hlines(place, difference - 2 * error, difference + 2 * error, color=BAND, lw=1.2)
    ax.hlines(place, difference - error, difference + error, color=MEAN, lw=3.0)
    ax.plot(difference, place, "o", color=MEAN, mec="white", ms=8)
    for k, weight in enumerate(table["weight"]):
        note = " !" if table["note"].iloc[k] else ""
        where = {"xytext": (6, 0), "xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        ax.annotate(f"weight {weight:.2f}{note}", (1.0, k), va="center", fontsize="small", **where)
    ax.set(yticks=place, yticklabels=list(map(plain_text, table.index)), ylim=(len(table) - 0.5, -0.5))
    ax.set_xlabel("log predictive density, difference from the best (nats)")
    return ax


def plot_search(model: Any, *, ax: Any = None) -> Any:
    """The kernels that were tried for ``kernel=None``: their scores on the last rung, the winner dark.

    A kernel that was learned from several starting values has a line for each of them.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.arange(12.0)
    >>> plot_search(ggpm.GGPRegressor("poisson").fit(x[:, None], x)).get_xlabel()
    'score, difference from the best (nats per row)'
    """
    table = model.fit_.search
    if table is None:
        raise ValueError("no kernels were tried: that is done by fit with kernel=None and an optimizer.")
    most = max(trial.rows for trial in table)
    last = [trial for trial in table if trial.rows == most]
    ax = axes_for(ax, figsize=(6.0, 1.2 + 0.3 * len(last)))
    place, best = np.arange(len(last)), max(trial.score for trial in last)
    won = max(k for k, trial in enumerate(last) if trial.name == table.winner and trial.kept)
    colours = [MEAN if k == won else BAND for k in place]
    names = [trial.name for trial in last]
    starts = [names[: k + 1].count(name) for k, name in enumerate(names)]
    labels = [f"{name}, start {s}" if names.count(name) > 1 else name for name, s in zip(names, starts)]
    ax.axvline(0.0, color="0.35", lw=0.9, ls="--")
    ax.scatter([trial.score - best for trial in last], place, c=colours, s=60, zorder=3)
    ax.set(yticks=place, yticklabels=labels, ylim=(len(last) - 0.5, -0.5))
    ax.set_xlabel("score, difference from the best (nats per row)")
    ax.set_title(f"{most} rows", loc="left", fontsize="medium")
    return ax
