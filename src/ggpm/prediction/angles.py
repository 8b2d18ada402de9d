"""Angles: tables of distribution functions on the circle, and the shortest arcs.

The density of every row is averaged over the latent at points that are dense where the angles are; its Fourier series
gives the distribution function everywhere. Families that know the series itself give that instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import batches
from ggpm.families.support import Circle
from ggpm.prediction.nodes import Rows, hermite, latent_nodes, mixture_density

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

# Points at which densities are computed, tried in turn until the last quarter of the Fourier series is below TAIL: the
# first is enough for nearly all rows of a fit.
SIZES = (48, 96, 192, 384, 768)
TAIL = 1e-7
# Newton's steps for the ends of an arc from the best of two arcs for every point of the table.
ARC_STEPS = 6
SETTLED = 1e-5  # of a table's spacing: after a step of Newton's as short, the next is below 1e-9 of it
TABLE_DOUBLES = 2**17  # nodes times points that are worked on at once: they stay in the processor's cache
TOGETHER = 2**17  # points of tables that are answered together
KEPT = 1024  # rows whose tables are kept with them: half a megabyte, six if all have the finest


@dataclass(frozen=True)
class CircularTable:
    """Distribution functions of some angles, in radians.

    The table of a row is in t, ``theta = centre + 2 atan(scale tan(t/2))``: a smooth periodic stretching, under which
    integrals by the trapezoidal rule keep all their digits.
    """

    centre: Array
    scale: Array
    mean: Array
    """Mean directions; ``centre`` is near them."""
    series: NDArray[np.complex128]
    """Fourier coefficients of the density in t + pi, (m, K), from zero on; the first is 1/(2 pi)."""

    def angle(self, t: Array) -> Array:
        """theta - centre, growing by a full turn for every turn of t."""
        turn = np.round(t / (2 * np.pi))
        half = 0.5 * (t - 2 * np.pi * turn)
        return 2.0 * np.arctan2(self._scale(t) * np.sin(half), np.cos(half)) + 2 * np.pi * turn

    def _scale(self, t: Array) -> Array:
        return self.scale.reshape(-1, *[1] * (t.ndim - 1))

    def place(self, theta: Array) -> Array:
        """t of angles, in [-pi, pi)."""
        half = 0.5 * self._from_centre(theta)
        return 2.0 * np.arctan2(np.sin(half), self.scale * np.cos(half))

    def _from_centre(self, theta: Array) -> Array:
        return np.mod(theta - self.centre + np.pi, 2 * np.pi) - np.pi

    def at(self, t: Array) -> tuple[Array, Array, Array]:
        """Probability from t = -pi, its derivative in t, and that of the density in theta, one t per row."""
        k = np.arange(self.series.shape[1])
        # powers of exp(i (t + pi)): products cost a tenth of exponentials, and lose one digit of sixteen
        wave = np.empty(self.series.shape, dtype=complex)
        wave[:, 0] = 1.0
        wave[:, 1:] = np.exp(1j * (t + np.pi))[:, None]
        np.multiply.accumulate(wave, axis=1, out=wave)
        wave *= self.series
        # a term w of the series adds w / (i k) to the integral and i k w to the slope: their real parts
        F = np.einsum("mk,k->m", (wave.imag - self.series.imag)[:, 1:], 2.0 / k[1:]) + (t + np.pi) / (2 * np.pi)
        f = 2.0 * wave.real.sum(axis=1) - self.series[:, 0].real
        slope = np.einsum("mk,k->m", wave.imag, -2.0 * k)
        # density in theta: f / theta', theta' = scale/(cos² + scale² sin²)
        c, s, a = np.cos(0.5 * t), np.sin(0.5 * t), self.scale
        inverse = (c * c + (a * s) ** 2) / a
        return F, f, slope * inverse + f * (a * a - 1.0) * s * c / a

    def log_density(self, theta: Array) -> Array:
        """Log density per radian, one angle per row."""
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(self.density(theta[:, None])[:, 0], 0.0))

    def density(self, theta: Array) -> Array:
        """Densities per radian of angles (m, G), below zero by rounding where there is next to none."""
        half, a = 0.5 * np.mod(theta - self.centre[:, None] + np.pi, 2 * np.pi) - 0.5 * np.pi, self.scale[:, None]
        t = 2.0 * np.arctan2(np.sin(half), a * np.cos(half))
        z, wave = np.exp(1j * (t + np.pi)), np.zeros(theta.shape, dtype=complex)
        for k in reversed(range(self.series.shape[1])):  # Horner's rule
            wave *= z
            wave += self.series[:, k, None]
        f = 2.0 * wave.real - self.series[:, :1].real
        return f * (np.cos(0.5 * t) ** 2 + (a * np.sin(0.5 * t)) ** 2) / a

    def rows(self, some: NDArray[np.bool_]) -> CircularTable:
        """The tables of some rows."""
        return CircularTable(self.centre[some], self.scale[some], self.mean[some], self.series[some])

    def cdf(self, theta: Array) -> Array:
        """P(Y between mean - pi and theta), going forwards."""
        return self.between(self.mean - np.pi, theta)

    def between(self, start: Array, theta: Array) -> Array:
        """P(Y on the arc from start forwards to theta)."""
        # the cut opposite the centre lies on the arc where theta comes before the start, seen from the centre
        past_the_cut = self._from_centre(theta) < self._from_centre(start)
        first, last = (self.at(self.place(angle))[0] for angle in (start, theta))
        return np.clip(last - first + past_the_cut, 0.0, 1.0)

    def fine(self, times: int = 2) -> tuple[Array, Array, Array]:
        """t (N,), and probabilities from t = -pi and densities in t there, (m, N)."""
        K = self.series.shape[1]
        N = times * 2 * (K - 1)
        k = np.arange(K)
        padded = np.zeros((len(self.series), N // 2 + 1), dtype=complex)
        padded[:, :K] = self.series
        density = np.fft.irfft(padded, n=N, axis=1) * N
        padded[:, 1:K] = self.series[:, 1:] / (1j * k[1:])
        padded[:, 0] = 0.0
        wave = np.fft.irfft(padded, n=N, axis=1) * N
        return 2 * np.pi * np.arange(N) / N - np.pi, wave - wave[:, :1] + np.arange(N) / N, density

    def drawn(self, uniform: Array) -> Array:
        """Angles (S, m) at which probabilities from opposite the centre are uniform numbers, to 1e-4 of a spread."""
        t, F, _ = self.fine(8)
        F = np.maximum.accumulate(np.clip(F, 0.0, 1.0), axis=1)  # a series dips below zero by rounding
        t = np.append(t, np.pi)
        at = np.stack([np.interp(u, np.append(row, 1.0), t) for u, row in zip(uniform.T, F, strict=True)])
        return (self.centre[:, None] + self.angle(at)).T

    def resultant(self) -> Array:
        """E[(cos Y, sin Y)], (m, 2)."""
        density = self.fine(1)[2]
        theta, _ = _grid(self.centre, self.scale, density.shape[1])
        mean = np.mean(density * np.exp(1j * theta), axis=1) * 2 * np.pi
        return np.stack([mean.real, mean.imag], axis=1)

    def reweighted(self, weight: Callable[[Array], Array]) -> CircularTable:
        """Tables of densities times a periodic function of the probability from opposite the mean, (m, N) there."""
        _, F, density = self.fine()
        cut = self.at(self.place(self.mean - np.pi))[0]
        theta, _ = _grid(self.centre, self.scale, density.shape[1])
        mean, series = _fourier(density * weight(np.mod(F - cut[:, None], 1.0)), theta)
        return CircularTable(self.centre, self.scale, mean, series)

    def shortened(self, size: int) -> list[tuple[Rows, CircularTable]]:
        """The same, with no more than so many coefficients in rows whose others are next to nothing."""
        short = np.abs(self.series[:, size:]).max(axis=1, initial=0.0) < TAIL
        both = [(np.flatnonzero(some), self.rows(some)) for some in (short, ~short) if some.any()]
        return [
            (rows, replace(table, series=table.series[:, :size]) if short[rows[0]] else table) for rows, table in both
        ]

    def threshold(self, level: float) -> Array:
        """log of the density, per radian, on the border of the smallest region of the level."""
        t, _, density = self.fine(8)
        c, s, a = np.cos(0.5 * t), np.sin(0.5 * t), self.scale[:, None]
        per_radian = np.maximum(density * (c * c + (a * s) ** 2) / a, 0.0)
        order = np.argsort(-per_radian, axis=1)
        mass = np.cumsum(np.take_along_axis(np.maximum(density, 0.0), order, axis=1), axis=1)
        rank = np.sum(mass < level * mass[:, -1:], axis=1)
        with np.errstate(divide="ignore"):
            return np.log(per_radian[np.arange(len(rank)), np.take_along_axis(order, rank[:, None], axis=1)[:, 0]])

    def shortest_arc(self, level: float) -> Array:
        """Shortest arcs (start, end) of the given probability, (m, 2), radians, end >= start."""
        a, b = self._coarse_arc(level)
        best_a, best_b = a, self._close(a, b, level)
        spacing = np.pi / (2 * (self.series.shape[1] - 1))
        a, b = best_a, best_b
        for _ in range(ARC_STEPS):
            # p(a) = p(b), densities in theta, and F(b) - F(a) = level; Newton, by Cramer's rule
            (F_a, f_a, s_a), (F_b, f_b, s_b) = self._at(a), self._at(b)
            p_a, p_b = f_a * self._inverse(a), f_b * self._inverse(b)
            short, uneven = level - (F_b - F_a), p_a - p_b
            det = s_a * f_b - s_b * f_a
            with np.errstate(divide="ignore", invalid="ignore"):
                move_a = (s_b * short - f_b * uneven) / det
                move_b = (s_a * short - f_a * uneven) / det
            stay = ~np.isfinite(move_a + move_b) | (f_a < 0) | (f_b < 0)
            longest = np.where(stay, 0.0, np.maximum(np.abs(move_a), np.abs(move_b)))
            limit = np.minimum(1.0, 2.0 * spacing / np.maximum(longest, 1e-300))
            a, b = np.where(stay, a, a + limit * move_a), np.where(stay, b, b + limit * move_b)
            if longest.max(initial=0.0) < SETTLED * spacing:
                break
        b = self._close(a, b, level)
        # a saddle, or a density without slope: the arc that was searched for stays
        with np.errstate(invalid="ignore"):
            shorter = self.angle(b) - self.angle(a) <= self.angle(best_b) - self.angle(best_a)
            shorter &= np.abs(self._at(b)[0] - self._at(a)[0] - level) < 1e-9
        a, b = np.where(shorter, a, best_a), np.where(shorter, b, best_b)
        return self.centre[:, None] + np.stack([self.angle(a), self.angle(b)], axis=1)

    def _at(self, t: Array) -> tuple[Array, Array, Array]:
        """`at` for any t, a full turn adding one to the probability."""
        turn = np.floor((t + np.pi) / (2 * np.pi))
        F, f, slope = self.at(t - 2 * np.pi * turn)
        return F + turn, f, slope

    def _inverse(self, t: Array) -> Array:
        """dt/dtheta."""
        return (np.cos(0.5 * t) ** 2 + (self.scale * np.sin(0.5 * t)) ** 2) / self.scale

    def _close(self, a: Array, b: Array, level: float) -> Array:
        """b moved so that the arc from a has the level: Newton's method, few steps from a b that is near."""
        F_a = self._at(a)[0]
        for _ in range(3):
            F, f, _ = self._at(b)
            with np.errstate(divide="ignore", invalid="ignore"):
                move = (F_a + level - F) / f
            move = np.where(np.isfinite(move), np.clip(move, -0.2, 0.2), 0.0)
            b = b + move
            if np.abs(move).max(initial=0.0) < 1e-9:
                break
        return b

    def _coarse_arc(self, level: float) -> tuple[Array, Array]:
        """The shortest of the arcs that start at the points of a fine table, both ends in t."""
        t, F, _ = self.fine()
        m, N = F.shape
        # the series of a density that is nearly zero somewhere dips below it by rounding
        F = np.maximum.accumulate(np.clip(F, 0.0, 1.0), axis=1)
        two = np.concatenate([F, F + 1.0], axis=1)
        # one search for all rows: each lies three above the one before
        lift = 3.0 * np.arange(m)[:, None]
        index = np.searchsorted((two + lift).ravel(), (F + level + lift).ravel()).reshape(m, N)
        index = np.clip(index - 2 * N * np.arange(m)[:, None], 1, 2 * N - 1)
        below, above = (np.take_along_axis(two, i, axis=1) for i in (index - 1, index))
        rise = above - below
        share = np.where(rise > 0, (F + level - below) / np.where(rise > 0, rise, 1.0), 0.0)
        theta = self.angle(np.broadcast_to(t, F.shape))
        theta = np.concatenate([theta, theta + 2 * np.pi], axis=1)
        below, above = (np.take_along_axis(theta, i, axis=1) for i in (index - 1, index))
        best = np.argmin(below + share * (above - below) - theta[:, :N], axis=1)[:, None]
        end = np.take_along_axis(index - 1 + share, best, axis=1)[:, 0]
        return t[best[:, 0]], t[0] + end * (t[1] - t[0])


