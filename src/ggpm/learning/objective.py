"""The evidence as a function of all log-hyperparameters: kernels first, then the family's."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm import kernels as kernels_module
from ggpm.families.base import Family
from ggpm.families.curvature import Blocks
from ggpm.fields.base import Approximation, Field
from ggpm.fields.dense import DenseField
from ggpm.fields.rows import site_values
from ggpm.learning import cavities
from ggpm.learning.engine import find
from ggpm.learning.priors import Priors
from ggpm.learning.restarts import best_of
from ggpm.learning.search import Optimum, maximise
from ggpm.sites import Laplace, Rule

Array = NDArray[np.float64]

SHORT_SEARCH = 12  # iterations after which starts are compared: enough to see which climbs, not to finish
# Relative precision of the optimum. Leave-one-out densities are not stationary in the sites, so that they are known
# only about as well as the sites are; their statistical error is some hundred times as large as this.
EVIDENCE_FTOL, LOO_FTOL = 1e-9, 1e-3
# Rows from which the search for hyperparameters begins on a subset, a quarter of them: below, a quarter says
# little, and the information gives a start for less. The inverse Hessian of all rows, four times as many, is about half
# the subset's (measured): the root of its share.
SUBSET_FROM = 256
SUBSET_FTOL = 1e-4  # of a search whose end is a start: a hundredth of a nat with a hundred rows
# Variances of a thousandth of the first guess, and length scales of a thousand times it, have no gradient to speak of.
FAR = np.log(1e3)
INFORMED_MOST = 8  # hyperparameters; many are mostly length scales of features that do not matter, without information
LEAST_INFORMATION = 1.0  # on a log-hyperparameter, nats: a first step is not longer than the gradient


class Hyperparameters:
    """A family and kernels, whose log-hyperparameters are one vector theta, with priors on it.

    ``theta`` is scikit-learn's name for the log-hyperparameters of kernels; here the family's (`Family.log_hyper`)
    follow them. It is not the natural parameter theta of a family, which no module above `ggpm.families` sees.
    """

    family: Family
    kernels: list
    priors: Priors | None

    @cached_property
    def theta(self) -> Array:
        """The current log-hyperparameters."""
        own = self.family.log_hyper if self.family.learns_phi else np.empty(0)
        return np.concatenate([kernels_module.log_hyper(self.kernels), own])

    @property
    def bounds(self) -> Array:
        """Bounds of `theta`, (p, 2)."""
        own = self.family.log_hyper_bounds if self.family.learns_phi else np.empty((0, 2))
        return np.concatenate([kernels_module.log_bounds(self.kernels), own])

    def at(self, theta: Array) -> Self:
        """The same with other hyperparameters."""
        if theta.shape != self.theta.shape:
            raise ValueError(f"theta must have {self.theta.size} entries; got shape {theta.shape}.")
        other = copy.copy(self)
        del other.theta
        split = theta.size - (self.family.log_hyper.size if self.family.learns_phi else 0)
        other.kernels = kernels_module.with_log_hyper(self.kernels, theta[:split])
        if self.family.learns_phi:
            other.family = self.family.with_log_hyper(theta[split:])
        return other

    def with_prior(self, value: float, gradient: Array) -> tuple[float, Array]:
        """An objective and its gradient in `theta`, with the log density of the priors added."""
        if self.priors is None:
            return value, gradient
        log_prior, slope = self.priors.log_density(self.theta)
        return value + log_prior, gradient + slope


class Evidence(Hyperparameters):
    """The log evidence and its gradient at any theta, for fixed rows, family, kernels and site rule.

    Parameters
    ----------
    family : resolved Family
    kernels : one that all latent dimensions share, or one for each
    field : Field
        The rows, and how their latents hang together.
    rule : Rule
    objective : "evidence" or "loo"
        The value that `learn` maximises.
    priors : of the hyperparameters, or None
    """

    def __init__(
        self, family: Family, kernels: Sequence, field: Field, rule: Rule, objective: str = "evidence",
        priors: Priors | None = None,
    ):  # fmt: skip
        self.family, self.kernels, self.field, self.rule = family, list(kernels), field, rule
        self.objective, self.priors = objective, priors

    @property
    def ftol(self) -> float:
        """Relative precision to which a search for the optimum goes."""
        return LOO_FTOL if self.objective == "loo" else self.rule.ftol(self.family.latent_dim) or EVIDENCE_FTOL

    def sample(self, index: NDArray) -> Self:
        """The evidence of some of the rows."""
        rule = self.rule.checked(self.field.n_rows, self.family.latent_dim)
        other = copy.copy(self)
        other.field, other.rule = self.field.sample(index), rule.of_rows(index)
        return other

    def with_field(self, field: Field) -> Self:
        """The same with other rows, or another layout of them."""
        other = copy.copy(self)
        other.field = field
        return other

    def searching(self) -> Self:
        """The same for a search that ends with an evaluation of this one: inexact where the value hardly notices."""
        other = copy.copy(self)
        other.rule = self.rule if self.objective == "loo" else self.rule.loosened(self.family.latent_dim)
        return other

    def infer(self, start: Any = None) -> Approximation:
        """The posterior at the current hyperparameters."""
        process = self.field.process(self.family, self.kernels)
        return best_of(self.rule, process) if start is None else find(self.rule, process, start)

    def gradient(self, approximation: Approximation) -> Array:
        """Gradient of the log evidence in `theta`."""
        # at absurd hyperparameters it may overflow: a search takes no step from there
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self.gradient_in_theta(*approximation.process.gradient(approximation))

    def evaluate(self, start: Any = None, gradient: bool = True) -> tuple[float, Array | None, Approximation]:
        """Evidence, its gradient in `theta` if asked for, and the approximation behind it."""
        approximation = self.infer(start)
        return approximation.log_evidence, self.gradient(approximation) if gradient else None, approximation

    def learn(self, start: Any = None) -> tuple[float, Array, Approximation]:
        """The function that hyperparameters maximise: the objective plus the log density of their priors."""
        value, gradient, approximation = (self.leave_one_out if self.objective == "loo" else self.evaluate)(start)
        assert gradient is not None
        return *self.with_prior(value, gradient), approximation

    def leave_one_out(self, start: Any = None, gradient: bool = True) -> tuple[float, Array | None, Approximation]:
        """Sum of the leave-one-out log densities, its gradient in `theta`, and the approximation behind it."""
        approximation = self.infer(start)
        if not gradient:
            return float(cavities.log_densities(approximation, cavities.LEARNED).sum()), None, approximation
        values, cotangent = cavities.log_densities_and_cotangent(approximation)
        pulled = self.gradient_in_theta(*approximation.process.pullback(approximation, cotangent))
        return float(values.sum()), pulled, approximation

    def inverse_information(self, approximation: Approximation) -> Array | None:
        """A guess of the inverse of the evidence's negative Hessian in `theta`; None where a subset tells more."""
        if self.objective == "loo" or self.field.n_rows >= SUBSET_FROM or self.theta.size > INFORMED_MOST:
            return None
        information = approximation.process.information(approximation)
        if information is None:
            return None
        w, Q = np.linalg.eigh(information)
        guess = (Q / np.maximum(w, LEAST_INFORMATION)) @ Q.T
        return guess if np.all(np.isfinite(guess)) else None

    def gradient_in_theta(self, of_kernels: Array, of_family: Array) -> Array:
        """Gradients in the kernels' and the family's log-hyperparameters as one in `theta`."""
        return np.concatenate([of_kernels, of_family]) if self.family.learns_phi else of_kernels


