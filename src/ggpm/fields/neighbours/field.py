"""The neighbours field: every row's prior given its nearest earlier rows, and posteriors by sparse factorisations.

Points x are the latents f (N, D) of the distinct rows. With Q_j the sparse prior precision of latent j and sites of
gradient u and precision U, summed over the rows of a point, a Newton step is ``P^-1 (u - Q f)`` with
``P = blockdiag(Q_j) + U``. Natural parameters are those of the rows' sites, ``lambda = u + U m`` and U. Gradient:
with ``V = P^-1``, ``s = dL/dm`` and ``w = V s`` (zero where sites stay)

    dL/dQ_j = -1/2 (m_j m_j^T + V_jj + w_j m_j^T + m_j w_j^T) + 1/2 Q_j^-1,

of which only entries within cliques are needed (`ggpm.fields.neighbours.conditionals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.families.base import Family
from ggpm.families.curvature import Blocks, Combination, Curvature, Diagonal, Marginals
from ggpm.fields.base import Approximation, Field, Natural
from ggpm.fields.dense.matrices import kernel_of
from ggpm.fields.neighbours.conditionals import Conditionals
from ggpm.fields.neighbours.factor import NARROW
from ggpm.fields.neighbours.layout import Layout
from ggpm.fields.neighbours.posterior import NeighboursPosterior
from ggpm.fields.neighbours.precision import SparsePrecision
from ggpm.fields.neighbours.search import CLOSE, SMOOTH_NUGGET, is_rough, nearest
from ggpm.fields.neighbours.settings import Neighbours
from ggpm.fields.rows import RowsLook, RowsProcess, site_values, sites_of
from ggpm.kernels import diag
from ggpm.sites.base import Problem, Rule

Array = NDArray[np.float64]

# nD from which steps with an old factorisation are tried, smaller ones are cheap to make anew; and the most that are
# taken to cost as much as a new one
CHORD_SIZE, CHORD_MOST = 1000, 15.0
# Conjugate gradients within a step, as on the dense field
CG_STEPS, CG_RTOL = 50, 1e-2
# Rows whose neighbours are compared, and the share of them that must stay, for a layout to suit other kernels
SAMPLE, SAME = 1000, 0.9


@dataclass(frozen=True)
class NeighboursGaussian:
    """q(f) with precision ``blockdiag(Q_j) + U``."""

    U: Curvature
    """Curvature of the rows' sites."""
    precision: SparsePrecision
    f: Array
    """Mean at the points, (N, D)."""
    mean: Array
    """Mean at the rows, (n, D)."""
    z: Array
    """Gradients of the rows' sites at the mean, (n, D)."""
    log_det: float
    """log|I + U K|."""

    @property
    def x(self) -> Array:
        return self.f

    @cached_property
    def marginals(self) -> Marginals:
        """The covariances of the rows' latents."""
        blocks = self.precision.blocks[self.precision.layout.place]
        return Diagonal(blocks) if blocks.ndim == 2 else Blocks(blocks)


class NeighboursLook(RowsLook):
    """The sites of all rows as seen from a point."""

    def __init__(self, process: NeighboursProcess, rule: Rule, x: Array, V: Marginals | None, fisher: bool) -> None:
        self.Qx = process.prior_dot(x)
        f = x[process.layout.place]
        super().__init__(process.problem, rule, x, f, float(np.sum(x * self.Qx)), V, fisher)


@dataclass(frozen=True)
class _Factor:
    U: Curvature
    precision: SparsePrecision
    rule: Rule


