"""What a fitted estimator says of new rows: the latent, predictive distributions, terms, joint draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ggpm.data import frames
from ggpm.data.checks import as_numbers, as_offset, check_whole
from ggpm.data.gaps import in_their_rows, rows_with_y
from ggpm.data.kinds import is_dask
from ggpm.data.text import Hint, Message
from ggpm.estimators.intake import inputs_of
from ggpm.estimators.output import FramedOutput
from ggpm.families.base import Family
from ggpm.kernels.threads import threads_for
from ggpm.prediction.averages import mixed_moments, of_one_latent, picked
from ggpm.prediction.mixture import averaged
from ggpm.prediction.predictive import Predictive
from ggpm.prediction.recalibrated import Recalibrated
from ggpm.prediction.sharpened import corrected

if TYPE_CHECKING:
    from ggpm.learning.fit import Fit

Array = NDArray[np.float64]


RANKED = 200  # joint draws at least whose order recalibrated ones are given


class Predicting(FramedOutput):
    """Methods of a fitted estimator that ask its posterior for new rows."""

    fit_: Fit
    family_: Family
    posterior_: Any

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
        self._require_offset(offset)
        weights, _, means, covs = zip(*self._latents(inputs_of(self, X, self.fit_.columns)[0], offset))
        return (means[0], covs[0]) if len(means) == 1 else mixed_moments(np.stack(weights), means, covs)

    def _latents(self, X: Array, offset: Any) -> list[tuple[Array, Fit, Array, Array]]:
        """Every fit that is averaged at encoded rows, with its weights (m,), and the latent's mean and covariance."""
        offset = self._offset(X, offset)
        out = []
        for weight, fit in self._heard(X, offset):
            with threads_for(len(fit.posterior.inputs)):
                mean, cov = fit.posterior.latent(X)
            out.append((weight, fit, mean + self._shift(fit, offset), cov))
        return out

    def _offset(self, X: Array, offset: Any) -> Array:
        """Offset of encoded rows, (m, D)."""
        offset = np.full(len(X), offset) if offset is not None and np.ndim(offset) == 0 else offset
        return as_offset(offset, len(X), self.family_.latent_dim)

    def _shift(self, fit: Fit, offset: Array) -> Array | float:
        """What is added to the latent of one of the fits; those of another family have neither offset nor origin."""
        return offset + self.family_.origin if fit.family.latent_dim == self.family_.latent_dim else 0.0

    def _heard(self, X: Array, offset: Array) -> list[tuple[Array, Fit]]:
        """Fits that are averaged at encoded rows, with their weights: those of another family know of no offset."""
        fits = self.fit_.averaged(X)
        if not offset.any():
            return fits
        alike, weights = of_one_latent(np.stack([w for w, _ in fits]), [fit.family.latent_dim for _, fit in fits])
        return [(weight, fits[k][1]) for k, weight in zip(alike, weights)]

    def _require_offset(self, offset: Any) -> None:
        """Without the offset that a model was fitted with, its predictions are for an exposure that nobody meant."""
        if offset is None and self.fit_.offset is not None:
            name = "" if self.fit_.offset == "offset" else f" ({self.fit_.offset})"
            raise ValueError(
                Message(
                    f"the model was fitted with an offset{name}, and none is given here: pass it, ",
                    Hint("offset=0 for none (an exposure of one)", "offset", 0),
                    Hint("; in cross-validation by metadata routing, model.set_fit_request(offset=True)"),
                    Hint(".set_score_request(offset=True)"),
                    ".",
                )
            )

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
            self._require_offset(offset)
            from ggpm.prediction.lazy import LazyPredictive

            return LazyPredictive(self, X, offset, trials)
        check_is_fitted(self)
        self._require_offset(offset)
        encoded, _ = inputs_of(self, X, self.fit_.columns)
        found = self._latents(encoded, offset)
        trials = _as_trials(trials, len(found[0][0]), self.family_)
        labels = getattr(self, "classes_", None)
        parts = [Predictive(fit.family, mean, cov, trials, labels) for _, fit, mean, cov in found]
        whole = averaged(parts, np.stack([weight for weight, *_ in found]))
        laws = self.fit_.laws_where(self.fit_.new_labels(encoded), len(encoded))
        return whole if laws is None else corrected(whole, *laws)

    def terms(self, X: Any) -> dict[str, tuple[Array, Array]]:
        """Mean and standard deviation, (m, D) each, of every summand of the kernel, by a name of its own.

        The means add up to that of the latent, without the offset and the family's origin; with ``neighbours`` not
        quite, as terms take all training rows and predictions the nearest.

        >>> from ggpm import GGPRegressor
        >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
        >>> X = np.arange(8.0)[:, None]
        >>> model = GGPRegressor("poisson", RBF() + WhiteKernel(), optimizer=None).fit(X, np.arange(8))
        >>> list(model.terms(X))
        ['RBF', 'noise']
        """
        from ggpm.prediction.terms import mixed_terms, terms

        check_is_fitted(self)
        encoded = inputs_of(self, X, self.fit_.columns)[0]
        weights, fits = zip(*self.fit_.averaged(encoded))
        alike, shares = of_one_latent(np.stack(weights), [fit.family.latent_dim for fit in fits])
        return mixed_terms(shares, [terms(fits[k].posterior, encoded) for k in alike])

    def predict_effect(self, term: str, X: Array, at: Array) -> Predictive:
        """Predictive distribution where one term of the kernel is at encoded rows, and all others at one row.

        An offset is none; `ggpm.plotting.plot_effects` draws it.

        >>> from ggpm import GGPRegressor
        >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
        >>> X = np.arange(8.0)[:, None]
        >>> model = GGPRegressor("poisson", RBF() + ConstantKernel(), optimizer=None).fit(X, np.arange(8))
        >>> model.predict_effect("RBF", X[:3], X[0]).mean().shape
        (3,)
        """
        from ggpm.prediction.terms import varied

        check_is_fitted(self)
        rows = np.hstack([X, np.broadcast_to(at, X.shape)])
        mean, cov = varied(self.posterior_, term).latent(rows)
        return Predictive(self.family_, mean + self.family_.origin, cov, None, getattr(self, "classes_", None))

    def term_shares(self, X: Any) -> Any:
        """Share of each term in the variance of the latent's mean over the rows, a pandas frame (terms, latents).

        Shares are of the sum of the terms' own variances: terms that lean against each other both count. Of an average
        they are those of its heaviest fit.

        >>> from ggpm import GGPRegressor
        >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
        >>> X = np.arange(8.0)[:, None]
        >>> model = GGPRegressor("poisson", RBF() + ConstantKernel(), optimizer=None).fit(X, np.arange(8))
        >>> model.term_shares(X)[0].to_dict()
        {'RBF': 1.0, 'constant': 0.0}
        """
        from ggpm.prediction.terms import term_shares

        check_is_fitted(self)
        encoded, _ = inputs_of(self, X, self.fit_.columns)
        return frames.require("pandas").DataFrame(term_shares(self.posterior_, encoded)).T

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, joint: bool = True, offset: Any = None,
        trials: Any = None,
    ) -> Any:  # fmt: skip
        """Draws of y with the draws on the last axis, as in scikit-learn: joint over the rows, so that sums are right.

        With ``joint=False`` rows are independent of each other, which is faster; draws for Dask collections always are.
        Joint draws are exact: from the joint covariance up to 1000 latents, beyond by pathwise conditioning on draws of
        the prior, whose matrix is made whole up to 4000 rows and by its leading columns beyond (to 1e-10 of the prior
        variance; rough kernels, which have too many, are refused). With neighbours each row is drawn given its nearest.

        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(8)).sample_y(X[:3], 5).shape
        (3, 5)
        """
        predictive = self.predict_dist(X, offset=offset, trials=trials)
        if not joint or is_dask(X):
            draws = predictive.sample(n_samples, random_state)
        else:
            from ggpm.prediction.terms import joint_draws

            check_whole(n_samples, "n_samples", 0)
            asked = n_samples
            n_samples = max(asked, RANKED) if isinstance(predictive, Recalibrated) else asked
            rng = np.random.default_rng(random_state)
            encoded, _ = inputs_of(self, X, self.fit_.columns)
            offset = self._offset(encoded, offset)
            weights, fits = zip(*self._heard(encoded, offset))
            # rows of one draw are of one fit, but for those with labels that are new, which may be of another
            uniform = np.broadcast_to(rng.uniform(size=(n_samples, 1)), (n_samples, len(encoded)))
            which, parts = picked(np.stack(weights), uniform), []
            for k, fit in enumerate(fits):
                its = np.flatnonzero((which == k).any(axis=1))
                latent = joint_draws(fit.posterior, encoded, len(its), rng)
                parts.append((its, fit.family.sample(latent + self._shift(fit, offset), rng, predictive.trials)))
            draws = np.empty((n_samples, *parts[0][1].shape[1:]), dtype=parts[0][1].dtype)
            for k, (its, drawn) in enumerate(parts):
                draw, row = np.nonzero(which[its] == k)
                draws[its[draw], row] = drawn[draw, row]
            if predictive.recalibrated:
                draws = predictive.in_the_order_of(draws, rng)[:asked]
        return self._labelled(np.moveaxis(draws, 1 if is_dask(X) else 0, -1))

    def log_predictive_density(self, X: Any, y: Any, *, offset: Any = None) -> Array:
        """Log predictive density of each row of y, (m,); NaN, with a warning, where y is missing.

        >>> from ggpm import GGPRegressor
        >>> X = np.arange(6.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(6)).log_predictive_density(X, np.arange(6)).shape
        (6,)
        """
        if is_dask(X):
            return self.predict_dist(X, offset=offset).log_prob(y)
        rows, known, offset = rows_with_y(X, y, offset)
        return in_their_rows(self.predict_dist(rows, offset=offset).log_prob(self.codes(known)), y)

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
