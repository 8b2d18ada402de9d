"""kernel=None: the contest between kernels, and what does not change with the units of the columns."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from cases import simulate
from ggpm import GGPClassifier, GGPRegressor, families, plotting
from ggpm.data.columns import Columns
from ggpm.fields.dense import DenseField
from ggpm.kernels import Scaled, summands
from ggpm.kernels.candidates import KNOTS, SMOOTHNESS, rank_scores
from ggpm.learning import blocks as leaving_out
from ggpm.learning import contest
from ggpm.learning.objective import Evidence
from ggpm.sites import Laplace


def rows(n=120, features=6, seed=0):
    """A smooth function of the first of several columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)


def test_columns_that_do_not_matter_get_long_length_scales():
    X, y = rows()
    model = GGPRegressor().fit(X, y)
    assert "own lengths" in model.search_.winner
    lengths = np.ravel(model.kernel_.get_params()["k1__k2"].kernel.length_scale)
    assert lengths[0] < 3.0 and np.all(lengths[1:] > 5.0 * lengths[0])
    plain = GGPRegressor(priors={"length_scale": contest_prior()}).fit(X, y)  # candidates with one length scale
    assert model.log_predictive_density(*rows(seed=1)).mean() > plain.log_predictive_density(*rows(seed=1)).mean() + 0.1


def contest_prior():
    from ggpm.learning.priors import LogNormal

    return LogNormal(3.0, 1.5)


