"""The ``ggpm`` command: fit, predict, evaluate and plot from files (extra: ``pip install ggpm[cli]``).

Exit codes: 0 success; 1 the data or the model are not as they should be (the message says what); 2 wrong usage;
3 the fit did not converge (the model is written all the same). With ``--json`` the result is one JSON object on
the standard output; everything for human eyes goes to the standard error stream.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

try:
    import click
    from rich.console import Console
    from rich.table import Table
except ImportError:
    raise SystemExit("The ggpm command needs click, rich, pandas and pyarrow. Try: pip install 'ggpm[cli]'") from None

import numpy as np

from ggpm import __version__
from ggpm.cli.terminal import Fault, Waiting, in_flags, plain, tell, warn, warnings_told
from ggpm.data.tables import (
    TableError,
    column_as_numbers,
    features_of,
    kept_columns,
    read_table,
    side_by_side,
    split_columns,
    target_of,
    write_table,
)
from ggpm.data.text import Message, did_you_mean

CLASSIFIERS = ("categorical", "bernoulli", "ordinal")
COMPOSITIONS = ("dirichlet", "logistic_normal")
UNITS = ("degrees", "radians", "hours")
NOT_CONVERGED = 3


class Group(click.Group):
    """Turns errors about data into messages, and finds `reproduce` only when it is asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, TypeError, TableError, np.linalg.LinAlgError, MemoryError, ImportError, OSError) as error:
            raise Fault(in_flags(error)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "reproduce"])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name == "reproduce":
            from ggpm.paper.command import reproduce

            return reproduce
        return super().get_command(ctx, name)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ggpm")
def main() -> None:
    """Gaussian processes for angles, compositions, counts, classes and grades."""


JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on the standard output.")
MODEL = click.argument("model", type=click.Path(exists=True, dir_okay=False))
DATA = click.argument("data", type=click.Path(exists=True, dir_okay=False))
OFFSET = click.option("--offset", help="Column added to the latent, 0 for none; by default that of the fit.")
LEVEL = click.FloatRange(0, 1, min_open=True, max_open=True)


# ---- fit ---------------------------------------------------------------------------------------------------------
@main.command()
@DATA
@click.option("--target", required=True, help="Column to predict; several, separated by commas, for vectors.")
@click.option("--family", required=True, help="What an output is; see `ggpm families`.")
@click.option("--features", help="Input columns, separated by commas; by default all other columns.")
@click.option(
    "--units",
    callback=lambda context, option, text: _units(text),
    help="Angles: degrees, radians, hours, or LOW,HIGH (for example 0,365.25).",
)
@click.option("--closure", is_flag=True, help="Compositions: divide every row by its sum (percentages, amounts).")
@click.option(
    "--zeros", type=click.Choice(["error", "additive", "squeeze"]), help="Compositions: what to do about zeros."
)
@click.option("--order", help="Grades, lowest first, separated by commas.")
@click.option("--offset", help="Column added to the latent (for counts: the logarithm of the exposure).")
@click.option("--weight", help="Column of weights: how many times each row counts.")
@click.option(
    "--inference",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "taylor", "laplace", "variational"]),
    help="How the posterior is approximated; auto is exact for Gaussian outputs, variational for others.",
)
@click.option("--inducing", type=click.IntRange(min=1), help="Number of inducing points, for many rows.")
@click.option(
    "--neighbours",
    type=click.IntRange(min=1),
    help="Number of nearest rows to condition on, for many rows of a rough function.",
)
@click.option(
    "--restarts", default=0, show_default=True, type=click.IntRange(min=0), help="Further starts of the search."
)
@click.option("--seed", default=0, show_default=True, help="For restarts and inducing points.")
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="The model file, by custom NAME.ggpm.")
@JSON
def fit(data: str, target: str, family: str, out: str, as_json: bool, **options: Any) -> None:
    """Learn a model from a CSV or Parquet file.

    ggpm fit data.csv --target dir --family von_mises --units degrees --out model.ggpm
    """
    targets = split_columns(target)
    if options["inducing"] is not None and _is_parquet(data):
        return _fit_streamed(data, targets, family, out, as_json, options)
    table = read_table(data)
    offset = None if options["offset"] is None else _numbers(table, options["offset"], data)
    weight = None if options["weight"] is None else _numbers(table, options["weight"], data)
    with warnings_told():
        X = features_of(table, options["features"], exclude=_not_features(targets, options), path=data)
    model = _estimator(family, options)
    y = target_of(table, targets, labels=family in CLASSIFIERS, path=data)
    if family == "bernoulli" and len(set(np.asarray(y).ravel().tolist())) > 2:
        raise click.UsageError("--family bernoulli has two classes, the target has more. Try --family categorical.")
    with warnings_told(), Waiting(f"fitting {family} to {len(X)} rows") as bar:
        try:
            _watched(model, bar).fit(X, y, weight, offset=offset)
        except ValueError as error:
            raise ValueError(Message(f"{data}, target {target!r}: ", error)) from error
    features, score = list(map(str, X.columns)), float(model.score(X, y, weight, offset=offset))
    told = {"family": family, "rows": len(X), "features": features, "target": targets, "training_score": score}
    _finish(model, out, as_json, told)


