"""Families in which the second parameter, too, is a function of the inputs."""

import importlib.util
import sys
import warnings
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cases import simulate
from ggpm import GGPRegressor, families
from ggpm.families.curvature import Blocks
from ggpm.families.special.rising import stirling_jet
from ggpm.sites import Variational

RECOVERY = Path(__file__).parents[1] / "benchmarks" / "recovery.py"
NAMES = [
    "gaussian_mean_scale", "student_t", "gamma_mean_shape", "beta_mean_precision",
    "negative_binomial_mean_dispersion",
]  # fmt: skip


def exact(name, eta, y, phi):
    """log p with 60 digits, straight from the textbook."""
    with mp.workdps(60):
        a, b, y = mp.mpf(float(eta[0])), mp.mpf(float(eta[1])), mp.mpf(float(y))
        if name == "gaussian_mean_scale":
            return -(((y - a) * mp.exp(-b)) ** 2) / 2 - b - mp.log(2 * mp.pi) / 2
        if name == "student_t":
            nu, z = mp.mpf(float(phi)), (y - a) * mp.exp(-b)
            head = mp.loggamma((nu + 1) / 2) - mp.loggamma(nu / 2) - mp.log(nu * mp.pi) / 2
            return head - b - (nu + 1) / 2 * mp.log1p(z**2 / nu)
        if name == "gamma_mean_shape":
            k = mp.exp(b)
            return k * (b - a) + (k - 1) * mp.log(y) - mp.exp(b - a) * y - mp.loggamma(k)
        if name == "beta_mean_precision":
            p, q = mp.exp(b) / (1 + mp.exp(-a)), mp.exp(b) / (1 + mp.exp(a))
            head = mp.loggamma(p + q) - mp.loggamma(p) - mp.loggamma(q)
            return head + (p - 1) * mp.log(y) + (q - 1) * mp.log(1 - y)
        r, mu = mp.exp(-b), mp.exp(a)
        head = mp.loggamma(y + r) - mp.loggamma(r) - mp.loggamma(y + 1)
        return head + r * mp.log(r / (r + mu)) + y * mp.log(mu / (r + mu))


@pytest.mark.parametrize("name", NAMES)
def test_log_prob_keeps_its_digits_at_the_extremes(name):
    _, y, family = simulate(name, n=4)
    for a in (-30.0, -2.0, 0.3, 30.0):
        for b in (-30.0, np.log(1e-6), -1.0, 0.4, np.log(1e6), 30.0):
            eta = np.tile([a, b], (4, 1))
            want = np.array([float(exact(name, e, v, family.phi)) for e, v in zip(eta, y)])
            np.testing.assert_allclose(family.log_prob(eta, y), want, rtol=1e-10, atol=1e-10)
            for value in (family.u(eta, y), family.U(eta, y).dense(), family.U(eta, y, expected=True).dense()):
                assert np.all(np.isfinite(value))
            assert np.all(np.linalg.eigvalsh(family.U(eta, y, expected=True).dense()) >= 0)


@pytest.mark.parametrize("phi", [1.0, 3.0, 1e3, 1e7])
def test_student_t_of_scipy(phi):
    y, eta = np.linspace(-50, 50, 9), np.tile([0.4, -0.3], (9, 1))
    family = families.StudentT(phi=phi)
    want = stats.t(phi, 0.4, np.exp(-0.3))
    np.testing.assert_allclose(family.log_prob(eta, y), want.logpdf(y), rtol=1e-10)
    np.testing.assert_allclose(family.cdf(eta, y), want.cdf(y), rtol=1e-9, atol=1e-300)
    assert np.isinf(family.spread(eta)).all() == (phi <= 2)


@pytest.mark.parametrize("k", [1e-10, 1e-3, 1.0, 14.9, 15.1, 1e6, 1e20])
def test_derivatives_of_stirlings_remainder(k):
    with mp.workdps(60):
        x = mp.mpf(k)
        f, f1, f2 = mp.log(x) - mp.digamma(x), 1 / x - mp.polygamma(1, x), -1 / x**2 - mp.polygamma(2, x)
        want = [float(v) for v in (x * f, x * f + x**2 * f1, x * f + 3 * x**2 * f1 + x**3 * f2)]
    np.testing.assert_allclose([float(v) for v in stirling_jet(np.array(k))], want, rtol=1e-11, atol=1e-13)


