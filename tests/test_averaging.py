"""Averages of models: mixtures answer what single models do, by sums over their parts."""

import pickle
import re
from dataclasses import fields

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import ggpm
from cases import FAMILIES, simulate
from ggpm import GGPClassifier, GGPRegressor, load, save
from ggpm.data.columns import Columns
from ggpm.estimators import averaging
from ggpm.families import Dirichlet, Poisson
from ggpm.fields.dense import DenseField
from ggpm.kernels.candidates import Recipe
from ggpm.learning.contest import Contest, Finalist, SearchTable, _opinions
from ggpm.prediction.mixture import Mixture
from ggpm.prediction.predictive import Predictive

NAMES = ["gaussian", "poisson", "gamma", "beta", "von_mises", "dirichlet", "binomial", "categorical", "ordinal"]


def two(name, n=6):
    """Two predictive distributions of the same rows, their mixture, and y."""
    _, y, family = simulate(name, n=n)
    rng = np.random.default_rng(1)
    D = family.latent_dim
    trials = np.full(n, 9.0) if family.countable else None
    parts = [Predictive(family, rng.normal(size=(n, D)), s * np.tile(np.eye(D), (n, 1, 1)), trials) for s in (0.1, 0.4)]
    return parts, Mixture(parts, np.array([0.3, 0.7])), y


@pytest.mark.parametrize("name", NAMES)
def test_densities_moments_and_distribution_functions_are_sums_over_the_parts(name):
    (a, b), both, y = two(name)
    expected = logsumexp([np.log(0.3) + a.log_prob(y), np.log(0.7) + b.log_prob(y)], axis=0)
    np.testing.assert_allclose(both.log_prob(y), expected, rtol=1e-12)
    np.testing.assert_allclose(both._moment(), 0.3 * a._moment() + 0.7 * b._moment(), rtol=1e-12)
    draws = both.sample(20000, 0)
    if name in ("gaussian", "poisson", "gamma", "beta"):
        error = 5 * np.sqrt(both.var() / 20000)
        assert np.all(np.abs(draws.mean(axis=0) - both.mean()) < error)
        np.testing.assert_allclose(both.var(), draws.var(axis=0), rtol=0.3)  # gamma's fourth moment is large
    if both.family.has("cdf") and name != "dirichlet":
        np.testing.assert_allclose(both.cdf(y), 0.3 * a.cdf(y) + 0.7 * b.cdf(y), rtol=1e-12, atol=1e-14)
    latent = 0.3 * a.latent_mean + 0.7 * b.latent_mean
    np.testing.assert_allclose(both.latent_mean, latent, atol=1e-14)


