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
    """Independent latent dimensions, O(D n^3); covariances are (n, D)."""

    def __init__(self, K: KernelMatrices, E_and_V: Iterable[tuple[Array, Array]]):
        self.K = K
        self.T, self.V = [], []
        for j, (precision, V) in enumerate(E_and_V):
            T = product(precision, K.of(j))
            T *= -1.0
            T.ravel(order="K")[:: len(T) + 1] += 1.0
            self.T.append(T)
            self.V.append(V)
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
    """Coupled latent dimensions, O(D^2 n^3) from E; covariances are (n, D, D).

    V (n, D, n, D) is ``K - K E K`` where a solver does not know it better: that loses digits as K grows.
    """

    def __init__(self, K: KernelMatrices, E: Array, V: Array | None = None):
        self.K = K
        n, D = E.shape[:2]
        E = E.reshape(n * D, n * D)
        if K.joint:
            T = -product(E, K.of(0))
        else:
            # E K, column blocks of the latent dimensions one after the other
            T = np.empty((n * D, n, D))
            for k in range(D):
                T[:, :, k] = product(E.reshape(n * D, n, D)[:, :, k], -K.of(k))
            T = T.reshape(n * D, n * D)
        T.flat[:: n * D + 1] += 1.0
        self.T = T.reshape(n, D, n, D)
        if V is None:
            V = product(K.of(0), T) if K.joint else self._K_T()
            V = ((V + V.T) / 2).reshape(n, D, n, D)
        self.V = V

    def _K_T(self) -> Array:
        n, D = self.T.shape[:2]
        out = np.empty((n, D, n * D))
        for j in range(D):
            out[:, j] = product(self.K.of(j), np.ascontiguousarray(self.T[:, j].reshape(n, n * D)))
        return out.reshape(n * D, n * D)

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
