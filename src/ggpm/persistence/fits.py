"""Fits as one JSON document with arrays, and back: family, kernels, columns, target, and what was learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.data.columns import KINDS, Column, Columns
from ggpm.data.door import Target
from ggpm.families.base import Family
from ggpm.families.censored import Censored, why_not
from ggpm.families.partial import KNOWN, Partial
from ggpm.families.weighted import Weighted
from ggpm.fields.dense import KernelMatrices
from ggpm.fields.inducing.posterior import InducingPosterior
from ggpm.fields.neighbours.posterior import NeighboursPosterior
from ggpm.learning.fit import Fit
from ggpm.learning.objective import Evidence
from ggpm.learning.recalibration import COSINES, LARGEST_COEFFICIENT, POLYNOMIALS, Recalibration
from ggpm.learning.sharpening import LARGEST_LOG_POWER, Law, Sharpening
from ggpm.learning.trials import SearchTable, Trial
from ggpm.persistence.checks import names, number, text
from ggpm.persistence.packing import pack, require, unpack
from ggpm.persistence.posteriors import posterior_restored, posterior_written
from ggpm.sites import Rule

FORMAT = 2
"""Version of the file format; a file of a newer one is refused. 2 has columns that are not numbers, and offsets by
name; what format 1 can hold is still written as such, so that version 0.1 reads it."""

ZERO_DIGEST = "0" * 64
# What fits that are averaged have each for itself.
OF_A_MEMBER = {
    "family", "weighted", "partial", "kernels", "inference", "posterior", "curvature", "log_evidence", "n_iter",
    "converged", "weight", "neighbours", "curvature_of_sites",
}  # fmt: skip


def written(model: Any, fit: Fit) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """The document and the arrays of one fit."""
    from ggpm import __version__

    entries, arrays = posterior_written(fit)
    rows_stored = entries["posterior"] != "sparse"
    likelihood = fit.evidence.family
    row_shape = list(likelihood.row_shape) if isinstance(likelihood, Weighted) and rows_stored else None
    inner = likelihood.base if isinstance(likelihood, Weighted) else likelihood
    plain = fit.columns.plain and fit.offset is None and likelihood is fit.family
    document = {
        "sha256": ZERO_DIGEST,  # first, so that the first occurrence in the file is this one
        "names": "full",  # of classes that did not come with the package
        "format": 1 if plain and "neighbours" not in entries else FORMAT,
        "ggpm": __version__,
        "estimator": type(model).__name__,
        "params": {name: pack(value, name) for name, value in model.get_params(deep=False).items()},
        "family": pack(fit.family, "family_"),
        "weighted": row_shape,  # shape of a row of y without the weight behind it
        "partial": rows_stored and isinstance(inner, Partial),  # whether parts of y may be missing
        "censored": rows_stored and isinstance(inner, Censored),  # whether y is bounds
        "kernels": [pack(kernel, "kernel_") for kernel in fit.kernels],
        "inference": pack(fit.rule, "inference"),
        **entries,
        "log_evidence": float(fit.log_evidence),
        "n_iter": int(fit.n_iter),
        "converged": bool(fit.converged),
        "curvature_of_sites": fit.curvature,
        "weight": float(fit.weight),
        **({} if fit.recalibration is None else {"recalibration": packed_law(fit.recalibration), "format": FORMAT}),
        "feature_names": None if fit.columns.names is None else list(fit.columns.names),
        "columns": _packed_columns(fit.columns),
        "offset": fit.offset,
        "target_names": fit.target.names,
        "target_kind": fit.target.kind,
        "classes": pack(fit.target.classes, "classes_"),
    }
    return document, arrays


def restored(
    document: dict[str, Any], arrays: dict[str, NDArray], kind: Any, known: Mapping[str, Mapping[str, type]]
) -> Fit:  # fmt: skip
    """The fit that a document tells of; arrays that it uses are taken out."""
    family = unpack(document.get("family"), known)
    require(isinstance(family, Family) and type(family.latent_dim) is int, "family must be a family")
    packed: Any = document.get("kernels")
    require(isinstance(packed, list) and len(packed) in (1, family.latent_dim), "one kernel, or one per dimension")
    kernels = [unpack(k, known) for k in packed]
    require(all(isinstance(k, sk.Kernel) for k in kernels), "kernels must be kernels")
    method = unpack(document.get("inference"), known)
    require(isinstance(method, Rule), "inference must be an inference method")
    posterior, field = posterior_restored(document, arrays, family, kernels, known)
    features = posterior.inputs.shape[1]

    labels = names(document, "feature_names", features)
    frame = document.get("target_kind")
    classes = _classes(kind, unpack(document.get("classes"), known), family)
    return Fit(
        Evidence(_likelihood(family, document), kernels, field, method),
        posterior,
        number(document, "log_evidence"),
        int(number(document, "n_iter")),
        document.get("converged") is True,
        Columns(features, None if labels is None else tuple(labels), _columns(document, labels, features, known)),
        Target(names(document, "target_names", None), frame if frame in ("pandas", "polars") else None, classes),
        offset=text(document, "offset") if document.get("offset") is not None else None,
        weight=number(document, "weight") if "weight" in document else 1.0,
        recalibration=law_of(document, family),
        curvature=text(document, "curvature_of_sites") if "curvature_of_sites" in document else "",
    )


def packed_law(law: Law) -> dict[str, Any]:
    """What corrects predictions as a document."""
    if isinstance(law, Sharpening):
        return {"power": law.power}
    return {"coefficients": list(law.coefficients), "circular": law.circular, "fewest": law.fewest}


def law_of(document: Mapping[str, Any], family: Family) -> Law | None:
    """What corrects predictions of the family as a document tells; None for those that say nothing of it."""
    packed: Any = document.get("recalibration")
    if packed is None:
        return None
    entries = {"power"} if family.finite else {"coefficients", "circular", "fewest"}
    require(isinstance(packed, dict) and set(packed) == entries, "recalibration must be a law")
    if family.finite:
        power = number(packed, "power")
        require(abs(np.log(power)) <= LARGEST_LOG_POWER if power > 0 else False, "recalibration has another power")
        return Sharpening(power)
    c, circular, fewest = packed["coefficients"], packed["circular"], packed["fewest"]
    most = COSINES if circular is True else POLYNOMIALS
    right = type(circular) is bool and isinstance(c, list) and len(c) <= most
    right = right and all(type(x) is float and abs(x) < LARGEST_COEFFICIENT for x in c)
    require(right and type(fewest) is float and fewest >= 0.0, "recalibration has other coefficients")
    return Recalibration(tuple(c), circular, fewest)


def search_table(document: dict[str, Any]) -> SearchTable | None:
    """The table of kernels that were tried; None for files that say nothing of it."""
    trials: Any = document.get("search")
    if trials is None:
        return None
    types = get_type_hints(Trial)
    require(isinstance(trials, list), "search must be a list")
    for trial in trials:
        known = isinstance(trial, dict) and set(types) - {"without"} <= set(trial) <= set(types)
        require(known, "a trial has other entries")
        require(all(type(value) is types[name] for name, value in trial.items()), "a trial has values of other types")
    return SearchTable(tuple(Trial(**trial) for trial in trials))


def _likelihood(family: Family, document: dict[str, Any]) -> Family:
    """The family of the rows, of which parts may be missing, and which may have weights."""
    shape = document.get("weighted")
    if document.get("partial") is True:
        require(type(family) in KNOWN, "parts of this family's y cannot be missing")
        family = Partial(family)
    if document.get("censored") is True:
        require(not why_not(family), "this family's y cannot be censored")
        family = Censored(family)
    if shape is None:
        return family
    require(isinstance(shape, list) and all(type(s) is int and s > 0 for s in shape), "weighted must be a shape")
    return Weighted(family, tuple(shape))


def _packed_columns(columns: Columns) -> Any:
    if columns.members is None:
        return None
    return [
        {"kind": column.kind, "zone": column.zone, "labels": pack(column.labels, "columns")}
        for column in columns.members
    ]


def _columns(
    document: dict[str, Any], names: list[str] | None, count: int, known: Mapping[str, Mapping[str, type]]
) -> tuple[Column, ...] | None:
    """What each column holds; None for files that say nothing of it, those of version 0.1 among them."""
    packed = document.get("columns")
    if packed is None:
        return None
    require(isinstance(packed, list) and len(packed) == count, f"columns must be a list of {count}")
    out = []
    for j, entry in enumerate(packed):
        require(isinstance(entry, dict) and entry.get("kind") in KINDS, "a column is of unknown kind")
        labels = unpack(entry.get("labels"), known)
        right = isinstance(labels, tuple) and len(labels) > 0 and len(set(labels)) == len(labels)
        right = right and all(isinstance(label, str | int | float) for label in labels)
        require(right if entry["kind"] == "category" else labels is None, "labels belong to categories")
        out.append(Column(None if names is None else names[j], entry["kind"], labels, entry.get("zone") is True))
    return tuple(out)


def _classes(kind: type, classes: Any, family: Family) -> NDArray | None:
    if not hasattr(kind, "predict_proba"):
        require(classes is None, "a regressor has no classes")
        return None
    require(isinstance(classes, np.ndarray) and classes.ndim == 1, "classes must be one row of labels")
    support: Any = family.support
    count = getattr(support, "n_codes", None)
    require(family.finite and count == len(classes), f"{len(classes)} classes do not fit the family")
    return classes


def try_out(fit: Fit) -> None:
    """Evaluate kernels and family at one row, as far as that needs no factorisation."""
    posterior, family = fit.posterior, fit.family
    with np.errstate(all="ignore"):
        require(bool(np.all(np.isfinite(family.log_hyper))), "hyperparameters of the family must be positive")
    inputs, D = posterior.inputs, family.latent_dim
    rows = KernelMatrices([np.asarray(kernel(inputs[:1], inputs)) for kernel in posterior.kernels])
    require(all(k.shape == (1, len(inputs)) for k in rows), "a kernel gives a matrix of the wrong shape")
    name = {InducingPosterior: "v", NeighboursPosterior: "f"}.get(type(posterior), "z")
    weights = getattr(posterior, name)
    weights = weights.T if name == "v" else weights
    with np.errstate(all="ignore"):
        latent = np.stack([rows.of(j) @ weights[:, j] for j in range(D)], axis=1)
        require(bool(np.all(np.isfinite(latent))), "the latent is not finite")
        moment = np.asarray(family.moment(latent), dtype=float)
        require(bool(np.all(np.isfinite(moment))), "the family gives no finite prediction")
        if not isinstance(posterior, InducingPosterior):
            y = fit.evidence.field.y[:1]  # type: ignore[attr-defined]
            require(np.shape(fit.evidence.family.log_prob(latent, y)) == (1,), "y does not fit the family")
