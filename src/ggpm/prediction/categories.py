"""Counts of one category among several: binomial given the softmax of the latents.

The logit of a category's probability is its latent less the log-sum-exp of the others. Given these it is normal, so
that the count has the distribution of a binomial variable with one latent; a few nodes for the others do the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from ggpm.families.binomial import Binomial
from ggpm.families.special.adaptive import cholesky_root
from ggpm.prediction.line import Line
from ggpm.prediction.nodes import latent_nodes
from ggpm.prediction.roots import integer_roots

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

MOST_SOFTMAX = 4  # categories up to which nodes for all but one latent are few


def category_quantile(p: Predictive, trials: Array, q: float) -> Array:
    """The q-quantile of the count in every category, (m, d)."""
    return np.stack([_of_category(p, trials, j, q) for j in range(p.latent_mean.shape[1])], axis=1)


def _of_category(p: Predictive, trials: Array, j: int, q: float) -> Array:
    D = p.latent_mean.shape[1]
    order = [k for k in range(D) if k != j] + [j]
    mean, root = p.latent_mean[:, order], cholesky_root(p.latent_cov[:, order][:, :, order])
    own = root[:, -1, -1]
    # how the category's own latent follows the others
    follows = np.einsum("mi,mik->mk", root[:, -1, :-1], np.linalg.pinv(root[:, :-1, :-1]))
    # what the count tells of the others' latents, blurred by the category's own
    information = trials * np.prod(expit(np.outer(mean[:, -1] - logsumexp(mean[:, :-1], axis=1), [1.0, -1.0])), axis=1)
    moves = follows - softmax(mean[:, :-1], axis=1)  # of the logit, with the others' latents
    U = (information / (1.0 + information * own**2))[:, None, None] * moves[:, :, None] * moves[:, None, :]
    out = np.empty(len(p))
    binomial = Binomial()
    for rows, others, weights in latent_nodes(mean[:, :-1], root[:, :-1, :-1], U, 64):
        shift = np.einsum("ksi,ki->ks", others - mean[rows, None, :-1], follows[rows])
        centre = mean[rows, -1, None] + shift - logsumexp(others, axis=-1)
        share = np.broadcast_to(weights, centre.shape)
        S = centre.shape[1]
        average = np.einsum("ks,ks->k", share, centre)
        total = np.sqrt(own[rows] ** 2 + np.einsum("ks,ks->k", share, (centre - average[:, None]) ** 2))
        start = Line(binomial, average, total, trials[rows]).quantile(q)  # of a normal logit with the same moments

        def steps(some: Any, k: Array) -> tuple[Array, Array]:
            flat = Line(binomial, centre[some].ravel(), np.repeat(own[rows][some], S), np.repeat(trials[rows][some], S))  # noqa: B023
            found = flat.steps(slice(None), np.repeat(k, S))  # noqa: B023
            before, upto = (np.einsum("ks,ks->k", share[some], F.reshape(-1, S)) for F in found)  # noqa: B023
            return before, upto

        out[rows] = integer_roots(steps, q, start, trials[rows])
    return out
