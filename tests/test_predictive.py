"""Predictive distributions: normalised, consistent with their own draws, and the same every time."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad, trapezoid
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import kurtosis

from cases import FAMILIES, simulate
from ggpm import GGPRegressor, Predictive, families
from ggpm.families.special.quadrature import matched_nodes
from ggpm.families.support import Circle, Codes, Counts, CountVectors, Simplex, Sphere
from ggpm.learning.recalibration import Recalibration
from ggpm.prediction.recalibrated import Recalibrated


def predictive_for(name, wide=False, m=3, trials=None):
    rng = np.random.default_rng(3)
    family, example = FAMILIES[name]
    family = family.resolve(example)
    D = family.latent_dim
    A = rng.normal(size=(m, D, D))
    cov = np.einsum("iab,icb->iac", A, A) / D + 0.1 * np.eye(D)
    if name in ("beta", "beta_mean_precision"):  # else its mass lies closer to the edges than floating point reaches
        cov *= 0.1
    mean = 0.7 * rng.normal(size=(m, D)) + 0.3
    return Predictive(family, mean, (4.0 if wide else 0.5) * cov, trials)


def total_mass(p):
    """Sum or integral of exp(log_prob) over the support, for one-row predictive distributions."""
    support = p.family.support
    if isinstance(support, Codes):
        k = np.arange(2 if support.n_codes is None else support.n_codes)
        return sum(np.exp(p.log_prob([c])[0]) for c in k)
    if isinstance(support, Counts):
        # the wide tail of counts is summed on a grid that grows
        edges = np.unique(np.concatenate([np.arange(200), np.geomspace(200, 1e9, 20_000).astype(int)]))
        density = np.exp(repeated(p, len(edges)).log_prob(edges))
        return density[:200].sum() + trapezoid(density[199:], edges[199:]) - 0.5 * density[199]
    if isinstance(support, CountVectors):
        d = 2 if support.columns == 2 else p.family.latent_dim
        rows = [r for r in itertools.product(range(5), repeat=d) if sum(r) == 4]
        return sum(np.exp(p.log_prob([r])[0]) for r in rows)
    if isinstance(support, Circle):
        grid = np.linspace(-np.pi, np.pi, 721)[:-1]
        return np.exp(repeated(p, len(grid)).log_prob(grid)).sum() * (grid[1] - grid[0])
    if isinstance(support, Simplex):

        def corner(t):  # the square root map takes the singular edges out
            return np.sin(np.pi * t / 2) ** 2, np.pi * np.sin(np.pi * t / 2) * np.cos(np.pi * t / 2)

        x, w = np.polynomial.legendre.leggauss(60)
        x, w = (x + 1) / 2, w / 2
        a, da = corner(x)
        y, weights = [], []
        for i, j in itertools.product(range(60), range(60)):
            y.append([a[i], (1 - a[i]) * a[j], (1 - a[i]) * (1 - a[j])])
            weights.append(w[i] * da[i] * w[j] * da[j] * (1 - a[i]))
        return np.dot(weights, np.exp(repeated(p, len(y)).log_prob(np.array(y))))
    if isinstance(support, Sphere):
        x, w = np.polynomial.legendre.leggauss(80)
        longitude = np.linspace(0, 2 * np.pi, 121)[:-1]
        height, angle = (g.ravel() for g in np.meshgrid(x, longitude))
        flat = np.sqrt(1 - height**2)
        y = np.stack([flat * np.cos(angle), flat * np.sin(angle), height], axis=1)
        return np.dot(np.tile(w, 120) * 2 * np.pi / 120, np.exp(repeated(p, len(y)).log_prob(y)))
    # one coordinate z in which the support is the real line; tails of scales and shapes that vary reach far
    t = np.linspace(-6.5, 6.5, 12001)
    z, width = np.sinh(t), np.cosh(t)  # up to 330
    if support.high == 1.0:
        y, jacobian = expit(z), expit(z) * expit(-z)
    elif support.low == 0.0:
        y = jacobian = np.exp(z)
    else:
        z = np.linspace(-30.0, 30.0, len(t))
        y, jacobian, width = np.sinh(z), np.cosh(z), (z[1] - z[0]) / (t[1] - t[0])
    inside = (y > support.low) & (y < support.high)
    density = np.exp(repeated(p, np.count_nonzero(inside)).log_prob(y[inside]))
    return np.sum(density * (jacobian * width)[inside]) * (t[1] - t[0])


def repeated(p, times):
    return Predictive(p.family, np.repeat(p.latent_mean, times, 0), np.repeat(p.latent_cov, times, 0))


# Under a wide latent the mass of these lies closer to the edge than floating point reaches; they are compared with
# draws below instead.
VECTORS = ("gaussian, 3 outputs", "multivariate_gaussian", "wishart")  # compared with SciPy and with draws
EDGE = ("beta", "beta_mean_precision", "dirichlet", "dirichlet, exp", "logistic_normal")


SPHERES = ("von_mises_fisher", "dirichlet", "dirichlet, exp")  # whose densities are summed over many directions


@pytest.mark.parametrize(
    "name, wide",
    [
        pytest.param(n, w, marks=[pytest.mark.slow] if n in SPHERES else [])
        for n in FAMILIES
        for w in (False, True)
        if n not in VECTORS and not (w and n in EDGE)
    ],
)
def test_log_prob_is_normalised(name, wide):
    p = predictive_for(name, wide, m=1)
    # D > 2 uses Sobol points: their error is that of 1024 quasi-random points
    tolerance = 2e-2 if p.family.latent_dim > 2 else 1e-4
    np.testing.assert_allclose(total_mass(p), 1.0, atol=tolerance)


@pytest.mark.parametrize(
    "name", ["beta", "dirichlet", "dirichlet, exp", "von_mises", "multinomial", "inverse_gaussian", "wishart"]
)
def test_log_prob_under_a_wide_latent_is_the_average_over_draws(name):
    p = predictive_for(name, wide=True, m=1)
    rng = np.random.default_rng(0)
    trials = np.array([5.0]) if p.family.countable else None
    y = p.family.encode(np.concatenate([np.atleast_1d(Predictive(p.family, p.latent_mean, p.latent_cov, trials)
                                                      .sample(random_state=s)) for s in range(4)]))  # fmt: skip
    eta = rng.multivariate_normal(p.latent_mean[0], p.latent_cov[0], 400_000)[:, None]
    density = np.exp(p.family.log_prob(eta, y))
    average, error = density.mean(axis=0), density.std(axis=0) / np.sqrt(len(eta))
    ours = np.exp(repeated(p, len(y)).log_prob(p.family.decode(y)))
    known = np.isfinite(average)  # a part of 1e-304 has no average of draws
    ours, average, error = ours[known], average[known], error[known]
    # five standard errors of the draws; for 2048 Sobol points in D > 2 a few per cent, most with the exp link,
    # whose likelihood is far from Gaussian over a latent this wide
    slack = 1e-6 if p.family.latent_dim <= 2 else 0.1 if "exp" in name else 0.03
    assert np.all(np.abs(ours - average) < 5 * error + slack * average), (ours, average)


@pytest.mark.parametrize("name", ["gaussian, 3 outputs", "multivariate_gaussian"])
def test_gaussian_closed_form_with_full_covariance(name):
    from scipy.stats import multivariate_normal

    p = predictive_for(name)
    phi = np.asarray(p.family.phi)
    y = np.array([[0.1, -0.4, 1.0]] * 3)
    for i in range(3):
        noise = np.diag(phi) if phi.ndim == 1 else phi
        expected = multivariate_normal(p.latent_mean[i], p.latent_cov[i] + noise).logpdf(y[i])
        np.testing.assert_allclose(p.log_prob(y)[i], expected, rtol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_mean_and_variance_agree_with_draws(name):
    family = FAMILIES[name][0]
    p = predictive_for(name, trials=np.array([7.0, 3.0, 12.0]) if family.countable else None)
    if "inverse_gaussian" in name or name == "gamma_mean_shape":  # the bound below needs a fourth moment of draws
        p = Predictive(p.family, p.latent_mean, 0.05 * p.latent_cov)
    draws = p.sample(60_000, random_state=0)
    mean, var = p.mean(), p.var()
    if isinstance(p.family.support, Circle):
        resultant = np.mean(np.exp(1j * draws), axis=0)
        error = np.angle(np.exp(1j * (np.angle(resultant) - mean)))
        assert np.all(np.abs(error) < 5 / (np.abs(resultant) * np.sqrt(len(draws))))
        np.testing.assert_allclose(1 - np.abs(resultant), var, atol=0.01)
        return
    if isinstance(p.family.support, Sphere):
        resultant = draws.mean(axis=0)
        length = np.linalg.norm(resultant, axis=1)
        np.testing.assert_allclose(resultant / length[:, None], mean, atol=5 / (length.min() * np.sqrt(len(draws))))
        return
    if p.family.finite and mean.ndim == 2:
        frequencies = np.stack([(draws == k).mean(axis=0) for k in range(mean.shape[1])], axis=1)
        np.testing.assert_allclose(frequencies, mean, atol=0.01)
        return
    if p.family.countable and mean.ndim == 1:
        draws = draws[..., 0]
    # five standard errors of the draws' own mean
    error = 5 * draws.std(axis=0) / np.sqrt(len(draws)) + 1e-3
    assert np.all(np.abs(draws.mean(axis=0) - mean) < error)
    empirical = draws.var(axis=0)
    diagonal = var if var.shape == mean.shape else np.einsum("ijj->ij", var)
    kurtosis = np.mean((draws - draws.mean(axis=0)) ** 4, axis=0)
    assert np.all(np.abs(empirical - diagonal) < 6 * np.sqrt(kurtosis / len(draws)) + 1e-3)


@pytest.mark.parametrize("name", FAMILIES)
def test_intervals_hold_their_level(name):
    family = FAMILIES[name][0]
    p = predictive_for(name, trials=np.array([70.0, 30.0, 120.0]) if family.countable else None)
    region = p.interval(0.8)
    draws = p.sample(20_000, random_state=1)
    if p.family.finite:
        inside = np.take_along_axis(region.T, draws.astype(int), axis=0).mean(axis=0)
        assert np.all(inside > 0.78)
        return
    if isinstance(p.family.support, Circle):
        inside = np.mod(draws - region[:, 0], 2 * np.pi) <= np.mod(region[:, 1] - region[:, 0], 2 * np.pi)
    else:
        if p.family.countable and region.ndim == 3 and draws.ndim == 3 and region.shape[1] != draws.shape[2]:
            draws = draws[..., : region.shape[1]]
        inside = (draws >= region[..., 0]) & (draws <= region[..., 1])
    share = inside.mean(axis=0)
    low, high = (0.78, 1.0) if p.family.support.integer else (0.78, 0.82)  # counts jump over the level
    assert np.all((share > low) & (share <= high)), share


def test_the_same_answer_every_time():
    X, y, _ = simulate("dirichlet", n=15)
    a = GGPRegressor("dirichlet", random_state=0).fit(X, y).predict_dist(X)
    b = GGPRegressor("dirichlet", random_state=7).fit(X, y).predict_dist(X)
    np.testing.assert_array_equal(a.mean(), b.mean())
    np.testing.assert_array_equal(a.log_prob(y), b.log_prob(y))
    np.testing.assert_array_equal(a.interval(0.5), b.interval(0.5))


def test_prediction_does_not_plug_in_the_latent_mean():
    p = Predictive(families.Poisson(), np.zeros((1, 1)), np.ones((1, 1, 1)))
    np.testing.assert_allclose(p.mean(), np.exp(0.5), rtol=1e-12)  # E[exp(N(0, 1))]
    np.testing.assert_allclose(p.var(), np.exp(0.5) + np.exp(2) - np.exp(1), rtol=1e-10)


@pytest.mark.parametrize("sd", [0.1, 1.0, 10.0, 30.0])
def test_steep_integrands_in_one_dimension(sd):
    p = Predictive(families.Bernoulli(), np.array([[3.0]]), np.array([[[sd**2]]]))
    grid = np.linspace(-12, 12, 200_001)
    weights = np.exp(-0.5 * grid**2)
    expected = np.sum(weights * expit(3.0 + sd * grid)) / weights.sum()
    np.testing.assert_allclose(p.mean()[0], expected, atol=1e-6)


def test_narrow_likelihood_under_a_wide_latent():
    """log_prob centres its nodes: exact where fixed nodes would miss the likelihood."""
    p = Predictive(families.Gamma(phi=1e-4), np.zeros((1, 1)), np.full((1, 1, 1), 4.0))
    y = 3.0
    exact = quad(
        lambda e: np.exp(families.Gamma(phi=1e-4).log_prob(np.array([[e]]), np.array([y]))[0] - e**2 / 8)
        / np.sqrt(8 * np.pi), np.log(y) - 0.2, np.log(y) + 0.2, epsabs=1e-13)[0]  # fmt: skip
    np.testing.assert_allclose(p.log_prob([y])[0], np.log(exact), atol=1e-8)


def test_batches_give_the_same_as_one_pass(monkeypatch):
    import ggpm.data.rows as posterior_module

    X, y, _ = simulate("categorical", n=30)
    model = GGPRegressor(families.Categorical(n_classes=4), optimizer=None).fit(X, y)
    X_new = np.random.default_rng(0).normal(size=(50, 2))
    whole = (
        model.predict(X_new),
        model.predict_latent(X_new),
        model.predict_dist(X_new).log_prob(np.zeros(50)),
    )
    monkeypatch.setattr(posterior_module, "BATCH_DOUBLES", 2000)
    assert len(list(posterior_module.batches(50, 120))) > 1
    parts = (
        model.predict(X_new),
        model.predict_latent(X_new),
        model.predict_dist(X_new).log_prob(np.zeros(50)),
    )
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-12)
    np.testing.assert_allclose(parts[1][0], whole[1][0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(parts[1][1], whole[1][1], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(parts[2], whole[2], rtol=1e-12)


def test_nodes_integrate_moments():
    for D in (1, 2, 3, 6):
        x, w = matched_nodes(D, "fine")
        np.testing.assert_allclose(w @ x, 0, atol=1e-12)
        np.testing.assert_allclose(np.einsum("s,sa,sb->ab", w, x, x), np.eye(D), atol=1e-10)


def test_cdf_and_quantile_are_inverse():
    p = predictive_for("gamma")
    for q in (0.05, 0.5, 0.99):
        np.testing.assert_allclose(p.cdf(p.quantile(q)), q, atol=1e-5)
    counts = predictive_for("poisson")
    k = counts.quantile(0.5)
    assert np.all(counts.cdf(k) >= 0.5 - 1e-6)
    assert np.all(counts.cdf(np.maximum(k - 1, 0))[k > 0] < 0.5 + 1e-6)
    with pytest.raises(ValueError, match="no order"):
        predictive_for("von_mises_fisher").cdf(np.eye(3))
    with pytest.raises(ValueError, match="between 0 and 1"):
        p.quantile(1.5)
    with pytest.raises(ValueError, match="rows"):
        p.log_prob([1.0])


# ---- regions, distribution functions, classes -----------------------------------------------------------------
@pytest.mark.parametrize("kappa", [0.1, 4.0, 100.0, 1e4, 1e8])
def test_arcs_are_the_shortest_and_exact(kappa):
    """For a known von Mises density the arc is symmetric; the grid interpolates linearly between 4096 points."""
    from scipy.stats import vonmises

    p = Predictive(families.VonMises(), kappa * np.array([[np.cos(3.0), np.sin(3.0)]]), np.zeros((1, 2, 2)))
    start, end = p.interval(0.9)[0]
    width = np.mod(end - start, 2 * np.pi)
    np.testing.assert_allclose(width, vonmises.ppf(0.95, kappa) - vonmises.ppf(0.05, kappa), rtol=2e-5)
    np.testing.assert_allclose(np.mod(3.0 - start, 2 * np.pi), width / 2, rtol=2e-5)
    np.testing.assert_allclose(p.pit([3.0]), 0.5, atol=1e-6)
    assert kappa > 1e3 or end < start  # wide ones wrap around at pi


@pytest.mark.parametrize("mean, sd", [((4.0, 1.0), 1.0), ((0.0, 0.0), 3.0), ((30.0, 10.0), 10.0), ((0.0, 0.0), 300.0)])
def test_arcs_hold_their_share_of_draws(mean, sd):
    cov = sd**2 * np.array([[1.0, 0.3], [0.3, 0.5]])
    p = Predictive(families.VonMises(units="degrees"), np.array([mean]), cov[None])
    start, end = p.interval(0.8)[0]
    draws = p.sample(40_000, 5)[:, 0]
    inside = np.mean(np.mod(draws - start, 360) <= np.mod(end - start, 360))
    assert inside == pytest.approx(0.8, abs=0.025)  # the widest case reads its arc off 4096 draws: sd 0.006
    np.testing.assert_allclose(p.cdf([90.0]), np.mean(draws < 90.0), atol=0.03)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "ordinal", "gamma", "von_mises", "gaussian"])
def test_pit_of_own_draws_is_uniform(name):
    p = predictive_for(name)
    values = np.concatenate([p.pit(d, random_state=i).ravel() for i, d in enumerate(p.sample(300, 1))])
    n = len(values)
    # Kolmogorov's distance exceeds 2/sqrt(n) once in 1500
    assert np.max(np.abs(np.sort(values) - (np.arange(n) + 0.5) / n)) < 2 / np.sqrt(n)


def test_quantiles_of_counts_out_of_n():
    p = Predictive(families.Binomial(), np.array([[0.3], [-1.0]]), 0.5 * np.ones((2, 1, 1)), np.array([10.0, 50.0]))
    draws = p.sample(40_000, 3)[..., 0]
    for q in (0.1, 0.5, 0.9):
        k = p.quantile(q)
        assert np.all(np.mean(draws <= k, axis=0) >= q - 0.01) and np.all(np.mean(draws < k, axis=0) <= q + 0.01)


def test_highest_density_regions_hold_their_share_and_are_the_densest():
    p = predictive_for("dirichlet")
    region = p.highest_density(0.8)
    draws = p.sample(150, 9)
    inside = np.array([region.contains(d) for d in draws])
    assert inside.mean() == pytest.approx(0.8, abs=0.08)  # 150 draws in three rows: two standard errors 0.04
    dense = np.array([p.log_prob(d) for d in draws[:20]])
    for row in range(len(p)):
        inner, outer = dense[inside[:20, row], row], dense[~inside[:20, row], row]
        if inner.size and outer.size:
            assert inner.min() > outer.max() - 0.2  # coarse nodes against fine ones
    with pytest.raises(ValueError, match="no density"):
        predictive_for("poisson").highest_density()
    with pytest.raises(ValueError, match="not classes"):
        p.top_k(2)


def test_angles_have_arcs_and_no_quantiles():
    """cdf counts from the start of the range, arcs hold their level by the same count, and quantile names them."""
    p = Predictive(families.VonMises(units="degrees"), np.array([[9.0, 1.0], [-2.0, -3.0]]), np.stack([np.eye(2)] * 2))
    arcs = p.interval(0.7)
    assert arcs[0, 0] > arcs[0, 1]  # through north
    np.testing.assert_allclose(np.mod(p.cdf(arcs[:, 1]) - p.cdf(arcs[:, 0]), 1.0), 0.7, atol=1e-5)
    np.testing.assert_allclose(p.cdf(np.zeros(2)), 0, atol=1e-12)
    np.testing.assert_allclose(p.cdf(np.full(2, 360 - 1e-7)), 1, atol=1e-8)
    with pytest.raises(ValueError, match=r"no order.*interval\(level\) for the shortest arc"):
        p.quantile(0.5)


@pytest.mark.parametrize("size", [1.5, -1, "3"])
def test_the_number_of_draws_is_a_whole_number(size):
    with pytest.raises(ValueError, match="size must be a whole number"):
        predictive_for("poisson").sample(size)


def test_quantiles_of_counts_beyond_all_integers_end():
    """From 2^53 on there are no odd floats; the median of a log-normal rate is known."""
    p = Predictive(families.Poisson(), np.array([[40.0], [2.0], [0.0]]), np.array([0.25, 1e-12, 1e4])[:, None, None])
    median = p.quantile(0.5)
    np.testing.assert_allclose(median[0], np.exp(40.0), rtol=1e-3)
    assert median[1] == 7  # of a Poisson variable with rate e^2
    assert np.isfinite(median).all() and median[2] <= 1
    low, high = p.interval(0.9).T
    # such rates are steps between nodes of the latent, an eighth of a standard deviation apart
    np.testing.assert_allclose(np.log(high[0] / low[0]), 2 * 1.6449 * 0.5, atol=0.5 / 8)


def test_intervals_far_from_growing_counts_end():
    from sklearn.gaussian_process.kernels import DotProduct

    x = np.arange(1.0, 9.0)[:, None]
    model = GGPRegressor("poisson", DotProduct()).fit(x, np.round(np.exp(0.9 * x[:, 0])))
    low, high = model.predict_dist([[50.0]]).interval(0.9)[0]
    assert 1e15 < low < high < 1e25
    zeros = GGPRegressor("negative_binomial").fit(x, np.zeros(8))
    assert zeros.predict_dist(x).quantile(0.9).shape == (8,)


def test_a_median_is_finite_where_the_mean_is_not():
    """The mean of a log-normal variable with a log-variance of 1e4 is exp(5000)."""
    p = Predictive(families.Gamma(), np.zeros((1, 1)), np.full((1, 1, 1), 1e4))
    assert 0.1 < p.quantile(0.5)[0] < 10.0


@pytest.mark.parametrize("start", [0.0, 90.0, 184.0, 186.0, 300.0])
def test_the_distribution_function_of_angles_stays_one_past_the_mass(start):
    family = families.VonMises(units=(start, start + 360.0))
    mean = 400.0 * np.array([[np.cos(np.deg2rad(185.0)), np.sin(np.deg2rad(185.0))]])
    p = Predictive(family, np.repeat(mean, 12, axis=0), np.zeros((12, 2, 2)))
    at = start + np.array([0.0, 1e-3, 5.0, 30.0, 60.0, 100.0, 180.0, 250.0, 280.0, 300.0, 340.0, 359.99])
    from scipy.stats import vonmises

    around = np.deg2rad(at - 185.0), np.deg2rad(start - 185.0)
    expected = vonmises.cdf(around[0], 400.0) - vonmises.cdf(around[1], 400.0)
    np.testing.assert_allclose(p.cdf(at), expected, atol=1e-6)


def on_a_grid(family, mean, cov, function, spacing=0.02):
    """E[function(eta)] for two latents, by a grid of eighteen standard deviations."""
    x = np.arange(-9.0, 9.0 + spacing / 2, spacing)
    root, total, mass = np.linalg.cholesky(cov), 0.0, 0.0
    for a in x:
        e = np.stack([np.full_like(x, a), x], axis=1)
        w = np.exp(-0.5 * np.sum(e**2, axis=1))
        total, mass = total + w @ function(mean + e @ root.T), mass + w.sum()
    return total / mass


@pytest.mark.parametrize(
    "mean, cov", [([2.0, 0.0], [[100.0, 99.0], [99.0, 100.0]]), ([5.0, 0.0], [[1.0, 0.0], [0.0, 1e4]])]
)
def test_mean_direction_of_elongated_latents(mean, cov):
    family, cov = families.VonMises(units="degrees"), np.array(cov)
    p = Predictive(family, np.array([mean]), cov[None])
    moment = on_a_grid(family, np.array(mean), cov, family.moment, 0.005 if cov.max() > 1e3 else 0.02)
    apart = p.mean()[0] - np.degrees(np.arctan2(moment[1], moment[0]))
    assert abs((apart + 180.0) % 360.0 - 180.0) < 1e-3
    np.testing.assert_allclose(p.var()[0], 1.0 - np.hypot(*moment), atol=1e-5)


@pytest.mark.parametrize("classes, variance", [(50, 25.0), (100, 400.0)])
def test_exchangeable_classes_are_equally_probable(classes, variance):
    family = families.Categorical().resolve(np.arange(classes))
    p = Predictive(family, np.zeros((1, classes)), variance * np.eye(classes)[None]).probabilities()
    np.testing.assert_allclose(p * classes, 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    "family, mean, variance, y, expected",
    [
        (families.Poisson(), 0.0, 25.0, 1e7, -23.8),
        (families.InverseGaussian(phi=0.3), 10.0, 25.0, 1e-8, -0.26),
        (families.Gamma(phi=1e-4), 0.0, 1e4, 1e-8, 12.88),
    ],
)
def test_densities_far_from_the_mean_of_the_latent(family, mean, variance, y, expected):
    found = Predictive(family, np.full((1, 1), mean), np.full((1, 1, 1), variance)).log_prob([y])[0]
    # a grid about the likelihood's own peak: the integrand is next to nothing elsewhere
    centre = float(family.expansion(np.array([y]))[0, 0])
    eta = centre + np.linspace(-2.0, 2.0, 400_001)
    log_f = family.log_prob(eta[:, None], np.array([y])) - 0.5 * (eta - mean) ** 2 / variance
    total = np.log(np.sum(np.exp(log_f - log_f.max())) * (eta[1] - eta[0])) + log_f.max()
    np.testing.assert_allclose(found, total - 0.5 * np.log(2 * np.pi * variance), atol=1e-6)
    assert abs(found - expected) < 0.06


@pytest.mark.parametrize("variance", [0.01, 1.0, 1e4])
def test_probabilities_of_grades_are_those_of_a_fine_grid(variance):
    family = families.Ordinal(phi=[-1.0, 0.0, 2.0])
    p = Predictive(family, np.array([[0.5]]), np.array([[[variance]]]))
    x = np.linspace(-9.0, 9.0, 200_001)
    w = np.exp(-0.5 * x**2)
    grid = w @ family.moment(0.5 + np.sqrt(variance) * x[:, None]) / w.sum()
    np.testing.assert_allclose(p.probabilities()[0], grid, rtol=1e-7)
    np.testing.assert_allclose(p.log_prob([2.0])[0], np.log(grid[2]), atol=1e-7)


@pytest.mark.parametrize("family, trials", [("multinomial", 7.0), ("dirichlet", None)])
def test_covariances_of_shares_are_those_of_the_spread(family, trials):
    """The closed form of cov[y | eta] in shares, folded into one product of matrices, against its entries."""
    rng = np.random.default_rng(0)
    fitted = {"multinomial": families.Multinomial(), "dirichlet": families.Dirichlet()}[family].resolve(
        np.full((1, 4), 0.25) if trials is None else np.ones((1, 4))
    )
    A = 0.4 * rng.normal(size=(3, 4, 4))
    p = Predictive(
        fitted, rng.normal(size=(3, 4)), A @ A.swapaxes(1, 2), None if trials is None else np.full(3, trials)
    )
    x = rng.standard_normal((200_000, 4))
    for i, found in enumerate(p.var()):
        eta = p.latent_mean[i] + x @ np.linalg.cholesky(p.latent_cov[i]).T
        t = None if trials is None else np.full(len(eta), trials)
        exact = np.mean(fitted.spread(eta, t), axis=0) + np.cov(fitted.moment(eta, t).T)
        # Monte Carlo: standard errors are below 0.5 % of the largest entry
        np.testing.assert_allclose(found, exact, atol=0.01 * np.abs(exact).max())
        np.testing.assert_allclose(found.sum(axis=0), 0.0, atol=1e-12 * (trials or 1.0) ** 2)


def ridge_integral(family, var, y, n=81, step=0.08):
    """log E[p(y)] for three latents N(0, var I): sections across the line of equal latents, dense at the ridge."""
    sd, t = np.sqrt(var), np.linspace(-1.0, 1.0, n)
    total = []
    for c in np.arange(-9.0, 9.0, step) * sd:
        width = 1.0 / np.sqrt(1.0 + np.exp(c) * y.min() / y[2])  # of log-ratios, where parts are large
        reach = np.arcsinh((13.0 * np.sqrt(2.0) * sd + 40.0) / width)
        x, log_w = width * np.sinh(reach * t), np.log(width * np.cosh(reach * t) * reach * (t[1] - t[0]))
        a, b = np.meshgrid(np.log(y[0] / y[2]) + x, np.log(y[1] / y[2]) + x, indexing="ij")
        eta = np.stack([c + a, c + b, np.full_like(a, c)], axis=-1)
        log_prior = -0.5 * np.sum(eta**2, axis=-1) / var - 1.5 * np.log(2 * np.pi * var)
        total.append(logsumexp(family.log_prob(eta, y) + log_prior + log_w[:, None] + log_w))
    return logsumexp(total) + np.log(step * sd)


@pytest.mark.parametrize("var", [25.0, pytest.param(100.0, marks=pytest.mark.slow)])
def test_densities_of_compositions_with_wide_latents(var):
    """exp link: a ridge of all sizes of alpha, and a prior far wider than it. Points are off by 0.4 to 11 nats."""
    y = np.array([0.2, 0.3, 0.5])
    family = families.Dirichlet(link="exp").resolve(y[None])
    found = Predictive(family, np.zeros((1, 3)), var * np.eye(3)[None]).log_prob(y[None])[0]
    assert found == pytest.approx(ridge_integral(family, var, y), abs=1e-6)


@pytest.mark.parametrize("var", [0.01, 1.0, 25.0, pytest.param(1e4, marks=pytest.mark.slow)])
def test_densities_of_compositions_with_independent_latents(var):
    """Only Gamma(S) = int exp(S u - e^u) du couples the parts: for every u a product of sums over one latent each."""
    y, mean = np.array([0.7, 0.05, 0.25]), np.array([3.0, -2.0, 0.5])
    x = np.arange(-9.0, 9.0, min(0.04, 0.5 / np.sqrt(var)))
    v = np.arange(-30.0, 8.0, 0.04)
    u = v - np.exp(-v)  # a small sum falls slowly in u
    total = np.log1p(np.exp(-v)) - np.exp(u)
    for m, part in zip(mean, y):
        alpha = np.logaddexp(0.0, m + np.sqrt(var) * x)
        weight = np.log(x[1] - x[0]) - 0.5 * x**2 - 0.5 * np.log(2 * np.pi)
        total += logsumexp(weight - gammaln(alpha) + (alpha - 1.0) * np.log(part) + alpha * u[:, None], axis=1)
    family = families.Dirichlet().resolve(y[None])
    found = Predictive(family, mean[None], var * np.eye(3)[None]).log_prob(y[None])[0]
    assert found == pytest.approx(logsumexp(total) + np.log(0.04), abs=1e-6)


@pytest.mark.parametrize("var", [1.0, 100.0, 1e4])
def test_densities_of_three_classes_add_up(var):
    """Each class is an integral over two contrasts with nodes of its own."""
    rng, family = np.random.default_rng(1), families.Categorical(n_classes=3).resolve(np.arange(3))
    A, mean = rng.normal(size=(8, 3, 5)), rng.normal(size=(8, 3))
    p = Predictive(family, mean, var / 5 * A @ A.swapaxes(1, 2))
    total = sum(np.exp(p.log_prob(np.full(8, k))) for k in range(3))
    np.testing.assert_allclose(total, 1.0, atol=1e-6)


@pytest.mark.parametrize("var, rows", [(0.3, 40), (25.0, 6)])
def test_regions_take_their_own_draws(var, rows):
    family = families.Dirichlet(link="exp").resolve(np.full((1, 3), 1 / 3))
    p = Predictive(family, np.zeros((rows, 3)), np.tile(var * np.eye(3), (rows, 1, 1)))
    inside = p.highest_density(0.9, n_draws=100).contains(p.sample(random_state=1))
    assert inside.mean() == pytest.approx(0.9, abs=3 * np.sqrt(0.09 / rows + 0.09 / 100))  # draws, and its threshold's


@pytest.mark.parametrize(
    "name", ["poisson", "gamma", "multivariate_gaussian", "dirichlet", "von_mises_fisher", "wishart", "hurdle_gamma"]
)
def test_standard_deviations_have_the_shape_of_means(name):
    family = families.get(name)
    family = family.resolve(family.support.example(np.random.default_rng(0), 20))
    D = family.latent_dim
    p = Predictive(family, np.full((3, D), 0.2), np.tile(0.1 * np.eye(D), (3, 1, 1)))
    std, draws = p.std(), p.sample(4000, 0)
    assert std.shape == p.mean().shape
    error = np.sqrt((kurtosis(draws, fisher=False) - 1) / (4 * len(draws)))  # standard error, relative
    np.testing.assert_array_less(np.abs(std / draws.std(axis=0) - 1), 4 * error)


def test_angles_and_classes_have_no_standard_deviation():
    X = np.arange(8.0)[:, None]
    with pytest.raises(ValueError, match=r"angles have no standard deviation: the circular variance is var\(\)"):
        GGPRegressor("von_mises", optimizer=None).fit(X, X[:, 0] / 2).predict(X, return_std=True)
    with pytest.raises(ValueError, match=r"classes have no standard deviation: probabilities\(\)"):
        Predictive(families.Bernoulli(), np.zeros((2, 1)), np.ones((2, 1, 1))).std()


def test_compositions_with_latents_beyond_floats():
    """exp(eta) overflows within the latent's range, shares do not."""
    family = families.Dirichlet(link="exp").resolve(np.full((1, 2), 0.5))
    p = Predictive(family, np.zeros((1, 2)), 1e6 * np.eye(2)[None])
    np.testing.assert_allclose(p.mean(), [[0.5, 0.5]], atol=1e-6)  # by symmetry
    assert np.isfinite(p.sample(100, 0)).all()
    assert np.isfinite(p.interval(0.9)).all()


@pytest.mark.parametrize("name, recalibrated", [("Gaussian", False), ("Gamma", False), ("Gamma", True)])
def test_distribution_functions_of_numbers_end_at_zero_and_one(name, recalibrated):
    p = Predictive(getattr(families, name)(), np.zeros((3, 1)), np.ones((3, 1, 1)))
    if recalibrated:
        p = Recalibrated(p, [Recalibration((0.3,))], np.zeros(3, dtype=int))
    assert p.cdf([-np.inf, 1.0, np.inf]).ravel().tolist() == [0.0, p.cdf(1.0).ravel()[1], 1.0]
    assert p.cdf(np.inf).ravel().tolist() == [1.0] * 3 and p.cdf(-np.inf).ravel().tolist() == [0.0] * 3
    with pytest.raises(ValueError, match="NaN in 1 place"):
        p.cdf([np.nan, 1.0, np.inf])
