"""Supports of whole numbers: counts, rows of counts, and codes of classes or grades."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.text import Hint, Message, Row
from ggpm.families import integration
from ggpm.families.integration import LogDensity, Rule
from ggpm.families.support.base import Support
from ggpm.families.support.checks import check_counts, check_matrix, check_vector, first_fault

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Counts(Support):
    """Non-negative integers, or integers from ``least`` on.

    >>> Counts(least=1).validate([1, 3])
    array([1., 3.])
    """

    low = 0.0
    integer = True
    least: int = 0

    def validate(self, y: Any) -> Array:
        what = "counts (non-negative integers)" if self.least == 0 else f"counts {self.least}, {self.least + 1}, ..."
        out = check_counts(check_vector(y, what), what)
        if np.any(out < self.least):
            raise ValueError(
                Message(f"y must be {what}; got a smaller one (", first_fault(out < self.least, out), ").")
            )
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        return self.least + rng.poisson(2.0, size=n).astype(float)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        return integration.counts(log_density, self.least)


@dataclass(frozen=True)
class CountVectors(Support):
    """Rows of non-negative integers with a positive total; ``columns=2`` for successes and failures.

    >>> CountVectors(columns=2).validate([[3, 0]])
    array([[3., 0.]])
    """

    row_ndim = 1
    low = 0.0
    integer = True
    error_name = "mean absolute error of the share"
    columns: int | None = None

    def validate(self, y: Any) -> Array:
        what = (
            "counts of successes and failures"
            if self.columns == 2
            else "counts (non-negative integers), one column per category"
        )
        if self.columns == 2 and np.ndim(y) == 1:
            raise ValueError(
                Message(
                    f"y must be {what}, an array (n, 2); got shape {np.shape(y)}. Give both",
                    Hint(": np.column_stack([k, trials - k])"),
                    ", successes first; labels of two classes are for ",
                    Hint("GGPClassifier", "family", "bernoulli"),
                    ".",
                )
            )
        out = check_counts(check_matrix(y, what, self.columns), what)
        empty = out.sum(axis=1) == 0
        if empty.any():
            raise ValueError(
                Message(
                    "every row of y must have a positive total; row ",
                    Row(empty.argmax()),
                    f" is all zeros ({int(empty.sum())} such row(s)). Drop rows without any observation.",
                )
            )
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        d = self.columns or 3
        return rng.multinomial(rng.integers(1, 8, size=n), np.full(d, 1.0 / d)).astype(float)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        return integration.count_vectors(np.size(like), int(min(np.sum(like), 4)))

    def distance(self, a: Array, b: Array) -> Array:
        return super().distance(shares(a), shares(b))

    def error(self, y: Array, prediction: Array) -> Array:
        """Return the error of each row's proportions; ``prediction`` is all of them, or the first, (n,)."""
        return super().error(shares(y) if prediction.ndim == 2 else shares(y)[:, 0], prediction)


def shares(y: Array) -> Array:
    """Rows divided by their sums."""
    return y / y.sum(axis=-1, keepdims=True)


@dataclass(frozen=True)
class Codes(Support):
    """Integer codes 0 .. n_codes-1 (n_codes unknown until data are seen).

    >>> Codes(n_codes=3).validate([0, 2])
    array([0., 2.])
    """

    low = 0.0
    integer = True
    error_name = "error rate"
    n_codes: int | None = None
    what: str = "class"

    def validate(self, y: Any) -> Array:
        upper = "" if self.n_codes is None else f" .. {self.n_codes - 1}"
        what = f"{self.what} codes 0, 1{upper}"
        out = check_vector(y, what)
        bad = (out < 0) | (out != np.round(out))
        if self.n_codes is not None:
            bad |= out >= self.n_codes
        if bad.any():
            raise ValueError(
                Message(
                    f"y must be {what}; got something else (",
                    first_fault(bad, out),
                    "). For labels of any type use ",
                    Hint("GGPClassifier", "family", "categorical"),
                    " (unordered) or ",
                    Hint("GGPOrdinalClassifier", "family", "ordinal"),
                    " (ordered).",
                )
            )
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        return rng.permutation(np.arange(n) % (self.n_codes or 3)).astype(float)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        if self.n_codes is None:
            raise ValueError("the number of codes is not known: resolve the family with data first.")
        return integration.codes(self.n_codes)

    def error(self, y: Array, prediction: Array) -> Array:
        """Return 1 where the most probable code is not y; ``prediction`` is probabilities, (n, d), or a mean, (n,)."""
        best = prediction.argmax(axis=1) if prediction.ndim == 2 else np.round(prediction)
        return (best != y).astype(float)
