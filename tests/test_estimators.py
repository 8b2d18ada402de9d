"""The estimators: their contract, and what they say to bad input."""

import copy
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cases import simulate
from ggpm import (
    GGPClassifier,
    GGPOrdinalClassifier,
    GGPRegressor,
    Laplace,
    families,
    log_predictive_density_scorer,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))


def test_fitted_attributes_and_theta():
    X, y, _ = simulate("negative_binomial", n=25)
    model = GGPRegressor("negative_binomial", ConstantKernel() * RBF()).fit(X, y)
    assert model.theta_.shape == (3,)
    np.testing.assert_allclose(model.theta_[:2], model.kernel_.theta)
    np.testing.assert_allclose(model.theta_[2], np.log(model.family_.phi))
    assert model.n_features_in_ == 2 and model.converged_ is True and model.n_iter_ > 0
    assert model.log_marginal_likelihood() == model.log_marginal_likelihood_value_
    np.testing.assert_allclose(model.log_marginal_likelihood(model.theta_), model.log_marginal_likelihood_value_)
    assert model.family == "negative_binomial" and model.kernel.k1.constant_value == 1.0  # parameters untouched


def test_ordinal_theta_is_first_cut_and_log_gaps():
    x = np.linspace(0, 1, 80)[:, None]
    y = (4 * x[:, 0]).astype(int).clip(0, 3)
    model = GGPOrdinalClassifier(ConstantKernel() * RBF()).fit(x, y)
    cuts = np.asarray(model.family_.phi)
    np.testing.assert_allclose(model.theta_[2:], np.r_[cuts[0], np.log(np.diff(cuts))])
    assert np.all(np.diff(cuts) > 0)


def test_kernel_list_is_one_per_latent_dimension():
    X, y, _ = simulate("von_mises", n=25)
    model = GGPRegressor("von_mises", [RBF(1.0), ConstantKernel() * RBF(2.0)]).fit(X, y)
    assert isinstance(model.kernel_, list) and len(model.kernel_) == 2
    assert model.theta_.shape == (3,)
    with pytest.raises(ValueError, match="one for each latent dimension: expected 2, got 3"):
        GGPRegressor("von_mises", [RBF()] * 3).fit(X, y)
    with pytest.raises((TypeError, ValueError), match="kernel"):
        GGPRegressor("von_mises", "rbf").fit(X, y)


def test_log_marginal_likelihood_is_a_pure_function():
    X, y, _ = simulate("dirichlet", n=20)
    model = GGPRegressor("dirichlet").fit(X, y)
    theta = model.theta_ + 0.3
    first = model.log_marginal_likelihood(theta, eval_gradient=True)
    model.log_marginal_likelihood(model.theta_ - 1.0)
    again = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert first[0] == again[0]
    np.testing.assert_array_equal(first[1], again[1])
    with pytest.raises(ValueError, match="entries"):
        model.log_marginal_likelihood(np.zeros(17))


def test_optimizer_none_and_fixed_phi_keep_hyperparameters():
    X, y, _ = simulate("gamma", n=25)
    kept = GGPRegressor(families.Gamma(phi=0.7), 1.5 * RBF(0.9), optimizer=None).fit(X, y)
    assert kept.family_.phi == pytest.approx(0.7) and kept.kernel_.k2.length_scale == pytest.approx(0.9)
    fixed = GGPRegressor(families.Gamma(phi=0.7, phi_bounds="fixed"), 1.5 * RBF(0.9)).fit(X, y)
    assert fixed.family_.phi == 0.7 and fixed.kernel_.k2.length_scale != pytest.approx(0.9)
    assert fixed.theta_.shape == (2,)


