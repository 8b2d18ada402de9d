"""Relatives: the same rows under a family that knows other things of them, one more opinion in an average.

Grades of one latent can only move up or down as the inputs change: one that becomes rarer makes all grades on one side
of it more frequent. Where that is not so, classes forecast better, and where it is so they are not much worse. Amounts
have the tails of a gamma's law or of a log-normal one, and evidence hardly tells which. So relatives are heard beside
the family that was asked for (`ggpm.learning.contest`).
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from ggpm.families.base import Family
from ggpm.families.categorical import Categorical
from ggpm.families.gamma import Gamma
from ggpm.families.log_normal import LogNormal
from ggpm.families.ordinal import Ordinal
from ggpm.families.weighted import Weighted
from ggpm.fields.dense import DenseField
from ggpm.learning.choice import choose
from ggpm.learning.objective import Evidence
from ggpm.sites import Laplace, Variational

__all__ = ["called", "relative"]

# Grades: two are classes already, and every one costs as much as the latent of all. Up to eleven were tried.
FEWEST, MOST = 3, 12


def called(family: Family) -> str:
    """What a contest says of a relative behind its kernel.

    >>> called(LogNormal())
    'log-normal'
    """
    return "as classes" if family.finite else "log-normal"


def relative(evidence: Evidence, known: Family | None = None) -> Evidence | None:
    """The evidence of the same rows under another family, with the same kernels; None where there is none.

    None too for rows that are not all in memory, for very many grades, and for grades with an offset, which moves
    their latent up or down and those of classes nowhere. ``known`` is the other family as it was resolved before.

    >>> from ggpm import GGPRegressor
    >>> fit = GGPRegressor("ordinal", optimizer=None).fit(np.arange(9.0)[:, None], np.arange(9) % 3).fit_
    >>> relative(fit.evidence).family, relative(fit.evidence).field.y.shape
    (Categorical(n_classes=3), (9, 3))
    """
    family, field, rule = evidence.family, evidence.field, evidence.rule
    if not isinstance(field, DenseField) or not isinstance(rule, Laplace | Variational):
        return None
    base, codes, weight = family, field.y, None
    if isinstance(family, Weighted):
        base, (codes, weight) = family.base, family.split(field.y)
    other = _other(base, base.decode(codes), weight)
    moves = other is not None and other.latent_dim == base.latent_dim  # as the base's own latent does with an offset
    if other is None or not (moves or not field.offset.any()):
        return None
    if known is not None:
        other = known
    y = other.encode(base.decode(codes))
    offset = field.offset - base.origin + other.origin if moves else np.zeros((len(y), other.latent_dim))
    if weight is not None:
        other, y = Weighted.join(other, y, weight)
    out = copy.copy(evidence)
    out.__dict__.pop("theta", None)
    out.family, out.field = other, replace(field, y=y, offset=offset)
    if isinstance(rule, Variational) and isinstance(choice := choose(out.family, out.field), Laplace):
        out.rule = choice
    return out


def _other(family: Family, y: np.ndarray, weight: np.ndarray | None) -> Family | None:
    """The relative of a family, resolved for these y."""
    if isinstance(family, Ordinal) and FEWEST <= (family.n_levels or 0) <= MOST:
        return Categorical(family.n_levels).resolve(np.arange(family.n_levels))
    if type(family) is Gamma and family.link == "log" and family.learns_phi:
        return LogNormal().resolve(y, weight)
    return None
