"""``ggpm fit``: a model from a table as it comes."""

from __future__ import annotations

import hashlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import reduce
from operator import add
from typing import Any

import click
import numpy as np

from ggpm import __version__
from ggpm.cli.options import DATA, JSON, is_parquet, names_in, numbers, writable
from ggpm.cli.terminal import Waiting, tell, warn, warnings_told, watched
from ggpm.data.tables import features_of, left_out, read_table, split_columns, target_of
from ggpm.data.text import Message, did_you_mean

CLASSIFIERS = ("categorical", "bernoulli", "ordinal")
COMPOSITIONS = ("dirichlet", "logistic_normal")
UNITS = ("degrees", "radians", "hours")
NOT_CONVERGED, STOPPED = 3, 130


def _units(context: click.Context, option: click.Parameter, text: str | None) -> str | tuple[float, float] | None:
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


def _kernel(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    from ggpm.kernels import KernelTextError, kernel_from_text

    try:
        return None if text is None else kernel_from_text(text)
    except KernelTextError as error:
        raise click.BadParameter(str(error), param_hint="--kernel") from None


# ---- the command -----------------------------------------------------------------------------------------------------
@click.command()
@DATA
@click.option("--target", required=True, help="Column to predict; several, separated by commas, for vectors.")
@click.option("--family", required=True, help="What an output is; see `ggpm families`.")
@click.option("--features", help="Input columns, separated by commas; by default all other columns.")
@click.option("--ignore", help="Columns that are no inputs.")
@click.option("--time", help="Input columns that are times; those in the ISO format are known for it.")
@click.option("--category", help="Input columns whose values are labels, even where they look like numbers.")
@click.option("--group", help="Input columns of labels, each of which has a level of its own, added to --kernel.")
@click.option(
    "--kernel",
    callback=_kernel,
    help='Such as \'C() * On(Matern(24, nu=1.5), "time") + C() * Category("station")\'; chosen by itself if not given.',
)
@click.option("--standardise", is_flag=True, help="Length scales of --kernel are in units of each column's spread.")
@click.option("--units", callback=_units, help="Angles: degrees, radians, hours, or LOW,HIGH (for example 0,365.25).")
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
    "--averaging",
    type=click.Choice(["auto", "none", "stack", "integrate"]),
    help="Whether and how models are averaged; the default of the library if not given.",
)
@click.option(
    "--recalibration",
    type=click.Choice(["auto", "none", "loo"]),
    help="Whether predictions are corrected by rows that are left out; the default of the library if not given.",
)
@click.option(
    "--restarts", default=0, show_default=True, type=click.IntRange(min=0), help="Further starts of the search."
)
@click.option("--seed", default=0, show_default=True, help="For restarts and inducing points.")
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), callback=writable(),
    help="The model file, by custom NAME.ggpm. While the search runs, OUT.part beside it keeps its state.",
)  # fmt: skip
@JSON
def fit(data: str, target: str, family: str, out: str, as_json: bool, **options: Any) -> None:
    """Learn a model from a CSV or Parquet file.

    ggpm fit data.csv --target dir --family von_mises --units degrees --out model.ggpm

    Names with commas or with spaces at their ends stand in double quotes: --features '"a,b",c'. Ctrl-C ends the search
    with the best model so far; the same command goes on from there, also after the process was killed.
    """
    job = Job(data, split_columns(target), family, out, as_json, options)
    if options["inducing"] is not None and is_parquet(data):
        job.streamed()
    else:
        job.in_memory()


