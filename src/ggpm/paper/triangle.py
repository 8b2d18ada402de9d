"""Figure 1: the heading of a noisy triangle, from its corners (paper, section 4.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_rel
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel

from ggpm.estimators import GGPRegressor
from ggpm.kernels import median_distance
from ggpm.paper.baselines import AngleGPR, AngleNearestNeighbor, ConstrainedAngleGP, CosSinGPR, RotationNLS, wrap
from ggpm.paper.runner import Report, Row, Runner, Table, column, group, require, seeds

Array = NDArray[np.float64]

SIGNIFICANT = 1e-3  # the paper's level
KERNELS = ("linear", "rbf")
FULL_SIZES = (3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100)
FAST_SIZES = (3, 10, 30, 100)
N_DRAWS = 4000  # behind the predictive density of the figure


@dataclass(frozen=True)
class Settings:
    """Size of the experiment; the default is the paper's (50 trials of 100 test shapes).

    Parameters
    ----------
    sizes : training sizes
    trials : number of triangles
    n_test : test shapes per trial
    noise : standard deviation of the noise on every coordinate
    """

    sizes: tuple[int, ...] = FULL_SIZES
    trials: int = 50
    n_test: int = 100
    noise: float = 0.1


FAST = Settings(sizes=FAST_SIZES, trials=8)


@dataclass(frozen=True)
class Shapes:
    """A triangle with its heading, and the noisy turned copies that are observed."""

    corners: NDArray[np.complex128]
    heading: float
    noise: float

    @classmethod
    def random(cls, rng: np.random.Generator, noise: float) -> Shapes:
        """Three points of a 2-d unit Gaussian, and a uniform heading."""
        points = rng.standard_normal((3, 2))
        return cls(points[:, 0] + 1j * points[:, 1], float(rng.uniform(-np.pi, np.pi)), noise)

    def observe(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        """n noisy copies at uniform rotations: corners (n, 6) and headings (n,)."""
        return self.at(rng, wrap(rng.uniform(-np.pi, np.pi, n)))

    def at(self, rng: np.random.Generator, y: Array) -> tuple[Array, Array]:
        """Noisy copies with the given headings."""
        turned = np.exp(1j * (y - self.heading))[:, None] * self.corners
        points = np.stack([turned.real, turned.imag], axis=-1)
        return (points + self.noise * rng.standard_normal(points.shape)).reshape(len(y), -1), y


def kernel(name: str, X: Array) -> Kernel:
    """The paper's two kernels with starting values that suit the inputs.

    The linear kernel has no intercept (a rotation about the origin has none). Its scale may become large: the
    length of the latent vector is the concentration, about (|shape|/noise)^2.

    >>> kernel("linear", np.ones((2, 6)))
    1**2 * DotProduct(sigma_0=0)
    """
    scale = ConstantKernel(1.0, (1e-5, 1e8))
    if name == "linear":
        return scale * DotProduct(0.0, "fixed")
    return scale * RBF(median_distance(X), (1e-2, 1e4))


METHODS: dict[str, Callable[[Any], Any]] = {
    "VM-Lap": lambda k: GGPRegressor("von_mises", k, inference="laplace"),
    "VM-Tay": lambda k: GGPRegressor("von_mises", k, inference="taylor"),
    "GPR (cos, sin)": CosSinGPR,
    "GPR (angle)": AngleGPR,
    "CGP": ConstrainedAngleGP,
}
RIVALS = ("GPR (angle)", "CGP", "NN", "GPR (cos, sin)")  # whom the von Mises models are compared with
WITHOUT_KERNEL: dict[str, Callable[[], Any]] = {"NN": AngleNearestNeighbor, "NLS": RotationNLS}


def trial(settings: Settings, task: tuple[int, int, np.random.SeedSequence]) -> list[Row]:
    """All methods on one triangle with one training size; larger sets contain the smaller ones."""
    number, n, stream = task
    # a fresh generator from the same stream, so that every size of a trial sees the same shapes
    rng = np.random.default_rng(np.random.SeedSequence(stream.entropy, spawn_key=stream.spawn_key))
    shapes = Shapes.random(rng, settings.noise)
    X_all, y_all = shapes.observe(rng, max(settings.sizes))
    X_test, y_test = shapes.observe(rng, settings.n_test)
    X, y = X_all[:n], y_all[:n]

    def row(method: str, kernel_name: str, model: Any) -> Row:
        error = float(np.mean(np.abs(wrap(model.predict(X_test) - y_test))))
        evidence = getattr(model, "log_marginal_likelihood_value_", "")
        return {
            "n": n, "trial": number, "method": method, "kernel": kernel_name, "error": error, "log_evidence": evidence,
        }  # fmt: skip

    rows = [row(method, name, make(kernel(name, X)).fit(X, y)) for method, make in METHODS.items() for name in KERNELS]
    return rows + [row(method, "", make().fit(X, y)) for method, make in WITHOUT_KERNEL.items()]


def run(settings: Settings, seed: int, runner: Runner) -> Report:
    """The whole experiment: every trial and size, the tables, and the figure."""
    streams = seeds(seed, settings.trials)
    tasks = [(i, n, streams[i]) for n in settings.sizes for i in range(settings.trials)]
    rows = runner.run("triangle", partial(trial, settings), tasks)
    chosen = with_choices(rows)
    tables = [means(chosen, settings), neighbours(chosen, settings), claims(chosen, settings)]
    return Report("triangle", rows, tables, partial(draw, chosen, settings, seed))


def with_choices(rows: list[Row]) -> list[Row]:
    """The rows, and for methods with kernels two choices among them.

    "best" is the kernel with the smaller mean test error at that size (the paper's choice, which knows the test
    set); "evidence" takes in every trial the kernel with the larger evidence, which a user could do.
    """
    out = list(rows)
    for (method, _), these in group(rows, "method", "n").items():
        if method in WITHOUT_KERNEL:
            out += [{**row, "kernel": choice} for row in these for choice in ("best", "evidence")]
            continue
        by_kernel = {name: members for (name,), members in group(these, "kernel").items()}
        best = min(by_kernel, key=lambda name: column(by_kernel[name], "error").mean())
        out += [{**row, "kernel": "best"} for row in by_kernel[best]]
        for pair in group(these, "trial").values():
            out.append({**max(pair, key=lambda row: row["log_evidence"]), "kernel": "evidence"})
    return out


def errors(rows: list[Row], method: str, choice: str, n: int) -> Array:
    """Mean absolute errors of one method at one size, one per trial."""
    found = [row for row in rows if row["method"] == method and row["kernel"] == choice and row["n"] == n]
    return column(sorted(found, key=lambda row: row["trial"]), "error")


def p_value(better: Array, worse: Array) -> float:
    """Two-sided paired t-test over trials; 1 where both are the same numbers.

    >>> p_value(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    1.0
    """
    if len(better) < 2 or np.array_equal(better, worse):
        return 1.0
    return float(ttest_rel(better, worse).pvalue)


def ranking(rows: list[Row], n: int) -> list[tuple[str, Array]]:
    """Methods at one size from the smallest mean error to the largest."""
    all_methods = [*METHODS, *WITHOUT_KERNEL]
    found = [(method, errors(rows, method, "best", n)) for method in all_methods]
    return sorted(found, key=lambda item: item[1].mean())


def means(rows: list[Row], settings: Settings) -> Table:
    """Mean absolute angular error of every method and kernel at every size."""
    keys = [(m, k) for m in METHODS for k in ("best", "evidence", *KERNELS)] + [(m, "best") for m in WITHOUT_KERNEL]
    body = [
        [method, choice if method in METHODS else "", *(float(errors(rows, method, choice, n).mean()) for n in sizes)]
        for sizes in [settings.sizes]
        for method, choice in keys
    ]
    title = f"Mean absolute angular error (radians), {settings.trials} trials of {settings.n_test} test shapes"
    return Table(title, ["method", "kernel", *(f"n={n}" for n in settings.sizes)], body)


def neighbours(rows: list[Row], settings: Settings) -> Table:
    """Methods in order of error at every size, with paired t-tests between neighbours."""
    body = []
    for n in settings.sizes:
        ranked = ranking(rows, n)
        for (method, mine), following in zip(ranked, [*ranked[1:], None]):
            p = None if following is None else p_value(mine, following[1])
            mark = "" if p is None else ("yes" if p < SIGNIFICANT else "no")
            # ratios of errors: a trial in which one method fails altogether weighs less
            of_logs = None if following is None else p_value(np.log(mine), np.log(following[1]))
            cells = ["" if value is None else f"{value:.1e}" for value in (p, of_logs)]
            body.append([n, method, float(mine.mean()), cells[0], mark, cells[1]])
    columns = ["n", "method", "mean error", "p against the next", f"p < {SIGNIFICANT:g}", "p of log errors"]
    return Table("Best kernel per method, in order of error; paired t-tests between neighbours", columns, body)


def claims(rows: list[Row], settings: Settings) -> Table:
    """The paper's claims about figure 1c, at every size."""
    body = []
    for n in settings.sizes:
        nls = errors(rows, "NLS", "best", n).mean()
        for method in ("VM-Lap", "VM-Tay"):
            mine = errors(rows, method, "best", n)
            cells = [_verdict(mine, errors(rows, other, "best", n)) for other in RIVALS]
            body.append([n, method, *cells, f"{100 * (mine.mean() / nls - 1):+.1f} %"])
    title = "Von Mises models against the others: p of a paired t-test over trials, and in how many of them better"
    return Table(title, ["n", "model", *RIVALS, "error above NLS"], body)


def _verdict(mine: Array, theirs: Array) -> str:
    p, wins = p_value(mine, theirs), int(np.sum(mine < theirs))
    if p >= SIGNIFICANT:
        return f"as well, {p:.2g} ({wins})"
    return f"{'better' if mine.mean() < theirs.mean() else 'worse'}, {p:.0e} ({wins})"


# ---- figure ----------------------------------------------------------------------------------------------------
def draw(rows: list[Row], settings: Settings, seed: int, path: Path) -> None:
    """Panels a, b and c of the paper's figure 1."""
    plt = require("matplotlib.pyplot")
    rng = np.random.default_rng([seed, 4])
    shapes = Shapes.random(rng, settings.noise)
    X, y = shapes.at(rng, wrap(shapes.heading + 0.3 + np.pi / 2 * np.arange(4) + rng.uniform(-0.4, 0.4, 4)))
    model = GGPRegressor("von_mises", kernel("linear", X), inference="laplace").fit(X, y)
    y_test = np.linspace(-np.pi, np.pi, 181)[:-1]
    X_test, _ = shapes.at(rng, y_test)

    figure = plt.figure(figsize=(14, 4.4), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=[1.1, 1.0, 1.35])
    top, bottom = left.subfigures(2, 1, height_ratios=[1.0, 2.0])
    top.suptitle("(a) four training shapes; predictive density of the error", fontsize=10)
    _draw_shapes(top.subplots(1, 4), X, y)
    _draw_errors(bottom, model, X_test, y_test, y)
    _draw_latent(middle, model, X_test, y_test)
    right.suptitle("(c) best kernel; filled: better than the next, p < 0.001", fontsize=10)
    _draw_curves(right.subplots(), rows, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_shapes(axes: Any, X: Array, y: Array) -> None:
    reach = 1.15 * max(1.0, float(np.abs(X).max()))
    for ax, shape, angle in zip(axes, X, y):
        corners = shape.reshape(3, 2)
        ax.fill(*corners.T, facecolor="tab:blue", alpha=0.25, edgecolor="tab:blue", lw=1.2)
        for corner, marker in zip(corners, "os^"):  # the order of the corners is known
            ax.plot(*corner, marker, color="tab:blue", ms=4)
        ax.annotate(
            "", 0.9 * reach * np.array([np.cos(angle), np.sin(angle)]), (0, 0),
            arrowprops={"arrowstyle": "->", "color": "tab:red", "lw": 1.6},
        )  # fmt: skip
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])


