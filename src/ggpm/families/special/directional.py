"""Averages of directional densities over a Gaussian latent: integrals in one dimension, whatever the dimension of y.

With nu = d/2 - 1 and j_1 < j_2 < ... the zeros of the Bessel function J_nu, for every k >= 0

    k^nu / (2^nu Gamma(nu + 1) I_nu(k)) = int_0^inf f(t) exp(-k^2 t/2) dt,
    I_{nu+1}(k) / (k I_nu(k))          = int_0^inf Theta(t) exp(-k^2 t/2) dt,   Theta(t) = sum_i exp(-j_i^2 t/2),

f the density of the time at which a Bessel process of index nu that starts at 0 reaches 1 (Kent 1978, Ann. Probab. 6,
760), and the second line the partial fractions of the ratio. So a function of the length of the latent is a positive
mixture of Gaussians in the latent, and their averages over eta ~ N(m, V) are closed forms: what is left is the integral
over t. Only det(I + t V) and quadratic forms of (I + t V)^-1 appear: no basis is chosen, and no latent is too wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.special import erfc, gammaln, ive, jv

from ggpm.data.rows import batches
from ggpm.families.special.tables import Table

Array = NDArray[np.float64]

_ZEROS = 400  # of J_nu behind the series for large t
_LINE = 90  # points of the line of steepest descent behind the integral for small t
MOST = 52  # dimensions up to which both keep ten digits; with a hundred four are left
_CELLS, _DEGREE = 128, 7  # of the tables
# Nodes of the first rule for densities, and how often they may be doubled; the error of a rule is about the square of
# its change from half as many nodes, so that a relative change of 1e-5 leaves 1e-10.
NODES, DOUBLINGS, SETTLED = 32, 5, 1e-5
DROP = 34.0  # logarithm by which an integrand falls below its largest value where it is cut: 2e-15
STEPS = 60  # of the search for the largest value
# Nodes v = v_0 exp(x - exp(-x)), t = v^2, of the rule for moments, as many again for every doubling (Mori's rule for
# half-lines: all digits, for integrands with a power of v at 0 and one or several scales).
LOWEST, HIGHEST, SPACING = -3.6, 9.0, 0.3
# Of coordinates: steps of log t, and of it in widths of the integrand (with 1 ends of intervals are off by up to 3e-4
# of the spread, with 0.7 by 1e-7); the largest number of them; angles round the axis at first and at most, and what
# half of them may be off by, whose square is the error of all; the number of exponentials at once.
_LOG_STEP, _WIDTHS, _MOST_TIMES = 0.2, 0.7, 320
_ANGLES, _MOST_ANGLES, _ROUND, _TOGETHER = 32, 1024, 1e-4, 2**18
# Values of log t among which the range of it is looked for, and the length of the mean up to which the angles are close
# enough together: densities are as narrow as the inverse of its square root.
_LOOKED_AT, _LONGEST = 300, 2e4
# Distance of the mean from the origin, in standard deviations along it, below which nodes are not to be trusted: a long
# latent that passes the origin has turned round, a bend that no node in the middle sees, nor what Stein's identities
# are off by. E[log p] of a length of 1e5 is off by 1e-3 at 5, 4e-6 at 5.9, 4e-8 at 6.7 and 2e-11 at 7.7 by nodes.
_AWAY = 8.0


@lru_cache(maxsize=64)
def bessel_zeros(nu: float, count: int = _ZEROS) -> Array:
    """The first positive zeros of J_nu, nu > -1: Ikebe's tridiagonal matrix (1991), polished by Newton's method.

    >>> bessel_zeros(0.5)[:2].round(6)  # J_{1/2} is a sine
    array([3.141593, 6.283185])
    """
    k = np.arange(1.0, 2 * count + 60)
    diagonal = 2.0 / ((nu + 2 * k - 1) * (nu + 2 * k + 1))
    beside = 1.0 / ((nu + 2 * k[:-1] + 1) * np.sqrt((nu + 2 * k[:-1]) * (nu + 2 * k[:-1] + 2)))
    j = 2.0 / np.sqrt(eigh_tridiagonal(diagonal, beside, eigvals_only=True)[::-1][:count])
    for _ in range(2):
        j = j - jv(nu, j) / (nu / j * jv(nu, j) - jv(nu + 1, j))
    return j


@dataclass(frozen=True)
class HittingTime:
    """log f and log Theta for one nu, from tables in x = sqrt(t/(t + c))."""

    nu: float
    c: float
    rate: float
    """j_1^2/2, the rate at which both fall for large t."""
    table: Table

    def log_density(self, t: Array) -> Array:
        """log f(t) + 1/(2 t), which stays moderate for small t."""
        x2 = t / (t + self.c)
        place = self.table.locate(np.sqrt(x2))
        return self.table.at("density", place) - (self.nu + 2.0) * np.log(x2) - self.rate * t

    def sums(self, t: Array) -> tuple[Array, Array]:
        """Theta(t), and sum_i exp(-j_i^2 t/2)/j_i^2."""
        x2 = t / (t + self.c)
        place = self.table.locate(np.sqrt(x2))
        fall = np.exp(-self.rate * t)
        return self.table.at("sum", place) * fall / np.sqrt(x2), self.table.at("sum_of_parts", place) * fall


@lru_cache(maxsize=64)
def hitting_time(nu: float) -> HittingTime:
    """The tables for one nu.

    >>> from scipy.integrate import trapezoid
    >>> time = hitting_time(0.0)
    >>> t = np.linspace(0.01, 6.0, 2000)
    >>> float(np.round(trapezoid(np.exp(time.log_density(t) - 0.5 / t), t), 6))  # f is a density
    1.0
    """
    j, c = bessel_zeros(nu), 1.0 / (nu + 1.0)

    def functions(x: Array) -> dict[str, Array]:
        ends = np.clip(x, 1e-6, 1.0 - 1e-9)  # where the limits are
        t = c * ends**2 / ((1.0 - ends) * (1.0 + ends))
        density = _log_density(nu, j, t) + (nu + 2.0) * np.log(ends**2)
        total, weighted = _sums(nu, j, np.maximum(t, 1e-9 * c))
        # next to t = 0 by their series, which follow from those of the ratio for large k (DLMF 10.40.1)
        near, t = x < 1e-4, c * x**2 / np.maximum((1.0 - x) * (1.0 + x), 1e-9)
        root, grown = np.sqrt(2.0 * np.pi * t), np.exp(0.5 * j[0] ** 2 * np.where(near, t, 0.0))
        series = 1.0 - 0.25 * (2.0 * nu + 1.0) * root + 0.125 * (4.0 * nu**2 - 1.0) * t
        total = np.where(near, grown * series * np.sqrt((1.0 - x**2) / (2.0 * np.pi * c)), total * ends)
        tail = root / (2.0 * np.pi) - 0.125 * (2.0 * nu + 1.0) * t
        weighted = np.where(near, grown * (0.25 * c - tail), weighted)
        return {"density": density, "sum": total, "sum_of_parts": weighted}

    return HittingTime(nu, c, 0.5 * j[0] ** 2, Table.of(functions, 0.0, 1.0, _CELLS, _DEGREE))


def _log_density(nu: float, j: Array, t: Array) -> Array:
    """log f(t) + 1/(2 t) + j_1^2 t/2: residues for large t, the integral of Laplace's inversion for small t."""
    log_scale = nu * np.log(2.0) + gammaln(nu + 1.0)
    with np.errstate(under="ignore"):
        terms = np.exp((nu + 1.0) * np.log(j) - log_scale - 0.5 * np.multiply.outer(t, j**2 - j[0] ** 2)) / jv(
            nu + 1, j
        )
    large = terms.sum(axis=1)
    lost = np.abs(terms).max(axis=1) / np.abs(large)  # what cancels
    out = np.log(np.abs(large)) + 0.5 / t
    small = (lost > 10.0) | (t < 0.1 / (nu + 1.0))
    t = t[small]
    # the line z = a + i w through the point where the integrand is least, or next to it where that is zero
    a = np.maximum(np.sqrt(np.maximum(1.0 - (2.0 * nu + 1.0) * t, 0.0)) / t, 1.0 / np.sqrt(t))[:, None]
    t1 = t[:, None]
    h = 9.0 / _LINE / np.sqrt(t1)
    w = h * np.arange(_LINE)
    z = a + 1j * w
    # z^(nu + 1) exp(z^2 t/2) / I_nu(z) times t^(nu + 3/2) exp(1/(2 t)); ive is I_nu exp(-a)
    exponent = (nu + 1.0) * np.log(z) + (nu + 1.5) * np.log(t1) - 0.5 * w**2 * t1 + 1j * a * w * t1
    values = (np.exp(exponent + (a * t1 - 1.0) ** 2 / (2.0 * t1)) / _scaled_bessel(nu, z)).real
    values[:, 0] *= 0.5
    total = h[:, 0] / np.pi * values.sum(axis=1)
    out[small] = np.log(total) - (nu + 1.5) * np.log(t) - log_scale + 0.5 * j[0] ** 2 * t
    return out


