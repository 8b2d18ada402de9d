"""Site rules: the Gaussian factor that each row gets in the place of its likelihood.

A rule looks at the Gaussian N(m_i, V_ii) of a row's latent and answers with the gradient u_i and the precision U_i of
the row's site. Rules differ in what they look at and in these arrays alone:

===========  ==============  =================================================================================
rule         depends on      site
===========  ==============  =================================================================================
Taylor       y               u and U of log p at a point chosen from y                  (paper, section 3.2)
Laplace      mean            u and U of log p at m                                      (paper, section 3.3)
variational  covariance      E[u] and E[U] under N(m, V)                                (Khan & Lin 2017)
===========  ==============  =================================================================================

A rule knows no field: it never sees a kernel, nor how rows hang together.

Two expectations are kept apart by name: E[.] and ``expect...`` are over the latent, under q; ``fisher`` is for that
over y given the latent, the Fisher curvature, which families give as ``U(..., expected=True)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.families.base import Family
from ggpm.families.curvature import Curvature, Marginals

Array = NDArray[np.float64]


class InferenceError(np.linalg.LinAlgError):
    """Inference could not produce a posterior at these hyperparameters."""


@dataclass(frozen=True)
class Problem:
    """Some rows as inference sees them: a resolved family, encoded y, and the offset of the latent (n, D)."""

    family: Family
    y: Array
    offset: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return self.offset.shape[0], self.offset.shape[1]

    def log_prob(self, f: Array) -> float:
        """Log-likelihood of all rows at latent values f; -inf where it is not a number."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            total = float(np.sum(self.family.log_prob(f + self.offset, self.y)))
        return total if np.isfinite(total) else -np.inf


@dataclass(frozen=True)
class Sites:
    """The sites of some rows at given marginals."""

    u: Array
    """Gradient of the (approximate, or expected) log-likelihood in the rows' means, (n, D)."""
    U: Curvature
    """Precision of the sites."""
    fisher: NDArray[np.bool_] | None = None
    """Rows in which the Fisher curvature stands for an observed one that is indefinite; None: no row."""
    value: float | None = None
    """The expected log-likelihood, for rules that depend on the covariance."""
    coupling: Array | None = None
    """U with the coupling of latent dimensions that factorised sites leave out, (n, D, D), where it costs nothing."""
    levels: Any = None
    """Rules of the nodes that expectations were summed over, for their derivatives."""
    error: float = 0.0
    """What `value` may be off by because of its nodes."""
    nodes: Any = None
    """As `levels`, also where the expectation over one latent has a closed form and its derivatives have not."""


class Slopes(ABC):
    """Derivatives of the sites of some rows at one point, ready to be pulled back many times."""

    @abstractmethod
    def pullback(
        self, u_bar: Array | None, U_bar: Marginals | None, *, value: bool = False, phi: bool = True
    ) -> tuple[Array, Array | None, Array]:
        """Derivatives of ``<u_bar, u> + <U_bar, U>`` in the means (n, D), the covariances and phi (p,).

        ``value`` adds the log-likelihood that the rule stands for, with the means held: the objective is stationary in
        them. The derivative in the covariances is None for rules that do not depend on them, that in phi is not
        computed where it is not asked for.
        """

    def u_phi(self, u_bar: Array) -> Array:
        """Derivative of ``<u_bar, u>`` in phi alone, (p,)."""
        return self.pullback(u_bar, None)[2]


class Rule(ABC):
    """Rule by which every row gets its site; subclasses are frozen dataclasses of settings."""

    depends_on: ClassVar[Literal["y", "mean", "covariance"]]
    """Quantity that sites change with. Rules that depend on the covariance maximise a bound, others an expansion."""
    max_iter: int = 100
    """Most steps of the search for sites."""
    tol: float = 1e-18
    """Tolerance that ends the search: for expansions the squared Newton decrement relative to 1 + |objective|, for
    bounds the largest move of a site parameter relative to the largest."""
    patience: int = 100
    """Steps with the Fisher curvature, without its decrement being halved, after which an expansion is given up."""
    factorised: bool = False
    """Whether the sites leave out the coupling of latent dimensions on purpose."""

    def ftol(self, D: int) -> float | None:
        """Relative precision of the evidence that a search for hyperparameters can count on, D latents; None: full."""
        return None

    @property
    def wobble(self) -> float:
        """Nats per row that `Sites.value` is asked to be exact to, where it is a sum over nodes."""
        return 0.0

    def loosened(self, D: int) -> Self:
        """The rule for evaluations within a search for hyperparameters, whose end is evaluated anew; D latents."""
        return self

    def checked(self, n: int, D: int) -> Self:
        """The rule, once it is clear that settings of it that belong to rows are for so many rows and latents."""
        return self

    def of_rows(self, rows: Any) -> Self:
        """The rule for some of the rows, where settings of it belong to rows."""
        return self

    def resolved(self, n: int, D: int, blocks_are_cheap: bool) -> Self:
        """The rule for so many rows and latents; ``blocks_are_cheap`` where D×D sites cost as little as diagonal."""
        return self

    def value(self, problem: Problem, f: Array) -> float:
        """The log-likelihood of all rows at latent values f, as the rule sees it (not asked of bounds)."""
        return problem.log_prob(f)

    def u(self, problem: Problem, f: Array) -> Array:
        """The gradient of `value` alone, (n, D)."""
        return self.at(problem, f).u

    @abstractmethod
    def at(self, problem: Problem, f: Array, V: Marginals | None = None, fisher: bool = False) -> Sites:
        """The sites at means f and covariances V; ``fisher`` asks for the Fisher curvature in every row."""

    def coupled(self, problem: Problem, f: Array, V: Marginals, sites: Sites) -> Array:
        """U with the coupling of latent dimensions that factorised sites leave out, (n, D, D)."""
        return sites.U.dense() if sites.coupling is None else sites.coupling

    def near(self, problem: Problem, f: Array, V: Marginals, sites: Sites) -> Callable[[Array, Marginals], Sites]:
        """Gradient and precision of the sites at means and covariances near f and V, for less than `at` asks.

        They are smooth, and at f and V they are ``sites``.
        """
        return lambda f, V: self.at(problem, f, V)

    @abstractmethod
    def slopes(self, problem: Problem, f: Array, V: Marginals | None, sites: Sites) -> Slopes:
        """The derivatives of `at` at the same point."""


def curvature_pullback(problem: Problem, eta: Array, M: Any, fisher: NDArray[np.bool_] | None) -> tuple[Array, Array]:
    """Derivatives of ``sum_i <M_i, U_i>`` in eta and phi; U is the Fisher curvature in the rows of ``fisher``."""
    if fisher is None or not fisher.any():
        return problem.family.U_pullback(eta, problem.y, M)
    keep = fisher[:, None]
    d_observed, p_observed = problem.family.U_pullback(eta, problem.y, _Rows(M, ~keep))
    d_fisher, p_fisher = problem.family.U_pullback(eta, problem.y, _Rows(M, keep), expected=True)
    return d_observed + d_fisher, p_observed + p_fisher


@dataclass(frozen=True)
class _Rows:
    """Marginals that are zero outside some rows."""

    base: Marginals
    keep: NDArray[np.bool_]

    @property
    def diag(self) -> Array:
        return np.where(self.keep, self.base.diag, 0.0)

    def dot(self, w: Array) -> Array:
        return np.where(self.keep, self.base.dot(w), 0.0)

    def dense(self) -> Array:
        return np.where(self.keep[..., None], self.base.dense(), 0.0)
