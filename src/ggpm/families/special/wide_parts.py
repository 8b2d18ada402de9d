"""Laws of the parts of a Dirichlet variable whose parameters are exp(eta), eta normal and wide.

Given alpha, a part is a beta variable with parameters exp(a) = alpha_j and exp(b), the sum of the others. For two parts
(a, b) is normal. For three, b = level + log(2 cosh(delta/2)) with the mean and the difference of the two other latents,
and (a, b) given delta is normal with a covariance that is the same for all delta: a mixture of normals, smooth on the
scale of that covariance. What is left is an integral over two dimensions. With x = a - b and n = -log(1/alpha_j +
1/exp(b)), da db = dn dx, the density of the logit z in x is, for n > 0, a ridge about x = z of width exp(-n/2), and for
n < 0 a plateau with edges on the scale of one, between which it is exp(n):

    z < 0: from z + n to -n - log |z|,   z > 0: from n + log |z| to z - n.

Nodes follow them for every n and z, closer at the edges, as far apart as the mixture allows elsewhere.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.special import betaln, gammainc

from ggpm.families.special.stable import HALF_LOG_2PI, stirling_error

Array = NDArray[np.float64]

# Measured on variances of 4 to 1e4: densities are off by 2e-5 of themselves or less, by 1e-4 for |z| of 100 and more.
# Standard deviations that rules reach; steps in t for delta and n; nodes of each piece in x; and spacings
# that the normals of the mixture bear, in units of their standard deviation.
REACH, DELTA_STEP, LEVEL_STEP, PIECE, SMOOTH = 6.0, 1.0, 0.4, (12.0, 1.0), 0.8
NEWTON_STEPS, HALVINGS = 8, 30
BEND = 2.0  # widths of the bends at delta = 0, and at n = 0 and -log |z|, from zero to that of the farthest
# Normals of a mixture, and these times levels, at most: some combination of the latents is known, next to the others.
MOST_NORMALS, MOST_WORK = 400, 20_000
# Widths of a ridge or an edge beyond which nothing is left of the density: ridges fall like normal densities, like
# exponentials where n is near zero, and edges like exponentials of these.
BEYOND_RIDGE, BEYOND, BEYOND_EDGES, STEEP = 8.0, 32.0, 9.0, -2.5
NARROWEST = 20.0  # n from which on a ridge is a point mass for all that the mixture tells
SMALLEST, LARGEST = -650.0, 690.0  # logarithms of parameters that floats hold
FARTHEST = 700.0  # |z| beyond which floats do not tell parts from zero
NODE_DOUBLES = 2**17  # normals times nodes that are worked on at once


class WidePart:
    """The law of the logit of part j of one row, whose latent is N(mean, cov), (d,) and (d, d) with d of two or three.

    ``WidePart.usable`` is False where the mixture would need too many normals.
    """

    reach, points = FARTHEST, 81
    """Logits up to which there is mass, and how many of them a table begins with."""

    def __init__(self, mean: Array, cov: Array, j: int):
        others = [k for k in range(len(mean)) if k != j]
        self.usable = True
        if len(others) == 1:
            order = [j, *others]
            self.weights, self.means, self.cov = np.ones(1), mean[order][None], cov[np.ix_(order, order)]
        else:
            self._over_difference(mean, cov, j, *others)
        if not self.usable or np.linalg.det(self.cov) <= 1e-12 * self.cov[0, 0] * self.cov[1, 1]:
            self.usable = False
            return
        self.precision = np.linalg.inv(self.cov)
        self.mean = self.weights @ self.means
        away = self.means - self.mean
        self.whole = self.cov + (self.weights[:, None] * away).T @ away
        linear = away @ self.precision
        norm = 0.5 * np.linalg.slogdet(self.precision)[1] - 2.0 * HALF_LOG_2PI
        with np.errstate(divide="ignore"):
            constant = np.log(self.weights) + norm - 0.5 * (linear * away).sum(axis=1)
        self._exponents = np.concatenate([linear.T, constant[None]])
        self.n, self.n_weights = self._levels()
        self.usable = len(self.n) * len(self.weights) <= MOST_WORK

    def _over_difference(self, mean: Array, cov: Array, j: int, k: int, last: int) -> None:
        """The mixture over delta = eta_k - eta_last."""
        A = np.zeros((3, 3))
        A[0, j], A[1, [k, last]], A[2, [k, last]] = 1.0, 0.5, (1.0, -1.0)
        mean, cov = A @ mean, A @ cov @ A.T
        sd = np.sqrt(cov[2, 2])
        if sd == 0:
            delta, self.weights, slope, self.cov = mean[2:], np.ones(1), np.zeros(2), cov[:2, :2]
        else:
            slope = cov[:2, 2] / cov[2, 2]
            self.cov = cov[:2, :2] - np.outer(slope, slope) * cov[2, 2]
            # how far the normals move with delta, in units of their own width, on either side of zero
            moves = slope + np.array([[0.0, 0.5], [0.0, -0.5]])
            far = np.einsum("si,ij,sj->s", moves, np.linalg.pinv(self.cov, hermitian=True), moves).max()
            step = SMOOTH / np.sqrt(1.0 / cov[2, 2] + far)
            if not 2 * REACH * sd / step < MOST_NORMALS:
                self.usable, step = False, sd
            delta, dx = _bent_rule((0.0,), step, mean[2] - REACH * sd, mean[2] + REACH * sd, DELTA_STEP)
            weights = dx * np.exp(-0.5 * ((delta - mean[2]) / sd) ** 2)
            self.weights = weights / weights.sum()
        self.means = mean[:2] + slope * (delta - mean[2])[:, None]
        self.means[:, 1] += np.logaddexp(0.5 * delta, -0.5 * delta)

    def _levels(self) -> tuple[Array, Array]:
        """Nodes and weights of n."""
        reach = REACH * np.sqrt(np.diagonal(self.whole))
        low, high = (self.mean - reach).min() - np.log(2.0), (self.mean + reach).min()
        return _bent_rule((0.0, -np.log(FARTHEST)), SMOOTH / np.sqrt(self.precision.sum()), low, high, LEVEL_STEP)

    @property
    def place(self) -> tuple[float, float]:
        """Centre and width of a grid in z: small shapes leave mass about zero, on the scale of one."""
        middle, reach = self._range()
        sd = reach / REACH
        return (0.0 if sd > 0.5 * abs(middle) else middle), min(sd, 2.0)

    def beyond(self) -> Array:
        """P(z < -FARTHEST) and P(z > FARTHEST), (2,).

        Given n < 0 this is the chance of the other part, expit(-x) and expit(x), that shapes below 1/FARTHEST leave
        alone; and all of it where x itself is beyond.
        """
        middle, reach = self._range()
        low, high = np.full(1, middle - reach), np.full(1, middle + reach)
        out = np.zeros(2)
        for side, sign in enumerate((-1.0, 1.0)):
            edge = np.clip(sign * FARTHEST, low, high)
            zero = np.clip(np.zeros(1), low, high)
            half = 0.5 * (edge + zero)
            first, last = (edge, zero) if side == 0 else (zero, edge)
            for start, end in ((first, low), (first, half), (last, half), (last, high)):
                if start == end:
                    continue
                offset, size = _from_edge(np.abs(end - start), np.ones(1), self._narrow())
                x = start + np.sign(end - start) * offset
                own, rest = np.logaddexp(0.0, x), np.logaddexp(0.0, -x)
                n = self.n[:, None]
                a, b = (n + own, n + rest) if side == 0 else (n + rest, n + own)
                out[side] += self.n_weights @ ((_far_below(a, b) * self._joint(n + own, n + rest)) @ size[0])
        return out

    def _range(self) -> tuple[float, float]:
        """Where x is, and how far from there it reaches."""
        spread = self.whole[0, 0] + self.whole[1, 1] - 2.0 * self.whole[0, 1]
        return float(self.mean[0] - self.mean[1]), REACH * float(np.sqrt(max(spread, 0.0)))

    def _narrow(self) -> float:
        """Spacing in x that the mixture bears."""
        return SMOOTH / float(np.sqrt(max(self.precision[0, 0], self.precision[1, 1])))

    def _joint(self, a: Array, b: Array) -> Array:
        """Density of (a, b)."""
        ab = np.stack([a.ravel() - self.mean[0], b.ravel() - self.mean[1], np.ones(a.size)], axis=1)
        out, step = np.empty(len(ab)), max(1, NODE_DOUBLES // len(self.weights))
        for start in range(0, len(ab), step):
            some = ab[start : start + step]
            exponents = some @ self._exponents
            exponents -= 0.5 * np.einsum("ni,ij,nj->n", some[:, :2], self.precision, some[:, :2])[:, None]
            out[start : start + step] = np.exp(exponents, out=exponents).sum(axis=1)
        return out.reshape(a.shape)

    def density(self, z: Array) -> Array:
        """Density of the logit at z (G,)."""
        n, at = self.n, z[:, None]
        middle, reach = self._range()
        width = np.exp(-0.5 * np.clip(n, 0.0, NARROWEST))
        log_z, left = np.log1p(np.abs(at)), at < 0
        below, above = np.minimum(n, 0.0), np.maximum(-n, 0.0)
        first = np.where(left | (n >= 0), at + below, np.minimum(at, log_z - above))
        last = np.where(left & (n < 0), np.maximum(at, above - log_z), at + above)
        beyond = np.where(n < STEEP, BEYOND_EDGES, BEYOND_RIDGE + BEYOND * width) * width
        low, high = np.maximum(middle - reach, first - beyond), np.minimum(middle + reach, last + beyond)
        high = np.maximum(low, high)
        first, last = np.clip(first, low, high), np.clip(last, low, high)
        half = 0.5 * (first + last)
        narrow, out = self._narrow(), np.zeros(len(z))
        for start, end in ((first, low), (first, half), (last, half), (last, high)):  # from the edges
            for some in (n < 0, n >= 0):
                i, k = np.nonzero((np.abs(end - start) > 0) & some)
                if i.size:
                    offset, size = _from_edge(np.abs(end - start)[i, k], width[k], narrow)
                    x = start[i, k][:, None] + np.sign(end - start)[i, k][:, None] * offset
                    value = self._integrand(n[k][:, None], x, z[i][:, None])
                    out += np.bincount(i, (size * value).sum(axis=1) * self.n_weights[k], minlength=len(z))
        return out

    def _integrand(self, n: Array, x: Array, z: Array) -> Array:
        own, rest, capped = np.logaddexp(0.0, x), np.logaddexp(0.0, -x), np.minimum(n, NARROWEST)
        return np.exp(log_logit_density(capped + own, capped + rest, z)) * self._joint(n + own, n + rest)


def log_logit_density(a: Array, b: Array, z: Array) -> Array:
    """Log density of the logit z of a beta variable with parameters exp(a) and exp(b).

    By Stirling's formula at the peak z = a - b, and with z - (a - b) = dz what is lost from there to z is
    S log(1 + m (exp(dz) - 1)) - own dz, m = own/S, for the smaller of the two shares: no large numbers cancel.

    >>> float(log_logit_density(np.zeros(1), np.zeros(1), np.zeros(1))[0].round(6))  # uniform: y (1 - y)
    -1.386294
    """
    own, others = (np.exp(np.clip(v, SMALLEST, LARGEST)) for v in (a, b))
    S, less, x = own + others, np.minimum(own, others), a - b
    log_m = -np.logaddexp(0.0, np.abs(x))  # of the smaller share
    peak = 0.5 * (a - np.logaddexp(0.0, x)) - HALF_LOG_2PI
    peak = peak + stirling_error(S) - stirling_error(own) - stirling_error(others)
    dz = np.where(x < 0, 1.0, -1.0) * (z - x)
    step = np.expm1(np.minimum(dz, 30.0))
    near = np.where(log_m > -40.0, S * np.log1p(np.exp(log_m) * step), less * step)
    far = np.where(
        log_m + dz > -37.0, S * np.logaddexp(0.0, log_m + dz), np.exp(np.minimum(np.minimum(a, b) + dz, LARGEST))
    )
    return peak + less * dz - np.where(dz < 30.0, near, far)


def _from_edge(length: Array, width: Array, narrow: float) -> tuple[Array, Array]:
    """Nodes (k, N) between zero and lengths (k,) and their weights: Gauss's rule in t = asinh(x/width) + x/narrow."""

    def t_of(x: Array) -> Array:
        return np.arcsinh(x / width[:, None]) + x / narrow

    top = t_of(length[:, None])
    u, weights = _legendre(int(PIECE[0] + PIECE[1] * top.max()))
    t = top * u
    x = np.minimum(width[:, None] * np.sinh(np.minimum(t, 700.0)), narrow * t)  # above the root, both
    for _ in range(NEWTON_STEPS):  # t is concave: from below after the first
        x -= (t_of(x) - t) / (1.0 / np.hypot(x, width[:, None]) + 1.0 / narrow)
    return x, top * weights / (1.0 / np.hypot(x, width[:, None]) + 1.0 / narrow)


