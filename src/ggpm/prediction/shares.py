"""Quantiles of parts whose logits are mixtures of normal laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from ggpm.families.special.logsumexp import normal_distribution
from ggpm.families.special.share_mixtures import ShareMixtures
from ggpm.families.support import Real
from ggpm.prediction.nodes import Rows
from ggpm.prediction.roots import coordinate, roots

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

# Standard deviation of a part's logit given the rest from which on its tails are nearer than points (of ten parts, they
# are off by half as much at 2.7, by a tenth at 9, by twice as much at 1.5), and density times spread where that counts.
WIDE, LOW = 2.5, 0.1
SPREAD_NODES = 9  # of the normal laws, for the spread of a part
TOGETHER = 2**15  # doubles of one array of nodes: stays in the processor's cache
MANY, FIRST = 2**14, 2**11  # nodes that points are recognised by, more than products have, and those of a first step


def share_quantiles(p: Predictive, levels: Sequence[float]) -> Array:
    """Quantiles of the share of every part, (m, d, k)."""
    m, d = len(p), p.latent_mean.shape[1] + 1
    out = np.empty((m * d, len(levels)))
    for mixtures in p.family.part_mixtures(p.latent_mean, p.latent_cov):
        out[mixtures.which] = expit(mixture_quantiles(mixtures, levels))
    return out.reshape(m, d, len(levels))


def mixture_quantiles(mixtures: ShareMixtures, levels: Sequence[float]) -> Array:
    """Quantiles of the logits, (k, levels): Newton's method from those of normal laws of the same skewness.

    Where there are many nodes, from quantiles of the first of them: the first points of a sequence are spread as evenly
    as all are.
    """
    c, weights, s = mixtures.location, mixtures.weights, mixtures.sd

    def law(rows: Rows, y: Array) -> tuple[Array, Array]:
        F, f, at = np.zeros(len(y)), np.zeros(len(y)), c if len(rows) == len(c) else c[rows]
        size = max(1, TOGETHER // len(y))
        for start in range(0, len(weights), size):
            some = slice(start, start + size)
            below, density = normal_distribution((y[:, None] - at[:, some]) / s[rows, None])
            F += below @ weights[some]
            f += density @ weights[some]
        return F, f / s[rows]

    if len(weights) >= MANY:
        first = ShareMixtures(mixtures.which, c[:, :FIRST], weights[:FIRST] / weights[:FIRST].sum(), s)
        starts = mixture_quantiles(first, levels).T
    else:
        starts = _normal_quantiles(mixtures, levels)
    z = np.stack([roots(law, q, start, coordinate(Real())) for q, start in zip(levels, starts)], axis=-1)
    if mixtures.tails is not None:
        for part in map(int, np.flatnonzero(s > WIDE)):
            spread = _spread(c[part, :FIRST], s[part])
            for i, q in enumerate(levels):
                at = z[part, i]
                density = np.exp(-0.5 * ((at - c[part]) / s[part]) ** 2) @ weights / (np.sqrt(2.0 * np.pi) * s[part])
                if density * spread < LOW * expit(at) * expit(-at):
                    off = mixtures.tails.below(part, at) - q
                    z[part, i] -= np.clip(off / density, -s[part], s[part])
    return z


def _spread(location: Array, sd: float) -> float:
    """Standard deviation of a share whose logit is a mixture of normal laws with equal weights."""
    x, w = np.polynomial.hermite_e.hermegauss(SPREAD_NODES)
    share, w = expit(location[:, None] + sd * x), w / w.sum()
    mean = (share @ w).mean()
    return float(np.sqrt((np.square(share - mean) @ w).mean()))


def _normal_quantiles(mixtures: ShareMixtures, levels: Sequence[float]) -> Array:
    """Quantiles by mean, variance and skewness (Cornish and Fisher 1938), (levels, k)."""
    c, weights, s = mixtures.location, mixtures.weights, mixtures.sd
    mean = c @ weights
    away = c - mean[:, None]
    square = away * away
    total = np.sqrt(square @ weights + s * s)
    skewness = np.clip(((square * away) @ weights) / total**3, -1.0, 1.0)
    u = ndtri(levels)[:, None]
    return np.asarray(mean + total * (u + skewness * (u * u - 1.0) / 6.0))
