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
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ggpm.data.checks import as_numbers
from ggpm.families.curvature import Curvature, Diagonal, Marginals
from ggpm.families.expansion import ridged_mode, ridged_mode_pullback
from ggpm.families.links import Identity, Link, mean_link
from ggpm.families.support.base import Support

Array = NDArray[np.float64]
Bounds = tuple[float, float] | Literal["fixed"]


OPTIONAL = (
    "expected_log_prob",
    "expected_log_prob_blocks",
    "expected_log_prob_factorised",
    "expected_log_prob_wide",
    "expected_over_last",
    "log_expected_prob_factorised",
    "predictive_log_prob",
    "fewer_latents",
    "predictive_normal",
    "predictive_moments",
    "predictive_harmonics",
    "cdf",
    "natural",
    "part_log_prob",
    "part_tails",
    "part_laws",
    "part_mixtures",
    "scale_terms",
    "entry_laws",
    "share_spread",
    "own_draws",
    "quick_log_prob",
)
"""Closed forms that a family may give; each is a method of `Family` that answers None, and `Family.has` tells which
ones a class overrides. What uses them has a general way for the rest, and tests compare the two."""


class Density(Protocol):
    """What averages of p(y | eta) over eta ask of it; every `Family` is one."""

    shift_invariant: ClassVar[bool]

    def log_prob(self, eta: Array, y: Array) -> Array: ...

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, Any]: ...

    def U(self, eta: Array, y: Array, expected: bool = False) -> Any: ...

    def expansion(self, y: Array) -> Array: ...


class Fewer(Density, Protocol):
    """What is left of a density when some latents are integrated."""

    def beside(self, y: Array) -> Array | None:
        """log of what averages over the latents that are left do not hold, (n,)."""


class OwnDraws(Protocol):
    """N equally probable draws of y from the predictive distribution of every row, known by their log densities."""

    def rough(self) -> Array:
        """Log predictive densities (m, N), whose order is nearly right."""

    def fine(self, rows: NDArray[np.intp], which: NDArray[np.intp]) -> Array:
        """Log predictive densities of some draws (k, n) of some rows (k,)."""

    def quantile(self, q: float) -> Array | None:
        """The q-quantile of the log densities of every row, (m,), where it is known without draws."""


ROUNDING = 64 * np.finfo(float).eps
"""Standard deviation, relative to the largest number, that rounding errors alone may have."""


def moments(rows: Array, weight: Array | None = None) -> tuple[Any, Any]:
    """Mean and variance over the rows, each of which counts as often as its weight says.

    Numbers that differ by rounding alone have no variance.

    >>> moments(np.array([1.0, 4.0]), np.array([2.0, 1.0]))
    (np.float64(2.0), np.float64(2.0))
    """
    if weight is None:
        mean, variance = rows.mean(axis=0), rows.var(axis=0)
    else:
        mean = np.average(rows, axis=0, weights=weight)
        variance = np.average((rows - mean) ** 2, axis=0, weights=weight)
    if len(rows) and np.any(unsure := variance <= (ROUNDING * np.abs(rows).max(axis=0)) ** 2):
        variance = np.where(unsure, 0.0, variance)[()]
    return mean, variance


def bound(family: Family, y: Any, weight: Array | None = None, adapt: bool = False) -> Family:
    """The family resolved by y, and adapted to it if asked for; a user's own may take no weights.

    >>> from ggpm.families import Gaussian
    >>> bound(Gaussian(), [1.0, 4.0], np.array([2.0, 1.0])).latent_variance
    2.0
    """
    for name in ("resolve", "adapted") if adapt else ("resolve",):
        method = getattr(family, name)
        takes = weight is not None and "weight" in signature(method).parameters
        family = method(y, weight) if takes else method(y)
    return family


def check_spread(family: Family, y: Any) -> None:
    """Raise ValueError where a family with a latent scale is to learn it from y that are all alike: it has no bound."""
    if getattr(family, "needs_spread", None) is None:  # a user's own may know nothing of it
        return
    (least, instead), values = family.needs_spread, family.encode(y)  # type: ignore[misc]
    rows = family.support.embed(values) if family.kind == "angles" else values  # type: ignore[attr-defined]
    sd, size = np.sqrt(moments(rows)[1]).max(), np.abs(rows).max()
    if len(values) > 1 and sd <= least * size:
        rest = "" if sd == 0 else f" but for {sd / size:.0e} of its size"
        raise ValueError(
            f"y is the same in all {len(values)} rows{rest}: {type(family).__name__} learns its "
            f"{family.parameters[1]} from how y spreads, which bounds nothing here. Try {instead!r}."  # type: ignore[attr-defined]
        )


