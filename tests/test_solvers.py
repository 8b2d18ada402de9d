"""Every structured solver against its dense nD×nD twin."""

import mpmath as mp
import numpy as np
import pytest

from ggpm.families.curvature import Blocks, Diagonal, Kronecker, RankOne
from ggpm.fields.dense import JointMatrix, KernelMatrices, factorise
from ggpm.fields.dense import solution as solution_module
from ggpm.fields.dense.block import BlockSolution
from ggpm.fields.dense.field import elimination
from ggpm.fields.dense.kronecker import KroneckerSolution
from ggpm.fields.dense.rank_one import RankOneSolution
from ggpm.kernels.linalg import NotPositiveDefinite

N = 14


def kernel_matrices(rng, how_many):
    out = []
    for _ in range(how_many):
        X = rng.normal(size=(N, 2))
        d = ((X[:, None] - X[None]) ** 2).sum(-1)
        out.append((0.5 + rng.random()) * np.exp(-0.5 * d / (0.6 + rng.random())) + 1e-6 * np.eye(N))
    return KernelMatrices(out)


def softmax(rng, D, scale=1.0):
    pi = np.exp(scale * rng.normal(size=(N, D)))
    pi /= pi.sum(1, keepdims=True)
    total = rng.integers(1, 9, N).astype(float)
    return RankOne(total[:, None] * pi, pi, total, np.sqrt(pi), np.zeros(N))


def von_mises_like(rng, D):
    gamma = rng.uniform(0.2, 2.0, (N, 1)) * np.ones((N, D))
    omega = rng.normal(size=(N, D))
    omega /= np.linalg.norm(omega, axis=1, keepdims=True)
    return RankOne(gamma, omega, 0.8 * gamma[:, 0])


def with_negative(rng, D):
    gamma = rng.uniform(0.3, 2.0, (N, D))
    gamma[rng.random((N, D)) < 0.3] *= -0.1
    return RankOne(gamma, rng.normal(size=(N, D)), rng.uniform(0.0, 0.05, N))


def indefinite_blocks(rng, D):
    A = rng.normal(size=(N, D, D))
    return Blocks(np.einsum("iab,icb->iac", A, A) - 0.05 * np.eye(D))


CASES = {
    "diagonal": (lambda r, D: Diagonal(r.uniform(0, 2, (N, D))), (1, 3)),
    "diagonal, equal columns": (lambda r, D: Diagonal(np.repeat(r.uniform(0, 2, (N, 1)), D, axis=1)), (1, 3)),
    "diagonal, negative gamma": (lambda r, D: Diagonal(r.uniform(-0.15, 2, (N, D))), (1, 2)),
    "diagonal, vanishing gamma": (lambda r, D: Diagonal(10.0 ** -r.uniform(0, 30, (N, D))), (1, 2)),
    "softmax (singular)": (softmax, (2, 5)),
    "softmax, extreme": (lambda r, D: softmax(r, D, 15.0), (2, 4)),
    "rank one": (von_mises_like, (2, 3)),
    "rank one, negative gamma": (with_negative, (2, 4)),
    "blocks": (indefinite_blocks, (2, 3)),
    "kronecker, semidefinite": (
        lambda r, D: Kronecker(r.uniform(0.5, 4, N), np.eye(D) / D - np.ones((D, D)) / D**2),
        (2, 6),
    ),
    "kronecker, general": (
        lambda r, D: Kronecker(r.uniform(0.5, 4, N), np.cov(r.normal(size=(D, 20)))),
        (2, 3),
    ),
}
PARAMETERS = [
    pytest.param(make, D, shared, id=f"{name}, D={D}, {'shared' if shared else 'separate'}")
    for name, (make, dims) in CASES.items()
    for D in dims
    for shared in (True, False)
    if D > 1 or shared
]


