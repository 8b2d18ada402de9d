"""Nodes under the Gaussian of every row's latent vector, as many as the row needs.

A family's density is a smooth function of its latents on the scale of one, and of the square root of their size where
they are large: that is how wide the likelihood is. Latents that are known better than that need a few Gauss-Hermite
nodes for each dimension. For wider ones the trapezoidal rule is taken in t, x = t sqrt(1 + t²/4), x a latent's own
value: its nodes lie one apart near zero and the square root of x far from it. Dimensions are the columns of the
Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.polynomial import hermite_e
from numpy.typing import NDArray

from ggpm.data.rows import batches
from ggpm.families.base import Family
from ggpm.families.special.quadrature import matched_nodes
from ggpm.families.special.weighted_lattice import lattice_nodes

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Largest standard deviation of a dimension, in units of the likelihood's width, and Gauss-Hermite nodes that then give
# the distribution functions of angles and of parts of compositions to 2e-5 at worst (means between -2 and 20).
HERMITE = ((1e-4, 1), (0.06, 2), (0.16, 3), (0.27, 4), (0.36, 5), (0.43, 6), (0.49, 7), (0.55, 8), (0.6, 9), (0.7, 11))
# Product above which 512 Sobol points serve, matched in mean and covariance: from four or five latents on. Distribution
# functions of ten parts of compositions then have an error of 3e-4 (latents with standard deviations below 0.7).
MOST_HERMITE = 2**11
# From four to six latents points of a lattice are better: logarithms (base 2) of their number where latents are narrow,
# and by how wide they are all together where one of them is wide and a SECOND one not known. Probabilities of parts
# with link "exp" are off by 1e-5 to 2e-5 for variances up to one then (products, 2e-4) and by 1e-4 for four (1e-3).
MOST_HERMITE_LATENTS, LATTICE_MOST, LATTICE_OF_NARROW, SECOND = 3, 6, 9, 0.35
LATTICES = ((1.5, 13), (np.inf, 14))
CORNERS = 5e-6  # weight of the nodes of a product that are left out
# Standard deviations that wider rules reach, and the largest spacing in t.
REACH, SPACING = 5.3, 0.9
NARROWEST = 0.5  # likelihood's width for which wider rules still have nodes close enough
FAR_OUT = 1e-8  # of the largest weight: nodes whose weight is smaller in all rows are left out
MOST = 2**15  # nodes of one row; where the product has more of them, Sobol points serve, with an error of 1e-3 or less


def latent_nodes(
    mean: Array, root: Array, U: Array, per_node: int, most: int = MOST, even: bool = False, spacing: float = SPACING
) -> Iterator[tuple[Rows, Array, Array]]:
    """Rows (k,), their nodes (k, S, D) and weights (k, S) or (1, S).

    Parameters
    ----------
    mean, root : (m, D) and (m, D, d)
        Gaussians of the latent, with lower roots of their covariances (`latent_root`).
    U : (m, D, D)
        Information about the latent in one observation, at the mean: its inverse is how wide likelihoods are.
    per_node : int
        Numbers that the caller holds for every node, which decides how many rows come at once.
    most : int
        Nodes of one row from which on Sobol points serve instead.
    even : bool
        True where likelihoods are as narrow anywhere as at the mean, as those of a softmax are, whose latents matter
        relative to each other and not to zero.
    spacing : float
        The largest spacing in t of wider rules.

    Examples
    --------
    >>> parts = latent_nodes(np.ones((1, 2)), 3.0 * np.eye(2)[None], np.eye(2)[None], 1)
    >>> [float(np.round(w[0] @ eta[0, :, 0] ** 2, 4)) for _, eta, w in parts]
    [10.0]
    """
    d = root.shape[2]
    sd = np.sqrt(np.maximum(np.einsum("mik,mij,mjk->mk", root, U, root, optimize=True), 0.0))
    limits, counts = np.array([h[0] for h in HERMITE]), np.array([h[1] for h in HERMITE])
    rule = counts[np.minimum(np.searchsorted(limits, sd), len(counts) - 1)]
    rule[sd > limits[-1]] = 0
    rule[(rule == 0).any(axis=1)] = 0
    if MOST_HERMITE_LATENTS < d <= LATTICE_MOST:
        wide = (rule == 0).any(axis=1)
        turned = np.where(wide, np.sum(sd > SECOND, axis=1) > 1, rule.prod(axis=1, dtype=float) > MOST_HERMITE)
        yield from _turned(np.flatnonzero(turned), mean, root, U, max(per_node, 4 * d), wide, most)
        rule[turned] = -1
    for sizes in np.unique(rule, axis=0):
        if sizes[0] < 0:
            continue
        of_rule = np.flatnonzero((rule == sizes).all(axis=1))
        if not sizes.all():
            ones = np.ones((len(of_rule), 1))
            yield from _wide(of_rule, mean[of_rule, None], ones, root, U, max(per_node, 4 * d), most, even, spacing)
            continue
        if np.prod(sizes.astype(float)) > MOST_HERMITE:
            nodes, weights = matched_nodes(d, "standard")
        else:
            nodes, weights = hermite(tuple(int(n) for n in sizes))
        for part in batches(len(of_rule), len(nodes) * max(per_node, 4 * d)):
            rows = of_rule[part]
            yield rows, mean[rows, None, :] + nodes @ root[rows].swapaxes(1, 2), weights[None]


def _turned(
    rows: Rows, mean: Array, root: Array, U: Array, per_node: int, wide: NDArray[np.bool_], most: int
) -> Iterator[tuple[Rows, Array, Array]]:
    """Points of lattices, turned to the directions in which the latent is widest in units of the likelihood's width."""
    square, axes = np.linalg.eigh(np.einsum("mik,mij,mjl->mkl", root[rows], U[rows], root[rows], optimize=True))
    axes = axes[:, :, ::-1]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    change = np.sqrt(np.maximum(square, 0.0).sum(axis=1))
    size = np.where(wide[rows], np.searchsorted([c for c, _ in LATTICES], change), -1)
    for i in np.unique(size):
        log2 = min(LATTICES[i][1], max(int(np.log2(most)), 10)) if i >= 0 else LATTICE_OF_NARROW
        nodes, weights = lattice_nodes(root.shape[2], log2)
        same = np.flatnonzero(size == i)
        for part in batches(len(same), len(nodes) * per_node):
            at = rows[same[part]]
            turn = root[at] @ (axes * np.where(largest < 0, -1.0, 1.0))[same[part]]
            yield at, mean[at, None, :] + nodes @ turn.swapaxes(1, 2), weights[None]


