"""Log of the expected likelihood of each row, log E[p(y | eta)] for eta ~ N(mean, cov): predictive densities.

With eta = mean + R e, R the Cholesky factor of cov, the integrand is p(y | mean + R e) N(e | 0, I). Likelihoods may be
far narrower than the Gaussian, or level off within it, so the nodes are centred at the mode of the integrand and scaled
by its curvature H there, and every row gets as many as it needs:

* One latent: the trapezoidal rule in t, e = mode + sinh(t)/sqrt(H). Nodes are dense at the peak and still reach the
  tails of the Gaussian, where likelihoods that level off keep their mass; the spacing in t alone decides the error.
* Two or three: the ladder of product rules of `ggpm.families.special.adaptive`, climbed until two neighbours agree.
  Rows that do not settle are integrated with the stretched rule over sections across their widest direction: each
  section of three latents is an integral over two and climbs the ladder itself, each of two is one over a line.
* More: integrals of one or two dimensions where latents meet in a sum (`ggpm.families.special.one_scale`); else sparse
  grids, each with the nodes of the one before. Rows that do not settle have latents one by one where these meet in a
  sum (`ggpm.families.special.one_by_one`); others get quasi-random points about the mode and of the Gaussian, whose
  error grows with the latents' width.

R and the root of H are triangular factors: unique, so that no result depends on the choice of a basis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import batches
from ggpm.families.base import Density, Family
from ggpm.families.special.adaptive import (
    PRODUCT_MOST,
    SPARSE_MOST,
    Levels,
    Rows,
    cholesky_root,
    first_levels,
    groups,
    latent_root,
    nested_grid,
    place,
    raised,
    smolyak_size,
)
from ggpm.families.special.lines import line_integrals, log_sum, loosened
from ggpm.families.special.one_by_one import log_expected_one_by_one
from ggpm.families.special.one_scale import log_expected, log_expected_wide
from ggpm.families.special.quadrature import normal_points
from ggpm.families.special.stable import HALF_LOG_2PI

Array = NDArray[np.float64]

# Error of a log density at which a row is settled. A step of the ladder reduces the error ten times or more (measured
# on all families with two and three latents), so that the next one is off by this share of the change.
TOLERANCE, NEXT = 5e-7, 0.1
WIDE, NEXT_OF_WIDE, CHANCE = 0.7, 0.5, 0.02
# Second rule of the widest rows. There are two more within the nodes of a row, which a wide one needs to settle: the
# latents of concentrations near 1000 have standard deviations of 200, and integrands nearly Gaussian.
LAST_FIRST = 6
# Nodes of a row's product rules. With two latents those of Gauss and Hermite: the trapezoidal ones after them end at a
# radius beyond which tails that fall like exp(-x), on one side, still hold 1e-6 to 1e-5 (variances of matrices).
MOST_NODES = {2: 400, 3: 2**13}
# Sections across the widest direction whose Laplace approximation is so much (logarithm) below the largest one's are
# left at it.
NOTHING = 18.0
# Spacing in t of the stretched rule, by the number of latents. Its error falls exponentially, to 1e-10 and 1e-8 of
# Gaussian integrands here: a rule that differs by so much (second numbers) from the one of twice the spacing is itself
# off by about the square of that, or somewhat more: 1e-7 for classes with latents a hundred wide, below 1e-6 for
# compositions of three parts with latents five to a hundred wide.
SPACING = {1: (0.2, 2e-5), 2: (0.2, 1e-6), 3: (0.2, 1e-4)}
STEEP = 3.0  # width of an integrand, in units of the latent, from which on likelihoods may be steps in it
REACH = 9.0  # standard deviations of the Gaussian, beyond the mode and the mean, that the stretched rule covers
# Newton steps towards the mode. It only centres the nodes: a row that stops early costs nodes, not digits.
# Sections of an integral begin at its mode, and are many.
STEPS, OF_SECTIONS, ARRIVED = 60, 15, 1e-3
SHORTER = 0.25  # factor by which a step that leads down is shortened
SHORTEST = SHORTER**6  # steps that lead down even so are made of rounding
# Where exp(eta) is far too large, Newton's steps are of one unit of eta each: steps that promise so many nats are
# doubled as long as they lead up.
FAR, LONGEST = 100.0, 64.0
RESTART = 8  # steps after which rows that have not arrived are tried from their own best latent, too
# With more than three latents: errors above which a sparse grid is given up, where latents meet in a sum, so that only
# odd rows have grids, where they are few, and elsewhere. Logarithms of the numbers of points that take its place, how
# much wider than Laplace's Gaussian they are, and their error as a share of the change from half as many: densities of
# six to ten classes with full covariances are off by 1e-5 to 3e-5 (standard deviations of 0.7 to 1), 5e-4 (3) and 1e-2
# (10).
GRID_ERROR, FEW, OF_FEW, OF_GRIDS = 1e-6, 5, 3e-5, 1.5e-3
FIRST_POINTS, MOST_POINTS, WIDER, HALF = 12, 17, 1.15, 0.5
ROUGH = 1e-5  # tolerance above which latents are not taken one by one
FIRST_GRID, LAST_GRID, MOST_OF_GRIDS = 3, 6, 12  # levels of sparse grids, and latents that have any
# Levels of directions after sparse grids of four latents, 7, 9, 13 and 19 nodes of each, and the share of a change that
# is left then: a fifth in matrices of order 4, a thirtieth in counts of five categories.
PRODUCTS, NEXT_OF_FOUR = (4, 5, 6, 7), 0.25
SECTION_DOUBLES = 8  # of a batch for each section: inner integrals have batches of their own
CHUNK = 4096  # rows that are worked on at a time: what is kept of each is D x D


def log_expected_prob(family: Family, mean: Array, cov: Array, y: Array, tolerance: float = TOLERANCE) -> Array:
    """log E[p(y | eta)] for eta ~ N(mean, cov), (n,): mean (n, D), cov (n, D, D), y encoded.

    ``tolerance`` is the error at which a row is settled, in nats.

    >>> from ggpm.families import Poisson
    >>> one = np.ones((1, 1))
    >>> log_expected_prob(Poisson(), 0 * one, 25.0 * one[None], np.array([1e7])).round(4)
    array([-23.8423])
    """
    closed = family.predictive_log_prob(mean, cov, y)
    if closed is None:
        return _integrated(family, mean, cov, y, tolerance)
    out = np.asarray(closed)
    left = np.flatnonzero(np.isnan(out))
    if left.size:
        out[left] = _integrated(family, mean[left], cov[left], y[left], tolerance)
    return out


def _integrated(family: Family, mean: Array, cov: Array, y: Array, tolerance: float) -> Array:
    density: Density = family
    beside = None
    if (fewer := family.fewer_latents(mean, cov, y)) is not None:
        density, mean, cov, y = fewer
        beside = fewer[0].beside(y)
    out = np.empty(len(mean))
    for start in range(0, len(mean), CHUNK):
        rows = slice(start, start + CHUNK)
        scaled = family.has("scale_terms") and mean.shape[1] - 2 * family.shift_invariant >= PRODUCT_MOST
        centre, R = latent_root(mean[rows], cov[rows], density.shift_invariant and not scaled)
        peaks = _peaks(Integrand(density, centre, R, y[rows], np.zeros(len(centre))))
        d = R.shape[2]
        if scaled:
            out[rows] = _by_scale(family, peaks, cov[rows], tolerance)
        elif d == 1:
            out[rows] = _nested(peaks, 1, tolerance)
        else:
            out[rows] = (_by_ladder if d <= PRODUCT_MOST else _by_grids)(peaks, tolerance)
    return out if beside is None else np.logaddexp(out, beside)


@dataclass(frozen=True)
class Integrand:
    """log [p(y | mean + R e) exp(-|e|^2/2)] + constant for some rows, as a function of e, (n, d), R (n, D, d)."""

    family: Density
    mean: Array
    R: Array
    y: Array
    constant: Array

    def of(self, rows: Rows | slice) -> Integrand:
        """The same for some of the rows."""
        return replace(self, mean=self.mean[rows], R=self.R[rows], y=self.y[rows], constant=self.constant[rows])

    def eta(self, e: Array) -> Array:
        """The latents at e, (..., n, D)."""
        if e.shape[-1] == 1:
            return self.mean + self.R[..., 0] * e
        return self.mean + np.einsum("ijk,...ik->...ij", self.R, e)

    def __call__(self, e: Array) -> Array:
        """Values at e, (..., n)."""
        return self.at(self.eta(e), np.square(e) @ np.ones(e.shape[-1]))

    def at(self, eta: Array, square: Array) -> Array:
        """Values at the e with these latents (..., n, D) and this |e|^2, (..., n)."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            value = self.family.log_prob(eta, self.y) - 0.5 * square
        return np.where(np.isfinite(value), value, -np.inf) + self.constant


