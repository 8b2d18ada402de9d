"""Special functions without cancellation, over the whole range that a latent vector can reach.

*Directions.* With ``I_nu`` the modified Bessel function of the first kind, the log-normaliser of the von
Mises–Fisher family in d dimensions is ``log I_nu(k) - nu log k``, nu = d/2 - 1 (nu = 0 for angles). Its first
three derivatives in k are the ratio ``A = I_{nu+1}/I_nu``, ``A'`` and ``A''``. For large k they are
differences of almost equal numbers: there the asymptotic series of A is differentiated term by term. Below, a
backward recurrence over the orders runs for the differences themselves.

*Proportions.* Sums without one part and log-softmax, for densities of counts and compositions at any scale.

All functions are vectorised and take float arrays.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, ive, zeta

Array = NDArray[np.float64]

_TERMS = 18  # of the asymptotic series: at the smallest k where it is used, the next term is below 1e-17


# ---- Bessel functions ------------------------------------------------------------------------------------
class BesselRatio(NamedTuple):
    """``A = I_{nu+1}(k)/I_nu(k)`` and what follows from it; in the paper's notation c2 = -rho."""

    A: Array  # b'(k): the mean resultant length
    lack: Array  # 1 - A
    c1: Array  # A/k
    slope: Array  # A' = c1 - rho: curvature along the direction
    rho: Array  # c1 - A'
    gap: Array  # A'/c1 = 1 - rho/c1
    c1_slope: Array  # dc1/dk = -rho/k
    bend: Array  # A''


def bessel_ratio(nu: float, k: Array) -> BesselRatio:
    """``I_{nu+1}(k)/I_nu(k)`` for k >= 0 with its derivatives, each to about 1e-13 relative.

    >>> bool(np.isclose(bessel_ratio(0.5, np.array(2.0)).A, 1 / np.tanh(2.0) - 0.5))
    True
    """
    k = np.asarray(k, dtype=float)
    flat = k.ravel()
    out = np.full((len(BesselRatio._fields), flat.size), np.nan)
    far = _far(nu)
    low = 0.0
    for high in [*_edges(far), math.inf]:
        here = np.flatnonzero((flat >= low) & (flat < high))
        if here.size:
            # groups of similar k, so that small k do not pay for the long recurrence of large k
            part = _ratio_far(nu, flat[here]) if high == math.inf else _ratio_near(nu, flat[here], high)
            out[:, here] = part
        low = high
    return BesselRatio(*out.reshape(len(out), *k.shape))


def _far(nu: float) -> float:
    """Where the asymptotic series takes over: it converges in powers of nu^2/k, and of 1/k for small nu."""
    return max(30.0, 2.5 * (nu + 2.0) ** 2)


def _edges(far: float) -> list[float]:
    edges, edge = [], 2.0
    while edge < far / 2:
        edges.append(edge)
        edge *= 4.0
    return [*edges, far]


@lru_cache(maxsize=64)
def _asymptotic(nu: float) -> tuple[float, ...]:
    """Coefficients r_j of ``A = sum_j r_j k^-j``, from the Riccati equation A' = 1 - A^2 - (2 nu + 1) A/k."""
    a = 2 * Fraction(nu) + 1
    r = [Fraction(1)]
    for j in range(1, _TERMS + 1):
        r.append(((j - 1 - a) * r[j - 1] - sum(r[i] * r[j - i] for i in range(1, j))) / 2)
    return tuple(float(v) for v in r)


def _ratio_far(nu: float, k: Array) -> BesselRatio:
    x, r = 1.0 / k, np.array(_asymptotic(nu))
    j = np.arange(r.size)
    tail = np.polynomial.polynomial.polyval(x, r[1:])  # (A - 1) k
    A = 1.0 + x * tail
    c1 = A * x
    falling = -np.polynomial.polynomial.polyval(x, (j * r)[1:])  # A' k^2
    rho = x * np.polynomial.polynomial.polyval(x, (1 + j) * r)
    bend = x**3 * np.polynomial.polynomial.polyval(x, (j * (j + 1) * r)[1:])
    return BesselRatio(A, -x * tail, c1, x * x * falling, rho, x * falling / A, -x * rho, bend)


def _ratio_near(nu: float, k: Array, k_max: float) -> BesselRatio:
    """Backward recurrence over the order m for p_m = I_{m+1}/(k I_m), its first and its second difference.

    D_m = p_m - p_{m+1} and E_m = D_m - D_{m+1} have recurrences of their own, in which only numbers of
    different size are subtracted; errors in the starting values shrink like those of p.
    """
    t = k * k
    start, shrink = nu, 0.0
    while shrink > -42.0:  # e^-42 < 1e-18: what is left of an error of order one in the starting values
        shrink += 2.0 * math.log(k_max / (start + 0.5 + math.hypot(start + 1.5, k_max)))
        start += 1.0

    def bound(m: float) -> Array:
        return 1.0 / (m + 0.5 + np.sqrt((m + 1.5) ** 2 + t))  # Amos 1974, lower bound of p_m

    p, p1, p2 = bound(start), bound(start + 1.0), bound(start + 2.0)
    D, E = p - p1, p - 2.0 * p1 + p2
    for m in np.arange(start - 1.0, nu - 0.5, -1.0):
        p1, p2 = p, p1
        p = 1.0 / (2.0 * (m + 1.0) + t * p1)
        rest = 2.0 - t * D  # t D < 1 tends to 1 for large k: no digits lost
        D, D1 = p * p1 * rest, D
        E = p1 * ((D + D1) * rest - t * p2 * E)
    gap = 1.0 - t * D
    bend = -k * p * (3.0 * D - t * (2.0 * D * D + p1 * E))
    return BesselRatio(k * p, 1.0 - k * p, p, p * gap, t * p * D, gap, -k * p * D, bend)


