"""Averages of directional densities over the latent, by their integrals in one dimension, against other integrals."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ive, logsumexp
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPRegressor, Predictive, families
from ggpm.families.special import BesselRatio
from ggpm.families.special.directional import average_moments, bessel_zeros, hitting_time, log_average, log_normaliser
from ggpm.families.special.quadrature import trapezoid
from ggpm.families.special.turned import log_turned
from ggpm.sites.base import Problem
from ggpm.sites.expectations import expect

LENGTHS = np.array([0.0, 0.1, 1.0, 5.0, 30.0, 1e3, 1e6, 1e8])


def directions(rng, n, d):
    y = rng.normal(size=(n, d))
    return y / np.linalg.norm(y, axis=1, keepdims=True)


@pytest.mark.parametrize("nu", [0.0, 0.5, 1.0, 4.0, 25.0])
def test_mixture_is_the_normaliser(nu):
    """Without variance the integral over t is the density itself, whatever the length of the latent."""
    d = int(2 * nu + 2)
    angle = 0.3 / np.sqrt(1.0 + LENGTHS)
    mean, y = np.zeros((2, len(LENGTHS), d))
    mean[:, 0], y[:, 0], y[:, 1] = LENGTHS, np.cos(angle), np.sin(angle)
    bessel = BesselRatio(nu, LENGTHS)
    want = -2.0 * LENGTHS * np.sin(angle / 2) ** 2 - bessel.log
    # kappa (1 - cos) is a difference of numbers of the size of kappa: sixteen digits of 1e8
    np.testing.assert_allclose(log_average(nu, mean, np.zeros((8, d, d)), y), want, atol=2e-8)
    first, second = average_moments(nu, mean, np.zeros((8, d, d)), True)
    np.testing.assert_allclose(first[:, 0], bessel.A, atol=1e-9)
    np.testing.assert_allclose(np.trace(second, axis1=1, axis2=2), 1.0, atol=1e-9)
    np.testing.assert_allclose(second[:, 1, 1], bessel.c1, atol=1e-9)


def test_zeros_and_hitting_times_of_a_sphere():
    """In three dimensions zeros are multiples of pi and f is a theta function."""
    np.testing.assert_allclose(bessel_zeros(0.5), np.pi * np.arange(1, 401), rtol=1e-13)
    t, k = np.array([0.02, 0.1, 0.4, 2.0]), np.arange(1, 200)
    terms = (-1.0) ** (k + 1) * np.pi**2 * k**2 * np.exp(-0.5 * np.pi**2 * np.outer(t, k**2))
    np.testing.assert_allclose(
        hitting_time(0.5).log_density(t)[1:] - 0.5 / t[1:], np.log(terms.sum(axis=1))[1:], atol=1e-8
    )


def lengths(reach):
    """Gauss-Legendre nodes of k in (0, reach), ever wider apart, with the logarithms of their weights."""
    x, w = np.polynomial.legendre.leggauss(300)
    top = np.arcsinh(reach)
    t = 0.5 * top * (x + 1.0)
    return np.sinh(t), np.log(0.5 * top * w * np.cosh(t))


VARIANCES = [0.01, 1.0, 100.0, 1e4]


@pytest.mark.parametrize("variance", VARIANCES)
def test_densities_of_angles_against_a_grid(variance):
    """Polar coordinates of the latent: 300 lengths times 2000 angles."""
    rng = np.random.default_rng(2)
    turn = np.linspace(0.0, 2 * np.pi, 2000, endpoint=False)
    unit = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    for far in (0.0, 1.0, 4.0):
        root = np.tril(rng.normal(size=(2, 2))) + np.eye(2)
        mean, cov, y = far * rng.normal(size=2), variance * root @ root.T, directions(rng, 1, 2)
        k, log_dk = lengths(9.0 * np.sqrt(np.linalg.eigvalsh(cov)[-1]) + np.linalg.norm(mean))
        e = np.linalg.solve(np.linalg.cholesky(cov), (k[:, None, None] * unit - mean).reshape(-1, 2).T)
        log_q = -0.5 * np.sum(e**2, axis=0).reshape(k.size, -1) - 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
        log_p = np.outer(k, unit @ y[0] - 1.0) - BesselRatio(0.0, k).log[:, None]
        want = logsumexp(log_q + log_p + (np.log(k) + log_dk)[:, None]) + np.log(turn[1])
        assert abs(log_average(0.0, mean[None], cov[None], y)[0] - want) < 1e-7


@pytest.mark.parametrize("variance", VARIANCES)
def test_densities_in_space_against_a_grid(variance):
    """About an axis of symmetry the latent of three has two coordinates; then all is turned somewhere."""
    rng = np.random.default_rng(3)
    z, w = np.polynomial.legendre.leggauss(300)
    for far, across, side in ((0.0, 0.1, 1.0), (2.0, 1.0, 1.0), (4.0, 3.0, -1.0)):
        Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        a, b = variance * across, variance
        k, log_dk = lengths(9.0 * np.sqrt(max(a, b)) + far)
        log_q = -0.5 * (np.outer(k, np.sqrt(1 - z**2)) ** 2 / a + (np.outer(k, z) - far) ** 2 / b)
        log_p = np.outer(k, side * z - 1.0) - BesselRatio(0.5, k).log[:, None]
        log_area = np.log(2 * np.pi * w) - 0.5 * np.log((2 * np.pi) ** 3 * a * a * b)
        want = logsumexp(log_q + log_p + (2 * np.log(k) + log_dk)[:, None] + log_area)
        cov = Q @ np.diag([a, a, b]) @ Q.T
        got = log_average(0.5, far * Q[:, 2][None], cov[None], side * Q[:, 2][None])[0]
        assert abs(got - want) < 1e-7


def test_moments_against_integrals_of_the_density():
    """On the circle: the mean and covariance of the predictive density, which is itself an average."""
    rng = np.random.default_rng(5)
    turn = np.linspace(0.0, 2 * np.pi, 720, endpoint=False)
    unit = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    for variance in (0.01, 1.0, 100.0, 1e4):
        root = np.tril(rng.normal(size=(2, 2)))
        mean, cov = 3.0 * rng.normal(size=2), variance * root @ root.T
        p = np.exp(log_average(0.0, np.tile(mean, (720, 1)), np.tile(cov, (720, 1, 1)), unit)) / 720
        first, second = average_moments(0.0, mean[None], cov[None], True)
        assert abs(p.sum() - 1.0) < 1e-8
        np.testing.assert_allclose(first[0], p @ unit, atol=1e-8)
        np.testing.assert_allclose(second[0], (unit * p[:, None]).T @ unit, atol=1e-8)


def test_known_values_of_wide_and_tilted_latents():
    """Circular mean and variance of latents that product rules got wrong by degrees; by adaptive quadrature."""
    tilted = Predictive(
        families.VonMises("degrees"), np.array([[2.0, 0.0]]), np.array([[[100.0, 99.0], [99.0, 100.0]]])
    )
    assert abs(tilted.mean()[0] - 337.34) < 0.01
    wide = Predictive(families.VonMises(), np.array([[5.0, 0.0]]), np.diag([1.0, 1e4])[None])
    assert abs(wide.var()[0] - 0.8575) < 1e-4


def below(mean, cov, j, end, more=1):
    """P(y_j <= end) and the mass of all directions: densities by Gauss's rule along the axis, equal steps round it."""
    x, w = np.polynomial.legendre.leggauss(60 * more)
    angle, parts = 2.0 * np.pi * np.arange(96 * more) / (96 * more), []
    for first, last in ((np.pi, np.arccos(end)), (np.arccos(end), 0.0)):
        theta = 0.5 * (first + last) + 0.5 * (first - last) * x
        round_axis = [np.multiply.outer(np.sin(theta), f(angle)) for f in (np.cos, np.sin)]
        y = np.insert(np.stack(round_axis, axis=-1), j, np.cos(theta)[:, None], axis=-1).reshape(-1, 3)
        n = len(y)
        p = np.exp(log_average(0.5, np.broadcast_to(mean, (n, 3)), np.broadcast_to(cov, (n, 3, 3)), y))
        parts.append(0.25 * (first - last) * np.sum(w * np.sin(theta) * p.reshape(len(x), -1).mean(axis=1)))
    return parts[0], sum(parts)


