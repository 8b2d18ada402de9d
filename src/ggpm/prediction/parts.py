"""Parts of compositions and directions: one table of the distribution function per row and part.

The density of a part alone is averaged over the latent at points z = centre + width sinh(t), z the coordinate in which
the part may be any number: dense where the mass is, and far out where small concentrations leave some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BarycentricInterpolator
from scipy.special import expit

from ggpm.data.rows import batches
from ggpm.families.special.quadrature import normal_points
from ggpm.prediction.averages import by_rows
from ggpm.prediction.nodes import MOST_HERMITE_LATENTS, Rows, gather
from ggpm.prediction.part_laws import ALL, Table, Told
from ggpm.prediction.part_nodes import PartNodes
from ggpm.prediction.regions import interior
from ggpm.prediction.roots import values_between

if TYPE_CHECKING:
    from ggpm.families.base import Family
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

# Points of a table; one whose mass is not one to TOTAL is made again with twice as many, over all of z, until that
# moves it by less than SAME. Where the largest ones still miss more than LOST, parts are narrower at many nodes than
# these and the points are apart, and draws tell more. A table that every other point makes another by more than ROUGH,
# which is then about the square root of its error, is made again with twice as many where it is.
POINTS, MOST_POINTS, DRAWS = 57, 449, 2**14
TOTAL, SAME, LOST, ROUGH = 5e-6, 1e-4, 1e-3, 1e-3
# Probabilities of a table are off by about the mass that it misses and OF_ROUGH times the square of how far it is from
# one of every other point. Where that may be more than SHARP of the spread ends are sharpened, by steps of logits that
# are not longer than LONGEST; what tables leave of others is 7e-5 at most (4000 rows of two and three parts).
OF_ROUGH, SHARP, LONGEST = 7.0, 5e-5, 0.3
BESIDE = 6  # points on either side of an interval that tell its integral
# Where distribution functions are averaged then: logarithm (base 2) of nodes, steps, and logits that floats hold.
NODES, SECANTS, FARTHEST, NEXT_TO_ONE = 15, 3, 650.0, 36.0
# How far a table reaches at first: spreads of z, and lengths over which its tails fall by e.
SPREADS, LENGTHS = 6.0, 15.0
QUANTILE_STEPS = 5  # of Newton's method between two points
TABLE_DOUBLES = 2**17  # nodes times points that are worked on at once: they stay in the processor's cache
ROW_DOUBLES, WORKED_ON = 2**21, 12  # of tables that are made at once, and arrays as large as one that this takes
FAR = 300.0  # where tails are exponential


@dataclass(frozen=True)
class PartTable(Table):
    """Distribution functions of the d parts of some rows, (k, G, d) at equally spaced t."""

    low: float
    high: float
    centre: Array
    width: Array
    t: Array
    """(k, G, d)."""
    F: Array
    g: Array
    """Derivative of F in t."""
    bend: Array
    """Derivative of g."""

    def quantile(self, q: float) -> Array:
        """The q-quantile of every part, (k, d)."""
        G = self.F.shape[1]
        low = np.clip(np.sum(q > self.F, axis=1) - 1, 0, G - 2)
        piece = self._piece(low)
        ends = [np.take_along_axis(self.F, (low + i)[:, None], axis=1)[:, 0] for i in (0, 1)]
        x = np.clip((q - ends[0]) / np.maximum(ends[1] - ends[0], 1e-300), 0.0, 1.0)
        left, right = np.zeros_like(x), np.ones_like(x)
        for _ in range(QUANTILE_STEPS):
            F, f = piece(x)
            left, right = np.where(q > F, x, left), np.where(q > F, right, x)
            with np.errstate(divide="ignore", invalid="ignore"):
                x = x - (F - q) / f
            x = np.where((x >= left) & (x <= right), x, 0.5 * (left + right))
        h = self.t[:, 1] - self.t[:, 0]
        z = self.centre + self.width * np.sinh(self.t[:, 0] + (low + x) * h)
        y = self.low + (self.high - self.low) * expit(z)
        # mass beyond what floats tell from the bounds
        return np.where(self.F[:, 0] >= q, self.low, np.where(self.F[:, -1] <= q, self.high, y))

    def cdf(self, y: Array) -> Array:
        """P(part <= y), y (k, d)."""
        return self._at(y)[0]

    def slope(self, y: Array) -> tuple[Array, Array]:
        """Derivatives of P(part <= y) in the logit of y, and in y times the spread of the part, (k, d) each."""
        slope, width = self._at(y)[1], self.high - self.low
        with np.errstate(divide="ignore", invalid="ignore"):
            room = (y - self.low) * (self.high - y) / width
            return slope, slope * self.width * width * expit(self.centre) * expit(-self.centre) / room

    def _at(self, y: Array) -> tuple[Array, Array]:
        """P(part <= y) and its derivative in the logit of y."""
        G, h = self.F.shape[1], self.t[:, 1] - self.t[:, 0]
        with np.errstate(divide="ignore"):
            z = np.clip(np.log(y - self.low) - np.log(self.high - y), -ALL, ALL)
        away = (z - self.centre) / self.width
        place = np.clip((np.arcsinh(away) - self.t[:, 0]) / h, 0.0, G - 1.0)
        low = np.minimum(place.astype(int), G - 2)
        F, g = self._piece(low)(place - low)
        return np.clip(F, 0.0, 1.0), g / (h * self.width * np.hypot(1.0, away))

    def _piece(self, low: NDArray[np.int_]) -> Callable[[Array], tuple[Array, Array]]:
        """F and its derivative, as functions of the place between two points: quintic Hermite interpolation."""
        h = self.t[:, 1] - self.t[:, 0]
        (F0, F1), (g0, g1), (s0, s1) = (
            tuple(np.take_along_axis(values, (low + i)[:, None], axis=1)[:, 0] for i in (0, 1))
            for values in (self.F, self.g, self.bend)
        )
        g0, g1, s0, s1 = h * g0, h * g1, h * h * s0, h * h * s1
        rise = F1 - F0
        a3 = 10.0 * rise - 6.0 * g0 - 4.0 * g1 - 1.5 * s0 + 0.5 * s1
        a4 = -15.0 * rise + 8.0 * g0 + 7.0 * g1 + 1.5 * s0 - s1
        a5 = 6.0 * rise - 3.0 * g0 - 3.0 * g1 - 0.5 * s0 + 0.5 * s1

        def at(x: Array) -> tuple[Array, Array]:
            value = F0 + x * (g0 + x * (0.5 * s0 + x * (a3 + x * (a4 + x * a5))))
            return value, g0 + x * (s0 + x * (3.0 * a3 + x * (4.0 * a4 + x * 5.0 * a5)))

        return at


@dataclass(frozen=True)
class Sharpened(Table):
    """The same with quantiles where the density is low by distribution functions averaged over the nodes themselves."""

    table: PartTable
    nodes: PartNodes
    which: Rows
    """Which rows of the nodes are those of the table, (k,)."""
    off: Array
    """What probabilities of the table may be off by, (k, d)."""

    def cdf(self, y: Array) -> Array:
        """P(part <= y), y (k, d)."""
        return self.table.cdf(y)

    def quantile(self, q: float) -> Array:
        """The q-quantile of every part, (k, d)."""
        return self.quantiles((q,))[..., 0]

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Quantiles of every part, (k, d, levels): one step of Newton's method from those of the table."""
        low, high = self.table.low, self.table.high
        y = self.table.quantiles(levels)
        slopes = [self.table.slope(y[..., i]) for i in range(len(levels))]
        slope, by_spread = (np.stack(values, axis=-1) for values in zip(*slopes))
        asked = (self.off[:, :, None] > SHARP * by_spread) & (y > low) & (y < high) & (slope > 0)
        rows = np.flatnonzero(asked.any(axis=(1, 2)))
        if rows.size:
            asked = asked[rows]
            at = np.where(asked, y[rows], low)  # nothing is below that, which costs nothing
            upto = np.zeros_like(at)
            for family, some, eta, share in self.nodes.rows(self.which[rows]):
                for these in batches(len(some), 2 * len(levels) * eta[0].size, TABLE_DOUBLES):
                    F = family.cdf(eta[these, :, None], at[some[these], None].swapaxes(2, 3))  # (k, S, levels, d)
                    upto[some[these]] += np.einsum("ks,ksld->kdl", share[these], F)
            step = np.clip((levels - upto) / np.where(asked, slope[rows], 1.0), -LONGEST, LONGEST)
            y[rows] += np.where(asked, step * (at - low) * (high - at) / (high - low), 0.0)
        return y


