"""Latent dimensions coupled by rank-one terms, one or two per row: D + 1 factorisations of n×n, never one of nD×nD.

With C the capacitance matrix of the rank-one terms, ``C = L_C L_C^T``,

    log|I + U K|    = sum_j log|B_j| + log|C|
    [(K + W)^-1]_jk = delta_jk E_j - F_j^T F_k
    V_jk            = delta_jk V_j + P_j^T P_k,      P_j = F_j K_j

and U may be singular (softmax) or, with `SignedFactor`, indefinite. This is the paper's section 3.4 without U^-1, which
the softmax does not have; for the softmax it is also GPML algorithm 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from ggpm.families.curvature import NU2_MAX, Blocks, Diagonal, RankOne
from ggpm.fields.dense.factor import PositiveFactor, SignedFactor
from ggpm.fields.dense.matrices import KernelMatrices
from ggpm.fields.dense.sensitivity import BlockSensitivity
from ggpm.kernels.linalg import (
    cholesky,
    cholesky_solve,
    fortran,
    gram,
    log_det_lower,
    mirror,
    solve_lower,
    strips,
    triangular_inverse,
)

Array = NDArray[np.float64]

# A 3×3 block is written with one rank-one term while the term is at most this many times as large as the block's own
# diagonal; with two where it would be larger, so that no more than two digits cancel.
TERM_MOST = 100.0


@dataclass(frozen=True)
class Coupling:
    """``U_i = diag(gamma_i) - sum_a omega_a omega_a^T`` over the terms a of row i.

    Every row has the term of its own number; further ones follow.
    """

    gamma: Array
    """(n, D)."""
    omega: Array
    """(c, D), c >= n."""
    row: NDArray[np.intp]
    """The row of each term, (c,)."""
    gap: Array | None = None
    """``1 - sum_j omega_j^2 / gamma_j`` of each term, where a family knows it in closed form."""
    nu: Array | None = None
    """omega / sqrt(gamma), where a family knows it in closed form."""

    @staticmethod
    def of(U: RankOne) -> Coupling:
        """The coupling of a rank-one curvature."""
        scaled = U.scaled()
        nu, gap = (None, None) if scaled is None else scaled
        return Coupling(U.gamma, np.sqrt(U.rho)[:, None] * U.omega, np.arange(len(U.gamma)), gap, nu)

    @staticmethod
    def of_blocks(U: Blocks) -> Coupling | None:
        """The coupling of blocks of order two or three; None for larger ones.

        Any symmetric 2×2 matrix has one term, with omega_1 omega_2 minus the entry off the diagonal. So has a
        3×3 matrix with an odd number of negative entries there, or else it has two. The diagonal decides how a term is
        shared among the dimensions, so that dimensions of different scale do not make it large.
        """
        n, D = U.values.shape[:2]
        if D not in (2, 3):
            return None
        own = np.einsum("njj->nj", U.values)
        scale = np.sqrt(np.where(own > 0, own, np.max(np.abs(U.values), axis=(1, 2))[:, None]))
        scale = np.where(scale > 0, scale, 1.0)
        N = -U.values / (scale[:, :, None] * scale[:, None, :])
        N[:, range(D), range(D)] = 0.0
        if D == 2:
            size = np.sqrt(np.abs(N[:, 0, 1]))
            omega, second = np.stack([size, np.sign(N[:, 0, 1]) * size], axis=1), np.zeros(n, dtype=bool)
        else:
            omega, second = _three(N)
        row = np.arange(n)
        if second.any():
            # N - lambda_min I has rank two: two terms
            values, vectors = np.linalg.eigh(N[second])
            terms = vectors[:, :, 1:] * np.sqrt(values[:, 1:] - values[:, :1])[:, None, :]
            omega[second] = terms[:, :, 1]
            omega, row = np.concatenate([omega, terms[:, :, 0]]), np.concatenate([row, np.flatnonzero(second)])
        omega = omega * scale[row]
        gamma = own + np.stack([np.bincount(row, w * w, n) for w in omega.T], axis=1)
        return Coupling(gamma, omega, row)

    def dense(self) -> Array:
        """U, (n, D, D)."""
        U = Diagonal(self.gamma).dense()
        np.subtract.at(U, self.row, self.omega[:, :, None] * self.omega[:, None, :])
        return U

    def scaled(self) -> tuple[Array, Array] | None:
        """``omega / sqrt(gamma)`` (c, D), and ``I - sum_j nu_j nu_j^T`` between terms of one row as its diagonal (c,).

        None where square roots of gamma do not exist or lose digits. Pairs of terms of one row are orthogonal in
        the block's own scale, but not in this one: `RankOneSolution` adds what is off the diagonal.
        """
        if self.nu is not None and self.gap is not None:
            return self.nu, self.gap
        gamma, strength = self.gamma[self.row], self.omega**2
        if np.any(self.gamma < 0) or np.any(strength > NU2_MAX * gamma):
            return None
        nu = np.divide(self.omega, np.sqrt(gamma), out=np.zeros_like(self.omega), where=gamma > 0)
        return nu, 1.0 - np.sum(nu**2, axis=1)


def _three(N: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Terms omega with omega_j omega_k = N_jk for zero diagonals, and the rows that have none of moderate size."""
    ab, ac, bc = N[:, 0, 1], N[:, 0, 2], N[:, 1, 2]
    zero = (ab == 0) & (ac == 0) & (bc == 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        square = np.stack([ab * ac / bc, ab * bc / ac, ac * bc / ab], axis=1)
        fits = np.all((square > 0) & (square <= TERM_MOST), axis=1)
        size = np.sqrt(np.where(fits[:, None], square, 0.0))
    # signs: the first is positive, the others follow from their products with it
    omega = size * np.stack([np.ones_like(ab), np.sign(ab), np.sign(ac)], axis=1)
    return omega, ~fits & ~zero


class RankOneSolution:
    """`Solution` for ``U_i = diag(gamma_i) - rho_i omega_i omega_i^T``, or a `Coupling` with some more such terms.

    Holds the Cholesky factor of C until `marginals` or `precision` is asked for, then its inverse H = L_C^-1.
    """

    def __init__(self, K: KernelMatrices, U: RankOne | Coupling):
        self.K = K
        self.coupling = coupling = U if isinstance(U, Coupling) else Coupling.of(U)
        n, D = coupling.gamma.shape
        scaled = coupling.scaled()
        kind = SignedFactor if scaled is None else PositiveFactor
        weights, C_diagonal = (coupling.omega, np.ones(len(coupling.row))) if scaled is None else scaled
        self.weights = np.ascontiguousarray(weights.T)  # (D, c)
        # rows of the terms, or None where every row has one: nothing needs to be picked then
        self.rows = coupling.row if len(coupling.row) > n else None
        self.factors = [kind(K.of(j), np.ascontiguousarray(coupling.gamma[:, j])) for j in range(D)]
        C = np.zeros((len(coupling.row),) * 2, order="F")
        for f, w in zip(self.factors, self.weights):
            f.add_to_capacitance(w, C, self.rows)
        C.ravel(order="K")[:: len(C) + 1] += C_diagonal
        if self.rows is not None and scaled is not None:
            more = np.arange(n, len(C))
            first = self.rows[more]
            C[more, first] -= np.sum(weights[more] * weights[first], axis=1)
        self._L_C: Array | None = cholesky(C)
        self._H: Array | None = None
        self.log_det = sum(f.log_det for f in self.factors) + log_det_lower(self._L_C)

    def _pick(self, b: Array) -> Array:
        """What belongs to the rows of the terms, of an array over rows."""
        return b if self.rows is None else b[self.rows]

    def _add_up(self, c: Array) -> Array:
        """Sum over the terms of every row."""
        return c if self.rows is None else np.bincount(self.rows, c, len(self.factors[0].gamma)).astype(np.float64)

    def solve(self, r: Array) -> Array:
        # (I + U K)^-1 = I - (K + W)^-1 K
        b = self.K.dot(r).T
        unscaled = [f.unscaled_E_dot(b_j) for f, b_j in zip(self.factors, b)]
        c = self._C_solve(np.sum([w * self._pick(e) for w, e in zip(self.weights, unscaled)], axis=0))
        out = r.copy()
        for j, (f, w) in enumerate(zip(self.factors, self.weights)):
            out[:, j] -= f.scale * unscaled[j] - f.unscaled_E_T_dot(self._add_up(w * c))
        return out

    def _C_solve(self, b: Array) -> Array:
        if self._L_C is not None:
            return cholesky_solve(self._L_C, b)
        return blas.dtrmv(self._H, blas.dtrmv(self._H, b, lower=1), lower=1, trans=1)

    @cached_property
    def _P(self) -> list[Array]:
        """P_j of every dimension, (c, n)."""
        assert self._L_C is not None
        self._H, self._L_C = triangular_inverse(self._L_C), None
        return [f.through_capacitance(self._H, w, self.rows) for f, w in zip(self.factors, self.weights)]

    def _F(self) -> Iterator[Array]:
        """F_j of every dimension in turn, (c, n), from P_j."""
        P = self._P
        assert self._H is not None
        for f, w, p in zip(self.factors, self.weights, P):
            yield f.before_kernel(p, self._H, w, self.rows)

    def marginals(self) -> RankOneMarginals:
        P = self._P  # turns the factors into inverses, from which the variances are read
        return RankOneMarginals(np.stack([f.V_diag() for f in self.factors], axis=1), P)

    def precision(self) -> list[Array]:
        blocks: list[Array] = []
        buffer = np.zeros(self.K.of(0).shape, order="F")
        for f, F in zip(self.factors, self._F()):
            if blocks and self.K.shared:
                blocks[0] += f.E(out=buffer)
            else:
                blocks.append(f.E())
            blocks[-1] = blas.dsyrk(-1.0, F, beta=1.0, c=blocks[-1], trans=1, lower=1, overwrite_c=1)
        return [mirror(block) for block in blocks]

    def sensitivity(self) -> BlockSensitivity:
        n, D = self.coupling.gamma.shape
        V = gram(np.concatenate(self._P, axis=1)).T.reshape(D, n, D, n)  # of symmetric matrices in Fortran order
        for j, f in enumerate(self.factors):
            V[j, :, j] += f.V.T
        return BlockSensitivity(self.K, V.transpose(1, 0, 3, 2), self.coupling.dense())

    def reduction(self, K_star: KernelMatrices) -> Array:
        D, m = len(self.factors), K_star.of(0).shape[1]
        out = np.zeros((m, D, D))
        half = np.empty((D, self.weights.shape[1], m), order="F")
        for j, (f, w) in enumerate(zip(self.factors, self.weights)):
            k_star = K_star.of(j)
            unscaled = f.unscaled_E_dot(k_star)
            out[:, j, j] = np.einsum("nm,nm->m", f.scale[:, None] * k_star, unscaled)
            crossed = fortran(w[:, None] * self._pick(unscaled))
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
