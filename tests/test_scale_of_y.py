"""Rescaling y rescales the predictions and nothing else."""

import warnings

import numpy as np
import pytest

import ggpm
from ggpm import GGPRegressor, families

N = 40
X = np.linspace(0, 5, N)[:, None]
NEW = np.linspace(-0.5, 6, 9)[:, None]


def data(name):
    rng = np.random.default_rng(0)
    f = np.sin(X[:, 0])
    if name == "wishart":
        A, L = rng.normal(size=(N, 2, 12)), np.zeros((N, 2, 2))
        L[:, 0, 0], L[:, 1, 0], L[:, 1, 1] = np.exp(0.5 * f), f, 1.0
        return L @ (A @ A.swapaxes(1, 2) / 12) @ L.swapaxes(1, 2)
    return {
        "gaussian": lambda: 3 + f + 0.2 * rng.normal(size=N),
        "multivariate_gaussian": lambda: (
            np.stack([f, -f], 1) + rng.multivariate_normal([0, 1], [[0.1, 0.05], [0.05, 0.1]], N)
        ),
        "gamma": lambda: rng.gamma(10, np.exp(f) / 10),
        "inverse_gaussian": lambda: rng.wald(np.exp(f), 10 * np.exp(f)),
    }[name]()


SCALED = ["gaussian", "multivariate_gaussian", "gamma", "inverse_gaussian", "wishart"]


def fit(name, y, inference="laplace"):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing ends at a bound, and nothing asks for another unit
        return GGPRegressor(name, inference=inference).fit(X, y)


@pytest.mark.parametrize(
    "name, inference",
    [(name, "laplace") for name in SCALED]
    + [("gaussian", "variational"), ("gamma", "variational")]
    + [pytest.param(name, "variational", marks=pytest.mark.slow) for name in SCALED[1::2] + SCALED[4:]],
)
def test_a_power_of_ten_changes_nothing(name, inference):
    y = data(name)
    base = fit(name, y, inference)
    want, size = base.predict(NEW), np.abs(base.predict(NEW)).max()
    assert base.score(X, y) > 0.3
    for c in (1e-6, 1e6):
        model = fit(name, c * y, inference)
        # D = 3 latents: Sobol nodes turn with the signs of eigenvectors, which rounding decides
        rtol = 1e-4 if name == "wishart" else 1e-6
        np.testing.assert_allclose(model.predict(NEW) / c, want, atol=rtol * size, rtol=0)
        assert model.score(X, c * y) == pytest.approx(base.score(X, y), abs=1e-4)
        unit = model.log_marginal_likelihood_value_ + N * model.family_.log_unit
        assert unit == pytest.approx(base.log_marginal_likelihood_value_ + N * base.family_.log_unit, abs=1e-6)


def test_a_shift_of_real_outputs_changes_nothing():
    y = data("gaussian")
    base, moved = fit("gaussian", y), fit("gaussian", y + 1e5)
    np.testing.assert_allclose(moved.predict(NEW) - 1e5, base.predict(NEW), atol=1e-6)


def test_variables_of_very_different_size_keep_their_correlation():
    y = data("wishart")
    s = np.array([1e3, 1e-3])  # variances 1e6 and 1e-6
    base, model = fit("wishart", y), fit("wishart", y * np.outer(s, s))
    got = model.predict(NEW) / np.outer(s, s)
    np.testing.assert_allclose(got, base.predict(NEW), rtol=1e-3, atol=1e-3)
    assert np.ptp(got[:, 0, 1] / np.sqrt(got[:, 0, 0] * got[:, 1, 1])) > 0.5
    dist = model.predict_dist(NEW[:3])
    assert np.all(np.isfinite(dist.log_prob(y[:3] * np.outer(s, s)))) and dist.var().shape == (3, 2, 2)
    np.testing.assert_allclose(dist.sample(2000, 0).mean(axis=0), dist.mean(), rtol=0.3, atol=0.0)


def test_explicit_values_stay_as_they_are():
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    y = 1e3 * data("gaussian")
    bound = families.Gaussian(phi=0.5, phi_bounds=(1e-3, 1e3)).resolve(y)
    assert bound.phi == 0.5 and bound.phi_bounds == (1e-3, 1e3)
    assert families.InverseGaussian(phi=2.0).resolve([1e6]).phi == 2.0
    assert families.Gaussian(phi_bounds=(1e-2, 1e9)).resolve(y).phi_bounds == (1e-2, 1e9)
    model = GGPRegressor("gaussian", ConstantKernel(1.0) * RBF(1.0), optimizer=None).fit(X, y)
    assert np.all(model.family_.origin == 0) and model.kernel_.k1.constant_value == 1.0


def test_files_and_offsets_know_the_origin(tmp_path):
    y = 1e6 * data("gamma")
    for inducing in (None, 20):
        model = GGPRegressor("gamma", inducing=inducing, random_state=0).fit(X, y, offset=np.full(N, 0.5))
        assert model.score(X, y, offset=np.full(N, 0.5)) > 0.5
        ggpm.save(model, tmp_path / "m.ggpm")
        again = ggpm.load(tmp_path / "m.ggpm")
        np.testing.assert_array_equal(again.predict(NEW, offset=np.ones(9)), model.predict(NEW, offset=np.ones(9)))
        latent = model.predict_latent(X, offset=0)[0][:, 0] + 0.5
        assert np.corrcoef(np.exp(latent), y)[0, 1] > 0.8 and 0.5 < np.mean(np.exp(latent)) / np.mean(y) < 2.0


@pytest.mark.parametrize("degrees", [0.1, 10.0])
def test_directions_are_as_precise_as_they_are(degrees):
    """Latents are kappa times a direction: 3e5 long for a tenth of a degree, and the model gets there."""
    rng = np.random.default_rng(0)
    size = np.radians(degrees)
    path = np.stack([np.ones(N), 3 * size * np.sin(X[:, 0]), 3 * size * np.cos(X[:, 0])], axis=1)
    y = path + size * rng.normal(size=(N, 3))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    model = GGPRegressor("von_mises_fisher", inference="laplace").fit(X[::2], y[::2])
    # in the unit of the noise, the entropy of a normal error in the plane; as good as that up to what twenty rows know
    gain = model.log_predictive_density(X[1::2], y[1::2]).mean() + 2 * np.log(size)
    assert gain > -(np.log(2 * np.pi) + 1) - 1.0