def test_learning_beats_the_start_and_restarts_never_lose():
    X, y, _ = simulate("poisson", n=40)
    start = GGPRegressor("poisson", 1.0 * RBF(5.0), optimizer=None).fit(X, y)
    learned = GGPRegressor("poisson", 1.0 * RBF(5.0)).fit(X, y)
    restarted = GGPRegressor("poisson", 1.0 * RBF(5.0), n_restarts_optimizer=2, random_state=0).fit(X, y)
    assert learned.log_marginal_likelihood_value_ > start.log_marginal_likelihood_value_
    assert restarted.log_marginal_likelihood_value_ >= learned.log_marginal_likelihood_value_ - 1e-6


def test_a_callable_optimizer_is_used():
    X, y, _ = simulate("poisson", n=20)
    calls = []

    def optimizer(objective, theta, bounds):
        calls.append(objective(theta)[0])
        return theta, calls[-1]

    model = GGPRegressor("poisson", 1.0 * RBF(1.0), optimizer=optimizer).fit(X, y)
    assert calls and model.kernel_.k2.length_scale == pytest.approx(1.0)
    with pytest.raises(ValueError, match="optimizer"):
        GGPRegressor("poisson", 1.0 * RBF(1.0), optimizer="newton").fit(X, y)


def test_a_failed_evaluation_does_not_kill_the_fit(monkeypatch):
    from ggpm.learning.objective import Evidence

    real, calls = Evidence.evaluate, []

    def sometimes(self, *args, **kwargs):
        calls.append(1)
        if len(calls) in (2, 3):
            raise np.linalg.LinAlgError("made up")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Evidence, "evaluate", sometimes)
    X, y, _ = simulate("poisson", n=20)
    model = GGPRegressor("poisson", 1.0 * RBF(5.0)).fit(X, y)
    assert len(calls) > 4 and np.isfinite(model.log_marginal_likelihood_value_)


def test_verbose_reports_progress(capsys):
    X, y, _ = simulate("poisson", n=15)
    GGPRegressor("poisson", verbose=1).fit(X, y)
    assert "log evidence" in capsys.readouterr().err


def test_an_unconverged_mode_is_told():
    X, y, _ = simulate("dirichlet, exp", n=20)
    model = GGPRegressor(families.Dirichlet(link="exp"), inference=Laplace(max_iter=1), optimizer=None)
    with pytest.warns(ConvergenceWarning, match="mode"):
        model.fit(X, y)
    assert not model.converged_


def test_classifier_labels_and_two_classes():
    labels = np.array(["a", "b", "c"])[np.arange(20) % 3]
    model = GGPClassifier(RBF()).fit(X, labels)
    assert model.classes_.tolist() == ["a", "b", "c"] and model.family_.latent_dim == 3
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert set(model.predict(X)) <= {"a", "b", "c"}
    two = GGPClassifier(RBF()).fit(X, X[:, 0] > 0)
    assert two.family_.latent_dim == 1 and two.score(X, X[:, 0] > 0) > 0.8
    assert two.predict(X).dtype == bool
    density = model.log_predictive_density(X, labels)
    np.testing.assert_allclose(np.exp(density), model.predict_proba(X)[np.arange(20), np.arange(20) % 3], rtol=1e-6)
    with pytest.raises(ValueError, match="not seen in fit: z"):
        model.log_predictive_density(X[:1], ["z"])


