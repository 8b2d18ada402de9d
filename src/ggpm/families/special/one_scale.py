"""Averages of densities whose latents are independent given one more number: integrals of few dimensions for any D.

Latents of some likelihoods meet in a sum alone, and its function is a Laplace transform (`Family.scale_terms`):

    log p(y | eta) = sum_j A_j(eta_j) + log c(sum_j B_j(eta_j)),   c(S) = int exp(r(tau) S + h(tau)) dtau.

A composition is a vector of gamma variables divided by their sum, Gamma(S) = int exp(S tau - e^tau) dtau; counts in
categories are Poisson counts given their total, S^-N Gamma(N) = int exp(-e^tau S + N tau) dtau. With covariances
diag(delta) + lambda lambda^T, eta_j = mean_j + lambda_j z + sqrt(delta_j) x_j, and given (z, tau) what is left are D
integrals of one dimension each:

    E[p] = int N(z) exp(h(tau)) prod_j E_x[exp(A_j + r(tau) B_j)] dtau dz.

Posteriors of independent priors are close to that form: sites couple their latents by a matrix of rank one. What is
left of the covariance, E with no diagonal, enters by the expansion of E[p] in it to second order (Price 1958): with
a_j and 1 + b_j mean and variance of x_j under its own factor, and E in units of sqrt(delta), log prod_j gains
a^T E a/2 + b^T (E a)^2/2 + b^T (E * E) b/4, whose next term is of third order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import gammainccinv, gammaincinv, ndtr

from ggpm.data.rows import batches
from ggpm.families.special.lines import line_integrals, log_sum, loosened
from ggpm.families.special.log_gamma import log_gamma
from ggpm.families.special.stable import HALF_LOG_2PI

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Nodes in z, tau and every x, rule after rule. Each is off by a tenth of its change from the one before, or less
# (compositions of 4 and 10 parts, latents with standard deviations of 0.1 to 2), by half of it for wide latents.
SIZES = ((5, 7, 5), (5, 9, 7), (9, 13, 9), (13, 19, 13), (21, 29, 21), (31, 43, 31), (45, 63, 45))
NEXT, WIDE, NEXT_OF_WIDE, CHANCE = 0.1, 0.7, 0.5, 0.02
SWEEPS, SAME = 60, 1e-10  # over the coordinates of lambda, until they stay: what they leave is counted among E
LARGEST = 0.99  # share of a latent's standard deviation that lambda has at most
# Lines of wide latents: spacing and how far from the one of twice the spacing a rule is settled; standard deviations
# that they reach beyond the mode; how far tau goes, whose tails fall like powers at least; and steps to the modes.
SPACING, SPACING_OF_TAU, SPACING_OF_Z, REACH, TAU_EXTENT, MODE_STEPS = (0.14, 1e-5), (0.2, 1e-5), 0.2, 9.0, 1e4, 40
# Halvings of lines of x, and curvature of their integrands, at most: where tau is far from all mass no line settles.
HALVINGS, NARROWEST = 3, 1e20
LEAST_SD = 1e-8  # of a latent that is not known
REST_OF_WIDE = 1e-6  # of covariances, relative to the variances, that lines leave out
# Largest entry of E in units of sqrt(delta), times that unit where it is above one: densities and moments of four parts
# are then off by 1e-6 or less (standard deviations of 0.3 and 0.6, two factors).
MOST_REST = 0.05
NO_REST = 1e-8  # of the covariance's rest, in units of sqrt(delta): the error of the logarithm of the density


def one_factor(cov: Array) -> tuple[Array, Array]:
    """Factors (n, D) and what they leave (n, D, D), with zeros on the diagonal: cov = diag + factor factor^T + rest.

    Least squares of the correlations off the diagonal, coordinate by coordinate, from their widest direction.

    >>> factor, rest = one_factor(np.array([[[2.0, 0.5, 0.5], [0.5, 2.0, 0.5], [0.5, 0.5, 2.0]]]))
    >>> (factor**2).round(6), bool(np.abs(rest).max() < 1e-6)
    (array([[0.5, 0.5, 0.5]]), True)
    """
    n, D = cov.shape[:2]
    sd = np.sqrt(np.einsum("njj->nj", cov))
    unit = np.where(sd > 0, sd, 1.0)
    C = cov / unit[:, :, None] / unit[:, None, :]
    C[:, range(D), range(D)] = 0.0
    size, rows = np.einsum("nij,nij->nj", C, C), np.arange(n)
    first = size.argmax(axis=1)
    along = C[rows, first]
    along[rows, first] = np.sqrt(size[rows, first])
    for _ in range(3):
        along = along + np.einsum("nij,nj->ni", C, along)
        along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-300)
    share = np.sqrt(np.maximum(np.einsum("ni,nij,nj->n", along, C, along, optimize=True), 0.0))
    factor = np.clip(along * share[:, None], -LARGEST, LARGEST)
    for _ in range(SWEEPS):
        before = factor.copy()
        for i in range(D):
            others = np.einsum("nj,nj->n", factor, factor) - factor[:, i] ** 2
            fit = np.einsum("nj,nj->n", C[:, i], factor) / np.where(others > 0, others, 1.0)
            factor[:, i] = np.clip(np.where(others > 0, fit, 0.0), -LARGEST, LARGEST)
        if np.abs(factor - before).max(initial=0.0) < SAME:
            break
    factor *= sd
    rest = cov - factor[:, :, None] * factor[:, None, :]
    rest[:, range(D), range(D)] = 0.0
    return factor, rest


def split(cov: Array) -> tuple[Array, Array, Array]:
    """Factor (n, D), delta (n, D) and rest (n, D, D) of every row; delta is nan where the rest is too large."""
    factor, rest = one_factor(cov)
    delta = np.maximum(np.einsum("njj->nj", cov) - factor**2, 0.0)
    size = np.sqrt(np.where(delta > 0, delta, 1.0))
    share = np.abs(rest / size[:, :, None] / size[:, None, :]).max(axis=(1, 2))
    delta[share * np.maximum(1.0, size.max(axis=1)) > MOST_REST] = np.nan
    return factor, delta, rest


def log_expected(family: Any, eta: Array, mean: Array, cov: Array, y: Array, tolerance: float) -> Array:
    """log E[p(y)] of every row to a tolerance, (n,), nan where no rule reaches it.

    eta (n, D) are the modes of p(y | eta) N(eta | mean, cov), about which rules are placed.
    """
    n, D = mean.shape
    out, before, (factor, delta, rest) = np.full(n, np.nan), np.zeros(n), split(cov)
    rows = np.flatnonzero(np.isfinite(delta[:, 0]))
    for level, sizes in enumerate(SIZES):
        left = [rows[:0]]
        for part in batches(rows.size, D * sizes[2]):
            some = rows[part]
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                placed = Placed(family, eta[some], mean[some], factor[some], delta[some], rest[some], y[some])
                value = placed.log_integral(level)
                change = np.abs(value - out[some])
            # rules may come close by chance: where latents are wide the change before counts, too
            wide = (placed.sd * placed.x_width).max(axis=0) > WIDE
            error = np.where(wide, NEXT_OF_WIDE * np.maximum(change, CHANCE * before[some]), NEXT * change)
            out[some], before[some] = value, change
            left.append(some[~(error <= tolerance)])
        rows = np.concatenate(left)
    out[rows] = np.nan
    return out


class Placed:
    """Integrals of some rows over (z, tau, x), with nodes about the mode eta (n, D) of p(y | eta) N(eta | mean, cov).

    Arrays are (D, n) or (n,): rows are last, so that sums over nodes and latents run over long arrays.
    """

    def __init__(self, family: Any, eta: Array, mean: Array, factor: Array, delta: Array, rest: Array, y: Array):
        self.family = family
        self.y, self.mean, self.factor, delta, eta = (np.ascontiguousarray(a.T) for a in (y, mean, factor, delta, eta))
        self.sd = np.sqrt(delta)
        inverse = np.where(delta > 0, 1.0 / np.where(delta > 0, delta, 1.0), 0.0)
        per_sd = np.sqrt(inverse)
        # E in units of sqrt(delta)
        self.E = np.ascontiguousarray((rest * per_sd.T[:, :, None] * per_sd.T[:, None, :]).transpose(1, 2, 0))
        self.coupled = bool(np.abs(self.E).max() > NO_REST)
        away = eta - self.mean
        self.z = (self.factor * inverse * away).sum(axis=0) / (1.0 + (self.factor**2 * inverse).sum(axis=0))
        self.x = (away - self.factor * self.z) * per_sd
        self._widths(eta, inverse)

    def _widths(self, eta: Array, inverse: Array) -> None:
        """Laplace's approximation about the mode: widths of z, of tau given z and of every x, and how they follow z."""
        (_, bend), (B_slope, B_bend) = self.family.scale_slopes(eta, self.y)
        B = self.family.scale_terms(eta, self.y)[1]
        S = B.sum(axis=0)
        self.tau, shape, slope = self.family.scale_mode(S, self.y)
        r, _ = self.family.scale_weight(self.tau, self.y)
        gamma = np.maximum(-(bend + r * B_bend), -0.5 * inverse)
        pull = slope * B_slope  # of tau on the latents
        H = 1.0 + self.sd**2 * gamma
        by_z, by_tau = self.sd * gamma * self.factor, -self.sd * pull
        z_z = 1.0 + (gamma * self.factor**2 - by_z**2 / H).sum(axis=0)
        z_tau = -(pull * self.factor + by_z * by_tau / H).sum(axis=0)
        # as if every A_j + r B_j were the most that S allows: no digits cancel where latents are wide
        self.least = (1.0 / (S / (shape * B) + (self.sd * B_slope / B) ** 2)).sum(axis=0)
        self.shape = np.maximum(shape - (by_tau**2 / H).sum(axis=0), 0.5 * self.least)
        self.tau_by_z = -z_tau / self.shape
        self.z_width = 1.0 / np.sqrt(np.maximum(z_z - z_tau**2 / self.shape, 0.5))
        self.x_by_z = -(by_z + by_tau * self.tau_by_z) / H
        self.x_width = 1.0 / np.sqrt(H)

    def log_integral(self, level: int) -> Array:
        """log E[p(y)] by the rules of a level, (n,)."""
        sizes = SIZES[level]
        z_nodes, z_weights = _gauss(sizes[0]) if self.factor.any() else (np.zeros(1), np.zeros(1))
        x_nodes, x_weights = _gauss(sizes[2])
        steps, tau_weights = log_gamma_rule(self.shape, sizes[1])
        values = []
        for node, weight in zip(z_nodes, z_weights):
            dz = self.z_width * node
            z, tau = self.z + dz, self.tau + self.tau_by_z * dz
            x = self.x + self.x_by_z * dz + self.x_width * x_nodes[:, None, None]
            A, B = self.family.scale_terms(self.mean + self.factor * z + self.sd * x, self.y)
            r0 = self.family.scale_weight(tau, self.y)[0]
            A += x_weights[:, None, None] - 0.5 * x * x + r0 * B
            top = A.max(axis=0)
            A -= top
            start = top.sum(axis=0) - 0.5 * z * z + np.log(self.x_width).sum(axis=0) + weight
            for step, tau_weight in zip(steps, tau_weights):
                r, h = self.family.scale_weight(tau + step, self.y)
                share = np.exp(A + (r - r0) * B)
                total = share.sum(axis=0)
                product = np.log(total).sum(axis=0) + self._rest(share, total, x)
                values.append(start + h.sum(axis=0) + tau_weight + product)
        found = log_sum(np.stack(values), np.ones(len(values)))
        return found + np.log(self.z_width) + self.family.scale_constant(self.y)

    def _rest(self, share: Array, total: Array, x: Array) -> Array | float:
        """What the rest of the covariance adds to the logarithm of the product, to second order."""
        if not self.coupled:
            return 0.0
        a = (share * x).sum(axis=0) / total
        b = (share * x * x).sum(axis=0) / total - a * a - 1.0
        Ea = np.einsum("ijn,jn->in", self.E, a)
        twice = np.einsum("in,ijn,jn->n", b, self.E**2, b, optimize=True)
        return 0.5 * (a * Ea + b * Ea**2).sum(axis=0) + 0.25 * twice


