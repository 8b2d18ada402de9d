"""Regions and distribution functions of predictive distributions that have no order on a line.

Angles: the density on a periodic grid, hence distribution function and the shortest arc. Any
continuous output: the highest-density region, as a threshold on the density.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ggpm.data.checks import check_level, check_whole
from ggpm.data.rows import batches
from ggpm.families.special.quadrature import standard_normal_nodes, trapezoid
from ggpm.families.support import Circle

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

__all__ = ["HighestDensityRegion", "highest_density"]

Array = NDArray[np.float64]

# Points on which a circular density is computed: half as many are exact to rounding for concentrations up to 15 and
# latent standard deviations up to 1.3.
N_GRID = 128
# Points to which it is then interpolated by its Fourier series; between them distribution functions are straight lines,
# which leaves 1.5e-7 on the same cases.
N_FINE = 4096
# Draws where a density is too narrow for the grid of latent nodes: 0.8 % standard error of a probability.
N_DRAWS = 4096
# Spacings of the latent nodes, in standard deviations. A von Mises density of concentration kappa is seen by
# the latent as a bump of width sqrt(kappa); nodes that are further apart than that would show as a comb.
SPACINGS = (0.5, 0.25, 0.125)
RADIUS = 6.0  # beyond so many standard deviations lie 2e-9 of a normal variable


# ---- angles ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CircularGrid:
    """Distribution functions of m angles, in radians, on grids that are dense where the angles are.

    The grid of row i is ``theta = centre_i + 2 atan(scale_i tan(t/2))`` for equally spaced t: a smooth periodic
    stretching, under which integrals by the trapezoidal rule keep all their digits.
    """

    centre: Array
    scale: Array
    cumulative: Array
    """P(centre - pi < Y <= theta) at the N_FINE + 1 values of t from -pi to pi, (m, N_FINE + 1)."""

    def cdf(self, theta: Array) -> Array:
        """P(Y between centre - pi and theta), going forwards."""
        delta = self._from_centre(theta)
        t = 2.0 * np.arctan2(np.sin(delta / 2), self.scale * np.cos(delta / 2))
        at = (t + np.pi) * (N_FINE / (2 * np.pi))
        low = np.clip(at.astype(int), 0, N_FINE - 1)
        rows = np.arange(len(at))
        below, above = self.cumulative[rows, low], self.cumulative[rows, low + 1]
        return below + (at - low) * (above - below)

    def between(self, start: Array, theta: Array) -> Array:
        """P(Y on the arc from start forwards to theta)."""
        # the cut opposite the centre lies on the arc where theta comes before the start, seen from the centre
        past_the_cut = self._from_centre(theta) < self._from_centre(start)
        return np.clip(self.cdf(theta) - self.cdf(start) + past_the_cut, 0.0, 1.0)

    def _from_centre(self, theta: Array) -> Array:
        """Angles from the centre, in [-pi, pi)."""
        return np.mod(theta - self.centre + np.pi, 2 * np.pi) - np.pi

    def shortest_arc(self, level: float) -> Array:
        """Shortest arcs (start, end) of the given probability, (m, 2), radians, end >= start."""
        t = np.linspace(-np.pi, np.pi, N_FINE + 1)[:-1]
        out = np.empty((len(self.centre), 2))
        for i, row in enumerate(self.cumulative):
            turn = 2.0 * np.arctan2(self.scale[i] * np.sin(t / 2), np.cos(t / 2))
            two_turns = np.concatenate([turn, turn + 2 * np.pi])
            mass = np.concatenate([row[:-1], row[:-1] + 1.0])
            ends = np.interp(row[:-1] + level, mass, two_turns)
            length = ends - turn
            best = int(np.argmin(length))
            near = length[[best - 1, best, (best + 1) % N_FINE]]
            second = near[0] - 2.0 * near[1] + near[2]  # the vertex of the parabola through three lengths
            shift = float(np.clip(0.5 * (near[0] - near[2]) / second, -0.5, 0.5)) if second > 0 else 0.0
            position = best + N_FINE * (best == 0) + shift
            start = np.interp(position, np.arange(2 * N_FINE), two_turns)
            start_mass = np.interp(position, np.arange(2 * N_FINE), mass)
            end = np.interp(start_mass % 1.0 + level, mass, two_turns) + 2 * np.pi * (start_mass >= 1.0)
            out[i] = self.centre[i] + start, self.centre[i] + end
        return out


def circular_grid(predictive: Predictive) -> CircularGrid:
    """Distribution functions of the angles that a predictive distribution describes.

    >>> from ggpm.families import VonMises
    >>> from ggpm.prediction.predictive import Predictive
    >>> one = Predictive(VonMises(), np.array([[4.0, 0.0]]), np.zeros((1, 2, 2)))
    >>> circular_grid(one).cdf(np.array([0.0])).round(12)
    array([0.5])
    """
    family, circle = predictive.family, cast(Circle, predictive.family.support)
    moment = predictive._moment()
    centre, length = np.arctan2(moment[:, 1], moment[:, 0]), np.hypot(moment[:, 0], moment[:, 1])
    # tan(half the spread), from E[1 - cos] = 1 - length; 1 leaves the grid even. Somewhat wider than the density.
    scale = np.minimum(1.0, 3.0 * np.sqrt(np.maximum(1.0 - length, 1e-16) / 2.0))
    t = np.linspace(-np.pi, np.pi, N_GRID, endpoint=False)
    sd = np.sqrt(np.maximum(np.linalg.eigvalsh(predictive.latent_cov)[:, -1], 0.0))
    kappa = np.hypot(np.linalg.norm(predictive.latent_mean, axis=1), np.maximum(sd, 1.0))  # of a typical node
    needed = 1.0 / np.sqrt(1.0 + sd**2 / kappa)
    level = np.searchsorted(-np.array(SPACINGS), -needed)  # the coarsest spacing that is fine enough
    density = np.empty((len(centre), N_GRID))  # up to a factor: `_integrate` normalises
    theta = centre[:, None] + 2.0 * np.arctan2(scale[:, None] * np.sin(t / 2), np.cos(t / 2))
    stretch = scale[:, None] / (np.cos(t / 2) ** 2 + (scale[:, None] * np.sin(t / 2)) ** 2)
    for k, spacing in enumerate(SPACINGS):
        two = predictive.latent_mean.shape[1] == 2
        nodes, weights = trapezoid(2, spacing, RADIUS) if two else predictive._nodes()
        for i in np.flatnonzero(level == k):
            eta = predictive.latent_mean[i] + nodes @ predictive._root[i].T
            density[i] = weights @ np.exp(family.log_prob(eta[:, None, :], circle.from_radians(theta[i]))) * stretch[i]
    cumulative = np.empty((len(centre), N_FINE + 1))
    smooth = level < len(SPACINGS)
    cumulative[smooth] = _integrate(density[smooth])
    if not smooth.all():
        cumulative[~smooth] = _from_draws(predictive, np.flatnonzero(~smooth), centre, scale)
    return CircularGrid(centre, scale, cumulative)


def _integrate(density: Array) -> Array:
    """Integrals from -pi of periodic densities (m, N_GRID) by their Fourier series, at N_FINE + 1 points."""
    m = len(density)
    coefficients = np.fft.rfft(density, axis=1) / N_GRID
    k = np.arange(coefficients.shape[1])
    total = coefficients[:, :1].real * 2 * np.pi
    integral = np.zeros((m, N_FINE // 2 + 1), dtype=complex)
    # grid index counts from t = -pi, so the series is in t + pi, and its integral starts there
    integral[:, 1 : len(k) - 1] = coefficients[:, 1:-1] / (1j * k[1:-1])
    wave = np.fft.irfft(integral, n=N_FINE, axis=1) * N_FINE
    line = np.linspace(0.0, 1.0, N_FINE + 1) * total
    out = line + np.concatenate([wave, wave[:, :1]], axis=1) - wave[:, :1]
    # the series of a density that is nearly zero somewhere dips below it by rounding
    return np.maximum.accumulate(np.clip(out / total, 0.0, 1.0), axis=1)


def _from_draws(predictive: Predictive, rows: NDArray[np.intp], centre: Array, scale: Array) -> Array:
    """The same from draws: for latents so wide that nodes would show as a comb."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((N_DRAWS, len(rows), 2))
    eta = predictive.latent_mean[rows] + np.einsum("ijk,sik->sij", predictive._root[rows], noise)
    family = predictive.family
    encoded = family.encode(family.sample(eta, rng).ravel()).reshape(N_DRAWS, len(rows))
    drawn = cast(Circle, family.support).to_radians(encoded)
    delta = np.mod(drawn - centre[rows] + np.pi, 2 * np.pi) - np.pi
    t = np.sort(2.0 * np.arctan2(np.sin(delta / 2), scale[rows] * np.cos(delta / 2)), axis=0)
    grid = np.linspace(-np.pi, np.pi, N_FINE + 1)
    share = (np.arange(N_DRAWS) + 0.5) / N_DRAWS
    ends = (np.r_[-np.pi, t[:, j], np.pi] for j in range(len(rows)))
    return np.stack([np.interp(grid, e, np.r_[0.0, share, 1.0]) for e in ends])


