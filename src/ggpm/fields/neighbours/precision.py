"""The precision of the posterior, factorised."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Curvature, Diagonal
from ggpm.fields.dense.matrices import kernel_of
from ggpm.fields.neighbours.conditionals import Conditionals
from ggpm.fields.neighbours.factor import factorise
from ggpm.fields.neighbours.layout import Layout

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


class SparsePrecision:
    """Factorised ``blockdiag(Q_j) + U``: one factor for all latents, or one for each where sites do not couple them."""

    def __init__(self, layout: Layout, priors: Sequence[Conditionals], U: Curvature) -> None:
        self.layout = layout
        tree, D = layout.tree, U.diagonal().gamma.shape[1]
        Q = [priors[kernel_of(j, len(priors))].entries for j in range(D)]
        self.separate = isinstance(U, Diagonal)
        if self.separate:
            gamma = layout.at_points(U.diagonal().gamma)
            self.factors = [factorise(tree, [Q[j]], gamma[:, j, None, None]) for j in range(D)]
        else:
            self.factors = [factorise(tree, Q, layout.at_points(U.dense()))]
        self.log_det = sum(factor.log_det for factor in self.factors)

    def solve(self, r: Array) -> Array:
        """Inverse times r (N, D)."""
        if self.separate:
            return np.hstack([factor.solve(r[:, [j]]) for j, factor in enumerate(self.factors)])
        return self.factors[0].solve(r)

    @cached_property
    def _inverse(self) -> tuple[Array, Array]:
        found = [factor.inverse() for factor in self.factors]
        if self.separate:
            return np.hstack([block[:, 0] for block, _ in found]), np.concatenate([entries for _, entries in found])
        return found[0]

    @property
    def blocks(self) -> Array:
        """Covariances of the points' latents, (N, D, D), or (N, D) where they are independent."""
        return self._inverse[0]

    @property
    def entries(self) -> Array:
        """Entries of the covariance of every latent within cliques, (D, entries)."""
        return self._inverse[1]

    def covariance(self, points: Indices, weights: Array) -> Array:
        """Covariance of weighted sums of latents, (m, D, D), for points (m, k) and their weights (m, k, D)."""
        if not self.separate:
            return self.factors[0].covariance(points, weights)
        D = weights.shape[2]
        out = np.zeros((len(points), D, D))
        for j, factor in enumerate(self.factors):
            out[:, j, j] = factor.covariance(points, weights[:, :, [j]])[:, 0, 0]
        return out

    def draw(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Draws of all points' latents around their mean, (N, n_samples, D)."""
        N = self.layout.n_points
        drawn = [factor.draw(rng.standard_normal((N, factor.D, n_samples))) for factor in self.factors]
        return np.concatenate(drawn, axis=1).swapaxes(1, 2)
