"""``ggpm plot``: a picture of a model."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from ggpm.cli.options import JSON, MODEL, PICTURES, load_model, load_with, names_in, offset_of, outputs_of, writable
from ggpm.cli.terminal import tell

KINDS = (
    "auto", "angles", "polar", "bands", "parts", "ternary", "classes", "ordinal", "effects", "map", "evidence", "pit",
    "calibration",
)  # fmt: skip


@click.command()
@MODEL
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), callback=writable(*PICTURES), help="PNG, PDF or SVG file."
)
@click.option("--kind", default="auto", show_default=True, type=click.Choice(KINDS))
@click.option("--feature", help="Input column on the horizontal axis; two, separated by a comma, for classes and maps.")
@click.option("--data", type=click.Path(exists=True, dir_okay=False), help="Held-out rows, for pit and calibration.")
@click.option("--target", help="Target column(s) in --data; by default those of the fit.")
@JSON
def plot(
    model: str, out: str, kind: str, feature: str | None, data: str | None, target: str | None, as_json: bool
) -> None:
    """A picture of a model."""
    import matplotlib

    matplotlib.use("Agg")
    from ggpm import plotting

    fitted = load_model(model)
    chosen = plotting.kind_of_picture(fitted) if kind == "auto" else kind
    columns = names_in(feature)
    pair: Any = tuple(columns) if len(columns) == 2 else (0, 1)
    if chosen in ("pit", "calibration"):
        if data is None:
            raise click.UsageError(f"--kind {chosen} needs --data: rows that were not fitted.")
        fitted, table, X = load_with(model, data, target=target)
        y = outputs_of(fitted, table, target, data)[1]
        draw_check = {"pit": plotting.plot_pit, "calibration": plotting.plot_calibration}[chosen]
        ax = draw_check(fitted, X, y, offset=offset_of(fitted, table, None, data))
    elif chosen == "evidence":
        ax = plotting.plot_evidence(fitted)
    elif chosen == "classes":
        ax = plotting.plot_class_map(fitted, pair)
    elif chosen == "map":
        ax = plotting.plot_map(fitted, pair)
    elif chosen == "effects":
        ax = np.ravel(plotting.plot_effects(fitted, [*columns] or None))[0]
    else:
        draw: Any = {
            "angles": plotting.plot_angles,
            "polar": plotting.plot_polar,
            "bands": plotting.plot_bands,
            "parts": plotting.plot_parts,
            "ternary": plotting.plot_ternary,
            "ordinal": plotting.plot_ordinal,
        }[chosen]
        ax = np.ravel(draw(fitted, columns[0] if columns else 0))[0]
    ax.figure.savefig(out, dpi=150)
    tell({"out": out, "kind": chosen}, as_json)
