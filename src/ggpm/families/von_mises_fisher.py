"""Von Mises–Fisher: directions in any dimension."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from scipy.special import betaln, gammaln

from ggpm.families.base import Array, Family
from ggpm.families.curvature import Marginals, RankOne
from ggpm.families.special import bessel_ratio, log_bessel, sum_of_others
from ggpm.families.support import Sphere, Support


class VonMisesFisher(Family):
    """Unit vectors with mean direction omega and concentration kappa: eta = kappa omega.

    ========  ==============================================================================================
    support   (n, d) rows of unit length, d >= 2
    T, b, h   y, log I_r(|theta|) - r log |theta| with order r = d/2 - 1, (2 pi)^(-d/2)
    a         1
    link      theta = eta (canonical), D = d
    U         c1 I - rho omega omega^T, omega = eta/kappa, c1 = A/kappa, rho = c1 - A', A = I_{r+1}/I_r
    ========  ==============================================================================================

    Densities are per unit of surface of the sphere; for d = 2 this is the von Mises density per radian.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([[0.0, 0.0, 1.0]])
    >>> VonMisesFisher().u(np.array([[0.0, 0.0, 2.0]]), y).round(3)  # 1 - A(2), towards y
    array([[0.   , 0.   , 0.463]])
    """

    latent_dim = 0

    @property
    def support(self) -> Support:
        return Sphere(columns=self.latent_dim or None)

    def resolve(self, y: Any) -> Self:
        out = super().resolve(y)
        out.latent_dim = np.shape(y)[1]
        return out

    def encode(self, y: Any) -> Array:
        out = self.support.validate(y)
        return out / np.linalg.norm(out, axis=-1, keepdims=True)

    @staticmethod
    def _polar(eta: Array) -> tuple[float, Array, Array]:
        """The order d/2 - 1 of the Bessel function, kappa, and omega, which is the first axis where kappa = 0."""
        d = eta.shape[-1]
        kappa = np.linalg.norm(eta, axis=-1)
        safe = np.where(kappa > 0, kappa, 1.0)[..., None]
        return d / 2 - 1, kappa, np.where(kappa[..., None] > 0, eta / safe, np.eye(d)[0])

    def natural(self, eta: Array) -> tuple[Array, Array]:
        """theta = eta and b = log of Gamma(d/2) (2/kappa)^nu I_nu(kappa), nu = d/2 - 1."""
        order, kappa, _ = self._polar(eta)
        return eta, log_bessel(order, kappa) + kappa

    def statistic(self, y: Array) -> tuple[Array, Array]:
        """y, and the logarithm of a uniform density."""
        return y, np.full(y.shape[:-1], self.log_prob(np.zeros(y.shape[-1]), np.eye(y.shape[-1])[0]))

    def part_log_prob(self, eta: Array, z: Array) -> Array:
        """Log densities of z = 2 artanh(y_j) at every node.

        With a = eta_j, b the length of the other entries and s = sqrt(1 - y_j²), integrating over the other entries of
        y leaves exp(a y_j) s^(d-3) I(b s) up to a factor, I the function of `log_bessel` of order (d - 3)/2.
        """
        d = eta.shape[-1]
        order, kappa, _ = self._polar(eta)
        y, s = np.tanh(0.5 * z).swapaxes(1, 2)[:, :, None], (1.0 / np.cosh(0.5 * z)).swapaxes(1, 2)[:, :, None]
        own = eta.swapaxes(1, 2)  # (n, d, S)
        others = np.sqrt(sum_of_others(eta**2)).swapaxes(1, 2)
        across = others[..., None] * s
        bessel = np.log1p(np.exp(-2.0 * across)) - math.log(2.0) if d == 2 else log_bessel((d - 3) / 2, across)
        log_volume = (d - 1) * np.log(s) - math.log(2.0) - betaln(0.5, (d - 1) / 2)  # dy/dz = s²/2
        # a y + b s - kappa is never positive: nothing of the size of kappa is left where the density is
        return (
            bessel
            + log_volume
            + ((own[..., None] * y + across) - kappa[:, None, :, None])
            - log_bessel(order, kappa)[:, None, :, None]
        )

    def log_prob(self, eta: Array, y: Array) -> Array:
        order, kappa, omega = self._polar(eta)
        log_area = math.log(2.0) + (order + 1.0) * math.log(math.pi) - float(gammaln(order + 1.0))
        # kappa (omega^T y - 1) = -kappa |y - omega|^2/2, and the normaliser without its factor e^kappa
        fit = -0.5 * kappa * np.sum((y - omega) ** 2, axis=-1)
        return fit - log_bessel(order, kappa) - log_area

    def u(self, eta: Array, y: Array) -> Array:
        order, kappa, omega = self._polar(eta)
        delta = y - omega
        across = delta - np.sum(delta * omega, axis=-1, keepdims=True) * omega
        # omega^T y - A = (1 - A) - |delta|^2/2 keeps its digits as A -> 1
        radial = bessel_ratio(order, kappa).one_minus_A - 0.5 * np.sum(delta**2, axis=-1)
        return radial[..., None] * omega + across

    def U(self, eta: Array, y: Array, expected: bool = False) -> RankOne:
        order, kappa, omega = self._polar(np.broadcast_to(eta, np.broadcast_shapes(eta.shape, y.shape)))
        ratio = bessel_ratio(order, kappa)
        gamma = np.repeat(ratio.c1[..., None], omega.shape[-1], axis=-1)
        return RankOne(
            gamma, omega, ratio.rho, nu=np.sqrt(ratio.rho / ratio.c1)[..., None] * omega, gap=ratio.slope_over_c1
        )

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        order, kappa, omega = self._polar(eta)
        ratio, along = bessel_ratio(order, kappa), V.dot(omega)
        v_rr = np.sum(omega * along, axis=-1)
        # <V, U> = A' V_rr + c1 V_tt; turning omega by a small t changes it by -2 rho t^T V omega. V_tt is the trace
        # over an orthonormal basis of the tangents (columns of a reflection that takes omega to an axis): tr V - V_rr
        # would lose its digits where the length of eta is far less certain than its direction.
        w = omega.copy()
        w[..., 0] += np.where(omega[..., 0] < 0, -1.0, 1.0)
        half = 0.5 * np.sum(w**2, axis=-1)
        v_tt, turning = np.zeros_like(v_rr), np.zeros_like(along)
        for k in range(1, eta.shape[-1]):
            tangent = -(w[..., k] / half)[..., None] * w
            tangent[..., k] += 1.0
            v_tt = v_tt + np.sum(tangent * V.dot(tangent), axis=-1)
            turning = turning + np.sum(tangent * along, axis=-1)[..., None] * tangent
        radial = ratio.A_second * v_rr + ratio.c1_slope * v_tt
        turning = 2.0 * ratio.c1_slope[..., None] * turning
        return radial[..., None] * omega + turning, np.zeros(0)

    def expansion(self, y: Array) -> Array:
        return y.copy()  # the observed direction, as for angles

    # ---- in the space of y -------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        order, kappa, omega = self._polar(eta)
        return bessel_ratio(order, kappa).A[..., None] * omega

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        """Covariance of the unit vector: the second derivative of b, which is U."""
        return self.U(eta, np.zeros(eta.shape[-1])).dense()

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        _, kappa, omega = self._polar(eta)
        d, shape = eta.shape[-1], kappa.shape
        flat, m = kappa.ravel(), d - 1.0
        # Wood 1994, in terms of lack = 1 - w, w the cosine to the mean direction
        b = m / (2.0 * flat + np.sqrt(4.0 * flat**2 + m * m))
        x0, x0_lack = (1.0 - b) / (1.0 + b), 2.0 * b / (1.0 + b)
        lack, todo = np.empty_like(flat), np.arange(flat.size)
        while todo.size:
            z = rng.beta(m / 2.0, m / 2.0, size=todo.size)
            trial = 2.0 * b[todo] * z / (1.0 - (1.0 - b[todo]) * z)
            # log of the acceptance ratio: kappa (w - x0) + (d - 1) log[(1 - x0 w)/(1 - x0^2)]
            grown = (x0_lack[todo] + x0[todo] * trial) / (x0_lack[todo] * (1.0 + x0[todo]))
            log_ratio = flat[todo] * (x0_lack[todo] - trial) + m * np.log(grown)
            accept = log_ratio >= -rng.standard_exponential(todo.size)
            lack[todo[accept]] = trial[accept]
            todo = todo[~accept]
        lack = lack.reshape(shape)[..., None]
        tangent = rng.standard_normal(eta.shape)
        tangent -= np.sum(tangent * omega, axis=-1, keepdims=True) * omega
        tangent /= np.linalg.norm(tangent, axis=-1, keepdims=True)
        out = (1.0 - lack) * omega + np.sqrt(lack * (2.0 - lack)) * tangent
        return out / np.linalg.norm(out, axis=-1, keepdims=True)

    def loss(self, y: Array, prediction: Array) -> Array:
        return 0.5 * np.sum((y - self.point(prediction)) ** 2, axis=-1)  # 1 - cos of the angle between them
