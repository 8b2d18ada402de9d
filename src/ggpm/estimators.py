"""The three estimators: scikit-learn's conventions around one computation."""

from __future__ import annotations

import copy
import sys
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ggpm import _frames, families, priors
from ggpm._optimize import Optimum, maximise, warn_unconverged
from ggpm._output import FramedOutput
from ggpm.families.base import Family
from ggpm.families.support import Real
from ggpm.inference import INFERENCES, Approximation
from ggpm.kernels import median_distance, resolve_kernel
from ggpm.loo import LeaveOneOut, log_densities
from ggpm.objective import Evidence, WarmObjective, subset_start
from ggpm.posterior import Posterior, SolveLater
from ggpm.predictive import Predictive
from ggpm.sparse.fitting import fit_sparse, is_dask, is_streamed
from ggpm.sparse.lazy import LazyPredictive

Array = NDArray[np.float64]


class _GGP(FramedOutput, BaseEstimator):
    """What the three estimators share: learning, the latent posterior, predictive distributions."""

    kernel: Any
    inference: Any
    objective: str
    optimizer: Any
    n_restarts_optimizer: int
    inducing: Any
    random_state: Any
    verbose: int
    priors: Any

    # ---- fitting -----------------------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any = None, *, offset: Any = None) -> Self:
        """Learn the hyperparameters and the posterior.

        Parameters
        ----------
        X : array (n, features)
        y : outputs of the family's kind, n rows
        offset : array (n,) or (n, D), optional
            Known part of the latent, added to it (for counts: the logarithm of the exposure).

        Returns
        -------
        self
        """
        # all work happens on a copy, so that a failed fit leaves this estimator as it was
        work = copy.copy(self)
        work._fit(X, y, offset)
        self.__dict__.clear()  # names of an earlier fit must not outlive it
        self.__dict__.update(vars(work))
        return self

    def _fit(self, X: Any, y: Any, offset: Any) -> None:
        self.target_names_, self._target_kind = _frames.names_of(y), _frames.kind_of(y)
        if self.inducing is not None or is_streamed(X):
            if self.objective != "evidence":
                raise ValueError(f"with inducing points objective must be 'evidence'; got {self.objective!r}.")
            return fit_sparse(self, X, y, offset)
        X = validate_data(self, X, dtype=np.float64, order="C", ensure_min_samples=1)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        family, y = self._resolve_family(y)
        check_consistent_length(X, y)
        inference = self._resolve_inference()
        D = family.latent_dim
        self._offset_given_ = offset is not None
        kernels = resolve_kernel(self.kernel, D, X)
        names, length = priors.names_of(kernels, family), median_distance(X) if self.kernel is None else 1.0
        prior = priors.resolve(self.priors, names, self.kernel is None, family, length)
        evidence = Evidence(family, kernels, X, y, _as_offset(offset, len(X), D), inference, self.objective, prior)
        n_iter, optimum_converged, start = 0, True, None
        if self.optimizer is not None and evidence.theta.size:
            optimum, start = self._maximise(evidence)
            evidence = evidence.at(optimum.theta)
            n_iter, optimum_converged = optimum.n_iter, optimum.converged
            if not optimum.converged:
                warn_unconverged(
                    f"the hyperparameter search stopped early ({optimum.message}). Scale the inputs, widen the bounds, "
                    "or try n_restarts_optimizer=3."
                )
        value, _, approximation = evidence.evaluate(start=start, gradient=False)
        if not approximation.converged:
            warn_unconverged(
                "the posterior mode was not found to full precision; predictions may be off. Try "
                "inference=Laplace(max_iter=500) (or Variational), another kernel scale, or inference='taylor'."
            )
        self.family_ = evidence.family
        self.kernel_ = evidence.kernels if isinstance(self.kernel, (list, tuple)) else evidence.kernels[0]
        self.theta_ = evidence.theta
        self.log_marginal_likelihood_value_ = value
        self.n_iter_ = n_iter
        self.converged_ = bool(approximation.converged and optimum_converged)
        z, solution = np.ascontiguousarray(approximation.z), approximation.solution
        if type(approximation) is not Approximation:
            # a search that asks for marginals turns factors into inverses, which round differently: start afresh, as
            # a loaded model does
            solution = SolveLater(evidence.kernels, X, approximation.U)
        self.posterior_ = Posterior(evidence.kernels, X, z, solution, approximation.U)
        evidence.forget_distances()
        self._evidence = evidence
        self._approximation = approximation

    def _maximise(self, evidence: Evidence) -> tuple[Optimum, Any]:
        label = "leave-one-out" if self.objective == "loo" else "log evidence"

        def report(run: int, calls: int, value: float) -> None:
            print(f"[ggpm] run {run}, evaluation {calls}: {label} {value:.6f}", file=sys.stderr)

        seed = check_random_state(self.random_state).randint(2**31 - 1) if self.n_restarts_optimizer else 0
        start, inverse_hessian = (evidence.theta, None) if callable(self.optimizer) else subset_start(evidence)
        objective = WarmObjective(evidence)
        optimum = maximise(
            objective,
            start,
            evidence.bounds,
            optimizer=self.optimizer,
            n_restarts=self.n_restarts_optimizer,
            rng=np.random.default_rng(seed),
            inverse_hessian=inverse_hessian,
            report=report if self.verbose else None,
        )
        return optimum, objective.start

    def _resolve_family(self, y: Any) -> tuple[Family, Array]:
        """The family bound to the data, and the encoded y."""
        raise NotImplementedError

    def _resolve_inference(self):
        if self.objective not in ("evidence", "loo"):
            raise ValueError(f"objective must be 'evidence' or 'loo'; got {self.objective!r}.")
        if isinstance(self.inference, str):
            if self.inference not in INFERENCES:
                known = ", ".join(repr(name) for name in INFERENCES)
                raise ValueError(f"inference must be one of {known} or an object; got {self.inference!r}.")
            return INFERENCES[self.inference]()
        if not hasattr(self.inference, "infer"):
            raise TypeError(f"inference must be a name or an object with settings; got {self.inference!r}.")
        return self.inference

    # ---- evidence ------------------------------------------------------------------------------------------------
    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False):
        """Log evidence at ``theta`` (default: the learned one), and its gradient if asked for.

        A pure function of theta: it starts from the same point whatever was evaluated before.
        """
        check_is_fitted(self)
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        at = self._evidence if theta is None else self._evidence.at(np.asarray(theta, dtype=float))
        value, gradient, _ = at.evaluate(gradient=eval_gradient)
        return (value, gradient) if eval_gradient else value

    def loo(self) -> LeaveOneOut:
        """Leave-one-out log predictive densities of the training rows, from the fitted sites, without refitting.

        Returns
        -------
        LeaveOneOut
            With ``pointwise`` (n,), ``total``, ``mean`` and the ``standard_error`` of the total.

        Examples
        --------
        >>> X = np.linspace(0, 1, 12)[:, None]
        >>> GGPRegressor("poisson", optimizer=None).fit(X, np.arange(12)).loo().pointwise.shape
        (12,)
        """
        check_is_fitted(self)
        if not isinstance(getattr(self, "_evidence", None), Evidence):
            raise ValueError("leave-one-out needs the exact posterior of all training rows: fit with inducing=None.")
        approximation = getattr(self, "_approximation", None) or self._evidence.evaluate(gradient=False)[2]
        return LeaveOneOut(log_densities(approximation))

    # ---- prediction ----------------------------------------------------------------------------------------------
    def predict_latent(self, X: Any, *, offset: Any = None) -> tuple[Array, Array]:
        """Mean (m, D) and covariance (m, D, D) of the latent at the rows of X."""
        check_is_fitted(self)
        if is_dask(X):
            return self.predict_dist(X, offset=offset).latent()
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mean, cov = self.posterior_.latent(X)
        return mean + _as_offset(offset, len(X), mean.shape[1]), cov

    def predict_dist(self, X: Any, *, offset: Any = None, trials: Any = None) -> Any:
        """The predictive distribution (`Predictive`) at the rows of X; ``trials`` for counts out of N.

        For a Dask collection its methods give Dask arrays, and nothing is computed before they are.
        """
        if is_dask(X):
            check_is_fitted(self)
            return LazyPredictive(self, X, offset, trials)
        mean, cov = self.predict_latent(X, offset=offset)
        return Predictive(self.family_, mean, cov, _as_trials(trials, len(mean), self.family_))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, *, offset: Any = None, trials: Any = None):
        """Draws of y, independent between rows, with the draws on the last axis as in scikit-learn."""
        draws = self.predict_dist(X, offset=offset, trials=trials).sample(n_samples, random_state)
        if is_dask(X):
            return np.moveaxis(draws, 1, -1)
        return self._labelled(np.moveaxis(draws, 0, -1))

    def log_predictive_density(self, X: Any, y: Any, *, offset: Any = None) -> Array:
        """Log predictive density of each row of y, (m,).

        >>> X = np.arange(6.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(6)).log_predictive_density(X, np.arange(6)).shape
        (6,)
        """
        if is_dask(X):
            return self.predict_dist(X, offset=offset).log_prob(y)
        return self.predict_dist(X, offset=offset).log_prob(self._codes(y))

    def _codes(self, y: Any) -> Any:
        """y as the family knows it (classifiers: codes of the labels)."""
        names = _frames.names_of(y)
        if names and self.target_names_ and len(names) > 1 and names != self.target_names_:
            raise ValueError(
                f"the columns of y must be those of fit, {', '.join(self.target_names_)}; got {', '.join(names)}. "
                f"Try y[{self.target_names_}]."
            )
        return _frames.values_of(y)

    def _labelled(self, draws: NDArray) -> NDArray:
        """Draws of the family as the user knows them (classifiers: labels)."""
        return draws


