"""Nodes of the latents behind parts of compositions and entries of directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import RankOne
from ggpm.prediction.nodes import HERMITE, MOST_HERMITE_LATENTS, Rows, latent_nodes

if TYPE_CHECKING:
    from ggpm.families.base import Family
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]
Group = tuple["Family", Rows, Array, Array]

SPACING = 0.8  # of nodes of wide latents: with 0.9 probabilities of three parts are off by 8e-5 at a variance of 25
KEPT_DOUBLES = 2**20  # of nodes that are kept: those of a thousand rows of three narrow latents
AROUND = 2.0  # standard deviations about the mean within which latents may be told best


@dataclass(frozen=True)
class Component:
    """A distribution that rows are averages of."""

    weight: Array
    """(m,)."""
    family: Family
    mean: Array
    root: Array
    told: Array
    """Information that decides on the nodes, (m, D, D)."""


class PartNodes:
    """Nodes of all that rows are averages of: what decides on them is found once, and they are kept where they are few.

    Iterating gives families of what a row is an average of, and nodes (k, S, D) and weights (k, S) of rows (k,) that
    have as many.
    """

    def __init__(self, components: list[Component], kept: list[Group] | None = None):
        self._components, self._kept = components, kept

    @classmethod
    def of(cls, p: Predictive) -> PartNodes:
        """Those of all rows."""
        return cls(
            [Component(w, q.family, q.latent_mean, q.cholesky(), information(q)) for w, q in p.components],
        )

    def rows(self, rows: Rows) -> PartNodes:
        """Those of some rows, each of them once."""
        place = np.full(len(self._components[0].mean), -1)
        place[rows] = np.arange(len(rows))
        kept: list[Group] | None = None if self._kept is None else []
        for family, its, eta, share in self._kept or []:
            there = place[its] >= 0
            if there.any() and kept is not None:
                kept.append((family, place[its[there]], eta[there], share[there]))
        parts = [
            replace(c, weight=c.weight[rows], mean=c.mean[rows], root=c.root[rows], told=c.told[rows])
            for c in self._components
        ]
        return PartNodes(parts, kept)

    def __iter__(self) -> Iterator[Group]:
        if self._kept is not None:
            yield from self._kept
            return
        kept, size = [], 0
        for c in self._components:
            for rows, eta, share in latent_nodes(c.mean, c.root, c.told, 4, spacing=SPACING):
                group = c.family, rows, eta, c.weight[rows, None] * share
                size += eta.size
                if size <= KEPT_DOUBLES:
                    kept.append(group)
                yield group
        if size <= KEPT_DOUBLES:
            self._kept = kept


def information(p: Predictive) -> Array:
    """Fisher information of the latent in one observation, (m, D, D), at the mean or off it, where there is most of it.

    Parts next to a bound are as good as known at their mean, and far from known two standard deviations below it. With
    one parameter a below one nearly all observations lie next to a vertex and tell next to nothing about the others;
    ends of intervals are among the share a, about, of those that do tell, and each of these may tell 1/a times as much.
    It cannot tell more than if the sum of the gamma variables behind it were known, too: gamma of U = diag(gamma) -
    rho omega omega^T. Latents that are narrow remain so, however.
    """
    steps = AROUND * np.concatenate([p.cholesky(), -p.cholesky()], axis=2).transpose(2, 0, 1)
    tried, own = [], []
    tells = p.family.has("share_spread") and p.latent_mean.shape[1] <= MOST_HERMITE_LATENTS
    for eta in (p.latent_mean, *(p.latent_mean + steps)):
        moment = p.family.moment(eta)
        U = p.family.U(eta, moment, expected=True)
        tried.append(U.dense())
        if tells and isinstance(U, RankOne):
            least = moment.min(axis=1) * (1.0 / p.family.share_spread(eta) - 1.0)
            told = np.einsum("mii->mi", tried[-1])
            more = np.minimum((1.0 / np.clip(least, 1e-300, 1.0) - 1.0)[:, None] * told, U.gamma - told)
            own.append(np.maximum(more, 0.0))
    total = np.stack(tried)
    most = np.einsum("smij,mji->sm", total, p.latent_cov).argmax(axis=0)
    at = np.arange(len(p))
    found = total[most, at]
    if not own:
        return found
    more = np.stack(own)[most, at]
    square = np.square(p.cholesky())
    now = np.einsum("mik,mij,mjk->mk", p.cholesky(), found, p.cholesky())
    then, narrow = np.einsum("mik,mi->mk", square, more), HERMITE[-1][0] ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where((now <= narrow) & (then > 0), (narrow - now) / then, np.inf).min(axis=1)
    found = found.copy()
    np.einsum("mii->mi", found)[...] += np.clip(room, 0.0, 1.0)[:, None] * more
    return found
