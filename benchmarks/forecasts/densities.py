"""Predictive distributions of the methods that ggpm is compared with: log densities and draws of every test row.

All densities are per the same unit: angles per radian, unit vectors per area of the sphere, compositions per volume of
their first d - 1 parts, numbers per unit of y; counts, classes and grades have probabilities.
`tests/test_forecasts.py` integrates each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Array = NDArray[np.float64]
Rng = np.random.Generator


class Forecast(Protocol):
    """Predictive distributions of m rows."""

    def log_prob(self, y: NDArray) -> Array:
        """Log density of y, (..., m) for y of shape (..., m) or (..., m, d)."""
        ...

    def sample(self, size: int, rng: Rng) -> NDArray:
        """Draws, (size, m) or (size, m, d)."""
        ...


# ---- angles and directions -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class VonMises:
    mean: Array
    kappa: Array | float

    def log_prob(self, y: NDArray) -> Array:
        kappa = np.asarray(self.kappa)
        return kappa * (np.cos(y - self.mean) - 1) - np.log(2 * np.pi * special.i0e(kappa))

    def sample(self, size: int, rng: Rng) -> NDArray:
        return rng.vonmises(self.mean, np.minimum(self.kappa, 1e6), (size, len(self.mean))) % (2 * np.pi)


@dataclass(frozen=True)
class ProjectedNormal:
    """Direction of a point of the plane whose coordinates are normal, with the mean (m, 2) and the same deviation."""

    mean: Array
    deviation: Array

    def log_prob(self, y: NDArray) -> Array:
        along = (self.mean[:, 0] * np.cos(y) + self.mean[:, 1] * np.sin(y)) / self.deviation
        squared = np.sum(self.mean**2, axis=1) / self.deviation**2
        # (1 + a Phi(a)/phi(a)) exp(-|mean|^2/2)/(2 pi), a = `along` (Mardia and Jupp 2000), without overflow
        ahead = np.log(np.maximum(along, 0) * np.sqrt(2 * np.pi) * special.ndtr(along) + np.exp(-0.5 * along**2))
        back = np.minimum(along, 0)
        behind = np.log1p(back * np.sqrt(np.pi / 2) * special.erfcx(-back / np.sqrt(2))) - 0.5 * along**2
        return np.where(along > 0, ahead, behind) - 0.5 * (squared - along**2) - np.log(2 * np.pi)

    def sample(self, size: int, rng: Rng) -> NDArray:
        points = self.mean + self.deviation[:, None] * rng.normal(size=(size, *self.mean.shape))
        return np.arctan2(points[..., 1], points[..., 0]) % (2 * np.pi)


@dataclass(frozen=True)
class VonMisesFisher:
    mean: Array
    kappa: Array

    def log_prob(self, y: NDArray) -> Array:
        order = self.mean.shape[1] / 2 - 1
        log_bessel = np.log(special.ive(order, self.kappa))  # without exp(kappa)
        constant = order * np.log(self.kappa) - (order + 1) * np.log(2 * np.pi) - log_bessel
        return self.kappa * (np.sum(y * self.mean, axis=-1) - 1) + constant

    def sample(self, size: int, rng: Rng) -> NDArray:
        pairs = zip(self.mean, self.kappa)
        return np.stack([stats.vonmises_fisher(mu, k).rvs(size, random_state=rng) for mu, k in pairs], axis=1)


# ---- compositions, counts of categories ------------------------------------------------------------------------------
@dataclass(frozen=True)
class LogisticNormal:
    """Compositions whose log-ratios to the last part are normal: means (m, d - 1), covariances (m, d - 1, d - 1)."""

    mean: Array
    cov: Array

    def log_prob(self, y: NDArray) -> Array:
        z = np.log(y[..., :-1] / y[..., -1:])
        root = np.linalg.cholesky(self.cov)
        white = np.linalg.solve(root, (z - self.mean)[..., None])[..., 0]
        log_det = np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum(axis=-1)
        normal = -0.5 * np.sum(white**2, axis=-1) - log_det - 0.5 * z.shape[-1] * np.log(2 * np.pi)
        return normal - np.log(y).sum(axis=-1)  # dz = dy / prod y

    def sample(self, size: int, rng: Rng) -> NDArray:
        root = np.linalg.cholesky(self.cov)
        z = self.mean + np.einsum("mij,smj->smi", root, rng.normal(size=(size, *self.mean.shape)))
        return special.softmax(np.concatenate([z, np.zeros((*z.shape[:-1], 1))], axis=-1), axis=-1)


@dataclass(frozen=True)
class DirichletMultinomial:
    shares: Array
    precision: float
    trials: Array

    def log_prob(self, y: NDArray) -> Array:
        alpha, total = self.precision * self.shares, self.precision
        n = y.sum(axis=-1)
        ways = special.gammaln(n + 1) - special.gammaln(y + 1).sum(axis=-1)
        parts = (special.gammaln(y + alpha) - special.gammaln(alpha)).sum(axis=-1)
        return ways + parts + special.gammaln(total) - special.gammaln(n + total)

    def sample(self, size: int, rng: Rng) -> NDArray:
        gammas = np.maximum(rng.gamma(self.precision * self.shares, size=(size, *self.shares.shape)), 1e-300)
        return rng.multinomial(self.trials.astype(int), gammas / gammas.sum(axis=-1, keepdims=True)).astype(float)


# ---- numbers ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Scale:
    """A scale on which numbers are better predicted: z = forward(y), with log dz/dy."""

    name: str

    def forward(self, y: NDArray) -> Array:
        return np.log(y) if self.name == "log" else special.logit(y)

    def backward(self, z: NDArray) -> Array:
        return np.exp(z) if self.name == "log" else special.expit(z)

    def log_slope(self, y: NDArray) -> Array:
        return -np.log(y) if self.name == "log" else -np.log(y) - np.log1p(-y)


@dataclass(frozen=True)
class StudentOn:
    """Numbers that have Student's distribution on a scale; a normal one if `freedom` is infinite."""

    scale: Scale
    location: Array
    deviation: Array | float
    freedom: float = np.inf

    def log_prob(self, y: NDArray) -> Array:
        # a t with so many degrees of freedom is a normal to eight digits, and SciPy's has no infinity
        law = stats.norm if self.freedom > 1e8 else stats.t(self.freedom)
        z = (self.scale.forward(y) - self.location) / self.deviation
        return law.logpdf(z) - np.log(self.deviation) + self.scale.log_slope(y)

    def sample(self, size: int, rng: Rng) -> NDArray:
        shape = (size, len(self.location))
        noise = rng.normal(size=shape) if self.freedom > 1e8 else rng.standard_t(self.freedom, shape)
        return self.scale.backward(self.location + self.deviation * noise)