class GGPRegressor(RegressorMixin, _GGP):
    """Generalised Gaussian process regression for outputs of any family.

    Parameters
    ----------
    family : str or Family
        What an output is: a name such as "von_mises", "dirichlet", "poisson", or an instance from `ggpm.families`.
    kernel : scikit-learn kernel, list of kernels or None
        One kernel shared by all latent dimensions, or a list with one per dimension. None means a learned
        ``ConstantKernel() * RBF() + ConstantKernel()``.
    inference : "laplace", "taylor", "variational" or an object such as ``Taylor(expansion=...)``
    objective : "evidence" or "loo"
        What the hyperparameters maximise: the log evidence (variational: its lower bound), or the sum of the
        leave-one-out log predictive densities.
    optimizer : "fmin_l_bfgs_b", callable or None
        None keeps the hyperparameters as given.
    n_restarts_optimizer : int
        Further starts of the optimiser, drawn from the bounds.
    inducing : None, int, array (M, features) or Inducing
        None is exact. Otherwise a sparse posterior over so many inducing points, or over these: for more rows than
        exact inference can bear, read in chunks.
    random_state : int, RandomState or None
        For the restarts.
    verbose : int
        1 reports every evaluation of the objective on the standard error stream.
    priors : "auto", None or dict
        Priors on hyperparameters, such as ``{"length_scale": LogNormal(1.0, 1.0)}`` from `ggpm.priors`; "auto" uses
        weak ones where the evidence is known to run away (labels and trials with ``kernel=None``), None nowhere.

    Attributes
    ----------
    kernel_, family_ : the learned kernel(s) and family
    theta_ : log-hyperparameters, the kernels' first, then the family's
    log_marginal_likelihood_value_ : float
    n_iter_ : iterations of the optimiser
    converged_ : bool, optimiser and posterior mode both
    n_features_in_, feature_names_in_ : as in scikit-learn

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 5, 30)[:, None]
    >>> angle = np.angle(np.exp(1j * 1.5 * X[:, 0]))
    >>> model = GGPRegressor("von_mises").fit(X, angle)
    >>> bool(model.score(X, angle) > 0.9)
    True
    """

    def __init__(
        self,
        family: str | Family = "gaussian",
        kernel: Any = None,
        *,
        inference: Any = "laplace",
        objective: str = "evidence",
        optimizer: Any = "fmin_l_bfgs_b",
        n_restarts_optimizer: int = 0,
        inducing: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        priors: Any = "auto",
    ):
        self.family = family
        self.kernel = kernel
        self.inference = inference
        self.objective = objective
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.inducing = inducing
        self.random_state = random_state
        self.verbose = verbose
        self.priors = priors

    def _resolve_family(self, y: Any) -> tuple[Family, Array]:
        values = _frames.values_of(y)
        family = families.get(self.family).resolve(values)
        return family, family.encode(values)

    def predict(self, X: Any, *, offset: Any = None, trials: Any = None) -> Any:
        """Predictive mean in the space of y; a data frame where y was one of several columns."""
        mean = self.predict_dist(X, offset=offset, trials=trials).mean()
        if is_dask(X):
            return mean
        return self._framed(mean, X, self.target_names_, automatic=True)

    def score(self, X: Any, y: Any, *, offset: Any = None) -> float:
        """1 - (loss of the predictions) / (loss of the best constant), with the family's unit loss."""
        prediction = self.predict_dist(X, offset=offset).mean()
        encoded = self.family_.encode(self._codes(y))
        check_consistent_length(prediction, encoded)
        loss = float(np.sum(self.family_.loss(encoded, prediction)))
        constant = np.repeat(self.family_.constant(encoded), len(encoded), axis=0)
        return 1.0 - loss / float(np.sum(self.family_.loss(encoded, constant)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        try:
            support = families.get(self.family).support
        except (TypeError, ValueError):  # a bad parameter is told by fit
            return tags
        tags.target_tags.positive_only = support.low >= 0
        tags.target_tags.multi_output = hasattr(support, "columns")
        tags.target_tags.single_output = not hasattr(support, "columns") or isinstance(support, Real)
        return tags


class _ClassifierBase(ClassifierMixin, _GGP):
    """Labels to codes and back."""

    classes_: NDArray

    def _resolve_family(self, y: Any) -> tuple[Family, Array]:
        given, y = y, _frames.values_of(y)
        if y.ndim > 2 or (y.ndim == 2 and y.shape[1] != 1):
            raise ValueError(f"y must be one label per row; got an array of shape {y.shape}.")
        y = column_or_1d(y, warn=_frames.kind_of(given) is None)
        check_array(y, ensure_2d=False, dtype=None, ensure_min_samples=1, input_name="y")
        check_classification_targets(y)
        self.classes_ = self._order(y, _frames.order_of(given))
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must have at least two classes; got one class only ({self.classes_[0]!r}). Nothing can be learned "
                "from a single class: check how the rows were selected."
            )
        family = self._family_for(len(self.classes_))
        codes = self._codes(y)
        family = family.resolve(codes)
        return family, family.encode(codes)

    def _order(self, y: NDArray, given: list | None) -> NDArray:
        return np.unique(y)

    def _family_for(self, n_classes: int) -> Family:
        raise NotImplementedError

    def _codes(self, y: Any) -> Array:
        y = _frames.values_of(y).reshape(-1)
        lookup = {label: code for code, label in enumerate(self.classes_.tolist())}
        unknown = sorted({str(label) for label in y.tolist() if label not in lookup})
        if unknown:
            raise ValueError(f"y has labels that were not seen in fit: {', '.join(unknown[:5])}.")
        return np.array([lookup[label] for label in y.tolist()], dtype=float)

    def _labelled(self, draws: NDArray) -> NDArray:
        return self.classes_[draws.astype(int)]

    def predict_proba(self, X: Any, *, offset: Any = None) -> Any:
        """Probability of each class, (m, number of classes), columns as in `classes_`."""
        p = self.predict_dist(X, offset=offset).probabilities()
        if is_dask(X):
            return p
        return self._framed(p, X, [str(label) for label in self.classes_])

    def predict(self, X: Any, *, offset: Any = None) -> Any:
        """The most probable label of each row."""
        if is_dask(X):
            return self.predict_dist(X, offset=offset).labels()
        best = np.argmax(self.predict_dist(X, offset=offset).probabilities(), axis=1)
        return self._framed(self.classes_[best], X, self.target_names_)

    def predict_top_k(self, X: Any, k: int = 3, *, offset: Any = None) -> tuple[NDArray, Array]:
        """The k most probable labels of each row, best first, and their probabilities, (m, k) each.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> iris = load_iris()
        >>> model = GGPClassifier(optimizer=None).fit(iris.data[::5], iris.target_names[iris.target[::5]])
        >>> labels, probabilities = model.predict_top_k(iris.data[:1], 2)
        >>> str(labels[0, 0]), bool(probabilities[0, 0] > probabilities[0, 1])
        ('setosa', True)
        """
        codes, probabilities = self.predict_dist(X, offset=offset).top_k(k)
        return self.classes_[codes], probabilities


class GGPClassifier(_ClassifierBase):
    """Classification with a joint softmax over all classes (two classes: one latent, logit).

    Parameters and attributes are those of `GGPRegressor`, without ``family``; `classes_` holds the labels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GGPClassifier().fit(X[::3], y[::3])
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        inference: Any = "laplace",
        objective: str = "evidence",
        optimizer: Any = "fmin_l_bfgs_b",
        n_restarts_optimizer: int = 0,
        inducing: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        priors: Any = "auto",
    ):
        self.kernel = kernel
        self.inference = inference
        self.objective = objective
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.inducing = inducing
        self.random_state = random_state
        self.verbose = verbose
        self.priors = priors

    def _family_for(self, n_classes: int) -> Family:
        return families.Bernoulli() if n_classes == 2 else families.Categorical(n_classes=n_classes)


class GGPOrdinalClassifier(_ClassifierBase):
    """Classification into ordered grades: one latent, probit bins, learned cut points.

    Parameters are those of `GGPClassifier` and

    order : list of labels, lowest first, or None
        None takes the order of an ordered categorical (pandas) or an Enum (polars), and sorts any other labels.
        Labels may be listed that do not occur in y.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 60)[:, None]
    >>> y = np.array(["low", "mid", "high"])[(3 * X[:, 0]).astype(int).clip(0, 2)]
    >>> model = GGPOrdinalClassifier(order=["low", "mid", "high"]).fit(X, y)
    >>> model.predict(X[[0, -1]])
    array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        order: Any = None,
        inference: Any = "laplace",
        objective: str = "evidence",
        optimizer: Any = "fmin_l_bfgs_b",
        n_restarts_optimizer: int = 0,
        inducing: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        priors: Any = "auto",
    ):
        self.kernel = kernel
        self.order = order
        self.inference = inference
        self.objective = objective
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.inducing = inducing
        self.random_state = random_state
        self.verbose = verbose
        self.priors = priors

    def _order(self, y: NDArray, given: list | None) -> NDArray:
        chosen = given if self.order is None else self.order
        if chosen is None:
            return np.unique(y)
        order = np.asarray(chosen)
        if len(set(order.tolist())) != len(order):
            raise ValueError(f"order must list every label once; got {list(chosen)}.")
        missing = sorted(set(map(str, np.unique(y).tolist())) - set(map(str, order.tolist())))
        if missing:
            raise ValueError(f"order must list every label in y; it lacks {', '.join(missing[:5])}.")
        return order

    def _family_for(self, n_classes: int) -> Family:
        return families.Ordinal(n_levels=n_classes)


