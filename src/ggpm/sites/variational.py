"""Variational inference: the Gaussian that is closest to the posterior, for any family.

q(f) has precision K^-1 + Lambda, Lambda block-diagonal by data point (Opper & Archambeau 2009), mean m = K z, and

    ELBO = sum_i E_q[log p(y_i | f_i)] - KL(q || prior),
    KL   = 1/2 (z^T m - sum_i <Lambda_i, V_ii> + log|I + Lambda K|).

In the natural parameters of the sites the natural gradient is a difference, and a step of length one is
(Khan & Lin 2017)

    Lambda_i <- E_q[U_i],        lambda_i <- E_q[u_i] + E_q[U_i] m_i.

*Gradient in the hyperparameters.* A Gaussian q is a free choice of (m, V), whatever K is; at the best one the
bound is stationary in (m, V), so its derivative is the partial one at fixed (m, V), *not* at fixed sites:

    dELBO/dK = -dKL/dK = 1/2 (z z^T - (K^-1 - K^-1 V K^-1)) = 1/2 (z z^T - (K + Lambda^-1)^-1),
    dELBO/dphi = sum_i E_q[d log p_i / dphi].

The same holds among factorised q, whose (m, V_1, ..., V_D) are free too, with Lambda_jj = E_q[U_jj]. It holds to
the last digit because E_q[u] and E_q[U] are derivatives of the very sum that stands for the expectation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lstsq
from scipy.sparse.linalg import LinearOperator, gmres

from ggpm.data.checks import check_positive, check_whole
from ggpm.families.curvature import Blocks, Curvature, Diagonal, Marginals
from ggpm.families.special.quadrature import ACCURACIES
from ggpm.fields.dense import Solution, factorise
from ggpm.kernels.linalg import NotPositiveDefinite, fortran, mirror
from ggpm.sites.base import Approximation, InferenceError, Problem, kernel_dot
from ggpm.sites.expectations import Expected, SiteMap, expect, expect_phi, expected_blocks, root
from ggpm.sites.laplace import Laplace
from ggpm.sites.sensitivity import Cotangent, posterior_map, shaped, symmetric

Array = NDArray[np.float64]
Sites = Diagonal | Blocks

# Blocks cost (nD)^3 per step; up to this order that is less than what the expectations cost.
BLOCKS_MAX_ORDER = 400
ROUNDING = 1e-12  # relative size of differences of the bound that are rounding
ROUNDED = 1e-5  # a search that rounding stops has converged if its sites still move less than this
CG_STEPS, CG_RTOL = 50, 1e-2  # conjugate gradients within a step: most steps, reduction of the residual
RESCALED = 0.5  # change of the log prior variance from which a start with rescaled sites is tried as well
MEMORY = 8  # earlier steps that the extrapolation looks at


@dataclass(frozen=True)
class Variational:
    """The best Gaussian approximation in the sense of the evidence lower bound, found by natural gradients.

    The search starts from Laplace's sites and never decreases the bound.

    Parameters
    ----------
    sites : "auto", "blocks" or "factorised"
        Precision matrices of the sites: full D×D blocks, O((nD)^3) per step, or diagonal, O(D n^3), with which
        the latent dimensions are independent under q. "auto" takes blocks for D <= 2 and for nD <= 400.
    accuracy : "coarse", "standard" or "fine"
        Nodes of the expectations: spacing of the trapezoidal rule for D <= 2, number of Sobol points above (128,
        512, 4096). Not used where the family has closed forms.
    max_iter : int
        Most steps.
    tol : float
        The search ends when no site parameter moves by more than this, relative to the largest.

    Examples
    --------
    >>> Variational(sites="factorised").accuracy
    'standard'
    """

    sites: Literal["auto", "blocks", "factorised"] = "auto"
    accuracy: str = "standard"
    max_iter: int = 100
    tol: float = 1e-6

    def __post_init__(self) -> None:
        check_whole(self.max_iter, "max_iter", 1)
        check_positive(self.tol, "tol")
        if self.sites not in ("auto", "blocks", "factorised"):
            raise ValueError(f"sites must be 'auto', 'blocks' or 'factorised'; got {self.sites!r}.")
        if self.accuracy not in ACCURACIES:
            raise ValueError(f"accuracy must be one of {', '.join(map(repr, ACCURACIES))}; got {self.accuracy!r}.")

    @property
    def ftol(self) -> float:
        """Relative precision of the bound that a search for hyperparameters can count on."""
        return max(1e-9, 0.1 * self.tol)

    def factorised(self, shape: tuple[int, int]) -> bool:
        """Whether the sites are diagonal for this (n, D)."""
        n, D = shape
        if D == 1:
            return True
        if self.sites == "auto":
            return D > 2 and n * D > BLOCKS_MAX_ORDER
        return self.sites == "factorised"

    def infer(self, problem: Problem, K: Sequence[Array], start=None) -> VariationalApproximation:
        """The posterior with the highest bound; ``start`` is the `start` of an earlier result."""
        state = self._start(problem, K, start)
        trace = [state.bound]
        history: list[tuple[Array, Array]] = []
        converged, least, idle, iteration = False, np.inf, 0, 0
        for iteration in range(self.max_iter + 1):
            target = state.target()
            change = _change(state, *target)
            idle = 0 if change < 0.7 * least else idle + 1
            least = min(least, change)
            # at the limit of rounding the sites no longer come closer
            converged = change <= self.tol or (idle >= 8 and change <= ROUNDED)
            if converged or iteration == self.max_iter:
                break
            step = self._step(problem, K, state, target, history)
            if step is None:
                converged = change <= ROUNDED
                break
            state = step
            trace.append(state.bound)
        if not np.isfinite(state.bound):
            raise InferenceError("the evidence lower bound is not finite at these hyperparameters")
        return VariationalApproximation(
            problem, K, state.mean, state.U, state.solution, state.z, state.mean, state.bound,
            np.zeros(len(state.z), dtype=bool), converged=converged, n_iter=iteration, trace=tuple(trace),
            root=state.R, expected=state.expected,
        )  # fmt: skip

    def gradient(self, approximation: Approximation) -> tuple[list[Array], Array]:
        """Cotangents of the kernel matrices and gradient in the family's hyperparameters."""
        assert isinstance(approximation, VariationalApproximation)
        z = approximation.z
        cotangents = approximation.solution.precision()
        for j, G in enumerate(cotangents):
            columns = slice(j, j + 1) if len(cotangents) > 1 else slice(None)
            cotangents[j] = mirror(blas.dsyrk(0.5, fortran(z[:, columns]), beta=-0.5, c=G, lower=1, overwrite_c=1))
        phi = expect_phi(approximation.problem, approximation.mean, approximation.root, self.accuracy)
        return cotangents, phi.sum(axis=0)

    def pullback(self, approximation: Approximation, cotangent: Cotangent) -> tuple[list[Array], Array]:
        """Cotangents of the kernel matrices and gradient in phi of any quantity of the fitted sites.

        The sites are a fixed point, xi = F(xi, K, phi), so the cotangent of the sites solves
        s = s_0 + (dF/dxi)^T s, one linear system of the size of the sites, solved about as precisely as the sites were.
        """
        assert isinstance(approximation, VariationalApproximation)
        a, p, like = approximation, approximation.problem, approximation.start[1]
        diagonal = isinstance(like, Diagonal)
        to = posterior_map(a.K, a.U, a.solution, a.z, a.mean)
        local = SiteMap(p, a.mean, a.root, self.accuracy)

        def outer(lam: Array) -> Array:
            return lam * a.mean if diagonal else symmetric(lam, a.mean)

        def through(lam: Array, U: Array) -> tuple[Array, Array]:
            # lambda = E[u] + E[U] m
            mean, V = local.pullback(lam, U + outer(lam))
            return mean + a.U.dot(lam), V

        def system(s: Array) -> Array:
            lam, U = _unflat(s, like)
            return s - np.concatenate([x.ravel() for x in to.sites(*through(lam, _values(U)))])

        # z = lambda - U m
        mean_0, V_0 = cotangent.mean - a.U.dot(cotangent.z), shaped(cotangent.V, diagonal)
        lam_0, U_0 = to.sites(mean_0, V_0)
        lam_0, U_0 = lam_0 + cotangent.z, U_0 + shaped(cotangent.U, diagonal) - outer(cotangent.z)
        rhs = np.concatenate([lam_0.ravel(), U_0.ravel()])
        s, info = gmres(LinearOperator((rhs.size, rhs.size), system), rhs, rtol=10 * self.tol, maxiter=40, restart=50)
        if info != 0:
            raise InferenceError("the sensitivity of the sites to the hyperparameters could not be solved for")
        lam, sites = _unflat(s, like)
        mean, V = through(lam, _values(sites))
        phi = cotangent.phi
        if phi.size:
            phi = phi + local.pullback_phi(lam, _values(sites) + outer(lam))
        return to.kernels(mean_0 + mean, V_0 + V), phi

    def _start(self, problem: Problem, K: Sequence[Array], start: tuple[Array, Sites, Array] | None) -> _State:
        """Laplace's sites, or those of an earlier result; where neither can be used, those of the prior mean."""
        if start is not None and start[0].shape == problem.shape:
            lam, sites, variance = start
            ratio = _prior_variance(K) / variance
            # Where the likelihood is steep against the prior, E[u] stays and E[U] goes with 1/sd when the prior grows.
            tries = [sites]
            if np.any(np.abs(np.log(ratio)) > RESCALED):
                tries.append(type(sites)(_values(sites) / np.mean(ratio) ** 0.5))
            states = []
            for U in tries:
                try:
                    states.append(self._state(problem, K, lam, U))
                except NotPositiveDefinite:
                    continue
            best = max(states, key=lambda s: s.bound, default=None)
            if best is not None and np.isfinite(best.bound):
                return best
        factorised = self.factorised(problem.shape)
        try:
            laplace = Laplace().infer(problem, K)
            U = _shaped(laplace.U, factorised)
            state = self._state(problem, K, laplace.z + U.dot(laplace.mean), U)
            if np.isfinite(state.bound):
                return state
        except (NotPositiveDefinite, InferenceError):
            pass
        zero = np.zeros(problem.shape)
        U = _shaped(problem.family.U(problem.offset, problem.y, expected=True), factorised)
        return self._state(problem, K, zero, U)

    def _step(self, problem: Problem, K: Sequence[Array], state: _State, target, history) -> _State | None:
        """A step that does not decrease the bound: extrapolated if that helps, else damped; None if none is found."""
        floor = state.bound - ROUNDING * state.size

        def accept(lam: Array, U: Sites) -> _State | None:
            try:
                new = self._state(problem, K, lam, U)
            except NotPositiveDefinite:
                return None
            return new if new.bound >= floor else None

        ahead = _newton_mean(problem, K, state) if state.coupled else target
        history[:] = [*history, (_flat(state.lam, state.U), _flat(*ahead))][-MEMORY:]
        if len(history) > 1:
            if (new := accept(*_unflat(_anderson(history), state.U))) is not None:
                return new
            history[:] = history[-1:]
        if state.coupled and (new := accept(*ahead)) is not None:
            return new
        # the natural gradient itself: some step along it must lead upwards, a shorter one than that just refused
        lam, U = target
        t = 0.5 if state.coupled else 1.0
        for _ in range(30):
            if (new := accept((1 - t) * state.lam + t * lam, _mix(state.U, U, t))) is not None:
                return new
            t *= 0.5
        return None

    def _state(self, problem: Problem, K: Sequence[Array], lam: Array, U: Sites) -> _State:
        """q and its bound from the sites."""
        if not (np.all(np.isfinite(lam)) and np.all(np.isfinite(_values(U)))):
            raise NotPositiveDefinite("the sites are not finite")
        solution = factorise(K, U)
        z = solution.solve(lam)
        z += solution.solve(lam - z - U.dot(kernel_dot(K, z)))  # one step of refinement
        mean, V = kernel_dot(K, z), solution.marginals()
        try:
            R = root(V, isinstance(U, Diagonal))
        except np.linalg.LinAlgError as err:
            raise NotPositiveDefinite(str(err)) from None
        if not np.all(np.isfinite(R)):
            raise NotPositiveDefinite("a posterior variance is negative")
        expected = expect(problem, mean, R, self.accuracy)
        quad, trace = float(np.sum(z * mean)), _inner(U, V)
        terms = float(np.sum(expected.value)), -0.5 * quad, 0.5 * trace, -0.5 * solution.log_det
        bound = float(np.sum(terms))
        size = 1.0 + float(np.sum(np.abs(terms)))
        return _State(lam, U, solution, z, mean, R, expected, bound if np.isfinite(bound) else -np.inf, size)


