"""The sparse posterior: against the exact one, against differences, against GPflow, however the rows are cut."""

import copy
import math
import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cases import FAMILIES, dense_evidence, gradients, inducing_evidence, kernels, simulate, with_inputs
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, Inducing, families
from ggpm.data.rows import ArrayRows, Total
from ggpm.fields.inducing.points import greedy_variance, kmeans_points
from ggpm.kernels import resolve_kernel
from ggpm.learning.search import maximise
from ggpm.sites import InferenceError, Laplace, Taylor, Variational


def latent_dim(name):
    family, example = FAMILIES[name]
    return family.resolve(example).latent_dim


METHODS = [Taylor(), Laplace()]
METHOD_IDS = ["taylor", "laplace"]
# families with one latent have only one way to share a kernel
CASES = [(name, shared) for name in FAMILIES for shared in (True, False) if shared or latent_dim(name) > 1]
CASE_IDS = [f"{name}-{'shared' if shared else 'separate'}" for name, shared in CASES]


def exact_and_sparse(name, inference, shared, n=30, M=None, chunk_rows=7, seed=0):
    """The exact evidence, and the sparse one with Z = X or M points beside the rows."""
    X, y, family = simulate(name, n=n, seed=seed)
    D = family.latent_dim
    kernel = resolve_kernel(kernels(D, shared), D, X)
    encoded, offset = family.encode(y), np.full((n, D), 0.1)
    exact = dense_evidence(family, kernel, X, encoded, offset, inference)
    Z = X if M is None else X[:M] + 0.05
    return exact, inducing_evidence(family, kernel, ArrayRows(X, encoded, offset, chunk_rows=chunk_rows), Z, inference)


# ---- against the exact solver --------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", METHODS, ids=METHOD_IDS)
@pytest.mark.parametrize(("name", "shared"), CASES, ids=CASE_IDS)
def test_all_rows_as_inducing_points_is_the_exact_solver(name, inference, shared):
    """1e-5: the jitter on K_uu, 1e-8 by default, times the precision that the data bring."""
    exact, sparse = exact_and_sparse(name, inference, shared)
    value, gradient, a = exact.evaluate()
    precision = np.abs(a.q.U.dense()).max()  # 1e4 to 1e7 where a scale or concentration has a latent of its own
    sparse = sparse.with_field(replace(sparse.field, jitter=min(1e-8, 1e-5 / precision)))
    sparse_value, sparse_gradient, b = sparse.evaluate()
    assert a.converged and b.converged
    np.testing.assert_allclose(sparse_value, value, rtol=1e-5)
    np.testing.assert_allclose(sparse_gradient, gradient, rtol=1e-5, atol=1e-5 * np.abs(gradient).max())
    X_new = np.random.default_rng(1).uniform(-2, 2, (9, 2))
    mean, cov = a.process.posterior(a).latent(X_new)
    sparse_mean, sparse_cov = b.process.posterior(b).latent(X_new)
    np.testing.assert_allclose(sparse_mean, mean, rtol=1e-5, atol=1e-5 * np.abs(mean).max())
    np.testing.assert_allclose(sparse_cov, cov, rtol=1e-5, atol=1e-5 * np.abs(cov).max())


# ---- gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", METHODS, ids=METHOD_IDS)
@pytest.mark.parametrize(("name", "shared"), CASES, ids=CASE_IDS)
def test_gradient_equals_central_differences(name, inference, shared):
    _, sparse = exact_and_sparse(name, inference, shared, n=20, M=6)
    theta, Z, h = sparse.theta, sparse.field.Z, 1e-5
    _, gradient, a = sparse.evaluate()
    gradient_again, grad_Z = gradients(sparse, a)
    np.testing.assert_allclose(gradient_again, gradient, rtol=1e-12)
    assert a.converged

    def numeric(change_theta, change_Z):
        above, below = (
            with_inputs(sparse.at(theta + sign * change_theta), Z + sign * change_Z).evaluate(gradient=False)[0]
            for sign in (1, -1)
        )
        return (above - below) / (2 * h)

    # 1e-6 of the gradient's size: what differences of numbers of this size resolve
    for k, step in enumerate(h * np.eye(theta.size)):
        assert abs(gradient[k] - numeric(step, 0 * Z)) < 1e-6 * (1 + np.abs(gradient).max())
    for i, f in [(0, 0), (3, 1)]:
        step = np.zeros_like(Z)
        step[i, f] = h
        assert abs(grad_Z[i, f] - numeric(0 * theta, step)) < 1e-6 * (1 + np.abs(grad_Z).max())


