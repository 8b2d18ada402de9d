"""Rows outside of memory: Parquet files and Dask collections give the model that arrays give."""

import os
import pickle
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import cross_val_score

from ggpm import GGPClassifier, GGPRegressor, Inducing
from ggpm.data.cluster import ClusterError, cluster_map
from ggpm.data.parquet import ParquetRows, predict_parquet
from ggpm.data.rows import Chunk
from ggpm.kernels import Category, On

pa = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra ggpm[parquet])")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow (the extra ggpm[parquet])")
dask = pytest.importorskip("dask", reason="needs dask (the extra ggpm[dask])")
distributed = pytest.importorskip("distributed", reason="needs distributed (the extra ggpm[dask])")
da = pytest.importorskip("dask.array", reason="needs dask (the extra ggpm[dask])")

KERNEL = ConstantKernel(2.0) * RBF([1.0, 2.0])
# statistics agree to 1e-10 relative whatever the chunks; so do the results, as Newton's method ends at rounding
TOL = {"rtol": 1e-10, "atol": 1e-10}


def winds(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 4, (n, 2))
    return X, np.angle(np.exp(1j * (2.0 * np.sin(X[:, 0]) + 0.4 * X[:, 1] + 0.4 * rng.normal(size=n))))


def fixed(inducing=20, **options):
    return GGPRegressor("von_mises", KERNEL, inducing=inducing, optimizer=None, **options)


def assert_same_model(one, other, X, tol=TOL, **given):
    np.testing.assert_allclose(one.log_marginal_likelihood_value_, other.log_marginal_likelihood_value_, **tol)
    for a, b in zip(one.predict_latent(X, **given), other.predict_latent(X, **given)):
        np.testing.assert_allclose(a, b, **tol)


# ---- Parquet -------------------------------------------------------------------------------------------------------


def write_parquet(path, X, y, **more):
    columns = {f"x{i}": X[:, i] for i in range(X.shape[1])} | {"y": y} | more
    pq.write_table(pa.table(columns), path, row_group_size=150)


def test_parquet_gives_the_model_of_the_arrays(tmp_path):
    X, y = winds()
    (tmp_path / "parts").mkdir()
    write_parquet(tmp_path / "parts" / "a.parquet", X[:250], y[:250])
    write_parquet(tmp_path / "parts" / "b.parquet", X[250:], y[250:])
    arrays = fixed().fit(X, y)
    for path in (tmp_path / "parts", str(tmp_path / "parts" / "*.parquet"), sorted((tmp_path / "parts").iterdir())):
        model = fixed().fit(ParquetRows(path, ["x0", "x1"], "y", chunk_rows=64))
        assert_same_model(model, arrays, X[:10])
    assert model.feature_names_in_.tolist() == ["x0", "x1"] and model.n_features_in_ == 2


def test_parquet_learns_and_predicts_into_a_file(tmp_path):
    X, y = winds(120)
    write_parquet(tmp_path / "in.parquet", X, y, id=np.arange(120))
    rows = ParquetRows(tmp_path / "in.parquet", ["x0", "x1"], "y", chunk_rows=50)
    model = GGPRegressor("von_mises", KERNEL, inducing=10).fit(rows)
    other = GGPRegressor("von_mises", KERNEL, inducing=10).fit(X, y)
    np.testing.assert_allclose(model.theta_, other.theta_, rtol=1e-5)
    assert predict_parquet(model, tmp_path / "in.parquet", tmp_path / "out.parquet", level=0.8, keep=["id"]) == 120
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["id", "mean", "sd", "arc_start", "arc_end"]
    np.testing.assert_allclose(table["mean"].to_numpy(), other.predict(X), atol=1e-4)


