"""Do learned models keep their promises? Twenty simulated data sets per family, hyperparameters learned.

Data come from the family's own prior: a Gaussian process in the plane, observed at 60 inputs and predicted at 60 more.
"""

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cases import FAMILIES
from ggpm import GGPRegressor, Variational, calibration
from ggpm.families.support import Simplex

REPLICATIONS, N_TRAIN, N_TEST = 20, 60, 60
CONTINUOUS = ["gaussian", "gamma", "inverse_gaussian", "beta", "von_mises", "von_mises_fisher", "dirichlet"]
DISCRETE = ["bernoulli", "binomial", "poisson", "negative_binomial", "categorical", "multinomial", "ordinal"]


def replicate(name, seed):
    """Fit to one data set from the prior and report on new rows of the same draw."""
    rng = np.random.default_rng(1000 + seed)
    family, example = FAMILIES[name]
    family = family.resolve(example)
    n = N_TRAIN + N_TEST
    X = rng.uniform(-2, 2, size=(n, 2))
    K = RBF(1.0)(X) + 1e-8 * np.eye(n)
    eta = np.linalg.cholesky(K) @ rng.normal(size=(n, family.latent_dim)) + 0.5
    trials = rng.integers(1, 12, n).astype(float) if family.countable else None
    y = family.sample(eta, rng, trials)
    if isinstance(family.support, Simplex):
        y = np.maximum(y, 1e-12) / np.maximum(y, 1e-12).sum(axis=1, keepdims=True)
    kernel = ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(0.3)
    model = GGPRegressor(family, kernel, inference=Variational(accuracy="coarse", tol=1e-5))
    model.fit(X[:N_TRAIN], y[:N_TRAIN])
    return calibration(model, X[N_TRAIN:], y[N_TRAIN:], random_state=seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CONTINUOUS)
def test_ninety_percent_regions_cover_ninety_percent(name):
    coverage = [replicate(name, seed).coverage[2] for seed in range(REPLICATIONS)]
    assert 0.86 < np.mean(coverage) < 0.94, np.mean(coverage)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", DISCRETE)
def test_randomised_pit_is_uniform(name):
    """A Kolmogorov test at level 0.01 of one row per data set, which are independent, and two moments of all rows."""
    reports = [replicate(name, seed) for seed in range(REPLICATIONS)]
    values = np.array([r.pit.reshape(N_TEST, -1)[seed % N_TEST, 0] for seed, r in enumerate(reports)])
    assert stats.kstest(values, "uniform").pvalue > 0.01
    pooled = np.concatenate([r.pit.reshape(N_TEST, -1)[:, 0] for r in reports])
    assert abs(pooled.mean() - 0.5) < 0.04 and abs(pooled.var() - 1 / 12) < 0.012, (pooled.mean(), pooled.var())


if __name__ == "__main__":  # the table of docs/inference.md
    import warnings

    warnings.simplefilter("ignore")
    for name in CONTINUOUS + DISCRETE:
        reports = [replicate(name, seed) for seed in range(REPLICATIONS)]
        pooled = np.concatenate([r.pit.reshape(N_TEST, -1)[:, 0] for r in reports])
        cover = np.mean([r.coverage[2] for r in reports])
        p = stats.kstest(pooled, "uniform").pvalue
        print(f"| {name} | {cover:.3f} | {pooled.mean():.3f} | {pooled.var():.4f} | {p:.3f} |", flush=True)