def test_arcs_of_mixtures_are_sums_over_the_parts_whatever_rows_are_asked_with_them():
    """Rows that need fine tables beside rows that do not; answers of one row do not depend on the others."""
    family = simulate("von_mises", n=2)[2]
    length = np.array([0.3, 4.0, 60.0, 900.0, 4e4])
    parts = [
        Predictive(family, np.stack([length, turn * length], axis=1), np.tile(s * np.eye(2), (5, 1, 1)))
        for turn, s in ((0.1, 0.2), (-0.1, 2.0))
    ]
    both, low, high = Mixture(parts, np.array([0.3, 0.7])), np.full(5, -0.12), np.full(5, 0.08)
    wanted = 0.3 * parts[0].probability(low, high) + 0.7 * parts[1].probability(low, high)
    np.testing.assert_allclose(both.probability(low, high), wanted, atol=1e-6)  # tables end where series are 1e-7
    alone = [both.rows([i]).interval(0.9)[0] for i in range(5)]
    np.testing.assert_allclose(both.interval(0.9), alone, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_regions_have_their_level(name):
    _, both, y = two(name)
    draws = both.sample(20000, 0)
    region = both.interval(0.8)
    if name in ("gaussian", "gamma", "beta", "dirichlet", "poisson"):
        inside = np.mean((draws >= region[..., 0]) & (draws <= region[..., 1]), axis=0)
        exact = name != "poisson"
        assert np.all(inside > 0.785) and (not exact or np.all(inside < 0.815))  # five standard errors of 20000 draws
    elif name == "binomial":
        inside = np.mean((draws[..., 0] >= region[:, 0, 0]) & (draws[..., 0] <= region[:, 0, 1]), axis=0)
        assert np.all(inside > 0.785)
    elif name == "von_mises":
        turn = np.mod(draws - region[:, 0], 2 * np.pi) <= np.mod(region[:, 1] - region[:, 0], 2 * np.pi)
        np.testing.assert_allclose(turn.mean(axis=0), 0.8, atol=0.015)
        np.testing.assert_allclose(
            both.probability(0.0, 1.0), np.mean(np.mod(draws, 2 * np.pi) <= 1, axis=0), atol=0.02
        )
    else:
        assert np.all(np.sum(both.probabilities() * region, axis=1) >= 0.8)
    assert both.mean_interval(0.9).shape[-1] == 2
    if name != "categorical":
        assert both.pit(y).shape[0] == len(y)
    if not both.family.support.integer:
        smallest = both.highest_density(0.8)
        inside = np.mean([smallest.contains(d) for d in draws[:200]])
        assert abs(inside - 0.8) < 0.07  # 1200 draws, and a threshold from 1000


@pytest.mark.parametrize("name", ["gaussian", "gamma", "beta", "inverse_gaussian", "gaussian_mean_scale"])
@pytest.mark.parametrize("apart", [0.3, 3.0])
def test_quantiles_of_continuous_numbers_invert_the_distribution_function(name, apart):
    """Also of two peaks far from each other, with hardly anything between them."""
    (a, _), _, _ = two(name)
    D = a.family.latent_dim
    others = [np.eye(D)[0] * apart * s for s in (-1.0, 1.0)]
    both = Mixture([Predictive(a.family, 0.1 * a.latent_mean + m, 0.01 * a.latent_cov) for m in others], [0.4, 0.6])
    for q in (0.05, 0.39, 0.5, 0.95):
        np.testing.assert_allclose(both.cdf(both.quantile(q)), q, atol=3e-5)  # the worst of `line.COARSE`


@pytest.mark.parametrize("name", ["von_mises_fisher", "wishart", "multivariate_gaussian"])
def test_entries_of_vectors_and_matrices_have_their_level(name):
    _, both, _ = two(name, n=3)
    draws, ends = both.sample(20000, 1), both.interval(0.8)
    inside = np.mean((draws >= ends[..., 0]) & (draws <= ends[..., 1]), axis=0)
    # five standard errors of 20000 draws; ends of matrices are those of 4096 draws themselves
    np.testing.assert_allclose(inside, 0.8, atol=0.014 if name != "wishart" else 0.034)


def data(n=50):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.exp(np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=n))


@pytest.fixture(scope="module", params=["stack", "integrate"])
def model(request):
    X, y = several()
    with pytest.MonkeyPatch.context() as patch:
        # weights that are given, so that there is something to average whatever stacking would say
        patch.setattr(
            averaging, "stacking_weights", lambda loo, rows: np.array([0.5, 0.3, 0.2, 0.0, 0.0, 0.0])[: loo.shape[1]]
        )
        fitted = GGPRegressor("gamma", averaging=request.param, inference="laplace").fit(X, y)
    assert len(fitted.fit_.members) > 2
    return fitted


