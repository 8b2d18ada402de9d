"""Distribution functions, quantiles, arcs and regions against brute force, from narrow to very wide latents."""

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.interpolate import CubicSpline
from scipy.special import betainc, expit, ndtr, ndtri
from scipy.stats import qmc

from ggpm import Predictive, families
from ggpm.families.special.adaptive import cholesky_root
from ggpm.prediction.angles import circular_tables
from ggpm.prediction.nodes import hermite, latent_nodes
from ggpm.prediction.parts import part_tables

VARIANCES = (0.01, 1.0, 25.0, 1e4)
LEAST = 1e-300  # draws of a part are not below it, quantiles may be
ONE_LATENT = {
    "poisson": families.Poisson(),
    "poisson, softplus": families.Poisson(link="softplus"),
    "negative_binomial": families.NegativeBinomial(phi=0.4),
    "gamma": families.Gamma(phi=0.3),
    "gamma, narrow": families.Gamma(phi=1e-4),
    "gamma, softplus": families.Gamma(phi=0.3, link="softplus"),
    "inverse_gaussian": families.InverseGaussian(phi=0.4),
    "beta": families.Beta(phi=6.0),
    "beta, at its ends": families.Beta(phi=0.3),
    "ordinal": families.Ordinal(phi=[-1.2, 0.1, 8.0]),
    "bernoulli": families.Bernoulli(),
}


def brute_cdf(family, mean, variance, y, points=60_001):
    """P(Y <= y) for one row by the sum over a grid of the latent, close to each other near the mean.

    The grid is cubic about the mean, so that it is dense for narrow steps there, and reaches eight standard deviations.
    """
    t = np.linspace(-2.0, 2.0, points)
    e = t**3 + 0.01 * t
    weights = np.exp(-0.5 * e * e) * (3 * t * t + 0.01)
    with np.errstate(over="ignore", divide="ignore"):
        return float(weights @ family.cdf((mean + np.sqrt(variance) * e)[:, None], y) / weights.sum())


def one(family, mean, variance):
    return Predictive(family, np.array([[mean]]), np.array([[[variance]]]))


@pytest.mark.parametrize("name", ONE_LATENT)
@pytest.mark.parametrize("variance", [1.0, 1e4, *(pytest.param(v, marks=pytest.mark.slow) for v in (0.01, 25.0))])
def test_one_latent_by_brute_force(name, variance):
    """The distribution function at the ends of the interval, which must have their probabilities."""
    family = ONE_LATENT[name]
    for mean in (-1.5, 0.4, 3.0):
        p = one(family, mean, variance)
        if family.finite:
            for k in range(2 if name == "bernoulli" else 4):
                y = np.array([float(k)])
                np.testing.assert_allclose(p.cdf(y)[0], brute_cdf(family, mean, variance, y), atol=5e-6)
            continue
        for q in (0.05, 0.5, 0.95):
            y = p.quantile(q)
            if not np.finfo(float).tiny < y[0] < 1e300 or (name.startswith("beta") and not 1e-300 < y[0] < 1 - 1e-12):
                continue  # beyond the floats, or next to the other end of the support
            F = brute_cdf(family, mean, variance, y)
            if not family.support.integer:
                # 1e-4 of the spread of a normal variable is 3e-5 of probability at 5 %
                np.testing.assert_allclose(F, q, atol=3e-5, err_msg=f"{mean} {q}")
                np.testing.assert_allclose(p.cdf(y)[0], F, atol=1.5e-5)
                continue
            if y[0] > 1e6:  # a step of one count is smaller than the rounding of these
                np.testing.assert_allclose(F, q, atol=3e-5)
                continue
            assert q - 5e-6 <= F, (mean, q, y, F)
            assert y[0] == 0 or brute_cdf(family, mean, variance, y - 1) < q + 5e-6


@pytest.mark.parametrize("name", ["poisson", "gamma", "beta", "inverse_gaussian", "negative_binomial"])
def test_quantiles_of_many_rows_are_those_of_few(name):
    """The surface that rows share is a start and no more."""
    rng = np.random.default_rng(0)
    m = 1500
    mean, cov = 2 * rng.normal(size=(m, 1)), rng.uniform(0.001, 2.0, (m, 1, 1)) ** 2
    many = Predictive(ONE_LATENT[name], mean, cov).interval(0.9)
    few = np.concatenate(
        [Predictive(ONE_LATENT[name], mean[i : i + 50], cov[i : i + 50]).interval(0.9) for i in (0, 600)]
    )
    got = np.concatenate([many[:50], many[600:650]])
    if ONE_LATENT[name].support.integer:
        np.testing.assert_array_equal(got, few)
    else:
        np.testing.assert_allclose(got, few, atol=1e-4 * np.min(few[:, 1] - few[:, 0]), rtol=1e-4)


def test_counts_out_of_trials_by_brute_force():
    family, rng = families.Binomial(), np.random.default_rng(1)
    mean, sd, trials = rng.normal(size=40), rng.uniform(0.05, 3.0, 40), rng.integers(1, 200, 40).astype(float)
    p = Predictive(family, mean[:, None], sd[:, None, None] ** 2, trials)
    for q in (0.05, 0.5, 0.95):
        for i, k in enumerate(p.quantile(q)):
            upto, before = (
                brute_cdf(family, mean[i], sd[i] ** 2, np.array([v, trials[i] - v]), 20_001) for v in (k, k - 1)
            )
            assert upto >= q - 1e-6 and before < q + 1e-6
    interval = p.interval(0.9)
    np.testing.assert_array_equal(interval[:, 1], trials[:, None] - interval[:, 0, ::-1])


