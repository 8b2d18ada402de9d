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

from ggpm.families.special.products import Products, products
from ggpm.prediction.entry_nodes import REACH, EntryLatents, chunks
from ggpm.prediction.nodes import gather
from ggpm.prediction.roots import values_between

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Rows = NDArray[np.intp]

STRIP = 0.8  # the law is an analytic function of k so far from the real line (measured: pi/4)
DIGITS = 11.0  # natural logarithm of the accuracy of polynomials in k
TABLE_DOUBLES = 2**20  # numbers that are worked on at once
NEWTON = 3  # steps after a linear interpolation
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
    for rows in chunks(len(p), len(laws) * len(p.components), MOST_TABLES):
        found = _quantiles(p.rows(rows), levels, len(laws))
        for entry, law in enumerate(laws):
            for place in law.places:
                out[rows, *place] = found[:, entry]
    return out


def _quantiles(p: Predictive, levels: Sequence[float], size: int) -> Array:
    """Quantiles (m, size, number of levels) of as many entries."""
    total = size * len(p)
    made = [
        (np.repeat(w, size), list(_together((size * rows + entry, t) for rows, entry, t in entry_tables(part))))
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
        latents = EntryLatents.of(p, law, table)
        digits = np.float64 if latents.few else np.float32  # many directions leave more than roundings do: 2e-5
        for rows, eta, weights in latents.nodes():
            ell, k = latents.at(eta)
            for some, found in _tables(series, ell, k, weights, latents.tau[rows], digits):
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
    series: _Series, ell: Array, k: Array | None, weights: Array, tau: Array, digits: type = np.float64
) -> Iterator[tuple[Rows, EntryTable]]:
    """Tables of rows with nodes (k, S), whose waves have so many digits."""
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
        for part in chunks(len(some), ell.shape[1] * size, TABLE_DOUBLES):
            i = some[part]
            moments = np.zeros((len(i), 1 if k is None else series.size(w), 2 * n))
            for nodes in chunks(ell.shape[1], len(i) * size, 2 * TABLE_DOUBLES):
                angle = frequencies(o, n)[1] * ell[i, nodes]
                share: NDArray = weights[i, nodes].astype(digits)
                waves, basis = _waves(angle.astype(digits), n), share[None]
                if k is not None:
                    x = (k[i, nodes] - series.middle(w, start[i])[:, None]) / (0.5 * 2.0 ** (0.5 * w))
                    basis = _basis(np.clip(x, -1.0, 1.0).astype(digits), share, series.size(w))
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
    out = np.empty((2 * n, *angle.shape), dtype=angle.dtype)
    out[0], out[1], out[n], out[n + 1] = 1.0, np.cos(angle), 0.0, np.sin(angle)
    return _recurrence(out.reshape(2, n, *angle.shape), out[1])


def _basis(x: Array, weights: Array, size: int) -> Array:
    """Weighted Chebyshev polynomials at x (k, S), (size, k, S)."""
    out = np.empty((size, *x.shape), dtype=x.dtype)
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
