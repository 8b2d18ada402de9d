"""Output kinds: what can be asked of an output follows from its support, in the unit in which the user keeps y."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import ggpm
from cases import FAMILIES, simulate
from ggpm import GGPRegressor, Predictive, families
from ggpm.families import Family, VonMises
from ggpm.families import support as s
from ggpm.prediction.calibration import calibration, coverage_depth
from ggpm.prediction.evaluation import evaluate
from ggpm.prediction.kinds import Angles, Classes, Ordered, Shares, kind_of
from ggpm.prediction.summaries import summarise
from ggpm.testing import check_family


# ---- a user's family on the circle that keeps y in hours -----------------------------------------------------------
@dataclass(frozen=True)
class Clock(s.Circle):
    """A user's own support: it inherits all answers of the circle."""

    period: float = 24.0


class Hours(Family):
    """`VonMises` of the angle, with y kept in hours: nothing but what a family must give."""

    latent_dim = 2
    support = s.Circle(period=24.0)
    _angle = VonMises()

    def log_prob(self, eta, y):
        return self._angle.log_prob(eta, y * np.pi / 12) + np.log(np.pi / 12)

    def u(self, eta, y):
        return self._angle.u(eta, y * np.pi / 12)

    def U(self, eta, y, expected=False):
        return self._angle.U(eta, y * np.pi / 12, expected)

    def U_pullback(self, eta, y, V, expected=False):
        return self._angle.U_pullback(eta, y * np.pi / 12, V, expected)

    def moment(self, eta, trials=None):
        return self._angle.moment(eta)

    def spread(self, eta, trials=None):
        return self._angle.spread(eta)

    def sample(self, eta, rng, trials=None):
        return np.mod(self._angle.sample(eta, rng) * 12 / np.pi, 24)


class HoursOnAClock(Hours):
    support = Clock()


class EncodesInSecret(Hours):
    """What version 0.1 expected of everyone: radians after ``encode``. The support does not say so."""

    def encode(self, y):
        return super().encode(y) * np.pi / 12


class EncodesAndSaysSo(VonMises):
    """The same, declared; the density is that of radians, as after `VonMises.encode`."""

    support = s.Circle(period=24.0, encoded_period=2 * np.pi)

    def __init__(self):
        super().__init__("hours")


def pair(kind=Hours, m=12, seed=0):
    """Predictive distributions of a user's family and of `VonMises` in hours, and hours drawn from the latter."""
    rng = np.random.default_rng(seed)
    mean = 4 * rng.normal(size=(m, 2))
    A = 0.4 * rng.normal(size=(m, 2, 2))
    cov = A @ A.swapaxes(1, 2) + 0.05 * np.eye(2)
    own, built_in = (Predictive(f.resolve(np.zeros(1)), mean, cov) for f in (kind(), VonMises(units="hours")))
    return own, built_in, built_in.sample(None, 1)


class Fixed:
    """A model whose predictive distribution is given."""

    def __init__(self, predictive):
        self.predictive, self.family_ = predictive, predictive.family

    def codes(self, y):
        return y

    def predict_dist(self, X, offset=None, trials=None):
        return self.predictive


def test_the_arc_about_midnight_is_about_midnight():
    family = Hours().resolve([0.0])
    p = Predictive(family, np.array([[4.0, 0.0]]), np.zeros((1, 2, 2)))
    start, end = p.interval(0.9)[0]
    assert 20 < start < 22 and 2 < end < 4
    # the density is even about 0 h; the length has a minimum there, so that its place keeps half of the digits
    np.testing.assert_allclose(start, 24 - end, atol=1e-4)


@pytest.mark.parametrize("kind", [Hours, HoursOnAClock, EncodesAndSaysSo])
def test_hours_are_answered_as_by_von_mises_in_hours(kind):
    own, built_in, y = pair(kind)
    near = {"atol": 1e-9}  # the same grid, in other units
    np.testing.assert_allclose(own.interval(0.8), built_in.interval(0.8), **near)
    np.testing.assert_allclose(own.mean(), built_in.mean(), **near)
    np.testing.assert_allclose(own.var(), built_in.var(), **near)
    np.testing.assert_allclose(own.cdf(y), built_in.cdf(y), **near)
    np.testing.assert_allclose(own.pit(y), built_in.pit(y), **near)
    np.testing.assert_allclose(own.log_prob(y), built_in.log_prob(y), **near)
    mine, theirs = summarise(own), summarise(built_in)
    assert mine.columns.tolist() == theirs.columns.tolist() == ["mean", "sd", "arc_start", "arc_end"]
    np.testing.assert_allclose(mine, theirs, **near)
    X = np.zeros((len(y), 1))
    reports = [calibration(Fixed(p), X, y) for p in (own, built_in)]
    assert reports[0].coverage == reports[1].coverage
    np.testing.assert_allclose(reports[0].crps, reports[1].crps, **near)
    np.testing.assert_allclose(*(coverage_depth(Fixed(p), X, y) for p in (own, built_in)), **near)
    with pytest.raises(ValueError, match="no order"):
        own.quantile(0.5)


def test_wide_latents_are_drawn_in_hours_too():
    """Too wide for nodes: the distribution function comes from draws, the same ones in both units."""
    mean, cov = np.array([[3.0, 1.0]]), 1e6 * np.eye(2)[None]
    arcs = [Predictive(f, mean, cov).interval(0.5) for f in (Hours(), VonMises(units="hours"))]
    np.testing.assert_allclose(*arcs, atol=1e-6)