@dataclass(frozen=True)
class VariationalApproximation(Approximation):
    """An `Approximation` whose evidence is the lower bound."""

    root: Array = field(kw_only=True, repr=False)
    """Square roots of the marginal covariances: (n, D) factorised, (n, D, D) lower triangular for blocks."""
    expected: Expected = field(kw_only=True, repr=False)
    """Expected log-likelihood and its derivatives at q."""

    @property
    def start(self) -> tuple[Array, Sites, Array]:
        """The sites, and the mean prior variance of every kernel that they belong to."""
        return self.z + self.U.dot(self.mean), self.U, _prior_variance(self.K)  # type: ignore[return-value]


@dataclass(frozen=True)
class _State:
    """q as the search sees it."""

    lam: Array
    U: Sites
    solution: Solution
    z: Array
    mean: Array
    R: Array
    expected: Expected
    bound: float
    size: float
    """Sum of the absolute values of the bound's terms: what its rounding is relative to."""

    @property
    def coupled(self) -> bool:
        """Whether the likelihood couples latent dimensions that are independent under q."""
        return isinstance(self.U, Diagonal) and self.z.shape[1] > 1

    def target(self) -> tuple[Array, Sites]:
        """Where a step of length one leads: (lambda, Lambda)."""
        return self.expected.u + self.expected.U.dot(self.mean), self.expected.U


