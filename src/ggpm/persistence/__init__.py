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

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ggpm.data.files import replacing
from ggpm.estimators import GGPClassifier, GGPOrdinalClassifier, GGPRegressor
from ggpm.families.base import Family
from ggpm.learning.fit import Fit, Newcomers
from ggpm.persistence.checks import number, text
from ggpm.persistence.fits import (
    FORMAT,
    OF_A_MEMBER,
    ZERO_DIGEST,
    law_of,
    packed_law,
    restored,
    search_table,
    try_out,
    written,
)  # fmt: skip
from ggpm.persistence.packing import LoadError, check_classes, known_classes, names_users, require, unpack

__all__ = ["FORMAT", "LoadError", "load", "save"]

MAX_HEADER = 8 * 2**20
"""Most bytes of JSON that `load` will parse: parsed JSON takes many times its size in memory."""

ESTIMATORS = {c.__name__: c for c in (GGPRegressor, GGPClassifier, GGPOrdinalClassifier)}


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


def _serialise(model: Any) -> bytes:
    from safetensors.numpy import save as to_bytes

    fit = model.fit_
    document, arrays = written(model, fit)
    members = _members(fit)
    entries = []
    for k, other in enumerate(members):
        its, more = written(model, other)
        entries.append({name: value for name, value in its.items() if name in OF_A_MEMBER})
        arrays |= {f"{k}/{name}": a for name, a in more.items()}
    if entries:
        document |= {"others": entries, "format": FORMAT}
    if fit.newcomers:
        document["newcomers"] = [
            {"column": other.column, "weight": other.weight, "fits": len(other.fit.members)}
            | ({} if other.recalibration is None else {"recalibration": packed_law(other.recalibration)})
            for other in fit.newcomers
        ]
    if model.fit_.search is not None:
        document["search"] = [asdict(trial) for trial in model.fit_.search]
    if names_users(document):  # which version 0.1 would look for by another name
        document["format"] = FORMAT
    header = json.dumps(document, allow_nan=False, separators=(",", ":"))
    contiguous = {name: np.ascontiguousarray(a, dtype=np.float64) for name, a in arrays.items()}
    content = to_bytes(contiguous, metadata={"ggpm": header})
    digest = hashlib.sha256(content).hexdigest()
    return content.replace(ZERO_DIGEST.encode(), digest.encode(), 1)


def _members(fit: Fit) -> list[Fit]:
    """All fits beside the first: those that are averaged with it, then those for labels that are new."""
    return [*fit.others, *(member for other in fit.newcomers for member in other.fit.members)]


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
    kind = ESTIMATORS.get(text(document, "estimator"))
    if kind is None:
        raise LoadError(f"unknown estimator {document['estimator']!r}.")

    params: Any = document.get("params")
    require(isinstance(params, dict), "params must be a mapping")
    allowed = set(kind._get_param_names())
    require(set(params) <= allowed, f"unknown parameters {sorted(set(params) - allowed)}")
    main = restored(document, arrays, kind, known)
    listed, about = (document.get(name, []) for name in ("others", "newcomers"))
    for entries in (listed, about):
        right = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
        require(right, "others and newcomers must be documents")
    members = []
    for k, entry in enumerate(listed):
        require(set(entry) <= OF_A_MEMBER, "another fit has entries that are not known")
        its = {name: arrays.pop(name) for name in list(arrays) if name.startswith(f"{k}/")}
        its = {name.partition("/")[2]: a for name, a in its.items()}
        members.append(restored(document | {"recalibration": None} | entry, its, kind, known))
        require(not its, f"unknown arrays {sorted(its)}")
    require(not arrays, f"unknown arrays {sorted(arrays)}")
    newcomers = [_newcomers(entry, members) for entry in reversed(about)][::-1]  # from the end, where the last ones are
    fit = replace(_averaged([main, *members], "weight" in document), newcomers=tuple(newcomers))
    fit = replace(fit, search=search_table(document))
    try_out(fit)
    return kind.from_fit({name: unpack(value, known) for name, value in params.items()}, fit)


def _averaged(fits: list[Fit], weighted: bool) -> Fit:
    """The first of some fits, with the others beside it."""
    weights = [fit.weight for fit in fits]
    right = all(w > 0 for w in weights) and abs(sum(weights) - 1.0) < 1e-6
    require(right or (len(fits) == 1 and not weighted), "weights must be positive, with sum one")
    return replace(fits[0], others=tuple(fits[1:]))


def _newcomers(about: dict[str, Any], members: list[Fit]) -> Newcomers:
    """What speaks for labels that are new in a column, from the last members, which are taken away."""
    known = set(about) - {"recalibration"} == {"column", "weight", "fits"}
    require(known, "newcomers must have column, weight and fits")
    column, weight, count = about["column"], number(about, "weight"), about["fits"]
    require(type(count) is int and 0 < count <= len(members), "newcomers have other fits")
    fit = _averaged(members[-count:], True)
    del members[-count:]
    kinds = fit.columns.kinds
    require(type(column) is int and 0 <= column < len(kinds), "newcomers have a column that is not there")
    require(kinds[column] == "category" and 0 < weight < 1, "newcomers must be of a category, with a weight below one")
    return Newcomers(column, weight, fit, law_of(about, fit.family))


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
