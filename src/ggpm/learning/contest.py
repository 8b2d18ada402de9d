"""The contest that decides which kernel a model has when none is given.

Candidates (`ggpm.kernels.candidates.Recipe`) are learned on some rows by a short climb of the evidence, each from the
optimum of the best one that has all of its parts but one, and judged by leave-one-out densities and evidence
together. The first rung compares smoothness on few rows; survivors are bred with further parts on more rows; what wins
is finished on all rows. Everything here is decided under Laplace's rule where the model's own is variational, but for
grades (`ggpm.learning.choice.for_comparison`): optima are nearly the same, within 0.2 of log-hyperparameters on angles,
counts, classes and compositions of 75 to 300 rows.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from ggpm.data.columns import Columns
from ggpm.families.base import Family
from ggpm.families.curvature import Blocks
from ggpm.families.wrapped import unwrapped
from ggpm.kernels.candidates import SUMMANDS, Ingredients, Recipe
from ggpm.learning.arena import EVIDENCE_SAY, Arena, Entry
from ggpm.learning.blocks import blocks, total
from ggpm.learning.choice import for_comparison, hides_noise, surprises
from ggpm.learning.journal import Journal
from ggpm.learning.objective import Evidence
from ggpm.learning.priors import Priors, resolved
from ggpm.learning.trials import SearchTable, Trial

__all__ = ["Contest", "SearchTable", "Trial", "choose_kernel", "contest"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

LEAST_ROWS = 20  # below, differences between candidates are noise, and the plainest one is taken
# Of the first rung and the last, at most. A contest of all of 300 rows takes three to four times the time of one fit,
# which is meant to be at most 6; half of the rows chose worse (strength of concrete, prices of houses: by 0.02 nats).
FIRST_ROWS, LAST_ROWS = 80, 500
# Rows times latents that a rung may have where blocks of all latents are factorised together: up to here a candidate
# costs about as much as with structure. Blocks of up to three latents have structure.
MOST_COUPLED, CHEAP_BLOCKS = 700, 3
SHORT_CLIMB, LONG_CLIMB = 12, 25  # iterations of a search on the first rung, and on the last
# Of grades as classes, which begin where the winner ended: twelve gain no more, one 0.0002 nats a row less (26 sets of
# docs/forecasts.md).
CLIMB_OF_CLASSES = 5
# Latents that may have kernels of their own: more of them cost as many matrices, and have as many hyperparameters (five
# classes of heating in docs/forecasts.md do not ask for them).
MOST_APART = 3
PLAINEST, FLAT = Recipe(np.inf), Recipe(flat=True)
SMOOTHNESSES = (2.5, 1.5, 0.5)  # besides the plainest's
PARTS = ("ranks", "own", "labels", "apart", *SUMMANDS)
# Nats of evidence, priors included, over all rows of a rung that a further part must bring, and each hyperparameter of
# own lengths and of labels. Leave-one-out densities may only object: of rows that shaped eight length scales they say
# little (on readings of the wind 17 nats gained and 0.05 lost on each new row, on shares of food 5 and 0.02).
LEAST_GAIN, OWN_GAIN = 0.5, 1.0
SURVIVORS = 2  # smoothnesses that reach the last rung
SHORTER = (5.0, 25.0)  # factors by which further starts have shorter length scales: fast waves are not noise


@dataclass(frozen=True)
class Finalist:
    """A candidate of the last rung, as learned on its rows; the first one won."""

    name: str
    kernels: list
    """With their learned hyperparameters."""
    family: Family
    """With its learned phi."""
    priors: Priors | None
    rows: Rows
    """Numbers of the rows on which it was learned and judged: the same for all finalists."""
    loo: Array
    """Log density of each of these rows without its block, (rows,), as candidates were compared."""
    log_evidence: float
    """Of these rows."""
    weight: Array
    """How many times each of these rows counts, (rows,)."""
    inverse_hessian: Array
    """Of the negative log evidence of these rows in theta, roughly."""
    seconds: float
    judged: Array
    """As ``loo`` where other opinions are heard, but under the model's own rule: Laplace's densities of classes praise
    lines that others do not (iris, without a row: −0.19 against −0.30; new rows say −0.10 and −0.07)."""
    flat: bool = False
    """Whether it is a constant alone."""

    def on(self, evidence: Evidence) -> Evidence:
        """Another evidence, of all rows say, with this candidate's kernels, phi and priors."""
        out = copy.copy(evidence)
        out.__dict__.pop("theta", None)
        out.kernels, out.family, out.priors = list(self.kernels), self.family, self.priors
        return out


