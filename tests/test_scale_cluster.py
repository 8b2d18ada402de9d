"""A Dask cluster of ordinary processes: a scheduler and workers as one would start them on several machines."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from ggpm import GGPRegressor
from ggpm.data.cluster import ClusterError

dask = pytest.importorskip("dask", reason="needs dask (the extra ggpm[dask])")
distributed = pytest.importorskip("distributed", reason="needs distributed (the extra ggpm[dask])")
da = pytest.importorskip("dask.array", reason="needs dask (the extra ggpm[dask])")

KERNEL = ConstantKernel(2.0) * RBF([1.0, 2.0])


def winds(n):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 4, (n, 2))
    return X, np.angle(np.exp(1j * (2.0 * np.sin(X[:, 0]) + 0.4 * X[:, 1] + 0.4 * rng.normal(size=n))))


class Processes:
    """A scheduler and workers as ordinary processes, as one would start them in shells on several machines."""

    def __init__(self, folder, workers=2):
        self.folder, self.started = folder, []
        self.file = folder / "scheduler.json"
        self.scheduler = self.start("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard")
        self.workers = [self.worker() for _ in range(workers)]

    def start(self, module, *arguments):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--scheduler-file", str(self.file), *arguments],
            cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.started.append(process)
        return process

    def worker(self):
        return self.start(
            "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard",
            "--local-directory", str(self.folder),
        )  # fmt: skip

    def client(self):
        deadline = time.monotonic() + 60
        while not self.file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        client = distributed.Client(scheduler_file=str(self.file), timeout=60)
        client.wait_for_workers(len(self.workers), timeout=60)
        return client

    def close(self):
        for process in self.started:
            process.kill()
            process.wait()


@pytest.fixture
def processes(tmp_path):
    cluster = Processes(tmp_path)
    yield cluster
    cluster.close()


def test_a_worker_killed_during_the_fit_costs_time_and_not_the_result(processes):
    X, y = winds(400)
    path = np.log([[2.0, 1.0, 2.0], [2.5, 0.9, 2.2], [3.0, 0.8, 2.4], [2.8, 0.7, 2.0]])

    def walk(kill):
        """An optimiser that looks at a few places; before the second it kills a worker, or not."""
        values = []

        def optimizer(objective, start, bounds):
            for theta in path:
                if kill and len(values) == 1:
                    processes.workers[0].kill()
                    processes.workers[0].wait()
                values.append(objective(theta)[0])
            return path[int(np.argmin(values))], min(values)

        return optimizer, values

    optimizer, expected = walk(kill=False)
    reference = GGPRegressor("von_mises", KERNEL, inducing=8, optimizer=optimizer).fit(X, y)
    optimizer, values = walk(kill=True)
    with processes.client() as client:
        model = GGPRegressor("von_mises", KERNEL, inducing=8, optimizer=optimizer)
        model.fit(da.from_array(X, chunks=(50, 2)), da.from_array(y, chunks=50))
        assert len(client.scheduler_info()["workers"]) == 1
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    np.testing.assert_array_equal(model.theta_, reference.theta_)
    for one, other in zip(model.predict_latent(X), reference.predict_latent(X)):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_with_neighbours_a_killed_worker_costs_time_and_not_the_result(processes):
    X, y = winds(300)
    kernel = ConstantKernel(2.0) * Matern([1.0, 2.0], nu=1.5)
    reference = GGPRegressor("von_mises", kernel, neighbours=8).fit(X, y)
    with processes.client() as client:
        rows = [da.from_array(part, chunks=(40, *part.shape[1:])).persist() for part in (X, y)]
        distributed.wait(rows)
        model = GGPRegressor("von_mises", kernel, neighbours=8).fit(*rows)
        np.testing.assert_allclose(model.theta_, reference.theta_, rtol=1e-12)
        latent = [part.persist() for part in model.predict_dist(rows[0]).latent()]
        distributed.wait(latent)
        processes.workers[0].kill()  # and with it half of the rows and of the predictions
        processes.workers[0].wait()
        for one, other in zip(latent, reference.predict_latent(X)):
            np.testing.assert_allclose(one.compute(), other, rtol=1e-9, atol=1e-10)
        again = GGPRegressor("von_mises", kernel, neighbours=8).fit(*rows)
        assert len(client.scheduler_info()["workers"]) == 1
    np.testing.assert_array_equal(again.theta_, model.theta_)


def test_a_dead_scheduler_is_named_and_the_earlier_model_stays(processes):
    X, y = winds(100)
    model = GGPRegressor("von_mises", KERNEL, inducing=8, optimizer=None).fit(X, y)
    before = model.predict(X)
    lazy = da.from_array(X, chunks=(50, 2)), da.from_array(y, chunks=50)
    with dask.config.set({"distributed.comm.timeouts.connect": "2s", "distributed.client.heartbeat": "500ms"}):
        client = processes.client()
        client._timeout = 2.0  # seconds until it gives up
        try:
            processes.scheduler.kill()
            processes.scheduler.wait()
            with pytest.raises(ClusterError, match=r"scheduler|client"):
                model.fit(*lazy)
            # Dask gives up and closes the client by itself: that is no reason to go on elsewhere
            deadline = time.monotonic() + 60
            while client.status != "closed" and time.monotonic() < deadline:
                time.sleep(0.1)
            assert client.status == "closed"
            with pytest.raises(ClusterError, match=r"lost its scheduler.*new Client"):
                model.fit(*lazy)
        finally:
            client._loop_runner.stop()  # or later fits in this process would see it
    np.testing.assert_array_equal(model.predict(X), before)


ALONE = """
import dask.array as da, distributed, numpy as np
from ggpm import GGPRegressor

