"""Which of several models predicts best: leave-one-out densities side by side, with weights to average them by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.utils.validation import check_is_fitted

from ggpm.data import frames
from ggpm.data.checks import as_numbers
from ggpm.prediction.loo import LeaveOneOut, not_comparable

__all__ = ["compare", "stacking_weights"]

Array = NDArray[np.float64]

EM_STEPS = 200  # after SciPy's search, which ends where a mean log density gains 1e-12: each step gains or stands still
# Rows for every learned hyperparameter below which densities at held hyperparameters say little: each of them has seen
# the row that is left out, and is worth about a nat over all rows.
ROWS_PER_HYPERPARAMETER = 10
UNANSWERED = 0.1  # share of rows without an answer from which it is told


def compare(models: Mapping[str, Any], *, groups: Any = None, folds: int = 10) -> Any:
    """Compare models of the same rows by leave-one-out log predictive densities: a pandas frame, best model first.

    Parameters
    ----------
    models : dict of names and fitted models, or what their `loo` gave
    groups : array (n,), optional
        Labels of rows that hang together (a station, a patient, a day): then whole groups are left out, in ``folds``
        folds. Single rows of a group are known from its others: leaving out one says little of new groups.
    folds : int
        For groups: how many times rows are left out; as many as there are groups at most.

    Returns
    -------
    pandas.DataFrame
        Indexed by name, with the columns

        ==================  ============================================================================
        elpd, se            sum of the log densities of rows given the others, and its standard error
        p_eff               effective number of parameters, `LeaveOneOut.effective_parameters`
        difference          from the elpd of the first model: below zero, or zero
        difference_se       its standard error, row by row
        weight              of the model in an average (`stacking_weights`)
        note                reasons not to trust the row, or nothing
        ==================  ============================================================================

    Differences of less than four nats, or of less than two standard errors, say little (Sivula et al. 2020).

    Examples
    --------
    >>> from ggpm import GGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(0, 4, 40)[:, None]
    >>> y = rng.gamma(10.0, np.exp(np.sin(2 * X[:, 0])) / 10)
    >>> models = {name: GGPRegressor(name).fit(X, y) for name in ("gaussian", "gamma")}
    >>> table = compare(models)
    >>> table.index.tolist(), table.weight.round(1).tolist()
    (['gamma', 'gaussian'], [1.0, 0.0])
    """
    pandas = frames.require("pandas")
    if not isinstance(models, Mapping) or not models:
        got = "an empty one" if isinstance(models, Mapping) else type(models).__name__
        raise TypeError(f"models must be a dictionary of names and fitted models; got {got}.")
    named = {str(name): model for name, model in models.items()}
    if len(named) < len(models):
        raise ValueError(f"models must have names that differ as text; got {', '.join(map(repr, models))}.")
    found = {name: _densities(model, groups, folds) for name, model in named.items()}
    names = list(found)
    for name in names[1:]:
        reason = not_comparable(found[names[0]], found[name])
        if reason:
            raise ValueError(f"models {names[0]!r} and {name!r} are not of the same outputs: {reason}")
    names.sort(key=lambda name: -found[name].total)
    best = found[names[0]]
    weights = stacking_weights(np.stack([found[name].pointwise for name in names], axis=1))
    rows = {}
    for name, weight in zip(names, weights):
        loo = found[name]
        gain = loo - best
        rows[name] = {
            "elpd": loo.total, "se": loo.standard_error, "p_eff": loo.effective_parameters, "difference": gain.total,
            "difference_se": gain.standard_error, "weight": weight, "note": _note(named[name], loo),
        }  # fmt: skip
    table = pandas.DataFrame.from_dict(rows, orient="index")
    table.index.name = "model"
    return table


def _densities(model: Any, groups: Any, folds: int) -> LeaveOneOut:
    if isinstance(model, LeaveOneOut):
        return model
    if not hasattr(model, "loo"):
        raise TypeError(f"models must be fitted models or their loo(); got {type(model).__name__}.")
    check_is_fitted(model)
    return model.loo() if groups is None else model.loo(groups=groups, folds=folds)


def _note(model: Any, loo: LeaveOneOut) -> str:
    """Reasons not to trust leave-one-out densities of a model."""
    told = []
    if not np.all(np.isfinite(loo.pointwise)):
        told.append(f"{np.sum(~np.isfinite(loo.pointwise))} row(s) have no density")
    if loo.responded is not None and loo.responded.any() and (~loo.responded).mean() > UNANSWERED:
        told.append(f"{np.sum(~loo.responded)} row(s) to whose absence the others could not answer")
    if not isinstance(model, LeaveOneOut):
        learned = 0 if model.optimizer is None else model.theta_.size
        if ROWS_PER_HYPERPARAMETER * learned > len(loo.pointwise):
            told.append(f"{learned} hyperparameters learned from {len(loo.pointwise)} rows, which left-out rows shaped")
        if not model.converged_:
            told.append("the fit did not converge")
    return "; ".join(told)


def stacking_weights(log_densities: Any, row_weight: Any = None) -> Array:
    """Weights of models, (K,), on the simplex, under which their mixture has the largest sum of log densities.

    That is the maximum over w of ``sum_i log sum_k w_k p_ik`` (Yao, Vehtari, Simpson and Gelman 2018, eq. 5), which is
    concave: with leave-one-out densities p_ik the best mixture for new rows, not the most probable model.

    Parameters
    ----------
    log_densities : array (n, K)
        Log densities of n rows under K models.
    row_weight : array (n,), optional
        How many times each row counts.

    Examples
    --------
    >>> stacking_weights(np.log([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])).round(3)
    array([0.708, 0.292])
    """
    values = as_numbers(log_densities, "log_densities", "log densities")
    if values.ndim != 2 or not values.size:
        raise ValueError(f"log_densities must be numbers of shape (rows, models); got shape {values.shape}.")
    bad = np.argwhere(np.isnan(values) | (values == np.inf))
    if len(bad):
        row, model = bad[0]
        raise ValueError(f"log_densities must be below infinity; row {row} of model {model} has {values[row, model]}.")
    top = values.max(axis=1, keepdims=True)
    if not np.all(np.isfinite(top)):
        raise ValueError(f"row {int(np.argmin(np.isfinite(top)))} has a density of zero under every model.")
    p, K = np.exp(values - top), values.shape[1]
    share = np.ones(len(p)) if row_weight is None else np.asarray(row_weight, dtype=np.float64)
    share = share / share.sum()

    def loss(w: Array) -> tuple[float, Array]:
        mixed = np.maximum(p @ w, np.finfo(float).tiny)
        return -float(share @ np.log(mixed)), -(share @ (p / mixed[:, None]))

    w = np.full(K, 1.0 / K)
    if K > 1:
        one = {"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(K)}
        tried = minimize(
            loss, w, jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * K, constraints=one,
            options={"ftol": 1e-12, "maxiter": 1000},
        )  # fmt: skip
        ahead = np.clip(tried.x, 0.0, None) / np.clip(tried.x, 0.0, None).sum()
        w = ahead if loss(ahead)[0] < loss(w)[0] else w
        for _ in range(EM_STEPS):
            w = -w * loss(w)[1]
            w /= w.sum()
    return w