@pytest.mark.parametrize("variance, narrow", [(25.0, 0.8), (1e4, 0.8), (3e3, 0.2)])
def test_intervals_of_coordinates_of_wide_latents_are_those_of_the_densities(variance, narrow):
    """Ends within 1e-4 of the spread: Sobol points under the latent were off by ten times that."""
    mean, C = np.array([5.0, 0.6, -10.0]), np.array([[1.0, 0.3, 0.2], [0.3, narrow, -0.1], [0.2, -0.1, 1.0]])
    p = Predictive(families.VonMisesFisher().resolve(np.eye(3)[:1]), mean[None], variance * C[None])
    near = 1e-4 * np.sqrt(np.diagonal(p.var()[0]))
    for j, ends in enumerate(p.interval(0.9)[0]):
        for end, q in zip(ends, (0.05, 0.95), strict=True):
            (low, mass), (high, _) = (below(mean, variance * C, j, end + s * near[j]) for s in (-1.0, 1.0))
            assert abs(mass - 1.0) < 1e-7
            assert low < q < high


@pytest.mark.parametrize(
    "length, sd, j, more",
    [(8.0, (0.12, 0.17, 4.0), 0, 1), (11.0, (3.6, 0.2, 0.1), 2, 1), (20.0, (3.6, 2.5, 3.4), 1, 1),
     pytest.param(234.0, (0.5, 2.75, 29.0), 2, 2, marks=pytest.mark.slow),
     pytest.param(530.0, (0.3, 35.0, 75.0), 0, 3, marks=pytest.mark.slow)],
)  # fmt: skip
def test_intervals_of_coordinates_of_long_means_are_those_of_the_densities(length, sd, j, more):
    """Narrow in some directions, which are not those of the coordinates: Sobol points were off by 2e-4 to 1e-3."""
    axes = np.eye(3) - 2.0 * np.outer(*2 * [np.array([0.48, 0.6, 0.64])])
    mean, cov = length * np.array([0.6, 0.0, 0.8]), axes @ np.diag(np.square(sd)) @ axes.T
    p = Predictive(families.VonMisesFisher().resolve(np.eye(3)[:1]), mean[None], cov[None])
    near = 7e-5 * np.sqrt(p.var()[0, j, j])
    for end, q in zip(p.interval(0.9)[0, j], (0.05, 0.95), strict=True):
        (low, mass), (high, _) = (below(mean, cov, j, end + s * near, more) for s in (-1.0, 1.0))
        assert abs(mass - 1.0) < 1e-7
        assert low < q < high


