"""Fourier coefficients of the law of an angle about a direction and a concentration that are both uncertain.

Latents are (a, b, c) ~ N(mean, cov), the direction psi is that of (a, b) and the concentration k is given by
log k = c + log(rho/sqrt(1 + rho^2)) for rho = |(a, b)|. An angle y has E[exp(i n y)] = E[A_n(k) exp(i n psi)] with
A_n = I_n/I_0, which needs averages over

* psi, at equal steps: its density is a closed form, that of the direction of a normal vector in the plane;
* rho given psi, with density rho exp(-(rho/s - m)^2/2) but for a factor, by Gauss's rule for that weight: it depends on
  m alone;
* c given both, a normal: averages B_n(x, sd) of A_n over it are tabulated in x = log(1 + 4 k exp(sd^2)), k at the mean
  of c, and sd.

Nodes are counted in cells of x, each in several of them by the weights of interpolation, so that sums over nodes serve
all harmonics. The place about which the direction turns, where a and b vanish, is no harder than others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.polynomial import hermite_e
from numpy.typing import NDArray
from scipy.special import ive, ndtr

from ggpm.families.special.tables import Table

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Rows = NDArray[np.intp]

# Cells of x for every unit of it, how many of them share a node, and how many of these are below it: averages of B over
# nodes are right to 5e-9.
_PER_UNIT, _TAPS, _BELOW = 10, 8, 3
_FACTOR = 4.0  # in x: with larger ones B is smoother, and there are more cells; it bends closer to zero with larger sd
_LARGEST = 18.0  # log k + sd^2 up to which B is tabulated
_SPREAD, _TERMS = 1.5, 24  # largest sd, and the number of even polynomials in it
# Radial rules are tabulated from m = -6.5, below which rays have no weight, to 8, above which they are Hermite's.
_LEFT, _RIGHT, _PER_MIDDLE = -6.5, 8.0, 512
# Orders of radial rules, and difficulties of rows up to which they are right: to 2e-6, at worst 1e-5, and with care to
# 1e-7, at worst 4e-7 (of 3000 rows with standard deviations from 0.03 to 2.5 and concentrations up to 1e4).
_ORDERS = (6, 8, 12, 16, 24, 40)
_MUCH = 4  # the order for much care
_EASY, _WITH_CARE = (0.5, 1.1, 4.2, 8.2, 37.0, 100.0), (0.2, 0.45, 1.15, 2.5, 7.0, 20.0)
# Harmonics that are computed; the last eighth of them must be negligible, or there are more.
_COUNTS = (24, 48, 96)
_HIGHEST, _POWER = 7.6, 0.46  # A_n(k) is below 1e-8 from n = 7.6 k^0.46 on, for n from 8 to 96
_RAYS = (64, 96, 128, 192, 256, 384, 512)  # the first on a part of the circle, the others all round
_NEGLIGIBLE = (1e-7, 1e-8, 1e-9)  # harmonics, and what steps of psi leave out, by the care that is taken
_REACH = 7.0  # standard deviations of log k that stay below the largest
_NARROWEST = 1e-6  # ratio of standard deviations of a and b
_TINY = 1e-100
# Of wide rows: reach of radii in standard deviations and number of them, steps of log k and their ends, beyond which
# harmonics vanish or are those of the direction; smallest standard deviation of log k.
_FAR, _RADII = 8.0, 44
_WIDTH, _LOWEST, _HIGHEST_LOG_K, _LEAST_SPREAD = 0.5, -20.0, 30.0, 0.05
_KEPT = 1e-10  # weights of rays that count
_NODES = 2**16  # that are worked on together: with fewer, calls cost as much as their work


def harmonics(mean: Array, cov: Array, care: int = 0, about: Array | None = None) -> Iterator[tuple[Rows, Complex]]:
    """Rows and their E[exp(i n y)] for n = 0, 1, ..., as many as do not vanish, (k, N); not all rows have them.

    Without care coefficients are right to 2e-6 in nearly all rows, with care 1 to 1e-7, with care 2 to 1e-8. With care,
    and with angles ``about`` (m,), they are E[cos n(y - about)], whose products of matrices are a quarter of the work.

    >>> mean, cov = np.array([[3.0, 0.0, 2.0]]), 0.01 * np.eye(3)[None]
    >>> [(rows.tolist(), c.shape) for rows, c in harmonics(mean, cov)]
    [([0], (1, 25))]
    """
    sd = np.sqrt(np.maximum(np.einsum("njj->nj", cov), 0.0))
    # principal standard deviations of (a, b)
    middle, apart = 0.5 * (sd[:, 0] ** 2 + sd[:, 1] ** 2), np.hypot(0.5 * (sd[:, 0] ** 2 - sd[:, 1] ** 2), cov[:, 0, 1])
    wide, narrow = np.sqrt(middle + apart), np.sqrt(np.maximum(middle - apart, 0.0))
    able = (mean[:, 2] + (_REACH + sd[:, 2]) * sd[:, 2] < _LARGEST) & (
        narrow > _NARROWEST * np.maximum(wide, _NARROWEST)
    )
    if care == 0:
        yield from _of_wide_rows(mean, cov, np.flatnonzero(~able & (narrow > _NARROWEST * wide)))
    every = np.flatnonzero(able)
    if not every.size:
        return
    mean, cov, sd, wide = mean[every], cov[every], sd[every], wide[every]
    size = np.hypot(mean[:, 0], mean[:, 1])
    gain, spread = _given_direction(cov)
    # the direction's own standard deviation, where it is small
    across = np.stack([-mean[:, 1], mean[:, 0]], axis=1) / np.maximum(size, _TINY)[:, None]
    turn = np.sqrt(np.einsum("ni,nij,nj->n", across, cov[:, :2, :2], across)) / np.maximum(size, _TINY)
    difficulty = _difficulty(mean, cov, wide, sd[:, 2], gain, spread)
    order = np.searchsorted(_WITH_CARE if care else _EASY, difficulty)
    if care > 1:  # rows are few, and it is better that they are alike
        order = np.where(difficulty < _WITH_CARE[_MUCH - 1], _MUCH, order + 1)
    longest = size + 3.0 * wide
    log_k = mean[:, 2] + 2.5 * sd[:, 2] + np.log(longest / np.hypot(1.0, longest))
    highest = np.maximum(_HIGHEST * np.exp(_POWER * log_k), 8.0)  # harmonics that the concentration leaves
    slowest = 6.5 / np.maximum(turn, _TINY)  # and those that the direction does
    needed = np.searchsorted(_COUNTS, np.minimum(highest, slowest))
    negligible, ladder = _NEGLIGIBLE[care], _RAYS[:: 1 + (care > 1)]
    plain = (spread < _SPREAD) & (order < len(_ORDERS))
    if care == 0:
        yield from ((every[rows], c) for rows, c in _of_wide_rows(mean, cov, np.flatnonzero(~plain)))
    left = np.flatnonzero(plain & (needed < len(_COUNTS)))
    left = left[np.argsort(log_k[left], kind="stable")]  # rows with about the same cells are together
    for j, count in enumerate(_COUNTS):
        now, later = left[needed[left] <= j], [left[needed[left] > j]]
        turns = 2.0 ** np.ceil(np.log2(np.maximum(_RAYS[0], np.minimum(highest, count) + slowest)))
        if about is not None:
            turns[:] = ladder[0]
        for rays, more in zip(ladder, (*ladder[1:], 0), strict=True):
            failed = [now[:0]]
            for rows in _alike(now, turns, order, rays):
                c, fine = _series(
                    mean[rows],
                    cov[rows],
                    int(turns[rows[0]]),
                    rays,
                    _ORDERS[order[rows[0]]],
                    count,
                    highest[rows],
                    negligible,
                    None if about is None else about[every[rows]],
                )
                failed.append(rows[~fine])
                good = np.abs(c[:, -(count // 8) :]).max(axis=1) < negligible
                later.append(rows[fine][~good])
                if good.any():
                    yield every[rows[fine][good]], c[good]
            now = np.concatenate(failed)
            turns[:] = more  # all round
        left = np.concatenate(later)


def _alike(rows: Rows, turns: Array, order: Rows, rays: int) -> Iterator[Rows]:
    """Rows that have the same number of turns and the same order, some at a time."""
    key = turns[rows] * len(_ORDERS) + order[rows]
    for value in np.unique(key):
        same = rows[key == value]
        together = max(8, _NODES // (rays * _ORDERS[order[same[0]]]))
        for begin in range(0, len(same), together):
            yield same[begin : begin + together]


def _difficulty(mean: Array, cov: Array, wide: Array, sd: Array, gain: Array, spread: Array) -> Array:
    """About how fast functions of k change along rays, within the spread of radii.

    The concentration falls to zero where a and b vanish, within exp(-c) there.
    """
    Vaa, Vab, Vbb = cov[:, 0, 0], cov[:, 0, 1], cov[:, 1, 1]
    a, b = mean[:, 0], mean[:, 1]
    away = np.sqrt(np.maximum((Vbb * a * a - 2.0 * Vab * a * b + Vaa * b * b) / (Vaa * Vbb - Vab**2), 0.0))
    turned = mean[:, 2] - np.sum(gain * mean[:, :2], axis=1)  # mean of c there
    log_k = np.minimum(np.maximum(mean[:, 2] + 1.5 * sd, turned + 1.5 * spread), 2.0 * _LARGEST)
    return wide * np.hypot(0.5, np.exp(log_k) / 2.4) * np.exp(-0.3 * np.maximum(away - 2.0, 0.0))


def _series(
    mean: Array,
    cov: Array,
    turns: int,
    rays: int,
    order: int,
    count: int,
    highest: Array,
    negligible: float,
    about: Array | None,
) -> tuple[Complex, NDArray[np.bool_]]:
    """Coefficients of those rows for which so many rays, 2 pi/turns apart, are enough, and which these are."""
    origin = np.arctan2(mean[:, 1], mean[:, 0]) if about is None else about
    ray = np.multiply.outer(np.exp(1j * origin), np.exp(1j * _apart(rays, turns)))
    cos, sin = ray.real.copy(), ray.imag.copy()
    weight, scale, middle = _weights_of_rays(mean, cov, cos, sin)
    weight *= 2.0 * np.pi / turns
    # Sums of harmonic n have that of turns - n in them. Coefficients of the direction fall at least geometrically, and
    # the one halfway to turns is known.
    halfway = np.abs(weight[:, ::2].sum(axis=1) - weight[:, 1::2].sum(axis=1))
    allowed = negligible ** (0.5 * turns / (turns - np.minimum(highest, 0.5 * turns)))
    fine = (halfway < allowed) & (np.abs(weight.sum(axis=1) - 1.0) < negligible)
    mean, cov, origin, k = mean[fine], cov[fine], origin[fine], int(fine.sum())
    if not k:
        return np.empty((0, count + 1), dtype=complex), fine
    kept = np.flatnonzero(weight[fine] > _KEPT)
    weight, scale, middle = (part[fine].ravel()[kept] for part in (weight, scale, middle))
    gain, sd = _given_direction(cov)
    slope = (gain[:, :1] * cos[fine] + gain[:, 1:] * sin[fine]).ravel()[kept]
    rho, share = _radii(middle, order)
    rho *= scale
    share *= weight
    x = slope * rho
    x += (mean[:, 2] - np.sum(gain * mean[:, :2], axis=1) + sd**2)[kept // rays]
    np.minimum(x, _LARGEST, out=x)
    np.exp(x, out=x)
    x *= _FACTOR * rho
    x /= np.sqrt(1.0 + rho * rho)
    np.log1p(x, out=x)
    x *= _PER_UNIT
    place = x.astype(np.intp)
    x -= place
    cells = int(place.max()) + _TAPS
    waves, beam = _waves(rays, turns, count), np.arange(rays)
    if about is not None:  # rays on both sides have the same cosines
        waves, beam = waves[rays // 2 :: -1, : count + 1].copy(), np.abs(beam - rays // 2)
    beams = len(waves)
    place += (kept // rays * beams + beam[kept % rays]) * cells
    taps = _taps(x, share)
    index = place + np.arange(_TAPS)[:, None, None]
    counts = np.bincount(index.ravel(), taps.ravel(), minlength=k * beams * cells).reshape(k, beams, cells)
    sums = np.matmul(counts.swapaxes(1, 2), waves).reshape(k, cells, -1, count + 1)
    total = np.einsum("kcrn,kcn->krn", sums, _bessel_averages(sd, cells, count))
    total[:, :, turns // 2 + 1 :] = 0.0  # nothing is left of them
    if about is not None:
        return total[:, 0].astype(complex), fine
    return (total[:, 0] + 1j * total[:, 1]) * np.exp(1j * np.multiply.outer(origin, np.arange(count + 1))), fine


def _apart(rays: int, turns: int) -> Array:
    """Angles of rays from the direction of the mean, or from the angle they are about."""
    return (np.arange(rays, dtype=np.float64) - rays // 2) * (2.0 * np.pi / turns)


@lru_cache(maxsize=64)
def _waves(rays: int, turns: int, count: int) -> Array:
    """Cosines and sines of multiples of these angles, (rays, 2 count + 2)."""
    angle = np.multiply.outer(_apart(rays, turns), np.arange(count + 1))
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)


def _weights_of_rays(mean: Array, cov: Array, c: Array, s: Array) -> tuple[Array, Array, Array]:
    """Densities (k, S) of the direction of (a, b) at angles with these cosines and sines, and of radii there: their
    scales, and m of their weight.
    """
    (ma, mb), (Vaa, Vab, Vbb) = mean[:, :2].T, (cov[:, 0, 0], cov[:, 0, 1], cov[:, 1, 1])
    det = Vaa * Vbb - Vab**2
    Paa, Pab, Pbb = (v[:, None] for v in (Vbb / det, -Vab / det, Vaa / det))
    pa, pb = Paa * ma[:, None] + Pab * mb[:, None], Pab * ma[:, None] + Pbb * mb[:, None]
    scale = 1.0 / np.sqrt(Paa * c * c + 2.0 * Pab * c * s + Pbb * s * s)
    middle = scale * (pa * c + pb * s)
    square = pa * ma[:, None] + pb * mb[:, None]
    across = np.maximum(square - middle**2, 0.0)
    radial = np.exp(-0.5 * square) + np.sqrt(2.0 * np.pi) * middle * ndtr(middle) * np.exp(-0.5 * across)
    return scale**2 * radial / (2.0 * np.pi * np.sqrt(det)[:, None]), scale, middle


def _given_direction(cov: Array) -> tuple[Array, Array]:
    """Slopes of the mean of c in (a, b), (k, 2), and its standard deviation given both."""
    det = cov[:, 0, 0] * cov[:, 1, 1] - cov[:, 0, 1] ** 2
    gain = np.stack([
        cov[:, 1, 1] * cov[:, 0, 2] - cov[:, 0, 1] * cov[:, 1, 2],
        cov[:, 0, 0] * cov[:, 1, 2] - cov[:, 0, 1] * cov[:, 0, 2],
    ], axis=1) / det[:, None]  # fmt: skip
    return gain, np.sqrt(np.maximum(cov[:, 2, 2] - np.sum(gain * cov[:, :2, 2], axis=1), 0.0))


def _taps(x: Array, share: Array) -> Array:
    """Shares times weights of interpolation by polynomials through `_TAPS` points about x in [0, 1)."""
    nodes, factors = _points()
    out, away = np.empty((_TAPS, *x.shape)), x - nodes[:, None, None]
    out[0] = share
    for j in range(1, _TAPS):
        np.multiply(out[j - 1], away[j - 1], out=out[j])
    after = away[-1]
    for j in reversed(range(_TAPS - 1)):
        out[j] *= after
        if j:
            after *= away[j]
    out *= factors[:, None, None]
    return out


@lru_cache(maxsize=1)
def _points() -> tuple[Array, Array]:
    """Points of interpolation, and factors of their weights."""
    nodes = np.arange(_TAPS, dtype=np.float64) - _BELOW
    return nodes, np.array([1.0 / np.prod([a - b for b in nodes if a != b]) for a in nodes])


# ---- wide latents ---------------------------------------------------------------------------------------------------
def _of_wide_rows(mean: Array, cov: Array, rows: Rows) -> Iterator[tuple[Rows, Complex]]:
    """Rows one by one, by sums over equal steps in all coordinates, but for those that are too fine for them."""
    for row in rows:
        c = _wide_series(mean[row], cov[row])
        if c is not None:
            yield np.array([row]), c[None]


def _wide_series(mean: Array, cov: Array) -> Complex | None:
    """Coefficients of one row, as those of `_series`, with radii and log k of `ggpm.families.special.turned`."""
    gain, sd = (part[0] for part in _given_direction(cov[None]))
    if sd < _LEAST_SPREAD:
        return None
    for rays in _RAYS:
        psi = _apart(rays, rays)
        parts = _weights_of_rays(mean[None], cov[None], np.cos(psi)[None], np.sin(psi)[None])
        weight, scale, middle = parts[0][0] * (2.0 * np.pi / rays), parts[1][0], parts[2][0]
        if max(abs(weight[::2].sum() - weight[1::2].sum()), abs(weight.sum() - 1.0)) < _NEGLIGIBLE[0]:
            break
    else:
        return None
    low = np.where(middle > _FAR, middle - _FAR, -_FAR)
    step = (np.maximum(middle, 0.0) + _FAR - low) / (_RADII - 1)
    u = low + step * np.arange(_RADII)[:, None]
    scaled = np.logaddexp(0.0, u)
    share = np.exp(np.log(scaled) - np.logaddexp(0.0, -u) - 0.5 * (scaled - np.maximum(middle, 0.0)) ** 2
                   + np.minimum(middle, 0.0) * scaled)  # fmt: skip
    # below the first node terms fall like e^2u: it has the weight of all of them
    share[0] /= np.where(low == -_FAR, -np.expm1(-2.0 * step), 1.0)
    share *= weight / share.sum(axis=0)
    rho = scale * scaled
    slope = gain[0] * np.cos(psi) + gain[1] * np.sin(psi)
    log_k = mean[2] - gain @ mean[:2] + slope * rho + np.log(rho) - 0.5 * np.log1p(rho**2)
    width = min(_WIDTH, 0.8 * float(sd))
    at, count = np.arange(_LOWEST, _HIGHEST_LOG_K, width), _COUNTS[-1]
    A, (first, last) = bessel_ratios(np.exp(at), count), (np.arange(count + 1), at[-1] + 0.5 * width)
    c = np.zeros(count + 1, dtype=complex)
    for j in range(rays):
        if weight[j] > _KEPT:
            law = (
                share[:, j] @ np.exp(-0.5 * ((at - log_k[:, j, None]) / sd) ** 2) * (width / sd / np.sqrt(2.0 * np.pi))
            )
            c += (A @ law + share[:, j] @ ndtr((log_k[:, j] - last) / sd)) * np.exp(1j * psi[j] * first)
    c[0], c[rays // 2 + 1 :] = 1.0, 0.0  # all of them have the first, and nothing is left of the last
    enough = [n for n in _COUNTS if np.abs(c[n - n // 8 :]).max() < _NEGLIGIBLE[0]]
    return c[: enough[0] + 1] if enough else None


# ---- radii -----------------------------------------------------------------------------------------------------------
def _radii(m: Array, order: int) -> tuple[Array, Array]:
    """Nodes and weights (order, S), which sum to one, of Gauss's rule for rho exp(-(rho - m)^2/2) on rho > 0."""
    values, rises = _radial(order)
    place = (np.clip(m, _LEFT, _RIGHT) - _LEFT) * _PER_MIDDLE
    cell = place.astype(np.intp)
    place -= cell
    both = rises.take(cell, axis=1)
    both *= place
    both += values.take(cell, axis=1)
    nodes, weights = both[:order], both[order:]
    far = np.flatnonzero(m > _RIGHT)
    if far.size:
        z, w = _hermite(order)
        nodes[:, far], weights[:, far] = z[:, None], w[:, None] * (1.0 + z[:, None] / m[far])
    nodes += m
    return np.maximum(nodes, 0.0, out=nodes), weights


