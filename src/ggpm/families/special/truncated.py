"""The normal distribution restricted to an interval: mass and moments, in either tail and for any width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

from ggpm.families.special.stable import HALF_LOG_2PI, otherwise

Array = NDArray[np.float64]


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
_NODES_TOGETHER = 4096  # intervals whose 16 nodes are in memory at once: half a megabyte per array
# Beyond this many sd the cumulants of a one-sided tail are taken from the continued fraction of N(x)/Q(x); 60
# terms are more than it needs there.
_TAIL = 4.0
_TAIL_TERMS = 60
# The mass of an interval is a difference of distribution functions where its near edge is below the first number and
# its width, times its middle if that is above one, above the second: two or three digits are lost at most.
_PLAIN = 10.0, 0.01


def _one_sided(x: Array) -> tuple[Array, ...]:
    """For s > x: log P, mean, 1 - Var, third cumulant, mean - x, (mean - x)^2 - Var, Var."""
    far = x >= _TAIL
    delta, gap_far, var_far = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    if far.any():
        # N(x)/Q(x) = x + 1/(x + 2/(x + 3/(x + ...))), Abramowitz and Stegun 26.2.14; delta, eps, zeta are its tails,
        # numerators 1
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
    """The same as `_narrow`, for a < s < b with a < 0 < b and b - a > 2: all terms of 1 - Var are positive."""
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


@dataclass(frozen=True)
class _Plain:
    """An interval as `_sides` has it, with its mass by differences of the distribution function."""

    a: Array
    b: Array
    flip: NDArray[np.bool_]
    tails: Array  # the mass outside, where a < 0
    mass: Array
    good: NDArray[np.bool_]  # where the difference keeps its digits

    @classmethod
    def of(cls, lo: Array, hi: Array, width: Array) -> _Plain:
        twice = lo + hi
        flip = twice < 0
        a, b = np.where(flip, -hi, lo), np.where(flip, -lo, hi)
        near, far = ndtr(-np.abs(a)), ndtr(-b)
        tails = near + far
        # for a narrow interval N(c) width is left of numbers of the size of N(c)/c or 1/2
        good = (a < _PLAIN[0]) & (width * np.maximum(0.5 * np.abs(twice), 1.0) > _PLAIN[1])
        return cls(a, b, flip, tails, np.where(a < 0, 1.0 - tails, near - far), good)

    @property
    def log_mass(self) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            out = np.asarray(np.log(self.mass))
        most = self.a < -1.0
        out[most] = np.log1p(-self.tails[most])
        return out

    def edges(self) -> tuple[Array, Array]:
        """Density at either edge, over the mass."""
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.exp(-HALF_LOG_2PI) / self.mass
            return np.exp(-0.5 * self.a**2) * scale, np.exp(-0.5 * self.b**2) * scale

    def mean(self, near: Array, far: Array) -> Array:
        """E[s], given the `edges`."""
        return np.where(self.flip, far - near, near - far)

    def shrinkage(self, near: Array, far: Array) -> Array:
        """1 - Var[s], given the `edges`."""
        return (near - far) ** 2 - self.a * near + np.where(np.isinf(self.b), 0.0, self.b) * far


def bin_masses(cuts: Array, shift: Array) -> Array:
    """Masses of the bins between ascending cut points for a standard normal variable plus ``shift``, (..., bins).

    >>> bin_masses(np.array([-1.0, 1.0]), np.array([0.0])).round(4)
    array([[0.1587, 0.6827, 0.1587]])
    """
    if np.any(np.diff(cuts) < _PLAIN[1]):
        edges = np.concatenate([[-np.inf], cuts, [np.inf]])
        lower, upper = edges[:-1], edges[1:]
        return np.exp(truncated_log_mass(lower - shift[..., None], upper - shift[..., None], upper - lower))
    out = np.empty((*shift.shape, cuts.size + 1))
    positive, tail = np.full(shift.shape, False), np.zeros(shift.shape)  # of the edge at minus infinity
    for j, cut in enumerate([*cuts, np.inf]):
        edge = cut - shift
        after, next_tail = edge > 0, ndtr(-np.abs(edge))
        # a bin around zero is what both tails leave; others are the difference of tails on one side
        out[..., j] = np.where(after & ~positive, 1.0 - (tail + next_tail), np.abs(tail - next_tail))
        positive, tail = after, next_tail
    return out


def truncated_log_mass(lo: Array, hi: Array, width: Array) -> Array:
    """`TruncatedNormal.log_mass` alone.

    >>> truncated_log_mass(np.array([-31.0]), np.array([-30.0]), np.array([1.0])).round(6)
    array([-454.321244])
    """
    plain = _Plain.of(lo, hi, width)
    return otherwise(plain.log_mass, plain.good, _careful_log_mass, lo, hi, width)


def truncated_log_mass_and_mean(lo: Array, hi: Array, width: Array) -> tuple[Array, Array]:
    """`TruncatedNormal.log_mass` and ``mean`` alone.

    >>> log_mass, mean = truncated_log_mass_and_mean(np.array([-31.0]), np.array([-30.0]), np.array([1.0]))
    >>> mean.round(6)
    array([-30.03326])
    """
    plain = _Plain.of(lo, hi, width)
    log_mass, mean = plain.log_mass, plain.mean(*plain.edges())
    if not plain.good.all():
        bad = ~plain.good
        careful = truncated_normal(lo[bad], hi[bad], np.broadcast_to(width, bad.shape)[bad])
        log_mass[bad], mean[bad] = careful.log_mass, careful.mean
    return log_mass, mean


def truncated_mean_and_shrinkage(lo: Array, hi: Array, width: Array) -> tuple[Array, Array]:
    """`TruncatedNormal.mean` and ``shrinkage`` alone.

    >>> mean, shrinkage = truncated_mean_and_shrinkage(np.array([0.0]), np.array([np.inf]), np.array([np.inf]))
    >>> mean.round(6), shrinkage.round(6)  # sqrt(2/pi) and 2/pi
    (array([0.797885]), array([0.63662]))
    """
    plain = _Plain.of(lo, hi, width)
    edges = plain.edges()
    mean, shrinkage = plain.mean(*edges), plain.shrinkage(*edges)
    if not plain.good.all():
        bad = ~plain.good
        careful = truncated_normal(lo[bad], hi[bad], np.broadcast_to(width, bad.shape)[bad])
        mean[bad], shrinkage[bad] = careful.mean, careful.shrinkage
    return mean, shrinkage


def _careful_log_mass(lo: Array, hi: Array, width: Array) -> Array:
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