class Family(BaseEstimator, ABC):
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

    # ---- closed forms that a family may give: see OPTIONAL -------------------------------------------------------
    def expected_log_prob(self, mean: Array, var: Array, y: Array) -> Any:
        """E[log p] over independent latents eta ~ N(mean, var), for a log p that is a sum over the latents.

        Value (n,) and its derivatives in mean and var, (n, D) each; None if there is no closed form.
        """
        return None

    def expected_log_prob_blocks(self, mean: Array, cov: Array, y: Array) -> Any:
        """E[log p] over eta ~ N(mean, cov), full covariances (n, D, D).

        Value (n,), its derivative in the mean (n, D), and minus twice that in the covariance, a `Curvature`; None if
        there is no closed form.
        """
        return None

    def expected_log_prob_factorised(self, mean: Array, var: Array, y: Array, second: bool = False) -> Any:
        """E[log p] over independent latents eta ~ N(mean, var), for a log p that couples them.

        A `Smoothed`: value and first derivatives, second ones in the mean, and with ``second`` all of them; None if
        there is no closed form.
        """
        return None

    def expected_log_prob_wide(self, mean: Array, cov: Array, y: Array) -> Any:
        """E[log p] over eta ~ N(mean, cov), what `expected_log_prob_blocks` gives: for latents that are wide.

        Rows whose latents are narrow, beside one or beside a quarter of their length, have nodes; None if there is no
        closed form.
        """
        return None

    def expected_over_last(self, eta: Array, sd: Array, y: Array) -> Any:
        """E[log p] over the last latent, N(eta_D, sd^2), given the others, eta (S, n, D) and sd (n,).

        Values (S, n), their derivative in eta (S, n, D), and minus twice that in the variance (S, n): an integral over
        fewer latents is left. None if there is no closed form.
        """
        return None

    def log_expected_prob_factorised(self, mean: Array, var: Array, y: Array, gradient: bool = False) -> Any:
        """log E[p(y)] over independent latents eta ~ N(mean, var), (n,), and its derivatives in both if asked for.

        None if there is no closed form.
        """
        return None

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Any:
        """log E[p(y)] over eta ~ N(mean, cov), full covariances (m, D, D): (m,); None if there is no closed form.

        nan in rows that have none.
        """
        return None

    def fewer_latents(self, mean: Array, cov: Array, y: Array) -> tuple[Fewer, Array, Array, Array] | None:
        """Density, mean, covariance and y of an integral over fewer latents that is E[p(y)]; None if there is none.

        What the density's `beside` gives is added to it.
        """
        return None

    def predictive_normal(self, mean: Array, cov: Array) -> Any:
        """Mean and standard deviation of each output, (m, d), where y is normal for eta ~ N(mean, cov); else None."""
        return None

    def predictive_moments(self, mean: Array, cov: Array) -> Any:
        """`moment` averaged over eta ~ N(mean, cov), (m, ...), for one trial, and the variance (m, ...) or covariance
        (m, d, d) of y, or None in its place where averages are as good; None if there is no better form for both, nan
        in rows that have none.
        """
        return None

    def predictive_harmonics(self, mean: Array, cov: Array) -> Any:
        """Rows, and their E[exp(i n y)] for angles y in radians, eta ~ N(mean, cov), n = 0, 1, ... until they vanish,
        (k, N), some rows at a time. Rows without such a form do not come; None if there is none for any.
        """
        return None

    def cdf(self, eta: Array, y: Array) -> Any:
        """P(Y <= y | eta) for encoded y, (...), or of every part, (..., d); None if y has no order or no such form."""
        return None

    def sf(self, eta: Array, y: Array) -> Any:
        """P(Y > y | eta) beside `cdf`; where a family gives it, small ones keep their digits."""
        below = self.cdf(eta, y)
        return None if below is None else 1.0 - below

    def natural(self, eta: Array) -> Any:
        """theta (..., q) and b (...) of log p = theta . T(y) - b + log h(y), `statistic` giving the rest; else None.

        For densities at many nodes and many y at once, where the product over both is one of matrices. Digits may be
        lost that `log_prob` keeps: as many as theta . T(y) has before the point.
        """
        return None

    def statistic(self, y: Array) -> Any:
        """T(y) (..., q) and log h(y) (...) of encoded y, beside `natural`."""
        return None

    def part_log_prob(self, eta: Array, z: Array) -> Any:
        """Log density of every part alone at every node: eta (n, S, D) and z (n, G, d) give (n, d, S, G).

        z is the logit of the part's place between the bounds of the support, and the density is per unit of z, so that
        parts next to a bound keep their digits; None if there is no such form.
        """
        return None

    def scale_terms(self, eta: Array, y: Array) -> Any:
        """A and B of log p = constant + log int exp(sum_j [A_j + r B_j + h_j]) dtau; None if there is no such form.

        One latent at a time: of eta and its own part of y, in any shapes that go together. `scale_slopes` are their
        derivatives, `scale_weight` gives r and h_j as functions of tau, `scale_mode` the tau that belongs to a sum of
        B, `scale_constant` the rest; in tau the integrand is like the density of the logarithm of a gamma variable.
        Averages of p over latents that are independent, or nearly so, are then integrals of one or two dimensions,
        whatever D (`ggpm.families.special.one_scale`).
        """
        return None

    def scale_slopes(self, eta: Array, y: Array) -> Any:
        """First and second derivatives of A, and those of B, beside `scale_terms`."""
        return None

    def scale_weight(self, tau: Array, y: Array) -> Any:
        """r of tau, and h_j of tau and the parts of y, beside `scale_terms`."""
        return None

    def scale_factor(self, eta: Array, tau: Array, y: Array) -> Any:
        """A_j + r B_j + h_j with no digits lost where these are large, beside `scale_terms`."""
        return None

    def scale_pinned(self, tau: Array, y: Array) -> Any:
        """Latents at which exp(A_j + r B_j + h_j) is a point mass, nan where it is not, and its logarithm."""
        return None

    def scale_mode(self, S: Array, y: Array) -> Any:
        """tau (k,) at which r S + sum_j h_j is largest, minus its second derivative, the slope of r there; y (D, k)."""
        return None

    def scale_constant(self, y: Array) -> Any:
        """The rest of log p, (k,), for y (D, k), beside `scale_terms`."""
        return None

    def entry_laws(self) -> Any:
        """Laws of the entries of y given the latent, a list of `EntryLaw`, g of shape phi/2; None if unknown."""
        return None

    def own_draws(self, mean: Array, cov: Array, n: int) -> OwnDraws | None:
        """At least n draws from every row's predictive distribution, eta ~ N(mean, cov); None if there is no quick way.

        They are the same every time, for highest-density regions: what is asked of them are their densities alone.
        """
        return None

    def quick_log_prob(self, mean: Array, cov: Array, y: Array) -> Any:
        """log E[p(y)] at many encoded y of every row, (N, m, ...) -> (N, m), to 0.01 or so; None if there is no way."""
        return None

    def part_tails(self, eta: Array, rest: Array) -> Any:
        """P(part - low <= rest) and P(high - part <= rest), low and high the bounds of the support, (2, ..., d).

        Beside `part_log_prob`, for what is closer to a bound than floats next to it tell; None if unknown.
        """
        return None

    def part_laws(self, mean: Array, cov: Array) -> Any:
        """Laws like `WidePart` of the logits of all parts, d in a row, where latents are too wide for nodes; else None.

        Beside `part_log_prob`: a list with an entry for every row of latents N(mean, cov).
        """
        return None

    def part_mixtures(self, mean: Array, cov: Array) -> Any:
        """Laws of the logit of every part's share for eta ~ N(mean, cov), an iterator of `ShareMixtures`; else None."""
        return None

    def share_spread(self, eta: Array, trials: Array | None = None) -> Any:
        """s (...) of a `spread` that is s (diag(p) - p p^T), p the `moment` of one trial; None if it is not.

        Averages over many nodes then have no matrix for every node.
        """
        return None


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


