"""Links: small elementwise maps with derivatives to third order.

A link carries the latent value ``eta`` to the coordinate in which a family is written down: the natural
parameter for the Dirichlet (``alpha = softplus(eta)``), the logarithm of the mean for counts and positive
outputs. The canonical link is `Identity`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from ggpm.families.special import log1p_minus

__all__ = ["LINKS", "Exp", "Identity", "LogSoftplus", "Softplus", "mean_link"]

Array = NDArray[np.float64]


class Link(Protocol):
    """A smooth, increasing, elementwise map."""

    name: str

    def __call__(self, eta: Array) -> Array:
        """The value of the link at ``eta``."""
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
        return -log_expit(-eta)

    def derivatives(self, eta: Array) -> tuple[Array, Array, Array]:
        s, t = expit(eta), expit(-eta)
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
        # log softplus(eta) -> eta as eta -> -inf, where softplus itself loses its digits
        low = eta < -30.0
        return np.where(low, eta, np.log(-log_expit(-np.where(low, 0.0, eta))))

    def derivatives(self, eta: Array) -> tuple[Array, Array, Array]:
        # with p = softplus, s = p' = expit(eta), r = 1 - s: the derivatives are g1 = s/p, g2 = g1 (r - g1) and
        # g3 = g2^2/g1 - g1 (s r + g2); r - g1 is r log1p_minus(e)/p, e = exp(eta), which keeps its digits as e -> 0
        s, r, e = expit(eta), expit(-eta), np.exp(np.minimum(eta, 1.0))
        p = np.where(e > 0, -log_expit(-eta), 1.0)
        g1 = np.where(e > 0, s / p, 1.0)
        g2 = g1 * np.where(eta < 1.0, r * log1p_minus(e) / p, r - g1)
        return g1, g2, g2 * g2 / g1 - g1 * (s * r + g2)

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
