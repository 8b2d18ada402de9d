"""Words of the ``ggpm`` command: results, progress, warnings and errors."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ggpm.data.text import Hint, Message

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
        click.echo(json.dumps(result))
        return
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in result.items():
        text = (
            f"{value:.6g}"
            if isinstance(value, float)
            else ", ".join(map(str, value))
            if isinstance(value, list)
            else str(value)
        )
        table.add_row(name.replace("_", " "), plain(text))
    Console(soft_wrap=True).print(table)


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
    """Text of an error or a warning of the library, with its advice in options of this command.

    >>> from ggpm.data.text import Hint, Message
    >>> in_flags(ValueError(Message("Try ", Hint("inference='taylor'", "inference", "taylor"), ".")))
    'Try --inference taylor.'
    """
    return "".join(part if isinstance(part, str) else _option(part) for part in Message(told).parts)


def _option(hint: Hint) -> str:
    """A hint in the words of this command; nothing where only a Python user can follow it."""
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
    return text.replace("[", r"\[")