def test_the_table_tells_what_was_tried_and_is_the_same_every_time():
    X, y = rows(60, 2)
    one, two = (GGPRegressor(random_state=3).fit(X, y) for _ in range(2))
    assert [t.name for t in one.search_] == [t.name for t in two.search_]
    np.testing.assert_array_equal([t.score for t in one.search_], [t.score for t in two.search_])
    np.testing.assert_array_equal(one.theta_, two.theta_)
    assert {"RBF", "Matérn 5/2", "Matérn 3/2", "Matérn 1/2"} <= {t.name for t in one.search_}
    assert one.search_.winner in repr(one.search_) and len(one.search_.to_frame()) == len(one.search_)
    parallel = GGPRegressor(random_state=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal([t.score for t in one.search_], [t.score for t in parallel.search_])


def test_no_contest_where_the_kernel_is_given_or_nothing_is_learned():
    from sklearn.gaussian_process.kernels import RBF

    X, y = rows(30, 2)
    for settings in ({"kernel": RBF()}, {"optimizer": None}):
        model = GGPRegressor(**settings).fit(X, y)
        assert not hasattr(model, "search_") and model.fit_.search is None
    assert len(GGPRegressor(budget=1e-9).fit(X, y).search_) == 1  # one candidate is always tried
    few = GGPRegressor().fit(X[:12], y[:12])
    assert {t.name for t in few.search_} == {"RBF"}


def test_leave_one_out_does_not_climb_over_many_length_scales():
    X, y = rows(60, 4)
    model = GGPRegressor(objective="loo").fit(X, y)
    assert not any("own" in t.name for t in model.search_) and model.theta_.size <= 6


@pytest.mark.parametrize("name", ["gaussian", "poisson", "von_mises", "dirichlet", "categorical"])
def test_units_and_origins_of_columns_do_not_matter(name):
    X, y, _ = simulate(name, n=50)
    changed = X.copy()
    changed[:, 0] = 1e3 * X[:, 0]
    changed[:, 1] = X[:, 1] + 1e6 * X[:, 1].std()
    settings = {"inference": "laplace"}
    one, two = GGPRegressor(name, **settings).fit(X, y), GGPRegressor(name, **settings).fit(changed, y)
    a, b = one.predict_latent(X)[0], two.predict_latent(changed)[0]
    assert one.search_.winner == two.search_.winner
    np.testing.assert_allclose(b, a, atol=1e-3 * a.std(axis=0).max())


def test_blocks_are_consecutive_rows_unless_the_table_is_sorted_by_y():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 1)), rng.normal(size=60)

    def blocks(y, name="gaussian"):
        family, encoded, _ = GGPRegressor(name).resolve_family(y)
        pool = Evidence(family, [], DenseField(X, encoded, np.zeros((60, family.latent_dim))), Laplace())
        return leaving_out.blocks(pool, Columns(1))

    np.testing.assert_array_equal(blocks(y), np.arange(60) // 6)
    assert blocks(np.sort(y)) is None and blocks(-np.sort(y)) is None
    assert blocks(np.arange(60) // 20, "categorical") is None
    assert blocks(rng.integers(0, 3, 60), "categorical") is not None


def test_rows_of_some_weight_compete_like_rows_that_stand_there_so_often():
    rng = np.random.default_rng(1)
    X, weight = rng.uniform(size=(14, 2)), rng.integers(1, 4, 14)
    y = rng.poisson(np.exp(2.0 * np.sin(4.0 * X[:, 0]))).astype(float)
    order = rng.permutation(weight.sum())
    weighted = GGPRegressor("poisson").fit(X, y, weight)
    repeated = GGPRegressor("poisson").fit(X.repeat(weight, axis=0)[order], y.repeat(weight)[order])
    assert weighted.search_.winner == repeated.search_.winner
    # but for noise of the latent, which repeated rows have each of their own
    scores = [[t.score for t in m.search_ if "noise" not in t.name] for m in (weighted, repeated)]
    np.testing.assert_allclose(*scores, atol=1e-3)  # climbs end at 1e-4 of the objective
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-3)


def test_readings_of_one_scale_may_have_one_unit():
    rng = np.random.default_rng(0)
    X = np.round(16 * rng.uniform(size=(80, 6)))
    X[:, 3:] = np.where(rng.uniform(size=(80, 3)) < 0.9, 0.0, X[:, 3:])  # mostly blank, and of little weight
    X[0], X[1] = 0.0, 16.0
    y = np.sin(X[:, :3].sum(axis=1) / 8) + 0.1 * rng.normal(size=80)
    tried = {t.name for t in GGPRegressor().fit(X, y).search_}
    assert "RBF, one unit" in tried
    X[:, 0] *= 10.0
    assert not any("one unit" in t.name for t in GGPRegressor().fit(X, y).search_)


def test_columns_with_long_tails_are_measured_by_ranks():
    rng = np.random.default_rng(1)
    Z, Z_new = rng.normal(size=(2, 150, 2))
    y, truth = (np.sin(2.0 * z[:, 0]) + 0.5 * z[:, 1] + 0.2 * rng.normal(size=150) for z in (Z, Z_new))
    model = GGPRegressor().fit(np.exp(2.0 * Z), y)
    assert "ranks" in model.search_.winner and "by ranks" in repr(model.kernel_)
    # measured in spreads most rows of a log-normal column are in one place
    plain = GGPRegressor(priors={"length_scale": contest_prior()}).fit(np.exp(2.0 * Z), y)
    new = np.exp(2.0 * Z_new), truth
    assert model.log_predictive_density(*new).mean() > plain.log_predictive_density(*new).mean() + 0.2
    assert "ranks" not in GGPRegressor().fit(Z, y).search_.winner  # normal columns have nothing to gain


def test_a_column_by_ranks_goes_on_beyond_its_ends():
    places, scores = rank_scores(np.exp(np.linspace(-3.0, 3.0, 101)))
    assert len(places) == KNOTS and np.all(np.diff(places) > 0) and np.all(np.diff(scores) > 0)
    np.testing.assert_allclose(scores[:8], -np.array(scores[:-9:-1]), atol=1e-12)
    assert rank_scores(np.array([0.0, 1.0, 1.0])) == ()
    # a row of weight two is the row twice
    np.testing.assert_array_equal(
        rank_scores(np.array([0.0, 1.0, 5.0]), np.array([1.0, 2.0, 1.0])), rank_scores(np.array([0.0, 1.0, 1.0, 5.0]))
    )
    seen = Scaled(RBF(), (0.0,), (2.0,), knots=((places, scores),)).seen
    x = np.array([[places[0] - 4.0], [places[0]], [1.0], [places[-1]], [places[-1] + 4.0]])
    np.testing.assert_allclose(seen(x)[[0, 1, 3, 4], 0], [scores[0] - 2, scores[0], scores[-1], scores[-1] + 2])
    step = 1e-6
    np.testing.assert_allclose(seen.slopes(x + 0.01), (seen(x + 0.01 + step) - seen(x + 0.01)) / step, rtol=1e-5)


def test_times_and_categories_are_parts_of_every_candidate():
    rng = np.random.default_rng(0)
    n = 96
    when = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(n) * 3, unit="h")
    frame = pd.DataFrame({"when": when, "place": rng.choice(["a", "b"], n), "x": rng.normal(size=n)})
    y = np.sin(2 * np.pi * np.arange(n) / 8) + 0.5 * frame["x"] + 0.2 * rng.normal(size=n)
    model = GGPRegressor().fit(frame, y)
    shown = repr(model.kernel_)
    assert "Cyclic" in shown and "Category('place')" in shown and "'x'" in shown


