"""Multivariate Gaussian: several real outputs whose noise is correlated."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from ggpm.families.base import Array, Bounds, Family, moments
from ggpm.families.curvature import Blocks, Curvature, Kronecker, Marginals
from ggpm.families.gaussian import DEFAULT_BOUNDS, Gaussian
from ggpm.families.special.stable import HALF_LOG_2PI


class MultivariateGaussian(Gaussian):
    """Rows of d real outputs with latent mean and noise of covariance phi, a full d×d matrix.

    ========  ==========================================================================
    support   real numbers, (n, d)
    T, b, h   y, theta^T phi theta/2, N(y | 0, phi)
    a         1
    link      theta = phi^-1 eta, D = d
    U         phi^-1 in every row: one factorisation per eigenvalue under a shared kernel
    ========  ==========================================================================

    Inside, phi = L L^T is held as the logarithms of the diagonal of L and the entries below it, row by row; these
    in units of the data where phi starts from them.

    Parameters
    ----------
    phi : array (d, d), optional
        Covariance of the noise, positive definite. None: start at half the covariance of the data, with default bounds
        in units of its variances.
    phi_bounds : (low, high) or "fixed"
        Bounds of the squared diagonal entries of L: the variances of each output given those before it. The
        entries below the diagonal stay within ±sqrt(high).

    Examples
    --------
    >>> import numpy as np
    >>> family = MultivariateGaussian(phi=[[1.0, 0.5], [0.5, 1.0]])
    >>> family.u(np.zeros((1, 2)), np.array([[3.0, 0.0]]))
    array([[ 4., -2.]])
    """

    # the parent's is that of independent outputs
    expected_log_prob = Family.expected_log_prob  # type: ignore[assignment]

    _phi_ndims = (2,)
    _sizes: Array | None = None

    def __init__(self, phi: ArrayLike | None = None, phi_bounds: Bounds = DEFAULT_BOUNDS):
        self.phi = phi
        self.phi_bounds = phi_bounds

    # ---- data ------------------------------------------------------------------------------------------------
    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        self._check_phi()
        rows = self.encode(y)
        d = rows.shape[1]
        out = self._of_size(rows, weight)
        out._columns = out.latent_dim = d
        out._flat = np.ndim(y) == 1
        if self.phi is None:
            _refuse_collinear(rows)
            out.phi = _half_covariance(rows, weight)
            out._sizes = np.sqrt(np.diag(out.phi))
            if np.array_equal(self.phi_bounds, DEFAULT_BOUNDS):
                sizes = np.diag(out.phi)
                out.phi_bounds = (DEFAULT_BOUNDS[0] * sizes.min(), DEFAULT_BOUNDS[1] * sizes.max())
                out.default_bounds = True
            if not isinstance(self.phi_bounds, str):
                low, high = np.sqrt(np.asarray(out.phi_bounds, dtype=float))
                L = np.linalg.cholesky(out.phi)
                L[np.diag_indices(d)] = np.clip(np.diag(L), low, high)
                out.phi = L @ L.T
            return out
        phi = np.asarray(self.phi, dtype=float)
        if phi.shape != (d, d):
            raise ValueError(f"phi must be the covariance of {d} output(s), shape {(d, d)}; got shape {phi.shape}.")
        symmetric = np.all(np.isfinite(phi)) and np.allclose(phi, phi.T, rtol=1e-10, atol=0.0)
        if not symmetric or np.linalg.eigvalsh(phi)[0] <= 0:
            raise ValueError("phi must be a symmetric positive definite matrix; check its eigenvalues.")
        return out

    # ---- hyperparameters: log-Cholesky -------------------------------------------------------------------------
    @property
    def log_hyper(self) -> Array:
        if self.phi is None:
            return np.empty(0)
        L = self._L / self._units[:, None]
        return np.concatenate([np.log(np.diag(self._L)), L[np.tril_indices(len(L), -1)]])

    @property
    def log_hyper_bounds(self) -> Array:
        now = self.log_hyper
        if isinstance(self.phi_bounds, str):
            return np.repeat(now[:, None], 2, axis=1)
        low, high = np.asarray(self.phi_bounds, dtype=float)
        d = len(self._L)
        diagonal = np.tile(0.5 * np.log([low, high]), (d, 1))
        most = np.sqrt(high) / self._units[np.tril_indices(d, -1)[0]]
        return np.vstack([diagonal, np.stack([-most, most], axis=1)])

    def with_log_hyper(self, value: Array) -> Self:
        out = copy.copy(self)
        if value.size:
            d = len(self._L)
            L = np.diag(np.exp(value[:d]))
            rows, columns = np.tril_indices(d, -1)
            L[rows, columns] = value[d:] * self._units[rows]
            out.phi = L @ L.T
        return out

    @property
    def _units(self) -> Array:
        """Size of each output, in which its entries below the diagonal of L are held: 1 where phi was given."""
        return np.ones(len(self._L)) if self._sizes is None else self._sizes

    @property
    def _L(self) -> Array:
        return np.linalg.cholesky(np.asarray(self.phi, dtype=float))

    @property
    def _variance(self) -> Array:
        return np.diag(np.asarray(self.phi, dtype=float))

    def _noise(self, D: int) -> Array:
        return np.asarray(self.phi, dtype=float)

    @property
    def _inverse_L(self) -> Array:
        return solve_triangular(self._L, np.eye(len(self._L)), lower=True)

    @property
    def _precision(self) -> Array:
        inverse = self._inverse_L
        return inverse.T @ inverse

    def _white(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """``z = L^-1 (y - eta)`` and ``w = phi^-1 (y - eta)``."""
        inverse = self._inverse_L
        z = (y - eta) @ inverse.T
        return z, z @ inverse

    def _in_log_hyper(self, dL: Array) -> Array:
        """Derivatives in `log_hyper` from those in the entries of L, (..., d, d) -> (..., p)."""
        L = self._L
        rows, columns = np.tril_indices(len(L), -1)
        below = dL[..., rows, columns] * self._units[rows]
        return np.concatenate([np.einsum("...jj->...j", dL) * np.diag(L), below], axis=-1)

    def marginal(self, present: NDArray[np.bool_]) -> tuple[Self, Array]:
        """The family of some of the outputs, and the derivatives of its log-hyperparameters in those of this one."""
        out = copy.copy(self)
        out._columns = out.latent_dim = int(present.sum())
        out._flat = False
        out.phi = np.asarray(self.phi, dtype=float)[np.ix_(present, present)]
        out._sizes = None if self._sizes is None else self._sizes[present]
        L, small, inverse = self._L, out._L, out._inverse_L
        d, k = len(L), len(small)
        rows, columns = np.tril_indices(d, -1)
        at = np.concatenate([np.arange(d), rows]), np.concatenate([np.arange(d), columns])
        step = np.concatenate([np.diag(L), self._units[rows]])  # dL_ij for a unit of the log-hyperparameter
        dL = np.zeros((len(step), d, d))
        dL[np.arange(len(step)), at[0], at[1]] = step
        half = (dL @ L.T)[:, present][:, :, present]
        # dL_s = L_s Phi(L_s^-1 dSigma L_s^-T), Phi the lower triangle with half the diagonal (Murray 2016, eq. 10)
        inner = inverse @ (half + half.swapaxes(1, 2)) @ inverse.T
        moved = small @ (np.tril(inner, -1) + 0.5 * inner * np.eye(k))
        below = np.tril_indices(k, -1)
        found = [np.einsum("pjj->pj", moved) / np.diag(small), moved[:, below[0], below[1]] / out._units[below[0]]]
        return out, np.concatenate(found, axis=1).T

    # ---- density -------------------------------------------------------------------------------------------
    def log_prob(self, eta: Array, y: Array) -> Array:
        z, _ = self._white(eta, y)
        return -0.5 * np.sum(z**2, axis=-1) - np.sum(np.log(np.diag(self._L)) + HALF_LOG_2PI)

    def expected_log_prob_blocks(self, mean: Array, cov: Array, y: Array) -> tuple[Array, Array, Curvature]:
        u, U = self.u_and_U(mean, y)
        return self.log_prob(mean, y) - 0.5 * np.einsum("jk,njk->n", self._precision, cov), u, U

    def u(self, eta: Array, y: Array) -> Array:
        return self._white(eta, y)[1]

    def U(self, eta: Array, y: Array, expected: bool = False) -> Curvature:  # type: ignore[override]
        shape = np.broadcast_shapes(eta.shape, y.shape)
        if len(shape) == 2:
            return Kronecker(np.ones(shape[0]), self._precision)
        return Blocks(np.broadcast_to(self._precision, (*shape, shape[-1])).copy())

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        P, d = self._precision, len(self._L)
        total = V.dense().reshape(-1, d, d).sum(axis=0)
        # d<V, phi^-1> = -<phi^-1 V phi^-1, dL L^T + L dL^T>
        dL = -2.0 * P @ total @ P @ self._L
        return np.zeros(np.broadcast_shapes(eta.shape, y.shape)), self._in_log_hyper(dL)

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        z, w = self._white(eta, y)
        return self._in_log_hyper(w[..., :, None] * z[..., None, :] - np.diag(1.0 / np.diag(self._L)))

    def u_phi(self, eta: Array, y: Array) -> Array:
        z, w = self._white(eta, y)
        inverse = self._inverse_L
        # du = -phi^-1 (dL L^T + L dL^T) w, one entry dL_ij = 1 at a time: (..., D, i, j)
        first = self._precision[:, :, None] * z[..., None, None, :]
        second = inverse.T[:, None, :] * w[..., None, :, None]
        return self._in_log_hyper(-(first + second))

    # ---- in the space of y ---------------------------------------------------------------------------------
    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        if self._flat:
            return super().spread(eta)
        return np.broadcast_to(np.asarray(self.phi, dtype=float), (*eta.shape, eta.shape[-1])).copy()

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return self.decode(eta + rng.standard_normal(eta.shape) @ self._L.T)


# Least eigenvalue of the correlations: that of a column which is others to a millionth of its spread. At a hundred
# thousandth fits are as good as any; at a millionth the search ends where there is nothing but noise (measured).
COLLINEAR = 1e-12


def _refuse_collinear(rows: Array) -> None:
    """Raise ValueError where a column of y is a combination of the others: then no density of them exists."""
    apart = rows - rows.mean(axis=0)
    spread = np.sqrt(np.mean(apart**2, axis=0))
    # of a constant column nothing but its noise is learned; the mean of n equal numbers is off by n roundings at most
    told = np.flatnonzero(spread > len(rows) * np.finfo(float).eps * np.abs(rows).max(axis=0))
    if len(rows) <= len(told) + 1 or len(told) < 2:
        return
    scaled = apart[:, told] / spread[told]
    w, Q = np.linalg.eigh(scaled.T @ scaled / len(rows))
    if w[0] < COLLINEAR:
        among = told[np.abs(Q[:, 0]) > 1e-3]
        raise ValueError(
            f"columns {', '.join(map(str, among))} of y are collinear: one of them follows from the others, so that "
            "their noise has no density. Leave one of them out and compute it from the predictions of the others, or "
            "give the noise, MultivariateGaussian(phi=matrix, phi_bounds='fixed')."
        )


def _half_covariance(rows: Array, weight: Array | None) -> Array:
    """Half the covariance of the rows, or of their diagonal where that is singular; 1 for a constant output."""
    d = rows.shape[1]
    mean, variance = moments(rows, weight)
    variance = np.where(variance > 0, variance, 1.0)
    weight = np.ones(len(rows)) if weight is None else weight
    n, apart = weight.sum(), rows - mean
    cov = (weight * apart.T) @ apart / (n - 1.0) if n > d + 1 else np.diag(variance)
    # correlations next to one leave no positive definite start
    if np.linalg.eigvalsh(cov / np.sqrt(np.outer(variance, variance)))[0] < 1e-6:
        cov = np.diag(variance)
    return 0.5 * cov
