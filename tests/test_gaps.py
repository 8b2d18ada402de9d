"""Rows whose y is missing, or known by bounds alone, wherever a fitted model is compared with y."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.compose import ColumnTransformer
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import ggpm
from ggpm import GGPClassifier, GGPRegressor, log_predictive_density_scorer
from ggpm.cli import main
from ggpm.families import right_censored
from ggpm.kernels import Category, On
from ggpm.plotting import plot_calibration, plot_pit
from ggpm.prediction.evaluation import evaluate

TOLD = r"y is missing in 1 of 30 row\(s\), first in row 7: they are left out"
X = np.linspace(0, 5, 30)[:, None]
ANGLES = np.random.default_rng(0).vonmises(1, 5, 30) % (2 * np.pi)
HOLED = np.where(np.arange(30) == 7, np.nan, ANGLES)
KEPT = np.arange(30) != 7


@pytest.fixture(scope="module")
def angles():
    return GGPRegressor("von_mises", ConstantKernel() * RBF(), optimizer=None).fit(X, ANGLES)


def told(function, match=TOLD):
    """What a function returns, which warns of the row that is left out, once."""
    with pytest.warns(UserWarning) as caught:
        out = function()
    told = [str(w.message) for w in caught if "missing" in str(w.message)]
    assert len(told) == 1 and re.match(match, told[0]), told
    return out


def test_rows_without_y_are_left_out_wherever_a_model_is_judged(angles):
    """As if they had not been given, with the warning of fit."""
    weight, offset = np.arange(1.0, 31.0), np.zeros(30)
    assert told(lambda: angles.score(X, HOLED, weight, offset=offset)) == angles.score(
        X[KEPT], ANGLES[KEPT], weight[KEPT]
    )
    density = told(lambda: angles.log_predictive_density(X, HOLED))
    assert np.isnan(density[7])  # one for each row of X, so that they can be told apart
    np.testing.assert_array_equal(density[KEPT], angles.log_predictive_density(X[KEPT], ANGLES[KEPT]))
    assert told(lambda: log_predictive_density_scorer(angles, X, HOLED)) == density[KEPT].mean()
    found, expected = told(lambda: ggpm.calibration(angles, X, HOLED)), ggpm.calibration(angles, X[KEPT], ANGLES[KEPT])
    assert found.n == 29
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    assert told(lambda: evaluate(angles, X, HOLED)) == evaluate(angles, X[KEPT], ANGLES[KEPT])
    sure = told(lambda: ggpm.conformal(angles, X, HOLED, groups=np.arange(30) % 2))
    assert len(sure.groups) == 29
    cost = told(lambda: ggpm.importance(angles, X, HOLED, sample_weight=weight))
    pd.testing.assert_frame_equal(cost, ggpm.importance(angles, X[KEPT], ANGLES[KEPT], sample_weight=weight[KEPT]))
    told(lambda: plot_calibration(angles, X, HOLED))
    told(lambda: plot_pit(angles, X, HOLED))


def test_a_report_leaves_them_out(angles, tmp_path):
    page = told(lambda: ggpm.report(angles, X, HOLED, tmp_path / "r.html"))
    assert json.loads(page.with_suffix(".json").read_text())["data"]["held_out_rows"] == 29


def test_folds_with_a_row_without_y_have_a_score():
    model = GGPRegressor("von_mises", ConstantKernel() * RBF(), optimizer=None)
    with pytest.warns(UserWarning, match="y is missing"):
        scores = cross_val_score(model, X, HOLED, cv=3)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("labels", [["a", "b"], [1, 2], [True, False]])
def test_labels_may_be_missing(labels):
    y = np.array(labels)[(X[:, 0] > 2.5).astype(int)]
    holed = y.astype(object)
    holed[7] = None
    model = GGPClassifier(ConstantKernel() * RBF(), optimizer=None).fit(X, y)
    for given in (holed, pd.Series(holed)):
        assert told(lambda given=given: model.score(X, given)) == model.score(X[KEPT], y[KEPT])
        assert told(lambda given=given: ggpm.calibration(model, X, given)).n == 29


def test_no_y_at_all_is_an_error(angles):
    with pytest.raises(ValueError, match=r"y is missing in all 30 row\(s\): there is nothing to compare"):
        angles.score(X, np.full(30, np.nan))


@pytest.mark.parametrize("labels", [None, ["a", "b"], ["1", "2"], ["True", "False"]])
def test_command_line_leaves_out_rows_without_y(labels, tmp_path):
    table = pd.DataFrame({"hour": X[:, 0], "y": ANGLES if labels is None else np.array(labels)[(X[:, 0] > 2) * 1]})
    family = "von_mises" if labels is None else "bernoulli"
    table.to_csv(tmp_path / "d.csv", index=False)
    table.assign(y=table["y"].astype(object).where(KEPT, None)).to_csv(tmp_path / "holed.csv", index=False)
    fit = ["fit", "d.csv", "--target", "y", "--family", family, "--kernel", "C() * RBF()", "--out", "m.ggpm"]
    run = [[*fit], ["evaluate", "m.ggpm", "holed.csv", "--calibration", "--json"]]
    out = [CliRunner().invoke(main, [str(tmp_path / a) if "." in a else a for a in args]) for args in run]
    assert [result.exit_code for result in out] == [0, 0], [result.output for result in out]
    assert json.loads(out[1].stdout)["rows"] == 29
    assert "y is missing in 1 of 30 row(s)" in out[1].stderr


# ---- bounds ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def lifetimes():
    """A model of lifetimes, and many new ones from a distribution that it comes near to, some of them not seen."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(0, 1, (900, 1))
    time, limit = 10 * rng.weibull(1.3, 900), rng.exponential(8.0, 900)
    y = right_censored(np.minimum(time, limit), time <= limit)
    model = GGPRegressor("censored_weibull", ConstantKernel(5.0)).fit(rows[:300], y[:300])
    return model, rows[300:], y[300:], time[300:]