@pytest.mark.parametrize("more", [{"inducing": 20}, {"neighbours": 10}])
def test_inducing_points_and_neighbours_have_a_contest_on_some_rows(more):
    X, y = rows(90, 2)
    model = GGPRegressor(**more).fit(X, y)
    assert len(model.search_) > 3 and np.corrcoef(model.predict(X), np.sin(2 * X[:, 0]))[0, 1] > 0.8


def test_the_table_names_the_kernel_that_won_and_has_one_line_for_each_candidate():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 3))
        y = rng.gamma(3.0, size=60) * np.exp(0.5 * X[:, 0])  # of a line all candidates are nearly as good
        model = GGPRegressor("gamma").fit(X, y)
        lines = [(trial.name, trial.rows) for trial in model.search_]
        assert len(set(lines)) == len(lines)
        kernel = summands(model.kernel_)[0].k2.kernel
        name = SMOOTHNESS[getattr(kernel, "nu", np.inf)]
        assert model.search_.winner.startswith(name)


@pytest.mark.parametrize("name", ["gaussian", "poisson", "logistic_normal"])
def test_of_noise_mostly_the_constant_is_left(name):
    flat = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 4))
        y = {
            "gaussian": lambda rng=rng: rng.normal(size=60),
            "poisson": lambda rng=rng: rng.poisson(3.0, size=60),
            "logistic_normal": lambda rng=rng: rng.dirichlet([5.0, 5.0, 5.0], size=60),
        }[name]()
        model = GGPRegressor(name).fit(X, y)
        flat += [model] if model.search_.winner == "constant" else []
    # chance alone brings half a nat for each of two hyperparameters now and then
    assert len(flat) >= 3
    # what the constant won against has a small weight beside it
    assert np.ptp(flat[0].predict(X), axis=0).max() < 0.01 * y.std()
    assert np.all(np.isfinite(flat[0].log_predictive_density(X, y)))
    assert [trial.kept for trial in flat[0].search_ if trial.name == "constant"] == [True]


def test_parts_that_later_ones_make_needless_are_dropped():
    """Length scales of their own seem to help until there are functions of single columns."""

    def entry(value, loo, **parts):
        return Stub(contest.Recipe(np.inf, **parts), value, loo)

    plain, own, sums = entry(-250.0, -1.6), entry(-236.0, -1.5, own=True), entry(-232.0, -1.55, additive=True)
    both = entry(-230.0, -1.48, own=True, additive=True)
    rung = [plain, own, sums, both]
    assert contest._earns(own, plain) and contest._earns(both, own) and not contest._earns(both, sums)
    assert contest._pruned(both, rung) is sums
    assert contest._pruned(own, rung) is own
    both.value = -220.0  # here they bring more than a nat for each length scale even so
    assert contest._pruned(both, rung) is both


def test_for_new_labels_only_those_that_are_left_out_have_a_say():
    plain, linear = contest.Recipe(), contest.Recipe(linear=True)
    more_evidence = [Stub(plain, 0.0, -1.0, say=0.0), Stub(linear, 50.0, -1.001, say=0.0)]
    more_density = [Stub(plain, 0.0, -1.0, say=0.0), Stub(linear, -50.0, -0.99, say=0.0)]
    assert not contest._earns(*more_evidence[::-1])
    assert contest._earns(*more_density[::-1])


class Stub:
    """What the rules of a contest look at in an entry: eight columns, 150 rows."""

    def __init__(self, recipe, value, loo, say=0.5):
        self.recipe, self.value, self.loo_mean, self.say = recipe, value, loo, say
        self.rows, self.weight = np.arange(150), np.ones(150)
        self.score = (1 - say) * loo + say * value / 150
        self.optimum = SimpleNamespace(theta=np.zeros(3 + 7 * recipe.own + 2 * recipe.additive))


