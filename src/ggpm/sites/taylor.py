"""Taylor's rule: one expansion of the log-likelihood at a point chosen from y (paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Combination, Curvature, Diagonal, Marginals, Outer
from ggpm.sites.base import Problem, Rule, Sites, Slopes, curvature_pullback

Array = NDArray[np.float64]


@dataclass(frozen=True, init=False)
class Taylor(Rule):
    """Closed-form inference: sites from a second-order expansion at eta~.

    Parameters
    ----------
    expansion : None, array (n, D) or callable
        The point eta~ in the latent space. None means the family's own (the paper's); a callable is given the
        y of `fit` and returns (n, D).
    coupling : 1 or 0
        The paper's c for the softmax: 1 keeps the coupling of the latent dimensions, 0 drops it, so that every
        dimension is a Gaussian regression of its own on the target `t`. Its old name ``c`` is an alias.

    Examples
    --------
    >>> Taylor(coupling=0), Taylor(c=0) == Taylor(coupling=0)
    (Taylor(expansion=None, coupling=0), True)
    """

    expansion: Array | Callable[[Array], Array] | None = None
    coupling: int = 1
    depends_on = "y"

    def __init__(
        self, expansion: Array | Callable[[Array], Array] | None = None, coupling: int | None = None,
        *, c: int | None = None,
    ) -> None:  # fmt: skip
        if coupling is not None and c is not None and c != coupling:
            raise ValueError(f"c is the old name of coupling: give one of them; got c={c!r}, coupling={coupling!r}.")
        given = coupling if coupling is not None else 1 if c is None else c
        if given not in (0, 1):
            raise ValueError(f"{'c' if coupling is None else 'coupling'} must be 0 or 1; got {given!r}.")
        object.__setattr__(self, "expansion", expansion)
        object.__setattr__(self, "coupling", given)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # pickles of version 0.1 say c
        self.__dict__.update({"coupling" if name == "c" else name: value for name, value in state.items()})

    @property
    def c(self) -> int:
        """The old name of ``coupling``."""
        return self.coupling

    @property
    def factorised(self) -> bool:  # type: ignore[override]
        return not self.coupling

    def checked(self, n: int, D: int) -> Self:
        if self.expansion is not None and not callable(self.expansion):
            _checked(self.expansion, (n, D))
        return self

    def of_rows(self, rows: Any) -> Self:
        if self.expansion is None or callable(self.expansion):
            return self
        return replace(self, expansion=np.asarray(self.expansion, dtype=float)[rows])

    def point(self, problem: Problem) -> Array:
        """f~, the expansion point less the offset, (n, D)."""
        if self.expansion is None:
            eta = problem.family.expansion(problem.y)
        else:
            given = self.expansion(problem.family.decode(problem.y)) if callable(self.expansion) else self.expansion
            eta = _checked(given, problem.shape)
        return eta - problem.offset

    def _expand(self, problem: Problem) -> tuple[Array, Array, Curvature, NDArray[np.bool_]]:
        """f~, u and U there, and the rows where the observed curvature is indefinite and Fisher's is used."""
        point = self.point(problem)
        eta = point + problem.offset
        u, U = problem.family.u_and_U(eta, problem.y)
        definite = U.semidefinite()
        if not definite.all():
            # for these rows alone: Fisher's curvature may be a sum over all counts up to thousands
            rows = ~definite
            U = U.select(definite, problem.family.U(eta[rows], problem.y[rows], expected=True))
        return point, u, U if self.coupling else U.diagonal(), ~definite

    def value(self, problem: Problem, f: Array) -> float:
        point, u, U, _ = self._expand(problem)
        r = f - point
        return problem.log_prob(point) + float(np.sum(r * (u - 0.5 * U.dot(r))))  # paper, section 3.2

    def at(self, problem: Problem, f: Array, V: Marginals | None = None, fisher: bool = False) -> Sites:
        point, u, U, rows = self._expand(problem)
        return Sites(u - U.dot(f - point), U, rows)

    def slopes(self, problem: Problem, f: Array, V: Marginals | None, sites: Sites) -> Slopes:
        point, _, _, rows = self._expand(problem)
        return _TaylorSlopes(self, problem, point, f - point, sites.U, rows)


def _checked(given: Any, shape: tuple[int, ...]) -> Array:
    """An expansion point of this shape (n, D)."""
    eta = np.asarray(given, dtype=float)
    eta = eta[:, None] if eta.ndim == 1 else eta
    if eta.shape != shape:
        raise ValueError(f"the expansion point must have shape (n, D) = {shape}; got {eta.shape}.")
    if not np.all(np.isfinite(eta)):
        raise ValueError("the expansion point must be finite for every row.")
    return eta


@dataclass(frozen=True)
class _TaylorSlopes(Slopes):
    """With r = f - f~ the value is ``l + u~^T r - r^T U r/2`` and the gradient ``u~ - U r``."""

    rule: Taylor
    problem: Problem
    point: Array
    r: Array
    U: Curvature
    fisher: NDArray[np.bool_]

    def pullback(
        self, u_bar: Array | None, U_bar: Marginals | None, *, value: bool = False, phi: bool = True
    ) -> tuple[Array, Array | None, Array]:
        p, eta, r = self.problem, self.point + self.problem.offset, self.r
        f_bar = np.zeros_like(r) if u_bar is None else -self.U.dot(u_bar)
        if not phi or not p.family.log_hyper.size:
            return f_bar, None, np.zeros(p.family.log_hyper.size)
        terms: list[tuple[float, Marginals]] = [] if U_bar is None else [(1.0, U_bar)]
        slope = np.zeros_like(r)  # of the whole in u~
        if value:
            slope = slope + r
            terms.append((-0.5, Outer(r, r)))
        if u_bar is not None:
            slope = slope + u_bar
            terms.append((-1.0, Outer(u_bar, r)))
        M: Marginals = Combination(terms)
        point_bar, phi_bar = curvature_pullback(p, eta, M if self.rule.coupling else Diagonal(M.diag), self.fisher)
        log_prob_phi, u_phi = p.family.phi_slopes(eta, p.y)
        phi_bar = phi_bar + np.einsum("nj,njp->p", slope, u_phi)
        if value:
            phi_bar = phi_bar + log_prob_phi.sum(axis=0)
        if self.rule.expansion is None:
            if self.fisher.any() or not self.rule.coupling:
                # u~ moves by the observed curvature, the site by Fisher's, or by the diagonal
                point_bar = point_bar + self.U.dot(slope) - p.family.U(eta, p.y).dot(slope)
            phi_bar = phi_bar + p.family.expansion_pullback(p.y, point_bar)
        return f_bar, None, phi_bar