def test_randomised_transforms_lie_on_the_step_of_their_count():
    p = Predictive(families.Poisson(), np.full((200, 1), 0.7), np.full((200, 1, 1), 0.5))
    values = p.pit(np.full(200, 2))
    before, upto = p.cdf(np.full(200, 1))[0], p.cdf(np.full(200, 2))[0]
    assert before <= values.min() and values.max() <= upto
    np.testing.assert_allclose(np.ptp(values), upto - before, rtol=0.05)
    np.testing.assert_allclose(upto - before, np.exp(p.log_prob(np.full(200, 2)))[0], rtol=1e-6)
    # 0 has no count before it
    assert 0 <= p.pit(np.zeros(200)).min() < 0.02 * p.cdf(np.zeros(200))[0]


# ---- angles --------------------------------------------------------------------------------------------------------
LATENTS = {
    "known": ((4.0, 1.0), 1e-12 * np.eye(2)),
    "narrow": ((1.0, -0.5), 0.01 * np.eye(2)),
    "moderate": ((0.3, 0.2), np.array([[1.0, 0.4], [0.4, 0.6]])),
    "uniform": ((0.0, 0.0), np.eye(2)),
    "two directions": ((0.1, 0.0), np.array([[25.0, 0.0], [0.0, 0.04]])),
    "wide": ((1.0, 2.0), 25.0 * np.eye(2)),
    "concentrated": ((4000.0, 100.0), 100.0 * np.eye(2)),
    "long, correlated": ((2.0, 0.0), np.array([[100.0, 99.0], [99.0, 100.0]])),
    "long": ((5.0, 0.0), np.diag([1.0, 1e4])),
    "very wide": ((30.0, -40.0), 1e4 * np.eye(2)),
}


def polar_density(mean, cov, theta):
    """Predictive densities of angles by brute force in polar coordinates of the latent: directions times lengths.

    Directions are those of a fine grid that is dense where the Gaussian is seen from the origin, lengths a
    Gauss-Legendre rule within ten standard deviations of the ray's own Gaussian.
    """
    mean, P = np.asarray(mean), np.linalg.inv(cov)
    # equal steps in the direction of the whitened latent: Gaussians of any shape are round there
    root = np.linalg.cholesky(cov)
    turn = 2 * np.pi * (np.arange(1000) + 0.5) / 1000
    white = root @ np.stack([np.cos(turn), np.sin(turn)])
    directions = white / np.hypot(*white)
    steps = np.linalg.det(root) / np.sum(white**2, axis=0) * (2 * np.pi / 1000)  # d mu = det(root)/|root w|² d turn
    x, w = np.polynomial.legendre.leggauss(50)
    out = np.zeros(len(theta))
    for u, step in zip(directions.T, steps, strict=True):
        a, b = u @ P @ u, u @ P @ mean
        centre, sd = b / a, 1 / np.sqrt(a)
        low, high = max(0.0, centre - 10 * sd), max(centre + 10 * sd, 10 * sd)
        r = low + (high - low) * (x + 1) / 2
        away = r[:, None] * u - mean
        weight = 0.5 * (high - low) * w * r * np.exp(-0.5 * np.einsum("ri,ij,rj->r", away, P, away))
        weight *= step / (2 * np.pi * np.sqrt(np.linalg.det(cov)))
        keep = weight > 1e-9
        if keep.any():
            density = np.exp(families.VonMises().log_prob((r[keep, None] * u)[:, None, :], theta[None]))
            out += weight[keep] @ density
    return out


WIDE_ONES = ["long, correlated", *(pytest.param(name, marks=pytest.mark.slow) for name in
             ("moderate", "two directions", "wide", "long", "very wide"))]  # fmt: skip


@pytest.mark.parametrize("name", WIDE_ONES)
def test_distribution_functions_of_angles_by_brute_force(name):
    mean, cov = LATENTS[name]
    theta = np.linspace(-np.pi, np.pi, 1201)
    density = polar_density(mean, cov, theta)
    density[-1] = density[0]  # but for rounding
    F = CubicSpline(theta, density, bc_type="periodic").antiderivative()
    np.testing.assert_allclose(F(np.pi), 1.0, atol=2e-5)  # the reference itself
    at = np.arange(0, 1200, 97)
    p = Predictive(families.VonMises(), np.repeat([mean], len(at), 0), np.repeat([cov], len(at), 0))
    np.testing.assert_allclose(p.cdf(theta[at]), F(theta[at]) / F(np.pi), atol=3e-5)
    start, end = p.interval(0.9)[0]
    end = start + np.mod(end - start, 2 * np.pi)
    fine = np.linspace(-np.pi, np.pi, 20_001)
    mass = F(fine) / F(np.pi)
    two, mass = np.concatenate([fine[:-1], fine + 2 * np.pi]), np.concatenate([mass[:-1], mass + 1.0])
    np.testing.assert_allclose(np.interp(end, two, mass) - np.interp(start, two, mass), 0.9, atol=5e-5)
    ends = np.interp(mass[:20_000] + 0.9, mass, two)
    shortest = np.min(ends - two[:20_000])
    np.testing.assert_allclose(end - start, shortest, atol=1e-4 * shortest)