def log_bessel(nu: float, k: Array) -> Array:
    """``log[Gamma(nu + 1) (2/k)^nu I_nu(k)] - k``: zero at k = 0, about ``-(nu + 1/2) log k`` for large k.

    >>> float(log_bessel(0.0, np.array(0.0)))
    0.0
    """
    k = np.asarray(k, dtype=float)
    flat = k.ravel()
    out = np.full_like(flat, np.nan)
    constant = float(gammaln(nu + 1.0))
    near, far = flat <= 2.0 * math.sqrt(nu + 1.0), flat >= _far(nu)
    middle = ~(near | far | np.isnan(flat))
    # near: the power series in x = k^2/4 <= nu + 1, whose terms fall like 1/j!
    x = flat[near] ** 2 / 4.0
    term, total = np.ones_like(x), np.zeros_like(x)
    for j in range(1, 26):
        term = term * x / (j * (nu + j))
        total = total + term
    out[near] = np.log1p(total) - flat[near]
    out[middle] = constant - nu * np.log(flat[middle] / 2.0) + _log_ive(nu, flat[middle])
    # far: Hankel's expansion of sqrt(2 pi k) e^-k I_nu(k), DLMF 10.40.1
    x = flat[far]
    term, total = np.ones_like(x), np.zeros_like(x)
    for j in range(1, _TERMS + 1):
        term = term * ((2 * j - 1) ** 2 - 4.0 * nu * nu) / (8.0 * j) / x
        total = total + term
    head = constant + nu * math.log(2.0) - 0.5 * math.log(2.0 * math.pi)
    out[far] = head - (nu + 0.5) * np.log(x) + np.log1p(total)
    return out.reshape(k.shape)


def _log_ive(nu: float, k: Array) -> Array:
    """``log I_nu(k) - k``; where I_nu underflows (nu in the hundreds) by Debye's expansion, DLMF 10.41.3."""
    value = ive(nu, k)
    if np.all(value > 1e-280):
        return np.log(value)
    root = np.sqrt(nu * nu + k * k)
    s = nu / root
    series = 1.0 + (3 * s - 5 * s**3) / (24 * nu) + (81 * s**2 - 462 * s**4 + 385 * s**6) / (1152 * nu**2)
    series += (30375 * s**3 - 369603 * s**5 + 765765 * s**7 - 425425 * s**9) / (414720 * nu**3)
    exponent = nu * nu / (root + k) - nu * np.arcsinh(nu / k)  # nu^2/(root + k) = root - k
    debye = exponent - 0.5 * np.log(2.0 * math.pi * root) + np.log(series)
    return np.where(value > 1e-280, np.log(np.maximum(value, 1e-300)), debye)


# ---- gamma functions -------------------------------------------------------------------------------------
# B_2k / (2k (2k-1)): Stirling's series for log Gamma; times (2k-1) and (2k-1) 2k those of its derivatives
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_NODES, _WEIGHTS = (0.5 * v for v in np.polynomial.legendre.leggauss(10))
_NODES = _NODES + 0.5  # on [0, 1]


def trigamma(x: Array) -> Array:
    """psi1(x) for x > 0, without the detours of `scipy.special.polygamma`.

    >>> float(trigamma(np.array(1.0)).round(12))
    1.644934066848
    """
    return zeta(2.0, x)


def tetragamma(x: Array) -> Array:
    """psi2(x) for x > 0.

    >>> float(tetragamma(np.array(1.0)).round(12))
    -2.404113806319
    """
    return -2.0 * zeta(3.0, x)


def trigamma_excess(x: Array) -> Array:
    """``x^2 psi1(x) - x``: 1 at x = 0, 1/2 for large x, where the difference itself has no digits."""
    x = np.asarray(x, dtype=float)
    large = np.maximum(x, 10.0)
    bernoulli = [(2 * k + 1) * (2 * k + 2) * c for k, c in enumerate(_STIRLING)]
    series = 0.5 + np.polynomial.polynomial.polyval(large**-2.0, bernoulli) / large
    small = np.minimum(x, 10.0)
    return np.where(x > 10.0, series, 1.0 - small + small**2 * trigamma(1.0 + small))


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


# ---- proportions -----------------------------------------------------------------------------------------
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