class Dense:
    """The same quantities from nD×nD matrices, ordered by latent dimension."""

    def __init__(self, K, U):
        blocks = U.dense()
        n, D = blocks.shape[:2]
        self.n, self.D = n, D
        self.K = np.zeros((n * D, n * D))
        self.U = np.zeros((n * D, n * D))
        for j in range(D):
            self.K[j * n : (j + 1) * n, j * n : (j + 1) * n] = K.of(j)
            for k in range(D):
                self.U[j * n : (j + 1) * n, k * n : (k + 1) * n] = np.diag(blocks[:, j, k])
        self.A = np.eye(n * D) + self.U @ self.K
        self.E = np.linalg.solve(self.A, self.U)
        self.V = self.K - self.K @ self.E @ self.K

    def pick(self, M, j, k):
        n = self.n
        return M[j * n : (j + 1) * n, k * n : (k + 1) * n]


@pytest.mark.parametrize("make, D, shared", PARAMETERS)
def test_structured_equals_dense(make, D, shared):
    rng = np.random.default_rng(D + 10 * shared)
    K = kernel_matrices(rng, 1 if shared else D)
    U = make(rng, D)
    dense, solution = Dense(K, U), factorise(K, U)
    # relative to the size of the quantity itself
    close = {"rtol": 1e-9, "atol": 1e-9}

    sign, log_det = np.linalg.slogdet(dense.A)
    assert sign > 0
    np.testing.assert_allclose(solution.log_det, log_det, **close)

    r = rng.normal(size=(N, D))
    np.testing.assert_allclose(solution.solve(r).T.ravel(), np.linalg.solve(dense.A, r.T.ravel()), **close)

    V = np.array([[np.diag(dense.pick(dense.V, j, k)) for k in range(D)] for j in range(D)]).transpose(2, 0, 1)
    marginals = solution.marginals()
    np.testing.assert_allclose(marginals.dense(), V, **close)
    np.testing.assert_allclose(marginals.diag, np.einsum("ijj->ij", V), **close)
    w = rng.normal(size=(N, D))
    np.testing.assert_allclose(marginals.dot(w), np.einsum("ijk,ik->ij", V, w), **close)

    blocks = [dense.pick(dense.E, j, j) for j in range(D)]
    for mine, theirs in zip(solution.precision(), [sum(blocks)] if shared else blocks, strict=True):
        np.testing.assert_allclose(mine, theirs, **close)
    # the same after that pass
    np.testing.assert_allclose(solution.solve(r).T.ravel(), np.linalg.solve(dense.A, r.T.ravel()), **close)

    K_star = KernelMatrices([rng.normal(size=(N, 3)) for _ in K])
    full = [K_star.of(j) for j in range(D)]
    expected = np.array([[[full[j][:, m] @ dense.pick(dense.E, j, k) @ full[k][:, m] for k in range(D)]
                          for j in range(D)] for m in range(3)])  # fmt: skip
    for s in (solution, factorise(K, U)):
        np.testing.assert_allclose(s.reduction(K_star), expected, **close)
        whole = s.sensitivity().covariance().transpose(1, 0, 3, 2).reshape(N * D, N * D)
        np.testing.assert_allclose(whole, dense.V, **close)


