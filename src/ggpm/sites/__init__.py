"""Inference: the Gaussian site that each data point gets.

An inference method has ``infer(problem, K, start=None) -> Approximation``; what learns hyperparameters with it asks for
``gradient(approximation)`` (of the evidence) or ``pullback(approximation, cotangent)`` (of anything else, such as
leave-one-out densities).
"""

from ggpm.sites.base import Approximation, InferenceError, Problem
from ggpm.sites.laplace import Laplace
from ggpm.sites.taylor import Taylor
from ggpm.sites.variational import Variational

INFERENCES = {"taylor": Taylor, "laplace": Laplace, "variational": Variational}

__all__ = ["INFERENCES", "Approximation", "InferenceError", "Laplace", "Problem", "Taylor", "Variational"]
