"""Leave-one-out densities from fitted sites, without refitting, and their exact gradient.

Dividing row i's own site out of its posterior marginal leaves the *cavity*, the Gaussian that the other rows give:

    V_c = (V_ii^-1 - U_i)^-1,        m_c = m_i - V_c z_i,
    log p(y_i | y_-i) = log of the integral of p(y_i | f) N(f | m_c, V_c).

For Taylor inference (and the Gaussian family) that is exactly the result of a refit, because the sites of the
other rows do not depend on row i; for Laplace and variational inference it is first order in their change. What is
reported follows the change further (`Response`): the rows S that know most of row i get new sites. Their prior is the
cavity of the whole set, in which every other row keeps its site,

    C = (V_SS^-1 - U_S)^-1,        c = m_S - C z_S,

and inference without row i in that small model gives the mean and variance of row i. With all rows in S it is a refit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ggpm.families.base import Family
from ggpm.families.curvature import Blocks, Diagonal
from ggpm.families.special.quadrature import matched_nodes
from ggpm.fields.dense import Joint
from ggpm.fields.dense.posterior import batches
from ggpm.prediction.predictive import Predictive
from ggpm.sites.base import Approximation, InferenceError, Problem
from ggpm.sites.expectations import cholesky_pullback, place
from ggpm.sites.sensitivity import Cotangent, posterior_map, symmetric
from ggpm.sites.taylor import Taylor
from ggpm.sites.variational import Variational

__all__ = ["LeaveOneOut"]

Array = NDArray[np.float64]

# Nodes of the integrals for D > 2 (ACCURACIES) when they are reported, and when they are learned
# from; with one or two latents they are always "fine".
REPORTED, LEARNED = "fine", "standard"
NEIGHBOURS = 8  # rows that answer to the absence of another, if not told: differences to refits are then below 0.006
COUPLED_MAX_ORDER = 400  # nD up to which they do if D > 1: their inference costs tens of milliseconds per row there
# Factorised sites leave out how a row's latents answer to each other, so that the absence of a row moves the sites of
# others at first order: twice as many answer until that moves the density by less than SETTLED nats, and up to an nD
# whose square is the limit of memory.
FACTORISED_NEIGHBOURS, SETTLED, FACTORISED_MAX_ORDER = (8, 16, 32, 64), 0.01, 4000


@dataclass(frozen=True)
class LeaveOneOut:
    """Leave-one-out log predictive densities.

    Examples
    --------
    >>> LeaveOneOut(np.array([-1.0, -2.0, -3.0])).total
    -6.0
    """

    pointwise: Array
    """log p(y_i | all other rows), (n,)."""
    responded: NDArray[np.bool_] | None = None
    """Rows whose absence the sites of the nearest other rows answered to, (n,); the rest are plain cavities."""

    @property
    def total(self) -> float:
        """Their sum, comparable with a log evidence."""
        return float(self.pointwise.sum())

    @property
    def mean(self) -> float:
        """Per row: an estimate of the log predictive density of new data."""
        return float(self.pointwise.mean())

    @property
    def standard_error(self) -> float:
        """Of `total`, over the choice of rows: sqrt(n) times the standard deviation of `pointwise`."""
        n = len(self.pointwise)
        return float(np.sqrt(n) * self.pointwise.std(ddof=1)) if n > 1 else float("nan")

    def __repr__(self) -> str:
        n = len(self.pointwise)
        return f"LeaveOneOut(total={self.total:.4g} ± {self.standard_error:.2g}, n={n})"


def leave_one_out(approximation: Approximation, inference: Any, neighbours: int | None = None) -> LeaveOneOut:
    """The reported densities; Taylor's sites depend on y alone and have no answer to give."""
    a = approximation
    values, responded = log_densities(a), np.zeros(len(a.mean), dtype=bool)
    counts = _default_neighbours(a, inference) if neighbours is None else (neighbours,)
    if any(counts) and len(a.mean) > 1 and not isinstance(inference, Taylor):
        respond, moving = Response(a, inference), np.arange(len(a.mean))
        for count in counts:
            mean, cov, found = respond(moving, count)
            rows, family = moving[found], a.problem.family
            if rows.size == 0:
                break
            predictive = Predictive(family, mean[found] + a.problem.offset[rows], cov[found])
            new = predictive.log_prob(family.decode(a.problem.y[rows]))
            moving = rows[np.abs(new - values[rows]) > SETTLED]
            values[rows], responded[rows] = new, True
            if moving.size == 0 or count >= len(values) - 1:
                break
    return LeaveOneOut(values, responded)