@dataclass(frozen=True)
class Without:
    """Outcome of a contest without a column, and its weight where the label in that column is new."""

    column: int
    weight: float
    contest: Contest


@dataclass(frozen=True)
class Contest:
    """Outcome of a contest: the table of what was tried, the winner, and other opinions where they were asked for.

    >>> Contest(SearchTable((Trial("RBF", 80, -1.23, -1.3, -1.26, 0.1, True),)), ()).table.winner
    'RBF'
    """

    table: SearchTable
    finalists: tuple[Finalist, ...]
    weights: tuple[float, ...] = (1.0,)
    """Of the first finalists in an average: the first one alone, unless told otherwise."""
    without: tuple[Without, ...] = ()
    """What contests between kernels that do not look at one column found, for labels that are new there."""

    @property
    def winner(self) -> Finalist:
        """The first finalist."""
        return self.finalists[0]


class Ring:
    """A contest as it goes on: what was tried so far, and what time is left."""

    def __init__(
        self, arena: Arena, budget: float | None, n_jobs: int | None, tell: Callable[[str, int, float], None] | None,
        journal: Journal | None = None,
    ):  # fmt: skip
        self.arena, self.n_jobs, self.tell, self.journal = arena, n_jobs, tell, journal
        self.until = np.inf if budget is None else time.perf_counter() + budget
        self.entries: list[Entry] = []

    def tried(self, jobs: Iterable[tuple], arena: Arena | None = None, **climb: Any) -> list[Entry]:
        """Entries of (recipe, rows, parent or None, start or None), best first; none where the time is over."""
        arena = self.arena if arena is None else arena
        jobs = [job for job in jobs if arena.offers(job[0])]
        if self.n_jobs in (None, 1):
            found = (self._known_or_tried(arena, job, climb) for job in jobs if self.has_time)
        else:
            found = Parallel(self.n_jobs)(delayed(arena.tried)(*job, **climb) for job in jobs if self.has_time)
        out = []
        for entry in found:
            if entry is not None and np.isfinite(entry.score):
                out.append(entry)
                self.entries.append(entry)
                if self.tell is not None:
                    self.tell(entry.name, len(self.entries), entry.score)
        return sorted(out, key=lambda e: -e.score)

    def _known_or_tried(self, arena: Arena, job: tuple, climb: dict[str, Any]) -> Entry | None:
        """An entry as the journal of an earlier contest has it, or a new one, which is noted there."""
        if self.journal is None:
            return arena.tried(*job, **climb)
        recipe, rows = job[:2]
        asked = f"{recipe}{arena.called} of categories {list(arena.ingredients.categories)} on {len(rows)} rows"
        known = self.journal.recall(asked)
        if known is None:
            entry = arena.tried(*job, **climb)
            self.journal.note(asked, **({} if entry is None else entry.told()))
            return entry
        return arena.recalled(recipe, rows, known) if known else None

    @property
    def has_time(self) -> bool:
        """Whether another candidate may be tried; the first one always is."""
        stopped = self.journal is not None and self.journal.stopped
        return not self.entries or (not stopped and time.perf_counter() < self.until)

    def outcome(self, kept: Sequence[Entry], opinions: Sequence[tuple[Arena, Entry]] = ()) -> Contest:
        """The table, and the finalists: the entry that was kept last has won, opinions are others on the same rows.

        Each with its arena.
        """
        winner = kept[-1]
        tried_at = {id(entry): k for k, entry in enumerate(self.entries)}
        # what was kept on the way and dropped again is not told: the last line that was kept is the winner's
        went_on = {id(entry) for entry in kept if tried_at[id(entry)] <= tried_at[id(winner)]}
        trials = []
        for tried in self._starts_together():
            e = max(tried, key=lambda e: e.score)
            seconds, going = sum(one.seconds for one in tried), any(id(one) in went_on for one in tried)
            name, rows = e.name, e.evidence.field.n_rows
            trials.append(Trial(name, rows, e.loo_mean, e.evidence_mean, e.score, seconds, going))
        return Contest(SearchTable(tuple(trials)), self._finalists(winner, opinions))

    def _finalists(self, winner: Entry, opinions: Sequence[tuple[Arena, Entry]]) -> tuple[Finalist, ...]:
        """The winner alone, or all entries that have a mode under the model's own rule."""
        judged = self.arena.judged(winner) if opinions else None
        if judged is None:
            return (_finalist(winner, winner.loo),)
        others = ((e, arena.judged(e)) for arena, e in opinions)
        return (_finalist(winner, judged), *(_finalist(e, loo) for e, loo in others if loo is not None))

    def _starts_together(self) -> list[list[Entry]]:
        """Entries in the order in which they were tried; those of one candidate from several starts are one line."""
        found: dict[tuple[str, int], list[Entry]] = {}
        for e in self.entries:
            found.setdefault((e.name, len(e.rows)), []).append(e)
        return list(found.values())


