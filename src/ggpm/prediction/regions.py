"""Highest-density regions: thresholds on the predictive density of any continuous output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import check_level, check_whole
from ggpm.data.rows import batches
from ggpm.families.base import Family, OwnDraws
from ggpm.families.censored import Censored
from ggpm.families.special.adaptive import PRODUCT_MOST
from ggpm.families.support import Circle
from ggpm.prediction import scores
from ggpm.prediction.angles import circular_tables
from ggpm.prediction.averages import log_average
from ggpm.prediction.inflations import Inflations
from ggpm.prediction.line import Line, expect
from ggpm.prediction.nodes import Rows, gather, latent_nodes, log_densities
from ggpm.prediction.sections import Normals, few_nodes, law_of, log_threshold
from ggpm.sites.densities import log_expected_prob

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

__all__ = ["HighestDensityRegion", "highest_density"]

Array = NDArray[np.float64]

# Share of the information that counts for the nodes of densities at many y: log densities then have an error of 1e-3, a
# tenth of what draws leave in a threshold.
COARSER = 0.25
MOST = 2**12  # nodes of one row
SMALLEST = 1e-200  # density below which its logarithm is computed with more care
BLOCK = 2**14  # rows that are answered at a time
RANKED = 2**17  # draws that are ranked at a time
# Share of the draws on either side of the border whose density is computed with care, all others being ranked alone;
# and share of the outer ones among them that may lie on the other side, beyond which a row's draws are all done so.
BAND, MISPLACED = 0.05, 0.125
# Latents' width, in units of the likelihood's, up to which draws of four latents or more are ranked by an expansion: at
# most 0.8 % of the draws of ten parts are then on the wrong side and not in the band, 0.15 % on average.
NARROW = 1.2
ALIKE = 1.5  # ratio of variances up to which parts of an average are like each other
TOGETHER = 16  # batches of draws that are made at once, over the number of latents: rows alone cost then less


@dataclass(frozen=True)
class HighestDensityRegion:
    """For every row the set of y whose predictive density is at least a threshold: the smallest of its level."""

    predictive: Predictive
    level: float
    log_threshold: Array
    """log of the density on the border of the region, (m,)."""

    def contains(self, y: Any) -> NDArray[np.bool_]:
        """Tell whether each y lies within its row's region, (m,)."""
        p, family = self.predictive, self.predictive.family
        if p.recalibrated or (len(p.components) == 1 and law_of(p) is not None):
            return np.asarray(p.log_prob(interior(family, y) if p.recalibrated else y) >= self.log_threshold)
        encoded = family.encode(interior(family, y))
        out = np.empty(len(p), dtype=bool)
        for start in range(0, len(p), BLOCK):
            rows = slice(start, start + BLOCK)
            out[rows] = _at_one(p.rows(rows), encoded[rows]) >= self.log_threshold[rows]
        return out


