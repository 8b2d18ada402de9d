"""The kernel that a model has when none is given: made from what the columns hold and from how X is spread."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.gaussian_process import kernels as sk

from ggpm.data.columns import Columns
from ggpm.kernels.columns import Category, Cyclic, On

Array = NDArray[np.float64]

DAY, YEAR = 24.0, 8766.0  # hours
# A cycle is a part of its own where the times show it several times, and at several of its phases.
CYCLES_LEAST, PHASES_LEAST = {DAY: 3.0, YEAR: 2.0}, 4


def default_kernel(X: Array, columns: Columns, weight: Array | None = None, variance: float = 1.0) -> sk.Kernel:
    """Kernel for ``kernel=None``: parts for numbers together, for every time and for every category, and a constant.

    Numbers alone have ``ConstantKernel() * RBF() + ConstantKernel()`` with the `median_distance` of X as the length
    scale to start from; its default bounds (1e-5, 1e5) are kept while they leave three decades on either side of that,
    and otherwise moved along with it. A time has an RBF of its own, and a cycle of a day or a year where it shows
    several of them; a category has a level for each label. Constants start from ``variance``, with bounds in its unit.

    >>> X = np.array([[0.0, 0.0], [4000.0, 1.0], [8000.0, 1.0]])
    >>> default_kernel(X, Columns(2))
    1**2 * RBF(length_scale=4e+03) + 1**2
    >>> from ggpm.data.columns import Column
    >>> kinds = (Column("height"), Column("station", "category", ("a", "b")))
    >>> default_kernel(X, Columns(2, ("height", "station"), kinds))
    1**2 * On(RBF(length_scale=4e+03), ['height']) + 1**2 * Category('station') + 1**2
    """

    def constant() -> sk.ConstantKernel:
        return sk.ConstantKernel(variance, (1e-5 * variance, 1e5 * variance))

    if columns.plain:
        return constant() * _rbf(X, weight) + constant()
    name = list(range(columns.count)) if columns.names is None else list(columns.names)
    at: dict[str, list[int]] = {kind: [] for kind in ("number", "category", "time")}
    for j, kind in enumerate(columns.kinds):
        at[kind if kind in at else "number"].append(j)
    parts: list[sk.Kernel] = []
    if at["number"]:
        parts.append(On(_rbf(X[:, at["number"]], weight), [name[j] for j in at["number"]]))
    for j in at["time"]:
        parts.append(On(_rbf(X[:, [j]], weight), name[j]))
        parts += [On(Cyclic(period), name[j]) for period in cycles_of(X[:, j])]
    parts += [Category(name[j]) for j in at["category"]]
    return reduce(add, [constant() * part for part in parts]) + constant()


def _rbf(X: Array, weight: Array | None) -> sk.RBF:
    scale = median_distance(X, weight=weight)
    low, high = 1e-5, 1e5
    return sk.RBF(scale, (low, high) if low * 1e3 <= scale <= high * 1e-3 else (scale * low, scale * high))


def cycles_of(times: Array) -> list[float]:
    """A day and a year, in hours, where times go through several of them, and are at several places within them.

    >>> cycles_of(np.arange(0.0, 100.0))
    [24.0]
    """

    def shows(period: float) -> bool:
        phases = np.unique(np.floor(np.mod(times, period) * (24.0 / period)))
        return bool(np.ptp(times) >= CYCLES_LEAST[period] * period and len(phases) >= PHASES_LEAST)

    return [period for period in (DAY, YEAR) if shows(period)]


def shorter_starts(kernel: sk.Kernel, theta: Array) -> list[Array]:
    """For a default kernel, thetas that start from a fifth and a 25th of its first length scale.

    From the median distance alone the search can take fast variation for noise and end at a constant.

    >>> kernel = default_kernel(np.zeros((2, 1)), Columns(1))
    >>> [float(np.exp(t[1]).round(2)) for t in shorter_starts(kernel, kernel.theta)]
    [0.2, 0.04]
    """
    names = [h.name.rpartition("__")[2] for h in kernel.hyperparameters if not h.fixed]
    if "length_scale" not in names:
        return []
    out = []
    for factor in (5.0, 25.0):
        start = theta.copy()
        start[names.index("length_scale")] -= np.log(factor)
        out.append(start)
    return out


def median_distance(X: Array, max_rows: int = 500, weight: Array | None = None) -> float:
    """Median of the positive distances between rows of X, or of a fixed subsample; 1 if there are none.

    A pair of rows counts as often as the product of its weights.

    >>> median_distance(np.array([[0.0], [1.0], [3.0]])), median_distance(np.array([[0.0], [1.0]]), weight=np.ones(2))
    (2.0, 1.0)
    """
    X = np.atleast_2d(np.asarray(X, dtype=np.float64))
    if len(X) > max_rows:
        chosen = np.random.default_rng(0).choice(len(X), max_rows, replace=False)
        X, weight = X[chosen], None if weight is None else weight[chosen]
    distances = pdist(X)
    positive = distances > 0
    if not positive.any():
        return 1.0
    if weight is None:
        return float(np.median(distances[positive]))
    i, j = np.triu_indices(len(X), 1)
    order = np.argsort(distances[positive])
    share = np.cumsum((weight[i] * weight[j])[positive][order])
    share /= share[-1]
    middle = [np.searchsorted(share, half) for half in (0.5 - 1e-12, 0.5 + 1e-12)]  # two where exactly half lies below
    return float(np.mean(distances[positive][order][middle]))
