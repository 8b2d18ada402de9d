"""Laws of logarithms of gamma variables with uncertain shapes, and of the difference of two of them.

With s of s - exp(-s) = log G in the place of the logarithm of a gamma variable G, small shapes, whose logarithms reach
far down, and large ones look alike: given a shape exp(a), s lies about a, within exp(-a/2) for a > 0, and within one
for a < 0. Averaged over a it is smooth on that scale and that of the law of a, together.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.interpolate import make_interp_spline
from scipy.special import wrightomega

from ggpm.families.special.stable import HALF_LOG_2PI, stirling_error

Array = NDArray[np.float64]

# Measured by masses, which are one to 1e-7 (variances of 0.01 to 100; 1e-6 for 1e4), and by probabilities against
# quadrature over Sobol points: spacings of points of the splines, and of nodes under them, in widths of the law; panels
# of eight nodes each for the integral along a line, in the same.
SPACING, NODES, PANEL, DEGREE = 0.25, 0.5, 3.5, 5
FEWEST = 8  # spacings
BEND = 1.5  # width of the bends where one of the logarithms turns from s to -exp(-s), in s
# What is left beyond ends is 1e-8: distances from a at which s is for shapes below one, above and below, and for those
# beyond, in widths exp(-a/2); and distances from s at which a is.
ABOVE, BELOW, WIDTHS, HIGHEST = 17.0, 3.4, 7.0, 3.3
LEFT, LEFT_WIDTHS, RIGHT, RIGHT_WIDTHS = 18.0, 13.0, 3.7, 6.0
LOWEST, LARGEST = -60.0, 30.0  # s below and above which laws given a are those of there, shifted
NEGLIGIBLE = 1e-10  # of the largest mass
DOUBLES = 2**18  # points times nodes that are worked on at once

_X, _W = leggauss(8)
_AROUND = BEND * np.sinh(np.linspace(-4.0, 4.0, 31))


class MixedGamma:
    """Laws of s for some mixtures of a, (r,) of them side by side.

    Parameters
    ----------
    a, mass : (n,) and (n, r)
        Points and what is at each of them, of either sign.
    smooth : float
        Standard deviation of the normals that the mixtures consist of, where points are equally spaced and close enough
        for them to tell the density between; 0 where they lie closer than laws given a are wide, and sums tell all.

    Examples
    --------
    >>> law = MixedGamma(np.zeros(1), np.ones((1, 1)), 0.0)  # log E of an exponential variable
    >>> float(law.upto(log_gamma_place(np.log(np.full(1, 0.5))))[0, 0].round(6))  # 1 - exp(-1/2)
    0.393469
    """

    def __init__(self, a: Array, mass: Array, smooth: float):
        self._smooth = max(smooth, 1e-6)
        largest = np.abs(mass).max(axis=1)
        there = a[largest > NEGLIGIBLE * largest.max()]
        low, high = there.min(), there.max()
        self.low = low - min(BELOW, WIDTHS * np.exp(-0.5 * max(low, 0.0)))
        self.high = max(min(high + ABOVE, HIGHEST), high + WIDTHS * np.exp(-0.5 * max(high, 0.0)))
        mesh = np.concatenate([np.linspace(self.low, self.high, 301), _AROUND])
        mesh = np.sort(np.clip(mesh, self.low, self.high))
        s = _equal(mesh, self.count(mesh) + np.arcsinh(mesh / BEND), SPACING)
        density, narrow = np.empty((len(s), mass.shape[1])), _width(s) <= 2.0 * smooth
        sums = np.flatnonzero(~narrow)
        for some in np.array_split(sums, 1 + len(sums) * len(a) // DOUBLES):
            density[some] = np.exp(_log_density(s[some, None], a)) @ mass
        if narrow.any():
            density[narrow] = self._average(s[narrow], a, mass)
        self._density = make_interp_spline(s, density, DEGREE)
        self._upto = self._density.antiderivative()

    def _average(self, s: Array, a: Array, mass: Array) -> Array:
        """Densities at s (k,), of laws given a that are as narrow as the mixtures, or narrower."""
        spline, width = make_interp_spline(a, mass / (a[1] - a[0]), DEGREE), _width(np.minimum(s, LARGEST))
        left = np.maximum(LEFT - np.exp(np.minimum(s, 5.0)), LEFT_WIDTHS * width)
        length = left + np.minimum(RIGHT, RIGHT_WIDTHS * width)
        N = int(np.ceil((length * np.hypot(1.0 / width, 0.5 / self._smooth)).max() / NODES)) + 1
        offset, out = np.linspace(0.0, length, N, axis=1) - left[:, None], np.empty((len(s), mass.shape[1]))
        for some in np.array_split(np.arange(len(s)), 1 + mass.shape[1] * offset.size // DOUBLES):
            at, shifted = s[some, None] + offset[some], np.minimum(s[some, None], LARGEST)
            weight = np.where((at >= a[0]) & (at <= a[-1]), np.exp(_log_density(shifted, shifted + offset[some])), 0.0)
            out[some] = np.einsum("kq,kqr->kr", weight, spline(np.clip(at, a[0], a[-1])))
        return out * (length / (N - 1))[:, None]

    def count(self, s: Array) -> Array:
        """Number of widths of the law up to s: the integral of 1/hypot(smooth, width)."""
        # the width is one below zero, and exp(-s/2) above
        above = np.arcsinh(self._smooth * np.exp(0.5 * np.clip(s, 0.0, -LOWEST))) - np.arcsinh(self._smooth)
        rest = np.maximum(s + LOWEST, 0.0) / self._smooth
        return np.minimum(s, 0.0) / np.hypot(self._smooth, 1.0) + 2.0 / self._smooth * above + rest

    def density(self, s: Array) -> Array:
        """At s (...), (..., r)."""
        inside = (s >= self.low) & (s <= self.high)
        return np.where(inside[..., None], self._density(np.clip(s, self.low, self.high)), 0.0)

    def upto(self, s: Array) -> Array:
        """Mass up to s (...), (..., r)."""
        return self._upto(np.clip(s, self.low, self.high))


def difference(X: MixedGamma, Y: MixedGamma, z: Array, beyond: bool = False) -> Array:
    """Density at z >= 0, (G,), of log G_X - log G_Y, whose joint law is the sum of the products of theirs.

    ``beyond``: the chance of a difference above z instead.

    >>> one = MixedGamma(np.zeros(1), np.ones((1, 1)), 0.0)  # the ratio of exponential variables is logistic
    >>> difference(one, one, np.array([0.0, 2.0])).round(6), difference(one, one, np.array([2.0]), beyond=True).round(6)
    (array([0.25    , 0.104994]), array([0.119203]))
    """
    z = z[:, None]
    low = np.maximum(X.low, _moved(np.full(z.shape, Y.low), z))
    high = np.full(z.shape, X.high) if beyond else np.minimum(X.high, _moved(np.full(z.shape, Y.high), z))
    high = np.maximum(low, high)
    bends = np.stack([np.zeros_like(z), z, -np.log1p(z)], axis=-1)
    crowd = (bends + _AROUND[:, None]).reshape(len(z), -1)
    mesh = np.sort(np.clip(np.concatenate([low + (high - low) * np.linspace(0.0, 1.0, 41), crowd], axis=1), low, high))
    at_most = np.clip(_moved(mesh, -z), Y.low, Y.high)  # beyond, all of Y is told
    count = X.count(mesh) + Y.count(at_most) + np.arcsinh((mesh[..., None] - bends) / BEND).sum(axis=-1)
    N = max(int(np.ceil((count[:, -1] - count[:, 0]).max() / PANEL)), 1)
    wanted = count[:, :1] + (count[:, -1:] - count[:, :1]) / N * np.arange(N + 1.0)
    ends = np.stack([np.interp(*of_z) for of_z in zip(wanted, count, mesh)])
    half = 0.5 * np.diff(ends, axis=1)[..., None]
    x = 0.5 * (ends[:, 1:] + ends[:, :-1])[..., None] + half * _X
    y = _moved(x, -z[..., None])
    if beyond:
        other = Y.upto(y)
    else:  # per unit of the difference
        other = Y.density(y) / (1.0 + np.exp(-np.maximum(y, LOWEST)))[..., None]
    return np.einsum("gpqr,gpqr,gpq->g", X.density(x), other, half * _W)


def log_gamma_place(x: Array) -> Array:
    """s of s - exp(-s) = x.

    >>> log_gamma_place(np.array([-1e30, -1.0, 50.0])).round(6) + 0.0
    array([-69.077553,   0.      ,  50.      ])
    """
    omega = wrightomega(-x)
    with np.errstate(divide="ignore"):
        return np.where(x > 0, x + omega, -np.log(omega))


def _moved(s: Array, z: Array) -> Array:
    """The place of the logarithm that is z above that of s."""
    return np.where(s < LOWEST, s, log_gamma_place(_log_gamma(np.maximum(s, LOWEST)) + z))


def _log_gamma(s: Array) -> Array:
    return s - np.exp(-s)


def _width(s: Array) -> Array:
    return np.exp(-0.5 * np.maximum(s, 0.0))


def _log_density(s: Array, a: Array) -> Array:
    """Log density of s for a gamma variable with shape exp(a), by Stirling's formula at the peak."""
    up = np.maximum(LOWEST - s, 0.0)  # below, s - a has the same law for all a
    s, a = s + up, a + up
    shape, away = np.exp(np.clip(a, -600.0, 690.0)), _log_gamma(s) - a
    with np.errstate(over="ignore"):
        lost = shape * (np.expm1(np.minimum(away, 600.0)) - away)
    return 0.5 * a - HALF_LOG_2PI - stirling_error(shape) - lost + np.log1p(np.exp(-s))


def _equal(x: Array, count: Array, step: float) -> Array:
    """Points of x between which ``count``, which grows with x, grows by the same amount, of ``step`` or less."""
    N = max(int(np.ceil((count[-1] - count[0]) / step)), FEWEST)
    return np.interp(count[0] + (count[-1] - count[0]) / N * np.arange(N + 1.0), count, x)
