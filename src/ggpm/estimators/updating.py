"""Rows that are added to a fitted model, without learning its hyperparameters anew."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from ggpm.data.checks import as_offset
from ggpm.estimators.intake import inputs_of, rows_to_fit
from ggpm.estimators.judging import Judging
from ggpm.families.base import Family
from ggpm.families.partial import Partial, partly_missing
from ggpm.families.weighted import Weighted
from ggpm.fields.dense import DenseField
from ggpm.fields.neighbours.field import NeighboursField
from ggpm.kernels.threads import threads_for
from ggpm.learning.as_classes import as_classes
from ggpm.learning.fit import Fit, SearchOutcome
from ggpm.learning.objective import Evidence

Array = NDArray[np.float64]


class Updating(Judging):
    """The method of a fitted estimator that takes further rows."""

    @abstractmethod
    def _adopt(self, fit: Fit) -> None:
        """Set the public attributes from a fit."""

    def update(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> Self:
        """Add rows to a fitted model: a new posterior at the hyperparameters that it has, without learning them anew.

        Labels of categories that were not seen yet are new groups from then on. Fits that are averaged with it, and
        those for labels that are new, get the rows too, and keep their weights.

        >>> from ggpm import GGPRegressor
        >>> X = np.arange(12.0)[:, None]
        >>> model = GGPRegressor("poisson").fit(X[:8], np.arange(8))
        >>> model.update(X[8:], np.arange(8, 12)).posterior_.inputs.shape
        (12, 1)
        """
        check_is_fitted(self)
        fit = self.fit_
        field: Any = fit.evidence.field
        if not isinstance(field, DenseField | NeighboursField):
            raise ValueError(
                "update needs all training rows, which inducing points do not keep: fit with inducing=None."
            )
        self._require_offset(offset)
        X, y, offset, weight = rows_to_fit(X, y, offset, sample_weight)
        columns = fit.columns.extended(X)
        X, _ = inputs_of(self, X, columns)
        before, codes = field.y, self.codes(y)
        _, old, encoded = _joined(fit.evidence.family, before, codes, weight)
        check_consistent_length(X, encoded)
        field = replace(field, y=old)
        offset = np.full(len(X), offset) if offset is not None and np.ndim(offset) == 0 else offset
        more = as_offset(offset, len(X), fit.family.latent_dim) + fit.family.origin
        both = [np.concatenate(pair) for pair in ((field.X, X), (field.y, encoded), (field.offset, more))]
        field = replace(field, X=both[0], y=both[1], offset=both[2])

        def renewed(member: Fit) -> Fit | None:
            """One of the fits that take part in predictions, with the rows of all; None where it cannot have them."""
            alike = member.family.latent_dim == fit.family.latent_dim
            likelihood = member.evidence.family if alike else fit.evidence.family
            family = _joined(likelihood, before, codes, weight)[0]
            evidence: Any = Evidence(family, member.kernels, field, member.rule, member.evidence.objective)
            evidence = evidence if alike else as_classes(evidence)
            if evidence is None:
                return None
            evidence.priors = member.evidence.priors
            found = SearchOutcome(evidence, n_iter=member.n_iter).fit(columns, fit.target, fit.offset)
            return replace(found, weight=member.weight, recalibration=member.recalibration)

        def with_others(member: Fit) -> Fit:
            """The same with what it is averaged with, and with what speaks for labels that are new."""
            first, *others = (new for new in map(renewed, member.members) if new is not None)
            if len(others) < len(member.others):
                total = sum(new.weight for new in (first, *others))
                first, *others = (replace(new, weight=new.weight / total) for new in (first, *others))
            others = [replace(new, found=None) for new in others]
            newcomers = tuple(replace(n, fit=replace(with_others(n.fit), found=None)) for n in member.newcomers)
            return replace(first, others=tuple(others), newcomers=newcomers)

        with threads_for(field.n_rows):
            updated = replace(with_others(fit), search=fit.search)  # by which its kernel was chosen
        self._adopt(updated)
        for note in updated.notes:
            warnings.warn(note, ConvergenceWarning, stacklevel=2)
        return self


def _joined(family: Family, old: Array, y: Any, weight: Array | None) -> tuple[Family, Array, Array]:
    """The family of old and new rows together, with weights and missing parts where either has them, and their y."""
    weights, inner = np.ones(len(old)), family
    if isinstance(family, Weighted):
        inner, (old, weights) = family.base, family.split(old)
    if partly_missing(y).any() and not isinstance(inner, Partial):
        inner = Partial.around(inner, y)
        old = np.concatenate([old, np.ones_like(old)], axis=1)  # of them nothing is missing
    encoded = inner.encode(y)
    if not isinstance(family, Weighted) and weight is None:
        return inner, old, encoded
    joined, new = Weighted.join(inner, encoded, np.ones(len(encoded)) if weight is None else weight)
    return joined, Weighted.join(inner, old, weights)[1], new
