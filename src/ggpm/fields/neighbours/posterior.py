"""The posterior of the neighbours field: the latent at new rows from the nearest training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import batches
from ggpm.families.curvature import Curvature
from ggpm.fields.dense.matrices import kernel_of
from ggpm.fields.neighbours.conditionals import Conditionals, back_substitute, factor_cliques, forward_substitute
from ggpm.fields.neighbours.layout import Cliques, Layout
from ggpm.fields.neighbours.precision import SparsePrecision
from ggpm.fields.neighbours.search import most_correlated, nearest
from ggpm.fields.neighbours.settings import Neighbours
from ggpm.kernels import KernelEvaluation, Pairs, diag

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


class NeighboursPosterior:
    """q(eta) at the distinct training rows, ready to be carried to new ones.

    Kernels, X, f, U and settings determine everything else: order, neighbours and factorisation are computed again from
    them where they are not given, and are not stored with a model.

    Parameters
    ----------
    kernels : one that all latent dimensions share, or one for each
    X : distinct training rows, (N, features)
    f : posterior mean there, (N, D)
    U : curvature of the sites there, summed over equal rows
    settings : Neighbours
        With the nugget as a number.
    near : kernels under which neighbours of training rows are near
    precision : the factorisation, if it is at hand; its layout must be that of X
    """

    def __init__(
        self, kernels: Sequence[Any], X: Array, f: Array, U: Curvature, settings: Neighbours, near: Sequence[Any],
        precision: SparsePrecision | None = None,
    ) -> None:  # fmt: skip
        self.kernels, self.X, self.f, self.U, self.settings, self.near = list(kernels), X, f, U, settings, list(near)
        self._precision = precision

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_precision": None}

    @property
    def inputs(self) -> Array:
        """The rows that it knows, (N, features)."""
        return self.X

    @property
    def nugget(self) -> float:
        """Variance that was added to the prior of every training row, relative to its own."""
        assert self.settings.nugget is not None
        return self.settings.nugget

    @property
    def precision(self) -> SparsePrecision:
        """The factorised precision."""
        if self._precision is None:
            layout = Layout(self.X, self.near, self.settings)
            priors = [Conditionals(layout, kernel, self.nugget) for kernel in self.kernels]
            self._precision = SparsePrecision(layout, priors, self.U)
        return self._precision

    def nearest(self, X: Array) -> Indices:
        """Numbers of the training rows of largest correlation with every row of X, (m, neighbours + 1).

        As many as a training row and its neighbours are: with all rows as neighbours predictions are exact too.
        """
        return nearest(self.kernels, self.X, X, min(self.settings.number + 1, len(self.X)))

    def conditionals(self, X: Array, near: Indices) -> tuple[Array, Array]:
        """Weights (m, k, kernels) of the k training rows near every row of X, and variances left (m, kernels)."""
        weights = np.empty((*near.shape, len(self.kernels)))
        left = np.empty((len(X), len(self.kernels)))
        both = np.concatenate([self.X, X])
        at = np.broadcast_to(np.arange(len(self.X), len(both))[:, None], near.shape)
        cross = Pairs(both, at, near)
        cliques = Cliques(self.X, near)
        for k, kernel in enumerate(self.kernels):
            L = np.concatenate([
                factor_cliques(cliques, rows, pairs, kernel, self.nugget) for rows, pairs in cliques.batches()
            ])  # fmt: skip
            half = forward_substitute(L, KernelEvaluation(kernel, cross).K)
            weights[..., k] = back_substitute(L, half)
            # a variance is never negative: what rounding leaves below zero is zero
            left[:, k] = np.maximum(diag(kernel, X) - np.einsum("nk,nk->n", half, half), 0.0)
        return weights, left

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Mean (m, D) and covariance (m, D, D) of the latent at the rows of X."""
        m, D = len(X), self.f.shape[1]
        mean, cov = np.empty((m, D)), np.empty((m, D, D))
        if not m:
            return mean, cov
        near = self.nearest(X)
        of = [kernel_of(j, len(self.kernels)) for j in range(D)]
        precision = self.precision
        together = precision.order(near[:, 0])
        for rows in batches(m, 4 * near.shape[1] ** 2):
            chosen = together[rows]
            weights, left = self.conditionals(X[chosen], near[chosen])
            weights = weights[..., of]
            mean[chosen] = np.einsum("nkj,nkj->nj", weights, self.f[near[chosen]])
            cov[chosen] = precision.covariance(near[chosen], weights) + left[:, of, None] * np.eye(D)
        return mean, cov

    def draw(self, X: Array, n_samples: int, rng: np.random.Generator) -> Array:
        """Joint draws of the latent at the rows of X, (n_samples, m, D).

        Draws of all training rows are carried on to the new rows, each given its nearest among training rows and the
        new rows before it.
        """
        D, N = self.f.shape[1], len(self.X)
        layout = Layout(X, self.kernels, self.settings)  # repeated rows have one latent
        both = np.concatenate([self.X, layout.X])
        trained, earlier = self.nearest(layout.X), layout.cliques.members[:, :-1]
        # a new row at the place of a training row says nothing that this one does not
        known = np.all(self.X[trained[:, 0]] == layout.X, axis=1)
        use = (earlier >= 0) & ~known[np.maximum(earlier, 0)]
        candidates = np.hstack([trained, np.where(use, earlier + N, -1)])
        near = most_correlated(self.kernels, both, layout.X, candidates, trained.shape[1])
        values = np.empty((len(both), n_samples, D))
        values[:N] = self.f[:, None] + self.precision.draw(n_samples, rng)
        joint = NeighboursPosterior(self.kernels, both, values[:, 0], self.U, self.settings, self.near)
        weights, left = joint.conditionals(layout.X, near)
        of = [kernel_of(j, len(self.kernels)) for j in range(D)]
        noise = np.sqrt(left[:, None, of]) * rng.standard_normal((layout.n_points, n_samples, D))
        for i in range(layout.n_points):
            values[N + i] = np.einsum("kj,ksj->sj", weights[i][:, of], values[near[i]]) + noise[i]
        return values[N:][layout.place].swapaxes(0, 1)
