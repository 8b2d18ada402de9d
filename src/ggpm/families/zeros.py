"""What `Hurdle` and `ZeroInflated` share: a scalar family with latent a, and b, the logit of a probability of zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit, log_expit

from ggpm.data.text import Message
from ggpm.families.base import Array, Family, ScalarFamily, bound
from ggpm.families.inflated import Inflated, Law
from ggpm.families.integration import LogDensity, Rule
from ggpm.families.poisson import Poisson
from ggpm.families.support import Support
from ggpm.families.support.checks import check_numbers
from ggpm.families.two_parameters import TwoParameters
from ggpm.families.wrapped import Around


@dataclass(frozen=True)
class WithAtoms(Support):
    """Numbers of another support, and single ones besides that have probabilities of their own.

    >>> from ggpm.families.support import Positive
    >>> WithAtoms(Positive(), (0.0,)).validate([0, 2.5])
    array([0. , 2.5])
    """

    inner: Support
    places: tuple[float, ...]

    @property
    def atoms(self) -> tuple[float, ...]:  # type: ignore[override]
        return self.places

    @property
    def low(self) -> float:  # type: ignore[override]
        return self.inner.low

    @property
    def high(self) -> float:  # type: ignore[override]
        return self.inner.high

    def is_atom(self, y: Array) -> Any:
        """Mask of the y that are atoms."""
        return np.isin(y, self.atoms)

    def validate(self, y: Any) -> Array:
        out = check_numbers(y, "numbers")
        out = out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out
        if out.ndim != 1:
            raise ValueError(f"y must be one number per row; got an array of shape {out.shape}.")
        inside = 0.5 if np.isfinite(self.inner.high) else 1.0  # rows keep their numbers
        try:
            self.inner.validate(np.where(self.is_atom(out), inside, out))
        except ValueError as error:
            exact = " and ".join(f"{atom:g}" for atom in self.atoms)
            raise ValueError(Message(error, f" Rows that are exactly {exact} are taken, too.")) from None
        return out

    def example(self, rng: np.random.Generator, n: int) -> Array:
        y = self.inner.example(rng, n)
        for k, atom in enumerate(self.atoms):
            y[k :: len(self.atoms) + 2] = atom
        return y

    def rule(self, log_density: LogDensity, like: Array) -> Rule:
        some = self.inner.example(np.random.default_rng(0), 1)[0]
        rule = self.inner.rule(log_density, some)
        atoms = np.array(self.atoms)
        return Rule(np.concatenate([atoms, rule.y]), np.concatenate([0.0 * atoms, rule.log_weights]), rule.random,
                    rule.atol)  # fmt: skip


class Jet(NamedTuple):
    """A function of latents a, three derivatives in a, and slopes in phi of it and of the first two, (..., p) each."""

    value: Array
    d1: Array
    d2: Array
    d3: Array
    phi: Array
    d1_phi: Array
    d2_phi: Array


def jet(family: ScalarFamily, a: Array, y: Array) -> Jet:
    """log p and its derivatives in the latent, the link included."""
    xi, (g1, g2, g3) = family._link(a), family._link.derivatives(a)
    (l1, l2, l3), (lp, l1p, l2p) = family.all_derivatives(xi, y)
    s1, s2 = g1[..., None], g2[..., None]
    return Jet(
        family.log_prob_xi(xi, y), l1 * g1, l2 * g1**2 + l1 * g2, l3 * g1**3 + 3.0 * l2 * g1 * g2 + l1 * g3,
        lp, l1p * s1, l2p * s1**2 + l1p * s2,
    )  # fmt: skip


class Zeros(Around, Inflated, TwoParameters):
    """A scalar family with a probability of zero, ``pi = expit(b)``, that is a function of the inputs too."""

    parameters = ("mean", "zero")

    def __init__(self, base: Family | None = None) -> None:
        self.base = Poisson() if base is None else base

    # ---- the family inside -----------------------------------------------------------------------------------
    @property
    def scalar(self) -> ScalarFamily:
        """The family of numbers that are not zeros of their own kind."""
        if not isinstance(self.base, ScalarFamily) or not np.isfinite(self.base.support.low):
            raise TypeError(
                f"{type(self).__name__} takes families of counts, positive numbers or shares with one latent, such as "
                f"Poisson(), NegativeBinomial(), Gamma() or Beta(); got {self.base!r}."
            )
        return self.base

    @property
    def counts(self) -> bool:
        """Whether the family inside has zeros of its own."""
        return self.scalar.support.integer

    @property
    def singles(self) -> tuple[float, ...]:
        return (0.0,)

    @property
    def law(self) -> Law:
        return self.scalar

    @property
    def support(self) -> Support:  # type: ignore[override]
        inner = self.scalar.support
        return inner if self.counts else WithAtoms(inner, (0.0,))

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        values = self.support.validate(y)
        return self.with_base(bound(self.scalar, *self._others(values, weight)))

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        values = self.support.validate(y)
        others, theirs = self._others(values, weight)
        out = self.with_base(bound(self.scalar, others, theirs, adapt=True))
        weight = np.ones(len(values)) if weight is None else weight
        share = (weight @ (values == 0) + 0.5) / (weight.sum() + 1.0)
        out._origin = np.array([out.base.origin[0], np.log(share) - np.log1p(-share)])
        return out

    def _others(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Rows that say something about the family inside; one made up where there is none."""
        there = np.ones(len(y), dtype=bool) if self.counts else y != 0
        if not there.any():
            return self.scalar.support.example(np.random.default_rng(0), 1), None
        return y[there], None if weight is None else weight[there]

    def some(self, y: Array) -> tuple[Any, Array]:
        """Which y are zero, and numbers that the family inside takes in all rows."""
        zero = y == 0
        return zero, np.where(zero, 1.0 if self.scalar.support.high > 1.0 else 0.5, y)

    def none(self, a: Array, y: Array) -> Jet:
        """log of the probability of zero under the family inside; minus infinity for numbers that have none."""
        return jet(self.scalar, a, np.zeros_like(y))

    def log_none(self, a: Array) -> Array:
        """The value of `none` alone, at a fraction of its cost."""
        return self.scalar.log_prob_xi(self.scalar._link(a), np.zeros_like(a))

    def scalar_information(self, a: Array, y: Array) -> tuple[Array, Array, Array]:
        """Information on a of the family inside, and its slopes in a and phi."""
        xi, (g1, g2, _) = self.scalar._link(a), self.scalar._link.derivatives(a)
        info, info_xi, info_phi = self.scalar.information(xi, y)
        return info * g1**2, info_xi * g1**3 + 2.0 * info * g1 * g2, info_phi * (g1**2)[..., None]

    def expansion(self, y: Array) -> Array:
        """The point of the family inside where y says something about it, and a probability of zero of 1/4 or 3/4."""
        zero, some = self.some(y)
        return np.stack([self.scalar.expansion(some)[..., 0], np.where(zero, np.log(3.0), -np.log(3.0))], axis=-1)

    def parameter(self, name: str, eta: Array) -> Array:
        """The mean of what is not a zero of its own kind, or the probability pi of such a zero."""
        return self.inner_moments(eta[..., 0])[0] if name == "mean" else expit(eta[..., 1])

    # ---- in the space of y -----------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return expit(-eta[..., 1]) * self.inner_moments(eta[..., 0])[0]

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        mean, square = self.inner_moments(eta[..., 0])
        share = expit(-eta[..., 1])
        return share * (square - mean**2) + share * (1.0 - share) * mean**2

    def loss(self, y: Array, prediction: Array) -> Array:
        return (y - prediction) ** 2


def softplus_jet(b: Array) -> tuple[Array, Array, Array, Array]:
    """log(1 + exp(b)) and three derivatives."""
    p, q = expit(b), expit(-b)
    return -log_expit(-b), p, p * q, p * q * (q - p)
