"""Priors on hyperparameters: densities, names, and what they stop from running away."""

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPClassifier, GGPRegressor, families, load, save
from ggpm.families.weighted import Weighted
from ggpm.learning.priors import Cost, HalfT, LogNormal, Priors, Shrunk, names_of, resolve


@pytest.mark.parametrize("value", [0.01, 0.7, 30.0])
def test_densities_against_scipy_in_the_log_coordinate(value):
    log_normal, _ = LogNormal(2.0, 0.7).log_density(np.log(value))
    np.testing.assert_allclose(log_normal, stats.norm(np.log(2.0), 0.7).logpdf(np.log(value)), rtol=1e-12)
    half_t, _ = HalfT(1.5, df=3.0).log_density(np.log(value))
    expected = np.log(2) + stats.t(3.0, scale=1.5).logpdf(value) + np.log(value)
    np.testing.assert_allclose(half_t, expected, rtol=1e-12)


@pytest.mark.parametrize("prior", [LogNormal(2.0, 0.7), HalfT(1.5, 3.0), Cost(2.0, 0.2)])
def test_derivatives(prior):
    for t in (-2.0, 0.1, 3.0):
        numeric = (prior.log_density(t + 1e-6)[0] - prior.log_density(t - 1e-6)[0]) / 2e-6
        np.testing.assert_allclose(prior.log_density(t)[1], numeric, rtol=1e-6, atol=1e-8)


def separable(n=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 1))
    return X, (X[:, 0] > 0).astype(int)


def test_priors_stop_the_scale_of_separable_classes_and_can_be_switched_off():
    X, y = separable()
    free, held = GGPClassifier(priors=None).fit(X, y), GGPClassifier().fit(X, y)
    variance = {m: np.exp(m.theta_[0]) for m in (free, held)}
    assert variance[free] > 3e3  # runs away: the latent has a standard deviation of more than 50 on the logit scale
    assert variance[held] < 1e3
    # the evidence itself is not touched by the prior
    assert free.log_marginal_likelihood_value_ > held.log_marginal_likelihood_value_
    np.testing.assert_allclose(
        held.log_marginal_likelihood(free.theta_), free.log_marginal_likelihood_value_, rtol=1e-6
    )  # fmt: skip


def test_no_default_prior_where_the_user_chose_the_kernel():
    X, y = separable()
    a, b = (GGPClassifier(1.0 * RBF(1.0, (0.1, 10)), priors=p).fit(X, y).theta_ for p in ("auto", None))
    np.testing.assert_array_equal(a, b)
    a, b = (GGPRegressor(kernel=1.0 * RBF(), priors=p).fit(X, 1e3 * X[:, 0]).theta_ for p in ("auto", None))
    np.testing.assert_array_equal(a, b)


def test_variances_of_a_direction_have_a_prior_with_given_kernels_too():
    family = families.get("von_mises_direction_concentration")
    kernels = [ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(9.0, "fixed")] * 3
    names, theta = names_of(kernels, family), np.zeros(6)
    found = resolve("auto", kernels, False, family, theta)
    direction = found.members[0]
    assert [name for name, prior in zip(names, found.members) if prior == direction] == [
        "0__k1__k1__constant_value",
        "1__k1__k1__constant_value",
    ]
    # standard deviations of 1/2 to 9 are within two of the prior's
    for s in (0.5, 9.0):
        assert direction.log_density(np.log(s**2))[0] > direction.log_density(np.log(4.0))[0] - 2.1
    assert resolve("auto", kernels, True, family, theta).members[0] == direction
    assert resolve(None, kernels, False, family, theta) is None
    # one kernel for all latents is that of the concentration as well, of which data tell
    assert resolve("auto", kernels[:1], False, family, theta[:2]) is None
    weighted = Weighted(family.resolve(np.array([0.1, 2.0])))
    assert resolve("auto", kernels, False, weighted, theta) == found


@pytest.mark.parametrize("name", ["gaussian_mean_scale", "zero_one_inflated_beta", "von_mises_direction_concentration"])
def test_parameters_after_the_first_cost_what_they_vary(name):
    family = families.get(name)
    D = family.latent_dim
    kernels = [ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(1.0)] * D
    names = names_of(kernels, family)
    found = resolve("auto", kernels, False, family, np.zeros(len(names)))
    first = D - len(family.parameters) + 1
    wanted = [f"{j}__k1__k1__constant_value" for j in range(first, D)]  # not the levels
    assert [name for name, prior in zip(names, found.members) if isinstance(prior, Cost)] == wanted
    assert found.members[names.index(wanted[0])].mode == -np.inf


def test_a_parameter_that_does_not_vary_costs_nothing():
    """By the evidence alone noise is taken for a function of the inputs, and leave-one-out densities lose by it."""
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(size=100))[:, None]
    y = np.sin(6 * X[:, 0]) + 0.5 * rng.normal(size=100)
    kernel = ConstantKernel(1.0) * RBF(0.3) + ConstantKernel(9.0, "fixed")
    free, held = (GGPRegressor("gaussian_mean_scale", [kernel] * 2, priors=p).fit(X, y) for p in (None, "auto"))
    assert np.exp(free.theta_[2]) > 0.01 > np.exp(held.theta_[2])
    loo = [model.loo(neighbours=0, hyperparameters="left out").total for model in (free, held)]
    assert loo[1] > loo[0]


RARE = {"zeros": [], "one": [1], "a three": [3], "three": [1, 4, 20], "five": [1, 2, 5, 9, 30]}


