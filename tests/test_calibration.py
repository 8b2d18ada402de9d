"""The calibration report: right models look right, wrong ones wrong, for every kind of output."""

import numpy as np
import pytest
from scipy import stats

import ggpm
from cases import FAMILIES, simulate
from ggpm import GGPClassifier, GGPRegressor, families
from ggpm.calibration import Calibration, calibration, coverage_depth


class Fixed:
    """A model whose predictive distribution is given."""

    def __init__(self, family, mean, cov):
        self.family_, self.mean, self.cov = family, mean, cov

    def _codes(self, y):
        return y

    def predict_dist(self, X, offset=None, trials=None):
        return ggpm.Predictive(self.family_, self.mean, self.cov, trials)


def from_itself(name, m, seed=0):
    """A predictive distribution, and outcomes drawn from it."""
    family, example = FAMILIES[name]
    family = family.resolve(example)
    D = family.latent_dim
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(m, D)) + 0.7
    A = 0.3 * rng.normal(size=(m, D, D))
    model = Fixed(family, mean, A @ A.swapaxes(1, 2) + 0.1 * np.eye(D))
    trials = rng.integers(2, 12, m).astype(float) if family.countable else None
    return model, ggpm.Predictive(family, model.mean, model.cov, trials).sample(None, 5)


@pytest.mark.parametrize(
    "name",
    [
        "gaussian",
        "poisson",
        "gamma",
        "categorical",
        *[pytest.param(name, marks=pytest.mark.slow) for name in ("von_mises", "dirichlet", "ordinal")],
    ],
)
def test_outcomes_of_the_model_itself_are_calibrated(name):
    m = 400
    model, y = from_itself(name, m)
    report = calibration(model, np.zeros((m, 1)), y)
    parts = report.pit.reshape(m, -1)
    for j in range(parts.shape[1]):
        assert stats.kstest(parts[:, j], "uniform").pvalue > 1e-3
    for level, found in zip(report.levels, report.coverage):
        error = np.sqrt(level * (1 - level) / m)
        assert found > level - 4 * error
        if not model.family_.support.integer and not model.family_.finite:  # discrete regions hold more than they say
            assert found < level + 4 * error


@pytest.mark.parametrize("name", ["gamma", "multinomial", "von_mises_fisher"])
def test_levels_of_the_smallest_regions_are_uniform(name):
    m = 300
    model, y = from_itself(name, m)
    depth = coverage_depth(model, np.zeros((m, 1)), y)
    assert depth.shape == (m,) and stats.kstest(depth, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_a_report(name):
    model, y = from_itself(name, 4)
    report = calibration(model, np.zeros((4, 1)), y)
    assert len(report.coverage) == 4 and np.isfinite(report.log_loss)
    assert np.isfinite(report.brier) == model.family_.finite
    assert np.isfinite(report.crps) != model.family_.finite
    frame = report.frame
    assert list(frame.columns) == ["value", "ideal", "standard_error"]
    assert "coverage 90%" in frame.index and "log_loss" in frame.index


def test_too_narrow_and_too_wide_are_seen():
    m = 500
    family = families.Gaussian(phi=0.01).resolve(np.zeros(3))
    y = np.random.default_rng(0).normal(size=m)
    coverage = {}
    for scale in (0.3, 1.0, 3.0):
        model = Fixed(family, np.zeros((m, 1)), np.full((m, 1, 1), scale**2))
        coverage[scale] = calibration(model, np.zeros((m, 1)), y).coverage[2]
    assert coverage[0.3] < 0.7 < 0.86 < coverage[1.0] < 0.94 < 0.99 < coverage[3.0]


def test_scores_against_closed_forms():
    m = 200
    family = families.Gaussian(phi=0.5).resolve(np.zeros(3))
    rng = np.random.default_rng(1)
    mean, y = rng.normal(size=m), rng.normal(size=m)
    report = calibration(Fixed(family, mean[:, None], np.full((m, 1, 1), 0.5)), np.zeros((m, 1)), y)
    e = y - mean  # CRPS of the standard normal, Gneiting & Raftery 2007
    expected = np.mean(e * (2 * stats.norm.cdf(e) - 1) + 2 * stats.norm.pdf(e) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(report.crps, expected, atol=0.02)  # 1000 draws
    np.testing.assert_allclose(report.log_loss, -np.mean(stats.norm.logpdf(e)), rtol=1e-10)
    X, labels, _ = simulate("categorical", n=40)
    model = GGPClassifier(optimizer=None).fit(X, labels)
    from sklearn.metrics import log_loss

    report = calibration(model, X, labels)
    p = model.predict_proba(X)
    np.testing.assert_allclose(report.log_loss, log_loss(labels, p), atol=5e-3)  # Sobol nodes of each
    np.testing.assert_allclose(
        report.brier, np.mean(np.sum((p - np.eye(4)[labels.astype(int)]) ** 2, axis=1)), rtol=1e-9
    )


def test_circular_score_is_that_of_the_circle():
    """An angle of pi - 0.1 is near one of -pi + 0.1."""
    family = families.VonMises().resolve(np.zeros(1))
    model = Fixed(family, np.array([[-50.0, 0.0]]), 1e-4 * np.eye(2)[None])
    near = calibration(model, np.zeros((1, 1)), np.array([-np.pi + 0.1])).crps
    far = calibration(model, np.zeros((1, 1)), np.array([0.0])).crps
    assert near < 0.15 and far > 2.5


def test_picture_and_exports():
    model, y = from_itself("poisson", 30)
    report = ggpm.calibration(model, np.zeros((30, 1)), y)
    assert isinstance(report, Calibration)
    left, right = report.plot()
    assert left.get_xlabel() == "promised coverage" and right.get_xlabel() == "probability integral transform"
    np.testing.assert_allclose(report.pit_histogram(5).mean(), 1.0)
    with pytest.raises(ValueError, match="rows"):
        ggpm.calibration(GGPRegressor(optimizer=None).fit(np.zeros((3, 1)), np.zeros(3)), np.zeros((3, 1)), np.zeros(4))