def test_calibration_of_bounds(lifetimes):
    """Transforms of bounds are as uniform as those of the numbers behind them; those of seen rows alone are not."""
    model, rows, y, time = lifetimes
    found, whole = ggpm.calibration(model, rows, y), ggpm.calibration(model, rows, time)
    seen = y[:, 0] == y[:, 1]
    np.testing.assert_allclose(found.coverage, found.levels, atol=4 * 0.5 / np.sqrt(600))  # four standard errors
    np.testing.assert_allclose(found.frame["value"]["PIT mean"], 0.5, atol=4 / np.sqrt(12 * 600))
    np.testing.assert_array_equal(found.pit[seen], whole.pit[seen])
    assert found.pit[seen].mean() < 0.5 - 4 / np.sqrt(12 * seen.sum())  # early events
    assert np.all(found.pit[~seen] >= model.predict_dist(rows[~seen]).cdf(y[~seen, 0]))
    assert found.log_loss == -model.log_predictive_density(rows, y).mean()
    result = evaluate(model, rows, y)
    assert abs(result["coverage"] - 0.9) < 4 * 0.3 / np.sqrt(600)
    assert result["error"] == evaluate(model, rows[seen], y[seen])["error"]
    assert np.isnan(evaluate(model, rows[~seen], y[~seen])["error"])
    plot_calibration(model, rows, y)
    plot_pit(model, rows, y)


@pytest.mark.parametrize(
    ("name", "y"),
    [
        ("censored_gaussian", [[-np.inf, 1.0], [0.5, 0.5], [2.0, np.inf], [0.0, 1.0]]),
        ("censored_poisson", [[-1, 2], [3, 3], [4, np.inf], [0, 2]]),
    ],
)
def test_transforms_lie_between_those_of_the_bounds(name, y):
    y, few = np.array(y, dtype=float), X[:4]
    model = GGPRegressor(name, ConstantKernel(), optimizer=None).fit(few, y)
    p, pit = model.predict_dist(few), ggpm.calibration(model, few, y).pit
    upto = p.cdf(np.maximum(np.where(np.isinf(y), 0.0, y), 0.0)[:, 1]).ravel()
    below = p.cdf(np.maximum(y[:, 0], 0.0)).ravel()
    assert 0 < pit[0] < upto[0] and below[2] < pit[2] < 1 and below[3] < pit[3] < upto[3]


def test_who_must_know_y_itself_says_so(lifetimes, tmp_path):
    model, rows, y, time = lifetimes
    for ask in (lambda: ggpm.conformal(model, rows, y), lambda: ggpm.report(model, rows, y, tmp_path / "r.html")):
        with pytest.raises(ValueError, match=r"must know y itself, .* of 600 row\(s\).* ggpm.calibration"):
            ask()
    both = np.stack([time, time], axis=1)  # all were seen
    np.testing.assert_array_equal(
        ggpm.conformal(model, rows, both).predict_dist(rows[:5]).interval(0.9),
        ggpm.conformal(model, rows, time).predict_dist(rows[:5]).interval(0.9),
    )


# ---- rows in messages ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("family", "row"),
    [("von_mises", "first in row 8"), ("bernoulli", "first in row 8"), ("gamma", "(row 10 is")],
)
def test_the_command_line_counts_rows_from_one(family, row, tmp_path):
    """As a spreadsheet counts those below its head; and it counts the rows that were used."""
    y = {"von_mises": ANGLES, "bernoulli": np.where(X[:, 0] > 2, "a", "b"), "gamma": ANGLES + 0.1}[family].astype(
        object
    )
    y[9 if family == "gamma" else 7] = 0.0 if family == "gamma" else None
    pd.DataFrame({"hour": X[:, 0], "y": y}).to_csv(tmp_path / "d.csv", index=False)
    fit = ["fit", tmp_path / "d.csv", "--target", "y", "--family", family, "--kernel", "C() * RBF()"]
    result = CliRunner().invoke(main, [*map(str, fit), "--json", "--out", str(tmp_path / "m.ggpm")])
    assert row in result.stderr
    if family != "gamma":
        assert json.loads(result.stdout)["rows"] == 29


