"""Pictures of a report as inline SVG, in ink that follows the page from light to dark."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm import plotting
from ggpm.kernels import used_columns
from ggpm.plotting.evidence import is_logarithm
from ggpm.plotting.style import COLOURS, MEAN, POINTS
from ggpm.plotting.ternary import closed, frame, project
from ggpm.prediction.calibration import calibration

INK = "#010203"  # stands for the colour of text, which the page decides; nothing else is drawn in it
THEMED = {INK: "currentColor", POINTS: "currentColor", MEAN: "var(--mean)"}
MOST_POINTS = 1500  # observations that are drawn: more would only make the file larger
MOST_EFFECTS = 6  # columns whose effects are drawn
# training rows up to which the evidence is drawn, curves of it, and points of each: 54 evaluations at most
EVIDENCE_ROWS, MOST_CURVES, CURVE_POINTS = 1000, 6, 9
STYLE: dict[Any, Any] = {
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.titlecolor": INK, "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10,
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """A picture and what it shows, in words, for those who cannot see it."""

    section: str
    caption: str
    svg: str


def draw(
    model: Any, X: Any, y: Any, *, offset: Any, level: float, hyperparameters: list[dict[str, Any]]
) -> list[Picture]:
    """All pictures of a model, its hyperparameters as in the report's table, and of rows that it has not seen."""
    import matplotlib
    from matplotlib.figure import Figure

    kind = model.family_.kind
    out = []
    with matplotlib.rc_context(STYLE):
        for section, caption, paint in (
            ("data", _caption_of_data(model), lambda fig: DATA.get(kind, _histogram)(fig, model, y)),
            ("evidence", "Log evidence of the training rows as one hyperparameter moves and the others stay. Dashed: "
             "what was learned; shaded: its 90 % interval, wider than the curve where others can make up for it.",
             lambda fig: _evidence(fig, model, hyperparameters)),
            ("predictions", "Predictions along the first column (classes: the first two), and training rows.",
             lambda fig: _fan(fig, model)),
            ("effects", "Mean of y as one column varies, with credible bands; other columns at their medians, labels "
             "at the one that occurs most often. Terms that hardly vary are left out.",
             lambda fig: _effects(fig, model, level)),
            ("trust", "Coverage promised and found, and the histogram of probability integral transforms: on the "
             "diagonal and flat if the model is right.", lambda fig: _calibration(fig, model, X, y, offset)),
        ):  # fmt: skip
            figure = Figure(figsize=(7.4, 3.6), layout="constrained")
            if paint(figure):
                out.append(Picture(section, caption, _svg(figure, section)))
    return out


