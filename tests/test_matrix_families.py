"""Families with matrices in them: the Gaussian with a full noise covariance, and the Wishart."""

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import gammainc, gammaincinv, logsumexp, ndtr, ndtri, roots_genlaguerre
from scipy.stats import qmc

from cases import kernels, simulate
from ggpm import GGPRegressor, Laplace, Predictive, Taylor, families
from ggpm.families.curvature import Blocks, Kronecker
from ggpm.families.special.centred_lattice import centred_nodes
from ggpm.families.special.products import log_bessel_k, log_density
from ggpm.families.special.quadrature import trapezoid
from ggpm.families.support import SPD
from ggpm.fields.dense import KernelMatrices
from ggpm.fields.dense.field import DenseProcess
from ggpm.fields.dense.solution import check_memory
from ggpm.learning.engine import find
from ggpm.prediction.mixture import Mixture
from ggpm.sites import Problem

RTOL = 1e-10


# ---- Wishart ---------------------------------------------------------------------------------------------
def mp_wishart(p, phi):
    """log p(y | eta) in mpmath, from the density's definition."""

    def log_prob(eta, y):
        B = mp.eye(p)
        for (j, k), value in zip(zip(*np.tril_indices(p, -1)), eta[p:]):
            B[int(j), int(k)] = -value
        precision = B * mp.diag([mp.exp(-e) for e in eta[:p]]) * B.T
        trace = sum(precision[i, j] * y[i, j] for i in range(p) for j in range(p))
        log_gamma = mp.mpf(p * (p - 1)) / 4 * mp.log(mp.pi) + sum(mp.loggamma((phi - j) / 2) for j in range(p))
        log_det = mp.log(mp.det(y)) * (phi - p - 1) / 2 - phi / 2 * sum(eta[:p])
        return log_det - phi / 2 * trace + p * phi / 2 * mp.log(phi / 2) - log_gamma

    return log_prob


SIZES = [-40.0, -3.0, 0.3, 3.0, 40.0]


@pytest.mark.parametrize("phi", [1.001, 2.5, 30.0, 1e5])
@pytest.mark.parametrize("size", SIZES)
def test_wishart_against_mpmath(phi, size):
    """Density, gradient, curvature, third derivative and derivatives in phi; p = 2."""
    rng = np.random.default_rng(0)
    eta = np.array([[size, size + 1.5, 0.05 * size]])  # a y in float64 is not worse conditioned than 1e16
    family = families.Wishart(phi=phi).resolve(np.eye(2)[None])
    M = family.moment(eta)[0]
    root = np.linalg.cholesky(M) @ (np.eye(2) + 0.3 * np.tril(rng.normal(size=(2, 2))))
    y = (root @ root.T)[None]
    y = 0.5 * (y + np.swapaxes(y, 1, 2))
    v = rng.normal(size=3)
    with mp.workdps(60):
        point, direction = [mp.mpf(float(e)) for e in eta[0]], [mp.mpf(float(a)) for a in v]
        y_mp = mp.matrix([[mp.mpf(float(a)) for a in row] for row in y[0]])
        f = mp_wishart(2, mp.mpf(phi))
        value = f(point, y_mp)
        # the density of large phi is a difference of numbers of size phi |eta|
        assert abs(mp.mpf(float(family.log_prob(eta, y)[0])) - value) < 1e-12 * (1 + abs(value)) + 1e-14 * phi * 80

        def along(s, t, k):
            return f([p + s * a + t * (j == k) for j, (p, a) in enumerate(zip(point, direction))], y_mp)

        u = [mp.diff(lambda t, k=k: along(0, t, k), 0) for k in range(3)]
        U_v = [-mp.diff(lambda s, t, k=k: along(s, t, k), (0, 0), (1, 1)) for k in range(3)]
        third = [-mp.diff(lambda s, t, k=k: along(s, t, k), (0, 0), (2, 1)) for k in range(3)]
        excess = mp.mpf(phi) - 1
        in_phi = excess * mp.diff(lambda x: mp_wishart(2, x)(point, y_mp), mp.mpf(phi))
        for got, want, floor in (
            (family.u(eta, y)[0], u, phi),  # zero at the fit: compared with the size of its terms
            (family.U(eta, y).dense()[0] @ v, U_v, 0),
            (family.U_pullback(eta, y, Blocks(np.outer(v, v)[None]))[0][0], third, 0),
            (family.log_prob_phi(eta, y)[0], [in_phi], float(excess)),
        ):
            # entries differ by powers of exp(eta): every one against its own size, and against the pull of the others
            for g, w in zip(got, want, strict=True):
                assert abs(mp.mpf(float(g)) - w) <= RTOL * (max(abs(w), mp.mpf(floor))), (g, w)


def test_wishart_density_is_scipys():
    _, y, family = simulate("wishart", n=6)
    eta = np.random.default_rng(1).normal(size=(6, 3))
    want = [stats.wishart(5.5, m / 5.5).logpdf(v) for m, v in zip(family.moment(eta), y)]
    np.testing.assert_allclose(family.log_prob(eta, y), want, rtol=1e-12)


