"""Lumped elimination: a factor of nearly the posterior precision ``Q + U`` that is as sparse as the prior's.

Points are eliminated from the last to the first, fine to coarse. Given the points of its clique, point i is
``b_i^T f_c`` plus noise of variance d_i; with sites of precision U_i it is thus an observation of ``b_i^T f_c`` with
precision ``(d_i + U_i^-1)^-1``. Passed on as it is, it would couple all points of the clique, which is fill. Lumped,
as masses are in finite elements, it goes to these points one by one, in proportion to their weights b_i. What has
arrived at a point when its turn comes is ``U_i + ... =: S_i``, and

    M = L^T T L,   T_i = D_i^-1 + S_i,   row i of L: 1 at the point, -(I + D_i S_i)^-1 b_i at its clique.

Lumping keeps the energy of constants where weights add up to one, as modified incomplete factorisations do (Gustafsson
1978), and passes from scale to scale as multigrid does: conjugate gradients with M take about as many steps for ten
thousand points as for a million, where ``A^T (D^-1 + U) A`` (Kündig and Sigrist 2024) takes ten to fifty times as many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import bsr_matrix, csr_matrix

from ggpm.fields.dense.matrices import kernel_of
from ggpm.fields.neighbours.conditionals import Conditionals, sparse_triangle
from ggpm.fields.neighbours.layout import Layout

Array = NDArray[np.float64]


class Elimination:
    """The factor M of one latent, or of several whose sites couple.

    Parameters
    ----------
    layout : Layout
    priors : of one kernel that all latents share, or one for each
    U : precisions of the sites at the points, (N, D, D); what is negative in them is left out, as M must be positive
    """

    def __init__(self, layout: Layout, priors: Sequence[Conditionals], U: Array) -> None:
        D = U.shape[1]
        of = [priors[kernel_of(j, len(priors))] for j in range(D)]
        b = np.stack([-prior.a[:, :-1] for prior in of], axis=2)  # (N, k, D)
        d = np.stack([prior.d for prior in of], axis=1)
        S = _arrived(layout, b, d, _positive(U))
        T = S + np.einsum("nj,jk->njk", 1.0 / d, np.eye(D))
        self.C = np.linalg.cholesky(T)
        """Roots of the pivots, (N, D, D)."""
        self._T_inverse = np.linalg.inv(T)
        self.L = _rows(layout, self._T_inverse / d[:, None, :], b)  # (I + D S)^-1 = T^-1 D^-1
        """The triangle, (ND, ND)."""
        self._triangle = sparse_triangle(self.L)

    @property
    def log_det(self) -> float:
        """log |M|."""
        return 2.0 * float(np.sum(np.log(np.einsum("njj->nj", self.C))))

    def root_dot(self, e: Array) -> Array:
        """``L^T C e``, whose covariance is M for white e (N, D, r)."""
        return (self.L.T @ _flat(np.matmul(self.C, e))).reshape(e.shape)

    def root_solve(self, e: Array) -> Array:
        """``M^-1 L^T C e``, whose covariance is the inverse of M for white e."""
        inner = np.asarray(np.linalg.solve(self.C.swapaxes(1, 2), e), dtype=np.float64)
        return self._triangle.solve(_flat(inner)).reshape(e.shape)

    def solve(self, r: Array) -> Array:
        """``M^-1 r`` for r (N, D, columns)."""
        half = self._triangle.solve(_flat(r), trans="T").reshape(r.shape)
        return self._triangle.solve(_flat(np.matmul(self._T_inverse, half))).reshape(r.shape)


def _flat(x: Array) -> Array:
    return np.ascontiguousarray(x).reshape(-1, x.shape[2])


def _positive(U: Array) -> Array:
    """Precisions without their negative parts."""
    if U.shape[1] == 1:
        return np.maximum(U, 0.0)
    values, vectors = np.linalg.eigh(U)
    if np.all(values >= 0):
        return U
    return np.einsum("njk,nk,nlk->njl", vectors, np.maximum(values, 0.0), vectors)


def _arrived(layout: Layout, b: Array, d: Array, U: Array) -> Array:
    """The precisions S that have arrived at every point when its turn comes, (N, D, D)."""
    D = b.shape[2]
    near = layout.cliques.members[:, :-1]
    # shares of the clique: weights that are negative get none, and all together what the weights add up to
    shares = np.maximum(b, 0.0)
    total = shares.sum(axis=1, keepdims=True)
    shares /= np.where(total > 0, total, 1.0)
    shares = np.sqrt(shares) * np.abs(b.sum(axis=1, keepdims=True))
    S = U.copy()
    flat, entries = S.reshape(-1), np.arange(D * D)
    for points in reversed(layout.generations):
        at, here = near[points], S[points]
        passed = here - np.matmul(here, np.linalg.solve(here + np.einsum("nj,jk->njk", 1 / d[points], np.eye(D)), here))
        parts = np.einsum("nkj,njl,nkl->nkjl", shares[points], passed, shares[points])
        there = at >= 0
        np.add.at(flat, (at[there][:, None] * (D * D) + entries).ravel(), parts[there].ravel())
    return (S + S.swapaxes(1, 2)) / 2


def _rows(layout: Layout, inner: Array, b: Array) -> csr_matrix:
    """The rows of L: ``-inner_i diag(b_ik)`` at the members k of clique i, the identity at the point."""
    N, k, D = b.shape
    blocks = np.empty((N, k + 1, D, D))
    blocks[:, :-1] = -inner[:, None] * b[:, :, None, :]
    blocks[:, -1] = np.eye(D)
    pointers, columns, present = layout.pattern
    matrix = bsr_matrix((blocks[present], columns, pointers), shape=(N * D, N * D)).tocsr()
    matrix.eliminate_zeros()  # of the identity blocks: above the diagonal there is nothing
    return matrix
