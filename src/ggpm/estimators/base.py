"""The estimator that all three are: settings, learning, the latent posterior, predictive distributions."""

from __future__ import annotations

import copy
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ggpm.data import frames
from ggpm.data.checks import as_numbers, as_offset, check_squares, check_whole, refuse_masked
from ggpm.data.door import Target
from ggpm.data.kinds import is_dask, is_streamed
from ggpm.data.text import Hint, Message, did_you_mean
from ggpm.estimators.intake import columns_of, prepared, source_of, target_of
from ggpm.estimators.output import FramedOutput
from ggpm.families.base import Family
from ggpm.fields.base import Field
from ggpm.fields.dense import DenseField
from ggpm.fields.inducing.field import InducingField
from ggpm.fields.inducing.points import Inducing
from ggpm.fields.inducing.posterior import InducingPosterior
from ggpm.kernels import median_distance, resolve_kernel, shorter_starts
from ggpm.learning import priors
from ggpm.learning.fit import Fit, Search, SearchOutcome, learn, learn_in_samples
from ggpm.learning.objective import Evidence
from ggpm.prediction.loo import LeaveOneOut, leave_one_out
from ggpm.prediction.predictive import Predictive
from ggpm.sites import INFERENCES, Rule

Array = NDArray[np.float64]


