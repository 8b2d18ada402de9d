"""The default expansion point of Taylor inference: the mode of a row's own log-likelihood, held by a ridge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ggpm.families.base import Family

Array = NDArray[np.float64]

STEPS = 60  # most Newton steps: a bound against formulas that never settle
# Newton decrement g^T H^-1 g at which to stop. A row may stop before, with an error near 1e-8: smaller steps raise the
# objective by less than it is rounded.
DONE = 1e-22


def ridged_mode(family: Family, y: Array, ridge: float) -> Array:
    """Mode of log p(y|eta) - ridge |eta|²/2, found for every row by damped Newton steps: always finite, (n, D)."""
    n, D = len(y), family.latent_dim
    eta = np.zeros((n, D))

    def objective(e: Array) -> Array:
        with np.errstate(all="ignore"):
            value = family.log_prob(e, y) - 0.5 * ridge * np.sum(e**2, axis=-1)
        return np.where(np.isfinite(value), value, -np.inf)

    value, step = objective(eta), np.ones(n)
    for _ in range(STEPS):
        gradient, H = family.u(eta, y) - ridge * eta, _ridged(family, eta, y, ridge)
        # rows without derivatives (a formula that fails at this point) stay where they are
        known = np.isfinite(np.concatenate([gradient, H.reshape(n, -1)], axis=1))
        lost = np.asarray(~np.all(known, axis=1), dtype=bool)
        gradient, H = np.where(lost[:, None], 0.0, gradient), np.where(lost[:, None, None], np.eye(D), H)
        indefinite = np.linalg.eigvalsh(H)[:, 0] <= 0
        if indefinite.any():
            H = np.where(indefinite[:, None, None], _ridged(family, eta, y, ridge, expected=True), H)
        move = np.linalg.solve(H, gradient[..., None])[..., 0]
        if np.max(np.sum(move * gradient, axis=-1)) < DONE:
            break
        trial = eta + step[:, None] * move
        new = objective(trial)
        better = new >= value
        eta, value = np.where(better[:, None], trial, eta), np.where(better, new, value)
        step = np.where(better, np.minimum(1.0, 2.0 * step), 0.25 * step)
    return eta


def ridged_mode_pullback(family: Family, y: Array, ridge: float, cotangent: Array) -> Array:
    """Derivative of <cotangent, ridged_mode> in phi, (p,)."""
    # the point solves u = ridge eta, hence d eta = (U + ridge)^-1 d u
    eta = family.expansion(y)
    back = np.linalg.solve(_ridged(family, eta, y, ridge), cotangent[..., None])[..., 0]
    return np.einsum("nj,njp->p", back, family.u_phi(eta, y))


def _ridged(family: Family, eta: Array, y: Array, ridge: float, expected: bool = False) -> Array:
    return family.U(eta, y, expected=expected).dense() + ridge * np.eye(family.latent_dim)
