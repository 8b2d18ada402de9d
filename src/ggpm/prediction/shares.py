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


def share_quantiles(p: Predictive, levels: Sequence[float]) -> Array:
    """Quantiles of the share of every part, (m, d, k)."""
    m, d = len(p), p.latent_mean.shape[1] + 1
    out = np.empty((m * d, len(levels)))
    for mixtures in p.family.part_mixtures(p.latent_mean, p.latent_cov):
        out[mixtures.which] = expit(mixture_quantiles(mixtures, levels))
    return out.reshape(m, d, len(levels))


def mixture_quantiles(mixtures: ShareMixtures, levels: Sequence[float]) -> Array:
    """Quantiles of the logits, (k, levels): Newton's method from those of normal laws of the same skewness."""
    c, weights, s = mixtures.location, mixtures.weights, mixtures.sd
    mean = c @ weights
    away = c - mean[:, None]
    square = away * away
    variance = square @ weights
    total = np.sqrt(variance + s * s)
    skewness = ((square * away) @ weights) / total**3

    def law(rows: Rows, y: Array) -> tuple[Array, Array]:
        F, f = normal_distribution((y[:, None] - c[rows]) / s[rows, None])
        return F @ weights, (f @ weights) / s[rows]

    ends = []
    for q in levels:
        u = ndtri(q)
        start = mean + total * (u + np.clip(skewness, -1.0, 1.0) * (u * u - 1.0) / 6.0)  # Cornish and Fisher 1938
        ends.append(roots(law, q, start, coordinate(Real())))
    return np.stack(ends, axis=-1)
