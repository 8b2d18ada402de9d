"""Terms add up, joint draws have the posterior's covariance, and what people ask of predictions has right answers."""

import copy

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, vonmises
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

import ggpm
from cases import kernels, simulate
from ggpm import GGPClassifier, GGPRegressor, Predictive, plotting
from ggpm.families import Gaussian, Poisson, VonMises
from ggpm.kernels import Category, Cyclic, On
from ggpm.prediction import paths
from ggpm.prediction import terms as module
from ggpm.prediction.terms import joint_covariance, joint_draws

KERNEL = 1.3 * On(RBF(0.8), 0) + 0.7 * On(RBF(1.5), 1) + 0.3 * On(RBF(0.8), 0) * On(RBF(1.0), 1) + ConstantKernel(0.4)


@pytest.mark.parametrize("name", ["poisson", "dirichlet", "von_mises", "multivariate_gaussian"])
@pytest.mark.parametrize("inducing", [None, 9])
def test_terms_add_up_to_the_latent(name, inducing):
    X, y, family = simulate(name, n=20)
    new = X[:6] + 0.1
    D = family.resolve(y).latent_dim
    lists = [KERNEL] if D == 1 else [KERNEL, [KERNEL if j else kernels(1, True) for j in range(D)]]
    for kernel in lists:
        model = GGPRegressor(family, kernel, optimizer=None, inducing=None if inducing is None else X[:inducing])
        offset = np.linspace(-0.3, 0.3, 20)
        found = model.fit(X, y, offset=offset).terms(new)
        mean, cov = model.predict_latent(new, offset=0)
        total = np.sum([m for m, _ in found.values()], axis=0)
        np.testing.assert_allclose(total, mean, atol=1e-9 * max(1.0, np.abs(mean).max()))
        assert all(m.shape == sd.shape == (6, D) for m, sd in found.values())
        assert len(set(found)) == len(found)
    # the sum of all terms has the variance of the latent: one term that is the whole kernel
    whole = module.terms(_one_term(model.posterior_), new)
    whole_sd = np.sum([sd for _, sd in whole.values()], axis=0)  # of each latent one of them is there, others are zero
    np.testing.assert_allclose(whole_sd**2, np.einsum("mjj->mj", cov), atol=1e-8 * max(1.0, np.abs(cov).max()))


def _one_term(posterior):
    """The same posterior whose kernels are products, and so single terms."""
    other = copy.copy(posterior)
    object.__setattr__(other, "kernels", [ConstantKernel(1.0) * kernel for kernel in posterior.kernels])
    return other


