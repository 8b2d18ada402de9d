"""Curvature of a log-likelihood in the latent vector, in the shape that a family declares.

For every row i the curvature is a symmetric D×D matrix ``U_i``. Four shapes are known:

=============  ==========================================  ============================================
shape          U_i                                         who has it
=============  ==========================================  ============================================
`Diagonal`     diag(gamma_i)                               D = 1, independent outputs
`RankOne`      diag(gamma_i) - rho_i omega_i omega_i^T     softmax, von Mises, Dirichlet, ...
`Kronecker`    weight_i * matrix                           correlated Gaussian outputs; softmax at one point
`Blocks`       any symmetric matrix                        everything else
=============  ==========================================  ============================================

Arrays may have any number of leading axes (rows, or quadrature nodes × rows); the last axis is D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Blocks", "Diagonal", "Kronecker", "RankOne"]

Array = NDArray[np.float64]

# A rank-one row with gamma > 0 is handled by square roots while nu^2 = rho omega^2 / gamma stays below this;
# above, 1 - sum(nu^2) would lose the digits that the signed factorisation keeps.
NU2_MAX = 1e8


class Curvature(Protocol):
    """Methods that every shape of curvature has."""

    def dot(self, f: Array) -> Array:
        """``U_i f_i`` for every row."""
        ...

    def dense(self) -> Array:
        """The matrices themselves, (..., D, D)."""
        ...

    def diagonal(self) -> Diagonal:
        """The diagonal part: gamma without the coupling (the paper's c = 0)."""
        ...

    def semidefinite(self) -> NDArray[np.bool_]:
        """Mask of the rows that are positive semidefinite."""
        ...

    def select(self, keep: NDArray[np.bool_], other: Curvature) -> Curvature:
        """These rows where ``keep``, elsewhere those of the other, which has no more than these."""
        ...

    def times(self, weight: Array) -> Curvature:
        """``weight_i U_i`` for weights that are not negative, one per row."""
        ...


class Marginals(Protocol):
    """Symmetric D×D matrices ``V_ii``, one per row: what a pullback of U needs to know of a posterior."""

    @property
    def diag(self) -> Array:
        """Diagonals, (n, D)."""
        ...

    def dot(self, w: Array) -> Array:
        """``V_ii w_i`` for every row."""
        ...

    def dense(self) -> Array:
        """(n, D, D)."""
        ...


def _filled(keep: NDArray[np.bool_], own: Array, others: Array) -> Array:
    """Rows of the one where ``keep``, and those of the other, in their order, elsewhere."""
    out = np.array(own)
    out[~keep] = others
    return out


@dataclass(frozen=True)
class Diagonal:
    """``U_i = diag(gamma_i)``; also serves as `Marginals` of independent latent dimensions.

    >>> Diagonal(np.array([[2.0, 3.0]])).dot(np.ones((1, 2)))
    array([[2., 3.]])
    """

    gamma: Array

    def dot(self, f: Array) -> Array:
        return self.gamma * f

    def dense(self) -> Array:
        return self.gamma[..., None] * np.eye(self.gamma.shape[-1])

    @property
    def diag(self) -> Array:
        return self.gamma

    def diagonal(self) -> Diagonal:
        return self

    def semidefinite(self) -> NDArray[np.bool_]:
        return np.all(self.gamma >= 0, axis=-1)

    def select(self, keep: NDArray[np.bool_], other: Curvature) -> Diagonal:
        return Diagonal(_filled(keep, self.gamma, other.diagonal().gamma))

    def times(self, weight: Array) -> Diagonal:
        return Diagonal(weight[..., None] * self.gamma)


@dataclass(frozen=True)
class RankOne:
    """``U_i = diag(gamma_i) - rho_i omega_i omega_i^T`` with ``rho_i >= 0``.

    Families whose gamma may underflow give ``nu = sqrt(rho) omega / sqrt(gamma)`` and the gap
    ``1 - sum_j nu_j^2`` in closed form; for the others both are computed.

    >>> RankOne(np.array([[2.0, 3.0]]), np.array([[1.0, 0.5]]), np.array([1.0])).dense()
    array([[[ 1.  , -0.5 ],
            [-0.5 ,  2.75]]])
    """

    gamma: Array
    omega: Array
    rho: Array
    nu: Array | None = None
    gap: Array | None = None

    def dot(self, f: Array) -> Array:
        return self.gamma * f - (self.rho * np.sum(self.omega * f, axis=-1))[..., None] * self.omega

    def dense(self) -> Array:
        outer = self.omega[..., :, None] * self.omega[..., None, :]
        return self.gamma[..., None] * np.eye(self.gamma.shape[-1]) - self.rho[..., None, None] * outer

    def diagonal(self) -> Diagonal:
        return Diagonal(self.gamma)

    def scaled(self) -> tuple[Array, Array] | None:
        """``(nu, gap)``, or None where square roots of gamma do not exist or lose digits."""
        if self.nu is not None and self.gap is not None:
            return self.nu, self.gap
        strength = self.rho[..., None] * self.omega**2
        if np.any(self.gamma < 0) or np.any(strength > NU2_MAX * self.gamma):
            return None
        nu2 = np.divide(strength, self.gamma, out=np.zeros_like(strength), where=self.gamma > 0)
        return np.sqrt(nu2) * np.sign(self.omega), 1.0 - nu2.sum(axis=-1)

    def semidefinite(self) -> NDArray[np.bool_]:
        if self.gap is not None:
            return np.all(self.gamma >= 0, axis=-1) & (self.gap >= 0)
        strength = self.rho[..., None] * self.omega**2
        nu2 = np.divide(strength, self.gamma, out=np.zeros_like(strength), where=self.gamma > 0)
        zero_ok = (self.gamma > 0) | ((self.gamma == 0) & (strength == 0))
        return np.all(zero_ok, axis=-1) & (nu2.sum(axis=-1) <= 1.0)

    def select(self, keep: NDArray[np.bool_], other: Curvature) -> RankOne:
        assert isinstance(other, RankOne)
        merged = replace(
            self,
            gamma=_filled(keep, self.gamma, other.gamma),
            omega=_filled(keep, self.omega, other.omega),
            rho=_filled(keep, self.rho, other.rho),
            nu=None,
            gap=None,
        )
        if self.nu is None or other.nu is None or self.gap is None or other.gap is None:
            return merged
        return replace(merged, nu=_filled(keep, self.nu, other.nu), gap=_filled(keep, self.gap, other.gap))

    def times(self, weight: Array) -> RankOne:
        return replace(self, gamma=weight[..., None] * self.gamma, rho=weight * self.rho)  # nu and gap are ratios

    def common(self) -> Kronecker | None:
        """The same curvature as a `Kronecker` when all rows are multiples of one matrix, else None."""
        weight = self.gamma.sum(axis=-1)
        if np.any(weight <= 0):
            return None
        gamma, strength = self.gamma / weight[:, None], self.rho[:, None] * self.omega**2 / weight[:, None]
        same = 1e-14 * gamma[0].max()
        signs = np.sign(self.omega)
        if np.ptp(gamma, axis=0).max() > same or np.ptp(strength, axis=0).max() > same or np.ptp(signs, axis=0).any():
            return None
        first = RankOne(self.gamma[:1], self.omega[:1], self.rho[:1])
        return Kronecker(weight, first.dense()[0] / weight[0])


@dataclass(frozen=True)
class Kronecker:
    """``U_i = weight_i * matrix``, ``weight_i > 0``.

    >>> Kronecker(np.array([2.0]), np.eye(2)).dot(np.ones((1, 2)))
    array([[2., 2.]])
    """

    weight: Array
    matrix: Array

    def dot(self, f: Array) -> Array:
        return self.weight[:, None] * (f @ self.matrix)

    def dense(self) -> Array:
        return self.weight[:, None, None] * self.matrix

    def diagonal(self) -> Diagonal:
        return Diagonal(self.weight[:, None] * np.diag(self.matrix))

    def semidefinite(self) -> NDArray[np.bool_]:
        # the smallest eigenvalue of a singular matrix is zero up to rounding
        eig = np.linalg.eigvalsh(self.matrix)
        return np.full(self.weight.shape, eig[0] >= -1e-12 * abs(eig[-1]))

    def select(self, keep: NDArray[np.bool_], other: Curvature) -> Curvature:
        return self if keep.all() else Blocks(self.dense()).select(keep, other)

    def times(self, weight: Array) -> Kronecker:
        return Kronecker(weight * self.weight, self.matrix)

    def common(self) -> Kronecker:
        return self


@dataclass(frozen=True)
class Blocks:
    """Any symmetric ``U_i``, (..., D, D); also serves as `Marginals`.

    >>> Blocks(np.array([[[2.0, 1.0], [1.0, 2.0]]])).dot(np.ones((1, 2)))
    array([[3., 3.]])
    """

    values: Array

    def dot(self, f: Array) -> Array:
        return np.einsum("...jk,...k->...j", self.values, f)

    def dense(self) -> Array:
        return self.values

    @property
    def diag(self) -> Array:
        return np.einsum("...jj->...j", self.values)

    def diagonal(self) -> Diagonal:
        return Diagonal(self.diag)

    def semidefinite(self) -> NDArray[np.bool_]:
        eig = np.linalg.eigvalsh(self.values)
        return eig[..., 0] >= -1e-12 * np.abs(eig[..., -1])

    def select(self, keep: NDArray[np.bool_], other: Curvature) -> Blocks:
        return Blocks(_filled(keep, self.values, other.dense()))

    def times(self, weight: Array) -> Blocks:
        return Blocks(weight[..., None, None] * self.values)

    def common(self) -> Kronecker | None:
        """The same curvature as a `Kronecker` when all rows are multiples of one matrix, else None."""
        weight = np.einsum("ijj->i", self.values)
        if np.any(weight <= 0):
            return None
        matrices = self.values / weight[:, None, None]
        same = np.ptp(matrices, axis=0).max() <= 1e-14 * np.abs(matrices[0]).max()
        return Kronecker(weight, matrices[0]) if same else None


@dataclass(frozen=True)
class Outer:
    """Marginals ``(a_i b_i^T + b_i a_i^T)/2``.

    >>> Outer(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])).dense()
    array([[[0. , 0.5],
            [0.5, 0. ]]])
    """

    a: Array
    b: Array

    @property
    def diag(self) -> Array:
        return self.a * self.b

    def dot(self, w: Array) -> Array:
        left, right = (np.sum(x * w, axis=-1, keepdims=True) for x in (self.b, self.a))
        return 0.5 * (self.a * left + self.b * right)

    def dense(self) -> Array:
        outer = self.a[..., :, None] * self.b[..., None, :]
        return 0.5 * (outer + outer.swapaxes(-1, -2))


@dataclass(frozen=True)
class Combination:
    """Marginals that are a weighted sum of others, from pairs (weight, marginals).

    >>> Combination([(-0.5, Diagonal(np.array([[2.0, 4.0]])))]).diag
    array([[-1., -2.]])
    """

    terms: Sequence[tuple[float, Marginals]]

    @property
    def diag(self) -> Array:
        first, *others = self.terms
        return sum((weight * part.diag for weight, part in others), first[0] * first[1].diag)

    def dot(self, w: Array) -> Array:
        first, *others = self.terms
        return sum((weight * part.dot(w) for weight, part in others), first[0] * first[1].dot(w))

    def dense(self) -> Array:
        first, *others = self.terms
        return sum((weight * part.dense() for weight, part in others), first[0] * first[1].dense())


def second_moments(U: Curvature, nodes: Array, weights: Array) -> Array:
    """``sum_s w_s [1; x_s] U_s [1, x_s]`` for every row, (n, 2D, 2D), U in nodes × rows."""
    S, D = nodes.shape
    both = np.concatenate([np.ones((S, D)), nodes], axis=1)  # (S, 2D)
    if isinstance(U, RankOne):
        out = -_outer(np.sqrt(U.rho * weights[:, None])[..., None] * U.omega, both)
        diagonal = U.gamma
    elif isinstance(U, Diagonal):
        out, diagonal = np.zeros((U.gamma.shape[1], 2 * D, 2 * D)), U.gamma
    else:
        values = np.tile(U.dense(), (1, 1, 2, 2)) * both[:, None, :, None] * both[:, None, None, :]
        return np.einsum("s,s...->...", weights, values)
    j = np.arange(D)
    for rows, columns, x in ((0, 0, np.ones((S, D))), (0, D, nodes), (D, 0, nodes), (D, D, nodes**2)):
        out[:, rows + j, columns + j] += np.einsum("sj,snj->nj", weights[:, None] * x, diagonal, optimize=True)
    return out


def _outer(omega: Array, both: Array) -> Array:
    wide = np.concatenate([omega, omega], axis=-1)
    wide *= both[:, None, :]
    wide = np.ascontiguousarray(wide.swapaxes(0, 1))  # (n, S, 2D)
    return wide.swapaxes(1, 2) @ wide
