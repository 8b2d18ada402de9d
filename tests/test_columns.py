"""The door for X: what columns hold is found, remembered, checked, and never guessed at."""

import datetime
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPClassifier, GGPRegressor, load, plotting, save
from ggpm.data.columns import Column, Columns, hours, is_table, learn
from ggpm.kernels import Category, On

N = 24
RNG = np.random.default_rng(0)
Y = np.arange(N) % 5
FRAME = pd.DataFrame({
    "when": pd.date_range("2024-03-30 12:00", periods=N, freq="7h"),
    "station": np.array(["north", "south", "west"])[np.arange(N) % 3],
    "temp": RNG.normal(size=N).round(3),
    "wet": np.arange(N) % 2 == 0,
    "lasted": pd.to_timedelta(RNG.uniform(0, 300, N).round(), unit="min"),
    "grade": pd.Categorical.from_codes(np.arange(N) % 2, ["low", "high"], ordered=True),
    "site": pd.Categorical.from_codes(np.arange(N) % 4, [101, 102, 103, 104]),
})  # fmt: skip
KINDS = ("time", "category", "number", "boolean", "duration", "category", "category")
KERNEL = On(RBF(9.0), ["when", "temp", "wet", "lasted"]) + Category("station") + Category(["grade", "site"])


def fitted(frame=FRAME, **settings):
    return GGPRegressor("poisson", KERNEL, optimizer=None, **settings).fit(frame, Y)


def test_what_columns_hold_is_found():
    columns, X = learn(FRAME, FRAME.columns)
    assert columns.kinds == KINDS and columns.names == tuple(FRAME.columns)
    np.testing.assert_array_equal(X[:, 0], 7.0 * np.arange(N) + hours(np.array(["2024-03-30T12"], "M8[h]")))
    np.testing.assert_array_equal(X[:, 1], np.arange(N) % 3)
    np.testing.assert_array_equal(X[:, 4], FRAME["lasted"].dt.total_seconds() / 3600)
    assert columns.members[5].labels == ("low", "high") and columns.members[6].labels == (101, 102, 103, 104)
    back = columns.decode(X)
    np.testing.assert_array_equal(columns.encode(back), X)
    assert back["station"].tolist() == FRAME["station"].tolist() and back["when"].tolist() == FRAME["when"].tolist()


@pytest.mark.parametrize("frame", ["polars", "objects", "extension types", "pyarrow"])
def test_frames_of_every_make_are_the_same(frame):
    expected = fitted().predict(FRAME)
    if frame == "polars":
        pl = pytest.importorskip("polars")
        simple = FRAME.assign(grade=FRAME["grade"].astype(str), site=FRAME["site"].astype(int))
        other = pl.from_pandas(simple).with_columns(
            pl.col("grade").cast(pl.Enum(["low", "high"])), pl.col("station").cast(pl.Categorical)
        )
    elif frame == "objects":
        other = FRAME.astype(object)
    else:
        other = FRAME.convert_dtypes(dtype_backend="pyarrow" if frame == "pyarrow" else "numpy_nullable")
    np.testing.assert_allclose(fitted().predict(other), expected, rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        kernel = On(RBF(9.0), [0, 2, 3, 4]) + Category(1) + Category([5, 6])
        again = GGPRegressor("poisson", kernel, optimizer=None).fit(other, Y)
        np.testing.assert_allclose(again.predict(other), expected, rtol=1e-12)


def test_arrays_of_objects_have_columns_too():
    X = FRAME[["station", "temp"]].to_numpy(dtype=object)
    kernel = Category(0) + On(RBF(), 1)
    model = GGPRegressor("poisson", kernel, optimizer=None).fit(X, Y)
    named = GGPRegressor("poisson", Category("station") + On(RBF(), "temp"), optimizer=None)
    expected = named.fit(FRAME[["station", "temp"]], Y).predict(FRAME[["station", "temp"]])
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12)
    assert not is_table([[1.0, 2.0]]) and is_table([["a", 2.0]]) and not is_table(np.array([[1, 2.5]], dtype=object))
    dates = np.array([[datetime.date(2024, 1, d)] for d in (1, 2, 5)], dtype=object)
    np.testing.assert_array_equal(np.diff(learn(dates)[1][:, 0]), [24.0, 72.0])


def test_a_label_that_was_not_seen_is_predicted_from_its_prior():
    kernel = ConstantKernel(2.0) * Category("station") + ConstantKernel(1.0) * On(RBF(), "temp")
    X = FRAME[["station", "temp"]]
    model = GGPRegressor("poisson", kernel, optimizer=None).fit(X, Y)
    new = pd.DataFrame({"station": ["east", "mars", "east"], "temp": [0.1, 0.1, 0.1]})
    with pytest.warns(
        UserWarning, match=r"column 'station' has 2 label\(s\) that were not seen in fit \('east', 'mars'"
    ):
        mean, cov = model.predict_latent(new)
    alone = GGPRegressor("poisson", model.kernel_, optimizer=None)
    np.testing.assert_allclose(mean[0], mean[1], rtol=1e-12)
    assert cov[0, 0, 0] > 2.0 and alone is not model  # the whole variance of a level, and more
    columns = model.fit_.columns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        codes = columns.encode(new)[:, 0]
    assert codes[0] == codes[2] != codes[1] and codes.min() >= 3  # the same new label has the same level


