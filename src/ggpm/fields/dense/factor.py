"""One latent dimension: K (n×n) with the diagonal curvature gamma.

Both factors below describe the same matrices, ``V = (K^-1 + Gamma)^-1`` and
``E = (K + Gamma^-1)^-1 = Gamma - Gamma V Gamma``; they differ in what they can bear. `PositiveFactor` works with
square roots of gamma and keeps its digits as gamma -> 0. `SignedFactor` also takes negative gamma: the negative
rows are a second, smaller Cholesky factorisation on top of the positive ones, so that definiteness is read off
the factorisations (inertia), never off the sign of a determinant.

Both write E as ``diag(scale) N`` with an "unscaled" N: ``scale = sqrt(gamma)`` and ``N = B^-1 S`` for the positive
factor, ``scale = gamma`` and ``N = I - V Gamma`` for the signed one.

Several dimensions are coupled by a rank-one term with weights w (nu for the positive factor, sqrt(rho) omega for
the signed one) through a capacitance matrix C = L_C L_C^T (`ggpm.fields.dense.rank_one`). Each factor adds its part to
C (`add_to_capacitance`), gives the products ``w N b`` and ``N^T w c`` that cross from a dimension to C and back, and
the matrices ``P = F K`` (`through_capacitance`) and ``F = L_C^-1 w N`` (`before_kernel`). Where some rows have several
such terms, ``rows`` names the row of each.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from ggpm.kernels.linalg import (
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    gram,
    log_det_lower,
    mirror,
    solve_lower,
    strips,
    symmetric_fortran,
    symmetric_solve,
)

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# With gamma_i K_ii below this, (1 - [B^-1]_ii)/gamma_i has lost 6 of 16 digits or more; there
# V_ii is computed from K and E.
GAMMA_SMALL = 1e-6


class PositiveFactor:
    """``B = I + S K S``, ``S = diag(sqrt(gamma))``, for gamma >= 0 (GPML eq. (3.26)).

    Holds the Cholesky factor of B or, once that is asked for, the inverse, in one n×n buffer.
    """

    def __init__(self, K: Array, gamma: Array):
        self.K, self.gamma, self.s = symmetric_fortran(K), gamma, np.sqrt(gamma)
        self._small = gamma * np.diag(K) < GAMMA_SMALL
        B = _scaled_lower(self.K, self.s, np.empty(K.shape, order="F"))  # the rest of it is never read
        B.ravel(order="K")[:: len(B) + 1] += 1.0
        self._L: Array | None = cholesky(B, clean=False)
        self._inverse: Array | None = None
        self.log_det = log_det_lower(self._L)

    def _invert(self) -> Array:
        """Lower triangle of B^-1; takes the place of the factor."""
        if self._inverse is None:
            assert self._L is not None
            self._inverse, self._L = cholesky_inverse(self._L), None
        return self._inverse

    def _solve(self, b: Array) -> Array:
        return cholesky_solve(self._L, b) if self._L is not None else symmetric_solve(self._invert(), b)

    def E(self, out: Array | None = None) -> Array:
        """Lower triangle of E (the upper one is set only by `mirror`)."""
        return _scaled_lower(self._invert(), self.s, np.zeros(self.K.shape, order="F") if out is None else out)

    @property
    def scale(self) -> Array:
        """The diagonal with ``E b = scale N b``."""
        return self.s

    def unscaled_E_dot(self, b: Array) -> Array:
        """``N b = B^-1 S b`` for b (n,) or (n, m)."""
        return self._solve(_column(self.s, b) * b)

    def unscaled_E_T_dot(self, c: Array) -> Array:
        """``N^T c = S B^-1 c``."""
        return self.s * self._solve(c)

    def E_quad(self, b: Array) -> Array:
        """Column sums of ``b * (E b)`` for b (n, m)."""
        if self._L is None:
            scaled = self.s[:, None] * b
            return np.einsum("nm,nm->m", scaled, self._solve(scaled))
        root = self.root_E_dot(b)
        return np.einsum("nm,nm->m", root, root)

    def root_E_dot(self, b: Array) -> Array:
        """``L^-1 S b`` for b (n, m), before the inverse is asked for: its Gram matrix is ``b^T E b``."""
        assert self._L is not None
        return solve_lower(self._L, self.s[:, None] * b, overwrite=True)

    def N_dot(self, b: Array) -> Array:
        """``(I + K Gamma)^-1 b = S^-1 B^-1 S b`` for b (n,) or (n, m); where gamma is small, b - K S B^-1 S b."""
        half = self.unscaled_E_dot(b)
        out = np.asarray(half / _column(np.where(self._small, 1.0, self.s), b))
        if self._small.any():
            out[self._small] = b[self._small] - self.K[self._small] @ (_column(self.s, b) * half)
        return out

    def N_T_dot(self, c: Array) -> Array:
        """``(I + Gamma K)^-1 c`` for c (n,)."""
        own = np.where(self._small, 0.0, c)
        out = self.unscaled_E_T_dot(own / np.where(self._small, 1.0, self.s))
        if self._small.any():
            out += c - own - self.s * self.unscaled_E_dot(self.K[:, self._small] @ c[self._small])
        return out

    def V_diag(self) -> Array:
        small = self._small
        v = (1.0 - np.diag(self._invert())) / np.where(small, 1.0, self.gamma)
        if small.any():
            v[small] = np.diag(self.K)[small] - self.E_quad(self.K[:, small])
        return v

    @property
    def V(self) -> Array:
        """``(K^-1 + Gamma)^-1``: (I - B^-1)/(s s^T), whose error is that of 1/gamma; K - K E K has that of K^2 E."""
        s = np.where(self._small, 1.0, self.s)
        V = mirror(_scaled_lower(self._invert(), 1.0 / s, np.zeros(self.K.shape, order="F")))
        V *= -1.0
        V.ravel(order="K")[:: len(V) + 1] += 1.0 / s**2
        if self._small.any():
            columns = self.N_dot(self.K[:, self._small])
            V[:, self._small], V[self._small] = columns, columns.T
        return V

    # ---- coupling, weights nu ----
    def add_to_capacitance(self, nu: Array, C: Array, rows: Rows | None = None) -> None:
        """Add this dimension's part to the lower triangle of C, which starts from I - sum nu nu^T within rows."""
        _add_scaled_lower(_picked_square(self._invert(), rows), nu, nu, C)

    def through_capacitance(self, H: Array, nu: Array, rows: Rows | None = None) -> Array:
        """P = F K = H nu (I - B^-1) S^-1, H = L_C^-1."""
        small = np.flatnonzero(self._small)
        inverse = 1.0 / np.where(self._small, 1.0, self.s)
        G = np.multiply(_picked(mirror(self._invert()), rows), nu[:, None], order="F")
        P = blas.dtrmm(1.0, H, G, lower=1, overwrite_b=1)
        P *= -inverse
        _add_columns(H, nu * _picked(inverse, rows), rows, P)
        if small.size:
            crossed = nu[:, None] * _picked(self.unscaled_E_dot(self.K[:, small]), rows)
            P[:, small] = blas.dtrmm(1.0, H, crossed, lower=1)
        return P

    def before_kernel(self, P: Array, H: Array, nu: Array, rows: Rows | None = None) -> Array:
        """F = H nu B^-1 S from P = F K: H nu S - P Gamma."""
        F = np.multiply(P, -self.gamma, order="F")
        _add_columns(H, nu * _picked(self.s, rows), rows, F)
        return F


