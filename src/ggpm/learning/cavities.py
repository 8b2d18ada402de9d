"""Cavities: what the other rows say of each row, and leave-one-out densities with their exact gradient.

Dividing row i's own site out of its posterior marginal leaves the *cavity*, the Gaussian that the other rows give:

    V_c = (V_ii^-1 - U_i)^-1,        m_c = m_i - V_c z_i,
    log p(y_i | y_-i) = log of the integral of p(y_i | f) N(f | m_c, V_c).

For Taylor inference (and the Gaussian family, GPML eq. (5.12)) that is exactly the result of a refit, because the sites
of the other rows do not depend on row i; for Laplace and variational inference it is first order in their change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ggpm.data.text import Hint, Message
from ggpm.families.curvature import Diagonal, Outer
from ggpm.families.special.adaptive import PRODUCT_MOST, Levels, Rows, climb, first_levels, groups, sparse_levels
from ggpm.families.weighted import unweighted
from ggpm.fields.base import Approximation
from ggpm.fields.dense.diagonal import DiagonalSolution
from ggpm.fields.dense.field import Cotangent, DenseGaussian, DenseProcess
from ggpm.kernels.linalg import cholesky_pullback
from ggpm.sites.base import InferenceError
from ggpm.sites.densities import TOLERANCE, log_expected_prob
from ggpm.sites.expectations import place

Array = NDArray[np.float64]

# Densities that are reported, and those that are learned from, sums over nodes whose derivatives are taken too. Two
# successive rules of a row must agree to so many nats, within so many nodes; above three latents the points of the
# first quasi-random rule serve, since weights of sparse grids may be negative.
REPORTED, LEARNED = "reported", "learned"
AGREEMENT, MOST_NODES = 1e-8, 2**12
ROUNDING = 1e-6  # of a cavity's variance, relative to the prior's, which it may reach
NEARLY_ALL = 0.99  # share of a row's precision that is its own site's, above which 1 minus it loses digits


def cavities(approximation: Approximation) -> tuple[Array, Array]:
    """Mean (n, D) and covariance (n, D, D) of every row's latent given the other rows' sites."""
    V_c, _, _ = _cavity_cov(approximation)
    return approximation.q.mean - np.einsum("njk,nk->nj", V_c, approximation.q.z), V_c


def told_cavities(approximation: Approximation, share: Array | None = None) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Those of the rows, and a mask of the rows whose can be trusted; the posterior's own marginals elsewhere.

    Sites of other rows that are not negative never leave a cavity wider than the prior. One that is wider, or no
    Gaussian at all, comes from negative curvature that would not stay as it is without the row. ``share`` (n,) is how
    much of its own site each row is left without: all of it unless told, one of w copies with 1/w.
    """
    q, process = approximation.q, approximation.process
    V_c, _, _, proper = _divided(approximation, share)
    z = q.z if share is None else share[:, None] * q.z
    variance = np.einsum("njj->nj", V_c)
    if isinstance(process, DenseProcess):
        prior = np.stack([np.diag(process.K.of(j)) for j in range(variance.shape[1])], axis=1)
        proper &= ~np.any(variance > (1.0 + ROUNDING) * prior, axis=1)
    V_c = np.where(proper[:, None, None], V_c, q.marginals.dense())
    return q.mean - np.where(proper[:, None], np.einsum("njk,nk->nj", V_c, z), 0.0), V_c, proper


def log_densities(approximation: Approximation, which: str = REPORTED) -> Array:
    """log p(y_i | y_-i) of every row, (n,); rows of some weight count once, as in predictions, when it is reported."""
    if which == LEARNED:
        return _evaluate(approximation, gradient=False)[0]
    p = approximation.process.problem
    mean, cov = cavities(approximation)
    family, y = unweighted(p.family, p.y)
    return log_expected_prob(family, mean + p.offset, cov, y)


def log_densities_and_cotangent(approximation: Approximation) -> tuple[Array, Cotangent]:
    """Those that are learned from, with the derivatives of their sum in the posterior of every row."""
    values, cotangent = _evaluate(approximation, gradient=True)
    assert cotangent is not None
    return values, cotangent


def _evaluate(approximation: Approximation, gradient: bool) -> tuple[Array, Cotangent | None]:
    # Both forms are the same integral. Probabilities are bounded, so nodes of the cavity are safe; densities
    # may be far narrower than the cavity, so there the nodes are those of the posterior, to which the integrand,
    # the likelihood over its own site, is nearly constant.
    form = _at_cavity if approximation.process.problem.family.finite else _at_posterior
    return form(approximation, gradient)


