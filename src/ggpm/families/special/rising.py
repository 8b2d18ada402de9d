"""The rising factorial Gamma(a + y)/Gamma(a), and the probabilities of overdispersed counts that are made of it."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ggpm.data.rows import batches
from ggpm.families.special.log_gamma import LogGamma1p
from ggpm.families.special.stable import HALF_LOG_2PI, excess_log, moderate, stirling_error

Array = NDArray[np.float64]

# Counts above which sums over all of them become integrals, how many at either end are taken one by one, panels and
# their nodes, and logarithm by which what is integrated falls below its largest value where it is cut:
# tests/test_overdispersed.py compares the two.
_MANY, _ONE_BY_ONE, _PANELS, _NODES, _DROP = 1024, 64, 8, 12, 34.0
# Places, in widths of the probabilities from their mean, between which it is seen how far they reach.
_PLACES = np.concatenate([-np.geomspace(40.0, 0.5, 12), [0.0], np.geomspace(0.5, 40.0, 12)])
# Weights of f(A - 2) .. f(A + 1) that turn the integral from A - 1/2 into the sum from A: the expansion of Euler and
# Maclaurin at midpoints (DLMF 2.10.1), f' and f''' by central differences
_END = np.array([0.0, -1.0, 1.0, 0.0]) / 24 + np.array([1.0, -3.0, 3.0, -1.0]) * 17 / 5760
_FACTORS, _TOGETHER = 8, 8  # of a rising factorial, and parts whose products are still floats
_LARGE = 15.0  # from here on the asymptotic series of the digamma function are exact to rounding
# log z - psi(z) = sum_p c_p z^-p, as (p, c_p): DLMF 5.11.2
_SERIES = ((1, 1 / 2), (2, 1 / 12), (4, -1 / 120), (6, 1 / 252), (8, -1 / 240), (10, 1 / 132), (12, -691 / 32760))


def log_rising(a: Array, y: Array) -> tuple[Array, Array, Array]:
    """First three derivatives of ``log Gamma(a + y)/Gamma(a)`` in log a, for a > 0 and whole y >= 0.

    They are sums over k = 0 .. y - 1 of a/(a + k), a k/(a + k)^2 and a k (k - a)/(a + k)^3, so that no digits of their
    common size y are lost when a is large and they hardly differ from those of a power, y, 0 and 0.

    >>> c, w, t = log_rising(np.array([2.0]), np.array([2.0]))
    >>> c.round(12), w.round(12)
    (array([1.66666667]), array([0.22222222]))
    """
    a, y = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(y, dtype=float))
    large = a >= _LARGE
    if large.all():
        return _large(a, y)
    if not large.any():
        return _small(a, y)
    far, near = _large(np.maximum(a, _LARGE), y), _small(np.minimum(a, _LARGE), y)
    return (np.where(large, far[0], near[0]), np.where(large, far[1], near[1]), np.where(large, far[2], near[2]))


def _large(a: Array, y: Array) -> tuple[Array, Array, Array]:
    # psi(a + y) - psi(a) = r + sum_p c_p a^-p (1 - e^-pr) with r = log(1 + y/a), m = 1 - e^-r = -dr/dlog a
    r, m = np.log1p(y / a), y / (a + y)
    c, w, t = a * r, a * (r - m), a * (r - m - m * m)
    for p, coefficient in _SERIES:
        e = np.exp(-p * r)
        f, f1, f2 = -np.expm1(-p * r), -p * m * e, p * m * e * (1.0 - m - p * m)
        h, q = coefficient * a ** (1.0 - p), 1.0 - p
        c, w, t = c + h * f, w + h * (q * f + f1), t + h * (q * q * f + 2.0 * q * f1 + f2)
    return c, w, t


def _small(a: Array, y: Array) -> tuple[Array, Array, Array]:
    # a/(a + 0) = 1 is taken out: the rest has no pole at a = 0
    some, top, low = y > 0, LogGamma1p(a + np.maximum(y - 1.0, 0.0)), LogGamma1p(a)
    d0 = a * (top.digamma - low.digamma)
    d1 = a * a * (top.trigamma - low.trigamma)
    d2 = a**3 * (top.tetragamma - low.tetragamma)
    return np.where(some, 1.0 + d0, 0.0), np.where(some, d0 + d1, 0.0), np.where(some, d0 + 3.0 * d1 + d2, 0.0)


def log_polya(y: Array, log_pi: Array, phi: Array) -> Array:
    """Log-probability of counts y (..., d) under a Dirichlet-multinomial with shares pi and precision phi, (...).

    >>> log_polya(np.array([1.0, 0.0]), np.log([0.25, 0.75]), np.array(2.0)).round(12) == np.log(0.25).round(12)
    np.True_
    """
    phi = np.asarray(phi, dtype=float)
    N = y.sum(axis=-1)
    if phi.ndim == 0 and moderate(N + phi).all():
        d = range(y.shape[-1])
        if log_pi.ndim == 3 and y.ndim == 2 and len(log_pi) > 1 and log_pi.shape[1] == len(y):
            return _polya_at_nodes(y, log_pi, float(phi))
        return log_moderate_polya([y[..., j] for j in d], [log_pi[..., j] for j in d], float(phi))
    pi = np.exp(log_pi)
    a = np.maximum(phi[..., None] * pi, 1e-290)
    # by Stirling's formula; what is left are divergences from the mixture p of y/N and pi, in which nothing cancels
    some, Nc = N > 0, np.maximum(N, 1.0)
    q = y / Nc[..., None]
    p = (y + a) / (N + phi)[..., None]
    apart = (q - pi) / (N + phi)[..., None]  # q - p = phi apart, pi - p = -N apart
    fit = Nc * excess_log(q, p, phi[..., None] * apart).sum(axis=-1)
    fit = fit + phi * excess_log(pi, p, -N[..., None] * apart).sum(axis=-1)
    parts = stirling_error(y + a) - stirling_error(a) - 0.5 * (np.log(y + a) - np.log(a))
    whole = stirling_error(N + phi) - stirling_error(phi) - 0.5 * np.log1p(N / phi)
    factorials = np.where(y > 0, log_factorial_remainder(np.maximum(y, 1.0)), 0.0).sum(axis=-1)
    value = log_factorial_remainder(Nc) - factorials + parts.sum(axis=-1) - whole - fit
    return np.where(some, value, 0.0)


def log_moderate_polya(y: list[Array], log_pi: list[Array], phi: float) -> Array:
    """`log_polya` from arrays of every part, N + phi moderate: with few logarithms for many nodes of the latent.

    Gamma(a + y)/Gamma(a) is the product of its first eight factors, and beyond a quotient by Stirling's series, which
    leaves 2e-13 there. The first factor, a itself, is known by its logarithm.

    >>> log_moderate_polya([np.array(1.0), np.array(0.0)], [np.log(0.25), np.log(0.75)], 2.0).round(12)
    np.float64(-1.386294361...)
    """
    N = sum(y[1:], y[0])
    value = gammaln(N + 1.0) - sum(gammaln(k + 1.0) for k in y) - (gammaln(N + phi) - gammaln(phi))
    product: Array | float = 1.0
    for j, (k, log_p) in enumerate(zip(y, log_pi, strict=True)):
        some, a = np.minimum(k, 1.0), np.maximum(phi * np.exp(log_p), 1e-290)
        value = value + (log_p * some + some * np.log(phi))
        for i in range(1, _FACTORS if np.size(k) == 0 else int(min(_FACTORS, np.max(k)))):
            there = k > i
            product = product * (a * np.where(there, 1.0, 0.0) + np.where(there, float(i), 1.0))
        if np.any(k > _FACTORS):
            value += _stirling(a + np.maximum(k, _FACTORS)) - _stirling(a + _FACTORS)
        if j % _TOGETHER == _TOGETHER - 1 or j == len(y) - 1:
            value, product = value + np.log(product), 1.0
    return value


def _polya_at_nodes(y: Array, log_pi: Array, phi: float) -> Array:
    """The same for counts (n, d) of rows with many nodes, shares (S, n, d): factors that are there alone, (S, n)."""
    N = y.sum(axis=1)
    value = np.empty(log_pi.shape[:2])
    value[:] = gammaln(N + 1.0) - gammaln(y + 1.0).sum(axis=1) - (gammaln(N + phi) - gammaln(phi))
    for j in range(y.shape[1]):
        order = np.argsort(-y[:, j], kind="stable")
        k = y[order, j]
        above = np.searchsorted(-k, -np.arange(_FACTORS + 1.0))  # rows that have so many factors and one more
        rows = order[: above[0]]
        if not rows.size:
            continue
        log_p = log_pi[:, rows, j]
        a = np.maximum(phi * np.exp(log_p), 1e-290)
        log_p += np.log(phi)
        if above[1]:
            product = a[:, : above[1]] + 1.0
            for i in range(2, _FACTORS):
                product[:, : above[i]] *= a[:, : above[i]] + float(i)
            log_p[:, : above[1]] += np.log(product)
        if many := above[_FACTORS]:
            log_p[:, :many] += _stirling(a[:, :many] + k[:many]) - _stirling(a[:, :many] + _FACTORS)
        value[:, rows] += log_p
    return value


def _stirling(z: Array) -> Array:
    """log Gamma(z) but for a constant, z >= 8."""
    w = 1.0 / z
    square = w * w
    series = square * (1.0 / 1260.0 - square * (1.0 / 1680.0 - square * (1.0 / 1188.0)))
    return (z - 0.5) * np.log(z) - z + w * (1.0 / 12.0 - square * (1.0 / 360.0) + square * series)


def log_polya_and_slopes(y: Array, log_pi: Array, phi: float) -> tuple[Array, Array]:
    """`log_polya`, and the first of `log_rising` at (phi pi_j, y_j), (..., d): what many nodes of the latent need.

    >>> value, c = log_polya_and_slopes(np.array([[1.0, 0.0]]), np.log([[0.25, 0.75]]), 2.0)
    >>> np.exp(value).round(12), c.round(12) + 0.0
    (array([0.25]), array([[1., 0.]]))
    """
    N, some, one_less = y.sum(axis=-1), y > 0, np.maximum(y - 1.0, 0.0)
    alpha = np.maximum(phi * np.exp(log_pi), 1e-290)
    low, top = LogGamma1p(alpha), LogGamma1p(alpha + one_less)
    # a/(a + 0) = 1 is taken out of both: the rest has no pole at a = 0
    rise = np.where(some, top.value - low.value + log_pi + np.log(phi), 0.0)
    constant = gammaln(N + 1.0) - gammaln(y + 1.0).sum(axis=-1) - (gammaln(N + phi) - gammaln(phi))
    value = constant + rise @ np.ones(y.shape[-1])
    slope = np.where(some, 1.0 + alpha * (top.digamma - low.digamma), 0.0)
    good = np.broadcast_to(moderate(N + phi), value.shape)
    if not good.all():
        counts, shares = (np.broadcast_to(v, slope.shape)[~good] for v in (y, log_pi))
        value[~good] = log_polya(counts, shares, np.asarray(phi, dtype=float))
        slope[~good] = log_rising(np.maximum(phi * np.exp(shares), 1e-290), counts)[0]
    return value, slope


def log_factorial_remainder(n: Array) -> Array:
    """``log n! - (n log n - n)`` for n > 0.

    >>> float(log_factorial_remainder(np.array(1.0)).round(12))
    1.0
    """
    return HALF_LOG_2PI + 0.5 * np.log(n) + stirling_error(n)


def expected_second(
    log_p: Array, log_q: Array, phi: float, N: Array, slopes: bool = True
) -> tuple[Array, Array | None, Array | None]:
    """E[w(Y)] for a beta-binomial Y, w the second of `log_rising` at a = phi p, with derivatives in log a and log phi.

    Y counts N trials, with a = phi p and b = phi q. The derivative in log a is taken at fixed phi, that in log phi at
    fixed p; without ``slopes`` both are None. Costs a sum over 0 .. N for every entry, over a hundred or two points
    where N is larger than 1024.
    """
    shape = np.broadcast_shapes(log_p.shape, np.shape(N))
    lp, lq, trials = (np.broadcast_to(v, shape).ravel() for v in (log_p, log_q, N))
    out = np.empty((3 if slopes else 1, lp.size))
    order = np.argsort(trials, kind="stable")  # rows of few trials have short sums, and are summed by themselves
    few = int(np.searchsorted(trials[order], _MANY, side="right"))
    terms = 8 * (int(trials[order[:few]].max(initial=0.0)) + 1)
    for moments, rows, per_row in ((_summed, order[:few], terms), (_integrated, order[few:], 4096)):
        for part in batches(rows.size, per_row):
            some = rows[part]
            a, b = (np.maximum(phi * np.exp(v[some]), 1e-290)[:, None] for v in (lp, lq))
            out[:, some] = moments(a, b, phi, trials[some, None], slopes)
    found = [v.reshape(shape) for v in out]
    return (found[0], found[1], found[2]) if slopes else (found[0], None, None)


def _summed(a: Array, b: Array, phi: float, n: Array, slopes: bool = True) -> Array:
    """What `expected_second` returns, (3 or 1, rows), by sums over 0 .. n; a, b and n are (rows, 1)."""
    k = np.arange(float(n.max()) + 1.0)
    inside = k <= n
    left = np.where(inside, n - k, 0.0)
    below = a + k
    # all sums over k' < k of log_rising, and log p(k + 1)/p(k), are running sums
    near, far = a / below, k / below
    steps = np.log(np.maximum(left, 1.0) / (k + 1.0) * (below / (b + np.maximum(left - 1.0, 0.0))))
    log_pmf = np.where(inside, _running(steps), -np.inf)
    weight, w = np.exp(log_pmf - log_pmf.max(axis=1, keepdims=True)), _running(near * far)
    if not slopes:
        return _mean(weight, w)[None]
    c, t = _running(near), _running(near * far * (far - near))
    c_other = np.take_along_axis(_running(b / (b + k)), left.astype(int), axis=1)
    return _moments(weight, (c, w, t), c_other, a / b, phi, n)


def _integrated(a: Array, b: Array, phi: float, n: Array, slopes: bool = True) -> Array:
    """The same for large n: the first and last counts one by one, those between by an integral in logit(k/n).

    There the probabilities have one peak, and neither they nor w have a singularity within pi of the line. The integral
    goes as far as they are seen; where that is short of an end, the counts there are left out.
    """
    first = np.log((_ONE_BY_ONE - 0.5) / (n - _ONE_BY_ONE + 0.5))
    total = a + b
    log_pi = np.log(np.stack([a / total, b / total], axis=-1))

    def log_pmf(k: Array, rows: Any = slice(None)) -> Array:
        return log_polya(np.stack([k, n[rows] - k], axis=-1), log_pi[rows], total[rows])

    def counts(u: Array, rows: Any = slice(None)) -> Array:
        return n[rows] / (1.0 + np.exp(-u))

    mean = n * (a / total)
    spread = np.sqrt(mean * (b / total) * ((n + total) / (1.0 + total)))
    middle = np.clip(np.log(a) - np.log(b), first, -first)
    width = np.minimum(spread * n / np.maximum(mean * (n - mean), np.finfo(float).tiny), 1.0)
    place = np.clip(middle + width * _PLACES, first, -first)
    k = counts(place)
    height = log_pmf(k) + np.log(k * (n - k))
    seen = height > height.max(axis=1, keepdims=True) - _DROP
    lowest = np.argmax(seen, axis=1)[:, None]
    highest = seen.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1)[:, None]
    ends = [
        np.take_along_axis(place, np.maximum(lowest - 1, 0), axis=1),
        np.take_along_axis(place, np.minimum(highest + 1, seen.shape[1] - 1), axis=1),
    ]
    out = np.empty((3 if slopes else 1, len(n)))
    at_ends = np.concatenate([ends[0] <= first, ends[1] >= -first], axis=1)
    singles = np.arange(_ONE_BY_ONE + 2.0)  # the last two are within the integral
    one = (singles < _ONE_BY_ONE).astype(float)
    one[-4:] += _END
    x, weights = _panels()
    for low, high in itertools.product((False, True), repeat=2):
        rows = np.flatnonzero((at_ends == (low, high)).all(axis=1))
        if rows.size == 0:
            continue
        length = (ends[1] - ends[0])[rows]
        k = counts(ends[0][rows] + length * x, rows)
        parts, sizes = [k], [length * weights * k * (n[rows] - k) / n[rows]]
        for here, some in ((low, singles + 0.0 * n[rows]), (high, n[rows] - singles)):
            parts += [some] if here else []
            sizes += [np.broadcast_to(one, some.shape)] if here else []
        k = np.concatenate(parts, axis=1)
        weight = np.concatenate(sizes, axis=1) * np.exp(log_pmf(k, rows) - height[rows].max(axis=1, keepdims=True))
        rising = log_rising(a[rows], k)
        if slopes:
            c_other = log_rising(b[rows], n[rows] - k)[0]
            out[:, rows] = _moments(weight, rising, c_other, (a / b)[rows], phi, n[rows])
        else:
            out[0, rows] = _mean(weight, rising[1])
    return out


@lru_cache(maxsize=1)
def _panels() -> tuple[Array, Array]:
    """Nodes and weights of the panels on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (
        ((np.arange(_PANELS)[:, None] + 0.5 + 0.5 * nodes) / _PANELS).ravel(),
        np.tile(0.5 * weights / _PANELS, _PANELS),
    )


