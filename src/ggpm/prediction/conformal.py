"""Regions with guaranteed coverage: those of any model, moved until they hold enough of the rows it has not seen.

Whatever a model believes, the score of a new row ranks among those of n exchangeable calibration rows like any of
theirs. A region that keeps scores up to the ceil((n + 1) level)-th smallest therefore holds the new y with probability
of at least ``level`` (Vovk, Gammerman and Shafer 2005). The score is the predictive depth: the level of the smallest of
the model's own nested regions that holds y. Regions thus keep the model's shape, its skewness and its changing width,
and only their level is calibrated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from ggpm.data import frames
from ggpm.data.checks import as_array, as_groups, as_numbers, check_level, check_whole
from ggpm.data.gaps import rows_with_y
from ggpm.data.kinds import is_dask
from ggpm.families.base import Family
from ggpm.prediction.bounds import numbers_of
from ggpm.prediction.kinds import Angles
from ggpm.prediction.nested import Arcs, below_border, intervals_of, widest
from ggpm.prediction.predictive import Predictive

__all__ = ["Conformal", "ConformalPredictive", "conformal"]

Array = NDArray[np.float64]
METHODS = ("split", "jackknife+")


def conformal(
    model: Any,
    X_cal: Any,
    y_cal: Any,
    *,
    method: str = "split",
    groups: Any = None,
    folds: int | None = None,
    offset: Any = None,
    trials: Any = None,
) -> Conformal:
    """A model whose regions hold a new y with guaranteed probability, however wrong the model is.

    Calibration rows and new ones must be exchangeable: drawn alike, in no order that matters.

    Parameters
    ----------
    model : fitted estimator, or one to fit
        "split" needs a fitted one, "jackknife+" fits clones of it.
    X_cal, y_cal : rows to calibrate with
        "split": rows the model was not fitted to. "jackknife+": the rows to fit to. Those whose y is missing are left
        out, with a warning.
    method : "split" or "jackknife+"
        "split" guarantees ``level``. "jackknife+" (Barber, Candès, Ramdas and Tibshirani 2021) needs no rows of its
        own: every row is scored by a model fitted without it. It guarantees 2 ``level`` - 1; ``level`` is usual.
    groups : array (n,), optional
        Groups that are to have their coverage each ("split" only); `predict_dist` then takes ``groups`` too.
    folds : int, optional
        For "jackknife+", in how many parts rows are left out; as many as there are rows if not given.
    offset, trials : arrays (n,), optional
        Of the calibration rows; trials are the sums of y_cal if not given.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.utils import shuffle
    >>> from ggpm import GGPRegressor
    >>> X, y = shuffle(*load_diabetes(return_X_y=True), random_state=0)
    >>> model = GGPRegressor("gamma").fit(X[:80], y[:80])
    >>> sure = conformal(model, X[80:200], y[80:200])
    >>> dist = sure.predict_dist(X[200:])
    >>> dist.interval(0.9).shape
    (242, 2)
    >>> bool(abs(dist.contains(y[200:], 0.9).mean() - 0.9) < 0.06)
    True
    """
    if method not in METHODS:
        raise ValueError(f"method must be 'split' or 'jackknife+'; got {method!r}.")
    if not (hasattr(model, "predict_dist") and hasattr(model, "codes")):
        raise TypeError(
            f"model must be an estimator of ggpm, such as GGPRegressor; got {type(model).__name__}. Of a pipeline take "
            "the last step and the rows that it gets: conformal(pipe[-1], pipe[:-1].transform(X_cal), y_cal)."
        )
    if is_dask(X_cal) or is_dask(y_cal):
        raise TypeError("X_cal and y_cal must be in memory: a few hundred rows calibrate well. Try X_cal.compute().")
    y_cal = y_cal if frames.kind_of(y_cal) else as_array(y_cal, "y_cal")
    _check_rows(X_cal, y_cal)
    X_cal, y_cal, offset, trials, groups = rows_with_y(X_cal, y_cal, offset, trials, groups)
    n = len(y_cal)
    named = {"offset": offset, "trials": trials}
    given = {name: _of_rows(value, name, n) for name, value in named.items() if value is not None}
    if method == "split":
        if folds is not None:
            raise ValueError('folds belong to method="jackknife+": "split" takes a model that is fitted already.')
        label = None if groups is None else as_groups(groups, n, "X_cal")
        dist, y = _seen(model, X_cal, y_cal, given)
        return Conformal((model,), (dist,), (y,), label)
    if groups is not None:
        raise ValueError(
            'groups belong to method="split": rows of a group calibrate it, and jackknife+ has none to spare.'
        )
    check_whole(n if folds is None else folds, "the number of rows" if folds is None else "folds", 2)
    if folds is not None and folds > n:
        raise ValueError(f"folds must be as many as there are rows at most; got {folds} for {n} rows.")
    models, dists, ys = [], [], []
    for train, rest in KFold(n if folds is None else folds, shuffle=True, random_state=0).split(np.arange(n)):
        fitted = clone(model).fit(
            _safe_indexing(X_cal, train),
            _safe_indexing(y_cal, train),
            **{name: value[train] for name, value in given.items() if name == "offset"},
        )
        left_out = _safe_indexing(y_cal, rest)
        if hasattr(fitted, "classes_") and len(alone := np.setdiff1d(left_out, fitted.classes_)):
            raise ValueError(
                f"label {str(alone[0])!r} has rows in one fold alone, and the model without them does not know it. "
                "Every label needs two rows or more; without folds they are left out one by one."
            )
        dist, y = _seen(fitted, _safe_indexing(X_cal, rest), left_out, {k: v[rest] for k, v in given.items()})
        models.append(fitted)
        dists.append(dist)
        ys.append(y)
    return Conformal(tuple(models), tuple(dists), tuple(ys), None)


def _check_rows(X: Any, y: Any) -> None:
    """Raise ValueError unless X and y have the same calibration rows, one or more."""
    n = len(y) if np.ndim(y) else 0
    if n == 0 or _num_samples(X) != n:
        raise ValueError(f"X_cal and y_cal must have the same rows, one or more; got {_num_samples(X)} and {n}.")


def _of_rows(value: Any, name: str, n: int) -> Array:
    """One number for each of n rows, (n, ...); a single one is that of all."""
    out = as_numbers(value, name, "one number per row")
    if out.ndim and len(out) != n:
        raise ValueError(f"{name} must be one number, or one for each of the {n} rows; got shape {out.shape}.")
    return out if out.ndim else np.full(n, out)


def _seen(model: Any, X: Any, y: Any, given: dict[str, Array]) -> tuple[Predictive, Any]:
    """Predictions of calibration rows, and their y as `Predictive` takes it, checked."""
    y = numbers_of(model, y, "conformal")
    dist, codes = model.predict_dist(X, **given), _codes(model, y)
    encoded = dist._encode(codes)
    if not dist.family.countable:
        return dist, codes
    total = encoded.sum(axis=-1)
    if dist.trials is None:
        return model.predict_dist(X, **given, trials=total), codes
    if np.any(wrong := dist.trials != total):
        k = int(np.argmax(wrong))
        raise ValueError(f"trials must be the sums of y_cal; row {k} has {dist.trials[k]:g} and {total[k]:g}.")
    return dist, codes


def _codes(model: Any, y: Any) -> Any:
    """y as `Predictive` takes it: labels of classifiers as codes."""
    return model.codes(y) if hasattr(model, "codes") else y


@dataclass(frozen=True, repr=False)
class Conformal:
    """Result of `conformal`: ``predict_dist(X)`` has ``interval(level)`` and ``contains(y, level)``.

    >>> from ggpm import GGPRegressor
    >>> X = np.arange(20.0)[:, None]
    >>> model = GGPRegressor("poisson").fit(X[::2], np.arange(0, 20, 2))
    >>> sure = conformal(model, X[1::2], np.arange(1, 20, 2))
    >>> sure.guarantee(0.9)
    0.9
    >>> sure
    Conformal: split, 10 calibration rows; regions of level 0.9 hold a new y with probability 0.9 at least
    """

    models: tuple[Any, ...]
    """The model, or those of the folds."""
    dists: tuple[Predictive, ...]
    """Predictions of the calibration rows by models that have not seen them."""
    ys: tuple[Any, ...]
    groups: NDArray | None

    def __repr__(self) -> str:
        how = "split" if len(self.models) == 1 else f"jackknife+ with {len(self.models)} models"
        usual = "" if len(self.models) == 1 else ", and with about 0.9 as a rule"
        groups = "" if self.groups is None else f" in {len(np.unique(self.groups))} groups, each by itself"
        return (
            f"Conformal: {how}, {self.n} calibration rows{groups}; regions of level 0.9 hold a new y with probability "
            f"{self.guarantee(0.9):.3g} at least{usual}"
        )

    @property
    def n(self) -> int:
        """Number of calibration rows."""
        return sum(len(dist) for dist in self.dists)

    def guarantee(self, level: float) -> float:
        """Coverage that is guaranteed for regions of the level: the level, or 2 level - 1 for jackknife+.

        With fewer folds than rows that bound is lower by at most min(2/(n/K + 1), 1/(K + 1)), the price of leaving
        out more than one row (same paper, theorem 4).
        """
        check_level(level, "level")
        K, n = len(self.models), self.n
        if K == 1:
            return level
        less = min(2.0 * (1.0 - 1.0 / K) / (n / K + 1.0), (1.0 - K / n) / (K + 1.0)) if n > K else 0.0
        return max(0.0, 2.0 * level - 1.0 - less)

    def predict(self, X: Any, **given: Any) -> Any:
        """Predictions of the model itself; calibration changes regions alone."""
        if len(self.models) > 1:
            raise ValueError(
                "jackknife+ has one model for each fold and no prediction of its own: fit the model itself."
            )
        return self.models[0].predict(X, **given)

    def predict_dist(self, X: Any, *, groups: Any = None, **given: Any) -> ConformalPredictive:
        """Regions at the rows of X; ``offset`` and ``trials`` as in the model's own ``predict_dist``."""
        if (groups is None) != (self.groups is None):
            raise ValueError(
                "groups must be given: regions were calibrated for each group."
                if groups is None
                else "groups were not given when regions were calibrated: conformal(model, X_cal, y_cal, groups=...)."
            )
        dists = tuple(model.predict_dist(X, **given) for model in self.models)
        label = None if groups is None else as_groups(groups, len(dists[0]), "X")
        return ConformalPredictive(self, dists, label)

    def scores(self, score: Callable[[Predictive, Any], Array]) -> Array:
        """Scores of the calibration rows, fold after fold."""
        return np.concatenate([score(dist, y) for dist, y in zip(self.dists, self.ys)])


