"""`Sharpened`: predictions of classes and grades whose log odds rows that were left out have stretched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from ggpm.data.checks import check_whole
from ggpm.data.rows import batches
from ggpm.learning.sharpening import Law, Sharpening
from ggpm.prediction.averages import picked
from ggpm.prediction.corrected import Corrected
from ggpm.prediction.predictive import Predictive
from ggpm.prediction.recalibrated import Recalibrated

__all__ = ["Sharpened", "corrected"]

Array = NDArray[np.float64]


class Sharpened(Corrected[Sharpening]):
    """Predictive distributions of classes, whose probabilities are to the power that rows left out have asked for.

    Parameters
    ----------
    base : Predictive
    laws : the powers that rows have, some of them
    which : array (m,), the number of each row's power

    Examples
    --------
    >>> from ggpm.families import Bernoulli
    >>> base = Predictive(Bernoulli(), np.ones((1, 1)), np.ones((1, 1, 1)))
    >>> sure = Sharpened(base, [Sharpening(2.0)], np.zeros(1, dtype=int))
    >>> base.mean().round(3), sure.mean().round(3)
    (array([0.697]), array([0.841]))
    """

    def _logs(self) -> Array:
        """Log probabilities of all classes, (m, classes)."""
        said = self.base.probabilities()
        out = np.empty(said.shape)
        for k in np.unique(self.which):
            rows = self.which == k
            out[rows] = self.laws[k].log(said[rows])
        return out

    def _moment(self) -> Array:
        q = np.exp(self._logs())
        return q[:, 1] if self.family.latent_dim == 1 and self.base._moment().ndim == 1 else q

    def log_prob(self, y: Any) -> Array:
        """Log probability of each class, (m,); they are codes."""
        codes = self._kind.codes(self._encode(y))  # type: ignore[attr-defined]
        return self._in_blocks(lambda p, rows: p._logs()[np.arange(len(p)), codes[rows]], with_rows=True)

    def log_ratio(self, y: Any) -> Array:
        """What sharpening adds to the log probability of each class, (m,)."""
        return self.log_prob(y) - self.base.log_prob(y)

    def mean_interval(self, level: float = 0.9) -> Array:
        """Credible interval of the probability of each class, moved and stretched on the scale of log odds with it."""
        ends, before, after = self.base.mean_interval(level), self.base.mean()[..., None], self.mean()[..., None]
        power = np.array([law.power for law in self.laws])[self.which].reshape(-1, *[1] * (ends.ndim - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = expit(logit(after) + power * (logit(ends) - logit(before)))
        return np.where(np.isfinite(moved), moved, ends)

    def sample(self, size: int | None = None, random_state: Any = None) -> Array:
        """Independent draws of the codes of classes, (size, m), or (m,) without size."""
        if size is not None:
            check_whole(size, "size", 0)
        rng, count = np.random.default_rng(random_state), 1 if size is None else int(size)
        uniform, out = rng.uniform(size=(count, len(self))), np.empty((count, len(self)))
        q = self.probabilities().T
        for some in batches(len(self), count * len(q)):
            out[:, some] = picked(q[:, some], uniform[:, some])
        return out[0] if size is None else out

    def in_the_order_of(self, draws: Array, rng: np.random.Generator) -> Array:
        """Draws (S, m), some of the base, of which as few are replaced as the new probabilities need."""
        before, after = self.base.probabilities(), self.probabilities()
        codes, rows = draws.astype(np.intp), np.arange(len(self))
        refused = rng.uniform(size=codes.shape) * before[rows, codes] >= after[rows, codes]
        more = np.maximum(after - before, 0.0).T + np.finfo(np.float64).tiny
        others = picked(more, rng.uniform(size=codes.shape))
        return np.where(refused, others, codes).astype(draws.dtype)


def corrected(base: Predictive, laws: Sequence[Law], which: NDArray[np.intp]) -> Corrected:
    """Distributions with the laws that their rows have: of classes and grades powers, else laws of transforms.

    >>> from ggpm.families import Bernoulli
    >>> base = Predictive(Bernoulli(), np.ones((1, 1)), np.ones((1, 1, 1)))
    >>> corrected(base, [Sharpening(2.0)], np.zeros(1, dtype=int))
    Sharpened(Predictive(Bernoulli(), 1 rows))
    """
    kind: Any = Sharpened if base.family.finite else Recalibrated
    return kind(base, laws, which)
