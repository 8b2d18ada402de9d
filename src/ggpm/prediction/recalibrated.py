"""`Recalibrated`: predictions of numbers, counts and angles, corrected by what became of their transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ggpm.data.checks import check_level, check_whole
from ggpm.data.rows import batches
from ggpm.families.base import Family
from ggpm.families.censored import Censored
from ggpm.learning.recalibration import Recalibration
from ggpm.prediction.angles import CircularTable, circular_tables
from ggpm.prediction.corrected import Corrected
from ggpm.prediction.line import Line
from ggpm.prediction.nodes import Rows, gather
from ggpm.prediction.predictive import Predictive
from ggpm.prediction.regions import HighestDensityRegion, highest_density
from ggpm.prediction.roots import coordinate
from ggpm.prediction.scores import LEVELS, PLACES, REACH, Scores, log_threshold, score_of, scores_of

__all__ = ["Recalibrated"]

Array = NDArray[np.float64]

SPACING = 0.4  # of normal scores of the levels behind corrections of moments, by the trapezoidal rule
FEW_COUNTS = 256  # up to which corrections of moments are sums over all of them
BEYOND = 2.0  # times the count at REACH, up to which they are: second moments to 1e-5, of what is left in the tails
MANY_ROWS = 200  # from which rows share a surface for them
MANY_TRIALS = 32  # of counts that share it: out of fewer they are too coarse to lie between each other
COUNTS = 32  # out of trials, at which a distribution function is found: 0.3 standard deviations apart, or all
NONE = Recalibration(())


def _additions(p: Predictive, law: Recalibration) -> tuple[Array, Array]:
    """Integrals of (y - mean) (g - 1) and (y - mean)² (g - 1) over F, in units of its standard deviation, (m,) each.

    Over normal scores of F; of small counts they are sums, by parts, of F - G(F). Many rows share a surface.
    """
    few_trials = np.zeros(len(p), dtype=bool) if p.trials is None else p.trials < MANY_TRIALS
    if few_trials.any() and not few_trials.all():
        sides = (np.flatnonzero(side) for side in (few_trials, ~few_trials))
        found = gather(len(p), ((rows, np.stack(_additions(p.rows(rows), law), axis=1)) for rows in sides))
        return found[:, 0], found[:, 1]
    if len(p) > MANY_ROWS and not few_trials.any() and p.family.latent_dim == 1 and p._normal() is None:
        line = Line(p.family, p.latent_mean[:, 0], np.sqrt(np.maximum(p.latent_cov[:, 0, 0], 0.0)), p.trials)
        surface = line.surface()
        if surface is not None:
            at, interpolated = surface
            few = _additions(Predictive(p.family, at.mean[:, None], at.sd[:, None, None] ** 2, at.trials), law)
            return interpolated(few[0]), interpolated(few[1])
    m = len(p)
    mean, sd = p.mean().reshape(m), np.sqrt(p.var()).reshape(m)
    first, second, counted = np.zeros(m), np.zeros(m), np.zeros(m, dtype=bool)
    if p.family.countable:
        counted[:] = True
        for some in batches(m, COUNTS):
            k, upto = _known(p.rows(some))
            between = np.concatenate([k[:1] - 1.0, k, k[-1:] + 1.0])  # counts that each of them stands for
            less = 0.5 * (between[2:] - between[:-2]) * (upto - law.cdf(upto))
            first[some], second[some] = less.sum(axis=0), (less * (2.0 * (k - mean[some]) + 1.0)).sum(axis=0)
    elif p.family.support.integer:
        most = p.quantile(ndtr(REACH))
        counted = most <= FEW_COUNTS
        small = np.flatnonzero(counted)
        for some, each, k, upto in _every_count(p.rows(small), BEYOND * (most[small] + 1.0)):
            less, rows = upto - law.cdf(upto), small[some]
            first[rows] = np.bincount(each, less, len(rows))
            second[rows] = np.bincount(each, less * (2.0 * (k - mean[rows][each]) + 1.0), len(rows))
    rest = np.flatnonzero(~counted)
    part, z = p.rows(rest), np.arange(-REACH, REACH + SPACING / 2, SPACING)
    share = SPACING * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * np.expm1(law.log_density(ndtr(z)))
    for u, w in zip(ndtr(z), share) if rest.size else ():
        with np.errstate(invalid="ignore", over="ignore"):  # moments beyond the floats
            away = part.quantile(float(u)).reshape(rest.size) - mean[rest]
            first[rest] += w * away
            second[rest] += w * away * away
    good = (sd > 0) & np.isfinite(sd) & np.isfinite(mean)
    first, second, sd = np.where(good, first, 0.0), np.where(good, second, 0.0), np.where(good, sd, 1.0)
    return first / sd, second / sd**2


def _counts(p: Predictive, k: Array) -> Array:
    """Counts (..., m) as the user has them: out of trials with the failures beside, (..., m, 2)."""
    if not p.family.countable:
        return k
    assert p.trials is not None  # without trials nothing is corrected, and nobody asks
    return np.stack([k, p.trials - k], axis=-1)


def _known(p: Predictive) -> tuple[Array, Array]:
    """Counts out of trials from one end of a distribution to the other, and P(Y <= k) there, (`COUNTS`, m) each."""
    low, high = (p.quantile(float(ndtr(z))) for z in (-REACH, REACH))
    k = np.round(low + (high - low) * np.linspace(0.0, 1.0, COUNTS)[:, None])
    each = p.rows(np.tile(np.arange(len(p)), COUNTS))
    return k, each.steps(_counts(each, k.ravel()))[1].reshape(k.shape)


def _every_count(p: Predictive, most: Array) -> Iterator[tuple[slice, NDArray[np.intp], Array, Array]]:
    """Rows, some at a time, and for every count from zero to each one's largest: whose it is, itself, and P(Y <= k).

    All in one question: no row has more counts than its own, and calls are few.
    """
    for some in batches(len(p), FEW_COUNTS):
        size = most[some].astype(int) + 1
        each = np.repeat(np.arange(len(size)), size)
        k = (np.arange(len(each)) - np.repeat(np.cumsum(size) - size, size)).astype(np.float64)
        yield some, each, k, p.rows(some.start + each).steps(k)[1]


def recalibrable(family: Family, encoded: Array) -> bool:
    """Whether outputs are single numbers with a distribution function, counts out of trials, or angles, as seen.

    >>> from ggpm.families import Gamma, Bernoulli, Binomial
    >>> recalibrable(Gamma(), np.ones(3)), recalibrable(Bernoulli(), np.ones(3))
    (True, False)
    >>> recalibrable(Binomial(), np.ones((3, 2)))
    True
    """
    if family.kind == "angles":
        return True
    if family.finite or isinstance(family, Censored) or family.has("part_log_prob") or not family.has("cdf"):
        return False
    return family.countable or encoded.size == len(encoded)


class Recalibrated(Corrected[Recalibration]):
    """Predictive distributions F, under which F(y) is not uniform but has a law that rows left out have shown.

    Densities are f(y) g(F(y)), distribution functions G(F(y)). What is asked of the latent (`mean_interval`,
    `parameter`) is answered as before, and so are counts out of an unknown number of trials, which are shares, or out
    of fewer trials than the rows had: a law of many says nothing of one.

    Parameters
    ----------
    base : Predictive
    laws : the laws that rows have, some of them
    which : array (m,), the number of each row's law

    Examples
    --------
    >>> from ggpm.families import Gamma
    >>> base = Predictive(Gamma(phi=0.5), np.zeros((1, 1)), np.full((1, 1, 1), 0.1))
    >>> narrow = Recalibrated(base, [Recalibration((0.0, -0.4))], np.zeros(1, dtype=int))
    >>> base.interval(0.9).round(2), narrow.interval(0.9).round(2)
    (array([[0.16, 2.7 ]]), array([[0.25, 2.12]]))
    """

    def _by_law(self, trials: Array | None = None) -> Iterator[tuple[Rows, Recalibration]]:
        """Rows that have the same law, and that law: none for counts out of too few trials, or of unknown ones."""
        for k in np.unique(self.which):
            rows, law = np.flatnonzero(self.which == k), self.laws[k]
            told = np.full(len(rows), not self.family.countable) if trials is None else trials[rows] >= law.fewest
            yield from ((rows[its], one) for its, one in ((told, law), (~told, NONE)) if its.any())

    def _each(self, answer: Callable[[Recalibration, Rows], Array], trials: Array | None = None) -> Array:
        """Answers (m, ...) of the rows' laws."""
        found = [(rows, np.asarray(answer(law, rows))) for rows, law in self._by_law(trials)]
        return gather(len(self), found) if found else np.empty(0)

    def _trials_of(self, encoded: Array) -> Array | None:
        return encoded.sum(axis=1) if self.family.countable else None

    # ---- density and distribution function ---------------------------------------------------------------------
    def log_prob(self, y: Any) -> Array:
        """Log predictive density (or probability) of each y, (m,), per unit of y."""
        return self.base.log_prob(y) + self.log_ratio(y)

    def log_ratio(self, y: Any) -> Array:
        """What recalibration adds to the log density of each y, (m,)."""
        encoded = self._encode(y)
        before, upto = self.base._steps(encoded)
        trials = self._trials_of(encoded)
        return self._each(lambda law, rows: law.log_ratio(before[rows].ravel(), upto[rows].ravel()), trials)

    def _steps(self, encoded: Array) -> tuple[Array, Array]:
        if self.family.kind == "angles":
            return super()._steps(encoded)
        before, upto = self.base._steps(encoded)
        return self._corrected(before, self._trials_of(encoded)), self._corrected(upto, self._trials_of(encoded))

    def _corrected(self, F: Array, trials: Array | None) -> Array:
        """G(F), (m, ...)."""
        return self._each(lambda law, rows: law.cdf(F[rows]), trials)

    def cdf(self, y: Any) -> Array:
        """P(Y <= y); of angles the probability of the arc from the start of their range forwards to y."""
        return super().cdf(y) if self.family.kind == "angles" else self._with_ends(y, self._upto)

    def _upto(self, y: Any) -> Array:
        return self._steps(self._encode(y))[1]

    def quantile(self, q: float) -> Array:
        """The q-quantile of y; angles have none, but arcs: `interval`."""
        check_level(q, "q")
        return self._each(
            lambda law, rows: self.base.rows(rows).quantile(float(law.quantile(np.array(q)))), self.trials
        )

    def _make_circular_tables(self) -> Iterator[tuple[Rows, CircularTable]]:
        for rows, law in self._by_law():
            for some, table in self.base.rows(rows)._make_circular_tables():
                whole = table.reweighted(lambda u: np.exp(law.log_density(u)))  # noqa: B023
                yield from ((rows[some[its]], part) for its, part in whole.shortened(table.series.shape[1]))

    # ---- moments -------------------------------------------------------------------------------------------------
    def _moment(self) -> Array:
        if self.family.kind != "angles":
            return self.base._moment()
        return self._kind.from_tables(self, lambda table, rows: table.resultant())  # type: ignore[attr-defined]

    def mean(self) -> Array:
        """Predictive mean, in the units of y."""
        return super().mean() if self.family.kind == "angles" else self._moments()[0]

    def var(self) -> Array:
        """Predictive variance: of angles the circular one."""
        return super().var() if self.family.kind == "angles" else self._moments()[1]

    def _moments(self) -> tuple[Array, Array]:
        """Mean and variance: those of F, and what the integrals of y (g - 1) and (y - mean)² (g - 1) over F add.

        An average of several distributions has the additions, in units of its standard deviation, of the one that has
        its latent's mean and variance.
        """
        mean, var = self.base.mean(), self.base.var()
        shift, spread = np.zeros(len(self)), np.zeros(len(self))
        for rows, law in self._by_law(self.trials):
            if law is not NONE:
                shift[rows], spread[rows] = _additions(self.base.rows(rows).single(), law)
        known = np.isfinite(mean) & np.isfinite(var).reshape(mean.shape)  # a moment beyond the floats stays there
        sd = np.where(known.reshape(len(self)), np.sqrt(var).reshape(len(self)), 0.0)
        first, second = (shift * sd).reshape(mean.shape), (spread * sd * sd).reshape(var.shape)
        with np.errstate(over="ignore"):
            return self._in_support(mean + first), np.maximum(var + second - first.reshape(var.shape) ** 2, 0.0)

    def _in_support(self, mean: Array) -> Array:
        """Means beyond an end of the support, by rounding of tiny ones, at what Markov's inequality leaves of them.

        Half of what is drawn lies beyond the median, so that the mean is at least half as far from the end as that.
        """
        support = self.family.support
        if self.family.countable:  # as shares, or counts out of trials
            return np.maximum(mean, 0.0)
        for end, beyond in ((support.low, mean < support.low), (support.high, mean > support.high)):
            rows = np.flatnonzero(beyond)
            if rows.size:
                mean[rows] = 0.5 * (end + self.rows(rows).quantile(0.5).reshape(mean[rows].shape))
        return mean

    # ---- regions and draws -----------------------------------------------------------------------------------
    def highest_density(self, level: float = 0.9, n_draws: int = 1000) -> HighestDensityRegion:
        """The smallest region of the given level, as a threshold on the density, from densities at even levels."""
        check_level(level, "level")
        if self.family.kind == "angles" or self.family.support.integer:
            return highest_density(self, level, n_draws)
        threshold = np.empty(len(self))
        for rows, law in self._by_law():
            threshold[rows] = self._threshold(rows, law, level)
        return HighestDensityRegion(self, level, threshold)

    def _threshold(self, rows: Rows, law: Recalibration, level: float) -> Array:
        """Thresholds on log densities; of laws with jumps from quantiles at even levels."""
        if not self.family.support.atoms:
            return log_threshold(self.base.rows(rows), level, law)
        part, levels = self.rows(rows), (np.arange(LEVELS) + 0.5) / LEVELS
        return np.quantile(np.stack([part.log_prob(part.quantile(q)) for q in levels]), 1.0 - level, axis=0)

    def sample(self, size: int | None = None, random_state: Any = None) -> Array:
        """Independent draws of y, (size, m), or (m,) without size."""
        if size is not None:
            check_whole(size, "size", 0)
        if self.family.countable and self.trials is None:
            return self.base.sample(size, random_state)
        rng, count = np.random.default_rng(random_state), 1 if size is None else int(size)
        uniform, out = rng.uniform(size=(count, len(self))), np.empty((count, len(self)))
        if self.family.kind == "angles":
            circle: Any = self.family.support
            for rows, table in circular_tables(self):
                angle = circle.from_radians(table.drawn(uniform[:, rows]))
                out[:, rows] = circle.wrap(self.family.decode(angle))
        elif self.family.countable:
            out = _counts(self, self._successes_at(uniform))
        elif self.family.support.integer:
            few, most = self._with_tables(count)
            many = np.setdiff1d(np.arange(len(self)), few)
            out[:, few] = self.rows(few)._counted(uniform[:, few], most)
            out[:, many] = self.rows(many)._accepted(count, rng)
        elif self.family.support.atoms:
            out = self._accepted(count, rng)
        else:
            for some in batches(len(self), count + PLACES):
                out[:, some] = self.rows(some)._tabled(uniform[:, some])
        return out[0] if size is None else out

    def _with_tables(self, count: int) -> tuple[Rows, Array]:
        """Rows of small counts of which so many draws cost more, one by one, than all probabilities; largest counts.

        A draw that may be refused asks for one probability each time, a table for as many as there are counts.
        """
        near = self.base.single().quantile(ndtr(REACH))
        rows = np.flatnonzero((near <= FEW_COUNTS) & (near < count * self._highest))
        most = self.base.rows(rows).quantile(ndtr(REACH)) if rows.size else np.empty(0)
        small = most <= FEW_COUNTS  # an average may reach further than the one distribution with its latent's moments
        return rows[small], most[small]

    def _counted(self, q: Array, most: Array) -> Array:
        """Quantiles of counts at levels (S, m), from the probabilities of all up to each row's largest."""
        out = np.empty(q.shape)
        for some, each, _, upto in _every_count(self, most):
            ends = np.searchsorted(each, np.arange(1, some.stop - some.start))
            for row, own in enumerate(np.split(upto, ends), start=some.start):
                out[:, row] = np.searchsorted(own, q[:, row])
        return out

    @property
    def _highest(self) -> Array:
        """The largest value of every row's g, (m,): how many draws of F one of the law takes on average."""
        return np.array([law.highest for law in self.laws])[self.which]

    def _accepted(self, count: int, rng: np.random.Generator) -> Array:
        """Draws of F, (count, m), of which some are refused and drawn again."""
        out = self.base.sample(count, rng)
        flat, todo = out.reshape(-1), np.arange(out.size)
        highest = self._highest
        while todo.size:
            row = todo % len(self)
            share = np.exp(self.rows(row).log_ratio(flat[todo])) / highest[row]
            todo = todo[rng.uniform(size=todo.size) >= share]
            if todo.size:
                flat[todo] = self.base.rows(todo % len(self)).sample(None, rng)
        return out

    def _successes_at(self, q: Array) -> Array:
        """Quantiles of counts out of trials at many levels, (S, m): between counts that are known."""
        k, upto = _known(self.base)
        table, out = Scores(coordinate(self.family.support), k, score_of(upto)), np.empty(q.shape)
        for rows, law in self._by_law(self.trials):
            level = ndtri(law.quantile(q[:, rows]))
            for i, row in enumerate(rows):
                out[:, row] = table.between(row, k[:, row], level[:, i])
        return np.clip(np.ceil(out), k[0], k[-1])

    def _tabled(self, q: Array) -> Array:
        """Quantiles of continuous numbers at many levels, (S, m), to 1e-4 of their spread."""
        table, out = scores_of(self.base), np.empty((len(q), len(self)))
        for rows, law in self._by_law():
            out[:, rows] = table.quantiles(rows, ndtri(law.quantile(q[:, rows])))
        return out

    def in_the_order_of(self, draws: Array, rng: np.random.Generator) -> Array:
        """Draws (S, m) that have, row by row, the order of some of the base, joint over the rows: their dependence.

        Known as ensemble copula coupling (Schefzik, Thorarinsdottir and Gneiting 2013). Equal ones are in random order.
        """
        if self.family.countable and self.trials is None:
            return draws
        own = self.sample(len(draws), rng)
        if self.family.countable:
            draws, own = draws[..., 0], own[..., 0]
        ties = rng.uniform(size=draws.shape)
        place = np.argsort(np.lexsort((ties, self._place(draws)), axis=0), axis=0)
        ordered = np.take_along_axis(own, np.argsort(self._place(own), axis=0, kind="stable"), axis=0)
        return _counts(self, np.take_along_axis(ordered, place, axis=0))

    def _place(self, draws: Array) -> Array:
        """Numbers in whose order y are: those of angles start opposite the mean."""
        if self.family.kind != "angles":
            return draws
        circle: Any = self.family.support
        return np.mod(draws - self.base.mean() + 0.5 * circle.period, circle.period)
