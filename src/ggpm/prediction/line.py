"""One latent: distribution functions and quantiles of many rows.

Given y, the family's cdf is a step in the latent: one for small eta, zero for large ones, about the place where y is
what one expects, and as wide as the likelihood. The trapezoidal rule in t, eta = centre + width sinh(t), sees the step
and the Gaussian of the row, whichever is the narrower, and some twenty nodes serve.

Quantiles of many rows start from a surface that they share, a Chebyshev series in mean and standard deviation of the
latent (and in the number of trials), and end where the row's own distribution function says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from ggpm.data.rows import batches
from ggpm.families.base import Family
from ggpm.prediction.expectations import moment_at_mean, over_latent
from ggpm.prediction.roots import SETTLED, Coordinate, coordinate, integer_roots, roots

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Fineness:
    """How far nodes reach and how close they lie; measured for latents up to 1e6 times wider than the step."""

    reach: float
    """In standard deviations of the latent."""
    wide: float
    """Largest spacing in t."""
    narrow: float
    """Largest spacing in standard deviations of the latent."""


# Distribution functions to 1e-10 where latents are narrow and 1e-7 where they are wide; 1e-5 at worst (inverse Gaussian
# and softplus links, whose steps have another width on either side, under latents of variance 25 and more).
FINE = Fineness(6.4, 0.3, 0.9)
# To 1e-6, and 3e-5 at worst: for quantiles of continuous outputs.
COARSE = Fineness(5.2, 0.34, 1.1)
# Share of the likelihood's width that is the unit of the nodes: steps are steeper on one side than on the other.
STEEPER = 0.8
# A step whose value at the family's expansion point lies between these is centred there.
MIDDLE = (0.05, 0.95)
BEND = 4.0  # standard deviation from which on nodes about a wide step may miss the bend of a link
# Levels of a step by which it is placed, how well, beside what they are apart, and most halvings until then.
LEVELS, PASSED, HALVINGS = (0.2, 0.5, 0.8), 0.02, 40
KNOWN = 1.0  # standard deviation of a latent, in units of the nodes, up to which it sees no step
# Degrees of the surface, plus one, in the mean (and as many again for every so many units of its range), in the
# standard deviation and in the logarithm of the trials.
SURFACE_MEAN, SURFACE_SD, SURFACE_TRIALS = 12, 7, 6
SURFACE_MOST = 48
THRESHOLD_POINTS = 129  # of a density whose highest part is looked for


def step_nodes(
    family: Family,
    mean: Array,
    sd: Array,
    y: Array,
    fineness: Fineness = FINE,
    of: Callable[[Rows], Family] | None = None,
) -> Iterator[tuple[Rows, Array, Array]]:
    """Rows (k,), nodes (S, k, 1) and weights (S, k) for expectations, over N(mean, sd²), of what moves with y.

    ``of`` gives the family of some rows where it has a phi for every row.

    >>> from ggpm.families import Poisson
    >>> mean, sd, y = np.array([0.3]), np.array([2.0]), np.array([4.0])
    >>> [round(float(w[:, 0] @ eta[:, 0, 0]), 7) for _, eta, w in step_nodes(Poisson(), mean, sd, y)]
    [0.3]
    """
    centre, width = _step(family, mean, sd, y, of or (lambda rows: family))
    away = np.hypot(width, mean - centre)
    narrow = np.maximum(sd, 1e-9 * away)  # places nodes also where the latent is known
    middle = np.arcsinh((mean - centre) / width)
    low, high = (np.arcsinh((mean + sign * fineness.reach * narrow - centre) / width) - middle for sign in (-1.0, 1.0))
    spacing = 1.0 / np.hypot(away / (fineness.narrow * narrow), 1.0 / fineness.wide)
    count = 2 * np.ceil((high - low) / (2 * spacing)).astype(int) + 1
    for size in np.unique(count):
        of_size = np.flatnonzero(count == size)
        share = np.linspace(0.0, 1.0, size)[:, None]
        for part in batches(len(of_size), 8 * size):
            rows = of_size[part]
            t = low[rows] + share * (high - low)[rows]
            # sinh(middle + t) - sinh(middle) without its cancellation
            e = 2.0 * np.sinh(0.5 * t) * np.cosh(middle[rows] + 0.5 * t) * (width / narrow)[rows]
            weights = np.exp(-0.5 * e * e) * np.cosh(middle[rows] + t)
            yield rows, (mean[rows] + sd[rows] * e)[..., None], weights / weights.sum(axis=0)


def _step(family: Family, mean: Array, sd: Array, y: Array, of: Callable[[Rows], Family]) -> tuple[Array, Array]:
    """Centre and width of the step in the latent: the point of expansion and the likelihood's width there.

    Where the cdf at that point is next to 0 or 1 (a mean is not a median), both are searched for; but latents that are
    known better than the likelihood is wide, or far from it, see no step, and nodes about their mean serve.
    """
    with np.errstate(all="ignore"):
        eta = family.expansion(y)
        told = family.u_and_U(eta, y)[1].dense()[..., 0, 0]
        # links bend on the scale of one, also where the likelihood is wider
        width = STEEPER / np.sqrt(np.maximum(told, 1.0))
        value = family.cdf(eta, y)
    centre = eta[..., 0]
    # likelihoods of positive numbers that are wider than the bend of their link (small shapes) pass a half far from the
    # expansion point, but bend near it, which latents that are wide do not see otherwise
    bent = (told <= 1.0) & (sd > BEND) & np.isinf(family.support.high)
    middle = ((value > MIDDLE[0]) & (value < MIDDLE[1])) | bent
    good = np.isfinite(centre) & np.isfinite(width) & (width > 0) & middle
    rows = np.flatnonzero(~good & (sd > 0))
    centre, width = np.where(good, centre, mean), np.where(good, width, np.where(sd > 0, sd, 1.0))
    if rows.size:
        with np.errstate(all="ignore"):
            told = of(rows).U(mean[rows, None], y[rows], expected=True).dense()[..., 0, 0]
        own = STEEPER / np.sqrt(np.maximum(told, 1.0))
        known = np.isfinite(own) & (sd[rows] < KNOWN * own)
        width[rows[known]] = own[known]
        rows = rows[~known]
    if rows.size:
        ends = mean[rows] + FINE.reach * sd[rows] * np.array([[-1.0], [1.0]])
        with np.errstate(all="ignore"):
            at_ends = of(rows).cdf(ends[..., None], y[rows])
        seen = ~((at_ends < LEVELS[0]).all(axis=0) | (at_ends > LEVELS[-1]).all(axis=0))
        rows, ends, falls = rows[seen], ends[:, seen], (at_ends[0] > at_ends[1])[seen]
    if rows.size:
        at = _crossings(of(rows), ends, falls, y[rows])
        centre[rows] = at[1]
        width[rows] = np.maximum(0.5 * np.abs(at[2] - at[0]), 1e-9 * sd[rows])
    return centre, width


def _crossings(family: Family, ends: Array, falls: NDArray[np.bool_], y: Array) -> Array:
    """Latents between two ends at which the cdf passes `LEVELS`, (3, m), by halving; one end where it does not."""
    low, high = np.repeat(ends[:, None], len(LEVELS), axis=1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        with np.errstate(all="ignore"):
            further = (family.cdf(middle[..., None], y) > np.reshape(LEVELS, (-1, 1))) == falls
        low, high = np.where(further, middle, low), np.where(further, high, middle)
        if np.all(high - low <= PASSED * np.abs(low[-1] - low[0])):
            break
    return 0.5 * (low + high)


def expect(
    family: Family,
    mean: Array,
    sd: Array,
    y: Array,
    *functions: Callable[[Array, Array], Array],
    fineness: Fineness = FINE,
) -> list[Array]:
    """E[f(eta, y)] of every row, (m,), for functions that move with y as the cdf does."""
    out = [np.empty(len(mean)) for _ in functions]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # a mean beyond the floats is beyond every y
        for rows, eta, weights in step_nodes(family, mean, sd, y, fineness):
            for values, function in zip(out, functions, strict=True):
                values[rows] = np.einsum("sk,sk->k", weights, function(eta, y[rows]))
    return out


# ---- quantiles ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Line:
    """The predictive distribution of one number per row, given one latent per row."""

    family: Family
    mean: Array
    sd: Array
    trials: Array | None = None
    """Numbers of trials, (m,), for counts out of them; y is the number of successes then."""

    settled: ClassVar[float] = SETTLED
    """Residual after which a step by the slope of `_start` is the last one."""

    def __len__(self) -> int:
        return len(self.mean)

    @cached_property
    def coordinate(self) -> Coordinate:
        """Where the support is the real line."""
        return coordinate(self.family.support)

    def cdf(self, rows: Any, y: Array) -> Array:
        """P(Y <= y) of some rows."""
        return self._expect(rows, y, self.family.cdf)[0]

    def cdf_and_slope(self, rows: Any, y: Array) -> tuple[Array, Array]:
        """P(Y <= y) of some rows, and its derivative in the coordinate of y."""
        F, p = self._expect(rows, y, self.family.cdf, self._density)
        return F, p * self.coordinate.slope(y)

    def steps(self, rows: Any, k: Array) -> tuple[Array, Array]:
        """P(Y < k) and P(Y <= k) of counts of some rows."""
        upto, p = self._expect(rows, np.maximum(k, 0.0), self.family.cdf, self._density)
        return np.where(k > 0, np.maximum(upto - p, 0.0), 0.0), np.where(k >= 0, upto, 0.0)

    def _density(self, eta: Array, y: Array) -> Array:
        return np.exp(self.family.log_prob(eta, y))

    def _expect(self, rows: Any, y: Array, *functions: Callable[[Array, Array], Array]) -> list[Array]:
        encoded = y if self.trials is None else np.stack([y, self.trials[rows] - y], axis=-1)
        fineness = FINE if self.family.support.integer else COARSE
        return expect(self.family, self.mean[rows], self.sd[rows], encoded, *functions, fineness=fineness)

    def quantile(self, q: float) -> Array:
        """The q-quantile of every row."""
        start, slope = self._start(q)
        if not self.family.support.integer:
            z = roots(self.cdf_and_slope, q, start, self.coordinate, slope, self.cdf, self.settled)
            return self.coordinate.back(z)
        most = np.full(len(self), np.inf) if self.trials is None else self.trials
        return integer_roots(self.steps, q, np.clip(np.ceil(start), 0.0, most), most)

    def _start(self, q: float) -> tuple[Array, Array | None]:
        """Values near the quantiles: coordinates with the slope there, or counts.

        From a surface that the rows share if they are many, else from the mean of the latent, where y is in the middle.
        """
        surface = self.surface()
        if surface is None:
            with np.errstate(over="ignore"):
                middle = np.minimum(self.family.moment(self.mean[:, None], self.trials), np.finfo(float).max)
            return (middle, None) if self.family.support.integer else (self.coordinate.clipped(middle), None)
        at, interpolated = surface
        if not self.family.support.integer:
            z = roots(at.cdf_and_slope, q, at._start(q)[0], self.coordinate)
            slope = at.cdf_and_slope(slice(None), self.coordinate.back(z))[1]
            with np.errstate(divide="ignore"):
                return interpolated(z), np.exp(interpolated(np.log(slope)))
        k = at.quantile(q)
        before, upto = at.steps(slice(None), k)
        # where the straight line between the steps passes q, from -1 on
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = k - np.clip(np.nan_to_num((upto - q) / (upto - before)), 0.0, 1.0)
        return np.exp(interpolated(np.log(crossing + 1.5))) - 1.5, None

    def log_threshold(self, level: float) -> Array:
        """Log density of continuous y on the border of the smallest region of the level, to 1e-3."""
        surface = self.surface()
        if surface is not None:
            at, interpolated = surface
            return interpolated(at.log_threshold(level))
        low, high = (self.coordinate.there(self.quantile(q)) for q in (1e-5, 1.0 - 1e-5))
        z = low + (high - low) * np.linspace(0.0, 1.0, THRESHOLD_POINTS)[:, None]
        y = self.coordinate.back(z)
        density = np.stack([self.cdf_and_slope(slice(None), v)[1] for v in y])
        with np.errstate(divide="ignore"):
            log_p = np.log(density) - np.log(self.coordinate.slope(y))
        order = np.argsort(-log_p, axis=0)
        mass = np.cumsum(np.take_along_axis(density, order, axis=0), axis=0)
        falling = np.take_along_axis(log_p, order, axis=0)
        return np.array([np.interp(level * m[-1], m, p) for m, p in zip(mass.T, falling.T, strict=True)])

    def surface(self) -> tuple[Line, Callable[[Array], Array]] | None:
        """A few rows on a grid, and what carries values at them to all rows, a Chebyshev series; None for few rows."""
        axes = [(self.mean, min(SURFACE_MOST, SURFACE_MEAN + int(np.ptp(self.mean)))), (self.sd, SURFACE_SD)]
        if self.trials is not None:
            axes.append((np.log(self.trials), SURFACE_TRIALS))
        axes = [(x, size if np.ptp(x) > 0 else 1) for x, size in axes]
        sizes, units = [size for _, size in axes], [_unit(x) for x, _ in axes]
        if 3 * np.prod(sizes) >= len(self):
            return None
        places = [g.ravel() for g in np.meshgrid(*(_spread(x, chebyshev.chebpts1(n)) for x, n in axes), indexing="ij")]
        trials = np.maximum(1.0, np.round(np.exp(places[2]))) if len(places) > 2 else None
        return replace(self, mean=places[0], sd=places[1], trials=trials), lambda v: _interpolated(v, sizes, units)


@dataclass(frozen=True)
class Several(Line):
    """The predictive distribution of one number per row, given several latents.

    By the law of `ggpm.prediction.sections` where there is one; else nodes are `Predictive`'s own.
    """

    predictive: Predictive | None = None
    law: Any = None
    settled: ClassVar[float] = 0.3 * SETTLED  # slopes of few nodes are off by up to a tenth

    def _values(self, rows: Any, y: Array, cdf: bool, density: bool) -> list[Array]:
        if self.law is not None:
            return self.law(rows, y, cdf, density)
        assert self.predictive is not None
        functions = [self.family.cdf] * cdf + [self._density] * density
        found = over_latent(
            self.predictive.rows(rows),
            lambda eta, some: np.stack([function(eta, y[some]) for function in functions], axis=-1),
        )
        return list(found.T)

    def cdf(self, rows: Any, y: Array) -> Array:
        return self._values(rows, y, True, False)[0]

    def cdf_and_slope(self, rows: Any, y: Array) -> tuple[Array, Array]:
        F, p = self._values(rows, y, True, True)
        return F, p * self.coordinate.slope(y)

    def steps(self, rows: Any, k: Array) -> tuple[Array, Array]:
        upto, p = self._values(rows, np.maximum(k, 0.0), True, True)
        return np.where(k > 0, np.maximum(upto - p, 0.0), 0.0), np.where(k >= 0, upto, 0.0)

    def _start(self, q: float) -> tuple[Array, Array | None]:
        if self.law is not None:
            return self.law.start(q)
        assert self.predictive is not None
        middle = moment_at_mean(self.predictive)
        return (middle, None) if self.family.support.integer else (self.coordinate.clipped(middle), None)


def _unit(x: Array) -> Array:
    """x on a scale from -1 to 1."""
    low, high = x.min(), x.max()
    return np.zeros_like(x) if low == high else (2.0 * x - low - high) / (high - low)


def _spread(x: Array, unit: Array) -> Array:
    """Points of the range of x that are ``unit`` on the scale from -1 to 1."""
    return 0.5 * (x.max() + x.min() + unit * (x.max() - x.min()))


def _interpolated(values: Array, sizes: list[int], units: list[Array]) -> Array:
    """The Chebyshev series through values on a grid of `chebpts1` nodes, at points (m,) given by coordinate."""
    table = np.nan_to_num(values, posinf=700.0, neginf=-700.0).reshape(sizes)
    for axis, size in enumerate(sizes):
        transform = np.linalg.inv(chebyshev.chebvander(chebyshev.chebpts1(size), size - 1))
        table = np.moveaxis(np.tensordot(transform, table, axes=(1, axis)), 0, axis)
    vanders = [chebyshev.chebvander(x, size - 1) for x, size in zip(units, sizes, strict=True)]
    out = np.tensordot(vanders[0], table, axes=1)
    for vander in vanders[1:]:
        out = np.einsum("mk,mk...->m...", vander, out)
    return out
