"""Densities with many latents that meet in a sum, against brute force of known error."""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from ggpm import Predictive, families
from ggpm.families.special.one_scale import one_factor
from ggpm.sites.densities import log_expected_prob

D = 5


def brute_force(family, mean, sd, factors, y, points, reach=8.0):
    """log E[p] of one row with eta = mean + factors^T z + sd x on plain grids: (eta of a latent), z and tau.

    ``points`` are numbers of nodes for eta, z and tau; with all of them larger the answer is the same to 1e-8.
    """
    links = {"softplus": lambda e: np.logaddexp(0.0, e), "exp": np.exp}
    z = np.linspace(-reach, reach, points[1])
    Z = np.array(list(itertools.product(z, repeat=len(factors))))
    weight = -0.5 * np.sum(Z**2, axis=1) + len(factors) * np.log((z[1] - z[0]) / np.sqrt(2 * np.pi))

    def total(low, high, number):
        tau = np.linspace(low, high, number)
        out = weight[:, None] + np.zeros(number) + np.log(tau[1] - tau[0])
        for j in range(len(mean)):
            centre = mean[j] + Z @ np.array([f[j] for f in factors]) if factors else mean[j : j + 1]
            eta = np.linspace(centre.min() - reach * sd[j], centre.max() + reach * sd[j], points[0])
            if isinstance(family, families.Dirichlet):  # shares of gamma variables whose sum is exp(tau)
                alpha = links[family.link](eta)[:, None]
                value = alpha * (tau + np.log(y[j])) - np.exp(tau) * y[j] - gammaln(alpha) - np.log(y[j])
            else:  # Poisson counts of mean exp(eta + tau), given their sum
                value = y[j] * (eta[:, None] + tau) - np.exp(eta[:, None] + tau) - gammaln(y[j] + 1.0)
            top = value.max(axis=0)
            normal = np.exp(-0.5 * ((eta - centre[:, None]) / sd[j]) ** 2) * (eta[1] - eta[0]) / sd[j]
            with np.errstate(divide="ignore"):
                out += np.log(normal @ np.exp(value - top) / np.sqrt(2 * np.pi)) + top
        return out, tau

    out, tau = total(-60.0, 30.0, 600)
    along = logsumexp(out, axis=0)
    seen = np.flatnonzero(along > along.max() - 40.0)
    out, _ = total(tau[max(seen[0] - 1, 0)], tau[min(seen[-1] + 1, len(tau) - 1)], points[2])
    # the sum of Poisson counts has a density of its own
    own = 0.0 if isinstance(family, families.Dirichlet) else np.log(y.sum())
    return logsumexp(out) + own