class SignedFactor:
    """Factor for gamma of either sign; raises `NotPositiveDefinite` unless ``K^-1 + Gamma`` is definite.

    With V_+ from the positive rows and ``M = I - g V_+ g`` on the negative ones, ``V = V_+ + V_+ g M^-1 g V_+``. A
    Newton step needs products with N alone, so V itself waits until it is asked for. These never go through V: where
    the prior is wide, ``b - V Gamma b`` is a small difference of large numbers, and the next product with K makes its
    error large again.
    """

    def __init__(self, K: Array, gamma: Array):
        self.gamma = gamma
        self._positive = PositiveFactor(K, np.maximum(gamma, 0.0))
        self.log_det = self._positive.log_det
        self._negative = np.flatnonzero(gamma < 0)
        if self._negative.size:
            self._g = np.sqrt(-gamma[self._negative])
            columns = K[:, self._negative]
            M = self._g * (gram(self._positive.root_E_dot(columns)) - columns[self._negative]) * self._g[:, None]
            M.flat[:: len(M) + 1] += 1.0
            self._L_M = cholesky(M)
            self.log_det += log_det_lower(self._L_M)

    @cached_property
    def V(self) -> Array:
        """``(K^-1 + Gamma)^-1``."""
        V = gram(self._positive.root_E_dot(self._positive.K))
        np.subtract(self._positive.K, V, out=V)
        if self._negative.size:
            V += gram(solve_lower(self._L_M, self._g[:, None] * V[self._negative]))
        return V

    def E(self, out: Array | None = None) -> Array:
        out = np.multiply(self.V, -self.gamma, out=out, order="F")
        out *= self.gamma[:, None]
        out.ravel(order="K")[:: len(out) + 1] += self.gamma
        return out

    @property
    def scale(self) -> Array:
        """The diagonal with ``E b = scale N b``."""
        return self.gamma

    def unscaled_E_dot(self, b: Array) -> Array:
        """``N b = (I + K Gamma)^-1 b`` for b (n,) or (n, m)."""
        # I + K Gamma = (I + K Gamma_+) (I - V_+ g g), and V_+ = N_+ K
        out = self._positive.N_dot(b)
        if self._negative.size:
            out += self._positive.N_dot(self._positive.K[:, self._negative] @ self._across(out[self._negative]))
        return out

    def unscaled_E_T_dot(self, c: Array) -> Array:
        """``N^T c = (I + Gamma K)^-1 c`` for c (n,)."""
        out = self._positive.N_T_dot(c)
        if self._negative.size:
            more = self._across(self._positive.K[self._negative] @ out)
            out += self._positive.N_T_dot(np.bincount(self._negative, more, len(c)).astype(np.float64))
        return out

    def _across(self, b: Array) -> Array:
        """``g M^-1 g b`` of the negative rows."""
        g = _column(self._g, b)
        return g * cholesky_solve(self._L_M, g * b)

    def E_quad(self, b: Array) -> Array:
        return np.einsum("nm,nm->m", self.gamma[:, None] * b, self.unscaled_E_dot(b))

    def V_diag(self) -> Array:
        if "V" in vars(self):
            return np.diag(self.V)
        K, some = self._positive.K, self._negative
        half = self._positive.root_E_dot(K)
        v = np.diag(K) - np.square(half).sum(axis=0)
        if some.size:
            v += np.square(solve_lower(self._L_M, self._g[:, None] * (K[some] - half[:, some].T @ half))).sum(axis=0)
        return v

    # ---- coupling, weights r = sqrt(rho) omega ----
    def add_to_capacitance(self, r: Array, C: Array, rows: Rows | None = None) -> None:
        """Add this dimension's part to the lower triangle of C, which starts from the identity."""
        _add_scaled_lower(_picked_square(self.V, rows), -r, r, C)

    def through_capacitance(self, H: Array, r: Array, rows: Rows | None = None) -> Array:
        """P = F K = H r V, H = L_C^-1."""
        return blas.dtrmm(1.0, H, np.multiply(_picked(self.V, rows), r[:, None], order="F"), lower=1, overwrite_b=1)

    def before_kernel(self, P: Array, H: Array, r: Array, rows: Rows | None = None) -> Array:
        """F = H r (I - V Gamma) from P = F K: H r - P Gamma."""
        F = np.multiply(P, -self.gamma, order="F")
        _add_columns(H, r, rows, F)
        return F