def test_information_of_the_negative_binomial_is_a_sum_over_counts():
    family = families.NegativeBinomialMeanDispersion()
    for a, b in ((0.0, 0.0), (2.0, -1.5), (-3.0, 2.0), (3.5, 1.0)):
        y = np.arange(60_000.0)
        eta = np.tile([a, b], (len(y), 1))
        p = np.exp(family.log_prob(eta, y))
        assert p.sum() == pytest.approx(1.0, abs=1e-9)
        want = np.einsum("n,njk->jk", p, family.U(eta, y).dense())
        np.testing.assert_allclose(family.U(eta[:1], y[:1], expected=True).dense()[0], want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("wide, narrow", [
    ("gamma_mean_shape", families.Gamma(phi=0.4)), ("beta_mean_precision", families.Beta(phi=7.0)),
    ("negative_binomial_mean_dispersion", families.NegativeBinomial(phi=0.6)),
])  # fmt: skip
def test_a_constant_second_parameter_is_the_scalar_family(wide, narrow):
    _, y, family = simulate(wide, n=6)
    a = np.linspace(-1, 1, 6)
    b = family.sign * np.log(narrow.phi)
    eta = np.stack([a, np.full(6, b)], axis=-1)
    for method in ("log_prob", "cdf"):
        np.testing.assert_allclose(getattr(family, method)(eta, y), getattr(narrow, method)(eta[:, :1], y), rtol=1e-12)
    np.testing.assert_allclose(family.u(eta, y)[:, 0], narrow.u(eta[:, :1], y)[:, 0], rtol=1e-10)
    for method in ("moment", "spread"):
        np.testing.assert_allclose(getattr(family, method)(eta), getattr(narrow, method)(eta[:, :1]), rtol=1e-12)


@pytest.mark.parametrize("inference", ["laplace", pytest.param("variational", marks=pytest.mark.slow)])
def test_noise_that_varies_is_found(inference):
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0, 1, 120))[:, None]
    b = np.sin(6 * X[:, 0]) - 1.0
    y = 100 + 10 * (np.cos(4 * X[:, 0]) + np.exp(b) * rng.normal(size=120))  # in a unit of its own
    model = GGPRegressor("gaussian_mean_scale", inference=inference).fit(X, y)
    plain = GGPRegressor("gaussian", inference=inference).fit(X, y)
    mean, _ = model.predict_latent(X)
    assert model.converged_ and len(model.kernel_) == 2
    assert np.corrcoef(mean[:, 1], b)[0, 1] > 0.9
    assert abs(np.mean(mean[:, 1] - b) - np.log(10)) < 0.3
    assert model.loo(neighbours=0).mean > plain.loo(neighbours=0).mean + 0.1
    dist = model.predict_dist(X)
    low, high = dist.interval(0.9).T
    assert 0.83 < np.mean((low < y) & (y < high)) < 0.97 and np.ptp(high - low) > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_parameter_that_does_not_vary_is_no_news():
    """No warning of length scales without end, nor of degrees of freedom without end where there are no outliers."""
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(0, 1, 50))[:, None]
    y = np.sin(6 * X[:, 0]) + 0.2 * rng.normal(size=50)
    for name in ("gaussian_mean_scale", "student_t"):
        model = GGPRegressor(name, inference="laplace").fit(X, y)
        assert model.converged_
    assert model.family_.phi > 100


@pytest.mark.slow
def test_outliers_do_not_move_a_student_t():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 1, 80)[:, None]
    f = np.sin(6 * X[:, 0])
    y = f + 0.1 * rng.normal(size=80)
    y[::9] += 4.0
    robust, plain = (GGPRegressor(name).fit(X, y) for name in ("student_t", "gaussian"))
    errors = [np.sqrt(np.mean((m.predict(X) - f) ** 2)) for m in (robust, plain)]
    assert errors[0] < 0.1 and errors[0] < 0.5 * errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_second_parameter_is_recovered(name):
    """Three data sets of `benchmarks/recovery.py`: single ones have correlations of 0.9 and more."""
    spec = importlib.util.spec_from_file_location("recovery", RECOVERY)
    recovery = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = recovery  # dataclasses look their module up
    spec.loader.exec_module(recovery)
    found = [recovery.found_again(name, seed, "laplace", "scaled") for seed in range(3)]
    assert np.mean([one["correlation"] for one in found]) > 0.85
    assert all(one["converged"] for one in found)
    alone = recovery.left_alone(name, 0, "laplace", "constant")
    assert alone["over_simple"] > -alone["over_error"]


def test_a_gap_does_not_force_the_concentration_down():
    rng = np.random.default_rng(0)
    X = np.concatenate([np.linspace(0, 1, 30), np.linspace(3, 4, 30)])[:, None]
    y = rng.vonmises(0.3 * X[:, 0], 30.0)
    kernels = {"von_mises": 900 * RBF(0.3), "von_mises_direction_concentration": [4 * RBF(0.3)] * 2 + [4 * RBF(3.0)]}
    at = np.array([[0.5], [2.0]])
    plain, own = (GGPRegressor(name, k, optimizer=None).fit(X, y) for name, k in kernels.items())
    length = np.linalg.norm(plain.predict_latent(at)[0], axis=1)
    assert length[1] < 0.1 * length[0]
    assert np.diff(own.predict_latent(at)[0][:, 2]) > -0.5
    known, gap = own.predict_dist(at).parameter("concentration").median()
    assert gap > 0.6 * known