@dataclass(frozen=True)
class Peaks:
    """Integrands with their modes e (n, D), the values and the Cholesky factors of the curvatures there."""

    integrand: Integrand
    e: Array
    value: Array
    L: Array

    def of(self, rows: Rows | slice) -> Peaks:
        return Peaks(self.integrand.of(rows), self.e[rows], self.value[rows], self.L[rows])

    def log_integral(self, levels: Levels) -> Array:
        """log of the integral of f(e) (2 pi)^(-D/2) by the rules of these levels, e = mode + L^-T x."""
        out = np.empty(len(self.e))
        for rows, x, weights in groups(levels, self.e.shape[1]):
            values = self._at(x, rows) + 0.5 * np.sum(x**2, axis=1)[:, None]
            out[rows] = log_sum(values, weights)
        return out - self.log_det

    def grid_integrals(self, level: int) -> tuple[Array, Array]:
        """The same by a sparse grid and by the one before it."""
        d, out = self.e.shape[1], np.empty((2, len(self.e)))
        if d > MOST_OF_GRIDS:  # points are all that there is to compare with
            levels = np.zeros((len(self.e), 1), dtype=np.intp)
            return self.log_integral(levels), self.log_integral(levels + 1)
        x, fine, coarse = nested_grid(d, level)
        square = 0.5 * np.sum(x**2, axis=1)[:, None]
        for rows in batches(len(self.e), d * len(x)):
            values = self._at(x, rows)
            out[:, rows] = log_sum(values + square, coarse), log_sum(values + square, fine)
        return out[0] - self.log_det, out[1] - self.log_det

    def point_integrals(self, tolerance: float) -> tuple[Array, Array]:
        """The same by quasi-random points, as many as each row needs up to `MOST_POINTS`, and estimates of the error.

        Points are those of a mixture of Laplace's Gaussian about the mode, somewhat wider, and of the Gaussian of the
        latent, which find what lies far from the mode. Each has the weight of the mixture (Veach and Guibas 1995), so
        that neither misses what the other sees.
        """
        values, axes = _axes(self.L)
        largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1, keepdims=True), axis=1)
        axes = axes * np.sign(largest)
        n, d = self.e.shape
        out, error = np.empty(n), np.empty(n)
        points = normal_points(d, MOST_POINTS)
        for row in range(n):
            f, width = self.integrand.of(slice(row, row + 1)), WIDER / np.sqrt(values[row])
            total, end = -np.inf, 0
            for log2 in range(FIRST_POINTS, MOST_POINTS + 1):
                before = total - np.log(max(end, 1))
                start, end = end, 2**log2
                for part in batches(end - start, 16 * d):
                    x = points[start:end][part]
                    e = np.concatenate([self.e[row] + (x * width) @ axes[row].T, x])
                    along = (e - self.e[row]) @ axes[row] / width
                    near, far = (-0.5 * np.square(a) @ np.ones(d) for a in (along, e))
                    ratio = f(e[:, None])[:, 0] - np.logaddexp(near - np.log(width).sum(), far)
                    total = np.logaddexp(total, log_sum(ratio[:, None], np.ones(len(e)))[0])
                out[row] = total - np.log(end)
                error[row] = HALF * np.abs(out[row] - before)
                if log2 > FIRST_POINTS and error[row] <= tolerance:
                    break
        return out, error

    def _at(self, x: Array, rows: Rows | slice) -> Array:
        """log f at mode + root x, (S, rows)."""
        e, root, f = self.e[rows], self._root[rows], self.integrand.of(rows)
        square = np.sum(e**2, axis=1) + x @ (2.0 * np.einsum("nij,ni->jn", root, e)) + _quadratic(root, x)
        return f.at(place(f.eta(e), f.R @ root, x), square)

    @cached_property
    def _root(self) -> Array:
        """L^-T; with more than three latents the lower root of L^-T L^-1, by which latents come one by one."""
        root = np.asarray(np.linalg.inv(self.L).swapaxes(1, 2), dtype=np.float64)
        return root if root.shape[1] <= PRODUCT_MOST else cholesky_root(root @ root.swapaxes(1, 2))

    @property
    def log_det(self) -> Array:
        return np.log(np.einsum("ijj->ij", self.L)).sum(axis=1)

    @property
    def spread(self) -> Array:
        """Standard deviation of the latents along each direction of x, (n, D)."""
        return np.sqrt(np.sum((self.integrand.R @ self._root) ** 2, axis=1))


