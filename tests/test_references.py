"""Our numbers against other software and against published values."""

import json

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cases import DATA, needs_data
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families


def reference(name):
    with open(DATA / "reference_values.json") as file:
        return json.load(file)[name]


def two_moons(n=60):
    from sklearn.datasets import make_moons

    return make_moons(n, noise=0.25, random_state=0)


def test_gaussian_is_sklearn_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    kernel = ConstantKernel(1.7) * RBF([0.9, 1.3, 2.0])
    ours = GGPRegressor(families.Gaussian(phi=0.04), kernel, optimizer=None).fit(X, y)
    theirs = GaussianProcessRegressor(kernel + WhiteKernel(0.04), optimizer=None, alpha=0.0).fit(X, y)
    value, gradient = ours.log_marginal_likelihood(ours.theta_, eval_gradient=True)
    other, other_gradient = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    np.testing.assert_allclose(value, other, rtol=1e-10)
    np.testing.assert_allclose(gradient, other_gradient, rtol=1e-8, atol=1e-8)
    X_new = rng.normal(size=(15, 3))
    mean, std = theirs.predict(X_new, return_std=True)
    predictive = ours.predict_dist(X_new)
    np.testing.assert_allclose(predictive.mean(), mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(np.sqrt(predictive.var()), std, rtol=1e-8)
    for found, expected in zip(ours.predict(X_new, return_std=True), (mean, std), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_gaussian_learned_is_sklearn_learned():
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(-3, 3, 50))[:, None]
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=50)
    ours = GGPRegressor("gaussian", ConstantKernel() * RBF()).fit(X, y)
    theirs = GaussianProcessRegressor(ConstantKernel() * RBF() + WhiteKernel(), alpha=0.0).fit(X, y)
    assert ours.converged_
    np.testing.assert_allclose(ours.log_marginal_likelihood_value_, theirs.log_marginal_likelihood_value_, atol=1e-4)
    np.testing.assert_allclose(np.exp(ours.theta_), np.exp(theirs.kernel_.theta), rtol=1e-2)


def test_bernoulli_is_sklearn_classification():
    X, y = two_moons()
    kernel = ConstantKernel(2.0) * RBF(0.7)
    ours = GGPClassifier(kernel, inference="laplace", optimizer=None).fit(X, y)
    # scikit-learn ends its Newton iterations at 1e-10 of the objective; the gradient sees the square root
    theirs = GaussianProcessClassifier(kernel, optimizer=None, max_iter_predict=1000).fit(X, y)
    value, gradient = ours.log_marginal_likelihood(ours.theta_, eval_gradient=True)
    other, other_gradient = theirs.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    np.testing.assert_allclose(value, other, rtol=1e-8)
    np.testing.assert_allclose(gradient, other_gradient, atol=1e-8)


def test_two_class_softmax_with_half_the_kernel_is_logistic():
    X, y = two_moons()
    K = ConstantKernel(2.0) * RBF(0.7)
    half = ConstantKernel(1.0) * RBF(0.7)
    for inference in ("laplace", "taylor"):
        binary = GGPRegressor("bernoulli", K, inference=inference, optimizer=None).fit(X, y)
        softmax = GGPRegressor(families.Categorical(n_classes=2), half, inference=inference, optimizer=None).fit(X, y)
        np.testing.assert_allclose(
            binary.log_marginal_likelihood_value_, softmax.log_marginal_likelihood_value_, rtol=1e-10
        )
        mean, cov = softmax.predict_latent(X[:5] + 0.3)
        m, c = binary.predict_latent(X[:5] + 0.3)
        np.testing.assert_allclose(mean[:, 1] - mean[:, 0], m[:, 0], atol=1e-9)
        difference = cov[:, 0, 0] + cov[:, 1, 1] - 2 * cov[:, 0, 1]
        np.testing.assert_allclose(difference, c[:, 0, 0], atol=1e-9)


def test_sklearn_plot_gpc():
    """scikit-learn's gallery prints -17.598 before and -3.875 after learning (plot_gpc)."""
    rng = np.random.RandomState(0)
    X = rng.uniform(0, 5, 100)[:, np.newaxis]
    y = np.array(X[:, 0] > 2.5, dtype=int)
    before = GGPClassifier(1.0 * RBF(1.0), inference="laplace", optimizer=None).fit(X[:50], y[:50])
    assert f"{before.log_marginal_likelihood_value_:.3f}" == "-17.598"
    after = GGPClassifier(1.0 * RBF(1.0), inference="laplace").fit(X[:50], y[:50])
    assert f"{after.log_marginal_likelihood_value_:.3f}" == "-3.875"
    np.testing.assert_allclose(after.kernel_.k2.length_scale, 1.33, atol=0.01)


