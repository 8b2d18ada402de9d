"""Effects of single terms and columns, and maps over two of them: any quantity of the predictive distribution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.text import did_you_mean
from ggpm.fields.dense import DensePosterior
from ggpm.fields.inducing.posterior import InducingPosterior
from ggpm.fields.neighbours.posterior import NeighboursPosterior
from ggpm.kernels.structure import category_columns
from ggpm.plotting._common import (
    Held,
    axes_for,
    feature_index,
    feature_name,
    inputs_of,
    label_columns,
    label_text,
    legend_beside,
    named_rows,
    padded,
    part_names,
    plain_text,
    predictive_of,
    target_name,
)
from ggpm.plotting.along import label_ticks
from ggpm.plotting.angles import part_of_turn, turns_within, whole_turn
from ggpm.plotting.numbers import MOST_ACROSS
from ggpm.plotting.style import BAND, COLOURS, MEAN, POINTS
from ggpm.plotting.times import name_axis
from ggpm.prediction.terms import term_columns, term_shares

Array = NDArray[np.float64]


def plot_effects(
    model: Any,
    features: list[int | str] | None = None,
    *,
    terms: list[str] | None = None,
    level: float = 0.9,
    at: Mapping[int | str, Any] | None = None,
    n: int = 100,
    axes: Any = None,
    figure: Any = None,
) -> Any:
    """The mean of y as one term of the kernel varies along one of its columns, with credible bands of that mean.

    There is a panel for every column of every term, so that a trend and a cycle of one column are two. All other terms
    stay where the title says, and so do the term's other columns: at their medians, categories at the label that occurs
    most often, unless ``at`` names other values. Angles are drawn on one turn of their circle, or on the part of it
    that they need, compositions and classes by parts that add up to one. Terms that vary by less than a hundredth of
    the whole have a panel only where they are asked for, by ``features``, ``terms`` or ``axes``. With neighbours,
    panels are of columns: all terms move together.

    Parameters
    ----------
    model : fitted estimator
    features : columns to draw; None: all
    terms : names of terms to draw, as in ``model.terms``; None: all
    level : probability of the bands
    at : values of columns that are held, such as ``{"depth": 2.0}``
    n : points on each axis
    axes : as many matplotlib axes as panels, or None
    figure : an empty matplotlib figure for the panels, three in a line, where no axes are given; None makes one

    Returns
    -------
    array of axes

    Examples
    --------
    >>> import ggpm
    >>> X = np.random.default_rng(0).normal(size=(12, 2))
    >>> model = ggpm.GGPRegressor("gamma", optimizer=None).fit(X, np.exp(X[:, 0]))
    >>> [ax.get_xlabel() for ax in plot_effects(model, n=10)]
    ['x0', 'x1']
    """
    columns, inputs = model.fit_.columns, inputs_of(model)
    chosen = [feature_index(model, f) for f in (range(columns.count) if features is None else features)]
    panels, several = _panels(model, chosen, terms)
    if features is None and terms is None and axes is None:
        panels = _of_size(model, panels)
    if axes is None and figure is not None:
        across = min(len(panels), 3)
        axes = [figure.add_subplot(-(-len(panels) // across), across, k + 1) for k in range(len(panels))]
    elif axes is None:
        across = min(len(panels), MOST_ACROSS)
        down = -(-len(panels) // across)
        every = axes_for(None, nrows=down, ncols=across, figsize=(3.6 * across, 3.4 * down), squeeze=False).ravel()
        axes = every[: len(panels)]
        for ax in every[len(panels) :]:
            ax.remove()
    if len(axes) != len(panels):
        told = ", ".join(feature_name(model, j) + (f" of {term}" if several else "") for term, j in panels)
        raise ValueError(f"there are {len(panels)} panels ({told}); got {len(axes)} axes. Choose features or terms.")
    held = Held(model, at)
    centre = held.row()
    for ax, (term, j) in zip(axes, panels):
        labels = _labels(model, term if several else None, j)
        grid = (
            np.linspace(inputs[:, j].min(), inputs[:, j].max(), n) if labels is None else np.arange(float(len(labels)))
        )
        X = np.repeat(centre[None], len(grid), axis=0)
        X[:, j] = grid if labels is None else [code for code, _ in labels]
        if several and term is not None:
            predictive = model.predict_effect(term, X, centre)
        else:
            predictive = predictive_of(model, named_rows(model, X))
        _draw(ax, model, grid, predictive.mean(), predictive.mean_interval(level), labels is not None)
        ax.set_ylabel(target_name(model, "mean of y"))
        name_axis(ax.xaxis, model, j)
        held.tell(ax, j, below=plain_text(f"term {term}") if several and term is not None else "")
        if labels is not None:
            label_ticks(ax, grid, [label for _, label in labels])
    return axes


def _panels(model: Any, chosen: list[int], terms: list[str] | None) -> tuple[list[tuple[str | None, int]], bool]:
    """Terms and columns to draw, by columns; and whether there are several terms that vary."""
    if isinstance(model.posterior_, NeighboursPosterior):
        return [(None, j) for j in chosen], False
    looks = term_columns(model.posterior_)
    for name in terms or ():
        if name not in looks:
            raise ValueError(
                f"there is no term {name!r} that varies.{did_you_mean(name, looks)} There are {', '.join(looks)}."
            )
    panels: list[tuple[str | None, int]] = [
        (name, j) for j in chosen for name, mask in looks.items() if mask[j] and (terms is None or name in terms)
    ]
    if not panels:
        raise ValueError("no term of the kernel looks at these columns.")
    return panels, len(looks) > 1


def _of_size(model: Any, panels: list[tuple[str | None, int]]) -> list[tuple[str | None, int]]:
    """The panels of terms that matter; all where none does, or where it is not known."""
    if not isinstance(model.posterior_, DensePosterior | InducingPosterior):
        return panels
    shares = term_shares(model.posterior_, inputs_of(model))
    return [(term, j) for term, j in panels if term is None or np.max(shares[term]) > LEAST_SHARE] or panels


LEAST_SHARE = 1e-4  # of the variance over the training rows: a hundredth of the standard deviation


def _labels(model: Any, term: str | None, j: int) -> list[tuple[float, str]] | None:
    """Codes and labels that occur in a column of labels, or of numbers that are groups to the term (None: to some
    term); None for other columns."""
    if not label_columns(model)[j]:
        return None
    if term is not None and model.fit_.columns.kinds[j] == "number":
        groups = term_columns(model.posterior_, category_columns)
        if term not in groups or not groups[term][j]:
            return None
    return [(float(code), label_text(model, j, code)) for code in np.unique(inputs_of(model)[:, j])]


def _draw(ax: Any, model: Any, grid: Array, mean: Array, band: Array, points: bool) -> None:
    """Curves with bands, or points with bars where the axis has labels."""
    family, turns = model.family_, np.zeros(1)  # what is taken away from curves, each of which is drawn once for each
    if family.kind == "angles":
        period = family.support.period
        middle = np.unwrap(mean, period=period)
        width = np.mod(band[:, 1] - band[:, 0], period)
        below = np.mod(mean - band[:, 0], period)
        mean, band = middle, np.stack([middle - below, middle - below + width], axis=1)
        if np.ptp(band) <= period / 2:
            part_of_turn(ax, family)
        else:
            turns = turns_within(band.min(), band.max(), *whole_turn(ax, family), period)
    several = mean.reshape(len(mean), -1)
    band = band.reshape(len(mean), -1, 2)
    many = several.shape[1] > 1
    names = [plain_text(label) for label in getattr(model, "classes_", [])] or part_names(model, several.shape[1])
    for k in range(several.shape[1]):
        colour = COLOURS[k % len(COLOURS)] if many else MEAN
        label = (names[k] if len(names) == several.shape[1] else f"y{k}") if many else None
        for turn in turns:
            line, low, high = several[:, k] - turn, band[:, k, 0] - turn, band[:, k, 1] - turn
            if points:
                ax.errorbar(
                    grid, line, np.abs([low - line, high - line]), fmt="o", color=colour, capsize=3, label=label
                )
            else:
                fill = colour if many else BAND
                ax.fill_between(grid, low, high, color=fill, alpha=0.18 if many else 0.3, lw=0)
                ax.plot(grid, line, color=colour, lw=1.8, label=label)
    if many:
        legend_beside(ax)


def plot_map(
    model: Any,
    features: tuple[int | str, int | str] = (0, 1),
    quantity: str | Callable[[Any], Array] = "mean",
    *,
    at: Mapping[int | str, Any] | None = None,
    n: int = 60,
    ax: Any = None,
) -> Any:
    """A map of any quantity of the predictive distribution over two columns, others held as in `plot_effects`.

    Parameters
    ----------
    model : fitted estimator
    features : the columns on the axes
    quantity : name of a method of `Predictive` that gives one number per row, such as "mean" and "var", or a function
        of the predictive distribution, such as ``lambda p: p.probability(10, np.inf)``
    at : values of columns that are held, such as ``{"depth": 2.0}``
    n : points on each axis

    Examples
    --------
    >>> import ggpm
    >>> X = np.random.default_rng(0).normal(size=(12, 2))
    >>> model = ggpm.GGPRegressor("gamma", optimizer=None).fit(X, np.exp(X[:, 0]))
    >>> plot_map(model, quantity=lambda p: p.probability(1, 2), n=5).get_ylabel()
    'x1'
    """
    if model.n_features_in_ < 2:
        raise ValueError("a map needs two columns; this model has one. Try plot_effects.")
    ax = axes_for(ax, figsize=(5.6, 4.4))
    i, j = (feature_index(model, f) for f in features)
    inputs, held = inputs_of(model), Held(model, at)
    a, b = (np.linspace(*padded(inputs[:, k].min(), inputs[:, k].max()), n) for k in (i, j))
    X = held.rows({i: np.tile(a, n), j: np.repeat(b, n)})
    predictive = predictive_of(model, named_rows(model, X))
    values = np.asarray(quantity(predictive) if callable(quantity) else getattr(predictive, quantity)())
    if values.shape != (n * n,):
        raise ValueError(
            f"quantity must give one number per row; got shape {values.shape}. Choose a part, such as lambda p: "
            "p.mean()[:, 0]."
        )
    cyclic = quantity == "mean" and model.family_.kind == "angles"
    image = ax.pcolormesh(a, b, values.reshape(n, n), cmap="twilight" if cyclic else "viridis", shading="auto")
    label = quantity if isinstance(quantity, str) else getattr(quantity, "__name__", "quantity")
    ax.figure.colorbar(image, ax=ax, label=label if label != "<lambda>" else target_name(model, "quantity"))
    ax.plot(inputs[:, i], inputs[:, j], "o", color=POINTS, mec="white", mew=0.5, ms=3.4)
    name_axis(ax.xaxis, model, i)
    name_axis(ax.yaxis, model, j)
    held.tell(ax, i, j)
    return ax
