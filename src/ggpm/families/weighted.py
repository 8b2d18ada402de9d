"""Rows of weight: any family whose log density counts w_i times in row i, done once for all families and inferences.

The weight travels with the encoded y, as its last column, so that whoever cuts, stores or sends rows need not know it.
With a Gaussian prior on a latent that equal rows share, a row of weight 2 is the same as the row twice.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import with_weight
from ggpm.families.base import Family
from ggpm.families.curvature import Curvature, Marginals
from ggpm.families.wrapped import Wrapped

__all__ = ["Weighted", "unweighted"]

Array = NDArray[np.float64]


class Weighted(Wrapped):
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
        super().__init__(base)
        self.row_shape = row_shape

    @classmethod
    def join(cls, base: Family, y: Array, weight: Array) -> tuple[Weighted, Array]:
        """The family for weighted rows, and their encoded y."""
        return cls(base, y.shape[1:]), with_weight(y, weight)

    def split(self, y: Array) -> tuple[Array, Array]:
        """y as the family itself takes it, and the weights."""
        return y[..., :-1].reshape(*y.shape[:-1], *self.row_shape), y[..., -1]

    def decode(self, y: Array) -> Array:
        return self.base.decode(self.split(y)[0])

    def expansion(self, y: Array) -> Array:
        return self.base.expansion(self.split(y)[0])

    def expansion_pullback(self, y: Array, cotangent: Array) -> Array:
        return self.base.expansion_pullback(self.split(y)[0], cotangent)

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

    def expected_log_prob_blocks(self, mean: Array, cov: Array, y: Array) -> Any:
        y, w = self.split(y)
        found = self.base.expected_log_prob_blocks(mean, cov, y)
        return None if found is None else (w * found[0], w[:, None] * found[1], found[2].times(w))

    def expected_log_prob_wide(self, mean: Array, cov: Array, y: Array) -> Any:
        y, w = self.split(y)
        found = self.base.expected_log_prob_wide(mean, cov, y)
        return None if found is None else (w * found[0], w[:, None] * found[1], found[2].times(w))

    def expected_over_last(self, eta: Array, sd: Array, y: Array) -> Any:
        y, w = self.split(y)
        found = self.base.expected_over_last(eta, sd, y)
        return None if found is None else (w * found[0], w[:, None] * found[1], w * found[2])

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


def weights_of(family: Family, y: Array) -> Array:
    """How often each encoded row counts, (n,): once where the family knows no weights.

    >>> from ggpm.families import Poisson
    >>> weights_of(Poisson(), np.array([3.0, 1.0])), weights_of(*Weighted.join(Poisson(), np.ones(1), np.array([2.0])))
    (array([1., 1.]), array([2.]))
    """
    return family.split(y)[1] if isinstance(family, Weighted) else np.ones(len(y))


def unweighted(family: Family, y: Array) -> tuple[Family, Array]:
    """The family and its encoded y without weights, where they have any: a prediction is for a weight of one.

    >>> from ggpm.families import Poisson
    >>> unweighted(*Weighted.join(Poisson(), np.array([3.0]), np.array([2.0])))
    (Poisson(), array([3.]))
    """
    return (family.base, family.split(y)[0]) if isinstance(family, Weighted) else (family, y)
