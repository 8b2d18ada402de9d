"""Targets of a bound's search that are found ahead, from one factorisation."""

import numpy as np
import pytest

from cases import FAMILIES, dense_evidence, kernels, simulate
from ggpm.families.curvature import Blocks, Diagonal
from ggpm.fields.dense import DenseField, KernelMatrices, factorise
from ggpm.fields.dense.field import AHEAD_SIZE, DenseProcess
from ggpm.sites import Variational

# with one latent, with nodes and without, with two and three, with indefinite curvature
SOME = ["poisson", "bernoulli", "gamma_mean_shape", "von_mises", "dirichlet", "von_mises_direction_concentration"]


def own(D, shared):
    found = kernels(D, shared)
    return found if isinstance(found, list) else [found]


def problem(name, shared=True):
    D = FAMILIES[name][0].resolve(FAMILIES[name][1]).latent_dim
    X, y, family = simulate(name, n=AHEAD_SIZE // D + 4)
    return dense_evidence(family, own(D, shared), X, family.encode(y), np.zeros((len(y), D)), Variational())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", SOME)
def test_the_end_is_the_same_and_nearer(name, shared, monkeypatch):
    evidence = problem(name, shared)
    start = evidence.at(evidence.theta + 0.1).infer().start
    value, slope, found = evidence.evaluate(start)
    assert found.converged and np.all(np.diff(found.trace) > -1e-5)
    monkeypatch.setattr(DenseProcess, "ahead", lambda self, rule: None)
    plain_value, plain_slope, plain = evidence.evaluate(start)
    assert plain.converged and found.n_iter < plain.n_iter
    np.testing.assert_allclose(value, plain_value, atol=1e-7)
    np.testing.assert_allclose(slope, plain_slope, atol=2e-5 * (1.0 + np.abs(plain_slope).max()))


def test_a_precision_that_stays_is_one_plain_step(monkeypatch):
    evidence = problem("multivariate_gaussian")
    start = evidence.at(evidence.theta + 0.1).infer().start
    monkeypatch.setattr(Variational, "near", lambda *_: pytest.fail("nothing is to be looked for"))
    assert evidence.evaluate(start)[2].n_iter == 1


@pytest.mark.parametrize("name", SOME)
def test_sites_nearby_move_as_sites_do(name):
    evidence = problem(name)
    a = evidence.infer()
    p, q, rule, sites = a.process.problem, a.q, a.rule, a.look.sites
    near = rule.near(p, q.mean, q.marginals, sites)
    V = q.marginals.diag if isinstance(sites.U, Diagonal) else q.marginals.dense()
    kind = Diagonal if V.ndim == 2 else Blocks
    here, there = near(q.mean, kind(V)), near(q.mean + 1e-3, kind(1.01 * V))
    exact = rule.at(p, q.mean + 1e-3, kind(1.01 * V))
    np.testing.assert_allclose(here.u, sites.u, atol=1e-10 * (1.0 + np.abs(sites.u).max()))
    np.testing.assert_allclose(here.U.dense(), sites.U.dense(), atol=1e-9 * (1.0 + np.abs(sites.U.dense()).max()))
    for mine, true, before in [(there.u, exact.u, sites.u), (there.U.dense(), exact.U.dense(), sites.U.dense())]:
        assert np.linalg.norm(mine - true) <= 0.1 * np.linalg.norm(true - before) + 1e-9


@pytest.mark.parametrize("D", [1, 2, 3])
def test_a_sandwich_is_how_marginals_move(D):
    rng, n = np.random.default_rng(D), 150  # more than one strip
    K = KernelMatrices([np.exp(-((np.subtract.outer(*2 * [np.linspace(0, 6, n)])) ** 2)) + 1e-6 * np.eye(n)])
    half = rng.normal(size=(n, D, D))
    U, move = half @ half.swapaxes(1, 2), rng.normal(size=(n, D, D))
    move = move + move.swapaxes(1, 2)
    kind = (lambda A: Diagonal(A[:, :, 0])) if D == 1 else Blocks
    moved = factorise(K, kind(U)).sensitivity()
    less = moved.sandwich(moved.in_own_shape(move))
    step = 1e-4
    above, below = (factorise(K, kind(U + t * move)).marginals().dense() for t in (step, -step))
    numeric = (below - above) / (2 * step)
    np.testing.assert_allclose(less.reshape(n, D, -1), numeric.reshape(n, D, -1), atol=1e-5)


def test_small_problems_and_factorised_sites_take_plain_steps():
    X, y, family = simulate("categorical", n=AHEAD_SIZE)
    process = DenseField(X, family.encode(y), np.zeros((len(y), 4))).process(family, own(4, True))
    assert process.ahead(Variational(sites="factorised")) is None and process.ahead(Variational(sites="blocks")) is None
    X, y, family = simulate("poisson", n=20)
    process = DenseField(X, family.encode(y), np.zeros((20, 1))).process(family, own(1, True))
    assert process.ahead(Variational().resolved(20, 1, False)) is None