def _axes(L: Array) -> tuple[Array, Array]:
    """Eigenvalues of the curvatures, rising, and axes: the first direction is the widest."""
    values, axes = np.linalg.eigh(L @ L.swapaxes(1, 2))
    return np.maximum(values, 1.0), axes  # that of the Gaussian, which rounding of others may hide


def _quadratic(root: Array, x: Array) -> Array:
    """|root x|^2 for nodes x (S, d) and roots (n, d, d), (S, n): one product of matrices."""
    j, k = np.tril_indices(x.shape[1])
    M = root.swapaxes(1, 2) @ root
    return (x[:, j] * x[:, k] * np.where(j == k, 1.0, 2.0)) @ M[:, j, k].T


# ---- the mode ----------------------------------------------------------------------------------------------------


def _peaks(f: Integrand, start: Array | None = None) -> Peaks:
    n, _, d = f.R.shape
    e, value, L = np.zeros((n, d)), f(np.zeros((n, d))), np.tile(np.eye(d), (n, 1, 1))
    if start is not None:
        _begin_at(f, e, value, np.arange(n), start)
    elif d == 1:
        _begin_at_own(f, e, value, np.arange(n))
    left = _climb(f, e, value, L, np.arange(n), RESTART if start is None else OF_SECTIONS)
    if left.size and start is None:
        _begin_at_own(f, e, value, left)
        _climb(f, e, value, L, left, STEPS)
    return Peaks(f, e, value, L)


