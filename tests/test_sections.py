"""One number given several latents: laws by sections against fine grids over both latents."""

import numpy as np
import pytest
from scipy.special import gammaincinv, gammaln, logsumexp
from scipy.stats import norm

from cases import FAMILIES
from ggpm import Predictive

NAMES = (
    "gaussian_mean_scale",
    "student_t",
    "gamma_mean_shape",
    "beta_mean_precision",
    "negative_binomial_mean_dispersion",
)
CONTINUOUS = NAMES[:4]


def prediction(name, factor, m=4):
    """Latents like those of a fit, with the variance times a factor."""
    family = FAMILIES[name][0].resolve(FAMILIES[name][1])
    rng = np.random.default_rng(3)
    sd = rng.uniform(0.1, 0.7, (m, 2))
    cov = sd[:, :, None] * sd[:, None, :] * (0.7 * np.eye(2) + 0.3)
    return Predictive(family, rng.normal(size=(m, 2)), factor * cov)


def grid(p, row):
    """Nodes (S, 2) and log weights of one row: equal distances of 0.1 or 1/8 standard deviation, radius 8."""
    L = np.linalg.cholesky(p.latent_cov[row])
    axes = [np.linspace(-8.0, 8.0, 2 * int(np.ceil(8.0 / min(0.125, 0.1 / s))) + 1) for s in (L[0, 0], L[1, 1])]
    x = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    log_w = -0.5 * np.sum(x * x, axis=1)
    kept = log_w > -32.0
    return p.latent_mean[row] + x[kept] @ L.T, log_w[kept] - logsumexp(log_w[kept])


def fine(p, y):
    """Distribution functions and log densities, for y at which likelihoods are not narrower than the grid."""
    F, log_p = [], []
    for row, value in enumerate(y):
        eta, log_w = grid(p, row)
        with np.errstate(all="ignore"):
            F.append(np.exp(log_w) @ np.nan_to_num(p.family.cdf(eta, np.full(len(eta), value))))
            found = p.family.log_prob(eta, np.full(len(eta), value))
        log_p.append(logsumexp(log_w + np.where(np.isfinite(found), found, -np.inf)))
    return np.array(F), np.array(log_p)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("factor", [0.01, 1.0, 9.0])
def test_laws_are_those_of_fine_grids(name, factor):
    p = prediction(name, factor)
    q = 0.8
    y = p.quantile(q)
    F, log_p = fine(p, y)
    if p.family.support.integer:
        before = fine(p, y - 1.0)[0]
        assert np.all((before < q + 1e-6) & (q - 1e-6 < F))
        np.testing.assert_allclose(p.cdf(y), F, atol=1e-5)
    else:
        np.testing.assert_allclose(F, q, atol=2e-5)
    if name not in ("gaussian_mean_scale", "student_t") or factor < 9.0:  # small scales are narrower than the grid
        np.testing.assert_allclose(p.log_prob(y), log_p, atol=1e-6)


@pytest.mark.parametrize("variance", [0.01, 1.0, 25.0, 100.0, 1e4])
@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_normals_with_wide_latents(variance, correlation):
    """Given b the law is normal in closed form, so that one fine sum over b is the truth."""
    family = FAMILIES["gaussian_mean_scale"][0].resolve(np.array([0.0, 1.0]))
    cov = variance * np.array([[1.0, correlation], [correlation, 1.0]])
    p = Predictive(family, np.array([[0.3, -0.2]]), cov[None])
    sd = np.sqrt(variance)
    e = np.linspace(-10.0, 10.0, 2 * int(np.ceil(10.0 / min(0.05, 0.02 / sd))) + 1)
    w = np.exp(-0.5 * e * e) / np.exp(-0.5 * e * e).sum()
    total = np.sqrt(variance * (1.0 - correlation**2) + np.exp(np.minimum(2.0 * (-0.2 + sd * e), 700.0)))
    for q in (0.05, 0.9):
        y = p.quantile(q)
        centre = 0.3 + correlation * sd * e
        np.testing.assert_allclose(w @ norm.cdf(y, centre, total), q, atol=2e-5)
        log_p = logsumexp(norm.logpdf(y, centre, total), b=w)
        np.testing.assert_allclose(p.log_prob(y), log_p, atol=1e-6)


def gamma_law(p, row, y):
    """P(Y <= y), log density of a gamma number of unknown shape: given that, log y - log G is normal, G of mean 1."""
    (a, b), C = p.latent_mean[row], p.latent_cov[row]
    e, v = np.linspace(-9.0, 9.0, 1801), np.linspace(-8.0, 8.0, 2001)
    sd, share = np.sqrt(C[0, 0] - C[0, 1] ** 2 / C[1, 1]), norm.pdf(v) * (v[1] - v[0])
    total = np.zeros(2)
    for weight, step in zip(norm.pdf(e) * (e[1] - e[0]), e * np.sqrt(C[1, 1])):
        k = np.exp(b + step)
        q = gammaincinv(k, norm.cdf(v)) if k < 1e6 else k
        with np.errstate(divide="ignore"):
            small = (norm.logcdf(v) + gammaln(k + 1.0)) / k  # where q is below the floats
            log_G = np.where(q > 1e-280, np.log(q), small) - np.log(k) if k < 1e6 else v / np.sqrt(k) - 0.5 / k
        z = (np.log(y) - log_G - a - C[0, 1] / C[1, 1] * step) / sd
        total += weight * np.array([share @ norm.cdf(z), share @ norm.pdf(z) / (sd * y)])
    return total[0], np.log(total[1])


