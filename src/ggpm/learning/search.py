"""Maximisation of an objective over bounded log-hyperparameters, with restarts and failures survived."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ggpm.learning.journal import Journal, SearchStopped

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]

GTOL = 1e-5  # a projected gradient this small, in nats per unit of a logarithm, is an optimum: SciPy's default
OF_A_MODEL = 0.1  # share of ftol for gains that are predicted by a Hessian from elsewhere, not seen
SUFFICIENT = 1e-4  # Armijo: the share of the predicted rise that a step must bring (Nocedal & Wright 2006, alg. 3.1)
SHORTEST = 2.0**-10  # the shortest part of a preconditioned step that is tried: then its Hessian is of no use
LONGEST = 1.0  # the first such step changes no logarithm by more than this, a hyperparameter by a factor of e
ABNORMAL = 2  # status of SciPy's L-BFGS-B where the line search is exhausted

STOPPED = "stopped by the user"


@dataclass(frozen=True)
class Optimum:
    """Outcome of `maximise`: the best theta found, and how the search ended."""

    theta: Array
    value: float
    n_iter: int
    converged: bool
    message: str
    inverse_hessian: Array
    """An approximation of the inverse Hessian of the negative objective, as the search left it."""
    stuck: bool = False
    """Whether no step rises although the gradient says that one should."""


def maximise(
    objective: Objective,
    theta: Array,
    bounds: Array,
    *,
    optimizer: str | Callable = "fmin_l_bfgs_b",
    n_restarts: int = 0,
    rng: np.random.Generator | None = None,
    max_iter: int = 200,
    ftol: float = 1e-9,
    inverse_hessian: Callable[[], Array | None] = lambda: None,
    report: Callable[[int, int, float], None] | None = None,
    zero: float = 0.0,
    journal: Journal | None = None,
) -> Optimum:
    """The best local maximum found from ``theta`` and from ``n_restarts`` random points within the bounds.

    An evaluation that raises `numpy.linalg.LinAlgError` or is not finite counts as a very low value: the line
    search retreats from it. Only if the very first evaluation fails is the error passed on.

    ``inverse_hessian``, asked after the first evaluation, may know a guess of that of the negative objective near
    ``theta``. With it the first run starts with steps of the right size and direction; where no such step rises, the
    run goes on without it. ``ftol`` is relative to the objective less ``zero``, its value that means nothing: that of
    a unit in which densities are measured. ``journal`` keeps evaluations for a search that is run again, and may stop
    this one, which then ends with the best so far.
    """
    if n_restarts and not np.all(np.isfinite(bounds)):
        raise ValueError("n_restarts_optimizer > 0 needs finite bounds for every hyperparameter.")
    starts = [np.clip(theta, bounds[:, 0], bounds[:, 1])]
    for _ in range(n_restarts):
        assert rng is not None
        starts.append(rng.uniform(bounds[:, 0], bounds[:, 1]))
    best: Optimum | None = None
    for number, start in enumerate(starts):
        tell = None if report is None else partial(report, number)
        try:
            run = _Run(objective, start, bounds, not callable(optimizer), tell, zero, journal)
        except np.linalg.LinAlgError:
            if best is None:
                raise
            continue
        try:
            found = _one_run(run, optimizer, max_iter, ftol, inverse_hessian() if number == 0 else None)
        except SearchStopped:
            found = Optimum(run.best_theta, run.best, 0, False, STOPPED, np.eye(theta.size))
        if best is None or found.value > best.value:
            best = found
        if journal is not None and journal.stopped:
            best = replace(best, converged=False, message=STOPPED)
            break
    assert best is not None
    return best


class _Run:
    """The negative objective as the optimiser sees it: scaled, clipped to the bounds, failures survived."""

    def __init__(
        self, objective: Objective, start: Array, bounds: Array, scaled: bool, report: Callable | None, zero: float,
        journal: Journal | None = None,
    ):  # fmt: skip
        self.objective, self.bounds, self.report, self.zero, self.journal = objective, bounds, report, zero, journal
        self.cold = False  # whether evaluations were recalled since the objective was last computed
        value, gradient = objective(start)
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            raise np.linalg.LinAlgError("the objective is not finite at the start")
        # L-BFGS-B's first step is the whole gradient when all variables are bounded: make it a step of about one
        self.scale = 1.0 / max(1.0, float(np.max(np.abs(gradient)))) if scaled else 1.0
        self.worst = self.best = value
        self.best_theta, self.calls = start, 1
        self._last = start, (value, gradient)
        self._tell(value)

    def __call__(self, x: Array) -> tuple[float, Array]:
        x = np.clip(x, self.bounds[:, 0], self.bounds[:, 1])
        if np.array_equal(x, self._last[0]):
            return -self.scale * (self._last[1][0] - self.zero), -self.scale * self._last[1][1]
        self.calls += 1
        value, gradient = self._evaluated(x)
        if not np.isfinite(value):
            worst = self.worst - self.zero
            return self.scale * (-worst + 1e3 * (1.0 + abs(worst))), np.zeros_like(x)
        self.worst = min(self.worst, value)
        if value > self.best:
            self.best, self.best_theta = value, x.copy()
        self._tell(value)
        self._last = x.copy(), (value, gradient)
        return -self.scale * (value - self.zero), -self.scale * gradient

    def _evaluated(self, x: Array) -> tuple[float, Array]:
        """The objective, computed or recalled; NaN where it cannot be computed."""
        if self.journal is not None:
            if self.journal.stopped:
                raise SearchStopped
            known = self.journal.recall(x)
            if known is not None:
                self.cold = True
                return known["value"], np.array(known["gradient"])
            if self.cold:  # searches for a posterior start from the best so far: let it be there
                self.cold = False
                with suppress(np.linalg.LinAlgError):
                    self.objective(self.best_theta)
        try:
            value, gradient = self.objective(x)
        except np.linalg.LinAlgError:
            value, gradient = np.nan, np.zeros_like(x)
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            value, gradient = np.nan, np.zeros_like(x)
        if self.journal is not None:
            self.journal.note(x, value=value, gradient=gradient)
        return value, gradient

    def _tell(self, value: float) -> None:
        if self.report is not None:
            self.report(self.calls, value)


def _one_run(
    run: _Run, optimizer: str | Callable, max_iter: int, ftol: float, inverse_hessian: Array | None
) -> Optimum:
    start, unknown = run.best_theta, np.eye(run.best_theta.size)
    if callable(optimizer):
        answer = optimizer(run, start, run.bounds)
        try:
            theta = np.asarray(answer[0], dtype=float)
        except (TypeError, ValueError, LookupError):
            theta = np.empty(0)
        if theta.shape != start.shape or not np.all(np.isfinite(theta)):
            raise ValueError(
                f"the optimizer must return (theta, value) with {start.size} finite numbers in theta; got {answer!r}. "
                "From a result of scipy.optimize.minimize return (result.x, result.fun)."
            )
        run(theta)
        return Optimum(run.best_theta, run.best, 0, True, "user's optimizer", unknown)
    n_iter = 0
    if inverse_hessian is not None:
        found = _preconditioned(run, inverse_hessian, max_iter, ftol)
        if found.converged:
            return found
        n_iter = found.n_iter
    result = minimize(
        run,
        run.best_theta,
        jac=True,
        bounds=run.bounds,
        method="L-BFGS-B",
        # ftol is relative to the objective itself, gtol absolute, whatever the scale
        options={
            "maxiter": max_iter - n_iter,
            "maxcor": 20,
            "gtol": GTOL * run.scale,
            "ftol": ftol * min(1.0, run.scale * max(1.0, abs(run.best - run.zero))),
        },
    )
    # L-BFGS-B calls an exhausted line search abnormal; at a flat optimum it is the limit of rounding
    flat = np.max(np.abs(_projected(result.x, result.jac / run.scale, run.bounds)), initial=0.0) < 1e-2
    converged = bool(result.success or flat)
    return Optimum(
        run.best_theta,
        run.best,
        n_iter + int(result.nit),
        converged,
        str(result.message),
        result.hess_inv.todense() * run.scale,
        stuck=result.status == ABNORMAL and not converged,
    )


def _preconditioned(run: _Run, inverse_hessian: Array, max_iter: int, ftol: float) -> Optimum:
    """BFGS whose first inverse Hessian is given, with full steps first; parameters pushed against a bound are held.

    It ends when the gain that the quadratic model still predicts is well below ``ftol``, relative to the objective: no
    evaluation is spent on seeing that nothing is left to gain.
    """
    scale, run.scale, H = run.scale, 1.0, inverse_hessian.copy()
    low, high = run.bounds.T
    theta, (value, gradient) = run._last
    message, converged, iteration, reach = "no step of the preconditioned search rises", False, 0, LONGEST
    for iteration in range(max_iter):
        free = ~(((theta <= low) & (gradient <= 0)) | ((theta >= high) & (gradient >= 0)))
        step = np.zeros_like(theta)
        step[free] = _with_others_held(H, free) @ gradient[free]
        slope, t = float(step @ gradient), 1.0
        if iteration and 0.5 * slope <= OF_A_MODEL * ftol * max(1.0, abs(value - run.zero)):
            message, converged = "what is left to gain is below ftol", True
            break
        if (length := np.max(np.abs(step))) > reach:
            step, slope = step * (reach / length), slope * (reach / length)
        while t >= SHORTEST:
            trial = np.clip(theta + t * step, low, high)
            moved = trial - theta
            rise = run.zero - run(trial)[0] - value
            if rise >= SUFFICIENT * float(moved @ gradient) > 0:
                break
            # the top of the parabola through what is known, within reason
            t *= float(np.clip(0.5 * t * slope / max(t * slope - rise, np.finfo(float).tiny), 0.1, 0.5))
        else:
            break
        value, (before, gradient) = value + rise, (gradient, run._last[1][1])
        theta, H = trial, _bfgs(H, moved, before, gradient)
        reach = 2.0 * reach if t == 1.0 else LONGEST
    run.scale = scale
    return Optimum(run.best_theta, run.best, iteration, converged, message, H)


def _with_others_held(H: Array, free: NDArray[np.bool_]) -> Array:
    """The inverse Hessian in some of the variables, from that in all of them (a Schur complement)."""
    cross = H[np.ix_(free, ~free)]
    # by least squares: a singular guess has nothing to say about what is held
    return H[np.ix_(free, free)] - cross @ np.linalg.lstsq(H[np.ix_(~free, ~free)], cross.T, rcond=None)[0]


def _bfgs(H: Array, s: Array, before: Array, after: Array) -> Array:
    """The inverse Hessian of the negative objective after a step s upwards, with the gradients at both ends.

    Where the objective gets steeper along the step there is no curvature to learn. The step was too short then: the
    next one along it is made twice as long, as H g gains s for the gradient g before. An H that stays as it is takes
    hundreds of steps of a hundredth each (variances of angles in tight groups, on their way to a bound).
    """
    y = before - after
    curvature = float(s @ y)
    if curvature <= 0:
        return H + np.outer(s, s) / float(s @ before)
    E = np.eye(len(s)) - np.outer(s, y) / curvature
    return E @ H @ E.T + np.outer(s, s) / curvature  # Nocedal and Wright 2006, eq. (6.17)


def _projected(x: Array, gradient: Array, bounds: Array) -> Array:
    """The gradient without the components that push against a bound."""
    return np.clip(x - gradient, bounds[:, 0], bounds[:, 1]) - x
