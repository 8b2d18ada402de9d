"""Arrays from users: what is not numbers is named, whatever NumPy would make of it."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.text import Message, Row


def as_array(value: Any, name: str) -> NDArray:
    """An array of any type; masked values and rows of different lengths are errors.

    >>> as_array([[1, 2], [3]], "y")
    Traceback (most recent call last):
    ...
    ValueError: y must have rows of one length; got rows of different lengths.
    """
    refuse_masked(value, name)
    try:
        return np.asarray(value)
    except ValueError:  # NumPy's only one here: an inhomogeneous shape
        raise ValueError(f"{name} must have rows of one length; got rows of different lengths.") from None


def refuse_masked(value: Any, name: str) -> None:
    """Raise ValueError for an array with masked values, which NumPy would use as if they were there.

    >>> refuse_masked(np.ma.masked_array([1.0, 2.0], mask=[False, True]), "y")
    Traceback (most recent call last):
    ...
    ValueError: y must not have masked values; got 1, first at row 1. Drop or fill those rows.
    """
    if np.ma.isMaskedArray(value) and np.ma.getmaskarray(value).any():
        places = np.argwhere(np.ma.getmaskarray(value))
        first = f", first at row {places[0][0]}" if places.shape[1] else ""
        raise ValueError(f"{name} must not have masked values; got {len(places)}{first}. Drop or fill those rows.")


def as_numbers(value: Any, name: str, what: str) -> NDArray[np.float64]:
    """A float array; ``name`` must be ``what``, say the errors.

    >>> as_numbers([1, 2], "y", "counts")
    array([1., 2.])
    >>> as_numbers(np.array([1j]), "y", "angles")
    Traceback (most recent call last):
    ...
    ValueError: y must be angles; got complex numbers. Pass real ones, such as np.angle or np.real of them.
    """
    raw = as_array(value, name)
    if raw.dtype.kind == "c":
        raise ValueError(
            f"{name} must be {what}; got complex numbers. Pass real ones, such as np.angle or np.real of them."
        )
    if raw.dtype.kind in "mM":
        raise ValueError(
            f"{name} must be {what}; got dates or times ({raw.dtype}). Pass numbers, such as hours since a start, the "
            "hour of the day or the day of the year."
        )
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be {what}; got values that are not numbers ({error}).") from None


def as_offset(offset: Any, n: int, D: int, name: str = "offset") -> NDArray[np.float64]:
    """Offset that is added to the latent of n rows, (n, D); None is zero.

    >>> as_offset([1.0, 2.0], 2, 3)
    array([[1., 1., 1.],
           [2., 2., 2.]])
    """
    if offset is None:
        return np.zeros((n, D))
    out = as_numbers(offset, name, "one number per row")
    out = out[:, None] if out.ndim == 1 else out
    if out.shape not in {(n, 1), (n, D)}:
        raise ValueError(f"{name} must have shape ({n},) or ({n}, {D}); got {np.shape(offset)}.")
    if not np.all(np.isfinite(out)):
        raise ValueError(f"{name} must be finite; a zero exposure has the logarithm -inf: drop those rows.")
    return np.broadcast_to(out, (n, D)).copy()


def as_weight(weight: Any, n: int, name: str = "sample_weight", some: bool = True) -> NDArray[np.float64]:
    """Weights of n rows, (n,): not negative, not all zero (unless not ``some``); None is one for each.

    >>> as_weight(None, 2), as_weight([1, 0.5], 2)
    (array([1., 1.]), array([1. , 0.5]))
    """
    if weight is None:
        return np.ones(n)
    out = as_numbers(weight, name, "one number per row")
    out = np.full(n, out) if out.ndim == 0 else out
    if out.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},); got {out.shape}.")
    bad = np.flatnonzero(~(np.isfinite(out) & (out >= 0)))
    if bad.size:
        told = f"{name} must be finite and not negative; row "
        raise ValueError(Message(told, Row(bad[0]), f" has {out[bad[0]]:g}."))
    if some and not out.any():
        raise ValueError(f"{name} must be positive in some row; got zeros alone.")
    return out


def check_whole(value: Any, name: str, least: int) -> None:
    """Raise ValueError unless the value is a whole number from ``least`` on.

    >>> check_whole(1.5, "n_restarts_optimizer", 0)
    Traceback (most recent call last):
    ...
    ValueError: n_restarts_optimizer must be a whole number, 0 or more; got 1.5.
    """
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number, {least} or more; got {value!r}.")


def check_jobs(n_jobs: Any) -> None:
    """Raise ValueError unless the value is a number of jobs, as joblib counts them: negative ones from the end.

    >>> check_jobs(1.5)
    Traceback (most recent call last):
    ...
    ValueError: n_jobs must be a whole number other than 0, or None; got 1.5.
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise ValueError(f"n_jobs must be a whole number other than 0, or None; got {n_jobs!r}.")


