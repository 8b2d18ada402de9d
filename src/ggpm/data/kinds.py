"""Tests of the kind of collection that X is, without importing Dask."""

from __future__ import annotations

from typing import Any


def is_streamed(X: Any) -> bool:
    """Whether X is a source of chunks: a Dask collection, or an object with the methods of `Rows`."""
    return hasattr(X, "map_reduce") or is_dask(X)


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection; Dask is not imported to find out."""
    return hasattr(X, "__dask_graph__")
