"""The supports: one declaration per kind of y.

A support validates input and names the mistake, makes up examples, and can sum or integrate a density over all that y
may be, so that a family can be checked (`ggpm.testing.check_family`). It also says how outputs of its kind are compared
and summarised: `ggpm.families.support.base.Support` lists the methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from ggpm.data.checks import as_numbers
from ggpm.data.text import Hint, Message, Row
from ggpm.families import integration
from ggpm.families.integration import LogDensity, Rule
from ggpm.families.support.base import Support

__all__ = [
    "SPD", "Circle", "Codes", "CountVectors", "Counts", "Positive", "Real", "Simplex", "Sphere", "Support",
    "UnitInterval",
]  # fmt: skip

Array = NDArray[np.float64]


def _numeric(y: Any, what: str) -> Array:
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


def _first(bad: Any, y: Array) -> Message:
    """`row 3 is [..]`, for the first row that has a fault."""
    row = int(np.argwhere(bad)[0][0])
    return Message("row ", Row(row), f" is {np.array2string(y[row], precision=6)}")


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
        raise ValueError(
            f"y must be {what}, an array {'(n, d) with d >= 2' if columns is None else f'(n, {columns})'}; got shape "
            f"{out.shape}."
        )
    if columns is not None and out.shape[1] != columns:
        raise ValueError(f"y must be {what} with {columns} columns; got {out.shape[1]}.")
    return out


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
        out = _numeric(y, what)
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
        out = _vector(y, "positive numbers")
        if np.any(out <= 0):
            told = f"y must be positive numbers; got {int(np.sum(out <= 0))} value(s) <= 0 ("
            bad = Message(told, _first(out <= 0, out), ").")
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
        out = _vector(y, "numbers strictly between 0 and 1")
        bad = (out <= 0) | (out >= 1)
        if bad.any():
            told = f"y must be numbers strictly between 0 and 1; got {int(bad.sum())} outside ("
            told = Message(told, _first(bad, out), ").")
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


def _check_counts(out: Array, what: str) -> Array:
    bad = (out < 0) | (out != np.round(out))
    if bad.any():
        raise ValueError(
            Message(
                f"y must be {what}; got negative or fractional values (",
                _first(bad, out),
                "). Pass counts, not rates: exposure goes into ",
                Hint("offset=log(exposure)", "offset", "log(exposure)"),
                ".",
            )
        )
    return out


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
        out = _check_counts(_vector(y, what), what)
        if np.any(out < self.least):
            raise ValueError(Message(f"y must be {what}; got a smaller one (", _first(out < self.least, out), ")."))
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
        out = _check_counts(_matrix(y, what, self.columns), what)
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
        return super().distance(_shares(a), _shares(b))

    def error(self, y: Array, prediction: Array) -> Array:
        """Return the error of each row's proportions; ``prediction`` is all of them, or the first, (n,)."""
        return super().error(_shares(y) if prediction.ndim == 2 else _shares(y)[:, 0], prediction)


