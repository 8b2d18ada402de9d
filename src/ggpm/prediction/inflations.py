"""Numbers of one law with single ones besides: their distribution by nodes for the law's latent alone.

Probabilities of the single numbers do not depend on y, and given the law's latent a that of the rest is known
(`ggpm.families.inflated`), so that the nodes are those of `ggpm.prediction.line` with other weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggpm.families.inflated import Inflated, Odds
from ggpm.prediction.line import FINE, Fineness, step_nodes
from ggpm.prediction.nodes import hermite, latent_nodes, mixture_density
from ggpm.prediction.roots import LARGEST, coordinate, integer_roots, roots

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# How far log-odds may move with a, in units of the width of their softmax, while a moves by one standard deviation: up
# to here nodes of the law see them (distribution functions to 1e-6); twice as far, twice as many nodes.
BENDS = 1.2
START = 3  # nodes of a behind the start of a search


@dataclass(frozen=True)
class Inflations:
    """Distribution functions and densities of some rows of a prediction, at one y for each, as in `sections`."""

    predictive: Predictive

    @property
    def family(self) -> Inflated:
        family: Any = self.predictive.family
        return family

    @cached_property
    def log_singles(self) -> Array:
        """log probabilities of the single numbers by themselves, (m, J)."""
        return self.family.log_singles(self.predictive.latent_mean, self.predictive.latent_cov)

    @cached_property
    def singles(self) -> Array:
        """The same, not logarithms."""
        return np.exp(self.log_singles)

    def at_singles(self, y: Array) -> Array:
        """Probability of the single number, by itself, that each y is, (m,); zero elsewhere."""
        return np.sum(self.singles * (y[:, None] == self.family.singles), axis=1)

    def __call__(self, rows: Any, y: Array, cdf: bool, density: bool) -> list[Array]:
        """As that of `sections.Law`; counts have probabilities in the place of densities."""
        p, law, singles = self.predictive.rows(rows), self.family.law, self.singles[rows]
        out = []
        if cdf:
            out.append(np.sum(singles * (y[:, None] >= self.family.singles), axis=1))
        if density:
            out.append(np.sum(singles * (y[:, None] == self.family.singles), axis=1))
        # where the law gives nothing, or all of its own, no nodes are needed
        within = self._within(y)
        if cdf:
            above = np.flatnonzero(y >= p.family.support.high)  # type: ignore[attr-defined]
            out[0][above] = 1.0
        for some, a, weights in self._nodes(p.rows(within), y[within]):
            at = within[some]
            if cdf:
                out[0][at] += np.einsum("sk,sk->k", weights, law.cdf(a, y[at]))
            if density:
                out[-1][at] += np.einsum("sk,sk->k", weights, np.exp(law.log_prob(a, y[at])))
        return out

    def _within(self, y: Array) -> Rows:
        """Rows whose y the law may give."""
        if self.family.support.integer:
            return np.flatnonzero(y >= (1.0 if self.family.apart else 0.0))
        support: Any = self.family.support
        return np.flatnonzero((y > support.low) & (y < support.high))

    def _nodes(self, p: Predictive, y: Array) -> Iterator[tuple[Rows, Array, Array]]:
        """Rows (k,), nodes of a (S, k, 1), and weights (S, k) whose sum is the law's probability."""
        law: Any = self.family.law
        mean, sd = p.latent_mean[:, 0], np.sqrt(np.maximum(p.latent_cov[:, 0, 0], 0.0))
        odds = Odds.of(p.latent_mean, p.latent_cov)
        width = np.sqrt(1.0 + np.sum(odds.root**2, axis=2))
        bend = np.max(np.abs(odds.slope) * sd[:, None] / width, axis=1, initial=0.0) / BENDS
        finer = 2.0 ** np.ceil(np.log2(np.maximum(bend, 1.0)))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            for times in np.unique(finer):
                group = np.flatnonzero(finer == times)
                spaced = Fineness(FINE.reach, FINE.wide / times, FINE.narrow / times)
                for some, a, weights in step_nodes(law, mean[group], sd[group], y[group], spaced):
                    rows = group[some]
                    yield rows, a, weights * np.exp(odds.rows(rows).log_rest(a[..., 0]))

    def ends(self, q: float) -> Array:
        """Coordinates about the q-quantiles of the law alone."""
        before = np.sum(self.singles * (np.array(self.family.singles) <= 0.0), axis=1)
        return self.start(before + q * (1.0 - self.singles.sum(axis=1)))[0]

    def start(self, q: float | Array) -> tuple[Array, Array | None]:
        """About the quantiles, as coordinates with slopes or as counts, by few nodes of a."""
        p, law = self.predictive, self.family.law
        x, w = hermite((START,))
        a = p.latent_mean[:, 0] + np.sqrt(np.maximum(p.latent_cov[:, 0, 0], 0.0)) * x
        weights = w[:, None] * np.exp(Odds.of(p.latent_mean, p.latent_cov).log_rest(a))
        at, integer = coordinate(p.family.support), p.family.support.integer

        def few(rows: Any, y: Array) -> tuple[Array, Array]:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                nodes, own, singles = a[:, rows, None], weights[:, rows], self.singles[rows]
                F = np.einsum("sk,sk->k", own, law.cdf(nodes, y))
                f = np.einsum("sk,sk->k", own, np.exp(law.log_prob(nodes, self.family.within(y))))
            F = F + np.sum(singles * (y[:, None] >= self.family.singles), axis=1)
            if integer:
                f = np.where(y > 0, f, F)
                return F - f, F
            return F, f * at.slope(y)

        with np.errstate(over="ignore"):
            middle: Array = np.minimum(self.family.parameter("mean", p.latent_mean), LARGEST)
        if integer:
            near = np.clip(np.round(middle), 0.0, 2.0**52).astype(np.float64)
            return integer_roots(few, float(q), near, np.full(len(p), np.inf)), None
        z = roots(few, q, at.clipped(middle), at)
        return z, few(slice(None), at.back(z))[1]

    def densities(self, rows: Rows, y: Array) -> Array:
        """Densities of the law at several y (N, k) of every row: nodes of a serve all of them."""
        p, law = self.predictive.rows(rows), self.family.law
        odds, out = Odds.of(p.latent_mean, p.latent_cov), np.empty(y.shape)
        some: Any = law
        U = some.U(p.latent_mean[:, :1], y[len(y) // 2], expected=True).dense()
        root = np.sqrt(np.maximum(p.latent_cov[:, :1, :1], 0.0))
        for part, a, weights in latent_nodes(p.latent_mean[:, :1], root, U, 4 * len(y)):
            share = weights * np.exp(odds.rows(part).log_rest(a[..., 0].T)).T
            out[:, part] = mixture_density(some, a, share, y[:, part].T).T
        return out