@pytest.mark.parametrize("name", LATENTS)
def test_arcs_have_their_level_and_are_the_shortest(name):
    mean, cov = LATENTS[name]
    p = Predictive(families.VonMises(), np.array([mean]), cov[None])
    (_, table), *_ = circular_tables(p)
    for level in (0.1, 0.5, 0.9, 0.99):
        start, end = table.shortest_arc(level)[0]
        assert 0 < end - start <= 2 * np.pi
        t = np.linspace(-np.pi, np.pi, 401)[:-1]
        one_table = [np.repeat(v, 400, axis=0) for v in (table.centre, table.scale, table.mean, table.series)]
        many = type(table)(*one_table)
        at = many.angle(t)
        F = many.at(t)[0]
        two, mass = np.concatenate([at, at + 2 * np.pi]), np.concatenate([F, F + 1])
        lengths = np.interp(F + level, mass, two) - at
        # straight lines between 400 points err by 1e-4 of the arc at most
        assert end - start <= lengths.min() * (1 + 3e-4)
        probability = table.between(np.array([start]), np.array([end]))[0]
        np.testing.assert_allclose(probability, level, atol=1e-8)


def test_a_uniform_density_has_arcs_of_its_level():
    p = Predictive(families.VonMises(), np.zeros((2, 2)), np.stack([1e-20 * np.eye(2), np.eye(2)]))
    start, end = p.interval(0.9).T
    np.testing.assert_allclose(np.mod(end - start, 2 * np.pi), 0.9 * 2 * np.pi, rtol=1e-5)  # nodes: 2e-5 at worst


def test_highest_density_of_angles_may_be_two_arcs():
    mean, cov = LATENTS["two directions"]
    p = Predictive(families.VonMises(units="degrees"), np.array([mean]), cov[None])
    region = p.highest_density(0.8)
    assert region.contains([0.0])[0] and region.contains([180.0])[0]
    assert not region.contains([90.0])[0] and not region.contains([270.0])[0]
    many = Predictive(p.family, np.repeat([mean], 2000, 0), np.repeat([cov], 2000, 0))
    inside = many.highest_density(0.8).contains(many.sample(None, 3)).mean()
    assert inside == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 2000))  # four standard errors


# ---- parts of vectors ------------------------------------------------------------------------------------------------
def fine_nodes(mean, cov, per_axis):
    x, w = hermite((per_axis,) * len(mean))
    return mean + x @ cholesky_root(cov[None])[0].T, w


@pytest.mark.parametrize("link", ["softplus", "exp"])
@pytest.mark.parametrize("variance", [0.01, 0.3, 1.0])
def test_parts_of_compositions_by_quadrature(link, variance):
    family = families.Dirichlet(link=link).resolve([[0.2, 0.3, 0.5]])
    mean = np.array([0.5, -0.7, 1.2])
    cov = variance * (0.7 * np.eye(3) + 0.3)
    p = Predictive(family, mean[None], cov[None])
    eta, w = fine_nodes(mean, cov, 24)
    interval = p.interval(0.9)[0]
    for q, y in zip((0.05, 0.95), interval.T, strict=True):
        F = w @ family.cdf(eta, y)
        np.testing.assert_allclose(F, q, atol=5e-5)
        np.testing.assert_allclose(p.cdf((y / y.sum())[None])[0], w @ family.cdf(eta, y / y.sum()), atol=5e-5)


@pytest.mark.parametrize(
    "mean, sd, correlation",
    [
        ((3.7, 2.6), (1.7, 0.7), 0.6),
        ((2.7, -1.6), (1.9, 0.12), 0.0),
        ((-1.5, 2.7), (0.1, 1.9), 0.0),
        ((2.4, -1.4, -0.3), (1.4, 0.25, 0.2), 0.0),
        ((-2.34, 4.0), (0.65, 0.95), 0.0),
        ((-1.99, 2.29), (0.58, 0.49), 0.29),
        ((3.21, 1.14), (0.65, 0.68), 0.0),
        ((4.4, -2.2, -1.9), (0.06, 0.31, 0.46), 0.0),
    ],
)
def test_ends_of_parts_next_to_a_bound_are_those_of_fine_grids(mean, sd, correlation):
    """Parts that are skewed: points far from their mass, nodes where the likelihood is narrower than at the mean."""
    d = len(mean)
    cov = np.outer(sd, sd) * ((1.0 - correlation) * np.eye(d) + correlation)
    assert off_of_ends(np.array(mean), cov, 61 if d == 2 else 31) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("d, rows, size", [(2, 400, 81), (3, 40, 35)])
def test_ends_of_random_parts_are_those_of_fine_grids(d, rows, size):
    """One in twenty of such rows was off by more than this with the nodes and the points of their tables alone."""
    rng = np.random.default_rng([d, 5])
    for _ in range(rows):
        mean, sd = rng.uniform(-3.0, 5.0, d), np.exp(rng.uniform(np.log(0.05), np.log(1.0), d))
        correlation = rng.choice([0.0, 0.6])
        cov = np.outer(sd, sd) * ((1.0 - correlation) * np.eye(d) + correlation)
        assert off_of_ends(mean, cov, size) < 1e-4, (mean, sd, correlation)


