"""Latent dimensions coupled by a rank-one term: D + 1 factorisations of n×n, never one of nD×nD.

With C the capacitance matrix of the rank-one terms, ``C = L_C L_C^T``,

    log|I + U K|   = sum_j log|B_j| + log|C|
    [(K + W)^-1]_jk = delta_jk E_j - F_j^T F_k,      F_j = L_C^-1 X_j
    V_jk            = delta_jk V_j + P_j^T P_k,      P_j = L_C^-1 Y_j

and U may be singular (softmax) or, with `SignedFactor`, indefinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ggpm._linalg import cholesky, cholesky_solve, gram, log_det_lower, solve_lower
from ggpm.curvature import RankOne
from ggpm.solvers._factor import PositiveFactor, SignedFactor

Array = NDArray[np.float64]


class RankOneSolution:
    """`Solution` for ``U_i = diag(gamma_i) - rho_i omega_i omega_i^T``."""

    def __init__(self, K: Sequence[Array], U: RankOne):
        self.K = K
        n, D = U.gamma.shape
        scaled = U.scaled()
        kind = SignedFactor if scaled is None else PositiveFactor
        if scaled is None:
            weights, gap = np.sqrt(U.rho)[:, None] * U.omega, np.ones(n)
        else:
            weights, gap = scaled
        self.weights = np.ascontiguousarray(weights.T)  # (D, n)
        self.factors = [kind(self._K(j), np.ascontiguousarray(U.gamma[:, j])) for j in range(D)]
        C = np.zeros((n, n))
        for f, w in zip(self.factors, self.weights):
            C += f.coupling(w)
        C.flat[:: n + 1] += gap
        self.L_C = cholesky(C)
        self.log_det = sum(f.log_det for f in self.factors) + log_det_lower(self.L_C)

    def _K(self, j: int) -> Array:
        return self.K[j if len(self.K) > 1 else 0]

    def solve(self, r: Array) -> Array:
        # (I + U K)^-1 = I - (K + W)^-1 K
        b = np.stack([self._K(j) @ r[:, j] for j in range(r.shape[1])], axis=1) if len(self.K) > 1 else self.K[0] @ r
        pairs = list(zip(self.factors, self.weights))
        c = cholesky_solve(self.L_C, np.sum([f.X_dot(w, b[:, j]) for j, (f, w) in enumerate(pairs)], axis=0))
        columns = [f.E_dot(b[:, j]) - f.XT_dot(w, c) for j, (f, w) in enumerate(pairs)]
        return r - np.stack(columns, axis=1)

    @cached_property
    def _P(self) -> list[Array]:
        return [solve_lower(self.L_C, f.Y(w), overwrite=True) for f, w in zip(self.factors, self.weights)]

    def marginals(self) -> RankOneMarginals:
        return RankOneMarginals(np.stack([f.V_diag() for f in self.factors], axis=1), self._P)

    def precision(self) -> list[Array]:
        blocks: list[Array] = []
        for f, w in zip(self.factors, self.weights):
            block = f.E()
            block -= gram(solve_lower(self.L_C, f.X(w), overwrite=True))
            if blocks and len(self.K) == 1:
                blocks[0] += block
            else:
                blocks.append(block)
        return blocks

    def reduction(self, K_star: Sequence[Array]) -> Array:
        D, m = len(self.factors), K_star[0].shape[1]
        out = np.zeros((m, D, D))
        half = np.empty((D, *K_star[0].shape))
        for j, (f, w) in enumerate(zip(self.factors, self.weights)):
            k = K_star[j if len(K_star) > 1 else 0]
            out[:, j, j] = f.E_quad(k)
            half[j] = solve_lower(self.L_C, f.X_dot(w, k))
        out -= np.einsum("jnm,knm->mjk", half, half, optimize=False)
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
        total = np.zeros_like(self.P[0])
        for j, p in enumerate(self.P):
            total += p * w[:, j]
        return self.v * w + np.stack([np.einsum("mi,mi->i", p, total) for p in self.P], axis=1)

    def dense(self) -> Array:
        n, D = self.v.shape
        out = np.zeros((n, D, D))
        for j in range(D):
            for k in range(j + 1):
                out[:, j, k] = out[:, k, j] = np.einsum("mi,mi->i", self.P[j], self.P[k])
        out[:, range(D), range(D)] += self.v
        return out
