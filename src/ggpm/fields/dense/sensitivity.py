"""Pullbacks of the posterior's marginals to sites and kernel matrices.

A quantity L of a fitted posterior, such as a leave-one-out density, is a function of every row's mean m_i, covariance
V_ii and site. The posterior is m = K z, V = (K^-1 + U)^-1, so with T = (I + U K)^-1 = K^-1 V and E = (K + U^-1)^-1

    dL/dU = -V [dL/dV] V              (D×D diagonal blocks of it)
    dL/dK = a z^T + T [dL/dV] T^T     (symmetric part, blocks jj), a the total derivative in m at fixed z
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ggpm.fields.dense.matrices import KernelMatrices
from ggpm.kernels.linalg import product, symmetric_dot

Array = NDArray[np.float64]


class DiagonalSensitivity:
    """Independent latent dimensions with curvature gamma (n, D), O(D n^3); covariances are (n, D)."""

    def __init__(self, K: KernelMatrices, gamma: Iterable[Array], V: Iterable[Array]):
        self.K, self.V = K, list(V)
        self.T = [np.eye(len(v)) - g[:, None] * v for g, v in zip(gamma, self.V)]
        self.V_squared = [v * v for v in self.V]

    def in_own_shape(self, V_bar: Array) -> Array:
        """A derivative (n, D, D) in the shape that this works in."""
        return np.ascontiguousarray(np.einsum("njj->nj", V_bar)) if V_bar.ndim == 3 else V_bar

    def sandwich(self, V_bar: Array) -> Array:
        """``V V_bar V`` within rows."""
        return np.stack([symmetric_dot(v2, V_bar[:, j]) for j, v2 in enumerate(self.V_squared)], axis=1)

    def kernels(self, m_bar: Array, V_bar: Array, z: Array) -> list[Array]:
        """Derivatives in the kernel matrices."""
        return _cotangents(self.K, m_bar, z, (product(T * V_bar[:, j], T.T) for j, T in enumerate(self.T)))

    def covariance(self) -> Array:
        """V, (n, D, n, D)."""
        n, D = len(self.V[0]), len(self.V)
        out = np.zeros((n, D, n, D))
        for j, V in enumerate(self.V):
            out[:, j, :, j] = V
        return out


class BlockSensitivity:
    """Coupled latent dimensions, O(D^2 n^3); V and T are (n, D, n, D), covariances (n, D, D)."""

    def __init__(self, K: KernelMatrices, T: Array, V: Array):
        self.K, self.T, self.V = K, T, V

    @classmethod
    def of(cls, K: KernelMatrices, U: Array, V: Array) -> BlockSensitivity:
        """From V where a solver knows it better than as ``K - K E K``, which loses digits as K grows: T = I - U V."""
        n, D = V.shape[:2]
        T = -np.matmul(U, V.reshape(n, D, n * D)).reshape(n * D, n * D)
        T.flat[:: n * D + 1] += 1.0
        return cls(K, T.reshape(V.shape), V)

    def in_own_shape(self, V_bar: Array) -> Array:
        """A derivative (n, D, D), or (n, D) of diagonals, in the shape that this works in."""
        return V_bar if V_bar.ndim == 3 else V_bar[:, :, None] * np.eye(V_bar.shape[1])

    def sandwich(self, V_bar: Array) -> Array:
        """``V V_bar V`` within rows."""
        n, D = V_bar.shape[:2]
        left = (self.V.swapaxes(1, 2).reshape(n, n, D, D) @ V_bar).swapaxes(1, 2).reshape(n, D, n * D)
        return left @ self.V.reshape(n, D, n * D).swapaxes(1, 2)

    def kernels(self, m_bar: Array, V_bar: Array, z: Array) -> list[Array]:
        """Derivatives in the kernel matrices."""
        n, D = m_bar.shape

        def part(T: Array) -> Array:  # (n, n, D)
            return product(np.einsum("ikb,kbc->ikc", T, V_bar).reshape(n, n * D), T.reshape(n, n * D).T)

        return _cotangents(self.K, m_bar, z, (part(self.T[:, j]) for j in range(D)))

    def covariance(self) -> Array:
        """V, (n, D, n, D)."""
        return self.V


Sensitivity = DiagonalSensitivity | BlockSensitivity


def _cotangents(K: KernelMatrices, m_bar: Array, z: Array, parts: Iterable[Array]) -> list[Array]:
    """``G_j + (a_j z_j^T + z_j a_j^T)/2`` for every kernel matrix, summed over the dimensions that share it."""
    out: list[Array] = []
    for j, G in enumerate(parts):
        half = 0.5 * np.outer(m_bar[:, j], z[:, j])
        G += half
        G += half.T
        if out and K.shared:
            out[0] += G
        else:
            out.append(G)
    return out