@pytest.mark.parametrize("name", ["diagonal", "rank one", "rank one, negative gamma", "blocks"])
def test_joint_kernel_matrix_equals_dense(name):
    """Latent dimensions that are correlated a priori; vectors are ordered by data point."""
    rng, D = np.random.default_rng(3), 3
    root = rng.normal(size=(N * D, N * D + 5)) / 6
    K = root @ root.T
    U = CASES[name][0](rng, D)
    full = np.zeros((N, D, N, D))
    full[np.arange(N), :, np.arange(N), :] = U.dense()
    A = np.eye(N * D) + full.reshape(K.shape) @ K
    E = np.linalg.solve(A, full.reshape(K.shape))
    solution = factorise(JointMatrix(K), U)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(solution.log_det, np.linalg.slogdet(A)[1], **close)
    r = rng.normal(size=(N, D))
    expected = np.linalg.solve(A, r.ravel()).reshape(N, D)
    np.testing.assert_allclose(solution.solve(r), expected, **close)
    np.testing.assert_allclose(elimination(U, JointMatrix(K)).solve(r), expected, **close)
    np.testing.assert_allclose(JointMatrix(K).dot(r).ravel(), K @ r.ravel(), **close)
    V = (K - K @ E @ K).reshape(N, D, N, D)[np.arange(N), :, np.arange(N), :]
    np.testing.assert_allclose(solution.marginals().dense(), V, **close)
    np.testing.assert_allclose(solution.precision()[0], E, **close)
    cross = rng.normal(size=(N * D, D))
    np.testing.assert_allclose(solution.reduction(KernelMatrices([cross]))[0], cross.T @ E @ cross, **close)


def test_solver_follows_from_the_curvature():
    rng = np.random.default_rng(0)
    shared, separate = kernel_matrices(rng, 1), kernel_matrices(rng, 3)
    uniform = RankOne(np.full((N, 3), 1 / 3), np.full((N, 3), 1 / 3), np.ones(N), np.full((N, 3), 3**-0.5), np.zeros(N))
    assert isinstance(factorise(shared, uniform), KroneckerSolution)
    assert isinstance(factorise(separate, uniform), RankOneSolution)
    assert isinstance(factorise(shared, softmax(rng, 3)), RankOneSolution)
    assert isinstance(factorise(shared, indefinite_blocks(rng, 3)), RankOneSolution)  # one or two terms per row
    assert isinstance(factorise(shared, indefinite_blocks(rng, 4)), BlockSolution)


def test_kronecker_needs_one_factorisation_for_any_number_of_classes(monkeypatch):
    import ggpm.fields.dense.factor as factor_module

    calls = []
    real = factor_module.cholesky
    monkeypatch.setattr(factor_module, "cholesky", lambda *args, **options: calls.append(1) or real(*args, **options))
    K = kernel_matrices(np.random.default_rng(0), 1)
    for D in (2, 50):
        calls.clear()
        factorise(K, Kronecker(np.arange(1.0, N + 1), np.eye(D) / D - np.ones((D, D)) / D**2))
        assert len(calls) == 1


@pytest.mark.parametrize("curvature", [lambda rng: Diagonal(rng.random((N, 3))), lambda rng: softmax(rng, 3)])
def test_what_memory_held_before_is_never_read(curvature, monkeypatch):
    """Factors are built in new memory, of which they set one triangle."""
    rng = np.random.default_rng(0)
    K, U, r = kernel_matrices(rng, 1), curvature(rng), rng.normal(size=(N, 3))
    monkeypatch.setattr("ggpm.kernels.linalg._STRIP", 4)
    empty = np.empty

    def found(filling):
        monkeypatch.setattr(
            np, "empty", lambda *shape, **order: np.copyto(out := empty(*shape, **order), filling) or out
        )
        solution = factorise(K, U)
        return solution.log_det, solution.solve(r), solution.precision()[0], solution.marginals().dense()

    for zero, not_a_number in zip(found(0.0), found(np.nan)):
        np.testing.assert_array_equal(zero, not_a_number)


@pytest.mark.parametrize("D", [1, 3])
def test_indefinite_posterior_is_refused(D):
    K = kernel_matrices(np.random.default_rng(1), 1)
    gamma = np.ones((N, D))
    gamma[0, 0] = -5.0 / K.of(0)[0, 0]
    for U in (Diagonal(gamma), Blocks(Diagonal(gamma).dense())):
        with pytest.raises(NotPositiveDefinite):
            factorise(K, U)
    if D > 1:  # an even number of negative eigenvalues: the determinant stays positive
        gamma[1, 1] = -5.0 / K.of(0)[1, 1]
        assert np.linalg.slogdet(Dense(K, Diagonal(gamma)).A)[0] > 0
        with pytest.raises(NotPositiveDefinite):
            factorise(K, RankOne(gamma, np.ones((N, D)), np.full(N, 1e-3)))


