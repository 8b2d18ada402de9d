"""The dense field: kernel matrices of all rows, and posteriors by structured factorisations.

Points are pairs (z, f) of arrays (n, D), f = K z. With sites of gradient u and precision U a Newton step is
``dz = (I + U K)^-1 (u - z)``; the posterior is m = K z, V = (K^-1 + U)^-1. Natural parameters are those of the sites,
``lambda = z + U m`` and U.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas
from scipy.sparse.linalg import LinearOperator, gmres

from ggpm.families.base import Family
from ggpm.families.curvature import Blocks, Combination, Curvature, Diagonal, Marginals
from ggpm.fields.base import Approximation, Field, Natural
from ggpm.fields.dense.ahead import Ahead
from ggpm.fields.dense.matrices import KernelMatrices, latents_of
from ggpm.fields.dense.posterior import DensePosterior
from ggpm.fields.dense.solution import Solution, Solver, check_memory, factorise
from ggpm.fields.rows import RowsLook, RowsProcess, site_values, sites_of
from ggpm.kernels import Distances, KernelEvaluation, with_log_hyper
from ggpm.kernels.linalg import LU, fortran, mirror, symmetric_dot
from ggpm.sites.base import InferenceError, Problem, Rule

Array = NDArray[np.float64]

CHORD_SIZE = 256  # nD from which steps with an old factorisation are tried; smaller ones are cheap to make anew
# One factorisation costs about n / CHORD_... such steps, at most CHORD_MOST (measured, one thread)
CHORD_COUPLED = 12
CHORD_SINGLE = 120
CHORD_MOST = 15
# nD from which, and latents up to which, targets of a bound's steps are looked for ahead: below, a factorisation costs
# as little, and above, the covariance of all latents costs (nD)^3.
AHEAD_SIZE, AHEAD_MOST = 256, 3
# Two forms of the Newton decrement that differ by more than this share say that digits are lost: a decrement decides
# when to stop by its order of magnitude, so that one digit of it is enough.
CONSISTENT = 0.1
DENSE_SIZE = 3000  # nD up to which a lost direction is computed again by elimination with pivoting: 72 MB, 18 Gflop
# Conjugate gradients within a step: most steps, and reduction of the residual, which need not be better than the step
# is, whose curvature changes along it.
CG_STEPS, CG_RTOL = 50, 1e-2
# Most solves with one factorisation, and the factor by which the residual must fall for one more.
REFINEMENTS, REFINED = 8, 0.1
STEP = 1e-4  # of log-hyperparameters, for differences of kernel matrices: four digits of a guess of the Hessian


@dataclass(frozen=True)
class Cotangent:
    """Derivatives of a quantity in what a posterior is at the rows: each (n, D) or (n, D, D), and phi (p,)."""

    mean: Array
    V: Array
    z: Array
    U: Array
    phi: Array


@dataclass(frozen=True)
class DenseGaussian:
    """q(f) with precision ``K^-1 + U`` and mean ``m = K z``."""

    U: Curvature
    solution: Solution
    z: Array
    """K^-1 m, (n, D)."""
    mean: Array
    """m, (n, D)."""

    @property
    def x(self) -> Array:
        return np.stack([self.z, self.mean])

    @property
    def log_det(self) -> float:
        return self.solution.log_det

    @cached_property
    def marginals(self) -> Marginals:
        """The covariances V_ii of the rows' latents."""
        return self.solution.marginals()


class DenseLook(RowsLook):
    """The sites of all rows as seen from a point (z, f)."""

    def __init__(self, problem: Problem, rule: Rule, x: Array, V: Marginals | None, fisher: bool):
        super().__init__(problem, rule, x, x[1], float(np.sum(x[0] * x[1])), V, fisher)


@dataclass(frozen=True)
class _Factor:
    U: Curvature
    solution: Solution
    K: KernelMatrices

    @cached_property
    def eliminated(self) -> LU:
        """I + U K without structure, made where it is needed: many steps share one factorisation."""
        return elimination(self.U, self.K)


