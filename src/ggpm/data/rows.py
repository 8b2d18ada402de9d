"""Sources of rows: one map-reduce interface over chunks, wherever they live, and the arrays in this process.

A task is a function of a chunk and some small arguments that returns a dictionary of arrays; a source of rows
runs it on every chunk and adds the results up. Every sum carries its own rounding error along (`Total`), so
that the order and the size of the chunks do not show in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Statistics = dict[str, Array]
Task = Callable[..., Statistics]

# Doubles in the arrays that one chunk of rows may take while it is worked on: 64 MiB.
CHUNK_DOUBLES = 2**23
# Doubles that one batch of rows may take per array where there are many arrays: half a MiB, so that they stay in the
# processor's cache. Measured: variational evidence of 400 compositions takes 1.5 times as long with 32 MiB.
BATCH_DOUBLES = 2**16


def batches(m: int, per_row: int, limit: int | None = None) -> Iterator[slice]:
    """Slices of rows whose arrays of ``per_row`` doubles stay within the limit, that of batches unless told.

    >>> list(batches(5, BATCH_DOUBLES // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, (BATCH_DOUBLES if limit is None else limit) // max(per_row, 1))
    for start in range(0, m, size):
        yield slice(start, min(start + size, m))


def pick(n: int, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Sorted numbers of a random sample of n rows: the same however the rows are cut into chunks.

    >>> pick(3, 5, np.random.default_rng(0))
    array([0, 1, 2])
    """
    return np.arange(n) if size >= n else np.sort(rng.choice(n, size, replace=False))


def with_weight(y: Array, weight: Array) -> Array:
    """Encoded y with the weights of its rows as the last column; rows are flat then.

    >>> with_weight(np.array([3.0, 0.0]), np.array([2.0, 0.5]))
    array([[3. , 2. ],
           [0. , 0.5]])
    """
    return np.concatenate([y.reshape(len(y), -1), weight[:, None]], axis=1)


@dataclass(frozen=True)
class Chunk:
    """Some consecutive rows as inference sees them."""

    X: Array
    y: Any
    """Encoded by the family once it is known; before that, as the user gave it."""
    offset: Any
    """(c, D), or None before the number of latent dimensions is known."""
    start: int
    """Number of the first row among all rows."""
    weight: Any = None
    """(c,), or None where there are none; once the family is known, weights go with y."""

    def __len__(self) -> int:
        return len(self.X)

    def __sizeof__(self) -> int:
        # Dask asks: it spills by size, and moves to an idle worker what it takes for small
        return object.__sizeof__(self) + sum(map(_bytes, (self.X, self.y, self.offset, self.weight)))

    def at(self, rows: Any, start: int) -> Chunk:
        """Some rows of this chunk, by a slice, mask or numbers, as one that begins with row ``start``."""
        X = self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows]
        offset, weight = (None if part is None else part[rows] for part in (self.offset, self.weight))
        return Chunk(X, self.y[rows], offset, start, weight)

    def pieces(self, rows: int) -> Iterator[Chunk]:
        """This chunk, cut so that no piece has more than ``rows`` rows."""
        for start in range(0, len(self), rows):
            yield self.at(slice(start, min(start + rows, len(self))), self.start + start)


def _bytes(part: Any) -> int:
    """Size of an array or a data frame."""
    return int(part.memory_usage().sum()) if hasattr(part, "memory_usage") else getattr(part, "nbytes", 0)


class Prepare(Protocol):
    """A function that prepares chunks, and the number of rows that are left then."""

    @property
    def n_rows(self) -> int: ...

    def __call__(self, chunk: Chunk) -> Chunk: ...


class Total:
    """A running sum of statistics with the rounding error of every addition carried along (Neumaier).

    >>> total = Total()
    >>> for x in (1.0, 1e100, 1.0, -1e100):
    ...     total.add({"x": np.array(x)})
    >>> float(total.value()["x"])
    2.0
    """

    def __init__(self) -> None:
        self.high: Statistics = {}
        self.low: Statistics = {}

    def add(self, more: Statistics) -> None:
        """Add one chunk's statistics."""
        for name, value in more.items():
            self._add(name, np.asarray(value, dtype=np.float64), None)

    def merge(self, other: Total) -> None:
        """Add what another sum has come to."""
        for name, value in other.high.items():
            self._add(name, value, other.low[name])

    def _add(self, name: str, value: Array, error: Array | None) -> None:
        if name not in self.high:
            self.high[name] = value
            self.low[name] = np.zeros_like(value) if error is None else error
            return
        a, b = self.high[name], value
        with np.errstate(invalid="ignore"):  # an infinite log-likelihood is a value of the objective
            total = a + b
            # two-sum (Knuth): the exact error of a + b, whichever is larger
            part = total - a
            lost = (a - (total - part)) + (b - part)
            self.low[name] = self.low[name] + lost if error is None else self.low[name] + (lost + error)
        self.high[name] = total

    def value(self) -> Statistics:
        """The sums."""
        with np.errstate(invalid="ignore"):
            return {name: np.where(np.isfinite(v), v + self.low[name], v) for name, v in self.high.items()}


def total_of(pieces: Iterable[Chunk], task: Task, arguments: tuple[Any, ...]) -> Total:
    """Run a task on pieces of rows, one after the other."""
    total = Total()
    for piece in pieces:
        total.add(task(piece, *arguments))
    return total


class Rows(Protocol):
    """A source of rows."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def map_reduce(self, task: Task, arguments: tuple[Any, ...], rows: int) -> Statistics:
        """Sum of ``task(piece, *arguments)`` over pieces of at most ``rows`` rows."""
        ...

    def collect(self, task: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> list[Any]:
        """``task(chunk, *arguments)`` for every stored chunk, in the order of the rows."""
        ...

    def prepared(self, prepare: Prepare) -> Rows:
        """The same rows with every chunk prepared (validated and encoded) before tasks see it."""
        ...


class ChunkedRows:
    """Rows that come chunk by chunk, in this process."""

    def chunks(self) -> Iterator[Chunk]:
        """The rows, in order."""
        raise NotImplementedError

    def map_reduce(self, task: Task, arguments: tuple[Any, ...], rows: int) -> Statistics:
        """Sum of a task over all pieces of rows."""
        pieces = (piece for chunk in self.chunks() for piece in chunk.pieces(rows))
        return total_of(pieces, task, arguments).value()

    def collect(self, task: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> list[Any]:
        """Results of a task on every chunk."""
        return [task(chunk, *arguments) for chunk in self.chunks()]


@dataclass(frozen=True)
class ArrayRows(ChunkedRows):
    """Rows of NumPy arrays, memory-mapped ones included: a slice is read when its turn comes."""

    X: Any
    y: Any
    offset: Any = None
    prepare: Prepare | None = None
    chunk_rows: int = 65_536
    """Rows that are read and prepared at a time."""
    weight: Any = None

    @property
    def n_rows(self) -> int:
        return len(self.X) if self.prepare is None else self.prepare.n_rows

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    def chunks(self) -> Iterator[Chunk]:
        """The rows, in order."""
        for start in range(0, len(self.X), self.chunk_rows):
            part = slice(start, min(start + self.chunk_rows, len(self.X)))
            offset, weight = (
                None if whole is None else np.asarray(whole[part]) for whole in (self.offset, self.weight)
            )
            chunk = Chunk(np.asarray(self.X[part]), np.asarray(self.y[part]), offset, start, weight)
            yield chunk if self.prepare is None else self.prepare(chunk)

    def prepared(self, prepare: Prepare) -> ArrayRows:
        return replace(self, prepare=prepare)
