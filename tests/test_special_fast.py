"""Tabulated and direct special functions against mpmath and the careful routes, and where one meets the other."""

from concurrent.futures import ThreadPoolExecutor

import mpmath as mp
import numpy as np
import pytest
from scipy.special import gammaln

from ggpm import families
from ggpm.families.special import BesselRatio, LogGamma1p, SoftplusTerms, length, log_gamma, softplus
from ggpm.families.special import bessel as tabulated_bessel
from ggpm.families.special.careful_bessel import CarefulRatio, careful_bessel_ratio, careful_log_bessel
from ggpm.families.special.mean_bessel import mean_log_bessel
from ggpm.families.special.tables import Table
from ggpm.families.special.truncated import (
    bin_masses,
    truncated_log_mass,
    truncated_log_mass_and_mean,
    truncated_mean_and_shrinkage,
    truncated_normal,
)

RTOL = 1e-10  # what is promised; measured errors are below 1e-13 unless said otherwise
JUMP = 1e-12
NUS = [0.0, 0.5, 1.5, 10.0, 100.0]


def worst(got, reference, floor=0.0):
    """Largest error relative to the larger of reference and floor."""
    pairs = zip(np.ravel(got).tolist(), reference, strict=True)
    return max(float(abs(mp.mpf(g) - r) / max(abs(r), mp.mpf(floor))) for g, r in pairs)


def cell_borders(cells):
    """Points just below, at and just above the borders of the cells of a table on [0, 1]."""
    inner = np.arange(1, cells) / cells
    return np.stack([np.nextafter(inner, 0), inner, np.nextafter(inner, 1)])


# ---- tables --------------------------------------------------------------------------------------------------
def test_a_table_is_continuous_exact_at_both_ends_and_cannot_be_changed():
    table = Table.of(lambda x: {"sin": np.sin(x), "exp": np.exp(-x)}, -1.0, 3.0, cells=80, degree=5)
    x = np.concatenate([[-1.0, 3.0], np.random.default_rng(0).uniform(-1, 3, 500)])
    np.testing.assert_allclose(table.at("sin", table.locate(x)), np.sin(x), rtol=0, atol=1e-12)
    np.testing.assert_allclose(table.at("exp", table.locate(x)), np.exp(-x), rtol=1e-12)
    below, _, above = -1.0 + 4.0 * cell_borders(80)
    for name in ("sin", "exp"):
        jump = table.at(name, table.locate(below)) - table.at(name, table.locate(above))
        assert np.abs(jump).max() < 5e-15
    with pytest.raises(ValueError, match="read-only"):
        table.coefficients["sin"][0, 0] = 1.0


def test_tables_are_the_same_from_every_thread():
    tabulated_bessel._table.cache_clear()
    k = np.linspace(0.0, 50.0, 1001)
    with ThreadPoolExecutor(4) as pool:
        values = list(pool.map(lambda _: BesselRatio(0.5, k).A, range(16)))
    assert all(np.array_equal(v, values[0]) for v in values)


# ---- Bessel functions ----------------------------------------------------------------------------------------
def bessel_reference(nu, k):
    with mp.workdps(80):
        nu, k = mp.mpf(nu), mp.mpf(float(k))
        below, above = mp.besseli(nu, k), mp.besseli(nu + 1, k)
        A = above / below
        slope = 1 - A**2 - (2 * nu + 1) * A / k
        bend = -2 * A * slope - (2 * nu + 1) * (slope / k - A / k**2)
        c1 = A / k
        rho = c1 - slope
        log = mp.log(mp.gamma(nu + 1) * (2 / k) ** nu * below) - k
        return A, 1 - A, c1, slope, rho, slope / c1, -rho / k, bend, log


FIELDS = (*CarefulRatio._fields, "log")


@pytest.mark.parametrize("nu", NUS)
def test_bessel_functions_against_mpmath(nu):
    rng = np.random.default_rng(0)
    c = nu + 2.0
    k = np.concatenate([np.logspace(-12, 12, 40), c * rng.uniform(0, 8, 30), c * np.exp(rng.uniform(-3, 6, 30))])
    reference = zip(*(bessel_reference(nu, v) for v in k))
    for name, expected in zip(FIELDS, reference, strict=True):
        assert worst(getattr(BesselRatio(nu, k), name), expected) < (1e-11 if name == "A_second" else 2e-13), name


