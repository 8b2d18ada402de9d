"""Families with many zeros, with exact zeros and ones, and rows of which only bounds are known."""

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from cases import dense_evidence
from ggpm import GGPRegressor, Laplace, Predictive, Variational, families, load, save
from ggpm.families import (
    Beta,
    Censored,
    Gamma,
    Hurdle,
    LogNormal,
    NegativeBinomial,
    Poisson,
    Weibull,
    ZeroInflated,
    ZeroOneInflatedBeta,
    right_censored,
)  # fmt: skip
from ggpm.families.between import BEYOND, Averages
from ggpm.families.curvature import Blocks, Diagonal
from ggpm.families.special.gamma import log_gamma_tails
from ggpm.families.tails import OneBound, Tails
from ggpm.kernels import resolve_kernel
from ggpm.sites.densities import log_expected_prob
from ggpm.testing import check_family

WITH_ZEROS = [
    Hurdle(Poisson()), Hurdle(NegativeBinomial(0.7)), Hurdle(Gamma(0.4)), Hurdle(LogNormal(0.3)),
    Hurdle(Poisson(link="softplus")), ZeroInflated(Poisson()), ZeroInflated(NegativeBinomial(0.7)),
    ZeroInflated(Beta(5.0)), ZeroOneInflatedBeta(4.0),
]  # fmt: skip
LIFETIMES = [Weibull(1.7), LogNormal(0.4), Gamma(0.3), Gamma(0.3, link="softplus")]
BOUNDS = np.array([[1.0, 1.0], [0.5, np.inf], [0.0, 2.0], [0.7, 1.9], [20.0, np.inf], [0.0, 0.01], [5.0, 6.0]])


# in which averages over what lies between the bounds stand for closed forms: bounds from all over the support
SHARES = np.array([[0.3, 0.3], [0.5, np.inf], [0.0, 0.4], [0.3, 0.7], [0.97, np.inf], [0.0, 0.01], [0.5, 0.51]])
COUNTS = np.array([[2, 2], [1, np.inf], [-1, 3], [1, 4], [30, np.inf], [0, np.inf], [5, 6]], dtype=float)
AVERAGED = {
    families.InverseGaussian(0.4): BOUNDS,
    Beta(6.0): SHARES,
    Poisson(): np.array([[2, 2], [1, np.inf], [-1, 3], [1, 4], [9, np.inf], [-1, 0], [5, 6]], dtype=float),
    NegativeBinomial(0.4): COUNTS,
    families.StudentT(4.0): np.where(BOUNDS == 0, -np.inf, BOUNDS - 1.0),
    families.GaussianMeanScale(): np.where(BOUNDS == 0, -np.inf, BOUNDS - 1.0),
    families.GammaMeanShape(): BOUNDS,
    families.BetaMeanPrecision(): SHARES,
    families.NegativeBinomialMeanDispersion(): COUNTS,
}
LAWS = {
    "BetaMeanPrecision": lambda e, f: stats.beta(np.exp(e[1]) * expit(e[0]), np.exp(e[1]) * expit(-e[0])),
    "NegativeBinomialMeanDispersion": lambda e, f: stats.nbinom(np.exp(-e[1]), 1 / (1 + np.exp(e[0] + e[1]))),
    "InverseGaussian": lambda e, f: stats.invgauss(f.phi * np.exp(e[0]), scale=1 / f.phi),
    "Beta": lambda e, f: stats.beta(f.phi * expit(e[0]), f.phi * expit(-e[0])),
    "Poisson": lambda e, f: stats.poisson(np.exp(e[0])),
    "NegativeBinomial": lambda e, f: stats.nbinom(1 / f.phi, 1 / (1 + f.phi * np.exp(e[0]))),
    "StudentT": lambda e, f: stats.t(f.phi, e[0], np.exp(e[1])),
    "GaussianMeanScale": lambda e, f: stats.norm(e[0], np.exp(e[1])),
    "GammaMeanShape": lambda e, f: stats.gamma(np.exp(e[1]), scale=np.exp(e[0] - e[1])),
    "Gaussian": lambda e, f: stats.norm(e[0], np.sqrt(f.phi)),
    "Weibull": lambda e, f: stats.weibull_min(f.phi, scale=np.exp(e[0])),
    "LogNormal": lambda e, f: stats.lognorm(np.sqrt(f.phi), scale=np.exp(e[0])),
    "Gamma": lambda e, f: stats.gamma(1 / f.phi, scale=f.phi * np.exp(e[0])),
}
GAUSSIAN = families.Gaussian(0.3).resolve(np.zeros(2))
BOUNDED = [
    *((f, BOUNDS) for f in LIFETIMES),
    (GAUSSIAN, np.where(BOUNDS == 0, -np.inf, BOUNDS - 1.0)),
    *AVERAGED.items(),
]


