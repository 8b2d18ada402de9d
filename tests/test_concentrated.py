"""Averages over an uncertain direction and concentration: lattices and series against other integrals."""

import numpy as np
import pytest
from scipy.special import iv, logsumexp

from ggpm import GGPRegressor, Predictive, families
from ggpm.families.special.adaptive import cholesky_root
from ggpm.families.special.bessel import BesselRatio
from ggpm.families.special.concentrated import log_density, moments
from ggpm.families.special.harmonics import _ORDERS, _RIGHT, _radii, bessel_ratios, harmonics
from ggpm.families.special.lattice import SPACINGS, lattice, lattice_densities, lattice_moments
from ggpm.families.special.quadrature import trapezoid
from ggpm.families.special.steps import LARGEST, PER_UNIT, log_needle, place_of, resultant
from ggpm.families.special.turned import log_turned

FAMILY = families.VonMisesDirectionConcentration()


def latents(n, seed=0):
    """Rows like those of a fit; a quarter of them with a direction that may turn round."""
    rng = np.random.default_rng(seed)
    sd, mean = rng.uniform(0.1, 0.7, (n, 3)), rng.normal(size=(n, 3))
    mean[: n // 4, :2] *= 0.2
    cov = sd[:, :, None] * sd[:, None, :] * (0.7 * np.eye(3) + 0.3)
    return mean, cov, Predictive(FAMILY, mean, cov).sample(None, seed)


def brute(mean, cov, function):
    """E[function(eta)] of one row over a fine cubic grid."""
    x, weights = trapezoid(3, 0.12, 6.5)
    return weights @ function(mean + x @ np.linalg.cholesky(cov).T)


def test_steps_are_bessel_functions():
    log_k = np.random.default_rng(0).uniform(-25.0, LARGEST, 20_000)
    bessel = BesselRatio(0.0, np.exp(log_k))
    for away in (0.0, -9.0, 4.0):  # planes are some steps away
        place = place_of(log_k - away) + PER_UNIT * away
        assert np.abs(log_needle(place) + bessel.log).max() < 7e-8
        assert np.abs(resultant(place) - bessel.A).max() < 7e-8


@pytest.mark.parametrize("spacing", SPACINGS)
def test_sums_over_lattices_are_of_the_standard_normal(spacing):
    """All polynomials of low degree: nodes, planes and weights; the parts with signs nearly vanish."""
    total = 0.0
    for layer in lattice(spacing):
        for z, height, parity, _, inside in layer.planes:
            x = layer.basis[:inside, 1:3]
            weights = height * layer.weights[parity][:, :inside]
            total = total + weights @ np.stack([np.ones(inside), x[:, 0], x[:, 0] ** 2, x[:, 1] ** 2 * z**2], axis=1)
    np.testing.assert_allclose(total[0], [1.0, 0.0, 1.0, 1.0], atol=2e-6)  # what is beyond the radius is missing
    assert np.abs(total[1:, 0]).max() < 1e-2


def test_log_densities_are_those_of_turns():
    """Rows of every rule: two integrals that share no node, both to less than 1e-6."""
    mean, cov, y = latents(60)
    want = [log_turned(*row) + np.log(2.0 * np.pi) for row in zip(mean, cov, y.tolist(), strict=True)]
    np.testing.assert_allclose(log_density(mean, cov, y), want, rtol=0, atol=1e-6)
    np.testing.assert_allclose(FAMILY.predictive_log_prob(mean, cov, y) + np.log(2.0 * np.pi), want, rtol=0, atol=1e-6)
    root = cholesky_root(cov)
    for spacing in SPACINGS:
        found, good, _ = lattice_densities(mean, root, y, spacing)
        assert np.all(np.abs(found - want)[good] < 1e-6)


@pytest.mark.parametrize(
    "mean, sd, y",
    [
        ((-0.643, -0.334, 0.546), (0.458, 0.129, 0.647), -0.567),
        ((-0.838, -1.602, 0.384), (0.443, 0.450, 0.589), -0.392),
        ((-1.222, -0.208, 0.230), (0.388, 0.118, 0.682), -0.365),
        ((-1.754, -0.155, 0.245), (0.557, 0.102, 0.699), -0.574),
    ],
)
def test_rows_in_which_sums_over_half_of_the_nodes_agree_by_chance(mean, sd, y):
    """Looked at in planes alone, these sums seemed fine where they were off by 2e-6 to 4e-6."""
    cov = np.outer(sd, sd) * (0.7 * np.eye(3) + 0.3)
    want = np.log(brute(np.array(mean), cov, lambda eta: np.exp(FAMILY.log_prob(eta, np.array(y)))))
    found = FAMILY.predictive_log_prob(np.array([mean]), cov[None], np.array([y]))[0]
    assert abs(found - want) < 1e-6


def test_moments_are_those_of_a_dense_grid():
    mean, cov, _ = latents(40, seed=1)
    found = moments(mean, cov)
    for i in range(0, 40, 8):
        np.testing.assert_allclose(found[i], brute(mean[i], cov[i], FAMILY.moment), rtol=0, atol=1e-6)
    series = np.empty(40, dtype=complex)
    for rows, c in harmonics(mean, cov, 1):
        series[rows] = c[:, 1]
    series = np.stack([series.real, series.imag], axis=1)
    assert np.abs(found - series).max() < 1e-6
    root = cholesky_root(cov)
    for spacing in SPACINGS:
        lattices, good = lattice_moments(mean, root, spacing)
        assert np.all(np.abs(lattices - series).max(axis=1)[good] < 1e-6)
    p = Predictive(FAMILY, mean, cov)
    np.testing.assert_allclose(p.mean(), np.arctan2(found[:, 1], found[:, 0]), atol=1e-12)
    np.testing.assert_allclose(p.var(), 1.0 - np.hypot(found[:, 0], found[:, 1]), atol=1e-12)


def test_ratios_are_of_bessel_functions():
    k = np.array([1e-9, 0.3, 2.0, 40.0, 600.0])
    want = iv(np.arange(31)[:, None], k) / iv(0, k)
    np.testing.assert_allclose(bessel_ratios(k, 30), want, rtol=1e-10, atol=1e-300)
    # for larger ones I_n is about exp(-n²/(2 k)) of I_0, up to n²/k²
    np.testing.assert_allclose(bessel_ratios(np.array([1e9]), 5)[5], np.exp(-12.5e-9), rtol=1e-14)


@pytest.mark.parametrize("order", _ORDERS)
def test_rules_of_radii_are_exact_for_polynomials(order):
    """Moments of rho exp(-(rho - m)²/2), by the trapezoidal rule; nodes lie on chords, which costs digits."""
    m = np.array([-4.0, -0.123, 1.7, 6.05, _RIGHT + 2.3])
    nodes, weights = _radii(m, order)
    rho = np.exp(np.linspace(-20.0, 4.0, 40_001))
    density = rho**2 * np.exp(-0.5 * (rho - m[:, None]) ** 2)
    for power in (0, 1, 2, 5):
        want = (density * rho**power).sum(axis=1) / density.sum(axis=1)
        np.testing.assert_allclose(np.sum(weights * nodes**power, axis=0), want, rtol=2e-6)


@pytest.mark.parametrize("care, atol", [(0, 5e-6), (1, 4e-7), (2, 2e-8)])
def test_series_are_those_of_a_dense_grid(care, atol):
    """Rows like those of a fit, with directions that may turn round, and one that is known well."""
    mean, cov, _ = latents(24, seed=4)
    mean[0], cov[0] = [3.0, 1.0, 3.0], cov[0] / 30.0
    found = {int(row): c[i] for rows, c in harmonics(mean, cov, care) for i, row in enumerate(rows)}
    assert sorted(found) == list(range(24))
    for i in range(0, 24, 4):

        def waves(eta, n):
            k = np.exp(eta[:, 2]) / np.sqrt(1.0 + 1.0 / np.sum(eta[:, :2] ** 2, axis=1))
            return bessel_ratios(k, n)[n] * np.exp(1j * n * np.arctan2(eta[:, 1], eta[:, 0]))

        want = [brute(mean[i], cov[i], lambda eta, n=n: waves(eta, n)) for n in (0, 1, 2, 5, 9)]
        np.testing.assert_allclose(found[i][[0, 1, 2, 5, 9]], want, rtol=0, atol=atol)


@pytest.mark.parametrize("variance", [4.0, 25.0, pytest.param(1e4, marks=pytest.mark.slow)])
def test_series_of_wide_latents_are_those_of_densities(variance):
    """Sums over equal steps of densities by `log_turned`, each an integral to 1e-6."""
    mean, C = np.array([0.5, 0.3, 0.4]), np.array([[1.0, 0.3, 0.2], [0.3, 0.8, -0.4], [0.2, -0.4, 1.0]])
    ((rows, c),) = harmonics(mean[None], variance * C[None])
    assert rows.tolist() == [0]
    density = np.exp([log_turned(mean, variance * C, 2.0 * np.pi * j / 64) for j in range(64)])
    want = np.fft.fft(density).conj() * 2.0 * np.pi / 64
    np.testing.assert_allclose(c[0, :16], want[:16], rtol=0, atol=2e-6)


def test_arcs_where_the_direction_may_turn():
    """Both ends against the distribution function and the density of `log_turned`, an integral at every angle."""
    mean, cov, _ = latents(32, seed=5)
    mean, cov = mean[:8], cov[:8]  # those that may turn
    cov[:2] *= 3.0
    mean[1:3, 2] += 2.0
    p = Predictive(FAMILY, mean, cov)
    arcs = p.interval(0.9)
    t = 2.0 * np.pi * np.arange(128) / 128
    for i in range(8):
        density = np.exp([log_turned(mean[i], cov[i], float(y)) for y in t])
        c = np.fft.fft(density)[1:40] / 128 * 2.0 * np.pi  # E[exp(-i n y)], as sums of a smooth periodic function
        low, high = arcs[i]
        ends = np.array([low, low + np.mod(high - low, 2.0 * np.pi)])
        n, waves = np.arange(1, 40)[:, None], c[:, None] * np.exp(1j * np.multiply.outer(np.arange(1, 40), ends))
        cdf = ends / (2.0 * np.pi) + np.sum((waves / (1j * n)).real, axis=0) / np.pi
        at, slope = 0.5 / np.pi + np.sum(waves.real, axis=0) / np.pi, np.sum((1j * n * waves).real, axis=0) / np.pi
        off, uneven = cdf[1] - cdf[0] - 0.9, at[0] - at[1]
        # one step of Newton's method to the arc that is right
        moved = np.abs(slope[::-1] * off + at[::-1] * uneven) / abs(slope[0] * at[1] - slope[1] * at[0])
        assert abs(off) < 1e-5 and moved.max() < 1e-4 * min(1.8, ends[1] - ends[0])  # of an even circle, or less


def test_directions_that_may_turn_round_within_a_thin_spread():
    """Latents of the direction about zero, far more certain across than along: known values of a fine grid."""
    mean, sd = np.array([0.04, -0.036, 0.0]), np.array([0.16, 0.48, 0.33])
    cov = np.outer(sd, sd) * (0.7 * np.eye(3) + 0.3)
    x, weights = trapezoid(3, 0.12, 6.5)
    eta = mean + x @ np.linalg.cholesky(cov).T
    for y in (-1.0, 0.5, 2.0):
        want = logsumexp(FAMILY.log_prob(eta, np.full(len(eta), y)), b=weights)
        assert abs(log_turned(mean, cov, y) - want) < 1e-6
        assert abs(FAMILY.predictive_log_prob(mean[None], cov[None], np.array([y]))[0] - want) < 1e-6


def test_latents_without_spread_are_the_density_itself():
    mean, y = np.array([[1.0, -2.0, 1.0], [0.1, 0.0, -3.0], [3.0, 1.0, 6.0]]), np.array([-1.0, 2.0, 0.4])
    none = np.zeros((3, 3, 3))
    np.testing.assert_allclose(FAMILY.predictive_log_prob(mean, none, y), FAMILY.log_prob(mean, y), atol=2e-7)
    np.testing.assert_allclose(moments(mean, none), FAMILY.moment(mean), atol=1e-7)


def test_rows_do_not_depend_on_others():
    mean, cov, y = latents(12, seed=2)
    cov[3] *= 40.0  # turns
    mean[5, 2] = 25.0  # beyond the steps
    whole, m = log_density(mean, cov, y), moments(mean, cov)
    for i in range(0, 12):
        one = slice(i, i + 1)
        np.testing.assert_allclose(log_density(mean[one], cov[one], y[one]), whole[one], rtol=0, atol=1e-12)
        np.testing.assert_allclose(moments(mean[one], cov[one]), m[one], rtol=0, atol=1e-12)
    assert np.all(np.isfinite(Predictive(FAMILY, mean, cov).mean()))


def test_fits_start_from_the_scale_of_angles():
    """Angles within a hundredth of a radian: the origin is theirs, and a fit finds their noise."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2.0, 2.0, (30, 1)), axis=0)
    y = 1.0 + 1e-2 * (np.sin(x[:, 0]) + 0.3 * rng.normal(size=30))
    origin = FAMILY.resolve(y).adapted(y).origin
    assert abs(np.arctan2(origin[1], origin[0]) - y.mean()) < 1e-5  # a mean direction is the mean of close angles
    # latents of order one turn the direction by the spread of the angles, and the variance of y is 1/k
    np.testing.assert_allclose(np.hypot(origin[0], origin[1]), 1.0 / y.std(), rtol=1e-3)
    np.testing.assert_allclose(np.exp(-0.5 * origin[2]), y.std(), rtol=1e-3)
    p = GGPRegressor(FAMILY, inference="laplace").fit(x, y).predict_dist(x)
    assert 2e-3 < np.std(y - p.mean()) < 4e-3
    np.testing.assert_allclose(p.parameter("concentration").mean() ** -0.5, 3e-3, rtol=0.5)
