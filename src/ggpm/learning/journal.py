"""Evaluations of a search on disk: one that was cut off goes on where it was, by the same way to the same end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Journal"]

Array = NDArray[np.float64]
Evaluation = tuple[float, Array]

FORMAT = 1


class SearchStopped(Exception):  # nothing went wrong
    """Raised inside a search that the user has stopped; it ends with the best that it has found."""


class Journal:
    """Objective and gradient at every theta that a search has looked at, in order, a line each.

    A search is deterministic: run again, it asks for the same thetas in the same order, and gets what is known without
    computing it. The first theta that is not the one that was noted ends the journal, and what follows is computed.

    Parameters
    ----------
    path : path
        The file; what is there is read if it was written for the same ``key``.
    key : str
        Says what is searched: data, settings and versions.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "m.part")
    >>> journal = Journal(path, "a")
    >>> journal.note(np.array([1.0]), 2.0, np.array([0.5]))
    >>> journal.close()
    >>> Journal(path, "a").recall(np.array([1.0]))
    (2.0, array([0.5]))
    >>> Journal(path, "b").recall(np.array([1.0])) is None
    True
    """

    def __init__(self, path: str | os.PathLike, key: str) -> None:
        self.path, self.key = Path(path), key
        self.stopped = False
        """Whether the user wants searches to end at the next evaluation."""
        self._known = _read(self.path, key)
        self._next = 0
        self._file: IO[str] | None = None

    @property
    def known(self) -> int:
        """Number of evaluations that an earlier search left."""
        return len(self._known)

    def recall(self, theta: Array) -> Evaluation | None:
        """What was noted for this theta, if it is the next one; a value that is not finite stands for a failure."""
        if self._next < len(self._known) and np.array_equal(self._known[self._next][0], theta):
            _, value, gradient = self._known[self._next]
            self._next += 1
            return value, gradient
        del self._known[self._next :]
        return None

    def note(self, theta: Array, value: float, gradient: Array) -> None:
        """Write an evaluation down, so that it is there when the process is not any more."""
        if self._file is None:
            self._rewrite()
        assert self._file is not None
        self._file.write(_line(theta, value, gradient))
        self._file.flush()

    def _rewrite(self) -> None:
        """Start the file anew with what is known."""
        temporary = self.path.with_name(self.path.name + ".new")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps({"format": FORMAT, "key": self.key}) + "\n")
            file.writelines(_line(*evaluation) for evaluation in self._known[: self._next])
        os.replace(temporary, self.path)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115  # closed by `close`

    def close(self, remove: bool = False) -> None:
        """Close the file, and remove it where the search has come to its end."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if remove:
            self.path.unlink(missing_ok=True)


def _line(theta: Array, value: float, gradient: Array) -> str:
    finite = bool(np.isfinite(value))
    told = {"theta": theta.tolist(), "value": float(value) if finite else None}
    return json.dumps(told | ({"gradient": gradient.tolist()} if finite else {})) + "\n"


def _read(path: Path, key: str) -> list[tuple[Array, float, Array]]:
    """Evaluations in a file of this key, up to the first line that is not whole."""
    out: list[tuple[Array, float, Array]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        head: Any = json.loads(lines[0])
        if head != {"format": FORMAT, "key": key}:
            return []
        for line in lines[1:]:
            told = json.loads(line)
            theta = np.array(told["theta"], dtype=np.float64)
            if told["value"] is None:
                out.append((theta, np.nan, np.zeros_like(theta)))
                continue
            gradient = np.array(told["gradient"], dtype=np.float64)
            if theta.ndim != 1 or gradient.shape != theta.shape:
                break
            out.append((theta, float(told["value"]), gradient))
    except (OSError, ValueError, LookupError, TypeError):
        pass  # a line that was being written when the process ended; all before it is good
    return out