@pytest.mark.parametrize("variance", [0.01, 1.0, 9.0])
def test_wishart_predictive_density_is_the_integral_over_all_latents(variance):
    """Coefficients are integrated in closed form: against the trapezoidal rule over all three latents."""
    rng = np.random.default_rng(2)
    family = families.Wishart(phi=5.5).resolve(np.eye(2)[None])
    A, mean = rng.normal(size=(3, 5)), 0.5 * rng.normal(size=(1, 3))
    cov, y = variance / 5 * A @ A.T, family.encode(family.sample(mean, rng))
    h = 0.2 if variance <= 1 else 0.1
    x = np.arange(-7.0, 7.0, h)
    e = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)
    root, total = np.linalg.cholesky(cov), []
    for first in x:
        at = np.concatenate([np.full((*e.shape[:2], 1), first), e], axis=-1)
        total.append(logsumexp(family.log_prob(mean[0] + at @ root.T, y[0]) - 0.5 * np.sum(at**2, axis=-1)))
    exact = logsumexp(total) + 3 * np.log(h / np.sqrt(2 * np.pi))
    assert Predictive(family, mean, cov[None]).log_prob(y)[0] == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("variance", [25.0, 100.0])
def test_wishart_predictive_density_with_wide_latents(variance):
    """Tails that fall like exp(-x) on one side: against the trapezoidal rule over both log-variances."""
    rng, sd = np.random.default_rng(3), np.sqrt(variance)
    family = families.Wishart(phi=5.5).resolve(np.eye(2)[None])
    mean, cov = 0.5 * rng.normal(size=(1, 3)), variance * (0.6 * np.eye(3) + 0.4)[None]
    y = family.encode(family.sample(mean, rng))
    density, a, A, fewer = family.fewer_latents(mean, cov, y)
    x = np.arange(-8.0, 8.0, 0.12 / sd)  # an eighth of what log-variances vary by
    root, total = np.linalg.cholesky(A[0]), []
    for first in x:
        e = np.stack([np.full_like(x, first), x], axis=-1)
        total.append(
            logsumexp(density.log_prob((a[0] + e @ root.T)[:, None], fewer)[:, 0] - 0.5 * np.sum(e**2, axis=-1))
        )
    exact = logsumexp(total) + 2 * np.log((x[1] - x[0]) / np.sqrt(2 * np.pi))
    assert Predictive(family, mean, cov).log_prob(y)[0] == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("p", [2, 3, 4])
def test_derivatives_without_the_coefficients(p):
    rng, D, h = np.random.default_rng(p), p * (p + 1) // 2, 1e-5
    family = families.Wishart(phi=p + 3.5).resolve(np.eye(p)[None])
    A, mean = rng.normal(size=(4, D, D)), rng.normal(size=(4, D))
    A[0, 0] = 0.0  # a variance that is known
    density, a, _, y = family.fewer_latents(mean, A @ A.swapaxes(1, 2), family.encode(family.sample(mean, rng)))
    u, U = density.u_and_U(a, y)
    for k, step in enumerate(h * np.eye(p)):
        slope = (density.log_prob(a + step, y) - density.log_prob(a - step, y)) / (2 * h)
        bend = (density.u_and_U(a + step, y)[0] - density.u_and_U(a - step, y)[0]) / (2 * h)
        np.testing.assert_allclose(slope, u[:, k], rtol=1e-6, atol=1e-6)  # rounding over h
        np.testing.assert_allclose(-bend, U.dense()[:, k], rtol=1e-6, atol=1e-6)
    assert np.all(np.linalg.eigvalsh(density.U(a, y, expected=True).dense()) > 0)


def grid(mean, cov, size, reach=6.0):
    """Nodes (D, S) and weights of a square grid under a Gaussian."""
    z = np.stack(np.meshgrid(*[np.linspace(-reach, reach, size)] * len(mean), indexing="ij")).reshape(len(mean), -1)
    w = np.exp(-0.5 * np.sum(z**2, axis=0))
    kept = w > 1e-9
    return mean[:, None] + np.linalg.cholesky(cov) @ z[:, kept], w[kept] / w[kept].sum()


def below(entry, phi, mean, cov, y, size):
    """P(entry <= y) of a matrix of order 2: chi-squares, and normals given another entry, on grids of the latents."""
    a = 0.5 * phi
    if entry == (0, 0):
        eta, w = grid(mean, cov, size)
        return w @ gammainc(a, a * y / (np.exp(eta[0]) + eta[2] ** 2 * np.exp(eta[1])))
    if entry == (1, 1):
        eta, w = grid(mean[1:2], cov[1:2, 1:2], 40 * size)
        return w @ gammainc(a, a * y / np.exp(eta[0]))
    slope = np.linalg.solve(cov[:2, :2], cov[:2, 2])  # the regression coefficient is normal given the variances
    eta, w = grid(mean[:2], cov[:2, :2], size)
    log_g = np.linspace(-12.0, 3.0, 120)
    g = np.exp(a * log_g - a * np.exp(log_g))
    v = np.exp(eta[1][:, None] + log_g)
    centre = (mean[2] + slope @ (eta - mean[:2, None]))[:, None] * v
    variance = (cov[2, 2] - slope @ cov[:2, 2]) * v * v + np.exp(eta[0])[:, None] * v / phi
    return w @ ndtr((y - centre) / np.sqrt(variance)) @ (g / g.sum())


