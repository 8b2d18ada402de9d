"""Laws of the parts of softmax(V z), z normal: each part's logit is a mixture of normal variables of one variance.

With v_j the rows of V, columns of V orthonormal with sum zero, moving z along -v_j moves all f_k - f_j, f = V z, alike.
So z = m - v_j t + r with t ~ N(0, s²), 1/s² = v_j^T C^-1 v_j, and r ~ N(0, C - s² v_j v_j^T) independent of t, and

    logit share_j = -log sum_(k != j) exp(f_k - f_j) is N(-log sum_(k != j) exp(f_k - f_j), s²) given r:

an integral of one dimension less than z has, of a smooth function; none is left for two parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.adaptive import PRODUCT_MOST
from ggpm.families.special.quadrature import matched_nodes

Array = NDArray[np.float64]

# Spacing h of the trapezoidal rule in a direction of r in which locations move by b s over a standard deviation and two
# latents differ by at most pi/a: it is off by exp(-2 pi²/(h² (1 + b²))), or exp(a²/2 - 2 pi a/h) by poles, of
# probabilities. Both exponents; radius in standard deviations; spacings are of a ladder, so that parts share them.
EXPONENT, RADIUS, LADDER = 13.0, 5.5, 0.85
# Of one part. Rows that would need more have locations further apart than s: ends are then off by up to 2.6e-2 of their
# spread (four parts of variance 1e4, five of variance 100).
MOST_NODES = 2**14
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
    g = np.linalg.solve(L, np.broadcast_to(V.T, (n, D, d))).swapaxes(1, 2).reshape(-1, D)  # L^-1 v_j
    s = 1.0 / np.linalg.norm(g, axis=1)
    roots = np.repeat(L, d, axis=0) @ _complement(g * s[:, None])  # of the covariance of r, (n d, D, D - 1)
    f, at = V @ roots, np.repeat(mean @ V.T, d, axis=0)
    part = np.tile(np.arange(d), n)
    others = np.array([[k for k in range(d) if k != j] for j in range(d)])[part]
    every = np.arange(n * d)
    away = at[every[:, None], others] - at[every, part][:, None]  # f_k - f_j, (n d, D)
    along = f[every[:, None], others] - f[every, part][:, None]
    levels = _levels(along, s)
    for key in np.unique(levels, axis=0):
        rows = np.flatnonzero((levels == key).all(axis=1))
        x, weights = _rule(D - 1, tuple(int(level) for level in key))
        step = max(1, NODE_DOUBLES // (len(weights) * D))
        for start in range(0, rows.size, step):
            some = rows[start : start + step]
            differences = (along[some] @ x + away[some][:, :, None]).swapaxes(0, 1)  # (D, k, S)
            yield ShareMixtures(some, -_log_sum(differences), weights, s[some])


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
    """Steps of the ladder of spacings in every direction; one rule where there are none, or many."""
    k, _, directions = along.shape
    if not 0 < directions <= PRODUCT_MOST:
        return np.zeros((k, 1), dtype=np.intp)
    b = np.abs(along).max(axis=1) / s[:, None]
    with np.errstate(divide="ignore"):
        a = np.minimum(np.pi / (along.max(axis=1) - along.min(axis=1)), np.sqrt(2.0 * EXPONENT))
    h = np.minimum(2 * np.pi / np.sqrt(2 * EXPONENT * (1 + b * b)), 2 * np.pi * a / (EXPONENT + 0.5 * a * a))
    rung = np.maximum(np.ceil(np.log(h) / np.log(LADDER)), 0.0)
    # too many nodes: the closest spacings give way
    most = np.log(2 * RADIUS / MOST_NODES ** (1.0 / directions)) / np.log(LADDER)
    return np.minimum(rung, np.floor(most)).astype(np.intp)


@lru_cache(maxsize=64)
def _rule(D: int, levels: tuple[int, ...]) -> tuple[Array, Array]:
    """Nodes (D, S) and weights (S,) of the standard normal."""
    if D > PRODUCT_MOST:
        nodes, weights = matched_nodes(D, "standard")
        return np.ascontiguousarray(nodes.T), weights
    counts = [int(RADIUS / LADDER**level) for level in levels]
    lines = [LADDER**level * np.arange(-count, count + 1) for level, count in zip(levels, counts)]
    x = np.stack([grid.ravel() for grid in np.meshgrid(*lines, indexing="ij")]) if D else np.zeros((0, 1))
    square = np.square(x).sum(axis=0)
    x, weights = x[:, square <= RADIUS**2], np.exp(-0.5 * square[square <= RADIUS**2])
    return np.ascontiguousarray(x), weights / weights.sum()
