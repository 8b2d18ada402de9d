"""Families of independent outputs: every one against SciPy, mpmath, differences and its own samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

from ggpm.families.base import Family
from ggpm.families.bernoulli import Bernoulli
from ggpm.families.beta import Beta
from ggpm.families.binomial import Binomial
from ggpm.families.curvature import Diagonal
from ggpm.families.gamma import Gamma
from ggpm.families.gaussian import Gaussian
from ggpm.families.inverse_gaussian import InverseGaussian
from ggpm.families.negative_binomial import NegativeBinomial
from ggpm.families.ordinal import Ordinal
from ggpm.families.poisson import Poisson
from ggpm.families.special.truncated import truncated_normal

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

EXACT = 1e-10  # what the families promise, relative to mpmath


# ---- densities in mpmath, as functions of eta, log_hyper and y ---------------------------------------------
def _mean(eta, link):
    return mp.exp(eta) if link == "log" else mp.log1p(mp.exp(eta))


def mp_binomial(family, eta, h, y):
    k, miss = (int(v) for v in (y if np.ndim(y) else (y, 1 - y)))
    # softplus by log1p: the probability of the near-certain side must keep its digits
    return mp.log(mp.binomial(k + miss, k)) - k * mp.log1p(mp.exp(-eta)) - miss * mp.log1p(mp.exp(eta))


def mp_poisson(family, eta, h, y):
    mu = _mean(eta, family.link)
    return y * mp.log(mu) - mu - mp.loggamma(y + 1)


def mp_negative_binomial(family, eta, h, y):
    mu, phi = _mean(eta, family.link), mp.exp(h[0])
    r = 1 / phi
    choose = mp.loggamma(y + r) - mp.loggamma(r) - mp.loggamma(y + 1)
    return choose + y * mp.log(mu / (r + mu)) - r * mp.log1p(phi * mu)


def mp_gamma(family, eta, h, y):
    mu, k = _mean(eta, family.link), mp.exp(-h[0])
    return k * mp.log(k / mu) - mp.loggamma(k) + (k - 1) * mp.log(y) - k * y / mu


def mp_inverse_gaussian(family, eta, h, y):
    mu, phi = _mean(eta, family.link), mp.exp(h[0])
    return -mp.log(2 * mp.pi * phi * y**3) / 2 - (y - mu) ** 2 / (2 * phi * mu**2 * y)


def mp_beta(family, eta, h, y):
    phi = mp.exp(h[0])
    a, b = phi / (1 + mp.exp(-eta)), phi / (1 + mp.exp(eta))
    norm = mp.loggamma(phi) - mp.loggamma(a) - mp.loggamma(b)
    return norm + (a - 1) * mp.log(y) + (b - 1) * mp.log1p(-y)


def mp_ordinal(family, eta, h, y):
    cuts = [-mp.inf, h[0]]
    for g in h[1:]:
        cuts.append(cuts[-1] + mp.exp(g))
    lo, hi = cuts[int(y)] - eta, ([*cuts, mp.inf])[int(y) + 1] - eta
    if lo + hi > 0:  # the side on which ncdf is small
        lo, hi = -hi, -lo
    return mp.log(mp.ncdf(hi) - mp.ncdf(lo))


# ---- the cases ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    name: str
    family: Family
    density: Callable[..., Any]
    points: list[tuple[float, Any]]
    """Ordinary and extreme (eta, y) for the comparison with mpmath."""
    dist: Callable[[Any, float], Any]
    """The frozen SciPy distribution at an eta."""

    @property
    def eta(self) -> np.ndarray:
        return np.array([[e] for e, _ in self.points])

    @property
    def y(self) -> np.ndarray:
        return np.array([y for _, y in self.points], dtype=float)

    @property
    def ordinary(self) -> tuple[np.ndarray, np.ndarray]:
        """A few draws at unremarkable latents."""
        eta = np.linspace(-1.1, 1.4, 6)[:, None]
        trials = np.full(6, 7.0) if self.family.countable else None
        return eta, self.family.sample(eta, np.random.default_rng(3), trials)

    @property
    def discrete(self) -> bool:
        return hasattr(self.dist(self.family, 0.0), "logpmf")


def _mu(family: Any, eta: float) -> float:
    return float(family.moment(np.array([eta])))


def _nbinom(f, eta):
    return stats.nbinom(1 / f.phi, 1 / (1 + f.phi * _mu(f, eta)))


def _gamma(f, eta):
    return stats.gamma(1 / f.phi, scale=_mu(f, eta) * f.phi)


def _invgauss(f, eta):
    return stats.invgauss(_mu(f, eta) * f.phi, scale=1 / f.phi)


def _beta(f, eta):
    return stats.beta(f.phi * _mu(f, eta), f.phi * (1 - _mu(f, eta)))


def _ordinal(f, eta):
    p = np.diff(stats.norm.cdf(np.concatenate([[-np.inf], f.phi, [np.inf]]) - eta))
    return stats.rv_discrete(values=(np.arange(p.size), p))


COUNT_POINTS = [(-50.0, 0), (-50.0, 3), (-4.0, 1), (0.3, 0), (0.3, 2), (1.0, 400), (13.8, 999000), (13.0, 40)]
COUNT_POINTS += [(50.0, 0), (50.0, 7)]
POSITIVE_POINTS = [
    (-50.0, 1e-21),
    (-50.0, 3.0),
    (-2.0, 0.1),
    (0.3, 1.2),
    (0.3, 1e-8),
    (7.0, 1100.0),
    (50.0, 4e21),
]
POSITIVE_POINTS += [(50.0, 2.5), (1.0, 1e6)]
UNIT_POINTS = [
    (-50.0, 1e-3),
    (-50.0, 0.9),
    (-3.0, 0.05),
    (-3.0, 1e-12),
    (0.2, 0.551),
    (0.2, 0.999),
    (4.0, 0.98),
]
UNIT_POINTS += [(50.0, 0.3), (50.0, 1 - 1e-12), (1.5, 1e-300), (13.193, 0.9999961253537991)]
SOFTPLUS_POINTS = [(-50.0, 3), (-13.0, 2), (-11.0, 1), (-1.0, 4), (2.0, 1), (50.0, 90)]
LEVEL_POINTS = [
    (-5.0, 0),
    (-5.0, 3),
    (-0.4, 0),
    (-0.4, 1),
    (-0.4, 2),
    (-0.4, 3),
    (-0.4, 4),
    (4.5, 1),
    (4.5, 4),
]

CASES = [
    Case(
        "bernoulli",
        Bernoulli(),
        mp_binomial,
        [(e, y) for e in (-50.0, -3.0, 0.2, 8.0, 50.0) for y in (0, 1)],
        lambda f, eta: stats.bernoulli(_mu(f, eta)),
    ),
    Case(
        "binomial",
        Binomial(),
        mp_binomial,
        [
            (-50.0, (0, 9)),
            (-50.0, (4, 5)),
            (0.3, (0, 1)),
            (0.3, (2, 0)),
            (1.0, (731000, 270000)),
            (50.0, (3, 2)),
        ]
        + [(-9.0, (120, 999880)), (12.0, (10**6, 3)), (-2.0, (90, 10))],
        lambda f, eta: stats.binom(7, _mu(f, eta)),
    ),
    Case(
        "poisson",
        Poisson(),
        mp_poisson,
        [p for p in COUNT_POINTS if p[1] < 1000],
        lambda f, eta: stats.poisson(_mu(f, eta)),
    ),
    *(
        Case(f"negative_binomial {phi}", NegativeBinomial(phi), mp_negative_binomial, COUNT_POINTS, _nbinom)
        for phi in (1e-9, 1e-5, 0.3, 1.0, 40.0, 1e5)
    ),
    Case(
        "negative_binomial softplus",
        NegativeBinomial(0.7, link="softplus"),
        mp_negative_binomial,
        SOFTPLUS_POINTS,
        _nbinom,
    ),
    *(Case(f"gamma {phi}", Gamma(phi), mp_gamma, POSITIVE_POINTS, _gamma) for phi in (1e-5, 0.2, 1.0, 20.0, 1e5)),
    Case("gamma softplus", Gamma(0.7, link="softplus"), mp_gamma, SOFTPLUS_POINTS, _gamma),
    *(
        Case(f"inverse_gaussian {phi}", InverseGaussian(phi), mp_inverse_gaussian, POSITIVE_POINTS, _invgauss)
        for phi in (1e-5, 0.3, 4.0, 1e5)
    ),
    Case(
        "inverse_gaussian softplus",
        InverseGaussian(0.3, link="softplus"),
        mp_inverse_gaussian,
        SOFTPLUS_POINTS,
        _invgauss,
    ),
    *(Case(f"beta {phi}", Beta(phi), mp_beta, UNIT_POINTS, _beta) for phi in (1e-3, 0.08, 3.0, 10.0, 3e4, 1e6)),
    Case("ordinal", Ordinal(phi=[-1.5, -0.25, 0.0, 2.0]), mp_ordinal, LEVEL_POINTS, _ordinal),
    Case("ordinal narrow", Ordinal(phi=[-1.0, -0.999, 0.3, 0.3001]), mp_ordinal, LEVEL_POINTS, _ordinal),
    Case("ordinal wide", Ordinal(phi=[-20.0, -2.0, 0.5, 9.0]), mp_ordinal, LEVEL_POINTS, _ordinal),
    Case("probit", Ordinal(phi=[0.3]), mp_ordinal, [p for p in LEVEL_POINTS if p[1] < 2], _ordinal),
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
# extreme dispersions are for mpmath; SciPy and quadrature are asked where they can answer
MILD = [c for c in CASES if c.family.phi is None or np.ndim(c.family.phi) or 0.1 < c.family.phi < 30]
mild = pytest.mark.parametrize("case", MILD, ids=lambda c: c.name)


def mp_hyper(family: Family) -> list[Any]:
    """`log_hyper` without the rounding of the logarithms."""
    if family.phi is None:
        return []
    if np.ndim(family.phi) == 0:
        return [mp.log(mp.mpf(family.phi))]
    cuts = [mp.mpf(float(c)) for c in family.phi]
    return cuts[:1] + [mp.log(b - a) for a, b in itertools.pairwise(cuts)]


def parts(family: Family, eta: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Everything that a family says of one point, through its public methods."""
    third, U_phi = family.U_pullback(eta, y, Diagonal(np.ones_like(eta)))
    return {
        "log_prob": family.log_prob(eta, y)[0],
        "u": family.u(eta, y)[0, 0],
        "U": family.U(eta, y).gamma[0, 0],
        "third": third[0, 0],
        "log_prob_phi": family.log_prob_phi(eta, y)[0],
        "u_phi": family.u_phi(eta, y)[0, 0],
        "U_phi": U_phi,
    }


