"""A finished analysis as one file to hand on: `report` writes an HTML page without a network, and its JSON twin.

`facts.py` collects the numbers (the twin is exactly these), `figures.py` draws, `words.py` finds the sentences, and
`page.html` lays them out; it escapes every value, so that names and labels are text whatever they contain.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError

from ggpm.data.checks import check_level
from ggpm.data.files import replacing
from ggpm.data.gaps import rows_with_y
from ggpm.prediction.bounds import numbers_of
from ggpm.reporting.facts import collect
from ggpm.reporting.words import on_rows_seen

__all__ = ["report"]


def report(
    model: Any, X: Any, y: Any, path: str | os.PathLike, *, offset: Any = None, level: float = 0.9,
    title: str | None = None, command: str | None = None,
) -> Path:  # fmt: skip
    """One self-contained HTML file about a fitted model and how it does on rows that it has not seen.

    A verdict against the best constant and a linear model, the data, the model in words with its hyperparameters,
    predictions and effects, coverage and scores, the worst rows, how far the new rows lie from the training ones, and
    what is needed to repeat it. A file of the same name that ends in ``.json`` has all of its numbers.

    Parameters
    ----------
    model : fitted estimator
    X, y : inputs and outputs that were not used in `fit`; rows whose y is missing are left out, with a warning
    path : where the page is written; ``.json`` takes the place of its ending for the twin
    offset : as in `predict`
    level : probability of credible regions
    title : heading of the page
    command : what made it, for the record; None: the call in Python

    Returns
    -------
    path of the page

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, ggpm
    >>> x = np.arange(24.0)[:, None]
    >>> model = ggpm.GGPRegressor("poisson").fit(x[::2], np.arange(24)[::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report(model, x[1::2], np.arange(24)[1::2], f"{folder}/counts.html")
    ...     page.name, sorted(p.name for p in page.parent.iterdir())
    ('counts.html', ['counts.html', 'counts.json'])
    """
    check_level(level, "level")
    if not hasattr(model, "fit_"):
        raise _not_a_model(model)
    out = Path(path)
    if out.suffix.lower() == ".json":
        raise ValueError(f"path must be that of the page, such as report.html; got {out.name}, the name of its twin.")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent} to write the report into.")
    X, y, offset = rows_with_y(X, y, offset)
    y = numbers_of(model, y, "a report")
    facts = collect(model, X, y, offset=offset, level=level, command=command)
    from ggpm.reporting.figures import draw
    from ggpm.reporting.page import render

    if seen := facts["data"]["rows_seen"]:
        warnings.warn(on_rows_seen(seen, len(y)), stacklevel=2)
    pictures = draw(model, X, y, offset=offset, level=level, hyperparameters=facts["model"]["hyperparameters"])
    heading = title or f"{facts['model']['family']} model of {facts['data']['target']}"
    with replacing(out) as temporary:
        temporary.write_text(render(heading, facts, pictures), encoding="utf-8")
    with replacing(out.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps({"title": heading, **facts}, indent=1, allow_nan=False), encoding="utf-8")
    return out


def _not_a_model(model: Any) -> Exception:
    """The error for what is no fitted estimator of ggpm."""
    name = type(model).__name__
    if hasattr(model, "steps"):
        last = type(model.steps[-1][1]).__name__
        return TypeError(
            f"report takes a fitted estimator of ggpm; got {name}. Give its last step, and X as the steps before make "
            f"it: report(pipeline[-1], pipeline[:-1].transform(X), y, path), where pipeline[-1] is the {last}."
        )
    if hasattr(model, "family"):
        return NotFittedError(f"this {name} is not fitted yet. Call fit before report.")
    return TypeError(f"report takes a fitted estimator of ggpm, such as GGPRegressor; got {name}.")