def usual(base):
    """Latents to begin from: where shares pile up at one much lies nearer to it than any float, 4e-6 of an average."""
    return np.array([0.0, 2.5]) if isinstance(base, families.BetaMeanPrecision) else 0.0


def name_of(family):
    return repr(family)


@pytest.mark.parametrize(
    "family",
    [*WITH_ZEROS, *map(Censored, LIFETIMES), Hurdle(Weibull(1.7)), ZeroInflated(families.InverseGaussian(0.4)),
     *map(Censored, (families.Gaussian(0.3), Beta(6.0), Poisson(), NegativeBinomial(0.4), families.StudentT(4.0),
                     families.GaussianMeanScale(), families.GammaMeanShape(), families.BetaMeanPrecision(),
                     families.NegativeBinomialMeanDispersion()))],
    ids=name_of,
)  # fmt: skip
def test_a_family_keeps_its_promises(family):
    report = check_family(family)
    assert set(report.skipped) <= {"moments"}  # of a number of which bounds are given


# ---- densities -----------------------------------------------------------------------------------------------------
EXTREMES = (-30.0, -2.0, 0.3, 5.0, 30.0)


@pytest.mark.parametrize("outer", [Hurdle, ZeroInflated])
@pytest.mark.parametrize("phi", [None, 1e-6, 0.5, 1e6])
def test_counts_with_zeros_keep_their_digits(outer, phi):
    """Latents of ±30 and dispersions from 1e-6 to 1e6, against the textbook with 60 digits."""
    family = outer(Poisson() if phi is None else NegativeBinomial(phi))
    y = np.array([0.0, 1.0, 7.0])
    for a in EXTREMES:
        for b in (-30.0, 0.4, 30.0):
            eta = np.tile([a, b], (3, 1))
            with mp.workdps(60):
                mu, p = mp.exp(mp.mpf(a)), 1 / (1 + mp.exp(-mp.mpf(b)))

                def log_f(k, mu=mu):
                    if phi is None:
                        return k * mp.log(mu) - mu - mp.loggamma(k + 1)
                    r = 1 / mp.mpf(phi)
                    head = mp.loggamma(k + r) - mp.loggamma(r) - mp.loggamma(k + 1)
                    return head + k * mp.log(mu / (mu + r)) - r * mp.log1p(mu / r)

                zero = p if outer is Hurdle else p + (1 - p) * mp.exp(log_f(0))
                gone = mp.log1p(-mp.exp(log_f(0))) if outer is Hurdle else 0
                want = [float(mp.log(zero)), *(float(mp.log(1 - p) + log_f(k) - gone) for k in (1, 7))]
            np.testing.assert_allclose(family.log_prob(eta, y), want, rtol=1e-10, atol=1e-10)
            for value in (family.u(eta, y), family.U(eta, y).dense(), family.U(eta, y, expected=True).dense()):
                assert np.all(np.isfinite(value))


@pytest.mark.parametrize("phi", [0.05, 1.0, 30.0])
def test_lifetimes_are_those_of_scipy(phi):
    y, eta = np.array([1e-3, 0.4, 1.0, 3.0, 40.0]), np.full((5, 1), 0.3)
    for family, law in (
        (Weibull(phi), stats.weibull_min(phi, scale=np.exp(0.3))),
        (LogNormal(phi), stats.lognorm(np.sqrt(phi), scale=np.exp(0.3))),
    ):
        np.testing.assert_allclose(family.log_prob(eta, y), law.logpdf(y), rtol=1e-10)
        np.testing.assert_allclose(family.cdf(eta, y), law.cdf(y), rtol=1e-10)
        np.testing.assert_allclose(family.moment(eta[:1]), law.mean(), rtol=1e-10)
        np.testing.assert_allclose(family.spread(eta[:1]), law.var(), rtol=1e-8)
        tails = np.stack(family.log_tails(eta[:, 0], y))
        np.testing.assert_allclose(tails, [law.logcdf(y), law.logsf(y)], rtol=1e-9, atol=1e-12)


def test_tails_of_the_gamma_where_they_underflow():
    with mp.workdps(40):
        for k in (1e-3, 0.5, 7.3, 200.0):
            x = k * np.array([1e-30, 1e-3, 0.3, 1.0, 5.0, 100.0, 1e4])
            P = [float(mp.log(mp.gammainc(k, 0, v, regularized=True))) for v in x]
            Q = [float(mp.log(mp.gammainc(k, v, mp.inf, regularized=True))) for v in x]
            np.testing.assert_allclose(log_gamma_tails(k, x), [P, Q], rtol=1e-10, atol=1e-14)


