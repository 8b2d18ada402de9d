"""Censored outputs: rows of which only bounds are known, by a detection limit, or because the end was not seen."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from ggpm.data import frames
from ggpm.data.checks import as_numbers
from ggpm.families.base import Array, Family, ScalarFamily, bound
from ggpm.families.gamma import Gamma
from ggpm.families.links import Link
from ggpm.families.wrapped import Wrapped

TAILS = "log_tails"
"""Method by which a family of one number says that it can be censored."""
BEYOND = float(np.finfo(float).max)  # stands for infinity in encoded y, which files hold as finite numbers


class Censored(Wrapped, ScalarFamily):
    """Rows of which lower and upper bounds are known, around a family of positive numbers with log link.

    =================  ============================================================
    row of y           contribution to the likelihood
    =================  ============================================================
    lower = upper      log p(y): the number itself
    lower, infinity    log P(Y > lower): censored on the right, still alive
    0, upper           log P(Y <= upper): censored on the left, below a limit
    lower < upper      log P(lower < Y <= upper): seen between two visits
    =================  ============================================================

    y is an array (n, 2) or a frame with columns for lower and upper bounds; y (n,) is known in all rows. All of these
    are concave in the latent. Predictions are of the number itself, censored or not: ``model.family_`` is the family
    inside. `right_censored` makes y from times and events.

    Parameters
    ----------
    base : Gamma, LogNormal or Weibull
        Or a `ScalarFamily` of your own with `log_tails`, `survival_jet` and `tail_phi`, whose xi is a shift of log y.

    Examples
    --------
    >>> from ggpm.families import Weibull
    >>> y = np.array([[2.0, 2.0], [2.0, np.inf]])
    >>> Censored(Weibull(phi=1.0)).log_prob(np.zeros((2, 1)), y)
    array([-2., -2.])
    """

    def __init__(self, base: Family | None = None) -> None:
        base = Gamma() if base is None else base
        super().__init__(base)

    @property
    def _link(self) -> Link:
        base: Any = self.base
        return base._link

    def _rows(self, y: Array) -> tuple[int, ...]:
        return y.shape[:-1]

    # ---- data ------------------------------------------------------------------------------------------------
    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        if not hasattr(self.base, TAILS):
            raise TypeError(
                f"Censored takes families with log_tails: Gamma, LogNormal and Weibull; got {type(self.base).__name__}."
            )
        return self._around(bound(self.base, self.middle(self.encode(y)), weight))

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        adapted = getattr(self.base, "adapted")  # noqa: B009
        return self._around(adapted(self.middle(self.encode(y)), weight))

    def _around(self, base: Family) -> Self:
        out = copy.copy(self)
        out.base = base
        return out

    def encode(self, y: Any) -> Array:
        what = "numbers, or lower and upper bounds in two columns"
        out = as_numbers(frames.values_of(y), "y", what)
        if out.ndim == 1 or out.shape[1:] == (1,):
            known = self.base.encode(out)
            return np.stack([known, known], axis=-1)
        if out.shape[1:] != (2,) or np.isnan(out).any():
            raise ValueError(f"y must be {what}, without NaN; got an array of shape {out.shape}.")
        lower, upper = np.maximum(out[:, 0], self.support.low), out[:, 1]
        says_nothing = (lower <= self.support.low) & (upper >= BEYOND)
        faults = (
            (upper <= self.support.low, "upper bounds that no observation lies below"),
            (lower > upper, "lower bounds above the upper ones"),
            (says_nothing, "no bound at all"),
        )
        for bad, told in faults:
            if bad.any():
                row = int(bad.argmax())
                raise ValueError(f"y has {told} in {int(bad.sum())} row(s); row {row} is {out[row].tolist()}.")
        return np.stack([lower, np.minimum(upper, BEYOND)], axis=-1)

    def decode(self, y: Array) -> Array:
        return y

    def middle(self, y: Array) -> Array:
        """One number per row of encoded y: itself, its only bound, or the geometric mean of two."""
        lower, upper = y[..., 0], y[..., 1]
        left, right = lower <= self.support.low, upper >= BEYOND
        with np.errstate(invalid="ignore"):
            between = np.sqrt(np.where(left, 1.0, lower)) * np.sqrt(np.where(right, 1.0, upper))
        return np.where(left, upper, np.where(right, lower, between))

    def expansion(self, y: Array) -> Array:
        return self.base.expansion(self.middle(y))

    # ---- density -----------------------------------------------------------------------------------------------
    def _parts(self, y: Array) -> tuple[Array, Array, Any, Any, Any]:
        """Bounds that formulas can take everywhere, and which rows are known, have a lower and an upper bound."""
        lower, upper = y[..., 0], y[..., 1]
        known, has_lower, has_upper = lower == upper, lower > self.support.low, upper < BEYOND
        some = self.middle(y)
        return np.where(has_lower, lower, some), np.where(has_upper, upper, some), known, has_lower, has_upper

    def _log_mass(self, xi: Array, y: Array) -> Array:
        """log P(lower < Y <= upper), from the tail in which it keeps its digits."""
        low, high, _, has_lower, has_upper = self._parts(y)
        base: Any = self.base
        with np.errstate(all="ignore"):
            (F_low, S_low), (F_high, S_high) = base.log_tails(xi, low), base.log_tails(xi, high)
            above = S_low + np.log(-np.expm1(np.minimum(S_high - S_low, 0.0)))
            below = F_high + np.log(-np.expm1(np.minimum(F_low - F_high, 0.0)))
        both = np.where(S_low < F_high, above, below)
        return np.where(has_lower & has_upper, both, np.where(has_lower, S_low, F_high))

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        low, _, known, _, _ = self._parts(y)
        base: Any = self.base
        return np.where(known, base.log_prob_xi(xi, low), self._log_mass(xi, y))

    def _ends(self, xi: Array, y: Array) -> list[tuple[float, Array, Array]]:
        """Sign, place y and y p(y) over the mass of upper and lower end; 0 where there is none."""
        low, high, known, has_lower, has_upper = self._parts(y)
        base: Any = self.base
        log_mass, out = self._log_mass(xi, y), []
        for sign, at, there in ((1.0, high, has_upper), (-1.0, low, has_lower)):
            with np.errstate(all="ignore"):
                ratio = np.exp(base.log_prob_xi(xi, at) + np.log(at) - log_mass)
            out.append((sign, at, np.where(there & ~known & np.isfinite(ratio), ratio, 0.0)))
        return out

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        low, high, known, has_lower, has_upper = self._parts(y)
        base: Any = self.base
        above = ~has_upper | (base.log_tails(xi, low)[1] < base.log_tails(xi, high)[0])  # in the upper tail
        # the mass A is a difference of distribution functions of log y - xi: A' = -[y p], A'' = -[y p l'], ...
        A: list[Any] = [0.0, 0.0, 0.0]
        for sign, at, r in self._ends(xi, y):
            l1, l2, _ = base.derivatives(xi, at)
            for j, factor in enumerate((1.0, l1, l1 * l1 + l2)):
                A[j] = A[j] - sign * r * factor
        a1, a2, a3 = A
        found: list[Any] = [a1, a2 - a1 * a1, a3 - 3.0 * a1 * a2 + 2.0 * a1**3]
        found = [np.where(has_lower & above, s, f) for s, f in zip(self._tail_jet(xi, low, high, has_upper), found)]
        l1, l2, l3 = (np.where(known, own, f) for own, f in zip(base.derivatives(xi, low), found))
        return l1, l2, l3

    def _tail_jet(self, xi: Array, low: Array, high: Array, has_upper: Any) -> list[Array]:
        """Derivatives of log(S(low) - S(high)), by those of log S: large hazards do not cancel."""
        base: Any = self.base
        first, second = base.survival_jet(xi, low), base.survival_jet(xi, high)
        gap = base.log_tails(xi, low)[1] - base.log_tails(xi, high)[1]
        with np.errstate(all="ignore"):
            r = np.where(has_upper & (gap > 0), 1.0 / np.expm1(gap), 0.0)
        d1, d2, d3 = (np.where(r > 0, a - b, 0.0) for a, b in zip(first, second))
        r1, r2 = -r * (1.0 + r), r * (1.0 + r) * (1.0 + 2.0 * r)  # of log(1 - exp(-gap))
        more = r * d1, r1 * d1**2 + r * d2, r2 * d1**3 + 3.0 * r1 * d1 * d2 + r * d3
        return [a + b for a, b in zip(first, more)]

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        low, _, known, _, _ = self._parts(y)
        base: Any = self.base
        if not base.log_hyper.size:
            return base.phi_derivatives(xi, low)
        ends = self._ends(xi, y)
        a_phi = sum(sign * r * base.tail_phi(xi, at) for sign, at, r in ends)
        a1 = a2 = d1 = d2 = np.zeros_like(low + xi)
        for sign, at, r in ends:
            l1 = base.derivatives(xi, at)[0]
            lp, l1_phi, _ = (v[..., 0] for v in base.phi_derivatives(xi, at))
            a1, a2 = a1 - sign * r, a2 - sign * r * l1
            d1, d2 = d1 - sign * r * lp, d2 - sign * r * (lp * l1 + l1_phi)
        d1, d2 = d1 - a1 * a_phi, d2 - a2 * a_phi
        found = a_phi, d1, d2 - 2.0 * a1 * d1
        own = (v[..., 0] for v in base.phi_derivatives(xi, low))
        l_phi, l1_phi, l2_phi = (np.where(known, o, f)[..., None] for o, f in zip(own, found))
        return l_phi, l1_phi, l2_phi

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        # of known rows; of others the observed one, as who will be censored is not part of the model
        low, _, known, _, _ = self._parts(y)
        base: Any = self.base
        _, l2, l3 = self.derivatives(xi, y)
        own, own_xi, own_phi = base.information(xi, low)
        observed_phi = -self.phi_derivatives(xi, y)[2]
        return (
            np.where(known, own, -l2), np.where(known, own_xi, -l3), np.where(known[..., None], own_phi, observed_phi)
        )  # fmt: skip

    def loss(self, y: Array, prediction: Array) -> Array:
        return self.base.loss(self.middle(y), prediction)


def right_censored(time: Any, event: Any) -> Array:
    """y for `Censored` from times and whether the event was seen there, (n, 2).

    >>> right_censored([3.0, 5.0], [True, False])
    array([[ 3.,  3.],
           [ 5., inf]])
    """
    time = as_numbers(time, "time", "one number per row")
    seen = np.asarray(event).astype(bool)
    if time.ndim != 1 or seen.shape != time.shape:
        raise ValueError(f"time and event must be one per row; got shapes {time.shape} and {seen.shape}.")
    return np.stack([time, np.where(seen, time, np.inf)], axis=-1)