@pytest.mark.parametrize(
    ("name", "inference"),
    [
        ("multivariate_gaussian", Taylor(c=0)),
        ("wishart", Taylor(c=0)),
        ("ordinal", Taylor(lambda y: 0.5 * y - 0.7)),
        ("wishart", Taylor(lambda y: np.full((len(y), 3), 0.3), c=0)),
    ],
    ids=["correlated, c=0", "wishart, c=0", "own point", "own point, c=0"],
)
def test_gradient_of_taylor_s_other_forms_is_the_exact_one(name, inference):
    exact, sparse = exact_and_sparse(name, inference, True)
    (value, gradient, _), (sparse_value, sparse_gradient, _) = exact.evaluate(), sparse.evaluate()
    np.testing.assert_allclose(sparse_value, value, rtol=1e-5)
    np.testing.assert_allclose(sparse_gradient, gradient, rtol=1e-4, atol=1e-5 * np.abs(gradient).max())


# one with a closed form, one latent by quadrature, two by the trapezoidal rule, Sobol points; all of them when slow
VARIATIONAL = {"poisson", "ordinal", "von_mises", "von_mises_fisher"}


@pytest.mark.parametrize(
    "name", [name if name in VARIATIONAL else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_variational_is_the_exact_one_and_has_its_gradient(name):
    exact, sparse = exact_and_sparse(name, Variational(sites="blocks"), True, n=16)
    (value, gradient, a), (sparse_value, sparse_gradient, b) = exact.evaluate(), sparse.evaluate()
    assert a.converged and b.converged
    np.testing.assert_allclose(sparse_value, value, rtol=1e-5)
    np.testing.assert_allclose(sparse_gradient, gradient, rtol=1e-5, atol=1e-5 * np.abs(gradient).max())
    assert np.all(np.diff(b.trace) >= -1e-11 * abs(value))  # the bound never falls
    # values jump by what nodes are off by where their number changes: 1e-7 for "standard", too much for differences
    _, sparse = exact_and_sparse(name, Variational(sites="blocks", accuracy="fine"), True, n=16, M=5)
    _, gradient, a = sparse.evaluate()
    grad_Z, h = gradients(sparse, a)[1], 1e-4
    step = np.zeros_like(sparse.field.Z)
    step[2, 1] = h
    moves = [(h * e, 0 * step, g) for e, g in zip(np.eye(sparse.theta.size), gradient)] + [(0.0, step, grad_Z[2, 1])]
    for change, change_Z, slope in moves:
        above, below = (
            with_inputs(sparse.at(sparse.theta + s * change), sparse.field.Z + s * change_Z).evaluate(
                a.start, gradient=False
            )[0]
            for s in (1, -1)
        )
        # the bound is stationary to 1e-8 in q, its gradient to about the square root of that times h
        assert abs(slope - (above - below) / (2 * h)) < 1e-5 * (1 + np.abs(gradient).max())


def test_factorised_variational_sites():
    exact, sparse = exact_and_sparse("multinomial", Variational(sites="factorised"), True, n=16)
    np.testing.assert_allclose(sparse.evaluate()[0], exact.evaluate()[0], rtol=1e-5)
    np.testing.assert_allclose(sparse.evaluate()[1], exact.evaluate()[1], rtol=1e-5, atol=1e-5)


def test_variational_bound_lies_below_that_of_the_exact_posterior():
    X, y = wave(60)
    kernel = ConstantKernel(4.0) * RBF(1.0)
    models = [
        GGPRegressor("von_mises", kernel, inference="variational", inducing=inducing, optimizer=None).fit(X, y)
        for inducing in (4, 12, None)
    ]
    assert all(model.converged_ for model in models)
    values = [model.log_marginal_likelihood_value_ for model in models]
    assert values[0] < values[1] <= values[2] + 1e-6
    np.testing.assert_allclose(models[1].predict(X), models[2].predict(X), atol=0.01)


@pytest.mark.parametrize("name", ["inverse_gaussian", "dirichlet", "dirichlet, exp"])
def test_gradient_with_indefinite_rows_at_the_mode(name):
    scale = {"dirichlet": 4.0, "dirichlet, exp": 2.0}.get(name, 1.0)
    for seed in range(50):
        X, y, family = simulate(name, n=30, seed=seed, scale=scale)
        kernel = resolve_kernel(ConstantKernel(scale**2) * RBF(1.0) + ConstantKernel(0.25), family.latent_dim, X)
        rows = ArrayRows(X, family.encode(y), np.zeros((30, family.latent_dim)))
        sparse = inducing_evidence(family, kernel, rows, X[::3], Laplace())
        _, gradient, a = sparse.evaluate()
        assert a.converged, seed
        f = a.process.posterior(a).latent(X)[0]
        if not family.U(f, rows.y).semidefinite().all():
            break
    else:
        pytest.fail("no seed has an indefinite row")
    h = 1e-5
    for k, step in enumerate(h * np.eye(sparse.theta.size)):
        numeric = (sparse.at(sparse.theta + step).evaluate(gradient=False)[0]
                   - sparse.at(sparse.theta - step).evaluate(gradient=False)[0]) / (2 * h)  # fmt: skip
        np.testing.assert_allclose(gradient[k], numeric, rtol=1e-5, atol=1e-5)


def test_taylor_without_coupling_and_with_a_point_of_ones_own():
    X, y, family = simulate("multinomial", n=24)
    kernel, encoded, offset = resolve_kernel(kernels(3, True), 3, X), family.encode(y), np.zeros((24, 3))
    point = 0.1 * np.random.default_rng(0).normal(size=(24, 3))
    for inference in (Taylor(c=0), Taylor(point), Taylor(lambda y: np.log(y + 1.0))):
        exact = dense_evidence(family, kernel, X, encoded, offset, inference).evaluate()
        sparse = inducing_evidence(family, kernel, ArrayRows(X, encoded, offset, chunk_rows=5), X, inference).evaluate()
        np.testing.assert_allclose(sparse[0], exact[0], rtol=1e-6)
        np.testing.assert_allclose(sparse[1], exact[1], rtol=1e-5, atol=1e-5)


# ---- Titsias -------------------------------------------------------------------------------------------------------


def titsias_problem():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (50, 2))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=50)
    return X, y, X[:12] + 0.03