def log_expected_wide(family: Any, eta: Array, mean: Array, cov: Array, y: Array, times: float = 1.0) -> Array:
    """log E[p(y)] of latents of any width, (n,), nan for rows that one factor does not describe.

    Lines of x for every tau of a line, with the same nodes for all z of a trapezoidal rule; eta (n, D) are modes. The
    result may be off by so many ``times`` what lines are off by at their finest.
    """
    factor, rest = one_factor(cov)
    out = np.full(len(mean), np.nan)
    var = np.einsum("njj->nj", cov)
    for row in np.flatnonzero(np.abs(rest).max(axis=(1, 2)) <= REST_OF_WIDE * var.max(axis=1)):
        i = [row]
        out[row] = _wide(Placed(family, eta[i], mean[i], factor[i], var[i] - factor[i] ** 2, rest[i], y[i]), times)
    return out


def _wide(at: Placed, times: float) -> float:
    """The integral of one row: the trapezoidal rule in t, z = mode + width sinh(t), over lines of tau."""
    family, z, log_weights = at.family, at.z, np.zeros(1)
    if at.factor.any():
        spacing = loosened(SPACING_OF_Z, 0.0, times)[0]
        half = int(np.ceil(np.arcsinh((REACH + abs(at.z[0])) / at.z_width[0]) / spacing))
        t = spacing * np.arange(-half, half + 1)
        z = at.z + at.z_width * np.sinh(t)
        log_weights = np.log(spacing * at.z_width * np.cosh(t)) - 0.5 * z**2 - HALF_LOG_2PI
    matters = np.exp(-0.25 * ((z - at.z) / at.z_width) ** 2)  # z far from the mode need no digits

    def products(tau: Array, rows: Rows) -> Array:
        with np.errstate(over="ignore"):  # of logarithms beyond the floats: no density
            return log_factors(family, tau, at, z, matters, times).sum(axis=1)

    extent = np.full(1, TAU_EXTENT)
    width = 1.0 / np.sqrt(at.least)
    lines = loosened(*SPACING_OF_TAU, times)
    found = line_integrals(products, at.tau, width, extent, *lines, 64 * len(at.mean) * len(z), matters)
    return float((log_sum((found + log_weights).T, np.ones(len(z))) + family.scale_constant(at.y))[0])


