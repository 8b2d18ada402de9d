"""Evidence and gradient against their floor: the LAPACK and BLAS calls that the formulas cannot avoid.

For one evaluation, from a cold start, the mode search factorises k times (counted, not assumed). With n rows and D
latent dimensions the unavoidable calls are

    D = 1          k potrf,                                1 potri
    D > 1          k (D potrf + D potri + 1 potrf),        1 trtri, D trmm, D syrk

and the floor is their time on matrices of the same size in the same process, in place. A second ratio has the inverses
by halves of `ggpm.kernels.linalg` in the place of LAPACK's where those are faster. Prints a JSON list.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.linalg import blas, lapack
from systems import ggpm_model

from ggpm.kernels.linalg import cholesky_inverse, triangular_inverse


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def unit_costs(n: int) -> Callable[[], dict[str, float]]:
    """Times each call once, on well-conditioned matrices of order n that it overwrites."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(n, n))
    A = np.asfortranarray(A @ A.T / n + np.eye(n))
    L = lapack.dpotrf(A, lower=1, clean=1)[0]
    B = np.asfortranarray(rng.normal(size=(n, n)))
    out = np.zeros((n, n), order="F")

    def timed(function, matrix) -> float:
        own = matrix.copy(order="F")
        return seconds(lambda: function(own))

    return lambda: {
        "potrf": timed(lambda M: lapack.dpotrf(M, lower=1, clean=0, overwrite_a=1), A),
        "potri": timed(lambda M: lapack.dpotri(M, lower=1, overwrite_c=1), L),
        "trtri": timed(lambda M: lapack.dtrtri(M, lower=1, overwrite_c=1), L),
        "potri by halves": timed(cholesky_inverse, L),
        "trtri by halves": timed(triangular_inverse, L),
        "trmm": timed(lambda M: blas.dtrmm(1.0, L, M, lower=1, overwrite_b=1), B),
        "syrk": seconds(lambda: blas.dsyrk(1.0, B, trans=1, lower=1, c=out, overwrite_c=1)),
    }


def evaluation(task: str, repeats: int) -> dict:
    """Time of one cold evidence+gradient, its floor and their ratio."""
    model, (X, y) = ggpm_model(task)
    model.set_params(optimizer=None).fit(X, y)
    evidence, solved = model.fit_.evidence, []

    def counted(K, U):
        solved.append(U)
        return evidence.field.solver(K, U)

    evidence.with_field(replace(evidence.field, solver=counted)).evaluate()
    k, n, D = len(solved), len(X), model.family_.latent_dim
    measure, pairs = unit_costs(n), []
    for _ in range(repeats):  # in turns: a slow moment of the machine hits both
        ours = seconds(lambda: model.log_marginal_likelihood(model.theta_, eval_gradient=True))
        c = measure()
        floor = total(c, k, D)
        by_halves = total(c | {name: min(c[name], c[f"{name} by halves"]) for name in ("potri", "trtri")}, k, D)
        pairs.append((ours, floor, ours / floor, ours / by_halves))
    ours, floor, ratio, strict = (float(v) for v in np.median(pairs, axis=0))
    return {
        "task": task, "n": n, "D": D, "factorisations": k, "seconds": ours, "floor": floor, "ratio": ratio,
        "to the faster inverse": strict,
    }  # fmt: skip


def total(c: dict[str, float], k: int, D: int) -> float:
    """Seconds of the unavoidable calls."""
    if D == 1:
        return k * c["potrf"] + c["potri"]
    return k * (D * (c["potrf"] + c["potri"]) + c["potrf"]) + c["trtri"] + D * (c["trmm"] + c["syrk"])


def memory(task: str) -> dict:
    """Peak during a fit and what stays after it, in units of n² doubles, above the data."""
    model, (X, y) = ggpm_model(task)
    n = len(X)
    tracemalloc.start()
    model.fit(X, y)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    D = model.family_.latent_dim
    unit = 8 * n * n
    return {
        "task": task,
        "D": D,
        "peak": peak / unit,
        "after": after / unit,
    }


if __name__ == "__main__":
    repeats = int(sys.argv[1])
    tasks = sys.argv[2:]
    print(json.dumps([memory(t[4:]) if t.startswith("mem/") else evaluation(t, repeats) for t in tasks]))
