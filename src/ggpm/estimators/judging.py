"""What a fitted estimator says of itself: its evidence, how well it predicts rows it has not seen, whether its Gaussian
posterior is good enough, and its draws for ArviZ."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ggpm.data.checks import as_numbers, check_whole
from ggpm.estimators.predicting import Predicting
from ggpm.fields.dense import DenseField
from ggpm.kernels.threads import threads_for
from ggpm.learning.fit import NO_MODE
from ggpm.learning.information import seen
from ggpm.prediction.loo import LeaveOneOut, group_folds, leave_groups_out, leave_one_out, mixed_loo, recalibrated_loo

if TYPE_CHECKING:
    from ggpm.prediction.diagnosis import Diagnosis

Array = NDArray[np.float64]


class Judging(Predicting):
    """Methods of a fitted estimator about its own fit."""

    objective: str
    optimizer: Any
    log_marginal_likelihood_value_: float

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
        value, gradient, found = at.evaluate(gradient=eval_gradient)
        if not found.converged:
            warnings.warn(NO_MODE, ConvergenceWarning, stacklevel=2)
        return (value, gradient) if eval_gradient else value

    def loo(
        self, *, neighbours: int | None = None, groups: Any = None, folds: int = 10, hyperparameters: str = "held"
    ) -> LeaveOneOut:  # fmt: skip
        """Leave-one-out log predictive densities of the training rows, from the fitted sites, without refitting.

        `ggpm.compare` makes a table of several models.

        Parameters
        ----------
        neighbours : int or None
            How many other rows, those with the largest posterior covariance with the row that is left out, get new
            sites in answer to its absence; all others keep theirs. None: 8, 16, 32 or 64, until a row's density
            settles; but 0 for D > 1 latent dimensions and nD > 400 (factorised variational sites: 4000), where the
            result is about a hundredth of a nat per row from refits (see docs/inference.md).
            With 0 all keep theirs, as in ``objective="loo"``, with inducing points and with neighbours; Taylor's sites
            never change.
        groups : array (n,), optional
            Labels of rows that hang together: then whole groups are left out, in ``folds`` folds, each with a new
            posterior from the others. Standard errors are those over the choice of groups.
        folds : int
            For groups: how many times rows are left out; as many as there are groups at most.
        hyperparameters : "held" or "left out"
            Held, they are those of all rows, and have seen the row that is left out: each is worth about a nat over
            all rows. Left out, they are those of the other rows, to first order, for the time of two fits' gradients
            per hyperparameter: so are models compared in which one learns as a number what another has as a function.

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
        field = self.fit_.evidence.field
        if hyperparameters not in ("held", "left out"):
            raise ValueError(f"hyperparameters must be 'held' or 'left out'; got {hyperparameters!r}.")
        if hyperparameters == "left out" and (
            groups is not None or self.fit_.others or not isinstance(field, DenseField) or self.objective == "loo"
        ):
            raise ValueError(
                "hyperparameters can be left out with single rows, of one exact fit by the evidence: without groups, "
                "averaging, inducing points, neighbours or objective='loo'. Use hyperparameters='held'."
            )
        with threads_for(field.n_rows):
            return self._left_out(neighbours, groups, folds, hyperparameters)

    def _left_out(self, neighbours: int | None, groups: Any, folds: int, hyperparameters: str) -> LeaveOneOut:
        """Densities of rows, or of groups of them, without these."""
        field = self.fit_.evidence.field
        if groups is not None:
            new = self._newcomers_of(groups, folds)
            weights, fits = zip(*self.fit_.averaged_where(new, field.n_rows))
            parts = [leave_groups_out(fit.evidence, groups, folds) for fit in fits]
        else:
            if neighbours is not None:
                check_whole(neighbours, "neighbours", 0)
            if neighbours and not isinstance(field, DenseField):
                raise ValueError(
                    "with a model fitted by neighbours or inducing points the other rows keep their sites: neighbours "
                    f"must be 0 or None; got {neighbours}."
                )
            count = neighbours if isinstance(field, DenseField) else 0
            new, fits = [], self.fit_.members
            weights = tuple(np.full(field.n_rows, fit.weight) for fit in fits)
            parts = [leave_one_out(fit.approximate(), count) for fit in fits]
        found = mixed_loo(np.stack(weights), parts)
        laws = self.fit_.laws_where(new, field.n_rows)
        if laws is not None:
            found = recalibrated_loo(found, np.stack(weights), fits, parts, laws)
        if hyperparameters == "left out" and self.optimizer is not None:
            found = replace(found, pointwise=found.pointwise - seen(self.fit_.evidence))
        return replace(found, observed=self._labelled(found.observed))

    def _newcomers_of(self, groups: Any, folds: int) -> list[NDArray[np.bool_]]:
        """Masks of the training rows whose labels are new where their group is left out, for each column of labels."""
        field: Any = self.fit_.evidence.field
        if not self.fit_.newcomers:  # as with inducing points, whose rows lie elsewhere
            return []
        fold, columns = group_folds(groups, field.n_rows, folds)[1], [other.column for other in self.fit_.newcomers]
        return [np.array([np.ptp(fold[labels == label]) == 0 for label in labels]) for labels in field.X.T[columns]]

    def diagnose(self, *, draws: int = 4000, random_state: Any = 0) -> Diagnosis:
        """Tell how far the Gaussian posterior is from the exact one, at the learned hyperparameters.

        Draws from it are weighted by how much more probable they are under the exact posterior. Rows in which the
        weights move a probability of the latent by more than 0.05 warn; where their tail is heavy (Pareto k̂), even
        that may be too little. Try ``inference="variational"`` for them, or a long NUTS run.

        Parameters
        ----------
        draws : int
            For every row.
        random_state : seed

        Examples
        --------
        >>> import numpy as np
        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> model = GGPRegressor("poisson").fit(X, np.arange(8))
        >>> model.diagnose(draws=1000).warns.any()
        np.False_
        """
        from ggpm.prediction.diagnosis import diagnose

        check_is_fitted(self)
        return diagnose(self.fit_.approximate(), draws, random_state)

    def to_arviz(
        self, X: Any = None, y: Any = None, *, offset: Any = None, draws: int = 500, chains: int = 4,
        random_state: Any = 0,
    ) -> Any:  # fmt: skip
        """Draws and data in ArviZ's form (extra: ``pip install ggpm[arviz]``), for its tables, checks and pictures.

        ====================  ======================================================================================
        posterior             ``eta``, the latent, joint over the rows; ``mean``, the expected y given it: of angles
                              (cos, sin), of classes their probabilities
        posterior_predictive  ``y``
        log_likelihood        ``y``: log p(y_i | eta_i) of every row, from which ArviZ computes its LOO
        observed_data         ``y`` as it was given; of classes their codes; of censored rows NaN, beside the bounds
                              ``y_lower`` and ``y_upper`` of all rows
        constant_data         the columns of X
        ====================  ======================================================================================

        Draws are independent: chains are there because ArviZ's diagnostics ask for several. They are of the Gaussian
        posterior at the learned hyperparameters; `diagnose` tells how good it is.

        Parameters
        ----------
        X, y : rows, optional
            By default the training rows, where the model holds them; others without y have no log_likelihood.
        offset : of these rows
        draws, chains : int
        random_state : seed

        Examples
        --------
        >>> import numpy as np
        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> data = GGPRegressor("poisson").fit(X, np.arange(8)).to_arviz(draws=50)
        >>> data.posterior["eta"].shape
        (4, 50, 8, 1)
        """
        from ggpm.prediction.exchange import to_arviz

        check_is_fitted(self)
        return to_arviz(self, X, y, offset, draws, chains, random_state)
