"""Entries of a file's document and its arrays, each checked for what it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.persistence.packing import require


def take(arrays: dict[str, NDArray], name: str, shape: tuple[int, ...] | None = None) -> NDArray:
    """An array, taken out of those that are left, of this shape if one is given."""
    require(name in arrays, f"the file lacks the array {name}")
    value = arrays.pop(name)
    require(shape is None or value.shape == shape, f"{name} must have shape {shape}, not {value.shape}")
    return value


def text(document: dict[str, Any], name: str) -> str:
    """An entry that must be text."""
    require(isinstance(document.get(name), str), f"{name} must be a name")
    return document[name]


def number(document: dict[str, Any], name: str) -> float:
    """An entry that must be a finite number."""
    value = document.get(name)
    require(isinstance(value, int | float) and bool(np.isfinite(value)), f"{name} must be a number")
    return float(document[name])


def names(document: dict[str, Any], name: str, count: int | None) -> list[str] | None:
    """An entry that must be a list of names, so many if ``count`` is given; None where there is none."""
    value = document.get(name)
    if value is None:
        return None
    fits = isinstance(value, list) and all(isinstance(v, str) for v in value) and count in (None, len(value))
    require(fits, f"{name} must be a list of {'' if count is None else count} names")
    return value
