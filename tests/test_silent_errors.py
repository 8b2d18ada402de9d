"""What used to be silently wrong is right, or an error that says what to do."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

import ggpm
from cases import click_runner
from ggpm import GGPClassifier, GGPRegressor, log_predictive_density_scorer
from ggpm.cli import main
from ggpm.data.tables import TableError, features_of, read_table
from ggpm.prediction.evaluation import evaluate

KERNEL = ConstantKernel(1.0) * RBF(2.0)


def held(family="poisson", kernel=KERNEL, **settings):
    return GGPRegressor(family, kernel, optimizer=None, **settings)


def run(*arguments, code=0):
    result = click_runner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


# ---- (a), (f) times ----------------------------------------------------------------------------------------------
START = np.datetime64("2024-03-01T00:00")


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "m"])
def test_times_are_hours_whatever_their_resolution(unit):
    times = START + np.arange(24) * np.timedelta64(90, "m")
    y = np.arange(24) % 5
    plain = held().fit(1.5 * np.arange(24.0)[:, None], y)
    model = held().fit(times.astype(f"datetime64[{unit}]")[:, None], y)
    new = (times + np.timedelta64(30, "m"))[:, None]
    for other in ("ns", "s", "m"):
        found = model.predict(new.astype(f"datetime64[{other}]"))
        np.testing.assert_allclose(found, plain.predict(1.5 * np.arange(24.0)[:, None] + 0.5), rtol=1e-9)
    frame = pd.DataFrame({"time": times.astype("datetime64[s]")})
    named = held().fit(frame, y)
    later = pd.DataFrame({"time": pd.DatetimeIndex(new[:, 0]).as_unit("ns")})
    np.testing.assert_allclose(named.predict(later), model.predict(new), rtol=1e-12)


def test_missing_times_are_named():
    frame = pd.DataFrame({"when": pd.to_datetime(["2024-01-01", None, "2024-01-03"]), "x": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"NaN: column 'when' in 1 of 3 row\(s\), first in row 1"):
        held().fit(frame, [1, 2, 3])
    times = np.array(["2024-01-01", "NaT", "2024-01-03"], dtype="datetime64[D]")[:, None]
    for inducing in (None, 2):
        with pytest.raises(ValueError, match="NaN: column 0 in 1 of 3"):
            held(inducing=inducing).fit(times, [1, 2, 3])
    model = held().fit(frame[["x"]], [1, 2, 3])
    with pytest.raises(ValueError, match="column 'x' must be numbers, as in fit; got times"):
        model.predict(pd.DataFrame({"x": frame["when"]}))


def test_times_in_chunks_are_those_in_memory(tmp_path):
    from ggpm.data.parquet import ParquetRows

    table = pd.DataFrame({"t": START + np.arange(9) * np.timedelta64(1, "h"), "n": np.arange(9)})
    table.to_parquet(tmp_path / "t.parquet")
    streamed = held(inducing=3).fit(ParquetRows(tmp_path / "t.parquet", ["t"], "n"))
    memory = held(inducing=3).fit(table[["t"]], table["n"])
    np.testing.assert_allclose(streamed.predict(table[["t"]]), memory.predict(table[["t"]]), rtol=1e-10)


# ---- (b) offsets ---------------------------------------------------------------------------------------------------
def exposed(n=60):
    rng = np.random.default_rng(0)
    X, exposure = rng.uniform(0, 5, (n, 1)), rng.uniform(1, 200, n)
    return X, rng.poisson(exposure * np.exp(np.sin(X[:, 0]))), np.log(exposure)


def test_a_model_with_an_offset_asks_for_it():
    X, y, offset = exposed()
    model = held().fit(X, y, offset=offset)
    for ask in (
        lambda: model.predict(X), lambda: model.score(X, y), lambda: model.summary(X), lambda: model.sample_y(X),
        lambda: ggpm.calibration(model, X, y), lambda: evaluate(model, X, y), lambda: model.predict_latent(X),
        lambda: model.log_predictive_density(X, y), lambda: log_predictive_density_scorer(model, X, y),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="fitted with an offset"):
            ask()
    np.testing.assert_allclose(model.predict(X, offset=0) * np.exp(offset), model.predict(X, offset=offset))
    assert held().fit(X, y, offset=np.zeros(60)).predict(X).shape == (60,)  # nothing was offset
    named = held().fit(X, y, offset=pd.Series(offset, name="log_exposure"))
    with pytest.raises(ValueError, match=r"offset \(log_exposure\)"):
        named.predict(X)
    labels = GGPClassifier(KERNEL, optimizer=None).fit(X, y > 50, offset=offset)
    with pytest.raises(ValueError, match="fitted with an offset"):
        labels.predict_proba(X)


@pytest.fixture
def routing():
    sklearn.set_config(enable_metadata_routing=True)
    yield
    sklearn.set_config(enable_metadata_routing=False)


def test_offsets_go_through_cross_validation_and_pipelines(routing):
    X, y, offset = exposed()
    folds = KFold(3, shuffle=True, random_state=0)
    model = held().set_fit_request(offset=True).set_score_request(offset=True)
    by_hand = []
    for train, test in folds.split(X):
        fitted = held().fit(X[train], y[train], offset=offset[train])
        by_hand.append(fitted.score(X[test], y[test], offset=offset[test]))
    np.testing.assert_allclose(cross_val_score(model, X, y, cv=folds, params={"offset": offset}), by_hand)
    pipe = make_pipeline(StandardScaler(with_mean=False, with_std=False), model)
    settings = {"cv": folds, "params": {"offset": offset}, "error_score": "raise"}
    if parse_version(sklearn.__version__) < parse_version("1.8"):  # routes nothing to a pipeline's own score
        with pytest.raises(ValueError, match="fitted with an offset, and none is given here"):
            cross_val_score(pipe, X, y, **settings)
    else:
        np.testing.assert_allclose(cross_val_score(pipe, X, y, **settings), by_hand)
    scorer = log_predictive_density_scorer.set_score_request(offset=True)
    densities = []
    for train, test in folds.split(X):
        fitted = held().fit(X[train], y[train], offset=offset[train])
        densities.append(np.mean(fitted.log_predictive_density(X[test], y[test], offset=offset[test])))
    for estimator in (model, pipe):
        found = cross_val_score(estimator, X, y, cv=folds, scoring=scorer, params={"offset": offset})
        np.testing.assert_allclose(found, densities)
    search = GridSearchCV(model, {"inference": ["taylor", "auto"]}, cv=folds, scoring=scorer, refit=False)
    search.fit(X, y, offset=offset)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"][1], np.mean(densities))
    plain = {"cv": folds, "scoring": log_predictive_density_scorer, "error_score": "raise"}  # it asks for nothing
    with pytest.raises(ValueError, match="fitted with an offset, and none is given here"):
        cross_val_score(model, X, y, params={"offset": offset}, **plain)


# ---- (c) routing ---------------------------------------------------------------------------------------------------
def test_pipelines_score_with_routing(routing):
    X, y, _ = exposed(30)
    pipe = make_pipeline(StandardScaler(), held())
    assert np.all(np.isfinite(cross_val_score(pipe, X, y, cv=3, params={})))  # None fails in scikit-learn 1.6.0
    weights = np.linspace(0.0, 2.0, 30)
    weighted = held().set_score_request(sample_weight=True).set_fit_request(sample_weight=False)
    found = cross_val_score(weighted, X, y, cv=KFold(2), params={"sample_weight": weights})
    model = held().fit(X[15:], y[15:])
    np.testing.assert_allclose(found[0], model.score(X[:15], y[:15], sample_weight=weights[:15]))


def test_weighted_scores_are_those_of_repeated_rows():
    X, y, _ = exposed(30)
    twice = np.repeat(np.arange(30), 1 + np.arange(30) % 2)
    for family, target in (("poisson", y), ("gaussian", y / 50), ("von_mises", y % 6.0), ("ordinal", y % 3)):
        model = held(family).fit(X, target)
        weighted = model.score(X, target, sample_weight=1 + np.arange(30) % 2)
        np.testing.assert_allclose(weighted, model.score(X[twice], target[twice]), rtol=1e-12)
    with pytest.raises(ValueError, match="sample_weight must be finite and not negative; row 2 has -1"):
        model.score(X, target, sample_weight=np.where(np.arange(30) == 2, -1.0, 1.0))


# ---- (d) counts out of N -----------------------------------------------------------------------------------------
def test_intervals_of_counts_need_their_trials():
    rng = np.random.default_rng(0)
    X = np.arange(12.0)[:, None]
    y = rng.multinomial(30, [0.2, 0.3, 0.5], 12).astype(float)
    model = held("multinomial").fit(X, pd.DataFrame(y, columns=["a", "b", "c"]))
    with pytest.raises(ValueError, match="needs their number of trials"):
        model.predict_dist(X).interval(0.9)
    shares = model.summary(X, level=0.9)
    assert list(shares.columns[:4]) == ["a_mean", "b_mean", "c_mean", "a_mean_lower"]
    assert np.all((shares["a_mean_lower"] < shares["a_mean"]) & (shares["a_mean"] < shares["a_mean_upper"]))
    assert shares["a_mean_upper"].max() < 0.9  # one trial would have said 1
    counts = model.summary(X, trials=30)
    assert counts["a_upper"].between(2, 20).all()
    draws = model.predict_dist(X).sample(1)  # shares of the latent, by hand
    assert draws.shape == (1, 12, 3)
    latent_mean, latent_cov = model.predict_latent(X)
    eta = np.stack([np.random.default_rng(i).multivariate_normal(m, c, 20_000) for i, (m, c) in
                    enumerate(zip(latent_mean, latent_cov))])  # fmt: skip
    share = np.exp(eta[..., 0]) / np.exp(eta).sum(axis=-1)
    np.testing.assert_allclose(shares["a_mean_lower"], np.quantile(share, 0.05, axis=1), atol=0.01)


# ---- (e), (g), (h) tables ----------------------------------------------------------------------------------------
def test_text_time_and_index_columns_are_used_or_named(tmp_path):
    rng = np.random.default_rng(0)
    n = 40
    table = pd.DataFrame({
        "time": pd.date_range("2024-01-01", periods=n, freq="3h").astype(str), "station": rng.choice(["N", "S"], n),
        "note": [f"note {i}" for i in range(n)], "temp": rng.normal(size=n),
    })  # fmt: skip
    table["count"] = rng.poisson(np.where(table["station"] == "N", 3.0, 30.0))
    table.to_csv(tmp_path / "t.csv")  # with its index, as people do
    result = run("fit", tmp_path / "t.csv", "--target", "count", "--family", "poisson", "--out", tmp_path / "m.ggpm",
                 "--json")  # fmt: skip
    told = json.loads(result.stdout)
    assert told["features"] == ["time", "station", "temp"] and "Category('station')" in told["kernel"]
    said = result.stderr.replace("\n", " ")
    assert "'Unnamed: 0' numbers the rows" in said and "'note' is text that differs in every row" in said
    new = pd.DataFrame({"time": ["2024-01-02T04:30"] * 3, "station": ["N", "S", "N"], "temp": [0.0, 0.0, np.nan]})
    new.to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", tmp_path / "m.ggpm", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    predicted = pd.read_csv(tmp_path / "p.csv")
    assert predicted["mean"][0] < 8 and predicted["mean"][1] > 15 and predicted.iloc[2].isna().all()
    assert "1 of 3 rows have no prediction" in result.stderr.replace("\n", " ")
    model = ggpm.load(tmp_path / "m.ggpm")
    frame = pd.DataFrame({"time": pd.to_datetime(new["time"]), "station": new["station"], "temp": 0.0})
    np.testing.assert_allclose(model.predict(frame)[:2], predicted["mean"][:2], rtol=1e-12)


def test_a_word_among_numbers_is_an_error(tmp_path):
    (tmp_path / "t.csv").write_text("x,temp,n\n1,3.5,4\n2,n.a,5\n3,2.5,6\n")
    result = run("fit", tmp_path / "t.csv", "--target", "n", "--family", "poisson", "--out", tmp_path / "m", code=1)
    assert "column 'temp', row 2: 'n.a' is text among numbers" in result.stderr.replace("\n", " ")
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "temp": ["3.5", "n.a", "2.5"]})
    with pytest.raises(ValueError, match=r"column 'temp' has text among numbers: 'n.a' in row 1"):
        held().fit(frame, [1, 2, 3])
    with pytest.raises(ValueError, match=r"column 'temp' has values of several kinds: number in row 0 .*text in row 1"):
        held().fit(frame.assign(temp=[3.5, "low", 2.5]), [1, 2, 3])


@pytest.mark.parametrize("text", ["a,b\n1,2,3\n4,5,6\n", "a,b\n1,2,\n4,5,\n", "a,b\n1,2,3\n4,5\n"])
def test_longer_rows_are_not_shifted(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(TableError, match="row 1 has 3 fields, the header 2"):
        read_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n4,5,6\n")
    with pytest.raises(TableError, match="Expected 2 fields in line 3, saw 3"):
        read_table(tmp_path / "t.csv")


def test_the_offset_column_is_remembered(tmp_path):
    X, y, offset = exposed()
    table = pd.DataFrame({"x": X[:, 0], "log_exposure": offset, "n": y})
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    run("fit", tmp_path / "t.csv", "--target", "n", "--family", "poisson", "--offset", "log_exposure",
        "--out", tmp_path / "m.ggpm")  # fmt: skip
    told = json.loads(run("evaluate", tmp_path / "m.ggpm", tmp_path / "t.csv", "--json").stdout)
    assert told["coverage"] > 0.8
    model = ggpm.load(tmp_path / "m.ggpm")
    expected = model.predict(table[["x"]], offset=offset)
    for data in ("t.csv", "t.parquet"):
        out = tmp_path / f"p.{data[2:]}"
        run("predict", tmp_path / "m.ggpm", tmp_path / data, "--out", out)
        found = read_table(out)["mean"]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        run("predict", tmp_path / "m.ggpm", tmp_path / data, "--offset", "0", "--out", out)
        np.testing.assert_allclose(read_table(out)["mean"], model.predict(table[["x"]], offset=0), rtol=1e-6)
    table[["x", "n"]].to_csv(tmp_path / "bare.csv", index=False)
    for command in ("predict", "evaluate"):
        said = run(command, tmp_path / "m.ggpm", tmp_path / "bare.csv", code=1).stderr.replace("\n", " ")
        assert "fitted with the offset 'log_exposure'" in said and "--offset 0" in said


def test_features_that_are_named_are_taken_as_they_are():
    table = pd.DataFrame({"id": [1, 2, 3], "code": ["7", "8", "9"], "flag": [True, False, True], "y": [1, 2, 3]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = features_of(table, "id,code,flag", exclude=["y"], path="t.csv")
    assert chosen["code"].tolist() == [7.0, 8.0, 9.0] and chosen["flag"].dtype == bool
    with pytest.warns(UserWarning, match="'id' numbers the rows"):
        assert features_of(table, None, exclude=["y"], path="t.csv").columns.tolist() == ["code", "flag"]
