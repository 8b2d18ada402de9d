"""Averages of densities whose latents meet in a sum, under any covariance: given a scale, one latent after another.

Given tau (`Family.scale_terms`) p(y | eta) is a product of factors g_j(eta_j), each of one latent. Expectation
propagation (Minka 2001) puts Gaussians q_j in their place, with which the latents are N(m, L L^T), nearly what they
are given y. They are taken in turn, eta_j from its Gaussian N(m_j + c, L_jj^2) given those before, times g_j/q_j: what
those before leave, and what those after are expected to say (Genz 1992 for orthants, whose factors are steps). What
is left of the integral is an average over standard normals x,

    E[prod_j Z_j(c_j)],  Z_j(c) = int N(eta; m_j + c, L_jj^2) g_j(eta)/q_j(eta) deta,

with eta_j the quantile of that law at x_j. The product varies by some hundredths, smoothly, however wide the latents
are, and average it do sparse grids, or quasi-random points with weights that are exact for polynomials. Z_j and the
quantiles are tables in c, made for every j and tau.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates, spline_filter
from scipy.special import ndtri

from ggpm.families.special.adaptive import SPARSE_MOST, nested_grid, smolyak_size
from ggpm.families.special.lines import log_sum
from ggpm.families.special.one_scale import inner_modes
from ggpm.families.special.quadrature import sobol
from ggpm.families.special.stable import HALF_LOG_2PI

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Steps of expectation propagation, the first time and later, their damping, and where they end; least variance of a
# tilted law, in units of the one before, and largest precision, that of point masses. What is left is no error.
FEW_SWEEPS, SWEEPS, DAMPING, ARRIVED, LEAST, MOST_PI = 4, 10, 0.8, 1e-3, 0.02, 1e14
STEEPER = 1e3  # standard deviation, and root of the mean, of Gaussians that are like exp(eta)
# Line of tau: spacing in t and reach at first; quartiles, width of the line in their distance, and at least in that
# by Laplace; spacing then, by how much even and odd nodes may differ (the error is about the square), the factor to a
# finer one, trials, values (logarithms) below the largest that are not corrected, and that are nothing; largest tau.
ROUGH, FIRST_REACH, QUARTILES, WIDTH, LEAST_WIDTH = 0.4, 4.8, (0.25, 0.5, 0.75), 1.5, 0.3
SPACING, SETTLED, FINER, TRIALS, LITTLE, NOTHING, LARGEST = 0.3, 1e-4, 0.75, 10, 12.0, 17.0, 690.0
# Tables: spacings in c and x in units of the conditional standard deviation, largest x and most places; places
# beyond those asked for, of their own and extrapolated; quantiles whose normal score is known.
STEP_C, STEP_X, MOST_X, MOST_C, OWN, MARGIN, MOST_Z = 0.2, 0.25, 7.5, 400, 5, 12, 8.0
# Their quadrature: standard deviations that it reaches, growth of intervals, nodes in each (and the same of
# propagation); how far modes may be; share of the conditional variance below which the factor is all there is.
REACH, RATIO, GAUSS, OF_SWEEPS, FAR, PINNED = 9.0, 2.0, 5, (6.5, 2.5, 4), 60.0, 1e-7
# Levels of sparse grids, variables that they have at most, and their error as a share of the last change.
GRIDS, MOST_OF_GRIDS, NEXT = (3, 4, 5, 6), 12, 0.1
# Logarithms (base 2) of numbers of points, variables for which these are exact to degree five, and their error as a
# share of what half of them differ by; how much less a tau matters that begins with fewer of them.
POINTS, MOST_MATCHED, HALF, EASIER = (12, 14), 10, 2.0, 8.0
BELIEVED = 2.0  # largest correction of a tau that matters
TOGETHER = 12  # tau worked on at once


def log_expected_one_by_one(
    family: Any, eta: Array, mean: Array, cov: Array, y: Array, tolerance: float
) -> tuple[Array, Array]:
    """log E[p(y)] and estimates of the error, (n,) each, nan in rows with next to no variance left for some latent.

    eta (n, D) are the modes of p(y | eta) N(eta | mean, cov).
    """
    out = np.full((2, len(mean)), np.nan)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # where factors are nothing
        for row in np.flatnonzero((np.einsum("njj->nj", cov) > 0).all(axis=1)):
            out[:, row] = Row(family, eta[row], mean[row], cov[row], y[row]).integral(tolerance)
    return out[0], out[1]


class Row:
    """The integral of one row."""

    def __init__(self, family: Any, eta: Array, mean: Array, cov: Array, y: Array):
        self.family, self.mean, self.y = family, mean, y
        values, axes = np.linalg.eigh(cov)
        self.root = axes * np.sqrt(np.maximum(values, 0.0))
        self.cov, self.sd = cov, np.sqrt(np.diagonal(cov))
        self.tau, self.width = self._scale(eta)

    def _scale(self, eta: Array) -> tuple[float, float]:
        """Mode of tau, and how wide it is, by Laplace's approximation."""
        (_, bend), (B_slope, B_bend) = self.family.scale_slopes(eta, self.y)
        S = self.family.scale_terms(eta, self.y)[1].sum(keepdims=True)
        tau, shape, slope = self.family.scale_mode(S, self.y[:, None])
        r = self.family.scale_weight(tau, self.y)[0]
        pi, pull = np.maximum(-(bend + r * B_bend), 0.0), slope * B_slope
        L = Sites(self, eta[None], np.zeros((1, len(eta))), pi[None]).root[0]
        least = 1.0 / (1.0 / shape[0] + (self.sd**2).max())
        return float(tau[0]), 1.0 / np.sqrt(max(shape[0] - np.square(pull @ L).sum(), least))

    def integral(self, tolerance: float) -> tuple[float, float]:
        """log of the integral, and an estimate of its error: trapezoids in t, tau = centre + width sinh(t)."""
        log_width, sites = self._line()
        rough = sites.log_value() + log_width
        top = rough.max()
        matters = np.flatnonzero(rough > top - LITTLE)
        share = np.exp(rough[matters] - top)
        found, error = Sequences(self, sites, matters).log_averages(tolerance / share)
        value = rough.copy()
        value[matters] = sites.log_gauss[matters] + log_width[matters] + found
        if not (np.abs(value - rough)[rough > top + np.log(SETTLED)] < BELIEVED).all():
            return np.nan, np.nan
        total = log_sum(value[:, None], np.ones(len(value)))[0]
        off = np.sqrt(np.square(share * error).sum()) / share.sum()
        return float(total + self.family.scale_constant(self.y[:, None])[0]), float(off)

    def _line(self) -> tuple[Array, Sites]:
        """Logarithms of weights of nodes in tau, and sites at each: as many as what propagation gives itself needs."""
        centre, width, step, reach = self.tau, self.width, ROUGH, np.full(2, FIRST_REACH)
        for trial in range(TRIALS):
            t = step * np.arange(-round(reach[0] / step), round(reach[1] / step) + 1)
            tau = centre + width * np.sinh(t)
            t, tau = t[np.abs(tau) < LARGEST], tau[np.abs(tau) < LARGEST]
            sites = self._propagated(tau, SWEEPS if trial else FEW_SWEEPS)
            log_width = np.log(step * width * np.cosh(t))
            value = sites.log_value() + log_width
            w = np.exp(value - value.max())
            if trial == 0:  # where it is, and how wide without its tails
                low, centre, high = np.interp(QUARTILES, np.cumsum(w) / w.sum(), tau)
                width, step = WIDTH * max(high - low, LEAST_WIDTH * self.width), SPACING
                seen = np.flatnonzero(value > value.max() - NOTHING)
                ends = tau[[max(seen[0] - 1, 0), min(seen[-1] + 1, len(tau) - 1)]]
                reach = np.arcsinh(np.abs(ends - centre) / width)
                continue
            short = value[[0, -1]] > value.max() - NOTHING
            uneven = abs(w[::2].sum() - w[1::2].sum()) > SETTLED * w.sum()
            if not (uneven or (short.any() and np.abs(tau[[0, -1]]).max() < 0.9 * LARGEST)):
                break
            reach, step = np.where(short, reach + 1.0, reach), FINER * step if uneven else step
        return log_width, sites

    def _propagated(self, tau: Array, sweeps: int) -> Sites:
        """Sites for every tau (S,), from Laplace's of every latent alone."""
        S, D = len(tau), len(self.mean)
        shape = (S, D)
        t, y = np.broadcast_to(tau[:, None], shape), np.broadcast_to(self.y, shape)
        flat = t.ravel(), np.full(S * D, STEEPER**2), np.full(S * D, STEEPER), y.ravel()
        # where factors change most: modes of g_j(eta) exp(eta), of which all have one
        x, width = inner_modes(self.family, *flat, 2.0 * STEEPER)
        place, width = (STEEPER * (STEEPER + x)).reshape(shape), (STEEPER * width).reshape(shape)
        x, _ = inner_modes(self.family, flat[0], np.tile(self.mean, S), np.tile(self.sd, S), flat[-1])
        eta = self.mean + self.sd * x.reshape(shape)
        (slope, bend), (B_slope, B_bend) = self.family.scale_slopes(eta, y)
        r = self.family.scale_weight(t, y)[0]
        pi, slope = (np.nan_to_num(a) for a in (-(bend + r * B_bend), slope + r * B_slope))
        # factors that are point masses are the narrowest of Gaussians
        point, log_mass = self.family.scale_pinned(t, y)
        fixed = np.isfinite(point)
        eta, slope = np.where(fixed, point, eta), np.where(fixed, 0.0, slope)
        sites = Sites(self, eta, slope, np.where(fixed, MOST_PI, np.clip(pi, 0.0, MOST_PI)))
        of_points = np.where(fixed, log_mass + 0.5 * np.log(MOST_PI) - HALF_LOG_2PI, np.nan)
        for sweep in range(sweeps):
            mean, sd = sites.mean, sites.sd
            rest = 1.0 - sites.pi * sd**2
            log_mass, first, second = self._tilted(mean, sd, (place, width), sites, t, y)
            # N(c, s^2) q^-1 is Gaussian with these natural parameters
            known = np.isfinite(first) & np.isfinite(second) & ~fixed
            first, second = np.where(known, first, 0.0), np.where(known, np.maximum(second, LEAST), 1.0)
            if np.abs(first).max() + np.abs(second - 1.0).max() < ARRIVED or sweep == sweeps - 1:
                break
            new = np.where(known, np.clip((1.0 / second - rest) / sd**2, 0.0, MOST_PI), sites.pi)
            slope = sites.slope + first / (second * sd)
            steps = DAMPING * (slope - sites.slope), DAMPING * (new - sites.pi)
            sites = Sites(self, mean, sites.slope + steps[0], sites.pi + steps[1])
        sites.log_masses, sites.tau = np.where(fixed, of_points, log_mass), tau
        sites.place, sites.width, sites.of_points = place, width, of_points
        return sites

    def _tilted(
        self, mean: Array, sd: Array, feature: tuple[Array, Array], sites: Sites, t: Array, y: Array
    ) -> tuple[Array, Array, Array]:
        """log of the mass, mean and variance of N(mean, sd^2) g/q, in units of sd and about the mean, (S, D) each."""
        edges = panels(*feature, mean, sd, sd, *OF_SWEEPS[:2])
        eta, weights = gauss_nodes(edges, OF_SWEEPS[2])
        x = (eta - mean) / sd
        value = self.family.scale_factor(eta, np.broadcast_to(t, eta.shape), np.broadcast_to(y, eta.shape))
        value = value - sites.slope * sd * x - 0.5 * (1.0 - sites.pi * sd**2) * x * x
        value = value + np.log(weights / sd) - HALF_LOG_2PI
        value = np.where(np.isfinite(value), value, -np.inf)
        top = value.max(axis=0)
        w = np.exp(value - top)
        mass = w.sum(axis=0)
        first = (w * x).sum(axis=0) / mass
        return top + np.log(mass), first, (w * x * x).sum(axis=0) / mass - first**2