def test_coordinates_of_wide_latents_without_direction_are_uniform():
    p = Predictive(families.VonMisesFisher().resolve(np.eye(3)[:1]), np.zeros((1, 3)), 1e4 * np.eye(3)[None])
    np.testing.assert_allclose(p.interval(0.9)[0], [[-0.9, 0.9]] * 3, atol=2e-6)


def polar(d, mean, cov):
    """Points (k, d) and weights of a Gaussian with a mean along the last axis, by length and angle from that axis.

    For d = 3 the covariance is alike all round the axis.
    """
    x, w = np.polynomial.legendre.leggauss(40)
    edges = np.concatenate([[0.0], 0.25 * 2.0 ** np.arange(17)])
    half = 0.5 * np.diff(edges)
    r, dr = (edges[:-1, None] + half[:, None] * (1 + x)).ravel(), np.multiply.outer(half, w).ravel()
    if d == 2:
        angle = 2 * np.pi * np.arange(1600) / 1600
        unit, size = np.stack([np.sin(angle), np.cos(angle)], axis=1), np.full(1600, 2 * np.pi / 1600)
    else:
        cut = np.cos(np.pi * np.linspace(1, 0, 17))  # panels of equal angle
        z = (cut[:-1, None] + 0.5 * np.diff(cut)[:, None] * (1 + x)).ravel()
        unit = np.stack([np.sqrt(1 - z**2), np.zeros_like(z), z], axis=1)
        size = 2 * np.pi * np.multiply.outer(0.5 * np.diff(cut), w).ravel()
    points = (r[:, None, None] * unit).reshape(-1, d)
    square = np.sum((points - mean) @ np.linalg.inv(cov) * (points - mean), axis=1)
    weight = np.exp(-0.5 * square) / np.sqrt(np.linalg.det(2 * np.pi * cov))
    return points, weight * np.multiply.outer(dr * r ** (d - 1), size).ravel()