if __name__ == "__main__":
    X = np.random.default_rng(0).uniform(0, 4, (120, 2))
    y = np.sin(X[:, 0])
    lazy = da.from_array(X, chunks=(40, 2)), da.from_array(y, chunks=40)
    model = GGPRegressor("von_mises", inducing=6, optimizer=None)
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None) as client:
        on_client = model.fit(*lazy).log_marginal_likelihood_value_
        assert model.fit_.evidence.field.rows.client is client
    alone = model.fit(*lazy).log_marginal_likelihood_value_  # the client is closed: there is none
    assert len(model.fit_.evidence.field.rows.client.scheduler_info()["workers"]) >= 1
    assert isinstance(model.fit_.evidence.field.rows.client.cluster, distributed.LocalCluster)
    here = GGPRegressor("von_mises", inducing=6, optimizer=None).fit(X, y).log_marginal_likelihood_value_
    np.testing.assert_allclose([on_client, alone], here, rtol=1e-10)
    print("same")
"""


@pytest.mark.slow
def test_without_a_client_a_local_cluster_is_started(tmp_path):
    (tmp_path / "alone.py").write_text(ALONE)
    done = subprocess.run([sys.executable, "alone.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip() == "same", done.stderr


class SmallFiles(distributed.WorkerPlugin):
    """Files of a worker may not grow beyond a few bytes, as on a disk that is full."""

    def setup(self, worker):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.slow
def test_a_full_disk_while_spilling_does_not_change_the_result():
    """Dask keeps what it cannot spill in memory, and says so in its log; the fit goes on."""
    X, y = winds(4000)
    reference = GGPRegressor("von_mises", KERNEL, inducing=8, optimizer=None).fit(X, y)
    # all data beyond 40 kB are to be spilled: none of the chunks of 16 kB can stay unless spilling fails
    thresholds = {"target": 1e-4, "spill": 1e-4, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{name}": value for name, value in thresholds.items()}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="400MB", dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(SmallFiles())
        model = GGPRegressor("von_mises", KERNEL, inducing=8, optimizer=None)
        model.fit(da.from_array(X, chunks=(1000, 2)), da.from_array(y, chunks=1000))
        held = client.run(lambda dask_worker: (dask_worker.data.fast.total_weight, len(dask_worker.data.slow)))
        # more is in memory than should be, and nothing of it could be spilled
        assert all(fast > 1e-4 * 400e6 and slow == 0 for fast, slow in held.values()), held
    for one, other in zip(model.predict_latent(X[:20]), reference.predict_latent(X[:20])):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


def _deadly(block):
    os._exit(1)


@pytest.mark.slow
def test_workers_that_die_again_and_again_are_named_and_the_earlier_model_stays():
    X, y = winds(100)
    model = GGPRegressor("von_mises", KERNEL, inducing=8, optimizer=None).fit(X, y)
    before = model.predict(X)
    lazy = da.from_array(X, chunks=(50, 2)).map_blocks(_deadly, dtype=float, meta=np.empty((0, 2)))
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        distributed.Client(cluster),
        pytest.raises(ClusterError, match="died again and again"),
    ):
        model.fit(lazy, da.from_array(y, chunks=50))
    np.testing.assert_array_equal(model.predict(X), before)
