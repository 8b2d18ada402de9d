"""Rows with a latent of their own: white noise in a kernel, eliminated row by row.

Where the kernel has a part that belongs to a row alone, a row's latent is ``f = g + e`` with g from the inducing values
and e ~ N(0, W), W (D,) diagonal. Inducing values cannot carry e, and it must not be taken for variance that they leave
unexplained. Given the row's site, gradient u and precision U at f, e is eliminated: at the mode e = W u, and what
is left for g is a site with the same gradient and the precision

    U~ = (U^-1 + W)^-1 = U - U W U~,        log|I + U W| more in the log-determinant.

For a bound, q(e | g) is the best conditional Gaussian: with V the covariance of g,

    Cov[f] = C + J V J^T,   J = I - W U~,   C = W - W U~ W,
    KL(q(e | g) || prior) = 1/2 (u^T W u - <U~, W> + log|I + U W| + <W, U~ V U~>)       averaged over g.

The same covariance is what an expansion's log-determinant depends on: its derivative in U is -Cov[f]/2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpm.families.curvature import Blocks, Curvature, Diagonal, Marginals
from ggpm.kernels.linalg import NotPositiveDefinite
from ggpm.sites.base import InferenceError, Problem, Rule, Sites

Array = NDArray[np.float64]

MOST_STEPS = 100  # of the search within rows; from any start that the tests try, fewer than 30 are taken
# Relative move of the rows' own latents that ends it: what is left of it in the objective, its square, is rounding, and
# in gradients, which are not stationary in it, 1e-11.
CLOSE = 1e-11
NOT_SETTLED = "the rows' own latents, from white noise in the kernel, were not found at these hyperparameters"
MEMORY = 4  # steps that a row's extrapolation looks at; a row has D + D² unknowns, mostly few


@dataclass(frozen=True)
class Settled:
    """The sites of some rows after each row's own latent was eliminated."""

    sites: Sites
    """Sites at f."""
    f: Array
    """The rows' latents, their own part included, (c, D)."""
    U: Curvature
    """Precision of the sites of g."""
    value: float
    """Log-likelihood, less the energy (or divergence) of the rows' own latents."""
    own: Array | None = None
    """W, (c, D); None: no row has a latent of its own."""
    log_det: float = 0.0
    """``sum_i log|I + U_i W_i|``, for expansions."""

    @property
    def u(self) -> Array:
        """Gradient of the sites, (c, D)."""
        return self.sites.u

    def covariance(self, V: Marginals) -> Marginals:
        """Covariance of f from that of g."""
        if self.own is None:
            return V
        return _wrapped(_covariance(self.U.dense(), self.own, V.dense()), isinstance(V, Diagonal))

    def reduced(self, s: Array) -> Array:
        """``(I + U W)^-1 s``: a derivative in f as one in g."""
        return s if self.own is None else s - self.U.dot(self.own * s)

    def own_slope(self, V: Marginals, s: Array) -> Array | None:
        """Derivative of the objective in W with the inducing values held, ``(u^2 - U~ + U~ V U~)/2 + s u``, (c, D)."""
        if self.own is None:
            return None
        U = self.U.dense()
        spread = np.einsum("cjk,ckl,clj->cj", U, V.dense(), U, optimize=True)
        return 0.5 * (self.u**2 - np.einsum("cjj->cj", U) + spread) + s * self.u


def settle(rule: Rule, problem: Problem, g: Array, V: Marginals | None, own: Array | None, fisher: bool) -> Settled:
    """The sites of rows at g (with covariances V for bounds), each row's own latent eliminated."""
    if own is None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            sites = rule.at(problem, g, V, fisher)
        value = rule.value(problem, g) if sites.value is None else sites.value
        return Settled(sites, g, sites.U, value)
    return (_settle_bound if rule.depends_on == "covariance" else _settle_expansion)(
        rule, problem, g, V, own, fisher
    )  # fmt: skip


def _settle_expansion(rule: Rule, problem: Problem, g: Array, V: Marginals | None, own: Array, fisher: bool) -> Settled:
    """Newton's method on e = W t for all rows at once, ``dt = (I + U W)^-1 (u - t)``, halved until all rise."""

    def height(t: Array) -> float:
        return rule.value(problem, g + own * t) - 0.5 * float(np.sum(own * t * t))

    t, now = np.zeros_like(g), -np.inf
    for _ in range(MOST_STEPS):
        sites, U, log_det = _curvature(rule, problem, g + own * t, own, fisher)
        r = sites.u - t
        step = r - _times(U, own * r)  # (I + U W)^-1 = I - U~ W
        now = height(t) if now == -np.inf else now
        if np.max(np.abs(own * step)) <= CLOSE * (1.0 + np.max(np.abs(own * t))):
            break
        length = 1.0
        while (there := height(t + length * step)) < now - 1e-13 * (1.0 + abs(now)) and length > 1e-6:
            length *= 0.5
        t, now = t + length * step, there
    else:
        raise InferenceError(NOT_SETTLED)
    return Settled(sites, g + own * t, _wrapped(U, isinstance(sites.U, Diagonal)), now, own, log_det)