@lru_cache(maxsize=1024)
def hermite(sizes: tuple[int, ...]) -> tuple[Array, Array]:
    """Product of Gauss-Hermite rules without its corners: nodes (S, D) and weights (S,) of standard normals."""
    rules = [_hermite(n) for n in sizes]
    nodes = np.stack([g.ravel() for g in np.meshgrid(*[x for x, _ in rules], indexing="ij")], axis=1)
    weights = np.array([1.0])
    for _, w in rules:
        weights = np.multiply.outer(weights, w / w.sum()).ravel()
    order = np.argsort(weights, kind="stable")
    kept = np.sort(order[np.cumsum(weights[order]) > CORNERS])
    return nodes[kept], weights[kept] / weights[kept].sum()


@lru_cache(maxsize=32)
def _hermite(n: int) -> tuple[Array, Array]:
    return hermite_e.hermegauss(n)


def _wide(
    rows: Rows,
    eta: Array,
    weights: Array,
    root: Array,
    U: Array,
    per_node: int,
    most: int,
    even: bool,
    spacing: float,
    j: int = 0,
) -> Iterator[tuple[Rows, Array, Array]]:
    """Nodes of rows whose latent is wider than the likelihood in some direction, one dimension after the other.

    ``eta`` (k, S, D) and ``weights`` (k, S) are the nodes of the dimensions before j.
    """
    S, D = eta.shape[1:]
    if j == root.shape[2]:
        yield rows, eta, weights
        return
    column = root[rows, :, j]
    sd = np.sqrt(np.sum(column**2, axis=1))
    along = column / np.where(sd > 0, sd, 1.0)[:, None]
    centre = np.einsum("ksd,kd->ks", eta, along)
    # links that bend more than likelihoods do for latents of one make them narrower than one
    told = np.einsum("ki,kij,kj->k", along, U[rows], along)
    if even:
        count = _even_count(sd, 1.0 / np.sqrt(np.maximum(told, 1.0)), spacing)
    else:
        count = _count(centre, sd, 1.0 / np.sqrt(np.clip(told, 1.0, NARROWEST**-2)), spacing)
    for N in np.unique(count):
        same = np.flatnonzero(count == N)
        if most < S * N:
            nodes, share = matched_nodes(root.shape[2], "fine")
            for part in batches(len(same), len(nodes) * per_node):
                i = rows[same[part]]
                mean = np.einsum("ks,ksd->kd", weights[same[part]], eta[same[part]])
                yield i, mean[:, None] + nodes @ root[i].swapaxes(1, 2), share[None]
            continue
        for part in batches(len(same), S * N * per_node):
            i = same[part]
            x, w = _axis(centre[i], sd[i], int(N), even)
            nodes = (eta[i, :, None] + x[..., None] * along[i, None, None]).reshape(len(i), S * N, D)
            share = (weights[i, :, None] * w).reshape(len(i), S * N)
            kept = np.any(share > FAR_OUT * share.max(axis=1, keepdims=True), axis=0)
            share = share[:, kept] / share[:, kept].sum(axis=1, keepdims=True)
            yield from _wide(rows[i], nodes[:, kept], share, root, U, per_node, most, even, spacing, j + 1)


