"""Baselines that the paper compares with: ordinary Gaussian processes made to serve, and methods that are none.

All are scikit-learn estimators. Those that are Gaussian processes learn their hyperparameters by maximising the
evidence, like the models they are compared with.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from ggpm.estimators import GGPClassifier, GGPRegressor
from ggpm.families import Gaussian
from ggpm.kernels import median_distance

Array = NDArray[np.float64]

__all__ = [
    "AngleGPR",
    "AngleNearestNeighbor",
    "ConstrainedAngleGP",
    "ConstrainedSimplexGP",
    "CosSinGPR",
    "LabelFrequency",
    "OneVsRestGPC",
    "RotationNLS",
    "wrap",
]


def wrap(angle: Any) -> Array:
    """Angles in radians, brought into [-pi, pi).

    >>> wrap([0.0, 4.0]).round(4)
    array([ 0.    , -2.2832])
    """
    return np.mod(np.asarray(angle, dtype=float) + np.pi, 2.0 * np.pi) - np.pi


def default_kernel(X: Array) -> Kernel:
    """``ConstantKernel() * RBF()`` that starts at the median distance between the inputs.

    >>> default_kernel(np.array([[0.0], [3.0]]))
    1**2 * RBF(length_scale=3)
    """
    return ConstantKernel(1.0, (1e-5, 1e5)) * RBF(median_distance(X))


def _angles(y: Any, n: int) -> Array:
    y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    if y.ndim != 1 or len(y) != n:
        raise ValueError(f"y must be one angle in radians for each of the {n} rows of X; got shape {y.shape}.")
    return y


class _GPBaseline(RegressorMixin, BaseEstimator):
    """Gaussian process regression on some targets: one kernel, one noise variance."""

    centred = False  # whether the GPs vary around the targets' mean instead of zero

    def __init__(self, kernel: Kernel | None = None):
        self.kernel = kernel

    def _fit_gp(self, X: Array, targets: Array) -> Self:
        kernel = default_kernel(X) if self.kernel is None else self.kernel
        self.mean_ = targets.mean(axis=0) if self.centred else np.zeros(np.shape(targets)[1:])
        # a tenth of the variance is noise to begin with; the bounds follow the targets' scale
        variance = float(np.mean((targets - self.mean_) ** 2)) or 1.0
        noise = Gaussian(phi=0.1 * variance, phi_bounds=(1e-6 * variance, 1e2 * variance))
        self.gp_ = GGPRegressor(noise, kernel, inference="laplace").fit(X, targets - self.mean_)
        self.log_marginal_likelihood_value_ = self.gp_.log_marginal_likelihood_value_
        return self

    def _predict_gp(self, X: Any) -> Array:
        check_is_fitted(self)
        return self.gp_.predict(validate_data(self, X, dtype=np.float64, reset=False)) + self.mean_


class _AngleBaseline(_GPBaseline):
    """Angles by way of real targets."""

    def fit(self, X: Any, y: Any) -> Self:
        X = validate_data(self, X, dtype=np.float64)
        return self._fit_gp(X, self._targets(_angles(y, len(X))))

    def _targets(self, y: Array) -> Array:
        raise NotImplementedError


class AngleGPR(_AngleBaseline):
    """Gaussian process regression on the angle itself, as if it were a real number in [-pi, pi).

    Parameters
    ----------
    kernel : scikit-learn kernel or None
        None means `default_kernel`.

    Examples
    --------
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> float(np.abs(AngleGPR().fit(X, X[:, 0]).predict(X) - X[:, 0]).max().round(2))
    0.0
    """

    def _targets(self, y: Array) -> Array:
        return wrap(y)

    def predict(self, X: Any) -> Array:
        return wrap(self._predict_gp(X))


class CosSinGPR(_AngleBaseline):
    """Gaussian process regression on (cos y, sin y), one kernel; the prediction is the angle of that vector.

    Parameters are those of `AngleGPR`.

    Examples
    --------
    >>> X = np.linspace(3, 4, 20)[:, None]
    >>> float(CosSinGPR().fit(X, X[:, 0]).predict([[3.5]])[0].round(2))
    -2.78
    """

    def _targets(self, y: Array) -> Array:
        return np.stack([np.cos(y), np.sin(y)], axis=1)

    def predict(self, X: Any) -> Array:
        vector = self._predict_gp(X)
        return wrap(np.arctan2(vector[:, 1], vector[:, 0]))


class ConstrainedAngleGP(_AngleBaseline):
    """The quadratically constrained GP of Salzmann and Urtasun (2010) for angles.

    With v = (cos y, sin y), independent GPs with one shared kernel regress on the entries of Q = v v^T. The
    constraint |v| = 1 is linear in Q (its trace is one), so predictions around the mean satisfy it unasked. The
    leading eigenvector of the predicted Q gives v up to its sign: of the two angles, half a turn apart, the one
    nearer to the nearest neighbour's is taken (the paper's footnote). Parameters are those of `AngleGPR`.

    Examples
    --------
    >>> X = np.linspace(3, 4, 20)[:, None]
    >>> float(ConstrainedAngleGP().fit(X, X[:, 0]).predict([[3.5]])[0].round(2))
    -2.78
    """

    centred = True

    def fit(self, X: Any, y: Any) -> Self:
        super().fit(X, y)
        self.neighbor_ = AngleNearestNeighbor().fit(X, y)
        return self

    def _targets(self, y: Array) -> Array:
        c, s = np.cos(y), np.sin(y)
        return np.stack([c**2, c * s, s**2], axis=1)

    def predict_products(self, X: Any) -> Array:
        """The predicted Q, (m, 2, 2)."""
        return self._predict_gp(X)[:, [0, 1, 1, 2]].reshape(-1, 2, 2)

    def predict(self, X: Any) -> Array:
        v = np.linalg.eigh(self.predict_products(X))[1][:, :, -1]
        angle = np.arctan2(v[:, 1], v[:, 0])
        turned = np.abs(wrap(angle - self.neighbor_.predict(X))) > 0.5 * np.pi
        return wrap(np.where(turned, angle + np.pi, angle))


class ConstrainedSimplexGP(_GPBaseline):
    """The linearly constrained GP of Salzmann and Urtasun (2010) for probability vectors.

    Independent GPs that share one kernel, around the mean of the training vectors, predict vectors that sum to one
    because the training vectors do. Their entries may leave [0, 1], and are truncated.

    Parameters
    ----------
    kernel : scikit-learn kernel or None
        None means `default_kernel`.
    renormalize : bool
        Divide by the sum after truncating, so that the prediction is a probability vector again.

    Examples
    --------
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> p = ConstrainedSimplexGP().fit(X, np.hstack([X, 1 - X])).predict(X)
    >>> float(p.sum(axis=1).min().round(6))
    1.0
    """

    centred = True

    def __init__(self, kernel: Kernel | None = None, *, renormalize: bool = True):
        super().__init__(kernel)
        self.renormalize = renormalize

    def fit(self, X: Any, y: Any) -> Self:
        X = validate_data(self, X, dtype=np.float64)
        y = check_array(y, dtype=np.float64, input_name="y")
        check_consistent_length(X, y)
        if np.any(y < 0) or np.any(np.abs(y.sum(axis=1) - 1.0) > 1e-6):
            raise ValueError("y must be probability vectors: entries not negative, rows that sum to one.")
        return self._fit_gp(X, y)

    def predict_untruncated(self, X: Any) -> Array:
        """The GPs' own prediction, which sums to one and may leave [0, 1]."""
        return self._predict_gp(X)

    def predict(self, X: Any) -> Array:
        p = np.clip(self.predict_untruncated(X), 0.0, 1.0)
        # a row that sums to one has a positive entry, which truncation keeps
        return p / p.sum(axis=1, keepdims=True) if self.renormalize else p