def _svg(figure: Any, salt: str) -> str:
    """The figure as an element of a page: no declaration, no background, names that no other picture has."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for ink, themed in THEMED.items():
        text = text.replace(ink.lower(), themed).replace(ink, themed)
    # a page has every identifier once: those that the picture refers to get its name, the others go
    used = set(re.findall(r"""(?:url\(#|href="#)([^)"]+)""", text))
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{salt}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r"""(url\(#|href="#)""", rf"\g<1>{salt}-", text)
    return text.replace("<svg ", '<svg role="presentation" focusable="false" ', 1)


# ---- the data ------------------------------------------------------------------------------------------------------
def _caption_of_data(model: Any) -> str:
    shown = {"angles": "a rose of directions", "compositions": "compositions", "classes": "how often each label occurs"}
    return f"Held-out outputs: {shown.get(model.family_.kind, 'their distribution')}."


def _thinned(values: NDArray) -> NDArray:
    return values if len(values) <= MOST_POINTS else values[:: -(-len(values) // MOST_POINTS)]


def _rose(figure: Any, model: Any, y: Any) -> bool:
    support = model.family_.support
    radians = np.asarray(y, dtype=float).ravel() * 2 * np.pi / support.period
    ax = figure.add_subplot(projection="polar")
    ax.set_theta_zero_location("N")
    ax.set_theta_direction(-1)
    counts, edges = np.histogram(np.mod(radians, 2 * np.pi), bins=24, range=(0, 2 * np.pi))
    # areas, not radii, are what the eye compares
    ax.bar(edges[:-1], np.sqrt(counts), width=np.diff(edges), align="edge", color=COLOURS[0], alpha=0.75, ec="white")
    ax.set_yticks([])
    ticks = np.arange(8)
    start = model.family_.decode_start() or 0.0
    labels = [f"{start + np.mod(k * support.period / 8 - start, support.period):.3g}" for k in ticks]
    ax.set_xticks(ticks * np.pi / 4, labels)
    return True


def _composition(figure: Any, model: Any, y: Any) -> bool:
    parts = closed(np.asarray(y, dtype=float))
    if parts.shape[1] != 3 or not np.all(np.isfinite(parts)):
        return _histogram(figure, model, y)
    ax = figure.add_subplot()
    frame(ax, [str(name) for name in model.target_names_ or ("part 0", "part 1", "part 2")])
    ax.plot(*project(_thinned(parts)).T, ".", color=COLOURS[0], ms=4, alpha=0.6)
    return True


def _labels(figure: Any, model: Any, y: Any) -> bool:
    classes = getattr(model, "classes_", None)
    labels = np.unique(np.asarray(y)) if classes is None else classes
    counts = [int(np.sum(np.asarray(y) == label)) for label in labels]
    ax = figure.add_subplot()
    ax.barh(np.arange(len(labels)), counts, color=COLOURS[0], alpha=0.75)
    ax.set_yticks(np.arange(len(labels)), [_short(label) for label in labels])
    ax.invert_yaxis()
    ax.set_xlabel("rows")
    return True


def _short(label: Any) -> str:
    """A label that does not push the axes away, and means nothing to matplotlib's own typesetting."""
    text = str(label)
    return (text if len(text) <= 24 else text[:23] + "…").replace("$", r"\$")


def _histogram(figure: Any, model: Any, y: Any) -> bool:
    values = np.asarray(y, dtype=float)
    values = values.reshape(len(values), -1)
    ax = figure.add_subplot()
    names = [_short(name) for name in model.target_names_ or []]
    whole = model.family_.support.integer and np.nanmax(values) - np.nanmin(values) < 40
    bins: Any = np.arange(np.nanmin(values) - 0.5, np.nanmax(values) + 1.5) if whole else 30
    for j in range(min(values.shape[1], len(COLOURS))):
        found = values[np.isfinite(values[:, j]), j]
        label = names[j] if len(names) == values.shape[1] else f"y{j}"
        style: dict[str, Any] = {"alpha": 0.75} if values.shape[1] == 1 else {"histtype": "step", "lw": 1.6}
        ax.hist(found, bins, color=COLOURS[j], label=label, **style)
    ax.set(ylabel="rows", xlabel=names[0] if len(names) == 1 else "y")
    if values.shape[1] > 1:
        ax.legend(frameon=False, fontsize="small")
    return True


DATA: dict[str, Callable[[Any, Any, Any], bool]] = {
    "angles": _rose, "compositions": _composition, "classes": _labels,
}  # fmt: skip
"""Pictures of outputs by `Family.kind`, where they are not histograms."""


# ---- hyperparameters -----------------------------------------------------------------------------------------------
def _evidence(figure: Any, model: Any, hyperparameters: list[dict[str, Any]]) -> bool:
    """A curve for each of the first hyperparameters that were learned, where rows are at hand and not too many."""
    field = model.fit_.evidence.field
    free = [j for j, h in enumerate(hyperparameters) if h["lower"] != h["upper"]][:MOST_CURVES]
    if not free or model.optimizer is None or not hasattr(field, "y") or field.n_rows > EVIDENCE_ROWS:
        return False
    across = min(3, len(free))
    down = -(-len(free) // across)
    figure.set_size_inches(7.4, 2.3 * down)
    axes = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for ax, j in zip(axes, free):
        ends = hyperparameters[j]["interval"]
        sure = is_logarithm(model, j) and ends is not None and None not in ends and min(ends) > 0
        width = float(np.clip(0.75 * np.log(ends[1] / ends[0]), 0.1, 2.0)) if sure else 2.0
        with warnings.catch_warnings():  # far from the maximum modes may not be found: the curve has a gap there
            warnings.simplefilter("ignore")
            plotting.plot_evidence(model, j, None, width=width, n=CURVE_POINTS, ax=ax)
        if sure:
            reach = ax.get_xlim()
            ax.axvspan(*ends, color=COLOURS[0], alpha=0.15, lw=0)
            ax.set_xlim(reach)
        ax.set_xlabel(_tail(hyperparameters[j]["called"]))
        ax.set_ylabel("")
    axes[0].set_ylim(max(axes[0].get_ylim()[0], -10.0), 0.3)  # what is less probable by exp(10) is out of the question
    figure.supylabel("log evidence below\nits maximum", fontsize="medium")
    for ax in axes[len(free) :]:
        ax.remove()
    return True


def _tail(name: str) -> str:
    """A name that fits below a small picture: its end tells entries apart."""
    return name if len(name) <= 26 else "…" + name[-25:]


# ---- predictions, effects, trust -----------------------------------------------------------------------------------
def _fan(figure: Any, model: Any) -> bool:
    """The picture that suits the model; none where it would only be that of the evidence."""
    name = plotting.kind_of_picture(model)
    if name == "evidence":
        return False
    if name == "parts":
        panels = plotting.plot_parts(model, n=60, figure=figure)
        figure.set_size_inches(7.4, 2.6 * -(-len(panels) // 3))
        return True
    function = getattr(plotting, "plot_class_map" if name == "classes" else f"plot_{name}")
    function(model, ax=figure.add_subplot(), n=60)
    return True


def _effects(figure: Any, model: Any, level: float) -> bool:
    count = model.n_features_in_
    if count < 2 or model.family_.support.row_ndim == 2:
        return False
    if not used_columns(model.fit_.kernels, count)[:MOST_EFFECTS].any():
        return False
    chosen: list[int | str] | None = list(range(MOST_EFFECTS)) if count > MOST_EFFECTS else None
    axes = plotting.plot_effects(model, chosen, level=level, n=40, figure=figure)
    figure.set_size_inches(7.4, 2.6 * -(-len(axes) // 3))
    for ax in axes:  # where columns are held is in the caption, once
        terms = [line for line in ax.get_title().splitlines() if line.startswith("term ")]
        ax.set_title("\n".join(terms), fontsize="small")
    return True


def _calibration(figure: Any, model: Any, X: Any, y: Any, offset: Any) -> bool:
    calibration(model, X, y, offset=offset).plot(axes=figure.subplots(1, 2))
    return True
