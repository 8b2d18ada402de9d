"""Probability of lying between two bounds, for any family of one number: averages over what lies between, or beyond.

With A = P(low < Y <= high | eta) and averages E over the density of y between the bounds,

    grad log A = E[u],    -hess log A = E[U] - Cov[u],

and the derivatives of averages, d E[g] = E[dg] + Cov[g, u], carry on to what pullbacks need. Nothing cancels in tails.
Where more than half of the mass lies between, the same is done with B = 1 - A, what lies beyond: averages over the
larger part would have to cancel to what is left, and of numbers next to 0 and 1 much may lie nearer than any float.
A itself is a difference of distribution functions wherever these have digits enough.

Nodes are Gauss-Legendre's on either side of the mode of y in a coordinate on the whole line, as far out as the density
falls by DROP nats; counts are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, logit, logsumexp

from ggpm.families.base import Array, Family
from ggpm.families.curvature import Blocks, Curvature, Diagonal, Marginals

BEYOND = float(np.finfo(float).max)  # stands for infinity in encoded y, which files hold as finite numbers
DROP = 40.0  # nats: exp(-40) of the largest density is below the rounding of a sum
NODES = 48  # on either side; 1e-11 of normal, gamma and beta tails and of Student's t with one degree of freedom
# Distances from the mode among which the one with a fall of DROP is searched, the first relative to its coordinate, by
# so many halvings of their ratio: known to 2 % then.
NEAREST, FARTHEST, HALVINGS = 1e-9, 800.0, 12
# Counts that are summed one by one; where more matter the sum is an integral from one half before the first to one half
# behind the last, corrected at a bound by -1/24 of the slope there and 17/5760 of the third derivative, both of them
# differences of the four counts next to it (Euler and Maclaurin).
SUMMED = 512
AT_BOUND = np.array([-17.0, 51.0, -51.0, 17.0]) / 5760 + np.array([0.0, 1.0, -1.0, 0.0]) / 24
# Of a difference of distribution functions so much must be left, relative to the smaller of the two pairs: rounding is
# then 1e-12 of it. Underflow begins at 1e-308.
LEFT, LEAST = 1e-4, 1e-290


@dataclass(frozen=True)
class Coordinate:
    """A coordinate t of y on the whole line."""

    of: Callable[[Array], Array]
    y: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]
    """log dy/dt."""


def coordinate(family: Family, eta: Array) -> Coordinate:
    """Logarithm of positive numbers, logit of shares; of real numbers asinh((y - centre)/scale), for heavy tails."""
    support = family.support
    if support.integer:
        return Coordinate(lambda y: y, lambda t: t, np.zeros_like)
    if np.isfinite(support.high):
        inside = np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg  # densities have no value at 0 and 1
        return Coordinate(logit, lambda t: np.clip(expit(t), *inside), lambda t: log_expit(t) + log_expit(-t))
    if np.isfinite(support.low):
        return Coordinate(np.log, lambda t: np.clip(np.exp(t), np.finfo(float).tiny, BEYOND), lambda t: t)
    centre = family.moment(eta).reshape(-1)
    scale = family.parameter("scale", eta) if "scale" in family.parameters else np.sqrt(family.spread(eta))
    scale = np.reshape(scale, -1)
    return Coordinate(
        lambda y: np.arcsinh((y - centre) / scale),
        lambda t: centre + scale * np.sinh(t),
        lambda t: np.log(scale) + np.logaddexp(t, -t) - np.log(2.0),
    )


@dataclass(frozen=True)
class Between:
    """Nodes y (S, n) between the bounds of n rows, their shares of the mass, and its logarithm (n,)."""

    family: Family
    eta: Array
    y: Array
    weights: Array
    log_mass: Array

    def columns(self, rows: Any) -> Between:
        """The same of some rows."""
        return Between(self.family, self.eta[rows], self.y[:, rows], self.weights[:, rows], self.log_mass[rows])

    @property
    def _eta(self) -> Array:
        return np.broadcast_to(self.eta, (*self.y.shape, self.eta.shape[-1]))

    @property
    def _y(self) -> Array:
        return self.y[..., None] if self.family.support.row_ndim else self.y

    def average(self, values: Array) -> Array:
        """E of values (S, n, ...)."""
        return np.einsum("sn,sn...->n...", self.weights, values)

    def u(self) -> Array:
        return self.average(self.family.u(self._eta, self._y))

    def U(self) -> Array:
        u = self.family.u(self._eta, self._y)
        off = u - self.average(u)
        return self.average(self.family.U(self._eta, self._y).dense()) - np.einsum(
            "sn,snj,snk->njk", self.weights, off, off
        )

    def log_prob_phi(self) -> Array:
        return self.average(self.family.log_prob_phi(self._eta, self._y))

    def u_phi(self) -> Array:
        u, (lp, up) = self.family.u(self._eta, self._y), self.family.phi_slopes(self._eta, self._y)
        cov = np.einsum("sn,snj,snp->njp", self.weights, u - self.average(u), lp)
        return self.average(up) + cov

    def U_pullback(self, V: Array) -> tuple[Array, Array]:
        """Derivatives of sum_i <V_i, U_i> in eta, (n, D), and in phi, (p,), for V (n, D, D)."""
        eta, y, w = self._eta, self._y, self.weights
        (S, n), D = w.shape, eta.shape[-1]
        u, U = self.family.u(eta, y), self.family.U(eta, y).dense()
        lp, up = self.family.phi_slopes(eta, y)
        mean = self.average(u)
        off = u - mean
        # <V, U> = E[h] - E[q] with h = <V, U_y> and q = off^T V off: derivatives of E, and those of h and q at each y
        scaled = Blocks((w[..., None, None] * V).reshape(S * n, D, D))
        flat_y = np.reshape(y, (S * n, *y.shape[2:]))
        inner, phi = self.family.U_pullback(np.ascontiguousarray(eta).reshape(S * n, D), flat_y, scaled)
        V_off = np.einsum("njk,snk->snj", V, off)
        h = np.einsum("snjk,njk->sn", U, V) - np.sum(off * V_off, axis=-1)
        h = h - self.average(h)
        d_eta = inner.reshape(S, n, D).sum(axis=0) + self.average(h[..., None] * off)
        d_eta = d_eta + 2.0 * self.average(np.einsum("snjk,snk->snj", U, V_off))
        phi = phi + np.einsum("sn,sn,snp->p", w, h, lp) - 2.0 * np.einsum("sn,snj,snjp->p", w, V_off, up)
        return d_eta, phi


def between(family: Family, eta: Array, low: Array, high: Array) -> list[tuple[Any, Between]]:
    """Rows and their nodes: eta (n, D), bounds (n,) or infinite; counts lie above low and up to high.

    >>> from ggpm.families import Gamma
    >>> (_, found), = between(Gamma(phi=1.0), np.zeros((1, 1)), np.array([2.0]), np.array([np.inf]))
    >>> found.log_mass.round(10), found.u().round(10)
    (array([-2.]), array([[2.]]))
    """
    with np.errstate(all="ignore"):
        c = coordinate(family, eta)
        counts = family.support.integer
        first, last = (low + 0.5, high + 0.5) if counts else (c.of(low), c.of(high))
        first = np.where(low <= max(family.support.low - counts, -BEYOND), -0.5 if counts else -np.inf, first)
        last = np.where(high >= min(family.support.high, BEYOND), np.inf, last)

        def height(t: Array) -> Array:
            y = c.y(t)
            y = y[..., None] if family.support.row_ndim else y
            value = family.log_prob(np.broadcast_to(eta, (*t.shape, eta.shape[-1])), y) + c.log_slope(t)
            return np.where(np.isfinite(value), value, -np.inf)

        top = np.clip(c.of(family.moment(eta).reshape(-1)), first, last)
        left, right = (_reach(height, top, end) for end in (first, last))
        if not counts:
            return [(slice(None), _integrated(family, eta, c, height, top, left, right))]
        wide = left + right > SUMMED
        if not wide.any():
            return [(slice(None), _summed(family, eta, height, top - left, top + right))]
        parts: list[tuple[Any, Between]] = []
        for rows, sums in ((~wide, True), (wide, False)):
            if rows.any() and sums:
                parts += [(rows, between(family, eta[rows], low[rows], high[rows])[0][1])]
            elif rows.any():
                own = coordinate(family, eta[rows])

                def some(t: Array, rows: Any = rows) -> Array:
                    return family.log_prob(np.broadcast_to(eta[rows], (*t.shape, eta.shape[-1])), t)

                found = _integrated(family, eta[rows], own, some, top[rows], left[rows], right[rows])
                ends = [(-1.0, first[rows], top[rows] - left[rows]), (1.0, last[rows], top[rows] + right[rows])]
                parts += [(rows, _corrected(found, some, ends))]
        return parts


def _reach(height: Callable[[Array], Array], top: Array, end: Array) -> Array:
    """Distance from the mode, towards an end, up to which there must be nodes."""
    sign = np.where(end < top, -1.0, 1.0)
    peak, near = height(top), np.log(NEAREST * (1.0 + np.abs(top)))
    low, high = near, np.log(np.minimum(np.abs(end - top), FARTHEST * (1.0 + np.abs(top))))
    whole, high = high, np.maximum(high, near)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        beyond = peak - height(top + sign * np.exp(middle)) > DROP
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    # nearer than any node can be told from the mode the density is an exponential function
    cliff = (peak - height(top + sign * np.exp(near))) / DROP
    distance = np.where(cliff > 1.0, np.exp(near) / cliff, np.exp(high))
    return np.minimum(distance, np.exp(whole))


def _integrated(
    family: Family, eta: Array, c: Coordinate, height: Any, top: Array, left: Array, right: Array
) -> Between:
    x, w = np.polynomial.legendre.leggauss(NODES)
    share, weight = 0.5 * (x[:, None] + 1.0), np.log(0.5 * w)[:, None]
    t = np.concatenate([top - left * share, top + right * share])
    log_width = np.concatenate([np.log(left) + weight, np.log(right) + weight])
    return _weighed(family, eta, c.y(t), height(t) + log_width)


def _corrected(found: Between, height: Any, ends: list[tuple[float, Array, Array]]) -> Between:
    """The integral of counts with the corrections at its ends, where these are bounds: sign, bound, and end."""
    y, weights = [found.y], [found.weights]
    for sign, bound, end in ends:
        at = np.isclose(bound, end, rtol=1e-12) & (bound > 2.0)  # counts below zero have no density
        near = np.where(at, bound, 2.5) + np.array([-1.5, -0.5, 0.5, 1.5])[:, None]
        y.append(near)
        weights.append(np.where(at, sign * AT_BOUND[:, None] * np.exp(height(near) - found.log_mass), 0.0))
    w = np.concatenate(weights)
    total = w.sum(axis=0)
    return Between(found.family, found.eta, np.concatenate(y), w / total, found.log_mass + np.log(total))


def _summed(family: Family, eta: Array, height: Any, left: Array, right: Array) -> Between:
    first = np.maximum(np.ceil(left), 0.0)
    y = first + np.arange(np.floor(np.max(right - left)) + 2.0)[:, None]
    return _weighed(family, eta, y, np.where(y <= right, height(y), -np.inf))


def _weighed(family: Family, eta: Array, y: Array, log_weights: Array) -> Between:
    log_mass = logsumexp(log_weights, axis=0)
    weights = np.exp(log_weights - log_mass)
    # a log mass of -1e13 has no digits behind the point, and averages of scores of 1e13 need shares that add up to one
    return Between(family, eta, y, weights / weights.sum(axis=0), log_mass)


@dataclass(frozen=True)
class Outside:
    """What `Between` answers, of rows by what lies beyond their bounds: log A = log(1 - B), r = B/A."""

    beyond: Between

    @property
    def log_mass(self) -> Array:
        return np.log1p(-np.exp(self.beyond.log_mass))

    @property
    def _r(self) -> Array:
        return np.exp(self.beyond.log_mass) / -np.expm1(self.beyond.log_mass)

    def u(self) -> Array:
        return -self._r[:, None] * self.beyond.u()

    def U(self) -> Array:
        r, u = self._r[:, None, None], self.beyond.u()
        return r * ((1.0 + r) * u[:, :, None] * u[:, None, :] - self.beyond.U())

    def log_prob_phi(self) -> Array:
        return -self._r[:, None] * self.beyond.log_prob_phi()

    def u_phi(self) -> Array:
        r, u, lp = self._r[:, None, None], self.beyond.u(), self.beyond.log_prob_phi()
        return -r * (self.beyond.u_phi() + (1.0 + r) * u[:, :, None] * lp[:, None, :])

    def U_pullback(self, V: Array) -> tuple[Array, Array]:
        r, u, U = self._r, self.beyond.u(), self.beyond.U()
        lp, up = self.beyond.log_prob_phi(), self.beyond.u_phi()
        Vu = np.einsum("njk,nk->nj", V, u)
        inner, phi = self.beyond.U_pullback(r[:, None, None] * V)
        # <V, U> = r ((1 + r) u^T V u - <V, U_B>), and r rises by r (1 + r) of what log B rises by
        more = r * (1.0 + r)
        height = more * ((1.0 + 2.0 * r) * np.sum(u * Vu, axis=1) - np.einsum("njk,njk->n", V, U))
        d_eta = height[:, None] * u - inner - 2.0 * more[:, None] * np.einsum("njk,nk->nj", U, Vu)
        return d_eta, height @ lp - phi + 2.0 * np.einsum("n,nj,njp->p", more, Vu, up)


def masses(family: Family, eta: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """log P(low < Y <= high) from distribution functions, NaN where they lack the digits, and the mass roughly.

    >>> from ggpm.families import Poisson
    >>> masses(Poisson(), np.full((1, 1), -3.0), np.array([0.0]), np.array([np.inf]))[0].round(12)  # log(1 - exp(-mu))
    array([-3.02479025])
    """
    bottom, top = least(family), np.minimum(family.support.high, BEYOND)
    some = np.where(high < top, high, np.maximum(low, bottom))  # a bound that there is, where one is asked for
    first, last = np.where(low > bottom, low, some), some
    with np.errstate(all="ignore"):
        pairs = [
            [np.reshape(f(eta, x[:, None] if family.support.row_ndim else x), -1) for f in (family.cdf, family.sf)]
            for x in (first, last)
        ]
        (F_low, S_low), (F_high, S_high) = pairs
        F_low, S_low = np.where(low > bottom, F_low, 0.0), np.where(low > bottom, S_low, 1.0)
        F_high, S_high = np.where(high < top, F_high, 1.0), np.where(high < top, S_high, 0.0)
        upper = S_low < F_high
        of, less = np.where(upper, S_low, F_high), np.where(upper, S_high, F_low)
        beyond = F_low + S_high
        mass = np.where(beyond < 0.5, 1.0 - beyond, of - less)
        log_mass = np.where(beyond < 0.5, np.log1p(-beyond), np.log(of - less))
    exact = type(family).sf is not Family.sf  # else what is small has been 1 - cdf
    sure = (beyond < 0.5) | ((mass > LEFT * of) & (mass > (LEAST if exact else LEFT)))
    return np.where(sure & np.isfinite(log_mass), log_mass, np.nan), mass


def least(family: Family) -> float:
    """Lower bound that is none."""
    low = family.support.low
    return low - 1.0 if family.support.integer else max(low, -BEYOND)


def sides(family: Family, eta: Array, low: Array, high: Array) -> list[tuple[Any, Between | Outside]]:
    """Rows, and averages over what lies between their bounds, or beyond: where that is less, or can be summed."""
    mass = masses(family, eta, low, high)[1]
    inside = ~(mass > 0.5)
    if family.support.integer:
        inside &= ~((mass > LEFT) & (low < SUMMED) & (high >= BEYOND))
    rows, out = np.arange(len(eta)), list[tuple[Any, Between | Outside]]()
    if inside.any():
        out += [(rows[inside][part], found) for part, found in between(family, eta[inside], low[inside], high[inside])]
    bottom, top = np.full(len(eta), -np.inf), np.full(len(eta), np.inf)
    left, right = ~inside & (low > least(family)), ~inside & (high < min(family.support.high, BEYOND))
    for some, ends in (
        (left & ~right, [(bottom, low)]), (right & ~left, [(high, top)]), (left & right, [(bottom, low), (high, top)])
    ):  # fmt: skip
        if some.any():
            pieces = [between(family, eta[some], a[some], b[some]) for a, b in ends]
            out += [(rows[some][part], Outside(found)) for part, found in _joined(pieces)]
    if (neither := ~(inside | left | right)).any():
        raise ValueError(f"rows {np.flatnonzero(neither).tolist()} have no bound.")
    return out


def _joined(pieces: list[list[tuple[Any, Between]]]) -> Iterator[tuple[Any, Between]]:
    """Rows with the nodes of all pieces, each a list of parts of the same rows."""
    if len(pieces) == 1:
        yield from pieces[0]
        return
    n = max(len(found.log_mass) if isinstance(rows, slice) else len(rows) for rows, found in pieces[0])
    for (rows, one), (others, two) in product(*pieces):
        masks = [np.zeros(n, dtype=bool) for _ in range(2)]
        masks[0][rows], masks[1][others] = True, True
        both = masks[0] & masks[1]
        if both.any():
            parts = [found.columns(both[mask]) for mask, found in zip(masks, (one, two))]
            log_mass = np.logaddexp(parts[0].log_mass, parts[1].log_mass)
            with np.errstate(invalid="ignore"):  # neither has any mass
                weights = [found.weights * np.exp(found.log_mass - log_mass) for found in parts]
            y, w = (np.concatenate(arrays) for arrays in ([found.y for found in parts], weights))
            yield both, Between(one.family, parts[0].eta, y, np.nan_to_num(w), log_mass)


class Averages:
    """Density of rows of bounds, (n, 2), of any family of one number: what inference asks of a family, by nodes.

    The expected curvature is that of the family itself: never indefinite, and more than a bound can tell.
    """

    def __init__(self, base: Family) -> None:
        self.base = base

    def _of(self, eta: Array, y: Array, quantity: Callable[[Any], Array]) -> Array:
        parts = [(rows, quantity(found)) for rows, found in sides(self.base, eta, y[:, 0], y[:, 1])]
        out = np.empty((len(eta), *parts[0][1].shape[1:]))
        for rows, value in parts:
            out[rows] = value
        return out

    def log_prob(self, eta: Array, y: Array) -> Array:
        out = masses(self.base, eta, y[:, 0], y[:, 1])[0]
        if (rest := np.isnan(out)).any():
            out[rest] = self._of(eta[rest], y[rest], lambda found: found.log_mass)
        return out

    def u(self, eta: Array, y: Array) -> Array:
        return self._of(eta, y, lambda found: found.u())

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        both = self._of(eta, y, lambda found: np.concatenate([found.log_mass[:, None], found.u()], axis=1))
        known = masses(self.base, eta, y[:, 0], y[:, 1])[0]
        return np.where(np.isnan(known), both[:, 0], known), both[:, 1:]

    def U(self, eta: Array, y: Array, expected: bool = False) -> Curvature:
        if expected:
            return self.base.U(eta, self._some(y), expected=True)
        out = self._of(eta, y, lambda found: found.U())
        return Diagonal(out[..., 0]) if out.shape[-1] == 1 else Blocks(out)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        if expected:
            return self.base.U_pullback(eta, self._some(y), V, expected=True)
        out, phi, weights = np.empty(eta.shape), np.zeros(self.base.log_hyper.size), V.dense()
        for rows, found in sides(self.base, eta, y[:, 0], y[:, 1]):
            out[rows], of_phi = found.U_pullback(weights[rows])
            phi = phi + of_phi
        return out, phi

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        return self._of(eta, y, lambda found: found.log_prob_phi())

    def u_phi(self, eta: Array, y: Array) -> Array:
        return self._of(eta, y, lambda found: found.u_phi())

    def _some(self, y: Array) -> Array:
        """Any y of the family, for methods that do not look at it."""
        some = np.full(len(y), 0.5 if np.isfinite(self.base.support.high) else 1.0)
        return some[:, None] if self.base.support.row_ndim else some
