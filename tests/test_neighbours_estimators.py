"""Estimators on the neighbours field: saved, asked, given rows in chunks and further rows, told what is amiss."""

import pickle

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Matern,
)

import ggpm
from cases import simulate
from ggpm import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, Neighbours
from ggpm.kernels import Category, On
from ggpm.learning.advice import advise
from test_neighbours import rough_kernels


def test_estimators_save_load_pickle_and_leave_one_out(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    X[50:] = X[:10]
    labels = np.array(["a", "b", "c"])[(3 * X[:, 0]).astype(int)]
    kernel = ConstantKernel(2.0) * Matern(0.5, nu=1.5)
    models = [
        GGPRegressor("von_mises", kernel, neighbours=10, inference="laplace").fit(X, rng.vonmises(6 * X[:, 0], 5.0)),
        GGPClassifier(kernel, neighbours=Neighbours(10, leaf=8), inference="variational", optimizer=None).fit(
            X, labels
        ),
        GGPOrdinalClassifier(kernel, neighbours=10, order=["a", "b", "c"], inference="laplace", optimizer=None).fit(
            X, labels
        ),
    ]
    for model in models:
        mean, cov = model.predict_latent(X[:7] + 0.01)
        ggpm.save(model, tmp_path / "model.ggpm")
        for again in (ggpm.load(tmp_path / "model.ggpm"), pickle.loads(pickle.dumps(model))):
            for mine, theirs in zip(again.predict_latent(X[:7] + 0.01), (mean, cov)):
                np.testing.assert_allclose(mine, theirs, atol=1e-12 * np.abs(theirs).max())
            value, gradient = again.log_marginal_likelihood(again.theta_, eval_gradient=True)
            assert value == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-9)
            assert gradient.shape == model.theta_.shape
            np.testing.assert_allclose(again.loo().pointwise, model.loo().pointwise, atol=1e-8)


def test_leave_one_out_is_that_of_the_dense_field():
    X, y, _ = simulate("von_mises", n=25)
    kernel = rough_kernels(2, True)[0]
    exact, near = (GGPRegressor("von_mises", kernel, optimizer=None, neighbours=k).fit(X, y) for k in (None, 24))
    np.testing.assert_allclose(near.loo().pointwise, exact.loo(neighbours=0).pointwise, atol=1e-8)
    with pytest.raises(ValueError, match="neighbours must be 0 or None; got 8"):
        near.loo(neighbours=8)


def test_hyperparameters_of_many_rows_are_learned_from_a_sample():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = rng.poisson(np.exp(np.sin(6 * X[:, 0])))
    kernel = ConstantKernel(1.0) * Matern(0.3, nu=1.5)
    part, whole = (
        GGPRegressor("poisson", kernel, neighbours=Neighbours(10, learn_rows=rows)).fit(X, y) for rows in (120, None)
    )
    assert part.fit_.evidence.field.n_rows == 300 and part.converged_
    assert not np.allclose(part.theta_, whole.theta_)
    held = GGPRegressor("poisson", part.kernel_, optimizer=None, neighbours=10).fit(X, y)
    np.testing.assert_allclose(part.predict(X[:5]), held.predict(X[:5]), rtol=1e-9)


def test_predictions_of_dask_collections():
    dask_array = pytest.importorskip("dask.array")
    X = np.random.default_rng(0).uniform(size=(80, 2))
    model = GGPRegressor("poisson", Matern(0.3, nu=1.5), optimizer=None, neighbours=8).fit(X, np.arange(80) % 5)
    lazy = model.predict(dask_array.from_array(X, chunks=(30, 2)))
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), model.predict(X), rtol=1e-12)


@pytest.mark.parametrize("settings, message", [
    ({"neighbours": 5, "inducing": 3}, "neighbours and inducing are two ways"),
    ({"neighbours": 5, "objective": "loo"}, "with neighbours objective must be 'evidence'"),
    ({"neighbours": 0}, "neighbours"),
    ({"neighbours": 2.5}, "neighbours"),
])  # fmt: skip
def test_mistakes_are_told(settings, message):
    with pytest.raises(ValueError, match=message):
        GGPRegressor("poisson", **settings).fit(np.arange(8.0)[:, None], np.arange(8))


@pytest.mark.parametrize("settings, message", [
    ({"number": 0}, "neighbours"),
    ({"nugget": -1.0}, "nugget must be in"),
    ({"ordering": "random"}, "ordering must be"),
])  # fmt: skip
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        Neighbours(**settings)


