"""Values as JSON and back: numbers, strings, arrays, kernels, families and inference settings.

Unpacking makes objects of listed classes only, and raises `LoadError` for everything it does not know. Classes of this
package and of scikit-learn are known by their bare names; a user's class by module and name, so that one of the same
name is never taken for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm import families
from ggpm import sites as inference
from ggpm.families.base import Family
from ggpm.fields.inducing import Inducing
from ggpm.fields.neighbours import Neighbours
from ggpm.kernels import text
from ggpm.learning import priors

MAX_DEPTH = 40
"""Deepest nesting of kernels and lists."""

KERNELS = text.KERNELS | {c.__name__: c for c in (sk.Sum, sk.Product, sk.Exponentiation)}
BUILT_IN: dict[str, type] = {
    c.__name__: c for c in (*families.FAMILIES.values(), *families.MIXED.values(), *families.WRAPPERS.values())
}
# objects with settings: frozen dataclasses whose fields are plain values
SETTINGS: dict[str, Any] = {
    c.__name__: c
    for c in (*inference.INFERENCES.values(), Inducing, Neighbours, priors.Cost, priors.HalfT, priors.LogNormal)
}
MAX_TEXT = 2**28
"""Most bytes of an array of strings, in which all are as long as the longest."""

INTEGERS = ("int8", "int16", "int32", "int64")


class LoadError(ValueError):
    """A file that `ggpm.load` does not accept; the message says why."""

    __module__ = "ggpm"


def require(condition: bool, what: str) -> None:
    """Raise `LoadError` unless the condition holds."""
    if not condition:
        raise LoadError(f"{what}.")


def pack(value: Any, where: str) -> Any:
    """A value as JSON: plain numbers and strings as they are, everything else as an object with one tag."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": str(value)}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [pack(v, where) for v in value]}
    if isinstance(value, np.ndarray) and (value.dtype.kind in "biufU" or _only_strings(value)):
        kind = value.dtype.kind
        dtype = {"O": "object", "U": "str"}.get(kind, value.dtype.name)
        items = [pack(v, where) for v in value.ravel().tolist()]
        return {"array": items, "dtype": dtype, "shape": list(value.shape)}
    if isinstance(value, sk.Kernel):
        params = {name: pack(v, where) for name, v in value.get_params(deep=False).items()}
        return {"kernel": _identity(type(value), KERNELS), "params": params}
    if isinstance(value, Family):
        state = {name: pack(v, where) for name, v in vars(value).items()}
        return {"family": _identity(type(value), BUILT_IN), "state": state}
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {"dict": {name: pack(v, where) for name, v in value.items()}}
    if type(value) in SETTINGS.values():
        settings = {f.name: pack(getattr(value, f.name), where) for f in dataclasses.fields(value)}
        return {"inference": type(value).__name__, "settings": settings}
    raise TypeError(
        f"{where} holds a {type(value).__name__}, which a file without code cannot hold ({value!r}). Replace it "
        f"before saving, for instance with model.set_params(optimizer=None) for an optimiser of your own: the fitted "
        "state does not change."
    )


def _only_strings(value: NDArray) -> bool:
    return value.dtype == object and all(isinstance(v, str) for v in value.ravel())


def _identity(kind: type, built_in: Mapping[str, type]) -> str:
    """Name of a class in a file: bare for those that come with the package, with the module for others."""
    return kind.__name__ if built_in.get(kind.__name__) is kind else f"{kind.__module__}.{kind.__qualname__}"


def names_users(packed: Any) -> bool:
    """Whether a packed value names a class that did not come with the package."""
    if isinstance(packed, list):
        return any(map(names_users, packed))
    if not isinstance(packed, dict):
        return False
    own = any(isinstance(packed.get(tag), str) and "." in packed[tag] for tag in ("kernel", "family"))
    return own or any(map(names_users, packed.values()))


def check_classes(user_families: tuple, user_kernels: tuple) -> None:
    """Raise TypeError unless they are classes of families and of kernels."""
    for c in user_families:
        if not (isinstance(c, type) and issubclass(c, Family)):
            raise TypeError(f"families must be classes derived from ggpm.families.Family; got {c!r}.")
    for c in user_kernels:
        if not (isinstance(c, type) and issubclass(c, sk.Kernel)):
            raise TypeError(f"kernels must be classes derived from scikit-learn's Kernel; got {c!r}.")


