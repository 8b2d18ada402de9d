"""The iterative solver of the neighbours field against its direct one."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from cases import simulate
from ggpm import GGPRegressor, Neighbours
from ggpm.families.curvature import Blocks, Diagonal
from ggpm.fields.neighbours.conditionals import Conditionals
from ggpm.fields.neighbours.elimination import Elimination
from ggpm.fields.neighbours.field import NeighboursField
from ggpm.fields.neighbours.iterative import IterativeFactor
from ggpm.fields.neighbours.layout import Layout
from ggpm.fields.neighbours.patches import patches
from ggpm.fields.neighbours.precision import SparsePrecision
from ggpm.kernels.linalg import NotPositiveDefinite
from ggpm.learning.objective import Evidence
from ggpm.sites import Laplace, Variational

KERNELS = [ConstantKernel(1.5) * Matern(0.3, nu=1.5), Matern(0.2, nu=0.5), Matern(0.4, nu=1.5), Matern(0.1, nu=1.5)]


def pair(n, D, shared, separate, probes=16, seed=0, core=16, size=64):
    """The precision of the same sites by both solvers, with patches much smaller than all points."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    kernels = KERNELS[:1] if shared else KERNELS[:D]
    U = rng.normal(size=(n, D, D))
    U = np.einsum("njk,nlk->njl", U, U) * rng.gamma(1.0, size=(n, 1, 1))
    U = Diagonal(np.einsum("njj->nj", U)) if separate else Blocks(U)
    found = []
    for solver in ("direct", "iterative"):
        layout = Layout(X, kernels, Neighbours(10, solver=solver, probes=probes))
        layout.patches = patches(layout.space, core, size)
        found.append(SparsePrecision(layout, [Conditionals(layout, kernel, 0.0) for kernel in kernels], U))
    return found


CASES = [(1, True, True), (2, True, False), (2, False, False), (3, False, True), (4, False, False)]


@pytest.mark.parametrize("D, shared, separate", CASES)
def test_solves_log_determinants_and_covariances(D, shared, separate):
    n = 400
    direct, iterative = pair(n, D, shared, separate)
    assert iterative.iterative and not direct.iterative
    rng = np.random.default_rng(1)
    r = rng.normal(size=(n, D))
    exact = direct.solve(r)
    np.testing.assert_allclose(iterative.solve(r), exact, atol=1e-7 * np.abs(exact).max())
    # five standard errors, which themselves are known from 16 probes
    assert direct.log_det_error == 0 < iterative.log_det_error < 0.01 * n * D
    assert abs(iterative.log_det - direct.log_det) < 5 * iterative.log_det_error
    variances = [p.blocks if separate else np.einsum("njj->nj", p.blocks) for p in (direct, iterative)]
    assert np.all(direct.variance_errors == 0)
    off = np.abs(variances[1] - variances[0])
    assert np.mean(off < 3 * iterative.variance_errors + 1e-9) > 0.9
    assert np.sqrt(np.mean((off / variances[0]) ** 2)) < 0.1
    # sums of a few neighbours, some of them outside the patch
    points, weights = np.argsort(rng.normal(size=(20, n)), axis=1)[:, :3], rng.normal(size=(20, 3, D))
    found, expected = (p.covariance(points, weights) for p in (iterative, direct))
    scale = np.sqrt(np.einsum("rjj->rj", expected))
    # what lies outside is from 16 probes: relative error sqrt(2/16), four of them
    assert np.max(np.abs(found - expected) / (scale[:, :, None] * scale[:, None, :])) < 4 * np.sqrt(2 / 16)


def test_more_probes_are_closer():
    errors = []
    for probes in (8, 128):
        direct, iterative = pair(300, 2, True, False, probes)
        v, w = (np.einsum("njj->nj", p.blocks) for p in (direct, iterative))
        errors.append((iterative.log_det_error, np.sqrt(np.mean((w / v - 1) ** 2))))
    for few, many in zip(*errors):
        assert many < 0.4 * few  # a quarter, up to chance


@pytest.mark.parametrize("shared", [True, False])
def test_gradients_are_those_of_the_direct_solver_up_to_the_probes(shared):
    X, y, family = simulate("von_mises", n=150)
    kernels = [ConstantKernel(1.3) * Matern(0.9, nu=1.5)] if shared else [Matern(0.8, nu=0.5), Matern(1.1, nu=1.5)]
    gradients = []
    for settings in (Neighbours(8), *(Neighbours(8, solver="iterative", probes=s) for s in (16, 512))):
        field = NeighboursField(X, y, np.zeros((150, 2)), settings, kernels)
        gradients.append(Evidence(family, kernels, field, Laplace()).evaluate()[1])
    few, many = (np.abs(g - gradients[0]).max() for g in gradients[1:])
    # traces of differences to the prior, of some 50 effective directions: sqrt(2 * 50 / 512) / 2 on average
    assert many < 1.0 and few < 6.0


