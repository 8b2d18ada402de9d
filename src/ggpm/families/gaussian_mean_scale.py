"""Gaussian whose noise is a function of the inputs too."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.polynomial.polynomial import polyval
from scipy.special import log_ndtr, ndtr

from ggpm.families.base import Array, moments
from ggpm.families.special.stable import HALF_LOG_2PI
from ggpm.families.support import Real
from ggpm.families.two_parameters import LocationScale

# Beyond this, series in 1/z² are better than differences: the hazard of a normal number is z + 1/z - 2/z³ + ..., and
# its derivatives are those of the terms. The second one has seven digits here, and more on either side.
FAR = 15.0
HAZARD = (
    (1.0, -2.0, 10.0, -74.0, 706.0, -8162.0, 110410.0),
    (1.0, -1.0, 6.0, -50.0, 518.0, -6354.0, 89782.0, -1435330.0),
    (2.0, -24.0, 300.0, -4144.0, 63540.0, -1077384.0),
)


class RealLine(Real):
    """Real numbers, one per row."""

    row_ndim = 0

    def validate(self, y: Any) -> Array:
        out = super().validate(y)
        if out.shape[1] != 1:
            raise ValueError(f"y must be real numbers, one per row; got an array of shape {out.shape}.")
        return out[:, 0]


class RealLocationScale(LocationScale):
    """A `LocationScale` on the real line: its latents start from mean and log standard deviation of the data."""

    support = RealLine(columns=1)
    parameters = ("mean", "scale")
    needs_spread = (1e-11, "gaussian")  # below, rounding errors of the mean are seen

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        out = super().resolve(y, weight)
        variance = float(moments(self.encode(y), weight)[1]) or 1.0
        out.latent_variance, out.log_unit = (variance, 1.0), 0.5 * float(np.log(variance))
        return out

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        out = copy.copy(self)
        out._origin = np.array([moments(self.encode(y), weight)[0], self.log_unit])
        return out

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return eta[..., 0]

    def expansion(self, y: Array) -> Array:
        """The observation itself, with a scale of the size of the data's, where something is known about both."""
        b = np.full(len(y), self.log_unit)
        return np.stack([y - np.exp(b), b], axis=-1)


class GaussianMeanScale(RealLocationScale):
    """Real outputs whose mean and standard deviation both vary with the inputs.

    ========  ==================================================================
    support   real numbers, one per row
    latents   a, the mean; b, the logarithm of the standard deviation
    log p     -z²/2 - b - log(2 pi)/2, z = (y - a) exp(-b)
    U         [exp(-2b), 2 z exp(-b); ., 2 z²]: indefinite for z ≠ 0
    expected  [exp(-2b), 0; 0, 2]: mean and scale are orthogonal
    ========  ==================================================================

    With ``kernel=None`` each latent has a kernel of its own.

    Examples
    --------
    >>> import numpy as np
    >>> GaussianMeanScale().u(np.array([[1.0, 0.0]]), np.array([3.0]))
    array([[2., 3.]])
    """

    def profile(self, z: Array) -> tuple[Array, Array, Array, Array]:
        return -0.5 * z * z - HALF_LOG_2PI, -z, -np.ones_like(z), np.zeros_like(z)

    def profile_information(self) -> tuple[float, None, float]:
        return 1.0, None, 2.0

    def survival_profile(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """log P(Z > z) of a standard normal Z and its first three derivatives."""
        near = np.minimum(z, FAR)
        h = np.exp(-0.5 * near * near - HALF_LOG_2PI - log_ndtr(-near))
        over = h - near
        x, far = 1.0 / np.maximum(z, FAR), z > FAR
        first, second, third = (polyval(x * x, series) for series in HAZARD)
        return (
            log_ndtr(-z),
            -np.where(far, z + x * first, h),
            -np.where(far, second, h * over),
            -np.where(far, x**3 * third, h * (over * (over + h) - 1.0)),
        )

    def log_prob_given_b(self, centre: Array, variance: Array, b: Array, y: Array, log_weight: Array) -> Array:
        total = variance + np.exp(2.0 * b)
        return -0.5 * ((y - centre) ** 2 / total + np.log(total)) - HALF_LOG_2PI

    def normal_scales(self) -> tuple[Array, Array]:
        return np.zeros(1), np.ones(1)

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return np.exp(2.0 * eta[..., 1])

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        return ndtr(self._z(eta, y)[0])

    def sf(self, eta: Array, y: Array) -> Array:
        return ndtr(-self._z(eta, y)[0])

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return eta[..., 0] + np.exp(eta[..., 1]) * rng.standard_normal(eta.shape[:-1])
