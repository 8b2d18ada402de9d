"""Inducing points: their number, their places, and the ways to choose them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ggpm import kernels as kernels_module
from ggpm.data.rows import pick

Array = NDArray[np.float64]

# Most steps of k-means after its seeding: the points need only cover the rows, not be the best centres.
LLOYD_STEPS = 25
LABEL_DIRECTIONS = 16  # dimensions in which labels are random directions: angles between them are then 90 ± 14 degrees


@dataclass(frozen=True)
class Inducing:
    """Settings of a sparse fit; ``inducing=M`` is short for ``inducing=Inducing(M)``.

    Parameters
    ----------
    points : int or array (M, features)
        How many inducing points to choose, or the points themselves.
    choice : "kmeans" or "variance"
        "kmeans": k-means from k-means++ seeds, on features in units of their spread. "variance": greedily the row
        whose prior variance is least explained by those chosen so far (with the kernel as given). Both look at a
        random sample of the rows.
    optimise : bool
        Whether to move the points together with the hyperparameters, after these were learned with the points
        held.
    jitter : float
        What is added to the diagonal of K_uu, relative to the diagonal itself.
    sample_rows : int
        Rows of the sample from which points are chosen and on which learning starts.
    warmup : bool
        Learn first on the sample (a quarter of the rows at most), then on all rows from there.
    ftol : float
        The search ends when the objective rises by less than this, relative to its size.
    chunk_rows : int
        Rows that are read at a time; results do not depend on it.

    Examples
    --------
    >>> Inducing(50, choice="variance").points
    50
    """

    points: int | ArrayLike
    choice: Literal["kmeans", "variance"] = "kmeans"
    optimise: bool = False
    jitter: float = 1e-8
    sample_rows: int = 10_000
    warmup: bool = True
    ftol: float = 1e-7
    chunk_rows: int = 65_536

    def __post_init__(self) -> None:
        if isinstance(self.points, bool) or (
            np.ndim(self.points) == 0 and not isinstance(self.points, int | np.integer)
        ):
            raise ValueError(
                f"inducing must be a number of points, an array (M, features) or an Inducing; got {self.points!r}."
            )
        if np.ndim(self.points) not in (0, 2):
            raise ValueError(
                f"inducing points must be an array (M, features); got {np.ndim(self.points)} dimension(s)."
            )
        if np.ndim(self.points) == 0 and int(self.points) < 1:  # type: ignore[arg-type]
            raise ValueError(f"inducing must be at least one point; got {self.points}.")
        if self.choice not in ("kmeans", "variance"):
            raise ValueError(f"choice must be 'kmeans' or 'variance'; got {self.choice!r}.")
        for name in ("jitter", "ftol"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1); got {getattr(self, name)!r}.")
        for name in ("sample_rows", "chunk_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)!r}.")

    def given(self, n_features: int) -> Array | None:
        """The points, if the user gave them."""
        if np.ndim(self.points) == 0:
            return None
        Z = np.array(self.points, dtype=float)
        if Z.shape[1] != n_features or len(Z) == 0 or not np.all(np.isfinite(Z)):
            raise ValueError(
                f"inducing points must be finite numbers of shape (M, {n_features}), as many columns as X; "
                f"got shape {Z.shape}."
            )
        return Z

    def sample(self, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """Sorted numbers of the rows, among n, that points are chosen from and learning starts on."""
        enough = 0 if np.ndim(self.points) else 4 * int(self.points)  # type: ignore[arg-type]
        return pick(n, max(self.sample_rows, enough), rng)

    def choose(self, sample: Array, kernels: Sequence[Any], seed: int) -> Array:
        """M points from a sample of the rows."""
        M = int(self.points)  # type: ignore[arg-type]
        distinct = np.unique(sample, axis=0)
        if len(distinct) <= M:
            if len(distinct) < M:
                warnings.warn(
                    f"there are only {len(distinct)} distinct rows to choose {M} inducing points from: all of them "
                    "are used.",
                    UserWarning,
                    stacklevel=2,
                )
            return distinct
        if self.choice == "variance":
            return greedy_variance(sample, kernels, M)
        return kmeans_points(sample, M, seed, kernels_module.category_columns(kernels, sample.shape[1]))


def kmeans_points(X: Array, M: int, seed: int = 0, categories: NDArray[np.bool_] | None = None) -> Array:
    """Centres of k-means (k-means++ seeds) on features in units of their standard deviation, (M, features).

    Columns that are ``categories`` have no means: for k-means each value of one is a random direction, so that all are
    about equally far apart, and a point has the values of the row nearest to its centre.

    >>> X = np.repeat([[0.0], [10.0]], 5, axis=0) + np.linspace(-1, 1, 10)[:, None]
    >>> np.sort(kmeans_points(X, 2)[:, 0]).round(2)
    array([-0.56, 10.56])
    """
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    from sklearn.cluster import KMeans  # loads half of scikit-learn: only when it is used

    held = np.zeros(X.shape[1], dtype=bool) if categories is None else categories
    scaled = ((X - centre) / spread)[:, ~held]
    for j in np.flatnonzero(held):
        values, codes = np.unique(X[:, j], return_inverse=True)
        directions = np.random.default_rng(seed).normal(size=(len(values), min(len(values), LABEL_DIRECTIONS)))
        scaled = np.hstack([scaled, (directions / np.linalg.norm(directions, axis=1, keepdims=True))[codes]])
    found = KMeans(M, n_init=1, max_iter=LLOYD_STEPS, random_state=seed).fit(scaled)
    Z = np.empty((M, X.shape[1]))
    Z[:, ~held] = found.cluster_centers_[:, : np.sum(~held)] * spread[~held] + centre[~held]
    if held.any():
        from sklearn.metrics import pairwise_distances_argmin

        Z[:, held] = X[pairwise_distances_argmin(found.cluster_centers_, scaled)][:, held]
    return Z


def greedy_variance(X: Array, kernels: Sequence[Any], M: int) -> Array:
    """Rows chosen one by one where most prior variance is left (pivoted Cholesky), (M, features).

    With several kernels, each one's variance counts relative to its largest.

    >>> from sklearn.gaussian_process.kernels import RBF
    >>> greedy_variance(np.array([[0.0], [0.1], [5.0]]), [RBF()], 2)
    array([[0.],
           [5.]])
    """
    n = len(X)
    prior = np.stack([kernels_module.diag(kernel, X) for kernel in kernels])
    left = prior / prior.max(axis=1, keepdims=True)
    scale = prior.max(axis=1)
    factors = np.zeros((len(kernels), M, n))
    chosen: list[int] = []
    for m in range(M):
        total = left.sum(axis=0)
        total[chosen] = -np.inf
        pivot = int(np.argmax(total))
        chosen.append(pivot)
        for k, kernel in enumerate(kernels):
            variance = left[k, pivot]
            if variance <= 1e-12:  # what is left of this kernel is rounding: its factor would be noise
                continue
            column = kernels_module.evaluate(kernel, X, X[pivot : pivot + 1]).K[:, 0] / scale[k]
            column -= factors[k, :m].T @ factors[k, :m, pivot]
            factors[k, m] = column / np.sqrt(variance)
            left[k] = np.maximum(left[k] - factors[k, m] ** 2, 0.0)
    return X[chosen].copy()
