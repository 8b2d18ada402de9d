"""Where natural-gradient steps lead, seen from one factorisation.

Every step of a bound's search asks for marginals of the posterior, and these for a factorisation, O(n^3). Near q they
are known without: V = (K^-1 + U)^-1 moves with its sites by ``-V dU V`` to first order, and the mean by the solve at
hand. With marginals from there the steps are followed to their end, for O(n^2) and a few nodes each. What is found is
where to go: its error is the square of how far away it is, as after a step of Newton's method.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Blocks, Diagonal, Marginals
from ggpm.fields.base import Natural
from ggpm.fields.dense.sensitivity import Sensitivity
from ggpm.fields.rows import site_values, sites_of
from ggpm.kernels.linalg import NotPositiveDefinite, anderson, available_memory
from ggpm.sites.base import Rule

Array = NDArray[np.float64]

# Most steps; the share of the first one below which they end, since marginals of first order are no better than that;
# and how many times the smallest so far one may be, or else they lead nowhere.
STEPS, SHARE, APART = 12, 0.01, 4.0
MEMORY = 8  # steps that the extrapolation looks at
# Where sites have closed forms and latents are several, V costs as much as a step or more, and so much is saved only
# where the last step left more than this share of the change.
SLOW = 0.25
# V serves again while what it is wrong by, about the product of the changes then and now, is so many times the
# tolerance, and while steps with it leave no more than this share.
AGAIN, GOOD = 10.0, 0.1


class Ahead:
    """Targets of a search for a bound, by what one covariance of all latents tells of others nearby.

    Parameters
    ----------
    process : of rows, on the dense field
    """

    def __init__(self, process: Any):
        self.process = process
        self.last, self.made, self.rate = 0.0, np.inf, np.inf
        self.moved: Sensitivity | None = None

    def target(self, rule: Rule, look: Any, q: Any, change: float) -> Natural | None:
        """Natural parameters on which sites and marginals agree to first order; None where a plain step does.

        ``change`` is that of the step that the search would take.
        """
        n, D = self.process.shape
        left, self.last = change / self.last if self.last else 0.0, change
        diagonal = isinstance(look.sites.U, Diagonal)
        U_q, aims = site_values(q.U, diagonal), site_values(look.sites.U, diagonal)
        sizes = 1.0 + np.abs(q.z).max(), 1.0 + np.abs(U_q).max()
        freely = D == 1 or look.sites.error > 0.0
        # a precision that stays leaves nothing to look for (Gaussian outputs), nor does a step that will be the last
        still = np.abs(aims - U_q).max() <= 0.1 * rule.tol * sizes[1]
        if not (freely or left > SLOW) or still or change * self.rate <= rule.tol:
            return None
        if self.moved is None or left > GOOD or change * self.made > AGAIN * rule.tol:
            self.moved = None  # gives its memory back before the next one is made
            if 16.0 * ((1 if diagonal else D) * n) ** 2 > available_memory():  # V, and what it is made of
                return None
            self.moved, self.made = q.solution.sensitivity(), change
        V = q.marginals.diag if diagonal else q.marginals.dense()
        near = rule.near(self.process.problem, q.mean, q.marginals, look.sites)
        z, m, U, u, first, least = q.z, q.mean, U_q, look.sites.u, 0.0, np.inf
        history: list[tuple[Array, Array]] = []
        target = None
        for step in range(STEPS):
            size = max(np.abs(u - z).max() / sizes[0], np.abs(aims - U).max() / sizes[1])
            if not size <= APART * least:  # or not a number
                break
            first, least = first or size, min(least, size)
            if step == 1:
                self.rate = size / first
            target = u + sites_of(aims).dot(m), aims
            if size <= max(SHARE * first, 0.3 * rule.tol) or step == STEPS - 1:
                break
            image = z + q.solution.solve(u - z), aims
            history = [*history, (_flat(z, U), _flat(*image))][-MEMORY:]
            z, U = _unflat(anderson(history), U.shape) if len(history) > 1 else image
            m = self.process.K.dot(z)
            try:
                with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                    sites = near(m, _less(V, self.moved.sandwich(U - U_q)))
            except NotPositiveDefinite:
                break
            u, aims = sites.u, site_values(sites.U, diagonal)
        return target


def _less(V: Array, moved: Array) -> Marginals:
    """About ``V - moved``, by precisions: exact to all orders where rows do not depend on each other."""
    if V.ndim == 2:
        return Diagonal(1.0 / (1.0 / V + moved / V**2))
    inverse = np.linalg.inv(V)
    out = np.linalg.inv(inverse + inverse @ moved @ inverse)
    return Blocks(0.5 * (out + out.swapaxes(1, 2)))


def _flat(z: Array, U: Array) -> Array:
    return np.concatenate([z.ravel(), U.ravel()])


def _unflat(x: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    split = shape[0] * shape[1]
    return x[:split].reshape(shape[:2]), x[split:].reshape(shape)