@cases
def test_density_and_all_derivatives_against_mpmath(case):
    family = case.family
    wrong = []
    with mp.workdps(60):
        h0 = mp_hyper(family)
        for (e, y), eta, encoded in zip(case.points, case.eta, case.y, strict=True):
            exact = tuple(int(v) for v in y) if isinstance(y, tuple) else mp.mpf(y)

            def f(x, *h, exact=exact):
                return case.density(family, x, list(h), exact)

            def derivative(order, j=None, f=f, e=e):
                if j is None:
                    return mp.diff(lambda x: f(x, *h0), mp.mpf(e), order)
                return mp.diff(
                    lambda x, g: f(x, *h0[:j], g, *h0[j + 1 :]), (mp.mpf(e), h0[j]), (order, 1)
                )  # d^(order+1) / d eta^order d log_hyper_j

            p = len(h0)
            expected = {
                "log_prob": f(mp.mpf(e), *h0),
                "u": derivative(1),
                "U": -derivative(2),
                "third": -derivative(3),
                "log_prob_phi": [derivative(0, j) for j in range(p)],
                "u_phi": [derivative(1, j) for j in range(p)],
                "U_phi": [-derivative(2, j) for j in range(p)],
            }
            got = parts(family, eta[None], encoded[None])
            for name, value in expected.items():
                for j, (a, b) in enumerate(zip(np.atleast_1d(got[name]), np.atleast_1d(value), strict=True)):
                    # quantities below the smallest double have no digits to compare
                    if abs(mp.mpf(float(a)) - b) > EXACT * abs(b) + mp.mpf(10) ** -290:
                        wrong.append(f"{name}[{j}] at eta={e}, y={y}: {a!r}, exactly {mp.nstr(b, 17)}")
    assert not wrong, "\n".join(wrong)


