"""Counts out of trials that vary more than the binomial's and the multinomial's."""

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPRegressor, families
from ggpm.families import BetaBinomial, Binomial, DirichletMultinomial, Multinomial
from ggpm.families.special.rising import log_moderate_polya, log_rising


def exact(y, eta, phi):
    """log p with 60 digits."""
    with mp.workdps(60):
        shares = [mp.exp(mp.mpf(float(e))) for e in eta]
        phi, N = mp.mpf(float(phi)), int(sum(y))
        alpha = [phi * s / sum(shares) for s in shares]
        rise = sum(mp.loggamma(int(k) + a) - mp.loggamma(a) for k, a in zip(y, alpha))
        whole = mp.loggamma(N + phi) - mp.loggamma(phi)
        return float(mp.loggamma(N + 1) - sum(mp.loggamma(int(k) + 1) for k in y) + rise - whole)


@pytest.mark.parametrize("phi", [1e-6, 1e-3, 0.3, 10.0, 1e3, 1e6, 1e9])
def test_log_prob_keeps_its_digits(phi):
    rng = np.random.default_rng(0)
    for scale in (1.0, 10.0, 30.0):
        for N in (1, 7, 200, 10**5):
            eta, y = scale * rng.normal(size=3), rng.multinomial(N, [0.2, 0.3, 0.5]).astype(float)
            want = exact(y, eta, phi)
            got = DirichletMultinomial(phi=phi).log_prob(eta[None], y[None])[0]
            assert abs(got - want) <= 1e-11 * (1 + abs(want))
            k, xi = y[:2] if y[:2].sum() else y[1:], eta[:1]
            want = exact(k, [xi[0], 0.0], phi)
            assert abs(BetaBinomial(phi=phi).log_prob(xi[None], k[None])[0] - want) <= 1e-11 * (1 + abs(want))


@pytest.mark.parametrize("a", [1e-8, 1e-2, 1.0, 14.9, 15.1, 1e3, 1e8, 1e14])
def test_derivatives_of_the_rising_factorial(a):
    for y in (0, 1, 2, 9, 300):
        with mp.workdps(50):
            k, x = [mp.mpf(i) for i in range(y)], mp.mpf(a)
            want = [sum(x / (x + i) for i in k), sum(x * i / (x + i) ** 2 for i in k)]
            want.append(sum(x * i * (i - x) / (x + i) ** 3 for i in k))
        got = log_rising(np.array([a]), np.array([float(y)]))
        for g, w in zip(got, want):
            assert abs(g[0] - float(w)) <= 1e-13 * (1 + y)


def test_scipy_agrees():
    rng = np.random.default_rng(1)
    eta, y = rng.normal(size=(20, 3)), rng.multinomial(9, [0.2, 0.3, 0.5], size=20).astype(float)
    alpha = 4.0 * np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    want = [stats.dirichlet_multinomial.logpmf(k.astype(int), a, 9) for k, a in zip(y, alpha)]
    np.testing.assert_allclose(DirichletMultinomial(phi=4.0).log_prob(eta, y), want, rtol=1e-12)
    p = 1 / (1 + np.exp(-eta[:, 0]))
    for N in (1, 5, 40):
        for k in range(-1, N + 1):
            pair = np.tile([float(k), float(N - k)], (20, 1))
            want = stats.betabinom.cdf(k, N, 3.3 * p, 3.3 * (1 - p))
            np.testing.assert_allclose(BetaBinomial(phi=3.3).cdf(eta[:, :1], pair), want, atol=1e-13)


@pytest.mark.parametrize(
    "wide, narrow, y",
    [(DirichletMultinomial, Multinomial, [[3.0, 0.0, 4.0]]), (BetaBinomial, Binomial, [[3.0, 4.0]])],
)
def test_large_precision_is_the_plain_family(wide, narrow, y):
    a, b, y = wide(phi=1e12).resolve(y), narrow().resolve(y), np.array(y)
    eta = np.random.default_rng(0).normal(size=(1, a.latent_dim))
    for method in ("log_prob", "u"):
        np.testing.assert_allclose(getattr(a, method)(eta, y), getattr(b, method)(eta, y), rtol=1e-10)
    for expected in (False, True):
        # w is a small difference of numbers of the size of y
        np.testing.assert_allclose(a.U(eta, y, expected).dense(), b.U(eta, y, expected).dense(), rtol=1e-9, atol=1e-10)


