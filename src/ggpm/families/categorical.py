"""Categorical: one of d unordered classes."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from ggpm.data.checks import check_whole
from ggpm.data.text import Hint, Message
from ggpm.families.base import Array
from ggpm.families.multinomial import NARROW, Multinomial
from ggpm.families.special import log_softmax, softmax
from ggpm.families.special.class_points import WIDE, largest_difference, probabilities_of
from ggpm.families.special.class_probabilities import class_probabilities
from ggpm.families.special.logsumexp import expected_logsumexp
from ggpm.families.special.one_scale import split
from ggpm.families.support import Codes, Support

# Of class probabilities: what factors leave of a covariance, the error of integrals in one dimension, and relative
# errors: those of densities, and up to which they are nearer than grids and points over five latents and more.
_REST, _ROUNDED, _DIGITS, _ROUGH = 0.005, 5e-10, 5e-7, 1e-3


class Categorical(Multinomial):
    """One of d classes: the multinomial with one trial.

    ========  ============================================================================
    support   codes 0, 1, ..., d-1; encoded as indicator vectors (n, d)
    T, b, h   indicator vector, log sum_j exp(theta_j), 1
    a         1
    link      theta = eta (canonical); pi = softmax(eta), D = d
    U         diag(pi) - pi pi^T; singular
    ========  ============================================================================

    The prediction is the vector of class probabilities; samples are codes.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes d; by default one more than the largest code in the data.

    Examples
    --------
    >>> import numpy as np
    >>> family = Categorical(n_classes=3)
    >>> family.u(np.zeros((1, 3)), family.encode([2])).round(3)
    array([[-0.333, -0.333,  0.667]])
    """

    countable = False
    finite = True

    def __init__(self, n_classes: int | None = None):
        self.n_classes = n_classes

    @property
    def support(self) -> Support:
        return Codes(n_codes=self.latent_dim or self.n_classes)

    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        if self.n_classes is not None:
            check_whole(self.n_classes, "n_classes", 2)
        codes = self.support.validate(y)
        d = self.n_classes or (int(codes.max()) + 1 if codes.size else 0)
        if d > max(1000, 10 * codes.size):
            raise ValueError(
                Message(
                    f"the largest code is {d - 1} for {codes.size} rows; codes run from 0 without gaps. "
                    "For labels of any kind use ",
                    Hint("GGPClassifier", "family", "categorical"),
                    " or ",
                    Hint("GGPOrdinalClassifier", "family", "ordinal"),
                    ".",
                )
            )
        if d < 2 or np.unique(codes).size < 2:
            found = np.unique(codes).astype(int).tolist()
            raise ValueError(
                f"y must contain at least two classes; got {found}. Nothing can be learned from one class: "
                "check how the rows were selected."
            )
        out = copy.copy(self)
        out.latent_dim = d
        return out

    def encode(self, y: Any) -> Array:
        codes = self.support.validate(y).astype(int)
        d = self.latent_dim or self.n_classes or int(codes.max()) + 1
        return np.eye(d)[codes]

    def decode(self, y: Array) -> Array:
        return y.argmax(axis=-1).astype(float)

    def log_prob(self, eta: Array, y: Array) -> Array:
        return np.einsum("...j,...j->...", y, log_softmax(eta))

    def log_expected_prob_factorised(
        self, mean: Array, var: Array, y: Array, gradient: bool = False
    ) -> tuple[Array, Array | None, Array | None]:
        """log E[p(y)] for independent latents N(mean, var), (n,), with its derivatives in both if asked for."""
        E = expected_logsumexp(mean, var, second=gradient)
        p = np.einsum("nj,nj->n", y, E.d_mean)
        if E.d_mean_var is None:
            return np.log(p), None, None
        d_mean, d_var = (np.einsum("nj,njk->nk", y, d) / p[:, None] for d in (E.d_mean_mean, E.d_mean_var))
        return np.log(p), d_mean, d_var

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array | None:
        """Logarithms of class probabilities of wide latents, nan in rows that integrals of the density serve better."""
        D = mean.shape[1]
        if D < 3:
            return None
        single = np.isfinite(split(cov)[1][:, 0])  # `ggpm.families.special.one_scale` can do these, if they are narrow
        rows = np.flatnonzero((np.einsum("njj->nj", cov).max(axis=1) > NARROW) | ((D > 4) & ~single))
        out = np.full(len(mean), np.nan)
        if not rows.size:
            return None
        found, error = class_probabilities(mean[rows], cov[rows], _REST)
        p = np.einsum("nj,nj->n", y[rows], found)
        off = (error + _ROUNDED) / np.maximum(p, 1e-300)
        many = (D > 4) & ~single[rows]
        rare = np.flatnonzero(many & (off > _DIGITS) & (largest_difference(cov[rows]) > WIDE))
        if rare.size:  # a class by itself has all its digits
            i = rows[rare]
            alone, own = probabilities_of(mean[i], cov[i], y[i].argmax(axis=1))
            better = own < off[rare]
            p[rare[better]], off[rare[better]] = alone[better], own[better]
        good = off <= np.where(many, _ROUGH, _DIGITS)
        out[rows[good]] = np.log(p[good])
        return out

    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return softmax(eta)

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return super().spread(eta)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        # the largest of eta plus standard Gumbel noise has class probabilities softmax(eta)
        return (eta + rng.gumbel(size=eta.shape)).argmax(axis=-1).astype(float)
