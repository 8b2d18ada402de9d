"""Nodes of the latents behind an entry of a 3x3 matrix: a line over one coefficient, from each point of a lattice.

With one coefficient integrated, the law changes little with what is left, four normal numbers, even where the entry may
be next to zero: there it is that coefficient along which laws have needles. Lines have equal steps of k, which are
close where the entry is next to zero, and points that count less have shorter lines with fewer nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.centred_lattice import centred_nodes, size_of
from ggpm.families.special.weighted_lattice import GRADIENTS, turned_axes
from ggpm.prediction.entry_nodes import NODE_DOUBLES, OF_NORMAL, REACH, SMALLEST, EntryLatents, chunks, spacing_of

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

DIRECTIONS = 5  # of three variables: differences of log-variances, and coefficients
# Changes of the law along axes of the lattice, with the coefficient of the line integrated, and factors by which points
# are closer then; and, by the largest change, spacings and radii.
CHANGES = np.array([0.15, 0.35, 0.6, 0.85, 1.15, 1.5, 2.0, 2.6, 3.4, 4.5, 6.0, 8.0, 11.0])
FACTORS = np.hypot(1.0, CHANGES)
SPACINGS = ((0.15, 1.33, 4.5), (0.6, 1.2, 4.9), (1.15, 1.1, 5.1), (np.inf, 1.1, 5.2))
# By how much closer points are along the first two axes, as laws change more where other coefficients, too, are next to
# zero: on the diagonal, and off it without and with others on which sizes along the line hang. Measured on 480 entries
# with standard deviations of 0.1 to one.
CLOSER = {"diagonal": (1.5, 1.5), "apart": (1.25, 1.1), "entangled": (1.8, 1.0)}
# Points; where there would be more, spacings are larger, but no more than that much: rows whose laws change more have
# none of these lines.
MOST, COARSER = 25_000, 1.25
# Weights of all points that count no more, from which lines are shorter, with fewer nodes.
SHELLS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
STEP, FEWEST = 2, 8  # numbers of nodes of a line are multiples
LARGEST = 1e280  # of s, and of a coefficient's standard deviation, in units of their scale
KNOWN = 1e-7  # of the entry's own width: smallest standard deviation of the coefficient of a line


@dataclass(frozen=True)
class Points:
    """Points of the lattice, of which those count most that come first."""

    x: Array
    """Standard normal numbers (S, 4)."""
    weights: Array
    shells: tuple[tuple[slice, float], ...]
    """Points, and how many standard deviations their lines reach."""

    @classmethod
    def of(cls, x: Array, weights: Array) -> Points:
        """Those with weights that fall."""
        beyond = np.cumsum(weights[::-1])[::-1]
        ends = [0, *(int(np.sum(beyond > mass)) for mass in SHELLS), len(weights)]
        reach = [float(np.sqrt(REACH**2 + 2.0 * np.log(mass))) for mass in (1.0, *SHELLS)]
        return cls(x, weights, tuple((slice(a, b), r) for a, b, r in zip(ends, ends[1:], reach) if b > a))


def rule_of(classes: Sequence[int], kind: str) -> tuple[tuple[float, ...], float, float]:
    """Factors, spacing and radius of points for changes along four axes in these classes of `CHANGES`."""
    spacing, radius = next((h, r) for most, h, r in SPACINGS if CHANGES[max(classes)] <= most)
    factors = tuple(float(FACTORS[c]) * more for c, more in zip(classes, (*CLOSER[kind], 1.0, 1.0)))
    return factors, spacing * max(1.0, size_of(factors, spacing, radius) / MOST) ** 0.25, radius


@lru_cache(maxsize=32)
def points(classes: tuple[int, ...], kind: str) -> Points | None:
    """Points for these classes; None where the law changes too much."""
    if max(classes) == len(CHANGES):
        return None
    factors, spacing, radius = rule_of(classes, kind)
    return Points.of(*centred_nodes(factors, spacing, radius)) if spacing <= COARSER * SPACINGS[-1][1] else None


@dataclass(frozen=True)
class _Line:
    """Lines of some rows: what does not change along them, (k, S) or (k, 1)."""

    size: Array
    """Logarithm of the entry's size."""
    scale: Array
    centre: Array
    """k in the middle of the line."""
    sd: Array
    """Of the coefficient, in units of the scale."""

    def ends(self, reach: float) -> tuple[Array, Array]:
        """k at both ends."""
        middle, away = np.sinh(self.centre), reach * self.sd
        return np.arcsinh(middle - away), np.arcsinh(middle + away)

    def some(self, rows: Rows | slice, points: slice) -> _Line:
        return _Line(*(v[rows, points] for v in (self.size, self.scale, self.centre, self.sd)))


def line_nodes(latents: EntryLatents) -> Iterator[tuple[Rows, Array, Array | None, Array]]:
    """Rows (k,), ell and k (k, S), without k on the diagonal, and weights (k, S).

    Where the lattice would need too many points nodes are in all directions (`EntryLatents.nodes`).
    """
    lines = _Lines(latents)
    axes, changes = lines.axes()
    classes, which = np.unique(np.searchsorted(CHANGES, changes), axis=0, return_inverse=True)
    for i, alike in enumerate(classes.tolist()):
        rule, rows = points(tuple(alike), lines.kind), np.flatnonzero(which.ravel() == i)
        if rule is None:
            for some, ell, k, weights in latents.of_rows(rows).nodes():
                yield rows[some], ell, k, weights
            continue
        for part in chunks(len(rows), 8 * rule.x.size, NODE_DOUBLES):
            at = rows[part]
            yield from lines.nodes(at, lines.at(at, np.matmul(axes[at], rule.x.T)), rule)