def test_terms_are_the_additive_model():
    """Gaussian regression: each term's posterior against the joint Gaussian of (f_s(x*), y), done by hand."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(0, 4, (15, 2)), rng.uniform(0, 4, (5, 2))
    y = np.sin(X[:, 0]) + X[:, 1]
    first, second = 1.5 * On(RBF(1.0), 0), 0.8 * On(RBF(2.0), 1)
    model = GGPRegressor(Gaussian(phi=0.2, phi_bounds="fixed"), first + second, optimizer=None).fit(X, y)
    K = first(X) + second(X) + 0.2 * np.eye(15)
    for name, kernel in (("RBF(0)", first), ("RBF(1)", second)):
        mean, sd = model.terms(new)[name]
        cross = kernel(new, X)
        np.testing.assert_allclose(mean[:, 0], cross @ np.linalg.solve(K, y), rtol=1e-9)
        variance = kernel.diag(new) - np.einsum("ij,ij->i", cross, np.linalg.solve(K, cross.T).T)
        np.testing.assert_allclose(sd[:, 0], np.sqrt(variance), rtol=1e-8)
    shares = model.term_shares(X)
    assert shares.index.tolist() == ["RBF(0)", "RBF(1)"] and shares.sum().round(12).tolist() == [1.0]


def test_a_constant_has_no_share_however_its_mean_is_rounded():
    X = np.random.default_rng(0).uniform(size=(70, 2))
    model = GGPRegressor("gaussian", RBF() + ConstantKernel(), optimizer=None).fit(X, np.sin(9 * X[:, 0]))
    assert model.term_shares(X)[0].to_dict() == {"RBF": 1.0, "constant": 0.0}


def test_names_of_terms_are_unique():
    kernel = RBF() + 2.0 * RBF() + On(RBF(), ["a", "b"]) * Category("g") + WhiteKernel() + ConstantKernel()
    assert module.term_names(kernel) == ["RBF", "RBF (2)", "RBF(a, b) × Category(g)", "noise", "constant"]


# ---- joint draws -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("inducing", [None, 8])
@pytest.mark.parametrize("name", ["poisson", "dirichlet", "multivariate_gaussian"])
def test_joint_covariances_are_those_of_dense_algebra(name, inducing):
    X, y, family = simulate(name, n=14)
    D = family.resolve(y).latent_dim
    points = None if inducing is None else X[:inducing]
    kernel = kernels(D, False)
    model = GGPRegressor(family, kernel, optimizer=None, inducing=points).fit(X, y)
    new, p = X[:5] + 0.2, model.posterior_
    found = joint_covariance(p, new)
    for i in range(5):
        np.testing.assert_allclose(found[i, :, i], p.latent(new)[1][i], atol=1e-9)
    if inducing is None:
        # V* = K** - K*^T (K + W)^-1 K* with everything of order nD written out
        ks = kernel if isinstance(kernel, list) else [kernel] * D
        U = np.zeros((14, D, 14, D))
        for i, block in enumerate(p.U.dense()):
            U[i, :, i] = block
        U = U.reshape(14 * D, -1)
        K, cross, prior = (np.zeros((a, D, b, D)) for a, b in ((14, 14), (14, 5), (5, 5)))
        for j, k in enumerate(ks):
            K[:, j, :, j], cross[:, j, :, j], prior[:, j, :, j] = k(X), k(X, new), k(new)
        K, cross, prior = K.reshape(14 * D, -1), cross.reshape(14 * D, -1), prior.reshape(5 * D, -1)
        V = prior - cross.T @ np.linalg.solve(np.eye(14 * D) + U @ K, U @ cross)
        np.testing.assert_allclose(found.reshape(5 * D, -1), V, atol=1e-9)


def test_draws_have_the_joint_covariance_by_both_ways(monkeypatch):
    X, y, family = simulate("dirichlet", n=14)
    model = GGPRegressor(family, kernels(3, True), inference="variational", optimizer=None).fit(X, y)
    new = X[:4] + 0.1
    mean, cov = model.posterior_.latent(new)[0], joint_covariance(model.posterior_, new).reshape(12, 12)
    size = 20_000
    for most in (1000, 0):
        monkeypatch.setattr(module, "EXPLICIT_MOST", most)
        draws = joint_draws(model.posterior_, new, size if most else 4000, np.random.default_rng(0)).reshape(-1, 12)
        error = 5 * np.sqrt(2 * np.outer(np.diag(cov), np.diag(cov)).max() / len(draws))
        np.testing.assert_allclose(np.cov(draws.T), cov, atol=error)
        np.testing.assert_allclose(draws.mean(axis=0), mean.ravel(), atol=5 * np.sqrt(cov.max() / len(draws)))


@pytest.mark.parametrize("inducing", [None, 9])
@pytest.mark.parametrize("noise", [False, True])
def test_paths_have_the_joint_covariance_without_a_matrix_of_all_rows(inducing, noise, monkeypatch):
    """Pathwise conditioning on draws of the prior from single columns of its matrix, noise of rows apart."""
    X, y, family = simulate("von_mises", n=14)
    kernel = 1.3 * On(RBF(0.8), 0) + 0.7 * On(RBF(1.5), 1) + ConstantKernel(0.2)
    kernel = kernel + WhiteKernel(0.1) if noise else kernel
    points = None if inducing is None else X[:inducing]
    model = GGPRegressor(family, kernel, inference="laplace", optimizer=None, inducing=points).fit(X, y)
    new = X[:4] + 0.1
    p = model.posterior_
    mean, cov = p.latent(new)[0], joint_covariance(p, new).reshape(8, 8)
    monkeypatch.setattr(module, "EXPLICIT_MOST", 0)
    monkeypatch.setattr(paths, "WHOLE_MOST", 0)
    draws = joint_draws(p, new, 4000, np.random.default_rng(0)).reshape(-1, 8)
    error = 5 * np.sqrt(2 * np.outer(np.diag(cov), np.diag(cov)).max() / len(draws))
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=error)
    np.testing.assert_allclose(draws.mean(axis=0), mean.ravel(), atol=5 * np.sqrt(cov.max() / len(draws)))


def test_many_rows_are_drawn_together_or_refused(monkeypatch):
    X = np.linspace(0, 5, 40)[:, None]
    model = GGPRegressor("gaussian", 1.0 * RBF(1.0), optimizer=None).fit(X, np.sin(X[:, 0]))
    many = np.linspace(0, 5, 5000)[:, None]
    draws = model.sample_y(many, 50)
    assert draws.shape == (5000, 50)
    some = np.arange(0, 5000, 500)
    cov = joint_covariance(model.posterior_, many[some])[:, 0, :, 0] + model.family_.phi * np.eye(10)
    np.testing.assert_allclose(draws[some].std(axis=1), np.sqrt(np.diag(cov)), rtol=0.5)  # of 50 draws
    root = paths.prior_draws(1.0 * RBF(1.0), many).root
    assert root.shape[1] < 40  # columns of 5000
    np.testing.assert_allclose(root[some] @ root[some].T, RBF(1.0)(many[some]), atol=2e-10)
    monkeypatch.setattr(paths, "COLUMNS_MOST", 100)
    rough = GGPRegressor("gaussian", 1.0 * Matern(1.0, nu=0.5), optimizer=None).fit(X, np.sin(X[:, 0]))
    with pytest.raises(ValueError, match="too many for so rough a kernel"):
        rough.sample_y(many, 2)


def test_totals_come_out_right():
    """The spread of a sum over rows is that of the joint distribution, not of independent rows."""
    X = np.linspace(0, 1, 30)[:, None]
    model = GGPRegressor(Gaussian(phi=1e-4, phi_bounds="fixed"), RBF(2.0), optimizer=None).fit(X[:2], [0.0, 0.1])
    far = X + 5.0
    joint = model.sample_y(far, 4000).sum(axis=0).std()
    cov = joint_covariance(model.posterior_, far)[:, 0, :, 0]
    np.testing.assert_allclose(joint, np.sqrt(cov.sum()), rtol=0.05)
    assert model.sample_y(far, 4000, joint=False).sum(axis=0).std() < 0.3 * joint
    counts = GGPRegressor("poisson", RBF(2.0), optimizer=None).fit(X, np.arange(30) % 4, offset=np.full(30, 0.5))
    assert counts.sample_y(X, 7, offset=0).shape == (30, 7)
    labels = GGPClassifier(optimizer=None).fit(X, np.where(X[:, 0] > 0.5, "a", "b"))
    assert set(labels.sample_y(X, 3).ravel()) <= {"a", "b"}


# ---- update ----------------------------------------------------------------------------------------------------------
def test_rows_are_added_without_learning_anew():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(0, 5, 30), "g": rng.choice(["a", "b"], 30)})
    frame.loc[25:, "g"] = "c"
    y = rng.poisson(3.0, 30)
    kernel = 1.0 * On(RBF(), "x") + 1.0 * Category("g")
    model = GGPRegressor("poisson", kernel).fit(frame[:20], y[:20], offset=np.full(20, 0.2))
    theta = model.theta_
    weight = np.linspace(0.5, 2.0, 10)
    model.update(frame[20:], y[20:], weight, offset=np.full(10, 0.2))
    np.testing.assert_array_equal(model.theta_, theta)
    assert model.fit_.columns.members[1].labels == ("a", "b", "c")
    whole = GGPRegressor("poisson", model.kernel_, optimizer=None)
    whole.fit(frame, y, np.concatenate([np.ones(20), weight]), offset=np.full(30, 0.2))
    np.testing.assert_allclose(model.predict(frame, offset=0), whole.predict(frame, offset=0), rtol=1e-8)
    assert model.log_marginal_likelihood_value_ == pytest.approx(whole.log_marginal_likelihood_value_, rel=1e-10)
    sparse = GGPRegressor("poisson", kernel, inducing=5, optimizer=None).fit(frame, y)
    with pytest.raises(ValueError, match="update needs all training rows"):
        sparse.update(frame, y)


# ---- questions -------------------------------------------------------------------------------------------------------
def test_probabilities_of_ranges_and_arcs():
    m, v = np.array([[0.4], [1.2]]), np.array([[[0.3]], [[0.05]]])
    normal = Predictive(Gaussian(phi=0.2).resolve(np.zeros(3)), m, v)
    sd = np.sqrt(v[:, 0, 0] + 0.2)
    expected = norm.cdf(2.0, m[:, 0], sd) - norm.cdf([0.0, 1.0], m[:, 0], sd)
    np.testing.assert_allclose(normal.probability([0.0, 1.0], 2.0), expected, rtol=1e-10)
    counts = Predictive(Poisson(), m, v)
    several = np.exp(np.stack([counts.log_prob([k, k]) for k in (2, 3, 4)])).sum(axis=0)
    np.testing.assert_allclose(counts.probability(2, 4.5), several, rtol=1e-6)
    np.testing.assert_allclose(counts.probability(-5, np.inf), 1.0)
    for question in (counts.log_prob, counts.cdf):
        np.testing.assert_array_equal(question(2), question([2, 2]))  # one value for all rows
    with pytest.raises(ValueError, match="low must not lie above high"):
        counts.probability(3, 2)
    angles = Predictive(VonMises(units="degrees"), np.array([[9.0, 0.0]]), 1e-12 * np.eye(2)[None])
    inside = vonmises.cdf(np.deg2rad(20), 9.0) - vonmises.cdf(np.deg2rad(-10), 9.0)
    np.testing.assert_allclose(angles.probability(350, 20), inside, atol=1e-5)  # through north
    np.testing.assert_allclose(angles.probability(20, 350), 1 - inside, atol=1e-5)
    np.testing.assert_allclose(angles.probability(0, 360), 1.0)
    with pytest.raises(ValueError, match="not single numbers in an order"):
        Predictive(*_categorical()).probability(0, 1)


def _categorical():
    from ggpm.families import Categorical

    return Categorical().resolve([0, 1, 2]), np.zeros((1, 3)), np.eye(3)[None]


def test_intervals_of_the_mean():
    m, v = np.array([[0.4], [1.2]]), np.array([[[0.3]], [[0.05]]])
    z = norm.ppf([0.05, 0.95])
    expected = np.exp(m + np.sqrt(v[:, :, 0]) * z)
    np.testing.assert_allclose(Predictive(Poisson(), m, v).mean_interval(0.9), expected, rtol=1e-4)
    north = Predictive(VonMises(units="degrees"), np.array([[5.0, 0.0]]), 0.04 * np.eye(2)[None])
    low, high = north.mean_interval(0.9)[0]
    draws = np.random.default_rng(0).multivariate_normal([5.0, 0.0], 0.04 * np.eye(2), 100_000)
    bound = np.rad2deg(np.quantile(np.arctan2(draws[:, 1], draws[:, 0]), 0.95))
    np.testing.assert_allclose([low, high], [360 - bound, bound], atol=0.05)
    p = Predictive(*_categorical())
    assert p.mean_interval(0.8).shape == (1, 3, 2)


def test_intervals_of_mean_directions_ask_once_for_each_row(monkeypatch):
    """Every batch used to ask for the mean directions of all rows: 10,000 took a minute."""
    p = Predictive(VonMises(), np.random.default_rng(0).normal(size=(40, 2)), np.tile(0.1 * np.eye(2), (40, 1, 1)))
    expected = np.concatenate([p.rows(slice(k, k + 5)).mean_interval(0.9) for k in range(0, 40, 5)])
    asked, moment = [], Predictive._moment
    monkeypatch.setattr(Predictive, "_moment", lambda self: asked.append(len(self)) or moment(self))
    np.testing.assert_allclose(p.mean_interval(0.9), expected, atol=1e-12)
    assert sum(asked) == 40


# ---- importance and pictures ---------------------------------------------------------------------------------------
def test_importance_ranks_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "noise": rng.normal(size=160), "x": rng.uniform(0, 4, 160), "g": rng.choice(["a", "b", "c"], 160),
    })  # fmt: skip
    y = rng.poisson(np.exp(0.3 * np.sin(frame["x"]) + frame["g"].map({"a": 0.0, "b": 1.5, "c": 2.5})))
    kernel = On(RBF([1.0, 1.0]), ["noise", "x"]) + 1.0 * Category("g")
    model = GGPRegressor("poisson", kernel).fit(frame[:100], y[:100])
    for how in ("leave out", "refit", "shuffle"):
        table = ggpm.importance(model, frame[100:], y[100:], how=how)
        assert table.index[0] == "g" and table.loc["g", "cost"] > 10 * abs(table.loc["noise", "cost"])
        assert table.columns.tolist() == ["cost", "standard_error"]
    with pytest.raises(ValueError, match="how must be"):
        ggpm.importance(model, frame, y, how="drop")


def test_leaving_a_column_out_is_a_model_without_it():
    """The kernel without the column, at the hyperparameters that the other parts have, fitted to the other columns."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "b": rng.normal(size=40), "g": rng.choice(["u", "v"], 40)})
    y = rng.poisson(np.exp(0.5 * frame["a"] + (frame["g"] == "u")))
    kernel = 0.5 * On(RBF([1.0, 2.0]), ["a", "b"]) + 0.3 * Category("g") * On(RBF(0.7), "a") + ConstantKernel(0.4)
    without = {
        "a": 0.5 * On(RBF(2.0), "b") + 0.3 * Category("g") + ConstantKernel(0.4),
        "b": 0.5 * On(RBF(1.0), "a") + 0.3 * Category("g") * On(RBF(0.7), "a") + ConstantKernel(0.4),
        "g": 0.5 * On(RBF([1.0, 2.0]), ["a", "b"]) + 0.3 * On(RBF(0.7), "a") + ConstantKernel(0.4),
    }
    old, new, settings = frame[:30], frame[30:], {"optimizer": None, "inference": "laplace"}
    for inducing in (None, 8):
        model = GGPRegressor("poisson", kernel, inducing=inducing, random_state=0, **settings).fit(old, y[:30])
        found = ggpm.importance(model, new, y[30:])
        before = model.log_predictive_density(new, y[30:]).mean()
        for name, other in without.items():
            names = [column for column in frame if column != name]
            points = None
            if inducing is not None:
                points = model.inducing_inputs_[:, [frame.columns.get_loc(column) for column in names]]
            twin = GGPRegressor("poisson", other, inducing=points, **settings).fit(old[names], y[:30])
            cost = before - twin.log_predictive_density(new[names], y[30:]).mean()
            assert found.loc[name, "cost"] == pytest.approx(cost, abs=1e-6)