def panels(place: Array, width: Array, mode: Array, spread: Array, sd: Array, reach: float, ratio: float) -> Array:
    """Edges (P, ...) of intervals that are short at two places, a feature's and a mode, from mode - reach sd on."""
    low, high = mode - reach * sd, mode + reach * sd
    out = [low, high, mode, np.clip(place, low, high)]
    for centre, size in ((place, width), (mode, spread)):
        grow, longest = size.copy(), (np.abs(centre - mode) + reach * sd)
        for _ in range(int(np.ceil(np.log(np.max(longest / size)) / np.log(ratio))) + 1):
            out += [np.clip(centre - grow, low, high), np.clip(centre + grow, low, high)]
            grow = grow * ratio
    out += [mode + k * sd for k in np.arange(-np.floor(reach), reach)]
    return np.sort(np.stack(out), axis=0)


def gauss_nodes(edges: Array, size: int) -> tuple[Array, Array]:
    """Nodes and weights (P size, ...) of Gauss and Legendre between edges."""
    x, w = _legendre(size)
    length = 0.5 * np.diff(edges, axis=0)[:, None]
    shape = (1, size, *[1] * (edges.ndim - 1))
    nodes = edges[:-1, None] + length * (1.0 + x.reshape(shape))
    weights = length * w.reshape(shape)
    flat = (-1, *edges.shape[1:])
    return nodes.reshape(flat), weights.reshape(flat)


