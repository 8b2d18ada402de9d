"""Checks of y that supports share: finite numbers, one a row or several, whole ones; each names the first fault."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import as_numbers
from ggpm.data.text import Hint, Message, Row

Array = NDArray[np.float64]


def check_numbers(y: Any, what: str) -> Array:
    """y as finite floats of any shape; ``what`` says in messages what they must be."""
    out = as_numbers(y, "y", what)
    if 0 in out.shape[1:]:
        raise ValueError(f"y must be {what}; got an array without columns, of shape {out.shape}.")
    if out.size and not np.all(np.isfinite(out)):
        bad = np.argwhere(~np.isfinite(out))
        raise ValueError(
            Message(
                f"y must be {what}; got {'NaN' if np.isnan(out).any() else 'infinity'} in {len(bad)} place(s), first "
                "at row ",
                Row(bad[0][0]),
                ". Remove or impute those rows.",
            )
        )
    return out


def first_fault(bad: Any, y: Array) -> Message:
    """`row 3 is [..]`, for the first row that has a fault."""
    row = int(np.argwhere(bad)[0][0])
    return Message("row ", Row(row), f" is {np.array2string(y[row], precision=6)}")


def check_vector(y: Any, what: str) -> Array:
    """y as finite floats, (n,)."""
    out = check_numbers(y, what)
    if out.ndim == 2 and out.shape[1] == 1:
        out = out[:, 0]
    if out.ndim != 1:
        raise ValueError(f"y must be {what}, one number per row; got an array of shape {out.shape}.")
    return out


def check_matrix(y: Any, what: str, columns: int | None) -> Array:
    """y as finite floats, (n, d) with d >= 2, or with so many columns."""
    out = check_numbers(y, what)
    if out.ndim != 2 or out.shape[1] < 2:
        raise ValueError(
            f"y must be {what}, an array {'(n, d) with d >= 2' if columns is None else f'(n, {columns})'}; got shape "
            f"{out.shape}."
        )
    if columns is not None and out.shape[1] != columns:
        raise ValueError(f"y must be {what} with {columns} columns; got {out.shape[1]}.")
    return out


def check_counts(out: Array, what: str) -> Array:
    """The same numbers, if they are whole and not negative."""
    bad = (out < 0) | (out != np.round(out))
    if bad.any():
        raise ValueError(
            Message(
                f"y must be {what}; got negative or fractional values (",
                first_fault(bad, out),
                "). Pass counts, not rates: exposure goes into ",
                Hint("offset=log(exposure)", "offset", "log(exposure)"),
                ".",
            )
        )
    return out
