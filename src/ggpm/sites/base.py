"""What all inference methods share: the evidence of a second-order expansion, and its gradient.

Around an expansion point f~ the log-likelihood is replaced by its second-order expansion, with gradient u and
curvature U. The posterior is then Gaussian with mean m = K z, z = (I + U K)^-1 (u + U f~), and

    log q(y) = l + u^T r - 1/2 r^T U r - 1/2 z^T m - 1/2 log|I + U K|,        r = m - f~.

Taylor inference expands at a point chosen from y, Laplace inference at the posterior mode (r = 0). Their
gradients differ only in how the point moves with the hyperparameters: with y fixed it moves through the
family's hyperparameters alone, the mode moves with everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from ggpm.families.base import Family
from ggpm.families.curvature import Curvature, Diagonal, PlusOuter
from ggpm.fields.dense import Joint, Solution, factorise
from ggpm.kernels.linalg import fortran, mirror, symmetric_dot

Array = NDArray[np.float64]


class InferenceError(np.linalg.LinAlgError):
    """Inference could not produce a posterior at these hyperparameters."""


@dataclass(frozen=True)
class Problem:
    """The data as inference sees them: a resolved family, encoded y, and the offset of the latent (n, D)."""

    family: Family
    y: Array
    offset: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return self.offset.shape[0], self.offset.shape[1]

    def log_prob(self, f: Array) -> float:
        """Log-likelihood of all rows at latent values f; -inf where it is not a number."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            total = float(np.sum(self.family.log_prob(f + self.offset, self.y)))
        return total if np.isfinite(total) else -np.inf


@dataclass(frozen=True)
class Approximation:
    """A Gaussian approximation of the posterior, its evidence and all that the gradient needs."""

    problem: Problem
    K: Sequence[Array]
    point: Array
    """f~, where the log-likelihood was expanded, (n, D)."""
    U: Curvature
    solution: Solution
    z: Array
    """K^-1 m, (n, D)."""
    mean: Array
    """Posterior mean m at the training rows, (n, D)."""
    log_evidence: float
    expected_rows: NDArray[np.bool_]
    """Rows whose observed curvature was indefinite, so that the expected one was used."""
    converged: bool = True
    n_iter: int = 0
    trace: tuple[float, ...] = field(default=(), repr=False)
    """The objective of the mode search after every step."""

    @property
    def start(self) -> Any:
        """What `infer` takes as the start of a search nearby."""
        return self.z, self.mean

    def gradient(self, moves_with_mode: bool, moves_with_family: bool = True) -> tuple[list[Array], Array]:
        """Cotangents of the kernel matrices, and the gradient in the family's hyperparameters.

        ``moves_with_mode`` says whether the expansion point is the mode (Laplace); if not, ``moves_with_family``
        says whether it is the family's own, which may move with its hyperparameters, or fixed by the user.
        """
        p, eta = self.problem, self.point + self.problem.offset
        r = self.mean - self.point
        M = PlusOuter(self.solution.marginals(), r) if np.any(r) else self.solution.marginals()
        uncoupled = isinstance(self.U, Diagonal) and r.shape[1] > 1  # the family's curvature may be more than that
        d_eta, d_phi = curvature_pullback(p, eta, Diagonal(M.diag) if uncoupled else M, self.expected_rows)
        s = -0.5 * d_eta
        if (uncoupled or self.expected_rows.any()) and np.any(r):
            # u moves by the observed curvature, the site by the expected one, or by its diagonal
            s += self.U.dot(r) - p.family.U(eta, p.y).dot(r)
        log_prob_phi, u_phi = p.family.phi_slopes(eta, p.y)
        grad_phi = log_prob_phi.sum(axis=0) - 0.5 * d_phi + np.einsum("nj,njp->p", r, u_phi)
        # dL/dK_j = (z z^T - [(K+W)^-1]_jj + q z^T + z q^T)/2 = ((z+q)(z+q)^T - q q^T - [(K+W)^-1]_jj)/2
        if moves_with_mode:
            q = self.solution.solve(s)
            grad_phi += np.einsum("nj,njp->p", kernel_dot(self.K, q), u_phi)
            terms = [(0.5, self.z + q), (-0.5, q)]
        else:
            if moves_with_family:
                grad_phi += p.family.expansion_pullback(p.y, s)
            terms = [(0.5, self.z)]
        cotangents = self.solution.precision()
        for j, G in enumerate(cotangents):
            columns = slice(j, j + 1) if len(cotangents) > 1 else slice(None)
            beta = -0.5
            for alpha, a in terms:
                G = blas.dsyrk(alpha, fortran(a[:, columns]), beta=beta, c=G, lower=1, overwrite_c=1)
                beta = 1.0
            cotangents[j] = mirror(G)
        return cotangents, grad_phi