def off_of_ends(mean, cov, size):
    """How far ends of 90 % intervals are from those of a fine grid at most, in spreads of their part."""
    d = len(mean)
    family = families.Dirichlet().resolve(np.full((1, d), 1.0 / d))
    p = Predictive(family, mean[None], cov[None])
    axis = np.linspace(-7.0, 7.0, size)
    x = np.stack([values.ravel() for values in np.meshgrid(*[axis] * d)], axis=1)
    w = np.exp(-0.5 * np.sum(x * x, axis=1))
    x, w = x[w > 1e-13], w[w > 1e-13] / w.sum()
    eta = mean + x @ np.linalg.cholesky(cov).T
    spread, worst = np.sqrt(np.diag(p.var()[0])), 0.0
    for q, y in zip((0.05, 0.95), p.interval(0.9)[0].T, strict=True):
        inside = (y > 1e-200) & (y < 1.0 - 1e-12)  # else all that floats tell
        step = 1e-3 * np.minimum(spread, np.minimum(y, 1.0 - y))
        F, above, below = (w @ family.cdf(eta, value) for value in (y, y + step, y - step))
        with np.errstate(divide="ignore", invalid="ignore"):
            off = (F - q) * 2.0 * step / (above - below)
        worst = max(worst, np.max(np.abs(off / spread), where=inside, initial=0.0))
    return worst


@pytest.mark.parametrize("variance", [25.0, 1e4])
def test_parts_of_compositions_under_wide_latents_hold_their_share_of_draws(variance):
    family = families.Dirichlet().resolve([[0.2, 0.3, 0.5]])
    p = Predictive(family, np.array([[2.0, 0.0, -3.0]]), variance * np.eye(3)[None])
    draws = p.sample(400_000, 1)[:, 0]
    low, high = p.interval(0.6)[0].T
    error = 4 * np.sqrt(0.2 * 0.8 / len(draws)) + 1e-4
    assert np.all(np.mean(draws < low, axis=0) <= 0.2 + error) and np.all(
        np.mean(draws <= np.maximum(low, LEAST), axis=0) >= 0.2 - error
    )
    assert np.all(np.mean(draws < high, axis=0) <= 0.8 + error) and np.all(
        np.mean(draws <= high, axis=0) >= 0.8 - error
    )


def shifted_shapes(eta, j):
    """Parameters of the beta variable of a part; of very large ones their ratio is all that counts."""
    a, b = eta[:, j], np.logaddexp.reduce(np.delete(eta, j, axis=1), axis=1)
    less = np.maximum(np.minimum(a, b) - 22.0, 0.0)
    return np.exp(np.maximum(a - less, -600.0)), np.exp(np.maximum(b - less, -600.0))


WIDE_CASES = [(3, 25.0), (5, 9.0), *(pytest.param(*c, marks=pytest.mark.slow) for c in
              ((3, 4.0), (3, 1e4), (2, 100.0), (4, 2.0), (6, 36.0), (10, 4.0)))]  # fmt: skip


@pytest.mark.parametrize("d, variance", WIDE_CASES)
def test_parts_of_wide_latents_with_exp_link(d, variance):
    """Probabilities below the ends by eight scrambles of Sobol points, which tell their own error."""
    family = families.Dirichlet(link="exp").resolve(np.full((1, d), 1 / d))
    mean = np.resize([0.5, -0.7, 1.2, -0.2, 0.1], d)
    cov = np.eye(d)
    cov[:3, :3] = np.array([[1.0, 0.3, -0.2], [0.3, 0.8, 0.1], [-0.2, 0.1, 0.9]])[:d, :d]
    ends = Predictive(family, mean[None], variance * cov[None]).interval(0.4)[0]
    assert np.sum((ends > 1e-12) & (ends < 1 - 1e-12)) >= 2  # something is tested
    parts = [j for j in range(d) if d <= 3 or j in (0, d - 1)]
    found = np.empty((8, len(parts), 2))
    for seed in range(8):
        x = ndtri(stats.qmc.Sobol(d, seed=seed).random_base2(17 if d <= 3 else 16).clip(1e-15, 1 - 1e-15))
        eta = mean + x @ np.linalg.cholesky(variance * cov).T
        for i, j in enumerate(parts):
            own, others = shifted_shapes(eta, j)
            found[seed, i] = [betainc(own, others, end).mean() for end in ends[j]]
    off = np.abs(found.mean(axis=0) - [0.3, 0.7])
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    inside = (ends[parts] > 1e-12) & (ends[parts] < 1 - 1e-12)  # else all that floats tell
    assert np.all(off[inside] < 3e-5 + 4 * error[inside])


def wide_covariance(d, variance, correlation, seed=0):
    """Random standard deviations about the root of the variance, correlated alike, or at random."""
    rng = np.random.default_rng([d, seed])
    sd = np.sqrt(variance) * np.exp(0.3 * rng.normal(size=d))
    R = (1.0 - correlation) * np.eye(d) + correlation
    R = np.corrcoef(rng.normal(size=(2 * d, d)).T) if correlation < 0 else R
    return sd[:, None] * R * sd


