"""The engine: marginals -> sites -> field -> marginals, damped, until the objective stops moving.

`find` alternates a site rule and a process (a field under given hyperparameters) until they agree. Rules that expand
the log-likelihood (Taylor, Laplace) look at the mean alone: the search is a Newton iteration on it, and

    evidence = objective at the mean - 1/2 log|I + U K| - 1/2 sum_i <U_i, variance that the field leaves out>,
    objective = sum_i log p_i - 1/2 m^T K^-1 m                                 (paper, sections 3.2 and 3.3).

Rules that depend on the covariance climb the evidence lower bound in the natural parameters of q,

    bound = sum_i E_q[log p_i] - KL(q || prior),    KL = 1/2 (m^T K^-1 m - sum_i <U_i, V_ii> + log|I + U K|).

Either search goes uphill only: a step is taken whole, or halved until the objective rises. At the end of the second,
steps that gain less than its sums are exact to are taken within that error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.fields.base import Approximation, Natural, Process, Trial
from ggpm.kernels.linalg import NotPositiveDefinite, anderson
from ggpm.sites import InferenceError, Laplace, Rule, Taylor

__all__ = ["find"]

Array = NDArray[np.float64]

SUFFICIENT = 1e-4  # Armijo: the share of the predicted gain that a step must bring (Nocedal & Wright 2006, alg. 3.1)
# Relative sizes of differences of the objective that are rounding, seen over all families of the tests: of an
# expansion, and of a bound, whose expectations are sums over nodes.
ROUNDING, ROUNDING_OF_BOUND = 1e-13, 1e-12
# Relative decrement below which a Newton search that comes no closer is at the limit of rounding; half of it is what is
# left to gain in the objective.
STALLED = 1e-10
# Decrement in nats below which a search with the Fisher curvature is near its end: there the observed curvature is
# tried at every step, before that at every third.
NEAR, RETRY = 1.0, 3
# A search for a bound that rounding stops has converged if its sites still move less than this: ten times the default
# tolerance, and 1e-10 in the bound, which is stationary in them.
ROUNDED = 1e-5
IDLE = 8  # steps without coming closer by 30 % after which rounding is taken to have stopped it
HALVINGS = 30  # of a natural-gradient step: the shortest is 2e-9 of it
FEW = 3  # of one that gains less than the error of the sums over nodes: shorter ones gain nothing that can be seen
# A bound so many nats per row below Laplace's evidence is no start: sites with so much more precision are tried too.
FAR, NARROWER = 1.0, (0.1, 1.0, 10.0)
MEMORY = 12  # steps that the extrapolation looks at: each is a column of a least-squares problem and two copies of q
KEPT = 2  # of them, or half, after one led downhill: with one alone, where refusals are many, none is ever tried again


def find(rule: Rule, process: Process, start: Any = None) -> Approximation:
    """The sites on which rule and process agree, and the Gaussian posterior and evidence that belong to them.

    Parameters
    ----------
    rule : Rule
    process : Process
    start : the `start` of an earlier approximation, under this or other hyperparameters

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from ggpm.families import Poisson
    >>> from ggpm.fields.dense import DenseField
    >>> X, y = np.arange(3.0)[:, None], np.array([0.0, 2.0, 5.0])
    >>> process = DenseField(X, y, np.zeros((3, 1))).process(Poisson(), [RBF(1.0)])
    >>> round(find(Laplace(), process).log_evidence, 3)
    -6.366
    """
    rule = rule.resolved(*process.shape, process.blocks_are_cheap)
    # a walk works out the step ahead, says whether it has arrived, and advances unless no part of it leads upwards
    walk = (_Bound if rule.depends_on == "covariance" else _Expansion)(rule, process, start)
    for iteration in range(rule.max_iter + 1):
        if walk.arrived() or iteration == rule.max_iter or not walk.advance():
            break
    return walk.result(iteration)


def laplace_for(rule: Rule, D: int) -> Laplace:
    """Laplace's rule for a start of another one, with D latents: no more patient than that."""
    return Laplace().loosened(D) if rule == rule.loosened(D) else Laplace()


def line_search(trials: Iterable[Trial], floor: float, slope: float) -> Trial | None:
    """The first of ever shorter steps that raises the objective enough, or None."""
    return next((trial for trial in trials if trial[1] >= floor + SUFFICIENT * trial[0] * slope), None)