# ---- highest density ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class HighestDensityRegion:
    """For every row the set of y whose predictive density is at least a threshold: the smallest of its level."""

    predictive: Predictive
    level: float
    log_threshold: Array
    """log of the density on the border of the region, (m,)."""

    def contains(self, y: Any) -> NDArray[np.bool_]:
        """Tell whether each y lies within its row's region, (m,)."""
        return self._log_density(self.predictive.family.encode(y)) >= self.log_threshold

    def _log_density(self, encoded: Array) -> Array:
        return log_density(self.predictive, encoded[None])[0]


def highest_density(predictive: Predictive, level: float, n_draws: int = 1000) -> HighestDensityRegion:
    """The highest-density region of every row, its threshold read off draws with a fixed seed.

    The threshold is the (1 - level)-quantile of the density at ``n_draws`` of its own draws (Hyndman 1996): the
    region's probability is within ``sqrt(level (1 - level) / n_draws)`` (one standard error) of the level.

    >>> from ggpm.families import Dirichlet
    >>> from ggpm.prediction.predictive import Predictive
    >>> family = Dirichlet().resolve(np.array([[0.2, 0.3, 0.5]]))
    >>> region = highest_density(Predictive(family, np.full((1, 3), 6.0), 0.1 * np.eye(3)[None]), 0.9)
    >>> region.contains(np.array([[0.3, 0.3, 0.4]])), region.contains(np.array([[0.98, 0.01, 0.01]]))
    (array([ True]), array([False]))
    """
    check_level(level, "level")
    check_whole(n_draws, "n_draws", 1)
    if predictive.family.support.integer:
        raise ValueError(f"{type(predictive.family).__name__} outputs have no density; try interval() or quantile().")
    draws = predictive.sample(n_draws, 0)
    encoded = np.stack([predictive.family.encode(d) for d in draws])
    values = log_density(predictive, encoded)
    return HighestDensityRegion(predictive, level, np.quantile(values, 1.0 - level, axis=0))


def log_density(predictive: Predictive, encoded: Array) -> Array:
    """Log predictive density at many encoded y per row, (N, m, ...) -> (N, m), with fixed latent nodes.

    One set of nodes serves all y, which makes this much faster than `Predictive.log_prob` for many y at one row
    and less exact where the density is narrower than the latent's own spread.
    """
    if predictive.family.has("predictive_log_prob"):
        closed = predictive.family.predictive_log_prob
        return np.stack([closed(predictive.latent_mean, predictive.latent_cov, y) for y in encoded])
    nodes, weights = standard_normal_nodes(predictive.latent_mean.shape[1], coarse=True)
    out = np.empty(encoded.shape[:2])
    for i in range(encoded.shape[1]):
        eta = predictive._place(nodes, slice(i, i + 1))[:, 0]
        for part in batches(len(encoded), nodes.size * 4):
            log_p = predictive.family.log_prob(eta[:, None, :], encoded[part, i])
            out[part, i] = logsumexp(log_p, axis=0, b=weights[:, None])
    return out
