"""The contest that decides which kernel a model has when none is given.

Candidates (`ggpm.kernels.candidates.Recipe`) are learned on some rows by a short climb of the evidence, each from the
optimum of the one that it was bred from, and judged by leave-one-out densities and evidence together. The first rung
compares smoothness on few rows; survivors of a rung are bred with further parts and compared on more rows; what wins is
finished on all rows. Everything here is decided under Laplace's rule where the model's own is variational: the optima
are nearly the same (within 0.2 of log-hyperparameters on angles, counts, classes and compositions of 75 to 300 rows),
and a search costs a fifth to an eightieth.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data import frames
from ggpm.families.base import Family
from ggpm.families.weighted import Weighted
from ggpm.kernels.candidates import Ingredients, Recipe, transferred
from ggpm.learning.cavities import LEARNED, log_densities, without_blocks
from ggpm.learning.objective import Evidence, WarmObjective, search
from ggpm.learning.priors import Priors
from ggpm.learning.search import Optimum

__all__ = ["Contest", "Finalist", "SearchTable", "Trial"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

FIRST_ROWS, LAST_ROWS = 80, (150, 300)  # of the first rung; least and most of the last, between which it is a third
SHORT_CLIMB, LONG_CLIMB = 12, 25  # iterations of a search on the first rung, and on the last
CLIMB_FTOL = 1e-4  # relative: differences that decide are a hundred times as large


@dataclass(frozen=True)
class Trial:
    """One line of the table of a contest: what was tried, on how many rows, and how it did there."""

    name: str
    rows: int
    loo: float
    """Mean leave-one-out log density per row (blocks of rows that hang together are left out together)."""
    evidence: float
    """Log evidence per row."""
    score: float
    """What candidates on the same rows are ordered by, nats per row."""
    seconds: float
    kept: bool = False
    """Whether it went on to the next rung, or won."""


@dataclass(frozen=True)
class SearchTable(Sequence[Trial]):
    """What was tried for ``kernel=None``, in the order in which it was: ``model.search_``.

    Examples
    --------
    >>> SearchTable((Trial("RBF", 80, -1.23, -1.3, -1.26, 0.1), Trial("Matérn 5/2", 80, -1.2, -1.3, -1.25, 0.1, True)))
    kernel      rows    loo  evidence   score  seconds
    RBF           80 -1.230    -1.300  -1.260     0.10
    Matérn 5/2    80 -1.200    -1.300  -1.250     0.10  kept
    """

    trials: tuple[Trial, ...]

    def __len__(self) -> int:
        return len(self.trials)

    def __getitem__(self, k: Any) -> Any:
        return self.trials[k]

    @property
    def winner(self) -> str:
        """Name of the candidate that won."""
        return next(trial.name for trial in reversed(self.trials) if trial.kept)

    @property
    def seconds(self) -> float:
        """Time that all of it took."""
        return sum(trial.seconds for trial in self.trials)

    def to_frame(self) -> Any:
        """The table as a pandas frame.

        >>> SearchTable((Trial("RBF", 80, -1.23, -1.3, -1.26, 0.1, True),)).to_frame().shape
        (1, 7)
        """
        return frames.require("pandas").DataFrame([asdict(trial) for trial in self.trials])

    def __repr__(self) -> str:
        width = max([6, *(len(trial.name) for trial in self.trials)])
        lines = [f"{'kernel':<{width}} {'rows':>5} {'loo':>6} {'evidence':>9} {'score':>7} {'seconds':>8}"]
        for t in self.trials:
            line = f"{t.name:<{width}} {t.rows:>5} {t.loo:>6.3f} {t.evidence:>9.3f} {t.score:>7.3f} {t.seconds:>8.2f}"
            lines.append(line + ("  kept" if t.kept else ""))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(index=False, float_format="{:.3f}".format)


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
    """Log density of each of these rows without its block, (rows,)."""
    log_evidence: float
    """Of these rows."""
    inverse_hessian: Array
    """Of the negative log evidence of these rows in theta, roughly."""
    seconds: float

    def on(self, evidence: Evidence) -> Evidence:
        """Another evidence, of all rows say, with this candidate's kernels, phi and priors."""
        out = copy.copy(evidence)
        out.__dict__.pop("theta", None)
        out.kernels, out.family, out.priors = list(self.kernels), self.family, self.priors
        return out


