"""Counts of one category among several: binomial, or beta-binomial, given the softmax of the latents.

Of few trials all probabilities are tabulated, averaged over nodes that all categories share. Of many: the logit of a
category's probability is its latent less the log-sum-exp of the others. Given these it is normal, so that the count has
the distribution of such a variable with one latent; a few nodes for the others do the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from ggpm.families.beta_binomial import BetaBinomial
from ggpm.families.binomial import Binomial
from ggpm.families.dirichlet_multinomial import DirichletMultinomial
from ggpm.families.special import log_softmax
from ggpm.families.special.adaptive import latent_root
from ggpm.prediction.line import Line
from ggpm.prediction.nodes import Rows, latent_nodes
from ggpm.prediction.roots import integer_roots

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

MOST_SOFTMAX = 4  # categories up to which nodes for all but one latent are few
TABLES = (8, 16, 32, 64)  # trials up to which tables are made, together for rows with about as many
MOST_NODES = 2**18  # of one row
TABLE_DOUBLES = 2**16  # nodes times counts that are worked on at once: they stay in the processor's cache


def few_trials(trials: Array) -> NDArray[np.bool_]:
    """Tell which rows have tables of all their counts."""
    return trials <= TABLES[-1]


def category_quantiles(p: Predictive, trials: Array, tails: tuple[float, ...]) -> Array:
    """Quantiles of the count in every category, (m, d, number of tails)."""
    out = np.empty((*p.latent_mean.shape, len(tails)))
    few = few_trials(trials) & ((_count(p, trials) <= MOST_NODES) | (out.shape[1] > MOST_SOFTMAX))
    for fewer, most in zip((0, *TABLES), TABLES):
        some = np.flatnonzero(few & (trials > fewer) & (trials <= most))
        for rows, F in _tables(p.rows(some), trials[some]):
            # a sum of probabilities may stay below one by rounding
            found = np.stack([np.sum(q > F[..., :-1], axis=-1) for q in tails], axis=-1)
            out[some[rows]] = np.minimum(found, trials[some[rows], None, None])
    some = np.flatnonzero(~few)
    for j in range(out.shape[1] if some.size else 0):
        for k, q in enumerate(tails):
            out[some, j, k] = _of_category(p.rows(some), trials[some], j, q)
    return out


def _precision(p: Predictive) -> float:
    """That of the beta-binomials; infinite for binomials."""
    return float(p.family.phi) if isinstance(p.family, DirichletMultinomial) else np.inf


def _information(p: Predictive, trials: Array) -> Array:
    """The most that counts tell of a logit, wherever it is; of beta-binomials about that."""
    phi = _precision(p)
    return 0.25 * trials * (1.0 if np.isinf(phi) else (1.0 + phi) / (trials + phi))


def _count(p: Predictive, trials: Array) -> Array:
    """About how many nodes a row has: twelve for each direction, and more where its latent is wide."""
    root = latent_root(p.latent_mean, p.latent_cov, p.family.shift_invariant)[1]
    sd = np.sqrt(np.sum(root**2, axis=1))
    return np.prod(12.0 * np.hypot(1.0, np.sqrt(_information(p, trials))[:, None] * sd), axis=1)


def _tables(p: Predictive, trials: Array) -> Iterator[tuple[Rows, Array]]:
    """Rows, and distribution functions of the counts in every category at 0, 1, ..., (k, d, most trials + 1)."""
    if not len(p):
        return
    mean, root = latent_root(p.latent_mean, p.latent_cov, p.family.shift_invariant)
    U = _information(p, trials)[:, None, None] * np.eye(mean.shape[1])
    counts, phi = np.arange(trials.max() + 1.0), _precision(p)
    for rows, eta, weights in latent_nodes(mean, root, U, 4, MOST_NODES, even=True):
        N, F = trials[rows], np.empty((len(rows), eta.shape[2], len(counts)))
        step = max(1, TABLE_DOUBLES // (eta.shape[1] * len(counts)))
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            log_pi = log_softmax(eta[some])
            share = np.broadcast_to(weights, eta.shape[:2])[some]
            for j in range(eta.shape[2]):
                if np.isinf(phi):
                    F[some, j] = _powers(log_pi[..., j], share, N[some], counts)
                else:
                    F[some, j] = _rising(log_pi[..., j], share, N[some], counts, phi)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_ways = gammaln(N + 1.0)[:, None] - gammaln(counts + 1.0) - gammaln(N[:, None] - counts + 1.0)
        if not np.isinf(phi):
            left = np.maximum(N[:, None] - counts, 0.0)
            log_ways += gammaln(phi + counts) + gammaln(phi + left) - gammaln(phi + N)[:, None] - gammaln(phi)
        # beyond N trials the number of ways is zero
        ways = np.exp(np.where(counts <= N[:, None], log_ways, -np.inf))
        yield rows, np.cumsum(F * ways[:, None], axis=-1)


def _powers(log_pi: Array, share: Array, N: Array, counts: Array) -> Array:
    """Averages (k, counts) of pi^y (1 - pi)^(N - y) over nodes (k, S) with weights ``share``."""
    with np.errstate(divide="ignore"):
        rest = np.maximum(np.log(-np.expm1(log_pi)), -1e4)  # log(1 - pi)
    values = (log_pi - rest)[..., None] * counts
    values += (N[:, None] * rest)[..., None]
    np.exp(np.minimum(values, 0.0, out=values), out=values)
    return np.matmul(share[:, None, :], values)[:, 0]


def _rising(log_pi: Array, share: Array, N: Array, counts: Array, phi: float) -> Array:
    """The same of rising factorials (phi pi)_y (phi (1 - pi))_(N - y), over those (phi)_y (phi)_(N - y) of phi."""
    a, b = phi * np.exp(log_pi), -phi * np.expm1(log_pi)
    up = np.empty((len(counts), *a.shape))
    up[0] = share
    for y in range(1, len(counts)):
        np.multiply(a + (y - 1.0), up[y - 1] / (phi + y - 1.0), out=up[y])
    out, down = np.empty((len(a), len(counts))), np.ones(a.shape)
    for y in range(len(counts) - 1, -1, -1):
        before = N - y - 1.0  # from the last trial on
        there = before >= 0
        down *= b * np.where(there, 1.0 / (phi + np.maximum(before, 0.0)), 0.0)[:, None] + np.where(
            there, before / (phi + np.maximum(before, 0.0)), 1.0
        )[:, None]  # fmt: skip
        out[:, y] = np.einsum("ks,ks->k", up[y], down)
    return out


def _of_category(p: Predictive, trials: Array, j: int, q: float) -> Array:
    D = p.latent_mean.shape[1]
    # the other categories' latents and the category's own, relative to one of the others
    order = [k for k in range(D) if k != j]
    order = [*order[1:], j, order[0]]
    mean, root = latent_root(p.latent_mean[:, order], p.latent_cov[:, order][:, :, order], contrasts=True)
    mean, root = mean[:, :-1], root[:, :-1]
    own = root[:, -1, -1]
    # how the category's own latent follows the others
    follows = np.einsum("mi,mik->mk", root[:, -1, :-1], np.linalg.pinv(root[:, :-1, :-1]))
    # what the count tells of the others' latents, blurred by the category's own
    information = _information(p, trials)
    moves = np.abs(follows) + 1.0  # of the logit, with the others' latents, at most
    U = (information / (1.0 + information * own**2))[:, None, None] * moves[:, :, None] * moves[:, None, :]
    out = np.empty(len(p))
    phi = _precision(p)
    binomial = Binomial() if np.isinf(phi) else BetaBinomial(phi=phi)
    for rows, others, weights in latent_nodes(mean[:, :-1], root[:, :-1, :-1], U, 64, even=True):
        shift = np.einsum("ksi,ki->ks", others - mean[rows, None, :-1], follows[rows])
        centre = mean[rows, -1, None] + shift - logsumexp(np.pad(others, ((0, 0), (0, 0), (0, 1))), axis=-1)
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
