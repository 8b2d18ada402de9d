"""Classifiers: labels without and with an order."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ggpm import families
from ggpm.data import frames
from ggpm.data.checks import as_array, check_labels
from ggpm.data.gaps import rows_with_y
from ggpm.data.kinds import is_dask
from ggpm.data.text import Hint, Message, stacklevel
from ggpm.estimators.base import GGP
from ggpm.families.base import Family, bound

__all__ = ["GGPClassifier", "GGPOrdinalClassifier"]

Array = NDArray[np.float64]


class _ClassifierBase(ClassifierMixin, GGP):
    """Labels to codes and back."""

    classes_: NDArray

    def resolve_family(self, y: Any, weight: Array | None = None) -> tuple[Family, Array, NDArray]:
        """The family for the labels, their codes as the family takes them, and the labels.

        >>> GGPClassifier().resolve_family(["a", "b"])[2]
        array(['a', 'b'], dtype='<U1')
        """
        given, y = y, frames.values_of(y)
        if y.ndim > 2 or (y.ndim == 2 and y.shape[1] != 1):
            raise ValueError(f"y must be one label per row; got an array of shape {y.shape}.")
        y = column_or_1d(y, warn=frames.kind_of(given) is None)
        check_labels(y)
        check_array(y, ensure_2d=False, dtype=None, ensure_min_samples=1, input_name="y")
        check_classification_targets(y)
        classes = self._order(y, frames.order_of(given))
        if len(classes) < 2:
            raise ValueError(
                f"y must have at least two classes; got one class only ({classes.tolist()[0]!r}). "
                "Nothing can be learned from a single class: check how the rows were selected."
            )
        codes = _codes(y, classes)
        family = bound(self._family_for(len(classes)), codes, weight)
        return family, family.encode(codes), classes

    def _order(self, y: NDArray, given: list | None) -> NDArray:
        return np.unique(y)

    def _family_for(self, n_classes: int) -> Family:
        raise NotImplementedError

    def codes(self, y: Any) -> Array:
        """Codes of labels, in the order of `classes_`.

        >>> GGPClassifier(optimizer=None).fit(np.arange(4.0)[:, None], list("abab")).codes(["b", "a"])
        array([1., 0.])
        """
        return _codes(frames.values_of(y), self.classes_)

    def _labelled(self, draws: Any) -> Any:
        codes = draws.astype(int)
        return (
            codes.map_blocks(self.classes_.take, dtype=self.classes_.dtype) if is_dask(codes) else self.classes_[codes]
        )

    def predict_proba(self, X: Any, *, offset: Any = None) -> Any:
        """Probability of each class, (m, number of classes), columns as in `classes_`.

        >>> X = np.arange(9.0)[:, None]
        >>> model = GGPClassifier().fit(X, ["a"] * 3 + ["b"] * 3 + ["c"] * 3)
        >>> model.predict_proba(X[:2]).shape
        (2, 3)
        """
        p = self.predict_dist(X, offset=offset).probabilities()
        if is_dask(X):
            return p
        return self._framed(p, X, [str(label) for label in self.classes_])

    def predict(self, X: Any, *, offset: Any = None) -> Any:
        """The most probable label of each row.

        >>> X = np.arange(9.0)[:, None]
        >>> model = GGPClassifier().fit(X, ["a"] * 3 + ["b"] * 3 + ["c"] * 3)
        >>> model.predict(X[[0, 8]])
        array(['a', 'c'], dtype='<U1')
        """
        if is_dask(X):
            return self.predict_dist(X, offset=offset).labels()
        best = np.argmax(self.predict_dist(X, offset=offset).probabilities(), axis=1)
        return self._framed(self.classes_[best], X, self.target_names_)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Accuracy: the share of labels that `predict` gets right; rows whose label is missing are left out.

        >>> X = np.arange(9.0)[:, None]
        >>> y = ["a"] * 3 + ["b"] * 3 + ["c"] * 3
        >>> GGPClassifier().fit(X, y).score(X, y)
        1.0
        """
        from sklearn.metrics import accuracy_score

        X, y, sample_weight, offset = rows_with_y(X, y, sample_weight, offset)
        predicted = frames.values_of(self.predict(X, offset=offset))
        return float(accuracy_score(frames.values_of(y), predicted, sample_weight=sample_weight))

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
        if is_dask(X):
            raise TypeError("predict_top_k needs the rows themselves: pass X.compute(), or sort predict_proba(X).")
        return self.predict_dist(X, offset=offset).top_k(k)


class GGPClassifier(_ClassifierBase):
    """Classification with a joint softmax over all classes (two classes: one latent, logit).

    Parameters and attributes are those of `GGPRegressor`, without ``family``; `classes_` holds the labels.

    Where classes are far apart, the probabilities of ``inference="laplace"`` are too cautious (the labels are not
    affected); the default is variational.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GGPClassifier().fit(X[::3], y[::3])
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    """

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
        self.order = order
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

    def _order(self, y: NDArray, given: list | None) -> NDArray:
        chosen = given if self.order is None else self.order
        if chosen is None:
            labels = np.unique(y)
            if labels.dtype.kind in "OUS":
                warnings.warn(
                    Message(
                        f"the grades are text and no order was given, so they are sorted alphabetically: "
                        f"{', '.join(map(str, labels[:6]))}. ",
                        Hint("Pass order=[...]", "order", ...),
                        ", lowest first",
                        Hint(", or an ordered categorical"),
                        ".",
                    ),
                    UserWarning,
                    stacklevel=stacklevel(),
                )
            return labels
        order = as_array(chosen, "order")
        if order.ndim != 1 or isinstance(chosen, set):
            raise ValueError(f"order must be a list of the labels, lowest first; got {chosen!r}.")
        if len(set(order.tolist())) != len(order):
            raise ValueError(Message(Hint("order", "order"), f" must list every label once; got {list(chosen)}."))
        missing = [repr(label) for label in np.unique(y).tolist() if label not in set(order.tolist())]
        if missing:
            raise ValueError(
                Message(
                    Hint("order", "order"),
                    f" must list every label in y, of the same type; it lacks {', '.join(missing[:5])} and has "
                    f"{', '.join(map(repr, order.tolist()[:5]))}.",
                )
            )
        return order

    def _family_for(self, n_classes: int) -> Family:
        return families.Ordinal(n_levels=n_classes)


def _codes(y: NDArray, classes: NDArray) -> Array:
    y = y.reshape(-1)
    lookup = {label: code for code, label in enumerate(classes.tolist())}
    unknown = sorted({str(label) for label in y.tolist() if label not in lookup})
    if unknown:
        raise ValueError(f"y has labels that were not seen in fit: {', '.join(unknown[:5])}.")
    return np.array([lookup[label] for label in y.tolist()], dtype=float)
