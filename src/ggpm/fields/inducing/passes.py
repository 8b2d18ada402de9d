"""One pass over the rows: what is computed from a chunk, and nothing that grows with the number of rows.

The latent dimension j has inducing values ``L_j v_j``, ``L_j L_j^T = K_uu``, with v_j standard normal a priori.
At a row, ``f_j = a_j^T v_j`` with ``a_j = L_j^-1 k_u(x)``, and the prior variance that the inducing points leave
unexplained is ``k~_j = k_j(x, x) - |a_j|^2``. Every pass below starts from the matrices A_j of a chunk, (c, M).

======================  =====================================================================================
`sites_pass`            the log-likelihood, ``sum_i u_i^j a_i^j``, ``sum_i U_i^jk a_i^j (a_i^k)^T`` and the trace
                        term ``sum_i sum_j U_i^jj k~_i^j``
`value_pass`            the log-likelihood at several v
`gradient_pass`         the gradient with the mode held, and ``sum_i s_i^j a_i^j``
`mode_pass`             what the movement of the mode adds to it
`cavity_pass`           not a sum: every row's latent as the other rows know it
======================  =====================================================================================

Where the kernel has white noise, every row has a latent of its own beside ``a^T v``; `settle` eliminates it, and u and
U above are those of the site that is left (`ggpm.fields.inducing.own`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from ggpm.data.rows import CHUNK_DOUBLES, Chunk, Statistics
from ggpm.families.base import Family
from ggpm.families.curvature import Blocks, Combination, Curvature, Diagonal, Kronecker
from ggpm.fields.dense.matrices import kernel_of, latents_of
from ggpm.fields.inducing.own import Settled, settle
from ggpm.kernels import KernelEvaluation, RowVariance, evaluate
from ggpm.kernels.linalg import cholesky, mirror, product, solve_lower
from ggpm.sites.base import Problem, Rule

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

    @property
    def D(self) -> int:
        """Number of latent dimensions."""
        return self.family.latent_dim

    @property
    def M(self) -> int:
        """Number of inducing points."""
        return len(self.Z)

    def of(self, j: int) -> int:
        """The kernel of latent dimension j."""
        return kernel_of(j, len(self.kernels))

    def latents(self, k: int) -> slice:
        """The latent dimensions of kernel k."""
        return latents_of(k, len(self.kernels))

    @property
    def piece_rows(self) -> int:
        """Rows that are worked on at a time, so that the arrays of a pass stay within the chunk limit."""
        return max(64, CHUNK_DOUBLES // (self.M * (self.D**2 + 4)))

    def latent(self, A: Sequence[Array], v: Array) -> Array:
        """f (c, D) from v (D, M)."""
        if len(A) == 1:
            return product(A[0], v.T)
        return np.hstack([product(a, v[j, :, None]) for j, a in enumerate(A)])

    def unwhiten(self, v: Array) -> Array:
        """``z_j = L_j^-T v_j = K_uu^-1 (inducing values)``, (D, M)."""
        return np.stack([solve_lower(self.L[self.of(j)], v[j], transposed=True) for j in range(self.D)])


def factor_inducing(kernels: Sequence[Any], Z: Array, jitter: float) -> list[Array]:
    """Cholesky factors of ``K_uu + jitter diag(K_uu)``; white noise is not part of an inducing value."""
    factors = []
    for kernel in kernels:
        K = evaluate(kernel, Z, Z).K
        K.flat[:: len(K) + 1] *= 1.0 + jitter
        factors.append(cholesky(K))
    return factors


class _Piece:
    """A chunk of rows as a model sees it."""

    def __init__(self, chunk: Chunk, model: Model, rule: Rule):
        self.model, self.X = model, chunk.X
        self.problem = Problem(model.family, chunk.y, chunk.offset)
        self.rule = rule.of_rows(slice(chunk.start, chunk.start + len(chunk)))

    @cached_property
    def evaluations(self) -> list[KernelEvaluation]:
        """The kernels between rows and inducing points."""
        return [evaluate(k, self.X, self.model.Z) for k in self.model.kernels]

    @cached_property
    def A(self) -> list[Array]:
        """``K_fu L^-T`` (c, M) for every kernel, C-ordered."""
        # the transpose of a C-ordered matrix is in Fortran order: nothing is copied
        return [solve_lower(L, e.K.T, overwrite=True).T for L, e in zip(self.model.L, self.evaluations)]

    @cached_property
    def variances(self) -> list[RowVariance]:
        """Prior variances of the rows under every kernel."""
        return [RowVariance(k, self.X) for k in self.model.kernels]

    @cached_property
    def unexplained(self) -> Array:
        """k~ (c, D): prior variances less what the inducing points explain."""
        each = [v.shared - np.einsum("cm,cm->c", a, a) for v, a in zip(self.variances, self.A)]
        return self._by_latent(each)

    @cached_property
    def own(self) -> Array | None:
        """Variances that belong to a row alone, (c, D), or None."""
        if all(v.own is None for v in self.variances):
            return None
        return self._by_latent([np.zeros(len(self.X)) if v.own is None else v.own for v in self.variances])

    def _by_latent(self, each: Sequence[Array]) -> Array:
        return np.stack([each[self.model.of(j)] for j in range(self.model.D)], axis=1)

    def settled(self, f: Array, V: Blocks | Diagonal | None, fisher: bool) -> Settled:
        """The rows' sites, with each row's own latent eliminated."""
        return settle(self.rule, self.problem, f, V, self.own, fisher)


def pairs(D: int, coupled: bool) -> list[tuple[int, int]]:
    """The blocks (j, k), j <= k, of the precision that are not zero."""
    return [(j, k) for j in range(D) for k in range(j, D if coupled else j + 1)]


def sites_pass(
    chunk: Chunk, model: Model, rule: Rule, v: Array, fisher: bool, curvature: bool = True, P: Array | None = None
) -> Statistics:
    """The sums from which a step, the log-determinant and the trace term follow.

    P (D, M, D, M), the covariance of v, is for rules that depend on the covariance.
    """
    here = _Piece(chunk, model, rule)
    V = None if P is None else _marginals(here, _products(model, here.A, P, not rule.factorised))
    site = here.settled(model.latent(here.A, v), V, fisher)
    sums = {"value": np.array(site.value), "score": _weighted_sums(here.A, site.u)}
    if curvature:
        sums["precision"] = _precision(model, here.A, site.U)
        sums["trace"] = np.array(np.sum(_diagonal(site.U) * here.unexplained) + site.log_det)
    return sums


def value_pass(chunk: Chunk, model: Model, rule: Rule, vs: Array) -> Statistics:
    """The log-likelihood at several v (S, D, M), "value" (S,)."""
    here = _Piece(chunk, model, rule)
    at_zero = np.zeros(here.problem.shape)
    latents = (model.latent(here.A, v) if np.any(v) else at_zero for v in vs)  # the prior mean needs no kernel
    if here.own is None:
        return {"value": np.array([here.rule.value(here.problem, f) for f in latents])}
    return {"value": np.array([here.settled(f, None, False).value for f in latents])}


def gradient_pass(chunk: Chunk, model: Model, rule: Rule, v: Array, P: Array, fisher: bool, inputs: bool) -> Statistics:
    """Gradient of the objective with v held; P (D, M, D, M) is the posterior covariance of v."""
    D, M, c = model.D, model.M, len(chunk)
    here = _Piece(chunk, model, rule)
    A, f = here.A, model.latent(here.A, v)
    if rule.depends_on == "covariance":
        coupled = not rule.factorised
        products = _products(model, A, P, coupled)
        V = _marginals(here, products)
        site = here.settled(f, V, fisher)
    else:
        site = here.settled(f, None, fisher)
        coupled = not isinstance(site.U, Diagonal)
        products = _products(model, A, P, coupled)
        V = _marginals(here, products)
    diagonal = _diagonal(site.U)
    U = site.U.dense() if coupled else diagonal
    # G = dL/dA without its rank-one terms (u + s) v^T, which join after the triangular solve
    G = [np.zeros((c, M)) for _ in model.kernels]
    for p in products:
        B = p.value
        B *= -(U[:, p.j, p.k] if coupled else U[:, p.k])[:, None]
        G[model.of(p.j)] += B
    for k in range(D):
        G[model.of(k)] += diagonal[:, k, None] * A[model.of(k)]
    del products
    covariance = site.covariance(V)
    slopes = here.rule.slopes(here.problem, site.f, covariance, site.sites)
    U_bar = None if rule.depends_on == "covariance" else Combination([(-0.5, covariance)])
    s, _, grad_phi = slopes.pullback(None, U_bar, value=True)
    if rule.depends_on != "mean":  # the sites do not move with the mode
        s = np.zeros_like(s)
    s = site.reduced(s)
    own = site.own_slope(V, s)
    if rule.depends_on == "mean" and site.own is not None:
        grad_phi = grad_phi + slopes.u_phi(site.own * s)
    z = model.unwhiten(v)
    hyper, grad_Z = [], np.zeros_like(model.Z)
    for k, (e, variance) in enumerate(zip(here.evaluations, here.variances)):
        latents = model.latents(k)
        G_K = solve_lower(model.L[k], G[k].T, transposed=True, overwrite=True).T
        G_K += product((site.u + s)[:, latents], z[latents])
        g, g_Z = _pull(e, G_K, inputs)
        grad_Z += g_Z
        of_own = None if own is None or variance.own is None else own[:, latents].sum(axis=1)
        hyper.append(g + variance.pullback(-0.5 * diagonal[:, latents].sum(axis=1), of_own))
    return {"hyper": np.concatenate(hyper), "phi": grad_phi, "Z": grad_Z, "move": _weighted_sums(A, s)}


def mode_pass(chunk: Chunk, model: Model, rule: Rule, v: Array, w: Array, fisher: bool, inputs: bool) -> Statistics:
    """Share of the gradient that the mode's movement adds, ``w^T d(A^T u - v)``, v held, ``w = H^-1 A^T s``."""
    here = _Piece(chunk, model, rule)
    z, y = model.unwhiten(v), model.unwhiten(w)
    K = [e.K for e in here.evaluations]
    f, Aw = model.latent(K, z), model.latent(K, y)
    site = here.settled(f, None, fisher)
    UAw = site.U.dot(Aw)
    hyper, grad_Z = [], np.zeros_like(model.Z)
    for k, (e, variance) in enumerate(zip(here.evaluations, here.variances)):
        latents = model.latents(k)
        g, g_Z = _pull(e, product(site.u[:, latents], y[latents]) - product(UAw[:, latents], z[latents]), inputs)
        if variance.own is not None:
            g = g + variance.pullback(np.zeros(len(chunk)), -(UAw * site.u)[:, latents].sum(axis=1))
        hyper.append(g)
        grad_Z += g_Z
    slopes = here.rule.slopes(here.problem, site.f, None, site.sites)
    moved = Aw if site.own is None else Aw - site.own * UAw
    return {"hyper": np.concatenate(hyper), "phi": slopes.u_phi(moved), "Z": grad_Z}