def _far_below(a: Array, b: Array) -> Array:
    """P(z < -FARTHEST) of the logit of a beta variable with parameters exp(a) and exp(b).

    >>> float(_far_below(np.full(1, -9.0), np.full(1, -9.0))[0].round(4))  # exp(-700 exp(-9))/2
    0.4586
    """
    own, others = np.exp(np.clip(a, SMALLEST, 10.0)), np.exp(np.clip(b, SMALLEST, LARGEST))
    near = np.exp(-FARTHEST * own - np.log(own) - betaln(own, others))
    capped = np.clip(a, SMALLEST, NARROWEST)  # of gamma variables with larger shapes the means are all that counts
    far = gammainc(np.exp(capped), np.exp(np.clip(b - FARTHEST - a + capped, SMALLEST, 2.0 * NARROWEST)))
    return np.where(b < FARTHEST - 40.0, near, far)


def _bent_rule(bends: tuple[float, ...], step: float, low: float, high: float, h: float) -> tuple[Array, Array]:
    """Nodes (N,) from low to high and their weights: the trapezoidal rule in t = sum_c asinh((x - c)/BEND) + x/step.

    >>> x, w = _bent_rule((0.0,), 1.0, -8.0, 8.0, 0.5)
    >>> bool(abs(w @ np.exp(-0.5 * x**2) - np.sqrt(2 * np.pi)) < 1e-10)
    True
    """

    def t_of(x: Array) -> tuple[Array, Array]:
        away = x[:, None] - np.array(bends)
        slope = (1.0 / np.hypot(away, BEND)).sum(axis=1) + 1.0 / step
        return np.arcsinh(away / BEND).sum(axis=1) + x / step, slope

    first, last = t_of(np.array([low, high]))[0]
    N = int(np.ceil((last - first) / h)) + 2
    t = np.linspace(first, last, N)
    left, right = np.full(N, low), np.full(N, high)
    for _ in range(HALVINGS):  # Newton's steps alone may go back and forth across a bend
        x = 0.5 * (left + right)
        below = t_of(x)[0] < t
        left, right = np.where(below, x, left), np.where(below, right, x)
    x = 0.5 * (left + right)
    for _ in range(2):
        value, slope = t_of(x)
        x = x - (value - t) / slope
    return x, (last - first) / (N - 1) / t_of(x)[1]


@lru_cache(maxsize=64)
def _legendre(size: int) -> tuple[Array, Array]:
    """Gauss's nodes and weights between zero and one."""
    u, w = leggauss(size)
    return 0.5 * (u + 1.0), 0.5 * w