def _begin_at_own(f: Integrand, e: Array, value: Array, rows: Rows) -> None:
    """Start from the latent that a row's own y asks for, where the integrand is higher there."""
    own = f.of(rows)
    target = np.nan_to_num(f.family.expansion(own.y)) - own.mean
    if own.R.shape[2] == 1:
        R = own.R[..., 0]
        square = np.sum(R**2, axis=1)
        start = (np.sum(R * target, axis=1) / np.where(square > 0, square, 1.0))[:, None]
    else:
        start = np.einsum("ijk,ik->ij", np.linalg.pinv(own.R), target)
    _begin_at(f, e, value, rows, start)


def _begin_at(f: Integrand, e: Array, value: Array, rows: Rows, start: Array) -> None:
    """Move to other starts where the integrand is higher there."""
    there = f.of(rows)(start)
    better = there > value[rows]
    e[rows[better]], value[rows[better]] = start[better], there[better]


def _climb(f: Integrand, e: Array, value: Array, L: Array, rows: Rows, steps: int) -> Rows:
    """Damped Newton steps in place; the rows that have not arrived are returned."""
    length = np.ones(len(e))
    for _ in range(steps + 1):
        part = f.of(rows)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            gradient, H = _derivatives(part, e[rows])
        root = cholesky_root(H, least=1.0)
        L[rows] = root
        move = _solve(root, gradient)
        promise = np.einsum("ij,ij->i", move, gradient)
        left = (promise > ARRIVED) & (length[rows] > SHORTEST)
        rows, move, most = rows[left], move[left], np.where(promise[left] > FAR, LONGEST, 1.0)
        if rows.size == 0:
            break
        length[rows] = np.minimum(length[rows], most)
        trial = e[rows] + length[rows, None] * move
        new = f.of(rows)(trial)
        better = new > value[rows]
        e[rows[better]], value[rows[better]] = trial[better], new[better]
        length[rows] *= np.where(better, 2.0, SHORTER)
    return rows


def _derivatives(f: Integrand, e: Array) -> tuple[Array, Array]:
    """Gradient and negative Hessian (Fisher's where the observed one is indefinite); zero and one where unknown."""
    eta, d = f.eta(e), e.shape[1]
    u, U = f.family.u_and_U(eta, f.y)
    curvature, bent = U.dense(), ~U.semidefinite()
    if bent.any():  # the expected one may cost more than all the rest
        curvature = np.array(curvature)
        curvature[bent] = f.family.U(eta[bent], f.y[bent], expected=True).dense()
    gradient = np.einsum("ikj,ik->ij", f.R, u) - e
    H = f.R.swapaxes(1, 2) @ (curvature @ f.R)
    known = np.isfinite(gradient).all(axis=1) & np.isfinite(H).all(axis=(1, 2))
    gradient, H = np.where(known[:, None], gradient, 0.0), np.where(known[:, None, None], H, 0.0)
    H[:, range(d), range(d)] += 1.0
    return gradient, H