@dataclass(frozen=True)
class Contest:
    """Outcome of a contest: the table of what was tried, and the finalists, best first."""

    table: SearchTable
    finalists: tuple[Finalist, ...]


@dataclass(frozen=True)
class Entry:
    """A candidate as learned on some rows, with what it is judged by."""

    recipe: Recipe
    evidence: Evidence
    """Of the rows of its rung, at the learned hyperparameters."""
    optimum: Optimum
    loo: Array
    """Log density of each row without its block, (rows,)."""
    log_evidence: float
    weight: Array
    seconds: float

    @property
    def loo_mean(self) -> float:
        return float(self.weight @ self.loo / self.weight.sum())

    @property
    def evidence_mean(self) -> float:
        """The optimum's value, log evidence and log density of the priors, per row."""
        return float(self.optimum.value / self.weight.sum())


@dataclass(frozen=True)
class Arena:
    """All that candidates have in common: rows, family and site rule, what kernels are made of, and priors."""

    pool: Evidence
    """On a dense field; its kernels do not matter."""
    ingredients: Ingredients
    priors_of: Callable[[Sequence[Any], Family, Array], Priors | None]
    block: Rows | None
    """Numbers of the blocks that are left out together, (n,); None: every row is one."""

    def evidence(self, recipe: Recipe) -> Evidence:
        """The evidence of all rows with the kernels of a recipe, where a search starts."""
        variance = self.pool.family.latent_variance
        variances = variance if isinstance(variance, tuple) else (variance,)
        kernels = [self.ingredients.kernel(recipe, v) for v in variances]
        out = Evidence(self.pool.family, kernels, self.pool.field, self.pool.rule)
        out.priors = self.priors_of(kernels, out.family, out.theta)
        return out

    def roles(self, recipe: Recipe, theta: Array) -> list[str]:
        """Roles of all entries of theta, the family's included."""
        variance = self.pool.family.latent_variance
        count = len(variance) if isinstance(variance, tuple) else 1
        names = [f"{j} {role}" for j in range(count) for role in self.ingredients.roles(recipe)]
        return names + [f"phi {k}" for k in range(len(theta) - len(names))]

    def tried(
        self, recipe: Recipe, rows: Rows, parent: Entry | None = None, max_iter: int = SHORT_CLIMB,
        start: Array | None = None,
    ) -> Entry | None:  # fmt: skip
        """A candidate learned on some rows, from where a parent ended; None where that cannot be done."""
        began = time.perf_counter()
        part = self.evidence(recipe).sample(rows)
        if start is None:
            start = part.theta
            if parent is not None:
                known = parent.optimum.theta
                wanted = self.roles(recipe, start)
                start = transferred(known, self.roles(parent.recipe, known), start, wanted)
        try:
            found = search(WarmObjective(part), start, max_iter=max_iter, ftol=CLIMB_FTOL)
            part = part.at(found.theta)
            approximation = part.infer()
            block = None if self.block is None else self.block[rows]
            family, y = part.family, part.field.y  # type: ignore[attr-defined]
            if block is None and not isinstance(family, Weighted):
                loo = log_densities(approximation, LEARNED)
            else:
                loo = without_blocks(approximation, np.arange(len(rows)) if block is None else block)
        except np.linalg.LinAlgError:
            return None
        weight = family.split(y)[1] if isinstance(family, Weighted) else np.ones(len(rows))
        return Entry(recipe, part, found, loo, approximation.log_evidence, weight, time.perf_counter() - began)
