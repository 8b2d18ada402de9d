"""The posterior of the dense field: from training rows, sites and kernels to the latent at new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import batches
from ggpm.families.curvature import Curvature
from ggpm.fields.dense.matrices import KernelMatrices
from ggpm.fields.dense.solution import Solution, Solver, factorise
from ggpm.kernels import evaluate
from ggpm.kernels.linalg import product

Array = NDArray[np.float64]


class DensePosterior:
    """q(eta) at the training rows, ready to be carried to new ones.

    Kernels, X, z and U determine everything else: the factorisation behind predictive variances is computed again
    from them where it is not given, and is not stored with a model.

    Parameters
    ----------
    kernels : one that all latent dimensions share, or one for each
    X : training rows, (n, features)
    z : K^-1 m, (n, D)
    U : curvature of the sites
    solution : the factorisation, if it is at hand
    solver : what factorises
    """

    def __init__(
        self, kernels: Sequence[Any], X: Array, z: Array, U: Curvature, solution: Solution | None = None,
        solver: Solver = factorise,
    ):  # fmt: skip
        self.kernels, self.X, self.z, self.U, self._solution = list(kernels), X, z, U, solution
        self.solver = solver

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_solution": None}

    @property
    def inputs(self) -> Array:
        """The rows that it knows, (n, features)."""
        return self.X

    @property
    def solution(self) -> Solution:
        """The factorised sites."""
        if self._solution is None:
            self._solution = self.solver(KernelMatrices([evaluate(k, self.X).K for k in self.kernels]), self.U)
        return self._solution

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Mean (m, D) and covariance (m, D, D) of the latent at the rows of X."""
        m, D = len(X), self.z.shape[1]
        mean, cov = np.empty((m, D)), np.empty((m, D, D))
        for rows in batches(m, len(self.X) * D):
            K_star = KernelMatrices([np.asfortranarray(k(self.X, X[rows])) for k in self.kernels])
            columns = [self.z] if K_star.shared else self.z.T[:, :, None]
            # paper, section 3: the mean is K_*^T z, the covariance K_** - K_*^T (K + W)^-1 K_*
            mean[rows] = np.hstack([product(k.T, z) for k, z in zip(K_star, columns)])
            prior = np.stack([k.diag(X[rows]) for k in self.kernels], axis=1)
            block = -self.solution.reduction(K_star)
            block[:, range(D), range(D)] += prior
            # a variance is never negative: what rounding leaves below zero is zero
            block[:, range(D), range(D)] = np.maximum(block[:, range(D), range(D)], 0.0)
            cov[rows] = block
        return mean, cov
