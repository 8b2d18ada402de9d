"""Von Mises: angles and times of day."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np

from ggpm.data.text import Hint, Message, stacklevel
from ggpm.families.base import Array, Family
from ggpm.families.curvature import Marginals, RankOne
from ggpm.families.special import bessel_ratio, log_bessel
from ggpm.families.support import Circle

RANGES = {"radians": (-math.pi, math.pi), "degrees": (0.0, 360.0), "hours": (0.0, 24.0)}


class VonMises(Family):
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

    def resolve(self, y: Any) -> Self:
        self._range()
        out = super().resolve(y)
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
    @staticmethod
    def _polar(eta: Array) -> tuple[Array, Array, Array]:
        """kappa, the angle mu and omega = (cos mu, sin mu); mu = 0 where kappa = 0."""
        kappa = np.hypot(eta[..., 0], eta[..., 1])
        safe = np.where(kappa > 0, kappa, 1.0)[..., None]
        omega = np.where(kappa[..., None] > 0, eta / safe, np.array([1.0, 0.0]))
        return kappa, np.arctan2(omega[..., 1], omega[..., 0]), omega

    def log_prob(self, eta: Array, y: Array) -> Array:
        low, high = self._range()
        kappa, mu, _ = self._polar(eta)
        # kappa cos(y - mu) - kappa, and log I_0(kappa) - kappa: nothing of the size of kappa cancels
        fit = -2.0 * kappa * np.sin(0.5 * (y - mu)) ** 2
        return fit - log_bessel(0.0, kappa) - math.log(high - low)

    def natural(self, eta: Array) -> tuple[Array, Array]:
        """theta = eta and b = log I_0(kappa)."""
        kappa = np.hypot(eta[..., 0], eta[..., 1])
        return eta, log_bessel(0.0, kappa) + kappa

    def statistic(self, y: Array) -> tuple[Array, Array]:
        """(cos y, sin y), and the logarithm of a uniform density."""
        low, high = self._range()
        return np.stack([np.cos(y), np.sin(y)], axis=-1), np.full(np.shape(y), -math.log(high - low))

    def u(self, eta: Array, y: Array) -> Array:
        kappa, mu, omega = self._polar(eta)
        delta = y - mu
        # T(y) - A omega in polar coordinates: cos(delta) - A keeps its digits as A -> 1
        radial = bessel_ratio(0.0, kappa).one_minus_A - 2.0 * np.sin(0.5 * delta) ** 2
        return radial[..., None] * omega + np.sin(delta)[..., None] * _turned(omega)

    def U(self, eta: Array, y: Array, expected: bool = False) -> RankOne:
        shape = np.broadcast_shapes(eta.shape[:-1], np.shape(y))
        kappa, _, omega = self._polar(np.broadcast_to(eta, (*shape, 2)))
        ratio = bessel_ratio(0.0, kappa)
        gamma = np.repeat(ratio.c1[..., None], 2, axis=-1)
        nu = np.sqrt(ratio.rho / ratio.c1)[..., None] * omega
        return RankOne(gamma, omega, ratio.rho, nu=nu, gap=ratio.slope_over_c1)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        kappa, _, omega = self._polar(eta)
        ratio, tau = bessel_ratio(0.0, kappa), _turned(omega)
        along, across = V.dot(omega), V.dot(tau)
        # <V, U> = A' V_rr + c1 V_tt in polar coordinates; turning eta by dt changes it by -2 rho V_rt dt
        radial = ratio.A_second * np.sum(omega * along, axis=-1) + ratio.c1_slope * np.sum(tau * across, axis=-1)
        turning = 2.0 * ratio.c1_slope * np.sum(tau * along, axis=-1)
        return radial[..., None] * omega + turning[..., None] * tau, np.zeros(0)

    def expansion(self, y: Array) -> Array:
        return np.stack([np.cos(y), np.sin(y)], axis=-1)  # paper sec. 4.2: the observed direction

    # ---- in the space of y -------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        kappa, _, omega = self._polar(eta)
        return bessel_ratio(0.0, kappa).A[..., None] * omega

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        """Circular variance 1 - A(kappa)."""
        return bessel_ratio(0.0, self._polar(eta)[0]).one_minus_A

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        kappa, mu, _ = self._polar(eta)
        return self.decode(rng.vonmises(mu, kappa))


def _turned(omega: Array) -> Array:
    """The unit vector a quarter of a turn ahead."""
    return np.stack([-omega[..., 1], omega[..., 0]], axis=-1)
