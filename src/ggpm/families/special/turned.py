"""Density of an angle about a direction and a concentration that are both uncertain, in polar coordinates.

The direction is that of a Gaussian vector in the plane, rho (cos psi, sin psi), and the concentration k is given by
log k = c + log(rho/sqrt(1 + rho^2)) for a Gaussian c. With wide latents p(y | psi, k) is a needle of any width, and no
grid of the latents themselves serves. Here

* psi runs over panels about y, equal in the logarithm of the distance from it, down to the finest needle; where the
  direction is known well they end about it, too, and about the longer axis of the latents' spread;
* rho = s log(1 + e^u), s its own standard deviation on that ray, has equal steps of u: close to the origin, where the
  concentration vanishes, they are equal in log rho;
* log k has equal steps while its normal is narrow, and else panels that end where the density bends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ggpm.families.special.bessel import quick_log_bessel
from ggpm.families.special.stable import HALF_LOG_2PI

Array = NDArray[np.float64]

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(9)
_REACH = 8.0  # standard deviations of the Gaussians that are covered
_KNOWN = 1e-10  # variance of a direction's latents below which they are taken to have this one
# Widths of panels of the logarithm of the distance, from half a turn down; the widest in standard deviations of log k.
_PANELS, _OF_SPREAD = np.array([1.4, 1.4, 1.4, 1.4, 1.4, 2.8, 5.6, 11.2, 22.4, 44.8]), 0.5
_CROWDED = np.array([-5.0, -1.5, 0.0, 1.5, 5.0])  # ends of panels, in units of the ratio of the axes
_TURN, _PIECES = 2.0, 16  # the first two are cut into pieces over which log k moves by less, or so many
_LOWEST, _RADII = -8.0, 44  # first u, and the number of them
# Steps of a standard normal, and of log k, whose density is smooth at unit scale; the widest normal of equal steps.
_STEP, _UNIT_STEP, _NARROW = 0.75, 0.5, 2.0
_WIDTH = 1.25  # panels of wider ones, in standard deviations
_BENDS = np.array([-8.0, -4.0, -1.0, 2.0, 5.0, 10.0])  # log k: I_0 turns from one to an exponential
_ENDS = np.array([-12.0, -6.0, -3.0, -1.0, 0.5, 2.0, 4.0])  # log k (1 - cos): the density falls to nothing
_NOTHING = 45.0  # logarithm of weights that do not count beside the largest
_LARGEST = 600.0  # log k up to which the Bessel function is asked


def log_turned(mean: Array, cov: Array, y: float) -> float:
    """log E[p(y)] for (a, b, c) ~ N(mean, cov), (3,) and (3, 3), and y in radians.

    >>> round(float(log_turned(np.zeros(3), np.eye(3), 0.3) + np.log(2 * np.pi)), 8)  # no direction is preferred
    0.0
    """
    values, axes = np.linalg.eigh(cov[:2, :2])
    values = np.maximum(values, _KNOWN)
    precision = (axes / values) @ axes.T
    gain = precision @ cov[:2, 2]
    sd = float(np.sqrt(max(cov[2, 2] - cov[2, :2] @ gain, 0.0)))
    highest, turn = float(mean[2] + _REACH * np.sqrt(cov[2, 2])), float(np.sqrt(gain @ cov[:2, 2]))
    delta, log_weight = _turns(mean, np.sqrt(values), axes[:, 1], highest, sd, turn, y)
    ray = np.stack([np.cos(y + delta), np.sin(y + delta)], axis=1)
    # the Gaussian along a ray, in units of its standard deviation there
    scale = 1.0 / np.sqrt(np.einsum("ij,jk,ik->i", ray, precision, ray))
    middle = scale * (ray @ precision @ mean[:2])
    low = np.where(middle > _REACH, middle - _REACH, _LOWEST)
    step = (np.maximum(middle, 0.0) + _REACH - low) / (_RADII - 1)
    u = low[:, None] + step[:, None] * np.arange(_RADII)
    scaled = np.logaddexp(0.0, u)
    rho, away = scale[:, None] * scaled, mean[:2] @ precision @ mean[:2] - middle**2
    log_weight = (
        log_weight + 2.0 * np.log(scale) + np.log(step) - 0.5 * (away + np.log(values).sum()) - 4.0 * HALF_LOG_2PI
    )
    log_weights = log_weight[:, None] + np.log(scaled) - np.logaddexp(0.0, -u) - 0.5 * (scaled - middle[:, None]) ** 2
    # below the first node terms fall like e^2u: it has the weight of all of them
    log_weights[:, 0] -= np.where(low == _LOWEST, np.log(-np.expm1(-2.0 * step)), 0.0)
    log_k = mean[2] - gain @ mean[:2] + (ray @ gain)[:, None] * rho + np.log(rho) - 0.5 * np.log1p(rho**2)
    log_half = 2.0 * np.log(np.abs(np.sin(0.5 * delta))) + np.log(2.0)
    over = _over_narrow if sd < _NARROW else _over_wide
    return over(log_weights, log_k, sd, log_half)


def _turns(
    mean: Array, sd: Array, axis: Array, highest: float, sd_log_k: float, turn: float, y: float
) -> tuple[Array, Array]:
    """Angles from y, and the logarithms of their weights; log k moves by about ``turn`` over half a turn.

    ``sd`` are the principal standard deviations of the direction's latents, rising, ``axis`` that of the larger one.
    """
    finest = min(np.exp(-0.5 * highest), 0.5)
    pieces = min(1 + int(turn / _TURN), _PIECES)
    wide = np.repeat(_PANELS[:2] / pieces, pieces)
    widths = np.append(wide, np.minimum(_PANELS[2:], max(_PANELS[0], _OF_SPREAD * sd_log_k)))
    distance = np.cumsum(np.append(widths, np.full(int(np.log(np.pi / finest) / widths[-1]), widths[-1])))
    graded = np.concatenate([[finest, np.pi], np.pi * np.exp(-distance[distance < np.log(np.pi / finest)])])
    width = sd / max(float(np.hypot(mean[0], mean[1])), 1e-300)
    own = np.arctan2(mean[1], mean[0]) - y + np.multiply.outer(width[width < 1.0], np.arange(-7.0, 7.5, 3.5)).ravel()
    # directions of latents that lie about zero crowd to both sides of the longer axis, as close as the axes differ
    longer = np.arctan2(axis[1], axis[0]) - y + np.pi * np.arange(2)
    own = np.append(own, np.add.outer(longer, sd[0] / sd[1] * _CROWDED).ravel())
    own = (own + np.pi) % (2.0 * np.pi) - np.pi
    angles, weights = [], []
    for side in (-1.0, 1.0):
        edges = np.unique(np.concatenate([[0.0], graded, side * own[side * own > 0.0]]))
        near, far = edges[edges <= finest], edges[edges >= finest]
        x, weight = _panels(near)
        log_x, log_weight = _panels(np.log(far))
        angles += [side * x, side * np.exp(log_x)]
        weights += [weight, log_weight * np.exp(log_x)]
    return np.concatenate(angles), np.log(np.concatenate(weights))


def _panels(edges: Array) -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Legendre between rising edges."""
    half = 0.5 * np.diff(edges)[:, None]
    return (edges[:-1, None] + half * (1.0 + _POINTS)).ravel(), (half * _WEIGHTS).ravel()


