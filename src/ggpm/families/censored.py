"""Censored outputs: rows of which only bounds are known, by a detection limit, or because the end was not seen."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from ggpm.data import frames
from ggpm.data.checks import as_numbers
from ggpm.data.text import Message, Row, stacklevel
from ggpm.families.base import Array, Family, bound
from ggpm.families.between import BEYOND, Averages, least
from ggpm.families.curvature import Blocks, Curvature, Diagonal, Marginals
from ggpm.families.gamma import Gamma
from ggpm.families.gaussian import Gaussian
from ggpm.families.tails import OneBound, Tails
from ggpm.families.wrapped import Wrapped


class Censored(Wrapped):
    """Rows of which lower and upper bounds are known, around a family of one number per row.

    =================  ============================================================
    row of y           contribution to the likelihood
    =================  ============================================================
    lower = upper      log p(y): the number itself
    lower, infinity    log P(Y > lower): censored on the right, still alive
    -infinity, upper   log P(Y <= upper): censored on the left, below a limit
    lower < upper      log P(lower < Y <= upper): seen between two visits
    =================  ============================================================

    y is an array (n, 2) or a frame with columns for lower and upper bounds; y (n,) is known in all rows. A lower bound
    of 0 is none for positive numbers and shares; for counts it is P(Y > 0), and -1 is none. Predictions are of the
    number itself, censored or not: ``model.family_`` is the family inside. `right_censored` makes y from times and
    events.

    Where xi of a family shifts y or log y, probabilities have closed forms (`ggpm.families.tails`), and so have single
    bounds of `GaussianMeanScale`. Others are differences of distribution functions, or where these have no digits
    averages over what lies between the bounds, as their derivatives are (`ggpm.families.between`): to ten digits, but
    that derivatives see shares only up to the last float below 1.

    Parameters
    ----------
    base : Family
        Of real numbers (one column), positive numbers, shares or counts, with one latent or with one for each
        parameter. Angles, classes and families with exact zeros have no bounds.

    Examples
    --------
    >>> from ggpm.families import Weibull
    >>> y = np.array([[2.0, 2.0], [2.0, np.inf]])
    >>> Censored(Weibull(phi=1.0)).log_prob(np.zeros((2, 1)), y).round(12)
    array([-2., -2.])
    """

    def __init__(self, base: Family | None = None) -> None:
        base = Gamma() if base is None else base
        if not isinstance(base, Family):
            raise TypeError(f"Censored takes a family, such as Gamma() or Weibull(); got {base!r}.")
        super().__init__(base)

    # ---- data ------------------------------------------------------------------------------------------------
    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        reason = why_not(self.base)
        if reason:
            raise TypeError(
                f"Censored takes families of one number per row, such as Gaussian(), Weibull(), Beta(), Poisson() or "
                f"StudentT(); {type(self.base).__name__} {reason}."
            )
        bounds = self.encode(y)
        for none, word in ((bounds[:, 1] >= BEYOND, "an upper"), (bounds[:, 0] <= self._least, "a lower")):
            if none.all():
                warnings.warn(
                    f"no row of y has {word} bound or is known: how far y lies beyond the bounds that there are is the "
                    "prior's to say, and predictions of it may be without limit. Rows that are known are needed, or a "
                    "kernel of a size that you trust, held fixed.",
                    UserWarning,
                    stacklevel=stacklevel(),
                )
        return self.with_base(bound(self.base, self.middle(bounds), weight))

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        adapted = getattr(self.base, "adapted")  # noqa: B009
        return self.with_base(adapted(self.middle(self.encode(y)), weight))

    @property
    def _least(self) -> float:
        return least(self.base)

    def encode(self, y: Any) -> Array:
        what = "numbers, or lower and upper bounds in two columns"
        out = as_numbers(frames.values_of(y), "y", what)
        if out.ndim == 1 or out.shape[1:] == (1,):
            known = self.base.encode(out).reshape(-1)
            return np.stack([known, known], axis=-1)
        if out.shape[1:] != (2,) or np.isnan(out).any():
            raise ValueError(f"y must be {what}, without NaN; got an array of shape {out.shape}.")
        known = (out[:, 0] == out[:, 1]) & np.isfinite(out[:, 0])
        # what is not in the support is named by the family inside, among numbers that are
        self.base.encode(np.where(known, out[:, 0], 0.5 if np.isfinite(self.support.high) else 1.0))
        lower, upper = np.maximum(out[:, 0], self._least), out[:, 1]
        if self.support.integer:  # the counts that are meant
            lower, upper = np.where(known, lower, np.floor(lower)), np.floor(upper)
        upper = np.where(upper >= self.support.high, BEYOND, np.minimum(upper, BEYOND))
        faults = (
            ((lower >= self.support.high) | (lower >= BEYOND), "lower bounds that no observation lies above"),
            (out[:, 0] > out[:, 1], "lower bounds above the upper ones"),
            (upper <= self._least, "upper bounds that no observation lies below"),
            (~known & (lower >= upper), "bounds between which no count lies"),
            ((lower <= self._least) & (upper >= BEYOND), "no bound at all"),
        )
        for bad, told in faults:
            if np.any(bad := bad & ~known):
                row = int(bad.argmax())
                told = f"y has {told} in {int(bad.sum())} row(s); row "
                order = (
                    ". Columns are lower and upper bounds; of times and events right_censored(time, event) makes them."
                )
                raise ValueError(Message(told, Row(row), f" is {out[row].tolist()}{order}"))
        return np.stack([lower, upper], axis=-1)

    def decode(self, y: Array) -> Array:
        return y

    def middle(self, y: Array) -> Array:
        """One number per row of encoded y: itself, its only bound, or between two; of positive ones in ratio."""
        lower, upper = y[..., 0], y[..., 1]
        left, right = lower <= self._least, upper >= BEYOND
        low, high = np.where(left, upper, lower), np.where(right, lower, upper)
        if self.support.integer:
            return np.where(low == high, low + (right & ~left), np.ceil(0.5 * (low + high)))
        if np.isfinite(self.support.low) and not np.isfinite(self.support.high):
            return np.sqrt(low) * np.sqrt(high)
        return 0.5 * low + 0.5 * high

    def _number(self, y: Array) -> Array:
        """A y of the family inside, encoded, from one number per row."""
        return y[..., None] if self.support.row_ndim else y

    def expansion(self, y: Array) -> Array:
        return self.base.expansion(self._number(self.middle(y)))

    # ---- density -----------------------------------------------------------------------------------------------
    @property
    def _bounds(self) -> Any:
        """Density of rows of bounds: in closed form where the family has one, else by averages."""
        line = self.base.line() if isinstance(self.base, Gaussian) else self.base
        return Tails(line) if hasattr(line, "log_tails") else Averages(self.base)

    def _kinds(self, y: Array) -> list[tuple[Any, Any, Array]]:
        """Rows that are alike, what gives their density, and their y: numbers, single bounds, bounds."""
        seen = y[:, 0] == y[:, 1]
        out, hidden = [(seen, self.base, self._number(y[seen, 0]))], ~seen
        if hasattr(self.base, "survival_profile"):
            single = hidden & ((y[:, 0] <= self._least) | (y[:, 1] >= BEYOND))
            out.append((single, OneBound(self.base), y[single]))
            hidden = hidden & ~single
        out.append((hidden, self._bounds, y[hidden]))
        return [kind for kind in out if kind[0].any()] or out[:1]

    def _rows(self, name: str, eta: Array, y: Array, *more: Any) -> Array:
        """What a method says of every row: of the family inside where there is a number, else of the bounds."""
        D, lead = eta.shape[-1], np.broadcast_shapes(eta.shape[:-1], y.shape[:-1])
        flat, rows = np.broadcast_to(eta, (*lead, D)).reshape(-1, D), np.broadcast_to(y, (*lead, 2)).reshape(-1, 2)
        parts = [(some, _dense(getattr(of, name)(flat[some], z, *more))) for some, of, z in self._kinds(rows)]
        out = np.empty((len(flat), *parts[0][1].shape[1:]))
        for some, value in parts:
            out[some] = value
        return out.reshape(*lead, *out.shape[1:])

    def log_prob(self, eta: Array, y: Array) -> Array:
        return self._rows("log_prob", eta, y)

    def u(self, eta: Array, y: Array) -> Array:
        return self._rows("u", eta, y)

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        both = self._rows("log_prob_and_u", eta, y)
        return both[..., 0], both[..., 1:]

    def U(self, eta: Array, y: Array, expected: bool = False) -> Curvature:
        out = self._rows("U", eta, y, expected)
        return Diagonal(out[..., 0]) if self.latent_dim == 1 else Blocks(out)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        weights = V.dense()
        out, phi = np.empty(eta.shape), np.zeros(self.log_hyper.size)
        for rows, family, some in self._kinds(y):
            out[rows], of_phi = family.U_pullback(eta[rows], some, Blocks(weights[rows]), expected)
            phi = phi + of_phi
        return out, phi

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        return self._rows("log_prob_phi", eta, y)

    def u_phi(self, eta: Array, y: Array) -> Array:
        return self._rows("u_phi", eta, y)

    def loss(self, y: Array, prediction: Array) -> Array:
        return self.base.loss(self._number(self.middle(y)), prediction)


def _dense(value: Any) -> Array:
    """A curvature as matrices, a value and its gradient side by side, an array as it is."""
    if isinstance(value, tuple):
        return np.concatenate([value[0][:, None], value[1]], axis=1)
    return value if isinstance(value, np.ndarray) else value.dense()


def why_not(family: Family) -> str:
    """Why a family's y cannot be censored; nothing if it can.

    >>> from ggpm.families import VonMises
    >>> why_not(Gamma()), why_not(VonMises())
    ('', 'has angles, which have no order')
    """
    support = family.support
    if family.finite or family.countable:
        return "has classes, or counts out of a known number"
    if family.kind == "angles":
        return "has angles, which have no order"
    if support.atoms:
        return "has exact numbers with a probability of their own"
    if not family.has("cdf") or support.row_ndim > 1 or (support.row_ndim and family.latent_dim > 1):
        return "has no distribution function of one number"
    return ""


def right_censored(time: Any, event: Any) -> Array:
    """y for `Censored` from times and whether the event was seen there (True or 1, else False or 0), (n, 2).

    >>> right_censored([3.0, 5.0], [True, False])
    array([[ 3.,  3.],
           [ 5., inf]])
    """
    time = as_numbers(time, "time", "one number per row")
    event = np.asarray(event)
    if time.ndim != 1 or event.shape != time.shape:
        raise ValueError(f"time and event must be one per row; got shapes {time.shape} and {event.shape}.")
    seen = event == 1
    if np.any(other := ~(seen | (event == 0))):
        row = int(np.argmax(other))
        raise ValueError(
            f"event must be True or 1 where it was seen, False or 0 where time is a bound; got {event[row]!r} in row "
            f"{row}. Of a status that is coded otherwise give event=(status == 2), or what means that it was seen."
        )
    return np.stack([time, np.where(seen, time, np.inf)], axis=-1)
