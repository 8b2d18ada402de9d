"""Functions that the families need without the cancellation of their textbook forms.

Three groups: pieces of Stirling's formula (so that log-densities of large counts and high precisions are sums
of small terms), divergences that vanish quadratically, and the truncated normal distribution in its tails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, erfcx, gammaln, log_ndtr, ndtr, xlogy

Array = NDArray[np.float64]

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)

# numpy's Poisson generator ends near 9e18; from here on a count has no unit digit in float64 anyway
_POISSON_MAX = 1e18
# From here on the asymptotic series below are exact to rounding with the terms that are kept.
_LARGE = 15.0
# log z - psi(z) = 1/(2z) + sum_k B_2k / (2k z^2k), as (power, coefficient)
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
# stirling_error(z) = sum_k B_2k / (2k (2k-1) z^(2k-1)), powers 1, 3, 5, ...
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


# ---- pieces of Stirling's formula --------------------------------------------------------------------------
def stirling_error(z: Array) -> Array:
    """``log Gamma(z) - (z - 1/2) log z + z - log(2 pi)/2`` for z > 0: what Stirling's formula leaves.

    >>> float(stirling_error(np.array(1e8)).round(18))
    8.33333333e-10
    """

    def series(z: Array) -> Array:
        return _horner(1.0 / z**2, _STIRLING_SERIES) / z

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
    """Where a and b are close; there ``v = (a - b)/(a + b)`` and ``log(a/b) - 2v`` (v = 0 elsewhere)."""
    near = np.abs(diff) < 0.1 * (a + b)
    v = np.where(near, diff, 0.0) / np.where(near, a + b, 1.0)
    v2 = v * v
    tail = sum(v2**j / (2 * j + 1) for j in range(8, 0, -1))  # 0.1^18 is below rounding
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
    """
    near, v, tail = _near(a, b, diff)
    return np.where(near, diff * v / b - tail, diff / b - np.log(a / b))


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


# ---- truncated normal --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TruncatedNormal:
    """A standard normal variable s restricted to [lo, hi].

    log_mass : log P(lo < s < hi)
    mean, shrinkage, cumulant3 : E[s], 1 - Var[s] >= 0, third cumulant
    upper : N(hi)/P times (1, hi - E[s], (hi - E[s])^2 - Var[s]), stacked on the first axis: the derivatives
        of log P, of the mean and of the variance in the upper edge
    """

    log_mass: Array
    mean: Array
    shrinkage: Array
    cumulant3: Array
    upper: Array


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_NODES, _WEIGHTS = _NODES[16:], _WEIGHTS[16:]  # symmetric: the positive half
# weights times the powers 0 to 3 of the nodes, about the middle and about the near edge
_POWERS, _FROM_BELOW, _FROM_ABOVE = (_WEIGHTS * v ** np.arange(4)[:, None] for v in (_NODES, 1 + _NODES, 1 - _NODES))
# The far edge of an interval [a, b] has no effect in double precision once (b^2 - a^2)/2 is above this; up to
# there 32 Gauss-Legendre nodes integrate the density to rounding.
_FAR_EDGE = 50.0
_REMEMBERED = 10_000  # intervals whose moments are kept for the next call
_NODES_TOGETHER = 4096  # intervals whose nodes are in memory at once
# Beyond this many sd the cumulants of a one-sided tail are taken from the continued fraction of N(x)/Q(x); 60
# terms are more than it needs there.
_TAIL = 4.0
_TAIL_TERMS = 60


def _one_sided(x: Array) -> tuple[Array, ...]:
    """For s > x: log P, mean, 1 - Var, third cumulant, mean - x, (mean - x)^2 - Var, Var."""
    far = x >= _TAIL
    delta, gap_far, var_far = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    if far.any():
        # N(x)/Q(x) = x + 1/(x + 2/(x + 3/(x + ...))); delta, eps, zeta are its tails, numerators 1
        z = x[far]
        t = np.zeros_like(z)
        for k in range(_TAIL_TERMS, 3, -1):
            t = k / (z + t)
        zeta = 1.0 / (z + t)
        eps = 1.0 / (z + 3.0 * zeta)
        d = delta[far] = 1.0 / (z + 2.0 * eps)
        gap_far[far] = 2.0 * d**2 * eps * (3.0 * zeta - 2.0 * eps)
        var_far[far] = d * (2.0 * eps - d)

    y = np.where(far, _TAIL, x)
    pos, neg = np.maximum(y, 0.0), np.minimum(y, 0.0)
    ratio = np.where(
        y > 0,
        np.sqrt(2 / np.pi) / erfcx(pos / np.sqrt(2)),
        np.exp(-0.5 * neg**2 - HALF_LOG_2PI) / ndtr(-neg),
    )
    mean, d = np.where(far, x + delta, ratio), np.where(far, delta, ratio - y)
    shrinkage = mean * d
    var = np.where(far, var_far, 1.0 - shrinkage)
    gap = np.where(far, gap_far, d**2 - var)
    return log_ndtr(-x), mean, shrinkage, mean * gap, d, gap, var


