"""Pareto k̂: how heavy the tail of importance weights is, by a generalised Pareto distribution fitted to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

__all__ = ["generalised_pareto", "most_k", "pareto_k"]

Array = NDArray[np.float64]

LEAST_TAIL = 5  # weights from which a tail can be fitted (Vehtari, Simpson, Gelman, Yao and Gabry 2024)
PRIOR_ROWS, PRIOR_K = 10, 0.5  # that paper, appendix C: a weak prior on k, worth ten weights at one half
GRID = 30  # Zhang and Stephens (2009): this many points and the root of the number of values


def most_k(draws: int) -> float:
    """The largest k̂ at which averages under so many weighted draws can be relied on.

    Vehtari, Simpson, Gelman, Yao and Gabry (2024), eq. (13): ``1 - 1 / log10(draws)``, and 0.7 at most.

    >>> most_k(100), most_k(4000)
    (0.5, 0.7)
    """
    return float(min(1.0 - 1.0 / np.log10(draws), 0.7))


def pareto_k(log_weights: Array) -> Array:
    """k̂ of every column of log weights (draws, ...): below one half the variance of the weights is finite.

    The tail is what lies above the ``min(S/5, 3 sqrt(S))`` largest of S weights; k̂ is infinite where it has fewer than
    five, and that of weights which are all the same is not a number.

    >>> rng = np.random.default_rng(0)
    >>> k = pareto_k(0.4 * rng.exponential(size=(40000, 2)))  # weights of a Pareto distribution with k = 0.4
    >>> bool(np.all(np.abs(k - 0.4) < 0.15))
    True
    """
    values = np.asarray(log_weights, dtype=float)
    columns = values.reshape(len(values), -1)
    out = np.array([_column(column) for column in columns.T])
    return out.reshape(values.shape[1:])


def _column(log_weights: Array) -> float:
    S = len(log_weights)
    with np.errstate(invalid="ignore"):
        x = np.sort(log_weights - np.max(log_weights))
    if np.isnan(x).any() or x[0] == x[-1]:
        return np.nan
    tail = int(np.ceil(min(0.2 * S, 3.0 * np.sqrt(S))))
    cut = max(x[-tail - 1], np.log(np.finfo(float).tiny))
    beyond = x[x > cut]
    if len(beyond) < LEAST_TAIL:
        return np.inf
    excess = np.exp(beyond) - np.exp(cut)
    if excess[int(len(excess) / 4 + 0.5) - 1] == 0:  # alike but for rounding
        return np.nan
    return generalised_pareto(excess)[0]


def generalised_pareto(x: Array) -> tuple[float, float]:
    """Shape k and scale of a generalised Pareto distribution for sorted positive values.

    The posterior mean of the profile likelihood of Zhang and Stephens (2009), with the weak prior of Vehtari et al.

    >>> x = np.sort(np.random.default_rng(0).pareto(2.0, 5000))
    >>> np.round(generalised_pareto(x), 1)
    array([0.5, 0.5])
    """
    n = len(x)
    m = GRID + int(np.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    b = 1.0 / x[-1] + (1.0 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3.0 * quartile)
    with np.errstate(divide="ignore", invalid="ignore"):
        k = np.mean(np.log1p(-b[:, None] * x), axis=1)
        profile = n * (np.log(-b / k) - k - 1.0)
    profile = np.where(np.isnan(profile), -np.inf, profile)
    b_mean = float(np.exp(profile - logsumexp(profile)) @ b)
    k_mean = float(np.mean(np.log1p(-b_mean * x)))
    return (n * k_mean + PRIOR_ROWS * PRIOR_K) / (n + PRIOR_ROWS), -k_mean / b_mean