def log_factors(family: Any, tau: Array, at: Placed, z: Array, matters: Array, times: float) -> Array:
    """log E_x[exp(A_j + r B_j + h_j)] of one row for every tau (S, 1) and z (L,): (S, D, 1, L)."""
    shape = (len(tau), *at.mean.shape)
    tau = np.broadcast_to(tau[:, None], shape).ravel()
    mean, sd, y, factor = (np.broadcast_to(a, shape).ravel() for a in (at.mean, at.sd, at.y, at.factor))
    whole, middle = np.hypot(sd, factor), mean + factor * at.z  # nodes are those of z at its mode, and reach for all
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        pinned, log_mass = family.scale_pinned(tau, y)
        away = pinned[:, None] - (mean[:, None] + factor[:, None] * z)
        out = (log_mass - np.log(sd) - HALF_LOG_2PI)[:, None] - 0.5 * (away / sd[:, None]) ** 2
        known = sd <= LEAST_SD
        out[known] = family.scale_factor(mean[known], tau[known], y[known])[:, None]
        rows = np.flatnonzero(np.isnan(out[:, 0]))
        centre, width = inner_modes(family, tau[rows], middle[rows], whole[rows], y[rows])

        def values(x: Array, some: Rows) -> Array:
            i = rows[some]
            eta = middle[i] + whole[i] * x
            value = family.scale_factor(eta, tau[i], y[i])
            value = np.where(np.isfinite(value), value, -np.inf)
            return value[..., None] - 0.5 * (((eta - mean[i])[..., None] - factor[i, None] * z) / sd[i, None]) ** 2

        reach = REACH + np.abs(centre) + np.abs(z - at.z).max() * (len(z) > 1)
        lines = loosened(*SPACING, times)
        found = line_integrals(values, centre, width, reach, *lines, 8 * len(z), matters, HALVINGS)
        out[rows] = found + (np.log(whole[rows] / sd[rows]) - HALF_LOG_2PI)[:, None]
    return out.reshape(*shape, len(z))


