"""``ggpm predict``: predictions with their uncertainty, a row for a row."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from ggpm.cli.options import (
    DATA,
    JSON,
    LEVEL,
    MODEL,
    OFFSET,
    TABLES,
    is_number,
    is_parquet,
    load_model,
    load_with,
    names_in,
    numbers,
    offset_of,
    writable,
)
from ggpm.cli.terminal import Waiting, tell, warn, warnings_told
from ggpm.data.tables import TableError, kept_columns, side_by_side, write_table


@click.command()
@MODEL
@DATA
@click.option(
    "--out", type=click.Path(dir_okay=False), callback=writable(*TABLES),
    help="CSV or Parquet file; by default CSV on the standard output.",
)  # fmt: skip
@click.option("--keep", help="Columns of DATA to copy before the predictions, separated by commas; `all` for all.")
@click.option("--level", default=0.9, show_default=True, type=LEVEL, help="Probability of intervals, arcs and sets.")
@click.option(
    "--probability", "ranges", multiple=True, metavar="LOW,HIGH",
    help="Also the probability that y is between LOW and HIGH (inf for no bound; for angles, on the arc from LOW "
    "forwards to HIGH). May be given several times.",
)  # fmt: skip
@OFFSET
@click.option("--trials", help="Counts out of N: the column with N, or one number.")
@JSON
def predict(
    model: str, data: str, out: str | None, keep: str | None, level: float, ranges: tuple[str, ...],
    offset: str | None, trials: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Predictions with their uncertainty, one row per row of DATA and in its order.

    Rows in which an input is missing have no prediction: their columns stay empty.

    ggpm predict model.ggpm new.csv --keep station,hour --out predictions.csv

    From Parquet to Parquet, rows are read and written in chunks: neither file need fit into memory.
    """
    bounds = [_range(text) for text in ranges]
    if out is not None and is_parquet(data) and is_parquet(out) and trials is None and not bounds:
        return _in_chunks(model, data, out, keep, level, offset, as_json)
    fitted, table, X = load_with(model, data, gaps=True)
    kept = kept_columns(table, keep, path=data)
    whole = X.notna().all(axis=1).to_numpy()
    if not whole.any():
        raise TableError(f"{data}: no row has all inputs, {', '.join(X.columns)}.")
    extra = offset_of(fitted, table[whole], offset, data)
    counts = None if trials is None else float(trials) if is_number(trials) else numbers(table[whole], trials, data)
    with warnings_told(), Waiting(f"predicting {len(X)} rows"):
        summary = fitted.summary(X[whole], level=level, offset=extra, trials=counts)
        if bounds:
            dist = fitted.predict_dist(X[whole], offset=extra, trials=counts)
            for text, (low, high) in zip(ranges, bounds):
                summary[f"p({text})"] = dist.probability(low, high)
    if not whole.all():
        gaps = ", ".join(f"{name} in {X[name].isna().sum()}" for name in X.columns[X.isna().any()])
        warn(f"{np.sum(~whole)} of {len(X)} rows have no prediction, because inputs are missing: {gaps}.")
        summary = summary.reindex(X.index)
    summary = side_by_side(kept, summary)
    if out is not None:
        write_table(summary, out)
        tell({"out": out, "rows": len(summary), "columns": list(summary.columns)}, as_json)
    elif as_json:
        tell({"rows": summary.to_dict("records")}, as_json)
    else:
        click.echo(summary.to_csv(index=False), nl=False)


def _range(text: str) -> tuple[float, float]:
    parts = text.split(",")
    if len(parts) != 2 or not all(map(is_number, parts)) or "nan" in text.lower():
        raise click.BadParameter(f"{text!r} is not LOW,HIGH, two numbers.", param_hint="--probability")
    return float(parts[0]), float(parts[1])


def _in_chunks(
    model: str, data: str, out: str, keep: str | None, level: float, offset: str | None, as_json: bool
) -> None:
    """From Parquet to Parquet; rows that are read and written in chunks need not fit into memory."""
    from ggpm.data.parquet import column_names, predict_parquet

    kept = column_names(data) if keep == "all" else names_in(keep)
    given: Any = 0 if offset == "0" else offset
    with warnings_told(), Waiting("predicting in chunks"):
        rows = predict_parquet(load_model(model), data, out, offset=given, level=level, keep=kept)
    tell({"out": out, "rows": rows}, as_json)
