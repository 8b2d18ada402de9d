"""Products of normals, summed: the law of one entry of a Wishart matrix.

Entry (i, j) of a matrix with mean M is exp(ell) w, with w = tanh(k) g + sqrt(g) z/cosh(k), g gamma distributed with
mean one and z standard normal: y_ij given y_jj is normal (Anderson 2003, theorem 7.3.4), and
sinh(k) = sqrt(phi) M_ij/sqrt(M_ii M_jj - M_ij²), exp(2 ell) = M_ij² + (M_ii M_jj - M_ij²)/phi. On the diagonal k is
infinite and w = g. Everything is told of log |w|, for positive and for negative w: there the law is analytic, whatever
its order, and a mean that is a log-normal moves it without changing its shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv, gammaincinv, gammaln, kve, loggamma

Array = NDArray[np.float64]

MASS = 2e-6  # probability that may be beyond the ends
FADED = 5e-5  # of a characteristic function: what is beyond moves a distribution function by 1e-6
LARGE_ORDER = 40.0  # of K, from which on four terms of Debye's expansion are right to 1e-8
FAR = 1e8  # argument from which on K of smaller order is its leading term


@dataclass(frozen=True)
class EntryLaw:
    """One entry of y given the latent."""

    places: list[tuple[int, int]]
    """Where in y it stands."""
    log_variances: list[int]
    """Latents that shift ``ell`` when they rise together, and change nothing else."""
    slopes: list[tuple[int, int, int]]
    """Other latents, each with the log-variances whose half difference is the logarithm of its scale."""
    at: Callable[[Array], tuple[Array, Array | None]]
    """``ell`` and k for these latents (D', ...), in that order; k is None on the diagonal."""
    last: int
    """Place in that order of the slope of `line`."""
    line: Callable[[Array], tuple[Array, Array, Array]]
    """s, which rises as that slope does, and the logarithms of c and r, which do not depend on it: k is arcsinh(s/c),
    and exp(ell) is r times hypot(s, c), or its square on the diagonal."""

    @property
    def diagonal(self) -> bool:
        """Whether the entry stands on the diagonal."""
        return self.places[0][0] == self.places[0][1]


def log_bessel_k(nu: float, x: Array) -> Array:
    """log K_nu(x) + x for x > 0.

    >>> log_bessel_k(0.5, np.array([1.0])).round(6)  # sqrt(pi/2)
    array([0.225791])
    """
    if nu > LARGE_ORDER:  # DLMF 10.41.4
        root = np.hypot(1.0, x / nu)
        t = 1.0 / root
        t2 = t * t
        u1 = t * (3.0 - 5.0 * t2) / 24.0
        u2 = t2 * (81.0 - 462.0 * t2 + 385.0 * t2**2) / 1152.0
        u3 = t * t2 * (30375.0 - 369603.0 * t2 + 765765.0 * t2**2 - 425425.0 * t2**3) / 414720.0
        series = np.log1p(-(u1 - (u2 - u3 / nu) / nu) / nu)
        # nu (root - x/nu) without its cancellation
        shrunk = nu / (root + x / nu) + nu * (np.log(x / nu) - np.log1p(root))
        return 0.5 * np.log(0.5 * np.pi / nu) - 0.5 * np.log(root) + series - shrunk
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        near = np.log(kve(nu, np.minimum(x, FAR)))
        power = gammaln(nu) + (nu - 1.0) * math.log(2.0) - nu * np.log(x)
    near = np.where(np.isposinf(near), power, near)
    return np.where(x < FAR, near, 0.5 * np.log(0.5 * np.pi / np.minimum(x, 1e300)))


def log_density(a: float, k: Array, x: Array, sign: float) -> Array:
    """Log density of x = log |w| where w has the sign, for g of shape a: a variance-gamma law.

    >>> x = np.linspace(-20.0, 5.0, 251)
    >>> float(sum(np.exp(log_density(2.0, 0.7, x, sign)).sum() * 0.1 for sign in (1.0, -1.0)).round(7))
    1.0
    """
    nu, s, c = a - 0.5, sign * np.sinh(k), np.cosh(k)
    r = np.hypot(s, math.sqrt(2.0 * a))
    falls = np.where(s > 0, -2.0 * a / (r + np.abs(s)), s - r)
    head = math.log(2.0) + a * math.log(a) - 0.5 * math.log(2.0 * math.pi) - gammaln(a)
    w = np.exp(x)
    out = head + np.log(c) + nu * (x + np.log(c / r)) + c * falls * w + log_bessel_k(nu, c * r * w) + x
    return np.asarray(out)


@dataclass(frozen=True)
class Products:
    """What is told of the law for one shape a of g."""

    a: float
    most: float
    """k from which on w is g to 1e-6 of probability."""
    x: Array
    """Values of log |w|, equally spaced: sums over them are integrals."""
    k: Array
    first: Array
    last: Array
    """Values of log |w| between which all but `MASS` lies, at the k, increasing from zero."""
    frequency: Array
    """From which on characteristic functions have faded, at the same k; the last k is the diagonal."""

    def densities(self, k: Array) -> tuple[Array, Array]:
        """Of log |w| where w > 0 and where w < 0, at the x, (K, X) for k (K,)."""
        above, below = (np.exp(log_density(self.a, k[:, None], self.x, sign)) for sign in (1.0, -1.0))
        return above, below

    def waves(self, frequencies: Array) -> NDArray[np.complex128]:
        """Matrix (X, n) by which densities at the x become characteristic functions E[|w|^(i omega)]."""
        return np.exp(1j * np.multiply.outer(self.x, frequencies)) * (self.x[1] - self.x[0])

    def diagonal(self, frequencies: Array) -> NDArray[np.complex128]:
        """E[g^(i omega)], (n,)."""
        return np.exp(loggamma(self.a + 1j * frequencies) - gammaln(self.a) - 1j * frequencies * math.log(self.a))


@lru_cache(maxsize=16)
def products(a: float) -> Products:
    """The law for one shape.

    >>> law = products(2.75)
    >>> above, below = (f @ law.waves(np.array([0.0])) for f in law.densities(np.array([0.3])))
    >>> float((above + below)[0, 0].real.round(5))
    1.0
    """
    fading = np.geomspace(0.1, 200.0 * max(1.0, math.sqrt(a)), 400)
    faded = loggamma(a + 1j * fading).real - gammaln(a) < math.log(FADED)
    top = float(fading[np.argmax(faded)])
    low, high = (math.log(v(a, MASS) / a) for v in (gammaincinv, gammainccinv))
    # relative variance of 1/sinh² beside the gamma's 1/a; and the probability of a negative w, about sinh^(-2a)
    most = max(6.2 + 0.5 * math.log(2.0 * a), 0.7 - 0.5 * math.log(0.5 * MASS) / a)
    widest = max(2.0 * top, 24.0)
    step = math.pi / widest
    x = np.arange(min(low, math.log(MASS)) - 2.0, math.log(math.exp(high) + 6.0 * math.exp(0.5 * high)) + step, step)
    k = np.append(np.arange(0.0, most, 0.25), most)
    both = [np.exp(log_density(a, k[:, None], x, sign)) * step for sign in (1.0, -1.0)]
    upto = np.cumsum(both[0] + both[1], axis=1)
    first = x[np.maximum(np.argmax(upto > MASS, axis=1) - 1, 0)]
    last = x[np.minimum(np.argmax(upto > upto[:, -1:] - MASS, axis=1) + 1, len(x) - 1)]
    omega = np.linspace(0.0, 0.75 * widest, 300)
    size = np.max([np.abs(f @ np.exp(1j * np.multiply.outer(x, omega))) for f in both], axis=0)
    frequency = omega[len(omega) - 1 - np.argmax(size[:, ::-1] > FADED, axis=1)]
    first, last = np.append(first, min(low, 0.0)), np.append(last, high)
    frequency = np.maximum.accumulate(np.append(frequency, top))
    return Products(a, most, x, np.append(k, np.inf), first, last, frequency)