def test_steps_do_not_grow_with_the_rows_nor_with_what_they_say():
    steps = []
    for n, scale in ((500, 1.0), (4000, 1.0), (4000, 1e-2), (4000, 1e3)):
        rng = np.random.default_rng(0)
        X, kernel = rng.uniform(size=(n, 2)), Matern(0.2, nu=1.5)
        layout = Layout(X, [kernel], Neighbours(15))
        U = scale * rng.gamma(0.5, size=(n, 1, 1))
        factor = IterativeFactor(layout, [Conditionals(layout, kernel, 0.0)], U)
        r = rng.normal(size=(n, 1, 1))
        x, alphas, _ = factor._conjugate_gradients(r, 1e-9)
        np.testing.assert_allclose(factor.dot(x), r, atol=1e-5 * np.abs(r).max())
        steps.append(len(alphas))
    assert max(steps) <= 30


def test_the_factor_of_lumped_elimination():
    """Without sites it is the prior's own; with the same sites and weights of one it keeps the energy of constants."""
    X = np.random.default_rng(0).uniform(size=(60, 2))
    kernel = Matern(0.5, nu=1.5)
    layout = Layout(X, [kernel], Neighbours(6))
    prior = Conditionals(layout, kernel, 0.0)
    nothing = Elimination(layout, [prior], np.zeros((60, 1, 1)))
    assert nothing.log_det == pytest.approx(prior.log_det)
    r = np.random.default_rng(1).normal(size=(60, 1, 2))
    np.testing.assert_allclose(prior.Q @ nothing.solve(r)[:, 0], r[:, 0], atol=1e-9)
    np.testing.assert_allclose(prior.Q.toarray(), prior.dot(np.eye(60)), atol=1e-9)
    U = np.random.default_rng(2).gamma(1.0, size=(60, 1, 1))
    M = Elimination(layout, [prior], U)
    root = M.root_dot(np.eye(60)[:, None])[:, 0]
    dense = root @ root.T
    assert np.linalg.slogdet(dense)[1] == pytest.approx(M.log_det)
    np.testing.assert_allclose(dense @ M.solve(r)[:, 0], r[:, 0], atol=1e-9)
    half = M.root_solve(np.eye(60)[:, None])[:, 0]
    np.testing.assert_allclose(half @ half.T, np.linalg.inv(dense), atol=1e-9)
    P = prior.Q.toarray() + np.diag(U[:, 0, 0])
    ratios = np.linalg.eigvals(np.linalg.solve(dense, P)).real
    assert ratios.max() / ratios.min() < 12
    # negative precisions are left out of M, which must be positive
    np.testing.assert_allclose(Elimination(layout, [prior], np.minimum(U, 0) - 1.0).C, nothing.C)


def test_precisions_that_are_not_positive_are_told():
    layout = Layout(np.random.default_rng(0).uniform(size=(100, 2)), KERNELS[:1], Neighbours(8, solver="iterative"))
    priors = [Conditionals(layout, KERNELS[0], 0.0)]
    with pytest.raises(NotPositiveDefinite):
        SparsePrecision(layout, priors, Diagonal(np.full((100, 1), -30.0))).solve(np.ones((100, 1)))
    slightly = SparsePrecision(layout, priors, Diagonal(np.full((100, 1), -0.01)))
    assert np.isfinite(slightly.log_det)
    with pytest.raises(NotPositiveDefinite, match="solver='direct'"):
        slightly.draw(2, np.random.default_rng(0))


def test_draws_have_the_inverse_as_covariance():
    direct, iterative = pair(60, 2, False, False, core=60, size=60)
    drawn = iterative.draw(4_000, np.random.default_rng(0))
    found = np.einsum("nsj,nsk->njk", drawn, drawn) / 4_000
    # five standard errors
    np.testing.assert_allclose(found, direct.blocks, atol=5 * np.sqrt(2 / 4_000) * direct.blocks.max())
    assert np.abs(drawn.mean(axis=1)).max() < 5 * np.sqrt(direct.blocks.max() / 4_000)


def test_patches_cover_every_point_once():
    space = np.random.default_rng(0).uniform(size=(1000, 3))
    found = patches(space, 50, 200)
    cores = [members[-size:] for members, size in zip(found.members, found.cores)]
    assert np.array_equal(np.sort(np.concatenate(cores)), np.arange(1000))
    for number, (members, core) in enumerate(zip(found.members, cores)):
        assert len(core) <= 50 and len(np.unique(members)) == 200 == len(members)
        assert np.all(found.of[core] == number)


