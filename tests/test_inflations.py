"""Exact zeros and ones: their log-odds integrated in closed form, against fine grids over all latents and draws."""

import mpmath as mp
import numpy as np
import pytest
from scipy.special import logsumexp

from ggpm import Predictive, families
from ggpm.families.inflated import Odds
from ggpm.families.special.left_over import log_left_over
from ggpm.prediction.kinds import at_atoms
from ggpm.prediction.mixture import Mixture

FAMILIES = {
    "hurdle, poisson": families.Hurdle(families.Poisson()),
    "hurdle, negative_binomial": families.Hurdle(families.NegativeBinomial(phi=0.4)),
    "hurdle, gamma": families.Hurdle(families.Gamma(phi=0.3)),
    "hurdle, log_normal": families.Hurdle(families.LogNormal(phi=0.4)),
    "zero_inflated, poisson": families.ZeroInflated(families.Poisson()),
    "zero_inflated, negative_binomial": families.ZeroInflated(families.NegativeBinomial(phi=0.4)),
    "zero_inflated, beta": families.ZeroInflated(families.Beta(phi=6.0)),
    "zero_one_inflated_beta": families.ZeroOneInflatedBeta(phi=6.0),
}


# ---- averages of log-odds ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("sd", [0.0, 0.05, 0.3, 0.7, 1.0, 1.001, 3.0, 100.0])
@pytest.mark.parametrize("mean", [-40.0, -3.0, 0.2, 5.0, 60.0, 4000.0])
def test_what_is_left_of_one(mean, sd):
    found = log_left_over(np.full((1, 1), mean), np.full((1, 1, 1), sd))[0]
    with mp.workdps(30):
        tilt = -min(sd, max(mean, 0.0) / sd) if sd else 0.0  # where the integrand is largest

        def scaled(e):
            return mp.exp(mean + sd * tilt - (e * e - tilt * tilt) / 2) / (mp.exp(mean + sd * e) + 1)

        if sd:
            cuts = sorted({tilt + k for k in (-40, -12, -6, -3, -1, 0, 1, 3, 6, 12, 40)} | {-mean / sd})
            total = mp.quad(scaled, [c for c in cuts if abs(c - tilt) <= 40]) / mp.sqrt(2 * mp.pi)
        else:
            total = scaled(mp.mpf(0))
        expected = float(mp.log(total) - mean - sd * tilt - tilt * tilt / 2)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=2e-8)


@pytest.mark.parametrize("root", [[0.5, 0.2, 0.6], [0.0, 0.0, 0.4], [1.5, 0.6, 1.1], [5.0, -2.0, 4.0], [0.3, 3.0, 8.0]])
@pytest.mark.parametrize("mean", [[0.0, 0.0], [1.0, -2.0], [8.0, 5.0], [-30.0, 1.0]])
def test_what_is_left_of_two(mean, root):
    R = np.array([[root[0], 0.0], [root[1], root[2]]])
    e = np.arange(-14.0, 14.0, 0.02)
    x = [mean[0] + R[0, 0] * e[:, None], mean[1] + R[1, 0] * e[:, None] + R[1, 1] * e]
    values = -np.logaddexp(np.logaddexp(0.0, x[0]), x[1]) - 0.5 * (e[:, None] ** 2 + e**2)
    expected = logsumexp(values) + 2.0 * np.log(0.02) - np.log(2.0 * np.pi)
    np.testing.assert_allclose(log_left_over(np.array([mean]), R[None])[0], expected, atol=3e-8)


def test_odds_against_each_are_probabilities_of_a_softmax():
    rng = np.random.default_rng(0)
    mean, A = rng.normal(size=(4, 3)), rng.normal(size=(4, 3, 3))
    odds = Odds.of(mean, A @ A.swapaxes(1, 2))
    a = rng.normal(size=4)
    total = sum(np.exp(part.log_rest(a)) for part in (odds, odds.against(0), odds.against(1)))
    np.testing.assert_allclose(total, 1.0, atol=1e-7)


# ---- predictions -------------------------------------------------------------------------------------------------
def prediction(name, variance, correlation, m=3, seed=2):
    family = FAMILIES[name]
    D, rng = family.latent_dim, np.random.default_rng(seed)
    sd = np.sqrt(variance) * rng.uniform(0.5, 1.0, (m, D))
    C = (1.0 - correlation) * np.eye(D) + correlation
    return Predictive(family, 0.7 * rng.normal(size=(m, D)), sd[:, :, None] * sd[:, None, :] * C)


def averages(p, row, *functions):
    """Means of functions of the latents of one row over a fine grid of all of them."""
    L = np.linalg.cholesky(p.latent_cov[row])
    wide = np.diag(L)
    # spacing in standard deviations and in units of the latents, of which the law's sees likelihoods of counts up to 20
    steps = (min(0.5, step / s) for step, s in zip((0.12, 0.4, 0.4), wide))
    axes = [np.linspace(-7.5, 7.5, 2 * int(np.ceil(7.5 / step)) + 1) for step in steps]
    x = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    log_w = -0.5 * np.sum(x * x, axis=1)
    x, log_w = x[log_w > -29.0], log_w[log_w > -29.0]
    eta, w = p.latent_mean[row] + x @ L.T, np.exp(log_w - logsumexp(log_w))
    with np.errstate(all="ignore"):
        return [w @ function(eta) for function in functions]


def at(p, row, y):
    """Density and distribution function of one row at a number."""
    one = np.full(1, y)
    return averages(p, row, lambda e: np.exp(p.family.log_prob(e, one)), lambda e: p.family.cdf(e, one))


