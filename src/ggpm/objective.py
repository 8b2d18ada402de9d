"""The evidence as a function of all log-hyperparameters: kernels first, then the family's."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm import kernels as kernels_module
from ggpm import loo
from ggpm._optimize import maximise
from ggpm.families.base import Family
from ggpm.inference import Approximation, Problem
from ggpm.priors import Priors

Array = NDArray[np.float64]

SHORT_SEARCH = 12  # iterations after which starts are compared
# Relative precision of the optimum. Leave-one-out densities are not stationary in the sites, so that they are known
# only about as well as the sites are; their statistical error is some hundred times as large as this.
EVIDENCE_FTOL, LOO_FTOL = 1e-9, 1e-3
SUBSET_FROM = 256  # rows from which the search for hyperparameters begins on a subset


class Learned:
    """A family and kernels, whose log-hyperparameters are one vector theta, with priors on it."""

    family: Family
    kernels: list
    priors: Priors | None

    @property
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


class Evidence(Learned):
    """log q(y) and its gradient at any theta, for fixed data, family, kernels and inference method."""

    def __init__(
        self, family: Family, kernels: Sequence, X: Array, y: Array, offset: Array, inference: Any,
        objective: str = "evidence", priors: Priors | None = None,
    ):  # fmt: skip
        self.objective, self.priors = objective, priors
        self.family, self.kernels, self.X, self.y, self.offset = family, list(kernels), X, y, offset
        self.inference = inference
        self.cache = kernels_module.Distances(X)

    def forget_distances(self) -> None:
        """Give back the memory of the distances between rows; they are computed again when needed."""
        self.cache = kernels_module.Distances(self.X)

    @property
    def ftol(self) -> float:
        """Relative precision to which a search for the optimum goes."""
        return LOO_FTOL if self.objective == "loo" else getattr(self.inference, "ftol", EVIDENCE_FTOL)

    def rows(self, index: NDArray) -> Evidence:
        """The evidence of some of the rows."""
        other = copy.copy(self)
        other.X, other.y, other.offset = self.X[index], self.y[index], self.offset[index]
        other.cache = kernels_module.Distances(other.X)
        return other

    def evaluate(self, start: Any = None, gradient: bool = True) -> tuple[float, Array | None, Approximation]:
        """Evidence, its gradient in `theta` if asked for, and the approximation behind it."""
        evaluations, approximation = self._infer(start)
        if not gradient:
            return approximation.log_evidence, None, approximation
        pulled = self._pull(evaluations, *self.inference.gradient(approximation))
        return approximation.log_evidence, pulled, approximation

    def learn(self, start: Any = None) -> tuple[float, Array, Approximation]:
        """What the hyperparameters maximise: the objective plus the log density of their priors."""
        value, gradient, approximation = (self.leave_one_out if self.objective == "loo" else self.evaluate)(start)
        assert gradient is not None
        return *self.with_prior(value, gradient), approximation

    def leave_one_out(self, start: Any = None, gradient: bool = True) -> tuple[float, Array | None, Approximation]:
        """Sum of the leave-one-out log densities, its gradient in `theta`, and the approximation behind it."""
        evaluations, approximation = self._infer(start)
        if not gradient:
            return float(loo.log_densities(approximation, loo.LEARNED).sum()), None, approximation
        values, cotangent = loo.log_densities_and_cotangent(approximation)
        pulled = self._pull(evaluations, *self.inference.pullback(approximation, cotangent))
        return float(values.sum()), pulled, approximation

    def _infer(self, start: Any) -> tuple[list, Approximation]:
        evaluations = [kernels_module.evaluate(k, self.X, cache=self.cache) for k in self.kernels]
        problem = Problem(self.family, self.y, self.offset)
        return evaluations, self.inference.infer(problem, [e.K for e in evaluations], start)

    def _pull(self, evaluations: list, cotangents: list[Array], grad_phi: Array) -> Array:
        parts = [e.pullback(G) for e, G in zip(evaluations, cotangents)]
        if self.family.learns_phi:
            parts.append(grad_phi)
        return np.concatenate(parts)


class WarmObjective:
    """The objective and its gradient as a function of theta; every search for a posterior starts from the best so far.

    The last one may be that of a step which went much too far.
    """

    def __init__(self, evidence: Any, start: Any = None):
        self.evidence, self.start, self.best = evidence, start, -np.inf

    def __call__(self, theta: Array) -> tuple[float, Array]:
        value, gradient, approximation = self.evidence.at(theta).learn(self.start)
        if value > self.best:
            self.best, self.start = value, approximation.start
        return value, gradient


def subset_start(evidence: Evidence, starts: Sequence[Array] = ()) -> tuple[Array, Array | None]:
    """Where the search for theta begins, with a guess of the inverse Hessian there (or None).

    With many rows both are learned on a quarter of them, which costs a sixty-fourth per evaluation. The answer is
    still the full problem's: only its start is decided here. ``starts`` are further thetas to begin from; the one
    from which a short search climbs highest is taken.
    """
    n, theta = len(evidence.y), evidence.theta
    if n < SUBSET_FROM:
        return _best_start(evidence, [theta, *starts]), None
    part = evidence.rows(np.sort(np.random.default_rng(0).permutation(n)[: n // 4]))
    part.objective = "evidence"  # leave-one-out on few rows is a noisy guide
    start, inverse_hessian = subset_start(part, starts)
    low, high = evidence.bounds.T
    try:
        ftol = max(1e-6, evidence.ftol)
        found = maximise(WarmObjective(part), start, part.bounds, ftol=ftol, inverse_hessian=inverse_hessian)
        if not np.all((found.theta > low) & (found.theta < high)):
            # a parameter that is not needed, or a part that shows nothing: all rows decide
            measure = Evidence.leave_one_out if evidence.objective == "loo" else Evidence.evaluate
            at_found, at_start = (measure(evidence.at(t), gradient=False)[0] for t in (found.theta, theta))
            return (found.theta if at_found > at_start else theta), None
    except np.linalg.LinAlgError:
        return theta, None
    # four times the rows hold about four times the information
    return found.theta, found.inverse_hessian / 4 if evidence.objective == "evidence" else None


def _best_start(evidence: Evidence, starts: Sequence[Array]) -> Array:
    """Where a short search from one of the starts climbs highest."""
    if len(starts) == 1:
        return starts[0]
    best, height = starts[0], -np.inf
    for start in starts:
        try:
            found = maximise(WarmObjective(evidence), start, evidence.bounds, max_iter=SHORT_SEARCH, ftol=1e-4)
        except np.linalg.LinAlgError:
            continue
        if found.value > height:
            best, height = found.theta, found.value
    return best
