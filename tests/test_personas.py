"""Jobs of people, from their tables to answers: everything at once, in Python and in the shell."""

import json

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ggpm
from cases import click_runner
from ggpm import GGPRegressor
from ggpm.cli import main
from ggpm.families import Dirichlet, VonMises
from ggpm.kernels import Category, Cyclic, On, Sphere

C = ConstantKernel


def test_wind_with_timestamps_stations_and_a_daily_cycle(tmp_path):
    rng = np.random.default_rng(0)
    n = 90
    time = pd.to_datetime("2024-06-01") + pd.to_timedelta(np.sort(rng.integers(0, 10 * 24 * 60, n)), "min")
    station = rng.choice(["coast", "hill"], n)
    hour = time.hour + time.minute / 60
    turn = 200 + 60 * np.sin(2 * np.pi * hour / 24) + np.where(station == "hill", 50, 0)
    wind = pd.DataFrame({"time": time, "station": station, "dir": np.mod(turn + rng.normal(0, 8, n), 360)})
    kernel = C() * On(Cyclic(24), "time") + C() * Category("station") + C(1.0)
    model = GGPRegressor(VonMises(units="degrees"), kernel).fit(wind[["time", "station"]], wind["dir"])
    new = pd.DataFrame({"time": pd.to_datetime(["2024-07-15 06:00", "2024-07-15 18:00"]), "station": ["coast", "hill"]})
    np.testing.assert_allclose(model.predict(new), [260.0, 190.0], atol=12)
    wind.to_csv(tmp_path / "wind.csv", index=False)
    new.to_csv(tmp_path / "new.csv", index=False)
    run = click_runner().invoke(main, ["fit", str(tmp_path / "wind.csv"), "--target", "dir", "--family", "von_mises",
                                    "--units", "degrees", "--out", str(tmp_path / "m.ggpm"), "--json"])  # fmt: skip
    assert run.exit_code == 0 and "Cyclic(24" in json.loads(run.stdout)["kernel"]
    run = click_runner().invoke(main, ["predict", str(tmp_path / "m.ggpm"), str(tmp_path / "wind.csv"), "--json"])
    found = pd.DataFrame(json.loads(run.stdout)["rows"])["mean"].to_numpy()
    assert np.abs(np.mod(found - wind["dir"] + 180, 360) - 180).mean() < 15


@pytest.mark.slow
def test_soil_with_land_use_places_weights_and_missing_parts():
    rng = np.random.default_rng(1)
    n = 40
    soil = pd.DataFrame({"lat": rng.uniform(50, 52, n), "lon": rng.uniform(6, 9, n)})
    soil["use"] = pd.Categorical(rng.choice(["crop", "wood"], n))
    alpha = np.exp(
        np.stack([2 + 0.5 * (soil["lat"] - 51), 1.5 + 0.8 * (soil["use"] == "wood"), np.full(n, 1.8)], axis=1)
    )
    parts = np.array([rng.dirichlet(a) for a in 4 * alpha])
    parts[::5, 1:] = np.nan  # sand alone was measured
    parts[::7] = np.nan  # lost samples
    y = pd.DataFrame(100 * parts, columns=["sand", "silt", "clay"])
    kernel = C() * On(Sphere(0.01), ["lat", "lon"]) + C() * Category("use") + C()
    model = GGPRegressor(Dirichlet(closure=True), kernel)
    with pytest.warns(UserWarning, match="y is missing in 6 of 40"):
        model.fit(soil, y, sample_weight=rng.uniform(0.5, 2.0, n))
    shares = model.predict(soil)
    np.testing.assert_allclose(shares.sum(axis=1), 100.0)
    wood = shares["silt"][soil["use"] == "wood"].mean() - shares["silt"][soil["use"] == "crop"].mean()
    assert wood > 5  # percent of silt more in woods: exp(0.8) times the share's weight
    assert set(model.terms(soil)) == {"Sphere(lat, lon)", "Category(use)", "constant"}


def test_ratings_by_subject_with_exposure_in_a_pipeline():
    rng = np.random.default_rng(2)
    n, subjects = 96, 12
    table = pd.DataFrame({"age": rng.uniform(20, 70, n), "subject": [f"S{i % subjects:02d}" for i in range(n)]})
    minutes = rng.uniform(5, 60, n)
    level = rng.normal(0, 0.6, subjects)
    y = rng.poisson(minutes / 20 * np.exp(0.02 * (table["age"] - 45) + level[np.arange(n) % subjects]))
    scale = make_column_transformer(
        (StandardScaler(), ["age"]), remainder="passthrough", verbose_feature_names_out=False
    )
    scale.set_output(transform="pandas")
    model = GGPRegressor("poisson", C() * On(RBF(), "age") + C() * Category("subject") + C())
    sklearn.set_config(enable_metadata_routing=True)
    try:
        model.set_fit_request(offset=True).set_score_request(offset=True)
        scorer = ggpm.log_predictive_density_scorer.set_score_request(offset=True)
        params = {"offset": np.log(minutes / 20), "groups": table["subject"]}
        with pytest.warns(UserWarning, match="not seen in fit"):  # whole subjects are held out
            scores = cross_val_score(
                make_pipeline(scale, model), table, y, cv=GroupKFold(3), scoring=scorer, params=params
            )
    finally:
        sklearn.set_config(enable_metadata_routing=False)
    assert np.all(np.isfinite(scores)) and scores.mean() > -4