@pytest.mark.parametrize(
    "d, length, along, across", [(2, 0.0, 1.5, 1.5), (2, 3.0, 2.0, 1.2), (2, 500.0, 300.0, 20.0), (2, 60.0, 5.0, 40.0),
                                 (3, 2.0, 2.0, 1.5), (3, 500.0, 300.0, 40.0)],
)  # fmt: skip
def test_normalisers_of_wide_latents_are_integrals_in_polar_coordinates(d, length, along, across):
    mean, cov = length * np.eye(d)[-1], np.diag([*[across**2] * (d - 1), along**2])
    if d == 2 and length:
        cov[0, 1] = cov[1, 0] = 0.4 * along * across
    points, weights = polar(d, mean, cov)
    assert abs(weights.sum() - 1) < 1e-11  # all of the Gaussian is there
    family = families.VonMisesFisher().resolve(np.eye(d))
    value, first, second = (part[0] for part in log_normaliser(d / 2 - 1, mean[None], cov[None]))
    b = family.natural(points)[1] - family.natural(mean)[1]
    assert abs(value - weights @ b) < 3e-10 * (1 + length + along)  # the integral over t has nine digits
    gradient, hessian = weights @ family.moment(points), np.einsum("k,kij->ij", weights, family.spread(points))
    if d == 3:  # all round the axis
        gradient, hessian = gradient * np.eye(3)[2], np.diag([0.5 * np.trace(hessian[:2, :2])] * 2 + [hessian[2, 2]])
    np.testing.assert_allclose(first, gradient, atol=2e-10)
    np.testing.assert_allclose(second, hessian, rtol=0, atol=1e-9 * np.abs(hessian).max())


def test_normalisers_of_narrow_and_long_latents_keep_their_digits():
    """E[b] - b(k) is <V, b''>/2 there, next to k in both."""
    for k in (1e4, 1e5, 1e6):
        mean, cov, bessel = np.array([[0.0, k]]), np.diag([4e-4, 9e-4])[None], BesselRatio(0.0, np.array(k))
        value, _, second = log_normaliser(0.0, mean, cov)
        np.testing.assert_allclose(value, 0.5 * (4e-4 * bessel.c1 + 9e-4 * bessel.slope), rtol=1e-9)
        # ten digits of the curvature across, 2 k times as large as that along
        off = 1e-10 * bessel.c1
        np.testing.assert_allclose(second[0], np.diag([bessel.c1, bessel.slope]), rtol=0, atol=off)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_expectations_of_narrow_and_wide_rows_meet(d):
    """Nodes up to a standard deviation of one, and the closed form beyond, for full and for independent latents."""
    rng = np.random.default_rng(0)
    family, y = families.VonMisesFisher().resolve(np.eye(d)), directions(rng, 3, d)
    problem, mean = Problem(family, y, np.zeros((3, d))), np.array([[0.5], [2.0], [9.0]]) * directions(rng, 3, d)
    for root in (np.full((3, d), 0.7), 0.7 * np.tile(np.eye(d), (3, 1, 1))):
        found = expect(problem, mean, root, "fine")
        value, u, U = family.expected_log_prob_wide(mean, 0.49 * np.tile(np.eye(d), (3, 1, 1)), y)
        U = U.diagonal().gamma if root.ndim == 2 else U.dense()
        np.testing.assert_allclose(found.value, value, atol=1e-8)
        np.testing.assert_allclose(found.u, u, atol=1e-8)
        np.testing.assert_allclose(found.U.gamma if root.ndim == 2 else found.U.dense(), U, atol=1e-7)
    wide = expect(problem, mean, 50.0 * np.ones((3, d)), "standard")
    assert np.all(wide.levels == -1) and wide.error == 0.0
    h = 1e-3 * np.eye(d)[0]
    ahead, behind = (expect(problem, mean + s * h, 50.0 * np.ones((3, d)), "standard").value for s in (1.0, -1.0))
    np.testing.assert_allclose((ahead - behind) / 2e-3, wide.u[:, 0], atol=1e-8)


