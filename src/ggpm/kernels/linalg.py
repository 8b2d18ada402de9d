"""Dense symmetric linear algebra on LAPACK, lower triangles, Fortran order.

A C-ordered symmetric matrix *is* its own Fortran-ordered transpose, so nothing here copies to change order.

Large products belong here, not into ``@``: NumPy's wheels bring a second BLAS whose threads wait busily for more work
and take the cores from SciPy's, so that alternating between the two makes a factorisation two to three times slower.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack, lstsq

Array = NDArray[np.float64]

# Up to so many columns, products of a symmetric matrix with one at a time are faster than with all at once: with four
# they take 0.5 to 0.8 of the time for n = 300 to 2000, and as long with about ten (one thread).
_FEW_COLUMNS = 4
_STRIP = 128  # rows or columns that are worked on at a time in elementwise steps: 1 MB of a matrix of order 1000
_UPPER = np.triu(np.ones((_STRIP, _STRIP), dtype=bool), 1)
_LEAF = 80  # order below which a triangular inverse is left to LAPACK; 20 to 160 are within a sixth of it (n = 300)


class NotPositiveDefinite(np.linalg.LinAlgError):
    """A matrix that had to be positive definite is not."""


def cholesky(A: Array, clean: bool = True) -> Array:
    """Lower Cholesky factor, overwriting A (symmetric); the upper triangle is set to zero, or left as it is."""
    L, info = lapack.dpotrf(symmetric_fortran(A), lower=1, clean=int(clean), overwrite_a=1)
    if info != 0:
        raise NotPositiveDefinite(f"leading minor {info} of a matrix of order {len(A)} is not positive")
    return L


def cholesky_inverse(L: Array) -> Array:
    """Lower triangle of ``(L L^T)^-1``, overwriting L; the upper triangle is not set."""
    out, info = lapack.dlauum(triangular_inverse(L), lower=1, overwrite_c=1)
    assert info == 0
    return out


def triangular_inverse(L: Array) -> Array:
    """Inverse of a lower triangular, Fortran-ordered matrix, in place (its upper triangle is not touched).

    By halves, [[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]: products of triangles run several times
    faster than LAPACK's own unblocked recursion at the sizes that matter here.
    """
    n = len(L)
    if n <= _LEAF:
        inverse, info = lapack.dtrtri(L, lower=1)
        if info != 0:
            raise NotPositiveDefinite(f"pivot {info} of a triangular factor is zero")
        L[:] = inverse
        return L
    h = n // 2
    triangular_inverse(L[:h, :h])
    triangular_inverse(L[h:, h:])
    corner = blas.dtrmm(-1.0, L[:h, :h], L[h:, :h], side=1, lower=1)
    L[h:, :h] = blas.dtrmm(1.0, L[h:, h:], corner, lower=1, overwrite_b=1)
    return L


def mirror(A: Array) -> Array:
    """Copy the lower triangle of a square matrix onto its upper one, in place."""
    for here in strips(len(A)):
        A[here, here.stop :] = A[here.stop :, here].T
        block = A[here, here]
        np.copyto(block, block.T.copy(), where=_UPPER[: len(block), : len(block)])
    return A


def strips(n: int) -> Iterator[slice]:
    """Consecutive slices of 0 .. n-1 that keep an n-row strip in cache."""
    for start in range(0, n, _STRIP):
        yield slice(start, min(start + _STRIP, n))


def solve_lower(L: Array, B: Array, transposed: bool = False, overwrite: bool = False) -> Array:
    """``L^-1 B`` or ``L^-T B``; B is (n,) or (n, m)."""
    rhs = B[:, None] if B.ndim == 1 else B
    if rhs.shape[1] == 1 or len(L) == 0:
        out = lapack.dtrtrs(L, rhs, lower=1, trans=int(transposed))[0] if len(L) else rhs
    else:
        out = blas.dtrsm(1.0, L, rhs, lower=1, trans_a=int(transposed), overwrite_b=int(overwrite))
    return out[:, 0] if B.ndim == 1 else out


def cholesky_solve(L: Array, B: Array) -> Array:
    """``(L L^T)^-1 B``."""
    return solve_lower(L, solve_lower(L, B), transposed=True)


class LU:
    """A square matrix, factorised with pivoting; `numpy.linalg.LinAlgError` where it is singular.

    >>> LU(np.array([[0.0, 2.0], [1.0, 0.0]])).solve(np.array([4.0, 3.0]))
    array([3., 2.])
    """

    def __init__(self, A: Array):
        # LAPACK reads the rows of A as columns: what is factorised is the transpose
        self._lu, self._pivots, info = lapack.dgetrf(A.T)
        if info > 0:
            raise np.linalg.LinAlgError("the matrix is singular")

    def solve(self, r: Array) -> Array:
        """``A^-1 r``, of the shape of r."""
        return lapack.dgetrs(self._lu, self._pivots, r.ravel(), trans=1)[0].reshape(r.shape)


def gram(A: Array) -> Array:
    """``A^T A``, full symmetric."""
    return mirror(blas.dsyrk(1.0, fortran(A), trans=1, lower=1))


def symmetric_solve(inverse: Array, b: Array) -> Array:
    """``inverse @ b`` where only the lower triangle of the inverse is set; b is (n,) or (n, m)."""
    if b.ndim == 1:
        return blas.dsymv(1.0, inverse, b, lower=1)
    return blas.dsymm(1.0, inverse, fortran(b), lower=1)


def symmetric_dot(A: Array, b: Array) -> Array:
    """``A @ b`` for a full symmetric A; few columns one by one, which reads only half of A from memory."""
    A = symmetric_fortran(A)
    if b.ndim == 1:
        return blas.dsymv(1.0, A, b, lower=1)
    if b.shape[1] > _FEW_COLUMNS:
        return blas.dgemm(1.0, A, fortran(b))
    out = np.empty(b.shape, order="F")
    for j in range(b.shape[1]):
        out[:, j] = blas.dsymv(1.0, A, b[:, j], lower=1)
    return out


def product(A: Array, B: Array) -> Array:
    """``A @ B`` for matrices in either order; the result is in that of A."""
    by_rows = not A.flags.f_contiguous
    factors = (B.T, A.T) if by_rows else (A, B)
    (a, trans_a), (b, trans_b) = ((M, 0) if M.flags.f_contiguous else (fortran(M.T), 1) for M in factors)
    out = blas.dgemm(1.0, a, b, trans_a=trans_a, trans_b=trans_b)
    return out.T if by_rows else out


def sum_of_products(A: Array, B: Array) -> float:
    """``sum_ij A_ij B_ij``."""
    return blas.ddot(A.ravel(), B.ravel()) if A.size else 0.0


def log_det_lower(L: Array) -> float:
    """``log |L L^T|``."""
    return 2.0 * float(np.sum(np.log(np.diag(L))))


def cholesky_pullback(R: Array, R_bar: Array) -> Array:
    """Symmetric derivative in V from the derivative in its lower Cholesky factor R, (n, D, D) (Murray 2016)."""
    C = np.linalg.inv(R)
    P = symmetric_of_lower(R.swapaxes(-1, -2) @ np.tril(R_bar))
    return 0.5 * C.swapaxes(-1, -2) @ P @ C


def symmetric_of_lower(Q: Array) -> Array:
    """The symmetric matrices with the lower triangles of Q, (..., D, D)."""
    lower = np.tril(Q, -1)
    return lower + lower.swapaxes(-1, -2) + Q * np.eye(Q.shape[-1])


def anderson(history: list[tuple[Array, Array]]) -> Array:
    """Anderson's extrapolation of a fixed-point iteration x -> g(x) from pairs (x, g(x)) (Walker and Ni 2011).

    >>> anderson([(np.array([0.0]), np.array([1.0])), (np.array([1.0]), np.array([1.5]))])  # g(x) = 1 + x/2
    array([2.])
    """
    residuals = np.stack([g - x for x, g in history], axis=1)
    images = np.stack([g for _, g in history], axis=1)
    last = residuals[:, -1]
    scale = np.abs(last).max() or 1.0
    # steps whose residuals point the same way say nothing new: below cond they are left out
    gamma = lstsq((residuals[:, :-1] - last[:, None]) / scale, -last / scale, cond=1e-10, check_finite=False)[0]
    return images[:, -1] + (images[:, :-1] - images[:, -1:]) @ gamma


def available_memory() -> int:
    """Bytes that can still be allocated without swapping, as far as the system tells."""
    try:
        with open("/proc/meminfo") as info:
            for line in info:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 2**63


def symmetric_fortran(A: Array) -> Array:
    """A symmetric matrix in Fortran order, without a copy where possible."""
    return A if A.flags.f_contiguous else A.T if A.flags.c_contiguous else np.asfortranarray(A)


def fortran(A: Array) -> Array:
    """Any matrix in Fortran order."""
    return A if A.flags.f_contiguous else np.asfortranarray(A)
