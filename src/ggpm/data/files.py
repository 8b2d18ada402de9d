"""Files that are either complete or not there, and the error of those that cannot be used."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path


class TableError(ValueError):
    """A table that cannot be used; the message names the file and the column."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place at the end, on the disk, and disappears after an error.

    Permissions stay those of a file that is there; devices, pipes and folders are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(f"{folder}/a.txt") as temporary:
    ...         _ = temporary.write_text("whole")
    ...     Path(folder, "a.txt").read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    given, path = path, Path(os.path.realpath(path))  # a link stays one, and what it names is replaced
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(f"{path} is there and is not a regular file: it would not be replaced but destroyed.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    if not path.parent.is_dir():  # not found would be the temporary file
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(given))
    # a new file gets the permissions that the system gives to new files
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode & 0o777)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where the system lets a folder be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
