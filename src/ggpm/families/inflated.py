"""Numbers of one law, or single ones whose log-odds are latents of their own: what is left when these are integrated.

The first latent a is that of the law; the others, one for each single number, are the log-odds of that number against
the law. Given a they are normal, and averages of their softmax are known (`ggpm.families.special.left_over`): every
predictive density is an integral over a alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from ggpm.families.base import Array, Density, Family
from ggpm.families.curvature import Diagonal
from ggpm.families.special.adaptive import cholesky_root
from ggpm.families.special.left_over import log_left_over

STEP = 0.01  # of a, for differences that show the way to a mode


class Law(Density, Protocol):
    """A density of numbers with one latent, and its distribution function."""

    def cdf(self, eta: Array, y: Array) -> Array: ...


@dataclass(frozen=True)
class Odds:
    """Log-odds x of single numbers given the first latent: N(mean + slope a, root root^T), (k, J) and (k, J, J)."""

    mean: Array
    slope: Array
    root: Array

    @classmethod
    def of(cls, mean: Array, cov: Array) -> Odds:
        """Those of latents (a, x) ~ N(mean, cov)."""
        known = cov[:, 0, 0] > 0
        slope = np.where(known[:, None], cov[:, 1:, 0], 0.0) / np.where(known, cov[:, 0, 0], 1.0)[:, None]
        root = cholesky_root(cov[:, 1:, 1:] - slope[:, :, None] * cov[:, None, 0, 1:])
        return cls(mean[:, 1:] - slope * mean[:, :1], slope, root)

    @classmethod
    def unpack(cls, packed: Array) -> Odds:
        """From what `pack` makes."""
        J = int(np.sqrt(packed.shape[1] + 1.0)) - 1
        mean, slope, root = np.split(packed, [J, 2 * J], axis=1)
        return cls(mean, slope, root.reshape(-1, J, J))

    def pack(self) -> Array:
        """As rows of numbers, (k, J (J + 2))."""
        return np.concatenate([self.mean, self.slope, self.root.reshape(len(self.root), -1)], axis=1)

    def rows(self, rows: Any) -> Odds:
        return Odds(self.mean[rows], self.slope[rows], self.root[rows])

    def against(self, j: int) -> Odds:
        """Log-odds of the law and of the other single numbers against number j."""
        J = self.mean.shape[1]
        turn = np.eye(J)
        turn[:, j] = -1.0
        root = turn @ self.root
        return Odds(self.mean @ turn.T, self.slope @ turn.T, cholesky_root(root @ root.swapaxes(1, 2)))

    def log_rest(self, a: Array) -> Array:
        """log probability of the law given a (..., k)."""
        return log_left_over(self.mean + self.slope * a[..., None], self.root)


class Inflated(Family):
    """A law with one latent and single numbers with log-odds of their own, which are the other latents."""

    @property
    @abstractmethod
    def singles(self) -> tuple[float, ...]:
        """The single numbers, in the order of their latents."""

    @property
    @abstractmethod
    def law(self) -> Law:
        """The law of the rest."""

    @property
    def apart(self) -> bool:
        """Whether the law never gives one of the single numbers."""
        return True

    def within(self, y: Array) -> Array:
        """y, with numbers that the law takes in the place of those that it never gives."""
        inside = 0.5 if self.support.high <= 1.0 else 1.0  # type: ignore[attr-defined]
        return np.where(np.isin(y, self.singles), inside, y) if self.apart else y

    def log_singles(self, mean: Array, cov: Array) -> Array:
        """log probabilities of the single numbers by themselves, (n, J), for latents N(mean, cov)."""
        alone = Odds(mean[:, 1:], np.zeros_like(mean[:, 1:]), cholesky_root(cov[:, 1:, 1:]))
        none = np.zeros(len(mean))
        return np.stack([alone.against(j).log_rest(none) for j in range(len(self.singles))], axis=1)

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array:
        """log E[p(y)] of single numbers that the law never gives; nan elsewhere."""
        out = np.full(len(y), np.nan)
        if self.apart and (there := np.isin(y, self.singles)).any():
            found = self.log_singles(mean[there], cov[there])
            out[there] = found[np.arange(len(found)), np.searchsorted(self.singles, y[there])]
        return out

    def fewer_latents(self, mean: Array, cov: Array, y: Array) -> tuple[Density, Array, Array, Array]:
        packed = np.concatenate([y[:, None], Odds.of(mean, cov).pack()], axis=1)
        return GivenFirst(self.law, self.singles, self), mean[:, :1], cov[:, :1, :1], packed


@dataclass(frozen=True)
class GivenFirst:
    """log E[p(y | a, x) | a] as a density with the latent a; y are rows of numbers, packed log-odds after y."""

    law: Law
    singles: tuple[float, ...]
    family: Inflated
    shift_invariant: ClassVar[bool] = False

    def log_prob(self, eta: Array, y: Array) -> Array:
        a, odds = eta[..., 0], Odds.unpack(y[:, 1:])
        out = odds.log_rest(a) + self.law.log_prob(eta, self.family.within(y[:, 0]))
        for j, single in enumerate(self.singles):
            rows = np.flatnonzero(y[:, 0] == single)
            if rows.size:
                own = odds.rows(rows).against(j).log_rest(a[..., rows])
                out[..., rows] = own if self.family.apart else np.logaddexp(own, out[..., rows])
        return out

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, Diagonal]:
        u, U = self.law.u_and_U(eta, self.family.within(y[:, 0]))
        slope, bend = _differences(lambda e: Odds.unpack(y[:, 1:]).log_rest(e[..., 0]), eta)
        u, U = u[:, 0] + slope, U.dense()[:, 0, 0] - bend
        single = np.flatnonzero(np.isin(y[:, 0], self.singles))
        if single.size:
            u[single], bend = _differences(lambda e: self.log_prob(e, y[single]), eta[single])
            U[single] = -bend
        return u[:, None], Diagonal(U[:, None])

    def U(self, eta: Array, y: Array, expected: bool = False) -> Diagonal:
        if not expected:
            return self.u_and_U(eta, y)[1]
        return Diagonal(np.maximum(self.law.U(eta, self.family.within(y[:, 0]), expected=True).dense()[..., 0], 0.0))

    def expansion(self, y: Array) -> Array:
        return self.law.expansion(self.family.within(y[:, 0]))


def _differences(smooth: Callable[[Array], Array], eta: Array) -> tuple[Array, Array]:
    """First and second derivative, (n,), of averages over log-odds in the latent, (n, 1)."""
    low, middle, high = smooth(eta + STEP * np.array([-1.0, 0.0, 1.0])[:, None, None])
    return (high - low) / (2.0 * STEP), (low + high - 2.0 * middle) / STEP**2
