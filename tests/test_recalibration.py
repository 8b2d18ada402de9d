"""Recalibration: laws of transforms against brute force, corrected predictions against draws and integrals."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from sklearn.gaussian_process.kernels import RBF

import ggpm
from ggpm import GGPClassifier, GGPRegressor, Predictive, families
from ggpm.learning.recalibration import Recalibration, recalibration
from ggpm.prediction import recalibrated
from ggpm.prediction.mixture import Mixture
from ggpm.prediction.recalibrated import Recalibrated
from ggpm.prediction.roots import coordinate

LINEAR = Recalibration((0.3, -0.4, 0.1, 0.2, -0.1, 0.15))
ROUND = Recalibration((-0.4, 0.2, 0.1), circular=True)
FAMILIES = {
    "gaussian": (families.Gaussian(0.3), [0.0, 1.0]),
    "gamma": (families.Gamma(phi=0.5), [0.5, 1.0]),
    "beta": (families.Beta(phi=6.0), [0.2, 0.5]),
    "poisson": (families.Poisson(), [1.0, 2.0]),
    "negative_binomial": (families.NegativeBinomial(phi=0.4), [1.0, 2.0]),
    "binomial": (families.Binomial(), [[1.0, 2.0]]),
    "beta_binomial": (families.BetaBinomial(phi=5.0), [[1.0, 2.0]]),
    "hurdle": (families.Hurdle(families.Gamma(phi=0.3)), [0.0, 2.0]),
    "mean and scale": (families.GaussianMeanScale(), [0.0, 1.0]),
    "angles": (families.VonMises(), [0.0, 1.0]),
}


def corrected(name, m=2, mixed=False):
    family, y = FAMILIES[name]
    family = family.resolve(np.array(y))
    D = family.latent_dim
    mean, cov = np.full((m, D), 0.5), np.broadcast_to(0.2 * np.eye(D), (m, D, D))
    trials = np.resize([7.0, 40.0], m) if family.countable else None
    base = Predictive(family, mean, cov, trials)
    if mixed:
        base = Mixture([base, Predictive(family, mean + 0.6, 0.5 * cov, trials)], np.array([0.6, 0.4]))
    law = ROUND if name == "angles" else LINEAR
    return Recalibrated(base, [law, Recalibration((), law.circular)], np.arange(m) % 2)


# ---- the law ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("law", [LINEAR, ROUND], ids=["numbers", "angles"])
def test_law_is_a_density_with_its_distribution_function_and_quantiles(law):
    u = np.array([0.0, 1e-9, 0.2, 0.77, 1.0])
    for end, found in zip(u, law.cdf(u)):
        whole = integrate.quad(lambda x: np.exp(law.log_density(np.array(x))), 0.0, end, epsabs=1e-13)[0]
        assert found == pytest.approx(whole, abs=1e-11)
    assert law.cdf(np.ones(1))[0] == 1.0
    np.testing.assert_allclose(law.quantile(law.cdf(u)), u, atol=1e-11)
    fine = np.linspace(0, 1, 100_001)
    assert np.exp(law.log_density(fine)).max() <= law.highest < 1.01 * np.exp(law.log_density(fine)).max()


def test_steps_have_the_probability_between_them_and_narrow_ones_the_density():
    before, upto = np.array([0.1, 0.3, 0.4]), np.array([0.6, 0.3 + 1e-5, 0.4])
    found = LINEAR.log_ratio(before, upto)
    assert found[0] == pytest.approx(np.log((LINEAR.cdf(upto[0]) - LINEAR.cdf(before[0])) / 0.5), abs=1e-12)
    assert found[1] == pytest.approx(np.log((LINEAR.cdf(upto[1]) - LINEAR.cdf(before[1])) / 1e-5), abs=1e-6)
    assert found[2] == LINEAR.log_density(upto[2])


def test_learned_law_is_that_of_the_transforms():
    rng = np.random.default_rng(0)
    u = LINEAR.quantile(rng.uniform(size=20_000))
    law = recalibration(u, u)
    grid = np.linspace(0.02, 0.98, 49)
    np.testing.assert_allclose(law.log_density(grid), LINEAR.log_density(grid), atol=0.1)
    # transforms that are known to lie in cells alone say nearly as much
    cells = np.floor(20 * u) / 20
    np.testing.assert_allclose(
        recalibration(cells, cells + 0.05).log_density(grid), law.log_density(grid), atol=0.05
    )  # fmt: skip


def test_mode_is_the_largest_penalised_likelihood():
    """Against a general optimiser, without derivatives, for one spread of the prior."""
    from scipy.optimize import minimize

    from ggpm.learning.recalibration import _Cells, _mode

    rng = np.random.default_rng(1)
    upto = rng.beta(2.0, 3.0, 150)
    before = np.where(np.arange(150) % 2, upto, 0.7 * upto)
    cells = _Cells(before, upto, np.ones(150), False)
    _, found = _mode(cells, 0.2)

    def loss(c):
        law = Recalibration(tuple(c))
        wide = upto - before
        return -np.sum(law.log_ratio(before, upto)[wide == 0]) - np.sum(
            np.log((law.cdf(upto) - law.cdf(before))[wide > 0])
        ) + 0.5 * np.sum(c**2) / 0.04  # fmt: skip

    other = minimize(loss, np.zeros(6), method="BFGS").x
    np.testing.assert_allclose(found, other, atol=1e-4)


def test_nothing_is_learned_from_uniform_transforms_and_few_rows():
    rng = np.random.default_rng(0)
    gains = []
    for n in (40, 400):
        for _ in range(20):
            u, new = rng.uniform(size=n), rng.uniform(size=2000)
            law = recalibration(u, u)
            gains.append(0.0 if law is None else law.log_density(new).mean())
    assert np.mean(gains) > -0.005 and min(gains) > -0.05
    assert recalibration(np.linspace(0, 1, 50), np.linspace(0, 1, 50)) is None


def test_weights_are_repetitions():
    rng = np.random.default_rng(2)
    u = rng.beta(2.0, 2.0, 60)
    twice = recalibration(np.repeat(u, 2), np.repeat(u, 2))
    np.testing.assert_allclose(recalibration(u, u, np.full(60, 2.0)).coefficients, twice.coefficients, atol=1e-7)


# ---- predictions -----------------------------------------------------------------------------------------------------
SLOW = [pytest.param(name, True, marks=pytest.mark.slow) for name in FAMILIES if name != "gamma"]


@pytest.mark.parametrize("name, mixed", [*((name, False) for name in FAMILIES), ("gamma", True), *SLOW])
def test_draws_density_and_distribution_function_agree(name, mixed):
    p = corrected(name, mixed=mixed)
    draws = p.sample(2000, 0)
    rng = np.random.default_rng(0)
    for i in (0, 1):
        own = p.rows(np.full(2000, i))
        assert stats.kstest(own.pit(draws[:, i], rng), "uniform").pvalue > 1e-3
    if name == "angles":
        resultant = np.exp(1j * draws).mean(axis=0)
        np.testing.assert_allclose(p.var(), 1 - np.abs(resultant), atol=0.04)
    else:
        draws = draws[..., 0] if p.family.countable else draws
        sd = draws.std(axis=0)
        np.testing.assert_allclose(p.mean(), draws.mean(axis=0), atol=4 * sd.max() / np.sqrt(2000) + 0.01 * sd.max())
        # four standard errors of the draws' own spread, which long tails make large
        error = np.sqrt((stats.kurtosis(draws, axis=0, fisher=False) - 1.0) / (4 * 2000))
        assert np.all(np.abs(np.sqrt(p.var()) / sd - 1.0) < 4.0 * error + 0.01)
    if not p.family.support.integer:
        region = p.highest_density(0.8)
        inside = np.mean([region.contains(d) for d in draws[:400]], axis=0)
        np.testing.assert_allclose(inside, 0.8, atol=0.06)


@pytest.mark.parametrize("size", [1, 4])
def test_few_draws_of_counts_have_the_same_law_and_cost_few_probabilities(monkeypatch, size):
    """One draw used to ask for the probabilities of all counts up to the largest of any row."""
    rng, m = np.random.default_rng(0), 1000
    parts = [Predictive(families.Poisson(), rng.normal(a, 1.0, (m, 1)), np.full((m, 1, 1), 0.2)) for a in (1.0, 1.5)]
    p = Recalibrated(Mixture(parts, np.array([0.6, 0.4])), [LINEAR], np.zeros(m, dtype=int))
    asked, steps = [], Recalibrated.log_ratio
    monkeypatch.setattr(Recalibrated, "log_ratio", lambda self, y: asked.append(len(self)) or steps(self, y))
    tables, every = [], recalibrated._every_count
    monkeypatch.setattr(recalibrated, "_every_count", lambda q, most: tables.append(most + 1) or every(q, most))
    draws = p.sample(size, 0)
    np.testing.assert_array_equal(draws, p.sample(size, 0))
    assert np.sum([np.sum(most) for most in tables]) + np.sum(asked) < 2 * 3.0 * size * m  # both times
    for drawn in draws:
        assert stats.kstest(p.pit(drawn, rng), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", ["poisson", "negative_binomial"])
def test_moments_of_small_counts_are_sums_over_all_of_them(name):
    family, m = FAMILIES[name][0], 40
    mean = np.linspace(-2.0, 3.0, m)[:, None]
    p = Recalibrated(Predictive(family, mean, np.full((m, 1, 1), 0.2)), [LINEAR], np.zeros(m, dtype=int))
    for i in (0, 15, 30):
        k = np.arange(2000.0)
        probability = np.exp(p.rows(np.full(len(k), i)).log_prob(k))
        first = k @ probability
        assert p.mean()[i] == pytest.approx(first, rel=1e-5)
        assert p.var()[i] == pytest.approx((k - first) ** 2 @ probability, rel=1e-4)


@pytest.mark.parametrize("name", ["gaussian", "gamma", "beta", "mean and scale"])
def test_moments_and_masses_are_integrals_of_the_density(name):
    p = corrected(name, m=1)
    at = coordinate(p.family.support)
    t = np.linspace(*at.there(np.array([p.quantile(1e-8)[0], p.quantile(1 - 1e-8)[0]])), 3001)
    y = at.back(t)
    density = np.exp(p.rows(np.zeros(len(y), dtype=int)).log_prob(y)) * at.slope(y)
    mean = integrate.simpson(y * density, x=t)
    assert integrate.simpson(density, x=t) == pytest.approx(1.0, abs=1e-5)
    assert p.mean()[0] == pytest.approx(mean, abs=1e-3 * p.std()[0])
    assert p.var()[0] == pytest.approx(integrate.simpson((y - mean) ** 2 * density, x=t), rel=3e-3)
    middle = p.quantile(0.5)[0]
    assert integrate.simpson(density[y <= middle], x=t[y <= middle]) == pytest.approx(0.5, abs=5e-3)
    assert p.probability(middle, p.quantile(0.9)[0])[0] == pytest.approx(0.4, abs=1e-5)


def test_moments_of_many_rows_come_from_a_surface():
    family = families.Gamma(phi=0.5)
    rng = np.random.default_rng(0)
    mean, var = rng.normal(size=(900, 1)), rng.uniform(0.01, 0.5, (900, 1, 1))
    p = Recalibrated(Predictive(family, mean, var), [LINEAR], np.zeros(900, dtype=int))
    some = p.rows(slice(0, 20))
    np.testing.assert_allclose(p.mean()[:20], some.mean(), rtol=1e-5)
    np.testing.assert_allclose(p.var()[:20], some.var(), rtol=1e-4)


def all_counts(p):
    """Probabilities of every count of a single row."""
    N = p.trials[0]
    k = np.arange(N + 1)
    return k, np.exp(p.rows(np.zeros(len(k), dtype=int)).log_prob(np.stack([k, N - k], axis=1)))


@pytest.mark.parametrize("name", ["binomial", "beta_binomial"])
@pytest.mark.parametrize("mixed", [False, True])
def test_counts_out_of_trials_have_probabilities_with_their_moments_and_quantiles(name, mixed):
    p = corrected(name, m=4, mixed=mixed)
    for i in (0, 2):
        row = p.rows([i])
        k, probability = all_counts(row)
        assert probability.sum() == pytest.approx(1.0, abs=1e-6)  # distribution functions have seven digits
        mean = k @ probability
        # of an average the correction is that of one distribution with the latent's moments
        near = {"rel": 2e-2} if mixed else {"rel": 1e-5}
        assert row.mean()[0] == pytest.approx(mean, **near)
        assert row.var()[0] == pytest.approx((k - mean) ** 2 @ probability, **near)
        upto = np.cumsum(probability)
        np.testing.assert_allclose(row.cdf([[3.0, k[-1] - 3.0]]), upto[3], atol=1e-6)
        ends = [np.searchsorted(upto, q) for q in (0.05, 0.95)]
        np.testing.assert_array_equal(row.interval(0.9)[0, 0], ends)
        np.testing.assert_array_equal(row.interval(0.9)[0, 1], k[-1] - np.array(ends[::-1]))


@pytest.mark.parametrize("name", ["binomial", "beta_binomial"])
def test_moments_of_many_counts_come_from_surfaces(name):
    rng = np.random.default_rng(0)
    family, m = FAMILIES[name][0], 1500
    trials = np.concatenate([np.full(500, 4.0), rng.integers(50, 400, m - 500)])
    mean, var = rng.normal(size=(m, 1)), rng.uniform(0.01, 0.3, (m, 1, 1))
    p = Recalibrated(Predictive(family, mean, var, trials), [LINEAR], np.zeros(m, dtype=int))
    some = p.rows([0, 1, 2, 500, 501, 502])
    np.testing.assert_allclose(p.mean()[[0, 1, 2, 500, 501, 502]], some.mean(), rtol=1e-3)
    np.testing.assert_allclose(p.var()[[0, 1, 2, 500, 501, 502]], some.var(), rtol=1e-2)


def test_shares_and_fewer_trials_than_were_seen_are_as_before():
    base = Predictive(families.Binomial(), np.full((2, 1), 0.5), np.full((2, 1, 1), 0.2))
    law = Recalibration((0.3, -0.4), fewest=5.0)
    p = Recalibrated(base, [law], np.zeros(2, dtype=int))
    np.testing.assert_array_equal(p.mean(), base.mean())
    np.testing.assert_array_equal(p.var(), base.var())
    np.testing.assert_array_equal(p.sample(3, 0), base.sample(3, 0))
    y = np.array([[2.0, 2.0], [3.0, 2.0]])
    ratio = p.log_ratio(y)
    assert ratio[0] == 0.0 and ratio[1] != 0.0
    some = Predictive(base.family, base.latent_mean, base.latent_cov, y.sum(axis=1))
    shift = Recalibrated(some, [law], np.zeros(2, dtype=int)).mean() - some.mean()
    assert shift[0] == 0.0 and shift[1] > 0.1


def test_moments_beyond_the_floats_stay_there_and_say_nothing():
    base = Predictive(families.Gamma(phi=0.5), np.array([[0.0], [5.0]]), np.array([1e4, 0.1])[:, None, None])
    p = Recalibrated(base, [LINEAR], np.zeros(2, dtype=int))
    assert p.mean()[0] == p.var()[0] == np.inf and np.isfinite(p.mean()[1]) and np.isfinite(p.var()[1])
    assert np.all(np.isfinite(p.interval(0.9))) and np.all(np.isfinite(p.sample(3, 0)))


@pytest.mark.parametrize("family, centre, towards", [("Gamma", 0.0, -8.0), ("Beta", -3.0, -8.0), ("Beta", 3.0, 8.0)])
def test_means_stay_in_the_support(family, centre, towards):
    """An average has what its heaviest member is corrected by, in its own standard deviation, which may be too much."""
    spreads = {"Gamma": (0.01, 50.0), "Beta": (1e4, 0.1)}[family]
    members = [getattr(families, family)(phi=phi) for phi in spreads]
    parts = [Predictive(one, np.full((2, 1), centre), np.zeros((2, 1, 1))) for one in members]
    mixture, law = Mixture(parts, np.array([0.9, 0.1])), Recalibration((towards,))
    p = Recalibrated(mixture, [law, Recalibration(())], np.arange(2))
    support = members[0].support
    assert np.all((p.mean() > support.low) & (p.mean() < support.high)) and p.mean()[1] == mixture.mean()[1]
    end = support.low if towards < 0 else support.high
    assert abs(p.mean()[0] - end) == pytest.approx(0.5 * abs(p.quantile(0.5)[0] - end))


def test_arcs_have_their_probability_and_are_the_shortest():
    p = corrected("angles", m=1)
    start, end = p.interval(0.7)[0]
    assert p.probability(start, end)[0] == pytest.approx(0.7, abs=1e-6)
    theta = np.linspace(-np.pi, np.pi, 4001)
    density = np.exp(p.rows(np.zeros(len(theta), dtype=int)).log_prob(theta))
    assert integrate.simpson(density, x=theta) == pytest.approx(1.0, abs=3e-6)  # tables end at 1e-7 per wave
    centre = p.mean()[0]
    inside = np.abs(np.mod(theta - centre + np.pi, 2 * np.pi) - np.pi) <= np.mod(end - centre, 2 * np.pi)
    assert integrate.simpson(density * inside, x=theta) == pytest.approx(0.7, abs=2e-3)


def test_tails_of_quantiles():
    """A residual of 3e-4 used to end the search: at 1 - 5e-6 the hurdle's quantile was 52."""
    base = corrected("hurdle").base
    for level in (1 - 5e-6, 1e-3, 0.999):
        y = base.quantile(level)
        np.testing.assert_allclose(base.cdf(y) if level > 0.5 else level, level, rtol=1e-9)


