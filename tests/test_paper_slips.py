"""Slips in the paper's formulas: the printed form is wrong, the corrected one right.

Each test states both, so that it fails if a correction is lost and also if the printed form were right after all.
"""

import numpy as np
import pytest
from scipy.special import digamma, expit, gammaln, polygamma, softmax

from ggpm import GGPRegressor
from ggpm.families import Dirichlet, Multinomial

rng = np.random.default_rng(0)


def numerical_hessian(f, x, h=1e-4):
    """Central differences; error about h^2 times fourth derivatives, plus 1e-16/h^2."""
    n = len(x)
    E = h * np.eye(n)
    return np.array(
        [
            [(f(x + a + b) - f(x + a - b) - f(x - a + b) + f(x - a - b)) / (4 * h * h) for b in E]
            for a in E
        ]
    )  # fmt: skip


def softplus_dirichlet_log_prob(eta, y):
    theta = np.log1p(np.exp(eta))
    return gammaln(theta.sum()) - gammaln(theta).sum() + np.sum((theta - 1) * np.log(y))


@pytest.fixture
def dirichlet_point():
    return np.array([0.4, -0.7, 1.3]), np.array([0.2, 0.5, 0.3])


def test_dirichlet_curvature_needs_the_links_derivatives(dirichlet_point):
    # paper: Gamma = psi1(theta) - log y + psi0(theta) - psi0(1'theta), without the factors of the link
    eta, y = dirichlet_point
    U = -numerical_hessian(lambda e: softplus_dirichlet_log_prob(e, y), eta)
    theta, s = np.log1p(np.exp(eta)), expit(eta)
    score = np.log(y) - digamma(theta) + digamma(theta.sum())
    outer = -polygamma(1, theta.sum()) * np.outer(s, s)
    printed = np.diag(polygamma(1, theta) - score) + outer
    corrected = np.diag(s**2 * polygamma(1, theta) - s * (1 - s) * score) + outer
    assert np.allclose(corrected, U, atol=1e-6)
    assert np.abs(printed - U).max() > 0.1
    family = Dirichlet().resolve(y[None])
    assert np.allclose(family.U(eta[None], y[None]).dense()[0], corrected, rtol=1e-10)


def test_dirichlet_gradient_is_that_of_log_B(dirichlet_point):
    # paper: u = J'[log y - grad B(theta)]; grad B is B times what is meant
    eta, y = dirichlet_point
    theta, s = np.log1p(np.exp(eta)), expit(eta)
    grad_log_B = digamma(theta) - digamma(theta.sum())
    B = np.exp(gammaln(theta).sum() - gammaln(theta.sum()))
    h = 1e-6
    numerical = [
        (softplus_dirichlet_log_prob(eta + e, y) - softplus_dirichlet_log_prob(eta - e, y)) / (2 * h)
        for e in h * np.eye(3)
    ]
    u = Dirichlet().resolve(y[None]).u(eta[None], y[None])[0]
    assert np.allclose(s * (np.log(y) - grad_log_B), numerical, atol=1e-8)
    assert np.allclose(u, numerical, atol=1e-8)
    assert np.abs(s * (np.log(y) - B * grad_log_B) - numerical).max() > 0.1


def test_second_derivative_of_each_theta_has_a_single_entry(dirichlet_point):
    # paper: grad^2 theta_j = diag(e^eta/(1 + e^eta)^2), the whole diagonal
    eta, _ = dirichlet_point
    s = expit(eta)
    for j in range(3):
        H = numerical_hessian(lambda e, j=j: np.log1p(np.exp(e[j])), eta)
        single = np.zeros((3, 3))
        single[j, j] = s[j] * (1 - s[j])
        assert np.allclose(H, single, atol=1e-6)
        assert np.abs(H - np.diag(s * (1 - s))).max() > 0.1


def test_dirichlet_curvature_can_be_indefinite_but_the_expected_one_cannot():
    # paper: U is positive semidefinite; with this link it is not, where y is far from its mean
    eta, y = np.array([[-3.0, 2.0, 2.0]]), np.array([[0.98, 0.01, 0.01]])
    family = Dirichlet().resolve(y)
    assert np.linalg.eigvalsh(family.U(eta, y).dense()[0]).min() < -0.05
    assert np.linalg.eigvalsh(family.U(eta, y, expected=True).dense()[0]).min() > 0
    assert not family.U(eta, y).semidefinite()[0]


def _structured(n, D=3):
    """K, U and the paper's pieces (ordered by dimension) with a negative a_i, as in all its families."""
    gamma, omega = rng.uniform(0.5, 1.5, (D, n)), rng.uniform(0.1, 0.4, (D, n))
    a = -rng.uniform(0.3, 0.6, n)
    X = rng.standard_normal((n, 2))
    K = np.zeros((n * D, n * D))
    for j in range(D):
        block = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1) / (1 + j)) + 1e-3 * np.eye(n)
        K[j * n : (j + 1) * n, j * n : (j + 1) * n] = block
    Gamma = np.diag(gamma.ravel())
    Omega = np.vstack([np.diag(w) for w in omega])
    U = Gamma + Omega @ np.diag(a) @ Omega.T
    L = np.diag(1 / gamma.ravel())
    M, B = L @ Omega, K + L
    A_hat_inverse = -np.diag(1 / a) - M.T @ Gamma @ M + M.T @ np.linalg.solve(B, M)
    return K, U, Gamma, B, np.diag(a), A_hat_inverse


