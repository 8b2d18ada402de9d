"""The support of symmetric positive definite matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.text import Message, Row
from ggpm.families import integration
from ggpm.families.integration import LogDensity, Rule
from ggpm.families.support.base import Support
from ggpm.families.support.checks import check_numbers

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SPD(Support):
    """Symmetric positive definite matrices, (n, p, p).

    >>> SPD().validate(np.eye(2)[None]).shape
    (1, 2, 2)
    """

    row_ndim = 2
    kind = "matrices"
    columns: int | None = None
    rtol: float = 1e-8

    def validate(self, y: Any) -> Array:
        what = "symmetric positive definite matrices"
        out = check_numbers(y, what)
        if out.ndim != 3 or out.shape[1] != out.shape[2]:
            raise ValueError(f"y must be {what}, an array (n, p, p); got shape {out.shape}.")
        if self.columns is not None and out.shape[1] != self.columns:
            raise ValueError(f"y must be {what} with p = {self.columns}; got p = {out.shape[1]}.")
        skew = np.abs(out - np.swapaxes(out, 1, 2)).max(axis=(1, 2), initial=0.0)
        crooked = skew > self.rtol * np.abs(out).max(axis=(1, 2), initial=0.0)
        if crooked.any():
            row = int(np.argwhere(crooked)[0][0])
            raise ValueError(
                Message(
                    f"y must be {what}; row ",
                    Row(row),
                    f" differs from its transpose by {skew[row]:.3g} ({int(crooked.sum())} such row(s)). Symmetrise: "
                    "(y + y.transpose(0, 2, 1))/2.",
                )
            )
        out = 0.5 * (out + np.swapaxes(out, 1, 2))
        lowest = np.linalg.eigvalsh(out)[:, 0] if len(out) else np.empty(0)
        if np.any(lowest <= 0):
            row = int(np.argwhere(lowest <= 0)[0][0])
            raise ValueError(
                Message(
                    f"y must be {what}; row ",
                    Row(row),
                    f" has the eigenvalue {lowest[row]:.3g} ({int(np.sum(lowest <= 0))} such row(s)). A covariance of "
                    "fewer observations than variables is singular: shrink it towards its diagonal, or drop the row.",
                )
            )
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        p = self.columns or 2
        A = rng.normal(size=(n, p, 2 * p + 2))
        return A @ np.swapaxes(A, 1, 2) / (2 * p + 2)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        return integration.matrices(log_density, len(like))