def case(name, sd, seed, factors=1):
    """A family, its latents and an observation, with covariances of some factors."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(1, D))
    kind = "multinomial" if name == "multinomial" else "dirichlet"
    family = families.Multinomial() if kind == "multinomial" else families.Dirichlet(link=name)
    family = family.resolve(np.full((1, D), 1.0 if kind == "multinomial" else 1.0 / D))
    sd = sd * rng.uniform(0.5, 1.0, D)
    along = [0.6 * sd * rng.uniform(0.5, 1.0, D), 0.15 * sd * rng.normal(size=D)][:factors]
    cov = (np.diag(sd**2) + sum((np.outer(f, f) for f in along), np.zeros((D, D))))[None]
    trials = np.array([8.0]) if kind == "multinomial" else None
    y = Predictive(family, mean, cov, trials).sample(None, seed)
    return family, mean, sd, along, cov, np.maximum(y, 0.0 if kind == "multinomial" else 1e-100)


@pytest.mark.parametrize(
    "name, sd, factors",
    [*itertools.product(["softplus", "exp", "multinomial"], [0.1, 0.6], [0, 1]), ("softplus", 1.5, 1), ("exp", 1.5, 0)],
)
def test_densities_by_brute_force(name, sd, factors):
    family, mean, sds, along, cov, y = case(name, sd, 3, factors)
    found = log_expected_prob(family, mean, cov, y)
    want = brute_force(family, mean[0], sds, along, y[0], (500 if name != "exp" else 1500, 65, 301))
    np.testing.assert_allclose(found, want, atol=1e-6)


@pytest.mark.parametrize("name", ["softplus", "multinomial"])
def test_what_one_factor_leaves_is_counted_to_second_order(name):
    """A second factor of 15 % of each standard deviation leaves correlations of a few hundredths."""
    family, mean, sds, along, cov, y = case(name, 0.5, 4, factors=2)
    rest = one_factor(cov)[1]
    assert np.abs(rest).max() > 0.01 * np.diagonal(cov[0]).max()
    want = brute_force(family, mean[0], sds, along, y[0], (300, 41, 141), reach=6.5)
    np.testing.assert_allclose(log_expected_prob(family, mean, cov, y), want, atol=1e-6)


@pytest.mark.parametrize("name, sd", [("softplus", 6.0), ("exp", 2.0), ("multinomial", 6.0)])
def test_densities_of_wide_independent_latents_by_brute_force(name, sd):
    family, mean, sds, along, cov, y = case(name, sd, 5, factors=0)
    want = brute_force(family, mean[0], sds, along, y[0], (6000 if name == "exp" else 3000, 2, 401))
    np.testing.assert_allclose(log_expected_prob(family, mean, cov, y), want, atol=1e-6)


@pytest.mark.parametrize("name", ["softplus", "exp", "multinomial"])
def test_densities_of_latents_a_hundred_wide_are_finite_and_do_not_depend_on_the_order(name):
    family, mean, _, _, cov, y = case(name, 100.0, 6, factors=0)
    order = np.array([3, 0, 4, 2, 1])
    found = log_expected_prob(family, mean, cov, y)
    turned = log_expected_prob(family, mean[:, order], cov[:, order][:, :, order], y[:, order])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(turned, found, rtol=1e-9, atol=1e-6)


def test_logarithms_beyond_the_floats_are_no_density_and_no_warning():
    mean = np.array([[10.710875331584425, 5.311553178604435, 2.4726330116552915]])  # a piece of meat
    cov = np.array([[48.995, 19.8757, 9.5265], [19.8757, 14.5754, 4.7616], [9.5265, 4.7616, 4.6851]])[None]
    y = np.array([[0.60504, 0.27836, 0.1166]])
    with np.errstate(all="raise", under="ignore"):
        found = log_expected_prob(families.Dirichlet(closure=True), mean, cov, y / y.sum())
    rng = np.random.default_rng(0)
    alpha = np.logaddexp(0.0, mean + rng.normal(size=(200_000, 3)) @ np.linalg.cholesky(cov[0]).T)
    draws = gammaln(alpha.sum(axis=1)) + ((alpha - 1.0) * np.log(y / y.sum()) - gammaln(alpha)).sum(axis=1)
    known = np.exp(draws - draws.max())
    error = known.std() / np.sqrt(len(known)) / known.mean()
    assert abs(found[0] - np.log(known.mean()) - draws.max()) < 4.0 * error < 0.1


def test_factors_of_covariances():
    rng = np.random.default_rng(0)
    along, own = rng.normal(size=(20, 6)), rng.uniform(0.5, 2.0, (20, 6))
    cov = along[:, :, None] * along[:, None, :] + own[:, :, None] * np.eye(6)
    factor, rest = one_factor(cov)
    np.testing.assert_allclose(np.abs(factor), np.abs(along), atol=1e-2)
    assert np.abs(rest).max() < 1e-2  # least squares by sweeps: the last digits are left to the rest
    whole = factor[:, :, None] * factor[:, None, :] + rest
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(whole[:, off], cov[:, off], atol=1e-12)
    assert not np.einsum("njj->nj", rest).any()
    factor, rest = one_factor(np.tile(np.diag([1.0, 0.0, 2.0]), (2, 1, 1)))
    assert not factor.any() and not rest.any()


def average(family, mean, cov, per_axis=13):
    """Mean and covariance of one row by a product of Gauss-Hermite rules."""
    x, w = np.polynomial.hermite_e.hermegauss(per_axis)
    nodes = np.array(list(itertools.product(x, repeat=len(mean))))
    weights = np.prod(np.array(list(itertools.product(w / w.sum(), repeat=len(mean)))), axis=1)
    eta = mean + nodes @ np.linalg.cholesky(cov).T
    moment = family.moment(eta)
    centred = moment - weights @ moment
    between = np.einsum("s,si,sj->ij", weights, centred, centred)
    return weights @ moment, np.tensordot(weights, family.spread(eta), axes=1) + between


@pytest.mark.parametrize("sd, second", [(0.1, 0.0), (0.6, 0.15), (0.6, 0.6)])
def test_moments_of_compositions_against_a_product_of_rules(sd, second):
    """Covariances of one factor, of nearly one, and of two, for which averages over nodes answer."""
    rng = np.random.default_rng(7)
    family = families.Dirichlet().resolve(np.full((1, 4), 0.25))
    mean, sds = rng.normal(size=(1, 4)), sd * rng.uniform(0.5, 1.0, 4)
    along, across = 0.6 * sds * rng.uniform(0.5, 1.0, 4), second * sds * rng.normal(size=4)
    cov = (np.diag(sds**2) + np.outer(along, along) + np.outer(across, across))[None]
    p = Predictive(family, mean, cov)
    closed = np.isfinite(family.predictive_moments(mean, cov)[0]).all()
    assert closed == (second < 0.5)
    first, spread = average(family, mean[0], cov[0])
    atol = 1e-7 if closed else 1e-4  # sparse grids
    np.testing.assert_allclose(p.mean()[0], first, atol=atol)
    np.testing.assert_allclose(p.var()[0], spread, atol=atol)


def test_moments_of_compositions_with_wide_latents_are_completed_by_averages():
    """Rows of one call, of which rules settle some."""
    family = families.Dirichlet().resolve(np.full((1, 3), 1.0 / 3.0))
    cov = np.array([0.01, 100.0])[:, None, None] * np.eye(3)
    found = family.predictive_moments(np.zeros((2, 3)), cov)[0]
    assert np.isfinite(found[0]).all() and np.isnan(found[1]).all()
    np.testing.assert_allclose(Predictive(family, np.zeros((2, 3)), cov).mean(), 1.0 / 3.0, atol=1e-5)
