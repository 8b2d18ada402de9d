"""Figure 2: probability vectors recovered from quantised ones (paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel

from ggpm.estimators import GGPRegressor
from ggpm.families import Dirichlet
from ggpm.families.links import Softplus
from ggpm.kernels import median_distance
from ggpm.paper.baselines import ConstrainedSimplexGP, OneVsRestGPC
from ggpm.paper.runner import Report, Row, Runner, Table, column, group, require, seeds
from ggpm.sites import Taylor

Array = NDArray[np.float64]

THRESHOLD = 0.2  # the paper's
PAPER = {"Dirichlet-Laplace": 0.072, "CGP": 0.16, "GPC": 0.17}


@dataclass(frozen=True)
class Settings:
    """Size and geometry; the paper gives neither, except for the threshold.

    Parameters
    ----------
    trials : number of data sets
    n, n_test : training and test points
    distance : of the three unit Gaussians from the origin
    spread : standard deviation of the samples around the three means; 2 covers the region where the posterior
        probabilities saturate as well as that where they overlap
    grid : points per side of the maps, which cover the training points
    choices : data sets on which the treatment of zeros and other choices are compared; 0 leaves them out
    """

    trials: int = 10
    n: int = 200
    n_test: int = 500
    distance: float = 2.0
    spread: float = 2.0
    grid: int = 41
    choices: int = 10


FAST = Settings(trials=2, grid=25, choices=1)


@dataclass(frozen=True)
class Problem:
    """Three Gaussians, training points with quantised posterior vectors, and points to test on."""

    X: Array
    y: Array
    X_test: Array
    X_map: Array
    centres: Array

    def truth(self, X: Array) -> Array:
        """Posterior probability of each Gaussian (unit covariance, equal weights), (m, 3)."""
        logits = X @ self.centres.T - 0.5 * np.sum(self.centres**2, axis=1)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)


def quantise(p: Array, reading: str = "presence") -> Array:
    """Threshold probability vectors at 0.2 and renormalise.

    Parameters
    ----------
    p : array (n, d)
    reading : "presence" or "value"
        What an entry above the threshold becomes. "presence": one, so that targets tell only which classes are
        present, as the paper says of both its experiments; "value": itself.

    Examples
    --------
    >>> quantise(np.array([[0.7, 0.25, 0.05]])).round(3), quantise(np.array([[0.6, 0.3, 0.1]]), "value").round(3)
    (array([[0.5, 0.5, 0. ]]), array([[0.667, 0.333, 0.   ]]))
    """
    if reading not in ("presence", "value"):
        raise ValueError(f"reading must be 'presence' or 'value'; got {reading!r}.")
    kept = np.where(p > THRESHOLD, 1.0 if reading == "presence" else p, 0.0)
    return kept / kept.sum(axis=1, keepdims=True)


def make(settings: Settings, stream: np.random.SeedSequence, reading: str = "presence") -> Problem:
    """One data set."""
    rng = np.random.default_rng(np.random.SeedSequence(stream.entropy, spawn_key=stream.spawn_key))
    angle = np.pi / 2 + 2 * np.pi / 3 * np.arange(3)
    centres = settings.distance * np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def draw(n: int) -> Array:
        return centres[rng.integers(0, 3, n)] + settings.spread * rng.standard_normal((n, 2))

    X, X_test = draw(settings.n), draw(settings.n_test)
    axes = [np.linspace(low, high, settings.grid) for low, high in zip(X.min(axis=0), X.max(axis=0))]
    X_map = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    problem = Problem(X, np.empty(0), X_test, X_map, centres)
    return Problem(X, quantise(problem.truth(X), reading), X_test, X_map, centres)


def rbf(X: Array) -> Kernel:
    """``ConstantKernel * RBF``, the kernel of all methods, started at the median distance."""
    return ConstantKernel(1.0, (1e-3, 1e5)) * RBF(median_distance(X))


def dirichlet(X: Array, *, inference: Any = "laplace", separate: bool = False, **family: Any) -> GGPRegressor:
    """The Dirichlet model; zeros are replaced by additive smoothing with epsilon = 1e-3 unless told otherwise."""
    family = {"zeros": "additive", "zeros_epsilon": 1e-3, **family}
    kernel = [rbf(X)] * 3 if separate else rbf(X)
    return GGPRegressor(Dirichlet(**family), kernel, inference=inference)


def matched(y: Array) -> Array:
    """Another expansion point than the paper's: the latent whose alpha is y, as eta = g(T(y)) would have it."""
    return Softplus().inverse((y + 1e-3) / (1.0 + 3e-3))  # zeros replaced as in `dirichlet`


