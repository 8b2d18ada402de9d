"""Kernels: values and pullbacks against scikit-learn's own and against central differences."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Kernel,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.gaussian_process.kernels import ConstantKernel as C

from ggpm import GGPRegressor, kernels
from ggpm.kernels import distances as _distances

N, M, FEATURES = 23, 11, 3
ARD = [0.7, 1.6, 2.9]


class Wobble(RBF):
    """A subclass that computes something else: a scaled RBF with a kernel matrix of its own."""

    def __call__(self, X, Y=None, eval_gradient=False):
        if eval_gradient:
            K, gradient = super().__call__(X, Y, eval_gradient=True)
            return 3.0 * K, 3.0 * gradient
        return 3.0 * super().__call__(X, Y)

    def diag(self, X):
        return 3.0 * super().diag(X)


class Cubic(Kernel):
    """A user's kernel without a gradient and without hyperparameters, as in scikit-learn's documentation."""

    def __init__(self):
        pass

    def __call__(self, X, Y=None):
        return np.inner(X, X if Y is None else Y) ** 3

    def diag(self, X):
        return np.einsum("ij,ij->i", X, X) ** 3

    def is_stationary(self):
        return False


class Scaled(Matern):
    """A user's kernel with a hyperparameter but without a gradient."""

    def __call__(self, X, Y=None):
        return super().__call__(X, Y)


KNOWN = {
    "constant": C(1.7),
    "white": WhiteKernel(0.3),
    "rbf": RBF(1.3),
    "rbf-list-of-one": RBF([1.3]),
    "rbf-ard": RBF(ARD),
    "matern12": Matern(1.3, nu=0.5),
    "matern12-ard": Matern(ARD, nu=0.5),
    "matern32": Matern(1.3, nu=1.5),
    "matern32-ard": Matern(ARD, nu=1.5),
    "matern52": Matern(1.3, nu=2.5),
    "matern52-ard": Matern(ARD, nu=2.5),
    "matern-inf": Matern(1.3, nu=np.inf),
    "matern-inf-ard": Matern(ARD, nu=np.inf),
    "rational": RationalQuadratic(1.3, alpha=0.6),
    "rational-fixed-alpha": RationalQuadratic(1.3, alpha=0.6, alpha_bounds="fixed"),
    "rational-fixed-scale": RationalQuadratic(1.3, alpha=0.6, length_scale_bounds="fixed"),
    "dot": DotProduct(0.8),
    "periodic": ExpSineSquared(1.4, periodicity=2.3),
    "periodic-fixed-length": ExpSineSquared(1.4, 2.3, length_scale_bounds="fixed"),
    "periodic-fixed-period": ExpSineSquared(1.4, 2.3, periodicity_bounds="fixed"),
    "default": C(2.0) * RBF(1.3) + C(0.4),
    "constant-right": RBF(1.3) * C(2.0) + RBF(0.5),
    "constant-first-sum": C(0.4) + RBF(1.3),
    "constants-only": (C(2.0) * C(0.3) + C(1.1)) ** 2,
    "two-factors": C(2.0) * RBF(ARD) * ExpSineSquared(1.4, 2.3) + WhiteKernel(0.2),
    "white-in-front": WhiteKernel(0.2) + C(2.0) * Matern(ARD, nu=2.5) + DotProduct(),
    "white-in-product": WhiteKernel(0.2) * RBF(1.3) + Matern(0.9, nu=0.5),
    "sum-in-product": (RBF(1.3) + DotProduct(0.5)) * (C(0.7) + RationalQuadratic(0.9)),
    "sum-of-sums": (RBF(1.3) + C(2.0)) + (WhiteKernel(0.1) + (Matern(2.0) + C(0.3))),
    "power-2": (DotProduct(0.8) + C(0.5) * RBF(1.3)) ** 2,
    "power-3.5": Exponentiation(C(0.6) * RBF(ARD), 3.5) * RBF(2.0),
    "fixed-inside": C(2.0, "fixed") * RBF(1.3) + C(0.4) * Matern(ARD, "fixed") + WhiteKernel(0.2, "fixed"),
    "all-fixed": C(2.0, "fixed") * RBF(1.3, "fixed"),
}
OTHER = {
    "subclass": Wobble(1.3),
    "subclass-inside": C(2.0) * Wobble(ARD) + WhiteKernel(0.2),
    "pairwise": 2.0 * PairwiseKernel(gamma=0.4, metric="rbf") + RBF(1.3),
    "user": C(2.0) * Cubic() + RBF(1.3),
    "no-gradient": Scaled(1.3, nu=1.5) * RBF(0.9),
}
ALL = KNOWN | OTHER


