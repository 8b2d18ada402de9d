"""Sharpening: powers of class probabilities against brute force, and all answers of the predictions that have them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import integrate
from sklearn.datasets import load_wine
from sklearn.gaussian_process.kernels import RBF

import ggpm
from ggpm import GGPClassifier, GGPOrdinalClassifier, Predictive, families
from ggpm.learning.sharpening import SPREADS, Sharpening, sharpening
from ggpm.prediction.mixture import Mixture
from ggpm.prediction.sharpened import Sharpened

FAMILIES = {
    "two classes": families.Bernoulli(),
    "classes": families.Categorical(n_classes=4).resolve(np.arange(4)),
    "grades": families.Ordinal(phi=[-1.0, 0.0, 1.5]),
}


def sharp(name, m=3, mixed=False):
    """Rows with the powers 2, 1 and 0.5 in turn."""
    family = FAMILIES[name]
    D = family.latent_dim
    mean = np.linspace(-1.0, 1.5, m)[:, None] + 0.5 * np.arange(D)
    cov = np.broadcast_to(0.4 * np.eye(D), (m, D, D))
    base = Predictive(family, mean, cov)
    if mixed:
        base = Mixture([base, Predictive(family, mean[:, ::-1] + 0.6, 0.5 * cov)], np.array([0.6, 0.4]))
    return Sharpened(base, [Sharpening(2.0), Sharpening(), Sharpening(0.5)], np.arange(m) % 3)


def drawn(said, power, rng):
    """Classes of which the probabilities to a power are right."""
    right = Sharpening(power)(said)
    return np.sum(rng.uniform(size=(len(said), 1)) > np.cumsum(right, axis=1)[:, :-1], axis=1)


# ---- the power -------------------------------------------------------------------------------------------------------
def test_log_odds_are_so_many_times_what_they_were():
    p = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]])
    q = Sharpening(3.0)(p)
    np.testing.assert_allclose(q[0], p[0] ** 3 / np.sum(p[0] ** 3))
    np.testing.assert_allclose(q[1], [1.0, 0.0, 0.0], atol=1e-300)
    np.testing.assert_allclose(Sharpening()(p), p, atol=1e-300)


def test_learned_power_is_its_posterior_mode_averaged_over_priors():
    """By quadrature over the power; Laplace's approximation of each evidence is close for 150 rows."""
    rng = np.random.default_rng(0)
    said = rng.dirichlet(np.ones(3), 150)
    codes = drawn(said, 1.4, rng)

    def likelihood(t):
        return np.sum(Sharpening(np.exp(t)).log(said)[np.arange(150), codes] - np.log(said[np.arange(150), codes]))

    grid = np.linspace(-2.0, 2.0, 4001)
    values = np.array([likelihood(t) for t in grid])
    evidence, modes = [1.0], []
    for tau in SPREADS:
        prior = np.exp(-0.5 * (grid / tau) ** 2) / np.sqrt(2 * np.pi) / tau
        evidence.append(integrate.simpson(np.exp(values) * prior, x=grid))
        modes.append(grid[np.argmax(values - 0.5 * (grid / tau) ** 2)])
    expected = np.dot(evidence[1:], modes) / np.sum(evidence)
    assert np.log(sharpening(said, codes).power) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize("power", [0.6, 2.0])
def test_power_of_many_rows_is_the_right_one_and_weights_are_repetitions(power):
    rng = np.random.default_rng(1)
    said = rng.dirichlet(np.ones(4), 4000)
    codes = drawn(said, power, rng)
    assert sharpening(said, codes).power == pytest.approx(power, rel=0.06)
    few = slice(0, 100)
    twice = sharpening(np.repeat(said[few], 2, axis=0), np.repeat(codes[few], 2))
    assert sharpening(said[few], codes[few], np.full(100, 2.0)).power == pytest.approx(twice.power, rel=1e-6)


def test_next_to_nothing_is_learned_where_nothing_is_wrong():
    rng = np.random.default_rng(2)
    gains = []
    for n in (40, 400):
        for _ in range(20):
            said, new = rng.dirichlet(np.ones(3), n), rng.dirichlet(np.ones(3), 2000)
            law, codes = sharpening(said, drawn(said, 1.0, rng)), drawn(new, 1.0, rng)
            change = 0.0 if law is None else law.log(new)[np.arange(2000), codes] - np.log(new[np.arange(2000), codes])
            gains.append(np.mean(change))
    assert np.mean(gains) > -0.002 and min(gains) > -0.03
    assert sum(gain == 0.0 for gain in gains) > 10