def circular_tables(p: Predictive) -> Iterable[tuple[Rows, CircularTable]]:
    """Tables of some rows at a time; those of few rows are kept, as one question follows another.

    >>> from ggpm.families import VonMises
    >>> from ggpm.prediction.predictive import Predictive
    >>> one = Predictive(VonMises(), np.array([[4.0, 0.0]]), np.zeros((1, 2, 2)))
    >>> [table.cdf(np.array([0.0])).round(12) for _, table in circular_tables(one)]
    [array([0.5])]
    """
    return p._circular_tables if len(p) <= KEPT else p._make_circular_tables()


def made_tables(p: Predictive) -> Iterator[tuple[Rows, CircularTable]]:
    """`circular_tables`, made anew."""
    if len(p.components) > 1:
        for some in batches(len(p), 8 * SIZES[0] * len(p.components)):
            yield from ((rows + some.start, table) for rows, table in _mixed(p.rows(some)))
        return
    made: dict[int, list[tuple[Rows, CircularTable]]] = {size: [] for size in SIZES}
    held = dict.fromkeys(SIZES, 0)
    for rows, size, table in _tables(p):
        # tables come for some rows at a time, and answers are cheaper for many at once
        made[size].append((rows, table))
        held[size] += len(rows)
        if held[size] * size > TOGETHER:
            yield _joined(made[size])
            made[size], held[size] = [], 0
    yield from (_joined(tables) for tables in made.values() if tables)


