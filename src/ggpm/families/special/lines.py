"""Integrals along lines: the trapezoidal rule in t, e = centre + width sinh(t), as fine as each of many needs.

Nodes are dense at the centre and still reach far tails; the spacing in t alone decides the error, which falls
exponentially with it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import batches

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

LOOSE = 100.0  # times the usual error that an integral may have, from which on it begins with fewer nodes
NODES_STEP = 1.25  # rows whose numbers of nodes differ by less than this factor are integrated together


def line_integrals(
    log_value: Callable[[Array, Rows], Array],
    centre: Array,
    width: Array,
    extent: Array,
    spacing: float,
    settled: float,
    doubles: int = 8,
    matters: Array | float = 1.0,
    halvings: int = 8,
    twice: NDArray[np.bool_] | None = None,
) -> Array:
    """log of the integrals of exp(log_value), (n,), or (n, L) of L integrands for every row.

    Parameters
    ----------
    log_value : of places e (S, k) and numbers of rows (k,); gives (S, k), or (S, k, L)
    centre, width : (n,), where the integrand is largest and how wide it is there
    extent : (n,), how far from the centre the integral goes
    spacing : of t at first. It is halved for rows that differ from the rule of twice the spacing by more than the share
        ``settled``, of which the finer rule is off by about the square.
    doubles : memory that a node takes
    matters : (L,), how much the integrands count for what is settled
    halvings : of the spacing at most
    twice : (n,), rows that must be settled twice in succession: a step that is narrower than the spacing leaves errors
        of either sign, which may agree by chance

    >>> normal = line_integrals(lambda e, rows: -0.5 * e * e, np.zeros(1), np.ones(1), np.full(1, 9.0), 0.2, 1e-4)
    >>> np.exp(2.0 * normal).round(8)  # 2 pi
    array([6.28318531])
    """
    reach = np.arcsinh(extent / width)
    # rows that need about as many nodes get the same number
    level = np.ceil(np.log(np.maximum(reach / spacing, 4.0)) / np.log(NODES_STEP))
    half = np.ceil(NODES_STEP**level).astype(int)
    total, rows = np.empty(0), np.arange(len(centre))  # total: log of the sum over nodes so far
    again = np.zeros(len(centre), dtype=bool) if twice is None else twice.copy()
    for halving in range(halvings + 1):
        left = [rows[:0]]
        for size in np.unique(half[rows]):
            group = rows[half[rows] == size]
            tau = np.arange(-size, size + 1)[:, None] / size
            tau = tau if halving == 0 else tau[1::2]  # the others were there before
            for part in batches(group.size, doubles * size):
                some = group[part]
                t = reach[some] * tau
                values = log_value(centre[some] + width[some] * np.sinh(t), some)
                values = values + np.log(np.cosh(t)).reshape(*t.shape, *[1] * (values.ndim - 2))
                new = log_sum(values, np.ones(len(t)))
                total = total if total.size else np.empty((len(centre), *new.shape[1:]))
                if halving:
                    coarse, fine = total[some], np.logaddexp(total[some], new)
                else:
                    coarse, fine = log_sum(values[size % 2 :: 2], np.ones(len(t[size % 2 :: 2]))), new
                total[some] = fine
                with np.errstate(invalid="ignore"):  # what cannot be has no density anywhere
                    off = matters * np.abs(np.expm1(coarse + np.log(2.0) - fine)) > settled
                off = off.reshape(len(some), -1).any(axis=1)
                left.append(some[off | again[some]])
                if twice is not None:
                    again[some] = twice[some] & off
        rows = np.sort(np.concatenate(left))
        if rows.size == 0 or halving == halvings:
            break
        half[rows] *= 2
    return total + np.log(reach * width / half).reshape(-1, *[1] * (total.ndim - 1))


def loosened(spacing: float, settled: float, times: float) -> tuple[float, float]:
    """Spacing at first, and what is settled, where the integral may be off by so many times as much.

    Errors are squares of what is settled. From `LOOSE` on lines begin with twice the spacing, which alone leaves
    1e-5 of Gaussian integrands instead of 1e-10.

    >>> loosened(0.2, 2e-5, 1.0), loosened(0.2, 2e-5, 2500.0)
    ((0.2, 2e-05), (0.4, 0.001))
    """
    return (2.0 if times >= LOOSE else 1.0) * spacing, settled * times**0.5


def log_sum(values: Array, weights: Array) -> Array:
    """log sum_s w_s exp(values_s), (S, n, ...) -> (n, ...); sparse grids have negative weights: nan where the sum is.

    >>> log_sum(np.zeros((2, 1)), np.array([0.25, 0.75]))
    array([0.])
    """
    top = values.max(axis=0)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.tensordot(weights, np.exp(values - top), axes=1)) + top
