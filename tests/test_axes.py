"""Three axes: a new site rule and a new field, each written here alone, run with everything that there is."""

import inspect
import pickle
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cases import FAMILIES, dense_evidence, inducing_evidence, kernels, simulate
from ggpm import GGPClassifier, GGPRegressor, Laplace, Taylor, Variational, families, save
from ggpm.data.rows import ArrayRows
from ggpm.families.curvature import Blocks
from ggpm.fields.dense import DenseField
from ggpm.fields.dense.sensitivity import BlockSensitivity
from ggpm.kernels import resolve_kernel
from ggpm.kernels.linalg import NotPositiveDefinite
from ggpm.learning.objective import Evidence
from ggpm.sites import Rule, Sites, Slopes


def problem(name, n=12, shared=True):
    X, y, family = simulate(name, n=n)
    D = family.latent_dim
    return X, family.encode(y), family, resolve_kernel(kernels(D, shared), D, X), np.full((n, D), 0.1)


def on_both_fields(name, rule):
    X, y, family, kernel, offset = problem(name)
    rows = ArrayRows(X, y, offset, chunk_rows=5)
    yield "dense", dense_evidence(family, kernel, X, y, offset, rule)
    yield "inducing", inducing_evidence(family, kernel, rows, X[::2], rule)


def differences(evidence, h=1e-5):
    steps = h * np.eye(evidence.theta.size)
    values = [[evidence.at(evidence.theta + s * e).evaluate(gradient=False)[0] for s in (1, -1)] for e in steps]
    return np.array([(above - below) / (2 * h) for above, below in values])


# ---- a site rule -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Tempered(Rule):
    """Laplace's rule for the square of the likelihood: every row counts twice."""

    power: float = 2.0
    depends_on = "mean"

    def value(self, problem, f):
        return self.power * problem.log_prob(f)

    def at(self, problem, f, V=None, fisher=False):
        laplace = Laplace().at(problem, f, V, fisher)
        weight = np.full(len(f), self.power)
        return Sites(self.power * laplace.u, laplace.U.times(weight), laplace.fisher)

    def slopes(self, problem, f, V, sites):
        return TemperedSlopes(Laplace().slopes(problem, f, V, sites), self.power)


@dataclass(frozen=True)
class TemperedSlopes(Slopes):
    laplace: Slopes
    power: float

    def pullback(self, u_bar, U_bar, *, value=False, phi=True):
        f_bar, V_bar, phi_bar = self.laplace.pullback(u_bar, U_bar, value=value, phi=phi)
        return self.power * f_bar, V_bar, self.power * phi_bar


def test_the_rule_is_short():
    assert len((inspect.getsource(Tempered) + inspect.getsource(TemperedSlopes)).splitlines()) < 40


@pytest.mark.parametrize("name", FAMILIES)
def test_a_new_rule_runs_with_every_family_on_both_fields(name):
    for _, evidence in on_both_fields(name, Tempered()):
        _, gradient, a = evidence.evaluate()
        assert a.converged
        np.testing.assert_allclose(gradient, differences(evidence), atol=1e-5 * (1 + np.abs(gradient).max()))


