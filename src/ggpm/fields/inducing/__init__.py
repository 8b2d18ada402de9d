"""The inducing field: a posterior through few inducing values, from rows that are read in chunks."""

from ggpm.fields.inducing.points import Inducing

__all__ = ["Inducing"]
