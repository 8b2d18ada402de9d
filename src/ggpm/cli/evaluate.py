"""``ggpm evaluate``: how good a model is on rows that it has not seen."""

from __future__ import annotations

import click

from ggpm.cli.options import DATA, JSON, LEVEL, MODEL, OFFSET, load_with, numbers, offset_of, outputs_of
from ggpm.cli.terminal import Waiting, tell, warnings_told
from ggpm.data.text import Message


@click.command()
@MODEL
@DATA
@click.option("--target", help="Target column(s); by default those of the fit.")
@click.option("--level", default=0.9, show_default=True, type=LEVEL, help="Level of the coverage.")
@OFFSET
@click.option("--weight", help="Column of weights: how many times each row counts.")
@click.option("--calibration", "report", is_flag=True, help="Also coverage at four levels, PIT moments, Brier, CRPS.")
@JSON
def evaluate(
    model: str, data: str, target: str | None, level: float, offset: str | None, weight: str | None, report: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Held-out log density, error and coverage of a model on DATA."""
    from ggpm.prediction.evaluation import evaluate as measure

    fitted, table, X = load_with(model, data, target=target)
    names, y = outputs_of(fitted, table, target, data)
    extra = offset_of(fitted, table, offset, data)
    given = {"offset": extra, "sample_weight": None if weight is None else numbers(table, weight, data)}
    with warnings_told(), Waiting(f"evaluating {len(X)} rows"):
        try:
            result = measure(fitted, X, y, level=level, **given)
            if report:
                from ggpm.prediction.calibration import calibration

                result = result | calibration(fitted, X, y, **given).frame["value"].to_dict()
        except ValueError as error:
            raise ValueError(Message(f"{data}, target {', '.join(names)}: ", error)) from error
    tell(result, as_json)
