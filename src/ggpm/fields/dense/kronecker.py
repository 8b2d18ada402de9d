"""All rows share one curvature matrix up to a weight, and all dimensions one kernel.

In the eigenbasis of the matrix the latent dimensions part, and equal eigenvalues share one factorisation:
the softmax expanded at a common point costs a single n×n factorisation for any number of classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Kronecker
from ggpm.fields.dense.factor import PositiveFactor, SignedFactor, factor
from ggpm.fields.dense.matrices import KernelMatrices
from ggpm.fields.dense.sensitivity import BlockSensitivity
from ggpm.kernels.linalg import mirror, product, symmetric_dot

Array = NDArray[np.float64]

# Eigenvalues closer than this (relative to the largest) are one eigenvalue, below it they are zero: the rounding of a
# D×D eigenproblem, a few D eps, with room for some hundred classes.
EIGENVALUE_RTOL = 1e-12


class KroneckerSolution:
    """`Solution` for ``U_i = weight_i * matrix`` and one shared kernel."""

    def __init__(self, K: KernelMatrices, U: Kronecker):
        (self.K,), self.U = K, U
        values, self.Q = np.linalg.eigh(U.matrix)
        tolerance = EIGENVALUE_RTOL * np.abs(values).max(initial=0.0)
        self.groups: list[tuple[slice, PositiveFactor | SignedFactor | None]] = []
        start = 0
        for stop in range(1, len(values) + 1):
            if stop == len(values) or values[stop] - values[start] > tolerance:
                value = values[start:stop].mean()
                f = None if abs(value) <= tolerance else factor(self.K, value * U.weight)
                self.groups.append((slice(start, stop), f))
                start = stop
        self.log_det = sum((s.stop - s.start) * f.log_det for s, f in self.groups if f is not None)

    def solve(self, r: Array) -> Array:
        rotated = product(r, self.Q)
        b = symmetric_dot(self.K, rotated)
        for s, f in self.groups:
            if f is not None:
                rotated[:, s] -= f.scale[:, None] * f.unscaled_E_dot(b[:, s])
        return product(rotated, self.Q.T)

    def marginals(self) -> RotatedMarginals:
        v = np.repeat(np.diag(self.K)[:, None], len(self.Q), axis=1)
        for s, f in self.groups:
            if f is not None:
                v[:, s] = f.V_diag()[:, None]
        return RotatedMarginals(self.Q, v)

    def precision(self) -> list[Array]:
        total = np.zeros(self.K.shape, order="F")
        for s, f in self.groups:
            if f is not None:
                total += (s.stop - s.start) * f.E()
        return [mirror(total)]

    def reduction(self, K_star: KernelMatrices) -> Array:
        (k,) = K_star
        quad = np.zeros((k.shape[1], len(self.Q)))
        for s, f in self.groups:
            if f is not None:
                quad[:, s] = f.E_quad(k)[:, None]
        return RotatedMarginals(self.Q, quad).dense()

    def sensitivity(self) -> BlockSensitivity:
        n, D = len(self.K), len(self.Q)
        V: Array = np.zeros((n, D, n, D))
        for s, f in self.groups:
            V += (self.K if f is None else f.V)[:, None, :, None] * product(self.Q[:, s], self.Q[:, s].T)[:, None, :]
        return BlockSensitivity(KernelMatrices([self.K]), V, self.U.dense())


@dataclass(frozen=True)
class RotatedMarginals:
    """``Q diag(v_i) Q^T``."""

    Q: Array
    v: Array

    @property
    def diag(self) -> Array:
        return product(self.v, (self.Q**2).T)

    def dot(self, w: Array) -> Array:
        return product(self.v * product(w, self.Q), self.Q.T)

    def dense(self) -> Array:
        return np.matmul(self.v[:, None, :] * self.Q, self.Q.T)