@pytest.fixture(autouse=True, params=[20, 1 << 16], ids=["many-blocks", "one-block"])
def block_size(request, monkeypatch):
    """Blocks of one or a few rows must give what a single block gives."""
    monkeypatch.setattr(kernels.evaluation, "BLOCK_SIZE", request.param)
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture
def X(rng):
    X = rng.normal(size=(N, FEATURES))
    X[4] = X[9]  # coincident points, where some profiles have a kink
    return X


@pytest.fixture
def Z(rng, X):
    Z = rng.normal(size=(M, FEATURES))
    Z[2] = X[5]
    return Z


def central(function, at, h=1e-6):
    """Central differences of a scalar function, one entry at a time."""
    grad = np.zeros_like(at)
    for i in np.ndindex(*at.shape):
        above, below = at.copy(), at.copy()
        above[i] += h
        below[i] -= h
        grad[i] = (function(above) - function(below)) / (2 * h)
    return grad


def ids(table):
    return pytest.mark.parametrize("kernel", table.values(), ids=table.keys())


# ------------------------------------------------------------------------------------------- values


@ids(ALL)
def test_values_equal_scikit_learns(kernel, X, Z):
    for points in ((X,), (X, Z)):
        K = kernels.evaluate(kernel, *points).K
        expected = kernel(*points)
        assert K.shape == expected.shape and K.flags.c_contiguous
        assert_allclose(K, expected, rtol=1e-14, atol=1e-14)
    assert_allclose(kernels.diag(kernel, X), np.diag(kernels.evaluate(kernel, X).K), rtol=1e-13)


@ids(KNOWN)
def test_square_matrix_is_symmetric_to_the_last_bit(kernel, X):
    K = kernels.evaluate(kernel, X).K
    assert_array_equal(K, K.T)


def test_distances_keep_their_digits_far_from_the_origin():
    X = 1e8 + np.array([[0.0], [0.25], [1.0]])
    K = kernels.evaluate(RBF(0.5), X).K
    assert_allclose(K[0], np.exp([0.0, -0.125, -2.0]), rtol=1e-14)


def test_rational_quadratic_keeps_its_digits_for_large_alpha(X):
    # (1 + t)^-alpha by powers loses log10(alpha) digits; the limit is the RBF, to r^4/(8 alpha).
    K = kernels.evaluate(RationalQuadratic(1.0, alpha=1e13), X).K
    assert_allclose(K, RBF(1.0)(X), atol=1e-12)


# ---------------------------------------------------------------------------------------- pullbacks


@ids(ALL)
def test_pullback_equals_scikit_learns_gradient(kernel, X, rng):
    G = rng.normal(size=(N, N))
    G = G + G.T
    if kernel in (OTHER["user"], OTHER["no-gradient"]):
        dK = _differences(kernel, X)
        rtol = 1e-8
    else:
        dK = kernel(X, eval_gradient=True)[1]
        rtol = 1e-12 if kernel != OTHER["pairwise"] else 1e-5  # its own gradient is a forward difference
    assert dK.shape[-1] == len(kernel.theta)
    expected = np.einsum("ij,ijp->p", G, dK)
    scale = np.einsum("ij,ijp->p", abs(G), abs(dK))
    for cotangent in (G, np.asfortranarray(G), G[::-1, ::-1][::-1, ::-1]):
        grad = kernels.evaluate(kernel, X).pullback(cotangent)
        assert grad.shape == kernel.theta.shape
        assert np.all(abs(grad - expected) <= rtol * scale)