def test_ordinal_order():
    y = np.array(["low", "mid", "high"])[(np.argsort(np.argsort(X[:, 0])) * 3 // 20)]
    model = GGPOrdinalClassifier(RBF(), order=["low", "mid", "high"]).fit(X, y)
    assert model.classes_.tolist() == ["low", "mid", "high"]
    assert model.score(X, y) > 0.6
    with pytest.raises(ValueError, match="lacks 'high'"):
        GGPOrdinalClassifier(order=["low", "mid"]).fit(X, y)
    with pytest.raises(ValueError, match="once"):
        GGPOrdinalClassifier(order=["low", "low", "mid", "high"]).fit(X, y)
    with pytest.warns(UserWarning, match="sorted alphabetically: high, low, mid"):
        GGPOrdinalClassifier(RBF(), optimizer=None).fit(X, y)
    spare = GGPOrdinalClassifier(RBF(), order=["low", "mid", "high", "top"]).fit(X, y)
    assert spare.predict_proba(X).shape == (20, 4)


def test_offset_is_exposure():
    """Doubling the exposure of a row and its offset leaves the rate: predictions scale with the exposure."""
    rng = np.random.default_rng(2)
    x = np.linspace(0, 3, 40)[:, None]
    exposure = rng.uniform(1, 20, 40)
    y = rng.poisson(exposure * np.exp(np.sin(x[:, 0])))
    model = GGPRegressor("poisson", ConstantKernel() * RBF()).fit(x, y, offset=np.log(exposure))
    rate = model.predict(x, offset=0)
    np.testing.assert_allclose(model.predict(x, offset=np.full(40, np.log(7.0))), 7 * rate, rtol=1e-6)
    assert np.corrcoef(rate, np.exp(np.sin(x[:, 0])))[0, 1] > 0.95
    with pytest.raises(ValueError, match="offset must have shape"):
        model.predict(x, offset=np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        model.fit(x, y, offset=np.full(40, -np.inf))


def test_trials_belong_to_counts():
    X, y, _ = simulate("multinomial", n=20)
    model = GGPRegressor("multinomial").fit(X, y)
    np.testing.assert_allclose(model.predict(X).sum(axis=1), 1.0)
    np.testing.assert_allclose(model.predict_dist(X, trials=10).mean().sum(axis=1), 10.0)
    assert model.sample_y(X, 5, trials=10).shape == (20, 3, 5)
    with pytest.raises(ValueError, match="trials"):
        GGPRegressor("poisson").fit(X, y[:, 0]).predict_dist(X, trials=3)
    with pytest.raises(ValueError, match="positive integers"):
        model.predict_dist(X, trials=0)


@pytest.mark.parametrize("name, family", [
    ("gaussian", "gaussian"), ("von_mises", "von_mises"), ("dirichlet", "dirichlet"), ("poisson", "poisson"),
    ("binomial", "binomial"), ("multinomial", "multinomial"), ("gamma", "gamma"), ("beta", "beta"),
])  # fmt: skip
def test_score_is_zero_for_the_best_constant_and_positive_for_a_fit(name, family, monkeypatch):
    X, y, _ = simulate(name, n=60)
    model = GGPRegressor(family).fit(X, y)
    assert 0.0 < model.score(X, y) <= 1.0
    predicted = model.predict(X)
    dist = model.predict_dist(X)
    monkeypatch.setattr(model, "predict_dist", lambda X, offset: dist)

    def score_of(row):
        monkeypatch.setattr(dist, "mean", lambda: np.broadcast_to(row, predicted.shape))
        return model.score(X, y)

    assert score_of(model.family_.constant(model.family_.encode(y))) == 0.0
    assert max(score_of(row) for row in predicted) < 0.0  # every other constant is worse


def test_gaussian_score_is_r_squared():
    from sklearn.metrics import r2_score

    X, y, _ = simulate("gaussian", n=40)
    model = GGPRegressor().fit(X, y)
    np.testing.assert_allclose(model.score(X, y), r2_score(y, model.predict(X)), rtol=1e-10)


def test_scorer_is_the_mean_log_density():
    X, y, _ = simulate("gamma", n=20)
    model = GGPRegressor("gamma").fit(X, y)
    assert log_predictive_density_scorer(model, X, y) == pytest.approx(model.log_predictive_density(X, y).mean())


def test_degrees_by_the_look_of_it():
    with pytest.warns(UserWarning, match='units="degrees"'):
        GGPRegressor("von_mises", optimizer=None).fit(X, np.linspace(0, 359, 20))


GOOD = {
    "poisson": np.arange(20.0), "dirichlet": np.full((20, 3), 1 / 3), "multinomial": np.ones((20, 3)),
    "binomial": np.ones((20, 2)), "gamma": np.ones(20), "beta": np.full(20, 0.5), "von_mises": np.zeros(20),
    "gaussian": np.zeros(20),
}  # fmt: skip


def replaced(family, row, value):
    y = GOOD[family].copy()
    y[row] = value
    return y


BAD = [
    ("poisson", replaced("poisson", 3, np.inf), "infinity"),
    ("gaussian", replaced("gaussian", 3, np.inf), "infinity"),
    ("poisson", replaced("poisson", 3, -1), "negative or fractional"),
    ("poisson", replaced("poisson", 3, 0.5), "offset=log"),
    ("multinomial", replaced("multinomial", 3, [0, 0, 0]), "positive total"),
    ("multinomial", replaced("multinomial", 3, [0.5, 1, 1]), "negative or fractional"),
    ("binomial", np.ones((20, 3)), "2 columns"),
    ("dirichlet", replaced("dirichlet", 3, [0.0, 0.5, 0.5]), "zero"),
    ("dirichlet", replaced("dirichlet", 3, [0.5, 0.5, 0.5]), "closure=True"),
    ("dirichlet", 100 * GOOD["dirichlet"], "closure=True"),
    ("dirichlet", replaced("dirichlet", 3, [-0.5, 0.5, 1.0]), "negative"),
    ("dirichlet", np.ones(20), "shape"),
    ("gamma", replaced("gamma", 3, 0.0), "positive"),
    ("beta", replaced("beta", 3, 1.0), "strictly between"),
    ("von_mises", np.zeros((20, 2)), "one number per row"),
    ("von_mises", np.array(["north"] * 20), "not numbers"),
    ("poisson", np.arange(7.0), "inconsistent"),
    ("no_such_family", GOOD["poisson"], "expected one of .*von_mises"),
]


@pytest.mark.parametrize("family, y, message", BAD, ids=[f"{f}: {m}" for f, _, m in BAD])
def test_bad_outputs_are_named(family, y, message):
    model = GGPRegressor(family)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_inputs_are_named(value):
    bad = X.copy()
    bad[2, 1] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        GGPRegressor("poisson").fit(bad, np.arange(20))
    model = GGPRegressor("poisson", optimizer=None).fit(X, np.arange(20))
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.predict(bad)


@pytest.mark.parametrize("phi", [0.0, -1.0, np.nan])
def test_phi_must_be_positive(phi):
    with pytest.raises(ValueError, match="phi of Gamma must be positive"):
        GGPRegressor(families.Gamma(phi=phi)).fit(X, np.ones(20))


def test_one_class_only():
    with pytest.raises(ValueError, match="at least two classes; got one class only"):
        GGPClassifier().fit(X, np.ones(20, dtype=int))


def test_family_class_instead_of_instance():
    with pytest.raises(TypeError, match=r"Try Poisson\(\)"):
        GGPRegressor(families.Poisson).fit(X, np.arange(20))


@pytest.mark.parametrize("setting", [{"inference": "mcmc"}, {"objective": "magic"}, {"inference": 3}])
def test_unknown_settings_are_named(setting):
    with pytest.raises((ValueError, TypeError), match="must be"):
        GGPRegressor("poisson", **setting).fit(X, np.arange(20))


def test_a_failed_fit_changes_nothing():
    fresh = GGPRegressor("poisson")
    before = copy.copy(vars(fresh))
    with pytest.raises(ValueError):
        fresh.fit(X, -np.ones(20))
    assert vars(fresh) == before
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    fitted = GGPRegressor("poisson", optimizer=None).fit(X, np.arange(20))
    prediction = fitted.predict(X)
    with pytest.raises(ValueError):
        fitted.fit(X[:, :1], -np.ones(20))
    np.testing.assert_array_equal(fitted.predict(X), prediction)


def test_clone_and_params():
    model = GGPRegressor(families.NegativeBinomial(phi=2.0), 1.0 * RBF(3.0), inference="taylor")
    other = clone(model)
    assert other.get_params()["family__phi"] == 2.0
    assert other.set_params(family__phi=3.0).family.phi == 3.0 and model.family.phi == 2.0


def test_one_row_and_duplicate_rows():
    GGPRegressor("poisson", optimizer=None).fit(X[:1], [3]).predict(X[:1])
    same = np.repeat(X[:1], 20, axis=0)
    model = GGPRegressor("poisson").fit(same, np.full(20, 7))
    np.testing.assert_allclose(model.predict(same[:1]), 7, rtol=0.2)


def test_the_default_kernel_does_not_take_waves_for_noise():
    """From the median distance alone the search ends at a constant here."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 10, 60))[:, None]
    wave = np.sin(3 * x[:, 0])
    assert GGPRegressor().fit(x, wave + 0.1 * rng.normal(size=60)).score(x, wave) > 0.95
    counts = rng.poisson(np.exp(3 + wave))
    assert GGPRegressor("poisson").fit(x, counts).score(x, counts) > 0.8


def test_score_where_nothing_varies():
    model = GGPRegressor("poisson", optimizer=None).fit(X, np.arange(20))
    assert model.score(X[:3], [1, 1, 1]) == 0.0


def test_labels_and_order_must_be_of_one_type():
    with pytest.raises(ValueError, match="of the same type"):
        GGPOrdinalClassifier(order=["1", "2"]).fit(X, np.arange(20) % 2 + 1)


def test_codes_with_large_gaps_are_refused():
    for family in ("categorical", "ordinal"):
        with pytest.raises(ValueError, match="GGPClassifier"):
            GGPRegressor(family).fit(X, np.array([0, 10**6] * 10))


@pytest.mark.parametrize("answer", [np.array([np.nan, 0.0]), np.zeros(1)])
def test_an_optimizer_that_returns_nonsense_is_named(answer):
    with pytest.raises(ValueError, match="2 finite numbers"):
        GGPRegressor("poisson", 1.0 * RBF(1.0), optimizer=lambda f, x, b: (answer, 0.0)).fit(X, np.arange(20))


def test_gaussian_outputs_far_from_order_one_are_told():
    with pytest.warns(UserWarning, match="Standardise y"):
        GGPRegressor(families.Gaussian(phi=1.0), optimizer=None).fit(X, 1e-3 * X[:, 0])


@pytest.mark.parametrize("inducing", [None, 4])
def test_warnings_about_y_show_the_line_of_the_user(inducing):
    x = np.arange(8.0)[:, None]
    with pytest.warns(UserWarning, match="sorted alphabetically") as caught:
        GGPOrdinalClassifier(RBF(), optimizer=None, inducing=inducing).fit(x, ["a", "b"] * 4)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="more than 2 pi") as caught:
        GGPRegressor("von_mises", kernel=RBF(), optimizer=None, inducing=inducing).fit(x, 10.0 * x[:, 0])
    assert caught[0].filename == __file__


def test_bounds_may_be_an_array():
    model = GGPRegressor(families.Gaussian(phi_bounds=np.array([1e-3, 10.0]))).fit(X, X[:, 0])
    assert 1e-3 <= model.family_.phi <= 10.0


def test_hyperparameters_at_a_bound_are_told_by_name():
    x = np.linspace(0, 1, 30)[:, None]
    wave = np.sin(6 * x[:, 0])
    with pytest.warns(ConvergenceWarning, match=r"k2__length_scale at its lower bound 0\.5") as caught:
        GGPRegressor(kernel=1.0 * RBF(1.0, (0.5, 10.0))).fit(x, wave)
    assert caught[0].filename == __file__  # the line shown is the user's
    with pytest.warns(ConvergenceWarning, match=r"phi at its lower bound \(phi_bounds=\(0\.01, "):
        GGPRegressor(families.Gaussian(phi=0.1, phi_bounds=(0.01, 1.0))).fit(x, wave)
    with pytest.warns(ConvergenceWarning, match=r"constant_value at its upper bound 0\.5"):
        GGPRegressor(kernel=ConstantKernel(0.1, (0.01, 0.5)) * RBF(), inducing=10, random_state=0).fit(x, 3 * wave)


def test_a_feature_that_does_not_matter_is_no_news():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = GGPRegressor("poisson", RBF([1.0, 1e5])).fit(X, rng.poisson(np.exp(np.sin(2 * X[:, 0]))))
    np.testing.assert_allclose(model.kernel_.length_scale[1], 1e5)


def test_a_parameter_that_does_not_vary_is_no_news():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = GGPRegressor("gaussian_mean_scale", [1.0 * RBF(), 4.0 * RBF(1e5)]).fit(X, y)
    np.testing.assert_allclose(model.fit_.kernels[1].k2.length_scale, 1e5)
    with pytest.warns(
        ConvergenceWarning, match="1__k2__length_scale at its upper bound 10"
    ):  # a bound of the user's own
        GGPRegressor("gaussian_mean_scale", [1.0 * RBF(), 4.0 * RBF(10.0, (0.1, 10.0))]).fit(X, y)


def test_the_length_scale_of_a_function_that_is_not_there_is_no_news():
    """A dispersion that does not vary has no length scale; that of latent white noise is at its lower bound."""
    X, y, family = simulate("negative_binomial_mean_dispersion", n=50, seed=178)
    kernel = ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(1.0, "fixed")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = GGPRegressor(family, kernel).fit(X, y)
    np.testing.assert_allclose(np.exp(model.theta_[2:]), 1e-5)  # variance and length scale
    rough = np.random.default_rng(0).poisson(np.where(np.arange(60) % 2, 40.0, 2.0))
    with pytest.warns(ConvergenceWarning, match="k1__k2__length_scale at its lower bound"):
        GGPRegressor("poisson", ConstantKernel() * RBF(1e-5) + ConstantKernel(9.0, "fixed")).fit(
            np.linspace(0, 1, 60)[:, None], rough
        )


@pytest.mark.parametrize("name", ["gaussian", "poisson", "negative_binomial", "von_mises", "beta", "ordinal"])
def test_ordinary_fits_do_not_warn(name):
    """Also not where the intercept or the overdispersion goes to its lower bound, because it is not needed."""
    X, y, _ = simulate(name, n=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        GGPRegressor(name).fit(X, y)
        model = GGPRegressor(name, ConstantKernel() * RBF() + ConstantKernel(), inference="laplace").fit(X, y)
    if name == "negative_binomial":
        np.testing.assert_allclose(model.theta_[2], model.fit_.evidence.bounds[2, 0])  # the intercept did go there


def test_a_fit_does_not_keep_the_distances_between_rows():
    model = GGPRegressor("poisson", optimizer=None).fit(np.arange(8.0)[:, None], np.arange(8))
    process, field = model.fit_.found.process, model.fit_.evidence.field
    assert process.distances is None and not process.evaluations and "distances" not in vars(field)


def test_the_learned_theta_is_the_users_own():
    model = GGPRegressor("poisson").fit(np.arange(8.0)[:, None], np.arange(8))
    before = model.fit_.theta.copy()
    model.theta_ += 1.0
    np.testing.assert_array_equal(model.fit_.theta, before)


def test_an_unknown_optimizer_is_told_even_with_nothing_to_learn():
    with pytest.raises(ValueError, match="optimizer must be"):
        GGPRegressor("poisson", RBF(1.0, "fixed"), optimizer="nonsense").fit(np.arange(8.0)[:, None], np.arange(8))
