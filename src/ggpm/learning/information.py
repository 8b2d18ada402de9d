"""How well hyperparameters are known: the curvature of the objective around its maximum, and intervals from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ggpm.data.checks import check_level
from ggpm.families.base import Family
from ggpm.learning.cavities import log_densities
from ggpm.learning.objective import Evidence

__all__ = ["Known", "has_logarithms", "known", "observed_information", "seen"]

Array = NDArray[np.float64]

# A change of a logarithm by two hundredths: differences of exact gradients are then off by its square times the third
# derivative, and by the gradients' own error (sites are found to 1e-6 and better) divided by it.
STEP = 0.02
LEAST_BEND = 0.1  # nats per squared logarithm: less is known of a hyperparameter whose posterior spans a factor of 20
AT_BOUND = 1e-6  # logarithms nearer to a bound than this were stopped by it


@dataclass(frozen=True)
class Known:
    """What the rows say of the hyperparameters: a normal distribution of theta around the maximum.

    >>> Known(np.zeros(1), np.eye(1), np.zeros(1, dtype=bool)).interval(0.9).round(2)
    array([[-1.64,  1.64]])
    """

    theta: Array
    """Log-hyperparameters, the kernels' first, then the family's."""
    covariance: Array
    """Inverse of the information, (p, p); NaN in entries that it says nothing of."""
    held: NDArray[np.bool_]
    """Entries that a bound stopped: the others are known given them."""
    note: str = ""
    """Reasons for which there are no intervals, or nothing."""

    @property
    def sd(self) -> Array:
        """Standard deviations of theta, (p,)."""
        return np.sqrt(np.diag(self.covariance))

    def interval(self, level: float = 0.9) -> Array:
        """Intervals of theta, (p, 2)."""
        check_level(level, "level")
        reach = ndtri(0.5 + 0.5 * level) * self.sd
        return np.stack([self.theta - reach, self.theta + reach], axis=1)

    def value_interval(self, level: float = 0.9) -> Array:
        """Intervals of exp(theta), (p, 2): up to infinity where the evidence hardly bends.

        >>> Known(np.zeros(1), 1e6 * np.eye(1), np.zeros(1, dtype=bool)).value_interval(0.9)
        array([[ 0., inf]])
        """
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.interval(level)))

    def phi_interval(self, family: Family, level: float = 0.9) -> Array:
        """Intervals of the family's phi as the user has it, (k, 2), its entries one after the other.

        Where phi is the exponential of its coordinates the ends are those of theta; else (cut points, matrices) they
        come from the slope of phi in theta.
        """
        p = family.log_hyper.size
        if has_logarithms(family):
            return self.value_interval(level)[-p:]

        def moved(step: Array) -> Array:
            return np.ravel(np.asarray(family.with_log_hyper(family.log_hyper + step).phi, dtype=float))

        phi = moved(np.zeros(p))
        slope = np.stack([(moved(s) - moved(-s)) / (2 * STEP) for s in STEP * np.eye(p)], axis=1)
        spread = np.sqrt(np.einsum("ki,ij,kj->k", slope, self.covariance[-p:, -p:], slope))
        reach = ndtri(0.5 + 0.5 * level) * spread
        return np.stack([phi - reach, phi + reach], axis=1)


def has_logarithms(family: Family) -> bool:
    """Whether the coordinates in which phi is learned are its logarithms; those of cut points and matrices are not.

    >>> from ggpm import families
    >>> has_logarithms(families.Gamma()), has_logarithms(families.Ordinal([0.0, 1.0]))
    (True, False)
    """
    phi = np.ravel(np.asarray(family.phi, dtype=float))
    return phi.size == family.log_hyper.size and np.allclose(np.exp(family.log_hyper), phi, rtol=1e-9, atol=0)


def observed_information(evidence: Evidence) -> Array:
    """Negative Hessian in theta of what was maximised, (p, p), by differences of its exact gradient.

    >>> from ggpm import GGPRegressor
    >>> X = np.linspace(0, 5, 20)[:, None]
    >>> model = GGPRegressor("gaussian").fit(X, np.sin(X[:, 0]))
    >>> observed_information(model.fit_.evidence).shape
    (4, 4)
    """
    return _information(_moved(evidence), evidence.theta.size)


def seen(evidence: Evidence) -> Array:
    """Nats by which leave-one-out densities are too high because hyperparameters have seen the row, (n,).

    Without row i the evidence loses that row's log density given all others, whose gradient in theta is g_i. To first
    order the maximum moves by ``-H^-1 g_i``, H the negative Hessian of what was maximised, and that density falls by
    ``g_i^T H^-1 g_i``. Summed over the rows this is about one nat for every hyperparameter that the rows know (Takeuchi
    1976). Directions in which the evidence hardly bends or rises, and entries at their bounds, do not count.

    >>> from ggpm import GGPRegressor
    >>> X = np.linspace(0, 5, 30)[:, None]
    >>> model = GGPRegressor("poisson").fit(X, np.arange(30) % 5)
    >>> seen(model.fit_.evidence).shape
    (30,)
    """
    pairs = list(_moved(evidence))
    H = _information(pairs, evidence.theta.size)
    G = np.array([(log_densities(there[2]) - log_densities(back[2])) / (2 * STEP) for there, back in pairs])
    free = ~_held(evidence)
    if not free.any():
        return np.zeros(evidence.field.n_rows)
    w, Q = np.linalg.eigh(H[np.ix_(free, free)])
    along = Q.T @ G[free]
    return np.asarray(np.sum(along[w > LEAST_BEND] ** 2 / w[w > LEAST_BEND, None], axis=0))


def _moved(evidence: Evidence) -> Iterator[tuple[Any, Any]]:
    """What is learned from (`Evidence.learn`) above and below theta in each of its entries."""
    start = evidence.infer().start
    for step in STEP * np.eye(evidence.theta.size):
        yield evidence.at(evidence.theta + step).learn(start), evidence.at(evidence.theta - step).learn(start)


def _information(pairs: Iterable[tuple[Any, Any]], p: int) -> Array:
    """Negative Hessian, (p, p), from what is learned on both sides of theta."""
    H = np.array([(back[1] - there[1]) / (2 * STEP) for there, back in pairs]).reshape(p, p)
    return 0.5 * (H + H.T)


def _held(evidence: Evidence) -> NDArray[np.bool_]:
    """Entries of theta that a bound stopped."""
    return np.any(np.abs(evidence.theta[:, None] - evidence.bounds) < AT_BOUND, axis=1)


def known(evidence: Evidence) -> Known:
    """What the curvature of the evidence, with priors where there are any, says of the learned hyperparameters.

    >>> from ggpm import GGPRegressor
    >>> X = np.linspace(0, 5, 20)[:, None]
    >>> model = GGPRegressor("gaussian").fit(X, np.sin(X[:, 0]))
    >>> known(model.fit_.evidence).sd.shape
    (4,)
    """
    theta = evidence.theta
    p, nothing = theta.size, np.full((theta.size, theta.size), np.nan)
    held = _held(evidence)
    if evidence.objective == "loo":
        return Known(theta, nothing, held, "leave-one-out densities have no curvature that says how well they know")
    free = np.flatnonzero(~held)
    if not p or not free.size:
        return Known(theta, nothing, held)
    try:
        H = observed_information(evidence)[np.ix_(free, free)]
        w, Q = np.linalg.eigh(H)
    except (np.linalg.LinAlgError, ValueError) as err:
        return Known(theta, nothing, held, str(err).rstrip("."))
    covariance = nothing.copy()
    if w[0] <= 0:  # what does not mix with a rising or flat direction is known all the same
        flat = w <= 0
        known_here = np.all(Q[:, flat] ** 2 < 1e-6, axis=1)
        note = "the evidence is flat or rises along some directions: it is not at a maximum there"
        inverse = (Q[:, ~flat] / w[~flat]) @ Q[:, ~flat].T
        keep = free[known_here]
        covariance[np.ix_(keep, keep)] = inverse[np.ix_(known_here, known_here)]
        return Known(theta, covariance, held, note)
    covariance[np.ix_(free, free)] = (Q / w) @ Q.T
    return Known(theta, covariance, held)
