"""Tables as text: which sign separates their columns, which one marks decimals, and what each column holds."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggpm.data.files import TableError

__all__ = ["MAX_COLUMNS", "PADDED", "WILD", "Dialect", "read_csv"]

MAX_COLUMNS = 10_000
"""More columns than this are taken for a file that is no table."""
SEPARATORS = ",;\t|"
LOOKED_AT = 1000  # rows in which numbers show what marks their decimals
PADDED = r"\s*[+-]?0\d"
"""Numbers with leading zeros, whose text says more than the number."""
WILD = r"[eE][+-]?\d{5}"
"""What may be an exponent that no float has."""


@dataclass(frozen=True)
class Dialect:
    """How a table is written: the separator of its columns, the mark of decimals, and lines before the header.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("hour;wind\\n1;3,5\\n2;10\\n")
    ...     Dialect.of(Path(folder, "t.csv"))
    Dialect(separator=';', decimal=',', skipped=0)
    """

    separator: str = ","
    decimal: str = "."
    skipped: int = 0

    @classmethod
    def of(cls, path: Path) -> Dialect:
        """The dialect of a file: commas, unless its header and first row are of another form.

        A decimal comma needs another separator, and a number whose comma cannot be one of thousands.
        """
        with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
            lines = [line for line in itertools.islice(file, LOOKED_AT) if line.strip()]
        said = re.fullmatch(r'"?sep=(.)"?\s*', lines[0]) if lines else None  # Excel's first line, if asked for it
        lines = lines[1:] if said else lines
        separator = said[1] if said else _separator(lines)
        fields = [field.strip() for row in csv.reader(lines[1:], delimiter=separator) for field in row]
        commas = [field for field in fields if re.fullmatch(r"[+-]?\d+,\d+", field)]
        plain = any(re.fullmatch(r"[+-]?\d*\.\d+", field) for field in fields)
        thousands = all(re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", field) for field in commas)
        decimal = "," if separator != "," and commas and not plain and not thousands else "."
        return cls(separator, decimal, 1 if said else 0)


def _separator(lines: Sequence[str]) -> str:
    """The sign that divides header and first row into the same number of columns, two or more; a comma in doubt."""
    widths = {}
    for sign in SEPARATORS:
        header, first = [*itertools.islice(csv.reader(lines, delimiter=sign), 2), [], []][:2]
        if len(header) > 1 and len(first) in (len(header), 0):
            widths[sign] = len(header)
    return "," if "," in widths else max(widths, key=widths.__getitem__, default=",")


def read_csv(path: Path, text: Sequence[str] = ()) -> Any:
    """A file of separated values as a pandas data frame; columns in ``text`` stay as they are written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("hour;wind\\n1;3,5\\n2;10\\n")
    ...     read_csv(Path(folder, "t.csv"))["wind"].tolist()
    [3.5, 10.0]
    """
    import pandas as pd

    with open(path, "rb") as file:
        start = file.readline(16 * MAX_COLUMNS)
    if max(start.count(sign.encode()) for sign in SEPARATORS) >= MAX_COLUMNS:
        raise TableError(f"{path}: more than {MAX_COLUMNS} columns; is this a table?")
    padded, wild = _looked_through(path)
    dialect = Dialect.of(path)
    names = _header(path, dialect)
    how: dict[str, Any] = {
        "encoding": "utf-8", "sep": dialect.separator, "decimal": dialect.decimal, "skiprows": dialect.skipped,
    }  # fmt: skip
    if wild:  # Python's own reader of numbers, which is slower
        how["float_precision"] = "round_trip"
    table = pd.read_csv(path, low_memory=False, dtype={name: str for name in text if name in names}, **how)
    whole = [name for name in table.columns if table[name].dtype.kind in "iu"]
    if whole and padded:
        written = pd.read_csv(path, usecols=whole, dtype=str, **how)
        for name in whole:
            if written[name].str.match(PADDED).any():
                table[name] = written[name]
    return table


def _looked_through(path: Path) -> tuple[bool, bool]:
    """Whether some field may be a number with leading zeros, and one with an exponent of five digits or more.

    The latter crash pandas (2.3) where they do not fit into an integer. Bytes that are no UTF-8 text are told by their
    line.
    """
    field = re.compile(rb'(?:^|[,;\t|"])' + PADDED.encode(), re.MULTILINE)
    exponent = re.compile(WILD.encode())
    advice = "Save the table as CSV in UTF-8."
    padded = wild = False
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if b"\0" in line:
                raise TableError(f"{path}, line {number}: there are zero bytes, as in UTF-16. {advice}")
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise TableError(f"{path}, line {number}: byte 0x{byte:02x} is not UTF-8. {advice}") from None
            padded = padded or field.search(line) is not None
            wild = wild or exponent.search(line) is not None
    return padded, wild


def _header(path: Path, dialect: Dialect) -> list[str]:
    """Names of the columns, each of them once, and as many as there are values in the first row."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = filter(None, csv.reader(file, delimiter=dialect.separator))
        names, first = [*itertools.islice(rows, dialect.skipped, dialect.skipped + 2), [], []][:2]
    # pandas would take the first field for a label of the row; longer rows further down it refuses by itself
    if len(first) > len(names):
        raise TableError(
            f"{path}: row 1 has {len(first)} fields, the header {len(names)}: values would stand under the wrong names."
        )
    # pandas would call the second one x.1; columns without a name are told apart by their places
    repeated = [name for j, name in enumerate(names) if name and name in names[:j]]
    if repeated:
        raise TableError(f"{path}: column {repeated[0]!r} occurs more than once.")
    return names