def _differences(kernel, X, h=1e-6):
    theta = kernel.theta
    steps = [
        (kernel.clone_with_theta(theta + e)(X) - kernel.clone_with_theta(theta - e)(X)) / (2 * h)
        for e in h * np.eye(len(theta))
    ]
    return np.stack(steps, axis=-1)


@ids(ALL)
def test_rectangular_pullback_equals_differences(kernel, X, Z, rng):
    G = rng.normal(size=(N, M))
    expected = central(lambda theta: np.sum(G * kernel.clone_with_theta(theta)(X, Z)), kernel.theta)
    for cotangent in (G, np.asfortranarray(G)):
        grad = kernels.evaluate(kernel, X, Z).pullback(cotangent)
        assert grad.shape == kernel.theta.shape
        assert_allclose(grad, expected, rtol=1e-7, atol=1e-7)


@ids(ALL)
def test_input_pullback_equals_differences(kernel, X, Z, rng):
    G = rng.normal(size=(N, M))
    at = kernels.evaluate(kernel, X, Z)
    grad = at.pullback_inputs(G)
    smooth = np.arange(M) != 2  # Z[2] = X[5], where Matern 1/2 has a kink: tested below
    expected = central(lambda Z: np.sum(G * kernel(X, Z)), Z)
    assert_allclose(grad[smooth], expected[smooth], rtol=1e-6, atol=1e-6)
    theta_grad, inputs_grad = at.pullback_both(G)
    assert_array_equal(inputs_grad, grad)
    assert_allclose(theta_grad, at.pullback(G), rtol=1e-13, atol=1e-13)


