"""Saving and loading of fitted models: one file, no code in it.

A file is a safetensors container: arrays (training rows, encoded y, sites) and, in its metadata, one JSON document
with everything else. A fitted posterior is determined by its kernels, the training rows, the sites' curvature and
``z = K^-1 m``; the factorisation behind predictive variances is computed again on first use, from the same numbers
by the same code, hence with the same result. So a file holds nothing of a solver's inner life, stays of size O(n D),
and can be read by versions whose solvers work differently.

What `load` makes from a file: numbers, strings, arrays of float64, and objects of the classes listed here or handed
over by the caller. Nothing is imported by a name in the file. A digest over all bytes tells damage; it is no
signature, so everything is checked as if the digest were not there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk
from sklearn.utils.validation import check_is_fitted

from ggpm import estimators, families, inference
from ggpm.curvature import Blocks, Diagonal, Kronecker, RankOne
from ggpm.families.base import Family
from ggpm.objective import Evidence
from ggpm.posterior import Posterior, SolveLater

__all__ = ["FORMAT", "LoadError", "load", "save"]

FORMAT = 1
"""Version of the file format; a file of a newer one is refused."""

MAX_HEADER = 8 * 2**20
"""Most bytes of JSON that `load` will parse: parsed JSON takes many times its size in memory."""

MAX_DEPTH = 40
"""Deepest nesting of kernels and lists."""

ESTIMATORS = {
    c.__name__: c for c in (estimators.GGPRegressor, estimators.GGPClassifier, estimators.GGPOrdinalClassifier)
}
KERNELS = {
    c.__name__: c
    for c in (
        sk.ConstantKernel, sk.WhiteKernel, sk.RBF, sk.Matern, sk.RationalQuadratic, sk.ExpSineSquared, sk.DotProduct,
        sk.PairwiseKernel, sk.Sum, sk.Product, sk.Exponentiation,
    )
}  # fmt: skip
CURVATURES = {c.__name__: c for c in (Diagonal, RankOne, Kronecker, Blocks)}
# Shapes of the curvatures' arrays in terms of n and D; a star marks those that may be absent.
SHAPES = {
    "Diagonal": {"gamma": "nD"},
    "RankOne": {"gamma": "nD", "omega": "nD", "rho": "n", "nu": "nD*", "gap": "n*"},
    "Kronecker": {"weight": "n", "matrix": "DD"},
    "Blocks": {"values": "nDD"},
}
ZERO_DIGEST = "0" * 64
INTEGERS = ("int8", "int16", "int32", "int64")


class LoadError(ValueError):
    """A file that `ggpm.load` does not accept; the message says why."""


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
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where the system lets a folder be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _serialise(model: Any) -> bytes:
    from safetensors.numpy import save as to_bytes

    from ggpm import __version__

    posterior, evidence = model.posterior_, model._evidence
    if type(posterior) is not Posterior:
        raise TypeError(f"a {type(posterior).__name__} cannot be saved in this version.")
    U: Any = posterior.U
    curvature = type(U).__name__
    if curvature not in CURVATURES:
        raise TypeError(f"sites of type {curvature} cannot be saved in this version.")
    arrays = {"X": posterior.X, "y": evidence.y, "z": posterior.z, "offset": evidence.offset}
    for field in dataclasses.fields(U):
        value = getattr(U, field.name)
        if value is not None:
            arrays[f"U.{field.name}"] = value
    names = getattr(model, "feature_names_in_", None)
    document = {
        "sha256": ZERO_DIGEST,  # first, so that the first occurrence in the file is this one
        "format": FORMAT,
        "ggpm": __version__,
        "estimator": type(model).__name__,
        "params": {name: _pack(value, name) for name, value in model.get_params(deep=False).items()},
        "family": _pack(model.family_, "family_"),
        "kernels": [_pack(kernel, "kernel_") for kernel in posterior.kernels],
        "inference": _pack(evidence.inference, "inference"),
        "curvature": curvature,
        "log_evidence": float(model.log_marginal_likelihood_value_),
        "n_iter": int(model.n_iter_),
        "converged": bool(model.converged_),
        "feature_names": None if names is None else [str(name) for name in names],
        "target_names": model.target_names_,
        "target_kind": model._target_kind,
        "classes": _pack(getattr(model, "classes_", None), "classes_"),
    }
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    contiguous = {name: np.ascontiguousarray(a, dtype=np.float64) for name, a in arrays.items()}
    content = to_bytes(contiguous, metadata={"ggpm": text})
    digest = hashlib.sha256(content).hexdigest()
    return content.replace(ZERO_DIGEST.encode(), digest.encode(), 1)


def _pack(value: Any, where: str) -> Any:
    """A value as JSON: plain numbers and strings as they are, everything else as an object with one tag."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": str(value)}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_pack(v, where) for v in value]}
    if isinstance(value, np.ndarray) and (value.dtype.kind in "biufU" or _only_strings(value)):
        kind = value.dtype.kind
        dtype = {"O": "object", "U": "str"}.get(kind, value.dtype.name)
        items = [_pack(v, where) for v in value.ravel().tolist()]
        return {"array": items, "dtype": dtype, "shape": list(value.shape)}
    if isinstance(value, sk.Kernel):
        params = {name: _pack(v, where) for name, v in value.get_params(deep=False).items()}
        return {"kernel": type(value).__name__, "params": params}
    if isinstance(value, Family):
        return {"family": type(value).__name__, "state": {name: _pack(v, where) for name, v in vars(value).items()}}
    if dataclasses.is_dataclass(value) and type(value) in inference.INFERENCES.values():
        settings = {f.name: _pack(getattr(value, f.name), where) for f in dataclasses.fields(value)}
        return {"inference": type(value).__name__, "settings": settings}
    raise TypeError(
        f"{where} holds a {type(value).__name__}, which a file without code cannot hold ({value!r}). Replace it "
        f"before saving, for instance with model.set_params(optimizer=None) for an optimiser of your own: the fitted "
        "state does not change."
    )


