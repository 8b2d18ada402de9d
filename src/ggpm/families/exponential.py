"""`ExponentialFamily`: a model from its parameter functions T, b, h, a and the link.

    p(y | theta, phi) = h(y, phi) exp{ [T(y)^T theta - b(theta, phi)] / a(phi) },    theta = link(eta, phi)

A subclass writes these functions with ``jax.numpy``, for one row; everything that `Family` asks for follows by
automatic differentiation. A method given in closed form (NumPy, all rows at once) wins over the derived one.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.families.autodiff import Derivatives, derivatives_of, import_jax
from ggpm.families.base import Array, Family
from ggpm.families.curvature import Blocks, Curvature, Diagonal, Marginals, RankOne

# By how much, relative to its largest entry, a curvature declared rank-one may be off. Derivatives by JAX differ from
# the closed forms of the built-in families by less than 1e-10 (tests/test_exponential.py).
RANK_ONE_RTOL = 1e-7


class ExponentialFamily(Family):
    """Base of users' own families: write the parameter functions, get the model.

    A subclass gives, as class attributes or properties,

    ==================================  =========================================================================
    ``latent_dim``                      D, or 0 for "as many as y has columns"
    ``support``                         what y may be, from `ggpm.families.support`
    ``curvature`` (optional)            `Diagonal`, `RankOne` or `Blocks` from `ggpm.curvature`, if U has that shape
                                        for every y; default Diagonal for D = 1, else Blocks
    ``phi``, ``phi_bounds`` (optional)  hyperparameter(s) and their bounds, usually arguments of ``__init__``
    ==================================  =========================================================================

    and, written with ``jax.numpy`` for a single row (eta is a number where D = 1, else a vector; y is one
    observation),

    ====================================  =======================================================================
    ``log_partition(theta, phi)``         b
    ``log_base_measure(y, phi)``          log h
    ``T(y)``                              sufficient statistic, of the shape of theta; default y
    ``link(eta, phi)``                    theta; default eta
    ``a(phi)``                            dispersion; default 1
    ``trials(y)``                         number of trials N of a row: a is divided by it; default 1
    ``mean(theta, phi)``                  what `predict` averages; default the gradient of b, right where T(y) = y
    ``phi_of(log_hyper)``                 phi from unconstrained coordinates; default exp
    ====================================  =======================================================================

    Sampling needs a method ``sample(eta, rng, trials=None)`` in NumPy; `theta_of` gives it theta. Where T(y) is
    not y, ``spread`` (and ``point``, where the mean is not of y's shape and y is no angle) are to be given too. The
    default `loss` is that of the support: the squared error, of angles one minus the cosine of the difference.

    phi reaches the functions as their argument and must not be read from ``self``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from ggpm.families.support import Positive
    >>> class Exponential(ExponentialFamily):
    ...     support = Positive()
    ...     def link(self, eta, phi): return -jnp.exp(-eta)
    ...     def log_partition(self, theta, phi): return -jnp.log(-theta)
    ...     def log_base_measure(self, y, phi): return 0.0
    >>> Exponential().u(np.array([[0.0]]), np.array([3.0]))  # y/mu - 1, mu = exp(eta)
    array([[2.]])
    """

    curvature: ClassVar[type | None] = None
    _phi_ndims = (0, 1, 2)  # a user may override log_hyper for any of them
    _row_ndim: int | None = None  # axes of one encoded observation, set by resolve
    _identity: bool | None = None  # whether trials(y) T(y) = y, set by resolve

    # ---- parameter functions ---------------------------------------------------------------------------------
    def T(self, y: Any) -> Any:
        """Sufficient statistic of one observation."""
        return y

    def log_partition(self, theta: Any, phi: Any) -> Any:
        """b(theta, phi), a number."""
        raise NotImplementedError(f"{type(self).__name__} must give log_partition(theta, phi), the function b.")

    def log_base_measure(self, y: Any, phi: Any) -> Any:
        """log h(y, phi), a number."""
        raise NotImplementedError(f"{type(self).__name__} must give log_base_measure(y, phi), the function log h.")

    def a(self, phi: Any) -> Any:
        """Dispersion."""
        return 1.0

    def link(self, eta: Any, phi: Any) -> Any:
        """theta from eta."""
        return eta

    def trials(self, y: Any) -> Any:
        """Number of trials behind one observation."""
        return 1.0

    def mean(self, theta: Any, phi: Any) -> Any:
        """E[y], or None for the gradient of b."""
        return None

    def phi_of(self, log_hyper: Any) -> Any:
        """phi from `log_hyper`, traceable by JAX; to be overridden together with `log_hyper` and `with_log_hyper`."""
        return import_jax(type(self).__name__).numpy.exp(log_hyper)

    # ---- data ------------------------------------------------------------------------------------------------
    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        self.curvature_type  # noqa: B018  (an unknown curvature is an error here)
        out = super().resolve(y, weight)
        encoded = self.encode(y)
        out._row_ndim = encoded.ndim - 1
        if not self.latent_dim:
            out.latent_dim = encoded.shape[-1]
        if type(self).moment is ExponentialFamily.moment or type(self).spread is ExponentialFamily.spread:
            out._identity = out._is_identity(encoded[:1024])
        return out

    def _is_identity(self, y: Array) -> bool | None:
        """True if trials(y) T(y) is y itself; None without JAX, where `moment` and `spread` ask for it again."""
        try:
            total = self._derivatives("resolve")("total", self.log_hyper, y)[0]
        except ImportError:
            return None
        return total.shape == y.shape and bool(np.allclose(total, y, rtol=1e-12))

    @property
    def curvature_type(self) -> type:
        """The shape of U: declared, or from D."""
        if self.curvature is None:
            return Diagonal if self.latent_dim == 1 else Blocks
        if self.curvature not in (Diagonal, RankOne, Blocks):
            raise TypeError(
                f"curvature must be Diagonal, RankOne or Blocks from ggpm.families.curvature; got {self.curvature!r}."
            )
        return self.curvature

    def _derivatives(self, method: str) -> Derivatives:
        return derivatives_of(self, f"{type(self).__name__}.{method}")

    def _rows(self, eta: Array, y: Array) -> tuple[tuple[int, ...], Array, Array]:
        """Leading shape, and eta and y broadcast to it and flattened to (N, ...)."""
        row_ndim = self.support.row_ndim if self._row_ndim is None else self._row_ndim
        eta, y = np.asarray(eta, dtype=float), np.asarray(y, dtype=float)
        y_lead, y_row = y.shape[: y.ndim - row_ndim], y.shape[y.ndim - row_ndim :]
        lead = np.broadcast_shapes(eta.shape[:-1], y_lead)
        flat_eta = np.broadcast_to(eta, (*lead, eta.shape[-1])).reshape(-1, eta.shape[-1])
        return lead, flat_eta, np.broadcast_to(y, (*lead, *y_row)).reshape(-1, *y_row)

    def _each(self, name: str, method: str, eta: Array, y: Array) -> Array:
        """A function of (eta, y) for every row, with the leading axes put back."""
        lead, e, v = self._rows(eta, y)
        out = self._derivatives(method)(name, self.log_hyper, e, v)[0]
        return out.reshape(*lead, *out.shape[1:])

    def _each_eta(self, name: str, method: str, eta: Array) -> Array:
        flat = np.asarray(eta, dtype=float).reshape(-1, eta.shape[-1])
        out = self._derivatives(method)(name, self.log_hyper, flat)[0]
        return out.reshape(*eta.shape[:-1], *out.shape[1:])

    def theta_of(self, eta: Array) -> Array:
        """The natural parameter of every row, as a NumPy array: for samplers and closed forms."""
        return self._each_eta("theta", "theta_of", eta)

    # ---- density and derivatives in eta ------------------------------------------------------------------------
    def log_prob(self, eta: Array, y: Array) -> Array:
        return self._each("log_prob", "log_prob", eta, y)

    def u(self, eta: Array, y: Array) -> Array:
        return self._each("u", "u", eta, y)

    def U(self, eta: Array, y: Array, expected: bool = False) -> Curvature:
        values = self._each("U_expected" if expected else "U", "U", eta, y)
        if self.curvature_type is Diagonal:
            return Diagonal(values)
        values = 0.5 * (values + np.swapaxes(values, -1, -2))
        return Blocks(values) if self.curvature_type is Blocks else rank_one(values)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        lead, e, v = self._rows(eta, y)
        D = e.shape[-1]
        V_rows = V.diag if self.curvature_type is Diagonal else V.dense()
        shape = (D,) if self.curvature_type is Diagonal else (D, D)
        V_rows = np.broadcast_to(V_rows, (*lead, *shape)).reshape(-1, *shape)
        name = "pullback_expected" if expected else "pullback"
        d_eta, d_phi = self._derivatives("U_pullback")(name, self.log_hyper, e, v, V_rows)
        return d_eta.reshape(*lead, D), d_phi.sum(axis=0)

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        if not self.log_hyper.size:
            return super().log_prob_phi(eta, y)
        return self._each("log_prob_phi", "log_prob_phi", eta, y)

    def u_phi(self, eta: Array, y: Array) -> Array:
        if not self.log_hyper.size:
            return super().u_phi(eta, y)
        return self._each("u_phi", "u_phi", eta, y)

    # ---- in the space of y ---------------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        if self._identity is False and type(self).mean is ExponentialFamily.mean:
            self._missing("mean(theta, phi)", "T(y) is not y, so the gradient of b is not the mean of y")
        out = self._each_eta("mean", "moment", eta)
        return out if trials is None else out * _trailing(trials, out.ndim - eta.ndim + 1)

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        if self._identity is False:
            self._missing("spread(eta, trials=None)", "T(y) is not y, so the Hessian of b is not the variance of y")
        out = self._each_eta("covariance", "spread", eta)
        return out if trials is None else out * _trailing(trials, out.ndim - eta.ndim + 1)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        self._missing("sample(eta, rng, trials=None)", "draws of y cannot be derived from T, b and h")

    def _missing(self, method: str, why: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} must give {method} for this: {why}.")


def _trailing(x: Any, axes: int) -> Array:
    """x with further axes of length one behind it."""
    return np.reshape(x, (*np.shape(x), *(1,) * axes))


def rank_one(H: NDArray[np.float64]) -> RankOne:
    """``diag(gamma) - rho omega omega^T`` from symmetric matrices (..., D, D) that are known to be of this form.

    The off-diagonal entries are -rho omega_j omega_k; the three largest fix the scale. For D = 2 one entry leaves
    the split open, and equal shares are taken.

    >>> U = rank_one(np.array([[2.0, -1.0, -2.0], [-1.0, 1.0, -2.0], [-2.0, -2.0, 5.0]]))
    >>> U.gamma + 0.0
    array([3., 2., 9.])
    """
    shape, D = H.shape[:-2], H.shape[-1]
    H = H.reshape(-1, D, D)
    rows = np.arange(len(H))
    off = -H * (1.0 - np.eye(D))  # rho omega_j omega_k, zero on the diagonal
    flat = np.abs(off).reshape(len(H), -1)
    p, q = np.divmod(flat.argmax(axis=1), D)
    strongest = off[rows, p, q]
    # omega_p^2 rho = off_pq off_pr/off_qr for the r that makes the smaller factor largest
    third = np.minimum(np.abs(off[rows, p]), np.abs(off[rows, q]))
    r = third.argmax(axis=1)
    coupled = third[rows, r] > 0
    own = np.where(coupled, strongest * off[rows, p, r] / np.where(coupled, off[rows, q, r], 1.0), np.abs(strongest))
    if np.any(own < 0):
        raise ValueError("the curvature is declared RankOne, but its coupling has the wrong sign: declare Blocks.")
    root = np.sqrt(own)
    omega = off[rows, p] / np.where(root > 0, root, 1.0)[:, None]
    omega[rows, p] = root
    gamma = np.einsum("ijj->ij", H) + omega**2
    error = np.abs(off - omega[:, :, None] * omega[:, None, :]) * (1.0 - np.eye(D))
    worst = error.max(axis=(1, 2)) / np.maximum(np.abs(H).max(axis=(1, 2)), np.finfo(float).tiny)
    if np.any(worst > RANK_ONE_RTOL):
        raise ValueError(
            f"the curvature is declared RankOne, but off-diagonal entries differ from rho omega omega^T by up to "
            f"{worst.max():.2g} of the largest entry: declare Blocks."
        )
    return RankOne(gamma.reshape(*shape, D), omega.reshape(*shape, D), np.ones(shape))