@ids(ALL)
def test_square_input_pullback_moves_rows_and_columns(kernel, rng):
    X = rng.normal(size=(9, FEATURES))
    G = rng.normal(size=(9, 9))  # not symmetric
    grad = kernels.evaluate(kernel, X).pullback_inputs(G)
    assert_allclose(grad, central(lambda X: np.sum(G * kernel(X)), X), rtol=1e-6, atol=1e-6)
    theta_grad, _ = kernels.evaluate(kernel, X).pullback_both(G)
    tolerance = 1e-12 if kernel != OTHER["pairwise"] else 1e-4  # its own gradient is a forward difference
    assert_allclose(theta_grad, kernels.evaluate(kernel, X).pullback(G), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("nu", [0.3, 0.5, 0.8, 1.5])
def test_kink_at_coincident_points_is_finite_and_zero(nu):
    x = np.array([[0.4, -0.2]])
    at = kernels.evaluate(Matern([1.0, 2.0], nu=nu), x, x.copy())
    assert_array_equal(at.K, [[1.0]])
    assert_array_equal(at.pullback_inputs(np.ones((1, 1))), [[0.0, 0.0]])
    assert_array_equal(at.pullback(np.ones((1, 1))), [0.0, 0.0])


@pytest.mark.parametrize("nu", [0.3, 0.7, 1.0, 2.2, 3.5, 30.0])
@pytest.mark.parametrize("length_scale", [1.3, ARD])
def test_matern_of_any_order(nu, length_scale, X, Z, rng):
    kernel = Matern(length_scale, nu=nu)
    Z = Z[3:]  # scikit-learn's own value at coincident points is not 1 for small nu
    G = rng.normal(size=(N, len(Z)))
    at = kernels.evaluate(kernel, X, Z)
    assert_allclose(at.K, kernel(X, Z), rtol=1e-12)
    expected = central(lambda theta: np.sum(G * kernel.clone_with_theta(theta)(X, Z)), kernel.theta)
    assert_allclose(at.pullback(G), expected, rtol=1e-6, atol=1e-7)
    expected = central(lambda Z: np.sum(G * kernel(X, Z)), Z)
    assert_allclose(at.pullback_inputs(G), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shift, length_scales", [(0.0, [1e-4, 2.0, 1e3]), (1e6, [0.5, 0.9, 3.0])])
def test_ard_gradient_survives_tiny_length_scales_and_far_inputs(shift, length_scales, rng):
    # Points a fraction of the smallest length scale apart, in a cloud 1e4 of them wide.
    X = rng.normal(size=(N, FEATURES))
    X = np.concatenate([X, X + 0.3 * np.asarray(length_scales)]) + shift
    kernel = RBF(length_scales)
    G = rng.normal(size=(2 * N, 2 * N))
    # scikit-learn's own distances lose digits far from 0; its kernel does not change with the origin.
    expected = np.einsum("ij,ijp->p", G, kernel(X - shift, eval_gradient=True)[1])
    assert np.all(abs(expected) > 1e-3)
    assert_allclose(kernels.evaluate(kernel, X).pullback(G), expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["rbf", "rbf-ard", "matern52-ard", "rational"])
def test_pullbacks_do_not_depend_on_the_origin(name, X, Z, rng):
    # Multiples of 2^-20 shifted by 2^25: shifted exactly, so that only the computation can lose digits.
    X, Z = np.round(X * 2**20) / 2**20, np.round(Z * 2**20) / 2**20
    G = rng.normal(size=(N, M))
    near = kernels.evaluate(KNOWN[name], X, Z).pullback_both(G)
    far = kernels.evaluate(KNOWN[name], X + 2.0**25, Z + 2.0**25).pullback_both(G)
    for a, b in zip(near, far):
        assert_allclose(b, a, rtol=1e-10, atol=1e-11)


@ids(ALL)
def test_diag_pullback_equals_differences(kernel, X, rng):
    g = rng.normal(size=N)
    grad = kernels.diag_pullback(kernel, X, g)
    expected = central(lambda theta: g @ kernel.clone_with_theta(theta).diag(X), kernel.theta)
    assert grad.shape == kernel.theta.shape
    assert_allclose(grad, expected, rtol=1e-7, atol=1e-7)


def test_nothing_given_is_modified(X, Z, rng):
    for kernel in ALL.values():
        G, square = rng.normal(size=(N, M)), rng.normal(size=(N, N))
        given = [X, Z, G, square]
        before = [a.copy() for a in given]
        theta = kernel.theta.copy()
        cache = kernels.Distances(X)
        at = kernels.evaluate(kernel, X, cache=cache)
        K = at.K.copy()
        at.pullback_both(square)
        squared = cache.squared.copy()
        at.K.fill(np.nan)  # the matrix is the caller's: nothing else may depend on it
        rectangular = kernels.evaluate(kernel, X, Z)
        assert rectangular.K.shape == (N, M)
        rectangular.pullback_both(G)
        assert_array_equal(kernels.evaluate(kernel, X, cache=cache).K, K)
        assert_array_equal(cache.squared, squared)
        assert_array_equal(kernel.theta, theta)
        for a, b in zip(given, before):
            assert_array_equal(a, b)


def test_write_into_a_buffer(X):
    buffer = np.full((N, N), np.nan)
    at = kernels.evaluate(KNOWN["default"], X)
    assert at.write(buffer) is buffer
    assert_array_equal(buffer, at.K)


# ---------------------------------------------------------------------------- cache, memory, fallback


def test_isotropic_distances_are_computed_once_per_fit(X, rng, monkeypatch):
    calls = []
    cdist = _distances.cdist
    monkeypatch.setattr(_distances, "cdist", lambda *a, **k: calls.append(1) or cdist(*a, **k))
    kernel = C(2.0) * RBF(1.3) + RBF(0.4) * ExpSineSquared(1.4, 2.3) + Matern(0.9)
    G = rng.normal(size=(N, N))
    cache = kernels.Distances(X)
    for shift in (0.0, 0.1, 0.2):
        at = kernels.evaluate(kernel.clone_with_theta(kernel.theta + shift), X.copy(), cache=cache)
        K, grad = at.K, at.pullback(G)
        assert len(calls) == 1
        alone = kernels.evaluate(kernel.clone_with_theta(kernel.theta + shift), X)
        assert_array_equal(alone.K, K)
        assert_array_equal(alone.pullback(G), grad)
        assert len(calls) == 2
        calls.pop()


def test_a_fit_computes_isotropic_distances_once(X, rng, monkeypatch):
    calls, evaluations = [], []
    cdist, evaluate = _distances.cdist, kernels.KernelEvaluation
    monkeypatch.setattr(_distances, "cdist", lambda *a, **k: calls.append(1) or cdist(*a, **k))
    counted = "ggpm.fields.dense.field.KernelEvaluation"
    monkeypatch.setattr(counted, lambda *a, **k: evaluations.append(1) or evaluate(*a, **k))
    GGPRegressor("poisson", 1.0 * RBF()).fit(X, rng.poisson(np.exp(1.0 + np.sin(X[:, 0]))))
    assert len(calls) == 1 and len(evaluations) > 5


def test_anisotropic_distances_are_computed_once_per_evaluation(X, rng, monkeypatch):
    calls = []
    cdist = _distances.cdist
    monkeypatch.setattr(_distances, "cdist", lambda *a, **k: calls.append(1) or cdist(*a, **k))
    at = kernels.evaluate(2.0 * RBF(ARD), X)
    at.K  # noqa: B018
    at.pullback_both(rng.normal(size=(N, N)))
    assert len(calls) == 1


def test_cache_of_other_points_is_refused(X, Z):
    cache = kernels.Distances(X)
    with pytest.raises(ValueError, match="other points"):
        kernels.evaluate(RBF(), X + 1.0, cache=cache)
    with pytest.raises(ValueError, match="other points"):
        kernels.evaluate(RBF(), X, Z, cache=cache)
    assert kernels.evaluate(RBF(), X, Z, cache=kernels.Distances(X, Z)).K.shape == (N, M)


def test_memory_is_the_matrix_and_the_distances(block_size, rng):
    if block_size < 1000:
        pytest.skip("blocks of one row: the same memory, slowly")
    n = 700
    X, G = rng.normal(size=(n, 2)), rng.normal(size=(n, n))
    cache = kernels.Distances(X)
    assert cache.squared.shape == (n, n)
    tracemalloc.start()
    try:
        at = kernels.evaluate(C() * RBF() + C(), X, cache=cache)
        at.K  # noqa: B018
        at.pullback(G)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    blocks = 4 * block_size * 8
    assert n * n * 8 <= peak <= n * n * 8 + blocks


def test_subclass_is_honoured_and_its_base_is_not_touched(X):
    assert_allclose(kernels.evaluate(Wobble(1.3), X).K, 3.0 * RBF(1.3)(X), rtol=1e-14)


def test_known_kernels_never_ask_for_the_large_gradient(X, rng, monkeypatch):
    G = rng.normal(size=(N, N))

    def refuse(self, *args, **kwargs):
        raise AssertionError("scikit-learn's own __call__ was used")

    for kernel in KNOWN.values():
        with monkeypatch.context() as patch:
            for part in (C, WhiteKernel, RBF, Matern, RationalQuadratic, DotProduct, ExpSineSquared):
                patch.setattr(part, "__call__", refuse)
            at = kernels.evaluate(kernel, X)
            assert np.all(np.isfinite(at.K))
            at.pullback(G)


def test_kernel_of_another_shape_is_refused(X):
    with pytest.raises(ValueError, match="matrix of shape"):
        kernels.evaluate(CompoundKernel([RBF(), RBF()]), X).K  # noqa: B018


def test_wrong_shapes_are_refused(X):
    with pytest.raises(ValueError, match=r"shape of K, \(23, 23\); got \(23, 2\)"):
        kernels.evaluate(RBF(), X).pullback(np.zeros((N, 2)))
    with pytest.raises(ValueError, match="2 length scales but X has 3 features"):
        kernels.evaluate(RBF([1.0, 2.0]), X).K  # noqa: B018


# ----------------------------------------------------------------------- resolving, hyperparameters


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1.0, 50.0, 3e7])
def test_default_kernel_follows_the_unit_of_the_inputs(unit, rng):
    X = rng.normal(size=(2000, 2)) * unit
    (kernel,) = kernels.resolve_kernel(None, 4, X)
    assert kernel.clone_with_theta(np.zeros(3)) == C() * RBF(1.0, kernel.k1.k2.length_scale_bounds) + C()
    scale, (low, high) = kernel.k1.k2.length_scale, kernel.k1.k2.length_scale_bounds
    # The distance of two standard normal points of the plane is Rayleigh with scale sqrt(2).
    assert scale == pytest.approx(np.sqrt(4 * np.log(2)) * unit, rel=0.05)
    assert low <= scale / 1e3 and high >= scale * 1e3
    if unit == 1.0:
        assert (low, high) == (1e-5, 1e5)


