"""`Directions`: what the families of unit vectors share, angles and directions in space."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np

from ggpm.families.base import Array, Family, moments
from ggpm.families.base.resolving import ROUNDING
from ggpm.families.curvature import Blocks, Marginals, RankOne
from ggpm.families.special import BesselRatio, length
from ggpm.families.special.directional import MOST, average_moments, log_average, log_normaliser


class _Polar(NamedTuple):
    """Length and direction of latent vectors, and the Bessel functions of the length."""

    kappa: Array
    omega: Array  # components first, (d, ...); the first axis where kappa = 0
    bessel: BesselRatio

    def delta(self, T: Array) -> tuple[list[Array], Array]:
        """Components of T - omega for unit vectors T, and half its square, which is 1 - omega^T T."""
        parts = [T[..., j] - o for j, o in enumerate(self.omega)]
        return parts, 0.5 * sum(d * d for d in parts)


class Directions(Family):
    """Density exp(eta^T T(y)) up to a normaliser, T(y) a unit vector; eta = kappa omega.

    A subclass gives `direction` and `log_whole`; see `VonMisesFisher` for the formulas. Loops run over the components
    of a vector, which are few, so that every operation is one on long arrays.
    """

    @abstractmethod
    def direction(self, y: Array) -> Array:
        """T(y), (..., d)."""

    @abstractmethod
    def log_whole(self, d: int) -> float:
        """Logarithm of the size of the support, in the units that densities are per."""

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        """With latents as long as the concentration of all directions about their mean, where that is above one.

        The latent is kappa omega: directions within a degree need latents of length 1e4, which kernels of variances
        of order one never reach.
        """
        out, mean = copy.copy(self), moments(self.direction(self.encode(y)), weight)[0]
        R2, d = float(mean @ mean), len(mean)
        if 1.0 - R2 > ROUNDING:  # of one direction alone it is what rounding makes of zero
            kappa = np.sqrt(R2) * (d - R2) / (1.0 - R2)  # Banerjee et al. 2005, eq. (4.4)
            out.latent_variance = max(1.0, kappa**2)
        return out

    @staticmethod
    def _polar(eta: Array) -> _Polar:
        kappa = length(eta)
        zero = kappa == 0
        safe = np.where(zero, 1.0, kappa) if np.any(zero) else kappa
        omega = np.stack([eta[..., j] / safe for j in range(eta.shape[-1])])
        omega[0] += zero
        return _Polar(kappa, omega, BesselRatio(eta.shape[-1] / 2 - 1, kappa))

    # ---- density -----------------------------------------------------------------------------------------
    def _log_prob(self, polar: _Polar, half: Array) -> Array:
        # kappa (omega^T T - 1), and the normaliser without its factor e^kappa: nothing of the size of kappa cancels
        return -polar.kappa * half - polar.bessel.log - self.log_whole(len(polar.omega))

    @staticmethod
    def _u(polar: _Polar, delta: list[Array], half: Array) -> Array:
        # along omega it is omega^T T - A = (1 - A) - half, which keeps its digits as A -> 1; so do the components
        # across, delta less its own part along omega
        along = polar.bessel.one_minus_A - half - sum(d * o for d, o in zip(delta, polar.omega, strict=True))
        out = np.empty((*along.shape, len(delta)))
        for j, (d, o) in enumerate(zip(delta, polar.omega, strict=True)):
            np.add(d, along * o, out=out[..., j])
        return out

    def log_prob(self, eta: Array, y: Array) -> Array:
        polar = self._polar(eta)
        return self._log_prob(polar, polar.delta(self.direction(y))[1])

    def u(self, eta: Array, y: Array) -> Array:
        polar = self._polar(eta)
        return self._u(polar, *polar.delta(self.direction(y)))

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        polar = self._polar(eta)
        delta, half = polar.delta(self.direction(y))
        return self._log_prob(polar, half), self._u(polar, delta, half)

    def natural(self, eta: Array) -> tuple[Array, Array]:
        """theta = eta and b = log of Gamma(nu + 1) (2/kappa)^nu I_nu(kappa), nu = d/2 - 1."""
        kappa = length(eta)
        return eta, BesselRatio(eta.shape[-1] / 2 - 1, kappa).log + kappa

    def statistic(self, y: Array) -> tuple[Array, Array]:
        """T(y), and the logarithm of a uniform density."""
        T = self.direction(y)
        return T, np.full(T.shape[:-1], -self.log_whole(T.shape[-1]))

    def expected_log_prob_wide(self, mean: Array, cov: Array, y: Array) -> tuple[Array, Array, Blocks] | None:
        T = self.direction(y)
        if T.shape[-1] > MOST:
            return None
        more, first, second = log_normaliser(T.shape[-1] / 2 - 1, mean, cov)
        return self.log_prob(mean, y) - more, T - first, Blocks(second)

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array | None:
        T = self.direction(y)
        if T.shape[-1] > MOST:
            return None
        return log_average(T.shape[-1] / 2 - 1, mean, cov, T) - self.log_whole(T.shape[-1])

    @staticmethod
    def _U(polar: _Polar) -> RankOne:
        c1, rho = polar.bessel.c1, polar.bessel.rho
        gamma, omega, nu = (np.empty((*c1.shape, len(polar.omega))) for _ in range(3))
        scale = np.sqrt(rho / c1)
        for j, o in enumerate(polar.omega):
            gamma[..., j], omega[..., j] = c1, o
            np.multiply(scale, o, out=nu[..., j])
        return RankOne(gamma, omega, rho, nu=nu, gap=polar.bessel.slope_over_c1)

    def U(self, eta: Array, y: Array, expected: bool = False) -> RankOne:
        shape = np.broadcast_shapes(eta.shape[:-1], self.direction(y).shape[:-1])
        return self._U(self._polar(np.broadcast_to(eta, (*shape, eta.shape[-1]))))

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, RankOne]:
        T = self.direction(y)
        polar = self._polar(np.broadcast_to(eta, np.broadcast_shapes(eta.shape, T.shape)))
        return self._u(polar, *polar.delta(T)), self._U(polar)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        polar = self._polar(eta)
        omega = np.moveaxis(polar.omega, 0, -1)
        along = V.dot(omega)
        v_rr = np.sum(omega * along, axis=-1)
        # <V, U> = A' V_rr + c1 V_tt; turning omega by a small t changes it by -2 rho t^T V omega. V_tt is the trace
        # over an orthonormal basis of the tangents (columns of a reflection that takes omega to an axis): tr V - V_rr
        # would lose its digits where the length of eta is far less certain than its direction.
        w = omega.copy()
        w[..., 0] += np.where(omega[..., 0] < 0, -1.0, 1.0)
        half = 0.5 * np.sum(w**2, axis=-1)
        v_tt, turning = np.zeros_like(v_rr), np.zeros_like(along)
        for k in range(1, eta.shape[-1]):
            tangent = -(w[..., k] / half)[..., None] * w
            tangent[..., k] += 1.0
            v_tt = v_tt + np.sum(tangent * V.dot(tangent), axis=-1)
            turning = turning + np.sum(tangent * along, axis=-1)[..., None] * tangent
        c1_slope = polar.bessel.c1_slope
        radial = polar.bessel.A_second * v_rr + c1_slope * v_tt
        return radial[..., None] * omega + 2.0 * c1_slope[..., None] * turning, np.zeros(0)

    def expansion(self, y: Array) -> Array:
        return self.direction(y).copy()  # paper sec. 4.2: the observed direction

    # ---- in the space of y -------------------------------------------------------------------------------
    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array | None] | None:
        if mean.shape[1] > MOST:
            return None
        return average_moments(mean.shape[1] / 2 - 1, mean, cov, second=False)

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        c1 = BesselRatio(eta.shape[-1] / 2 - 1, length(eta)).c1  # A omega = (A/kappa) eta
        out = np.empty(eta.shape)
        for j in range(eta.shape[-1]):
            np.multiply(c1, eta[..., j], out=out[..., j])
        return out
