"""Gaussian: real outputs, one or several, with learned noise."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from ggpm.data.text import Hint, Message
from ggpm.families.base import Array, Bounds, Family, moments
from ggpm.families.curvature import Diagonal, Marginals
from ggpm.families.normal import Normal
from ggpm.families.normal_draws import NormalDraws, TransformedDraws
from ggpm.families.special.stable import HALF_LOG_2PI
from ggpm.families.support import Real

DEFAULT_BOUNDS = (1e-5, 1e5)


class Gaussian(Family):
    """Real outputs, each with its own latent as mean, and noise of variance phi.

    ========  =========================================================
    support   real numbers, (n,) or (n, d)
    T, b, h   y, |theta|²/2, N(y | 0, phi)
    a         phi
    link      theta = eta (canonical), D = d
    U         I/phi
    ========  =========================================================

    Parameters
    ----------
    phi : float or array (d,), optional
        Noise variance: one for all outputs, or one each. None: one, which starts at the variance of the data, with
        default bounds in that unit.
    phi_bounds : (low, high) or "fixed"

    With the estimators' own kernel (``kernel=None``) the latent is centred at the mean of the data, and its variance
    starts from theirs.

    Examples
    --------
    >>> import numpy as np
    >>> Gaussian(phi=0.5).u(np.array([[1.0, 2.0]]), np.array([[3.0, 2.0]]))
    array([[4., 0.]])
    """

    _columns: int | None = None
    _flat = False  # whether y was given as (n,), and is to come back so

    def __init__(self, phi: ArrayLike | None = None, phi_bounds: Bounds = DEFAULT_BOUNDS):
        self.phi = phi
        self.phi_bounds = phi_bounds

    @property
    def support(self) -> Real:
        return Real(columns=self._columns)

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        rows = self.encode(y)
        out = super().resolve(y, weight)._of_size(rows, weight)
        out = out._in_units(float(out.latent_variance))  # type: ignore[arg-type]
        out._columns = out.latent_dim = d = rows.shape[1]
        out._flat = np.ndim(y) == 1
        self._warn_of_scale(rows)
        if np.ndim(self.phi) and np.shape(self.phi) != (d,):
            raise ValueError(
                f"phi must be one variance, or one for each of the {d} output(s); got {np.size(self.phi)}."
            )
        return out

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        out = copy.copy(self)
        out._origin = moments(self.encode(y), weight)[0]
        return out

    def _of_size(self, rows: Array, weight: Array | None) -> Self:
        """A copy that knows the mean variance of the outputs; 1 for a constant one."""
        out, variance = copy.copy(self), moments(rows, weight)[1]
        variance = variance[variance > 0]
        out.latent_variance = float(variance.mean()) if variance.size else 1.0
        out.log_unit = 0.5 * float(np.log(variance).sum())
        return out

    def _warn_of_scale(self, y: Array) -> None:
        """Default bounds suit outputs of order one; far from that the search would end at a bound in silence."""
        variance, middle = float(np.var(y)), float(np.max(np.abs(np.mean(y, axis=0)), initial=0.0))
        given = self.phi is not None and np.array_equal(self.phi_bounds, DEFAULT_BOUNDS)
        if given and not (variance == 0 or 1e-4 < variance < 1e4):
            warnings.warn(
                Message(
                    f"y has variance {variance:.3g} and mean up to {middle:.3g} in size; the default bounds suit "
                    "values of order one. Standardise y",
                    Hint(
                        " (for example with sklearn.compose.TransformedTargetRegressor), or set phi, phi_bounds and "
                        "the kernel's bounds"
                    ),
                    ".",
                ),
                UserWarning,
                stacklevel=2,
            )

    def decode(self, y: Array) -> Array:
        return y[..., 0] if self._flat else y

    @property
    def _variance(self) -> Array:
        return np.asarray(1.0 if self.phi is None else self.phi, dtype=float)

    def _noise(self, D: int) -> Array:
        """Covariance of the outputs given the latent, (D, D)."""
        return np.eye(D) * self._variance

    def _each(self, per_output: Array) -> Array:
        """Derivatives in log phi from those in every output's log variance, (..., D) -> (..., p)."""
        return per_output if np.ndim(self.phi) else per_output.sum(axis=-1, keepdims=True)

    def marginal(self, present: NDArray[np.bool_]) -> tuple[Self, Array]:
        """The family of some of the outputs, and the derivatives of its log-hyperparameters in those of this one.

        >>> small, J = Gaussian(phi=[0.4, 0.2, 0.7]).resolve(np.zeros((2, 3))).marginal(np.array([True, False, True]))
        >>> small.phi, J
        (array([0.4, 0.7]), array([[1., 0., 0.],
               [0., 0., 1.]]))
        """
        out = copy.copy(self)
        out._columns = out.latent_dim = int(present.sum())
        out._flat = False
        if np.ndim(self.phi) == 0:
            return out, np.eye(self.log_hyper.size)
        out.phi = np.asarray(self.phi)[present]
        return out, np.eye(len(present))[present][:, : self.log_hyper.size]

    def line(self) -> GaussianLine:
        """The same for one output, as a scalar family of y (n,).

        >>> Gaussian(phi=1.0).line().log_tails(np.zeros(1), np.zeros(1))[0].round(4)
        array([-0.6931])
        """
        return GaussianLine(float(self._variance.reshape(-1)[0]) if self.log_hyper.size else 1.0)

    # ---- density -------------------------------------------------------------------------------------------
    def log_prob(self, eta: Array, y: Array) -> Array:
        phi = self._variance
        return np.sum(-0.5 * ((y - eta) ** 2 / phi + np.log(phi)) - HALF_LOG_2PI, axis=-1)

    def u(self, eta: Array, y: Array) -> Array:
        return (y - eta) / self._variance

    def U(self, eta: Array, y: Array, expected: bool = False) -> Diagonal:
        shape = np.broadcast_shapes(eta.shape, y.shape)
        return Diagonal(np.broadcast_to(1.0 / self._variance, shape).copy())

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        total = V.diag.reshape(-1, V.diag.shape[-1]).sum(axis=0)
        return np.zeros(np.broadcast_shapes(eta.shape, y.shape)), self._each(-total / self._variance)

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        return self._each(0.5 * ((y - eta) ** 2 / self._variance - 1.0))

    def u_phi(self, eta: Array, y: Array) -> Array:
        change = -self.u(eta, y)[..., None]
        return change * np.eye(change.shape[-2]) if np.ndim(self.phi) else change

    def expected_log_prob(self, mean: Array, var: Array, y: Array) -> tuple[Array, Array, Array]:
        """E[log p] for eta ~ N(mean, var), (n,), with its derivatives in both, (n, d)."""
        precision = np.broadcast_to(1.0 / self._variance, var.shape)
        value = self.log_prob(mean, y) - 0.5 * np.sum(precision * var, axis=-1)
        return value, self.u(mean, y), -0.5 * precision

    def expansion(self, y: Array) -> Array:
        return y.copy()

    # ---- in the space of y ---------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return self.decode(eta)

    def constant(self, y: Array, weight: Array | None = None) -> Array:
        return self.decode(np.average(y, axis=0, weights=weight)[None])

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        each = np.broadcast_to(self._variance, eta.shape)
        return each[..., 0].copy() if self._flat else each[..., None] * np.eye(eta.shape[-1])

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y_j <= y_j | eta) for each output, (..., d)."""
        return ndtr((y - eta) / np.sqrt(self._variance))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return self.decode(eta + np.sqrt(self._variance) * rng.standard_normal(eta.shape))

    def loss(self, y: Array, prediction: Array) -> Array:
        return np.sum((y - prediction.reshape(y.shape)) ** 2, axis=-1)

    # ---- closed forms that replace quadrature --------------------------------------------------------------
    def predictive_normal(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of each output when the latent is N(mean, cov), (m, d) each."""
        return mean, np.sqrt(np.einsum("...jj->...j", cov) + self._variance)

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array:
        """``log N(y | mean, cov + noise)`` for every row: (m, D), (m, D, D), (m, D) -> (m,).

        >>> Gaussian().predictive_log_prob(np.zeros((1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1))).round(4)
        array([-0.9189])
        """
        D = mean.shape[-1]
        L = np.linalg.cholesky(cov + self._noise(D))
        z = y - mean
        for j in range(D):  # forward substitution, all rows at once
            z[..., j] = (z[..., j] - np.einsum("...k,...k->...", L[..., j, :j], z[..., :j])) / L[..., j, j]
        log_det = np.sum(np.log(np.einsum("...jj->...j", L)), axis=-1)
        return -0.5 * np.sum(z**2, axis=-1) - log_det - D * HALF_LOG_2PI

    def own_draws(self, mean: Array, cov: Array, n: int) -> NormalDraws | TransformedDraws:
        return NormalDraws(self.predictive_log_prob(mean, cov, mean), mean.shape[1], n)


class GaussianLine(Normal):
    """One real output with its mean as latent, and noise of variance phi: bounds of a `Gaussian`."""

    support = Real(columns=1)

    def __init__(self, phi: float) -> None:
        self.phi = phi

    def coordinate(self, y: Array) -> tuple[Array, float]:
        return y, 0.0

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return eta[..., 0]

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return np.full(eta.shape[:-1], self.phi)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return eta[..., 0] + np.sqrt(self.phi) * rng.standard_normal(eta.shape[:-1])
