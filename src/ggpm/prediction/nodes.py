"""Nodes under the Gaussian of every row's latent vector, as many as the row needs.

A family's density is a smooth function of its latents on the scale of one, and of the square root of their size where they
are large: that is how wide the likelihood is. Latents that are known better than that need a few Gauss-Hermite nodes for
each dimension. For wider ones the trapezoidal rule is taken in t, x = t sqrt(1 + t²/4), x a latent's own value: its nodes
lie one apart near zero and the square root of x far from it. The dimensions are those of the Cholesky factor, in order.
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

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Largest standard deviation of a dimension, in units of the likelihood's width, and Gauss-Hermite nodes that then give the
# distribution functions of angles and of parts of compositions to 2e-5 at worst (measured at means between -2 and 20).
HERMITE = ((1e-4, 1), (0.06, 2), (0.16, 3), (0.27, 4), (0.36, 5), (0.43, 6), (0.49, 7), (0.55, 8), (0.6, 9), (0.7, 11))
CORNERS = 5e-6  # weight of the nodes of a product that are left out
# Standard deviations that wider rules reach, and the largest spacing in t.
REACH, SPACING = 5.3, 0.9
MOST = 2**15  # nodes of one row; where the product has more of them, Sobol points serve, with an error of 1e-3 or less


def latent_nodes(
    mean: Array, root: Array, U: Array, per_node: int, most: int = MOST
) -> Iterator[tuple[Rows, Array, Array]]:
    """Rows (k,), their nodes (k, S, D) and weights (k, S) or (1, S).

    Parameters
    ----------
    mean, root : (m, D) and (m, D, D)
        Gaussians of the latent, with lower Cholesky factors of their covariances.
    U : (m, D, D)
        Information about the latent in one observation, at the mean: its inverse is how wide likelihoods are.
    per_node : int
        Numbers that the caller holds for every node, which decides how many rows come at once.
    most : int
        Nodes of one row from which on Sobol points serve instead.

    Examples
    --------
    >>> parts = latent_nodes(np.ones((1, 2)), 3.0 * np.eye(2)[None], np.eye(2)[None], 1)
    >>> [float(np.round(w[0] @ eta[0, :, 0] ** 2, 4)) for _, eta, w in parts]
    [10.0]
    """
    D = mean.shape[1]
    sd = np.sqrt(np.maximum(np.einsum("mik,mij,mjk->mk", root, U, root, optimize=True), 0.0))
    limits, counts = np.array([h[0] for h in HERMITE]), np.array([h[1] for h in HERMITE])
    rule = counts[np.minimum(np.searchsorted(limits, sd), len(counts) - 1)]
    rule[sd > limits[-1]] = 0
    rule[(rule == 0).any(axis=1)] = 0
    for sizes in np.unique(rule, axis=0):
        of_rule = np.flatnonzero((rule == sizes).all(axis=1))
        if not sizes.all():
            for i in of_rule:
                yield of_rule[of_rule == i], *_wide(mean[i], root[i], most)
            continue
        nodes, weights = hermite(tuple(int(n) for n in sizes))
        for part in batches(len(of_rule), len(nodes) * max(per_node, 4 * D)):
            rows = of_rule[part]
            yield rows, mean[rows, None, :] + nodes @ root[rows].swapaxes(1, 2), weights[None]


def semidefinite_cholesky(cov: Array) -> Array:
    """Lower triangular R with R R^T = cov (m, D, D), positive semidefinite: column by column, those without variance zero.

    >>> semidefinite_cholesky(np.array([[[4.0, 2.0], [2.0, 1.0]]]))
    array([[[2., 0.],
            [1., 0.]]])
    """
    rest, root = cov.copy(), np.zeros_like(cov)
    own = np.einsum("mjj->mj", cov)
    for j in range(cov.shape[-1]):
        # what is left of a variance after rounding is none
        left = np.where(rest[:, j, j] > 1e-14 * own[:, j], rest[:, j, j], np.inf)
        root[:, j:, j] = rest[:, j:, j] / np.sqrt(left)[:, None]
        rest[:, j:, j:] -= root[:, j:, j, None] * root[:, None, j:, j]
    return root


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


def _wide(mean: Array, root: Array, most: int) -> tuple[Array, Array]:
    """Nodes (1, S, D) and weights (1, S) of one row whose latent is wider than the likelihood, in some direction."""
    D = len(mean)
    eta, weights = mean[None], np.ones(1)
    for j in range(D):
        column = root[:, j]
        sd = float(np.sqrt(column @ column))
        if sd == 0.0:
            continue
        x, w = _axis(eta @ (column / sd), sd)
        if w.size > most:
            nodes, weights = matched_nodes(D, "fine")
            return (mean + nodes @ root.T)[None], weights[None]
        eta = (eta[:, None, :] + x[..., None] * (column / sd)).reshape(-1, D)
        weights = (weights[:, None] * w).ravel()
        keep = weights > 1e-9 * weights.max()
        eta, weights = eta[keep], weights[keep] / weights[keep].sum()
    return eta[None], weights[None]


def _axis(centre: Array, sd: float) -> tuple[Array, Array]:
    """Offsets (S, N) along one direction and their weights, by values (S,) that the latent has there before."""
    from_x = lambda x: np.sign(x) * np.sqrt(2.0 * (np.sqrt(1.0 + x * x) - 1.0))  # noqa: E731
    low, high = from_x(centre - REACH * sd), from_x(centre + REACH * sd)
    t0 = from_x(centre)
    own = (1.0 + 0.5 * t0**2) / np.sqrt(1.0 + 0.25 * t0**2)  # dx/dt at the centre
    spacing = (SPACING / np.hypot(1.0, own / sd)).min()
    t = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, int(np.ceil((high - low).max() / spacing)) + 1)
    root = np.sqrt(1.0 + 0.25 * t * t)
    x = t * root - centre[:, None]
    w = np.exp(-0.5 * (x / sd) ** 2) * (1.0 + 0.5 * t * t) / root
    return x, w / w.sum(axis=1, keepdims=True)


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


def log_densities(family: Family, eta: Array, y: Array) -> Array:
    """log p(y | eta) for every node and every y, (k, S, G)."""
    if family.has("natural"):
        theta, b = family.natural(eta)
        T, log_h = family.statistic(y)
        if np.abs(theta).max() * np.abs(T).max() < LARGEST_NATURAL:
            out = np.matmul(theta, T.swapaxes(1, 2))
            out -= b[..., None]
            out += log_h[:, None, :]
            return out
    return family.log_prob(eta[:, :, None, :], y[:, None])