@pytest.mark.parametrize(
    "d, variance, correlation, atol",
    [(2, 25.0, 0.99, 2e-6), (3, 9.0, -1.0, 2e-6), (4, 400.0, 0.9, 2e-6), (5, 1.5, -1.0, 2e-6), (10, 9.0, 0.0, 3e-5)],
)
def test_laws_of_wide_parts_have_a_mass_of_one(d, variance, correlation, atol):
    """Densities and what is beyond floats; two others that trade places have points of a lattice that are others."""
    from ggpm.families.special.wide_parts import FARTHEST, WidePart

    mean, cov = np.linspace(-3.0, 2.0, d), wide_covariance(d, variance, correlation)
    law, t = WidePart(mean, cov, 0), np.linspace(-1.0, 1.0, 801) * np.arcsinh(FARTHEST)
    F = law.upto(np.sinh(t))
    inside = CubicSpline(t, law.density(np.sinh(t)) * np.cosh(t)).antiderivative()
    assert inside(t[-1]) + law.beyond().sum() == pytest.approx(1.0, abs=2e-6)
    np.testing.assert_allclose(inside(t[::50]) + law.beyond()[0], F[::50], atol=2e-6)
    order = [0, *range(d - 1, 0, -1)]
    same = WidePart(mean[order], cov[np.ix_(order, order)], 0)
    np.testing.assert_allclose(same.upto(np.sinh(t[::50])), F[::50], atol=atol)


def test_laws_of_wide_parts_of_known_latents_are_beta():
    from ggpm.families.special.wide_parts import WidePart

    rng = np.random.default_rng(0)
    for d in (2, 3, 5):
        mean = rng.uniform(-6.0, 6.0, d)
        own, others = shifted_shapes(mean[None], 1)
        z = np.arange(-20.0, 21.0, 4.0)
        below = WidePart(mean, 1e-12 * np.eye(d), 1).upto(z)
        np.testing.assert_allclose(below, betainc(own, others, expit(z)), atol=1e-6)


def test_laws_of_wide_parts_forget_parts_that_are_nothing():
    """A part that is far below the others changes none of them; one that is known is told by a wide one next to it."""
    from ggpm.families.special.wide_parts import WidePart

    z, cov = np.arange(-30.0, 31.0, 4.0), wide_covariance(3, 9.0, -1.0)
    more = np.zeros((5, 5))
    more[:3, :3], more[3:, 3:] = cov, 0.5 * np.eye(2)
    few, many = WidePart(np.zeros(3), cov, 1), WidePart(np.array([0.0, 0.0, 0.0, -80.0, -90.0]), more, 1)
    np.testing.assert_allclose(many.upto(z), few.upto(z), atol=2e-6)
    known = cov.copy()
    known[2], known[:, 2] = 0.0, 0.0
    nearly = known + np.diag([0.0, 0.0, 1e-4])
    laws = [WidePart(np.zeros(3), V, 1) for V in (known, nearly)]
    assert all(law.work < law.most_work for law in laws)
    np.testing.assert_allclose(laws[0].upto(z), laws[1].upto(z), atol=5e-5)


def test_rows_that_ask_for_too_much_have_nodes():
    """Latents that are known but for a level that is wide, and parts of averages of two distributions."""
    family = families.Dirichlet(link="exp").resolve(np.full((1, 4), 0.25))
    cov = 25.0 * (1e-9 * np.eye(4) + 1.0)
    low, high = Predictive(family, np.zeros((1, 4)), cov[None]).interval(0.8)[0].T
    np.testing.assert_allclose(low, low[0], rtol=0.1)
    assert np.all((low < 0.1) & (high > 0.6))


def test_parts_of_many():
    """A product of nodes for ten latents would fill the memory: Sobol points, against draws of the latent."""
    rng = np.random.default_rng(0)
    family = families.Dirichlet().resolve(np.full((1, 10), 0.1))
    mean, cov = rng.normal(size=10), 0.2 * (0.7 * np.eye(10) + 0.3)
    interval = Predictive(family, mean[None], cov[None]).interval(0.9)[0]
    eta = rng.multivariate_normal(mean, cov, 40_000)
    for q, y in zip((0.05, 0.95), interval.T, strict=True):
        F = family.cdf(eta, y)
        # four standard errors of the draws, and what Sobol points leave
        assert np.all(np.abs(F.mean(axis=0) - q) < 4 * F.std(axis=0) / np.sqrt(len(eta)) + 4e-4)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_entries_of_directions(d):
    """A known latent: the marginal of one entry by quadrature; an uncertain one: draws."""
    family = families.VonMisesFisher().resolve(np.eye(d)[:1])
    rng = np.random.default_rng(d)
    eta = 2.0 * rng.normal(size=d)
    for j in range(d):
        total = quad(lambda z, j=j: np.exp(family.part_log_prob(eta[None, None], np.full((1, 1, d), z)))[0, j, 0, 0],
                     -60, 60, limit=200, points=[-5, 0, 5])[0]  # fmt: skip
        np.testing.assert_allclose(total, 1.0, atol=1e-8)
    p = Predictive(family, eta[None], 0.5 * np.eye(d)[None])
    draws = p.sample(200_000, 2)[:, 0]
    low, high = p.interval(0.8)[0].T
    np.testing.assert_allclose(np.mean(draws < low, axis=0), 0.1, atol=4 * np.sqrt(0.09 / len(draws)))
    np.testing.assert_allclose(np.mean(draws < high, axis=0), 0.9, atol=4 * np.sqrt(0.09 / len(draws)))


