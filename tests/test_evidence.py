"""Evidence, its gradient, and what Taylor and Laplace have to do with each other, for every family."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cases import FAMILIES, covered, dense_evidence, kernels, simulate
from ggpm import GGPRegressor, families
from ggpm.kernels import resolve_kernel
from ggpm.sites import InferenceError, Laplace, Problem, Taylor


def target(U, point, u):
    """The paper's target ``t = eta~ + W u``, with the minimum-norm W where U is singular."""
    return point + np.einsum("ijk,ik->ij", np.linalg.pinv(U.dense(), hermitian=True), u)


def evidence_for(name, inference, shared=True, n=18, seed=0, offset=0.0):
    X, y, family = simulate(name, n=n, seed=seed)
    D = family.latent_dim
    return dense_evidence(
        family,
        resolve_kernel(kernels(D, shared), D, X),
        X,
        family.encode(y),
        np.full((n, D), offset),
        inference,
    )


def from_own_prior(name, seed, n=30):
    """A problem simulated from the prior that it is then given; wide, so that outliers occur."""
    scale = 4.0 if name == "dirichlet" else 2.0 if name == "dirichlet, exp" else 1.0
    X, y, family = simulate(name, n=n, seed=seed, scale=scale)
    kernel = resolve_kernel(ConstantKernel(scale**2) * RBF(1.0) + ConstantKernel(0.25), family.latent_dim, X)
    return dense_evidence(family, kernel, X, family.encode(y), np.zeros((n, family.latent_dim)), Laplace())


def test_every_built_in_family_is_in_the_registry():
    assert covered() == {c.__name__ for c in families.FAMILIES.values()}


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("inference", [Taylor(), Taylor(c=0), Laplace()], ids=["taylor", "taylor c=0", "laplace"])
@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_equals_central_differences(name, inference, shared):
    evidence = evidence_for(name, inference, shared, offset=0.1)
    theta = evidence.theta
    _, gradient, approximation = evidence.evaluate()
    assert approximation.converged
    assert gradient.shape == theta.shape
    h = 1e-5
    for k in range(theta.size):
        step = h * np.eye(theta.size)[k]
        above, below = (
            evidence.at(theta + step).evaluate(gradient=False),
            evidence.at(theta - step).evaluate(gradient=False),
        )
        numeric = (above[0] - below[0]) / (2 * h)
        # 1e-5 of the gradient's size, plus what differences of numbers of this size cannot resolve
        assert abs(gradient[k] - numeric) < 1e-5 * (1 + np.abs(gradient).max()), (k, gradient[k], numeric)


@pytest.mark.parametrize("name", FAMILIES)
def test_taylor_is_one_newton_step_from_its_point(name):
    evidence = evidence_for(name, Taylor())
    approximation = evidence.evaluate()[2]
    family, y = evidence.family, evidence.field.y
    point = family.expansion(y)
    U = family.U(point, y, expected=False)
    keep = U.semidefinite()
    U = U.select(keep, family.U(point[~keep], y[~keep], expected=True)).dense()
    u = family.u(point, y)
    n, D = point.shape
    # the Newton step in the primal, with K^-1: an independent way to the same point
    K = [evaluation + 1e-10 * np.eye(n) for evaluation in approximation.process.K]
    H = np.zeros((n, D, n, D))
    for j in range(D):
        H[:, j, :, j] += np.linalg.inv(K[min(j, len(K) - 1)])
    H[np.arange(n), :, np.arange(n), :] += U
    rhs = (u + np.einsum("ijk,ik->ij", U, point)).ravel()
    step = np.linalg.solve(H.reshape(n * D, n * D), rhs).reshape(n, D)
    np.testing.assert_allclose(approximation.q.mean, step, rtol=1e-5, atol=1e-5)  # K^-1 costs half the digits


@pytest.mark.parametrize("name", FAMILIES)
def test_laplace_point_is_stationary_and_the_search_never_descends(name):
    approximation = evidence_for(name, Laplace(), shared=False).evaluate()[2]
    problem = approximation.process.problem
    u = problem.family.u(approximation.q.mean, problem.y)
    np.testing.assert_allclose(approximation.q.z, u, atol=1e-8 * (1 + np.abs(u).max()))
    trace = np.array(approximation.trace)
    assert np.all(np.diff(trace) >= -1e-12 * (1 + np.abs(trace[:-1])))
    assert approximation.converged and not approximation.look.fisher


