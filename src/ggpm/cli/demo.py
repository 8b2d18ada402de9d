"""``ggpm demo``: from a table to a picture, in one folder."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from ggpm.cli.options import JSON
from ggpm.cli.terminal import Waiting, tell, watched
from ggpm.data.tables import write_table


@click.command()
@click.option(
    "--out", default="ggpm-demo", show_default=True, type=click.Path(file_okay=False), help="Folder to write to."
)
@JSON
def demo(out: str, as_json: bool) -> None:
    """Make a table of wind directions, fit it, and draw the fan: the three files go to one folder."""
    import matplotlib
    import pandas as pd

    matplotlib.use("Agg")
    from ggpm import GGPRegressor, plotting, save
    from ggpm.families import VonMises

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    hour = np.sort(rng.uniform(0, 48, 120)).round(2)
    wind = np.mod(np.rad2deg(0.12 * hour + 0.9 * np.sin(hour / 6) + rng.vonmises(0, 6.0, 120)), 360).round(1)
    table = pd.DataFrame({"hour": hour, "wind": wind})
    write_table(table, folder / "wind.csv")
    with Waiting("fitting 120 wind directions") as bar:
        model = watched(GGPRegressor(VonMises(units="degrees")), bar).fit(table[["hour"]], table["wind"])
    save(model, folder / "wind.ggpm")
    plotting.plot_angles(model).figure.savefig(folder / "wind.png", dpi=150)
    files = [str(folder / name) for name in ("wind.csv", "wind.ggpm", "wind.png")]
    tell({"files": files, "training_score": float(model.score(table[["hour"]], table["wind"]))}, as_json)
