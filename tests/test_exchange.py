"""What others make of our models: ArviZ's functions on our draws, scoring rules, scikit-learn's inspection."""

import warnings
from inspect import signature

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import ggpm
from cases import simulate
from ggpm import GGPClassifier, GGPRegressor, families
from ggpm.prediction.exchange import own_draws

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # of its next edition
    arviz = pytest.importorskip("arviz")

FIRST = "posterior" in signature(arviz.from_dict).parameters  # before version 1, which names things otherwise
KERNEL = ConstantKernel(1.0) * RBF(1.0)


def groups_of(data):
    return set(data.groups() if FIRST else data.children)


def pointwise_loo(data):
    """ArviZ's leave-one-out: its object, total and effective parameters."""
    told = arviz.loo(data, pointwise=True)
    return (told, told.elpd_loo, told.p_loo) if FIRST else (told, told.elpd, told.p)


def table_of(found):
    """ArviZ's comparison by stacking, unrounded; ``worse`` by how much a model is worse, which had no sign at first."""
    table = arviz.compare(found, method="stacking", **({} if FIRST else {"round_to": "none"}))
    return table.assign(worse=table.elpd_diff if FIRST else -table.elpd_diff)


@pytest.mark.parametrize(
    "name", ["gaussian", "poisson", "von_mises", "dirichlet", "categorical", "ordinal", "binomial", "multinomial",
             "von_mises_fisher", "beta", "multivariate_gaussian"]
)  # fmt: skip
def test_every_kind_of_output_has_all_groups(name):
    X, y, family = simulate(name, n=15, seed=0)
    model = GGPRegressor(family, KERNEL, optimizer=None, inference="laplace").fit(X, y)
    data = model.to_arviz(draws=50, chains=2)
    assert groups_of(data) == {
        "posterior", "posterior_predictive", "log_likelihood", "observed_data", "constant_data",
    }  # fmt: skip
    assert data.posterior_predictive["y"].shape == (2, 50, *data.observed_data["y"].shape)
    problem = model.fit_.approximate().process.problem
    eta = data.posterior["eta"].values.reshape(100, 15, -1)
    expected = problem.family.log_prob(eta, problem.y)
    np.testing.assert_allclose(data.log_likelihood["y"].values.reshape(100, 15), expected)
    assert arviz.summary(data, var_names=["eta"]).shape[0] == 15 * family.latent_dim


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (80, 2))
    y = rng.poisson(np.exp(1.5 + np.sin(X[:, 0])))
    frame = pd.DataFrame(X, columns=["a", "eta"])
    # smooth enough for ArviZ's importance sampling, which rows that follow their own y are too much for (its k̂)
    kernel = ConstantKernel(1.0) * RBF(2.0) + ConstantKernel(1.0)
    members = ("poisson", families.NegativeBinomial(phi=0.5, phi_bounds="fixed"))
    fitted = [GGPRegressor(family, kernel, optimizer=None).fit(frame, y) for family in members]
    return dict(zip(("poisson", "negative_binomial"), fitted)), frame, y


def test_loo_of_arviz_is_ours(models):
    """Its importance sampling from our draws against our cavities: both leave one row out at held hyperparameters."""
    found, ours = {}, {}
    for name, model in models[0].items():
        data = model.to_arviz(draws=2000)
        told, total, effective = pointwise_loo(data)
        ours[name] = model.loo()
        found[name] = data
        assert abs(total - ours[name].total) < 0.1 * told.se
        assert abs(effective - ours[name].effective_parameters) < 0.1 * ours[name].effective_parameters + 0.5
    table, own = table_of(found), ggpm.compare(models[0])
    assert table.index.tolist() == own.index.tolist()
    np.testing.assert_allclose(table.weight, own.weight, atol=0.05)
    assert abs(table.worse.iloc[1] + own.difference.iloc[1]) < 0.1 * own.difference_se.iloc[1]


