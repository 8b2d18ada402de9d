"""Special functions that keep their digits wherever a latent vector can reach, and averages over such vectors."""

from ggpm.families.special.bessel import BesselRatio
from ggpm.families.special.gamma import digamma_increment, information_gap, tetragamma, trigamma, trigamma_excess
from ggpm.families.special.log_gamma import LogGamma1p
from ggpm.families.special.proportions import (
    largest,
    length,
    log1p_minus,
    log_softmax,
    softmax,
    sum_of_others,
)
from ggpm.families.special.softplus import SoftplusTerms

__all__ = [
    "BesselRatio", "LogGamma1p", "SoftplusTerms", "digamma_increment", "information_gap", "largest", "length",
    "log1p_minus", "log_softmax", "softmax", "sum_of_others", "tetragamma", "trigamma", "trigamma_excess",
]  # fmt: skip