def test_sklearn_plot_gpc_xor():
    """The XOR example: the same evidence at scikit-learn's optimum, and at least as much at ours."""
    rng = np.random.RandomState(0)
    X = rng.randn(200, 2)
    y = np.logical_xor(X[:, 0] > 0, X[:, 1] > 0)
    kernel = 1.0 * RBF(length_scale=1.15)
    theirs = GaussianProcessClassifier(kernel).fit(X, y)
    ours = GGPClassifier(kernel, inference="laplace").fit(X, y)
    value, theta = theirs.log_marginal_likelihood_value_, theirs.kernel_.theta
    np.testing.assert_allclose(ours.log_marginal_likelihood(theta), value, rtol=1e-7)  # their Newton's tolerance
    assert ours.converged_ and ours.log_marginal_likelihood_value_ >= value


@needs_data
def test_gpml_logit():
    """GPML's infLaplace with likLogistic, five points (values quoted by shogun's unit tests)."""
    ref = reference("gpml_laplace_logit_n5")
    X, y = np.array(ref["X"]), np.array(ref["y"])
    for sf2, expected in ((1.0, ref), (9.0, ref["at_sf2=9"])):
        kernel = ConstantKernel(sf2) * RBF(1.0)
        model = GGPClassifier(kernel, inference="laplace", optimizer=None).fit(X, y)
        value, gradient = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
        np.testing.assert_allclose(-value, expected["nlZ_recomputed"], rtol=1e-10)
        # scikit-learn's first parameter is log sf2 = 2 log sf
        np.testing.assert_allclose(-gradient[1], expected["dnlZ_dlog_ell_published"], atol=1e-6)
        np.testing.assert_allclose(-2 * gradient[0], expected["dnlZ_dlog_sf_published"], atol=1e-6)
    model = GGPClassifier(ConstantKernel(1.0) * RBF(1.0), inference="laplace", optimizer=None).fit(X, y)
    np.testing.assert_allclose(model.predict_latent(X)[0][:, 0], ref["mode_f_recomputed"], atol=1e-9)
    assert round(-model.log_marginal_likelihood_value_, 4) == ref["nlZ_published"]


@needs_data
def test_gpml_probit():
    """GPML's infLaplace with likErf is the two-level ordinal model with its cut point at zero."""
    ref = reference("gpml_laplace_probit_n5")
    X, y = np.array(ref["X"]), (np.array(ref["y"]) > 0).astype(int)
    kernel = ConstantKernel(1.0) * RBF(1.0)
    family = families.Ordinal(phi=[0.0], phi_bounds="fixed")
    model = GGPRegressor(family, kernel, inference="laplace", optimizer=None).fit(X, y)
    np.testing.assert_allclose(-model.log_marginal_likelihood_value_, ref["nlZ_recomputed"], rtol=1e-9)
    assert round(-model.log_marginal_likelihood_value_, 3) == ref["nlZ_published"]


def test_two_level_ordinal_is_probit_laplace():
    """Against GPML algorithm 3.1/3.2 with the probit, written out here."""
    from scipy.stats import norm

    X, y = two_moons(40)
    K = 1.5 * RBF(0.8)(X)
    t, f = 2.0 * y - 1, np.zeros(40)
    for _ in range(50):
        ratio = np.exp(norm.logpdf(f) - norm.logcdf(t * f))
        W, g = ratio**2 + t * f * ratio, t * ratio
        s = np.sqrt(W)
        L = np.linalg.cholesky(np.eye(40) + s[:, None] * K * s)
        b = W * f + g
        a = b - s * np.linalg.solve(L.T, np.linalg.solve(L, s * (K @ b)))
        f = K @ a
    expected = -0.5 * a @ f + norm.logcdf(t * f).sum() - np.log(np.diag(L)).sum()
    family = families.Ordinal(phi=[0.0], phi_bounds="fixed")
    model = GGPRegressor(family, ConstantKernel(1.5) * RBF(0.8), inference="laplace", optimizer=None).fit(X, y)
    np.testing.assert_allclose(model.log_marginal_likelihood_value_, expected, rtol=1e-10)


