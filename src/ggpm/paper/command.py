"""The command ``reproduce``: section 4 of the paper, at full size or in a minute."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from threadpoolctl import threadpool_limits

from ggpm.paper.runner import MissingExtra, Report, Runner, publish

STOPPED = 130  # exit code where the user stopped it
EXPERIMENTS = ("triangle", "simplex", "labels", "annotation")


@click.command()
@click.argument("experiment", type=click.Choice([*EXPERIMENTS, "all"]))
@click.option("--fast", is_flag=True, help="A small version that takes about a minute.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same table.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: one per core]")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("out/reproduce"), show_default=True,
    help="Folder for results.csv, summary.csv and the figure, in a folder per experiment.",
)  # fmt: skip
@click.option(
    "--data", type=click.Path(exists=True, path_type=Path),
    help="annotation: a feature table (.csv), or a folder of images with labels.csv. See docs/paper.md.",
)  # fmt: skip
@click.option(
    "--features", type=click.Choice(["hsv", "luv"]), default="hsv", show_default=True,
    help="annotation: which colour histogram.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="No progress bar.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the standard output.")
def reproduce(
    experiment: str, fast: bool, seed: int, jobs: int | None, out: Path, data: Path | None, features: str, quiet: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Run an experiment of the paper's section 4 and compare with what it reports.

    \b
    triangle    angle regression with the von Mises model (figure 1)
    simplex     probability vectors from quantised ones, Dirichlet (figure 2)
    annotation  words for images from colour histograms, Dirichlet (figure 3); needs --data
    labels      Taylor inference with c = 0 as one-against-all label regression (section 4.1)
    all         all of them; annotation only where --data is given

    Finished tasks are kept in the folder until an experiment has come to its end: after Ctrl-C or a kill, the same
    command goes on with those that are left.
    """
    done = []
    runner = Runner(jobs, progress=not quiet)
    names = [experiment] if experiment != "all" else list(EXPERIMENTS)
    for name in names:
        if name == "annotation" and data is None:
            if experiment == "all":
                click.echo("annotation: left out, it needs --data (see docs/paper.md for the format).", err=as_json)
                continue
            raise click.UsageError(NEEDS_DATA)
        start, store = time.perf_counter(), out / name / "finished.jsonl"
        try:
            with threadpool_limits(1):  # small matrices: threads would only wait for each other
                publish(_run(name, fast, seed, replace(runner, store=store), data, features), out, quiet=as_json)
                store.unlink(missing_ok=True)
        except MissingExtra as err:
            raise click.ClickException(str(err)) from None
        except ValueError as err:
            if name != "annotation":  # there the input is the user's, and the message says what is wrong with it
                raise
            raise click.ClickException(str(err)) from None
        except KeyboardInterrupt:
            click.echo(f"stopped: finished tasks are in {store}. The same command goes on with the others.", err=True)
            sys.exit(STOPPED)
        seconds = time.perf_counter() - start
        done.append({"experiment": name, "folder": str(out / name), "seconds": seconds})
        click.echo(f"{name}: {seconds:.0f} s\n", err=True)
    if as_json:
        click.echo(json.dumps({"experiments": done}))


NEEDS_DATA = (
    "annotation needs --data: a feature table (.csv with columns luv_* or hsv_* and one top10_* column of 0/1 per "
    "word), or a folder of images with a table labels.csv (columns: file, then one column of 0/1 per word). The "
    "paper's Corel5k images cannot be redistributed. The format is described in docs/paper.md."
)


def _run(name: str, fast: bool, seed: int, runner: Runner, data: Path | None, features: str) -> Report:
    # imported here: each experiment brings its own packages
    module: Any
    if name == "triangle":
        from ggpm.paper import triangle as module
    elif name == "simplex":
        from ggpm.paper import simplex as module
    elif name == "labels":
        from ggpm.paper import label_regression as module
    else:
        from ggpm.paper import annotation

        assert data is not None
        settings = annotation.FAST if fast else annotation.Settings()
        return annotation.run(settings, seed, runner, annotation.read(data, features))
    return module.run(module.FAST if fast else module.Settings(), seed, runner)