def factor(K: Array, gamma: Array) -> PositiveFactor | SignedFactor:
    """The factor that suits the sign of gamma."""
    return PositiveFactor(K, gamma) if np.all(gamma >= 0) else SignedFactor(K, gamma)


def _scaled_lower(A: Array, s: Array, out: Array) -> Array:
    """Lower triangle of ``diag(s) A diag(s)``; blocks of the upper one next to the diagonal are set as well."""
    for columns in strips(len(A)):  # as rows of the transpose, which lie in memory one after the other
        rows = slice(columns.start, None)
        np.multiply(A.T[columns, rows], np.multiply.outer(s[columns], s[rows]), out=out.T[columns, rows])
    return out


def _add_scaled_lower(A: Array, s: Array, t: Array, out: Array) -> None:
    """Add the lower triangle of ``diag(s) A diag(t)``."""
    for columns in strips(len(A)):
        rows = slice(columns.start, None)
        part = np.multiply.outer(t[columns], s[rows])
        part *= A.T[columns, rows]
        out.T[columns, rows] += part


def _picked(A: Array, rows: Rows | None) -> Array:
    return A if rows is None else A[rows]


def _picked_square(A: Array, rows: Rows | None) -> Array:
    """Some rows and columns of a symmetric matrix whose lower triangle is set; of it again the lower triangle."""
    return A if rows is None else mirror(A)[np.ix_(rows, rows)]


def _add_columns(H: Array, w: Array, rows: Rows | None, out: Array) -> None:
    """Add the columns of a lower triangular H times w to those columns of out that ``rows`` names."""
    n = out.shape[1]
    for columns in strips(n):  # the first n are in their own order
        below = slice(columns.start, None)
        out[below, columns] += H[below, columns] * w[columns]
    if rows is not None:
        for column in range(n, len(H)):
            out[column:, rows[column]] += H[column:, column] * w[column]


def _column(w: Array, b: Array) -> Array:
    """w (n,) in the shape that scales the rows of b, (n,) or (n, m)."""
    return w if b.ndim == 1 else w[:, None]