def _newton_mean(problem: Problem, K: Sequence[Array], state: _State) -> tuple[Array, Sites]:
    """Sites whose covariance is the natural gradient's and whose mean is a Newton step's.

    Diagonal sites know nothing of the coupling of the latent dimensions by the likelihood, so the natural gradient
    finds the mean slowly. The Newton step ``(K^-1 + E[U]) dm = E[u] - z`` knows it; it is solved by conjugate
    gradients, preconditioned with the factorisation in hand.
    """
    U = state.expected.blocks
    if U is None:
        U = expected_blocks(problem, state.mean, state.R)
    r = state.expected.u - state.z
    dm, dz = np.zeros_like(r), np.zeros_like(r)
    s = state.solution.solve(r)  # V r = K s
    p, pz = kernel_dot(K, s), s
    rho = first = float(np.sum(r * p))
    for _ in range(CG_STEPS):
        Ap = pz + np.einsum("njk,nk->nj", U, p)
        curvature = float(np.sum(p * Ap))
        if not curvature > 0:
            break
        alpha = rho / curvature
        dm, dz, r = dm + alpha * p, dz + alpha * pz, r - alpha * Ap
        s = state.solution.solve(r)
        Ks = kernel_dot(K, s)
        rho, last = float(np.sum(r * Ks)), rho
        if not rho > CG_RTOL**2 * first:
            break
        p, pz = Ks + rho / last * p, s + rho / last * pz
    sites = state.expected.U
    return state.z + dz + sites.dot(state.mean + dm), sites