ENTRIES = [(0, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize("phi, variance", [(5.5, 0.01), (5.5, 0.3), (5.5, 1.0), (3.0, 0.3), (40.0, 0.1)])
def test_wishart_intervals_against_grids(phi, variance):
    """To 2e-5 of probability, 1e-4 of the standard deviation; grids of 61 points are right to 1e-7."""
    rng = np.random.default_rng(3)
    root = np.eye(3) + 0.4 * rng.normal(size=(4, 3, 3))
    cov, mean = root @ root.swapaxes(1, 2), rng.normal(size=(4, 3))
    scale = np.sqrt(np.einsum("mii->mi", cov))
    cov *= variance / (scale[:, :, None] * scale[:, None, :])
    family = families.Wishart(phi=phi).resolve(np.eye(2)[None])
    p = Predictive(family, mean, cov)
    parts = Mixture([p, Predictive(family, mean + 0.5, 0.5 * cov)], np.array([0.4, 0.6]))
    ends, mixed = p.interval(0.9), parts.interval(0.9)
    np.testing.assert_array_equal(ends, ends.swapaxes(1, 2))
    for row in range(len(mean)):
        for entry in ENTRIES:
            for level, y in zip((0.05, 0.95), ends[row, *entry]):
                assert below(entry, phi, mean[row], cov[row], y, 61) == pytest.approx(level, abs=2e-5)
    for entry in ENTRIES:
        for level, y in zip((0.05, 0.95), mixed[0, *entry]):
            both = [below(entry, phi, mean[0] + m, c * cov[0], y, 61) for m, c in ((0.0, 1.0), (0.5, 0.5))]
            assert 0.4 * both[0] + 0.6 * both[1] == pytest.approx(level, abs=2e-5)


@pytest.mark.parametrize("variance", [25.0, 1e4])
def test_wishart_intervals_with_wide_latents(variance):
    """Against a million draws, four standard errors: a tenth of what draws would be off by."""
    rng, size, phi = np.random.default_rng(4), 1_000_000, 5.5
    mean, cov = np.array([0.3, -0.4, 0.5]), variance * (0.7 * np.eye(3) + 0.3)
    p = Predictive(families.Wishart(phi=phi).resolve(np.eye(2)[None]), mean[None], cov[None])
    ends = p.interval(0.9)[0]
    eta = mean[:, None] + np.linalg.cholesky(cov) @ rng.normal(size=(3, size))
    y_11 = np.exp(eta[1]) * rng.gamma(phi / 2, 2 / phi, size)
    y_01 = eta[2] * y_11 + np.exp(0.5 * eta[0]) * np.sqrt(y_11 / phi) * rng.normal(size=size)
    y_00 = (np.exp(eta[0]) + eta[2] ** 2 * np.exp(eta[1])) * rng.gamma(phi / 2, 2 / phi, size)
    for entry, y in zip(ENTRIES, (y_00, y_01, y_11)):
        found = np.mean(y[:, None] <= ends[*entry], axis=0)
        np.testing.assert_allclose(found, [0.05, 0.95], atol=4.0 * np.sqrt(0.05 * 0.95 / size))


def test_wishart_intervals_of_known_latents_and_of_three_variables():
    """Without variance of the latent, chi-squares; of three variables, draws."""
    known = Predictive(families.Wishart(phi=5.0).resolve(np.eye(2)[None]), np.zeros((1, 3)), np.zeros((1, 3, 3)))
    ends = known.interval(0.9)[0]
    near = {"rtol": 0.0, "atol": 3e-5}  # 5e-5 of the standard deviation
    np.testing.assert_allclose(ends[1, 1], stats.chi2(5).ppf([0.05, 0.95]) / 5, **near)
    np.testing.assert_allclose(ends[0, 0], ends[1, 1], **near)
    np.testing.assert_allclose(ends[0, 1, 0], -ends[0, 1, 1], **near)
    rng = np.random.default_rng(5)
    mean, sd = rng.normal(size=(2, 6)), rng.uniform(0.1, 0.5, (2, 6))
    cov = sd[:, :, None] * sd[:, None, :] * (0.7 * np.eye(6) + 0.3)
    p = Predictive(families.Wishart(phi=6.5).resolve(np.eye(3)[None]), mean, cov)
    draws = p.sample(100_000, 0)
    found = np.mean(draws[..., None] <= p.interval(0.9), axis=0)
    np.testing.assert_allclose(found, np.broadcast_to([0.05, 0.95], found.shape), atol=4e-3)  # four standard errors


def below_of_three(entry, phi, m, V, ends, size, shapes):
    """P(entry <= end) of a matrix of order 3: products of Gauss's rules of five latents or four, and of the chi-square.

    With c = eta_20 + eta_10 eta_21, entry (0, 0) is M_00 = exp(eta_0) + eta_10² exp(eta_1) + c² exp(eta_2) times a
    chi-square; entries (0, 1) and (0, 2) given y_jj are normal, and so are coefficients in them given other latents.
    """
    held, last = ([0, 1, 2, 4, 5], [3]) if entry == (0, 1) else ([0, 1, 2, 3], [4, 5])
    x, w = np.polynomial.hermite_e.hermegauss(size)
    d = 5 if entry != (0, 2) else 4
    z = np.stack(np.meshgrid(*[x] * d, indexing="ij")).reshape(d, -1)
    w = np.prod(np.meshgrid(*[w / w.sum()] * d, indexing="ij"), axis=0).ravel()
    z, w = z[:, w > 1e-13], w[w > 1e-13]
    to = np.linalg.solve(V[np.ix_(held, held)], V[np.ix_(held, last)])
    moved = np.linalg.cholesky(V[np.ix_(held, held)]) @ z[: len(held)]
    rest, left = (
        m[last, None] + to.T @ moved,
        V[np.ix_(last, last)] - V[np.ix_(last, held)] @ to,
    )
    a0, a1, a2, *b = m[held, None] + moved
    e0, e1, e2 = np.exp([a0, a1, a2])
    if entry == (0, 1):
        M_jj, own = e1 + b[1] ** 2 * e2, e0 + b[0] ** 2 * e1 * e2 / (e1 + b[1] ** 2 * e2)
        slope, variance = rest[0] + b[0] * b[1] * e2 / M_jj, left[0, 0]
    else:  # c
        M_jj, own = e2, e0 + b[0] ** 2 * e1
        slope = rest[0] + b[0] * rest[1]
        variance = left[0, 0] + 2.0 * b[0] * left[0, 1] + b[0] ** 2 * left[1, 1]
    if entry == (0, 0):
        M_00 = own + (slope + np.sqrt(variance) * z[4]) ** 2 * e2
        return [w @ gammainc(phi / 2, phi / 2 * y / M_00) for y in ends]
    g, v = roots_genlaguerre(shapes, phi / 2 - 1.0)
    y_jj = np.multiply.outer(2.0 / phi * g, M_jj)
    sd = np.sqrt(variance * y_jj**2 + own * y_jj / phi)
    return [v / v.sum() @ ndtr((y - slope * y_jj) / sd) @ w for y in ends]


def test_wishart_intervals_of_three_variables_against_products_of_rules():
    """Standard deviations of 0.1 to 0.7, as those of fits: lattices of all directions left 1e-5 in the median."""
    rng, phi = np.random.default_rng(0), 6.5
    mean, sd = rng.normal(size=(60, 6)), rng.uniform(0.1, 0.7, (60, 6))
    cov = sd[:, :, None] * sd[:, None, :] * (0.7 * np.eye(6) + 0.3)
    ends = Predictive(families.Wishart(phi=phi).resolve(np.eye(3)[None]), mean, cov).interval(0.9)
    off, own = [], []
    for row in range(8):
        for entry in ((0, 0), (0, 1), (0, 2)):
            found, other = (
                below_of_three(entry, phi, mean[row], cov[row], ends[row, *entry], *n) for n in ((9, 24), (8, 20))
            )
            off.append(np.abs(np.array(found) - [0.05, 0.95]).max())
            own.append(np.abs(np.array(found) - other).max())
    off, known = np.array(off), np.array(own) < 2e-5  # by the rules' own error
    assert known.sum() >= 14
    assert np.median(off[known]) < 2e-5 and off[known].max() < 6e-5


def below_by_points(entry, phi, m, V, ends, seed):
    """P(entry <= end) of a matrix of order 3 by quasi-random latents, one or two coefficients integrated where they are
    normal, and y_jj, given which entry (0, j) is normal."""
    u = qmc.Sobol(7, seed=seed).random_base2(16).clip(1e-12, 1.0 - 1e-12)
    held, last = {(0, 0): ([0, 1, 2, 3, 4, 5], []), (0, 1): ([0, 1, 2, 4, 5], [3]), (0, 2): ([0, 1, 2, 3], [4, 5])}[
        entry
    ]
    values, axes = np.linalg.eigh(V[np.ix_(held, held)])
    moved = (axes * np.sqrt(values))[:, ::-1] @ ndtri(u[:, : len(held)]).T
    to = np.linalg.solve(V[np.ix_(held, held)], V[np.ix_(held, last)])
    rest, left = m[last, None] + to.T @ moved, V[np.ix_(last, last)] - V[np.ix_(last, held)] @ to
    a0, a1, a2, *b = m[held, None] + moved
    e0, e1, e2 = np.exp([a0, a1, a2])
    if entry == (0, 0):
        M = e0 + b[0] ** 2 * e1 + (b[1] + b[0] * b[2]) ** 2 * e2
        return [gammainc(phi / 2, phi / 2 * y / M).mean() for y in ends]
    if entry == (0, 1):
        M = e1 + b[1] ** 2 * e2
        own, slope, variance = e0 + b[0] ** 2 * e1 * e2 / M, rest[0] + b[0] * b[1] * e2 / M, left[0, 0]
    else:
        M, own, slope = e2, e0 + b[0] ** 2 * e1, rest[0] + b[0] * rest[1]
        variance = left[0, 0] + 2.0 * b[0] * left[0, 1] + b[0] ** 2 * left[1, 1]
    y_jj = M * gammaincinv(phi / 2, u[:, 6]) * 2.0 / phi
    sd = np.sqrt(variance * y_jj**2 + own * y_jj / phi)
    return [ndtr((y - slope * y_jj) / sd).mean() for y in ends]


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_wishart_intervals_of_three_variables_with_wide_latents(share):
    """Standard deviations of one, without correlation, too: points of a lattice in five dimensions left up to 8e-4."""
    rng, phi = np.random.default_rng(1), 6.5
    mean, cov = rng.normal(size=(3, 6)), np.broadcast_to((1.0 - share) * np.eye(6) + share, (3, 6, 6))
    ends = Predictive(families.Wishart(phi=phi).resolve(np.eye(3)[None]), mean, cov).interval(0.9)
    off = []
    for row in range(3):
        for entry in ((0, 0), (0, 1), (0, 2)):
            found = [below_by_points(entry, phi, mean[row], cov[row], ends[row, *entry], seed) for seed in range(5)]
            error = np.std(found, axis=0, ddof=1) / np.sqrt(5.0)
            assert np.all(error < 6e-5)
            off.append(np.abs(np.mean(found, axis=0) - [0.05, 0.95]))
            np.testing.assert_array_less(off[-1], 5e-5 + 6.0 * error)  # nearly all of it of five errors, which vary
    assert np.median(off) < 2e-5


def test_intervals_of_three_variables_do_not_hang_on_units_and_signs():
    """Units to rounding; signs of variables, with which axes of lattices turn, to 1e-4 of the standard deviation."""
    rng = np.random.default_rng(2)
    mean, sd = rng.normal(size=(5, 6)), rng.uniform(0.1, 0.7, (5, 6))
    cov = sd[:, :, None] * sd[:, None, :] * (0.7 * np.eye(6) + 0.3)
    family = families.Wishart(phi=6.5).resolve(np.eye(3)[None])
    p = Predictive(family, mean, cov)
    ends, spread = p.interval(0.9), np.sqrt(p.var())[..., None]
    for unit, near in ((np.array([3.0, 0.2, 10.0]), 1e-10), (np.array([1.0, -1.0, 1.0]), 1e-4)):
        ratio = np.append(np.ones(3), [unit[0] / unit[1], unit[0] / unit[2], unit[1] / unit[2]])
        moved = mean * ratio + np.append(2.0 * np.log(np.abs(unit)), np.zeros(3))
        other = Predictive(family, moved, cov * np.outer(ratio, ratio)).interval(0.9) / np.outer(unit, unit)[..., None]
        np.testing.assert_array_less(np.abs(np.sort(other, axis=-1) - ends) / spread, near)


@pytest.mark.parametrize("p", [2, 3, 4])
def test_entries_along_one_coefficient(p):
    """ell and k from s, c and r, of which s alone moves with the coefficient."""
    family = families.Wishart(phi=p + 2.5).resolve(np.eye(p)[None])
    eta = np.random.default_rng(p).normal(size=(family.latent_dim, 20))
    for law in family.entry_laws():
        own = eta[[*law.log_variances, *(slope for slope, _, _ in law.slopes)]]
        if not law.slopes:
            continue
        s, log_c, log_r = law.line(own)
        ell, k = law.at(own)
        np.testing.assert_allclose(log_r + (1 + law.diagonal) * np.log(np.hypot(s, np.exp(log_c))), ell, atol=1e-12)
        if k is not None:
            np.testing.assert_allclose(np.arcsinh(s * np.exp(-log_c)), k, atol=1e-12)
        own[law.last] += 0.7
        np.testing.assert_allclose(law.line(own), (s + 0.7, log_c, log_r), atol=1e-11)


def test_centred_lattices_average_functions_of_all_axes():
    """Closed forms; where a function changes along an axis, points have to be closer there."""
    change = np.array([1.0, 0.23, 0.11, 0.04])
    exact = np.cos(0.3) * np.exp(-0.5 * change @ change)
    for spacing, error in ((1.3, 1e-3), (1.1, 1e-4), (1.0, 1e-5)):
        x, weights = centred_nodes(tuple(np.hypot(1.0, change)), spacing, 5.6)
        assert abs(weights @ np.cos(x @ change + 0.3) - exact) < error
    steep = np.array([4.0, 0.0, 0.0, 0.0])
    alike, closer = (centred_nodes(factors, 1.1, 5.6) for factors in ((1.0,) * 4, (4.0, 1.0, 1.0, 1.0)))
    errors = [abs(w @ ndtr(x @ steep + 0.3) - ndtr(0.3 / np.sqrt(17.0))) for x, w in (alike, closer)]
    assert errors[1] < 1e-5 < 1e-3 < errors[0]


@pytest.mark.parametrize("low, high, error", [(0.1, 0.1, 1e-7), (0.1, 0.7, 1e-6), (1.0, 1.0, 2e-5)])
def test_wishart_densities_of_four_variables_against_a_grid(low, high, error):
    """Four log-variances are left of ten latents: a grid about their mode, made twice."""
    rng, phi = np.random.default_rng(0), 8.5
    family = families.Wishart(phi=phi).resolve(np.eye(4)[None])
    mean, sd = rng.normal(size=(3, 10)), rng.uniform(low, high, (3, 10))
    p = Predictive(family, mean, sd[:, :, None] * sd[:, None, :] * (0.7 * np.eye(10) + 0.3))
    y = p.sample(None, 1)
    density, m, V, rest = family.fewer_latents(p.latent_mean, p.latent_cov, family.encode(y))
    for i, found in enumerate(p.log_prob(y)):
        root = np.linalg.cholesky(V[i])

        def log_f(e, i=i, root=root):
            return density.log_prob(m[i] + e @ root.T, rest[i : i + 1]) - 0.5 * np.sum(e * e, axis=-1)

        mode = minimize(lambda e: -float(log_f(e[None])[0]), np.zeros(4), method="BFGS")
        scale, want = np.linalg.cholesky(mode.hess_inv), []
        for step in (0.6, 0.5):
            x, weights = trapezoid(4, step, 6.5)
            # weights are those of the normal: without them a sum over the grid
            log_w = np.log(weights) + 0.5 * np.sum(x * x, axis=1) + np.log(np.diag(scale)).sum()
            want.append(logsumexp(log_f(mode.x + x @ scale.T) + log_w))
        assert abs(want[0] - want[1]) < 0.5 * error
        assert abs(found - want[1]) < error


def test_law_of_products_against_mpmath():
    """K of any order, and the variance-gamma density as the integral over g."""
    for nu, x in [(0.02, 1e-5), (2.2, 3.0), (30.0, 1e-9), (45.0, 1e-3), (45.0, 30.0), (45.0, 1e4)]:
        want = float(mp.log(mp.besselk(nu, x)) + x)
        assert log_bessel_k(nu, np.array(x)) == pytest.approx(want, rel=1e-8, abs=1e-8)
    for a, k, w in [(0.6, 0.4, 0.7), (2.75, -1.5, 0.2), (2.75, 3.0, -0.01), (60.0, 0.9, 0.8)]:
        mean, sd = mp.tanh(k), 1 / mp.cosh(k)

        def density(g, a=a, w=w, mean=mean, sd=sd):
            return mp.npdf(w, mean * g, sd * mp.sqrt(g)) * mp.mpf(a) ** a * g ** (a - 1) * mp.exp(-a * g) / mp.gamma(a)

        want = mp.quad(density, [0, 0.01, 0.1, 0.5, 1, 1.5, 3, 8, mp.inf])
        found = log_density(a, np.array(k), np.log(abs(w)), np.sign(w))
        assert found == pytest.approx(float(mp.log(want * abs(w))), abs=1e-8)


def test_wishart_of_one_variable_is_gamma():
    rng = np.random.default_rng(0)
    eta, y, phi = rng.normal(size=(5, 1)), rng.gamma(2.0, size=5), 7.0
    wishart = families.Wishart(phi=phi).resolve(y[:, None, None])
    gamma = families.Gamma(phi=2 / phi)
    np.testing.assert_allclose(wishart.log_prob(eta, y[:, None, None]), gamma.log_prob(eta, y), rtol=1e-12)
    np.testing.assert_allclose(wishart.u(eta, y[:, None, None]), gamma.u(eta, y), rtol=1e-12)
    for expected in (False, True):
        a, b = wishart.U(eta, y[:, None, None], expected), gamma.U(eta, y, expected)
        np.testing.assert_allclose(a.dense(), b.dense(), rtol=1e-12)


def test_every_latent_gives_a_positive_definite_mean():
    eta = np.random.default_rng(0).normal(scale=3.0, size=(200, 6))
    family = families.Wishart(phi=5.0)
    M = family.moment(eta)
    assert np.all(np.linalg.eigvalsh(M)[:, 0] > 0)
    # the link is one to one: the expansion point of the mean is the latent
    np.testing.assert_allclose(family.expansion(M), eta, rtol=1e-6, atol=1e-6)
    # and means of predictive distributions, averages of such, are positive definite too
    X, y, family = simulate("wishart", n=20)
    mean = GGPRegressor(family, optimizer=None).fit(X, y).predict(np.random.default_rng(1).normal(size=(30, 2)))
    assert mean.shape == (30, 2, 2) and np.all(np.linalg.eigvalsh(mean)[:, 0] > 0)
    np.testing.assert_array_equal(mean, np.swapaxes(mean, 1, 2))


def test_wishart_newton_uses_the_expected_curvature_where_the_observed_is_indefinite():
    """Far from the mode the observed curvature is indefinite; the search still ascends to it."""
    rng = np.random.default_rng(0)
    y = SPD(columns=2).example(rng, 12)
    family = families.Wishart(phi=4.0).resolve(y)
    start = np.tile([[0.0, 0.0, 4.0]], (12, 1))
    assert not family.U(start, y).semidefinite().all()
    assert family.U(start, y, expected=True).semidefinite().all()
    K = [kernels(3, True)(rng.normal(size=(12, 2)))]
    z = np.linalg.solve(K[0], start)
    process = DenseProcess(Problem(family, y, np.zeros((12, 3))), KernelMatrices(K))
    a, b = find(Laplace(), process, (z, start)), find(Laplace(), process)
    assert a.converged and b.converged
    np.testing.assert_allclose(a.log_evidence, b.log_evidence, rtol=1e-10)
    assert np.all(np.diff(a.trace) >= -1e-12 * np.abs(a.trace[:-1]))


def test_degrees_of_freedom_are_learned():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 3, 60)[:, None]
    eta = np.stack([np.sin(X[:, 0]), 0.5 * np.cos(X[:, 0]), 0.3 * X[:, 0]], axis=1)
    y = families.Wishart(phi=12.0).sample(eta, rng)
    model = GGPRegressor("wishart").fit(X, y)
    assert 7 < model.family_.phi < 20  # a relative standard error of about sqrt(2/(60 * 3/2)) = 0.15
    assert model.score(X, y) > 0.2
    fixed = GGPRegressor(families.Wishart(phi=12.0, phi_bounds="fixed")).fit(X, y)
    assert fixed.family_.phi == 12.0 and fixed.theta_.size == model.theta_.size - 1


@pytest.mark.parametrize(
    "y, message",
    [
        (np.ones((3, 2)), r"an array \(n, p, p\); got shape \(3, 2\)"),
        (np.array([np.eye(2), [[1.0, 0.5], [0.4, 1.0]]]), "row 1 differs from its transpose by 0.1"),
        (np.array([np.eye(2), [[1.0, 2.0], [2.0, 1.0]]]), "row 1 has the eigenvalue -1.*shrink it"),
        (np.full((1, 2, 2), np.nan), "NaN"),
    ],
)
def test_what_is_not_a_covariance_is_named(y, message):
    with pytest.raises(ValueError, match=message):
        families.Wishart().resolve(y)


def test_wishart_arguments_are_checked():
    with pytest.raises(ValueError, match=r"above p - 1 = 2; got 1\.5"):
        families.Wishart(phi=1.5).resolve(np.eye(3)[None])
    with pytest.raises(ValueError, match="with p = 2; got p = 3"):
        families.Wishart().resolve(np.eye(2)[None]).encode(np.eye(3)[None])
    assert families.Wishart().resolve(np.eye(3)[None]).latent_dim == 6


# ---- multivariate Gaussian -------------------------------------------------------------------------------
def test_diagonal_covariance_is_the_gaussian_family():
    X, y, _ = simulate("gaussian, 3 outputs", n=15)
    phi = np.array([0.3, 0.1, 0.6])
    for shared in (True, False):
        a, b = (
            GGPRegressor(f, kernels(3, shared), optimizer=None).fit(X, y)
            for f in (families.MultivariateGaussian(phi=np.diag(phi)), families.Gaussian(phi=phi))
        )
        np.testing.assert_allclose(a.log_marginal_likelihood_value_, b.log_marginal_likelihood_value_, rtol=1e-11)
        for left, right in zip(a.predict_latent(X[:4] + 0.1), b.predict_latent(X[:4] + 0.1)):
            np.testing.assert_allclose(left, right, rtol=1e-8, atol=1e-10)
        # the last three derivatives: in the logs of standard deviations (before the zeros below the diagonal)
        ga, gb = (m.log_marginal_likelihood(eval_gradient=True)[1] for m in (a, b))
        np.testing.assert_allclose(ga[-6:-3] / 2, gb[-3:], rtol=1e-8)


def test_evidence_is_the_normal_density_of_all_outputs():
    """Against the dense nd×nd covariance K ⊗ I + I ⊗ phi."""
    X, y, family = simulate("multivariate_gaussian", n=9)
    kernel = kernels(3, True)
    for inference in (Taylor(), Laplace()):
        model = GGPRegressor(family, kernel, inference=inference, optimizer=None).fit(X, y)
        cov = np.kron(kernel(X), np.eye(3)) + np.kron(np.eye(9), np.asarray(family.phi))
        want = stats.multivariate_normal(np.zeros(27), cov).logpdf(y.ravel())
        np.testing.assert_allclose(model.log_marginal_likelihood_value_, want, rtol=1e-11)
        K_star = np.kron(kernel(X, X[:2] + 0.1), np.eye(3))
        mean = K_star.T @ np.linalg.solve(cov, y.ravel())
        np.testing.assert_allclose(model.predict(X[:2] + 0.1).ravel(), mean, rtol=1e-9)


def test_a_shared_kernel_costs_one_factorisation_per_eigenvalue():
    y = np.zeros((4, 3))
    family = families.MultivariateGaussian(phi=np.eye(3) + 0.3).resolve(y)
    assert isinstance(family.U(y, y), Kronecker)
    assert isinstance(family.U(np.zeros((2, 4, 3)), y), Blocks)


def test_noise_covariance_is_learned():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 4, 150)[:, None]
    phi = np.array([[0.2, 0.15], [0.15, 0.3]])
    y = np.stack([np.sin(X[:, 0]), np.cos(X[:, 0])], axis=1) + rng.multivariate_normal([0, 0], phi, 150)
    full = GGPRegressor(families.MultivariateGaussian()).fit(X, y)
    # the standard error of a covariance from 150 draws is about 0.3/sqrt(150) = 0.03
    np.testing.assert_allclose(full.family_.phi, phi, atol=0.1)
    diagonal = GGPRegressor(families.Gaussian(phi=[0.2, 0.3])).fit(X, y)
    assert full.log_marginal_likelihood_value_ > diagonal.log_marginal_likelihood_value_ + 10
    given = GGPRegressor(families.MultivariateGaussian(phi=phi, phi_bounds="fixed")).fit(X, y)
    np.testing.assert_array_equal(given.family_.phi, phi)
    lower, upper = full.predict_dist(X[:3]).interval(0.9)[:, 0].T
    assert np.all(lower < full.predict(X[:3])[:, 0]) and np.all(full.predict(X[:3])[:, 0] < upper)