def _from_x(x: Array) -> Array:
    """t of x = t sqrt(1 + t²/4)."""
    return np.sign(x) * np.sqrt(2.0) * np.abs(x) / np.sqrt(1.0 + np.sqrt(1.0 + x * x))


def _count(centre: Array, sd: Array, unit: Array, spacing: float) -> NDArray[np.int_]:
    """Number of nodes along one direction, (k,), by values (k, S) that the latent has there before: few different ones.

    ``unit`` (k,) is the spacing near zero.
    """
    low, high, t = (_from_x(centre + sign * REACH * sd[:, None]) for sign in (-1.0, 1.0, 0.0))
    own = (1.0 + 0.5 * t**2) / np.sqrt(1.0 + 0.25 * t**2)  # dx/dt at the centre
    known = sd == 0
    step_in_t = spacing / np.hypot(1.0 / unit[:, None], own / np.where(known, 1.0, sd)[:, None])
    # the range in t is wide where steps may be, too: their ratio hardly depends on the value
    count = np.ceil(((high - low) / step_in_t).max(axis=1)).astype(int) + 1
    step = 2 ** np.maximum(1, np.floor(np.log2(count)).astype(int) - 3)
    return np.where(known, 1, step * -(-count // step))


def _even_count(sd: Array, unit: Array, spacing: float) -> NDArray[np.int_]:
    """Number of nodes along one direction, (k,), at equal distances: few different ones."""
    known = sd == 0
    count = 2.0 * REACH * np.hypot(sd / unit, 1.0) / spacing
    return np.where(known, 1, np.ceil(2.0 ** (np.ceil(4.0 * np.log2(count)) / 4.0)).astype(int) + 1)


def _axis(centre: Array, sd: Array, N: int, even: bool) -> tuple[Array, Array]:
    """Offsets (k, S, N) along one direction and their weights."""
    if N == 1:
        return np.zeros((*centre.shape, 1)), np.ones((*centre.shape, 1))
    if even:
        e = np.broadcast_to(REACH * np.linspace(-1.0, 1.0, N), (*centre.shape, N))
        w = np.exp(-0.5 * e * e)
        return e * sd[:, None, None], w / w.sum(axis=-1, keepdims=True)
    low, high = (_from_x(centre + sign * REACH * sd[:, None])[..., None] for sign in (-1.0, 1.0))
    t = low + (high - low) * np.linspace(0.0, 1.0, N)
    root = np.sqrt(1.0 + 0.25 * t * t)
    x = t * root - centre[..., None]
    w = np.exp(-0.5 * (x / sd[:, None, None]) ** 2) * (1.0 + 0.5 * t * t) / root
    return x, w / w.sum(axis=-1, keepdims=True)


def gather(m: int, parts: Iterable[tuple[Rows, Array]]) -> Array:
    """Answers of all rows from those of some rows at a time.

    >>> gather(2, [(np.array([1]), np.array([5.0])), (np.array([0]), np.array([4.0]))])
    array([4., 5.])
    """
    out = np.empty(0)
    for rows, values in parts:
        if not out.size:
            out = np.empty((m, *values.shape[1:]), dtype=values.dtype)
        out[rows] = values
    return out


# ---- densities at many y -------------------------------------------------------------------------------------------
# theta . T(y) up to which the exponential form keeps seven digits of the density.
LARGEST_NATURAL = 1e8


def mixture_density(family: Family, eta: Array, weights: Array, y: Array) -> Array:
    """Densities of y (k, G, ...) under mixtures over nodes (k, S, D) with weights (k, S) or (1, S): (k, G)."""
    return np.matmul(np.broadcast_to(weights, eta.shape[:2])[:, None, :], np.exp(log_densities(family, eta, y)))[:, 0]


def log_densities(family: Family, eta: Array, y: Array, natural: tuple[Array, Array] | None = None) -> Array:
    """log p(y | eta) for every node and every y, (k, S, G); ``natural`` are the family's at the nodes, if known."""
    if family.has("natural"):
        theta, b = family.natural(eta) if natural is None else natural
        T, log_h = family.statistic(y)
        if np.abs(theta).max() * np.abs(T).max() < LARGEST_NATURAL:
            out = np.matmul(theta, T.swapaxes(1, 2))
            out -= b[..., None]
            out += log_h[:, None, :]
            return out
    return family.log_prob(eta[:, :, None, :], y[:, None])