class ScalarFamily(Family):
    """A family with one latent, written in a coordinate ``xi`` to which an elementwise link carries eta.

    A subclass gives ``support``, `log_prob_xi`, `derivatives`, `moment`, `spread`, `sample`, and where it applies
    `phi_derivatives` and `information`; the chain rule through the link is done here.
    """

    latent_dim = 1

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        _ = self._link  # an unknown link name is an error here, before any computation
        return super().resolve(y, weight)

    @property
    def _link(self) -> Link:
        return Identity()

    @abstractmethod
    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        """log p as a function of xi, (...)."""

    @abstractmethod
    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """First, second and third derivative of log p in xi."""

    def score(self, xi: Array, y: Array) -> Array:
        """First derivative of log p in xi alone; override it where the others cost more."""
        return self.derivatives(xi, y)[0]

    def log_prob_and_score(self, xi: Array, y: Array) -> tuple[Array, Array]:
        """`log_prob_xi` and `score` together; override it where they share work."""
        return self.log_prob_xi(xi, y), self.score(xi, y)

    def first_two(self, xi: Array, y: Array) -> tuple[Array, Array]:
        """First and second derivative of log p in xi alone; override it where the third costs more."""
        return self.derivatives(xi, y)[:2]

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """Derivatives in phi of log p and of its first and second derivative in xi, each (..., p)."""
        none = np.zeros((*np.broadcast_shapes(xi.shape, self._rows(y)), self.log_hyper.size))
        return none, none, none

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """Expected negative second derivative in xi, its derivative in xi, and in phi (..., p).

        The default is the observed one: right wherever log p is concave in xi.
        """
        _, l2, l3 = self.derivatives(xi, y)
        return -l2, -l3, -self.phi_derivatives(xi, y)[2]

    def all_derivatives(self, xi: Array, y: Array) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
        """`derivatives` and `phi_derivatives` together; override it where they share most of the work."""
        return self.derivatives(xi, y), self.phi_derivatives(xi, y)

    def _rows(self, y: Array) -> tuple[int, ...]:
        """Leading shape of an encoded y."""
        return y.shape

    def log_prob(self, eta: Array, y: Array) -> Array:
        return self.log_prob_xi(self._link(eta[..., 0]), y)

    def u(self, eta: Array, y: Array) -> Array:
        xi, slope = self._link.with_slope(eta[..., 0])
        return (self.score(xi, y) * slope)[..., None]

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        xi, slope = self._link.with_slope(eta[..., 0])
        log_p, score = self.log_prob_and_score(xi, y)
        return log_p, (score * slope)[..., None]

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, Diagonal]:
        e = eta[..., 0]
        (l1, l2), (g1, g2, _) = self.first_two(self._link(e), y), self._link.derivatives(e)
        return (l1 * g1)[..., None], Diagonal(-(l2 * g1**2 + l1 * g2)[..., None])

    def U(self, eta: Array, y: Array, expected: bool = False) -> Diagonal:
        if not expected:
            return self.u_and_U(eta, y)[1]
        e = eta[..., 0]
        g1, _, _ = self._link.derivatives(e)
        return Diagonal((self.information(self._link(e), y)[0] * g1**2)[..., None])

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        e, v = eta[..., 0], V.diag[..., 0]
        xi, (g1, g2, g3) = self._link(e), self._link.derivatives(e)
        if expected:
            info, info_xi, info_phi = self.information(xi, y)
            d_eta = info_xi * g1**3 + 2.0 * info * g1 * g2
            U_phi = info_phi * (g1**2)[..., None]
        else:
            (l1, l2, l3), (_, l1_phi, l2_phi) = self.all_derivatives(xi, y)
            d_eta = -(l3 * g1**3 + 3.0 * l2 * g1 * g2 + l1 * g3)
            U_phi = -(l2_phi * (g1**2)[..., None] + l1_phi * g2[..., None])
        return (v * d_eta)[..., None], np.tensordot(v, U_phi, axes=v.ndim)

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        return self.phi_derivatives(self._link(eta[..., 0]), y)[0]

    def u_phi(self, eta: Array, y: Array) -> Array:
        return self.phi_slopes(eta, y)[1]

    def phi_slopes(self, eta: Array, y: Array) -> tuple[Array, Array]:
        e = eta[..., 0]
        l_phi, l1_phi, _ = self.phi_derivatives(self._link(e), y)
        return l_phi, (l1_phi * self._link.derivatives(e)[0][..., None])[..., None, :]


class DispersedMean(ScalarFamily):
    """A scalar family with a positive mean, ``exp(eta)`` or ``softplus(eta)``, and a dispersion phi."""

    _phi_ndims = (0,)

    def __init__(self, phi: float | None = 1.0, phi_bounds: Bounds = (1e-5, 1e5), link: str = "log"):
        self.phi = phi
        self.phi_bounds = phi_bounds
        self.link = link

    @property
    def _link(self) -> Link:
        return mean_link(self.link)

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return np.exp(self._link(eta[..., 0]))


class PositiveMean(DispersedMean):
    """A `DispersedMean` of positive numbers, which have a unit: its latent starts from the mean of the data."""

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        out = super().resolve(y, weight)
        out.log_unit = float(np.log(moments(self.encode(y), weight)[0]))
        return out

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        out = copy.copy(self)
        out._origin = self._link.inverse(np.log([moments(self.encode(y), weight)[0]]))
        return out