def test_combinations_of_labels_may_have_levels_of_their_own():
    rng = np.random.default_rng(0)
    cells = np.repeat([[a, b] for a in range(4) for b in range(3)], 10, axis=0)
    X = pd.DataFrame({name: pd.Categorical(codes.astype(str)) for name, codes in zip("ab", cells.T)})
    level = np.repeat(rng.normal(size=12), 10)
    together = GGPRegressor("poisson").fit(X, rng.poisson(np.exp(1.5 + level)))
    assert "cells" in together.search_.winner and "Category(['a', 'b'])" in repr(together.kernel_)
    apart = GGPRegressor("poisson").fit(X, rng.poisson(np.exp(1.5 + 0.7 * cells[:, 0] - 0.5 * cells[:, 1])))
    assert "cells" not in apart.search_.winner
    assert not any("cells" in trial.name for trial in GGPRegressor("poisson").fit(X[["a"]], level > 0).search_)


def test_functions_of_numbers_may_differ_by_label():
    rng = np.random.default_rng(0)
    x, code = rng.uniform(-2, 2, 150), rng.integers(0, 3, 150)
    X = pd.DataFrame({"x": x, "kind": pd.Categorical(code.astype(str))})
    own = GGPRegressor().fit(X, np.sin(2 * x + 2 * code) + 0.2 * rng.normal(size=150))
    assert "by labels" in own.search_.winner and "Category(['kind'], length_scale" in repr(own.kernel_)
    apart = GGPRegressor().fit(X, np.sin(2 * x) + code + 0.2 * rng.normal(size=150))
    assert "by labels" not in apart.search_.winner
    many = X.assign(kind=pd.Categorical((np.arange(150) // 3).astype(str)))  # three rows of a label show no function
    assert not any("by labels" in trial.name for trial in GGPRegressor().fit(many, x).search_)


def test_labels_alone_have_no_smoothness():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: pd.Categorical(rng.integers(0, 3, 90).astype(str)) for name in "ab"})
    assert [trial.name for trial in GGPRegressor().fit(X, rng.normal(size=90)).search_][:2] == ["levels", "levels"]


def test_tables_sorted_by_combinations_of_labels_leave_out_single_rows():
    cells = np.repeat([[a, b] for a in range(4) for b in range(4)], 6, axis=0).astype(float)
    assert leaving_out._by_combinations(cells)
    assert not leaving_out._by_combinations(np.random.default_rng(0).permutation(cells))
    assert not leaving_out._by_combinations(cells[:, :1])  # one category: labels are longer than blocks
    visits = np.column_stack([np.arange(96) // 4, cells[:, 1]])  # of 24 patients: others are left out whole
    assert not leaving_out._by_combinations(visits)


def test_the_contest_in_a_picture():
    X, y = rows(40, 2)
    axes = plotting.plot_search(GGPRegressor().fit(X, y))
    assert len(axes.get_yticklabels()) > 3
    with pytest.raises(ValueError, match="no kernels were tried"):
        plotting.plot_search(GGPRegressor(optimizer=None).fit(X, y))


def test_no_warnings_of_overflow_from_candidates_that_fail():
    X, y, _ = simulate("student_t", n=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        GGPRegressor("student_t", inference="laplace").fit(X, y)


@pytest.mark.slow
def test_digits_are_told_apart_with_nothing_chosen():
    """The log-loss of one length scale, given by hand, is 0.2537; of averages before they are sharpened 0.2603."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss

    X, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:300], order[300:]
    model = GGPClassifier().fit(X[train], labels[train])
    assert "one unit" in model.search_.winner
    loss = log_loss(labels[test], model.predict_proba(X[test]))
    assert loss < 0.19


def test_candidates_for_grades_are_compared_by_a_bound_because_laplace_is_deceived_by_noise():
    # grades between cuts in a latent that is noise of variance v are those between cuts closer by sqrt(1 + v), exactly
    y, v = np.repeat(np.arange(5), [10, 30, 60, 30, 10]), 30.0
    X, edges = np.arange(len(y), dtype=float)[:, None], np.array([-np.inf, -1.5, -0.5, 0.5, 1.5, np.inf])
    exact = np.log(np.diff(ndtr(edges)))[y].sum()

    def evidence(inference):
        family = families.Ordinal(phi=np.sqrt(1.0 + v) * edges[1:-1], phi_bounds="fixed")
        model = GGPRegressor(family, WhiteKernel(v, "fixed"), optimizer=None, inference=inference)
        return model.fit(X, y).log_marginal_likelihood_value_

    assert evidence("variational") < exact < evidence("laplace") - 0.1 * len(y)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1))
    y = np.searchsorted([-1.5, -0.5, 0.5, 1.5], X[:, 0] + rng.normal(size=40))
    model = GGPRegressor("ordinal").fit(X, y)
    assert not any("noise" in t.name for t in model.search_)
