"""Weights: a row of weight 2 is the row twice, for every family and inference; rows without y are left out."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from cases import FAMILIES, kernels, simulate
from ggpm import GGPClassifier, GGPRegressor, Variational, load, save
from ggpm.families import Multinomial
from ggpm.families.weighted import Weighted, unweighted

INFERENCES = {
    "taylor": "taylor",
    "laplace": "laplace",
    "variational": Variational(sites="blocks", tol=1e-12, accuracy="fine"),
}
"""Variational with the same shape of sites for both ("auto" depends on the number of rows), and with nodes so fine that
those of a weighted row and of two plain ones, whose errors are told apart, make no difference."""


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_row_of_weight_two_is_the_row_twice(name, inference):
    n = 9
    X, y, family = simulate(name, n=n)
    weight = 1.0 + np.arange(n) % 2
    rows = np.repeat(np.arange(n), weight.astype(int))
    settings = {
        "kernel": kernels(family.resolve(y).latent_dim, True),
        "inference": INFERENCES[inference],
        "optimizer": None,
    }
    weighted = GGPRegressor(family, **settings).fit(X, y, sample_weight=weight)
    twice = GGPRegressor(family, **settings).fit(X[rows], y[rows])
    np.testing.assert_array_equal(weighted.family_.log_hyper, twice.family_.log_hyper)
    assert isinstance(weighted.fit_.evidence.family, Weighted) and not isinstance(weighted.family_, Weighted)
    value, gradient = weighted.log_marginal_likelihood(weighted.theta_, eval_gradient=True)
    expected, expected_gradient = twice.log_marginal_likelihood(twice.theta_, eval_gradient=True)
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    scale = np.abs(expected_gradient).max(initial=1.0)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6 * scale)
    for found, wanted in zip(weighted.predict_latent(X), twice.predict_latent(X)):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_count_in_what_is_taken_from_y_for_the_default_kernel(name):
    """Origin and size of the latent, starts of phi, length scales: all those of rows that are there twice."""
    n = 9
    X, y, family = simulate(name, n=n)
    if type(family).__name__ in ("Ordinal", "MultivariateGaussian", "Gaussian", "InverseGaussian", "LogisticNormal"):
        family = clone(family).set_params(phi=None)  # taken from y too
    weight = 1.0 + np.arange(n) % 2
    rows = np.repeat(np.arange(n), weight.astype(int))
    model = GGPRegressor(family, inference="taylor", optimizer=None)
    weighted, twice = clone(model).fit(X, y, sample_weight=weight), clone(model).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.theta_, twice.theta_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(weighted.family_.origin, twice.family_.origin, rtol=1e-12, atol=1e-12)
    value, expected = weighted.log_marginal_likelihood_value_, twice.log_marginal_likelihood_value_
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    for found, wanted in zip(weighted.predict_latent(X), twice.predict_latent(X)):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["poisson", "dirichlet", "von_mises", "categorical"])
@pytest.mark.parametrize("inference", ["laplace", "variational"])
def test_weights_on_inducing_points(name, inference):
    X, y, family = simulate(name, n=20)
    weight = 1.0 + np.arange(20) % 2
    rows = np.repeat(np.arange(20), weight.astype(int))
    kernel = kernels(family.resolve(y).latent_dim, True)
    settings = {"kernel": kernel, "inference": inference, "optimizer": None, "inducing": X[::3]}
    weighted = GGPRegressor(family, **settings).fit(X, y, sample_weight=weight)
    twice = GGPRegressor(family, **settings).fit(X[rows], y[rows])
    np.testing.assert_allclose(
        weighted.log_marginal_likelihood_value_, twice.log_marginal_likelihood_value_, rtol=1e-6
    )  # fmt: skip
    np.testing.assert_allclose(weighted.predict_latent(X)[0], twice.predict_latent(X)[0], atol=1e-5)


def test_gradients_with_weights_are_those_of_differences():
    X, y, family = simulate("gamma", n=12)
    weight = np.linspace(0.2, 3.0, 12)
    for inference in ("taylor", "laplace", "variational"):
        model = GGPRegressor(family, kernels(1, True), inference=inference, optimizer=None)
        model.fit(X, y, sample_weight=weight)
        theta = model.theta_
        _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
        for j in range(len(theta)):
            step = 1e-5 * np.eye(len(theta))[j]
            above, below = (model.log_marginal_likelihood(theta + s) for s in (step, -step))
            np.testing.assert_allclose(gradient[j], (above - below) / 2e-5, rtol=1e-4, atol=1e-5)


def test_rows_of_no_weight_and_without_y_are_left_out():
    X, y, family = simulate("poisson", n=14)
    model = GGPRegressor(family, kernels(1, True), optimizer=None)
    fewer = model.fit(X[3:], y[3:]).predict(X)
    np.testing.assert_array_equal(model.fit(X, y, sample_weight=(np.arange(14) > 2) * 1.0).predict(X), fewer)
    holes = np.where(np.arange(14) > 2, y, np.nan)
    with pytest.warns(UserWarning, match=r"y is missing in 3 of 14 row\(s\), first in row 0: they are left out"):
        model.fit(X, holes, offset=np.zeros(14))
    np.testing.assert_array_equal(model.predict(X), fewer)
    frame = pd.DataFrame(X, columns=["a", "b"])
    labels = pd.Series(np.where(y > y.mean(), "many", "few"), dtype=object).mask(np.arange(14) == 5)
    with pytest.warns(UserWarning, match=r"y is missing in 1 of 14 row\(s\), first in row 5"):
        GGPClassifier(optimizer=None).fit(frame, labels)
    parts = np.full((14, 3), 1 / 3)
    parts[4] = np.nan
    with pytest.warns(UserWarning, match="first in row 4"):
        assert GGPRegressor("dirichlet", optimizer=None).fit(X, parts).posterior_.inputs.shape == (13, 2)
    for weight, message in ((-np.ones(14), "row 0 has -1"), (np.zeros(14), "zeros alone"), ([1.0], r"shape \(14,\)")):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, sample_weight=weight)
    with pytest.raises(ValueError, match="objective must be 'evidence'"):
        GGPRegressor(family, objective="loo").fit(X, y, sample_weight=np.full(14, 2.0))


def test_leave_one_out_leaves_the_weighted_row_out_whole():
    """Against refits without the row; the density is that of one observation."""
    X, y, family = simulate("poisson", n=10)
    weight = np.linspace(0.5, 4.0, 10)
    for inference in ("taylor", "laplace"):
        model = GGPRegressor(family, kernels(1, True), inference=inference, optimizer=None)
        found = model.fit(X, y, sample_weight=weight).loo(neighbours=9).pointwise
        for i in range(0, 10, 3):
            rest = np.arange(10) != i
            refit = GGPRegressor(family, kernels(1, True), inference=inference, optimizer=None)
            refit.fit(X[rest], y[rest], sample_weight=weight[rest])
            np.testing.assert_allclose(found[i], refit.log_predictive_density(X[[i]], y[[i]])[0], rtol=1e-6)


def test_weighted_models_are_saved(tmp_path):
    for name in ("poisson", "wishart"):
        X, y, family = simulate(name, n=10)
        model = GGPRegressor(family, optimizer=None).fit(X, y, sample_weight=np.linspace(0.5, 2, 10))
        save(model, tmp_path / "m.ggpm")
        again = load(tmp_path / "m.ggpm")
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        theta = model.theta_ + 0.1
        assert again.log_marginal_likelihood(theta) == model.log_marginal_likelihood(theta)


def test_weights_go_with_y():
    y = np.array([[1.0, 2.0], [3.0, 4.0]])
    family, joined = Weighted.join(Multinomial().resolve(y), y, np.array([1.0, 2.0]))
    base, plain = unweighted(family, joined)
    assert type(base) is Multinomial and joined.shape == (2, 3)
    np.testing.assert_array_equal(plain, y)
    np.testing.assert_array_equal(family.decode(joined), y)