def test_an_averaged_model_is_a_model(model, tmp_path):
    X, y = several()
    weights = np.array([fit.weight for fit in model.fit_.members])
    assert weights.sum() == pytest.approx(1.0) and weights.argmax() == 0
    assert model.kernel_ == model.fit_.kernels[0]
    single = [fit.posterior.latent(X)[0] for fit in model.fit_.members]
    latent = np.tensordot(weights, single, 1) + model.family_.origin
    np.testing.assert_allclose(model.predict_latent(X)[0], latent, atol=1e-12)
    total = sum(mean for mean, _ in model.terms(X).values())
    np.testing.assert_allclose(total, model.predict_latent(X)[0] - model.family_.origin, atol=1e-8)
    save(model, tmp_path / "m.ggpm")
    for again in (load(tmp_path / "m.ggpm"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(again.predict_dist(X).log_prob(y), model.predict_dist(X).log_prob(y), rtol=1e-12)
        assert again.search_ == model.search_
    assert np.all(model.loo().pointwise <= model.log_predictive_density(X, y) + 0.05)
    assert ggpm.compare({"average": model}).weight.iloc[0] == 1.0
    assert ggpm.conformal(model, X[:25], y[:25]).predict_dist(X[:3]).interval(0.8).shape == (3, 2)
    assert model.sample_y(X, 7).shape == (50, 7) and len(model.summary(X)) == 50


def several(n=50, seed=0):
    """Rows of which a line, a sum of functions and the kernel that wins all say something."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, rng.gamma(3.0, np.exp(0.6 * X[:, 0] + 0.3 * np.sin(2 * X[:, 1])) / 3.0)


def chosen_of(averaging, **settings):
    X, y = several()
    model = GGPRegressor("gamma", averaging=averaging, inference="laplace", **settings)
    family, encoded, _ = model.resolve_family(y)
    return model._chosen(family, DenseField(X, encoded, np.zeros((len(X), 1))), Columns(2), None)


def test_weights_are_those_of_stacking_with_rows_that_speak_for_each_alone():
    chosen = chosen_of("stack")
    assert abs(sum(chosen.weights) - 1.0) < 1e-12 and list(chosen.weights) == sorted(chosen.weights, reverse=True)
    loo = np.stack([finalist.judged for finalist in chosen.finalists], axis=1)
    assert len(chosen.finalists) > 1
    # where weights are best, none of those that are kept gains by growing: w_k = (rows_k + sum of its shares) / all
    shares = np.exp(loo + np.log(chosen.weights))
    shares /= shares.sum(axis=1, keepdims=True)
    winner = [k for k, finalist in enumerate(chosen.finalists) if finalist.name == chosen.table.winner]
    flat = np.array([finalist.flat for finalist in chosen.finalists])
    rows = np.where(flat, averaging.CONSTANTS_ROWS, averaging.OPINIONS_ROWS)
    rows[winner] = averaging.WINNERS_ROWS
    wanted = (shares.sum(axis=0) + rows) / (len(loo) + rows.sum())
    np.testing.assert_allclose(chosen.weights, wanted, atol=0.02)  # those below 0.05 were left out afterwards


def test_other_opinions_are_asked_for_only_where_they_are_averaged():
    names = {how: [trial.name for trial in chosen_of(how).table] for how in averaging.AVERAGING}
    rough = "Matérn 1/2, ranks, own lengths"
    assert {"linear", "linear + additive", rough} <= set(names["auto"]) and names["auto"] == names["stack"]
    assert "linear" not in names["none"] and names["integrate"] == names["none"]
    assert chosen_of("none").weights == (1.0,) and len(chosen_of("integrate").finalists) == 1


def test_the_rough_opinion_has_ranks_and_labels_as_far_as_columns_allow():
    def rough(offered):
        recipes = _opinions(Recipe(2.5, linear=True, noise=True), lambda recipe: all(
            part in offered for part in ("ranks", "labels") if getattr(recipe, part)
        ))  # fmt: skip
        return str(recipes[-1])

    assert rough(()) == "Matérn 1/2, own lengths + noise"
    assert rough(("ranks",)) == "Matérn 1/2, ranks, own lengths + noise"
    assert rough(("ranks", "labels")) == "Matérn 1/2, ranks, own lengths, by labels + noise"


def test_a_constant_speaks_for_numbers_that_nothing_foretells():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = rng.gamma(50.0, np.exp(0.8 * X[:, 0]) / 50.0)
    far = rng.choice(120, 6, replace=False)  # rows that have nothing to do with their columns
    y[far] = rng.permutation(y[far]) * np.exp(rng.normal(size=6))
    chosen = GGPRegressor("gamma").fit(X, y).fit_
    names = [str(member.kernels[0]) for member in chosen.members]
    assert any(" + " not in name for name in names)


def test_a_constant_that_wins_has_only_what_it_won_against_beside_it():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3))
    model = GGPRegressor("poisson").fit(X, rng.poisson(2.0, 60))
    assert model.search_.winner == "constant" and len(model.fit_.members) <= 2
    assert model.fit_.members[0].weight > 0.7
    assert "linear" not in [trial.name for trial in model.search_]


def contest_of(*densities):
    def finalist(judged):
        others = dict.fromkeys(field.name for field in fields(Finalist))
        known = {"judged": np.asarray(judged), "weight": np.ones(len(judged)), "flat": False}
        return Finalist(**others | known)

    return Contest(SearchTable(()), tuple(finalist(judged) for judged in densities))


def test_the_winner_stays_alone_where_an_average_is_worse_for_the_rows():
    certain, less = np.full(75, -0.01), np.full(75, -0.05)
    assert averaging.weighed(contest_of(certain, less)).weights == (1.0,)
    either = np.where(np.arange(75) % 2, -0.01, -0.9)  # which is the better one depends on the row
    assert len(averaging.weighed(contest_of(either, np.roll(either, 1))).weights) == 2


def test_opinions_are_judged_by_the_inference_of_the_model():
    X, y = load_iris(return_X_y=True)
    X, y = X[::2], y[::2]
    model = GGPClassifier()
    family, encoded, _ = model.resolve_family(y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(averaging, "weighed", lambda contest: contest)
        found = model._chosen(family, DenseField(X, encoded, np.zeros((75, 3))), Columns(4), None)
    by_name = {finalist.name: finalist for finalist in found.finalists}
    line, winner = by_name["linear"], found.winner
    assert line.loo.mean() > winner.loo.mean() + 0.1  # Laplace's
    kernel = winner.kernels[0]
    fitted = GGPClassifier(kernel, optimizer=None, inference="variational").fit(X, y)
    np.testing.assert_allclose(winner.judged, fitted.loo(neighbours=0).pointwise, atol=5e-3)
    assert winner.judged.mean() > line.judged.mean() + 0.01


def test_opinions_without_a_mode_are_left_out(monkeypatch):
    X, y = several()
    member, seen = averaging._member, []

    def broken(fit, evidence, weight, start=None):
        seen.append(weight)
        if len(seen) == 1:
            raise np.linalg.LinAlgError("no mode")
        return member(fit, evidence, weight, start)

    monkeypatch.setattr(averaging, "_member", broken)
    model = GGPRegressor("gamma", averaging="stack", inference="laplace").fit(X, y)
    assert len(model.fit_.members) == len(seen) > 0
    assert sum(fit.weight for fit in model.fit_.members) == pytest.approx(1.0)


def test_integrating_widens_what_few_rows_say():
    X, y = data(25)
    narrow, wide = (GGPRegressor("gamma", averaging=a, inference="laplace").fit(X, y) for a in ("none", "integrate"))
    far = np.array([[0.0, 0.0], [3.0, 3.0]])
    assert len(wide.fit_.members) > 2
    assert np.all(wide.predict_latent(far)[1][:, 0, 0] > 0.9 * narrow.predict_latent(far)[1][:, 0, 0])


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_a_skewed_posterior_of_a_hyperparameter_has_two_widths(seed):
    """Against sums over a grid: with one width for both sides the mean moves by less than a quarter of the way."""
    X = np.linspace(0, 1, 25)[:, None]
    y = np.random.default_rng(seed).poisson(np.exp(1 + np.sin(5 * X[:, 0])))
    kernel = ConstantKernel(1.0, "fixed") * RBF(0.3) + ConstantKernel(4.0, "fixed")
    model = GGPRegressor("poisson", kernel, averaging="integrate", inference="laplace").fit(X, y)
    theta, weights = np.array([(member.theta[0], member.weight) for member in model.fit_.members]).T
    grid = theta[0] + np.linspace(-3, 3, 61)
    log_posterior = np.array([model.log_marginal_likelihood([t]) for t in grid])
    shares = np.exp(log_posterior - logsumexp(log_posterior))
    mean, of_design = shares @ grid, weights @ theta
    assert abs(of_design - mean) < 0.6 * abs(theta[0] - mean)
    sd, sd_of_design = np.sqrt(shares @ (grid - mean) ** 2), np.sqrt(weights @ (theta - of_design) ** 2)
    assert 0.7 * sd < sd_of_design < 1.1 * sd  # three points are narrower than tails


def test_an_unknown_average_is_told():
    with pytest.raises(ValueError, match="averaging must be one of 'auto', 'none', 'stack', 'integrate'; got 'mean'"):
        GGPRegressor(averaging="mean").fit(*data())


def test_by_itself_few_rows_of_a_continuous_number_are_averaged():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (40, 2))
    f = np.sin(2 * X[:, 0])
    y = f + 0.3 * rng.normal(size=40)
    shares = np.exp(np.stack([y, 0.2 * rng.normal(size=40), np.zeros(40)], axis=1))  # exact, so that corners are cheap

    def members(family, y, *kernel, averaging="auto"):
        """Of the kernel that is the heaviest, and of all."""
        fits = GGPRegressor(family, *kernel, averaging=averaging).fit(X, y).fit_.members
        parts = [re.sub(r"[\d.,]+", "", str(fit.kernels[0])) for fit in fits]
        return parts.count(parts[0]), len(parts)

    assert members("gaussian", y)[0] == members("gaussian", y, averaging="integrate")[1] > 1
    assert members("gaussian", y, averaging="none") == (1, 1)
    assert members("gaussian", y, RBF()) == (1, 1)  # a kernel that is given is one kernel
    assert members("poisson", rng.poisson(np.exp(f)))[0] == members("von_mises", f)[0] == 1
    assert members("logistic_normal", shares / shares.sum(axis=1, keepdims=True))[0] > 1


def test_means_beyond_the_floats_have_an_infinite_variance_and_no_raw_warning():
    parts = [Predictive(Poisson(), np.array([[m], [0.0]]), np.zeros((2, 1, 1))) for m in (1000.0, 1001.0)]
    both = Mixture(parts, np.array([0.5, 0.5]))
    assert both.mean().tolist() == [np.inf, 1.0] and both.var()[0] == np.inf and both.std()[1] == 1.0


def test_draws_of_rows_are_independent_and_have_the_shares_of_the_members():
    low, high = (Predictive(Poisson(), np.full((3, 1), m), np.zeros((3, 1, 1))) for m in (-5.0, 5.0))
    draws = Mixture([low, high], np.array([0.3, 0.7])).sample(4000, random_state=0)
    assert draws.shape == (4000, 3)
    drawn_high = draws > 50  # a count of exp(-5) is never above, one of exp(5) always
    np.testing.assert_allclose(drawn_high.mean(axis=0), 0.7, atol=4 * np.sqrt(0.21 / 4000))
    assert np.abs(np.corrcoef(drawn_high.T)[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(4000)
    assert np.abs(np.corrcoef(drawn_high[:-1, 0], drawn_high[1:, 0])[0, 1]) < 4 / np.sqrt(4000)
    one = Mixture([low, high], np.array([0.3, 0.7]))
    assert one.sample(random_state=0).shape == (3,) and one.sample(0, random_state=0).shape == (0, 3)


@pytest.mark.parametrize("name", [*NAMES, "logistic_normal", "wishart", "dirichlet_multinomial", "student_t"])
def test_rows_with_weights_of_their_own_answer_as_they_do_alone(name):
    (a, b), _, y = two(name)
    weights = np.array([[1.0, 0.3, 0.3, 1.0, 0.0, 0.3], [0.0, 0.7, 0.7, 0.0, 1.0, 0.7]])
    both = Mixture([a, b], weights)
    alone = [Mixture([a.rows([i]), b.rows([i])], weights[:, i]) for i in range(6)]
    one = [a.rows([0]), alone[1], alone[2], a.rows([3]), b.rows([4]), alone[5]]
    questions = {
        "mean": lambda p, y: p.mean(),
        "var": lambda p, y: p.var(),
        "log_prob": lambda p, y: p.log_prob(y),
        "interval": lambda p, y: p.interval(0.9),
        "mean_interval": lambda p, y: p.mean_interval(0.9),
    }
    if both.family.has("cdf") and name != "dirichlet":
        questions |= {"cdf": lambda p, y: p.cdf(y), "quantile": lambda p, y: p.quantile(0.3)}
    for question, answer in questions.items():
        found = answer(both, y)
        # intervals of mixtures without a distribution function are from draws, of other seeds for other rows
        drawn = question == "interval" and name in ("logistic_normal", "dirichlet_multinomial")
        rtol = {"mean_interval": 2e-3}.get(question, 1e-6)
        for i, p in enumerate(alone if drawn or name == "categorical" else one):
            if not drawn:
                np.testing.assert_allclose(
                    np.asarray(found[i], dtype=float), np.asarray(answer(p, y[i : i + 1])[0], dtype=float), rtol=rtol,
                    atol=1e-6, err_msg=f"{question}, row {i}",
                )  # fmt: skip
    draws = both.sample(4000, 0)
    assert draws.shape[:2] == (4000, 6)
    np.testing.assert_array_equal(np.isnan(both.log_prob(draws[0])), np.zeros(6, dtype=bool))


def test_draws_of_rows_with_weights_of_their_own_have_their_shares():
    parts = [Predictive(Poisson(), np.full((3, 1), m), np.zeros((3, 1, 1))) for m in (-30.0, 3.0)]  # zeros, and 20
    both = Mixture(parts, np.array([[1.0, 0.25, 0.0], [0.0, 0.75, 1.0]]))
    np.testing.assert_allclose(np.mean(both.sample(20000, 0) > 0, axis=0), [0.0, 0.75, 1.0], atol=0.01)
    np.testing.assert_allclose(both.mean(), [0.0, 0.75 * np.exp(3.0), np.exp(3.0)], atol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_rows_have_answers_of_the_right_shape(name):
    family, example = FAMILIES[name]
    family = family.resolve(example)
    D = family.latent_dim

    def mixture(m):
        trials = np.ones(m) if family.countable else None
        part = Predictive(family, np.zeros((m, D)), np.tile(0.1 * np.eye(D), (m, 1, 1)), trials)
        return Mixture([part, part], np.array([0.3, 0.7]))

    for question in ("mean", "var"):
        none, two = (getattr(mixture(m), question)() for m in (0, 2))
        assert none.shape == (0, *two.shape[1:]) and none.dtype == two.dtype


@pytest.mark.parametrize("weighted", [False, True])
def test_an_update_keeps_what_is_averaged_and_what_speaks_for_new_labels(weighted):
    """Every fit that takes part has the posterior of all rows at its own hyperparameters."""
    rng = np.random.default_rng(0)
    firm, x = np.repeat(np.arange(12), 6), rng.normal(size=72)
    X = np.array([[f"firm {k}", v] for k, v in zip(firm, x)], dtype=object)
    y = np.sin(x) + rng.normal(size=12)[firm] + 0.3 * rng.normal(size=72)
    weight = rng.uniform(0.5, 2.0, 72) if weighted else None
    first, later = np.arange(60), np.arange(60, 72)
    model = GGPRegressor("gaussian").fit(X[first], y[first], None if weight is None else weight[first])
    before = model.fit_
    assert before.newcomers and before.others  # ten firms have been seen
    model.update(X[later], y[later], None if weight is None else weight[later])
    after = model.fit_
    assert after.weight == before.weight and len(after.others) == len(before.others)
    assert model.search_ is before.search  # the kernel is the one that was chosen
    pairs = [*zip(after.members, before.members)]
    for now, then in zip(after.newcomers, before.newcomers, strict=True):
        assert (now.column, now.weight) == (then.column, then.weight)
        pairs += zip(now.fit.members, then.fit.members, strict=True)
    encoded = after.evidence.field.X
    for now, then in pairs:
        assert now.weight == then.weight
        np.testing.assert_array_equal(now.theta, then.theta)
        # a Gaussian process by its textbook formula
        noise = now.family.phi / (np.ones(72) if weight is None else weight)
        K = now.kernels[0](encoded)
        want = K @ np.linalg.solve(K + np.diag(noise), y - now.family.origin)
        np.testing.assert_allclose(now.posterior.latent(encoded)[0][:, 0], want, atol=1e-6)
    assert not after.newcomers[0].are(encoded).any()
    assert len(after.averaged(encoded[-1:])) == len(after.members)


@pytest.mark.parametrize("q", [0.05, 0.95])
@pytest.mark.parametrize("wide", [False, True])
def test_tables_of_averages_of_compositions_say_what_those_of_their_parts_do(wide, q):
    """One narrow and one wide part of the same row; latents that are too wide for nodes have laws of their own."""
    family = Dirichlet(link="exp" if wide else "softplus").resolve([[0.2, 0.3, 0.5]])
    mean, eye = np.array([[2.0, 1.0, 0.5], [0.3, -0.2, 0.8]]), np.eye(3)
    broad = np.stack([9.0 * eye, 0.5 * eye]) if wide else np.stack([1.5 * eye, 0.5 * eye])
    parts = [Predictive(family, mean, 0.01 * np.stack([eye, eye])), Predictive(family, mean + 0.3, broad)]
    both = Mixture(parts, np.array([0.7, 0.3]))
    ends = both.quantile(q)  # part by part: they do not sum to one, and `cdf` would refuse them
    of_parts = both.mixed(lambda part: part._kind.cdf(part, ends))
    np.testing.assert_allclose(of_parts, q, atol=3e-5)
    np.testing.assert_allclose(both._kind.cdf(both, ends), of_parts, atol=3e-5)
