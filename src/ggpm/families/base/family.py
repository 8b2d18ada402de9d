"""`Family`: the density of an observation given its latent vector.

A family knows one thing: the density of y given eta, with its derivatives. It does not know kernels,
inference or solvers. To add one, subclass `Family` (or `ScalarFamily` for one latent) in a new file.

Shapes. ``eta`` is (..., D); y is encoded (see `Family.encode`) with the same leading axes or axes that
broadcast against them, so that quadrature can put nodes in front: eta (S, n, D) against y (n, ...).

Two forms of y. *As the user has it*: what `resolve` and `encode` take, and what `decode`, `point`, `constant` and
`sample` give; also the ``prediction`` of `loss`. *Encoded*: what all other methods take. They are the same unless a
family overrides `encode`; a family on the circle that does so says which unit it gives, in its support (`Circle`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from inspect import signature
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ggpm.data.checks import as_numbers
from ggpm.families.base.closed_forms import OPTIONAL, ClosedForms
from ggpm.families.curvature import Curvature, Marginals
from ggpm.families.expansion import ridged_mode, ridged_mode_pullback
from ggpm.families.support.base import Support

Array = NDArray[np.float64]
Bounds = tuple[float, float] | Literal["fixed"]


class Family(ClosedForms, BaseEstimator, ABC):
    """Base of all families; see the module's text for shapes and for the two forms of y.

    A subclass must give ``support``, `log_prob`, `u`, `U`, `U_pullback`, `moment`, `spread` and `sample`. All else has
    a default that is exact, and the closed forms of `OPTIONAL` save time or add answers.

    Hyperparameters follow scikit-learn's kernels: ``phi`` is a value (or several), ``phi_bounds`` its bounds or
    ``"fixed"``. Inside, they appear as the vector `log_hyper`, and every derivative "in phi" below is a
    derivative in `log_hyper`.

    Names that are easily confused:

    ==============================  ============================================================================
    `moment`                        expectation of y (or of what stands for it) given eta
    `point`                         prediction that belongs to a moment averaged over eta
    `constant`                      best prediction that ignores the inputs: what `score` compares with
    `spread`                        variance of y given eta
    `variance`                      variance of y with eta integrated out, made from averages of the two above
    ``U(..., expected=True)``       expectation over *y* given eta: the Fisher information
    ``expected_...`` (methods)      expectation over *eta*, a Gaussian, given y
    ==============================  ============================================================================
    """

    latent_dim: int = 1
    """D, the length of the latent vector (set by `resolve` where it depends on the data)."""
    countable: ClassVar[bool] = False
    """True if an observation is counts out of a known number of trials, which predictions then take as ``trials``."""
    mean_alone: ClassVar[bool] = False
    """True if `predictive_moments` gives means and no variances, for which it need not be asked."""
    finite: ClassVar[bool] = False
    """True if y is a class: it takes finitely many values, and `moment` gives their probabilities."""
    shift_invariant: ClassVar[bool] = False
    """Whether log p is the same when a constant is added to all latents of a row."""
    several_modes: bool = False
    """Whether the posterior of the latents may have several modes: searches for it then begin from several starts."""
    expansion_ridge: ClassVar[float] = 1.0
    """Precision of the Gaussian about zero that keeps the default `expansion` finite."""
    log_unit: float = 0.0
    """Logarithm of the size of y in the user's unit, to the power in which densities have it; set by `resolve`.
    Searches measure their precision against log-densities in units of that size: y in metres is y in kilometres."""
    needs_spread: ClassVar[tuple[float, str] | None] = None
    """Standard deviation of y, relative to its size, below which a latent scale has no bound, and a family without."""
    needs_events: bool = False
    """True if zeros alone tell nothing of how likely zeros of either kind are."""
    latent_variance: float | tuple[float, ...] = 1.0
    """Variance that latents may be expected to have, from which the default kernel starts: one number where all latents
    share a kernel, one each where every latent is a parameter with a kernel of its own. Set by `resolve`."""
    latents_without_unit: tuple[int, ...] = ()
    """Latents of which data tell little but a direction: in kernels of their own their variances have a wide prior."""
    default_bounds: bool = False
    """True if `resolve` made phi_bounds from the default ones and the scale of the data."""
    phi: Any = None
    phi_bounds: Bounds = "fixed"
    phi_has_limit: ClassVar[bool] = False
    """True if a phi at the upper end of its default bounds is a simpler family, not an optimum that was cut off."""
    phi_typical: tuple[float, float] | None = None
    """Median and standard deviation in the logarithm of a weak prior on phi, which data may leave without a bound."""
    parameters: ClassVar[tuple[str, ...]] = ("mean",)
    """Names of the parameters that vary with the inputs, for `parameter`."""

    _origin: Array | None = None
    _phi_ndims: ClassVar[tuple[int, ...]] = (0, 1)  # axes that phi may have

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if cls.__abstractmethods__:
            raise TypeError(_what_is_missing(cls))
        return super().__new__(cls)

    @property
    @abstractmethod
    def support(self) -> Support:
        """Declaration of what y may be, from `ggpm.families.support`."""

    @property
    def kind(self) -> str:
        """Kind of output, by which prediction and plotting choose: the support's, "classes" or "shares"."""
        return "classes" if self.finite else "shares" if self.countable else self.support.kind

    def has(self, name: str) -> bool:
        """Tell whether the family's class gives one of the closed forms in `OPTIONAL`.

        It may still answer None where a setting, such as the link, leaves no closed form.

        >>> from ggpm.families import Poisson
        >>> Poisson().has("cdf"), Poisson().has("predictive_normal")
        (True, False)
        """
        if name not in OPTIONAL:
            raise ValueError(f"{name!r} is not one of the optional methods {', '.join(OPTIONAL)}.")
        return getattr(type(self), name) not in (None, getattr(Family, name))

    # ---- data ------------------------------------------------------------------------------------------------
    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        """Return this family bound to y as the user has it: number of parts, classes or levels, starts of phi.

        What is taken from all rows together, such as their variance, counts a row as often as its weight says.
        """
        self._check_phi()
        self.support.validate(y)
        self.support.check_encoding(self.encode)
        if self.phi is not None and not np.all(np.isfinite(self.log_hyper)):
            raise ValueError(f"phi of {type(self).__name__} must be positive and finite; got {self.phi!r}.")
        return copy.copy(self)

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        """This resolved family with the origin of its latent, and units of its own, taken from y as the user has it.

        Estimators ask for it where the kernel is their own choice, which then suits data of any size.
        """
        return self

    @property
    def origin(self) -> Array:
        """Constant part of the latent, (D,), that estimators add to its mean: zero unless the family is `adapted`."""
        return np.zeros(self.latent_dim) if self._origin is None else self._origin

    def _in_units(self, scale: float) -> Self:
        """A copy in which a phi that is None, and the default bounds with it, are those of data of this size."""
        out = copy.copy(self)
        if self.phi is None:
            out.phi = scale
            own = signature(type(self)).parameters["phi_bounds"].default
            if not isinstance(self.phi_bounds, str) and np.array_equal(self.phi_bounds, own):
                low, high = own
                out.phi_bounds, out.default_bounds = (low * scale, high * scale), True
        return out

    def with_rows(self, n: float) -> Self:
        """This family for n rows, where `resolve` saw only some of them and their number matters."""
        return self

    def _check_phi(self) -> None:
        """Name a phi or phi_bounds of the wrong type or shape."""
        name, own = type(self).__name__, signature(type(self)).parameters.get("phi")
        if self.phi is not None or (own is not None and own.default is not None):
            kinds = ("a number", "a list of numbers", "a matrix")
            what = f"{' or '.join(kinds[ndim] for ndim in self._phi_ndims)} for {name}"
            if self.phi is None:
                raise ValueError(f"phi must be {what}; got None.")
            if (value := as_numbers(self.phi, "phi", what)).ndim not in self._phi_ndims:
                got = f"an array of shape {value.shape}" if value.ndim else f"{self.phi!r}"
                raise ValueError(f"phi must be {what}; got {got}.")
        if isinstance(self.phi_bounds, str) and self.phi_bounds == "fixed":
            return
        what = f'"fixed" or (low, high) with 0 < low <= high for {name}'
        bounds = None if self.phi_bounds is None else as_numbers(self.phi_bounds, "phi_bounds", what)
        if bounds is None or bounds.ndim not in (1, 2) or bounds.shape[-1] != 2 or not _ordered(bounds):
            raise ValueError(f"phi_bounds must be {what}; got {self.phi_bounds!r}.")

    def encode(self, y: Any) -> Array:
        """Return y, as the user has it, in the form that all other methods take; ValueError if outside the support."""
        return self.support.validate(y)

    def decode(self, y: Array) -> Array:
        """Return encoded y as the user has it: the inverse of `encode`, for predictions and samples."""
        return y

    def decode_start(self) -> float | None:
        """Return the start of the range of predictions of angles, as the user has them; None for other outputs."""
        return self.support.decode_start()

    # ---- hyperparameters -------------------------------------------------------------------------------------
    @property
    def learns_phi(self) -> bool:
        """True if phi is to be learned."""
        return self.phi is not None and not isinstance(self.phi_bounds, str)

    @property
    def log_hyper(self) -> Array:
        """phi in unconstrained coordinates, (p,); empty for a family without hyperparameters."""
        if self.phi is None:
            return np.empty(0)
        with np.errstate(invalid="ignore", divide="ignore"):  # `resolve` reports what is not positive
            return np.log(np.atleast_1d(np.asarray(self.phi, dtype=float)))

    @property
    def log_hyper_bounds(self) -> Array:
        """Bounds of `log_hyper`, (p, 2)."""
        if isinstance(self.phi_bounds, str):
            return np.repeat(self.log_hyper[:, None], 2, axis=1)
        return np.log(np.broadcast_to(np.asarray(self.phi_bounds, dtype=float), (self.log_hyper.size, 2)))

    def with_log_hyper(self, value: Array) -> Self:
        """A copy with other hyperparameters."""
        out = copy.copy(self)
        if value.size:
            phi = np.exp(value)
            out.phi = float(phi[0]) if np.ndim(self.phi) == 0 else phi
        return out

    # ---- density and derivatives in eta ------------------------------------------------------------------------
    @abstractmethod
    def log_prob(self, eta: Array, y: Array) -> Array:
        """log p(y | eta), log h(y) included, (...)."""

    @abstractmethod
    def u(self, eta: Array, y: Array) -> Array:
        """Gradient of `log_prob` in eta, (..., D)."""

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """`log_prob` and `u` together, for expectations over many nodes; override it where they share work."""
        return self.log_prob(eta, y), self.u(eta, y)

    @abstractmethod
    def U(self, eta: Array, y: Array, expected: bool = False) -> Curvature:
        """Negative Hessian of `log_prob` in eta, or with ``expected`` its mean over y, which is never indefinite."""

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, Curvature]:
        """`u` and the observed `U` together, for families that compute them from the same numbers."""
        return self.u(eta, y), self.U(eta, y)

    @abstractmethod
    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        """Derivatives of sum_i <V_i, U_i> in eta, (n, D), and in phi, (p,)."""

    # ---- derivatives in phi ------------------------------------------------------------------------------------
    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        """Derivative of `log_prob` in phi, (..., p)."""
        return np.zeros((*eta.shape[:-1], self.log_hyper.size))

    def u_phi(self, eta: Array, y: Array) -> Array:
        """Derivative of `u` in phi, (..., D, p)."""
        return np.zeros((*eta.shape, self.log_hyper.size))

    def phi_slopes(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """`log_prob_phi` and `u_phi` together."""
        return self.log_prob_phi(eta, y), self.u_phi(eta, y)

    # ---- Taylor ------------------------------------------------------------------------------------------------
    def expansion(self, y: Array) -> Array:
        """Point at which Taylor inference expands, finite for every y, (n, D).

        By default the mode of log p(y|eta) - `expansion_ridge` |eta|²/2.
        """
        return ridged_mode(self, y, self.expansion_ridge)

    def expansion_pullback(self, y: Array, cotangent: Array) -> Array:
        """Derivative of <cotangent, expansion(y)> in phi, (p,); zero unless the point moves with phi."""
        if not self.log_hyper.size or type(self).expansion is not Family.expansion:
            return np.zeros(self.log_hyper.size)
        return ridged_mode_pullback(self, y, self.expansion_ridge, cotangent)

    # ---- in the space of y ---------------------------------------------------------------------------------------
    @abstractmethod
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        """E[y | eta], or the expectation of what stands for y: (cos, sin) of an angle, class probabilities."""

    def parameter(self, name: str, eta: Array) -> Array:
        """One of `parameters` as a function of the latent, (...) or of the shape of a moment."""
        return self.point(self.moment(eta))

    def point(self, moment: Array) -> Array:
        """Prediction, as the user has it, that belongs to an averaged `moment`."""
        return self.support.point(moment)

    def constant(self, y: Array, weight: Array | None = None) -> Array:
        """Best constant prediction for the encoded y, rows of some weight, one row, as the user has it."""
        return self.point(np.average(self.support.embed(y), axis=0, weights=weight)[None])

    @abstractmethod
    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        """Variance of y given eta: (...) for scalar outputs, (..., d, d) for vectors."""

    def variance(self, moment: Array, within: Array, between: Array) -> Array:
        """Predictive variance from the averaged moment, E[spread] and Cov[moment]."""
        return self.support.variance(moment, within, between)

    def variance_of(self, moment: Array) -> Array | None:
        """Predictive variance where the averaged moment alone decides it: of classes and angles; else None."""
        if not self.finite:
            return self.support.variance_of(moment)
        if moment.ndim == 1:
            return moment * (1.0 - moment)
        return moment[..., None] * np.eye(moment.shape[-1]) - moment[..., :, None] * moment[..., None, :]

    @abstractmethod
    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        """One draw of y, as the user has it, for every row of eta, (..., shape of one y)."""

    def loss(self, y: Array, prediction: Array) -> Array:
        """Unit loss, (n,), of a prediction as the user has it for encoded y: deviance where finite.

        By default that of the support: the squared error; of angles, one minus the cosine of the difference.
        """
        return self.support.loss(y, prediction)


def _ordered(bounds: Array) -> bool:
    return bool(np.all((bounds[..., 0] > 0) & (bounds[..., 0] <= bounds[..., 1])))


def _what_is_missing(cls: type[Family]) -> str:
    """One sentence that names what a class must still give, and one that says how."""
    names = sorted(cls.__abstractmethods__)
    support = (
        f"{cls.__name__} must say what y may be: give it a support from ggpm.families.support, for example "
        "support = Positive()."
    )
    if names == ["support"]:
        return support
    methods = [name for name in names if name != "support"]
    told = (
        f"{cls.__name__} must give {', '.join(methods)}: write each as a method of the class; "
        f"help(ggpm.families.{_declares(cls, methods[0])}.{methods[0]}) says what it takes and returns."
    )
    return f"{told} {support}" if "support" in names else told


def _declares(cls: type[Family], name: str) -> str:
    """Name of the base class that asks for a method."""
    return next(base.__name__ for base in reversed(cls.__mro__) if name in vars(base))