# spreads of the lengths of long latents, relative to the length: nodes for the narrow ones where few are enough, the
# closed form for those that may have turned round
SHARES = np.array([0.01, 0.05, 0.1, 0.124, 0.126, 0.15, 0.17, 0.2, 0.25, 0.4])


def long_latents(d, length):
    """Problem, means, covariances with the spreads `SHARES`, and a basis that begins with the mean's direction."""
    rng = np.random.default_rng(d)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    angle = 0.7 / np.sqrt(length)
    y = np.tile(np.cos(angle) * basis[:, 0] + np.sin(angle) * basis[:, 1], (len(SHARES), 1))
    variances = np.tile(0.4 * length * np.ones(d), (len(SHARES), 1))
    variances[:, 0] = (SHARES * length) ** 2
    cov = np.einsum("ij,nj,kj->nik", basis, variances, basis)
    family = families.VonMisesFisher().resolve(y)
    return Problem(family, y, np.zeros(y.shape)), np.tile(length * basis[:, 0], (len(SHARES), 1)), cov, basis


@pytest.mark.parametrize("length", [1e4, 1e5, 1e6])
@pytest.mark.parametrize("d", [2, 3])
def test_expectations_of_long_latents_are_integrals_over_length_and_side(d, length):
    """Some have turned round beyond the origin, where no node is: 2e-3 nats at a fifth of a length of 1e5."""
    problem, mean, cov, basis = long_latents(d, length)
    found = expect(problem, mean, np.linalg.cholesky(cov), "standard")
    x, w = np.polynomial.legendre.leggauss(60)
    side, across = 4.5 * (1.0 + x), np.sqrt(0.4 * length)
    weight = 4.5 * w * np.exp(-0.5 * side**2) * (np.sqrt(2.0 / np.pi) if d == 2 else side)
    v = np.arange(-13.0, 13.0, 0.004)[:, None]  # close steps about the origin
    along, steps = across * np.sinh(v), 0.004 * across * np.cosh(v)
    side = across * side
    r = np.hypot(along, side)
    bessel = BesselRatio(d / 2 - 1, r)
    # |eta| - eta_1 without a difference of nearly equal numbers
    longer = np.where(along > 0, side**2 / (r + np.abs(along)), r - along)
    turned, lack = (side / r) ** 2, 2.0 * np.sin(0.35 / np.sqrt(length)) ** 2
    for row, share in enumerate(SHARES):
        sd = share * length
        weights = steps * np.exp(-0.5 * ((along - length) / sd) ** 2) / (np.sqrt(2.0 * np.pi) * sd) * weight
        value = -length * lack - np.sum(weights * (longer + bessel.log)) - problem.family.log_whole(d)
        u = np.sum(weights * (longer / r + bessel.one_minus_A * along / r)) - lack
        curvature = np.sum(weights * (bessel.c1 * turned + bessel.slope * (1.0 - turned)))
        beside = np.sum(weights * (bessel.c1 - bessel.rho * turned / (d - 1)))
        own = found.U.dense()[row]
        assert abs(found.value[row] - value) < 2e-7, share
        assert abs(found.u[row] @ basis[:, 0] - u) * sd < 2e-7, share  # per standard deviation
        np.testing.assert_allclose(basis[:, 0] @ own @ basis[:, 0], curvature, rtol=1e-4)
        np.testing.assert_allclose(basis[:, 1] @ own @ basis[:, 1], beside, rtol=1e-5)


