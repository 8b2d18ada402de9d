"""The numbers of a report, as plain values that JSON can hold."""

from __future__ import annotations

import hashlib
import math
import platform
import sys
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ggpm
from ggpm.data import frames
from ggpm.data.columns import time_text
from ggpm.families.base import Family
from ggpm.families.ordinal import Ordinal
from ggpm.learning import priors
from ggpm.learning.fit import RowsNotStored
from ggpm.learning.information import known
from ggpm.prediction.calibration import calibration
from ggpm.prediction.description import readable_names
from ggpm.prediction.kinds import kind_of
from ggpm.reporting.baselines import baselines
from ggpm.reporting.words import family_in_words, formula, kernel_in_words, on_rows_seen, phi_in_words, verdict

WORST = 10  # rows that are listed because y was least expected there
DIAGNOSED = 5000  # rows up to which the posterior is diagnosed: a second or two
LISTED = 40  # entries of tables whose length the data decide: columns, hyperparameters, notes
FAR = 0.5  # share of the prior variance that is left where a row is called far from the training rows
PACKAGES = ("ggpm", "numpy", "scipy", "scikit-learn", "pandas", "matplotlib")


def collect(model: Any, X: Any, y: Any, *, offset: Any, level: float, command: str | None) -> dict[str, Any]:
    """All numbers and names that the page shows, by section."""
    if len(y) < 2:
        raise ValueError(f"a report needs two rows or more to judge the model by; got {len(y)}.")
    codes, family = model.codes(y), model.family_
    encoded = family.encode(codes)
    density = model.log_predictive_density(X, y, offset=offset)
    trust = _trust(model, X, y, offset, level, density, encoded)
    simpler = baselines(model, X, y, offset, density)
    seen = rows_seen(model, X, y)
    out = {
        "verdict": [on_rows_seen(seen, len(y)), *verdict(family, trust, simpler, "row")]
        if seen
        else verdict(family, trust, simpler),
        "data": _data(model, X, y) | {"rows_seen": seen},
        "model": _model(model),
        "convergence": _convergence(model),
        "trust": trust,
        "baselines": simpler,
        "worst": _worst(model, X, y, offset, density),
        "limits": _limits(model, X, offset),
        "provenance": _provenance(model, X, y, command),
    }
    return plain(out)


