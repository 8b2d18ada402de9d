"""Evidence and gradient against their floor: the LAPACK and BLAS calls that the formulas cannot avoid.

For one evaluation, from a cold start, the mode search factorises k times (counted, not assumed). With n rows and D
latent dimensions the unavoidable calls are

    D = 1          k potrf,                                1 potri
    D > 1          k (D potrf + D potri + 1 potrf),        1 trtri, D trmm, D syrk
    (independent)  k D potrf,                              D potri

and the floor is their time on matrices of the same size in the same process. Prints a JSON list.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from scipy.linalg import blas, lapack
from systems import ggpm_model

from ggpm.inference import base, laplace


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def unit_costs(n: int) -> Callable[[], dict[str, float]]:
    """Times each call once, on well-conditioned matrices of order n, inputs overwritten as we do."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(n, n))
    A = np.asfortranarray(A @ A.T / n + np.eye(n))
    L = lapack.dpotrf(A, lower=1, clean=1)[0]
    B = np.asfortranarray(rng.normal(size=(n, n)))
    return lambda: {
        "potrf": seconds(lambda: lapack.dpotrf(A, lower=1, clean=0)),
        "potri": seconds(lambda: lapack.dpotri(L, lower=1)),
        "trtri": seconds(lambda: lapack.dtrtri(L, lower=1)),
        "trmm": seconds(lambda: blas.dtrmm(1.0, L, B, lower=1)),
        "syrk": seconds(lambda: blas.dsyrk(1.0, B, trans=1, lower=1)),
    }


def evaluation(task: str, repeats: int) -> dict:
    """Time of one cold evidence+gradient, its floor and their ratio."""
    model, (X, y) = ggpm_model(task)
    model.set_params(optimizer=None).fit(X, y)
    calls = {"factorise": 0}
    real, from_point = laplace.factorise, base.factorise

    def counted(*args):
        calls["factorise"] += 1
        return real(*args)

    laplace.factorise = base.factorise = counted
    model.log_marginal_likelihood(model.theta_, eval_gradient=True)
    laplace.factorise, base.factorise = real, from_point
    k, n, D = calls["factorise"], len(X), model.family_.latent_dim
    measure, pairs = unit_costs(n), []
    for _ in range(repeats):  # in turns: a slow moment of the machine hits both
        ours = seconds(lambda: model.log_marginal_likelihood(model.theta_, eval_gradient=True))
        c = measure()
        if D == 1:
            floor = k * c["potrf"] + c["potri"]
        else:
            floor = k * (D * (c["potrf"] + c["potri"]) + c["potrf"]) + c["trtri"] + D * (c["trmm"] + c["syrk"])
        pairs.append((ours, floor, ours / floor))
    ours, floor, ratio = (float(v) for v in np.median(pairs, axis=0))
    return {"task": task, "n": n, "D": D, "factorisations": k, "seconds": ours, "floor": floor, "ratio": ratio}


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
        "allowed_peak": 2 * D + 6,
        "allowed_after": D + 3,
    }


if __name__ == "__main__":
    repeats = int(sys.argv[1])
    tasks = sys.argv[2:]
    print(json.dumps([memory(t[4:]) if t.startswith("mem/") else evaluation(t, repeats) for t in tasks]))
