"""Section 4.1: Taylor inference with c = 0 is one-against-all label regression.

At the expansion point zero, the Taylor targets of a class indicator y are ``d y - 1``, and without the coupling of
the classes (c = 0) the noise is ``d`` for every class: d independent Gaussian process regressions on the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from ggpm.estimators import GGPClassifier
from ggpm.kernels import median_distance
from ggpm.paper.runner import Report, Row, Runner, Table, column, group
from ggpm.sites import Taylor

Array = NDArray[np.float64]

DATA = {"wine": load_wine, "iris": load_iris}
INFERENCES: dict[str, Any] = {"Taylor, c = 0": Taylor(c=0), "Taylor, c = 1": "taylor", "Laplace": "laplace"}
REGRESSION = "label regression"


@dataclass(frozen=True)
class Settings:
    """Folds of the cross-validation and data sets (both come with scikit-learn)."""

    folds: int = 10
    data: tuple[str, ...] = ("wine", "iris")


FAST = Settings(folds=5, data=("wine",))


def trial(settings: Settings, task: tuple[str, int, int]) -> list[Row]:
    """All methods on one fold; the label regression uses the kernel that Taylor with c = 0 learned."""
    name, fold, seed = task
    X, y = DATA[name](return_X_y=True)
    split = StratifiedKFold(settings.folds, shuffle=True, random_state=seed)
    train, test = list(split.split(X, y))[fold]
    scaler = StandardScaler().fit(X[train])
    X_train, X_test = scaler.transform(X[train]), scaler.transform(X[test])
    kernel = ConstantKernel(1.0) * RBF(median_distance(X_train))
    rows = []
    for method, inference in INFERENCES.items():
        model = GGPClassifier(kernel, inference=inference).fit(X_train, y[train])
        accuracy, log_loss = _scores(model.predict_proba(X_test), y[test])
        rows.append(_row(name, fold, method, accuracy, log_loss, ""))
        if method == "Taylor, c = 0":
            d = len(model.classes_)
            labels = d * (y[train][:, None] == model.classes_) - 1.0  # paper sec. 4.1: t = d y - 1, noise d/N, N = 1
            regression = GaussianProcessRegressor(model.kernel_, alpha=d, optimizer=None).fit(X_train, labels)
            latent = model.predict_latent(X_test)[0]
            predicted = regression.predict(X_test)
            difference = float(np.max(np.abs(predicted - latent)))
            hit = float(np.mean(model.classes_[predicted.argmax(axis=1)] == y[test]))
            rows.append(_row(name, fold, REGRESSION, hit, "", difference))
    return rows


def _row(data: str, fold: int, method: str, accuracy: float, log_loss: Any, difference: Any) -> Row:
    return {
        "data": data, "fold": fold, "method": method, "accuracy": accuracy, "log_loss": log_loss,
        "difference_from_taylor_c0": difference,
    }  # fmt: skip


def _scores(p: Array, y: NDArray) -> tuple[float, float]:
    return float(np.mean(p.argmax(axis=1) == y)), float(-np.mean(np.log(p[np.arange(len(y)), y])))


def run(settings: Settings, seed: int, runner: Runner) -> Report:
    """Cross-validated accuracy of all methods, and the largest difference between the two predictions."""
    tasks = [(name, fold, seed) for name in settings.data for fold in range(settings.folds)]
    rows = runner.run("labels", partial(trial, settings), tasks)
    body: list[list[Any]] = []
    for (data, method), these in group(rows, "data", "method").items():
        loss = None if method == REGRESSION else float(column(these, "log_loss").mean())
        gap = f"{column(these, 'difference_from_taylor_c0').max():.1e}" if method == REGRESSION else ""
        body.append([data, method, float(column(these, "accuracy").mean()), loss, gap])
    columns = ["data", "method", "accuracy", "log loss", "largest difference from Taylor, c = 0"]
    return Report("labels", rows, [Table(f"Label regression, {settings.folds}-fold cross-validation", columns, body)])
