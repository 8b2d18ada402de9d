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
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from ggpm.families.special.products import Products, products
from ggpm.prediction.entry_lines import DIRECTIONS, line_nodes
from ggpm.prediction.entry_nodes import REACH, EntryLatents, chunks
from ggpm.prediction.nodes import gather
from ggpm.prediction.roots import values_between

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Rows = NDArray[np.intp]

# Width of intervals of k, and polynomials on each: the law is an analytic function of k so far as pi/4 from the real
# line (measured), so that they are right to exp(-SIZE arcsinh(pi/2/WIDTH)).
WIDTH, SIZE = 1.5, 13
TOGETHER = 512  # nodes in one product of matrices: twice as quick as thousands (OpenBLAS)
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
        lines = latents.root.shape[2] == DIRECTIONS
        for rows, ell, k, weights in line_nodes(latents) if lines else latents.nodes():
            for some, found in _tables(series, ell, k, weights, latents.tau[rows]):
                yield rows[some], entry, found


@dataclass(frozen=True)
class _Series:
    """Chebyshev series of the law's characteristic functions in k, over intervals of one width."""

    law: Products
    known: dict[int, tuple[Complex, Complex]] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """Number of intervals."""
        return int(np.ceil(2.0 * self.law.most / WIDTH))

    def cell(self, k: Array) -> tuple[NDArray[np.int_], Array]:
        """In which interval, and where in it from -1 to 1."""
        place = (k + self.law.most) / WIDTH
        cell = np.clip(place.astype(int), 0, self.cells - 1)
        return cell, 2.0 * (place - cell) - 1.0

    def count(self, far: Array, octave: Array, tau: Array) -> NDArray[np.int_]:
        """Numbers of frequencies, few different ones: up to where the law at k = far, widened by tau, has faded."""
        top = self.law.frequency[np.searchsorted(self.law.k, far)]
        top = 1.0 / np.hypot(1.0 / top, tau / 4.4)  # exp(-4.4²/2) is FADED
        count = np.ceil(top * 2.0 ** (0.25 * octave) / (2.0 * np.pi)).astype(int) + 2
        step = 2 ** np.maximum(2, np.floor(np.log2(count)).astype(int) - 2)
        return step * -(-count // step)

    @cached_property
    def densities(self) -> tuple[Array, Array]:
        """Coefficients (cells SIZE, X) of the densities of log |w|, of positive and of negative w."""
        x = chebyshev.chebpts1(SIZE)
        T = chebyshev.chebvander(x, SIZE - 1).T * np.where(np.arange(SIZE) > 0, 2.0, 1.0)[:, None] / SIZE
        k = (np.arange(self.cells)[:, None] + 0.5 + 0.5 * x) * WIDTH - self.law.most
        above, below = ((T @ f.reshape(*k.shape, -1)).reshape(k.size, -1) for f in self.law.densities(k.ravel()))
        return above, below

    def of(self, octave: int) -> tuple[Complex, Complex]:
        """Coefficients (cells SIZE, n) for positive and negative entries, at as many frequencies as any row needs."""
        if octave not in self.known:
            size = int(self.count(np.array(self.law.most), np.array(octave), np.array(0.0)))
            waves = self.law.waves(frequencies(octave, size))
            above, below = self.densities
            self.known[octave] = above @ waves, below @ waves
        return self.known[octave]


def _tables(
    series: _Series, ell: Array, k: Array | None, weights: Array, tau: Array
) -> Iterator[tuple[Rows, EntryTable]]:
    """Tables of rows with nodes (k, S)."""
    law, centre = series.law, np.einsum("ks,ks->k", weights, ell)
    ell = ell - centre[:, None]
    nearest, far = np.full(len(ell), len(law.k) - 1), np.full(len(ell), np.inf)
    if k is not None:
        low, high = k.min(axis=1), k.max(axis=1)
        nearest = np.searchsorted(law.k, np.maximum(np.maximum(low, -high), 0.0), "right") - 1
        far = np.maximum(high, -low)
    first = ell.min(axis=1) - REACH * tau + law.first[nearest]
    last = ell.max(axis=1) + REACH * tau + law.last[nearest]
    octave = np.ceil(4.0 * np.log2(last - first)).astype(int)
    keys = np.stack([octave, series.count(far, octave, tau)], axis=1)
    for key in np.unique(keys, axis=0):
        some = np.flatnonzero((keys == key).all(axis=1))
        o, n = (int(x) for x in key)
        sides = np.zeros((2, len(some), 2, n))
        for part in chunks(len(some), ell.shape[1] * (2 * n + SIZE), TABLE_DOUBLES):
            i = some[part]
            for nodes in chunks(ell.shape[1], len(i) * (2 * n + SIZE), 2 * TABLE_DOUBLES):
                angle = frequencies(o, n)[1] * ell[i, nodes]
                if k is None:
                    share = weights[i, nodes].astype(np.float32)[:, None]
                    moments = np.matmul(share, np.moveaxis(_waves(angle.astype(np.float32), n), 0, 2)).reshape(
                        -1, 1, 2, n
                    )
                    sides[0, part] += _contracted(moments, law.diagonal(frequencies(o, n))[None])
                    continue
                moments = _moments(series, angle, k[i, nodes], weights[i, nodes], n)
                for side, coefficients in zip(sides[:, part], series.of(o)):
                    side += _contracted(moments, coefficients[:, :n])
        sides *= np.exp(-0.5 * np.multiply.outer(tau[some], frequencies(o, n)) ** 2)[:, None]
        yield some, EntryTable(o, centre[some], first[some], *sides)


def _moments(series: _Series, angle: Array, k: Array, weights: Array, n: int) -> Array:
    """Averages of Chebyshev polynomials in k times waves, (rows, cells SIZE, 2, n), over nodes (rows, S)."""
    cells = series.cells
    cell, x = series.cell(k)
    cell += cells * np.arange(len(k))[:, None]
    order = np.argsort(cell.astype(np.uint16 if len(k) * cells < 2**16 else np.intp), axis=None, kind="stable")
    waves = _waves(angle.ravel()[order].astype(np.float32), n)
    basis = _basis(x.ravel()[order].astype(np.float32), weights.ravel()[order].astype(np.float32))
    ends = np.cumsum(np.bincount(cell.ravel(), minlength=len(k) * cells))
    out = np.zeros((len(k) * cells, SIZE, 2 * n))
    for moments, start, end in zip(out, np.append(0, ends), ends):
        for begin in range(start, end, TOGETHER):
            nodes = slice(begin, min(begin + TOGETHER, end))
            moments += basis[:, nodes] @ waves[:, nodes].T
    return out.reshape(len(k), cells * SIZE, 2, n)


def _contracted(moments: Array, factor: Complex) -> Array:
    """Sums over r of products of complex numbers, as real and imaginary parts (k, r, 2, n), with others (r, n)."""
    a, b = (np.einsum("krcn,rn->ckn", moments, np.ascontiguousarray(part)) for part in (factor.real, factor.imag))
    return np.stack([a[0] - b[1], a[1] + b[0]], axis=1)


def _waves(angle: Array, n: int) -> Array:
    """cos(j angle) and sin(j angle), j < n, of angles (...): (2n, ...), twice as many j with every step.

    >>> waves = _waves(np.array([0.5]), 9)[:, 0]
    >>> bool(np.allclose(waves, np.concatenate([f(0.5 * np.arange(9)) for f in (np.cos, np.sin)]), atol=1e-6))
    True
    """
    out = np.empty((2, n, *angle.shape), dtype=np.float32)
    out[0, 0], out[1, 0] = 1.0, 0.0
    for values, function in zip(out, (np.cos, np.sin)):
        function(angle, out=values[1], casting="same_kind")
    last = 1
    while last < n - 1:
        more, twice = min(last, n - 1 - last), 2.0 * out[0, last]
        back = slice(last - 1, last - 1 - more if more < last else None, -1)
        for values, combine in zip(out, (np.subtract, np.add)):
            new = values[last + 1 : last + 1 + more]
            np.multiply(values[1 : more + 1], twice, out=new)
            combine(new, values[back], out=new)
        last += more
    return out.reshape(2 * n, *angle.shape)


def _basis(x: Array, weights: Array) -> Array:
    """Weighted Chebyshev polynomials at x (S,), (SIZE, S)."""
    out, twice = np.empty((SIZE, *x.shape), dtype=x.dtype), 2.0 * x
    out[0], out[1] = weights, weights * x
    for j in range(2, SIZE):
        np.multiply(twice, out[j - 1], out=out[j])
        out[j] -= out[j - 2]
    return out