def test_effects_move_one_term_and_hold_the_others():
    """Mean and variance of f_s(x) + sum of the others at a fixed row, from the joint covariance written out."""
    X, y, family = simulate("poisson", n=20)
    kernel = 1.3 * On(RBF(0.8), 0) + 0.7 * On(RBF(1.5), 1) + 0.6 * On(RBF(3.0), 0)
    model = GGPRegressor(family, kernel, inference="laplace", optimizer=None).fit(X, y)
    names = list(model.terms(X))
    grid, at = X[:5] + 0.1, X[7]
    p = model.posterior_
    W = np.diag(1.0 / p.U.dense()[:, 0, 0])
    for name, moving in zip(names, (kernel.k1.k1, kernel.k1.k2, kernel.k2)):
        others = [k for k in (kernel.k1.k1, kernel.k1.k2, kernel.k2) if k is not moving]
        k = moving(X, grid) + sum(o(X, at[None]) for o in others)
        prior = np.diag(moving(grid)) + sum(o(at[None])[0, 0] for o in others)
        var = prior - np.einsum("nm,nm->m", k, np.linalg.solve(kernel(X) + W, k))
        found = model.predict_effect(name, grid, at)
        np.testing.assert_allclose(found.latent_mean[:, 0] - model.family_.origin, k.T @ p.z[:, 0], atol=1e-10)
        np.testing.assert_allclose(found.latent_cov[:, 0, 0], var, atol=1e-8)
    sparse = GGPRegressor(family, kernel, inference="laplace", optimizer=None, inducing=X).fit(X, y)
    found, expected = (m.predict_effect(names[0], grid, at).mean() for m in (sparse, model))
    np.testing.assert_allclose(found, expected, rtol=1e-4)  # the jitter of inducing points shows
    shares = model.summary().to_frame("terms")
    assert shares.index.tolist() == names and shares["share"].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(shares["share"], model.term_shares(X)[0], rtol=1e-12)


