"""The precision of the posterior: factorised, or solved by conjugate gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Curvature, Diagonal
from ggpm.fields.dense.matrices import kernel_of, latents_of
from ggpm.fields.neighbours.conditionals import Conditionals
from ggpm.fields.neighbours.factor import BandedFactor, FrontalFactor, factorise
from ggpm.fields.neighbours.iterative import IterativeFactor
from ggpm.fields.neighbours.layout import Layout

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

TOGETHER = 256  # rows whose covariances are found at a time: near ones pass through the same fronts


class SparsePrecision:
    """``blockdiag(Q_j) + U``: one factor for all latents, or one for each where sites do not couple them."""

    def __init__(self, layout: Layout, priors: Sequence[Conditionals], U: Curvature) -> None:
        self.layout, self.priors = layout, priors
        D = U.diagonal().gamma.shape[1]
        self.separate = isinstance(U, Diagonal)
        self.iterative = layout.iterative(1 if self.separate else D)
        """Whether log-determinant and covariances are estimates."""
        values = layout.at_points(U.diagonal().gamma if self.separate else U.dense())
        groups = [[j] for j in range(D)] if self.separate else [list(range(D))]
        self.factors: list[FrontalFactor | BandedFactor | IterativeFactor] = []
        for latents in groups:
            of = [priors[kernel_of(j, len(priors))] for j in latents]
            here = values[:, latents, None] if self.separate else values
            if self.iterative:
                self.factors.append(IterativeFactor(layout, of[:1] if len(priors) == 1 else of, here))
            else:
                self.factors.append(factorise(layout.tree, [prior.entries for prior in of], here))

    @cached_property
    def log_det(self) -> float:
        """Logarithm of the determinant."""
        return sum(factor.log_det for factor in self.factors)

    @property
    def log_det_error(self) -> float:
        """Standard error of `log_det`: zero where it is not an estimate."""
        found = [factor.log_det_error for factor in self.factors if isinstance(factor, IterativeFactor)]
        return float(np.sqrt(np.sum(np.square(found))))

    def solve(self, r: Array) -> Array:
        """Inverse times r (N, D)."""
        if self.separate:
            return np.hstack([factor.solve(r[:, [j]]) for j, factor in enumerate(self.factors)])
        return self.factors[0].solve(r)

    @cached_property
    def _inverse(self) -> tuple[Array, Array]:
        """Blocks, and either entries within cliques or standard errors of variances."""
        found = [f.blocks() if isinstance(f, IterativeFactor) else f.inverse() for f in self.factors]
        if not self.separate:
            return found[0]
        join = np.hstack if self.iterative else np.concatenate
        return np.hstack([block[:, 0] for block, _ in found]), join([rest for _, rest in found])

    @property
    def blocks(self) -> Array:
        """Covariances of the points' latents, (N, D, D), or (N, D) where they are independent."""
        return self._inverse[0]

    @property
    def variance_errors(self) -> Array:
        """Standard errors of the points' variances, (N, D): zero where they are not estimates."""
        blocks, rest = self._inverse
        return rest if self.iterative else np.zeros(blocks.shape[:2])

    def pullback(self, k: int, m: Array, w: Array) -> Array:
        """Gradient in the hyperparameters of kernel k, given means m and their movements w, (N, D).

        That of ``tr(G Q) + D/2 log|Q|``, ``G = -sum_j (m_j m_j^T + m_j w_j^T + w_j m_j^T + P^-1_jj)/2``, over the
        latents of the kernel.
        """
        D = m.shape[1]
        latents = range(D)[latents_of(k, len(self.priors))]
        left, right = m[:, latents], (m + 2.0 * w)[:, latents]
        if not self.iterative:
            return self.priors[k].pullback(left, right, self._inverse[1][latents].sum(axis=0), len(latents))
        # estimates are of the difference to Q^-1, in which log|Q| is no more
        pairs = [self.factors[j].pairs(0) if self.separate else self.factors[0].pairs(j) for j in latents]  # type: ignore[union-attr]
        left, right = (np.hstack([part, *more]) for part, more in zip((left, right), zip(*pairs)))
        return self.priors[k].pullback(left, right, None, 0)

    def order(self, points: Indices) -> Indices:
        """An order of points in which those that are near are asked for together."""
        layout = self.layout
        by = layout.patches.of if self.iterative else np.argsort(layout.tree.order)
        return np.argsort(by[points], kind="stable")

    def covariance(self, points: Indices, weights: Array) -> Array:
        """Covariance of weighted sums of latents, (m, D, D), for points (m, k) and their weights (m, k, D)."""
        D = weights.shape[2]
        out = np.zeros((len(points), D, D))
        step = len(points) if self.iterative else TOGETHER
        for start in range(0, len(points), max(step, 1)):
            some = slice(start, start + step)
            if not self.separate:
                out[some] = self.factors[0].covariance(points[some], weights[some])
                continue
            for j, factor in enumerate(self.factors):
                out[some, j, j] = factor.covariance(points[some], weights[some][:, :, [j]])[:, 0, 0]
        return out

    def draw(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Draws of all points' latents around their mean, (N, n_samples, D)."""
        return np.concatenate([factor.draw(n_samples, rng) for factor in self.factors], axis=1).swapaxes(1, 2)