class WarmObjective:
    """The objective and its gradient as a function of theta; every search for a posterior starts from the best so far.

    The last one may be that of a step which went much too far. ``inverse_hessian`` is what is known of it at the first
    theta: as given, or from the evidence itself once that has been evaluated there.
    """

    def __init__(self, evidence: Any, start: Any = None, inverse_hessian: Array | None = None):
        self.exact, self.evidence, self.start, self.best = evidence, evidence.searching(), start, -np.inf
        self.inverse_hessian = inverse_hessian

    def __call__(self, theta: Array) -> tuple[float, Array]:
        evidence, first = self.evidence.at(theta), self.best == -np.inf
        value, gradient, approximation = evidence.learn(self.start)
        if first and self.inverse_hessian is None:
            with suppress(np.linalg.LinAlgError):
                self.inverse_hessian = evidence.inverse_information(approximation)
        if value > self.best:
            self.best, self.start = value, approximation.start
        return value, gradient


def search(objective: WarmObjective, theta: Array, **settings: Any) -> Optimum:
    """The maximum of an objective over theta; settings are those of `maximise`.

    Sites of a search are inexact, and gradients by the root of what values are: near a flat optimum a step may not
    rise although its gradient says so. From there the search goes on with exact sites.
    """
    evidence = objective.evidence
    climb = partial(maximise, objective, bounds=evidence.bounds, zero=-evidence.field.n_rows * evidence.family.log_unit)
    found = climb(theta, inverse_hessian=lambda: objective.inverse_hessian, **settings)
    if not found.stuck or objective.evidence is objective.exact:
        return found
    objective.evidence, objective.best = objective.exact, -np.inf
    more = climb(found.theta, **settings | {"n_restarts": 0})
    return replace(more, n_iter=found.n_iter + more.n_iter)


