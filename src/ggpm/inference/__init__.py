"""Inference: the Gaussian site that each data point gets.

An inference method has one method, ``infer(problem, K, start=None) -> Approximation``.
"""

from ggpm.inference.base import Approximation, InferenceError, Problem
from ggpm.inference.laplace import Laplace
from ggpm.inference.taylor import Taylor

INFERENCES = {"taylor": Taylor, "laplace": Laplace}

__all__ = ["INFERENCES", "Approximation", "InferenceError", "Laplace", "Problem", "Taylor"]
