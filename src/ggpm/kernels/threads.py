"""Threads of BLAS: one for small matrices, where more only wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["SMALL", "threads_for"]

# Order of matrices up to which one thread serves: fits of 200 to 600 angles took 0.95 to 1.0 of the time on two idle
# cores, and a thirtieth where other programs kept these busy, because threads of BLAS wait for each other by spinning.
SMALL = 600


@contextmanager
def threads_for(n: int) -> Iterator[None]:
    """Leave BLAS one thread while matrices of order n are worked on, if they are small; else all that it has.

    >>> with threads_for(100):
    ...     pass
    """
    if n > SMALL:
        yield
        return
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """Those of NumPy and SciPy, which are loaded: looking for them takes milliseconds."""
    return ThreadpoolController()