def check_positive(value: Any, name: str, what: str = "") -> None:
    """Raise ValueError unless the value is one positive, finite number (of ``what``).

    >>> check_positive("small", "tol")
    Traceback (most recent call last):
    ...
    ValueError: tol must be a positive number; got 'small'.
    """
    if not isinstance(value, Real) or not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be a positive number{what}; got {value!r}.")


def check_level(value: Any, name: str) -> None:
    """Raise ValueError unless the value is one number between 0 and 1.

    >>> check_level(95, "level")
    Traceback (most recent call last):
    ...
    ValueError: level must be one number between 0 and 1; got 95.
    """
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        several = " Call it once for each." if np.ndim(value) else ""
        raise ValueError(f"{name} must be one number between 0 and 1; got {value!r}.{several}")


LEAST_SPREAD = 1e-149  # a length scale a thousandth as large still has a square, and its inverse too


def check_squares(X: NDArray[np.float64]) -> None:
    """Raise ValueError if squared distances between rows of X may overflow.

    >>> check_squares(np.array([[1e200]]))
    Traceback (most recent call last):
    ...
    ValueError: X must be of a size whose squares are finite; got values up to 1e+200. Divide the inputs by a constant.
    """
    with np.errstate(over="ignore"):
        if not np.isfinite(np.sum(np.square(np.abs(X).max(axis=0, initial=0.0)))):
            raise ValueError(
                f"X must be of a size whose squares are finite; got values up to {np.abs(X).max():.3g}. Divide the "
                "inputs by a constant."
            )


def check_spreads(X: NDArray[np.float64], called: Callable[[int], str] = "column {}".format) -> None:
    """Raise ValueError if squared distances between rows of X vanish in a column that is not constant.

    >>> check_spreads(np.array([[0.0], [1e-200]]))
    Traceback (most recent call last):
    ...
    ValueError: column 0 of X has values within 1e-200 of each other, whose squares are lost. Multiply it by a constant.
    """
    spread = np.ptp(X, axis=0) if len(X) else np.zeros(X.shape[1])
    lost = np.flatnonzero((spread > 0) & (spread < LEAST_SPREAD))
    if lost.size:
        j = int(lost[0])
        raise ValueError(
            f"{called(j)} of X has values within {spread[j]:.3g} of each other, whose "
            "squares are lost. Multiply it by a constant."
        )


def as_groups(groups: Any, n: int, of: str) -> NDArray:
    """The group of each of n rows ``of`` something, (n,), as labels of one type, none of them missing.

    >>> as_groups(["a", None], 2, "X")
    Traceback (most recent call last):
    ...
    ValueError: groups must have a label in every row; row 1 has none or NaN (1 such row(s)). Drop those rows.
    """
    out = as_array(groups, "groups")
    if out.shape != (n,):
        raise ValueError(f"groups must be one label for each of the {n} rows of {of}; got shape {out.shape}.")
    check_labels(np.asarray(groups, dtype=object), "groups")  # before NumPy makes text of NaN beside text
    return out


def check_labels(y: NDArray, name: str = "y") -> None:
    """Name labels that cannot be sorted: missing ones, text among numbers, dates.

    >>> check_labels(np.array(["a", 1], dtype=object))
    Traceback (most recent call last):
    ...
    ValueError: the labels in y must be of one type; got int and str. Try y.astype(str).
    """
    if y.dtype.kind in "cmM":
        raise ValueError(f"{name} must be labels (text, integers or booleans); got {y.dtype}. Try {name}.astype(str).")
    if y.dtype != object:
        return
    labels = y.ravel().tolist()
    # pandas.NA compared with itself is neither true nor false
    gaps = [label is None or type(label).__name__ == "NAType" or label != label for label in labels]
    if any(gaps):
        raise ValueError(
            Message(
                f"{name} must have a label in every row; row ",
                Row(gaps.index(True)),
                f" has none or NaN ({sum(gaps)} such row(s)). Drop those rows.",
            )
        )
    if len({isinstance(label, str) for label in labels}) > 1:
        kinds = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            f"the labels in {name} must be of one type; got {' and '.join(kinds)}. Try {name}.astype(str)."
        )
