"""Rows on Dask workers: chunks stay where they are, statistics of the size of M² travel, sums are trees.

Needs dask and distributed (``pip install ggpm[dask]``). Everything that a worker holds is the result of a task
that the scheduler can run again, so that a lost worker costs time and not the result.
"""

from __future__ import annotations

import atexit
import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ggpm.data.columns import is_table
from ggpm.data.rows import Chunk, Prepare, Statistics, Task, Total, total_of

FAN_IN = 8  # partial sums that one task of the tree adds up


class ClusterError(RuntimeError):
    """The cluster could not finish a computation; the model is as it was before."""


def current_client() -> Any:
    """The client that this process already has, or one of a `LocalCluster` that lives as long as the process.

    A client that the user closed is as good as none. One that lost its scheduler is an error: whoever meant to work
    on a cluster does not expect the work on this machine.
    """
    try:
        import distributed
    except ImportError as err:
        raise ImportError("Dask collections need distributed: pip install 'ggpm[dask]'.") from err
    with contextlib.suppress(ValueError):
        return distributed.get_client()
    if _OWN and _OWN[0].status == "running":
        return _OWN[0]
    lost = [c for c in distributed.Client._instances if _lost(c)]
    if lost:
        raise ClusterError(
            f"the Dask client has lost its scheduler ({lost[0]!r}): start a cluster, connect a new Client and fit "
            "again. Client() without arguments works on processes of this machine."
        )
    cluster = distributed.LocalCluster(threads_per_worker=1, dashboard_address=None)
    client = distributed.Client(cluster, set_as_default=False)
    _OWN[:] = [client]
    atexit.register(_close, client, cluster)
    return client


_OWN: list[Any] = []


def _lost(client: Any) -> bool:
    """Whether a client waits for its scheduler, or gave up waiting: then its loop runs on, as nobody closed it."""
    if client.status == "connecting":
        return True
    return client.status in ("closing", "closed") and client._loop_runner.is_started()


def _close(client: Any, cluster: Any) -> None:
    with contextlib.suppress(Exception):
        client.close()
        cluster.close()


def cluster_map(function: Callable[..., Any], *items: Iterable[Any]) -> list[Any]:
    """``list(map(function, *items))`` on the current cluster: restarts, folds or trials side by side.

    Without a client in this process it is the built-in map.

    >>> cluster_map(abs, [-1, 2])
    [1, 2]
    """
    try:
        import distributed

        client = distributed.get_client()
    except (ImportError, ValueError):
        return list(map(function, *items))
    with cluster_errors():
        return client.gather(client.map(function, *map(list, items), pure=False))


@contextlib.contextmanager
def cluster_errors() -> Iterator[None]:
    """Name what happened to the cluster, and what to try."""
    import distributed
    from distributed.comm import CommClosedError

    try:
        yield
    except distributed.KilledWorker as err:
        raise ClusterError(
            f"workers died again and again in the same step ({err}). They may be out of memory or disk: use smaller "
            "partitions, fewer inducing points, or more workers."
        ) from err
    except (CommClosedError, TimeoutError, ConnectionError, distributed.client.CancelledError) as err:
        raise ClusterError(
            f"the connection to the Dask scheduler was lost ({type(err).__name__}: {err}). Start a cluster, connect a "
            "new Client and fit again; the model is as it was before."
        ) from err


