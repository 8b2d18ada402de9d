"""``ggpm compare``: which of several models of the same rows predicts best."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from ggpm.cli.options import JSON, load_model
from ggpm.cli.terminal import Waiting, show_table, tell, warnings_told
from ggpm.data.tables import TableError, read_table


@click.command()
@click.argument("models", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--data", type=click.Path(exists=True, dir_okay=False), help="The table that was fitted, for --groups alone."
)
@click.option("--groups", help="Column of --data: rows that hang together, left out together.")
@click.option("--folds", default=10, show_default=True, type=click.IntRange(min=2), help="For --groups.")
@JSON
def compare(models: tuple[str, ...], data: str | None, groups: str | None, folds: int, as_json: bool) -> None:
    """Models of the same rows by leave-one-out log densities, best first.

    ggpm compare smooth.ggpm rough.ggpm --data data.csv --groups station

    Differences of less than four nats, or of less than two standard errors, say little.
    """
    from ggpm import compare as compared

    if len(models) < 2:
        raise click.UsageError("two models or more can be compared; got one.")
    if (data is None) != (groups is None):
        raise click.UsageError("--groups and --data go together: the column of groups is read from the table.")
    stems = [Path(path).stem for path in models]
    names = stems if len(set(stems)) == len(stems) else list(models)
    if len(set(names)) < len(names):
        raise click.UsageError("the same model is named twice.")
    together = None
    if data is not None and groups is not None:
        table = read_table(data, text=[groups])
        if groups not in table.columns:
            raise click.UsageError(f"{data} has no column {groups!r}.")
        empty = np.flatnonzero(table[groups].isna())
        if empty.size:
            raise TableError(
                f"{data}, column {groups!r}, row {empty[0] + 1}: the group is missing ({empty.size} such row(s))."
            )
        together = table[groups].astype(str).to_numpy()
    with warnings_told(), Waiting(f"comparing {len(models)} models"):
        loaded = {name: load_model(path) for name, path in zip(names, models)}
        found = compared(loaded, groups=together, folds=folds)
    rows = [{"model": str(name), **row} for name, row in found.to_dict("index").items()]
    if as_json:
        return tell({"models": rows}, as_json)
    show_table(rows)
