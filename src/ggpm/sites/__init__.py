"""Site rules: the Gaussian factor that each row gets. A rule knows no field."""

from ggpm.sites.base import InferenceError, Problem, Rule, Sites, Slopes
from ggpm.sites.laplace import Laplace
from ggpm.sites.taylor import Taylor
from ggpm.sites.variational import Variational

INFERENCES = {"taylor": Taylor, "laplace": Laplace, "variational": Variational}
"""The rules by the names that estimators take."""

__all__ = ["INFERENCES", "InferenceError", "Laplace", "Problem", "Rule", "Sites", "Slopes", "Taylor", "Variational"]
