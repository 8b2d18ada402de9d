"""log p of families with several parameters, and of all wrappers, against textbooks with 40 digits, at the extremes.

Dispersions from 1e-6 to 1e6, latents of ±30. Also: derivatives are numbers there, and NumPy has nothing to say.
"""

import warnings

import mpmath as mp
import numpy as np
import pytest

from ggpm import families
from ggpm.families import (
    Beta,
    Censored,
    Gamma,
    Gaussian,
    Hurdle,
    InverseGaussian,
    LogNormal,
    NegativeBinomial,
    Poisson,
    VonMisesDirectionConcentration,
    Weibull,
    ZeroInflated,
    ZeroOneInflatedBeta,
)
from ggpm.families.between import BEYOND, between, least, masses, sides

PHI = (1e-6, 1e-2, 1.0, 50.0, 1e6)
LATENTS = (-30.0, -2.0, 0.3, 5.0, 30.0)
DIGITS = {"rtol": 1e-10, "atol": 1e-10}
MANY = 1e120  # a log p below this is none: `Weibull` stops to tell such ones apart


def mean(family, a):
    return mp.log1p(mp.exp(a)) if getattr(family, "link", "log") == "softplus" else mp.exp(a)


# log p(y | a) of scalar families; phi as the families have it
DENSITIES = {
    Poisson: lambda y, mu, phi, a: y * mp.log(mu) - mu - mp.loggamma(y + 1),
    NegativeBinomial: lambda y, mu, phi, a: (
        mp.loggamma(y + 1 / phi) - mp.loggamma(1 / phi) - mp.loggamma(y + 1)
        + y * mp.log(mu / (mu + 1 / phi)) - mp.log1p(mu * phi) / phi
    ),
    Gamma: lambda y, mu, phi, a: (mp.log(y / (mu * phi)) - y / mu) / phi - mp.log(y) - mp.loggamma(1 / phi),
    LogNormal: lambda y, mu, phi, a: -((mp.log(y) - a) ** 2) / (2 * phi) - mp.log(y) - mp.log(2 * mp.pi * phi) / 2,
    Weibull: lambda y, mu, phi, a: mp.log(phi / y) + phi * (mp.log(y) - a) - mp.exp(phi * (mp.log(y) - a)),
    InverseGaussian: lambda y, mu, phi, a: (
        -mp.log(2 * mp.pi * phi * y**3) / 2 - (y - mu) ** 2 / (2 * phi * mu**2 * y)
    ),
    Beta: lambda y, mu, phi, a: (
        mp.loggamma(phi) - mp.loggamma(phi / (1 + mp.exp(-a))) - mp.loggamma(phi / (1 + mp.exp(a)))
        + (phi / (1 + mp.exp(-a)) - 1) * mp.log(y) + (phi / (1 + mp.exp(a)) - 1) * mp.log(1 - y)
    ),
}  # fmt: skip


def log_density(family, a, y):
    phi = getattr(family, "phi", None)
    a, y, phi = mp.mpf(a), mp.mpf(float(y)), None if phi is None else mp.mpf(float(phi))
    return DENSITIES[type(family)](y, mean(family, a), phi, a)


