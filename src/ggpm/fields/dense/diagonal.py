"""Independent latent dimensions: one n×n factorisation each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Diagonal
from ggpm.fields.dense.factor import PositiveFactor, SignedFactor, factor
from ggpm.fields.dense.matrices import KernelMatrices
from ggpm.fields.dense.sensitivity import DiagonalSensitivity
from ggpm.kernels.linalg import mirror, symmetric_dot

Array = NDArray[np.float64]


class DiagonalSolution:
    """`Solution` for ``U_i = diag(gamma_i)``; equal columns of gamma under a shared kernel are factorised once."""

    def __init__(self, K: KernelMatrices, U: Diagonal):
        self.K = K
        self.factors: list[PositiveFactor | SignedFactor] = []
        D = U.gamma.shape[1]
        for j in range(D):
            if j and K.shared and np.array_equal(U.gamma[:, j], U.gamma[:, 0]):
                self.factors.append(self.factors[0])
            else:
                self.factors.append(factor(K.of(j), np.ascontiguousarray(U.gamma[:, j])))
        self.log_det = sum(f.log_det for f in self.factors)

    def solve(self, r: Array) -> Array:
        # (I + U K)^-1 = I - E K
        out = r.copy()
        for j, f in enumerate(self.factors):
            out[:, j] -= f.scale * f.unscaled_E_dot(symmetric_dot(self.K.of(j), r[:, j]))
        return out

    def marginals(self) -> Diagonal:
        return Diagonal(np.stack([f.V_diag() for f in self.factors], axis=1))

    def precision(self) -> list[Array]:
        blocks = (f.E() for f in self.factors)
        return [mirror(b) for b in (blocks if not self.K.shared or len(self.factors) == 1 else [_sum(blocks)])]

    def reduction(self, K_star: KernelMatrices) -> Array:
        columns = [f.E_quad(K_star.of(j)) for j, f in enumerate(self.factors)]
        return Diagonal(np.stack(columns, axis=1)).dense()

    def sensitivity(self) -> DiagonalSensitivity:
        return DiagonalSensitivity(self.K, (f.gamma for f in self.factors), (f.V for f in self.factors))


def _sum(arrays) -> Array:
    total = next(arrays)
    for a in arrays:
        total += a
    return total