def test_bad_noise_covariances_are_named():
    y = np.zeros((4, 2))
    with pytest.raises(ValueError, match=r"shape \(2, 2\); got shape \(3, 3\)"):
        families.MultivariateGaussian(phi=np.eye(3)).resolve(y)
    with pytest.raises(ValueError, match="symmetric positive definite"):
        families.MultivariateGaussian(phi=[[1.0, 2.0], [2.0, 1.0]]).resolve(y)
    # perfectly correlated outputs have no density, and are refused where there are rows enough to tell; few rows and
    # constant outputs leave no covariance to start from: still a start
    equal = np.repeat(np.arange(5.0)[:, None], 2, axis=1)
    with pytest.raises(ValueError, match="columns 0, 1 of y are collinear"):
        families.MultivariateGaussian().resolve(equal)
    assert np.linalg.eigvalsh(families.MultivariateGaussian().resolve(equal[:3]).phi)[0] > 0
    rounded = np.log(np.tile([0.1, 0.3], (40, 1)))  # whose means are not quite the numbers themselves
    assert np.linalg.eigvalsh(families.MultivariateGaussian().resolve(rounded).phi)[0] > 0
    assert families.MultivariateGaussian().resolve(np.ones((5, 2))).phi[0, 0] == pytest.approx(0.5)


