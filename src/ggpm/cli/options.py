"""Options that several commands share, and what they mean: models, tables, columns, files to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ggpm.data.tables import (
    TableError,
    check_writable,
    column_as_numbers,
    features_of,
    read_table,
    split_columns,
    target_of,
)

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on the standard output.")
OFFSET = click.option("--offset", help="Column added to the latent, 0 for none; by default that of the fit.")
LEVEL = click.FloatRange(0, 1, min_open=True, max_open=True)
TABLES = (".csv", ".parquet", ".pq")
PICTURES = (".png", ".pdf", ".svg")


def _apart(out: str, read: str, name: str) -> None:
    """Refuse to write over a file that is read."""
    if Path(out).exists() and Path(read).exists() and Path(out).samefile(read):
        raise click.UsageError(f"--out {out} is {name.upper()} itself, which would be lost.")


def _readable(context: click.Context, argument: click.Parameter, path: str) -> str:
    """Callback of an argument that names a file to read."""
    if context.params.get("out") is not None:
        _apart(context.params["out"], path, str(argument.name))
    return path


def writable(*kinds: str) -> Any:
    """Callback of an option that names a file to write, of one of these endings: told before the work, not after."""

    def check(context: click.Context, option: click.Parameter, path: str | None) -> str | None:
        if path is not None:
            check_writable(path, kinds)
            for name in ("data", "model"):  # those that were met before; the others look themselves
                if context.params.get(name) is not None:
                    _apart(path, context.params[name], name)
        return path

    return check


MODEL = click.argument("model", type=click.Path(exists=True, dir_okay=False), callback=_readable)
DATA = click.argument("data", type=click.Path(exists=True, dir_okay=False), callback=_readable)


def names_in(text: str | None) -> list[str]:
    """Columns that an option names."""
    return [] if text is None else split_columns(text)


def is_parquet(path: str) -> bool:
    """Whether a file is a Parquet file, by its ending."""
    return Path(path).suffix.lower() in (".parquet", ".pq")


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def load_model(path: str) -> Any:
    """The model in a file; errors name the file."""
    from ggpm import LoadError, load

    try:
        return load(path)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from error


def load_with(model: str, data: str, gaps: bool = False, target: str | None = None) -> tuple[Any, Any, Any]:
    """A model, a table, and the table's columns that the model needs."""
    fitted = load_model(model)
    names = getattr(fitted, "feature_names_in_", None)
    if names is None:
        raise ValueError(f"{model} was fitted without column names; use it from Python.")
    columns, names = fitted.fit_.columns, list(map(str, names))
    labels = [name for name, kind in zip(names, columns.kinds) if kind == "category"]
    if hasattr(fitted, "classes_"):
        labels += names_in(target) or fitted.target_names_ or []
    table = read_table(data, text=labels)
    return fitted, table, features_of(table, names, exclude=[], path=data, like=columns, gaps=gaps)


def numbers(table: Any, name: str, data: str) -> Any:
    """A column of numbers with its name, which the model remembers."""
    import pandas as pd

    return pd.Series(column_as_numbers(table, name, data), name=name)


def offset_of(fitted: Any, table: Any, offset: str | None, data: str) -> Any:
    """The offset of new rows: the column that is named, 0 for none, or the one that the model was fitted with."""
    if offset == "0" and offset not in table.columns:
        return 0.0
    name = fitted.fit_.offset if offset is None else offset
    if offset is None and name is not None and name not in table.columns:
        raise TableError(
            f"{data}: the model was fitted with the offset {name!r}, and there is no such column. Give --offset "
            "COLUMN, or --offset 0 for none."
        )
    return None if name is None else numbers(table, name, data)


def outputs_of(fitted: Any, table: Any, target: str | None, data: str) -> tuple[list[str], Any]:
    """Names and values of the target columns: those given, or those of the fit."""
    names = names_in(target) or fitted.target_names_
    if not names:
        raise click.UsageError("the model does not know the name of its target: give --target.")
    classes = getattr(fitted, "classes_", None)
    return names, target_of(table, names, labels=classes is not None, path=data, like=classes, gaps=True)
