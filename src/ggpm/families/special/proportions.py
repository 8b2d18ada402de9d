"""Sums without one part, log-softmax, lengths and ``log(1 + x) - x``: counts, compositions and vectors at any scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sum_of_others(x: Array) -> Array:
    """``sum_{k != j} x_k`` for every j of the last axis, x >= 0: no digits lost for the largest part.

    >>> sum_of_others(np.array([1.0, 1e-30]))
    array([1.e-30, 1.e+00])
    """
    top = np.expand_dims(x.argmax(axis=-1), -1)
    lifted = x.copy()
    np.put_along_axis(lifted, top, 0.0, axis=-1)
    rest = lifted.sum(axis=-1, keepdims=True)
    out = np.take_along_axis(x, top, axis=-1) + (rest - lifted)
    np.put_along_axis(out, top, rest, axis=-1)
    return out


def log_softmax(eta: Array) -> Array:
    """``eta - log sum exp eta`` over the last axis, accurate also for a probability next to one.

    >>> log_softmax(np.array([50.0, 0.0])) + np.array([np.exp(-50.0), 50.0])
    array([0., 0.])
    """
    top = np.expand_dims(eta.argmax(axis=-1), -1)
    z = eta - np.take_along_axis(eta, top, axis=-1)
    e = np.exp(z)
    np.put_along_axis(e, top, 0.0, axis=-1)
    return z - np.log1p(e.sum(axis=-1, keepdims=True))


def log1p_minus(x: Array) -> Array:
    """``log(1 + x) - x`` for x > -1.

    >>> float(log1p_minus(np.array(1e-10)))
    -4.99999999966...e-21
    """
    x = np.asarray(x, dtype=float)
    small = np.abs(x) < 0.3
    y = np.where(small, x, 0.0)
    s = y / (2.0 + y)  # log(1 + x) = 2 atanh(s), x = 2 s/(1 - s)
    atanh = np.polynomial.polynomial.polyval(s * s, 1.0 / np.arange(3.0, 25.0, 2.0))
    series = -s * y + 2.0 * s**3 * atanh
    return np.where(small, series, np.log1p(np.where(small, 0.0, x)) - x)


def length(x: Array) -> Array:
    """Euclidean length over the last axis, also where squares overflow or underflow.

    >>> length(np.array([[3.0, 4.0], [0.0, 4e200]]))
    array([5.e+000, 4.e+200])
    """
    first, *others = (x[..., j] for j in range(x.shape[-1]))
    with np.errstate(over="ignore", under="ignore"):
        square = first * first
        for other in others:
            square = square + other * other
    if np.all((square > 1e-280) & (square < 1e300)):
        return np.sqrt(square)
    out = np.abs(first)
    for other in others:
        out = np.hypot(out, other)
    return out
