"""Every closed form that a built-in family gives, found by introspection, against its general fallback."""

import itertools

import numpy as np
import pytest
from scipy import integrate
from scipy.special import expit, logit, logsumexp, ndtr

from cases import FAMILIES, simulate
from ggpm import families
from ggpm.families.base import OPTIONAL, Family, ScalarFamily
from ggpm.families.special.class_probabilities import class_probabilities
from ggpm.families.special.quadrature import trapezoid
from ggpm.families.two_parameters import TwoParameters
from ggpm.sites.densities import log_expected_prob

ROWS = 4
# Pairs of methods that a family may compute from the same numbers; the general way is to call both.
TOGETHER = ("log_prob_and_u", "u_and_U", "phi_slopes", "all_derivatives")


def nodes_of(D, per_axis):
    """Gauss-Hermite nodes (S, D) and weights of D standard normals."""
    x, w = np.polynomial.hermite_e.hermegauss(per_axis)
    w = w / w.sum()
    grid = np.stack(np.meshgrid(*[x] * D, indexing="ij"), axis=-1).reshape(-1, D)
    return grid, np.prod(np.stack(np.meshgrid(*[w] * D, indexing="ij"), axis=-1).reshape(-1, D), axis=-1)


def per_axis(D):
    """Enough for 1e-8 where latents have standard deviations below 0.6, and few enough for memory."""
    return {1: 120, 2: 60, 3: 36}.get(D, 20)


def latents(family, seed=0):
    rng = np.random.default_rng(seed)
    D = family.latent_dim
    return rng.normal(size=(ROWS, D)) * 0.7, rng.uniform(0.05, 0.35, (ROWS, D)), rng


def difference(function, x, step=1e-4):
    """Central differences of fourth order of a function (n,) of x (n, D): truncation 1e-16, rounding 1e-12."""
    out = np.empty_like(x)
    for j in range(x.shape[1]):
        h = step * np.eye(x.shape[1])[j]
        near, far = function(x + h) - function(x - h), function(x + 2 * h) - function(x - 2 * h)
        out[:, j] = (8 * near - far) / (12 * step)
    return out


def expectation(family, y, mean, var, average):
    nodes, weights = nodes_of(family.latent_dim, per_axis(family.latent_dim))
    values = family.log_prob(mean + np.sqrt(var) * nodes[:, None, :], y)
    return weights @ values if average == "log p" else logsumexp(values, axis=0, b=weights[:, None])