def quiet(family, eta, y):
    """log p, where all derivatives are numbers and NumPy has nothing to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (family.u(eta, y), family.U(eta, y).dense(), family.U(eta, y, expected=True).dense()):
            assert np.all(np.isfinite(value))
        return family.log_prob(eta, y)


INNER = {
    "poisson": lambda phi: Poisson(),
    "poisson, softplus": lambda phi: Poisson(link="softplus"),
    "negative_binomial": NegativeBinomial,
    "negative_binomial, softplus": lambda phi: NegativeBinomial(phi, link="softplus"),
    "gamma": Gamma,
    "gamma, softplus": lambda phi: Gamma(phi, link="softplus"),
    "log_normal": LogNormal,
    "weibull": Weibull,
    "inverse_gaussian": InverseGaussian,
    "beta": Beta,
}


@pytest.mark.parametrize("outer", [Hurdle, ZeroInflated])
@pytest.mark.parametrize("inner", INNER)
def test_zeros_around_every_family(inner, outer):
    for phi in PHI if not inner.startswith("poisson") else PHI[:1]:
        base = INNER[inner](phi)
        counts = base.support.integer
        y = np.array([0.0, 1.0, 7.0, 300.0] if counts else [0.0, 1e-6, 0.4, 0.97, *([30.0] if inner != "beta" else [])])
        with mp.workdps(40):
            inside = {a: [log_density(base, a, v) if v or counts else -mp.inf for v in y] for a in LATENTS}
            for a in LATENTS:
                for b in (-30.0, 0.4, 30.0):
                    zero, other = -mp.log1p(mp.exp(-mp.mpf(b))), -mp.log1p(mp.exp(mp.mpf(b)))
                    none, *rest = inside[a]
                    gone = mp.log1p(-mp.exp(none)) if outer is Hurdle and counts else 0
                    if outer is ZeroInflated:
                        zero = mp.log(mp.exp(zero) + mp.exp(other + none))
                    want = np.array([float(v) for v in [zero, *(other + v - gone for v in rest)]])
                    got = quiet(outer(base), np.tile([a, b], (len(y), 1)), y)
                    there = want > -MANY
                    np.testing.assert_allclose(got[there], want[there], **DIGITS)
                    assert np.all(got[~there] < -MANY)


def test_shares_with_exact_zeros_and_ones():
    y = np.array([0.0, 1.0, 1e-6, 0.3, 0.97])
    for phi in PHI:
        family = ZeroOneInflatedBeta(phi)
        for a in LATENTS:
            for b, c in ((-30.0, 0.4), (0.4, 30.0), (30.0, -30.0), (-2.0, 1.5)):
                with mp.workdps(40):
                    total = mp.log(1 + mp.exp(mp.mpf(b)) + mp.exp(mp.mpf(c)))
                    want = [mp.mpf(b) - total, mp.mpf(c) - total]
                    want += [log_density(Beta(phi), a, v) - total for v in y[2:]]
                got = quiet(family, np.tile([a, b, c], (5, 1)), y)
                np.testing.assert_allclose(got, [float(v) for v in want], **DIGITS)


# ---- bounds --------------------------------------------------------------------------------------------------------
POSITIVE = np.array([[0.5, np.inf], [0.0, 2.0], [0.7, 1.9], [20.0, np.inf], [0.0, 0.01], [5.0, 6.0], [0.05, 40.0]])
REAL = np.where(POSITIVE == 0, -np.inf, POSITIVE - 1.0)
SHARES = np.array([[0.5, np.inf], [0.0, 0.4], [0.3, 0.7], [0.97, 1.0], [0.0, 0.01], [0.5, 0.51], [1e-9, 0.999]])
COUNTS = np.array([[1, np.inf], [-1, 3], [1, 4], [30, np.inf], [-1, 0], [5, 6], [0, 5000], [2000, np.inf]], dtype=float)


def normal(z):
    return mp.erfc(-z / mp.sqrt(2)) / 2, mp.erfc(z / mp.sqrt(2)) / 2


def weibull(z):
    e = mp.exp(min(z, 400))  # more than mpmath can take the exponential of, and beyond MANY
    return -mp.expm1(-e), mp.exp(-e)


def student(z, nu):
    tail = mp.betainc(nu / 2, mp.mpf("0.5"), 0, nu / (nu + z * z), regularized=True) / 2
    return (tail, 1 - tail) if z < 0 else (1 - tail, tail)


def inverse_gaussian(y, mu, phi):
    r = 1 / mp.sqrt(phi * y)
    (below, above), far = normal(r * (y / mu - 1)), mp.exp(2 / (phi * mu)) * normal(-r * (y / mu + 1))[0]
    return below + far, above - far


def gamma(x, k):
    return tuple(mp.gammainc(k, *ends, regularized=True) for ends in ((0, x), (x, mp.inf)))


def beta(y, p, q):
    return mp.betainc(p, q, 0, y, regularized=True), mp.betainc(q, p, 0, 1 - y, regularized=True)


def negative_binomial(k, mu, r):
    pair = (r, k + 1, 0, r / (r + mu)), (k + 1, r, 0, mu / (r + mu))
    return tuple(mp.betainc(*at, regularized=True) for at in pair)


# P(Y <= y) and P(Y > y)
TAILS = {
    Weibull: lambda f, y, a, phi: weibull(phi * (mp.log(y) - a)),
    LogNormal: lambda f, y, a, phi: normal((mp.log(y) - a) / mp.sqrt(phi)),
    Gamma: lambda f, y, a, phi: gamma(y / (phi * mean(f, a)), 1 / phi),
    Gaussian: lambda f, y, a, phi: normal((y - a) / mp.sqrt(phi)),
    InverseGaussian: lambda f, y, a, phi: inverse_gaussian(y, mp.exp(a), phi),
    Beta: lambda f, y, a, phi: beta(y, phi / (1 + mp.exp(-a)), phi / (1 + mp.exp(a))),
    Poisson: lambda f, y, a, phi: gamma(mean(f, a), y + 1)[::-1],
    NegativeBinomial: lambda f, y, a, phi: negative_binomial(y, mp.exp(a), 1 / phi),
    families.StudentT: lambda f, y, a, phi, b: student((y - a) * mp.exp(-b), phi),
    families.GaussianMeanScale: lambda f, y, a, phi, b: normal((y - a) * mp.exp(-b)),
    families.GammaMeanShape: lambda f, y, a, phi, b: gamma(y * mp.exp(b - a), mp.exp(b)),
    families.BetaMeanPrecision: lambda f, y, a, phi, b: TAILS[Beta](f, y, a, mp.exp(b)),
    families.NegativeBinomialMeanDispersion: lambda f, y, a, phi, b: negative_binomial(y, mp.exp(a), mp.exp(-b)),
}


def log_probability(family, eta, low, high):
    phi = np.ravel(family.phi)[0] if family.log_hyper.size else 1.0
    a, *more = (mp.mpf(float(v)) for v in eta)
    ends = [(mp.mpf(0), mp.mpf(1)), (mp.mpf(1), mp.mpf(0))]
    for k, (bound, there) in enumerate(((low, low > max(least(family), -BEYOND)), (high, high < family.support.high))):
        if there and np.isfinite(bound):
            try:
                ends[k] = TAILS[type(family)](family, mp.mpf(float(bound)), a, mp.mpf(float(phi)), *more)
            except (mp.libmp.NoConvergence, ValueError):
                return np.nan  # mpmath does not know
    (F_low, S_low), (F_high, S_high) = ends
    beyond = F_low + S_high
    mass = 1 - beyond if beyond < 0.5 else S_low - S_high if F_low > 0.5 else F_high - F_low
    if not mass > 0:  # 40 digits were not enough
        return np.nan
    return float(mp.log1p(-beyond) if beyond < 0.5 else mp.log(mass))


# Incomplete beta functions of parameters above 1e5 (Student's degrees of freedom too) take mpmath seconds: left
# out, as are the few rows of which it knows nothing
BOUNDED = {
    "weibull": ([Weibull(phi) for phi in PHI], POSITIVE),
    "log_normal": ([LogNormal(phi) for phi in PHI], POSITIVE),
    "gamma": ([Gamma(phi) for phi in PHI], POSITIVE),
    "gamma, softplus": ([Gamma(phi, link="softplus") for phi in PHI], POSITIVE),
    "gaussian": ([Gaussian(phi).resolve(np.zeros(2)) for phi in PHI], REAL),
    "inverse_gaussian": ([InverseGaussian(phi) for phi in PHI], POSITIVE),
    "beta": ([Beta(phi) for phi in PHI[:-1]], SHARES),
    "poisson": ([Poisson(), Poisson(link="softplus")], COUNTS),
    "negative_binomial": ([NegativeBinomial(phi) for phi in PHI], COUNTS),
    "student_t": ([families.StudentT(nu) for nu in (1.0, 4.0, 1e3)], REAL),
    "gaussian_mean_scale": ([families.GaussianMeanScale()], REAL),
    "gamma_mean_shape": ([families.GammaMeanShape()], POSITIVE),
    "beta_mean_precision": ([families.BetaMeanPrecision()], SHARES),
    "negative_binomial_mean_dispersion": ([families.NegativeBinomialMeanDispersion()], COUNTS),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_of_every_family(name):
    bases, bounds = BOUNDED[name]
    second = np.zeros(1) if bases[0].latent_dim == 1 else np.array([-30.0, np.log(1e-6), 0.4, np.log(1e3)])
    if name.startswith("negative"):  # its second is a dispersion, others' a precision or a scale
        second = -second
    known = []
    for base in bases:
        family = Censored(base)
        y = family.encode(bounds)
        for a in LATENTS[::2]:
            for b in second:
                eta = np.tile([a, b], (len(y), 1))[:, : base.latent_dim]
                with mp.workdps(40):
                    want = np.array([log_probability(base, eta[0], *row) for row in bounds])
                known += list(~np.isnan(want))
                got, there = quiet(family, eta, y), want > -MANY
                np.testing.assert_allclose(got[there], want[there], **DIGITS)
                assert np.all(got[want < -MANY] < -MANY)
    assert np.mean(known) > 0.9


WIDE = {
    families.StudentT(4.0): [[-3.0, 4.0], [-1.5, np.inf], [-0.2, 0.1]],
    families.InverseGaussian(0.4): [[0.01, 9.0], [0.1, np.inf], [0.9, 1.1]],
    Beta(3.0): [[0.02, 0.97], [0.1, np.inf], [0.5, 0.6]],
    NegativeBinomial(0.7): [[0, 12], [-1, 9], [2, 3]],
    families.GammaMeanShape(): [[0.01, 9.0], [0.1, np.inf], [0.9, 1.1]],
    families.BetaMeanPrecision(): [[0.01, 0.99], [0.1, np.inf], [0.4, 0.5]],
    families.NegativeBinomialMeanDispersion(): [[0, 12], [-1, 9], [2, 3]],
}


@pytest.mark.parametrize("base", WIDE, ids=repr)
def test_derivatives_by_what_lies_beyond_are_those_by_what_lies_between(base):
    """Two ways to the same: averages over the rows' own part of the support, and over the rest of it."""
    y = Censored(base).encode(np.array(WIDE[base], dtype=float))
    rng = np.random.default_rng(0)
    eta = 0.3 * rng.normal(size=(3, base.latent_dim))
    if base.latent_dim == 2 and "Beta" in repr(base):
        eta[:, 1] += 2.5  # of a U-shaped density much of what lies between is nearer to one than any float
    A = rng.normal(size=(3, base.latent_dim, base.latent_dim))
    V = A @ A.swapaxes(1, 2)
    low, high = y.T
    assert np.sum(masses(base, eta, low, high)[1] > 0.5) == 2
    for rows, found in sides(base, eta, low, high):
        [(_, inside)] = between(base, eta[rows], low[rows], high[rows])
        for name in ("u", "U", "log_prob_phi", "u_phi"):
            np.testing.assert_allclose(getattr(found, name)(), getattr(inside, name)(), rtol=1e-8, atol=1e-9)
        for one, two in zip(found.U_pullback(V[rows]), inside.U_pullback(V[rows])):
            np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-8)