def test_default_kernel_without_any_distance():
    (kernel,) = kernels.resolve_kernel(None, 1, np.ones((5, 2)))
    assert kernel.k1.k2.length_scale == 1.0
    (kernel,) = kernels.resolve_kernel(None, 1, np.ones((1, 2)))
    assert kernel.k1.k2.length_scale == 1.0


def test_resolved_kernels_are_clones(X):
    given = [RBF(2.0), C(3.0) * RBF(1.0)]
    resolved = kernels.resolve_kernel(given, 2, X)
    assert resolved == given and all(a is not b for a, b in zip(resolved, given))
    (shared,) = kernels.resolve_kernel(given[1], 5, X)
    shared.theta = shared.theta + 1.0
    assert given[1] == C(3.0) * RBF(1.0) and shared != given[1]


def test_kernels_that_do_not_fit_are_refused(X):
    with pytest.raises(ValueError, match=r"expected 3, got 2.*single kernel"):
        kernels.resolve_kernel([RBF(), RBF()], 3, X)
    with pytest.raises(ValueError, match=r"expected 1, got 0"):
        kernels.resolve_kernel([], 1, X)
    with pytest.raises(TypeError, match=r"kernel\[1\] must be a kernel.*'rbf'"):
        kernels.resolve_kernel([RBF(), "rbf"], 2, X)
    with pytest.raises(TypeError, match=r"kernel must be a kernel.*the class RBF"):
        kernels.resolve_kernel(RBF, 1, X)
    with pytest.raises(TypeError, match=r"CompoundKernel.*list"):
        kernels.resolve_kernel(CompoundKernel([RBF(), RBF()]), 2, X)


@pytest.mark.parametrize("names", [["default", "rbf-ard"], ["all-fixed"], ["fixed-inside"], list(ALL)])
def test_log_hyper_round_trip(names, rng):
    group = [ALL[name] for name in names]
    theta, bounds = kernels.log_hyper(group), kernels.log_bounds(group)
    assert_array_equal(theta, np.concatenate([k.theta for k in group]))
    assert bounds.shape == (len(theta), 2)
    values = theta + rng.normal(size=len(theta))
    changed = kernels.with_log_hyper(group, values)
    assert_allclose(kernels.log_hyper(changed), values, rtol=1e-14, atol=1e-14)
    assert_array_equal(kernels.log_hyper(group), theta)  # the originals stay
    start = 0
    for k, other in zip(group, changed):
        assert other == k.clone_with_theta(values[start : start + k.n_dims])
        start += k.n_dims


def test_log_hyper_of_the_wrong_length():
    with pytest.raises(ValueError, match="Expected 3 log-hyperparameters"):
        kernels.with_log_hyper([KNOWN["default"]], np.zeros(4))
    with pytest.raises(ValueError, match="Too few"):
        kernels.with_log_hyper([KNOWN["default"]], np.zeros(2))
