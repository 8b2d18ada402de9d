"""Grades as classes: a softmax of the same grades, in an average with models of their order."""

import pickle

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPOrdinalClassifier, GGPRegressor, compare, conformal, load, save
from ggpm.estimators.averaging import weighed
from ggpm.families import Categorical, Ordinal
from ggpm.learning.as_classes import as_classes
from ggpm.learning.contest import Contest, Finalist, SearchTable
from ggpm.learning.sharpening import Sharpening
from ggpm.prediction.mixture import Mixture
from ggpm.prediction.predictive import Predictive


def disordered(n, seed=0):
    """Three grades whose lowest and highest are likely in the middle of the first column and rare outside."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    outer = rng.uniform(size=n) < np.where(np.abs(X[:, 0]) < 1, 0.9, 0.2)
    return X, np.where(outer, 2.0 * rng.integers(0, 2, size=n), 1.0)


@pytest.fixture(scope="module")
def model():
    fitted = GGPRegressor("ordinal").fit(*disordered(90))
    assert {type(member.family) for member in fitted.fit_.others} >= {Categorical}
    return fitted


def test_averages_of_grades_and_classes_answer_by_sums_over_the_parts():
    rng, family = np.random.default_rng(0), Ordinal(phi=[-1.0, 0.2])
    grades = [Predictive(family, rng.normal(size=(5, 1)), s * np.ones((5, 1, 1))) for s in (0.1, 0.4)]
    classes = Predictive(
        Categorical(3).resolve([0, 1, 2]), rng.normal(size=(5, 3)), np.tile(0.3 * np.eye(3), (5, 1, 1))
    )
    parts, weights = [grades[0], classes, grades[1]], np.array([0.2, 0.5, 0.3])
    both, y = Mixture(parts, weights), np.array([0.0, 1.0, 2.0, 2.0, 0.0])
    assert both.family is family
    expected = sum(w * part.probabilities() for w, part in zip(weights, parts))
    np.testing.assert_allclose(both.probabilities(), expected, rtol=1e-12)
    np.testing.assert_allclose(
        both.log_prob(y), logsumexp([np.log(w) + p.log_prob(y) for w, p in zip(weights, parts)], axis=0), rtol=1e-12
    )
    np.testing.assert_allclose(np.exp(both.log_prob(y)), expected[np.arange(5), y.astype(int)], rtol=1e-6)
    np.testing.assert_allclose(both.cdf(y), np.cumsum(expected, axis=1)[np.arange(5), y.astype(int)], rtol=1e-12)
    np.testing.assert_array_equal(both.quantile(0.5), np.sum(np.cumsum(expected, axis=1) < 0.5, axis=1))
    np.testing.assert_allclose(both.latent_mean, 0.4 * grades[0].latent_mean + 0.6 * grades[1].latent_mean, atol=1e-14)
    np.testing.assert_allclose(both.rows([3, 1]).probabilities(), expected[[3, 1]], rtol=1e-12)
    share = np.mean(both.sample(20000, 0) == 1.0, axis=0)
    np.testing.assert_allclose(share, expected[:, 1], atol=5 * 0.5 / np.sqrt(20000))


def test_distribution_functions_of_mixtures_of_grades_are_those_of_their_parts_between_grades_and_beyond():
    family = Ordinal(phi=[-1.0, 0.2])
    parts = [Predictive(family, np.full((5, 1), m), np.ones((5, 1, 1))) for m in (-0.5, 0.8)]
    both = Mixture(parts, np.array([0.3, 0.7]))
    one, two = (part.cdf(np.arange(3.0)[[0, 1, 2, 0, 2]]) for part in parts)
    np.testing.assert_allclose(both.cdf([0.0, 1.0, 2.0, 0.0, 2.0]), 0.3 * one + 0.7 * two, rtol=1e-12)


def test_what_one_latent_cannot_say_classes_say(model):
    X, y = disordered(400, seed=1)
    alone = GGPRegressor("ordinal", averaging="none").fit(*disordered(90))
    assert np.mean(model.log_predictive_density(X, y) - alone.log_predictive_density(X, y)) > 0.05
    assert any(trial.name.endswith("as classes") for trial in model.search_)
    assert not any(trial.name.endswith("as classes") for trial in alone.search_)
    assert type(model.family_) is Ordinal and model.kernel_ == model.fit_.kernels[0]


def test_a_model_of_both_is_a_model(model, tmp_path):
    X, y = disordered(30, seed=2)
    assert sum(fit.weight for fit in model.fit_.members) == pytest.approx(1.0)
    distribution = model.predict_dist(X)
    np.testing.assert_allclose(distribution.probabilities().sum(axis=1), 1.0, atol=1e-8)
    assert model.predict_latent(X)[0].shape == (30, 1)
    own = [fit for fit in model.fit_.members if type(fit.family) is Ordinal]
    latent = sum(fit.weight * fit.posterior.latent(X)[0] for fit in own) / sum(fit.weight for fit in own)
    np.testing.assert_allclose(model.predict_latent(X)[0], latent, atol=1e-12)
    np.testing.assert_allclose(sum(mean for mean, _ in model.terms(X).values()), latent, atol=1e-8)
    save(model, tmp_path / "m.ggpm")
    for again in (load(tmp_path / "m.ggpm"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_dist(X).log_prob(y), distribution.log_prob(y))
        assert again.loo().mean == pytest.approx(model.loo().mean, abs=1e-4)  # sites are searched again
    draws = model.sample_y(X, 4000, random_state=0)
    share = np.mean(draws == 1.0, axis=1)
    np.testing.assert_allclose(share, distribution.probabilities()[:, 1], atol=5 * 0.5 / np.sqrt(4000))
    assert conformal(model, X, y).predict_dist(X).interval(0.8).shape == (30, 3)
    assert len(compare({"a": model, "b": model})) == 2


def test_an_offset_speaks_to_grades_alone(model):
    X, _ = disordered(20, seed=3)
    own = [fit for fit in model.fit_.members if type(fit.family) is Ordinal]
    parts = [Predictive(fit.family, fit.posterior.latent(X)[0] + 0.5, fit.posterior.latent(X)[1]) for fit in own]
    expected = sum(fit.weight * p.probabilities() for fit, p in zip(own, parts)) / sum(fit.weight for fit in own)
    law = model.fit_.recalibration or Sharpening()
    np.testing.assert_allclose(model.predict_dist(X, offset=0.5).probabilities(), law(expected), rtol=1e-10)
    assert model.sample_y(X, 3, offset=0.5).shape == (20, 3)


def test_classes_get_new_rows_too(model):
    X, y = disordered(20, seed=4)
    updated = pickle.loads(pickle.dumps(model)).update(X, y)
    kinds = [(type(fit.family), round(fit.weight, 12)) for fit in model.fit_.members]
    assert [(type(fit.family), round(fit.weight, 12)) for fit in updated.fit_.members] == kinds
    classes = next(fit for fit in updated.fit_.members if type(fit.family) is Categorical)
    assert classes.evidence.field.y.shape == (110, 3) and classes.posterior.inputs.shape == (110, 2)
    weighted = pickle.loads(pickle.dumps(model)).update(X, y, sample_weight=np.ones(20))
    np.testing.assert_allclose(
        weighted.predict_dist(X).probabilities(), updated.predict_dist(X).probabilities(), atol=1e-5
    )
    moved = pickle.loads(pickle.dumps(model)).update(X, y, offset=np.full(20, 0.1))
    assert {type(fit.family) for fit in moved.fit_.members} == {Ordinal}
    assert sum(fit.weight for fit in moved.fit_.members) == pytest.approx(1.0)


def test_classes_take_nothing_from_what_other_grades_have_earned():
    """Each finalist's densities of 40 rows are given: the classes' are much worse in half of them."""
    rng = np.random.default_rng(0)
    first, better = rng.normal(-1.0, 0.1, size=40), rng.normal(-0.9, 0.1, size=40)
    worse = np.where(np.arange(40) % 2, -0.5, -2.5)
    grades, classes = Ordinal(phi=[0.0, 1.0]), Categorical(3)
    finalists = [
        Finalist(name, [], family, None, np.arange(40), judged, 0.0, np.ones(40), np.eye(0), 0.0, judged)
        for name, family, judged in (("a", grades, first), ("classes", classes, worse), ("b", grades, better))
    ]
    alone = weighed(Contest(SearchTable(()), (finalists[0], finalists[2])))
    both = weighed(Contest(SearchTable(()), tuple(finalists)))
    assert [finalist.name for finalist in both.finalists] == [*(f.name for f in alone.finalists), "classes"]
    assert sum(both.weights) == pytest.approx(1.0) and 0.05 <= both.weights[-1] < 0.5
    np.testing.assert_allclose(np.array(both.weights[:-1]) / (1.0 - both.weights[-1]), alone.weights, rtol=1e-12)


def test_labels_of_any_kind():
    X, y = disordered(90)
    labels = np.array(["low", "mid", "high"])[y.astype(int)]
    model = GGPOrdinalClassifier(order=["low", "mid", "high"]).fit(X, labels)
    assert any(type(fit.family) is Categorical for fit in model.fit_.members)
    assert set(model.sample_y(X[:5], 20).ravel()) <= {"low", "mid", "high"}
    assert np.mean(model.predict(X) == labels) > 0.5


def test_rows_of_weight_two_are_rows_twice():
    X, y = disordered(30)
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 3, size=30)
    kernel, held = ConstantKernel(1.0) * RBF(1.0), {"optimizer": None, "inference": "laplace"}
    given = GGPRegressor("ordinal", kernel, **held)
    weighted = as_classes(given.fit(X, y, sample_weight=counts).fit_.evidence)
    copied = as_classes(
        GGPRegressor("ordinal", kernel, **held).fit(X.repeat(counts, 0), y.repeat(counts)).fit_.evidence
    )
    assert weighted.infer().log_evidence == pytest.approx(copied.infer().log_evidence, rel=1e-8)


def test_others_have_no_classes():
    X, y = disordered(30)
    kernel = RBF(1.0)
    for model in (
        GGPRegressor("ordinal", kernel, optimizer=None).fit(X, y > 0),
        GGPRegressor("ordinal", kernel, optimizer=None).fit(X, y, offset=np.linspace(0, 1, 30)),
        GGPRegressor("ordinal", kernel, optimizer=None, inference="taylor").fit(X, y),
        GGPRegressor("ordinal", kernel, optimizer=None, inducing=5).fit(X, y),
        GGPRegressor("poisson", kernel, optimizer=None).fit(X, y),
        GGPRegressor("ordinal", kernel, optimizer=None).fit(X, np.arange(30) % 20),
    ):
        assert as_classes(model.fit_.evidence) is None


def test_stacking_with_neighbours_hears_grades_alone():
    model = GGPRegressor("ordinal", neighbours=8, averaging="stack").fit(*disordered(60))
    assert {type(fit.family) for fit in model.fit_.members} == {Ordinal}
    assert sum(fit.weight for fit in model.fit_.members) == pytest.approx(1.0)
