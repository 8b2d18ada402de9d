"""Parts of compositions and directions whose distribution functions are known, in closed form or nearly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.special import expit

if TYPE_CHECKING:
    from ggpm.families.special.wide_parts import WidePart

Array = NDArray[np.float64]

ALL = 700.0  # of logits: what floats tell from the bounds of the support
STEPS, OFF = 20, 1e-4  # of Newton's method, at most; one is made after probabilities are as close as this


class Table(ABC):
    """Distribution functions of the d parts of some rows."""

    @abstractmethod
    def cdf(self, y: Array) -> Array:
        """P(part <= y), y (k, d)."""

    @abstractmethod
    def quantile(self, q: float) -> Array:
        """The q-quantile of every part, (k, d)."""

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Quantiles of every part, (k, d, levels)."""
        return np.stack([self.quantile(q) for q in levels], axis=-1)


@dataclass(frozen=True)
class Told(Table):
    """The same of one row from the distribution functions of the laws of its parts."""

    low: float
    high: float
    laws: list[WidePart]

    def cdf(self, y: Array) -> Array:
        """P(part <= y), y (1, d)."""
        with np.errstate(divide="ignore"):
            z = np.clip(np.log(y - self.low) - np.log(self.high - y), -ALL, ALL)
        return np.stack([law.upto(z[:, j]) for j, law in enumerate(self.laws)], axis=1)

    def quantile(self, q: float) -> Array:
        """The q-quantile of every part, (1, d)."""
        return self.quantiles((q,))[..., 0]

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Quantiles of every part, (1, d, levels)."""
        z = np.stack([_quantiles_of(law, np.asarray(levels)) for law in self.laws])[None]
        return self.low + (self.high - self.low) * expit(z)


def _quantiles_of(law: WidePart, q: Array) -> Array:
    """Quantiles of a logit, infinite where there is mass beyond what floats tell: Newton's method between points."""
    centre, width = law.place
    ends = np.arcsinh((np.array([-law.reach, law.reach]) - centre) / width)
    t = np.linspace(ends[0], ends[1], law.points)
    z = centre + width * np.sinh(t)
    F = np.maximum.accumulate(law.upto(z))
    out = np.where(q <= F[0], -np.inf, np.inf)
    inside = np.flatnonzero((q > F[0]) & (q < F[-1]))
    if not inside.size:
        return out
    q, rises = q[inside], np.flatnonzero(np.diff(F, prepend=-1.0) > 0)
    above = np.searchsorted(F, q)
    left, right = z[above - 1], z[above]
    x = centre + width * np.sinh(PchipInterpolator(F[rises], t[rises])(q))
    for _ in range(STEPS):
        off = law.upto(x) - q
        left, right = np.where(off < 0, np.maximum(x, left), left), np.where(off > 0, np.minimum(x, right), right)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = x - off / law.density(x)
        x = np.where((step >= left) & (step <= right), step, 0.5 * (left + right))
        if np.all(np.abs(off) < OFF):
            break
    out[inside] = x
    return out
