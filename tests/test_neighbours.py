"""The neighbours field against its dense twin, against differences, and where it is not exact near it."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

from cases import FAMILIES, dense_evidence, simulate
from ggpm import GGPRegressor, Neighbours
from ggpm.families import Poisson
from ggpm.families.curvature import Blocks, Diagonal
from ggpm.fields.neighbours.conditionals import Conditionals
from ggpm.fields.neighbours.dissection import dissect
from ggpm.fields.neighbours.factor import BandedFactor, FrontalFactor
from ggpm.fields.neighbours.field import NeighboursField
from ggpm.fields.neighbours.layout import Layout
from ggpm.fields.neighbours.search import coarse_to_fine, nearest, nearest_earlier
from ggpm.kernels import Category, Cyclic, KernelEvaluation, On, Pairs, Sphere, evaluate
from ggpm.kernels.linalg import NotPositiveDefinite
from ggpm.learning.objective import Evidence
from ggpm.sites import InferenceError, Laplace, Taylor, Variational

# the searches of both fields end at their own tolerances: small enough not to show in the eighth digit
RULES = {"taylor": Taylor(), "laplace": Laplace(), "variational": Variational(tol=1e-9)}


def neighbours_evidence(family, kernels, X, y, rule, number, offset=None, **settings):
    offset = np.zeros((len(X), family.latent_dim)) if offset is None else offset
    field = NeighboursField(X, y, offset, Neighbours(number, **settings), kernels)
    return Evidence(family, kernels, field, rule)


def rough_kernels(D, shared):
    if shared:
        return [ConstantKernel(1.3) * Matern(0.9, nu=0.5)]
    return [ConstantKernel(1.0 + 0.2 * j) * Matern([0.6 + 0.2 * j, 1.1], nu=0.5 + j % 2) for j in range(D)]


def assert_same(dense, sparse, X_new, values=1e-8, gradients=1e-6):
    v, g, a = dense.evaluate()
    w, h, b = sparse.evaluate()
    assert a.converged and b.converged
    assert w == pytest.approx(v, rel=values)
    np.testing.assert_allclose(h, g, rtol=gradients, atol=gradients * (1 + np.abs(g).max()))
    np.testing.assert_allclose(b.q.mean, a.q.mean, rtol=0, atol=values)
    np.testing.assert_allclose(b.q.marginals.dense(), a.q.marginals.dense(), rtol=0, atol=values)
    for mine, theirs in zip(b.process.posterior(b).latent(X_new), a.process.posterior(a).latent(X_new)):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=values)


# ---- equal to the dense field where every row has all earlier ones as neighbours -----------------------------------


@pytest.mark.parametrize("rule", ["laplace", "variational"])
@pytest.mark.parametrize("name", FAMILIES)
def test_with_all_neighbours_everything_is_that_of_the_dense_field(name, rule):
    X, y, family = simulate(name, n=12)
    D = family.latent_dim
    y, offset = family.encode(y), np.full((12, D), 0.1)
    X_new = np.concatenate([X[:2], np.random.default_rng(1).uniform(-3, 3, (5, 2))])
    for shared in (True, False):
        kernels = rough_kernels(D, shared)
        dense = dense_evidence(family, kernels, X, y, offset, RULES[rule])
        # leaves of two rows: the tree is as deep as it can be
        sparse = neighbours_evidence(family, kernels, X, y, RULES[rule], 11, offset, leaf=2)
        assert_same(dense, sparse, X_new)


@pytest.mark.parametrize("sites", ["blocks", "factorised"])
def test_taylor_and_both_kinds_of_variational_sites(sites):
    X, y, family = simulate("dirichlet", n=14)
    kernels, y, offset = rough_kernels(3, False), family.encode(y), np.zeros((14, 3))
    for rule in (Taylor(), Variational(sites=sites, tol=1e-9, max_iter=400)):
        dense = dense_evidence(family, kernels, X, y, offset, rule)
        assert_same(dense, neighbours_evidence(family, kernels, X, y, rule, 13, leaf=3), X[:3] + 0.1)


def test_equal_rows_share_one_latent_unless_the_kernel_has_noise():
    X, y, family = simulate("von_mises", n=16)
    X[9:] = X[:7]
    offset = np.random.default_rng(0).normal(size=(16, 2))
    for kernel, points in ((rough_kernels(2, True)[0], 9), (Matern(0.9, nu=1.5) + WhiteKernel(0.2), 16)):
        sparse = neighbours_evidence(family, [kernel], X, y, Laplace(), 15, offset, leaf=3)
        assert sparse.field.layout.n_points == points
        assert_same(dense_evidence(family, [kernel], X, y, offset, Laplace()), sparse, X[:4])


def test_smooth_kernels_have_a_nugget_that_is_named_and_recorded():
    X = np.random.default_rng(0).uniform(0, 3, (30, 2))
    y = np.random.default_rng(1).poisson(2.0, 30)
    smooth, rough = ConstantKernel(2.0) * RBF(1.0), Matern(1.0, nu=1.5)
    model = GGPRegressor("poisson", smooth, optimizer=None, neighbours=29).fit(X, y)
    assert model.posterior_.nugget == 1e-8
    assert GGPRegressor("poisson", rough, optimizer=None, neighbours=29).fit(X, y).posterior_.nugget == 0
    close = np.vstack([X, X[:1] + 1e-8])  # no kernel of that smoothness tells these rows apart
    model = GGPRegressor("poisson", rough, neighbours=5).fit(close, np.append(y, 3))
    assert model.posterior_.nugget == 1e-8 and np.isfinite(model.log_marginal_likelihood_value_)
    rougher = GGPRegressor("poisson", Matern(1.0, nu=0.5), optimizer=None, neighbours=5).fit(close, np.append(y, 3))
    assert rougher.posterior_.nugget == 0
    own = GGPRegressor("poisson", smooth, optimizer=None, neighbours=Neighbours(29, nugget=1e-3)).fit(X, y)
    assert own.posterior_.nugget == 1e-3
    # the dense twin has the same variance as white noise of the training rows
    noisy = GGPRegressor("poisson", smooth + WhiteKernel(2e-3), optimizer=None).fit(X, y)
    assert own.log_marginal_likelihood_value_ == pytest.approx(noisy.log_marginal_likelihood_value_, rel=1e-9)
    np.testing.assert_allclose(own.predict_latent(X[:5] + 0.1)[0], noisy.predict_latent(X[:5] + 0.1)[0], atol=1e-8)
    with pytest.raises(InferenceError, match=r"Neighbours\(nugget=...\) above 0"):
        GGPRegressor("poisson", RBF(30.0), optimizer=None, neighbours=Neighbours(29, nugget=0.0)).fit(X, y)


# ---- with fewer neighbours -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name, kernels", [
    ("negative_binomial", [ConstantKernel(0.8) * Matern([0.5, 1.2], nu=1.5) + ConstantKernel(0.3)]),
    ("poisson", [Matern(0.7, nu=0.5) + ExpSineSquared(1.0, 2.0) + WhiteKernel(0.1)]),
    ("von_mises", [Matern(0.7, nu=0.5), ConstantKernel(1.4) * Matern(1.1, nu=1.5)]),
    ("gaussian", [RBF(0.7) * RationalQuadratic(1.0, 2.0) + DotProduct(0.5)]),
])  # fmt: skip
def test_gradient_against_differences(name, kernels, rule):
    X, y, family = simulate(name, n=24, seed=2)
    X[18:] = X[:6]
    evidence = neighbours_evidence(family, kernels, X, family.encode(y), RULES[rule], 5, leaf=4)
    _, gradient, _ = evidence.evaluate()
    h = 1e-4
    for k, step in enumerate(h * np.eye(len(gradient))):
        ahead, behind = (evidence.at(evidence.theta + s * step).evaluate(gradient=False)[0] for s in (1, -1))
        # the second-order error of the difference, and the sites' tolerance
        assert gradient[k] == pytest.approx((ahead - behind) / (2 * h), rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("kernel, number", [(Matern(0.3, nu=0.5), 1), (ConstantKernel(2.0) * Matern(5.0, nu=0.5), 1)])
def test_a_markov_kernel_in_one_dimension_is_exact_with_one_neighbour(kernel, number):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 5, (60, 1)), rng.poisson(3.0, 60).astype(float)
    dense = dense_evidence(Poisson(), [kernel], X, y, np.zeros((60, 1)), Laplace())
    sparse = neighbours_evidence(Poisson(), [kernel], X, y, Laplace(), number)
    v, g, a = dense.evaluate()
    w, h, b = sparse.evaluate()
    assert w == pytest.approx(v, rel=1e-9)
    np.testing.assert_allclose(h, g, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(b.q.mean, a.q.mean, atol=1e-9)


def test_the_factor_is_that_of_vecchia():
    """Q is the precision of the product of conditionals, written out row by row."""
    X = np.random.default_rng(0).uniform(size=(25, 2))
    kernel = Matern(0.4, nu=1.5)
    layout = Layout(X, [kernel], Neighbours(4, leaf=5))
    prior = Conditionals(layout, kernel, 0.0)
    K, Q = kernel(layout.X), np.zeros((25, 25))
    for i, members in enumerate(layout.cliques.members):
        c = members[:-1][members[:-1] >= 0]
        assert np.all(c < i) and len(c) == min(i, 4)
        b = np.linalg.solve(K[np.ix_(c, c)], K[c, i])
        a = np.zeros(25)
        a[i], a[c] = 1.0, -b
        Q += np.outer(a, a) / (K[i, i] - K[c, i] @ b)
    f = np.random.default_rng(1).normal(size=(25, 2))
    np.testing.assert_allclose(prior.dot(f), Q @ f, atol=1e-9)
    np.testing.assert_allclose(prior.covariance_dot(f[:, 0]), np.linalg.solve(Q, f[:, 0]), atol=1e-9)
    assert prior.log_det == pytest.approx(np.linalg.slogdet(Q)[1])
    first, second = np.tril_indices(25)
    stored = np.zeros((25, 25))
    order, tree = layout.tree.order, layout.tree
    for front in tree.fronts:
        vertices = order[front.vertices]
        stored[vertices[front.rows], vertices[front.columns]] = prior.entries[front.entries]
    stored = np.where(stored == 0, stored.T, stored)
    np.testing.assert_allclose(stored[first, second], Q[first, second], atol=1e-9)


@pytest.mark.parametrize("leaf, D", [(1, 1), (7, 1), (3, 2), (100, 3)])
@pytest.mark.parametrize("kind", [FrontalFactor, BandedFactor])
def test_sparse_factors_against_a_dense_matrix(kind, leaf, D):
    rng = np.random.default_rng(leaf)
    n = 60
    points = np.sort(rng.uniform(size=(n, 1)), axis=0) if kind is BandedFactor else rng.uniform(size=(n, 2))
    near = np.argsort(((points[:, None] - points) ** 2).sum(-1), axis=1)[:, :5]
    pairs = np.unique(np.sort(np.stack([np.repeat(np.arange(n), 5), near.ravel()], axis=1), axis=1), axis=0)
    tree = dissect(points, pairs[:, 0], pairs[:, 1], leaf)
    assert np.array_equal(np.sort(tree.order), np.arange(n))
    Q = rng.normal(size=(D, len(pairs)))
    U = rng.normal(size=(n, D, D))
    U = U @ U.swapaxes(1, 2) + 30 * np.eye(D)
    full = np.zeros((n, D, n, D))
    for j in range(D):
        full[pairs[:, 0], j, pairs[:, 1], j] = full[pairs[:, 1], j, pairs[:, 0], j] = Q[j]
    full[np.arange(n), :, np.arange(n), :] += U
    full = full.reshape(n * D, n * D)
    factor = kind(tree, Q[:, tree.sorted_entries], U)
    V = np.linalg.inv(full)
    assert factor.log_det == pytest.approx(np.linalg.slogdet(full)[1])
    r = rng.normal(size=(n, D))
    np.testing.assert_allclose(factor.solve(r).ravel(), V @ r.ravel(), atol=1e-12)
    blocks, entries = factor.inverse()
    V = V.reshape(n, D, n, D)
    np.testing.assert_allclose(blocks, np.einsum("ijik->ijk", V), atol=1e-12)
    chosen = pairs[tree.sorted_entries]
    np.testing.assert_allclose(entries, [V[chosen[:, 0], j, chosen[:, 1], j] for j in range(D)], atol=1e-12)
    at, weights = rng.integers(0, n, (4, 3)), rng.normal(size=(4, 3, D))
    found = factor.covariance(at, weights)
    for r in range(4):
        expected = np.einsum("aj,ajbk,bk->jk", weights[r], V[at[r]][:, :, at[r]], weights[r])
        np.testing.assert_allclose(found[r], expected, atol=1e-12)
    with pytest.raises(NotPositiveDefinite):
        kind(tree, Q[:, tree.sorted_entries], -U)


def test_draws_have_the_posterior_covariance():
    X, y, family = simulate("von_mises", n=20)
    evidence = neighbours_evidence(family, rough_kernels(2, False), X, y, Laplace(), 19, leaf=5)
    a = evidence.infer()
    posterior = a.process.posterior(a)
    X_new = np.array([[0.0, 0.0], [0.05, 0.0], [2.5, 2.5], [2.6, 2.5], *X[:2]])
    drawn = posterior.draw(X_new, 40_000, np.random.default_rng(0))
    mean, cov = posterior.latent(X_new)
    # five standard errors of 40,000 draws with variances up to 1.5
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * np.sqrt(1.5 / 40_000))
    centred = drawn - drawn.mean(axis=0)
    np.testing.assert_allclose(np.einsum("snj,snk->njk", centred, centred) / 40_000, cov, atol=0.05)
    dense = dense_evidence(family, rough_kernels(2, False), X, y, np.zeros((20, 2)), Laplace()).infer()
    K, cross = (rough_kernels(2, False)[0](*Z) for Z in ((X_new,), (X, X_new)))
    exact = K - np.einsum("ia,ij,jb->ab", cross, _first_latent(dense, X), cross)
    np.testing.assert_allclose(np.cov(drawn[:, :, 0].T, bias=True), exact, atol=0.05)


def _first_latent(approximation, X):
    """[(K + W)^-1] of the first latent with itself, by dense algebra."""
    kernels = rough_kernels(2, False)
    n, U = len(X), approximation.q.U.dense()
    P, Q = np.zeros((n, 2, n, 2)), [np.linalg.inv(k(X)) for k in kernels]
    for j in range(2):
        P[:, j, :, j] = Q[j]
    P[np.arange(n), :, np.arange(n), :] += U
    V = np.linalg.inv(P.reshape(2 * n, 2 * n)).reshape(n, 2, n, 2)[:, 0, :, 0]
    return Q[0] - Q[0] @ V @ Q[0]


# ---- order and neighbours ------------------------------------------------------------------------------------------


def test_the_order_goes_from_coarse_to_fine():
    points = np.random.default_rng(0).uniform(size=(2000, 2))
    order = coarse_to_fine(points)
    assert np.array_equal(np.sort(order), np.arange(2000))
    for size in (20, 100, 500):
        early = points[order[:size]]
        distances = np.linalg.norm(early[:, None] - early, axis=-1) + 9.0 * np.eye(size)
        random = points[np.random.default_rng(1).permutation(2000)[:size]]
        by_chance = np.linalg.norm(random[:, None] - random, axis=-1) + 9.0 * np.eye(size)
        assert np.quantile(distances.min(axis=1), 0.1) > 1.5 * np.quantile(by_chance.min(axis=1), 0.1)


@pytest.mark.parametrize("features", [1, 2, 20])
def test_nearest_earlier_points_by_brute_force(features):
    points = np.random.default_rng(0).normal(size=(150, features))
    found = nearest_earlier(points, 6)
    for i in range(150):
        distances = np.linalg.norm(points[:i] - points[i], axis=1)
        assert sorted(found[i][found[i] >= 0]) == sorted(np.argsort(distances)[:6])


@pytest.mark.parametrize("kernel", [
    Matern([0.1, 3.0], nu=1.5),
    ExpSineSquared(0.7, 0.6),
    RBF(0.2) * ExpSineSquared(1.0, 0.5),
])  # fmt: skip
def test_neighbours_are_those_of_largest_correlation(kernel):
    X = np.random.default_rng(0).uniform(0, 3, (200, 1 if "Sine" in str(kernel) else 2))
    found = nearest([kernel], X, X[:20], 8)
    for i in range(20):
        worst_chosen = kernel(X[[i]], X[found[i]]).min()
        assert worst_chosen >= np.sort(kernel(X[[i]], X)[0])[-8] - 1e-12


def test_candidates_of_a_sum_come_from_all_its_summands():
    """Hour of the day and day: the same hour of another day is as near as the next hour."""
    kernel = Matern(0.05, nu=0.5) + ConstantKernel(0.5) * ExpSineSquared(0.5, 1.0)
    X = np.random.default_rng(0).uniform(0, 10, (400, 1))
    found = nearest([kernel], X, X[:10], 10)
    gaps = np.abs(X[found, 0] - X[:10])
    assert np.any(gaps > 0.8) and np.any((gaps > 0) & (gaps < 0.1))


def test_results_do_not_depend_on_the_order_of_the_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 2))
    y, kernel, shuffle = rng.poisson(np.exp(1.0 + np.sin(6.0 * X[:, 0]))), Matern(0.3, nu=1.5), rng.permutation(150)
    first = GGPRegressor("poisson", kernel, neighbours=8).fit(X, y)
    second = GGPRegressor("poisson", kernel, neighbours=8).fit(X[shuffle], y[shuffle])
    mean, spread = first.predict(X), np.std(first.predict(X))
    np.testing.assert_allclose(second.predict(X), mean, atol=1e-3 * spread)
    assert second.log_marginal_likelihood_value_ == pytest.approx(first.log_marginal_likelihood_value_, rel=1e-9)


@pytest.mark.parametrize("place", ["clusters", "line", "20 features", "grid", "one place"])
def test_odd_places_are_close_to_exact(place):
    rng = np.random.default_rng(0)
    X = {
        "clusters": rng.uniform(size=(4, 2))[rng.integers(0, 4, 120)] + 1e-3 * rng.normal(size=(120, 2)),
        "line": np.outer(rng.uniform(size=120), [1.0, 2.0]),
        "20 features": rng.normal(size=(120, 20)),
        "grid": np.stack(np.meshgrid(np.arange(12.0), np.arange(10.0)), axis=-1).reshape(-1, 2) / 10,
        "one place": np.repeat([[1.0, 2.0]], 120, axis=0),
    }[place]
    y = rng.poisson(np.exp(np.sin(3 * X[:, 0])))
    kernel = ConstantKernel(1.0) * Matern(4.0 if place == "20 features" else 0.5, nu=1.5)
    exact = GGPRegressor("poisson", kernel, optimizer=None).fit(X, y)
    # in many directions many are near
    number = 40 if place == "20 features" else 15
    near = GGPRegressor("poisson", kernel, optimizer=None, neighbours=number).fit(X, y)
    difference = near.log_marginal_likelihood_value_ - exact.log_marginal_likelihood_value_
    assert abs(difference) < 5e-3 * abs(exact.log_marginal_likelihood_value_)
    mean, cov = exact.predict_latent(X[:30] + 0.01)
    sd = np.sqrt(cov[:, 0, 0])
    assert np.max(np.abs(near.predict_latent(X[:30] + 0.01)[0][:, 0] - mean[:, 0]) / sd) < 0.25


def test_kernels_of_pairs_are_entries_of_their_matrices():
    rng = np.random.default_rng(0)
    X, first, second = rng.normal(size=(9, 2)), rng.integers(0, 9, (4, 5)), rng.integers(0, 9, (4, 5))
    G = rng.normal(size=(4, 5))
    cotangent = np.zeros((9, 9))
    np.add.at(cotangent, (first, second), G)
    for kernel in (
        RBF([0.5, 2.0]) + WhiteKernel(0.3), Exponentiation(DotProduct(0.4), 2), PairwiseKernel(0.7, metric="laplacian"),
        ConstantKernel(2.0) * RationalQuadratic(0.8, 0.6) * ExpSineSquared(1.0, 2.0), Matern(0.7, nu=2.2),
    ):  # fmt: skip
        pairs, whole = KernelEvaluation(kernel, Pairs(X, first, second)), evaluate(kernel, X)
        np.testing.assert_allclose(pairs.K, kernel(X)[first, second], atol=1e-14)
        np.testing.assert_allclose(pairs.pullback(G), whole.pullback(cotangent), atol=1e-6)  # some by differences


COLUMN_KERNELS = [
    On(Matern([10.0, 30.0], nu=1.5), [0, 1]) * Category(2),
    On(Sphere(0.5), [0, 1]) + On(Cyclic(24.0, 0.7), 3) + Category([2, 3]) + WhiteKernel(0.1),
]


def globe(n):
    """Latitude, longitude, one of four groups, hour."""
    rng = np.random.default_rng(4)
    place = rng.uniform([-60, -180], [60, 180], (n, 2))
    return np.column_stack([place, rng.integers(0, 4, n), rng.uniform(0, 48, n)])


@pytest.mark.parametrize("kernel", COLUMN_KERNELS, ids=str)
def test_kernels_on_columns(kernel):
    X, rng = globe(40), np.random.default_rng(0)
    first, second = np.triu_indices(40)
    G, cotangent = rng.normal(size=len(first)), np.zeros((40, 40))
    cotangent[first, second] = G
    pairs, whole = KernelEvaluation(kernel, Pairs(X, first[None], second[None])), evaluate(kernel, X)
    np.testing.assert_allclose(pairs.K[0], kernel(X)[first, second], atol=1e-14)
    np.testing.assert_allclose(pairs.pullback(G[None]), whole.pullback(cotangent), atol=1e-12)
    # few neighbours, found in the columns that the kernel looks at, beat as many at random
    some = nearest([kernel], X, X, 5)
    assert kernel(X)[np.arange(40)[:, None], some].mean() > 1.5 * kernel(X).mean()


def test_columns_and_weights_with_all_neighbours_are_those_of_the_dense_field():
    pd = pytest.importorskip("pandas")
    X, rng = globe(40), np.random.default_rng(1)
    frame = pd.DataFrame(X[:, [0, 1, 3]], columns=["lat", "lon", "hour"]).assign(
        station=np.array(list("abcd"))[X[:, 2].astype(int)]
    )
    y, weight = rng.poisson(np.exp(1 + np.sin(X[:, 3] / 4))), rng.integers(1, 3, 40)
    kernel = On(Sphere(0.5), ["lat", "lon"]) + On(Cyclic(24.0, 0.7), "hour") * Category("station") + WhiteKernel(0.1)
    exact, near = (
        GGPRegressor("poisson", kernel, optimizer=None, neighbours=m).fit(frame, y, weight) for m in (None, 39)
    )
    assert near.log_marginal_likelihood_value_ == pytest.approx(exact.log_marginal_likelihood_value_, rel=1e-8)
    new = frame.assign(station=["e", *frame["station"][1:]])  # one that was not seen
    with pytest.warns(UserWarning, match="e"):
        mean = near.predict(new)
    with pytest.warns(UserWarning, match="e"):
        np.testing.assert_allclose(mean, exact.predict(new), rtol=1e-6)
    draws = near.sample_y(frame[:2], 4000)
    sd = np.sqrt(exact.predict_dist(frame[:2]).var())
    np.testing.assert_allclose(draws.mean(axis=1), exact.predict(frame[:2]), atol=5 * sd.max() / 4000**0.5)


def test_a_narrowed_posterior_is_that_of_the_dense_field():
    X, y, family = simulate("von_mises", n=12)
    kernels, rule = rough_kernels(2, False), Variational()
    dense = dense_evidence(family, kernels, X, y, np.zeros((12, 2)), rule).infer()
    found = neighbours_evidence(family, kernels, X, y, rule, 11).infer()
    for factorised in (True, False):
        one, other = (
            a.process.from_natural(a.process.narrowed(a.process.natural(a.q, factorised), a.q, 3.0))
            for a in (dense, found)
        )
        np.testing.assert_allclose(other.mean, one.mean, atol=1e-5)  # the searches end at their own tolerances
        np.testing.assert_allclose(other.marginals.dense(), one.marginals.dense(), atol=1e-5)


def test_neighbours_are_found_again_when_the_kernel_changes_much():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = rng.poisson(np.exp(1.0 + np.sin(25 * X[:, 0])))
    kernel = ConstantKernel(1.0) * Matern([0.3, 0.3], nu=1.5)
    model = GGPRegressor("poisson", kernel, neighbours=10).fit(X, y)
    scales = model.kernel_.k2.length_scale
    assert scales[1] > 10 * scales[0]
    field = model.fit_.evidence.field
    assert field.suits(model.fit_.kernels) and not NeighboursField(
        X, field.y, field.offset, field.settings, [kernel]
    ).suits(model.fit_.kernels)


def test_sites_that_do_not_couple_are_factorised_one_by_one():
    X, y, family = simulate("gaussian, 3 outputs", n=20)
    evidence = neighbours_evidence(family, rough_kernels(3, False), X, y, Laplace(), 6)
    q = evidence.infer().q
    assert isinstance(q.marginals, Diagonal) and len(q.precision.factors) == 3
    X, y, family = simulate("von_mises", n=20)
    q = neighbours_evidence(family, rough_kernels(2, False), X, y, Laplace(), 6).infer().q
    assert isinstance(q.marginals, Blocks) and len(q.precision.factors) == 1


# ---- the rough field in the plane ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_twenty_neighbours_on_a_rough_field_are_as_good_as_all():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 2))
    K = Matern(0.06, nu=1.5)(X)
    y = rng.poisson(np.exp(0.5 + np.linalg.cholesky(K) @ rng.normal(size=4000)))
    kernel = ConstantKernel(1.0) * Matern(0.06, nu=1.5) + ConstantKernel(0.3)
    fits = [GGPRegressor("poisson", kernel, optimizer=None, neighbours=m).fit(X[:3000], y[:3000]) for m in (None, 20)]
    exact, near = (model.log_marginal_likelihood_value_ for model in fits)
    assert near == pytest.approx(exact, rel=5e-3)
    exact, near = (model.log_predictive_density(X[3000:], y[3000:]).mean() for model in fits)
    assert near == pytest.approx(exact, abs=5e-3)
