"""Student's t: real outputs with outliers, location and scale functions of the inputs."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtr

from ggpm.families import integration
from ggpm.families.base import Array, Bounds
from ggpm.families.gaussian_mean_scale import RealLine, RealLocationScale
from ggpm.families.integration import LogDensity, Rule
from ggpm.families.special.stable import HALF_LOG_2PI, log_minus_digamma, stirling_error
from ggpm.families.two_parameters import STEEPEST

# Of the normals whose mixture Student's t is: spacing of the logarithms of their standard deviations, in itself and in
# standard deviations, and the logarithm of the density beyond which they are left out.
SPACING, NARROW, NOTHING = 0.3, 0.8, 20.0
USUAL = 3.0  # logarithm of the distance of y up to which rows are worked on together


class HeavyTails(RealLine):
    """Real numbers whose density falls like a power: nodes ever wider apart."""

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        return integration.line(log_density, lambda t: (np.sinh(t[:, 0]), np.log(np.cosh(t[:, 0]))), 60.0)


class StudentT(RealLocationScale):
    """Real outputs with heavy tails: location and scale vary with the inputs, phi degrees of freedom are learned.

    ========  ============================================================================================
    support   real numbers, one per row
    latents   a, the location; b, the logarithm of the scale; z = (y - a) exp(-b)
    log p     log Gamma((phi + 1)/2)/(Gamma(phi/2) sqrt(pi phi)) - b - (phi + 1)/2 log(1 + z²/phi)
    U         [-h'' exp(-2b), -(h' + z h'') exp(-b); ., -z (h' + z h'')], h' = -(phi + 1) z/(phi + z²)
    expected  [(phi + 1)/(phi + 3) exp(-2b), 0; 0, 2 phi/(phi + 3)]
    ========  ============================================================================================

    An observation far from the others pulls at the location less and less. The mean exists for phi > 1, the variance
    exp(2b) phi/(phi - 2) for phi > 2; below, `spread` is infinite. phi -> infinity is `GaussianMeanScale`.

    Parameters
    ----------
    phi : float
        Degrees of freedom.
    phi_bounds : (low, high) or "fixed"

    Examples
    --------
    >>> import numpy as np
    >>> StudentT(phi=3.0).u(np.array([[1.0, 0.0]]), np.array([3.0])).round(4)
    array([[1.1429, 1.2857]])
    """

    support = HeavyTails(columns=1)
    parameters = ("location", "scale")

    _phi_ndims = (0,)
    phi_has_limit = True

    def __init__(self, phi: float = 5.0, phi_bounds: Bounds = (1.0, 1e4)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    def profile(self, z: Array) -> tuple[Array, Array, Array, Array]:
        nu = float(self.phi)
        x, D = np.asarray(0.5 * nu), nu + z * z
        # Gamma functions by Stirling's formula: nothing cancels for many degrees of freedom
        constant = x * np.log1p(0.5 / x) - 0.5 + stirling_error(x + 0.5) - stirling_error(x) - HALF_LOG_2PI
        h = constant - 0.5 * (nu + 1.0) * np.log1p(z * z / nu)
        w, share = (nu + 1.0) / D, z * z / D  # powers of D would overflow
        return h, -w * z, -w * (1.0 - 2.0 * share), 2.0 * w * (z / D) * (3.0 - 4.0 * share)

    def profile_phi(self, z: Array) -> tuple[Array, Array, Array]:
        nu = float(self.phi)
        x, D = np.asarray(0.5 * nu), nu + z * z
        drift = np.log1p(1.0 / nu) + log_minus_digamma(x) - log_minus_digamma(x + 0.5) - 1.0 / nu
        share = z * z / D
        h = 0.5 * (drift - np.log1p(z * z / nu) + (nu + 1.0) / nu * share)
        h1 = (z / D) * (1.0 / D - share)
        h2 = (nu / D - 3.0 * (1.0 + nu) * share) / D / D + share * share / D
        return nu * h, nu * h1, nu * h2

    def profile_information(self) -> tuple[float, None, float]:
        nu = float(self.phi)
        return (nu + 1.0) / (nu + 3.0), None, 2.0 * nu / (nu + 3.0)

    def profile_information_phi(self) -> tuple[float, float]:
        nu = float(self.phi)
        return 2.0 * nu / (nu + 3.0) ** 2, 6.0 * nu / (nu + 3.0) ** 2

    def normal_scales(self, beyond: float = 0.0) -> tuple[Array, Array]:
        """Standard deviations exp(w) of normals, w = -log(g/phi)/2 with a chi-square g of phi degrees of freedom.

        The density of w is proportional to exp(-phi (w + exp(-2w)/2)): the trapezoidal rule, up to ``beyond`` further
        for y that is so far away, in logarithms.
        """
        nu = float(self.phi)
        spacing = 1.0 / np.hypot(np.sqrt(2.0 * nu) / NARROW, 1.0 / SPACING)
        # phi (w + exp(-2w)/2 - 1/2) is NOTHING at either end
        low = -0.5 * np.log1p(2.0 * NOTHING / nu + 2.0 * np.sqrt(NOTHING / nu))
        high = beyond + NOTHING / nu + np.sqrt(NOTHING / nu)
        w = low + (high - low) * np.linspace(0.0, 1.0, int(np.ceil((high - low) / spacing)) + 1)
        share = np.exp(-nu * (w + 0.5 * np.expm1(-2.0 * w)))
        return w, share / share.sum()

    def log_prob_given_b(self, centre: Array, variance: Array, b: Array, y: Array, log_weight: Array) -> Array:
        away, inner = np.square(y - centre), np.exp(2.0 * np.clip(b, -STEEPEST, STEEPEST))
        # how far y is away, in logarithms of the scale: normals have to reach it
        with np.errstate(divide="ignore"):
            far = 0.5 * np.log(np.max(away / (variance + inner), axis=0, initial=0.0))
        out = np.empty(away.shape)
        for usual in (far < USUAL, far >= USUAL):
            if not usual.any():
                continue
            d, v, s = away[:, usual], variance[:, usual], inner[:, usual]
            total = np.zeros(d.shape)
            for w, share in zip(*self.normal_scales(max(0.0, float(far[usual].max())))):
                var = v + np.exp(2.0 * w) * s
                total += share * np.exp(-0.5 * d / var) / np.sqrt(var)
            out[:, usual] = np.log(total)
        return out - HALF_LOG_2PI

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        nu = float(self.phi)
        return np.exp(2.0 * eta[..., 1]) * (nu / (nu - 2.0) if nu > 2.0 else np.inf)

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        return stdtr(float(self.phi), self._z(eta, y)[0])

    def sf(self, eta: Array, y: Array) -> Array:
        return stdtr(float(self.phi), -self._z(eta, y)[0])

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return eta[..., 0] + np.exp(eta[..., 1]) * rng.standard_t(float(self.phi), size=eta.shape[:-1])
