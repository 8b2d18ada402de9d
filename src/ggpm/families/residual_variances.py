"""Wishart densities as functions of the log-variances alone, the regression coefficients integrated in closed form.

Given the log-variances a_k = eta_k of a `Wishart`, its density is that of a Gaussian in the coefficients b: with the
latent e of which y is the mean, b_hat its coefficients, Y_k the block of y after variable k,

    log p = top - phi/2 sum_k [exp(e_k - a_k) - 1 - (e_k - a_k)] - (b - b_hat)^T P (b - b_hat)/2,
    P^-1  = blockdiag(exp(a_k) Y_k^-1)/phi,

and under b | a ~ N(m_b + G (a - m_a), V) the average of the last factor is (|P^-1|/|C|)^(1/2) exp(-d^T C^-1 d/2) with
C = V + P^-1 and d = m_b + G (a - m_a) - b_hat. Matrices of order two are left with two latents, those of order three
with three instead of six.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Blocks
from ggpm.families.special.adaptive import cholesky_root

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ResidualVariances:
    """log E[p(y | eta) | a] as a density with the latents a, (..., p); y are rows of numbers that `of` makes."""

    phi: float
    p: int
    shift_invariant: ClassVar[bool] = False

    @classmethod
    def of(
        cls, phi: float, top: Array, own: Array, y: Array, mean: Array, cov: Array
    ) -> tuple[ResidualVariances, Array, Array, Array]:
        """Density, mean and covariance of a, and its y, for log densities ``top`` (n,) at the latent ``own`` (n, D)."""
        n, p = y.shape[:2]
        q = mean.shape[1] - p
        R = cholesky_root(cov)
        still = np.einsum("njj->nj", R[:, :p, :p]) == 0  # log-variances that are known: no coefficient follows them
        lower = R[:, :p, :p] + still[:, :, None] * np.eye(p)
        G = np.linalg.solve(lower.swapaxes(1, 2), R[:, p:, :p].swapaxes(1, 2)).swapaxes(1, 2)
        V = R[:, p:, p:] @ R[:, p:, p:].swapaxes(1, 2)
        d = mean[:, p:] - np.einsum("nij,nj->ni", G, mean[:, :p]) - own[:, p:]
        parts, columns = np.zeros((n, p - 1, q, q)), np.tril_indices(p, -1)[1]
        log_det = -q * np.log(phi)
        for k in range(p - 1):
            at, block = np.flatnonzero(columns == k), y[:, k + 1 :, k + 1 :]
            parts[:, k, at[:, None], at] = np.linalg.inv(block) / phi
            log_det = log_det - np.linalg.slogdet(block)[1]
        packed = [
            (top + 0.5 * log_det)[:, None],
            own[:, :p],
            d,
            G.reshape(n, -1),
            V.reshape(n, -1),
            parts.reshape(n, -1),
        ]
        return cls(phi, p), mean[:, :p], cov[:, :p, :p], np.concatenate(packed, axis=1)

    def beside(self, y: Array) -> None:
        return None

    def _unpack(self, y: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        p, q = self.p, self.p * (self.p - 1) // 2
        sizes = np.cumsum([1, p, q, q * p, q * q])
        top, own, d, G, V, parts = np.split(y, sizes, axis=-1)
        n = len(y)
        return top[:, 0], own, d, G.reshape(n, q, p), V.reshape(n, q, q), parts.reshape(n, p - 1, q, q)

    @property
    def _after(self) -> Array:
        """Numbers of variables after each one."""
        return np.arange(self.p - 1.0, -1.0, -1.0)

    def log_prob(self, eta: Array, y: Array) -> Array:
        top, own, d, G, V, parts = self._unpack(y)
        t = own - eta
        value = top - 0.5 * self.phi * ((np.expm1(t) - t) @ np.ones(self.p)) + 0.5 * eta @ self._after
        grown = np.exp(eta[..., :-1])
        L: dict[tuple[int, int], Array] = {}  # Cholesky's factor of C, entry by entry
        z: list[Array] = []
        for i in range(d.shape[1]):
            left = d[:, i] + sum(G[:, i, k] * eta[..., k] for k in range(self.p))
            for j in range(i + 1):
                s = V[:, i, j] - sum(L[i, k] * L[j, k] for k in range(j))
                for k in range(self.p - 1):
                    if parts[:, k, i, j].any():  # coefficients of the same variable
                        s = s + parts[:, k, i, j] * grown[..., k]
                L[i, j] = np.sqrt(s) if i == j else s / L[j, j]
            z.append((left - sum(L[i, k] * z[k] for k in range(i))) / L[i, i])
            value = value - 0.5 * z[i] ** 2 - np.log(L[i, i])
        return value

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, Blocks]:
        return self._derivatives(eta, y, False)

    def U(self, eta: Array, y: Array, expected: bool = False) -> Blocks:
        return self._derivatives(eta, y, expected)[1]

    def _derivatives(self, eta: Array, y: Array, positive: bool) -> tuple[Array, Blocks]:
        """Gradient and curvature at one eta (n, p) for each row; ``positive``: what is never negative of the latter."""
        _, own, d, G, V, parts = self._unpack(y)
        n, p = eta.shape
        in_C = np.zeros((n, p, *V.shape[1:]))  # derivatives of C
        in_C[:, :-1] = parts * np.exp(eta[:, :-1])[..., None, None]
        inverse = np.linalg.inv(V + in_C.sum(axis=1))
        q = np.einsum("nij,nj->ni", inverse, d + np.einsum("nij,nj->ni", G, eta))
        Cq = np.einsum("nkij,nj->nki", in_C, q)
        scaled = np.einsum("nij,nkjl->nkil", inverse, in_C)
        own_square, trace = np.einsum("nki,ni->nk", Cq, q), np.einsum("nkii->nk", scaled)
        fall = 0.5 * self.phi * np.exp(own - eta)
        u = fall - 0.5 * self.phi + 0.5 * self._after - np.einsum("nij,ni->nj", G, q) + 0.5 * (own_square - trace)
        slope = G.swapaxes(1, 2) - Cq
        H = slope @ inverse @ slope.swapaxes(1, 2)
        diagonal = fall
        if not positive:
            H = H - 0.5 * np.einsum("nkij,nlji->nkl", scaled, scaled)
            diagonal = fall + 0.5 * (trace - own_square)
        return u, Blocks(H + diagonal[:, :, None] * np.eye(p))

    def expansion(self, y: Array) -> Array:
        return self._unpack(y)[1]