def _scaled_bessel(nu: float, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """I_nu(z) exp(-Re z); by its asymptotic series where z is beyond SciPy's routine."""
    far = np.abs(z) > 1e3 * (1.0 + nu**2)
    out = np.exp(1j * z.imag) / np.sqrt(2.0 * np.pi * z)
    term, total = np.ones_like(z), np.ones_like(z)
    for k in range(1, 9):  # Abramowitz and Stegun 9.7.1
        term = -term * (4.0 * nu**2 - (2 * k - 1) ** 2) / (8.0 * k * z)
        total += term
    return np.where(far, out * total, ive(nu, np.where(far, 1.0, z)))


def _sums(nu: float, j: Array, t: Array) -> tuple[Array, Array]:
    """Theta(t) exp(j_1^2 t/2), and the same with every term over j^2."""
    # McMahon's expansion for all the zeros after those of j: exact to rounding there (Abramowitz and Stegun 9.5.12)
    mu, b = 4.0 * nu**2, np.pi * (np.arange(len(j) + 1, 30 * len(j)) + 0.5 * nu - 0.25)
    later = b - (mu - 1.0) / (8.0 * b) - 4.0 * (mu - 1.0) * (7.0 * mu - 31.0) / (3.0 * (8.0 * b) ** 3)
    total, weighted = np.empty_like(t), np.empty_like(t)
    for some, zeros in ((t >= 80.0 / j[-1] ** 2, j), (t < 80.0 / j[-1] ** 2, np.concatenate([j, later]))):
        # the largest zeros matter for the smallest t alone
        for part in np.array_split(np.flatnonzero(some), 8):
            terms = np.exp(-0.5 * np.multiply.outer(t[part], zeros**2 - j[0] ** 2))
            total[part], weighted[part] = terms.sum(axis=1), np.einsum("ij,j->i", terms, zeros**-2.0)
    # beyond all of these the sums are integrals: zeros lie pi apart
    X, grown = later[-1] + 0.5 * np.pi, np.exp(np.minimum(0.5 * j[0] ** 2 * t, 1.0))  # they vanish for larger t
    tail = np.sqrt(0.5 * np.pi * t) * erfc(X * np.sqrt(0.5 * t))
    total += grown * tail / (np.pi * t)
    weighted += grown * (np.exp(-0.5 * X**2 * t) / X - tail) / np.pi
    return total, weighted


# ---- averages ------------------------------------------------------------------------------------------------------


def log_average(nu: float, mean: Array, cov: Array, y: Array) -> Array:
    """log E[exp(eta^T y) k^nu/(2^nu Gamma(nu + 1) I_nu(k))], k = |eta|, for eta ~ N(mean, cov) and unit vectors y.

    That is the log density of the direction y with respect to the uniform one, (m,), for mean and y (m, d), cov
    (m, d, d). With p_i, lambda_i the principal axes of cov, each factor of

        f(t) exp(1/(2 t)) prod_i (1 + t lambda_i)^(-1/2) exp(-(p_i^T y - t p_i^T m)^2 / (2 t (1 + t lambda_i)))

    is moderate for all t, also where kappa is 1e8 and the density of a direction the difference of such numbers.

    >>> log_average(0.5, np.zeros((1, 3)), np.eye(3)[None], np.eye(3)[:1]).round(8) + 0.0  # uniform
    array([0.])
    """
    values, axes = np.linalg.eigh(cov)
    values = np.maximum(values, 0.0)
    m, e = (np.einsum("nij,ni->nj", axes, v) for v in (mean, y))
    time, out = hitting_time(nu), np.empty(len(mean))
    for rows in batches(len(mean), 4 * NODES * (4 + mean.shape[1])):

        def log_value(some: NDArray[np.intp], u: Array, rows: slice = rows) -> Array:
            """Logarithm of the integrand at u = log t, (S, k) or (k,)."""
            t = np.exp(u)
            product, square = np.ones_like(t), np.zeros_like(t)
            for k in range(m.shape[1]):
                own = 1.0 + t * values[rows][some, k]
                product *= own
                square += (e[rows][some, k] - t * m[rows][some, k]) ** 2 / own
            return time.log_density(t) + u - 0.5 * (np.log(product) + square / t)

        # a latent of length k has its mass about t = 1/k
        long = np.sqrt(np.sum(m[rows] ** 2 + values[rows], axis=1)) + 1.0
        out[rows] = _log_integrals(log_value, -np.log(long))
    return out


def _log_integrals(log_value: Callable[[NDArray[np.intp], Array], Array], start: Array) -> Array:
    """log of the integrals over the line of functions of rows (k,) and u (S, k) with one peak each.

    The trapezoidal rule in x, u = peak + width sinh(x), between the places where the integrand has vanished.
    """
    every = np.arange(len(start))
    peak, width = _peak(log_value, start)
    top = log_value(every, peak)
    ends = np.stack([_vanishes(log_value, peak, sign * width, top) for sign in (-1.0, 1.0)])
    out, rows, size = np.empty(len(start)), every, NODES
    for _ in range(DOUBLINGS + 1):
        x = ends[0, rows] + (ends[1] - ends[0])[rows] * np.linspace(0.0, 1.0, size + 1)[:, None]
        values = np.exp(log_value(rows, peak[rows] + width[rows] * np.sinh(x)) - top[rows]) * np.cosh(x)
        fine, coarse = values.sum(axis=0), 2.0 * values[::2].sum(axis=0)
        out[rows] = top[rows] + np.log(fine * width[rows] * (ends[1] - ends[0])[rows] / size)
        rows, size = rows[np.abs(fine - coarse) > SETTLED * fine], 2 * size
        if rows.size == 0:
            break
    return out


def _peak(log_value: Callable[[NDArray[np.intp], Array], Array], u: Array) -> tuple[Array, Array]:
    """Where functions are largest, roughly, and their widths there: parabolas through three points, ever closer."""
    rows, u, width = np.arange(len(u)), u.copy(), np.ones_like(u)
    for _ in range(STEPS):
        here, w = u[rows], width[rows]
        at, left, right = (log_value(rows, here + shift * w) for shift in (0.0, -0.5, 0.5))
        bend = 2.0 * at - left - right
        bowl = bend > 0
        step = 0.25 * (right - left) / np.where(bowl, bend, 1.0)  # in widths
        far = ~bowl | (np.abs(step) > 1.0)
        step = np.where(far, np.where(right > left, 1.0, -1.0), step)
        u[rows] = here + w * step
        # the second difference over half widths of a function of that width is 1/4
        natural = w * np.sqrt(0.25 / np.where(bowl, bend, 1.0))
        width[rows] = np.where(bowl, np.clip(natural, 0.2 * w, 2.0 * w), np.where(far, 1.5 * w, w))
        done = ~far & (np.abs(step) < 0.3) & (natural > 0.6 * w) & (natural < 1.6 * w)
        rows = rows[~done]
        if rows.size == 0:
            break
    return u, np.minimum(width, 1.0)


def _vanishes(log_value: Callable[[NDArray[np.intp], Array], Array], peak: Array, width: Array, top: Array) -> Array:
    """x, of the sign of width, where log_value(peak + |width| sinh(x)) has fallen by DROP, in steps of a quarter."""
    sign, scale = np.sign(width), np.abs(width)
    rows, x = np.arange(len(peak)), np.full(len(peak), 2.25)
    while rows.size:
        low = log_value(rows, peak[rows] + width[rows] * np.sinh(x[rows])) + np.log(np.cosh(x[rows])) < top[rows] - DROP
        rows = rows[~low & (scale[rows] * np.sinh(x[rows]) < 600.0)]
        x[rows] += 0.25
    return sign * x


def average_moments(nu: float, mean: Array, cov: Array, second: bool) -> tuple[Array, Array | None]:
    """E[y] and, if asked for, E[y y^T] of directions y whose eta ~ N(mean, cov): (m, d) and (m, d, d).

    >>> first, second = average_moments(0.5, np.array([[0.0, 0.0, 2.0]]), np.zeros((1, 3, 3)), True)
    >>> first.round(6), float(np.trace(second[0]).round(8))  # 1/tanh(2) - 1/2
    (array([[0.      , 0.      , 0.537315]]), 1.0)
    """
    d = mean.shape[1]
    values, axes = np.linalg.eigh(cov)
    values = np.maximum(values, 0.0)
    m, time = np.einsum("nij,ni->nj", axes, mean), hitting_time(nu)
    # the largest t that matters, the square of v_0
    scale = 1.0 / (np.sum(m**2, axis=1) + values.max(axis=1) + 2.0 * time.rate)
    first, outer = np.empty_like(mean), np.empty_like(cov) if second else None
    x = np.arange(LOWEST, HIGHEST, 0.5 * SPACING)
    v2, dv2 = np.exp(2.0 * (x - np.exp(-x))), SPACING * (1.0 + np.exp(-x))  # t/v_0^2, and dt/t over all weights
    for rows in batches(len(mean), len(x) * (8 + 2 * d)):
        lam, mu = values[rows], m[rows]
        t = v2[:, None] * scale[rows]
        own = [1.0 + t * lam[:, k] for k in range(d)]
        square = sum(mu[:, k] ** 2 / own[k] for k in range(d))
        weight = dv2[:, None] * t * np.exp(-0.5 * t * square) / np.sqrt(np.prod(own, axis=0))
        theta, weighted = time.sums(t)
        a = weight * theta
        along = np.stack([(a / own[k]).sum(axis=0) * mu[:, k] for k in range(d)], axis=1)
        first[rows] = np.einsum("nij,nj->ni", axes[rows], along)
        if outer is None:
            continue
        # E[y y^T | eta] = c1 I + h eta eta^T, h the mixture of d sum_i exp(-j_i^2 t/2)/j_i^2
        b = d * weight * weighted
        inner = np.empty((len(mu), d, d))
        for i in range(d):
            for k in range(i + 1):
                inner[:, i, k] = inner[:, k, i] = (b / (own[i] * own[k])).sum(axis=0) * mu[:, i] * mu[:, k]
            inner[:, i, i] += a.sum(axis=0) + (b / own[i]).sum(axis=0) * lam[:, i]
        outer[rows] = axes[rows] @ inner @ axes[rows].swapaxes(1, 2)
    return first, outer


def log_normaliser(nu: float, mean: Array, cov: Array) -> tuple[Array, Array, Array]:
    """E[b] - b(|mean|) for b(k) = log[Gamma(nu + 1) (2/k)^nu I_nu(k)], k = |eta|, eta ~ N(mean, cov), and derivatives.

    The average of gradient and Hessian of b, (m, d) and (m, d, d), are its derivatives in the mean, and in the
    covariance times two. As b(k) = int_0^inf Theta(t) (1 - exp(-k^2 t/2))/t dt, both terms of the difference (m,) are
    averages of exponentials, and it keeps its digits where latents are narrow and long.

    >>> value, first, second = log_normaliser(0.5, np.array([[0.0, 0.0, 2.0]]), np.zeros((1, 3, 3)))
    >>> value, first.round(6)  # 1/tanh(2) - 1/2
    (array([0.]), array([[0.      , 0.      , 0.537315]]))
    """
    d = mean.shape[1]
    values, axes = np.linalg.eigh(cov)
    values = np.maximum(values, 0.0)
    m, time = np.einsum("nij,ni->nj", axes, mean), hitting_time(nu)
    long = np.sum(m**2, axis=1) + values.max(axis=1) + 2.0 * time.rate
    value, first, second = np.empty(len(mean)), np.empty_like(mean), np.empty_like(cov)
    # wide latents take part up to where Theta itself has vanished
    last = 0.5 * np.log(DROP / time.rate * long.max(initial=1.0))
    x = np.arange(LOWEST, last, 0.5 * SPACING)
    v2, dv2 = np.exp(2.0 * (x - np.exp(-x))), SPACING * (1.0 + np.exp(-x))  # as in `average_moments`
    for rows in batches(len(mean), len(x) * (8 + 2 * d)):
        lam, mu = values[rows], m[rows]
        t = v2[:, None] / long[rows]
        own = [1.0 + t * lam[:, k] for k in range(d)]
        exponent = 0.5 * sum(t * mu[:, k] ** 2 / own[k] + np.log1p(t * lam[:, k]) for k in range(d))
        apart = 0.5 * sum((t * mu[:, k]) ** 2 * lam[:, k] / own[k] - np.log1p(t * lam[:, k]) for k in range(d))
        theta = dv2[:, None] * time.sums(t)[0]
        # exp(-|m|^2 t/2) - exp(-exponent) without a difference of nearly equal numbers
        larger = np.exp(-np.minimum(exponent, exponent + apart))
        value[rows] = np.sum(theta * larger * np.sign(apart) * np.expm1(-np.abs(apart)), axis=0)
        a = theta * t * np.exp(-exponent)
        inner = np.zeros((len(mu), d, d))
        for i in range(d):
            for k in range(i + 1):
                inner[:, i, k] = inner[:, k, i] = -np.sum(a * t / (own[i] * own[k]), axis=0) * mu[:, i] * mu[:, k]
            inner[:, i, i] += np.sum(a / own[i], axis=0)
        along = np.stack([np.sum(a / own[k], axis=0) * mu[:, k] for k in range(d)], axis=1)
        first[rows] = np.einsum("nij,nj->ni", axes[rows], along)
        second[rows] = axes[rows] @ inner @ axes[rows].swapaxes(1, 2)
    return value, first, second


class WideCoordinate:
    """The law of z = 2 artanh(y_j) of one row of directions y in space, whose latent is N(mean, cov), (3,) and (3, 3).

    The density of y_j is that of y averaged round the axis, both by sums over equal steps, of log t and of the angle:
    fast where latents are wide and nodes under them many. ``usable`` is False where steps would have to be too small.
    """

    reach, points, lost = 40.0, 161, 1.5e-5
    """z up to which there is mass, how many of them a table begins with, and mass that it may miss: ends of intervals
    are then right to 4e-6 of the spread (57 rows, principal standard deviations of 1 to 100; 4e-4 with half as many).
    """
    upto = None
    """Distribution functions are told by tables alone."""

    def __init__(self, mean: Array, cov: Array, j: int):
        order = [j, *(k for k in range(3) if k != j)]
        m, V = mean[order], cov[np.ix_(order, order)]
        first, second = (part[0] for part in average_moments(0.5, mean[None], cov[None], True) if part is not None)
        variance, room = second[j, j] - first[j] ** 2, 0.5 * (1.0 - first[j] ** 2)
        self.place = 2.0 * np.arctanh(first[j]), np.sqrt(max(variance, 0.0)) / max(room, 1e-12)
        size, time = float(np.sqrt(m @ m)), hitting_time(0.5)
        low, high = _times(m, V)
        # width of the integrand about t = 1/size, where that is small: of the length of eta, relative to it
        narrow = float(np.sqrt(m @ np.linalg.solve(V + (size + 1.0) * np.eye(3), m)))
        step = min(_LOG_STEP, _WIDTHS / max(narrow, 1e-300))
        self.usable = size <= _LONGEST and (high - low) / step <= _MOST_TIMES
        if not self.usable:
            return
        u = np.arange(low, high, step)
        t = np.exp(u)
        inner = np.eye(3) + t[:, None, None] * V
        Q = np.linalg.inv(inner)
        log_weight = time.log_density(t) + u + np.log(0.5 * step) - 0.5 * np.linalg.slogdet(inner)[1]
        # the exponent -(e - t m)^T Q (e - t m)/(2 t) by products of entries of e, entries, and one
        square = -0.5 * Q.reshape(-1, 9) / t[:, None]
        self._exponents = np.concatenate([square, Q @ m, (log_weight - 0.5 * t * (Q @ m @ m))[:, None]], axis=1)

    def density(self, z: Array) -> Array:
        """At z, (G,)."""
        y, s = np.tanh(0.5 * z), 1.0 / np.cosh(0.5 * z)
        size, out = _ANGLES, self._sum(y, s, _ANGLES, 0.0) / _ANGLES
        while size < _MOST_ANGLES:
            between = self._sum(y, s, size, 0.5) / size
            done = np.abs(between - out).max() <= _ROUND * out.max()
            out, size = 0.5 * (out + between), 2 * size
            if done:
                break
        return 0.5 * s * s * out

    def beyond(self) -> Array:
        """Nothing is closer to -1 and 1 than floats tell."""
        return np.zeros(2)

    def _sum(self, y: Array, s: Array, size: int, shift: float) -> Array:
        """Sums over equal steps of the angle."""
        angle, out = 2.0 * np.pi * (np.arange(size) + shift) / size, np.empty_like(y)
        step = max(1, _TOGETHER // (size * len(self._exponents)))
        for begin in range(0, len(y), step):
            some = slice(begin, begin + step)
            round_axis = np.multiply.outer(s[some], np.cos(angle)), np.multiply.outer(s[some], np.sin(angle))
            e = np.stack([np.broadcast_to(y[some, None], round_axis[0].shape), *round_axis]).reshape(3, -1)
            terms = np.concatenate([(e[:, None] * e).reshape(9, -1), e, np.ones((1, e.shape[1]))])
            out[some] = np.exp(self._exponents @ terms).sum(axis=0).reshape(-1, size).sum(axis=1)
        return out


def _times(m: Array, V: Array) -> tuple[float, float]:
    """Values of log t between which densities of directions have all their mass, for eta ~ N(m, V), (3,) and (3, 3)."""
    size, time = np.sqrt(m @ m), hitting_time(0.5)
    # below the first t the exponent of `log_average` is below -DROP, above the last one f is
    u = np.linspace(-np.log(12.0 * (size + np.sqrt(V.diagonal().max())) + 100.0), np.log(9.0), _LOOKED_AT)
    t, (values, axes) = np.exp(u), np.linalg.eigh(V)
    own = 1.0 + np.multiply.outer(t, np.maximum(values, 0.0))
    level, m = time.log_density(t) + u - 0.5 * np.log(own).sum(axis=1), axes.T @ m
    # of directions e, |e - t m| is at least |1 - t size|; the largest value is at least that of one direction
    most = level - 0.5 * (1.0 - t * size) ** 2 / (t * own[:, -1])
    e = m / size if size > 0 else np.eye(3)[2]
    reached = (level - 0.5 * np.sum((e - np.multiply.outer(t, m)) ** 2 / own, axis=1) / t).max()
    some = np.flatnonzero(most > reached - DROP)
    return float(u[max(some[0] - 1, 0)]), float(u[min(some[-1] + 1, len(u) - 1)])


def keeps_its_side(mean: Array, R: Array, wide: float) -> NDArray[np.bool_]:
    """Whether latents with roots R of their covariances do not come near the origin, or are at most so wide about it.

    Roots are (n, d, d), or (n, d) on diagonals.

    >>> mean = np.array([[1e5, 0.0], [1e5, 0.0], [3.0, 0.0]])
    >>> keeps_its_side(mean, np.array([[2e4, 1.0], [1e4, 1.0], [0.9, 0.9]]), 1.0)
    array([False,  True,  True])
    """
    inner = R * mean if R.ndim == 2 else (R.swapaxes(1, 2) @ mean[..., None])[..., 0]
    length, spread = np.linalg.norm(mean, axis=1), np.linalg.norm(inner, axis=1)  # the latter times the length
    return np.asarray((spread <= wide * length) | (_AWAY * spread <= length**2))
