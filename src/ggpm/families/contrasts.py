"""Rows whose likelihood depends on differences of their latents alone: expectations over one latent less.

A softmax does not change when a constant is added to all D latents of a row. With A the contrasts with the last latent,
``(A eta)_j = eta_j - eta_D``, log p is a function of A eta ~ N(A m, A V A^T), and the derivatives follow by the chain
rule: u = A^T u', U = A^T U' A. This saves nodes, and U is singular along the constant to the last digit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggpm.families.base import Family
from ggpm.families.curvature import Blocks

Array = NDArray[np.float64]


class Contrasts:
    """A family as a function of the contrasts, (..., D - 1): what expectations ask of it.

    >>> from ggpm.families import Multinomial
    >>> y = np.array([[1.0, 2.0]])
    >>> Contrasts(Multinomial().resolve(y)).log_prob_and_u(np.zeros((1, 1)), y)[1]
    array([[-0.5]])
    """

    def __init__(self, family: Family):
        self.family = family

    @staticmethod
    def whole(eta: Array) -> Array:
        """Latents with these contrasts, the last one zero."""
        return np.concatenate([eta, np.zeros((*eta.shape[:-1], 1))], axis=-1)

    @property
    def log_hyper(self) -> Array:
        return self.family.log_hyper

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        log_p, u = self.family.log_prob_and_u(self.whole(eta), y)
        return log_p, u[..., :-1]

    def U(self, eta: Array, y: Array) -> Blocks:
        return Blocks(self.family.U(self.whole(eta), y).dense()[..., :-1, :-1])

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        return self.family.log_prob_phi(self.whole(eta), y)

    def u_phi(self, eta: Array, y: Array) -> Array:
        return self.family.u_phi(self.whole(eta), y)[..., :-1, :]


def contrasts(D: int) -> Array:
    """A, (D - 1, D).

    >>> contrasts(3)
    array([[ 1.,  0., -1.],
           [ 0.,  1., -1.]])
    """
    return np.concatenate([np.eye(D - 1), -np.ones((D - 1, 1))], axis=1)
