"""Compositions: zeros and what replaces them, parts, losses and curvature that may be indefinite."""

import numpy as np
import pytest
from scipy import stats

from ggpm import GGPRegressor, families
from ggpm.families.dirichlet import Dirichlet
from test_vector_families import CASES


def test_zero_policies():
    y = np.array([[0.0, 0.4, 0.6], [0.2, 0.3, 0.5]])
    additive = Dirichlet(zeros="additive", zeros_epsilon=0.01).resolve(y)
    np.testing.assert_allclose(additive.encode(y), (y + 0.01) / 1.03, rtol=1e-14)
    squeeze = Dirichlet(zeros="squeeze").resolve(np.repeat(y, 5, axis=0))
    np.testing.assert_allclose(squeeze.encode(y), (y * 9 + 1 / 3) / 10, rtol=1e-14)  # n is that of the fit
    for family in (additive, squeeze):
        assert family.latent_dim == 3
        assert np.all(np.isfinite(family.log_prob(np.zeros((2, 3)), family.encode(y))))
    percent = Dirichlet(closure=True).resolve(100 * y[1:])
    np.testing.assert_allclose(percent.encode(100 * y[1:]), y[1:], rtol=1e-14)


@pytest.mark.parametrize("family", [Dirichlet, families.LogisticNormal])
@pytest.mark.parametrize("zeros", ["additive", "squeeze"])
def test_replacement_of_zeros_is_undone(family, zeros):
    rng = np.random.default_rng(0)
    y = 100 * rng.dirichlet([3.0, 2.0, 1.0], size=10)
    y[::3, 2] = 0.0
    y *= 100 / y.sum(axis=1, keepdims=True)
    bound = family(zeros=zeros, zeros_epsilon=0.05, closure=True).resolve(y)
    encoded = bound.encode(y)
    shares = bound.support.embed(encoded)
    np.testing.assert_allclose(bound.point(shares), y, atol=1e-11)
    np.testing.assert_allclose(bound.decode(encoded), y, atol=1e-11)
    # the density is per unit of y as given: its logarithm moves with the map of the rows, whose slope is 1/stretch
    plain = family(closure=True).resolve(100 * shares)
    bound_phi = bound.with_log_hyper(plain.log_hyper)
    eta = rng.normal(size=(10, bound.latent_dim))
    stretch = (1 + 3 * 0.05) if zeros == "additive" else 10 / 9
    got = bound_phi.log_prob(eta, encoded) - plain.log_prob(eta, plain.encode(100 * shares))
    np.testing.assert_allclose(got, -2 * np.log(stretch), rtol=1e-9)
    # what the model puts below zero is zero, and rows keep their sum
    low = bound.point(np.array([[0.5, 0.499, 0.001]]))
    assert low[0, 2] == 0.0 and low.sum() == pytest.approx(100.0)
    draws = bound.sample(np.zeros((500, bound.latent_dim)), rng)
    assert np.all(draws >= 0) and np.allclose(draws.sum(axis=1), 100.0) and np.any(draws == 0)
    assert np.all(np.isfinite(bound.loss(encoded, low)))


def test_mean_of_a_replaced_composition_is_in_the_users_scale():
    x = np.linspace(0, 1, 40)[:, None]
    y = np.tile([0.02, 0.28, 0.70], (40, 1))
    for family in (Dirichlet, families.LogisticNormal):
        model = GGPRegressor(family(zeros="additive", zeros_epsilon=0.05), optimizer=None).fit(x, y)
        plain = GGPRegressor(family(), optimizer=None).fit(x, (y + 0.05) / 1.15)
        got, want = model.predict(x), 1.15 * plain.predict(x) - 0.05
        np.testing.assert_allclose(got, want, atol=1e-12)
        # an interval of parts is that of the encoded ones, carried back part by part
        np.testing.assert_allclose(
            model.predict_dist(x[:2]).interval(0.9),
            np.maximum(1.15 * plain.predict_dist(x[:2]).interval(0.9) - 0.05, 0),
            atol=1e-9,
        )


def test_dirichlet_cdf_is_that_of_its_parts():
    family, eta, y = CASES["dirichlet"].bound()
    alpha = np.log1p(np.exp(eta))
    expected = stats.beta.cdf(y, alpha, alpha.sum(axis=1, keepdims=True) - alpha)
    np.testing.assert_allclose(family.cdf(eta, y), expected, rtol=1e-10)
    assert np.all(np.isfinite(family.cdf(np.array([[50.0, -50.0, 0.0]]), y)))


def test_dirichlet_curvature_can_be_indefinite_and_says_so():
    y = np.array([[1e-6, 0.5, 0.5 - 1e-6], [0.3, 0.3, 0.4]])
    for link in ("softplus", "exp"):
        family = Dirichlet(link=link)
        eta = np.array([[-1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
        U = family.U(eta, np.array([[0.9, 0.05, 0.05], [0.3, 0.3, 0.4]]))
        lowest = np.linalg.eigvalsh(U.dense())[:, 0]
        np.testing.assert_array_equal(U.semidefinite(), lowest >= 0)
        assert lowest[0] < 0
        assert family.U(eta, y, expected=True).semidefinite().all()


def test_loss_of_compositions_is_finite_for_zero_parts():
    loss = Dirichlet().loss(np.array([[0.0, 1.0]]), np.array([[0.25, 0.75]]))
    np.testing.assert_allclose(loss, -np.log(0.75))


@pytest.mark.parametrize("d", [2, 3, 5])
def test_mean_compositions_of_log_ratios_are_those_of_their_moments(d):
    """Products of exponentials against exponentials of sums, also where products would underflow."""
    rng = np.random.default_rng(0)
    family = families.LogisticNormal().resolve(rng.dirichlet(np.full(d, 3.0), 30))
    for scale in (1.0, 30.0, 900.0):
        eta = scale * rng.normal(size=(2, 7, d - 1))
        flat = eta.reshape(-1, d - 1)
        both = family.predictive_moments(flat, np.zeros((14, d - 1, d - 1)))[0]
        np.testing.assert_allclose(family.moment(eta).reshape(-1, d), both, rtol=1e-9, atol=1e-13)