def _default_neighbours(a: Approximation, inference: Any) -> tuple[int, ...]:
    """How many rows answer; of several numbers the next is for rows whose density the last one still moved."""
    D, order = a.mean.shape[1], a.mean.size
    if D > 1 and isinstance(inference, Variational) and isinstance(a.U, Diagonal):
        return FACTORISED_NEIGHBOURS if order <= FACTORISED_MAX_ORDER else ()
    return (NEIGHBOURS,) if D == 1 or order <= COUPLED_MAX_ORDER else ()


class Response:
    """Cavities as in `cavities`, after the nearest other rows got new sites in the absence of a row.

    Nearest is by posterior covariance.
    """

    def __init__(self, approximation: Approximation, inference: Any) -> None:
        a = approximation
        if isinstance(inference, Variational):  # the small model decides nothing by its own size
            inference = replace(inference, sites="factorised" if isinstance(a.U, Diagonal) else "blocks")
        self.approximation, self.inference = a, inference
        self.V = posterior_map(a.K, a.U, a.solution, a.z, a.mean).covariance()

    def __call__(self, rows: NDArray[np.int_], neighbours: int) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Means and covariances at the rows, and a mask of where there is an answer.

        There is none where the cavity of the set is not proper (negative curvature among the rows that stay) or the
        small model has no converged posterior.
        """
        D, V = self.approximation.mean.shape[1], self.V
        mean, cov, answered = np.zeros((len(rows), D)), np.zeros((len(rows), D, D)), np.zeros(len(rows), dtype=bool)
        for k, i in enumerate(rows):
            near = np.argsort(-np.sum(V[i] ** 2, axis=(0, 2)), kind="stable")
            chosen = np.append(i, near[near != i][:neighbours])
            found = _without_first(self.approximation, self.inference, chosen, V[chosen][:, :, chosen])
            if found is not None:
                (mean[k], cov[k]), answered[k] = found, True
        return mean, cov, answered


def _without_first(a: Approximation, inference: Any, rows: NDArray, V: Array) -> tuple[Array, Array] | None:
    """Mean (D,) and covariance (D, D) of the first of some rows after inference from the others, or None."""
    m, z, U = a.mean[rows], a.z[rows], a.U.dense()[rows]
    k, D = m.shape
    left = np.eye(k * D) - np.einsum("iajc,jcd->iajd", V, U).reshape(k * D, k * D)
    if np.linalg.eigvals(left).real.min() <= 0:
        return None
    C = np.linalg.solve(left, V.reshape(k * D, k * D))
    C = (C + C.T) / 2
    centre = m - (C @ z.ravel()).reshape(k, D)
    p, others, U = a.problem, rows[1:], U[1:]
    problem = Problem(p.family, p.y[others], p.offset[others] + centre[1:])
    K, cross = np.asfortranarray(C[D:, D:]), np.asfortranarray(C[D:, :D])
    # the search starts from the sites as they are: z = (I + U K)^-1 lambda
    lam = z[1:] + np.einsum("njk,nk->nj", U, (m - centre)[1:])
    UK = np.matmul(U, K.reshape(k - 1, D, -1)).reshape(K.shape)
    z_start = np.linalg.solve(np.eye(len(K)) + UK, lam.ravel())
    U_start = Diagonal(np.einsum("njj->nj", U)) if isinstance(a.U, Diagonal) else Blocks(U)
    small = [K] if D == 1 else Joint([K])
    now = replace(
        a, problem=problem, K=small, U=U_start, z=z_start.reshape(k - 1, D), mean=(K @ z_start).reshape(k - 1, D)
    )
    try:
        found = inference.infer(problem, small, now.start)
    except np.linalg.LinAlgError:
        return None
    cov = C[:D, :D] - found.solution.reduction([cross])[0]
    if not found.converged or np.linalg.eigvalsh(cov)[0] <= 0:
        return None
    return centre[0] + cross.T @ found.z.ravel(), cov


def cavities(approximation: Approximation) -> tuple[Array, Array]:
    """Mean (n, D) and covariance (n, D, D) of every row's latent given the other rows' sites."""
    V_c, _, _ = _cavity_cov(approximation)
    return approximation.mean - np.einsum("njk,nk->nj", V_c, approximation.z), V_c


def log_densities(approximation: Approximation, accuracy: str = REPORTED) -> Array:
    """log p(y_i | y_-i) of every row, (n,)."""
    return _evaluate(approximation, accuracy, gradient=False)[0]


def log_densities_and_cotangent(approximation: Approximation) -> tuple[Array, Cotangent]:
    """The same, with the derivatives of their sum in the posterior of every row."""
    values, cotangent = _evaluate(approximation, LEARNED, gradient=True)
    assert cotangent is not None
    return values, cotangent


def _evaluate(approximation: Approximation, accuracy: str, gradient: bool) -> tuple[Array, Cotangent | None]:
    # Both forms are the same integral. Probabilities are bounded, so nodes of the cavity are safe; densities
    # may be far narrower than the cavity, so there the nodes are those of the posterior, to which the integrand,
    # the likelihood over its own site, is nearly constant.
    form = _at_cavity if approximation.problem.family.finite else _at_posterior
    return form(approximation, accuracy, gradient)


def _cavity_cov(approximation: Approximation) -> tuple[Array, Array, Array]:
    """V_c, A = (I - V U)^-1 = V_c V^-1, and log|I - V U|, rows first."""
    V, U = approximation.solution.marginals().dense(), approximation.U.dense()
    left = np.eye(V.shape[-1]) - V @ U
    sign, log_det = np.linalg.slogdet(left)
    A: Array = np.full_like(left, np.nan)
    if np.all(sign > 0):
        A = np.asarray(np.linalg.inv(left), dtype=np.float64)
    V_c = A @ V
    V_c = (V_c + V_c.swapaxes(1, 2)) / 2
    if np.any(sign <= 0) or np.any(np.linalg.eigvalsh(V_c)[:, 0] <= 0):
        raise InferenceError(
            "leaving a row out leaves no proper posterior: the other rows' curvatures are too negative. Use "
            "inference='variational', or a kernel with a smaller scale."
        )
    return V_c, A, log_det


def _log_prob_only(family: Family) -> Callable[[Array, Array], tuple[Array, Array]]:
    return lambda eta, y: (family.log_prob(eta, y), eta)


def _cholesky(V: Array) -> Array:
    return np.asarray(np.linalg.cholesky(V), dtype=np.float64)


def _at_cavity(approximation: Approximation, accuracy: str, gradient: bool) -> tuple[Array, Cotangent | None]:
    z = approximation.z
    V_c, A, _ = _cavity_cov(approximation)
    mean = approximation.mean - np.einsum("njk,nk->nj", V_c, z)
    family = approximation.problem.family
    closed = family.log_expected_prob_factorised if family.has("log_expected_prob_factorised") else None
    if closed is not None and isinstance(approximation.U, Diagonal):
        p = approximation.problem
        values, m_bar, v_bar = closed(mean + p.offset, np.einsum("njj->nj", V_c), p.y, gradient)
        V_c_bar, phi = None if v_bar is None else Diagonal(v_bar).dense(), np.zeros((1, 0))
    else:
        values, m_bar, V_c_bar, _, phi = _integrals(approximation, mean, _cholesky(V_c), None, accuracy, gradient)
    if not gradient:
        return values, None
    assert V_c_bar is not None
    V_c_bar = V_c_bar - symmetric(m_bar, z)
    z_bar = -np.einsum("njk,nk->nj", V_c, m_bar)
    return values, Cotangent(m_bar, A.swapaxes(1, 2) @ V_c_bar @ A, z_bar, V_c @ V_c_bar @ V_c, phi.sum(axis=0))


def _at_posterior(approximation: Approximation, accuracy: str, gradient: bool) -> tuple[Array, Cotangent | None]:
    # N(m + t | m_c, V_c) / N(m + t | m, V) = exp(t^T U t/2 - z^T t + c), c = log|I - V U|/2 - z^T V_c z/2
    z, U = approximation.z, approximation.U.dense()
    V_c, A, log_det = _cavity_cov(approximation)
    V_c_z = np.einsum("njk,nk->nj", V_c, z)
    R = _cholesky(approximation.solution.marginals().dense())
    values, m_bar, V_bar, moments, phi = _integrals(approximation, approximation.mean, R, (z, U), accuracy, gradient)
    values = values + 0.5 * log_det - 0.5 * np.sum(z * V_c_z, axis=1)
    if not gradient:
        return values, None
    t, tt = moments
    V_c_bar = -0.5 * symmetric(z, z)
    V_bar = V_bar - 0.5 * (U + U @ V_c @ U) + A.swapaxes(1, 2) @ V_c_bar @ A
    U_bar = 0.5 * tt - 0.5 * V_c + V_c @ V_c_bar @ V_c
    return values, Cotangent(m_bar, V_bar, -t - V_c_z, U_bar, phi.sum(axis=0))


def _integrals(
    approximation: Approximation, mean: Array, R: Array, site: tuple[Array, Array] | None, accuracy: str, gradient: bool
):
    """log sum_s w_s p(y | m + t_s) [exp(t^T U t/2 - z^T t)], t_s = R x_s, and its derivatives, row by row."""
    p = approximation.problem
    n, D = p.shape
    x, w = matched_nodes(D, "fine" if D <= 2 else accuracy)
    values, m_bar, R_bar = np.empty(n), np.zeros((n, D)), np.zeros((n, D, D))
    t_mean, t_square = np.zeros((n, D)), np.zeros((n, D, D))
    phi = np.zeros((n, p.family.log_hyper.size))
    for rows in batches(n, x.size * max(1, phi.shape[1])):
        eta = place(p, mean, R, x, rows)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            g, u = (p.family.log_prob_and_u if gradient else _log_prob_only(p.family))(eta, p.y[rows])
        g = np.where(np.isfinite(g), g, -np.inf)
        if site is not None:
            t = eta - mean[rows] - p.offset[rows]
            z, U = site[0][rows], site[1][rows]
            Ut = np.einsum("njk,snk->snj", U, t, optimize=True)
            g = g + np.sum(t * (0.5 * Ut - z), axis=-1)
        g = g + np.log(w)[:, None]
        values[rows] = logsumexp(g, axis=0)
        if not gradient:
            continue
        share = np.exp(g - values[rows])  # (S, rows)
        used = share > 0
        u = share[..., None] * (u if used.all() else np.where(used[..., None], u, 0.0))
        m_bar[rows] = u.sum(axis=0)
        if site is not None:
            u = u + share[..., None] * (Ut - z)
            t_mean[rows] = np.einsum("sn,snj->nj", share, t)
            t_square[rows] = np.einsum("snj,snk->njk", share[..., None] * t, t, optimize=True)
        R_bar[rows] = np.einsum("snj,sk->njk", u, x, optimize=True)
        if phi.shape[1]:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                l_phi = p.family.log_prob_phi(eta, p.y[rows])
            phi[rows] = np.einsum("sn,snp->np", share, np.where(used[..., None], l_phi, 0.0))
    V_bar = cholesky_pullback(R, R_bar) if gradient else R_bar
    return values, m_bar, V_bar, (t_mean, t_square), phi