CASES = [(v, c) for v in (0.01, 1.0, 6.0) for c in (0.0, 0.4, -0.45)] + [(1.0, 0.98), (6.0, 0.98)]


@pytest.mark.parametrize("variance, correlation", CASES)
@pytest.mark.parametrize("name", FAMILIES)
def test_densities_distribution_functions_and_moments_are_those_of_fine_grids(name, variance, correlation):
    p = prediction(name, variance, correlation)
    family, drawn = p.family, p.sample(60, 3)
    positive = np.array([column[(column > 0) & (column < min(20.0, family.support.high))][0] for column in drawn.T])
    mean, var = p.mean(), p.var()
    for y in (positive, np.zeros(len(p)), *([np.ones(len(p))] if len(family.singles) > 1 else [])):
        log_p, F = p.log_prob(y), p.cdf(y)
        for row in range(len(p)):
            density, upto = at(p, row, y[row])
            np.testing.assert_allclose(log_p[row], np.log(density), atol=1e-6)
            np.testing.assert_allclose(F[row], upto, atol=3e-6)
    if variance * family.latent_dim <= 3.0 or family.support.high <= 1.0:  # grids end before exp(2 a) does
        for row in range(len(p)):
            first, second = averages(p, row, family.moment, lambda e: family.spread(e) + family.moment(e) ** 2)
            np.testing.assert_allclose(mean[row], first, rtol=1e-6)
            np.testing.assert_allclose(var[row], second - first**2, rtol=3e-6)


@pytest.mark.parametrize("variance, correlation", CASES)
@pytest.mark.parametrize("name", FAMILIES)
def test_quantiles_are_where_the_distribution_function_of_fine_grids_says(name, variance, correlation):
    p = prediction(name, variance, correlation)
    for q in (0.05, 0.6, 0.95):
        y = p.quantile(q)
        for row in range(len(p)):
            mass, upto = at(p, row, y[row])
            if p.family.support.integer or y[row] in p.family.singles:
                assert upto - mass < q + 1e-5 and q - 1e-5 < upto
            else:
                np.testing.assert_allclose(upto, q, atol=3e-5)


@pytest.mark.parametrize("name", ["zero_inflated, poisson", "zero_inflated, negative_binomial", "hurdle, gamma"])
def test_densities_under_very_wide_latents(name):
    """Against one fine sum over the law's latent, on which the likelihood is a step."""
    family, rng = FAMILIES[name], np.random.default_rng(0)
    m = 30
    mean, rho = 30.0 * rng.normal(size=(m, 2)), rng.uniform(-0.999, 0.999, m)
    cov = 1e4 * np.stack([np.ones(m), rho, rho, np.ones(m)], axis=1).reshape(m, 2, 2)
    y = np.where(np.arange(m) % 2, 0.0, 3.0)
    e = np.arange(-9.0, 9.0, 5e-4)
    for found, *row in zip(Predictive(family, mean, cov).log_prob(y), mean, cov, y, strict=True):
        mu, V, value = row
        a = mu[0] + 100.0 * e
        x = (mu[1] + V[1, 0] / V[0, 0] * (a - mu[0]))[:, None]
        own = np.full((len(a), 1, 1), np.sqrt(V[1, 1] - V[1, 0] ** 2 / V[0, 0]))
        with np.errstate(all="ignore"):
            inner = family.law.log_prob(a[:, None], np.full(1, family.within(np.array([value]))[0]))
        zero = value == 0.0
        rest, single = log_left_over(x, own), log_left_over(-x, own)
        inner = np.where(np.isfinite(inner), inner, -np.inf) + rest
        both = np.logaddexp(single, inner) if not family.apart else single
        log_p = logsumexp((both if zero else inner) - 0.5 * e * e) + np.log(5e-4) - 0.5 * np.log(2.0 * np.pi)
        np.testing.assert_allclose(found, log_p, atol=1e-6)


@pytest.mark.parametrize("name", ["hurdle, gamma", "zero_inflated, beta", "zero_one_inflated_beta"])
@pytest.mark.parametrize("level", [0.3, 0.9])
def test_highest_densities_hold_their_share_of_draws(name, level):
    p = prediction(name, 0.5, 0.3, m=4)
    many = Predictive(p.family, np.repeat(p.latent_mean, 4000, axis=0), np.repeat(p.latent_cov, 4000, axis=0))
    y = many.sample(None, 5)
    threshold = p.highest_density(level).log_threshold
    log_p = many.log_prob(y).reshape(4, -1)
    inside = log_p >= threshold[:, None]
    # an exact zero or one is inside or outside as a whole
    least = (log_p > threshold[:, None] + 1e-6).mean(axis=1)
    assert np.all(least < level + 0.035) and np.all(inside.mean(axis=1) > level - 0.035)
    np.testing.assert_array_equal(p.highest_density(level).contains(y[::4000]), inside[:, 0])


def test_single_numbers_of_mixtures():
    parts = [prediction("hurdle, gamma", 0.5, 0.3, seed=seed) for seed in (1, 2)]
    both = Mixture(parts, np.array([0.3, 0.7]))
    expected = 0.3 * np.exp(parts[0].log_prob(np.zeros(3))) + 0.7 * np.exp(parts[1].log_prob(np.zeros(3)))
    np.testing.assert_allclose(at_atoms(both, np.zeros(3)), expected, rtol=1e-7)
    np.testing.assert_allclose(both.cdf(np.zeros(3)), expected, rtol=1e-7)
    np.testing.assert_allclose(np.exp(both.log_prob(np.zeros(3))), expected, rtol=1e-7)