def plain(value: Any) -> Any:
    """The same in types of JSON; what is no number there is None.

    >>> plain({"a": np.float64(1.5), "b": (np.int64(2), float("nan"))})
    {'a': 1.5, 'b': [2, None]}
    """
    if isinstance(value, dict):
        return {str(name): plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(v) for v in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return None if value is None else str(value)


def _mean_and_error(values: NDArray) -> dict[str, float]:
    """Mean over the rows, and its standard error."""
    return {"mean": float(np.mean(values)), "standard_error": float(np.std(values, ddof=1) / np.sqrt(len(values)))}


def rows_seen(model: Any, X: Any, y: Any) -> int:
    """Number of rows that are training rows, judging by X and y; none where no more are than chance would have.

    Rows of few distinct values meet their like among others by chance: as often as training rows do.
    """
    fit = model.fit_
    if not hasattr(fit.evidence.field, "y"):
        return 0
    training = _keys(fit.evidence.field.X, fit.evidence.family.decode(fit.evidence.field.y))
    given = _keys(fit.columns.encode(X), model.family_.decode(model.family_.encode(model.codes(y))))
    times = Counter(training)
    seen, n = sum(key in times for key in given), len(given)
    twins = sum(count for count in times.values() if count > 1) / len(training)
    return seen if seen > n * twins + 3 * math.sqrt(n * twins * (1 - twins)) else 0


def _keys(X: NDArray, y: Any) -> list[bytes]:
    """A text for every row that is that of another row if X and y are."""
    both = np.concatenate([X, np.asarray(y, dtype=float).reshape(len(X), -1)], axis=1) + 0.0  # there is one zero
    return [row.tobytes() for row in np.ascontiguousarray(both)]


def _data(model: Any, X: Any, y: Any) -> dict[str, Any]:
    columns, inputs = model.fit_.columns, model.fit_.posterior.inputs
    kept = getattr(model.fit_.evidence.field, "n_rows", 0) or None  # none where rows did not come with the file
    named = [
        {
            "name": columns.names[j] if columns.names else f"column {j}",
            "kind": kind,
            "low": None if kind == "category" else _end(kind, inputs[:, j].min()),
            "high": None if kind == "category" else _end(kind, inputs[:, j].max()),
            "labels": len(columns.members[j].labels) if kind == "category" else None,
        }
        for j, kind in enumerate(columns.kinds[:LISTED])
    ]
    names = model.target_names_
    return {
        "target": ", ".join(map(str, names)) if names else "y",
        "parts": [str(name) for name in names or []],
        "classes": [str(label) for label in getattr(model, "classes_", [])[:LISTED]],
        "training_rows": kept,
        "held_out_rows": len(y),
        "columns": named,
        "columns_not_listed": max(0, columns.count - LISTED),
    }


def _end(kind: str, value: float) -> float | str:
    """An end of a column's range: a date of times, a number of others."""
    return time_text(value) if kind == "time" else value


def _model(model: Any) -> dict[str, Any]:
    fit = model.fit_
    names = priors.names_of(fit.kernels, fit.evidence.family)
    table = []
    learned = model.optimizer is not None and not isinstance(fit.evidence.field, RowsNotStored)
    sure = (
        known(fit.evidence).value_interval(0.9) if learned and fit.theta.size else np.full((fit.theta.size, 2), np.nan)
    )
    phi, called = _dispersion(fit.family), readable_names(fit)
    called += names[len(called) :]
    for name, word, value, (low, high), ends in zip(names, called, fit.theta, fit.evidence.bounds, sure):
        # logarithms are kept: of entries such as those of a Cholesky factor or cut points the exponential means nothing
        at = "lower" if np.isclose(value, low) else "upper" if np.isclose(value, high) else ""
        own = name.rpartition("__")[2] == "phi" and (
            phi is None or len(phi) > 1 or not np.isclose(np.exp(value), phi[0])
        )
        table.append({
            "name": name, "called": word,
            "log_value": value, "value": None if own else np.exp(value), "lower": np.exp(low),
            "upper": np.exp(high), "at_bound": at if low < high else "",
            "interval": None if own or np.isnan(ends).any() else ends,
        })  # fmt: skip
    if isinstance(fit.family, Ordinal) and fit.family.learns_phi:
        _as_cut_points(table, fit.family)
    return {
        "estimator": type(model).__name__,
        "family": type(fit.family).__name__,
        "in_words": family_in_words(fit.family),
        "formula": formula(fit.family, len(fit.kernels)),
        "kernels": [str(kernel) for kernel in fit.kernels],
        "kernels_in_words": [kernel_in_words(kernel) for kernel in fit.kernels],
        "latents": fit.family.latent_dim,
        "inference": model.inference_,
        "dispersion": phi,
        "dispersion_in_words": phi_in_words(fit.family),
        "hyperparameters": table[:LISTED],
        "hyperparameters_not_listed": max(0, len(table) - LISTED),
        "log_evidence": fit.log_evidence,
        "gaussian_posterior": _gaussian_posterior(model),
    }


def _as_cut_points(table: list[dict[str, Any]], family: Ordinal) -> None:
    """Tell the last rows as what they are: the first cut point, which is no logarithm, and the gaps that follow it."""
    count = family.log_hyper.size
    for k, row in enumerate(table[len(table) - count :]):
        value = float(row["log_value"])
        if k == 0:
            row |= {"name": "cut point 1", "value": value, "log_value": None, "lower": None, "upper": None}
        else:
            row |= {"name": f"cut point {k + 1}, less the one before", "value": math.exp(value)}
        row["called"] = row["name"]


def _gaussian_posterior(model: Any) -> list[str]:
    """Sentences on whether the Gaussian posterior is good enough, where the rows are at hand and not too many."""
    field = model.fit_.evidence.field
    if not hasattr(field, "y") or field.n_rows > DIAGNOSED:
        return []
    return repr(model.diagnose(draws=1000)).splitlines()


def _dispersion(family: Family) -> list[float] | None:
    """phi as the user would write it, flat."""
    phi = getattr(family, "phi", None)
    return None if phi is None or not family.log_hyper.size else np.ravel(np.asarray(phi, dtype=float)).tolist()


def _convergence(model: Any) -> dict[str, Any]:
    fit = model.fit_
    return {"converged": fit.converged, "iterations": fit.n_iter, "notes": [str(note) for note in fit.notes[:LISTED]]}


def _trust(model: Any, X: Any, y: Any, offset: Any, level: float, density: NDArray, encoded: NDArray) -> dict[str, Any]:
    found = calibration(model, X, y, offset=offset, levels=(0.5, 0.8, level) if level not in (0.5, 0.8) else (0.5, 0.8))
    trials = encoded.sum(axis=-1) if model.family_.countable else None
    predictive = model.predict_dist(X, offset=offset, trials=trials)
    support, codes = model.family_.support, np.asarray(model.codes(y), dtype=float)
    brier, crps = kind_of(model.family_).scores(predictive, encoded)
    n, where = len(density), found.levels.index(level)
    out = {
        "level": level,
        "coverage": [
            {"level": p, "found": c, "standard_error": float(np.sqrt(p * (1 - p) / n))}
            for p, c in zip(found.levels, found.coverage)
        ],
        "coverage_at_level": found.coverage[where],
        "log_density": _mean_and_error(density),
        "error": _mean_and_error(support.error(codes, model.predict_dist(X, offset=offset).mean())),
        "error_name": support.error_name,
        "score": float(model.score(X, y, offset=offset)),
        "pit_mean": float(found.pit.mean()),
        "pit_variance": float(found.pit.var()),
    }
    for name, values in (("brier", brier), ("crps", crps)):
        if np.all(np.isfinite(values)):
            out[name] = _mean_and_error(values)
    try:
        loo = model.loo()
    except (ValueError, TypeError, np.linalg.LinAlgError):  # rows that were not stored, or that no cavity is known of
        return out
    return out | {"loo": {"mean": loo.mean, "standard_error": loo.standard_error / len(loo.pointwise)}}


def _worst(model: Any, X: Any, y: Any, offset: Any, density: NDArray) -> list[dict[str, Any]]:
    """The held-out rows that the model expected least, worst first."""
    order = np.argsort(density, kind="stable")[:WORST]
    at = _rows(offset, order) if np.ndim(offset) else offset
    prediction = np.asarray(model.predict(_rows(X, order), offset=at))
    observed = np.asarray(y)
    return [
        {
            "row": int(i),
            "observed": _shown(observed[i]),
            "predicted": _shown(prediction[k]),
            "log_density": density[i],
        }
        for k, i in enumerate(order)
    ]


def _rows(X: Any, rows: NDArray) -> Any:
    """Some rows of an array or a data frame."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows.tolist()] if frames.kind_of(X) else np.asarray(X)[rows]


def _shown(value: Any) -> str:
    """An observation in few characters."""
    flat = np.ravel(value).tolist()
    parts = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in flat[:8]]
    return ", ".join(parts) + (", ..." if len(flat) > 8 else "")


def _limits(model: Any, X: Any, offset: Any) -> dict[str, Any]:
    """How far the new rows lie from the training ones: columns beyond their range, and what the prior knows as well."""
    columns, inputs = model.fit_.columns, model.fit_.posterior.inputs
    encoded = columns.encode(X)
    beyond = []
    for j, kind in enumerate(columns.kinds):
        if kind == "category":
            outside = ~np.isin(encoded[:, j], np.unique(inputs[:, j]))
        else:
            outside = (encoded[:, j] < inputs[:, j].min()) | (encoded[:, j] > inputs[:, j].max())
        if outside.any():
            name = columns.names[j] if columns.names else f"column {j}"
            beyond.append({"name": name, "rows": int(outside.sum())})
    _, cov = model.predict_latent(X, offset=offset)
    kernels = model.fit_.kernels
    prior = np.stack([np.asarray(kernel.diag(encoded), dtype=float) for kernel in kernels], axis=1)
    left = np.einsum("ijj->ij", cov) / np.where(prior > 0, prior, 1.0)
    share = np.clip(left.mean(axis=1), 0.0, 1.0)
    return {
        "beyond": beyond[:LISTED],
        "unexplained_share": {q: float(np.quantile(share, q)) for q in (0.1, 0.5, 0.9)},
        "far_rows": int(np.sum(share > FAR)),
        "far_means": FAR,
    }


def _provenance(model: Any, X: Any, y: Any, command: str | None) -> dict[str, Any]:
    digest = hashlib.sha256(np.ascontiguousarray(model.fit_.columns.encode(X)).tobytes())
    digest.update(np.ascontiguousarray(model.family_.encode(model.codes(y))).tobytes())
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = ggpm.__version__ if name == "ggpm" else version(name)
        except PackageNotFoundError:
            continue
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": sys.version.partition(" ")[0],
        "system": platform.system(),
        "versions": versions,
        "seed": model.get_params().get("random_state"),
        "parameters": {name: repr(value) for name, value in model.get_params(deep=False).items()},
        "held_out_sha256": digest.hexdigest(),
        "command": command or "ggpm.report(model, X, y, path)",
        "citation": [
            "A. B. Chan, Multivariate Generalized Gaussian Process Models, arXiv:1311.0360.",
            f"ggpm {ggpm.__version__}, Gaussian processes for outputs that are not plain real numbers.",
        ],
    }
