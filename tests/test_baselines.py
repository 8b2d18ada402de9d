"""The methods the paper compares with: each against what it must be by construction."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from ggpm.paper import baselines
from ggpm.paper.baselines import wrap


@pytest.fixture
def angles():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (30, 2))
    return X, wrap(2.5 * X[:, 0] + X[:, 1] + 0.05 * rng.standard_normal(30))


def test_wrap_brings_angles_into_the_half_open_range():
    a = np.linspace(-20, 20, 401)
    assert np.all(wrap(a) >= -np.pi) and np.all(wrap(a) < np.pi)
    assert np.allclose(np.exp(1j * wrap(a)), np.exp(1j * a), atol=1e-13)
    assert wrap(np.pi) == -np.pi


def test_gpr_on_the_angle_is_scikit_learns(angles):
    X, y = angles
    model = baselines.AngleGPR().fit(X, y)
    learned = model.gp_.kernel_ + WhiteKernel(model.gp_.family_.phi)
    reference = GaussianProcessRegressor(learned, optimizer=None, alpha=0.0).fit(X, y)
    assert model.log_marginal_likelihood_value_ == pytest.approx(reference.log_marginal_likelihood_value_, rel=1e-9)
    assert np.allclose(model.predict(X), wrap(reference.predict(X)), atol=1e-8)


def test_gpr_on_cos_and_sin_crosses_the_cut_that_stops_gpr_on_the_angle(angles):
    X, y = angles
    X_test = np.random.default_rng(1).uniform(-1.8, 1.8, (200, 2))
    truth = 2.5 * X_test[:, 0] + X_test[:, 1]

    def error(model):
        return np.abs(wrap(model.fit(X, y).predict(X_test) - truth)).mean()

    assert error(baselines.CosSinGPR()) < 0.5 * error(baselines.AngleGPR())


def test_quadratic_constraint_is_implicit_and_the_sign_comes_from_the_nearest_neighbour(angles):
    X, y = angles
    model = baselines.ConstrainedAngleGP().fit(X, y)
    X_test = np.random.default_rng(2).uniform(-2, 2, (50, 2))
    products = model.predict_products(X_test)
    assert np.allclose(np.trace(products, axis1=1, axis2=2), 1.0, atol=1e-9)  # |v|^2 = 1 without being told
    predicted = model.predict(X_test)
    v = np.stack([np.cos(predicted), np.sin(predicted)], axis=1)
    top = np.linalg.eigvalsh(products)[:, -1]
    assert np.allclose(np.einsum("ij,ijk,ik->i", v, products, v), top, atol=1e-9)
    assert np.all(np.abs(wrap(predicted - model.neighbor_.predict(X_test))) <= np.pi / 2 + 1e-12)


def test_linear_constraint_is_implicit_and_values_are_truncated():
    rng = np.random.default_rng(3)
    X = rng.uniform(-3, 3, (60, 1))
    y = np.eye(3)[(X[:, 0] > -1).astype(int) + (X[:, 0] > 1).astype(int)]
    model = baselines.ConstrainedSimplexGP(renormalize=False).fit(X, y)
    X_test = np.linspace(-4, 4, 200)[:, None]
    raw = model.predict_untruncated(X_test)
    assert np.allclose(raw.sum(axis=1), 1.0, atol=1e-9)
    assert raw.min() < -0.01 and raw.max() > 1.01  # steps make it overshoot: the paper's artefacts
    assert np.array_equal(model.predict(X_test), np.clip(raw, 0, 1))
    closed = clone(model).set_params(renormalize=True).fit(X, y).predict(X_test)
    assert np.allclose(closed.sum(axis=1), 1.0) and closed.min() >= 0


def test_constrained_simplex_refuses_vectors_that_do_not_sum_to_one():
    with pytest.raises(ValueError, match="sum to one"):
        baselines.ConstrainedSimplexGP().fit([[0.0], [1.0]], [[0.5, 0.4], [0.5, 0.5]])


def test_rotation_nls_is_the_minimum_of_the_squared_error():
    rng = np.random.default_rng(4)
    template = rng.standard_normal((3, 2))
    y = rng.uniform(-np.pi, np.pi, 12)

    def turned(angle, shape):
        c, s = np.cos(angle), np.sin(angle)
        return shape.reshape(-1, 2) @ np.array([[c, s], [-s, c]])

    X = np.stack([turned(a, template).ravel() for a in y]) + 0.1 * rng.standard_normal((12, 6))
    model = baselines.RotationNLS().fit(X[:8], y[:8])
    fitted = np.stack([model.template_.real, model.template_.imag], axis=1).ravel()
    by_search = minimize(
        lambda t: sum(np.sum((X[i] - turned(y[i], t).ravel()) ** 2) for i in range(8)), np.ones(6), tol=1e-14
    )
    assert np.allclose(by_search.x, fitted, atol=1e-6)  # a quadratic, minimised by differences
    grid = np.linspace(-np.pi, np.pi, 20001)[:-1]
    for i, predicted in zip(range(8, 12), model.predict(X[8:])):
        cost = [np.sum((X[i] - turned(a, fitted).ravel()) ** 2) for a in grid]
        assert abs(wrap(grid[np.argmin(cost)] - predicted)) < 2 * np.pi / 20000


def test_rotation_nls_needs_points():
    with pytest.raises(ValueError, match="even number of columns"):
        baselines.RotationNLS().fit(np.zeros((2, 3)), np.zeros(2))


def test_one_vs_rest_is_one_classifier_per_label_normalised():
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (40, 1))
    present = np.hstack([X > 0, X < 0.5, np.ones_like(X, dtype=bool)])
    kernel = ConstantKernel(2.0) * RBF(0.7)
    model = baselines.OneVsRestGPC(kernel).fit(X, present)
    p = model.predict_presence(X)
    from ggpm import GGPClassifier

    alone = GGPClassifier(kernel, inference="laplace").fit(X, present[:, 0])  # the paper's, and the baseline's default
    assert np.array_equal(p[:, 0], alone.predict_proba(X)[:, 1])
    assert np.all(p[:, 2] == 1.0)  # present everywhere: its frequency
    assert np.allclose(model.predict(X), p / p.sum(axis=1, keepdims=True))
    shares = present / present.sum(axis=1, keepdims=True)
    assert np.array_equal(baselines.OneVsRestGPC(kernel).fit(X, shares).predict(X), model.predict(X))


def test_label_frequency_counts():
    model = baselines.LabelFrequency().fit(np.zeros((4, 1)), [[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]])
    assert np.allclose(model.predict(np.zeros((2, 1))), [[0.6, 0.2, 0.2]] * 2)
    with pytest.raises(ValueError, match="at least one label"):
        baselines.LabelFrequency().fit([[0.0]], [[0, 0]])


@pytest.mark.parametrize("name", [name for name in baselines.__all__ if name != "wrap"])
def test_baselines_are_cloneable_and_check_their_input(name):
    model = getattr(baselines, name)()
    assert clone(model).get_params() == model.get_params()
    of_angles = "Angle" in name or "Cos" in name or "Rotation" in name
    X, y = np.eye(4, 2), np.array([0.1, 0.2, 0.3, 0.4]) if of_angles else np.eye(2)[[0, 1, 0, 1]]
    model.fit(X, y)  # nothing is wrong with y
    X[1, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.fit(X, y)
    if of_angles:
        with pytest.raises(ValueError, match="one angle"):
            model.fit(np.zeros((3, 2)), np.zeros(2))
