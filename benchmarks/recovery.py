"""Is a second parameter that varies found where it varies, and left alone where it does not?

    python benchmarks/recovery.py [--sets 50] [--families student_t] [--inference variational] [--seconds 600]

Every data set has 300 rows on a line of length one. All latents are draws of Gaussian processes with length scale 1/3;
the latent of the second parameter, its logarithm, is scaled to a standard deviation of 1 over the rows (with
``--kinds process`` that of the process is 1, and draws may be nearly flat); counts have means of 10 and more. Kernels
are given, hyperparameters learned, and averaged over in the bands (``averaging="integrate"``); priors are the default
ones. Asked for: a correlation of more than 0.85 between the learned and the true logarithm on average, and bands of
90 % that hold 85 to 95 % of it.

Then the same with a constant second parameter: leave-one-out densities may not be worse than those of the simpler model
by more than the standard error of the difference, row by row. The simpler model is the same family with a constant in
the place of the function, and besides the family in which the parameter is a hyperparameter. These are left out with
the row (``loo(hyperparameters="left out")``): held, the one of the simpler family would be worth a nat.

Finished data sets are kept in out/recovery/. Exit code 1 if something asked for does not hold.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPRegressor, families

ROWS, LENGTH, LEVEL = 300, 1 / 3, 0.9
CORRELATION, COVERAGE = 0.85, (0.85, 0.95)
OUT = Path(__file__).parents[1] / "out" / "recovery"


@dataclass(frozen=True)
class Truth:
    """How latents of a family are drawn, and what is asked of it."""

    parameter: str
    """The second parameter, as `Predictive.parameter` names it."""
    simple: str
    """The family in which it is a hyperparameter, if there is one."""
    centre: tuple[float, ...]
    sd: tuple[float, ...]


TRUTHS = {
    "gaussian_mean_scale": Truth("scale", "gaussian", (0.0, -0.5), (1.0, 1.0)),
    "student_t": Truth("scale", "", (0.0, -0.5), (1.0, 1.0)),
    "gamma_mean_shape": Truth("shape", "gamma", (1.0, 1.0), (1.0, 1.0)),
    "beta_mean_precision": Truth("precision", "beta", (0.0, 2.5), (1.0, 1.0)),
    "negative_binomial_mean_dispersion": Truth("dispersion", "negative_binomial", (3.5, -1.0), (0.4, 1.0)),
    "von_mises_direction_concentration": Truth("concentration", "von_mises", (0.0, 0.0, 1.5), (2.0, 2.0, 1.0)),
}


def draw(name: str, seed: int, kind: str) -> tuple[Any, Any, Any]:
    """X, y and the logarithm of the second parameter of one data set; kind: "scaled", "process" or "constant"."""
    truth, rng = TRUTHS[name], np.random.default_rng([seed, list(TRUTHS).index(name)])
    X = np.sort(rng.uniform(0, 1, ROWS))[:, None]
    root = np.linalg.cholesky(RBF(LENGTH)(X) + 1e-8 * np.eye(ROWS))
    family = families.get(name).resolve(np.array([1, 2]) if "binomial" in name else np.array([0.2, 0.3]))
    f = root @ rng.normal(size=(ROWS, family.latent_dim))
    if kind == "scaled":
        f[:, -1] = (f[:, -1] - f[:, -1].mean()) / f[:, -1].std()
    eta = truth.centre + np.asarray(truth.sd) * f
    if "binomial" in name:
        eta[:, 0] = np.maximum(eta[:, 0], np.log(10.0))
    if kind == "constant":
        eta[:, -1] = truth.centre[-1]
    wanted = eta[:, -1].copy()
    eta[:, -1] += wanted - np.log(family.parameter(truth.parameter, eta))  # of a direction whatever its length
    return X, family.sample(eta, rng), wanted


def kernel(varies: bool = True) -> Any:
    """A constant of unknown size, and a smooth function about it."""
    level = ConstantKernel(9.0, "fixed")
    return ConstantKernel(1.0) * RBF(0.3) + level if varies else level


def fitted(name: str, X: Any, y: Any, varies: bool = True, **settings: Any) -> Any:
    D = families.get(name).resolve(y).latent_dim
    kernels = [*[kernel()] * (D - 1), kernel(varies)] if D > 1 else kernel()
    return GGPRegressor(name, kernels, **settings).fit(X, y)


def found_again(name: str, seed: int, inference: str, kind: str) -> dict:
    """One data set with a second parameter that varies."""
    X, y, wanted = draw(name, seed, kind)
    model = fitted(name, X, y, inference=inference, averaging="integrate")
    found = model.predict_dist(X).parameter(TRUTHS[name].parameter)
    low, high = np.log(found.interval(LEVEL)).T
    return {
        "correlation": float(np.corrcoef(np.log(found.median()), wanted)[0, 1]),
        "coverage": float(np.mean((low <= wanted) & (wanted <= high))),
        "converged": bool(model.converged_),
    }


def left_alone(name: str, seed: int, inference: str, kind: str) -> dict:
    """One data set with a constant second parameter."""
    X, y, _ = draw(name, seed, kind)
    both, one = (fitted(name, X, y, varies, inference=inference) for varies in (True, False))
    simple = fitted(TRUTHS[name].simple, X, y, inference=inference) if TRUTHS[name].simple else one
    whole, constant, known_to_all = (
        model.loo(neighbours=0, hyperparameters="left out") for model in (both, one, simple)
    )
    gain, over = whole - constant, whole - known_to_all
    return {
        "gain": gain.total, "error": gain.standard_error, "over_simple": over.total, "over_error": over.standard_error,
        "converged": bool(both.converged_ and one.converged_),
    }  # fmt: skip


def path_of(name: str, inference: str, kind: str) -> Path:
    return OUT / inference / kind / f"{name}.json"


def known(name: str, inference: str, kind: str) -> list[dict]:
    path = path_of(name, inference, kind)
    return json.loads(path.read_text()) if path.is_file() else []


def add(name: str, inference: str, kind: str) -> None:
    """One more data set of a kind."""
    results, began = known(name, inference, kind), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        one = (left_alone if kind == "constant" else found_again)(name, len(results), inference, kind)
    one |= {"warnings": len(caught), "seconds": round(time.process_time() - began, 2)}
    path = path_of(name, inference, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*results, one]))


def column(results: list[dict], key: str) -> Any:
    return np.array([one[key] for one in results], dtype=float)


def told(values: Any) -> str:
    """Mean and its standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.3f} ± {error:.3f}"


