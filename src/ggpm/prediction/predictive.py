"""`Predictive`: the distribution of new observations, with the latent integrated out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ggpm.data.checks import check_level, check_whole
from ggpm.data.rows import batches
from ggpm.families.base import Family
from ggpm.families.special.quadrature import centred_nodes, square_root, standard_normal_nodes
from ggpm.prediction.kinds import Ordered, kind_of
from ggpm.prediction.regions import CircularGrid, HighestDensityRegion, circular_grid, highest_density

__all__ = ["Predictive"]

Array = NDArray[np.float64]

# Most Newton steps when log_prob centres its nodes, against rows that never settle: where the centre is shows in the
# accuracy of the integral, not in its value.
MODE_STEPS = 30
# Half as many differ from ten times as many by 1e-13 in log p (Poisson, gamma with phi = 0.01, negative binomial;
# latent standard deviations from 0.3 to 3).
STRETCHED_NODES = 401


class Predictive:
    """p(y* | x*) for m rows: the family averaged over the full D×D Gaussian of the latent (paper, section 2.4).

    The same numbers come back every time, whatever the random state; only `sample` is random. Everywhere y is as the
    user has it (hours, percentages), not as the family encodes it.

    Parameters
    ----------
    family : Family
        The fitted family.
    latent_mean, latent_cov : arrays (m, D) and (m, D, D)
        Gaussian of the latent at each row.
    trials : array (m,), optional
        Number of trials for counts out of N; without it, means are proportions.
    classes : array, optional
        The labels of a classifier, which `top_k` names. Where y is given or drawn (`log_prob`, `cdf`, `sample`),
        classes are codes 0, 1, ... in this order; the classifier's own methods take and give labels.

    Examples
    --------
    >>> from ggpm.families import Poisson
    >>> p = Predictive(Poisson(), np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> p.mean().round(4)
    array([1.6487])
    """

    def __init__(
        self,
        family: Family,
        latent_mean: Array,
        latent_cov: Array,
        trials: Array | None = None,
        classes: NDArray | None = None,
    ):
        self.family = family
        self.classes = classes
        self.latent_mean = latent_mean
        self.latent_cov = latent_cov
        self.trials = trials
        self._root = square_root(latent_cov)

    @property
    def _kind(self) -> Ordered:
        return kind_of(self.family)

    @cached_property
    def _circle(self) -> CircularGrid:
        return circular_grid(self)

    def __len__(self) -> int:
        return len(self.latent_mean)

    def __repr__(self) -> str:
        return f"Predictive({self.family!r}, {len(self)} rows)"

    # ---- moments ---------------------------------------------------------------------------------------------
    def mean(self) -> Array:
        """Predictive mean in the space of y: circular mean, mean composition, class probabilities, ...

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.mean().round(3)
        array([1.649, 1.649])
        """
        return self.family.point(self._moment())

    def var(self) -> Array:
        """Predictive variance: (m,) for scalar y, covariance (m, d, d) for vectors, circular variance for angles.

        For matrices (m, p, p) it is the variance of each entry.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.var().round(3)
        array([6.319, 6.319])
        """
        own = self.family.predictive_moments(self.latent_mean, self.latent_cov)
        if own is not None:
            moment, total = own
            return self.family.variance(moment, total, np.zeros_like(total))
        moment = self._moment()
        within = self._expect(lambda eta, rows: self.family.spread(eta, self._trials(rows)))

        def centred(eta: Array, rows: slice) -> Array:
            c = self.family.moment(eta, self._trials(rows)) - moment[rows]
            # entries of matrices have variances, not covariances
            entries = within.ndim == 1 or self.family.support.row_ndim == 2
            return c**2 if entries else c[..., :, None] * c[..., None, :]

        between = self._expect(centred) if within.ndim in (1, 3) else np.zeros_like(within)
        return self.family.variance(moment, within, between)

    def _moment(self) -> Array:
        own = self.family.predictive_moments(self.latent_mean, self.latent_cov)
        if own is not None:
            return own[0]
        return self._expect(lambda eta, rows: self.family.moment(eta, self._trials(rows)))

    # ---- density -----------------------------------------------------------------------------------------------
    def log_prob(self, y: Any) -> Array:
        """Log predictive density (or probability) of each y, (m,), per unit of y.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.log_prob([0, 3]).round(3)
        array([-0.963, -2.517])
        """
        encoded = self._encode(y)
        closed = self.family.predictive_log_prob(self.latent_mean, self.latent_cov, encoded)
        if closed is not None:
            return closed
        out = np.empty(len(self))
        if self.family.finite:
            nodes, weights = self._nodes()
            for rows in batches(len(self), nodes.size):
                values = self.family.log_prob(self._place(nodes, rows), encoded[rows])
                out[rows] = logsumexp(values, axis=0, b=weights[:, None])
        else:
            nodes, log_weights = centred_nodes(self.latent_mean.shape[1])
            for rows in batches(len(self), nodes.size):
                out[rows] = self._centred_log_prob(nodes, log_weights, encoded[rows], rows)
        return out

    def _centred_log_prob(self, nodes: Array, log_weights: Array, y: Array, rows: slice) -> Array:
        """Quadrature with nodes centred and scaled at the mode of p(y|eta) q(eta).

        With eta = mean + R e the integrand is p(y|eta) N(e|0, I); at its mode e^ the curvature is
        H = I + R^T U R, and the nodes are e^ + H^-1/2 x, in one dimension stretched to reach the prior's tails.
        """
        mean, R = self.latent_mean[rows], self._root[rows]
        e = np.zeros_like(mean)

        def at(e: Array) -> Array:
            return mean + np.einsum("...ijk,...ik->...ij", R, e)

        def joint(e: Array) -> Array:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                value = self.family.log_prob(at(e), y) - 0.5 * np.sum(e**2, axis=-1)
            return np.where(np.isfinite(value), value, -np.inf)

        value, H = joint(e), None
        step = np.ones(len(e))
        for _ in range(MODE_STEPS):
            eta = at(e)
            gradient = np.einsum("ikj,ik->ij", R, self.family.u(eta, y)) - e
            U = self.family.U(eta, y)
            definite = U.semidefinite()
            if not definite.all():
                U = U.select(definite, self.family.U(eta, y, expected=True))
            H = np.einsum("iaj,iab,ibk->ijk", R, U.dense(), R, optimize=True)
            H[:, range(H.shape[-1]), range(H.shape[-1])] += 1.0
            move = np.linalg.solve(H, gradient[..., None])[..., 0]
            if np.max(np.sum(move * gradient, axis=-1)) < 1e-8:
                break
            trial = e + step[:, None] * move
            new = joint(trial)
            better = new >= value
            e, value = np.where(better[:, None], trial, e), np.where(better, new, value)
            step = np.where(better, np.minimum(1.0, 2.0 * step), 0.25 * step)
        assert H is not None
        if e.shape[1] == 1:
            width = 1.0 / np.sqrt(H[:, 0, 0])
            return _stretched_log_integral(lambda x: joint(x[..., None]), e[:, 0], width)
        values, vectors = np.linalg.eigh(H)
        placed = e + np.einsum("ijk,sk->sij", vectors / np.sqrt(values)[:, None, :], nodes)
        return logsumexp(joint(placed) + log_weights[:, None], axis=0) - 0.5 * np.sum(np.log(values), axis=-1)

    # ---- distribution function ---------------------------------------------------------------------------------
    def cdf(self, y: Any) -> Array:
        """P(Y <= y), per output for vectors.

        Angles have no first one: there it is the probability of the arc from the start of their range (0 degrees,
        0 hours, -pi) forwards to y, whatever that cut means for the data. `pit` cuts opposite the mean instead.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.cdf([0, 3]).round(3)
        array([0.382, 0.866])
        """
        return self._kind.cdf(self, self._encode(y))

    def pit(self, y: Any, random_state: Any = 0) -> Array:
        """Probability integral transform of each y: uniform on (0, 1) if the predictive distribution is right.

        Continuous outputs give F(y). Discrete ones are randomised, F(y - 1) + v p(y) with v uniform, so that the
        result is uniform for them too; angles are cut opposite to their mean direction, so that values near 0 and 1
        are those far from the mean. Vectors give one value per part, (m, d).

        >>> from ggpm.families import Gaussian
        >>> family = Gaussian().resolve(np.zeros(1))
        >>> Predictive(family, np.zeros((1, 1)), np.zeros((1, 1, 1))).pit(np.zeros(1))
        array([0.5])
        """
        return self._kind.pit(self, y, random_state)

    def quantile(self, q: float) -> Array:
        """The q-quantile of y, per output for vectors; angles have none, but arcs: `interval`.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.quantile(0.9)
        array([4., 4.])
        """
        check_level(q, "q")
        return self._kind.quantile(self, q)

    def highest_density(self, level: float = 0.9, n_draws: int = 1000) -> HighestDensityRegion:
        """The smallest region of the given level, as a threshold on the density; see `ggpm.prediction.regions`.

        For compositions it is the region of the simplex to draw or to test membership of:
        ``p.highest_density(0.9).contains(y)``.

        >>> from ggpm.families import Dirichlet
        >>> family = Dirichlet().resolve([[0.2, 0.3, 0.5]])
        >>> p = Predictive(family, np.full((1, 3), 3.0), 0.1 * np.eye(3)[None])
        >>> p.highest_density(0.9).contains([[0.34, 0.33, 0.33]])
        array([ True])
        """
        return highest_density(self, level, n_draws)

    # ---- classes -------------------------------------------------------------------------------------------------
    def probabilities(self) -> Array:
        """Probability of every class, (m, number of classes), also for two classes.

        >>> from ggpm.families import Bernoulli
        >>> Predictive(Bernoulli(), np.zeros((1, 1)), np.ones((1, 1, 1))).probabilities().round(2)
        array([[0.5, 0.5]])
        """
        if not self.family.finite:
            raise ValueError(f"{type(self.family).__name__} outputs are not classes; try mean() or log_prob(y).")
        p = self._moment()
        return np.stack([1.0 - p, p], axis=1) if p.ndim == 1 else p

    def top_k(self, k: int = 3) -> tuple[NDArray, Array]:
        """The k most probable labels, best first, and their probabilities, (m, k) each; codes without labels.

        >>> from ggpm.families import Categorical
        >>> family = Categorical().resolve([0, 1, 2])
        >>> Predictive(family, np.array([[0.0, 2.0, 1.0]]), np.zeros((1, 3, 3))).top_k(2)[0]
        array([[1, 2]])
        """
        p = self.probabilities()
        if not isinstance(k, Integral) or not 1 <= k <= p.shape[1]:
            raise ValueError(f"k must be a whole number between 1 and the number of classes, {p.shape[1]}; got {k!r}.")
        codes = np.argsort(-p, axis=1, kind="stable")[:, :k]
        return codes if self.classes is None else self.classes[codes], np.take_along_axis(p, codes, axis=1)

    def interval(self, level: float = 0.9) -> NDArray:
        """Credible region of the given level.

        ====================  ================================================================
        ordered outputs       central interval, (m, 2); per part (m, d, 2) for vectors
        angles                shortest arc (start, end), (m, 2); it may wrap around
        classes               smallest set of classes, boolean (m, d)
        ====================  ================================================================

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.interval(0.9).shape
        (2, 2)
        """
        check_level(level, "level")
        return self._kind.interval(self, level)

    def _normal(self) -> tuple[Array, Array] | None:
        """Mean and sd of y where it is exactly normal."""
        return self.family.predictive_normal(self.latent_mean, self.latent_cov)

    # ---- draws ---------------------------------------------------------------------------------------------------
    def sample(self, size: int | None = None, random_state: Any = None) -> Array:
        """Independent draws of y, (size, m, ...), or (m, ...) without size.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.sample(10, random_state=0).shape
        (10, 2)
        """
        if size is not None:
            check_whole(size, "size", 0)
        rng = np.random.default_rng(random_state)
        lead = () if size is None else (int(size),)
        noise = rng.standard_normal((*lead, *self.latent_mean.shape))
        eta = self.latent_mean + np.einsum("ijk,...ik->...ij", self._root, noise)
        return self.family.sample(eta, rng, self.trials)

    def _encode(self, y: Any) -> Array:
        """y as the family takes it, one for every row."""
        encoded = self.family.encode(y)
        if len(encoded) != len(self):
            raise ValueError(f"y has {len(encoded)} rows, the predictive distribution {len(self)}.")
        return encoded

    # ---- nodes ---------------------------------------------------------------------------------------------------
    def _nodes(self) -> tuple[Array, Array]:
        return standard_normal_nodes(self.latent_mean.shape[1])

    def _place(self, nodes: Array, rows: slice) -> Array:
        """Nodes of the latent, (S, rows, D)."""
        return self.latent_mean[rows] + np.einsum("ijk,sk->sij", self._root[rows], nodes)

    def _trials(self, rows: slice) -> Array | None:
        return None if self.trials is None else self.trials[rows]

    def _expect(self, function: Callable[[Array, slice], Array]) -> Array:
        """E[function(eta)] for every row, in batches."""
        nodes, weights = self._nodes()
        parts = [
            np.tensordot(weights, function(self._place(nodes, rows), rows), axes=1)
            for rows in batches(len(self), nodes.size * max(1, self.latent_mean.shape[1]))
        ]
        return np.concatenate(parts)


def _stretched_log_integral(log_f: Callable[[Array], Array], centre: Array, width: Array) -> Array:
    """log of the integral of exp(log_f(x) - log sqrt(2 pi)) over the real line, for every row.

    The trapezoidal rule in t, x = centre + width sinh(t): dense where the integrand has its peak, and still out
    to 20 standard deviations of the prior, where likelihoods that level off keep their mass.
    """
    reach = np.arcsinh((20.0 + np.abs(centre)) / width)
    tau = np.linspace(-1.0, 1.0, STRETCHED_NODES)[:, None]
    t = reach * tau
    values = log_f(centre + width * np.sinh(t)) + np.log(width * np.cosh(t))
    return logsumexp(values, axis=0) + np.log(reach * (tau[1] - tau[0])) - 0.5 * np.log(2 * np.pi)