def _narrow(c: Array, h: Array) -> tuple[Array, ...]:
    """For |s - c| < h by quadrature, c >= 0: log P, mean, 1 - Var, third cumulant, near edge (3), far (3).

    An edge is described as `TruncatedNormal.upper` is, with the distance to the mean for hi - E[s].
    """
    # moments about the middle are exact where the density is flat, those about c - h where it falls steeply
    sym, edge = np.empty((4, c.size)), np.empty((4, c.size))
    for start in range(0, c.size, _NODES_TOGETHER):
        piece = slice(start, start + _NODES_TOGETHER)
        t = h[piece] * _NODES[:, None]
        g = np.exp(-0.5 * t * t)
        rise = np.expm1(c[piece] * t)
        down, up = g / (1.0 + rise), g * (1.0 + rise)
        sym[0::2, piece] = _POWERS[0::2] @ (down + up)
        sym[1::2, piece] = _POWERS[1::2] @ (-g * (rise + rise / (1.0 + rise)))  # -2 g sinh(c t)
        edge[:, piece] = _FROM_BELOW @ down + _FROM_ABOVE @ up
    powers = h ** np.arange(4)[:, None]
    sym *= powers
    edge *= powers
    m0 = sym[0]
    m1, m2, m3 = (m / m0 for m in sym[1:])
    e1, e2, e3 = (e / m0 for e in edge[1:])
    steep = c * h > 1.0
    var = np.where(steep, e2 - e1**2, m2 - m1**2)
    k3 = np.where(steep, e3 - 3.0 * e1 * e2 + 2.0 * e1**3, m3 - 3.0 * m1 * m2 + 2.0 * m1**3)
    d_near, d_far = np.where(steep, e1, h + m1), np.where(steep, 2.0 * h - e1, h - m1)
    gap_near = np.where(steep, 2.0 * e1**2 - e2, d_near**2 - var)
    mean = np.where(steep, (c - h) + e1, c + m1)
    r_near, r_far = (np.exp(sign * c * h - 0.5 * h * h) / (h * m0) for sign in (1.0, -1.0))
    log_mass = -0.5 * c * c - HALF_LOG_2PI + np.log(h * m0)
    near = (r_near, r_near * d_near, r_near * gap_near)
    far = (r_far, r_far * d_far, r_far * (d_far**2 - var))
    return log_mass, mean, 1.0 - var, k3, *near, *far


def _straddling(a: Array, b: Array) -> tuple[Array, ...]:
    """What `_narrow` gives, for a < s < b with a < 0 < b and b - a > 2: all terms of 1 - Var are positive."""
    tails = ndtr(a) + ndtr(-b)
    mass = 1.0 - tails
    r_near, r_far = (np.exp(-0.5 * e * e - HALF_LOG_2PI) / mass for e in (a, b))
    mean = r_near - r_far
    shrinkage = mean**2 - a * r_near + b * r_far
    k3 = (a * a - 1.0) * r_near - (b * b - 1.0) * r_far + 3.0 * mean * shrinkage - mean**3
    d_near, d_far, var = mean - a, b - mean, 1.0 - shrinkage
    near = (r_near, r_near * d_near, r_near * (d_near**2 - var))
    far = (r_far, r_far * d_far, r_far * (d_far**2 - var))
    return np.log1p(-tails), mean, shrinkage, k3, *near, *far


