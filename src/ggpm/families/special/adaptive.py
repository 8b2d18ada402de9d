"""Expectations under the Gaussian of each row, with as many nodes as that row needs.

A row's latent is ``eta = m + R x`` with x standard normal and R the lower Cholesky root of its covariance: unlike an
eigenbasis it is unique, so that no result depends on an arbitrary rotation. Up to three latents the nodes are
products of one-dimensional rules, one for each direction of x; each row climbs the ladder of rules (`LADDER`) in
each direction until its own error estimate is small enough. Above, the rules of the ladder are sparse grids (Smolyak
1963), and Sobol points where those do not serve. Directions without variance have one node.

Rows with the same rules are worked on together, in batches of limited memory. The rules of a row depend on that row
alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import ndtri

from ggpm.data.rows import batches
from ggpm.families.special.quadrature import sobol, trapezoid

Array = NDArray[np.float64]
Levels = NDArray[np.intp]
Rows = NDArray[np.intp]

# Rules of one direction: numbers of Gauss–Hermite nodes, then spacings of the trapezoidal rule, which takes steep
# functions where Gauss–Hermite gains little: E[expit(3 + 10 x)] is off by 3e-4 with 101 nodes of the one and by less
# than 1e-12 with as many of the other. Its radius with one latent holds the mass of exp(5 x) times the density; with
# more, products of nodes whose weights are below LEAST_WEIGHT are left out.
GAUSS = (1, 3, 4, 5, 7, 9, 13, 19)
SPACINGS = (0.3, 0.15, 0.075, 0.0375, 0.01875, 0.009375, 0.0046875)
RADIUS, RADIUS_OF_PRODUCTS = 12.0, 8.5
LEAST_WEIGHT = 1e-18
LADDER = len(GAUSS) + len(SPACINGS)
PRODUCT_MOST = 3  # latents up to which rules are products
MOST_NODES = 2**15  # of one row; what it cannot reach is said by its error
# First level of a direction: the number of these standard deviations that are below its own (training rows of all
# families have 1e-6 to 1e-8 with what they begin with).
FIRST = (0.0, 0.1, 0.3, 0.5, 1.0, 2.0, 4.0)
WIDE = 0.7  # standard deviation of a direction above which the change of a rule is taken for its error
TOGETHER = 5  # level up to which all directions of a row climb together: few different rules, and many rows for each
# The same where directions have errors of their own: three with little spread do not need the nodes of a wide one.
TOGETHER_BY_ERROR = (5, 5, 5, 3)
SPARSE_LEVELS = (2, 3, 4)  # of Smolyak's rule: exact for polynomials of total degree 5, 7, 9
SPARSE_MOST = 2**11  # nodes of a sparse grid
SOBOL_LOG2 = (9, 12)
Sums = Callable[[Array, Rows, Array], Array]  # of eta (S, k, D), rows (k,) and weights (S,) or (S, k): sums (k, ...)


@lru_cache(maxsize=2 * LADDER)
def direction_rule(level: int, radius: float = RADIUS) -> tuple[Array, Array]:
    """Nodes and weights (S,) of the standard normal in one direction; ``radius`` is that of the trapezoidal rule.

    >>> x, w = direction_rule(3)
    >>> len(x), round(float(w @ x**4), 12)
    (5, 3.0)
    """
    if level >= len(GAUSS):
        x, weights = trapezoid(1, SPACINGS[level - len(GAUSS)], radius)
        return x[:, 0], weights
    x, weights = hermegauss(GAUSS[level])
    return x, weights / weights.sum()


@lru_cache(maxsize=128)
def rule(D: int, levels: tuple[int, ...]) -> tuple[Array, Array]:
    """Nodes (S, D) and weights (S,): a product of D directions, or for one level the sparse rules of many latents."""
    if len(levels) == D:
        return _product([direction_rule(level, _radius(D)) for level in levels])
    level = levels[0]
    grids = sparse_levels(D)
    return smolyak(D, grids[level]) if level < len(grids) else _sobol(D, SOBOL_LOG2[level - len(grids)])


@lru_cache(maxsize=8)
def product_rule(D: int, size: int) -> tuple[Array, Array]:
    """Product of Gauss–Hermite rules with so many nodes in each direction: exact to degree 2 size - 1 in each.

    >>> x, w = product_rule(2, 3)
    >>> len(x), round(float(w @ (x[:, 0] ** 4 * x[:, 1] ** 2)), 12)
    (9, 3.0)
    """
    x, weights = hermegauss(size)
    return _product([(x, weights / weights.sum())] * D)


def first_levels(root: Array, by_error: bool = False) -> Levels:
    """Levels with which rows begin, (n, d) or (n, 1), for roots (n, D, d), or (n, d) of independent latents.

    ``by_error``: they climb by errors of every direction.
    """
    sd = np.abs(root) if root.ndim == 2 else np.abs(np.einsum("njj->nj", root[:, : root.shape[2]]))
    if sd.shape[1] > PRODUCT_MOST:
        return np.zeros((len(sd), 1), dtype=np.intp)
    levels, last = np.searchsorted(FIRST, sd), TOGETHER_BY_ERROR[sd.shape[1]] if by_error else TOGETHER
    return np.where((levels > 0) & (levels <= last), np.minimum(levels.max(axis=1, keepdims=True), last), levels)


def raised(
    levels: Levels, error: Array, tolerance: Array | float, D: int, most: int = MOST_NODES, by_error: bool = False
) -> tuple[Levels, NDArray[np.bool_]]:
    """Levels for rows whose error, (n, D) by directions, is too large, and which rows changed.

    Errors far above the tolerance climb two rules at once. A row for which that would be more than ``most`` nodes
    climbs in its worst direction alone, or stays.
    """
    wrong = np.where(np.isfinite(error), error, -1.0) / np.reshape(tolerance, (-1, 1))
    if D > PRODUCT_MOST:
        climbs = (wrong.max(axis=1) > 1) & (levels[:, 0] + 1 < len(sparse_levels(D)) + len(SOBOL_LOG2))
        return levels + climbs[:, None], climbs
    spread, last = levels > 0, TOGETHER_BY_ERROR[D] if by_error else TOGETHER
    steps = np.where(spread & (wrong > 1), np.where(wrong > 300, 2, 1), 0)
    together = np.where(spread & (levels < last), steps.max(axis=1, keepdims=True), steps)
    target = np.minimum(levels + together, LADDER - 1)
    worst = np.zeros_like(steps)
    np.put_along_axis(worst, np.argmax(np.where(spread, wrong, -1.0), axis=1)[:, None], 1, axis=1)
    fewer = np.minimum(levels + np.where(steps > 0, worst, 0), LADDER - 1)
    sizes = np.array([len(direction_rule(level, _radius(D))[0]) for level in range(LADDER)])
    target = np.where((sizes[target].prod(axis=1) <= most)[:, None], target, fewer)
    target = np.where((sizes[target].prod(axis=1) <= most)[:, None], target, levels)
    return target, np.any(target != levels, axis=1)


def groups(levels: Levels, D: int, rows: Rows | None = None, width: int = 1) -> Iterator[tuple[Rows, Array, Array]]:
    """Numbers of rows that share a rule, its nodes (S, D) and weights (S,), in batches of limited memory.

    ``levels`` are those of all rows, ``rows`` the ones that are asked for; ``width`` is how many arrays (S, k, D) of
    nodes a function makes of them.
    """
    rows = np.arange(len(levels)) if rows is None else rows
    keys = levels[rows] @ (64 ** np.arange(levels.shape[1]))
    order = np.argsort(keys, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if part.size:
            x, weights = rule(D, tuple(int(level) for level in levels[rows[part[0]]]))
            for batch in batches(len(part), x.size * width):
                yield rows[part[batch]], x, weights


def place(mean: Array, root: Array, x: Array) -> Array:
    """Nodes of eta, (S, k, D), for nodes x (S, d), means (k, D) and roots (k, D) or (k, D, d)."""
    if root.ndim == 2:
        return mean + root * x[:, None, :]
    D, d = root.shape[1:]
    return mean + (x @ root.reshape(-1, d).T).reshape(len(x), -1, D)


def average(function: Callable[[Array, Rows], Array]) -> Sums:
    """Weighted sums over nodes of a function of eta (S, k, D) and rows (k,) that gives (S, k, ...).

    >>> average(lambda eta, rows: eta)(np.array([[[1.0]], [[3.0]]]), np.arange(1), np.array([0.5, 0.5]))
    array([[2.]])
    """

    def sums(eta: Array, rows: Rows, weights: Array) -> Array:
        values = function(eta, rows)
        if weights.ndim == 2:
            return np.einsum("sk,sk...->k...", weights, values)
        if values.ndim == 3 and not values.flags.c_contiguous:  # one array for every number
            return np.matmul(weights, np.moveaxis(values, -1, 0)).T
        return np.tensordot(weights, values, axes=1)

    return sums


def expectation(
    sums: Sums,
    mean: Array,
    root: Array,
    *,
    rtol: float = 0.0,
    atol: float | Array = 1e-8,
    next_change: float = 1.0,
    grids_to: float = 1.0,
) -> tuple[Array, Array]:
    """E[function(eta)] for every row's eta ~ N(mean, root root^T), and an estimate of its error.

    Two successive rules of a row must agree to ``atol + rtol |E|`` in all its numbers; of those tried, the one that
    agrees best with the rule before it is returned. Where it is known how errors fall from rule to rule, rows whose
    latents are narrow (`WIDE`) are off by the share ``next_change`` of what the last rule changed.

    Parameters
    ----------
    sums : weighted sums over nodes, such as `average` makes of a function
    mean : (n, D)
    root : (n, D, d) lower roots (`latent_root`), or (n, D) standard deviations of independent latents
    grids_to : with more than three latents, how many times that tolerance the finest sparse grid may be away from the
        one before. Sobol points, which take the place of grids that are worse, are not near what good ones reach.

    Returns
    -------
    value : (n, ...)
    error : (n,)
        The largest difference from the rule before, times its share.

    Examples
    --------
    >>> lognormal = average(lambda eta, rows: np.exp(eta[..., 0]))
    >>> value, _ = expectation(lognormal, np.zeros((2, 1)), np.array([[0.1], [1.0]]))
    >>> bool(np.allclose(value, np.exp([0.005, 0.5])))
    True
    """
    D = root.shape[-1]

    def evaluate(levels: Levels, rows: Rows) -> Array:
        out: Array | None = None
        for part, x, weights in groups(levels, D, rows):
            found = sums(place(mean[part], root[part], x), part, weights)
            if out is None:
                out = np.empty((len(rows), *found.shape[1:]))
            out[np.searchsorted(rows, part)] = found
        return np.empty((0, 1)) if out is None else out

    narrow = np.sqrt(np.square(root).reshape(len(root), -1, D).sum(axis=1)).max(axis=1, initial=0.0) <= WIDE
    share, absolute = np.where(narrow, next_change, 1.0), np.broadcast_to(atol, len(mean))

    def allowed(value: Array, rows: Rows) -> Array:
        per_row = (-1, *[1] * (value.ndim - 1))
        return (absolute[rows].reshape(per_row) + rtol * np.abs(value)) / share[rows].reshape(per_row)

    spread = np.asarray(root.reshape(len(root), -1).any(axis=1))
    value, error, _ = climb(evaluate, first_levels(root), D, allowed, spread, grids_to=grids_to)
    return value, share * error


def climb(
    evaluate: Callable[[Levels, Rows], Array],
    levels: Levels,
    D: int,
    allowed: Callable[[Array, Rows], Array | float],
    spread: NDArray[np.bool_],
    most: int = MOST_NODES,
    grids_to: float = 1.0,
) -> tuple[Array, Array, Levels]:
    """Values of every row with rules so fine that two successive ones agree, what these differ by, and the rules.

    Parameters
    ----------
    evaluate : of levels of all rows and the numbers (k,) of some of them; gives their values (k, ...)
    levels : with which rows begin, (n, D) or (n, 1)
    allowed : of new values (k, ...) of some rows (k,), how far they may be from those of the rule before
    spread : rows whose value depends on the rule at all, (n,)
    most : nodes of one row
    grids_to : times what is allowed that the finest sparse grid may be apart from the one before
    """
    last_grid = len(sparse_levels(D)) - 1 if D > PRODUCT_MOST else -1
    value = evaluate(levels, np.arange(len(levels)))
    last, trial, levels = value.copy(), levels.copy(), levels.copy()
    error = np.where(spread, np.inf, 0.0)  # nothing to be compared with yet
    rows = np.flatnonzero(spread)
    while rows.size:
        finer_levels, _ = raised(trial[rows], np.ones((rows.size, D)), 0.5, D, most)
        # where there is no room for a finer rule in every direction, one of them would seem to settle
        moved = np.all((finer_levels > trial[rows]) | (trial[rows] == 0), axis=1)
        rows = rows[moved]
        if rows.size == 0:
            break
        trial[rows] = finer_levels[moved]
        finer = evaluate(trial, rows)
        with np.errstate(invalid="ignore"):  # infinite values
            difference = np.abs(finer - last[rows])
        limit = allowed(finer, rows)
        if last_grid >= 0:
            limit = limit * np.where(trial[rows, 0] == last_grid, grids_to, 1.0).reshape(-1, *[1] * (finer.ndim - 1))
        apart = np.any((difference > limit).reshape(rows.size, -1), axis=1)
        largest = np.max(difference.reshape(rows.size, -1), axis=1, initial=0.0)
        last[rows] = finer
        better = ~(largest >= error[rows])  # a sparse grid may be the best there is, and the points after it not
        kept = rows[better]
        value[kept], error[kept], levels[kept] = finer[better], largest[better], trial[kept]
        rows = rows[apart]  # where the function is not a number more nodes do not help
    return value, error, levels


def latent_root(mean: Array, cov: Array, contrasts: bool = False) -> tuple[Array, Array]:
    """Means (n, D) and lower roots R (n, D, d) of the latents that matter, eta = mean + R x with x standard normal.

    Where only ``contrasts`` matter the last latent is taken as the origin, and d = D - 1: a softmax of three latents is
    an integral over two.

    >>> mean, root = latent_root(np.array([[1.0, 3.0]]), np.array([[[2.0, 0.0], [0.0, 2.0]]]), contrasts=True)
    >>> mean, root
    (array([[-2.,  0.]]), array([[[2.],
            [0.]]]))
    """
    if not contrasts:
        return mean, cholesky_root(cov)
    away = cov[:, :-1] - cov[:, -1:]
    apart = cholesky_root(away[:, :, :-1] - away[:, :, -1:])
    return mean - mean[:, -1:], np.concatenate([apart, np.zeros_like(apart[:, :1])], axis=1)


def cholesky_root(cov: Array, least: float = 0.0) -> Array:
    """Lower R with R R^T = cov for every row, cov - least I (n, D, D) positive semidefinite.

    Where rounding leaves nothing of a pivot it is sqrt(least), with zeros below.

    >>> cholesky_root(np.array([[[4.0, 2.0], [2.0, 1.0]]]))
    array([[[2., 0.],
            [1., 0.]]])
    """
    D = cov.shape[-1]
    R = np.zeros_like(cov)
    for j in range(D):
        left = cov[:, j:, j] - np.einsum("nik,nk->ni", R[:, j:, :j], R[:, j, :j])
        spread = left[:, 0] > 8 * D * np.finfo(float).eps * np.abs(cov[:, j, j])  # below, rounding is all there is
        scale = np.sqrt(np.where(spread, np.maximum(left[:, 0], least), 1.0))
        R[:, j:, j] = np.where(spread[:, None], left / scale[:, None], 0.0)
        R[:, j, j] = np.where(spread, scale, np.sqrt(least))
    return R


def _radius(D: int) -> float:
    return RADIUS if D == 1 else RADIUS_OF_PRODUCTS


def _product(rules: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    grid = np.stack([x.ravel() for x in np.meshgrid(*[x for x, _ in rules], indexing="ij")], axis=1)
    total = np.ones(1)
    for _, weights in rules:
        total = np.multiply.outer(total, weights).ravel()
    keep = total >= LEAST_WEIGHT if len(rules) > 1 else total > 0
    return grid[keep], total[keep]


@lru_cache(maxsize=32)
def sparse_levels(D: int) -> tuple[int, ...]:
    """Levels of Smolyak's rule that are not too large, at least one."""
    fitting = [level for level in SPARSE_LEVELS if len(smolyak(D, level)[0]) <= SPARSE_MOST] if D <= 12 else []
    return tuple(fitting) or SPARSE_LEVELS[:1]


