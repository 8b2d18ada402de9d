"""A family of one's own in closed form: fewer than ten things to write, and what is missing is said."""

import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

from ggpm import GGPRegressor, families
from ggpm.families import ExponentialFamily, Family, ScalarFamily
from ggpm.families.support import Counts, Positive
from ggpm.testing import check_family


class Exponential(ScalarFamily):
    """Waiting times with mean exp(eta): all that a scalar family must give, its information and its cdf."""

    support = Positive()

    def log_prob_xi(self, xi, y):
        return -xi - y * np.exp(-xi)

    def derivatives(self, xi, y):
        ratio = y * np.exp(-xi)
        return ratio - 1, -ratio, ratio

    def information(self, xi, y):
        one = np.ones(np.broadcast_shapes(xi.shape, y.shape))
        return one, 0 * one, np.zeros((*one.shape, 0))

    def moment(self, eta, trials=None):
        return np.exp(eta[..., 0])

    def spread(self, eta, trials=None):
        return np.exp(2 * eta[..., 0])

    def cdf(self, eta, y):
        return -np.expm1(-y * np.exp(-eta[..., 0]))

    def sample(self, eta, rng, trials=None):
        return rng.exponential(np.exp(eta[..., 0]))


class Geometric(ScalarFamily):
    """Failures before the first success, success having probability 1/(1 + exp(eta))."""

    support = Counts()

    def log_prob_xi(self, xi, y):
        return y * xi - (y + 1) * np.logaddexp(0, xi)

    def derivatives(self, xi, y):
        p, q = 1 / (1 + np.exp(-xi)), 1 / (1 + np.exp(xi))
        return y * q - p, -(y + 1) * p * q, -(y + 1) * p * q * (q - p)

    def information(self, xi, y):
        p = 1 / (1 + np.exp(-xi)) + 0 * y
        return p, p * (1 - p), np.zeros((*p.shape, 0))

    def moment(self, eta, trials=None):
        return np.exp(eta[..., 0])

    def spread(self, eta, trials=None):
        return np.exp(eta[..., 0]) * (1 + np.exp(eta[..., 0]))

    def sample(self, eta, rng, trials=None):
        return rng.geometric(1 / (1 + np.exp(eta[..., 0]))) - 1.0


@pytest.mark.parametrize("kind", [Exponential, Geometric])
def test_fewer_than_ten_things_pass_every_check(kind):
    written = [name for name in vars(kind) if not name.startswith("_")]
    assert len(written) < 10, written
    assert check_family(kind(), reach=30.0).skipped == {}  # exp(2 * 50) is out of their simple formulas' reach


@pytest.mark.parametrize("kind", [Exponential, Geometric])
@pytest.mark.parametrize("inference", ["laplace", "taylor", "variational"])
def test_it_fits_and_predicts(kind, inference):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 4, (60, 1))
    y = kind().sample(np.sin(2 * X) + 1, rng)
    model = GGPRegressor(kind(), inference=inference).fit(X, y)
    found = model.predict_dist(X)
    assert found.mean().shape == (60,) and np.all(np.isfinite(found.log_prob(y)))
    assert np.corrcoef(found.mean(), np.exp(np.sin(2 * X[:, 0]) + 1))[0, 1] > 0.7
    interval = found.interval(0.9)
    assert interval.shape == (60, 2) and np.mean((interval[:, 0] <= y) & (y <= interval[:, 1])) > 0.75
    assert model.score(X, y) > 0  # the default loss and constant


def test_the_defaults_are_those_of_the_gamma_family_with_shape_one():
    rng = np.random.default_rng(1)
    eta, y = rng.normal(size=(6, 1)), rng.exponential(size=6)
    own, gamma = Exponential(), families.Gamma(phi=1.0, phi_bounds="fixed")
    np.testing.assert_allclose(own.log_prob(eta, y), gamma.log_prob(eta, y), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(own.constant(y), [y.mean()])
    np.testing.assert_allclose(own.loss(y, own.constant(y)), (y - y.mean()) ** 2)
    # the default expansion point: the mode with a standard normal prior, y exp(-eta) - 1 = eta; steps
    # of 1e-8 no longer raise the objective
    point = own.expansion(y)
    np.testing.assert_allclose(y * np.exp(-point[:, 0]) - 1, point[:, 0], atol=1e-7)
    np.testing.assert_allclose(own.cdf(eta, y), stats.expon.cdf(y, scale=np.exp(eta[:, 0])))


# ---- what is missing -----------------------------------------------------------------------------------------------
class WithoutDensity(Family):
    support = Positive()

    def u(self, eta, y):
        return eta


class WithoutDraws(Exponential):
    sample = Family.sample


def test_a_family_without_its_density_cannot_be_made():
    with pytest.raises(TypeError, match=r"^WithoutDensity must give U, U_pullback, log_prob, moment, sample, spread: "):
        WithoutDensity()
    with pytest.raises(TypeError, match=r"^WithoutDraws must give sample: .*help\(ggpm\.families\.Family\.sample\)"):
        WithoutDraws()
    for base in (Family, ScalarFamily, ExponentialFamily):
        with pytest.raises(TypeError, match=rf"{base.__name__} must say what y may be.*support = Positive"):
            base()
    with pytest.raises(TypeError, match=r"help\(ggpm\.families\.ScalarFamily\.derivatives\)"):
        ScalarFamily()


def test_the_help_that_the_message_names_is_there():
    for base, name in ((Family, "log_prob"), (ScalarFamily, "derivatives")):
        assert getattr(getattr(families, base.__name__), name).__doc__


def test_complete_families_are_cloned_copied_and_pickled():
    for family in (Exponential(), families.Gamma(phi=0.4), families.Ordinal(n_levels=4)):
        assert repr(clone(family)) == repr(pickle.loads(pickle.dumps(family))) == repr(family)
