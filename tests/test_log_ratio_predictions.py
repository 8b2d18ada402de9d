"""Moments and intervals of logistic-normal predictions against brute force."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, ndtr, ndtri
from scipy.stats import norm

from ggpm import Predictive, families
from ggpm.families.logistic_normal import contrasts, shares_of
from ggpm.families.special.quadrature import normal_points
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


@pytest.mark.parametrize("d, atol", [(4, 1e-3), (5, 1e-3), (8, 3e-3)])
def test_intervals_of_more_parts_have_their_level(d, atol):
    """By points, which are off by 3e-4 (65,536 of them); for eight parts 512 nodes are, too."""
    rng = np.random.default_rng(d)
    laws = [law(rng, d - 1, variance) for variance in (0.05, 0.5)]
    ends, x = predictive(laws).interval(0.9), normal_points(d - 1, 16)
    for (mean, cov), row in zip(laws, ends):
        shares = shares_of(mean + x @ np.linalg.cholesky(cov).T)
        found = np.mean(shares[:, :, None] <= row, axis=0)
        np.testing.assert_allclose(found, np.broadcast_to([0.05, 0.95], found.shape), rtol=0, atol=atol)
