"""Predictive densities of Wishart matrices at many y of every row, by Laplace's formula, entry by entry.

A matrix is taken by the regressions of every variable on those after it, as its mean is by the latents
(`ggpm.families.wishart`): log-variances e_k of what they leave, and coefficients c_jk. Given the latents a_k, b_jk,

    e_k ~ a_k + log(chi²/phi) with phi - (p - 1 - k) degrees of freedom,  c_k ~ N(b_k, exp(a_k) Y_k^-1/phi),

Y_k the block after variable k. Coefficients are integrated in closed form (`ggpm.families.residual_variances`). That
leaves an integrand over p log-variances that is nearly Gaussian: Laplace's formula is off by 0.003 for latents with
standard deviations up to 0.7, by 0.03 for those up to 2 (matrices of order 2 and 3, phi from p + 1 to 50).

Arrays are (m, N), N matrices of m rows, and matrices are dictionaries of them, because products of many small matrices
cost more; numbers of rows alone are (m, 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtri

from ggpm.families.special.adaptive import cholesky_root
from ggpm.families.special.quadrature import sobol

Array = NDArray[np.float64]
Entries = dict[tuple[int, int], Array]

# Steps to the mode before the last look, where ranks are all that is asked and where values are. Measured on matrices
# of order 2 and 3, latents with standard deviations up to 2: further steps change values by less than 0.01.
ROUGH, FINE = 0, 3
BATCH = 2**13  # matrices that are worked on at once: what is held of them stays in the processor's cache
LEAST = 1e-12  # probability next to which chi-squares are not drawn


def _sum(terms: Any) -> Any:
    """Sum of arrays without the zero that `sum` begins with, or zero."""
    some = list(terms)
    return reduce(add, some) if some else 0.0


def _at(M: Entries, i: int, j: int) -> Array:
    """Entry of a symmetric matrix of which the lower triangle is held."""
    return M[max(i, j), min(i, j)]


@dataclass(frozen=True)
class Regressions:
    """Matrices by their regressions: log-variances e_k, and coefficients in the order of the latents, (m, N) each."""

    e: list[Array]
    c: list[Array]

    @classmethod
    def of(cls, y: Array) -> Regressions:
        """Those of matrices (m, N, p, p).

        >>> of = Regressions.of(np.array([[[[1.25, 0.5], [0.5, 1.0]]]]))
        >>> float(np.exp(of.e[0].item())), float(of.c[0].item())
        (1.0, 0.5)
        """
        p = y.shape[-1]
        e: list[Array] = [np.empty(0)] * p
        c: Entries = {}
        inverse: Entries = {}
        for k in range(p - 1, -1, -1):
            after = range(k + 1, p)
            for i in after:
                c[i, k] = _sum(_at(inverse, i, j) * y[..., j, k] for j in after)
            left = y[..., k, k] - _sum(c[i, k] * y[..., i, k] for i in after)
            e[k] = np.log(left)
            _grow(inverse, c, 1.0 / left, k, p)
        return cls(e, [c[jk] for jk in _order(p)])

    @classmethod
    def drawn(cls, phi: float, mean: Array, root: Array, points: Array) -> Regressions:
        """Draws of rows with latents N(mean, root root^T), by points (2 D, N), or by some for each row (2 D, m, n)."""
        D = mean.shape[1]
        p, order = _variables(D), _order(_variables(D))
        eta = [mean[:, i, None] + _sum(root[:, i, j, None] * points[j] for j in range(i + 1)) for i in range(D)]
        e = [eta[k] + points[D + k] for k in range(p)]
        c: Entries = {}
        noise = {jk: points[D + p + i] for i, jk in enumerate(order)}
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(p - 2, -1, -1):
                # Y_k^-1 = sum_l exp(-e_l) c_l c_l^T, c_l one at l and minus the coefficients after it
                scale = {j: np.exp(0.5 * (eta[k] - e[j])) * (noise[j, k] / math.sqrt(phi)) for j in range(k + 1, p)}
                for j in range(k + 1, p):
                    apart = scale[j] - _sum(c[j, l] * scale[l] for l in range(k + 1, j))
                    c[j, k] = eta[p + order.index((j, k))] + apart
        return cls(e, [c[jk] for jk in order])

    def spreads(self) -> Entries:
        """Y_k^-1 for all k, as the block-diagonal matrix of all coefficients."""
        p, order = len(self.e), _order(len(self.e))
        out: Entries = {}
        inverse: Entries = {}
        c = dict(zip(order, self.c))
        for k in range(p - 1, -1, -1):
            for i, (j, column) in enumerate(order):
                for i2, (j2, column2) in enumerate(order[: i + 1]):
                    if column == column2 == k:
                        out[i, i2] = _at(inverse, j, j2)
            _grow(inverse, c, np.exp(-self.e[k]), k, p)
        return out


def _grow(inverse: Entries, c: Entries, weight: Array, k: int, p: int) -> None:
    """The inverse of the block from k on, from that of the block after k, in place."""
    inverse[k, k] = weight
    for i in range(k + 1, p):
        inverse[i, k] = -c[i, k] * weight
        for j in range(k + 1, i + 1):
            inverse[i, j] = inverse[i, j] - c[i, k] * inverse[j, k]


@lru_cache(maxsize=8)
def _order(p: int) -> list[tuple[int, int]]:
    """Places of the coefficients in the order of the latents."""
    return [(int(j), int(k)) for j, k in zip(*np.tril_indices(p, -1))]


def _variables(D: int) -> int:
    return (math.isqrt(8 * D + 1) - 1) // 2


@lru_cache(maxsize=8)
def shared_points(phi: float, D: int, log2: int) -> Array:
    """2^log2 Sobol points (2 D, N): normals of the latents, log(chi²/phi), normals of coefficients."""
    p = _variables(D)
    uniform = sobol(2 * D).random_base2(log2).clip(LEAST, 1.0 - LEAST)
    out = np.ascontiguousarray(ndtri(uniform).T)
    for k in range(p):
        half = 0.5 * (phi - (p - 1 - k))
        # where chi-squares are smaller than any float, u = x^half/Gamma(half + 1)
        small = (np.log(uniform[:, D + k]) + math.lgamma(half + 1.0)) / half
        x = gammaincinv(half, uniform[:, D + k])
        out[D + k] = np.where(x > 1e-280, np.log(np.maximum(x, 1e-300)), small) - math.log(0.5 * phi)
    return out


@dataclass(frozen=True)
class WishartDraws:
    """Draws of the predictive distribution of rows with latents N(mean, cov), of the same random numbers in all rows.

    Quasi-random ones: 1024 of them leave an error of 0.006 in the probability of a region of level 0.9 (matrices of
    order 3; of order 2 0.004), where as many random ones leave 0.010.
    """

    phi: float
    head: float
    mean: Array
    cov: Array
    log2: int

    def rough(self) -> Array:
        """Log predictive densities of all draws, (m, N), whose order is nearly right."""
        points = self._points()
        out = self._log_densities(np.arange(len(self.mean)), points.astype(np.float32), ROUGH)  # enough for ranks
        beyond = np.flatnonzero(~np.isfinite(out).all(axis=1))
        out[beyond] = self._log_densities(beyond, points, ROUGH)
        return out

    def fine(self, rows: NDArray[np.intp], which: NDArray[np.intp]) -> Array:
        """Log predictive densities of some draws (k, n) of some rows (k,)."""
        return self._log_densities(rows, self._points(), FINE, which)

    def quantile(self, q: float) -> None:
        """Nothing: there is no closed form."""

    def _points(self) -> Array:
        return shared_points(self.phi, self.mean.shape[1], self.log2)

    def _log_densities(
        self, rows: NDArray[np.intp], points: NDArray, steps: int, which: NDArray[np.intp] | None = None
    ) -> Array:
        N = points.shape[1] if which is None else which.shape[1]
        out, step = np.empty((len(rows), N)), max(1, BATCH // N)
        for i in range(0, len(rows), step):
            mean, cov = self.mean[rows[i : i + step]], self.cov[rows[i : i + step]]
            taken = points if which is None else points[:, which[i : i + step]]
            y = Regressions.drawn(self.phi, mean.astype(taken.dtype), cholesky_root(cov).astype(taken.dtype), taken)
            out[i : i + step] = laplace(self.phi, self.head, mean, cov, y, steps)
        return out


def laplace_of_matrices(phi: float, head: float, mean: Array, cov: Array, y: Array) -> Array:
    """Log predictive densities (N, m) of matrices (N, m, p, p)."""
    out = np.empty(y.shape[:2])
    step = max(1, BATCH // len(y))
    for rows in (slice(i, i + step) for i in range(0, len(mean), step)):
        out[:, rows] = laplace(phi, head, mean[rows], cov[rows], Regressions.of(y[:, rows].swapaxes(0, 1))).T
    return out


def laplace(phi: float, head: float, mean: Array, cov: Array, y: Regressions, steps: int = FINE) -> Array:
    """Log predictive densities (m, N) of matrices, by Laplace's formula; ``head`` is that of the unit matrix given that
    it is the mean."""
    rows = _Rows.of(phi, mean, cov, y.e[0].dtype)
    p, e = rows.p, y.e
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        integrand = _Integrand(rows, y, {ij: s / phi for ij, s in y.spreads().items()})
        x = rows.start(e)
        for i in range(steps):
            _, move, _, _ = integrand.look(x, secant=i == 0)
            x = [a + b for a, b in zip(x, move)]
        value, _, gain, log_det = integrand.look(x, secant=False)
        # determinants of y and of the Y_k, by which integrals over coefficients are Gaussian
        volume = _sum((0.5 * (p + 1 + k)) * e[k] for k in range(p))
        out = value + (0.5 * gain - log_det) - volume + (head - 0.25 * p * (p - 1) * math.log(phi))
    return np.where(np.isnan(out), -np.inf, out)


@dataclass(frozen=True)
class _Rows:
    """What belongs to rows alone; x are standard normals with a = mean + R x, b = mean + S x + what a does not tell."""

    phi: float
    p: int
    mean: list[Array]
    R: Entries
    S: Entries
    V: Entries
    """Covariance of the coefficients given the log-variances."""
    to_start: Entries

    @classmethod
    def of(cls, phi: float, mean: Array, cov: Array, dtype: Any) -> _Rows:
        """With the digits of a type of floats."""
        p = _variables(mean.shape[1])
        q, root = mean.shape[1] - p, cholesky_root(cov)
        R, S, Q = root[:, :p, :p], root[:, p:, :p], root[:, p:, p:]
        V = Q @ Q.swapaxes(1, 2)
        # information of e_k about a_k is (phi - (p - 1 - k))/2 at its largest
        told = R.swapaxes(1, 2) * (0.5 * (phi - np.arange(p - 1.0, -1.0, -1.0)))
        K = np.linalg.solve(told @ R + np.eye(p), told)
        parts: tuple[Any, ...] = mean, R, S, V, K
        mean, R, S, V, K = (x.astype(dtype) for x in parts)
        return cls(
            phi,
            p,
            [m[:, None] for m in mean.T],
            {(k, l): R[:, k, l, None] for k in range(p) for l in range(k + 1)},
            {(i, l): S[:, i, l, None] for i in range(q) for l in range(p)},
            {(i, j): V[:, i, j, None] for i in range(q) for j in range(i + 1)},
            {(k, l): K[:, k, l, None] for k in range(p) for l in range(p)},
        )

    def start(self, e: list[Array]) -> list[Array]:
        """The mode if what e tells of a were Gaussian."""
        p = self.p
        away = [e[k] - (self.mean[k] + math.log1p((k + 1 - p) / self.phi)) for k in range(p)]
        return [_sum(self.to_start[l, k] * away[k] for k in range(p)) for l in range(p)]


@dataclass(frozen=True)
class _Integrand:
    """Logarithm of the integrand over x, the coefficients integrated: see `ggpm.families.residual_variances`."""

    rows: _Rows
    y: Regressions
    spread: Entries
    """Blocks Y_k^-1/phi."""

    def look(self, x: list[Array], secant: bool) -> tuple[Array, list[Array], Array, Array]:
        """Value at x, Newton's step, twice its gain, and half the log-determinant of the curvature.

        With ``secant`` the curvature is one that is never negative, of chords to the peaks of the chi-squares instead
        of tangents: steps from afar then neither fall short nor go too far.
        """
        rows, e, p = self.rows, self.y.e, self.rows.p
        phi, R, S, columns = rows.phi, rows.R, rows.S, [k for _, k in _order(p)]
        q = len(columns)
        of = [[i for i in range(q) if columns[i] == k] for k in range(p - 1)]
        a = [rows.mean[k] + _sum(R[k, l] * x[l] for l in range(k + 1)) for k in range(p)]
        t = [e[k] - a[k] for k in range(p)]
        rise = [np.expm1(v) for v in t]
        grown = [np.exp(a[k]) for k in range(p - 1)]
        moved = {ij: s * grown[columns[ij[0]]] for ij, s in self.spread.items()}  # derivatives of C in a
        C = {ij: v + moved[ij] if ij in moved else v for ij, v in rows.V.items()}
        L, inverse_root = _cholesky(C, q)
        r = [rows.mean[p + i] - self.y.c[i] + _sum(S[i, l] * x[l] for l in range(p)) for i in range(q)]
        z = [_sum(inverse_root[i, k] * r[k] for k in range(i + 1)) for i in range(q)]
        Cr = [_sum(inverse_root[k, i] * z[k] for k in range(i, q)) for i in range(q)]  # C^-1 r
        pull = [_sum(_at(moved, i, j) * Cr[j] for j in of[columns[i]]) for i in range(q)]
        value = _sum(0.5 * (p - 1 - k) * a[k] - (0.5 * phi) * (rise[k] - t[k]) for k in range(p))
        value = (
            value - 0.5 * (_sum(v * v for v in z) + _sum(v * v for v in x)) - _sum(np.log(L[i, i]) for i in range(q))
        )

        inverse = {
            (i, j): _sum(inverse_root[k, i] * inverse_root[k, j] for k in range(i, q))
            for i in range(q)
            for j in range(i + 1)
        }
        turned = {
            (k, i, j): _sum(_at(inverse, i, l) * _at(moved, l, j) for l in of[k])
            for k in range(p - 1)
            for i in range(q)
            for j in of[k]
        }  # C^-1 dC/da_k
        slope = [(0.5 * phi) * rise[k] + 0.5 * (p - 1 - k) for k in range(p)]
        bend = [(0.5 * phi) * (v / w if secant else v + 1.0) for v, w in zip(rise, _away_from_zero(t, secant))]
        for k in range(p - 1):
            excess = 0.5 * (_sum(pull[i] * Cr[i] for i in of[k]) - _sum(turned[k, i, i] for i in of[k]))
            slope[k] = slope[k] + excess
            bend[k] = bend[k] if secant else bend[k] - excess
        gradient = [
            _sum(R[k, l] * slope[k] for k in range(l, p)) - _sum(S[i, l] * Cr[i] for i in range(q)) - x[l]
            for l in range(p)
        ]
        tilt = [
            [S[i, l] - R[columns[i], l] * pull[i] if columns[i] >= l else S[i, l] for i in range(q)] for l in range(p)
        ]
        half = [[_sum(inverse_root[i, j] * tilt[l][j] for j in range(i + 1)) for i in range(q)] for l in range(p)]
        H: Entries = {}
        for l in range(p):
            for n in range(l + 1):
                H[l, n] = _sum(half[l][i] * half[n][i] for i in range(q))
                H[l, n] = H[l, n] + _sum((R[k, l] * R[k, n]) * bend[k] for k in range(l, p)) + float(l == n)
        if not secant:
            both = {
                (k, l): 0.5 * _sum(turned[k, i, j] * turned[l, j, i] for j in of[k] for i in of[l])
                for k in range(p - 1)
                for l in range(k + 1)
            }
            for l in range(p):
                for n in range(l + 1):
                    H[l, n] = H[l, n] - _sum(
                        (R[k, l] * R[j, n]) * _at(both, k, j) for k in range(l, p - 1) for j in range(n, p - 1)
                    )
        root, inverse_root = _cholesky(H, p)
        w = [_sum(inverse_root[i, k] * gradient[k] for k in range(i + 1)) for i in range(p)]
        move = [_sum(inverse_root[k, i] * w[k] for k in range(i, p)) for i in range(p)]
        return value, move, _sum(v * v for v in w), _sum(np.log(root[i, i]) for i in range(p))


def _away_from_zero(t: list[Array], asked: bool) -> list[Array]:
    """t for chords expm1(t)/t, which are right to rounding from 1e-9 on."""
    return [np.where(np.abs(v) < 1e-9, 1e-9, v) for v in t] if asked else t


def _cholesky(A: Entries, n: int) -> tuple[Entries, Entries]:
    """Lower root of matrices and its inverse; pivots that are not positive, as far from a mode, count as one."""
    L: Entries = {}
    inverse: Entries = {}
    for i in range(n):
        for j in range(i):
            L[i, j] = (A[i, j] - _sum(L[i, k] * L[j, k] for k in range(j))) * inverse[j, j]
        pivot = A[i, i] - _sum(L[i, k] * L[i, k] for k in range(i))
        L[i, i] = np.sqrt(np.where(pivot > 0.0, pivot, 1.0))
        inverse[i, i] = 1.0 / L[i, i]
        for j in range(i):
            inverse[i, j] = -inverse[i, i] * _sum(L[i, k] * inverse[k, j] for k in range(j, i))
    return L, inverse
