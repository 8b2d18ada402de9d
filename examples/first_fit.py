"""A first fit: wind directions that turn with time, with credible arcs, written to out/first_fit.png."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ggpm import GGPRegressor

rng = np.random.default_rng(0)
hours = np.sort(rng.uniform(0, 48, 120))
direction = 0.12 * hours + 0.9 * np.sin(hours / 6)
observed = np.angle(np.exp(1j * rng.vonmises(direction, 4.0)))

model = GGPRegressor("von_mises").fit(hours[:, None], observed)
grid = np.linspace(0, 48, 300)
predictive = model.predict_dist(grid[:, None])
mean, arcs = predictive.mean(), predictive.interval(0.9)

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for turn in (-2 * np.pi, 0.0, 2 * np.pi):  # an arc may leave the axis at one edge and come back at the other
    width = np.mod(arcs[:, 1] - arcs[:, 0], 2 * np.pi)
    ax.fill_between(grid, arcs[:, 0] + turn, arcs[:, 0] + width + turn, color="tab:blue", alpha=0.2, lw=0)
breaks = np.insert(mean, np.flatnonzero(np.abs(np.diff(mean)) > np.pi) + 1, np.nan)
ax.plot(np.insert(grid, np.flatnonzero(np.abs(np.diff(mean)) > np.pi) + 1, np.nan), breaks, color="tab:blue")
ax.plot(hours, observed, ".", color="black", ms=4)
ax.set(xlim=(0, 48), ylim=(-np.pi, np.pi), xlabel="hour", ylabel="direction (radians)")
ax.set_yticks([-np.pi, -np.pi / 2, 0, np.pi / 2, np.pi], ["−π", "−π/2", "0", "π/2", "π"])
ax.set_title(f"von Mises regression: mean and 90 % arcs (score {model.score(hours[:, None], observed):.2f})")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/first_fit.png", dpi=150)
print(f"{model.kernel_}\nlog evidence {model.log_marginal_likelihood_value_:.2f}; picture in out/first_fit.png")