@dataclass(frozen=True)
class ConformalPredictive:
    """Predictions whose regions have guaranteed coverage.

    >>> from ggpm import GGPRegressor
    >>> X = np.arange(40.0)[:, None]
    >>> model = GGPRegressor("poisson").fit(X[::2], np.arange(0, 40, 2))
    >>> conformal(model, X[1::2], np.arange(1, 40, 2)).predict_dist(X[11:13]).contains([11, 200])
    array([ True, False])
    """

    calibrated: Conformal
    dists: tuple[Predictive, ...]
    """Predictions of the model, or of those of the folds."""
    groups: NDArray | None
    family: Family = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", self.dists[0].family)

    def __len__(self) -> int:
        return len(self.dists[0])

    def contains(self, y: Any, level: float = 0.9) -> NDArray[np.bool_]:
        """Tell whether each y lies in its row's region, (m,).

        The region of numbers, angles and classes is that of `interval`; that of vectors, directions and matrices a
        region of high density.
        """
        check_level(level, "level")
        regions = intervals_of(self.family)
        y = _codes(self.calibrated.models[0], y)
        if regions is None or (
            self.dists[0].mean().ndim > 1 and not (self.family.finite or self.family.kind == "shares")
        ):
            score = lambda p, y: below_border(p, y, level)  # noqa: E731
        else:
            score = regions.score
        return self._keep(score, [y] * len(self.dists), level)

    def interval(self, level: float = 0.9) -> NDArray:
        """Intervals (m, 2), arcs about the mean direction (m, 2), sets of classes or grades, boolean (m, d).

        Of vectors every entry has its interval, (m, d, 2), which holds that entry with the guaranteed probability;
        `contains` is about all of them together.
        """
        check_level(level, "level")
        regions = intervals_of(self.family)
        if regions is None:
            raise ValueError(
                f"regions of {type(self.family).__name__} outputs are no intervals; try contains(y, level)."
            )
        if len(self.dists) == 1:
            return regions.region(self.dists[0], self._cuts(self.calibrated.scores(regions.score), level))
        if self.family.finite:
            codes = range(self.dists[0].probabilities().shape[1])
            whole = [np.full(len(self), code) for code in codes]
            return np.stack([self._keep(regions.score, [c] * len(self.dists), level) for c in whole], axis=1)
        return self._ends(regions, level)

    def _cuts(self, scores: Array, level: float) -> Array:
        """For each new row the score up to which its region goes, in its group; infinite where rows are too few."""
        known = self.calibrated.groups
        if known is None or self.groups is None:
            return np.broadcast_to(_rank(scores, level), (len(self), *scores.shape[1:]))
        out = np.full((len(self), *scores.shape[1:]), np.inf)  # a group without calibration rows can promise nothing
        for label in np.unique(self.groups):
            if np.any(known == label):
                out[self.groups == label] = _rank(scores[known == label], level)
        return out

    def _keep(self, score: Callable[[Predictive, Any], Array], ys: Sequence[Any], level: float) -> NDArray[np.bool_]:
        scores = self.calibrated.scores(score)
        if len(self.dists) == 1:
            return score(self.dists[0], ys[0]) <= self._cuts(scores, level)
        # jackknife+: y stays unless it is stranger to the model of its fold than too many of the rows left out there
        stranger, start = np.zeros(len(self)), 0
        for dist, y, left_out in zip(self.dists, ys, self.calibrated.dists):
            own = score(dist, y)
            stranger += np.sum(scores[start : start + len(left_out), None] < own, axis=0)
            start += len(left_out)
        return stranger < np.ceil(level * (self.calibrated.n + 1))

    def _ends(self, regions: Any, level: float) -> Array:
        """jackknife+: ends of the regions that every left out row's score gives in its fold's model, ranked."""
        scores, start, parts = self.calibrated.scores(regions.score), 0, []
        for dist, left_out in zip(self.dists, self.calibrated.dists):
            for cut in scores[start : start + len(left_out)]:
                parts.append(regions.region(dist, np.broadcast_to(cut, (len(self), *scores.shape[1:]))))
            start += len(left_out)
        ends = np.stack(parts)
        rank = int(np.ceil(level * (self.calibrated.n + 1)))
        if isinstance(regions, Arcs):
            return _joined_arcs(ends, rank, Angles.circle(self.dists[0]).period)
        whole = list(widest(self.family))
        if rank > len(ends):
            return np.broadcast_to(np.array(whole, dtype=float), ends.shape[1:]).copy()
        ends = np.sort(ends, axis=0)
        return np.stack([ends[len(ends) - rank, ..., 0], ends[rank - 1, ..., 1]], axis=-1)


def _rank(scores: Array, level: float) -> Array:
    """The ceil((n + 1) level)-th smallest score; infinite where there are not so many."""
    rank = int(np.ceil(level * (len(scores) + 1) - 1e-9))
    return np.sort(scores, axis=0)[rank - 1] if rank <= len(scores) else np.full(scores.shape[1:], np.inf)


def _joined_arcs(ends: Array, rank: int, period: float) -> Array:
    """Arcs from ranked ends, measured from the middle of the first one; a whole turn where they go round."""
    width = ends[..., 1] - ends[..., 0]
    width = np.where(width == period, period, np.mod(width, period))
    middle = ends[..., 0] + 0.5 * width
    away = np.mod(middle - middle[0] + 0.5 * period, period) - 0.5 * period
    if rank > len(ends):
        low, high = np.full((2, *middle[0].shape), [[-0.5 * period], [0.5 * period]])
    else:
        low = np.sort(away - 0.5 * width, axis=0)[len(ends) - rank]
        high = np.sort(away + 0.5 * width, axis=0)[rank - 1]
    start = np.mod(middle[0] + low, period)
    return np.stack([start, np.where(high - low >= period, start + period, np.mod(middle[0] + high, period))], axis=-1)