def log_predictive_density_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Mean log predictive density: pass it as ``scoring`` to scikit-learn's model selection, also for pipelines.

    >>> from sklearn.model_selection import cross_val_score
    >>> import numpy as np
    >>> X = np.arange(20.0)[:, None]
    >>> scores = cross_val_score(GGPRegressor("poisson"), X, np.arange(20), scoring=log_predictive_density_scorer, cv=2)
    >>> scores.shape
    (2,)
    """
    if hasattr(estimator, "steps"):  # a pipeline: its last step is ours, the others prepare X
        X, estimator = (estimator[:-1].transform(X) if len(estimator) > 1 else X), estimator[-1]
    return float(np.mean(estimator.log_predictive_density(X, y)))


def _as_offset(offset: Any, n: int, D: int) -> Array:
    if offset is None:
        return np.zeros((n, D))
    out = np.asarray(offset, dtype=float)
    out = out[:, None] if out.ndim == 1 else out
    if out.shape not in {(n, 1), (n, D)}:
        raise ValueError(f"offset must have shape ({n},) or ({n}, {D}); got {np.shape(offset)}.")
    if not np.all(np.isfinite(out)):
        raise ValueError("offset must be finite; a zero exposure has the logarithm -inf: drop those rows.")
    return np.broadcast_to(out, (n, D)).copy()


def _as_trials(trials: Any, m: int, family: Family) -> Array | None:
    if trials is None:
        return None
    if not family.countable:
        raise ValueError(f"trials applies to counts out of N (binomial, multinomial), not to {type(family).__name__}.")
    out = np.broadcast_to(np.asarray(trials, dtype=float), (m,))
    if np.any(out < 1) or np.any(out != np.round(out)):
        raise ValueError("trials must be positive integers.")
    return out
