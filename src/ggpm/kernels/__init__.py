"""Scikit-learn's kernels with pullbacks: from the cotangent of a kernel matrix to the gradient of an objective."""

from ggpm.kernels.distances import Distances, Pairs
from ggpm.kernels.evaluation import (
    KernelEvaluation,
    RowVariance,
    diag,
    diag_pullback,
    evaluate,
    log_bounds,
    log_hyper,
    median_distance,
    resolve_kernel,
    shorter_starts,
    with_log_hyper,
)

__all__ = [
    "Distances", "KernelEvaluation", "Pairs", "RowVariance", "diag", "diag_pullback", "evaluate", "log_bounds",
    "log_hyper", "median_distance", "resolve_kernel", "shorter_starts", "with_log_hyper",
]  # fmt: skip