def _curvature(rule: Rule, problem: Problem, f: Array, own: Array, fisher: bool) -> tuple[Sites, Array, float]:
    """Sites at f, U~ and log|I + U W|; with the Fisher curvature where the observed one leaves e no mode."""
    sites = rule.at(problem, f, None, fisher)
    try:
        return sites, *_reduced(sites.U.dense(), own)
    except NotPositiveDefinite:
        if fisher:
            raise
    return _curvature(rule, problem, f, own, True)


def _settle_bound(rule: Rule, problem: Problem, g: Array, V: Marginals | None, own: Array, fisher: bool) -> Settled:
    """The fixed point of u, U = E[u], E[U] under the Gaussian of f that they imply, row by row.

    Wide latents answer to a larger U with a smaller one, so that plain steps go back and forth: each row extrapolates
    from its last few (Anderson), and takes half a step where that brought it no closer.
    """
    assert V is not None
    diagonal, cov, (c, D) = isinstance(V, Diagonal), V.dense(), g.shape
    x = np.concatenate(
        [g * 0.0, problem.family.U(g + problem.offset, problem.y, expected=True).dense().reshape(c, -1)], 1
    )
    history: list[tuple[Array, Array]] = []
    last = np.full(c, np.inf)
    for _ in range(MOST_STEPS):
        t, U_f = x[:, :D], x[:, D:].reshape(c, D, D)
        U, _ = _reduced(U_f, own)
        sites = rule.at(problem, g + own * t, _wrapped(_covariance(U, own, cov), diagonal))
        r = sites.u - t
        image = np.concatenate([t + r - _times(U, own * r), sites.U.dense().reshape(c, -1)], axis=1)
        change = np.max(np.abs(image - x) / (1.0 + np.abs(x).max(axis=1, keepdims=True)), axis=1)
        if change.max() <= CLOSE:
            break
        history = [*history, (x, image)][-MEMORY:]
        ahead = _extrapolated(history)
        ahead = np.where((change <= last)[:, None] & np.isfinite(ahead), ahead, 0.5 * (x + image))
        x = np.where(_definite(ahead[:, D:].reshape(c, D, D), own)[:, None], ahead, 0.5 * (x + image))
        last = np.minimum(last, change)
    else:
        raise NotPositiveDefinite(NOT_SETTLED)  # no such Gaussian: the search takes another step
    U, log_det = _reduced(sites.U.dense(), own)
    inner = np.einsum("cjk,ckl,clj->cj", U, cov, U, optimize=True)
    divergence = 0.5 * (float(np.sum(own * (t * t - np.einsum("cjj->cj", U) + inner))) + log_det)
    assert sites.value is not None
    return Settled(sites, g + own * t, _wrapped(U, diagonal), sites.value - divergence, own)


def _extrapolated(history: list[tuple[Array, Array]]) -> Array:
    """Anderson's step for every row apart, from pairs (x, image), each (c, size)."""
    x, image = history[-1]
    if len(history) == 1:
        return image
    residual = image - x
    turns = np.stack([residual - (g - y) for y, g in history[:-1]], axis=2)
    moves = np.stack([image - g for _, g in history[:-1]], axis=2)
    weights = np.linalg.pinv(turns, rcond=1e-8) @ residual[:, :, None]
    return image - (moves @ weights)[:, :, 0]


def _definite(U: Array, own: Array) -> NDArray[np.bool_]:
    """The rows in which ``W^-1 + U`` is positive definite."""
    root = np.sqrt(own)
    return np.linalg.eigvalsh(root[:, :, None] * U * root[:, None, :])[:, 0] > -1.0


def _reduced(U: Array, own: Array) -> tuple[Array, float]:
    """``(U^-1 + W)^-1`` (c, D, D) and the sum of log|I + U W|; raises where ``W^-1 + U`` is not definite."""
    root = np.sqrt(own)
    inner = root[:, :, None] * U * root[:, None, :] + np.eye(U.shape[-1])
    try:
        L = np.linalg.cholesky(inner)
    except np.linalg.LinAlgError as err:
        raise NotPositiveDefinite(f"a row's own latent has no mode ({err})") from None
    half = np.linalg.solve(L, root[:, :, None] * U)
    reduced = U - half.swapaxes(1, 2) @ half  # U - U W^(1/2) (I + W^(1/2) U W^(1/2))^-1 W^(1/2) U
    return reduced, 2.0 * float(np.sum(np.log(np.einsum("cjj->cj", L))))


def _covariance(U: Array, own: Array, V: Array) -> Array:
    """``C + J V J^T`` from the precision U~ of g's site."""
    WU = own[:, :, None] * U
    J = np.eye(U.shape[-1]) - WU
    C = -WU * own[:, None, :]
    C[:, range(U.shape[-1]), range(U.shape[-1])] += own
    return C + J @ V @ J.swapaxes(1, 2)


def _times(U: Array, x: Array) -> Array:
    return np.einsum("cjk,ck->cj", U, x)


def _wrapped(values: Array, diagonal: bool) -> Diagonal | Blocks:
    """Matrices (c, D, D) as `Diagonal` or `Blocks`."""
    return Diagonal(np.ascontiguousarray(np.einsum("cjj->cj", values))) if diagonal else Blocks(values)
