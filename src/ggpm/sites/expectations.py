"""Expectations of a log-likelihood under the Gaussian of each row, and their own exact derivatives.

With eta_s = m + R x_s, R R^T = V, and nodes x_s with weights w_s, the expected log-likelihood of a row is
``sum_s w_s log p(y | m + R x_s)``. All derivatives here are derivatives of that sum, through the nodes: the
bound that is computed is the bound that is climbed, whatever the accuracy. With exact expectations they are
Bonnet's and Price's identities, d/dm = E[u] and d/dV = -E[U]/2; with finitely many nodes those identities hold
only approximately.

R is the Cholesky factor; for independent latent dimensions it is the diagonal of standard deviations. Each row has
as many nodes as its own error asks for (`ggpm.families.special.adaptive`). The error is read off identities that exact
expectations obey and sums over nodes only nearly (Stein's), for g(x) = log p(y | m + R x),

    E[x_j g] = E[dg/dx_j],        E[(x_j^2 - 1) g] = E[x_j dg/dx_j],

all of which are at hand. What they are off by is more than the error of E[g] itself, since they notice lower terms of
the Hermite series of g.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ggpm.families.base import Family
from ggpm.families.contrasts import Contrasts, contrasts
from ggpm.families.curvature import Blocks, Curvature, Diagonal, Marginals, second_moments
from ggpm.families.special.adaptive import PRODUCT_MOST, Levels, average, expectation, first_levels, groups, raised
from ggpm.families.special.adaptive import place as place_nodes
from ggpm.families.special.directional import keeps_its_side
from ggpm.kernels.linalg import cholesky_pullback, product, symmetric_of_lower
from ggpm.sites.base import Problem

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# How far the identities may be off in a row, in nats and relative to 1 + |E[log p]|/1000. The first is off by ten
# times the error of E[log p] and the second by a hundred, typically, and by five times together at least (over all
# families, training rows, rules of 3 to 13 nodes); the second counts a tenth.
SECOND = 0.1
TOLERANCES = {"coarse": 1e-3, "searching": 1e-4, "standard": 1e-6, "fine": 1e-9}
RTOL = 1e-3
# Most nodes of a row with two latents, and half as many with three: what wide latents near a kink get. With one
# latent the ladder of rules ends by itself.
MOST_NODES = {"coarse": 2**10, "searching": 2**12, "standard": 2**14, "fine": 2**16}
# Standard deviation from which on rows have the family's closed form for wide latents, beside one or beside this share
# of the latent's length: nodes there are 81 and more with two latents, 729 with three, and cost more than it does. Its
# nine digits are too few for the curvature along latents that are long and narrow.
WIDE, OF_LENGTH = 1.0, 0.25
CLOSED_RTOL = 1e-9  # of derivatives in phi that go with a closed form
DIFFERENCE = 1e-4  # of differences in the mean and the covariance, in standard deviations: six to eight digits


@dataclass(frozen=True)
class Expected:
    """E_q[log p] per row and its derivatives, in the parametrisation of the sites."""

    value: Array
    """(n,)."""
    u: Array
    """Derivative in the mean, E[u], (n, D)."""
    U: Diagonal | Blocks
    """Minus twice the derivative in the covariance, E[U]."""
    blocks: Array | None = None
    """E[U] with the coupling of the latent dimensions, (n, D, D), where it is known in closed form."""
    levels: Levels | None = None
    """Rules of the rows' nodes, -1 in rows with a closed form; None where all have one."""
    error: float = 0.0
    """What the values of all rows are off by together: their own estimates, where they have nodes."""
    nodes: Levels | None = None
    """As ``levels``, and of the nodes of all latents but the last where E[.] over that one has a closed form."""


def root(V: Marginals, factorised: bool) -> Array:
    """Standard deviations (n, D), or lower Cholesky factors (n, D, D)."""
    return np.asarray(np.sqrt(V.diag) if factorised else np.linalg.cholesky(V.dense()), dtype=np.float64)


