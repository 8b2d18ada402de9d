"""Predictions in the container that people work with: arrays, pandas or polars."""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import NDArray
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from ggpm.data import frames
from ggpm.data.kinds import is_dask


class FramedOutput:
    """Methods that give predictions names and containers: `set_output` and `summary`."""

    target_names_: list[str] | None = None

    def predict_dist(self, X: Any, *, offset: Any = None, trials: Any = None) -> Any:
        """The predictive distribution at the rows of X."""
        raise NotImplementedError

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what predictions come back as, in the manner of scikit-learn's transformers.

        Parameters
        ----------
        transform : "default", "pandas", "polars" or None
            "default" gives arrays, and a data frame where y was a frame of several columns; None changes nothing.

        Examples
        --------
        >>> import numpy as np
        >>> from ggpm import GGPClassifier
        >>> X = np.arange(8.0)[:, None]
        >>> model = GGPClassifier(optimizer=None).fit(X, ["a", "b"] * 4).set_output(transform="pandas")
        >>> model.predict_proba(X[:2]).columns.tolist()
        ['a', 'b']
        """
        if transform is not None:
            if transform not in ("default", *frames.KINDS):
                raise ValueError(f"transform must be 'default', 'pandas' or 'polars'; got {transform!r}.")
            self._sklearn_output_config = {"transform": transform}  # the name under which clone carries it along
        return self

    def _framed(self, values: NDArray, X: Any, names: list[str] | None, automatic: bool = False) -> Any:
        """Predictions in the container that was asked for."""
        kind = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        if kind == "default":
            fits = values.ndim == 2 and names is not None and len(names) == values.shape[1]
            came_as = self.fit_.target.kind  # type: ignore[attr-defined]
            if not (automatic and fits and came_as):
                return values
            kind = came_as
        return frames.build(kind, values, names, frames.index_of(X))

    def __str__(self) -> str:
        """What was learned; of an estimator that is not fitted, its settings."""
        if not hasattr(self, "fit_"):
            return repr(self)
        from ggpm.prediction.description import facts_of

        facts = {type(self).__name__: "fitted"} | facts_of(self)
        width = max(map(len, facts))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in facts.items())

    def _repr_html_(self) -> str:
        """For notebooks: what was learned; of an estimator that is not fitted, scikit-learn's diagram."""
        from ggpm.prediction.description import model_html

        if not hasattr(self, "fit_"):
            return estimator_html_repr(self)
        return model_html(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Both texts, of which notebooks choose one; `_repr_html_` is for those that do not ask for it."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def summary(self, X: Any = None, *, level: float = 0.9, offset: Any = None, trials: Any = None) -> Any:
        """Predictions with their uncertainty as a pandas data frame, one row per row of X; the model itself without X.

        Without X: a `Description` of the fitted model, whose hyperparameters have intervals from the curvature of the
        evidence; it prints, shows in notebooks, and has `to_frame`, `to_markdown` and `to_latex`.

        Columns by kind of output: mean, sd and a credible interval for ordered ones; mean, circular sd and a credible
        arc for angles; mean and interval of every part for compositions and vectors; the most probable label, its
        probability, all probabilities and the smallest credible set for classes.

        Parameters
        ----------
        X : array or data frame (m, features), optional
        level : float
            Probability of the intervals, arcs and sets.

        Examples
        --------
        >>> import numpy as np
        >>> from ggpm import GGPRegressor
        >>> X = np.arange(8.0)[:, None]
        >>> GGPRegressor("poisson").fit(X, np.arange(8)).summary(X[:2]).columns.tolist()
        ['mean', 'sd', 'lower', 'upper']
        """
        from ggpm.prediction.description import describe
        from ggpm.prediction.summaries import summarise

        if X is None:
            check_is_fitted(self)
            return describe(self, level)
        if is_dask(X):
            raise TypeError(
                "summary makes a table in memory: pass X.compute(), or take predict_dist(X) and its methods."
            )
        predictive = self.predict_dist(X, offset=offset, trials=trials)
        names = [str(label) for label in getattr(self, "classes_", [])] or self.target_names_
        return summarise(predictive, level, names, getattr(self, "classes_", None), frames.index_of(X))
