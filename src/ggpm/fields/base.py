"""Fields: priors that tie the latents of all rows together.

A `Field` is rows and a layout. Under a family and kernels it becomes a `Process`: the prior of the rows' latents,
and the Gaussian posteriors that sites make of it. A process asks a site rule for the sites of its rows and does the
linear algebra around them; it does not know which rule that is, nor what the family is.

The search for sites (`ggpm.learning.engine`) moves in coordinates of the process's own choice:

* *points* x, arrays in which a mean moves along straight lines and the prior mean is zero;
* *natural parameters* of a Gaussian q, a pair of arrays (linear, quadratic) that may be mixed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.families.base import Family

Array = NDArray[np.float64]
Natural = tuple[Array, Array]
Trial = tuple[float, float, Any]
"""The length of a step, the objective there, and the look there, or None if only the objective was looked at."""


@dataclass(frozen=True)
class Approximation:
    """A Gaussian approximation of the posterior under one process, and its evidence."""

    process: Any
    """The `Process` that it belongs to."""
    rule: Any
    """The site rule, resolved for this process."""
    q: Any
    """The approximation itself, a Gaussian in the process's own terms, with its mean as a point ``x`` and
    ``log_det``, log|I + U K|."""
    look: Any
    """The sites that it was made from."""
    log_evidence: float
    converged: bool
    n_iter: int
    trace: tuple[float, ...] = field(default=(), repr=False)
    """The objective of the search after every step."""
    n_passes: int = 0
    """Passes over the rows that the search took, on fields that read them in chunks."""

    @property
    def start(self) -> Any:
        """Start that `find` takes for a search nearby."""
        return self.process.remember(self)


class Field(ABC):
    """Rows and how their latents hang together, before family and kernels are chosen."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows."""

    @abstractmethod
    def process(self, family: Family, kernels: Sequence[Any]) -> Process:
        """The field under one family and one kernel, or one for each latent dimension."""

    def sample(self, index: NDArray[np.intp]) -> Self:
        """The field of some of the rows."""
        raise NotImplementedError(f"{type(self).__name__} gives no subsets of its rows.")