def test_pictures_of_effects_and_maps():
    pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "x": rng.uniform(0, 4, 20), "g": rng.choice(["a", "b"], 20), "z": rng.normal(size=20),
        "t": pd.date_range("2024-01-01", periods=20, freq="h"),
    })  # fmt: skip
    kernel = On(RBF(), ["x", "z"]) + Category("g") + On(RBF(9.0), "t")
    targets = {
        "poisson": rng.poisson(3.0, 20), "von_mises": rng.uniform(0, 6, 20), "dirichlet": rng.dirichlet([2, 3, 4], 20),
        "multinomial": rng.multinomial(5, [0.2, 0.3, 0.5], 20),
    }  # fmt: skip
    for family, y in targets.items():
        offset = rng.normal(size=20) if family == "poisson" else None
        model = GGPRegressor(family, kernel, optimizer=None).fit(frame, y, offset=offset)
        axes = plotting.plot_effects(model, n=8)
        assert [ax.get_xlabel() for ax in axes] == ["x", "g", "z", "t (2024)"]
        assert "most frequent label: g = " in axes[0].get_title().replace("\n", " ")
        assert [t.get_text() for t in axes[1].get_xticklabels()] == ["a", "b"]
        plt.close("all")
    twice = 1.0 * On(RBF(), "t") + 0.5 * On(Cyclic(24.0), "t") + Category("g")
    model = GGPRegressor("von_mises", twice, optimizer=None).fit(frame[["t", "g"]], targets["von_mises"])
    axes = plotting.plot_effects(model, n=8)  # the trend and the cycle of one column apart
    assert [ax.get_title().split("\n")[-1] for ax in axes] == ["term RBF(t)", "term Cyclic(t)", "term Category(g)"]
    assert len(plotting.plot_effects(model, ["t"], terms=["Cyclic(t)"], n=8)) == 1
    assert len(plotting.plot_effects(model, n=8, figure=plt.figure())) == 3
    with pytest.raises(
        ValueError, match=r"3 panels \(t of RBF\(t\), t of Cyclic\(t\), g of Category\(g\)\); got 2 axes"
    ):
        plotting.plot_effects(model, n=8, axes=plt.subplots(1, 2)[1])
    with pytest.raises(ValueError, match="no term 'Cyclic'"):
        plotting.plot_effects(model, terms=["Cyclic"], n=8)
    plt.close("all")
    labels = GGPClassifier(kernel, optimizer=None).fit(frame, frame["x"] > 2)
    plotting.plot_effects(labels, ["x"], n=8)
    model = GGPRegressor("poisson", kernel, optimizer=None).fit(frame, targets["poisson"])
    assert plotting.plot_map(model, ("x", "z"), lambda p: p.probability(4, np.inf), n=6).get_xlabel() == "x"
    with pytest.raises(ValueError, match="one number per row; got shape"):
        plotting.plot_map(model, ("x", "z"), lambda p: p.interval(0.9), n=4)
    plt.close("all")
