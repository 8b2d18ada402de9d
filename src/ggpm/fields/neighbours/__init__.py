"""The neighbours field: every row's prior given its nearest earlier rows (Vecchia's approximation)."""

from ggpm.fields.neighbours.settings import Neighbours

__all__ = ["Neighbours"]
