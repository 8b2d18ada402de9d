"""Simpler models of the same family that a report compares with: a constant, and a linear model."""

from __future__ import annotations

import copy
import warnings
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.data.rows import pick
from ggpm.fields.dense import DenseField
from ggpm.kernels import Category, On, placed
from ggpm.kernels.candidates import spreads
from ggpm.kernels.scaled import Scaled
from ggpm.learning.fit import Search, learn
from ggpm.learning.objective import Evidence
from ggpm.sites import Laplace

MOST_ROWS = 500  # from which simpler models are learned: they have few parameters


def baselines(model: Any, X: Any, y: Any, offset: Any, density: NDArray) -> list[dict[str, Any]]:
    """Log densities of simpler models on the held-out rows, and what the model gains over them, per row.

    The constant ignores all inputs; the linear model has straight lines in the latent and a level for each category.
    Both have the model's family, with phi learned anew. Empty where the training rows did not come with the model.
    """
    rows = _training_rows(model)
    if rows is None:
        return []
    out = []
    for name, kernel in (("constant", _constant()), ("linear", _linear(model, rows))):
        fitted = _fitted(model, rows, kernel)
        found = fitted.log_predictive_density(X, y, offset=offset)
        gain = density - found
        out.append({
            "name": name,
            "log_density": float(np.mean(found)),
            "gain": float(np.mean(gain)),
            "gain_standard_error": float(np.std(gain, ddof=1) / np.sqrt(len(gain))),
        })  # fmt: skip
    return out


def _training_rows(model: Any) -> DenseField | None:
    """Some rows that the model was fitted to, encoded; None if it does not hold them."""
    field = model.fit_.evidence.field
    if not field.n_rows:
        return None
    many = field.n_rows > MOST_ROWS
    # a sample even of all: rows of inducing points are encoded, and have their offsets, as they are read
    field = field.sample(pick(field.n_rows, MOST_ROWS, np.random.default_rng(0)) if many else np.arange(field.n_rows))
    held = getattr(field, "rows", field)
    if not hasattr(held, "y"):
        return None
    return DenseField(held.X, held.y, held.offset)


def _constant() -> sk.Kernel:
    return sk.ConstantKernel(1.0, (1e-3, 1e5))


def _linear(model: Any, rows: DenseField) -> sk.Kernel:
    columns = model.fit_.columns
    centre, spread = spreads(rows.X)
    called = columns.names or range(columns.count)
    numbers = [j for j, kind in enumerate(columns.kinds) if kind != "category"]
    parts = [
        sk.ConstantKernel(1.0, (1e-5, 1e5)) * Category(called[j])
        for j, kind in enumerate(columns.kinds)
        if kind == "category"
    ]
    if numbers:
        line = Scaled(sk.DotProduct(0.0, "fixed"), tuple(centre[numbers]), tuple(spread[numbers]))
        parts.append(sk.ConstantKernel(0.1, (1e-5, 1e5)) * On(line, [called[j] for j in numbers]))
    return placed(reduce(add, [*parts, _constant()]), columns)


def _fitted(model: Any, rows: DenseField, kernel: sk.Kernel) -> Any:
    """An estimator of the same kind with another kernel, learned from these rows; it keeps its doubts to itself."""
    fit = model.fit_
    evidence = Evidence(copy.copy(fit.evidence.family), [kernel], rows, Laplace())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learned = learn(evidence, Search("fmin_l_bfgs_b", 0, np.random.default_rng(0), lambda what: None))
        return type(model).from_fit(model.get_params(deep=False), learned.fit(fit.columns, fit.target, fit.offset))
