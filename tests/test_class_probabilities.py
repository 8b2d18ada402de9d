"""Class probabilities of correlated latents of any width, against dense grids over their common factors."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import qmc

from ggpm import Predictive, families
from ggpm.families.special import softmax
from ggpm.families.special.class_points import probabilities_by_points, probabilities_of
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


@pytest.mark.parametrize(
    "D, scale, atol",
    [(6, 1.0, 2e-6), (6, 3.0, 1e-5), (6, 10.0, 5e-6), (6, 100.0, 1e-6), (10, 10.0, 1e-5), (10, 100.0, 2e-6)],
)
def test_points_for_covariances_of_any_kind(D, scale, atol):
    """One factor, whose integral is known: points make no use of it."""
    mean, factors, sd, cov = case(D, scale, 1)
    want = grid(mean, factors, sd)
    found, error = probabilities_by_points(mean[None], cov[None])
    np.testing.assert_allclose(found[0], want, atol=atol)
    assert error[0] < 2 * atol


def test_rare_classes_of_wide_latents_have_their_digits():
    mean, factors, sd, cov = case(6, 20.0, 1)
    mean[2] -= 60.0  # of latents twenty wide
    want = grid(mean, factors, sd, 161)[2]
    assert want < 1e-3
    np.testing.assert_allclose(probabilities_of(mean[None], cov[None], np.array([2]))[0], want, rtol=5e-4)


def full(D, sd, seed):
    """A mean and a full covariance of no few factors."""
    rng = np.random.default_rng([D, seed])
    A = sd * rng.normal(size=(D, D + 2)) / np.sqrt(D + 2)
    return rng.normal(size=D), A @ A.T


def averages(function, mean, cov, per_axis):
    """E[function] over contrasts of five latents: a product of Gauss-Hermite rules along principal axes."""
    D = len(mean)
    x, w = np.polynomial.hermite_e.hermegauss(per_axis)
    nodes = np.stack([g.ravel() for g in np.meshgrid(*[x] * (D - 1))], axis=1)
    weights = np.prod(np.stack([g.ravel() for g in np.meshgrid(*[w / w.sum()] * (D - 1))]), axis=0)
    H = np.eye(D) - 1.0 / D
    values, axes = np.linalg.eigh(H @ cov @ H)
    return weights @ function(mean + nodes @ (axes[:, 1:] * np.sqrt(values[1:])).T)


@pytest.mark.parametrize("sd, atol", [(0.3, 1e-6), (0.7, 1e-6)])
def test_full_covariances_of_five_classes(sd, atol):
    mean, cov = full(5, sd, 1)
    want = averages(softmax, mean, cov, 21)
    np.testing.assert_allclose(averages(softmax, mean, cov, 19), want, atol=0.2 * atol)
    family = families.Categorical(n_classes=5).resolve(np.arange(5))
    p = Predictive(family, mean[None], cov[None])
    np.testing.assert_allclose(p.mean()[0], want, atol=1e-6)
    np.testing.assert_allclose(p.log_prob([3]), np.log(want[3]), atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize("sd, atol, rtol", [(0.7, 3e-6, 1e-4), (1.0, 1e-5, 3e-4), (3.0, 1.2e-4, 2e-3)])
def test_full_covariances_of_ten_classes(sd, atol, rtol):
    """Against four scrambled sequences of 2^18 points, whose own error is a third of the tolerance."""
    mean, cov = full(10, sd, 3)
    root = np.linalg.cholesky(cov)
    sets = [ndtri(qmc.Sobol(10, seed=seed + 9).random_base2(18).clip(1e-12, 1 - 1e-12)) for seed in range(4)]
    each = np.stack([softmax(mean + x @ root.T).mean(axis=0) for x in sets])
    want = each.mean(axis=0)
    assert each.std(axis=0).max() / np.sqrt(3) < atol / 3
    family = families.Categorical(n_classes=10).resolve(np.arange(10))
    p = Predictive(family, np.tile(mean, (10, 1)), np.tile(cov, (10, 1, 1)))
    np.testing.assert_allclose(p.rows([0]).mean()[0], want, atol=atol)
    np.testing.assert_allclose(p.log_prob(np.arange(10)), np.log(want), atol=rtol)


@pytest.mark.parametrize("family", [families.Multinomial(), families.DirichletMultinomial(phi=4.0)])
@pytest.mark.parametrize("sd, atol", [(0.3, 1e-6), (0.7, 1e-5)])
def test_counts_in_five_categories_with_full_covariances(family, sd, atol):
    mean, cov = full(5, sd, 2)
    family, y = family.resolve(np.ones((1, 5))), np.array([4.0, 0.0, 1.0, 2.0, 0.0])
    want = [np.log(averages(lambda eta: np.exp(family.log_prob(eta, y)), mean, cov, size)) for size in (21, 25)]
    assert abs(want[1] - want[0]) < 0.2 * atol
    p = Predictive(family, mean[None], cov[None], np.array([7.0]))
    np.testing.assert_allclose(p.log_prob(y[None]), want[1], atol=atol)


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


def test_densities_of_counts_at_many_nodes_are_those_one_by_one():
    """Factors of rising factorials are multiplied for rows that have them alone."""
    rng = np.random.default_rng(5)
    family, y = families.DirichletMultinomial(phi=3.0), rng.integers(0, 14, (9, 6)) * (rng.random((9, 6)) < 0.6) + 0.0
    y[:, 0] += 1.0
    eta = 2.0 * rng.normal(size=(4, 9, 6))
    one_by_one = [[family.log_prob(eta[s, i], y[i]) for i in range(9)] for s in range(4)]
    np.testing.assert_allclose(family.log_prob(eta, y), one_by_one, rtol=1e-12)
