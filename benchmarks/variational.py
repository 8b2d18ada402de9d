"""Variational inference against Laplace's: evidence with gradient, full fits, and 1500 angles, in one run.

    python benchmarks/variational.py [--rows 400] [--seed 0] [--only dirichlet] [--no-fits] [--no-angles]

For every family of the tests: rows from its own prior, one kernel with amplitude, length scale and level.
*Evaluations* are the evidence and its gradient at hyperparameters a step away from those of the posterior that they
start from, to the rule's own tolerance; *searches* the same to the tolerance with which a search asks for them
(`Rule.loosened`); *fits* are `GGPRegressor.fit` from the default kernel. Times are those of one thread, the
smallest of several; only their ratios say something. Exit code 1 if one is above its limit. Blocks of four latents or
more at many rows are not what "auto" takes, and cost O((nD)^3): they are shown as an option, without a limit.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from cases import FAMILIES, dense_evidence, simulate
from ggpm import GGPRegressor, Laplace, Variational
from ggpm.kernels import resolve_kernel

STEP = 0.1  # of all log-hyperparameters: between the first steps of a search and its last
LIMITS = {"evaluation": 4.0, "search": 4.0, "fit": 5.0}


def best(task, repeat: int):
    """The smallest of several times, in seconds of this process, and the last result."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        result = task()
        times.append(time.process_time() - start)
    return min(times), result


def evaluation(name: str, n: int, rule, seed: int = 0) -> tuple[float, int]:
    """Seconds of a warm evidence with gradient, and the steps that it took."""
    X, y, family = simulate(name, n=n, seed=seed)
    kernel = resolve_kernel(ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(0.1), family.latent_dim, X)
    evidence = dense_evidence(family, kernel, X, family.encode(y), np.zeros((n, family.latent_dim)), rule)
    start = evidence.infer().start
    near = evidence.at(evidence.theta + STEP)
    seconds, (_, _, found) = best(lambda: near.evaluate(start), 3)
    return seconds, found.n_iter


def fit(name: str, n: int, rule) -> float:
    """Seconds of a full fit."""
    X, y, family = simulate(name, n=n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return best(lambda: GGPRegressor(family, inference=rule).fit(X, y), 1)[0]


def angles(rule, n: int = 1500, features: int = 10) -> float:
    """Seconds of a fit to angles with one length scale for each of ten features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, features))
    y = rng.vonmises(2 * np.sin(X[:, 0]) + X[:, 1], 8.0)
    kernel = ConstantKernel(1.0) * RBF(np.full(features, 3.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return best(lambda: GGPRegressor("von_mises", kernel, inference=rule).fit(X, y), 1)[0]


def line(what: str, kind: str, laplace: float, variational: float, more: str = "", option: bool = False) -> bool:
    """Print one comparison; whether the ratio is within its limit, which an option does not have."""
    ratio = variational / laplace
    within = option or ratio <= LIMITS[kind]
    note = "  (option)" if option else "" if within else f"  above {LIMITS[kind]:g}"
    print(
        f"{what:24s} {kind:10s} {1e3 * laplace:9.1f} ms {1e3 * variational:9.1f} ms   ratio {ratio:5.2f}{more}{note}",
        flush=True,
    )
    return within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="of the data of evaluations")
    parser.add_argument("--only", choices=sorted(FAMILIES))
    parser.add_argument("--fits", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--angles", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    within = True
    for name in [options.only] if options.only else FAMILIES:
        family = FAMILIES[name][0].resolve(FAMILIES[name][1])
        default = Variational().resolved(options.rows, family.latent_dim, False).sites
        for sites in ("auto", "blocks") if family.latent_dim > 1 and default == "factorised" else ("auto",):
            what, rules = name if sites == "auto" else f"{name}, {sites}", (Laplace(), Variational(sites=sites))
            for kind, pair in (("evaluation", rules), ("search", [rule.loosened(family.latent_dim) for rule in rules])):
                (laplace, few), (variational, more) = [
                    evaluation(name, options.rows, rule, options.seed) for rule in pair
                ]
                steps = f"  steps {few:2d} {more:2d}"
                within &= line(what, kind, laplace, variational, steps, option=sites != "auto")
        if options.fits:
            within &= line(name, "fit", *(fit(name, options.rows, rule) for rule in (Laplace(), Variational())))
    if options.angles:
        within &= line("1500 angles", "fit", angles(Laplace()), angles(Variational()))
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
