"""From derivatives in the posterior's marginals to derivatives in sites and kernel matrices.

A quantity L of the fitted sites, such as the leave-one-out density, is a function of every row's posterior mean
m_i, covariance V_ii, z_i and site precision U_i. The posterior is m = V lambda, V = (K^-1 + U)^-1, so with
T = (I + U K)^-1 = K^-1 V and a = T dL/dm

    dL/dlambda = K a,                 dL/dU = -(K a) m^T - V [dL/dV] V          (D×D diagonal blocks of it)
    dL/dK      = a z^T + T [dL/dV] T^T                                          (symmetric part, blocks jj)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Blocks, Curvature, Diagonal
from ggpm.fields.dense import Solution
from ggpm.fields.dense.block import BlockSolution
from ggpm.fields.dense.diagonal import DiagonalSolution
from ggpm.kernels.linalg import mirror, product, symmetric_dot

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cotangent:
    """Derivatives of a quantity in what a posterior is at the rows: each (n, D) or (n, D, D), and phi (p,)."""

    mean: Array
    V: Array
    z: Array
    U: Array
    phi: Array


class PosteriorMap(Protocol):
    """The map (lambda, U, K) -> (m, V_ii), pulled back."""

    def sites(self, mean: Array, V: Array) -> tuple[Array, Array]:
        """Derivatives in lambda and U."""
        ...

    def kernels(self, mean: Array, V: Array) -> list[Array]:
        """Derivatives in the kernel matrices."""
        ...

    def covariance(self) -> Array:
        """V, (n, D, n, D)."""
        ...


def posterior_map(K: Sequence[Array], U: Curvature, solution: Solution, z: Array, mean: Array) -> PosteriorMap:
    """The map that belongs to sites; with `Diagonal` ones, covariances are (n, D), else (n, D, D)."""
    if isinstance(solution, DiagonalSolution):
        return DiagonalMap(K, solution, z, mean)
    if not isinstance(solution, BlockSolution):
        solution = BlockSolution(K, Blocks(U.dense()))
    return BlockMap(K, solution, z, mean)


class DiagonalMap:
    """Independent latent dimensions, O(D n^3)."""

    def __init__(self, K: Sequence[Array], solution: DiagonalSolution, z: Array, mean: Array):
        self.K, self.z, self.mean = K, z, mean
        self.T, self.V = [], []
        for j, f in enumerate(solution.factors):
            T = product(mirror(f.E()), self._K(j))
            T *= -1.0
            T.ravel(order="K")[:: len(T) + 1] += 1.0
            V = product(self._K(j), T)
            self.T.append(T)
            self.V.append((V + V.T) / 2)
        self.V_squared = [v * v for v in self.V]

    def _K(self, j: int) -> Array:
        return self.K[j if len(self.K) > 1 else 0]

    def sites(self, mean: Array, V: Array) -> tuple[Array, Array]:
        lam = np.stack([symmetric_dot(v, mean[:, j]) for j, v in enumerate(self.V)], axis=1)
        spread = np.stack([symmetric_dot(v2, V[:, j]) for j, v2 in enumerate(self.V_squared)], axis=1)
        return lam, -lam * self.mean - spread

    def kernels(self, mean: Array, V: Array) -> list[Array]:
        parts = ((product(T * V[:, j], T.T), product(T, mean[:, j : j + 1])[:, 0]) for j, T in enumerate(self.T))
        return _of_kernels(self.K, self.z, parts)

    def covariance(self) -> Array:
        n, D = self.z.shape
        out = np.zeros((n, D, n, D))
        for j, V in enumerate(self.V):
            out[:, j, :, j] = V
        return out


class BlockMap:
    """General blocks, by dense matrices of order nD."""

    def __init__(self, K: Sequence[Array], solution: BlockSolution, z: Array, mean: Array):
        self.K, self.z, self.mean = K, z, mean
        n, D = z.shape
        T = -solution._K_dot(solution.E).T  # E K, both symmetric
        T.flat[:: n * D + 1] += 1.0
        V = solution._K_dot(T)
        self.T = T.reshape(n, D, n, D)
        self.V = ((V + V.T) / 2).reshape(n, D, n, D)

    def sites(self, mean: Array, V: Array) -> tuple[Array, Array]:
        n, D = mean.shape
        lam = symmetric_dot(self.V.reshape(n * D, n * D), mean.ravel()).reshape(n, D)
        left = (self.V.swapaxes(1, 2).reshape(n, n, D, D) @ V).swapaxes(1, 2).reshape(n, D, n * D)
        spread = left @ self.V.reshape(n, D, n * D).swapaxes(1, 2)
        return lam, -symmetric(lam, self.mean) - spread

    def kernels(self, mean: Array, V: Array) -> list[Array]:
        n, D = mean.shape

        def part(T: Array) -> tuple[Array, Array]:  # (n, n, D)
            flat = T.reshape(n, n * D)
            G = product(np.einsum("ikb,kbc->ikc", T, V).reshape(n, n * D), flat.T)
            return G, product(flat, mean.reshape(-1, 1))[:, 0]

        return _of_kernels(self.K, self.z, (part(self.T[:, j]) for j in range(D)))

    def covariance(self) -> Array:
        return self.V


def _of_kernels(K: Sequence[Array], z: Array, parts: Iterable[tuple[Array, Array]]) -> list[Array]:
    """Cotangents of the kernel matrices, ``G + (a z^T + z a^T)/2`` from (G, a) of each latent dimension."""
    out: list[Array] = []
    for j, (G, a) in enumerate(parts):
        half = 0.5 * np.outer(a, z[:, j])
        G += half
        G += half.T
        if out and len(K) == 1:
            out[0] += G
        else:
            out.append(G)
    return out


def symmetric(a: Array, b: Array) -> Array:
    """The symmetric part of ``a_i b_i^T`` for every row."""
    outer = a[:, :, None] * b[:, None, :]
    return (outer + outer.swapaxes(1, 2)) / 2


def shaped(U: Array, diagonal: bool) -> Array:
    """A cotangent (n, D, D) in the shape that the map works in."""
    return np.ascontiguousarray(np.einsum("njj->nj", U)) if diagonal else U


def is_diagonal(solution: Solution) -> bool:
    """Whether the map of this solution works with diagonals."""
    return isinstance(solution, DiagonalSolution)


def as_marginals(U: Array) -> Diagonal | Blocks:
    """A cotangent of U as families take it."""
    return Diagonal(U) if U.ndim == 2 else Blocks(U)
