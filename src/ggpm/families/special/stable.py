"""Functions that the families need without the cancellation of their textbook forms.

Pieces of Stirling's formula, so that log-densities of large counts and high precisions are sums of small terms, and
divergences that vanish quadratically.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, xlogy

Array = NDArray[np.float64]

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)

# numpy's Poisson generator ends near 9e18; from here on a count has no unit digit in float64 anyway
_POISSON_MAX = 1e18
# From here on the asymptotic series below are exact to rounding with the terms that are kept.
_LARGE = 15.0
# log z - psi(z) = 1/(2z) + sum_k B_2k / (2k z^2k), as (power, coefficient): DLMF 5.11.2
_DIGAMMA_SERIES = (
    (1, 1 / 2),
    (2, 1 / 12),
    (4, -1 / 120),
    (6, 1 / 252),
    (8, -1 / 240),
    (10, 1 / 132),
    (12, -691 / 32760),
    (14, 1 / 12),
)
# stirling_error(z) = sum_k B_2k / (2k (2k-1) z^(2k-1)), powers 1, 3, 5, ...: DLMF 5.11.1
_STIRLING_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


_DIGAMMA_EVEN = tuple(c for _, c in _DIGAMMA_SERIES[1:])  # of z^-2, z^-4, ...


def _horner(x: Array, coefficients: tuple[float, ...]) -> Array:
    out = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        out *= x
        out += c
    return out


def _by_size(z: Array, series: Callable[[Array], Array], direct: Callable[[Array], Array]) -> Array:
    """``series(z)`` where z is large, ``direct(z)`` elsewhere; neither is computed for nothing."""
    z = np.asarray(z, dtype=float)
    large = z >= _LARGE
    if large.all():
        return series(z)
    if not large.any():
        return direct(z)
    return np.where(large, series(np.maximum(z, _LARGE)), direct(np.minimum(z, _LARGE)))


def moderate(size: Array) -> NDArray[np.bool_]:
    """Tell which counts and precisions are so small that log p may be written with log Gamma directly.

    Its terms are then below 1500, rounded to 2e-13; beyond, they are combined so that nothing large cancels.

    >>> moderate(np.array([1.0, 200.0, 1e3]))
    array([ True,  True, False])
    """
    return np.asarray(size) <= 256.0


def otherwise(value: Array, good: NDArray[np.bool_], careful: Callable[..., Array], *arguments: Array) -> Array:
    """``value``, but ``careful(*arguments)`` where it is not good; all broadcast, and what is good costs nothing.

    >>> otherwise(np.array([1.0, 2.0]), np.array([True, False]), np.negative, np.array([5.0, 6.0]))
    array([ 1., -6.])
    """
    if good.all():
        return value
    bad = np.broadcast_to(~good, value.shape)
    out = np.array(value)
    out[bad] = careful(*(np.broadcast_to(a, value.shape)[bad] for a in arguments))
    return out


# ---- pieces of Stirling's formula --------------------------------------------------------------------------
def stirling_error(z: Array) -> Array:
    """``log Gamma(z) - (z - 1/2) log z + z - log(2 pi)/2`` for z > 0: what Stirling's formula leaves.

    >>> float(stirling_error(np.array(1e8)).round(18))
    8.33333333e-10
    """

    def series(z: Array) -> Array:
        return _horner((1.0 / z) ** 2, _STIRLING_SERIES) / z

    def direct(z: Array) -> Array:
        return gammaln(z + 1.0) - (z + 0.5) * np.log(z) + z - HALF_LOG_2PI

    return _by_size(z, series, direct)


def log_minus_digamma1p(z: Array) -> Array:
    """``log z - psi(1 + z)`` for z > 0; it is negative, -> log z as z -> 0 and -> -1/(2z) as z -> inf.

    >>> float(log_minus_digamma1p(np.array(1e8)).round(17))
    -4.99999999e-09
    """

    def series(z: Array) -> Array:
        w = 1.0 / z
        return w * (w * _horner(w * w, _DIGAMMA_EVEN) - 0.5)

    return _by_size(z, series, lambda z: np.log(z) - digamma(1.0 + z))


def log_minus_digamma(z: Array) -> Array:
    """``log z - psi(z)`` for z > 0; positive, -> 1/z as z -> 0 and -> 1/(2z) as z -> inf.

    >>> float(log_minus_digamma(np.array(1.0)).round(12))
    0.577215664902
    """
    return log_minus_digamma1p(z) + 1.0 / z


def digamma_drop(z: Array, step: Array) -> Array:
    """``[log z - psi(z)] - [log(z + step) - psi(z + step)]`` for z > 0, step >= 0, also for step << z.

    >>> round(float(digamma_drop(np.array(1e15), np.array(1.0))) * 1e30, 12)
    0.5
    """
    big, small = np.maximum(z, _LARGE), np.minimum(z, _LARGE)
    log_ratio = np.log1p(step / big)
    series = sum(c * big ** (-p) * -np.expm1(-p * log_ratio) for p, c in _DIGAMMA_SERIES)
    return np.where(z >= _LARGE, series, log_minus_digamma(small) - log_minus_digamma(small + step))


# ---- divergences that vanish quadratically -----------------------------------------------------------------
def _near(a: Array, b: Array, diff: Array) -> tuple[NDArray[np.bool_], Array, Array]:
    """Mask of a close to b; there ``v = (a - b)/(a + b)`` and ``log(a/b) - 2v`` (v = 0 elsewhere)."""
    near = np.abs(diff) < 0.1 * (a + b)
    v = np.where(near, diff, 0.0) / np.where(near, a + b, 1.0)
    v2 = v * v
    tail = np.zeros_like(v2)
    for j in range(8, 0, -1):  # sum_j v^2j/(2 j + 1): 0.1^18 is below rounding
        tail += 1.0 / (2 * j + 1)
        tail *= v2
    return near, v, 2.0 * v * tail


def excess_log(a: Array, b: Array, diff: Array | None = None, log_b: Array | None = None) -> Array:
    """``a log(a/b) - (a - b)`` >= 0 for a, b >= 0 (Loader's bd0); its sum over parts is KL(a || b).

    ``diff = a - b`` may be given where it has more digits than the difference, ``log_b`` where b underflows.

    >>> float(excess_log(np.array(1e8 + 1), np.array(1e8), np.array(1.0)).round(20))
    4.99999998333e-09
    >>> excess_log(np.array([0.0, 0.5]), np.array([0.25, 0.5]))
    array([0.25, 0.  ])
    """
    diff = a - b if diff is None else diff
    near, v, tail = _near(a, b, diff)
    with np.errstate(invalid="ignore", divide="ignore"):  # 0 * -inf, where a = 0 has no cost
        far = np.where(a > 0, xlogy(a, a) - a * (np.log(b) if log_b is None else log_b), 0.0) - diff
    return np.where(near, diff * v + a * tail, far)


def linear_minus_log(a: Array, b: Array, diff: Array) -> Array:
    """``(a - b)/b - log(a/b)`` >= 0 for a, b > 0, given ``diff = a - b``.

    >>> float(linear_minus_log(np.array(1e8 + 1), np.array(1e8), np.array(1.0)).round(24))
    5e-17
    >>> float(linear_minus_log(np.array(1e-200), np.array(1e200), np.array(-1e200)).round(2))
    920.03
    """
    near, v, tail = _near(a, b, diff)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # a ratio or b beyond the floats
        ratio = a / b
        far = diff / b - np.where(ratio > 0, np.log(ratio), np.log(a) - np.log(b))
        return np.where(near, diff * v / b - tail, far)


def bernoulli_kl(p: Array, pc: Array, q: Array, qc: Array, log_q: Array, log_qc: Array) -> Array:
    """``p log(p/q) + (1-p) log((1-p)/(1-q))``, with the complements ``pc = 1 - p``, ``qc = 1 - q`` given.

    >>> a, b = np.array(0.5 + 1e-9), np.array(0.5 - 1e-9)
    >>> float(bernoulli_kl(a, b, np.array(0.5), np.array(0.5), np.log(0.5), np.log(0.5)).round(22))
    2e-18
    """
    diff = np.where(p + q < pc + qc, p - q, qc - pc)  # from the side that carries the digits
    # the linear terms of the two cancel, and neither part is negative
    return excess_log(p, q, diff, log_q) + excess_log(pc, qc, -diff, log_qc)


# ---- draws ---------------------------------------------------------------------------------------------------
def poisson_draws(rate: Array, rng: np.random.Generator) -> Array:
    """Poisson counts; for rates beyond the generator's integers the rate itself, whose relative sd is below 1e-9."""
    counts = rng.poisson(np.minimum(rate, _POISSON_MAX)).astype(float)
    return np.where(rate < _POISSON_MAX, counts, np.round(rate))