@cases
def test_everything_is_finite_at_the_extremes(case):
    eta = np.array([-50.0, 50.0])[:, None, None] + np.zeros((2, len(case.points), 1))
    family, y = case.family, case.y
    values = [
        family.log_prob(eta, y),
        family.u(eta, y),
        family.U(eta, y).gamma,
        family.U(eta, y, expected=True).gamma,
        *family.U_pullback(eta, y, Diagonal(np.ones_like(eta))),
        *family.U_pullback(eta, y, Diagonal(np.ones_like(eta)), expected=True),
        family.log_prob_phi(eta, y),
        family.u_phi(eta, y),
        family.expansion(y),
        family.moment(eta),
        family.spread(eta),
        family.cdf(eta, y),
    ]
    assert all(np.all(np.isfinite(v)) for v in values)
    assert np.all(family.U(eta, y, expected=True).gamma >= 0)
    assert family.expansion(y).shape == (len(y), 1)


@mild
def test_density_and_cdf_against_scipy(case):
    eta, y = case.ordinary
    first = y[:, 0] if y.ndim == 2 else y  # successes of the binomial
    dists = [case.dist(case.family, e) for e in eta[:, 0]]
    log_prob = [(d.logpmf if case.discrete else d.logpdf)(v) for d, v in zip(dists, first, strict=True)]
    np.testing.assert_allclose(case.family.log_prob(eta, y), log_prob, rtol=1e-9, atol=1e-9)  # SciPy's own accuracy
    cdf = [d.cdf(v) for d, v in zip(dists, first, strict=True)]
    np.testing.assert_allclose(case.family.cdf(eta, y), cdf, rtol=1e-9)
    mean = [d.mean() for d in dists]
    var = [d.var() for d in dists]
    if isinstance(case.family, Ordinal):
        levels = np.arange(len(case.family.phi) + 1)
        p, cov = case.family.moment(eta), case.family.spread(eta)
        np.testing.assert_allclose(p @ levels, mean, rtol=1e-12)
        np.testing.assert_allclose(np.einsum("nij,i,j->n", cov, levels, levels), var, rtol=1e-9)
    else:
        trials = np.full(6, 7.0) if case.family.countable else None
        np.testing.assert_allclose(case.family.moment(eta, trials), mean, rtol=1e-12)
        np.testing.assert_allclose(case.family.spread(eta, trials), var, rtol=1e-9)


