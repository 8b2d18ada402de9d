"""Leave-one-out densities from fitted sites, without refitting; and groups left out, with a posterior of the rest.

A row's cavity (`ggpm.learning.cavities`) leaves the sites of the other rows as they are. What is reported follows their
change further (`Response`): the rows S that know most of row i get new sites. Their prior is the cavity of the whole
set, in which every other row keeps its site,

    C = (V_SS^-1 - U_S)^-1,        c = m_S - C z_S,

and inference without row i in that small model gives the mean and variance of row i. With all rows in S it is a refit.

Hyperparameters are those of all rows throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import as_groups, check_whole
from ggpm.data.text import see
from ggpm.families.base import Family
from ggpm.families.curvature import Blocks, Diagonal
from ggpm.families.weighted import unweighted
from ggpm.fields.base import Approximation
from ggpm.fields.dense import JointMatrix, KernelMatrices
from ggpm.fields.dense.field import DenseProcess
from ggpm.fields.inducing.field import InducingField, InducingProcess
from ggpm.learning.cavities import improper, left_of, told_cavities
from ggpm.learning.engine import find
from ggpm.learning.objective import Evidence
from ggpm.learning.sharpening import Law
from ggpm.prediction.averages import log_average
from ggpm.prediction.mixture import averaged
from ggpm.prediction.predictive import Predictive
from ggpm.prediction.sharpened import corrected
from ggpm.sites import Problem, Rule
from ggpm.sites.densities import log_expected_prob

__all__ = ["Difference", "LeaveOneOut"]

Array = NDArray[np.float64]

# Rows that answer to the absence of another, if not told: twice as many where none could, or where the last ones moved
# the density by more than SETTLED nats, the size of what plain cavities are off by (docs/inference.md).
NEIGHBOURS, SETTLED = (8, 16, 32, 64), 0.01
SAME = 1e-9  # share of the largest entry of a row up to which y of two models are the same
# nD up to which they do if D > 1: their inference costs tens of milliseconds per row there. Factorised sites leave out
# how a row's latents answer to each other, so that its absence moves the sites of others at first order: they do up to
# an nD whose square is the limit of memory.
COUPLED_MAX_ORDER, FACTORISED_MAX_ORDER = 400, 4000
# Share of a row's precision that is not its own site's, below which too few digits of it are left: it has 1e-16/share².
LEAST_LEFT = 1e-7


@dataclass(frozen=True)
class Pointwise:
    """Numbers of nats, one for every row, and their sum with its standard error over the choice of rows."""

    pointwise: Array
    """(n,)."""

    groups: NDArray[np.int_] | None = field(default=None, repr=False, kw_only=True)
    """Codes of groups whose rows hang together, (n,): groups are then what is chosen, not rows."""

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
        """Standard error of `total`: sqrt(n) times the standard deviation of n rows, or of the sums of n groups."""
        parts = self.pointwise if self.groups is None else np.bincount(self.groups, self.pointwise)
        n = len(parts)
        return float(np.sqrt(n) * parts.std(ddof=1)) if n > 1 else float("nan")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(total={self.total:.4g} ± {self.standard_error:.2g}, n={len(self.pointwise)})"


class Difference(Pointwise):
    """What one model gains over another, row by row: with rows in common its error is smaller than either's.

    >>> Difference(np.array([0.5, 0.0, 1.0]))
    Difference(total=1.5 ± 0.87, n=3)
    """


@dataclass(frozen=True, repr=False)
class LeaveOneOut(Pointwise):
    """Leave-one-out log predictive densities: `pointwise` is log p(y_i | all other rows).

    ``a - b`` is the `Difference` of two models of the same rows.

    Examples
    --------
    >>> a, b = LeaveOneOut(np.array([-1.0, -2.0, -3.0])), LeaveOneOut(np.array([-1.5, -2.0, -4.0]))
    >>> a.total
    -6.0
    >>> a - b
    Difference(total=1.5 ± 0.87, n=3)
    """

    responded: NDArray[np.bool_] | None = None
    """Rows whose absence the sites of the nearest other rows answered to, (n,); the rest are plain cavities."""
    within: Array | None = field(default=None, repr=False, kw_only=True)
    """log p(y_i | all rows), (n,): with row i itself among what is known."""
    observed: NDArray | None = field(default=None, repr=False, kw_only=True)
    """The y that the densities are of, as the user has them."""
    family: Family | None = field(default=None, repr=False, kw_only=True)
    """The family, which knows the unit of the densities."""
    latent: tuple[Array, Array] | None = field(default=None, repr=False, kw_only=True)
    """Mean (n, D) and covariance (n, D, D) of the rows' latents without them, offset included."""

    def _repr_html_(self) -> str:
        """For notebooks: total, mean and effective parameters."""
        rows = {
            "log density, total": f"{self.total:.4g} ± {self.standard_error:.2g}",
            "per row": f"{self.mean:.4g}",
            "rows": f"{len(self.pointwise)}",
            "effective parameters": f"{self.effective_parameters:.3g}",
        }
        lines = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows.items())
        more = see("comparison", "how")
        return (
            f"<p>Leave-one-out; <code>ggpm.compare</code> sets models side by side: {more}.</p><table>{lines}</table>"
        )

    @property
    def effective_parameters(self) -> float:
        """How much better rows are known with themselves than without, in nats: sum of ``within - pointwise``.

        Vehtari, Gelman and Gabry (2017) call it p_loo.
        """
        return float("nan") if self.within is None else float(np.sum(self.within - self.pointwise))

    def __sub__(self, other: Any) -> Difference:
        if not isinstance(other, LeaveOneOut):
            return NotImplemented
        reason = not_comparable(self, other)
        if reason:
            raise ValueError(f"these are not densities of the same outputs: {reason}")
        return Difference(self.pointwise - other.pointwise, groups=self.groups)