def expect(problem: Problem, mean: Array, R: Array, accuracy: str, nodes: Levels | None = None) -> Expected:
    """Expected log-likelihood of every row under N(mean, R R^T); not-a-number becomes -inf.

    Rows with ``nodes`` of an earlier expectation keep these.
    """
    closed = _closed_form(problem, mean, R)
    if closed is None and problem.family.has("expected_over_last"):
        finer = "searching" if accuracy == "coarse" else accuracy  # nodes of fewer latents
        found = _by_nodes(problem, mean, R if R.ndim == 3 else Diagonal(R).dense(), finer, nodes, given_last=True)
        return found if R.ndim == 3 else replace(found, U=found.U.diagonal())
    if closed is not None or not problem.family.shift_invariant:
        wide = problem.family.has("expected_log_prob_wide")
        return _by_nodes(problem, mean, R, accuracy, nodes, closed=wide) if closed is None else closed
    found, A = _by_nodes(*_contrasted(problem, mean, R), accuracy, nodes), contrasts(mean.shape[1])
    U = Blocks(A.T @ found.U.dense() @ A)
    return replace(found, u=found.u @ A, U=U if R.ndim == 3 else U.diagonal(), blocks=U.values)


def _by_nodes(
    problem: Problem,
    mean: Array,
    R: Array,
    accuracy: str,
    nodes: Levels | None = None,
    given_last: bool = False,
    closed: bool = False,
) -> Expected:
    """By nodes of all latents, or of all but the last.

    With ``closed`` wide rows, and those for which the nodes that they begin with are too few, have the family's closed
    form for them.
    """
    (n, D), family, d = problem.shape, problem.family, problem.shape[1] - given_last
    value, u, moment = np.full(n, -np.inf), np.zeros((n, D)), np.zeros(R.shape)
    best, tolerance, error = np.full(n, np.inf), np.zeros(n), np.zeros((n, d))

    def summed(levels: Levels, rows: Rows) -> Iterator[tuple[Rows, _Summed]]:
        for part, x, weights in groups(levels, d, rows, width=2):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                eta, y = place(problem, mean, R[..., :d], x, part), problem.y[part]
                at = family.log_prob_and_u(eta, y) if d == D else family.expected_over_last(eta, R[part, -1, -1], y)
                yield part, _Summed(x, weights, R[part], *at)

    if nodes is not None:
        levels = nodes
        for part, found in summed(nodes, np.flatnonzero(nodes[:, 0] >= 0)):
            value[part], u[part], moment[part], best[part] = found.value, found.u, found.moment, 0.0
    else:
        length = np.linalg.norm(mean + problem.offset, axis=1) if closed else np.zeros(n)
        own = (R[..., :d].T / np.maximum(1.0, OF_LENGTH * length)).T  # beside what counts for a width
        levels, trial = first_levels(own, by_error=True), first_levels(own, by_error=True)
        narrow = np.abs(own).reshape(n, -1).max(axis=1) <= WIDE
        narrow &= not closed or keeps_its_side(mean + problem.offset, R, WIDE)
        rows, most = np.flatnonzero(narrow | (not closed)), MOST_NODES[accuracy] // max(1, d - 1)
        while rows.size:
            for part, found in summed(trial, rows):
                error[part] = found.error
                tolerance[part] = TOLERANCES[accuracy] * (1.0 + RTOL * np.abs(found.value))
                largest = found.error.max(axis=1)
                better = (
                    ~(largest >= best[part]) if d > PRODUCT_MOST else np.isfinite(largest) | ~np.isfinite(best[part])
                )
                kept = part[better]
                best[kept], levels[kept] = largest[better], trial[kept]
                value[kept], u[kept], moment[kept] = found.value[better], found.u[better], found.moment[better]
            if closed:
                break
            trial[rows], moved = raised(trial[rows], error[rows], tolerance[rows], d, most, by_error=True)
            rows = rows[moved]
    with np.errstate(invalid="ignore"):  # rows whose expectation is not finite
        U = Diagonal(-moment / R) if R.ndim == 2 else Blocks(-2.0 * cholesky_pullback(R, moment))
    if closed and (left := np.flatnonzero(~(best <= tolerance))).size:
        V = Diagonal(R[left] ** 2).dense() if R.ndim == 2 else R[left] @ R[left].swapaxes(1, 2)
        wide = family.expected_log_prob_wide(mean[left] + problem.offset[left], V, problem.y[left])
        if wide is None:
            return _by_nodes(problem, mean, R, accuracy, given_last=given_last)
        value[left], u[left], levels[left] = _finite(wide[0]), wide[1], -1
        U, best[left] = U.select(best <= tolerance, wide[2]), 0.0
    off = float(np.sum(best, where=np.isfinite(best)))
    # no slope leads away from values that are not finite
    value[~(np.isfinite(u).all(axis=1) & np.isfinite(moment.reshape(n, -1)).all(axis=1) & np.isfinite(value))] = -np.inf
    return Expected(value, u, U, levels=None if given_last else levels, error=off, nodes=levels)


