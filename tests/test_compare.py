"""Comparison of models: stacking against brute force and ArviZ, leave-one-out against refits, what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

import ggpm
from cases import simulate
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, families
from ggpm.plotting import plot_compare
from ggpm.prediction.compare import stacking_weights
from ggpm.prediction.loo import LeaveOneOut
from test_loo import refits


def log_densities(n=60, K=3, seed=0):
    """Of K normal models with different means and scales, for rows of a mixture."""
    rng = np.random.default_rng(seed)
    y = rng.normal(np.where(rng.uniform(size=n) < 0.4, -1.0, 1.0), 0.7)
    mean, sd = rng.normal(size=K), rng.uniform(0.5, 1.5, K)
    return -0.5 * ((y[:, None] - mean) / sd) ** 2 - np.log(sd)


@pytest.mark.parametrize("seed", range(3))
def test_stacking_weights_are_the_best_of_a_fine_grid(seed):
    values = log_densities(seed=seed)
    grid = np.array([(a, b, 100 - a - b) for a in range(101) for b in range(101 - a)]) / 100
    with np.errstate(divide="ignore"):
        heights = logsumexp(values[None] + np.log(grid)[:, None], axis=2).sum(axis=1)
    w = stacking_weights(values)
    height = logsumexp(values + np.log(np.maximum(w, 1e-300)), axis=1).sum()
    assert height >= heights.max() - 1e-9
    np.testing.assert_allclose(w, grid[heights.argmax()], atol=0.02)


@pytest.mark.parametrize("n, K, seed", [(40, 2, 0), (200, 6, 1), (25, 12, 2), (500, 4, 3)])
def test_stacking_weights_are_stationary(n, K, seed):
    """The conditions of Karush, Kuhn and Tucker: mean of p_k / mixture is one where w_k > 0, and at most one."""
    values = log_densities(n, K, seed)
    w = stacking_weights(values)
    slope = np.mean(np.exp(values - logsumexp(values + np.log(np.maximum(w, 1e-300)), axis=1)[:, None]), axis=0)
    assert np.all(slope < 1 + 1e-4) and np.all(np.abs(slope[w > 1e-3] - 1) < 1e-4)
    np.testing.assert_allclose(w.sum(), 1.0)


# Weights for log_densities(n, K, seed) from arviz.compare, version 0.23.4, method="stacking", with the densities as the
# loo_i of ELPDData objects.
ARVIZ = {
    (40, 2, 0): [0.882303, 0.117697],
    (60, 3, 1): [0.799858, 0.0, 0.200142],
    (200, 6, 1): [0.0, 0.0, 0.041693, 0.579258, 0.181768, 0.197281],
    (500, 4, 3): [0.452951, 0.058812, 0.051816, 0.436421],
}


@pytest.mark.parametrize("n, K, seed", ARVIZ)
def test_stacking_weights_agree_with_arviz(n, K, seed):
    np.testing.assert_allclose(stacking_weights(log_densities(n, K, seed)), ARVIZ[n, K, seed], atol=1e-3)


def test_models_that_are_the_same_share_the_weight_and_impossible_rows_are_refused():
    values = log_densities(K=2)
    np.testing.assert_allclose(stacking_weights(values[:, [0, 0, 1]])[:2].sum(), stacking_weights(values)[0], atol=1e-3)
    assert stacking_weights(values[:, :1]) == 1.0
    with pytest.raises(ValueError, match="row 1 has a density of zero"):
        stacking_weights([[0.0, -1.0], [-np.inf, -np.inf]])
    with pytest.raises(ValueError, match=r"shape \(rows, models\)"):
        stacking_weights([1.0, 2.0])
    with pytest.raises(ValueError, match="row 1 of model 0 has nan"):
        stacking_weights([[0.0, -1.0], [np.nan, -1.0]])


# ---- differences against refits ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["gaussian", "poisson", "gamma", "von_mises", "ordinal"])
def test_differences_are_those_of_refits(name):
    """Within a tenth of their standard error, hyperparameters held."""
    X, y, family = simulate(name, n=16, seed=4)
    kernels = {"smooth": ConstantKernel(1.0) * RBF(1.0), "rough": ConstantKernel(1.0) * Matern(0.3, nu=0.5)}
    models = {
        key: GGPRegressor(family, k, inference="variational", optimizer=None).fit(X, y) for key, k in kernels.items()
    }
    table = ggpm.compare(models)
    exact = {key: refits(model, X, y) for key, model in models.items()}
    best, other = table.index
    expected = (exact[other] - exact[best]).sum()
    assert abs(table.difference[other] - expected) < 0.1 * table.difference_se[other]
    assert abs(table.elpd[best] - exact[best].sum()) < 0.1 * table.se[best]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_right_model_is_found():
    """Clear truth: data of one family or kernel, and a model that misses what makes them so; 20 data sets each."""
    right = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.uniform(0, 6, 120))
        X, f = x[:, None], np.sin(2 * x)
        shape = ConstantKernel(1.0) * RBF(1.0)
        straight = ConstantKernel(1.0) * RBF(50.0, (30, 1e3))
        z = rng.normal(size=(2, 120))
        counts = rng.poisson(np.exp(1.0 + f))
        over = rng.negative_binomial(1.0, 1.0 / (1.0 + np.exp(2.0 + f)))
        cases = [
            (rng.gamma(4.0, np.exp(f) / 4.0), ("gamma", shape), ("gaussian", shape)),
            (counts, ("poisson", shape), ("poisson", straight)),
            (over, ("negative_binomial", shape), ("poisson", shape)),
            (np.mod(f + 0.3 * z[0], 2 * np.pi) - np.pi, ("von_mises", shape), ("von_mises", straight)),
            (f + 0.2 * rng.standard_t(1.5, 120), ("student_t", shape), ("gaussian", shape)),
        ]
        for y, *pair in cases:
            models = {
                k: GGPRegressor(family, kernel).fit(X, y) for k, (family, kernel) in zip(("right", "wrong"), pair)
            }
            table = ggpm.compare(models)
            right += table.index[0] == "right"
    assert right >= 95, right


# ---- the table -----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def three():
    X, y, family = simulate("poisson", n=40, seed=1)
    kernels = {"one": 1.0 * RBF(1.0), "two": 1.0 * RBF(0.1), "three": 1.0 * RBF(10.0)}
    return {name: GGPRegressor(family, k, optimizer=None).fit(X, y) for name, k in kernels.items()}, X, y


def test_table(three):
    models, _, _ = three
    table = ggpm.compare(models)
    assert table.columns.tolist() == ["elpd", "se", "p_eff", "difference", "difference_se", "weight", "note"]
    assert table.elpd.is_monotonic_decreasing and table.difference.iloc[0] == 0 and table.difference_se.iloc[0] == 0
    np.testing.assert_allclose(table.difference, table.elpd - table.elpd.iloc[0])
    loo = {name: model.loo() for name, model in models.items()}
    np.testing.assert_allclose(table.elpd, [loo[name].total for name in table.index])
    np.testing.assert_allclose(table.weight.sum(), 1.0)
    pd.testing.assert_frame_equal(ggpm.compare(loo).drop(columns="note"), table.drop(columns="note"))
    assert (table.note == "").all()
    gain = loo["one"] - loo["two"]
    np.testing.assert_allclose(gain.pointwise, loo["one"].pointwise - loo["two"].pointwise)
    np.testing.assert_allclose(gain.standard_error, np.sqrt(40) * gain.pointwise.std(ddof=1))
    ax = plot_compare(table)
    assert [t.get_text() for t in ax.get_yticklabels()] == table.index.tolist()


def test_effective_parameters_of_a_gaussian_are_near_the_trace_of_its_smoother():
    """With little said by each row, p_loo is the trace of K (K + noise)^-1 to first order (Vehtari et al. 2017)."""
    rng = np.random.default_rng(0)
    X = np.linspace(0, 10, 200)[:, None]
    y = np.sin(X[:, 0]) + rng.normal(size=200)
    model = GGPRegressor(families.Gaussian(phi=1.0), 1.0 * RBF(2.0), optimizer=None).fit(X, y)
    K = RBF(2.0)(X)
    trace = np.trace(np.linalg.solve(K + np.eye(200), K))
    np.testing.assert_allclose(model.loo().effective_parameters, trace, rtol=0.15)


def test_what_cannot_be_compared_is_refused(three):
    models, X, y = three
    other = GGPRegressor("poisson", optimizer=None)
    with pytest.raises(ValueError, match=r"'one' and 'b' are not of the same outputs: there are 40 and 39 rows"):
        ggpm.compare({"one": models["one"], "b": other.fit(X[1:], y[1:])})
    with pytest.raises(ValueError, match="y of row 3 is"):
        ggpm.compare({"one": models["one"], "b": other.fit(X, y + (np.arange(40) == 3))})
    with pytest.raises(ValueError, match=r"Poisson and Gaussian give a probability in the one case"):
        ggpm.compare({"one": models["one"], "b": GGPRegressor(optimizer=None).fit(X, y)})
    with pytest.raises(ValueError, match="not densities of the same outputs"):
        models["one"].loo() - other.fit(X[1:], y[1:]).loo()
    with pytest.raises(TypeError, match="dictionary of names"):
        ggpm.compare([models["one"]])
    with pytest.raises(TypeError, match="fitted models or their loo"):
        ggpm.compare({"a": 3.0})
    with pytest.raises(TypeError, match="got an empty one"):
        ggpm.compare({})
    with pytest.raises(ValueError, match="names that differ as text; got 1, '1'"):
        ggpm.compare({1: models["one"], "1": models["two"]})
    with pytest.raises(TypeError, match=r"what ggpm.compare\(models\) returns; got dict"):
        plot_compare(models)


def test_zeros_of_compositions_that_families_put_back_are_the_same_y():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(20, 1))
    Y = 100 * rng.dirichlet([3.0, 2.0, 1.0], size=20)
    Y[0] = [100.0, 0.0, 0.0]
    settings = {"zeros": "additive", "closure": True}
    kinds = {"d": families.Dirichlet(**settings), "l": families.LogisticNormal(**settings)}
    models = {name: GGPRegressor(family, optimizer=None).fit(X, Y) for name, family in kinds.items()}
    assert set(ggpm.compare(models).index) == {"d", "l"}
    moved = Y.copy()
    moved[0] = [99.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="y of row 0"):
        ggpm.compare({**models, "moved": GGPRegressor(kinds["d"], optimizer=None).fit(X, moved)})


def test_names_need_not_be_text(three):
    models, _, _ = three
    table = ggpm.compare({1: models["one"], 2.5: models["two"]})
    assert sorted(table.index) == ["1", "2.5"]


def test_angles_in_other_units_are_refused():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(12, 1))
    angle = rng.uniform(0, 3, 12)
    settings = {"optimizer": None, "inference": "laplace"}
    fitted = [GGPRegressor(families.VonMises(units=u), **settings).fit(X, angle) for u in ("radians", "degrees")]
    with pytest.raises(ValueError, match="angles in different units"):
        ggpm.compare(dict(zip("ab", fitted)))


def test_classes_are_compared_by_label():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(30, 1))
    grades = np.array(["low", "mid", "high"])[(3 * X[:, 0]).astype(int)]
    models = {
        "unordered": GGPClassifier(optimizer=None).fit(X, grades),
        "ordered": GGPOrdinalClassifier(order=["low", "mid", "high"], optimizer=None).fit(X, grades),
    }
    assert len(ggpm.compare(models)) == 2
    other = np.where(grades == "low", "mid", "low")
    with pytest.raises(ValueError, match="that differ"):
        ggpm.compare(models | {"b": GGPClassifier(optimizer=None).fit(X, other)})


def test_notes_say_what_is_not_to_be_trusted():
    X, y, _ = simulate("gaussian", n=20, seed=1)
    model = GGPRegressor("gaussian").fit(X, y)
    assert "4 hyperparameters learned from 20 rows" in ggpm.compare({"a": model}).note["a"]
    model.converged_ = False
    assert "did not converge" in ggpm.compare({"a": model}).note["a"]
    loo = replace(model.loo(), responded=np.arange(20) < 10)
    assert "10 row(s) to whose absence" in ggpm.compare({"a": loo}).note["a"]


# ---- groups --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("settings", [{}, {"inducing": 8}, {"neighbours": 6}])
def test_groups_that_are_left_out_are_refits(settings):
    X, y, family = simulate("poisson", n=24, seed=2)
    groups = np.arange(24) // 6
    kernel = ConstantKernel(1.0) * Matern(1.0, nu=1.5)
    model = GGPRegressor(family, kernel, optimizer=None, **settings).fit(X, y)
    if settings.get("inducing"):
        settings = {"inducing": model.inducing_inputs_}
    loo = model.loo(groups=[f"day {g}" for g in groups])
    for g in range(4):
        keep = groups != g
        other = GGPRegressor(family, kernel, optimizer=None, **settings).fit(X[keep], y[keep])
        # a neighbours field orders its rows anew: the same up to which rows are neighbours
        tolerance = 1e-7 if "neighbours" not in settings else 1e-3
        np.testing.assert_allclose(
            loo.pointwise[~keep], other.log_predictive_density(X[~keep], y[~keep]), atol=tolerance
        )
    sums = np.array([loo.pointwise[groups == g].sum() for g in range(4)])
    np.testing.assert_allclose(loo.standard_error, 2.0 * sums.std(ddof=1))
    table = ggpm.compare({"a": model}, groups=groups, folds=2)
    assert np.isfinite(table.elpd["a"])


def test_folds_are_of_even_size_and_groups_stay_together():
    from ggpm.prediction.loo import _folds

    fold = _folds(np.array([5, 1, 1, 1, 4, 2]), 3)
    assert sorted(np.bincount(fold, weights=[5, 1, 1, 1, 4, 2])) == [4, 5, 5]


def test_groups_choose_what_holds_for_new_groups():
    """A level for each group explains its rows, but nothing of a new group: single rows favour it, groups do not."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 6)
    X = np.stack([groups.astype(float), rng.uniform(0, 3, 72)], axis=1)
    y = rng.normal(size=12)[groups] + np.sin(X[:, 1]) + 0.3 * rng.normal(size=72)
    levels = ConstantKernel(1.0) * RBF([0.1, 1.0], "fixed") + ConstantKernel(0.5)
    trend = ConstantKernel(1.0) * RBF([1e5, 1.0], "fixed") + WhiteKernel(1.0)
    family = families.Gaussian(phi=0.09)
    models = {k: GGPRegressor(family, v, optimizer=None).fit(X, y) for k, v in (("levels", levels), ("trend", trend))}
    assert ggpm.compare(models).index[0] == "levels"
    assert ggpm.compare(models, groups=groups).index[0] == "trend"


