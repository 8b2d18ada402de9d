"""Von Mises with one latent for the concentration: a gap in the data does not force it down."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ggpm.families.base import Array, Family
from ggpm.families.base import moments as moments_of
from ggpm.families.curvature import Blocks, Marginals
from ggpm.families.special.concentrated import log_density, moments
from ggpm.families.special.harmonics import harmonics
from ggpm.families.special.mean_bessel import mean_log_bessel
from ggpm.families.von_mises import VonMises

_TINY = 1e-100  # length of a direction's latents: there is no direction, and nothing depends on it


class VonMisesDirectionConcentration(VonMises):
    """Angles with the mean direction from two latents and the concentration from a third.

    ========  =====================================================================================
    support   angles, one number per row
    latents   (a, b, c); theta = exp(c) (a, b)/sqrt(1 + a² + b²), D = 3
    log p     theta^T (cos y, sin y) - log I_0(|theta|) - log 2 pi
    U         J^T U_theta J - sum_i u_i (Hessian of theta_i), U_theta and u those of `VonMises`
    expected  J^T U_theta J, J the Jacobian of theta
    ========  =====================================================================================

    theta is smooth everywhere and not longer than exp(c). In `VonMises` the length of the latent vector is the
    concentration, which therefore falls to that of the prior wherever data are missing; here it has a kernel of its
    own. A pure direction of (a, b) would leave their length without any meaning, and the posterior without a mode; as
    it is, their length is known badly, and approximate posteriors of it are wide; what data do tell is |theta|, the
    concentration of y, and ``parameter("concentration")`` is that, not exp(c) (see docs/families.md).

    Parameters
    ----------
    units : "radians", "degrees", "hours" or (low, high)
        As in `VonMises`.

    Examples
    --------
    >>> import numpy as np
    >>> family = VonMisesDirectionConcentration(units="hours")
    >>> float(family.point(family.moment(np.array([0.0, 2.0, 1.0]))))  # a quarter of a day
    6.0
    """

    latent_dim = 3
    several_modes = True
    parameters = ("direction", "concentration")
    needs_spread = (1e-4, "von_mises")  # below, no bound of the evidence is found (measured)
    latent_variance = (1.0, 1.0, 1.0)
    latents_without_unit = (0, 1)

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        """With origins at the mean of (cos y, sin y) and at the concentration of all angles about it, from one on.

        (a, b) is as long as the spread of the angles is small, so that latents of order one turn it by that spread.
        """
        out, mean = copy.copy(self), moments_of(self.direction(self.encode(y)), weight)[0]
        R2 = float(mean @ mean)
        if R2 < 1.0:
            kappa = np.sqrt(R2) * (2.0 - R2) / (1.0 - R2)  # Banerjee et al. 2005, eq. (4.4)
            out._origin = np.array([*(mean / np.sqrt(1.0 - R2)), np.log(max(1.0, kappa))])
        return out

    def parameter(self, name: str, eta: Array) -> Array:
        return super().parameter(name, eta) if name == "direction" else np.linalg.norm(self._theta(eta)[0], axis=-1)

    @staticmethod
    def _theta(eta: Array) -> tuple[Array, Array, Array]:
        """theta (..., 2), and what its derivatives are made of: g = exp(c)/sqrt(q) and q = 1 + a² + b²."""
        a, b = eta[..., 0], eta[..., 1]
        q = 1.0 + a * a + b * b
        g = np.exp(eta[..., 2]) / np.sqrt(q)
        theta = np.empty((*g.shape, 2))
        np.multiply(g, a, out=theta[..., 0])
        np.multiply(g, b, out=theta[..., 1])
        return theta, g, q

    @staticmethod
    def _pulled(eta: Array, theta: Array, g: Array, q: Array, u: Array) -> Array:
        """J^T u for u (..., 2), J the Jacobian of theta: g (I - e e^T/q) for e = (a, b), and theta for c."""
        a, b = eta[..., 0], eta[..., 1]
        along = (a * u[..., 0] + b * u[..., 1]) / q
        out = np.empty((*along.shape, 3))
        np.multiply(g, u[..., 0] - along * a, out=out[..., 0])
        np.multiply(g, u[..., 1] - along * b, out=out[..., 1])
        np.add(theta[..., 0] * u[..., 0], theta[..., 1] * u[..., 1], out=out[..., 2])
        return out

    def _jets(self, eta: Array) -> tuple[Array, Array, Array]:
        """theta (..., 2), its Jacobian (..., 2, 3) and second derivatives (..., 2, 3, 3)."""
        theta, g, q = self._theta(eta)
        e, root, eye = eta[..., :2], np.sqrt(q)[..., None], np.eye(2)
        unit = e / root  # p_k/p = -unit_k/sqrt(q) for p = q^-1/2
        p1 = -unit / root
        p2 = (3.0 * unit[..., :, None] * unit[..., None, :] - eye) / (root**2)[..., None]
        J = np.empty((*theta.shape, 3))
        J[..., :2] = g[..., None, None] * (eye + e[..., :, None] * p1[..., None, :])
        J[..., 2] = theta
        H = np.empty((*theta.shape, 3, 3))
        first = eye[:, :, None] * p1[..., None, None, :]  # delta_ik p_l
        H[..., :2, :2] = g[..., None, None, None] * (
            first + first.swapaxes(-1, -2) + e[..., :, None, None] * p2[..., None, :, :]
        )
        H[..., 2], H[..., 2, :] = J, J
        return theta, J, H

    def _third(self, eta: Array, V: Array) -> Array:
        """``sum_kl V_kl d³theta_i/deta_k deta_l deta_m``, (..., 2, 3)."""
        e, q = eta[..., :2], 1.0 + np.sum(eta[..., :2] ** 2, axis=-1)
        g, root = np.exp(eta[..., 2]) / np.sqrt(q), np.sqrt(q)
        s, W, eye = e / root[..., None], V[..., :2, :2], np.eye(2)
        # derivatives of p = q^-1/2, relative to p, with s = e/sqrt(q) and powers of root taken out
        Ws, trace = np.einsum("...kl,...l->...k", W, s), np.einsum("...kk->...", W)
        sWs = np.sum(s * Ws, axis=-1)
        p2 = (3.0 * s[..., :, None] * s[..., None, :] - eye) / (root**2)[..., None, None]
        W_p2 = np.sum(W * p2, axis=(-1, -2))
        W_p3 = (3.0 * trace[..., None] * s + 6.0 * Ws - 15.0 * sWs[..., None] * s) / (root**3)[..., None]
        out = np.empty((*e.shape, 3))
        # delta_ik p_lm + delta_il p_km + delta_im p_kl + e_i p_klm, contracted with W_kl
        both = 2.0 * np.einsum("...il,...lm->...im", W, p2)
        out[..., :2] = g[..., None, None] * (both + eye * W_p2[..., None, None] + e[..., :, None] * W_p3[..., None, :])
        _, J, H = self._jets(eta)
        out[..., 2] = np.einsum("...kl,...ikl->...i", W, H[..., :2, :2])
        # every derivative in c leaves theta as it is
        out += 2.0 * np.einsum("...k,...ikm->...im", V[..., 2, :2], H[..., :2, :]) + V[..., 2, 2, None, None] * J
        return out

    # ---- density -----------------------------------------------------------------------------------------
    # those of `VonMises` are of another latent
    u_and_U = Family.u_and_U  # type: ignore[assignment]
    expected_log_prob_wide = Family.expected_log_prob_wide  # type: ignore[assignment]

    def natural(self, eta: Array) -> tuple[Array, Array]:
        """theta and b = log I_0(|theta|)."""
        return super().natural(self._theta(eta)[0])

    def log_prob(self, eta: Array, y: Array) -> Array:
        return super().log_prob(self._theta(eta)[0], y)

    def u(self, eta: Array, y: Array) -> Array:
        theta, g, q = self._theta(eta)
        return self._pulled(eta, theta, g, q, super().u(theta, y))

    def log_prob_and_u(self, eta: Array, y: Array) -> tuple[Array, Array]:
        theta, g, q = self._theta(eta)
        value, u = super().log_prob_and_u(theta, y)
        return value, self._pulled(eta, theta, g, q, u)

    def U(self, eta: Array, y: Array, expected: bool = False) -> Blocks:  # type: ignore[override]
        theta, J, H = self._jets(eta)
        inner = super().U(theta, y).dense()
        out = np.einsum("...ik,...ij,...jl->...kl", J, inner, J, optimize=True)
        if not expected:
            out = out - np.einsum("...i,...ikl->...kl", super().u(theta, y), H)
        return Blocks(out)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        theta, J, H = self._jets(eta)
        dense, U = V.dense(), super().U(theta, y).dense()
        JV = J @ dense
        # <V, U> = <J V J^T, U_theta> - sum_i u_i <V, H_i>
        d_theta, none = super().U_pullback(theta, y, Blocks(JV @ J.swapaxes(-1, -2)))
        out = np.einsum("...i,...im->...m", d_theta, J)
        out += 2.0 * np.einsum("...ik,...ikm->...m", U @ JV, H)
        if not expected:
            bent = np.einsum("...kl,...ikl->...i", dense, H)
            out += np.einsum("...i,...ij,...jm->...m", bent, U, J, optimize=True)
            out -= np.einsum("...i,...im->...m", super().u(theta, y), self._third(eta, dense))
        return out, none

    def expected_over_last(self, eta: Array, sd: Array, y: Array) -> tuple[Array, Array, Array]:
        """With k = exp(c), r = |theta|/k and d = r (1 - cos) of the angle between: E[log p] is -E[k] d - G(log k r).

        E[k] is that of a log-normal and -G the average of log I_0(x) - x over it.
        """
        a, b, c = (np.ascontiguousarray(eta[..., j]) for j in range(3))
        square = a * a + b * b
        size, p = np.maximum(np.sqrt(square), _TINY), 1.0 / np.sqrt(1.0 + square)
        r = size * p
        x, z = np.cos(y) - a / size, np.sin(y) - b / size
        k, d = np.exp(c + 0.5 * sd**2), 0.5 * r * (x * x + z * z)
        G, slope, second = mean_log_bessel(c + np.log(r), sd)
        kd = k * d
        along = (kd - slope / size / size) * p * p
        k *= p
        u = np.empty(eta.shape)
        np.add(k * x, along * a, out=u[..., 0])
        np.add(k * z, along * b, out=u[..., 1])
        np.subtract(-kd, slope, out=u[..., 2])
        return -kd - G - self.log_whole(2), u, kd + second

    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array:
        return log_density(mean, cov, y) - self.log_whole(2)

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, None]:
        return moments(mean, cov), None

    def predictive_harmonics(
        self, mean: Array, cov: Array
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.complex128]]]:
        return harmonics(mean, cov)

    def expansion(self, y: Array) -> Array:
        return np.concatenate([super().expansion(y), np.zeros((*y.shape, 1))], axis=-1)

    # ---- in the space of y -------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return super().moment(self._theta(eta)[0])

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return super().spread(self._theta(eta)[0])

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return super().sample(self._theta(eta)[0], rng)
