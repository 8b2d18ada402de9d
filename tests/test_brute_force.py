"""Predictive densities and interval ends of every family against brute force, from narrow latents to very wide ones.

Densities within 1e-6, ends within 5e-5 of probability (1e-4 of the spread, for densities of a third of its inverse).
Every reference is made twice, with other nodes: what the two differ by is its own error, and counts for nobody. A
reference that is no better than the tolerance decides nothing and is skipped, with its error.
"""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import i0e, logsumexp

import cases
import test_inflations
from ggpm import Predictive
from ggpm.families.special.adaptive import cholesky_root, latent_root

FAMILIES = cases.FAMILIES | {
    name: (family, np.array([0.0, 1.0 if family.support.integer else 0.5]))
    for name, family in test_inflations.FAMILIES.items()
}
VARIANCES = (0.01, 1.0, 25.0, 1e4)
DENSITY, PROBABILITY = 1e-6, 5e-5
# Nodes of every direction, by the number of directions: of densities about their mode, of probabilities over all of the
# Gaussian.
NEAR = {1: (4001, 3601), 2: (301, 271), 3: (81, 71)}
OVER = {1: (200_001, 170_001), 2: (1201, 1051), 3: (121, 107)}
REACH = 9.0


def case(name, variance):
    """One row: a family, its latent with correlations of 0.3, and a y that is neither likely nor out of reach."""
    rng = np.random.default_rng(list(FAMILIES).index(name))
    family, example = FAMILIES[name]
    family = family.resolve(example)
    D = family.latent_dim
    mean, sd = 0.5 * rng.normal(size=(1, D)), np.sqrt(variance) * rng.uniform(0.7, 1.0, D)
    cov = (np.outer(sd, sd) * (0.7 * np.eye(D) + 0.3))[None]
    trials = np.array([7.0]) if family.countable else None
    eta = mean + np.minimum(sd, 1.0) * rng.normal(size=(1, D))
    return family, mean, cov, trials, family.sample(eta, rng, trials)


def density(family, mean, cov, y, number):
    """log E[p(y)] by the trapezoidal rule in t, e = mode + H^(-1/2) sinh(t), which reaches all of the Gaussian."""
    centre, root = latent_root(mean, cov, family.shift_invariant)
    d = root.shape[2]

    def log_f(e):
        with np.errstate(all="ignore"):
            value = family.log_prob(centre + e @ root[0].T, y) - 0.5 * np.sum(e**2, axis=-1)
        return np.where(np.isfinite(value), value, -1e300)

    starts = [np.zeros(d), *np.random.default_rng(0).normal(size=(12, d))]
    found = [minimize(lambda e: -log_f(e[None])[0], s, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12,
             "maxiter": 4000}) for s in starts]  # fmt: skip
    e = min(found, key=lambda r: r.fun).x
    size = np.full(d, 1e-3)
    for j in range(d):  # how far f falls by a half, along each axis
        for sign in (-1.0, 1.0):
            h = 1e-6
            while h < 1.0 and log_f((e + sign * h * np.eye(d)[j])[None])[0] > log_f(e[None])[0] - 0.5:
                h *= 1.2
            size[j] = max(size[j], h) if sign > 0 else h
    axes = []
    for j in range(d):
        low, high = (np.arcsinh((sign * REACH - e[j]) / size[j]) for sign in (-1.0, 1.0))
        t = np.linspace(low, high, number)
        axes.append((e[j] + size[j] * np.sinh(t), np.log(size[j] * np.cosh(t) * (t[1] - t[0]) / np.sqrt(2 * np.pi))))
    total = []
    for x, w in zip(*axes[0]):  # the first direction one by one: memory
        rest = np.meshgrid(*[a for a, _ in axes[1:]], indexing="ij")
        nodes = np.stack([np.full(rest[0].shape if rest else (), x), *rest], axis=-1).reshape(-1, d)
        weights = sum(np.meshgrid(*[b for _, b in axes[1:]], indexing="ij"), np.zeros(rest[0].shape if rest else ()))
        total.append(logsumexp(log_f(nodes) + w + np.ravel(weights)))
    return logsumexp(total)


def probability(family, mean, cov, ends, number):
    """P(Y <= end) of every end (2, ...) by the trapezoidal rule over all of the Gaussian."""
    D = mean.shape[1]
    x = np.linspace(-8.0, 8.0, number)
    w = np.exp(-0.5 * x * x)
    root, w = cholesky_root(cov)[0], w / w.sum()
    out = 0.0
    for first, weight in zip(*((x, w) if D > 1 else (np.zeros(1), np.ones(1)))):
        rest = np.meshgrid(*[x] * (D - 1 if D > 1 else 1), indexing="ij")
        weights = np.prod(np.meshgrid(*[w] * len(rest), indexing="ij"), axis=0).ravel()
        kept = weights > 1e-12
        nodes = np.stack([r.ravel()[kept] for r in rest], axis=1)
        nodes = nodes if D == 1 else np.concatenate([np.full((len(nodes), 1), first), nodes], axis=1)
        with np.errstate(all="ignore"):
            F = [family.cdf(mean + nodes @ root.T, y) for y in ends]
        out = out + weight * np.array([weights[kept] @ f for f in F])
    return out


def directions(family):
    return family.latent_dim - family.shift_invariant


