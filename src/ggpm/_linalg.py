"""Dense symmetric linear algebra on LAPACK, lower triangles, Fortran order.

A C-ordered symmetric matrix *is* its own Fortran-ordered transpose, so nothing here copies to change order.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

Array = NDArray[np.float64]

_STRIP = 256  # rows per strip when a triangle is mirrored: stays in cache


class NotPositiveDefinite(np.linalg.LinAlgError):
    """A matrix that had to be positive definite is not."""


def cholesky(A: Array) -> Array:
    """Lower Cholesky factor, overwriting A (symmetric); the upper triangle of the result is zero."""
    L, info = lapack.dpotrf(_fortran(A), lower=1, clean=1, overwrite_a=1)
    if info != 0:
        raise NotPositiveDefinite(f"leading minor {info} of a matrix of order {len(A)} is not positive")
    return L


def cholesky_inverse(L: Array) -> Array:
    """Full symmetric inverse of ``L L^T`` (L is kept)."""
    inverse, info = lapack.dpotri(L, lower=1, overwrite_c=0)
    if info != 0:
        raise NotPositiveDefinite(f"pivot {info} of a triangular factor is zero")
    return mirror(inverse)


def mirror(A: Array) -> Array:
    """Copy the lower triangle of a square Fortran-ordered matrix onto its upper one, in place."""
    n = len(A)
    for start in range(0, n, _STRIP):
        stop = min(start + _STRIP, n)
        A[start:stop, stop:] = A[stop:, start:stop].T
        block = A[start:stop, start:stop]
        block[:] = np.tril(block) + np.tril(block, -1).T
    return A


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


def gram(A: Array) -> Array:
    """``A^T A``, full symmetric."""
    return mirror(blas.dsyrk(1.0, _fortran_any(A), trans=1, lower=1))


def log_det_lower(L: Array) -> float:
    """``log |L L^T|``."""
    return 2.0 * float(np.sum(np.log(np.diag(L))))


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


def _fortran(A: Array) -> Array:
    """A symmetric matrix in Fortran order without a copy where possible."""
    return A if A.flags.f_contiguous else A.T if A.flags.c_contiguous else np.asfortranarray(A)


def _fortran_any(A: Array) -> Array:
    return A if A.flags.f_contiguous else np.asfortranarray(A)