# ---- models ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def tailed():
    """Amounts whose noise has longer tails than a gamma's, and a model of them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (160, 1))
    y = np.exp(np.sin(X[:, 0]) + 0.3 * rng.standard_t(2, 160))
    return X, y, GGPRegressor("gamma").fit(X, y)


def test_default_model_is_recalibrated_and_better_for_it(tailed):
    X, y, model = tailed
    rng = np.random.default_rng(1)
    new = rng.uniform(-2, 2, (500, 1))
    there = np.exp(np.sin(new[:, 0]) + 0.3 * rng.standard_t(2, 500))
    plain = GGPRegressor("gamma", recalibration="none").fit(X, y)
    assert plain.fit_.recalibration is None and model.fit_.recalibration is not None
    gain = model.log_predictive_density(new, there) - plain.log_predictive_density(new, there)
    assert gain.mean() > 2 * gain.std() / np.sqrt(500)
    assert model.loo().total > plain.loo().total
    assert abs(np.mean(np.abs(2 * model.predict_dist(new).pit(there) - 1) < 0.9) - 0.9) < 0.04


def test_files_rows_draws_and_updates_keep_it(tailed, tmp_path):
    X, y, model = tailed
    ggpm.save(model, tmp_path / "model.ggpm")
    again = ggpm.load(tmp_path / "model.ggpm")
    assert again.fit_.recalibration == model.fit_.recalibration
    assert np.array_equal(again.predict(X[:5]), model.predict(X[:5]))
    p = model.predict_dist(X)
    np.testing.assert_allclose(p.rows([3, 1]).log_prob(y[[3, 1]]), p.log_prob(y)[[3, 1]], rtol=1e-12)
    draws = model.sample_y(X[:2] * 0.0 + [[0.0], [1e-4]], 300)
    assert np.corrcoef(draws)[0, 1] < 0.9  # noise of two rows is not shared
    assert model.sample_y(X[:3], 2).shape == (3, 2)
    assert GGPRegressor("gamma").fit(X, y).update(X[:1], y[:1]).fit_.recalibration == model.fit_.recalibration
    assert list(model.summary(X[:2]).columns) == ["mean", "sd", "lower", "upper"]
    none = p.rows(slice(0, 0))
    assert none.mean().shape == none.sample().shape == none.quantile(0.5).shape == (0,)


@pytest.fixture(scope="module")
def even():
    """Wins of teams that win about as many games as their strength says, and a model of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(260, 1))
    k = np.clip(np.round(20 / (1 + np.exp(-X[:, 0])) + rng.normal(size=260)), 0, 20)
    y = np.stack([k, 20 - k], axis=1)
    return X, y, GGPRegressor("binomial").fit(X[:160], y[:160])


