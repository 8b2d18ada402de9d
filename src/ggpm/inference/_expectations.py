"""Expectations of a log-likelihood under the Gaussian of each row, and their own exact derivatives.

With eta_s = m + R x_s, R R^T = V, and nodes x_s with weights w_s, the expected log-likelihood of a row is
``sum_s w_s log p(y | m + R x_s)``. All derivatives here are derivatives of that sum, through the nodes: the
bound that is computed is the bound that is climbed, whatever the accuracy. With exact expectations they are
Bonnet's and Price's identities, d/dm = E[u] and d/dV = -E[U]/2; with finitely many nodes those identities hold
only approximately.

R is the Cholesky factor; for independent latent dimensions it is the diagonal of standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpm._quadrature import matched_nodes
from ggpm.curvature import Blocks, Curvature, Diagonal, Marginals
from ggpm.inference.base import Problem
from ggpm.posterior import batches

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """E_q[log p] per row and its derivatives, in the parametrisation of the sites."""

    value: Array
    """(n,)."""
    u: Array
    """Derivative in the mean, E[u], (n, D)."""
    U: Diagonal | Blocks
    """Minus twice the derivative in the covariance, E[U]."""


def root(V: Marginals, factorised: bool) -> Array:
    """Standard deviations (n, D), or lower Cholesky factors (n, D, D)."""
    return np.sqrt(V.diag) if factorised else np.linalg.cholesky(V.dense())


def expect(problem: Problem, mean: Array, R: Array, accuracy: str) -> Expected:
    """Expected log-likelihood of every row under N(mean, R R^T); not-a-number becomes -inf."""
    n, D = problem.shape
    closed = _closed_form(problem, mean, R)
    if closed is not None:
        return closed
    nodes, weights = matched_nodes(D, accuracy)
    value, u, moment = np.empty(n), np.empty((n, D)), np.empty(R.shape)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for rows in batches(n, nodes.size):
            eta = place(problem, mean, R, nodes, rows)
            value[rows] = weights @ problem.family.log_prob(eta, problem.y[rows])
            u_s = problem.family.u(eta, problem.y[rows])
            u[rows], moment[rows] = _moments(u_s, nodes, weights, R.ndim == 2)
    if R.ndim == 2:
        return Expected(_finite(value), u, Diagonal(-moment / R))
    return Expected(_finite(value), u, Blocks(-2.0 * cholesky_pullback(R, moment)))


def expect_phi(problem: Problem, mean: Array, R: Array, accuracy: str) -> Array:
    """E_q of the derivative of the log-likelihood in the family's hyperparameters, (n, p)."""
    n, p = len(mean), problem.family.log_hyper.size
    if p == 0:
        return np.zeros((n, 0))
    nodes, weights = matched_nodes(mean.shape[1], accuracy)
    out = np.empty((n, p))
    for rows in batches(n, nodes.size * p):
        eta = place(problem, mean, R, nodes, rows)
        out[rows] = np.tensordot(weights, problem.family.log_prob_phi(eta, problem.y[rows]), axes=1)
    return out


def place(problem: Problem, mean: Array, R: Array, nodes: Array, rows: slice) -> Array:
    """Nodes of eta, (S, rows, D), offset included."""
    centre = mean[rows] + problem.offset[rows]
    if R.ndim == 2:
        return centre + R[rows] * nodes[:, None, :]
    return centre + np.einsum("ijk,sk->sij", R[rows], nodes, optimize=True)


