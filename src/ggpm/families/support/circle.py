"""The support of angles, in any unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.text import Message, Row
from ggpm.families import integration
from ggpm.families.integration import LogDensity, Rule
from ggpm.families.support.base import Support
from ggpm.families.support.checks import check_vector

Array = NDArray[np.float64]


# Part of a full turn that angles must be known to: beyond 4e9 turns doubles are further apart
LEAST_OF_A_TURN = 1e-6


@dataclass(frozen=True)
class Circle(Support):
    """Angles; the density is per unit of angle, ``period`` units to the full turn.

    Parameters
    ----------
    period : float
        The full turn in the user's unit: 360 for degrees, 24 for hours.
    start : float, optional
        Where the range of predictions starts, in the user's unit; by default -pi for radians, else 0.
    encoded_period : float, optional
        The full turn of *encoded* y, by default ``period``: a family that does not override ``encode`` keeps the user's
        unit. One whose ``encode`` gives radians declares 2 pi.

    Examples
    --------
    >>> Circle(period=24.0).error(np.array([23.5]), np.array([0.5]))
    array([1.])
    """

    kind = "angles"
    error_name = "mean absolute angle"
    period: float = 2.0 * np.pi
    start: float | None = None
    encoded_period: float | None = None

    def validate(self, y: Any) -> Array:
        out = check_vector(y, "angles")
        apart = np.spacing(np.max(np.abs(out), initial=0.0))
        if apart > LEAST_OF_A_TURN * self.period:
            i = int(np.argmax(np.abs(out)))
            raise ValueError(
                Message(
                    f"angles must be numbers with digits left after whole turns of {self.period:g} are taken away; got "
                    f"{out[i]:g} in row ",
                    Row(i),
                    f", where neighbouring numbers are {apart:.2g} apart. Take angles modulo a turn before they are "
                    "added up, or check the unit.",
                )
            )
        return out

    def check_encoding(self, encode: Callable[[Any], Array]) -> None:
        zero, quarter = np.ravel(encode(np.array([0.0, self.period / 4])))
        turn = self._encoded_turn
        if abs(np.mod(quarter - zero, turn) / turn - 0.25) > 1e-6:
            raise TypeError(
                f"encode turns a quarter of the period, {self.period / 4:g}, into {quarter - zero:g}, but the support "
                f"says that a full turn of encoded y is {turn:g}. If encode gives radians, declare "
                f"Circle(period={self.period:g}, encoded_period=2 * np.pi); else leave encode as it is."
            )

    def example(self, rng: np.random.Generator, n: int) -> Array:
        return self.period * rng.uniform(-0.5, 0.5, size=n)

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        return integration.circle(self.period)

    @property
    def _encoded_turn(self) -> float:
        return self.period if self.encoded_period is None else self.encoded_period

    def to_radians(self, y: Array) -> Array:
        """Return encoded y in radians."""
        return y * (2.0 * np.pi / self._encoded_turn)

    def from_radians(self, angle: Array) -> Array:
        """Return radians as encoded y."""
        return angle * (self._encoded_turn / (2.0 * np.pi))

    def decode_start(self) -> float:
        if self.start is not None:
            return self.start
        return -np.pi if self.period == 2.0 * np.pi else 0.0

    def wrap(self, y: Array) -> Array:
        """Return y, as the user has it, within the range of predictions [start, start + period)."""
        low = self.decode_start()
        out = low + np.mod(y - low, self.period)
        return np.where(out >= low + self.period, low, out)  # rounding may reach the open end

    def embed(self, y: Array) -> Array:
        angle = self.to_radians(y)
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)

    def point(self, moment: Array) -> Array:
        """Return the direction of an averaged (cos, sin), (..., 2), in the user's unit."""
        return self.wrap(np.arctan2(moment[..., 1], moment[..., 0]) * (self.period / (2.0 * np.pi)))

    def variance(self, moment: Array, within: Array, between: Array) -> Array:
        return self.variance_of(moment)

    def variance_of(self, moment: Array) -> Array:
        """Return the circular variance: one minus the length of the averaged (cos, sin)."""
        return 1.0 - np.hypot(moment[..., 0], moment[..., 1])

    def loss(self, y: Array, prediction: Array) -> Array:
        """Return one minus the cosine of the difference."""
        return 2.0 * np.sin(0.5 * (self.to_radians(y) - prediction * (2.0 * np.pi / self.period))) ** 2

    def distance(self, a: Array, b: Array) -> Array:
        """Return the angle between two encoded y, in radians whatever the unit (Grimit et al. 2006)."""
        apart = np.mod(self.to_radians(a - b) + np.pi, 2 * np.pi) - np.pi
        return np.abs(apart).reshape(*apart.shape[:2])

    def error(self, y: Array, prediction: Array) -> Array:
        half = 0.5 * self.period
        return np.abs(np.mod(y.reshape(prediction.shape) - prediction + half, self.period) - half)