def _not_features(targets: list[str], options: dict[str, Any]) -> list[str]:
    """Columns with another part to play than that of an input."""
    return [*targets, *(options[name] for name in ("offset", "weight") if options[name])]


def _fit_streamed(data: str, targets: list[str], family: str, out: str, as_json: bool, options: dict[str, Any]) -> None:
    """A sparse fit to a Parquet file that need not fit into memory: its rows are read in chunks, pass by pass."""
    from ggpm.data.parquet import ParquetRows, first_rows

    given = options["features"]
    if given is None:  # what columns are for shows in the first rows
        with warnings_told():
            X = features_of(first_rows(data), None, exclude=_not_features(targets, options), path=data, gaps=True)
        features = list(map(str, X.columns))
    else:
        features = split_columns(given)
    named = {"offset": options["offset"], "weight": options["weight"]}
    rows = ParquetRows(data, features, targets[0] if len(targets) == 1 else targets, **named)
    model = _estimator(family, options)
    with warnings_told(), Waiting(f"fitting {family} to {rows.n_rows} rows, in chunks") as bar:
        try:
            _watched(model, bar).fit(rows)
        except ValueError as error:
            raise ValueError(Message(f"{data}, target {', '.join(targets)!r}: ", error)) from error
    told = {"family": family, "rows": rows.n_rows, "features": features, "target": targets}
    _finish(model, out, as_json, told)


def _finish(model: Any, out: str, as_json: bool, told: dict[str, Any]) -> None:
    """Write a fitted model, and tell what it is."""
    from ggpm import save

    save(model, out)
    result = {
        "model": out,
        **told,
        "kernel": str(model.kernel_),
        "log_evidence": float(model.log_marginal_likelihood_value_),
        "converged": bool(model.converged_),
        "iterations": int(model.n_iter_),
    }
    tell(result, as_json)
    if not model.converged_:
        sys.exit(NOT_CONVERGED)


def _is_parquet(path: str) -> bool:
    return Path(path).suffix.lower() in (".parquet", ".pq")


def _watched(model: Any, bar: Waiting) -> Any:
    """The model, telling the bar of every evaluation of its objective."""
    model.listener = lambda what, run, calls, value: bar.tell(f"{what} {value:.2f}, evaluation {calls}")
    return model


def _estimator(family: str, options: dict[str, Any]) -> Any:
    from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families

    try:
        instance: Any = families.get(family)
    except ValueError:
        known = families.FAMILIES | families.MIXED
        raise click.BadParameter(
            f"{family!r} is not one of {', '.join(sorted(known))}, nor {', '.join(families.WRAPPERS)} before one of "
            f"them."
            f"{did_you_mean(family, known)}",
            param_hint="--family",
        ) from None
    settings = {
        "inference": options["inference"],
        "inducing": options["inducing"],
        "neighbours": options["neighbours"],
        "n_restarts_optimizer": options["restarts"],
        "random_state": options["seed"],
    }
    belongs = {"units": ("von_mises",), "closure": COMPOSITIONS, "zeros": COMPOSITIONS, "order": ("ordinal",)}
    for name, owners in belongs.items():
        if options[name] and family not in owners:
            raise click.UsageError(f"--{name} belongs to --family {owners[0]}, not to {family}.")
    if family == "ordinal":
        order = None if options["order"] is None else split_columns(options["order"])
        return GGPOrdinalClassifier(order=order, **settings)
    if family in CLASSIFIERS:
        return GGPClassifier(**settings)
    if options["units"]:
        instance.set_params(units=options["units"])
    if family in COMPOSITIONS:
        instance.set_params(closure=options["closure"], zeros=options["zeros"] or "error")
    return GGPRegressor(instance, **settings)