@mild
def test_derivatives_against_central_differences(case):
    family, (eta, y) = case.family, case.ordinary
    h = 1e-5
    V = Diagonal(np.ones_like(eta))

    def close(value, function):
        up, down = function(h), function(-h)
        # the quotient errs by h² = 1e-10 and by rounding/h = 1e-11, times the size of what is differenced
        size = np.max(np.abs(up)) + np.max(np.abs(down)) + 1.0
        np.testing.assert_allclose(value, (up - down) / (2 * h), rtol=1e-6, atol=1e-9 * size)

    close(family.u(eta, y)[:, 0], lambda s: family.log_prob(eta + s, y))
    close(-family.U(eta, y).gamma, lambda s: family.u(eta + s, y))
    for expected in (False, True):
        third, U_phi = family.U_pullback(eta, y, V, expected=expected)
        close(third, lambda s, e=expected: family.U(eta + s, y, expected=e).gamma)
        for j, unit in enumerate(np.eye(family.log_hyper.size)):

            def moved(s, unit=unit):
                return family.with_log_hyper(family.log_hyper + s * unit)

            close(U_phi[j], lambda s, e=expected: moved(s).U(eta, y, expected=e).gamma.sum())
            close(family.log_prob_phi(eta, y)[:, j], lambda s: moved(s).log_prob(eta, y))
            close(family.u_phi(eta, y)[:, 0, j], lambda s: moved(s).u(eta, y)[:, 0])