class GGP(FramedOutput, BaseEstimator):
    """Base of the three estimators: learning, the latent posterior, predictive distributions."""

    listener: Callable[[str, int, int, float], None] | None = None
    """Called during the search with (what, run, evaluation, value); set by progress bars."""

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

        Examples
        --------
        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(8)).converged_
        True
        """
        # all work happens on a copy, so that a failed fit leaves this estimator as it was
        fit = copy.copy(self)._fit(X, y, offset)
        self._adopt(fit)
        for note in (*fit.notes, *([] if self.optimizer is None else self._notes_on_bounds())):
            warnings.warn(note, ConvergenceWarning, stacklevel=2)
        return self

    def _adopt(self, fit: Fit) -> None:
        """Set the public attributes from a fit, and nothing of an earlier one: the only place that does."""
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__.clear()
        self.__dict__.update(kept)
        self.fit_ = fit
        self.family_ = fit.family
        several = isinstance(self.kernel, list | tuple) or len(fit.kernels) > 1
        self.kernel_ = fit.kernels if several else fit.kernels[0]
        self.theta_ = fit.theta.copy()  # the fit's own is not for others to change
        self.posterior_ = fit.posterior
        self.log_marginal_likelihood_value_ = fit.log_evidence
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        self.target_names_ = fit.target.names
        self.n_features_in_ = fit.columns.count
        if fit.columns.names is not None:
            self.feature_names_in_ = np.array(fit.columns.names, dtype=object)
        if fit.target.classes is not None:
            self.classes_ = fit.target.classes
        if isinstance(fit.posterior, InducingPosterior):
            self.inducing_inputs_ = fit.posterior.Z

    @classmethod
    def from_fit(cls, params: Mapping[str, Any], fit: Fit) -> Self:
        """An estimator with these parameters that is fitted already: what `ggpm.load` makes.

        >>> from ggpm import GGPRegressor
        >>> model = GGPRegressor("poisson").fit(np.arange(8.0)[:, None], np.arange(8))
        >>> GGPRegressor.from_fit(model.get_params(), model.fit_).converged_
        True
        """
        model = cls(**params)
        model._adopt(fit)
        return model

    def _fit(self, X: Any, y: Any, offset: Any) -> Fit:
        check_whole(self.n_restarts_optimizer, "n_restarts_optimizer", 0)
        refuse_masked(X, "X")
        if self.objective not in ("evidence", "loo"):
            raise ValueError(f"objective must be 'evidence' or 'loo'; got {self.objective!r}.")
        if not (self.optimizer is None or callable(self.optimizer) or self.optimizer == "fmin_l_bfgs_b"):
            raise ValueError(f"optimizer must be 'fmin_l_bfgs_b', a callable or None; got {self.optimizer!r}.")
        if self.inducing is not None or is_streamed(X):
            if self.objective != "evidence":
                raise ValueError(f"with inducing points objective must be 'evidence'; got {self.objective!r}.")
            return self._fit_inducing(X, y, offset)
        return self._fit_dense(X, y, offset)

    def _fit_dense(self, X: Any, y: Any, offset: Any) -> Fit:
        X = validate_data(self, X, dtype=np.float64, order="C", ensure_min_samples=1)
        check_squares(X)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        family, encoded, classes = self.resolve_family(y)
        check_consistent_length(X, encoded)
        field = DenseField(X, encoded, as_offset(offset, len(X), family.latent_dim) + family.origin)
        evidence = self._evidence(family, X, field)
        learned = SearchOutcome(evidence)
        if self.optimizer is not None and evidence.theta.size:
            seed = check_random_state(self.random_state).randint(2**31 - 1) if self.n_restarts_optimizer else 0
            others = shorter_starts(evidence.theta) if self.kernel is None else []
            learned = learn(evidence, self._search(np.random.default_rng(seed)), others)
        fit = learned.fit(columns_of(self), target_of(y, classes))
        field.forget()
        if fit.found is not None:
            fit.found.process.forget()
        return fit

    def _fit_inducing(self, X: Any, y: Any, offset: Any) -> Fit:
        if self.inducing is None:
            raise ValueError(
                Message(
                    f"X is a {type(X).__name__}, whose rows are read in chunks: exact inference needs all of them "
                    "at once. ",
                    Hint("Pass inducing=M", "inducing", ...),
                    ", the number of inducing points (for example 256).",
                )
            )
        settings = self.inducing if isinstance(self.inducing, Inducing) else Inducing(self.inducing)
        raw, columns, names = source_of(self, X, y, offset, settings.chunk_rows)
        Z = settings.given(raw.n_features)
        if Z is None and int(settings.points) > raw.n_rows:  # type: ignore[arg-type]
            raise ValueError(
                Message(
                    Hint("inducing", "inducing"),
                    f" must be at most the number of rows; got {settings.points!r} for {raw.n_rows} row(s).",
                )
            )
        state = check_random_state(0 if self.random_state is None else self.random_state)
        rng = np.random.default_rng(state.randint(2**31 - 1))
        sample = settings.sample(raw.n_rows, rng)
        family, classes, rows, picked = prepared(self, raw, y, sample, hasattr(self, "predict_proba"))
        kernels = resolve_kernel(self.kernel, family.latent_dim, picked.X, family.latent_variance)
        if Z is None:
            Z = settings.choose(picked.X, kernels, int(rng.integers(2**31 - 1)))
        evidence = self._evidence(family, picked.X, InducingField(rows, Z, settings.jitter))
        learned = SearchOutcome(evidence)
        if self.optimizer is not None:
            learned = learn_in_samples(evidence, settings, sample, self._search(rng))
        return learned.fit(columns, Target(names, frames.kind_of(y), classes))

    def _evidence(self, family: Family, X: Array, field: Field) -> Evidence:
        """The evidence to maximise; X are the rows that the kernel's scale is taken from."""
        kernels = resolve_kernel(self.kernel, family.latent_dim, X, family.latent_variance)
        names, length = priors.names_of(kernels, family), median_distance(X) if self.kernel is None else 1.0
        prior = priors.resolve(self.priors, names, self.kernel is None, family, length)
        return Evidence(family, kernels, field, self._resolve_inference(), self.objective, prior)

    def _search(self, rng: np.random.Generator) -> Search:
        return Search(self.optimizer, self.n_restarts_optimizer, rng, self._report)

    def _notes_on_bounds(self) -> list[str]:
        """Name hyperparameters that ended at a bound, unless that is how a part shows that it is not needed.

        Variances and a family's phi go to the lower ends of their default bounds (or lower ones) in many ordinary
        fits: there is no intercept, no overdispersion, no noise to speak of. One of several length scales goes to the
        upper end when its feature does not matter.
        """
        evidence = self.fit_.evidence
        own = signature(type(evidence.family)).parameters.get("phi_bounds")
        default_phi = own is not None and np.array_equal(own.default, evidence.family.phi_bounds)
        default_phi |= evidence.family.default_bounds
        told = []
        names = priors.names_of(evidence.kernels, evidence.family)
        for name, value, (low, high) in zip(names, evidence.theta, evidence.bounds):
            useless = name.endswith("length_scale") and names.count(name) > 1 and np.exp(high) > 0.99e5
            variance = name.endswith(("constant_value", "noise_level", "phi")) and np.exp(low) < 1.01e-5
            variance |= self.kernel is None and name.endswith("constant_value")
            unneeded = variance or (name == "phi" and default_phi)
            upper, lower = np.isclose(value, high) and not useless, np.isclose(value, low) and not unneeded
            if low < high and (upper or lower):
                side, bound = ("upper", high) if upper else ("lower", low)
                # a family's entries may be of Cholesky factors or cut points: what the user gave is what to name
                where = f"(phi_bounds={evidence.family.phi_bounds})" if name == "phi" else f"{np.exp(bound):.6g}"
                told.append(f"{name} at its {side} bound {where}")
        if not told:
            return []
        return [
            f"the search ended with {', '.join(told)}: the optimum may lie beyond. Widen the bounds, or hold the value "
            "fixed if it is meant."
        ]

    def _report(self, what: str) -> Callable[[int, int, float], None] | None:
        """Function that the search calls after every evaluation with (run, evaluation, value), or None."""
        if self.listener is not None:
            return partial(self.listener, what)
        return partial(_print_progress, what) if self.verbose else None

    @abstractmethod
    def resolve_family(self, y: Any) -> tuple[Family, Array, NDArray | None]:
        """The family bound to the data, the encoded y, and the labels (classifiers)."""

    def _resolve_inference(self) -> Rule:
        if isinstance(self.inference, str):
            if self.inference not in INFERENCES:
                known = ", ".join(repr(name) for name in INFERENCES)
                raise ValueError(
                    f"inference must be one of {known} or an object; got {self.inference!r}."
                    f"{did_you_mean(self.inference, INFERENCES)}"
                )
            return INFERENCES[self.inference]()
        if isinstance(self.inference, type):
            raise TypeError(f"inference must be an object, not its class. Try {self.inference.__name__}().")
        if not isinstance(self.inference, Rule):
            raise TypeError(f"inference must be a name or an object with settings; got {self.inference!r}.")
        return self.inference

    # ---- evidence ------------------------------------------------------------------------------------------------
    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False):
        """Log evidence at ``theta`` (default: the learned one), and its gradient if asked for.

        A pure function of theta: it starts from the same point whatever was evaluated before.

        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> model = GGPRegressor("poisson").fit(X, np.arange(8))
        >>> model.log_marginal_likelihood() == model.log_marginal_likelihood_value_
        True
        """
        check_is_fitted(self)
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        at = self.fit_.evidence
        if theta is not None:
            at = at.at(as_numbers(theta, "theta", "log-hyperparameters"))
        value, gradient, _ = at.evaluate(gradient=eval_gradient)
        return (value, gradient) if eval_gradient else value

    def loo(self, *, neighbours: int | None = None) -> LeaveOneOut:
        """Leave-one-out log predictive densities of the training rows, from the fitted sites, without refitting.

        Parameters
        ----------
        neighbours : int or None
            How many other rows, those with the largest posterior covariance with the row that is left out, get new
            sites in answer to its absence; all others keep theirs. None: 8, but 0 for D > 1 latent dimensions and
            nD > 400; with factorised variational sites 8, 16, 32 or 64, until a row's density settles, but 0 for
            nD > 4000, where the result is about a hundredth of a nat per row from refits (see docs/inference.md).
            With 0 all keep theirs, as in ``objective="loo"``; Taylor's sites never change.

        Returns
        -------
        LeaveOneOut
            With ``pointwise`` (n,), ``total``, ``mean``, the ``standard_error`` of the total, and ``responded`` (n,),
            the rows that others answered to.

        Examples
        --------
        >>> from ggpm import GGPRegressor
        >>> X = np.linspace(0, 1, 12)[:, None]
        >>> model = GGPRegressor("poisson", optimizer=None).fit(X, np.arange(12))
        >>> model.loo().pointwise.shape
        (12,)
        >>> round(abs(model.loo(neighbours=11).mean - model.loo().mean), 3), model.loo(neighbours=0).responded.any()
        (0.0, np.False_)
        """
        check_is_fitted(self)
        if neighbours is not None:
            check_whole(neighbours, "neighbours", 0)
        if not isinstance(self.fit_.evidence.field, DenseField):
            raise ValueError("leave-one-out needs the exact posterior of all training rows: fit with inducing=None.")
        return leave_one_out(self.fit_.approximate(), neighbours)

    # ---- prediction ----------------------------------------------------------------------------------------------
    def predict_latent(self, X: Any, *, offset: Any = None) -> tuple[Array, Array]:
        """Mean (m, D) and covariance (m, D, D) of the latent at the rows of X.

        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> mean, cov = GGPRegressor("von_mises", optimizer=None).fit(X, X[:, 0] / 2).predict_latent(X[:3])
        >>> mean.shape, cov.shape
        ((3, 2), (3, 2, 2))
        """
        check_is_fitted(self)
        if is_dask(X):
            return self.predict_dist(X, offset=offset).latent()
        refuse_masked(X, "X")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mean, cov = self.posterior_.latent(X)
        return mean + as_offset(offset, len(X), mean.shape[1]) + self.family_.origin, cov

    def predict_dist(self, X: Any, *, offset: Any = None, trials: Any = None) -> Any:
        """The predictive distribution (`Predictive`) at the rows of X; ``trials`` for counts out of N.

        For a Dask collection its methods give Dask arrays, and nothing is computed before they are.

        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(8)).predict_dist(X[:3])
        Predictive(Poisson(), 3 rows)
        """
        if is_dask(X):
            check_is_fitted(self)
            from ggpm.prediction.lazy import LazyPredictive

            return LazyPredictive(self, X, offset, trials)
        mean, cov = self.predict_latent(X, offset=offset)
        trials = _as_trials(trials, len(mean), self.family_)
        return Predictive(self.family_, mean, cov, trials, getattr(self, "classes_", None))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, *, offset: Any = None, trials: Any = None):
        """Draws of y, independent between rows, with the draws on the last axis as in scikit-learn.

        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(8)).sample_y(X[:3], 5).shape
        (3, 5)
        """
        draws = self.predict_dist(X, offset=offset, trials=trials).sample(n_samples, random_state)
        return self._labelled(np.moveaxis(draws, 1 if is_dask(X) else 0, -1))

    def log_predictive_density(self, X: Any, y: Any, *, offset: Any = None) -> Array:
        """Log predictive density of each row of y, (m,).

        >>> from ggpm import GGPRegressor
        >>> X = np.arange(6.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(6)).log_predictive_density(X, np.arange(6)).shape
        (6,)
        """
        if is_dask(X):
            return self.predict_dist(X, offset=offset).log_prob(y)
        return self.predict_dist(X, offset=offset).log_prob(self.codes(y))

    def codes(self, y: Any) -> Any:
        """y as the family knows it (classifiers: codes of the labels).

        >>> from ggpm import GGPClassifier
        >>> GGPClassifier(optimizer=None).fit(np.arange(4.0)[:, None], list("abab")).codes(["b", "a"])
        array([1., 0.])
        """
        names = frames.names_of(y)
        if names and self.target_names_ and len(names) > 1 and names != self.target_names_:
            raise ValueError(
                f"the columns of y must be those of fit, {', '.join(self.target_names_)}; got {', '.join(names)}. "
                f"Try y[{self.target_names_}]."
            )
        return frames.values_of(y)

    def _labelled(self, draws: Any) -> Any:
        """Draws of the family as the user knows them (classifiers: labels)."""
        return draws


def _print_progress(what: str, run: int, calls: int, value: float) -> None:
    print(f"[ggpm] run {run}, evaluation {calls}: {what} {value:.6f}", file=sys.stderr)


def _as_trials(trials: Any, m: int, family: Family) -> Array | None:
    if trials is None:
        return None
    if not family.countable:
        raise ValueError(f"trials applies to counts out of N (binomial, multinomial), not to {type(family).__name__}.")
    out = as_numbers(trials, "trials", "positive integers")
    if out.shape not in {(), (1,), (m,)}:
        raise ValueError(f"trials must be one number, or one for each of the {m} rows; got shape {out.shape}.")
    bad = ~(np.isfinite(out) & (out >= 1) & (out == np.round(out)))
    if bad.any():
        raise ValueError(f"trials must be positive integers; got {out[bad][0]:g}.")
    return np.broadcast_to(out, (m,))