def _prior_variance(K: Sequence[Array]) -> Array:
    return np.array([np.mean(np.diag(k)) for k in K])


def _change(state: _State, lam: Array, U: Sites) -> float:
    """Largest move of E[u] against z and of E[U] against Lambda, each relative to its size."""
    du, dU = np.abs(state.expected.u - state.z).max(), np.abs(_values(U) - _values(state.U)).max()
    change = max(du / (1.0 + np.abs(state.z).max()), dU / (1.0 + np.abs(_values(state.U)).max()))
    return float(change) if np.isfinite(change) else np.inf


def _anderson(history: list[tuple[Array, Array]]) -> Array:
    """Anderson's extrapolation of a fixed-point iteration x -> g(x) from pairs (x, g(x))."""
    residuals = np.stack([g - x for x, g in history], axis=1)
    images = np.stack([g for _, g in history], axis=1)
    last = residuals[:, -1]
    scale = np.abs(last).max() or 1.0
    gamma = lstsq((residuals[:, :-1] - last[:, None]) / scale, -last / scale, cond=1e-10, check_finite=False)[0]
    return images[:, -1] + (images[:, :-1] - images[:, -1:]) @ gamma


def _shaped(U: Curvature, factorised: bool) -> Sites:
    return Diagonal(np.ascontiguousarray(np.einsum("njj->nj", U.dense()))) if factorised else Blocks(U.dense())


def _values(U: Sites) -> Array:
    return U.gamma if isinstance(U, Diagonal) else U.values


def _inner(U: Sites, V: Marginals) -> float:
    """sum_i <U_i, V_i>."""
    return float(np.sum(U.gamma * V.diag) if isinstance(U, Diagonal) else np.sum(U.values * V.dense()))


def _mix(a: Sites, b: Sites, t: float) -> Sites:
    return type(a)((1 - t) * _values(a) + t * _values(b))


def _flat(lam: Array, U: Sites) -> Array:
    return np.concatenate([lam.ravel(), _values(U).ravel()])


def _unflat(x: Array, like: Sites) -> tuple[Array, Sites]:
    shape = _values(like).shape
    split = shape[0] * shape[1]
    return x[:split].reshape(shape[:2]), type(like)(x[split:].reshape(shape))
