"""Rows of weight: any family whose log density counts w_i times in row i, done once for all families and inferences.

The weight travels with the encoded y, as its last column, so that whoever cuts, stores or sends rows need not know it.
With a Gaussian prior on a latent that equal rows share, a row of weight 2 is the same as the row twice.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import with_weight
from ggpm.families.base import OPTIONAL, Family
from ggpm.families.curvature import Curvature, Marginals
from ggpm.families.kinds import Support

__all__ = ["Weighted", "unweighted"]

Array = NDArray[np.float64]


class Weighted(Family):
    """A resolved family with a weight for every row; encoded y is flat, with the weight as its last column.

    Parameters
    ----------
    base : resolved Family
    row_shape : shape of one encoded y of it

    Examples
    --------
    >>> from ggpm.families import Poisson
    >>> family, y = Weighted.join(Poisson(), np.array([3.0, 0.0]), np.array([2.0, 0.5]))
    >>> family.log_prob(np.zeros((2, 1)), y) / Poisson().log_prob(np.zeros((2, 1)), np.array([3.0, 0.0]))
    array([2. , 0.5])
    """

    def __init__(self, base: Family, row_shape: tuple[int, ...] = ()) -> None:
        self.base = base
        self.row_shape = row_shape
        self.latent_dim = base.latent_dim
        self.finite, self.countable = base.finite, base.countable  # type: ignore[misc]

    @classmethod
    def join(cls, base: Family, y: Array, weight: Array) -> tuple[Weighted, Array]:
        """The family for weighted rows, and their encoded y."""
        return cls(base, y.shape[1:]), with_weight(y, weight)

    def split(self, y: Array) -> tuple[Array, Array]:
        """y as the family itself takes it, and the weights."""
        return y[..., :-1].reshape(*y.shape[:-1], *self.row_shape), y[..., -1]

    def has(self, name: str) -> bool:
        # closed forms that this class does not pass on are none
        return name in OPTIONAL and name in vars(Weighted) and self.base.has(name)

    # ---- what does not know of weights -------------------------------------------------------------------------
    @property
    def support(self) -> Support:
        return self.base.support

    @property
    def phi(self) -> Any:  # type: ignore[override]
        return self.base.phi

    @property
    def phi_bounds(self) -> Any:  # type: ignore[override]
        return self.base.phi_bounds

    @property
    def log_hyper(self) -> Array:
        return self.base.log_hyper

    @property
    def log_hyper_bounds(self) -> Array:
        return self.base.log_hyper_bounds

    def with_log_hyper(self, value: Array) -> Self:
        out = copy.copy(self)
        out.base = self.base.with_log_hyper(value)
        return out

    def decode(self, y: Array) -> Array:
        return self.base.decode(self.split(y)[0])

    def expansion(self, y: Array) -> Array:
        return self.base.expansion(self.split(y)[0])

    def expansion_pullback(self, y: Array, cotangent: Array) -> Array:
        return self.base.expansion_pullback(self.split(y)[0], cotangent)

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return self.base.moment(eta, trials)

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return self.base.spread(eta, trials)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return self.base.sample(eta, rng, trials)

    # ---- what counts w times -----------------------------------------------------------------------------------
    def log_prob(self, eta: Array, y: Array) -> Array:
        y, w = self.split(y)
        return w * self.base.log_prob(eta, y)

    def u(self, eta: Array, y: Array) -> Array:
        y, w = self.split(y)
        return w[..., None] * self.base.u(eta, y)

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        y, w = self.split(y)
        value, u = self.base.log_prob_and_u(eta, y)
        return w * value, w[..., None] * u

    def U(self, eta: Array, y: Array, expected: bool = False) -> Curvature:
        y, w = self.split(y)
        return self.base.U(eta, y, expected=expected).times(np.broadcast_to(w, eta.shape[:-1]))

    def u_and_U(self, eta: Array, y: Array) -> tuple[Array, Curvature]:
        y, w = self.split(y)
        u, U = self.base.u_and_U(eta, y)
        return w[..., None] * u, U.times(np.broadcast_to(w, eta.shape[:-1]))

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        y, w = self.split(y)
        return self.base.U_pullback(eta, y, _Scaled(V, w), expected=expected)

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        y, w = self.split(y)
        return w[..., None] * self.base.log_prob_phi(eta, y)

    def u_phi(self, eta: Array, y: Array) -> Array:
        y, w = self.split(y)
        return w[..., None, None] * self.base.u_phi(eta, y)

    def phi_slopes(self, eta: Array, y: Array) -> tuple[Array, Array]:
        y, w = self.split(y)
        value, u = self.base.phi_slopes(eta, y)
        return w[..., None] * value, w[..., None, None] * u

    def expected_log_prob(self, mean: Array, var: Array, y: Array) -> Any:
        y, w = self.split(y)
        found = self.base.expected_log_prob(mean, var, y)
        return None if found is None else (w * found[0], w[:, None] * found[1], w[:, None] * found[2])

    def expected_log_prob_factorised(self, mean: Array, var: Array, y: Array, second: bool = False) -> Any:
        y, w = self.split(y)
        found = self.base.expected_log_prob_factorised(mean, var, y, second=second)
        if found is None:
            return None
        parts = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
        return type(found)(**{k: None if v is None else (v.T * w).T for k, v in parts.items()})


@dataclass(frozen=True)
class _Scaled:
    """Marginals times a weight for every row."""

    base: Marginals
    weight: Array

    @property
    def diag(self) -> Array:
        return self.weight[..., None] * self.base.diag

    def dot(self, w: Array) -> Array:
        return self.weight[..., None] * self.base.dot(w)

    def dense(self) -> Array:
        return self.weight[..., None, None] * self.base.dense()


def unweighted(family: Family, y: Array) -> tuple[Family, Array]:
    """The family and its encoded y without weights, where they have any: a prediction is for a weight of one.

    >>> from ggpm.families import Poisson
    >>> unweighted(*Weighted.join(Poisson(), np.array([3.0]), np.array([2.0])))
    (Poisson(), array([3.]))
    """
    return (family.base, family.split(y)[0]) if isinstance(family, Weighted) else (family, y)