def not_comparable(a: LeaveOneOut, b: LeaveOneOut) -> str:
    """Why densities of two models cannot be compared, or nothing.

    >>> not_comparable(LeaveOneOut(np.zeros(3)), LeaveOneOut(np.zeros(2)))
    'there are 3 and 2 rows.'
    """
    if len(a.pointwise) != len(b.pointwise):
        return f"there are {len(a.pointwise)} and {len(b.pointwise)} rows."
    if (a.groups is None) != (b.groups is None) or not np.array_equal(a.groups, b.groups):  # type: ignore[arg-type]
        return "rows were left out singly and in groups, or in different groups."
    if a.family is not None and b.family is not None:
        first, second = (type(x.family).__name__ for x in (a, b))
        discrete = [x.family.finite or x.family.support.integer for x in (a, b)]  # type: ignore[union-attr]
        if discrete[0] != discrete[1]:
            return (
                f"{first} and {second} give a probability in the one case and a density in the other, which has the "
                "unit of 1/y."
            )
        periods = [getattr(x.family.support, "period", None) for x in (a, b)]  # type: ignore[union-attr]
        if periods[0] != periods[1]:
            return f"y are angles in different units, with full turns of {periods[0]} and {periods[1]}."
    if a.observed is None or b.observed is None:
        return ""
    if a.observed.shape != b.observed.shape:
        return f"y have shapes {a.observed.shape} and {b.observed.shape}."
    if all(x.observed.dtype.kind in "biuf" for x in (a, b)):  # type: ignore[union-attr]
        # families undo what they did to y, zeros of compositions included, up to rounding of the largest entry of a row
        largest = np.abs(a.observed).reshape(len(a.observed), -1).max(axis=1, initial=0.0)
        slack = SAME * largest.reshape(-1, *[1] * (a.observed.ndim - 1))
        same = np.isclose(a.observed, b.observed, rtol=SAME, atol=slack, equal_nan=True)
    else:
        same = a.observed == b.observed
    if np.all(same):
        return ""
    i = int(np.argwhere(~same)[0][0])
    return (
        f"y of row {i} is {a.observed[i]} in the one and {b.observed[i]} in the other, of {np.sum(~same)} that differ."
    )


