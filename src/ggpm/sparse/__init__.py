"""Past one machine: sparse posteriors over inducing points, from rows that are read in chunks."""

from ggpm.sparse.inducing import Inducing

__all__ = ["Inducing"]
