"""Kernels that may be tried where none is given: recipes, and what the data give to make them of.

A recipe says what a kernel consists of; `Ingredients` are made once from X and make the kernel of any recipe, in which
every column of numbers is measured in its own spread. All of them have a part for each column of times, a level for
each category, and a constant, nearly all a part of all numbers together; what differs is smoothness, whether every
number has a length scale of its own, whether that part is another function for other labels, and whether there is a
linear part, a sum of functions of single columns, a level for each combination of labels, or noise of the latent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, mul

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.gaussian_process import kernels as sk

from ggpm.data.columns import Columns
from ggpm.kernels.additive import Additive
from ggpm.kernels.columns import Category, Cyclic, On, Sphere, listed
from ggpm.kernels.defaults import cycles_of, median_distance
from ggpm.kernels.scaled import Knots, Scaled, Standardise
from ggpm.kernels.structure import looks, placed

__all__ = ["Ingredients", "Recipe", "spreads", "standardised", "transferred", "transferred_square"]

Array = NDArray[np.float64]

SMOOTHNESS = {np.inf: "RBF", 2.5: "Matérn 5/2", 1.5: "Matérn 3/2", 0.5: "Matérn 1/2", None: "levels"}
ADDITIVE_MOST = (
    16  # columns up to which sums of functions of single ones are tried: each costs a matrix of exponentials
)
# of recipes, by what they are called
SETTINGS = {
    "one unit": "common", "ranks": "ranks", "own lengths": "own", "by labels": "labels", "each latent": "apart",
}  # fmt: skip
SUMMANDS = ("linear", "additive", "cells", "noise")  # that kernels may have besides the joint part
# Knots of the curve from a column to the scores of its ranks. With 9 to 33 of them houses, food and schools of
# docs/forecasts.md are forecast alike; with one for each row worse, as the curve then follows the sample.
KNOTS = 17
LABEL_ROWS = (
    5  # of a label, on average, from which on it may have a function of its own: of fewer only levels are learned
)
NEW_SHARE = 0.1  # of the latent's unit of variance, where a part that the parent does not have starts
NORMAL_IQR = 1.349  # interquartile range of a normal variable, in standard deviations
ALIKE = 1.5  # ratio of spreads up to which columns are measured alike anyway
LEAST_OF_SD = 1 / 3  # of the standard deviation: less would put most rows of a column with a narrow middle far apart


@dataclass(frozen=True)
class Recipe:
    """What a kernel consists of, besides categories, times and a constant.

    >>> str(Recipe(1.5, linear=True))
    'Matérn 3/2 + linear'
    """

    nu: float | None = 2.5
    """Smoothness as in `sklearn.gaussian_process.kernels.Matern`; infinity is an RBF. None: there are but labels."""
    own: bool = False
    """Whether every number, and every category with `labels`, has a length scale of its own."""
    linear: bool = False
    additive: bool = False
    """Whether there is a sum of functions of single columns besides the joint part."""
    noise: bool = False
    """Whether the latent of every row has noise of its own."""
    cells: bool = False
    """Whether every combination of labels of all categories has a level of its own, besides that of each label."""
    labels: bool = False
    """Whether the joint part is another function for other labels: the more of them differ, the less alike."""
    common: bool = False
    """Whether all numbers are measured in one spread, that of all of them, and not each in its own."""
    ranks: bool = False
    """Whether numbers are measured by normal scores of their ranks, so that the shape of a column does not matter."""
    apart: bool = False
    """Whether every latent has a kernel of its own, made of the same parts."""
    joint: bool = True
    """Whether there is a part of all numbers together."""
    flat: bool = False
    """Whether there is nothing but the constant."""

    def __str__(self) -> str:
        if self.flat:
            return "constant"
        settings = [f", {word}" for word, name in SETTINGS.items() if getattr(self, name)]
        parts = [part for part in SUMMANDS if getattr(self, part)]
        first = SMOOTHNESS[self.nu] if self.joint else parts.pop(0)
        return "".join([first, *settings, *(f" + {part}" for part in parts)])


@dataclass(frozen=True)
class Ingredients:
    """What kernels are made of: columns by kind, centres and spreads, and the length from which searches start.

    >>> Ingredients.of(np.array([[0.0], [4.0], [8.0]]), Columns(1)).numbers
    (0,)
    """

    columns: Columns
    numbers: tuple[int, ...]
    centre: Array
    spread: Array
    distance: float
    """Median distance between rows in the numbers, in spreads."""
    unit: float | None
    """The spread of all numbers together, where they are readings of one scale; else None."""
    unit_distance: float
    """Median distance between rows in that unit."""
    scores: Knots
    """Curves from columns to normal scores of their ranks; () for columns of two values or fewer."""
    rank_distance: float
    """Median distance between rows in these scores."""
    crossed: tuple[int, ...]
    """Categories whose labels have rows enough, on average, to show functions of their own."""
    unlike: float
    """Labels of these in which two rows differ, on average."""
    cycles: tuple[tuple[int, float], ...]
    """Columns of times with the periods that they show."""
    categories: tuple[int, ...]

    @classmethod
    def of(
        cls, X: Array, columns: Columns, weight: Array | None = None, without: int | None = None
    ) -> Ingredients:  # fmt: skip
        """The ingredients of rows, of some weight; kernels do not look at the category ``without``.

        >>> X = np.array([[0.0, 0.0], [4000.0, 1.0], [8000.0, 0.0]])
        >>> found = Ingredients.of(X, Columns(2))
        >>> found.kernel(Recipe(np.inf, linear=True))
        1**2 * Scaled(RBF(length_scale=2.35)) + 0.316**2 * Scaled(DotProduct(sigma_0=0)) + 1**2
        """
        kinds = columns.kinds
        numbers = tuple(j for j, kind in enumerate(kinds) if kind not in ("category", "time"))
        centre, spread = spreads(X, weight)
        scaled = Standardise(tuple(centre), tuple(spread))(X)
        at = list(numbers)
        distance = median_distance(scaled[:, at], weight=weight) if at else 1.0
        unit = one_unit(X[:, at], spread[at], weight)
        unit_distance = 1.0 if unit is None else median_distance(X[:, at] / unit, weight=weight)
        scores = tuple(rank_scores(column, weight) for column in X.T)
        by_ranks = Standardise(tuple(centre), tuple(spread), scores)(X)
        rank_distance = median_distance(by_ranks[:, at], weight=weight) if at else 1.0
        categories = tuple(j for j, kind in enumerate(kinds) if kind == "category" and j != without)
        crossed = tuple(j for j in categories if 1 < len(np.unique(X[:, j])) <= len(X) / LABEL_ROWS)
        unlike = sum(_unlike(X[:, j], weight) for j in crossed)
        cycles = tuple((j, period) for j, kind in enumerate(kinds) if kind == "time" for period in cycles_of(X[:, j]))
        return cls(
            columns, numbers, centre, spread, distance, unit, unit_distance, scores, rank_distance, crossed, unlike,
            cycles, categories,
        )  # fmt: skip

    @property
    def times(self) -> list[int]:
        """Columns of times."""
        return [j for j, kind in enumerate(self.columns.kinds) if kind == "time"]

    @property
    def smooth(self) -> bool:
        """Whether there are columns besides labels, of which functions may be smooth or rough."""
        return bool(self.numbers or self.times)

    def offers(self, recipe: Recipe) -> bool:
        """Whether the columns have what a recipe asks for.

        >>> Ingredients.of(np.zeros((3, 1)), Columns(1)).offers(Recipe(own=True))
        False
        """
        varying, labelled, crossed = len(self.numbers), len(self.categories), len(self.crossed)
        return (
            (recipe.flat or (recipe.nu is not None) == self.smooth)
            and not (recipe.own and varying < 2 and not (recipe.labels and crossed > 1))
            and not (recipe.labels and crossed < (1 if varying else 2))
            and not (recipe.additive and not 2 <= varying <= ADDITIVE_MOST)
            and not (recipe.linear and not varying)
            and not (recipe.cells and labelled < 2)
            and not (recipe.common and (self.unit is None or recipe.ranks))
            and not (recipe.ranks and not any(self.scores[j] for j in self.numbers))
        )

    def _parts(self, recipe: Recipe) -> list[list[tuple[str, sk.Kernel]]]:
        """Products by the roles of their factors, each to be multiplied by a variance."""
        parts: list[list[tuple[str, sk.Kernel]]] = []
        if recipe.flat:
            return parts
        alike: list[tuple[str, sk.Kernel]] = []
        if recipe.labels:
            names, length = [self._name(j) for j in self.crossed], np.sqrt(self.unlike)
            each = np.full(len(names), length) if recipe.own and len(names) > 1 else length
            alike = [("labels", Category(names, length_scale=each, length_scale_bounds=(1e-5, 1e5)))]
        if self.numbers:
            on = partial(self._on, at=self.numbers, unit=self.unit if recipe.common else None, ranks=recipe.ranks)
            distance = self.unit_distance if recipe.common else self.rank_distance if recipe.ranks else self.distance
            length = np.full(len(self.numbers), distance) if recipe.own and len(self.numbers) > 1 else distance
            if recipe.joint:
                parts.append([("joint", on(_matern(length, recipe.nu))), *alike])
            if recipe.additive and recipe.nu is not None:
                parts.append([("additive", on(Additive(1.0, recipe.nu)))])
            if recipe.linear:
                # so that a typical row has variance one
                parts.append([("linear", on(sk.DotProduct(0.0, "fixed"), factor=np.sqrt(len(self.numbers))))])
        parts += [[(f"time {j}", self._on(_matern(1.0, recipe.nu), (j,)))] for j in self.times]
        parts += [[(f"cycle {j} {period}", self._named(Cyclic(period), (j,)))] for j, period in self.cycles]
        parts += [[(f"category {j}", Category(self._name(j)))] for j in self.categories]
        if recipe.cells:
            parts.append([("cells", Category([self._name(j) for j in self.categories]))])
        if alike and not self.numbers:
            parts.append(alike)
        return parts

    def _on(
        self, kernel: sk.Kernel, at: tuple[int, ...], unit: float | None = None, ranks: bool = False,
        factor: float = 1.0,
    ) -> sk.Kernel:  # fmt: skip
        """A kernel of some columns in one unit, by ranks, or each in its own spread, divided by a factor."""
        chosen = list(at)
        spread = self.spread[chosen] if unit is None else np.full(len(chosen), unit)
        centre, spread = self.centre[chosen], factor * spread
        curves = [self.scores[j] for j in chosen]
        knots = tuple(curve and (curve[0], tuple(value / factor for value in curve[1])) for curve in curves)
        return self._named(Scaled(kernel, tuple(centre.tolist()), tuple(spread.tolist()), knots if ranks else ()), at)

    def _name(self, j: int) -> str | int:
        return self.columns.names[j] if self.columns.names else j

    def _named(self, kernel: sk.Kernel, at: tuple[int, ...]) -> sk.Kernel:
        if len(at) == self.columns.count:
            return kernel
        names = [self._name(j) for j in at]
        return On(kernel, names[0] if len(names) == 1 else names)

    def kernel(self, recipe: Recipe, variance: float = 1.0) -> sk.Kernel:
        """The kernel of a recipe for latents of about this variance, with columns found."""

        def constant(share: float = 1.0) -> sk.ConstantKernel:
            return sk.ConstantKernel(share * variance, (1e-5 * variance, 1e5 * variance))

        terms = []
        for factors in self._parts(recipe):
            share = NEW_SHARE if factors[0][0] in ("linear", "additive", "cells", "labels") else 1.0
            terms.append(reduce(mul, (factor for _, factor in factors), constant(share)))
        if recipe.noise:
            terms.append(sk.WhiteKernel(NEW_SHARE * variance, (1e-5 * variance, 1e5 * variance)))
        return placed(reduce(add, [*terms, constant()]), self.columns)

    def roles(self, recipe: Recipe) -> list[str]:
        """The role of every entry of the kernel's theta: parts of two recipes with one role mean the same.

        >>> Ingredients.of(np.zeros((3, 1)), Columns(1)).roles(Recipe(linear=True, noise=True))
        ['joint variance', 'joint', 'linear variance', 'noise', 'constant']
        """
        out: list[str] = []
        for factors in self._parts(recipe):
            out.append(f"{factors[0][0]} variance")
            out += [role for role, factor in factors for _ in range(factor.n_dims)]
        return [*out, *(["noise"] if recipe.noise else []), "constant"]


def _unlike(labels: Array, weight: Array | None) -> float:
    """Share of pairs of rows whose labels differ."""
    share = np.bincount(np.unique(labels, return_inverse=True)[1].ravel(), weight)
    return float(1.0 - np.sum((share / share.sum()) ** 2))


def _matern(length: float | Array, nu: float | None) -> sk.Kernel:
    return sk.RBF(length) if nu == np.inf else sk.Matern(length, nu=nu)


def matched(roles: Sequence[str], wanted: Sequence[str]) -> NDArray[np.intp]:
    """Places among roles of those that are wanted, in their order where one occurs as often here as there; else -1.

    >>> matched(["a", "b", "a", "c"], ["c", "a", "a", "b", "b"])
    array([ 3,  0,  2, -1, -1])
    """
    alike = {role: [k for k, other in enumerate(roles) if other == role] for role in set(wanted)}
    left = {role: iter(at if len(at) == wanted.count(role) else ()) for role, at in alike.items()}
    return np.array([next(left[role], -1) for role in wanted], dtype=np.intp)


def transferred(theta: Array, roles: Sequence[str], start: Array, wanted: Sequence[str]) -> Array:
    """``start`` with the values of another theta where roles are the same; one length scale becomes several alike.

    >>> transferred(np.array([1.0, 2.0]), ["a", "b"], np.zeros(4), ["b", "b", "c", "a"])
    array([2., 2., 0., 1.])
    """
    out = np.array(start, dtype=np.float64)
    for k, (role, place) in enumerate(zip(wanted, matched(roles, wanted))):
        known = [float(value) for other, value in zip(roles, theta) if other == role]
        if known:
            out[k] = theta[place] if place >= 0 else np.mean(known)
    return out


def transferred_square(H: Array, roles: Sequence[str], wanted: Sequence[str]) -> Array:
    """A matrix over another theta, such as an inverse Hessian, where roles are the same; one on the diagonal elsewhere.

    >>> transferred_square(np.array([[2.0, 0.5], [0.5, 3.0]]), ["a", "b"], ["b", "c", "a"])
    array([[3. , 0. , 0.5],
           [0. , 1. , 0. ],
           [0.5, 0. , 2. ]])
    """
    place = matched(roles, wanted)
    known, out = np.flatnonzero(place >= 0), np.eye(len(wanted))
    out[np.ix_(known, known)] = H[np.ix_(place[known], place[known])]
    return out


def spreads(X: Array, weight: Array | None = None) -> tuple[Array, Array]:
    """Centre and spread of every column of X, for rows of some weight: a robust standard deviation, 1 for constants.

    That of most columns is from their quartiles, within a third and once their standard deviation; that of a column
    of two values half their difference, whatever their shares.

    >>> spreads(np.array([[0.0, 7.0], [1.0, 7.0], [0.0, 7.0]]))[1]
    array([0.5, 1. ])
    """
    w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
    w = w / w.sum()
    centre = w @ X
    sd = np.sqrt(w @ (X - centre) ** 2)
    out = np.ones(X.shape[1])
    for j, column in enumerate(X.T):
        order = np.argsort(column, kind="stable")
        reached = np.cumsum(w[order])
        low, high = (column[order[int(np.searchsorted(reached, q - 1e-12))]] for q in (0.25, 0.75))
        first, last = column[order[0]], column[order[-1]]
        if last - first <= 1e-12 * max(abs(first), abs(last)):
            continue
        if np.all((column == first) | (column == last)):
            out[j] = 0.5 * (last - first)
        else:
            out[j] = np.clip((high - low) / NORMAL_IQR, LEAST_OF_SD * sd[j], sd[j])
    return centre, out


def rank_scores(column: Array, weight: Array | None = None) -> tuple[tuple[float, ...], tuple[float, ...]] | tuple[()]:
    """A curve from the values of a column to normal scores of their ranks, as knots; () for two values or fewer.

    Equal values have the middle of their ranks. Many values are told by `KNOTS` of them.

    >>> places, scores = rank_scores(np.array([1.0, 10.0, 1000.0]))
    >>> places, np.round(scores, 2)
    ((1.0, 10.0, 1000.0), array([-0.97,  0.  ,  0.97]))
    """
    values, index = np.unique(column, return_inverse=True)
    if len(values) < 3:
        return ()
    share = np.bincount(index.ravel(), weight, len(values))
    below = np.cumsum(share) - 0.5 * share
    scores = ndtri(below / share.sum())
    if len(values) > KNOTS:
        scores, known = np.linspace(scores[0], scores[-1], KNOTS), scores
        values = np.interp(scores, known, values)
    return tuple(values.tolist()), tuple(scores.tolist())


def one_unit(X: Array, spread: Array, weight: Array | None = None) -> float | None:
    """The spread of all columns together, where they look like readings of one scale; else None.

    So they do where at least half of those that vary reach both ends of the range of all (pixels, answers from 1 to
    5), and nothing is gained where their spreads are alike.

    >>> pixels = np.array([[0.0, 0.0, 0.0], [16.0, 16.0, 1.0], [0.0, 8.0, 0.0]])
    >>> one_unit(pixels, spreads(pixels)[1]) is None, one_unit(pixels * [1, 1, 100], spreads(pixels)[1]) is None
    (False, True)
    """
    varying = np.ptp(X, axis=0) > 0
    if np.count_nonzero(varying) < 2:
        return None
    X, spread = X[:, varying], spread[varying]
    ends = (X.min(axis=0) == X.min()) & (X.max(axis=0) == X.max())
    if np.mean(ends) < 0.5 or spread.max() < ALIKE * spread.min():
        return None
    centre = np.average(X, axis=0, weights=weight)
    return float(np.sqrt(np.mean(np.average((X - centre) ** 2, axis=0, weights=weight))))


def standardised(kernel: sk.Kernel, X: Array, columns: Columns) -> sk.Kernel:
    """A placed kernel whose parts see columns of numbers less their means, in units of their `spreads`.

    Times stay in hours, and cycles, places on the globe and groups as they are.

    >>> standardised(sk.RBF() + Category(1), np.array([[0.0, 1.0], [4000.0, 1.0], [8000.0, 0.0]]), Columns(2))
    Scaled(RBF(length_scale=1)) + Category(1)
    """
    if isinstance(kernel, On):
        at = [int(j) for j in (listed(kernel.columns) if kernel.at is None else kernel.at)]
        return On(standardised(kernel.kernel, X[:, at], columns.part(at)), kernel.columns, kernel.at)
    if isinstance(kernel, sk.KernelOperator):
        return type(kernel)(standardised(kernel.k1, X, columns), standardised(kernel.k2, X, columns))
    if isinstance(kernel, sk.Exponentiation):
        return sk.Exponentiation(standardised(kernel.kernel, X, columns), kernel.exponent)
    if not looks(kernel) or isinstance(kernel, Category | Cyclic | Sphere | Scaled | sk.ExpSineSquared):
        return kernel
    number = np.array([kind == "number" for kind in columns.kinds])
    if not number.any():
        return kernel
    centre, spread = spreads(X)
    return Scaled(kernel, tuple(np.where(number, centre, 0.0).tolist()), tuple(np.where(number, spread, 1.0).tolist()))