class DaskRows:
    """Rows in chunks that live on the workers of a Dask cluster."""

    def __init__(self, client: Any, chunks: Sequence[Any], n_rows: int, n_features: int):
        self.client, self.futures = client, list(chunks)
        self.n_rows, self.n_features = n_rows, n_features

    def __repr__(self) -> str:
        return f"DaskRows({len(self.futures)} chunks, {self.n_rows} rows)"

    def __getstate__(self) -> dict[str, Any]:
        # futures belong to this process and its cluster: a stored model keeps the facts only
        return {**self.__dict__, "client": None, "futures": []}

    def map_reduce(self, task: Task, arguments: tuple[Any, ...], rows: int) -> Statistics:
        """Sum of a task over all pieces of rows: on the workers, then up a tree."""
        client = self._client()
        with cluster_errors(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            # the result of a task, not scattered data: it can be had again when the worker that holds it is lost
            shared = client.submit(_Shared, arguments, pure=False)
            sums = [client.submit(_chunk_total, c, task, shared, rows, pure=False) for c in self.futures]
            while len(sums) > 1:
                groups = [sums[i : i + FAN_IN] for i in range(0, len(sums), FAN_IN)]
                sums = [g[0] if len(g) == 1 else client.submit(_merged, g, pure=False) for g in groups]
            return sums[0].result().value()

    def collect(self, task: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> list[Any]:
        """Results of a task on every chunk, in the order of the rows."""
        client = self._client()
        with cluster_errors():
            return client.gather([client.submit(task, c, *arguments, pure=False) for c in self.futures])

    def prepared(self, prepare: Prepare) -> DaskRows:
        """The same rows, every chunk prepared once and kept."""
        client = self._client()
        with cluster_errors():
            chunks = [client.submit(prepare, c, pure=False) for c in self.futures]
        return DaskRows(client, chunks, prepare.n_rows, self.n_features)

    def _client(self) -> Any:
        if self.client is None:
            raise ClusterError(
                "the rows of this model were on a Dask cluster that it no longer knows: fit again to evaluate the "
                "objective. Predictions need no cluster."
            )
        if self.client.status not in ("running", "connecting"):
            raise ClusterError(
                f"the Dask client is {self.client.status}: connect a new Client and fit again; the model is as it was "
                "before."
            )
        return self.client


class _Shared(tuple):
    """Arguments that all chunks of one pass share."""


def _chunk_total(chunk: Chunk, task: Task, shared: tuple[Any, ...], rows: int) -> Total:
    return total_of(chunk.pieces(rows), task, tuple(shared))


def _merged(totals: Sequence[Total]) -> Total:
    out = Total()
    for total in totals:
        out.merge(total)
    return out


# ---- from collections to chunks -----------------------------------------------------------------------------------


def dask_rows(X: Any, y: Any, offset: Any = None, weight: Any = None) -> tuple[DaskRows, list[str] | None]:
    """Rows from Dask collections with the same partitions, and the column names if there are any."""
    if y is None:
        raise ValueError("y must be passed: a Dask collection with the same partitions as X.")
    names = [str(c) for c in X.columns] if hasattr(X, "columns") else None
    parts = {"X": partitions(X, "X"), "y": partitions(y, "y", X)}
    for name, collection in (("offset", offset), ("sample_weight", weight)):
        if collection is not None:
            parts[name] = partitions(collection, name, X)
    for name, blocks in parts.items():
        if len(blocks) != len(parts["X"]):
            raise ValueError(
                f"X has {len(parts['X'])} partition(s) and {name} {len(blocks)}: they must be cut at the same rows. "
                f"Try {name}.rechunk(...) for arrays, or {name}.repartition(divisions=X.divisions) for data frames."
            )
    _check_known_lengths(X, y)
    client = current_client()
    import dask

    make = dask.delayed(_chunk)
    none = [None] * len(parts["X"])
    rows = zip(parts["X"], parts["y"], parts.get("offset", none), parts.get("sample_weight", none))
    with cluster_errors():
        raw = client.compute([make(number, *row) for number, row in enumerate(rows)])
        shapes = client.gather([client.submit(_shape, c, pure=False) for c in raw])
        starts = np.concatenate([[0], np.cumsum([n for n, _ in shapes])]).astype(int)
        widths = {f for n, f in shapes if n}
        if not widths:
            raise ValueError("X has no rows.")
        if len(widths) > 1:
            raise ValueError(f"the partitions of X have different numbers of columns: {sorted(widths)}.")
        placed = [
            client.submit(_placed, c, int(s), pure=False) for c, s, (n, _) in zip(raw, starts, shapes) if n
        ]  # fmt: skip
    return DaskRows(client, placed, int(starts[-1]), widths.pop()), names


def partitions(collection: Any, name: str, like: Any = None) -> list[Any]:
    """The partitions of a collection along its rows, as delayed objects."""
    if hasattr(collection, "rechunk"):  # a Dask array
        if collection.ndim > 1:
            collection = collection.rechunk(dict.fromkeys(range(1, collection.ndim), -1))
        return list(np.ravel(collection.to_delayed()))
    if hasattr(collection, "to_delayed"):
        return list(collection.to_delayed())
    if like is not None and hasattr(like, "chunks") and not np.isnan(sum(like.chunks[0])):
        import dask.array as da

        values = np.asarray(collection)
        if len(values) != like.shape[0]:
            raise ValueError(f"X has {like.shape[0]} rows and {name} {len(values)}.")
        return partitions(da.from_array(values, chunks=(like.chunks[0], *values.shape[1:])), name)
    raise ValueError(
        f"{name} must be a Dask collection with the same partitions as X; got {type(collection).__name__}."
    )


def _check_known_lengths(X: Any, y: Any) -> None:
    """Mismatched chunks are named before anything is computed, where both lengths are known."""
    a, b = getattr(X, "chunks", None), getattr(y, "chunks", None)
    if a and b and a[0] != b[0] and not np.isnan(sum(a[0]) + sum(b[0])):
        raise ValueError(
            f"X and y must be cut at the same rows; X has chunks {_short(a[0])}, y {_short(b[0])}. "
            "Try y.rechunk((X.chunks[0], ...))."
        )


def _short(chunks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, chunks[:4]))
    return f"({shown}, ...)" if len(chunks) > 4 else f"({shown})"


def _chunk(number: int, X: Any, y: Any, offset: Any, weight: Any) -> Chunk:
    """One partition; what it holds is checked when the number of its first row is known."""
    if not is_table(X) or all(getattr(dtype, "kind", "O") in "iuf" for dtype in getattr(X, "dtypes", ["O"])):
        X = np.asarray(X)  # frames keep labels and times
    given = {"y": np.asarray(y), "offset": offset, "sample_weight": weight}
    lengths = {name: len(part) for name, part in given.items() if part is not None}
    if any(length != len(X) for length in lengths.values()):
        told = " and ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"partition {number}: X has {len(X)} rows and {told}. X and y must be cut at the same rows.")
    offset, weight = (None if part is None else np.asarray(part) for part in (offset, weight))
    return Chunk(X, given["y"], offset, 0, weight)


def _shape(chunk: Chunk) -> tuple[int, int]:
    return len(chunk), int(np.shape(chunk.X)[1]) if np.ndim(chunk.X) == 2 else 0


def _placed(chunk: Chunk, start: int) -> Chunk:
    return replace(chunk, start=start)