def _only_strings(value: NDArray) -> bool:
    return value.dtype == object and all(isinstance(v, str) for v in value.ravel())


# ---- loading -----------------------------------------------------------------------------------------------------
def load(path: str | os.PathLike, *, families: Iterable[type[Family]] = (), kernels: Iterable[type] = ()) -> Any:
    """Read a model that `save` wrote.

    Predictions on the machine that saved it are identical to the last bit. `log_marginal_likelihood` works too, at
    any theta, since the training data are in the file.

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
    ggpm.persistence.LoadError: not a model file: its header claims 8386658464824651630 bytes, the file has 18.
    """
    known = _known(tuple(families), tuple(kernels))
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8:
            raise LoadError(f"not a model file: its header claims {length} bytes, the file has {size}.")
        if length > MAX_HEADER:
            raise LoadError(f"the header has {length} bytes; at most {MAX_HEADER} are read.")
        content = start + file.read(size - 8)
    try:
        return _restore(content, length, known)
    except LoadError:
        raise
    # whatever else goes wrong inside comes from the content of the file, and is told as that
    except (Exception, RecursionError) as err:
        raise LoadError(f"the file is not a consistent model ({type(err).__name__}: {err}).") from None


def _restore(content: bytes, length: int, known: Mapping[str, Mapping[str, type]]) -> Any:
    from safetensors.numpy import load as from_bytes

    document = _document(content, length)
    arrays = {name: np.array(a) for name, a in from_bytes(content).items()}
    for name, a in arrays.items():
        _require(a.dtype == np.float64, f"array {name} must be float64, not {a.dtype}")
        _require(bool(np.all(np.isfinite(a))), f"array {name} has values that are not finite")
    kind = ESTIMATORS.get(_text(document, "estimator"))
    if kind is None:
        raise LoadError(f"unknown estimator {document['estimator']!r}.")

    X, y, z = (_take(arrays, name) for name in ("X", "y", "z"))
    offset = _take(arrays, "offset")
    _require(X.ndim == 2 and z.ndim == 2 and len(X) > 0 and X.shape[1] > 0, "X and z must be matrices")
    n, D = z.shape
    _require(len(X) == n and y.ndim > 0 and len(y) == n and offset.shape == (n, D), "X, y, z and offset must agree")
    U = _curvature(_text(document, "curvature"), arrays, n, D)
    _require(not arrays, f"unknown arrays {sorted(arrays)}")

    family = _unpack(document.get("family"), known)
    _require(isinstance(family, Family), "family must be a family")
    _require(type(family.latent_dim) is int and family.latent_dim == D, f"the family must have {D} latent dimensions")
    packed: Any = document.get("kernels")
    _require(isinstance(packed, list) and len(packed) in (1, D), "there must be one kernel, or one per dimension")
    kernels = [_unpack(k, known) for k in packed]
    _require(all(isinstance(k, sk.Kernel) for k in kernels), "kernels must be kernels")
    method = _unpack(document.get("inference"), known)
    _require(hasattr(method, "infer"), "inference must be an inference method")

    params: Any = document.get("params")
    _require(isinstance(params, dict), "params must be a mapping")
    allowed = set(kind._get_param_names())
    _require(set(params) <= allowed, f"unknown parameters {sorted(set(params) - allowed)}")
    model = kind(**{name: _unpack(value, known) for name, value in params.items()})

    model.family_ = family
    model.kernel_ = kernels if isinstance(model.kernel, list | tuple) else kernels[0]
    model.posterior_ = Posterior(kernels, X, z, SolveLater(kernels, X, U), U)
    model._evidence = Evidence(family, kernels, X, y, offset, method)
    model.theta_ = model._evidence.theta
    model.log_marginal_likelihood_value_ = _number(document, "log_evidence")
    model.n_iter_ = int(_number(document, "n_iter"))
    model.converged_ = document.get("converged") is True
    model._offset_given_ = bool(np.any(offset))
    model.n_features_in_ = X.shape[1]
    names = _names(document, "feature_names", X.shape[1])
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    model.target_names_ = _names(document, "target_names", None)
    model._target_kind = document.get("target_kind") if document.get("target_kind") in ("pandas", "polars") else None
    _restore_classes(model, _unpack(document.get("classes"), known), family)
    _try_out(model)
    return model


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


