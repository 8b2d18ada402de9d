"""Cost of kernels on columns: ``On(k, all columns)`` over ``k`` itself, processor time, in one run.

    python benchmarks/columns.py [rows ...]

For the matrix with the pullback of its gradient, the matrix to new rows, and evidence with gradient of a Poisson
model. The two kernels take turns, and the least time of each counts: at most 1.1 is the aim. One thread.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern

from ggpm import GGPRegressor
from ggpm.kernels import On, evaluate

REPEATS = 15
KERNELS = {
    "RBF": ConstantKernel(1.0) * RBF(1.0),
    "Matern 3/2, a length per column": ConstantKernel(1.0) * Matern([1.0, 2.0, 1.5, 0.7], nu=1.5),
}


def least(actions: list[Callable[[], object]]) -> list[float]:
    """Least processor time of each action; they take turns."""
    times = np.full(len(actions), np.inf)
    for _ in range(REPEATS):
        for i, action in enumerate(actions):
            began = time.process_time()
            action()
            times[i] = min(times[i], time.process_time() - began)
    return list(times)


def ratios(kernel: Kernel, n: int) -> dict[str, float]:
    """Time with On over time without, for each thing that is asked of a kernel."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(n, 4)), rng.normal(size=(n, 4))
    y = rng.poisson(np.exp(np.sin(X[:, 0])))
    pair = [kernel, On(kernel, [0, 1, 2, 3])]
    models = [GGPRegressor("poisson", k, optimizer=None, inference="laplace").fit(X, y) for k in pair]

    def matrix(k: Kernel) -> None:
        at = evaluate(k, X)
        at.pullback(at.K)

    tasks: dict[str, list[Callable[[], object]]] = {
        "matrix and gradient": [lambda k=k: matrix(k) for k in pair],  # type: ignore[misc]
        "new rows": [lambda k=k: evaluate(k, new, X).K for k in pair],  # type: ignore[misc]
        "evidence and gradient": [
            lambda m=m: m.log_marginal_likelihood(m.theta_, eval_gradient=True)  # type: ignore[misc]
            for m in models
        ],
    }
    out = {}
    for name, actions in tasks.items():
        plain, on = least(actions)
        out[name] = on / plain
    return out


def main(sizes: list[int]) -> None:
    for n in sizes:
        for label, kernel in KERNELS.items():
            found = ratios(kernel, n)
            print(f"{n:6d} rows  {label:34s}", "  ".join(f"{name} {ratio:.3f}" for name, ratio in found.items()))


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [300, 1000])