@pytest.mark.parametrize("nu", NUS)
def test_bessel_functions_against_the_careful_routes_in_a_dense_sweep(nu):
    k = np.concatenate([np.linspace(0, 40 + 4 * nu, 4001)[1:], np.logspace(-300, 300, 1201)])
    fast, careful = BesselRatio(nu, k), careful_bessel_ratio(nu, k)._asdict()
    for name, expected in {**careful, "log": careful_log_bessel(nu, k)}.items():
        normal = np.abs(expected) > 1e-290  # below, float64 itself has fewer digits
        error = np.abs(getattr(fast, name)[normal] / expected[normal] - 1)
        assert error.max() < (1e-11 if nu > 10 else JUMP), name


@pytest.mark.parametrize("nu", NUS)
def test_bessel_functions_have_no_jumps_and_keep_their_order(nu):
    c = nu + 2.0
    s = cell_borders(tabulated_bessel._CELLS)
    below, at, above = (BesselRatio(nu, c / v - c) for v in s)
    for name in FIELDS:
        left, middle, right = (getattr(b, name) for b in (below, at, above))
        assert np.max(np.abs(left / middle - 1)) < JUMP and np.max(np.abs(right / middle - 1)) < JUMP, name
    k = np.linspace(0.0, 20 * c, 20001)
    assert np.all(np.diff(BesselRatio(nu, k).A) > 0) and np.all(np.diff(BesselRatio(nu, k).log) < 0)


@pytest.mark.parametrize("nu", NUS)
def test_bessel_functions_at_the_ends(nu):
    tiny = BesselRatio(nu, np.array([0.0, 5e-324, 1e-300]))
    limits = {"A": 0, "one_minus_A": 1, "c1": 0.5 / (nu + 1), "slope": 0.5 / (nu + 1), "rho": 0, "slope_over_c1": 1}
    for name, limit in {**limits, "c1_slope": 0, "A_second": 0, "log": 0}.items():
        np.testing.assert_allclose(getattr(tiny, name), limit, rtol=1e-14, atol=1e-299, err_msg=name)
    huge = BesselRatio(nu, np.array([1e300, 9.9e307, np.inf]))
    np.testing.assert_allclose(huge.A, 1.0, rtol=1e-15)
    np.testing.assert_allclose(huge.one_minus_A[:2], (nu + 0.5) / huge.k[:2], rtol=1e-13)
    expected = gammaln(nu + 1) + nu * np.log(2.0) - 0.5 * np.log(2 * np.pi) - (nu + 0.5) * np.log(huge.k[:2])
    np.testing.assert_allclose(huge.log[:2], expected, rtol=1e-13)
    assert huge.log[2] == -np.inf and all(getattr(huge, name)[2] < 1e-307 for name in ("c1", "slope", "rho"))
    lost = BesselRatio(nu, np.array([np.nan, 1.0]))
    for name in FIELDS:
        np.testing.assert_array_equal(np.isnan(getattr(lost, name)), [True, False])


# ---- gamma functions -----------------------------------------------------------------------------------------
GAMMA = {
    "value": lambda x: mp.loggamma(1 + x),
    "digamma": lambda x: mp.digamma(1 + x),
    "trigamma": lambda x: mp.polygamma(1, 1 + x),
    "tetragamma": lambda x: mp.polygamma(2, 1 + x),
    "excess": lambda x: x * x * mp.polygamma(1, x) - x,
}


@pytest.mark.parametrize("name", GAMMA)
def test_gamma_functions_against_mpmath(name):
    rng = np.random.default_rng(1)
    x = np.concatenate([np.logspace(-20.3, 20.3, 60), rng.uniform(0, 100, 60), rng.uniform(0, 2, 30)])
    with mp.workdps(90):
        reference = [GAMMA[name](mp.mpf(float(v))) for v in x]
        # the first two pass zero: their error is relative to the larger of them and one
        floor = 1.0 if name in ("value", "digamma") else 0.0
        assert worst(getattr(LogGamma1p(x), name), reference, floor) < 2e-14