def _units(text: str | None) -> str | tuple[float, float] | None:
    if text is None or text in UNITS:
        return text
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = 0.0, -1.0
    if not 0 < high - low < float("inf"):
        raise click.BadParameter(
            f"{text!r} is not one of {', '.join(UNITS)}, nor LOW,HIGH with LOW < HIGH (for example 0,365.25)."
            f"{did_you_mean(text, UNITS)}",
            param_hint="--units",
        )
    return low, high


# ---- predict -----------------------------------------------------------------------------------------------------
@main.command()
@MODEL
@DATA
@click.option(
    "--out", type=click.Path(dir_okay=False), help="CSV or Parquet file; by default CSV on the standard output."
)
@click.option("--keep", help="Columns of DATA to copy before the predictions, separated by commas; `all` for all.")
@click.option("--level", default=0.9, show_default=True, type=LEVEL, help="Probability of intervals, arcs and sets.")
@OFFSET
@click.option("--trials", help="Counts out of N: the column with N, or one number.")
@JSON
def predict(
    model: str, data: str, out: str | None, keep: str | None, level: float, offset: str | None, trials: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Predictions with their uncertainty, one row per row of DATA and in its order.

    Rows in which an input is missing have no prediction: their columns stay empty.

    ggpm predict model.ggpm new.csv --keep station,hour --out predictions.csv

    From Parquet to Parquet, rows are read and written in chunks: neither file need fit into memory.
    """
    if out is not None and _is_parquet(data) and _is_parquet(out) and trials is None:
        from ggpm.data.parquet import column_names, predict_parquet

        kept = [] if keep is None else column_names(data) if keep == "all" else split_columns(keep)
        given: Any = 0 if offset == "0" else offset
        with warnings_told():
            rows = predict_parquet(_load(model), data, out, offset=given, level=level, keep=kept)
        return tell({"out": out, "rows": rows}, as_json)
    fitted, table, X = _load_with(model, data, gaps=True)
    kept = kept_columns(table, keep, path=data)
    whole = X.notna().all(axis=1).to_numpy()
    if not whole.any():
        raise TableError(f"{data}: no row has all inputs, {', '.join(X.columns)}.")
    extra = _offset_of(fitted, table[whole], offset, data)
    counts = None if trials is None else float(trials) if _is_number(trials) else _numbers(table[whole], trials, data)
    with warnings_told(), Waiting(f"predicting {len(X)} rows"):
        summary = fitted.summary(X[whole], level=level, offset=extra, trials=counts)
    if not whole.all():
        gaps = ", ".join(f"{name} in {X[name].isna().sum()}" for name in X.columns[X.isna().any()])
        warn(f"{np.sum(~whole)} of {len(X)} rows have no prediction, because inputs are missing: {gaps}.")
        summary = summary.reindex(X.index)
    summary = side_by_side(kept, summary)
    if out is not None:
        write_table(summary, out)
        tell({"out": out, "rows": len(summary), "columns": list(summary.columns)}, as_json)
    elif as_json:
        click.echo(json.dumps({"rows": json.loads(summary.to_json(orient="records"))}))
    else:
        click.echo(summary.to_csv(index=False), nl=False)


def _load(path: str) -> Any:
    from ggpm import LoadError, load

    try:
        return load(path)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from error


def _numbers(table: Any, name: str, data: str) -> Any:
    """A column of numbers with its name, which the model remembers."""
    import pandas as pd

    return pd.Series(column_as_numbers(table, name, data), name=name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _offset_of(fitted: Any, table: Any, offset: str | None, data: str) -> Any:
    """The offset of new rows: the column that is named, 0 for none, or the one that the model was fitted with."""
    if offset == "0" and offset not in table.columns:
        return 0.0
    name = fitted.fit_.offset if offset is None else offset
    if offset is None and name is not None and name not in table.columns:
        raise TableError(
            f"{data}: the model was fitted with the offset {name!r}, and there is no such column. Give --offset "
            "COLUMN, or --offset 0 for none."
        )
    return None if name is None else _numbers(table, name, data)


def _load_with(model: str, data: str, gaps: bool = False) -> tuple[Any, Any, Any]:
    """A model, a table, and the table's columns that the model needs."""
    fitted = _load(model)
    table = read_table(data)
    names = getattr(fitted, "feature_names_in_", None)
    if names is None:
        raise ValueError(f"{model} was fitted without column names; use it from Python.")
    columns = fitted.fit_.columns
    return fitted, table, features_of(table, list(map(str, names)), exclude=[], path=data, like=columns, gaps=gaps)


def _target(fitted: Any, table: Any, target: str | None, data: str) -> tuple[list[str], Any]:
    """Names and values of the target columns: those given, or those of the fit."""
    names = split_columns(target) if target else fitted.target_names_
    if not names:
        raise click.UsageError("the model does not know the name of its target: give --target.")
    classes = getattr(fitted, "classes_", None)
    return names, target_of(table, names, labels=classes is not None, path=data, like=classes)


# ---- evaluate ----------------------------------------------------------------------------------------------------
@main.command()
@MODEL
@DATA
@click.option("--target", help="Target column(s); by default those of the fit.")
@click.option("--level", default=0.9, show_default=True, type=LEVEL, help="Level of the coverage.")
@OFFSET
@click.option("--calibration", "report", is_flag=True, help="Also coverage at four levels, PIT moments, Brier, CRPS.")
@JSON
def evaluate(
    model: str, data: str, target: str | None, level: float, offset: str | None, report: bool, as_json: bool
) -> None:
    """Held-out log density, error and coverage of a model on DATA."""
    from ggpm.prediction.evaluation import evaluate as measure

    fitted, table, X = _load_with(model, data)
    names, y = _target(fitted, table, target, data)
    extra = _offset_of(fitted, table, offset, data)
    with warnings_told(), Waiting(f"evaluating {len(X)} rows"):
        try:
            result = measure(fitted, X, y, level=level, offset=extra)
            if report:
                from ggpm.prediction.calibration import calibration

                result = result | calibration(fitted, X, y, offset=extra).frame["value"].to_dict()
        except ValueError as error:
            raise ValueError(Message(f"{data}, target {', '.join(names)}: ", error)) from error
    tell(result, as_json)


# ---- plot --------------------------------------------------------------------------------------------------------
@main.command()
@MODEL
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="PNG, PDF or SVG file.")
@click.option(
    "--kind",
    default="auto",
    show_default=True,
    type=click.Choice(
        ["auto", "angles", "polar", "bands", "ternary", "classes", "ordinal", "evidence", "pit", "calibration"]
    ),
)
@click.option("--feature", help="Input column on the horizontal axis; two, separated by a comma, for classes.")
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

    fitted = _load(model)
    chosen = plotting.kind_of_picture(fitted) if kind == "auto" else kind
    columns = split_columns(feature) if feature else []
    if chosen in ("pit", "calibration"):
        if data is None:
            raise click.UsageError(f"--kind {chosen} needs --data: rows that were not fitted.")
        fitted, table, X = _load_with(model, data)
        y = _target(fitted, table, target, data)[1]
        draw_check = {"pit": plotting.plot_pit, "calibration": plotting.plot_calibration}[chosen]
        ax = draw_check(fitted, X, y, offset=_offset_of(fitted, table, None, data))
    elif chosen == "evidence":
        ax = plotting.plot_evidence(fitted)
    elif chosen == "classes":
        ax = plotting.plot_class_map(fitted, tuple(columns) if len(columns) == 2 else (0, 1))  # type: ignore[arg-type]
    else:
        draw: Any = {
            "angles": plotting.plot_angles,
            "polar": plotting.plot_polar,
            "bands": plotting.plot_bands,
            "ternary": plotting.plot_ternary,
            "ordinal": plotting.plot_ordinal,
        }[chosen]
        ax = draw(fitted, columns[0] if columns else 0)
    ax.figure.savefig(out, dpi=150)
    tell({"out": out, "kind": chosen}, as_json)


# ---- families, demo ----------------------------------------------------------------------------------------------
@main.command()
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


@main.command()
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
        model = _watched(GGPRegressor(VonMises(units="degrees")), bar).fit(table[["hour"]], table["wind"])
    save(model, folder / "wind.ggpm")
    plotting.plot_angles(model).figure.savefig(folder / "wind.png", dpi=150)
    files = [str(folder / name) for name in ("wind.csv", "wind.ggpm", "wind.png")]
    tell({"files": files, "training_score": float(model.score(table[["hour"]], table["wind"]))}, as_json)


if __name__ == "__main__":
    main()
