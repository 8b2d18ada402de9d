"""Sparse Cholesky factors as trees of dense fronts (multifrontal; Duff and Reid 1983), and their selected inverses.

Everything that is large goes through LAPACK. With own vertices S and boundary B of a front

    [F_SS  .  ]     L = chol(F_SS),   W = F_BS L^-T,   update of the parent: F_BB - W W^T,
    [F_BS F_BB]     Z_SB = -(L^-T W^T) Z_BB,   Z_SS = F_SS^-1 - (L^-T W^T) Z_BS    (Takahashi, Fagan and Chen 1973)

where Z is the inverse of the whole matrix: from the root to the leaves, all its entries within fronts are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from ggpm.fields.neighbours.dissection import Front, Tree
from ggpm.kernels.linalg import NotPositiveDefinite, available_memory, mirror, product

Array = NDArray[np.float64]

NARROW = 32  # bandwidth up to which a banded factor is faster than fronts, whose leaves have a hundred vertices


class FrontalFactor:
    """Factor of ``blockdiag(Q_j) + U``, with the latents of a vertex side by side.

    Parameters
    ----------
    tree : Tree
    Q : entries of the precisions of D latents, as the tree sorts them, (D, entries)
    U : what is added to the blocks of the vertices, (n, D, D)
    """

    def __init__(self, tree: Tree, Q: Sequence[Array], U: Array) -> None:
        self.tree, self.D = tree, U.shape[1]
        check_memory(tree, self.D)
        U = U[tree.order]
        self.L: list[Array] = []
        self.W: list[Array] = []
        D = self.D
        updates: dict[int, Array] = {}
        places = [_spread(front.in_parent, D) for front in tree.fronts]
        children: dict[int, list[int]] = {}
        for k, front in enumerate(tree.fronts):
            s, size = front.own, front.size
            F = np.zeros((size * D, size * D), order="F")
            blocks = F.reshape(D, size, D, size, order="F")
            for j, entries in enumerate(Q):
                blocks[j, front.rows, j, front.columns] = entries[front.entries]
            own = np.arange(s)
            blocks[:, own, :, own] += U[front.start : front.stop]
            for child in children.pop(k, []):
                F[np.ix_(places[child], places[child])] += updates.pop(child)
            L, info = lapack.dpotrf(F[: s * D, : s * D], lower=1)
            if info != 0:
                raise NotPositiveDefinite(f"the precision is not positive definite at vertex {front.start + info // D}")
            self.L.append(L)
            W = np.asfortranarray(F[s * D :, : s * D])
            if s and W.size:
                W = blas.dtrsm(1.0, L, W, side=1, lower=1, trans_a=1, overwrite_b=1)
            self.W.append(W)
            if front.parent >= 0:
                children.setdefault(front.parent, []).append(k)
                rest = np.asfortranarray(F[s * D :, s * D :])
                if s and W.size:
                    rest = blas.dsyrk(-1.0, W, beta=1.0, c=rest, lower=1, overwrite_c=1)
                updates[k] = rest

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant."""
        return 2.0 * float(sum(np.sum(np.log(np.diag(L))) for L in self.L))

    def _walk(self) -> Iterator[tuple[slice, NDArray[np.intp], Array, Array]]:
        """Own entries, boundary entries, L and W of every front."""
        D = self.D
        for front, L, W in zip(self.tree.fronts, self.L, self.W):
            if front.own:
                yield slice(front.start * D, front.stop * D), _spread(front.boundary, D), L, W

    def forward(self, b: Array) -> Array:
        """``L^-1 b`` for right-hand sides (nD, r) in the order of elimination; b is overwritten."""
        for own, boundary, L, W in self._walk():
            b[own] = y = _triangular(L, b[own])
            if len(boundary):
                b[boundary] -= product(W, y)
        return b

    def backward(self, b: Array) -> Array:
        """``L^-T b``; b is overwritten."""
        for own, boundary, L, W in reversed(list(self._walk())):
            right = b[own] - product(W.T, b[boundary]) if len(boundary) else b[own]
            b[own] = _triangular(L, right, transposed=True)
        return b

    def draw(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Vectors (n, D, n_samples) whose covariance is the inverse."""
        noise = rng.standard_normal((len(self.tree.order), self.D, n_samples))
        out = np.empty_like(noise)
        out[self.tree.order] = self.backward(noise.reshape(-1, noise.shape[2]).copy()).reshape(noise.shape)
        return out

    def solve(self, r: Array) -> Array:
        """Inverse times r (n, D)."""
        order = self.tree.order
        b = self.backward(self.forward(r[order].reshape(-1, 1).copy()))
        out = np.empty_like(r)
        out[order] = b.reshape(r.shape)
        return out

    def inverse(self) -> tuple[Array, Array]:
        """Of the inverse, the D×D blocks of all vertices (n, D, D), and the entries of Q, (D, entries)."""
        D, tree = self.D, self.tree
        n, count = len(tree.order), len(tree.sorted_entries)
        blocks, entries = np.empty((n, D, D)), np.empty((D, count))
        kept: dict[int, Array] = {}
        waiting = np.bincount([f.parent for f in tree.fronts if f.parent >= 0], minlength=len(tree.fronts))
        for k in range(len(tree.fronts) - 1, -1, -1):
            front, L, W = tree.fronts[k], self.L[k], self.W[k]
            s, size = front.own * D, front.size * D
            Z = np.empty((size, size), order="F")
            if front.parent >= 0:
                inside = _spread(front.in_parent, D)
                Z[s:, s:] = kept[front.parent][np.ix_(inside, inside)]
                waiting[front.parent] -= 1
                if not waiting[front.parent]:
                    del kept[front.parent]
            if s:
                own, info = lapack.dpotri(L, lower=1)
                assert info == 0
                Z[:s, :s] = mirror(np.asfortranarray(own))
                if size > s:
                    G = blas.dtrsm(1.0, L, W, side=1, lower=1)  # W L^-1
                    cross = blas.dsymm(-1.0, np.asfortranarray(Z[s:, s:]), G, lower=1)
                    Z[s:, :s], Z[:s, s:] = cross, cross.T
                    Z[:s, :s] -= blas.dgemm(1.0, G, cross, trans_a=1)
            self._read(front, Z.reshape(D, front.size, D, front.size, order="F"), blocks, entries)
            if waiting[k]:
                kept[k] = Z
        out = np.empty_like(blocks)
        out[tree.order] = (blocks + blocks.swapaxes(1, 2)) / 2
        return out, entries

    @cached_property
    def position(self) -> NDArray[np.intp]:
        """For every vertex its place in the order of elimination."""
        return np.argsort(self.tree.order)

    @cached_property
    def _front_of(self) -> NDArray[np.intp]:
        """Number of the front that eliminates each vertex."""
        return np.repeat(np.arange(len(self.tree.fronts)), [front.own for front in self.tree.fronts])

    def covariance(self, vertices: NDArray[np.intp], weights: Array) -> Array:
        """``B^T (inverse) B`` (m, D, D), where B holds the weights (m, k, D) of latents at vertices (m, k).

        Only the fronts of these vertices and those above them are visited.
        """
        D, m, vertices = self.D, len(vertices), self.position[vertices]
        fronts = self.tree.fronts
        active = np.zeros(len(fronts), dtype=bool)
        active[self._front_of[np.unique(vertices)]] = True
        for number in np.flatnonzero(active).tolist():
            while (number := fronts[number].parent) >= 0 and not active[number]:
                active[number] = True
        chosen = np.flatnonzero(active)
        sizes = np.array([fronts[number].own for number in chosen])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        shift = np.zeros(len(fronts), dtype=np.intp)  # from a vertex to its place among those that are visited
        shift[chosen] = starts[:-1] - np.array([fronts[number].start for number in chosen])
        b = np.zeros((starts[-1], D, m, D))
        row = np.arange(m)[:, None]
        for j in range(D):
            np.add.at(b[:, j, :, j], (vertices + shift[self._front_of[vertices]], row), weights[:, :, j])
        b = b.reshape(starts[-1] * D, m * D)
        for number, start, size in zip(chosen.tolist(), starts.tolist(), sizes.tolist()):
            if size:
                own, boundary = slice(start * D, (start + size) * D), fronts[number].boundary
                b[own] = y = _triangular(self.L[number], b[own])
                if len(boundary):
                    b[_spread(boundary + shift[self._front_of[boundary]], D)] -= product(self.W[number], y)
        b = b.reshape(-1, m, D)
        return np.einsum("arj,ark->rjk", b, b, optimize=True)

    def _read(self, front: Front, Z: Array, blocks: Array, entries: Array) -> None:
        own = np.arange(front.own)
        blocks[front.start : front.stop] = Z[:, own, :, own]
        for j in range(self.D):
            entries[j, front.entries] = Z[j, front.rows, j, front.columns]


class BandedFactor:
    """The same for points on a line, where all entries lie near the diagonal: a million of them in a second.

    Selected inverses and covariances are those of the fronts, made when they are asked for.
    """

    def __init__(self, tree: Tree, Q: Sequence[Array], U: Array) -> None:
        self._given = tree, Q, U
        self.D = D = U.shape[1]
        n = len(U)
        band = np.zeros((tree.bandwidth * D + D, n * D), order="F")
        low, high = np.minimum(tree.low, tree.high), np.maximum(tree.low, tree.high)
        for j, entries in enumerate(Q):
            band[(high - low) * D, low * D + j] = entries
        for j in range(D):
            for k in range(j, D):
                band[k - j, np.arange(n) * D + j] += U[:, k, j]
        self.L, info = lapack.dpbtrf(band, lower=1, overwrite_ab=1)
        if info != 0:
            raise NotPositiveDefinite(f"the precision is not positive definite at vertex {info // D}")

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant."""
        return 2.0 * float(np.sum(np.log(self.L[0])))

    def solve(self, r: Array) -> Array:
        """Inverse times r (n, D)."""
        x, info = lapack.dpbtrs(self.L, r.reshape(-1, 1), lower=1)
        assert info == 0
        return x.reshape(r.shape)

    def draw(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Vectors (n, D, n_samples) whose covariance is the inverse."""
        return self._fronts.draw(n_samples, rng)

    @cached_property
    def _fronts(self) -> FrontalFactor:
        return FrontalFactor(*self._given)

    def inverse(self) -> tuple[Array, Array]:
        """Of the inverse, the D×D blocks of all vertices (n, D, D), and the entries of Q, (D, entries)."""
        return self._fronts.inverse()

    def covariance(self, vertices: NDArray[np.intp], weights: Array) -> Array:
        """``B^T (inverse) B`` (m, D, D), where B holds the weights (m, k, D) of latents at vertices (m, k)."""
        return self._fronts.covariance(vertices, weights)


def factorise(tree: Tree, Q: Sequence[Array], U: Array) -> FrontalFactor | BandedFactor:
    """Factor of ``blockdiag(Q_j) + U``: banded where the band is narrow, by fronts elsewhere."""
    return (BandedFactor if tree.bandwidth <= NARROW else FrontalFactor)(tree, Q, U)


def _triangular(L: Array, b: Array, transposed: bool = False) -> Array:
    if b.shape[1] == 1:
        return lapack.dtrtrs(L, b, lower=1, trans=int(transposed))[0]
    return blas.dtrsm(1.0, L, b, lower=1, trans_a=int(transposed))


def _spread(vertices: NDArray[np.intp], D: int) -> NDArray[np.intp]:
    """Numbers of all latents of some vertices."""
    return vertices if D == 1 else (vertices[:, None] * D + np.arange(D)).ravel()


def check_memory(tree: Tree, D: int) -> None:
    """Refuse a factor that would not fit in memory, before anything is allocated."""
    need, have = 8.0 * D**2 * (tree.doubles + 3 * tree.largest**2), available_memory()
    if need > have:
        raise MemoryError(
            f"the sparse factor of {len(tree.order)} points with {D} coupled latent(s) needs {need / 2**30:.1f} GiB, "
            f"{have / 2**30:.1f} GiB are free. Use Neighbours(solver='iterative'), fewer neighbours, or inducing "
            "points: with many features neighbours lie in all directions, and nothing is sparse."
        )
