"""Do families with several parameters converge without a warning, or say that they did not?

    python benchmarks/reliability.py [--sets 200] [--rows 50] [--families student_t] [--inference laplace]
                                     [--seconds 600]

Data sets are draws from a family's own prior: inputs in the plane, latents of standard deviation one. Kernels are given
and hyperparameters learned. Counted are clean fits; those that said that they did not converge, by a warning and
``converged_ = False``; those of which one is there without the other; silent ones, whose predictions are not finite
though nothing was said; and errors. Finished data sets are kept in out/reliability/. Exit code 1 if any fit is not of
the first two kinds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from cases import simulate
from ggpm import GGPRegressor

FAMILIES = (
    "gaussian_mean_scale", "student_t", "gamma_mean_shape", "beta_mean_precision",
    "negative_binomial_mean_dispersion", "von_mises_direction_concentration",
)  # fmt: skip
OUT = Path(__file__).parents[1] / "out" / "reliability"
OUTCOMES = ("clean", "said", "half said", "silent", "error")


def outcome(name: str, seed: int, rows: int, inference: str) -> dict:
    """Outcome of one fit, one of `OUTCOMES`, what it said, and its processor time."""
    X, y, family = simulate(name, n=rows, seed=seed)
    kernel = ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(1.0, "fixed")
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = GGPRegressor(name, [kernel] * family.latent_dim, inference=inference).fit(X, y)
            finite = bool(np.all(np.isfinite(model.predict(X))))
            said = {bool(caught), not model.converged_}
            kind = "half said" if len(said) > 1 else "said" if True in said else "clean" if finite else "silent"
            words = "; ".join(sorted({str(w.message)[:60] for w in caught}))
        except Exception as error:
            kind, words = "error", f"{type(error).__name__}: {error}"[:120]
    return {"outcome": kind, "words": words, "seconds": round(time.process_time() - began, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--inference", default="variational", choices=["laplace", "variational"])
    parser.add_argument("--seconds", type=float, default=np.inf, help="of processor time, after which it stops")
    options = parser.parse_args()
    print(f"| family | {' | '.join(OUTCOMES)} | seconds each |\n|---|{'---|' * (len(OUTCOMES) + 1)}")
    bad = 0
    for name in options.families:
        path = OUT / options.inference / str(options.rows) / f"{name}.json"
        results = json.loads(path.read_text()) if path.is_file() else []
        path.parent.mkdir(parents=True, exist_ok=True)
        for seed in range(len(results), options.sets):
            if time.process_time() > options.seconds:
                break
            results.append(outcome(name, seed, options.rows, options.inference))
            path.write_text(json.dumps(results))
        kinds = [one["outcome"] for one in results[: options.sets]]
        bad += sum(kinds.count(kind) for kind in OUTCOMES[2:])
        seconds = np.mean([one["seconds"] for one in results])
        print(f"| {name} | {' | '.join(str(kinds.count(kind)) for kind in OUTCOMES)} | {seconds:.2f} |", flush=True)
        for words in sorted({one["words"] for one in results if one["outcome"] != "clean"}):
            print(f"  {sum(one['words'] == words for one in results)} times: {words}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
