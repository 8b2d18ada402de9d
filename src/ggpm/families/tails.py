"""Closed forms of probabilities of bounds: two, where xi shifts y or log y; one, where a latent stretches it, too."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggpm.families.base import Array, ScalarFamily
from ggpm.families.between import BEYOND
from ggpm.families.links import Link
from ggpm.families.two_parameters import STEEPEST, LocationScale
from ggpm.families.wrapped import Wrapped


class Tails(Wrapped, ScalarFamily):
    """Rows of bounds, (n, 2), of which one at least is finite, around a scalar family that knows its tails.

    The family gives `log_tails`, `survival_jet` and `tail_phi`, and xi is a shift of log y, or of y on the whole line.
    All of these are concave in xi.
    """

    @property
    def _link(self) -> Link:
        base: Any = self.base
        return base._link

    def _rows(self, y: Array) -> tuple[int, ...]:
        return y.shape[:-1]

    def _parts(self, y: Array) -> tuple[Array, Array, Any, Any]:
        """Bounds that formulas can take everywhere, and which rows have a lower and an upper one."""
        lower, upper = y[..., 0], y[..., 1]
        has_lower, has_upper = lower > max(self.support.low, -BEYOND), upper < BEYOND
        return np.where(has_lower, lower, upper), np.where(has_upper, upper, lower), has_lower, has_upper

    def _log_slope(self, y: Array) -> Array | float:
        """Logarithm of dy over the shift."""
        return np.log(y) if np.isfinite(self.support.low) else 0.0

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        """log P(lower < Y <= upper), from the tail in which it keeps its digits."""
        low, high, has_lower, has_upper = self._parts(y)
        base: Any = self.base
        with np.errstate(all="ignore"):
            (F_low, S_low), (F_high, S_high) = base.log_tails(xi, low), base.log_tails(xi, high)
            above = S_low + np.log(-np.expm1(np.minimum(S_high - S_low, 0.0)))
            below = F_high + np.log(-np.expm1(np.minimum(F_low - F_high, 0.0)))
        both = np.where(S_low < F_high, above, below)
        return np.where(has_lower & has_upper, both, np.where(has_lower, S_low, F_high))

    def _ends(self, xi: Array, y: Array) -> list[tuple[float, Array, Array]]:
        """Sign, place y and density p_t over the mass of upper and lower end, t = y or log y; 0 where there is none."""
        low, high, has_lower, has_upper = self._parts(y)
        base: Any = self.base
        log_mass, out = self.log_prob_xi(xi, y), []
        for sign, at, there in ((1.0, high, has_upper), (-1.0, low, has_lower)):
            with np.errstate(all="ignore"):
                ratio = np.exp(base.log_prob_xi(xi, at) + self._log_slope(at) - log_mass)
            out.append((sign, at, np.where(there & np.isfinite(ratio), ratio, 0.0)))
        return out

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):  # in the form that a row does not take
            return self._derivatives(xi, y)

    def _derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        low, high, has_lower, has_upper = self._parts(y)
        base: Any = self.base
        above = ~has_upper | (base.log_tails(xi, low)[1] < base.log_tails(xi, high)[0])  # in the upper tail
        # the mass A is a difference of distribution functions of t - xi: A' = -[p_t], A'' = -[p_t l'], ...
        A: list[Any] = [0.0, 0.0, 0.0]
        for sign, at, r in self._ends(xi, y):
            l1, l2, _ = base.derivatives(xi, at)
            for j, factor in enumerate((1.0, l1, l1 * l1 + l2)):
                A[j] = A[j] - sign * r * factor
        a1, a2, a3 = A
        found: list[Any] = [a1, a2 - a1 * a1, a3 - 3.0 * a1 * a2 + 2.0 * a1**3]
        tail = self._tail_jet(xi, low, high, has_upper)
        l1, l2, l3 = (np.where(has_lower & above, s, f) for s, f in zip(tail, found))
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
        base: Any = self.base
        if not base.log_hyper.size:
            return super().phi_derivatives(xi, y)
        ends = self._ends(xi, y)
        a_phi = sum(sign * r * base.tail_phi(xi, at) for sign, at, r in ends)
        a1 = a2 = d1 = d2 = np.zeros(np.broadcast_shapes(xi.shape, self._rows(y)))
        for sign, at, r in ends:
            l1 = base.derivatives(xi, at)[0]
            lp, l1_phi, _ = (v[..., 0] for v in base.phi_derivatives(xi, at))
            a1, a2 = a1 - sign * r, a2 - sign * r * l1
            d1, d2 = d1 - sign * r * lp, d2 - sign * r * (lp * l1 + l1_phi)
        d1, d2 = d1 - a1 * a_phi, d2 - a2 * a_phi
        found = a_phi, d1, d2 - 2.0 * a1 * d1
        l_phi, l1_phi, l2_phi = (np.asarray(f)[..., None] for f in found)
        return l_phi, l1_phi, l2_phi


class OneBound(Wrapped, LocationScale):  # type: ignore[misc]
    """Rows of one bound, (n, 2), around a symmetric family of location and scale that gives `survival_profile`.

    log P is h(z) for z = ±(bound - a) exp(-b), with the sign of the side on which Y lies. The expected curvature is
    that of the family itself: never indefinite, and more than a bound can tell.
    """

    def _rows(self, y: Array) -> tuple[int, ...]:
        return y.shape[:-1]

    def _z(self, eta: Array, y: Array) -> tuple[Array, Array]:
        above = y[..., 1] >= BEYOND
        side = np.where(above, 1.0, -1.0)
        r = side * np.exp(np.minimum(-eta[..., 1], STEEPEST))
        return (np.where(above, y[..., 0], y[..., 1]) - eta[..., 0]) * r, r

    def profile(self, z: Array) -> tuple[Array, Array, Array, Array]:
        base: Any = self.base
        return base.survival_profile(z)

    def profile_information(self) -> tuple[float, float | None, float]:
        base: Any = self.base
        return base.profile_information()

    def log_prob(self, eta: Array, y: Array) -> Array:
        return self.profile(self._z(eta, y)[0])[0]

    def first(self, eta: Array, y: Array) -> tuple[Array, Array]:
        z, r = self._z(eta, y)
        h1 = self.profile(z)[1]
        return -r * h1, np.where(eta[..., 1] > -STEEPEST, -z * h1, 0.0)