@pytest.mark.parametrize("name", NAMES)
def test_constant_outputs_and_few_rows_fit(name):
    X = np.linspace(0, 1, 12)[:, None]
    y = np.zeros(12) if "negative" in name else np.full(12, 0.5)
    # densities that rise all the way to a scale of nothing take more steps than the default allows (157 for one family)
    for inference in ("laplace", Variational(max_iter=200)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = GGPRegressor(name, optimizer=None, inference=inference).fit(X, y)
        assert model.converged_ == (not told) and np.all(np.isfinite(model.predict(X)))
        # the one thing that may be said: a zero leaves Laplace's Gaussian as wide as the prior
        assert not told or (inference == "laplace" and "so wide" in str(told[0].message))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_outputs_whose_mean_is_known_almost_to_rounding_end_without_an_error():
    """The posterior of the mean is next to rounding: its rows may have a direction without variance."""
    X = np.linspace(0, 1, 20)[:, None]
    y = 3.0 + 1e-10 * np.random.default_rng(0).normal(size=20)
    model = GGPRegressor("gaussian_mean_scale", inference="laplace").fit(X, y)
    np.testing.assert_allclose(model.predict(X), 3.0, atol=1e-3)


@pytest.mark.parametrize("name", ["gaussian_mean_scale", "student_t"])
def test_no_scale_is_so_small_that_the_density_has_no_bound(name):
    family = GGPRegressor(name).fit(np.arange(4.0)[:, None], [0.1, 0.4, 0.2, 0.7]).family_
    eta, y = np.array([[0.5, -1e3], [0.5, -1e7]]), np.full(2, 0.7)
    value = family.log_prob(eta, y)
    assert value[0] == value[1] < 0
    np.testing.assert_array_equal(family.u(eta, y)[:, 1], 0.0)
    if name == "gaussian_mean_scale":  # the cube of exp(300) is none, and was multiplied by zero
        with np.errstate(all="raise"):
            pulled, _ = family.U_pullback(np.array([[0.5, -299.0]]), y[:1], Blocks(np.eye(2)[None]))
        assert np.all(np.isfinite(pulled))


@pytest.mark.parametrize("variance", [0.01, 1.0, 25.0])
@pytest.mark.parametrize("y", [0.3, 50.0])
def test_densities_of_heavy_tails_are_those_of_the_mixture(variance, y):
    """Student's t is a Gaussian whose precision has a gamma density: the average over the location is then closed.

    What is left, over b and the precision, is a trapezoidal sum that has converged to 1e-12.
    """
    family, mean, cov = families.StudentT(phi=3.0), np.array([0.5, -0.3]), variance * np.array([[1.0, 0.3], [0.3, 0.7]])
    e, s = np.linspace(-9, 9, 1201)[:, None], np.linspace(-40, 10, 1001)
    b = mean[1] + np.sqrt(cov[1, 1]) * e
    slope = cov[0, 1] / cov[1, 1]
    total = cov[0, 0] - slope * cov[0, 1] + np.exp(2.0 * b - s)
    log_gamma = 1.5 * (np.log(1.5) + s - np.exp(s)) - gammaln(1.5) + np.log(s[1] - s[0])
    normal = -0.5 * ((y - mean[0] - slope * (b - mean[1])) ** 2 / total + np.log(2 * np.pi * total))
    exact = logsumexp(normal + log_gamma - 0.5 * e * e) + np.log(e[1, 0] - e[0, 0]) - 0.5 * np.log(2 * np.pi)
    found = family.predictive_log_prob(mean[None], cov[None], np.array([y]))
    np.testing.assert_allclose(found, exact, atol=1e-7)


def test_a_constant_second_parameter_does_not_take_the_mean_along():
    """A quarter of these rows shows neither function, and a search that begins there found none in all of them."""
    rng = np.random.default_rng([8, 4])
    X = np.sort(rng.uniform(0, 1, 300))[:, None]
    f = np.linalg.cholesky(RBF(1 / 3)(X) + 1e-8 * np.eye(300)) @ rng.normal(size=(300, 2))
    eta = np.stack([np.maximum(3.5 + 0.4 * f[:, 0], np.log(10.0)), np.full(300, -1.0)], axis=1)
    y = families.NegativeBinomialMeanDispersion().sample(eta, rng)
    level = ConstantKernel(9.0, "fixed")
    curve = ConstantKernel(1.0) * RBF(0.3) + level
    both, one = (
        GGPRegressor("negative_binomial_mean_dispersion", [curve, second]).fit(X, y) for second in (curve, level)
    )
    # the second is the first without variance; by the priors a constant is preferred as long as it costs less than this
    assert both.log_marginal_likelihood_value_ > one.log_marginal_likelihood_value_ - 0.01


def test_starts_beyond_the_floats_are_left_without_a_word():
    """A gamma whose smallest number is 1e-32: some start of a search has a mean that no float can be compared with."""
    X, y, family = simulate("gamma_mean_shape", n=50, seed=155)
    assert y.min() < 1e-30
    kernel = ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(1.0, "fixed")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert GGPRegressor(family, kernel).fit(X, y).converged_