@dataclass(frozen=True)
class Drawn(Table):
    """The same from draws (N, k, d) of the encoded parts: 0.2 % of probability off (one standard error at 5 %)."""

    draws: Array

    def quantile(self, q: float) -> Array:
        """The q-quantile of every part, (k, d)."""
        return np.quantile(self.draws, q, axis=0)

    def cdf(self, y: Array) -> Array:
        """P(part <= y), y (k, d)."""
        return np.mean(self.draws <= y, axis=0)


@dataclass(frozen=True)
class Averaged(Table):
    """The same of one row from distribution functions of the parts given the latent, averaged over nodes."""

    laws: list[tuple[Family, Array, Array]]
    """Families, their latents (S, D), and weights (S,), which sum to one over all."""
    drawn: Drawn
    """Where to begin."""

    def cdf(self, y: Array) -> Array:
        """P(part <= y), y (1, d)."""
        upto = np.zeros_like(y[0])
        for family, eta, weights in self.laws:
            for some in batches(len(eta), 8 * eta.shape[1]):
                upto += weights[some] @ family.cdf(eta[some], y)
        return np.clip(upto, 0.0, 1.0)[None]

    def quantile(self, q: float) -> Array:
        """The q-quantile of every part, (1, d): a few secants from that of draws, in logits."""
        low, high = self._support.low, self._support.high
        z, before, after = (self._logit(self.drawn.quantile(v)) for v in (q, 0.9 * q, q + 0.1 * (1.0 - q)))
        slope, inside = (after - before) / 0.1, (z > -FARTHEST) & (z < NEXT_TO_ONE)
        most = 2.0 * np.maximum(np.abs(after - z), np.abs(before - z))
        off = self.cdf(low + (high - low) * expit(z)) - q
        for _ in range(SECANTS):
            with np.errstate(invalid="ignore"):
                new = np.where(inside, z - np.clip(slope * off, -most, most), z)
            left = self.cdf(low + (high - low) * expit(new)) - q
            with np.errstate(divide="ignore", invalid="ignore"):
                secant = (new - z) / (left - off)
            slope = np.where(np.isfinite(secant) & (secant > 0), secant, slope)
            better = np.abs(left) < np.abs(off)
            z, off = np.where(better, new, z), np.where(better, left, off)
        return np.where(inside, low + (high - low) * expit(z), self.drawn.quantile(q))

    @property
    def _support(self) -> Any:
        return self.laws[0][0].support

    def _logit(self, y: Array) -> Array:
        with np.errstate(divide="ignore"):
            z = np.log(y - self._support.low) - np.log(self._support.high - y)
        return np.clip(z, -FARTHEST, NEXT_TO_ONE)