def _moments(
    weight: Array, rising: tuple[Array, Array, Array], c_other: Array, ratio: Array, phi: float, n: Array
) -> Array:
    """E[w] and its derivatives in log a and log phi, (3, rows): those of w, and those of the probabilities."""
    c, w, t = rising
    c_all = log_rising(np.full_like(n, phi), n)[0]
    found = (w, t + w * (c - ratio * c_other), t + w * (c + c_other - c_all))
    return np.stack([_mean(weight, value) for value in found])


def _mean(weight: Array, value: Array) -> Array:
    return np.sum(weight * value, axis=1) / weight.sum(axis=1)


def _running(v: Array) -> Array:
    """Sums over the entries before each one, along the last axis."""
    out = np.zeros_like(v)
    np.cumsum(v[..., :-1], axis=-1, out=out[..., 1:])
    return out


def stirling_jet(k: Array) -> tuple[Array, Array, Array]:
    """First three derivatives of ``k log k - k - log Gamma(k)`` in log k, for k > 0.

    They tend to 1/2, 0 and 0 for large k; ``first - second`` is k² psi'(k) - k, the information about log k of a gamma.

    >>> stirling_jet(np.array(1e12))[0].round(12)
    np.float64(0.5)
    """
    k = np.asarray(k, dtype=float)
    large, big, low = k >= _LARGE, np.maximum(k, _LARGE), np.minimum(k, _LARGE)
    far = [sum(c * (1.0 - p) ** j * big ** (1.0 - p) for p, c in _SERIES) for j in range(3)]
    # log k - psi(k) and its derivatives, the poles at zero taken out
    gamma = LogGamma1p(low)
    d0 = 1.0 + low * (np.log(low) - gamma.digamma)
    d1 = low - 1.0 - low**2 * gamma.trigamma
    d2 = 2.0 - low - low**3 * gamma.tetragamma
    return (
        np.where(large, far[0], d0),
        np.where(large, far[1], d0 + d1),
        np.where(large, far[2], d0 + 3.0 * d1 + d2),
    )