# ---- expansions --------------------------------------------------------------------------------------------------


class _Expansion:
    """Damped Newton on the mean, with the Fisher curvature where the observed one does not serve."""

    def __init__(self, rule: Rule, process: Process, start: Any):
        self.rule, self.process = rule, process
        self.look = self._first(start)
        self.factor: Any = None
        self.unexplained, self.accepted = 0.0, np.inf
        self.trace = [self.look.objective]
        self.least, self.vain, self.there = np.inf, 0, False

    def _first(self, start: Any) -> Any:
        """The best of prior mean, earlier mean, and a Newton step from the earlier latents or from Taylor's point."""
        process, rule, origin = self.process, self.rule, self.process.origin()
        if rule.depends_on == "y":
            return process.look(rule, origin)
        best, latent = None, None
        height = process.glance(rule, origin) if start is None or process.looks_are_cheap else -np.inf
        if start is not None:
            x, latent = process.resume(start)
            look = process.look(rule, x)
            if look.objective > height:
                best, height = look, look.objective
        if best is None:
            with suppress(np.linalg.LinAlgError):
                first = process.look(Taylor(latent), origin)
                step, _ = process.newton(first, process.factor(first))
                look = process.look(rule, origin + step)
                if look.objective > height:
                    best = look
        if best is None:
            best = process.look(rule, origin)
        if not np.isfinite(best.objective):
            raise InferenceError(
                "the log-likelihood is not finite at the prior mean nor at the start; check the scale of y and offset"
            )
        return best

    def arrived(self) -> bool:
        try:
            if self.vain % RETRY and self.least > NEAR:
                self.look = self.process.look(self.rule, self.look.x, fisher=True)
            if self.factor is None or not self.process.unchanged(self.look, self.factor):
                self._factorise()
        except NotPositiveDefinite:
            self.look = self.process.look(self.rule, self.look.x, fisher=True)
            try:
                self._factorise()
            except NotPositiveDefinite as err:
                raise InferenceError(f"the posterior precision is not positive definite ({err})") from None
        self.step, self.decrement = self.process.newton(self.look, self.factor)
        if self.look.fisher:
            self.vain = 0 if self.decrement < 0.5 * self.least else self.vain + 1
            self.least = min(self.least, self.decrement)
        size = 1.0 + abs(self.look.objective)
        # at the limit of rounding the decrement no longer falls
        stalled = self.decrement <= STALLED * size and self.decrement >= 0.25 * self.accepted
        self.there = self.decrement <= self.rule.tol * size or stalled
        return self.there

    def _factorise(self) -> None:
        self.factor = None  # gives its memory back before the next one is built
        self.factor, self.unexplained = self.process.factor(self.look), self.process.unexplained(self.look)

    def advance(self) -> bool:
        if self.vain >= self.rule.patience and self.decrement > NEAR:
            return False
        curvature = self.rule.depends_on != "y"
        floor = self.look.objective - ROUNDING * (1.0 + abs(self.look.objective))
        trials = self.process.trials(self.rule, self.look, self.step, curvature)
        found = line_search(trials, floor, self.decrement)
        if found is None:
            if self.look.fisher:
                return False
            self.look, self.factor = self.process.look(self.rule, self.look.x, fisher=True), None
            return True
        length, _, ahead = found
        if ahead is None:
            ahead = self.process.look(self.rule, self.look.x + length * self.step, curvature=curvature)
        self.accepted = self.decrement
        if self.look.fisher:
            self.factor = None
        self.look = ahead
        self.trace.append(ahead.objective)
        if self.process.chord_steps and self.factor is not None:
            self._chord()
        return True

    def _chord(self) -> None:
        """Further steps with the factorisation in hand, as long as they lead to the end for less than a new one.

        They converge linearly; Newton's method proper would need one or two more factorisations.
        """
        last = self.decrement
        while True:
            step, new = self.process.newton(self.look, self.factor)
            target = self.rule.tol * (1.0 + abs(self.look.objective))
            if not target < new < last or np.log(target / new) < self.process.chord_steps * np.log(new / last):
                break
            ahead = self.process.look(self.rule, self.look.x + step)
            if ahead.objective < self.look.objective - ROUNDING * (1.0 + abs(self.look.objective)):
                break
            self.look, last = ahead, new
            self.trace.append(ahead.objective)

    def result(self, n_iter: int) -> Approximation:
        x, height, p = self.look.x, self.look.objective, self.process
        if self.there:  # the last step is too small to be looked at, but is known
            x, height = x + self.step, height + 0.5 * self.decrement
        q = p.gaussian(self.factor, x)
        value = height - 0.5 * q.log_det - 0.5 * self.unexplained  # paper, sections 3.2 and 3.3; Titsias 2009
        if not np.isfinite(value):
            raise InferenceError("the evidence is not finite at these hyperparameters")
        converged = self.there and not self.look.fisher
        return Approximation(p, self.rule, q, self.look, float(value), converged, n_iter, tuple(self.trace), p.n_passes)