def test_a_fit_in_hours_is_that_of_von_mises():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, (40, 1))
    y = np.mod(22 + 3 * np.sin(X[:, 0]) + rng.normal(size=40), 24)
    kernel = ConstantKernel(9.0) * RBF(1.0)
    own, built_in = (GGPRegressor(f, kernel, optimizer=None).fit(X, y) for f in (Hours(), VonMises(units="hours")))
    found, expected = (evaluate(model, X, y) for model in (own, built_in))
    assert found["error_name"] == "mean absolute angle"
    for name in ("log_density", "error", "score", "coverage"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, err_msg=name)
    assert found["error"] < 2  # hours, across midnight
    for draw in (ggpm.plotting.plot_angles, ggpm.plotting.plot_polar):
        assert draw(own, n=10).figure is not None


def test_check_family_passes_in_hours():
    assert check_family(Hours()).skipped == {}


def test_an_encoding_that_the_support_does_not_declare_is_an_error():
    with pytest.raises(TypeError, match=r"quarter of the period, 6, into 1\.5708.*encoded_period=2 \* np\.pi"):
        EncodesInSecret().resolve([1.0])


@pytest.mark.parametrize("period, start, low", [(2 * np.pi, None, -np.pi), (360.0, None, 0.0), (24.0, -12.0, -12.0)])
def test_predictions_of_angles_lie_in_the_range_of_the_support(period, start, low):
    circle = s.Circle(period=period, start=start)
    turned = circle.wrap(np.linspace(-3, 3, 41) * period)
    assert circle.decode_start() == low and np.all((turned >= low) & (turned < low + period))
    angle = circle.to_radians(turned)
    np.testing.assert_allclose(circle.from_radians(angle), turned, rtol=1e-14)
    np.testing.assert_allclose(circle.point(circle.embed(turned)), turned, atol=1e-12 * period)
    assert circle.wrap(np.array(low - 1e-17 * period)) == low  # rounding does not reach the open end


def test_starts_of_ranges():
    assert VonMises().decode_start() == -np.pi and VonMises((-180, 180)).decode_start() == -180
    assert Hours().decode_start() == 0 and families.Poisson().decode_start() is None


# ---- every support -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FAMILIES)
def test_distances_and_errors_are_zero_at_the_outcome_and_positive_elsewhere(name):
    X, y, family = simulate(name, n=9)
    support, encoded = family.support, family.encode(y)
    assert np.all(support.distance(encoded[None], encoded[None]) == 0)
    apart = support.distance(encoded[None], np.roll(encoded, 1, axis=0)[None])
    assert apart.shape == (1, 9) and np.all(apart >= 0) and apart.sum() > 0
    model = GGPRegressor(family, optimizer=None).fit(X, y)
    mean = model.predict(X)
    error = support.error(np.asarray(y, dtype=float), mean)
    assert error.shape == (9,) and np.all(error >= 0)
    found = evaluate(model, X, y)
    np.testing.assert_allclose(found["error"], error.mean())
    assert found["error_name"] == support.error_name and 0 <= found["coverage"] <= 1


def test_errors_by_hand():
    two = np.array([[1.0, 3.0], [2.0, 2.0]])
    assert s.CountVectors().error(two, np.array([0.5, 0.5])).tolist() == [0.25, 0.0]
    assert s.CountVectors().error(two, np.full((2, 2), 0.5)).tolist() == [0.25, 0.0]
    assert s.Simplex(total=100.0).error(np.array([[25.0, 75.0]]), np.array([[50.0, 50.0]])).tolist() == [0.25]
    assert s.Codes(n_codes=2).error(np.array([0.0, 1.0, 1.0]), np.array([0.2, 0.7, 0.4])).tolist() == [0, 0, 1]
    assert s.Codes().error(np.array([2.0]), np.array([[0.1, 0.2, 0.7]])).tolist() == [0]
    assert s.Circle(period=360.0).error(np.array([350.0]), np.array([10.0])).tolist() == [20.0]
    assert s.Positive().error(np.array([3.0, 1.0]), np.array([1.0, 1.5])).tolist() == [2.0, 0.5]


KIND = {"angles": Angles, "classes": Classes, "shares": Shares}


@pytest.mark.parametrize("name", FAMILIES)
def test_answers_are_chosen_by_the_declared_kind(name):
    family = FAMILIES[name][0]
    assert type(kind_of(family)) is KIND.get(family.kind, Ordered)
    assert family.kind in {*KIND, "numbers", "compositions", "directions", "matrices"}


def test_a_support_of_ones_own_inherits_from_its_parent():
    class Durations(s.Positive):
        """Nothing of its own."""

    class Waiting(families.Gamma):
        support = Durations()

    mean, cov = np.zeros((2, 1)), 0.1 * np.ones((2, 1, 1))
    np.testing.assert_array_equal(
        *(Predictive(f, mean, cov).interval(0.9) for f in (Waiting(phi=0.3), families.Gamma(phi=0.3)))
    )


def test_plotting_is_there_after_importing_the_package():
    code = "import ggpm, sys; assert 'matplotlib' not in sys.modules; print(ggpm.plotting.plot_angles.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "plot_angles\n"
