"""Kernels on columns: kernels of scikit-learn in every respect, with exact pullbacks, saved, and on inducing points."""

import sys
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, ExpSineSquared, Matern, WhiteKernel

import ggpm
from ggpm import GGPRegressor, Inducing, load, save
from ggpm.data.columns import Columns
from ggpm.kernels import (
    Additive,
    Category,
    Cyclic,
    Distances,
    On,
    Pairs,
    Sphere,
    diag_pullback,
    evaluate,
    placed,
    resolve_kernel,
    without_column,
)
from ggpm.kernels.nodes import node

RNG = np.random.default_rng(0)
X = np.stack([RNG.uniform(-80, 80, 23), RNG.uniform(-180, 180, 23), RNG.integers(0, 4, 23), RNG.uniform(0, 60, 23)], 1)
Z = X[:7] + np.array([1.5, -2.0, 0.0, 0.7])
KERNELS = {
    "on": On(RBF(20.0), [0, 1]),
    "on ard": On(RBF([20.0, 30.0]), [3, 0]),
    "on everything": On(Matern([20.0, 30.0, 2.0, 9.0], nu=2.5), [0, 1, 2, 3]),
    "on twice": On(RBF([3.0, 9.0]), [3, 3]),
    "on sum": On(2.0 * RBF(5.0) + WhiteKernel(0.3), 3),
    "on in on": On(On(RBF(5.0), 1) + DotProduct(0.5), [2, 3]),
    "category": 2.0 * Category(2) + 0.1 * WhiteKernel(0.3),
    "groups": Category([2]) * On(RBF(9.0), 3),
    "alike": Category(2, length_scale=0.8, length_scale_bounds=(0.1, 10.0)) * On(RBF(9.0), 3),
    "alike, held": 2.0 * Category([2, 3], length_scale=0.8),
    "alike, each": 2.0 * Category([2, 3], None, [0.8, 1.3], (0.1, 10.0)) + Category(2),
    "sphere": On(Sphere(0.7, nu=0.5), [0, 1]),
    "sphere 1.5": 3.0 * On(Sphere(0.7), [0, 1]),
    "sphere 2.5": On(Sphere(0.7, nu=2.5), (0, 1)),
    "sphere 0.8": On(Sphere(0.7, nu=0.8), (0, 1)),
    "sphere smooth": On(Sphere(0.7, nu=np.inf), [0, 1]) + On(Cyclic(24.0), 3),
    "cyclic": On(Cyclic(24.0, 0.8), 3),
    "free period": On(Cyclic(24.0, 0.8, period_bounds=(10.0, 40.0)), 3) ** 2 + Category([2]),
    **{f"sum {nu}": 2.0 * Additive(30.0, nu) + On(RBF(5.0), 3) for nu in (0.5, 0.8, 1.5, 2.5, np.inf)},
    "all of it": On(Sphere(0.4), [0, 1]) * On(Cyclic(7.0), 3) + 2.0 * Category(2) + On(RBF(), 3),
}
names = pytest.mark.parametrize("name", KERNELS)


@names
def test_matrices_are_those_of_a_kernel(name):
    kernel = KERNELS[name]
    K = kernel(X)
    np.testing.assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-12 * np.trace(K)
    np.testing.assert_allclose(kernel.diag(X), np.diag(K), rtol=1e-14)
    noisy = "WhiteKernel" in repr(kernel)
    np.testing.assert_allclose(kernel(X, X) if not noisy else K, K, rtol=1e-14)
    np.testing.assert_allclose(kernel(X, Z), kernel(Z, X).T, rtol=1e-14)


