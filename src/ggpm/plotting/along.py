"""The column along an axis: a line through its range, or the labels that occur in it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ggpm.plotting._common import Array, Held, inputs_of, label_columns, label_text, named_rows, padded
from ggpm.plotting.times import name_axis

BAR = 0.8  # width that belongs to a label, of the distance of two
SCATTER = 0.4  # of that width to either side, over which the points of a label are spread
LONGEST = 24  # letters of a label at its tick
LETTERS = 12.0  # of labels beside each other, per inch of the axis; more stand upright


@dataclass(frozen=True)
class Along:
    """Places on an axis, the rows that belong to them, and the codes of labels where the column has labels.

    >>> from ggpm import GGPRegressor
    >>> X = np.arange(6.0)[:, None]
    >>> model = GGPRegressor("gaussian", optimizer=None).fit(X, X[:, 0])
    >>> Along.of(model, 0, Held(model), 3).places
    array([0. , 2.5, 5. ])
    """

    model: Any
    feature: int
    places: Array
    X: Any
    codes: Array | None = None

    @classmethod
    def of(
        cls, model: Any, feature: int, held: Held, n: int, limits: tuple[Any, Any] | None = None, points: Any = None
    ) -> Along:
        """The labels that occur, those of the points included; else n values over the range, or between limits."""
        seen = np.concatenate([inputs_of(model)[:, feature]] + ([] if points is None else [points[0][:, feature]]))
        columns = model.fit_.columns
        if limits is None and label_columns(model)[feature]:
            codes = np.unique(seen)
            X = named_rows(model, held.rows({feature: codes}))
            return cls(model, feature, np.arange(float(len(codes))), X, codes)
        if limits is None:
            limits = seen.min(), seen.max()
        elif columns.kinds[feature] in ("time", "duration") and not isinstance(limits[0], float | int):
            limits = columns.code(feature, limits[0]), columns.code(feature, limits[1])
        grid = np.linspace(*limits, n)
        return cls(model, feature, grid, named_rows(model, held.rows({feature: grid})))

    @property
    def labels(self) -> list[str] | None:
        """Labels as text; None for a line."""
        return None if self.codes is None else [label_text(self.model, self.feature, code) for code in self.codes]

    @property
    def ends(self) -> tuple[float, float]:
        """Limits of the axis, within which points at the ends are drawn whole."""
        if self.codes is None:
            return padded(self.places[0], self.places[-1])
        return -0.5, len(self.codes) - 0.5

    def within(self, points: Any) -> Any:
        """Points that lie on the axis, so that none is drawn beyond it; None for none."""
        if points is None or self.codes is not None:
            return points
        x = points[0][:, self.feature]
        inside = (x >= self.places[0]) & (x <= self.places[-1])
        return points[0][inside], points[1][inside]

    def place(self, points: Any) -> Array:
        """Where points belong on the axis."""
        x = points[0][:, self.feature]
        return x if self.codes is None else np.searchsorted(self.codes, x).astype(float)

    def spread(self, points: Any) -> Array:
        """Where points are drawn: those of a label beside each other, always in the same way."""
        x = self.place(points)
        return x if self.codes is None else x + BAR * np.random.default_rng(0).uniform(-SCATTER, SCATTER, len(x))

    def line(
        self, ax: Any, mean: Array, low: Array, high: Array, *, color: str, fill: str, alpha: float,
        label: str | None = None, band: str | None = None, step: bool = False,
    ) -> None:  # fmt: skip
        """A mean with its band; over labels, points with bars.

        ``fill`` and ``alpha`` are of the band, ``label`` and ``band`` names in the legend of the mean and of the band;
        ``step`` says that the band belongs to whole numbers.
        """
        if self.codes is None:
            edges = "mid" if step else None
            ax.fill_between(self.places, low, high, color=fill, alpha=alpha, lw=0, step=edges, label=band)
            ax.plot(self.places, mean, color=color, lw=1.8, label=label)
        else:
            ax.vlines(self.places, low, high, color=fill, lw=5.0, alpha=max(alpha, 0.4), zorder=1.5, label=band)
            ax.plot(self.places, mean, "o", color=color, ms=6, mec="white", mew=0.8, label=label, zorder=3)

    def finish(self, ax: Any) -> None:
        """Limits, name and ticks of the horizontal axis."""
        ax.set_xlim(self.ends)
        name_axis(ax.xaxis, self.model, self.feature)
        if (labels := self.labels) is not None:
            label_ticks(ax, self.places, labels)


def label_ticks(ax: Any, places: Array, labels: Sequence[str]) -> None:
    """Labels at their places, upright where there is no room for them beside each other."""
    width = ax.get_position().width * ax.figure.get_figwidth()
    labels = [label if len(label) <= LONGEST else label[: LONGEST - 1] + "…" for label in labels]
    crowded = len(labels) * (max(map(len, labels)) + 1) > LETTERS * width
    ax.set_xticks(places, labels, rotation=90 if crowded else 0)