# ---- predictions -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_all_answers_are_those_of_the_new_probabilities(name, mixed):
    p = sharp(name, mixed=mixed)
    before, q = p.base.probabilities(), p.probabilities()
    for i, power in enumerate((2.0, 1.0, 0.5)):
        np.testing.assert_allclose(q[i], before[i] ** power / np.sum(before[i] ** power), rtol=1e-12)
    codes = np.arange(q.shape[1])
    for i in range(3):
        row = p.rows(np.full(len(codes), i))
        np.testing.assert_allclose(np.exp(row.log_prob(codes)), q[i], rtol=1e-12)
        np.testing.assert_allclose(row.log_prob(codes), row.base.log_prob(codes) + row.log_ratio(codes), rtol=1e-12)
    np.testing.assert_allclose(p.mean(), q[:, 1] if name == "two classes" else q)
    expected = q[:, 1] * q[:, 0] if name == "two classes" else q[:, :, None] * (np.eye(4) - q[:, None, :])
    np.testing.assert_allclose(p.var(), expected, atol=1e-15)
    order, best = p.top_k(1)
    np.testing.assert_allclose(best[:, 0], q.max(axis=1))
    np.testing.assert_array_equal(order[:, 0], before.argmax(axis=1))  # the most probable class stays so
    chosen = p.interval(0.8)
    assert np.all((q * chosen).sum(axis=1) >= 0.8)
    low, high = np.moveaxis(p.mean_interval(0.9), -1, 0)
    assert np.all((low <= p.mean()) & (p.mean() <= high) & (low >= 0) & (high <= 1))
    np.testing.assert_allclose(p.mean_interval(0.9)[1], p.base.mean_interval(0.9)[1], rtol=1e-9)
    if name != "classes":
        np.testing.assert_allclose(p.cdf(0), q[:, 0])
        np.testing.assert_array_equal(p.quantile(0.5), np.sum(np.cumsum(q, axis=1)[:, :-1] < 0.5, axis=1))
    assert repr(p).startswith("Sharpened(") and len(p.rows(slice(0, 0)).mean()) == 0


def test_interval_of_a_probability_of_two_classes_is_that_of_its_log_odds():
    p = sharp("two classes")
    odds = [x / (1.0 - x) for x in (p.base.mean_interval(0.9)[0], p.mean_interval(0.9)[0])]
    np.testing.assert_allclose(odds[1], odds[0] ** 2, rtol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_have_the_new_probabilities_and_keep_what_rows_have_in_common(name):
    p, n = sharp(name), 20_000
    rng = np.random.default_rng(0)
    for draws in (p.sample(n, 1), p.in_the_order_of(p.base.sample(n, 2), rng)):
        for i in range(3):
            found = np.bincount(draws[:, i].astype(int), minlength=p.probabilities().shape[1]) / n
            np.testing.assert_allclose(found, p.probabilities()[i], atol=4 * 0.5 / np.sqrt(n))
    assert p.sample(None, 0).shape == (3,) and p.sample(0).shape == (0, 3)
    # of draws in which rows are alike, those with the same power stay alike where nothing is refused
    same = p.rows([1, 1])
    together = np.repeat(p.base.rows([1]).sample(n, 3), 2, axis=1)
    again = same.in_the_order_of(together, rng)
    np.testing.assert_array_equal(again, together)


# ---- models ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def wine():
    """Classes that are far apart: probabilities are too cautious."""
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], np.array(["barolo", "grignolino", "barbera"])[y[order]]
    return X, y, GGPClassifier().fit(X[:89], y[:89])


def test_default_model_is_sharpened_and_better_for_it(wine):
    X, y, model = wine
    plain = GGPClassifier(recalibration="none").fit(X[:89], y[:89])
    assert plain.fit_.recalibration is None and model.fit_.recalibration.power > 1.5
    new = X[89:], y[89:]
    gain = model.log_predictive_density(*new) - plain.log_predictive_density(*new)
    assert gain.mean() > 0.01
    np.testing.assert_array_equal(model.predict(new[0]), plain.predict(new[0]))
    assert model.loo().total > plain.loo().total + 1.0
    assert "recalibrated" in str(model)


def test_files_frames_draws_and_updates_keep_it(wine, tmp_path):
    X, y, model = wine
    ggpm.save(model, tmp_path / "model.ggpm")
    again = ggpm.load(tmp_path / "model.ggpm")
    assert again.fit_.recalibration == model.fit_.recalibration
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    p = model.predict_dist(X[89:92])
    np.testing.assert_array_equal(model.predict_proba(X[89:92]), p.probabilities())
    draws = model.sample_y(X[89:92], 4000, random_state=0)
    for i in range(3):
        found = [np.mean(draws[i] == label) for label in model.classes_]
        np.testing.assert_allclose(found, p.probabilities()[i], atol=0.04)
    table = model.summary(X[89:92])
    np.testing.assert_allclose(table[[f"p_{label}" for label in model.classes_]], p.probabilities())
    assert again.update(X[89:91], y[89:91]).fit_.recalibration == model.fit_.recalibration
    assert abs(ggpm.calibration(model, X[89:], y[89:]).pit.mean() - 0.5) < 0.15


