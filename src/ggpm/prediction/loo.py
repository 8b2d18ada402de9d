"""Leave-one-out densities from fitted sites, without refitting.

A row's cavity (`ggpm.learning.cavities`) leaves the sites of the other rows as they are. What is reported follows their
change further (`Response`): the rows S that know most of row i get new sites. Their prior is the cavity of the whole
set, in which every other row keeps its site,

    C = (V_SS^-1 - U_S)^-1,        c = m_S - C z_S,

and inference without row i in that small model gives the mean and variance of row i. With all rows in S it is a refit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Blocks, Diagonal
from ggpm.families.weighted import unweighted
from ggpm.fields.base import Approximation
from ggpm.fields.dense import JointMatrix, KernelMatrices
from ggpm.fields.dense.field import DenseProcess
from ggpm.learning.cavities import cavities, log_densities
from ggpm.learning.engine import find
from ggpm.prediction.predictive import Predictive
from ggpm.sites import Problem, Rule

__all__ = ["LeaveOneOut"]

Array = NDArray[np.float64]

# Rows that answer to the absence of another, if not told: differences to refits are then below 0.006 nats per row
# (docs/inference.md, which has the other numbers here too).
NEIGHBOURS = 8
COUPLED_MAX_ORDER = 400  # nD up to which they do if D > 1: their inference costs tens of milliseconds per row there
# Factorised sites leave out how a row's latents answer to each other, so that the absence of a row moves the sites of
# others at first order: twice as many answer until that moves the density by less than SETTLED nats, the size of
# what plain cavities are off by, and up to an nD whose square is the limit of memory.
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
        """Sum of `pointwise`, comparable with a log evidence."""
        return float(self.pointwise.sum())

    @property
    def mean(self) -> float:
        """Mean of `pointwise`: an estimate of the log predictive density of new data."""
        return float(self.pointwise.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of `total` over the choice of rows: sqrt(n) times the standard deviation of `pointwise`."""
        n = len(self.pointwise)
        return float(np.sqrt(n) * self.pointwise.std(ddof=1)) if n > 1 else float("nan")

    def __repr__(self) -> str:
        n = len(self.pointwise)
        return f"LeaveOneOut(total={self.total:.4g} ± {self.standard_error:.2g}, n={n})"


def leave_one_out(approximation: Approximation, neighbours: int | None = None) -> LeaveOneOut:
    """The reported densities; sites that depend on y alone have no answer to give.

    >>> from ggpm import GGPRegressor
    >>> model = GGPRegressor("poisson", optimizer=None).fit(np.arange(5.0)[:, None], np.arange(5))
    >>> leave_one_out(model.fit_.approximate(), neighbours=0).pointwise.shape
    (5,)
    """
    a, p = approximation, approximation.process.problem
    family, y = unweighted(p.family, p.y)
    if family is p.family:
        values = log_densities(a)
    else:  # the site that is left out counts w times, the density once: they do not cancel in the integral
        mean, cov = cavities(a)
        values = Predictive(family, mean + p.offset, cov).log_prob(family.decode(y))
    responded = np.zeros(p.shape[0], dtype=bool)
    counts = _default_neighbours(a) if neighbours is None else (neighbours,)
    if any(counts) and len(values) > 1 and a.rule.depends_on != "y":
        respond, moving = Response(a), np.arange(len(values))
        for count in counts:
            mean, cov, found = respond(moving, count)
            rows = moving[found]
            if rows.size == 0:
                break
            predictive = Predictive(family, mean[found] + p.offset[rows], cov[found])
            new = predictive.log_prob(family.decode(y[rows]))
            moving = rows[np.abs(new - values[rows]) > SETTLED]
            values[rows], responded[rows] = new, True
            if moving.size == 0 or count >= len(values) - 1:
                break
    return LeaveOneOut(values, responded)


def _default_neighbours(a: Approximation) -> tuple[int, ...]:
    """Numbers of rows that answer; each after the first is for rows whose density the last one still moved."""
    n, D = a.process.shape
    if D > 1 and a.rule.depends_on == "covariance" and a.rule.factorised:
        return FACTORISED_NEIGHBOURS if n * D <= FACTORISED_MAX_ORDER else ()
    return (NEIGHBOURS,) if D == 1 or n * D <= COUPLED_MAX_ORDER else ()


class Response:
    """Cavities after the nearest other rows, by posterior covariance, got new sites in the absence of a row."""

    def __init__(self, approximation: Approximation) -> None:
        self.approximation, self.rule = approximation, approximation.rule
        self.V = approximation.q.solution.sensitivity().covariance()

    def __call__(self, rows: NDArray[np.int_], neighbours: int) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Means and covariances at the rows, and a mask of where there is an answer.

        There is none where the cavity of the set is not proper (negative curvature among the rows that stay) or the
        small model has no converged posterior.
        """
        D, V = self.approximation.process.shape[1], self.V
        mean, cov, answered = np.zeros((len(rows), D)), np.zeros((len(rows), D, D)), np.zeros(len(rows), dtype=bool)
        for k, i in enumerate(rows):
            near = np.argsort(-np.sum(V[i] ** 2, axis=(0, 2)), kind="stable")
            chosen = np.append(i, near[near != i][:neighbours])
            found = _without_first(self.approximation, self.rule, chosen, V[chosen][:, :, chosen])
            if found is not None:
                (mean[k], cov[k]), answered[k] = found, True
        return mean, cov, answered


def _without_first(a: Approximation, rule: Rule, rows: NDArray, V: Array) -> tuple[Array, Array] | None:
    """Mean (D,) and covariance (D, D) of the first of some rows after inference from the others, or None."""
    q, p = a.q, a.process.problem
    m, z, U = q.mean[rows], q.z[rows], q.U.dense()[rows]
    k, D = m.shape
    left = np.eye(k * D) - np.einsum("iajc,jcd->iajd", V, U).reshape(k * D, k * D)
    if np.linalg.eigvals(left).real.min() <= 0:
        return None
    C = np.linalg.solve(left, V.reshape(k * D, k * D))
    C = (C + C.T) / 2
    centre = m - (C @ z.ravel()).reshape(k, D)
    others, U = rows[1:], U[1:]
    problem = Problem(p.family, p.y[others], p.offset[others] + centre[1:])
    K, cross = np.asfortranarray(C[D:, D:]), np.asfortranarray(C[D:, :D])
    # the search starts from the sites as they are: z = (I + U K)^-1 lambda
    lam = z[1:] + np.einsum("njk,nk->nj", U, (m - centre)[1:])
    UK = np.matmul(U, K.reshape(k - 1, D, -1)).reshape(K.shape)
    z_start = np.linalg.solve(np.eye(len(K)) + UK, lam.ravel()).reshape(k - 1, D)
    small = DenseProcess(problem, KernelMatrices([K]) if D == 1 else JointMatrix(K))
    now = replace(a.q, U=Diagonal(np.einsum("njj->nj", U)) if a.rule.factorised else Blocks(U), z=z_start,
                  mean=small.K.dot(z_start))  # fmt: skip
    try:
        found = find(rule, small, small.remember(replace(a, process=small, q=now)))
    except np.linalg.LinAlgError:
        return None
    cov = C[:D, :D] - found.q.solution.reduction(KernelMatrices([cross]))[0]
    if not found.converged or np.linalg.eigvalsh(cov)[0] <= 0:
        return None
    return centre[0] + cross.T @ found.q.z.ravel(), cov
