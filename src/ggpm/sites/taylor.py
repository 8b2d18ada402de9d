"""Taylor inference: one expansion of the log-likelihood at a point chosen from y (paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpm.sites.base import Approximation, Problem, curvature_pullback, expand
from ggpm.sites.sensitivity import Cotangent, as_marginals, is_diagonal, posterior_map, shaped, symmetric

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Taylor:
    """Closed-form inference: sites from a second-order expansion at eta~.

    Parameters
    ----------
    expansion : None, array (n, D) or callable
        The point eta~ in the latent space. None means the family's own (the paper's); a callable is given the
        y of `fit` and returns (n, D).
    c : 1 or 0
        The paper's c for the softmax: 1 keeps the coupling of the latent dimensions, 0 drops it, so that every
        dimension is a Gaussian regression of its own on the target `t`.

    Examples
    --------
    >>> Taylor(c=0)
    Taylor(expansion=None, c=0)
    """

    expansion: Array | Callable[[Array], Array] | None = None
    c: int = 1

    def __post_init__(self) -> None:
        if self.c not in (0, 1):
            raise ValueError(f"c must be 0 or 1; got {self.c!r}.")

    def infer(self, problem: Problem, K: Sequence[Array], start: Array | None = None) -> Approximation:
        """Posterior from the sites at the expansion point; ``start`` is not used."""
        return expand(problem, K, self._point(problem), coupled=bool(self.c))

    def gradient(self, approximation: Approximation) -> tuple[list[Array], Array]:
        """Cotangents of the kernel matrices and gradient in the family's hyperparameters."""
        return approximation.gradient(moves_with_mode=False, moves_with_family=self.expansion is None)

    def pullback(self, approximation: Approximation, cotangent: Cotangent) -> tuple[list[Array], Array]:
        """Cotangents of the kernel matrices and gradient in phi of any quantity of the fitted sites."""
        p, point, U = approximation.problem, approximation.point, approximation.U
        eta = point + p.offset
        diagonal = is_diagonal(approximation.solution)
        to = posterior_map(approximation.K, U, approximation.solution, approximation.z, approximation.mean)
        # z = lambda - U m, lambda = u + U f~
        mean_bar, V_bar = cotangent.mean - U.dot(cotangent.z), shaped(cotangent.V, diagonal)
        lam_bar, U_bar = to.sites(mean_bar, V_bar)
        lam_bar = lam_bar + cotangent.z
        direct = cotangent.U - symmetric(cotangent.z, approximation.mean) + symmetric(lam_bar, point)
        d_eta, d_phi = curvature_pullback(
            p, eta, as_marginals(U_bar + shaped(direct, diagonal)), approximation.expected_rows
        )
        phi = cotangent.phi + d_phi + np.einsum("nj,njp->p", lam_bar, p.family.u_phi(eta, p.y))
        if self.expansion is None:
            moved = d_eta + U.dot(lam_bar) - p.family.U(eta, p.y).dot(lam_bar)
            phi = phi + p.family.expansion_pullback(p.y, moved)
        return to.kernels(mean_bar, V_bar), phi

    def _point(self, problem: Problem) -> Array:
        if self.expansion is None:
            eta = problem.family.expansion(problem.y)
        else:
            given = self.expansion(problem.family.decode(problem.y)) if callable(self.expansion) else self.expansion
            eta = np.asarray(given, dtype=float)
            eta = eta[:, None] if eta.ndim == 1 else eta
            if eta.shape != problem.shape:
                raise ValueError(f"the expansion point must have shape (n, D) = {problem.shape}; got {eta.shape}.")
            if not np.all(np.isfinite(eta)):
                raise ValueError("the expansion point must be finite for every row.")
        return eta - problem.offset
