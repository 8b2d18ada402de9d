"""Pictures of the page of plots: every function of `ggpm.plotting` that draws, on small generated data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import ggpm
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families, plotting

DEPTH, ROWS = np.linspace(0, 10, 80), 80
KERNEL = ConstantKernel(4.0) * RBF(2.5) + ConstantKernel(4.0)


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def fitted(model: Any, X: Any, y: Any) -> Any:
    """A model whose kernel is given: the pictures are of plots, not of learning."""
    return model.set_params(kernel=KERNEL, optimizer=None, inference="laplace").fit(X, y)


@cache
def counts() -> Any:
    y = pd.Series(random().poisson(np.exp(1.2 + np.sin(DEPTH / 2))), name="animals")
    return fitted(GGPRegressor("poisson"), pd.DataFrame({"hour": DEPTH}), y)


@cache
def held_out() -> tuple[pd.DataFrame, np.ndarray]:
    x = random().uniform(0, 10, 150)
    return pd.DataFrame({"hour": x}), random().poisson(np.exp(1.2 + np.sin(x / 2)))


@cache
def wind() -> Any:
    y = pd.Series(np.mod(300 + 18 * DEPTH + 14 * random().normal(size=ROWS), 360), name="wind")
    return fitted(GGPRegressor(families.VonMises(units="degrees")), pd.DataFrame({"hour": DEPTH}), y)


@cache
def soil() -> Any:
    alpha = np.stack([1 + 0.5 * DEPTH, 6 - 0.4 * DEPTH, 2.5 + np.sin(DEPTH)], axis=1)
    parts = pd.DataFrame([random().spawn(ROWS)[i].dirichlet(4 * a) for i, a in enumerate(alpha)])
    return fitted(
        GGPRegressor("dirichlet"), pd.DataFrame({"depth": DEPTH}), parts.set_axis(["sand", "silt", "clay"], axis=1)
    )


@cache
def places() -> pd.DataFrame:
    return pd.DataFrame(random().uniform(-2, 2, size=(120, 2)), columns=["east", "north"])


@cache
def trees() -> Any:
    X = places()
    label = np.where(X["east"] + X["north"] > 0.7, "beech", np.where(X["north"] < -0.2, "oak", "pine"))
    return fitted(GGPClassifier(), X, label)


@cache
def grades() -> Any:
    grade = np.digitize(DEPTH + 1.2 * random().normal(size=ROWS), [2.5, 5.0, 7.5])
    names = np.array(["poor", "fair", "good", "best"])
    model = GGPOrdinalClassifier(order=names.tolist())
    return fitted(model, pd.DataFrame({"rooms": DEPTH}), pd.Series(names[grade], name="answer"))


@cache
def rain() -> Any:
    X = places()
    mean = np.exp(1 + 0.6 * np.sin(2 * X["east"]) + 0.4 * X["north"])
    return fitted(GGPRegressor("gamma"), X, pd.Series(random().gamma(5, mean / 5), name="rain"))


@cache
def lifetimes() -> Any:
    time = np.exp(1 + 0.15 * DEPTH) * random().weibull(1.6, ROWS)
    y = families.right_censored(np.minimum(time, 12.0), time < 12.0)
    return fitted(GGPRegressor(families.Censored(families.Weibull(1.6))), pd.DataFrame({"dose": DEPTH}), y)


@cache
def compared() -> Any:
    X, y = pd.DataFrame({"hour": DEPTH}), np.random.default_rng(1).negative_binomial(2, 0.3, ROWS)
    given = {"Poisson": "poisson", "negative binomial": families.NegativeBinomial(phi=0.5)}
    return ggpm.compare({name: fitted(GGPRegressor(family), X, y) for name, family in given.items()})


@cache
def chosen() -> Any:
    y = random().poisson(np.exp(1.2 + np.sin(DEPTH / 2)))
    return GGPRegressor("poisson", inference="laplace").fit(DEPTH[:, None], y)


PLOTS: dict[str, Callable[[], Any]] = {
    "plot_bands": lambda: plotting.plot_bands(counts()),
    "plot_parts": lambda: plotting.plot_parts(soil()),
    "plot_angles": lambda: plotting.plot_angles(wind()),
    "plot_polar": lambda: plotting.plot_polar(wind()),
    "plot_ternary": lambda: plotting.plot_ternary(soil()),
    "plot_ternary_density": lambda: plotting.plot_ternary_density(soil(), pd.DataFrame({"depth": [5.0]})),
    "plot_class_map": lambda: plotting.plot_class_map(trees()),
    "plot_ordinal": lambda: plotting.plot_ordinal(grades()),
    "plot_effects": lambda: plotting.plot_effects(rain()),
    "plot_map": lambda: plotting.plot_map(rain()),
    "plot_survival": lambda: plotting.plot_survival(lifetimes(), pd.DataFrame({"dose": [1.0, 9.0]})),
    "plot_evidence": lambda: plotting.plot_evidence(chosen(), n=13),
    "plot_search": lambda: plotting.plot_search(chosen()),
    "plot_compare": lambda: plotting.plot_compare(compared()),
    "plot_calibration": lambda: plotting.plot_calibration(counts(), *held_out()),
    "plot_pit": lambda: plotting.plot_pit(counts(), *held_out()),
}


def draw_all(folder: Path) -> None:
    """Draw every picture that is not there yet."""
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PLOTS.items():
        path = folder / f"{name}.png"
        if not path.exists():
            figure = np.ravel(draw())[0].figure
            figure.savefig(path, dpi=100)
            plt.close(figure)
