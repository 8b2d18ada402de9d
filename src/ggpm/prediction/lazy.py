"""Predictions for Dask collections: nothing is computed until it is asked for, one partition at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.data.cluster import partitions


class LazyPredictive:
    """The methods of `Predictive` as Dask arrays, partition by partition."""

    def __init__(self, model: Any, X: Any, offset: Any = None, trials: Any = None):
        import dask

        self._model = without_data(model)
        self._core = dask.delayed(self._model)
        self._lengths = X.chunks[0] if hasattr(X, "chunks") else None
        self._X = partitions(X, "X")
        self._offset = [None] * len(self._X) if offset is None else _matching(offset, "offset", X, len(self._X))
        self._trials = [None] * len(self._X) if trials is None else _matching(trials, "trials", X, len(self._X))
        self._whole = X

    def __repr__(self) -> str:
        return f"LazyPredictive({self._model.family_!r}, {len(self._X)} partitions)"

    def mean(self) -> Any:
        """Predictive mean in the space of y."""
        return self._map("mean")

    def var(self) -> Any:
        """Predictive variance."""
        return self._map("var")

    def std(self) -> Any:
        """Predictive standard deviation of numbers, and of each entry of vectors."""
        return self._map("std")

    def interval(self, level: float = 0.9) -> Any:
        """Credible region of the given level."""
        return self._map("interval", level)

    def mean_interval(self, level: float = 0.9) -> Any:
        """Credible interval of the mean."""
        return self._map("mean_interval", level)

    def probability(self, low: float, high: float) -> Any:
        """P(low <= y <= high), or of the arc from low forwards to high, for one pair of bounds."""
        return self._map("probability", low, high)

    def quantile(self, q: float) -> Any:
        """The q-quantile of y."""
        return self._map("quantile", q)

    def log_prob(self, y: Any) -> Any:
        """Log predictive density of each y."""
        blocks = _matching(y, "y", self._whole, len(self._X))
        return self._stack("log_prob", [(block,) for block in blocks], (), np.float64)

    def sample(self, size: int | None = None, random_state: int = 0) -> Any:
        """Independent draws with the rows first, (m, ...) or (m, size, ...): every partition has its own stream."""
        streams = np.random.SeedSequence(random_state).spawn(len(self._X))
        probe = self._probe("sample", size, 0)
        return self._stack("sample", [(size, stream) for stream in streams], probe.shape[1:], probe.dtype)

    def latent(self) -> tuple[Any, Any]:
        """Mean (m, D) and covariance (m, D, D) of the latent."""
        import dask

        D = self._model.family_.latent_dim
        pairs = [
            dask.delayed(_latent, nout=2)(self._core, x, offset) for x, offset in zip(self._X, self._offset)
        ]  # fmt: skip
        mean = self._array([pair[0] for pair in pairs], (D,), np.float64)
        return mean, self._array([pair[1] for pair in pairs], (D, D), np.float64)

    def labels(self) -> Any:
        """The most probable label of each row (classifiers)."""
        return self._array(self._method("predict"), (), self._model.classes_.dtype)

    def probabilities(self) -> Any:
        """Probability of each class (classifiers)."""
        return self._array(self._method("predict_proba"), self._model.classes_.shape, np.float64)

    def _method(self, name: str) -> list[Any]:
        import dask

        call = dask.delayed(_method)
        return [call(self._core, x, offset, name) for x, offset in zip(self._X, self._offset)]

    # ---- assembly ----------------------------------------------------------------------------------------------
    def _map(self, method: str, *arguments: Any) -> Any:
        probe = self._probe(method, *arguments)
        return self._stack(method, [arguments] * len(self._X), probe.shape[1:], probe.dtype)

    def _probe(self, method: str, *arguments: Any) -> np.ndarray:
        """Answer of the method for one row: its shape and type."""
        from ggpm.prediction.predictive import Predictive

        D = self._model.family_.latent_dim
        one = Predictive(self._model.family_, np.zeros((1, D)), np.eye(D)[None], None)
        return _rows_first(getattr(one, method)(*arguments), method, arguments)

    def _stack(self, method: str, arguments: list[tuple[Any, ...]], tail: tuple[int, ...], dtype: Any) -> Any:
        import dask

        call = dask.delayed(_call)
        blocks = [
            call(self._core, x, offset, trials, method, *args)
            for x, offset, trials, args in zip(self._X, self._offset, self._trials, arguments)
        ]
        return self._array(blocks, tail, dtype)

    def _array(self, blocks: list[Any], tail: tuple[int, ...], dtype: Any) -> Any:
        import dask.array as da

        lengths = self._lengths or [np.nan] * len(blocks)
        arrays = [da.from_delayed(b, shape=(n, *tail), dtype=dtype) for b, n in zip(blocks, lengths)]
        return da.concatenate(arrays, allow_unknown_chunksizes=True)


def without_data(model: Any) -> Any:
    """A copy of a fitted estimator that predicts, without the rows it was fitted to."""
    return type(model).from_fit(model.get_params(deep=False), model.fit_.without_rows())


def _matching(collection: Any, name: str, X: Any, count: int) -> list[Any]:
    blocks = partitions(collection, name, X)
    if len(blocks) != count:
        raise ValueError(f"X has {count} partition(s) and {name} {len(blocks)}: they must be cut at the same rows.")
    return blocks


def _call(model: Any, X: Any, offset: Any, trials: Any, method: str, *arguments: Any) -> np.ndarray:
    predictive = model.predict_dist(X, offset=offset, trials=trials)
    if method == "log_prob":
        arguments = (model.codes(arguments[0]),)
    return _rows_first(getattr(predictive, method)(*arguments), method, arguments)


def _rows_first(values: Any, method: str, arguments: tuple[Any, ...]) -> np.ndarray:
    out = np.asarray(values)
    return np.moveaxis(out, 0, 1) if method == "sample" and arguments[0] is not None else out


def _latent(model: Any, X: Any, offset: Any) -> tuple[np.ndarray, np.ndarray]:
    return model.predict_latent(X, offset=offset)


def _method(model: Any, X: Any, offset: Any, name: str) -> np.ndarray:
    return np.asarray(getattr(model, name)(X, offset=offset))