# ---- derivatives that `check_family` does not look at: of bounds ----------------------------------------------------
@pytest.mark.parametrize("base, y", BOUNDED, ids=lambda v: repr(v) if not isinstance(v, np.ndarray) else "")
def test_probabilities_of_bounds_are_those_of_scipy(base, y):
    family = Censored(base)
    eta = np.linspace(-1, 1, 2 * len(y)).reshape(len(y), 2)[:, : family.latent_dim]
    found = family.log_prob(eta, family.encode(y))
    if getattr(base, "link", "log") != "log":
        return
    for value, e, (low, high) in zip(found, eta, y):
        law = LAWS[type(base).__name__](e, base)
        if low == high:
            want = law.logpmf(low) if base.support.integer else law.logpdf(low)
        else:
            want = np.log(law.sf(low) - law.sf(high) if law.cdf(low) > 0.5 else law.cdf(high) - law.cdf(low))
        assert value == pytest.approx(want, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("base, y", BOUNDED[:5], ids=lambda v: repr(v) if not isinstance(v, np.ndarray) else "")
def test_closed_forms_of_bounds_are_averages(base, y):
    y = Censored(base).encode(y)[1:]
    eta, V = np.linspace(-1, 1, len(y))[:, None], Diagonal(np.linspace(1, 2, len(y))[:, None])
    closed = Tails(base.line() if isinstance(base, families.Gaussian) else base)
    averages = Averages(base)
    for method, more in (("log_prob", ()), ("u", ()), ("log_prob_phi", ()), ("u_phi", ()), ("U_pullback", (V,))):
        pair = [getattr(f, method)(eta, y, *more) for f in (closed, averages)]
        for one, two in zip(*(p if isinstance(p, tuple) else (p,) for p in pair)):
            np.testing.assert_allclose(one, two, rtol=1e-7, atol=1e-9)  # 35 sd out phi loses digits in the closed form
    np.testing.assert_allclose(closed.U(eta, y).gamma, averages.U(eta, y).dense()[:, 0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "base, y", list(AVERAGED.items()), ids=lambda v: repr(v) if not isinstance(v, np.ndarray) else ""
)
def test_derivatives_of_averages_are_their_differences(base, y):
    family = Censored(base.resolve(y[:1, 0]))
    y = family.encode(y)
    D, h = family.latent_dim, 1e-3
    eta = np.linspace(-1, 1, 2 * len(y)).reshape(len(y), 2)[:, :D] + usual(base)
    V = Blocks(np.tile([[1.0, 0.3], [0.3, 0.7]], (len(y), 1, 1))[:, :D, :D])

    def slope(f):
        return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)

    def moved(t):
        return family.with_log_hyper(family.log_hyper + t)

    pulled, phi = family.U_pullback(eta, y, V)
    for j, one in enumerate(np.eye(D)):
        near = {"rtol": 1e-6, "atol": 1e-6}  # fourth-order differences of h = 1e-3
        np.testing.assert_allclose(slope(lambda t: family.log_prob(eta + t * one, y)), family.u(eta, y)[:, j], **near)  # noqa: B023
        hessian = slope(lambda t: family.u(eta + t * one, y))  # noqa: B023
        np.testing.assert_allclose(hessian, -family.U(eta, y).dense()[:, j], **near)
        third = slope(lambda t: np.sum(V.dense() * family.U(eta + t * one, y).dense(), axis=(1, 2)))  # noqa: B023
        np.testing.assert_allclose(third, pulled[:, j], **near)
    if family.log_hyper.size:
        np.testing.assert_allclose(
            slope(lambda t: moved(t).log_prob(eta, y)), family.log_prob_phi(eta, y)[:, 0], **near
        )
        np.testing.assert_allclose(slope(lambda t: moved(t).u(eta, y)), family.u_phi(eta, y)[..., 0], **near)
        of_phi = slope(lambda t: np.sum(V.dense() * moved(t).U(eta, y).dense()))
        np.testing.assert_allclose(of_phi, phi[0], **near)


@pytest.mark.parametrize("base", LIFETIMES, ids=name_of)
def test_derivatives_of_bounds_are_their_differences(base):
    family, y = Censored(base), BOUNDS
    eta, h, V = np.linspace(-1, 1, len(y))[:, None], 1e-3, Diagonal(np.ones((len(y), 1)))

    def slope(f):
        return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)

    def moved(t):
        return family.with_log_hyper(family.log_hyper + t)

    third, phi = family.U_pullback(eta, y, V)
    pairs = [
        (slope(lambda t: family.log_prob(eta + t, y)), family.u(eta, y)[:, 0]),
        (slope(lambda t: family.u(eta + t, y)[:, 0]), -family.U(eta, y).gamma[:, 0]),
        (slope(lambda t: family.U(eta + t, y).gamma[:, 0]), third[:, 0]),
        (slope(lambda t: moved(t).log_prob(eta, y)), family.log_prob_phi(eta, y)[:, 0]),
        (slope(lambda t: moved(t).u(eta, y)[:, 0]), family.u_phi(eta, y)[:, 0, 0]),
        (slope(lambda t: moved(t).U(eta, y).gamma.sum()), phi[0]),
    ]
    for found, wanted in pairs:  # fourth-order differences of h = 1e-3, of functions of size up to 1e3
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    if getattr(base, "link", "log") == "log":
        assert np.all(family.U(eta, y).gamma > 0)


