"""What an output may be: one declaration per kind of y, which validates input and names the mistake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def _numeric(y: Any, what: str) -> Array:
    try:
        out = np.asarray(y, dtype=float)
    except (TypeError, ValueError) as err:
        raise ValueError(f"y must be {what}; got values that are not numbers ({err}).") from None
    if out.size and not np.all(np.isfinite(out)):
        bad = np.argwhere(~np.isfinite(out))
        raise ValueError(
            f"y must be {what}; got {'NaN' if np.isnan(out).any() else 'infinity'} in {len(bad)} place(s), first at "
            f"row {bad[0][0]}. Remove or impute those rows before fitting."
        )
    return out


def _first(bad: Any, y: Array) -> str:
    """`row 3 is [..]`, for the first row that has a fault."""
    row = int(np.argwhere(bad)[0][0])
    return f"row {row} is {np.array2string(y[row], precision=6)}"


def _vector(y: Any, what: str) -> Array:
    out = _numeric(y, what)
    if out.ndim == 2 and out.shape[1] == 1:
        out = out[:, 0]
    if out.ndim != 1:
        raise ValueError(f"y must be {what}, one number per row; got an array of shape {out.shape}.")
    return out


def _matrix(y: Any, what: str, columns: int | None) -> Array:
    out = _numeric(y, what)
    if out.ndim != 2 or out.shape[1] < 2:
        raise ValueError(f"y must be {what}, an array (n, d) with d >= 2; got shape {out.shape}.")
    if columns is not None and out.shape[1] != columns:
        raise ValueError(f"y must be {what} with {columns} columns; got {out.shape[1]}.")
    return out


@dataclass(frozen=True)
class Support:
    """Base of all supports: `validate` returns y as a clean float array or raises ValueError."""

    low: ClassVar[float] = -np.inf
    high: ClassVar[float] = np.inf
    integer: ClassVar[bool] = False

    def validate(self, y: Any) -> Array:
        raise NotImplementedError


@dataclass(frozen=True)
class Real(Support):
    """Real numbers, (n,) or (n, d)."""

    columns: int | None = None

    def validate(self, y: Any) -> Array:
        what = "real numbers"
        out = _numeric(y, what)
        out = out[:, None] if out.ndim == 1 else out
        if out.ndim != 2:
            raise ValueError(f"y must be {what}, an array (n,) or (n, d); got shape {out.shape}.")
        if self.columns is not None and out.shape[1] != self.columns:
            raise ValueError(f"y must have {self.columns} column(s); got {out.shape[1]}.")
        return out


@dataclass(frozen=True)
class Positive(Support):
    """Positive real numbers."""

    low = 0.0

    def validate(self, y: Any) -> Array:
        out = _vector(y, "positive numbers")
        if np.any(out <= 0):
            raise ValueError(
                f"y must be positive numbers; got {int(np.sum(out <= 0))} value(s) <= 0 ({_first(out <= 0, out)}). "
                "Zeros often mean a detection limit: replace them, or model counts with 'poisson'."
            )
        return out


@dataclass(frozen=True)
class UnitInterval(Support):
    """Numbers strictly between 0 and 1."""

    low = 0.0
    high = 1.0

    def validate(self, y: Any) -> Array:
        out = _vector(y, "numbers strictly between 0 and 1")
        bad = (out <= 0) | (out >= 1)
        if bad.any():
            hint = "divide percentages by 100" if out.max() > 1 else "squeeze exact 0 and 1 with (y (n-1) + 0.5)/n"
            raise ValueError(
                f"y must be numbers strictly between 0 and 1; got {int(bad.sum())} outside "
                f"({_first(bad, out)}). Try: {hint}."
            )
        return out


def _check_counts(out: Array, what: str) -> Array:
    bad = (out < 0) | (out != np.round(out))
    if bad.any():
        raise ValueError(
            f"y must be {what}; got negative or fractional values ({_first(bad, out)}). "
            "Pass counts, not rates: exposure goes into offset=log(exposure)."
        )
    return out


@dataclass(frozen=True)
class Counts(Support):
    """Non-negative integers."""

    low = 0.0
    integer = True

    def validate(self, y: Any) -> Array:
        what = "counts (non-negative integers)"
        return _check_counts(_vector(y, what), what)


@dataclass(frozen=True)
class CountVectors(Support):
    """Rows of non-negative integers with a positive total; ``columns=2`` for successes and failures."""

    low = 0.0
    integer = True
    columns: int | None = None

    def validate(self, y: Any) -> Array:
        what = (
            "counts of successes and failures, an array (n, 2)"
            if self.columns == 2
            else "counts (non-negative integers), one column per category"
        )
        out = _check_counts(_matrix(y, what, self.columns), what)
        empty = out.sum(axis=1) == 0
        if empty.any():
            raise ValueError(
                f"every row of y must have a positive total; row {int(np.argwhere(empty)[0][0])} is all zeros "
                f"({int(empty.sum())} such row(s)). Drop rows without any observation."
            )
        return out


@dataclass(frozen=True)
class Codes(Support):
    """Integer codes 0 .. n_codes-1 (n_codes unknown until data are seen)."""

    low = 0.0
    integer = True
    n_codes: int | None = None
    what: str = "class"

    def validate(self, y: Any) -> Array:
        upper = "" if self.n_codes is None else f" .. {self.n_codes - 1}"
        what = f"{self.what} codes 0, 1{upper}"
        out = _vector(y, what)
        bad = (out < 0) | (out != np.round(out))
        if self.n_codes is not None:
            bad |= out >= self.n_codes
        if bad.any():
            raise ValueError(
                f"y must be {what}; got something else ({_first(bad, out)}). For labels of any type use "
                "GGPClassifier (unordered) or GGPOrdinalClassifier (ordered)."
            )
        return out


@dataclass(frozen=True)
class Circle(Support):
    """Angles in radians."""

    def validate(self, y: Any) -> Array:
        return _vector(y, "angles")


@dataclass(frozen=True)
class Simplex(Support):
    """Compositions: positive rows that sum to 1."""

    low = 0.0
    high = 1.0
    columns: int | None = None
    atol: float = 1e-6

    def validate(self, y: Any) -> Array:
        what = "compositions (rows of positive parts that sum to 1)"
        out = _matrix(y, what, self.columns)
        if np.any(out < 0):
            raise ValueError(f"y must be {what}; got negative parts ({_first(np.any(out < 0, axis=1), out)}).")
        total = out.sum(axis=1)
        off = np.abs(total - 1) > self.atol
        if off.any():
            row = int(np.argwhere(off)[0][0])
            raise ValueError(
                f"y must be {what}; row {row} sums to {total[row]:.6g} ({int(off.sum())} row(s) are off). "
                "For percentages or raw amounts use Dirichlet(closure=True), which divides every row by its sum."
            )
        return out


@dataclass(frozen=True)
class Sphere(Support):
    """Directions: rows of unit length."""

    columns: int | None = None
    atol: float = 1e-6

    def validate(self, y: Any) -> Array:
        what = "directions (rows of unit length)"
        out = _matrix(y, what, self.columns)
        length = np.linalg.norm(out, axis=1)
        off = np.abs(length - 1) > self.atol
        if off.any():
            row = int(np.argwhere(off)[0][0])
            raise ValueError(
                f"y must be {what}; row {row} has length {length[row]:.6g} ({int(off.sum())} row(s) are off). "
                "Divide every row by its length: y / np.linalg.norm(y, axis=1, keepdims=True)."
            )
        return out