@pytest.mark.parametrize("name", RARE)
def test_rare_counts_have_about_their_mean(name):
    """They become likely under any mean as phi grows: the mean was that of the prior, 7 for one event in 200 rows."""
    rng, y = np.random.default_rng(1), np.zeros(200)
    X = rng.normal(size=(200, 2))
    y[rng.choice(200, len(RARE[name]), replace=False)] = RARE[name]
    found = GGPRegressor("negative_binomial").fit(X, y).predict(X[:5])
    if name == "zeros":
        assert np.all((found > 0) & (found < 0.005))  # less than one event
    else:
        np.testing.assert_allclose(found, y.mean(), rtol=0.25)


@pytest.mark.parametrize("phi", [0.3, 3.0])
def test_counts_that_show_their_dispersion_hardly_notice_its_prior(phi):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    mu = np.exp(1.0 + np.sin(X[:, 0]) + 0.3 * X[:, 1])
    y = rng.negative_binomial(1 / phi, 1 / (1 + phi * mu))
    held = GGPRegressor("negative_binomial", averaging="none", recalibration="none").fit(X, y)
    free = clone(held).set_params(kernel=held.kernel_, priors=None).fit(X, y)
    np.testing.assert_allclose(held.family_.phi, free.family_.phi, rtol=0.1)
    np.testing.assert_allclose(held.predict(X), free.predict(X), rtol=0.05)


def test_dispersions_have_a_default_prior_inside_other_families_too():
    phi = {}
    for family in (families.NegativeBinomial(), families.ZeroInflated(families.NegativeBinomial()), families.Gamma()):
        found = resolve("auto", [RBF()] * len(family.parameters), True, family.resolve(np.ones(3)), np.zeros(3))
        phi[repr(family)] = found.members[-1]
    assert list(phi.values()) == [LogNormal(1.0, 2.0), LogNormal(1.0, 2.0), None], phi


def test_a_users_prior_moves_the_optimum_towards_it():
    X = np.linspace(0, 4, 25)[:, None]
    y = np.sin(X[:, 0])
    kernel = ConstantKernel(1.0) * RBF(1.0)
    free = GGPRegressor(kernel=kernel).fit(X, y)
    tight = GGPRegressor(kernel=kernel, priors={"length_scale": LogNormal(0.3, 0.01)}).fit(X, y)
    np.testing.assert_allclose(np.exp(tight.theta_[1]), 0.3, rtol=0.1)
    assert abs(np.exp(free.theta_[1]) - 0.3) > 0.5


def test_map_gradient_is_that_of_objective_plus_prior():
    X = np.linspace(0, 4, 12)[:, None]
    model = GGPRegressor(
        "poisson", 1.0 * RBF(1.0), priors={"length_scale": HalfT(1.0), "constant_value": LogNormal(1, 1)}
    )
    model.set_params(optimizer=None).fit(X, np.arange(12))
    evidence = model.fit_.evidence
    gradient = evidence.learn()[1]
    for k, step in enumerate(1e-5 * np.eye(2)):
        above, below = (evidence.at(evidence.theta + s).learn()[0] for s in (step, -step))
        np.testing.assert_allclose(gradient[k], (above - below) / 2e-5, rtol=1e-6)


def test_names_and_errors():
    kernel = ConstantKernel(1.0) * RBF([1.0, 2.0])
    from ggpm.families import Gamma

    names = names_of([kernel], Gamma())
    assert names == ["k1__constant_value", "k2__length_scale", "k2__length_scale", "phi"]
    found = resolve({"length_scale": LogNormal(1, 1), "phi": HalfT(1)}, [kernel], False, Gamma(), 1.0)
    assert found == Priors((None, LogNormal(1, 1), LogNormal(1, 1), HalfT(1)))
    with pytest.raises(ValueError, match="no learned hyperparameter is called 'period'"):
        resolve({"period": LogNormal(1, 1)}, [kernel], False, Gamma(), 1.0)
    with pytest.raises(TypeError, match="must be LogNormal"):
        resolve({"phi": 3.0}, [kernel], False, Gamma(), 1.0)
    with pytest.raises(ValueError, match="priors must be 'auto'"):
        resolve("weak", [kernel], False, Gamma(), 1.0)
    with pytest.raises(ValueError, match="sigma must be a positive number"):
        LogNormal(1.0, 0.0)


def test_heights_compare_priors_of_one_length_scale_and_of_several():
    """At the mode all cost nothing; off it, several that moved together cost no more than the one they stand for."""
    one, several = Priors((LogNormal(2.0, 1.5),)), Priors((None,) * 4, ((slice(0, 4), Shrunk(2.0, 1.5, 1.0)),))
    assert one.height(np.log([2.0])) == several.height(np.full(4, np.log(2.0))) == 0.0
    together, apart = several.height(np.full(4, np.log(6.0))), several.height(np.log([6.0, 2.0 / 3.0, 6.0, 2.0 / 3.0]))
    assert one.height(np.log([6.0])) <= together < 0.0
    assert apart < together
    half = Priors((HalfT(3.0),))
    grid = np.linspace(-2.0, 4.0, 601)
    best = max(half.log_density(np.array([t]))[0] for t in grid)
    assert half.height(np.array([0.0])) == pytest.approx(half.log_density(np.zeros(1))[0] - best, abs=1e-4)


def test_priors_are_stored_with_the_model(tmp_path):
    X = np.linspace(0, 1, 6)[:, None]
    given = {"constant_value": Cost(1.0, 0.5), "length_scale": HalfT(2.0)}
    model = GGPRegressor("poisson", 1.0 * RBF(), optimizer=None, priors=given).fit(X, np.arange(6))
    save(model, tmp_path / "model.ggpm")
    assert load(tmp_path / "model.ggpm").get_params()["priors"] == given
    with pytest.raises(ValueError, match="scale must be a positive number"):
        Cost(2.0, 0.0)
