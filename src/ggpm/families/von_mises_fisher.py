"""Von Mises–Fisher: directions in any dimension."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from scipy.special import betaln

from ggpm.families.base import Array
from ggpm.families.directions import Directions
from ggpm.families.special import BesselRatio, length, sum_of_others
from ggpm.families.special.bessel import quick_log_bessel
from ggpm.families.special.directional import MOST, WideCoordinate, average_moments
from ggpm.families.support import Sphere, Support

# Standard deviation of the latent above which coordinates in space have laws of their own, and sum of variances in
# units of the likelihood's up to which they have not: nodes (`ggpm.prediction.nodes`) cost less there than laws, beyond
# they become too many.
_WIDE, _KNOWN = 4.0, 0.5


class VonMisesFisher(Directions):
    """Unit vectors with mean direction omega and concentration kappa: eta = kappa omega.

    ========  ==============================================================================================
    support   (n, d) rows of unit length, d >= 2
    T, b, h   y, log I_r(|theta|) - r log |theta| with order r = d/2 - 1, (2 pi)^(-d/2)
    a         1
    link      theta = eta (canonical), D = d
    U         c1 I - rho omega omega^T, omega = eta/kappa, c1 = A/kappa, rho = c1 - A', A = I_{r+1}/I_r
    ========  ==============================================================================================

    Densities are per unit of surface of the sphere; for d = 2 this is the von Mises density per radian.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([[0.0, 0.0, 1.0]])
    >>> VonMisesFisher().u(np.array([[0.0, 0.0, 2.0]]), y).round(3)  # 1 - A(2), towards y
    array([[0.   , 0.   , 0.463]])
    """

    latent_dim = 0

    @property
    def support(self) -> Support:
        return Sphere(columns=self.latent_dim or None)

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        out = super().resolve(y, weight)
        out.latent_dim = np.shape(y)[1]
        return out

    def encode(self, y: Any) -> Array:
        out = self.support.validate(y)
        return out / length(out)[..., None]

    # ---- density -----------------------------------------------------------------------------------------
    def direction(self, y: Array) -> Array:
        return y

    def log_whole(self, d: int) -> float:
        return math.log(2.0) + 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d)  # area of the sphere

    def part_log_prob(self, eta: Array, z: Array) -> Array:
        """Log densities of z = 2 artanh(y_j) at every node.

        With a = eta_j, b the length of the other entries and s = sqrt(1 - y_j²), integrating over the other entries of
        y leaves exp(a y_j) s^(d-3) I(b s) up to a factor, I the function of `BesselRatio.log` of order (d - 3)/2.
        """
        d = eta.shape[-1]
        kappa = length(eta)
        y, s = np.tanh(0.5 * z).swapaxes(1, 2), (1.0 / np.cosh(0.5 * z)).swapaxes(1, 2)  # (n, d, G)
        own, across = eta.swapaxes(1, 2), np.sqrt(sum_of_others(eta**2)).swapaxes(1, 2)  # (n, d, S)
        whole = np.broadcast_to((kappa + BesselRatio(d / 2 - 1, kappa).log)[:, None], own.shape)
        # a y + b s - kappa is never positive: nothing of the size of kappa is left where the density is, and seven
        # digits of the rest are enough
        log_p = (np.stack([own, across, -whole], axis=3) @ np.stack([y, s, np.ones_like(y)], axis=2)).astype(np.float32)
        across = across.astype(np.float32)[..., None] * s.astype(np.float32)[:, :, None]
        if d == 2:
            across *= -2.0
            log_p += np.log1p(np.exp(across, out=across), out=across)
            log_p -= np.float32(math.log(2.0))
        else:
            log_p += quick_log_bessel((d - 3) / 2, across)
        log_volume = (d - 1) * np.log(s) - math.log(2.0) - betaln(0.5, (d - 1) / 2)  # dy/dz = s²/2
        log_p += log_volume.astype(np.float32)[:, :, None]
        return log_p

    def part_laws(self, mean: Array, cov: Array) -> list[list[WideCoordinate] | None]:
        out: list[list[WideCoordinate] | None] = [None] * len(mean)
        if mean.shape[1] == 3:
            wide = np.flatnonzero(np.einsum("njj->nj", cov).max(axis=1) > _WIDE**2)
            told = self.U(mean[wide], mean[wide], expected=True).dense()
            for row in wide[np.einsum("nij,nji->n", told, cov[wide]) > _KNOWN]:
                laws = [WideCoordinate(mean[row], cov[row], j) for j in range(3)]
                out[row] = laws if all(law.usable for law in laws) else None
        return out

    # ---- in the space of y -------------------------------------------------------------------------------
    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array] | None:
        if mean.shape[1] > MOST:
            return None
        first, second = average_moments(mean.shape[1] / 2 - 1, mean, cov, second=True)
        assert second is not None
        return first, second - first[:, :, None] * first[:, None, :]

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        """Covariance of the unit vector: the second derivative of b, which is U."""
        polar = self._polar(eta)
        c1, rho = polar.bessel.c1, polar.bessel.rho
        out = np.empty((*eta.shape, eta.shape[-1]))
        for i, a in enumerate(polar.omega):
            for j, b in enumerate(polar.omega):
                out[..., i, j] = c1 * (i == j) - rho * a * b
        return out

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        kappa, omega = self._polar(eta)[:2]
        lack = _lack(kappa.ravel(), eta.shape[-1] - 1.0, rng).reshape(kappa.shape)
        tangent = list(rng.standard_normal((eta.shape[-1], *kappa.shape)))
        along = _dot(tangent, omega)
        for t, o in zip(tangent, omega, strict=True):
            t -= along * o
        across = np.sqrt(lack * (2.0 - lack) / _dot(tangent, tangent))
        for t, o in zip(tangent, omega, strict=True):
            t *= across
            t += o
            t -= lack * o
        out, size = np.empty(eta.shape), np.sqrt(_dot(tangent, tangent))
        for j, t in enumerate(tangent):
            np.divide(t, size, out=out[..., j])
        return out

    def loss(self, y: Array, prediction: Array) -> Array:
        return 0.5 * np.sum((y - self.point(prediction)) ** 2, axis=-1)  # 1 - cos of the angle between them


def _dot(a: Iterable[Array], b: Iterable[Array]) -> Array:
    """Inner products of vectors with these components."""
    return np.asarray(sum(x * y for x, y in zip(a, b, strict=True)))


def _lack(kappa: Array, m: float, rng: np.random.Generator) -> Array:
    """One minus the cosine to the mean direction, of directions of m + 1 entries with concentrations kappa (N,).

    >>> rng = np.random.default_rng(0)
    >>> float(_lack(np.full(10000, 5.0), 2.0, rng).mean().round(2))  # 1 - A(5) = 1 - (coth(5) - 1/5)
    0.2
    """
    if m == 2.0:  # on the sphere the cosine has a distribution function that can be inverted
        k = np.maximum(kappa, 1e-300)
        return np.asarray(np.log1p(rng.random(k.size) * np.expm1(-2.0 * k)) / -k)
    # Wood 1994
    b = m / (2.0 * kappa + np.sqrt(4.0 * kappa**2 + m * m))
    x0, x0_lack = (1.0 - b) / (1.0 + b), 2.0 * b / (1.0 + b)
    lack, todo = np.empty_like(kappa), np.arange(kappa.size)
    while todo.size:
        # Beta(m/2, m/2): that of 1/2 is the arcsine law
        z = 0.5 + 0.5 * np.cos(np.pi * rng.random(todo.size)) if m == 1.0 else rng.beta(0.5 * m, 0.5 * m, todo.size)
        trial = 2.0 * b[todo] * z / (1.0 - (1.0 - b[todo]) * z)
        # log of the acceptance ratio: kappa (w - x0) + (d - 1) log[(1 - x0 w)/(1 - x0^2)]
        grown = (x0_lack[todo] + x0[todo] * trial) / (x0_lack[todo] * (1.0 + x0[todo]))
        log_ratio = kappa[todo] * (x0_lack[todo] - trial) + m * np.log(grown)
        accept = log_ratio >= -rng.standard_exponential(todo.size)
        lack[todo[accept]] = trial[accept]
        todo = todo[~accept]
    return lack