class _Summed:
    """Sums over the nodes of some rows: E[log p], E[u], E[u x^T] and what Stein's identities are off by, (k, d).

    Nodes x (S, d) are of all latents, or of all but the last: ``last`` is E[U_DD] over that one at each, (S, k).
    """

    def __init__(self, x: Array, weights: Array, R: Array, log_p: Array, u: Array, last: Array | None = None):
        (S, d), (_, k, D) = x.shape, u.shape
        self.x, self.weights, self.R, self.log_p = x, weights, R, log_p
        sums = product(weights * np.concatenate([np.ones((1, S)), x.T]), u.reshape(S, -1)).reshape(1 + d, k, D)
        self.u, self.whole = sums[0], sums[1:]  # [l, n, j] = E[x_l u_j]
        if R.ndim == 2:
            self.moment = np.ascontiguousarray(np.einsum("jnj->nj", self.whole))
        else:
            self.moment = np.zeros((k, D, D))
            self.moment[:, :, :d] = np.tril(self.whole.transpose(1, 2, 0))
            if last is not None:
                self.moment[:, -1, -1] = -R[:, -1, -1] * (weights @ last)  # Stein's identity again

    @cached_property
    def _pairs(self) -> Array:
        d = self.x.shape[1]
        return np.array([(j, j) for j in range(d)] if d <= PRODUCT_MOST else np.argwhere(np.tri(d)))

    @cached_property
    def _seen(self) -> Array:
        x, pairs = self.x, self._pairs
        second = (x[:, pairs[:, 0]] * x[:, pairs[:, 1]] - (pairs[:, 0] == pairs[:, 1])).T
        return product(self.weights * np.concatenate([np.ones((1, len(x))), x.T, second]), self.log_p)

    @property
    def value(self) -> Array:
        return self._seen[0]

    @cached_property
    def error(self) -> Array:
        d, pairs, R = self.x.shape[1], self._pairs, self.R
        first, quadratic = self._seen[1 : 1 + d].T.copy(), self._seen[1 + d :].T.copy()
        if R.ndim == 2:
            first -= R * self.u
            quadratic -= np.stack([R[:, j] * self.whole[l, :, j] for j, l in pairs], axis=1)
        else:
            whole, root = self.whole.transpose(1, 2, 0), R[:, :, :d]  # [n, j, l]
            first -= np.einsum("nkj,nk->nj", root, self.u)
            quadratic -= (root.swapaxes(1, 2) @ whole)[:, pairs[:, 0], pairs[:, 1]]
        error = np.abs(first)
        for (j, _), off in zip(pairs, SECOND * np.abs(quadratic.T)):
            np.maximum(error[:, j], off, out=error[:, j])
        return error


