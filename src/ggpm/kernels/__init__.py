"""Kernels: scikit-learn's and further ones on columns, their defaults, their text, and their pullbacks.

A pullback goes from the cotangent of a kernel matrix to the gradient of an objective.
"""

from ggpm.kernels.additive import Additive
from ggpm.kernels.candidates import standardised
from ggpm.kernels.columns import Category, Cyclic, On, Sphere, chosen_columns, unit_vectors
from ggpm.kernels.defaults import default_kernel, median_distance, shorter_starts
from ggpm.kernels.distances import Distances, Pairs
from ggpm.kernels.evaluation import (
    KernelEvaluation,
    RowVariance,
    diag,
    diag_pullback,
    evaluate,
    log_bounds,
    log_hyper,
    resolve_kernel,
    with_log_hyper,
)
from ggpm.kernels.scaled import Scaled
from ggpm.kernels.structure import category_columns, factors, idle, placed, summands, used_columns, without_column
from ggpm.kernels.text import KernelTextError, kernel_from_text, kernel_text

__all__ = [
    "Additive", "Category", "Cyclic", "Distances", "KernelEvaluation", "KernelTextError", "On", "Pairs",
    "RowVariance", "Scaled", "Sphere", "category_columns", "chosen_columns", "default_kernel", "diag",
    "diag_pullback", "evaluate", "factors", "idle", "kernel_from_text", "kernel_text", "log_bounds", "log_hyper",
    "median_distance", "placed", "resolve_kernel", "shorter_starts", "standardised", "summands", "unit_vectors",
    "used_columns", "with_log_hyper", "without_column",
]  # fmt: skip
