"""Rules that sum or integrate a density over the support of an observation, on which `check_family` stands.

A rule is made for one density: it looks where the density is before it lays its nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri

from ggpm.families.special.quadrature import sobol, student_nodes

Array = NDArray[np.float64]
LogDensity = Callable[[Array], Array]
# A chart carries points of R^m, (N, m), to observations and the logarithm of the volume element, (N, ...) and (N,).
Chart = Callable[[Array], tuple[Array, Array]]

NEGLIGIBLE = 45.0  # exp(-45) = 3e-20: what falls below it, relative to the peak, cannot be seen in a sum
MOST_COUNTS = 2**20  # a heavy tail is cut there: 8 MB of nodes
SOBOL_LOG2 = 15  # base-2 logarithm of the number of quasi-random nodes; their error is estimated, not assumed


@dataclass(frozen=True)
class Rule:
    """Observations (as a user gives them) and log-weights: sum_i exp(log_weights_i) f(y_i)."""

    y: Array
    log_weights: Array
    random: bool = False
    """True if the nodes are quasi-random, so that errors are those of a mean over them."""
    atol: float = 1e-6
    """Error that the rule may leave, relative to the size of the integrand, where it is not random."""


def counts(log_density: LogDensity, least: int = 0) -> Rule:
    """All counts from ``least`` up to where the density has become negligible."""
    size = 256
    while True:
        y = np.arange(least, least + size, dtype=float)
        value = log_density(y)
        if np.all(value[size // 2 :] < value.max() - NEGLIGIBLE) or size >= MOST_COUNTS:
            return Rule(y, np.zeros(size))
        size *= 4


def count_vectors(columns: int, total: int) -> Rule:
    """All vectors of counts with one total."""
    y = [c for c in itertools.product(range(total + 1), repeat=columns) if sum(c) == total]
    return Rule(np.array(y, dtype=float), np.zeros(len(y)))


def codes(n_codes: int) -> Rule:
    """All codes."""
    return Rule(np.arange(float(n_codes)), np.zeros(n_codes))


def circle(period: float, n: int = 4096) -> Rule:
    """The trapezoidal rule, exact to rounding for smooth periodic functions."""
    return Rule(np.linspace(0.0, period, n, endpoint=False), np.full(n, np.log(period / n)))


def sphere(columns: int) -> Rule:
    """Directions in ``columns`` dimensions: product rules up to 3, Sobol points above."""
    if columns == 2:
        rule = circle(2.0 * np.pi)
        return Rule(np.stack([np.cos(rule.y), np.sin(rule.y)], axis=1), rule.log_weights)
    if columns == 3:
        z, w = np.polynomial.legendre.leggauss(100)
        a = np.arange(200) * (2.0 * np.pi / 200)
        height, angle = (g.ravel() for g in np.meshgrid(z, a, indexing="ij"))
        flat = np.sqrt(1.0 - height**2)
        y = np.stack([flat * np.cos(angle), flat * np.sin(angle), height], axis=1)
        return Rule(y, np.repeat(np.log(w * 2.0 * np.pi / 200), 200))
    normal = ndtri(sobol(columns).random_base2(SOBOL_LOG2).clip(1e-12, 1 - 1e-12))
    y = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    log_area = np.log(2.0) + 0.5 * columns * np.log(np.pi) - gammaln(0.5 * columns)
    return Rule(y, np.full(len(y), log_area - np.log(len(y))), random=True)


def line(log_density: LogDensity, chart: Chart, reach: float) -> Rule:
    """One real coordinate within ±reach: the trapezoidal rule on the window in which the density is."""
    t = np.sinh(np.linspace(-np.arcsinh(reach), np.arcsinh(reach), 4001))
    for _ in range(12):
        value = _on(chart, log_density, t[:, None])
        inside = np.flatnonzero(value > value.max() - NEGLIGIBLE)
        low, high = t[max(inside[0] - 1, 0)], t[min(inside[-1] + 1, t.size - 1)]
        narrow = high - low < 0.5 * (t[-1] - t[0])
        t = np.linspace(low, high, 4001)
        if not narrow:
            break
    y, log_volume = chart(t[:, None])
    return Rule(y, log_volume + np.log(t[1] - t[0]))


def space(log_density: LogDensity, chart: Chart, m: int, reach: float) -> Rule:
    """m real coordinates: centred and scaled at the peak; a stretched product rule for m <= 3, Sobol points above."""
    if m == 1:
        return line(log_density, chart, reach)
    centre, scale = _peak(lambda t: _on(chart, log_density, t), m)
    if m <= 3:
        step = {2: 0.08, 3: 0.2}[m]
        g = np.arange(-round(6.0 / step), round(6.0 / step) + 1) * step
        x = np.stack([v.ravel() for v in np.meshgrid(*[np.sinh(g)] * m)], axis=1)
        log_w = np.sum(np.log(np.sqrt(1.0 + x**2)), axis=1) + m * np.log(step)
    else:
        x, log_w = student_nodes(m, SOBOL_LOG2)
    t = centre + x @ scale.T
    log_w = log_w + np.linalg.slogdet(scale)[1]
    keep = np.all(np.abs(t) <= reach, axis=1)
    y, log_volume = chart(t[keep])
    # the coarse product rule for m = 3 leaves a few 1e-6 of second moments
    return Rule(y, log_w[keep] + log_volume, random=m > 3, atol=1e-6 if m == 2 else 2e-5)


def simplex(log_density: LogDensity, parts: int, total: float) -> Rule:
    """Compositions of positive parts, in log-ratios to the last part."""

    def chart(t: Array) -> tuple[Array, Array]:
        # the volume element is the product of all parts, and d - 1 of the unit
        z = np.concatenate([t, np.zeros((len(t), 1))], axis=1)
        z = z - z.max(axis=1, keepdims=True)
        log_y = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
        return total * np.exp(log_y), log_y.sum(axis=1) + t.shape[1] * np.log(total)

    return space(log_density, chart, parts - 1, 300.0)


def matrices(log_density: LogDensity, p: int) -> Rule:
    """Symmetric positive definite matrices of order p, in the entries of their Cholesky factors."""
    below = np.tril_indices(p, -1)

    def chart(t: Array) -> tuple[Array, Array]:
        # Y = L L^T with log L_ii and L_ij as coordinates: dY = 2^p prod_i L_ii^(p - i + 1) dL, i = 0 .. p-1
        L = np.zeros((len(t), p, p))
        L[:, range(p), range(p)] = np.exp(t[:, :p])
        L[:, below[0], below[1]] = t[:, p:]
        log_volume = p * np.log(2.0) + t[:, :p] @ (p + 1.0 - np.arange(p))
        Y = L @ np.swapaxes(L, 1, 2)
        eigenvalues = np.linalg.eigvalsh(Y)
        rounded = eigenvalues[:, 0] <= 1e-13 * eigenvalues[:, -1]  # definite in theory only: beyond float64
        Y[rounded], log_volume[rounded] = np.eye(p), -np.inf
        return Y, log_volume

    return space(log_density, chart, p * (p + 1) // 2, 100.0)


def _on(chart: Chart, log_density: LogDensity, t: Array) -> Array:
    """The log-density in the coordinates of the chart."""
    y, log_volume = chart(t)
    with np.errstate(all="ignore"):
        value = log_density(y) + log_volume
    return np.where(np.isnan(value), -np.inf, value)


def _peak(log_f: LogDensity, m: int) -> tuple[Array, Array]:
    """Mode of a function on R^m and a matrix that scales the curvature there to one."""
    from scipy.optimize import minimize  # slow to import, and only checks need it

    def negative(t: Array) -> float:
        return float(min(-log_f(t[None])[0], 1e300))

    centre = minimize(negative, np.zeros(m), method="Nelder-Mead", options={"maxiter": 400 * m, "fatol": 1e-3}).x
    h, eye = 1e-3, np.eye(m)
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    pairs = [centre + h * (a * eye[j] + b * eye[k]) for j in range(m) for k in range(m) for a, b in signs]
    values = log_f(np.array(pairs)).reshape(m, m, 4)
    H = -(values[..., 0] - values[..., 1] - values[..., 2] + values[..., 3]) / (4.0 * h * h)
    eigenvalues, vectors = np.linalg.eigh(0.5 * (H + H.T))
    return centre, vectors / np.sqrt(np.maximum(np.abs(eigenvalues), 1e-6))
