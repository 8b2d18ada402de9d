"""A sparse fit, from what the user passed to the fitted attributes of an estimator."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names, check_consistent_length, validate_data

from ggpm.data import frames
from ggpm.data.checks import as_numbers
from ggpm.data.door import Preparation, joined, survey, take
from ggpm.data.kinds import is_dask, is_streamed
from ggpm.data.rows import ArrayRows, Chunk, Rows
from ggpm.fields.inducing.objective import SparseEvidence
from ggpm.fields.inducing.points import settings_of
from ggpm.kernels import median_distance, resolve_kernel
from ggpm.learning import priors
from ggpm.learning.objective import WarmObjective, search
from ggpm.learning.search import Optimum, maximise, warn_unconverged

Array = NDArray[np.float64]

WARMUP_FROM = 1000  # rows below which a sample saves no time worth having


def fit_sparse(estimator: Any, X: Any, y: Any, offset: Any) -> None:
    """Set the fitted attributes of an estimator whose ``inducing`` is not None."""
    if estimator.inducing is None:
        raise ValueError(
            f"X is a {type(X).__name__}, whose rows are read in chunks: exact inference needs all of them at once. "
            "Pass inducing=M, the number of inducing points (for example 256)."
        )
    settings = settings_of(estimator.inducing)
    inference = estimator._resolve_inference()
    raw = _source(estimator, X, y, offset, settings.chunk_rows)
    Z = settings.given(raw.n_features)
    if Z is None and int(settings.points) > raw.n_rows:  # type: ignore[arg-type]
        raise ValueError(
            f"inducing must be at most the number of rows; got {settings.points!r} for {raw.n_rows} row(s)."
        )
    state = check_random_state(0 if estimator.random_state is None else estimator.random_state)
    rng = np.random.default_rng(state.randint(2**31 - 1))
    enough = 0 if Z is not None else 4 * int(settings.points)  # type: ignore[arg-type]
    indices = _sample_indices(raw.n_rows, max(settings.sample_rows, enough), rng)
    family, classes, sample = _resolve(estimator, raw, y, indices)
    rows = raw.prepared(Preparation(family, classes, raw.n_features))
    kernels = resolve_kernel(estimator.kernel, family.latent_dim, sample.X)
    if Z is None:
        Z = settings.choose(sample.X, kernels, int(rng.integers(2**31 - 1)))
    names = priors.names_of(kernels, family)
    length = median_distance(sample.X) if estimator.kernel is None else 1.0
    prior = priors.resolve(estimator.priors, names, estimator.kernel is None, family, length)
    evidence = SparseEvidence(family, kernels, rows, Z, inference, settings.jitter, prior)
    n_iter, converged, start = 0, True, None
    if estimator.optimizer is not None:
        evidence, found, start = _learn(estimator, settings, evidence, sample, rng)
        n_iter, converged = sum(o.n_iter for o in found), all(o.converged for o in found)
        if not converged:
            warn_unconverged(
                f"the hyperparameter search stopped early ({found[-1].message}). Scale the inputs, widen the bounds, "
                "or try n_restarts_optimizer=3.",
                stacklevel=5,
            )
    value, _, approximation = evidence.evaluate(start=start, gradient=False)
    if not approximation.converged:
        warn_unconverged(
            "the posterior mode was not found to full precision; predictions may be off. Try "
            "inference=Laplace(max_iter=500), another kernel scale, or inference='taylor'.",
            stacklevel=5,
        )
    estimator.family_ = evidence.family
    estimator.kernel_ = evidence.kernels if isinstance(estimator.kernel, (list, tuple)) else evidence.kernels[0]
    estimator.theta_ = evidence.theta
    estimator.inducing_inputs_ = evidence.Z
    estimator.log_marginal_likelihood_value_ = value
    estimator.n_iter_ = n_iter
    estimator.converged_ = bool(approximation.converged and converged)
    estimator.posterior_ = approximation.posterior()
    estimator._evidence = evidence


# ---- rows ---------------------------------------------------------------------------------------------------------


def _source(estimator: Any, X: Any, y: Any, offset: Any, chunk_rows: int) -> Rows:
    """The raw rows, with the estimator's facts about the features."""
    if is_dask(X) or is_dask(y):
        from ggpm.data.cluster import dask_rows

        rows, names = dask_rows(X, y, offset)
    elif is_streamed(X):
        if y is not None or offset is not None:
            raise ValueError(f"a {type(X).__name__} names its own target and offset: fit(source) takes no other.")
        rows, names = X, getattr(X, "feature_names", None)
        estimator.target_names_ = getattr(X, "target_names", None)
    else:
        if y is None:
            raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
        mapped = isinstance(X, np.memmap) or (isinstance(X, np.ndarray) and isinstance(X.base, np.memmap))
        if mapped:  # checked chunk by chunk: a copy in memory is what the user wants to avoid
            if X.ndim != 2 or len(X) == 0:
                raise ValueError(f"X must be an array (n, features) with at least one row; got shape {X.shape}.")
            _check_feature_names(estimator, X, reset=True)
            estimator.n_features_in_ = X.shape[1]
        else:
            X = validate_data(estimator, X, dtype=np.float64, ensure_min_samples=1)
        y = y if isinstance(y, np.ndarray) else frames.values_of(y)
        check_consistent_length(X, y)
        if offset is not None:
            offset = as_numbers(offset, "offset", "one number per row")
            check_consistent_length(X, offset)
        return ArrayRows(X, y, offset, chunk_rows=chunk_rows)
    estimator.n_features_in_ = rows.n_features
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return rows


