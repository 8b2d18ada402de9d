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
    """The triangle with a grid, ticks in percent and the names of the parts at the corners."""
    ax.set_axis_off()
    ax.set_aspect("equal")
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color="0.2", lw=1.0, zorder=6)
    for t in (0.2, 0.4, 0.6, 0.8):
        for part in range(3):
            a, b = np.zeros(3), np.zeros(3)
            a[part] = b[part] = t
            a[(part + 1) % 3], b[(part + 2) % 3] = 1 - t, 1 - t
            ends = project(np.stack([a, b]))
            ax.plot(*ends.T, color="0.75", lw=0.6, zorder=0.5)
            # the label stands outside, at the edge between this part and the one before it
            edge = ends[1]
            away = edge - CORNERS.mean(axis=0)
            x, y = edge + 0.035 * away / np.linalg.norm(away)
            ax.text(x, y, f"{t:.0%}", fontsize=7, color="0.45", ha="center", va="center")
    places = [("center", "bottom", (0, 0.03)), ("center", "top", (-0.02, -0.05)), ("center", "top", (0.02, -0.05))]
    for corner, name, (ha, va, shift) in zip(CORNERS, names, places):
        ax.text(corner[0] + shift[0], corner[1] + shift[1], name, ha=ha, va=va, fontsize=10)
    ax.set(xlim=(-0.1, 1.1), ylim=(-0.12, 0.97))


@lru_cache(maxsize=1)
def mesh() -> tuple[Array, Any]:
    """Compositions strictly within the triangle, (N, 3), and their triangulation in the plane."""
    from matplotlib.tri import Triangulation

    i, j = (a.ravel() for a in np.meshgrid(np.arange(MESH), np.arange(MESH)))
    keep = i + j < MESH
    # midpoints of the cells: no part is ever exactly zero, where densities may be infinite
    parts = (np.stack([i, j, MESH - 1 - i - j], axis=1)[keep] + 1 / 3) / MESH
    return parts, Triangulation(*project(parts).T)
