"""The calibration report: right models look right, wrong ones wrong, for every kind of output."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist

import ggpm
from cases import FAMILIES, simulate
from ggpm import GGPClassifier, GGPRegressor, families
from ggpm.prediction.calibration import Calibration, calibration, coverage_depth


class Fixed:
    """A model whose predictive distribution is given."""

    def __init__(self, family, mean, cov):
        self.family_, self.mean, self.cov = family, mean, cov

    def codes(self, y):
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


@pytest.mark.parametrize("kappa, spread", [(0.0, 1e-12), (3.0, 1e-12), (3.0, 2.0)])
def test_circular_score_by_quadrature(kappa, spread):
    """Latents known or not; of uniform angles, kappa = 0, it is pi/2 - pi/4 for every y."""
    m = 50
    y = np.random.default_rng(0).uniform(-np.pi, np.pi, m)
    family = families.VonMises().resolve(y)
    model = Fixed(family, np.tile([kappa, 0.0], (m, 1)), np.tile(spread * np.eye(2), (m, 1, 1)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    eta = np.sqrt(spread) * np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 1, 2) + [kappa, 0.0]
    grid = np.linspace(-np.pi, np.pi, 720, endpoint=False)
    concentration, direction = np.hypot(eta[..., 0], eta[..., 1]), np.arctan2(eta[..., 1], eta[..., 0])
    p = np.outer(weights, weights).ravel() @ stats.vonmises.pdf(grid - direction, concentration + 1e-12)
    p /= p.sum()
    apart = np.arccos(np.cos(grid[:, None] - grid))
    expected = np.arccos(np.cos(y[:, None] - grid)) @ p - 0.5 * p @ apart @ p
    if kappa == 0:
        np.testing.assert_allclose(expected, np.pi / 4, rtol=1e-5)
    # 4 standard errors: distances vary by 0.9 at most, 1000 draws to y and half of 500 pairs per row, 50 rows
    found = calibration(model, np.zeros((m, 1)), y).crps
    np.testing.assert_allclose(found, expected.mean(), atol=4 * 0.9 * np.sqrt(1 / 1000 + 0.25 / 500) / np.sqrt(m))


def test_energy_score_of_compositions_by_all_pairs():
    """From draws of the same distribution made here: latents, softplus, NumPy's Dirichlet."""
    m, size = 30, 1000
    model, y = from_itself("dirichlet", m)
    rng = np.random.default_rng(3)
    expected, spread = np.empty(m), np.empty(m)
    for i in range(m):
        eta = rng.multivariate_normal(model.mean[i], model.cov[i], size)
        draws = np.array([rng.dirichlet(a) for a in np.log1p(np.exp(eta))])
        to_y, pairs = np.linalg.norm(draws - y[i], axis=1), pdist(draws)
        expected[i], spread[i] = to_y.mean() - 0.5 * pairs.mean(), to_y.var() + 0.5 * pairs.var()
    # 4 standard errors of 1000 draws to y and half of 500 pairs per row, and as much again for the draws made here
    tolerance = 4 * np.sqrt(2 * spread.sum() / size) / m
    assert tolerance < 0.1 * expected.mean()
    np.testing.assert_allclose(calibration(model, np.zeros((m, 1)), y).crps, expected.mean(), atol=tolerance)


def test_histogram_of_transforms():
    pit = np.random.default_rng(0).beta(2, 1, 37)
    report = Calibration((0.9,), (0.9,), pit, 0.0, np.nan, 0.0, 37)
    for bins in (4, 10):
        np.testing.assert_allclose(report.pit_histogram(bins), np.histogram(pit, bins, (0, 1), density=True)[0])
    # two parts per row; 1 belongs to the last bin
    report = Calibration((0.9,), (0.9,), np.array([[0.1, 0.2], [0.3, 0.6], [0.7, 1.0]]), 0.0, np.nan, 0.0, 3)
    np.testing.assert_allclose(report.pit_histogram(4), [8 / 6, 4 / 6, 8 / 6, 4 / 6])


def test_picture_and_exports():
    model, y = from_itself("poisson", 30)
    report = ggpm.calibration(model, np.zeros((30, 1)), y)
    assert isinstance(report, Calibration)
    left, right = report.plot()
    assert left.get_xlabel() == "promised coverage" and right.get_xlabel() == "probability integral transform"
    np.testing.assert_allclose([bar.get_height() for bar in right.patches], report.pit_histogram(10))
    with pytest.raises(ValueError, match="rows"):
        ggpm.calibration(GGPRegressor(optimizer=None).fit(np.zeros((3, 1)), np.zeros(3)), np.zeros((3, 1)), np.zeros(4))
