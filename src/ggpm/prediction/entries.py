"""Entries of matrices: one table of the distribution function per row and entry.

Given the latent, an entry is exp(ell) w, and the law of w is known (`ggpm.families.special.products`). The latents are
a part t that moves ell alone, normal and independent of the rest u, and that rest:

    E[|y|^(i omega)] = E_u[exp(i omega ell(u)) psi(omega, k(u))] exp(-tau² omega²/2),

psi the characteristic function of log |w|. Nodes are needed for u alone, a few dozen frequencies for log |y|, and a
Fourier series is the distribution function: of positive and of negative entries, each by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import polygamma

from ggpm.families.special.adaptive import cholesky_root
from ggpm.families.special.products import EntryLaw, Products, products
from ggpm.families.special.quadrature import matched_nodes
from ggpm.prediction.nodes import gather, hermite
from ggpm.prediction.roots import values_between

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Rows = NDArray[np.intp]

# Change of the law over one standard deviation of a direction, in its own widths, and Gauss-Hermite nodes that then
# give distribution functions to 2e-6; where it is larger, nodes at equal distances are fewer.
HERMITE = ((1e-3, 1), (0.13, 3), (0.37, 5), (0.72, 8), (0.9, 10))
# Nodes of one row, for up to two directions and for more. Where there were more, Sobol points serve, as many as for a
# median error of 2e-3 standard deviations (512; matrices of order 3), and 4096 where the law changes by more than WIDE.
MOST, MOST_OF_MORE, WIDE = 2**19, 2**10, 4.0
REACH = 4.8  # standard deviations
# Largest distances of nodes for the same accuracy, measured with shapes of 0.6 to 50: in standard deviations, and for
# log-variances and for the arcsinh of slopes by themselves and in widths of the law.
OF_NORMAL, OF_VARIANCE, OF_SLOPE, OFF_DIAGONAL = 1.2, (0.9, 1.2), (0.3, 0.95), (0.4, 1.9)
# By which slopes next to zero count, off and on the diagonal: they change logarithms faster there than at their means.
POLE = 0.5, 2.2
SMALLEST = 1e-6  # a slope's distance from zero, in its standard deviations, that may matter
NEAREST = 3.3  # standard deviations by which a slope may come nearer to zero
AWAY = 1.5  # standard deviations of slopes at which the law is looked at, too
CORNERS = 1e-6  # of the largest weight: nodes that count less in all rows are left out
STRIP = 0.8  # the law is an analytic function of k so far from the real line (measured: pi/4)
DIGITS = 11.0  # natural logarithm of the accuracy of polynomials in k
TABLE_DOUBLES = 2**20  # numbers that are worked on at once
NEWTON = 3  # steps after a linear interpolation
NODE_DOUBLES = 2**20
MOST_TABLES = 2**15  # tables of entries that are held at once


@dataclass(frozen=True)
class EntryTable:
    """Distribution functions of one entry of some rows, by Fourier series of log |y| over one period."""

    octave: int
    """The period is 2^(octave/4)."""
    centre: Array
    """Of log |y|, (k,)."""
    first: Array
    """Where the period begins, from the centre."""
    above: Array
    """Characteristic functions of log |y| - centre where y > 0, at `frequencies`: real, imaginary parts, (k, 2, n)."""
    below: Array
    """Where y < 0."""

    def cdf(self, y: Array) -> Array:
        """P(entry <= y), y (k,)."""
        with np.errstate(divide="ignore"):
            x = np.clip(np.log(np.abs(y)) - self.centre - self.first, 0.0, 2.0 ** (0.25 * self.octave))
        left, negative = self.below[:, 0, 0], y < 0
        mass = self._upto(self._from_first(negative), x)[0]
        return np.clip(np.where(negative, left - mass, left + mass), 0.0, 1.0)

    def quantile(self, q: float) -> Array:
        """The q-quantile of every row, (k,)."""
        left = self.below[:, 0, 0]
        negative, wanted = q < left, np.abs(q - left)
        series, N = self._from_first(negative), 4 * self.above.shape[2]
        h = 2.0 ** (0.25 * self.octave) / N
        mass = self._upto_each(series, h * np.arange(N + 1.0))
        at = np.clip(np.sum(mass < wanted[:, None], axis=1) - 1, 0, N - 1)
        ends = [np.take_along_axis(mass, at[:, None] + i, axis=1)[:, 0] for i in (0, 1)]
        low, high = at * h, (at + 1) * h
        x = low + h * np.clip((wanted - ends[0]) / np.maximum(ends[1] - ends[0], 1e-300), 0.0, 1.0)
        for _ in range(NEWTON):
            F, f = self._upto(series, x)
            low, high = np.where(wanted > F, x, low), np.where(wanted > F, high, x)
            with np.errstate(divide="ignore", invalid="ignore"):
                x = x - (F - wanted) / f
            x = np.where((x >= low) & (x <= high), x, 0.5 * (low + high))
        return np.where(negative, -1.0, 1.0) * np.exp(self.centre + self.first + x)

    def _from_first(self, negative: NDArray[np.bool_]) -> Array:
        """Series of log |y| from the beginning of the period, of one sign."""
        a, b = np.where(negative[:, None, None], self.below, self.above).swapaxes(0, 1)
        angle = np.multiply.outer(self.first, self._omega())
        c, s = np.cos(angle), np.sin(angle)
        return np.stack([a * c + b * s, b * c - a * s], axis=1)

    def _upto(self, series: Array, x: Array) -> tuple[Array, Array]:
        """Integrals from the beginning of the period to x, (k,), and derivatives."""
        omega, period, mass = self._omega(), 2.0 ** (0.25 * self.octave), series[:, 0, 0]
        angle = np.multiply.outer(x, omega)
        waves = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        slopes, start = self._integrated(series)
        rise = np.einsum("kcn,kcn->k", slopes, waves[..., 1:]) - start
        return mass * x / period + rise, (2.0 * np.einsum("kcn,kcn->k", series, waves) - mass) / period

    def _upto_each(self, series: Array, x: Array) -> Array:
        """Integrals to every one of x (N,), (k, N)."""
        angle = np.multiply.outer(self._omega()[1:], x)
        slopes, start = self._integrated(series)
        rise = slopes.reshape(len(series), -1) @ np.concatenate([np.cos(angle), np.sin(angle)]) - start[:, None]
        return np.multiply.outer(series[:, 0, 0], x / 2.0 ** (0.25 * self.octave)) + rise

    def _integrated(self, series: Array) -> tuple[Array, Array]:
        """Coefficients (k, 2, n - 1) of the integral but for its linear term, and its value at zero."""
        a, b = series[:, 0, 1:], series[:, 1, 1:]
        slopes = np.stack([-b, a], axis=1) * (2.0 / (2.0 ** (0.25 * self.octave) * self._omega()[1:]))
        return slopes, slopes[:, 0].sum(axis=1)

    def _omega(self) -> Array:
        return frequencies(self.octave, self.above.shape[2])


def frequencies(octave: int, n: int) -> Array:
    """Multiples of 2 pi/period, the period 2^(octave/4).

    >>> frequencies(8, 3).round(4)
    array([0.    , 1.5708, 3.1416])
    """
    return 2.0 * np.pi / 2.0 ** (0.25 * octave) * np.arange(n)


def _chunks(m: int, per_row: int, doubles: int) -> Iterator[slice]:
    """Slices of rows with so many numbers each."""
    step = max(1, doubles // per_row)
    return (slice(i, i + step) for i in range(0, m, step))


# ---- nodes ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Latents:
    """What matters of the latents for one entry: first the log-variances, then the slopes.

    u are the differences of the log-variances from the first of them, and the slopes. Given u, the first log-variance
    is normal, and t is its distance from its mean.
    """

    law: EntryLaw
    table: Products
    mean: Array
    root: Array
    """Changes of the latents with D' - 1 standard normal numbers, which are those of u, (m, D', D' - 1)."""
    tau: Array

    @classmethod
    def of(cls, p: Predictive, law: EntryLaw, table: Products) -> _Latents:
        which = [*law.log_variances, *(slope for slope, _, _ in law.slopes)]
        mean, cov = p.latent_mean[:, which], p.latent_cov[:, which][:, :, which]
        to = np.roll(np.eye(len(which)), -1, axis=0)  # u, then the first log-variance
        to[: len(law.log_variances) - 1, 0] = -1.0
        root = cholesky_root(to @ cov @ to.T)
        return cls(law, table, mean, (np.linalg.inv(to) @ root)[:, :, :-1], root[:, -1, -1])

    @property
    def first_slope(self) -> int:
        """Place of the first slope among the latents."""
        return len(self.law.log_variances)

    def at(self, eta: Array) -> tuple[Array, Array | None]:
        """ell and k, which goes no further than it matters."""
        ell, k = self.law.at(eta)
        return ell, None if k is None else np.clip(k, -self.table.most, self.table.most)

    @property
    def width(self) -> Array:
        """Of the law of log |y|, (m,)."""
        return np.sqrt(self.tau**2 + float(polygamma(1, self.table.a)))

    def scale(self, eta: Array, j: int) -> Array:
        """Values (...) on whose scale slope j matters, at latents (D', ...)."""
        _, over, under = self.law.slopes[j - self.first_slope]
        places = [self.law.log_variances.index(i) for i in (over, under)]
        own = np.exp(np.clip(0.5 * (eta[places[0]] - eta[places[1]]), -300.0, 300.0))
        return own if self.law.diagonal else own / np.sqrt(2.0 * self.table.a)

    def changes(self) -> Array:
        """Change of the law over a standard deviation of each direction, in its own widths, (m, D')."""
        width = 1.0 / np.hypot(1.0 / self.width, 1.0 / 0.8)  # links bend, also where the law is wider
        out = np.zeros((len(self.mean), self.root.shape[2]))
        aside = AWAY * self.root[:, :, self.first_slope - 1 :].sum(axis=2)
        for j in range(out.shape[1]):
            # log-variances matter where slopes are not zero
            for base in (self.mean, self.mean + aside, self.mean - aside):
                ell, k = self.at(base.T)
                for sign in (-1.0, 1.0):
                    there, bent = self.at((base + sign * self.root[:, :, j]).T)
                    turn = 0.0 if k is None or bent is None else bent - k
                    out[:, j] = np.maximum(out[:, j], np.hypot((there - ell) / width, turn))
                if j + 1 >= self.first_slope:
                    break
            out[:, j] = np.hypot(out[:, j], POLE[self.law.diagonal] * self.turns(slice(None), j))
        return out

    def turns(self, rows: Rows | slice, j: int) -> Array:
        """Change of slopes over a standard deviation of direction j, in units of what matters next to zero, (k,)."""
        mean, root = self.mean[rows], self.root[rows]
        out = np.zeros(len(mean))
        for slope in range(self.first_slope, mean.shape[1]):
            moved, own = (np.abs(root[:, slope, i]) for i in (j, slope - 1))
            nearest = np.maximum(np.abs(mean[:, slope]) - NEAREST * moved, 0.0)
            away = np.hypot(self.scale(mean.T, slope), nearest)
            out = np.hypot(out, moved / (away if j == slope - 1 else np.hypot(away, own)))
        return out

    def nodes(self) -> Iterator[tuple[Rows, Array, Array]]:
        """Rows (k,), nodes (D', k, S) and weights (k, S)."""
        rows = np.arange(len(self.mean))
        yield from self._from(rows, self.mean.T[:, :, None], np.ones((len(rows), 1)), self.changes(), 0)

    def _from(
        self, rows: Rows, eta: Array, weights: Array, changes: Array, j: int
    ) -> Iterator[tuple[Rows, Array, Array]]:
        """Nodes of rows, one direction after the other; nodes (D', k, S) of those before j are given."""
        D, _, S = eta.shape
        if j == D - 1:
            yield rows, eta, weights
            return
        rule = np.searchsorted([h[0] for h in HERMITE], changes[rows, j])
        few = (rule < len(HERMITE)) & ((j + 1 < self.first_slope) | (changes[rows].max(axis=1) < HERMITE[-1][0]))
        known = np.all(self.root[rows, :, j] == 0, axis=1)
        low, high, c, spacing = self._range(rows, eta, j)
        count = np.ceil((high - low).max(axis=1) / spacing).astype(int) + 1
        step = 2 ** np.maximum(2, np.floor(np.log2(count)).astype(int) - 2)
        count = np.where(known, 1, np.where(few, -rule, np.maximum(step * -(-count // step), 12)))
        for N in np.unique(count):
            same = np.flatnonzero(count == N)
            x, w = hermite((HERMITE[-N][1] if N <= 0 else 1,))
            size = len(x) if N <= 1 else int(N)
            if size * S > (MOST if D <= 3 else MOST_OF_MORE):
                wide = changes[rows[same]].max(axis=1) > WIDE
                yield from self._sobol(rows[same[~wide]], "standard")
                yield from self._sobol(rows[same[wide]], "fine")
                continue
            for part in _chunks(len(same), D * S * size, NODE_DOUBLES):
                i = same[part]
                z = np.broadcast_to(x[:, 0], (len(i), S, size))
                if N > 1:
                    scale, sd = None if c is None else c[i], self.root[rows[i], j + 1, j]
                    z, w = _axis(low[i], high[i], size, scale, eta[j + 1, i], sd)
                nodes = eta[:, i][..., None] + self.root[rows[i], :, j].T[..., None, None] * z
                share = (weights[i][..., None] * w).reshape(len(i), -1)
                kept = np.any(share > CORNERS * share.max(axis=1, keepdims=True), axis=0)
                share = share[:, kept] / share[:, kept].sum(axis=1, keepdims=True)
                yield from self._from(rows[i], nodes.reshape(D, len(i), -1)[:, :, kept], share, changes, j + 1)

    def _sobol(self, rows: Rows, accuracy: str) -> Iterator[tuple[Rows, Array, Array]]:
        """Nodes without structure."""
        x, weights = matched_nodes(self.root.shape[2], accuracy)
        for part in _chunks(len(rows), x.size, NODE_DOUBLES):
            i = rows[part]
            eta = self.mean[i].T[:, :, None] + np.moveaxis(self.root[i] @ x.T, 1, 0)
            yield i, eta, np.broadcast_to(weights, eta.shape[1:])

    def _range(self, rows: Rows, eta: Array, j: int) -> tuple[Array, Array, Array | None, Array]:
        """Ends (k, S) of the nodes along direction j, scale c if they are those of arcsinh(slope/c), and distances."""
        variances, width = j + 1 < self.first_slope, self.width[rows]
        own, wide = OF_VARIANCE if variances else OF_SLOPE if self.law.diagonal else OFF_DIAGONAL
        law = np.hypot(1.0 / own, 1.0 / (wide * width))
        if variances:
            moved = np.abs(self.root[rows, : self.first_slope, j]).max(axis=1) + self.turns(rows, j)
            ends = np.full((len(rows), eta.shape[2]), REACH)
            return -ends, ends, None, 1.0 / np.hypot(1.0 / OF_NORMAL, moved * law)
        at, sd = eta[j + 1], self.root[rows, j + 1, j]
        sd = np.where(sd > 0, sd, 1.0)[:, None]
        c = np.minimum(np.maximum(self.scale(eta, j + 1), SMALLEST * sd), np.hypot(REACH * sd, at))
        low, high = (np.arcsinh((at + sign * REACH * sd) / c) for sign in (-1.0, 1.0))
        spacing = 1.0 / np.hypot(np.hypot(c, at) / (OF_NORMAL * sd), law[:, None])
        return low, high, c, spacing.min(axis=1)


def _axis(low: Array, high: Array, N: int, c: Array | None, at: Array, sd: Array) -> tuple[Array, Array]:
    """Standard normal nodes (k, S, N) and their weights: at equal distances, or at those of arcsinh(slope/c)."""
    t = low[..., None] + (high - low)[..., None] * np.linspace(0.0, 1.0, N)
    if c is None:
        z, stretch = t, np.ones_like(t)
    else:
        z, stretch = (c[..., None] * np.sinh(t) - at[..., None]) / sd[:, None, None], np.cosh(t)
    w = np.exp(-0.5 * z * z) * stretch
    return z, w / w.sum(axis=-1, keepdims=True)


# ---- quantiles -----------------------------------------------------------------------------------------------------
def entry_quantiles(p: Predictive, levels: Sequence[float]) -> Array:
    """Quantiles of every entry, encoded, (m, shape of one y, number of levels); of mixtures from tables of all parts.

    >>> from ggpm.families import Wishart
    >>> from ggpm.prediction.predictive import Predictive
    >>> family = Wishart(phi=5.0).resolve(np.eye(2)[None])
    >>> entry_quantiles(Predictive(family, np.zeros((1, 3)), np.zeros((1, 3, 3))), [0.95]).round(3)[0, ..., 0]
    array([[2.214, 0.732],
           [0.732, 2.214]])
    """
    laws = p.family.entry_laws()
    out = np.empty((len(p), *p.family.moment(p.latent_mean[:1]).shape[1:], len(levels)))
    for rows in _chunks(len(p), len(laws) * len(p.components), MOST_TABLES):
        found = _quantiles(p.rows(rows), levels, len(laws))
        for entry, law in enumerate(laws):
            for place in law.places:
                out[rows, *place] = found[:, entry]
    return out


def _quantiles(p: Predictive, levels: Sequence[float], size: int) -> Array:
    """Quantiles (m, size, number of levels) of as many entries."""
    total = size * len(p)
    made = [
        (w, list(_together((size * rows + entry, t) for rows, entry, t in entry_tables(part))))
        for w, part in p.components
    ]
    if len(made) == 1:
        found = gather(total, ((at, np.stack([t.quantile(q) for q in levels], axis=-1)) for at, t in made[0][1]))
        return found.reshape(len(p), size, -1)

    def cdf(y: Array) -> Array:
        return np.sum([w * gather(total, ((at, t.cdf(y[at])) for at, t in tables)) for w, tables in made], axis=0)

    def quantile(q: float) -> Array:
        ends = [gather(total, ((at, t.quantile(q)) for at, t in tables)) for _, tables in made]
        return values_between(cdf, q, np.min(ends, axis=0), np.max(ends, axis=0))

    return np.stack([quantile(q) for q in levels], axis=-1).reshape(len(p), size, -1)


def _together(tables: Iterable[tuple[Rows, EntryTable]]) -> Iterator[tuple[Rows, EntryTable]]:
    """The same in fewer tables."""
    alike: dict[tuple[int, int], list[tuple[Rows, EntryTable]]] = {}
    for at, table in tables:
        alike.setdefault((table.octave, table.above.shape[2]), []).append((at, table))
    for (octave, _), found in alike.items():
        arrays = zip(*((at, t.centre, t.first, t.above, t.below) for at, t in found))
        at, *rest = (np.concatenate(values) for values in arrays)
        yield at, EntryTable(octave, *rest)


# ---- tables --------------------------------------------------------------------------------------------------------
def entry_tables(p: Predictive) -> Iterator[tuple[Rows, int, EntryTable]]:
    """Rows, the number of an entry in `Family.entry_laws`, and its table.

    >>> from ggpm.families import Wishart
    >>> from ggpm.prediction.predictive import Predictive
    >>> family = Wishart(phi=5.0).resolve(np.eye(1)[None])
    >>> for rows, entry, table in entry_tables(Predictive(family, np.zeros((1, 1)), np.zeros((1, 1, 1)))):
    ...     print(rows, entry, table.quantile(0.05).round(4))  # of a chi-square, divided by five
    [0] 0 [0.2291]
    """
    table = products(0.5 * float(p.family.phi))
    series = _Series(table)
    for entry, law in enumerate(p.family.entry_laws()):
        latents = _Latents.of(p, law, table)
        for rows, eta, weights in latents.nodes():
            ell, k = latents.at(eta)
            for some, found in _tables(series, ell, k, weights, latents.tau[rows]):
                yield rows[some], entry, found


@dataclass(frozen=True)
class _Series:
    """Chebyshev series of the law's characteristic functions in k, over intervals of widths 1, sqrt(2), 2, ...

    Intervals of one width begin half a width apart.
    """

    law: Products
    densities: dict[tuple[int, int], tuple[Array, Array]] = field(default_factory=dict)
    known: dict[tuple[int, int, int], tuple[Complex, Complex]] = field(default_factory=dict)

    def windows(self, low: Array, high: Array) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
        """The narrowest intervals that hold those of rows: twice log2 of the width, and number."""
        last = max(0, int(np.ceil(2.0 * np.log2(2.0 * self.law.most))))
        window, start = np.full(len(low), last), np.zeros(len(low), dtype=int)
        for size in range(last - 1, -1, -1):
            half = 0.5 * 2.0 ** (0.5 * size)
            begin = np.floor((low + self.law.most) / half).astype(int)
            inside = high <= begin * half - self.law.most + 2.0 * half
            window, start = np.where(inside, size, window), np.where(inside, begin, start)
        return window, start

    @staticmethod
    def size(window: int) -> int:
        """Degree plus one."""
        return int(np.ceil(DIGITS / np.arcsinh(2.0 * STRIP / 2.0 ** (0.5 * window)))) + 1

    def middle(self, window: int, start: Array) -> Array:
        """Of the intervals."""
        return (start + 1.0) * 0.5 * 2.0 ** (0.5 * window) - self.law.most

    def count(self, far: Array, octave: Array, tau: Array) -> NDArray[np.int_]:
        """Numbers of frequencies, few different ones: up to where the law at k = far, widened by tau, has faded."""
        top = self.law.frequency[np.searchsorted(self.law.k, far)]
        top = 1.0 / np.hypot(1.0 / top, tau / 4.4)  # exp(-4.4²/2) is FADED
        count = np.ceil(top * 2.0 ** (0.25 * octave) / (2.0 * np.pi)).astype(int) + 2
        step = 2 ** np.maximum(2, np.floor(np.log2(count)).astype(int) - 2)
        return step * -(-count // step)

    def of(self, window: int, start: int, octave: int) -> tuple[Complex, Complex]:
        """Coefficients (size, n) for positive and negative entries, at as many frequencies as any row needs."""
        key = window, start, octave
        if key not in self.known:
            size, half, middle = (
                self.size(window),
                0.5 * 2.0 ** (0.5 * window),
                float(self.middle(window, np.array(start))),
            )
            if (window, start) not in self.densities:
                x = chebyshev.chebpts1(size)
                above, below = self.law.densities(middle + half * x)
                T = chebyshev.chebvander(x, size - 1).T * np.where(np.arange(size) > 0, 2.0, 1.0)[:, None] / size
                self.densities[window, start] = T @ above, T @ below
            far = np.minimum(abs(middle) + half, self.law.most)
            waves = self.law.waves(frequencies(octave, int(self.count(far, np.array(octave), np.array(0.0)))))
            above, below = self.densities[window, start]
            self.known[key] = above @ waves, below @ waves
        return self.known[key]


def _tables(
    series: _Series, ell: Array, k: Array | None, weights: Array, tau: Array
) -> Iterator[tuple[Rows, EntryTable]]:
    """Tables of rows with nodes (k, S)."""
    law, centre = series.law, np.einsum("ks,ks->k", weights, ell)
    ell = ell - centre[:, None]
    nearest, far = np.full(len(ell), len(law.k) - 1), np.full(len(ell), np.inf)
    window = start = np.zeros(len(ell), dtype=int)
    if k is not None:
        low, high = k.min(axis=1), k.max(axis=1)
        nearest = np.searchsorted(law.k, np.maximum(np.maximum(low, -high), 0.0), "right") - 1
        far = np.maximum(high, -low)
        window, start = series.windows(low, high)
    first = ell.min(axis=1) - REACH * tau + law.first[nearest]
    last = ell.max(axis=1) + REACH * tau + law.last[nearest]
    octave = np.ceil(4.0 * np.log2(last - first)).astype(int)
    keys = np.stack([octave, series.count(far, octave, tau), window], axis=1)
    for key in np.unique(keys, axis=0):
        some = np.flatnonzero((keys == key).all(axis=1))
        o, n, w = (int(x) for x in key)
        sides = np.empty((2, len(some), 2, n))
        size = 2 * n + series.size(w)
        for part in _chunks(len(some), ell.shape[1] * size, TABLE_DOUBLES):
            i = some[part]
            moments = np.zeros((len(i), 1 if k is None else series.size(w), 2 * n))
            for nodes in _chunks(ell.shape[1], len(i) * size, 2 * TABLE_DOUBLES):
                waves, share = _waves(frequencies(o, n)[1] * ell[i, nodes], n), weights[i, nodes]
                basis = share[None]
                if k is not None:
                    x = (k[i, nodes] - series.middle(w, start[i])[:, None]) / (0.5 * 2.0 ** (0.5 * w))
                    basis = _basis(np.clip(x, -1.0, 1.0), share, series.size(w))
                moments += np.matmul(basis.swapaxes(0, 1), np.moveaxis(waves, 0, 2))
            parts = moments.reshape(len(i), -1, 2, n)
            if k is None:
                sides[0, part], sides[1, part] = _contracted(parts, law.diagonal(frequencies(o, n))[None]), 0.0
                continue
            for begin in np.unique(start[i]):
                of = np.flatnonzero(start[i] == begin)
                for side, coefficients in zip(sides[:, part], series.of(w, int(begin), o)):
                    side[of] = _contracted(parts[of], coefficients[:, :n])
        sides *= np.exp(-0.5 * np.multiply.outer(tau[some], frequencies(o, n)) ** 2)[:, None]
        yield some, EntryTable(o, centre[some], first[some], *sides)


def _contracted(moments: Array, factor: Complex) -> Array:
    """Sums over r of products of complex numbers, as real and imaginary parts (k, r, 2, n), with others (r, n)."""
    a, b = (np.einsum("krcn,rn->ckn", moments, np.ascontiguousarray(part)) for part in (factor.real, factor.imag))
    return np.stack([a[0] - b[1], a[1] + b[0]], axis=1)


def _waves(angle: Array, n: int) -> Array:
    """cos(j angle) and sin(j angle), j < n, of angles (k, S): (2n, k, S)."""
    out = np.empty((2 * n, *angle.shape))
    out[0], out[1], out[n], out[n + 1] = 1.0, np.cos(angle), 0.0, np.sin(angle)
    return _recurrence(out.reshape(2, n, *angle.shape), out[1])


def _basis(x: Array, weights: Array, size: int) -> Array:
    """Weighted Chebyshev polynomials at x (k, S), (size, k, S)."""
    out = np.empty((size, *x.shape))
    out[0], out[1] = weights, weights * x
    return _recurrence(out[None], x)


def _recurrence(out: Array, x: Array) -> Array:
    """Complete values (..., n, k, S), the first two of n given, by Chebyshev's recurrence."""
    twice = 2.0 * x
    for values in out:
        for j in range(2, len(values)):
            np.multiply(twice, values[j - 1], out=values[j])
            values[j] -= values[j - 2]
    return out.reshape(-1, *x.shape)
