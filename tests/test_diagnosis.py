"""Is the Gaussian posterior good enough: k̂ against ArviZ, weights against quadrature and NUTS."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cases import simulate
from ggpm import GGPRegressor, families
from ggpm.prediction.pareto import generalised_pareto, most_k, pareto_k


@pytest.fixture(scope="module")
def arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of its next edition
        return pytest.importorskip("arviz")


@pytest.mark.parametrize("size", [30, 200, 3600, 4000])
@pytest.mark.parametrize("shape", ["normal", "exponential", "cauchy"])
def test_k_is_that_of_arviz(arviz, size, shape):
    if hasattr(arviz, "psislw"):
        their_k = lambda x: float(arviz.psislw(x[None].copy())[1][0])  # noqa: E731
    elif size == 4000:
        pytest.skip("the tail is 189.7 weights long, which ArviZ rounds down from version 1 on, as we do not")
    else:
        stats = pytest.importorskip("arviz_stats.base").array_stats
        their_k = lambda x: float(stats.psislw(-x[None])[1][0])  # noqa: E731  # takes log densities, not weights
    rng = np.random.default_rng(size)
    for scale in (0.01, 0.5, 3.0):
        x = scale * (rng.standard_cauchy(size) if shape == "cauchy" else getattr(rng, shape)(size=size))
        if np.isnan(theirs := their_k(x)):  # version 1 gives up where all but a few weights vanish
            assert pareto_k(x) == np.inf
        else:
            np.testing.assert_allclose(pareto_k(x), theirs, atol=1e-10)


@pytest.mark.parametrize("k", [-0.3, 0.1, 0.5, 0.9])
def test_shape_and_scale_of_a_generalised_pareto_are_found(k):
    x = np.sort(stats.genpareto.rvs(k, scale=2.0, size=20000, random_state=0))
    found = np.array(generalised_pareto(x)) - [k, 2.0]
    error = np.array([1 + k, 2.0 * np.sqrt(2 * (1 + k))]) / np.sqrt(len(x))  # of maximum likelihood (Smith 1987)
    assert np.all(np.abs(found) < 4 * error)


def test_weights_without_a_tail():
    assert np.isnan(pareto_k(np.zeros(100)))
    assert np.isnan(pareto_k(np.full(100, -np.inf)))
    assert pareto_k(np.where(np.arange(100) < 2, 0.0, -np.inf)) == np.inf
    assert pareto_k(np.random.default_rng(0).normal(size=(50, 2, 3))).shape == (2, 3)
    assert most_k(10**6) == 0.7


# ---- rows that are independent: their posteriors by quadrature -------------------------------------------------------
VARIANCE = 25.0
ALONE = {
    "poisson": ("poisson", np.array([0.0, 1.0, 3.0, 30.0, 300.0])),
    "bernoulli": ("bernoulli", np.array([0.0, 1.0])),
    "gamma": (families.Gamma(phi=2.0, phi_bounds="fixed"), np.array([1e-3, 0.1, 1.0, 50.0])),
    "negative_binomial": (families.NegativeBinomial(phi=1.0, phi_bounds="fixed"), np.array([0.0, 2.0, 50.0])),
}


GRID = np.linspace(-60.0, 60.0, 40001)


def exact(family, y):
    """Probabilities of a fine grid under latents N(0, VARIANCE) of single rows, (n, grid), and their log evidence."""
    joint = np.stack([family.log_prob(GRID[:, None], np.full(len(GRID), v)) for v in y])
    joint = joint + stats.norm.logpdf(GRID, scale=np.sqrt(VARIANCE))
    total = logsumexp(joint, axis=1)
    return np.exp(joint - total[:, None]), total + np.log(GRID[1] - GRID[0])


@pytest.mark.parametrize("inference", ["taylor", "laplace", "variational"])
@pytest.mark.parametrize("name", ALONE)
def test_errors_are_those_of_quadrature(name, inference):
    """Largest error of a distribution function, and how far the mean is off, where weighted draws can know them."""
    family, y = ALONE[name]
    X = 1e3 * np.arange(len(y))[:, None]
    model = GGPRegressor(family, ConstantKernel(VARIANCE) * RBF(1.0), inference=inference, optimizer=None).fit(X, y)
    p, log_evidence = exact(model.family_, y)
    found = model.diagnose()
    m, V = model.predict_latent(X)
    sd = np.sqrt(V[:, 0])
    error = np.max(np.abs(np.cumsum(p, axis=1) - stats.norm.cdf(GRID, m, sd)), axis=1)
    away = np.abs(p @ GRID - m[:, 0]) / sd[:, 0]
    light = found.effective > 0.8  # below, 4000 weighted draws do not know a mean to 0.1
    np.testing.assert_allclose(found.error[light], error[light], atol=0.015)
    np.testing.assert_allclose(found.moved[light], away[light], atol=0.1)
    assert np.all(error[found.warns] > 0.045), (error, found.to_frame())
    assert np.all(found.warns[error > 0.06])
    if found.joint_k < 0.5:  # else the error of the mean weight is not known
        assert abs(found.log_evidence - log_evidence.sum()) < 5 * found.log_evidence_error


def test_a_posterior_that_is_far_off_warns():
    """A count of zero under a wide prior: the likelihood is a step, not a parabola."""
    model = GGPRegressor("poisson", ConstantKernel(VARIANCE) * RBF(1.0), inference="laplace", optimizer=None)
    found = model.fit([[0.0], [1e3]], [0, 300]).diagnose()
    assert found.warns.tolist() == [True, False]
    assert found.effective[0] < 0.5 and found.moved[0] > 0.3
    assert f"worst rows: 0 (error {found.error[0]:.2f}, k̂ {found.k[0]:.2f})." in repr(found)
    assert "those that warn" not in repr(found) and "in 1 of those that warn" in repr(replace(found, k=found.k + 1))


def test_a_gaussian_is_exact():
    X, y, _ = simulate("gaussian", n=15, seed=0)
    found = GGPRegressor("gaussian", ConstantKernel(1.0) * RBF(1.0)).fit(X, y).diagnose(draws=200)
    np.testing.assert_allclose(found.effective, 1.0)
    assert not found.warns.any() and np.all(found.moved < 1e-9)
    assert np.isnan(found.k).all() and "no k̂ (weights are alike)" in repr(found) and "worst rows" not in repr(found)
    np.testing.assert_allclose(found.log_evidence, found.approximate_log_evidence, rtol=1e-9)


@pytest.mark.parametrize("settings", [{"inducing": "all"}, {"neighbours": 19}])
@pytest.mark.parametrize("name", ["poisson", "von_mises"])
def test_other_fields_have_the_same_rows(name, settings):
    X, y, family = simulate(name, n=20, seed=1)
    kernel = ConstantKernel(1.0) * RBF(0.3) + WhiteKernel(1e-3)
    dense = GGPRegressor(family, kernel, inference="laplace", optimizer=None).fit(X, y).diagnose()
    if settings.get("inducing"):
        settings = {"inducing": X}
    other = GGPRegressor(family, kernel, inference="laplace", optimizer=None, **settings).fit(X, y).diagnose()
    # the same draws; inducing points leave out the noise and neighbours the noise's place
    np.testing.assert_allclose(other.effective, dense.effective, atol=0.01)
    assert np.isnan(other.log_evidence) and "importance sampling" not in repr(other)


def test_weighted_rows_offsets_and_the_table():
    X, y, family = simulate("poisson", n=12, seed=1)
    settings = {"kernel": ConstantKernel(1.0) * RBF(1.0), "inference": "laplace", "optimizer": None}
    twice = GGPRegressor(family, **settings).fit(X, y, np.full(12, 2.0)).diagnose(draws=500)
    once = GGPRegressor(family, **settings).fit(X, y).diagnose(draws=500)
    assert not np.allclose(twice.effective, once.effective)
    moved = GGPRegressor(family, **settings).fit(X, y, offset=np.zeros(12)).diagnose(draws=500)
    np.testing.assert_allclose(moved.k, once.k)
    assert once.to_frame().columns.tolist() == ["k", "effective", "moved", "error", "warns"]
    assert repr(once).startswith("0 of 12 rows warn")
    with pytest.raises(ValueError, match="draws"):
        GGPRegressor(family, **settings).fit(X, y).diagnose(draws=3)


# ---- against NUTS ----------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("prior", ["gold", "wide"])
@pytest.mark.parametrize("name", ["von_mises", "dirichlet", "categorical", "poisson", "ordinal"])
def test_where_nuts_agrees_no_row_warns_and_where_one_warns_nuts_shows_the_error(name, prior):
    """The gold table, and its families under a prior so wide that variational Gaussians are off too."""
    from test_gold import KERNEL, METHODS, N, draws_of_nuts

    kernel = KERNEL if prior == "gold" else ConstantKernel(9.0) * RBF(0.5)
    X, y, family = simulate(name, n=N, seed=0)
    eta = np.sort(draws_of_nuts(name, X, y, family, kernel), axis=0)
    mean, sd, steps = eta.mean(axis=0), eta.std(axis=0), np.arange(len(eta) + 1) / len(eta)
    for label, inference in METHODS.items():
        model = GGPRegressor(family, kernel, inference=inference, optimizer=None).fit(X, y)
        m, V = model.predict_latent(X)
        s = np.sqrt(V if V.ndim == 2 else np.einsum("njj->nj", V))
        F = stats.norm.cdf(eta, m, s)
        error = np.maximum(np.abs(F - steps[1:, None, None]), np.abs(F - steps[:-1, None, None])).max(axis=(0, 2))
        agrees = np.all((np.abs(m - mean) < 0.1 * sd) & (np.abs(s / sd - 1) < 0.05), axis=1)
        warns = model.diagnose().warns
        # 2000 and more independent draws know a distribution function to 0.03
        assert np.all(error[warns] > 0.03), (label, error[warns])
        assert not np.any(warns & agrees), label
        if label.startswith("variational") and prior == "gold":
            assert not warns.any()
