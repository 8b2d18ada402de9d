"""Gamma whose shape is a function of the inputs too."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from scipy.special import gammaln

from ggpm.families.base import Array, moments
from ggpm.families.gamma import Gamma
from ggpm.families.special.rising import stirling_jet
from ggpm.families.special.stable import linear_minus_log
from ggpm.families.support import Positive
from ggpm.families.two_parameters import Information, WithDispersion


class GammaMeanShape(WithDispersion):
    """Positive numbers whose mean mu and shape k both vary with the inputs; the variance is mu²/k.

    ========  ====================================================================================
    support   y > 0
    latents   a = log mu, b = log k
    log p     g(b) - log y - k (y/mu - 1 - log(y/mu)), g = k log k - k - log Gamma(k)
    U         [k y/mu, k (1 - y/mu); ., k (y/mu - 1 - log(y/mu)) - g'']
    expected  [k, 0; 0, k² psi'(k) - k]: mean and shape are orthogonal
    ========  ====================================================================================

    With ``kernel=None`` each latent has a kernel of its own.

    Examples
    --------
    >>> import numpy as np
    >>> GammaMeanShape().moment(np.log([[3.0, 2.0]])), GammaMeanShape().spread(np.log([[3.0, 2.0]]))
    (array([3.]), array([4.5]))
    """

    support = Positive()
    parameters = ("mean", "shape")
    needs_spread = (1e-7, "gamma")  # squared, it is the rounding error of the mean
    sign = -1.0

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        out = super().resolve(y, weight)
        out.log_unit = float(np.log(moments(self.encode(y), weight)[0]))
        return out

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        (mean, variance), out = moments(self.encode(y), weight), copy.copy(self)
        out._origin = np.log([mean, mean**2 / (variance or mean**2)])
        return out

    def at(self, b: Array) -> Gamma:
        return Gamma(phi=np.exp(-b))  # type: ignore[arg-type]

    def prepared(self, b: Array, y: Array) -> tuple[Array, ...]:
        log_y = np.log(y)
        return np.exp(b), log_y, self.at(b).log_prob_xi(log_y, y)

    def along(self, a: Array, *prepared: Array) -> Array:
        shape, log_y, top = prepared
        away = log_y - a
        return top - shape * (np.expm1(away) - away)

    def curved(self, a: Array, b: Array, y: Array) -> tuple[Array, Array, Array]:
        k, mu = np.exp(b), np.exp(a)
        _, g2, g3 = stirling_jet(k)
        cost = k * linear_minus_log(y, mu, y - mu)
        return g2 - cost, k * (y - mu) / mu, g3 - cost

    def information_b(self, a: Array, b: Array, y: Array) -> Information:
        g1, g2, g3 = stirling_jet(np.exp(b))
        zero = 0.0 * (a + y)
        return Information((zero, None, g1 - g2 + zero), (zero, None, zero), (zero, None, g2 - g3 + zero))

    def natural(self, eta: Array) -> tuple[Array, Array]:
        """theta = (-k/mu, k) and b = log Gamma(k) - k log(k/mu)."""
        a, b = eta[..., 0], eta[..., 1]
        k = np.exp(b)
        return np.stack([-np.exp(b - a), k], axis=-1), gammaln(k) - k * (b - a)

    def statistic(self, y: Array) -> tuple[Array, Array]:
        """y and log y, and -log y."""
        log_y = np.log(y)
        return np.stack([y, log_y], axis=-1), -log_y

    def expansion(self, y: Array) -> Array:
        return np.stack([np.log(y), np.zeros_like(y)], axis=-1)

    def loss(self, y: Array, prediction: Array) -> Array:
        return 2.0 * linear_minus_log(y, prediction, y - prediction)  # the gamma's unit deviance