@pytest.mark.parametrize("inference", METHODS, ids=METHOD_IDS)
def test_gaussian_objective_is_titsias_bound(inference):
    """Against the bound written out with dense matrices, and against numbers that GPflow 2.11 gave for it."""
    X, y, Z = titsias_problem()
    kernel, noise = ConstantKernel(1.3) * RBF([0.8, 1.4]), 0.07
    family = families.Gaussian(phi=noise).resolve(y)
    for jitter, gpflow in ((1e-6, -108.35874421806074), (1e-8, -108.35797191146307)):  # GPflow's is absolute
        rows = ArrayRows(X, family.encode(y), np.zeros((50, 1)), chunk_rows=11)
        value = inducing_evidence(family, [kernel], rows, Z, inference, jitter / 1.3).evaluate()[0]
        Q = kernel(X, Z) @ np.linalg.solve(kernel(Z) + jitter * np.eye(12), kernel(Z, X))
        C = Q + noise * np.eye(50)
        dense = -0.5 * (y @ np.linalg.solve(C, y) + np.linalg.slogdet(2 * np.pi * C)[1])
        dense -= 0.5 * np.sum(kernel.diag(X) - np.diag(Q)) / noise
        np.testing.assert_allclose(value, dense, rtol=1e-8)  # the condition of K_uu is 1e8
        np.testing.assert_allclose(value, gpflow, rtol=1e-8)


