"""Properties that hold for any input, tried on inputs that hypothesis makes: families, kernels, regions."""

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, RationalQuadratic, WhiteKernel  # noqa: E402

from cases import simulate  # noqa: E402
from ggpm import Predictive, families  # noqa: E402
from ggpm.kernels import Category, Cyclic, On, Sphere, evaluate  # noqa: E402
from ggpm.kernels.text import kernel_from_text, kernel_text  # noqa: E402
from ggpm.prediction.compare import stacking_weights  # noqa: E402
from ggpm.prediction.pareto import pareto_k  # noqa: E402

FEW = settings(derandomize=True, deadline=None, max_examples=25, database=None)
MANY = settings(FEW, max_examples=80)
numbers = st.floats(-20, 20)
positive = st.floats(1e-3, 1e3)


# ---- families --------------------------------------------------------------------------------------------------------
SCALAR = ["gaussian", "poisson", "gamma", "bernoulli", "negative_binomial", "inverse_gaussian", "beta", "ordinal"]
RESOLVED = {name: simulate(name, n=20, seed=0) for name in [*SCALAR, "von_mises", "dirichlet", "categorical"]}


@pytest.mark.parametrize("name", RESOLVED)
@FEW
@given(data=st.data())
def test_u_is_the_slope_of_the_density_anywhere(name, data):
    _, y, family = RESOLVED[name]
    y = family.encode(y)
    i = data.draw(st.integers(0, len(y) - 1))
    eta = np.array([[data.draw(st.floats(-6, 6)) for _ in range(family.latent_dim)]])
    h = 1e-5 * np.maximum(1.0, np.abs(eta))
    for j in range(family.latent_dim):
        step = np.zeros_like(eta)
        step[0, j] = h[0, j]
        slope = (family.log_prob(eta + step, y[[i]]) - family.log_prob(eta - step, y[[i]])) / (2 * h[0, j])
        size = 1.0 + abs(family.log_prob(eta, y[[i]])[0]) + np.abs(family.u(eta, y[[i]])).max()
        np.testing.assert_allclose(family.u(eta, y[[i]])[0, j], slope[0], atol=1e-5 * size)


@pytest.mark.parametrize("name", RESOLVED)
@FEW
@given(data=st.data())
def test_expected_curvature_is_never_indefinite_and_encode_is_undone(name, data):
    _, y, family = RESOLVED[name]
    eta = np.array([[data.draw(numbers) for _ in range(family.latent_dim)]])
    encoded = family.encode(y)
    U = family.U(eta, encoded[:1], expected=True).dense()[0]
    assert np.linalg.eigvalsh(U)[0] >= -1e-9 * max(1.0, np.abs(U).max())
    np.testing.assert_allclose(family.encode(family.decode(encoded)), encoded, atol=1e-9)


@MANY
@given(y=st.floats(-1e6, 1e6), turns=st.integers(-1000, 1000), units=st.sampled_from(["radians", "degrees", (0, 24)]))
@pytest.mark.filterwarnings("ignore:expected angles")
def test_angles_do_not_count_turns(y, turns, units):
    family = families.VonMises(units=units)
    period = family.support.period
    eta = np.array([[1.3, -0.4]])
    here, there = (family.log_prob(eta, family.encode(np.array([v])))[0] for v in (y, y + turns * period))
    np.testing.assert_allclose(here, there, atol=1e-6)
    assert family.support.decode_start() <= family.decode(family.encode(np.array([y])))[0]


# ---- kernels ---------------------------------------------------------------------------------------------------------
leaves = st.one_of(
    st.builds(lambda s: ConstantKernel(s), positive),
    st.builds(lambda s: On(RBF(s), "a"), positive),
    st.builds(lambda s, nu: On(Matern(s, nu=nu), ["a", "b"]), positive, st.sampled_from([0.5, 1.5, 2.5, 0.7])),
    st.builds(lambda s, a: On(RationalQuadratic(s, alpha=a), "b"), positive, positive),
    st.builds(lambda s: On(Cyclic(24.0, length_scale=s), "a"), st.floats(0.1, 10)),
    st.builds(lambda s: On(Sphere(length_scale=s), ["a", "b"]), st.floats(0.1, 10)),
    st.just(Category("c")),
    st.builds(lambda s: WhiteKernel(s), positive),
)
kernels = st.recursive(
    leaves,
    lambda inner: st.one_of(st.builds(lambda a, b: a + b, inner, inner), st.builds(lambda a, b: a * b, inner, inner)),
    max_leaves=5,
)