@pytest.mark.parametrize("name", ["gaussian", "gaussian, 3 outputs"])
def test_gaussian_taylor_equals_laplace(name):
    a, b = (evidence_for(name, i).evaluate() for i in (Taylor(), Laplace()))
    np.testing.assert_allclose(a[0], b[0], rtol=1e-12)
    np.testing.assert_allclose(a[1], b[1], rtol=1e-9, atol=1e-9)


def test_taylor_at_the_mode_is_laplace():
    laplace = evidence_for("dirichlet", Laplace()).evaluate()[2]
    taylor = evidence_for("dirichlet", Taylor(expansion=laplace.q.mean)).evaluate()[2]
    np.testing.assert_allclose(taylor.log_evidence, laplace.log_evidence, rtol=1e-10)


def test_multinomial_targets_are_the_papers():
    family = families.Multinomial().resolve([[1, 2, 3]])
    y = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]])
    N, d = y.sum(1, keepdims=True), 3
    zero = np.zeros_like(y)
    t = target(family.U(zero, y), zero, family.u(zero, y))
    np.testing.assert_allclose(t, d * y / N - 1, atol=1e-12)  # paper: t = d y - 1
    c0 = target(family.U(zero, y).diagonal(), zero, family.u(zero, y))
    np.testing.assert_allclose(c0, d * y / N - 1, atol=1e-12)


def test_von_mises_targets_are_the_papers():
    family = families.VonMises()
    y = np.array([0.3, -2.0])
    T = np.stack([np.cos(y), np.sin(y)], axis=1)
    from scipy.special import iv

    c1 = iv(1, 1.0) / iv(0, 1.0)
    c2 = 1 - c1**2 - 2 * c1
    np.testing.assert_allclose(family.expansion(y), T, atol=1e-15)
    U = family.U(T, y)
    np.testing.assert_allclose(U.dense(), c1 * np.eye(2) + c2 * T[:, :, None] * T[:, None, :], rtol=1e-12)
    np.testing.assert_allclose(target(U, T, family.u(T, y)), (1 + c2) / (c1 + c2) * T, rtol=1e-12)


def test_multinomial_taylor_without_coupling_is_separate_regressions():
    """Taylor with c = 0 is d Gaussian regressions on t = d y - 1 with noise variance d/N."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    X, y, _ = simulate("multinomial", n=25)
    kernel = kernels(3, True)
    model = GGPRegressor("multinomial", kernel, inference=Taylor(c=0), optimizer=None).fit(X, y)
    X_new = np.random.default_rng(5).uniform(-2, 2, (7, 2))
    mean, cov = model.predict_latent(X_new)
    N, d = y.sum(1), 3
    for j in range(d):
        gpr = GaussianProcessRegressor(kernel, alpha=d / N, optimizer=None).fit(X, d * y[:, j] / N - 1)
        m, s = gpr.predict(X_new, return_std=True)
        np.testing.assert_allclose(mean[:, j], m, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(np.sqrt(cov[:, j, j]), s, rtol=1e-8)
    off = cov - cov * np.eye(3)
    assert np.abs(off).max() == 0.0


def test_users_expansion_point_and_its_errors():
    X, y, _ = simulate("poisson")
    a = GGPRegressor("poisson", inference=Taylor(lambda y: np.log(y + 1.0)), optimizer=None).fit(X, y)
    b = GGPRegressor("poisson", inference=Taylor(np.log(y + 1.0)[:, None]), optimizer=None).fit(X, y)
    c = GGPRegressor("poisson", inference="taylor", optimizer=None).fit(X, y)
    assert a.log_marginal_likelihood_value_ == b.log_marginal_likelihood_value_ != c.log_marginal_likelihood_value_
    with pytest.raises(ValueError, match=r"shape \(n, D\) = \(18, 1\)"):
        GGPRegressor("poisson", inference=Taylor(np.zeros((3, 1)))).fit(X, y)
    with pytest.raises(ValueError, match="finite"), np.errstate(divide="ignore"):
        GGPRegressor("poisson", inference=Taylor(lambda y: np.log(0 * y))).fit(X, y)


def test_a_users_expansion_point_does_not_move_with_phi():
    """The ordinal family's own point moves with the cut points; one that is given stays."""
    evidence = evidence_for("ordinal", Taylor(np.linspace(-1, 1, 18)[:, None]))
    gradient, h = evidence.evaluate()[1], 1e-5
    for k, step in enumerate(h * np.eye(evidence.theta.size)):
        numeric = (evidence.at(evidence.theta + step).evaluate(gradient=False)[0]
                   - evidence.at(evidence.theta - step).evaluate(gradient=False)[0]) / (2 * h)  # fmt: skip
        np.testing.assert_allclose(gradient[k], numeric, rtol=1e-5, atol=1e-5)


