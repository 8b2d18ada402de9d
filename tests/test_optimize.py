"""The search for hyperparameters: a guess of the curvature saves evaluations, and decides nothing else."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cases import FAMILIES, dense_evidence, simulate
from ggpm import GGPRegressor, Inducing, Laplace
from ggpm.data.rows import ArrayRows
from ggpm.families import Gaussian
from ggpm.fields.dense import field
from ggpm.learning import objective
from ggpm.learning.objective import Evidence, WarmObjective, search
from ggpm.learning.search import maximise

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(5, 5))
HESSIAN = 100.0 * (ROOT @ ROOT.T + np.eye(5))
TOP = np.array([0.3, -0.5, 0.2, 4.0, 0.1])  # the fourth lies beyond its bound
BOUNDS = np.tile([-2.0, 2.0], (5, 1))


def hill(calls):
    def objective(theta):
        calls.append(theta.copy())
        gap = TOP - theta
        return -1000.0 - 0.5 * gap @ HESSIAN @ gap, HESSIAN @ gap

    return objective


def top_within_bounds():
    free = np.arange(5) != 3
    cross = np.linalg.solve(HESSIAN[np.ix_(free, free)], HESSIAN[free, 3])
    out = np.full(5, 2.0)
    out[free] = TOP[free] - cross * (2.0 - TOP[3])
    return out


@pytest.mark.parametrize(
    "start",
    [np.array([0.0, -1.0, 0.0, 2.0, 0.0]), np.array([0.0, -1.0, 0.0, 1.5, 0.0])],
    ids=["at the bound", "inside"],
)
def test_with_the_curvature_known_a_parameter_beyond_its_bound_is_held(start):
    assert np.all(np.abs(np.delete(top_within_bounds(), 3)) < 2)  # else more than one would have to be held
    calls, plain = [], []
    found = maximise(hill(calls), start, BOUNDS, inverse_hessian=lambda: np.linalg.inv(HESSIAN))
    np.testing.assert_allclose(found.theta, top_within_bounds(), atol=1e-3)
    maximise(hill(plain), start, BOUNDS)
    assert found.converged and len(calls) < len(plain)
    if start[3] == 2.0:
        assert len(calls) == 2  # one full step, and nothing spent on seeing that it is the last


@pytest.mark.parametrize("guess", [1e-6 * np.eye(5), 1e3 * np.eye(5)], ids=["too small", "too large"])
def test_a_wrong_guess_of_the_curvature_leads_to_the_same_top(guess):
    found = maximise(hill([]), np.zeros(5), BOUNDS, inverse_hessian=lambda: guess, ftol=1e-12)
    assert found.converged
    np.testing.assert_allclose(found.theta, top_within_bounds(), atol=1e-4)


def test_a_way_that_gets_steeper_is_not_walked_in_steps_of_a_hundredth():
    """The guessed curvature is far too large, and on the way to the bound there is none to learn from."""
    calls = []

    def ramp(theta):
        calls.append(theta)
        return float(np.exp(0.5 * theta[0])), 0.5 * np.exp(0.5 * theta)

    found = maximise(ramp, np.zeros(1), np.array([[-1.0, 10.0]]), inverse_hessian=lambda: np.full((1, 1), 1e-2))
    assert found.theta[0] == 10.0
    assert len(calls) < 20  # as many as doublings of the first step, and some


def test_a_search_without_a_rise_goes_on_as_if_there_had_been_no_guess():
    calls, plain, start = [], [], np.array([0.0, -1.0, 0.0, 1.5, 0.0])
    found = maximise(hill(calls), start, BOUNDS, inverse_hessian=lambda: -np.eye(5), max_iter=30)
    maximise(hill(plain), start, BOUNDS, max_iter=30)
    assert found.converged and found.n_iter <= 30
    np.testing.assert_array_equal(calls[-len(plain) + 1 :], plain[1:])  # steps of the same size


def test_posteriors_start_from_the_best_so_far():
    class Recorder:
        """An evidence whose posterior is its theta, and that notes where searches for it start."""

        def __init__(self):
            self.starts = []

        def at(self, theta):
            self.theta = theta
            return self

        def searching(self):
            return self

        def learn(self, start):
            self.starts.append(start)
            return -float(self.theta[0] ** 2), np.zeros(1), type("Approximation", (), {"start": float(self.theta[0])})

        def inverse_information(self, approximation):
            return None

    recorder = Recorder()
    objective = WarmObjective(recorder)
    for theta in (3.0, 1.0, 50.0, 2.0):  # the third goes much too far
        objective(np.array([theta]))
    assert recorder.starts == [None, 3.0, 1.0, 1.0]


def test_average_information_of_a_gaussian_is_the_textbook_s():
    rng = np.random.default_rng(1)
    X, kernel, noise = rng.normal(size=(40, 2)), ConstantKernel(1.7) * RBF(0.9), 0.4
    y = rng.normal(size=40)
    K, slopes = kernel(X, eval_gradient=True)
    P = np.linalg.inv(K + noise * np.eye(40))
    q = np.stack([*(slopes[:, :, i] @ P @ y for i in range(2)), noise * P @ y])
    family = Gaussian(noise).resolve(y)
    evidence = dense_evidence(family, [kernel], X, family.encode(y), np.zeros((40, 1)), Laplace())
    found = evidence.inverse_information(evidence.evaluate()[2])
    w, Q = np.linalg.eigh(0.5 * q @ P @ q.T)
    assert w.max() > 2.0  # else the floor would decide all
    np.testing.assert_allclose(found, (Q / np.maximum(w, 1.0)) @ Q.T, rtol=1e-3, atol=1e-5)


def test_average_information_saves_evaluations_and_decides_nothing_else(monkeypatch):
    counts = {True: 0, False: 0}
    for name in FAMILIES:
        X, y, family = simulate(name, n=30)
        if isinstance(family.latent_variance, tuple):  # one rough kernel for mean and noise has no best evidence
            continue
        tops = []
        for informed in counts:
            with monkeypatch.context() as patch:
                if not informed:
                    patch.setattr(Evidence, "inverse_information", lambda self, approximation: None)
                evaluate = Evidence.evaluate

                def counted(self, *args, informed=informed, evaluate=evaluate, **settings):
                    counts[informed] += 1
                    return evaluate(self, *args, **settings)

                patch.setattr(Evidence, "evaluate", counted)
                model = GGPRegressor(family, ConstantKernel(1.0) * RBF(1.0), inference="laplace").fit(X, y)
            assert model.converged_
            tops.append(model.log_marginal_likelihood_value_)
        assert abs(tops[0] - tops[1]) < 1e-5 * (1 + abs(tops[0])), (name, tops)
    assert counts[True] < 0.95 * counts[False], counts


@pytest.mark.parametrize("name", ["bernoulli", "ordinal", "von_mises", "dirichlet"])
def test_shortcuts_of_large_problems_change_nothing(name, monkeypatch):
    X, y, family = simulate(name, n=300)

    def fit(optimizer):
        kernel = ConstantKernel(1.0) * RBF(1.0)
        model = GGPRegressor(family, kernel, inference="laplace", optimizer=optimizer).fit(X, y)
        return model.log_marginal_likelihood_value_, *model.predict_latent(X[:20] + 0.1)

    at_theta, learned = fit(None), fit("fmin_l_bfgs_b")
    monkeypatch.setattr(field, "CHORD_SIZE", 10**9)  # no steps with an old factorisation
    for quick, plain in zip(at_theta, fit(None)):
        np.testing.assert_allclose(quick, plain, rtol=1e-8, atol=1e-8)
    monkeypatch.setattr(objective, "SUBSET_FROM", 10**9)  # no start from a subset, nor from the information
    monkeypatch.setattr(Evidence, "inverse_information", lambda self, approximation: None)
    plain = fit("fmin_l_bfgs_b")
    np.testing.assert_allclose(learned[0], plain[0], rtol=1e-8)
    for quick, slow in zip(learned[1:], plain[1:]):  # both at a flat top, known to the square root of its precision
        np.testing.assert_allclose(quick, slow, rtol=1e-3, atol=1e-3)


class CountedRows:
    """Rows that count the passes over all of them."""

    def __init__(self, rows, passes):
        self.rows, self.passes = rows, passes
        self.n_rows, self.n_features, self.collect = rows.n_rows, rows.n_features, rows.collect

    def map_reduce(self, task, arguments, rows):
        self.passes.append(task.__name__)
        return self.rows.map_reduce(task, arguments, rows)

    def prepared(self, prepare):
        return CountedRows(self.rows.prepared(prepare), self.passes)


def test_few_evaluations_see_all_rows_even_if_a_feature_does_not_matter():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (2000, 2))
    y = np.angle(np.exp(1j * (2.0 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=2000))))
    kernel = ConstantKernel(4.0) * RBF([1.0, 1.0])
    evaluations = {}
    for warmup in (True, False):
        passes = []
        settings = Inducing(12, sample_rows=500, warmup=warmup)
        model = GGPRegressor("von_mises", kernel, inference="laplace", inducing=settings)
        model.fit(CountedRows(ArrayRows(X, y), passes))
        assert model.converged_
        evaluations[warmup] = passes.count("gradient_pass"), model.log_marginal_likelihood_value_
    assert evaluations[True][0] <= 8 < evaluations[False][0], evaluations
    np.testing.assert_allclose(evaluations[True][1], evaluations[False][1], atol=0.1)


class Hill:
    """An evidence whose sites are inexact while it is searched: its gradients are off by up to ten there."""

    bounds, field, family = BOUNDS, SimpleNamespace(n_rows=1), SimpleNamespace(log_unit=0.0)

    def __init__(self, theta=None, off=0.0):
        self.theta, self.off = theta, off

    def searching(self):
        return Hill(self.theta, 10.0)

    def at(self, theta):
        return Hill(theta, self.off)

    def learn(self, start):
        value, gradient = hill([])(self.theta)
        return value, gradient + self.off * np.sin(1e6 * self.theta), SimpleNamespace(start=None)

    def inverse_information(self, approximation):
        return None


def test_a_search_that_inexact_sites_stop_goes_on_with_exact_ones():
    inexact = maximise(lambda theta: Hill(theta, 10.0).learn(None)[:2], np.zeros(5), BOUNDS, ftol=0.0)
    assert inexact.stuck and not inexact.converged
    found = search(WarmObjective(Hill()), np.zeros(5), ftol=0.0)
    assert found.converged and not found.stuck and found.n_iter > inexact.n_iter
    np.testing.assert_allclose(found.theta, top_within_bounds(), atol=1e-4)
