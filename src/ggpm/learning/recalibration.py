"""Recalibration: the law that probability integral transforms of rows that were left out turn out to have.

If a predictive distribution F is right, u = F(y) is uniform. If it is not, because noise has longer tails than the
family's, is skewed the other way or varies less than chance, u has some other density g on [0, 1], the same in all
rows. Then f(y) g(F(y)) is a better density than f(y), whatever the family: recalibration in the sense of Dawid
(1984), with Neyman's (1937) smooth alternatives to the uniform law,

    g(u) = exp(c_1 p_1(u) + ... + c_J p_J(u) - log Z(c)),        p_j: Legendre's polynomials on [0, 1], of norm one,

an exponential family. Angles, whose transforms are cut opposite the mean, have cosines of whole turns instead. The
coefficients have priors N(0, tau²) and are averaged over tau by the evidence, none at all among them, so that where
nothing is wrong next to nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.polynomial.chebyshev import chebval
from numpy.polynomial.legendre import leggauss, legvander
from numpy.typing import NDArray

__all__ = ["Recalibration", "recalibration"]

Array = NDArray[np.float64]

# Measured on the sets in sight of docs/forecasts.md: four polynomials gain half as much on shares, eight no more.
POLYNOMIALS, COSINES = 6, 4
SPREADS = (0.02, 0.05, 0.1, 0.2, 0.4)  # of coefficients, which the evidence weighs beside none at all
LEAST_GAIN = 2e-4  # nats a row that a law may bring, half the square of its coefficients, below which it is none
LARGEST_COEFFICIENT = 5.0  # twelve of the widest spreads: a law beyond is none that was learned
NODES = 128  # of integrals over [0, 1]: exact to rounding for all coefficients that such priors leave
SERIES = 96  # degree of the Chebyshev series behind the distribution function
NARROW = 1e-4  # steps of a distribution function below which g is as good as constant: 1e-9 of its logarithm
STEPS, STILL = 50, 1e-9  # of Newton's method, and nats that a last one may bring


def basis(u: Array, circular: bool = False) -> Array:
    """Legendre's polynomials of degree 1, 2, ... on [0, 1], (..., J), of norm one; for the circle cosines of its turns.

    >>> basis(np.array([1.0])).round(3)
    array([[1.732, 2.236, 2.646, 3.   , 3.317, 3.606]])
    >>> basis(np.array([0.5]), circular=True).round(3)
    array([[-1.414,  1.414, -1.414,  1.414]])
    """
    u = np.asarray(u, dtype=np.float64)
    if circular:
        return np.sqrt(2.0) * np.cos(2.0 * np.pi * u[..., None] * np.arange(1, COSINES + 1))
    found = legvander(2.0 * u - 1.0, POLYNOMIALS) * np.sqrt(2.0 * np.arange(POLYNOMIALS + 1) + 1.0)
    return found[..., 1:].reshape(*u.shape, POLYNOMIALS)


@lru_cache(maxsize=2)
def _rule(circular: bool) -> tuple[Array, Array]:
    """The basis at Gauss-Legendre nodes of [0, 1], and the weights."""
    x, w = leggauss(NODES)
    return basis((x + 1.0) / 2.0, circular), w / 2.0


@dataclass(frozen=True)
class Recalibration:
    """A law on [0, 1], close to the uniform one, of what distribution functions are at the y that they are for.

    >>> law = Recalibration((0.0, -0.3))
    >>> law.cdf(np.array([0.0, 0.5, 1.0])).round(6)
    array([0. , 0.5, 1. ])
    >>> law.log_density(np.array([0.5])).round(3)  # the middle is more probable than it was said to be
    array([0.294])
    """

    coefficients: tuple[float, ...]
    circular: bool = False
    """Whether it is of angles, whose two sides are alike and meet opposite the mean."""
    fewest: float = 0.0
    """Trials from which on it holds, of counts out of trials: as many as the rows had that it was learned from."""

    @cached_property
    def _c(self) -> Array:
        padded = np.zeros(basis(np.zeros(1), self.circular).shape[1])
        padded[: len(self.coefficients)] = self.coefficients
        return padded

    @cached_property
    def _log_norm(self) -> float:
        p, w = _rule(self.circular)
        return float(np.log(w @ np.exp(p @ self._c)))

    @cached_property
    def _cdf(self) -> Chebyshev:
        return Chebyshev.interpolate(lambda u: np.exp(self.log_density(u)), SERIES, domain=[0.0, 1.0]).integ(lbnd=0.0)

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        u = np.linspace(0.0, 1.0, 257)
        return u, self.cdf(u)

    @cached_property
    def highest(self) -> float:
        """The largest value of g, or a little more."""
        u = np.linspace(0.0, 1.0, 2049)  # the highest of its few waves lies next to one of them
        return float(np.exp(self.log_density(u).max()) * 1.001)

    def log_density(self, u: Array) -> Array:
        """log g(u)."""
        if self.circular:  # cosines of multiples are polynomials of one
            waves = np.concatenate([[-self._log_norm], np.sqrt(2.0) * self._c])
            return np.asarray(chebval(np.cos(2.0 * np.pi * np.asarray(u)), waves))
        return np.asarray(basis(u, self.circular) @ self._c - self._log_norm)

    def cdf(self, u: Array) -> Array:
        """The integral of g from 0 to u."""
        u = np.clip(u, 0.0, 1.0)
        return np.clip(self._cdf(u) / self._cdf(1.0), 0.0, 1.0)

    def quantile(self, q: Array) -> Array:
        """Where the distribution function is q: by Newton's method, between the points of a table.

        >>> law = Recalibration((0.2, -0.3, 0.1))
        >>> law.quantile(law.cdf(np.array([1e-9, 0.3, 0.999]))).round(12)
        array([1.00e-09, 3.00e-01, 9.99e-01])
        """
        at, upto = self._table
        q = np.asarray(q, dtype=np.float64)
        k = np.clip(np.searchsorted(upto, q, side="right") - 1, 0, len(at) - 2)
        u = np.interp(q, upto, at)
        for _ in range(4):  # the table is so fine that each step doubles the digits
            u = np.clip(u - (self.cdf(u) - q) / np.exp(self.log_density(u)), at[k], at[k + 1])
        return u

    def log_ratio(self, before: Array, upto: Array) -> Array:
        """Log of the probability of the step from ``before`` to ``upto`` over its length; log g where it has none."""
        before, upto = np.broadcast_arrays(before, upto)
        out = self.log_density((before + upto) / 2.0)
        wide = upto - before > NARROW
        with np.errstate(divide="ignore"):
            out[wide] = np.log(self.cdf(upto[wide]) - self.cdf(before[wide])) - np.log(upto[wide] - before[wide])
        return out


def recalibration(
    before: Array, upto: Array, weight: Array | None = None, circular: bool = False
) -> Recalibration | None:
    """The law of distribution functions at y that they have not seen, P(Y < y) and P(Y <= y); None if it is uniform.

    Parameters
    ----------
    before, upto : arrays (n,), the same where y is continuous
    weight : array (n,), optional
        How many rows each counts as.
    circular : bool

    Examples
    --------
    >>> u = np.random.default_rng(0).beta(3.0, 3.0, 400)
    >>> recalibration(u, u).log_density(np.array([0.01, 0.5])).round(2)
    array([-3.58,  0.71])
    """
    weight = np.ones(len(upto)) if weight is None else np.asarray(weight, dtype=np.float64)
    cells = _Cells(before, upto, weight, circular)
    found = [_mode(cells, tau) for tau in SPREADS]
    evidence = np.array([0.0, *(value for value, _ in found)])
    share = np.exp(evidence - evidence.max())
    c = share[1:] @ np.stack([mode for _, mode in found]) / share.sum()
    return Recalibration(tuple(c.tolist()), circular) if 0.5 * c @ c > LEAST_GAIN else None


class _Cells:
    """Log-likelihood of coefficients given rows that lie in steps of the unit interval, with derivatives."""

    def __init__(self, before: Array, upto: Array, weight: Array, circular: bool):
        before, upto = (np.clip(side, 0.0, 1.0) for side in np.broadcast_arrays(before, upto))
        wide = upto - before > NARROW
        self.points, self.rule = basis((before + upto)[~wide] / 2.0, circular), _rule(circular)
        self.weight, self.wide_weight, self.total = weight[~wide], weight[wide], float(weight.sum())
        # log g is a polynomial of low degree: few nodes integrate it over a step
        x, w = leggauss(16)
        self.w = w / 2.0
        self.inside = basis(before[wide, None] + (upto - before)[wide, None] * (x + 1.0) / 2.0, circular)

    def __call__(self, c: Array) -> tuple[float, Array, Array]:
        """Value, gradient and the negative of the second derivatives."""
        p, w = self.rule
        norm, mean, cov = _tilted(p[None], w, c)
        value = self.weight @ (self.points @ c) - self.total * norm[0]
        gradient = self.weight @ self.points - self.total * mean[0]
        curvature = self.total * cov[0]
        if len(self.inside):
            norm, mean, cov = _tilted(self.inside, self.w, c)
            value += self.wide_weight @ norm
            gradient = gradient + self.wide_weight @ mean
            curvature = curvature - np.einsum("n,njk->jk", self.wide_weight, cov)
        return float(value), gradient, curvature


def _tilted(p: Array, w: Array, c: Array) -> tuple[Array, Array, Array]:
    """log of the integral of exp(c p), and mean and covariance of p under it, for a basis (n, nodes, J)."""
    exponent = p @ c
    top = exponent.max(axis=1, keepdims=True)
    share = w * np.exp(exponent - top)
    mass = share.sum(axis=1)
    share /= mass[:, None]
    mean = np.einsum("ns,nsj->nj", share, p)
    away = p - mean[:, None]
    return np.log(mass) + top[:, 0], mean, np.einsum("ns,nsj,nsk->njk", share, away, away, optimize=True)


def _mode(cells: _Cells, tau: float) -> tuple[float, Array]:
    """Log evidence over that of the uniform law (Laplace's), and the mode under the prior N(0, tau²).

    Steps that are told by whole cells may bend the log-likelihood the other way; the prior's curvature is then a lower
    bound of that of the steps.
    """
    J = cells.rule[0].shape[1]
    c, prior = np.zeros(J), 1.0 / tau**2

    def at(c: Array) -> tuple[float, Array, Array]:
        value, gradient, curvature = cells(c)
        return value - 0.5 * prior * float(c @ c), gradient - prior * c, curvature + prior * np.eye(J)

    value, gradient, curvature = at(c)
    for _ in range(STEPS):
        scale, axes = np.linalg.eigh(curvature)
        step = axes @ ((axes.T @ gradient) / np.maximum(scale, prior))
        size = 1.0
        while (new := at(c + size * step))[0] < value and size > 1e-6:
            size /= 2.0
        gain = new[0] - value
        if gain <= 0.0:
            break
        c, (value, gradient, curvature) = c + size * step, new
        if gain < STILL:
            break
    scale = np.maximum(np.linalg.eigvalsh(curvature), prior)
    return value - cells(np.zeros(J))[0] - 0.5 * float(np.sum(np.log(scale / prior))), c