# ---- memory ----------------------------------------------------------------------------------------------
def test_blocks_that_do_not_fit_are_refused_before_allocation(monkeypatch):
    X, y, family = simulate("wishart", n=40)
    with pytest.raises(MemoryError, match=r"6×6 blocks for 60000 rows need \d+\.\d GiB.*Use fewer rows"):
        check_memory(60_000, 4 * 6**2, "general 6×6 blocks")
    # the estimator passes it on: one byte less than the four arrays of order 40 that three latents take
    free = 4 * 8 * 40**2 - 1
    monkeypatch.setattr("ggpm.fields.dense.solution.available_memory", lambda: free)
    with pytest.raises(MemoryError, match=r"3×3 blocks for 40 rows need 0.0 GiB"):
        GGPRegressor(family, optimizer=None).fit(X, y)
    with pytest.raises(MemoryError, match="inducing points"):
        GGPRegressor(family).fit(X, y)
    monkeypatch.setattr("ggpm.fields.dense.solution.available_memory", lambda: free + 1)
    GGPRegressor(family, optimizer=None).fit(X, y)


def test_predictive_moments_of_three_variables_are_closed():
    """Products of nodes, exact for what is left of exponentials, against quadrature of the moments themselves."""
    rng = np.random.default_rng(3)
    family = families.Wishart(phi=6.0).resolve(np.eye(3)[None])
    A = 0.25 * rng.normal(size=(2, 6, 6))
    mean, cov = 0.5 * rng.normal(size=(2, 6)), A @ A.swapaxes(1, 2)
    x, weights = np.polynomial.hermite_e.hermegauss(9)
    grid = np.stack([g.ravel() for g in np.meshgrid(*[x] * 6, indexing="ij")], axis=1)
    w = np.prod(np.stack([g.ravel() for g in np.meshgrid(*[weights / weights.sum()] * 6, indexing="ij")]), axis=0)
    grid, w = grid[w > 1e-12], w[w > 1e-12]
    average, variance = family.predictive_moments(mean, cov)
    for i in range(2):
        eta = mean[i] + grid @ np.linalg.cholesky(cov[i]).T
        M = family.moment(eta)
        want = np.tensordot(w, M, axes=1)
        np.testing.assert_allclose(average[i], want, rtol=1e-6)
        total = np.tensordot(w, family.spread(eta) + (M - want) ** 2, axes=1)
        np.testing.assert_allclose(variance[i], total, rtol=1e-4)  # tails of exp(2 eta) with nine nodes