def test_counts_that_vary_less_than_chance_are_forecast_better(even):
    X, y, model = even
    p = model.predict_dist(X[160:], trials=20)
    assert isinstance(p, Recalibrated) and model.fit_.recalibration.fewest == 20.0
    gain = p.log_prob(y[160:]) - p.base.log_prob(y[160:])
    assert gain.mean() > 3 * gain.std() / 10
    np.testing.assert_array_equal(gain > 0, p.log_ratio(y[160:]) > 0)
    assert np.mean(p.var()) < 0.6 * np.mean(p.base.var())
    assert model.loo().mean > GGPRegressor("binomial", recalibration="none").fit(X[:160], y[:160]).loo().mean


def test_models_of_counts_out_of_trials_answer_what_they_did(even, tmp_path):
    X, y, model = even
    ggpm.save(model, tmp_path / "model.ggpm")
    again = ggpm.load(tmp_path / "model.ggpm")
    assert again.fit_.recalibration == model.fit_.recalibration
    table = again.summary(X[:3], trials=20)
    assert list(table.columns) == ["mean", "sd", "lower", "upper"]
    p = model.predict_dist(X[:3], trials=20)
    np.testing.assert_array_equal(table["sd"], p.std())
    plain = model.predict(X[:3])  # a share
    np.testing.assert_allclose(p.mean() / 20, plain, atol=0.02)
    draws = model.sample_y(X[:3], 300, trials=20, random_state=0)
    assert draws.shape == (3, 2, 300) and np.all(draws.sum(axis=1) == 20)
    np.testing.assert_allclose(draws[:, 0].std(axis=-1), p.std(), rtol=0.25)
    assert np.all(model.sample_y(X[:3], 4).sum(axis=1) == 1)
    assert model.update(X[200:202], y[200:202]).fit_.recalibration is not None
    assert abs(ggpm.calibration(again, X[160:], y[160:]).pit.mean() - 0.5) < 0.1
    assert len(p.rows(slice(0, 0)).mean()) == 0