@dataclass(frozen=True)
class Mixed(Table):
    """The same of averages of distributions that have tables each."""

    tables: list[tuple[Array, list[tuple[Rows, Table]]]]
    """Weights (k,) of every distribution, and its tables of some of the k rows at a time."""

    def cdf(self, y: Array) -> Array:
        """P(part <= y), y (k, d)."""
        return np.sum(
            [by_rows(w, gather(len(y), ((i, t.cdf(y[i])) for i, t in own))) for w, own in self.tables], axis=0
        )

    def quantile(self, q: float) -> Array:
        """The q-quantile of every part, (k, d), between those of the distributions."""
        ends = [gather(len(w), ((i, t.quantile(q)) for i, t in own)) for w, own in self.tables]
        return values_between(self.cdf, q, np.min(ends, axis=0), np.max(ends, axis=0))


def part_tables(p: Predictive) -> Iterator[tuple[Rows, Table]]:
    """Tables of the rows, of some at a time; those whose parts have laws of their own have their own."""
    laws = [part.family.part_laws(part.latent_mean, part.latent_cov) or [None] * len(p) for _, part in p.components]
    own = np.array([any(law is not None for law in of_row) for of_row in zip(*laws)], dtype=bool)
    others = np.flatnonzero(~own)
    for some in batches(len(others), WORKED_ON * POINTS * p.latent_mean.shape[1], ROW_DOUBLES):
        rows = others[some]
        yield from ((rows[i], table) for i, table in _tables_by_nodes(p.rows(rows)))
    if len(laws) == 1:
        for row in map(int, np.flatnonzero(own)):
            yield from _own_tables(p, row, laws[0][row])
            laws[0][row] = None  # what it has computed takes memory
    else:
        for row in np.flatnonzero(own)[:, None]:
            yield row, Mixed([(w, list(part_tables(part))) for w, part in p.rows(row).components])


