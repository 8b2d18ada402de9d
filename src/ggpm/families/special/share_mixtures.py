"""Laws of the parts of softmax(V z), z normal: each part's logit is a mixture of normal variables of one variance.

With v_j the rows of V, columns of V orthonormal with sum zero, moving z along -v_j moves all f_k - f_j, f = V z, alike.
So z = m - v_j t + r with t ~ N(0, s²), 1/s² = v_j^T C^-1 v_j, and r ~ N(0, C - s² v_j v_j^T) independent of t, and

    logit share_j = -log sum_(k != j) exp(f_k - f_j) is N(-log sum_(k != j) exp(f_k - f_j), s²) given r:

an integral of one dimension less than z has, of a smooth function; none is left for two parts. Up to five parts have
products of rules, where these are not too many. For others quasi-random points of z serve all parts: t is linear in
z - m, so that t = -s² v_j^T C^-1 (z - m), and the logit at z is that of r less t.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.adaptive import PRODUCT_MOST
from ggpm.families.special.quadrature import normal_points
from ggpm.families.special.share_tails import ShareTails

Array = NDArray[np.float64]

# Spacing h of the trapezoidal rule in a direction of r in which locations move by b s over a standard deviation and two
# latents differ by at most pi/a: it is off by exp(-2 pi²/(h² (1 + b²))), or exp(a²/2 - 2 pi a/h) by poles, of
# probabilities. Both exponents; radius in standard deviations; spacings are of a ladder, so that parts share them.
EXPONENT, RADIUS, LADDER = 13.0, 5.5, 0.85
MOST_NODES = 2**14  # of products, for one part: beyond, points are nearer
# Logarithms (base 2) of numbers of points for standard deviations of latents up to so many, with up to seven parts and
# with more. Of eight and ten parts the worst end of a 90 % interval is off by 2e-5 to 1e-4 of the spread then, those of
# the wide ones by their tails. Rows of more than MANY parts have fewer points: 4096 leave probabilities off by 4e-5 to
# 3e-4.
POINTS = ((0.35, 14, 15), (0.7, 15, 16), (1.3, 15, 18), (4.0, 18, 19), (np.inf, 18, 18))
MANY, OF_MANY = 16, 12
NODE_DOUBLES = 2**16  # of one array of nodes


@dataclass(frozen=True)
class ShareMixtures:
    """Mixtures of normal laws of logits, with weights that are common to all of them."""

    which: NDArray[np.intp]
    """Numbers of rows and parts, row d + part, (k,)."""
    location: Array
    """(k, S)."""
    weights: Array
    """(S,)."""
    sd: Array
    """(k,)."""
    tails: ShareTails | None = None
    """Distribution functions of wide logits of all parts, which are nearer; none where nodes are exact."""


def share_mixtures(mean: Array, cov: Array, V: Array) -> Iterator[ShareMixtures]:
    """Laws of the parts of softmax(V z), z ~ N(mean, cov), (n, D) and (n, D, D), in batches of limited memory.

    >>> V = np.array([[1.0], [-1.0]]) / np.sqrt(2.0)
    >>> (law,) = share_mixtures(np.array([[0.5]]), np.array([[[2.0]]]), V)
    >>> law.location.ravel().round(4), law.sd.round(4)
    (array([ 0.7071, -0.7071]), array([2., 2.]))
    """
    n, D = mean.shape
    d = D + 1
    L = np.asarray(np.linalg.cholesky(cov), dtype=np.float64)
    g = np.linalg.solve(L, np.broadcast_to(V.T, (n, D, d))).swapaxes(1, 2)  # L^-1 v_j
    s = 1.0 / np.linalg.norm(g, axis=2)
    levels = np.full((n, d, max(D - 1, 1)), -1) if D - 1 > PRODUCT_MOST else np.zeros(0)
    if D - 1 <= PRODUCT_MOST:
        flat = (g * s[:, :, None]).reshape(-1, D)
        f = V @ (np.repeat(L, d, axis=0) @ _complement(flat))  # on a root of the covariance of r, (n d, d, D - 1)
        along, away = _others(f, d), _others(np.repeat(mean @ V.T, d, axis=0), d)  # of f_k - f_j, (n d, D, ...)
        levels = _levels(along, s.ravel()).reshape(n, d, -1)
    by_points = (levels < 0).any(axis=(1, 2))
    keys, every = levels.reshape(n * d, -1), np.repeat(~by_points, d)
    for key in np.unique(keys[every], axis=0):
        rows = np.flatnonzero((keys == key).all(axis=1) & every)
        x, weights = _rule(D - 1, tuple(int(level) for level in key))
        step = max(1, NODE_DOUBLES // (len(weights) * D))
        for start in range(0, rows.size, step):
            some = rows[start : start + step]
            differences = (along[some] @ x + away[some][:, :, None]).swapaxes(0, 1)  # (D, k, S)
            yield ShareMixtures(some, -_log_sum(differences), weights, s.ravel()[some])
    widest = np.sqrt(np.square(V @ L).sum(axis=2).max(axis=1))
    for row in np.flatnonzero(by_points):
        x = _points(D, int(np.searchsorted([sd for sd, *_ in POINTS], widest[row])))
        location, centre, along = np.empty((d, x.shape[1])), (V @ mean[row])[:, None], V @ L[row]
        back, size = (s[row] ** 2)[:, None] * g[row], NODE_DOUBLES // (4 * d)
        for start in range(0, x.shape[1], size):
            end = start + size
            location[:, start:end] = _logits(centre + along @ x[:, start:end]) - back @ x[:, start:end]
        weights, tails = np.full(x.shape[1], 1.0 / x.shape[1]), ShareTails(centre[:, 0], along)
        yield ShareMixtures(row * d + np.arange(d), location, weights, s[row], tails)


def _others(f: Array, d: int) -> Array:
    """f_k - f_j for all other k, (n d, d - 1, ...), of f (n d, d, ...) in which j runs over all parts, row by row."""
    part, every = np.tile(np.arange(d), len(f) // d), np.arange(len(f))
    others = np.array([[k for k in range(d) if k != j] for j in range(d)])[part]
    return f[every[:, None], others] - f[every, part][:, None]


def _logits(f: Array) -> Array:
    """f_j - log sum_(k != j) exp(f_k) for latents f (d, S) of any size.

    >>> _logits(np.array([[0.0], [800.0]]))
    array([[-800.],
           [ 800.]])
    """
    first, every = f.argmax(axis=0), np.arange(f.shape[1])
    top = f[first, every]
    e = np.exp(f - top)
    rest = e.sum(axis=0) - e
    rest[first, every] = 1.0  # of the largest, whose rest may have no digits
    out = f - top - np.log(rest, out=rest)
    others = f.copy()
    others[first, every] = -np.inf
    out[first, every] = top - _log_sum(others)
    return out


@lru_cache(maxsize=8)
def _points(D: int, size: int) -> Array:
    """Quasi-random points (D, S) of the standard normal, their number by that of `POINTS`."""
    log2 = POINTS[size][1 + (D > 6)] if D < MANY else OF_MANY
    return np.ascontiguousarray(normal_points(D, log2).T)


def _log_sum(f: Array) -> Array:
    """log sum exp over the first axis."""
    top = f.max(axis=0)
    f -= top
    return np.log(np.exp(f, out=f).sum(axis=0)) + top


def _complement(unit: Array) -> Array:
    """Orthonormal columns (k, D, D - 1) that are orthogonal to unit vectors (k, D), by a Householder reflection."""
    D = unit.shape[1]
    u = unit.copy()
    u[:, -1] += np.where(unit[:, -1] < 0, -1.0, 1.0)
    scaled = 2.0 * u / np.square(u).sum(axis=1)[:, None]
    return (np.eye(D) - u[:, :, None] * scaled[:, None, :])[:, :, :-1]


def _levels(along: Array, s: Array) -> NDArray[np.intp]:
    """Steps of the ladder of spacings in every direction, (k, directions); -1 where these would be too many nodes."""
    k, _, directions = along.shape
    if not directions:
        return np.zeros((k, 1), dtype=np.intp)
    b = np.abs(along).max(axis=1) / s[:, None]
    with np.errstate(divide="ignore"):
        a = np.minimum(np.pi / (along.max(axis=1) - along.min(axis=1)), np.sqrt(2.0 * EXPONENT))
    h = np.minimum(2 * np.pi / np.sqrt(2 * EXPONENT * (1 + b * b)), 2 * np.pi * a / (EXPONENT + 0.5 * a * a))
    rung = np.maximum(np.ceil(np.log(h) / np.log(LADDER)), 0.0).astype(np.intp)
    # one direction has as many as there may be
    most = int(np.log(2.0 * RADIUS / MOST_NODES) / np.log(LADDER))
    many = np.prod(2.0 * RADIUS / LADDER**rung, axis=1) > MOST_NODES
    return np.minimum(rung, most) if directions == 1 else np.where(many[:, None], -1, rung)


@lru_cache(maxsize=64)
def _rule(D: int, levels: tuple[int, ...]) -> tuple[Array, Array]:
    """Nodes (D, S) and weights (S,) of the standard normal."""
    counts = [int(RADIUS / LADDER**level) for level in levels]
    lines = [LADDER**level * np.arange(-count, count + 1) for level, count in zip(levels, counts)]
    x = np.stack([grid.ravel() for grid in np.meshgrid(*lines, indexing="ij")]) if D else np.zeros((0, 1))
    square = np.square(x).sum(axis=0)
    x, weights = x[:, square <= RADIUS**2], np.exp(-0.5 * square[square <= RADIUS**2])
    return np.ascontiguousarray(x), weights / weights.sum()