def varying(name: str, results: list[dict]) -> tuple[tuple, bool]:
    """Cells of the table of parameters that vary, and whether all holds."""
    correlation, coverage = column(results, "correlation"), column(results, "coverage")
    holds = correlation.mean() > CORRELATION and COVERAGE[0] <= coverage.mean() <= COVERAGE[1]
    wrong = sum(not one["converged"] for one in results)
    return (name, len(results), told(correlation), told(coverage), wrong), bool(holds)


def constant(name: str, results: list[dict]) -> tuple[tuple, bool]:
    """Cells of the table of parameters that are constant, and whether all holds."""
    cells: list = [name, len(results)]
    for gain, error in ((column(results, a), column(results, b)) for a, b in PAIRS):
        cells += [told(gain), f"{error.mean():.2f}", f"{np.mean(gain >= -error):.2f}"]
    wrong = sum(not one["converged"] for one in results)
    holds = all(column(results, gain).mean() >= -column(results, error).mean() for gain, error in PAIRS)
    return (*cells, wrong), holds


PAIRS = (("gain", "error"), ("over_simple", "over_error"))
HEADS = {
    constant: ("family", "data sets", "gain over a constant, nats", "its standard error", "share above minus one",
               "gain over the simpler family", "its standard error", "share above minus one", "not converged"),
    varying: ("family", "data sets", "correlation", "coverage of 90 % bands", "not converged"),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--families", nargs="*", default=list(TRUTHS), choices=list(TRUTHS))
    parser.add_argument("--inference", default="variational", choices=["laplace", "variational"])
    parser.add_argument("--kinds", nargs="*", default=["scaled", "constant"], choices=["scaled", "process", "constant"])
    parser.add_argument("--seconds", type=float, default=np.inf, help="of processor time, after which it stops")
    options = parser.parse_args()
    for number in range(options.sets):
        for kind in options.kinds:
            for name in options.families:
                if len(known(name, options.inference, kind)) <= number and time.process_time() < options.seconds:
                    add(name, options.inference, kind)
    good = True
    for kind in options.kinds:
        table = constant if kind == "constant" else varying
        print(f"\n{kind}\n\n| {' | '.join(HEADS[table])} |\n|{'---|' * len(HEADS[table])}")
        for name in options.families:
            if results := known(name, options.inference, kind)[: options.sets]:
                cells, holds = table(name, results)
                good &= holds
                print(f"| {' | '.join(map(str, cells))} |")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