def _earns(child: Entry, parent: Entry) -> bool:
    """Whether a further part is worth having."""
    evidence, loo = child.value - parent.value, child.loo_mean - parent.loo_mean
    gain = evidence if child.say else loo * child.weight.sum()
    scales = [(e.recipe.own, e.recipe.labels, e.recipe.apart) for e in (child, parent)]
    further = len(child.optimum.theta) - len(parent.optimum.theta) if scales[0] != scales[1] else 0
    return loo >= 0.0 and gain >= max(LEAST_GAIN, OWN_GAIN * further)


def _shows(best: Entry, flat: Entry, share: float) -> bool:
    """Whether all rows, of which these are a share, are going to show that y depends on the columns at all.

    For that the evidence must rise by `LEAST_GAIN` for each hyperparameter that was climbed over. Of 60 rows of noise
    it rises by one and more, and new rows are then forecast up to a nat worse than by the constant. Half the logarithm
    of the number of rows for each (Schwarz 1978) would be too much to ask: of functions of variance one, seen by 150
    labels, more than half would show nothing. Priors have no say: those of labels speak against small variances.
    Leave-one-out densities that are better by twice their standard error show it too: a climb may have ended too early.
    """
    gain = best.weight * (best.loo - flat.loo)
    if gain.sum() > 2 * np.sqrt(len(gain)) * np.std(gain):
        return True
    further = len(best.optimum.theta) - len(flat.optimum.theta)
    risen = best.log_evidence - flat.log_evidence if best.say else gain.sum()
    return risen / share >= LEAST_GAIN * further


def _pruned(best: Entry, rung: Sequence[Entry]) -> Entry:
    """The candidate without parts that are not worth having any more beside those that came later."""
    simpler = [e for e in _parents(best.recipe, rung, best) if not _earns(best, e)]
    return _pruned(max(simpler, key=lambda e: e.score), rung) if simpler else best


def _parents(recipe: Recipe, rung: Sequence[Entry], best: Entry) -> list[Entry]:
    """Entries on the rows of the best one that have all parts of a recipe but one."""
    without = {replace(recipe, **{part: False}) for part in PARTS if getattr(recipe, part)}
    return [e for e in rung if e.recipe in without and len(e.rows) == len(best.rows)]


def _finalist(e: Entry, judged: Array) -> Finalist:
    part = e.evidence
    return Finalist(
        e.name, part.kernels, part.family, part.priors, e.rows, e.loo, e.log_evidence, e.weight,
        e.optimum.inverse_hessian, e.seconds, judged, e.recipe.flat,
    )  # fmt: skip


