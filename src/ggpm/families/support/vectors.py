"""Supports of vectors that hang together: compositions and directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.text import Hint, Message, Row
from ggpm.families import integration
from ggpm.families.integration import LogDensity, Rule
from ggpm.families.special import length
from ggpm.families.support.base import Support
from ggpm.families.support.checks import check_matrix, first_fault
from ggpm.families.support.counts import shares

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Simplex(Support):
    """Compositions: positive rows that sum to ``total``; densities are per its unit.

    >>> Simplex(total=100.0).validate([[20, 80]])
    array([[20., 80.]])
    """

    row_ndim = 1
    low = 0.0
    high = 1.0
    kind = "compositions"
    error_name = "mean total variation"
    columns: int | None = None
    total: float = 1.0
    atol: float = 1e-6
    family: str = "Dirichlet"  # class whose option a message names

    def validate(self, y: Any) -> Array:
        what = f"compositions (rows of positive parts that sum to {self.total:g})"
        out = check_matrix(y, what, self.columns)
        if np.any(out < 0):
            first = first_fault(np.any(out < 0, axis=1), out)
            raise ValueError(Message(f"y must be {what}; got negative parts (", first, ")."))
        total = out @ np.ones(out.shape[1])
        off = np.abs(total - self.total) > self.atol * self.total
        if off.any():
            row = int(np.argwhere(off)[0][0])
            raise ValueError(
                Message(
                    f"y must be {what}; row ",
                    Row(row),
                    f" sums to {total[row]:.6g} ({int(off.sum())} row(s) are off). For percentages or raw amounts use ",
                    Hint(f"{self.family}(closure=True)", "closure", True),
                    ", which divides every row by its sum.",
                )
            )
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        return self.total * rng.dirichlet(np.full(self.columns or 3, 2.0), size=n)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        return integration.simplex(log_density, np.size(like), self.total)

    def error(self, y: Array, prediction: Array) -> Array:
        """Return the total variation distance between the shares of each row."""
        return 0.5 * np.abs(shares(y) - prediction / self.total).sum(axis=1)


@dataclass(frozen=True)
class Sphere(Support):
    """Directions: rows of unit length.

    >>> Sphere().validate([[0.6, 0.8]])
    array([[0.6, 0.8]])
    """

    row_ndim = 1
    low = -1.0
    high = 1.0
    kind = "directions"
    columns: int | None = None
    atol: float = 1e-6

    def validate(self, y: Any) -> Array:
        what = "directions (rows of unit length)"
        out = check_matrix(y, what, self.columns)
        size = length(out)
        off = np.abs(size - 1) > self.atol
        if off.any():
            row = int(np.argwhere(off)[0][0])
            raise ValueError(
                Message(
                    f"y must be {what}; row ",
                    Row(row),
                    f" has length {size[row]:.6g} ({int(off.sum())} row(s) are off). Divide every row by its length",
                    Hint(": y / np.linalg.norm(y, axis=1, keepdims=True)"),
                    ".",
                )
            )
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        y = rng.normal(size=(n, self.columns or 3))
        return y / np.linalg.norm(y, axis=1, keepdims=True)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        return integration.sphere(np.size(like))

    def point(self, moment: Array) -> Array:
        """Return the direction of an averaged unit vector; the first axis where the average is zero."""
        size = np.linalg.norm(moment, axis=-1, keepdims=True)
        return np.where(size > 0, moment / np.where(size > 0, size, 1.0), np.eye(moment.shape[-1])[0])
