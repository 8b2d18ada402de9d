"""Test log-loss on scikit-learn's digits: 300 rows to learn from, hyperparameters included, 1497 to predict.

    python benchmarks/digits.py evidence     (hyperparameters by the variational bound)
    python benchmarks/digits.py loo          (by leave-one-out)

Compare the seconds with those of ``benchmarks/gpflow_reference.py digits`` on the same machine.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss

from ggpm import GGPClassifier, Variational


def split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test inputs and labels."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(1797)
    train, test = order[:300], order[300:]
    return X[train] / 16, y[train], X[test] / 16, y[test]


def run(objective: str, tol: float = 1e-5) -> dict[str, float]:
    """Fit and measure."""
    X, y, X_test, y_test = split()
    kernel = ConstantKernel(1.0) * RBF(1.0)
    start = time.perf_counter()
    model = GGPClassifier(kernel, inference=Variational(tol=tol), objective=objective).fit(X, y)
    seconds = time.perf_counter() - start
    p = model.predict_proba(X_test)
    variance, length = np.exp(model.theta_)
    return {
        "log_loss": log_loss(y_test, p),
        "accuracy": float(np.mean(model.classes_[p.argmax(axis=1)] == y_test)),
        "leave_one_out": -model.loo(neighbours=0).mean,  # what objective="loo" maximises
        "bound": model.log_marginal_likelihood_value_,
        "variance": variance,
        "length_scale": length,
        "seconds": seconds,
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    given = sys.argv[1:]
    objective = given[0] if given else "evidence"
    for name, value in run(objective).items():
        print(f"{name:14s} {value:.4f}", flush=True)