def leave_one_out(approximation: Approximation, neighbours: int | None = None) -> LeaveOneOut:
    """The reported densities; sites that depend on y alone have no answer to give.

    >>> from ggpm import GGPRegressor
    >>> model = GGPRegressor("poisson", optimizer=None).fit(np.arange(5.0)[:, None], np.arange(5))
    >>> leave_one_out(model.fit_.approximate(), neighbours=0).pointwise.shape
    (5,)
    """
    a = approximation
    if isinstance(a.process, InducingProcess):
        mean, cov, whole_mean, whole_cov, y, offset = a.process.cavities(a)
        family, y = unweighted(a.process.model.family, y)
        values = log_expected_prob(family, mean + offset, cov, y)
        within = log_expected_prob(family, whole_mean + offset, whole_cov, y)
        kept = np.zeros(len(y), dtype=bool)
        return LeaveOneOut(
            values, kept, within=within, observed=family.decode(y), family=family, latent=(mean + offset, cov)
        )  # fmt: skip
    p = a.process.problem
    family, y = unweighted(p.family, p.y)
    mean, cov, told = told_cavities(a)
    latent = mean + p.offset, cov
    values = log_expected_prob(family, *latent, y)
    responded = np.zeros(p.shape[0], dtype=bool)
    within = log_expected_prob(family, a.q.mean + p.offset, a.q.marginals.dense(), y)
    counts = (NEIGHBOURS if _answers(a) else ()) if neighbours is None else (neighbours,)
    if any(counts) and len(values) > 1 and a.rule.depends_on != "y":
        respond, moving = Response(a), np.arange(len(values))
        for count in counts:
            mean, cov, found = respond(moving, count)
            rows, unanswered = moving[found], moving[~found]
            if rows.size == 0:
                break
            new = log_expected_prob(family, mean[found] + p.offset[rows], cov[found], y[rows])
            moving = np.append(rows[np.abs(new - values[rows]) > SETTLED], unanswered)
            values[rows], responded[rows] = new, True
            latent[0][rows], latent[1][rows] = mean[found] + p.offset[rows], cov[found]
            if moving.size == 0 or count >= len(values) - 1:
                break
    for i in np.flatnonzero(~told & ~responded).tolist():
        mean, cov = _without(a, i)
        values[i], responded[i] = log_expected_prob(family, mean + p.offset[[i]], cov, y[[i]])[0], True
        latent[0][i], latent[1][i] = mean[0] + p.offset[i], cov[0]
    return LeaveOneOut(
        values, responded, within=within, observed=family.decode(y), family=family, latent=latent
    )  # fmt: skip


def mixed_loo(weights: Array, found: Sequence[LeaveOneOut]) -> LeaveOneOut:
    """Densities under an average of models, of weights (K,) or (K, n): the log of the mean of theirs, row by row.

    >>> one, two = LeaveOneOut(np.log([0.5])), LeaveOneOut(np.log([0.1]))
    >>> np.exp(mixed_loo([0.5, 0.5], [one, two]).pointwise).round(3)
    array([0.3])
    """
    if len(found) == 1:
        return found[0]

    def mixed(parts: Sequence[Array]) -> Array:
        return log_average(list(zip(weights, parts)))

    within = [loo.within for loo in found]
    known = None if any(part is None for part in within) else mixed(within)  # type: ignore[arg-type]
    return replace(found[0], pointwise=mixed([loo.pointwise for loo in found]), within=known, latent=None)


def recalibrated_loo(
    found: LeaveOneOut, weights: Array, fits: Sequence[Any], parts: Sequence[LeaveOneOut],
    laws: tuple[Sequence[Law], NDArray[np.intp]],
) -> LeaveOneOut:  # fmt: skip
    """Densities with what recalibration makes of them: the laws are those of the same rows, nearly."""
    predictive = [Predictive(fit.family, *part.latent) for fit, part in zip(fits, parts) if part.latent is not None]
    more = corrected(averaged(predictive, weights), *laws).log_ratio(found.observed)
    within = None if found.within is None else found.within + more
    return replace(found, pointwise=found.pointwise + more, within=within)


def leave_groups_out(evidence: Evidence, groups: Any, folds: int = 10) -> LeaveOneOut:
    """Densities of rows given the rows of other folds, after inference from these, at the hyperparameters of all.

    Groups stay together, and folds are of about equal size: as many as there are groups at most.

    >>> from ggpm import GGPRegressor
    >>> model = GGPRegressor("poisson", optimizer=None).fit(np.arange(6.0)[:, None], np.arange(6))
    >>> leave_groups_out(model.fit_.evidence, list("aabbcc")).groups
    array([0, 0, 1, 1, 2, 2])
    """
    n = evidence.field.n_rows
    codes, fold = group_folds(groups, n, folds)
    rule = evidence.infer().rule  # resolved for all rows: sites of the same shape throughout
    whole, D = evidence.field.sample(np.arange(n)), evidence.family.latent_dim
    X, y, offset = _rows(whole)
    family, plain = unweighted(evidence.family, y)
    mean, cov = np.empty((n, D)), np.empty((n, D, D))
    for k in range(fold.max() + 1):
        inside = fold == k
        part = evidence.sample(np.flatnonzero(~inside))
        part.rule = rule.of_rows(~inside)
        a = part.infer()
        mean[inside], cov[inside] = a.process.posterior(a).latent(X[inside])
    latent = mean + offset, cov
    values = log_expected_prob(family, *latent, plain)
    return LeaveOneOut(values, observed=family.decode(plain), family=family, groups=codes, latent=latent)