def highest_density(predictive: Predictive, level: float, n_draws: int = 1000) -> HighestDensityRegion:
    """The highest-density region of every row.

    The threshold is the (1 - level)-quantile of the density at ``n_draws`` of its own draws with a fixed seed (Hyndman
    1996): the region's probability is within ``sqrt(level (1 - level) / n_draws)`` (one standard error) of the level.
    Of many latents, only draws near the border need their densities exactly: the others are ranked by an expansion
    about the latent's mean. Regions of angles and of numbers with one latent, or by sections, come from tables of the
    density, without draws, and those of Gaussian outputs from a chi-square.

    >>> from ggpm.families import Dirichlet
    >>> from ggpm.prediction.predictive import Predictive
    >>> family = Dirichlet().resolve(np.array([[0.2, 0.3, 0.5]]))
    >>> region = highest_density(Predictive(family, np.full((1, 3), 6.0), 0.1 * np.eye(3)[None]), 0.9)
    >>> region.contains(np.array([[0.3, 0.3, 0.4]])), region.contains(np.array([[0.98, 0.01, 0.01]]))
    (array([ True]), array([False]))
    """
    check_level(level, "level")
    check_whole(n_draws, "n_draws", 1)
    family, sets = predictive.family, predictive.alike()
    if family.support.integer:
        raise ValueError(f"{type(family).__name__} outputs have no density; try interval() or quantile().")
    if len(sets) > 1:
        found = ((rows, highest_density(p, level, n_draws).log_threshold) for rows, p in sets)
        return HighestDensityRegion(predictive, level, gather(len(predictive), found))
    if _on_circle(predictive):
        tables = ((rows, table.threshold(level)) for rows, table in circular_tables(predictive))
        threshold = gather(len(predictive), tables) + _log_radians(predictive)
        return HighestDensityRegion(predictive, level, threshold)
    alone = len(predictive.components) == 1 and predictive.latent_mean.shape[1] == 1
    if alone and family.has("cdf") and not family.has("predictive_log_prob"):
        line = Line(family, predictive.latent_mean[:, 0], np.sqrt(np.maximum(predictive.latent_cov[:, 0, 0], 0.0)))
        return HighestDensityRegion(predictive, level, line.log_threshold(level))
    law = law_of(predictive) if len(predictive.components) == 1 else None
    if law is not None:

        def densities(rows: NDArray[np.intp], y: Array) -> Array:
            y = np.clip(y, *_open(family))
            if isinstance(law, (Normals, Inflations)):
                return law.densities(rows, y)
            return np.exp(log_density(predictive.rows(rows), y))

        if isinstance(law, Inflations):
            threshold = log_threshold(predictive, densities, level, law.ends, law.log_singles)
        else:
            none = np.empty((len(predictive), 0))
            threshold = log_threshold(predictive, densities, level, lambda q: few_nodes(predictive, q)[0], none)
        return HighestDensityRegion(predictive, level, threshold)
    if len(predictive.components) > 1 and _single_number(family, predictive):
        like = _like(predictive)
        few, rest = np.flatnonzero(like), np.flatnonzero(~like)
        threshold = np.empty(len(predictive))
        threshold[few] = scores.log_threshold(predictive.rows(few), level)
        threshold[rest] = _by_draws(predictive.rows(rest), level, n_draws)
        return HighestDensityRegion(predictive, level, threshold)
    return HighestDensityRegion(predictive, level, _by_draws(predictive, level, n_draws))


def _by_draws(predictive: Predictive, level: float, n: int) -> Array:
    """Thresholds from n draws of every row."""
    threshold = np.empty(len(predictive))
    for rows, draws in _own_draws(predictive, n):
        threshold[rows] = _quantile(draws, 1.0 - level)
    return threshold


def _single_number(family: Family, predictive: Predictive) -> bool:
    """Whether y is a single continuous number with a distribution function."""
    if not family.has("cdf") or family.has("part_log_prob") or family.support.atoms or isinstance(family, Censored):
        return False
    return predictive.latent_mean.shape[1] == 1 or predictive.mean().size == len(predictive)


def _like(predictive: Predictive) -> NDArray[np.bool_]:
    """Rows whose average is hardly wider than its parts are: a few places of y serve all of them."""
    m = len(predictive)
    within = np.sum([w * part.var().reshape(m) for w, part in predictive.components], axis=0)
    return np.asarray(predictive.var().reshape(m) <= ALIKE * within)