def test_parquet_with_labels_offsets_and_parts(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    labels = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    exposure = rng.uniform(0, 1, 200)
    parts = rng.dirichlet([1.0, 2.0, 3.0], 200)
    write_parquet(
        tmp_path / "t.parquet", X, rng.poisson(3.0, 200), label=labels, offset=exposure,
        a=parts[:, 0], b=parts[:, 1], c=parts[:, 2],
    )  # fmt: skip
    names = ["x0", "x1"]
    labelled = GGPClassifier(inducing=15, optimizer=None).fit(
        ParquetRows(tmp_path / "t.parquet", names, "label", chunk_rows=50)
    )
    assert labelled.classes_.tolist() == ["high", "low", "mid"]
    assert_same_model(labelled, GGPClassifier(inducing=15, optimizer=None).fit(X, labels), X[:5])
    assert predict_parquet(labelled, tmp_path / "t.parquet", tmp_path / "o.parquet", chunk_rows=90) == 200
    assert pq.read_table(tmp_path / "o.parquet").column_names[2:5] == ["p_high", "p_low", "p_mid"]
    y = pq.read_table(tmp_path / "t.parquet")["y"].to_numpy()
    counts = GGPRegressor("poisson", KERNEL, inducing=15, optimizer=None)
    streamed = counts.fit(ParquetRows(tmp_path / "t.parquet", names, "y", offset="offset", chunk_rows=50))
    again = GGPRegressor("poisson", KERNEL, inducing=15, optimizer=None).fit(X, y, offset=exposure)
    assert_same_model(streamed, again, X[:5], offset=0)
    shares = GGPRegressor("dirichlet", KERNEL, inducing=15, optimizer=None)
    streamed = shares.fit(ParquetRows(tmp_path / "t.parquet", names, ["a", "b", "c"], chunk_rows=50))
    assert_same_model(streamed, GGPRegressor("dirichlet", KERNEL, inducing=15, optimizer=None).fit(X, parts), X[:5])


def stations(n=160, parts=False):
    """A frame with text, times, booleans and numbers, y with holes, offset and weights."""
    import pandas as pd

    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "station": np.array(["north", "mid", "south"])[np.arange(n) // 60],  # not all of them in every chunk
            "when": np.datetime64("2024-03-01") + np.arange(n) * np.timedelta64(90, "m"),
            "temp": rng.normal(size=n),
            "wet": rng.random(n) < 0.4,
        }
    )
    if parts:
        y = pd.DataFrame(rng.dirichlet([2.0, 3.0, 4.0], n), columns=list("abc"))
        y.loc[10, :] = np.nan
        y.loc[5::40, "b"] = np.nan
        y.loc[6, "c"] = np.nan
    else:
        y = pd.Series(rng.poisson(np.exp(0.5 * frame["temp"] + 1)).astype(float), name="count").mask(
            np.arange(n) % 50 == 7
        )
    return frame, y, pd.Series(rng.uniform(0, 1, n), name="log_hours"), pd.Series(np.arange(n) % 3 * 1.0, name="w")


PARTS = On(RBF(40.0), "when") + Category("station") + On(RBF(), ["temp", "wet"])


@pytest.mark.parametrize("parts", [False, True], ids=["counts", "compositions"])
def test_text_times_weights_and_holes_in_parquet(tmp_path, parts):
    """The model of the same rows in memory, in which labels differ by chunk, and holes and weights are everywhere."""
    import pandas as pd

    frame, y, offset, weight = stations(parts=parts)
    table = pd.concat([frame, y, offset, weight], axis=1)
    table.to_parquet(tmp_path / "t.parquet")
    names = {"offset": None if parts else "log_hours", "weight": "w"}
    rows = ParquetRows(tmp_path / "t.parquet", list(frame), list("abc") if parts else "count", chunk_rows=37, **names)
    model = GGPRegressor("dirichlet" if parts else "poisson", PARTS, inducing=20, optimizer=None)
    given = {} if parts else {"offset": offset}
    with pytest.warns(UserWarning, match=r"y is missing in \d+ of 160 row\(s\), first in row (7|10)"):
        streamed = clone(model).fit(rows)
    with pytest.warns(UserWarning, match="they are left out"):
        memory = clone(model).fit(frame, y, weight, **given)
    assert streamed.fit_.columns.members[0].labels == ("mid", "north", "south")
    assert streamed.fit_.columns.kinds == memory.fit_.columns.kinds
    new = {} if parts else {"offset": 0}
    assert_same_model(streamed, memory, frame[:9], **new)
    # and into a file; a row with a missing label stays empty
    frame.loc[3, "station"] = None
    pd.concat([frame, offset], axis=1).to_parquet(tmp_path / "new.parquet")
    with pytest.warns(UserWarning, match="1 of 160 rows have no prediction"):
        assert predict_parquet(streamed, tmp_path / "new.parquet", tmp_path / "out.parquet", chunk_rows=4) == 160
    told = pd.read_parquet(tmp_path / "out.parquet")
    assert told.isna().all(axis=1).tolist() == [row == 3 for row in range(160)]
    given = {} if parts else {"offset": offset[4:9]}
    np.testing.assert_allclose(told[4:9].to_numpy(), memory.summary(frame[4:9], **given).to_numpy(), rtol=1e-6)