def _draw_errors(figure: Any, model: GGPRegressor, X: Array, y: Array, y_train: Array) -> None:
    ax = figure.subplots()
    predictive = model.predict_dist(X)
    bins = np.linspace(-np.pi / 2, np.pi / 2, 62)
    draws = wrap(predictive.sample(N_DRAWS, 0) - y)
    counts = np.stack([np.histogram(column_of_draws, bins)[0] for column_of_draws in draws.T], axis=1)
    density = counts / (N_DRAWS * (bins[1] - bins[0]))
    edges = (y[0], y[-1] + (y[1] - y[0]), bins[0], bins[-1])
    norm = require("matplotlib.colors").PowerNorm(0.5, vmin=0.0)  # the tails are to be seen beside the peaks
    image = ax.imshow(density, origin="lower", extent=edges, aspect="auto", cmap="Greys", norm=norm)
    ax.plot(y, wrap(predictive.mean() - y), ".", ms=2, color="tab:blue", label="predictive mean")
    ax.axhline(0, color="tab:red", lw=0.8)
    ax.plot(y_train, np.zeros(len(y_train)), "o", color="tab:red", ms=5, label="training headings")
    ax.set(xlim=(-np.pi, np.pi), ylim=(-np.pi / 2, np.pi / 2), xlabel="true heading", ylabel="error")
    ax.set_xticks([-np.pi, 0, np.pi], ["−π", "0", "π"])
    ax.set_yticks([-np.pi / 2, 0, np.pi / 2], ["−π/2", "0", "π/2"])
    ax.legend(fontsize=7, loc="upper right")
    figure.colorbar(image, ax=ax, label="density")


