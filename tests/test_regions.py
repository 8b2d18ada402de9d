"""Highest-density regions of vectors and matrices: what they hold, and what their thresholds are made of."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import chi2

from ggpm import Predictive, families
from ggpm.prediction.mixture import Mixture
from ggpm.prediction.regions import _quantile, expanded_log_density, log_density

COMPOSITION = np.full((1, 3), 1.0 / 3.0)
OUTPUTS = {
    "wishart, 2": families.Wishart(phi=5.5).resolve(np.eye(2)[None]),
    "wishart, 3": families.Wishart(phi=6.5).resolve(np.eye(3)[None]),
    "dirichlet": families.Dirichlet().resolve(COMPOSITION),
    "dirichlet, 6": families.Dirichlet().resolve(np.full((1, 6), 1.0 / 6.0)),
    "von_mises_fisher": families.VonMisesFisher().resolve(np.eye(3)[:1]),
    "logistic_normal": families.LogisticNormal(0.3 * np.eye(2)).resolve(COMPOSITION),
    "multivariate_gaussian": families.MultivariateGaussian(0.3 + 0.7 * np.eye(2)).resolve(np.zeros((1, 2))),
}

SLOW = ("wishart, 3", "dirichlet", "dirichlet, 6", "von_mises_fisher")


def predictive(family, rows, sd, seed=0):
    """Rows with latents of this size at most, as means those of a fit."""
    rng, D = np.random.default_rng(seed), family.latent_dim
    spread = sd * rng.uniform(0.15, 1.0, (rows, D))
    cov = spread[:, :, None] * spread[:, None, :] * (0.7 * np.eye(D) + 0.3)
    return Predictive(family, rng.normal(size=(rows, D)), cov)


WIDE = [pytest.param(name, 2.0, marks=[pytest.mark.slow] if name in SLOW else []) for name in OUTPUTS]


@pytest.mark.parametrize("name, sd", [(name, sd) for name in OUTPUTS for sd in (0.05, 0.7)] + WIDE)
def test_regions_hold_their_share_of_what_the_model_draws(name, sd):
    p = predictive(OUTPUTS[name], 400, sd)
    inside = p.highest_density(0.9).contains(p.sample(None, 1))
    # four standard errors of 400 draws, and 0.01 that the draws behind the thresholds may have in common
    assert np.mean(inside) == pytest.approx(0.9, abs=0.07)


@pytest.mark.parametrize("name, sd", [("wishart, 2", 0.1), ("wishart, 2", 0.7), ("wishart, 3", 0.7)])
def test_thresholds_of_single_rows_against_many_draws_with_exact_densities(name, sd):
    n, one = 1500, predictive(OUTPUTS[name], 1, sd, seed=5)
    many = one.rows(np.zeros(n, dtype=int))
    density = many.log_prob(many.sample(None, 2))
    # four standard errors of 1500 draws are 0.031, quasi-random ones add 0.006
    assert np.mean(density >= one.highest_density(0.9).log_threshold) == pytest.approx(0.9, abs=0.037)


@pytest.mark.parametrize("sd, atol", [(0.1, 1e-3), (0.7, 0.03), (2.0, 0.15)])
@pytest.mark.parametrize("p", [2, 3, 4])
def test_laplace_of_matrices_against_quadrature(p, sd, atol):
    """Measured: 2e-4, 0.005 and 0.04 at most; the longest tails of other draws have four times that."""
    if (p, sd) == (4, 2.0):
        pytest.skip("sparse grids are no more exact than Laplace's formula there")
    family = families.Wishart(phi=p + 3.5).resolve(np.eye(p)[None])
    many = predictive(family, 40, sd, seed=p)
    y = many.sample(None, 3)
    np.testing.assert_allclose(log_density(many, y[None])[0], many.log_prob(y), atol=atol)


def test_laplace_of_matrices_in_other_units_and_with_known_latents():
    rng = np.random.default_rng(0)
    y = families.Wishart(phi=5.0).resolve(np.eye(2)[None]).sample(np.zeros((6, 3)), rng) * np.outer(
        [30.0, 0.1], [30.0, 0.1]
    )
    family = families.Wishart(phi=5.0).resolve(y).adapted(y)
    cov = np.diag([0.0, 0.3, 0.2]) * np.ones((6, 1, 1))
    p = Predictive(family, np.zeros((6, 3)), cov)
    np.testing.assert_allclose(log_density(p, family.encode(y)[None])[0], p.log_prob(y), atol=0.01)
    known = Predictive(family, np.zeros((6, 3)), 0.0 * cov)
    np.testing.assert_allclose(log_density(known, family.encode(y)[None])[0], known.log_prob(y), atol=1e-9)


@pytest.mark.parametrize("p, phi", [(2, 1.05), (3, 2.05), (3, 1e5)])
def test_matrices_of_hardly_any_and_of_many_degrees_of_freedom(p, phi):
    """Draws next to the border of the support, which floats cannot tell from it, are not refused."""
    family = families.Wishart(phi=phi).resolve(np.eye(p)[None])
    many = predictive(family, 3, 0.5)
    assert np.all(np.isfinite(many.highest_density(0.9).log_threshold))


def test_regions_of_gaussian_outputs_are_those_of_a_chi_square():
    family = OUTPUTS["multivariate_gaussian"]
    p = predictive(family, 4, 1.0)
    for level in (0.5, 0.9, 0.99):
        exact = p.log_prob(p.latent_mean) - 0.5 * chi2.ppf(level, 2)
        np.testing.assert_allclose(p.highest_density(level).log_threshold, exact, rtol=1e-12)


def test_the_expansion_is_exact_for_gaussian_outputs():
    p = predictive(OUTPUTS["multivariate_gaussian"], 4, 1.0)
    y = p.sample(3, 0)
    np.testing.assert_allclose(expanded_log_density(p, y)[0].T, [p.log_prob(v) for v in y], atol=1e-10)


@pytest.mark.parametrize("name", ["wishart, 2", "dirichlet", "multivariate_gaussian"])
def test_regions_of_mixtures(name):
    low, high = (predictive(OUTPUTS[name], 200, 0.5, seed) for seed in (1, 2))
    both = Mixture([low, high], np.array([0.3, 0.7]))
    assert np.mean(both.highest_density(0.9).contains(both.sample(None, 5))) == pytest.approx(0.9, abs=0.085)  # 4 se
    alone = Mixture([low, low], np.array([0.3, 0.7])).highest_density(0.9).log_threshold
    # random draws of 200 rows: a threshold has a standard error of 0.1 or 0.2
    assert np.mean(alone - low.highest_density(0.9).log_threshold) == pytest.approx(0.0, abs=0.06)


@dataclass
class Ranked:
    """Draws whose densities and rough order are given."""

    order: np.ndarray
    values: np.ndarray

    def rough(self):
        return self.order

    def fine(self, rows, which):
        return np.take_along_axis(self.values[rows], which, axis=1)

    def quantile(self, q):
        return None


@pytest.mark.parametrize(
    "level, noise", [(0.01, 0.0), (0.01, 0.02), (0.5, 0.02), (0.5, 10.0), (0.9, 0.02), (0.9, 10.0), (0.999, 0.02)]
)
def test_quantiles_by_ranks(level, noise):
    """An order that is a little wrong does no harm, and one that is wrong altogether is not used."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(5, 800))
    draws = Ranked(values + noise * rng.normal(size=values.shape), values)
    exact = np.quantile(values, 1 - level, axis=1, method="hazen")
    np.testing.assert_allclose(_quantile(draws, 1 - level), exact, atol=1e-12)


NUMBERS = {
    "gamma": families.Gamma(phi=0.3),
    "beta": families.Beta(phi=6.0),
    "gaussian": families.Gaussian(phi=0.2).resolve(np.zeros(3)),
    "gaussian_mean_scale": families.GaussianMeanScale(),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("apart", [0.2, 4.0])
def test_regions_of_averages_of_numbers(name, apart):
    """From a few places of y where parts are alike, from draws where they are two peaks."""
    part = predictive(NUMBERS[name], 100, 0.1, 1)
    shift = np.zeros(part.latent_mean.shape[1])
    shift[0] = apart
    both = Mixture([part, Predictive(part.family, part.latent_mean + shift, part.latent_cov)], np.array([0.3, 0.7]))
    region, draws = both.highest_density(0.9, n_draws=4000), both.sample(1000, 5)
    inside = np.stack([region.contains(draw) for draw in draws])
    assert inside.mean() == pytest.approx(0.9, abs=0.004)  # 100,000 draws: 4 standard errors, 0.4 % of levels
    np.testing.assert_allclose(inside.mean(axis=0), 0.9, atol=0.045)
