"""Solvers: the posterior that belongs to kernel matrices and sites.

`factorise` takes the kernel matrices and the curvature of the sites and returns a `Solution`: everything
that evidence, gradient and prediction ask of ``V = (K^-1 + U)^-1`` and ``(K + W)^-1``, ``W = U^-1``, without
forming either. Which solver is used follows from the shape of the curvature alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Blocks, Curvature, Diagonal, Kronecker, Marginals, RankOne
from ggpm.fields.dense.block import BlockSolution, Joint, JointSolution
from ggpm.fields.dense.diagonal import DiagonalSolution
from ggpm.fields.dense.kronecker import KroneckerSolution
from ggpm.fields.dense.rank_one import RankOneSolution

Array = NDArray[np.float64]

__all__ = ["Joint", "Solution", "factorise"]


class Solution(Protocol):
    """A factorised ``I + U K``.

    Kernel matrices come as a list: one n×n matrix shared by all latent dimensions, or one per dimension; or as one
    `Joint` matrix of order nD.
    """

    @property
    def log_det(self) -> float:
        """log |I + U K|."""
        ...

    def solve(self, r: Array) -> Array:
        """``(I + U K)^-1 r`` for r (n, D)."""
        ...

    def marginals(self) -> Marginals:
        """The D×D diagonal blocks V_ii."""
        ...

    def precision(self) -> list[Array]:
        """For every kernel matrix the blocks ``[(K + W)^-1]_jj``, summed over the dimensions that share it.

        New Fortran-ordered arrays that the caller may overwrite.
        """
        ...

    def reduction(self, K_star: Sequence[Array]) -> Array:
        """``K_*^T (K + W)^-1 K_*`` per test point, (m, D, D), for cross-covariances (n, m)."""
        ...


def factorise(K: Sequence[Array], U: Curvature) -> Solution:
    """Factorise ``I + U K``; raises `NotPositiveDefinite` when ``K^-1 + U`` is not positive definite.

    >>> round(float(factorise([np.eye(2)], Diagonal(np.ones((2, 1)))).log_det), 4)
    1.3863
    """
    if isinstance(K, Joint):
        return JointSolution(K, Blocks(U.dense()))
    if isinstance(U, Diagonal):
        return DiagonalSolution(K, U)
    if isinstance(U, (RankOne, Kronecker)) and len(K) == 1 and (common := U.common()) is not None:
        return KroneckerSolution(K, common)
    if isinstance(U, RankOne):
        return RankOneSolution(K, U)
    return BlockSolution(K, Blocks(U.dense()))
