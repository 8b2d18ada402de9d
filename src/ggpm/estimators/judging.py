"""What a fitted estimator says of itself: whether its Gaussian posterior is good enough."""

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

        Draws from it are weighted by how much more probable they are under the exact posterior. Rows whose weights have
        a heavy tail (Pareto k̂) or vary much warn. Try ``inference="variational"`` for them, or a longer NUTS run.

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
