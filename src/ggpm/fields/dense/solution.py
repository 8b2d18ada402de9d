"""The posterior that belongs to kernel matrices and sites.

`factorise` takes the kernel matrices and the curvature of the sites and returns a `Solution`: everything
that evidence, gradient and prediction ask of ``V = (K^-1 + U)^-1`` and ``(K + W)^-1``, ``W = U^-1``, without
forming either. Which solver is used follows from the shape of the curvature alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Blocks, Curvature, Diagonal, Kronecker, Marginals, RankOne
from ggpm.fields.dense.block import BlockSolution, JointSolution
from ggpm.fields.dense.diagonal import DiagonalSolution
from ggpm.fields.dense.kronecker import KroneckerSolution
from ggpm.fields.dense.matrices import KernelMatrices
from ggpm.fields.dense.rank_one import Coupling, RankOneSolution
from ggpm.fields.dense.sensitivity import Sensitivity
from ggpm.kernels.linalg import available_memory

__all__ = ["Solution", "factorise"]

Array = NDArray[np.float64]


class Solution(Protocol):
    """A factorised ``I + U K``: a value, which answers the same whatever was asked before."""

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

    def reduction(self, K_star: KernelMatrices) -> Array:
        """``K_*^T (K + W)^-1 K_*`` per test point, (m, D, D), for cross-covariances (n, m)."""
        ...

    def sensitivity(self) -> Sensitivity:
        """Pullbacks of the marginals to sites and kernel matrices."""
        ...


Solver = Callable[[KernelMatrices, Curvature], Solution]


def factorise(K: KernelMatrices, U: Curvature) -> Solution:
    """Factorise ``I + U K``; raises `NotPositiveDefinite` when ``K^-1 + U`` is not positive definite.

    >>> round(float(factorise(KernelMatrices([np.eye(2)]), Diagonal(np.ones((2, 1)))).log_det), 4)
    1.3863
    """
    if isinstance(U, Diagonal) and not K.joint:
        if U.gamma.shape[1] > 1:  # one was looked at with the kernel matrix
            check_memory(len(K.of(0)), U.gamma.shape[1], "independent latents")
        return DiagonalSolution(K, U)
    if isinstance(U, (RankOne, Kronecker, Blocks)) and K.shared and not K.joint and (common := U.common()) is not None:
        check_memory(len(K.of(0)), 2, "latents that share one curvature")
        return KroneckerSolution(K, common)
    if isinstance(U, RankOne) and not K.joint:
        check_memory(len(K.of(0)), U.gamma.shape[1] + 1, f"{U.gamma.shape[1]} latents with a rank-one coupling")
        return RankOneSolution(K, U)
    blocks = Blocks(U.dense())
    n, D, _ = blocks.values.shape
    if not K.joint and (coupling := Coupling.of_blocks(blocks)) is not None:
        check_memory(n, D + 1, f"general {D}×{D} blocks")
        return RankOneSolution(K, coupling)
    check_memory(n, BLOCK_ARRAYS * D**2, f"general {D}×{D} blocks")
    return (JointSolution if K.joint else BlockSolution)(K, blocks)


BLOCK_ARRAYS = 4  # of order nD that the block solver has alive at once, counted from its code


def check_memory(n: int, arrays: int, what: str) -> None:
    """Refuse, before anything is allocated, what would not fit in memory: so many arrays of n×n.

    >>> check_memory(10**7, 1, "a kernel matrix")
    Traceback (most recent call last):
    ...
    MemoryError: a kernel matrix for 10000000 rows need 745058.1 GiB, ... GiB are free. Use fewer rows, inducing ...
    """
    need, have = 8.0 * arrays * n**2, available_memory()
    if need > have:
        raise MemoryError(
            f"{what} for {n} rows need {need / 2**30:.1f} GiB, {have / 2**30:.1f} GiB are free. Use fewer rows, "
            "inducing points, or a family whose curvature is declared diagonal or rank-one."
        )
