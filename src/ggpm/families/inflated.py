"""Numbers of one law, or single ones whose log-odds are latents of their own: what is left when these are integrated.

The first latent a is that of the law; the others, one for each single number, are the log-odds of that number against
the law. Given a they are normal, and averages of their softmax are known (`ggpm.families.special.left_over`): every
predictive density is an integral over a alone.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ggpm.families.base import Array, Density, Family, Fewer
from ggpm.families.curvature import Diagonal
from ggpm.families.special.adaptive import average, cholesky_root, expectation
from ggpm.families.special.left_over import log_left_over

# Accuracy of moments, in units of their size, at which averages are settled, share of the last change that they are off
# by, and error from which on other nodes are asked for.
TOLERANCE, NEXT, HARD = 3e-8, 0.1, 1e-6
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

    @abstractmethod
    def inner_moments(self, a: Array) -> tuple[Array, Array]:
        """Mean and second moment of the law."""

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Mean and variance by averages over the first latent; nan in rows that these do not settle."""
        odds, sd = Odds.of(mean, cov), np.sqrt(np.maximum(cov[:, 0, 0], 0.0))
        with np.errstate(over="ignore", invalid="ignore"):
            centre = self.moment(mean)
            unit = np.maximum(np.abs(centre), np.sqrt(np.maximum(self.spread(mean), 0.0)))

        def from_centre(eta: Array, rows: NDArray[np.intp]) -> Array:
            """What the law adds to the mean and to the mean square of (y - centre)/unit."""
            with np.errstate(over="ignore", invalid="ignore"):
                first, second = self.inner_moments(eta[..., 0])
                away = (first - centre[rows]) / unit[rows]
                square = (second - first**2) / unit[rows] ** 2 + away**2
                share = np.exp(odds.rows(rows).log_rest(eta[..., 0]))
                return np.stack([share * away, share * square], axis=-1)

        value, error = expectation(
            average(from_centre), mean[:, :1], sd[:, None], rtol=TOLERANCE, atol=TOLERANCE, next_change=NEXT
        )
        value[~(error <= HARD * np.maximum(1.0, np.abs(value).max(axis=1)))] = np.nan
        own = np.exp(self.log_singles(mean, cov))
        apart = (np.array(self.singles) - centre[:, None]) / unit[:, None]
        first, second = value[:, 0] + np.sum(own * apart, axis=1), value[:, 1] + np.sum(own * apart**2, axis=1)
        return centre + unit * first, unit**2 * (second - first**2)

    def _log_single(self, mean: Array, cov: Array, y: Array) -> Array:
        """log probability of the single number that each y is, by itself; minus infinity where it is none."""
        out, there = np.full(len(y), -np.inf), np.isin(y, self.singles)
        if there.any():
            found = self.log_singles(mean[there], cov[there])
            out[there] = found[np.arange(len(found)), np.searchsorted(self.singles, y[there])]
        return out

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array:
        """log E[p(y)] of single numbers that the law never gives; nan elsewhere."""
        return np.where(np.isin(y, self.singles) & self.apart, self._log_single(mean, cov, y), np.nan)

    def fewer_latents(self, mean: Array, cov: Array, y: Array) -> tuple[Fewer, Array, Array, Array]:
        packed = [y[:, None], self._log_single(mean, cov, y)[:, None], Odds.of(mean, cov).pack()]
        return GivenFirst(self), mean[:, :1], cov[:, :1, :1], np.concatenate(packed, axis=1)


@dataclass(frozen=True)
class GivenFirst:
    """log of the law's share of E[p(y | a, x) | a] as a density with the latent a.

    y are rows of numbers: y, the log probability of it as a single number, and the packed log-odds.
    """

    family: Inflated
    shift_invariant: ClassVar[bool] = False

    def beside(self, y: Array) -> Array:
        return y[:, 1]

    def log_prob(self, eta: Array, y: Array) -> Array:
        out = Odds.unpack(y[:, 2:]).log_rest(eta[..., 0]) + self.family.law.log_prob(eta, self.family.within(y[:, 0]))
        return np.where(np.isin(y[:, 0], self.family.singles), -np.inf, out) if self.family.apart else out

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, Diagonal]:
        u, U = self.family.law.u_and_U(eta, self.family.within(y[:, 0]))
        # averages over log-odds are smooth: differences of three places
        places = eta[..., 0] + STEP * np.array([-1.0, 0.0, 1.0])[:, None]
        low, middle, high = Odds.unpack(y[:, 2:]).log_rest(places)
        slope, bend = (high - low) / (2.0 * STEP), (low + high - 2.0 * middle) / STEP**2
        return u + slope[:, None], Diagonal(U.dense()[:, 0] - bend[:, None])

    def U(self, eta: Array, y: Array, expected: bool = False) -> Diagonal:
        if not expected:
            return self.u_and_U(eta, y)[1]
        return Diagonal(
            np.maximum(self.family.law.U(eta, self.family.within(y[:, 0]), expected=True).dense()[..., 0], 0.0)
        )

    def expansion(self, y: Array) -> Array:
        return self.family.law.expansion(self.family.within(y[:, 0]))