def smolyak_size(D: int, level: int) -> int:
    """Number of nodes of Smolyak's rule.

    >>> smolyak_size(4, 3)
    89
    """
    return len(smolyak(D, level)[1])


@lru_cache(maxsize=32)
def nested_grid(D: int, level: int) -> tuple[Array, Array, Array]:
    """Nodes (S, D) of Smolyak's rule of a level, with its weights and those of the level before.

    >>> x, fine, coarse = nested_grid(4, 3)
    >>> len(x), int(np.sum(coarse != 0)), float((coarse @ x[:, 0] ** 2).round(12))
    (89, 25, 1.0)
    """
    pair = [smolyak(D, k) for k in (level, level - 1)]
    fine, coarse = ({tuple(node): weight for node, weight in zip(x, weights)} for x, weights in pair)
    nodes = list(fine | coarse)  # some of the one before have no weight any more
    weights = np.array([[fine.get(node, 0.0), coarse.get(node, 0.0)] for node in nodes])
    return np.array(nodes), weights[:, 0].copy(), weights[:, 1].copy()


@lru_cache(maxsize=32)
def smolyak(D: int, level: int) -> tuple[Array, Array]:
    """Sparse grid of nested rules with 1, 3 and 9 nodes, exact to total degree 2 level + 1 (Smolyak 1963).

    A rule that is more exact than its order asks for serves later orders, too, whose increments are then nothing
    (Petras 2003): 1221 nodes instead of 1981 with Gauss–Hermite rules for ten latents and degree 7.

    >>> [len(smolyak(4, level)[1]) for level in range(4)]
    [1, 9, 25, 89]
    """
    merged: dict[tuple[float, ...], float] = {}
    for total in range(max(0, level - D + 1), level + 1):
        # combination technique: (-1)^(level - total) binom(D - 1, level - total) times products of total order
        sign = (-1) ** (level - total) * np.prod([(D - 1 - k) / (k + 1) for k in range(level - total)])
        for used in range(1, min(total, D) + 1) if total else (0,):
            for axes in itertools.combinations(range(D), used):
                for orders in _compositions(total, used):
                    for nodes in itertools.product(*[list(zip(*nested_rule(order))) for order in orders]):
                        point = [0.0] * D
                        weight = sign
                        for axis, (x, w) in zip(axes, nodes):
                            point[axis] = float(x)
                            weight *= w
                        key = tuple(point)
                        merged[key] = merged.get(key, 0.0) + weight
    kept = {point: weight for point, weight in merged.items() if abs(weight) > 1e-15}  # others cancel
    return np.array(list(kept)), np.array(list(kept.values()))