@dataclass(frozen=True)
class Start:
    """Start of a search for theta."""

    theta: Array
    inverse_hessian: Array | None = None
    """A guess of it there."""
    sites: Any = None
    """Start of the search for sites there, or None."""


def subset_start(
    evidence: Evidence, starts: Sequence[Array] = (), rows: NDArray[np.intp] | None = None,
    inverse_hessian: Array | None = None,
) -> Start:  # fmt: skip
    """Start of the search for theta.

    With many rows it is learned on a quarter of them, which costs a sixty-fourth per evaluation. The answer is
    still the full problem's: only its start is decided here. ``starts`` are further thetas to begin from; the one
    from which a short search climbs highest is taken. Where theta comes from some ``rows``, these are the subset, and
    ``inverse_hessian`` is what the search on them left.
    """
    n, theta = evidence.field.n_rows, evidence.theta
    if rows is not None and len(rows) > n // 2:
        known = inverse_hessian is not None and evidence.objective == "evidence"
        return Start(theta, np.sqrt(len(rows) / n) * inverse_hessian if known else None)
    if n < SUBSET_FROM:
        return _best_start(evidence, [theta, *starts])
    part = evidence.sample(np.sort(np.random.default_rng(0).permutation(n)[: n // 4]) if rows is None else rows)
    # sites of the shape that all rows have: few rows could bear a better and dearer one
    part.rule = part.rule.resolved(n, evidence.family.latent_dim, False)
    part.objective = "evidence"  # leave-one-out on few rows is a noisy guide
    start = subset_start(part, starts) if rows is None else Start(theta, inverse_hessian)
    low, high = evidence.bounds.T
    objective = WarmObjective(part, start.sites, start.inverse_hessian)
    try:
        found = search(objective, start.theta, ftol=max(SUBSET_FTOL, evidence.ftol))
        sites = _carried(evidence.at(found.theta), part.at(found.theta), objective.start)
        if len(evidence.kernels) > 1 and np.any(np.abs(found.theta - theta) > FAR):
            # a function that a quarter of the rows does not need takes others along to where nothing leads back from
            return _best_start(evidence, [found.theta, theta])
        if not np.all((found.theta > low) & (found.theta < high)):
            # a parameter that is not needed, or a part that shows nothing: all rows decide
            there, here = (_height(evidence.at(t)) for t in (found.theta, theta))
            return Start(found.theta, None, sites) if there > here else Start(theta)
    except np.linalg.LinAlgError:
        return Start(theta)
    share = np.sqrt(part.field.n_rows / n)
    return Start(found.theta, share * found.inverse_hessian if evidence.objective == "evidence" else None, sites)


def _height(evidence: Evidence) -> float:
    """Height of what is learned by, by Laplace's rule where that of a bound would cost as much as the search itself."""
    if evidence.objective == "loo":
        return evidence.leave_one_out(gradient=False)[0]
    if evidence.rule.depends_on == "covariance":
        evidence = copy.copy(evidence)
        evidence.rule = Laplace()
    return evidence.evaluate(gradient=False)[0]


def _carried(evidence: Evidence, part: Evidence, start: Any) -> Any:
    """Start of the search for the sites of all rows from those of a part of them; None where they do not tell any."""
    if evidence.rule.depends_on != "covariance" or not isinstance(evidence.field, DenseField):
        return None
    known = part.searching().infer(start)
    process = evidence.field.process(evidence.family, evidence.kernels)
    rule = evidence.rule.resolved(*process.shape, process.blocks_are_cheap)
    mean, cov = known.process.posterior(known).latent(evidence.field.X)
    with suppress(np.linalg.LinAlgError), np.errstate(over="ignore", invalid="ignore"):
        sites = rule.at(process.problem, mean, Blocks(cov).diagonal() if rule.factorised else Blocks(cov))
        return sites.u + sites.U.dot(mean), site_values(sites.U, rule.factorised), process.prior_variance()
    return None


def _best_start(evidence: Evidence, starts: Sequence[Array]) -> Start:
    """The theta at which a short search from one of the starts climbs highest, with the sites that it found there."""
    best, height = Start(starts[0]), -np.inf
    for start in starts if len(starts) > 1 else ():
        objective = WarmObjective(evidence)
        try:
            found = search(objective, start, max_iter=SHORT_SEARCH, ftol=SUBSET_FTOL)
        except np.linalg.LinAlgError:
            continue
        if found.value > height:
            best, height = Start(found.theta, None, objective.start), found.value
    return best