@pytest.mark.parametrize("base", LIFETIMES[:3], ids=name_of)
def test_bounds_far_out_are_finite(base):
    family = Censored(base)
    for a in (-30.0, 30.0):
        eta = np.full((len(BOUNDS), 1), a)
        for value in (family.log_prob(eta, BOUNDS), family.u(eta, BOUNDS), family.U(eta, BOUNDS).gamma):
            assert np.all(np.isfinite(value))
        assert np.all(family.U(eta, BOUNDS).gamma >= -1e-6 * np.abs(family.u(eta, BOUNDS)))


# ---- evidence ------------------------------------------------------------------------------------------------------
def rows_of(family, n=12):
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (n, 1))
    if isinstance(family, Censored):
        some = next((rows for base, rows in AVERAGED.items() if type(base) is type(family.base)), BOUNDS)
        return X, some[np.arange(n) % len(some)]
    return X, family.support.example(rng, n)


SCALAR = [
    Poisson(), Poisson(link="softplus"), NegativeBinomial(0.7), Gamma(0.4), LogNormal(0.3), Weibull(1.7),
    families.InverseGaussian(0.4), Beta(5.0),
]  # fmt: skip
EVERY = [
    *map(Hurdle, SCALAR), *map(ZeroInflated, SCALAR), ZeroOneInflatedBeta(4.0),
    *map(Censored, [*LIFETIMES, families.Gaussian(0.3), *AVERAGED]),
]  # fmt: skip
QUICK = [*map(Hurdle, SCALAR[:4]), ZeroInflated(SCALAR[2]), ZeroOneInflatedBeta(4.0), *map(Censored, LIFETIMES[:3])]
RULES = {"laplace": Laplace(tol=1e-24), "variational": Variational(tol=1e-10)}


def in_time(name, family):
    """Whether a test of the evidence takes less than a second."""
    averaged = isinstance(family, Censored) and any(type(family.base) is type(base) for base in AVERAGED)
    return not averaged and (name == "laplace" or repr(family) in map(repr, QUICK))


@pytest.mark.parametrize(
    "family, rule",
    [
        pytest.param(family, rule, id=f"{family!r}-{name}", marks=[] if in_time(name, family) else [pytest.mark.slow])
        for family in EVERY
        for name, rule in RULES.items()
    ],
)
def test_the_gradient_of_the_evidence_is_its_differences(family, rule):
    dear = isinstance(family, Censored) and isinstance(
        family.base, families.BetaMeanPrecision | families.NegativeBinomialMeanDispersion
    )
    X, y = rows_of(family, 4 if dear else 12)  # the first four rows have a number, and every kind of bound
    family = family.resolve(y)
    D = family.latent_dim
    kernels = [ConstantKernel(0.8) * RBF(0.7), ConstantKernel(0.5) * Matern(1.1, nu=2.5), 0.4 * RBF(1.0)][:D]
    offset = np.zeros((len(X), D)) + usual(getattr(family, "base", None))
    evidence = dense_evidence(
        family, resolve_kernel(kernels if D > 1 else kernels[0], D, X), X, family.encode(y), offset, rule
    )
    _, gradient, a = evidence.evaluate()
    assert a.converged
    h = 1e-4
    for k, step in enumerate(h * np.eye(evidence.theta.size)):
        above, below = (evidence.at(evidence.theta + s * step).evaluate(gradient=False)[0] for s in (1, -1))
        assert abs(gradient[k] - (above - below) / (2 * h)) < 1e-5 * (1 + np.abs(gradient).max())


