"""Regression: outputs of any family."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_consistent_length

from ggpm import families
from ggpm.data import frames
from ggpm.data.checks import as_weight
from ggpm.data.gaps import in_their_rows, rows_with_y
from ggpm.data.kinds import is_dask
from ggpm.estimators.base import GGP
from ggpm.families.base import Family, bound, check_spread
from ggpm.families.censored import Censored
from ggpm.families.partial import Partial, partly_missing, with_rests
from ggpm.families.support import Real
from ggpm.prediction.averages import log_average
from ggpm.prediction.bounds import bounds_of
from ggpm.prediction.predictive import Predictive

__all__ = ["GGPRegressor", "log_predictive_density_scorer"]

Array = NDArray[np.float64]


class GGPRegressor(RegressorMixin, GGP):
    """Generalised Gaussian process regression for outputs of any family.

    Parameters
    ----------
    family : str or Family
        What an output is: a name such as "von_mises", "dirichlet", "poisson", or an instance from `ggpm.families`.
    kernel : scikit-learn kernel, list of kernels or None
        One kernel shared by all latent dimensions, or a list with one per dimension. None means one that is chosen from
        the data, in units of the columns' spreads (docs/defaults.md); `search_` says what was tried. `On`, `Category`,
        `Sphere` and `Cyclic` from `ggpm.kernels` are kernels on columns of a data frame.
    inference : "auto", "laplace", "taylor", "variational" or an object such as ``Taylor(expansion=...)``
        "auto" is exact for Gaussian outputs, variational for others, and Laplace's method where that would take too
        much memory or time (`ggpm.learning.choice`); `inference_` says what it chose.
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
        For the restarts, for the rows on which kernels are compared, and with `inducing` for the sample of rows and
        the inducing points.
    verbose : int
        1 reports every evaluation of the objective on the standard error stream.
    priors : "auto", None or dict
        Priors on hyperparameters, such as ``{"length_scale": LogNormal(1.0, 1.0)}`` from `ggpm.priors`; "auto" uses
        weak ones with ``kernel=None``, on length scales and, where the evidence is known to run away (labels and
        trials), on variances; with given kernels on variances of parameters after the first, and of a direction whose
        length is another parameter. None nowhere.
    neighbours : None, int or Neighbours
        Otherwise the prior of each row is conditioned on so many nearest earlier rows (Vecchia's approximation), and
        the posterior is sparse: for many rows of a rough function of few features. Not together with `inducing`. The
        argument of the same name of `loo` is another thing: rows that answer to the absence of one.
    averaging : "auto", "none", "stack" or "integrate"
        Predictions of one kernel ("none"), of the one that was chosen and of plain ones beside it, weighted by their
        leave-one-out densities (with ``kernel=None``), or over the posterior of the hyperparameters around their mode.
        "auto" stacks with ``kernel=None`` for up to 2000 rows (not with inducing points or neighbours), integrates for
        up to 500 rows of a continuous number as well, and with a kernel that is given does nothing.
    recalibration : "auto", "none" or "loo"
        Whether predictions are corrected by rows that are left out, from 40 rows on: numbers, counts and angles by the
        law that their probability integral transforms have, where it is not uniform; classes and grades by the power
        that their probabilities need. Not with inducing points or neighbours. "auto" does so with ``kernel=None``,
        "loo" with any kernel.
    budget : float or None
        Seconds after which no further kernel is tried.
    n_jobs : int or None
        Kernels that are tried at the same time, as joblib counts them.

    Attributes
    ----------
    kernel_, family_ : the learned kernel(s) and family
    theta_ : log-hyperparameters, the kernels' first, then the family's
    inference_ : str, the name of the method that was used, "exact" for Gaussian outputs
    log_marginal_likelihood_value_ : float
    search_ : SearchTable, the kernels that were tried (with ``kernel=None``)
    n_iter_ : iterations of the optimiser
    curvature_ : str, the sites' precision: "observed", "averaged" (variational), "Fisher", "Fisher in 3 of 50 rows"
    converged_ : bool, optimiser and posterior mode both
    n_features_in_, feature_names_in_ : as in scikit-learn

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 5, 30)[:, None]
    >>> angle = np.random.default_rng(0).vonmises(2.0 * np.sin(X[:, 0]), 10.0)
    >>> model = GGPRegressor("von_mises").fit(X, angle)
    >>> bool(model.score(X, angle) > 0.9)
    True
    """

    def __init__(
        self,
        family: str | Family = "gaussian",
        kernel: Any = None,
        *,
        inference: Any = "auto",
        objective: str = "evidence",
        optimizer: Any = "fmin_l_bfgs_b",
        n_restarts_optimizer: int = 0,
        inducing: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        priors: Any = "auto",
        neighbours: Any = None,
        averaging: str = "auto",
        recalibration: str = "auto",
        budget: float | None = None,
        n_jobs: int | None = None,
    ):
        self.family = family
        super().__init__(
            kernel,
            inference=inference,
            objective=objective,
            optimizer=optimizer,
            n_restarts_optimizer=n_restarts_optimizer,
            inducing=inducing,
            random_state=random_state,
            verbose=verbose,
            priors=priors,
            neighbours=neighbours,
            averaging=averaging,
            recalibration=recalibration,
            budget=budget,
            n_jobs=n_jobs,
        )

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None, trials: Any = None) -> Self:
        """Learn the hyperparameters and the posterior.

        Parameters
        ----------
        X : array or data frame (n, features)
            Numbers, booleans, categories (or text), times and durations; see `ggpm.kernels` for kernels on columns.
        y : outputs of the family's kind, n rows
            Rows in which all of y is missing are left out, with a warning; parts may be missing (NaN) of Gaussian
            outputs, compositions and multinomial counts.
        sample_weight : array (n,), optional
            How many times each row counts: 2 is the row twice, 0 leaves it out. Predictions are for a weight of one.
        offset : array (n,) or (n, D), optional
            Known part of the latent, added to it (for counts: the logarithm of the exposure).
        trials : array (n,) or number, optional
            Totals of multinomial counts of which parts are missing: what is left of them counts as one category.
            Without them such counts are taken given the total of those that are there.

        Returns
        -------
        self

        Examples
        --------
        >>> X = np.arange(4.0)[:, None]
        >>> y = np.array([[1, 2, 3], [2, 2, 2], [4, np.nan, np.nan], [3, 1, 2]])
        >>> GGPRegressor("multinomial", optimizer=None).fit(X, y, trials=6).converged_
        True
        """
        if trials is not None:
            y = with_rests(families.get(self.family), y, trials)
        return super().fit(X, y, sample_weight, offset=offset)

    def log_predictive_density(self, X: Any, y: Any, *, offset: Any = None, trials: Any = None) -> Array:
        """Log predictive density of each row of y, (m,); of rows of which parts are missing, that of the others.

        Rows of bounds, of models that were fitted with `ggpm.families.Censored`, have the logarithm of the probability
        between them. Where all of y is missing it is NaN, with a warning.

        >>> X = np.arange(6.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(6)).log_predictive_density(X, np.arange(6)).shape
        (6,)
        """
        if is_dask(X):
            return super().log_predictive_density(X, y, offset=offset)
        rows, known, offset, trials = rows_with_y(X, y, offset, trials)
        return in_their_rows(self._log_density(rows, known, offset, trials), y)

    def _log_density(self, X: Any, y: Any, offset: Any, trials: Any) -> Array:
        """Log predictive density of rows that all have a y, or a part of one."""
        y = self.codes(y)
        y = y if trials is None else with_rests(self.family_, y, trials)
        if bounds_of(self, y) is not None:
            around: Callable[[Family], Family] = Censored
        elif partly_missing(y).any():
            around = lambda family: Partial.around(family, y)  # noqa: E731
        else:
            return super().log_predictive_density(X, y, offset=offset)
        check_consistent_length(X, y)
        parts = self.predict_dist(X, offset=offset).components
        found = [(w, Predictive(around(p.family), p.latent_mean, p.latent_cov).log_prob(y)) for w, p in parts]
        return log_average(found)

    def resolve_family(self, y: Any, weight: Array | None = None) -> tuple[Family, Array, None]:
        """The family bound to the data, and the encoded y.

        >>> GGPRegressor("poisson").resolve_family([1, 2])[0]
        Poisson()
        """
        values = frames.values_of(y)
        family = families.get(self.family)
        if partly_missing(values).any():
            family = Partial.resolved(family, values, weight)
            family = family.adapted(values, weight) if self.kernel is None else family
        else:
            family = bound(family, values, weight, adapt=self.kernel is None)
            if self.optimizer is not None:
                check_spread(family, values, default=self.kernel is None)
        return family, family.encode(values), None

    def predict(self, X: Any, return_std: bool = False, *, offset: Any = None, trials: Any = None) -> Any:
        """Predictive mean in the space of y; a data frame where y was one of several columns.

        With ``return_std`` also the standard deviation of y, in the same form, as scikit-learn's Gaussian processes
        have it; angles and classes have none. `predict_dist` knows the whole distribution.

        >>> X = np.arange(8.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(8)).predict(X[:3]).shape
        (3,)
        """
        dist = self.predict_dist(X, offset=offset, trials=trials)
        answers = (dist.mean(), dist.std()) if return_std else (dist.mean(),)
        if not is_dask(X):
            answers = tuple(self._framed(answer, X, self.target_names_, automatic=True) for answer in answers)
        return answers if return_std else answers[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """1 - (loss of the predictions) / (loss of the best constant), with the family's unit loss.

        With ``sample_weight`` both losses are weighted sums, and the constant is the best for them. Rows of which only
        bounds are known have no loss, and are left out, as are, with a warning, rows whose y is missing.

        >>> X = np.arange(8.0)[:, None]
        >>> bool(GGPRegressor("poisson").fit(X, np.arange(8)).score(X, np.arange(8)) > 0.5)
        True
        """
        X, y, sample_weight, offset = rows_with_y(X, y, sample_weight, offset)
        prediction, codes = self.predict_dist(X, offset=offset).mean(), self.codes(y)
        check_consistent_length(prediction, codes)
        weight = as_weight(sample_weight, len(codes))
        bounds = bounds_of(self, y)
        if bounds is not None:
            seen = bounds[:, 0] == bounds[:, 1]
            if not seen.any():
                raise ValueError(
                    "score compares predictions with known numbers, and y has bounds in all rows; "
                    "log_predictive_density takes them."
                )
            prediction, codes, weight = prediction[seen], bounds[seen, 0], weight[seen]
        encoded = self.family_.encode(codes)
        weighted = () if sample_weight is None else (weight,)  # families of users may know no weights
        loss = float(weight @ self.family_.loss(encoded, prediction))
        constant = np.repeat(self.family_.constant(encoded, *weighted), len(encoded), axis=0)
        reference = float(weight @ self.family_.loss(encoded, constant))
        if reference == 0.0:  # nothing varies: as scikit-learn's r2_score has it
            return 1.0 if loss == 0.0 else 0.0
        return 1.0 - loss / reference

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


class _LogPredictiveDensity(BaseEstimator):
    """Mean log predictive density: pass it as ``scoring`` to scikit-learn's model selection, also for pipelines.

    With metadata routing it takes ``offset``, ``sample_weight`` and ``trials``:
    ``log_predictive_density_scorer.set_score_request(offset=True)`` is a scorer that asks for the offset.

    >>> from sklearn.model_selection import cross_val_score
    >>> import numpy as np
    >>> X = np.arange(20.0)[:, None]
    >>> scores = cross_val_score(GGPRegressor("poisson"), X, np.arange(20), scoring=log_predictive_density_scorer, cv=2)
    >>> scores.shape
    (2,)
    """

    # no default requests: for a class that has some, scikit-learn before 1.8 puts its own set_score_request in place

    def __call__(
        self, estimator: Any, X: Any, y: Any, *, offset: Any = None, sample_weight: Any = None, trials: Any = None
    ) -> float:
        if hasattr(estimator, "steps"):  # a pipeline: its last step is ours, the others prepare X
            X, estimator = (estimator[:-1].transform(X) if len(estimator) > 1 else X), estimator[-1]
        X, y, offset, sample_weight, trials = rows_with_y(X, y, offset, sample_weight, trials)
        given = {} if trials is None else {"trials": trials}
        density = estimator.log_predictive_density(X, y, offset=offset, **given)
        return float(np.average(density, weights=as_weight(sample_weight, len(density))))

    def set_score_request(self, **requests: Any) -> Self:
        """A scorer like this one that asks for these metadata; this one stays as it is, as others use it too."""
        other = copy.deepcopy(self)
        other._metadata_request = copy.deepcopy(other._get_metadata_request())
        for name, alias in requests.items():
            other._metadata_request.score.add_request(param=name, alias=alias)
        return other

    def __repr__(self) -> str:
        return "log_predictive_density_scorer"


log_predictive_density_scorer = _LogPredictiveDensity()
