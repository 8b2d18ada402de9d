"""Closed forms that a family may give: what each answers, and what averages over the latent ask of a density."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

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


class ClosedForms:
    """Every closed form with the answer of a family that does not have it, None; `OPTIONAL` names those to override."""

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

    def part_tails(self, eta: Array, low: Array, high: Array) -> Any:
        """Probabilities that parts are as near as ``low`` and ``high`` to the support's bounds, (2, ..., d).

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
