"""Cost of ``kernel=None``: processor time of a default fit over that of one fit of the kernel that won.

    python benchmarks/defaults.py [rows ...]

Eight columns, of which two matter; the winning kernel is fitted with the same inference, from hyperparameters of
one. At most 6 is the aim. One thread: set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np

from ggpm import GGPRegressor


def data(name: str, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows of one family."""
    X = rng.normal(size=(n, 8))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    draw = {
        "gaussian": lambda: f + 0.3 * rng.normal(size=n),
        "poisson": lambda: rng.poisson(np.exp(f + 0.5)),
        "von_mises": lambda: rng.vonmises(2 * f, 3.0) % (2 * np.pi),
        "ordinal": lambda: np.searchsorted([-1.0, -0.3, 0.3, 1.0], f + 0.5 * rng.normal(size=n)),
    }
    return X, draw[name]()


def seconds(model: Any, X: Any, y: Any) -> float:
    """Processor time of a fit, the better of two: the first one of a process makes tables that others find there."""
    found = []
    for _ in range(2):
        began = time.process_time()
        model.fit(X, y)
        found.append(time.process_time() - began)
    return min(found)


def main(sizes: list[int]) -> None:
    warnings.simplefilter("ignore")
    for n in sizes:
        for name in ("gaussian", "poisson", "von_mises", "ordinal"):
            X, y = data(name, n, np.random.default_rng(0))
            default = GGPRegressor(name)
            whole = seconds(default, X, y)
            kernel = default.kernel_.clone_with_theta(np.zeros_like(default.kernel_.theta))
            one = seconds(GGPRegressor(name, kernel), X, y)
            print(f"{name:10s} n = {n:5d}  default {whole:6.2f} s  one fit {one:6.2f} s  ratio {whole / one:5.2f}  "
                  f"{default.search_.winner}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [300, 1000])