def _known(user_families: tuple, user_kernels: tuple) -> dict[str, dict[str, type]]:
    """The classes that a file may name, by kind."""
    for c in user_families:
        if not (isinstance(c, type) and issubclass(c, Family)):
            raise TypeError(f"families must be classes derived from ggpm.families.Family; got {c!r}.")
    for c in user_kernels:
        if not (isinstance(c, type) and issubclass(c, sk.Kernel)):
            raise TypeError(f"kernels must be classes derived from scikit-learn's Kernel; got {c!r}.")
    return {
        "family": {c.__name__: c for c in (*families.FAMILIES.values(), *user_families)},
        "kernel": {**KERNELS, **{c.__name__: c for c in user_kernels}},
        "inference": {c.__name__: c for c in inference.INFERENCES.values()},
    }


def _unpack(value: Any, known: Mapping[str, Mapping[str, type]], depth: int = 0) -> Any:
    """The inverse of `_pack`."""
    _require(depth < MAX_DEPTH, "the document is nested too deeply")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    _require(isinstance(value, dict), "a bare list stands where a value is expected")

    def inner(mapping: Any) -> dict[str, Any]:
        _require(isinstance(mapping, dict), "a mapping is expected")
        return {name: _unpack(v, known, depth + 1) for name, v in mapping.items()}

    match value:
        case {"float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"list": list(items)}:
            return [_unpack(v, known, depth + 1) for v in items]
        case {"tuple": list(items)}:
            return tuple(_unpack(v, known, depth + 1) for v in items)
        case {"array": list(items), "dtype": str(dtype), "shape": list(shape)}:
            return _array(items, dtype, shape)
        case {"kernel": str(name), "params": params}:
            return _kernel(_class(known, "kernel", name), inner(params))
        case {"family": str(name), "state": state}:
            return _family(_class(known, "family", name), inner(state))
        case {"inference": str(name), "settings": settings}:
            return _class(known, "inference", name)(**inner(settings))
    raise LoadError(f"the document holds a value of unknown kind, with keys {sorted(map(str, value))[:4]}.")


def _class(known: Mapping[str, Mapping[str, type]], kind: str, name: str) -> Any:
    if name not in known[kind]:
        argument = {"family": "families", "kernel": "kernels"}.get(kind)
        hint = f" If it is yours, pass the class: load(path, {argument}=[...])." if argument else ""
        raise LoadError(f"the file needs the {kind} {name!r}, which is not known here.{hint}")
    return known[kind][name]


def _array(items: list, dtype: str, shape: list) -> NDArray:
    _require(all(type(s) is int and s >= 0 for s in shape) and len(shape) <= 3, "an array has an odd shape")
    if dtype in ("str", "object"):
        _require(all(isinstance(v, str) for v in items), "an array of strings holds something else")
        out = np.array(items, dtype=object if dtype == "object" else str)
    else:
        _require(dtype in ("bool", "float32", "float64") or dtype.strip("u") in INTEGERS, f"unknown dtype {dtype!r}")
        _require(all(isinstance(v, bool | int | float) for v in items), "an array of numbers holds something else")
        out = np.array(items, dtype=dtype)
    return out.reshape(shape)


def _kernel(kind: type[sk.Kernel], params: dict[str, Any]) -> sk.Kernel:
    expected = set(signature(kind).parameters)
    _require(set(params) == expected, f"{kind.__name__} has parameters {sorted(expected)}, the file {sorted(params)}")
    for name in ("kernel", "k1", "k2"):
        _require(name not in params or isinstance(params[name], sk.Kernel), f"{name} must be a kernel")
    if kind is sk.PairwiseKernel:
        _require(
            isinstance(params["metric"], str) and params["pairwise_kernels_kwargs"] is None, "metric must be a name"
        )
    return kind(**params)


def _family(kind: type[Family], state: dict[str, Any]) -> Family:
    out = kind.__new__(kind)
    for name, value in state.items():
        present = getattr(kind, name, None)
        fits = name.isidentifier() and not name.startswith("__")
        _require(
            fits and not callable(present) and not isinstance(present, property), f"{name!r} is no state of a family"
        )
        out.__dict__[name] = value
    missing = set(kind._get_param_names()) - set(state)
    _require(not missing, f"{kind.__name__} lacks {sorted(missing)}")
    return out


def _curvature(name: str, arrays: dict[str, NDArray], n: int, D: int) -> Any:
    _require(name in CURVATURES, f"unknown curvature {name!r}")
    sizes = {"n": n, "D": D}
    fields = {}
    for field, code in SHAPES[name].items():
        optional, shape = code.endswith("*"), tuple(sizes[c] for c in code.rstrip("*"))
        if optional and f"U.{field}" not in arrays:
            continue
        value = _take(arrays, f"U.{field}")
        _require(value.shape == shape, f"U.{field} must have shape {shape}, not {value.shape}")
        fields[field] = value
    return CURVATURES[name](**fields)


def _restore_classes(model: Any, classes: Any, family: Family) -> None:
    if not hasattr(model, "predict_proba"):
        _require(classes is None, "a regressor has no classes")
        return
    _require(isinstance(classes, np.ndarray) and classes.ndim == 1, "classes must be one row of labels")
    support: Any = family.support
    count = getattr(support, "n_codes", None)
    _require(family.finite and count == len(classes), f"{len(classes)} classes do not fit the family")
    model.classes_ = classes


def _try_out(model: Any) -> None:
    """Predict at the first training row, as far as that needs no factorisation."""
    posterior = model.posterior_
    latent = [kernel(posterior.X[:1], posterior.X) for kernel in posterior.kernels]
    _require(all(k.shape == (1, len(posterior.X)) for k in latent), "a kernel gives a matrix of the wrong shape")
    mean = np.stack(
        [(latent[min(j, len(latent) - 1)] @ posterior.z[:, j]) for j in range(posterior.z.shape[1])], axis=1
    )
    with np.errstate(all="ignore"):
        moment = np.asarray(model.family_.moment(mean), dtype=float)
        log_p = np.asarray(model.family_.log_prob(mean, model._evidence.y[:1]), dtype=float)
    _require(mean.shape == (1, posterior.z.shape[1]) and bool(np.all(np.isfinite(mean))), "the latent is not finite")
    _require(bool(np.all(np.isfinite(moment))) and log_p.shape == (1,), "the family gives no finite prediction")


# ---- small checks ------------------------------------------------------------------------------------------------
def _require(condition: bool, what: str) -> None:
    if not condition:
        raise LoadError(f"{what}.")


def _take(arrays: dict[str, NDArray], name: str) -> NDArray:
    if name not in arrays:
        raise LoadError(f"the file lacks the array {name}.")
    return arrays.pop(name)


def _text(document: dict[str, Any], name: str) -> str:
    _require(isinstance(document.get(name), str), f"{name} must be a name")
    return document[name]


def _number(document: dict[str, Any], name: str) -> float:
    value = document.get(name)
    _require(isinstance(value, int | float) and bool(np.isfinite(value)), f"{name} must be a number")
    return float(document[name])


def _names(document: dict[str, Any], name: str, count: int | None) -> list[str] | None:
    value = document.get(name)
    if value is None:
        return None
    fits = isinstance(value, list) and all(isinstance(v, str) for v in value) and count in (None, len(value))
    _require(fits, f"{name} must be a list of {'' if count is None else count} names")
    return value