def test_taylor_records_where_it_used_the_expected_curvature():
    rng = np.random.default_rng(0)
    y = rng.dirichlet([0.5, 0.8, 3.0], 30)
    family = families.Dirichlet(link="exp").resolve(y)
    observed = family.U(family.expansion(y), y).semidefinite()
    assert not observed.all() and observed.any()  # the data do exercise the case
    X = rng.normal(size=(30, 1))
    evidence = dense_evidence(family, resolve_kernel(None, 3, X), X, y, np.zeros((30, 3)), Taylor())
    _, gradient, approximation = evidence.evaluate()
    np.testing.assert_array_equal(approximation.look.sites.fisher, ~observed)
    h = 1e-5
    for k, step in enumerate(h * np.eye(evidence.theta.size)):
        numeric = (evidence.at(evidence.theta + step).evaluate(gradient=False)[0]
                   - evidence.at(evidence.theta - step).evaluate(gradient=False)[0]) / (2 * h)  # fmt: skip
        np.testing.assert_allclose(gradient[k], numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["inverse_gaussian", "dirichlet", "dirichlet, exp"])
def test_non_concave_families_fit_50_times_without_failure(name):
    """Simulated from their own prior; these have indefinite curvature even at the mode."""
    indefinite = 0
    for seed in range(50):
        approximation = from_own_prior(name, seed).evaluate()[2]
        assert approximation.converged, seed
        problem = approximation.process.problem
        indefinite += int(np.sum(~problem.family.U(approximation.q.mean, problem.y).semidefinite()))
    assert indefinite > 0  # otherwise this test shows nothing


@pytest.mark.parametrize("name", ["inverse_gaussian", "dirichlet", "dirichlet, exp"])
def test_gradient_with_indefinite_rows_at_the_mode(name):
    """The exact gradient also where observed curvature is negative in some rows."""
    for seed in range(50):
        evidence = from_own_prior(name, seed)
        _, gradient, a = evidence.evaluate()
        if not a.process.problem.family.U(a.q.mean, a.process.problem.y).semidefinite().all():
            break
    else:
        pytest.fail("no seed has an indefinite row")
    h = 1e-5
    for k, step in enumerate(h * np.eye(evidence.theta.size)):
        numeric = (evidence.at(evidence.theta + step).evaluate(gradient=False)[0]
                   - evidence.at(evidence.theta - step).evaluate(gradient=False)[0]) / (2 * h)  # fmt: skip
        np.testing.assert_allclose(gradient[k], numeric, rtol=1e-5, atol=1e-5)


def test_warm_start_changes_nothing_but_the_work():
    evidence = evidence_for("categorical", Laplace(), n=40)
    cold = evidence.evaluate(gradient=False)[2]
    near = evidence.at(evidence.theta + 0.05)
    a, b = near.evaluate(gradient=False)[2], near.evaluate(start=cold.start, gradient=False)[2]
    np.testing.assert_allclose(a.log_evidence, b.log_evidence, rtol=1e-12)
    assert b.n_iter <= a.n_iter