def test_partitions_are_sharpened_too(wine):
    dask_array = pytest.importorskip("dask.array")
    X, _, model = wine
    lazy = model.predict_proba(dask_array.from_array(X[89:], chunks=(40, X.shape[1])))
    np.testing.assert_allclose(lazy.compute(), model.predict_proba(X[89:]), rtol=1e-7)


@pytest.mark.parametrize("packed", [{"power": 0.0}, {"power": 1e9}, {"power": "2"}, {"coefficients": [0.1]}, 2.0])
def test_a_file_with_another_power_is_refused(packed):
    from ggpm.persistence.fits import law_of

    with pytest.raises(ggpm.LoadError):
        law_of({"recalibration": packed}, families.Bernoulli())


def test_given_kernels_and_few_rows_are_left_alone_unless_asked(wine):
    X, y, _ = wine
    assert GGPClassifier(RBF(50.0)).fit(X[:89], y[:89]).fit_.recalibration is None
    kernel = 4.0 * RBF(100.0, "fixed")
    assert GGPClassifier(kernel, recalibration="loo").fit(X[:89], y[:89]).fit_.recalibration is not None
    assert GGPClassifier().fit(X[:30], y[:30]).fit_.recalibration is None
    with pytest.raises(ValueError, match="recalibration must be one of 'auto', 'none', 'loo'; got 2"):
        GGPOrdinalClassifier(recalibration=2).fit(X[:30], y[:30])


def test_few_places_with_many_rows_each_are_left_as_they_are():
    """Rows with the same inputs and class are not left out together: the others there would all be of other classes."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.arange(8.0), 25)[:, None]
    y = np.array([rng.choice(3, p=p) for p in 1.0 / 3.0 + np.outer(np.sin(X[:, 0]), [0.2, 0.0, -0.2])])
    settings = {"kernel": RBF(1.7), "optimizer": None, "recalibration": "loo"}
    model = GGPClassifier(**settings).fit(X, y)
    assert model.fit_.recalibration.power > 0.8  # 0.14 if they were
    # a table of distinct rows with how often each was seen is the same model
    cells, count = np.unique(np.column_stack([X, y]), axis=0, return_counts=True)
    short = GGPClassifier(**settings).fit(cells[:, :1], cells[:, 1].astype(int), sample_weight=count)
    np.testing.assert_allclose(short.predict_proba(X[::25]), model.predict_proba(X[::25]), rtol=1e-5)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_rows_of_a_weight_are_left_without_one_of_their_copies(power):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = (X[:, 0] + 0.3 * rng.normal(size=60) > 0).astype(int)
    if power < 1.0:  # the wrong ones are wrong more often than is said
        y[rng.choice(60, 15, replace=False)] ^= 1
    kernel = 100.0 * RBF(0.3) if power < 1.0 else 0.3 * RBF(3.0)
    count = rng.integers(1, 4, 60)
    weighed = GGPClassifier(kernel, optimizer=None, recalibration="loo").fit(X, y, sample_weight=count)
    long = GGPClassifier(kernel, optimizer=None, recalibration="loo").fit(
        np.repeat(X, count, axis=0), np.repeat(y, count)
    )
    assert (weighed.fit_.recalibration.power > 1.0) == (power > 1.0)
    assert weighed.fit_.recalibration.power == pytest.approx(long.fit_.recalibration.power, rel=1e-4)


def test_new_labels_have_a_power_of_their_own(tmp_path):
    rng = np.random.default_rng(3)
    place = np.repeat(np.arange(30), 5)
    X = pd.DataFrame({"x": rng.normal(size=150), "place": [f"place {k}" for k in place]})
    y = rng.normal(size=30)[place] + 4.0 * X["x"] + rng.logistic(size=150) > 0
    model = GGPClassifier().fit(X, y)
    (new,) = model.fit_.newcomers
    both = Sharpening(2.0), Sharpening(0.5)
    model.fit_ = replace(model.fit_, recalibration=both[0], newcomers=(replace(new, recalibration=both[1]),))
    with pytest.warns(UserWarning, match="not seen in fit"):
        p = model.predict_dist(pd.concat([X[:2], X[:2].assign(place="another")]))
    assert [p.laws[k] for k in p.which] == [both[0], both[0], both[1], both[1]]
    ggpm.save(model, tmp_path / "model.ggpm")
    again = ggpm.load(tmp_path / "model.ggpm").fit_
    assert (again.recalibration, again.newcomers[0].recalibration) == both
