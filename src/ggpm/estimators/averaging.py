"""Averages of fits: the finalists of a contest by stacking, and the hyperparameters of one kernel by their posterior.

The winner of a contest is finished on all rows; other opinions keep the hyperparameters that they were learned with on
the rows of the last rung, and each costs one search for sites on all rows. Hyperparameters are integrated over a design
around their mode, each with the weight that the posterior has there: one evaluation of the evidence each, and one
gradient for every hyperparameter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard
from scipy.special import logsumexp

from ggpm.families.wrapped import unwrapped
from ggpm.fields.dense import DenseField
from ggpm.learning.as_classes import as_classes
from ggpm.learning.choice import gaussian
from ggpm.learning.contest import Contest, Finalist
from ggpm.learning.fit import Fit, SearchOutcome
from ggpm.learning.objective import Evidence
from ggpm.prediction.compare import stacking_weights

__all__ = ["AVERAGING"]

Array = NDArray[np.float64]

AVERAGING = ("auto", "none", "stack", "integrate")
# Rows up to which "auto" hears other opinions than the winner's: they cost as many matrices of that order more, and
# were tried on sets of up to 500.
MANY_ROWS = 2000
# Rows that speak for the winner alone and for each other opinion alone before any is seen. Without them, and with the
# best of the last rung as opinions, stacking loses 0.05 nats a row on some sets: leave-one-out densities of a few
# hundred rows say little of kernels that are nearly as good. With these, of 76 sets of docs/forecasts.md three quarters
# gain, 0.012 nats on average, and none loses more than 0.013; (5, 1), (20, 2) and (20, 5) do nearly as well.
WINNERS_ROWS, OPINIONS_ROWS = 10.0, 2.0
# Rows and hyperparameters up to which "auto" integrates over hyperparameters: more rows know them well, and more of
# them ask for 32 corners. Of the sets of docs/forecasts.md (100 to 400 rows) ten of ten of numbers and compositions
# gained by it (0.019 nats a row, up to 0.06); counts, grades and classes lose as often. Under variational sites of
# several latents (angles, directions) the corners take minutes.
FEW_ROWS, FEW_HYPERPARAMETERS = 500, 15
LEAST_WEIGHT = 0.05  # of a fit that is kept in an average: each costs as much in every prediction as the heaviest
# Rows that speak for a constant alone, whose weight may be small: it is heard for the numbers that nothing foretells.
# With half a row wages, fruits, infants, Italian votes and food of docs/forecasts.md gain 0.008 to 0.10 nats a row,
# capital and economy (50 rows and fewer) lose 0.013 and 0.031; two rows gain a little more, and lose more.
CONSTANTS_ROWS = 0.5
# Of the corners, in standard deviations. The mode then has half of the weight, and stays the heaviest.
REACH = np.sqrt(2.0)
# Log of the largest factor by which a corner may count more than under the split Gaussian, four. Where data say nothing
# of a variance that is not needed, the posterior is flat on that side, and corners there would push all others out.
MOST_RATIO = np.log(4.0)
# Bounds of the factors by which the posterior is wider or narrower on one side than its curvature at the mode says.
LEAST_SCALE, MOST_SCALE = 0.4, 3.0
# Weight below which a corner is left out: six members of 18 in a fit of gamma amounts, which cost as much as others.
LEAST_POINT = 0.01
DIFFERENCE = 0.05  # of a log-hyperparameter, for differences of gradients, which have three digits and more
# Log-hyperparameters of which data say less than their priors have no curvature to speak of: this is then their
# standard deviation, a factor of e.
WIDEST = 1.0


def helps(fit: Fit) -> bool:
    """Whether "auto" integrates over hyperparameters: of few rows of continuous outputs, one latent or exact."""
    family, few = fit.family, fit.evidence.field.n_rows <= FEW_ROWS and len(fit.theta) <= FEW_HYPERPARAMETERS
    return few and (family.latent_dim == 1 or gaussian(family)) and not family.support.integer


def hears(averaging: str, n_rows: int, exact: bool) -> bool:
    """Whether other opinions than the winner's are asked for; ``exact``: of a dense field of all rows.

    >>> hears("auto", 300, True), hears("auto", 300, False), hears("stack", 300, False), hears("none", 300, True)
    (True, False, True, False)
    """
    return averaging == "stack" or (averaging == "auto" and exact and n_rows <= MANY_ROWS)


def weighed(contest: Contest) -> Contest:
    """The finalists whose leave-one-out densities make the best mixture, with their weights, the heaviest first.

    As if a few further rows had spoken for each of them alone, most for the winner, who stays alone where the mixture
    is worse for the rows themselves, by more than a standard error: of classes that are far apart (iris) nearly all
    rows are certain under all kernels, and have nothing to say against the further ones.

    Those of another family come last, each beside the mixture of all before, and have no such condition: classes look
    worse than they are beside grades, whose cut points have learned from the row that is left out, too (eleven grades:
    by 0.10 nats a row, where new rows say 0.01). With one condition for all together the other opinions are left out
    because of them where they help (calculus of docs/forecasts.md, 0.013 between the two).
    """
    own = [finalist for finalist in contest.finalists if _alike(finalist, contest.winner)]
    weight, densities = contest.winner.weight, np.stack([finalist.judged for finalist in own], axis=1)
    kept = _stacking(densities, weight, np.array([finalist.flat for finalist in own]))
    gain = logsumexp(densities, b=kept, axis=1) - densities[:, 0]
    if weight @ gain < -np.sqrt(weight @ (gain - np.average(gain, weights=weight)) ** 2):
        kept = np.eye(len(own))[0]
    order = [int(k) for k in np.argsort(-kept, kind="stable") if kept[k] > 0]
    finalists, shares = [own[k] for k in order], kept[order]
    for other in (finalist for finalist in contest.finalists if not _alike(finalist, contest.winner)):
        before = logsumexp([finalist.judged for finalist in finalists], b=shares[:, None], axis=0)
        share = _stacking(np.stack([before, other.judged], axis=1), weight, np.zeros(2, dtype=bool))[1]
        if 0 < share < 1:
            finalists, shares = [*finalists, other], np.append((1.0 - share) * shares, share)
    without = tuple(replace(other, contest=weighed(other.contest)) for other in contest.without)
    return replace(contest, finalists=tuple(finalists), weights=tuple(map(float, shares)), without=without)


def _stacking(densities: Array, weight: Array, flat: NDArray[np.bool_]) -> Array:
    """Weights of opinions with these log densities of rows that count so often, (rows, K), the first with most rows."""
    count = densities.shape[1]
    rows = np.where(flat, CONSTANTS_ROWS, OPINIONS_ROWS)
    rows[0] = WINNERS_ROWS
    alone = np.where(np.eye(count, dtype=bool), 0.0, -np.inf)
    weights = stacking_weights(np.vstack([densities, alone]), np.append(weight, rows))
    kept = np.where(flat | (weights >= LEAST_WEIGHT), weights, 0.0)
    return kept / kept.sum()


def stacked(fit: Fit, contest: Contest) -> Fit:
    """A fit of the first finalist, averaged itself or not, averaged with the others; those without a mode are left."""
    members = list(fit.members)
    weights = [contest.weights[0] * member.weight for member in members]
    for weight, finalist in zip(contest.weights[1:], contest.finalists[1:]):
        evidence = fit.evidence if _alike(finalist, fit) else as_classes(fit.evidence)
        if evidence is None:
            continue
        try:
            member = _member(fit, finalist.on(evidence), weight)
        except np.linalg.LinAlgError:
            continue
        if isinstance(evidence.field, DenseField) and evidence is not fit.evidence:
            evidence.field.forget()
        if member.converged:
            members.append(member)
            weights.append(weight)
    first, *others = (
        replace(member, weight=float(weight / sum(weights)), others=()) for member, weight in zip(members, weights)
    )
    return replace(first, others=tuple(others))


def _alike(one: Finalist | Fit, other: Finalist | Fit) -> bool:
    """Whether two have the same family, but for its hyperparameters."""
    return type(unwrapped(one.family)) is type(unwrapped(other.family))


def _member(fit: Fit, evidence: Evidence, weight: float, start: Any = None) -> Fit:
    """Another fit to the same rows; ``start`` is one for its search for sites."""
    return replace(SearchOutcome(evidence, start).fit(fit.columns, fit.target, fit.offset), weight=weight, found=None)


def integrated(fit: Fit) -> Fit:
    """A fit, averaged over the posterior of its hyperparameters around the mode.

    The design has the mode and the corners ``±REACH`` of a Hadamard matrix in the eigenvectors of the Hessian, as many
    as the next power of two above the number of hyperparameters: first and second moments are those of the Gaussian
    (Rue, Martino and Chopin 2009, sec. 6.5, whose designs have more corners). The Gaussian is split: along every
    eigenvector each side has its own width, from the posterior's fall there (Martins et al. 2013, sec. 3.2). Without
    that, bands of functions whose length scale is hardly known were too narrow. Weights are corrected by the posterior.
    """
    mode, p = fit.theta, len(fit.theta)
    if not p:
        return fit
    low, high = fit.evidence.bounds.T
    start = fit.approximate().start  # corners are near: no search for their sites starts from nothing
    root, corners = _root(fit.evidence, start), hadamard(2 ** int(np.ceil(np.log2(p + 1))))
    sides = _sides(fit, root, start)
    members, weights = [], [1.0 - REACH**-2]
    for signs in corners[:, 1 : p + 1]:
        scale = np.where(signs > 0, *sides)
        corner = np.clip(mode + REACH * (root @ (signs * scale)), low, high)
        try:
            # to the precision of a search: a corner stands for hyperparameters that differ from it by much more
            member = _member(fit, fit.evidence.searching().at(corner), 1.0, start)
            member = replace(member, evidence=fit.evidence.at(corner))
        except np.linalg.LinAlgError:
            continue
        ratio = _log_posterior(member) - _log_posterior(fit) + 0.5 * p * REACH**2
        if member.converged and np.isfinite(ratio):
            members.append(member)
            mass = np.prod(scale / sides.mean(axis=0))  # of the corner's orthant, times 2^p
            weights.append(mass * np.exp(min(ratio, MOST_RATIO)) * REACH**-2 / len(corners))
    shares = np.array(weights) / np.sum(weights)
    kept = [replace(member, weight=float(w)) for member, w in zip(members, shares[1:]) if w > LEAST_POINT]
    total = shares[0] + sum(member.weight for member in kept)
    others = tuple(replace(member, weight=float(member.weight / total)) for member in kept)
    return replace(fit, weight=float(shares[0] / total), others=others)


def _sides(fit: Fit, root: Array, start: Any) -> Array:
    """Widths of the posterior of the hyperparameters above and below its mode, along and relative to roots, (2, p)."""
    evidence = fit.evidence.searching()
    low, high = evidence.bounds.T
    sides = np.ones((2, len(fit.theta)))
    for k, column in enumerate(root.T):
        for side, sign in enumerate((1.0, -1.0)):
            there = evidence.at(np.clip(fit.theta + sign * REACH * column, low, high))
            try:
                fall = _log_posterior(fit) - _height(there, there.infer(start).log_evidence)
            except np.linalg.LinAlgError:
                fall = np.inf
            # a Gaussian falls by REACH²/2 there
            sides[side, k] = np.clip(REACH / np.sqrt(2 * max(fall, 1e-3)), LEAST_SCALE, MOST_SCALE)
    return sides


def _log_posterior(fit: Fit) -> float:
    """Of the hyperparameters, up to a constant."""
    return _height(fit.evidence, fit.log_evidence)


def _height(evidence: Evidence, log_evidence: float) -> float:
    return log_evidence + (0.0 if evidence.priors is None else evidence.priors.log_density(evidence.theta)[0])


def _root(evidence: Evidence, start: Any) -> Array:
    """Root of the covariance of the hyperparameters at their mode, from differences of the gradient."""
    theta = evidence.theta
    p = len(theta)
    H = np.empty((p, p))
    centre = evidence.searching()
    here = centre.learn(start)[1]
    for k in range(p):
        moved = theta.copy()
        moved[k] += DIFFERENCE
        H[k] = (here - centre.at(moved).learn(start)[1]) / DIFFERENCE
    w, Q = np.linalg.eigh(0.5 * (H + H.T))
    return Q / np.sqrt(np.maximum(w, WIDEST**-2))
