"""Threads of BLAS: one while small matrices are worked on, and what there was before afterwards."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from threadpoolctl import threadpool_info, threadpool_limits

from ggpm import GGPRegressor
from ggpm.kernels.threads import SMALL, threads_for


def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if threads() != {2}:
            pytest.skip("BLAS of this machine has one thread only")
        yield


def test_small_matrices_have_one_and_large_ones_all():
    with threads_for(SMALL):
        assert threads() == {1}
    assert threads() == {2}
    with threads_for(SMALL + 1):
        assert threads() == {2}


def test_an_error_restores_them():
    with pytest.raises(ZeroDivisionError), threads_for(10):
        raise ZeroDivisionError
    assert threads() == {2}


def test_fits_predictions_and_leave_one_out_of_few_rows_take_one():
    seen = []

    class Watched(RBF):
        def __call__(self, X, Y=None, eval_gradient=False):
            seen.append(threads())
            return super().__call__(X, Y, eval_gradient)

    X = np.linspace(0, 3, 30)[:, None]
    model = GGPRegressor("poisson", Watched()).fit(X, np.arange(30))
    assert seen and set(map(tuple, seen)) == {(1,)}
    assert threads() == {2}
    model.predict_dist(X[:3])
    model.loo()
    model.update(X[:2] + 0.01, [1, 2])
    assert set(map(tuple, seen)) == {(1,)} and threads() == {2}