def expect_phi(problem: Problem, mean: Array, R: Array, levels: Levels | None) -> Array:
    """E_q of the derivative of the log-likelihood in the family's hyperparameters, (n, p), at the nodes of E_q itself.

    Where that has a closed form the derivative is exact too, which adaptive nodes see to.
    """
    n, p = len(mean), problem.family.log_hyper.size

    def slope(eta: Array, rows: Rows) -> Array:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return problem.family.log_prob_phi(eta, problem.y[rows])

    if levels is None:
        return expectation(average(slope), mean + problem.offset, R, rtol=CLOSED_RTOL, atol=CLOSED_RTOL)[0]
    if problem.family.shift_invariant:
        problem, mean, R = _contrasted(problem, mean, R)
    out = np.empty((n, p))
    for rows, x, weights in groups(levels, mean.shape[1], width=p):
        values = slope(place(problem, mean, R, x, rows), rows)
        out[rows] = product(weights[None], values.reshape(len(x), -1)).reshape(-1, p)
    return out


def place(problem: Problem, mean: Array, R: Array, nodes: Array, rows: Rows | slice) -> Array:
    """Nodes of eta, (S, rows, D), offset included."""
    return place_nodes(mean[rows] + problem.offset[rows], R[rows], nodes)


class SiteMap:
    """The map (m, V) -> (E[u], E[U]) of every row, to be differentiated many times at one point."""

    def __init__(self, problem: Problem, mean: Array, R: Array, levels: Levels | None, nodes: Levels | None = None):
        self.problem, self.mean, self.R, self._known = problem, mean, R, levels
        self.nodes: Levels | None = None
        closed = _factorised_hook(problem, R)
        self.closed = None if closed is None else closed(mean + problem.offset, R**2, problem.y, second=True)
        self.contrasts: SiteMap | None = None
        if self.closed is not None:
            return
        if getattr(problem.family, "shift_invariant", False):
            self.contrasts = SiteMap(*_contrasted(problem, mean, R), levels)
            return
        if nodes is not None and problem.family.has("expected_over_last"):
            self.nodes = nodes
            return
        n, D = mean.shape
        self.moment, self.second = np.empty(R.shape), np.empty((n, 2 * D, 2 * D)) if R.ndim == 2 else None
        self.U: list[tuple[Rows, Array, Array, Curvature]] = []
        for rows, x, weights in groups(self.levels, D, width=4):
            eta = place(problem, mean, R, x, rows)
            log_p, u = problem.family.log_prob_and_u(eta, problem.y[rows])
            self.moment[rows] = _Summed(x, weights, R[rows], log_p, u).moment
            U = problem.family.U(eta, problem.y[rows])
            if self.second is None:
                self.U.append((rows, x, weights, U))
            else:
                self.second[rows] = second_moments(U, x, weights)

    @cached_property
    def levels(self) -> Levels:
        """Rules of all latents' nodes: those of E[.], or where that has a closed form alone what is as exact."""
        if self._known is not None and np.all(self._known >= 0):
            return self._known
        finer = cast(Levels, _by_nodes(self.problem, self.mean, self.R, "fine").levels)
        return finer if self._known is None else np.where(self._known < 0, finer, self._known)

    def pullback(self, a: Array, B: Array) -> tuple[Array, Array]:
        """Derivative of <a, E[u]> + <B, E[U]> in the means (n, D) and covariances (B's shape)."""
        if self.closed is not None:
            c = self.closed  # E[u] and E[U] are its derivatives in the mean and, times -2, in the variance
            return (
                np.einsum("njk,nk->nj", c.d_mean_mean, a) - 2.0 * np.einsum("njk,nk->nj", c.d_mean_var, B),
                np.einsum("nkj,nk->nj", c.d_mean_var, a) - 2.0 * np.einsum("njk,nk->nj", c.d_var_var, B),
            )
        R, D = self.R, a.shape[1]
        if self.nodes is not None:
            return self._along(a, B)
        if self.contrasts is not None:
            (m_bar, V_bar), A = self.contrasts.pullback(*_contrasted_cotangents(a, B)), contrasts(D)
            whole = A.T @ V_bar @ A
            return m_bar @ A, whole if R.ndim == 3 else np.einsum("njj->nj", whole)
        if self.second is not None:
            # E[U]_j = -sum_s w u_j x_j / R_j; u and its product with x move by -U and -U x
            moved = np.einsum("njk,nk->nj", self.second, np.concatenate([-a, B / R], axis=1))
            return moved[:, :D], (moved[:, D:] + B * self.moment / R**2) / (2.0 * R)
        M_bar, R_bar = self._explicit(B)
        m_bar = np.empty_like(a)
        for rows, x, w, U in self.U:
            u_bar = a[rows] + np.einsum("njk,sk->snj", M_bar[rows], x, optimize=True)
            eta_bar = -w[:, None, None] * U.dot(u_bar)
            m_bar[rows] = eta_bar.sum(axis=0)
            R_bar[rows] += np.einsum("snj,sk->njk", eta_bar, x, optimize=True)
        return m_bar, cholesky_pullback(R, R_bar)

    def _along(self, a: Array, B: Array) -> tuple[Array, Array]:
        """The same by differences of E[u] and E[U], for sums over nodes whose own derivatives are not at hand.

        <a, E[u]> + <B, E[U]> is the slope of E[log p] along (a, -2 B) in (m, V), whose gradient is how E[u] and
        -E[U]/2, the gradient of E[log p], change along it.
        """
        factorised = self.R.ndim == 2
        B = B if factorised else 0.5 * (B + B.swapaxes(1, 2))
        whole, move = (Diagonal(M).dense() if factorised else M for M in (self.R, B))
        inverse, V = np.linalg.inv(whole), whole @ whole.swapaxes(1, 2)
        size = np.linalg.norm(inverse @ a[..., None], axis=(1, 2))
        size += np.linalg.norm(inverse @ move @ inverse.swapaxes(1, 2), axis=(1, 2))
        t = (DIFFERENCE / np.where(size > 0, size, 1.0))[:, None]

        def at(step: Array) -> Expected:
            R = root(Blocks(V - 2.0 * step[..., None] * move), factorised)
            return expect(self.problem, self.mean + step * a, R, "fine", self.nodes)

        above, below = at(t), at(-t)
        m_bar = (above.u - below.u) / (2.0 * t)
        return m_bar, (values_of(below.U) - values_of(above.U)) / (4.0 * (t if factorised else t[..., None]))

    def pullback_phi(self, a: Array, B: Array) -> Array:
        """Derivative of <a, E[u]> + <B, E[U]> in the family's hyperparameters, (p,)."""
        if self.contrasts is not None:
            return self.contrasts.pullback_phi(*_contrasted_cotangents(a, B))
        M_bar = -B / self.R if self.R.ndim == 2 else self._explicit(B)[0]
        family, total = self.problem.family, np.zeros(self.problem.family.log_hyper.size)
        for rows, x, weights in groups(self.levels, a.shape[1], width=2 * total.size):
            if self.R.ndim == 2:
                u_bar = a[rows] + x[:, None, :] * M_bar[rows]
            else:
                u_bar = a[rows] + np.einsum("njk,sk->snj", M_bar[rows], x, optimize=True)
            u_phi = family.u_phi(place(self.problem, self.mean, self.R, x, rows), self.problem.y[rows])
            total += np.einsum("s,snj,snjp->p", weights, u_bar, u_phi, optimize=True)
        return total

    def _explicit(self, B: Array) -> tuple[Array, Array]:
        """Cotangents of M = tril(sum_s w u x^T) and of R where E[U] names it, for blocks."""
        # E[U] = -C^T P C with C = R^-1, P = Phi(Q) + Phi(Q)^T, Q = R^T M
        R, M = self.R, self.moment
        C = np.linalg.inv(R)
        P = symmetric_of_lower(R.swapaxes(1, 2) @ M)
        P_bar = -C @ B @ C.swapaxes(1, 2)
        C_bar = -2.0 * P @ C @ B
        Q_bar = 2.0 * np.tril(P_bar, -1) + P_bar * np.eye(R.shape[-1])
        R_bar = -C.swapaxes(1, 2) @ C_bar @ C.swapaxes(1, 2) + M @ Q_bar.swapaxes(1, 2)
        return np.tril(R @ Q_bar), R_bar