def _over_narrow(log_weights: Array, log_k: Array, sd: float, log_half: Array) -> float:
    some, most = log_weights > log_weights.max() - _NOTHING, log_weights.max()
    size = int(np.ceil(_REACH / min(_STEP, _UNIT_STEP / max(sd, 1e-300))))
    z = np.linspace(-_REACH, _REACH, 2 * size + 1)
    weights = np.exp(-0.5 * z**2)
    half, k = np.broadcast_to(log_half[:, None], some.shape)[some], log_k[some]
    values = np.zeros(k.shape)
    for step, weight in zip(sd * z, weights / weights.sum()):  # one at a time: arrays that stay in the cache
        values += weight * np.exp(_log_density(k + step, half))
    return float(np.log(values @ np.exp(log_weights[some] - most)) + most)


def _over_wide(log_weights: Array, log_k: Array, sd: float, log_half: Array) -> float:
    low, high = log_k.min() - _REACH * sd, log_k.max() + _REACH * sd
    equal = np.linspace(low, high, int(np.ceil((high - low) / (_WIDTH * sd))) + 1)
    ends, total = _ENDS - log_half[:, None], []
    for own, weights, t, half in zip(ends, log_weights, log_k, log_half):
        edges = np.sort(np.clip(np.concatenate([equal, _BENDS, own]), low, min(high, own[-1])))
        x, w = _panels(edges)
        inner = np.exp(weights - weights.max() - 0.5 * ((x[:, None] - t) / sd) ** 2).sum(axis=1)
        total.append(logsumexp(_log_density(x, half), b=w * inner) + weights.max())
    return float(logsumexp(total)) - float(np.log(sd)) - HALF_LOG_2PI


def _log_density(x: Array, log_half: Array) -> Array:
    """log of 2 pi p at an angle with log(1 - cos) = log_half, for log k = x."""
    if x.max() > _LARGEST:
        more = 0.5 * np.maximum(x - _LARGEST, 0.0)
        with np.errstate(over="ignore"):
            return more - quick_log_bessel(0.0, np.exp(np.minimum(x, _LARGEST))) - np.exp(x + log_half)
    k = np.exp(x)
    return -quick_log_bessel(0.0, k) - k * np.exp(log_half)
