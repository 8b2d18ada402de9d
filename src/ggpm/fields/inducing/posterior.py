"""The fitted sparse posterior: from inducing values to the latent at new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpm import kernels as kernels_module
from ggpm.data.rows import batches
from ggpm.fields.dense.matrices import kernel_of
from ggpm.kernels.linalg import product, solve_lower

Array = NDArray[np.float64]


@dataclass(frozen=True)
class InducingPosterior:
    """q(eta) through M inducing points per latent dimension."""

    kernels: Sequence
    Z: Array
    """Inducing inputs, (M, features)."""
    L: Sequence[Array]
    """Cholesky factors of K_uu, one for each kernel."""
    v: Array
    """Mean of the whitened inducing values, (D, M)."""
    P: Array
    """Their covariance, (D, M, D, M)."""

    @property
    def inputs(self) -> Array:
        """The rows that it knows: the inducing inputs."""
        return self.Z

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Mean (m, D) and covariance (m, D, D) of the latent at the rows of X."""
        m, (D, M) = len(X), self.v.shape
        mean, cov = np.empty((m, D)), np.zeros((m, D, D))
        for rows in batches(m, M * (D + 2)):
            A, prior = [], []
            for kernel, L in zip(self.kernels, self.L):
                K = kernels_module.evaluate(kernel, X[rows], self.Z).K
                A.append(solve_lower(L, K.T, overwrite=True).T)
                prior.append(kernels_module.diag(kernel, X[rows]) - np.einsum("cm,cm->c", A[-1], A[-1]))
            block = np.empty((len(A[0]), D, D))
            for j in range(D):
                a = A[kernel_of(j, len(A))]
                mean[rows, j] = product(a, self.v[j, :, None])[:, 0]
                aP = product(a, self.P[j].reshape(M, D * M)).reshape(-1, D, M)
                for k in range(D):
                    block[:, j, k] = np.einsum("cm,cm->c", aP[:, k], A[kernel_of(k, len(A))])
                # a variance is never negative: what rounding leaves below zero is zero
                block[:, j, j] += np.maximum(prior[kernel_of(j, len(A))], 0.0)
            cov[rows] = (block + block.transpose(0, 2, 1)) / 2
        return mean, cov