METHODS: dict[str, Callable[[Array], Any]] = {
    "Dirichlet-Laplace": dirichlet,
    "Dirichlet-Taylor": partial(dirichlet, inference="taylor"),
    "CGP": lambda X: ConstrainedSimplexGP(rbf(X)),
    "GPC": lambda X: OneVsRestGPC(rbf(X)),
}


@dataclass(frozen=True)
class Choice:
    """Another way to do it: a method, a reading of "quantised", other settings of the data."""

    method: Callable[[Array], Any]
    reading: str = "presence"
    data: dict[str, Any] = field(default_factory=dict)


CHOICES: dict[str, Choice] = {
    "Laplace, additive 1e-4": Choice(partial(dirichlet, zeros_epsilon=1e-4)),
    "Laplace, additive 1e-3 (as above)": Choice(dirichlet),
    "Laplace, additive 1e-2": Choice(partial(dirichlet, zeros_epsilon=1e-2)),
    "Laplace, additive 0.05": Choice(partial(dirichlet, zeros_epsilon=0.05)),
    "Laplace, additive 0.2": Choice(partial(dirichlet, zeros_epsilon=0.2)),
    "Laplace, squeeze": Choice(partial(dirichlet, zeros="squeeze")),
    "Laplace, three separate kernels": Choice(partial(dirichlet, separate=True)),
    "Taylor, expansion at alpha = y": Choice(partial(dirichlet, inference=Taylor(matched))),
    "GPC, variational instead of Laplace": Choice(lambda X: OneVsRestGPC(rbf(X), inference="variational")),
    "CGP, truncated, not renormalised": Choice(lambda X: ConstrainedSimplexGP(rbf(X), renormalize=False)),
}
for _label, _reading, _data in (
    ("targets keep values above 0.2", "value", {}),
    ("n = 100", "presence", {"n": 100}),
    ("spread 1", "presence", {"spread": 1.0}),
    ("distance 1.5, spread 1", "presence", {"distance": 1.5, "spread": 1.0}),
):
    CHOICES[f"{_label}: Laplace"] = Choice(dirichlet, _reading, _data)
    CHOICES[f"{_label}: CGP"] = Choice(METHODS["CGP"], _reading, _data)


def trial(settings: Settings, task: tuple[int, str, str, np.random.SeedSequence]) -> list[Row]:
    """One method on one data set."""
    number, part, name, stream = task
    choice = Choice(METHODS[name]) if part == "methods" else CHOICES[name]
    problem = make(replace(settings, **choice.data), stream, choice.reading)
    model = choice.method(problem.X).fit(problem.X, problem.y)
    return [
        {
            "part": part, "method": name, "trial": number,
            "mae": _mae(model, problem, problem.X_test), "mae_map": _mae(model, problem, problem.X_map),
        }
    ]  # fmt: skip


def _mae(model: Any, problem: Problem, X: Array) -> float:
    return float(np.mean(np.abs(model.predict(X) - problem.truth(X))))