@needs_data
def test_gpstuff_softmax_on_neals_data():
    """GPstuff's demo_multiclass: Laplace log Z of the softmax model, 400 rows, 3 classes (tests/realValues)."""
    ref = reference("gpstuff_softmax_laplace_cdata")
    data = np.genfromtxt(DATA / "gpstuff_neal_cdata.csv", delimiter=",", skip_header=1)
    X, y = data[:400, :4], data[:400, 4].astype(int)
    kernel = ConstantKernel(1.0) * RBF(np.ones(4)) + WhiteKernel(1e-2)
    model = GGPClassifier(kernel, inference="laplace", optimizer=None).fit(X, y)
    np.testing.assert_allclose(model.log_marginal_likelihood_value_, ref["logZ_laplace_recomputed"], rtol=1e-9)
    energy = -model.log_marginal_likelihood_value_ - ref["log_prior"]
    assert f"{energy:.3f}" == f"{ref['energy_published_incl_prior']:.3f}"
    best = ref["after_optim_recomputed"]
    learned = ConstantKernel(best["sigma2"]) * RBF(best["ell"]) + WhiteKernel(1e-2)
    tuned = GGPClassifier(learned, inference="laplace", optimizer=None).fit(X, y)
    error = np.mean(tuned.predict(data[400:, :4]) != data[400:, 4])
    np.testing.assert_allclose(error, ref["after_optim_published"]["test_error_600"], atol=1e-4)


@needs_data
@pytest.mark.parametrize("model", ["resC1", "resC2", "resC3"])
def test_dirichlet_density_on_arctic_lake(model):
    """Log-likelihood and gradient at DirichletReg's maximum (Mathematica values of its own tests)."""
    data = np.genfromtxt(DATA / "arctic_lake.csv", delimiter=",", names=True)
    y = np.stack([data["sand"], data["silt"], data["clay"]], axis=1)
    y /= y.sum(axis=1, keepdims=True)
    ref = reference("dirichletreg_arcticlake")["models"][model]
    degree = len(ref["COEFS"]) // 3
    design = data["depth"][:, None] ** np.arange(degree)
    eta = design @ np.array(ref["COEFS"]).reshape(3, degree).T
    family = families.Dirichlet(link="exp").resolve(y)
    np.testing.assert_allclose(family.log_prob(eta, y).sum(), ref["MLE"][0], rtol=1e-10)
    U = family.U(eta, y).dense()
    H = -np.einsum("ia,ijk,ib->jakb", design, U, design).reshape(3 * degree, 3 * degree)
    np.testing.assert_allclose(H, ref["HESSIAN"], rtol=1e-6)


@needs_data
def test_beta_density_on_gasoline():
    """betareg's vignette: log-likelihood 84.8 and precision 440.28 for the gasoline yields."""
    ref = reference("betareg_gasoline")
    y = np.array(ref["data"]["yield"])
    batch, temperature = np.array(ref["data"]["batch"]), np.array(ref["data"]["temp"], dtype=float)
    design = np.column_stack([(batch[:, None] == np.arange(1, 11)).astype(float), temperature])
    family = families.Beta(phi=ref["phi_own"])
    b = np.append(np.full(10, -4.0), 0.011)
    for _ in range(200):
        eta = (design @ b)[:, None]
        gamma = family.U(eta, y, expected=True).gamma[:, 0]
        b = b + np.linalg.solve((design.T * gamma) @ design, design.T @ family.u(eta, y)[:, 0])
    eta = (design @ b)[:, None]
    np.testing.assert_allclose(family.log_prob(eta, y).sum(), ref["loglik_own"], rtol=1e-9)
    assert abs(family.log_prob_phi(eta, y).sum()) < 1e-5  # the precision is at its maximum too
    np.testing.assert_allclose(b[-1], ref["published"]["temp_coefficient"], atol=5e-7)


@needs_data
def test_von_mises_density_on_periwinkles():
    """Fisher and Lee's regression on periwinkle directions: the log-likelihood at its maximum."""
    ref = reference("fisher_lee_periwinkles_raw")
    data = np.genfromtxt(DATA / "periwinkles_fisherB20.csv", delimiter=",", names=True)
    mu = np.deg2rad(ref["mu_deg"]) + 2 * np.arctan(ref["beta"] * data["distance_cm"])
    eta = ref["kappa"] * np.stack([np.cos(mu), np.sin(mu)], axis=1)
    np.testing.assert_allclose(families.VonMises().log_prob(eta, data["theta_rad"]).sum(), ref["loglik"], rtol=1e-9)


def test_ordinal_classifier_on_wine_order():
    """Grades learned with cut points beat the most frequent grade on scikit-learn's wine as an ordered target."""
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    model = GGPOrdinalClassifier(RBF(3.0)).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.8
