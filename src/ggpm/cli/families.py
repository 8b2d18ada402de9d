"""``ggpm families``: what an output may be."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from ggpm.cli.options import JSON
from ggpm.cli.terminal import plain


@click.command()
@JSON
def families(as_json: bool) -> None:
    """The families of outputs that are known."""
    from ggpm.families import FAMILIES, MIXED, WRAPPERS

    known = sorted((FAMILIES | MIXED).items()) + [(f"{name}_...", kind) for name, kind in sorted(WRAPPERS.items())]
    rows = {name: (kind.__doc__ or "").strip().splitlines()[0].rstrip(".") for name, kind in known}
    if as_json:
        click.echo(json.dumps(rows))
        return
    table = Table(box=None, header_style="bold")
    table.add_column("family")
    table.add_column("an output is")
    for name, text in rows.items():
        table.add_row(name, plain(text))
    Console().print(table)
