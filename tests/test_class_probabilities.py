"""Class probabilities of correlated latents of any width, against dense grids over their common factors."""

import numpy as np
import pytest

from ggpm import Predictive, families
from ggpm.families.special.class_probabilities import class_probabilities, decomposed, pivoted_root
from ggpm.families.special.logsumexp import expected_softmax


def grid(mean, factors, sd, points=81, reach=7.0):
    """Probabilities of eta = mean + factors z + sd x: the trapezoidal rule in z, exact integrals given z."""
    axis = np.linspace(-reach, reach, points)
    z = np.stack([g.ravel() for g in np.meshgrid(*[axis] * factors.shape[1])], axis=1)
    weights = np.exp(-0.5 * np.sum(z**2, axis=1))
    kept = weights > 1e-12
    z, weights = z[kept], weights[kept] / weights[kept].sum()
    return weights @ expected_softmax(mean + z @ factors.T, np.broadcast_to(sd**2, (len(z), len(sd))))


def case(D, scale, number, seed=0):
    rng = np.random.default_rng([seed, D, number])
    sd, mean = scale * rng.uniform(0.5, 1.0, D), rng.normal(size=D)
    factors = np.stack([0.6 * sd * rng.uniform(0.5, 1.0, D), 0.6 * sd * rng.normal(size=D)], axis=1)[:, :number]
    return mean, factors, sd, np.diag(sd**2) + factors @ factors.T


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("D, number", [(3, 1), (3, 2), (4, 2), (5, 1), (10, 1)])
def test_probabilities_and_log_densities_of_correlated_latents(D, number, scale):
    mean, factors, sd, cov = case(D, scale, number)
    want = grid(mean, factors, sd, 81 if number == 1 else 41, 6.5)
    np.testing.assert_allclose(class_probabilities(mean[None], cov[None])[0][0], want, atol=1e-7)
    p = Predictive(families.Categorical(n_classes=D).resolve(np.arange(D)), mean[None], cov[None])
    np.testing.assert_allclose(p.mean()[0], want, atol=1e-7)
    code = int(np.argmax(mean))
    np.testing.assert_allclose(p.log_prob([code]), np.log(want[code]), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.5, 5.0, 100.0])
def test_two_factors_of_ten_latents(scale):
    mean, factors, sd, cov = case(10, scale, 2)
    want = grid(mean, factors, sd, 61)
    np.testing.assert_allclose(class_probabilities(mean[None], cov[None])[0][0], want, atol=1e-7)


@pytest.mark.parametrize("family", [families.Multinomial(), families.DirichletMultinomial(phi=4.0)])
def test_expected_counts_of_wide_latents(family):
    mean, factors, sd, cov = case(4, 5.0, 1)
    p = Predictive(family.resolve(np.ones((1, 4))), mean[None], cov[None], np.array([12.0]))
    np.testing.assert_allclose(p.mean()[0], 12.0 * grid(mean, factors, sd), atol=1e-6)


def test_the_second_order_in_what_factors_leave():
    """Half the rest is an eighth of the error."""
    mean, factors, sd, _ = case(5, 1.0, 1)

    def error(size):
        own = np.sqrt(sd**2 - size**2 * factors[:, 0] ** 2)
        rest = size**2 * (factors @ factors.T)
        found = expected_softmax(mean[None], own[None] ** 2 + np.diag(rest), (rest - np.diag(np.diag(rest)))[None])
        return np.abs(found[0] - grid(mean, size * factors, own)).max()

    assert 6.0 < error(1.0) / error(np.sqrt(0.5)) < 10.0


@pytest.mark.parametrize("D, scale", [(3, 0.5), (4, 5.0), (5, 1.0), (7, 1.0)])
def test_decompositions_are_the_covariance_of_differences(D, scale):
    rng = np.random.default_rng(D)
    A = scale * rng.normal(size=(20, D, D + 2)) / np.sqrt(D + 2)
    cov = A @ A.swapaxes(1, 2)
    factors, own, rest, number = decomposed(cov)
    assert (own >= 0).all() and (number <= max(3, D - 2)).all()
    whole = factors @ factors.swapaxes(1, 2) + rest + own[:, :, None] * np.eye(D)
    H = np.eye(D) - 1.0 / D
    np.testing.assert_allclose(H @ whole @ H, H @ cov @ H, atol=1e-10 * scale**2)


def test_order_and_levels_do_not_matter():
    """Nothing hangs on an arbitrary basis: permuted classes, and a common term in all latents."""
    rng = np.random.default_rng(3)
    A = 2.0 * rng.normal(size=(1, 5, 7)) / np.sqrt(7)
    mean, cov, order = rng.normal(size=(1, 5)), A @ A.swapaxes(1, 2), np.array([3, 0, 4, 2, 1])
    found = class_probabilities(mean, cov)[0]
    turned = class_probabilities(mean[:, order], cov[:, order][:, :, order])[0]
    np.testing.assert_allclose(turned, found[:, order], atol=1e-7)
    np.testing.assert_allclose(class_probabilities(mean + 3.0, cov + 2.0)[0], found, atol=1e-7)
    np.testing.assert_allclose(found.sum(), 1.0, atol=1e-7)


def test_roots_with_the_largest_pivot_first():
    rng = np.random.default_rng(4)
    A = rng.normal(size=(3, 6, 2))
    root = pivoted_root(A @ A.swapaxes(1, 2), 2)
    np.testing.assert_allclose(root @ root.swapaxes(1, 2), A @ A.swapaxes(1, 2), atol=1e-12)
    assert not pivoted_root(np.zeros((1, 3, 3)), 1).any()
