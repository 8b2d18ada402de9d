"""Figure 3: words for images, from colour histograms (paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.model_selection import KFold

from ggpm.estimators import GGPClassifier, GGPRegressor
from ggpm.families import Dirichlet
from ggpm.kernels import median_distance
from ggpm.paper.baselines import LabelFrequency, OneVsRestGPC
from ggpm.paper.features import Annotated, read
from ggpm.paper.runner import Report, Row, Runner, Table, column, group, require, seeds
from ggpm.paper.triangle import p_value

__all__ = ["FAST", "Settings", "f_scores", "read", "run"]

Array = NDArray[np.float64]
Present = NDArray[np.bool_]

TOP = 3  # "the top-ranked annotations": k = 1, 2, 3
AMPLITUDES = (1.0, 5.0, 25.0, 100.0)  # of the cross-validated kernels, as variances
LBFGS = "fmin_l_bfgs_b"
FOLDS = 3  # of the cross-validation within the training images
LENGTHS = (0.5, 1.0, 2.0, 4.0)  # in median distances


@dataclass(frozen=True)
class Settings:
    """Size of the experiment; the default is the paper's.

    Parameters
    ----------
    splits : number of random splits
    train : share of the images that train (the paper: 300 of 482)
    choices : splits on which further choices are compared; 0 leaves them out
    """

    splits: int = 10
    train: float = 300 / 482
    choices: int = 10


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


@dataclass(frozen=True)
class Ranking:
    """Scores of the words for the test images, and what the evidence says that the images explain."""

    scores: Array
    gain: float | None = None
    """Log evidence minus that of the same model with a constant kernel, in nats; None without evidence."""


Method = Callable[[Array, Present, Array], Ranking]


def rbf(X: Array) -> Kernel:
    """``ConstantKernel * RBF``, started at the median distance."""
    return ConstantKernel(1.0, (1e-4, 1e4)) * RBF(median_distance(X), (1e-2, 1e2))


def exponential(X: Array) -> Kernel:
    """The same with exp(-r) instead of exp(-r^2/2)."""
    return ConstantKernel(1.0, (1e-4, 1e4)) * Matern(median_distance(X), (1e-2, 1e2), nu=0.5)


def with_intercept(X: Array) -> Kernel:
    """`rbf` plus a constant, so that a level does not have to be explained by a long length scale."""
    return rbf(X) + ConstantKernel(1.0, (1e-4, 1e4))


def dirichlet(
    kernel: Any, *, inference: Any = "laplace", objective: str = "evidence", optimizer: Any = LBFGS, **family
):
    """The Dirichlet model with zeros replaced by additive smoothing (epsilon = 1e-3 unless told otherwise)."""
    family = {"zeros": "additive", "zeros_epsilon": 1e-3, **family}
    return GGPRegressor(Dirichlet(**family), kernel, inference=inference, objective=objective, optimizer=optimizer)


def multinomial(
    kernel: Any, *, inference: Any = "laplace", objective: str = "evidence", optimizer: Any = LBFGS
) -> GGPRegressor:
    """The multinomial model: the words of an image are draws from its distribution of words, each seen at most once."""
    return GGPRegressor("multinomial", kernel, inference=inference, objective=objective, optimizer=optimizer)


# A model with what it takes the words of an image for: shares of a whole, or counts.
Described = tuple[Callable[..., GGPRegressor], Callable[[Present], Array]]
SHARES: Described = (dirichlet, composition)
COUNTS: Described = (multinomial, lambda present: present.astype(float))


def by_learning(
    described: Described, X: Array, present: Present, X_test: Array, *, kernel: Callable[[Array], Kernel] = rbf,
    separate: bool = False, objective: str = "evidence", **settings: Any,
) -> Ranking:  # fmt: skip
    """A model of all words together, kernel learned by maximising the evidence or leave-one-out densities."""
    make, targets = described
    y = targets(present)
    own = [kernel(X)] * present.shape[1] if separate else kernel(X)
    model = make(own, objective=objective, **settings).fit(X, y)
    if objective != "evidence":
        return Ranking(model.predict(X_test))
    constant = make(ConstantKernel(), **settings).fit(X, y)
    gain = model.log_marginal_likelihood_value_ - constant.log_marginal_likelihood_value_
    return Ranking(model.predict(X_test), gain)


by_evidence = partial(by_learning, SHARES)


def gpc_by_evidence(
    X: Array, present: Present, X_test: Array, *, kernel: Callable[[Array], Kernel] = rbf, inference: Any = "laplace"
) -> Ranking:
    """One binary classifier per word, each with its own learned kernel."""
    model, constant = (OneVsRestGPC(k, inference=inference).fit(X, present) for k in (kernel(X), ConstantKernel()))
    evidence = [sum(c.log_marginal_likelihood_value_ for c in m.classifiers_ if c) for m in (model, constant)]
    return Ranking(model.predict(X_test), evidence[0] - evidence[1])


def gpc_by_loo(X: Array, present: Present, X_test: Array) -> Ranking:
    """The same with kernels learned by leave-one-out densities."""
    return Ranking(gpc_with(rbf(X), X, present, X_test, objective="loo", optimizer=LBFGS))


def hard_ranking(X: Array, present: Present, X_test: Array) -> Ranking:
    """Words by their frequency, the same for every image."""
    return Ranking(LabelFrequency().fit(X, present).predict(X_test))


def model_with(
    described: Described, kernel: Kernel, X: Array, present: Present, X_test: Array, **settings: Any
) -> Array:
    """Scores of a model of all words together with a given kernel."""
    make, targets = described
    return make(kernel, optimizer=None, **settings).fit(X, targets(present)).predict(X_test)


def gpc_with(
    kernel: Kernel, X: Array, present: Present, X_test: Array, optimizer: Any = None, **settings: Any
) -> Array:
    """Scores of the classifiers with a given kernel, or one that each of them learns from there."""
    columns = []
    for word in present.T:
        if word.all() or not word.any():  # a fold may lack a rare word
            columns.append(np.full(len(X_test), float(word[0])))
            continue
        model = GGPClassifier(kernel, inference="laplace", optimizer=optimizer, **settings).fit(X, word)
        columns.append(model.predict_proba(X_test)[:, 1])
    return np.stack(columns, axis=1)


def candidates(X: Array) -> Iterator[Kernel]:
    """The kernels that cross-validation chooses from: four amplitudes times four length scales."""
    scale = median_distance(X)
    for amplitude in AMPLITUDES:
        for length in LENGTHS:
            yield ConstantKernel(amplitude) * RBF(length * scale)


def by_cross_validation(
    scorer: Callable[[Kernel, Array, Present, Array], Array], X: Array, present: Present, X_test: Array
) -> Ranking:
    """Scores with the one kernel whose pooled out-of-fold F-score, averaged over k = 1, 2, 3, is best."""

    def quality(kernel: Kernel) -> float:
        pooled = np.empty(present.shape)
        for train, test in KFold(FOLDS).split(X):  # the rows are in random order already
            pooled[test] = scorer(kernel, X[train], present[train], X[test])
        return float(f_scores(pooled, present)[:TOP].mean())

    return Ranking(scorer(max(candidates(X), key=quality), X, present, X_test))


METHODS: dict[str, Method] = {
    "Dirichlet (evidence)": by_evidence,
    "Dirichlet (leave-one-out)": partial(by_evidence, objective="loo"),
    "Dirichlet (cross-validated)": partial(by_cross_validation, partial(model_with, SHARES)),
    "multinomial (evidence)": partial(by_learning, COUNTS),
    "multinomial (leave-one-out)": partial(by_learning, COUNTS, objective="loo"),
    "multinomial (cross-validated)": partial(by_cross_validation, partial(model_with, COUNTS)),
    "GPC (evidence)": gpc_by_evidence,
    "GPC (leave-one-out)": gpc_by_loo,
    "GPC (cross-validated)": partial(by_cross_validation, gpc_with),
    "hard ranking": hard_ranking,
}


def chi_square(X: Array) -> Array:
    """Features whose squared distances are chi-square distances of the histograms, sum (a - b)^2/(a + b)."""
    # so many samples of the spectrum give the distances to 0.3 %
    return AdditiveChi2Sampler(sample_steps=10, sample_interval=0.3).fit_transform(X)


# How a histogram enters: RBF on the square roots is a function of the Hellinger distance.
Entering = Callable[[Array], Array]
CHOICES: dict[str, tuple[Method, Entering]] = {
    "additive 1e-3 (as above)": (by_evidence, np.sqrt),
    "additive 0.05": (partial(by_evidence, zeros_epsilon=0.05), np.sqrt),
    "additive 0.2": (partial(by_evidence, zeros_epsilon=0.2), np.sqrt),
    "additive 1": (partial(by_evidence, zeros_epsilon=1.0), np.sqrt),
    "Taylor, additive 1e-3": (partial(by_evidence, inference="taylor"), np.sqrt),
    "Taylor, additive 0.2": (partial(by_evidence, inference="taylor", zeros_epsilon=0.2), np.sqrt),
    "exp link, intercept": (partial(by_evidence, link="exp", kernel=with_intercept), np.sqrt),
    "exp link, intercept, additive 0.2": (
        partial(by_evidence, link="exp", kernel=with_intercept, zeros_epsilon=0.2), np.sqrt,
    ),
    "intercept": (partial(by_evidence, kernel=with_intercept), np.sqrt),
    "a kernel for each word": (partial(by_evidence, separate=True), np.sqrt),
    "a kernel for each word, additive 0.2": (partial(by_evidence, separate=True, zeros_epsilon=0.2), np.sqrt),
    "exponential kernel, additive 0.2": (partial(by_evidence, kernel=exponential, zeros_epsilon=0.2), np.sqrt),
    "chi-square, additive 0.2": (partial(by_evidence, zeros_epsilon=0.2), chi_square),
    "histograms as they are, additive 0.2": (partial(by_evidence, zeros_epsilon=0.2), np.asarray),
    "cross-validated, additive 0.2": (
        partial(by_cross_validation, partial(model_with, SHARES, zeros_epsilon=0.2)), np.sqrt,
    ),
    "multinomial, intercept": (partial(by_learning, COUNTS, kernel=with_intercept), np.sqrt),
    "multinomial, a kernel for each word": (partial(by_learning, COUNTS, separate=True), np.sqrt),
    "multinomial, variational": (partial(by_learning, COUNTS, inference="variational"), np.sqrt),
    "GPC, exponential kernel": (partial(gpc_by_evidence, kernel=exponential), np.sqrt),
    "GPC, chi-square": (gpc_by_evidence, chi_square),
    "GPC, histograms as they are": (gpc_by_evidence, np.asarray),
    "GPC, variational": (partial(gpc_by_evidence, inference="variational"), np.sqrt),
}  # fmt: skip


def trial(settings: Settings, data: Annotated, task: tuple[int, str, str, np.random.SeedSequence]) -> list[Row]:
    """One method on one split: its F-scores for all k."""
    number, part, name, stream = task
    rng = np.random.default_rng(np.random.SeedSequence(stream.entropy, spawn_key=stream.spawn_key))
    order = rng.permutation(len(data.X))
    n_train = round(settings.train * len(data.X))
    train, test = order[:n_train], order[n_train:]
    method, entering = (METHODS[name], np.sqrt) if part == "methods" else CHOICES[name]
    X = entering(data.X)
    ranking = method(X[train], data.present[train], X[test])
    fixed = {"part": part, "method": name, "split": number, "evidence_gain": ranking.gain}
    return [
        {**fixed, "k": k + 1, "f_score": float(f)} for k, f in enumerate(f_scores(ranking.scores, data.present[test]))
    ]


def run(settings: Settings, seed: int, runner: Runner, data: Annotated) -> Report:
    """The whole experiment: the curves of all methods, paired tests, and how much the choices matter."""
    streams = seeds(seed, settings.splits)
    tasks = [(i, "methods", name, stream) for name in METHODS for i, stream in enumerate(streams)]
    chosen = list(enumerate(streams[: settings.choices]))
    tasks += [(i, "choices", name, stream) for name in CHOICES for i, stream in chosen]
    rows = runner.run("annotation", partial(trial, settings, data), tasks)
    d = len(data.words)
    title = f"Average per-word F-score with k words per image, {settings.splits} splits"
    tables = [_curves(rows, "methods", title, d)]
    if settings.splits > 1:
        tables.append(_tests(rows))
    if settings.choices:
        tables.append(_choices(rows, len(chosen)))
    return Report("annotation", rows, tables, partial(draw, rows, d))


def _f(rows: list[Row], part: str, method: str, k: int) -> Array:
    found = [row for row in rows if row["part"] == part and row["method"] == method and row["k"] == k]
    return column(sorted(found, key=lambda row: row["split"]), "f_score")


def _names(rows: list[Row], part: str) -> list[str]:
    return [name for (name,) in group((row for row in rows if row["part"] == part), "method")]


def _curves(rows: list[Row], part: str, title: str, d: int) -> Table:
    body = [[name, *(float(_f(rows, part, name, k).mean()) for k in range(1, d + 1))] for name in _names(rows, part)]
    return Table(title, ["method", *(f"k={k}" for k in range(1, d + 1))], body, digits=3)


def _choices(rows: list[Row], splits: int) -> Table:
    body = []
    learned = [("methods", f"{name} (evidence)") for name in ("multinomial", "GPC")]
    for part, name in [("choices", name) for name in CHOICES] + learned:
        gains = [row["evidence_gain"] for row in rows if (row["part"], row["method"], row["k"]) == (part, name, 1)]
        gain = "" if gains[0] is None else f"{np.mean(gains):.1f}"
        body.append([name, *(float(_f(rows, part, name, k).mean()) for k in range(1, TOP + 3)), gain])
    title = f"How much the choices matter: F-scores and what the images add to the log evidence, {splits} splits"
    return Table(title, ["choice", *(f"k={k}" for k in range(1, TOP + 3)), "gain (nats)"], body, digits=3)


def _tests(rows: list[Row]) -> Table:
    pairs = [
        ("multinomial (evidence)", "Dirichlet (evidence)"),
        ("multinomial (leave-one-out)", "Dirichlet (leave-one-out)"),
        ("multinomial (cross-validated)", "Dirichlet (cross-validated)"),
        ("multinomial (evidence)", "GPC (evidence)"),
        ("multinomial (leave-one-out)", "GPC (leave-one-out)"),
        ("multinomial (cross-validated)", "GPC (cross-validated)"),
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
    styles = ("C0o-", "C0o:", "C0o--", "C3D-", "C3D:", "C3D--", "C1s-", "C1s:", "C1s--", "C2^-")
    ks = np.arange(1, d + 1)
    for name, style in zip(_names(rows, "methods"), styles):
        values = np.array([_f(rows, "methods", name, k) for k in range(1, d + 1)])
        count = values.shape[1]
        error = values.std(axis=1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(d)
        fill = None if style.endswith("-") and not style.endswith("--") else "white"
        ax.errorbar(ks, values.mean(axis=1), error, fmt=style, ms=5, mfc=fill, lw=1.3, capsize=2, label=name)
    ax.set(xlabel="words per image, k", ylabel="average per-word F-score", ylim=(0, None))
    ax.set_xticks(ks)
    ax.grid(alpha=0.25)
    ax.legend(fontsize=9, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
