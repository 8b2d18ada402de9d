"""Calibration: coverage, probability integral transforms and proper scores on new data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data import frames
from ggpm.data.checks import as_weight, check_level
from ggpm.data.gaps import rows_with_y
from ggpm.data.text import see
from ggpm.prediction.bounds import bounds_of, transforms_within
from ggpm.prediction.kinds import kind_of
from ggpm.prediction.predictive import Predictive

__all__ = ["Calibration", "calibration"]

Array = NDArray[np.float64]

LEVELS = (0.5, 0.8, 0.9, 0.95)  # of the regions whose coverage is reported, if not told


@dataclass(frozen=True)
class Calibration:
    """Result of `calibration`; `frame` has the numbers, `plot` draws coverage and the PIT histogram."""

    levels: tuple[float, ...]
    coverage: tuple[float, ...]
    """Share of y within credible regions of each level."""
    pit: Array
    """Probability integral transforms, (m,) or (m, d), randomised for discrete y; uniform if the model is right."""
    log_loss: float
    """Minus the mean log predictive density."""
    brier: float
    """Mean squared distance of the probabilities from the indicator of what happened; nan if y is not a class."""
    crps: float
    """Continuous ranked probability score: circular, in radians, for angles; the energy score for vectors; nan for
    classes."""
    n: float
    """Number of rows, or the sum of their weights."""
    weight: Array | None = None
    """Of the transforms, where rows have weights: those that are drawn are then several for a row that counts often."""

    @property
    def frame(self) -> Any:
        """One row per measure: its name, value, what it would be if the model were right, and a standard error."""
        pandas = frames.require("pandas")
        rows = [
            (f"coverage {level:.0%}", found, level, float(np.sqrt(level * (1 - level) / self.n)))
            for level, found in zip(self.levels, self.coverage)
        ]
        mean = average(self.pit, self.weight)
        rows.append(("PIT mean", mean, 0.5, float(np.sqrt(1 / 12 / self.n))))
        variance = average((self.pit - mean) ** 2, self.weight)
        rows.append(("PIT variance", variance, 1 / 12, float(np.sqrt(1 / 180 / self.n))))
        for name in ("log_loss", "brier", "crps"):
            if np.isfinite(getattr(self, name)):
                rows.append((name, getattr(self, name), np.nan, np.nan))
        return pandas.DataFrame(rows, columns=["measure", "value", "ideal", "standard_error"]).set_index("measure")

    def _repr_html_(self) -> str:
        """For notebooks: the table of measures."""
        table = self.frame.to_html(float_format="{:.4g}".format, na_rep="")
        more = see("inference", "what it means")
        return f"<p>Calibration on {self.n:.10g} rows; <code>.plot()</code> draws it; {more}.</p>{table}"

    def pit_histogram(self, bins: int = 10) -> Array:
        """Share of the transforms in each of ``bins`` equal bins, times the number of bins: all 1 if right."""
        flat = self.pit.reshape(len(self.pit), -1)
        each = np.ones(len(flat)) if self.weight is None else self.weight
        each = np.repeat(each / each.sum(), flat.shape[1]) / flat.shape[1]
        return np.histogram(flat.ravel(), bins=bins, range=(0.0, 1.0), weights=each)[0] * bins

    def plot(self, axes: Any = None, bins: int = 10) -> Any:
        """Observed against promised coverage, and the PIT histogram, on two axes."""
        if axes is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise ImportError("pictures need matplotlib. Try: pip install ggpm[plot]") from None
            axes = plt.subplots(1, 2, figsize=(8, 3.6))[1]
        left, right = axes
        left.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--")
        error = [2 * np.sqrt(p * (1 - p) / self.n) for p in self.levels]
        left.errorbar(self.levels, self.coverage, error, fmt="o", capsize=3)
        left.set(xlim=(0, 1), ylim=(0, 1), xlabel="promised coverage", ylabel="observed coverage")
        right.bar((np.arange(bins) + 0.5) / bins, self.pit_histogram(bins), 1 / bins, edgecolor="white")
        right.axhline(1.0, color="0.6", lw=1, ls="--")
        right.set(xlim=(0, 1), xlabel="probability integral transform", ylabel="density")
        return axes


def calibration(
    model: Any, X: Any, y: Any, *, offset: Any = None, sample_weight: Any = None, levels: Sequence[float] = LEVELS,
    random_state: Any = 0,
) -> Calibration:  # fmt: skip
    """Calibration report of a fitted model on data that it has not seen.

    Parameters
    ----------
    model : fitted estimator of ggpm
    X, y : new inputs and outputs; rows whose y is missing are left out, with a warning
    offset : as in `predict_dist`
    sample_weight : as in `fit`: how many times each row counts
    levels : levels of the credible regions
    random_state : of the randomisation of discrete transforms

    Returns
    -------
    Calibration
        ``coverage`` at the levels: central intervals of ordered outputs (per part for vectors), shortest arcs,
        smallest sets of classes, highest-density regions elsewhere; ``pit``; ``log_loss``, ``brier``, ``crps``; all
        in ``frame``, and as a picture in ``plot()``. Of rows of which only bounds are known (`ggpm.families.Censored`)
        transforms are drawn between those of the bounds, and coverage is that of the transforms; there is no CRPS.

    Examples
    --------
    >>> from ggpm import GGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 5, (80, 1))
    >>> y = rng.poisson(np.exp(np.sin(X[:, 0])))
    >>> report = calibration(GGPRegressor("poisson").fit(X[:50], y[:50]), X[50:], y[50:])
    >>> bool(0.7 < report.coverage[2] <= 1.0)
    True
    """
    for level in levels:
        check_level(level, "every one of levels")
    X, y, offset, sample_weight = rows_with_y(X, y, offset, sample_weight)
    weight = None if sample_weight is None else as_weight(sample_weight, len(y))
    bounds = bounds_of(model, y)
    if bounds is not None:
        predictive, rows = model.predict_dist(X, offset=offset), copies(weight, len(bounds))
        pit = transforms_within(predictive.rows(rows), bounds[rows], random_state)
        density = model.log_predictive_density(X, y, offset=offset)
        brier = crps = np.full(len(density), np.nan)
        share, held = shares(weight, rows), lambda level: np.abs(2.0 * pit - 1.0) <= level
    else:
        predictive, codes, encoded = _predictive_at(model, X, y, offset)
        kind, density = kind_of(predictive.family), predictive.log_prob(codes)
        brier, crps = kind.scores(predictive, encoded)
        rows = copies(weight, len(encoded)) if _drawn(predictive) else np.arange(len(encoded))
        some, share = predictive.rows(rows), shares(weight, rows)
        pit, depth = kind.transforms(some, codes[rows], encoded[rows], random_state)
        held = lambda level: kind.inside(some, encoded[rows], depth, level)  # noqa: E731
    return Calibration(
        levels=tuple(levels),
        coverage=tuple(average(held(level), share) for level in levels),
        pit=pit,
        log_loss=-average(density, weight),
        brier=average(brier, weight),
        crps=average(crps, weight),
        n=len(density) if weight is None else float(weight.sum()),
        weight=share,
    )


MOST_COPIES = 1000  # of one row: their transforms are then spread over its step as evenly as can be seen


def copies(weight: Array | None, n: int) -> NDArray[np.intp]:
    """Rows to draw transforms of, as often as a row counts: a single draw of a row that counts often would decide all.

    >>> copies(np.array([2.0, 0.0, 0.5]), 3)
    array([0, 0, 2])
    """
    if weight is None:
        return np.arange(n)
    return np.repeat(np.arange(n), np.minimum(np.ceil(weight), MOST_COPIES).astype(int))


def shares(weight: Array | None, rows: NDArray[np.intp]) -> Array | None:
    """Weights of copies, which share that of their row."""
    if weight is None:
        return None
    return weight[rows] / np.bincount(rows, minlength=len(weight))[rows]


def _drawn(p: Predictive) -> bool:
    """Whether transforms are drawn, because outputs have probabilities of their own."""
    return bool(p.family.finite or p.family.support.integer or p.family.support.atoms)


def average(values: NDArray, weight: Array | None) -> float:
    """Mean over rows, and over their entries, (m, ...); rows may have weights.

    >>> average(np.array([1.0, 4.0]), np.array([2.0, 1.0]))
    2.0
    """
    if weight is None:
        return float(np.mean(values))
    return float(np.average(np.reshape(values, (len(values), -1)).mean(axis=1), weights=weight))


def coverage_depth(
    model: Any, X: Any, y: Any, *, offset: Any = None, rows: NDArray[np.intp] | None = None, random_state: Any = 0
) -> Array:
    """The level of the smallest credible region that contains each y, (m,); uniform if the model is right.

    Regions are central intervals of ordered outputs, and else those of highest density. Vectors and compositions have
    one region, not one per part as in `calibration`. ``rows`` chooses some, which may be there several times, among
    those that have a y.

    Examples
    --------
    >>> import ggpm
    >>> x = np.arange(12.0)
    >>> model = ggpm.GGPRegressor("gamma", optimizer=None).fit(x[:, None], x + 1)
    >>> bool(np.all(coverage_depth(model, x[:, None], x + 1) < 1))
    True
    """
    X, y, offset = rows_with_y(X, y, offset)
    bounds = bounds_of(model, y)
    if bounds is not None:
        rows = np.arange(len(bounds)) if rows is None else rows
        pit = transforms_within(model.predict_dist(X, offset=offset).rows(rows), bounds[rows], random_state)
        return np.abs(2.0 * pit - 1.0)
    predictive, codes, encoded = _predictive_at(model, X, y, offset)
    rows = np.arange(len(encoded)) if rows is None else rows
    return kind_of(predictive.family).depth(predictive.rows(rows), codes[rows], encoded[rows], random_state)


def _predictive_at(model: Any, X: Any, y: Any, offset: Any) -> tuple[Predictive, Any, Array]:
    """The predictive distribution of y, out of as many trials as it has, and y in the family's two forms."""
    codes, family = model.codes(y), model.family_
    encoded = family.encode(codes)
    trials = encoded.sum(axis=-1) if family.countable else None
    predictive = model.predict_dist(X, offset=offset, trials=trials)
    if len(predictive) != len(encoded):
        raise ValueError(f"X has {len(predictive)} rows, y {len(encoded)}.")
    return predictive, codes, encoded