class Job:
    """One fit: what was asked for, and the steps from the table to the file."""

    def __init__(
        self, data: str, targets: list[str], family: str, out: str, as_json: bool, options: dict[str, Any]
    ) -> None:  # fmt: skip
        self.data, self.targets, self.family, self.out = data, targets, family, out
        self.as_json, self.options = as_json, options
        self.ignored, self.groups = names_in(options["ignore"]), names_in(options["group"])
        categories, times = [*names_in(options["category"]), *self.groups], names_in(options["time"])
        both = [name for name in times if name in categories]
        if both:
            raise click.UsageError(f"column {both[0]!r} cannot be a time and a category.")
        self.kinds = dict.fromkeys(categories, "category") | dict.fromkeys(times, "time")
        taken = [name for name in self.kinds if name in [*targets, *self.ignored]]
        if taken:
            raise click.UsageError(f"column {taken[0]!r} is named as an input, and as the target or in --ignore too.")
        if not targets:
            raise click.UsageError("--target names no column.")
        twice = [name for name in self.roles if self.roles.count(name) > 1]
        if twice:
            raise click.UsageError(f"column {twice[0]!r} is named twice among --target, --offset and --weight.")
        features = names_in(options["features"])
        wrong = [name for k, name in enumerate(features) if name in [*targets, *features[:k]]]
        if wrong:
            what = "the target too" if wrong[0] in targets else "there twice"
            raise click.UsageError(f"column {wrong[0]!r} in --features is {what}.")
        self.model = _estimator(family, options)
        self.skipped: dict[str, str] = dict.fromkeys(self.ignored, "in --ignore")

    @property
    def roles(self) -> list[str]:
        """Columns with another part to play than that of an input."""
        return [*self.targets, *(self.options[name] for name in ("offset", "weight") if self.options[name])]

    def inputs(self, table: Any, gaps: bool = False) -> Any:
        """The input columns of a table."""
        exclude = [*self.roles, *self.ignored]
        chosen = names_in(self.options["features"]) or None
        if chosen is not None:
            chosen += [name for name in self.kinds if name not in chosen]
        with warnings_told():
            X = features_of(table, chosen, exclude=exclude, path=self.data, gaps=gaps, kinds=self.kinds)
        if chosen is None:
            self.skipped |= left_out(table, [*exclude, *self.kinds])
        else:
            self.skipped |= {str(c): "not in --features" for c in table.columns if c not in [*chosen, *exclude]}
        return self._with_kernel(X)

    def _with_kernel(self, X: Any) -> Any:
        """The inputs that the kernel looks at, which is given its groups and units."""
        from ggpm.data.columns import learn
        from ggpm.kernels import Category, placed, standardised, used_columns
        from ggpm.kernels.text import KERNELS

        kernel = self.options["kernel"]
        if kernel is None:
            return X
        constant = KERNELS["ConstantKernel"]
        kernel = reduce(add, [constant() * Category(name) for name in self.groups], kernel)
        columns, encoded = learn(X.dropna(), list(map(str, X.columns)))
        kernel = placed(kernel, columns)
        used = used_columns([kernel], columns.count)
        if self.options["standardise"]:
            kernel = standardised(kernel, encoded, columns)
        self.model.set_params(kernel=kernel)
        if used.all() or not used.any():
            return X
        self.skipped |= {str(name): "no part of --kernel looks at it" for name in X.columns[~used]}
        return X.loc[:, used]

    # ---- rows in memory, rows in chunks ------------------------------------------------------------------------------
    def in_memory(self) -> None:
        """Fit to all rows at once."""
        labels = self.family in CLASSIFIERS
        text = [name for name, kind in self.kinds.items() if kind == "category"] + self.targets * labels
        table = read_table(self.data, text=text)
        given = {name: self.options[name] for name in ("offset", "weight")}
        offset, weight = (None if name is None else numbers(table, name, self.data) for name in given.values())
        y = target_of(table, self.targets, labels=labels, path=self.data, gaps=True)
        X = self.inputs(table)
        if self.family == "bernoulli" and len(set(y.dropna().tolist())) > 2:
            raise click.UsageError("--family bernoulli has two classes, the target has more. Try --family categorical.")
        self._learn(f"fitting {self.family} to {len(X)} rows", X, y, weight, offset=offset)
        whole = y.notna().to_numpy().reshape(len(y), -1).all(axis=1)
        parts = [None if part is None else part[whole] for part in (offset, weight)]
        score = float(self.model.score(X[whole], y[whole], parts[1], offset=parts[0]))
        self._finish(X, training_score=score)

    def streamed(self) -> None:
        """Fit to a Parquet file that need not fit into memory: its rows are read in chunks, pass by pass."""
        from ggpm.data.parquet import ParquetRows, first_rows

        first = first_rows(self.data)
        X = self.inputs(first, gaps=True)  # what columns are for shows in the first rows
        other = [name for name in X.columns if name in self.kinds and X[name].dtype != first[name].dtype]
        if other:
            raise click.UsageError(
                f"column {other[0]!r} of {self.data} is not stored as what --category, --group or --time say, and "
                "rows in chunks are taken as they are: write it as text or as times."
            )
        features = list(map(str, X.columns))
        named = {"offset": self.options["offset"], "weight": self.options["weight"]}
        target = self.targets[0] if len(self.targets) == 1 else self.targets
        rows = ParquetRows(self.data, features, target, **named)
        self._learn(f"fitting {self.family} to {rows.n_rows} rows, in chunks", rows)
        self._finish(X)

    # ---- learning ----------------------------------------------------------------------------------------------------
    def _learn(self, what: str, *rows: Any, **more: Any) -> None:
        from ggpm.learning.journal import Journal

        journal = Journal(f"{self.out}.part", self._key())
        if journal.known:
            warn(f"going on from {self.out}.part, after {journal.known} steps.")
        self.model.journal = journal
        with warnings_told(), Waiting(what) as bar, _stoppable(journal):
            try:
                watched(self.model, bar).fit(*rows, **more)
            except ValueError as error:
                journal.close(remove=True)
                raise ValueError(Message(f"{self.data}, target {', '.join(self.targets)!r}: ", error)) from error

    def _key(self) -> str:
        """Fingerprint of the data and of all that decides what is learned from it."""
        from ggpm.kernels import kernel_text

        digest = hashlib.sha256()
        with open(self.data, "rb") as file:
            while piece := file.read(2**20):
                digest.update(piece)
        kernel = self.options["kernel"]
        asked = {**self.options, "kernel": None if kernel is None else kernel_text(kernel)}
        digest.update(repr((__version__, np.__version__, self.targets, self.family, sorted(asked.items()))).encode())
        return digest.hexdigest()

    def _finish(self, X: Any, **more: Any) -> None:
        """Write a fitted model, and tell what it is."""
        from ggpm import save
        from ggpm.kernels import KernelTextError, kernel_text

        model, journal = self.model, self.model.journal
        stopped, model.journal = journal.stopped, None
        save(model, self.out)
        journal.close(remove=not stopped)
        try:
            kernel = "; ".join(map(kernel_text, model.fit_.kernels))
        except KernelTextError:
            kernel = str(model.kernel_)
        columns = model.fit_.columns
        result = {
            "model": self.out,
            "family": self.family,
            "rows": model.fit_.evidence.field.n_rows,  # those that were used
            "target": self.targets,
            "features": list(map(str, X.columns)),
            "kinds": dict(zip(map(str, X.columns), columns.kinds)),
            "skipped": self.skipped,
            **more,
            "inference": model.inference_,
            "kernel": kernel,
            "log_evidence": float(model.log_marginal_likelihood_value_),
            "converged": bool(model.converged_),
            "iterations": int(model.n_iter_),
        }
        tried = model.fit_.search
        if self.as_json:
            result["search"] = None if tried is None else [_without_time(trial) for trial in tried]
        else:
            result["kernel"] = str(model.kernel_)
        tell(result, self.as_json)
        if tried is not None and not self.as_json:
            click.echo(f"\nkernels that were tried:\n{tried!r}")
        if stopped:
            warn(f"stopped: {self.out} is the best so far. The same command again goes on from {self.out}.part.")
            sys.exit(STOPPED)
        if not model.converged_:
            sys.exit(NOT_CONVERGED)