def contest(
    arena: Arena, *, seed: int = 0, budget: float | None = None, n_jobs: int | None = None,
    tell: Callable[[str, int, float], None] | None = None, journal: Journal | None = None, opinions: bool = False,
) -> Contest | None:  # fmt: skip
    """The contest between all candidates that the columns offer, or None where not even the plainest can be learned.

    Parameters
    ----------
    arena : Arena
    seed : int
        Of the choice of rows.
    budget : float, optional
        Seconds after which no further candidate is tried.
    n_jobs : int, optional
        Candidates that are tried at the same time, as joblib counts them.
    tell : function, optional
        Called after every trial with the candidate's name, the number of trials, and the score.
    journal : Journal, optional
        Keeps finished candidates for a contest that is held again (not with ``n_jobs``), and may stop it.
    opinions : bool
        Whether kernels of plain kinds that are not the winner's are finalists too, to be averaged with it.

    Examples
    --------
    >>> from ggpm import GGPRegressor
    >>> X = np.arange(8.0)[:, None]
    >>> fit = GGPRegressor("gaussian", optimizer=None).fit(X, np.sin(X[:, 0])).fit_
    >>> arena = Arena(fit.evidence, Ingredients.of(X, fit.columns), lambda kernels, family, theta: None, None)
    >>> contest(arena).winner.name  # of few rows the plainest
    'RBF'
    """
    n = arena.pool.field.n_rows
    ring = Ring(arena, budget, n_jobs, tell, journal)
    order = np.random.default_rng(seed).permutation(n)[: _most_rows(arena.pool)]
    first = np.sort(order[:FIRST_ROWS])
    last = np.sort(order[:LAST_ROWS])
    smooth = arena.ingredients.smooth
    recipe = PLAINEST if smooth else replace(PLAINEST, nu=None) if arena.ingredients.categories else FLAT
    plain = [(recipe, first, None, s) for s in arena.starts(recipe, SHORTER)]
    plainest = ring.tried([*plain, (replace(recipe, common=True), first, None, None)], max_iter=SHORT_CLIMB)
    if not plainest:
        return None
    if total(arena.pool) < LEAST_ROWS:
        return ring.outcome(plainest[:1])
    rougher = [(replace(plainest[0].recipe, nu=nu), first, plainest[0], None) for nu in SMOOTHNESSES if smooth]
    rung = [plainest[0], *ring.tried(rougher, max_iter=SHORT_CLIMB)]
    survivors = sorted(rung, key=lambda e: -e.score)[:SURVIVORS]
    kept: list[Entry] = []
    if len(last) > len(first):
        kept += survivors
        rung = ring.tried([(e.recipe, last, e, None) for e in survivors], max_iter=LONG_CLIMB) or survivors
    best = max(rung, key=lambda e: e.score)
    kept.append(best)
    helped, helpful, tried = list(PARTS), set[str](), {e.recipe for e in rung}
    while helped:
        children = [_bred(best.recipe, part) for part in helped]
        children = [c for c in children if c not in tried]
        jobs = [(c, best.rows, max([best, *_parents(c, rung, best)], key=lambda e: e.value), None) for c in children]
        found = ring.tried(jobs, max_iter=LONG_CLIMB)
        rung, tried = [*rung, *found], tried | set(children)
        better = [e for e in found if _earns(e, best)]
        if not better:
            break
        helped = [part for part in helped if any(getattr(e.recipe, part) for e in better[1:])]
        helpful.update(helped)
        best = better[0]
        pruned = _pruned(best, rung)
        if pruned is not best:
            helped = [part for part in PARTS if part in helpful and not getattr(best.recipe, part)]
            best = pruned
        kept.append(best)
    # with these parts another smoothness may be right than was without them
    found = _other_smoothness(ring, best, rung) if smooth else []
    rung = [*rung, *found]
    if found and (other := max(found, key=lambda e: e.score)).score > best.score:
        best = other
        kept.append(best)
    flat = ring.tried([(FLAT, best.rows, None, None)], max_iter=SHORT_CLIMB)
    shown = [e for e in flat if not _shows(best, e, len(best.rows) / n)]
    others = [] if shown or not opinions else [c for c in _opinions(best.recipe, arena.offers) if c != best.recipe]
    known = [e for e in rung if e.recipe in others and len(e.rows) == len(best.rows)]
    untried = [c for c in others if c not in {e.recipe for e in known}]
    asked = ring.tried([(c, best.rows, None, None) for c in untried if not c.joint], max_iter=LONG_CLIMB)
    # those that have the winner's parts begin where it ended
    asked += ring.tried([(c, best.rows, best, None) for c in untried if c.joint], max_iter=SHORT_CLIMB)
    last_resort = flat if others and surprises(arena.pool.family) else ()
    # beside a constant that wins, what it won against: with the few rows that speak for it alone this costs nothing
    # where there is but noise (60 rows), and brings 0.0003 to 0.001 nats a row where functions are weak (100 rows)
    beside = [best] if shown and opinions else [*known, *asked, *last_resort]
    heard = [(arena, e) for e in beside]
    classes = arena.as_classes() if opinions and not shown else None
    if classes is not None:  # with the kernel that won, from where it ended
        found = ring.tried([(best.recipe, best.rows, best, None)], arena=classes, max_iter=CLIMB_OF_CLASSES)
        heard += [(classes, e) for e in found]
    return ring.outcome([*kept, *shown], heard)


def _other_smoothness(ring: Ring, best: Entry, rung: Sequence[Entry]) -> list[Entry]:
    """The best candidate with other smoothnesses, tried from the nearest on as long as the next one does better."""
    ladder = (PLAINEST.nu, *SMOOTHNESSES)
    out: list[Entry] = []
    for step in (1, -1):
        before, k = best, ladder.index(best.recipe.nu) + step
        while 0 <= k < len(ladder):
            recipe = replace(best.recipe, nu=ladder[k])
            found = [e for e in rung if e.recipe == recipe and len(e.rows) == len(best.rows)]
            if not found:
                found = ring.tried([(recipe, best.rows, before, None)], max_iter=LONG_CLIMB)
                out += found
            if not found or found[0].score <= before.score:
                break
            before, k = found[0], k + step
    return out


