"""Pictures of fitted models, one call each (extra: ``pip install ggpm[plot]``).

Every function takes a matplotlib ``ax`` (or makes one) and returns it, so that pictures can be combined and
finished by hand; those with several panels take and return an array of them. Slices vary one or two columns and hold
the others at their medians, categories at the label that occurs most often, unless ``at={"depth": 2.0}`` names values;
the title says so.
"""

from ggpm.plotting._common import kind_of_picture
from ggpm.plotting.angles import plot_angles, plot_polar
from ggpm.plotting.checks import (
    coverage_depth,
    plot_calibration,
    plot_compare,
    plot_pit,
    plot_search,
)
from ggpm.plotting.classes import plot_class_map, plot_ordinal
from ggpm.plotting.compositions import plot_ternary, plot_ternary_density
from ggpm.plotting.effects import plot_effects, plot_map
from ggpm.plotting.evidence import hyperparameter_names, plot_evidence
from ggpm.plotting.numbers import plot_bands, plot_parts
from ggpm.plotting.survival import plot_survival

__all__ = [
    "coverage_depth",
    "hyperparameter_names",
    "kind_of_picture",
    "plot_angles",
    "plot_bands",
    "plot_calibration",
    "plot_class_map",
    "plot_compare",
    "plot_effects",
    "plot_evidence",
    "plot_map",
    "plot_ordinal",
    "plot_parts",
    "plot_pit",
    "plot_polar",
    "plot_search",
    "plot_survival",
    "plot_ternary",
    "plot_ternary_density",
]