# ---- angles --------------------------------------------------------------------------------------------------------
def test_direction_and_concentration():
    family, y = VonMisesDirectionConcentration(), np.array([0.1, -3.0, 1.6])
    for a, b in ((-30.0, 0.2), (0.3, -0.4), (30.0, 30.0), (0.0, 1e-9)):
        for c in (-30.0, np.log(1e-6), 0.4, 5.0, np.log(1e6), 30.0):
            with mp.workdps(60):
                length = mp.sqrt(1 + mp.mpf(a) ** 2 + mp.mpf(b) ** 2)
                theta = [mp.exp(mp.mpf(c)) * mp.mpf(v) / length for v in (a, b)]
                kappa = mp.sqrt(theta[0] ** 2 + theta[1] ** 2)
                if kappa < 1e5:
                    log_i0 = mp.log(mp.besseli(0, kappa))
                else:  # the series for large arguments, to 1e-20
                    series = 1 / (8 * kappa) + 1 / (16 * kappa**2) + 25 / (384 * kappa**3)
                    log_i0 = kappa - mp.log(2 * mp.pi * kappa) / 2 + series
                turned = [theta[0] * mp.cos(v) + theta[1] * mp.sin(v) for v in map(mp.mpf, y)]
                want = [v - log_i0 - mp.log(2 * mp.pi) for v in turned]
            got = quiet(family, np.tile([a, b, c], (3, 1)), y)
            np.testing.assert_allclose(got, [float(v) for v in want], **DIGITS)
