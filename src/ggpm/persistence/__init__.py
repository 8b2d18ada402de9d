"""Saving and loading of fitted models: one file, no code in it.

A file is a safetensors container: arrays (training rows, encoded y, sites) and, in its metadata, one JSON document
with everything else. A fitted posterior is determined by its kernels, the training rows, the sites' curvature and
``z = K^-1 m``; the factorisation behind predictive variances is computed again on first use, from the same numbers
by the same code, hence with the same result. So a file holds nothing of a solver's inner life, stays of size O(n D),
and can be read by versions whose solvers work differently. So it is with neighbours: their order and the sparse factor
are found again from the rows. A sparse posterior is small by itself and is stored whole, without the training rows.

What `load` makes from a file: numbers, strings, arrays of float64, and objects of the classes listed here or handed
over by the caller. Nothing is imported by a name in the file. A digest over all bytes tells damage; it is no
signature, so everything is checked as if the digest were not there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk
from sklearn.utils.validation import check_is_fitted

from ggpm.data.columns import KINDS, Column, Columns
from ggpm.data.door import Target
from ggpm.data.files import replacing
from ggpm.estimators import GGPClassifier, GGPOrdinalClassifier, GGPRegressor
from ggpm.families.base import Family
from ggpm.families.censored import Censored, why_not
from ggpm.families.curvature import Blocks, Diagonal, Kronecker, RankOne
from ggpm.families.partial import KNOWN, Partial
from ggpm.families.weighted import Weighted
from ggpm.fields.base import Field
from ggpm.fields.dense import DenseField, DensePosterior, KernelMatrices
from ggpm.fields.inducing.posterior import InducingPosterior
from ggpm.fields.neighbours import Neighbours
from ggpm.fields.neighbours.field import NeighboursField
from ggpm.fields.neighbours.posterior import NeighboursPosterior
from ggpm.learning.contest import SearchTable, Trial
from ggpm.learning.fit import Fit, RowsNotStored
from ggpm.learning.objective import Evidence
from ggpm.persistence.packing import LoadError, check_classes, known_classes, names_users, pack, require, unpack
from ggpm.sites import Rule

__all__ = ["FORMAT", "LoadError", "load", "save"]

FORMAT = 2
"""Version of the file format; a file of a newer one is refused. 2 has columns that are not numbers, and offsets by
name; what format 1 can hold is still written as such, so that version 0.1 reads it."""

MAX_HEADER = 8 * 2**20
"""Most bytes of JSON that `load` will parse: parsed JSON takes many times its size in memory."""

ESTIMATORS = {c.__name__: c for c in (GGPRegressor, GGPClassifier, GGPOrdinalClassifier)}
CURVATURES = {c.__name__: c for c in (Diagonal, RankOne, Kronecker, Blocks)}
# Shapes of the curvatures' arrays in terms of n and D; a star marks those that may be absent.
SHAPES = {
    "Diagonal": {"gamma": "nD"},
    "RankOne": {"gamma": "nD", "omega": "nD", "rho": "n", "nu": "nD*", "gap": "n*"},
    "Kronecker": {"weight": "n", "matrix": "DD"},
    "Blocks": {"values": "nDD"},
}
ZERO_DIGEST = "0" * 64


# ---- saving ------------------------------------------------------------------------------------------------------
def save(model: Any, path: str | os.PathLike) -> None:
    """Write a fitted model to one file.

    The file appears under its name only when it is complete: a crash while saving leaves what was there before.

    Parameters
    ----------
    model : fitted GGPRegressor, GGPClassifier or GGPOrdinalClassifier
    path : str or path
        By convention ending in ``.ggpm``.

    Examples
    --------
    >>> import tempfile, ggpm
    >>> X = np.arange(10.0)[:, None]
    >>> model = ggpm.GGPRegressor("poisson").fit(X, np.arange(10))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ggpm.save(model, f"{folder}/counts.ggpm")
    ...     again = ggpm.load(f"{folder}/counts.ggpm")
    >>> bool(np.all(again.predict(X) == model.predict(X)))
    True
    """
    if type(model) not in ESTIMATORS.values():
        raise TypeError(
            f"save takes a fitted {', '.join(ESTIMATORS)}; got {type(model).__name__}. For a pipeline, save its last "
            "step and keep the steps before it with skops or as code."
        )
    check_is_fitted(model)
    content = _serialise(model)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


# What fits that are averaged have each for itself.
OF_A_MEMBER = {
    "family", "weighted", "partial", "kernels", "inference", "posterior", "curvature", "log_evidence", "n_iter",
    "converged", "weight", "neighbours",
}  # fmt: skip


def _serialise(model: Any) -> bytes:
    from safetensors.numpy import save as to_bytes

    document, arrays = _written(model, model.fit_)
    others = []
    for k, other in enumerate(model.fit_.others):
        written, more = _written(model, other)
        others.append({name: value for name, value in written.items() if name in OF_A_MEMBER})
        arrays |= {f"{k}/{name}": a for name, a in more.items()}
    if others:
        document |= {"others": others, "format": FORMAT}
    if model.fit_.search is not None:
        document["search"] = [asdict(trial) for trial in model.fit_.search]
    if names_users(document):  # which version 0.1 would look for by another name
        document["format"] = FORMAT
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    contiguous = {name: np.ascontiguousarray(a, dtype=np.float64) for name, a in arrays.items()}
    content = to_bytes(contiguous, metadata={"ggpm": text})
    digest = hashlib.sha256(content).hexdigest()
    return content.replace(ZERO_DIGEST.encode(), digest.encode(), 1)


def _written(model: Any, fit: Fit) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """The document and the arrays of one fit."""
    from ggpm import __version__

    posterior = fit.posterior
    field: Any = fit.evidence.field
    near = None
    if isinstance(posterior, InducingPosterior):
        form, arrays = "sparse", _sparse_arrays(posterior)
    elif isinstance(posterior, NeighboursPosterior):
        form, arrays = "neighbours", _neighbours_arrays(posterior, field)
        near = {"kernels": [pack(kernel, "kernel") for kernel in posterior.near],
                "settings": pack(posterior.settings, "neighbours")}  # fmt: skip
    else:
        form, arrays = "exact", _exact_arrays(posterior, field)
    likelihood = fit.evidence.family
    row_shape = list(likelihood.row_shape) if isinstance(likelihood, Weighted) and form != "sparse" else None
    inner = likelihood.base if isinstance(likelihood, Weighted) else likelihood
    plain = fit.columns.plain and fit.offset is None and likelihood is fit.family and near is None
    document = {
        "sha256": ZERO_DIGEST,  # first, so that the first occurrence in the file is this one
        "names": "full",  # of classes that did not come with the package
        "format": 1 if plain else FORMAT,
        "ggpm": __version__,
        "estimator": type(model).__name__,
        "params": {name: pack(value, name) for name, value in model.get_params(deep=False).items()},
        "family": pack(fit.family, "family_"),
        "weighted": row_shape,  # shape of a row of y without the weight behind it
        "partial": form != "sparse" and isinstance(inner, Partial),  # whether parts of y may be missing
        "censored": form != "sparse" and isinstance(inner, Censored),  # whether y is bounds
        "kernels": [pack(kernel, "kernel_") for kernel in fit.kernels],
        "inference": pack(fit.rule, "inference"),
        "posterior": form,
        "curvature": None if form == "sparse" else type(posterior.U).__name__,
        "log_evidence": float(fit.log_evidence),
        "n_iter": int(fit.n_iter),
        "converged": bool(fit.converged),
        "weight": float(fit.weight),
        "feature_names": None if fit.columns.names is None else list(fit.columns.names),
        "columns": _packed_columns(fit.columns),
        "offset": fit.offset,
        "target_names": fit.target.names,
        "target_kind": fit.target.kind,
        "classes": pack(fit.target.classes, "classes_"),
    }
    if near is not None:
        document["neighbours"] = near
    return document, arrays


# ---- loading -----------------------------------------------------------------------------------------------------
def load(path: str | os.PathLike, *, families: Iterable[type[Family]] = (), kernels: Iterable[type] = ()) -> Any:
    """Read a model that `save` wrote.

    Predictions on the machine that saved it are identical to the last bit. `log_marginal_likelihood` works too, at
    any theta, since the training data are in the file (not those of a sparse model: it knows its learned value only).

    Parameters
    ----------
    path : str or path
    families : classes
        Your own families that the file may contain, as classes.
    kernels : classes
        Your own kernels that the file may contain, as classes.

    Raises
    ------
    LoadError
        When the file is damaged, was made by a newer version, contains something unknown, or does not fit together.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".ggpm") as file:
    ...     _ = file.write(b"not a model at all")
    ...     file.flush()
    ...     load(file.name)
    Traceback (most recent call last):
    ...
    ggpm.LoadError: not a ggpm model file, or one that was cut short.
    """
    own = tuple(families), tuple(kernels)
    check_classes(*own)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8:
            raise LoadError("not a ggpm model file, or one that was cut short.")
        if length > MAX_HEADER:
            raise LoadError(f"the header has {length} bytes; at most {MAX_HEADER} are read.")
        content = start + file.read(size - 8)
    try:
        return _restore(content, length, own)
    except LoadError:
        raise
    # whatever else goes wrong inside comes from the content of the file, and is told as that
    except (Exception, RecursionError) as err:
        raise LoadError(f"the file is not a consistent model ({type(err).__name__}: {err}).") from None


def _restore(content: bytes, length: int, own: tuple[tuple[type, ...], tuple[type, ...]]) -> Any:
    from safetensors.numpy import load as from_bytes

    document = _document(content, length)
    known = known_classes(*own, bare=document.get("names") != "full")
    arrays = {name: np.array(a) for name, a in from_bytes(content).items()}
    for name, a in arrays.items():
        require(a.dtype == np.float64, f"array {name} must be float64, not {a.dtype}")
        require(bool(np.all(np.isfinite(a))), f"array {name} has values that are not finite")
    kind = ESTIMATORS.get(_text(document, "estimator"))
    if kind is None:
        raise LoadError(f"unknown estimator {document['estimator']!r}.")

    params: Any = document.get("params")
    require(isinstance(params, dict), "params must be a mapping")
    allowed = set(kind._get_param_names())
    require(set(params) <= allowed, f"unknown parameters {sorted(set(params) - allowed)}")
    main = _restored(document, arrays, kind, known)
    others = []
    listed: Any = document.get("others", [])
    require(isinstance(listed, list) and all(isinstance(entry, dict) for entry in listed), "others must be documents")
    for k, entry in enumerate(listed):
        require(set(entry) <= OF_A_MEMBER, "another fit has entries that are not known")
        its = {name: arrays.pop(name) for name in list(arrays) if name.startswith(f"{k}/")}
        its = {name.partition("/")[2]: a for name, a in its.items()}
        others.append(_restored(document | entry, its, kind, known))
        require(not its, f"unknown arrays {sorted(its)}")
    require(not arrays, f"unknown arrays {sorted(arrays)}")
    weights = [fit.weight for fit in (main, *others)]
    right = all(w > 0 for w in weights) and abs(sum(weights) - 1.0) < 1e-6
    require(right or (not others and "weight" not in document), "weights must be positive, with sum one")
    fit = replace(main, others=tuple(others), search=_search(document))
    _try_out(fit)
    return kind.from_fit({name: unpack(value, known) for name, value in params.items()}, fit)


def _restored(
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
    posterior: Any
    field: Field
    if document.get("posterior") == "sparse":
        posterior, field = _sparse(arrays, family, kernels), RowsNotStored()
    elif document.get("posterior") == "neighbours":
        posterior, field = _neighbours(document, arrays, family, kernels, known)
    else:
        posterior, field = _exact(_text(document, "curvature"), arrays, family, kernels)
    features = posterior.inputs.shape[1]

    names = _names(document, "feature_names", features)
    frame = document.get("target_kind")
    classes = _classes(kind, unpack(document.get("classes"), known), family)
    return Fit(
        Evidence(_likelihood(family, document), kernels, field, method),
        posterior,
        _number(document, "log_evidence"),
        int(_number(document, "n_iter")),
        document.get("converged") is True,
        Columns(features, None if names is None else tuple(names), _columns(document, names, features, known)),
        Target(_names(document, "target_names", None), frame if frame in ("pandas", "polars") else None, classes),
        offset=_text(document, "offset") if document.get("offset") is not None else None,
        weight=_number(document, "weight") if "weight" in document else 1.0,
    )


def _search(document: dict[str, Any]) -> SearchTable | None:
    """The table of kernels that were tried; None for files that say nothing of it."""
    trials: Any = document.get("search")
    if trials is None:
        return None
    types = get_type_hints(Trial)
    require(isinstance(trials, list), "search must be a list")
    for trial in trials:
        require(isinstance(trial, dict) and set(trial) == set(types), "a trial has other entries")
        require(all(type(trial[name]) is kind for name, kind in types.items()), "a trial has values of other types")
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


def _document(content: bytes, length: int) -> dict[str, Any]:
    """The JSON document, after the version and the digest were found right."""
    try:
        header = json.loads(content[8 : 8 + length], parse_constant=_no_constant)
        document = json.loads(header["__metadata__"]["ggpm"], parse_constant=_no_constant)
        version, digest = document["format"], document["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LoadError("not a model file: no readable ggpm document in its header.") from None
    if type(version) is not int or version < 1:
        raise LoadError(f"the format must be a positive integer; got {version!r}.")
    if version > FORMAT:
        raise LoadError(f"the file has format {version}, this version reads up to {FORMAT}. Upgrade ggpm to read it.")
    valid = isinstance(digest, str) and len(digest) == 64 and digest.isascii()
    blank = content.replace(digest.encode(), ZERO_DIGEST.encode(), 1) if valid else b""
    if hashlib.sha256(blank).hexdigest() != digest:
        raise LoadError("the file is damaged: its digest does not belong to its content.")
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# ---- posteriors --------------------------------------------------------------------------------------------------
def _exact_arrays(posterior: DensePosterior, field: DenseField) -> dict[str, NDArray]:
    arrays = {"X": posterior.X, "y": field.y, "z": posterior.z, "offset": field.offset}
    return arrays | _curvature_arrays(posterior.U)


def _curvature_arrays(U: Any) -> dict[str, NDArray]:
    if type(U) not in CURVATURES.values():
        raise TypeError(f"sites of type {type(U).__name__} cannot be saved in this version.")
    given = {field.name: getattr(U, field.name) for field in dataclasses.fields(U)}
    return {f"U.{name}": value for name, value in given.items() if value is not None}


def _exact(
    curvature: str, arrays: dict[str, NDArray], family: Family, kernels: list
) -> tuple[DensePosterior, DenseField]:
    X, y, z, offset = (_take(arrays, name) for name in ("X", "y", "z", "offset"))
    require(X.ndim == 2 and z.ndim == 2 and len(X) > 0 and X.shape[1] > 0, "X and z must be matrices")
    n, D = z.shape
    require(len(X) == n and y.ndim > 0 and len(y) == n and offset.shape == (n, D), "X, y, z and offset must agree")
    require(family.latent_dim == D, f"the family must have {D} latent dimensions")
    U = _curvature(curvature, arrays, n, D)
    return DensePosterior(kernels, X, z, U), DenseField(X, y, offset)


def _curvature(name: str, arrays: dict[str, NDArray], n: int, D: int) -> Any:
    require(name in CURVATURES, f"unknown curvature {name!r}")
    sizes = {"n": n, "D": D}
    fields = {}
    for field, code in SHAPES[name].items():
        optional, shape = code.endswith("*"), tuple(sizes[c] for c in code.rstrip("*"))
        if optional and f"U.{field}" not in arrays:
            continue
        fields[field] = _take(arrays, f"U.{field}", shape)
    return CURVATURES[name](**fields)


def _neighbours_arrays(posterior: NeighboursPosterior, field: NeighboursField) -> dict[str, NDArray]:
    rows = {"X": field.X, "y": field.y, "offset": field.offset}
    return rows | {"points": posterior.X, "f": posterior.f} | _curvature_arrays(posterior.U)


def _neighbours(
    document: dict[str, Any], arrays: dict[str, NDArray], family: Family, kernels: list,
    known: Mapping[str, Mapping[str, type]],
) -> tuple[NeighboursPosterior, NeighboursField]:  # fmt: skip
    X, y, offset, points, f = (_take(arrays, name) for name in ("X", "y", "offset", "points", "f"))
    require(
        X.ndim == 2 and points.ndim == 2 and f.ndim == 2 and X.size > 0 and points.size > 0, "rows must be matrices"
    )
    (n, features), (N, D) = X.shape, f.shape
    require(points.shape == (N, features) and n >= N, "points and f must agree")
    require(y.ndim > 0 and len(y) == n and offset.shape == (n, D), "X, y and offset must agree")
    require(family.latent_dim == D, f"the family must have {D} latent dimensions")
    U = _curvature(_text(document, "curvature"), arrays, N, D)
    about: Any = document.get("neighbours")
    require(isinstance(about, dict) and isinstance(about.get("kernels"), list), "neighbours must be described")
    near = [unpack(kernel, known) for kernel in about["kernels"]]
    settings = unpack(about.get("settings"), known)
    require(all(isinstance(kernel, sk.Kernel) for kernel in near) and bool(near), "neighbours need kernels")
    require(isinstance(settings, Neighbours) and settings.nugget is not None, "neighbours need settings")
    return NeighboursPosterior(kernels, points, f, U, settings, near), NeighboursField(X, y, offset, settings, near)


def _sparse_arrays(posterior: InducingPosterior) -> dict[str, NDArray]:
    factors = {f"L{j}": L for j, L in enumerate(posterior.L)}
    return {"Z": posterior.Z, "v": posterior.v, "P": posterior.P, **factors}


def _sparse(arrays: dict[str, NDArray], family: Family, kernels: list) -> InducingPosterior:
    Z, v = _take(arrays, "Z"), _take(arrays, "v")
    require(Z.ndim == 2 and v.ndim == 2 and Z.size > 0 and len(Z) == v.shape[1], "Z and v must agree")
    D, M = v.shape
    require(family.latent_dim == D, f"the family must have {D} latent dimensions")
    P = _take(arrays, "P", (D, M, D, M))
    L = [np.asfortranarray(_take(arrays, f"L{j}", (M, M))) for j in range(len(kernels))]
    return InducingPosterior(kernels, Z, L, v, P)


def _classes(kind: type, classes: Any, family: Family) -> NDArray | None:
    if not hasattr(kind, "predict_proba"):
        require(classes is None, "a regressor has no classes")
        return None
    require(isinstance(classes, np.ndarray) and classes.ndim == 1, "classes must be one row of labels")
    support: Any = family.support
    count = getattr(support, "n_codes", None)
    require(family.finite and count == len(classes), f"{len(classes)} classes do not fit the family")
    return classes


def _try_out(fit: Fit) -> None:
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


# ---- small checks ------------------------------------------------------------------------------------------------
def _take(arrays: dict[str, NDArray], name: str, shape: tuple[int, ...] | None = None) -> NDArray:
    require(name in arrays, f"the file lacks the array {name}")
    value = arrays.pop(name)
    require(shape is None or value.shape == shape, f"{name} must have shape {shape}, not {value.shape}")
    return value


def _text(document: dict[str, Any], name: str) -> str:
    require(isinstance(document.get(name), str), f"{name} must be a name")
    return document[name]


def _number(document: dict[str, Any], name: str) -> float:
    value = document.get(name)
    require(isinstance(value, int | float) and bool(np.isfinite(value)), f"{name} must be a number")
    return float(document[name])


def _names(document: dict[str, Any], name: str, count: int | None) -> list[str] | None:
    value = document.get(name)
    if value is None:
        return None
    fits = isinstance(value, list) and all(isinstance(v, str) for v in value) and count in (None, len(value))
    require(fits, f"{name} must be a list of {'' if count is None else count} names")
    return value