def _sample_indices(n: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sorted numbers of a random sample of the rows: the same however the rows are cut into chunks."""
    if size >= n:
        return np.arange(n)
    return np.sort(rng.choice(n, size, replace=False))


def _resolve(estimator: Any, raw: Rows, y: Any, indices: NDArray[np.int64]) -> tuple[Any, NDArray | None, Chunk]:
    """The family bound to the data, the labels (classifiers), and the prepared sample of rows."""
    labels = hasattr(estimator, "_family_for")
    facts = raw.collect(survey, (raw.n_features, labels))
    picked = joined(raw.collect(take, (indices,)))
    if isinstance(raw, ArrayRows) and not isinstance(raw.y, np.memmap):
        family, _ = estimator._resolve_family(y)
    else:
        # the sample, and the rows or labels that decide how many parts, classes and levels there are
        extra = [fact["labels" if labels else "extremes"] for fact in facts]
        family, _ = estimator._resolve_family(np.concatenate([picked.y, *extra]))
        if getattr(family, "_n_rows", None) is not None:
            family._n_rows = raw.n_rows
    classes = estimator.classes_ if labels else None
    return family, classes, Preparation(family, classes, raw.n_features)(picked)


# ---- learning -----------------------------------------------------------------------------------------------------


def _learn(
    estimator: Any,
    settings: Any,
    evidence: SparseEvidence,
    sample: Chunk,
    rng: np.random.Generator,
) -> tuple[SparseEvidence, list[Optimum], Any]:
    """Hyperparameters from samples, then from all rows; then with the inducing inputs, if asked for.

    Every search starts from the hyperparameters, the posterior and the curvature that the one before ended with.
    """
    found: list[Optimum] = []
    restarts, inverse_hessian, start = estimator.n_restarts_optimizer, None, None
    if evidence.theta.size:
        sizes = _sizes(evidence, len(sample), settings)
        for size, following in itertools.pairwise(sizes):
            if size <= len(sample):
                part = take(sample, _sample_indices(len(sample), size, rng))
            else:
                part = joined(evidence.rows.collect(take, (_sample_indices(evidence.rows.n_rows, size, rng),)))
            small = copy.copy(evidence)
            small.rows = ArrayRows(part.X, part.y, part.offset)
            first, start = _maximise(estimator, small, settings, restarts, rng, f"{size} rows", inverse_hessian, start)
            evidence, restarts = evidence.at(first.theta), 0
            # the information grows with the rows
            inverse_hessian = first.inverse_hessian * (size / following)
        best, start = _maximise(estimator, evidence, settings, restarts, rng, "all rows", inverse_hessian, start)
        evidence = evidence.at(best.theta)
        found.append(best)
    if settings.optimise:
        evidence, joint, start = _move_inputs(estimator, evidence, sample, settings)
        found.append(joint)
    return evidence, found, start


def _sizes(evidence: SparseEvidence, sample: int, settings: Any) -> list[int]:
    """How many rows to learn from, one after the other: samples of a quarter at most, then all."""
    n = evidence.rows.n_rows
    first = min(sample, n // 4)
    # a user's expansion point belongs to the rows in their order, which a sample does not keep
    given = isinstance(getattr(evidence.inference, "expansion", None), np.ndarray)
    if not settings.warmup or given or first < min(settings.sample_rows, WARMUP_FROM):
        return [n]
    return [size for size in (first, 10 * sample) if 4 * size <= n] + [n]


def _maximise(
    estimator: Any,
    evidence: SparseEvidence,
    settings: Any,
    restarts: int,
    rng: Any,
    what: str,
    inverse_hessian: Array | None,
    start: Any,
) -> tuple[Optimum, Any]:
    """The best hyperparameters, and their posterior as a start for another search."""
    objective = WarmObjective(evidence, start, inverse_hessian)
    best = search(
        objective, evidence.theta, optimizer=estimator.optimizer, n_restarts=restarts, rng=rng,
        report=estimator._report(what), ftol=settings.ftol,
    )  # fmt: skip
    return best, objective.start


def _move_inputs(
    estimator: Any, evidence: SparseEvidence, sample: Chunk, settings: Any
) -> tuple[SparseEvidence, Optimum, Any]:
    """Hyperparameters and inducing inputs together; the inputs in units of the features' spread."""
    p, Z = evidence.theta.size, evidence.Z
    spread = sample.X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    # one spread beyond the data on either side: further out an inducing point has nothing to explain
    low, high = np.minimum(sample.X.min(axis=0), Z.min(axis=0)), np.maximum(sample.X.max(axis=0), Z.max(axis=0))
    box = np.stack([np.tile(low / spread - 1.0, len(Z)), np.tile(high / spread + 1.0, len(Z))], axis=1)
    warm: dict[str, Any] = {"start": None}

    def at(x: Array) -> SparseEvidence:
        return evidence.at(x[:p]).with_inputs(x[p:].reshape(Z.shape) * spread)

    def objective(x: Array) -> tuple[float, Array]:
        here = at(x)
        approximation = here.infer(warm["start"])
        warm["start"] = approximation.start
        theta, inputs = here.gradient(approximation, inputs=True)
        value, theta = here.with_prior(approximation.log_evidence, theta)
        return value, np.concatenate([theta, (inputs * spread).ravel()])

    best = maximise(
        objective, np.concatenate([evidence.theta, (Z / spread).ravel()]), np.concatenate([evidence.bounds, box]),
        optimizer=estimator.optimizer, report=estimator._report("inducing inputs"),
        ftol=settings.ftol,
    )  # fmt: skip
    return at(best.theta), best, warm["start"]