def _joined(tables: list[tuple[Rows, CircularTable]]) -> tuple[Rows, CircularTable]:
    rows = np.concatenate([some for some, _ in tables])
    fields = ("centre", "scale", "mean", "series")
    return rows, CircularTable(*(np.concatenate([getattr(table, name) for _, table in tables]) for name in fields))


def _tables(p: Predictive) -> Iterator[tuple[Rows, int, CircularTable]]:
    left = np.ones(len(p), dtype=bool)
    if p.family.has("predictive_harmonics"):
        for rows, c in p.family.predictive_harmonics(p.latent_mean, p.latent_cov):
            left[rows] = False
            yield rows, 2 * (c.shape[1] - 1), _from_harmonics(c)
    if left.any():
        some = np.flatnonzero(left)
        yield from ((some[rows], size, table) for rows, size, table in _from_nodes(p.rows(some)))


def _from_harmonics(c: NDArray[np.complex128]) -> CircularTable:
    """Tables, evenly in theta, of angles with E[exp(i n theta)] = c_n."""
    mean = np.angle(c[:, 1])
    series = c.conj() * np.exp(1j * np.multiply.outer(mean - np.pi, np.arange(c.shape[1])))
    return CircularTable(mean, np.ones(len(c)), mean, series / (2 * np.pi * c[:, :1].real))