@lru_cache(maxsize=8)
def _legendre(size: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(size)


class Sites:
    """Gaussians exp(slope (eta - at) - pi (eta - at)^2/2) in the place of factors, (S, D), and the latents with them.

    Then ``at`` is moved to the means of the latents: large numbers do not cancel.
    """

    log_masses: Array
    tau: Array
    place: Array
    width: Array
    of_points: Array

    def __init__(self, row: Row, at: Array, slope: Array, pi: Array):
        R, D = row.root, len(row.mean)
        # (cov^-1 + Pi)^-1 = R (I + R^T Pi R)^-1 R^T
        one = np.broadcast_to(np.eye(D), (len(pi), D, D))
        stacked = np.concatenate([np.sqrt(pi)[:, :, None] * R, one], axis=1)
        L = np.asarray(np.linalg.qr(stacked, mode="r")).swapaxes(1, 2)
        self.root = np.linalg.solve(L, np.broadcast_to(R.T, L.shape)).swapaxes(1, 2)
        self.sd = np.sqrt(np.square(self.root).sum(axis=2))
        # K = (Pi^-1 + cov)^-1, from a matrix with a diagonal of ones
        C = 1.0 / np.sqrt(1.0 + pi * row.sd**2)
        share = np.sqrt(pi) * C
        A = share[:, :, None] * row.cov * share[:, None, :]
        A[:, range(D), range(D)] = 1.0
        away = share * np.linalg.solve(A, (share * (at - row.mean - slope @ row.cov))[:, :, None])[:, :, 0]
        # slopes of the sites at the means are what the prior's are, with the other sign
        self.pi, self.slope = pi, slope + away
        moved = self.slope @ row.cov
        self.mean = row.mean + moved
        log_det = np.log(np.abs(np.einsum("skk->sk", L))).sum(axis=1)
        self.log_gauss = -0.5 * np.einsum("si,si->s", self.slope, moved) - log_det

    def log_value(self) -> Array:
        """log of the integral by expectation propagation: that of q N times the masses of every factor alone."""
        value = self.log_gauss + self.log_masses.sum(axis=1)
        return np.where(np.isfinite(value), value, -np.inf)


class Sequences:
    """Latents one by one, given several tau (S,)."""

    def __init__(self, row: Row, sites: Sites, some: Rows):
        order = np.argsort(-sites.pi[some] * row.sd**2, axis=1, kind="stable")
        root = np.take_along_axis(sites.root[some], order[:, :, None], axis=1)
        L = np.asarray(np.linalg.qr(root.swapaxes(1, 2), mode="r")).swapaxes(1, 2)
        self.L = L * np.where(np.einsum("sjj->sj", L) < 0, -1.0, 1.0)[:, None, :]
        arrays = (sites.mean, sites.pi, sites.slope, sites.place, sites.width, sites.of_points)
        self.mean, self.pi, self.slope, self.place, self.width, self.of_points = (
            np.take_along_axis(a[some], order, axis=1) for a in arrays
        )
        self.family, self.tau, self.y = row.family, sites.tau[some], row.y[order]

    def log_averages(self, tolerance: Array) -> tuple[Array, Array]:
        """log E[prod_j Z_j] for every tau to a tolerance each, (S,), and estimates of the errors."""
        S = len(self.tau)
        value, error, before = np.full(S, np.nan), np.full(S, np.inf), np.zeros(S)
        left = np.arange(S)
        for rule in (*grid_levels(self.mean.shape[1] - 1), *POINTS):
            # those that matter most go to the most points at once
            now = left[tolerance[left] > EASIER * tolerance.min()] if rule in POINTS[:-1] else left
            for start in range(0, len(now), TOGETHER):
                some = now[start : start + TOGETHER]
                if rule in POINTS:
                    value[some], error[some] = self._by_points(rule, some)
                else:
                    value[some], change = self._by_grid(rule, some)
                    error[some] = NEXT * np.maximum(change, NEXT * before[some])
                    before[some] = change
            left = left[error[left] > tolerance[left]]
        return value, error

    def _by_grid(self, level: int, some: Rows) -> tuple[Array, Array]:
        """Averages by a sparse grid, and by how much the one before differs."""
        x, fine, coarse = nested_grid(self.mean.shape[1] - 1, level)
        log_w = self.log_weights(np.broadcast_to(x, (len(some), *x.shape)), some).T
        value = log_sum(log_w, fine)
        return value, np.abs(value - log_sum(log_w, coarse))

    def _by_points(self, log2: int, some: Rows) -> tuple[Array, Array]:
        """Averages by points, other ones for every tau, and estimates of the error."""
        half, weights = matched_points(self.mean.shape[1] - 1, log2)
        signs = 1.0 - 2.0 * ((some[:, None] * 5 + 3) >> np.arange(half.shape[1]) & 1)
        x = half * signs[:, None, :]
        log_w = self.log_weights(np.concatenate([x, -x], axis=1), some).reshape(len(some), 2, -1)
        top = log_w.max(axis=(1, 2))
        whole, part = weights @ np.exp(log_w - top[:, None, None]).sum(axis=1).T
        return np.log(whole) + top, HALF * np.abs(part / whole - 1.0)

    def log_weights(self, x: Array, some: Rows) -> Array:
        """log prod_j Z_j at standard normals x (S, N, D - 1) of some tau (S,): (S, N), nan without tables."""
        S, N, d = x.shape
        e, out = np.empty((S, N, d)), np.zeros((S, N))
        place = np.clip((x + MOST_X) / STEP_X, 0.0, 2.0 * MOST_X / STEP_X)
        for j in range(d + 1):
            c, s = (e[:, :, :j] @ self.L[some, j, :j, None])[:, :, 0], self.L[some, j, j]
            low, high = c.min(axis=1), c.max(axis=1)
            size = np.ceil(((high - low) / (STEP_C * s)).max())
            if not size <= MOST_C:
                return np.full((S, N), np.nan)
            step = (high - low) / max(size, 1.0)
            places = low + step * np.arange(-OWN, max(size, 1.0) + OWN + 1)[:, None]
            log_Z, Q = self._tables(j, places, some, j == d)
            at = (c - low[:, None]) / np.where(step > 0, step, 1.0)[:, None] + (OWN + MARGIN)
            for k in range(S):
                of_c = spline_filter(_extended(log_Z[:, k]), order=5)
                out[k] += map_coordinates(of_c, at[k : k + 1], order=5, mode="nearest", prefilter=False)
                if j < d:
                    of_both, both = spline_filter(_extended(Q[:, :, k].T), order=3), np.stack([at[k], place[k, :, j]])
                    e[k, :, j] = map_coordinates(of_both, both, order=3, mode="nearest", prefilter=False)
        return out

    def _tables(self, j: int, c: Array, some: Rows, last: bool) -> tuple[Array, Array]:
        """log Z_j at every c (C, S), from the mean, and quantiles (X, C, S) of (eta - c)/s."""
        s, one = self.L[some, j, j], np.ones(c.shape)
        mean, pi, slope = self.mean[some, j], self.pi[some, j], self.slope[some, j]
        tau, y = self.tau[some] * one, self.y[some, j] * one
        rest = 1.0 - pi * s * s
        pinned = rest < PINNED  # g_j is all there is
        # N(c, s^2)/q = N(centre, sd^2) times a number
        rest = np.where(pinned, 1.0, rest)
        centre, sd = mean + np.where(pinned, c, (c - slope * s * s) / rest), s / np.sqrt(rest) * one
        mode, width = np.zeros(c.shape), np.ones(c.shape)
        i = np.broadcast_to(~pinned, c.shape)
        mode[i], width[i] = inner_modes(self.family, tau[i], centre[i], sd[i], y[i], FAR)
        places = self.place[some, j] * one, self.width[some, j] * one, centre + sd * mode, sd * width
        edges = panels(*places, sd, REACH, RATIO) - mean

        def log_f(v: Array) -> Array:
            value = self.family.scale_factor(mean + v, np.broadcast_to(tau, v.shape), np.broadcast_to(y, v.shape))
            value = np.where(np.isfinite(value), value, -np.inf) - np.log(s) - HALF_LOG_2PI
            return value - (slope - 0.5 * pi * v) * v - 0.5 * ((v - c) / s) ** 2

        v, weights = gauss_nodes(edges, GAUSS)
        value = log_f(v)
        top = value.max(axis=0)
        mass = (weights * np.exp(value - top)).reshape(len(edges) - 1, GAUSS, *c.shape).sum(axis=1)
        zero = np.zeros((1, *c.shape))
        below = np.concatenate([zero, np.cumsum(mass, axis=0)])
        log_Z, known = np.log(below[-1]) + top, self.of_points[some, j]
        log_Z = np.where(np.isfinite(known), known, log_Z)
        if last:
            return np.asarray(log_Z, dtype=np.float64), zero
        above = np.concatenate([np.cumsum(mass[::-1], axis=0)[::-1], zero])
        z = np.where(below < above, ndtri(below / below[-1]), -ndtri(above / below[-1]))
        bend = np.exp(-0.5 * z * z - HALF_LOG_2PI) / np.exp(log_f(edges) - top) * below[-1]
        Q = np.where(np.isfinite(known), _grid(3), (_inverted(z, edges, bend) - c) / s)
        return np.asarray(log_Z, dtype=np.float64), np.asarray(Q, dtype=np.float64)


def _extended(table: Array) -> Array:
    """Cubics beyond both ends of a table's first axis, where the coefficients of splines feel what lies there."""
    beyond = _beyond()
    ends = (beyond @ table[:4])[::-1], beyond @ table[:-5:-1]
    return np.asarray(np.concatenate([ends[0], table, ends[1]]))


@lru_cache(maxsize=1)
def _beyond() -> Array:
    """Lagrange's polynomials of the four places at an end, at those beyond it, (MARGIN, 4)."""
    k = np.arange(1.0, MARGIN + 1)[:, None]
    others = [np.delete(np.arange(4.0), i) for i in range(4)]
    return np.concatenate([np.prod((-k - o) / (i - o), axis=1, keepdims=True) for i, o in enumerate(others)], axis=1)


def _grid(ndim: int) -> Array:
    """x of tables of quantiles, along the first of so many axes."""
    x = np.arange(-MOST_X, MOST_X + 0.5 * STEP_X, STEP_X, dtype=np.float64)
    return x.reshape(-1, *[1] * (ndim - 1))


def _inverted(z: Array, x: Array, slope: Array) -> Array:
    """x at every z of a grid, (X, ...), from rising z (T, ...), x and dx/dz: cubics of Hermite."""
    grid = _grid(z.ndim)
    known = np.abs(z) < MOST_Z
    first, last = known.argmax(axis=0), len(z) - 1 - known[::-1].argmax(axis=0)
    k = (z < grid[:, None]).sum(axis=1) - 1
    k = np.clip(k, first, np.maximum(last - 1, first))
    low, high = (np.take_along_axis(z, i, axis=0) for i in (k, k + 1))
    h = high - low
    u = np.clip((grid - low) / h, 0.0, 1.0)
    v = 1.0 - u
    ends = [np.take_along_axis(a, i, axis=0) for a in (x, slope) for i in (k, k + 1)]
    return (
        ends[0] * (1.0 + 2.0 * u) * v * v + ends[1] * u * u * (1.0 + 2.0 * v) + h * u * v * (ends[2] * v - ends[3] * u)
    )


@lru_cache(maxsize=16)
def grid_levels(d: int) -> tuple[int, ...]:
    """Levels of sparse grids that are tried."""
    return tuple(level for level in GRIDS if smolyak_size(d, level) <= SPARSE_MOST) if d <= MOST_OF_GRIDS else ()


@lru_cache(maxsize=8)
def matched_points(D: int, log2: int) -> tuple[Array, Array]:
    """Half of 2^log2 points (S, D), the others opposite, and weights (2, S), exact to degree three or five.

    The second weights are for the first half of these points.
    """
    half = ndtri(sobol(D).random_base2(log2 - 1).clip(1e-12, 1 - 1e-12))
    half = np.linalg.solve(np.linalg.cholesky(half.T @ half / len(half)), half.T).T
    weights = np.full((2, len(half)), 0.5 / len(half))
    weights[1] *= 2.0
    weights[1, len(half) // 2 :] = 0.0
    columns = _even(half) if D <= MOST_MATCHED else np.concatenate([np.ones((len(half), 1)), half**2 - 1.0], axis=1)
    for w, used in zip(weights, (len(half), len(half) // 2)):
        some = columns[:used]
        off = -2.0 * w[:used] @ some
        off[0] += 1.0
        w[:used] += 0.5 * some @ np.linalg.solve(some.T @ some, off)
    return half, weights


def _even(x: Array) -> Array:
    """Products of Hermite's polynomials of even total degree up to four, (S, P)."""
    D = x.shape[1]
    H = [np.ones_like(x), x, x**2 - 1.0, x**3 - 3.0 * x, x**4 - 6.0 * x**2 + 3.0]
    out = [np.ones(len(x))]
    for degree in (2, 4):
        for chosen in combinations_with_replacement(range(D), degree):
            term = np.ones(len(x))
            for axis in set(chosen):
                term = term * H[chosen.count(axis)][:, axis]
            out.append(term)
    return np.stack(out, axis=1)