def expand(problem: Problem, K: Sequence[Array], point: Array, coupled: bool = True) -> Approximation:
    """Expand the log-likelihood at ``point``; rows with indefinite curvature use the expected one."""
    eta = point + problem.offset
    u, U = problem.family.u_and_U(eta, problem.y)
    definite = U.semidefinite()
    if not definite.all():
        U = U.select(definite, problem.family.U(eta, problem.y, expected=True))
    if not coupled:
        U = U.diagonal()
    solution = factorise(K, U)
    target = u + U.dot(point)
    z = solution.solve(target)
    z += solution.solve(target - z - U.dot(kernel_dot(K, z)))  # one step of refinement
    return assemble(problem, K, point, problem.log_prob(point), u, U, solution, z, ~definite)


def assemble(
    problem: Problem,
    K: Sequence[Array],
    point: Array,
    log_prob: float,
    u: Array,
    U: Curvature,
    solution: Solution,
    z: Array,
    expected_rows: NDArray[np.bool_],
    **facts,
) -> Approximation:
    """The approximation that belongs to an expansion (log-likelihood, u and U at the point) and its solved sites."""
    mean = kernel_dot(K, z)
    r = mean - point
    value = log_prob + np.sum(r * (u - 0.5 * U.dot(r))) - 0.5 * np.sum(z * mean) - 0.5 * solution.log_det
    if not np.isfinite(value):
        raise InferenceError("the evidence is not finite at these hyperparameters")
    return Approximation(problem, K, point, U, solution, z, mean, float(value), expected_rows, **facts)


def kernel_dot(K: Sequence[Array], z: Array) -> Array:
    """``K z`` for z (n, D) and one shared, D separate, or one joint kernel matrix."""
    if isinstance(K, Joint):
        return symmetric_dot(K[0], z.ravel()).reshape(z.shape)
    if len(K) == 1:
        return symmetric_dot(K[0], z)
    return np.stack([symmetric_dot(k, z[:, j]) for j, k in enumerate(K)], axis=1)


def curvature_pullback(problem: Problem, eta: Array, M, expected_rows: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Pullback of the curvature that was used: observed, or expected in some rows."""
    if not expected_rows.any():
        return problem.family.U_pullback(eta, problem.y, M)
    keep = expected_rows[:, None]
    d_obs, p_obs = problem.family.U_pullback(eta, problem.y, _Rows(M, ~keep))
    d_exp, p_exp = problem.family.U_pullback(eta, problem.y, _Rows(M, keep), expected=True)
    return d_obs + d_exp, p_obs + p_exp


@dataclass(frozen=True)
class _Rows:
    """Marginals that are zero outside some rows."""

    base: object
    keep: NDArray[np.bool_]

    @property
    def diag(self) -> Array:
        return np.where(self.keep, self.base.diag, 0.0)  # type: ignore[attr-defined]

    def dot(self, w: Array) -> Array:
        return np.where(self.keep, self.base.dot(w), 0.0)  # type: ignore[attr-defined]

    def dense(self) -> Array:
        return np.where(self.keep[..., None], self.base.dense(), 0.0)  # type: ignore[attr-defined]
