"""Labels that no training row has: levels of the others, and what is known without them."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

from ggpm import GGPClassifier, GGPRegressor, load, save
from ggpm.estimators.newcomers import FEWEST_LABELS
from ggpm.kernels import used_columns
from ggpm.learning.journal import Journal
from ggpm.prediction.compare import stacking_weights


def table(rng, groups=24, each=5, within=-1.0, between=2.0, noise=0.3):
    """Rows whose groups differ in x, and y that rises with x between groups and falls within them."""
    g = np.repeat(np.arange(groups), each)
    centre = rng.normal(size=groups)
    x = centre[g] + 0.4 * rng.normal(size=len(g))
    y = between * centre[g] + within * (x - centre[g]) + noise * rng.normal(size=len(g))
    return pd.DataFrame({"x": x, "site": [f"site {k:02d}" for k in g]}), y


def others(X):
    return X.assign(site=[f"another {label}" for label in X["site"]])


@pytest.fixture(scope="module")
def model():
    X, y = table(np.random.default_rng(0))
    return GGPRegressor(averaging="auto", recalibration="none").fit(X, y), X, y  # laws: test_recalibration.py


def both_fits(fitted, X):
    return fitted.fit_.averaged(quiet(fitted.fit_.columns.encode, X))


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def test_what_levels_get_wrong_about_new_labels_is_mended(model):
    fitted, _, _ = model
    X, y = table(np.random.default_rng(1), groups=60)
    levels = GGPRegressor.from_fit(fitted.get_params(), replace(fitted.fit_, newcomers=()))
    gain = [quiet(m.predict_dist, others(X)).log_prob(y).mean() for m in (levels, fitted)]
    assert gain[1] > gain[0] + 0.05
    assert fitted.fit_.newcomers[0].weight > 0.5
    assert not used_columns(fitted.fit_.newcomers[0].fit.kernels, 2)[1]


def test_levels_that_are_right_keep_their_say():
    rng = np.random.default_rng(3)
    X, y = table(rng, within=1.0, between=1.0)
    y = y + np.repeat(rng.normal(size=24), 5)
    fitted = GGPRegressor(averaging="auto").fit(X, y)
    assert fitted.fit_.newcomers[0].weight < 0.5


def test_known_labels_do_not_notice(model):
    fitted, X, y = model
    levels = GGPRegressor.from_fit(fitted.get_params(), replace(fitted.fit_, newcomers=()))
    np.testing.assert_array_equal(fitted.predict_dist(X).log_prob(y), levels.predict_dist(X).log_prob(y))
    np.testing.assert_array_equal(fitted.predict(X), levels.predict(X))
    assert fitted.loo().total == levels.loo().total


def test_new_labels_are_averaged_and_known_ones_beside_them_are_not(model):
    fitted, X, y = model
    some = pd.concat([X[:3], others(X[3:6])], ignore_index=True)
    main, other = fitted.fit_, fitted.fit_.newcomers[0].fit
    parts = [
        quiet(GGPRegressor.from_fit(fitted.get_params(), replace(fit, newcomers=())).predict_dist, some)
        for fit in (main, other)
    ]
    found = quiet(fitted.predict_dist, some)
    w = fitted.fit_.newcomers[0].weight
    densities = [p.log_prob(y[:6]) for p in parts]
    averaged = logsumexp(densities, axis=0, b=np.array([[1 - w], [w]]))
    np.testing.assert_allclose(found.log_prob(y[:6]), np.where(np.arange(6) < 3, densities[0], averaged), rtol=1e-9)
    means = [p.mean() for p in parts]
    np.testing.assert_allclose(found.mean()[3:], ((1 - w) * means[0] + w * means[1])[3:], rtol=1e-9)
    ends = found.interval(0.8)
    for q, end in zip((0.1, 0.9), ends.T):
        np.testing.assert_allclose(found.cdf(end), q, atol=1e-6)  # where searches for quantiles end
    latent = quiet(fitted.predict_latent, some)[0]
    np.testing.assert_allclose(latent, found.latent_mean)
    terms = sum(mean for mean, _ in quiet(fitted.terms, some).values())
    np.testing.assert_allclose(terms + fitted.family_.origin, latent, atol=1e-9)


def test_joint_draws_have_the_moments_of_both(model):
    fitted, X, _ = model
    some = pd.concat([X[:2], others(X[2:4])], ignore_index=True)
    draws = quiet(fitted.sample_y, some, 6000)
    found = quiet(fitted.predict_dist, some)
    assert np.all(np.abs(draws.mean(axis=1) - found.mean()) < 5 * np.sqrt(found.var() / 6000))
    np.testing.assert_allclose(draws.var(axis=1), found.var(), rtol=0.1)


def test_files_and_pickles_keep_them(model, tmp_path):
    fitted, X, y = model
    save(fitted, tmp_path / "m.ggpm")
    expected = quiet(fitted.predict_dist, others(X)).log_prob(y)
    for again in (load(tmp_path / "m.ggpm"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(quiet(again.predict_dist, others(X)).log_prob(y), expected)
        assert repr(again.search_) == repr(fitted.search_)


def test_groups_that_are_left_out_are_new(model):
    """Leaving out the labels themselves asks for new ones, leaving out halves of every label for known ones."""
    fitted, X, _ = model
    levels = GGPRegressor.from_fit(fitted.get_params(), replace(fitted.fit_, newcomers=()))
    assert fitted.loo(groups=X["site"]).mean > levels.loo(groups=X["site"]).mean + 0.05
    halves = np.arange(len(X)) % 2
    np.testing.assert_array_equal(fitted.loo(groups=halves).pointwise, levels.loo(groups=halves).pointwise)


def test_the_table_tells_of_both_contests(model):
    fitted, _, _ = model
    text = repr(fitted.search_)
    assert "without site, for labels that are new:" in text
    names = [trial.name for trial in fitted.search_ if trial.kept and not trial.without]
    assert fitted.search_.winner == names[-1]
    assert set(fitted.search_.to_frame()["without"]) == {"", "site"}


def test_few_labels_and_single_kernels_have_none():
    rng = np.random.default_rng(0)
    X, y = table(rng, groups=FEWEST_LABELS - 1, each=8)
    assert GGPRegressor().fit(X, y).fit_.newcomers == ()
    X, y = table(rng)
    assert GGPRegressor(averaging="none").fit(X, y).fit_.newcomers == ()


def test_a_table_of_labels_alone_has_a_constant_beside_them():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 4)
    y = (rng.uniform(size=80) < 1 / (1 + np.exp(-2 * rng.normal(size=20)[labels]))).astype(int)
    X = pd.DataFrame({"site": [f"site {k:02d}" for k in labels]})
    fitted = GGPClassifier().fit(X, y)
    assert len(fitted.fit_.newcomers) == 1
    new = quiet(fitted.predict_proba, pd.DataFrame({"site": ["site xx", "site 00"]}))
    np.testing.assert_allclose(new.sum(axis=1), 1.0)


def test_rows_that_count_twice_weigh_as_two():
    densities = np.log(np.random.default_rng(0).uniform(0.1, 1.0, (30, 3)))
    count = np.random.default_rng(1).integers(1, 4, 30)
    np.testing.assert_allclose(
        stacking_weights(densities, count), stacking_weights(np.repeat(densities, count, axis=0)), atol=1e-6
    )


def test_labels_of_two_columns_may_be_new(tmp_path):
    rng = np.random.default_rng(5)
    X, y = table(rng)
    X["year"] = [f"year {k}" for k in rng.permutation(np.arange(120) % 10)]
    fitted = GGPRegressor().fit(X, y)
    site, year = fitted.fit_.newcomers
    assert [other.column for other in (site, year)] == [1, 2]
    new = pd.concat([X[:1], others(X[:1]), X[:1].assign(year="x"), others(X[:1]).assign(year="x")], ignore_index=True)
    encoded = quiet(fitted.fit_.columns.encode, new)
    weights = {id(fit): weight for weight, fit in fitted.fit_.averaged(encoded)}
    shares = [sum(weights[id(fit)] for fit in other.fit.members) for other in (site, year)]
    np.testing.assert_allclose(shares, [[0, site.weight, 0, site.weight], [0, 0, year.weight, 0]])
    np.testing.assert_allclose(sum(weights.values()), 1.0)
    save(fitted, tmp_path / "two.ggpm")
    again = load(tmp_path / "two.ggpm")
    np.testing.assert_array_equal(quiet(again.predict, new), quiet(fitted.predict, new))


def test_labels_that_were_declared_but_are_in_no_row_are_new():
    X, y = table(np.random.default_rng(0))
    declared = pd.CategoricalDtype(sorted({*X["site"], "site 98", "site 99"}))
    fitted = GGPRegressor().fit(X.astype({"site": declared}), y)
    some = X[:2].assign(site=["site 00", "site 99"])
    encoded = fitted.fit_.columns.encode(some.astype({"site": declared}))
    np.testing.assert_array_equal(fitted.fit_.newcomers[0].are(encoded), [False, True])


def test_known_labels_are_answered_as_if_they_were_alone():
    """Regions of single fits come from tables, those of averages from draws: rows that are no averages have tables."""
    rng = np.random.default_rng(0)
    X, f = table(rng, groups=12)
    p = np.exp(np.stack([f, -f, 0 * f], axis=1))
    counts = np.array([rng.multinomial(40, row / row.sum()) for row in p])
    some = pd.concat([X[:2], others(X[2:3]), X[3:5]], ignore_index=True)
    known = [0, 1, 3, 4]
    fitted = GGPRegressor("multinomial", averaging="none").fit(X, counts)
    both, alone = quiet(fitted.predict_dist, some, trials=40), fitted.predict_dist(some.iloc[known], trials=40)
    for answer in (lambda d: d.interval(0.8), lambda d: d.mean_interval(0.8), lambda d: d.var()):
        np.testing.assert_allclose(answer(both)[known], answer(alone), rtol=1e-12)  # rounding
    counts = counts.astype(float)
    counts[:5, 0] = np.nan  # what is left is a count of successes
    one = quiet(fitted.log_predictive_density, some, counts[:5])
    weights, fits = zip(*both_fits(fitted, some))
    models = [GGPRegressor.from_fit(fitted.get_params(), replace(fit, newcomers=())) for fit in fits]
    each = [quiet(m.log_predictive_density, some, counts[:5]) for m in models]
    np.testing.assert_allclose(one, np.log(np.sum(weights * np.exp(each), axis=0)), rtol=1e-9)
    fitted = GGPRegressor("gamma").fit(X, np.exp(f))
    levels = GGPRegressor.from_fit(fitted.get_params(), replace(fitted.fit_, others=(), weight=1.0))
    both, alone = quiet(levels.predict_dist, some), levels.predict_dist(some.iloc[known])
    regions = [d.highest_density(0.8).log_threshold for d in (both, alone)]
    np.testing.assert_allclose(regions[0][known], regions[1], rtol=1e-12)
    np.testing.assert_allclose(both.log_prob(np.ones(5))[known], alone.log_prob(np.ones(4)), rtol=1e-12)


def test_no_rows_of_an_average(model):
    fitted, X, _ = model
    none = quiet(fitted.predict_dist, others(X[:3])).rows(np.zeros(3, dtype=bool))
    assert none.interval(0.9).shape == (0, 2)
    assert none.sample(4).shape == (4, 0)


def test_what_was_stopped_in_one_contest_goes_on_in_the_same(tmp_path):
    X, y = table(np.random.default_rng(0), groups=10)
    whole = GGPRegressor().fit(X, y).search_
    for stopped in (True, False):
        fitted = GGPRegressor()
        fitted.journal = Journal(tmp_path / "m.part", "a")
        fitted.journal.stopped = stopped
        quiet(fitted.fit, X, y)
        fitted.journal.close()
    assert [(t.name, t.without, round(t.score, 9)) for t in fitted.search_] == [
        (t.name, t.without, round(t.score, 9)) for t in whole
    ]