@pytest.mark.parametrize("n", [4, 5])
def test_log_determinant_identity_needs_a_sign(n):
    # paper: |I + U K| = |A^-1| |Gamma| |B| |A|; right is |-A^-1| = (-1)^n |A^-1|: wrong sign for every odd n
    K, U, Gamma, B, A, A_hat_inverse = _structured(n)
    det = np.linalg.det
    truth = det(np.eye(len(U)) + U @ K)
    printed = det(A_hat_inverse) * det(Gamma) * det(B) * det(A)
    corrected = det(-A_hat_inverse) * det(Gamma) * det(B) * det(A)
    assert corrected == pytest.approx(truth, rel=1e-9)
    assert printed == pytest.approx((-1) ** n * truth, rel=1e-9)
    # what the package computes instead is positive factor by factor: C = sqrt(rho) A_hat^-1 sqrt(rho), rho = -a
    root = np.sqrt(-A)
    C = root @ A_hat_inverse @ root
    assert np.linalg.eigvalsh(C).min() > 0
    assert det(C) * det(Gamma) * det(B) == pytest.approx(truth, rel=1e-9)


def test_multinomial_W_is_a_generalised_inverse_not_the_pseudo_inverse():
    # paper: W = (diag(pi)^-1 - c 11')/N is the pseudo-inverse of U when c = 1; only if pi is uniform
    for pi, uniform in ((np.array([0.2, 0.3, 0.5]), False), (np.full(3, 1 / 3), True)):
        U = np.diag(pi) - np.outer(pi, pi)
        for c in (0.0, 1.0):
            W = np.diag(1 / pi) - c * np.ones((3, 3))
            assert np.allclose(U @ W @ U, U, atol=1e-14)
        # W is now that of c = 1; the pseudo-inverse makes U W symmetric
        assert np.allclose(W, np.linalg.pinv(U), atol=1e-12) == uniform
        assert np.allclose(U @ W, (U @ W).T, atol=1e-12) == uniform


def test_log_partition_with_a_dispersion():
    # paper sec. 2.1: b(theta) = log int h exp(T'theta); with a dispersion it is a log int h exp(T'theta/a)
    theta, N = np.log(np.array([0.2, 0.3, 0.5])) + 0.4, 4
    counts = np.array([(i, j, N - i - j) for i in range(N + 1) for j in range(N + 1 - i)], dtype=float)
    log_h = gammaln(N + 1) - gammaln(counts + 1).sum(axis=1)
    b = np.log(np.exp(theta).sum())  # the paper's b of the multinomial, a = 1/N, T = counts/N
    printed = np.log(np.sum(np.exp(log_h + counts / N @ theta)))
    corrected = np.log(np.sum(np.exp(log_h + counts @ theta))) / N
    assert corrected == pytest.approx(b, rel=1e-12)
    assert abs(printed - b) > 0.1
    family = Multinomial().resolve(counts)
    total = np.exp(family.log_prob(np.repeat(theta[None], len(counts), axis=0), counts)).sum()
    assert total == pytest.approx(1.0, rel=1e-12)


def test_quantised_compositions_contain_zeros_where_log_y_does_not_exist():
    # paper sec. 4.3: T(y) = log y on vectors thresholded at 0.2; refused by default, replaced by name
    X = np.linspace(-1, 1, 8)[:, None]
    y = np.hstack([X < 0, X >= 0]).astype(float)
    with pytest.raises(ValueError, match="additive"):
        GGPRegressor("dirichlet").fit(X, y)
    for zeros in ("additive", "squeeze"):
        p = GGPRegressor(Dirichlet(zeros=zeros)).fit(X, y).predict(X)
        assert np.array_equal(p.argmax(axis=1), y.argmax(axis=1))


def test_taylor_target_of_the_multinomial_as_printed_is_right():
    # a check in the other direction: sec. 4.1's t = d y - 1 and U = N (I/d - 11'/d^2) hold
    y, N, d = np.array([[3.0, 1.0, 0.0]]), 4, 3
    family = Multinomial().resolve(y)
    u, U = family.u(np.zeros((1, d)), y)[0], family.U(np.zeros((1, d)), y).dense()[0]
    assert np.allclose(U, N * (np.eye(d) / d - np.ones((d, d)) / d**2), atol=1e-14)
    for c in (0.0, 1.0):
        W = (d * np.eye(d) - c * np.ones((d, d))) / N
        assert np.allclose(W @ u, d * y[0] / N - 1, atol=1e-14)
    assert np.allclose(softmax(np.zeros(d)), 1 / d)
