"""Checks of a model: evidence surface, calibration, probability integral transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.data.gaps import rows_with_y
from ggpm.plotting._common import axes_for, legend_beside, plain_text
from ggpm.plotting.style import BAND, COLOURS, MEAN
from ggpm.prediction.calibration import coverage_depth
from ggpm.prediction.description import hyperparameter_names


def plot_evidence(
    model: Any, first: int = 0, second: int | None = 1, *, width: float = 2.0, n: int = 21, ax: Any = None
) -> Any:
    """Log evidence over one or two entries of ``theta_``, the others held: a curve, or a map with contours.

    Parameters
    ----------
    first, second : int
        Which entries of ``theta_`` (natural logarithms; the kernels' first, then the family's); ``second=None``: a
        curve along the first alone.
    width : float
        How far to go to either side, in log units.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.arange(12.0)
    >>> model = ggpm.GGPRegressor("poisson", optimizer=None).fit(x[:, None], x)
    >>> plot_evidence(model, n=4).get_title()
    'log evidence below its maximum'
    >>> plot_evidence(model, 0, None, n=5).get_ylabel()
    'log evidence below its maximum'
    """
    p = len(model.theta_)
    if not (0 <= first < p and first != second and (second is None or 0 <= second < p)):
        raise ValueError(
            f"first and second must be two different entries of theta_, which has {p}; got {first}, {second}."
        )
    offsets = np.linspace(-width, width, n)
    if second is None:
        return _evidence_curve(model, first, offsets, axes_for(ax, figsize=(4.6, 3.2)))
    ax = axes_for(ax, figsize=(5.6, 4.6))
    surface = np.array([[_evidence_at(model, {first: da, second: db}) for da in offsets] for db in offsets])
    x, y = np.exp(model.theta_[first] + offsets), np.exp(model.theta_[second] + offsets)
    drop = np.nanmax(surface) - surface
    # up to where the evidence is negligible; finer near the top
    levels = np.concatenate([[0, 0.5, 1, 2, 3, 5], [10, 20, 50, 100, 1000, np.inf]])
    shown = levels[: max(4, np.searchsorted(levels, np.nanmax(drop)) + 1)]
    shown = shown[np.isfinite(shown)]
    ax.set_facecolor("0.92")
    import matplotlib.colors

    filled = ax.contourf(
        x,
        y,
        drop,
        levels=shown,
        extend="max",
        cmap="viridis_r",
        norm=matplotlib.colors.BoundaryNorm(shown, 256, extend="max"),
    )
    ax.contour(x, y, drop, levels=shown[1:], colors="white", linewidths=0.6)
    ax.plot(np.exp(model.theta_[first]), np.exp(model.theta_[second]), "*", color="white", mec="black", ms=13)
    names = hyperparameter_names(model)
    ax.set(xscale="log", yscale="log", xlabel=names[first], ylabel=names[second])
    for axis in (ax.xaxis, ax.yaxis):
        _label_decades(axis)
    ax.set_title("log evidence below its maximum", fontsize="medium")
    ax.figure.colorbar(filled, ax=ax, ticks=shown)
    return ax


def _evidence_at(model: Any, moved: dict[int, float]) -> float:
    """Log evidence where some entries of theta differ by so much; NaN, left blank, where there is no posterior."""
    theta = model.theta_.copy()
    for j, by in moved.items():
        theta[j] += by
    try:
        return float(model.log_marginal_likelihood(theta))
    except np.linalg.LinAlgError:
        return float("nan")


def _evidence_curve(model: Any, first: int, offsets: Any, ax: Any) -> Any:
    values = np.array([_evidence_at(model, {first: by}) for by in offsets])
    ax.plot(np.exp(model.theta_[first] + offsets), values - np.nanmax(values), "-", color=MEAN, lw=1.8)
    ax.axvline(np.exp(model.theta_[first]), color="0.35", lw=0.9, ls="--")
    ax.set(xscale="log", xlabel=hyperparameter_names(model)[first], ylabel="log evidence below its maximum")
    _label_decades(ax.xaxis)
    return ax


def _label_decades(axis: Any) -> None:
    """Few labels: the standard ones of a decade or two run into each other."""
    import matplotlib.ticker

    axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


# ---- is it right? ------------------------------------------------------------------------------------------------
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
    values = model.predict_dist(X, offset=offset).pit(model.codes(y))
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