def _solve(L: Array, b: Array) -> Array:
    """``(L L^T)^-1 b`` row by row."""
    if L.shape[-1] == 1:
        return b / L[:, 0] ** 2
    half = np.linalg.solve(L, b[..., None])
    return np.linalg.solve(L.swapaxes(1, 2), half)[..., 0]


# ---- rules -------------------------------------------------------------------------------------------------------


def _line(
    log_value: Callable[[Array, Rows], Array], centre: Array, width: Array, d: int, doubles: int, tolerance: float,
    twice: NDArray[np.bool_] | None = None,
) -> Array:  # fmt: skip
    """log of the integral of exp(log_value) / sqrt(2 pi) over one of d directions, for every row."""
    spacing, reach = loosened(*SPACING[d], tolerance / TOLERANCE), REACH + np.abs(centre)
    return line_integrals(log_value, centre, width, reach, *spacing, doubles, twice=twice) - HALF_LOG_2PI


def _by_ladder(peaks: Peaks, tolerance: float) -> Array:
    D, spread = peaks.e.shape[1], peaks.spread
    levels = np.clip(first_levels(spread), 2, LAST_FIRST)
    out, rows = peaks.log_integral(levels - 1), np.arange(len(levels))
    # wide integrands may come close by chance before they converge: there the change before counts, too
    wide = spread.max(axis=1) > WIDE
    before, share = np.where(wide, np.inf, 0.0), np.where(wide, NEXT_OF_WIDE, NEXT)
    unsettled = [rows[:0]]
    while rows.size:
        finer = peaks.of(rows).log_integral(levels[rows])
        change = np.abs(finer - out[rows])
        with np.errstate(invalid="ignore", divide="ignore"):  # rules that gain less than expected gain less again
            slow = np.where(np.isfinite(before[rows]) & (before[rows] > 0), change / before[rows], 0.0)
        error = np.maximum(share[rows] * np.maximum(change, CHANCE * before[rows]), change * np.minimum(slow, 1.0))
        out[rows], before[rows] = finer, change
        rows = rows[~(error <= tolerance)]
        levels[rows], moved = raised(levels[rows], np.ones((rows.size, D)), 0.5, D, MOST_NODES[D])
        unsettled.append(rows[~moved])
        rows = rows[moved]
    left = np.concatenate(unsettled)
    if left.size:
        out[left] = _nested(peaks.of(left), D, tolerance)
    return out


def _by_scale(family: Family, peaks: Peaks, cov: Array, tolerance: float) -> Array:
    """By the family's `scale_terms`: rules about the mode, and lines of any reach for wide latents."""
    f, eta = peaks.integrand, peaks.integrand.eta(peaks.e)
    out = log_expected(family, eta, f.mean, cov, f.y, tolerance)
    left = np.flatnonzero(np.isnan(out))
    if left.size:
        out[left] = log_expected_wide(family, eta[left], f.mean[left], cov[left], f.y[left], tolerance / TOLERANCE)
    left = np.flatnonzero(np.isnan(out))
    if left.size:
        g = f.of(left)
        centre, R = latent_root(g.mean, cov[left], family.shift_invariant)
        some = _peaks(replace(g, mean=centre, R=R)) if family.shift_invariant else peaks.of(left)
        if R.shape[2] <= PRODUCT_MOST:
            out[left] = _by_ladder(some, tolerance)
        else:

            def one_by_one(rows: Rows) -> tuple[Array, Array]:
                i = left[rows] if tolerance <= ROUGH else left[:0]
                if not i.size:  # a few points are cheaper, and enough
                    return np.full(len(rows), np.nan), np.full(len(rows), np.nan)
                return log_expected_one_by_one(family, eta[i], f.mean[i], cov[i], f.y[i], tolerance)

            out[left] = _by_grids(some, tolerance, one_by_one)
    return out


