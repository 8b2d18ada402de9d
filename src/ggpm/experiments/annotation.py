"""Figure 3: words for images, from colour histograms (paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel
from sklearn.model_selection import KFold

from ggpm.baselines import LabelFrequency, OneVsRestGPC
from ggpm.estimators import GGPClassifier, GGPRegressor
from ggpm.experiments.features import Annotated, read
from ggpm.experiments.runner import Report, Row, Runner, Table, column, group, require, seeds
from ggpm.experiments.triangle import p_value
from ggpm.families import Dirichlet
from ggpm.kernels import median_distance

__all__ = ["FAST", "Settings", "f_scores", "read", "run"]

Array = NDArray[np.float64]
Present = NDArray[np.bool_]

TOP = 3  # "the top-ranked annotations": k = 1, 2, 3
AMPLITUDES = (1.0, 5.0, 25.0, 100.0)  # of the cross-validated kernels, as variances
LENGTHS = (0.5, 1.0, 2.0, 4.0)  # in median distances


@dataclass(frozen=True)
class Settings:
    """Size of the experiment; the default is the paper's.

    Parameters
    ----------
    splits : number of random splits
    train : share of the images that train (the paper: 300 of 482)
    folds : of the cross-validation within the training images
    choices : splits on which further choices are compared; 0 leaves them out
    """

    splits: int = 10
    train: float = 300 / 482
    folds: int = 3
    choices: int = 3


FAST = Settings(splits=1, choices=0)


def f_scores(scores: Array, present: Present) -> Array:
    """Average per-word F-score when every image is annotated with its k best words, for k = 1, ..., d.

    Parameters
    ----------
    scores : array (m, d), larger is more probable
    present : boolean array (m, d)

    Returns
    -------
    array (d,)
        A word that is never right has F = 0.

    Examples
    --------
    >>> f_scores(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[True, False], [False, True]]))
    array([1.        , 0.66666667])
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    given = np.zeros(scores.shape, dtype=bool)
    out = []
    for k in range(scores.shape[1]):
        np.put_along_axis(given, order[:, k : k + 1], True, axis=1)
        right = (given & present).sum(axis=0)
        # F = 2 P R / (P + R) = 2 right / (given + present)
        total = given.sum(axis=0) + present.sum(axis=0)
        out.append(np.mean(np.divide(2.0 * right, total, out=np.zeros(len(total)), where=total > 0)))
    return np.array(out)


def composition(present: Present) -> Array:
    """Presence as a probability vector: equal shares of the words that are there.

    >>> composition(np.array([[True, True, False]]))
    array([[0.5, 0.5, 0. ]])
    """
    return present / present.sum(axis=1, keepdims=True)


def rbf(X: Array) -> Kernel:
    """``ConstantKernel * RBF``, started at the median distance."""
    return ConstantKernel(1.0, (1e-4, 1e4)) * RBF(median_distance(X), (1e-2, 1e2))


def dirichlet(kernel: Any, **settings: Any) -> GGPRegressor:
    """The Dirichlet model with zeros replaced by additive smoothing (epsilon = 1e-3 unless told otherwise)."""
    family = {"zeros": "additive", "zeros_epsilon": 1e-3, **settings}
    optimizer = family.pop("optimizer", "fmin_l_bfgs_b")
    return GGPRegressor(Dirichlet(**family), kernel, optimizer=optimizer)


def by_evidence(X: Array, present: Present, X_test: Array, *, separate: bool = False, **settings: Any) -> Array:
    """Scores of the Dirichlet model, kernel learned by maximising the evidence."""
    kernel = [rbf(X)] * present.shape[1] if separate else rbf(X)
    return dirichlet(kernel, **settings).fit(X, composition(present)).predict(X_test)


def gpc_by_evidence(X: Array, present: Present, X_test: Array) -> Array:
    """Scores of one binary classifier per word, each with its own learned kernel."""
    return OneVsRestGPC(rbf(X)).fit(X, present).predict(X_test)


def hard_ranking(X: Array, present: Present, X_test: Array) -> Array:
    """Words by their frequency, the same for every image."""
    return LabelFrequency().fit(X, present).predict(X_test)


def _dirichlet_with(kernel: Kernel, X: Array, present: Present, X_test: Array) -> Array:
    return dirichlet(kernel, optimizer=None).fit(X, composition(present)).predict(X_test)


def _gpc_with(kernel: Kernel, X: Array, present: Present, X_test: Array) -> Array:
    columns = []
    for word in present.T:
        if word.all() or not word.any():  # a fold may lack a rare word
            columns.append(np.full(len(X_test), float(word[0])))
            continue
        columns.append(GGPClassifier(kernel, optimizer=None).fit(X, word).predict_proba(X_test)[:, 1])
    return np.stack(columns, axis=1)


def candidates(X: Array) -> Iterator[Kernel]:
    """The kernels that cross-validation chooses from: four amplitudes times four length scales."""
    scale = median_distance(X)
    for amplitude in AMPLITUDES:
        for length in LENGTHS:
            yield ConstantKernel(amplitude) * RBF(length * scale)


def by_cross_validation(
    scorer: Callable[[Kernel, Array, Present, Array], Array], folds: int, X: Array, present: Present, X_test: Array
) -> Array:
    """Scores with the one kernel whose pooled out-of-fold F-score, averaged over k = 1, 2, 3, is best."""

    def quality(kernel: Kernel) -> float:
        pooled = np.empty(present.shape)
        for train, test in KFold(folds).split(X):  # the rows are in random order already
            pooled[test] = scorer(kernel, X[train], present[train], X[test])
        return float(f_scores(pooled, present)[:TOP].mean())

    return scorer(max(candidates(X), key=quality), X, present, X_test)


