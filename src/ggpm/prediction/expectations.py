"""Expectations over the latent of a `Predictive`, and the moments of y that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.adaptive import PRODUCT_MOST, Rows, Sums, average, expectation, latent_root
from ggpm.prediction.nodes import latent_nodes

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

# Accuracy of expectations, relative to the largest entry of a row's moment; what the ladder of rules leaves off by more
# than HARD is computed on nodes that resolve the likelihood all over the latent's range. A rule of the ladder is off by
# NEXT of its change from the one before.
TOLERANCE, HARD, NEXT = 3e-8, 1e-6, 0.1
# Times the tolerance that sparse grids may change: 3e-4, where 4096 Sobol points are off by 1e-4 (ten classes).
GRIDS_TO = 1e4


def over_latent(p: Predictive, function: Callable[[Array, Rows], Array]) -> Array:
    """E[function(eta, rows)] for every row; function gives (S, k, ...) for nodes eta (S, k, D) of rows (k,)."""
    return sums_over_latent(p, average(function))


def sums_over_latent(p: Predictive, sums: Sums, unit: Array | None = None) -> Array:
    """The same from weighted sums over nodes, accurate relative to the moment times a unit (m,)."""

    def quiet(eta: Array, rows: Rows, weights: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return sums(eta, rows, weights)

    at_mean = np.abs(quiet(p.latent_mean[None], np.arange(len(p)), np.ones(1))).reshape(len(p), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.abs(moment_at_mean(p)).reshape(len(p), -1)
    scale = np.maximum(at_mean.max(axis=1, initial=0.0), spread.max(axis=1, initial=0.0))
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0) * (1.0 if unit is None else unit)
    mean, root = latent_root(p.latent_mean, p.latent_cov, p.family.shift_invariant)
    value, error = expectation(
        quiet, mean, root, rtol=TOLERANCE, atol=TOLERANCE * scale, next_change=NEXT, grids_to=GRIDS_TO
    )
    D, d = root.shape[1:]
    hard = np.flatnonzero(error > HARD * scale) if 1 < d <= PRODUCT_MOST else np.empty(0, dtype=np.intp)
    width = np.broadcast_to(np.eye(D), (hard.size, D, D))
    for rows, eta, weights in latent_nodes(mean[hard], root[hard], width, 4 * value[0].size):
        each = np.broadcast_to(weights, eta.shape[:2]).T
        value[hard[rows]] = quiet(eta.swapaxes(0, 1), hard[rows], each)
    return value


def moment_at_mean(p: Predictive) -> Array:
    """The moment at the latent's mean, or nothing where that is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        moment = p.family.moment(p.latent_mean, p.trials)
    return np.where(np.isfinite(moment), moment, 0.0)


def averaged_moment(p: Predictive) -> Array:
    """E[moment] by nodes, relative to `moment_at_mean`."""
    centre, trials = moment_at_mean(p), p.trials

    def from_centre(eta: Array, rows: Rows) -> Array:
        return p.family.moment(eta, None if trials is None else trials[rows]) - centre[rows]

    return centre + over_latent(p, from_centre).reshape(centre.shape)


def averaged_var(p: Predictive) -> Array:
    """Predictive variance by nodes, of outputs whose moment alone does not decide it."""
    family, trials, centre = p.family, p.trials, moment_at_mean(p)
    if centre.ndim == 2 and family.support.row_ndim < 2:
        return covariance(p, centre)

    # entries of matrices have variances, not covariances
    def moments(eta: Array, rows: Rows) -> Array:
        t = None if trials is None else trials[rows]
        first = family.moment(eta, t) - centre[rows]
        return np.stack([first, first**2 + family.spread(eta, t)], axis=2)

    found = over_latent(p, moments)
    with np.errstate(over="ignore", invalid="ignore"):  # moments beyond the floats
        total = np.where(np.isfinite(found[:, 1]), found[:, 1] - found[:, 0] ** 2, np.inf)
    return family.variance(centre + found[:, 0], total, np.zeros_like(total))


def covariance(p: Predictive, centre: Array) -> Array:
    """Covariances of vectors, by one product of matrices for every row."""
    family, trials, size = p.family, p.trials, centre.shape[1]
    shares = family.has("share_spread")

    def sums(eta: Array, rows: Rows, weights: Array) -> Array:
        """E[y - centre], and E[(y - centre)(y - centre)^T]."""
        t = None if trials is None else trials[rows]
        c, w = centre[rows][:, :, None], np.broadcast_to(weights.T, (len(rows), len(eta)))
        away = np.ascontiguousarray(family.moment(eta, t).transpose(1, 2, 0))  # (k, d, S): long rows
        away -= c
        out = np.empty((len(rows), size + 1, size))
        if not shares:
            out[:, 0] = (away @ w[:, :, None])[..., 0]
            np.matmul(away * w[:, None, :], away.swapaxes(1, 2), out=out[:, 1:])
            out[:, 1:] += average(lambda *_: family.spread(eta, t))(eta, rows, weights)
            return out
        # cov[y | eta] = s (diag(p) - p p^T) of p = (centre + away)/t: the same product, reweighted
        N = np.ones((len(rows), 1)) if t is None else t[:, None]
        s = w * family.share_spread(eta, t).T
        np.matmul(away * (w - s / N**2)[:, None, :], away.swapaxes(1, 2), out=out[:, 1:])
        first = away @ np.stack([w, s], axis=2)
        out[:, 0], tilt, c = first[..., 0], first[..., 1] / N, c[..., 0] / N
        strength = s.sum(axis=1)[:, None]
        cross = (tilt + 0.5 * strength * c)[:, :, None] * c[:, None, :]
        out[:, 1:] -= cross + cross.swapaxes(1, 2)
        out[:, range(1, size + 1), range(size)] += tilt + strength * c
        return out

    found = sums_over_latent(p, sums, trials)  # squares of counts are as large as counts times trials
    first, total = found[:, 0], found[:, 1:] - found[:, 0, :, None] * found[:, 0, None, :]
    return family.variance(centre + first, total, np.zeros_like(total))


def completed(p: Predictive, found: Array, averaged: Callable[[Predictive], Array]) -> Array:
    """Answers of a closed form, by averages over nodes in rows where it has none."""
    left = np.flatnonzero(np.isnan(found).reshape(len(found), -1).any(axis=1))
    if left.size:
        found[left] = averaged(p.rows(left))
    return found