def _own_tables(p: Predictive, row: int, laws: list[Any]) -> Iterator[tuple[Rows, Table]]:
    """The table of one row whose parts have laws of their own, or draws where its mass is not one."""
    if laws[0].upto:
        if sum(law.work for law in laws) <= laws[0].most_work:
            yield np.array([row]), Told(p.family.support.low, p.family.support.high, laws)
        else:
            yield from ((np.array([row]), table) for _, table in _tables_by_nodes(p.rows([row])))
        return
    place = np.array([law.place for law in laws])[None]
    centre, width = place[..., 0], place[..., 1]
    beyond = np.stack([law.beyond() for law in laws], axis=1)[:, None]
    reach = np.array([law.reach for law in laws])
    ends = np.stack([-reach, reach])[None]

    def density(z: Array) -> Array:
        return np.stack([law.density(z[0, :, j]) for j, law in enumerate(laws)], axis=-1)[None]

    rows, size = np.array([row]), laws[0].points
    while size <= MOST_POINTS:
        table, off, _ = _table(p, density, centre, width, ends, size, beyond)
        if off.max() < laws[0].lost:
            yield rows, table
            return
        size = 2 * size - 1
    yield rows, _drawn(p.rows(rows))


def _tables_by_nodes(p: Predictive) -> Iterator[tuple[Rows, Table]]:
    """Tables of rows by averages over nodes, the same points for all that a row is an average of."""
    nodes = PartNodes.of(p)
    centre, spread = _place(p, nodes)
    tails = np.max([np.where(w[:, None, None] > 0, _tails(part), 0.0) for w, part in p.components], axis=0)
    reach = SPREADS * spread[:, None] + LENGTHS * tails
    averaged = all(part.family.has("cdf") for _, part in p.components)
    sharp = averaged and p.latent_mean.shape[1] <= MOST_HERMITE_LATENTS  # others have points, which are further off
    todo, size, before = np.arange(len(p)), POINTS, np.full(len(p), np.inf)
    while todo.size:
        of_todo = nodes if len(todo) == len(p) else nodes.rows(todo)
        ends = np.clip(centre[todo, None] + np.array([-1.0, 1.0])[:, None] * reach[todo], -ALL, ALL)
        beyond = _beyond(p, of_todo, ends) if size > POINTS else np.zeros((2, *centre[todo].shape))
        table, lost, apart = _table(p, partial(_density, of_todo), centre[todo], spread[todo], ends, size, beyond)
        off, rough = lost.max(axis=1), apart.max(axis=(0, 2))
        settled = (np.abs(off - before[todo]) < SAME) | (size >= MOST_POINTS)
        whole = (off < TOTAL) | (settled & (off < LOST))
        good = whole & ((rough < ROUGH) | (size >= MOST_POINTS))
        before[todo] = off if size > POINTS else np.inf  # the first does not reach as far
        if good.any():
            told = _rows_of(table, good)
            error = (lost + OF_ROUGH * apart.sum(axis=0) ** 2)[good]
            yield todo[good], Sharpened(told, of_todo, np.flatnonzero(good), error) if sharp else told
        drawn = (size > POINTS) & (off > LOST) & averaged | (size >= MOST_POINTS)
        yield from ((np.array([i]), _drawn(p.rows([i]))) for i in todo[~good & drawn])
        reach[todo[~whole]] = 2 * ALL
        todo, size = todo[~good & ~drawn], 2 * size - 1