def test_a_file_with_another_law_is_refused(tailed, tmp_path):
    from ggpm.persistence.fits import law_of

    for packed in (
        {"coefficients": [1e9], "circular": False, "fewest": 0.0},
        {"coefficients": "x", "circular": True, "fewest": 0.0},
        {"coefficients": [0.1], "circular": False, "fewest": -1.0},
        {"coefficients": [0.1], "circular": False},
        [1.0],
    ):
        with pytest.raises(ggpm.LoadError):
            law_of({"recalibration": packed}, families.Gamma())


def test_given_kernels_are_left_alone_unless_asked():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (80, 1))
    y = np.exp(0.4 * rng.standard_t(2, 80))
    from sklearn.gaussian_process.kernels import RBF

    assert GGPRegressor("gamma", RBF()).fit(X, y).fit_.recalibration is None
    assert GGPRegressor("gamma", RBF(), recalibration="loo").fit(X, y).fit_.recalibration is not None
    assert GGPRegressor("gamma").fit(X[:30], y[:30]).fit_.recalibration is None
    assert GGPClassifier(optimizer=None).fit(X, y > 1).fit_.recalibration is None
    with pytest.raises(ValueError, match="recalibration must be one of 'auto', 'none', 'loo'; got 'yes'"):
        GGPRegressor("gamma", recalibration="yes").fit(X, y)


