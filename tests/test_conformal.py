"""Regions with guaranteed coverage hold what they promise, with models that are wrong on purpose."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, conformal
from ggpm.families import Dirichlet, Gaussian, VonMises

N_TRAIN, N_CAL, N_NEW = 30, 80, 100


def data(kind, rng, n=N_TRAIN + N_CAL + N_NEW):
    """Rows of a known truth, and a model that is far too sure, or of the wrong shape."""
    X = rng.uniform(0, 3, (n, 1))
    f = np.sin(2 * X[:, 0])
    sure = {"kernel": ConstantKernel(25.0) * RBF(0.5), "optimizer": None, "inference": "laplace"}
    if kind == "numbers":
        return X, f + 0.5 * rng.standard_t(3, n), GGPRegressor(Gaussian(phi=1e-4), **sure)
    if kind == "counts":
        return X, rng.negative_binomial(2, 2 / (2 + np.exp(1 + f))), GGPRegressor("poisson", **sure)
    if kind == "angles":
        y = np.mod(np.degrees(f + 0.7 * rng.standard_t(3, n)), 360.0)
        return X, y, GGPRegressor(VonMises(units="degrees"), **sure)
    if kind == "compositions":
        y = rng.standard_gamma(3 * np.exp(np.stack([f, -f, 0 * f], axis=1)))
        return X, y / y.sum(axis=1, keepdims=True), GGPRegressor("dirichlet", **sure)
    if kind == "directions":
        y = np.stack([f, np.cos(X[:, 0]), np.ones(n)], axis=1) + 0.7 * rng.normal(size=(n, 3))
        return X, y / np.linalg.norm(y, axis=1, keepdims=True), GGPRegressor("von_mises_fisher", **sure)
    if kind == "grades":
        return X, np.digitize(f + rng.normal(size=n), [-1.0, 0.0, 1.0]), GGPOrdinalClassifier(**sure)
    p = np.exp(np.stack([f, -f, 0 * f], axis=1))
    codes = [rng.choice(3, p=row) for row in p / p.sum(axis=1, keepdims=True)]
    return X, np.array(["a", "b", "c"])[codes], GGPClassifier(**sure)


def coverage(kind, simulations, level=0.9):
    """Share of new y that their regions hold, and the share that the drawn intervals hold where there are any."""
    held, drawn = [], []
    for s in range(simulations):
        X, y, model = data(kind, np.random.default_rng(s))
        train, cal, new = np.split(np.arange(len(X)), [N_TRAIN, N_TRAIN + N_CAL])
        dist = conformal(model.fit(X[train], y[train]), X[cal], y[cal]).predict_dist(X[new])
        held.append(dist.contains(y[new], level).mean())
        if kind != "directions":
            drawn.append(in_interval(kind, model, dist.interval(level), y[new]).mean())
    return np.array(held), np.array(drawn)


def in_interval(kind, model, region, y):
    if kind == "angles":
        width = region[:, 1] - region[:, 0]
        return np.mod(y - region[:, 0], 360.0) <= np.where(width == 360.0, 360.0, np.mod(width, 360.0))
    if kind in ("classes", "grades"):
        return region[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return (region[..., 0] <= y) & (y <= region[..., 1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "angles", "compositions", "directions", "classes", "grades", "counts"])
def test_coverage_over_200_simulations(kind):
    held, drawn = coverage(kind, 200)
    high = 0.92 if kind not in ("classes", "grades", "counts") else 1.0
    assert 0.89 <= held.mean() <= high
    if len(drawn):
        assert drawn.mean() >= 0.89


@pytest.mark.parametrize("kind", ["numbers", "counts", "angles", "classes", "grades"])
def test_the_drawn_region_holds_just_what_contains_says(kind):
    X, y, model = data(kind, np.random.default_rng(0))
    model.fit(X[:30], y[:30])
    dist = conformal(model, X[30:90], y[30:90]).predict_dist(X[90:130])
    for level in (0.5, 0.9):
        assert np.array_equal(
            dist.contains(y[90:130], level), in_interval(kind, model, dist.interval(level), y[90:130])
        )


def test_a_wrong_model_alone_would_not_cover():
    X, y, model = data("numbers", np.random.default_rng(1))
    region = model.fit(X[:30], y[:30]).predict_dist(X[110:]).interval(0.9)
    assert in_interval("numbers", model, region, y[110:]).mean() < 0.6


def test_every_calibration_row_counts_once():
    """The region keeps the ceil((n + 1) level)-th smallest score, so just as many of the calibration rows."""
    X, y, model = data("numbers", np.random.default_rng(2))
    calibrated = conformal(model.fit(X[:30], y[:30]), X[30:110], y[30:110])
    assert calibrated.predict_dist(X[30:110]).contains(y[30:110], 0.9).sum() == np.ceil(0.9 * 81)


def test_intervals_of_percentages_are_percentages():
    X, y, model = data("compositions", np.random.default_rng(2))
    model = model.set_params(family=Dirichlet(closure=True))
    ends = {}
    for total in (1.0, 100.0):
        for calibrating in (80, 3):  # three promise everything
            rows = slice(N_TRAIN, N_TRAIN + calibrating)
            fitted = model.fit(X[:N_TRAIN], total * y[:N_TRAIN])
            dist = conformal(fitted, X[rows], total * y[rows]).predict_dist(X[-20:])
            ends[total, calibrating] = dist.interval(0.9)
    for calibrating in (80, 3):
        # tables are as fine as a row asks for, which the last bit of its latent may decide: 1e-5 of a spread of 15
        np.testing.assert_allclose(ends[100.0, calibrating], 100 * ends[1.0, calibrating], rtol=0.0, atol=5e-4)


def test_too_few_rows_promise_everything():
    X, y, model = data("numbers", np.random.default_rng(2))
    dist = conformal(model.fit(X[:30], y[:30]), X[30:34], y[30:34]).predict_dist(X[110:113])
    assert np.array_equal(dist.interval(0.9), np.tile([-np.inf, np.inf], (3, 1)))
    X, y, model = data("angles", np.random.default_rng(2))
    arcs = conformal(model.fit(X[:30], y[:30]), X[30:34], y[30:34]).predict_dist(X[110:113]).interval(0.9)
    assert np.allclose(arcs[:, 1] - arcs[:, 0], 360.0)


def test_each_group_has_its_coverage():
    rng = np.random.default_rng(3)
    X, y, model = data("numbers", rng)
    loud = X[:, 0] > 1.5
    y = np.where(loud, 5 * y, y)
    dist = conformal(model.fit(X[:30], y[:30]), X[30:110], y[30:110], groups=loud[30:110]).predict_dist(
        X[30:110], groups=loud[30:110]
    )
    inside = dist.contains(y[30:110], 0.8)
    for group in (False, True):
        n = np.sum(loud[30:110] == group)
        assert inside[loud[30:110] == group].sum() == np.ceil(0.8 * (n + 1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "angles", "classes"])
def test_coverage_of_groups_over_200_simulations(kind):
    """Rows of one group are far noisier: together they are covered, but each group only if it is calibrated itself."""
    held = {"together": [], "apart": []}
    for s in range(200):
        rng = np.random.default_rng(s)
        X, y, model = data(kind, rng)
        loud = rng.uniform(size=len(X)) < 0.5
        y[loud] = rng.permutation(y[loud]) if kind != "numbers" else 5 * y[loud]
        train, cal, new = np.split(np.arange(len(X)), [N_TRAIN, N_TRAIN + N_CAL])
        model.fit(X[train], y[train])
        for how in held:
            cal_groups, new_groups = (loud[cal], loud[new]) if how == "apart" else (None, None)
            dist = conformal(model, X[cal], y[cal], groups=cal_groups).predict_dist(X[new], groups=new_groups)
            inside = dist.contains(y[new], 0.9)
            held[how].append([inside[~loud[new]].mean(), inside[loud[new]].mean()])
    apart, together = np.mean(held["apart"], axis=0), np.mean(held["together"], axis=0)
    # 40 rows or so for each group: between 0.9 and 0.9 + 1/(n + 1), and 0.89 with the error of 200 simulations
    high = 1.0 if kind == "classes" else 0.935
    assert np.all((apart >= 0.89) & (apart <= high)), apart
    assert together[1] < 0.89 < together[0], together


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "angles"])
def test_coverage_of_jackknife_plus_over_100_simulations(kind):
    held = []
    for s in range(100):
        X, y, model = data(kind, np.random.default_rng(s))
        calibrated = conformal(model, X[:30], y[:30], method="jackknife+")
        held.append(calibrated.predict_dist(X[160:]).contains(y[160:], 0.9).mean())
    # guaranteed is 0.8; as a rule it is 0.9, which 100 simulations of 30 rows know to 0.01
    assert np.mean(held) > 0.87, np.mean(held)


@pytest.mark.parametrize("kind", ["numbers", "angles", "classes"])
def test_jackknife_plus(kind):
    X, y, model = data(kind, np.random.default_rng(4))
    calibrated = conformal(model, X[:30], y[:30], method="jackknife+", folds=5)
    dist = calibrated.predict_dist(X[160:])
    assert calibrated.guarantee(0.9) == pytest.approx(0.8 - min(2 * (1 - 1 / 5) / 7, (1 - 5 / 30) / 6))
    inside = dist.contains(y[160:], 0.9)
    assert inside.mean() > calibrated.guarantee(0.9)
    drawn = in_interval(kind, calibrated.models[0], dist.interval(0.9), y[160:])
    assert np.all(drawn >= inside)  # the hull of what is kept


def test_leaving_single_rows_out_is_the_default_of_jackknife_plus():
    X, y, model = data("numbers", np.random.default_rng(5))
    calibrated = conformal(model, X[:12], y[:12], method="jackknife+")
    assert len(calibrated.models) == 12 and calibrated.guarantee(0.9) == pytest.approx(0.8)
    assert "with probability 0.8 at least, and with about 0.9 as a rule" in repr(calibrated)


def test_mistakes_are_named():
    X, y, model = data("numbers", np.random.default_rng(6))
    model.fit(X[:30], y[:30])
    with pytest.raises(ValueError, match="method must be 'split' or 'jackknife"):
        conformal(model, X, y, method="full")
    with pytest.raises(ValueError, match=r"one label for each of the 210 rows of X_cal; got shape \(3,\)"):
        conformal(model, X, y, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="groups must be given"):
        conformal(model, X, y, groups=np.zeros(len(X))).predict_dist(X)
    X, y, model = data("directions", np.random.default_rng(6))
    dist = conformal(model.fit(X[:30], y[:30]), X[30:60], y[30:60]).predict_dist(X[60:70])
    with pytest.raises(ValueError, match="try contains"):
        dist.interval(0.9)


def test_what_cannot_be_calibrated_with_is_told_at_once():
    """By `conformal` itself, not by the first region that is asked for."""
    X, y, model = data("numbers", np.random.default_rng(6), 30)
    model.fit(X, y)
    for method in ("split", "jackknife+"):
        with pytest.raises(ValueError, match="same rows, one or more; got 30 and 5"):
            conformal(model, X, y[:5], method=method)
        with pytest.raises(ValueError, match="same rows, one or more; got 30 and 0"):
            conformal(model, X, 3.0, method=method)
        with pytest.raises(ValueError, match=r"offset must be .* each of the 30 rows; got shape \(3,\)"):
            conformal(model, X, y, method=method, offset=np.zeros(3))
        with pytest.raises(TypeError, match=r"estimator of ggpm.*got Pipeline. Of a pipeline take the last step"):
            conformal(make_pipeline(StandardScaler(), model), X, y, method=method)
    with pytest.raises(ValueError, match="real numbers; got values that are not numbers"):
        conformal(model, X, ["a"] * 30)
    with pytest.raises(TypeError, match="estimator of ggpm, such as GGPRegressor; got Conformal"):
        conformal(conformal(model, X, y), X, y)
    for folds, told in (
        (1, "whole number, 2 or more"),
        (2.5, "whole number"),
        (31, "as many as there are rows at most"),
    ):
        with pytest.raises(ValueError, match=told):
            conformal(model, X, y, method="jackknife+", folds=folds)


@pytest.mark.parametrize("groups, told", [
    (np.full(30, np.nan), "row 0 has none or NaN"), (["a"] * 29 + [None], "row 29 has none or NaN"),
    (["a"] * 29 + [np.nan], "row 29 has none or NaN"), (3, r"each of the 30 rows of X_cal; got shape \(\)"),
    ([1] * 29 + ["a"], "of one type; got int and str"), (np.zeros((30, 2)), r"got shape \(30, 2\)"),
])  # fmt: skip
def test_groups_are_labels_of_one_kind_without_gaps(groups, told):
    X, y, model = data("numbers", np.random.default_rng(6), 30)
    with pytest.raises(ValueError, match=told):
        conformal(model.fit(X, y), X, y, groups=groups)


def test_labels_that_a_fold_alone_has_are_named():
    X, y, model = data("classes", np.random.default_rng(4), 30)
    y[0] = "r"
    with pytest.raises(ValueError, match=r"label 'r' has rows in one fold alone.*two rows or more"):
        conformal(model, X, y, method="jackknife+", folds=5)


@pytest.mark.parametrize("method", ["split", "jackknife+"])
def test_trials_of_calibration_rows_are_those_of_their_counts(method):
    rng = np.random.default_rng(0)
    X, N = rng.uniform(0, 3, (60, 1)), rng.integers(3, 12, 60)
    successes = rng.binomial(N, 0.3)
    y = np.stack([successes, N - successes], axis=1)
    model = GGPRegressor("binomial", ConstantKernel(1.0) * RBF(1.0), optimizer=None, inference="laplace").fit(X, y)
    folds = None if method == "split" else 3
    found = [conformal(model, X, y, method=method, folds=folds, **given).predict_dist(X, trials=N).interval(0.8)
             for given in ({}, {"trials": N})]  # fmt: skip
    np.testing.assert_array_equal(*found)
    with pytest.raises(ValueError, match="trials must be the sums of y_cal; row 0 has"):
        conformal(model, X, y, trials=N + 1)
