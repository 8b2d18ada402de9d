"""`Mixture`: an average of several predictive distributions of the same rows, which answers what a single one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import check_whole
from ggpm.prediction.averages import by_rows, log_average, mixed_moments, of_one_latent, picked
from ggpm.prediction.nodes import Rows, gather
from ggpm.prediction.predictive import Predictive
from ggpm.sites.densities import log_expected_prob

__all__ = ["Mixture", "averaged"]

Array = NDArray[np.float64]


class Mixture(Predictive):
    """Weighted average of predictive distributions; the latent's mean and covariance are those of the mixture.

    Parameters
    ----------
    parts : predictive distributions of the same rows
        Families may differ in their hyperparameters, and those of classes beside the first's, in which order counts:
        `family` is that of the heaviest with a latent as long as the first's.
    weights : array (parts,), or (parts, m) where rows have their own
        Not negative, with sum one over the parts.

    Examples
    --------
    >>> from ggpm.families import Poisson
    >>> low, high = (Predictive(Poisson(), np.full((1, 1), m), np.zeros((1, 1, 1))) for m in (0.0, 2.0))
    >>> both = Mixture([low, high], np.array([0.5, 0.5]))
    >>> both.mean().round(3), both.quantile(0.5)
    (array([4.195]), array([3.]))
    """

    def __init__(self, parts: Sequence[Predictive], weights: Array):
        self.parts = tuple(parts)
        columns = np.reshape(np.asarray(weights, dtype=np.float64), (len(self.parts), -1))
        self.weights = np.broadcast_to(columns, (len(self.parts), len(self.parts[0])))
        mean, cov = mixed_moments(self.weights, [p.latent_mean for p in parts], [p.latent_cov for p in parts])
        alike, shares = of_one_latent(columns, [p.latent_mean.shape[1] for p in parts])
        main = self.parts[alike[int(shares.sum(axis=1).argmax())]]
        super().__init__(main.family, mean, cov, main.trials, main.classes)

    @property
    def components(self) -> tuple[tuple[Array, Predictive], ...]:
        return tuple(zip(self.weights, self.parts, strict=True))

    def single(self) -> Predictive:
        return Predictive(self.family, self.latent_mean, self.latent_cov, self.trials, self.classes)

    def alike(self) -> list[tuple[Rows, Predictive]]:
        """Rows that have the same weights, set by set, and their distributions, without parts that have no weight."""
        return self._alike

    @cached_property
    def _alike(self) -> list[tuple[Rows, Predictive]]:  # kept, for the tables that they keep
        which = np.unique(self.weights, axis=1, return_inverse=True)[1].ravel()
        sets = [np.flatnonzero(which == k) for k in range(which.max(initial=0) + 1)]
        return super().alike() if len(sets) == 1 else [(rows, self.rows(rows)) for rows in sets]

    def _in_blocks(self, answer: Callable[..., Array], with_rows: bool = False) -> Array:
        """The same, set by set: no row's answer depends on which others are asked with it."""
        sets = self.alike()
        if len(sets) == 1:
            return super()._in_blocks(answer, with_rows)

        def of(p: Predictive, rows: Rows) -> Array:
            return p._in_blocks((lambda q, some: answer(q, rows[some])) if with_rows else answer, with_rows)

        return gather(len(self), ((rows, of(p, rows)) for rows, p in sets))

    def rows(self, rows: Any) -> Predictive:
        """The distributions of some rows, a slice, a mask or indices: of the parts that have weights there."""
        weights = self.weights[:, rows]
        there = np.flatnonzero(weights.any(axis=1)) if weights.size else range(1)
        parts = [self.parts[k].rows(rows) for k in there]
        return averaged(parts, weights[there])

    def __repr__(self) -> str:
        return f"Mixture({len(self.parts)} × {self.family!r}, {len(self)} rows)"

    def mixed(self, answer: Callable[[Predictive], Array]) -> Array:
        return np.sum([by_rows(w, np.asarray(answer(part))) for w, part in self.components], axis=0)

    def _var(self) -> Array:
        around = self.family.variance_of(self._moment())
        if around is not None:
            return np.asarray(around)
        means, variances = [part.mean() for part in self.parts], [part.var() for part in self.parts]
        mean = np.sum([by_rows(w, m) for w, m in zip(self.weights, means)], axis=0)
        outer = variances[0].ndim > mean.ndim
        out = np.zeros_like(variances[0])
        with np.errstate(over="ignore", invalid="ignore"):  # of means, or squares of them, beyond the floats
            for w, m, v in zip(self.weights, means, variances):
                d = m - mean
                out += by_rows(w, v + (d[..., :, None] * d[..., None, :] if outer else d * d))
        return out if outer else np.where(np.isinf(mean), np.inf, out)

    def _moment(self) -> Array:
        return self.mixed(lambda part: part._moment())

    def log_prob(self, y: Any) -> Array:
        """Log predictive density (or probability) of each y, (m,), per unit of y."""
        encoded = self._encode(y)

        def averaged(p: Predictive, rows: Any) -> Array:
            y = encoded[rows]
            return log_average(
                [
                    (w, log_expected_prob(q.family, q.latent_mean, q.latent_cov, self._encoded_for(q, y)))
                    for w, q in p.components
                ]
            )

        return self._in_blocks(averaged, with_rows=True)

    def _encoded_for(self, part: Predictive, y: Array) -> Array:
        """y as a part's family encodes it."""
        if part.family.latent_dim == self.family.latent_dim:
            return y
        return part.family.encode(self.family.decode(y))

    def _normal(self) -> None:
        return None

    def sample(self, size: int | None = None, random_state: Any = None) -> Array:
        """Independent draws of y, (size, m, ...), or (m, ...) without size."""
        if size is not None:
            check_whole(size, "size", 0)
        rng = np.random.default_rng(random_state)
        lead = (1 if size is None else int(size), len(self))
        which = picked(self.weights, rng.uniform(size=lead))
        out = self.parts[0].sample(0, rng)
        out = np.empty((*lead, *out.shape[2:]), dtype=out.dtype)
        for k, part in enumerate(self.parts):
            chosen = which == k
            count = np.cumsum(chosen, axis=0)  # no part draws more than the row needs that has it most often
            drawn = part.sample(int(count[-1].max(initial=0)) if len(count) else 0, rng)
            draw, row = np.nonzero(chosen)
            out[draw, row] = drawn[count[draw, row] - 1, row]
        return out[0] if size is None else out


def averaged(parts: Sequence[Predictive], weights: Array) -> Predictive:
    """The `Mixture` of some distributions, or the only one itself.

    >>> from ggpm.families import Poisson
    >>> averaged([Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))], np.ones((1, 2)))
    Predictive(Poisson(), 2 rows)
    """
    return parts[0] if len(parts) == 1 else Mixture(parts, weights)
