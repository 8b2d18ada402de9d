"""Averages over an uncertain direction and concentration: lattices and rays against other integrals."""

import numpy as np
import pytest
from scipy.special import logsumexp

from ggpm import GGPRegressor, Predictive, families
from ggpm.families.special.adaptive import cholesky_root
from ggpm.families.special.bessel import BesselRatio
from ggpm.families.special.concentrated import log_density, moments
from ggpm.families.special.lattice import SPACINGS, lattice, lattice_densities, lattice_moments
from ggpm.families.special.quadrature import trapezoid
from ggpm.families.special.rays import ray_densities, ray_moments
from ggpm.families.special.steps import LARGEST, log_needle, resultant
from ggpm.families.special.turned import log_turned

FAMILY = families.VonMisesDirectionConcentration()


def latents(n, seed=0):
    """Rows like those of a fit; a quarter of them with a direction that may turn round."""
    rng = np.random.default_rng(seed)
    sd, mean = rng.uniform(0.1, 0.7, (n, 3)), rng.normal(size=(n, 3))
    mean[: n // 4, :2] *= 0.2
    cov = sd[:, :, None] * sd[:, None, :] * (0.7 * np.eye(3) + 0.3)
    return mean, cov, Predictive(FAMILY, mean, cov).sample(None, seed)


def brute(mean, cov, function):
    """E[function(eta)] of one row over a fine cubic grid."""
    x, weights = trapezoid(3, 0.12, 6.5)
    return weights @ function(mean + x @ np.linalg.cholesky(cov).T)


def test_steps_are_bessel_functions():
    log_k = np.random.default_rng(0).uniform(-25.0, LARGEST, 20_000)
    bessel = BesselRatio(0.0, np.exp(log_k))
    assert np.abs(log_needle(log_k) + bessel.log).max() < 7e-8
    assert np.abs(resultant(log_k) - bessel.A).max() < 7e-8


@pytest.mark.parametrize("spacing", SPACINGS)
def test_sums_over_lattices_are_of_the_standard_normal(spacing):
    """All polynomials of low degree: nodes, planes and weights; the parts with signs nearly vanish."""
    total = 0.0
    for layer in lattice(spacing):
        for z, height, parity, _, inside in layer.planes:
            x = layer.across[:inside]
            weights = height * layer.weights[parity][:, :inside]
            total = total + weights @ np.stack([np.ones(inside), x[:, 0], x[:, 0] ** 2, x[:, 1] ** 2 * z**2], axis=1)
    np.testing.assert_allclose(total[0], [1.0, 0.0, 1.0, 1.0], atol=2e-6)  # what is beyond the radius is missing
    assert np.abs(total[1:, 0]).max() < 1e-2


def test_log_densities_are_those_of_turns():
    """Rows of every rule: two integrals that share no node, both to less than 1e-6."""
    mean, cov, y = latents(60)
    want = [log_turned(*row) + np.log(2.0 * np.pi) for row in zip(mean, cov, y.tolist(), strict=True)]
    np.testing.assert_allclose(log_density(mean, cov, y), want, rtol=0, atol=1e-6)
    np.testing.assert_allclose(FAMILY.predictive_log_prob(mean, cov, y) + np.log(2.0 * np.pi), want, rtol=0, atol=1e-6)
    root = cholesky_root(cov)
    for spacing in SPACINGS:
        found, good, _ = lattice_densities(mean, root, y, spacing)
        assert np.all(np.abs(found - want)[good] < 1e-6)
    found, good = ray_densities(mean, cov, y, 128)
    assert good.mean() > 0.9 and np.all(np.abs(found - want)[good] < 1e-6)


def test_moments_are_those_of_a_dense_grid():
    mean, cov, _ = latents(40, seed=1)
    found = moments(mean, cov)
    for i in range(0, 40, 8):
        np.testing.assert_allclose(found[i], brute(mean[i], cov[i], FAMILY.moment), rtol=0, atol=1e-6)
    rays, good = ray_moments(mean, cov, 256)
    assert good.all() and np.abs(found - rays).max() < 1e-6
    root = cholesky_root(cov)
    for spacing in SPACINGS:
        lattices, good = lattice_moments(mean, root, spacing)
        assert np.all(np.abs(lattices - rays).max(axis=1)[good] < 1e-6)
    p = Predictive(FAMILY, mean, cov)
    np.testing.assert_allclose(p.mean(), np.arctan2(found[:, 1], found[:, 0]), atol=1e-12)
    np.testing.assert_allclose(p.var(), 1.0 - np.hypot(found[:, 0], found[:, 1]), atol=1e-12)


def test_directions_that_may_turn_round_within_a_thin_spread():
    """Latents of the direction about zero, far more certain across than along: known values of a fine grid."""
    mean, sd = np.array([0.04, -0.036, 0.0]), np.array([0.16, 0.48, 0.33])
    cov = np.outer(sd, sd) * (0.7 * np.eye(3) + 0.3)
    x, weights = trapezoid(3, 0.12, 6.5)
    eta = mean + x @ np.linalg.cholesky(cov).T
    for y in (-1.0, 0.5, 2.0):
        want = logsumexp(FAMILY.log_prob(eta, np.full(len(eta), y)), b=weights)
        assert abs(log_turned(mean, cov, y) - want) < 1e-6
        assert abs(FAMILY.predictive_log_prob(mean[None], cov[None], np.array([y]))[0] - want) < 1e-6


def test_latents_without_spread_are_the_density_itself():
    mean, y = np.array([[1.0, -2.0, 1.0], [0.1, 0.0, -3.0], [3.0, 1.0, 6.0]]), np.array([-1.0, 2.0, 0.4])
    none = np.zeros((3, 3, 3))
    np.testing.assert_allclose(FAMILY.predictive_log_prob(mean, none, y), FAMILY.log_prob(mean, y), atol=2e-7)
    np.testing.assert_allclose(moments(mean, none), FAMILY.moment(mean), atol=1e-7)


def test_rows_do_not_depend_on_others():
    mean, cov, y = latents(12, seed=2)
    cov[3] *= 40.0  # turns
    mean[5, 2] = 25.0  # beyond the steps
    whole, m = log_density(mean, cov, y), moments(mean, cov)
    for i in range(0, 12):
        one = slice(i, i + 1)
        np.testing.assert_allclose(log_density(mean[one], cov[one], y[one]), whole[one], rtol=0, atol=1e-12)
        np.testing.assert_allclose(moments(mean[one], cov[one]), m[one], rtol=0, atol=1e-12)
    assert np.all(np.isfinite(Predictive(FAMILY, mean, cov).mean()))


def test_fits_start_from_the_scale_of_angles():
    """Angles within a hundredth of a radian: the origin is theirs, and a fit finds their noise."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2.0, 2.0, (30, 1)), axis=0)
    y = 1.0 + 1e-2 * (np.sin(x[:, 0]) + 0.3 * rng.normal(size=30))
    origin = FAMILY.resolve(y).adapted(y).origin
    assert abs(np.arctan2(origin[1], origin[0]) - y.mean()) < 1e-5  # a mean direction is the mean of close angles
    # latents of order one turn the direction by the spread of the angles, and the variance of y is 1/k
    np.testing.assert_allclose(np.hypot(origin[0], origin[1]), 1.0 / y.std(), rtol=1e-3)
    np.testing.assert_allclose(np.exp(-0.5 * origin[2]), y.std(), rtol=1e-3)
    p = GGPRegressor(FAMILY, inference="laplace").fit(x, y).predict_dist(x)
    assert 2e-3 < np.std(y - p.mean()) < 4e-3
    np.testing.assert_allclose(p.parameter("concentration").mean() ** -0.5, 3e-3, rtol=0.5)