# ---- fits ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("inference", ["laplace", pytest.param("variational", marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", [f(b) for b in SCALAR for f in (Hurdle, ZeroInflated)], ids=name_of)
@pytest.mark.filterwarnings("ignore:the search ended")
def test_no_zeros_and_nothing_but_zeros(family, inference):
    X = np.linspace(0, 1, 15)[:, None]
    some = (1.0 + np.arange(15) % 3) / (4.0 if isinstance(family.base, Beta) else 1.0)
    for y in (np.zeros(15), some):
        model = GGPRegressor(clone(family), ConstantKernel() * RBF() + ConstantKernel(), inference=inference).fit(X, y)
        zero = np.exp(model.predict_dist(X).log_prob(np.zeros(15)))
        assert model.converged_ and np.all(zero > 0.7 if y is not some else zero < 0.3)


@pytest.mark.parametrize("inference", ["laplace", pytest.param("variational", marks=pytest.mark.slow)])
def test_shares_of_one_kind(inference):
    X = np.linspace(0, 1, 15)[:, None]
    for y in (np.zeros(15), np.ones(15), (1.0 + np.arange(15) % 3) / 4.0):
        model = GGPRegressor(ZeroOneInflatedBeta(), inference=inference).fit(X, y)
        zero, one = (np.exp(model.predict_dist(X).log_prob(np.full(15, v))) for v in (0.0, 1.0))
        assert model.converged_
        for p, there in ((zero, y[0] == 0), (one, y[0] == 1)):
            assert np.all(p > 0.7 if there else p < 0.3)


