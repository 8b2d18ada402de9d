"""How sure hyperparameters are: intervals against second differences, truth and closed forms; the words around them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import ggpm
from cases import simulate
from ggpm import GGPOrdinalClassifier, GGPRegressor, families
from ggpm.kernels import On
from ggpm.learning.information import known, observed_information
from ggpm.learning.recalibration import Recalibration
from ggpm.plotting import hyperparameter_names
from ggpm.prediction.description import UNKNOWN, _cells, _says_nothing, facts_of


@pytest.mark.parametrize("name", ["gaussian", "poisson", "gamma", "von_mises"])
def test_the_information_is_the_curvature_of_the_evidence(name):
    """Second differences of values, which gradients have no part in."""
    X, y, family = simulate(name, n=40, seed=1)
    model = GGPRegressor(family, ConstantKernel(1.0) * RBF(1.0)).fit(X, y)
    p, h = len(model.theta_), 0.05
    H = np.empty((p, p))
    for i in range(p):
        for j in range(p):
            values = [
                model.log_marginal_likelihood(model.theta_ + a * h * np.eye(p)[i] + b * h * np.eye(p)[j])
                for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))
            ]
            H[i, j] = -(values[0] - values[1] - values[2] + values[3]) / (4 * h * h)
    # both differences are off by the square of their step times higher derivatives
    np.testing.assert_allclose(observed_information(model.fit_.evidence), H, atol=0.02 * np.abs(H).max())


def test_noise_alone_has_the_interval_of_a_variance():
    """n independent normal rows: log variance has information n/2, whatever the data."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(50, 1)), rng.normal(size=50)
    kernel = ConstantKernel(1e-12, "fixed") * RBF(1.0, "fixed")
    model = GGPRegressor(families.Gaussian(phi=1.0), kernel).fit(X, y)
    table = model.summary(level=0.9).to_frame()
    assert table.index.tolist() == ["gaussian: phi"]
    width = np.exp(stats.norm.ppf(0.95) * np.sqrt(2 / 50))
    np.testing.assert_allclose(table.loc["gaussian: phi", ["lower", "upper"]].astype(float),
                               np.mean(y**2) * np.array([1 / width, width]), rtol=1e-3)  # fmt: skip


def test_priors_make_hyperparameters_surer():
    from ggpm.learning.priors import LogNormal

    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (40, 1))
    y, family = rng.poisson(np.exp(1 + np.sin(2 * X[:, 0]))), "poisson"
    fitted = [GGPRegressor(family, ConstantKernel(1.0) * RBF(1.0), priors=priors).fit(X, y)
              for priors in (None, {"length_scale": LogNormal(1.0, 0.1)})]  # fmt: skip
    free, sure = (known(model.fit_.evidence).sd[1] for model in fitted)
    assert sure < 0.1 < free


def test_cut_points_and_matrices_have_intervals_of_their_own():
    X, y, _ = simulate("ordinal", n=60, seed=0)
    table = GGPOrdinalClassifier().fit(X, y).summary().to_frame()
    cuts = table[table.index.str.startswith("ordinal")]
    assert np.all((cuts.lower < cuts.value) & (cuts.value < cuts.upper))
    rng = np.random.default_rng(0)
    Y = rng.multivariate_normal([0, 0], [[1.0, 0.5], [0.5, 2.0]], 60)
    kernel = ConstantKernel(1e-12, "fixed") * RBF(1.0, "fixed")
    table = GGPRegressor("multivariate_gaussian", kernel).fit(rng.uniform(size=(60, 1)), Y).summary().to_frame()
    S = Y.T @ Y / 60
    assert table.index.tolist() == [f"multivariategaussian: phi[{i},{j}]" for i in (0, 1) for j in (0, 1)]
    np.testing.assert_allclose(table.value.to_numpy().reshape(2, 2), S, rtol=1e-3)
    sd = (table.upper - table.value).to_numpy().reshape(2, 2) / stats.norm.ppf(0.95)
    exact = np.sqrt((np.outer(np.diag(S), np.diag(S)) + S**2) / 60)  # of the entries of a Wishart matrix
    np.testing.assert_allclose(sd, exact, rtol=0.02)


def test_what_a_bound_stopped_has_no_interval_and_says_so():
    X, _, _ = simulate("gaussian", n=30, seed=0)
    kernel = ConstantKernel(1.0) * RBF(1.0, (0.9, 1.05)) + WhiteKernel(1e-6, "fixed")
    with pytest.warns(Warning):
        model = GGPRegressor("gaussian", kernel).fit(X, 10 * np.sin(8 * X[:, 0]))
    row = model.summary().to_frame().filter(like="length_scale", axis=0).iloc[0]
    assert row.note == "at its bound" and np.isnan(row.lower)


