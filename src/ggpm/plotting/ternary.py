"""The triangle on which compositions of three parts are drawn: first part up, second left, third right."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CORNERS = np.array([[0.5, np.sqrt(0.75)], [0.0, 0.0], [1.0, 0.0]])
MESH = 64  # points along an edge of the mesh on which densities are drawn


def project(composition: Array) -> Array:
    """Compositions (n, 3) as points in the plane, (n, 2).

    >>> project(np.array([[0.0, 1.0, 0.0]]))
    array([[0., 0.]])
    """
    return composition @ CORNERS


def closed(y: NDArray) -> Array:
    """Rows divided by their sums: what percentages and amounts are as compositions."""
    y = np.asarray(y, dtype=float)
    return y / y.sum(axis=1, keepdims=True)


def frame(ax: Any, names: list[str]) -> None:
    """The triangle: every part has an edge of its own, whose ticks go on along the lines on which the part is constant.

    The names stand at the corners, where a part is everything, and along the edges, with an arrow to where it grows.
    """
    ax.set_axis_off()
    ax.set_aspect("equal")
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color="0.2", lw=1.0, zorder=6)
    for part, (turn, arrow) in enumerate(((-60, "← {}"), (60, "← {}"), (0, "{} →"))):
        for t in (0.2, 0.4, 0.6, 0.8):
            ends = _constant(part, t)
            along = (ends[1] - ends[0]) / np.linalg.norm(ends[1] - ends[0])
            stub, place = ends[1] + 0.02 * along, ends[1] + 0.055 * along
            ax.plot(*np.stack([ends[0], stub]).T, color="0.75", lw=0.6, zorder=0.5)
            ax.text(
                *place, f"{t:.0%}", fontsize=7.5, color="0.4", ha="center", va="center", rotation=(0, -60, 60)[part]
            )
        middle = _constant(part, 0.5)[1]
        away = middle - CORNERS.mean(axis=0)
        x, y = middle + 0.13 * away / np.linalg.norm(away)
        name = arrow.format(names[part])
        ax.text(x, y, name, fontsize=8.5, color="0.4", ha="center", va="center", rotation=turn)
    places = [("center", "bottom", (0, 0.03)), ("right", "top", (0.02, -0.04)), ("left", "top", (-0.02, -0.04))]
    for corner, name, (ha, va, shift) in zip(CORNERS, names, places):
        ax.text(corner[0] + shift[0], corner[1] + shift[1], name, ha=ha, va=va, fontsize=10)
    ax.set(xlim=(-0.16, 1.16), ylim=(-0.18, 0.97))


def _constant(part: int, value: float) -> Array:
    """Ends of the line on which a part has a value, the second on the edge that bears its ticks."""
    ends = np.zeros((2, 3))
    ends[:, part] = value
    ends[0, (part + 1) % 3] = ends[1, (part + 2) % 3] = 1 - value
    return project(ends)


@lru_cache(maxsize=1)
def mesh() -> tuple[Array, Any]:
    """Compositions strictly within the triangle, (N, 3), and their triangulation in the plane."""
    from matplotlib.tri import Triangulation

    i, j = (a.ravel() for a in np.meshgrid(np.arange(MESH), np.arange(MESH)))
    keep = i + j < MESH
    # midpoints of the cells: no part is ever exactly zero, where densities may be infinite
    parts = (np.stack([i, j, MESH - 1 - i - j], axis=1)[keep] + 1 / 3) / MESH
    return parts, Triangulation(*project(parts).T)