@lru_cache(maxsize=32)
def _grid_levels(d: int) -> tuple[int, ...]:
    """Levels of Smolyak's rule, from the second to the last that has no more than `SPARSE_MOST` nodes."""
    levels = [FIRST_GRID]
    while d <= MOST_OF_GRIDS and levels[-1] < LAST_GRID and smolyak_size(d, levels[-1] + 1) <= SPARSE_MOST:
        levels.append(levels[-1] + 1)
    return tuple(levels)


def _by_grids(peaks: Peaks, tolerance: float, better: Callable[[Rows], tuple[Array, Array]] | None = None) -> Array:
    """Sparse grids; where they do not settle, what is ``better``, values and errors of some rows, or else points."""
    out, rows, error, before = np.empty(len(peaks.e)), np.arange(len(peaks.e)), np.empty(0), np.zeros(len(peaks.e))
    four = peaks.e.shape[1] == PRODUCT_MOST + 1  # the most latents for which products are not too many
    for level in _grid_levels(peaks.e.shape[1]):
        coarse, out[rows] = peaks.of(rows).grid_integrals(level)
        change = np.abs(out[rows] - coarse)
        # grids may come close by chance; where products follow, what they leave is all that they changed
        error = (1.0 if four else NEXT) * np.maximum(change, NEXT * before[rows])
        before[rows] = change
        rows, error = rows[~(error <= tolerance)], error[~(error <= tolerance)]
        if rows.size == 0:
            return out
    for level in (PRODUCTS[:-1] if better else PRODUCTS) if four else ():
        some = peaks.of(rows)
        finer = some.log_integral(np.full(some.e.shape, level))
        error, out[rows] = NEXT_OF_FOUR * np.abs(finer - out[rows]), finer
        if level == PRODUCTS[0]:  # a grid may be as far off as the first product, on the same side
            error[:] = np.inf
        rows, error = rows[~(error <= tolerance)], error[~(error <= tolerance)]
        if rows.size == 0:
            return out
    # sparse grids converge too slowly for more
    enough = GRID_ERROR if better else OF_FEW if peaks.e.shape[1] <= FEW else OF_GRIDS
    for ask in (better, lambda i: peaks.of(i).point_integrals(tolerance)):
        rows, error = rows[~(error <= enough)], error[~(error <= enough)]
        if ask is None or not rows.size:
            continue
        value, own = ask(rows)
        closer = np.isfinite(value) & ~(error <= NEXT * own)  # full covariances leave grids as far off as they changed
        out[rows[closer]] = value[closer]
        error = np.where(closer, 0.0, error)
    return out


def _nested(peaks: Peaks, latents: int, tolerance: float) -> Array:
    """Integrals direction by direction, the widest outermost, each inner one with nodes of its own.

    Likelihoods may have ridges, bent and of varying width: in every section across one, the inner integral is
    centred and scaled anew.
    """
    d = peaks.e.shape[1]
    if d == 1:
        width = 1.0 / peaks.L[:, 0, 0]
        value, steep = peaks.integrand, peaks.spread[:, 0] > STEEP
        return _line(lambda e, rows: value.of(rows)(e[..., None]), peaks.e[:, 0], width, latents, 8, tolerance, steep)
    values, Q = _axes(peaks.L)
    f = replace(peaks.integrand, R=peaks.integrand.R @ Q)
    e = np.einsum("ikj,ik->ij", Q, peaks.e)

    def sections(a: Array, rows: Rows) -> Array:
        (S, k), g = a.shape, f.of(rows)
        flat, tile = a.ravel(), np.tile(np.arange(k), S)
        tiled = g.of(tile)
        inner = replace(
            tiled, mean=tiled.mean + tiled.R[..., 0] * flat[:, None], R=tiled.R[..., 1:],
            constant=tiled.constant - 0.5 * flat**2,
        )  # fmt: skip
        peaks = _peaks(inner, e[rows[tile], 1:])
        out = peaks.value - peaks.log_det  # Laplace's; sections that hold nothing need no more
        top = out.reshape(S, k).max(axis=0)
        matters = np.flatnonzero(out > (top - NOTHING)[tile])
        some = peaks.of(matters)
        out[matters] = _nested(some, latents, tolerance) if d == 2 else _by_ladder(some, tolerance)
        return out.reshape(S, k)

    return _line(sections, e[:, 0], 1.0 / np.sqrt(values[:, 0]), latents, SECTION_DOUBLES, tolerance)
