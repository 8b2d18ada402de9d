"""Grades as classes: the same rows under a family that knows nothing of their order.

Grades of one latent can only move up or down as the inputs change: one that becomes rarer makes all grades on one side
of it more frequent. Where that is not so, classes forecast better, and where it is so they are not much worse. So they
are one more opinion in an average (`ggpm.learning.contest`).
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from ggpm.families.categorical import Categorical
from ggpm.families.ordinal import Ordinal
from ggpm.families.weighted import Weighted
from ggpm.fields.dense import DenseField
from ggpm.learning.choice import choose
from ggpm.learning.objective import Evidence
from ggpm.sites import Laplace, Variational

__all__ = ["as_classes"]

# Grades: two are classes already, and every one costs as much as the latent of all. Up to eleven were tried.
FEWEST, MOST = 3, 12


def as_classes(evidence: Evidence) -> Evidence | None:
    """The evidence of grades as classes, with the same kernels; None for other outputs.

    None too with an offset, which moves the latent of grades up or down and those of classes nowhere, for rows that
    are not all in memory, and for very many grades.

    >>> from ggpm import GGPRegressor
    >>> fit = GGPRegressor("ordinal", optimizer=None).fit(np.arange(9.0)[:, None], np.arange(9) % 3).fit_
    >>> as_classes(fit.evidence).family, as_classes(fit.evidence).field.y.shape
    (Categorical(n_classes=3), (9, 3))
    """
    family, field, rule = evidence.family, evidence.field, evidence.rule
    grades = family.base if isinstance(family, Weighted) else family
    known = isinstance(grades, Ordinal) and isinstance(field, DenseField) and isinstance(rule, Laplace | Variational)
    if not known or field.offset.any():  # type: ignore[attr-defined]
        return None
    J: int = grades.n_levels  # type: ignore[attr-defined]
    if not FEWEST <= J <= MOST:
        return None
    out = copy.copy(evidence)
    out.__dict__.pop("theta", None)
    out.family = Categorical(J).resolve(np.arange(J))
    codes, weight = family.split(field.y) if isinstance(family, Weighted) else (field.y, None)  # type: ignore[attr-defined]
    y = out.family.encode(codes)
    if weight is not None:
        out.family, y = Weighted.join(out.family, y, weight)
    out.field = replace(field, y=y, offset=np.zeros((len(y), J)))  # type: ignore[type-var]
    if isinstance(rule, Variational) and isinstance(choice := choose(out.family, out.field), Laplace):
        out.rule = choice
    return out
