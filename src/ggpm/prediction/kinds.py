"""Answers of a predictive distribution, by kind of output: one class per kind, and one table.

`Predictive`, the summaries and the calibration ask ``kind_of(family)`` and never look at the support themselves. A new
kind of output is a support with a new ``kind``, a subclass of `Ordered` with the answers that differ, and a line in
`KINDS`; a support that inherits its ``kind`` needs nothing.

``y`` is as the user has it, ``encoded`` as the family's density takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ggpm.data.rows import batches
from ggpm.families.base import Family
from ggpm.families.composition import Composition
from ggpm.families.dirichlet_multinomial import DirichletMultinomial
from ggpm.families.multinomial import Multinomial
from ggpm.families.support import Circle
from ggpm.prediction.angles import CircularTable, circular_tables
from ggpm.prediction.averages import by_rows
from ggpm.prediction.categories import MOST_SOFTMAX, category_quantiles, few_trials
from ggpm.prediction.entries import entry_quantiles
from ggpm.prediction.expectations import over_latent
from ggpm.prediction.inflations import Inflations
from ggpm.prediction.line import Line, Several, expect
from ggpm.prediction.nodes import Rows, gather
from ggpm.prediction.parts import Table, part_tables
from ggpm.prediction.regions import densities_of_draws
from ggpm.prediction.roots import coordinate, integers_between, roots, values_between
from ggpm.prediction.sections import law_of
from ggpm.prediction.shares import share_quantiles

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]

INTERVAL_DRAWS = 4096  # draws behind intervals of counts in many categories, of users' vectors
SCORE_DRAWS = 500  # draws behind scores and depths without a closed form, fixed seed: 2 % standard error of a depth


def at_atoms(p: Predictive, encoded: Array) -> Array:
    """P(Y = y), (m,), of numbers that have a probability of their own; zero elsewhere."""
    out, there = np.zeros(len(p)), np.isin(encoded, p.family.support.atoms)
    for weight, part in p.rows(there).components if there.any() else ():
        law, y = law_of(part), encoded[there]
        if isinstance(law, Inflations):
            out[there] += weight * law.at_singles(y)
        else:
            out[there] += weight * over_latent(part, lambda eta, rows: np.exp(part.family.log_prob(eta, y[rows])))  # noqa: B023
    return out


class Ordered:
    """Numbers in an order, entry by entry for vectors, compositions and matrices.

    The region is the central interval: from the family's cdf, or from draws where it has none.
    """

    instead = "interval(level) or highest_density(level)"
    """Suggestion where somebody asks for a distribution function and the family has no cdf."""

    # ---- distribution function ---------------------------------------------------------------------------------
    def cdf(self, p: Predictive, encoded: Array) -> Array:
        """P(Y <= y)."""
        cdf = self.cdf_given_latent(p)
        if p.family.has("part_log_prob"):
            return self._from_parts(p, lambda table, rows: table.cdf(encoded[rows]))
        if len(p.components) > 1:
            return p.mixed(lambda part: self.cdf(part, encoded))
        normal = p._normal()
        if normal is not None:
            mean, sd = normal
            return p.family.decode(ndtr((encoded - mean) / sd))
        if p.family.latent_dim == 1:
            line = self._line(p)
            return expect(p.family, line.mean, line.sd, encoded, cdf)[0]
        law = law_of(p)
        if law is not None:
            return law(slice(None), encoded, True, False)[0]
        return over_latent(p, lambda eta, rows: cdf(eta, encoded[rows]))

    @staticmethod
    def _from_parts(p: Predictive, answer: Callable[[Table, Rows], Array]) -> Array:
        """Answers (k, d, ...) of tables that are made for some rows at a time and forgotten."""
        return gather(len(p), ((rows, answer(table, rows)) for rows, table in part_tables(p)))

    def cdf_given_latent(self, p: Predictive) -> Callable[[Array, Array], Array]:
        """Return the family's cdf, or raise ValueError that says what to ask instead."""
        if not p.family.has("cdf"):
            raise self._no_order(p)
        return p.family.cdf

    def _no_order(self, p: Predictive) -> ValueError:
        return ValueError(
            f"{type(p.family).__name__} outputs have no order, hence neither quantiles nor a distribution "
            f"function. Try {self.instead}."
        )

    def pit(self, p: Predictive, y: Any, random_state: Any) -> Array:
        """Probability integral transform, randomised where y has a probability of its own."""
        before, upto = p._steps(p._encode(y))
        support = p.family.support
        if not (support.integer or support.atoms):
            return upto
        return before + np.random.default_rng(random_state).uniform(size=upto.shape) * (upto - before)

    def steps(self, p: Predictive, encoded: Array) -> tuple[Array, Array]:
        """P(Y < y) and P(Y <= y), which differ where y has a probability of its own."""
        if not p.family.support.integer:
            upto = self.cdf(p, encoded)
            return (upto - at_atoms(p, encoded) if p.family.support.atoms else upto), upto
        if len(p.components) > 1:
            return _mixed_steps(self, p, encoded)
        self.cdf_given_latent(p)
        return self._line(p).steps(slice(None), encoded)

    def quantile(self, p: Predictive, q: float) -> Array:
        """The q-quantile, as the user has it."""
        return p.family.decode(self._encoded_quantile(p, q))

    def _encoded_quantile(self, p: Predictive, q: float) -> Array:
        """The q-quantile, as the family encodes y."""
        if len(p.components) > 1 and not p.family.has("part_log_prob"):
            return self._mixed_quantile(p, q)
        normal = p._normal()
        if normal is not None:
            mean, sd = normal
            return mean + sd * ndtri(q)
        self.cdf_given_latent(p)
        if p.family.has("part_log_prob"):
            return self._part_quantiles(p, (q,))[..., 0]
        return self._past_atoms(p, q) if p.family.support.atoms else self._line(p).quantile(q)

    def _mixed_quantile(self, p: Predictive, q: float) -> Array:
        """The q-quantile of a mixture: by Newton's method from about those of its parts, or by halving between them."""
        support = p.family.support
        if not (support.integer or support.atoms):
            at, found = coordinate(support), [(w, *self._law(part, q)) for w, part in p.components]
            start = np.sum([by_rows(w, near) for w, near, _ in found], axis=0)
            laws = [(np.repeat(w, start.size // max(len(p), 1)), of_part) for w, _, of_part in found]  # entry by entry

            def law(rows: Rows, y: Array) -> tuple[Array, Array]:
                F, slope = np.sum([w[rows] * np.stack(of_part(rows, y)) for w, of_part in laws], axis=0)
                return F, slope

            return np.reshape(at.back(roots(law, q, start.ravel(), at)), start.shape)
        ends = [self._encoded_quantile(part, q) for _, part in p.components]
        low, high = np.min(ends, axis=0), np.max(ends, axis=0)
        if support.integer:
            return integers_between(lambda k: self.steps(p, k)[1], q, low, high)
        return values_between(lambda z: np.reshape(self.cdf(p, z), z.shape), q, low, high)

    def _law(self, p: Predictive, q: float) -> tuple[Array, Callable[[Rows, Array], tuple[Array, Array]]]:
        """Coordinates near the q-quantile of a part of a mixture, and its distribution function with the slope."""
        normal = p._normal()
        if normal is None:
            self.cdf_given_latent(p)
            line = self._line(p)
            return line._start(q)[0], line.cdf_and_slope
        mean, sd = (np.ravel(x) for x in np.broadcast_arrays(*normal))

        def law(rows: Rows, y: Array) -> tuple[Array, Array]:
            z = (y - mean[rows]) / sd[rows]
            return ndtr(z), np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * sd[rows])

        return normal[0] + normal[1] * ndtri(q), law

    def _part_quantiles(self, p: Predictive, levels: Sequence[float]) -> Array:
        """Quantiles of every part, (m, d, k), as the family encodes y."""
        return self._from_parts(p, lambda table, rows: table.quantiles(levels))

    def _past_atoms(self, p: Predictive, q: float) -> Array:
        """Quantiles of numbers some of which have a probability of their own, across which the cdf jumps."""
        out = np.full(len(p), np.nan)
        for atom in p.family.support.atoms:
            at = np.full(len(p), atom)
            upto = p.cdf(at)
            out[(upto - at_atoms(p, at) < q) & (q <= upto)] = atom
        rest = np.isnan(out)
        if rest.any():
            out[rest] = self._line(p.rows(rest)).quantile(q)
        return out

    @staticmethod
    def _line(p: Predictive) -> Line:
        """The distribution of one number given the latent."""
        mean, sd = p.latent_mean[:, 0], np.sqrt(np.maximum(p.latent_cov[:, 0, 0], 0.0))
        if p.family.latent_dim == 1:
            return Line(p.family, mean, sd)
        return Several(p.family, mean, sd, predictive=p, law=law_of(p))

    # ---- regions -------------------------------------------------------------------------------------------------
    def interval(self, p: Predictive, level: float) -> NDArray:
        """Credible region of the level."""
        tails = (1 - level) / 2, (1 + level) / 2
        if p.family.has("part_log_prob"):
            return p.family.decode(self._part_quantiles(p, tails))
        if p.family.has("cdf"):
            return np.stack([p.quantile(t) for t in tails], axis=-1)
        if p.family.has("part_mixtures") and len(p.components) == 1:
            return cast(Composition, p.family).amounts(share_quantiles(p, tails), whole=False)
        if p.family.has("entry_laws"):
            ends = entry_quantiles(p, tails)
            return np.stack([p.family.decode(ends[..., i]) for i in (0, 1)], axis=-1)
        return self._interval_of_draws(p, tails)

    @staticmethod
    def _interval_of_draws(p: Predictive, tails: tuple[float, float]) -> Array:
        """From draws with a fixed seed: the probability below an end is off by 0.3 % (one standard error at 5 %)."""
        per_row = INTERVAL_DRAWS * 4 * p.latent_mean.shape[1]
        parts = [
            np.quantile(p.rows(rows).sample(INTERVAL_DRAWS, 0), tails, axis=0) for rows in batches(len(p), per_row)
        ]
        return np.moveaxis(np.concatenate(parts, axis=1), 0, -1)

    def transforms(self, p: Predictive, y: Any, encoded: Array, random_state: Any) -> tuple[Array, Array]:
        """PIT, and the level of the smallest region that holds y: per entry where there is a cdf."""
        if p.family.has("cdf"):
            pit = p.pit(y, random_state)
            return pit, np.abs(2.0 * pit - 1.0)
        depth = self.density_depth(p, encoded, random_state)
        return depth, depth

    def depth(self, p: Predictive, y: Any, encoded: Array, random_state: Any) -> Array:
        """Level of the smallest region that holds y, (m,): one region for each row, also of vectors."""
        if p.family.has("cdf") and self._one_number(encoded):
            return np.abs(2.0 * p.pit(y, random_state).ravel() - 1.0)
        return self.density_depth(p, encoded, random_state)

    @staticmethod
    def _one_number(encoded: Array) -> bool:
        """Tell whether the cdf is of one number per row."""
        return encoded.size == len(encoded)

    def density_depth(self, p: Predictive, encoded: Array, random_state: Any) -> Array:
        """Probability of what is more probable than y, randomised between equals; by draws."""
        own, others = densities_of_draws(p, encoded, SCORE_DRAWS)
        above, equal = np.mean(others > own, axis=0), np.mean(others == own, axis=0)
        if not p.family.support.integer:  # y is as good as one more draw
            equal = np.full_like(above, 1.0 / len(others))
        return above + np.random.default_rng(random_state).uniform(size=len(above)) * equal

    def inside(self, p: Predictive, encoded: Array, depth: Array, level: float) -> NDArray[np.bool_]:
        """Mask of the y that lie in their regions of the level, given the depth from `transforms`."""
        return depth <= level

    # ---- scores and tables ---------------------------------------------------------------------------------------
    def scores(self, p: Predictive, encoded: Array) -> tuple[Array, Array]:
        """Brier score (classes only, else nan) and E d(Y, y) - E d(Y, Y')/2, d the distance of the support, (m,).

        The second is the energy score, of numbers the CRPS: Gneiting and Raftery 2007, sec. 4.2 and 4.3.
        """
        distance = p.family.support.distance
        draws = np.stack([p.family.encode(d) for d in p.sample(2 * SCORE_DRAWS, 0)])
        near = distance(draws, encoded[None]).mean(axis=0)
        apart = distance(draws[:SCORE_DRAWS], draws[SCORE_DRAWS:]).mean(axis=0)
        return np.full(len(p), np.nan), near - 0.5 * apart

    def columns(self, p: Predictive, level: float, names: list[str] | None, classes: NDArray | None) -> dict[str, Any]:
        """Columns of a summary: mean, sd and interval of a number; mean and interval of every entry."""
        mean, interval = p.mean(), p.interval(level)
        if mean.ndim == 1:
            return {"mean": mean, "sd": np.sqrt(p.var()), "lower": interval[:, 0], "upper": interval[:, 1]}
        entries = list(np.ndindex(mean.shape[1:]))
        if names is None or len(names) != len(entries) or mean.ndim > 2:
            names = ["y" + "".join(map(str, entry)) for entry in entries]
        columns = {f"{name}_mean": mean[:, *entry] for name, entry in zip(names, entries)}
        for name, entry in zip(names, entries):
            columns[f"{name}_lower"], columns[f"{name}_upper"] = interval[:, *entry, 0], interval[:, *entry, 1]
        return columns


def _mixed_steps(kind: Ordered, p: Predictive, encoded: Array) -> tuple[Array, Array]:
    before, upto = np.moveaxis(p.mixed(lambda part: np.stack(kind.steps(part, encoded), axis=-1)), -1, 0)
    return before, upto


class Shares(Ordered):
    """Counts out of a number of trials. Their region is that of the counts; without trials there is only a share."""

    def steps(self, p: Predictive, encoded: Array) -> tuple[Array, Array]:
        if len(p.components) > 1:
            return _mixed_steps(self, p, encoded)
        self.cdf_given_latent(p)
        return replace(self._line(p), trials=encoded.sum(axis=1)).steps(slice(None), encoded[:, 0])

    def quantile(self, p: Predictive, q: float) -> Array:
        if len(p.components) > 1:
            ends, trials = [self.quantile(part, q) for _, part in p.components], self._trials(p)
            steps = lambda k: self.steps(p, np.stack([k, trials - k], axis=-1))[1]  # noqa: E731
            return integers_between(steps, q, np.min(ends, axis=0), np.max(ends, axis=0))
        self.cdf_given_latent(p)
        return replace(self._line(p), trials=self._trials(p)).quantile(q)

    @staticmethod
    def _trials(p: Predictive) -> Array:
        return np.ones(len(p)) if p.trials is None else np.asarray(p.trials, dtype=float)

    def interval(self, p: Predictive, level: float) -> NDArray:
        if p.trials is None:
            raise ValueError(
                f"an interval of {type(p.family).__name__} counts needs their number of trials: predict_dist(X, "
                "trials=N). mean_interval(level) is that of the shares."
            )
        tails, trials = ((1 - level) / 2, (1 + level) / 2), self._trials(p)
        if p.family.has("cdf"):  # of successes; failures are the other trials
            successes = np.stack([p.quantile(t) for t in tails], axis=-1)
            return np.stack([successes, trials[:, None] - successes[:, ::-1]], axis=1)
        if type(p.family) not in (Multinomial, DirichletMultinomial) or len(p.components) > 1:
            return self._interval_of_draws(p, tails)
        tabled = few_trials(trials) | (p.family.latent_dim <= MOST_SOFTMAX)
        out = np.empty((*p.latent_mean.shape, 2))
        if tabled.any():
            out[tabled] = category_quantiles(p.rows(tabled), trials[tabled], tails)
        if not tabled.all():
            out[~tabled] = self._interval_of_draws(p.rows(~tabled), tails)
        return out

    @staticmethod
    def _one_number(encoded: Array) -> bool:
        return True  # the cdf is that of the successes; vectors of counts have none

    def columns(self, p: Predictive, level: float, names: list[str] | None, classes: NDArray | None) -> dict[str, Any]:
        mean = p.mean()
        if mean.ndim > 1 and p.trials is not None:
            return super().columns(p, level, names, classes)
        if mean.ndim > 1:  # shares have no counts to bound: their own uncertainty is what there is to say
            names = names if names and len(names) == mean.shape[1] else [f"y{j}" for j in range(mean.shape[1])]
            band = p.mean_interval(level)
            shares = {f"{name}_mean": mean[:, j] for j, name in enumerate(names)}
            for j, name in enumerate(names):
                shares[f"{name}_mean_lower"], shares[f"{name}_mean_upper"] = band[:, j].T
            return shares
        columns = {"mean": mean, "sd": np.sqrt(p.var())}
        if p.trials is None:  # one trial has no interval; the proportion's own uncertainty is latent
            return columns
        successes = p.interval(level)[:, 0]
        return columns | {"lower": successes[:, 0], "upper": successes[:, 1]}


class Angles(Ordered):
    """Angles: no first one, so the region is the shortest arc, and a distribution function needs a cut."""

    instead = "interval(level) for the shortest arc, or mean()"

    def cdf(self, p: Predictive, encoded: Array) -> Array:
        start = p.family.encode(np.full(len(p), p.family.decode_start()))
        return self.between(p, *(self.circle(p).to_radians(y) for y in (start, encoded)))

    def between(self, p: Predictive, first: Array, last: Array) -> Array:
        """Probability of the arc from first forwards to last, radians."""
        return self.from_tables(p, lambda table, rows: table.between(first[rows], last[rows]))

    @staticmethod
    def from_tables(p: Predictive, answer: Callable[[CircularTable, Rows], Array]) -> Array:
        """Answers of tables that are made for some rows at a time and forgotten."""
        return gather(len(p), ((rows, answer(table, rows)) for rows, table in circular_tables(p)))

    @staticmethod
    def circle(p: Predictive) -> Circle:
        """Return the support, which knows the units."""
        return cast(Circle, p.family.support)

    def steps(self, p: Predictive, encoded: Array) -> tuple[Array, Array]:
        angle = self.circle(p).to_radians(encoded)
        upto = self.from_tables(p, lambda table, rows: table.cdf(angle[rows]))  # from opposite the mean
        return upto, upto

    def quantile(self, p: Predictive, q: float) -> Array:
        raise self._no_order(p)

    def interval(self, p: Predictive, level: float) -> NDArray:
        return self.circle(p).wrap(p.family.decode(self.circle(p).from_radians(self._arcs(p, level))))

    def _arcs(self, p: Predictive, level: float) -> Array:
        """Shortest arcs in radians, end >= start."""
        return self.from_tables(p, lambda table, rows: table.shortest_arc(level))

    def transforms(self, p: Predictive, y: Any, encoded: Array, random_state: Any) -> tuple[Array, Array]:
        return p.pit(y), np.empty(0)

    def depth(self, p: Predictive, y: Any, encoded: Array, random_state: Any) -> Array:
        return np.abs(2.0 * p.pit(y) - 1.0)

    def inside(self, p: Predictive, encoded: Array, depth: Array, level: float) -> NDArray[np.bool_]:
        arcs = self._arcs(p, float(level))
        angle = self.circle(p).to_radians(encoded.ravel())
        return np.mod(angle - arcs[:, 0], 2 * np.pi) <= arcs[:, 1] - arcs[:, 0]

    def columns(self, p: Predictive, level: float, names: list[str] | None, classes: NDArray | None) -> dict[str, Any]:
        arcs = p.interval(level)
        # circular standard deviation sqrt(-2 log R) (Mardia and Jupp 2000, sec. 2.3), in the user's unit
        with np.errstate(divide="ignore"):  # a uniform direction has none
            sd = np.sqrt(-2.0 * np.log1p(-p.var())) * self.circle(p).period / (2 * np.pi)
        return {"mean": p.mean(), "sd": sd, "arc_start": arcs[:, 0], "arc_end": arcs[:, 1]}


class Classes(Ordered):
    """Classes: the region is the smallest set of them, also where they have an order."""

    instead = "probabilities()"

    def cdf(self, p: Predictive, encoded: Array) -> Array:
        self.cdf_given_latent(p)
        upto = np.cumsum(p.probabilities(), axis=1)
        code = np.clip(np.floor(encoded), -1, upto.shape[1] - 1).astype(int)
        return np.where(code < 0, 0.0, upto[np.arange(len(p)), code])

    def steps(self, p: Predictive, encoded: Array) -> tuple[Array, Array]:
        self.cdf_given_latent(p)
        probabilities, code = p.probabilities(), self.codes(encoded)
        upto = np.cumsum(probabilities, axis=1)[np.arange(len(p)), code]
        return upto - probabilities[np.arange(len(p)), code], upto

    def quantile(self, p: Predictive, q: float) -> Array:
        self.cdf_given_latent(p)
        return np.sum(np.cumsum(p.probabilities(), axis=1)[:, :-1] < q, axis=1).astype(float)

    def interval(self, p: Predictive, level: float) -> NDArray:
        probabilities = p.probabilities()
        order = np.argsort(-probabilities, axis=1)
        falling = np.take_along_axis(probabilities, order, axis=1)
        chosen = np.zeros(probabilities.shape, dtype=bool)
        np.put_along_axis(chosen, order, np.cumsum(falling, axis=1) - falling < level, axis=1)
        return chosen

    @staticmethod
    def codes(encoded: Array) -> NDArray[np.int_]:
        """Return the code of each row's class."""
        return encoded.argmax(axis=1) if encoded.ndim == 2 else encoded.astype(int).ravel()

    @staticmethod
    def _one_number(encoded: Array) -> bool:
        return True

    def density_depth(self, p: Predictive, encoded: Array, random_state: Any) -> Array:
        probabilities = p.probabilities()
        own = probabilities[np.arange(len(p)), self.codes(encoded)][:, None]
        more, same = probabilities > own, probabilities == own
        above, equal = (np.sum(np.where(where, probabilities, 0.0), axis=1) for where in (more, same))
        return above + np.random.default_rng(random_state).uniform(size=len(above)) * equal

    def inside(self, p: Predictive, encoded: Array, depth: Array, level: float) -> NDArray[np.bool_]:
        return p.interval(level)[np.arange(len(p)), self.codes(encoded)]

    def scores(self, p: Predictive, encoded: Array) -> tuple[Array, Array]:
        probabilities = p.probabilities()
        indicator = np.eye(probabilities.shape[1])[self.codes(encoded)]
        return np.sum((probabilities - indicator) ** 2, axis=1), np.full(len(p), np.nan)

    def columns(self, p: Predictive, level: float, names: list[str] | None, classes: NDArray | None) -> dict[str, Any]:
        probabilities = p.probabilities()
        labels = np.arange(probabilities.shape[1]) if classes is None else np.asarray(classes)
        names = [str(label) for label in labels] if names is None else names
        best = probabilities.argmax(axis=1)
        columns: dict[str, Any] = {"label": labels[best], "probability": probabilities[np.arange(len(p)), best]}
        columns |= {f"p_{name}": probabilities[:, j] for j, name in enumerate(names)}
        chosen = p.interval(level)
        columns["credible_set"] = [", ".join(name for name, inside in zip(names, row) if inside) for row in chosen]
        return columns


KINDS: dict[str, Ordered] = {"shares": Shares(), "angles": Angles(), "classes": Classes()}
"""Answers by `Family.kind`, where they are not those of `Ordered`."""
_ORDERED = Ordered()


def kind_of(family: Family) -> Ordered:
    """Answers for the outputs of a family.

    >>> from ggpm.families import VonMises
    >>> type(kind_of(VonMises())).__name__
    'Angles'
    """
    return KINDS.get(family.kind, _ORDERED)
