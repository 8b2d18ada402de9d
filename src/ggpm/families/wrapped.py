"""Bases of families around another one: `Around` has its hyperparameters, `Wrapped` its latents and predictions too."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.families.base import OPTIONAL, Family
from ggpm.families.support.base import Support

Array = NDArray[np.float64]


class Around(Family):
    """A family whose hyperparameters are those of another one, ``base``."""

    base: Family

    @property
    def phi(self) -> Any:  # type: ignore[override]
        return self.base.phi

    @property
    def phi_bounds(self) -> Any:  # type: ignore[override]
        return self.base.phi_bounds

    @property
    def default_bounds(self) -> bool:  # type: ignore[override]
        return self.base.default_bounds

    @property
    def log_unit(self) -> float:  # type: ignore[override]
        return self.base.log_unit

    @property
    def phi_typical(self) -> tuple[float, float] | None:  # type: ignore[override]
        return self.base.phi_typical

    @property
    def log_hyper(self) -> Array:
        return self.base.log_hyper

    @property
    def log_hyper_bounds(self) -> Array:
        return self.base.log_hyper_bounds

    def with_log_hyper(self, value: Array) -> Self:
        return self.with_base(self.base.with_log_hyper(value))

    def with_base(self, base: Family) -> Self:
        """The same around another base: one that is resolved, or has other hyperparameters."""
        out = copy.copy(self)
        out.base = base
        return out


class Wrapped(Around):
    """A resolved family whose encoded y carries more than y; predictions are those of the family itself."""

    def __init__(self, base: Family) -> None:
        self.base = base
        self.latent_dim, self.several_modes = base.latent_dim, base.several_modes
        self.finite, self.countable = base.finite, base.countable  # type: ignore[misc]
        self.shift_invariant = base.shift_invariant  # type: ignore[misc]

    def has(self, name: str) -> bool:
        # closed forms that the wrapper does not pass on are none
        return name in OPTIONAL and name in vars(type(self)) and self.base.has(name)

    @property
    def support(self) -> Support:
        return self.base.support

    @property
    def latent_variance(self) -> float | tuple[float, ...]:  # type: ignore[override]
        return self.base.latent_variance

    @property
    def origin(self) -> Array:
        return self.base.origin

    def with_base(self, base: Family) -> Self:
        out = super().with_base(base)
        out.latent_dim = base.latent_dim
        return out

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return self.base.moment(eta, trials)

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return self.base.spread(eta, trials)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return self.base.sample(eta, rng, trials)


def unwrapped(family: Family) -> Family:
    """The family itself, as predictions use it."""
    while isinstance(family, Wrapped):
        family = family.base
    return family
