"""Expectations of the softmax under independent latents: against other integrals, and slopes against differences."""

import numpy as np
import pytest
from scipy.special import log_softmax, ndtr

from cases import simulate
from ggpm import families
from ggpm.families.special.logsumexp import expected_logsumexp, normal_distribution
from ggpm.families.special.quadrature import matched_nodes

# of every rule, and of both sides of every change of rule
SCALES = [1e-3, 0.3, 0.49, 0.51, 0.99, 1.01, 1.49, 1.51, 2.5, 3.5, 5.0, 7.0, 12.0, 20.0, 100.0]


def latents(scale, D=5, n=4, seed=0):
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(n, D)) + rng.normal(size=(n, D)), (scale * rng.uniform(0.9, 1.1, (n, D))) ** 2


@pytest.mark.parametrize("scale", SCALES)
def test_two_latents_are_one_integral(scale):
    """log(e^a + e^b) = b + softplus(a - b), and a - b is normal: a fine trapezoidal rule in one dimension."""
    mean, var = latents(scale, D=2)
    E = expected_logsumexp(mean, var)
    x = np.linspace(-9, 9, 200_001)
    w = np.exp(-0.5 * x * x)
    d = (mean[:, 0] - mean[:, 1])[:, None] + np.sqrt(var.sum(axis=1))[:, None] * x
    value = mean[:, 1] + np.logaddexp(0.0, d) @ w / w.sum()
    np.testing.assert_allclose(E.value, value, rtol=0, atol=1e-7 * (1 + scale))  # eight digits, of the spread
    np.testing.assert_allclose(E.d_mean[:, 0], (0.5 * (1 + np.tanh(d / 2))) @ w / w.sum(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("scale", SCALES)
def test_derivatives(scale):
    mean, var = latents(scale)
    E = expected_logsumexp(mean, var, second=True)
    h_mean, h_var = 1e-3 * (1 + scale), 2e-3 * var.min()
    for j, unit in enumerate(np.eye(mean.shape[1])):
        up, down = (expected_logsumexp(mean + s * h_mean * unit, var) for s in (1, -1))
        for got, high, low in [
            (E.d_mean[:, j], up.value, down.value), (E.d_mean_mean[:, :, j], up.d_mean, down.d_mean),
        ]:  # fmt: skip
            np.testing.assert_allclose(got, (high - low) / (2 * h_mean), rtol=0, atol=5e-6)
        up, down = (expected_logsumexp(mean, var + s * h_var * unit) for s in (1, -1))
        for got, high, low in [
            (E.d_var[:, j], up.value, down.value), (E.d_mean_var[:, :, j], up.d_mean, down.d_mean),
            (E.d_var_var[:, :, j], up.d_var, down.d_var),
        ]:  # fmt: skip
            # rounding of the values over the step, and the step's own error
            np.testing.assert_allclose(got, (high - low) / (2 * h_var), rtol=0, atol=2e-6 + 1e-7 * (1 + scale) / h_var)


def test_mixed_scales_and_a_latent_out_of_the_race():
    mean, var = np.array([[0.0, 5.0, -300.0, 2.0]]), np.array([[1e-4, 900.0, 4.0, 9.0]])
    with_it = expected_logsumexp(mean, var)
    without = expected_logsumexp(mean[:, [0, 1, 3]], var[:, [0, 1, 3]])
    np.testing.assert_allclose(with_it.value, without.value, atol=1e-7)
    assert with_it.d_mean[0, 2] < 1e-12 and abs(with_it.d_mean.sum() - 1) < 1e-7
    assert np.all(with_it.d_var >= 0)


def test_normal_distribution():
    z = np.linspace(-37, 37, 2001)
    below, density = normal_distribution(z)
    np.testing.assert_allclose(below, ndtr(z), rtol=1e-10)
    np.testing.assert_allclose(density, np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi), rtol=1e-12)


@pytest.mark.parametrize("name", ["categorical", "multinomial"])
def test_expected_log_likelihood_against_nodes(name):
    """Sobol points at a small variance, where they are good."""
    _, y, family = simulate(name, n=6)
    y = family.encode(y)
    rng = np.random.default_rng(1)
    mean, var = rng.normal(size=(6, family.latent_dim)), rng.uniform(0.01, 0.05, size=(6, family.latent_dim))
    x, w = matched_nodes(family.latent_dim, "fine")
    eta = mean + np.sqrt(var) * x[:, None, :]
    E = family.expected_log_prob_factorised(mean, var, y)
    np.testing.assert_allclose(E.value, w @ family.log_prob(eta, y), rtol=1e-5)
    np.testing.assert_allclose(E.d_mean, np.tensordot(w, family.u(eta, y), axes=1), rtol=0, atol=1e-4)
    blocks = np.tensordot(w, family.U(eta, y).dense(), axes=1)
    np.testing.assert_allclose(-E.d_mean_mean, blocks, rtol=0, atol=1e-3)
    np.testing.assert_allclose(-2 * E.d_var, np.einsum("njj->nj", blocks), rtol=0, atol=1e-3)


def test_log_expected_probability_and_its_derivatives():
    family = families.Categorical(n_classes=4).resolve([0, 1, 2, 3])
    mean, var = latents(4.0, D=4)
    y = family.encode([0, 1, 2, 3])
    value, d_mean, d_var = family.log_expected_prob_factorised(mean, var, y, gradient=True)
    x = np.random.default_rng(0).normal(size=(200_000, 1, 4))
    p = np.exp(log_softmax(mean + np.sqrt(var) * x, axis=-1))[:, range(4), range(4)]
    # four standard errors of the draws
    assert np.all(np.abs(np.exp(value) - p.mean(axis=0)) < 4 * p.std(axis=0) / np.sqrt(len(p)))
    h = 1e-3
    for k, unit in enumerate(np.eye(4)):
        for got, a, b in [(d_mean, h * unit, 0.0), (d_var, 0.0, h * unit)]:
            up, down = (family.log_expected_prob_factorised(mean + s * a, var + s * b, y)[0] for s in (1, -1))
            np.testing.assert_allclose(got[:, k], (up - down) / (2 * h), rtol=1e-4, atol=1e-5)
