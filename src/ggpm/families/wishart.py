"""Wishart: symmetric positive definite matrices."""

from __future__ import annotations

import copy
import math
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import batches
from ggpm.families.base import Array, Bounds, Family, moments
from ggpm.families.curvature import Blocks, Marginals
from ggpm.families.matrix_draws import WishartDraws, laplace_of_matrices
from ggpm.families.residual_variances import ResidualVariances
from ggpm.families.special.adaptive import cholesky_root, place, product_rule
from ggpm.families.special.products import EntryLaw
from ggpm.families.special.stable import HALF_LOG_2PI, log_minus_digamma, stirling_error
from ggpm.families.support import SPD, Support

TINY, HUGE = 1e-300, 1e300
CLOSED_MOST = 3  # variables up to which moments of the predictive distribution are closed: 125 nodes


@cache
def _below(p: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns below the diagonal of a matrix of order p."""
    return np.tril_indices(p, -1)


class Wishart(Family):
    """p×p covariance matrices with mean M and phi degrees of freedom (scale matrix M/phi).

    ========  ===========================================================================================
    support   (n, p, p) symmetric positive definite
    T, b      y, (phi/2) log |M|
    h         |y|^((phi - p - 1)/2) (phi/2)^(p phi/2)/Gamma_p(phi/2)
    a         1
    link      theta = -(phi/2) M^-1, M^-1 = sum_k exp(-eta_k) b_k b_k^T, b_k = e_k - sum_{j>k} eta_jk e_j;
              D = p (p + 1)/2
    U         one block per k, of eta_k and the eta_jk: with s = b_k^T y b_k and v = y b_k it is
              phi exp(-eta_k) [s/2, v^T; v, y]; expected [1/2, 0; 0, exp(-eta_k) M] phi
    ========  ===========================================================================================

    The link is the modified Cholesky factorisation of M^-1, whose entries have a meaning: eta_jk (j > k) are the
    coefficients of the regression of variable k on the variables after it, eta_k is the logarithm of the variance
    that this leaves. Every latent vector gives a positive definite M. The latents are ordered eta_0 .. eta_(p-1),
    then eta_jk row by row: (1,0), (2,0), (2,1), ... The model depends on the order of the variables, as with any
    triangular factor.

    `predict` gives the mean matrix; `Predictive.var` the variance of each entry.

    Parameters
    ----------
    phi : float, optional
        Degrees of freedom, more than p - 1. None: start at 2 p.
    phi_bounds : (low, high) or "fixed"
        Bounds of phi - (p - 1).

    Examples
    --------
    >>> import numpy as np
    >>> Wishart(phi=5.0).moment(np.array([[0.0, 0.0, 0.5]]))  # variable 0 is half of variable 1, plus noise
    array([[[1.25, 0.5 ],
            [0.5 , 1.  ]]])
    """

    latent_dim = 0
    _p: int | None = None
    _scale: Array | None = (
        None  # standard deviation of each variable, in the user's unit, that encoded matrices have as 1
    )

    _phi_ndims = (0,)

    def __init__(self, phi: float | None = None, phi_bounds: Bounds = (1e-2, 1e5)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    @property
    def support(self) -> Support:
        return SPD(columns=self._p)

    # ---- data --------------------------------------------------------------------------------------------
    def resolve(self, y: Any, weight: Array | None = None) -> Self:
        self._check_phi()
        rows = self.encode(y)
        out = copy.copy(self)
        out._p = p = rows.shape[1]
        out.latent_dim = p * (p + 1) // 2
        out.phi = 2.0 * p if self.phi is None else float(self.phi)
        if not out.phi > p - 1 or not math.isfinite(out.phi):
            raise ValueError(f"phi must be degrees of freedom above p - 1 = {p - 1}; got {self.phi!r}.")
        return out

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        """Measure every variable in units of its own, so that all latents are of order one."""
        rows, out = self.encode(y), copy.copy(self)
        out._scale = np.sqrt(np.diagonal(moments(rows, weight)[0]))
        out.log_unit = (rows.shape[1] + 1.0) * float(np.log(out._scale).sum())
        return out

    def encode(self, y: Any) -> Array:
        return self._in_scale(super().encode(y), -1)

    def decode(self, y: Array) -> Array:
        return self._in_scale(y, 1)

    def _in_scale(self, y: Array, power: int) -> Array:
        return y if self._scale is None else y * np.outer(self._scale, self._scale) ** power

    # ---- hyperparameters: the excess over the least degrees of freedom -------------------------------------
    @property
    def learns_phi(self) -> bool:
        return not isinstance(self.phi_bounds, str)

    @property
    def _excess(self) -> float:
        return float(self.phi) - (self._p or 1) + 1.0

    @property
    def log_hyper(self) -> Array:
        return np.empty(0) if self.phi is None else np.array([math.log(self._excess)])

    def with_log_hyper(self, value: Array) -> Self:
        out = copy.copy(self)
        if value.size:
            out.phi = math.exp(float(value[0])) + (self._p or 1) - 1.0
        return out

    # ---- the link ------------------------------------------------------------------------------------------
    @staticmethod
    def _unpack(eta: Array) -> tuple[Array, Array, Array]:
        """``exp(-eta_k)`` (..., p), B with the columns b_k, and the log-variances eta_k."""
        p = (math.isqrt(8 * eta.shape[-1] + 1) - 1) // 2
        B = np.zeros((*eta.shape[:-1], p, p))
        B[..., range(p), range(p)] = 1.0
        rows, columns = _below(p)
        B[..., rows, columns] = -eta[..., p:]
        return np.exp(-eta[..., :p]), B, eta[..., :p]

    @staticmethod
    def _pack(diagonal: Array, below: Array) -> Array:
        """The inverse of the layout: (..., p) and the strict lower part of (..., p, p)."""
        rows, columns = _below(below.shape[-1])
        return np.concatenate([diagonal, below[..., rows, columns]], axis=-1)

    def _squares(self, eta: Array, y: Array) -> Array:
        """``s_k = b_k^T y b_k``, (..., p), entry by entry: products of many small matrices cost more."""
        p = y.shape[-1]
        out = np.empty((*np.broadcast_shapes(eta.shape[:-1], y.shape[:-2]), p))
        for k, below in self._columns(p):
            s = y[..., k, k]
            for a, j in enumerate(below):
                row = y[..., k + 1 + a, k + 1 + a] * eta[..., j] - 2.0 * y[..., k + 1 + a, k]
                for b in range(a):
                    row = row + 2.0 * y[..., k + 1 + a, k + 1 + b] * eta[..., below[b]]
                s = s + eta[..., j] * row
            out[..., k] = s
        return out

    def _residuals(self, eta: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        """exp(-eta_k), B, ``v = y B`` and ``s_k = b_k^T y b_k``."""
        w, B, _ = self._unpack(eta)
        v = y @ B
        return w, B, v, np.einsum("...jk,...jk->...k", B, v)

    @staticmethod
    def _columns(p: int) -> list[tuple[int, NDArray[np.intp]]]:
        """For every k the indices, in the latent vector, of eta_k and of eta_jk with j = k+1, ..., p-1."""
        columns = _below(p)[1]
        return [(k, p + np.flatnonzero(columns == k)) for k in range(p)]

    # ---- density -------------------------------------------------------------------------------------------
    def natural(self, eta: Array) -> tuple[Array, Array]:
        """theta = -phi M^-1/2, entry by entry, and b = phi log|M|/2."""
        w, B, log_variance = self._unpack(eta)
        inverse = np.einsum("...ik,...k,...jk->...ij", B, w, B)
        return -0.5 * float(self.phi) * inverse.reshape(*eta.shape[:-1], -1), 0.5 * float(self.phi) * log_variance.sum(
            axis=-1
        )

    def statistic(self, y: Array) -> tuple[Array, Array]:
        """The entries of y, and what does not depend on M."""
        p, phi = y.shape[-1], float(self.phi)
        # at M = I, where theta . T - b is -phi tr(y)/2
        log_h = self.log_prob(np.zeros(p * (p + 1) // 2), y) + 0.5 * phi * np.einsum("...jj->...", y)
        return y.reshape(*y.shape[:-2], -1), log_h

    def _log_prob(self, eta: Array, y: Array, w: Array, s: Array) -> Array:
        p, phi = y.shape[-1], float(self.phi)
        log_det_y = np.linalg.slogdet(y)[1]
        # Stein's divergence tr(M^-1 y) - log |M^-1 y| - p, and what does not depend on eta, by Stirling's formula
        stein = np.einsum("...k,...k->...", w, s) + eta[..., :p] @ np.ones(p) - (p + log_det_y)
        j = np.arange(float(p))
        x = 0.5 * (phi - j)
        constant = 0.5 * (j + 1) * math.log(phi / 2.0) - (x - 0.5) * np.log1p(-j / phi) - 0.5 * j
        constant = constant - HALF_LOG_2PI - stirling_error(x)
        head = float(constant.sum()) - 0.25 * p * (p - 1) * math.log(math.pi)
        volume = (
            0.0 if self._scale is None else (p + 1.0) * float(np.log(self._scale).sum())
        )  # per unit of the user's y
        return head - 0.5 * phi * stein - 0.5 * (p + 1) * log_det_y - volume

    def _u(self, w: Array, v: Array, s: Array) -> Array:
        return float(self.phi) * self._pack(0.5 * (w * s - 1.0), w[..., None, :] * v)

    def log_prob(self, eta: Array, y: Array) -> Array:
        return self._log_prob(eta, y, np.exp(-eta[..., : y.shape[-1]]), self._squares(eta, y))

    def fewer_latents(self, mean: Array, cov: Array, y: Array) -> tuple[ResidualVariances, Array, Array, Array] | None:
        if y.shape[-1] == 1:
            return None
        own = self.expansion(y)
        return ResidualVariances.of(float(self.phi), self.log_prob(own, y), own, y, mean, cov)

    def own_draws(self, mean: Array, cov: Array, n: int) -> WishartDraws | None:
        if self._p == 1:
            return None
        return WishartDraws(float(self.phi), self._head, mean, cov, math.ceil(math.log2(n)))

    def quick_log_prob(self, mean: Array, cov: Array, y: Array) -> Array | None:
        return None if self._p == 1 else laplace_of_matrices(float(self.phi), self._head, mean, cov, y)

    @property
    def _head(self) -> float:
        """Log density of the unit matrix given that it is the mean."""
        return float(self.log_prob(np.zeros(self.latent_dim), np.eye(int(self._p or 1))))

    def u(self, eta: Array, y: Array) -> Array:
        w, _, v, s = self._residuals(eta, y)
        return self._u(w, v, s)

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        w, _, v, s = self._residuals(eta, y)
        return self._log_prob(eta, y, w, s), self._u(w, v, s)

    def U(self, eta: Array, y: Array, expected: bool = False) -> Blocks:
        w, _, v, s = self._residuals(eta, y)
        p = y.shape[-1]
        lead = v.shape[:-2]
        if expected:
            v, s, y = np.zeros_like(v), np.broadcast_to(1.0 / w, s.shape), self.moment(eta)
        out = np.zeros((*lead, eta.shape[-1], eta.shape[-1]))
        for k, below in self._columns(p):
            out[..., k, k] = 0.5 * w[..., k] * s[..., k]
            out[..., k, below] = out[..., below, k] = w[..., k, None] * v[..., k + 1 :, k]
            out[..., below[:, None], below] = w[..., k, None, None] * y[..., k + 1 :, k + 1 :]
        return Blocks(float(self.phi) * out)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        w, B, v, s = self._residuals(eta, y)
        p, phi, dense = y.shape[-1], float(self.phi), V.dense()
        diagonal, below_part = np.zeros(s.shape), np.zeros(v.shape)
        M = self.moment(eta) if expected else y
        G = np.zeros(v.shape)  # derivative in M, where U is expected
        total = np.zeros(s.shape[:-1])
        for k, below in self._columns(p):
            own, cross = dense[..., k, k], dense[..., k, below]
            square = dense[..., below[:, None], below]
            wk = w[..., k]
            if expected:
                trace = wk * np.sum(square * M[..., k + 1 :, k + 1 :], axis=(-1, -2))
                diagonal[..., k] -= trace
                G[..., k + 1 :, k + 1 :] += wk[..., None, None] * square
                total = total + trace + 0.5 * own
                continue
            corner = 0.5 * own * wk * s[..., k]
            edge = 2.0 * wk * np.sum(cross * v[..., k + 1 :, k], axis=-1)
            trace = wk * np.sum(square * y[..., k + 1 :, k + 1 :], axis=(-1, -2))
            diagonal[..., k] = -(corner + edge + trace)
            # s_k falls by 2 v_j, v_l by y_lj, as eta_jk rises
            pull = own[..., None] * v[..., k + 1 :, k]
            pull = pull + 2.0 * np.einsum("...lj,...l->...j", y[..., k + 1 :, k + 1 :], cross)
            below_part[..., k + 1 :, k] = -wk[..., None] * pull
            total = total + corner + edge + trace
        if expected:
            # M = P^-1, P = sum_k w_k b_k b_k^T: d<G, M> = -<M G M, dP>
            Q = M @ G @ M
            QB = Q @ B
            diagonal += w * np.einsum("...jk,...jk->...k", B, QB)
            below_part += 2.0 * w[..., None, :] * QB
        d_eta = phi * self._pack(diagonal, below_part)
        return d_eta, np.array([self._excess * np.sum(total)])

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        w, _, _, s = self._residuals(eta, y)
        p, phi = y.shape[-1], float(self.phi)
        stein = np.sum((w * s - 1.0) + eta[..., :p], axis=-1) - np.linalg.slogdet(y)[1]
        j = np.arange(float(p))
        drift = log_minus_digamma(0.5 * (phi - j)) - np.log1p(-j / phi)  # log(phi/2) - psi0((phi - j)/2)
        change = 0.5 * float(drift.sum()) - 0.5 * stein
        return (self._excess * change)[..., None]

    def u_phi(self, eta: Array, y: Array) -> Array:
        return (self._excess / float(self.phi) * self.u(eta, y))[..., None]

    def expansion(self, y: Array) -> Array:
        """The latent whose mean is the observation: observed and expected curvature agree there."""
        flipped = np.linalg.cholesky(y[..., ::-1, ::-1])[..., ::-1, ::-1]  # y = R R^T, R upper triangular
        scale = np.einsum("...jj->...j", flipped)
        unit = flipped / scale[..., None, :]  # M = B^-T diag(exp eta) B^-1, so B = unit^-T
        B = np.swapaxes(np.linalg.inv(unit), -1, -2)
        return self._pack(2.0 * np.log(scale), -B)

    # ---- in the space of y -----------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        root = self._root(eta)
        return root @ np.swapaxes(root, -1, -2)

    def _root(self, eta: Array) -> Array:
        """R upper triangular with R R^T = M."""
        _, B, log_variance = self._unpack(eta)
        return np.swapaxes(np.linalg.inv(B), -1, -2) * np.exp(0.5 * log_variance)[..., None, :]

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        """Variance of each entry, (M_ij² + M_ii M_jj)/phi."""
        M = self.moment(eta)
        diagonal = np.einsum("...jj->...j", M)
        return (M**2 + diagonal[..., :, None] * diagonal[..., None, :]) / float(self.phi)

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array] | None:
        """Mean and variance of every entry, (n, p, p) each, for p <= `CLOSED_MOST`.

        M_ij = sum_k A_ik A_jk exp(eta_k) with A = B^-T, whose entries are polynomials of the eta_jk. Under a Gaussian,
        E[exp(a^T eta) f(eta)] = exp(a^T m + a^T V a/2) E[f(eta + V a)]: what is left is exact with a few nodes.
        """
        p = (math.isqrt(8 * mean.shape[1] + 1) - 1) // 2
        if p > CLOSED_MOST:
            return None
        x, weights = product_rule(mean.shape[1] - p, 2 * p - 1)  # exact to degree 4 p - 3; squares have 4 (p - 1)
        first, second, within = np.zeros((3, len(mean), p, p))
        for rows in batches(len(mean), 8 * x.size):
            with np.errstate(over="ignore", invalid="ignore"):  # means that are beyond floats are infinite
                self._add_moments(mean[rows], cov[rows], x, weights, (first[rows], second[rows], within[rows]))
        i, j = _below(p)
        for entries in (first, second, within):
            entries[:, i, j] = entries[:, j, i]
        with np.errstate(invalid="ignore"):
            return first, (second + within) / float(self.phi) + (second - first**2)

    @staticmethod
    def _add_moments(mean: Array, cov: Array, x: Array, weights: Array, to: tuple[Array, Array, Array]) -> None:
        """Add E[M_ij], E[M_ij^2] and E[M_ii M_jj], i <= j, each (n, p, p)."""
        first, second, within = to
        p, unit = first.shape[1], np.eye(mean.shape[1])
        upper = [(i, j) for j in range(p) for i in range(j + 1)]
        root = cholesky_root(cov[:, p:, p:])

        def tilted(a: Array) -> tuple[Array, list[list[Array]]]:
            """E[exp(a^T eta)] and the rows of A at nodes (S, n) of the latent under that weight."""
            tilt = cov @ a
            below = place(mean[:, p:] + tilt[:, p:], root, x)
            return np.exp(mean @ a + 0.5 * tilt @ a), _inverse_root([below[..., i] for i in range(below.shape[-1])], p)

        for k in range(p):
            size, A = tilted(unit[k])
            for i, j in upper:
                if j <= k:
                    first[:, i, j] += size * (weights @ (A[i][k] * A[j][k]))
            for l in range(k + 1):
                size, A = tilted(unit[k] + unit[l])
                twice = 1.0 if k == l else 2.0
                both = [A[i][k] * A[i][l] for i in range(l + 1)]
                own_k, own_l = [A[i][k] ** 2 for i in range(k + 1)], [A[i][l] ** 2 for i in range(l + 1)]
                for i, j in upper:
                    if j <= l:
                        second[:, i, j] += twice * size * (weights @ (both[i] * both[j]))
                    for a, b in ((i, j), (j, i))[: 1 if k == l else 2]:
                        if a <= k and b <= l:
                            within[:, i, j] += size * (weights @ (own_k[a] * own_l[b]))

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        R, phi = self._root(eta), float(self.phi)
        p = R.shape[-1]
        # Bartlett's decomposition: a triangle of normals with chi variates on the diagonal
        A = np.tril(rng.standard_normal(R.shape), -1)
        A[..., range(p), range(p)] = np.sqrt(rng.chisquare(phi - np.arange(p), size=R.shape[:-1]))
        root = R @ A / math.sqrt(phi)
        return self.decode(root @ np.swapaxes(root, -1, -2))

    def entry_laws(self) -> list[EntryLaw]:
        """Entries on and above the diagonal: each depends on its variables and on those after them alone."""
        p, columns = int(self._p or 1), dict(self._columns(int(self._p or 1)))
        laws = []
        for i in range(p):
            slopes = [(int(l), k, k + 1 + a) for k in range(i, p) for a, l in enumerate(columns[k])]
            order = [l for l, _, _ in slopes]
            for j in range(i, p):
                at = partial(_entry, float(self.phi), j - i, p - i, order)
                known, l = (math.inf, p - 1) if j == i else (float(self.phi), j)
                last = next((place for place, slope in enumerate(slopes, p - i) if slope[1:] == (i, l)), 0)
                line = partial(_entry_along, known, l - i, p - i, order)
                laws.append(EntryLaw([(i, j), (j, i)], list(range(i, p)), slopes, at, last, line))
        return laws

    def point(self, moment: Array) -> Array:
        return self.decode(moment)

    def variance(self, moment: Array, within: Array, between: Array) -> Array:
        return self._in_scale(within + between, 2)

    def loss(self, y: Array, prediction: Array) -> Array:
        # unit deviance: Stein's divergence tr(M^-1 y) - log |M^-1 y| - p
        ratio = np.linalg.solve(self._in_scale(prediction, -1), y)
        return np.einsum("...jj->...", ratio) - np.linalg.slogdet(ratio)[1] - y.shape[-1]


def _entry(phi: float, j: int, p: int, order: list[int], eta: Array) -> tuple[Array, Array | None]:
    """``ell`` and k of entry (0, j) of a matrix of order p (`EntryLaw`), from the latents (D, ...) in that order.

    ``order`` are the places of the eta_jk in the whole latent vector, which `_inverse_root` takes row by row.
    """
    top, variance, A, M = _mean_of_entry(j, p, order, eta)
    if j == 0:
        return top + np.log(M), None
    det = _minor(j, p, A, variance)
    with np.errstate(divide="ignore"):
        k = np.arcsinh(np.clip(math.sqrt(phi) * M / np.sqrt(np.maximum(det, TINY)), -HUGE, HUGE))
    return top + 0.5 * np.log(np.maximum(M * M + det / phi, TINY)), k


def _entry_along(phi: float, j: int, p: int, order: list[int], eta: Array) -> tuple[Array, Array, Array]:
    """`EntryLaw.line` of the same, of the coefficient eta_j0; with infinite phi of entry (0, 0).

    M_0j = M_jj (eta_j0 + what others bring), and M_00 = M_0j²/M_jj + (M_00 M_jj - M_0j²)/M_jj.
    """
    top, variance, A, M = _mean_of_entry(j, p, order, eta)
    own = np.maximum(sum(A[j][k] ** 2 * variance[k] for k in range(j, p)), TINY)
    det = _minor(j, p, A, variance) / (1.0 if math.isinf(phi) else phi)
    return M / own, 0.5 * np.log(np.maximum(det, TINY)) - np.log(own), top + np.log(own)


def _mean_of_entry(j: int, p: int, order: list[int], eta: Array) -> tuple[Array, Array, list[list[Array]], Array]:
    """The largest log-variance, variances over it, A, and entry (0, j) of the mean, over that largest variance."""
    top = eta[:p].max(axis=0)
    variance = np.exp(eta[:p] - top)
    A = _inverse_root([eta[p + i] for i in np.argsort(order)], p)
    return top, variance, A, sum(A[0][k] * A[j][k] * variance[k] for k in range(j, p))


def _minor(j: int, p: int, A: list[list[Array]], variance: Array) -> Array:
    """M_00 M_jj - M_0j² by the formula of Cauchy and Binet: nothing cancels."""
    minors = ((A[0][k] * A[j][l] - A[0][l] * A[j][k], variance[k] * variance[l]) for l in range(j, p) for k in range(l))
    return sum(minor**2 * product for minor, product in minors)


def _inverse_root(below: list[Array], p: int) -> list[list[Array]]:
    """Rows of A = B^-T, upper triangular with ones on the diagonal, for the eta_jk below the diagonal."""
    one = np.ones_like(below[0]) if below else np.ones(())
    A = [[one if j == k else np.zeros(()) for j in range(p)] for k in range(p)]
    eta = {(int(j), int(k)): value for value, j, k in zip(below, *_below(p))}
    for k in range(p - 2, -1, -1):  # variable k as a sum of what its regression and those after it leave
        for j in range(k + 1, p):
            A[k] = [a + eta[j, k] * b if i >= j else a for i, (a, b) in enumerate(zip(A[k], A[j]))]
    return A
