"""Sharpening: the power that class probabilities of rows which were left out turn out to need.

Where classes are far apart, the softmax of a Gaussian process doubts too much, under the exact posterior as well
(digits: docs/inference.md), and averages of several kernels doubt once more. The right class is then more probable than
said, in all rows alike. With

    q_c = p_c^b / sum_k p_k^b,

the log odds of any two classes are b times what they were ("temperature scaling": Guo, Pleiss, Sun and Weinberger
2017). The logarithm of b has a prior N(0, tau²) and is averaged over tau by the evidence, no change at all among them,
so that where nothing is wrong next to nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from ggpm.learning.recalibration import Recalibration

__all__ = ["LARGEST_LOG_POWER", "Law", "Sharpening", "sharpening"]

Array = NDArray[np.float64]

SPREADS = (0.1, 0.2, 0.4, 0.8)  # of log b, which the evidence weighs beside none at all
LEAST_GAIN = 2e-4  # nats a row, on the rows themselves, below which nothing is changed
LARGEST_LOG_POWER = 2.0  # two and a half of the widest spreads
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Sharpening:
    """Log odds of classes times a power.

    >>> Sharpening(2.0)(np.array([[0.6, 0.3, 0.1]])).round(3)
    array([[0.783, 0.196, 0.022]])
    """

    power: float = 1.0

    def log(self, probabilities: Array) -> Array:
        """Logarithms of the new probabilities, (m, classes)."""
        log_p = self.power * np.log(np.maximum(probabilities, TINY))
        return np.asarray(log_p - logsumexp(log_p, axis=1, keepdims=True))

    def __call__(self, probabilities: Array) -> Array:
        """The new probabilities, (m, classes)."""
        return np.exp(self.log(probabilities))


Law = Recalibration | Sharpening
"""How predictions are corrected: of classes and grades by a power, of numbers and angles by a law of transforms."""


def sharpening(probabilities: Array, codes: NDArray[np.intp], weight: Array | None = None) -> Sharpening | None:
    """The power that probabilities (n, classes) of classes which they have not seen need; None where it is next to one.

    Parameters
    ----------
    probabilities : array (n, classes)
    codes : array (n,), the classes that were there
    weight : array (n,), optional
        How many rows each counts as.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> said = rng.dirichlet(np.ones(3), 4000)
    >>> codes = np.array([rng.choice(3, p=p) for p in Sharpening(2.0)(said)])
    >>> round(sharpening(said, codes).power, 1)
    2.0
    """
    weight = np.ones(len(codes)) if weight is None else np.asarray(weight, dtype=np.float64)
    log_p, rows = np.log(np.maximum(probabilities, TINY)), np.arange(len(codes))

    def value(log_power: float) -> float:
        tilted = np.exp(log_power) * log_p
        return float(weight @ (tilted[rows, codes] - logsumexp(tilted, axis=1)))

    found = [_mode(value, tau) for tau in SPREADS]
    evidence = np.array([0.0, *(height for height, _ in found)])
    share = np.exp(evidence - evidence.max())
    log_power = float(share[1:] @ [mode for _, mode in found] / share.sum())
    return Sharpening(float(np.exp(log_power))) if value(log_power) - value(0.0) > LEAST_GAIN * weight.sum() else None


def _mode(value: Callable[[float], float], tau: float) -> tuple[float, float]:
    """Log evidence over that of no change (Laplace's), and the mode of the log power under the prior N(0, tau²)."""

    def lost(log_power: float) -> float:
        return 0.5 * (log_power / tau) ** 2 - value(log_power)

    mode = minimize_scalar(lost, bounds=(-LARGEST_LOG_POWER, LARGEST_LOG_POWER), method="bounded").x
    step = 0.1 * tau
    bend = (lost(mode + step) - 2.0 * lost(mode) + lost(mode - step)) / step**2
    return lost(0.0) - lost(mode) - 0.5 * float(np.log(max(bend * tau**2, 1.0))), float(mode)
