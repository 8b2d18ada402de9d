"""`Predictive`: the distribution of new observations, with the latent integrated out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from html import escape
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import check_level, check_whole
from ggpm.data.text import see
from ggpm.families.base import Family
from ggpm.families.special.adaptive import Rows, cholesky_root
from ggpm.families.support import Positive, Real
from ggpm.prediction.angles import made_tables
from ggpm.prediction.expectations import averaged_moment, averaged_var, completed, moment_at_mean
from ggpm.prediction.kinds import Ordered, kind_of
from ggpm.prediction.nodes import gather
from ggpm.prediction.questions import Parameter, mean_interval, probability
from ggpm.prediction.regions import HighestDensityRegion, highest_density
from ggpm.sites.densities import log_expected_prob

__all__ = ["Predictive"]

Array = NDArray[np.float64]

BLOCK = 2**14  # rows that are answered at a time

SHOWN_ROWS = 8  # in a notebook


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
        classes are codes 0, 1, ... in this order, ``model.codes(labels)``; the classifier's own methods take and give
        labels.

    Examples
    --------
    >>> from ggpm.families import Poisson
    >>> p = Predictive(Poisson(), np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> p.mean().round(4)
    array([1.6487])
    """

    recalibrated: bool = False
    """Whether it is more than the family averaged over the latent: `ggpm.prediction.recalibrated`."""

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

    @property
    def _kind(self) -> Ordered:
        return kind_of(self.family)

    def cholesky(self) -> Array:
        """Lower Cholesky roots of the latent's covariances, (m, D, D), zero in directions without variance.

        >>> from ggpm.families import Poisson
        >>> Predictive(Poisson(), np.zeros((1, 1)), np.full((1, 1, 1), 4.0)).cholesky()
        array([[[2.]]])
        """
        return self._root

    @cached_property
    def _root(self) -> Array:
        return cholesky_root(self.latent_cov)

    @cached_property
    def _circular_tables(self) -> list[Any]:
        return list(self._make_circular_tables())

    def _make_circular_tables(self) -> Iterable[Any]:
        """Rows and distribution functions of their angles, of some at a time."""
        return made_tables(self)

    @property
    def components(self) -> tuple[tuple[Array, Predictive], ...]:
        """Weights (m,) and distributions that this is an average of: itself alone, unless it is a `Mixture`."""
        return ((np.ones(len(self)), self),)

    def mixed(self, answer: Callable[[Predictive], Array]) -> Array:
        """Weighted sum of an answer (m, ...) over the components.

        >>> from ggpm.families import Poisson
        >>> Predictive(Poisson(), np.zeros((1, 1)), np.zeros((1, 1, 1))).mixed(lambda part: part.mean())
        array([1.])
        """
        return np.asarray(answer(self))

    def alike(self) -> list[tuple[Rows, Predictive]]:
        """Rows that are averages with the same weights, with distributions, set by set: all but for a `Mixture`.

        >>> from ggpm.families import Poisson
        >>> Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1))).alike()
        [(array([0, 1]), Predictive(Poisson(), 2 rows))]
        """
        return [(np.arange(len(self)), self)]

    def single(self) -> Predictive:
        """One distribution with the latent's mean and covariance: this one, but for averages of several.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.single() is p
        True
        """
        return self

    def __len__(self) -> int:
        return len(self.latent_mean)

    def rows(self, rows: Any) -> Predictive:
        """The predictive distributions of some rows: a slice, a mask or indices.

        >>> from ggpm.families import Poisson
        >>> Predictive(Poisson(), np.zeros((3, 1)), np.ones((3, 1, 1))).rows(slice(0, 2))
        Predictive(Poisson(), 2 rows)
        """
        trials = None if self.trials is None else self.trials[rows]
        return Predictive(self.family, self.latent_mean[rows], self.latent_cov[rows], trials, self.classes)

    def __repr__(self) -> str:
        return f"Predictive({self.family!r}, {len(self)} rows)"

    def _repr_html_(self) -> str:
        """For notebooks: what it is, and the first rows in the columns of a summary."""
        from ggpm.prediction.summaries import summarise

        shown = self.rows(slice(0, SHOWN_ROWS))
        names = None if self.classes is None else [str(label) for label in self.classes]
        table = summarise(shown, 0.9, names, self.classes).to_html(float_format="{:.4g}".format)
        more = f"<p>and {len(self) - SHOWN_ROWS} more rows</p>" if len(self) > SHOWN_ROWS else ""
        asked = see("reference/ggpm.Predictive", "all that it answers")
        return f"<p>{escape(repr(self))}, with 90 % regions; {asked}</p>{table}{more}"

    # ---- moments ---------------------------------------------------------------------------------------------
    def mean(self) -> Array:
        """Predictive mean in the space of y: circular mean, mean composition, class probabilities, ...

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.mean().round(3)
        array([1.649, 1.649])
        """
        return self._in_blocks(lambda p: p.family.point(p._moment()))

    def var(self) -> Array:
        """Predictive variance: (m,) for scalar y, covariance (m, d, d) for vectors, circular variance for angles.

        For matrices (m, p, p) it is the variance of each entry.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.var().round(3)
        array([6.319, 6.319])
        """
        return self._in_blocks(lambda p: p._var())

    def std(self) -> Array:
        """Predictive standard deviation of numbers, and of each entry of vectors and matrices, in the shape of `mean`.

        Angles and classes have none: ValueError says what to ask.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.std().round(3)
        array([2.514, 2.514])
        """
        if self.family.kind in ("angles", "classes"):
            ask = {
                "angles": "the circular variance is var(), the circular standard deviation in summary(X), arcs are "
                "interval(level)",
                "classes": "probabilities() says how sure they are, interval(level) the likely ones",
            }
            raise ValueError(f"{self.family.kind} have no standard deviation: {ask[self.family.kind]}.")
        mean, variance = self.mean(), self.var()
        return np.sqrt(np.einsum("...ii->...i", variance) if variance.ndim > mean.ndim else variance)

    def _var(self) -> Array:
        if self.family.variance_of(moment_at_mean(self)) is not None:  # a function of the moment, which is found once
            return np.asarray(self.family.variance_of(self._moment()))
        own = None if self.family.mean_alone else self.family.predictive_moments(self.latent_mean, self.latent_cov)
        if own is None or own[1] is None:
            return averaged_var(self)
        moment, total = own
        return completed(self, self.family.variance(moment, total, np.zeros_like(total)), averaged_var)

    def _moment(self) -> Array:
        closed = self.family.predictive_moments(self.latent_mean, self.latent_cov)
        if closed is None:
            return averaged_moment(self)
        first = np.asarray(closed[0])
        if self.trials is not None:
            first = first * self.trials.reshape(-1, *[1] * (first.ndim - 1))
        return completed(self, first, averaged_moment)

    # ---- density -----------------------------------------------------------------------------------------------
    def log_prob(self, y: Any) -> Array:
        """Log predictive density (or probability) of each y, (m,), per unit of y; classes are codes (see `Predictive`).

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.log_prob([0, 3]).round(3)
        array([-0.963, -2.517])
        """
        encoded = self._encode(y)
        return self._in_blocks(
            lambda p, rows: log_expected_prob(p.family, p.latent_mean, p.latent_cov, encoded[rows]), with_rows=True
        )

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
        return self._with_ends(y, self._cdf)

    def _cdf(self, y: Any) -> Array:
        encoded = self._encode(y)
        return self._in_blocks(lambda p, rows: p._kind.cdf(p, encoded[rows]), with_rows=True)

    def _with_ends(self, y: Any, cdf: Callable[[Any], Array]) -> Array:
        """Values of a distribution function, also where y is infinite: of numbers, for which 1 stands in there."""
        given = np.asarray(y)
        numbers = given.dtype.kind == "f" and given.ndim < 2 and isinstance(self.family.support, Real | Positive)
        if not numbers or not (ends := np.isinf(given)).any():
            return cdf(y)
        out = cdf(np.where(ends, 1.0, given))
        column = (-1, *[1] * (out.ndim - 1))
        return np.where(ends.reshape(column), (given > 0).reshape(column), out)

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

    def steps(self, y: Any) -> tuple[Array, Array]:
        """P(Y < y) and P(Y <= y), (m,) each, which differ where y has a probability of its own: counts, many zeros.

        Of angles both are the probability of the arc from opposite the mean forwards to y.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((1, 1)), np.ones((1, 1, 1)))
        >>> np.round(p.steps([1]), 3).ravel()
        array([0.382, 0.641])
        """
        return self._steps(self._encode(y))

    def _steps(self, encoded: Array) -> tuple[Array, Array]:
        both = self._in_blocks(lambda p, rows: np.stack(p._kind.steps(p, encoded[rows]), axis=1), with_rows=True)
        return both[:, 0], both[:, 1]

    def quantile(self, q: float) -> Array:
        """The q-quantile of y, per output for vectors; angles have none, but arcs: `interval`.

        >>> from ggpm.families import Poisson
        >>> p = Predictive(Poisson(), np.zeros((2, 1)), np.ones((2, 1, 1)))
        >>> p.quantile(0.9)
        array([4., 4.])
        """
        check_level(q, "q")
        return self._in_blocks(lambda p: p._kind.quantile(p, q))

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
        return self._in_blocks(lambda p: p._kind.interval(p, level))

    def mean_interval(self, level: float = 0.9) -> Array:
        """Credible interval of the mean that `mean` estimates: of a rate, a share, a direction; not of y itself.

        ====================  ================================================================
        ordered outputs       (m, 2); per part or class (m, d, 2)
        angles                arc (start, end) about the mean direction, (m, 2); it may wrap
        ====================  ================================================================

        >>> from ggpm.families import Poisson
        >>> Predictive(Poisson(), np.zeros((1, 1)), np.ones((1, 1, 1))).mean_interval(0.9).round(2)
        array([[0.19, 5.18]])
        """
        check_level(level, "level")
        return self._in_blocks(lambda p: mean_interval(p, level))

    def parameter(self, name: str) -> Parameter:
        """One parameter of the family, with ``mean()``, ``median()`` and ``interval(level)``: "scale", "zero", ...

        >>> from ggpm.families import GaussianMeanScale
        >>> family = GaussianMeanScale().resolve(np.zeros(2))
        >>> Predictive(family, np.zeros((1, 2)), np.eye(2)[None]).parameter("scale").interval(0.9).round(2)
        array([[0.19, 5.18]])
        """
        known = self.family.parameters
        if name not in known:
            raise ValueError(
                f"{type(self.family).__name__} has no parameter {name!r} of the inputs; try one of {known}."
            )
        return Parameter(self, name)

    def probability(self, low: Any, high: Any) -> Array:
        """P(low <= y <= high), or of the arc from low forwards to high; bounds are numbers or one per row.

        >>> from ggpm.families import Poisson
        >>> Predictive(Poisson(), np.zeros((1, 1)), np.ones((1, 1, 1))).probability(1, np.inf).round(3)
        array([0.618])
        """
        return probability(self, low, high)

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
        noise = rng.standard_normal((1 if size is None else int(size), *self.latent_mean.shape))
        eta = np.empty(noise.shape)
        np.matmul(noise.swapaxes(0, 1), self._root.swapaxes(1, 2), out=eta.swapaxes(0, 1))  # row by row
        eta += self.latent_mean
        return self.family.sample(eta.reshape(*lead, *self.latent_mean.shape), rng, self.trials)

    def _encode(self, y: Any) -> Array:
        """y as the family takes it, one for every row; a single value is that of every row."""
        encoded = self.family.encode(np.full(len(self), y) if np.ndim(y) == 0 else y)
        if len(encoded) != len(self):
            raise ValueError(f"y has {len(encoded)} rows, the predictive distribution {len(self)}.")
        return encoded

    def _in_blocks(self, answer: Callable[..., Array], with_rows: bool = False) -> Array:
        """Answers for all rows, from so many at a time that memory does not grow with them."""
        if len(self) == 0 and not with_rows:  # nothing, of the shape and type that any row's answer has
            D, trials = self.latent_mean.shape[1], None if self.trials is None else np.ones(1)
            return answer(Predictive(self.family, np.zeros((1, D)), np.zeros((1, D, D)), trials, self.classes))[:0]
        if len(self) <= BLOCK:
            return answer(self, slice(None)) if with_rows else answer(self)
        blocks = [slice(start, start + BLOCK) for start in range(0, len(self), BLOCK)]
        each = (np.arange(len(self))[rows] for rows in blocks)
        some = (answer(self.rows(rows), rows) if with_rows else answer(self.rows(rows)) for rows in blocks)
        return gather(len(self), zip(each, some))