def _contrasted(problem: Problem, mean: Array, R: Array) -> tuple[Problem, Array, Array]:
    """Problem, means (n, D - 1) and Cholesky factors of the contrasts, for R as in `expect`."""
    A, family = contrasts(mean.shape[1]), cast(Family, Contrasts(problem.family))
    half = A @ R if R.ndim == 3 else A * R[:, None, :]
    centre, V = (mean + problem.offset) @ A.T, Blocks(half @ half.swapaxes(1, 2))
    return Problem(family, problem.y, np.zeros_like(centre)), centre, root(V, factorised=False)


def _contrasted_cotangents(a: Array, B: Array) -> tuple[Array, Array]:
    """Cotangents of E[u'] and E[U'] from those of E[u] = A^T u' and E[U] = A^T U' A, or of its diagonal."""
    A, B = contrasts(a.shape[1]), B if B.ndim == 3 else Diagonal(B).dense()
    return a @ A.T, A @ B @ A.T


def expected_blocks(problem: Problem, mean: Array, R: Array) -> Array:
    """E[U] as full blocks (n, D, D), from few nodes: good enough for the direction of a step."""
    n, D = mean.shape
    out = np.empty((n, D, D))
    for rows, x, weights in groups(np.minimum(first_levels(R), 1), D, width=4):
        U = problem.family.U(place(problem, mean, R, x, rows), problem.y[rows])
        out[rows] = second_moments(U, np.zeros_like(x), weights)[:, :D, :D]
    return out


