"""One registry of all families for the tests that must hold for every family."""

import os
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from ggpm import families
from ggpm.families.support import Simplex
from ggpm.fields.dense import DenseField
from ggpm.fields.inducing.field import InducingField
from ggpm.learning.objective import Evidence

# name -> (family, a y that fixes the number of parts, classes or levels)
FAMILIES = {
    "gaussian": (families.Gaussian(phi=0.3), np.zeros(3)),
    "gaussian, 3 outputs": (families.Gaussian(phi=[0.3, 0.1, 0.6]), np.zeros((3, 3))),
    "multivariate_gaussian": (
        families.MultivariateGaussian(phi=[[0.3, 0.1, -0.05], [0.1, 0.2, 0.02], [-0.05, 0.02, 0.6]]),
        np.zeros((3, 3)),
    ),
    "bernoulli": (families.Bernoulli(), np.array([0, 1])),
    "binomial": (families.Binomial(), np.array([[1, 2]])),
    "beta_binomial": (families.BetaBinomial(phi=4.0), np.array([[1, 2]])),
    "poisson": (families.Poisson(), np.array([1])),
    "poisson, softplus": (families.Poisson(link="softplus"), np.array([1])),
    "negative_binomial": (families.NegativeBinomial(phi=0.4), np.array([1])),
    "gamma": (families.Gamma(phi=0.3), np.array([1.0])),
    "gamma, softplus": (families.Gamma(phi=0.3, link="softplus"), np.array([1.0])),
    "inverse_gaussian": (families.InverseGaussian(phi=0.4), np.array([1.0])),
    "log_normal": (families.LogNormal(phi=0.4), np.array([1.0])),
    "weibull": (families.Weibull(phi=1.7), np.array([1.0])),
    "beta": (families.Beta(phi=6.0), np.array([0.5])),
    "categorical": (families.Categorical(n_classes=4), np.array([0, 1, 2, 3])),
    "multinomial": (families.Multinomial(), np.array([[1, 2, 0]])),
    "dirichlet_multinomial": (families.DirichletMultinomial(phi=4.0), np.array([[1, 2, 0]])),
    "ordinal": (families.Ordinal(phi=[-1.2, 0.1, 0.9]), np.array([0, 1, 2, 3])),
    "von_mises": (families.VonMises(), np.array([0.1])),
    "von_mises_fisher": (families.VonMisesFisher(), np.array([[0.0, 0.6, 0.8]])),
    "dirichlet": (families.Dirichlet(), np.array([[0.2, 0.3, 0.5]])),
    "dirichlet, exp": (families.Dirichlet(link="exp"), np.array([[0.2, 0.3, 0.5]])),
    "logistic_normal": (families.LogisticNormal(phi=[[0.3, 0.1], [0.1, 0.2]]), np.array([[0.2, 0.3, 0.5]])),
    "wishart": (families.Wishart(phi=5.5), np.array([[[1.0, 0.3], [0.3, 0.8]]])),
    "gaussian_mean_scale": (families.GaussianMeanScale(), np.array([0.0, 1.0])),
    "student_t": (families.StudentT(phi=5.0), np.array([0.0, 1.0])),
    "gamma_mean_shape": (families.GammaMeanShape(), np.array([1.0, 2.0])),
    "beta_mean_precision": (families.BetaMeanPrecision(), np.array([0.5])),
    "negative_binomial_mean_dispersion": (families.NegativeBinomialMeanDispersion(), np.array([1])),
    "von_mises_direction_concentration": (families.VonMisesDirectionConcentration(), np.array([0.1])),
}

DATA = Path(os.environ.get("GGPM_DATA") or Path(__file__).parents[2] / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the folder of reference data: set GGPM_DATA to it")


def covered() -> set[str]:
    """Built-in families that the registry holds."""
    return {type(family).__name__ for family, _ in FAMILIES.values()}


def kernels(D: int, shared: bool):
    """A kernel for all latent dimensions, or D different ones."""
    if shared or D == 1:
        return ConstantKernel(1.3) * RBF(0.8) + ConstantKernel(0.4)
    return [ConstantKernel(1.0 + 0.2 * j) * (RBF(0.6 + 0.2 * j) if j % 2 else Matern(0.9, nu=2.5)) for j in range(D)]


def simulate(name: str, n: int = 18, seed: int = 0, scale: float = 1.0):
    """Data from a family's own prior: X, y, and the family bound to the number of parts."""
    rng = np.random.default_rng(seed)
    family, example = FAMILIES[name]
    family = family.resolve(example)
    X = rng.uniform(-2, 2, size=(n, 2))
    K = RBF(1.0)(X) + 1e-8 * np.eye(n)
    eta = scale * np.linalg.cholesky(K) @ rng.normal(size=(n, family.latent_dim)) + 0.5
    trials = rng.integers(1, 12, n).astype(float) if family.countable else None
    y = family.sample(eta, rng, trials)
    if isinstance(family.support, Simplex):  # tiny concentrations give parts that underflow to zero
        y = np.maximum(y, 1e-12) / np.maximum(y, 1e-12).sum(axis=1, keepdims=True)
    return X, y, family


def dense_evidence(family, kernels, X, y, offset, rule, **settings):
    """The evidence of rows in memory, y encoded."""
    return Evidence(family, kernels, DenseField(X, y, offset), rule, **settings)


def inducing_evidence(family, kernels, rows, Z, rule, jitter=1e-8):
    """The evidence through inducing points."""
    return Evidence(family, kernels, InducingField(rows, np.asarray(Z, dtype=float), jitter), rule)


def with_inputs(evidence, Z):
    """The same with other inducing inputs."""
    return evidence.with_field(replace(evidence.field, Z=Z))


def gradients(evidence, a):
    """Gradient in theta and in the inducing inputs."""
    of_kernels, of_family, inputs = a.process.gradients(a)
    return evidence.gradient_in_theta(of_kernels, of_family), inputs


def click_runner():
    """click's runner of commands, whose standard output and errors are apart."""
    from click.testing import CliRunner

    apart = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}  # before click 8.2
    return CliRunner(**apart)
