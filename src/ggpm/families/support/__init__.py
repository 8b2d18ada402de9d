"""The supports: one declaration per kind of y.

A support validates input and names the mistake, makes up examples, and can sum or integrate a density over all that y
may be, so that a family can be checked (`ggpm.testing.check_family`). It also says how outputs of its kind are compared
and summarised: `ggpm.families.support.base.Support` lists the methods.
"""

from ggpm.families.support.base import Support
from ggpm.families.support.circle import Circle
from ggpm.families.support.counts import Codes, Counts, CountVectors
from ggpm.families.support.matrices import SPD
from ggpm.families.support.numbers import Positive, Real, UnitInterval
from ggpm.families.support.vectors import Simplex, Sphere

__all__ = [
    "SPD", "Circle", "Codes", "CountVectors", "Counts", "Positive", "Real", "Simplex", "Sphere", "Support",
    "UnitInterval",
]  # fmt: skip
