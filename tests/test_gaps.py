"""Rows whose y is missing, or known by bounds alone, wherever a fitted model is compared with y."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import cross_val_score

import ggpm
from ggpm import GGPClassifier, GGPRegressor, log_predictive_density_scorer
from ggpm.cli import main
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