def _shares(y: Array) -> Array:
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
        out = _vector(y, what)
        bad = (out < 0) | (out != np.round(out))
        if self.n_codes is not None:
            bad |= out >= self.n_codes
        if bad.any():
            raise ValueError(
                Message(
                    f"y must be {what}; got something else (",
                    _first(bad, out),
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


# Part of a full turn that angles must be known to: beyond 4e9 turns doubles are further apart
LEAST_OF_A_TURN = 1e-6


@dataclass(frozen=True)
class Circle(Support):
    """Angles; the density is per unit of angle, ``period`` units to the full turn.

    Parameters
    ----------
    period : float
        The full turn in the user's unit: 360 for degrees, 24 for hours.
    start : float, optional
        Where the range of predictions starts, in the user's unit; by default -pi for radians, else 0.
    encoded_period : float, optional
        The full turn of *encoded* y, by default ``period``: a family that does not override ``encode`` keeps the user's
        unit. One whose ``encode`` gives radians declares 2 pi.

    Examples
    --------
    >>> Circle(period=24.0).error(np.array([23.5]), np.array([0.5]))
    array([1.])
    """

    kind = "angles"
    error_name = "mean absolute angle"
    period: float = 2.0 * np.pi
    start: float | None = None
    encoded_period: float | None = None

    def validate(self, y: Any) -> Array:
        out = _vector(y, "angles")
        apart = np.spacing(np.max(np.abs(out), initial=0.0))
        if apart > LEAST_OF_A_TURN * self.period:
            i = int(np.argmax(np.abs(out)))
            raise ValueError(
                Message(
                    f"angles must be numbers with digits left after whole turns of {self.period:g} are taken away; got "
                    f"{out[i]:g} in row ",
                    Row(i),
                    f", where neighbouring numbers are {apart:.2g} apart. Take angles modulo a turn before they are "
                    "added up, or check the unit.",
                )
            )
        return out

    def check_encoding(self, encode: Callable[[Any], Array]) -> None:
        zero, quarter = np.ravel(encode(np.array([0.0, self.period / 4])))
        turn = self._encoded_turn
        if abs(np.mod(quarter - zero, turn) / turn - 0.25) > 1e-6:
            raise TypeError(
                f"encode turns a quarter of the period, {self.period / 4:g}, into {quarter - zero:g}, but the support "
                f"says that a full turn of encoded y is {turn:g}. If encode gives radians, declare "
                f"Circle(period={self.period:g}, encoded_period=2 * np.pi); else leave encode as it is."
            )

    def example(self, rng: np.random.Generator, n: int) -> Array:
        return self.period * rng.uniform(-0.5, 0.5, size=n)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        return integration.circle(self.period)

    @property
    def _encoded_turn(self) -> float:
        return self.period if self.encoded_period is None else self.encoded_period

    def to_radians(self, y: Array) -> Array:
        """Return encoded y in radians."""
        return y * (2.0 * np.pi / self._encoded_turn)

    def from_radians(self, angle: Array) -> Array:
        """Return radians as encoded y."""
        return angle * (self._encoded_turn / (2.0 * np.pi))

    def decode_start(self) -> float:
        if self.start is not None:
            return self.start
        return -np.pi if self.period == 2.0 * np.pi else 0.0

    def wrap(self, y: Array) -> Array:
        """Return y, as the user has it, within the range of predictions [start, start + period)."""
        low = self.decode_start()
        out = low + np.mod(y - low, self.period)
        return np.where(out >= low + self.period, low, out)  # rounding may reach the open end

    def embed(self, y: Array) -> Array:
        angle = self.to_radians(y)
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)

    def point(self, moment: Array) -> Array:
        """Return the direction of an averaged (cos, sin), (..., 2), in the user's unit."""
        return self.wrap(np.arctan2(moment[..., 1], moment[..., 0]) * (self.period / (2.0 * np.pi)))

    def variance(self, moment: Array, within: Array, between: Array) -> Array:
        return self.variance_of(moment)

    def variance_of(self, moment: Array) -> Array:
        """Return the circular variance: one minus the length of the averaged (cos, sin)."""
        return 1.0 - np.hypot(moment[..., 0], moment[..., 1])

    def loss(self, y: Array, prediction: Array) -> Array:
        """Return one minus the cosine of the difference."""
        return 2.0 * np.sin(0.5 * (self.to_radians(y) - prediction * (2.0 * np.pi / self.period))) ** 2

    def distance(self, a: Array, b: Array) -> Array:
        """Return the angle between two encoded y, in radians whatever the unit (Grimit et al. 2006)."""
        apart = np.mod(self.to_radians(a - b) + np.pi, 2 * np.pi) - np.pi
        return np.abs(apart).reshape(*apart.shape[:2])

    def error(self, y: Array, prediction: Array) -> Array:
        half = 0.5 * self.period
        return np.abs(np.mod(y.reshape(prediction.shape) - prediction + half, self.period) - half)


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
        out = _matrix(y, what, self.columns)
        if np.any(out < 0):
            first = _first(np.any(out < 0, axis=1), out)
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
        return 0.5 * np.abs(_shares(y) - prediction / self.total).sum(axis=1)


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
        out = _matrix(y, what, self.columns)
        length = np.linalg.norm(out, axis=1)
        off = np.abs(length - 1) > self.atol
        if off.any():
            row = int(np.argwhere(off)[0][0])
            raise ValueError(
                Message(
                    f"y must be {what}; row ",
                    Row(row),
                    f" has length {length[row]:.6g} ({int(off.sum())} row(s) are off). Divide every row by its length",
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
        length = np.linalg.norm(moment, axis=-1, keepdims=True)
        return np.where(length > 0, moment / np.where(length > 0, length, 1.0), np.eye(moment.shape[-1])[0])


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
        out = _numeric(y, what)
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
