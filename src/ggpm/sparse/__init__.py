"""Past one machine: sparse posteriors over inducing points, from rows that are read in chunks."""

from ggpm.sparse.cluster import ClusterError, cluster_map
from ggpm.sparse.inducing import Inducing
from ggpm.sparse.parquet import ParquetRows, predict_parquet

__all__ = ["ClusterError", "Inducing", "ParquetRows", "cluster_map", "predict_parquet"]