def test_gaussian_objective_and_predictions_are_gpflows_sgpr():
    gpflow = pytest.importorskip("gpflow", reason="needs GPflow for a live comparison; its numbers are held above")
    X, y, Z = titsias_problem()
    model = gpflow.models.SGPR(
        (X, y[:, None]),
        gpflow.kernels.RBF(variance=1.3, lengthscales=[0.8, 1.4]),
        inducing_variable=Z,
        noise_variance=0.07,
    )
    jitter = gpflow.config.default_jitter()
    ours = GGPRegressor(
        families.Gaussian(phi=0.07),
        ConstantKernel(1.3) * RBF([0.8, 1.4]),
        optimizer=None,
        inducing=Inducing(Z, jitter=jitter / 1.3),
    ).fit(X, y)
    np.testing.assert_allclose(ours.log_marginal_likelihood_value_, float(model.elbo()), rtol=1e-8)
    mean, variance = model.predict_f(X[:5] + 0.1)
    our_mean, our_cov = ours.predict_latent(X[:5] + 0.1)
    np.testing.assert_allclose(our_mean, mean, rtol=1e-8)
    np.testing.assert_allclose(our_cov[:, 0], variance, rtol=1e-8)


def test_the_bound_rises_with_every_inducing_point():
    X, y, _ = titsias_problem()
    family = families.Gaussian(phi=0.07).resolve(y)
    rows = ArrayRows(X, family.encode(y), np.zeros((50, 1)))
    values = [inducing_evidence(family, [RBF(1.0)], rows, X[:M], Laplace()).evaluate()[0] for M in (3, 6, 12, 25, 50)]
    exact = dense_evidence(family, [RBF(1.0)], X, rows.y, rows.offset, Laplace()).evaluate()[0]
    assert np.all(np.diff(values) > 0) and values[-1] <= exact + 1e-6 * abs(exact)


# ---- chunks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["von_mises", "ordinal", "dirichlet"])
def test_results_do_not_depend_on_chunks_or_their_order(name):
    X, y, family = simulate(name, n=150)
    D = family.latent_dim
    kernel = resolve_kernel(kernels(D, True), D, X)
    Z, encoded = kmeans_points(X, 20), family.encode(y)
    X_new = np.random.default_rng(1).uniform(-2, 2, (6, 2))
    reference = None
    for chunk_rows, order in ((150, slice(None)), (64, slice(None)), (7, slice(None)), (33, slice(None, None, -1))):
        rows = ArrayRows(X[order], encoded[order], np.zeros((150, D)), chunk_rows=chunk_rows)
        value, gradient, a = inducing_evidence(family, kernel, rows, Z, Laplace()).evaluate()
        result = np.array([value]), gradient, *a.process.posterior(a).latent(X_new)
        reference = reference or result
        for one, other in zip(result, reference):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10 * np.abs(other).max())


def test_a_step_is_one_pass_and_its_memory_does_not_grow_with_the_rows():
    peaks = []
    for n in (20_000, 80_000):
        X, y = wave(n)
        family = families.VonMises().resolve(y)
        rows = ArrayRows(X, family.encode(y), np.zeros((n, 2)), chunk_rows=5000)
        sparse = inducing_evidence(family, [4.0 * RBF(1.0)], rows, X[:16], Laplace())
        start = sparse.infer().start
        tracemalloc.start()
        _, _, a = sparse.at(sparse.theta + 0.05).evaluate(start)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert a.converged and a.n_iter >= 2 and a.n_passes == a.n_iter + 1  # one more at the start
    # 10 kB: bookkeeping of the interpreter; one number for each of the 60,000 further rows would be 480 kB
    assert peaks[1] < peaks[0] + 10_000, peaks


