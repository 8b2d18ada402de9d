"""Past one machine: sparse posteriors over inducing points, from rows that are read in chunks.

The parts are loaded when they are first used, so that ``import ggpm`` does not pay for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ggpm.sparse.cluster import ClusterError, cluster_map
    from ggpm.sparse.inducing import Inducing
    from ggpm.sparse.parquet import ParquetRows, predict_parquet

_HOMES = {
    "ClusterError": "cluster",
    "cluster_map": "cluster",
    "Inducing": "inducing",
    "ParquetRows": "parquet",
    "predict_parquet": "parquet",
}

__all__ = ["ClusterError", "Inducing", "ParquetRows", "cluster_map", "predict_parquet"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"ggpm.sparse.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