def inner_modes(family: Any, tau: Array, mean: Array, sd: Array, y: Array, reach: float = REACH) -> tuple[Array, Array]:
    """Modes and widths of exp(A_j + r B_j) N(x): Newton's method within brackets, halved where it does not converge."""
    low, high = np.full(len(tau), -reach), np.full(len(tau), reach)
    x, width, before = np.zeros(len(tau)), np.ones(len(tau)), np.full(len(tau), reach)
    r, i = family.scale_weight(tau, y)[0], np.arange(len(tau))
    for _ in range(MODE_STEPS):
        (A1, A2), (B1, B2) = family.scale_slopes(mean[i] + sd[i] * x[i], y[i])
        slope, bend = sd[i] * (A1 + r[i] * B1) - x[i], 1.0 - sd[i] ** 2 * (A2 + r[i] * B2)
        rising = slope > 0  # and falling where it is beyond the floats
        # links bend on the scale of one, also where the integrand is wider
        steep = np.maximum(1.0, sd[i] ** 2)
        width[i] = 1.0 / np.sqrt(np.where(np.isfinite(bend), np.clip(bend, steep, NARROWEST), steep))
        low[i], high[i] = np.where(rising, x[i], low[i]), np.where(rising, high[i], x[i])
        move = slope / np.maximum(bend, 1.0)
        newton = (x[i] + move > low[i]) & (x[i] + move < high[i]) & (np.abs(move) < 0.5 * before[i])
        move = np.where(newton, move, 0.5 * (low[i] + high[i]) - x[i])
        x[i], before[i] = x[i] + move, np.abs(move)
        i = i[~(np.abs(move) <= 0.1 * width[i])]
        if not i.size:
            break
    return x, width


