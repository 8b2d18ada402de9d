"""Steps of a search on disk: one that was cut off goes on where it was, by the same way to the same end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

__all__ = ["Journal"]

Array = NDArray[np.float64]
Step = tuple[Any, dict[str, Any]]

FORMAT = 2


class SearchStopped(Exception):  # nothing went wrong
    """Raised inside a search that the user has stopped; it ends with the best that it has found."""


class Journal:
    """What was asked and what was found at every step of a search, in order, a line each.

    A search is deterministic: run again, it asks the same in the same order, and gets what is known without computing
    it. The first question that is not the one that was noted ends the journal, and what follows is computed. Steps are
    evaluations of an objective, asked by theta, and candidates of a contest between kernels, asked by name.

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
    >>> journal.note(np.array([1.0]), value=2.0, gradient=np.array([0.5]))
    >>> journal.close()
    >>> Journal(path, "a").recall(np.array([1.0]))
    {'value': 2.0, 'gradient': [0.5]}
    >>> Journal(path, "b").recall(np.array([1.0])) is None
    True
    """

    def __init__(self, path: str | os.PathLike, key: str) -> None:
        self.path, self.key = Path(path), key
        self.stopped = False
        """Whether the user wants searches to end at the next step."""
        self._known = _read(self.path, key)
        self._next = 0
        self._file: IO[str] | None = None

    @property
    def known(self) -> int:
        """Number of steps that an earlier search left."""
        return len(self._known)

    def recall(self, asked: Array | str) -> dict[str, Any] | None:
        """What was noted for this question, if it is the next one: numbers, texts, and lists for arrays."""
        if self._next < len(self._known) and self._known[self._next][0] == _plain(asked):
            self._next += 1
            return self._known[self._next - 1][1]
        del self._known[self._next :]
        return None

    def note(self, asked: Array | str, **told: Any) -> None:
        """Write a step down, so that it is there when the process is not any more."""
        if self._file is None:
            self._rewrite()
        assert self._file is not None
        self._file.write(_line(asked, told))
        self._file.flush()

    def _rewrite(self) -> None:
        """Start the file anew with what is known."""
        temporary = self.path.with_name(self.path.name + ".new")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps({"format": FORMAT, "key": self.key}) + "\n")
            file.writelines(_line(*step) for step in self._known[: self._next])
        os.replace(temporary, self.path)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115  # closed by `close`

    def close(self, remove: bool = False) -> None:
        """Close the file, and remove it where the search has come to its end."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if remove:
            self.path.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """A value as JSON has it; floats keep all their digits."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _line(asked: Any, told: dict[str, Any]) -> str:
    """A step, after its checksum: what is read is what was written."""
    text = json.dumps([_plain(asked), {name: _plain(value) for name, value in told.items()}])
    return f"{_checksum(text)} {text}\n"


def _checksum(text: str) -> str:
    return f"{crc32(text.encode()):08x}"


def _read(path: Path, key: str) -> list[Step]:
    """Steps in a file of this key, up to the first line that is not whole."""
    out: list[Step] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        if json.loads(lines[0]) != {"format": FORMAT, "key": key}:
            return []
        for line in lines[1:]:
            checksum, text = line.split(" ", 1)
            if checksum != _checksum(text):
                break
            out.append(tuple(json.loads(text)))
    except (OSError, ValueError, LookupError, RecursionError):
        pass  # a line that was being written when the process ended; all before it is good
    return out
