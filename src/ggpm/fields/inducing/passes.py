"""One pass over the rows: what is computed from a chunk, and nothing that grows with the number of rows.

The latent dimension j has inducing values ``L_j v_j``, ``L_j L_j^T = K_uu``, with v_j standard normal a priori.
At a row, ``f_j = a_j^T v_j`` with ``a_j = L_j^-1 k_u(x)``, and the prior variance that the inducing points leave
unexplained is ``k~_j = k_j(x, x) - |a_j|^2``. Every pass below starts from the matrices A_j of a chunk, (c, M).

======================  =====================================================================================
`newton_pass`           the log-likelihood, ``sum_i u_i^j a_i^j``, ``sum_i U_i^jk a_i^j (a_i^k)^T`` and the trace
                        term ``sum_i sum_j U_i^jj k~_i^j``
`value_pass`            the log-likelihood at several v
`gradient_pass`         the gradient with the mode held, and ``sum_i s_i^j a_i^j``
`mode_pass`             what the movement of the mode adds to it
======================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from ggpm import kernels as kernels_module
from ggpm.data.rows import CHUNK_DOUBLES, Chunk, Statistics
from ggpm.families.base import Family
from ggpm.families.curvature import Blocks, Curvature, Diagonal, Kronecker
from ggpm.fields.inducing.sites import Sites
from ggpm.kernels import KernelEvaluation
from ggpm.kernels.linalg import cholesky, mirror, product, solve_lower

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """Everything that a pass must know, of the size of M² at most."""

    family: Family
    kernels: Sequence[Any]
    """One kernel that all latent dimensions share, or one for each."""
    Z: Array
    """Inducing inputs, (M, features)."""
    L: Sequence[Array]
    """Cholesky factors of K_uu, one for each kernel."""
    sites: Sites

    @property
    def D(self) -> int:
        """Number of latent dimensions."""
        return self.family.latent_dim

    @property
    def M(self) -> int:
        """Number of inducing points."""
        return len(self.Z)

    @property
    def coupled(self) -> bool:
        """Whether sites that depend on the marginals couple the latent dimensions."""
        return not getattr(self.sites, "factorised", True)

    def of(self, j: int) -> int:
        """The kernel of latent dimension j."""
        return j if len(self.kernels) > 1 else 0

    def members(self, k: int) -> list[int]:
        """The latent dimensions of kernel k."""
        return [j for j in range(self.D) if self.of(j) == k]

    @property
    def piece_rows(self) -> int:
        """Rows that are worked on at a time, so that the arrays of a pass stay within the chunk limit."""
        return max(64, CHUNK_DOUBLES // (self.M * (self.D**2 + 4)))

    def evaluations(self, X: Array) -> list[KernelEvaluation]:
        """The kernels between rows and inducing points."""
        return [kernels_module.evaluate(k, X, self.Z) for k in self.kernels]

    def whiten(self, evaluations: Sequence[KernelEvaluation]) -> list[Array]:
        """``A = K_fu L^-T`` (c, M) for every kernel, C-ordered."""
        # the transpose of a C-ordered matrix is in Fortran order: nothing is copied
        return [solve_lower(L, e.K.T, overwrite=True).T for L, e in zip(self.L, evaluations)]

    def unexplained(self, X: Array, A: Sequence[Array]) -> Array:
        """k~ (c, D): prior variances less what the inducing points explain."""
        each = [kernels_module.diag(k, X) - np.einsum("cm,cm->c", a, a) for k, a in zip(self.kernels, A)]
        return np.stack([each[self.of(j)] for j in range(self.D)], axis=1)

    def latent(self, A: Sequence[Array], v: Array) -> Array:
        """f (c, D) from v (D, M)."""
        if len(A) == 1:
            return product(A[0], v.T)
        return np.hstack([product(a, v[j, :, None]) for j, a in enumerate(A)])


def factor_inducing(kernels: Sequence[Any], Z: Array, jitter: float) -> list[Array]:
    """Cholesky factors of ``K_uu + jitter diag(K_uu)``; white noise is not part of an inducing value."""
    factors = []
    for kernel in kernels:
        K = kernels_module.evaluate(kernel, Z, Z).K
        K.flat[:: len(K) + 1] *= 1.0 + jitter
        factors.append(cholesky(K))
    return factors


def pairs(D: int, coupled: bool) -> list[tuple[int, int]]:
    """The blocks (j, k), j <= k, of the precision that are not zero."""
    return [(j, k) for j in range(D) for k in range(j, D if coupled else j + 1)]


def newton_pass(
    chunk: Chunk, model: Model, v: Array, expected: bool, curvature: bool = True, P: Array | None = None
) -> Statistics:
    """The sums from which a step, the log-determinant and the trace term follow.

    P (D, M, D, M), the covariance of v, is for sites that depend on the marginals.
    """
    A = model.whiten(model.evaluations(chunk.X))
    V = None if P is None else _marginals(model, chunk.X, A, _products(model, A, P, model.coupled))
    site = model.sites.at(model.family, chunk, model.latent(A, v), expected, V)
    sums = {"value": np.array(site.value), "score": _weighted_sums(A, site.u)}
    if curvature:
        sums["precision"] = _precision(model, A, site.U)
        sums["trace"] = np.array(np.sum(_diagonal(site.U) * model.unexplained(chunk.X, A)))
    return sums


def value_pass(chunk: Chunk, model: Model, vs: Array) -> Statistics:
    """The log-likelihood at several v (S, D, M), "value" (S,)."""
    A = model.whiten(model.evaluations(chunk.X))
    return {"value": np.array([model.sites.value(model.family, chunk, model.latent(A, v)) for v in vs])}


def gradient_pass(chunk: Chunk, model: Model, v: Array, P: Array, expected: bool, inputs: bool) -> Statistics:
    """Gradient of the objective with v held; P (D, M, D, M) is the posterior covariance of v."""
    D, M, c = model.D, model.M, len(chunk)
    evaluations = model.evaluations(chunk.X)
    A = model.whiten(evaluations)
    f = model.latent(A, v)
    if model.sites.takes_marginals:
        coupled = model.coupled
        products = _products(model, A, P, coupled)
        V = _marginals(model, chunk.X, A, products)
        site = model.sites.at(model.family, chunk, f, expected, V)
    else:
        site = model.sites.at(model.family, chunk, f, expected)
        coupled = not isinstance(site.U, Diagonal)
        products = _products(model, A, P, coupled)
        V = _marginals(model, chunk.X, A, products)
    U = site.U.dense() if coupled else site.U.gamma  # type: ignore[attr-defined]
    # G = dL/dA without its rank-one terms (u + s) v^T, which join after the triangular solve
    G = [np.zeros((c, M)) for _ in model.kernels]
    for p in products:
        B = p.value
        B *= -(U[:, p.j, p.k] if coupled else U[:, p.k])[:, None]
        G[model.of(p.j)] += B
    for k in range(D):
        G[model.of(k)] += (U[:, k, k] if coupled else U[:, k])[:, None] * A[model.of(k)]
    del products
    s, grad_phi = model.sites.pull(model.family, chunk, f, V, expected)
    z = unwhiten(model, v)
    diagonal = _diagonal(site.U)
    theta, grad_Z = [], np.zeros_like(model.Z)
    for k, (kernel, e) in enumerate(zip(model.kernels, evaluations)):
        members = model.members(k)
        G_K = solve_lower(model.L[k], G[k].T, transposed=True, overwrite=True).T
        G_K += product((site.u + s)[:, members], z[members])
        g, g_Z = _pull(e, G_K, inputs)
        grad_Z += g_Z
        diagonal_part = kernels_module.diag_pullback(kernel, chunk.X, -0.5 * diagonal[:, members].sum(axis=1))
        theta.append(g + diagonal_part)
    return {
        "theta": np.concatenate(theta),
        "phi": grad_phi,
        "Z": grad_Z,
        "move": _weighted_sums(A, s),
    }


def mode_pass(chunk: Chunk, model: Model, v: Array, w: Array, expected: bool, inputs: bool) -> Statistics:
    """What the movement of the mode adds, ``w^T d(A^T u - v)`` with v held and ``w = H^-1 A^T s``."""
    evaluations = model.evaluations(chunk.X)
    z, y = unwhiten(model, v), unwhiten(model, w)
    K = [e.K for e in evaluations]
    f, Aw = model.latent(K, z), model.latent(K, y)
    site = model.sites.at(model.family, chunk, f, expected)
    UAw = site.U.dot(Aw)
    theta, grad_Z = [], np.zeros_like(model.Z)
    for k, e in enumerate(evaluations):
        members = model.members(k)
        g, g_Z = _pull(e, product(site.u[:, members], y[members]) - product(UAw[:, members], z[members]), inputs)
        theta.append(g)
        grad_Z += g_Z
    u_phi = model.family.u_phi(f + chunk.offset, chunk.y)
    return {"theta": np.concatenate(theta), "phi": np.einsum("nj,njp->p", Aw, u_phi), "Z": grad_Z}


def unwhiten(model: Model, v: Array) -> Array:
    """``z_j = L_j^-T v_j = K_uu^-1 (inducing values)``, (D, M)."""
    return np.stack([solve_lower(model.L[model.of(j)], v[j], transposed=True) for j in range(model.D)])


@dataclass(frozen=True)
class _Product:
    """``A_k P_kj`` (c, M): the cotangent of A_j takes ``-U_jk`` times it, and V_kj is ``share a_j^T`` of its rows."""

    k: int
    j: int
    value: Array
    share: float = 1.0


def _products(model: Model, A: Sequence[Array], P: Array, coupled: bool) -> list[_Product]:
    """All products of the whitened rows with the blocks of the covariance P of v."""
    D = model.D
    if not coupled:
        return [_Product(k, k, product(A[model.of(k)], P[k, :, k])) for k in range(D)]
    if len(A) == 1:
        # the pairs (k, j) and (j, k) meet in one symmetric matrix: D(D+1)/2 products instead of D²
        return [
            _Product(k, j, product(A[0], P[k, :, k] if j == k else P[k, :, j] + P[j, :, k]), 1.0 if j == k else 0.5)
            for k, j in pairs(D, True)
        ]
    return [_Product(k, j, product(A[k], P[k, :, j])) for k in range(D) for j in range(D)]


def _marginals(model: Model, X: Array, A: Sequence[Array], products: Sequence[_Product]) -> Blocks | Diagonal:
    """Covariance of the latent at every row, what the inducing points leave unexplained included."""
    D, left = model.D, model.unexplained(X, A)
    V = np.zeros((len(X), D, D))
    for p in products:
        V[:, p.k, p.j] = V[:, p.j, p.k] = p.share * np.einsum("cm,cm->c", p.value, A[model.of(p.j)])
    V[:, range(D), range(D)] += left
    return Diagonal(np.einsum("cjj->cj", V)) if len(products) == D else Blocks(V)


def _pull(e: KernelEvaluation, G: Array, inputs: bool) -> tuple[Array, Array | float]:
    return e.pullback_both(G) if inputs else (e.pullback(G), 0.0)


def _diagonal(U: Curvature) -> Array:
    """The diagonals of U, (c, D)."""
    return U.gamma if isinstance(U, Diagonal) else np.einsum("cjj->cj", U.dense())


def _weighted_sums(A: Sequence[Array], u: Array) -> Array:
    """``sum_i u_i^j a_i^j``, (D, M)."""
    if len(A) == 1:
        return product(u.T, A[0])
    return np.vstack([product(u[:, j, None].T, a) for j, a in enumerate(A)])


def _precision(model: Model, A: Sequence[Array], U: Curvature) -> Array:
    """``sum_i U_i^jk a_i^j (a_i^k)^T`` for the pairs j <= k, (pairs, M, M)."""
    D = model.D
    if isinstance(U, Diagonal):
        return np.stack([_weighted_gram(A[model.of(j)], U.gamma[:, j]) for j in range(D)])
    if isinstance(U, Kronecker) and len(A) == 1:
        one = _weighted_gram(A[0], U.weight)
        return np.stack([U.matrix[j, k] * one for j, k in pairs(D, True)])
    dense, blocks = U.dense(), []
    for j, k in pairs(D, True):
        a, b = A[model.of(j)], A[model.of(k)]
        blocks.append(_weighted_gram(a, dense[:, j, k]) if a is b else product((a * dense[:, j, k, None]).T, b))
    return np.stack(blocks)


def _weighted_gram(A: Array, w: Array) -> Array:
    """``sum_i w_i a_i a_i^T``: symmetric, so that half the products of a general one are enough.

    Rows of either sign go through the square root of |w|, and the two sums are subtracted.
    """
    root = np.sqrt(np.abs(w))
    negative = w < 0
    if not negative.any():
        return _gram(A * root[:, None])
    if negative.all():
        return -_gram(A * root[:, None])
    positive = ~negative
    return _gram(A[positive] * root[positive, None]) - _gram(A[negative] * root[negative, None])


def _gram(B: Array) -> Array:
    # a C-ordered B is the Fortran-ordered transpose: nothing is copied
    return mirror(blas.dsyrk(1.0, B.T, lower=1))
