"""One latent dimension: K (n×n) with the diagonal curvature gamma.

Both factors below describe the same matrices, ``V = (K^-1 + Gamma)^-1`` and
``E = (K + Gamma^-1)^-1 = Gamma - Gamma V Gamma``; they differ in what they can bear. `PositiveFactor` works with
square roots of gamma and keeps its digits as gamma -> 0. `SignedFactor` also takes negative gamma: the negative
rows are a second, smaller Cholesky factorisation on top of the positive ones, so that definiteness is read off
the factorisations (inertia), never off the sign of a determinant.

For the coupling of several dimensions by a rank-one term, with weights w (nu for the positive factor,
sqrt(rho) omega for the signed one), both give the n×n matrices X and Y from which
``F_j = L_C^-1 X_j`` and ``P_j = F_j K_j = L_C^-1 Y_j`` follow.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ggpm._linalg import (
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    gram,
    log_det_lower,
    solve_lower,
)

Array = NDArray[np.float64]

# Below this, (1 - [B^-1]_ii)/gamma_i has lost half of its digits and V_ii is computed from K and E instead.
GAMMA_SMALL = 1e-6


class PositiveFactor:
    """Factor of ``B = I + S K S``, ``S = diag(sqrt(gamma))``, for gamma >= 0."""

    def __init__(self, K: Array, gamma: Array):
        self.K, self.gamma, self.s = K, gamma, np.sqrt(gamma)
        B = K * self.s
        B *= self.s[:, None]
        B.flat[:: len(B) + 1] += 1.0
        self.L = cholesky(B)
        self.log_det = log_det_lower(self.L)

    @cached_property
    def B_inverse(self) -> Array:
        return cholesky_inverse(self.L)

    def E(self) -> Array:
        out = self.B_inverse * self.s
        out *= self.s[:, None]
        return out

    def E_dot(self, b: Array) -> Array:
        s = self.s.reshape(-1, *[1] * (b.ndim - 1))
        return s * cholesky_solve(self.L, s * b)

    def E_quad(self, b: Array) -> Array:
        """Column sums of ``b * (E b)`` for b (n, m)."""
        half = solve_lower(self.L, self.s[:, None] * b)
        return np.einsum("nm,nm->m", half, half)

    def V_diag(self) -> Array:
        small = self.gamma < GAMMA_SMALL
        v = (1.0 - np.diag(self.B_inverse)) / np.where(small, 1.0, self.gamma)
        if small.any():
            v[small] = np.diag(self.K)[small] - self.E_quad(self.K[:, small])
        return v

    # ---- coupling, weights nu ----
    def coupling(self, nu: Array) -> Array:
        """This dimension's part of C, to be added to diag(1 - sum nu^2)."""
        out = self.B_inverse * nu
        out *= nu[:, None]
        return out

    def X(self, nu: Array) -> Array:
        out = self.B_inverse * self.s
        out *= nu[:, None]
        return out

    def X_dot(self, nu: Array, b: Array) -> Array:
        """X b for b (n,) or (n, m)."""
        rows = (-1, *[1] * (b.ndim - 1))
        return nu.reshape(rows) * cholesky_solve(self.L, self.s.reshape(rows) * b)

    def XT_dot(self, nu: Array, c: Array) -> Array:
        return self.s * cholesky_solve(self.L, nu * c)

    def Y(self, nu: Array) -> Array:
        """``nu B^-1 S K = nu (I - B^-1) S^-1``."""
        small = self.gamma < GAMMA_SMALL
        inv_s = 1.0 / np.where(small, 1.0, self.s)
        out = self.B_inverse * -inv_s
        out.flat[:: len(out) + 1] += inv_s
        if small.any():
            out[:, small] = cholesky_solve(self.L, self.s[:, None] * self.K[:, small])
        out *= nu[:, None]
        return out


class SignedFactor:
    """Factor for gamma of either sign; raises `NotPositiveDefinite` unless ``K^-1 + Gamma`` is definite."""

    def __init__(self, K: Array, gamma: Array):
        self.gamma = gamma
        positive = PositiveFactor(K, np.maximum(gamma, 0.0))
        half = solve_lower(positive.L, positive.s[:, None] * K)
        V = K - gram(half)
        self.log_det = positive.log_det
        negative = np.flatnonzero(gamma < 0)
        if negative.size:
            g = np.sqrt(-gamma[negative])
            rows = g[:, None] * V[negative]
            M = -rows[:, negative] * g
            M.flat[:: len(M) + 1] += 1.0
            L = cholesky(M)
            self.log_det += log_det_lower(L)
            V += gram(solve_lower(L, rows))
        self.V = V

    def E(self) -> Array:
        out = self.V * -self.gamma
        out *= self.gamma[:, None]
        out.flat[:: len(out) + 1] += self.gamma
        return out

    def E_dot(self, b: Array) -> Array:
        g = self.gamma.reshape(-1, *[1] * (b.ndim - 1))
        return g * (b - self.V @ (g * b))

    def E_quad(self, b: Array) -> Array:
        return np.einsum("nm,nm->m", b, self.E_dot(b))

    def V_diag(self) -> Array:
        return np.diag(self.V).copy()

    # ---- coupling, weights r = sqrt(rho) omega ----
    def coupling(self, r: Array) -> Array:
        """This dimension's part of C, to be added to the identity."""
        out = self.V * -r
        out *= r[:, None]
        return out

    def X(self, r: Array) -> Array:
        out = self.V * -self.gamma
        out.flat[:: len(out) + 1] += 1.0
        out *= r[:, None]
        return out

    def X_dot(self, r: Array, b: Array) -> Array:
        rows = (-1, *[1] * (b.ndim - 1))
        return r.reshape(rows) * (b - self.V @ (self.gamma.reshape(rows) * b))

    def XT_dot(self, r: Array, c: Array) -> Array:
        return r * c - self.gamma * (self.V @ (r * c))

    def Y(self, r: Array) -> Array:
        return r[:, None] * self.V


def factor(K: Array, gamma: Array) -> PositiveFactor | SignedFactor:
    """The factor that suits the sign of gamma."""
    return PositiveFactor(K, gamma) if np.all(gamma >= 0) else SignedFactor(K, gamma)