def test_chunks_of_other_kinds_are_named(tmp_path):
    import pandas as pd

    for name, values in (("a", ["1", "2"]), ("b", ["x", "y"])):
        pd.DataFrame({"c": values, "n": [1, 2]}).to_parquet(tmp_path / f"{name}.parquet")
    model = GGPRegressor("poisson", inducing=2, optimizer=None)
    with pytest.raises(ValueError, match="column 'c' has values of several kinds: labels and numbers"):
        model.fit(ParquetRows(tmp_path, ["c"], "n"))
    pd.DataFrame({"c": [1.0, 2.0], "n": [np.nan, np.nan]}).to_parquet(tmp_path / "c.parquet")
    with pytest.raises(ValueError, match="nothing to learn from"):
        model.fit(ParquetRows(tmp_path / "c.parquet", ["c"], "n"))
    for weight, message in (([-1.0, 1.0], "row 0 has -1"), ([None, 1.0], "column w has no value in row 0")):
        pd.DataFrame({"c": [1.0, 2.0], "n": [1, 2], "w": weight}).to_parquet(tmp_path / "w.parquet")
        with pytest.raises(ValueError, match=message):
            model.fit(ParquetRows(tmp_path / "w.parquet", ["c"], "n", weight="w"))


def test_the_command_streams_parquet(tmp_path):
    pytest.importorskip("click.testing", reason="needs click (the extra ggpm[cli])")
    pytest.importorskip("rich", reason="needs rich (the extra ggpm[cli])")
    from cases import click_runner
    from ggpm import load
    from ggpm.cli import main

    X, y = winds(120)
    write_parquet(tmp_path / "in.parquet", X, y, label=np.where(X[:, 0] > 2, "b", "a"))
    run = click_runner().invoke
    shared = [str(tmp_path / "in.parquet"), "--inducing", "6"]
    fit = ["fit", *shared, "--target", "y", "--family", "von_mises", "--features", "x0,x1"]
    done = run(main, [*fit, "--out", str(tmp_path / "m.ggpm")])
    assert done.exit_code == 0, done.output
    other = GGPRegressor("von_mises", inducing=6, random_state=0).fit(X, y)
    np.testing.assert_allclose(load(tmp_path / "m.ggpm").theta_, other.theta_, rtol=1e-4, atol=1e-4)
    out = tmp_path / "out.parquet"
    done = run(main, ["predict", str(tmp_path / "m.ggpm"), str(tmp_path / "in.parquet"), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(pq.read_table(out)["mean"].to_numpy(), other.predict(X), atol=1e-3)
    done = run(main, [*fit[:-2], "--features", "x0,z", "--out", str(tmp_path / "no.ggpm")])
    assert done.exit_code == 1 and not (tmp_path / "no.ggpm").exists()
    labels = ["fit", *shared, "--target", "label", "--family", "categorical", "--out", str(tmp_path / "c.ggpm")]
    done = run(main, labels)
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "c.ggpm").feature_names_in_.tolist() == ["x0", "x1", "y"]


def test_parquet_errors_are_named_and_leave_the_model_alone(tmp_path):
    X, y = winds(200)
    good = fixed(10).fit(X, y)
    before = good.predict(X[:4])
    holes = X.copy()
    holes[137, 1] = np.nan
    write_parquet(tmp_path / "holes.parquet", holes, y)
    with pytest.raises(ValueError, match=r"NaN: column 'x1' .* first in row 137"):
        good.fit(ParquetRows(tmp_path / "holes.parquet", ["x0", "x1"], "y", chunk_rows=64))
    np.testing.assert_array_equal(good.predict(X[:4]), before)
    with pytest.raises(ValueError, match="no column z"):
        ParquetRows(tmp_path / "holes.parquet", ["x0", "z"], "y")
    with pytest.raises(FileNotFoundError, match="no Parquet file"):
        ParquetRows(tmp_path / "nothing.parquet", ["x0"], "y")
    (tmp_path / "text.parquet").write_text("not a table")
    with pytest.raises(ValueError, match="not a Parquet file"):
        ParquetRows(tmp_path / "text.parquet", ["x0"], "y")
    with pytest.raises(ValueError, match="inducing=M"):
        GGPRegressor("von_mises").fit(ParquetRows(tmp_path / "holes.parquet", ["x0", "x1"], "y"))
    with pytest.raises(ValueError, match="names its own target"):
        fixed(10).fit(ParquetRows(tmp_path / "holes.parquet", ["x0", "x1"], "y"), y)
    # the input turns out bad half-way: the earlier output stays as it was
    out = tmp_path / "out.parquet"
    out.write_text("earlier")
    holes[137, 1] = np.inf
    write_parquet(tmp_path / "infinite.parquet", holes, y)
    with pytest.raises(ValueError, match="infinity"):
        predict_parquet(good, tmp_path / "infinite.parquet", out, features=["x0", "x1"], chunk_rows=64)
    assert out.read_text() == "earlier" and sorted(p.name for p in tmp_path.iterdir() if p.name[0] == ".") == []


def test_a_full_disk_leaves_nothing_half_written(tmp_path):
    """A limit on the size of files stands for the full disk: the system refuses the write in the same way."""
    X, y = winds(3000)
    model = fixed(5).fit(X[:100], y[:100])
    write_parquet(tmp_path / "in.parquet", X, y)
    out = tmp_path / "out.parquet"
    out.write_text("earlier")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
        with pytest.raises(OSError, match="could not be written"):
            predict_parquet(model, tmp_path / "in.parquet", out, features=["x0", "x1"], chunk_rows=500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert out.read_text() == "earlier" and sorted(os.listdir(tmp_path)) == ["in.parquet", "out.parquet"]


STREAMED = """
import resource, sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from sklearn.gaussian_process.kernels import RBF
from ggpm import GGPRegressor, Inducing
from ggpm.data.parquet import ParquetRows, predict_parquet

n, names = int(sys.argv[1]), [f"x{i}" for i in range(8)]
schema = pa.schema([(name, pa.float64()) for name in [*names, "y"]])
rng = np.random.default_rng(0)
with pq.ParquetWriter("in.parquet", schema) as writer:
    for _ in range(n // 20_000):
        block = rng.normal(size=(20_000, 9))
        writer.write_table(pa.table(dict(zip([*names, "y"], block.T))))
settings = Inducing(4, sample_rows=500, chunk_rows=20_000)
rows = ParquetRows("in.parquet", names, "y", chunk_rows=20_000)
model = GGPRegressor("gaussian", RBF(3.0), inducing=settings, optimizer=None).fit(rows)
predict_parquet(model, "in.parquet", "out.parquet", chunk_rows=20_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_parquet_file(tmp_path):
    """A file eight times as large, 14 and then 115 MB as numbers, is fitted and predicted in the same memory."""
    (tmp_path / "streamed.py").write_text(STREAMED)
    peaks = []
    for n in (200_000, 1_600_000):
        done = subprocess.run(
            [sys.executable, "streamed.py", str(n)], cwd=tmp_path, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout))
    # less than a third of the data that came on top: what the allocators of Arrow and of the system keep varies
    assert peaks[1] - peaks[0] < 0.3 * 1_400_000 * 9 * 8, peaks


# ---- Dask ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.worker.memory.terminate": False}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, protocol="inproc://"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


READ: list[int] = []  # sizes of blocks that were computed: the workers are threads of this process


def watched(block):
    READ.append(len(block))
    return block


def test_dask_is_told_how_large_a_chunk_is():
    """It spills by size, and by size it decides whether to move a chunk to another worker."""
    from dask.sizeof import sizeof

    X, y = winds(1000)
    for offset, columns in ((None, 3), (np.zeros((1000, 2)), 5)):
        assert 8000 * columns < sizeof(Chunk(X, y, offset, 0)) < 8000 * columns + 1000


def test_dask_gives_the_model_of_the_arrays_whatever_the_chunks(client):
    X, y = winds()
    arrays = fixed().fit(X, y)
    for chunks in (400, 130, 37):
        model = fixed().fit(da.from_array(X, chunks=(chunks, 1)), da.from_array(y, chunks=chunks))
        assert_same_model(model, arrays, X[:10])
    gradients = [m.log_marginal_likelihood(m.theta_ + 0.1, eval_gradient=True)[1] for m in (model, arrays)]
    np.testing.assert_allclose(*gradients, rtol=1e-9)


def test_dask_learns_the_same_hyperparameters_and_reads_every_chunk_once(client):
    X, y = winds(200)
    lazy = da.from_array(X, chunks=(70, 2)).map_blocks(watched, dtype=float, meta=np.empty((0, 2)))
    READ.clear()
    model = GGPRegressor("von_mises", KERNEL, inducing=8).fit(lazy, da.from_array(y, 70))
    other = GGPRegressor("von_mises", KERNEL, inducing=8).fit(X, y)
    np.testing.assert_allclose(model.theta_, other.theta_, rtol=1e-5)
    assert model.n_iter_ > 3 and sorted(READ) == [60, 70, 70]  # chunks stay on the workers between iterations


def test_restarts_run_on_the_cluster(client):
    X, y = winds(60)
    kernel = ConstantKernel(2.0, (0.5, 8.0)) * RBF(1.0, (0.3, 5.0))

    def stay(objective, start, bounds):
        return start, objective(start)[0]

    options = {"inducing": 6, "optimizer": stay, "n_restarts_optimizer": 3, "random_state": 0}
    model = GGPRegressor("von_mises", kernel, **options).fit(da.from_array(X, chunks=(20, 2)), da.from_array(y, 20))
    other = GGPRegressor("von_mises", kernel, **options).fit(X, y)
    assert not np.allclose(model.theta_, kernel.theta)  # one of the random starts is better than the first
    np.testing.assert_array_equal(model.theta_, other.theta_)


class Watched:
    """A client that notes what it is asked for."""

    def __init__(self, client):
        self.client, self.status, self.submitted = client, client.status, []

    def submit(self, function, *arguments, **options):
        future = self.client.submit(function, *arguments, **options)
        self.submitted.append((function.__name__, arguments, future))
        return future


@pytest.mark.parametrize("chunk", [5, 40])
def test_statistics_travel_up_a_tree_and_do_not_grow_with_the_rows(client, chunk):
    from ggpm.data.cluster import FAN_IN, dask_rows
    from ggpm.data.columns import Columns
    from ggpm.data.door import Preparation
    from ggpm.fields.inducing.passes import sites_pass

    X, y = winds(20 * chunk)
    fitted = fixed(8).set_params(inference="laplace").fit(X, y).fit_
    model = fitted.approximate().process.model
    rows, _ = dask_rows(da.from_array(X, chunks=(chunk, 2)), da.from_array(y, chunks=chunk))
    rows = rows.prepared(Preparation(Columns(2), rows.n_rows, family=model.family))
    rows.client = Watched(client)
    rows.map_reduce(sites_pass, (model, fitted.rule, np.zeros((2, 8)), False), 1000)
    merges = [arguments[0] for name, arguments, _ in rows.client.submitted if name == "_merged"]
    assert [len(group) for group in merges] == [FAN_IN, FAN_IN, 4, 3]  # 20 partial sums, 3, and one
    for name, _, future in rows.client.submitted:
        if name in ("_chunk_total", "_merged"):
            total = future.result()
            numbers = sum(a.size for part in (total.high, total.low) for a in part.values())
            # value and rounding error of three blocks of M x M, D M sums, the value and the trace
            assert numbers == 2 * (3 * 8 * 8 + 2 * 8 + 2)


def test_dask_data_frames_with_text_times_weights_and_holes(client):
    dd = pytest.importorskip("dask.dataframe")
    frame, y, offset, weight = stations()
    model = GGPRegressor("poisson", PARTS, inducing=20, optimizer=None)
    with pytest.warns(UserWarning, match="they are left out"):
        memory = clone(model).fit(frame, y, weight, offset=offset)
    blocks = [dd.from_pandas(part, npartitions=4) for part in (frame, y, weight, offset)]
    with pytest.warns(UserWarning, match="they are left out"):
        lazy = clone(model).fit(*blocks[:3], offset=blocks[3])
    assert_same_model(lazy, memory, frame[:9], offset=0)
    np.testing.assert_allclose(
        lazy.predict(blocks[0], offset=blocks[3]).compute(), memory.predict(frame, offset=offset), rtol=1e-8
    )


def test_dask_data_frames_with_labels(client):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, _ = winds(200)
    labels = np.where(X[:, 0] > 2, "b", "a")
    frame = dd.from_pandas(pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "label": labels}), npartitions=3)
    model = GGPClassifier(KERNEL, inducing=10, optimizer=None).fit(frame[["x0", "x1"]], frame["label"])
    other = GGPClassifier(KERNEL, inducing=10, optimizer=None).fit(X, labels)
    assert model.feature_names_in_.tolist() == ["x0", "x1"]
    for a, b in zip(model.predict_latent(pd.DataFrame(X, columns=["x0", "x1"])), other.predict_latent(X)):
        np.testing.assert_allclose(a, b, **TOL)
    lazy = model.predict(frame[["x0", "x1"]])
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), other.predict(X))
    np.testing.assert_allclose(model.predict_proba(frame[["x0", "x1"]]).compute(), other.predict_proba(X), **TOL)
    density = model.log_predictive_density(frame[["x0", "x1"]], frame["label"])
    np.testing.assert_allclose(density.compute(), other.log_predictive_density(X, labels), **TOL)


def test_predictions_are_lazy_and_equal(client):
    X, y = winds(90)
    model = fixed(10).fit(X, y)
    lazy_X = da.from_array(X, chunks=(40, 2))
    READ.clear()
    watched_X = lazy_X.map_blocks(watched, dtype=float, meta=np.empty((0, 2)))
    dist, exact = model.predict_dist(watched_X), model.predict_dist(X)
    results = {
        "predict": (model.predict(watched_X), model.predict(X)),
        "var": (dist.var(), exact.var()),
        "interval": (dist.interval(0.8), exact.interval(0.8)),
        "log_prob": (dist.log_prob(da.from_array(y, 40)), exact.log_prob(y)),
    }
    for i, name in enumerate(("mean", "cov")):
        results[name] = model.predict_latent(watched_X)[i], model.predict_latent(X)[i]
    assert READ == []  # nothing was computed so far
    for name, (lazy, direct) in results.items():
        assert lazy.shape == direct.shape, name
        np.testing.assert_allclose(lazy.compute(), direct, rtol=1e-10, atol=1e-12, err_msg=name)
    assert READ  # and now it was
    draws = model.sample_y(lazy_X, 3, random_state=1)
    assert draws.shape == (90, 3)
    np.testing.assert_array_equal(draws.compute(), model.sample_y(lazy_X, 3, random_state=1).compute())
    assert len(np.unique(draws.compute())) == 270


def test_labels_of_lazy_inputs():
    da = pytest.importorskip("dask.array")
    X = np.linspace(0, 1, 30)[:, None]
    model = GGPClassifier(optimizer=None).fit(X, np.repeat(["low", "mid", "high"], 10))
    lazy = da.from_array(X, 10)
    draws = model.sample_y(lazy, 4)
    assert draws.dtype == model.classes_.dtype and set(draws.compute().ravel()) == {"low", "mid", "high"}
    with pytest.raises(TypeError, match=r"X\.compute\(\)"):
        model.predict_top_k(lazy, 2)
    with pytest.raises(TypeError, match=r"X\.compute\(\)"):
        model.summary(lazy)


def test_a_model_from_a_cluster_can_be_stored(client):
    X, y = winds(100)
    model = fixed(10).fit(da.from_array(X, chunks=(50, 2)), da.from_array(y, 50))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ClusterError, match="fit again"):
        again.log_marginal_likelihood(model.theta_ + 0.1)


def test_folds_and_trials_use_the_same_cluster(client):
    from joblib import parallel_config

    from ggpm.paper.runner import Runner, _square_row

    X, y = winds(90)
    with parallel_config("dask"):
        on_cluster = cross_val_score(fixed(8), X, y, cv=3)
    np.testing.assert_allclose(on_cluster, cross_val_score(fixed(8), X, y, cv=3), rtol=1e-10)
    assert cluster_map(divmod, [7, 9], [2, 4]) == [(3, 1), (2, 1)]
    with parallel_config("dask"):
        trials = Runner(jobs=2, progress=False).run("squares", _square_row, [1, 2, 3])
    assert trials == [{"square": 1}, {"square": 4}, {"square": 9}]


def test_bad_collections_are_named(client):
    X, y = winds(100)
    lazy_X, lazy_y = da.from_array(X, chunks=(50, 2)), da.from_array(y, chunks=50)
    good = fixed(10).fit(lazy_X, lazy_y)
    before = good.predict(X[:3])
    with pytest.raises(ValueError, match=r"partition\(s\) and y 4"):
        good.fit(lazy_X, y := da.from_array(y, chunks=25))
    with pytest.raises(ValueError, match="cut at the same rows"):
        good.fit(lazy_X, da.from_array(np.asarray(y), chunks=((60, 40),)))
    unknown = lazy_y[lazy_y > -10]  # lengths that Dask does not know
    with pytest.raises(ValueError, match="partition 1: X has 50 rows and y 49"):
        good.fit(lazy_X, unknown.map_blocks(lambda b: b[:-1] if b[0] == np.asarray(y)[50] else b, dtype=float))
    bad = X.copy()
    bad[70, 1] = np.nan
    with pytest.raises(ValueError, match=r"column 1 .* first in row 70"):
        good.fit(da.from_array(bad, chunks=(50, 2)), lazy_y)
    with pytest.raises(ValueError, match="inducing=M"):
        GGPRegressor("von_mises").fit(lazy_X, lazy_y)
    with pytest.raises(ValueError, match="y must be passed"):
        good.fit(lazy_X)
    np.testing.assert_array_equal(good.predict(X[:3]), before)


def test_chunk_rows_do_not_show_in_a_learned_model():
    X, y = winds(150)
    one, other = (
        GGPRegressor("von_mises", KERNEL, inducing=Inducing(8, chunk_rows=rows)).fit(X, y) for rows in (150, 40)
    )
    # sums in another order differ by rounding; the search, which ends where a step gains 1e-9 of the objective, may end
    # a step earlier then, where the evidence is flat
    np.testing.assert_allclose(one.fit_.log_evidence, other.fit_.log_evidence, rtol=1e-8)
    np.testing.assert_allclose(one.theta_, other.theta_, atol=1e-3)
    held = GGPRegressor("von_mises", one.kernel_, inducing=Inducing(8, chunk_rows=40), optimizer=None).fit(X, y)
    np.testing.assert_allclose(held.fit_.log_evidence, one.fit_.log_evidence, rtol=1e-12)