# Student's t is in test_sections.py: where its scale is small its density is a needle, which a second grid misses too.
FEW = [
    n for n, (f, example) in FAMILIES.items() if directions(f.resolve(example)) <= 3 and n != "student_t"
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("name", FEW)
def test_densities(name, variance):
    family, mean, cov, trials, y = case(name, variance)
    encoded = family.encode(y)
    fine, other = (density(family, mean, cov, encoded, n) for n in NEAR[directions(family)])
    if not abs(fine - other) < DENSITY:
        pytest.skip(f"the reference itself is off by {abs(fine - other):.0e}")
    off = abs(Predictive(family, mean, cov, trials).log_prob(y)[0] - fine)
    assert off <= DENSITY


# Numbers, counts, numbers with zeros, and parts; angles are in test_predictive_tables.py.
WITH_CDF = [
    n for n, (f, _) in FAMILIES.items() if f.has("cdf") and f.kind != "angles" and not (f.finite or f.countable)
]


@pytest.mark.slow
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("name", WITH_CDF)
def test_ends_of_intervals(name, variance):
    family, mean, cov, trials, _ = case(name, variance)
    ends = np.moveaxis(Predictive(family, mean, cov, trials).interval(0.9)[0], -1, 0)
    found = [probability(family, mean, cov, ends, n) for n in OVER[family.latent_dim]]
    error = np.abs(found[0] - found[1]).max()
    if not error < PROBABILITY:
        pytest.skip(f"the reference itself is off by {error:.0e}")
    low, high = family.support.low, family.support.high
    upto, levels, ends = found[0].reshape(2, -1), np.array([[0.05], [0.95]]), ends.reshape(2, -1)
    step = np.full(ends.shape, family.support.integer) | np.isin(ends, family.support.atoms)
    inside = (ends > max(low, -1e300) + 1e-12) & (ends < min(high, 1e300) * (1.0 - 1e-12))  # else all that floats tell
    off = np.abs(upto - levels)[inside & ~step].max(initial=0.0)
    if step.any():  # such an end is where the distribution function steps over the level
        under = np.maximum(ends - 1.0 if family.support.integer else np.nextafter(ends, 0.0), 0.0)
        before = probability(family, mean, cov, under, OVER[family.latent_dim][0]).reshape(2, -1)
        before = np.where(ends > 0.0, before, 0.0)
        off = max(off, np.maximum(before - levels, levels - upto)[step].max())
    assert off <= PROBABILITY


def coordinate(mean, cov, j, end, number):
    """P(y_j <= end) of a direction in space, and the mass: a grid of the latent's length k and angle t from axis j.

    Given them the angle s of y from that axis has the density k sin(s) exp(k cos(s + t)) I_0(x)/(2 sinh(k)) with
    x = k sin(s) sin(t), times exp(x), which is in exp(k cos(s - t)).
    """
    x, w = np.polynomial.legendre.leggauss(number)
    u = 0.5 + 0.5 * x
    precision, cut = np.linalg.inv(cov), np.arccos(end)
    angle = 2.0 * np.pi * np.arange(number) / number
    # lengths crowd to zero, and angles of the latent, on both sides, to where the direction passes the end
    longest = np.linalg.norm(mean) + 9.0 * np.sqrt(np.linalg.eigvalsh(cov)[-1])
    sides = np.array([[-cut], [np.pi - cut]])
    t, weight = (cut + sides * u**3).ravel(), (np.abs(sides) * 1.5 * u**2 * w).ravel()
    across = [np.multiply.outer(np.sin(t), f(angle)) for f in (np.cos, np.sin)]
    ray = np.insert(np.stack(across, axis=-1), j, np.cos(t)[:, None], axis=-1)
    square, along = np.einsum("tai,ij,taj->ta", ray, precision, ray), ray @ precision @ mean
    s = 0.5 * (cut + np.pi) + 0.5 * (np.pi - cut) * x
    out = np.zeros(2)
    for k, weight_k in zip(longest * u**2, longest * u * w, strict=True):
        normal = np.exp(k * along - 0.5 * (k * k * square + mean @ precision @ mean)).mean(axis=1)
        normal *= weight * weight_k * k * k * np.sin(t) / np.sqrt(2.0 * np.pi * np.linalg.det(cov))
        law = np.exp(k * (np.cos(s - t[:, None]) - 1.0)) * i0e(k * np.sin(s) * np.sin(t[:, None])) * np.sin(s)
        law = law @ (0.5 * (np.pi - cut) * w) * k / -np.expm1(-2.0 * k)
        out += [normal @ law, normal.sum()]
    return out


@pytest.mark.slow
@pytest.mark.parametrize("variance", VARIANCES)
def test_ends_of_coordinates_of_directions(variance):
    family, mean, cov, _, _ = case("von_mises_fisher", variance)
    for j, ends in enumerate(Predictive(family, mean, cov).interval(0.9)[0]):
        for end, level in zip(ends, (0.05, 0.95), strict=True):
            (upto, mass), (other, _) = (coordinate(mean[0], cov[0], j, end, n) for n in (150, 130))
            assert abs(mass - 1.0) < 1e-7 and abs(upto - other) < 0.1 * PROBABILITY
            assert abs(upto - level) <= PROBABILITY


@pytest.mark.slow
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("name", ["categorical", "ordinal", "bernoulli"])
def test_sets_of_classes(name, variance):
    family, mean, cov, _, _ = case(name, variance)
    p = Predictive(family, mean, cov)
    encoded = [family.encode(np.array([label])) for label in range(p.probabilities().shape[1])]
    fine, other = (np.exp([density(family, mean, cov, y, n) for y in encoded]) for n in NEAR[directions(family)])
    error = max(np.abs(fine - other).max(), abs(fine.sum() - 1.0))
    if not error < DENSITY:
        pytest.skip(f"the reference itself is off by {error:.0e}")
    np.testing.assert_allclose(p.probabilities()[0], fine, rtol=0, atol=DENSITY)
    order = np.argsort(-fine)
    size = 1 + int(np.sum(np.cumsum(fine[order]) < 0.9))
    assert sorted(np.flatnonzero(p.interval(0.9)[0])) == sorted(order[:size])