def _methods(settings: Settings) -> dict[str, Callable[[Array, Present, Array], Array]]:
    return {
        "Dirichlet (evidence)": by_evidence,
        "Dirichlet (cross-validated)": partial(by_cross_validation, _dirichlet_with, settings.folds),
        "GPC (evidence)": gpc_by_evidence,
        "GPC (cross-validated)": partial(by_cross_validation, _gpc_with, settings.folds),
        "hard ranking": hard_ranking,
    }


# name -> (scores, whether histograms enter by their square roots)
CHOICES: dict[str, tuple[Callable[[Array, Present, Array], Array], bool]] = {
    "Dirichlet, additive 1e-3 (as above)": (by_evidence, True),
    "Dirichlet, additive 0.05": (partial(by_evidence, zeros_epsilon=0.05), True),
    "Dirichlet, additive 0.5": (partial(by_evidence, zeros_epsilon=0.5), True),
    "Dirichlet, a kernel for each word": (partial(by_evidence, separate=True), True),
    "Dirichlet, histograms as they are": (by_evidence, False),
    "GPC, histograms as they are": (gpc_by_evidence, False),
}


def trial(settings: Settings, data: Annotated, task: tuple[int, str, str, np.random.SeedSequence]) -> list[Row]:
    """One method on one split: its F-scores for all k."""
    number, part, name, stream = task
    rng = np.random.default_rng(np.random.SeedSequence(stream.entropy, spawn_key=stream.spawn_key))
    order = rng.permutation(len(data.X))
    n_train = round(settings.train * len(data.X))
    train, test = order[:n_train], order[n_train:]
    method, root = (_methods(settings)[name], True) if part == "methods" else CHOICES[name]
    # RBF on the square roots is the Hellinger distance between histograms
    X = np.sqrt(data.X) if root else data.X
    curve = f_scores(method(X[train], data.present[train], X[test]), data.present[test])
    return [
        {"part": part, "method": name, "split": number, "k": k + 1, "f_score": float(f)} for k, f in enumerate(curve)
    ]


def run(settings: Settings, seed: int, runner: Runner, data: Annotated) -> Report:
    """The whole experiment: the curves of all methods, paired tests, and how much the choices matter."""
    streams = seeds(seed, settings.splits)
    tasks = [(i, "methods", name, stream) for name in _methods(settings) for i, stream in enumerate(streams)]
    chosen = list(enumerate(streams[: settings.choices]))
    tasks += [(i, "choices", name, stream) for name in CHOICES for i, stream in chosen]
    rows = runner.run("annotation", partial(trial, settings, data), tasks)
    d = len(data.words)
    title = f"Average per-word F-score with k words per image, {settings.splits} splits"
    tables = [_curves(rows, "methods", title, d)]
    if settings.splits > 1:
        tables.append(_tests(rows))
    if settings.choices:
        tables.append(_curves(rows, "choices", f"How much the choices matter ({len(chosen)} splits, evidence)", d))
    return Report("annotation", rows, tables, partial(draw, rows, d))


def _f(rows: list[Row], part: str, method: str, k: int) -> Array:
    found = [row for row in rows if row["part"] == part and row["method"] == method and row["k"] == k]
    return column(sorted(found, key=lambda row: row["split"]), "f_score")


def _names(rows: list[Row], part: str) -> list[str]:
    return [name for (name,) in group((row for row in rows if row["part"] == part), "method")]


def _curves(rows: list[Row], part: str, title: str, d: int) -> Table:
    body = [[name, *(float(_f(rows, part, name, k).mean()) for k in range(1, d + 1))] for name in _names(rows, part)]
    return Table(title, ["method", *(f"k={k}" for k in range(1, d + 1))], body, digits=3)


def _tests(rows: list[Row]) -> Table:
    pairs = [
        ("Dirichlet (evidence)", "GPC (evidence)"),
        ("Dirichlet (cross-validated)", "GPC (evidence)"),
        ("Dirichlet (cross-validated)", "GPC (cross-validated)"),
        ("Dirichlet (evidence)", "hard ranking"),
        ("Dirichlet (cross-validated)", "hard ranking"),
    ]
    body = []
    for mine, other in pairs:
        for k in range(1, TOP + 1):
            a, b = _f(rows, "methods", mine, k), _f(rows, "methods", other, k)
            body.append([mine, other, k, f"{(a - b).mean():+.3f}", f"{p_value(a, b):.1e}"])
    return Table("Top-ranked words: differences in F, paired t-tests over splits", ["a", "b", "k", "a - b", "p"], body)


# ---- figure ----------------------------------------------------------------------------------------------------
def draw(rows: list[Row], d: int, path: Path) -> None:
    """The curves of figure 3, with standard errors over the splits."""
    plt = require("matplotlib.pyplot")
    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    styles = ("C0o-", "C0o--", "C1s-", "C1s--", "C2^-")
    ks = np.arange(1, d + 1)
    for name, style in zip(_names(rows, "methods"), styles):
        values = np.array([_f(rows, "methods", name, k) for k in range(1, d + 1)])
        count = values.shape[1]
        error = values.std(axis=1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(d)
        fill = None if "-" in style and "--" not in style else "white"
        ax.errorbar(ks, values.mean(axis=1), error, fmt=style, ms=5, mfc=fill, lw=1.3, capsize=2, label=name)
    ax.set(xlabel="words per image, k", ylabel="average per-word F-score", ylim=(0, None))
    ax.set_xticks(ks)
    ax.grid(alpha=0.25)
    ax.legend(fontsize=9, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