class Process(ABC):
    """A field under given hyperparameters."""

    shape: tuple[int, int]
    """(n, D)."""
    n_passes: int = 0
    """Passes over the rows so far, on fields that read them in chunks."""
    blocks_are_cheap: bool = False
    """Whether D×D sites cost as little as diagonal ones."""
    looks_are_cheap: bool = True
    """Whether a look costs little beside a factorisation, so that starts may be compared with the prior mean."""
    chord_steps: float = 0.0
    """Number of steps with an old factorisation that cost as much as a new one."""

    # ---- expansions: the search for a mean -----------------------------------------------------------------------
    @abstractmethod
    def origin(self) -> Array:
        """The point of the prior mean."""

    @abstractmethod
    def look(self, rule: Any, x: Array, q: Any = None, *, fisher: bool = False, curvature: bool = True) -> Any:
        """The sites at a point, under the covariances of q where the rule depends on them.

        A look has the point ``x``, the ``objective`` there (the log-likelihood that the rule stands for, less the
        prior's energy) and ``fisher``, whether the Fisher curvature was asked for; the rest is the process's own.
        Without ``curvature`` the precision of the sites is not asked for.
        """

    def glance(self, rule: Any, x: Array) -> float:
        """The objective of a look at a point, for less than a look where that costs much."""
        return self.look(rule, x).objective

    @abstractmethod
    def factor(self, look: Any) -> Any:
        """The factorisation that belongs to sites; raises `NotPositiveDefinite` if there is none."""

    def unchanged(self, look: Any, factor: Any) -> bool:
        """Whether a factorisation belongs to these sites too, because their precision is the same."""
        return False

    @abstractmethod
    def newton(self, look: Any, factor: Any) -> tuple[Array, float]:
        """The step of a Newton iteration and its squared decrement."""

    @abstractmethod
    def gaussian(self, factor: Any, x: Array) -> Any:
        """The Gaussian with the precision of a factorisation and the mean of a point."""

    def trials(self, rule: Any, look: Any, step: Array, curvature: bool = True) -> Iterator[Trial]:
        """The whole step, its half, its quarter and so on, each looked at when it is asked for."""
        t = 1.0
        for _ in range(40):
            ahead = self.look(rule, look.x + t * step, curvature=curvature)
            yield t, ahead.objective, ahead
            t *= 0.5

    def unexplained(self, look: Any) -> float:
        """``sum_i <U_i, what of the prior variance this field leaves out>``."""
        return 0.0

    # ---- bounds: the search for mean and covariance ------------------------------------------------------------
    @abstractmethod
    def natural(self, q: Any, factorised: bool) -> Natural:
        """The natural parameters of a Gaussian, without coupling of the latent dimensions if ``factorised``."""

    @abstractmethod
    def narrowed(self, natural: Natural, q: Any, precision: float) -> Natural:
        """Natural parameters with so much more precision in every coordinate and the mean of q."""

    @abstractmethod
    def from_natural(self, natural: Natural) -> Any:
        """The Gaussian of natural parameters; raises `NotPositiveDefinite` if there is none."""

    @abstractmethod
    def prior_natural(self, rule: Any) -> Natural:
        """Natural parameters that always have a bound: those of the prior, or close to it."""

    @abstractmethod
    def target(self, look: Any, q: Any) -> Natural:
        """The natural parameters to which a natural-gradient step of length one leads."""

    @abstractmethod
    def change(self, look: Any, q: Any) -> float:
        """The largest move of such a step, relative to the largest parameter."""

    @abstractmethod
    def overlap(self, q: Any) -> float:
        """``sum_i <U_i, V_ii>``: with log_det and the energy it makes the Kullback-Leibler divergence."""

    def uncertainty(self, q: Any) -> float:
        """Standard error of the bound of q, where its log-determinant is an estimate."""
        return 0.0

    def wobble(self, rule: Any, look: Any) -> float:
        """Nats by which bounds of states nearby may differ because their expectations have other nodes."""
        return float(rule.wobble * self.shape[0])

    def coupled_target(self, rule: Any, look: Any, q: Any) -> Natural | None:
        """A better target where factorised sites leave out a coupling that the likelihood has; None: none is known."""
        return None

    def ahead(self, rule: Any) -> Any:
        """What finds targets nearer to the end of a search than natural-gradient steps, by several such; or None.

        It has a method ``target(rule, look, q, change)``, with the change of the next step, and lasts for one search.
        """
        return None

    # ---- from one process to another -----------------------------------------------------------------------------
    @abstractmethod
    def remember(self, approximation: Approximation) -> Any:
        """Start for a search under other hyperparameters, for `resume` or `resume_natural`."""

    @abstractmethod
    def resume(self, start: Any) -> tuple[Array, Array | None]:
        """A point from what was remembered of an expansion, and the rows' latents there if they are known."""

    @abstractmethod
    def resume_natural(self, start: Any) -> list[Natural]:
        """Natural parameters to try, from what was remembered of a bound."""

    # ---- results -----------------------------------------------------------------------------------------------------
    @abstractmethod
    def gradient(self, approximation: Approximation) -> tuple[Array, Array]:
        """Gradient of the evidence in the kernels' log-hyperparameters and in the family's."""

    def information(self, approximation: Approximation) -> Array | None:
        """Information of the evidence on the hyperparameters, (p, p), the kernels' first; None where it costs much."""
        return None

    def renewed(self, approximation: Approximation) -> Approximation:
        """The same approximation with nothing in it that a posterior made from it uses too."""
        return approximation

    @abstractmethod
    def posterior(self, approximation: Approximation) -> Any:
        """Posterior for predictions, with a method ``latent(X)``."""
