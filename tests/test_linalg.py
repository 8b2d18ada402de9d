"""Products by SciPy's BLAS, whatever the order of their factors in memory."""

from itertools import product as combinations

import numpy as np
import pytest

from ggpm.kernels.linalg import cholesky, product, sum_of_products

ORDERS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "strided": lambda A: np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda A: np.ascontiguousarray(A[::-1, ::-1])[::-1, ::-1],
}


@pytest.mark.parametrize(("a", "b"), [((5, 4), (4, 3)), ((1, 4), (4, 1)), ((5, 1), (1, 3)), ((0, 4), (4, 3)),
                                      ((5, 0), (0, 3)), ((5, 4), (4, 0))])  # fmt: skip
def test_product(a, b):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=a), rng.normal(size=b)
    for left, right in combinations(ORDERS.values(), repeat=2):
        found = product(left(A), right(B))
        np.testing.assert_allclose(found, A @ B, atol=1e-15)
        assert found.shape == (a[0], b[1])


def test_product_keeps_the_order_of_its_first_factor():
    A = np.ones((3, 2))
    assert product(A, np.ones((2, 4))).flags.c_contiguous
    assert product(np.asfortranarray(A), np.ones((2, 4))).flags.f_contiguous


@pytest.mark.parametrize("shape", [(5, 4), (1, 1), (0, 4), (4, 0)])
def test_sum_of_products(shape):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=shape), rng.normal(size=shape)
    for left, right in combinations(ORDERS.values(), repeat=2):
        np.testing.assert_allclose(sum_of_products(left(A), right(B)), np.sum(A * B), atol=1e-14)


def test_cholesky_can_leave_the_upper_triangle():
    A = np.array([[4.0, 2.0], [2.0, 5.0]])
    np.testing.assert_array_equal(cholesky(A.copy()), [[2.0, 0.0], [1.0, 2.0]])
    np.testing.assert_array_equal(cholesky(A.copy(order="F"), clean=False), [[2.0, 2.0], [1.0, 2.0]])