def test_rank_one_alone_can_make_it_indefinite():
    K = kernel_matrices(np.random.default_rng(1), 1)
    with pytest.raises(NotPositiveDefinite):
        factorise(K, RankOne(np.ones((N, 2)), np.ones((N, 2)), np.full(N, 50.0)))


def test_blocks_that_do_not_fit_are_refused_before_allocation(monkeypatch):
    monkeypatch.setattr(solution_module, "available_memory", lambda: 10_000)
    U = indefinite_blocks(np.random.default_rng(0), 4)
    with pytest.raises(MemoryError, match=r"4×4 blocks for 14 rows need .* GiB"):
        factorise(kernel_matrices(np.random.default_rng(0), 1), U)


def test_negative_rows_under_a_wide_prior_leave_the_mean_its_digits():
    rng = np.random.default_rng(0)
    K, b = KernelMatrices([k + 1e5 for k in kernel_matrices(rng, 2)]), rng.normal(size=(N, 2))
    A = rng.normal(size=(N, 2, 2))
    U = Blocks(np.einsum("iab,icb->iac", A, A))
    U.values[:3] = [[-0.1, 0.01], [0.01, 0.5]]  # like rows far from all others under a Student t
    curvature, rows = np.zeros((N, 2, N, 2)), np.arange(N)
    curvature[rows, :, rows] = U.dense()
    joint, curvature = K.dense(2).reshape(2 * N, 2 * N), curvature.reshape(2 * N, 2 * N)
    solution = factorise(K, U)
    z = solution.solve(b)
    z += solution.solve(b - z - U.dot(K.dot(z)))
    with mp.workdps(40):
        exact = mp.lu_solve(mp.eye(2 * N) + mp.matrix(joint) * mp.matrix(curvature), mp.matrix(joint @ b.ravel()))
    mean = np.array([float(v) for v in exact]).reshape(N, 2)
    # products with K, 1e5 n large, leave ten digits of sixteen
    np.testing.assert_allclose(K.dot(z), mean, atol=1e-8 * np.abs(mean).max())


@pytest.mark.parametrize("name", ["diagonal", "kronecker", "rank one"])
def test_covariances_of_rows_keep_their_digits_under_a_wide_smooth_prior(name):
    rng = np.random.default_rng(1)
    x = rng.normal(size=N)
    K = KernelMatrices([1e8 * np.exp(-0.005 * (x[:, None] - x) ** 2)])  # a polynomial of low order, as of spectra
    A = np.array([[300.0, 250.0], [250.0, 400.0]])
    U = {
        "diagonal": Diagonal(rng.uniform(100.0, 500.0, (N, 2))),
        "kronecker": Kronecker(np.ones(N), A),
        "rank one": RankOne(rng.uniform(100.0, 500.0, (N, 2)), rng.normal(size=(N, 2)), rng.uniform(5.0, 20.0, N)),
    }[name]
    curvature, rows = np.zeros((N, 2, N, 2)), np.arange(N)
    curvature[rows, :, rows] = U.dense()
    joint, curvature = K.dense(2).reshape(2 * N, 2 * N), curvature.reshape(2 * N, 2 * N)
    with mp.workdps(60):
        exact = mp.inverse(mp.eye(2 * N) + mp.matrix(joint) * mp.matrix(curvature)) * mp.matrix(joint)
    V = np.array(exact.tolist(), dtype=float)
    mine = factorise(K, U).sensitivity().covariance().reshape(2 * N, 2 * N)
    scale = np.sqrt(np.outer(np.diag(V), np.diag(V)))
    # I + S K S has condition number 6e11, so that its rounding alone moves V by 1e-4; K - K E K is off by 1e6 and more
    assert np.max(np.abs(mine - V) / scale) < 1e-3
