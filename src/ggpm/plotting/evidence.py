"""The evidence around what was learned: a curve along one hyperparameter, or a map over two."""

from __future__ import annotations

import copy
import heapq
import itertools
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from ggpm.kernels import idle
from ggpm.learning.information import has_logarithms
from ggpm.plotting._common import axes_for
from ggpm.plotting.style import MEAN
from ggpm.prediction.description import hyperparameter_names, readable_names
from ggpm.sites import Rule, Variational

Array = NDArray[np.float64]

DEEP = 20.0  # nats below the maximum: what lies deeper is out of the question, and costs most to evaluate
LEVELS = np.array([0, 0.5, 1, 2, 3, 5, 10, DEEP])  # finer near the top
# Tolerance of variational sites: the bound is stationary in them, so that it is known to the square of this. With
# coarse expectations it was within 0.03 nats (100 angles, 167 rows of three classes) for a tenth of the time.
ROUGH_TOL = 1e-2
SMALL_VARIANCE = 1.01e-5  # scikit-learn's lower bound of variances, or lower
FINER = 8  # points drawn for each that is computed


def plot_evidence(
    model: Any, first: int | None = None, second: int | Literal["auto"] | None = "auto", *,
    width: float = 2.0, n: int = 9, ax: Any = None,
) -> Any:  # fmt: skip
    """Log evidence over one or two entries of ``theta_``, the others held: a curve, or a map with contours.

    Every point starts from the posterior of its neighbour, up to where the evidence is 20 nats below its maximum.
    Between points it is interpolated; that of variational posteriors is known to some hundredths of a nat.

    Parameters
    ----------
    first, second : int, optional
        Which entries of ``theta_`` (natural logarithms; the kernels' first, then the family's); ``second=None``: a
        curve along the first alone. Those that are not given are the first that were learned in parts of the kernel
        that have variance: what else is in a part is nothing that the evidence depends on.
    width : float
        How far to go to either side, in log units.
    n : int
        Points along an axis, at each of which the evidence is computed.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> x = np.arange(12.0)
    >>> model = ggpm.GGPRegressor("poisson", optimizer=None).fit(x[:, None], x)
    >>> axes = plot_evidence(model, n=4)
    >>> axes.get_title()
    'log evidence below its maximum'
    >>> plot_evidence(model, 0, None, n=5, ax=axes).get_ylabel()
    'log evidence below its maximum'
    """
    p = len(model.theta_)
    telling = [k for k in _telling_first(model) if k not in (first, second)]
    if first is None:
        first = telling.pop(0) if telling else 0
    if isinstance(second, str):
        if second != "auto":
            raise ValueError(f"second must be an entry of theta_, None or 'auto'; got {second!r}.")
        second = telling[0] if telling else None
    if not (0 <= first < p and first != second and (second is None or 0 <= second < p)):
        raise ValueError(
            f"first and second must be two different entries of theta_, which has {p}; got {first}, {second}."
        )
    offsets = np.linspace(-width, width, n)
    if second is None:
        return _curve(model, first, offsets, axes_for(ax, figsize=(4.6, 3.2)))
    return _map(model, first, second, offsets, axes_for(ax, figsize=(5.6, 4.6)))


def _telling_first(model: Any) -> list[int]:
    """Entries of theta that were learned: first those that the evidence depends on, and is highest inside bounds of."""
    evidence = model.fit_.evidence
    theta, (low, high) = evidence.theta, evidence.bounds.T
    # below such a bound the evidence is flat: a search ends near it as well as at it
    gone = (theta < low + np.log(10.0)) & ((np.exp(low) < SMALL_VARIANCE) | (model.kernel is None))
    own = np.cumsum([kernel.n_dims for kernel in evidence.kernels])
    rest = [idle(kernel, part) for kernel, part in zip(evidence.kernels, np.split(gone, own))]
    nothing = np.concatenate([*rest, np.zeros(theta.size - own[-1], dtype=bool)])
    at_bound = gone | np.isclose(theta, low) | np.isclose(theta, high)
    return sorted(np.flatnonzero(low < high).tolist(), key=lambda k: (nothing[k], at_bound[k], k))


def _curve(model: Any, first: int, offsets: Array, ax: Any) -> Any:
    values, reached = evidence_around(model, (first,), offsets)
    by, heights = _finer(offsets[reached], values[reached] - np.nanmax(values))
    ax.plot(_values(model, first, by), heights, "-", color=MEAN, lw=1.8)
    ax.axvline(_values(model, first), color="0.35", lw=0.9, ls="--")
    ax.set_ylabel("log evidence below its maximum")
    _name(ax, "x", model, first)
    return ax


