"""Moments and intervals of logistic-normal predictions against brute force."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, logit, ndtr, ndtri
from scipy.stats import norm, qmc

from ggpm import Predictive, families
from ggpm.families.logistic_normal import contrasts, shares_of
from ggpm.families.special.quadrature import normal_points
from ggpm.families.special.share_tails import ShareTails
from ggpm.families.special.softmax_moments import common_nodes, softmax_moments

VARIANCES = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4)


def law(rng, D, variance):
    """A mean and a full covariance of z whose variances are about as large."""
    A = rng.normal(size=(D, D))
    return rng.normal(size=D) * max(1.0, np.sqrt(variance)), variance * (0.3 * A @ A.T / D + 0.5 * np.eye(D))


def predictive(laws, phi=0.2):
    """The predictive distribution of log-ratios z with these laws, a part of which is noise."""
    mean, cov = (np.stack(values) for values in zip(*laws))
    D = mean.shape[1]
    noise = phi * np.linalg.eigvalsh(cov).min() * np.eye(D)
    family = families.LogisticNormal(noise).resolve(np.full((1, D + 1), 1.0 / (D + 1)))
    return Predictive(family, mean, cov - noise)


def brute(mean, cov, spacing, radius=6.5):
    """Mean and covariance of the shares by the trapezoidal rule on a square grid, some of its planes at a time."""
    D, root = len(mean), np.linalg.cholesky(cov)
    x = spacing * np.arange(-round(radius / spacing), round(radius / spacing) + 1)
    grid = np.array(list(itertools.product(x, repeat=D - 1))).reshape(-1, D - 1) if D > 1 else np.zeros((1, 0))
    first, second, total = np.zeros(D + 1), np.zeros((D + 1, D + 1)), 0.0
    for planes in np.array_split(x, max(1, len(x) * len(grid) // 100_000)):
        nodes = np.column_stack([np.repeat(planes, len(grid)), np.tile(grid, (len(planes), 1))])
        weights = np.exp(-0.5 * np.square(nodes).sum(axis=1))
        shares = shares_of(mean + nodes @ root.T)
        first, second = first + weights @ shares, second + (shares * weights[:, None]).T @ shares
        total += weights.sum()
    return first / total, second / total - np.outer(first, first) / total**2


@pytest.mark.parametrize("d, variances", [(2, VARIANCES), (3, VARIANCES[:-1]), (4, VARIANCES[:4])])
def test_moments_are_those_of_fine_grids(d, variances):
    rng = np.random.default_rng(d)
    laws = [law(rng, d - 1, variance) for variance in variances]
    p = predictive(laws)
    found = p.mean(), p.var()
    for i, (mean, cov) in enumerate(laws):
        first, second = brute(mean, cov, min(0.25, 0.5 / np.sqrt(variances[i])))
        np.testing.assert_allclose(found[0][i], first, rtol=0, atol=1e-7)
        np.testing.assert_allclose(found[1][i], second, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_moments_of_three_wide_parts_are_those_of_a_very_fine_grid():
    mean, cov = law(np.random.default_rng(0), 2, 1e4)
    p, (first, second) = predictive([(mean, cov)]), brute(mean, cov, 0.005)
    np.testing.assert_allclose(p.mean()[0], first, rtol=0, atol=1e-7)
    np.testing.assert_allclose(p.var()[0], second, rtol=0, atol=1e-7)


def test_moments_of_three_very_wide_parts_are_those_of_the_largest():
    """Shares are indicators but for a border, whose probability is 1e-4 for standard deviations of 1e4."""
    sd = 1e4
    first, second = softmax_moments(np.array([[0.3 * sd, 0.0, -0.1 * sd]]), sd**2 * np.eye(3)[None])
    wins = [
        quad(lambda x, m, a, b: norm.pdf(x - m) * ndtr(x - a) * ndtr(x - b), -9, 9, args=means)[0]
        for means in ((0.3, 0.0, -0.1), (0.0, 0.3, -0.1), (-0.1, 0.3, 0.0))
    ]
    np.testing.assert_allclose(first[0], wins, rtol=0, atol=1e-7)  # the border is symmetric: a second order
    np.testing.assert_allclose(second[0], np.diag(wins) - np.outer(wins, wins), rtol=0, atol=2e-4)


def test_moments_of_many_parts_are_those_of_many_points():
    rng = np.random.default_rng(1)
    laws = [law(rng, 7, variance) for variance in (0.1, 0.6)]
    p, x = predictive(laws), normal_points(7, 16)
    for i, (mean, cov) in enumerate(laws):
        shares = shares_of(mean + x @ np.linalg.cholesky(cov).T)
        # 4096 points leave 1e-4, measured against 131,072
        np.testing.assert_allclose(p.mean()[i], shares.mean(axis=0), rtol=0, atol=2e-4)
        np.testing.assert_allclose(p.var()[i], np.cov(shares.T), rtol=0, atol=2e-4)


def test_many_parts_beyond_the_range_of_exponentials_have_moments():
    p = predictive([law(np.random.default_rng(2), 5, 1e6)])
    assert np.isclose(p.mean().sum(), 1.0) and np.all(np.isfinite(p.var()))
    np.testing.assert_allclose(p.var().sum(axis=2), 0.0, atol=1e-12)


def test_nodes_of_the_noise_are_those_of_the_moments():
    cov = np.array([[0.5, 0.1, 0.0], [0.1, 0.4, 0.0], [0.0, 0.0, 0.3]])
    f, weights = common_nodes(cov)
    e = np.exp(f)
    first = weights @ (e / e.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(first, softmax_moments(np.zeros((1, 3)), cov[None])[0][0], rtol=1e-12)
    assert common_nodes(1e4 * cov) is None
    wide = families.LogisticNormal(1e4 * np.eye(2)).resolve(np.full((1, 3), 1 / 3))
    np.testing.assert_allclose(wide.moment(np.zeros((1, 2))), 1 / 3, atol=1e-7)


def below(mean, cov, part, share):
    """P(part <= share) of three parts: given one log-ratio to the part the other has a normal distribution function."""
    V = contrasts(3)
    A = np.delete(V, part, axis=0) - V[part]
    m, C = A @ mean, A @ cov @ A.T
    top, sd, slope = np.log1p(-share) - np.log(share), np.sqrt(C[0, 0]), C[0, 1] / C[0, 0]
    own = np.sqrt(C[1, 1] - slope * C[0, 1])

    def integrand(depth):  # the first is by this much below the threshold
        x = top - depth
        other = top + np.log(-np.expm1(-depth))
        return norm.pdf(x, m[0], sd) * ndtr((m[1] + slope * (x - m[0]) - other) / own)

    end = max(0.0, top - m[0]) + 9 * sd
    middle = [v for v in (1e-3, 1e-2, 0.1, 1.0, top - m[0] - 2 * sd, top - m[0], top - m[0] + 2 * sd) if 0 < v < end]
    return ndtr((m[0] - top) / sd) + quad(integrand, 0.0, end, points=sorted(middle), limit=2000, epsabs=1e-9)[0]


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_of_three_parts_have_their_level(level):
    """Ends within 1e-4 of the spread have probabilities within 2e-5; logits far out are beyond the floats near one."""
    rng = np.random.default_rng(3)
    laws = [law(rng, 2, variance) for variance in VARIANCES[:-1]]
    ends = predictive(laws).interval(level)
    for (mean, cov), row in zip(laws, ends):
        for part, pair in enumerate(row):
            for share, q in zip(pair, ((1 - level) / 2, (1 + level) / 2)):
                if 1e-290 < share < 1 - 1e-6:
                    assert abs(below(mean, cov, part, share) - q) < 2e-5


def test_intervals_of_two_parts_are_those_of_a_normal_logit():
    rng = np.random.default_rng(4)
    laws = [law(rng, 1, variance) for variance in VARIANCES]
    logit, sd = (np.sqrt(2.0) * np.array([mean[0] for mean, _ in laws]), np.sqrt([2.0 * cov[0, 0] for _, cov in laws]))
    wanted = expit(logit[:, None] + sd[:, None] * ndtri([0.05, 0.95]))
    np.testing.assert_allclose(predictive(laws).interval(0.9)[:, 0], wanted, rtol=1e-8)


def off(mean, cov, part, ends, levels, log2=17):
    """How far ends of a part's interval are from quantiles, and the error of that (two scrambled Sobol sequences).

    Along (1, ..., 1) all log-ratios of other parts to this one move alike: given the rest they have a normal law.
    """
    V, d = contrasts(len(mean) + 1), len(mean) + 1
    A = np.delete(V, part, axis=0) - V[part]
    m, C = A @ mean, A @ cov @ A.T
    s = 1.0 / np.sqrt(np.linalg.inv(C).sum())
    values, axes = np.linalg.eigh(C - s**2)
    found, density = np.empty((2, 2)), np.empty((2, 2))
    for seed in (0, 1):
        x = ndtri(qmc.Sobol(d - 2, seed=seed + 7).random_base2(log2).clip(1e-12, 1 - 1e-12))
        logits = -np.logaddexp.reduce(m + x @ (axes[:, :0:-1] * np.sqrt(values[:0:-1])).T, axis=1)
        for i, end in enumerate(ends):
            found[seed, i] = np.mean(ndtr((logit(end) - logits) / s))
            density[seed, i] = np.mean(norm.pdf(logit(end), logits, s)) / (end * (1.0 - end))
    away = (found - levels) / density
    return np.abs(away.mean(axis=0)).max(), np.abs(np.diff(away, axis=0)).max() / 2.0


def off_of_tails(mean, cov, part, ends, levels, log2=15):
    """The same for wide latents, from chances that what other parts leave is enough, one after the other (4 scrambles).

    The wider log-ratios come first; an end's density is that of a difference.
    """
    V = contrasts(len(mean) + 1)
    A = np.delete(V, part, axis=0) - V[part]
    order = np.argsort(-np.einsum("ij,jk,ik->i", A, cov, A))
    m, L = (A @ mean)[order], np.linalg.cholesky((A @ cov @ A.T)[np.ix_(order, order)])

    def upto(z, seed):
        u, rest, chance, x = qmc.Sobol(len(m), seed=seed + 40).random_base2(log2).T, np.exp(-z), 1.0, []
        for k in range(len(m)):
            at = m[k] + sum(L[k, i] * x[i] for i in range(k))
            with np.errstate(divide="ignore"):
                p = ndtr((np.log(rest) - at) / L[k, k])
            chance = chance * p
            x.append(ndtri((p * u[k]).clip(1e-300, 1.0 - 1e-16)))
            rest = np.maximum(rest - np.exp(at + L[k, k] * x[k]), 0.0)
        return 1.0 - np.mean(chance)

    away = np.empty((4, len(levels)))
    for i, (end, q) in enumerate(zip(ends, levels)):
        z, h = logit(end), 1e-3
        for seed in range(4):
            density = (upto(z + h, seed) - upto(z - h, seed)) / (2.0 * h * end * (1.0 - end))
            away[seed, i] = (upto(z, seed) - q) / density
    return np.abs(away.mean(axis=0)).max(), (away.std(axis=0, ddof=1) / 2.0).max()


def test_distribution_functions_of_wide_parts_are_those_of_quadrature():
    rng, V = np.random.default_rng(8), contrasts(3)
    for variance in (10.0, 100.0, 1e4):
        mean, cov = law(rng, 2, variance)
        tails = ShareTails(V @ mean, V @ np.linalg.cholesky(cov))
        for part in range(3):
            for share in (0.05, 0.6, 0.999):
                assert abs(tails.below(part, logit(share)) - below(mean, cov, part, share)) < 1e-6


def test_intervals_of_more_parts_are_right_to_a_ten_thousandth_of_the_spread(d=6):
    rng = np.random.default_rng(6)
    laws = [law(rng, d - 1, variance) for variance in (0.05, 1.0)]
    p = predictive(laws)
    for (mean, cov), row, sd in zip(laws, p.interval(0.9), p.std()):
        error, own = off(mean, cov, 1, row[1], (0.05, 0.95))
        assert own < 1e-5 * sd[1]
        assert error < 1e-4 * sd[1]


def test_ends_of_wide_parts_where_the_density_is_low(d=6):
    """Points left 9e-4 of the spread: some shares are next to zero or one in nearly all draws."""
    mean, cov = law(np.random.default_rng([d, 11]), d - 1, 1e3)
    p = predictive([(mean, cov)])
    ends, sd = p.interval(0.9)[0], p.std()[0]
    inside = [j for j in range(d) if 1e-6 < ends[j, 1] < 1.0 - 1e-6]
    assert inside
    for part in inside:
        # the lower end is next to zero, on any scale
        error, own = off_of_tails(mean, cov, part, ends[part, 1:], (0.95,), 17)
        assert own < 1e-4 * sd[part]
        assert error < 1e-4 * sd[part] + own


@pytest.mark.slow
@pytest.mark.parametrize("variance", [0.05, 0.3, 1.0, 3.0, 10.0, 100.0, 1e3])
@pytest.mark.parametrize("d", [4, 5, 8, 10])
def test_intervals_of_up_to_ten_parts(d, variance):
    for seed in range(2):
        mean, cov = law(np.random.default_rng([d, seed]), d - 1, variance)
        p = predictive([(mean, cov)])
        ends, sd = p.interval(0.9)[0], p.std()[0]
        for part in (0, d - 2):
            if ends[part, 0] > 1e-250 and ends[part, 1] < 1 - 1e-10:
                reference, log2 = (off_of_tails, 17) if variance > 3.0 else (off, 18)
                error, own = reference(mean, cov, part, ends[part], (0.05, 0.95), log2)
                assert own < 1e-4 * sd[part]
                assert error < 1e-4 * sd[part] + own