@dataclass
class NeighboursField(Field):
    """All rows in memory, each conditioned on its nearest earlier rows.

    Parameters
    ----------
    X, y, offset : arrays (n, features), encoded outputs of n rows, (n, D)
    settings : Neighbours
    kernels : under which neighbours are near

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> NeighboursField(np.zeros((3, 1)), np.zeros(3), np.zeros((3, 1)), Neighbours(2), [RBF()]).n_rows
    3
    """

    X: Array
    y: Array
    offset: Array
    settings: Neighbours
    kernels: Sequence[Any]

    @cached_property
    def layout(self) -> Layout:
        """Order, neighbours and tree of the rows, which stay while hyperparameters are learned."""
        return Layout(self.X, self.kernels, self.settings)

    @property
    def nugget(self) -> float:
        """Variance that is added to the prior of every point, relative to its own."""
        if self.settings.nugget is not None:
            return self.settings.nugget
        apart = 1.5 if self.layout.closest >= CLOSE else 0.5
        return 0.0 if all(is_rough(kernel, apart) for kernel in self.kernels) else SMOOTH_NUGGET

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "layout"}

    @property
    def n_rows(self) -> int:
        return len(self.X)

    def iterative(self, D: int) -> bool:
        """Whether posteriors of D coupled latents are found without a factorisation."""
        return self.layout.iterative(D)

    def sample(self, index: NDArray[np.intp]) -> Self:
        return type(self)(self.X[index], self.y[index], self.offset[index], self.settings, self.kernels)

    def suits(self, kernels: Sequence[Any]) -> bool:
        """Whether the neighbours of the layout are still near under other kernels, as far as a sample of rows tells."""
        some = self.X[:: max(1, len(self.X) // SAMPLE)]
        before, now = (
            nearest(k, self.X, some, min(self.settings.number, len(self.X))) for k in (self.kernels, kernels)
        )
        common = [len(np.intersect1d(a, b)) for a, b in zip(before, now)]
        return sum(common) >= SAME * before.size

    def process(self, family: Family, kernels: Sequence[Any]) -> NeighboursProcess:
        priors = [Conditionals(self.layout, kernel, self.nugget) for kernel in kernels]
        return NeighboursProcess(Problem(family, self.y, self.offset), self.layout, priors, list(kernels))


class NeighboursProcess(RowsProcess):
    """Sparse priors of all latents under given kernels."""

    def __init__(
        self, problem: Problem, layout: Layout, priors: Sequence[Conditionals], kernels: Sequence[Any]
    ) -> None:
        self.problem, self.layout, self.priors, self.kernels = problem, layout, priors, kernels
        self.shape = problem.shape
        if layout.iterative(self.shape[1]):
            return
        if np.prod(self.shape) >= CHORD_SIZE and layout.tree.bandwidth > NARROW:
            self.chord_steps = min(layout.tree.solves, CHORD_MOST)

    def prior_dot(self, f: Array) -> Array:
        """``Q f`` for f (N, D)."""
        if len(self.priors) == 1:
            return self.priors[0].dot(f)
        return np.stack([prior.dot(f[:, j]) for j, prior in enumerate(self.priors)], axis=1)

    def _prior_log_det(self) -> float:
        D = self.shape[1]
        return sum(self.priors[kernel_of(j, len(self.priors))].log_det for j in range(D))

    # ---- expansions --------------------------------------------------------------------------------------------
    def origin(self) -> Array:
        return np.zeros((self.layout.n_points, self.shape[1]))

    def look(
        self, rule: Rule, x: Array, q: NeighboursGaussian | None = None, *, fisher: bool = False, curvature: bool = True
    ) -> NeighboursLook:
        return NeighboursLook(self, rule, x, None if q is None else q.marginals, fisher)

    def factor(self, look: NeighboursLook) -> _Factor:
        return _Factor(look.sites.U, SparsePrecision(self.layout, self.priors, look.sites.U), look.rule)

    def newton(self, look: NeighboursLook, factor: _Factor) -> tuple[Array, float]:
        residual = self.layout.at_points(look.u) - look.Qx
        step = factor.precision.solve(residual)
        return step, float(np.sum(residual * step))

    def gaussian(self, factor: _Factor, x: Array) -> NeighboursGaussian:
        f = x[self.layout.place]
        z = factor.rule.u(self.problem, f)
        log_det = factor.precision.log_det - self._prior_log_det()
        return NeighboursGaussian(factor.U, factor.precision, x, f, z, log_det)

    # ---- bounds ------------------------------------------------------------------------------------------------
    def from_natural(self, natural: Natural) -> NeighboursGaussian:
        lam, U = natural[0], sites_of(natural[1])
        precision = SparsePrecision(self.layout, self.priors, U)
        pulled = self.layout.at_points(lam)
        f = precision.solve(pulled)
        left = pulled - self.prior_dot(f) - self.layout.at_points(U.dot(f[self.layout.place]))
        f = f + precision.solve(left)  # one step of refinement
        mean = f[self.layout.place]
        return NeighboursGaussian(U, precision, f, mean, lam - U.dot(mean), precision.log_det - self._prior_log_det())

    def uncertainty(self, q: NeighboursGaussian) -> float:
        return 0.5 * q.precision.log_det_error

    def coupled_target(self, rule: Rule, look: NeighboursLook, q: NeighboursGaussian) -> Natural | None:
        """Sites whose covariance is the natural gradient's and whose mean is a Newton step's, as on the dense field."""
        if not rule.factorised or self.shape[1] == 1:
            return None
        layout = self.layout
        U = layout.at_points(rule.coupled(self.problem, q.mean, q.marginals, look.sites))
        r = layout.at_points(look.sites.u) - self.prior_dot(q.f)
        dm = np.zeros_like(r)
        p = s = q.precision.solve(r)
        rho = first = float(np.sum(r * s))
        for _ in range(CG_STEPS):
            Ap = self.prior_dot(p) + np.einsum("njk,nk->nj", U, p)
            curvature = float(np.sum(p * Ap))
            if not curvature > 0:
                break
            alpha = rho / curvature
            dm, r = dm + alpha * p, r - alpha * Ap
            s = q.precision.solve(r)
            rho, last = float(np.sum(r * s)), rho
            if not rho > CG_RTOL**2 * first:
                break
            p = s + rho / last * p
        # the row's gradient at the new mean, to first order: with it the sites' mean is that of the step
        sites, at_rows = look.sites.U, dm[layout.place]
        coupled = rule.coupled(self.problem, q.mean, q.marginals, look.sites)
        z = look.sites.u - np.einsum("njk,nk->nj", coupled, at_rows)
        return z + sites.dot(q.mean + at_rows), site_values(sites, True)

    # ---- from one process to another -----------------------------------------------------------------------------
    def remember(self, approximation: Approximation) -> Any:
        q = approximation.q
        if approximation.rule.depends_on != "covariance":
            return self.prior_dot(q.f), q.mean
        return *self.natural(q, approximation.rule.factorised), self.prior_variance()

    def resume(self, start: Any) -> tuple[Array, Array | None]:
        z, mean = start
        priors = [self.priors[kernel_of(j, len(self.priors))] for j in range(self.shape[1])]
        x = np.stack([prior.covariance_dot(z[:, j]) for j, prior in enumerate(priors)], axis=1)
        return x, mean + self.problem.offset

    def prior_variance(self) -> Array:
        return np.array([np.mean(diag(kernel, self.layout.X)) for kernel in self.kernels])

    # ---- results -------------------------------------------------------------------------------------------------
    def gradient(self, approximation: Approximation) -> tuple[Array, Array]:
        a, q, rule = approximation, approximation.q, approximation.rule
        slopes = rule.slopes(self.problem, q.mean, q.marginals, a.look.sites)
        # an expansion's log-determinant moves with U, a bound is stationary in it
        U_bar = None if rule.depends_on == "covariance" else Combination([(-0.5, q.marginals)])
        s, _, phi = slopes.pullback(None, U_bar, value=True)
        w = np.zeros_like(q.f)
        if rule.depends_on == "mean":  # the mode moves (GPML sec. 5.5.1)
            w = q.precision.solve(self.layout.at_points(s))
            phi = phi + slopes.u_phi(w[self.layout.place])
        return np.concatenate([q.precision.pullback(k, q.f, w) for k in range(len(self.priors))]), phi

    def posterior(self, approximation: Approximation) -> NeighboursPosterior:
        q, layout = approximation.q, self.layout
        U = layout.at_points(q.U.diagonal().gamma if isinstance(q.U, Diagonal) else q.U.dense())
        settings = replace(layout.settings, nugget=self.priors[0].nugget)
        return NeighboursPosterior(self.kernels, layout.X, q.f, sites_of(U), settings, layout.kernels, q.precision)
