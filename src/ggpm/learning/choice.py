"""The site rule that ``inference="auto"`` stands for, and the names by which rules are told."""

from __future__ import annotations

from ggpm.families.base import Family
from ggpm.families.logistic_normal import LogisticNormal
from ggpm.families.ordinal import Ordinal
from ggpm.families.wrapped import unwrapped
from ggpm.fields.base import Field
from ggpm.fields.dense import DenseField
from ggpm.fields.inducing.field import InducingField
from ggpm.fields.neighbours.field import NeighboursField
from ggpm.kernels.linalg import available_memory
from ggpm.sites import INFERENCES, Laplace, Rule, Taylor, Variational

AUTO, EXACT = "auto", "exact"
# Evaluations of log p in one step of a variational search, rows times the nodes that most rows need, above which
# Laplace's method is taken: half a minute or more per step.
MOST_EVALUATIONS = 2e7
# Latents from which on the averages of all rows, in each of the many passes that inducing points take, cost a hundred
# times the passes themselves: 200 rows of three classes that are far apart took three minutes, Laplace's a few seconds.
MANY_LATENTS = 3
TYPICAL_NODES = {1: 5, 2: 16, 3: 64}  # of training rows; the smallest sparse grids above


def gaussian(family: Family) -> bool:
    """Whether outputs, or their log-ratios, are Gaussian given the latent, so that every expansion is exact."""
    return family.has("predictive_normal") or isinstance(family, LogisticNormal)


def choose(family: Family, field: Field) -> Rule:
    """Exact for Gaussian outputs, variational for others; Laplace's rule where that takes too much memory or time.

    Too much memory are 2 D + 3 matrices of all rows on a field that holds them (those of a step and of the one
    before), too much time more than `MOST_EVALUATIONS` of the likelihood in every step, covariances of all rows in
    every step without a factor that gives them (neighbours of many rows), or three latents with inducing points. Where
    blocks of four latents or more would take too long, sites that know nothing of their coupling lose more than they
    gain over Laplace's, which keep it, and cost ten times as much (directions in five dimensions: 0.010 of log density
    per new row; compositions of six parts: 0.005). Classes and counts gain by them (outcomes of seven kinds: 0.1).

    >>> import numpy as np
    >>> from ggpm.families import Gaussian, Poisson
    >>> field = DenseField(np.zeros((3, 1)), np.zeros(3), np.zeros((3, 1)))
    >>> type(choose(Gaussian(), field)).__name__, type(choose(Poisson(), field)).__name__
    ('Laplace', 'Variational')
    """
    n, D = field.n_rows, family.latent_dim
    if gaussian(family):
        return Laplace()
    too_large = isinstance(field, DenseField) and 8.0 * (2 * D + 3) * n**2 > available_memory()
    too_long = n * TYPICAL_NODES.get(D, 2 * D * D + 4 * D + 1) > MOST_EVALUATIONS
    too_long |= isinstance(field, NeighboursField) and field.iterative(D)
    too_long |= isinstance(field, InducingField) and D >= MANY_LATENTS
    if isinstance(field, DenseField) and not (family.finite or family.countable):
        too_long |= Variational().resolved(n, D, False).factorised and D > 1
    return Laplace() if too_large or too_long else Variational()


def hides_noise(family: Family) -> bool:
    """Whether noise of the latent of every row is part of what an observation has anyway, so that none can be told.

    Gaussian outputs have their own, and the cuts between grades in a latent of normal noise scale with it.

    >>> from ggpm.families import Gaussian, Ordinal, Poisson
    >>> [hides_noise(family) for family in (Gaussian(), Ordinal(), Poisson())]
    [True, True, False]
    """
    return gaussian(family) or isinstance(family, Ordinal)


def surprises(family: Family) -> bool:
    """Whether an observation may be one that forecasts take for nearly impossible: numbers, counts and shares.

    A mixture with a constant, which knows the whole spread of y, then has tails that no function of the columns has.
    Angles and directions have no tails, and what classes have of them is a matter of their power; of 26 sets of grades
    five gain by a constant and five lose, 0.0003 nats a row on average.

    >>> from ggpm.families import Categorical, Gamma, VonMises
    >>> [surprises(family) for family in (Gamma(), Categorical(), VonMises())]
    [True, False, False]
    """
    return family.kind not in ("classes", "angles", "directions")


def for_comparison(rule: Rule, family: Family) -> Rule:
    """The rule under which candidate kernels are compared where models have this one.

    Laplace's in the place of variational ones: optima are nearly the same, and a search costs a fifth to an eightieth.
    Not so with grades. The likelihood of a grade between two cuts is flat, a mode has no curvature there, and Laplace's
    evidence takes the whole prior for a fit: kernels that vary from row to row seemed to gain 0.3 nats a row
    (political knowledge of docs/forecasts.md), where the evidence cannot change at all. Expectations of grades are
    cheap: with 300 rows of eight columns all of the contest takes 3.6 fits of the winner, under Laplace's rule 2.1,
    and less than that where Laplace's climbs run away.

    >>> from ggpm.families import Ordinal, Poisson
    >>> [type(for_comparison(Variational(), family)).__name__ for family in (Poisson(), Ordinal())]
    ['Laplace', 'Variational']
    """
    return Laplace() if isinstance(rule, Variational) and not isinstance(unwrapped(family), Ordinal) else rule


def name_of(rule: Rule, family: Family) -> str:
    """A rule's name, or "exact" for Gaussian outputs under a rule that expands.

    >>> from ggpm.families import Gaussian, Poisson
    >>> name_of(Laplace(), Poisson()), name_of(Laplace(), Gaussian())
    ('laplace', 'exact')
    """
    if gaussian(family) and isinstance(rule, (Laplace, Taylor)):
        return EXACT
    return next((name for name, kind in INFERENCES.items() if type(rule) is kind), type(rule).__name__.lower())
