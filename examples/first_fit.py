"""
A first fit
===========

Wind directions that turn with time, with credible arcs, written to out/first_fit.png.
"""

from pathlib import Path

import numpy as np

from ggpm import GGPRegressor
from ggpm.plotting import plot_angles

rng = np.random.default_rng(0)
hours = np.sort(rng.uniform(0, 48, 120))
direction = 0.12 * hours + 0.9 * np.sin(hours / 6)
observed = np.angle(np.exp(1j * rng.vonmises(direction, 4.0)))

model = GGPRegressor("von_mises").fit(hours[:, None], observed)

ax = plot_angles(model)  # mean direction and arcs; an arc may leave the axis at one edge and come back at the other
ax.set(xlabel="hour", title=f"von Mises regression (score {model.score(hours[:, None], observed):.2f})")
Path("out").mkdir(exist_ok=True)
ax.figure.savefig("out/first_fit.png", dpi=150)
print(f"{model.kernel_}\nlog evidence {model.log_marginal_likelihood_value_:.2f}; picture in out/first_fit.png")