@pytest.mark.parametrize("length", [1e4, 1e5, 1e6])
@pytest.mark.parametrize("d", [2, 3])
def test_expectations_of_long_latents_change_as_their_derivatives_say(d, length):
    problem, mean, cov, _ = long_latents(d, length)
    root, t = np.linalg.cholesky(cov), 1e-4  # of a standard deviation, or of a variance
    found = expect(problem, mean, root, "standard")
    own = np.einsum("nkj,nkl,nlj->nj", root, found.U.dense(), root)
    for j in range(d):
        move = t * root[:, :, j]
        up, down = (expect(problem, mean + s * move, root, "standard", found.nodes).value for s in (1.0, -1.0))
        np.testing.assert_allclose((up - down) / (2 * t), np.einsum("nk,nk->n", found.u, move) / t, atol=2e-7)
        wider, narrower = (np.where(np.arange(d) == j, np.sqrt(1.0 + s * t), 1.0) for s in (1.0, -1.0))
        up, down = (expect(problem, mean, root * s, "standard", found.nodes).value for s in (wider, narrower))
        np.testing.assert_allclose((up - down) / (2 * t), -0.5 * own[:, j], atol=2e-7)


@pytest.mark.parametrize("concentration", [1e4, 1e5, 1e6])
@pytest.mark.parametrize("d", [2, 3])
def test_searches_with_long_latents_arrive(d, concentration):
    """Rows whose latents may have turned round took turns to have nodes that did not see it, and searches stalled."""
    for seed, share in ((0, 0.6), (1, 0.3), (2, 0.6)):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.uniform(0.0, 10.0, 40))
        angle = 0.5 * np.sin(0.6 * x)
        eta = concentration * np.stack([np.cos(angle), np.sin(angle), 0.3 * np.cos(x)][:d], axis=1)
        y = families.VonMisesFisher().sample(eta, rng)
        kernel = ConstantKernel((share * concentration) ** 2) * RBF(2.0) + ConstantKernel(concentration**2)
        assert GGPRegressor("von_mises_fisher", kernel, optimizer=None).fit(x[:, None], y).converged_


def test_ten_dimensions_by_sampling():
    rng = np.random.default_rng(6)
    d = 10
    root = np.tril(rng.normal(size=(d, d)))
    mean, cov, y = rng.normal(size=(1, d)), root @ root.T, directions(rng, 1, d)
    eta = mean + rng.normal(size=(200_000, d)) @ root.T
    family = families.VonMisesFisher().resolve(np.eye(d)[:1])
    p = np.exp(family.log_prob(eta, y))
    predictive = Predictive(family, mean, cov[None])
    assert abs(np.exp(predictive.log_prob(y)[0]) - p.mean()) < 4.0 * p.std() / np.sqrt(len(p))
    np.testing.assert_allclose(predictive.family.predictive_moments(mean, cov[None])[0][0],
                               family.moment(eta).mean(axis=0), atol=4.0 * 0.5 / np.sqrt(len(p)))  # fmt: skip


# ---- a direction and a concentration that are both uncertain --------------------------------------------------
@pytest.mark.parametrize("variance", [0.3, 4.0, 100.0, pytest.param(1e4, marks=pytest.mark.slow)])
def test_densities_of_uncertain_directions_and_concentrations_integrate_to_one(variance):
    """Sums over equal steps of a smooth periodic function are exact, and needles of all widths are in it."""
    mean, C = np.array([1.0, 0.6, 1.0]), np.array([[1.0, 0.3, 0.2], [0.3, 0.8, -0.4], [0.2, -0.4, 1.0]])
    y = 2.0 * np.pi * np.arange(24) / 24
    log_p = [log_turned(mean, variance * C, float(one)) for one in y]
    assert abs(np.exp(log_p).mean() * 2.0 * np.pi - 1.0) < 1e-6