@pytest.mark.parametrize("inference", ["laplace", pytest.param("variational", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "base", [*LIFETIMES[:3], families.Gaussian(4.0), Poisson(), NegativeBinomial(0.4), families.InverseGaussian(0.4)],
    ids=name_of,
)  # fmt: skip
def test_all_rows_censored(base, inference):
    X = np.linspace(0, 1, 12)[:, None]
    kernel = ConstantKernel(1.0) * RBF(0.5) + ConstantKernel(1.0)
    model = GGPRegressor(Censored(base), kernel, inference=inference, optimizer=None)
    none = -np.inf if isinstance(base, families.Gaussian) else -1.0 if base.support.integer else 0.0
    below = {}
    for word, y in (
        ("an upper", right_censored(np.full(12, 5.0), np.zeros(12))),
        ("a lower", np.column_stack([np.full(12, none), np.full(12, 5.0)])),
    ):
        with pytest.warns(UserWarning, match=f"no row of y has {word} bound"):
            model.fit(X, y)
        assert model.converged_
        below[word] = model.predict_dist(X).cdf(np.full(12, 5.0))
    assert np.all(below["an upper"] < 0.6) and np.all(below["a lower"] > 0.7)


def test_known_rows_alone_are_the_family_itself():
    X = np.linspace(0, 1, 20)[:, None]
    y = np.random.default_rng(0).weibull(1.5, 20)
    plain, bounded = (GGPRegressor(f).fit(X, y) for f in (Weibull(), Censored(Weibull())))
    assert isinstance(bounded.family_, Weibull)
    # one has a closed form of its averages, the other nodes
    np.testing.assert_allclose(bounded.predict(X), plain.predict(X), rtol=1e-3)
    np.testing.assert_allclose(bounded.log_marginal_likelihood_value_, plain.log_marginal_likelihood_value_, rtol=1e-5)


def test_censoring_is_not_taken_for_an_end():
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (150, 1))
    time = rng.weibull(2.0, 150) * np.exp(1 + X[:, 0])
    limit = rng.exponential(4.0, 150)
    y = right_censored(np.minimum(time, limit), time <= limit)
    at = np.array([[0.2], [0.8]])
    bounded, naive = (GGPRegressor(f, inference="laplace").fit(X, v).predict(at) for f, v in (
        (Censored(Weibull()), y), (Weibull(), y[:, 0])))  # fmt: skip
    truth = np.exp(1 + at[:, 0]) * stats.weibull_min(2.0).mean()
    assert np.all(np.abs(bounded / truth - 1) < 0.2) and np.all(naive / truth < 0.8)


def test_a_detection_limit_of_real_numbers():
    """Half of the rows below a limit: the mean is that of the numbers, not of the limit in their place."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (60, 1))
    y = np.sin(5 * X[:, 0]) + 0.25 * rng.normal(size=60)
    limit = np.median(y)
    bounds = np.column_stack([np.where(y < limit, -np.inf, y), np.maximum(y, limit)])
    at = np.linspace(0.05, 0.95, 10)[:, None]
    truth, kernel, errors = np.sin(5 * at[:, 0]), ConstantKernel(1.0) * RBF(0.3), {}
    for name, family, given in (
        ("all", families.Gaussian(), y), ("limit", Censored(families.Gaussian()), bounds),
        ("replaced", families.Gaussian(), np.maximum(y, limit)),
        ("varying noise", Censored(families.GaussianMeanScale()), bounds),
    ):  # fmt: skip
        learned = "fmin_l_bfgs_b" if name != "varying noise" else None
        model = GGPRegressor(family, kernel, inference="laplace", optimizer=learned).fit(X, given)
        assert model.converged_
        errors[name] = np.sqrt(np.mean((model.predict(at) - truth) ** 2))
    assert errors["limit"] < 0.5 * errors["replaced"] and errors["varying noise"] < 0.5 * errors["replaced"]
    assert errors["limit"] < 4 * errors["all"]


@pytest.mark.parametrize("base", [Weibull(), families.Gaussian(), Poisson()], ids=name_of)
def test_densities_of_bounds_are_probabilities(base):
    rng = np.random.default_rng(0)
    X = np.linspace(0, 1, 30)[:, None]
    number = np.round(rng.weibull(1.5, 30) * 4) + 1.0
    bounds = np.column_stack([number, np.where(number < 5, number, np.inf)])
    kernel = ConstantKernel(1.0) * RBF(0.3) + ConstantKernel(4.0)
    model = GGPRegressor(Censored(base), kernel, optimizer=None).fit(X, bounds, sample_weight=1.0 + np.arange(30) % 2)
    dist, seen = model.predict_dist(X), number < 5
    found = model.log_predictive_density(X, bounds)
    np.testing.assert_allclose(found[seen], dist.log_prob(number)[seen], rtol=1e-9)
    np.testing.assert_allclose(found[~seen], np.log1p(-dist.cdf(number))[~seen], rtol=1e-5)
    np.testing.assert_allclose(model.log_predictive_density(X, number), dist.log_prob(number), rtol=1e-12)
    assert model.score(X, bounds) == pytest.approx(model.score(X[seen], number[seen]), rel=1e-12)
    with pytest.raises(ValueError, match="log_predictive_density"):
        model.score(X[~seen], bounds[~seen])
    # a row left out: a posterior of the others, with the sites of a refit
    loo = model.loo(neighbours=29)
    row = int(np.flatnonzero(~seen)[0])
    rest = np.delete(np.arange(30), row)
    again = GGPRegressor(Censored(model.family_), model.kernel_, optimizer=None)
    left_out = again.fit(X[rest], bounds[rest], sample_weight=1.0 + rest % 2)
    left_out = left_out.log_predictive_density(X[[row]], bounds[[row]])
    assert loo.pointwise[row] == pytest.approx(left_out[0], abs=1e-3)


@pytest.mark.parametrize(
    "family", [Censored(Gamma()), Censored(Beta()), Hurdle(Gamma()), ZeroOneInflatedBeta()], ids=name_of
)
def test_files_hold_them(family, tmp_path):
    X, y = rows_of(family, 14)
    model = GGPRegressor(family, inference="laplace", optimizer=None).fit(X, y, sample_weight=1.0 + np.arange(14) % 2)
    save(model, tmp_path / "model.ggpm")
    again = load(tmp_path / "model.ggpm")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert repr(again.fit_.evidence.family) == repr(model.fit_.evidence.family)
    value = again.log_marginal_likelihood(again.theta_)
    assert value == pytest.approx(model.log_marginal_likelihood(model.theta_), rel=1e-12)


def test_names():
    assert isinstance(families.get("zero_inflated_poisson").base, Poisson)
    assert isinstance(families.get("censored_log_normal").base, LogNormal)
    assert isinstance(families.get("zero_one_inflated_beta"), ZeroOneInflatedBeta)
    with pytest.raises(ValueError, match="hurdle, zero_inflated, censored"):
        families.get("hurdle_nothing")
    for base, reason in ((families.VonMises(), "no order"), (Hurdle(Gamma()), "exact numbers"),
                         (families.Bernoulli(), "classes")):  # fmt: skip
        with pytest.raises(TypeError, match=reason):
            GGPRegressor(Censored(base)).fit(np.zeros((2, 1)), [1, 2])
    with pytest.raises(TypeError, match="with one latent"):
        GGPRegressor(Hurdle(families.GaussianMeanScale())).fit(np.zeros((2, 1)), [1, 2])


def test_bounds_that_make_no_sense_are_named():
    for rows, words in (
        ([[1.0, 2.0], [3.0, 2.0]], r"lower bounds above.*row 1 is \[3.0, 2.0\].*right_censored"),
        ([[1.0, 2.0], [0.0, np.inf]], "no bound"), ([[1.0, 2.0], [np.inf, np.inf]], "no observation lies above"),
        ([[1.0, 2.0], [-2.0, -1.0]], "no observation lies below"), ([[1.0, np.nan]], "NaN"),
        ([[1.0, 2.0, 3.0]], r"\(1, 3\)"), ([[1.0, 2.0], [0.0, 0.0]], r"positive numbers.*row 1 is 0"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            Censored(Gamma()).encode(rows)
    for rows, words in (([[1, 2], [1.2, 1.7]], "no count lies.*row 1"), ([[1, 2], [1.5, 1.5]], "counts.*row 1 is 1.5")):
        with pytest.raises(ValueError, match=words):
            Censored(Poisson()).encode(rows)
    with pytest.raises(ValueError, match=r"row 3 is 1.2.*exactly 0 and 1 are taken"):
        ZeroOneInflatedBeta().encode([0, 1, 0.5, 1.2])


# ---- predictions ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", [*WITH_ZEROS[:3], WITH_ZEROS[6], WITH_ZEROS[8]], ids=name_of)
def test_answers_are_those_of_draws(family):
    """cdf, quantiles, pit and ranges with their jumps, within four standard errors of 20000 draws."""
    example = family.support.example(np.random.default_rng(0), 6)
    family = family.resolve(example)
    D = family.latent_dim
    mean, cov = np.array([[0.4, -0.5, 0.2][:D]] * 3), np.array([0.2 * np.eye(D) + 0.05] * 3)
    p = Predictive(family, mean, cov)
    draws = p.sample(20000, random_state=0)
    error = 4 * 0.5 / np.sqrt(20000)
    for y in (0.0, 0.4, 1.0, 3.0):
        if y > family.support.high or (family.support.integer and y % 1):
            continue
        np.testing.assert_allclose(p.cdf(np.full(3, y)), np.mean(draws <= y, axis=0), atol=error)
        np.testing.assert_allclose(p.probability(y, np.inf), np.mean(draws >= y, axis=0), atol=error)
    np.testing.assert_allclose(p.mean(), draws.mean(axis=0), atol=4 * draws.std() / np.sqrt(20000))
    np.testing.assert_allclose(p.var(), draws.var(axis=0), rtol=0.15)
    for q in (0.1, 0.5, 0.8, 0.95):
        found = p.quantile(q)
        assert np.all(np.mean(draws <= found, axis=0) >= q - error) and np.all(
            np.mean(draws < found, axis=0) <= q + error
        )
    some = Predictive(family, np.repeat(mean[:1], 800, axis=0), np.repeat(cov[:1], 800, axis=0))
    assert stats.kstest(some.pit(draws[:800, 0]), "uniform").pvalue > 1e-3
    zero = p.parameter("zero")
    low, high = zero.interval(0.9).T
    assert np.all((low < zero.mean()) & (zero.mean() < high) & (low > 0) & (high < 1))


def test_parameters_have_bands():
    family = families.GaussianMeanScale().resolve(np.zeros(2))
    p = Predictive(family, np.array([[1.0, -0.5]]), np.array([[[0.3, 0.1], [0.1, 0.2]]]))
    scale = p.parameter("scale")
    np.testing.assert_allclose(scale.mean(), np.exp(-0.5 + 0.1), rtol=1e-8)  # log-normal
    np.testing.assert_allclose(scale.median(), np.exp(-0.5), rtol=1e-3)
    np.testing.assert_allclose(
        scale.interval(0.9), [np.exp(-0.5 + np.sqrt(0.2) * stats.norm.ppf([0.05, 0.95]))], rtol=5e-3
    )
    np.testing.assert_allclose(p.parameter("mean").mean(), [1.0], rtol=1e-8)
    np.testing.assert_allclose(p.parameter("mean").interval(0.5), p.mean_interval(0.5), rtol=1e-10)
    with pytest.raises(ValueError, match="'mean', 'scale'"):
        p.parameter("noise")


@pytest.mark.parametrize("family", [Hurdle(Poisson()), Hurdle(NegativeBinomial(0.7)), Hurdle(Gamma(0.4))], ids=name_of)
def test_latents_of_a_hurdle_that_do_not_vary_together_are_averaged_one_by_one(family):
    """The product of two integrals is the integral over both, which a covariance of nearly nothing asks for."""
    mean = np.array([[0.3, -1.0], [2.0, 1.5], [-1.0, 0.0], [1.0, -3.0]])
    cov = np.array([np.diag(v) for v in ([0.1, 0.4], [2.0, 1.0], [0.5, 3.0], [0.0, 0.2])])
    nearly = cov + 1e-12 * np.array([[0, 1], [1, 0]])
    for y in (np.zeros(4), np.array([1.0, 9.0, 2.0, 0.0])):
        found, both = (log_expected_prob(family, mean, V, y) for V in (cov, nearly))
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, both, rtol=0, atol=1e-9)


def test_single_bounds_of_a_scale_that_varies_are_those_of_averages():
    """Closed forms against integrals over what lies beyond the bound; in tails, too, and where both sides meet."""
    family = families.GaussianMeanScale()
    rng = np.random.default_rng(0)
    eta = np.stack([rng.normal(size=40), rng.uniform(-2.5, 1.5, 40)], axis=1)
    bound = rng.normal(size=40) * 2
    y = np.where((np.arange(40) % 2 == 0)[:, None], np.stack([bound, np.full(40, BEYOND)], 1),
                 np.stack([np.full(40, -BEYOND), bound], 1))  # fmt: skip
    one, many = OneBound(family), Averages(family)
    np.testing.assert_allclose(one.log_prob(eta, y), many.log_prob(eta, y), rtol=1e-10, atol=1e-14)  # rounding of sums
    np.testing.assert_allclose(one.u(eta, y), many.u(eta, y), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(one.U(eta, y).dense(), many.U(eta, y).dense(), rtol=1e-7, atol=1e-9)
    A = rng.normal(size=(40, 2, 2))
    V = Blocks(A @ A.swapaxes(1, 2))
    pulled = [f.U_pullback(eta, y, V)[0] for f in (one, many)]
    np.testing.assert_allclose(*pulled, rtol=1e-6, atol=1e-7 * np.abs(pulled[1]).max())


@pytest.mark.parametrize("z", [-40.0, 0.3, 14.9, 15.1, 60.0, 1e5])
def test_the_normal_hazard_has_its_digits_in_the_tail(z):
    with mp.workdps(80):
        exact = [
            mp.diff(lambda t: mp.log(mp.erfc(t / mp.sqrt(2)) / 2), mp.mpf(z), k, h=mp.mpf(10) ** -15) for k in range(4)
        ]
    found = families.GaussianMeanScale().survival_profile(np.array([z]))
    for value, wanted, digits in zip(found, exact, (1e-13, 1e-12, 1e-11, 2e-7)):
        np.testing.assert_allclose(value[0], float(wanted), rtol=digits, atol=1e-300)


# ---- y without spread --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["von_mises", "von_mises_fisher"])
@pytest.mark.parametrize("rows", [2, 60])
@pytest.mark.filterwarnings("ignore:the search ended")
def test_directions_that_are_all_alike_are_forecast_as_that_one(name, rows):
    """Forecasts were any direction, after many seconds."""
    x, angle = np.random.default_rng(0).normal(size=(rows, 2)), np.full(rows, 1.0)
    y = np.stack([np.cos(angle), np.sin(angle), 0.0 * angle], axis=1) if name == "von_mises_fisher" else angle
    np.testing.assert_allclose(GGPRegressor(name).fit(x, y).predict(x), y, atol=1e-2)


@pytest.mark.parametrize("angle", [-0.2892, 1.0])
def test_one_direction_is_forecast_whatever_its_digits(angle):
    """The length of the mean of one row is one but for rounding, which gave latents of 1e16."""
    model = GGPRegressor("von_mises").fit([[0.0]], [angle])
    assert model.family_.latent_variance == 1.0 and model.converged_
    np.testing.assert_allclose(model.predict([[0.0]]), angle, rtol=1e-6)


@pytest.mark.parametrize("family", ["gaussian", "gamma"])
def test_a_constant_is_one_whatever_its_digits(family):
    """3.7 has a rounding error, 0.5 and 1 have none: standard deviations are the same, of y or relative to it."""
    x, found = np.arange(20.0)[:, None], []
    for value in (0.5, 1.0, 3.7):
        p = GGPRegressor(family).fit(x, np.full(20, value)).predict_dist(x[:1])
        np.testing.assert_allclose(p.mean(), value, rtol=1e-5)
        found.append(p.std()[0] / (value if family == "gamma" else 1.0))
        assert np.isfinite(p.interval(0.9)).all()
    np.testing.assert_allclose(found, found[0], rtol=1e-3)


def test_intervals_next_to_what_floats_tell_apart():
    """Spread of 1e-12 of y: Newton's steps are smaller than y's last digit, and ends are still numbers."""
    x, y = np.arange(20.0)[:, None], 1.0 + 1e-12 * np.random.default_rng(0).normal(size=20)
    ends = GGPRegressor("gaussian").fit(x, y).predict_dist(x).interval(0.9)
    assert np.all(np.abs(ends - 1.0) < 1e-11) and np.all(ends[:, 0] < ends[:, 1])
