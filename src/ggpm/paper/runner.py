"""Tools that the experiments share: running tasks in processes, tables on the screen, results on disk."""

from __future__ import annotations

import csv
import importlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, cpu_count, delayed
from joblib import hash as joblib_hash
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from ggpm import __version__
from ggpm.data.files import replacing

Row = dict[str, Any]


class MissingExtra(ImportError):
    """An optional package is not installed."""


def require(module: str) -> Any:
    """Import an optional module, or say how to get it.

    >>> require("math").floor(1.5)
    1
    """
    try:
        return importlib.import_module(module)
    except ImportError as err:
        raise MissingExtra(
            f'the experiments need {module.split(".")[0]}, which is not installed: pip install "ggpm[experiments]"'
        ) from err


@dataclass(frozen=True)
class Report:
    """Results of an experiment: its rows, the tables that are shown, and a figure to draw."""

    name: str
    rows: list[Row]
    tables: list[Table]
    draw: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Table:
    """A titled table; numbers are shown with ``digits`` decimals."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    digits: int = 4

    def cells(self) -> list[list[str]]:
        """All entries as text.

        >>> Table("t", ["a", "b"], [["x", 0.123456]]).cells()
        [['x', '0.1235']]
        """
        return [[self._text(value) for value in row] for row in self.rows]

    def _text(self, value: Any) -> str:
        if value is None:
            return ""
        return f"{value:.{self.digits}f}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Runner:
    """Runs a function over tasks, in one process or several, with one BLAS thread each.

    Parameters
    ----------
    jobs : int or None
        Processes; None means one per core.
    progress : bool
        Show a progress bar (on the standard error stream, so that tables can be piped).
    store : Path or None
        File that keeps the rows of finished tasks: run again after it was cut off, the same tasks are not repeated.

    Examples
    --------
    >>> Runner(jobs=1, progress=False).run("squares", _square_row, [1, 2, 3])
    [{'square': 1}, {'square': 4}, {'square': 9}]
    """

    jobs: int | None = None
    progress: bool = True
    store: Path | None = None

    def run(self, title: str, function: Callable[[Any], list[Row]], tasks: Sequence[Any]) -> list[Row]:
        """Rows of all tasks, in the order of the tasks."""
        parts: list[list[Row]] = [[] for _ in tasks]
        keys = [] if self.store is None else [_key(title, function, task) for task in tasks]
        known = {} if self.store is None else _finished(self.store)
        for index, key in enumerate(keys):
            parts[index] = known.get(key, [])
        # the longest tasks are last in most lists; starting with them keeps all processes busy to the end
        order = [index for index in range(len(tasks) - 1, -1, -1) if not keys or keys[index] not in known]
        jobs = min(self.jobs or cpu_count(), len(order)) or 1
        if jobs == 1:
            finished: Iterable = (_one(function, index, tasks[index]) for index in order)
        else:
            pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
            finished = pool(delayed(_one)(function, index, tasks[index]) for index in order)
        for index, rows in self._shown(title, finished, len(order)):
            parts[index] = rows
            if self.store is not None:
                _keep(self.store, keys[index], rows)
        return [row for rows in parts for row in rows]

    def _shown(self, title: str, items: Iterable, total: int) -> Iterator:
        if not self.progress:
            yield from items
            return
        console = require("rich.console").Console(stderr=True)
        yield from require("rich.progress").track(items, description=title, total=total, console=console)


def _key(title: str, function: Callable, task: Any) -> str:
    """Fingerprint of a task: the same in another process, another one for other settings, data or versions."""
    given: list[Any] = []
    while isinstance(function, partial):  # settings and data are bound to the function of one task
        given.append((function.args, function.keywords))
        function = function.func
    return str(joblib_hash((__version__, title, function.__module__, function.__qualname__, given, task)))


def _finished(store: Path) -> dict[str, list[Row]]:
    """Rows by the fingerprints of finished tasks, up to a line that was being written when the process ended."""
    found: dict[str, list[Row]] = {}
    if store.exists():
        for line in store.read_text(encoding="utf-8").splitlines():
            try:
                key, rows = json.loads(line)
            except ValueError:
                break
            found[key] = rows
        _rewritten(store, found)
    return found


def _rewritten(store: Path, found: dict[str, list[Row]]) -> None:
    """Without what follows the last whole line, so that the next line does not become a part of it."""
    with replacing(store) as temporary:
        temporary.write_text("".join(json.dumps(entry) + "\n" for entry in found.items()), encoding="utf-8")


def _keep(store: Path, key: str, rows: list[Row]) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    plain = [{name: v.item() if isinstance(v, np.generic) else v for name, v in row.items()} for row in rows]
    with store.open("a", encoding="utf-8") as file:
        file.write(json.dumps([key, plain]) + "\n")


def _one(function: Callable[[Any], list[Row]], index: int, task: Any) -> tuple[int, list[Row]]:
    with threadpool_limits(1), _quiet():
        return index, function(task)


@contextmanager
def _quiet() -> Iterator[None]:
    """A hyperparameter at its bound or a flat optimum is a fact of the tables, not news for the screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _square_row(task: int) -> list[Row]:
    return [{"square": task**2}]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows with the columns of the first, floats in full precision."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def publish(report: Report, out: Path, quiet: bool = False) -> None:
    """Show the tables, and write ``results.csv``, ``summary.csv`` and the figure into a folder.

    Parameters
    ----------
    report : Report
    out : Path
        ``out/<name>/results.csv`` holds every trial, ``summary.csv`` the tables on the screen.
    quiet : bool
        Tables go to the standard error stream.
    """
    folder = out / report.name
    write_csv(folder / "results.csv", report.rows)
    with (folder / "summary.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for table in report.tables:
            writer.writerow([f"# {table.title}"])
            writer.writerow(table.columns)
            writer.writerows(table.cells())
    console = _console(quiet)
    rich_table = require("rich.table")
    for table in report.tables:
        shown = rich_table.Table(title=table.title, title_justify="left", padding=(0, 1, 0, 0))
        for j, column in enumerate(table.columns):
            text = table.rows and all(isinstance(row[j], str) for row in table.rows)
            shown.add_column(column, justify="left" if text else "right", overflow="fold")
        for cells in table.cells():
            shown.add_row(*cells)
        console.print(shown)
    if report.draw is not None:
        require("matplotlib").use("Agg")
        with _quiet():  # figures fit models of their own
            report.draw(folder / f"{report.name}.png")
    names = "results.csv, summary.csv" + (f", {report.name}.png" if report.draw is not None else "")
    console.print(f"written: {folder}/ ({names})")


def _console(stderr: bool = False) -> Any:
    console = require("rich.console").Console(stderr=stderr)
    # a file or a pipe has no width of its own, and a table cut at 80 columns says nothing
    return console if console.is_terminal else require("rich.console").Console(width=160, stderr=stderr)


def seeds(seed: int, count: int) -> list[np.random.SeedSequence]:
    """One independent stream per trial; trial i has the same stream whatever the count.

    >>> [s.generate_state(1)[0] for s in seeds(0, 2)] == [s.generate_state(1)[0] for s in seeds(0, 5)[:2]]
    True
    """
    return np.random.SeedSequence(seed).spawn(count)


def group(rows: Iterable[Row], *keys: str) -> dict[tuple, list[Row]]:
    """Rows by the values of some columns, in the order of appearance.

    >>> group([{"a": 1, "b": 2}, {"a": 1, "b": 3}], "a")
    {(1,): [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}]}
    """
    out: dict[tuple, list[Row]] = {}
    for row in rows:
        out.setdefault(tuple(row[key] for key in keys), []).append(row)
    return out


def column(rows: Iterable[Row], key: str) -> np.ndarray:
    """One column as an array.

    >>> column([{"a": 1.0}, {"a": 2.0}], "a")
    array([1., 2.])
    """
    return np.array([row[key] for row in rows], dtype=float)
