"""Bases of families: `Family`, `ScalarFamily` for one latent and a link, and what they take from data."""

from ggpm.families.base.family import (
    OPTIONAL, Array, Bounds, Density, DispersedMean, Family, Fewer, OwnDraws, PositiveMean, ScalarFamily, bound,
    check_spread, moments,
)  # fmt: skip

__all__ = [
    "OPTIONAL", "Array", "Bounds", "Density", "DispersedMean", "Family", "Fewer", "OwnDraws", "PositiveMean",
    "ScalarFamily", "bound", "check_spread", "moments",
]  # fmt: skip