def known_classes(user_families: tuple, user_kernels: tuple, bare: bool) -> dict[str, dict[str, type]]:
    """The classes that a file may name, by kind.

    A user's class answers to its full name, and to its name in any module: one that was defined in a notebook may have
    moved. In files of version 0.1, which have ``bare`` names only, it answers to that, also if a built-in has it too.
    """
    return {
        "family": BUILT_IN | _by_names(user_families, bare),
        "kernel": KERNELS | _by_names(user_kernels, bare),
        "inference": SETTINGS,
    }


def _by_names(classes: tuple[type, ...], bare: bool) -> dict[str, type]:
    if bare:
        return {c.__name__: c for c in classes}
    anywhere = {f".{c.__qualname__}": c for c in classes}
    return anywhere | {f"{c.__module__}.{c.__qualname__}": c for c in classes}


def unpack(value: Any, known: Mapping[str, Mapping[str, type]], depth: int = 0) -> Any:
    """The inverse of `pack`."""
    require(depth < MAX_DEPTH, "the document is nested too deeply")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    require(isinstance(value, dict), "a bare list stands where a value is expected")

    def inner(mapping: Any) -> dict[str, Any]:
        require(isinstance(mapping, dict), "a mapping is expected")
        return {name: unpack(v, known, depth + 1) for name, v in mapping.items()}

    match value:
        case {"float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"list": list(items)}:
            return [unpack(v, known, depth + 1) for v in items]
        case {"tuple": list(items)}:
            return tuple(unpack(v, known, depth + 1) for v in items)
        case {"dict": mapping}:
            return inner(mapping)
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
    moved = next((given for given in known[kind] if given.startswith(".") and name.endswith(given)), None)
    if name not in known[kind] and moved is not None:
        return known[kind][moved]
    if name not in known[kind]:
        argument = {"family": "families", "kernel": "kernels"}.get(kind)
        hint = f" If it is yours, pass the class: load(path, {argument}=[...])." if argument else ""
        raise LoadError(f"the file needs the {kind} {name!r}, which is not known here.{hint}")
    return known[kind][name]


def _array(items: list, dtype: str, shape: list) -> NDArray:
    require(all(type(s) is int and s >= 0 for s in shape) and len(shape) <= 3, "an array has an odd shape")
    if dtype in ("str", "object"):
        require(all(isinstance(v, str) for v in items), "an array of strings holds something else")
        longest = max(map(len, items), default=0)
        require(dtype == "object" or 4 * longest * len(items) <= MAX_TEXT, "strings of an array take too much memory")
        out = np.array(items, dtype=object if dtype == "object" else str)
    else:
        require(
            dtype in ("bool", "float32", "float64") or dtype.removeprefix("u") in INTEGERS, f"unknown dtype {dtype!r}"
        )
        require(all(isinstance(v, bool | int | float) for v in items), "an array of numbers holds something else")
        out = np.array(items, dtype=dtype)
    return out.reshape(shape)


def _kernel(kind: type[sk.Kernel], params: dict[str, Any]) -> sk.Kernel:
    known = signature(kind).parameters
    needed = {name for name, parameter in known.items() if parameter.default is parameter.empty}
    # files of earlier versions do not have what was added since, with a default that means what was before
    given = set(params)
    require(needed <= given <= set(known), f"{kind.__name__} has parameters {sorted(known)}, the file {sorted(given)}")
    for name in ("kernel", "k1", "k2"):
        require(name not in params or isinstance(params[name], sk.Kernel), f"{name} must be a kernel")
    if kind is sk.PairwiseKernel:
        require(
            isinstance(params["metric"], str) and params["pairwise_kernels_kwargs"] is None, "metric must be a name"
        )
    out = kind(**params)
    for h in out.hyperparameters:
        value = np.asarray(out.get_params()[h.name], dtype=float)
        require(
            bool(np.all(np.isfinite(value)) and np.all(value >= 0)), f"{h.name} of {kind.__name__} must be positive"
        )
    return out


def _family(kind: type[Family], state: dict[str, Any]) -> Family:
    out = kind.__new__(kind)
    for name, value in state.items():
        present = getattr(kind, name, None)
        fits = name.isidentifier() and not name.startswith("__")
        require(
            fits and not callable(present) and not isinstance(present, property), f"{name!r} is no state of a family"
        )
        out.__dict__[name] = value
    missing = set(kind._get_param_names()) - set(state)
    require(not missing, f"{kind.__name__} lacks {sorted(missing)}")
    return out