def test_offset_shifts_the_latent():
    """Poisson with offset log(e) and no kernel freedom is the model of the rate y/e."""
    X, y, family = simulate("poisson", n=20)
    offset = np.full((20, 1), 0.7)
    base = dense_evidence(family, resolve_kernel(kernels(1, True), 1, X), X, y, offset, Laplace()).evaluate(
        gradient=False
    )[2]
    u = family.u(base.q.mean + offset, y)
    np.testing.assert_allclose(base.q.mean, base.process.K.dot(u), atol=1e-9)


def test_problem_reports_a_likelihood_that_is_not_a_number_as_minus_infinity():
    problem = Problem(families.Poisson(), np.array([3.0]), np.zeros((1, 1)))
    assert problem.log_prob(np.array([[1e6]])) == -np.inf


@pytest.mark.parametrize("inference", ["laplace", pytest.param("variational", marks=pytest.mark.slow)])
@pytest.mark.parametrize("link", [pytest.param("exp", marks=pytest.mark.slow), "softplus"])
def test_exactly_repeated_compositions_have_a_finite_evidence(link, inference):
    """Their likelihood grows without bound; the search must stay where floating point can tell densities apart."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.where(X[:, :1] > 0, [[0.001, 0.4995, 0.4995]], [[0.4995, 0.001, 0.4995]])
    model = GGPRegressor(families.Dirichlet(link=link), inference=inference).fit(X, y)
    assert 100 < model.log_marginal_likelihood_value_ < 1000
    family = families.Dirichlet(link="exp").resolve(y)
    assert family.log_prob(np.full((1, 3), 200.0), y[:1])[0] == -np.inf
    assert np.isfinite(family.log_prob(np.full((1, 3), 50.0), y[:1])[0])


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
def test_curvature_beyond_the_digits_of_structure(scale):
    """1e9 trials in every row: curvature times kernel up to 1e17, where the structured solve alone is noise."""
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 1.0, 20)[:, None]
    y = 1e8 * rng.multinomial(10, [0.2, 0.3, 0.5], size=20)
    y[y == 0] = 1e8
    family = families.Multinomial().resolve(y)
    kernel = resolve_kernel(ConstantKernel(scale) * RBF(0.01) + ConstantKernel(scale), 3, X)
    evidence = dense_evidence(family, kernel, X, family.encode(y), np.zeros((20, 3)), Laplace())
    approximation = evidence.evaluate(gradient=False)[2]
    assert approximation.converged == (scale < 1e8)  # at 1e17 even elimination with pivoting finds it singular
    p = np.exp(approximation.q.mean) / np.exp(approximation.q.mean).sum(axis=1, keepdims=True)
    if approximation.converged:
        np.testing.assert_allclose(p, y / y.sum(axis=1, keepdims=True), atol=1e-6)


def test_lost_digits_are_not_called_convergence():
    """Exactly repeated compositions have no finite best concentration; wherever the search ends, it says so."""
    X, y = np.linspace(0.0, 1.0, 8)[:, None], np.full((8, 4), 0.25)
    family = families.Dirichlet(link="exp").resolve(y)
    outcomes = {}
    for scale in (1e-1, 1e0, 1e1, 17.8, 1e2):
        kernel = resolve_kernel(ConstantKernel(scale) * RBF(105.0) + ConstantKernel(0.02), 4, X)
        evidence = dense_evidence(family, kernel, X, family.encode(y), np.zeros((8, 4)), Laplace())
        try:
            a = evidence.evaluate(gradient=False)[2]
        except InferenceError as err:
            assert "not positive definite" in str(err)
            outcomes[scale] = "refused"
            continue
        r = family.u(a.q.mean, a.process.problem.y) - a.q.z
        A = np.einsum("ijk,im->ijmk", family.U(a.q.mean, a.process.problem.y).dense(), a.process.K.of(0)).reshape(
            32, 32
        )
        step = np.linalg.solve(A + np.eye(32), r.ravel()).reshape(8, 4)
        decrement = np.sum(r * (a.process.K.of(0) @ step))
        assert not a.converged or abs(decrement) < 1e-8 * (1 + abs(a.trace[-1])), (scale, decrement)
        outcomes[scale] = "converged" if a.converged else "gave up"
    # where the prior holds the concentration down nothing is lost; the same with OpenBLAS's kernels for five processors
    assert list(outcomes.values()) == ["converged", "converged", "gave up", "refused", "refused"], outcomes
