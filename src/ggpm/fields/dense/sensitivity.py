"""Pullbacks of the posterior's marginals to sites and kernel matrices.

A quantity L of a fitted posterior, such as a leave-one-out density, is a function of every row's mean m_i, covariance
V_ii and site. The posterior is m = K z, V = (K^-1 + U)^-1, so with T = (I + U K)^-1 = K^-1 V and E = (K + U^-1)^-1

    dL/dU = -V [dL/dV] V              (D×D diagonal blocks of it)
    dL/dK = a z^T + T [dL/dV] T^T     (symmetric part, blocks jj), a the total derivative in m at fixed z
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ggpm.fields.dense.matrices import KernelMatrices
from ggpm.kernels.linalg import product, strips, symmetric_dot

Array = NDArray[np.float64]


class DiagonalSensitivity:
    """Independent latent dimensions with curvature gamma (n, D), O(D n^3); covariances are (n, D)."""

    def __init__(self, K: KernelMatrices, gamma: Iterable[Array], V: Iterable[Array]):
        self.K, self.V, self.gamma = K, list(V), list(gamma)

    @cached_property
    def V_squared(self) -> list[Array]:
        return [v * v for v in self.V]

    @cached_property
    def T(self) -> list[Array]:
        return [np.eye(len(v)) - g[:, None] * v for g, v in zip(self.gamma, self.V)]

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
    """Coupled latent dimensions, O(D^2 n^3); V and T are (n, D, n, D), covariances (n, D, D) and symmetric."""

    def __init__(self, K: KernelMatrices, V: Array, U: Array | None = None, T: Array | None = None):
        self.K, self.V, self.U = K, V, U
        if T is not None:
            self.T = T

    @cached_property
    def T(self) -> Array:
        """``I - U V``, where a solver knows V better than as ``K - K E K``, which loses digits as K grows."""
        assert self.U is not None
        n, D = self.V.shape[:2]
        T = -np.matmul(self.U, self.V.reshape(n, D, n * D)).reshape(n * D, n * D)
        T.flat[:: n * D + 1] += 1.0
        return T.reshape(self.V.shape)

    def in_own_shape(self, V_bar: Array) -> Array:
        """A derivative (n, D, D), or (n, D) of diagonals, in the shape that this works in."""
        return V_bar if V_bar.ndim == 3 else V_bar[:, :, None] * np.eye(V_bar.shape[1])

    def sandwich(self, V_bar: Array) -> Array:
        """``V V_bar V`` within rows."""
        n, D = V_bar.shape[:2]
        out = np.zeros((n, D, D))
        for rows in strips(n):
            V = self.V[rows]
            half, part = np.empty((2, len(V), n))
            for a in range(D):
                for d in range(D):
                    np.multiply(V[:, a, :, 0], V_bar[:, 0, d], out=half)
                    for c in range(1, D):
                        half += np.multiply(V[:, a, :, c], V_bar[:, c, d], out=part)
                    for b in range(a + 1):
                        out[rows, a, b] += np.einsum("ik,ik->i", half, V[:, b, :, d])
        return out + np.tril(out, -1).swapaxes(1, 2)

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