def test_a_factor_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("ggpm.fields.neighbours.factor.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="the sparse factor of 30 points"):
        GGPRegressor("poisson", Matern(nu=1.5), neighbours=5).fit(np.arange(30.0)[:, None], np.arange(30))


# ---- rows in chunks ------------------------------------------------------------------------------------------------


def test_rows_in_chunks_are_fitted_and_predicted_as_rows_in_memory(tmp_path):
    pd, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    from ggpm.data.parquet import ParquetRows, predict_parquet

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(size=(120, 2)), columns=["x", "y"])
    frame["station"] = np.array(["a", "b"])[rng.integers(0, 2, 120)]
    frame["count"], frame["times"] = rng.poisson(2.0, 120).astype(float), rng.integers(0, 3, 120)
    frame["exposure"] = rng.normal(size=120) / 10
    frame.loc[7, "count"] = np.nan
    frame.to_parquet(tmp_path / "rows.parquet")
    features = ["x", "y", "station"]
    kernel = On(Matern(0.3, nu=1.5), ["x", "y"]) + Category("station")
    rows = ParquetRows(
        tmp_path / "rows.parquet", features, "count", offset="exposure", weight="times", chunk_rows=50
    )  # fmt: skip
    model = GGPRegressor("poisson", kernel, neighbours=10, optimizer=None)
    with pytest.warns(UserWarning, match="y is missing in 1 of 120"):
        streamed = model.fit(rows)
    with pytest.warns(UserWarning, match="y is missing in 1 of 120"):
        whole = GGPRegressor("poisson", kernel, neighbours=10, optimizer=None).fit(
            frame[features], frame["count"], frame["times"], offset=frame["exposure"]
        )
    assert streamed.log_marginal_likelihood_value_ == pytest.approx(whole.log_marginal_likelihood_value_, rel=1e-12)
    expected = whole.summary(frame[features], offset=frame["exposure"])
    assert predict_parquet(streamed, tmp_path / "rows.parquet", tmp_path / "out.parquet", chunk_rows=17) == 120
    found = pd.read_parquet(tmp_path / "out.parquet")
    for name in found.columns:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9)


def test_dask_collections_are_fitted_as_rows_in_memory():
    pytest.importorskip("distributed", reason="needs distributed (the extra ggpm[dask])")
    import dask.array as da
    from distributed import Client

    X, y, _ = simulate("von_mises", n=90)
    kernel = Matern(0.9, nu=1.5)
    whole = GGPRegressor("von_mises", kernel, neighbours=10).fit(X, y)
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None):
        found = GGPRegressor("von_mises", kernel, neighbours=10).fit(da.from_array(X, (40, 2)), da.from_array(y, 40))
    np.testing.assert_allclose(found.theta_, whole.theta_, rtol=1e-12)
    np.testing.assert_allclose(found.predict(X), whole.predict(X), rtol=1e-9)


# ---- advice --------------------------------------------------------------------------------------------------------


def test_exact_inference_of_too_many_rows_comes_with_advice(monkeypatch):
    monkeypatch.setattr("ggpm.fields.dense.solution.available_memory", lambda: 1e6)
    monkeypatch.setattr("ggpm.estimators.base.SLOW_ROWS", 2400)
    X = np.random.default_rng(0).uniform(size=(2500, 2))
    y = np.arange(2500) % 5
    for kernel, told in ((Matern(nu=1.5), "2500 rows of 2 features: neighbours=20"), (RBF(), "inducing=256 for so")):
        with (
            pytest.warns(UserWarning, match="minutes to hours.*2500 rows"),
            pytest.raises(MemoryError, match=told) as caught,
        ):
            GGPRegressor("poisson", kernel, optimizer=None).fit(X, y)
        assert "GiB are free" in str(caught.value)
    assert advise(9000, 1).field == "neighbours" and advise(9000, 4).field == "inducing"


# ---- terms and further rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("several", [False, True])
def test_terms_are_those_of_the_dense_field(several):
    X, y, _ = simulate("von_mises", n=30)
    kernel = Matern(0.9, nu=1.5) + ConstantKernel(0.5) * Matern(5.0, nu=0.5) + ConstantKernel(0.3)
    kernel = [kernel, Matern(1.2, nu=1.5)] if several else kernel
    exact, near = (GGPRegressor("von_mises", kernel, optimizer=None, neighbours=m).fit(X, y) for m in (None, 29))
    want, found = exact.terms(X[:6] + 0.1), near.terms(X[:6] + 0.1)
    assert list(found) == list(want)
    for name in want:
        for mine, theirs in zip(found[name], want[name]):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)  # the searches end at their own tolerances


def test_further_rows_give_the_posterior_of_all():
    X, y, _ = simulate("von_mises", n=40)
    kernel = Matern(0.9, nu=1.5)
    model = GGPRegressor("von_mises", kernel, optimizer=None, neighbours=8).fit(X[:30], y[:30])
    whole = GGPRegressor("von_mises", kernel, optimizer=None, neighbours=8).fit(X, y, np.repeat([1.0, 2.0], [30, 10]))
    model.update(X[30:], y[30:], np.full(10, 2.0))
    assert model.log_marginal_likelihood_value_ == pytest.approx(whole.log_marginal_likelihood_value_, rel=1e-9)
    np.testing.assert_allclose(model.predict_latent(X)[0], whole.predict_latent(X)[0], atol=1e-5)
