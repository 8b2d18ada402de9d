"""`Fit`, the result of a fit in one frozen object, and the searches for hyperparameters that lead to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ggpm.data.columns import Columns
from ggpm.data.door import Target
from ggpm.data.rows import pick
from ggpm.data.text import Hint, Message
from ggpm.families.base import Family
from ggpm.families.special.adaptive import average, cholesky_root, expectation
from ggpm.families.wrapped import unwrapped
from ggpm.fields.base import Approximation, Field, Process
from ggpm.fields.dense.field import DenseProcess
from ggpm.fields.inducing.field import InducingField, InducingProcess
from ggpm.fields.inducing.points import Inducing
from ggpm.kernels import category_columns
from ggpm.learning.choice import gaussian
from ggpm.learning.journal import Journal
from ggpm.learning.objective import Evidence, Start, WarmObjective, search, subset_start
from ggpm.learning.recalibration import Recalibration
from ggpm.learning.search import STOPPED, Optimum, maximise
from ggpm.learning.sharpening import Law, Sharpening
from ggpm.learning.trials import SearchTable

__all__ = ["Fit", "Newcomers"]

Array = NDArray[np.float64]
Report = Callable[[int, int, float], None]

WARMUP_FROM = 1000  # rows of a sample below which learning on it first saves no time worth having


@dataclass(frozen=True)
class Fit:
    """Result of a fit: all that predictions, files, plots and the command line read."""

    evidence: Evidence
    """Family, kernels, site rule and rows, at the learned hyperparameters."""
    posterior: Any
    """Posterior that gives the latent at new rows: of the class that the field has for it."""
    log_evidence: float
    n_iter: int
    """Iterations of the search for hyperparameters."""
    converged: bool
    """Whether hyperparameters and sites both did."""
    columns: Columns
    """Columns of X, as the door saw them."""
    target: Target
    """Columns and labels of y, as the door saw them."""
    notes: tuple[str, ...] = ()
    """Warnings of what did not go as it should, in words for the user."""
    offset: str | None = None
    """Name of the offset that the rows were fitted with ("offset" where it came without one); None: there was none."""
    search: SearchTable | None = None
    """Kernels that were tried; None where one was given."""
    weight: float = 1.0
    """In the average of this and `others`; this one's kernel has the largest of its family, with all its
    hyperparameters together."""
    others: tuple[Fit, ...] = ()
    """Fits of the same rows with other kernels or hyperparameters, averaged with this one in predictions; of grades
    with another family too, classes, which comes last."""
    newcomers: tuple[Newcomers, ...] = ()
    """What speaks beside them where a label is new, by columns: the first one that it is new in decides."""
    recalibration: Law | None = None
    """What rows that were left out correct in predictions, by their transforms; None: not asked for, or nothing."""
    curvature: str = ""
    """Precision of the sites, "observed", "averaged" under q, "Fisher" or "Fisher in k of n rows"; empty: not known."""
    found: Approximation | None = field(default=None, repr=False, compare=False)
    """The approximation behind the posterior, while it is at hand; never stored."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "found": None}

    @property
    def family(self) -> Family:
        """The learned family, as predictions use it: for rows of weight one."""
        return unwrapped(self.evidence.family)

    @property
    def kernels(self) -> list:
        """The learned kernels: one that all latent dimensions share, or one for each."""
        return self.evidence.kernels

    @property
    def rule(self) -> Any:
        """The site rule."""
        return self.evidence.rule

    @property
    def theta(self) -> Array:
        """Log-hyperparameters, the kernels' first, then the family's."""
        return self.evidence.theta

    def approximate(self) -> Approximation:
        """The approximation behind the posterior, computed again from the rows if it is not at hand."""
        return self.evidence.infer() if self.found is None else self.found.process.renewed(self.found)

    @property
    def members(self) -> tuple[Fit, ...]:
        """Fits whose predictions are averaged, by their weights: this one first."""
        return (self, *self.others)

    def averaged(self, X: Array) -> list[tuple[Array, Fit]]:
        """Fits whose predictions are averaged at encoded rows, with their weights (m,).

        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> ((weight, _),) = GGPRegressor("poisson").fit(X, np.arange(8)).fit_.averaged(X[:2])
        >>> weight
        array([1., 1.])
        """
        return self.averaged_where(self.new_labels(X), len(X))

    def new_labels(self, X: Array) -> list[NDArray[np.bool_]]:
        """Masks of the encoded rows whose labels are new, for each column of `newcomers`."""
        return [newcomers.are(X) for newcomers in self.newcomers]

    def averaged_where(self, new: Sequence[NDArray[np.bool_]], m: int) -> list[tuple[Array, Fit]]:
        """The same for m rows whose labels are new where the masks of the columns of `newcomers` say so."""
        share = np.zeros(m)
        found: list[tuple[Array, Fit]] = []
        for newcomers, mask in zip(self.newcomers, new, strict=True):
            if (mask := mask & (share == 0.0)).any():
                share = np.where(mask, newcomers.weight, share)
                found += [(np.where(mask, newcomers.weight * fit.weight, 0.0), fit) for fit in newcomers.fit.members]
        return [((1.0 - share) * fit.weight, fit) for fit in self.members] + found

    def laws_where(
        self, new: Sequence[NDArray[np.bool_]], m: int
    ) -> tuple[list[Law], NDArray[np.intp]] | None:  # fmt: skip
        """Laws that correct predictions, and the number of that of each of m rows; None where no row has one.

        Rows have that of the column of `newcomers` whose mask says first that their label is new, others the fit's own.
        """
        laws = [self.recalibration, *(newcomers.recalibration for newcomers in self.newcomers)]
        which = np.zeros(m, dtype=np.intp)
        for k, mask in enumerate(new, start=1):
            which[mask & (which == 0)] = k
        if all(laws[k] is None for k in np.unique(which)):
            return None
        none: Law = Sharpening() if self.family.finite else Recalibration(())
        return [none if law is None else law for law in laws], which

    def without_rows(self) -> Fit:
        """The same for predictions alone: small where the posterior is."""
        others = tuple(other.without_rows() for other in self.others)
        newcomers = tuple(replace(other, fit=other.fit.without_rows()) for other in self.newcomers)
        return replace(
            self, evidence=self.evidence.with_field(RowsNotStored()), found=None, others=others, newcomers=newcomers
        )  # fmt: skip


