"""Means and covariances of shares alpha_j/S, S = sum_j alpha_j, and of compositions with these parameters.

Powers of 1/S are Laplace transforms, 1/S = int exp(-t S) dt and 1/(S (S + 1)) = int (1 - exp(-t)) exp(-t S) dt, so that
for latents which are independent given one number z (`split`)

    E[alpha_i/S] = int N(z) prod_j L_j (L'_i/L_i) dt dz,
    L_j = E_x[exp(-t alpha_j)],  L'_j = E_x[alpha_j exp(-t alpha_j)],

and second moments are the same with two such ratios: D integrals of one dimension at the nodes of two. What one factor
leaves of the covariance counts to first order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.laguerre import laggauss
from numpy.typing import NDArray

from ggpm.data.rows import batches
from ggpm.families.special.one_scale import NO_REST, split

Array = NDArray[np.float64]

# Nodes in z, t and every x, rule after rule, each off by a tenth of its change from the one before or less.
SIZES = ((3, 8, 3), (5, 10, 5), (7, 14, 7), (11, 20, 11))
NEXT = 0.1


def composition_moments(
    alpha: Callable[[Array], Array], mean: Array, cov: Array, tolerance: float
) -> tuple[Array, Array]:
    """Means (n, D) and covariances (n, D, D) of Dirichlet variables with parameters alpha(eta), eta ~ N(mean, cov).

    ``tolerance`` is that of every entry; nan where no rule reaches it.

    >>> mean, cov = composition_moments(np.exp, np.zeros((1, 3)), np.zeros((1, 3, 3)), 1e-9)
    >>> mean.round(6), cov[0, 0].round(6)
    (array([[0.333333, 0.333333, 0.333333]]), array([ 0.055556, -0.027778, -0.027778]))
    """
    n, D = mean.shape
    first, second = np.full((n, D), np.nan), np.full((n, D, D), np.nan)
    factor, delta, rest = split(cov)
    rows = np.flatnonzero(np.isfinite(delta[:, 0]))
    for sizes in SIZES:
        left = [rows[:0]]
        for part in batches(rows.size, D * max(sizes[2], sizes[1])):
            i = rows[part]
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                m, s = _moments(alpha, mean[i], factor[i], np.sqrt(delta[i]), rest[i], sizes)
                change = np.maximum(np.abs(m - first[i]).max(axis=1), np.abs(s - second[i]).max(axis=(1, 2)))
            first[i], second[i] = m, s
            left.append(i[~(NEXT * change <= tolerance)])
        rows = np.concatenate(left)
    first[rows], second[rows] = np.nan, np.nan
    return first, second - first[:, :, None] * first[:, None, :]


def _moments(
    alpha: Callable[[Array], Array], mean: Array, factor: Array, sd: Array, rest: Array, sizes: tuple[int, int, int]
) -> tuple[Array, Array]:
    """E[y_i] and E[y_i y_k] by one rule; arrays inside have rows last, so that loops are long."""
    n, D = mean.shape
    (z_nodes, z_weights), (x, weights) = hermite(sizes[0]), hermite(sizes[2])
    if not factor.any():
        z_nodes, z_weights = np.zeros(1), np.ones(1)
    u, u_weights = laguerre(sizes[1])
    mean, factor, sd = (np.ascontiguousarray(a.T) for a in (mean, factor, sd))
    per_sd = np.where(sd > 0, 1.0 / np.where(sd > 0, sd, 1.0), 0.0)
    E = rest.transpose(1, 2, 0) * per_sd[:, None] * per_sd
    coupled = bool(np.abs(E).max() > NO_REST)
    S = alpha(mean).sum(axis=0)
    Q, q = len(z_nodes) * len(u), 0
    ratios, own, sizes_of = np.empty((Q, D, n)), np.empty((Q, D, n)), np.empty((3, Q, n))
    pulls, tilts = np.zeros((2, Q, D, n)) if coupled else (None, None)
    along, weights = x[:, None, None], weights[:, None, None]
    for node, weight in zip(z_nodes, z_weights):
        a = alpha(mean + factor * node + sd * along)
        for place, t_weight in zip(u, u_weights):
            t = place / S
            P = np.exp(-t * a)
            P *= weights
            aP = a * P
            aaP = a * aP
            L, L1, L2 = P.sum(axis=0), aP.sum(axis=0), aaP.sum(axis=0)
            size = weight * t_weight / S * L.prod(axis=0)
            ratios[q], own[q], twice = L1 / L, (L1 + L2) / L, -np.expm1(-t)
            sizes_of[:, q] = size, size, size * twice
            if (
                pulls is not None and tilts is not None
            ):  # E[(1 + x^T E x/2) ...], x_j and x_k under factors of their own
                x_P, x_aP, x_aaP = ((along * f).sum(axis=0) for f in (P, aP, aaP))
                x_P /= L
                E_x = np.einsum("ijn,jn->in", E, x_P)
                gain = 1.0 + 0.5 * (x_P * E_x).sum(axis=0)
                sizes_of[1:, q] *= gain
                tilts[q] = x_aP / L1 - x_P
                pulls[q] = tilts[q] * E_x
                own[q] += ((x_aP + x_aaP) / L - (L1 + L2) / L * x_P) * E_x / gain
            q += 1
    one = np.einsum("qn,qin->ni", sizes_of[1], ratios)
    R, by_size = (np.ascontiguousarray(v.transpose(2, 1, 0)) for v in (ratios, ratios * sizes_of[2][:, None]))
    two = by_size @ R.swapaxes(1, 2)
    if pulls is not None and tilts is not None:
        one += np.einsum("qn,qin,qin->ni", sizes_of[0], ratios, pulls)
        half = (by_size * pulls.transpose(2, 1, 0)) @ R.swapaxes(1, 2)
        T = tilts.transpose(2, 1, 0)
        two += half + half.swapaxes(1, 2) + E.transpose(2, 0, 1) * ((by_size * T) @ (R * T).swapaxes(1, 2))
    two[:, range(D), range(D)] = np.einsum("qn,qin->ni", sizes_of[2], own)
    return one, two


@lru_cache(maxsize=8)
def hermite(size: int) -> tuple[Array, Array]:
    """Gauss's nodes and weights of the standard normal."""
    x, w = hermegauss(size)
    return x, w / w.sum()


@lru_cache(maxsize=8)
def laguerre(size: int) -> tuple[Array, Array]:
    """Gauss's nodes and weights for integrals over the positive numbers of what falls like exp(-u)."""
    u, w = laggauss(size)
    return u, w * np.exp(u)
