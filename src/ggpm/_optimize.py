"""Maximisation of an objective over bounded log-hyperparameters, with restarts and failures survived."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]


@dataclass(frozen=True)
class Optimum:
    """Where the search ended."""

    theta: Array
    value: float
    n_iter: int
    converged: bool
    n_failures: int
    message: str


def maximise(
    objective: Objective,
    theta: Array,
    bounds: Array,
    *,
    optimizer: str | Callable = "fmin_l_bfgs_b",
    n_restarts: int = 0,
    rng: np.random.Generator | None = None,
    max_iter: int = 200,
    report: Callable[[int, int, float], None] | None = None,
) -> Optimum:
    """The best local maximum found from ``theta`` and from ``n_restarts`` random points within the bounds.

    An evaluation that raises `numpy.linalg.LinAlgError` or is not finite counts as a very low value: the line
    search retreats from it. Only if the very first evaluation fails is the error passed on.
    """
    if n_restarts and not np.all(np.isfinite(bounds)):
        raise ValueError("n_restarts_optimizer > 0 needs finite bounds for every hyperparameter.")
    starts = [np.clip(theta, bounds[:, 0], bounds[:, 1])]
    for _ in range(n_restarts):
        assert rng is not None
        starts.append(rng.uniform(bounds[:, 0], bounds[:, 1]))
    best: Optimum | None = None
    for run, start in enumerate(starts):
        found = _one_run(objective, start, bounds, optimizer, max_iter, run, report, must_start=best is None)
        if found is not None and (best is None or found.value > best.value):
            best = found
    assert best is not None
    return best


def _one_run(objective, start, bounds, optimizer, max_iter, run, report, must_start) -> Optimum | None:
    seen: dict[str, float] = {"worst": np.inf, "best": -np.inf, "failures": 0, "calls": 0}
    best_theta = start

    def negative(x: Array) -> tuple[float, Array]:
        nonlocal best_theta
        x = np.clip(x, bounds[:, 0], bounds[:, 1])
        seen["calls"] += 1
        try:
            value, gradient = objective(x)
            if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
                raise np.linalg.LinAlgError("objective or gradient is not finite")
        except np.linalg.LinAlgError:
            if seen["calls"] == 1:
                raise
            seen["failures"] += 1
            return -seen["worst"] + 1e3 * (1.0 + abs(seen["worst"])), np.zeros_like(x)
        seen["worst"] = min(seen["worst"], value)
        if value > seen["best"]:
            seen["best"], best_theta = value, x.copy()
        if report is not None:
            report(run, int(seen["calls"]), value)
        return -value, -gradient

    try:
        if callable(optimizer):
            theta, _ = optimizer(negative, start, bounds)
            negative(np.asarray(theta))
            return Optimum(best_theta, seen["best"], 0, True, int(seen["failures"]), "user's optimizer")
        if optimizer != "fmin_l_bfgs_b":
            raise ValueError(f"optimizer must be 'fmin_l_bfgs_b', a callable or None; got {optimizer!r}.")
        result = minimize(
            negative, start, jac=True, bounds=bounds, method="L-BFGS-B",
            options={"maxiter": max_iter, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-5},
        )  # fmt: skip
    except np.linalg.LinAlgError:
        if must_start:
            raise
        return None
    # L-BFGS-B calls an exhausted line search abnormal; at a flat optimum it is the limit of rounding
    flat = np.linalg.norm(_projected(result.x, result.jac, bounds), np.inf) < 1e-2
    return Optimum(
        best_theta,
        seen["best"],
        int(result.nit),
        bool(result.success or flat),
        int(seen["failures"]),
        str(result.message),
    )


def _projected(x: Array, gradient: Array, bounds: Array) -> Array:
    """The gradient without the components that push against a bound."""
    return np.clip(x - gradient, bounds[:, 0], bounds[:, 1]) - x


def warn_unconverged(what: str) -> None:
    """Tell the user, in scikit-learn's category, what did not converge and what to try."""
    warnings.warn(what, ConvergenceWarning, stacklevel=3)