@dataclass(frozen=True)
class Newcomers:
    """What speaks for rows whose label in one column no training row has: a fit that does not look at that column.

    Levels of labels explain the rows that have them. How far they help with other labels is another question, whose
    answer, from labels that are left out whole, is the weight.

    >>> from ggpm import GGPRegressor
    >>> fit = GGPRegressor("poisson").fit(np.arange(8.0)[:, None], np.arange(8)).fit_
    >>> Newcomers(0, 0.3, fit).are(np.array([[3.0], [9.0]]))
    array([False,  True])
    """

    column: int
    weight: float
    """Of this fit beside the one that knows the labels, for such rows; others have nothing to do with it."""
    fit: Fit
    recalibration: Law | None = None
    """The same of such rows, from labels that were left out whole."""

    def are(self, X: Array) -> NDArray[np.bool_]:
        """Mask of the encoded rows whose label is new."""
        return ~np.isin(X[:, self.column], self.fit.posterior.inputs[:, self.column])


class RowsNotStored(Field):
    """Stands for rows that did not come along, because the posterior does not need them."""

    n_rows = 0

    def process(self, family: Family, kernels: Sequence[Any]) -> NoReturn:
        raise ValueError(
            "a sparse model is saved without its training rows, so that its evidence cannot be computed at another "
            "theta after loading. log_marginal_likelihood() gives the learned value; fit again for more."
        )


@dataclass(frozen=True)
class Search:
    """Settings of a search for hyperparameters."""

    optimizer: Any
    n_restarts: int
    rng: np.random.Generator
    report: Callable[[str], Report | None]
    """Function that takes the name of a search and returns what is called after every evaluation of it, or None."""
    journal: Journal | None = None
    """Keeps the evaluations of searches over all rows, or samples of many."""


@dataclass(frozen=True)
class SearchOutcome:
    """Outcome of a search for hyperparameters."""

    evidence: Evidence
    start: Any = None
    """Start for a search for sites there."""
    n_iter: int = 0
    converged: bool = True
    notes: tuple[str, ...] = ()
    search: SearchTable | None = None

    def fit(self, columns: Columns, target: Target, offset: str | None = None) -> Fit:
        """The fit with these hyperparameters."""
        value, _, approximation = self.evidence.evaluate(start=self.start, gradient=False)
        notes = self.notes if approximation.converged else (*self.notes, NO_MODE)
        wide = _rows_too_wide(approximation)
        notes = notes if not wide else (*notes, _too_wide(wide))
        # where the likelihood is not concave the mode of such rows is one of several that say nothing of the posterior
        lost = bool(wide) and self.evidence.family.several_modes
        return Fit(
            self.evidence, approximation.process.posterior(approximation), value, self.n_iter,
            bool(approximation.converged and self.converged and not lost), columns, target, notes, offset, self.search,
            curvature=_curvature(approximation), found=approximation,
        )  # fmt: skip


