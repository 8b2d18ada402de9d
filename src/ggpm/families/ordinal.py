"""Ordinal: grades, levels in an order."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from ggpm.data.checks import check_whole
from ggpm.data.text import Hint, Message
from ggpm.families.base import Array, Bounds, ScalarFamily
from ggpm.families.special.truncated import (
    TruncatedNormal,
    bin_masses,
    truncated_log_mass,
    truncated_log_mass_and_mean,
    truncated_mean_and_shrinkage,
    truncated_normal,
)
from ggpm.families.support import Codes

# Bounds of the first cut point; the latent is of unit noise, so this is a hundred standard deviations.
FIRST_CUT_BOUNDS = (-100.0, 100.0)


class Ordinal(ScalarFamily):
    """Levels 0 .. J-1: the bin, between cut points, into which eta plus standard normal noise falls.

    With cut points b_1 < ... < b_(J-1), and b_0 = -inf, b_J = inf, level j has probability
    Phi(b_(j+1) - eta) - Phi(b_j - eta).

    ========  =============================================================================
    support   0, 1, ..., J-1
    T, b, h   indicators of the level, log sum exp(theta), 1
    a         1
    link      theta_j = log P(level j): one latent to J (paper, Sec. 4.1)
    U         1 - Var[s], s standard normal truncated to the bin; in (0, 1)
    ========  =============================================================================

    Parameters
    ----------
    phi : array (J-1,), optional
        Cut points, ascending. None: start at the normal quantiles of the cumulative frequencies of the levels
        (each level counted half an observation more, so that unseen levels have a bin), times sqrt(2): the
        quantiles of noise plus a latent of unit variance.
    phi_bounds : (low, high) or "fixed"
        Bounds of the gaps between cut points.
    n_levels : int, optional
        J, where the data may lack the highest levels.

    Examples
    --------
    >>> import numpy as np
    >>> Ordinal(phi=[-1.0, 1.0]).moment(np.array([[0.0]])).round(4)
    array([[0.1587, 0.6827, 0.1587]])
    """

    finite = True

    _phi_ndims = (1,)

    def __init__(self, phi: ArrayLike | None = None, phi_bounds: Bounds = (1e-4, 1e4), n_levels: int | None = None):
        self.phi = phi
        self.phi_bounds = phi_bounds
        self.n_levels = n_levels

    @property
    def support(self) -> Codes:
        return Codes(n_codes=self.n_levels if self.phi is None else np.size(self.phi) + 1, what="level")

    # ---- data ----------------------------------------------------------------------------------------------
    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        self._check_phi()
        if self.n_levels is not None:
            check_whole(self.n_levels, "n_levels", 2)
        if self.phi is not None:
            self._check_cuts()
        codes = self.encode(y)
        out = copy.copy(self)
        if self.phi is None:
            J = int(codes.max()) + 1 if self.n_levels is None else self.n_levels
            if max(1000, 10 * codes.size) < J:
                raise ValueError(
                    Message(
                        f"the largest code is {J - 1} for {codes.size} rows; codes run from 0 without gaps. "
                        "For labels of any kind use ",
                        Hint("GGPClassifier", "family", "categorical"),
                        " or ",
                        Hint("GGPOrdinalClassifier", "family", "ordinal"),
                        ".",
                    )
                )
            if J < 2:
                raise ValueError(f"y must have at least 2 levels; got {J}. Pass n_levels if y lacks some.")
            share = np.bincount(codes.astype(int), weights=weight, minlength=J) + 0.5
            cuts = np.sqrt(2.0) * ndtri(np.cumsum(share)[:-1] / share.sum())
            if not isinstance(self.phi_bounds, str):  # a rare level among very many rows may start too narrow
                cuts = cuts[0] + np.concatenate([[0.0], np.cumsum(np.clip(np.diff(cuts), *self.phi_bounds))])
            out.phi = cuts
        out.n_levels = np.size(out.phi) + 1
        return out

    def _check_cuts(self) -> None:
        cuts = np.asarray(self.phi, dtype=float)
        if cuts.ndim != 1 or cuts.size < 1 or not np.all(np.isfinite(cuts)) or np.any(np.diff(cuts) <= 0):
            raise ValueError(f"phi must be the cut points, ascending numbers; got {self.phi!r}.")
        if self.n_levels is not None and cuts.size != self.n_levels - 1:
            raise ValueError(
                f"{self.n_levels} levels have {self.n_levels - 1} cut points; got {cuts.size} in phi. "
                "Give one of phi and n_levels, or make them agree."
            )

    # ---- hyperparameters: first cut point, logs of the gaps ------------------------------------------------
    @property
    def learns_phi(self) -> bool:
        return not isinstance(self.phi_bounds, str)

    @property
    def log_hyper(self) -> Array:
        if self.phi is None:
            return np.empty(0)
        cuts = np.asarray(self.phi, dtype=float)
        return np.concatenate([cuts[:1], np.log(np.diff(cuts))])

    @property
    def log_hyper_bounds(self) -> Array:
        now = self.log_hyper
        if isinstance(self.phi_bounds, str) or now.size == 0:
            return np.repeat(now[:, None], 2, axis=1)
        gaps = np.broadcast_to(np.log(np.asarray(self.phi_bounds, dtype=float)), (now.size - 1, 2))
        return np.vstack([FIRST_CUT_BOUNDS, gaps])

    def with_log_hyper(self, value: Array) -> Self:
        out = copy.copy(self)
        if value.size:
            out.phi = value[0] + np.concatenate([[0.0], np.cumsum(np.exp(value[1:]))])
        return out

    # ---- density -------------------------------------------------------------------------------------------
    def _bin(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        """Lower edge, upper edge and width of the noise that carries eta into the bin of y."""
        edges = np.concatenate([[-np.inf], np.asarray(self.phi, dtype=float), [np.inf]])
        level = y.astype(int)
        lower, upper = edges[level], edges[level + 1]
        return lower - xi, upper - xi, upper - lower

    def log_prob_xi(self, xi: Array, y: Array) -> Array:
        return truncated_log_mass(*self._bin(xi, y))

    def derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        return _in_xi(truncated_normal(*self._bin(xi, y)))

    def phi_derivatives(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        return self._in_phi(truncated_normal(*self._bin(xi, y)), y)

    def all_derivatives(self, xi: Array, y: Array) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
        noise = truncated_normal(*self._bin(xi, y))
        return _in_xi(noise), self._in_phi(noise, y)

    def log_prob_and_score(self, xi: Array, y: Array) -> tuple[Array, Array]:
        return truncated_log_mass_and_mean(*self._bin(xi, y))

    def first_two(self, xi: Array, y: Array) -> tuple[Array, Array]:
        mean, shrinkage = truncated_mean_and_shrinkage(*self._bin(xi, y))
        return mean, -shrinkage

    def score(self, xi: Array, y: Array) -> Array:
        return self.log_prob_and_score(xi, y)[1]

    def _in_phi(self, noise: TruncatedNormal, y: Array) -> tuple[Array, Array, Array]:
        """Derivatives in `log_hyper` of log p and of its first two derivatives in xi."""
        gaps = np.diff(np.asarray(self.phi, dtype=float))
        # a gap below the bin moves both of its edges (as -eta does), its own gap the upper edge, others none
        own = np.arange(1, gaps.size + 1)
        below, here = (y[..., None] > own) * gaps, (y[..., None] == own) * gaps
        shift = (-noise.mean, noise.shrinkage, -noise.cumulant3)
        first, second, third = (
            np.concatenate([s[..., None], s[..., None] * below + edge[..., None] * here], axis=-1)
            for s, edge in zip(shift, noise.upper, strict=True)
        )
        return first, second, third

    def information(self, xi: Array, y: Array) -> tuple[Array, Array, Array]:
        # the average over all levels; p' = p l1, hence the derivative of -sum p l2
        x, levels, zero = xi[..., None], np.arange(np.size(self.phi) + 1.0), 0.0 * y
        noise = truncated_normal(*self._bin(x, levels))
        p, (l1, l2, l3), (lp_phi, _, l2_phi) = np.exp(noise.log_mass), _in_xi(noise), self._in_phi(noise, levels)
        info, info_xi = -np.sum(p * l2, axis=-1), -np.sum(p * (l1 * l2 + l3), axis=-1)
        info_phi = -np.sum(p[..., None] * (lp_phi * l2[..., None] + l2_phi), axis=-2)
        return info + zero, info_xi + zero, info_phi + zero[..., None]

    # ---- Taylor --------------------------------------------------------------------------------------------
    def expansion(self, y: Array) -> Array:
        cuts = np.asarray(self.phi, dtype=float)
        middle = np.concatenate([[cuts[0] - 1.0], cuts[:-1] + 0.5 * np.diff(cuts), [cuts[-1] + 1.0]])
        return middle[y.astype(int)][..., None]

    def expansion_pullback(self, y: Array, cotangent: Array) -> Array:
        gaps = np.diff(np.asarray(self.phi, dtype=float))
        own = np.arange(1, gaps.size + 1)
        moves = np.where(y[..., None] > own, 1.0, np.where(y[..., None] == own, 0.5, 0.0)) * gaps
        c = cotangent[..., 0]
        return np.concatenate([[np.sum(c)], np.tensordot(c, moves, axes=c.ndim)])

    # ---- in the space of y ---------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return bin_masses(np.asarray(self.phi, dtype=float), eta[..., 0])

    # eta and the noise are both normal, so a latent of variance v is noise of variance 1 + v about its mean
    def _smoothed(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        scale = np.sqrt(1.0 + cov[..., 0, 0])
        edges = np.concatenate([[-np.inf], np.asarray(self.phi, dtype=float), [np.inf]])
        return (edges - mean) / scale[:, None], scale

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array:
        (edges, scale), level = self._smoothed(mean, cov), y.astype(int)
        rows, cuts = np.arange(len(mean)), np.concatenate([[-np.inf], np.asarray(self.phi, dtype=float), [np.inf]])
        return truncated_log_mass(edges[rows, level], edges[rows, level + 1], (cuts[level + 1] - cuts[level]) / scale)

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, None]:
        edges, scale = self._smoothed(mean, cov)
        widths = np.concatenate([[np.inf], np.diff(np.asarray(self.phi, dtype=float)), [np.inf]])
        return np.exp(truncated_log_mass(edges[:, :-1], edges[:, 1:], widths / scale[:, None])), None

    def constant(self, y: Array, weight: Array | None = None) -> Array:
        counts = np.bincount(y.astype(int), weights=weight, minlength=np.size(self.phi) + 1)
        return counts[None, :] / counts.sum()

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        p = self.moment(eta)
        return p[..., None] * np.eye(p.shape[-1]) - p[..., :, None] * p[..., None, :]

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        edges = np.concatenate([[-np.inf], np.asarray(self.phi, dtype=float), [np.inf]])
        level = np.clip(np.floor(y), -1, edges.size - 2).astype(int)
        return ndtr(edges[level + 1] - eta[..., 0])

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        noisy = eta[..., 0] + rng.standard_normal(eta.shape[:-1])
        return np.searchsorted(np.asarray(self.phi, dtype=float), noisy).astype(float)

    def loss(self, y: Array, prediction: Array) -> Array:
        p = np.broadcast_to(prediction, (*y.shape, prediction.shape[-1]))
        with np.errstate(divide="ignore"):  # a level that was given no probability costs infinity
            return -2.0 * np.log(np.take_along_axis(p, y.astype(int)[..., None], axis=-1)[..., 0])


def _in_xi(noise: TruncatedNormal) -> tuple[Array, Array, Array]:
    """First three derivatives of log p in xi."""
    # eta tilts the normal weight in the bin, so log p is its cumulant generating function less eta²/2
    return noise.mean, -noise.shrinkage, noise.cumulant3