def _own_draws(predictive: Predictive, n_draws: int) -> Iterator[tuple[slice, OwnDraws]]:
    """Draws of some rows at a time, of the family's own making where it has a quick way."""
    family = predictive.family
    if len(predictive.components) == 1 and family.has("own_draws"):
        for start in range(0, len(predictive), step := max(1, RANKED // n_draws)):
            rows = slice(start, start + step)
            draws = family.own_draws(predictive.latent_mean[rows], predictive.latent_cov[rows], n_draws)
            if draws is None:
                break
            yield rows, draws
        else:
            return
    for rows in batches(len(predictive), max(1, n_draws * (predictive.latent_mean.shape[1] + 1) // TOGETHER)):
        some = predictive.rows(rows)
        sampled = interior(family, some.sample(n_draws, 0))
        encoded = family.encode(sampled.reshape(-1, *sampled.shape[2:]))
        yield rows, _Sampled(some, encoded.reshape(n_draws, len(some), *encoded.shape[1:]))


@dataclass(frozen=True)
class _Sampled:
    """Draws (N, m, ...), encoded, from the predictive distribution itself."""

    predictive: Predictive
    y: Array

    def rough(self) -> Array:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            out, width = expanded_log_density(self.predictive, self.y)
        wide = np.flatnonzero(~((width < NARROW) & np.isfinite(out).all(axis=1)))
        if wide.size:
            out[wide] = log_density(self.predictive.rows(wide), self.y[:, wide]).T
        return out

    def fine(self, rows: Rows, which: Rows) -> Array:
        return log_density(self.predictive.rows(rows), self.y[which.T, rows]).T

    def quantile(self, q: float) -> Array | None:
        if self.predictive.latent_mean.shape[1] > PRODUCT_MOST and len(self.predictive.components) == 1:
            return None
        return _at_rank(log_density(self.predictive, self.y).T, _place(q, len(self.y)))


def _quantile(draws: OwnDraws, q: float) -> Array:
    """q-quantile of the log densities of every row's draws: exact densities in a band about it, ranks elsewhere."""
    if (closed := draws.quantile(q)) is not None:
        return closed
    rough = draws.rough()
    m, N = rough.shape
    at = _place(q, N)
    reach = int(np.ceil(BAND * N))
    low, high = max(0, int(at) - reach), min(N - 1, int(at) + 1 + reach)
    which = np.argpartition(rough, (low, high), axis=1)[:, low : high + 1]
    which = np.take_along_axis(which, np.argsort(np.take_along_axis(rough, which, axis=1), axis=1), axis=1)
    every = np.arange(m)
    fine = draws.fine(every, which)
    out = _at_rank(fine, at - low)
    outer = which.shape[1] // 4
    wrong = np.zeros(m, dtype=int)
    if low > 0:
        wrong += np.sum(fine[:, :outer] > out[:, None], axis=1)
    if high < N - 1:
        wrong += np.sum(fine[:, -outer:] < out[:, None], axis=1)
    far = np.flatnonzero(wrong > MISPLACED * 2 * outer)
    if far.size:
        out[far] = _at_rank(draws.fine(far, np.broadcast_to(np.arange(N), (far.size, N))), at)
    return out


def _place(q: float, N: int) -> float:
    """Hazen's place of the q-quantile among the ranks of N draws, each of which stands for 1/N."""
    return float(np.clip(q * N - 0.5, 0.0, N - 1.0))


def _at_rank(values: Array, at: float) -> Array:
    """Value at a place between the ranks of every row, (m, n) -> (m,)."""
    first = min(int(at), values.shape[1] - 1)
    second = min(first + 1, values.shape[1] - 1)
    values = np.partition(values, (first, second), axis=1)
    return np.asarray(values[:, first] + (at - first) * (values[:, second] - values[:, first]))


def expanded_log_density(predictive: Predictive, encoded: Array) -> tuple[Array, Array]:
    """Log densities (m, N) at many y by the expansion of log p(y | eta) to second order about the latent's mean.

    With u its gradient and U the expected curvature there, it is log p - log|I + V U|/2 + u^T (V^-1 + U)^-1 u/2: good
    enough to rank y by it where the latent is not wider than the likelihood; (m,) is how wide it is, in such units.
    """
    family, mean = predictive.family, predictive.latent_mean
    R, D = predictive.cholesky(), mean.shape[1]
    U = family.U(mean, encoded[0], expected=True).dense()
    told = R.swapaxes(1, 2) @ U @ R
    L = np.linalg.cholesky(np.eye(D) + told)
    root = np.linalg.solve(L, R.swapaxes(1, 2))  # of (V^-1 + U)^-1
    turned = np.matmul(np.moveaxis(family.u(mean, encoded), 0, 1), root.swapaxes(1, 2))
    log_det = np.log(np.einsum("mjj->mj", L)).sum(axis=1)
    value = family.log_prob(mean, encoded).T - log_det[:, None] + 0.5 * np.square(turned) @ np.ones(D)
    return value, np.sqrt(np.maximum(np.linalg.eigvalsh(told)[:, -1], 0.0))


def densities_of_draws(predictive: Predictive, encoded: Array, n_draws: int) -> tuple[Array, Array]:
    """Log densities (m,) at one encoded y per row, and at n_draws or more of its own draws, (N, m)."""
    family, p = predictive.family, predictive
    draws = family.own_draws(p.latent_mean, p.latent_cov, n_draws) if len(p.components) == 1 else None
    if draws is None:
        y = np.stack([family.encode(interior(family, draw)) for draw in p.sample(n_draws, 0)])
        return log_density(p, encoded[None])[0], log_density(p, y)
    every = np.broadcast_to(np.arange(n := draws.rough().shape[1]), (len(p), n))
    return _at_one(p, encoded), draws.fine(np.arange(len(p)), every).T


def _open(family: Family) -> tuple[float, float]:
    """The least and the largest float within an open support."""
    support: Any = family.support
    return float(np.nextafter(support.low, np.inf)), float(np.nextafter(support.high, -np.inf))


def interior(family: Family, y: Any) -> Any:
    """y with parts of a composition that underflowed to zero, as small ones do in draws, next to zero instead."""
    if family.support.kind != "compositions":
        return y
    return np.maximum(np.asarray(y, dtype=float), np.finfo(float).tiny)


def log_density(predictive: Predictive, encoded: Array) -> Array:
    """Log predictive density at many encoded y per row, (N, m, ...) -> (N, m).

    One set of nodes serves all y of a row of several latents, which makes this much faster than `Predictive.log_prob`
    for many y at one row and less exact where the density is narrower than the latent's own spread.
    """
    if len(predictive.components) > 1:
        return log_average([(w, log_density(part, encoded)) for w, part in predictive.components])
    family = predictive.family
    if family.has("quick_log_prob"):
        quick = family.quick_log_prob(predictive.latent_mean, predictive.latent_cov, encoded)
        if quick is not None:
            return np.asarray(quick)
    if family.has("predictive_log_prob") and not family.has("natural"):  # which serves many y at once
        return np.stack([
            log_expected_prob(family, predictive.latent_mean, predictive.latent_cov, y) for y in encoded
        ])  # fmt: skip
    if predictive.latent_mean.shape[1] == 1:
        return _one_latent(predictive, encoded)
    if _on_circle(predictive) and len(encoded) == 1:  # tables serve one y as well
        angle = cast(Circle, family.support).to_radians(encoded[0])
        tables = ((rows, table.log_density(angle[rows])) for rows, table in circular_tables(predictive))
        return gather(len(predictive), tables)[None] + _log_radians(predictive)
    out = np.empty(encoded.shape[:2])
    y = np.ascontiguousarray(np.moveaxis(encoded, 0, 1))
    U = COARSER * family.U(predictive.latent_mean, y[:, 0], expected=True).dense()
    for rows, eta, weights in latent_nodes(predictive.latent_mean, predictive.cholesky(), U, 4, MOST):
        step = max(1, 2**20 // (eta.shape[1] * len(encoded)))
        share = np.broadcast_to(weights, eta.shape[:2])
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            with np.errstate(over="ignore", invalid="ignore"):
                natural = family.natural(eta[some])  # or nothing
            for part in batches(len(encoded), 4 * eta.shape[1]):
                out[part, rows[some]] = _log_mixture(family, eta[some], share[some], y[rows[some], part], natural).T
    return out


def _at_one(predictive: Predictive, encoded: Array) -> Array:
    """Log predictive density at one encoded y per row, (m, ...) -> (m,)."""
    if predictive.latent_mean.shape[1] == 1 or _on_circle(predictive):
        return log_density(predictive, encoded[None])[0]
    return log_average(
        [
            (w, log_expected_prob(part.family, part.latent_mean, part.latent_cov, encoded))
            for w, part in predictive.components
        ]
    )


def _log_mixture(family: Family, eta: Array, share: Array, y: Array, natural: Any) -> Array:
    """Log densities (k, G) of mixtures over nodes."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_p = log_densities(family, eta, y, natural)
        top = np.zeros((len(eta), y.shape[1]))
        total = np.matmul(share[:, None, :], np.exp(log_p))[:, 0]
        if not np.all((total > SMALLEST) & (total < 1.0 / SMALLEST)):  # beyond the floats without their largest one
            top = np.nan_to_num(log_p.max(axis=1), nan=0.0, neginf=0.0)
            total = np.matmul(share[:, None, :], np.exp(log_p - top[:, None, :]))[:, 0]
        return np.log(total) + top


def _one_latent(predictive: Predictive, encoded: Array) -> Array:
    """Log densities by nodes at the step of every y."""
    family, (N, m) = predictive.family, encoded.shape[:2]
    sd = np.sqrt(np.maximum(predictive.latent_cov[:, 0, 0], 0.0))
    out = np.empty((N, m))
    for part in batches(N, m):
        y = encoded[part]
        mean, width = (np.tile(v, len(y)) for v in (predictive.latent_mean[:, 0], sd))
        flat = y.reshape(-1, *y.shape[2:])
        p = expect(family, mean, width, flat, lambda eta, v: np.exp(family.log_prob(eta, v)))[0]
        with np.errstate(divide="ignore"):
            out[part] = np.log(p).reshape(len(y), m)
    return out


def _on_circle(predictive: Predictive) -> bool:
    return predictive.family.kind == "angles"


def _log_radians(predictive: Predictive) -> float:
    """What turns log densities per radian into those per unit of the user's y."""
    return float(np.log(2 * np.pi / cast(Circle, predictive.family.support).period))