@dataclass
class DenseField(Field):
    """All rows in memory.

    Parameters
    ----------
    X, y, offset : arrays (n, features), encoded outputs of n rows, (n, D)
    solver : what factorises; `factorise` unless another is to be tried

    Examples
    --------
    >>> DenseField(np.zeros((3, 1)), np.zeros(3), np.zeros((3, 1))).n_rows
    3
    """

    X: Array
    y: Array
    offset: Array
    solver: Solver = factorise

    @cached_property
    def distances(self) -> Distances:
        """Distances between rows, which do not depend on hyperparameters."""
        return Distances(self.X)

    def forget(self) -> None:
        """Give back the memory of the distances between rows; they are computed again when needed."""
        self.__dict__.pop("distances", None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "distances"}

    @property
    def n_rows(self) -> int:
        return len(self.X)

    def sample(self, index: NDArray[np.intp]) -> Self:
        return type(self)(self.X[index], self.y[index], self.offset[index], self.solver)

    def process(self, family: Family, kernels: Sequence[Any]) -> DenseProcess:
        check_memory(len(self.X), len(kernels) + 1, "the kernel matrices and a factor")
        evaluations = [KernelEvaluation(kernel, self.distances) for kernel in kernels]
        problem = Problem(family, self.y, self.offset)
        K = KernelMatrices([e.K for e in evaluations])
        return DenseProcess(problem, K, evaluations, list(kernels), self.distances, self.solver)