def _drawn(p: Predictive) -> Drawn | Averaged:
    """Draws of one row with a fixed seed; where the parts' distribution functions are known, averages of these."""
    draws = interior(p.family, p.sample(DRAWS, 0))
    drawn = Drawn(p.family.encode(draws.reshape(-1, draws.shape[-1])).reshape(draws.shape))
    if not all(part.family.has("cdf") for _, part in p.components):
        return drawn
    x = normal_points(p.latent_mean.shape[1], NODES)
    laws = [(q.family, q.latent_mean + x @ q.cholesky()[0].T, np.full(len(x), w[0] / len(x))) for w, q in p.components]
    return Averaged(laws, drawn)


def _tails(p: Predictive) -> Array:
    """Lengths over which the tails of z fall by e, left and right, (m, 2, d), for a latent below its mean."""
    mean, sd = p.latent_mean, np.sqrt(np.maximum(np.einsum("kjj->kj", p.latent_cov), 0.0))
    z = np.broadcast_to(np.array([-FAR, -FAR - 1.0, FAR, FAR + 1.0])[:, None], (len(mean), 4, mean.shape[1]))
    fall = -np.diff(p.family.part_log_prob((mean - 2.5 * sd)[:, None], z)[:, :, 0], axis=-1)[..., ::2]
    return 1.0 / np.maximum(fall.swapaxes(1, 2), LENGTHS / ALL)


def _place(p: Predictive, nodes: PartNodes) -> tuple[Array, Array]:
    """Centre and spread of z, (m, d), from mean and variance of the part by the rule for derivatives."""
    low, high = p.family.support.low, p.family.support.high
    mean, square = np.zeros_like(p.latent_mean), np.zeros_like(p.latent_mean)
    for family, rows, eta, share in nodes:
        moment = family.moment(eta)
        mean[rows] += np.einsum("ks,ksj->kj", share, moment)
        square[rows] += np.einsum("ks,ksj->kj", share, moment * moment)
    within = p.mixed(lambda part: np.einsum("kjj->kj", part.family.spread(part.latent_mean)))
    variance = np.maximum(square - mean * mean, 0.0) + within
    room = np.maximum((mean - low) * (high - mean) / (high - low), 1e-12)
    with np.errstate(divide="ignore"):
        z = np.log(np.maximum(mean - low, 1e-300)) - np.log(np.maximum(high - mean, 1e-16))
    # a part next to an end of its support spreads over more than its standard deviation says
    return z, np.maximum(np.sqrt(variance) / room, 1e-6)


def _density(nodes: PartNodes, z: Array) -> Array:
    """Densities of the parts at z (m, G, d), averaged over nodes."""
    out = np.zeros_like(z)
    for family, rows, eta, share in nodes:
        for some in batches(len(rows), eta.shape[1] * z[0].size, TABLE_DOUBLES):
            at, of_rows = z[rows[some]], np.zeros_like(z[rows[some]])
            for which in batches(eta.shape[1], at.size, TABLE_DOUBLES):
                # (k, d, S, G); sums of many need no more than seven digits of each
                p_z = family.part_log_prob(eta[some, which], at).astype(np.float32, copy=False)
                np.exp(p_z, out=p_z)
                weights = share[some, None, None, which].astype(np.float32)
                of_rows += np.matmul(weights, p_z)[:, :, 0].swapaxes(1, 2)
            out[rows[some]] += of_rows
    return out


