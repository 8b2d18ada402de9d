"""`Support`: declaration of what an output may be, with the answers that follow from it.

Two forms of y. *As the user has it*: what is passed to ``fit`` and comes back from ``predict`` (hours, percentages,
codes). *Encoded*: what `Family.encode` makes of it and the family's density takes (radians, shares, indicators). A
family that does not override ``encode`` keeps the user's unit. Every method below says which form it takes.

A kind of output is a subclass of `Support` in `ggpm.families.support`; a subclass of one of these inherits all of its
answers. The large computations on predictive distributions are chosen by `Support.kind` in `ggpm.prediction.kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ggpm.families.integration import LogDensity, Rule

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Support:
    """Base of all supports: `validate` and the answers that hold for numbers, vectors and matrices."""

    low: ClassVar[float] = -np.inf
    """Bound below every entry of an encoded y."""
    high: ClassVar[float] = np.inf
    """Bound above every entry of an encoded y."""
    integer: ClassVar[bool] = False
    """True if y is whole numbers, so that it has probabilities and not densities."""
    row_ndim: ClassVar[int] = 0
    """Axes of one observation: 0 for numbers, 1 for vectors, 2 for matrices."""
    kind: ClassVar[str] = "numbers"
    """Name under which prediction and plotting look up regions, summary columns and pictures (see `Family.kind`)."""
    atoms: ClassVar[tuple[float, ...]] = ()
    """Single numbers among continuous ones that have probabilities of their own."""
    error_name: ClassVar[str] = "mean absolute error"
    """Name of the mean of `error`."""

    # ---- the data --------------------------------------------------------------------------------------------
    def validate(self, y: Any) -> Array:
        """Return y, as the user has it, as a clean float array, or raise ValueError that names the fault."""
        raise NotImplementedError

    def check_encoding(self, encode: Callable[[Any], Array]) -> None:
        """Raise TypeError if a family's ``encode`` does not give the unit that the support declares."""

    def example(self, rng: np.random.Generator, n: int) -> Array:
        """Return n observations from all over the support, as a user has them."""
        raise NotImplementedError(f"{type(self).__name__} gives no example observations: pass y.")

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        """Return nodes, as a user has them, and weights that sum or integrate this density.

        ``like`` is one observation of the same shape.
        """
        raise NotImplementedError(f"{type(self).__name__} has no rule to sum or integrate a density over it.")

    # ---- means and points --------------------------------------------------------------------------------------
    def embed(self, y: Array) -> Array:
        """Return encoded y as the numbers whose expectation is `Family.moment`: y itself, (cos, sin) of an angle."""
        return y

    def point(self, moment: Array) -> Array:
        """Return the prediction, as the user has it, that belongs to an averaged `Family.moment`."""
        return moment

    def variance(self, moment: Array, within: Array, between: Array) -> Array:
        """Return the predictive variance from the averaged moment, E[spread] and Cov[moment]."""
        return within + between

    def variance_of(self, moment: Array) -> Array | None:
        """Return the predictive variance where the averaged moment alone decides it, else None."""
        return None

    def allows_mean(self, mean: Array) -> bool:
        """Tell whether the predictions, as the user has them, may be means of outputs in this support."""
        if self.integer:
            return bool(np.all((mean >= self.low) & (mean <= self.high)))
        try:
            return self.validate(mean) is not None
        except ValueError:
            return False

    def decode_start(self) -> float | None:
        """Return the start of the range of predictions, as the user has them; None where y has an order of its own."""
        return None

    # ---- how far ---------------------------------------------------------------------------------------------
    def loss(self, y: Array, prediction: Array) -> Array:
        """Return the unit loss, (n,), of predictions as the user has them for encoded y: the squared error."""
        return np.sum((y - prediction).reshape(len(y), -1) ** 2, axis=-1)

    def distance(self, a: Array, b: Array) -> Array:
        """Return Euclidean distances between encoded outputs, over all axes of one of them."""
        rows = np.broadcast_shapes(a.shape, b.shape)[:2]
        return np.sqrt(np.sum((a - b).reshape(*rows, -1) ** 2, axis=-1))

    def error(self, y: Array, prediction: Array) -> Array:
        """Return the error of each row, (n,), in the user's unit; y and prediction are as the user has them."""
        return np.abs(y.reshape(prediction.shape) - prediction).reshape(len(y), -1).mean(axis=-1)