def test_weights_of_compare_are_those_of_arviz_for_the_same_densities(models):
    loos = {name: model.loo() for name, model in models[0].items()}
    straight = GGPRegressor("poisson", ConstantKernel(1.0) * RBF(100.0), optimizer=None).fit(models[1], models[2])
    loos["straight"] = straight.loo()
    theirs, draws = {}, np.random.default_rng(0).normal(size=(2, 20, 80))  # of which nothing is left below
    for name, loo in loos.items():
        groups = {"posterior": {"a": np.zeros((2, 20))}, "log_likelihood": {"y": draws}}
        told, *_ = pointwise_loo(arviz.from_dict(**groups) if FIRST else arviz.from_dict(groups))
        told["loo_i" if FIRST else "elpd_i"].values[:] = loo.pointwise
        told["elpd_loo" if FIRST else "elpd"] = loo.total
        theirs[name] = told
    table, own = table_of(theirs), ggpm.compare(loos)
    np.testing.assert_allclose(own.weight.loc[table.index], table.weight, atol=1e-3)
    np.testing.assert_allclose(own.difference.loc[table.index], -table.worse, atol=1e-9)
    # ArviZ divides by n where we divide by n - 1
    np.testing.assert_allclose(own.difference_se.loc[table.index], table.dse * np.sqrt(80 / 79), atol=1e-9)


