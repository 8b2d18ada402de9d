"""Nodes of the latents behind an entry of a matrix: as many as its law changes along each of their directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma

from ggpm.families.special.adaptive import cholesky_root
from ggpm.families.special.products import EntryLaw, Products
from ggpm.families.special.quadrature import matched_nodes
from ggpm.families.special.weighted_lattice import GRADIENTS, MOST_DIMENSIONS, lattice_nodes, turned_axes
from ggpm.prediction.nodes import hermite

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Change of the law over one standard deviation of a direction, in its own widths, and Gauss-Hermite nodes that then
# give distribution functions to 2e-6; where it is larger, nodes at equal distances are fewer.
HERMITE = ((1e-3, 1), (0.13, 3), (0.37, 5), (0.72, 8), (0.9, 10))
# Nodes of one row for up to two directions. Where there were more, Sobol points serve, 512 of them, and 4096 where the
# law changes by more than WIDE.
MOST, WIDE = 2**19, 4.0
# With more than two directions, points of a lattice: change of the law, and logarithm (base 2) of how many. Of latents
# with standard deviations of one, probabilities of matrices of order 3, which have lines instead, were off by 7e-5 in
# the median.
SIZES = ((0.7, 10), (1.8, 11), (3.5, 12), (5.0, 14), (np.inf, 16))
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
NODE_DOUBLES = 2**20  # numbers that are worked on at once


def chunks(m: int, per_row: int, doubles: int) -> Iterator[slice]:
    """Slices of rows with so many numbers each."""
    step = max(1, doubles // per_row)
    return (slice(i, i + step) for i in range(0, m, step))


def spacing_of(width: Array, diagonal: bool, variances: bool = False) -> Array:
    """Largest distance of nodes for laws of these widths: of log-variances, or of the arcsinh of slopes."""
    own, wide = OF_VARIANCE if variances else OF_SLOPE if diagonal else OFF_DIAGONAL
    return 1.0 / np.hypot(1.0 / own, 1.0 / (wide * width))


@dataclass(frozen=True)
class EntryLatents:
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
    def of(cls, p: Predictive, law: EntryLaw, table: Products) -> EntryLatents:
        which = [*law.log_variances, *(slope for slope, _, _ in law.slopes)]
        mean, cov = p.latent_mean[:, which], p.latent_cov[:, which][:, :, which]
        order = [*(i for i in range(1, len(which)) if i != law.last), *([law.last] if law.slopes else []), 0]
        to = np.eye(len(which))[order]  # u, of which the slope of lines comes last, and the first log-variance
        to[: len(law.log_variances) - 1, 0] = -1.0
        root = cholesky_root(to @ cov @ to.T)
        return cls(law, table, mean, (np.linalg.inv(to) @ root)[:, :, :-1], root[:, -1, -1])

    @property
    def few(self) -> bool:
        """Whether directions are so few that grids of all of them serve."""
        return self.root.shape[2] <= 2

    @property
    def first_slope(self) -> int:
        """Place of the first slope among the latents."""
        return len(self.law.log_variances)

    def at(self, eta: Array) -> tuple[Array, Array | None]:
        """ell and k."""
        ell, k = self.law.at(eta)
        return ell, None if k is None else self.clipped(k)

    def clipped(self, k: Array) -> Array:
        """k, which goes no further than it matters."""
        return np.clip(k, -self.table.most, self.table.most)

    @property
    def width(self) -> Array:
        """Of the law of log |y|, (m,)."""
        return np.sqrt(self.tau**2 + float(polygamma(1, self.table.a)))

    @property
    def bent_width(self) -> Array:
        return np.asarray(1.0 / np.hypot(1.0 / self.width, 1.0 / 0.8))  # links bend, also where the law is wider

    def scale(self, eta: Array, j: int) -> Array:
        """Values (...) on whose scale slope j matters, at latents (D', ...)."""
        _, over, under = self.law.slopes[j - self.first_slope]
        places = [self.law.log_variances.index(i) for i in (over, under)]
        own = np.exp(np.clip(0.5 * (eta[places[0]] - eta[places[1]]), -300.0, 300.0))
        return own if self.law.diagonal else own / np.sqrt(2.0 * self.table.a)

    def changes(self) -> Array:
        """Change of the law over a standard deviation of each direction, in its own widths, (m, D')."""
        width = self.bent_width
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

    def nodes(self) -> Iterator[tuple[Rows, Array, Array | None, Array]]:
        """Rows (k,), ell and k (k, S), without k on the diagonal, and weights (k, S)."""
        rows = np.arange(len(self.mean))
        if self.few:
            found = self._from(rows, self.mean.T[:, :, None], np.ones((len(rows), 1)), self.changes(), 0)
        else:
            found = self._along()
        for some, eta, weights in found:
            yield some, *self.at(eta), weights

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
            if size * S > MOST:
                wide = changes[rows[same]].max(axis=1) > WIDE
                for some, accuracy in ((same[~wide], "standard"), (same[wide], "fine")):
                    yield from self._placed(rows[some], *matched_nodes(D - 1, accuracy))
                continue
            for part in chunks(len(same), D * S * size, NODE_DOUBLES):
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

    def _along(self) -> Iterator[tuple[Rows, Array, Array]]:
        """Nodes of rows with many directions: points of a lattice, turned to where the law changes most."""
        m, D, d = self.root.shape
        if d > MOST_DIMENSIONS:
            yield from self._placed(np.arange(m), *matched_nodes(d, "fine"))
            return
        parts = chunks(m, GRADIENTS * d * D, NODE_DOUBLES)
        found = [turned_axes(some._at_points, len(some.mean), d) for some in map(self.of_rows, parts)]
        axes, changes = (np.concatenate(values) for values in zip(*found))
        size = np.array([log2 for _, log2 in SIZES])[
            np.searchsorted([c for c, _ in SIZES], np.linalg.norm(changes, axis=1))
        ]
        for log2 in np.unique(size):
            x, weights = lattice_nodes(d, int(log2))
            rows = np.flatnonzero(size == log2)
            for part in chunks(len(rows), x.size, NODE_DOUBLES):
                at = rows[part]
                eta = self._at(at, np.matmul(axes[at], x.T))
                yield at, eta, np.broadcast_to(weights, eta.shape[1:])

    def of_rows(self, rows: Rows | slice) -> EntryLatents:
        """Those of some rows."""
        return replace(self, mean=self.mean[rows], root=self.root[rows], tau=self.tau[rows])

    def _at_points(self, x: Array) -> Array:
        """``ell``, in widths of the law, and k, (m, S, 2), at standard normal numbers x (S, D' - 1)."""
        ell, k = self.at(self._at(slice(None), np.broadcast_to(x.T, (len(self.mean), *x.T.shape))))
        ell = ell / self.bent_width[:, None]
        return np.stack([ell, np.zeros_like(ell) if k is None else k], axis=-1)

    def _at(self, rows: Rows | slice, x: Array) -> Array:
        """Latents (D', k, S) of rows at standard normal numbers x (k, D' - 1, S)."""
        return self.mean[rows].T[:, :, None] + np.moveaxis(np.matmul(self.root[rows], x), 1, 0)

    def _placed(self, rows: Rows, x: Array, weights: Array) -> Iterator[tuple[Rows, Array, Array]]:
        """Nodes of standard normal numbers x (S, D' - 1), the same in all rows."""
        for part in chunks(len(rows), x.size, NODE_DOUBLES):
            i = rows[part]
            eta = self.mean[i].T[:, :, None] + np.moveaxis(self.root[i] @ x.T, 1, 0)
            yield i, eta, np.broadcast_to(weights, eta.shape[1:])

    def _range(self, rows: Rows, eta: Array, j: int) -> tuple[Array, Array, Array | None, Array]:
        """Ends (k, S) of the nodes along direction j, scale c if they are those of arcsinh(slope/c), and distances."""
        variances, width = j + 1 < self.first_slope, self.width[rows]
        law = 1.0 / spacing_of(width, self.law.diagonal, variances)
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