def left_of(q: Any) -> Array:
    """``I - V_ii U_i``, what is left of a row's precision without its own site, as a share, (n, D, D)."""
    V = q.marginals.dense()
    left: Array = np.eye(V.shape[-1]) - V @ q.U.dense()
    if isinstance(q, DenseGaussian) and isinstance(q.U, Diagonal) and isinstance(q.solution, DiagonalSolution):
        share = q.U.gamma * q.marginals.diag
        known = share > NEARLY_ALL
        if known.any():
            E = np.stack([np.diag(f.E()) for f in q.solution.factors], axis=1)  # U (I - V U), no difference of theirs
            np.einsum("njj->nj", left)[known] = E[known] / q.U.gamma[known]
    return left


def _cavity_cov(approximation: Approximation) -> tuple[Array, Array, Array]:
    """V_c, A = (I - V U)^-1 = V_c V^-1, and log|I - V U|, rows first."""
    *found, proper = _divided(approximation)
    if not proper.all():
        raise improper()
    V_c, A, log_det = found
    return V_c, A, log_det


def _divided(approximation: Approximation, share: Array | None = None) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """The same, and a mask of the rows where that is a Gaussian; without a share of each site if told."""
    V, left = approximation.q.marginals.dense(), left_of(approximation.q)
    if share is not None:
        left = left * share[:, None, None] + (1.0 - share)[:, None, None] * np.eye(left.shape[-1])
    sign, log_det = np.linalg.slogdet(left)
    A = np.asarray(np.linalg.inv(np.where((sign > 0)[:, None, None], left, np.eye(left.shape[-1]))), dtype=np.float64)
    V_c = A @ V
    V_c = (V_c + V_c.swapaxes(1, 2)) / 2
    return V_c, A, log_det, (sign > 0) & (np.linalg.eigvalsh(V_c)[:, 0] > 0)


def improper() -> InferenceError:
    """What is said where nothing proper is left without a row."""
    return InferenceError(
        Message(
            "leaving a row out leaves no proper posterior: the other rows' curvatures are too negative. Use ",
            Hint("inference='variational'", "inference", "variational"),
            ", or a kernel with a smaller scale.",
        )
    )


def _cholesky(V: Array) -> Array:
    return np.asarray(np.linalg.cholesky(V), dtype=np.float64)


def _at_cavity(approximation: Approximation, gradient: bool) -> tuple[Array, Cotangent | None]:
    q, p = approximation.q, approximation.process.problem
    z = q.z
    V_c, A, _ = _cavity_cov(approximation)
    mean = q.mean - np.einsum("njk,nk->nj", V_c, z)
    if p.family.has("log_expected_prob_factorised") and isinstance(q.U, Diagonal):
        values, m_bar, v_bar = p.family.log_expected_prob_factorised(
            mean + p.offset, np.einsum("njj->nj", V_c), p.y, gradient
        )
        V_c_bar, phi = None if v_bar is None else Diagonal(v_bar).dense(), np.zeros((1, 0))
    else:
        values, m_bar, V_c_bar, _, phi = _integrals(approximation, mean, _cholesky(V_c), None, gradient)
    if not gradient:
        return values, None
    assert V_c_bar is not None
    V_c_bar = V_c_bar - Outer(m_bar, z).dense()
    z_bar = -np.einsum("njk,nk->nj", V_c, m_bar)
    return values, Cotangent(m_bar, A.swapaxes(1, 2) @ V_c_bar @ A, z_bar, V_c @ V_c_bar @ V_c, phi.sum(axis=0))


def _at_posterior(approximation: Approximation, gradient: bool) -> tuple[Array, Cotangent | None]:
    # N(m + t | m_c, V_c) / N(m + t | m, V) = exp(t^T U t/2 - z^T t + c), c = log|I - V U|/2 - z^T V_c z/2
    q = approximation.q
    z, U = q.z, q.U.dense()
    V_c, A, log_det = _cavity_cov(approximation)
    V_c_z = np.einsum("njk,nk->nj", V_c, z)
    R = _cholesky(q.marginals.dense())
    values, m_bar, V_bar, moments, phi = _integrals(approximation, q.mean, R, (z, U), gradient)
    values = values + 0.5 * log_det - 0.5 * np.sum(z * V_c_z, axis=1)
    if not gradient:
        return values, None
    t, tt = moments
    V_c_bar = -0.5 * Outer(z, z).dense()
    V_bar = V_bar - 0.5 * (U + U @ V_c @ U) + A.swapaxes(1, 2) @ V_c_bar @ A
    U_bar = 0.5 * tt - 0.5 * V_c + V_c @ V_c_bar @ V_c
    return values, Cotangent(m_bar, V_bar, -t - V_c_z, U_bar, phi.sum(axis=0))