def _draw_latent(figure: Any, model: GGPRegressor, X: Array, y: Array) -> None:
    ax = figure.subplots()
    mean, _ = model.predict_latent(X)
    points = ax.scatter(*mean.T, c=y, cmap="twilight", s=10, vmin=-np.pi, vmax=np.pi)
    ax.plot(0, 0, "+", color="black", ms=10)
    reach = 1.1 * np.abs(mean).max()
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="latent 1", ylabel="latent 2")
    figure.suptitle("(b) latent vectors of the test shapes", fontsize=10)
    bar = figure.colorbar(points, ax=ax, label="true heading", shrink=0.75)
    bar.set_ticks([-np.pi, 0, np.pi], labels=["−π", "0", "π"])


def _draw_curves(ax: Any, rows: list[Row], settings: Settings) -> None:
    styles = dict(zip([*METHODS, *WITHOUT_KERNEL], "os^vDPX"))
    lines = {m: np.array([errors(rows, m, "best", n).mean() for n in settings.sizes]) for m in styles}
    bold: dict[str, list[bool]] = {m: [] for m in styles}
    for n in settings.sizes:
        ranked = ranking(rows, n)
        for (method, mine), following in zip(ranked, [*ranked[1:], None]):
            bold[method].append(following is not None and p_value(mine, following[1]) < SIGNIFICANT)
    for i, (method, marker) in enumerate(styles.items()):
        color, filled = f"C{i}", np.array(bold[method])
        sizes = np.array(settings.sizes)
        ax.plot(sizes, lines[method], "-", color=color, lw=1.3)
        ax.plot(sizes[filled], lines[method][filled], marker, color=color, ms=7)
        ax.plot(sizes[~filled], lines[method][~filled], marker, color=color, ms=5, mfc="white")
        ax.plot([], [], marker + "-", color=color, ms=6, label=method)
    ax.set(xscale="log", yscale="log", xlabel="training shapes", ylabel="mean absolute error (radians)")
    ax.set_xticks(settings.sizes, [str(n) for n in settings.sizes])
    ax.minorticks_off()
    ticks = [t for t in (0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5) if ax.get_ylim()[0] <= t <= ax.get_ylim()[1]]
    ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
    ax.grid(alpha=0.25)
    ax.legend(fontsize=8)