def _from_nodes(p: Predictive) -> Iterator[tuple[Rows, int, CircularTable]]:
    # the information about the latent is 1/kappa across the mean direction and less along it
    U = np.eye(2) / (1.0 + np.linalg.norm(p.latent_mean, axis=1))[:, None, None]
    if p.latent_mean.shape[1] != 2:  # latents of other kinds: their own information, and on the scale of one
        U = p.family.U(p.latent_mean, np.zeros(len(p)), expected=True).dense() + np.eye(p.latent_mean.shape[1])
    root = p.cholesky()
    few, share = hermite((5,) * p.latent_mean.shape[1])
    for rows, eta, weights in latent_nodes(p.latent_mean, root, U, 2 * SIZES[0]):
        # where the angles are, roughly
        coarse = p.latent_mean[rows, None] + few @ root[rows].swapaxes(1, 2)
        moment = np.einsum("s,ksj->kj", share, p.family.moment(coarse))
        centre, length = np.arctan2(moment[:, 1], moment[:, 0]), np.hypot(moment[:, 0], moment[:, 1])
        scale = _stretch(length)
        todo = np.arange(len(rows))
        for size in SIZES:
            some = weights if len(weights) == 1 else weights[todo]
            mean, series = _series(p, eta[todo], some, centre[todo], scale[todo], size)
            good = np.abs(series[:, -(size // 8) :]).max(axis=1) < TAIL
            if size == SIZES[-1]:
                good[:] = True
            done = todo[good]
            if done.size:
                yield rows[done], size, CircularTable(centre[done], scale[done], mean[good], series[good])
            todo = todo[~good]
            if not todo.size:
                break


def _stretch(length: Array) -> Array:
    """Scales of tables of angles whose moments have these lengths: somewhat wider than the density, 1 is even."""
    # tan(half the spread), from E[1 - cos] = 1 - length
    return np.minimum(1.0, 3.0 * np.sqrt(np.maximum(1.0 - length, 1e-16) / 2.0))


def _mixed(p: Predictive) -> Iterator[tuple[Rows, CircularTable]]:
    """Tables of a mixture, from the densities of its parts' tables on grids of its own."""
    made = [(w, list(made_tables(part))) for w, part in p.components]
    moment = p._moment()
    centre, scale = np.arctan2(moment[:, 1], moment[:, 0]), _stretch(np.hypot(moment[:, 0], moment[:, 1]))
    left = np.ones(len(p), dtype=bool)
    for size in SIZES:
        theta, slope = _grid(centre, scale, size)
        density = np.zeros_like(theta)
        for w, tables in made:
            for rows, table in tables:
                some = rows[left[rows]]
                density[some] += w[some, None] * np.maximum(table.rows(left[rows]).density(theta[some]), 0.0)
        todo = np.flatnonzero(left)
        mean, series = _fourier(density[todo] * slope[todo], theta[todo])
        good = np.abs(series[:, -(size // 8) :]).max(axis=1) < TAIL
        if size == SIZES[-1]:
            good[:] = True
        if (done := todo[good]).size:
            yield done, CircularTable(centre[done], scale[done], mean[good], series[good])
            left[done] = False
        if not left.any():
            return


def _grid(centre: Array, scale: Array, size: int) -> tuple[Array, Array]:
    """Angles (m, size) of an even grid in t, and their derivatives in t."""
    t = 2 * np.pi * np.arange(size) / size - np.pi
    c, s, a = np.cos(0.5 * t), np.sin(0.5 * t), scale[:, None]
    return centre[:, None] + 2.0 * np.arctan2(a * s, c), a / (c * c + (a * s) ** 2)


def _fourier(density: Array, theta: Array) -> tuple[Array, NDArray[np.complex128]]:
    """Mean directions, and Fourier series, normalised, of densities in t on a grid."""
    mean = np.angle(np.einsum("kg,kg->k", density, np.exp(1j * theta)))
    series = np.fft.rfft(density, axis=1)[:, : density.shape[1] // 2 + 1]
    series[:, -1] = 0.0
    return mean, series / (2 * np.pi * series[:, :1].real)


def _series(
    p: Predictive, eta: Array, weights: Array, centre: Array, scale: Array, size: int
) -> tuple[Array, NDArray[np.complex128]]:
    """Mean directions, and Fourier series of the densities in t, normalised."""
    circle = cast(Circle, p.family.support)
    theta, slope = _grid(centre, scale, size)
    density = np.empty_like(theta)
    step = max(1, TABLE_DOUBLES // (eta.shape[1] * size))
    for start in range(0, len(eta), step):
        some = slice(start, start + step)
        share = weights if len(weights) == 1 else weights[some]
        density[some] = mixture_density(p.family, eta[some], share, circle.from_radians(theta[some]))
    return _fourier(density * slope, theta)
