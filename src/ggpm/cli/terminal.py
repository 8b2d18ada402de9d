"""Words of the ``ggpm`` command: results, progress, warnings and errors."""

from __future__ import annotations

import contextlib
import json
import math
import warnings
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ggpm.data.text import Hint, Message, Row

FLAGS = {
    "closure": "--closure",
    "family": "--family",
    "inducing": "--inducing",
    "inference": "--inference",
    "n_restarts_optimizer": "--restarts",
    "neighbours": "--neighbours",
    "offset": "--offset",
    "order": "--order",
    "picture": "--kind",
    "units": "--units",
    "zeros": "--zeros",
}
"""Settings of the library, as hints call them, and the option that sets each here."""
err = Console(stderr=True)


def tell(result: dict[str, Any], as_json: bool) -> None:
    """The result: JSON for machines, a small table for people."""
    if as_json:
        click.echo(json.dumps(strict(result), allow_nan=False))
        return
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in result.items():
        table.add_row(name.replace("_", " "), plain(_shown(value)))
    Console(soft_wrap=True).print(table)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_shown(v)}" for name, v in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def strict(value: Any) -> Any:
    """A value as JSON has it: all digits of numbers, nothing for those that are missing, text for times.

    >>> strict({"mean": [2.3e-12, float("nan")]})
    {'mean': [2.3e-12, None]}
    """
    if isinstance(value, dict):
        return {str(name): strict(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def show_table(rows: list[dict[str, Any]]) -> None:
    """Rows with the same names, for people."""
    table = Table(box=None, header_style="bold")
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="right" if isinstance(value, float) else "left")
    for row in rows:
        table.add_row(*(plain(f"{v:.2f}" if isinstance(v, float) else str(v)) for v in row.values()))
    Console(soft_wrap=True).print(table)


def watched(model: Any, bar: Waiting) -> Any:
    """The model, telling the bar of every evaluation of its objective."""
    model.listener = lambda what, run, calls, value: bar.tell(f"{what} {value:.2f}, evaluation {calls}")
    return model


class Waiting:
    """A bar on the standard error stream while something runs; nothing where that is not a terminal."""

    def __init__(self, text: str) -> None:
        state = TextColumn("{task.fields[state]}", style="dim", markup=False)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(12), TimeElapsedColumn(), state)
        self.bar = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
        self.task = self.bar.add_task(text, total=None, state="")

    def tell(self, state: str) -> None:
        """Say how far it is."""
        self.bar.update(self.task, state=state)

    def __enter__(self) -> Waiting:
        self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()


@contextlib.contextmanager
def warnings_told() -> Iterator[None]:
    """Warnings as lines on the standard error stream, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    told = [in_flags(w.message) for w in caught if isinstance(w.message, UserWarning)]
    for warning in dict.fromkeys(told):
        warn(warning)


def warn(text: str) -> None:
    """A line on the standard error stream."""
    err.print(f"[yellow]Warning:[/] {plain(text)}", highlight=False, soft_wrap=True)


def in_flags(told: BaseException) -> str:
    """Text of an error or a warning of the library: advice in options of this command, rows counted from 1.

    >>> from ggpm.data.text import Hint, Message
    >>> in_flags(ValueError(Message("Try ", Hint("inference='taylor'", "inference", "taylor"), ".")))
    'Try --inference taylor.'
    >>> in_flags(ValueError(Message("row ", Row(0), " is off.")))
    'row 1 is off.'
    """
    return "".join(part if isinstance(part, str) else _option(part) for part in Message(told).parts)


def _option(hint: Hint) -> str:
    """A hint in the words of this command; nothing where only a Python user can follow it."""
    if isinstance(hint, Row):
        return str(hint.value + 1)
    if hint.setting is None:
        return ""
    if hint.setting not in FLAGS:
        return str(hint.value)  # what it is set to is all that can be said of it
    flag, value = FLAGS[hint.setting], hint.value
    if value is None or value is True:
        return flag
    if value is False:
        return f"leave out {flag}"
    if value is ...:
        return f"Give {flag}"
    if hint.setting == "offset" and value == 0:
        return f"{flag} 0 for none"
    if hint.setting == "offset":
        return f"{flag}, a column of {value}"
    return f"{flag} {','.join(map(str, value)) if isinstance(value, tuple) else value}"


class Fault(click.ClickException):
    """A fault in the data or the model: exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        err.print(f"[bold red]Error:[/] {plain(self.message)}", highlight=False, soft_wrap=True)


def plain(text: str) -> str:
    """The same text with nothing in it that rich takes for markup."""
    return text.replace("[", r"\[")