def run(settings: Settings, seed: int, runner: Runner) -> Report:
    """The whole experiment: every method on every data set, the tables, and the maps of the first data set."""
    streams = seeds(seed, settings.trials)
    tasks = [(i, "methods", name, stream) for i, stream in enumerate(streams) for name in METHODS]
    if settings.choices:
        compared = list(enumerate(streams[: settings.choices]))
        tasks += [(i, "choices", name, stream) for i, stream in compared for name in CHOICES]
    rows = runner.run("simplex", partial(trial, settings), tasks)
    tables = [methods_table(rows, settings), seeds_table(rows)]
    if settings.choices:
        tables.append(choices_table(rows, settings))
    return Report("simplex", rows, tables, partial(draw, settings, streams[0]))


def methods_table(rows: list[Row], settings: Settings) -> Table:
    """Mean error of the methods, with the paper's numbers."""
    body = []
    for (name,), these in group((row for row in rows if row["part"] == "methods"), "method").items():
        mae, on_map = column(these, "mae"), column(these, "mae_map")
        body.append([name, float(mae.mean()), float(mae.max()), float(on_map.mean()), PAPER.get(name)])
    title = f"Mean absolute error against the true probabilities, {settings.trials} data sets, n = {settings.n}"
    return Table(title, ["method", "test points", "worst data set", "map", "paper (one run)"], body)


def seeds_table(rows: list[Row]) -> Table:
    """Every data set on its own: is Dirichlet-Laplace below CGP and GPC, at the points and on the map?"""
    body = []
    for (number,), these in group((row for row in rows if row["part"] == "methods"), "trial").items():
        found = {row["method"]: row for row in these}
        own = found["Dirichlet-Laplace"]
        below = all(own[key] < found[name][key] for name in ("CGP", "GPC") for key in ("mae", "mae_map"))
        body.append([number, *(found[name]["mae"] for name in METHODS), "yes" if below else "no"])
    columns = ["data set", *METHODS, "below CGP and GPC"]
    return Table("Mean absolute error at the test points, data set by data set", columns, body)


def choices_table(rows: list[Row], settings: Settings) -> Table:
    """Table of errors under other treatments of zeros and other choices."""
    body = []
    for (name,), these in group((row for row in rows if row["part"] == "choices"), "method").items():
        body.append([name, float(column(these, "mae").mean()), float(column(these, "mae_map").mean())])
    title = f"How much the choices matter (mean absolute error, {min(settings.choices, settings.trials)} data set(s))"
    return Table(title, ["choice", "test points", "map"], body)


# ---- figure ----------------------------------------------------------------------------------------------------
def draw(settings: Settings, stream: np.random.SeedSequence, path: Path) -> None:
    """Training targets, true probabilities and the predicted maps, as RGB colours."""
    plt = require("matplotlib.pyplot")
    problem = make(settings, stream)
    low, high = problem.X.min(axis=0), problem.X.max(axis=0)
    maps = {"true probabilities": problem.truth(problem.X_map)}
    for name, method in METHODS.items():
        model = method(problem.X).fit(problem.X, problem.y)
        maps[f"{name}, error {_mae(model, problem, problem.X_map):.3f}"] = model.predict(problem.X_map)
    figure, axes = plt.subplots(2, 3, figsize=(10.5, 7), layout="constrained", sharex=True, sharey=True)
    first = axes.flat[0]
    first.scatter(*problem.X.T, c=problem.y, s=22, edgecolor="black", linewidth=0.3)
    first.set_title("training points, quantised targets", fontsize=10)
    for ax, (title, p) in zip(list(axes.flat)[1:], maps.items()):
        image = np.clip(p, 0.0, 1.0).reshape(settings.grid, settings.grid, 3)
        ax.imshow(image, origin="lower", extent=(low[0], high[0], low[1], high[1]), interpolation="nearest")
        ax.set_title(title, fontsize=10)
    for ax in axes.flat:
        ax.plot(*problem.centres.T, "+", color="black", ms=9)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        ax.locator_params(nbins=5, prune="both")  # labels of neighbouring panels would touch
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
