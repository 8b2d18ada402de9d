"""What families take from all rows of y together: `moments`, and `bound`, which resolves a family by them."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ggpm.families.base.family import Family

Array = NDArray[np.float64]

ROUNDING = 64 * np.finfo(float).eps
"""Standard deviation, relative to the largest number, that rounding errors alone may have."""


def moments(rows: Array, weight: Array | None = None) -> tuple[Any, Any]:
    """Mean and variance over the rows, each of which counts as often as its weight says.

    Numbers that differ by rounding alone have no variance.

    >>> moments(np.array([1.0, 4.0]), np.array([2.0, 1.0]))
    (np.float64(2.0), np.float64(2.0))
    """
    if weight is None:
        mean, variance = rows.mean(axis=0), rows.var(axis=0)
    else:
        mean = np.average(rows, axis=0, weights=weight)
        variance = np.average((rows - mean) ** 2, axis=0, weights=weight)
    if len(rows) and np.any(unsure := variance <= (ROUNDING * np.abs(rows).max(axis=0)) ** 2):
        variance = np.where(unsure, 0.0, variance)[()]
    return mean, variance


def bound(family: Family, y: Any, weight: Array | None = None, adapt: bool = False) -> Family:
    """The family resolved by y, and adapted to it if asked for; a user's own may take no weights.

    >>> from ggpm.families import Gaussian
    >>> bound(Gaussian(), [1.0, 4.0], np.array([2.0, 1.0])).latent_variance
    2.0
    """
    for name in ("resolve", "adapted") if adapt else ("resolve",):
        method = getattr(family, name)
        takes = weight is not None and "weight" in signature(method).parameters
        family = method(y, weight) if takes else method(y)
    return family


def check_spread(family: Family, y: Any, default: bool = False) -> None:
    """Raise ValueError where a family with a latent scale is to learn it from y that are all alike: it has no bound.

    With the ``default`` kernel, which may take any shape, zeros alone do not tell zeros of two kinds apart either.

    >>> from ggpm.families import GaussianMeanScale
    >>> check_spread(GaussianMeanScale(), [1.0, 4.0])
    """
    if default and getattr(family, "needs_events", False) and len(counts := family.encode(y)) > 1 and not counts.any():
        raise ValueError(
            f"y is zero in all {len(counts)} rows: {type(family).__name__} tells zeros of two kinds apart by counts "
            "above zero, of which there are none. Try 'poisson'."
        )
    if getattr(family, "needs_spread", None) is None:  # a user's own may know nothing of it
        return
    (least, instead), values = family.needs_spread, family.encode(y)  # type: ignore[misc]
    rows = family.support.embed(values) if family.kind == "angles" else values  # type: ignore[attr-defined]
    sd, size = np.sqrt(moments(rows)[1]).max(), np.abs(rows).max()
    if len(values) > 1 and sd <= least * size:
        rest = "" if sd == 0 else f" but for {sd / size:.0e} of its size"
        raise ValueError(
            f"y is the same in all {len(values)} rows{rest}: {type(family).__name__} learns its "
            f"{family.parameters[1]} from how y spreads, which bounds nothing here. Try {instead!r}."  # type: ignore[attr-defined]
        )
