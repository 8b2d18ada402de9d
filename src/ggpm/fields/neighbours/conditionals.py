"""Vecchia's prior of one latent: every point given the earlier points of its clique (Vecchia 1988).

With the covariance of the clique c of point i, ``b_i = K_cc^-1 k_ci`` and ``d_i = k_ii - k_ci^T b_i``, the row ``a_i``
has 1 at the point and -b_i at the others, and the precision of all points is ``Q = sum_i a_i a_i^T / d_i``.

Pullback: an objective with ``G = dL/dQ`` has ``dL/db_i = -2 [G a_i]_c / d_i`` and ``dL/dd_i = -a_i^T G a_i / d_i^2``;
the covariance of the clique then has the cotangent ``dd_i a_i a_i^T + (t a_i^T + a_i t^T)/2``, t = K_cc^-1 db_i.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import splu

from ggpm.data.rows import batches
from ggpm.fields.neighbours.layout import Cliques, Layout
from ggpm.kernels import KernelEvaluation, Pairs
from ggpm.sites.base import InferenceError

Array = NDArray[np.float64]


class Conditionals:
    """Prior of one latent at all points of a layout.

    Parameters
    ----------
    layout : Layout
    kernel : scikit-learn kernel
    nugget : variance that is added to every point, relative to its own
    """

    def __init__(self, layout: Layout, kernel: Any, nugget: float) -> None:
        self.layout, self.kernel, self.nugget = layout, kernel, nugget
        N, k = layout.cliques.members.shape
        self.a, self.d = np.zeros((N, k)), np.empty(N)
        for rows, pairs in layout.cliques.batches():
            L = factor_cliques(layout.cliques, rows, pairs, kernel, nugget)
            self.a[rows], self.d[rows] = conditional(L)

    @cached_property
    def A(self) -> csr_matrix:
        """The rows a_i, lower triangular."""
        return self.layout.matrix(self.a)

    @cached_property
    def entries(self) -> Array:
        """Entries of Q as the tree of the layout sorts them."""
        layout, (a, b) = self.layout, self.layout.cliques.triangle
        count = len(layout.tree.sorted_entries)
        total = np.zeros(count + 1)
        for rows in batches(len(self.d), len(a)):
            values = self.a[rows][:, a] * self.a[rows][:, b] / self.d[rows, None]
            total += np.bincount(layout.slots[rows].ravel(), values.ravel(), minlength=count + 1)
        return total[:count]

    @property
    def log_det(self) -> float:
        """log |Q|."""
        return -float(np.sum(np.log(self.d)))

    def dot(self, f: Array) -> Array:
        """``Q f``."""
        return self.A.T @ (self.A @ f / (self.d if f.ndim == 1 else self.d[:, None]))

    @cached_property
    def _triangular(self) -> Any:
        return sparse_triangle(self.A)

    @cached_property
    def Q(self) -> csr_matrix:
        """The precision."""
        return (self.A.T @ self.A.multiply(1.0 / self.d[:, None])).tocsr()

    def covariance_dot(self, z: Array) -> Array:
        """``Q^-1 z``."""
        return self.root_dot(np.sqrt(self.d) * self._triangular.solve(z, trans="T"))

    def root_dot(self, e: Array) -> Array:
        """``A^-1 D^(1/2) e``, a draw of the prior for white e, (N,) or (N, r)."""
        scale = np.sqrt(self.d)
        return self._triangular.solve((scale if e.ndim == 1 else scale[:, None]) * e)

    def pullback(self, left: Array, right: Array, V: Array | None, D: int) -> Array:
        """Gradient of ``tr(G Q) + D/2 log|Q|``, ``G = -(sum_r (x_r y_r^T + y_r x_r^T)/2 + V)/2``, (p,).

        x_r and y_r are columns of left and right, (N, r); V are entries of a matrix, as the tree of the layout sorts
        them, or None for zero.
        """
        layout = self.layout
        cliques, k = layout.cliques, layout.cliques.members.shape[1]
        (ta, tb), grad = cliques.triangle, None
        ax, ay = self.A @ left, self.A @ right
        V = None if V is None else np.append(V, 0.0)
        off = np.where(ta == tb, 1.0 + self.nugget, 2.0)
        for rows, pairs in cliques.batches():
            a, d, members = self.a[rows], self.d[rows], np.maximum(cliques.members[rows], 0)
            # gathered two columns at a time: all of them together would be larger than everything else
            Ga = np.zeros_like(a)
            for r in range(left.shape[1]):
                Ga -= 0.25 * (left[members, r] * ay[rows, r, None] + right[members, r] * ax[rows, r, None])
            if V is not None:
                block = np.empty((len(d), k, k))
                block[:, ta, tb] = block[:, tb, ta] = V[layout.slots[rows]]
                Ga -= 0.5 * np.matmul(block, a[:, :, None])[:, :, 0]
            Ga[cliques.members[rows] < 0] = 0.0
            d_bar = -np.sum(a * Ga, axis=1) / d**2 - 0.5 * D / d
            L = factor_cliques(cliques, rows, pairs, self.kernel, self.nugget)
            t = np.zeros_like(a)
            half = forward_substitute(L[:, :-1, :-1], -2.0 * Ga[:, :-1] / d[:, None])
            t[:, :-1] = back_substitute(L[:, :-1, :-1], half)
            G = d_bar[:, None] * a[:, ta] * a[:, tb] + 0.5 * (t[:, ta] * a[:, tb] + a[:, ta] * t[:, tb])
            pulled = KernelEvaluation(self.kernel, pairs).pullback(G * off)
            grad = pulled if grad is None else grad + pulled
        assert grad is not None
        return grad


def sparse_triangle(L: csr_matrix) -> Any:
    """Solver of a triangular matrix with ones on its diagonal."""
    # in its own order the factor is the matrix itself
    options = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    return splu(L.tocsc(), **options)


def factor_cliques(cliques: Cliques, rows: slice, pairs: Pairs, kernel: Any, nugget: float) -> Array:
    """Cholesky factors of the covariances of some cliques, (rows, k, k); what is missing is independent."""
    a, b = cliques.triangle
    members = cliques.members[rows]
    k = members.shape[1]
    K = np.zeros((len(members), k, k))
    K[:, a, b] = KernelEvaluation(kernel, pairs).K
    K[:, range(k), range(k)] *= 1.0 + nugget
    absent = members < 0
    if absent.any():
        K[absent[:, :, None] | absent[:, None, :]] = 0.0
        r, c = np.nonzero(absent)
        K[r, c, c] = 1.0
    try:
        return np.asarray(np.linalg.cholesky(K), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise InferenceError(
            "the kernel matrix of a row and its neighbours is not positive definite: rows lie too close for so smooth "
            f"a kernel. Use Neighbours(nugget=...) above {nugget:g}, fewer neighbours, or a rougher kernel such as "
            "Matern(nu=1.5)."
        ) from None


def conditional(L: Array) -> tuple[Array, Array]:
    """The rows a_i and variances d_i from the factors of cliques."""
    a = np.empty(L.shape[:2])
    a[:, -1] = 1.0
    a[:, :-1] = -back_substitute(L[:, :-1, :-1], L[:, -1, :-1])
    return a, L[:, -1, -1] ** 2


def back_substitute(L: Array, y: Array) -> Array:
    """``L^-T y`` for many small factors at once."""
    x = y.copy()
    for i in range(y.shape[1] - 1, -1, -1):
        x[:, i] = (x[:, i] - np.einsum("nj,nj->n", L[:, i + 1 :, i], x[:, i + 1 :])) / L[:, i, i]
    return x


def forward_substitute(L: Array, r: Array) -> Array:
    """``L^-1 r`` for many small factors at once."""
    y = r.copy()
    for i in range(r.shape[1]):
        y[:, i] = (y[:, i] - np.einsum("nj,nj->n", L[:, i, :i], y[:, :i])) / L[:, i, i]
    return y
