"""Survival: curves, bands and scores, against closed forms and other software."""

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct

from ggpm import GGPRegressor, Predictive
from ggpm.families import Censored, Gamma, LogNormal, Weibull, right_censored
from ggpm.prediction.survival import (
    concordance_index,
    hazard,
    integrated_brier_score,
    kaplan_meier,
    median_survival_time,
    survival_function,
    survival_interval,
)


def lifetimes(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    time = np.round(np.exp(1.0 + 0.5 * X[:, 0]) * rng.weibull(1.6, n), 2) + 0.01  # rounded, so that ties occur
    limit = np.round(rng.exponential(5.0, n), 2) + 0.01
    return X, np.minimum(time, limit), time <= limit


@pytest.mark.parametrize("family", [Weibull(1.7), LogNormal(0.4), Gamma(0.3)], ids=repr)
def test_curves_of_a_known_latent_are_scipys(family):
    law = {
        Weibull: lambda e: stats.weibull_min(1.7, scale=np.exp(e)),
        LogNormal: lambda e: stats.lognorm(np.sqrt(0.4), scale=np.exp(e)),
        Gamma: lambda e: stats.gamma(1 / 0.3, scale=0.3 * np.exp(e)),
    }[type(family)]
    times, eta = np.array([0.2, 1.0, 4.0]), np.array([0.0, 0.7])
    dist = Predictive(family, eta[:, None], np.zeros((2, 1, 1)))
    laws = [law(e) for e in eta]
    np.testing.assert_allclose(survival_function(dist, times), [one.sf(times) for one in laws], rtol=1e-9)
    np.testing.assert_allclose(hazard(dist, times), [one.pdf(times) / one.sf(times) for one in laws], rtol=1e-8)
    median, band = median_survival_time(dist)
    np.testing.assert_allclose(median, [one.median() for one in laws], rtol=1e-6)
    np.testing.assert_allclose(band, median[:, None] * np.ones(2), rtol=1e-6)


def test_bands_hold_the_curves_of_draws():
    family, times = Weibull(1.5), np.array([0.5, 1.0, 2.0])
    dist = Predictive(family, np.array([[0.3]]), np.array([[[0.2]]]))
    eta = 0.3 + np.sqrt(0.2) * np.random.default_rng(0).normal(size=(20000, 1))
    curves = 1 - family.cdf(eta[:, None, :], times)
    np.testing.assert_allclose(survival_function(dist, times)[0], curves.mean(axis=0), atol=0.01)
    want = np.quantile(curves, [0.05, 0.95], axis=0).T
    np.testing.assert_allclose(survival_interval(dist, times, 0.9)[0], want, atol=0.01)


def test_scores_are_those_of_scikit_survival():
    sksurv = pytest.importorskip("sksurv.metrics")
    X, time, event = lifetimes(120)
    y = right_censored(time, event)
    predicted = np.exp(0.5 * X[:, 0] + 0.3 * X[:, 1])
    want = sksurv.concordance_index_censored(event, time, -predicted)[0]
    assert concordance_index(y, predicted) == pytest.approx(want, rel=1e-12)
    times = np.quantile(time, np.linspace(0.1, 0.8, 12))
    survival = np.exp(-((times / (3 * predicted[:, None])) ** 1.5))
    record = np.array(list(zip(event, time)), dtype=[("event", bool), ("time", float)])
    want = sksurv.integrated_brier_score(record, record, survival, times)
    assert integrated_brier_score(y, y, survival, times) == pytest.approx(want, rel=1e-10)


def test_scores_are_those_of_lifelines():
    lifelines = pytest.importorskip("lifelines")
    X, time, event = lifetimes(90, seed=1)
    predicted = X[:, 0]
    want = lifelines.utils.concordance_index(time, predicted, event)
    assert concordance_index(right_censored(time, event), predicted) == pytest.approx(want, rel=1e-12)
    curve = lifelines.KaplanMeierFitter().fit(time, event)
    at = np.quantile(time, [0.1, 0.5, 0.9])
    np.testing.assert_allclose(kaplan_meier(time, event, at), curve.survival_function_at_times(at), rtol=1e-10)


@pytest.mark.parametrize("name", ["Weibull", "LogNormal"])
def test_a_linear_kernel_is_lifelines_regression(name):
    """Accelerated failure times: with a wide prior on the coefficients the mode is the maximum of the likelihood."""
    lifelines = pytest.importorskip("lifelines")
    pd = pytest.importorskip("pandas")
    X, time, event = lifetimes(150, seed=2)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(time=time, event=event)
    theirs = getattr(lifelines, f"{name}AFTFitter")().fit(frame, "time", "event")
    kernel = ConstantKernel(1e4, "fixed") * DotProduct(1.0, "fixed")
    ours = GGPRegressor(Censored({"Weibull": Weibull, "LogNormal": LogNormal}[name]()), kernel, inference="laplace")
    ours.fit(X, right_censored(time, event))
    location = {"Weibull": "lambda_", "LogNormal": "mu_"}[name]
    at = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    want = theirs.params_[location]
    want = np.array([want["Intercept"], want["Intercept"] + want["a"], want["Intercept"] + want["b"]])
    # the evidence maximises over phi with the three coefficients integrated out: 3/(2n) of a logarithm apart
    np.testing.assert_allclose(ours.predict_latent(at)[0][:, 0], want, atol=0.02)
    shape = theirs.params_[{"Weibull": "rho_", "LogNormal": "sigma_"}[name]]["Intercept"]
    own = ours.family_.log_hyper[0] * (1.0 if name == "Weibull" else 0.5)
    assert abs(own - shape) < 0.03
    curve = theirs.predict_survival_function(pd.DataFrame(at, columns=["a", "b"]), times=[1.0, 3.0]).to_numpy().T
    np.testing.assert_allclose(survival_function(ours.predict_dist(at), [1.0, 3.0]), curve, atol=0.015)
    phi = np.exp(shape) if name == "Weibull" else np.exp(2 * shape)
    there = theirs.params_[location]
    eta = (there["Intercept"] + X @ [there["a"], there["b"]])[:, None]
    family = Censored({"Weibull": Weibull, "LogNormal": LogNormal}[name](phi))
    assert family.log_prob(eta, right_censored(time, event)).sum() == pytest.approx(theirs.log_likelihood_, rel=1e-9)


def test_mistakes_are_named():
    dist = Predictive(Weibull(1.0), np.zeros((1, 1)), np.zeros((1, 1, 1)))
    with pytest.raises(ValueError, match="times must be positive"):
        survival_function(dist, [-1.0, 2.0])
    with pytest.raises(ValueError, match="right_censored"):
        concordance_index([[1.0, 2.0], [1.0, 1.0]], [1.0, 2.0])
    with pytest.raises(ValueError, match="no pair"):
        concordance_index([[1.0, np.inf], [2.0, np.inf]], [1.0, 2.0])


def test_the_picture_is_of_the_curves():
    pytest.importorskip("matplotlib")
    from ggpm.plotting import plot_survival

    X, time, event = lifetimes(40, seed=3)
    model = GGPRegressor(Censored(Weibull()), ConstantKernel(1.0) * DotProduct(1.0), optimizer=None)
    model.fit(X, right_censored(time, event))
    rows, times = np.array([[-1.0, 0.0], [1.0, 0.0]]), np.linspace(0.1, 8.0, 30)
    ax = plot_survival(model, rows, times=times, labels=["low", "high"], data=(time, event))
    drawn = [line.get_ydata() for line in ax.lines]
    np.testing.assert_allclose(drawn[:2], survival_function(model.predict_dist(rows), times), rtol=1e-12)
    np.testing.assert_allclose(drawn[2], kaplan_meier(time, event, times), rtol=1e-12)
    assert len(ax.collections) == 2 and ax.lines[0].get_label() == "low"
    with pytest.raises(ValueError, match="at most 8"):
        plot_survival(model, X)


@pytest.mark.parametrize("event", [[1, 2], ["dead", "alive"], [True, np.nan], [1.0, 0.5]])
def test_a_status_that_does_not_say_whether_the_event_was_seen_is_refused(event):
    """R's survival codes events as 1 and 2: taken as truth both would be deaths."""
    with pytest.raises(ValueError, match=r"event must be True or 1 .* row [01]\. .*status == 2"):
        right_censored([1.0, 2.0], event)
