"""Class probabilities E[softmax(f)] of correlated latents, f ~ N(mean, cov): integrals over few common factors.

Latents that are independent given r numbers z, f = mean + Lambda z + sqrt(delta) x, have probabilities that are
integrals of one dimension given z (`expected_softmax`), smooth in z on the scale of the latents' own spread and of the
Gumbel noise that a softmax is. Only differences of latents matter: a_j + a_k may be taken from cov_jk for any a, which
leaves no or few factors to find. What they do not describe of the covariance counts to second order where that is
enough (`MOST_REST`); else D - 2 factors describe all of it, and points serve where these are more than three, or rules
over them do not settle (`class_points`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.adaptive import PRODUCT_MOST, Rows, average, expectation, product_rule
from ggpm.families.special.class_points import probabilities_by_points
from ggpm.families.special.logsumexp import expected_softmax

Array = NDArray[np.float64]

GUMBEL_VARIANCE = np.pi**2 / 6.0
# Largest entry of what factors leave of the covariance, relative to variances of latent and Gumbel noise together:
# probabilities of four to ten classes are then off by 1e-7 or less, and by less than 3e-9 with a third of it.
MOST_REST = 0.015
OF_REST = 0.05  # error of a probability, relative to the cube of that entry: 1.3e-6 for four classes and 0.03
# Change of probabilities from rule to rule over one factor, two, three or more, at which a row is settled; rules over
# factors of narrow latents are off by NEXT of their change.
TOLERANCES, NEXT = (3e-8, 1e-7, 5e-7), 0.1
UNSETTLED, BETTER = 1e-5, 0.1  # error of rules over factors from which on points are asked, and share of it that tells
LEAST_OWN = 0.02  # share of a latent's variance that stays its own
SWEEPS, LOOK = 60, 5  # over levels and factors, and after how many of them it is seen whether they are enough
# Steps of latents over a standard deviation of a factor, and Gauss–Hermite nodes that are then off by 3e-8 at most.
HERMITE = ((0.06, 3), (0.15, 4), (0.3, 7))
ROUNDING = 1e-14  # of a covariance, relative to the variances


def class_probabilities(mean: Array, cov: Array, most_rest: float = MOST_REST) -> tuple[Array, Array]:
    """Probabilities (n, D) and estimates of their error (n,).

    >>> cov = np.array([[[2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 2.0]]])
    >>> class_probabilities(np.zeros((1, 3)), cov)[0].round(8)
    array([[0.33333333, 0.33333333, 0.33333333]])
    """
    out = np.empty(mean.shape)
    factors, own, rest, number = decomposed(cov, most_rest)
    error = OF_REST * _share(own, rest) ** 3
    for r in np.unique(number):
        rows = np.flatnonzero(number == r)
        if r > PRODUCT_MOST:
            out[rows], error[rows] = probabilities_by_points(mean[rows], cov[rows])
            continue
        if r == 0:
            out[rows] = expected_softmax(mean[rows], own[rows], _or_none(rest[rows]))
            continue
        step = _step(factors[rows, :, :r], own[rows])
        level = np.searchsorted([limit for limit, _ in HERMITE], step)
        for k in np.unique(level):
            some = rows[level == k]
            given = _Given(mean[some], factors[some, :, :r], own[some], _or_none(rest[some]))
            if k < len(HERMITE):
                x, weights = product_rule(r, HERMITE[k][1])
                z = x[:, None, :] * given.size
                out[some] = np.tensordot(weights, given(z, np.arange(some.size)), axes=1)
            else:
                out[some], change = expectation(
                    average(given), np.zeros_like(given.size), given.size, atol=TOLERANCES[min(r, 3) - 1],
                    next_change=NEXT,
                )  # fmt: skip
                error[some] += change
                hard = some[error[some] > UNSETTLED]
                if hard.size:
                    found, own = probabilities_by_points(mean[hard], cov[hard])
                    better = own < BETTER * error[hard]
                    out[hard[better]], error[hard[better]] = found[better], own[better]
    return out, error


class _Given:
    """Probabilities as a function of factors: of z (S, k, r) in units of the latents, for rows (k,)."""

    def __init__(self, mean: Array, factors: Array, own: Array, rest: Array | None):
        self.mean, self.own, self.rest = mean, own, rest
        self.size = np.linalg.norm(factors, axis=1)
        self.along = factors / np.where(self.size > 0, self.size, 1.0)[:, None, :]

    def __call__(self, z: Array, rows: Rows) -> Array:
        eta = self.mean[rows] + np.einsum("skr,kjr->skj", z, self.along[rows])
        S, k, D = eta.shape
        tile = np.tile(rows, S)
        rest = None if self.rest is None else self.rest[tile]
        return expected_softmax(eta.reshape(-1, D), self.own[tile], rest).reshape(S, k, D)


def _or_none(rest: Array) -> Array | None:
    return rest if rest.any() else None


def _step(factors: Array, own: Array) -> Array:
    """Largest step of a latent over a standard deviation of a factor, in units of its own and of Gumbel noise."""
    return np.abs(factors / np.sqrt(own + GUMBEL_VARIANCE)[:, :, None]).max(axis=(1, 2))


def decomposed(cov: Array, most_rest: float = MOST_REST) -> tuple[Array, Array, Array, NDArray[np.intp]]:
    """Lambda (n, D, D), delta (n, D), rest (n, D, D) and the number of factors of every row.

    cov is diag(delta) + Lambda Lambda^T + rest, but for a_j + a_k.
    """
    n, D = cov.shape[:2]
    factors, own, rest = np.zeros((n, D, D)), np.empty((n, D)), np.zeros((n, D, D))
    number, rows = np.zeros(n, dtype=np.intp), np.arange(n)
    for r in range(min(PRODUCT_MOST, max(D - 2, 0)) + 1):
        Lambda, delta, R = fitted(cov[rows], r, most_rest)
        good = _share(delta, R) <= most_rest
        done = rows[good]
        factors[done, :, :r], own[done], rest[done], number[done] = Lambda[good], delta[good], R[good], r
        rows = rows[~good]
        if not rows.size:
            return factors, own, rest, number
    factors[rows], own[rows] = _exact(cov[rows])
    number[rows] = D - 2
    return factors, own, rest, number


def fitted(cov: Array, r: int, enough: float) -> tuple[Array, Array, Array]:
    """Lambda (n, D, r), delta (n, D) and rest (n, D, D) for levels and r factors by least squares off the diagonal.

    Levels and factors in turn, factors by the principal axes with what they explain on the diagonal (Thurstone 1947),
    until the rest is small ``enough``; from two starts, with levels and without, of which the better one stays.
    """
    n, D = cov.shape[:2]
    if r == 0:
        return np.zeros((n, D, 0)), *_left(cov, _levels(cov, np.zeros_like(cov)), np.zeros_like(cov))
    out = np.zeros((n, D, r)), np.empty((n, D)), np.empty((n, D, D))
    best, rows = np.full(n, np.inf), np.arange(n)
    for start in (_levels(cov, np.zeros_like(cov)), np.zeros((n, D))):
        a, common = start[rows], None
        for _ in range(0, SWEEPS, LOOK):
            for _ in range(LOOK):
                common = _common(cov[rows], a, common, r)
                a = _levels(cov[rows], common)
            assert common is not None
            delta, R = _left(cov[rows], a, common)
            share = _share(delta, R)
            better = share < best[rows]
            i = rows[better]
            out[0][i], out[1][i], out[2][i] = pivoted_root(common[better], r), delta[better], R[better]
            best[i] = share[better]
            left = share > enough
            rows, a, common = rows[left], a[left], common[left]
            if not rows.size:
                return out
        rows = np.flatnonzero(best > enough)
    return out


def _common(cov: Array, a: Array, common: Array | None, r: int) -> Array:
    """Matrices of r factors for levels a, from those before."""
    D = cov.shape[1]
    C = cov - a[:, :, None] - a[:, None, :]
    own = np.einsum("njj->nj", C).copy()
    before = 0.5 * own if common is None else np.einsum("njj->nj", common)
    C[:, range(D), range(D)] = before
    values, axes = np.linalg.eigh(C)
    root = axes[:, :, -r:] * np.sqrt(np.maximum(values[:, None, -r:], 0.0))
    share = np.einsum("njr,njr->nj", root, root)
    room = np.maximum(own - LEAST_OWN * np.einsum("njj->nj", cov), 0.0)
    root *= np.sqrt(np.minimum(1.0, room / np.where(share > 0, share, 1.0)))[:, :, None]
    return root @ root.swapaxes(1, 2)


def _left(cov: Array, a: Array, common: Array) -> tuple[Array, Array]:
    """delta and rest; what is left of covariances by rounding is none."""
    D = cov.shape[1]
    R = cov - a[:, :, None] - a[:, None, :] - common
    delta = np.maximum(np.einsum("njj->nj", R), 0.0)
    R[:, range(D), range(D)] = 0.0
    size = np.einsum("njj->nj", cov).max(axis=1)
    R[np.abs(R).max(axis=(1, 2)) <= ROUNDING * size] = 0.0
    return delta, R


def _levels(cov: Array, common: Array) -> Array:
    """a (n, D) by least squares of cov - common off the diagonal, as far as diagonals stay positive."""
    D = cov.shape[1]
    if D < 3:
        return np.zeros(cov.shape[:2])
    left = cov - common
    own = np.einsum("njj->nj", left)
    off = left.sum(axis=2) - own
    a = (off - off.sum(axis=1, keepdims=True) / (2.0 * (D - 1))) / (D - 2)
    return np.minimum(a, 0.5 * (own - LEAST_OWN * np.einsum("njj->nj", cov)))


def _share(delta: Array, rest: Array) -> Array:
    """Largest entry of the rest, relative to variances of latent and Gumbel noise together, (n,)."""
    unit = np.sqrt(delta + GUMBEL_VARIANCE)
    return np.abs(rest / unit[:, :, None] / unit[:, None, :]).max(axis=(1, 2))


def pivoted_root(matrix: Array, r: int) -> Array:
    """Root (n, D, r) of semidefinite matrices (n, D, D) of rank r: Cholesky's method, the largest pivot first.

    It is unique, unlike eigenvectors.

    >>> pivoted_root(np.array([[[1.0, 2.0], [2.0, 4.0]]]), 1)
    array([[[1.],
            [2.]]])
    """
    n, D = matrix.shape[:2]
    root, left, rows = np.zeros((n, D, r)), matrix, np.arange(n)
    for k in range(r):
        pivot = np.einsum("njj->nj", left).argmax(axis=1)
        largest = left[rows, pivot, pivot]
        root[:, :, k] = left[rows, pivot] / np.sqrt(np.where(largest > 0, largest, np.inf))[:, None]
        left = left - root[:, :, k, None] * root[:, None, :, k]
    return root


def _exact(cov: Array) -> tuple[Array, Array]:
    """Lambda (n, D, D) with D - 2 columns that are not zero, and delta (n, D), alike in all latents.

    The covariance of the differences from the average has the direction (1, ..., 1) as a null vector; with the least of
    its other eigenvalues there, too, that eigenvalue times I leaves a matrix of rank D - 2.
    """
    D = cov.shape[1]
    middle = cov.mean(axis=1)
    centred = cov - middle[:, :, None] - middle[:, None, :] + middle.mean(axis=1)[:, None, None]
    least = np.maximum(np.linalg.eigvalsh(centred)[:, 1], 0.0)
    root = pivoted_root(centred + least[:, None, None] * (1.0 / D - np.eye(D)), D - 2)
    return np.pad(root, ((0, 0), (0, 0), (0, 2))), np.tile(least[:, None], (1, D))
