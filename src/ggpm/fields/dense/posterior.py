"""The fitted posterior: from training rows, sites and kernels to the latent at new rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Curvature, Marginals
from ggpm.fields.dense import Solution, factorise
from ggpm.kernels import evaluate
from ggpm.kernels.linalg import product

Array = NDArray[np.float64]

# Doubles that one batch of test rows may take per array: 32 MiB.
BATCH_DOUBLES = 2**22


@dataclass(frozen=True)
class Posterior:
    """q(eta) at the training rows, ready to be carried to new ones."""

    kernels: Sequence
    X: Array
    z: Array
    """K^-1 m, (n, D)."""
    solution: Solution
    U: Curvature | None = None
    """Curvature of the sites; with kernels, X and z it determines everything else."""

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Mean (m, D) and covariance (m, D, D) of the latent at the rows of X."""
        m, D = len(X), self.z.shape[1]
        mean, cov = np.empty((m, D)), np.empty((m, D, D))
        for rows in batches(m, len(self.X) * D):
            K_star = [np.asfortranarray(k(self.X, X[rows])) for k in self.kernels]
            columns = [self.z] if len(K_star) == 1 else self.z.T[:, :, None]
            mean[rows] = np.hstack([product(k.T, z) for k, z in zip(K_star, columns)])
            prior = np.stack([k.diag(X[rows]) for k in self.kernels], axis=1)
            block = -self.solution.reduction(K_star)
            block[:, range(D), range(D)] += prior
            # a variance is never negative: what rounding leaves below zero is zero
            block[:, range(D), range(D)] = np.maximum(block[:, range(D), range(D)], 0.0)
            cov[rows] = block
        return mean, cov


class SolveLater:
    """The `Solution` of given sites, factorised when it is first asked for something."""

    def __init__(self, kernels: Sequence, X: Array, U: Curvature):
        self._parts = kernels, X, U

    @cached_property
    def _solution(self) -> Solution:
        kernels, X, U = self._parts
        return factorise([evaluate(k, X).K for k in kernels], U)

    @cached_property
    def log_det(self) -> float:
        """log |I + U K|."""
        return self._solution.log_det

    def solve(self, r: Array) -> Array:
        """``(I + U K)^-1 r``."""
        return self._solution.solve(r)

    def marginals(self) -> Marginals:
        """The D×D diagonal blocks V_ii."""
        return self._solution.marginals()

    def precision(self) -> list[Array]:
        """The blocks ``[(K + W)^-1]_jj``."""
        return self._solution.precision()

    def reduction(self, K_star: Sequence[Array]) -> Array:
        """``K_*^T (K + W)^-1 K_*`` per test point."""
        return self._solution.reduction(K_star)


def batches(m: int, per_row: int) -> Iterator[slice]:
    """Slices of rows whose arrays of ``per_row`` doubles stay within the batch limit."""
    size = max(1, BATCH_DOUBLES // max(per_row, 1))
    for start in range(0, m, size):
        yield slice(start, min(start + size, m))
