"""Is a second parameter that varies found where it varies, and left alone where it does not?

    python benchmarks/recovery.py [--sets 50] [--families student_t] [--inference variational] [--seconds 600]

Every data set has 300 rows on a line of length one. All latents are draws of Gaussian processes with length scale 1/3;
the latent of the second parameter, its logarithm, is scaled to a standard deviation of 1 over the rows (with
``--process`` that of the process is 1, and draws may be nearly flat); counts have means of 10 and more. Kernels are
given, hyperparameters learned. Asked for: a correlation of more than 0.85 between the learned and the true logarithm on
average, and bands of 90 % that hold 85 to 95 % of it.

Then the same with a constant second parameter: leave-one-out densities may not be worse than those of the simpler model
by more than the standard error of the difference. The simpler model is the same family with a constant in the place of
the function, which is left out with the row like everything else. The family in which the parameter is a hyperparameter,
learned from all rows and not left out, is shown besides: one nat is what a learned constant is worth there.

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
KEYS = ("correlation", "coverage", "gain", "error", "over_simple")
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
    return X, family.sample(eta, rng), np.log(family.parameter(truth.parameter, eta))


def kernel(varies: bool = True) -> Any:
    """A constant of unknown size, and a smooth function about it."""
    level = ConstantKernel(9.0, "fixed")
    return ConstantKernel(1.0) * RBF(0.3) + level if varies else level


def fitted(name: str, X: Any, y: Any, inference: str, varies: bool = True) -> Any:
    D = families.get(name).resolve(y).latent_dim
    kernels = [*[kernel()] * (D - 1), kernel(varies)] if D > 1 else kernel()
    return GGPRegressor(name, kernels, inference=inference).fit(X, y)


def replicate(name: str, seed: int, inference: str, kind: str = "scaled") -> dict:
    """One data set with a second parameter that varies, and one with a constant one."""
    truth, began = TRUTHS[name], time.process_time()
    X, y, wanted = draw(name, seed, kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fitted(name, X, y, inference)
        found = model.predict_dist(X).parameter(truth.parameter)
        band = np.log(found.interval(LEVEL))
        X, y, _ = draw(name, seed, "constant")
        both, one = fitted(name, X, y, inference), fitted(name, X, y, inference, varies=False)
        gain = both.loo(neighbours=0) - one.loo(neighbours=0)
        known_to_all = (
            fitted(truth.simple, X, y, inference).loo(neighbours=0) if truth.simple else one.loo(neighbours=0)
        )
    return {
        "correlation": float(np.corrcoef(np.log(found.median()), wanted)[0, 1]),
        "coverage": float(np.mean((band[:, 0] <= wanted) & (wanted <= band[:, 1]))),
        "sd": float(wanted.std()),
        "gain": gain.total, "error": gain.standard_error, "over_simple": both.loo(neighbours=0).total - known_to_all.total,
        "converged": bool(model.converged_ and both.converged_ and one.converged_),
        "warnings": sorted({str(w.message)[:80] for w in caught}),
        "seconds": round(time.process_time() - began, 2),
    }  # fmt: skip


def path_of(name: str, inference: str, kind: str) -> Path:
    return OUT / inference / kind / f"{name}.json"


def known(name: str, inference: str, kind: str) -> list[dict]:
    path = path_of(name, inference, kind)
    return json.loads(path.read_text()) if path.is_file() else []


def line(name: str, results: list[dict]) -> tuple[str, bool]:
    """A line of the table, and whether all holds."""
    table = {key: np.array([one[key] for one in results]) for key in KEYS}
    means = {key: value.mean() for key, value in table.items()}
    se = {key: value.std(ddof=1) / np.sqrt(len(value)) if len(value) > 1 else np.nan for key, value in table.items()}
    within = np.mean(table["gain"] >= -table["error"])
    holds = bool(
        means["correlation"] > CORRELATION
        and COVERAGE[0] <= means["coverage"] <= COVERAGE[1]
        and means["gain"] >= -means["error"]
    )
    text = (
        f"| {name} | {len(results)} | {means['correlation']:.3f} ± {se['correlation']:.3f} "
        f"| {means['coverage']:.3f} ± {se['coverage']:.3f} | {means['gain']:.2f} ± {se['gain']:.2f} "
        f"| {means['error']:.2f} | {within:.2f} | {means['over_simple']:.2f} | {sum(not one['converged'] for one in results)} "
        f"| {np.mean([one['seconds'] for one in results]):.1f} |"
    )
    return text, holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--families", nargs="*", default=list(TRUTHS), choices=list(TRUTHS))
    parser.add_argument("--inference", default="variational", choices=["laplace", "variational"])
    parser.add_argument("--process", action="store_true", help="draws of a process of sd 1, as they come")
    parser.add_argument("--seconds", type=float, default=np.inf, help="of processor time, after which it stops")
    options = parser.parse_args()
    kind = "process" if options.process else "scaled"
    for seed in range(options.sets):
        for name in options.families:
            results = known(name, options.inference, kind)
            if len(results) > seed or time.process_time() > options.seconds:
                continue
            path = path_of(name, options.inference, kind)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps([*results, replicate(name, seed, options.inference, kind)]))
    columns = (
        "family", "data sets", "correlation", "coverage of 90 % bands", "constant: gain in LOO, nats",
        "its standard error", "share above minus one", "over the simpler family", "not converged", "seconds",
    )  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    lines = [line(name, r) for name in options.families if (r := known(name, options.inference, kind)[: options.sets])]
    print("\n".join(text for text, _ in lines))
    return 0 if all(holds for _, holds in lines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