def test_totals_keep_what_plain_sums_lose():
    values = np.random.default_rng(0).normal(size=2000) * 10.0 ** np.arange(2000).clip(0, 12)
    forward, backward, halves = Total(), Total(), [Total(), Total()]
    for i, x in enumerate(values):
        forward.add({"x": np.array(x)})
        backward.add({"x": np.array(values[-1 - i])})
        halves[i % 2].add({"x": np.array(x)})
    halves[0].merge(halves[1])
    truth = math.fsum(values)
    assert abs(sum(values) - truth) > 0  # a plain sum does lose something here
    for total in (forward, backward, halves[0]):
        np.testing.assert_allclose(total.value()["x"], truth, rtol=1e-15)


# ---- estimators ----------------------------------------------------------------------------------------------------


def wave(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, (n, 1))
    return X, np.angle(np.exp(1j * (2.0 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=n))))


@pytest.mark.parametrize("choice", ["kmeans", "variance"])
def test_learned_hyperparameters_come_close_to_the_exact_ones(choice):
    X, y = wave(150)
    kernel = ConstantKernel() * RBF() + ConstantKernel()
    exact = GGPRegressor("von_mises", kernel, inference="laplace").fit(X, y)
    sparse = GGPRegressor("von_mises", kernel, inference="laplace", inducing=Inducing(25, choice=choice)).fit(X, y)
    assert sparse.converged_ and sparse.inducing_inputs_.shape == (25, 1)
    # 25 points on a curve of this smoothness leave nothing unexplained
    np.testing.assert_allclose(sparse.log_marginal_likelihood_value_, exact.log_marginal_likelihood_value_, atol=0.05)
    np.testing.assert_allclose(sparse.predict(X[:20]), exact.predict(X[:20]), atol=0.02)


def test_a_users_expansion_point_belongs_to_its_rows_when_a_sample_chooses_the_kernel():
    X = np.random.default_rng(0).uniform(0, 6, (120, 1))
    y = np.random.default_rng(1).poisson(np.exp(np.sin(X[:, 0])))
    settings = Inducing(6, sample_rows=40)
    listed, computed = (
        GGPRegressor("poisson", inference=Taylor(point), inducing=settings).fit(X, y)
        for point in (np.log(y + 1.0), lambda y: np.log(y + 1.0))
    )
    assert listed.log_marginal_likelihood_value_ == computed.log_marginal_likelihood_value_
    with pytest.raises(ValueError, match=r"shape \(n, D\) = \(120, 1\)"):
        GGPRegressor("poisson", inference=Taylor(np.zeros(40)), inducing=settings).fit(X, y)


@pytest.mark.slow
def test_optimised_inducing_inputs_raise_the_objective():
    X, y = wave(100)
    held = GGPRegressor("von_mises", inducing=4).fit(X, y)
    moved = GGPRegressor("von_mises", inducing=Inducing(4, optimise=True)).fit(X, y)
    assert moved.log_marginal_likelihood_value_ > held.log_marginal_likelihood_value_ + 1.0
    assert not np.allclose(moved.inducing_inputs_, held.inducing_inputs_)


def test_warmup_on_a_sample_leads_to_the_same_optimum():
    X, y = wave(400)
    direct = GGPRegressor("von_mises", inference="laplace", inducing=Inducing(15, warmup=False, ftol=1e-9)).fit(X, y)
    settings = Inducing(direct.inducing_inputs_, sample_rows=100, ftol=1e-9)
    warmed = GGPRegressor("von_mises", inference="laplace", inducing=settings).fit(X, y)
    np.testing.assert_allclose(warmed.log_marginal_likelihood_value_, direct.log_marginal_likelihood_value_, atol=0.01)