@pytest.mark.parametrize("rule", [Laplace(), pytest.param(Variational(), marks=pytest.mark.slow)])
def test_fits_are_those_of_the_direct_solver(rule):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(240, 2))
    X[200:] = X[:40]
    y = rng.vonmises(3 * np.sin(5 * X[:, 0]) + 2 * X[:, 1], 4.0)
    kernel = ConstantKernel(2.0) * Matern(0.4, nu=1.5)
    direct, iterative = (
        GGPRegressor("von_mises", kernel, inference=rule, neighbours=Neighbours(10, solver=solver)).fit(X, y)
        for solver in ("direct", "iterative")
    )
    assert iterative.converged_
    # the optimum moves by what the gradients of 16 probes are off by, less than its own standard error
    np.testing.assert_allclose(iterative.theta_, direct.theta_, atol=0.2)
    error = iterative.posterior_.precision.log_det_error
    assert 0 < error < 5
    at = iterative.log_marginal_likelihood(direct.theta_)
    assert at == pytest.approx(direct.log_marginal_likelihood_value_, abs=3 * error)
    held = GGPRegressor(
        "von_mises", direct.kernel_, inference=rule, optimizer=None, neighbours=Neighbours(10, solver="iterative")
    ).fit(X, y)
    for one, other in zip(held.predict_latent(X[:50] + 0.01), direct.predict_latent(X[:50] + 0.01)):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3 * np.abs(other).max())
    assert held.sample_y(X[:3], 4).shape == (3, 4)


def test_the_solver_is_chosen_by_the_rows(monkeypatch):
    monkeypatch.setattr("ggpm.fields.neighbours.layout.DIRECT_MOST", 100)
    X = np.random.default_rng(0).uniform(size=(80, 2))
    plane, line = (Layout(rows, [Matern(nu=1.5)], Neighbours(5, leaf=8)) for rows in (X, X[:, :1]))
    assert not plane.iterative(1) and plane.iterative(2) and not line.iterative(2)
    many = Layout(np.random.default_rng(0).uniform(size=(80, 20)), [Matern(nu=1.5)], Neighbours(5, leaf=8))
    monkeypatch.setattr("ggpm.fields.neighbours.layout.DIRECT_FLOPS", 0.5 * many.tree.flops)
    assert many.iterative(1) and not plane.iterative(1) and not line.iterative(1)
    with pytest.raises(ValueError, match="solver must be"):
        Neighbours(solver="fast")


@pytest.mark.parametrize("place", ["clusters", "line", "20 features", "grid", "one place", "twice", "one dimension"])
def test_odd_places(place):
    rng = np.random.default_rng(0)
    X = {
        "clusters": rng.uniform(size=(4, 2))[rng.integers(0, 4, 120)] + 1e-3 * rng.normal(size=(120, 2)),
        "line": np.outer(rng.uniform(size=120), [1.0, 2.0]),
        "20 features": rng.normal(size=(120, 20)),
        "grid": np.stack(np.meshgrid(np.arange(12.0), np.arange(10.0)), axis=-1).reshape(-1, 2) / 10,
        "one place": np.repeat([[1.0, 2.0]], 120, axis=0),
        "twice": np.tile(rng.uniform(size=(60, 2)), (2, 1)),
        "one dimension": rng.uniform(size=(120, 1)),
    }[place]
    y = rng.poisson(np.exp(np.sin(3 * X[:, 0])))
    kernel = ConstantKernel(1.0) * Matern(4.0 if place == "20 features" else 0.5, nu=1.5)
    direct, iterative, shuffled = (
        GGPRegressor(
            "poisson", kernel, inference="laplace", optimizer=None, neighbours=Neighbours(15, solver=solver)
        ).fit(X[rows], y[rows])
        for solver, rows in (("direct", slice(None)), ("iterative", slice(None)), ("iterative", rng.permutation(120)))
    )
    assert iterative.converged_
    error = iterative.posterior_.precision.log_det_error
    difference = iterative.log_marginal_likelihood_value_ - direct.log_marginal_likelihood_value_
    assert abs(difference) < 5 * error + 1e-6
    new = X[:30] + 0.01
    for one, other in zip(iterative.predict_latent(new), direct.predict_latent(new)):
        np.testing.assert_allclose(one, other, atol=1e-5)  # of one patch: only the mode's tolerance is left
    spread = np.std(iterative.predict(X)) + np.finfo(float).eps
    np.testing.assert_allclose(shuffled.predict(X), iterative.predict(X), atol=1e-3 * spread + 1e-9)