def _without_time(trial: Any) -> dict[str, Any]:
    """A line of the table of kernels that is the same every time."""
    return {name: value for name, value in asdict(trial).items() if name != "seconds"}


@contextmanager
def _stoppable(journal: Any) -> Iterator[None]:
    """While this lasts, Ctrl-C (or SIGTERM) ends the search with the best so far; a second one ends the process."""

    def stop(number: int, frame: Any) -> None:
        if journal.stopped:
            raise KeyboardInterrupt
        journal.stopped = True
        warn("stopping after this step; once more to stop at once.")

    try:
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _estimator(family: str, options: dict[str, Any]) -> Any:
    from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families

    try:
        instance: Any = families.get(family)
    except ValueError:
        known = families.FAMILIES | families.MIXED
        raise click.BadParameter(
            f"{family!r} is not one of {', '.join(sorted(known))}, nor {', '.join(families.WRAPPERS)} before one of "
            f"them.{did_you_mean(family, known)}",
            param_hint="--family",
        ) from None
    settings = {
        "inference": options["inference"],
        "inducing": options["inducing"],
        "neighbours": options["neighbours"],
        "n_restarts_optimizer": options["restarts"],
        "random_state": options["seed"],
    }
    settings |= {name: options[name] for name in ("averaging", "recalibration") if options[name] is not None}
    if options["standardise"] and options["kernel"] is None:
        raise click.UsageError("--standardise belongs to --kernel: without it, columns are measured in their spread.")
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