def cavity_pass(chunk: Chunk, model: Model, rule: Rule, v: Array, P: Array, fisher: bool) -> tuple[Any, ...]:
    """Mean and covariance of the latents f of the rows without each row's own site, then with it; y and offset.

    A row's site is one of ``g = A v``, whose covariance under q is S: without it, ``S_c = (S^-1 - U)^-1`` and
    ``g - S_c u``. What the inducing points leave unexplained, and the row's own variance, come on top.
    """
    here = _Piece(chunk, model, rule)
    g, V = model.latent(here.A, v), _marginals(here, _products(model, here.A, P, True))
    given = None if rule.depends_on != "covariance" else V if not rule.factorised else Diagonal(V.diag)
    site = here.settled(g, given, fisher)
    rest = here.unexplained if here.own is None else here.unexplained + here.own
    D, U, S = model.D, site.U.dense(), V.dense() - Diagonal(here.unexplained).dense()
    S_c = np.linalg.solve(np.eye(D) - S @ U, S)
    S_c = (S_c + S_c.swapaxes(1, 2)) / 2
    mean = g - np.einsum("cjk,ck->cj", S_c, site.u)
    whole = site.f, site.covariance(V).dense()
    return mean, S_c + Diagonal(rest).dense(), *whole, here.problem.y, here.problem.offset


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


def _marginals(here: _Piece, products: Sequence[_Product]) -> Blocks | Diagonal:
    """Covariance of the latent at every row, what the inducing points leave unexplained included."""
    model, left = here.model, here.unexplained
    D = model.D
    V = np.zeros((len(left), D, D))
    for p in products:
        V[:, p.k, p.j] = V[:, p.j, p.k] = p.share * np.einsum("cm,cm->c", p.value, here.A[model.of(p.j)])
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
