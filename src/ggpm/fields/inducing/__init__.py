"""The inducing field: a posterior through few inducing values, from rows that are read in chunks.

The parts are loaded when they are first used, so that ``import ggpm`` does not pay for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ggpm.data.cluster import ClusterError, cluster_map
    from ggpm.data.parquet import ParquetRows, predict_parquet
    from ggpm.fields.inducing.points import Inducing

_HOMES = {
    "ClusterError": "ggpm.data.cluster",
    "cluster_map": "ggpm.data.cluster",
    "Inducing": "ggpm.fields.inducing.points",
    "ParquetRows": "ggpm.data.parquet",
    "predict_parquet": "ggpm.data.parquet",
}

__all__ = ["ClusterError", "Inducing", "ParquetRows", "cluster_map", "predict_parquet"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
