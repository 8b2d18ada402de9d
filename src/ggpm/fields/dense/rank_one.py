"""Latent dimensions coupled by a rank-one term: D + 1 factorisations of n×n, never one of nD×nD.

With C the capacitance matrix of the rank-one terms, ``C = L_C L_C^T``,

    log|I + U K|    = sum_j log|B_j| + log|C|
    [(K + W)^-1]_jk = delta_jk E_j - F_j^T F_k
    V_jk            = delta_jk V_j + P_j^T P_k,      P_j = F_j K_j

and U may be singular (softmax) or, with `SignedFactor`, indefinite. This is the paper's section 3.4 without U^-1, which
the softmax does not have; for the softmax it is also GPML algorithm 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from ggpm.families.curvature import RankOne
from ggpm.fields.dense.factor import PositiveFactor, SignedFactor
from ggpm.fields.dense.matrices import KernelMatrices
from ggpm.fields.dense.sensitivity import BlockSensitivity
from ggpm.kernels.linalg import (
    cholesky,
    cholesky_solve,
    fortran,
    log_det_lower,
    mirror,
    product,
    solve_lower,
    strips,
    triangular_inverse,
)

Array = NDArray[np.float64]


class RankOneSolution:
    """`Solution` for ``U_i = diag(gamma_i) - rho_i omega_i omega_i^T``.

    Holds the Cholesky factor of C until `marginals` or `precision` is asked for, then its inverse H = L_C^-1.
    """

    def __init__(self, K: KernelMatrices, U: RankOne):
        self.K = K
        n, D = U.gamma.shape
        scaled = U.scaled()
        kind = SignedFactor if scaled is None else PositiveFactor
        if scaled is None:
            weights, C_diagonal = np.sqrt(U.rho)[:, None] * U.omega, np.ones(n)
        else:
            weights, C_diagonal = scaled  # nu, and 1 - sum_j nu_j^2
        self.weights = np.ascontiguousarray(weights.T)  # (D, n)
        self.factors = [kind(K.of(j), np.ascontiguousarray(U.gamma[:, j])) for j in range(D)]
        C = np.zeros((n, n), order="F")
        for f, w in zip(self.factors, self.weights):
            f.add_to_capacitance(w, C)
        C.ravel(order="K")[:: n + 1] += C_diagonal
        self._L_C: Array | None = cholesky(C)
        self._H: Array | None = None
        self.log_det = sum(f.log_det for f in self.factors) + log_det_lower(self._L_C)

    def solve(self, r: Array) -> Array:
        # (I + U K)^-1 = I - (K + W)^-1 K
        b = self.K.dot(r).T
        unscaled = [f.unscaled_E_dot(b_j) for f, b_j in zip(self.factors, b)]
        c = self._C_solve(np.einsum("jn,jn->n", self.weights, unscaled))
        out = r.copy()
        for j, (f, w) in enumerate(zip(self.factors, self.weights)):
            out[:, j] -= f.scale * unscaled[j] - f.unscaled_E_T_dot(w * c)
        return out

    def _C_solve(self, b: Array) -> Array:
        if self._L_C is not None:
            return cholesky_solve(self._L_C, b)
        return blas.dtrmv(self._H, blas.dtrmv(self._H, b, lower=1), lower=1, trans=1)

    @cached_property
    def _pass(self) -> tuple[list[Array], RankOneMarginals]:
        """The precision blocks and the marginals, from F_j and P_j of every dimension in turn."""
        assert self._L_C is not None
        H = self._H = triangular_inverse(self._L_C)
        self._L_C = None
        blocks: list[Array] = []
        v, P = [], []
        buffer = np.zeros_like(H)
        for f, w in zip(self.factors, self.weights):
            v.append(f.V_diag())
            if blocks and self.K.shared:
                blocks[0] += f.E(out=buffer)
            else:
                blocks.append(f.E())
            P.append(f.through_capacitance(H, w, F=buffer))
            blocks[-1] = blas.dsyrk(-1.0, buffer, beta=1.0, c=blocks[-1], trans=1, lower=1, overwrite_c=1)
        return [mirror(block) for block in blocks], RankOneMarginals(np.stack(v, axis=1), P)

    def marginals(self) -> RankOneMarginals:
        return self._pass[1]

    def precision(self) -> list[Array]:
        return [block.copy(order="F") for block in self._pass[0]]

    def sensitivity(self) -> BlockSensitivity:
        (n, D), _ = (len(self.factors[0].gamma), len(self.factors)), self._pass  # the pass makes H
        assert self._H is not None
        F = np.zeros((D, n, n))
        for buffer, f, w in zip(F, self.factors, self.weights):
            f.through_capacitance(self._H, w, F=buffer.T)  # F_j^T, C-ordered
        flat = F.reshape(D * n, n)
        E = product(flat, flat.T).reshape(D, n, D, n)
        E *= -1.0
        for j, f in enumerate(self.factors):
            E[j, :, j] += mirror(f.E())
        return BlockSensitivity(self.K, np.ascontiguousarray(E.transpose(1, 0, 3, 2)))

    def reduction(self, K_star: KernelMatrices) -> Array:
        D, m = len(self.factors), K_star.of(0).shape[1]
        out = np.zeros((m, D, D))
        half = np.empty((D, *K_star.of(0).shape), order="F")
        for j, (f, w) in enumerate(zip(self.factors, self.weights)):
            k_star = K_star.of(j)
            out[:, j, j] = f.E_quad(k_star)
            crossed = fortran(w[:, None] * f.unscaled_E_dot(k_star))
            if self._L_C is not None:
                half[j] = solve_lower(self._L_C, crossed, overwrite=True)
            else:
                half[j] = blas.dtrmm(1.0, self._H, crossed, lower=1, overwrite_b=1)
        for j in range(D):
            for k in range(j + 1):
                out[:, j, k] -= np.einsum("nm,nm->m", half[j], half[k])
                out[:, k, j] = out[:, j, k]
        return out


@dataclass(frozen=True)
class RankOneMarginals:
    """``V_ii = diag(v_i) + P_i^T P_i`` with column i of every P_j."""

    v: Array
    P: list[Array]

    @cached_property
    def diag(self) -> Array:
        return self.v + np.stack([np.einsum("mi,mi->i", p, p) for p in self.P], axis=1)

    def dot(self, w: Array) -> Array:
        out = self.v * w
        for rows in strips(len(w)):
            columns = [p[:, rows] for p in self.P]
            total = sum(p * w[rows, j] for j, p in enumerate(columns))
            for j, p in enumerate(columns):
                out[rows, j] += np.einsum("mi,mi->i", p, total)
        return out

    def dense(self) -> Array:
        n, D = self.v.shape
        out = np.zeros((n, D, D))
        for j in range(D):
            for k in range(j + 1):
                out[:, j, k] = out[:, k, j] = np.einsum("mi,mi->i", self.P[j], self.P[k])
        out[:, range(D), range(D)] += self.v
        return out
