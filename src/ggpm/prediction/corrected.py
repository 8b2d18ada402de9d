"""`Corrected`: what predictions have in common that rows which were left out have corrected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ggpm.prediction.nodes import Rows
from ggpm.prediction.predictive import Predictive

__all__ = ["Corrected"]

Array = NDArray[np.float64]
Law = TypeVar("Law")


class Corrected(Predictive, Generic[Law]):
    """Predictive distributions and the laws that correct them; what is asked of the latent is answered as before.

    Parameters
    ----------
    base : Predictive
    laws : the laws that rows have, some of them
    which : array (m,), the number of each row's law
    """

    recalibrated = True

    def __init__(self, base: Predictive, laws: Sequence[Law], which: NDArray[np.intp]):
        self.base, self.laws, self.which = base, tuple(laws), which
        super().__init__(base.family, base.latent_mean, base.latent_cov, base.trials, base.classes)

    @property
    def components(self) -> tuple[tuple[Array, Predictive], ...]:
        return self.base.components

    def mixed(self, answer: Callable[[Predictive], Array]) -> Array:
        return self.base.mixed(answer)

    def alike(self) -> list[tuple[Rows, Predictive]]:
        return self.base.alike()

    def rows(self, rows: Any) -> Self:
        """The distributions of some rows: a slice, a mask or indices."""
        return type(self)(self.base.rows(rows), self.laws, self.which[rows])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"

    def log_ratio(self, y: Any) -> Array:
        """What the laws add to the log density of each y, (m,)."""
        raise NotImplementedError

    def in_the_order_of(self, draws: Array, rng: np.random.Generator) -> Array:
        """Draws (S, m) with the dependence between rows that some of the base have, joint over the rows."""
        raise NotImplementedError