def compare_first_derivatives(closed, general, mean, var):
    value, d_mean, d_var = closed(mean, var)
    # expectations of the softmax promise eight digits for one trial, and there are up to eleven
    np.testing.assert_allclose(value, general(mean, var), rtol=1e-8, atol=1e-7)
    # differences of the closed form: 1e-12 of its size over steps of 1e-4
    np.testing.assert_allclose(d_mean, difference(lambda m: closed(m, var)[0], mean), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(d_var, difference(lambda v: closed(mean, v)[0], var), rtol=1e-6, atol=1e-7)


# ---- one comparison for every name in OPTIONAL --------------------------------------------------------------------
def expected_log_prob(family, y):
    mean, var, _ = latents(family)
    if family.expected_log_prob(mean, var, y) is None:
        # a setting without a closed form: another setting of the same class has one
        assert type(family)().expected_log_prob(mean, var, y) is not None
        return
    compare_first_derivatives(
        lambda m, v: family.expected_log_prob(m, v, y), lambda m, v: expectation(family, y, m, v, "log p"), mean, var
    )


def expected_log_prob_blocks(family, y):
    """Averages of log p, u and U, whose derivatives in mean and covariance they are, over correlated latents."""
    mean, var, rng = latents(family)
    root = np.tril(rng.normal(size=(ROWS, family.latent_dim, family.latent_dim)), -1) + np.sqrt(var)[
        :, :, None
    ] * np.eye(family.latent_dim)
    nodes, weights = nodes_of(family.latent_dim, 5)  # exact for quadratic functions, the only ones so far
    eta = mean + np.einsum("njk,sk->snj", root, nodes)
    value, u, U = family.expected_log_prob_blocks(mean, root @ root.swapaxes(1, 2), y)
    np.testing.assert_allclose(value, weights @ family.log_prob(eta, y), rtol=1e-12)
    np.testing.assert_allclose(u, np.einsum("s,snj->nj", weights, family.u(eta, y)), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(U.dense(), np.einsum("s,snjk->njk", weights, family.U(eta, y).dense()), rtol=1e-10)


def expected_log_prob_wide(family, y):
    mean, var, rng = latents(family)
    root = np.sqrt(var)[:, :, None] * np.eye(family.latent_dim) + 0.2 * np.tril(
        rng.normal(size=(ROWS, *[var.shape[1]] * 2))
    )
    nodes, weights = nodes_of(family.latent_dim, per_axis(family.latent_dim))
    eta = mean + np.einsum("njk,sk->snj", root, nodes)
    value, u, U = family.expected_log_prob_wide(mean, root @ root.swapaxes(1, 2), y)
    np.testing.assert_allclose(value, weights @ family.log_prob(eta, y), rtol=1e-9)
    np.testing.assert_allclose(u, np.einsum("s,snj->nj", weights, family.u(eta, y)), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(U.dense(), np.einsum("s,snjk->njk", weights, family.U(eta, y).dense()), atol=1e-8)


def expected_log_prob_factorised(family, y):
    mean, var, _ = latents(family)

    def closed(m, v):
        found = family.expected_log_prob_factorised(m, v, y)
        return found.value, found.d_mean, found.d_var

    compare_first_derivatives(closed, lambda m, v: expectation(family, y, m, v, "log p"), mean, var)
    all_of_them = family.expected_log_prob_factorised(mean, var, y, second=True)
    for given, k, at in (("d_mean_mean", 1, "mean"), ("d_mean_var", 1, "var"), ("d_var_var", 2, "var")):
        for j in range(mean.shape[1]):

            def entry(x, k=k, j=j, at=at):
                return closed(*((x, var) if at == "mean" else (mean, x)))[k][:, j]

            want = difference(entry, mean if at == "mean" else var)
            np.testing.assert_allclose(getattr(all_of_them, given)[:, j], want, rtol=1e-6, atol=1e-7, err_msg=given)


def expected_over_last(family, y):
    mean, var, _ = latents(family)
    eta, sd = mean[None], np.sqrt(var[:, -1])
    x, weights = np.polynomial.hermite_e.hermegauss(80)
    nodes = np.repeat(eta, len(x), axis=0)
    nodes[..., -1] += np.multiply.outer(x, sd)
    weights = weights / weights.sum()
    value, u, curvature = family.expected_over_last(eta, sd, y)
    # the second derivative of a table whose values are exact to 1e-11
    np.testing.assert_allclose(value[0], weights @ family.log_prob(nodes, y), rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(u[0], np.einsum("s,snj->nj", weights, family.u(nodes, y)), rtol=1e-8, atol=1e-8)
    want = weights @ family.U(nodes, y).dense()[..., -1, -1]
    np.testing.assert_allclose(curvature[0], want, rtol=1e-6, atol=1e-6)


def log_expected_prob_factorised(family, y):
    mean, var, _ = latents(family)

    def closed(m, v):
        return family.log_expected_prob_factorised(m, v, y, gradient=True)

    compare_first_derivatives(closed, lambda m, v: expectation(family, y, m, v, "p"), mean, var)
    np.testing.assert_array_equal(family.log_expected_prob_factorised(mean, var, y)[0], closed(mean, var)[0])


def full_covariances(family):
    mean, _, rng = latents(family)
    A = 0.3 * rng.normal(size=(ROWS, family.latent_dim, family.latent_dim))
    cov = A @ A.swapaxes(1, 2) + 0.02 * np.eye(family.latent_dim)
    nodes, weights = nodes_of(family.latent_dim, per_axis(family.latent_dim))
    return mean, cov, mean + np.einsum("ijk,sk->sij", np.linalg.cholesky(cov), nodes), weights


def predictive_log_prob(family, y):
    mean, cov, eta, weights = full_covariances(family)
    general = logsumexp(family.log_prob(eta, y), axis=0, b=weights[:, None])
    # noise as narrow as 0.3 standard deviations of the latent: the nodes are right to a few 1e-6
    found = family.predictive_log_prob(mean, cov, y)
    np.testing.assert_allclose(found, general, atol=2e-5)


def fewer_latents(family, y):
    mean, cov, eta, weights = full_covariances(family)
    general = logsumexp(family.log_prob(eta, y), axis=0, b=weights[:, None])
    density, fewer_mean, fewer_cov, fewer_y = family.fewer_latents(mean, cov, y)
    assert fewer_mean.shape[1] < mean.shape[1]
    x, weights = nodes_of(fewer_mean.shape[1], 41)
    eta = fewer_mean + np.einsum("nij,sj->sni", np.linalg.cholesky(fewer_cov), x)
    found = logsumexp(density.log_prob(eta, fewer_y), axis=0, b=weights[:, None])
    np.testing.assert_allclose(found, general, atol=2e-5)  # as above


def predictive_normal(family, y):
    mean, cov, eta, weights = full_covariances(family)
    centre, sd = family.predictive_normal(mean, cov)
    moment = family.moment(eta).reshape(len(eta), *centre.shape)
    spread = family.spread(eta).reshape(len(eta), ROWS, -1)
    d = centre.shape[1]
    within = spread[..., :: d + 1]  # the diagonal of (d, d), or the one variance
    average = np.tensordot(weights, moment, axes=1)
    variance = np.tensordot(weights, within + (moment - average) ** 2, axes=1)
    np.testing.assert_allclose(centre, average, rtol=1e-10, atol=1e-10)  # polynomials: nodes are exact
    np.testing.assert_allclose(sd**2, variance, rtol=1e-10)


def predictive_harmonics(family, y):
    mean, cov, eta, weights = full_covariances(family)
    angles = 2.0 * np.pi * np.arange(64) / 64
    density = np.einsum("s,snt->nt", weights, np.exp(family.log_prob(eta[:, :, None, :], angles)))
    seen = 0
    for rows, c in family.predictive_harmonics(mean, cov):
        want = np.fft.fft(density[rows], axis=1).conj() * 2.0 * np.pi / 64
        np.testing.assert_allclose(c[:, :16], want[:, :16], rtol=0, atol=5e-6)
        seen += len(rows)
    assert seen == ROWS


def predictive_moments(family, y):
    mean, cov, eta, weights = full_covariances(family)
    found = family.predictive_moments(mean, cov)
    if isinstance(family, families.Multinomial):  # narrow latents, which it leaves to averages
        found = class_probabilities(mean, cov)[0], None
    if found is None or np.isnan(found[0]).any():  # it is for independent latents, or narrow ones
        cov = cov if found is None else 0.1 * cov
        nodes, weights = nodes_of(family.latent_dim, per_axis(family.latent_dim))
        cov = cov * np.eye(family.latent_dim)
        eta = mean + np.einsum("ijk,sk->sij", np.sqrt(cov), nodes)
        found = family.predictive_moments(mean, cov)
    average, variance = found
    moment, spread = family.moment(eta), family.spread(eta)
    want = np.tensordot(weights, moment, axes=1)
    # rules as fine as that, and a second order that leaves as much
    rules = {families.Dirichlet: 3e-8, families.Multinomial: 1e-7, families.VonMisesDirectionConcentration: 1e-6}
    atol = max((atol for cls, atol in rules.items() if isinstance(family, cls)), default=0.0)
    np.testing.assert_allclose(average, want, rtol=1e-8, atol=atol)
    if variance is None:
        return
    centred = moment - want
    # entries of matrices have variances, vectors covariances
    between = centred**2 if family.support.row_ndim == 2 else centred[..., :, None] * centred[..., None, :]
    np.testing.assert_allclose(
        variance, np.tensordot(weights, spread + between, axes=1), rtol=1e-7, atol=max(atol, 1e-12)
    )


def natural(family, y):
    eta, _, _ = latents(family)
    (theta, b), (T, log_h) = family.natural(eta), family.statistic(y)
    np.testing.assert_allclose(np.sum(theta * T, axis=-1) - b + log_h, family.log_prob(eta, y), rtol=1e-11, atol=1e-11)


def part_log_prob(family, y):
    """Densities of logits of parts by differences of the distribution function, or by sums over circles of a sphere."""
    eta, _, _ = latents(family)
    low, high = family.support.low, family.support.high
    z = np.linspace(-2.0, 2.0, 5)[:, None] * np.ones(y.shape[1])
    found = family.part_log_prob(eta[:, None], np.broadcast_to(z, (ROWS, *z.shape)))[:, :, 0]  # (rows, d, 5)
    if family.has("cdf"):
        step = 1e-4
        above, below = (family.cdf(eta[:, None], low + (high - low) * expit(z + s)) for s in (step, -step))
        slope = (above - below) / (2 * step)
    else:
        t, angle = low + (high - low) * expit(z[:, 0]), 2 * np.pi * np.arange(64) / 64
        circle = np.sqrt(1 - t**2)[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        slope = np.empty((ROWS, len(t), 3))
        for j in range(3):
            on = np.insert(circle, j, t[:, None], axis=-1)  # the area between two parts is that of a cylinder
            density = np.exp(family.log_prob(eta[:, None, None], on)).mean(axis=-1) * 2 * np.pi
            slope[..., j] = density * (high - low) * expit(z[:, 0]) * expit(-z[:, 0])
    np.testing.assert_allclose(np.exp(found).swapaxes(1, 2), slope, rtol=1e-6, atol=1e-9)


def cdf(family, y):
    """Sums over whole numbers, adaptive quadrature of one number, draws of the parts of vectors."""
    mean, _, rng = latents(family)
    if family.support.integer:
        for i in range(ROWS):
            np.testing.assert_allclose(family.cdf(mean[i], y[i]), _sum_below(family, mean[i], y[i]), rtol=1e-9)
    elif y.ndim == 1 or y.shape[1] == 1:
        for i in range(ROWS):

            def density(v, i=i):
                return float(np.exp(family.log_prob(mean[i : i + 1], np.full(y[:1].shape, v)))[0])

            upper = float(y[i].item())
            low = family.support.low if isinstance(family, families.StudentT) else max(family.support.low, upper - 50.0)
            want = integrate.quad(density, low, upper, epsabs=1e-10, epsrel=1e-10, limit=200)[0]
            np.testing.assert_allclose(family.cdf(mean[i : i + 1], y[i : i + 1]).item(), want, atol=1e-8)
    else:
        size = 40_000
        draws = family.sample(np.broadcast_to(mean, (size, *mean.shape)), rng)
        draws = family.encode(draws.reshape(-1, *draws.shape[2:])).reshape(size, *y.shape)
        share = np.mean(draws <= y, axis=0)
        error = 5 * np.sqrt(np.maximum(share * (1 - share), 1 / size) / size)  # five standard errors of 48 shares
        assert np.all(np.abs(family.cdf(mean, y) - share) <= error)


def _sum_below(family, eta, y):
    """P(Y <= y) for codes and counts; of successes for counts of two kinds."""
    if y.ndim:
        k, total = int(y[0]), y.sum()
        below = np.array([[v, total - v] for v in range(k + 1)])
    else:
        below = np.arange(int(y) + 1.0)
    return np.exp(family.log_prob(eta[None], below)).sum()


def entry_laws(family, y):
    """Means and variances of tanh(k) g + sqrt(g) z/cosh(k) against the family's, g of shape phi/2."""
    eta, _, _ = latents(family)
    moment, spread, seen = family.moment(eta), family.spread(eta), set()
    for law in family.entry_laws():
        which = [*law.log_variances, *(slope for slope, _, _ in law.slopes)]
        ell, k = law.at(eta.T[which])
        k = np.full(len(eta), 700.0) if law.diagonal else k
        variance = np.tanh(k) ** 2 * 2.0 / family.phi + np.cosh(k) ** -2.0
        for entry in law.places:
            np.testing.assert_allclose(np.exp(ell) * np.tanh(k), moment[:, *entry], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(np.exp(2.0 * ell) * variance, spread[:, *entry], rtol=1e-12)
            seen.add(entry)
    assert seen == set(np.ndindex(moment.shape[1:]))


def part_tails(family, y):
    eta, _, _ = latents(family)
    below, above = family.part_tails(eta, y, y)
    np.testing.assert_allclose(below, family.cdf(eta, y), rtol=1e-12)
    np.testing.assert_allclose(1.0 - above, family.cdf(eta, 1.0 - y), rtol=1e-9, atol=1e-12)
    assert np.all(
        family.part_tails(eta - 10.0, *[np.full(y.shape, 1e-300)] * 2)[1] > 0.1
    )  # of which 1 - y tells nothing


def part_laws(family, y):
    """Where one latent is wide enough for them, and fine nodes serve still; narrow ones and "softplus" have none."""
    directions = isinstance(family, families.VonMisesFisher)
    mean, cov = np.array([[0.3, -0.2, 0.8]]), np.diag([1.0, 17.0 if directions else 1.5, 0.9])[None]
    assert family.part_laws(mean, 0.1 * cov) == [None]
    laws = family.part_laws(mean, cov)[0]
    assert (laws is None) == (not directions and family.link == "softplus")
    if laws is not None:
        z = np.linspace(-4.0, 4.0, 9)
        x, weights = trapezoid(3, 0.25, 6.0)
        eta = mean + x * np.sqrt(np.diagonal(cov[0]))
        f = np.exp(family.part_log_prob(eta[None], np.repeat(z[None, :, None], 3, axis=2)))
        want = np.einsum("s,jsg->jg", weights, f[0])
        np.testing.assert_allclose([law.density(z) for law in laws], want, rtol=2e-5)


def scale_terms(family, y):
    """The integral over tau by the trapezoidal rule against log p, the parts of the form against each other."""
    eta, _, _ = latents(family)
    eta, y = eta.T, y.T
    A, B = family.scale_terms(eta, y)
    at, precision, slope = family.scale_mode(B.sum(axis=0), y)
    step = 0.05 / np.sqrt(precision)
    tau = at + step * np.arange(-2000, 2001)[:, None]
    r, h = family.scale_weight(tau[:, None], y)
    with np.errstate(over="ignore"):
        values = (A + r * B + h).sum(axis=1)
    total = logsumexp(values, axis=0) + np.log(step) + family.scale_constant(y)
    np.testing.assert_allclose(total, family.log_prob(eta.T, y.T), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.diff(values[1999:2002], axis=0).sum(axis=0), 0.0, atol=1e-3)  # the mode
    np.testing.assert_allclose(-np.diff(values[1999:2002], n=2, axis=0)[0] / step**2, precision, rtol=1e-2)
    np.testing.assert_allclose((r[2001, 0] - r[1999, 0]) / (2 * step), slope, rtol=1e-2)
    some = slice(1800, 2200, 50)
    factors = family.scale_factor(eta + 0 * tau[some, None], tau[some, None], y)
    np.testing.assert_allclose(factors, (A + r * B + h)[some])
    (A1, A2), (B1, B2) = family.scale_slopes(eta, y)
    ends = [family.scale_terms(eta + e, y) for e in (-1e-4, 1e-4)]
    for first, second, i in ((A1, A2, 0), (B1, B2, 1)):
        np.testing.assert_allclose((ends[1][i] - ends[0][i]) / 2e-4, first, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose((ends[1][i] + ends[0][i] - 2 * (A, B)[i]) / 1e-8, second, rtol=1e-4, atol=1e-4)


def share_spread(family, y):
    """With trials where counts are out of some; matrices of covariances against their one number."""
    eta, _, _ = latents(family)
    for trials in (None, np.arange(1.0, ROWS + 1.0)) if family.countable else (None,):
        p, s = family.moment(eta), family.share_spread(eta, trials)
        want = s[:, None, None] * (p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :])
        np.testing.assert_allclose(family.spread(eta, trials), want, rtol=1e-12, atol=1e-15)


def own_draws(family, y):
    """Quantiles of the densities of the family's own draws against those of random ones, densities by quadrature."""
    mean, cov, _, _ = full_covariances(family)
    n = 1000
    draws = family.own_draws(mean, cov, n)
    rough = draws.rough()
    ranks = rough.argsort(axis=1).argsort(axis=1) / rough.shape[1]
    fine = draws.fine(np.arange(ROWS), np.broadcast_to(np.arange(rough.shape[1]), rough.shape))
    rng, each = np.random.default_rng(0), np.tile(np.arange(ROWS), n)
    eta = mean[each] + np.einsum(
        "nij,nj->ni", np.linalg.cholesky(cov)[each], rng.normal(size=(n * ROWS, mean.shape[1]))
    )
    random = family.encode(family.sample(eta, rng))
    wanted = log_expected_prob(family, mean[each], cov[each], random).reshape(n, ROWS).T
    for level in (0.1, 0.5, 0.9):
        border = np.quantile(fine, level, axis=1)[:, None]
        # four standard errors of the random draws, and as much of the others
        np.testing.assert_allclose(np.mean(wanted < border, axis=1), level, atol=8 * np.sqrt(level * (1 - level) / n))
        # outside a band the rough order decides: by less than the draws themselves are off
        moved = np.where(np.abs(ranks - level) > 0.05, (ranks < level) * 1.0 - (fine < border), 0.0)
        assert np.all(np.abs(moved.mean(axis=1)) < 0.005)
    np.testing.assert_array_equal(draws.fine(np.array([1]), np.array([[7, 3]])), fine[[1]][:, [7, 3]])


def part_mixtures(family, y):
    """Distribution functions of all parts against the shares of draws that are below."""
    mean, cov, _, _ = full_covariances(family)
    rng, n = np.random.default_rng(0), 20_000
    eta = mean + np.einsum("nij,snj->sni", np.linalg.cholesky(cov), rng.normal(size=(n, *mean.shape)))
    draws = family.sample(eta.reshape(-1, mean.shape[1]), rng).reshape(n, ROWS, -1)
    at = family.decode(y)
    found = np.empty(at.size)
    for law in family.part_mixtures(mean, cov):
        z = logit(at.ravel()[law.which])[:, None]
        found[law.which] = ndtr((z - law.location) / law.sd[:, None]) @ law.weights
    wanted = np.mean(draws <= at, axis=0).ravel()
    np.testing.assert_allclose(found, wanted, atol=4 * np.sqrt(0.25 / n))  # four standard errors of the draws


def quick_log_prob(family, y):
    mean, cov, _, _ = full_covariances(family)
    exact = log_expected_prob(family, mean, cov, y)
    found = family.quick_log_prob(mean, cov, np.stack([y, y]))
    np.testing.assert_allclose(found, [exact, exact], atol=0.03)  # Laplace's formula


COMPARE = {f.__name__: f for f in (
    expected_log_prob, expected_log_prob_blocks, expected_log_prob_factorised, expected_log_prob_wide,
    expected_over_last, log_expected_prob_factorised, predictive_harmonics,
    predictive_log_prob, fewer_latents, predictive_normal, predictive_moments, cdf, natural, part_log_prob,
    part_tails, part_laws, part_mixtures, scale_terms, entry_laws, share_spread, own_draws, quick_log_prob,
)}  # fmt: skip


def given(family):
    """Closed forms that a family's class overrides, whatever they are called."""
    names = [name for name in OPTIONAL if family.has(name)]
    base = ScalarFamily if isinstance(family, ScalarFamily) else Family
    together = [n for n in TOGETHER if hasattr(base, n) and getattr(type(family), n) is not getattr(base, n)]
    return names, together


CASES = [(name, form) for name in FAMILIES for form in itertools.chain(*given(FAMILIES[name][0]))]


@pytest.mark.parametrize("name, form", CASES)
def test_closed_form_equals_the_general_way(name, form):
    _, y, family = simulate(name, n=ROWS)
    encoded = family.encode(y)
    if form in TOGETHER:
        return both_at_once(form, family, encoded)
    assert form in COMPARE, f"{form} of {name} is compared with nothing: add it to COMPARE"
    COMPARE[form](family, encoded)


def both_at_once(form, family, y):
    eta, _, _ = latents(family)
    if form == "all_derivatives":
        xi = eta[:, 0]
        got, want = family.all_derivatives(xi, y), (family.derivatives(xi, y), family.phi_derivatives(xi, y))
        for a, b in zip(itertools.chain(*got), itertools.chain(*want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        return
    first, second = {
        "log_prob_and_u": ("log_prob", "u"), "u_and_U": ("u", "U"), "phi_slopes": ("log_prob_phi", "u_phi"),
    }[form]  # fmt: skip
    got = getattr(family, form)(eta, y)
    for a, b in zip(got, (getattr(family, first)(eta, y), getattr(family, second)(eta, y)), strict=True):
        a, b = (v.dense() if hasattr(v, "dense") else v for v in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)  # the promise of every family


class Bare(families.VonMisesFisher):
    """A family without closed forms: those of its parent are the defaults again."""

    latent_dim = 2
    natural, statistic, part_log_prob = Family.natural, Family.statistic, Family.part_log_prob
    predictive_log_prob, predictive_moments = Family.predictive_log_prob, Family.predictive_moments
    part_laws, expected_log_prob_wide = Family.part_laws, Family.expected_log_prob_wide


def test_every_optional_method_is_declared_answers_none_and_is_compared():
    assert set(COMPARE) == set(OPTIONAL)
    bare = Bare()
    eye, y = np.eye(2)[None], np.array([[1.0, 0.0]])
    assert [bare.has(name) for name in OPTIONAL] == [False] * len(OPTIONAL)
    answers = [bare.expected_log_prob(y, y, y), bare.expected_log_prob_blocks(y, eye, y)]
    answers += [bare.expected_log_prob_factorised(y, y, y), bare.cdf(y, y), bare.expected_over_last(y, y, y)]
    answers += [bare.log_expected_prob_factorised(y, y, y), bare.predictive_log_prob(y, eye, y)]
    answers += [bare.natural(y), bare.part_log_prob(y, y), bare.predictive_normal(y, eye)]
    answers += [
        bare.entry_laws(),
        bare.predictive_moments(y, eye),
        bare.predictive_harmonics(y, eye),
        bare.share_spread(y),
        bare.fewer_latents(y, eye, y),
    ]
    answers += [bare.scale_terms(y, y), bare.part_tails(y, y, y), bare.part_mixtures(y, eye), bare.part_laws(y, eye)]
    answers += [bare.expected_log_prob_wide(y, eye, y), bare.own_draws(y, eye, 1), bare.quick_log_prob(y, eye, y[None])]
    parts = [bare.scale_slopes, bare.scale_weight, bare.scale_pinned, bare.scale_mode]
    assert [part(y, y) for part in parts] == [None] * 4 and bare.scale_factor(y, y, y) is bare.scale_constant(y) is None
    assert bare.statistic(y) is None and answers == [None] * len(OPTIONAL)
    with pytest.raises(ValueError, match="'pdf' is not one of the optional methods expected_log_prob"):
        bare.has("pdf")


TWO_PARAMETERS = {name for name, (family, _) in FAMILIES.items() if isinstance(family, TwoParameters)}


def test_what_the_built_in_families_have():
    """Nothing that was compared is lost without being seen here."""
    have = {name: {n for n in FAMILIES if FAMILIES[n][0].has(name)} for name in OPTIONAL}
    assert have["expected_log_prob"] >= {"gaussian", "poisson", "gamma", "inverse_gaussian"}
    assert "multivariate_gaussian" not in have["expected_log_prob"]
    assert have["expected_log_prob_blocks"] == {"multivariate_gaussian", "logistic_normal"}
    assert have["expected_log_prob_factorised"] == {"categorical", "multinomial"}
    assert have["expected_log_prob_wide"] == {"von_mises", "von_mises_fisher"}
    assert have["expected_over_last"] == {"von_mises_direction_concentration"}
    assert have["log_expected_prob_factorised"] == {"categorical"}
    assert have["predictive_normal"] == {"gaussian", "gaussian, 3 outputs", "multivariate_gaussian"}
    assert have["predictive_log_prob"] == have["predictive_normal"] | {
        "log_normal", "logistic_normal", "ordinal", "von_mises", "von_mises_fisher", "categorical",
        "von_mises_direction_concentration", *TWO_PARAMETERS,
    }  # fmt: skip
    assert have["predictive_moments"] == {
        "categorical", "multinomial", "dirichlet_multinomial", "dirichlet", "dirichlet, exp", "logistic_normal",
        "ordinal", "von_mises", "von_mises_direction_concentration", "von_mises_fisher", "wishart",
    }  # fmt: skip
    assert have["predictive_harmonics"] == {"von_mises_direction_concentration"}
    assert have["fewer_latents"] == {"wishart"}
    assert have["part_log_prob"] == {"dirichlet", "dirichlet, exp", "von_mises_fisher"}
    assert have["scale_terms"] == {"dirichlet", "dirichlet, exp", "categorical", "multinomial"}
    assert have["part_tails"] == {"dirichlet", "dirichlet, exp"}
    assert have["part_laws"] == have["part_log_prob"]
    assert have["part_mixtures"] == {"logistic_normal"}
    assert have["entry_laws"] == have["quick_log_prob"] == {"wishart"}
    assert have["own_draws"] == have["predictive_normal"] | {"logistic_normal", "wishart"}
    assert have["natural"] == have["part_log_prob"] | {
        "von_mises", "von_mises_direction_concentration", "categorical", "multinomial", "wishart",
        "gamma_mean_shape", "beta_mean_precision",
    }  # fmt: skip
    assert set(FAMILIES) - have["cdf"] == {
        "categorical", "multinomial", "dirichlet_multinomial", "von_mises", "von_mises_fisher",
        "von_mises_direction_concentration", "logistic_normal", "wishart",
    }  # fmt: skip


class WrongCdf(families.Gamma):
    def cdf(self, eta, y):
        return super().cdf(eta, 1.001 * y)


class WrongExpectation(families.Poisson):
    def expected_log_prob(self, mean, var, y):
        value, d_mean, d_var = super().expected_log_prob(mean, var, y)
        return value, d_mean, 1.001 * d_var


@pytest.mark.parametrize("family, form", [(WrongCdf(phi=0.3), "cdf"), (WrongExpectation(), "expected_log_prob")])
def test_a_wrong_closed_form_fails(family, form):
    assert family.has(form)
    with pytest.raises(AssertionError):
        COMPARE[form](family, np.array([1.0, 2.0, 1.0, 4.0]))