def test_reasons_for_which_there_are_none(tmp_path):
    X, y, family = simulate("poisson", n=24, seed=0)
    held = GGPRegressor(family, optimizer=None).fit(X, y)
    assert "given, not learned" in held.summary().facts["intervals"]
    loo = GGPRegressor(family, ConstantKernel(1.0) * RBF(1.0), objective="loo").fit(X, y)
    assert "leave-one-out" in loo.summary().facts["intervals"]
    sparse = GGPRegressor(family, inducing=5).fit(X, y)
    assert sparse.summary().to_frame().upper.notna().any()
    ggpm.save(sparse, tmp_path / "a.ggpm")
    again = ggpm.load(tmp_path / "a.ggpm").summary()
    assert "not in the file" in again.facts["intervals"] and again.facts["rows"] == "not in the file"
    assert again.to_frame().value.tolist() == sparse.summary().to_frame().value.tolist()


def test_forms():
    X, y, family = simulate("gamma", n=30, seed=0)
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    told = GGPRegressor(family, kernel).fit(pd.DataFrame(X, columns=["a_b", "c"]), y).summary(level=0.8)
    assert told.level == 0.8 and str(told).startswith("family        Gamma\n")
    assert "| gamma: phi | " in told.to_markdown()
    latex = told.to_latex()
    rows = len(told.to_frame()) + len(told.to_frame("terms"))
    assert r"length\_scale &" in latex and latex.count(r"\\") == 2 + rows
    assert told._repr_html_().count("<tr>") == 2 + rows
    with pytest.raises(ValueError, match="there is no table 'rows'"):
        told.to_frame("rows")
    with pytest.raises(ValueError, match="level"):
        GGPRegressor(family).fit(X, y).summary(level=90)


def test_names_of_several_kernels_and_of_vectors():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(12, 2))
    kernels = [RBF([1.0, 1.0]), RBF(1.0)]
    model = GGPRegressor("von_mises", kernels, optimizer=None).fit(X, rng.uniform(size=12))
    assert hyperparameter_names(model) == [
        "kernel 0: length_scale[0]", "kernel 0: length_scale[1]", "kernel 1: length_scale",
    ]  # fmt: skip


def test_a_summary_is_for_people():
    """Names as in the table of terms, the level of intervals, and a dash where an interval would say nothing."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(0, 6, 40), "b": rng.normal(size=40)})
    kernel = ConstantKernel(1.0) * On(RBF([1.0, 1.0]), ["a", "b"]) + ConstantKernel(1.0)
    y = rng.poisson(np.exp(1 + np.sin(2 * frame["a"])))
    told = GGPRegressor("poisson", kernel, inference="laplace").fit(frame, y).summary(level=0.8)
    assert told.names == ["RBF(a, b): variance", "RBF(a): length_scale", "RBF(b): length_scale", "constant: variance"]
    assert told.facts["intervals"].startswith("80%") and "\nRBF(a): length_scale " in str(told)
    assert told.to_frame().index[1] == "k1__k2__kernel__length_scale[0]"  # what programs know it by
    ends = [[1e-58, 1e50], [0.0, np.inf], [1.0, 3.0], [np.nan, np.nan]]
    assert _says_nothing(np.array(ends)).tolist() == [True, True, False, False]
    wide = pd.DataFrame({"value": [1.0], "lower": 1e-9, "upper": 1e9, "note": UNKNOWN}, index=["x"])
    assert _cells(wide)[1] == [["x", "1", "–", "–", UNKNOWN]]


@pytest.mark.slow
def test_intervals_hold_the_truth():
    """Data from the model itself, 100 times: 90 % intervals of length scale and noise hold the truth about as often."""
    held = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        X = np.sort(rng.uniform(0, 20, (150, 1)), axis=0)
        f = np.linalg.cholesky(RBF(1.0)(X) + 1e-9 * np.eye(150)) @ rng.normal(size=150)
        model = GGPRegressor(families.Gaussian(phi=0.1), ConstantKernel(1.0) * RBF(1.0)).fit(
            X, f + np.sqrt(0.1) * rng.normal(size=150)
        )
        table = model.summary(level=0.9).to_frame()
        truth = np.array([1.0, 1.0, 0.1])
        held.append((table.lower.to_numpy() <= truth) & (truth <= table.upper.to_numpy()))
    # four standard errors of a share of 0.9 in 100 are 0.12
    assert np.all(np.mean(held, axis=0) > 0.78)


def test_averages_and_recalibration_are_told_where_they_are():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_t(3, size=60)
    model = GGPRegressor(random_state=0).fit(X, y)
    fit = model.fit_
    assert fit.others
    average = f"averages of {len(fit.members)} fits, of which the one told here weighs {fit.weight:.2f}"
    for law, told in ((None, average), (Recalibration((0.1,)), f"{average}, recalibrated")):
        model.fit_ = replace(fit, recalibration=law)
        assert facts_of(model)["predictions"] == told and told in str(model) and told in str(model.summary())
    assert "predictions" not in facts_of(GGPRegressor(optimizer=None).fit(X, y))