def _opinions(winner: Recipe, offers: Callable[[Recipe], bool]) -> list[Recipe]:
    """Plain kinds of functions, whose forecasts are worth hearing beside the winner's.

    A line, a sum of functions of single columns and a line, and two functions of all columns with lengths of their own,
    of which the rough one, by ranks and by labels as far as columns allow, comes near to what trees see: each with the
    winner's levels of combinations of labels and noise. On 76 sets of docs/forecasts.md further ones (RBF and Matérn
    1/2 with one length, by ranks or not, lines by ranks, or all of the last rung) gained no more, and on 48 the kernel
    of random trees, exp(-sum_j |x_j - x_j'|/l_j), no more than the rough one.
    """
    line = replace(winner, nu=PLAINEST.nu, joint=False, linear=True)
    line = replace(line, **dict.fromkeys(("own", "additive", "labels", "common", "ranks"), False))
    sums = replace(line, nu=SMOOTHNESSES[0], additive=True, ranks=winner.ranks)
    own = Recipe(1.5, own=True, cells=winner.cells, noise=winner.noise)
    rough = replace(own, nu=SMOOTHNESSES[-1])
    for part in ("ranks", "labels"):
        rough = replace(rough, **{part: offers(replace(rough, **{part: True}))})
    return [line, sums, own, rough]


def _shares_a_kernel(family: Family) -> bool:
    """Whether several latents, not too many, have one kernel unless they are apart."""
    return 1 < family.latent_dim <= MOST_APART and not isinstance(family.latent_variance, tuple)


def _bred(recipe: Recipe, part: str) -> Recipe:
    """A recipe with one more part; numbers that are measured by their ranks have no unit."""
    return replace(recipe, **{part: True}, **({"common": False} if part == "ranks" else {}))


def _most_rows(pool: Evidence) -> int:
    """How many rows a rung may have: all, unless the family's latents hang together without structure."""
    field: Any = pool.field
    D = pool.family.latent_dim
    if D <= CHEAP_BLOCKS or not isinstance(pool.family.U(field.offset[:1], field.y[:1]), Blocks):
        return field.n_rows
    return max(LEAST_ROWS, MOST_COUPLED // D)


def choose_kernel(
    pool: Evidence, columns: Columns, weight: Array | None, priors: Any, *, seed: int, budget: float | None,
    n_jobs: int | None, tell: Callable[[str, int, float], None] | None, journal: Journal | None = None,
    opinions: bool = False,
) -> Contest | None:  # fmt: skip
    """The contest for the rows of a pool on a dense field, of some weight, in these columns.

    >>> from ggpm import GGPRegressor
    >>> X = np.arange(8.0)[:, None]
    >>> fit = GGPRegressor("gaussian", optimizer=None).fit(X, np.sin(X[:, 0])).fit_
    >>> found = choose_kernel(fit.evidence, fit.columns, None, None, seed=0, budget=None, n_jobs=None, tell=None)
    >>> found.table.winner
    'RBF'
    """
    arena = arena_of(pool, columns, weight, priors)
    return contest(arena, seed=seed, budget=budget, n_jobs=n_jobs, tell=tell, journal=journal, opinions=opinions)


def arena_of(
    pool: Evidence, columns: Columns, weight: Array | None, priors: Any, without: int | None = None
) -> Arena:  # fmt: skip
    """The ground of a contest, in which candidates do not look at the category ``without``.

    Its labels are then left out whole, and the evidence has no say, because it takes rows of one label for as many:
    functions that tell labels apart by their other columns please it (share of labour in the income of countries: 0.8
    nats a row over a constant, and 0.2 less for countries that are left out).

    Leave-one-out densities as what is maximised overfit many length scales: with ``objective="loo"`` columns have one
    in common, and latents one kernel. Priors that are given name hyperparameters, which then all candidates must have.
    """
    withheld = {
        "noise": hides_noise(unwrapped(pool.family)),
        "own": pool.objective == "loo",
        "apart": pool.objective == "loo" or not _shares_a_kernel(pool.family),
        **({} if priors in (None, "auto") else dict.fromkeys((*PARTS, "flat"), True)),
    }
    pool, own = copy.copy(pool), pool.rule
    pool.rule = for_comparison(own, pool.family)
    pool.objective = "evidence"
    X = pool.field.X  # type: ignore[attr-defined]
    return Arena(
        pool, Ingredients.of(X, columns, weight, without), partial(resolved, priors),
        blocks(pool, columns) if without is None else X[:, without].astype(np.intp),
        tuple(part for part, never in withheld.items() if never), EVIDENCE_SAY if without is None else 0.0,
        None if own is pool.rule else own,
    )  # fmt: skip