@lru_cache(maxsize=16)
def _gauss(size: int) -> tuple[Array, Array]:
    """Nodes of Gauss and Hermite and logarithms of weights for integrals of f(x)/sqrt(2 pi)."""
    x, w = hermegauss(size)
    return x, np.log(w / w.sum()) + 0.5 * x * x


def log_gamma_rule(shape: Array, size: int) -> tuple[Array, Array]:
    """Nodes (size, n) and log-weights for integrals over the logarithm of a gamma variable, from its mode.

    Those of Gauss and Hermite by quantiles: exact where the integrand is the density of the shape, good where it is
    like it; weights are for the integrand itself.

    >>> step, log_weights = log_gamma_rule(np.array([3.0]), 5)
    >>> tau = np.log(3.0) + step
    >>> float(np.exp(3.0 * tau - np.exp(tau) + log_weights).sum().round(12))  # Gamma(3)
    2.0
    """
    x, w = hermegauss(size)
    G = np.stack([gammaincinv(shape, ndtr(q)) if q < 0 else gammainccinv(shape, ndtr(-q)) for q in x])
    with np.errstate(divide="ignore"):
        log_G = np.log(G)
    log_density = shape * log_G - G - log_gamma(shape)
    return log_G - np.log(shape), np.log(w / w.sum())[:, None] - log_density
