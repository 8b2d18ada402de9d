"""Bessel functions for directions, without cancellation over the whole range that a latent vector can reach.

With ``I_nu`` the modified Bessel function of the first kind, the log-normaliser of the von
Mises–Fisher family in d dimensions is ``log I_nu(k) - nu log k``, nu = d/2 - 1 (nu = 0 for angles). Its first
three derivatives in k are the ratio ``A = I_{nu+1}/I_nu``, ``A'`` and ``A''``. For large k they are
differences of almost equal numbers: there the asymptotic series of A is differentiated term by term. Below, a
backward recurrence over the orders runs for the differences themselves.

All functions are vectorised and take float arrays.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ive

Array = NDArray[np.float64]

_TERMS = 18  # of the asymptotic series: at the smallest k where it is used, the next term is below 1e-17


class CarefulRatio(NamedTuple):
    """``A = I_{nu+1}(k)/I_nu(k)`` and what follows from it; in the paper's notation c2 = -rho.

    >>> careful_bessel_ratio(0.0, np.zeros(1)).c1  # A is about k/2 near zero
    array([0.5])
    """

    A: Array  # b'(k): the mean resultant length
    one_minus_A: Array
    c1: Array  # A/k: curvature across the direction
    slope: Array  # A' = c1 - rho: curvature along the direction
    rho: Array  # c1 - A'
    slope_over_c1: Array  # A'/c1 = 1 - rho/c1: `RankOne.gap` of the curvature
    c1_slope: Array  # dc1/dk = -rho/k
    A_second: Array  # A''


def careful_bessel_ratio(nu: float, k: Array) -> CarefulRatio:
    """``I_{nu+1}(k)/I_nu(k)`` for k >= 0 with its derivatives, each to about 1e-13 relative.

    >>> bool(np.isclose(careful_bessel_ratio(0.5, np.array(2.0)).A, 1 / np.tanh(2.0) - 0.5))
    True
    """
    k = np.asarray(k, dtype=float)
    flat = k.ravel()
    out = np.full((len(CarefulRatio._fields), flat.size), np.nan)
    far = _far(nu)
    low = 0.0
    for high in [*_edges(far), math.inf]:
        here = np.flatnonzero((flat >= low) & (flat < high))
        if here.size:
            # groups of similar k, so that small k do not pay for the long recurrence of large k
            part = _ratio_far(nu, flat[here]) if high == math.inf else _ratio_near(nu, flat[here], high)
            out[:, here] = part
        low = high
    return CarefulRatio(*out.reshape(len(out), *k.shape))


def _far(nu: float) -> float:
    """Border from which the asymptotic series is taken: it goes in powers of nu^2/k, and of 1/k for small nu."""
    return max(30.0, 2.5 * (nu + 2.0) ** 2)


def _edges(far: float) -> list[float]:
    edges, edge = [], 2.0
    while edge < far / 2:
        edges.append(edge)
        edge *= 4.0
    return [*edges, far]


@lru_cache(maxsize=64)
def _asymptotic(nu: float) -> tuple[float, ...]:
    """Coefficients r_j of ``A = sum_j r_j k^-j``, from the Riccati equation A' = 1 - A^2 - (2 nu + 1) A/k.

    The equation follows from DLMF 10.29.2.
    """
    a = 2 * Fraction(nu) + 1
    r = [Fraction(1)]
    for j in range(1, _TERMS + 1):
        r.append(((j - 1 - a) * r[j - 1] - sum(r[i] * r[j - i] for i in range(1, j))) / 2)
    return tuple(float(v) for v in r)


def _ratio_far(nu: float, k: Array) -> CarefulRatio:
    x, r = 1.0 / k, np.array(_asymptotic(nu))
    j = np.arange(r.size)
    tail = np.polynomial.polynomial.polyval(x, r[1:])  # (A - 1) k
    A = 1.0 + x * tail
    c1 = A * x
    falling = -np.polynomial.polynomial.polyval(x, (j * r)[1:])  # A' k^2
    rho = x * np.polynomial.polynomial.polyval(x, (1 + j) * r)
    A_second = x**3 * np.polynomial.polynomial.polyval(x, (j * (j + 1) * r)[1:])
    return CarefulRatio(A, -x * tail, c1, x * x * falling, rho, x * falling / A, -x * rho, A_second)


def _ratio_near(nu: float, k: Array, k_max: float) -> CarefulRatio:
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
    slope_over_c1 = 1.0 - t * D
    A_second = -k * p * (3.0 * D - t * (2.0 * D * D + p1 * E))
    return CarefulRatio(k * p, 1.0 - k * p, p, p * slope_over_c1, t * p * D, slope_over_c1, -k * p * D, A_second)


def careful_log_bessel(nu: float, k: Array) -> Array:
    """``log[Gamma(nu + 1) (2/k)^nu I_nu(k)] - k``: zero at k = 0, about ``-(nu + 1/2) log k`` for large k.

    >>> float(careful_log_bessel(0.0, np.array(0.0)))
    0.0
    """
    k = np.asarray(k, dtype=float)
    flat = k.ravel()
    out = np.full_like(flat, np.nan)
    constant = float(gammaln(nu + 1.0))
    near, far = flat <= 2.0 * math.sqrt(nu + 1.0), flat >= _far(nu)
    middle = ~(near | far | np.isnan(flat))
    # near: the power series (DLMF 10.25.2) in x = k^2/4 <= nu + 1, whose terms fall like 1/j!
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