def test_groups_are_checked(three):
    model = three[0]["one"]
    with pytest.raises(ValueError, match="one label for each of the 40 rows"):
        model.loo(groups=[1, 2])
    with pytest.raises(ValueError, match="two or more"):
        model.loo(groups=["a"] * 40)
    for gap in (None, np.nan, pd.NA):
        with pytest.raises(ValueError, match="row 39 has none or NaN"):
            model.loo(groups=[*"ab"] * 19 + ["a", gap])


# ---- inducing points, weights --------------------------------------------------------------------------------------
@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("inference", ["taylor", "laplace", "variational"])
@pytest.mark.parametrize("name", ["poisson", "von_mises"])
def test_inducing_points_at_all_rows_give_the_plain_cavities(name, inference, noise):
    """M = n: the same posterior, hence the same leave-one-out densities; with white noise as well."""
    X, y, family = simulate(name, n=25, seed=3)
    kernel = ConstantKernel(1.0) * Matern(0.7, nu=0.5) + WhiteKernel(0.2 if noise else 1e-9)
    settings = {"inference": inference, "optimizer": None}
    dense = GGPRegressor(family, kernel, **settings).fit(X, y).loo(neighbours=0)
    sparse = GGPRegressor(family, kernel, inducing=ggpm.Inducing(X, jitter=0.0), **settings).fit(X, y).loo()
    np.testing.assert_allclose(sparse.pointwise, dense.pointwise, atol=2e-5)
    np.testing.assert_allclose(sparse.within, dense.within, atol=2e-5)
    np.testing.assert_allclose(sparse.observed, dense.observed)


