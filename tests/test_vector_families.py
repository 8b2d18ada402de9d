"""Families with several latents: classes, counts of categories, directions, compositions.

Every test runs over one list of cases. References are SciPy's densities, the log-density in mpmath with its
numerical derivatives at 100 digits, and central differences of the next lower order.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from ggpm.families.base import Family
from ggpm.families.categorical import Categorical
from ggpm.families.curvature import Blocks
from ggpm.families.dirichlet import Dirichlet
from ggpm.families.multinomial import Multinomial
from ggpm.families.von_mises import VonMises
from ggpm.families.von_mises_fisher import VonMisesFisher

RTOL = 1e-10  # the promise; measured errors are below 1e-12 except where a comment says so


# ---- log-densities in mpmath -----------------------------------------------------------------------------
def mp_softmax(eta, y):
    N = sum(y)
    log_h = mp.loggamma(N + 1) - sum(mp.loggamma(v + 1) for v in y)
    return log_h + sum(v * e for v, e in zip(y, eta)) - N * mp.log(sum(mp.exp(e) for e in eta))


def mp_von_mises(eta, y):
    kappa = mp.sqrt(eta[0] ** 2 + eta[1] ** 2)
    return eta[0] * mp.cos(y) + eta[1] * mp.sin(y) - mp.log(2 * mp.pi * mp.besseli(0, kappa))


def mp_von_mises_fisher(eta, y):
    nu, kappa = mp.mpf(len(eta)) / 2 - 1, mp.sqrt(sum(e**2 for e in eta))
    length = mp.sqrt(sum(v**2 for v in y))  # one up to the rounding of y
    b = mp.log(mp.besseli(nu, kappa)) - nu * mp.log(kappa)
    return sum(e * v for e, v in zip(eta, y)) / length - b - (nu + 1) * mp.log(2 * mp.pi)


def mp_dirichlet(link):
    def log_prob(eta, y):
        total = sum(y)  # one up to the rounding of y
        alpha = [mp.exp(e) if link == "exp" else mp.log1p(mp.exp(e)) for e in eta]
        parts = sum((a - 1) * mp.log(v / total) - mp.loggamma(a) for a, v in zip(alpha, y))
        return mp.loggamma(sum(alpha)) + parts

    return log_prob


# ---- cases -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    family: Family
    y: Any  # ordinary data, as a user gives them
    reference: Any  # log-density in mpmath
    extremes: tuple  # of (eta, encoded y)
    noise: float = 1.0  # scale of ordinary eta

    def bound(self) -> tuple[Family, np.ndarray, np.ndarray]:
        """The family bound to the data, an ordinary eta for every row, and the encoded y."""
        family = self.family.resolve(self.y)
        y = family.encode(self.y)
        eta = np.random.default_rng(5).normal(scale=self.noise, size=(len(y), family.latent_dim))
        return family, eta, y


def unit(*v):
    return np.array(v) / np.linalg.norm(v)


def polar(kappa, mu):
    return [kappa * np.cos(mu), kappa * np.sin(mu)]


def softplus_inverse(*alpha):
    a = np.array(alpha, dtype=float)
    return a + np.log(-np.expm1(-a))


SOFTMAX_EXTREMES = (
    ([50.0, 0.0, -50.0], [1.0, 0.0, 0.0]),
    ([50.0, 0.0, -50.0], [0.0, 0.0, 1.0]),
    ([-50.0, -50.0, -50.0], [0.0, 1.0, 0.0]),
)
DIRECTIONS = [  # concentration, angle from the mean direction
    (1e-9, 0.3), (0.5, 2.0), (29.999, 0.2), (30.0, 0.2), (1e3, 0.05), (1e6, 1e-3), (1e8, 1e-4), (1e8, 2.0)
]  # fmt: skip
ANGLE_EXTREMES = tuple((polar(k, 2.9), 2.9 + delta) for k, delta in DIRECTIONS)
COMPOSITION = [0.2, 0.3, 0.5]
COMPOSITIONS = np.array([COMPOSITION, [0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [1e-4, 0.3, 0.6999], [0.01, 0.01, 0.98]])
ALPHAS = (
    ([1e-3, 2e-3, 1e-3], COMPOSITION),
    ([1e6, 2e6, 3e6], [1 / 6.001, 1 / 3.001, 1 - 1 / 6.001 - 1 / 3.001]),
    ([1e-3, 1.0, 1e3], [1e-100, 1e-3, 0.999]),
    ([9.99, 10.01, 1e4], [1e-3, 2e-3, 0.997]),
    ([0.99, 1.01, 1e-3], COMPOSITION),
)
LATENTS_50 = tuple((e, COMPOSITION) for e in ([50.0, 0.0, -50.0], [-50.0, -49.0, -51.0], [50.0] * 3))

CASES = {
    "categorical": Case(Categorical(), np.array([0, 2, 1, 1, 2]), mp_softmax, SOFTMAX_EXTREMES, 2.0),
    "multinomial": Case(
        Multinomial(),
        np.array([[3, 0, 5], [1, 1, 0], [0, 0, 1], [20, 7, 1], [2, 2, 2]]),
        mp_softmax,
        (*SOFTMAX_EXTREMES, ([0.1, 0.0, 0.2], [1e6, 1e6, 1e6]), ([50.0, 49.0, -3.0], [1e5, 2e5, 3.0])),
    ),
    "von_mises": Case(VonMises(), np.array([0.1, -3.0, 2.5, 1.0, 0.0]), mp_von_mises, ANGLE_EXTREMES, 3.0),
    "von_mises_fisher": Case(
        VonMisesFisher(),
        np.array([unit(1.0, 2.0, 3.0), unit(-1.0, 0.3, 0.0), [0, 0, 1.0], unit(1.0, 1.0, 1.0), [-1.0, 0, 0]]),
        mp_von_mises_fisher,
        tuple(([*polar(k * 0.6, 2.0), 0.8 * k], unit(*polar(0.6, 2.0 + t), 0.8)) for k, t in DIRECTIONS),
        3.0,
    ),
    "von_mises_fisher, d = 7": Case(
        VonMisesFisher(),
        np.array([unit(*np.random.default_rng(i).normal(size=7)) for i in range(3)]),
        mp_von_mises_fisher,
        (),
        4.0,
    ),
    "dirichlet": Case(
        Dirichlet(),
        COMPOSITIONS,
        mp_dirichlet("softplus"),
        (*((softplus_inverse(*a), y) for a, y in ALPHAS), *LATENTS_50),
    ),
    "dirichlet, exp": Case(
        Dirichlet(link="exp"),
        COMPOSITIONS,
        mp_dirichlet("exp"),
        (*((np.log(a), y) for a, y in ALPHAS), *LATENTS_50),
    ),
}
case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def random_V(n, D, seed=3):
    A = np.random.default_rng(seed).normal(size=(n, D, D))
    return A @ A.transpose(0, 2, 1)


# ---- against mpmath --------------------------------------------------------------------------------------
def mp_numbers(values):
    return [mp.mpf(float(v)) for v in np.ravel(values)]


def assert_close(got, reference, floor=0.0):
    """Relative to the largest entry of the reference, or to ``floor`` where that is larger."""
    scale = max([abs(r) for r in reference] + [mp.mpf(floor)])
    error = max(abs(mp.mpf(float(g)) - r) for g, r in zip(np.ravel(got), reference, strict=True))
    assert error <= RTOL * scale, f"relative error {mp.nstr(error / scale, 3)}"


POINTS = [
    pytest.param(c, eta, y, id=f"{name}-{i}")
    for name, c in CASES.items()
    for i, (eta, y) in enumerate([*zip(*c.bound()[1:]), *c.extremes])
    if i < 2 or i >= len(c.y)  # two ordinary points, all extreme ones
]


@pytest.mark.parametrize("c, eta, y", POINTS)
def test_density_and_derivatives_against_mpmath(c, eta, y):
    family = c.family
    E, Y = np.array([eta], dtype=float), np.array([y], dtype=float)
    D = E.shape[1]
    # V = v v^T: the pullback is then the third derivative along v, v and each axis
    v = np.random.default_rng(7).normal(size=D)
    U = family.U(E, Y)
    with mp.workdps(100):
        point, direction = mp_numbers(E), mp_numbers(v)
        y_mp = mp_numbers(Y) if Y.ndim > 1 else mp.mpf(float(Y[0]))

        def f(*e):
            return c.reference(e, y_mp)

        def orders(*axes):
            return tuple(axes.count(j) for j in range(D))

        log_p = f(*point)
        u = [mp.diff(f, tuple(point), orders(j)) for j in range(D)]
        H = [[-mp.diff(f, tuple(point), orders(*sorted((j, k)))) for k in range(D)] for j in range(D)]
        third = []
        for k in range(D):

            def along(s, t, k=k):
                return f(*(p + a * s + t * (j == k) for j, (p, a) in enumerate(zip(point, direction))))

            third.append(-mp.diff(along, (0, 0), (2, 1)))
        # log p may be zero by chance: absolute below one
        assert_close(family.log_prob(E, Y), [log_p], floor=1.0)
        assert_close(family.u(E, Y), u)
        # gamma, omega and rho one by one: their combination on the diagonal loses the digits of a singular U
        outer = [mp.mpf(float(U.rho[0])) * w * w for w in mp_numbers(U.omega)]
        for j in range(D):
            assert_close(U.gamma[0, j], [H[j][j] + outer[j]])
        dense = U.dense()[0]
        for j, k in itertools.permutations(range(D), 2):
            assert_close(dense[j, k], [H[j][k]])
        assert_close(family.U_pullback(E, Y, Blocks(np.outer(v, v)[None]))[0], third)


@pytest.mark.parametrize("c, eta, y", POINTS)
def test_gap_is_the_determinant_against_mpmath(c, eta, y):
    E, Y = np.array([eta], dtype=float), np.array([y], dtype=float)
    for expected in (False, True):
        U = c.family.U(E, Y, expected=expected)
        if U.gap is None:
            assert not expected and isinstance(c.family, Dirichlet) and np.any(U.gamma <= 1e-8)
            continue
        gamma, omega, rho = mp_numbers(U.gamma), mp_numbers(U.omega), mp.mpf(float(U.rho[0]))
        with mp.workdps(60):
            nu2 = [rho * w**2 / g for w, g in zip(omega, gamma)]
            nu = [float(mp.sign(w) * mp.sqrt(n)) for w, n in zip(omega, nu2)]
            np.testing.assert_allclose(U.nu[0], nu, rtol=RTOL)
            # from rounded gamma, omega and rho the gap itself is known to this much
            assert abs(mp.mpf(float(U.gap[0])) - (1 - sum(nu2))) < 1e-14
        if expected:
            assert U.gap[0] >= 0


@pytest.mark.parametrize("link", ["softplus", "exp"])
@pytest.mark.parametrize("alpha", [a for a, _ in ALPHAS] + [[1e6, 1e-3], [1e6, 3.0, 2.0]])
def test_dirichlet_gap_keeps_its_digits(link, alpha):
    family = Dirichlet(link=link)
    eta = family._link.inverse(np.array([alpha], dtype=float))
    y = np.full((1, len(alpha)), 1.0 / len(alpha))
    y[0, -1] = 1.0 - y[0, :-1].sum()
    for expected in (False, True):
        U = family.U(eta, y, expected=expected)
        if U.gap is None:
            continue
        with mp.workdps(60):
            a = [mp.exp(e) if link == "exp" else mp.log1p(mp.exp(e)) for e in mp_numbers(eta)]
            J = a if link == "exp" else [1 - mp.exp(-v) for v in a]
            J2 = a if link == "exp" else [j * (1 - j) for j in J]
            S = sum(a)
            B = [mp.log(v) - mp.digamma(t) + mp.digamma(S) for v, t in zip(mp_numbers(y), a)]
            second = [0 if expected else j2 * b for j2, b in zip(J2, B)]
            gamma = [j**2 * mp.polygamma(1, t) - x for j, t, x in zip(J, a, second)]
            gap = 1 - sum(mp.polygamma(1, S) * j**2 / g for j, g in zip(J, gamma))
            assert_close(U.gap, [gap])


def test_von_mises_gap_keeps_its_digits():
    kappa = np.array([0.0, 1.0, 1e4, 1e8])
    U = VonMises().U(np.stack([kappa, 0 * kappa], axis=-1), np.zeros(4))
    np.testing.assert_allclose(U.gap[[0, 2, 3]], [1.0, 5.0005000687625e-05, 5.00000005e-09], rtol=RTOL)
    np.testing.assert_allclose(U.gap, 1 - np.sum(U.nu**2, axis=-1), atol=1e-14)


# ---- against SciPy ---------------------------------------------------------------------------------------
def scipy_log_prob(family, eta, y):
    if isinstance(family, Multinomial):  # and Categorical
        p = np.exp(eta) / np.exp(eta).sum()
        return stats.multinomial.logpmf(y, y.sum(), p)
    if isinstance(family, VonMises):
        return stats.vonmises.logpdf(y, np.hypot(*eta), loc=np.arctan2(eta[1], eta[0]))
    if isinstance(family, VonMisesFisher):
        kappa = np.linalg.norm(eta)
        return stats.vonmises_fisher(eta / kappa, kappa).logpdf(y)
    alpha = np.exp(eta) if family.link == "exp" else np.log1p(np.exp(eta))
    return stats.dirichlet.logpdf(y, alpha)


@case
def test_density_against_scipy(case):
    family, eta, y = case.bound()
    expected = [scipy_log_prob(family, e, v) for e, v in zip(eta, y)]
    np.testing.assert_allclose(family.log_prob(eta, y), expected, rtol=1e-11, atol=1e-11)


# ---- central differences ---------------------------------------------------------------------------------
def central(function, eta, h=1e-5):
    """Derivative of function(eta) in every latent, on a new last axis."""
    steps = h * np.eye(eta.shape[-1])
    return np.stack([(function(eta + s) - function(eta - s)) / (2 * h) for s in steps], axis=-1)


@case
def test_derivatives_by_central_differences(case):
    family, eta, y = case.bound()
    # truncation h^2 = 1e-10 and rounding 1e-16/h = 1e-11, times derivatives of order ten to a hundred
    close = {"rtol": 1e-7, "atol": 1e-7}
    np.testing.assert_allclose(family.u(eta, y), central(lambda e: family.log_prob(e, y), eta), **close)
    np.testing.assert_allclose(family.U(eta, y).dense(), -central(lambda e: family.u(e, y), eta), **close)
    V = random_V(*eta.shape)
    for expected in (False, True):
        dense = central(lambda e, x=expected: family.U(e, y, expected=x).dense(), eta)  # (n, D, D, D)
        d_eta, d_phi = family.U_pullback(eta, y, Blocks(V), expected=expected)
        np.testing.assert_allclose(d_eta, np.einsum("njk,njkl->nl", V, dense), **close)
        assert d_phi.shape == (0,)


# ---- expectations ----------------------------------------------------------------------------------------
def support_nodes(family, d):
    """Points of the support (encoded) and weights that sum or integrate over it."""
    if isinstance(family, Categorical):
        return np.eye(d), np.ones(d)
    if isinstance(family, Multinomial):  # all counts out of 4
        y = np.array([c for c in itertools.product(range(5), repeat=d) if sum(c) == 4], dtype=float)
        return y, np.ones(len(y))
    if isinstance(family, VonMises):  # the trapezoidal rule is exact to rounding for periodic functions
        return np.arange(400) * (2 * np.pi / 400), np.full(400, 2 * np.pi / 400)
    if isinstance(family, VonMisesFisher):  # sphere: Gauss in the height, trapezoid in the angle
        z, w = np.polynomial.legendre.leggauss(80)
        a = np.arange(160) * (2 * np.pi / 160)
        z, a = (g.ravel() for g in np.meshgrid(z, a, indexing="ij"))
        y = np.stack([np.sqrt(1 - z**2) * np.cos(a), np.sqrt(1 - z**2) * np.sin(a), z], axis=-1)
        return y, np.repeat(w, 160) * (2 * np.pi / 160)
    # triangle: y = (s t, s (1 - t), 1 - s) with ds dt s, each by tanh-sinh for the algebraic corners
    x = np.linspace(-4.6, 4.6, 220)
    half = 0.5 * np.pi * np.sinh(x)
    t, t1 = 1 / (1 + np.exp(-2 * half)), 1 / (1 + np.exp(2 * half))  # t and 1 - t
    w = (x[1] - x[0]) * np.pi * np.cosh(x) * t * t1
    s, s1, ws = t[:, None], t1[:, None], w[:, None]
    y = np.stack(np.broadcast_arrays(s * t, s * t1, s1), axis=-1).reshape(-1, 3)
    return y, (ws * w * s * np.ones_like(t)).ravel()


FULL = [n for n in CASES if n != "von_mises_fisher, d = 7"]  # a sphere in 7 dimensions has no product rule


@pytest.mark.parametrize("name", FULL)
def test_normalisation_mean_score_and_expected_curvature(name):
    family, eta, y = CASES[name].bound()
    for e in eta[:2]:
        nodes, weights = support_nodes(family, y.shape[-1] if y.ndim > 1 else 2)
        p = weights * np.exp(family.log_prob(e, nodes))
        # what the rules leave; at the corners of the simplex u grows like log y
        np.testing.assert_allclose(p.sum(), 1.0, atol=1e-8)
        np.testing.assert_allclose(p @ family.u(e, nodes), 0.0, atol=1e-6)
        observed = np.einsum("i,ijk->jk", p, family.U(np.broadcast_to(e, (len(p), e.size)), nodes).dense())
        expected = family.U(e[None], nodes[:1], expected=True).dense()[0]
        np.testing.assert_allclose(observed, expected, atol=1e-6)
        T = family.expansion(nodes) if isinstance(family, VonMises) else nodes
        trials = nodes[0].sum() if family.countable else None
        mean = p @ T
        np.testing.assert_allclose(family.moment(e, trials), mean, atol=1e-7)
        spread = family.spread(e, trials)
        if isinstance(family, VonMises):
            np.testing.assert_allclose(spread, 1 - np.hypot(*mean), atol=1e-8)
        else:
            np.testing.assert_allclose(spread, np.einsum("i,ij,ik->jk", p, T - mean, T - mean), atol=1e-7)


@case
def test_sampling_moments(case):
    family, eta, _ = case.bound()
    n = 40_000
    trials = np.array([1.0, 5.0, 2.0, 9.0, 3.0]) if family.countable else None
    draws = family.sample(np.broadcast_to(eta, (n, *eta.shape)), np.random.default_rng(0), trials)
    if isinstance(family, Categorical):
        draws = family.encode(draws.ravel()).reshape(n, *eta.shape)
    if isinstance(family, VonMises):
        draws = family.expansion(draws)
    assert draws.shape == (n, *eta.shape)
    sd = draws.std(axis=0)
    # 45 means: five standard errors; and their covariances with the same reasoning for fourth moments
    assert np.all(np.abs(draws.mean(axis=0) - family.moment(eta, trials)) < 5 * sd / math.sqrt(n) + 1e-12)
    if not isinstance(family, VonMises):
        centred = draws - draws.mean(axis=0)
        products = centred[..., :, None] * centred[..., None, :]
        error = np.abs(products.mean(axis=0) - family.spread(eta, trials))
        assert np.all(error < 5 * products.std(axis=0) / math.sqrt(n) + 1e-12)


@pytest.mark.parametrize("d", [2, 3, 10])
@pytest.mark.parametrize("kappa", [0.0, 1.0, 100.0, 1e8])
def test_von_mises_fisher_samples_at_every_concentration(d, kappa):
    eta = np.broadcast_to(kappa * unit(*np.arange(1.0, d + 1)), (20_000, d))
    family = VonMisesFisher()
    y = family.sample(eta, np.random.default_rng(1))
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), 1.0, atol=1e-12)
    lack = 0.5 * np.sum((y - unit(*np.arange(1.0, d + 1))) ** 2, axis=1)  # 1 - cosine
    expected = np.linalg.norm(family.moment(eta[:1])[0])
    # 1 - A without cancellation is (d - 1)/(2 kappa) for large kappa
    expected = (d - 1) / (2 * kappa) if kappa > 1e6 else 1 - expected
    assert abs(lack.mean() - expected) < 5 * lack.std() / math.sqrt(len(y)) + 1e-6 * expected


def test_von_mises_samples_at_both_ends():
    family = VonMises(units="degrees")
    y = family.sample(np.zeros((20_000, 2)), np.random.default_rng(0))
    assert stats.kstest(y / 360, "uniform").pvalue > 1e-3
    y = family.sample(np.broadcast_to([1e8, 0.0], (20_000, 2)), np.random.default_rng(0))
    turned = np.mod(y + 180, 360) - 180
    assert stats.kstest(np.deg2rad(turned) * 1e4, "norm").pvalue > 1e-3
    assert y.min() >= 0 and y.max() < 360


def test_dirichlet_samples_with_tiny_and_huge_concentrations():
    rng = np.random.default_rng(0)
    latents = ([-50.0, -50.0, -50.0], [50.0, -50.0, 0.0], [-700.0] * 3)
    for link, eta in itertools.product(("softplus", "exp"), latents):
        y = Dirichlet(link=link).sample(np.broadcast_to(eta, (3000, 3)), rng)
        np.testing.assert_allclose(y.sum(axis=1), 1.0, rtol=1e-12)
    # the last one: a corner each, with equal probabilities
    counts = (y > 0.5).sum(axis=0)
    assert stats.chisquare(counts).pvalue > 1e-3


# ---- shapes and limits -----------------------------------------------------------------------------------
@case
def test_nodes_broadcast_against_rows(case):
    family, eta, y = case.bound()
    nodes = eta + np.random.default_rng(1).normal(size=(4, *eta.shape))
    np.testing.assert_array_equal(family.log_prob(nodes, y), [family.log_prob(e, y) for e in nodes])
    np.testing.assert_array_equal(family.u(nodes, y), [family.u(e, y) for e in nodes])
    for expected in (False, True):
        U = family.U(nodes, y, expected=expected)
        assert U.gamma.shape == U.omega.shape == nodes.shape and U.rho.shape == nodes.shape[:-1]
        np.testing.assert_array_equal(U.dense(), [family.U(e, y, expected=expected).dense() for e in nodes])
    assert family.moment(nodes).shape == nodes.shape
    np.testing.assert_array_equal(family.spread(nodes), [family.spread(e) for e in nodes])
    assert family.sample(nodes, np.random.default_rng(0)).shape[:2] == nodes.shape[:2]


@case
def test_nu_and_gap_belong_to_the_curvature(case):
    family, eta, y = case.bound()
    for expected in (False, True):
        U = family.U(eta[:1], y[:1], expected=expected)
        if U.gap is None:
            continue
        np.testing.assert_allclose(U.nu**2, U.rho[:, None] * U.omega**2 / U.gamma, rtol=1e-12)
        np.testing.assert_allclose(U.gap, 1 - np.sum(U.nu**2, axis=-1), atol=1e-14)
    assert family.U(eta, y, expected=True).semidefinite().all()


@case
def test_expansion_is_finite_and_points_at_the_data(case):
    family, _, y = case.bound()
    eta = family.expansion(y)
    assert eta.shape == (len(y), family.latent_dim) and np.all(np.isfinite(eta))
    np.testing.assert_array_equal(family.expansion_pullback(y, eta), np.zeros(0))
    assert np.all(np.isfinite(family.u(eta, y)))


@case
def test_everything_is_finite_at_fifty(case):
    family, _, y = case.bound()
    D = family.latent_dim
    signs = np.array(list(itertools.product([-50.0, 0.0, 50.0], repeat=min(D, 3))))
    eta = np.zeros((len(signs), 1, D))
    eta[:, 0, : signs.shape[1]] = signs
    V = Blocks(np.eye(D)[None, None])
    for expected in (False, True):
        U = family.U(eta, y, expected=expected)
        d_eta, _ = family.U_pullback(eta, y, V, expected=expected)
        for value in (U.gamma, U.omega, U.rho, U.dense(), d_eta):
            assert np.all(np.isfinite(value))
    for value in (family.log_prob(eta, y), family.u(eta, y), family.moment(eta), family.spread(eta)):
        assert np.all(np.isfinite(value))


@case
def test_loss_is_smallest_at_the_constant(case):
    family, _, y = case.bound()
    constant = family.constant(y)
    assert constant.shape[0] == 1

    def total(prediction):
        return family.loss(y, np.repeat(prediction, len(y), axis=0)).sum()

    best = total(constant)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = constant + 0.05 * rng.normal(size=constant.shape)
        if not isinstance(family, VonMises | VonMisesFisher):
            other = np.abs(other) / np.abs(other).sum()
        assert total(other) > best
    # zero at the data themselves
    perfect = family.point(family.expansion(y)) if isinstance(family, VonMises) else y
    perfect = y / y.sum(axis=1, keepdims=True) if isinstance(family, Multinomial) else perfect
    np.testing.assert_allclose(family.loss(y, perfect), 0.0, atol=1e-14)


# ---- classes and counts ----------------------------------------------------------------------------------
def test_categorical_is_the_one_trial_multinomial():
    family, eta, y = CASES["categorical"].bound()
    counts = Multinomial()
    np.testing.assert_allclose(family.log_prob(eta, y), counts.log_prob(eta, y), rtol=1e-13)
    np.testing.assert_allclose(family.loss(y, family.moment(eta)), -2 * family.log_prob(eta, y), rtol=1e-12)
    assert family.latent_dim == 3 and family.finite and not family.countable
    np.testing.assert_array_equal(family.decode(family.encode([2, 0, 1])), [2, 0, 1])


def test_two_classes_are_logistic():
    eta = np.random.default_rng(0).normal(size=(6, 2))
    y = np.eye(2)[[0, 1, 1, 0, 1, 0]]
    margin = np.where(y[:, 0] == 1, 1.0, -1.0) * (eta[:, 0] - eta[:, 1])
    np.testing.assert_allclose(Categorical().log_prob(eta, y), -np.log1p(np.exp(-margin)), rtol=1e-13)


def test_multinomial_totals_trials_and_constant():
    family, eta, y = CASES["multinomial"].bound()
    assert family.countable and family.latent_dim == 3
    U = family.U(eta, y)
    np.testing.assert_array_equal(U.rho, y.sum(axis=1))
    np.testing.assert_array_equal(U.gap, 0.0)
    np.testing.assert_allclose(U.dot(np.ones_like(eta)), 0.0, atol=1e-14)
    N = np.arange(5.0)
    np.testing.assert_allclose(family.moment(eta, N), N[:, None] * family.moment(eta))
    np.testing.assert_allclose(family.constant(y), y.sum(axis=0, keepdims=True) / y.sum())
    # a prediction in counts is as good as one in proportions
    p = family.moment(eta)
    np.testing.assert_allclose(family.loss(y, 7 * p), family.loss(y, p), rtol=1e-12)
    draws = family.sample(eta, np.random.default_rng(0), y.sum(axis=1))
    np.testing.assert_array_equal(draws.sum(axis=1), y.sum(axis=1))


@pytest.mark.parametrize(
    "family, y, message",
    [
        (Categorical(), [0, 0, 0], "at least two classes; got \\[0\\]"),
        (Categorical(n_classes=3), [0, 1, 3], "row 2 is 3"),
        (Categorical(), [0.5, 1], "class codes"),
        (Multinomial(), [[1, 2], [0, 0]], "positive total; row 1"),
        (Multinomial(), [[1, 2], [0.5, 1]], "negative or fractional"),
        (Multinomial(), [1, 2, 3], "one column per category"),
        (VonMisesFisher(), [[1.0, 0.0], [0.5, 0.5]], "row 1 has length 0.707107"),
        (VonMisesFisher(), [[0.0, np.nan]], "NaN"),
        (VonMises(), [[0.1, 0.2]], "one number per row"),
        (VonMises(units="turns"), [0.1], "'radians', 'degrees', 'hours' or a tuple"),
        (VonMises(units=(3.0, 1.0)), [0.1], "low < high"),
        (Dirichlet(), [[0.5, 0.6]], "closure=True"),
        (Dirichlet(), [[0.5, 0.5], [0.0, 1.0]], 'row 1.*zeros="additive".*zeros="squeeze"'),
        (Dirichlet(), [[-0.5, 1.5]], "negative parts"),
        (Dirichlet(link="log"), [[0.5, 0.5]], "link must be 'softplus' or 'exp'; got 'log'"),
        (Dirichlet(zeros="drop"), [[0.5, 0.5]], "zeros must be 'error', 'additive' or 'squeeze'"),
        (Dirichlet(zeros="additive", zeros_epsilon=0.0), [[0.5, 0.5]], "zeros_epsilon must be a positive number"),
        (Dirichlet(closure=True), [[1.0, 2.0], [0.0, 0.0]], "row 1 is all zeros"),
        (Dirichlet(closure=True), [[1.0, -2.0]], "negative parts"),
    ],
)
def test_bad_input_is_named(family, y, message):
    with pytest.raises(ValueError, match=message):
        family.resolve(y)


def test_number_of_columns_is_fixed_by_the_data():
    for name in ("multinomial", "dirichlet", "von_mises_fisher"):
        family, _, _ = CASES[name].bound()
        with pytest.raises(ValueError, match="with 3 columns; got 2"):
            family.encode(np.array([[1.0, 0.0]]))
    with pytest.raises(ValueError, match="class codes"):
        CASES["categorical"].bound()[0].encode([3])