@names
def test_theta_bounds_clones_and_gradients(name):
    kernel = KERNELS[name]
    theta = kernel.theta
    assert kernel.n_dims == len(theta) == len(kernel.bounds)
    moved = kernel.clone_with_theta(theta + 0.1)
    np.testing.assert_allclose(moved.theta, theta + 0.1, rtol=1e-12)
    np.testing.assert_allclose(kernel.theta, theta, rtol=0)
    assert clone(kernel) == kernel and (not len(theta) or moved != kernel)
    assert eval(repr(kernel), {**globals(), "inf": np.inf}).__class__ is type(kernel)
    K, gradient = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(K, kernel(X), rtol=1e-14)
    assert gradient.shape == (*K.shape, len(theta))
    for j in range(len(theta)):
        step = 1e-5 * np.eye(len(theta))[j]
        difference = (kernel.clone_with_theta(theta + step)(X) - kernel.clone_with_theta(theta - step)(X)) / 2e-5
        tolerance = 1e-4 if "0.8" in name else 1e-7  # scikit-learn's gradient is by forward differences for nu = 0.8
        np.testing.assert_allclose(gradient[..., j], difference, atol=tolerance * max(1.0, K.max()))


@names
def test_pullbacks_are_those_of_eval_gradient(name):
    kernel = KERNELS[name]
    G = np.random.default_rng(1).normal(size=(len(X), len(X)))
    at = evaluate(kernel, X)
    K, gradient = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(at.K, K, atol=1e-13 * np.abs(K).max())
    tolerance = 1e-4 if "0.8" in name else 1e-10
    expected = np.einsum("ij,ijp->p", G, gradient)
    np.testing.assert_allclose(at.pullback(G), expected, atol=tolerance * np.abs(G).sum())
    g = G[0]
    diagonal = np.einsum("i,iip->p", g, gradient)
    np.testing.assert_allclose(diag_pullback(kernel, X, g), diagonal, atol=1e-10 * np.abs(g).sum())


@names
def test_pullbacks_of_cross_matrices_and_inputs(name):
    kernel = KERNELS[name]
    G = np.random.default_rng(1).normal(size=(len(X), len(Z)))
    at = evaluate(kernel, X, Z)
    np.testing.assert_allclose(at.K, kernel(X, Z), atol=1e-13)
    theta = kernel.theta
    for j in range(len(theta)):
        step = 1e-5 * np.eye(len(theta))[j]
        difference = (kernel.clone_with_theta(theta + step)(X, Z) - kernel.clone_with_theta(theta - step)(X, Z)) / 2e-5
        np.testing.assert_allclose(at.pullback(G)[j], np.sum(G * difference), atol=1e-5, rtol=1e-6)
    grad = at.pullback_inputs(G)
    for row, column in ((0, 0), (2, 1), (5, 3)):
        above, below = Z.copy(), Z.copy()
        above[row, column] += 1e-5
        below[row, column] -= 1e-5
        difference = np.sum(G * (kernel(X, above) - kernel(X, below))) / 2e-5
        np.testing.assert_allclose(grad[row, column], difference, atol=2e-6, rtol=1e-5)
    if "Category" in repr(kernel) and "DotProduct" not in repr(kernel) and "everything" not in name:
        np.testing.assert_array_equal(grad[:, 2], 0.0)  # groups do not move


def test_groups_that_are_alike_are_an_rbf_of_indicators():
    codes = RNG.integers(0, 3, (30, 2)).astype(float)
    indicators = (codes[:, :, None] == np.arange(3)).reshape(30, 6) / np.sqrt(2)
    np.testing.assert_allclose(Category([0, 1], length_scale=0.7)(codes), RBF(0.7)(indicators), rtol=1e-12)
    each = Category([0, 1], length_scale=[0.7, 2.0])
    np.testing.assert_allclose(each(codes), RBF(np.repeat([0.7, 2.0], 3))(indicators), rtol=1e-12)
    np.testing.assert_allclose(Category([0, 1], length_scale=1e-3)(codes), Category([0, 1])(codes), atol=1e-300)
    pairs = Pairs(codes, np.array([[0, 1, 2]]), np.array([[3, 4, 5]]))
    expected = np.diag(each(codes[:3], codes[3:6]))
    np.testing.assert_allclose(node(each, pairs).value(slice(0, 1))[0], expected, rtol=1e-12)
    with pytest.raises(ValueError, match="one for each of its 2"):
        Category([0, 1], length_scale=[1.0, 2.0, 3.0])(codes)
    assert repr(without_column(2.0 * each, 2, 0)) == "1.41**2 * Category([1], length_scale=[2])"