def test_pictures_and_checks_of_arviz_take_it(models):
    import matplotlib.pyplot as plt

    model, frame, y = models[0]["poisson"], models[1], models[2]
    data = model.to_arviz(draws=100)
    assert data.attrs["family"] == "Poisson" and set(data.constant_data) == {"a", "x_eta"}
    np.testing.assert_array_equal(data.constant_data["a"], frame["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if FIRST:
            arviz.plot_ppc(data)
            arviz.plot_loo_pit(data, y="y")
            arviz.plot_bpv(data)
            assert np.isfinite(arviz.waic(data).elpd_waic)
            assert 0 < arviz.r2_score(y, data.posterior_predictive["y"].values.reshape(-1, 80))["r2"] < 1
        else:
            arviz.plot_ppc_dist(data)
            arviz.plot_loo_pit(data)
            arviz.plot_ppc_tstat(data)
            assert 0 < arviz.residual_r2(data, pred_mean="mean", obs_name="y").mean < 1
    plt.close("all")
    new = model.to_arviz(frame.iloc[:7], y[:7], draws=30)
    assert new.log_likelihood["y"].shape == (4, 30, 7)
    assert "log_likelihood" not in groups_of(model.to_arviz(frame.iloc[:7], draws=30))


def test_classes_weights_and_offsets():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(20, 1))
    labels = np.array(["no", "yes"])[(X[:, 0] > rng.uniform(size=20)).astype(int)]
    data = GGPClassifier(optimizer=None).fit(X, labels).to_arviz(draws=20)
    assert data.attrs["classes"] == "no, yes" and set(np.unique(data.observed_data["y"])) == {0, 1}
    y = rng.poisson(5.0, 20)
    model = GGPRegressor("poisson", optimizer=None).fit(X, y, rng.uniform(1, 3, 20), offset=np.full(20, np.log(5.0)))
    data = model.to_arviz(draws=500)
    mean, cov = model.predict_latent(X, offset=np.log(5.0))
    error = 5 * np.sqrt(cov.max() / 2000)
    np.testing.assert_allclose(data.posterior["eta"].mean(("chain", "draw")), mean, atol=error)
    np.testing.assert_allclose(data.observed_data["y"], y)


def test_censored_rows_have_their_bounds():
    X = np.arange(6.0)[:, None]
    y = np.array([[1.0, 1.0], [2.0, np.inf], [0.0, 0.5], [1.0, 3.0], [2.0, 2.0], [3.0, 3.0]])
    model = GGPRegressor(families.Censored(families.Gamma()), KERNEL, optimizer=None, inference="laplace").fit(X, y)
    data = model.to_arviz(draws=5, chains=2)
    told = data.observed_data
    np.testing.assert_array_equal(told["y"], [1.0, np.nan, np.nan, np.nan, 2.0, 3.0])
    np.testing.assert_array_equal(np.stack([told["y_lower"], told["y_upper"]], axis=1), y)
    assert np.isfinite(data.log_likelihood["y"]).all()


def test_columns_beside_names_of_ours_are_all_there():
    table = pd.DataFrame({"y": np.arange(6.0), "x_y": np.arange(6.0) ** 2, "a": 1.0})
    model = GGPRegressor("poisson", KERNEL, optimizer=None, inference="laplace").fit(table, np.arange(6))
    inputs = model.to_arviz(draws=5).constant_data
    np.testing.assert_array_equal([inputs["x_x_y"], inputs["x_y"], inputs["a"]], table.to_numpy().T)


def test_rows_that_do_not_go_together_are_refused(models):
    model = models[0]["poisson"]
    with pytest.raises(ValueError, match="y and offset go with X"):
        model.to_arviz(y=[1, 2])
    with pytest.raises(ValueError, match="same rows; got 3 and 2"):
        model.to_arviz(models[1][:3], [1, 2])


def test_draws_at_training_rows_have_the_posterior_covariance():
    """By a root of the covariance, by Matheron's rule, and by the sparse factor of a neighbours field."""
    import ggpm.prediction.exchange as exchange

    X, y, family = simulate("poisson", n=12, seed=0)
    kernel = KERNEL + WhiteKernel(0.3)
    a = GGPRegressor(family, kernel, optimizer=None, inference="laplace").fit(X, y).fit_.approximate()
    V = a.q.solution.sensitivity().covariance().reshape(12, 12)
    near = GGPRegressor(family, kernel, optimizer=None, inference="laplace", neighbours=11).fit(X, y)
    rng, size = np.random.default_rng(0), 20000
    ways = [own_draws(a, size, rng), own_draws(near.fit_.approximate(), size, rng)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "EXPLICIT_MOST", 0)
        ways.append(own_draws(a, size, rng))
    for draws in ways:
        found = np.cov(draws[..., 0].T)
        # entries of a Wishart matrix have standard errors of at most sqrt(2 / size) times the largest variance
        np.testing.assert_allclose(found, V, atol=5 * np.sqrt(2 / size) * V.max())
        np.testing.assert_allclose(draws[..., 0].mean(axis=0), a.q.mean[:, 0], atol=5 * np.sqrt(V.max() / size))


def test_models_without_rows_ask_for_them():
    X, y, family = simulate("poisson", n=20, seed=0)
    model = GGPRegressor(family, KERNEL, optimizer=None, inducing=5).fit(X, y)
    with pytest.raises(ValueError, match=r"pass them, to_arviz\(X, y\)"):
        model.to_arviz()
    assert model.to_arviz(X, y, draws=10).log_likelihood["y"].shape == (4, 10, 20)
    with pytest.raises(ValueError, match="draws"):
        model.to_arviz(X, y, draws=0)


# ---- scores ----------------------------------------------------------------------------------------------------------
LOGS = {
    "gaussian": (families.Gaussian(phi=0.7), lambda sr, y, f: sr.logs_normal(y, f, np.sqrt(0.7))),
    "poisson": (families.Poisson(), lambda sr, y, f: sr.logs_poisson(y, np.exp(f))),
    "gamma": (families.Gamma(phi=0.5), lambda sr, y, f: sr.logs_gamma(y, 2.0, 2.0 / np.exp(f))),
    "negative_binomial": (
        families.NegativeBinomial(phi=0.5), lambda sr, y, f: sr.logs_negbinom(y, 2.0, 2.0 / (2.0 + np.exp(f))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_log_densities_are_the_log_scores_of_scoringrules(name):
    """Where the latent is known exactly, the predictive distribution is the family itself."""
    scoringrules = pytest.importorskip("scoringrules")
    family, score = LOGS[name]
    rng = np.random.default_rng(0)
    f = rng.normal(size=8)
    y = np.array([0.0, 1, 2, 3, 5, 8, 1, 4]) if family.support.integer else rng.gamma(2.0, size=8)
    family = family.resolve(y)
    found = ggpm.Predictive(family, f[:, None], np.zeros((8, 1, 1))).log_prob(y)
    np.testing.assert_allclose(found, -np.asarray(score(scoringrules, y, f)), rtol=1e-7)


def test_mixtures_of_normals_are_the_log_scores_of_scoringrules():
    """Gaussian rows with an uncertain latent: normal with the sum of the variances."""
    scoringrules = pytest.importorskip("scoringrules")
    y, f, v = np.array([0.3, -1.0, 4.0]), np.array([0.0, 1.0, 2.0]), np.array([0.1, 1.0, 3.0])
    found = ggpm.Predictive(families.Gaussian(phi=0.7).resolve(y), f[:, None], v[:, None, None]).log_prob(y)
    np.testing.assert_allclose(found, -scoringrules.logs_normal(y, f, np.sqrt(v + 0.7)), rtol=1e-9)


# ---- inspection ------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def wind():
    """Directions about north, which arithmetic averages turn south; the second column says nothing."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-1, 1, (80, 2)), columns=["front", "nothing"])
    y = np.mod(40 * X["front"].to_numpy() + 8 * rng.normal(size=80), 360.0)
    kernel = ConstantKernel(30.0) * RBF(1.0)
    return GGPRegressor(families.VonMises(units="degrees"), kernel, inference="laplace").fit(X, y), X, y


def test_partial_dependence_of_angles_does_not_turn_north_into_south(wind):
    from sklearn.inspection import partial_dependence as plain

    from ggpm.prediction.importance import partial_dependence

    model, X, _ = wind
    ours = partial_dependence(model, X, "front", grid=[-0.5, 0.0, 0.5])["mean"]
    off = np.mod(ours - np.array([-20.0, 0.0, 20.0]) + 180, 360) - 180
    assert np.all(np.abs(off) < 6)
    pytest.importorskip("sklearn", "1.7", reason="custom_values came with scikit-learn 1.7")
    theirs = plain(model, X, ["front"], custom_values={"front": np.array([0.0])}, kind="average")["average"].ravel()
    assert 60 < theirs[0] < 300  # the documentation says not to use it for angles


def test_permutation_importance_of_scikit_learn_is_right_for_angles(wind):
    """It shuffles columns and asks for scores, which know that angles are a circle: nothing is averaged."""
    from sklearn.inspection import permutation_importance

    model, X, y = wind
    for scoring in (None, ggpm.log_predictive_density_scorer):
        found = permutation_importance(model, X, y, n_repeats=3, random_state=0, scoring=scoring).importances_mean
        assert found[0] > 0.3 and abs(found[1]) < 0.05
    ours = ggpm.importance(model, X, y, how="shuffle", repeats=3)
    np.testing.assert_allclose(ours.loc[["front", "nothing"], "cost"], found, atol=0.3 * found[0])


def test_partial_dependence_of_compositions_and_labels():
    from sklearn.inspection import partial_dependence as plain

    from ggpm.prediction.importance import partial_dependence

    X, y, family = simulate("dirichlet", n=30, seed=0)
    model = GGPRegressor(family, KERNEL, optimizer=None, inference="laplace").fit(X, y)
    ours = partial_dependence(model, X, 0, n=5)
    np.testing.assert_allclose(ours.sum(axis=1), 1.0)
    pytest.importorskip("sklearn", "1.7", reason="custom_values came with scikit-learn 1.7")
    theirs = plain(model, X, [0], custom_values={0: ours.index.to_numpy()}, kind="average")["average"]
    np.testing.assert_allclose(theirs.T, ours, atol=1e-9)  # arithmetic means are right for compositions
    frame = pd.DataFrame({"where": list("aab") * 10, "x": X[:, 0]})
    classes = GGPClassifier(optimizer=None).fit(frame, np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)])
    table = partial_dependence(classes, frame, "where")
    assert table.index.tolist() == ["a", "b"] and table.columns.tolist() == ["no", "yes"]
    assert partial_dependence(classes, frame, "where", grid=["b"]).loc["b"].tolist() == table.loc["b"].tolist()
    with pytest.raises(ValueError, match="no column 'wher'"):
        partial_dependence(classes, frame, "wher")
