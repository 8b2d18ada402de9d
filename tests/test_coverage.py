"""Do models keep their promises? Simulated data sets per family, hyperparameters learned, and at the true ones.

Learned: a Gaussian process in the plane, observed at 60 inputs and predicted at 60 more, twenty times. True: what is
fitted is what the data came from, so that transforms are uniform up to the error of inference alone; three hundred
data sets of 15 rows and one new row each, hence independent.
"""

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cases import FAMILIES, covered
from ggpm import GGPRegressor, Predictive, Variational, calibration
from ggpm.families.support import Simplex

REPLICATIONS, N_TRAIN, N_TEST = 20, 60, 60
CONTINUOUS = [
    "gaussian", "multivariate_gaussian", "gamma", "inverse_gaussian", "log_normal", "weibull", "beta", "von_mises",
    "von_mises_fisher", "dirichlet", "logistic_normal", "wishart", "gaussian_mean_scale", "student_t",
    "gamma_mean_shape", "beta_mean_precision", "von_mises_direction_concentration",
]  # fmt: skip
DISCRETE = [
    "bernoulli", "binomial", "beta_binomial", "poisson", "negative_binomial", "categorical", "multinomial",
    "dirichlet_multinomial", "ordinal", "negative_binomial_mean_dispersion",
]  # fmt: skip
LEVEL = 0.01 / len(DISCRETE)  # all families together are refused once in a hundred times where nothing is wrong


def test_every_family_is_here():
    assert {type(FAMILIES[name][0]).__name__ for name in CONTINUOUS + DISCRETE} == covered()


class Overconfident:
    """A fitted model whose latent covariances are too small by a factor."""

    def __init__(self, model, factor):
        self.model, self.factor = model, factor

    def __getattr__(self, name):
        return getattr(self.model, name)

    def predict_dist(self, X, offset=None, trials=None):
        p = self.model.predict_dist(X, offset=offset, trials=trials)
        return Predictive(p.family, p.latent_mean, self.factor * p.latent_cov, trials)


def replicate(name, seed, factor=1.0, **settings):
    """Fit to one data set from the prior and report on new rows of the same draw; settings are the estimator's."""
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
    model = GGPRegressor(family, kernel, inference=Variational(accuracy="coarse", tol=1e-5), **settings)
    model.fit(X[:N_TRAIN], y[:N_TRAIN])
    shown = model if factor == 1.0 else Overconfident(model, factor)
    return calibration(shown, X[N_TRAIN:], y[N_TRAIN:], random_state=seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CONTINUOUS)
def test_ninety_percent_regions_cover_ninety_percent(name):
    """With hyperparameters averaged over: 60 rows leave them uncertain, and the best ones alone cover 0.84 to 0.91."""
    coverage = np.array([replicate(name, seed, averaging="integrate").coverage[2] for seed in range(REPLICATIONS)])
    error = coverage.std(ddof=1) / np.sqrt(REPLICATIONS)
    assert abs(coverage.mean() - 0.9) < 0.02 + 2.0 * error < 0.06, (coverage.mean(), error)


def uniformity(reports):
    """p-value of the hypothesis that transforms are uniform.

    Rows of one data set share a posterior and are dependent; data sets are not. So the first two components of Neyman's
    smooth test are averaged within each data set, and their mean over data sets is tested by Hotelling's T^2.
    """
    return uniformity_of(np.stack([r.pit.reshape(N_TEST, -1)[:, 0] for r in reports]))


def uniformity_of(u):
    """The same of transforms (data sets, rows)."""
    components = np.stack([np.sqrt(3) * (2 * u - 1), np.sqrt(5) * (6 * u**2 - 6 * u + 1)], axis=2).mean(axis=1)
    N, p = components.shape
    mean, cov = components.mean(axis=0), np.cov(components.T)
    T2 = N * mean @ np.linalg.solve(cov, mean)
    return stats.f.sf(T2 * (N - p) / (p * (N - 1)), p, N - p)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", DISCRETE)
def test_randomised_pit_is_uniform(name):
    reports = [replicate(name, seed, averaging="integrate") for seed in range(REPLICATIONS)]
    assert uniformity(reports) > LEVEL
    # one row of every data set: independent, so that Kolmogorov's test of any deviation is valid
    values = np.array([r.pit.reshape(N_TEST, -1)[seed % N_TEST, 0] for seed, r in enumerate(reports)])
    assert stats.kstest(values, "uniform").pvalue > LEVEL


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_uniformity_sees_latents_that_are_half_as_wide():
    """The test above can fail. Counts out of N say most about the latent: for single counts p is only 0.06 here."""
    assert uniformity([replicate("binomial", seed, factor=0.25) for seed in range(2 * REPLICATIONS)]) < LEVEL


def transforms_at_the_truth(name, replications=300, n=15):
    """Probability integral transforms of one new row per data set, all hyperparameters known."""
    family, example = FAMILIES[name]
    family = family.resolve(example)
    kernel = ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(0.3)
    out = []
    for seed in range(replications):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(n + 1, 2))
        eta = np.linalg.cholesky(kernel(X) + 1e-8 * np.eye(n + 1)) @ rng.normal(size=(n + 1, family.latent_dim))
        trials = rng.integers(1, 12, n + 1).astype(float) if family.countable else None
        y = family.sample(eta, rng, trials)
        model = GGPRegressor(family, kernel, inference="variational", optimizer=None).fit(X[:n], y[:n])
        out.append(calibration(model, X[n:], y[n:], random_state=10**6 + seed).pit.reshape(1, -1)[0, 0])
    return np.array(out)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CONTINUOUS + DISCRETE if n != "dirichlet"])
def test_pit_is_uniform_at_the_true_hyperparameters(name):
    """Without the Dirichlet, whose draws underflow to zeros that are no compositions."""
    assert stats.kstest(transforms_at_the_truth(name), "uniform").pvalue > 0.01


if __name__ == "__main__":  # the table of docs/inference.md
    import sys
    import warnings

    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or CONTINUOUS + DISCRETE:
        reports = [replicate(name, seed) for seed in range(REPLICATIONS)]
        pooled = np.concatenate([r.pit.reshape(N_TEST, -1)[:, 0] for r in reports])
        cover = np.mean([r.coverage[2] for r in reports])
        numbers = f"{cover:.3f} | {pooled.mean():.3f} | {pooled.var():.4f} | {uniformity(reports):.3f}"
        print(f"| {name} | {numbers} |", flush=True)
