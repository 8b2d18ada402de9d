"""How a sparse fit grows: passes against their own matrix products, memory, and workers.

    python benchmarks/scaling.py fit --rows 1000000       a whole fit: 8 features, von Mises, M = 256
    python benchmarks/scaling.py passes --rows 100000      time of each pass against its matrix products alone
    python benchmarks/scaling.py growth                    passes at several numbers of rows
    python benchmarks/scaling.py workers                   one local worker against two; needs two idle cores

Each command keeps what it measured in benchmarks/scaling.json, beside the results of the others. Passes are timed in
seconds of processor time, workers by the clock on the wall; ratios are taken within one run. BLAS works with one thread
unless OMP_NUM_THREADS says otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from scipy.linalg import blas
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPRegressor, Inducing, families
from ggpm.data.rows import CHUNK_DOUBLES, ArrayRows
from ggpm.fields.base import Approximation
from ggpm.fields.inducing.field import InducingField, InducingProcess
from ggpm.fields.inducing.passes import gradient_pass, mode_pass, sites_pass
from ggpm.fields.inducing.points import kmeans_points
from ggpm.kernels.linalg import solve_lower
from ggpm.learning.objective import Evidence
from ggpm.sites import Laplace

FEATURES = 8
CHUNKS = 16  # of the rows on a cluster
RESULTS = Path(__file__).with_name("scaling.json")
PASSES = {"newton": sites_pass, "gradient": gradient_pass}  # those with products of order M²


def directions(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Wind-like angles over 8 features, some of which do not matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, FEATURES))
    mean = 2.0 * np.sin(1.5 * X[:, 0] + X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * X[:, 4]
    return X, np.angle(np.exp(1j * (mean + rng.vonmises(0.0, 8.0, n))))


def kernel():
    return ConstantKernel(4.0) * RBF(np.full(FEATURES, 2.0)) + ConstantKernel(1.0)


def evidence(n: int, M: int) -> Evidence:
    X, y = directions(n)
    family = families.VonMises().resolve(y)
    Z = kmeans_points(X[: max(4 * M, 4000)], M)
    return Evidence(family, [kernel()], InducingField(ArrayRows(X, y, np.zeros((n, 2))), Z), Laplace())


def process_of(e: Evidence) -> InducingProcess:
    """All rows under the current hyperparameters."""
    return e.field.process(e.family, e.kernels)


def near_the_mode(e: Evidence) -> Approximation:
    """A posterior of some of the rows: passes take the same time there as at the mode of all."""
    return e.sample(np.arange(min(20_000, e.field.n_rows))).infer()


def arguments_at(a: Approximation) -> dict[str, tuple]:
    """What the passes take beside a model."""
    return {"newton": (a.rule, a.q.v, False), "gradient": (a.rule, a.q.v, a.q.covariance, False, False)}


def clock(function, timer=time.perf_counter) -> float:
    start = timer()
    function()
    return timer() - start


def products_alone(n: int, M: int, rows: int, D: int, task: str) -> float:
    """Seconds that the matrix products of a pass take on arrays that are there already."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(rows, M))
    L = np.asfortranarray(np.tril(rng.normal(size=(M, M))) + 10.0 * M * np.eye(M))
    P = rng.normal(size=(M, M))

    def chunk() -> None:
        solve_lower(L, A.T)  # whitening
        if task == "newton":
            for _ in range(D * (D + 1) // 2):
                blas.dsyrk(1.0, A.T, lower=1)  # sum_i U_i^jk a_i a_i^T is symmetric
        else:
            for _ in range(D * (D + 1) // 2):
                A @ P
            solve_lower(L, A.T, transposed=True)

    chunk()
    pieces = max(1, round(n / rows))
    return clock(lambda: [chunk() for _ in range(pieces)], time.process_time) * n / (pieces * rows)


def passes(n: int, M: int) -> dict:
    """Each pass, timed beside its matrix products alone."""
    e = evidence(n, M)
    held = resident()
    model, a = process_of(e).model, near_the_mode(e)
    piece, w = model.piece_rows, 1e-3 * np.ones_like(a.q.v)

    def run(task, *arguments):
        return clock(lambda: e.field.rows.map_reduce(task, (model, *arguments), piece), time.process_time)

    out = {"rows": n, "M": M, "piece_rows": piece}
    # products before and after, so that a change of load in between shows in their difference
    for name, arguments in arguments_at(a).items():
        before = products_alone(n, M, piece, 2, name)
        seconds = run(PASSES[name], *arguments)
        after = products_alone(n, M, piece, 2, name)
        out[name] = {
            "seconds": round(seconds, 3),
            "products_before": round(before, 3),
            "products_after": round(after, 3),
            "share": round(0.5 * (before + after) / seconds, 3),
        }
    out["mode_seconds"] = round(run(mode_pass, a.rule, a.q.v, w, False, False), 3)
    out["peak_above_data_bytes"] = resident() - held
    return out


class TimedRows:
    """A source of rows that notes how many passes were made over all of them, and their processor time."""

    def __init__(self, rows: ArrayRows, seconds: dict[str, list[float]] | None = None):
        self.rows, self.seconds = rows, {} if seconds is None else seconds
        self.n_rows, self.n_features = rows.n_rows, rows.n_features
        self.collect = rows.collect

    def map_reduce(self, task, arguments, rows):
        start = time.process_time()
        out = self.rows.map_reduce(task, arguments, rows)
        self.seconds.setdefault(task.__name__, []).append(time.process_time() - start)
        return out

    def prepared(self, prepare):
        return TimedRows(self.rows.prepared(prepare), self.seconds)


def resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def whole_fit(n: int, M: int) -> dict:
    """A fit with learned hyperparameters: time, passes against their products, memory, and how well it predicts."""
    before = resident()
    X, y = directions(n)
    X_test, y_test = directions(5000, seed=1)
    data = X.nbytes + y.nbytes
    rows = TimedRows(ArrayRows(X, y))
    model = GGPRegressor("von_mises", kernel(), inducing=Inducing(M), verbose=1)
    piece = CHUNK_DOUBLES // (8 * M)  # what the passes work on at a time, D = 2
    before_fit = {name: products_alone(n, M, piece, 2, name) for name in PASSES}
    busy = time.process_time()
    seconds = clock(lambda: model.fit(rows))
    busy = time.process_time() - busy
    peak = resident()
    out = {
        "rows": n,
        "M": M,
        "wall_seconds": round(seconds, 1),
        "processor_seconds": round(busy, 1),
        "data_bytes": data,
        "peak_above_data_bytes": peak - before - data,
        "passes_over_all_rows": {name: len(times) for name, times in rows.seconds.items()},
        "n_iter": model.n_iter_,
        "converged": model.converged_,
        "objective": model.log_marginal_likelihood_value_,
        "kernel": str(model.kernel_),
        "held_out_log_density": round(float(np.mean(model.log_predictive_density(X_test, y_test))), 4),
    }
    assert piece == process_of(model.fit_.evidence).model.piece_rows
    products = 0.0
    for name, task in PASSES.items():
        times = rows.seconds[task.__name__]
        alone = 0.5 * (before_fit[name] + products_alone(n, M, piece, 2, name))
        products += alone * len(times)
        out[name] = {
            "median_seconds": round(float(np.median(times)), 2),
            "slowest_seconds": round(max(times), 2),
            "products_alone_seconds": round(alone, 2),
            "share_median": round(alone / float(np.median(times)), 3),
            "share_slowest": round(alone / max(times), 3),
        }
    # the movement of the mode, and values along a step, have no products of order M²
    out["share_of_all_passes"] = round(products / sum(map(sum, rows.seconds.values())), 3)
    out["mode_median_seconds"] = round(float(np.median(rows.seconds["mode_pass"])), 2)
    return out


def workers(n: int, M: int, rounds: int = 2, repeats: int = 2) -> dict:
    """Seconds per pass on one local worker process and on two, in turns."""
    import dask.array as da
    import distributed

    from ggpm.data.cluster import dask_rows
    from ggpm.data.door import Preparation

    e = evidence(n, M)
    data, model, a = e.field.rows, process_of(e).model, near_the_mode(e)
    tasks = {name: (PASSES[name], (model, *arguments)) for name, arguments in arguments_at(a).items()}
    chunk = -(-n // CHUNKS)
    times: dict[str, dict[int, list[float]]] = {name: {1: [], 2: []} for name in tasks}
    for count in (1, 2) * rounds:
        with (
            distributed.LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster,
            distributed.Client(cluster),
        ):
            X, y = da.from_array(data.X, chunks=(chunk, FEATURES)), da.from_array(data.y, chunks=chunk)
            rows, _ = dask_rows(X, y)
            rows = rows.prepared(Preparation(e.family, None, FEATURES))
            rows.map_reduce(*tasks["newton"], model.piece_rows)  # imports and first touch
            for name, task in tasks.items():
                sweep = partial(rows.map_reduce, *task, model.piece_rows)
                times[name][count] += [clock(sweep) for _ in range(repeats)]
    out: dict = {"rows": n, "M": M, "chunks": CHUNKS, "cores": os.cpu_count()}
    for name, seconds in times.items():
        out[name] = {f"{count} worker(s), seconds": [round(t, 3) for t in seconds[count]] for count in seconds}
        out[name]["ratio of medians"] = round(float(np.median(seconds[1]) / np.median(seconds[2])), 2)
    return out


def growth(n: int, M: int) -> list[dict]:
    """Passes at several numbers of rows, up to n."""
    return [passes(size, M) for size in (n // 8, n // 4, n // 2, n)]


COMMANDS = {
    "fit": (whole_fit, 1_000_000),
    "passes": (passes, 100_000),
    "growth": (growth, 200_000),
    "workers": (workers, 200_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(COMMANDS))
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--inducing", type=int, default=256)
    options = parser.parse_args()
    if "OMP_NUM_THREADS" not in os.environ:  # BLAS reads it when it is loaded
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **one})
    run, rows = COMMANDS[options.what]
    result = run(options.rows or rows, options.inducing)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, options.what: result}, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
