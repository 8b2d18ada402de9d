"""What the estimators share: settings, learning, the latent posterior, predictive distributions."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ggpm.data import frames
from ggpm.data.checks import as_numbers, as_offset, check_squares, check_whole, refuse_masked
from ggpm.data.kinds import is_dask, is_streamed
from ggpm.data.text import did_you_mean
from ggpm.estimators.output import FramedOutput
from ggpm.families.base import Family
from ggpm.fields.dense.posterior import Posterior, SolveLater
from ggpm.kernels import median_distance, resolve_kernel, shorter_starts
from ggpm.learning import priors
from ggpm.learning.loo import LeaveOneOut, leave_one_out
from ggpm.learning.objective import Evidence, WarmObjective, search, subset_start
from ggpm.learning.search import Optimum, warn_unconverged
from ggpm.prediction.predictive import Predictive
from ggpm.sites import INFERENCES, Approximation

Array = NDArray[np.float64]


class GGP(FramedOutput, BaseEstimator):
    """What the three estimators share: learning, the latent posterior, predictive distributions."""

    _listener: Callable[[str, int, int, float], None] | None = None  # of the search; set by progress bars

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
        work = copy.copy(self)
        work._fit(X, y, offset)
        if self.optimizer is not None:
            work._warn_of_bounds()
        self.__dict__.clear()  # names of an earlier fit must not outlive it
        self.__dict__.update(vars(work))
        return self

    def _fit(self, X: Any, y: Any, offset: Any) -> None:
        check_whole(self.n_restarts_optimizer, "n_restarts_optimizer", 0)
        refuse_masked(X, "X")
        self.target_names_, self._target_kind = frames.names_of(y), frames.kind_of(y)
        if self.inducing is not None or is_streamed(X):
            if self.objective != "evidence":
                raise ValueError(f"with inducing points objective must be 'evidence'; got {self.objective!r}.")
            from ggpm.fields.inducing.fitting import fit_sparse

            return fit_sparse(self, X, y, offset)
        X = validate_data(self, X, dtype=np.float64, order="C", ensure_min_samples=1)
        check_squares(X)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        family, y = self._resolve_family(y)
        check_consistent_length(X, y)
        inference = self._resolve_inference()
        D = family.latent_dim
        kernels = resolve_kernel(self.kernel, D, X)
        names, length = priors.names_of(kernels, family), median_distance(X) if self.kernel is None else 1.0
        prior = priors.resolve(self.priors, names, self.kernel is None, family, length)
        evidence = Evidence(family, kernels, X, y, as_offset(offset, len(X), D), inference, self.objective, prior)
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
        seed = check_random_state(self.random_state).randint(2**31 - 1) if self.n_restarts_optimizer else 0
        others = shorter_starts(evidence.theta) if self.kernel is None else []
        start, inverse_hessian = (evidence.theta, None) if callable(self.optimizer) else subset_start(evidence, others)
        objective = WarmObjective(evidence, None, inverse_hessian)
        optimum = search(
            objective,
            start,
            optimizer=self.optimizer,
            n_restarts=self.n_restarts_optimizer,
            rng=np.random.default_rng(seed),
            ftol=evidence.ftol,
            report=self._report("leave-one-out" if self.objective == "loo" else "log evidence"),
        )
        return optimum, objective.start

    def _warn_of_bounds(self) -> None:
        """Name hyperparameters that ended at a bound, unless that is how a part shows that it is not needed.

        Variances and a family's phi go to the lower ends of their default bounds (or lower ones) in many ordinary
        fits: there is no intercept, no overdispersion, no noise to speak of. One of several length scales goes to the
        upper end when its feature does not matter.
        """
        evidence = self._evidence
        own = signature(type(evidence.family)).parameters.get("phi_bounds")
        default_phi = own is not None and np.array_equal(own.default, evidence.family.phi_bounds)
        told = []
        names = priors.names_of(evidence.kernels, evidence.family)
        for name, value, (low, high) in zip(names, evidence.theta, evidence.bounds):
            useless = name.endswith("length_scale") and names.count(name) > 1 and np.exp(high) > 0.99e5
            variance = name.endswith(("constant_value", "noise_level", "phi")) and np.exp(low) < 1.01e-5
            unneeded = variance or (name == "phi" and default_phi)
            upper, lower = np.isclose(value, high) and not useless, np.isclose(value, low) and not unneeded
            if low < high and (upper or lower):
                side, bound = ("upper", high) if upper else ("lower", low)
                # a family's entries may be of Cholesky factors or cut points: what the user gave is what to name
                where = f"(phi_bounds={evidence.family.phi_bounds})" if name == "phi" else f"{np.exp(bound):.6g}"
                told.append(f"{name} at its {side} bound {where}")
        if told:
            warn_unconverged(
                f"the search ended with {', '.join(told)}: the optimum may lie beyond. Widen the bounds, or hold the "
                "value fixed if it is meant."
            )

    def _report(self, what: str) -> Callable[[int, int, float], None] | None:
        """What the search calls after every evaluation with (run, evaluation, value)."""
        if self._listener is not None:
            return partial(self._listener, what)
        return partial(_print_progress, what) if self.verbose else None

    def _resolve_family(self, y: Any) -> tuple[Family, Array]:
        """The family bound to the data, and the encoded y."""
        raise NotImplementedError

    def _resolve_inference(self):
        if self.objective not in ("evidence", "loo"):
            raise ValueError(f"objective must be 'evidence' or 'loo'; got {self.objective!r}.")
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
        if not hasattr(self.inference, "infer"):
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
        at = self._evidence if theta is None else self._evidence.at(as_numbers(theta, "theta", "log-hyperparameters"))
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
        if not isinstance(getattr(self, "_evidence", None), Evidence):
            raise ValueError("leave-one-out needs the exact posterior of all training rows: fit with inducing=None.")
        approximation = getattr(self, "_approximation", None) or self._evidence.evaluate(gradient=False)[2]
        return leave_one_out(approximation, self._evidence.inference, neighbours)

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
        return mean + as_offset(offset, len(X), mean.shape[1]), cov

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
        return self.predict_dist(X, offset=offset).log_prob(self._codes(y))

    def _codes(self, y: Any) -> Any:
        """y as the family knows it (classifiers: codes of the labels)."""
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
