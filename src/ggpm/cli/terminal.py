"""What the ``ggpm`` command says: results, progress, warnings and errors, in its own words."""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

# messages of the library speak Python: what its advice is called here
FLAGS = tuple(
    (re.compile(python), flag)
    for python, flag in (
        (r'VonMises\(units="(\w+)"\)', r"--units \1"),
        (r"units=\(0, 365\.25\)", "--units 0,365.25"),
        (r"Dirichlet\(closure=True\)", "--closure"),
        (r'Dirichlet\(zeros="(\w+)"\)', r"--zeros \1"),
        (r"zeros_epsilon", "0.001"),
        (r"offset=log\(exposure\)", "--offset, a column of log(exposure)"),
        (r"GGPClassifier", "--family categorical"),
        (r"GGPOrdinalClassifier", "--family ordinal"),
        (r"Pass order=\[\.\.\.\], lowest first, or an ordered categorical", "Give --order, lowest first"),
        (r"\border must list", "--order must list"),
        (r"n_restarts_optimizer=(\d+)", r"--restarts \1"),
        (r"inducing=None for exact inference", "leave out --inducing for exact inference"),
        (r"\binducing must be", "--inducing must be"),
        (r"inference=Laplace\(max_iter=500\)( \(or Variational\))?", "--inference variational"),
        (r"inference='(\w+)'", r"--inference \1"),
        (r": y / np\.linalg\.norm\(y, axis=1, keepdims=True\)", ""),
        (r" \(for example with sklearn\.compose\.TransformedTargetRegressor\), or set phi, phi_bounds and the kernel's "
         "bounds", " before fitting"),
        (r"plot_class_map", "--kind classes"),
        (r"plot_(\w+)", r"--kind \1"),
    )
)  # fmt: skip
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
    for warning in {str(w.message) for w in caught if issubclass(w.category, UserWarning)}:
        err.print(f"[yellow]Warning:[/] {plain(in_flags(warning))}", highlight=False, soft_wrap=True)


def in_flags(message: str) -> str:
    """A message of the library in the words of this command."""
    for python, flag in FLAGS:
        message = python.sub(flag, message)
    return message


class Fault(click.ClickException):
    """A fault in the data or the model: exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        err.print(f"[bold red]Error:[/] {plain(self.message)}", highlight=False, soft_wrap=True)


def plain(text: str) -> str:
    return text.replace("[", r"\[")
