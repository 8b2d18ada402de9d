"""Densities whose latents meet in a sum, with full covariances, against products of rules and exact integrals."""

import itertools

import numpy as np
import pytest
from scipy.special import softmax

from ggpm import Predictive, families
from ggpm.families.special.one_by_one import log_expected_one_by_one, matched_points
from ggpm.sites.densities import log_expected_prob

D = 5


def family_of(name):
    if name == "multinomial":
        return families.Multinomial().resolve(np.ones((1, D)))
    return families.Dirichlet(link=name).resolve(np.full((1, D), 1.0 / D))


def observed(family, mean, cov, seed):
    trials = np.array([8.0]) if family.countable else None
    y = Predictive(family, mean, cov, trials).sample(None, seed)
    return y if family.countable else np.maximum(y, 1e-100)


def full(name, sd, seed):
    """A family, its latents with a covariance of no structure, and an observation."""
    rng = np.random.default_rng(seed)
    family, mean, A = family_of(name), rng.normal(size=(1, D)), rng.normal(size=(D, D + 2))
    C = A @ A.T
    sd = sd * rng.uniform(0.6, 1.0, D) / np.sqrt(np.diagonal(C))
    cov = (C * sd[:, None] * sd)[None]
    return family, mean, cov, observed(family, mean, cov, seed)


def product_of_rules(family, mean, cov, y, size):
    """log E[p] of counts by a product of Gauss-Hermite rules over the four contrasts, about the mode."""
    A = np.concatenate([np.eye(D - 1), -np.ones((D - 1, 1))], axis=1)
    R, e = np.linalg.cholesky(A @ cov @ A.T), np.zeros(D - 1)
    root, N = np.concatenate([R, np.zeros((1, D - 1))]), y.sum()
    for _ in range(50):
        pi = softmax(mean - mean[-1] + root @ e)
        H = np.eye(D - 1) + N * root.T @ (np.diag(pi) - np.outer(pi, pi)) @ root
        e = e + 0.7 * np.linalg.solve(H, root.T @ (y - N * pi) - e)
    S = np.linalg.inv(np.linalg.cholesky(H)).T
    x, w = np.polynomial.hermite_e.hermegauss(size)
    nodes = np.array(list(itertools.product(x, repeat=D - 2)))
    weights = np.array(list(itertools.product(np.log(w / w.sum()), repeat=D - 2))).sum(axis=1)
    nodes, weights = nodes[weights > -35.0], weights[weights > -35.0]
    total = -np.inf
    for first, weight in zip(x, np.log(w / w.sum()), strict=True):
        points = np.concatenate([np.full((len(nodes), 1), first), nodes], axis=1)
        at = e + points @ S.T
        value = family.log_prob(mean - mean[-1] + at @ root.T, y) - 0.5 * np.sum(at**2 - points**2, axis=1)
        total = np.logaddexp(total, np.logaddexp.reduce(value + weights + weight))
    return total + np.linalg.slogdet(S)[1]


@pytest.mark.parametrize("sd", [0.5, 1.0, 2.0])  # rules and estimates of errors agree to 2e-6
def test_counts_with_full_covariances_by_products_of_rules(sd):
    family, mean, cov, y = full("multinomial", sd, 1)
    want = product_of_rules(family, mean[0], cov[0], y[0], 23)
    value, error = log_expected_one_by_one(family, mean, mean, cov, y, 5e-7)
    assert error[0] < 1e-5  # a cautious estimate
    np.testing.assert_allclose(value, want, atol=2e-6)
    np.testing.assert_allclose(log_expected_prob(family, mean, cov, y), want, atol=2e-6)


@pytest.mark.parametrize("name", ["softplus", "exp", "multinomial"])
@pytest.mark.parametrize("sd", [0.5, 3.0, 10.0])
def test_latents_one_by_one_agree_with_integrals_over_one_factor(name, sd):
    """Which are exact, whatever the width (`test_one_scale.py`)."""
    rng = np.random.default_rng(2)
    family, mean, sds = family_of(name), rng.normal(size=(1, D)), sd * rng.uniform(0.6, 1.0, D)
    along = 0.8 * sds * rng.uniform(-1.0, 1.0, D)
    cov = (np.diag(sds**2 - along**2) + np.outer(along, along))[None]
    y = observed(family, mean, cov, 2)
    value, _ = log_expected_one_by_one(family, mean, mean, cov, y, 5e-7)
    np.testing.assert_allclose(value, log_expected_prob(family, mean, cov, y), atol=2e-6)


def test_wide_compositions_do_not_depend_on_the_order():
    family, mean, cov, y = full("softplus", 30.0, 3)
    order = np.array([3, 0, 4, 2, 1])
    found = log_expected_prob(family, mean, cov, y)
    turned = log_expected_prob(family, mean[:, order], cov[:, order][:, :, order], y[:, order])
    np.testing.assert_allclose(turned, found, atol=2e-6)


@pytest.mark.parametrize("name", ["softplus", "multinomial"])
def test_latents_without_variance_of_their_own_have_densities(name):
    family, mean, _, y = full(name, 1.0, 4)
    A = np.random.default_rng(4).normal(size=(D, 2))
    assert np.isfinite(log_expected_prob(family, mean, (A @ A.T)[None], y)).all()
    still = np.diag([1.0, 0.0, 1.0, 1.0, 1.0]) + 0.3 * np.outer([1, 0, 1, -1, 1], [1, 0, 1, -1, 1])
    assert np.isnan(log_expected_one_by_one(family, mean, mean, still[None], y, 5e-7)[0]).all()
    assert np.isfinite(log_expected_prob(family, mean, still[None], y)).all()


def test_points_are_exact_for_polynomials():
    half, (weights, of_half) = matched_points(3, 10)
    x = np.concatenate([half, -half])
    for w in (weights, of_half):
        w = np.concatenate([w, w])
        assert abs(w.sum() - 1.0) < 1e-12
        np.testing.assert_allclose(w @ (x[:, 0] ** 2 * x[:, 1] ** 2), 1.0, atol=1e-9)
        np.testing.assert_allclose(w @ x**4, 3.0, atol=1e-9)