@dataclass(frozen=True)
class Gamma:
    mean: Array
    shape: float

    def log_prob(self, y: NDArray) -> Array:
        return stats.gamma.logpdf(y, self.shape, scale=self.mean / self.shape)

    def sample(self, size: int, rng: Rng) -> NDArray:
        return rng.gamma(self.shape, self.mean / self.shape, (size, len(self.mean)))


@dataclass(frozen=True)
class Beta:
    mean: Array
    precision: float

    def log_prob(self, y: NDArray) -> Array:
        return stats.beta.logpdf(y, self.precision * self.mean, self.precision * (1 - self.mean))

    def sample(self, size: int, rng: Rng) -> NDArray:
        shape = (size, len(self.mean))
        return rng.beta(self.precision * self.mean, self.precision * (1 - self.mean), shape)


@dataclass(frozen=True)
class NegativeBinomial:
    """Counts of a mean, with variance mean + mean^2/size."""

    mean: Array
    size: float

    def log_prob(self, y: NDArray) -> Array:
        return stats.nbinom.logpmf(y, self.size, self.size / (self.size + self.mean))

    def sample(self, size: int, rng: Rng) -> NDArray:
        return rng.negative_binomial(self.size, self.size / (self.size + self.mean), (size, len(self.mean))) * 1.0


@dataclass(frozen=True)
class RoundedNormal:
    """Integers k whose latent, normal on a scale, lies between that of k - 1/2 and of k + 1/2; the ends take the rest.

    `top` is the largest one (grades are on their own scale), or None for counts, whose scale is log(y + 1).
    """

    location: Array
    deviation: Array
    top: int | None = None

    def log_prob(self, y: NDArray) -> Array:
        def edge(at: NDArray) -> Array:
            return ((at if self.top is not None else np.log1p(at)) - self.location) / self.deviation

        y = np.asarray(y, dtype=float)
        low = np.where(y > 0, edge(np.maximum(y, 1) - 0.5), -np.inf)
        high = np.where(y == (np.inf if self.top is None else self.top), np.inf, edge(y + 0.5))
        flip = low > 0  # differences of small tail areas keep their digits
        low, high = np.where(flip, -high, low), np.where(flip, -low, high)
        log_high, log_low = special.log_ndtr(high), special.log_ndtr(low)
        return log_high + np.log1p(-np.exp(np.minimum(log_low - log_high, -1e-15)))

    def sample(self, size: int, rng: Rng) -> NDArray:
        z = self.location + self.deviation * rng.normal(size=(size, len(self.location)))
        y = np.rint(np.expm1(z) if self.top is None else z)
        return np.clip(y, 0, self.top)


@dataclass(frozen=True)
class Classes:
    """Classes or grades 0, 1, ...: probabilities (m, K)."""

    probabilities: Array

    def log_prob(self, y: NDArray) -> Array:
        log_p = np.log(np.maximum(self.probabilities, 1e-300))
        return log_p[np.arange(len(log_p)), np.asarray(y, dtype=int)]

    def sample(self, size: int, rng: Rng) -> NDArray:
        u = rng.uniform(size=(size, len(self.probabilities), 1))
        return np.minimum((u > np.cumsum(self.probabilities, axis=1)).sum(axis=-1), self.probabilities.shape[1] - 1)


@dataclass(frozen=True)
class Mixture:
    """The same weighted components in every row: expectations over nodes of a latent."""

    components: Sequence[Forecast]
    weights: Array

    def log_prob(self, y: NDArray) -> Array:
        stacked = np.stack([component.log_prob(y) for component in self.components])
        return special.logsumexp(stacked + np.log(self.weights).reshape(-1, *[1] * (stacked.ndim - 1)), axis=0)

    def sample(self, size: int, rng: Rng) -> NDArray:
        draws = np.stack([component.sample(size, rng) for component in self.components])
        chosen = rng.choice(len(self.components), p=self.weights, size=draws.shape[1:3])
        i, j = np.indices(chosen.shape)
        return draws[chosen, i, j]
