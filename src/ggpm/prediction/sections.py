"""One number given several latents: its law given one of them, averaged over that one.

Given the log-scale b of a `LocationScale` family y is normal, or a mixture of normals; given the dispersion b of a
scalar family (`WithDispersion`) it has one latent left, whose nodes are those of `ggpm.prediction.line`. So few nodes
serve, and all of them again for every y of a row. Families with exact zeros are in `ggpm.prediction.inflations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.special import ndtr, ndtri

from ggpm.data.rows import batches
from ggpm.families.inflated import Inflated
from ggpm.families.special.adaptive import place, product_rule
from ggpm.families.two_parameters import LocationScale, WithDispersion
from ggpm.prediction.expectations import moment_at_mean
from ggpm.prediction.inflations import Inflations
from ggpm.prediction.line import COARSE, step_nodes
from ggpm.prediction.nodes import hermite
from ggpm.prediction.roots import Pairs, coordinate, integer_roots, logit_step, roots

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Largest standard deviation of b, in units of the width on which laws change with it, and Gauss-Hermite nodes that then
# give distribution functions to 1e-6; beyond it the trapezoidal rule with so large a spacing, in that unit and in
# standard deviations, and so far a reach: to 1e-6 up to 0.6 units, 4e-6 up to 0.8 (normals and gammas); closer beyond.
HERMITE = ((1e-6, 1), (0.02, 3), (0.05, 5), (0.1, 6), (0.15, 7))
SPACING, SPACING_OF_WIDE, WIDE, NARROW, REACH = 0.5, 0.35, 0.8, 0.95, 5.3
MOST = 8192  # nodes of b
# Largest standard deviation of a, in units of the likelihood's width or of one, and Gauss-Hermite nodes that then give
# distribution functions of gamma, beta and negative binomial numbers to 1e-6.
KNOWN = ((0.0, 1), (0.15, 3), (0.24, 4), (0.33, 5), (0.4, 6), (0.45, 7), (0.52, 8), (0.57, 9), (0.65, 11))
# Searches among few nodes: their farthest start from the middle, in the coordinate, the residual at which they end, and
# nodes of a and b of one more step.
FIRST, NEAR, BETTER = 6.0, 3e-3, (4, 7)
# Tables of densities: points between the quantiles EDGE and 1 - EDGE of mixtures over few nodes, how much further they
# go from the middle, how many more points a spline has, the largest logarithm, what is equal but for rounding, and how
# narrow the middle may be beside the whole.
POINTS, EDGE, WIDER, FINER, LEAST, EQUAL, NARROWEST = 48, 1e-4, 1.4, 4, 700.0, 1e-9, 1e-3


def deviations(spread: Array) -> Iterator[tuple[Rows, Array, Array]]:
    """Rows (k,), standard normal nodes (S,) and weights (S,), by standard deviations in units of the law's width.

    >>> [(len(rows), len(e), round(float(w @ e**2), 4)) for rows, e, w in deviations(np.array([0.0, 0.1, 0.1]))]
    [(1, 1, 0.0), (2, 6, 1.0)]
    """
    limits, sizes = np.array([h[0] for h in HERMITE]), np.array([h[1] for h in HERMITE])
    found = np.searchsorted(limits, spread)
    wide = found == len(HERMITE)
    count = REACH * np.hypot(spread / np.where(spread < WIDE, SPACING, SPACING_OF_WIDE), 1.0 / NARROW)
    half = np.minimum(np.ceil(2.0 ** (np.ceil(4.0 * np.log2(count)) / 4.0)), MOST // 2).astype(int)
    size = np.where(wide, -half, sizes[np.minimum(found, len(HERMITE) - 1)])
    for n in np.unique(size):
        rows = np.flatnonzero(size == n)
        if n > 0:
            x, w = hermite((int(n),))
            yield rows, x[:, 0], w
        else:
            e = REACH * np.arange(n, -n + 1) / -n
            w = np.exp(-0.5 * e * e)
            yield rows, e, w / w.sum()


class Law(Protocol):
    """Distribution functions and densities of some rows of a prediction, at one y for each."""

    def __call__(self, rows: Any, y: Array, cdf: bool, density: bool) -> list[Array]:
        """What is asked for, in this order, (k,) each; of counts the probability in the place of the density."""
        ...


@dataclass(frozen=True)
class Normals:
    """Mixtures of normals: families of locations and log-scales whose density is one."""

    predictive: Predictive

    def __call__(self, rows: Any, y: Array, cdf: bool, density: bool) -> list[Array]:
        p = self.predictive.rows(rows)
        out = [np.empty(len(p)) for _ in range(cdf + density)]
        for some, centre, sd, weights in normal_nodes(p):
            z = (y[some] - centre) / sd
            if cdf:
                out[0][some] = weights @ ndtr(z)
            if density:
                out[-1][some] = weights @ (np.exp(-0.5 * z * z) / sd) / np.sqrt(2.0 * np.pi)
        return out

    def densities(self, rows: Rows, y: Array) -> Array:
        """Densities at several y (N, k) of every row."""
        out = np.empty(y.shape)
        for some, centre, sd, weights in normal_nodes(self.predictive.rows(rows)):
            for values, own in zip(out, y, strict=True):
                z = (own[some] - centre) / sd
                values[some] = weights @ (np.exp(-0.5 * z * z) / sd) / np.sqrt(2.0 * np.pi)
        return out

    def start(self, q: float) -> tuple[Array, Array | None]:
        p = self.predictive
        return p.latent_mean[:, 0] + ndtri(q) * np.sqrt(p.latent_cov[:, 0, 0] + np.exp(2.0 * p.latent_mean[:, 1])), None


def normal_nodes(p: Predictive) -> Iterator[tuple[Rows, Array, Array, Array]]:
    """Rows (k,), means and standard deviations (S, k) of normals, and weights (S,)."""
    family: Any = p.family
    factor, share = family.normal_scales()
    mean, sd, slope, rest = conditional(p)
    # how far the mean moves while b does, beside the width of the normals at small b
    width = np.sqrt(rest + np.exp(2.0 * np.maximum(mean[:, 1] - 2.0 * sd, -300.0)))
    for group, e, w in deviations(np.hypot(sd, slope * sd / width)):
        weights = np.outer(w, share).ravel()
        for part in batches(len(group), 4 * len(weights)):
            rows = group[part]
            b = mean[rows, 1] + sd[rows] * e[:, None]
            scale = np.exp(2.0 * np.clip(b, -300.0, 300.0))[:, None] * np.exp(2.0 * factor)[:, None]
            total = np.sqrt(rest[rows] + scale).reshape(len(weights), -1)
            centre = np.repeat(mean[rows, 0] + (slope * sd)[rows] * e[:, None], len(share), axis=0)
            yield rows, centre, total, weights


def conditional(p: Predictive) -> tuple[Array, Array, Array, Array]:
    """Means of (a, b), standard deviation of b, slope of the mean of a given b, and the variance of a that is left."""
    cov, sd = p.latent_cov, np.sqrt(np.maximum(p.latent_cov[:, 1, 1], 0.0))
    slope = np.divide(cov[:, 0, 1], sd**2, out=np.zeros_like(sd), where=sd > 0)
    return p.latent_mean, sd, slope, np.maximum(cov[:, 0, 0] - slope * cov[:, 0, 1], 0.0)


@dataclass(frozen=True)
class Dispersed:
    """Scalar families with a latent for their dispersion: given b, the steps of a line in a."""

    predictive: Predictive

    def __call__(self, rows: Any, y: Array, cdf: bool, density: bool) -> list[Array]:
        p = self.predictive.rows(rows)
        mean, sd, slope, rest = conditional(p)
        told = self._family.U(mean, y, expected=True).diag[:, 0]
        spread = sd * np.hypot(1.0, slope * np.sqrt(told / (1.0 + told * rest)))
        out = [np.empty(len(p)) for _ in range(cdf + density)]
        for group, e, w in deviations(spread):
            for part in batches(len(group), 4 * len(e)):
                some = group[part]
                b, centre = mean[some, 1] + sd[some] * e[:, None], mean[some, 0] + (slope * sd)[some] * e[:, None]
                known, width = (np.broadcast_to(v[some], b.shape).ravel() for v in (y, np.sqrt(rest)))
                share = np.repeat(np.minimum(len(w) * w, 1.0), len(some))
                found = self._given(b.ravel(), centre.ravel(), width, known, share, cdf, density)
                for total, values in zip(out, found, strict=True):
                    total[some] = w @ values.reshape(b.shape)
        return out

    def _given(
        self, b: Array, centre: Array, width: Array, y: Array, share: Array, cdf: bool, density: bool
    ) -> list[Array]:
        """The same given b, for a ~ N(centre, width²), to what is left of it in a sum in which it has this share."""
        out = [np.empty(len(b)) for _ in range(cdf + density)]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            for rows, a, weights in self._nodes(b, centre, width, y, share):
                if cdf:
                    out[0][rows] = _averaged(weights, self._family.at(b[rows]).cdf(a, y[rows]))
                if density:
                    log_p = self._family.along(a[..., 0], *self._family.prepared(b[rows], y[rows]))
                    out[-1][rows] = _averaged(weights, np.exp(log_p))
        return out

    @property
    def _family(self) -> WithDispersion:
        family: Any = self.predictive.family
        return family

    def _nodes(
        self, b: Array, centre: Array, width: Array, y: Array, share: Array
    ) -> Iterator[tuple[Rows, Array, Array]]:
        """Rows (k,), nodes of a (S, k, 1), and weights (S,) or (S, k)."""
        # links bend on the scale of one
        told = np.maximum(self._family.at(b).information(centre, y)[0], 1.0)
        limits, sizes = (np.array(column)[:, None] for column in zip(*KNOWN, strict=True))
        # errors of n nodes go with the power 2n of the spread
        allowed = np.maximum.accumulate(limits * share ** (-0.5 / sizes), axis=0)
        found = np.sum(width * np.sqrt(told) > allowed, axis=0)
        for level in np.unique(found):
            group = np.flatnonzero(found == level)
            if level < len(KNOWN):
                e, w = product_rule(1, KNOWN[level][1])
                for part in batches(len(group), 8 * len(e)):
                    rows = group[part]
                    yield rows, (centre[rows] + width[rows] * e)[..., None], w
                continue
            b_, y_ = b[group], y[group]
            of = lambda rows: self._family.at(b_[rows])  # noqa: B023, E731
            for some, a, weights in step_nodes(self._family.at(b_), centre[group], width[group], y_, COARSE, of):
                yield group[some], a, weights

    def start(self, q: float) -> tuple[Array, Array | None]:
        return few_nodes(self.predictive, q)


def _averaged(weights: Array, values: Array) -> Array:
    return weights @ values if weights.ndim == 1 else np.einsum("sk,sk->k", weights, values)


def few_nodes(p: Predictive, q: float) -> tuple[Array, Array | None]:
    """About the quantiles, as coordinates with slopes or as counts: those of mixtures over few nodes.

    Of three per latent, and of continuous numbers one more step with those of `BETTER`.
    """
    family = p.family
    at, integer = coordinate(family.support), family.support.integer

    def mixture(sizes: tuple[int, ...]) -> Pairs:
        x, w = hermite(sizes)
        eta = place(p.latent_mean, p.cholesky(), x)

        def law(rows: Any, y: Array) -> tuple[Array, Array]:
            F, f = np.empty(len(y)), np.empty(len(y))
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                for part in batches(len(y), 4 * len(w)):
                    nodes = eta[:, rows[part]]
                    F[part], f[part] = w @ family.cdf(nodes, y[part]), w @ np.exp(family.log_prob(nodes, y[part]))
            return (F - f, F) if integer else (F, f * at.slope(y))

        return law

    middle, few = moment_at_mean(p), mixture((3,) * p.latent_mean.shape[1])
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.maximum(family.spread(p.latent_mean), 0.0))
        if integer:
            near = np.clip(np.round(middle + ndtri(q) * spread), 0.0, 2.0**52)
            return integer_roots(few, q, near, np.full(len(p), np.inf)), None
        # in the coordinate, where latents of means are added
        away = ndtri(q) * np.hypot(spread / at.slope(middle), np.sqrt(np.maximum(p.latent_cov[:, 0, 0], 0.0)))
    z = roots(few, q, at.clipped(middle) + np.nan_to_num(np.clip(away, -FIRST, FIRST)), at, settled=NEAR)
    F, f = mixture(BETTER)(np.arange(len(z)), at.back(z))
    step = logit_step(F, f, np.full(len(z), q))
    return np.where(np.abs(step) < 1.0, np.clip(z + step, at.low, at.high), z), f


def log_threshold(
    p: Predictive,
    densities: Callable[[Rows, Array], Array],
    level: float,
    quantiles: Callable[[float], Array],
    singles: Array,
) -> Array:
    """Log density on the border of the smallest region of the level, (m,), from a table of the density of every row.

    ``densities`` are those of some rows (k,) at several y (N, k) of each, between ``quantiles`` in coordinates that are
    about right; ``singles`` (m, J) are log-probabilities of numbers that have one.
    """
    at = coordinate(p.family.support)
    ends = [quantiles(q) for q in (EDGE, 0.25, 0.75, 1.0 - EDGE)]
    out = np.empty(len(p))
    unit, fine = np.linspace(0.0, 1.0, POINTS), np.linspace(0.0, 1.0, FINER * (POINTS - 1) + 1)
    # log densities are smooth: a spline between the points is a product of matrices
    between = CubicSpline(unit, np.eye(POINTS), axis=0)(fine)
    for rows in batches(len(p), POINTS):
        low, left, right, high = (end[rows] for end in ends)
        middle, width = 0.5 * (left + right), 0.5 * (right - left)
        # what few nodes do not see lies further out
        reach = [WIDER * (np.clip(end, at.low, at.high) - middle) for end in (low, high)]
        width = np.maximum(width, NARROWEST * (reach[1] - reach[0]))
        # points are dense between the quartiles: next to a bound tails are a hundred times as long
        low, high = (np.arcsinh((np.clip(middle + end, at.low, at.high) - middle) / width) for end in reach)
        t = low + (high - low) * unit[:, None]
        z = middle + width * np.sinh(t)
        y = at.back(z)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log_p = np.log(densities(np.arange(len(p))[rows], y))
            log_mass = log_p + np.log(at.slope(y)) + np.log(np.cosh(t))
        log_p, log_mass = (between @ np.clip(x, -LEAST, LEAST) for x in (log_p, log_mass))
        mass = np.exp(log_mass)
        own = singles[rows].T
        mass *= (1.0 - np.exp(own).sum(axis=0)) / mass.sum(axis=0)
        # a single number's probability is there at once, at its own log-probability: a step, of two points
        log_p, mass = np.concatenate([log_p, own - EQUAL, own - EQUAL]), np.concatenate([mass, 0.0 * own, np.exp(own)])
        half = np.repeat([0.5, 0.0], [len(fine), 2 * len(own)])[:, None]  # of a cell lies above its own density
        order = np.argsort(-log_p, axis=0, kind="stable")
        falling = np.take_along_axis(log_p, order, axis=0)
        upto = np.cumsum(np.take_along_axis(mass, order, axis=0), axis=0)
        upto -= np.take_along_axis(half * mass, order, axis=0)
        out[rows] = [np.interp(level, m, f) for m, f in zip(upto.T, falling.T, strict=True)]
    return out


def law_of(p: Predictive) -> Any:
    """The law of the rows of a prediction by sections; None if the family has none."""
    if isinstance(p.family, Inflated):
        return Inflations(p)
    if isinstance(p.family, LocationScale) and p.family.normal_scales() is not None:
        return Normals(p)
    return Dispersed(p) if isinstance(p.family, WithDispersion) else None