def _expectation(case: Case, e: float, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
    """Sum or integral of function(eta, y) p(y | eta) over the support."""
    family, dist = case.family, case.dist(case.family, e)
    lo, hi = dist.support()
    if case.discrete:
        y = np.arange(lo, min(hi, dist.ppf(1 - 1e-14) * 2 + 50) + 1)
        if family.countable:
            y = np.stack([y, 7 - y], axis=-1)
        eta = np.full((len(y), 1), e)
        return float(np.sum(function(eta, y) * np.exp(family.log_prob(eta, y))))

    def integrand(t: float, top: bool) -> float:
        y = np.array([1.0 - np.exp(t) if top else np.exp(t)])  # log scale: densities may have poles at the ends
        eta = np.array([[e]])
        return float((function(eta, y) * np.exp(family.log_prob(eta, y) + t))[0])

    split = dist.median()
    pieces = [(False, -600.0 if np.isinf(hi) else -300.0, np.log(split))]
    pieces.append((True, -36.0, np.log1p(-split)) if hi == 1 else (False, np.log(split), np.log(split) + 60.0))
    total = 0.0
    for top, a, b in pieces:
        edges = np.unique(np.concatenate([[a, b], np.clip(b - 2.0 ** np.arange(-3, 8), a, b)]))
        edges = np.unique(np.concatenate([edges, np.clip(a + 2.0 ** np.arange(-3, 8), a, b)]))
        for left, right in itertools.pairwise(edges):
            total += integrate.quad(integrand, left, right, args=(top,), epsabs=1e-11, epsrel=1e-11)[0]
    return total


@mild
@pytest.mark.parametrize("e", [-0.8, 0.9])
def test_density_sums_to_one_and_expected_curvature_is_the_expectation(case, e):
    family = case.family
    # the mass of Beta(3) within 2e-16 of 1, out of reach of the quadrature, is below 1e-12
    assert _expectation(case, e, lambda eta, y: np.ones(len(eta))) == pytest.approx(1.0, abs=1e-8)
    assert _expectation(case, e, lambda eta, y: family.u(eta, y)[:, 0]) == pytest.approx(0.0, abs=1e-6)
    info = _expectation(case, e, lambda eta, y: family.u(eta, y)[:, 0] ** 2)
    observed = _expectation(case, e, lambda eta, y: family.U(eta, y).gamma[:, 0])
    assert observed == pytest.approx(info, rel=1e-6)  # the information identity
    if type(family).information is not Ordinal.information:  # those who give their own
        y = case.ordinary[1][:1]
        own = family.U(np.array([[e]]), y, expected=True).gamma[0, 0]
        assert own == pytest.approx(info, rel=1e-6)


@mild
def test_samples_follow_the_cdf(case):
    family, n = case.family, 40_000
    eta = np.array([-0.7, 0.6])[:, None] * np.ones((n, 1, 1))
    trials = np.array([7.0, 12.0]) if family.countable else None
    y = family.sample(eta, np.random.default_rng(0), trials)
    if family.countable:
        np.testing.assert_array_equal(y.sum(axis=-1), np.broadcast_to(trials, (n, 2)))
        y = y[..., 0]
    assert y.shape == (n, 2)
    family.support.validate(y[:, 0] if not family.countable else np.stack([y[:, 0], 7 - y[:, 0]], axis=1))
    # P(Y <= median-ish value) by counting: five standard errors of a proportion
    for i, e in enumerate((-0.7, 0.6)):
        values = np.quantile(y[:, i], [0.1, 0.5, 0.9])
        rows = values if not family.countable else np.stack([values, trials[i] - values], axis=1)
        cdf = family.cdf(np.full((3, 1), e), rows)
        share = np.mean(y[:, i, None] <= values, axis=0)
        np.testing.assert_allclose(share, cdf, atol=5 * 0.5 / np.sqrt(n))


@cases
def test_node_axis_broadcasts(case):
    family, y = case.family, case.y
    eta = np.stack([case.eta, 0.5 * case.eta + 0.1, 0.0 * case.eta])
    V = Diagonal(np.ones_like(eta))
    for name, function in {
        "log_prob": lambda e, v: family.log_prob(e, y),
        "u": lambda e, v: family.u(e, y),
        "U": lambda e, v: family.U(e, y).gamma,
        "expected": lambda e, v: family.U(e, y, expected=True).gamma,
        "third": lambda e, v: family.U_pullback(e, y, v)[0],
        "third expected": lambda e, v: family.U_pullback(e, y, v, expected=True)[0],
        "log_prob_phi": lambda e, v: family.log_prob_phi(e, y),
        "u_phi": lambda e, v: family.u_phi(e, y),
        "cdf": lambda e, v: family.cdf(e, y),
        "moment": lambda e, v: family.moment(e),
        "spread": lambda e, v: family.spread(e),
    }.items():
        both = function(eta, V)
        for s in range(3):
            # sums over quadrature nodes may be taken in another order
            np.testing.assert_allclose(both[s], function(eta[s], Diagonal(V.gamma[s])), rtol=1e-14, err_msg=name)


@cases
def test_expansion_pullback_against_differences(case):
    family, y = case.family, case.y
    cotangent = np.random.default_rng(1).standard_normal((len(y), 1))
    got = family.expansion_pullback(y, cotangent)
    h = 1e-6
    for j, unit in enumerate(np.eye(family.log_hyper.size)):
        up, down = (family.with_log_hyper(family.log_hyper + s * unit).expansion(y) for s in (h, -h))
        slope = np.sum(cotangent * (up - down)) / (2 * h)
        # the points are at most 20 from zero: rounding/h = 1e-9 for each
        assert got[j] == pytest.approx(slope, rel=1e-7, abs=1e-7)


@mild
def test_loss_is_a_deviance(case):
    family, (_, y) = case.family, case.ordinary
    if isinstance(family, Ordinal):
        p = family.moment(np.zeros((6, 1)))
        np.testing.assert_allclose(family.loss(y, p), -2 * np.log(p[np.arange(6), y.astype(int)]))
        np.testing.assert_allclose(family.constant(y).sum(), 1.0)
        return
    mean = y[:, 0] / y.sum(axis=1) if y.ndim == 2 else y
    inner = (mean > 0) & ((mean < 1) | (not isinstance(family, Binomial | Beta)))
    prediction = np.linspace(0.2, 0.7, 6)
    loss = family.loss(y, prediction)
    assert np.all(loss > 0)
    np.testing.assert_allclose(family.loss(y[inner], mean[inner]), 0.0, atol=1e-14)
    constant = family.constant(y)[0]
    totals = [family.loss(y, np.full(6, constant * s)).sum() for s in (0.98, 1.0, 1.02)]
    assert totals[1] < min(totals[0], totals[2])  # the constant is the best constant
    if not isinstance(family, Beta):  # twice the fall of log p from its maximum, times the dispersion
        scale = family.phi if isinstance(family, Gamma | InverseGaussian) else 1.0
        if isinstance(family, Binomial):
            eta, best = np.log(prediction / (1 - prediction)), np.log(mean[inner] / (1 - mean[inner]))
        else:
            eta, best = (family._link.inverse(np.log(v)) for v in (prediction, mean[inner]))
        fall = family.log_prob(best[:, None], y[inner]) - family.log_prob(eta[inner, None], y[inner])
        np.testing.assert_allclose(loss[inner], 2 * scale * fall, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", [Poisson, NegativeBinomial, Gamma, InverseGaussian])
def test_unknown_link_is_named(family):
    with pytest.raises(ValueError, match=r"link must be one of .*'log'.*'softplus'.*; got 'logit'"):
        family(link="logit").resolve(np.array([1.0, 2.0]))


# ---- special cases against general ones --------------------------------------------------------------------
@pytest.mark.parametrize("r", [0.5, 3.0, 1e3, 1e12, 1e20])
def test_distribution_functions_of_very_many_counts(r):
    """Up to 2e10: the incomplete beta function by mpmath, and Poisson's with a normal correction where r is large."""
    family, k = NegativeBinomial(1.0 / r), 2e10
    for z in (-2.0, -0.5, 0.0, 1.0):
        mu = k * math.exp(z * math.sqrt(1.0 / r + 1.0 / k))
        with mp.workdps(30):
            if r < 1e4:
                want = mp.betainc(r, k + 1.0, 0, r / (r + mp.mpf(mu)), regularized=True)
            else:  # skewness (1 + 2 mu/r)/sqrt(mu (1 + mu/r)), by Edgeworth's first term
                sd = mp.sqrt(mu * (1 + mu / r))
                x = (k + 0.5 - mp.mpf(mu)) / sd
                want = mp.ncdf(x) - mp.npdf(x) * (x * x - 1) * (1 + 2 * mu / r) / sd / 6
        assert abs(float(family.cdf(np.array([[math.log(mu)]]), np.array([k]))[0]) - float(want)) < 1e-6


def test_negative_binomial_becomes_poisson():
    eta, y = np.array([[0.5], [3.0], [13.0]]), np.array([4.0, 11.0, 442000.0])
    V = Diagonal(np.ones((3, 1)))
    # the two differ by phi ((y - mu)² - y)/2, below 1e-14 here; Poisson's log p is a sum of terms up to
    # y log y = 6e6, so that only 1e-9 of it is exact
    nb, poisson = NegativeBinomial(1e-20), Poisson()
    np.testing.assert_allclose(nb.log_prob(eta, y), poisson.log_prob(eta, y), rtol=1e-9)
    np.testing.assert_allclose(nb.u(eta, y), poisson.u(eta, y), rtol=1e-11)
    np.testing.assert_allclose(nb.U(eta, y).gamma, poisson.U(eta, y).gamma, rtol=1e-13)
    np.testing.assert_allclose(nb.U_pullback(eta, y, V)[0], poisson.U_pullback(eta, y, V)[0], rtol=1e-13)
    np.testing.assert_allclose(nb.cdf(eta, y), poisson.cdf(eta, y), rtol=1e-9)
    np.testing.assert_allclose(nb.loss(y, np.exp(eta[:, 0])), poisson.loss(y, np.exp(eta[:, 0])), rtol=1e-8)


def test_bernoulli_is_one_trial_of_the_binomial():
    eta, y = np.linspace(-9, 9, 8)[:, None], np.tile([0.0, 1.0], 4)
    pairs = np.stack([y, 1 - y], axis=1)
    np.testing.assert_allclose(Bernoulli().log_prob(eta, y), Binomial().log_prob(eta, pairs), rtol=1e-14)
    np.testing.assert_array_equal(Bernoulli().u(eta, y), Binomial().u(eta, pairs))
    assert Bernoulli().sample(eta, np.random.default_rng(0)).shape == (8,)
    assert Binomial().sample(eta, np.random.default_rng(0)).shape == (8, 2)
    np.testing.assert_array_equal(Bernoulli().expansion(y), np.zeros((8, 1)))


def test_truncated_normal_moments_over_widths_and_tails():
    # cumulants from the textbook ratios at 150 digits, where their cancellation does no harm
    lo, width = np.meshgrid([0.0, 0.4, 3.0, 4.5, 11.0, 30.0, 60.0], [1e-6, 1e-3, 0.1, 0.8, 1.9, 2.3, 9.0])
    lo = np.concatenate([lo.ravel(), lo.ravel() - width.ravel() * 0.45])
    width = np.tile(width.ravel(), 2)
    hi = lo + width
    got = truncated_normal(lo, hi, hi - lo)
    with mp.workdps(150):
        for i, (a, b) in enumerate(zip(lo, hi, strict=True)):
            a, b = mp.mpf(float(a)), mp.mpf(float(b))
            P, na, nb = mp.ncdf(-a) - mp.ncdf(-b), mp.npdf(a), mp.npdf(b)
            m = (na - nb) / P
            var = 1 + (a * na - b * nb) / P - m**2
            k3 = ((a * a - 1) * na - (b * b - 1) * nb) / P + 3 * m * (1 - var) - m**3
            exact = [mp.log(P), m, 1 - var, k3, nb / P, nb / P * (b - m), nb / P * ((b - m) ** 2 - var)]
            values = [got.log_mass[i], got.mean[i], got.shrinkage[i], got.cumulant3[i], *got.upper[:, i]]
            for value, e in zip(values, exact, strict=True):
                assert abs(mp.mpf(float(value)) - e) <= EXACT * abs(e), (float(a), float(b))


# ---- ordinal -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.family, Ordinal)], ids=lambda c: c.name)
def test_ordinal_is_exact_fifty_sd_into_either_tail(case):
    # textbook ratios at 900 digits, where their cancellation does no harm: exp(-60²/2) is 1e-782
    family = case.family
    J = len(family.phi) + 1
    wrong = []
    for e in (-50.0, -31.0, -7.0, 0.8, 8.0, 29.0, 50.0):
        for j in range(J):
            eta, y = np.array([[e]]), np.array([float(j)])
            got = parts(family, eta, y)
            with mp.workdps(900):
                cuts = [mp.mpf(float(c)) for c in family.phi]
                lo, hi = ([-mp.inf, *cuts][j] - mp.mpf(e), [*cuts, mp.inf][j] - mp.mpf(e))
                P = mp.ncdf(hi) - mp.ncdf(lo)
                (n0, n1, n2), (m0, m1, m2) = (
                    [0 if mp.isinf(z) else z**k * mp.npdf(z) / P for k in range(3)] for z in (lo, hi)
                )
                l1 = n0 - m0
                l2 = n1 - m1 - l1**2
                l3 = n2 - n0 - m2 + m0 - 3 * l1 * l2 - l1**3
                own = [m0, m1 - m0 * l1, m2 - 2 * m1 * l1 + m0 * l1**2 - m0 * (1 + l2)]
                shift, gaps = [-l1, -l2, -l3], [b - a for a, b in itertools.pairwise(cuts)]
                phi = [
                    [s] + [g * (s if k < j else o if k == j else 0) for k, g in enumerate(gaps, 1)]
                    for s, o in zip(shift, own, strict=True)
                ]
                exact = {"log_prob": [mp.log(P)], "u": [l1], "U": [-l2], "third": [-l3]}
                exact |= {"log_prob_phi": phi[0], "u_phi": phi[1], "U_phi": [-v for v in phi[2]]}
                for name, values in exact.items():
                    for k, (a, b) in enumerate(zip(np.atleast_1d(got[name]), values, strict=True)):
                        # quantities below the smallest double have no digits to compare
                        if abs(mp.mpf(float(a)) - b) > EXACT * abs(b) + mp.mpf(10) ** -290:
                            wrong.append(f"{name}[{k}] at eta={e}, y={j}: {a!r}, exactly {mp.nstr(b, 17)}")
    assert not wrong, "\n".join(wrong)


def test_ordinal_probabilities_sum_to_one():
    for case in CASES:
        if isinstance(case.family, Ordinal):
            p = case.family.moment(np.linspace(-60, 60, 241)[:, None])
            np.testing.assert_allclose(p.sum(axis=-1), 1.0, rtol=0, atol=1e-14)


def test_ordinal_resolves_cut_points_and_levels():
    y = np.repeat([0, 1, 2], [20, 50, 30])
    family = Ordinal().resolve(y)
    assert Ordinal().phi is None and family.n_levels == 3 and family.learns_phi
    share = np.array([20.5, 50.5, 30.5])
    np.testing.assert_allclose(stats.norm.cdf(family.phi / np.sqrt(2)), np.cumsum(share)[:2] / share.sum())
    more = Ordinal(n_levels=5).resolve(y)
    assert more.phi.size == 4 and np.all(np.diff(more.phi) > 0)
    assert more.moment(np.zeros((2, 1))).shape == (2, 5)
    np.testing.assert_allclose(more.constant(y.astype(float)), [[0.2, 0.5, 0.3, 0.0, 0.0]])
    back = more.with_log_hyper(more.log_hyper)
    np.testing.assert_allclose(back.phi, more.phi, rtol=1e-13)
    assert more.log_hyper_bounds.shape == (4, 2)
    assert np.all(more.log_hyper_bounds[:, 0] < more.log_hyper)
    assert np.all(more.log_hyper < more.log_hyper_bounds[:, 1])
    held = Ordinal(phi=[-1.0, 1.0], phi_bounds="fixed").resolve(y)
    assert not held.learns_phi
    np.testing.assert_array_equal(held.log_hyper_bounds[:, 0], held.log_hyper_bounds[:, 1])


@pytest.mark.parametrize(
    "family, y, message",
    [
        (Ordinal(), [0, 0], "at least 2 levels"),
        (Ordinal(n_levels=2), [0, 1, 2], "level codes 0, 1 .. 1"),
        (Ordinal(phi=[1.0, 0.0]), [0, 1, 2], "ascending"),
        (Ordinal(phi=[0.0, 1.0], n_levels=4), [0, 1, 2], "3 cut points; got 2"),
        (Gaussian(phi=[1.0, 2.0]), np.zeros((4, 3)), "one for each of the 3 output"),
    ],
)
def test_settings_that_do_not_fit_are_named(family, y, message):
    with pytest.raises(ValueError, match=message):
        family.resolve(y)