@dataclass(frozen=True)
class _Lines:
    """Lines over the last coefficient."""

    latents: EntryLatents

    @property
    def kind(self) -> str:
        """Which of `CLOSER`."""
        law, first = self.latents.law, self.latents.first_slope
        if law.diagonal:
            return "diagonal"
        _, _, under = law.slopes[law.last - first]
        return "entangled" if any(over == under for _, over, _ in law.slopes) else "apart"

    @property
    def power(self) -> float:
        """Of hypot(s, c) in exp(ell)."""
        return 1.0 + self.latents.law.diagonal

    def at(self, rows: Rows | slice, x: Array) -> _Line:
        """Lines of rows through standard normal numbers x (k, 4, S)."""
        mean, root = self.latents.mean[rows], self.latents.root[rows]
        eta = mean.T[:, :, None] + np.moveaxis(np.matmul(root[:, :, :-1], x), 1, 0)
        s, log_scale, size = self.latents.law.line(eta)
        sd = root[:, self.latents.law.last, -1, None]
        with np.errstate(divide="ignore"):
            log_scale = np.maximum(log_scale, np.log(SMALLEST * sd))
        with np.errstate(over="ignore", invalid="ignore"):
            unit = np.exp(-log_scale)
            q, sd = np.clip(s * unit, -LARGEST, LARGEST), np.minimum(sd * unit, LARGEST)
        return _Line(size, log_scale, np.arcsinh(q), np.maximum(sd, KNOWN * np.hypot(1.0, q)))

    def axes(self) -> tuple[Array, Array]:
        """Axes of lattices, and changes along them, of the law with the coefficient integrated."""
        parts = chunks(len(self.latents.mean), GRADIENTS * 4 * 6, NODE_DOUBLES)
        some = [replace(self, latents=self.latents.of_rows(part)) for part in parts]
        found = [turned_axes(own._without_coefficient, len(own.latents.mean), 4, steep=1.0) for own in some]
        axes, changes = (np.concatenate(values) for values in zip(*found))
        return axes, changes

    def _without_coefficient(self, x: Array) -> Array:
        """``ell``, in widths of the law, and k, (m, S, 2), of the law with the coefficient integrated; x (S, 4)."""
        line = self.at(slice(None), np.broadcast_to(x.T, (len(self.latents.mean), *x.T.shape)))
        wider = np.hypot(1.0, line.sd)
        q = np.sinh(line.centre) / wider
        ell = line.size + self.power * (line.scale + np.log(wider) + 0.5 * np.log1p(q * q))
        k = np.zeros_like(q) if self.latents.law.diagonal else np.arcsinh(q)
        return np.stack([ell / self.latents.bent_width[:, None], k], axis=-1)

    def nodes(self, rows: Rows, line: _Line, rule: Points) -> Iterator[tuple[Rows, Array, Array | None, Array]]:
        """Nodes on lines of rows, as many as each row needs."""
        first, reach = rule.shells[0]
        low, high = line.some(slice(None), first).ends(reach)
        diagonal = self.latents.law.diagonal
        law = spacing_of(self.latents.width[rows], diagonal)[:, None]
        steps = (high - low) * np.hypot(np.cosh(line.centre[:, first]) / (OF_NORMAL * line.sd[:, first]), 1.0 / law)
        count = np.maximum(STEP * np.ceil((steps.max(axis=1) + 1.0) / STEP).astype(int), FEWEST)
        for N in np.unique(count):
            same = np.flatnonzero(count == N)
            sizes = [int(np.ceil(N * (r / REACH) ** 2)) for _, r in rule.shells]
            total = sum(n * (p.stop - p.start) for n, (p, _) in zip(sizes, rule.shells))
            for part in chunks(len(same), 8 * total, NODE_DOUBLES):
                i = same[part]
                found = [self._along(rows[i], line.some(i, p), r, n) for n, (p, r) in zip(sizes, rule.shells)]
                weights = [rule.weights[p, None] * w for (_, _, w), (p, _) in zip(found, rule.shells)]
                ell, k, w = (
                    np.concatenate([v.reshape(len(i), -1) for v in values], axis=1)
                    for values in (*list(zip(*found))[:2], weights)
                )
                yield rows[i], ell, None if diagonal else self.latents.clipped(k), w

    def _along(self, rows: Rows, line: _Line, reach: float, N: int) -> tuple[Array, Array, Array]:
        """ell, k and weights (k, S, N) along lines."""
        low, high = line.ends(reach)
        k = low[..., None] + (high - low)[..., None] * np.linspace(0.0, 1.0, N)
        e = np.exp(k)
        cosh, sinh = 0.5 * (e + 1.0 / e), 0.5 * (e - 1.0 / e)
        z = (sinh - np.sinh(line.centre)[..., None]) / line.sd[..., None]
        w = np.exp(-0.5 * z * z) * cosh
        ell = self.power * (np.log(cosh) + line.scale[..., None])
        ell += line.size[..., None] + self.latents.root[rows, 0, -1][:, None, None] * z
        return ell, k, w / w.sum(axis=-1, keepdims=True)
