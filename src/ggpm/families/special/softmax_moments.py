"""Mean and covariance of softmax(f) for correlated normal latents f: three routes, by how wide and how many they are.

Up to three contrasts of latents, products of rules whose nodes are as close as each direction needs; where these would
be too many, latents that are independent given few factors (`class_probabilities.decomposed`), for which both moments
are integrals of one dimension (`expected_logsumexp`); quasi-random points for more contrasts. Nodes of the first and
the last come in pairs x and -x, and exp(-R x) is 1/exp(R x).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

from ggpm.families.special import log_softmax
from ggpm.families.special.adaptive import PRODUCT_MOST, Rows, average, expectation, latent_root
from ggpm.families.special.class_probabilities import decomposed
from ggpm.families.special.logsumexp import expected_logsumexp
from ggpm.families.special.quadrature import matched_nodes

Array = NDArray[np.float64]

# Largest difference of two latents over a standard deviation of a direction, and Gauss–Hermite nodes with which both
# moments are then off by 2e-9 at most (two to four parts).
HERMITE = ((0.0, 1), (0.05, 3), (0.14, 4), (0.22, 5), (0.4, 7), (0.57, 9))
# Beyond, the trapezoidal rule: a softmax has its poles where latents differ by i pi, at a = pi/difference, and the rule
# is off by exp(a²/2 - 2 pi a/h) or, without poles, exp(-2 pi²/h²). Spacings are of a ladder, so that rows share them.
EXPONENT, RADIUS, LADDER = 25.0, 6.7, 0.88
# Nodes of a product by number of directions, beyond which factors cost less.
MOST_NODES = {1: 2**11, 2: 2**12, 3: 2**15}
# Over factors, change from rule to rule at which a row is settled.
TOLERANCE = 3e-8
LARGEST_LOG = 300.0  # of exp(R x), whose inverse and products with other parts then stay within the floats
NODE_DOUBLES = 2**15  # of one array of nodes: stays in the processor's cache


def softmax_moments(mean: Array, cov: Array) -> tuple[Array, Array]:
    """Means (n, d) and covariances (n, d, d) of softmax(f), f ~ N(mean, cov) in every row.

    To 1e-7 for two and three latents of any variance and four of variances up to one, to about 1e-4 for more.

    >>> first, second = softmax_moments(np.zeros((1, 2)), np.array([[[1.0, 0.0], [0.0, 1.0]]]))
    >>> first.round(6), second.round(6)
    (array([[0.5, 0.5]]), array([[[ 0.068419, -0.068419],
            [-0.068419,  0.068419]]]))
    """
    n, d = mean.shape
    first, second = np.empty((n, d)), np.empty((n, d, d))
    at, root = latent_root(mean, cov, contrasts=True)
    levels = _levels(root)
    for key in np.unique(levels, axis=0):
        rows = np.flatnonzero((levels == key).all(axis=1))
        if key[0] < 0:
            first[rows], second[rows] = _by_factors(mean[rows], cov[rows])
            continue
        x, weights = _rule(d - 1, tuple(int(level) for level in key))
        step = max(1, NODE_DOUBLES // (x.shape[1] * d))
        for start in range(0, rows.size, step):
            some = rows[start : start + step]
            first[some], second[some] = _by_nodes(at[some], root[some], x, weights)
    return first, second


def common_nodes(cov: Array) -> tuple[Array, Array] | None:
    """Values (S, d) of latents N(0, cov), cov (d, d), and weights (S,): the nodes of `softmax_moments`, if it has any.

    >>> f, weights = common_nodes(np.eye(2))
    >>> round(float(weights @ (f[:, 0] - f[:, 1]) ** 2), 6)
    2.0
    """
    _, root = latent_root(np.zeros((1, len(cov))), cov[None], contrasts=True)
    key = _levels(root)[0]
    if key[0] < 0:
        return None
    x, weights = _rule(len(cov) - 1, tuple(int(level) for level in key))
    half = (root[0] @ x).T
    return np.concatenate([half, -half]), np.concatenate([weights, weights])


def _levels(root: Array) -> NDArray[np.intp]:
    """Rules of every direction, (n, D): numbers in `HERMITE` and after it steps of the ladder.

    -1 where a product of them has too many nodes, and one rule for more than three directions.
    """
    n, _, D = root.shape
    if D > PRODUCT_MOST:
        return np.zeros((n, 1), dtype=np.intp)
    difference = root.max(axis=1) - root.min(axis=1)
    with np.errstate(divide="ignore"):
        a = np.minimum(np.pi / difference, np.sqrt(2.0 * EXPONENT))
    h = 2.0 * np.pi * a / (EXPONENT + 0.5 * a * a)
    few = np.searchsorted([limit for limit, _ in HERMITE], difference)
    rung = np.maximum(np.ceil(np.log(h) / np.log(LADDER)), 0.0).astype(np.intp)
    levels = np.where(few < len(HERMITE), few, len(HERMITE) + rung)
    # of a ball's share of a cube, about
    sizes = np.where(few < len(HERMITE), 7.0, 2.0 * RADIUS / LADDER**rung)
    levels[sizes.prod(axis=1) * (1.0, np.pi / 4.0, np.pi / 6.0)[D - 1] > MOST_NODES[D]] = -1
    return levels


@lru_cache(maxsize=64)
def _rule(D: int, levels: tuple[int, ...]) -> tuple[Array, Array]:
    """One node of every pair, (D, S), and weights (S,) of each of the two."""
    if D > PRODUCT_MOST:
        x, weights = matched_nodes(D, "fine")
        return np.ascontiguousarray(x[: len(x) // 2].T), weights[: len(x) // 2]
    rules = [_line(level) for level in levels]
    x = np.stack([grid.ravel() for grid in np.meshgrid(*[nodes for nodes, _ in rules], indexing="ij")])
    weights = np.ones(1)
    for _, own in rules:
        weights = np.multiply.outer(weights, own).ravel()
    near = np.square(x).sum(axis=0) <= RADIUS**2
    half, odd = divmod(len(weights), 2)  # node i has its partner at i from the end
    if odd:
        weights[half] *= 0.5  # the origin is its own
    keep = np.flatnonzero(near[: half + odd])
    weights = weights[keep]
    return np.ascontiguousarray(x[:, keep]), weights / (2.0 * weights.sum())


def _line(level: int) -> tuple[Array, Array]:
    x: Array
    weights: Array
    if level < len(HERMITE):
        x, weights = hermegauss(HERMITE[level][1])
    else:
        h = LADDER ** (level - len(HERMITE))
        count = int(RADIUS / h)
        x = np.asarray(h * np.arange(-count, count + 1), dtype=np.float64)
        weights = np.exp(-0.5 * x * x)
    return x, weights / weights.sum()


def _by_nodes(mean: Array, root: Array, x: Array, weights: Array) -> tuple[Array, Array]:
    """Both moments by pairs of nodes; the last latent, from which others are counted, has no spread."""
    along = root[:, :-1] @ x  # (k, D, S)
    if max(along.max(), -along.min()) > LARGEST_LOG:
        along = np.pad(along, ((0, 0), (0, 1), (0, 0)))
        shares = [np.exp(log_softmax((mean[:, :, None] + f).swapaxes(1, 2))).swapaxes(1, 2) for f in (along, -along)]
    else:
        np.exp(along, out=along)
        size = np.exp(mean - mean.max(axis=1, keepdims=True))[:, :, None]
        ones = np.ones((len(along), 1, along.shape[2]))
        rising = np.concatenate([along, ones], axis=1)
        falling = size / rising
        rising *= size
        shares = [rising, falling]
        for p in shares:
            p /= p.sum(axis=1, keepdims=True)
    first = np.sum([p @ weights for p in shares], axis=0)
    second = np.sum([(p * weights) @ p.swapaxes(1, 2) for p in shares], axis=0)
    return first, second - first[:, :, None] * first[:, None, :]


def _by_factors(mean: Array, cov: Array) -> tuple[Array, Array]:
    """Both moments by averages over few factors of integrals of one dimension."""
    n, d = mean.shape
    out = np.empty((n, d + 1, d))
    factors, own, _, number = decomposed(cov, 0.0)

    def given(f: Array, variance: Array) -> Array:
        found = expected_logsumexp(f, variance)
        return np.concatenate([found.d_mean[:, None], found.d_mean_mean], axis=1)

    for r in np.unique(number):
        rows = np.flatnonzero(number == r)
        if r == 0:
            out[rows] = given(mean[rows], own[rows])
            continue

        def at_nodes(f: Array, some: Rows, rows: Rows = rows) -> Array:
            S, k, _ = f.shape
            return given(f.reshape(-1, d), np.tile(own[rows[some]], (S, 1))).reshape(S, k, d + 1, d)

        out[rows] = expectation(average(at_nodes), mean[rows], factors[rows, :, :r], atol=TOLERANCE)[0]
    first, fall = out[:, 0], out[:, 1:]
    second = -fall - first[:, :, None] * first[:, None, :]  # d E[p_i]/d m_k = E[p_i (1_ik - p_k)]
    second[:, range(d), range(d)] += first
    return first, second