def _sides(lo: Array, hi: Array, width: Array) -> tuple[NDArray, ...]:
    """The interval on the positive side, near edge a and far edge b, its middle c, and which formula suits it.

    Gives a, b, c, width, flip, ended, and the masks of one-sided, straddling and narrow intervals.
    """
    width = np.broadcast_to(width, lo.shape)
    twice = lo + hi
    flip = twice < 0
    a, b = np.where(flip, -hi, lo), np.where(flip, -lo, hi)
    c = 0.5 * np.abs(twice)
    ended = np.isinf(width)  # then c is infinite, too
    below = a < 0
    one = ended | (~below & (c * width > _FAR_EDGE))
    wide = below & (width > 2.0) & ~ended
    return a, b, c, width, flip, ended, one, wide, ~(one | wide)


def truncated_log_mass(lo: Array, hi: Array, width: Array) -> Array:
    """`TruncatedNormal.log_mass` alone.

    >>> truncated_log_mass(np.array([-31.0]), np.array([-30.0]), np.array([1.0])).round(6)
    array([-454.321244])
    """
    a, b, c, width, _, _, one, wide, rest = _sides(lo, hi, width)
    out = np.zeros(a.shape)
    if one.any():
        out[one] = log_ndtr(-a[one])
    if wide.any():
        out[wide] = np.log1p(-(ndtr(a[wide]) + ndtr(-b[wide])))
    if rest.any():
        middle, half = c[rest], 0.5 * width[rest]
        mass = np.zeros_like(middle)
        for start in range(0, middle.size, _NODES_TOGETHER):
            piece = slice(start, start + _NODES_TOGETHER)
            t = half[piece] * _NODES[:, None]
            mass[piece] = 2.0 * (_WEIGHTS @ (np.exp(-0.5 * t * t) * np.cosh(middle[piece] * t)))
        out[rest] = -0.5 * middle**2 - HALF_LOG_2PI + np.log(half * mass)
    return out


def remembers_last(function: Callable[..., TruncatedNormal]) -> Callable[..., TruncatedNormal]:
    """Keep the last result: evidence and gradient ask for the same few thousand numbers several times in a row."""
    last: tuple[tuple[Array, ...], TruncatedNormal] | None = None

    @wraps(function)
    def remembering(*arrays: Array) -> TruncatedNormal:
        nonlocal last
        known = last  # read once: another thread may replace it
        if known is not None and all(map(np.array_equal, known[0], arrays)):
            return known[1]
        result = function(*arrays)
        last = (arrays, result) if result.mean.size <= _REMEMBERED else None
        return result

    return remembering


@remembers_last
def truncated_normal(lo: Array, hi: Array, width: Array) -> TruncatedNormal:
    """Moments of a standard normal variable in [lo, hi], in either tail and for intervals of any width.

    ``width = hi - lo`` is passed because the caller knows it without rounding; lo or hi may be infinite.

    >>> one = truncated_normal(np.array([-31.0]), np.array([-30.0]), np.array([1.0]))
    >>> one.log_mass.round(6), one.mean.round(6)
    (array([-454.321244]), array([-30.03326]))
    """
    a, b, c, width, flip, ended, one, wide, rest = _sides(lo, hi, width)
    # rows: log P, mean, 1 - Var, cumulant 3, near edge (3), far edge (3)
    out = np.zeros((10, *a.shape))
    if one.any():
        log_mass, mean, shrinkage, k3, d, gap, var = _one_sided(a[one])
        w = np.where(ended[one], 0.0, width[one])
        lam = np.where(ended[one], 0.0, c[one]) * w
        r_far = np.where(ended[one], 0.0, mean * np.exp(-lam))  # N(b)/Q(a) = N(a)/Q(a) exp(-(b^2 - a^2)/2)
        near = (mean, mean * d, mean * gap)
        far = (r_far, r_far * (w - d), r_far * ((w - d) ** 2 - var))
        out[:, one] = np.stack([log_mass, mean, shrinkage, k3, *near, *far])
    if wide.any():
        out[:, wide] = np.stack(_straddling(a[wide], b[wide]))
    if rest.any():
        out[:, rest] = np.stack(_narrow(c[rest], 0.5 * width[rest]))

    sign = np.where(flip, -1.0, 1.0)
    upper = np.where(flip, out[4:7], out[7:10])
    return TruncatedNormal(out[0], sign * out[1], out[2], sign * out[3], upper)