NO_MODE = Message(
    "the posterior mode was not found to full precision; predictions may be off. Try ",
    Hint("inference=Laplace(max_iter=500) (or Variational)", "inference", "variational"),
    ", another kernel scale, or ",
    Hint("inference='taylor'", "inference", "taylor"),
    ".",
)


# Nats by which the average log-likelihood of a row may be below that of its expansion. Rows of labels and angles, whose
# likelihood levels off, come to 1 or 2; a count of zero under a wide prior to thousands.
TOO_WIDE = 10.0


def _rows_too_wide(a: Approximation) -> int:
    """Number of rows over which Laplace's Gaussian is so wide that the likelihood is nothing like its expansion there.

    Of fields that read rows in chunks none is known: their marginals would cost another pass.
    """
    if a.rule.depends_on != "mean" or not isinstance(a.process, DenseProcess) or gaussian(a.process.problem.family):
        return 0
    problem, q = a.process.problem, a.process.renewed(a).q  # marginals would change what predictions are made from
    eta, V = q.mean + problem.offset, q.marginals.dense()
    log_prob = average(lambda eta, rows: problem.family.log_prob(eta, problem.y[rows]))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        expansion = problem.family.log_prob(eta, problem.y) - 0.5 * np.sum(q.U.dense() * V, axis=(1, 2))
        average_there = expectation(log_prob, eta, cholesky_root(V), atol=0.1, rtol=0.01)[0]
    average_there = np.where(np.isfinite(average_there), average_there, -np.inf)
    return int(np.sum(expansion - average_there > TOO_WIDE))


def _too_wide(rows: int) -> Message:
    return Message(
        f"Laplace's Gaussian is so wide in {rows} row(s) that the likelihood there is nothing like its expansion at "
        "the mode: predictions may be off by orders of magnitude. Use ",
        Hint("inference='variational'", "inference", "variational"),
        ", or a kernel with a smaller scale.",
    )


def _curvature(a: Approximation) -> str:
    """Precision that the sites have, as `Fit.curvature` tells it; rows that are read in chunks are not counted."""
    if a.rule.depends_on == "covariance":
        return "averaged"
    n, sites = a.process.shape[0], getattr(a.look, "sites", None)
    rows = 0 if sites is None or sites.fisher is None else int(np.sum(sites.fisher))
    if a.look.fisher or rows == n:
        return "Fisher"
    return f"Fisher in {rows} of {n} rows" if rows else "observed"


def _stopped_early(message: str) -> Message:
    if message == STOPPED:
        return Message(
            "the hyperparameter search was stopped by the user: the model is the best that was found until then."
        )
    return Message(
        f"the hyperparameter search stopped early ({message}). Scale the inputs, widen the bounds, or try ",
        Hint("n_restarts_optimizer=3", "n_restarts_optimizer", 3),
        ".",
    )


def learn(
    evidence: Evidence, how: Search, others: Sequence[Array] = (), rows: NDArray[np.intp] | None = None,
    inverse_hessian: Array | None = None,
) -> SearchOutcome:  # fmt: skip
    """Hyperparameters from all rows at once; ``others`` are further thetas to begin from.

    Where those of the evidence come from some ``rows``, they are a good start, with the ``inverse_hessian`` of the
    search there, and are only made more precise.
    """
    given = callable(how.optimizer)
    start = Start(evidence.theta) if given else subset_start(evidence, others, rows, inverse_hessian)
    objective = WarmObjective(evidence, start.sites, start.inverse_hessian)
    best = search(
        objective, start.theta, optimizer=how.optimizer, n_restarts=how.n_restarts, rng=how.rng, ftol=evidence.ftol,
        report=how.report("leave-one-out" if evidence.objective == "loo" else "log evidence"), journal=how.journal,
    )  # fmt: skip
    notes = () if best.converged else (_stopped_early(best.message),)
    return SearchOutcome(evidence.at(best.theta), objective.start, best.n_iter, best.converged, notes)


