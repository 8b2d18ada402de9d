"""Adaptive expectations under each row's Gaussian, against fine rules and closed forms."""

import numpy as np
import pytest
from scipy.special import expit, log_expit, logsumexp

from ggpm.families.special.adaptive import average, cholesky_root, expectation, first_levels, groups, nested_rule, rule


def test_one_latent_from_narrow_to_wide():
    """Against a trapezoidal rule with two million nodes; both a step and a kink at scales 0.01 to 100."""
    sd = np.array([0.0, 0.01, 0.3, 1.0, 3.0, 10.0, 100.0])
    mean = np.full_like(sd, 0.7)

    def function(eta, rows):
        return np.stack([expit(eta[..., 0]), log_expit(-eta[..., 0])], axis=-1)

    value, error = expectation(average(function), mean[:, None], sd[:, None], atol=1e-9)
    x = np.linspace(-12, 12, 400001)
    w = np.exp(-0.5 * x * x)
    w /= w.sum()
    exact = np.array([w @ function((m + s * x)[:, None], None) for m, s in zip(mean, sd)])
    np.testing.assert_allclose(value, exact, atol=1e-9)
    assert error[0] == 0.0 and np.all(error <= 1e-9)


@pytest.mark.parametrize("D", [2, 3, 4, 6])
def test_exponentials_have_a_closed_form(D):
    rng = np.random.default_rng(D)
    A = 0.3 * rng.normal(size=(5, D, D))
    mean, cov = rng.normal(size=(5, D)), A @ A.swapaxes(1, 2)
    rtol = 1e-9 if D <= 3 else 1e-6  # as far as sparse grids of degree nine go
    value, error = expectation(
        average(lambda eta, rows: np.exp(eta.sum(axis=-1) / D)), mean, cholesky_root(cov), rtol=rtol, atol=0
    )
    exact = np.exp(mean.sum(axis=1) / D + 0.5 * cov.sum(axis=(1, 2)) / D**2)
    np.testing.assert_allclose(value, exact, rtol=rtol)
    assert np.all(np.abs(value - exact) <= error + 1e-14)


def test_wide_softmax_in_three_dimensions():
    """The largest of three: by symmetry each has a third of the softmax, whatever the width."""
    value, _ = expectation(
        average(lambda eta, rows: np.exp(eta - logsumexp(eta, axis=-1, keepdims=True))),
        np.zeros((2, 3)),
        np.array([np.eye(3), 3.0 * np.eye(3)]),
        atol=1e-6,
    )
    np.testing.assert_allclose(value, 1 / 3, atol=1e-6)


def test_rows_are_told_by_their_numbers_and_do_not_see_each_other():
    mean, sd = np.linspace(-2, 2, 9)[:, None], np.geomspace(0.01, 5, 9)[:, None]
    power = np.arange(9) % 3
    function = lambda eta, rows: np.cos(eta[..., 0]) ** power[rows]  # noqa: E731
    together, _ = expectation(average(function), mean, sd)
    shifted = [average(lambda e, r, i=i: function(e, r + i)) for i in range(9)]
    alone = [expectation(shifted[i], mean[i : i + 1], sd[i : i + 1])[0][0] for i in range(9)]
    np.testing.assert_allclose(together, alone, rtol=1e-15)  # the last bit of a sum is the processor's


def test_directions_without_variance_have_one_node():
    root = cholesky_root(np.array([[[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]]))
    np.testing.assert_array_equal(root[0], [[1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(first_levels(root) > 0, [[True, False], [False, True], [False, False]])
    seen = {tuple(rows): x.shape[0] for rows, x, _ in groups(first_levels(root), 2)}
    assert seen[2,] == 1
    value, _ = expectation(average(lambda eta, rows: eta[..., 0] * eta[..., 1]), np.ones((3, 2)), root)
    np.testing.assert_allclose(value, [2.0, 1.0, 1.0], atol=1e-12)


def test_root_is_the_cholesky_factor():
    A = np.random.default_rng(0).normal(size=(4, 3, 3))
    cov = A @ A.swapaxes(1, 2)
    np.testing.assert_allclose(cholesky_root(cov), np.linalg.cholesky(cov), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("D", "level", "degree"), [(4, 0, 5), (5, 1, 7), (4, 2, 9), (9, 0, 5)])
def test_sparse_grids_are_exact_for_their_degree(D, level, degree):
    x, w = rule(D, (level,))
    rng = np.random.default_rng(0)
    moments = {0: 1.0, 2: 1.0, 4: 3.0, 6: 15.0, 8: 105.0}
    for _ in range(20):
        powers = rng.multinomial(rng.integers(0, degree + 1), np.full(D, 1 / D))
        exact = np.prod([moments.get(int(p), 0.0) for p in powers])
        np.testing.assert_allclose(w @ np.prod(x**powers, axis=1), exact, atol=1e-8 * (1 + exact))


def test_nested_rules_are_as_exact_as_their_order_promises():
    for order in range(8):
        x, weights = nested_rule(order)
        for k in range(2 * order + 2):
            exact = 0.0 if k % 2 else float(np.prod(np.arange(k - 1, 0, -2.0)))
            assert weights @ x**k == pytest.approx(exact, rel=1e-10, abs=1e-10 * exact + 1e-7)
    assert set(nested_rule(1)[0]) <= set(nested_rule(3)[0])


def test_sparse_grids_are_exact_to_their_degree():
    x, weights = rule(5, (1,))  # degree 7
    for powers, exact in (
        ((6, 0, 0, 0, 0), 15.0),
        ((4, 2, 0, 0, 0), 3.0),
        ((2, 2, 2, 0, 0), 1.0),
        ((1, 2, 3, 0, 1), 0),
    ):
        assert weights @ np.prod(x ** np.array(powers), axis=1) == pytest.approx(exact, abs=1e-12)


def test_a_settled_sparse_grid_is_not_given_up_for_points():
    """The tolerance is beyond grids and points; grids are kept where they may be, and are nearer."""
    root = np.tile(0.3 * np.eye(5), (2, 1, 1))
    function = average(lambda eta, rows: np.exp(eta.sum(axis=-1)))
    kept, _ = expectation(function, np.zeros((2, 5)), root, atol=1e-12, grids_to=1e10)
    np.testing.assert_allclose(kept, np.exp(0.5 * 5 * 0.09), rtol=2e-6)
