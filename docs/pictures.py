"""Pictures of the landing page and of the guides: a density of every kind of output, drawn with the library itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from ggpm import families
from ggpm.plotting.style import BAND, COLOURS, MEAN
from ggpm.plotting.ternary import frame, mesh

STYLE = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "ggpm"}


def density(family: Any, eta: Any, y: Any) -> np.ndarray:
    """Density of y given one latent vector, by the family itself."""
    family = family.resolve(y)
    encoded = family.encode(y)
    return np.exp(family.log_prob(np.broadcast_to(np.asarray(eta, dtype=float), (len(encoded), len(eta))), encoded))


def angles(figure: Figure) -> None:
    ax = figure.add_subplot(projection="polar")
    ax.set_theta_zero_location("N")
    ax.set_theta_direction(-1)
    angle = np.linspace(0, 2 * np.pi, 400)
    for (toward, kappa), colour in zip(((0.9, 12.0), (3.6, 2.0)), COLOURS):
        value = density(families.VonMises(), kappa * np.array([np.cos(toward), np.sin(toward)]), angle)
        ax.fill(angle, value, color=colour, alpha=0.45, lw=1.6)
    ax.set(yticks=[], xticks=np.arange(4) * np.pi / 2, xticklabels=["N", "E", "S", "W"])


def directions(figure: Figure) -> None:
    ax = figure.add_subplot(projection="mollweide")
    longitude, latitude = np.meshgrid(np.linspace(-np.pi, np.pi, 181), np.linspace(-np.pi / 2, np.pi / 2, 91))
    unit = np.stack([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], -1)
    value = density(families.VonMisesFisher(), 9.0 * np.array([0.5, 0.6, 0.62]), unit.reshape(-1, 3))
    ax.pcolormesh(longitude, latitude, value.reshape(longitude.shape), cmap="Blues", shading="auto", rasterized=True)
    ax.set(xticks=[], yticks=[])
    ax.grid(True, color="0.8")


def compositions(figure: Figure) -> None:
    ax = figure.add_subplot()
    parts, triangles = mesh()
    frame(ax, ["sand", "silt", "clay"])
    alpha = np.array([6.0, 3.0, 2.5])
    value = density(families.Dirichlet(link="exp"), np.log(alpha), parts)
    ax.tricontourf(triangles, value, levels=12, cmap="Blues")


def bars(figure: Figure, labels: list[str], values: Any, colour: Any = COLOURS[0]) -> None:
    ax = figure.add_subplot()
    ax.bar(np.arange(len(values)), values, color=colour, alpha=0.85)
    ax.set(xticks=np.arange(len(values)), xticklabels=labels, yticks=[])


def counts(figure: Figure) -> None:
    y = np.arange(16.0)
    ax = figure.add_subplot()
    ax.bar(y - 0.2, density(families.Poisson(), [np.log(4.0)], y), 0.4, color=COLOURS[0], label="Poisson")
    ax.bar(y + 0.2, density(families.NegativeBinomial(phi=0.8), [np.log(4.0)], y), 0.4, color=COLOURS[1],
           label="negative binomial")  # fmt: skip
    ax.set(yticks=[], xlabel="count")
    ax.legend(frameon=False, fontsize="small")


def classes(figure: Figure) -> None:
    p = density(families.Categorical(n_classes=3), [0.2, 1.6, 0.7], np.arange(3.0))
    bars(figure, ["oak", "beech", "pine"], p, COLOURS[:3])


def grades(figure: Figure) -> None:
    ax = figure.add_subplot()
    z, cuts = np.linspace(-3.5, 3.5, 400), (-1.0, 0.4, 1.6)
    ax.plot(z, stats.norm.pdf(z, 0.3), color=MEAN)
    edges = [-3.5, *cuts, 3.5]
    for k, colour in enumerate(matplotlib.colormaps["YlGnBu"](np.linspace(0.2, 0.9, 4))):
        inside = (z >= edges[k]) & (z <= edges[k + 1])
        ax.fill_between(z[inside], stats.norm.pdf(z[inside], 0.3), color=colour)
        ax.text((edges[k] + edges[k + 1]) / 2, 0.43, "ABCD"[k], ha="center")
    ax.set(yticks=[], xticks=cuts, xticklabels=["cut", "cut", "cut"], ylim=(0, 0.5))


def positive(figure: Figure) -> None:
    ax, y = figure.add_subplot(), np.linspace(0.02, 6, 400)
    for phi, colour in zip((0.1, 0.5), COLOURS):
        ax.fill_between(y, density(families.Gamma(phi=phi), [np.log(2.0)], y), color=colour, alpha=0.45)
    ax.set(yticks=[], xlabel="y > 0", xlim=(0, 6), ylim=(0, None))


def bounded(figure: Figure) -> None:
    ax, y = figure.add_subplot(), np.linspace(0.002, 0.998, 400)
    for eta, phi, colour in ((1.2, 12.0, COLOURS[0]), (-0.4, 1.6, COLOURS[1])):
        ax.fill_between(y, density(families.Beta(phi=phi), [eta], y), color=colour, alpha=0.45)
    ax.set(yticks=[], xlabel="share between 0 and 1", xlim=(0, 1), ylim=(0, 4))


def matrices(figure: Figure) -> None:
    from matplotlib.patches import Ellipse

    ax = figure.add_subplot()
    for k, angle in enumerate(np.linspace(10, 70, 5)):
        ax.add_patch(Ellipse((k, 0.25 * np.sin(k)), 0.9, 0.3 + 0.1 * k, angle=angle, color=BAND, alpha=0.5))
    ax.set(xlim=(-0.7, 4.7), ylim=(-0.9, 0.9), xticks=[], yticks=[], aspect="equal")
    ax.set_axis_off()


PICTURES: dict[str, Callable[[Figure], None]] = {
    "angles": angles, "directions": directions, "compositions": compositions, "counts": counts, "classes": classes,
    "grades": grades, "positive": positive, "bounded": bounded, "matrices": matrices,
}  # fmt: skip


def draw_all(folder: Path) -> None:
    """Draw every picture that is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        path = folder / f"{name}.png"
        if not path.exists():
            with matplotlib.rc_context(STYLE):
                figure = Figure(figsize=(4, 3), layout="constrained")
                draw(figure)
                figure.savefig(path, dpi=110)
