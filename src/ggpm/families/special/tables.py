"""Tables of smooth functions: polynomials on equal cells, made once from careful formulas and then cheap to evaluate.

A polynomial of degree five on a few hundred cells gives a special function to about 1e-14 for the price of six
look-ups and five multiplications, less than a logarithm and an exponential together. What varies over many orders of
magnitude is tabulated as a smooth factor, in a variable that maps its whole range to an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Place:
    """Cells in which some arguments lie, and where in them, from 0 to 1: shared by all functions of a table."""

    cell: NDArray[np.intp]
    within: Array


@dataclass(frozen=True)
class Table:
    """Functions on [low, high] by polynomials on equal cells.

    The polynomial of a cell agrees with the function at its Chebyshev points, both ends included: neighbours meet
    without a jump.

    >>> table = Table.of(lambda x: {"exp": np.exp(x)}, 0.0, 1.0, cells=16, degree=5)
    >>> bool(abs(table.at("exp", table.locate(np.array(0.3))) - np.exp(0.3)) < 1e-13)
    True
    """

    low: float
    high: float
    cells: int
    coefficients: Mapping[str, Array]
    """Of every function, (degree + 1, cells), ascending powers; not writeable."""

    @classmethod
    def of(
        cls, functions: Callable[[Array], dict[str, Array]], low: float, high: float, cells: int, degree: int
    ) -> Table:
        """Tabulate ``functions``, which takes arguments (m,) and gives values (m,) by name."""
        within = 0.5 - 0.5 * np.cos(np.pi * np.arange(degree + 1) / degree)
        nodes = low + (np.arange(cells)[:, None] + within) * ((high - low) / cells)
        to_powers = np.linalg.inv(np.vander(within[1:], increasing=True) * within[1:, None])
        coefficients = {}
        for name, values in functions(nodes.ravel()).items():
            at_nodes = values.reshape(nodes.shape).T
            first = at_nodes[
                :1
            ]  # the rise within a cell is small: fitted alone, it leaves no rounding error to speak of
            coefficients[name] = np.concatenate([first, to_powers @ (at_nodes[1:] - first)])
            coefficients[name].flags.writeable = False
        return cls(low, high, cells, coefficients)

    def locate(self, x: Array) -> Place:
        """Find the cells of arguments in [low, high]; what is outside or NaN gives values without meaning, or NaN."""
        within = (x - self.low) * (self.cells / (self.high - self.low))
        within = np.minimum(within, np.nextafter(self.cells, 0.0))  # x = high is in the last cell
        with np.errstate(invalid="ignore"):  # NaN has no cell, but it is still NaN within it
            cell = within.astype(np.intp)
        within -= cell
        return Place(cell, within)

    def at(self, name: str, place: Place) -> Array:
        """Values of one function."""
        powers = self.coefficients[name]
        out = powers[-1].take(place.cell, mode="clip")
        for c in powers[-2::-1]:
            out *= place.within
            out += c.take(place.cell, mode="clip")
        return out