@pytest.mark.parametrize("variance", [0.01, 1.0, 25.0])
def test_counts_of_categories(variance):
    family = families.Multinomial().resolve([[1, 2, 0]])
    cov = variance * (0.7 * np.eye(3) + 0.3)
    trials = np.array([7.0, 60.0])
    p = Predictive(family, np.array([[0.5, -0.7, 1.2], [0.0, 0.3, -1.0]]), np.stack([cov] * 2), trials)
    draws = p.sample(100_000, 4)
    low, high = np.moveaxis(p.interval(0.9), -1, 0)
    error = 4 * np.sqrt(0.05 * 0.95 / len(draws))
    for k, q in ((low, 0.05), (high, 0.95)):
        assert np.all(np.mean(draws <= k, axis=0) >= q - error) and np.all(np.mean(draws < k, axis=0) <= q + error)


# ---- highest density, nodes, memory --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "link, variance",
    [("softplus", 1.0), ("exp", 1.0), pytest.param("exp", 25.0, marks=pytest.mark.slow), ("softplus", 1e4)],
)
def test_regions_of_compositions_take_their_own_draws(link, variance):
    family = families.Dirichlet(link=link).resolve([[0.2, 0.3, 0.5]])
    p = Predictive(family, np.zeros((1, 3)), variance * np.eye(3)[None])
    region = p.highest_density(0.8, n_draws=400)
    inside = np.mean([region.contains(d) for d in p.sample(150, 9)])
    # 400 draws for the threshold, 150 here: three standard errors 0.11
    assert inside == pytest.approx(0.8, abs=0.11)


@pytest.mark.parametrize("name", ["gamma", pytest.param("beta", marks=pytest.mark.slow), "inverse_gaussian"])
def test_regions_of_numbers_are_the_densest(name):
    p = one(ONE_LATENT[name], 0.4, 0.5)
    region = p.highest_density(0.8)
    draws = p.sample(4000, 1)[:, 0]
    many = Predictive(p.family, np.repeat(p.latent_mean, 4000, 0), np.repeat(p.latent_cov, 4000, 0))
    log_p = many.log_prob(draws)
    assert np.mean(log_p >= region.log_threshold[0]) == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 4000))
    np.testing.assert_array_equal(many.highest_density(0.8).contains(draws)[:50],
                                  [region.contains([v])[0] for v in draws[:50]])  # fmt: skip


def test_nodes_do_not_depend_on_an_arbitrary_basis():
    """Equal eigenvalues leave eigenvectors to chance; a covariance that differs by rounding gives the same nodes."""
    cov = 0.3 * np.eye(3)[None]
    noise = 1e-15 * np.array([[0, 1, -1], [1, 0, 1], [-1, 1, 0]])
    (_, a, _), (_, b, _) = (
        next(latent_nodes(np.zeros((1, 3)), cholesky_root(V), np.eye(3)[None], 1)) for V in (cov, cov + noise)
    )
    np.testing.assert_allclose(a, b, atol=1e-12)


def test_factors_of_semidefinite_covariances():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(20, 4, 2))
    cov = A @ A.swapaxes(1, 2)
    root = cholesky_root(cov)
    np.testing.assert_allclose(root @ root.swapaxes(1, 2), cov, atol=1e-6)
    assert np.all(np.triu(root, 1) == 0)


def test_tables_of_parts_have_mass_one():
    family = families.Dirichlet().resolve([[0.2, 0.3, 0.5]])
    p = Predictive(family, np.zeros((1, 3)), 0.2 * np.eye(3)[None])
    (_, sharpened), *_ = part_tables(p)
    np.testing.assert_allclose(sharpened.table.F[:, -1], 1.0, atol=1e-5)


@pytest.mark.parametrize("name", ["von_mises", "gamma", "dirichlet"])
def test_memory_does_not_grow_with_the_rows(name):
    """Above inputs and outputs, which are small, less than 300 MB."""
    m = 50_000 if name != "dirichlet" else 12_000
    family = {"von_mises": families.VonMises(), "gamma": families.Gamma(phi=0.3),
              "dirichlet": families.Dirichlet().resolve([[0.3, 0.7]])}[name]  # fmt: skip
    D = family.latent_dim
    mean = np.random.default_rng(0).normal(size=(m, D))
    p = Predictive(family, mean, np.broadcast_to(0.01 * np.eye(D), (m, D, D)).copy())
    tracemalloc.start()
    p.interval(0.9)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 * 2**20


def test_a_normal_step_has_a_closed_form():
    """E Phi(b - eta) = Phi((b - m)/sqrt(1 + v))."""
    family = families.Ordinal(phi=[-1.0, 0.5, 30.0])
    for mean in (-3.0, 0.0, 28.0):
        for variance in (0.0, 1e-6, *VARIANCES):
            p = one(family, mean, variance)
            for k, cut in enumerate((-1.0, 0.5, 30.0)):
                np.testing.assert_allclose(p.cdf([k])[0], ndtr((cut - mean) / np.sqrt(1 + variance)), atol=3e-7)


def test_one_minus_the_last_share_is_the_first():
    """Two parts: the distribution functions mirror each other."""
    family = families.Dirichlet().resolve([[0.4, 0.6]])
    p = Predictive(family, np.array([[0.3, -0.8]]), np.array([[[0.4, 0.1], [0.1, 0.3]]]))
    interval = p.interval(0.9)[0]
    np.testing.assert_allclose(interval[0], 1 - interval[1, ::-1], atol=2e-5)
    beta = families.Beta(phi=3.0)
    flat = one(beta, 0.0, 1e-12).interval(0.8)[0]
    np.testing.assert_allclose(flat, stats.beta(1.5, 1.5).ppf([0.1, 0.9]), atol=2e-6)
    assert expit(0.0) == pytest.approx(flat.mean(), abs=1e-6)


