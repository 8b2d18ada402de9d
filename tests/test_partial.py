"""Rows of which parts are missing: exact marginals by brute force, derivatives by differences, fits that use them."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import gammaln
from scipy.stats import binom, multinomial, multivariate_normal, norm
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ggpm
from ggpm import GGPRegressor, load, save
from ggpm.families import Dirichlet, Gaussian, Multinomial, MultivariateGaussian
from ggpm.families.curvature import Blocks
from ggpm.families.partial import Partial, with_rests

NAN = np.nan
PARTS = np.array([
    [0.2, 0.3, 0.1, 0.4], [0.2, NAN, NAN, 0.3], [NAN, 0.4, 0.6, NAN], [0.1, 0.2, 0.3, NAN], [0.25, 0.25, 0.25, 0.25],
    [NAN, NAN, 0.7, NAN],
])  # fmt: skip
COUNTS = np.array([[2.0, 1, 0, 4], [3, NAN, 2, NAN], [NAN, 1, 0, 5], [1, 1, 1, 1]])
REALS = np.array([[0.3, -1.0, 2.0], [NAN, 0.5, NAN], [1.0, NAN, 0.2], [0.1, 0.2, 0.3]])
NOISE = np.array([[1.0, 0.4, -0.2], [0.4, 0.5, 0.1], [-0.2, 0.1, 0.8]])
CASES = {
    "dirichlet": (Dirichlet(), PARTS), "dirichlet, exp": (Dirichlet(link="exp"), PARTS),
    "multinomial": (Multinomial(), COUNTS), "gaussian": (Gaussian(phi=0.4), REALS),
    "gaussian, three variances": (Gaussian(phi=[0.4, 0.2, 0.7]), REALS),
    "multivariate gaussian": (MultivariateGaussian(phi=NOISE), REALS),
    "multivariate gaussian of its own unit": (MultivariateGaussian(), np.concatenate([REALS, REALS[::-1] ** 2])),
    "multinomial of trials": (Multinomial(), with_rests(Multinomial(), COUNTS, [7, 9, 6, 4])),
    "multinomial with nothing left": (Multinomial(), with_rests(Multinomial(), COUNTS, [7, 5, 6, 4])),
}  # fmt: skip


def bound(name):
    family, y = CASES[name]
    out = Partial.resolved(family, y)
    return out, out.encode(y), np.random.default_rng(0).normal(0.4, 0.8, (len(y), out.latent_dim))


def density(parts, alpha):
    """Dirichlet density of compositions (..., d), written out."""
    return np.exp(gammaln(alpha.sum()) - gammaln(alpha).sum() + np.sum((alpha - 1) * np.log(parts), axis=-1))


def integral(function, low, high):
    x, w = np.polynomial.legendre.leggauss(60)
    return 0.5 * (high - low) * np.sum(w * function(low + 0.5 * (high - low) * (x + 1)))


@pytest.mark.parametrize("link", ["softplus", "exp"])
def test_parts_that_leave_a_rest_are_integrals_of_the_whole_density(link):
    family = Partial.resolved(Dirichlet(link=link), PARTS)
    eta = np.array([[2.2, 1.7, 2.6, 1.9]])
    alpha = np.log1p(np.exp(eta[0])) if link == "softplus" else np.exp(eta[0])
    y = family.encode([[0.2, NAN, NAN, 0.3]])

    def row(*parts):
        return np.stack(np.broadcast_arrays(*parts), axis=-1)

    inner = integral(lambda t: density(row(0.2, t, 0.5 - t, 0.3), alpha), 0, 0.5)
    np.testing.assert_allclose(family.log_prob(eta, y), np.log(inner), atol=1e-6)
    # a subcomposition: the parts that are there over their sum r, whatever r is
    y = family.encode([[0.4, 0.6, NAN, NAN]])

    def given(r):
        rest = [integral(lambda t, s=s: density(row(0.4 * s, 0.6 * s, t, 1 - s - t), alpha), 0, 1 - s) for s in r]
        return r * np.array(rest)

    np.testing.assert_allclose(family.log_prob(eta, y), np.log(integral(given, 0, 1)), atol=1e-5)


def test_counts_are_given_their_total():
    family, _, _ = bound("multinomial")
    eta = np.random.default_rng(1).normal(size=(1, 4))
    p = np.exp(eta[0]) / np.exp(eta[0]).sum()
    for lost in (0, 3, 7):  # however many counts are missing
        alike = [multinomial.pmf([k, i, 5 - k, lost - i], 5 + lost, p) for k in range(6) for i in range(lost + 1)]
        mine = [multinomial.pmf([3, i, 2, lost - i], 5 + lost, p) for i in range(lost + 1)]
        expected = np.log(np.sum(mine) / np.sum(alike))
        np.testing.assert_allclose(family.log_prob(eta, family.encode([[3, NAN, 2, NAN]])), expected, rtol=1e-10)


def test_counts_of_known_trials_are_sums_over_what_is_missing():
    counts = np.array([[3.0, NAN, 2, NAN], [NAN, NAN, NAN, 2], [1, 1, 1, 1], [4, NAN, 0, 1]])
    family = Partial.resolved(Multinomial(), with_rests(Multinomial(), counts, [9, 6, 4, 7]))
    y = family.encode(with_rests(Multinomial(), counts, [9, 6, 4, 7]))
    eta = np.random.default_rng(1).normal(size=(4, 4))
    p = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    expected = [
        sum(multinomial.pmf([3, i, 2, 4 - i], 9, p[0]) for i in range(5)),
        sum(multinomial.pmf([i, j, 4 - i - j, 2], 6, p[1]) for i in range(5) for j in range(5 - i)),
        multinomial.pmf([1, 1, 1, 1], 4, p[2]),
        multinomial.pmf([4, 2, 0, 1], 7, p[3]),  # what is missing alone is known
    ]
    np.testing.assert_allclose(family.log_prob(eta, y), np.log(expected), rtol=1e-10)
    with pytest.raises(ValueError, match="got 4 for the counts of row 0, 5 in all"):
        with_rests(Multinomial(), counts, 4)
    with pytest.raises(ValueError, match="Dirichlet takes none there"):
        with_rests(Dirichlet(), counts, 4)


def test_columns_that_are_there_are_correlated():
    family, y, eta = bound("multivariate gaussian")
    for row, known in enumerate(~np.isnan(REALS)):
        expected = multivariate_normal.logpdf(REALS[row, known], eta[row, known], NOISE[np.ix_(known, known)])
        np.testing.assert_allclose(family.log_prob(eta, y)[row], expected, rtol=1e-12)


def test_columns_that_are_there_are_normal():
    family, y, eta = bound("gaussian, three variances")
    sd = np.sqrt([0.4, 0.2, 0.7])
    expected = np.nansum(norm.logpdf(REALS, eta, sd), axis=1)
    np.testing.assert_allclose(family.log_prob(eta, y), expected, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences(name):
    family, y, eta = bound(name)
    n, D = eta.shape
    h = 1e-5
    rng = np.random.default_rng(2)
    M = rng.normal(size=(n, D, D))
    V = Blocks(M @ M.swapaxes(1, 2))
    np.testing.assert_array_equal(family.encode(family.decode(y)), y)
    for j in range(D):
        step = h * np.eye(D)[j]
        difference = (family.log_prob(eta + step, y) - family.log_prob(eta - step, y)) / (2 * h)
        np.testing.assert_allclose(family.u(eta, y)[:, j], difference, atol=1e-8)
        difference = (family.u(eta + step, y) - family.u(eta - step, y)) / (2 * h)
        np.testing.assert_allclose(family.U(eta, y).dense()[:, j], -difference, atol=1e-8)
        for expected in (False, True):
            above, below = (family.U(eta + s, y, expected=expected).dense() for s in (step, -step))
            difference = np.einsum("njk,njk->n", V.dense(), above - below) / (2 * h)
            found = family.U_pullback(eta, y, V, expected=expected)[0][:, j]
            np.testing.assert_allclose(found, difference, atol=1e-7 * max(1.0, np.abs(difference).max()))
    nodes = np.stack([eta, eta + 0.3])
    np.testing.assert_allclose(family.log_prob(nodes, y)[1], family.log_prob(eta + 0.3, y), rtol=1e-14)
    np.testing.assert_allclose(family.u(nodes, y)[1], family.u(eta + 0.3, y), rtol=1e-14)
    np.testing.assert_allclose(family.U(nodes, y).dense()[1], family.U(eta + 0.3, y).dense(), rtol=1e-14)
    theta = family.log_hyper
    for k in range(len(theta)):
        a, b = (family.with_log_hyper(theta + s * np.eye(len(theta))[k]) for s in (h, -h))
        np.testing.assert_allclose(
            family.log_prob_phi(eta, y)[:, k], (a.log_prob(eta, y) - b.log_prob(eta, y)) / (2 * h), atol=1e-7
        )
        np.testing.assert_allclose(family.u_phi(eta, y)[..., k], (a.u(eta, y) - b.u(eta, y)) / (2 * h), atol=1e-7)
        np.testing.assert_allclose(
            family.U_pullback(eta, y, V)[1][k],
            np.sum(V.dense() * (a.U(eta, y).dense() - b.U(eta, y).dense())) / (2 * h), rtol=1e-6,
        )  # fmt: skip


def test_expected_curvature_is_the_mean_over_y():
    """Of the amalgamated Dirichlet, by draws of y."""
    family, y, eta = bound("dirichlet")
    rng = np.random.default_rng(0)
    draws = rng.dirichlet(np.log1p(np.exp(eta[1])), 40_000)
    draws[:, [1, 2]] = NAN
    rows = np.repeat(eta[1:2], len(draws), axis=0)
    encoded = np.concatenate([np.nan_to_num(draws), np.tile([1.0, 0, 0, 1], (len(draws), 1))], axis=1)
    observed = family.U(rows, encoded).dense().mean(axis=0)
    expected = family.U(eta[1:2], y[1:2], expected=True).dense()[0]
    np.testing.assert_allclose(observed, expected, atol=0.01)


THREE = np.array([[0.2, 0.3, 0.5], [0.2, NAN, NAN], [NAN, 0.4, 0.6], [0.1, 0.2, 0.7], [NAN, 0.3, 0.3]])
FITS = {
    "dirichlet": (Dirichlet(), THREE), "multinomial": (Multinomial(), np.round(10 * THREE)),
    "gaussian": (Gaussian(phi=[0.4, 0.2, 0.7]), REALS), "multivariate": (MultivariateGaussian(phi=NOISE), REALS),
    "trials": (Multinomial(), with_rests(Multinomial(), np.round(10 * THREE), [10, 10, 10, 10, 9])),
}  # fmt: skip


@pytest.mark.parametrize("inference", ["taylor", "laplace", "variational"])
@pytest.mark.parametrize("name", FITS)
def test_models_learn_from_what_is_there(name, inference, tmp_path):
    family, y = FITS[name]
    X = np.linspace(0, 1, len(y))[:, None]
    model = GGPRegressor(family, inference=inference, optimizer=None).fit(X, y)
    assert model.converged_ and type(model.family_) is type(family)
    theta = model.theta_
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    for k in range(len(theta)):
        step = 1e-4 * np.eye(len(theta))[k]
        above, below = (model.log_marginal_likelihood(theta + s) for s in (step, -step))
        np.testing.assert_allclose(gradient[k], (above - below) / 2e-4, rtol=1e-3, atol=1e-4)
    assert np.all(np.isfinite(model.predict(X)))
    save(model, tmp_path / "m.ggpm")
    again = load(tmp_path / "m.ggpm")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.log_marginal_likelihood(theta) == pytest.approx(model.log_marginal_likelihood(theta), rel=1e-12)
    if inference == "laplace":
        held = {"kernel": model.kernel_, "inference": inference, "optimizer": None}
        weighted = GGPRegressor(family, **held).fit(X, y, sample_weight=np.full(len(y), 2.0))
        twice = GGPRegressor(family, **held).fit(np.r_[X, X], np.r_[y, y])
        assert weighted.log_marginal_likelihood_value_ == pytest.approx(twice.log_marginal_likelihood_value_, rel=1e-8)


def test_whole_rows_are_as_before():
    """With a missing part in one row of no weight to speak of, the model is that of the other rows."""
    X = np.linspace(0, 1, 7)[:, None]
    y = np.random.default_rng(0).dirichlet([3, 2, 4], 7)
    whole = GGPRegressor("dirichlet", optimizer=None).fit(X[:6], y[:6])
    holes = y.copy()
    holes[6, 0] = NAN
    kernel = whole.kernel_
    part = GGPRegressor("dirichlet", kernel, optimizer=None).fit(X, holes, sample_weight=np.r_[np.ones(6), 1e-12])
    np.testing.assert_allclose(part.predict(X), whole.predict(X), atol=1e-6)


def test_other_families_and_impossible_rows_are_told():
    X = np.arange(3.0)[:, None]
    y = np.array([[0.5, 1.0], [NAN, 1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match=r"missing parts in 1 row\(s\), first in row 1: LogisticNormal has no"):
        GGPRegressor("logistic_normal").fit(X, y)
    with pytest.raises(ValueError, match=r"the parts of row 1 that are there sum to 1\.2"):
        GGPRegressor(Dirichlet()).fit(X, [[0.5, 0.3, 0.2], [0.6, 0.6, NAN], [0.2, 0.4, 0.4]])
    with pytest.raises(ValueError, match="every row of y has missing parts"):
        GGPRegressor(Gaussian()).fit(X, np.array([[NAN, 1.0]] * 3))
    percent = Dirichlet(closure=True)
    model = GGPRegressor(percent, optimizer=None).fit(X, [[50.0, 30, 20], [60, 10, NAN], [20, 40, 40]])
    assert model.predict(X).sum(axis=1) == pytest.approx(100.0)


@pytest.mark.parametrize(
    "old, new", [(slice(0, 1), slice(1, 5)), (slice(0, 3), slice(3, 5)), (slice(3, 4), slice(0, 1))]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_with_missing_parts_are_added(old, new, weighted):
    X, weight = np.linspace(0, 1, 5)[:, None], np.linspace(0.5, 2.0, 5)
    kernel, settings = 1.0 * RBF(0.5), {"inference": "laplace", "optimizer": None}
    model = GGPRegressor("dirichlet", kernel, **settings).fit(X[old], THREE[old], weight[old] if weighted else None)
    model.update(X[new], THREE[new], weight[new] if weighted else None)
    rows = np.r_[old, new]
    whole = GGPRegressor("dirichlet", kernel, **settings).fit(X[rows], THREE[rows], weight[rows] if weighted else None)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-7)


# ---- trials ----------------------------------------------------------------------------------------------------------
def partly_counted():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 3, 24)[:, None]
    trials = rng.integers(6, 12, 24)
    share = np.stack([1 + np.sin(X[:, 0]) ** 2, np.ones(24), 2 - X[:, 0] / 3], axis=1)
    y = np.array([rng.multinomial(N, p / p.sum()) for N, p in zip(trials, share)]).astype(float)
    y[::3, 1:] = NAN
    return X, pd.DataFrame(y, columns=["a", "b", "c"]), trials


def test_densities_of_parts_are_integrals_over_the_latent():
    """By draws of the latent, with trials and without."""
    X, y, trials = partly_counted()
    model = GGPRegressor("multinomial", optimizer=None).fit(X, y, trials=trials)
    mean, cov = model.predict_latent(X[:4])
    draws = np.random.default_rng(1).multivariate_normal(mean[3], cov[3], 200_000)
    p = np.exp(draws) / np.exp(draws).sum(axis=1, keepdims=True)
    k, N = y["a"][3], trials[3]
    expected = np.log(np.mean(binom.pmf(k, N, p[:, 0])))
    found = model.log_predictive_density(X, y, trials=trials)
    np.testing.assert_allclose(found[3], expected, atol=0.01)  # standard error of the draws: 0.002
    assert abs(model.log_predictive_density(X, y)[3]) < 1e-12  # one count alone, given their total, says nothing
    whole = model.log_predictive_density(X[1:3], y[1:3])
    np.testing.assert_allclose(found[1:3], whole, atol=1e-6)
    reals = GGPRegressor(MultivariateGaussian(phi=NOISE), optimizer=None).fit(np.arange(4.0)[:, None], REALS)
    mean, cov = reals.predict_latent(np.arange(4.0)[:, None])
    at = [0, 2]
    expected = multivariate_normal.logpdf(REALS[2, at], mean[2, at], (cov[2] + NOISE)[np.ix_(at, at)])
    np.testing.assert_allclose(reals.log_predictive_density(np.arange(4.0)[:, None], REALS)[2], expected, atol=1e-6)


def test_trials_go_through_cross_validation_searches_and_pipelines():
    X, y, trials = partly_counted()
    model = GGPRegressor("multinomial", 1.0 * RBF(1.0), optimizer=None)
    folds = KFold(2, shuffle=True, random_state=0)
    by_hand = []
    for train, test in folds.split(X):
        fitted = clone(model).fit(X[train], y.iloc[train], trials=trials[train])
        by_hand.append(fitted.log_predictive_density(X[test], y.iloc[test], trials=trials[test]).mean())
    sklearn.set_config(enable_metadata_routing=True)
    try:
        asking = clone(model).set_fit_request(trials=True)
        scorer = ggpm.log_predictive_density_scorer.set_score_request(trials=True)
        settings = {"cv": folds, "scoring": scorer}
        for estimator in (asking, make_pipeline(StandardScaler(with_mean=False, with_std=False), asking)):
            found = cross_val_score(estimator, X, y, params={"trials": trials}, **settings)
            np.testing.assert_allclose(found, by_hand, rtol=1e-10)
        search = GridSearchCV(asking, {"kernel": [1.0 * RBF(1.0), 1.0 * RBF(0.1)]}, refit=True, **settings)
        search.fit(X, y, trials=trials)
        np.testing.assert_allclose(search.cv_results_["mean_test_score"][0], np.mean(by_hand), rtol=1e-10)
        assert search.best_score_ >= np.mean(by_hand)
        predicted = clone(asking).set_predict_request(trials=True)
        pipeline = make_pipeline(StandardScaler(), predicted).fit(X, y, trials=trials)
        np.testing.assert_allclose(np.sum(pipeline.predict(X, trials=trials), axis=1), trials)
    finally:
        sklearn.set_config(enable_metadata_routing=False)
