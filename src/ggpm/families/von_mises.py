"""Von Mises: angles and times of day."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np

from ggpm.data.text import Hint, Message, stacklevel
from ggpm.families.base import Array
from ggpm.families.directions import Directions
from ggpm.families.special import BesselRatio, length
from ggpm.families.support import Circle

RANGES = {"radians": (-math.pi, math.pi), "degrees": (0.0, 360.0), "hours": (0.0, 24.0)}


class VonMises(Directions):
    """Angles with mean direction mu and concentration kappa: eta = kappa (cos mu, sin mu).

    ========  ==================================================================================
    support   angles, one number per row
    T, b, h   (cos y, sin y), log I_0(|theta|), 1/(2 pi) (paper sec. 4.2)
    a         1
    link      theta = eta (canonical), D = 2
    U         c1 I - rho omega omega^T, omega = eta/kappa, c1 = A/kappa, rho = c1 - A', A = I_1/I_0
    ========  ==================================================================================

    Direction and concentration are both modelled: the latent vector's angle and length.

    Parameters
    ----------
    units : "radians", "degrees", "hours" or (low, high)
        What y is measured in. Predictions and samples lie in [-pi, pi), [0, 360), [0, 24) or [low, high), and
        densities are per that unit. Any y is accepted and taken modulo the period.

    Examples
    --------
    >>> import numpy as np
    >>> family = VonMises(units="hours")
    >>> float(family.point(family.moment(np.array([0.0, 2.0]))))  # a quarter of a day
    6.0
    """

    latent_dim = 2

    def __init__(self, units: str | tuple[float, float] = "radians"):
        self.units = units

    @property
    def support(self) -> Circle:
        low, high = self._range()
        return Circle(period=high - low, start=low, encoded_period=2.0 * math.pi)

    # ---- units -------------------------------------------------------------------------------------------
    def _range(self) -> tuple[float, float]:
        """Half-open range of predictions, in the user's units."""
        if isinstance(self.units, str) and self.units in RANGES:
            return RANGES[self.units]
        try:
            low, high = (float(v) for v in self.units)
            valid = math.isfinite(low) and math.isfinite(high) and low < high
        except (TypeError, ValueError):
            valid = False
        if not valid:
            raise ValueError(
                Message(
                    f"units must be 'radians', 'degrees', 'hours' or a tuple (low, high) with low < high; "
                    f"got {self.units!r}. For day of year try ",
                    Hint("units=(0, 365.25)", "units", (0, 365.25)),
                    ".",
                )
            )
        return low, high

    def radians(self, y: Array) -> Array:
        """Return values of any shape, as the user has them, in radians."""
        low, high = self._range()
        return y if self.units == "radians" else y * (2.0 * math.pi / (high - low))

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        self._range()
        out = super().resolve(y, weight)
        largest = np.max(np.abs(self.support.validate(y)), initial=0.0)
        if self.units == "radians" and largest > 2.0 * math.pi:
            warnings.warn(
                Message(
                    f"expected angles in radians, got values up to {largest:.6g}, more than 2 pi. They are taken "
                    "modulo a full turn; for degrees try ",
                    Hint('VonMises(units="degrees")', "units", "degrees"),
                    ".",
                ),
                UserWarning,
                stacklevel=stacklevel(),
            )
        return out

    def encode(self, y: Any) -> Array:
        return self.radians(self.support.validate(y))

    def decode(self, y: Array) -> Array:
        low, high = self._range()
        return self.support.wrap(y * ((high - low) / (2.0 * math.pi)))

    # ---- density -----------------------------------------------------------------------------------------
    def direction(self, y: Array) -> Array:
        return np.stack([np.cos(y), np.sin(y)], axis=-1)

    def log_whole(self, d: int) -> float:
        low, high = self._range()
        return math.log(high - low)

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        """Circular variance 1 - A(kappa)."""
        return BesselRatio(0.0, length(eta)).one_minus_A

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return self.decode(rng.vonmises(np.arctan2(eta[..., 1], eta[..., 0]), length(eta)))