@pytest.mark.parametrize("variance", [0.1, 10.0])
@pytest.mark.parametrize("phi", [None, 0.2, 4.0])
def test_counts_of_categories_against_a_grid(variance, phi):
    """Distribution functions of each category's count by a fine grid over the two differences of three latents."""
    from scipy.special import betaln, gammaln, softmax

    from ggpm.families.special.adaptive import latent_root
    from ggpm.prediction.categories import category_quantiles

    rng = np.random.default_rng(4)
    A = rng.normal(size=(3, 3, 3))
    A = np.concatenate([A, A[:1]])
    mean, cov, trials = rng.normal(size=(4, 3)), variance * A @ A.swapaxes(1, 2), np.array([1.0, 12.0, 40.0, 90.0])
    family = families.Multinomial() if phi is None else families.DirichletMultinomial(phi=phi)
    p = Predictive(family.resolve(np.ones((1, 3))), mean, cov, trials)
    x = np.linspace(-7.0, 7.0, 401 if phi is None else 161)
    grid, w = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2), np.exp(-0.5 * x**2)
    weight = np.outer(w, w).ravel() / w.sum() ** 2
    centre, root = latent_root(mean, cov, contrasts=True)
    found = category_quantiles(p, trials, (0.05, 0.95))
    for i, N in enumerate(trials):
        pi = softmax(centre[i] + grid @ root[i].T, axis=1)
        for j in range(3):
            counts, a = np.arange(N + 1.0)[:, None], np.maximum((phi or 1.0) * pi[:, j], 1e-290)
            b = np.maximum((phi or 1.0) * (1.0 - pi[:, j]), 1e-290)
            log_ways = gammaln(N + 1.0) - gammaln(counts + 1.0) - gammaln(N - counts + 1.0)
            if phi is None:
                log_p = counts * np.log(a) + (N - counts) * np.log(b)
            else:
                log_p = betaln(counts + a, N - counts + b) - betaln(a, b)
            F = np.cumsum(np.exp(log_ways + log_p) @ weight)
            for k, q in enumerate((0.05, 0.95)):
                y = int(found[i, j, k])
                assert (F[y - 1] if y else 0.0) < q + 1e-6 and F[y] > q - 1e-6


QUESTIONS = {
    "mean": lambda p, y: p.mean(),
    "var": lambda p, y: p.var(),
    "log_prob": lambda p, y: p.log_prob(y),
    "interval": lambda p, y: p.interval(0.9),
    "contains": lambda p, y: p.highest_density(0.9, n_draws=20).contains(y),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ["poisson", "von_mises", "dirichlet", "categorical"])