@pytest.mark.parametrize("weighted", [False, True])
def test_inducing_points_are_close_to_refits(weighted):
    """Taylor's sites do not depend on the other rows: then nothing is left out, and it is exactly a refit."""
    X, y, family = simulate("gamma", n=40, seed=3)
    w = np.where(np.arange(40) % 3 == 0, 2.0, 1.0) if weighted else None
    Z = X[::5]
    model = GGPRegressor(family, 1.0 * RBF(1.0), inference="taylor", inducing=Z, optimizer=None).fit(X, y, w)
    loo = model.loo()
    for i in range(0, 40, 9):
        keep = np.arange(40) != i
        other = GGPRegressor(family, 1.0 * RBF(1.0), inference="taylor", inducing=Z, optimizer=None)
        other.fit(X[keep], y[keep], None if w is None else w[keep])
        np.testing.assert_allclose(loo.pointwise[i], other.log_predictive_density(X[[i]], y[[i]])[0], atol=1e-7)


def test_fields_are_compared_with_each_other():
    """The same rows, exact, by inducing points and by neighbours: nearly one elpd, and few points lose by it."""
    X, y, family = simulate("poisson", n=60, seed=3)
    kernel, held = ConstantKernel(1.0) * Matern(1.0, nu=1.5), {"optimizer": None, "inference": "laplace"}
    fields = {"exact": {}, "inducing": {"inducing": X}, "neighbours": {"neighbours": 30}, "few": {"inducing": X[::30]}}
    models = {name: GGPRegressor(family, kernel, **held, **s).fit(X, y) for name, s in fields.items()}
    # in the exact model sites near a row that is left out respond, unless told otherwise; in the others they do not
    table = ggpm.compare(models | {"exact": models["exact"].loo(neighbours=0)})
    assert table.index[-1] == "few" and table.difference["few"] < -1.0
    np.testing.assert_allclose(table.elpd[["inducing", "neighbours"]], table.elpd["exact"], atol=0.05)
    np.testing.assert_allclose(table.p_eff[["inducing", "neighbours"]], table.p_eff["exact"], atol=0.2)


def test_a_plain_result_has_no_effective_parameters():
    assert np.isnan(LeaveOneOut(np.zeros(3)).effective_parameters)