@pytest.mark.parametrize("name", GAMMA)
def test_gamma_functions_have_no_jumps(name):
    s = cell_borders(log_gamma._CELLS)
    left, middle, right = (getattr(LogGamma1p(log_gamma._SCALE / v - log_gamma._SCALE), name) for v in s)
    size = np.maximum(np.abs(middle), 1.0 if name in ("value", "digamma") else 0.0)
    assert max(np.max(np.abs(left - middle) / size), np.max(np.abs(right - middle) / size)) < JUMP


def test_gamma_functions_at_the_ends():
    ends = LogGamma1p(np.array([0.0, 5e-324, 1e300, np.nan]))
    np.testing.assert_allclose(ends.digamma[:3], [-np.euler_gamma, -np.euler_gamma, 300 * np.log(10)], rtol=1e-14)
    np.testing.assert_allclose(ends.value[:3], [0.0, 0.0, 1e300 * (300 * np.log(10) - 1)], rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(ends.trigamma[:3], [np.pi**2 / 6, np.pi**2 / 6, 1e-300], rtol=1e-14)
    np.testing.assert_allclose(ends.excess[:3], [1.0, 1.0, 0.5], rtol=1e-14)
    assert all(np.isnan(getattr(ends, name)[3]) for name in GAMMA)


# ---- gamma functions of softplus and exp, as the Dirichlet has them ----------------------------------------------
SOFTPLUS = {
    "value": lambda e: mp.log1p(mp.exp(e)),
    "mirrored": lambda e: mp.log1p(mp.exp(-e)),
    "log": lambda e: mp.log(mp.log1p(mp.exp(e))),
    "slope": lambda e: 1 / (1 + mp.exp(-e)),
    "complement": lambda e: 1 / (1 + mp.exp(e)),
    "log_slope": lambda e: 1 / ((1 + mp.exp(-e)) * mp.log1p(mp.exp(e))),
}
ETA = np.concatenate([np.linspace(-700, 700, 57), np.linspace(-40, 40, 83), [-1e-12, 0.0, 1e-12], [5e-324, -5e-324]])


@pytest.mark.parametrize("name", SOFTPLUS)
def test_softplus_against_mpmath(name):
    with mp.workdps(700):  # exp(-700) beside one
        reference = [SOFTPLUS[name](mp.mpf(float(e))) for e in ETA]
        # log p passes zero at 0.54
        assert worst(getattr(SoftplusTerms(ETA), name), reference, 1e-2 if name == "log" else 0.0) < 2e-14


def test_softplus_bend_jumps_and_ends():
    eta = np.concatenate([np.linspace(-700, 700, 29), np.linspace(-30, 30, 41)])
    terms = SoftplusTerms(eta)
    with mp.workdps(1400):

        def bend(e):
            p, s = mp.log1p(mp.exp(e)), 1 / (1 + mp.exp(-e))
            return s * (1 - s) / p - (s / p) ** 2

        assert worst(terms.log_bend(terms.log_slope), [bend(mp.mpf(float(e))) for e in eta]) < 1e-13
    e = cell_borders(softplus._CELLS)
    for sign in (-1.0, 1.0):
        left, middle, right = (SoftplusTerms(sign * np.log(v)) for v in e)
        for name in SOFTPLUS:
            a, b, c = (getattr(t, name) for t in (left, middle, right))
            assert max(np.abs(a - b).max(), np.abs(c - b).max()) < JUMP, name
    ends = SoftplusTerms(np.array([-np.inf, np.inf, np.nan]))
    np.testing.assert_array_equal(ends.value, [0.0, np.inf, np.nan])
    np.testing.assert_array_equal(ends.slope, [0.0, 1.0, np.nan])
    np.testing.assert_array_equal(ends.log, [-np.inf, np.inf, np.nan])


def dirichlet_reference(link, eta, y):
    """log p and its gradient, in mpmath."""
    eta, y = [mp.mpf(float(v)) for v in eta], [mp.mpf(float(v)) for v in y]
    alpha = [mp.exp(e) if link == "exp" else mp.log1p(mp.exp(e)) for e in eta]
    J = [mp.exp(e) if link == "exp" else 1 / (1 + mp.exp(-e)) for e in eta]
    S = sum(alpha)
    log_p = mp.loggamma(S) + sum((a - 1) * mp.log(v) - mp.loggamma(a) for a, v in zip(alpha, y))
    return log_p, [j * (mp.log(v) - mp.digamma(a) + mp.digamma(S)) for j, v, a in zip(J, y, alpha)]


@pytest.mark.parametrize("link", ["softplus", "exp"])
def test_dirichlet_on_both_sides_of_the_border_to_careful_formulas(link):
    family = families.Dirichlet(link=link).resolve(np.array([[0.2, 0.3, 0.5]]))
    inverse = (lambda a: np.log(np.expm1(a))) if link == "softplus" else np.log
    rng = np.random.default_rng(2)
    rows = []
    for total in (63.9, 64.1):
        share = rng.dirichlet([3.0, 2.0, 1.0], size=3)
        rows.append(inverse(total * share))
    for least in (0.9e-5, 1.1e-5):
        rows.append(inverse(np.array([[2.0, 1.0, 3.0 * least], [20.0, 10.0, 30.0 * least]])))
    rows.append(rng.normal(0, 2, (8, 3)))
    eta = np.concatenate(rows)
    y = rng.dirichlet([2.0, 1.0, 1.0], size=len(eta))
    log_p, u = family.log_prob_and_u(eta, y)
    with mp.workdps(60):
        reference = [dirichlet_reference(link, e, v) for e, v in zip(eta, y)]
        assert worst(log_p, [r[0] for r in reference], 1.0) < 1e-12
        assert worst(u, [v for r in reference for v in r[1]], 1e-2) < RTOL
    np.testing.assert_allclose(family.log_prob(eta, y), log_p, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(family.u(eta, y), u)


def test_families_give_the_same_together_as_alone():
    # the joint methods share work, but not at the price of other numbers
    rng = np.random.default_rng(3)
    cases = {
        families.Dirichlet(): rng.dirichlet([2.0, 1.0, 1.0], size=30),
        families.VonMises(): rng.uniform(-3, 3, 30),
        families.VonMisesFisher(): np.eye(3)[rng.integers(0, 3, 30)],
        families.Beta(phi=5.0): rng.uniform(0.1, 0.9, 30),
        families.Beta(phi=500.0): rng.uniform(0.1, 0.9, 30),
        families.NegativeBinomial(phi=0.5): rng.poisson(300, 30).astype(float),
        families.Ordinal(phi=[-1.0, -0.9999, 1.0]): rng.integers(0, 4, 30).astype(float),
        families.Binomial(): rng.integers(1, 400, (30, 2)).astype(float),
    }
    for family, y in cases.items():
        family = family.resolve(y)
        eta = rng.normal(0, 3, (4, 30, family.latent_dim))
        encoded = family.encode(y)
        log_p, u = family.log_prob_and_u(eta, encoded)
        both_u, both_U = family.u_and_U(eta, encoded)
        np.testing.assert_allclose(log_p, family.log_prob(eta, encoded), rtol=1e-13)
        np.testing.assert_allclose(u, family.u(eta, encoded), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(both_u, u, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(both_U.dense(), family.U(eta, encoded).dense(), rtol=1e-12)


@pytest.mark.parametrize("count", [255.0, 256.0, 257.0, 258.0])
def test_counts_on_both_sides_of_the_border_to_careful_formulas(count):
    eta = np.linspace(-3.0, 12.0, 31)[:, None]
    y, rate = np.full(31, count), [mp.exp(mp.mpf(float(e))) for e in eta[:, 0]]
    with mp.workdps(50):
        c = mp.mpf(count)
        poisson = [c * mp.mpf(float(e)) - r - mp.loggamma(c + 1) for e, r in zip(eta[:, 0], rate)]
        assert worst(families.Poisson().log_prob(eta, y), poisson) < 1e-12
        r = mp.mpf(2)
        head = mp.loggamma(c + r) - mp.loggamma(r) - mp.loggamma(c + 1)
        other = [head + c * mp.log(m / (m + r)) + r * mp.log(r / (m + r)) for m in rate]
        assert worst(families.NegativeBinomial(phi=0.5).log_prob(eta, y), other) < 1e-12


def test_beta_on_both_sides_of_the_border_to_careful_formulas():
    eta, y = np.linspace(-20, 20, 41)[:, None], np.linspace(0.01, 0.99, 41)
    for phi in (63.999, 64.0, 64.001):
        with mp.workdps(50):
            reference = []
            for e, v in zip(eta[:, 0].tolist(), y.tolist()):
                mu, v = 1 / (1 + mp.exp(-mp.mpf(e))), mp.mpf(v)
                a, b = mu * mp.mpf(phi), (1 - mu) * mp.mpf(phi)
                log_beta = mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)
                reference.append((a - 1) * mp.log(v) + (b - 1) * mp.log(1 - v) - log_beta)
            assert worst(families.Beta(phi=phi).log_prob(eta, y), reference, 1.0) < 1e-12


# ---- the normal distribution on an interval ---------------------------------------------------------------------
def test_truncated_masses_against_mpmath_and_across_the_borders():
    middle = np.array([-35.0, -12.0, -10.3, -9.8, -3.0, -0.2, 0.0, 0.5, 2.0, 9.9, 10.1, 25.0])
    lo, hi, width = [], [], []
    for c in middle:
        for w in (1e-4, 0.0099, 0.0101, 0.1, 1.0, 2.0, 7.0):
            lo.append(c - w / 2)
            hi.append(c + w / 2)
            width.append(w)
        lo += [c, -np.inf]
        hi += [np.inf, c]
        width += [np.inf, np.inf]
    lo, hi, width = np.array(lo), np.array(hi), np.array(width)
    width = np.where(np.isinf(width), width, hi - lo)
    log_mass, mean = truncated_log_mass_and_mean(lo, hi, width)
    careful = truncated_normal(lo, hi, width)
    np.testing.assert_allclose(log_mass, careful.log_mass, rtol=1e-12, atol=0)
    np.testing.assert_allclose(mean, careful.mean, rtol=2e-12, atol=1e-13)
    np.testing.assert_allclose(truncated_log_mass(lo, hi, width), log_mass, rtol=1e-13)
    again, shrinkage = truncated_mean_and_shrinkage(lo, hi, width)
    np.testing.assert_array_equal(again, mean)
    np.testing.assert_allclose(shrinkage, careful.shrinkage, rtol=1e-11)
    with mp.workdps(400):  # beside one, the mass beyond 35 standard deviations

        def exact(a, b):
            a, b = mp.mpf(float(a)), mp.mpf(float(b))
            a, b = (-b, -a) if a + b > 0 else (a, b)
            return mp.log(mp.ncdf(b) - mp.ncdf(a))

        assert worst(log_mass, [exact(a, b) for a, b in zip(lo, hi)]) < RTOL
    lost, _ = truncated_log_mass_and_mean(np.array([np.nan, 0.0]), np.array([np.nan, 1.0]), np.array([1.0, 1.0]))
    np.testing.assert_array_equal(np.isnan(lost), [True, False])


@pytest.mark.parametrize("cuts", [[-1.0], [-1.2, 0.1, 0.9], [-1.0, -0.99, 0.0], [-1.0, -0.9901, 0.0]])
def test_masses_of_bins_in_either_tail(cuts):
    shift = np.array([-36.0, -12.0, -3.0, -1.0, 0.0, 0.05, 2.0, 11.0, 36.0])
    edges = np.concatenate([[-np.inf], cuts, [np.inf]])
    with mp.workdps(60):
        reference = []
        for m in shift.tolist():
            for a, b in zip(edges[:-1].tolist(), edges[1:].tolist()):
                a, b = mp.mpf(a) - mp.mpf(m), mp.mpf(b) - mp.mpf(m)
                a, b = (-b, -a) if a + b > 0 else (a, b)
                reference.append(mp.ncdf(b) - mp.ncdf(a))
        # the exponent of a density 36 standard deviations away is rounded to 1e-13
        assert worst(bin_masses(np.array(cuts), shift), reference) < 1e-12


def test_length_at_any_scale():
    x = np.array([[3.0, 4.0], [3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0], [5e-324, 0.0], [np.inf, 1.0]])
    np.testing.assert_allclose(length(x), [5.0, 5e200, 5e-200, 0.0, 5e-324, np.inf], rtol=1e-15)
    assert np.isnan(length(np.array([np.nan, 1.0])))


# ---- averages over a log-normal concentration ----------------------------------------------------------------
def mean_of_log_bessel(t, s):
    """E[log I_0(k) - k], its slope and curvature in t, log k ~ N(t, s^2), by mpmath's Bessel functions."""

    def g(x):
        k = mp.exp(x)
        A = mp.besseli(1, k) / mp.besseli(0, k)
        return mp.log(mp.besseli(0, k)) - k, k * (A - 1), k * (A - 1) + k**2 * (1 - A / k - A**2)

    if s == 0:
        return g(mp.mpf(t))
    step = mp.mpf(1) / 8  # exact: log I_0(e^x) has no singularity closer than pi/2 to the line
    nodes = [step * j for j in range(-72, 73)]
    weights = [mp.exp(-(z**2) / 2) for z in nodes]
    values = [g(t + s * z) for z in nodes]
    return [sum(w * v[i] for w, v in zip(weights, values)) / sum(weights) for i in range(3)]


@pytest.mark.parametrize("t", [-20.0, -14.0, -3.3, 0.0, 0.88, 2.7])
def test_mean_log_bessel_is_that_of_mpmath(t):
    """Largest t and s are such that mpmath can still answer."""
    for s in (0.0, 0.05, 0.7, 1.9):
        got = np.ravel(mean_log_bessel(np.array([[t]]), np.array([s])))
        with mp.workdps(60):
            want = mean_of_log_bessel(t, s)
        for value, reference, error in zip(got, want, (1e-10, 1e-9, 1e-7), strict=True):
            assert abs(value - float(reference)) < error, (s, reference)


def test_mean_log_bessel_meets_at_the_ends_of_its_tables():
    """In t, where the series take over, and in s, where wider normals are sums of two."""
    for t in (-14.0, 14.0):
        for s in (0.1, 1.0, 2.0):
            below, above = (mean_log_bessel(np.array([t + e]), np.array([s])) for e in (-1e-9, 1e-9))
            np.testing.assert_allclose(below, above, rtol=0, atol=2e-7)
    t = np.linspace(-13.0, 13.0, 53)[:, None]
    below, above = (mean_log_bessel(t, np.array([s])) for s in (2.0, np.nextafter(2.0, 3.0)))
    np.testing.assert_allclose(below, above, rtol=0, atol=1e-7)
    for s, (t_1, t_2) in ((300.0, (-700.0, 900.0)), (300.0, (-3.0, 3.0))):  # from here on a bend
        ends = (mean_log_bessel(np.array([[t_1], [t_2]]), np.array([x])) for x in (s, np.nextafter(s, 400.0)))
        for below, above, error in zip(*ends, (3e-8, 1e-10, 1e-11)):
            np.testing.assert_allclose(below, above, rtol=0, atol=error)
    # the heat equation, over both parts of the table in s
    for s in (0.5, 1.5, 2.5, 6.0):
        value = [mean_log_bessel(t, np.sqrt(np.array([s**2 + e])))[0] for e in (-1e-3, 1e-3)]
        np.testing.assert_allclose((value[1] - value[0]) / 1e-3, mean_log_bessel(t, np.array([s]))[2], atol=2e-6)


def test_mean_log_bessel_of_what_is_no_number_is_none():
    t = np.array([[np.nan, np.inf], [-np.inf, 0.0]])
    value, slope, _ = mean_log_bessel(t, np.array([0.5, 3.0]))
    assert np.isnan(value[0, 0]) and value[0, 1] == -np.inf and value[1, 0] == 0.0 and np.isfinite(value[1, 1])
    assert slope[0, 1] == -0.5 and slope[1, 0] == 0.0