def group_folds(groups: Any, n: int, folds: int) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Numbers of the groups of n rows, and of the folds that they are left out in."""
    check_whole(folds, "folds", 2)
    labels, codes = np.unique(as_groups(groups, n, "the fit"), return_inverse=True)
    if len(labels) < 2:
        raise ValueError(f"groups must be two or more, so that others are left; got one, {labels.tolist()[0]!r}.")
    return codes, _folds(np.bincount(codes), folds)[codes]


def _folds(sizes: NDArray[np.int_], folds: int) -> NDArray[np.int_]:
    """The fold of every group: the largest first, each to the fold that has fewest rows."""
    fold, filled = np.empty(len(sizes), dtype=int), np.zeros(min(folds, len(sizes)))
    for g in np.argsort(-sizes, kind="stable"):
        fold[g] = filled.argmin()
        filled[fold[g]] += sizes[g]
    return fold


def _rows(whole: Any) -> tuple[Array, Array, Array]:
    rows: Any = whole.rows if isinstance(whole, InducingField) else whole
    return rows.X, rows.y, rows.offset


def _answers(a: Approximation) -> bool:
    """Whether other rows answer to the absence of one, if not told."""
    n, D = a.process.shape
    factorised = a.rule.depends_on == "covariance" and a.rule.factorised
    return D == 1 or n * D <= (FACTORISED_MAX_ORDER if factorised else COUPLED_MAX_ORDER)


def _without(a: Approximation, i: int) -> tuple[Array, Array]:
    """Mean (1, D) and covariance (1, D, D) of a row after inference from all others."""
    process = a.process
    if not isinstance(process, DenseProcess):
        raise improper()
    p, others = process.problem, np.delete(np.arange(process.shape[0]), i)
    K = KernelMatrices([np.asfortranarray(k[np.ix_(others, others)]) for k in process.K])
    small = DenseProcess(Problem(p.family, p.y[others], p.offset[others]), K)
    q = find(a.rule.of_rows(others), small).q
    cross = KernelMatrices([np.asfortranarray(k[others][:, [i]]) for k in process.K])
    prior = np.diag([process.K.of(j)[i, i] for j in range(process.shape[1])])
    mean = np.array([[cross.of(j)[:, 0] @ q.z[:, j] for j in range(process.shape[1])]])
    return mean, prior - q.solution.reduction(cross)


class Response:
    """Cavities after the nearest other rows, by posterior covariance, got new sites in the absence of a row.

    Rows of which next to nothing but their own site is left keep it.
    """

    def __init__(self, approximation: Approximation) -> None:
        self.approximation, self.rule = approximation, approximation.rule
        self.V = approximation.q.solution.sensitivity().covariance()
        self.knows = np.abs(np.linalg.eigvals(left_of(approximation.q))).min(axis=1) > LEAST_LEFT

    def __call__(self, rows: NDArray[np.int_], neighbours: int) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Means and covariances at the rows, and a mask of where there is an answer.

        There is none where too few digits of the cavity are left, where that of the set is not proper (negative
        curvature among the rows that stay), or where the small model has no converged posterior.
        """
        D, V = self.approximation.process.shape[1], self.V
        mean, cov, answered = np.zeros((len(rows), D)), np.zeros((len(rows), D, D)), np.zeros(len(rows), dtype=bool)
        for k, i in ((k, i) for k, i in enumerate(rows) if self.knows[i]):
            near = np.argsort(-np.sum(V[i] ** 2, axis=(0, 2)), kind="stable")
            chosen = np.append(i, near[(near != i) & self.knows[near]][:neighbours])
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