def _integrals(
    approximation: Approximation, mean: Array, R: Array, site: tuple[Array, Array] | None, gradient: bool,
    agreement: float = AGREEMENT,
):  # fmt: skip
    """log sum_s w_s p(y | m + t_s) [exp(t^T U t/2 - z^T t)], t_s = R x_s, and its derivatives, row by row."""
    p = approximation.process.problem
    n, D = p.shape

    def exponent(rows: Rows, eta: Array, log_p: Array) -> tuple[Array, Array, Array]:
        """What is summed, its gradient in eta beside u, and t, for nodes eta (S, k, D)."""
        t = eta - mean[rows] - p.offset[rows]
        g = np.where(np.isfinite(log_p), log_p, -np.inf)
        if site is None:
            return g, np.zeros_like(t), t
        z, U = site[0][rows], site[1][rows]
        Ut = np.einsum("njk,snk->snj", U, t, optimize=True)
        return g + np.sum(t * (0.5 * Ut - z), axis=-1), Ut - z, t

    def sums(levels: Levels, rows: Rows) -> Array:
        out = np.empty(len(rows))
        for part, x, w in groups(levels, D, rows):
            eta = place(p, mean, R, x, part)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                log_p = p.family.log_prob(eta, p.y[part])
            out[np.searchsorted(rows, part)] = logsumexp(exponent(part, eta, log_p)[0], axis=0, b=w[:, None])
        return out

    everything, few = np.arange(n), D <= PRODUCT_MOST
    levels = first_levels(R) if few else np.full((n, 1), len(sparse_levels(D)))
    values, _, levels = climb(sums, levels, D, lambda *_: agreement, np.full(n, few), MOST_NODES)
    m_bar, R_bar, t_mean, t_square = np.zeros((n, D)), np.zeros((n, D, D)), np.zeros((n, D)), np.zeros((n, D, D))
    phi = np.zeros((n, p.family.log_hyper.size))
    for rows, x, w in groups(levels, D, everything, width=2 + phi.shape[1]) if gradient else ():
        eta = place(p, mean, R, x, rows)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log_p, u = p.family.log_prob_and_u(eta, p.y[rows])
        g, more, t = exponent(rows, eta, log_p)
        share = w[:, None] * np.exp(g - values[rows])  # (S, rows)
        used = share > 0
        u = share[..., None] * (u if used.all() else np.where(used[..., None], u, 0.0))
        m_bar[rows] = u.sum(axis=0)
        u = u + share[..., None] * more
        t_mean[rows] = np.einsum("sn,snj->nj", share, t)
        t_square[rows] = np.einsum("snj,snk->njk", share[..., None] * t, t, optimize=True)
        R_bar[rows] = np.einsum("snj,sk->njk", u, x, optimize=True)
        if phi.shape[1]:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                l_phi = p.family.log_prob_phi(eta, p.y[rows])
            phi[rows] = np.einsum("sn,snp->np", share, np.where(used[..., None], l_phi, 0.0))
    V_bar = cholesky_pullback(R, R_bar) if gradient else R_bar
    return values, m_bar, V_bar, (t_mean, t_square), phi


def block_cavities(approximation: Approximation, block: NDArray[np.intp]) -> tuple[Array, Array]:
    """Mean (n, D) and covariance (n, D, D) of every row's latent given the sites of all other blocks of rows.

    As `cavities`, with the joint marginal of the rows of a block in the place of that of one: C = (V_bb^-1 - U_b)^-1.
    """
    q, problem = approximation.q, approximation.process.problem
    (n, D), V, U = problem.shape, q.solution.sensitivity().covariance(), q.U.dense()
    mean, cov = np.empty((n, D)), np.empty((n, D, D))
    for number in np.unique(block):
        b = np.flatnonzero(block == number)
        k = len(b)
        V_b = V[b][:, :, b]
        left = np.eye(k * D) - np.einsum("iajc,jcd->iajd", V_b, U[b]).reshape(k * D, k * D)
        C = np.linalg.solve(left, V_b.reshape(k * D, k * D))
        mean[b] = q.mean[b] - (C @ q.z[b].ravel()).reshape(k, D)
        cov[b] = np.einsum("iaib->iab", ((C + C.T) / 2).reshape(k, D, k, D))
    if np.any(np.linalg.eigvalsh(cov)[:, 0] <= 0):
        raise InferenceError("leaving a block of rows out leaves no proper posterior.")
    return mean, cov


def without_blocks(approximation: Approximation, block: NDArray[np.intp], tolerance: float = TOLERANCE) -> Array:
    """log p(y_i | y of all other blocks) of every row, (n,): rows of one block are left out together.

    Rows of some weight count once, as in predictions.

    Parameters
    ----------
    approximation : on a dense field
    block : numbers of the blocks of the rows, (n,)
    tolerance : error of a row at which it is settled, nats
    """
    problem = approximation.process.problem
    mean, cov = block_cavities(approximation, block)
    family, y = unweighted(problem.family, problem.y)
    if family.finite and family is problem.family:  # bounded: nodes of the cavity serve, and cost less
        return _integrals(approximation, mean, _cholesky(cov), None, False, tolerance)[0]
    return log_expected_prob(family, mean + problem.offset, cov, y, tolerance)