def test_a_new_rule_is_what_it_says():
    """The square of a Poisson likelihood is that of every row twice, both with the same latent."""
    X, y, family, _, offset = problem("poisson")
    kernel = [ConstantKernel(1.3) * RBF(0.9)]
    once = dense_evidence(family, kernel, X, y, offset, Tempered()).infer()
    both = np.repeat(np.arange(len(X)), 2)
    twice = dense_evidence(family, kernel, X[both], y[both], offset[both], Laplace()).infer()
    np.testing.assert_allclose(once.log_evidence, twice.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(once.q.mean, twice.q.mean[::2], atol=1e-8)


def test_an_estimator_takes_a_new_rule():
    X, y, _ = simulate("poisson", n=30)
    model = GGPRegressor("poisson", inference=Tempered()).fit(X, y)
    assert model.converged_ and model.loo().pointwise.shape == (30,)
    sparse = GGPRegressor("poisson", inference=Tempered(), inducing=8).fit(X, y)
    assert sparse.converged_ and sparse.predict(X).shape == (30,)


# ---- a field ---------------------------------------------------------------------------------------------------
class Explicit:
    """Everything formed, by matrices of order nD."""

    def __init__(self, K, U):
        self.blocks = U.dense()
        self.n, self.D, _ = self.blocks.shape
        order = self.n * self.D
        self.K, self.matrices = K.dense(self.D).reshape(order, order), K
        big = np.zeros((self.n, self.D, self.n, self.D))
        big[np.arange(self.n), :, np.arange(self.n), :] = self.blocks
        self.A = np.eye(order) + big.reshape(order, order) @ self.K
        if np.linalg.eigvals(self.A).real.min() <= 0:
            raise NotPositiveDefinite("not definite")
        self.E = np.linalg.solve(self.A, big.reshape(order, order))
        self.log_det = np.linalg.slogdet(self.A)[1]

    def solve(self, r):
        return np.linalg.solve(self.A, r.ravel()).reshape(r.shape)

    def marginals(self):
        V = (self.K - self.K @ self.E @ self.K).reshape(self.n, self.D, self.n, self.D)
        return Blocks(V[np.arange(self.n), :, np.arange(self.n), :])

    def precision(self):
        E = self.E.reshape(self.n, self.D, self.n, self.D)
        blocks = [np.asfortranarray(E[:, j, :, j]) for j in range(self.D)]
        return [np.asfortranarray(sum(blocks))] if self.matrices.shared else blocks

    def sensitivity(self):
        V = (self.K - self.K @ self.E @ self.K).reshape(self.n, self.D, self.n, self.D)
        return BlockSensitivity(self.matrices, V, self.blocks)


def test_the_field_is_short():
    assert len(inspect.getsource(Explicit).splitlines()) < 40


@pytest.mark.parametrize("rule", [Taylor(), Laplace(), Variational(sites="blocks")], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_new_field_gives_what_the_structured_one_does(name, rule):
    X, y, family, kernel, offset = problem(name, n=8)
    one = Evidence(family, kernel, DenseField(X, y, offset), rule)
    other = Evidence(family, kernel, DenseField(X, y, offset, Explicit), rule)
    (value, gradient, _), (expected, expected_gradient, _) = one.evaluate(), other.evaluate()
    np.testing.assert_allclose(value, expected, rtol=1e-8, atol=1e-8)
    # variational sites are converged to 1e-6
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-5 * (1 + np.abs(gradient).max()))
    loo, expected_loo = one.leave_one_out(), other.leave_one_out()
    np.testing.assert_allclose(loo[0], expected_loo[0], rtol=1e-5, atol=1e-5)
    # of a mean and a scale 1e-4 is left of 1 - V U in some rows, which the plain inverse knows less well
    digits = 1e-3 if name == "gaussian_mean_scale" else 1e-4
    np.testing.assert_allclose(loo[1], expected_loo[1], rtol=digits, atol=digits * (1 + np.abs(loo[1]).max()))


# ---- values that stay values ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("rule", [Taylor(), Laplace(), Variational()], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("name", ["poisson", "von_mises", "categorical", "wishart", "multivariate_gaussian"])
def test_an_approximation_may_be_asked_twice(name, rule):
    for _, evidence in on_both_fields(name, rule):
        a = evidence.infer()
        first = evidence.gradient(a)
        latent = a.process.posterior(a).latent(evidence_rows(evidence))
        again = evidence.gradient(a)
        np.testing.assert_allclose(again, first, rtol=1e-12, atol=1e-12 * np.abs(first).max())
        for one, other in zip(a.process.posterior(a).latent(evidence_rows(evidence)), latent):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def evidence_rows(evidence):
    return evidence.field.X if isinstance(evidence.field, DenseField) else evidence.field.rows.X


@pytest.mark.parametrize("name", ["von_mises", "categorical", "wishart", "gaussian", "multivariate_gaussian"])
def test_a_factorisation_answers_the_same_in_any_order(name):
    X, y, family, kernel, offset = problem(name)
    process = DenseField(X, y, offset).process(family, kernel)
    a = dense_evidence(family, kernel, X, y, offset, Laplace()).infer()
    r = np.random.default_rng(0).normal(size=process.shape)
    questions = {
        "solve": lambda s: s.solve(r),
        "marginals": lambda s: s.marginals().dense(),
        "precision": lambda s: np.stack(s.precision()),
        "covariance": lambda s: s.sensitivity().covariance(),
    }
    fresh = {what: ask(process.solver(process.K, a.q.U)) for what, ask in questions.items()}
    solution = process.solver(process.K, a.q.U)
    for what in [*questions, *reversed(questions)]:
        answer = questions[what](solution)
        np.testing.assert_allclose(answer, fresh[what], rtol=1e-9, atol=1e-10)
        answer[...] = np.nan  # what a caller receives is nobody's cache


def test_leave_one_out_of_coupled_latents_factorises_nothing_of_order_nd(monkeypatch):
    from ggpm.fields.dense import block

    def refuse(*_):
        raise AssertionError("a factorisation of order nD")

    X, y, family, kernel, offset = problem("dirichlet", n=15)
    evidence = dense_evidence(family, kernel, X, y, offset, Laplace())
    monkeypatch.setattr(block.BlockSolution, "__init__", refuse)
    assert np.all(np.isfinite(evidence.leave_one_out()[1]))


def test_two_fits_in_two_threads_give_what_they_give_alone():
    tasks = {name: simulate(name, n=40) for name in ("ordinal", "von_mises", "dirichlet", "negative_binomial")}

    def fit(name):
        X, y, family = tasks[name]
        return GGPRegressor(family, 1.0 * RBF(1.0)).fit(X, y).predict_latent(X)[0]

    alone, together = {name: fit(name) for name in tasks}, {}
    threads = [threading.Thread(target=lambda n=name: together.update({n: fit(n)})) for name in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, expected in alone.items():
        np.testing.assert_array_equal(together[name], expected)


# ---- seams -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("inducing", [None, 20])
def test_a_given_expansion_point_goes_with_its_rows(inducing):
    """Learning starts on a subset of many rows, which takes its part of the point along."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, (300, 1))
    y = rng.poisson(np.exp(np.sin(X[:, 0])))
    point = np.log(y + 1.0)
    given, called = (
        GGPRegressor("poisson", 1.0 * RBF(1.0), inference=Taylor(p), inducing=inducing).fit(X, y)
        for p in (point, lambda y: np.log(y + 1.0))
    )
    np.testing.assert_allclose(given.theta_, called.theta_, rtol=1e-6)
    assert given.log_marginal_likelihood_value_ == pytest.approx(called.log_marginal_likelihood_value_, rel=1e-9)


@pytest.mark.parametrize("rule", [Taylor(), Laplace(), Variational(tol=1e-9)], ids=["taylor", "laplace", "variational"])
@pytest.mark.parametrize(
    "name",
    ["poisson", "gamma", "ordinal"]
    + [pytest.param(n, marks=pytest.mark.slow) for n in ("von_mises", "categorical", "dirichlet")],
)
def test_inducing_points_carry_what_belongs_to_a_row_alone(name, rule):
    """With all rows as inducing points a kernel with white noise has the exact evidence and gradient."""
    X, y, family, _, offset = problem(name, n=16)
    kernel = [ConstantKernel(1.5) * RBF(0.6) + WhiteKernel(0.4)]
    exact = dense_evidence(family, kernel, X, y, offset, rule)
    sparse = inducing_evidence(family, kernel, ArrayRows(X, y, offset, chunk_rows=7), X, rule, 1e-12)
    (value, gradient, a), (sparse_value, sparse_gradient, b) = exact.evaluate(), sparse.evaluate()
    assert a.converged and b.converged
    np.testing.assert_allclose(sparse_value, value, rtol=1e-8, atol=1e-7)
    np.testing.assert_allclose(sparse_gradient, gradient, rtol=1e-6, atol=1e-6 * (1 + np.abs(gradient).max()))
    fewer = inducing_evidence(family, kernel, ArrayRows(X, y, offset, chunk_rows=7), X[::2], rule)
    gradient = fewer.evaluate()[1]
    np.testing.assert_allclose(gradient, differences(fewer), atol=1e-5 * (1 + np.abs(gradient).max()))


def test_white_noise_is_learned_with_inducing_points():
    """Counts with extra variation from row to row: as much of it as exact inference finds."""
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0, 6, 120))[:, None]
    y = rng.poisson(np.exp(1.5 + np.sin(X[:, 0]) + 0.6 * rng.normal(size=120)))
    kernel = 1.0 * RBF(1.0) + WhiteKernel(0.3)
    exact, sparse = (GGPRegressor("poisson", kernel, inducing=m).fit(X, y) for m in (None, 20))
    noise = [model.kernel_.k2.noise_level for model in (exact, sparse)]
    np.testing.assert_allclose(*noise, rtol=0.05)
    assert noise[0] > 0.2


def test_memory_is_looked_at_before_any_field_is_built(monkeypatch):
    X, y, _ = simulate("von_mises", n=40)
    monkeypatch.setattr("ggpm.fields.dense.solution.available_memory", lambda: 2 * 8 * 40**2 - 1)
    with pytest.raises(MemoryError, match="kernel matrices and a factor for 40 rows"):
        GGPRegressor("von_mises", optimizer=None).fit(X, y)
    monkeypatch.setattr("ggpm.fields.dense.solution.available_memory", lambda: 2 * 8 * 40**2)
    with pytest.raises(MemoryError, match="rank-one coupling for 40 rows"):
        GGPRegressor("von_mises", optimizer=None).fit(X, y)


# ---- Fit ---------------------------------------------------------------------------------------------------------
def test_a_pickle_is_about_as_large_as_a_file(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    model = GGPClassifier(optimizer=None).fit(X, rng.integers(0, 4, 300))
    model.predict_proba(X)
    model.loo(neighbours=0)
    save(model, tmp_path / "model.ggpm")
    pickled = pickle.dumps(model)
    assert len(pickled) < 1.2 * (tmp_path / "model.ggpm").stat().st_size
    again = pickle.loads(pickled)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_allclose(again.loo(neighbours=0).pointwise, model.loo(neighbours=0).pointwise, rtol=1e-9)


def test_a_failed_fit_leaves_the_estimator_as_it_was():
    X, y, _ = simulate("poisson", n=12)
    for settings in ({}, {"inducing": 4}):
        model = GGPRegressor("poisson", optimizer=None, **settings).fit(X, y)
        before = dict(vars(model))
        with pytest.raises(ValueError, match="counts"):
            model.fit(X, -1.0 - y)
        assert vars(model) == before
        bare = GGPRegressor("poisson", **settings)
        with pytest.raises(ValueError, match="counts"):
            bare.fit(X, -1.0 - y)
        assert vars(bare) == vars(GGPRegressor("poisson", **settings))


def test_a_fit_is_frozen_and_the_estimator_shows_it():
    X, y, _ = simulate("gamma", n=12)
    model = GGPRegressor(families.Gamma(), optimizer=None).fit(X, y)
    fit = model.fit_
    with pytest.raises(AttributeError):
        fit.n_iter = 7
    np.testing.assert_array_equal(model.theta_, fit.theta)
    assert model.family_ is fit.family and model.posterior_ is fit.posterior
    assert model.converged_ == fit.converged and model.n_features_in_ == fit.columns.count
