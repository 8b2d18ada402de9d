"""A fit does its large products by SciPy's BLAS alone: with NumPy's beside it, two pools of threads share the cores."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import os, time
import numpy as np
from scipy.linalg import blas
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

def seconds():  # of processor time, by thread
    folder = "/proc/self/task"
    return {t: int(open(f"{folder}/{t}/schedstat").read().split()[0]) / 1e9 for t in os.listdir(folder)}

def busiest(work):
    before = seconds()
    for _ in range(10):
        work()
    time.sleep(0.2)
    after = seconds()
    return max((t for t in after if t != str(os.getpid())), key=lambda t: after[t] - before.get(t, 0.0))

A = np.asfortranarray(np.random.default_rng(0).normal(size=(500, 500)))
of_numpy, of_scipy = busiest(lambda: A @ A), busiest(lambda: blas.dgemm(1.0, A, A))
if of_numpy == of_scipy:
    print("one pool")
    raise SystemExit

from ggpm import GGPClassifier, GGPRegressor
rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(300, 2))
angle = X[:, 0] + 0.3 * rng.normal(size=300)
kernel = ConstantKernel(1.0) * RBF([1.0, 1.0])
before = seconds()
GGPClassifier(kernel).fit(X, angle > 0)
GGPRegressor("von_mises", kernel).fit(X, angle)
GGPClassifier(kernel, inference="variational", objective="loo").fit(X, angle > 0)
GGPRegressor("von_mises", kernel, inducing=100, optimizer=None).fit(X, angle)
after = seconds()
print(after[of_numpy] - before[of_numpy], after[of_scipy] - before[of_scipy])
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the processor time of threads from /proc")
@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="its BLAS wakes threads for small products")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core: no threads to wake")
def test_threads_of_numpy_are_left_alone():
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | threads, capture_output=True, text=True, check=True
    )
    if done.stdout.startswith("one pool"):
        pytest.skip("NumPy and SciPy share one BLAS here")
    of_numpy, of_scipy = map(float, done.stdout.split())
    assert of_numpy < 0.02 * of_scipy
