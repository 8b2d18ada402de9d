"""What fields share in which every row has latents of its own: looks at the rows' sites, and natural parameters.

Natural parameters are those of the sites, ``lambda = z + U m`` and U, where z is the gradient at which the Gaussian was
made. The dense field and the neighbours field differ in how the rows' priors hang together, not in this.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Blocks, Curvature, Diagonal, Marginals
from ggpm.fields.base import Natural, Process
from ggpm.sites.base import Problem, Rule, Sites

Array = NDArray[np.float64]

# Change of the log prior variance from which a start with rescaled sites is tried as well; it costs one factorisation,
# and nearer by the sites as they are serve.
RESCALED = 0.5


class RowsLook:
    """The sites of all rows as seen from a point x with latents f (n, D) and prior energy ``energy``/2."""

    def __init__(
        self, problem: Problem, rule: Rule, x: Array, f: Array, energy: float, V: Marginals | None, fisher: bool
    ) -> None:
        self.problem, self.rule, self.x, self.f, self.V, self.fisher = problem, rule, x, f, V, fisher
        value = rule.value(problem, f) if V is None else self.sites.value
        assert value is not None
        objective = value - 0.5 * energy
        self.objective = objective if np.isfinite(objective) else -np.inf

    @cached_property
    def sites(self) -> Sites:
        """Gradient and precision."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self.rule.at(self.problem, self.f, self.V, self.fisher)

    @property
    def u(self) -> Array:
        """The gradient, without the precision where that was not asked for yet."""
        return self.sites.u if "sites" in self.__dict__ else self.rule.u(self.problem, self.f)


class RowsProcess(Process):
    """A process whose Gaussians have the rows' sites: ``q.U``, ``q.z``, ``q.mean`` and ``q.marginals``."""

    problem: Problem

    @abstractmethod
    def prior_variance(self) -> Array:
        """Mean prior variance of every kernel."""

    def unchanged(self, look: RowsLook, factor: Any) -> bool:
        return equal(look.sites.U, factor.U)

    def wobble(self, rule: Rule, look: RowsLook) -> float:
        return max(super().wobble(rule, look), look.sites.error)

    def natural(self, q: Any, factorised: bool) -> Natural:
        U = site_values(q.U, factorised)
        return q.z + sites_of(U).dot(q.mean), U

    def narrowed(self, natural: Natural, q: Any, precision: float) -> Natural:
        added = precision if natural[1].ndim == 2 else precision * np.eye(self.shape[1])
        return natural[0] + precision * q.mean, natural[1] + added

    def prior_natural(self, rule: Rule) -> Natural:
        p = self.problem
        U = p.family.U(p.offset, p.y, expected=True)
        return np.zeros(self.shape), site_values(U, rule.factorised)

    def target(self, look: RowsLook, q: Any) -> Natural:
        U = look.sites.U
        return look.sites.u + U.dot(q.mean), site_values(U, isinstance(U, Diagonal))

    def change(self, look: RowsLook, q: Any) -> float:
        old, new = (site_values(U, isinstance(U, Diagonal)) for U in (q.U, look.sites.U))
        # least: a precision that says as little as the prior does, hence in the unit of y
        du, dU, least = np.abs(look.sites.u - q.z).max(), np.abs(new - old).max(), 1.0 / self.prior_variance().mean()
        change = max(du / (np.sqrt(least) + np.abs(q.z).max()), dU / (least + np.abs(old).max()))
        return float(change) if np.isfinite(change) else np.inf

    def overlap(self, q: Any) -> float:
        if isinstance(q.U, Diagonal):
            return float(np.sum(q.U.gamma * q.marginals.diag))
        return float(np.sum(q.U.dense() * q.marginals.dense()))

    def resume_natural(self, start: Any) -> list[Natural]:
        lam, U, variance = start
        if lam.shape != self.shape:
            return []
        tries = [(lam, U)]
        # Where the likelihood is steep against the prior, E[u] stays and E[U] goes with 1/sd when the prior grows.
        ratio = self.prior_variance() / variance
        if np.any(np.abs(np.log(ratio)) > RESCALED):
            tries.append((lam, U / np.mean(ratio) ** 0.5))
        return tries


def equal(a: Curvature, b: Curvature) -> bool:
    """Whether two curvatures of one family are the same numbers (constant curvature: the Gaussian)."""
    return all(
        np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values()) if x is not None and y is not None
    )


def site_values(U: Curvature, factorised: bool) -> Array:
    """A curvature as the array of a site: diagonals (n, D) or blocks (n, D, D)."""
    if factorised:
        return U.gamma if isinstance(U, Diagonal) else np.ascontiguousarray(np.einsum("njj->nj", U.dense()))
    return U.dense()


def sites_of(values: Array) -> Diagonal | Blocks:
    """The curvature of such an array."""
    return Diagonal(values) if values.ndim == 2 else Blocks(values)