def test_new_labels_have_a_law_of_their_own():
    rng = np.random.default_rng(3)
    firm = np.repeat(np.arange(30), 5)
    level = rng.standard_t(2, 30)[firm]
    X = pd.DataFrame({"x": rng.normal(size=150), "firm": [f"firm {k}" for k in firm]})
    y = level + 0.2 * rng.normal(size=150)
    model = GGPRegressor().fit(X, y)
    (new,) = model.fit_.newcomers
    p = model.predict_dist(pd.concat([X[:2], X[:2].assign(firm="another")]))
    both = [model.fit_.recalibration, new.recalibration]
    expected = [0.0 if law is None else law for law in both]
    assert any(law is not None for law in both)
    ratio = p.log_ratio(np.zeros(4)) if isinstance(p, Recalibrated) else np.zeros(4)
    for row, law in zip((0, 2), expected):
        before, upto = p.base.rows([row]).steps(np.zeros(1))
        assert ratio[row] == pytest.approx(0.0 if law == 0.0 else law.log_ratio(before, upto)[0], abs=1e-12)
    assert np.isfinite(model.loo(groups=X["firm"]).total)


def test_scale_of_y_changes_nothing_else(tailed):
    X, y, model = tailed
    other = GGPRegressor("gamma").fit(X, 1e6 * y)
    np.testing.assert_allclose(other.predict_dist(X[:9]).interval(0.9), 1e6 * model.predict_dist(X[:9]).interval(0.9),
                               rtol=1e-3)  # fmt: skip


def test_numbers_at_a_few_places_are_left_out_one_by_one_and_copies_together():
    """Rounded shares are often the same at the same inputs; rows that come twice say nothing new."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.arange(6.0), 20)[:, None]
    y = np.round(rng.beta(4.0, 4.0, 120), 1).clip(0.1, 0.9)
    places = GGPRegressor("beta", RBF(2.0), optimizer=None, recalibration="loo").fit(X, y)
    assert (
        places.fit_.recalibration is None
    )  # ends were 1.1 times as probable if all of one value were left out together
    X = rng.normal(size=(60, 1))
    y = rng.beta(4.0 + X[:, 0] ** 2, 4.0)
    settings = {"kernel": RBF(1.0), "optimizer": None, "recalibration": "loo"}
    once = GGPRegressor("beta", **settings).fit(X, y, sample_weight=np.full(60, 2.0))
    twice = GGPRegressor("beta", **settings).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    p, q = (m.predict_dist(X).log_prob(y) for m in (once, twice))
    np.testing.assert_allclose(p, q, atol=1e-5)
