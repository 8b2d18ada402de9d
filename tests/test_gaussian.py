"""The Gaussian family, whose quantities are all closed forms, with one noise for all outputs or one for each."""

import numpy as np
import pytest
from scipy import stats

from ggpm.families.curvature import Diagonal
from ggpm.families.gaussian import Gaussian

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@pytest.mark.parametrize("phi", [0.3, np.array([0.3, 2.0, 0.05])], ids=["shared", "each"])
def test_gaussian_density_and_derivatives(phi):
    rng = np.random.default_rng(0)
    eta, y = rng.standard_normal((2, 5, 3)), rng.standard_normal((5, 3))
    family = Gaussian(phi).resolve(y)
    assert family.latent_dim == 3
    reference = stats.norm.logpdf(y, eta, np.sqrt(phi)).sum(axis=-1)
    np.testing.assert_allclose(family.log_prob(eta, y), reference, rtol=1e-13)
    np.testing.assert_allclose(family.cdf(eta, y), stats.norm.cdf(y, eta, np.sqrt(phi)), rtol=1e-12)
    np.testing.assert_array_equal(family.expansion(y), y)
    h, V = 1e-5, Diagonal(rng.random((2, 5, 3)))
    for j, unit in enumerate(np.eye(3)):  # quadratic in eta: differences err by rounding/h only
        slope = (family.log_prob(eta + h * unit, y) - family.log_prob(eta - h * unit, y)) / (2 * h)
        np.testing.assert_allclose(family.u(eta, y)[..., j], slope, atol=1e-8)
        bend = (family.u(eta + h * unit, y) - family.u(eta - h * unit, y)) / (2 * h)
        np.testing.assert_allclose(-family.U(eta, y).dense()[..., j], bend, atol=1e-8)
    d_eta, d_phi = family.U_pullback(eta, y, V)
    np.testing.assert_array_equal(d_eta, np.zeros_like(eta))
    for j, unit in enumerate(np.eye(family.log_hyper.size)):
        up, down = (family.with_log_hyper(family.log_hyper + s * unit) for s in (h, -h))
        change = (up.log_prob(eta, y) - down.log_prob(eta, y)) / (2 * h)
        np.testing.assert_allclose(family.log_prob_phi(eta, y)[..., j], change, rtol=1e-8, atol=1e-8)
        change = (up.u(eta, y) - down.u(eta, y)) / (2 * h)
        np.testing.assert_allclose(family.u_phi(eta, y)[..., j], change, rtol=1e-8, atol=1e-8)
        change = np.sum(V.gamma * (up.U(eta, y).gamma - down.U(eta, y).gamma)) / (2 * h)
        assert d_phi[j] == pytest.approx(change, rel=1e-8)


def test_gaussian_predictive_is_the_closed_form():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 3, 3))
    mean, cov, y = rng.standard_normal((4, 3)), root @ root.swapaxes(1, 2), rng.standard_normal((4, 3))
    phi = np.array([0.3, 2.0, 0.05])
    family = Gaussian(phi).resolve(y)
    reference = [stats.multivariate_normal(m, c + np.diag(phi)).logpdf(v) for m, c, v in zip(mean, cov, y)]
    kept = y.copy()
    np.testing.assert_allclose(family.predictive_log_prob(mean, cov, y), reference, rtol=1e-12)
    np.testing.assert_array_equal(y, kept)
    sd = family.predictive_normal(mean, cov)[1]
    np.testing.assert_allclose(sd**2, np.einsum("njj->nj", cov) + phi, rtol=1e-14)


def test_gaussian_returns_y_in_the_shape_it_came():
    y = np.array([1.0, 2.0, 4.0])
    flat, tall = Gaussian(0.25).resolve(y), Gaussian(0.25).resolve(y[:, None])
    np.testing.assert_array_equal(flat.decode(flat.encode(y)), y)
    np.testing.assert_array_equal(tall.decode(tall.encode(y)), y[:, None])
    eta = np.zeros((3, 1))
    np.testing.assert_array_equal(flat.spread(eta), np.full(3, 0.25))
    np.testing.assert_array_equal(tall.spread(eta), np.full((3, 1, 1), 0.25))
    rng = np.random.default_rng(0)
    assert flat.moment(eta).shape == flat.sample(eta, rng).shape == (3,)
    assert tall.moment(eta).shape == tall.sample(eta, rng).shape == (3, 1)
    with pytest.raises(ValueError, match="1 column"):
        flat.encode(np.zeros((3, 2)))


def test_gaussian_samples_have_its_variance():
    phi = np.array([0.3, 2.0])
    draws = Gaussian(phi).sample(np.full((40_000, 2), 1.5), np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(axis=0), 1.5, atol=5 * np.sqrt(2.0 / 40_000))  # five standard errors
    np.testing.assert_allclose(draws.var(axis=0), phi, rtol=5 * np.sqrt(2.0 / 40_000))
    np.testing.assert_array_equal(Gaussian().loss(np.array([[1.0, 2.0]]), np.array([[0.0, 0.0]])), [5.0])
