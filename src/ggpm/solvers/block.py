"""Any symmetric U_i: one factorisation of order nD.

``U_i = S_i S_i^T - R_i R_i^T`` by eigenvalues; the positive part gives ``B = I + S^T K S``, the negative
directions a second, smaller factorisation on top of it, so that definiteness is read off two Cholesky
factorisations. Vectors and matrices of order nD are ordered by data point.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ggpm._linalg import available_memory, cholesky, cholesky_inverse, gram, log_det_lower, mirror, solve_lower
from ggpm.curvature import Blocks

Array = NDArray[np.float64]

# How many nD×nD arrays are alive at once, counted from the code below.
ARRAYS_ALIVE = 4


class BlockSolution:
    """`Solution` for general blocks, O((nD)^3)."""

    def __init__(self, K: Sequence[Array], U: Blocks):
        n, D, _ = U.values.shape
        check_memory(n, D)
        self.K, self.shape = K, (n, D)
        values, vectors = np.linalg.eigh(U.values)
        S = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        # B = I + S^T K S
        B: Array = np.zeros((n, D, n, D))
        for j in range(D):
            B += S[:, j, :, None, None] * self._K(j)[:, None, :, None] * S[None, None, :, j, :]
        B = B.reshape(n * D, n * D)
        B.flat[:: n * D + 1] += 1.0
        L = cholesky(B)
        self.log_det = log_det_lower(L)
        E = mirror(cholesky_inverse(L)).reshape(n, D, n, D)
        E = np.einsum("iab,ibkc->iakc", S, E, optimize=True)
        E = np.einsum("iakb,kcb->iakc", E, S, optimize=True)
        self.E = E.reshape(n * D, n * D)
        rows, columns = np.nonzero(values < 0)
        if rows.size:
            R: Array = np.zeros((n, D, rows.size))
            R[rows, :, np.arange(rows.size)] = vectors[rows, :, columns] * np.sqrt(-values[rows, columns])[:, None]
            R = R.reshape(n * D, -1)
            T = R - self.E @ self._K_dot(R)  # K^-1 V_+ R
            M = -R.T @ self._K_dot(T)
            M = (M + M.T) / 2
            M.flat[:: len(M) + 1] += 1.0
            L_M = cholesky(M)
            self.log_det += log_det_lower(L_M)
            self.E -= gram(solve_lower(L_M, T.T))

    def _K(self, j: int) -> Array:
        return self.K[j if len(self.K) > 1 else 0]

    def _K_dot(self, A: Array) -> Array:
        n, D = self.shape
        out = np.empty((n, D, A.shape[1]))
        A = A.reshape(n, D, -1)
        for j in range(D):
            out[:, j] = self._K(j) @ A[:, j]
        return out.reshape(n * D, -1)

    def solve(self, r: Array) -> Array:
        flat = r.reshape(-1, 1)
        return (flat - self.E @ self._K_dot(flat)).reshape(r.shape)

    def marginals(self) -> Blocks:
        # V_ii = K_ii - [K E K]_ii
        n, D = self.shape
        E = self.E.reshape(n, D, n, D)
        out = np.zeros((n, D, D))
        for k in range(D):
            EK = np.tensordot(E[:, :, :, k], self._K(k), axes=(2, 0))  # (n, D, n)
            for j in range(D):
                out[:, j, k] = -np.einsum("ai,ai->i", self._K(j), EK[:, j])
            out[:, k, k] += np.diag(self._K(k))
        return Blocks((out + out.transpose(0, 2, 1)) / 2)

    def precision(self) -> list[Array]:
        n, D = self.shape
        blocks = [self.E.reshape(n, D, n, D)[:, j, :, j].copy(order="F") for j in range(D)]
        return blocks if len(self.K) > 1 or D == 1 else [np.asfortranarray(np.sum(blocks, axis=0))]

    def reduction(self, K_star: Sequence[Array]) -> Array:
        n, D = self.shape
        E, m = self.E.reshape(n, D, n, D), K_star[0].shape[1]
        out = np.empty((m, D, D))
        for k in range(D):
            Ek = np.tensordot(E[:, :, :, k], K_star[k if len(K_star) > 1 else 0], axes=(2, 0))
            for j in range(D):
                out[:, j, k] = np.einsum("nm,nm->m", K_star[j if len(K_star) > 1 else 0], Ek[:, j])
        return (out + out.transpose(0, 2, 1)) / 2


def check_memory(n: int, D: int) -> None:
    """Refuse, before anything is allocated, blocks that would not fit in memory."""
    need, have = ARRAYS_ALIVE * 8 * (n * D) ** 2, available_memory()
    if need > have:
        raise MemoryError(
            f"general {D}×{D} blocks for {n} rows need {need / 2**30:.1f} GiB, {have / 2**30:.1f} GiB are free. "
            "Use fewer rows, inducing points, or a family whose curvature is declared diagonal or rank-one."
        )