def _beyond(p: Predictive, nodes: PartNodes, ends: Array) -> Array:
    """What is below and above two values of z (m, 2, d), averaged over nodes, (2, m, d)."""
    out = np.zeros((2, *ends[:, 0].shape))
    width = p.family.support.high - p.family.support.low
    low, high = width * expit(ends[:, None, 0]), width * expit(-ends[:, None, 1])
    for family, rows, eta, share in nodes:
        if family.has("part_tails"):
            out[:, rows] += np.einsum("ks,iksj->ikj", share, family.part_tails(eta, low[rows], high[rows]))
    return out


def _table(
    p: Predictive,
    density: Callable[[Array], Array],
    centre: Array,
    spread: Array,
    ends: Array,
    size: int,
    beyond: Array,
) -> tuple[PartTable, Array, Array]:
    """Tables between two values of z, (k, 2, d), with ``beyond`` them (2, k, d); what their mass is off by; how rough.

    The mass is that of each part, (k, d); roughness (2, k, d) is by how much a table of every other point is below and
    above.
    """
    first, last = (np.arcsinh((ends[:, i] - centre) / spread) for i in (0, 1))
    more = 0 if size == POINTS else BESIDE  # the first table ends where no mass is left
    steps = np.arange(-more, size + more) / (size - 1)
    t = first[:, None] + (last - first)[:, None] * steps[None, :, None]
    h = (t[:, 1] - t[:, 0])[:, None]
    g = density(centre[:, None] + spread[:, None] * np.sinh(t))
    g *= spread[:, None] * np.cosh(t)
    g = np.pad(g, ((0, 0), (BESIDE - more, BESIDE - more), (0, 0)))
    F = h * _upto(g, BESIDE)
    off = np.abs(F[:, -1] + beyond.sum(axis=0) - 1.0)
    apart = F[:, ::2] - 2.0 * h * _upto(g[:, ::2], BESIDE // 2)
    rough = np.stack([apart.max(axis=1), -apart.min(axis=1)])  # the first point has none
    low, high = p.family.support.low, p.family.support.high
    t, inside = t[:, more : more + size], g[:, BESIDE:-BESIDE]
    return PartTable(low, high, centre, spread, t, F + beyond[0][:, None], inside, _slope(g) / h), off, rough


def _upto(g: Array, beside: int) -> Array:
    """Integrals of values one apart along the second axis, from the first of those that have as many ``beside`` them.

    >>> x = np.arange(-3.0, 6.0)[None, :, None]
    >>> _upto(x**3, 3)[0, :, 0].round(12) + 0.0
    array([0.  , 0.25, 4.  ])
    """
    weights, points = _between(beside), g.shape[1] - 2 * beside
    out = np.zeros_like(g[:, :points])
    for i, weight in enumerate(weights):
        out[:, 1:] += weight * g[:, 1 + i : i + points]
    return np.cumsum(out, axis=1, out=out)


@lru_cache(maxsize=4)
def _between(beside: int) -> Array:
    """Weights (2 beside,) of values one apart for the integral between the two in the middle."""
    x, w = np.polynomial.legendre.leggauss(beside)
    return 0.5 * w @ BarycentricInterpolator(np.arange(1.0 - beside, beside + 1.0), np.eye(2 * beside))(0.5 * (1.0 + x))


def _slope(g: Array) -> Array:
    """First derivatives of values one apart along the second axis, but for BESIDE a side, by seven of them.

    >>> x = np.arange(13.0)[None, :, None]
    >>> float(_slope(x**5)[0, 0, 0].round(9))  # at 6
    6480.0
    """
    points = g.shape[1] - 2 * BESIDE
    one, two, three = (g[:, BESIDE + i :][:, :points] - g[:, BESIDE - i :][:, :points] for i in (1, 2, 3))
    return (45.0 * one - 9.0 * two + three) / 60.0


def _arrays(table: PartTable) -> tuple[Array, ...]:
    return table.centre, table.width, table.t, table.F, table.g, table.bend


def _rows_of(table: PartTable, rows: NDArray) -> PartTable:
    return PartTable(table.low, table.high, *(values[rows] for values in _arrays(table)))
