"""What a fitted estimator says of itself: whether its Gaussian posterior is good enough, and its draws for ArviZ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from ggpm.learning.fit import Fit
    from ggpm.prediction.diagnosis import Diagnosis


class Judging:
    """Methods of a fitted estimator about its own fit."""

    fit_: Fit

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