def test_two_categories_are_a_beta_binomial():
    rng = np.random.default_rng(2)
    y, xi = rng.integers(0, 9, size=(10, 2)) + 1.0, rng.normal(size=(10, 1))
    two, one = DirichletMultinomial(phi=2.5).resolve(y), BetaBinomial(phi=2.5)
    eta = np.concatenate([xi, np.zeros((10, 1))], axis=1)
    np.testing.assert_allclose(two.log_prob(eta, y), one.log_prob(xi, y), rtol=1e-12)
    np.testing.assert_allclose(two.u(eta, y)[:, :1], one.u(xi, y), rtol=1e-10, atol=1e-12)
    for expected in (False, True):
        got, want = (f.U(e, y, expected).dense()[:, 0, 0] for f, e in ((two, eta), (one, xi)))
        np.testing.assert_allclose(got, want, rtol=1e-10)


def test_overdispersion_is_found_and_widens_the_counts():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 4, 150)[:, None]
    N = 40.0
    p = rng.beta(6.0 / (1 + np.exp(-np.sin(X[:, 0]))), 6.0 / (1 + np.exp(np.sin(X[:, 0]))))
    k = rng.binomial(int(N), p)
    y = np.stack([k, N - k], axis=1)
    # a kernel without noise of its own, by which the binomial would find the excess too
    kernel = ConstantKernel() * RBF() + ConstantKernel()
    wide, narrow = (GGPRegressor(f, kernel).fit(X[::2], y[::2]) for f in ("beta_binomial", "binomial"))
    assert wide.converged_ and 3.0 < wide.family_.phi < 12.0
    densities = [m.predict_dist(X[1::2], trials=N).log_prob(y[1::2]).mean() for m in (wide, narrow)]
    assert densities[0] > densities[1] + 0.3
    dist = wide.predict_dist(X[1::2], trials=N)
    low, high = dist.interval(0.9)[:, 0].T
    assert 0.8 < np.mean((low <= k[1::2]) & (k[1::2] <= high)) < 0.99
    assert np.all(dist.quantile(0.05) <= dist.quantile(0.95))


def test_all_zeros_and_all_successes_fit():
    X = np.linspace(0, 1, 12)[:, None]
    for k in (0.0, 5.0):
        y = np.tile([k, 5.0 - k], (12, 1))
        for family in (families.BetaBinomial(), families.DirichletMultinomial()):
            model = GGPRegressor(family, optimizer=None).fit(X, y)
            assert model.converged_ and np.all(np.isfinite(model.predict(X)))


def test_expected_curvature_of_many_trials_is_an_integral_that_equals_the_sum():
    """By running sums over all counts, and by panels: ends that count one by one, spikes, and masses at either end."""
    from ggpm.families.special.rising import _integrated, _summed

    phi, p, n = (
        v.reshape(-1, 1) for v in np.meshgrid([1e-2, 0.3, 3.0, 50.0, 1e3, 1e6], [1e-6, 1e-3, 0.05, 0.5, 0.9], [4500.0])
    )
    for one, share in zip(phi, p):
        a, b = one * share, one * (1 - share)
        by_sum, by_integral = (f(a[None], b[None], float(one[0]), n[:1])[:, 0] for f in (_summed, _integrated))
        # derivatives are as large as E[w] or smaller; running sums of 4500 terms lose three digits
        np.testing.assert_allclose(by_integral, by_sum, rtol=0, atol=3e-8 * by_sum[0], err_msg=f"{one} {share}")


def test_millions_of_trials_cost_no_more_than_thousands():
    """A curvature of totals like those of a census: close to that of 4000 trials once both are many beside phi."""
    family = BetaBinomial(phi=3.0)
    eta = np.array([[0.4]])
    far, near = (family.U(eta, np.array([[n / 2, n / 2]]), expected=True).dense()[0, 0, 0] for n in (5e6, 4e3))
    assert near < far < 1.01 * near


@pytest.mark.parametrize("phi", [1e-3, 0.1, 4.0, 200.0])
@pytest.mark.parametrize("latent", [-200.0, -3.0, 0.0, 10.0])
def test_moderate_polya_probabilities_have_their_digits(phi, latent):
    """Products of few factors and Stirling's series beyond, on both sides of where they meet."""
    log_pi = [-np.logaddexp(0.0, -latent), -np.logaddexp(0.0, latent)]
    for k, miss in ((0, 1), (3, 0), (7, 1), (8, 2), (9, 8), (30, 25)):
        with mp.workdps(40):
            a, b = (mp.mpf(phi) * mp.exp(mp.mpf(v)) for v in log_pi)
            ways = mp.binomial(k + miss, k) / mp.rf(mp.mpf(phi), k + miss)
            expected = float(mp.log(ways * mp.rf(a, k) * mp.rf(b, miss)))
        found = log_moderate_polya([np.array(float(k)), np.array(float(miss))], [np.array(v) for v in log_pi], phi)
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=2e-12)