@pytest.mark.parametrize("name", ["gamma_mean_shape", "negative_binomial_mean_dispersion"])
@pytest.mark.parametrize("variance", [25.0, 100.0])
def test_wide_latents_of_means_and_dispersions(name, variance):
    p = prediction(name, 1.0, m=2)
    p = Predictive(p.family, p.latent_mean, np.tile(variance * np.array([[1.0, 0.3], [0.3, 1.0]]), (2, 1, 1)))
    y = p.quantile(0.7)
    if p.family.support.integer:
        F, log_p = fine(p, y)
        assert np.all(F > 0.7 - 1e-5)
        np.testing.assert_allclose(p.cdf(y), F, atol=3e-5)
    else:  # steps of large shapes lie between the points of a grid
        F, log_p = np.transpose([gamma_law(p, row, y[row]) for row in (0, 1)])
        np.testing.assert_allclose(F, 0.7, atol=5e-6)
    np.testing.assert_allclose(p.log_prob(y), log_p, atol=2e-6)


def scale_mixture(p, row, y, nu, question):
    """log E of a normal's `question` (logpdf or logcdf at y): Student's t has a normal law given a gamma precision."""
    (a, b), C = p.latent_mean[row], p.latent_cov[row]
    s = np.linspace(b - 9.0 * np.sqrt(C[1, 1]), b + 9.0 * np.sqrt(C[1, 1]), 2001)[:, None]
    u = np.linspace(-60.0, 8.0, 1201)  # logarithm of the precision
    log_w = norm.logpdf(s, b, np.sqrt(C[1, 1])) + np.log(s[1] - s[0])
    log_w = log_w + 0.5 * nu * (np.log(0.5 * nu) + u - np.exp(u)) - gammaln(0.5 * nu) + np.log(u[1] - u[0])
    given = a + C[0, 1] / C[1, 1] * (s - b), C[0, 0] - C[0, 1] ** 2 / C[1, 1]
    with np.errstate(over="ignore"):  # of precisions that have no weight
        return logsumexp(log_w + question(y, given[0], np.sqrt(given[1] + np.exp(2.0 * s - u))))


@pytest.mark.parametrize("variance", [1.0, 25.0, 1e4])
def test_student_t_is_a_mixture_of_normals_over_its_precision(variance):
    family = FAMILIES["student_t"][0].resolve(FAMILIES["student_t"][1])
    p = Predictive(family, np.array([[0.3, -0.4]]), variance * np.array([[[1.0, 0.3], [0.3, 0.8]]]))
    for y in (0.35, -79.0):
        expected = scale_mixture(p, 0, y, float(family.phi), norm.logpdf)
        np.testing.assert_allclose(p.log_prob([y]), expected, atol=1e-6)
    low, high = p.interval(0.9)[0]
    F = np.exp([scale_mixture(p, 0, end, float(family.phi), norm.logcdf) for end in (low, high)])
    np.testing.assert_allclose(F, [0.05, 0.95], atol=3e-5)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("factor", [1.0, 9.0])
def test_highest_densities_hold_their_share_of_draws(name, factor):
    p = prediction(name, factor, m=2)
    many = Predictive(p.family, np.repeat(p.latent_mean, 4000, axis=0), np.repeat(p.latent_cov, 4000, axis=0))
    y = many.sample(None, 5)
    if name == "beta_mean_precision":
        y = np.clip(y, 1e-300, 1.0 - 1e-16)
    threshold = p.highest_density(0.9).log_threshold
    inside = many.log_prob(y) >= np.repeat(threshold, 4000)
    # four standard errors of 4000 draws: 0.019
    np.testing.assert_allclose(inside.reshape(2, 4000).mean(axis=1), 0.9, atol=0.019)
    np.testing.assert_array_equal(many.rows(slice(0, 5)).highest_density(0.9).contains(y[:5]), inside[:5])


@pytest.mark.parametrize("name", ["gamma_mean_shape", "beta_mean_precision", "negative_binomial_mean_dispersion"])
def test_laws_of_many_rows_are_those_of_fine_grids(name):
    """Nodes for means that are known well and for others, precisions from small to large."""
    p = prediction(name, 1.0, m=40)
    y = p.sample(None, 1)
    y = np.clip(y, 1e-3, 1.0 - 1e-3) if name == "beta_mean_precision" else np.minimum(y, 20.0)
    F, log_p = fine(p, y)
    np.testing.assert_allclose(p.cdf(y), F, atol=5e-6)
    np.testing.assert_allclose(p.log_prob(y), log_p, atol=1e-6)


def test_quantiles_and_distribution_functions_agree_in_many_rows():
    for name in CONTINUOUS:
        p = prediction(name, 1.0, m=60)
        for q in (0.01, 0.5, 0.95):
            y = p.quantile(q)
            told = (y > 1e-290) & (y < 1.0 - 1e-12) if p.family.support.high == 1.0 else np.full(len(p), True)
            np.testing.assert_allclose(p.rows(told).cdf(y[told]), q, atol=2e-5, err_msg=name)
