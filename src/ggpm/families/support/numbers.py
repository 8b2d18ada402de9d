"""Supports of numbers: all of them, positive ones, those between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from ggpm.data.text import Hint, Message
from ggpm.families import integration
from ggpm.families.integration import LogDensity, Rule
from ggpm.families.support.base import Support
from ggpm.families.support.checks import check_numbers, check_vector, first_fault

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Real(Support):
    """Real numbers, (n,) or (n, d).

    >>> Real().validate([1, 2])
    array([[1.],
           [2.]])
    """

    row_ndim = 1
    columns: int | None = None

    def validate(self, y: Any) -> Array:
        what = "real numbers"
        out = check_numbers(y, what)
        out = out[:, None] if out.ndim == 1 else out
        if out.ndim != 2:
            raise ValueError(f"y must be {what}, an array (n,) or (n, d); got shape {out.shape}.")
        if self.columns is not None and out.shape[1] != self.columns:
            raise ValueError(f"y must have {self.columns} column(s); got {out.shape[1]}.")
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        return rng.normal(size=n if self.columns is None else (n, self.columns))

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        m = max(np.size(like), 1)
        return integration.space(log_density, lambda t: (t.reshape(-1, *np.shape(like)), np.zeros(len(t))), m, 1e8)


@dataclass(frozen=True)
class Positive(Support):
    """Positive real numbers.

    >>> Positive().validate([1, 2])
    array([1., 2.])
    """

    low = 0.0

    def validate(self, y: Any) -> Array:
        out = check_vector(y, "positive numbers")
        if np.any(out <= 0):
            told = f"y must be positive numbers; got {int(np.sum(out <= 0))} value(s) <= 0 ("
            bad = Message(told, first_fault(out <= 0, out), ").")
            if np.any(out < 0):
                either = Hint("'gaussian'", "family", "gaussian"), " or ", Hint("'student_t'", "family", "student_t")
                raise ValueError(Message(bad, " Numbers of either sign are for ", *either, "."))
            raise ValueError(
                Message(
                    bad,
                    " Where nothing is an outcome of its own, such as no rain, use ",
                    Hint("'hurdle_gamma' or another 'hurdle_...'", "family", "hurdle_gamma"),
                    "; where zero means less than a detection limit, ",
                    Hint("'censored_gamma'", "family", "censored_gamma"),
                    " with bounds 0 and the limit; for counts, ",
                    Hint("'poisson'", "family", "poisson"),
                    ".",
                )
            )
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        return rng.gamma(3.0, 0.5, size=n)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        return integration.line(log_density, lambda t: (np.exp(t[:, 0]), t[:, 0]), 300.0)


@dataclass(frozen=True)
class UnitInterval(Support):
    """Numbers strictly between 0 and 1.

    >>> UnitInterval().validate([0.2, 0.9])
    array([0.2, 0.9])
    """

    low = 0.0
    high = 1.0

    def validate(self, y: Any) -> Array:
        out = check_vector(y, "numbers strictly between 0 and 1")
        bad = (out <= 0) | (out >= 1)
        if bad.any():
            told = f"y must be numbers strictly between 0 and 1; got {int(bad.sum())} outside ("
            told = Message(told, first_fault(bad, out), ").")
            if out.max() > 1 or out.min() < 0:
                raise ValueError(Message(told, " Divide percentages by 100; other numbers are for another family."))
            raise ValueError(
                Message(
                    told,
                    " Where all and nothing are outcomes of their own, use ",
                    Hint("'zero_one_inflated_beta'", "family", "zero_one_inflated_beta"),
                    "; where they come from rounding, squeeze y to (y (n - 1) + 0.5)/n.",
                )
            )
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        return rng.beta(2.0, 3.0, size=n)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        def chart(t: Array) -> tuple[Array, Array]:
            # beyond 36, expit(t) is the float 1; numbers next to 0 have no such end
            inside = np.where(t[:, 0] < 36.0, t[:, 0], 0.0)
            return expit(inside), np.where(t[:, 0] < 36.0, log_expit(inside) + log_expit(-inside), -np.inf)

        return integration.line(log_density, chart, 300.0)
