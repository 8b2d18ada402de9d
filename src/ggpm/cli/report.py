"""``ggpm report``: one HTML page about a model and how it does on rows that it has not seen."""

from __future__ import annotations

import shlex
import sys

import click
import numpy as np

from ggpm.cli.options import DATA, JSON, LEVEL, MODEL, OFFSET, load_with, offset_of, outputs_of, writable
from ggpm.cli.terminal import Waiting, tell, warnings_told
from ggpm.data.frames import missing_rows
from ggpm.data.text import Message


@click.command()
@MODEL
@DATA
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), callback=writable(".html", ".htm"),
    help="The page; its numbers go into a file beside it that ends in .json.",
)  # fmt: skip
@click.option("--target", help="Target column(s); by default those of the fit.")
@click.option("--level", default=0.9, show_default=True, type=LEVEL, help="Probability of intervals, arcs and sets.")
@OFFSET
@click.option("--title", help="Heading of the page.")
@JSON
def report(
    model: str, data: str, out: str, target: str | None, level: float, offset: str | None, title: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """A page about MODEL and how it does on DATA, rows that were not fitted."""
    from ggpm.reporting import report as write

    fitted, table, X = load_with(model, data, target=target)
    names, y = outputs_of(fitted, table, target, data)
    extra = offset_of(fitted, table, offset, data)
    command = shlex.join(["ggpm", *sys.argv[1:]])
    with warnings_told(), Waiting(f"reporting on {len(X)} rows"):
        try:
            page = write(fitted, X, y, out, offset=extra, level=level, title=title, command=command)
        except ValueError as error:
            raise ValueError(Message(f"{data}, target {', '.join(names)}: ", error)) from error
    tell({"out": str(page), "numbers": str(page.with_suffix(".json")), "rows": int(np.sum(~missing_rows(y)))}, as_json)
