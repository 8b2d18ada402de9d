"""Class probabilities E[softmax(f)], f ~ N(mean, cov), by quasi-random points: for covariances of no few factors.

Of latents that are not wide, averages of the softmax. Wide ones make it a step; there class j has the probability that
f_j + G_j is the largest, G standard Gumbel variables, and given these it is that of an orthant, P(x <= tau) of normal
differences x_k = f_k - f_j and tau_k = G_j - G_k. Its integral has one variable after the other, in the order of
their chances, each from its conditional law below its bound (Genz 1992, Gibson, Glasbey and Elston 1994):

    P(x <= tau) = E[prod_i Phi(b_i)],  b_i = (tau_i - mean_i - sum_(l < i) L_il e_l)/L_ii,  e_i = Phi^-1(u_i Phi(b_i)).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ggpm.families.special import softmax
from ggpm.families.special.quadrature import normal_points, sobol

Array = NDArray[np.float64]

# Standard deviation of a difference of two latents from which on orthants are nearer, and numbers of points (base 2).
# Probabilities of six and ten classes are off by 1e-6 (standard deviations of latents up to one), 1e-5 to 2e-5 (three),
# 3e-6 and 2e-5 (ten), 5e-7 and 3e-5 (a hundred).
WIDE, POINTS, OF_ORTHANTS = 7.0, 18, 16
TOGETHER = 2**12  # points that are worked on at once: they stay in the processor's cache
LEAST = 1e-300  # of a probability whose quantile is taken
ROUNDING = 1e-12  # of a conditional variance, relative to the variance
HALF = 0.5  # error of all points, relative to what the second half of them changes


def probabilities_by_points(mean: Array, cov: Array) -> tuple[Array, Array]:
    """Probabilities (n, D) and estimates of their error (n,).

    >>> found, error = probabilities_by_points(np.zeros((1, 3)), 100.0 * np.eye(3)[None])
    >>> bool(np.abs(found - 1.0 / 3.0).max() < 1e-5)
    True
    """
    out, error = np.empty(mean.shape), np.empty(len(mean))
    widest = largest_difference(cov)
    for row in range(len(mean)):
        if widest[row] > WIDE:
            halves = np.stack([_orthant(mean[row], cov[row], j) for j in range(mean.shape[1])], axis=1)
        else:
            halves = _averages(mean[row], cov[row])
        out[row] = halves.mean(axis=0)
        error[row] = HALF * np.abs(out[row] - halves[0]).max()
    return out, error


def probabilities_of(mean: Array, cov: Array, code: NDArray[np.intp]) -> tuple[Array, Array]:
    """Probabilities (n,) of one class in every row, of wide latents, and estimates of their relative error.

    >>> p, error = probabilities_of(np.array([[0.0, 0.0, 200.0]]), 100.0 * np.eye(3)[None], np.array([0]))
    >>> bool(p[0] < 1e-40), bool(error[0] < 0.02)
    (True, True)
    """
    halves = np.stack([_orthant(m, C, int(j)) for m, C, j in zip(mean, cov, code, strict=True)], axis=1)
    p = halves.mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):  # what cannot be
        return p, HALF * np.abs(p - halves[0]) / p


def largest_difference(cov: Array) -> Array:
    """Largest standard deviation of a difference of two latents, (n,).

    >>> largest_difference(np.eye(2)[None] * 8.0)
    array([4.])
    """
    var = np.einsum("njj->nj", cov)
    return np.asarray(np.sqrt((var[:, :, None] + var[:, None, :] - 2.0 * cov).max(axis=(1, 2))))


def _averages(mean: Array, cov: Array) -> Array:
    """Averages of the softmax over either half of the points, (2, D): the widest of principal axes first."""
    D = len(mean)
    H = np.eye(D) - 1.0 / D
    values, axes = np.linalg.eigh(H @ cov @ H)
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), range(D)])
    root = (axes * np.sqrt(np.maximum(values, 0.0)))[:, :0:-1]
    x, out = normal_points(D - 1, POINTS), np.zeros((2, D))
    for start in range(0, len(x), TOGETHER):
        out[2 * start // len(x)] += softmax(mean + x[start : start + TOGETHER] @ root.T).sum(axis=0)
    return out / (0.5 * len(x))


def _orthant(mean: Array, cov: Array, j: int) -> Array:
    """Probability that class j is the largest, by either half of the points, (2,)."""
    others = np.delete(np.arange(len(mean)), j)
    away = cov[others] - cov[j]
    centre, L = _ordered(mean[others] - mean[j], away[:, others] - away[:, [j]])
    u, tau = _uniform(len(mean))
    d, size, out = len(centre), u.shape[1], np.zeros(2)
    for start in range(0, size, TOGETHER):
        some = slice(start, start + TOGETHER)
        product, e = np.ones(TOGETHER), np.empty((d, TOGETHER))
        for i in range(d):
            below = ndtr((tau[i, some] - centre[i] - L[i, :i] @ e[:i]) / L[i, i])
            product *= below
            if i + 1 < d:
                e[i] = ndtri(np.maximum(u[i, some] * below, LEAST))
        out[2 * start // size] += product.sum()
    return out / (0.5 * size)


def _ordered(mean: Array, cov: Array) -> tuple[Array, Array]:
    """Means and the Cholesky root in the order of least chances of x <= 0, given what is expected of those before."""
    d = len(mean)
    mean, cov, L, e = mean.copy(), cov.copy(), np.zeros((d, d)), np.zeros(d)
    for i in range(d):
        left = np.diagonal(cov)[i:] - np.square(L[i:, :i]).sum(axis=1)
        sd = np.sqrt(np.maximum(left, ROUNDING * np.maximum(np.diagonal(cov)[i:], ROUNDING)))
        bound = -(mean[i:] + L[i:, :i] @ e[:i]) / sd
        k = int(np.argmin(bound))
        order = np.arange(d)
        order[[i, i + k]] = order[[i + k, i]]
        mean, cov, L = mean[order], cov[order][:, order], L[order]
        L[i, i] = sd[k]
        L[i + 1 :, i] = (cov[i + 1 :, i] - L[i + 1 :, :i] @ L[i, :i]) / L[i, i]
        b = float(np.clip(bound[k], -30.0, 30.0))
        e[i] = -np.exp(-0.5 * b * b) / np.sqrt(2.0 * np.pi) / ndtr(b)
    return mean, L


@lru_cache(maxsize=4)
def _uniform(D: int) -> tuple[Array, Array]:
    """Points of the unit cube (D - 2, S), and differences of Gumbel variables (D - 1, S)."""
    u = np.ascontiguousarray(sobol(2 * D - 2).random_base2(OF_ORTHANTS).clip(1e-12, 1.0 - 1e-12).T)
    gumbel = -np.log(-np.log(u[D - 2 :]))
    return u[: D - 2], gumbel[0] - gumbel[1:]
