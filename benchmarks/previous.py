"""Full fits of this version against those of version 0.1, in turns, in one run.

    python benchmarks/previous.py [--threads 1] [--rounds 4] [--only bernoulli]

Version 0.1 is taken from this repository's own history. Every measurement is a process of its own; the two versions
take turns, and the ratio is that of the smallest times. Exit code 1 if a ratio is above the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMIT = "4ec91ea"  # the last of version 0.1
LIMIT = 1.05

TASK = """
import json, sys, time, warnings
import numpy as np
from sklearn.datasets import load_digits
from ggpm import GGPClassifier, GGPRegressor, Inducing
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)


def bernoulli():
    X = rng.normal(size=(1000, 3))
    return GGPClassifier(), X, (rng.uniform(size=1000) < 1 / (1 + np.exp(-3 * np.sin(X[:, 0]) - X[:, 1]))).astype(int)


def digits():
    X, y = load_digits(return_X_y=True)
    rows = rng.permutation(len(X))[:300]
    return GGPClassifier(), X[rows] / 16, y[rows]


def von_mises():
    X = rng.uniform(0, 5, (1000, 2))
    return GGPRegressor("von_mises"), X, rng.vonmises(2 * np.sin(X[:, 0]) + X[:, 1], 8.0)


def inducing():
    X = rng.uniform(0, 5, (20_000, 2))
    return GGPRegressor("von_mises", inducing=100), X, rng.vonmises(2 * np.sin(X[:, 0]) + X[:, 1], 8.0)


model, X, y = {"bernoulli": bernoulli, "digits": digits, "von_mises": von_mises, "inducing": inducing}[sys.argv[1]]()
model.fit(X[:60], y[:60]) if sys.argv[1] != "inducing" else model.fit(X[:500], y[:500])
times = []
for _ in range(3):
    start = time.perf_counter()
    model.fit(X, y)
    times.append(time.perf_counter() - start)
print(json.dumps({"seconds": min(times), "value": model.log_marginal_likelihood_value_, "n_iter": model.n_iter_}))
"""
TASKS = ("bernoulli", "digits", "von_mises", "inducing")


def measure(source: Path, task: str, threads: int) -> dict:
    """One process: the best of three fits."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    environment = {**os.environ, **limits, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", TASK, task]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", choices=TASKS)
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "old.tar"
        subprocess.run(["git", "-C", str(ROOT), "archive", "-o", str(archive), COMMIT, "src"], check=True)
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        sources = {"0.1": Path(folder) / "src", "now": ROOT / "src"}
        for task in [options.only] if options.only else TASKS:
            found = {name: [] for name in sources}
            for _ in range(options.rounds):
                for name, source in sources.items():
                    found[name].append(measure(source, task, options.threads))
            best = {name: min(runs, key=lambda r: r["seconds"]) for name, runs in found.items()}
            ratio = best["now"]["seconds"] / best["0.1"]["seconds"]
            missed += ratio > LIMIT
            print(
                f"{task:10s} 0.1 {best['0.1']['seconds']:.3f} s ({best['0.1']['n_iter']} iterations, "
                f"{best['0.1']['value']:.4f})   now {best['now']['seconds']:.3f} s ({best['now']['n_iter']}, "
                f"{best['now']['value']:.4f})   ratio {ratio:.3f}{'' if ratio <= LIMIT else f'  above {LIMIT}'}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