class SiteMap:
    """The map (m, V) -> (E[u], E[U]) of every row, to be differentiated many times at one point."""

    def __init__(self, problem: Problem, mean: Array, R: Array, accuracy: str):
        self.problem, self.mean, self.R = problem, mean, R
        self.nodes, self.weights = matched_nodes(mean.shape[1], accuracy)
        everything = slice(0, len(mean))
        self.eta = place(problem, mean, R, self.nodes, everything)
        u = problem.family.u(self.eta, problem.y)
        self.u, self.moment = _moments(u, self.nodes, self.weights, R.ndim == 2)
        self.U: Curvature = problem.family.U(self.eta, problem.y)

    def pullback(self, a: Array, B: Array) -> tuple[Array, Array]:
        """Derivative of <a, E[u]> + <B, E[U]> in the means (n, D) and covariances (B's shape)."""
        R, x, w = self.R, self.nodes, self.weights
        weight_u, R_bar = self._u_cotangent(a, B)
        eta_bar = -w[:, None, None] * self.U.dot(weight_u)
        if R.ndim == 2:
            R_bar = R_bar + np.einsum("snj,sj->nj", eta_bar, x)
            return eta_bar.sum(axis=0), R_bar / (2.0 * R)
        R_bar = R_bar + np.einsum("snj,sk->njk", eta_bar, x, optimize=True)
        return eta_bar.sum(axis=0), cholesky_pullback(R, R_bar)

    def pullback_phi(self, a: Array, B: Array) -> Array:
        """Derivative of <a, E[u]> + <B, E[U]> in the family's hyperparameters, (p,)."""
        weight_u, _ = self._u_cotangent(a, B)
        u_phi = self.problem.family.u_phi(self.eta, self.problem.y)
        return np.einsum("s,snj,snjp->p", self.weights, weight_u, u_phi, optimize=True)

    def _u_cotangent(self, a: Array, B: Array) -> tuple[Array, Array]:
        """Cotangent of u at the nodes (before weights), (S, n, D), and the explicit part of that of R."""
        R, x = self.R, self.nodes
        if R.ndim == 2:  # E[U]_j = -sum_s w u_j x_j / R_j
            return a - x[:, None, :] * (B / R), B * self.moment / R**2
        # E[U] = -C^T P C with C = R^-1, P = Phi(Q) + Phi(Q)^T, Q = R^T M, M = tril(sum_s w u x^T)
        C = np.linalg.inv(R)
        M = self.moment
        P = _phi(R.swapaxes(1, 2) @ M)
        P_bar = -C @ B @ C.swapaxes(1, 2)
        C_bar = -2.0 * P @ C @ B
        Q_bar = 2.0 * np.tril(P_bar, -1) + P_bar * np.eye(R.shape[-1])
        R_bar = -C.swapaxes(1, 2) @ C_bar @ C.swapaxes(1, 2) + M @ Q_bar.swapaxes(1, 2)
        M_bar = np.tril(R @ Q_bar)
        return a + np.einsum("njk,sk->snj", M_bar, x, optimize=True), R_bar


def cholesky_pullback(R: Array, R_bar: Array) -> Array:
    """Symmetric derivative in V from the derivative in its lower Cholesky factor R, (n, D, D)."""
    C = np.linalg.inv(R)
    P = _phi(R.swapaxes(-1, -2) @ np.tril(R_bar))
    return 0.5 * C.swapaxes(-1, -2) @ P @ C


def _phi(Q: Array) -> Array:
    """The symmetric matrix with the lower triangle of Q."""
    lower = np.tril(Q, -1)
    return lower + lower.swapaxes(-1, -2) + Q * np.eye(Q.shape[-1])


def _moments(u: Array, nodes: Array, weights: Array, factorised: bool) -> tuple[Array, Array]:
    """sum_s w u_s, and sum_s w u_s x_s: elementwise (n, D), or the lower triangle of the outer product."""
    S, n, D = u.shape
    if factorised:
        flat = u.reshape(S, n * D)
        mean = weights @ flat
        return mean.reshape(n, D), np.stack([(weights * nodes[:, j]) @ u[:, :, j] for j in range(D)], axis=1)
    return np.tensordot(weights, u, axes=1), np.tril(np.einsum("snj,sk->njk", u, weights[:, None] * nodes))


def _closed_form(problem: Problem, mean: Array, R: Array) -> Expected | None:
    """A family's own expectation, if it has one: for one latent, or independent latent dimensions."""
    closed = getattr(problem.family, "expected_log_prob", None)
    if closed is None:
        return None
    variance = R**2 if R.ndim == 2 else np.einsum("njk,njk->nj", R, R)
    with np.errstate(over="ignore", invalid="ignore"):
        found = closed(mean + problem.offset, variance, problem.y)
    if found is None:
        return None
    value, d_mean, d_var = found
    curvature = Diagonal(-2.0 * d_var)
    return Expected(_finite(value), d_mean, curvature if R.ndim == 2 else Blocks(curvature.dense()))


def _finite(value: Array) -> Array:
    return np.where(np.isfinite(value), value, -np.inf)