def test_classifiers_take_inducing_points():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    kernel = ConstantKernel() * RBF()
    model = GGPClassifier(kernel, inducing=20).fit(X, labels)
    assert model.score(X, labels) > 0.9 and model.predict_proba(X).shape == (200, 3)
    ordinal = GGPOrdinalClassifier(kernel, order=["a", "b", "c"], inducing=20).fit(X, labels)
    assert ordinal.score(X, labels) > 0.9


def test_memory_mapped_arrays_give_the_same_model(tmp_path):
    X, y = wave(300)
    for name, array in (("X", X), ("y", y)):
        np.save(tmp_path / f"{name}.npy", array)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("X", "y")]
    kernel = ConstantKernel(2.0) * RBF(1.0)
    one = GGPRegressor("von_mises", kernel, inducing=Inducing(15, chunk_rows=64), optimizer=None).fit(*mapped)
    other = GGPRegressor("von_mises", kernel, inducing=15, optimizer=None).fit(X, y)
    np.testing.assert_allclose(one.log_marginal_likelihood_value_, other.log_marginal_likelihood_value_, rtol=1e-10)
    np.testing.assert_allclose(one.predict(X[:5]), other.predict(X[:5]), rtol=1e-8)


def test_offset_and_log_marginal_likelihood_at_other_hyperparameters():
    X, y, _ = simulate("poisson", n=60)
    offset = np.linspace(-1, 1, 60)
    model = GGPRegressor("poisson", kernels(1, True), inducing=X, optimizer=None).fit(X, y, offset=offset)
    exact = GGPRegressor("poisson", kernels(1, True), optimizer=None).fit(X, y, offset=offset)
    theta = model.theta_ + 0.2
    for one, other in zip(
        model.log_marginal_likelihood(theta, eval_gradient=True),
        exact.log_marginal_likelihood(theta, eval_gradient=True),
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.predict(X, offset=offset), exact.predict(X, offset=offset), rtol=1e-5)


def test_white_noise_stays_out_of_the_inducing_values_and_in_predictions():
    X, y, Z = titsias_problem()
    kernel = RBF(1.0) + WhiteKernel(0.2)
    family = families.Gaussian(phi=0.1).resolve(y)
    rows = ArrayRows(X, family.encode(y), np.zeros((50, 1)))
    sparse = inducing_evidence(family, [kernel], rows, Z, Laplace())
    _, gradient, a = sparse.evaluate()
    # every row's own part of a Gaussian latent is as good as noise of the observation
    smooth = inducing_evidence(families.Gaussian(phi=0.3).resolve(y), [RBF(1.0)], rows, Z, Laplace()).evaluate()[0]
    np.testing.assert_allclose(a.log_evidence, smooth, rtol=1e-12)
    h = 1e-5
    for k, step in enumerate(h * np.eye(3)):
        numeric = (sparse.at(sparse.theta + step).evaluate(gradient=False)[0]
                   - sparse.at(sparse.theta - step).evaluate(gradient=False)[0]) / (2 * h)  # fmt: skip
        np.testing.assert_allclose(gradient[k], numeric, rtol=1e-6, atol=1e-6)


def test_a_fitted_model_survives_pickling():
    X, y = wave(80)
    model = GGPRegressor("von_mises", inducing=10, optimizer=None).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


# ---- choice of points and bad input --------------------------------------------------------------------------------


