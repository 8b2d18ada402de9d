"""Sums without one part, softmax, lengths and ``log(1 + x) - x``: counts, compositions and vectors at any scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


# Sums of exp(eta - max) below which log(sum) loses more than one digit.
_DOMINATED = 1.1
_FEW = 16  # up to so many parts, one operation per part on long arrays beats reductions over a short last axis


def largest(x: Array) -> Array:
    """Maximum over the last axis.

    >>> largest(np.array([[1.0, 3.0, 2.0]]))
    array([3.])
    """
    if x.shape[-1] > _FEW:
        return x.max(axis=-1)
    out = x[..., 0].copy()
    for j in range(1, x.shape[-1]):
        np.maximum(out, x[..., j], out=out)
    return out


def sum_of_others(x: Array) -> Array:
    """``sum_{k != j} x_k`` for every j of the last axis, x >= 0: no digits lost for the largest part.

    >>> sum_of_others(np.array([1.0, 1e-30]))
    array([1.e-30, 1.e+00])
    """
    d = x.shape[-1]
    if d <= _FEW:  # the sum of the parts before, and that of the parts after
        out, run = np.zeros(x.shape), x[..., 0]
        for j in range(1, d):
            out[..., j], run = run, run + x[..., j]
        run = x[..., d - 1]
        for j in range(d - 2, -1, -1):
            out[..., j] += run
            run = run + x[..., j]
        return out
    top = np.expand_dims(x.argmax(axis=-1), -1)
    lifted = x.copy()
    np.put_along_axis(lifted, top, 0.0, axis=-1)
    rest = lifted.sum(axis=-1, keepdims=True)
    out = np.take_along_axis(x, top, axis=-1) + (rest - lifted)
    np.put_along_axis(out, top, rest, axis=-1)
    return out


def softmax(eta: Array) -> Array:
    """``exp(eta)/sum exp(eta)`` over the last axis.

    >>> softmax(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    """
    out = eta - np.expand_dims(largest(eta), -1)
    np.exp(out, out=out)
    out *= np.expand_dims(1.0 / (out @ np.ones(out.shape[-1])), -1)
    return out


def log_softmax(eta: Array) -> Array:
    """``eta - log sum exp eta`` over the last axis, accurate also for a probability next to one.

    >>> log_softmax(np.array([50.0, 0.0])) + np.array([np.exp(-50.0), 50.0])
    array([0., 0.])
    """
    z = eta - np.expand_dims(largest(eta), -1)
    total = np.asarray(np.exp(z) @ np.ones(z.shape[-1]))
    log_total = np.asarray(np.log(total))
    lost = total < _DOMINATED
    if lost.any():  # the sum without one largest part, where that is nearly all
        few = z[lost]
        below = few < 0
        log_total[lost] = np.log1p(np.where(below, np.exp(few), 0.0).sum(axis=-1) + ((~below).sum(axis=-1) - 1.0))
    return z - np.expand_dims(log_total, -1)


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