def test_memory_at_two_numbers_of_rows(name, question, monkeypatch):
    """Peak memory above the answer, at 4 and 12 blocks of rows: what is kept of a row is a few numbers."""
    monkeypatch.setattr("ggpm.prediction.predictive.BLOCK", 32)
    monkeypatch.setattr("ggpm.prediction.regions.BLOCK", 32)
    family = {
        "poisson": families.Poisson(),
        "von_mises": families.VonMises(),
        "dirichlet": families.Dirichlet().resolve(np.full((1, 3), 1 / 3)),
        "categorical": families.Categorical(n_classes=3).resolve(np.arange(3)),
    }[name]
    peaks, D, row = [], family.latent_dim, 0
    for m in (128, 128, 384):  # tables of functions are made once
        # every block has the same rows: the hardest of many random ones would need more nodes than that of few
        mean = np.tile(np.random.default_rng(0).normal(size=(32, D)), (m // 32, 1))
        p = Predictive(family, mean, np.broadcast_to(0.04 * np.eye(D) + 0.02, (m, D, D)).copy())
        y = p.sample(None, 0)
        tracemalloc.start()
        try:
            answer = QUESTIONS[question](p, y)
        except ValueError:  # no density, no order
            tracemalloc.stop()
            pytest.skip(f"{name} outputs have no {question}")
        peaks.append(tracemalloc.get_traced_memory()[1] - answer.nbytes)
        tracemalloc.stop()
        row = answer.nbytes // m
    # encoded y and numbers of the rows are kept: a few times the answer, and no array of D x D per row and node
    if question != "contains":  # whose draws fill one batch
        assert peaks[2] - peaks[1] < 256 * (6 * row + 400)
    assert peaks[2] < 60 * 2**20


THREADS = """
import numpy as np
from ggpm import Predictive, families
rng = np.random.default_rng(0)
for family, y in (
    (families.Wishart(phi=5.5), np.eye(2)[None]),
    (families.Dirichlet(), np.full((1, 3), 1 / 3)),
    (families.Categorical(n_classes=5), np.arange(5)),
    (families.VonMisesFisher(), np.eye(3)[:1]),
):
    family = family.resolve(y)
    D = family.latent_dim
    p = Predictive(family, rng.normal(size=(10, D)), np.broadcast_to(0.5 * np.eye(D), (10, D, D)).copy())
    print(" ".join(repr(float(v)) for v in p.log_prob(p.sample(None, 0))))
"""


@pytest.mark.slow
def test_densities_do_not_move_with_the_number_of_threads():
    """Equal eigenvalues leave every rotation open, and the number of BLAS threads must not choose one."""
    found = []
    for threads in ("1", "2"):
        environment = dict(os.environ, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)
        command = [sys.executable, "-c", THREADS]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append([[float(v) for v in line.split()] for line in out.stdout.splitlines()])
    for one_thread, two in zip(*found):
        np.testing.assert_allclose(one_thread, two, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["wishart", "dirichlet", "categorical", "von_mises_fisher"])
def test_densities_do_not_move_with_the_basis(name):
    """A covariance that is a multiple of the unit matrix to rounding: its eigenvectors are chance."""
    family = {
        "wishart": families.Wishart(phi=5.5).resolve(np.eye(2)[None]),
        "dirichlet": families.Dirichlet().resolve(np.full((1, 3), 1 / 3)),
        "categorical": families.Categorical(n_classes=5).resolve(np.arange(5)),
        "von_mises_fisher": families.VonMisesFisher().resolve(np.eye(3)[:1]),
    }[name]
    rng, D = np.random.default_rng(1), family.latent_dim
    mean = rng.normal(size=(20, D))
    noise = 1e-13 * rng.normal(size=(2, 20, D, D))
    p, other = (Predictive(family, mean, 0.8 * np.eye(D) + e + e.swapaxes(1, 2)) for e in noise)
    y = p.sample(None, 0)
    np.testing.assert_allclose(p.log_prob(y), other.log_prob(y), rtol=0, atol=1e-9)
    np.testing.assert_allclose(p.mean(), other.mean(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("link", ["exp", "softplus"])
def test_intervals_of_parts_with_latents_ten_wide(link):
    """Sums of alpha of 1e20 and more, where differences of log-gamma functions are no densities of parts."""
    family = families.Dirichlet(link=link).resolve(np.full((1, 2), 0.5))
    p = Predictive(family, np.array([[0.3, -0.4]]), 100.0 * np.eye(2)[None])
    ends = p.interval(0.3)[0]
    below = np.mean(p.sample(20_000, 1)[:, 0, :, None] <= ends, axis=0)
    np.testing.assert_allclose(below, [[0.35, 0.65]] * 2, atol=0.02)  # five standard errors of the draws


def test_densities_of_parts_with_large_sums_against_mpmath():
    mp = pytest.importorskip("mpmath")
    family = families.Dirichlet(link="exp").resolve(np.full((1, 2), 0.5))
    for own, others in ((3e8, 5e8), (2.0, 1e12), (1e-3, 1e20), (1e12, 3.0)):
        eta = np.log([own, others])
        a, b = (mp.mpf(float(v)) for v in np.exp(eta))
        width = 1.0 / np.sqrt(min(own, others, 1.0) if min(own, others) < 1.0 else min(own, others))
        z = eta[0] - eta[1] + width * np.array([-3.0, 0.0, 1.0])
        with mp.workdps(50):
            want = [-a * mp.log1p(mp.exp(-v)) - b * mp.log1p(mp.exp(v)) - mp.log(mp.beta(a, b)) for v in map(mp.mpf, z)]
        found = family.part_log_prob(eta[None, None], np.repeat(z[None, :, None], 2, axis=2))[0, 0, 0]
        # z is rounded by 1e-15, of which parts with 1e8 of their own see 1e-11 of their width
        np.testing.assert_allclose(found, np.array(want, dtype=float), rtol=1e-7, atol=1e-7)


def parts_below(mean, cov, ends, seed):
    """P(part <= end) with link "exp", ends (d, 2): beta distribution functions over Sobol points, (d, 2)."""
    points = ndtri(qmc.Sobol(len(mean), seed=seed).random_base2(15).clip(1e-15, 1 - 1e-15))
    alpha = np.exp((mean + points @ np.linalg.cholesky(cov).T).clip(-600.0, 600.0))
    others = alpha.sum(axis=1, keepdims=True) - alpha
    return np.stack([betainc(alpha, others, ends[:, k]).mean(axis=0) for k in (0, 1)], axis=1)


@pytest.mark.parametrize("d, variance, error", [(4, 0.4, 2e-5), (5, 1.0, 6e-5), (4, 25.0, 2e-4), (5, 100.0, 6e-4)])
def test_intervals_of_many_parts_with_exponential_link(d, variance, error):
    """Products of rules left 1e-4 to 7e-4 for a variance of one and less, and draws 2e-3 for wide latents."""
    rng = np.random.default_rng([d, 0])
    sd = np.sqrt(variance) * rng.uniform(0.7, 1.0, d)
    mean, cov = 0.5 * rng.normal(size=d) + 0.7, np.outer(sd, sd) * (0.7 * np.eye(d) + 0.3)
    family = families.Dirichlet(link="exp").resolve(np.full((1, d), 1.0 / d))
    ends = Predictive(family, mean[None], cov[None]).interval(0.9)[0]
    found = [parts_below(mean, cov, ends, seed) for seed in (1, 2, 3, 4)]
    off, own = np.abs(np.mean(found, axis=0) - [0.05, 0.95]), np.std(found, axis=0) / 2.0
    inside = (ends > 1e-290) & (ends < 1.0 - 1e-12)
    assert own[inside].max() < 0.7 * error
    assert off[inside].max() < error
