"""Derivatives of log Gamma without cancellation: trigamma, its slope, increments, and gaps between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammainc, gammaincc

from ggpm.families.special.log_gamma import LogGamma1p
from ggpm.families.special.stable import HALF_LOG_2PI, linear_minus_log, stirling_error

Array = NDArray[np.float64]

_NODES, _WEIGHTS = (0.5 * v for v in np.polynomial.legendre.leggauss(10))
_NODES = _NODES + 0.5  # on [0, 1]
# Below exp(-400) series stand for SciPy's functions, which end at exp(-745); so many terms serve there.
UNDERFLOW, TAIL_TERMS = -400.0, 100


def trigamma(x: Array) -> Array:
    """psi1(x) for x > 0.

    >>> float(trigamma(np.array(1.0)).round(12))
    1.644934066848
    """
    with np.errstate(over="ignore", divide="ignore"):
        return LogGamma1p(x).trigamma + (1.0 / x) ** 2


def tetragamma(x: Array) -> Array:
    """psi2(x) for x > 0.

    >>> float(tetragamma(np.array(1.0)).round(12))
    -2.404113806319
    """
    with np.errstate(over="ignore", divide="ignore"):
        return LogGamma1p(x).tetragamma - 2.0 * (1.0 / x) ** 3


def trigamma_excess(x: Array) -> Array:
    """``x^2 psi1(x) - x``: 1 at x = 0, 1/2 for large x, where the difference itself has no digits.

    >>> trigamma_excess(np.array([0.0, 1e9])).round(9)
    array([1. , 0.5])
    """
    return LogGamma1p(x).excess


def digamma_increment(x: Array, delta: Array) -> Array:
    """``psi0(x + delta) - psi0(x)`` for x > 0, delta >= 0, also where delta is far below x.

    >>> float(digamma_increment(np.array(1.0), np.array(1.0)))
    1.0
    """
    x, delta = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(delta, dtype=float))
    out = np.asarray(digamma(x + delta) - digamma(x))
    close = delta < 0.5 * x
    # psi1 has no singularity within twice the interval: ten nodes integrate it to rounding
    lo, width = x[close], delta[close]
    out[close] = width * (trigamma(lo[:, None] + width[:, None] * _NODES) @ _WEIGHTS)
    return out


def information_gap(alpha: Array) -> Array:
    """``1 - sum_j psi1(S)/psi1(alpha_j)``, S = sum_j alpha_j, over the last axis: positive, all digits kept.

    It decides whether the expected curvature of a Dirichlet is positive definite, and it is of order 1/S for
    large alpha and of the order of the smaller parts when one part dominates.

    >>> float(information_gap(np.array([1e9, 1e9])) * 1e9)  # (d - 1)/(2 S) for large alpha
    0.25
    """
    shape = alpha.shape[:-1]
    a = alpha.reshape(-1, alpha.shape[-1])
    rows = np.arange(len(a))
    top = a.argmax(axis=-1)
    largest = a[rows, top]
    others = a.copy()
    others[rows, top] = 0.0
    rest = others.sum(axis=-1)
    S = largest + rest
    # With g = 1/psi1 the gap is psi1(S) [g(S) - g(largest) - sum g(others)]. For S >= 1 the linear part of g
    # cancels exactly and is taken out; everything is scaled by S^2 below, where g(x) is about x^2.
    linear = S >= 1.0
    scale = np.where(linear, 1.0, S)

    def g(x: Array, linear: NDArray[np.bool_], scale: Array) -> Array:
        excess = trigamma_excess(x)
        shifted = -x * excess / (x + excess)  # 1/psi1(x) - x
        return np.where(linear, shifted, (x / scale) ** 2 / (x + excess))

    def g_slope(x: Array, linear: NDArray[np.bool_], scale: Array) -> Array:
        square = x + trigamma_excess(x)  # x^2 psi1(x)
        value = (2.0 - x**3 * tetragamma(1.0 + x)) / square**2  # g'(x)/x = -psi2/(x psi1^2)
        return np.where(linear, value * x - 1.0, value * x / scale) / scale

    step = g(S, linear, scale) - g(largest, linear, scale)
    close = rest < np.where(linear, np.minimum(0.5 * largest, 1.0), 0.5 * largest)
    lo, width = largest[close, None], rest[close, None]
    nodes = g_slope(lo + width * _NODES, linear[close, None], scale[close, None])
    step[close] = rest[close] * (nodes @ _WEIGHTS)
    inner = step - g(others, linear[:, None], scale[:, None]).sum(axis=-1)
    head = (S + trigamma_excess(S)) / np.where(linear, S, 1.0) ** 2  # psi1(S), times S^2 below 1
    return (head * inner).reshape(shape)


def log_gamma_tails(k: Array | float, x: Array) -> tuple[Array, Array]:
    """Logarithms of the regularised incomplete gamma functions P(k, x) and Q(k, x), also where these underflow.

    >>> P, Q = log_gamma_tails(1.0, np.array([1e-200, 2000.0]))
    >>> P.round(6), Q.round(6)
    (array([-460.517019,   -0.      ]), array([   -0., -2000.]))
    """
    k, x = np.broadcast_arrays(np.asarray(k, dtype=float), np.asarray(x, dtype=float))
    with np.errstate(divide="ignore"):
        log_P, log_Q = np.log(gammainc(k, x)), np.log(gammaincc(k, x))
    log_P = np.where(log_Q < -1.0, np.log1p(-np.exp(np.minimum(log_Q, -1.0))), log_P)
    log_Q = np.where(log_P < -1.0, np.log1p(-np.exp(np.minimum(log_P, -1.0))), log_Q)
    few, many = log_P < UNDERFLOW, log_Q < UNDERFLOW
    if few.any():
        # x^k e^-x / Gamma(k + 1) (1 + x/(k + 1) + x²/((k + 1)(k + 2)) + ...), DLMF 8.7.1
        s, t = k[few], x[few]
        term = total = np.ones_like(t)
        for n in range(1, TAIL_TERMS):
            term = term * t / (s + n)
            total = total + term
        log_P = log_P.copy()
        log_P[few] = _log_peak(s, t) - np.log(s) + np.log(total)
    if many.any():
        s, t = k[many], x[many]
        log_Q = log_Q.copy()
        log_Q[many] = _log_peak(s, t) - np.log(t + 1.0 - s - _fraction(s, t))
    return log_P, log_Q


def gamma_hazard(k: Array | float, x: Array) -> tuple[Array, Array]:
    """``r = x^k e^-x / Gamma(k, x)`` and ``r - (x - k)``, which in the tail is 1 + (k - 1)/x and keeps its digits.

    >>> gamma_hazard(1.0, np.array([1e12]))
    (array([1.e+12]), array([1.]))
    """
    k, x = np.broadcast_arrays(np.asarray(k, dtype=float), np.asarray(x, dtype=float))
    r = np.exp(_log_peak(k, x) - log_gamma_tails(k, x)[1])
    over = r - (x - k)
    tail = x > 30.0 + 3.0 * k  # TAIL_TERMS of the fraction are enough for all digits there
    if tail.any():
        s, t = k[tail], x[tail]
        over[tail] = 1.0 - _fraction(s, t)
        r[tail] = t - s + over[tail]
    return r, over


def _fraction(k: Array, x: Array) -> Array:
    """x + 1 - k less x^k e^-x / Gamma(k, x), a continued fraction (DLMF 8.9.2)."""
    fraction = np.zeros_like(x)
    for n in range(TAIL_TERMS, 0, -1):
        fraction = n * (n - k) / (x + 2.0 * n + 1.0 - k - fraction)
    return fraction


def _log_peak(k: Array, x: Array) -> Array:
    """log of x^k e^-x / Gamma(k), by Stirling's formula: no large terms that cancel."""
    return 0.5 * np.log(k) - HALF_LOG_2PI - stirling_error(k) - k * linear_minus_log(x, k, x - k)