def learn_in_samples(evidence: Evidence, settings: Inducing, sample: NDArray[np.intp], how: Search) -> SearchOutcome:
    """Hyperparameters from samples, then from all rows; then with the inducing inputs, if asked for.

    Every search starts from the hyperparameters, the posterior and the curvature that the one before ended with.
    ``sample`` are the numbers of the rows on which learning starts.
    """
    found: list[Optimum] = []
    restarts, inverse_hessian, start, rng = how.n_restarts, None, None, how.rng

    def maximised(part: Evidence, what: str) -> tuple[Optimum, Any]:
        objective = WarmObjective(part, start, inverse_hessian)
        best = search(
            objective, part.theta, optimizer=how.optimizer, n_restarts=restarts, rng=rng, report=how.report(what),
            ftol=settings.ftol, journal=how.journal,
        )  # fmt: skip
        return best, objective.start

    n = evidence.field.n_rows
    if evidence.theta.size:
        for size, following in itertools.pairwise(_sizes(n, len(sample), settings)):
            chosen = sample[pick(len(sample), size, rng)] if size <= len(sample) else pick(n, size, rng)
            first, start = maximised(evidence.sample(chosen), f"{size} rows")
            evidence, restarts = evidence.at(first.theta), 0
            # the information grows with the rows
            inverse_hessian = first.inverse_hessian * (size / following)
        best, start = maximised(evidence, "all rows")
        evidence = evidence.at(best.theta)
        found.append(best)
    if settings.optimise:
        evidence, joint, start = _move_inputs(evidence, sample, settings, how, start)
        found.append(joint)
    notes = tuple(_stopped_early(o.message) for o in found if not o.converged)
    return SearchOutcome(evidence, start, sum(o.n_iter for o in found), not notes, notes)


def _sizes(n: int, sample: int, settings: Inducing) -> list[int]:
    """Numbers of rows to learn from, one after the other: samples of a quarter at most, then all."""
    first = min(sample, n // 4)
    if not settings.warmup or first < min(settings.sample_rows, WARMUP_FROM):
        return [n]
    return [size for size in (first, 10 * sample) if 4 * size <= n] + [n]


def _move_inputs(
    evidence: Evidence, sample: NDArray[np.intp], settings: Inducing, how: Search, start: Any
) -> tuple[Evidence, Optimum, Any]:
    """Hyperparameters and inducing inputs together; the inputs in units of the features' spread."""
    layout = evidence.field
    assert isinstance(layout, InducingField)
    X, p, Z = layout.sample(sample).rows.X, evidence.theta.size, layout.Z  # type: ignore[attr-defined]
    spread = X.std(axis=0)
    # groups stay where they are: nothing pulls at them, and a unit of one leaves their numbers exact
    spread = np.where((spread > 0) & ~category_columns(evidence.kernels, X.shape[1]), spread, 1.0)
    # one spread beyond the data on either side: further out an inducing point has nothing to explain
    low, high = np.minimum(X.min(axis=0), Z.min(axis=0)), np.maximum(X.max(axis=0), Z.max(axis=0))
    box = np.stack([np.tile(low / spread - 1.0, len(Z)), np.tile(high / spread + 1.0, len(Z))], axis=1)
    warm: dict[str, Any] = {"start": start, "best": -np.inf}

    def at(x: Array) -> Evidence:
        return evidence.at(x[:p]).with_field(replace(layout, Z=x[p:].reshape(Z.shape) * spread))

    def objective(x: Array) -> tuple[float, Array]:
        here = at(x)
        approximation = here.infer(warm["start"])
        process: Process = approximation.process
        assert isinstance(process, InducingProcess)
        of_kernels, of_family, inputs = process.gradients(approximation)
        value, theta = here.with_prior(approximation.log_evidence, here.gradient_in_theta(of_kernels, of_family))
        if value > warm["best"]:  # the last one may be that of a step which went much too far
            warm.update(start=approximation.start, best=value)
        return value, np.concatenate([theta, (inputs * spread).ravel()])

    best = maximise(
        objective, np.concatenate([evidence.theta, (Z / spread).ravel()]), np.concatenate([evidence.bounds, box]),
        optimizer=how.optimizer, report=how.report("inducing inputs"), ftol=settings.ftol, journal=how.journal,
    )  # fmt: skip
    return at(best.theta), best, warm["start"]
