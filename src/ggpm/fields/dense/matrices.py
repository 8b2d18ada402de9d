"""Kernel matrices of all latent dimensions: one that they share, one for each, or one for all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ggpm.kernels.linalg import symmetric_dot

__all__ = ["JointMatrix", "KernelMatrices"]

Array = NDArray[np.float64]


class KernelMatrices:
    """Prior covariances of the latent dimensions, (n, n) or, between rows and new ones, (n, m).

    Parameters
    ----------
    matrices : one array that all dimensions share, or one for each

    Examples
    --------
    >>> K = KernelMatrices([2.0 * np.eye(3)])
    >>> K.of(5) is K.of(0), K.dot(np.ones((3, 2))).tolist()
    (True, [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]])
    """

    joint = False
    """Whether one matrix of order nD holds the covariances between dimensions too."""

    def __init__(self, matrices: Sequence[Array]):
        self.matrices = tuple(matrices)

    def __len__(self) -> int:
        return len(self.matrices)

    def __iter__(self) -> Iterator[Array]:
        return iter(self.matrices)

    @property
    def shared(self) -> bool:
        """Whether all latent dimensions have the same matrix."""
        return len(self.matrices) == 1

    def of(self, j: int) -> Array:
        """The matrix of latent dimension j."""
        return self.matrices[kernel_of(j, len(self.matrices))]

    def dot(self, z: Array) -> Array:
        """``K z`` for z (n, D)."""
        if self.shared:
            return symmetric_dot(self.matrices[0], z)
        return np.stack([symmetric_dot(k, z[:, j]) for j, k in enumerate(self.matrices)], axis=1)

    def dense(self, D: int) -> Array:
        """The covariance of all latents, (n, D, n, D)."""
        n = len(self.matrices[0])
        out = np.zeros((n, D, n, D))
        for j in range(D):
            out[:, j, :, j] = self.of(j)
        return out


class JointMatrix(KernelMatrices):
    """A kernel matrix of order nD, ordered by data point: latent dimensions that are correlated a priori.

    >>> JointMatrix(np.array([[1.0, 0.5], [0.5, 1.0]])).dot(np.array([[1.0, 0.0]]))  # one row, two dimensions
    array([[1. , 0.5]])
    """

    joint = True

    def __init__(self, matrix: Array):
        super().__init__([matrix])

    def dot(self, z: Array) -> Array:
        return symmetric_dot(self.matrices[0], z.ravel()).reshape(z.shape)

    def dense(self, D: int) -> Array:
        n = len(self.matrices[0]) // D
        return self.matrices[0].reshape(n, D, n, D)


def kernel_of(j: int, kernels: int) -> int:
    """The number of the kernel of latent dimension j, among one that all share or one for each.

    >>> kernel_of(2, 1), kernel_of(2, 3)
    (0, 2)
    """
    return j if kernels > 1 else 0


def latents_of(k: int, kernels: int) -> slice:
    """The latent dimensions of kernel k.

    >>> latents_of(0, 1), latents_of(1, 3)
    (slice(None, None, None), slice(1, 2, None))
    """
    return slice(k, k + 1) if kernels > 1 else slice(None)