@lru_cache(maxsize=8)
def nested_rule(order: int) -> tuple[Array, Array]:
    """Nodes and weights of the standard normal, exact to degree 2 order + 1 for orders up to 7, few and nested.

    Three nodes of Gauss and Hermite are exact to degree 5, their extension by six nodes to degree 15 (Genz and Keister
    1996): H_3(x) q(x), q even of degree six, is orthogonal to all polynomials of lower degree than q.

    >>> x, w = nested_rule(3)
    >>> x.round(4), round(float(w @ x**14) / 135135, 10)
    (array([-4.185 , -2.8613, -1.7321, -0.7411,  0.    ,  0.7411,  1.7321,
            2.8613,  4.185 ]), 1.0)
    """
    if order == 0:
        return np.zeros(1), np.ones(1)
    x: Array
    weights: Array
    x, weights = hermegauss(3)
    if order > 2:
        moment = {k: float(np.prod(np.arange(k - 1, 0, -2.0))) for k in range(0, 20, 2)}  # of x^k
        pairs = np.array([[moment[3 + k + j] - 3.0 * moment[1 + k + j] for j in (0, 2, 4, 6)] for k in (1, 3, 5)])
        q = np.linalg.solve(pairs[:, :3], -pairs[:, 3])  # q = x^6 + q_2 x^4 + q_1 x^2 + q_0
        beyond = np.sqrt(np.roots([1.0, *q[::-1]]).real)
        x = np.sort(np.concatenate([x, beyond, -beyond]))
        powers = np.arange(9)
        exact = np.array([moment.get(int(k), 0.0) for k in powers])
        weights = np.asarray(np.linalg.solve(x ** powers[:, None], exact), dtype=np.float64)
    return x, weights / weights.sum()


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Positive whole numbers that add up to a total, in order."""
    if parts == 0:
        yield ()
        return
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def _sobol(D: int, log2: int) -> tuple[Array, Array]:
    """Antithetic Sobol points, mapped so that their mean and covariance are those of the normal."""
    half = ndtri(sobol(D).random_base2(log2 - 1).clip(1e-12, 1 - 1e-12))
    half = np.linalg.solve(np.linalg.cholesky(half.T @ half / len(half)), half.T).T
    nodes = np.concatenate([half, -half])
    return nodes, np.full(len(nodes), 1.0 / len(nodes))