def test_choices_of_points():
    X = np.random.default_rng(0).uniform(-1, 1, (400, 2)) * [1.0, 1000.0]
    centres = kmeans_points(X, 16)
    assert centres.shape == (16, 2) and np.ptp(centres[:, 0]) > 1.0  # the wide feature does not drown the other
    kernel = RBF([0.5, 500.0])
    greedy = greedy_variance(X, [kernel, kernel], 16)
    assert len(np.unique(greedy, axis=0)) == 16

    def left(Z):
        return np.sum(
            1 - np.einsum("ij,ji->i", kernel(X, Z), np.linalg.solve(kernel(Z) + 1e-8 * np.eye(16), kernel(Z, X)))
        )

    random = X[np.random.default_rng(1).choice(400, 16, replace=False)]
    assert left(greedy) < left(random) and left(centres) < left(random)


def test_fewer_distinct_rows_than_points_says_so():
    X = np.repeat(np.arange(5.0), 8)[:, None]
    with pytest.warns(UserWarning, match="only 5 distinct rows"):
        model = GGPRegressor("poisson", inducing=10, optimizer=None).fit(X, np.arange(40))
    assert len(model.inducing_inputs_) == 5


@pytest.mark.parametrize(
    ("inducing", "match"),
    [
        (0, "at least one"),
        (True, "number of points"),
        ("many", "number of points"),
        (2.5, "number of points"),
        (500, "at most the number of rows"),
        (np.zeros(4), "dimension"),
        (np.zeros((4, 3)), r"shape \(M, 1\)"),
        (np.full((4, 1), np.nan), "finite"),
    ],
)
def test_bad_inducing_points_are_named(inducing, match):
    X, y = wave(30)
    with pytest.raises(ValueError, match=match):
        GGPRegressor("von_mises", inducing=inducing).fit(X, y)


def test_bad_settings_are_named():
    for bad in ({"choice": "random"}, {"jitter": -1.0}, {"chunk_rows": 0}, {"sample_rows": 0}, {"ftol": 2.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Inducing(5, **bad)


def test_coinciding_points_without_jitter_are_an_error_that_says_what_to_do():
    X, y = wave(30)
    with pytest.raises(InferenceError, match="coincide"):
        GGPRegressor("von_mises", inducing=Inducing(np.zeros((3, 1)), jitter=0.0), optimizer=None).fit(X, y)


def test_bad_rows_leave_the_earlier_model_as_it_was(tmp_path):
    X, y = wave(200)
    model = GGPRegressor("von_mises", inducing=10, optimizer=None).fit(X, y)
    before = copy.deepcopy(model.predict(X[:5]))
    bad = X.copy()
    bad[130, 0] = np.nan
    np.save(tmp_path / "X.npy", bad)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(bad, y)
    with pytest.raises(ValueError, match=r"column 0 .* first in row 130"):
        model.fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y)
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(X, y[:-1])
    np.testing.assert_array_equal(model.predict(X[:5]), before)


def test_a_search_that_cannot_move_warns():
    X, y, _ = simulate("inverse_gaussian", n=30)
    with pytest.warns(ConvergenceWarning, match="mode"):
        GGPRegressor("inverse_gaussian", inducing=8, inference=Laplace(max_iter=1), optimizer=None).fit(X, y)


def test_an_offset_without_rows_is_told():
    with pytest.raises(ValueError, match="offset must have shape"):
        GGPRegressor("poisson", inducing=2).fit(np.arange(8.0)[:, None], np.arange(8), offset=0.5)


def test_the_search_that_stopped_early_is_the_one_that_is_named(monkeypatch):
    endings = iter([(False, "out of steps"), (True, "all is well")])

    def ending(*args, **settings):
        converged, message = next(endings)
        return replace(maximise(*args, **settings), converged=converged, message=message)

    monkeypatch.setattr("ggpm.learning.objective.maximise", ending)
    monkeypatch.setattr("ggpm.learning.fit.maximise", ending)
    with pytest.warns(ConvergenceWarning, match="out of steps"):
        kernel = ConstantKernel() * RBF() + ConstantKernel()  # named, so that no search is one for the kernel
        GGPRegressor("poisson", kernel, inducing=Inducing(2, optimise=True)).fit(np.arange(8.0)[:, None], np.arange(8))
