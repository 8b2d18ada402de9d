"""The ground on which candidate kernels meet: rows, family and rule in common, and one short climb for each of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from ggpm.families.base import Family
from ggpm.families.weighted import Weighted, weights_of
from ggpm.fields.base import Approximation
from ggpm.kernels.candidates import Ingredients, Recipe, transferred, transferred_square
from ggpm.learning.as_classes import as_classes
from ggpm.learning.cavities import LEARNED, log_densities, without_blocks
from ggpm.learning.choice import for_comparison
from ggpm.learning.objective import Evidence, WarmObjective, search
from ggpm.learning.priors import Priors
from ggpm.learning.search import Optimum
from ggpm.sites.base import Rule

__all__ = ["Arena"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

VANISHED = np.log(1e-2)  # of a variance, relative to where searches start: with less a part says nothing
# Error that a row's density without its block may have, nats: half a nat of all rows together decides. It is an
# estimate: 1.6e-3 in the worst case seen (matrices, standard deviation 6).
JUDGED = 1e-3
EVIDENCE_SAY = 0.5
CLIMB_FTOL = 1e-4  # relative: differences that decide are a hundred times as large


@dataclass(frozen=True)
class Entry:
    """A candidate as learned on some rows, with what it is judged by."""

    recipe: Recipe
    evidence: Evidence
    """Of the rows of its rung, at the learned hyperparameters."""
    rows: Rows
    optimum: Optimum
    loo: Array
    """Log density of each row without its block, (rows,)."""
    log_evidence: float
    weight: Array
    seconds: float
    say: float = EVIDENCE_SAY
    """Share that the evidence has in the score."""
    called: str = ""
    """What is said of its arena behind the recipe."""

    @property
    def name(self) -> str:
        """The recipe in words, and the family where it is another one."""
        return f"{self.recipe}{self.called}"

    @property
    def score(self) -> float:
        """What candidates on the same rows are ordered by: an average of leave-one-out density and evidence, per row.

        Leave-one-out densities alone like parts that only interpolate, the evidence alone what happens to suit the
        priors.
        """
        return (1.0 - self.say) * self.loo_mean + self.say * self.evidence_mean

    @property
    def loo_mean(self) -> float:
        return float(self.weight @ self.loo / self.weight.sum())

    @property
    def value(self) -> float:
        """Log evidence, and what the priors take off it: candidates of any number of hyperparameters compare."""
        priors = self.evidence.priors
        return self.log_evidence + (0.0 if priors is None else priors.height(self.optimum.theta))

    @property
    def evidence_mean(self) -> float:
        """Its `value` per row."""
        return float(self.value / self.weight.sum())

    def told(self) -> dict[str, Any]:
        """What was found, as a `ggpm.learning.journal.Journal` keeps it: plain numbers, texts and lists."""
        optimum = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self.optimum).items()}
        return {
            "optimum": optimum, "loo": self.loo, "log_evidence": float(self.log_evidence), "seconds": self.seconds,
        }  # fmt: skip


def _is_length(role: str) -> bool:
    """Whether a role, the number of its kernel first, is the length scale of the joint part or of a time."""
    words = role.split()[1:]
    return words == ["joint"] or (words[0] == "time" and len(words) == 2)


@dataclass(frozen=True)
class Arena:
    """All that candidates have in common: rows, family and site rule, what kernels are made of, and priors.

    Examples
    --------
    >>> from ggpm import GGPRegressor
    >>> X = np.arange(8.0)[:, None]
    >>> fit = GGPRegressor("gaussian", optimizer=None).fit(X, np.sin(X[:, 0])).fit_
    >>> arena = Arena(fit.evidence, Ingredients.of(X, fit.columns), lambda kernels, family, theta: None, None)
    >>> arena.tried(Recipe(linear=True), np.arange(8)).loo.shape
    (8,)
    """

    pool: Evidence
    """On a dense field; its kernels do not matter."""
    ingredients: Ingredients
    priors_of: Callable[[Sequence[Any], Family, Array], Priors | None]
    block: Rows | None
    """Numbers of the blocks that are left out together, (n,); None: every row is one."""
    withheld: tuple[str, ...] = ()
    """Parts of recipes that are not tried."""
    say: float = EVIDENCE_SAY
    """Share that the evidence has in the score of an entry."""
    own: Rule | None = None
    """The model's own rule, where the pool has another one for comparisons."""
    at_once: bool = False
    """Whether candidates are judged under that rule as soon as they are learned: where all of them are heard."""
    called: str = ""
    """What is said of its candidates behind their recipes, where the family is not the model's."""

    def as_classes(self) -> Arena | None:
        """The same for grades as classes; None for other outputs."""
        pool = as_classes(self.pool)
        if pool is None:
            return None
        own = pool.rule
        pool.rule = for_comparison(own, pool.family)
        judge = None if own is pool.rule else own
        return replace(self, pool=pool, own=judge, at_once=True, called=", as classes")

    def offers(self, recipe: Recipe) -> bool:
        """Whether a recipe may be tried."""
        return self.ingredients.offers(recipe) and not any(getattr(recipe, part) for part in self.withheld)

    def starts(self, recipe: Recipe, shorter: Sequence[float]) -> list[Array]:
        """Thetas to start from: the usual one, and others with length scales (joint, of times) so much shorter."""
        theta = self.evidence(recipe).theta
        long = np.array([_is_length(role) for role in self.roles(recipe, theta)])
        return [theta, *(theta - np.log(factor) * long for factor in shorter)] if long.any() else [theta]

    def evidence(self, recipe: Recipe) -> Evidence:
        """The evidence of all rows with the kernels of a recipe, where a search starts."""
        kernels = [self.ingredients.kernel(recipe, v) for v in self._variances(recipe)]
        out = Evidence(self.pool.family, kernels, self.pool.field, self.pool.rule)
        out.priors = self.priors_of(kernels, out.family, out.theta)
        return out

    def roles(self, recipe: Recipe, theta: Array) -> list[str]:
        """Roles of all entries of theta, the family's included."""
        count = len(self._variances(recipe))
        names = [f"{j} {role}" for j in range(count) for role in self.ingredients.roles(recipe)]
        return names + [f"phi {k}" for k in range(len(theta) - len(names))]

    def _variances(self, recipe: Recipe) -> tuple[float, ...]:
        """Of the latent, about, for each kernel: latents share one where their family lets them, unless apart."""
        variance = self.pool.family.latent_variance
        if isinstance(variance, tuple):
            return variance
        return (variance,) * (self.pool.family.latent_dim if recipe.apart else 1)

    def tried(
        self, recipe: Recipe, rows: Rows, parent: Entry | None = None, start: Array | None = None, max_iter: int = 25
    ) -> Entry | None:  # fmt: skip
        """A candidate learned on some rows, from where a parent ended; None where that cannot be done."""
        began = time.perf_counter()
        part = self.evidence(recipe).sample(rows)
        curvature = None
        if start is None:
            start = part.theta
            if parent is not None:
                start, curvature = self._onwards(parent, recipe, start, len(rows))
        try:
            with np.errstate(all="ignore"):  # a step that goes too far is one to retreat from
                objective = WarmObjective(part, inverse_hessian=curvature)
                found = search(objective, start, max_iter=max_iter, ftol=CLIMB_FTOL)
                part = part.at(found.theta)
                # as patient as the search: what it did not find from several starts is no mode to compare by
                known = None if part.family.several_modes else objective.start
                approximation = (part.searching() if part.rule.depends_on == "mean" else part).infer(known)
                loo = self._under_own(part, rows) if self.at_once else self._without(approximation, rows)
        except np.linalg.LinAlgError:
            return None
        return self._entry(recipe, part, rows, found, loo, approximation.log_evidence, time.perf_counter() - began)

    def _onwards(self, parent: Entry, recipe: Recipe, start: Array, rows: int) -> tuple[Array, Array]:
        """Where a parent ended, and the inverse Hessian that it left: climbs take half as many steps by it.

        A joint part that had vanished there begins anew, as the recipe's may be of use; other variances that had begin
        where they still have a slope.
        """
        known, wanted, H = parent.optimum.theta, self.roles(recipe, start), parent.optimum.inverse_hessian
        roles = self.roles(parent.recipe, known)
        if recipe.apart and not parent.recipe.apart:  # each latent has begun to say its share of what all said
            D = self.pool.family.latent_dim
            own = len(self.ingredients.roles(parent.recipe))
            known = np.concatenate([np.tile(known[:own], D), known[own:]])
            roles = self.roles(replace(parent.recipe, apart=True), known)
            H = block_diag(*[D * H[:own, :own]] * D, H[own:, own:])
        for j, role in enumerate(roles):
            first = role.split()[0]
            if role == f"{first} joint variance" and role in wanted and known[j] < start[wanted.index(role)] + VANISHED:
                roles = ["" if other.startswith(f"{first} joint") else other for other in roles]
        # the information grows about as the root of the rows, as in `ggpm.learning.objective.subset_start`
        H = transferred_square(H, roles, wanted) * np.sqrt(len(parent.rows) / rows)
        onwards = transferred(known, roles, start, wanted)
        least = [VANISHED if role.endswith(" variance") else -np.inf for role in wanted]
        return np.maximum(onwards, start + least), H

    def recalled(self, recipe: Recipe, rows: Rows, told: dict[str, Any]) -> Entry:
        """A candidate from its `Entry.told`."""
        optimum = Optimum(**told["optimum"] | {k: np.array(told["optimum"][k]) for k in ("theta", "inverse_hessian")})
        part = self.evidence(recipe).sample(rows).at(optimum.theta)
        return self._entry(recipe, part, rows, optimum, np.array(told["loo"]), told["log_evidence"], told["seconds"])

    def _entry(
        self, recipe: Recipe, part: Evidence, rows: Rows, found: Optimum, loo: Array, log_evidence: float,
        seconds: float,
    ) -> Entry:  # fmt: skip
        weight = weights_of(part.family, part.field.y)  # type: ignore[attr-defined]
        return Entry(recipe, part, rows, found, loo, log_evidence, weight, seconds, self.say, self.called)

    def judged(self, entry: Entry) -> Array | None:
        """Log density of each of an entry's rows without its block under the model's own rule; None without a mode."""
        if self.own is None or self.at_once:
            return entry.loo
        try:
            with np.errstate(all="ignore"):
                return self._under_own(entry.evidence, entry.rows)
        except np.linalg.LinAlgError:
            return None

    def _under_own(self, part: Evidence, rows: Rows) -> Array:
        """Log density of each row without its block under the model's own rule."""
        part = copy.copy(part)
        if self.own is not None:
            part.rule = self.own.checked(self.pool.field.n_rows, part.family.latent_dim).of_rows(rows)
        return self._without(part.searching().infer(), rows)

    def _without(self, approximation: Approximation, rows: Rows) -> Array:
        """Log density of each row without its block."""
        if self.block is None and not isinstance(self.pool.family, Weighted):
            return log_densities(approximation, LEARNED)
        return without_blocks(approximation, np.arange(len(rows)) if self.block is None else self.block[rows], JUDGED)
