"""Priors on hyperparameters: densities, names, and what they stop from running away."""

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPClassifier, GGPRegressor, families
from ggpm.families.weighted import Weighted
from ggpm.learning.priors import HalfT, LogNormal, Priors, Shrunk, names_of, resolve


@pytest.mark.parametrize("value", [0.01, 0.7, 30.0])
def test_densities_against_scipy_in_the_log_coordinate(value):
    log_normal, _ = LogNormal(2.0, 0.7).log_density(np.log(value))
    np.testing.assert_allclose(log_normal, stats.norm(np.log(2.0), 0.7).logpdf(np.log(value)), rtol=1e-12)
    half_t, _ = HalfT(1.5, df=3.0).log_density(np.log(value))
    expected = np.log(2) + stats.t(3.0, scale=1.5).logpdf(value) + np.log(value)
    np.testing.assert_allclose(half_t, expected, rtol=1e-12)


@pytest.mark.parametrize("prior", [LogNormal(2.0, 0.7), HalfT(1.5, 3.0)])
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
    names = names_of(kernels, family)
    theta = np.zeros(len(names))
    found = resolve("auto", names, False, family, theta)
    assert [name for name, prior in zip(names, found.members) if prior] == [
        "0__k1__k1__constant_value", "1__k1__k1__constant_value"
    ]  # fmt: skip
    # standard deviations of 1/2 to 9 cost less than two standard deviations do
    low, high = (
        found.members[0].log_density(np.log(s**2))[0] - found.members[0].log_density(np.log(4.0))[0] for s in (0.5, 9.0)
    )
    assert min(low, high) > -2.1
    assert resolve("auto", names, True, family, theta).members[0] == found.members[0]
    assert resolve(None, names, False, family, theta) is None
    # one kernel for all latents is that of the concentration as well, of which data tell
    shared = names_of(kernels[:1], family)
    assert resolve("auto", shared, False, family, np.zeros(len(shared))) is None
    weighted = Weighted(family.resolve(np.array([0.1, 2.0])))
    assert weighted.latents_without_unit == family.latents_without_unit


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
    found = resolve({"length_scale": LogNormal(1, 1), "phi": HalfT(1)}, names, False, Gamma(), 1.0)
    assert found == Priors((None, LogNormal(1, 1), LogNormal(1, 1), HalfT(1)))
    with pytest.raises(ValueError, match="no learned hyperparameter is called 'period'"):
        resolve({"period": LogNormal(1, 1)}, names, False, Gamma(), 1.0)
    with pytest.raises(TypeError, match="must be LogNormal"):
        resolve({"phi": 3.0}, names, False, Gamma(), 1.0)
    with pytest.raises(ValueError, match="priors must be 'auto'"):
        resolve("weak", names, False, Gamma(), 1.0)
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