@pytest.mark.parametrize("nu", [0.5, 0.8, 1.5, 2.5, np.inf])
def test_sums_of_many_rows_are_those_of_single_columns(nu, monkeypatch):
    rows = RNG.normal(size=(70, 3))  # more than one strip
    rows[5] = rows[4]
    kernel, G = 2.0 * Additive(0.7, nu), RNG.normal(size=(70, 70))
    K, gradient = kernel(rows, eval_gradient=True)
    for most in (2000, 10):  # kept for the pullback, and not
        monkeypatch.setattr("ggpm.kernels.additive.KEPT_ROWS", most)
        at = evaluate(kernel, rows)
        np.testing.assert_allclose(at.K, K, rtol=1e-13)
        # scikit-learn's gradient is by differences of 1e-10 where there is no closed form
        tolerance = 1e-5 if nu == 0.8 else 1e-10
        np.testing.assert_allclose(at.pullback(G), np.einsum("ij,ijp->p", G, gradient), rtol=tolerance)
        np.testing.assert_array_equal(at.K, at.K.T)


@pytest.mark.parametrize("nu", [0.5, 0.8, 1.5, 2.5, 3.2, np.inf])
def test_the_sphere_is_positive_definite_and_matern_of_the_chord(nu):
    rng = np.random.default_rng(3)
    points = rng.normal(size=(500, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    degrees = np.stack([np.rad2deg(np.arcsin(points[:, 2])), np.rad2deg(np.arctan2(points[:, 1], points[:, 0]))], 1)
    for length in (0.05, 1.0, 20.0):
        K = Sphere(length, nu)(degrees)
        assert np.linalg.eigvalsh(K).min() > -1e-11
        np.testing.assert_allclose(K, Matern(length, nu=nu)(points), atol=1e-12)
    far = Sphere(0.3, nu)([[10.0, 179.5], [10.0, -179.5], [10.0, 178.5]])
    np.testing.assert_allclose(far[0, 1], far[0, 2], rtol=1e-10)  # the date line is no border


def test_cycles_are_those_of_scikit_learn():
    times = RNG.uniform(0, 100, (9, 1))
    np.testing.assert_allclose(Cyclic(24.0, 0.7)(times), ExpSineSquared(0.7, 24.0)(times), rtol=1e-14)
    assert Cyclic(24.0).n_dims == 1 and Cyclic(24.0, period_bounds=(20, 30)).n_dims == 2
    with pytest.raises(ValueError, match="Cyclic looks at one column; got 4 columns"):
        evaluate(Cyclic(24.0), X)
    with pytest.raises(ValueError, match="Sphere looks at latitude and longitude; got 4"):
        Sphere()(X)


def test_all_columns_cost_no_more():
    """The inner kernel works on the very same points, whose distances are shared: nothing is copied or done twice."""
    points = Distances(X)
    inner = 2.0 * Matern([1.0, 2.0, 1.5, 0.7], nu=2.5) + WhiteKernel(0.1)
    assert node(On(inner, [0, 1, 2, 3]), points).inner.points is points
    some = node(On(inner, [0, 1]), points)
    assert some.inner.points is node(On(RBF(), [0, 1]), points).inner.points  # made once for all that look at them


def test_all_columns_are_the_same_operations():
    """Counted by functions of the package, for a matrix, its pullback and that to the inputs, at two sizes.

    What On adds are calls that hand over, as many for any number of rows: those that work on blocks are the same ones.
    """
    inner = 2.0 * Matern([1.0, 2.0, 1.5, 0.7], nu=2.5) + WhiteKernel(0.1)
    added = []
    for n in (40, 400):
        rows = np.random.default_rng(0).normal(size=(n, 4))
        counts = []
        for kernel in (inner, On(inner, [0, 1, 2, 3])):
            counts.append(_calls(lambda kernel=kernel, rows=rows: _matrix_and_gradients(kernel, rows)))
        more = counts[1] - counts[0]
        assert not counts[0] - counts[1]
        assert {place.rpartition("/")[2].split(":")[0] for place in more} <= {
            "columns.py", "wrapping.py", "nodes.py", "distances.py",
        }  # fmt: skip
        working = [place for place in more if place.endswith((":profile", ":slopes", ":squared", ":scaled", ":inner"))]
        assert not working
        added.append(more)
    blocks = {place for place in added[1] if added[1][place] != added[0][place]}
    assert all("wrapping.py" in place for place in blocks)  # once for each block of rows, to hand it over


def _matrix_and_gradients(kernel, rows):
    at = evaluate(kernel, rows)
    at.pullback(at.K)
    evaluate(kernel, rows, rows[:20].copy()).pullback_inputs(np.ones((len(rows), 20)))


def _calls(function):
    """Calls of functions of the package, counted by file and name."""
    found = Counter()

    def count(frame, event, argument):
        if event == "call" and "ggpm" in frame.f_code.co_filename:
            found[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] += 1

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return found


def test_names_become_numbers_in_fit():
    columns = Columns(3, ("lat", "lon", "station"))
    kernel = placed(On(RBF(), ["lon", "lat"]) * Category("station") + WhiteKernel(), columns)
    assert kernel.k1.k1.at == (1, 0) and kernel.k1.k2.at == (2,)
    with pytest.raises(ValueError, match=r"no column 'lot'. Did you mean 'lon'\?"):
        placed(On(RBF(), "lot"), columns)
    with pytest.raises(ValueError, match="columns 0 to 2; got column 3"):
        placed(On(RBF(), 3), columns)
    with pytest.raises(ValueError, match="came without column names"):
        resolve_kernel(On(RBF(), "lat"), 1, X)
    with pytest.raises(ValueError, match="known by name only"):
        On(RBF(), "lat")(X)
    frame = pd.DataFrame(X, columns=["lat", "lon", "group", "hour"])
    np.testing.assert_array_equal(On(RBF(9.0), ["hour", "lat"])(frame), On(RBF(9.0), [3, 0])(X))
    np.testing.assert_array_equal(Category("group")(frame), Category(2)(X))


def test_they_work_in_scikit_learns_own_gaussian_process():
    y = np.sin(X[:, 3]) + X[:, 2]
    kernel = ConstantKernel(1.0) * On(RBF(3.0), 3) + ConstantKernel(1.0) * Category(2) + WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(kernel).fit(X, y)
    ours = GGPRegressor("gaussian", theirs.kernel_.k1, optimizer=None)
    ours.family = ggpm.families.Gaussian(phi=theirs.kernel_.k2.noise_level)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ours.fit(X, y)
    np.testing.assert_allclose(ours.predict(Z), theirs.predict(Z), rtol=1e-8)


def test_unused_columns_and_labels_under_distances_are_told():
    frame = pd.DataFrame({"x": X[:, 3], "group": pd.Categorical.from_codes(X[:, 2].astype(int), list("abcd"))})
    y = np.arange(23) % 5
    with pytest.warns(UserWarning, match="no part of the kernel looks at column 'group'"):
        GGPRegressor("poisson", On(RBF(), "x"), optimizer=None).fit(frame, y)
    with pytest.raises(ValueError, match="looks at every column, but column 'group' holds labels"):
        GGPRegressor("poisson", RBF(), optimizer=None).fit(frame, y)
    with pytest.raises(ValueError, match="column 'group' holds labels"):
        GGPRegressor("poisson", On(RBF(), ["x", "group"]), optimizer=None).fit(frame, y)


def test_they_are_saved_and_loaded(tmp_path):
    frame = pd.DataFrame({
        "lat": X[:, 0], "lon": X[:, 1], "station": np.array(list("abcd"))[X[:, 2].astype(int)],
        "time": pd.to_datetime("2024-01-01", utc=True) + pd.to_timedelta(X[:, 3], "h"), "wet": X[:, 3] > 30,
    })  # fmt: skip
    kernel = 0.5 * On(Sphere(0.4), ["lat", "lon"]) + On(Cyclic(24), "time") * Category("station") + On(RBF(), "wet")
    model = GGPRegressor("poisson", kernel, optimizer=None).fit(frame, np.arange(23) % 5)
    save(model, tmp_path / "m.ggpm")
    again = load(tmp_path / "m.ggpm")
    assert again.kernel_ == model.kernel_ and again.fit_.columns == model.fit_.columns
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.fit_.columns.kinds == ("number", "number", "category", "time", "boolean")


@pytest.mark.parametrize("choice", ["kmeans", "variance"])
def test_inducing_points_have_real_groups(choice):
    rng = np.random.default_rng(0)
    n = 240
    frame = pd.DataFrame({"x": rng.uniform(0, 5, n), "station": rng.choice(["north", "south", "west"], n)})
    level = frame["station"].map({"north": -1.0, "south": 0.5, "west": 2.0})
    y = rng.poisson(np.exp(level + 0.3 * np.sin(frame["x"])))
    kernel = ConstantKernel(1.0) * On(RBF(1.0), "x") + ConstantKernel(1.0) * Category("station")
    settings = Inducing(12, choice=choice, optimise=choice == "kmeans")
    model = GGPRegressor("poisson", kernel, inducing=settings, random_state=0).fit(frame, y)
    assert set(model.inducing_inputs_[:, 1]) == {0.0, 1.0, 2.0}
    exact = GGPRegressor("poisson", model.kernel_, optimizer=None).fit(frame, y)
    np.testing.assert_allclose(model.predict(frame), exact.predict(frame), rtol=0.05)


def test_random_intercepts_are_those_of_one_hot_columns():
    """40 subjects: the sd between them is recovered, and the model is a linear one on indicators."""
    rng = np.random.default_rng(4)
    subjects, n = 40, 800
    levels = rng.normal(0.0, 0.8, subjects)
    levels *= 0.8 / levels.std()
    code = rng.integers(0, subjects, n)
    frame = pd.DataFrame({"x": rng.uniform(0, 5, n), "subject": [f"S{c:02d}" for c in code]})
    y = rng.poisson(np.exp(1.0 + 0.5 * np.sin(frame["x"]) + levels[code]))
    kernel = ConstantKernel(1.0) * On(RBF(1.0), "x") + ConstantKernel(1.0) * Category("subject") + ConstantKernel(1.0)
    model = GGPRegressor("poisson", kernel, inference="laplace").fit(frame, y)
    sd = np.sqrt(model.kernel_.k1.k2.k1.constant_value)
    assert abs(sd / 0.8 - 1) < 0.15
    one_hot = np.column_stack([frame["x"], np.eye(subjects)[code]])
    linear = DotProduct(0.0, "fixed")
    k = model.kernel_
    twin = k.k1.k1.k1 * On(k.k1.k1.k2.kernel, 0) + k.k1.k2.k1 * On(linear, list(range(1, subjects + 1))) + k.k2
    other = GGPRegressor("poisson", twin, inference="laplace", optimizer=None).fit(one_hot, y)
    np.testing.assert_allclose(other.log_marginal_likelihood_value_, model.log_marginal_likelihood_value_, rtol=1e-8)
    np.testing.assert_allclose(other.predict(one_hot[:50]), model.predict(frame[:50]), rtol=1e-8)