def test_densities_of_uncertain_directions_are_those_of_a_dense_grid():
    family, rng = families.VonMisesDirectionConcentration(), np.random.default_rng(0)
    x, weights = trapezoid(3, 0.12, 6.5)
    for variance in (0.05, 0.3, 0.7):
        A = rng.normal(size=(3, 3))
        cov = 0.5 * variance * (A @ A.T / np.outer(*2 * [np.linalg.norm(A, axis=1)]) + np.eye(3))
        mean, y = np.array([1.5, -1.0, 1.0]), rng.uniform(-np.pi, np.pi, 3)
        eta = mean + x @ np.linalg.cholesky(cov).T
        want = [logsumexp(family.log_prob(eta, one), b=weights) for one in y]
        # the family chooses between a coarser grid and turns: both
        turned = [log_turned(mean, cov, float(one)) for one in y]
        np.testing.assert_allclose(turned, want, rtol=0, atol=1e-6)
        three = np.broadcast_to(mean, (3, 3)), np.broadcast_to(cov, (3, 3, 3))
        np.testing.assert_allclose(family.predictive_log_prob(*three, y), want, rtol=0, atol=1e-6)


def test_known_directions_with_any_concentration_are_one_integral():
    """Latents of the direction without spread: an average over log k alone, by SciPy."""
    a, y = np.array([2.0, 0.0]), 0.4
    r = 2.0 / np.sqrt(5.0)
    for sd in (0.3, 1.9, 2.1, 8.0):
        cov = np.diag([0.0, 0.0, sd**2])

        def density(c, sd=sd):
            k = r * np.exp(c)
            return (
                np.exp(k * (np.cos(y) - 1.0) - 0.5 * (c / sd) ** 2) / (2 * np.pi * ive(0, k)) / np.sqrt(2 * np.pi) / sd
            )

        want = quad(density, -8.0 * sd, min(8.0 * sd, 12.0), epsabs=1e-13, epsrel=1e-11, limit=500)[0]
        # a variance below 1e-10 is taken to be that
        assert abs(log_turned(np.append(a, 0.0), cov, y) - np.log(want)) < 1e-6


def test_parameters_of_angles_are_a_direction_that_wraps_and_the_concentration_of_y():
    """Against draws: bands of a direction about the cut of the circle, and |theta|, not exp(c)."""
    family = families.VonMisesDirectionConcentration(units="degrees")
    mean, cov = np.array([3.0, 0.02, 1.0]), np.diag([0.2, 0.5, 0.1])  # the direction lies about 0°
    p = Predictive(family, mean[None], cov[None])
    eta = np.random.default_rng(0).multivariate_normal(mean, cov, size=400_000)
    turned = np.degrees(np.arctan2(eta[:, 1], eta[:, 0]))
    low, high = p.parameter("direction").interval(0.9)[0]
    np.testing.assert_allclose([low - 360.0, high], np.quantile(turned, [0.05, 0.95]), atol=0.3)  # 0.3 % of the level
    np.testing.assert_allclose(p.parameter("direction").mean(), p.mean())
    assert abs(p.parameter("direction").median()[0] - np.median(turned)) < 0.1
    length = np.hypot(eta[:, 0], eta[:, 1])
    concentration = np.exp(eta[:, 2]) * length / np.sqrt(1.0 + length**2)
    np.testing.assert_allclose(
        p.parameter("concentration").interval(0.9)[0], np.quantile(concentration, [0.05, 0.95]), rtol=0.01
    )
    np.testing.assert_allclose(p.parameter("concentration").mean(), concentration.mean(), rtol=3e-3)