# ---- bounds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _State:
    """A Gaussian with its sites and its bound."""

    natural: Natural
    q: Any
    look: Any
    bound: float
    size: float
    """Sum of the absolute values of the bound's terms: what its rounding is relative to."""


class _Bound:
    """Natural-gradient steps, extrapolated where that helps."""

    def __init__(self, rule: Rule, process: Process, start: Any):
        self.asked, self.process, self.ahead = rule, process, process.ahead(rule)
        # the few steps from nearby, where each is found ahead, are not worth a change of rules
        few = start is not None and self.ahead is not None
        self.rule = rule if few else rule.loosened(process.shape[1])
        self.state = self._first(start)
        if not np.isfinite(self.state.bound):
            raise InferenceError("the evidence lower bound is not finite at these hyperparameters")
        self.trace = [self.state.bound]
        self.history: list[tuple[Array, Array]] = []
        self.least, self.idle, self.there = np.inf, 0, False

    def _first(self, start: Any) -> _State:
        """The earlier Gaussian, or Laplace's, as it is or narrower, or Taylor's; where none can be used, the prior.

        Laplace's may be nearly as wide as the prior where the likelihood levels off (a count of zero), and the
        expectation of exp then so large that no step leads back from it. Or its mode is far from where the mass is:
        a direction's latents may be as short as the prior of the concentration lets them.
        """
        if start is not None:
            found = [self._state(natural) for natural in self.process.resume_natural(start)]
            best = max((s for s in found if s is not None), key=lambda s: s.bound, default=None)
            if best is not None and np.isfinite(best.bound):
                return best
        state = None
        with suppress(NotPositiveDefinite, InferenceError):
            laplace = find(laplace_for(self.rule, self.process.shape[1]), self.process)
            for natural in self._around(laplace):
                ahead = self._state(natural)
                if state is None or (ahead is not None and ahead.bound > state.bound):
                    state = ahead
                if state is not None and laplace.log_evidence - state.bound <= FAR * self.process.shape[0]:
                    break
        if state is None or not np.isfinite(state.bound):
            state = self._state(self.process.prior_natural(self.rule))
        if state is None:
            raise InferenceError("the evidence lower bound is not finite at these hyperparameters")
        return state

    def _around(self, laplace: Approximation) -> Iterator[Natural]:
        """Laplace's Gaussian, narrower ones with its mean, and Taylor's."""
        natural = self.process.natural(laplace.q, self.rule.factorised)
        yield natural
        yield from (self.process.narrowed(natural, laplace.q, precision) for precision in NARROWER)
        yield self.process.natural(find(Taylor(), self.process).q, self.rule.factorised)

    def _state(self, natural: Natural) -> _State | None:
        """The Gaussian of natural parameters with its bound, if there is one."""
        if not all(np.all(np.isfinite(part)) for part in natural):
            return None
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # far from the optimum; such a state has no bound
                return self._looked(natural, self.process.from_natural(natural))
        except NotPositiveDefinite:
            return None

    def _looked(self, natural: Natural, q: Any) -> _State:
        """The Gaussian q of these natural parameters with its bound under the present rule."""
        look = self.process.look(self.rule, q.x, q)
        terms = look.objective, 0.5 * self.process.overlap(q), -0.5 * q.log_det
        bound, size = float(np.sum(terms)), 1.0 + float(np.sum(np.abs(terms)))
        return _State(natural, q, look, bound if np.isfinite(bound) else -np.inf, size)

    def arrived(self) -> bool:
        """Whether the sites stay where they are; those of the loosened rule lead to those that are asked for."""
        if self.rule != self.asked and self._arrived():
            finer = self.rule.wobble != self.asked.wobble
            self.rule, self.least, self.idle = self.asked, np.inf, 0
            if finer:
                self.state = self._looked(self.state.natural, self.state.q)
                self.trace[-1] = self.state.bound
        return self.rule == self.asked and self._arrived()

    def _arrived(self) -> bool:
        self.change = self.process.change(self.state.look, self.state.q)
        self.idle = 0 if self.change < 0.7 * self.least else self.idle + 1
        self.least = min(self.least, self.change)
        # at the limit of rounding the sites no longer come closer
        self.there = self.change <= self.rule.tol or (self.idle >= IDLE and self.change <= ROUNDED)
        return self.there

    def advance(self) -> bool:
        state, process = self.state, self.process
        floor = state.bound - ROUNDING_OF_BOUND * state.size - process.uncertainty(state.q)
        # the bound is stationary: steps whose square is below the error of its sums gain less than that error
        wobble = process.wobble(self.rule, state.look)
        small = self.change <= np.sqrt(wobble / process.shape[0])
        target = process.target(state.look, state.q)
        better = process.coupled_target(self.rule, state.look, state.q)
        pair = _flat(state.natural), _flat(target if better is None else better)
        # expectations may overflow far from the optimum: such a step is only ever taken in part
        self.history = [*self.history, pair][-MEMORY:] if np.all(np.isfinite(pair[1])) else []
        nearer = None if self.ahead is None else self.ahead.target(self.rule, state.look, state.q, self.change)
        step = None if nearer is None else line_search(self._trials([(1.0, nearer)]), floor, 0.0)
        if step is None and len(self.history) > 1:
            step = line_search(self._trials([(1.0, _unflat(anderson(self.history), state.natural))]), floor, 0.0)
            if step is None:
                self.history = self.history[-max(KEPT, len(self.history) // 2) :]
        if step is None and better is not None:
            step = line_search(self._trials([(1.0, better)]), floor, 0.0)
        if step is None:
            # the natural gradient itself: some step along it must lead upwards, a shorter one than one just refused
            lengths = 0.5 ** np.arange(0 if better is None else 1, FEW if small else HALVINGS)
            step = line_search(self._trials((t, _mixed(state.natural, target, t)) for t in lengths), floor, 0.0)
        if step is None and small:
            # a row has as many nodes as its own error asks for, and a state that asked for others may look too good
            floor -= wobble
            step = line_search(self._trials([(1.0, target if better is None else better)]), floor, 0.0)
        if step is None:
            self.there = self.change <= ROUNDED
            return not self.there and len(self.trace) == 1 and self._again()
        self.state = step[2]
        self.trace.append(self.state.bound)
        return True

    def _again(self) -> bool:
        """Start from the prior instead, if that is better than a start from which no step leads upwards.

        Laplace's may be such where the mode is next to a place of no spread: constant outputs whose scale is learned.
        """
        state = self._state(self.process.prior_natural(self.rule))
        if state is None or state.bound <= self.state.bound:
            return False
        self.state, self.history, self.least, self.idle = state, [], np.inf, 0
        self.trace.append(state.bound)
        return True

    def _trials(self, steps: Iterable[tuple[float, Natural]]) -> Iterator[Trial]:
        for t, natural in steps:
            if (state := self._state(natural)) is not None:
                yield t, state.bound, state

    def result(self, n_iter: int) -> Approximation:
        s, p, trace = self.state, self.process, tuple(self.trace)
        return Approximation(p, self.rule, s.q, s.look, s.bound, bool(self.there), n_iter, trace, p.n_passes)


def _mixed(a: Natural, b: Natural, t: float) -> Natural:
    return (1 - t) * a[0] + t * b[0], (1 - t) * a[1] + t * b[1]


def _flat(natural: Natural) -> Array:
    return np.concatenate([part.ravel() for part in natural])


def _unflat(x: Array, like: Natural) -> Natural:
    split = like[0].size
    return x[:split].reshape(like[0].shape), x[split:].reshape(like[1].shape)
