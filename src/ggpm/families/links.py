"""Links: small elementwise maps with derivatives to third order.

A link carries the latent value ``eta`` to the coordinate in which a family is written down: the natural
parameter for the Dirichlet (``alpha = softplus(eta)``), the logarithm of the mean for counts and positive
outputs. The canonical link is `Identity`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ggpm.families.special import SoftplusTerms

__all__ = ["LINKS", "Exp", "Identity", "LogSoftplus", "Softplus", "mean_link"]

Array = NDArray[np.float64]


class Link(Protocol):
    """A smooth, increasing, elementwise map."""

    name: str

    def __call__(self, eta: Array) -> Array:
        """The value of the link at ``eta``."""
        ...

    def with_slope(self, eta: Array) -> tuple[Array, Array]:
        """The value and the first derivative at ``eta``."""
        ...

    def derivatives(self, eta: Array) -> tuple[Array, Array, Array]:
        """First, second and third derivative at ``eta``."""
        ...

    def inverse(self, value: Array) -> Array:
        """The ``eta`` at which the link takes ``value``."""
        ...


class Identity:
    """The canonical link.

    >>> Identity()(np.array([1.0, 2.0]))
    array([1., 2.])
    """

    name = "identity"

    def __call__(self, eta: Array) -> Array:
        return eta

    def with_slope(self, eta: Array) -> tuple[Array, Array]:
        return eta, np.ones_like(eta)

    def derivatives(self, eta: Array) -> tuple[Array, Array, Array]:
        return np.ones_like(eta), np.zeros_like(eta), np.zeros_like(eta)

    def inverse(self, value: Array) -> Array:
        return value


class Exp:
    """Exponential map onto the positive numbers.

    >>> Exp()(np.array([0.0]))
    array([1.])
    """

    name = "exp"

    def __call__(self, eta: Array) -> Array:
        return np.exp(eta)

    def with_slope(self, eta: Array) -> tuple[Array, Array]:
        e = np.exp(eta)
        return e, e

    def derivatives(self, eta: Array) -> tuple[Array, Array, Array]:
        e = np.exp(eta)
        return e, e, e

    def inverse(self, value: Array) -> Array:
        return np.log(value)


class Softplus:
    """``log(1 + exp(eta))``: positive, and linear for large ``eta`` (the paper's link for the Dirichlet).

    >>> Softplus()(np.array([0.0]))
    array([0.69314718])
    """

    name = "softplus"

    def __call__(self, eta: Array) -> Array:
        return np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta)))

    def with_slope(self, eta: Array) -> tuple[Array, Array]:
        terms = SoftplusTerms(eta)
        return terms.value, terms.slope

    def derivatives(self, eta: Array) -> tuple[Array, Array, Array]:
        terms = SoftplusTerms(eta)
        s, t = terms.slope, terms.complement
        return s, s * t, s * t * (t - s)

    def inverse(self, value: Array) -> Array:
        return value + np.log(-np.expm1(-value))


class LogSoftplus:
    """``log(log(1 + exp(eta)))``: the logarithm of a softplus mean.

    >>> float(LogSoftplus()(np.array([-50.0]))[0])
    -50.0
    """

    name = "log_softplus"

    def __call__(self, eta: Array) -> Array:
        return SoftplusTerms(eta).log

    def with_slope(self, eta: Array) -> tuple[Array, Array]:
        terms = SoftplusTerms(eta)
        return terms.log, terms.log_slope

    def derivatives(self, eta: Array) -> tuple[Array, Array, Array]:
        terms = SoftplusTerms(eta)
        g1 = terms.log_slope
        g2 = terms.log_bend(g1)
        return g1, g2, g2 * g2 / g1 - g1 * (terms.slope * terms.complement + g2)

    def inverse(self, value: Array) -> Array:
        return np.where(value < -30.0, value, Softplus().inverse(np.exp(np.maximum(value, -30.0))))


LINKS: dict[str, Link] = {link.name: link for link in (Identity(), Exp(), Softplus(), LogSoftplus())}


def mean_link(name: str) -> Link:
    """The link from eta to ``log mu`` for a positive mean: ``mu = exp(eta)`` ("log") or ``softplus(eta)``.

    >>> mean_link("softplus").name
    'log_softplus'
    """
    links = {"log": "identity", "softplus": "log_softplus"}
    if name not in links:
        raise ValueError(f"link must be one of {sorted(links)}; got {name!r}. 'log' is mean = exp(latent).")
    return LINKS[links[name]]