# ---- weights ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", ["poisson", "gamma", "von_mises"])
def test_a_table_of_distinct_rows_with_counts_is_as_calibrated_as_the_long_one(family):
    """A row of weight 3 is the row three times, also in transforms that are drawn; half the weights change no mean."""
    rng = np.random.default_rng(2)
    y = {"poisson": rng.poisson(2.0, 30), "gamma": rng.gamma(2.0, 1.0, 30), "von_mises": rng.vonmises(0, 4, 30)}[family]
    weight = rng.integers(0, 4, 30)
    model = GGPRegressor(family, ConstantKernel() * RBF(), optimizer=None).fit(X, y)
    index = np.repeat(np.arange(30), weight)
    short = ggpm.calibration(model, X, y, sample_weight=weight)
    long = ggpm.calibration(model, X[index], y[index])
    pd.testing.assert_frame_equal(short.frame.drop("crps"), long.frame.drop("crps"), rtol=1e-9)  # sums in another order
    # from 500 draws for each row, whose distances vary about as much as their mean: four standard errors
    np.testing.assert_allclose(short.crps, long.crps, rtol=4 * np.sqrt(2 / (500 * np.sum(weight > 0))))
    np.testing.assert_allclose(short.pit_histogram(), long.pit_histogram(), rtol=1e-9)
    found, expected = evaluate(model, X, y, sample_weight=weight), evaluate(model, X[index], y[index])
    assert found.pop("weight") == weight.sum() == expected["rows"]
    for name in ("log_density", "score", "error", "coverage"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9)
    halved = ggpm.calibration(model, X, y, sample_weight=weight / 2)
    np.testing.assert_allclose(halved.log_loss, short.log_loss, rtol=1e-9)
    assert halved.n == short.n / 2


def test_labels_with_counts():
    y = np.where(X[:, 0] > 2.5, "a", "b")
    y[::7] = "b"
    weight = np.arange(30) % 3
    index = np.repeat(np.arange(30), weight)
    model = GGPClassifier(ConstantKernel() * RBF(), optimizer=None).fit(X, y)
    short, long = ggpm.calibration(model, X, y, sample_weight=weight), ggpm.calibration(model, X[index], y[index])
    np.testing.assert_allclose([short.brier, *short.coverage], [long.brier, *long.coverage], rtol=1e-9)


def test_command_line_takes_weights(angles, tmp_path):
    table = pd.DataFrame({"hour": X[:, 0], "y": ANGLES, "count": np.arange(30) % 3})
    table.to_csv(tmp_path / "d.csv", index=False)
    model = GGPRegressor("von_mises", ConstantKernel() * RBF(), optimizer=None).fit(table[["hour"]], table["y"])
    ggpm.save(model, tmp_path / "m.ggpm")
    asked = ["evaluate", str(tmp_path / "m.ggpm"), str(tmp_path / "d.csv"), "--weight", "count", "--json"]
    found = json.loads(CliRunner().invoke(main, asked).stdout)
    assert found == evaluate(model, table[["hour"]], table["y"], sample_weight=table["count"])


# ---- holes in X ------------------------------------------------------------------------------------------------------
def test_the_advice_for_holes_in_a_mixed_table_works():
    times = pd.date_range("2024-01-01", periods=30, freq="D")
    table = pd.DataFrame({"hour": X[:, 0], "sky": np.where(X[:, 0] > 2, "clear", "grey"), "day": times})
    table.loc[3, "hour"], table.loc[[5, 6], "sky"] = np.nan, np.nan
    model = GGPRegressor("von_mises", ConstantKernel() * On(RBF(), "hour") + Category("sky"), optimizer=None)
    with pytest.raises(ValueError, match=r"column 'hour' in 1 of 30 .*column 'sky' in 2 of 30") as caught:
        model.fit(table, ANGLES)
    for words in (
        "ColumnTransformer",
        "strategy='median'",
        "strategy='constant', fill_value='unknown'",
        "remainder='passthrough'",
        "set_output(transform='pandas')",
    ):
        assert words in str(caught.value)
    parts = [
        ("numbers", SimpleImputer(strategy="median"), ["hour"]),
        ("text", SimpleImputer(strategy="constant", fill_value="unknown"), ["sky"]),
    ]
    fill = ColumnTransformer(parts, remainder="passthrough", verbose_feature_names_out=False)
    pipe = make_pipeline(fill.set_output(transform="pandas"), model)
    with pytest.warns(UserWarning, match="no part of the kernel looks at column 'day'"):
        pipe.fit(table, ANGLES)
    assert pipe[-1].fit_.columns.kinds == ("number", "category", "time")
    assert np.isfinite(pipe.predict(table)).all()
    with pytest.raises(ValueError, match=r"SimpleImputer in a pipeline"):  # numbers alone need no more than that
        GGPRegressor("von_mises").fit(table[["hour"]], ANGLES)
