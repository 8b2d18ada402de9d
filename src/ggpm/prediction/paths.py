"""Draws of the prior at many rows: from the whole kernel matrix, or from as many of its columns as say everything.

A smooth kernel has few directions: a pivoted Cholesky factorisation that makes one column of the matrix at a time stops
when nothing is left of the variance of any row (`LEFT`), long before all rows are seen, and its memory is that of these
columns. A rough kernel at more rows than a matrix can be made of is refused, not approximated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from sklearn.gaussian_process import kernels as sk

from ggpm.kernels import diag, evaluate, summands
from ggpm.kernels.structure import leaves

__all__ = ["prior_draws", "root_of"]

Array = NDArray[np.float64]

WHOLE_MOST = 4000  # rows up to which the whole matrix is factorised: 128 MB, and seconds
LEFT = 1e-10  # share of the largest prior variance that may be left in a row
COLUMNS_MOST = 3000  # columns that are made before a kernel is called too rough: with 100,000 rows 2.4 GB


@dataclass(frozen=True)
class PriorDraws:
    """Draws of one latent at some rows: ``root @ e``, and noise of rows alone."""

    root: Array
    """R with R R^T the covariance without that noise, (n, rank)."""
    noise: Array
    """Standard deviations of the noise, (n,)."""

    def draw(self, rng: np.random.Generator, noisy_from: int = 0) -> Array:
        """One draw, (n,); rows before ``noisy_from`` without their noise."""
        out = self.root @ rng.standard_normal(self.root.shape[1])
        out[noisy_from:] += self.noise[noisy_from:] * rng.standard_normal(len(out) - noisy_from)
        return out


def prior_draws(kernel: sk.Kernel, X: Array) -> PriorDraws:
    """What draws of the prior under a kernel at these rows are made of.

    >>> prior_draws(sk.RBF() + sk.WhiteKernel(0.25), np.linspace(0, 1, 5)[:, None]).noise
    array([0.5, 0.5, 0.5, 0.5, 0.5])
    """
    noisy: list[sk.Kernel] = []
    others: list[sk.Kernel] = []
    for part in summands(kernel):
        (noisy if _only_noise(part, X.shape[1]) else others).append(part)
    noise = np.sqrt(np.sum([diag(part, X) for part in noisy], axis=0)) if noisy else np.zeros(len(X))
    if not others:
        return PriorDraws(np.zeros((len(X), 0)), noise)
    smooth = reduce(add, others)
    if len(X) <= WHOLE_MOST:
        return PriorDraws(root_of(evaluate(smooth, X).K), noise)
    return PriorDraws(_by_columns(smooth, X), noise)


def _only_noise(kernel: sk.Kernel, count: int) -> bool:
    found = [leaf for leaf, _ in leaves(kernel, range(count))]
    plain = all(isinstance(leaf, sk.WhiteKernel | sk.ConstantKernel) for leaf in found)
    return plain and any(isinstance(leaf, sk.WhiteKernel) for leaf in found)


def _by_columns(kernel: sk.Kernel, X: Array) -> Array:
    """R with R R^T = K to `LEFT`, from single columns of K, those of the largest variance left first."""
    n = len(X)
    left = np.array(diag(kernel, X), dtype=np.float64)
    tolerance = LEFT * left.max()
    R = np.zeros((n, 64), order="F")
    for rank in range(COLUMNS_MOST + 1):
        row = int(left.argmax())
        if left[row] <= tolerance:
            return R[:, :rank]
        if rank == COLUMNS_MOST:
            break
        if rank == R.shape[1]:
            R = np.asfortranarray(np.concatenate([R, np.zeros((n, rank))], axis=1))
        column = evaluate(kernel, X, X[row : row + 1]).K[:, 0] - R[:, :rank] @ R[row, :rank]
        column[row] = left[row]  # noise of the row inside a product is on the diagonal alone
        R[:, rank] = column / np.sqrt(left[row])
        left = np.maximum(left - R[:, rank] ** 2, 0.0)
        left[row] = 0.0
    share = left.max() / tolerance * LEFT
    raise ValueError(
        f"joint draws over {n} rows (training rows or inducing points included) are too many for so rough a kernel, "
        f"{kernel!r}: {COLUMNS_MOST} directions leave {share:.1g} of its variance. Draw at fewer rows at a time, "
        "fit with neighbours=, or take joint=False."
    )


def root_of(C: Array) -> Array:
    """R with R R^T = C for a covariance that may be singular, by a pivoted Cholesky factorisation.

    >>> root_of(np.ones((2, 2))).shape
    (2, 1)
    """
    L, pivots, rank, _ = lapack.dpstrf(np.asfortranarray(C), lower=1, tol=1e-14 * max(float(np.diag(C).max()), 1e-300))
    out = np.zeros((len(C), rank))
    out[pivots - 1] = np.tril(L)[:, :rank]
    return out