class DenseProcess(RowsProcess):
    """Kernel matrices of all rows; without evaluations of kernels it has no gradient in their hyperparameters."""

    def __init__(
        self, problem: Problem, K: KernelMatrices, evaluations: Sequence[KernelEvaluation] = (),
        kernels: Sequence[Any] = (), distances: Distances | None = None, solver: Solver = factorise,
    ) -> None:  # fmt: skip
        self.problem, self.K, self.evaluations, self.kernels = problem, K, evaluations, kernels
        self.distances, self.solver = distances, solver
        self.shape = problem.shape
        n, D = self.shape
        if n * D >= CHORD_SIZE:
            self.chord_steps = min(n / (CHORD_COUPLED if D > 1 else CHORD_SINGLE), CHORD_MOST)

    # ---- expansions --------------------------------------------------------------------------------------------
    def origin(self) -> Array:
        return np.zeros((2, *self.shape))

    def look(
        self, rule: Rule, x: Array, q: DenseGaussian | None = None, *, fisher: bool = False, curvature: bool = True
    ) -> DenseLook:
        return DenseLook(self.problem, rule, x, None if q is None else q.marginals, fisher)

    def factor(self, look: DenseLook) -> _Factor:
        return _Factor(look.sites.U, self.solver(self.K, look.sites.U), self.K)

    def newton(self, look: DenseLook, factor: _Factor) -> tuple[Array, float]:
        """Newton direction in z and in f, and the squared Newton decrement.

        The decrement ``r^T df`` is also ``df^T (dz + U df)``, which is positive. Where curvature times kernel is so
        large (1e8 and more) that the structured solve loses its digits, the two differ: the direction is then
        computed again without structure, or the larger of the two is taken, so that lost digits never look like
        convergence.
        """
        U, residual = factor.U, look.u - look.x[0]
        # paper, section 3.3: the new z is (I + U K)^-1 (u + U f), so that it moves by (I + U K)^-1 (u - z)
        step, decrement, check = self._two_decrements(U, residual, factor.solution.solve(residual))
        if abs(decrement - check) > CONSISTENT * decrement and residual.size <= DENSE_SIZE:
            with suppress(np.linalg.LinAlgError):  # singular: beyond double precision altogether
                step, decrement, check = self._two_decrements(U, residual, factor.eliminated.solve(residual))
        if abs(decrement - check) > CONSISTENT * decrement:
            decrement = max(abs(decrement), abs(check))
        return step, decrement

    def _two_decrements(self, U: Curvature, r: Array, dz: Array) -> tuple[Array, float, float]:
        df = self.K.dot(dz)
        return np.stack([dz, df]), float(np.sum(r * df)), float(np.sum(df * (dz + U.dot(df))))

    def gaussian(self, factor: _Factor, x: Array) -> DenseGaussian:
        return DenseGaussian(factor.U, factor.solution, x[0], self.K.dot(x[0]))

    # ---- bounds ------------------------------------------------------------------------------------------------
    def from_natural(self, natural: Natural) -> DenseGaussian:
        lam, U = natural[0], sites_of(natural[1])
        solution = self.solver(self.K, U)
        return DenseGaussian(U, solution, *self._refined(U, solution, lam))

    def _refined(self, U: Curvature, solution: Any, lam: Array) -> tuple[Array, Array]:
        """z and K z with ``z + U K z = lam``, refined as long as the residual falls.

        Two solves are enough for most; where U is singular and large (many trials of a multinomial), a solve has four
        digits, and the likelihood asks for ten.
        """
        z, least, last = solution.solve(lam), np.finfo(float).eps * np.abs(lam).max(initial=0.0), np.inf
        for _ in range(REFINEMENTS):
            left = lam - z - U.dot(self.K.dot(z))
            size = np.abs(left).max(initial=0.0)
            if not least < size < REFINED * last:
                break
            z, last = z + solution.solve(left), size
        return z, self.K.dot(z)

    def coupled_target(self, rule: Rule, look: DenseLook, q: DenseGaussian) -> Natural | None:
        """Sites whose covariance is the natural gradient's and whose mean is a Newton step's.

        Diagonal sites know nothing of the coupling of the latent dimensions by the likelihood, so the natural gradient
        finds the mean slowly. The Newton step ``(K^-1 + E[U]) dm = E[u] - z`` knows it; it is solved by conjugate
        gradients, preconditioned with the factorisation in hand.
        """
        if not rule.factorised or self.shape[1] == 1:
            return None
        U = rule.coupled(self.problem, q.mean, q.marginals, look.sites)
        r = look.sites.u - q.z
        dm, dz = np.zeros_like(r), np.zeros_like(r)
        s = q.solution.solve(r)  # V r = K s
        p, pz = self.K.dot(s), s
        rho = first = float(np.sum(r * p))
        for _ in range(CG_STEPS):
            Ap = pz + np.einsum("njk,nk->nj", U, p)
            curvature = float(np.sum(p * Ap))
            if not curvature > 0:
                break
            alpha = rho / curvature
            dm, dz, r = dm + alpha * p, dz + alpha * pz, r - alpha * Ap
            s = q.solution.solve(r)
            Ks = self.K.dot(s)
            rho, last = float(np.sum(r * Ks)), rho
            if not rho > CG_RTOL**2 * first:
                break
            p, pz = Ks + rho / last * p, s + rho / last * pz
        sites = look.sites.U
        return q.z + dz + sites.dot(q.mean + dm), site_values(sites, True)

    def ahead(self, rule: Rule) -> Ahead | None:
        n, D = self.shape
        coupled_by_steps = rule.factorised and D > 1
        return None if n * D < AHEAD_SIZE or D > AHEAD_MOST or coupled_by_steps else Ahead(self)

    # ---- from one process to another -----------------------------------------------------------------------------
    def remember(self, approximation: Approximation) -> Any:
        q = approximation.q
        if approximation.rule.depends_on != "covariance":
            return q.z, q.mean
        return *self.natural(q, approximation.rule.factorised), self.prior_variance()

    def resume(self, start: Any) -> tuple[Array, Array | None]:
        z, mean = start
        return np.stack([z, self.K.dot(z)]), mean + self.problem.offset

    def prior_variance(self) -> Array:
        return np.array([np.mean(np.diag(k)) for k in self.K])

    # ---- derivatives ---------------------------------------------------------------------------------------------
    def gradient(self, approximation: Approximation) -> tuple[Array, Array]:
        a, q, rule = approximation, approximation.q, approximation.rule
        bound = rule.depends_on == "covariance"
        slopes = rule.slopes(self.problem, q.mean, q.marginals, a.look.sites)
        # an expansion's log-determinant moves with U, a bound is stationary in it
        U_bar = None if bound else Combination([(-0.5, q.marginals)])
        s, _, phi = slopes.pullback(None, U_bar, value=True)
        # dL/dK_j = (z z^T - [(K+W)^-1]_jj + w z^T + z w^T)/2 = ((z+w)(z+w)^T - w w^T - [(K+W)^-1]_jj)/2
        terms = [(0.5, q.z)]
        if rule.depends_on == "mean":  # the mode moves (GPML sec. 5.5.1), in the kernel's directions by (I + U K)^-1 s
            w = q.solution.solve(s)
            phi = phi + slopes.u_phi(self.K.dot(w))
            terms = [(0.5, q.z + w), (-0.5, w)]
        cotangents = q.solution.precision()
        for j, G in enumerate(cotangents):
            columns, beta = latents_of(j, len(cotangents)), -0.5
            for alpha, b in terms:
                G = blas.dsyrk(alpha, fortran(b[:, columns]), beta=beta, c=G, lower=1, overwrite_c=1)
                beta = 1.0
            cotangents[j] = mirror(G)
        return self._pull(cotangents), phi

    def pullback(self, approximation: Approximation, cotangent: Cotangent) -> tuple[Array, Array]:
        """Gradient in the kernels' log-hyperparameters and in phi of any quantity of the fitted posterior.

        With (u, U) the sites at (m, V), z = u and m = K z, the total derivatives in m and V are a fixed point,

            z_ = dL/dz + K m_,                U_ = dL/dU - [V V_ V]_ii,
            m_ = dL/dm + (d(u, U)/dm)^T (z_, U_),        V_ = dL/dV + (d(u, U)/dV)^T (z_, U_),

        linear in (m_, V_). What Newton's method knows of it, du/dm = -U, is solved for by the factorisation in hand;
        the rest is nothing for Taylor's rule, known after one turn for Laplace's, and for the variational rule solved
        for about as precisely as the sites were.
        """
        a, q, rule, L = approximation, approximation.q, approximation.rule, cotangent
        moved = q.solution.sensitivity()
        slopes = rule.slopes(self.problem, q.mean, q.marginals, a.look.sites)
        V_0, U_0 = moved.in_own_shape(L.V), moved.in_own_shape(L.U)

        def sites(m_bar: Array, V_bar: Array) -> tuple[Array, Marginals]:
            U_bar = U_0 - moved.sandwich(V_bar)
            return L.z + self.K.dot(m_bar), Diagonal(U_bar) if U_bar.ndim == 2 else Blocks(U_bar)

        def turn(m_bar: Array, V_bar: Array) -> tuple[Array, Array]:
            z_bar, U_bar = sites(m_bar, V_bar)
            f_bar, V_more, _ = slopes.pullback(z_bar, U_bar, phi=False)
            m_new = q.solution.solve(L.mean - q.U.dot(L.z) + f_bar + q.U.dot(z_bar))
            return m_new, V_0 if V_more is None else V_0 + moved.in_own_shape(V_more)

        m_bar, V_bar = turn(np.zeros_like(L.mean), V_0 if rule.depends_on != "covariance" else np.zeros_like(V_0))
        if rule.depends_on == "covariance":
            size, shape = m_bar.size, V_0.shape
            rhs = np.concatenate([m_bar.ravel(), V_bar.ravel()])

            def system(x: Array) -> Array:
                there = turn(x[:size].reshape(m_bar.shape), x[size:].reshape(shape))
                return x - (np.concatenate([part.ravel() for part in there]) - rhs)

            operator = LinearOperator((rhs.size, rhs.size), system)
            x, info = gmres(operator, rhs, rtol=10 * rule.tol, maxiter=40, restart=50)
            if info != 0:
                raise InferenceError("the sensitivity of the sites to the hyperparameters could not be solved for")
            m_bar, V_bar = turn(x[:size].reshape(m_bar.shape), x[size:].reshape(shape))
        phi = L.phi
        if phi.size:
            phi = phi + slopes.pullback(*sites(m_bar, V_bar))[2]
        return self._pull(moved.kernels(m_bar, V_bar, q.z)), phi

    def information(self, approximation: Approximation) -> Array | None:
        """The average information on the hyperparameters.

        With its sites held, the evidence is that of ``y~ = m + U^-1 z ~ N(0, K + U^-1)``. The mean of observed and
        expected information of such a Gaussian needs no traces (Gilmour, Thompson and Cullis 1995): it is
        ``d_i^T (K + U^-1)^-1 d_j / 2``, where ``d_i = (dK / dtheta_i) z``, and ``-U^-1 du / dphi_i`` for the family's.
        """
        q, p = approximation.q, self.problem
        assert self.distances is not None
        moves = []
        for j, kernel in enumerate(self.kernels):
            latents = latents_of(j, len(self.kernels))
            for step in STEP * np.eye(kernel.n_dims):
                (there,) = with_log_hyper([kernel], kernel.theta + step)
                K = KernelEvaluation(there, self.distances).K
                moves.append(np.zeros(self.shape))
                moves[-1][:, latents] = (symmetric_dot(K, q.z[:, latents]) - q.mean[:, latents]) / STEP
        if p.family.learns_phi:
            w, Q = np.linalg.eigh(q.U.dense())
            # rows that say little, or whose curvature is negative, are not to dominate
            inverse = (Q / np.maximum(w, 1e-3 * np.max(w))[:, None, :]) @ Q.swapaxes(1, 2)
            moves += list(-np.einsum("njk,nkp->pnj", inverse, p.family.u_phi(q.mean + p.offset, p.y)))
        pushed = [q.solution.solve(q.U.dot(right)) for right in moves]
        return np.array([[0.5 * np.sum(left * right) for right in pushed] for left in moves])

    def _pull(self, cotangents: Sequence[Array]) -> Array:
        """Gradient in the kernels' log-hyperparameters from the cotangents of the kernel matrices."""
        return np.concatenate([e.pullback(G) for e, G in zip(self.evaluations, cotangents)])

    def forget(self) -> None:
        """Give back the memory that only gradients need: what is left can be factorised and asked again."""
        self.distances, self.evaluations = None, ()

    def renewed(self, approximation: Approximation) -> Approximation:
        # marginals turn factors into inverses, which round differently: predictions keep the factors they have
        q = DenseGaussian(approximation.q.U, self.solver(self.K, approximation.q.U), *approximation.q.x)
        return replace(approximation, q=q)

    def posterior(self, approximation: Approximation) -> DensePosterior:
        q, rule = approximation.q, approximation.rule
        # a search that asks for marginals turns factors into inverses, which round differently: start afresh, as a
        # loaded model does
        solution = None if rule.depends_on == "covariance" else q.solution
        assert self.distances is not None
        return DensePosterior(self.kernels, self.distances.rows, np.ascontiguousarray(q.z), q.U, solution, self.solver)


def elimination(U: Curvature, K: KernelMatrices) -> LU:
    """``I + U K`` of all rows and latents, factorised without structure: of order nD.

    >>> elimination(Diagonal(np.ones((1, 1))), KernelMatrices([np.eye(1)])).solve(np.ones((1, 1)))
    array([[0.5]])
    """
    n, D = U.dense().shape[:2]
    A = np.matmul(U.dense(), K.dense(D).reshape(n, D, n * D)).reshape(n * D, n * D)
    A.flat[:: n * D + 1] += 1.0
    return LU(A)