def _closed_form(problem: Problem, mean: Array, R: Array) -> Expected | None:
    """A family's own expectation, if it has one."""
    family, eta, y = problem.family, mean + problem.offset, problem.y
    if (coupled := _factorised_hook(problem, R)) is not None:
        c = coupled(eta, R**2, y)
        return Expected(_finite(c.value), c.d_mean, Diagonal(-2.0 * c.d_var), -c.d_mean_mean)
    if family.has("expected_log_prob_blocks"):
        V = Diagonal(R**2).dense() if R.ndim == 2 else R @ R.swapaxes(1, 2)
        value, u, U = family.expected_log_prob_blocks(eta, V, y)
        return Expected(_finite(value), u, U.diagonal() if R.ndim == 2 else Blocks(U.dense()), U.dense())
    variance = R**2 if R.ndim == 2 else np.einsum("njk,njk->nj", R, R)
    with np.errstate(over="ignore", invalid="ignore"):
        found = family.expected_log_prob(eta, variance, y) if family.has("expected_log_prob") else None
    if found is None:
        return None
    U = Diagonal(-2.0 * found[2])
    return Expected(_finite(found[0]), found[1], U if R.ndim == 2 else Blocks(U.dense()))


def _factorised_hook(problem: Problem, R: Array):
    """A family's expectation over independent latents that its likelihood couples, or None."""
    has = R.ndim == 2 and problem.family.has("expected_log_prob_factorised")
    return problem.family.expected_log_prob_factorised if has else None


def values_of(U: Curvature) -> Array:
    """Diagonals (n, D) or blocks (n, D, D), as the curvature has them."""
    return U.gamma if isinstance(U, Diagonal) else U.dense()


def _finite(value: Array) -> Array:
    return np.where(np.isfinite(value), value, -np.inf)
