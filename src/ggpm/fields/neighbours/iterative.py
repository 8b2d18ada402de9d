"""The posterior precision without a factor: conjugate gradients, probes for the determinant, patches for covariances.

``P = blockdiag(Q_j) + U`` with the preconditioner M of `ggpm.fields.neighbours.elimination`. Probes are
``z = M^(1/2) e`` with signs e; conjugate gradients give ``P^-1 z`` and, by their coefficients, Lanczos' matrix T of
``M^-1/2 P M^-1/2`` (Saad 2003, sec. 6.7), so that (Ubaru, Chen and Saad 2017; Wenger et al. 2022)

    log|P| = log|M| + E[e^T e (log T)_11],    P^-1 = E[(P^-1 z) (M^-1 z)^T].

M is so near P that both vary little. Traces of the gradient are differences to the prior's, which are known: the same
signs make a draw g of the prior, ``P^-1 = Q^-1 + E[(P^-1 z)(M^-1 z)^T - g g^T]``, and where the data say little the
difference vanishes. All probes are the same every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh_tridiagonal, lapack

from ggpm.fields.dense.matrices import kernel_of
from ggpm.fields.neighbours.conditionals import Conditionals
from ggpm.fields.neighbours.elimination import Elimination
from ggpm.fields.neighbours.layout import Layout
from ggpm.kernels.linalg import NotPositiveDefinite

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Relative size of what conjugate gradients leave, in the norm of M^-1: of a solve, and of probes, whose own error is
# larger by far. Some 20 and 12 steps, in the plane.
RTOL, PROBE_RTOL, MOST_STEPS = 1e-9, 1e-5, 1000
COUPLED = 3  # latents up to which M couples them: its triangle has D^2 times the entries of one latent's


@dataclass(frozen=True)
class Probes:
    """Vectors of the same signs, (N, D, S)."""

    solved: Array
    """``P^-1 z``."""
    near: Array
    """``M^-1 z``."""
    prior: Array
    """Draws g of the prior."""
    z: Array
    P_near: Array
    """``P M^-1 z``."""
    log_dets: Array
    """Estimates of log|P| - log|M|, (S,)."""


class IterativeFactor:
    """``blockdiag(Q_j) + U`` of all points, with the interface of a factor.

    Parameters
    ----------
    layout : Layout
    priors : of one kernel that all latents share, or one for each
    U : precisions of the sites, (N, D, D)
    """

    def __init__(self, layout: Layout, priors: Sequence[Conditionals], U: Array) -> None:
        self.layout, self.priors, self.U, self.D = layout, priors, U, U.shape[1]
        D = self.D
        if D <= COUPLED:
            self.parts = [(slice(0, D), Elimination(layout, priors, U))]
        else:
            of = [[priors[kernel_of(j, len(priors))]] for j in range(D)]
            self.parts = [(slice(j, j + 1), Elimination(layout, of[j], U[:, j : j + 1, j : j + 1])) for j in range(D)]

    # ---- products and solves -------------------------------------------------------------------------------------
    def dot(self, x: Array) -> Array:
        """``P x`` for x (N, D, r)."""
        N, D, r = x.shape
        out = np.matmul(self.U, x)
        if len(self.priors) == 1:
            return out + self.priors[0].dot(x.reshape(N, D * r)).reshape(x.shape)
        for j, prior in enumerate(self.priors):
            out[:, j] += prior.dot(x[:, j])
        return out

    def _near_solve(self, r: Array) -> Array:
        return np.concatenate([M.solve(r[:, part]) for part, M in self.parts], axis=1)

    def solve(self, r: Array) -> Array:
        """Inverse times r (N, D)."""
        return self._conjugate_gradients(r[:, :, None], RTOL)[0][:, :, 0]

    def _conjugate_gradients(self, r: Array, rtol: float) -> tuple[Array, list[Array], list[Array]]:
        """Solutions for all columns of r (N, D, s), and the coefficients alpha and beta of every step, (s,)."""
        x, p = np.zeros_like(r), (y := self._near_solve(r))
        rho = first = np.einsum("njs,njs->s", r, y)
        alphas, betas, left = list[Array](), list[Array](), rho > 0
        while left.any():
            if len(alphas) == MOST_STEPS:
                raise NotPositiveDefinite(f"conjugate gradients did not end within {MOST_STEPS} steps")
            Pp = self.dot(p)
            curvature = np.einsum("njs,njs->s", p, Pp)
            if not np.all(curvature[left] > 0):
                raise NotPositiveDefinite("the precision is not positive definite")
            alpha = np.where(left, rho / np.where(left, curvature, 1.0), 0.0)
            x += alpha * p
            r = r - alpha * Pp
            y = self._near_solve(r)
            rho, last = np.einsum("njs,njs->s", r, y), rho
            alphas.append(alpha)
            left = left & (rho > rtol**2 * first)
            beta = np.where(left, rho / np.where(last > 0, last, 1.0), 0.0)
            betas.append(beta)
            p = y + beta * p
        return x, alphas, betas

    # ---- probes ----------------------------------------------------------------------------------------------------
    @cached_property
    def probes(self) -> Probes:
        """Probes of this precision."""
        N, D = self.U.shape[:2]
        S = self.layout.settings.probes
        e = np.random.default_rng(0).choice([-1.0, 1.0], size=(N, D, S))
        z = np.concatenate([M.root_dot(e[:, part]) for part, M in self.parts], axis=1)
        near = np.concatenate([M.root_solve(e[:, part]) for part, M in self.parts], axis=1)
        of = [self.priors[kernel_of(j, len(self.priors))] for j in range(D)]
        prior = np.stack([of[j].root_dot(e[:, j]) for j in range(D)], axis=1)
        solved, alphas, betas = self._conjugate_gradients(z, PROBE_RTOL)
        log_dets = np.array([N * D * _log_of_first([a[s] for a in alphas], [b[s] for b in betas]) for s in range(S)])
        return Probes(solved, near, prior, z, self.dot(near), log_dets)

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant."""
        return sum(M.log_det for _, M in self.parts) + float(np.mean(self.probes.log_dets))

    @property
    def log_det_error(self) -> float:
        """Standard error of `log_det`."""
        values = self.probes.log_dets
        return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf

    def pairs(self, j: int) -> tuple[Array, Array]:
        """Columns x and y (N, 2S) with ``sum x y^T = P^-1 - Q_j^-1`` for latent j, on average."""
        p = self.probes
        S = p.z.shape[2]
        left = np.hstack([p.solved[:, j], -p.prior[:, j]]) / S
        return left, np.hstack([p.near[:, j], p.prior[:, j]])

    # ---- covariances -----------------------------------------------------------------------------------------------
    def _patch(self, points: Indices) -> tuple[Array, Array, Array]:
        """Factor of P_SS, and the probes' ``-G P^-1 z`` and ``-G M^-1 z`` of the points outside, (|S| D, probes)."""
        D, p = self.D, self.probes
        P = np.zeros((len(points) * D, len(points) * D), order="F")
        blocks = P.reshape(D, len(points), D, len(points), order="F")
        place = self._places(points)
        for k, prior in enumerate(self.priors):
            rows = prior.Q[points]
            columns = place[rows.indices]
            inside = columns >= 0
            row = np.repeat(np.arange(len(points)), np.diff(rows.indptr))[inside]
            for j in range(D) if len(self.priors) == 1 else (k,):
                blocks[j, row, j, columns[inside]] = rows.data[inside]
        each = np.arange(len(points))
        blocks[:, each, :, each] += self.U[points]
        L, info = lapack.dpotrf(P, lower=1, overwrite_a=1)
        if info != 0:
            raise NotPositiveDefinite("the precision is not positive definite within a patch")
        given = np.concatenate([p.z[points], p.P_near[points]], axis=2).reshape(len(P), -1)
        found = lapack.dpotrs(L, given, lower=1)[0].reshape(len(points), D, -1)
        S = p.z.shape[2]
        outside = np.concatenate([p.solved[points], p.near[points]], axis=2) - found
        return L, outside[:, :, :S].reshape(-1, S), outside[:, :, S:].reshape(-1, S)

    def _places(self, points: Indices) -> Indices:
        """For every point its place among some; -1: none."""
        place = np.full(self.layout.n_points, -1)
        place[points] = np.arange(len(points))
        return place

    def blocks(self) -> tuple[Array, Array]:
        """Covariances of the points' latents (N, D, D), and standard errors of their variances (N, D)."""
        N, D = self.U.shape[:2]
        out, errors = np.empty((N, D, D)), np.empty((N, D))
        patches = self.layout.patches
        for points, size in zip(patches.members, patches.cores):
            L, first, second = self._patch(points)
            tail = size * D
            # the core comes last, and the trailing block of an inverse is that of the factor's
            own = lapack.dpotri(np.asfortranarray(L[-tail:, -tail:]), lower=1)[0]
            each, core = np.arange(size), points[-size:]
            own = np.tril(own) + np.tril(own, -1).T
            x, y = (values[-tail:].reshape(size, D, -1) for values in (first, second))
            products = np.einsum("njs,nks->njks", x, y)
            out[core] = own.reshape(size, D, size, D)[each, :, each] + products.mean(axis=3)
            errors[core] = np.einsum("njjs->njs", products).std(axis=2) / np.sqrt(max(x.shape[2] - 1, 1))
        return (out + out.swapaxes(1, 2)) / 2, errors

    def covariance(self, points: Indices, weights: Array) -> Array:
        """``B^T (inverse) B`` (m, D, D), where B holds the weights (m, k, D) of latents at points (m, k)."""
        D, m, p = self.D, len(points), self.probes
        out, patches = np.empty((m, D, D)), self.layout.patches
        where = patches.of[points[:, 0]]
        for number in np.unique(where):
            rows = np.flatnonzero(where == number)
            members = patches.members[number]
            L, first, second = self._patch(members)
            at, w = self._places(members)[points[rows]], weights[rows]
            r, c = np.nonzero(at >= 0)
            B = np.zeros((len(members), D, len(rows), D))
            for j in range(D):
                B[at[r, c], j, r, j] += w[r, c, j]
            half = blas.dtrsm(1.0, L, B.reshape(len(members) * D, -1), lower=1).reshape(-1, len(rows), D)
            out[rows] = np.einsum("arj,ark->rjk", half, half, optimize=True)
            # of the points outside: by way of the patch, and by their own weights
            sums = []
            for through, whole in ((first, p.solved), (second, p.near)):
                through = through.reshape(len(members), D, -1)
                value = np.zeros((len(rows), D, through.shape[2]))
                np.add.at(value, r, w[r, c][:, :, None] * through[at[r, c]])
                r_out, c_out = np.nonzero(at < 0)
                np.add.at(value, r_out, w[r_out, c_out][:, :, None] * whole[points[rows][r_out, c_out]])
                sums.append(value)
            estimate = np.einsum("rjs,rks->rjk", *sums) / p.z.shape[2]
            out[rows] += (estimate + estimate.swapaxes(1, 2)) / 2
        return out

    def draw(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Vectors (N, D, n_samples) whose covariance is the inverse: for right-hand sides of covariance P."""
        N, D = self.U.shape[:2]
        values, vectors = np.linalg.eigh(self.U)
        if np.any(values < 0):
            raise NotPositiveDefinite(
                "joint draws with solver='iterative' need sites of positive precision. Use Neighbours(solver='direct')."
            )
        root = vectors * np.sqrt(values)[:, None, :]
        r = np.matmul(root, rng.standard_normal((N, D, n_samples)))
        for j in range(D):
            prior = self.priors[kernel_of(j, len(self.priors))]
            r[:, j] += prior.A.T @ (rng.standard_normal((N, n_samples)) / np.sqrt(prior.d)[:, None])
        return self._conjugate_gradients(r, RTOL)[0]


def _log_of_first(alphas: Sequence[float], betas: Sequence[float]) -> float:
    """``(log T)_11`` of Lanczos' matrix T, from the coefficients of conjugate gradients.

    >>> float(np.round(_log_of_first([0.5], [0.0]), 6)) == float(np.round(np.log(2.0), 6))
    True
    """
    a = np.array([alpha for alpha in alphas if alpha > 0])
    b = np.array(betas)[: len(a) - 1]
    diagonal = 1.0 / a
    diagonal[1:] += b / a[:-1]
    values, vectors = eigh_tridiagonal(diagonal, np.sqrt(b) / a[:-1])
    return float(np.sum(vectors[0] ** 2 * np.log(values)))
