"""Any symmetric U_i: one factorisation of order nD.

``U_i = S_i S_i^T - R_i R_i^T`` by eigenvalues; the positive part gives ``B = I + S^T K S``, the negative
directions a second, smaller factorisation on top of it, so that definiteness is read off two Cholesky
factorisations. Vectors and matrices of order nD are ordered by data point.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Blocks
from ggpm.fields.dense.matrices import KernelMatrices
from ggpm.fields.dense.sensitivity import BlockSensitivity
from ggpm.kernels.linalg import (
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    gram,
    log_det_lower,
    mirror,
    product,
    solve_lower,
)

Array = NDArray[np.float64]


class BlockSolution:
    """`Solution` for general blocks, O((nD)^3)."""

    def __init__(self, K: KernelMatrices, U: Blocks):
        n, D, _ = U.values.shape
        self.K, self.shape = K, (n, D)
        values, vectors = np.linalg.eigh(U.values)
        self._S = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        self._L: Array | None = cholesky(self._B())
        self.log_det = log_det_lower(self._L)
        self._half: Array | None = None
        rows, columns = np.nonzero(values < 0)
        if rows.size:
            R: Array = np.zeros((n, D, rows.size))
            R[rows, :, np.arange(rows.size)] = vectors[rows, :, columns] * np.sqrt(-values[rows, columns])[:, None]
            R = R.reshape(n * D, -1)
            T = R - self._E_dot(self._K_dot(R))  # K^-1 V_+ R
            M = -product(R.T, self._K_dot(T))
            M = (M + M.T) / 2
            M.flat[:: len(M) + 1] += 1.0
            L_M = cholesky(M)
            self.log_det += log_det_lower(L_M)
            self._half = solve_lower(L_M, T.T)

    def _B(self) -> Array:
        """``I + S^T K S``."""
        n, D = self.shape
        S = self._S
        if self.K.shared:
            columns = S.transpose(0, 2, 1).reshape(n * D, D)
            B: Array = product(columns, columns.T).reshape(n, D, n, D)
            B *= self.K.of(0)[:, None, :, None]
        else:
            B = np.zeros((n, D, n, D))
            for j, K in enumerate(self.K):
                B += S[:, j, :, None, None] * K[:, None, :, None] * S[None, None, :, j, :]
        B = B.reshape(n * D, n * D)
        B.flat[:: n * D + 1] += 1.0
        return B

    @cached_property
    def E(self) -> Array:
        """``(K + W)^-1``; takes the place of the factor, which is all that a Newton step needs."""
        n, D = self.shape
        assert self._L is not None
        E = mirror(cholesky_inverse(self._L)).reshape(n, D, n, D)
        self._L = None
        E = np.matmul(self._S, E.reshape(n, D, n * D)).reshape(n * D, n, D)
        E = np.matmul(E[:, :, None, :], self._S.transpose(0, 2, 1)).reshape(n * D, n * D)
        if self._half is not None:
            E -= gram(self._half)
        return E

    def _E_dot(self, A: Array) -> Array:
        if self._L is None:
            return product(self.E, A)
        n, D = self.shape
        inner = np.matmul(self._S.transpose(0, 2, 1), A.reshape(n, D, -1)).reshape(n * D, -1)
        out = np.matmul(self._S, cholesky_solve(self._L, inner).reshape(n, D, -1)).reshape(n * D, -1)
        return out if self._half is None else out - product(self._half.T, product(self._half, A))

    def _K_dot(self, A: Array) -> Array:
        n, D = self.shape
        out = np.empty((n, D, A.shape[1]))
        A = A.reshape(n, D, -1)
        for j in range(D):
            out[:, j] = product(self.K.of(j), A[:, j])
        return out.reshape(n * D, -1)

    def solve(self, r: Array) -> Array:
        flat = r.reshape(-1, 1)
        return (flat - self._E_dot(self._K_dot(flat))).reshape(r.shape)

    def marginals(self) -> Blocks:
        # V_ii = K_ii - [K E K]_ii
        n, D = self.shape
        E = self.E.reshape(n, D, n, D)
        out = np.zeros((n, D, D))
        for k in range(D):
            EK = product(E[:, :, :, k].reshape(n * D, n), self.K.of(k)).reshape(n, D, n)
            for j in range(D):
                out[:, j, k] = -np.einsum("ai,ai->i", self.K.of(j), EK[:, j])
            out[:, k, k] += np.diag(self.K.of(k))
        return Blocks((out + out.transpose(0, 2, 1)) / 2)

    def precision(self) -> list[Array]:
        n, D = self.shape
        blocks = [self.E.reshape(n, D, n, D)[:, j, :, j].copy(order="F") for j in range(D)]
        return blocks if not self.K.shared or D == 1 else [np.asfortranarray(np.sum(blocks, axis=0))]

    def reduction(self, K_star: KernelMatrices) -> Array:
        n, D = self.shape
        E, m = self.E.reshape(n, D, n, D), K_star.of(0).shape[1]
        out = np.empty((m, D, D))
        for k in range(D):
            Ek = product(E[:, :, :, k].reshape(n * D, n), K_star.of(k)).reshape(n, D, m)
            for j in range(D):
                out[:, j, k] = np.einsum("nm,nm->m", K_star.of(j), Ek[:, j])
        return (out + out.transpose(0, 2, 1)) / 2

    def sensitivity(self) -> BlockSensitivity:
        T = -self._K_dot(self.E).T
        T.flat[:: len(T) + 1] += 1.0
        V = self._K_dot(T)
        shape = (*self.shape, *self.shape)
        return BlockSensitivity(self.K, ((V + V.T) / 2).reshape(shape), T=T.reshape(shape))


class JointSolution(BlockSolution):
    """`Solution` for a `JointMatrix`; cross-covariances of one new row are (nD, D).

    >>> from ggpm.fields.dense.matrices import JointMatrix
    >>> K = JointMatrix(np.array([[1.0, 0.5], [0.5, 1.0]]))  # one row, two dimensions
    >>> JointSolution(K, Blocks(np.eye(2)[None])).solve(np.array([[1.0, 0.0]])).round(4)
    array([[ 0.5333, -0.1333]])
    """

    def _B(self) -> Array:
        n, D = self.shape
        B = np.matmul(self._S.transpose(0, 2, 1), self.K.of(0).reshape(n, D, n * D)).reshape(n * D, n, D)
        B = np.matmul(B[:, :, None, :], self._S).reshape(n * D, n * D)
        B.flat[:: n * D + 1] += 1.0
        return B

    def _K_dot(self, A: Array) -> Array:
        return product(self.K.of(0), A)

    def marginals(self) -> Blocks:
        n, D = self.shape
        K = self.K.of(0)
        V = (K - product(product(K, self.E), K)).reshape(n, D, n, D)
        blocks = V[np.arange(n), :, np.arange(n), :]
        return Blocks((blocks + blocks.transpose(0, 2, 1)) / 2)

    def precision(self) -> list[Array]:
        return [np.array(self.E, order="F")]

    def reduction(self, K_star: KernelMatrices) -> Array:
        return product(product(K_star.of(0).T, self.E), K_star.of(0))[None]
