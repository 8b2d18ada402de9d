"""Densities to a tolerance that the caller chooses: what they cost, and how far they are off."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import minimize
from scipy.special import logsumexp

from cases import FAMILIES
from ggpm import families
from ggpm.learning import arena
from ggpm.sites import densities
from ggpm.sites.densities import log_expected_prob

# Rows of 40 nearly noiseless compositions without their block: concentrations near 2400, known to a seventh.
MEAN = np.array([1395.3, 775.9, 228.7])
SD, CORRELATION = np.array([191.8, 107.5, 31.8]), np.array([[1, 0.995, 0.986], [0.995, 1, 0.985], [0.986, 0.985, 1]])


def concentrated(rows=5):
    """A family, and rows of shares that their latents expect."""
    rng = np.random.default_rng(0)
    y = rng.dirichlet(MEAN, size=rows)
    family = families.Dirichlet().resolve(y)
    cov = np.broadcast_to(CORRELATION * SD[:, None] * SD, (rows, 3, 3))
    return family, np.tile(MEAN, (rows, 1)), cov, family.encode(y)


def brute_force(family, mean, cov, y, size=31):
    """log E[p] of one row by a product of Gauss–Hermite rules about the mode: 21 nodes give the same to 1e-9."""
    R = np.linalg.cholesky(cov)

    def log_f(e):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # nodes of no weight
            value = family.log_prob(mean + e @ R.T, y[None]) - 0.5 * np.sum(e**2, axis=-1)
        return np.where(np.isfinite(value), value, -np.inf)

    found = minimize(lambda e: -log_f(e[None])[0], np.zeros(3), method="BFGS", options={"gtol": 1e-8})
    h, unit = 1e-3, np.eye(3)
    H = -np.array([[(log_f((found.x + h * (a + b))[None]) - log_f((found.x + h * (a - b))[None])
                     - log_f((found.x + h * (b - a))[None]) + log_f((found.x - h * (a + b))[None]))[0] / (4 * h * h)
                    for a in unit] for b in unit])  # fmt: skip
    root = np.linalg.inv(np.linalg.cholesky(H)).T
    x, w = hermegauss(size)
    grid = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = (w[:, None, None] * w[:, None] * w).ravel() / w.sum() ** 3
    values = log_f(found.x + grid @ root.T) + 0.5 * np.sum(grid**2, axis=1)
    return logsumexp(values, b=weights) + np.linalg.slogdet(root)[1]


class Counted:
    """A family that counts the places at which its density, or a factor of it, is asked for."""

    def __init__(self, family):
        self.family, self.nodes = family, 0

    def __getattr__(self, name):
        return getattr(self.family, name)

    def log_prob(self, eta, y):
        self.nodes += eta[..., 0].size
        return self.family.log_prob(eta, y)

    def scale_factor(self, eta, tau, y):
        self.nodes += eta.size
        return self.family.scale_factor(eta, tau, y)


def wide(name, sd):
    """A family with four rows of latents, some of them correlated."""
    rng = np.random.default_rng(3)
    family, y = FAMILIES[name]
    family = family.resolve(y)
    D = family.latent_dim
    root = sd * (np.eye(D) + 0.3 * np.tril(rng.normal(size=(4, D, D)), -1))
    return family, rng.normal(size=(4, D)), root @ root.swapaxes(1, 2), np.repeat(family.encode(y)[:1], 4, axis=0)


def test_wide_rows_whose_integrand_is_nearly_gaussian_need_no_sections(monkeypatch):
    family, mean, cov, y = concentrated()
    monkeypatch.setattr(densities, "_nested", None)  # sections across the widest direction cost a hundred times as much
    found = log_expected_prob(family, mean, cov, y)
    expected = [brute_force(family, mean[i], cov[i], y[i]) for i in range(len(mean))]
    np.testing.assert_allclose(found, expected, atol=5e-7)


def test_a_tolerance_saves_nodes():
    family, *rows = wide("dirichlet", 6.0)
    nodes = {}
    for tolerance in (densities.TOLERANCE, arena.JUDGED):
        counted = Counted(family)
        log_expected_prob(counted, *rows, tolerance)
        nodes[tolerance] = counted.nodes
    assert 3 * nodes[arena.JUDGED] < nodes[densities.TOLERANCE]


# The estimate of a row's error is no bound: of 40 rows of compositions one was off by four times the tolerance.
@pytest.mark.parametrize("sd", [0.3, 1.5, 6.0])
@pytest.mark.parametrize("name", ["poisson", "dirichlet", "multinomial", "wishart", "gaussian_mean_scale"])
def test_densities_are_about_as_good_as_asked_for(name, sd):
    case = wide(name, sd)
    np.testing.assert_allclose(log_expected_prob(*case, arena.JUDGED), log_expected_prob(*case), atol=5 * arena.JUDGED)