@lru_cache(maxsize=8)
def _hermite(order: int) -> tuple[Array, Array]:
    z, w = hermite_e.hermegauss(order)
    return z, w / w.sum()


@lru_cache(maxsize=8)
def _radial(order: int) -> tuple[Array, Array]:
    """Nodes, from m on, and weights at equal steps of m, (steps, 2 order), and their rises to the next."""

    def rules(m: Array) -> dict[str, Array]:
        x, w = np.polynomial.legendre.leggauss(300)
        low = np.maximum(m - 10.0, 0.0)[:, None]
        high = np.where(m > -2.0, np.maximum(m, 0.0) + 10.0, 40.0 / np.maximum(-m, 2.0))[:, None]
        r = low + 0.5 * (high - low) * (1.0 + x)
        w = (
            0.5
            * (high - low)
            * w
            * r
            * np.exp(-0.5 * (r - np.maximum(m, 0.0)[:, None]) ** 2 + np.minimum(m, 0.0)[:, None] * r)
        )
        w /= w.sum(axis=1, keepdims=True)
        J = np.zeros((len(m), order, order))
        last, now, beside = np.zeros_like(r), np.ones_like(r), np.zeros((len(m), 1))
        for i in range(order):  # Stieltjes
            J[:, i, i] = np.sum(w * r * now * now, axis=1)
            new = (r - J[:, i, i, None]) * now - beside * last
            beside = np.sqrt(np.sum(w * new * new, axis=1, keepdims=True))
            if i + 1 < order:
                J[:, i, i + 1] = J[:, i + 1, i] = beside[:, 0]
            last, now = now, new / beside
        nodes, vectors = np.linalg.eigh(J)
        both = np.concatenate([nodes - m[:, None], vectors[:, 0] ** 2], axis=1)
        return {str(j): both[:, j] for j in range(2 * order)}

    table = Table.of(rules, _LEFT, _RIGHT, 58, 7)
    place = table.locate(np.linspace(_LEFT, _RIGHT, round((_RIGHT - _LEFT) * _PER_MIDDLE) + 1))
    values = np.stack([table.at(str(j), place) for j in range(2 * order)], axis=1)
    values[1:-1] -= np.diff(values, 2, axis=0) / 16.0  # half of what the arcs bend
    rises = np.diff(values, axis=0, append=values[-1:])
    return np.ascontiguousarray(values.T), np.ascontiguousarray(rises.T)