def _map(model: Any, first: int, second: int, offsets: Array, ax: Any) -> Any:
    import matplotlib.colors

    surface, reached = evidence_around(model, (second, first), offsets)
    drop = np.nanmax(surface) - surface
    drop[~reached] = np.nanmax(drop)  # these have deep neighbours alone: no contour runs among them
    by, drop = _finer(offsets, drop)
    x, y = _values(model, first, by), _values(model, second, by)
    shown = LEVELS[: max(4, np.searchsorted(LEVELS, np.nanmax(drop)) + 1)]
    ax.set_facecolor("0.92")
    norm = matplotlib.colors.BoundaryNorm(shown, 256, extend="max")
    filled = ax.contourf(x, y, drop, levels=shown, extend="max", cmap="viridis_r", norm=norm)
    ax.contour(x, y, drop, levels=shown[1:], colors="white", linewidths=0.6)
    ax.plot(_values(model, first), _values(model, second), "*", color="white", mec="black", ms=13)
    _name(ax, "x", model, first)
    _name(ax, "y", model, second)
    ax.set_title("log evidence below its maximum", fontsize="medium")
    ax.figure.colorbar(filled, ax=ax, ticks=shown)
    return ax


def is_logarithm(model: Any, k: int) -> bool:
    """Whether an entry of theta is the logarithm of a hyperparameter: those of kernels are, cut points are not."""
    return k < len(model.theta_) - model.family_.log_hyper.size or has_logarithms(model.family_)


def _values(model: Any, k: int, by: Any = 0.0) -> Any:
    """An entry of theta as it is drawn, off by these: the hyperparameter itself where it is a logarithm of one."""
    value = model.theta_[k] + by
    return np.exp(value) if is_logarithm(model, k) else value


def _name(ax: Any, axis: str, model: Any, k: int) -> None:
    """Name an axis, "x" or "y", after an entry of theta."""
    told = readable_names(model.fit_)
    name = (told + hyperparameter_names(model)[len(told) :])[k]
    if not is_logarithm(model, k):
        ax.set(**{f"{axis}label": f"theta_[{k}] ({name.partition(':')[0]})"})
        return
    ax.set(**{f"{axis}label": name, f"{axis}scale": "log"})
    _label_decades(getattr(ax, f"{axis}axis"))


def evidence_around(model: Any, which: Sequence[int], offsets: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Log evidence where entries of theta are off by these, an axis for each, and where it was asked for.

    The highest point so far goes on to its neighbours, which start from its posterior, until it is too deep. NaN stands
    where there is no posterior, and for what is deeper.
    """
    known = model.fit_.approximate()
    evidence = copy.copy(model.fit_.evidence)
    evidence.rule = _rough(evidence.rule)
    values = np.full((len(offsets),) * len(which), np.nan)
    reached = np.zeros(values.shape, dtype=bool)
    queue: list[tuple[float, tuple[int, ...], Any]] = []
    unsure = 0

    def visit(cell: tuple[int, ...], start: Any) -> None:
        nonlocal unsure
        reached[cell] = True
        theta = model.theta_.copy()
        theta[list(which)] += offsets[list(cell)]
        try:
            found = evidence.at(theta).infer(start)
        except np.linalg.LinAlgError:
            return
        if np.isfinite(found.log_evidence):
            values[cell], unsure = found.log_evidence, unsure + (not found.converged)
            heapq.heappush(queue, (-found.log_evidence, cell, found.start))

    visit((int(np.abs(offsets).argmin()),) * len(which), known.start)
    while queue and -queue[0][0] > np.nanmax(values) - DEEP:
        _, cell, start = heapq.heappop(queue)
        for step in itertools.product((-1, 0, 1), repeat=len(which)):
            other = tuple(int(i) for i in np.add(cell, step))
            if min(other) >= 0 and max(other) < len(offsets) and not reached[other]:
                visit(other, start)
    if unsure:
        warnings.warn(f"the posterior was not found to full precision at {unsure} points.", stacklevel=4)
    return values, reached


def _rough(rule: Rule) -> Rule:
    """The rule as precise as a picture needs it."""
    return replace(rule, tol=max(rule.tol, ROUGH_TOL), accuracy="coarse") if isinstance(rule, Variational) else rule


def _finer(offsets: Array, values: Array) -> tuple[Array, Array]:
    """Offsets and values along all axes with more points between them, none beyond its neighbours; gaps stay."""
    if len(offsets) < 2 or not np.all(np.isfinite(values)):
        return offsets, values
    fine = np.linspace(offsets[0], offsets[-1], FINER * (len(offsets) - 1) + 1)
    for axis in range(values.ndim):
        values = PchipInterpolator(offsets, values, axis=axis)(fine)
    return fine, values


def _label_decades(axis: Any) -> None:
    """Few labels: the standard ones of a decade or two run into each other."""
    import matplotlib.ticker

    axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")