def test_columns_are_compared_with_those_of_fit():
    model = fitted()
    with pytest.raises(ValueError, match=r"(?s)same order.*They are when, station, .*got station, when"):
        model.predict(FRAME[["station", "when", *FRAME.columns[2:]]])
    with pytest.raises(ValueError, match=r"(?s)seen at fit time, yet now missing.*- temp"):
        model.predict(FRAME.drop(columns="temp"))
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time.*- extra"):
        model.predict(FRAME.assign(extra=1))
    zoned = FRAME.assign(when=FRAME["when"].dt.tz_localize("UTC"))
    with pytest.raises(ValueError, match="column 'when' must be times without a time zone, as in fit"):
        model.predict(zoned)
    with pytest.raises(ValueError, match="column 'when' must be times, as in fit; got numbers"):
        model.predict(FRAME.assign(when=1.0))
    with pytest.raises(ValueError, match="column 'temp' must be numbers, as in fit; got text"):
        model.predict(FRAME.assign(temp="warm"))
    with pytest.raises(ValueError, match=r"column 'station' must be labels such as 'north', as in fit; got numbers"):
        model.predict(FRAME.assign(station=3.5))
    holes = FRAME.assign(
        station=FRAME["station"].mask(np.arange(N) == 3), temp=FRAME["temp"].mask(np.arange(N) > 21)
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"NaN: column 'station' in 1 of 24 .*first in row 3; column 'temp' in 2"):
        model.predict(holes)


def test_zones_are_instants():
    local = pd.date_range("2024-03-30 12:00", periods=N, freq="7h", tz="Europe/Paris")  # the clocks change within
    X = pd.DataFrame({"t": local})
    model = GGPRegressor("poisson", RBF(9.0), optimizer=None).fit(X, Y)
    assert model.fit_.columns.members[0].zone
    utc = pd.DataFrame({"t": local.tz_convert("UTC")})
    np.testing.assert_array_equal(model.predict(utc), model.predict(X))
    np.testing.assert_allclose(np.diff(model.posterior_.inputs[:, 0]), 7.0, rtol=1e-9)


@pytest.mark.parametrize("inducing", [None, 8])
def test_columns_are_saved_loaded_and_pickled(tmp_path, inducing):
    model = fitted(inducing=inducing, random_state=0)
    save(model, tmp_path / "m.ggpm")
    for again in (load(tmp_path / "m.ggpm"), pickle.loads(pickle.dumps(model))):
        assert again.fit_.columns == model.fit_.columns
        np.testing.assert_array_equal(again.predict(FRAME), model.predict(FRAME))
        with pytest.warns(UserWarning, match="not seen in fit"):
            again.predict(FRAME.assign(station="east"))


def test_numbers_alone_are_written_as_version_0_1_reads_them(tmp_path):
    import ggpm.persistence as persistence

    X = FRAME[["temp", "wet"]]
    model = GGPRegressor("poisson", RBF(), optimizer=None).fit(X, Y)
    save(model, tmp_path / "m.ggpm")
    assert b'"format\\":1' in (tmp_path / "m.ggpm").read_bytes() and persistence.FORMAT == 2
    save(fitted(), tmp_path / "n.ggpm")
    assert b'"format\\":2' in (tmp_path / "n.ggpm").read_bytes()


def test_the_default_kernel_has_a_part_for_every_kind():
    # not learned: counts that depend on nothing would leave a constant
    model = GGPRegressor("poisson", optimizer=None).fit(FRAME[["when", "station", "temp", "wet"]], Y)
    shown = repr(model.kernel_)
    assert "['temp', 'wet']" in shown and "Category('station')" in shown and "'when'" in shown
    assert "Cyclic(period=24" in shown and "8.77e+03" not in shown  # a week shows days, not years
    labels = GGPClassifier().fit(FRAME[["station"]], np.arange(N) % 3 == 0)
    assert labels.score(FRAME[["station"]], np.arange(N) % 3 == 0) == 1.0
    same = GGPRegressor("poisson", optimizer=None).fit(FRAME[["temp", "wet"]], Y)
    assert "On" not in repr(same.kernel_)  # numbers alone are as they were


def test_pictures_know_the_columns():
    pytest.importorskip("matplotlib")
    frame = FRAME[["temp", "station", "when"]]
    model = GGPRegressor("poisson", On(RBF(), "temp") + Category("station") + On(RBF(9.0), "when"), optimizer=None)
    model.fit(frame, Y)
    assert plotting.plot_bands(model, "temp", n=10).get_xlabel() == "temp"
    axes = plotting.plot_bands(model, "when", n=10, data=(frame, Y))
    axes.figure.canvas.draw()
    assert axes.get_xlabel() == "when (2024)"  # ticks are days and hours; the label says which year


def test_odd_types_are_named():
    for values, message in (
        (pd.period_range("2024-01", periods=N, freq="M"), "column 'x', row 0: argument .* not 'Period'"),
        (np.arange(N) + 1j, "column 'x' has the type complex128, which is not a number"),
        ([{"a": 1}] * N, "column 'x', row 0: argument must be a string or a number, not 'dict'"),
        ([None] * N, "NaN: column 'x' in 24 of 24"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            GGPRegressor("poisson", optimizer=None).fit(pd.DataFrame({"x": values}), Y)
    with pytest.raises(ValueError, match="months or years have no fixed length"):
        hours(np.array([1, 2], dtype="timedelta64[M]"))
    assert Columns(1, None, (Column(None, "duration"),)).plain is False


def test_frames_without_columns_or_with_two_of_a_name():
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        GGPRegressor("poisson").fit(pd.DataFrame(index=range(N)), Y)
    twice = pd.DataFrame(np.ones((N, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match=r"(?s)unique column names.*'a' 2 times"):
        GGPRegressor("poisson").fit(twice, Y)