# ---- Bessel functions ------------------------------------------------------------------------------------------------
def _bessel_averages(sd: Array, cells: int, count: int) -> Array:
    """B_n at the first cells, (k, cells, count + 1)."""
    even = np.cos(np.multiply.outer(np.arccos(np.minimum(sd / _SPREAD, 1.0)), 2.0 * np.arange(_TERMS)))
    table = _averages(count)[:, :cells]
    return (even @ table.reshape(_TERMS, -1)).reshape(len(sd), cells, count + 1)


@lru_cache(maxsize=8)
def _averages(count: int) -> Array:
    """Coefficients of even Chebyshev polynomials in sd, (terms, cells, count + 1)."""
    x = (np.arange(int(np.ceil((_LARGEST + 1.5) * _PER_UNIT)) + _TAPS) - _BELOW) / _PER_UNIT
    k = np.expm1(x) / _FACTOR
    angle = np.pi * (np.arange(_TERMS) + 0.5) / (2 * _TERMS)
    z, w = _hermite(48)
    values = np.empty((_TERMS, len(x), count + 1))
    for j, sd in enumerate(_SPREAD * np.cos(angle)):
        A = bessel_ratios(np.abs(k)[:, None] * np.exp(sd * z - sd**2), count)
        values[j] = np.einsum("z,nxz->xn", w, A)
    values[:, k < 0, 1::2] *= -1.0
    cosines = np.cos(np.multiply.outer(angle, 2.0 * np.arange(_TERMS)))
    return np.linalg.solve(cosines, values.reshape(_TERMS, -1)).reshape(values.shape)


def bessel_ratios(k: Array, count: int) -> Array:
    """I_n(k)/I_0(k) for n = 0, ..., count, (count + 1, ...)."""
    out = np.ones((count + 1, *k.shape))
    tiny = np.maximum(k, 1e-12)
    far = tiny > 1e8  # 1 - (n - 1/2)/k
    safe = np.where(far, 1.0, tiny)
    with np.errstate(invalid="ignore", divide="ignore"):
        start = ive(count + 1, safe) / ive(count, safe)
    start = np.where(np.isfinite(start), start, safe / (2.0 * (count + 1)))
    ratio = np.where(far, 1.0 - (count + 0.5) / tiny, start)
    for n in range(count, 0, -1):
        ratio = 1.0 / (2.0 * n / tiny + ratio)  # I_n/I_{n-1}
        out[n] = ratio
    return np.asarray(np.cumprod(out, axis=0), dtype=np.float64)
