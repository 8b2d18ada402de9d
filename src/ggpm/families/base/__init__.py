"""Bases of families: `Family`, `ScalarFamily` for one latent and a link, and what they take from data."""

from ggpm.families.base.closed_forms import OPTIONAL, Density, Fewer, OwnDraws
from ggpm.families.base.family import Array, Bounds, Family
from ggpm.families.base.resolving import bound, check_spread, moments
from ggpm.families.base.scalar import DispersedMean, PositiveMean, ScalarFamily

__all__ = [
    "OPTIONAL", "Array", "Bounds", "Density", "DispersedMean", "Family", "Fewer", "OwnDraws", "PositiveMean",
    "ScalarFamily", "bound", "check_spread", "moments",
]  # fmt: skip
