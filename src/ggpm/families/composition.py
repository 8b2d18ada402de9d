"""`Composition`: what all families of compositions share: closure, zeros, units."""

from __future__ import annotations

import copy
from typing import Any, Literal, Self

import numpy as np

from ggpm.data.checks import as_numbers, check_positive
from ggpm.data.text import Hint, Message, Row
from ggpm.families.base import Array, Family
from ggpm.families.special.stable import excess_log
from ggpm.families.support import Simplex

Zeros = Literal["error", "additive", "squeeze"]
ZEROS = ("error", "additive", "squeeze")
_SAME_TOTAL = 0.01  # sums of rows that differ by no more than this share are one total: percentages are often rounded


class Composition(Family):
    """Base of families of compositions: rows of d parts with a common sum.

    The user's amounts become shares, `shares`, and these come back by `amounts`. Replacement of zeros is an affine
    map of the shares towards the centre, share -> (share + shift)/stretch; ``amounts`` undoes it, and parts that come
    out below zero, where the model puts what was a zero, are zero.
    """

    latent_dim = 0
    _n_rows: float | None = None
    _total: float = 1.0  # what the parts of a row sum to in the user's units
    _parts: int | None = None  # d; None in files of 0.1, where it is the number of latents

    zeros: Zeros
    zeros_epsilon: float
    closure: bool

    @property
    def support(self) -> Simplex:
        return Simplex(columns=self._parts or self.latent_dim or None, total=self._total, family=type(self).__name__)

    # ---- data --------------------------------------------------------------------------------------------
    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        check_positive(self.zeros_epsilon, "zeros_epsilon")
        bound = copy.copy(self)
        bound._n_rows = None if weight is None else float(weight.sum())
        shares = bound.shares(y)
        bound._n_rows, bound._parts = bound._n_rows or len(shares), shares.shape[1]
        if self.closure:
            bound._total = _common_total(np.asarray(y, dtype=float).sum(axis=1))
        return super(Composition, bound).resolve(bound.amounts(shares), weight)

    def with_rows(self, n: float) -> Self:
        out = copy.copy(self)
        out._n_rows = n
        return out

    def shares(self, y: Any) -> Array:
        """Return y, as the user has it, as positive shares that sum to one, zeros replaced."""
        if self.zeros not in ZEROS:
            raise ValueError(f"zeros must be 'error', 'additive' or 'squeeze'; got {self.zeros!r}.")
        out = self.support.validate(self._closed(y))
        out = out / (out @ np.ones(out.shape[-1]))[..., None]  # the support allows sums that are rounded
        if self.zeros != "error":
            return self._replaced(out, len(out))
        if not out.all():
            zero = np.flatnonzero((out == 0).any(axis=-1))
            shown = [part for row in zero[:5] for part in (", ", Row(row))][1:]
            raise ValueError(
                Message(
                    f"y must be compositions with positive parts; got zeros in {zero.size} row(s) (row ",
                    *shown,
                    ", ...), " if zero.size > 5 else "), ",
                    "where log y is -infinity. Try ",
                    Hint('zeros="additive"', "zeros", "additive"),
                    ", which adds ",
                    Hint("zeros_epsilon", "zeros_epsilon", self.zeros_epsilon),
                    " to each part, or ",
                    Hint('zeros="squeeze"', "zeros", "squeeze"),
                    ", which shrinks all rows towards the centre by 1/n.",
                )
            )
        return out

    def _closed(self, y: Any) -> Any:
        if not self.closure:
            return y
        amounts = as_numbers(y, "y", "amounts, one column per part")
        if amounts.ndim != 2 or not np.all(np.isfinite(amounts)) or np.any(amounts < 0):
            return y  # the support names the fault
        total = amounts.sum(axis=-1, keepdims=True)
        if np.any(total == 0):
            row = int(np.argwhere(total[:, 0] == 0)[0][0])
            told = "y must be amounts with positive sums; row "
            raise ValueError(Message(told, Row(row), " is all zeros. Drop such rows."))
        return amounts / total * self._total

    # ---- zeros ---------------------------------------------------------------------------------------------
    def _replacement(self, d: int, n: float = 2) -> tuple[float, float]:
        """Shift and stretch of the replacement of zeros; n is the number of rows where no fit has told it."""
        if self.zeros == "additive":
            return self.zeros_epsilon, 1.0 + d * self.zeros_epsilon
        if self.zeros == "squeeze":  # (y (n - 1) + 1/d)/n; of a single row nothing would be left
            n = max(self._n_rows or n, 2)
            return 1.0 / (d * (n - 1.0)), n / (n - 1.0)
        return 0.0, 1.0

    def _replaced(self, shares: Array, n: int = 2) -> Array:
        shift, stretch = self._replacement(shares.shape[-1], n)
        return (shares + shift) / stretch

    @property
    def unit(self) -> float:
        """Change of a part, in the user's unit, that belongs to a change of its encoded share by one."""
        return self._total * self._replacement(self._parts or self.latent_dim or 1)[1]

    def amounts(self, shares: Array, whole: bool = True) -> Array:
        """Return encoded shares as the user has them.

        ``whole`` rows sum to the total; lone parts, in arrays of any shape, need not.
        """
        shift, stretch = self._replacement(self._parts or self.latent_dim or shares.shape[-1])
        out = shares
        if stretch > 1.0:
            out = np.maximum(stretch * shares - shift, 0.0)
            out = out / out.sum(axis=-1, keepdims=True) if whole else np.minimum(out, 1.0)
        return out * self._total

    # ---- in the space of y -----------------------------------------------------------------------------------
    def point(self, moment: Array) -> Array:
        return self.amounts(moment)

    def variance(self, moment: Array, within: Array, between: Array) -> Array:
        return (within + between) * self.unit**2

    def _divergence(self, shares: Array, prediction: Array) -> Array:
        """KL(shares || prediction as the user has it)."""
        return excess_log(shares, self._replaced(prediction / self._total)).sum(axis=-1)


def _common_total(sums: Array) -> float:
    """Common sum of all rows, to six digits (the rest is rounding), or 1 if they differ."""
    middle = float(np.median(sums))
    return float(f"{middle:.6g}") if np.all(np.abs(sums - middle) <= _SAME_TOTAL * middle) else 1.0
