"""Bessel functions of a concentration k by straight lines between equal steps of log k: the cheapest there is."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special.bessel import BesselRatio

Array = NDArray[np.float64]

LARGEST, _LOWEST = 18.0, -18.0  # log k between which it is made
PER_UNIT = 512  # steps in one unit of log k: a chord of that length is off by 7e-8 at most (measured)
_BELOW = 32.0 * PER_UNIT  # steps below the lowest log k, where k is zero for all that is asked


def place_of(log_k: Array) -> Array:
    """Steps from the lowest log k, negative below it; a number also where k is zero.

    >>> place_of(np.array([-18.0, -17.0])).tolist()
    [0.0, 512.0]
    """
    place = log_k - _LOWEST
    place *= PER_UNIT
    return np.asarray(np.maximum(place, -_BELOW, out=place), dtype=np.float64)


def log_needle(place: Array) -> Array:
    """log(exp(k)/I_0(k)) to 7e-8, for log k up to `LARGEST`: the density of an angle at its mean, times 2 pi.

    >>> bool(abs(log_needle(place_of(np.zeros(1)))[0] - 1.0 + np.log(np.i0(1.0))) < 1e-7)
    True
    """
    return _at(place, _steps()[0])


def resultant(place: Array) -> Array:
    """A(k) = I_1(k)/I_0(k) to 7e-8, for log k up to `LARGEST`."""
    return _at(place, _steps()[1])


def _at(place: Array, lines: NDArray[np.complex128]) -> Array:
    line = lines.take(place.astype(np.intp), mode="clip")  # both numbers of a line at once
    out = line.imag * place
    out += line.real
    return out


@lru_cache(maxsize=1)
def _steps() -> tuple[NDArray[np.complex128], ...]:
    """Lines between the steps, moved by half of what the arcs bend: values at place zero, and i times slopes.

    The first is flat: what is below the lowest log k is as there.
    """
    log_k = np.linspace(_LOWEST, LARGEST, round(LARGEST - _LOWEST) * PER_UNIT + 1)
    bessel, out = BesselRatio(0.0, np.exp(log_k)), []
    for values in (-bessel.log, 1.0 - bessel.one_minus_A):
        values[1:-1] -= np.diff(values, 2) / 16.0
        slopes = np.diff(values)
        slopes[0] = 0.0
        out.append(values[:-1] - slopes * np.arange(len(slopes)) + 1j * slopes)
    return tuple(out)