def placed(kernel):
    from ggpm.data.columns import Columns
    from ggpm.kernels import placed

    return placed(kernel, Columns(3, ("a", "b", "c")))


ROWS = np.column_stack([np.linspace(-80, 80, 9), np.linspace(-170, 170, 9) ** 2 / 180, np.arange(9) % 3.0])


@MANY
@given(kernel=kernels)
def test_kernel_matrices_are_symmetric_and_never_indefinite(kernel):
    K = evaluate(placed(kernel), ROWS).K
    np.testing.assert_allclose(K, K.T, rtol=1e-12)
    np.testing.assert_allclose(np.diag(K), placed(kernel).diag(ROWS), rtol=1e-9)
    assert np.linalg.eigvalsh(K)[0] >= -1e-9 * np.trace(K)


@MANY
@given(kernel=kernels)
def test_kernels_survive_as_text(kernel):
    again = kernel_from_text(kernel_text(kernel))
    np.testing.assert_allclose(again.theta, kernel.theta, rtol=1e-12)
    np.testing.assert_allclose(evaluate(placed(again), ROWS).K, evaluate(placed(kernel), ROWS).K, rtol=1e-9)


# ---- regions ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["gaussian", "poisson", "gamma", "von_mises"])
@FEW
@given(data=st.data())
def test_regions_are_nested_and_hold_their_share(name, data):
    _, _, family = RESOLVED[name]
    D = family.latent_dim
    mean = np.array([[data.draw(st.floats(-3, 3)) for _ in range(D)]])
    sd = data.draw(st.floats(0.01, 1.0))
    p = Predictive(family, mean, sd**2 * np.eye(D)[None])
    low, high = sorted((data.draw(st.floats(0.05, 0.95)), data.draw(st.floats(0.05, 0.95))))
    (a, b), (A, B) = p.interval(low)[0], p.interval(high)[0]
    if name == "von_mises":
        turn = 2 * np.pi
        inner, outer = np.mod(b - a, turn), np.mod(B - A, turn)
        assert inner <= outer + 1e-6
    else:
        assert A - 1e-9 <= a <= b <= B + 1e-9
    inside = p.probability(A, B)[0]
    assert inside >= high - 1e-3  # tables know probabilities to 1e-4 and better
    if name != "poisson":  # counts jump over their level
        assert inside <= high + 1e-3


# ---- weights ---------------------------------------------------------------------------------------------------------
densities = st.lists(st.lists(st.floats(-50, 5), min_size=3, max_size=3), min_size=1, max_size=20)


@FEW
@given(values=densities, shift=st.floats(-9, 9))
def test_stacking_weights_are_on_the_simplex_and_know_no_unit(values, shift):
    values = np.array(values)

    def height(w):
        return np.logaddexp.reduce(values + np.log(w + 1e-300), axis=1).sum()

    w = stacking_weights(values)
    assert np.all(w >= 0) and abs(w.sum() - 1) < 1e-9
    best = values.sum(axis=0).max()
    assert height(w) >= best - 1e-6 * max(1.0, abs(best))  # a mixture is no worse than its best member
    np.testing.assert_allclose(height(stacking_weights(values + shift)), height(w), atol=1e-6 * max(1.0, abs(best)))


@MANY
@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 3), shift=st.floats(-500, 500))
def test_k_knows_no_constant_factor(seed, scale, shift):
    x = scale * np.random.default_rng(seed).normal(size=300)
    np.testing.assert_allclose(pareto_k(x), pareto_k(x + shift), atol=1e-6)
