"""scikit-learn's own checks, its tools around the estimators, and data frames."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.fixes import parse_version

from cases import FAMILIES, simulate
from ggpm import (
    GGPClassifier,
    GGPOrdinalClassifier,
    GGPRegressor,
    Variational,
    families,
    log_predictive_density_scorer,
)

# The only check that cannot apply, with the reason; everything else must pass.
EXPECTED_FAILURES = {
    "check_array_api_input": "the estimators compute with LAPACK on NumPy arrays and declare array_api_support=False",
}


# weights and repeated rows must agree to 1e-7 there, where the default finds its sites to 1e-6 and averages to 1e-7
EXACT = Variational(tol=1e-9, accuracy="fine")


def _checks():
    """Every check of the three estimators; those that learn again and again on larger data are slow.

    The checks' targets are real numbers or labels, so the regressor is checked with the Gaussian.
    """
    for estimator, quick in [
        (GGPRegressor(), True),
        (GGPClassifier(), False),
        (GGPOrdinalClassifier(), False),
        (GGPClassifier(optimizer=None, inference=EXACT), True),
        (GGPOrdinalClassifier(optimizer=None, inference=EXACT), True),
    ]:
        for bound, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            keywords = getattr(check, "keywords", {})
            label = "-".join([repr(estimator), name, *map(str, keywords.values())])
            yield pytest.param(bound, check, name, id=label, marks=[] if quick else [pytest.mark.slow])


@pytest.mark.parametrize("estimator, check, name", list(_checks()))
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_check(estimator, check, name):
    if name in EXPECTED_FAILURES:
        pytest.xfail(EXPECTED_FAILURES[name])
    if name == "check_sample_weight_equivalence_on_dense_data" and estimator.kernel is None and estimator.optimizer:
        # the same kernel wins; evidence is flat where noise vanishes, and searches end 1e-5 apart in what they predict
        pytest.xfail("rows that stand there several times say that there is no noise: seven digits are too many")
    check(estimator)


def test_the_expected_failures_exist():
    if parse_version(sklearn.__version__) < parse_version("1.8"):
        pytest.skip("older versions of scikit-learn have fewer checks")
    names = {getattr(c, "func", c).__name__ for _, c in estimator_checks_generator(GGPRegressor())}
    assert set(EXPECTED_FAILURES) <= names
    assert not GGPRegressor().__sklearn_tags__().array_api_support


def test_tags_follow_the_family():
    assert GGPRegressor("gamma").__sklearn_tags__().target_tags.positive_only
    assert not GGPRegressor("gamma").__sklearn_tags__().target_tags.multi_output
    dirichlet = GGPRegressor("dirichlet").__sklearn_tags__().target_tags
    assert dirichlet.multi_output and not dirichlet.single_output
    gaussian = GGPRegressor().__sklearn_tags__().target_tags
    assert gaussian.multi_output and gaussian.single_output and not gaussian.positive_only
    assert GGPRegressor("no such family").__sklearn_tags__().estimator_type == "regressor"


# ---- tools ---------------------------------------------------------------------------------------------------
def test_pipeline_grid_search_and_parallel_scores():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    pipe = make_pipeline(StandardScaler(), GGPClassifier(1.0 * RBF(1.0), optimizer=None))
    search = GridSearchCV(
        pipe, {"ggpclassifier__kernel": [1.0 * RBF(0.1), 4.0 * RBF(2.0)]}, cv=2, scoring=log_predictive_density_scorer
    ).fit(X, y)
    assert search.best_params_["ggpclassifier__kernel"] == 4.0 * RBF(2.0)
    scores = cross_val_score(pipe, X, y, cv=2, n_jobs=2)
    np.testing.assert_array_equal(scores, cross_val_score(pipe, X, y, cv=2))
    assert cross_val_predict(pipe, X, y, cv=2, method="predict_proba").shape == (50, 3)


def test_nested_parameters_reach_the_family_and_the_kernel():
    model = GGPRegressor(families.VonMises(), ConstantKernel() * RBF())
    model.set_params(family__units="hours", kernel__k2__length_scale=3.0)
    assert model.family.units == "hours" and model.kernel.k2.length_scale == 3.0
    copy = clone(model)
    assert copy.family.units == "hours" and copy.family is not model.family


def test_column_transformer_on_a_mixed_frame():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"height": np.linspace(0, 1, 30), "station": ["a", "b", "c"] * 10})
    angle = 300.0 + 60 * frame["height"] + frame["station"].map({"a": 0, "b": 20, "c": 40})
    columns = ColumnTransformer([("scaled", StandardScaler(), ["height"]), ("coded", OneHotEncoder(), ["station"])])
    pipe = make_pipeline(columns, GGPRegressor(families.VonMises(units="degrees")))
    assert pipe.fit(frame, angle % 360).score(frame, angle % 360) > 0.9


# ---- frames --------------------------------------------------------------------------------------------------
def soil(n=24):
    rng = np.random.default_rng(0)
    depth = np.linspace(0, 10, n)
    parts = np.array([rng.dirichlet(8 * np.exp([d / 10, 0.2, -d / 10])) for d in depth])
    return depth, 100 * parts


def test_pandas_frames_in_and_out():
    pd = pytest.importorskip("pandas")
    depth, percent = soil()
    rows = [f"site {i}" for i in range(len(depth))]
    X = pd.DataFrame({"depth": depth}, index=rows)
    y = pd.DataFrame(percent, columns=["sand", "silt", "clay"], index=rows)
    model = GGPRegressor(families.Dirichlet(closure=True)).fit(X, y)
    assert model.feature_names_in_.tolist() == ["depth"] and model.target_names_ == ["sand", "silt", "clay"]
    out = model.predict(X)
    assert out.columns.tolist() == ["sand", "silt", "clay"] and out.index.tolist() == rows
    np.testing.assert_allclose(out.sum(axis=1), 100.0)
    plain = GGPRegressor(families.Dirichlet(closure=True)).fit(X.to_numpy(), y.to_numpy())
    np.testing.assert_array_equal(out.to_numpy(), plain.predict(X.to_numpy()))
    assert model.score(X, y) == plain.score(X.to_numpy(), y.to_numpy())
    with pytest.raises(ValueError, match="columns of y must be those of fit, sand, silt, clay"):
        model.score(X, y[["clay", "sand", "silt"]])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"depth": "height"}))
    table = model.summary(X)
    assert table.index.tolist() == rows and (table["sand_lower"] < table["sand_upper"]).all()
    assert not hasattr(model.fit(X.to_numpy(), y.to_numpy()), "feature_names_in_")
    assert isinstance(model.predict(X.to_numpy()), np.ndarray)


def test_polars_frames_in_and_out():
    pl = pytest.importorskip("polars")
    depth, percent = soil()
    X = pl.DataFrame({"depth": depth})
    y = pl.DataFrame({"sand": percent[:, 0], "silt": percent[:, 1], "clay": percent[:, 2]})
    model = GGPRegressor(families.Dirichlet(closure=True)).fit(X, y)
    assert model.feature_names_in_.tolist() == ["depth"]
    out = model.predict(X)
    assert isinstance(out, pl.DataFrame) and out.columns == ["sand", "silt", "clay"]
    assert model.log_predictive_density(X, y).shape == (24,)
    grades = pl.Series(["low", "mid", "high"] * 8, dtype=pl.Enum(["low", "mid", "high"]))
    ordinal = GGPOrdinalClassifier(optimizer=None).fit(X, grades)
    assert ordinal.classes_.tolist() == ["low", "mid", "high"]
    proba = ordinal.set_output(transform="polars").predict_proba(X)
    assert proba.columns == ["low", "mid", "high"]


def test_set_output_and_labels():
    pd = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True, as_frame=True)
    species = load_iris().target_names[y]
    label = pd.Series(pd.Categorical(species), name="species")
    model = GGPClassifier(optimizer=None).fit(X[::5], label[::5])
    assert isinstance(model.predict_proba(X), np.ndarray)  # scikit-learn's scorers index it
    framed = clone(model.set_output(transform="pandas")).fit(X[::5], label[::5])
    assert framed.predict_proba(X[1::2]).columns.tolist() == ["setosa", "versicolor", "virginica"]
    named = framed.predict(X[1::2])
    assert named.name == "species" and named.index.equals(X[1::2].index)
    assert set(model.sample_y(X[:3], 5).ravel()) <= {"setosa", "versicolor", "virginica"}
    labels, p = model.predict_top_k(X[:4], 2)
    assert labels.shape == p.shape == (4, 2) and (p[:, 0] >= p[:, 1]).all() and (labels[:, 0] == "setosa").all()
    np.testing.assert_array_equal(model.predict_dist(X[:4]).top_k(2)[0], labels)
    with pytest.raises(ValueError, match="number of classes, 3"):
        model.predict_top_k(X[:4], 4)
    with pytest.raises(ValueError, match="'pandas'"):
        model.set_output(transform="arrow")
    table = model.summary(X[:2])
    assert table["label"].tolist() == ["setosa"] * 2 and "p_virginica" in table and "setosa" in table["credible_set"][0]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_a_summary(name):
    pytest.importorskip("pandas")
    X, y, _ = simulate(name, n=12)
    model = GGPRegressor(FAMILIES[name][0], optimizer=None).fit(X, y)
    table = model.summary(X[:3], level=0.8)
    assert len(table) == 3 and not table.isna().any().any()
    for column in [c for c in table if c.endswith("lower")]:
        assert (table[column] <= table[column.replace("lower", "upper")]).all()


def test_an_ordered_categorical_brings_its_order():
    pd = pytest.importorskip("pandas")
    x = np.linspace(0, 1, 30)[:, None]
    grade = pd.Series(pd.Categorical(["low", "mid", "high"], ["low", "mid", "high"], ordered=True)).repeat(10)
    model = GGPOrdinalClassifier(optimizer=None).fit(x, grade)
    assert model.classes_.tolist() == ["low", "mid", "high"]
    given = GGPOrdinalClassifier(optimizer=None, order=["high", "mid", "low"]).fit(x, grade)
    assert given.classes_.tolist() == ["high", "mid", "low"]


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_dist", "predict_top_k", "summary"])
def test_unfitted_is_told(method):
    with pytest.raises(NotFittedError):
        getattr(GGPClassifier(), method)(np.zeros((2, 2)))


# ---- units ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "units, low, high", [("degrees", 0, 360), ("hours", 0, 24), ((0, 365.25), 0, 365.25), ((-180, 180), -180, 180)]
)
def test_units_are_a_change_of_unit_and_nothing_else(units, low, high):
    rng = np.random.default_rng(1)
    X = np.linspace(0, 3, 40)[:, None]
    angle = np.angle(np.exp(1j * (2.5 + 1.6 * X[:, 0] + 0.2 * rng.normal(size=40))))
    turn = (high - low) / (2 * np.pi)
    radians = GGPRegressor("von_mises", inference="laplace").fit(X, angle)
    y = low + np.mod(angle * turn - low, high - low)
    other = GGPRegressor(families.VonMises(units=units), inference="laplace").fit(X, y)
    delta = np.mod(other.predict(X) / turn - radians.predict(X) + np.pi, 2 * np.pi) - np.pi
    np.testing.assert_allclose(delta, 0, atol=1e-5)  # the optimum is found to the optimiser's tolerance
    assert np.all((other.predict(X) >= low) & (other.predict(X) < high))
    arcs = other.predict_dist(X).interval(0.8)
    inside = np.mod(y - arcs[:, 0], high - low) <= np.mod(arcs[:, 1] - arcs[:, 0], high - low)
    assert 0.6 < inside.mean() <= 1.0 and np.any(arcs[:, 1] < arcs[:, 0])  # the path crosses the cut: some arcs wrap
    difference = other.log_predictive_density(X, y) - radians.log_predictive_density(X, angle)
    np.testing.assert_allclose(difference, -np.log(turn), atol=1e-4)  # a density per unit


def test_percentages_and_zeros_by_name():
    depth, percent = soil()
    X = depth[:, None]
    with pytest.raises(ValueError, match="closure=True"):
        GGPRegressor("dirichlet").fit(X, percent)
    percent[3] = [60.0, 40.0, 0.0]
    with pytest.raises(ValueError, match="zeros"):
        GGPRegressor(families.Dirichlet(closure=True)).fit(X, percent)
    for policy in ("additive", "squeeze"):
        model = GGPRegressor(families.Dirichlet(closure=True, zeros=policy), inference="laplace").fit(X, percent)
        np.testing.assert_allclose(model.predict(X).sum(axis=1), 100.0)


def test_a_total_is_a_change_of_unit_and_nothing_else():
    """Percentages come back as percentages, also rounded ones; amounts with different totals as shares."""
    pytest.importorskip("pandas")
    depth, percent = soil(4)
    X, rounded = depth[:, None], percent.round(1)
    rounded[0, 0] += 0.1  # the row sums to 100.1
    kernel = ConstantKernel(4.0) * RBF(5.0)
    shares = GGPRegressor("dirichlet", kernel, optimizer=None).fit(X, percent / 100)
    one = shares.predict_dist(X)
    for y in (percent, rounded):
        model = GGPRegressor(families.Dirichlet(closure=True), kernel, optimizer=None).fit(X, y)
        other = model.predict_dist(X)
        rtol = 1e-9 if y is percent else 0.02
        np.testing.assert_allclose(other.mean(), 100 * one.mean(), rtol=rtol)
        np.testing.assert_allclose(other.mean().sum(axis=1), 100, rtol=1e-12)
        np.testing.assert_allclose(other.interval(0.8), 100 * one.interval(0.8), rtol=rtol)
        np.testing.assert_allclose(other.var(), 1e4 * one.var(), rtol=rtol, atol=0.02 if y is rounded else 0)
        np.testing.assert_allclose(other.sample(4, 0).sum(axis=-1), 100)
        np.testing.assert_allclose(other.cdf(y), one.cdf(y / y.sum(axis=1, keepdims=True)), rtol=rtol)
        assert model.score(X, y) == pytest.approx(shares.score(X, percent / 100), rel=10 * rtol)
    model = GGPRegressor(families.Dirichlet(closure=True), kernel, optimizer=None).fit(X, percent)
    difference = model.log_predictive_density(X, percent) - shares.log_predictive_density(X, percent / 100)
    np.testing.assert_allclose(difference, -2 * np.log(100), rtol=1e-9)  # a density per unit, over two parts
    np.testing.assert_array_equal(
        model.predict_dist(X).highest_density(0.5).contains(percent), one.highest_density(0.5).contains(percent / 100)
    )
    amounts = percent * np.linspace(1, 3, len(X))[:, None]
    plain = GGPRegressor(families.Dirichlet(closure=True), kernel, optimizer=None).fit(X, amounts)
    np.testing.assert_allclose(plain.predict(X), one.mean(), rtol=1e-9)