class AngleNearestNeighbor(RegressorMixin, BaseEstimator):
    """The angle of the training row that is nearest.

    Examples
    --------
    >>> AngleNearestNeighbor().fit([[0.0], [1.0]], [0.3, 3.0]).predict([[0.2]])
    array([0.3])
    """

    def fit(self, X: Any, y: Any) -> Self:
        X = validate_data(self, X, dtype=np.float64)
        self.y_ = wrap(_angles(y, len(X)))
        self.index_ = NearestNeighbors(n_neighbors=1).fit(X)
        return self

    def predict(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.y_[self.index_.kneighbors(X, return_distance=False)[:, 0]]


class RotationNLS(RegressorMixin, BaseEstimator):
    """Non-linear least squares with the functional form of a rotation, for planar shapes.

    A row of X is a shape (x1, y1, x2, y2, ...), the shape at angle zero turned by the angle y, plus noise. As
    complex numbers, x = exp(i y) t: given the training angles, the template t that minimises the squared error is
    the mean of exp(-i y) x; given t, the angle of a new shape is the argument of t^H x. Both are exact minima.

    Examples
    --------
    >>> X = [[1.0, 0.0], [0.0, 1.0]]
    >>> RotationNLS().fit(X, [0.0, np.pi / 2]).predict([[-1.0, -1.0]]).round(4)
    array([-2.3562])
    """

    def fit(self, X: Any, y: Any) -> Self:
        X = validate_data(self, X, dtype=np.float64)
        y = _angles(y, len(X))
        self.template_ = np.mean(np.exp(-1j * y)[:, None] * self._points(X), axis=0)
        return self

    def predict(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return wrap(np.angle(self._points(X) @ self.template_.conj()))

    @staticmethod
    def _points(X: Array) -> NDArray[np.complex128]:
        if X.shape[1] % 2:
            raise ValueError(f"X must hold points (x1, y1, x2, y2, ...), an even number of columns; got {X.shape[1]}.")
        return X[:, 0::2] + 1j * X[:, 1::2]


def _presence(estimator: Any, X: Any, y: Any) -> tuple[Array, NDArray[np.bool_]]:
    X = validate_data(estimator, X, dtype=np.float64)
    present = check_array(y, dtype=np.float64, input_name="y") > 0
    check_consistent_length(X, present)
    return X, present


class OneVsRestGPC(RegressorMixin, BaseEstimator):
    """One binary GP classifier (logit) per label, each on its own; probabilities are normalised.

    Parameters
    ----------
    kernel : scikit-learn kernel or None
        None means `default_kernel`.
    inference : as that of `GGPClassifier`

    Notes
    -----
    y is (n, d): label j is present in row i where ``y[i, j] > 0``, so that presence indicators and quantised
    probability vectors both serve. A label that is present everywhere or nowhere keeps its frequency.

    Examples
    --------
    >>> X = np.linspace(0, 1, 12)[:, None]
    >>> OneVsRestGPC().fit(X, np.hstack([X > 0.5, X < 0.7])).predict(X).shape
    (12, 2)
    """

    def __init__(self, kernel: Kernel | None = None, *, inference: Any = "laplace"):
        self.kernel = kernel
        self.inference = inference

    def fit(self, X: Any, y: Any) -> Self:
        X, present = _presence(self, X, y)
        kernel = default_kernel(X) if self.kernel is None else self.kernel
        self.frequency_ = present.mean(axis=0)
        self.classifiers_ = [
            GGPClassifier(kernel, inference=self.inference).fit(X, column) if 0 < frequency < 1 else None
            for column, frequency in zip(present.T, self.frequency_)
        ]
        return self

    def predict_presence(self, X: Any) -> Array:
        """Probability that each label is present, (m, d), before normalisation."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        columns = [
            np.full(len(X), frequency) if classifier is None else classifier.predict_proba(X)[:, 1]
            for classifier, frequency in zip(self.classifiers_, self.frequency_)
        ]
        return np.stack(columns, axis=1)

    def predict(self, X: Any) -> Array:
        p = self.predict_presence(X)
        return p / p.sum(axis=1, keepdims=True)


class LabelFrequency(RegressorMixin, BaseEstimator):
    """The paper's "hard ranking": labels by their frequency in training, the same for every row.

    Examples
    --------
    >>> LabelFrequency().fit([[0.0], [1.0]], [[1, 0], [1, 1]]).predict([[5.0]]).round(3)
    array([[0.667, 0.333]])
    """

    def fit(self, X: Any, y: Any) -> Self:
        _, present = _presence(self, X, y)
        if not present.any():
            raise ValueError("y must have at least one label present; got none.")
        self.frequency_ = present.sum(axis=0) / present.sum()
        return self

    def predict(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.repeat(self.frequency_[None], len(X), axis=0)
