"""Every built-in family once more, as a user would write it: T, b, log h, a and the link in jax.numpy, nothing else.

The textbook forms, with the care that any user of floating point takes and no closed derivative anywhere.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, log_ndtr, logsumexp, multigammaln

from ggpm import families
from ggpm.families import ExponentialFamily
from ggpm.families import support as s

LOG_2PI = float(np.log(2 * np.pi))


class Twin(ExponentialFamily):
    """A user's family with at most one hyperparameter."""

    def __init__(self, phi=None, phi_bounds=(1e-5, 1e5)):
        self.phi = phi
        self.phi_bounds = phi_bounds


class Gaussian(Twin):
    support = s.Real()
    latent_dim = 0  # as many as y has columns

    def a(self, phi):
        return 1.0

    def link(self, eta, phi):  # phi may be one variance or one per output: scale inside
        return jnp.atleast_1d(eta) / phi

    def log_partition(self, theta, phi):
        return 0.5 * jnp.sum(theta**2 * phi)

    def log_base_measure(self, y, phi):
        return jnp.sum(-0.5 * (y**2 / phi + jnp.log(phi) + LOG_2PI))


class MultivariateGaussian(ExponentialFamily):
    support = s.Real()

    def __init__(self, phi=None, phi_bounds=(1e-5, 1e5)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    latent_dim = 0
    log_hyper = families.MultivariateGaussian.log_hyper
    with_log_hyper = families.MultivariateGaussian.with_log_hyper
    _L = families.MultivariateGaussian._L
    _sizes = None

    @property
    def _units(self):
        return np.ones(1) if self._sizes is None else self._sizes

    def phi_of(self, log_hyper):
        d = self.latent_dim
        below = jnp.zeros((d, d)).at[jnp.tril_indices(d, -1)].set(log_hyper[d:]) * self._units[:, None]
        L = below + jnp.diag(jnp.exp(log_hyper[:d]))
        return L @ L.T

    def link(self, eta, phi):
        return jnp.linalg.solve(phi, eta)

    def log_partition(self, theta, phi):
        return 0.5 * theta @ phi @ theta

    def log_base_measure(self, y, phi):
        return -0.5 * (y @ jnp.linalg.solve(phi, y) + jnp.linalg.slogdet(phi)[1] + y.size * LOG_2PI)


class Bernoulli(Twin):
    support = s.Codes(n_codes=2)

    def log_partition(self, theta, phi):
        return jax.nn.softplus(theta)

    def log_base_measure(self, y, phi):
        return 0.0


class Binomial(Bernoulli):
    support = s.CountVectors(columns=2)
    countable = True

    def T(self, y):
        return y[0] / jnp.sum(y)

    def trials(self, y):
        return jnp.sum(y)

    def log_base_measure(self, y, phi):
        return gammaln(jnp.sum(y) + 1) - jnp.sum(gammaln(y + 1))


class Poisson(Twin):
    support = s.Counts()
    mean_of = staticmethod(jnp.exp)

    def link(self, eta, phi):
        return jnp.log(self.mean_of(eta))

    def log_partition(self, theta, phi):
        return jnp.exp(theta)

    def log_base_measure(self, y, phi):
        return -gammaln(y + 1)


class PoissonSoftplus(Poisson):
    mean_of = staticmethod(jax.nn.softplus)


class NegativeBinomial(Twin):
    support = s.Counts()

    def link(self, eta, phi):
        return -jnp.log1p(jnp.exp(-eta) / phi)  # log(phi mu/(1 + phi mu)) = log sigmoid(eta + log phi)

    def log_partition(self, theta, phi):
        return -jnp.log(-jnp.expm1(theta)) / phi

    def log_base_measure(self, y, phi):
        return gammaln(y + 1 / phi) - gammaln(y + 1) - gammaln(1 / phi)


class Gamma(Twin):
    support = s.Positive()
    mean_of = staticmethod(jnp.exp)

    def a(self, phi):
        return phi

    def link(self, eta, phi):
        return -1 / self.mean_of(eta)

    def log_partition(self, theta, phi):
        return -jnp.log(-theta)

    def log_base_measure(self, y, phi):
        return (1 / phi - 1) * jnp.log(y) - jnp.log(phi) / phi - gammaln(1 / phi)


class GammaSoftplus(Gamma):
    mean_of = staticmethod(jax.nn.softplus)


class InverseGaussian(Twin):
    support = s.Positive()

    def a(self, phi):
        return phi

    def link(self, eta, phi):
        return -0.5 * jnp.exp(-2 * eta)

    def log_partition(self, theta, phi):
        return -jnp.sqrt(-2 * theta)

    def log_base_measure(self, y, phi):
        return -0.5 * (LOG_2PI + jnp.log(phi) + 3 * jnp.log(y) + 1 / (phi * y))


class Beta(Twin):
    support = s.UnitInterval()

    def T(self, y):
        return jnp.stack([jnp.log(y), jnp.log1p(-y)])

    def link(self, eta, phi):
        return phi * jnp.stack([jax.nn.sigmoid(eta), jax.nn.sigmoid(-eta)])

    def log_partition(self, theta, phi):
        return jnp.sum(gammaln(theta)) - gammaln(jnp.sum(theta))

    def log_base_measure(self, y, phi):
        return -jnp.log(y) - jnp.log1p(-y)


class Multinomial(Twin):
    support = s.CountVectors()
    latent_dim = 0
    countable = True

    def T(self, y):
        return y / jnp.sum(y)

    def trials(self, y):
        return jnp.sum(y)

    def log_partition(self, theta, phi):
        return logsumexp(theta)

    def log_base_measure(self, y, phi):
        return gammaln(jnp.sum(y) + 1) - jnp.sum(gammaln(y + 1))


class Categorical(Multinomial):
    """Codes, encoded as indicators by the built-in's own methods."""

    latent_dim = 4
    support = s.Codes(n_codes=4)
    countable = False
    _row_ndim = 1

    def encode(self, y):
        return np.eye(self.latent_dim)[np.asarray(y, dtype=int)]


class Ordinal(ExponentialFamily):
    """One latent to the J log-probabilities of the levels."""

    support = s.Codes(n_codes=4)
    finite = True
    log_hyper = families.Ordinal.log_hyper
    with_log_hyper = families.Ordinal.with_log_hyper

    def __init__(self, phi=None, phi_bounds=(1e-4, 1e4)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    def phi_of(self, log_hyper):
        gaps = jnp.exp(log_hyper[1:])
        return log_hyper[0] + jnp.concatenate([jnp.zeros(1), jnp.cumsum(gaps)])

    def T(self, y):
        return (jnp.arange(4) == y).astype(float)

    def link(self, eta, phi):
        # log[Phi(hi) - Phi(lo)], mirrored to the side on which both tails are small
        lo, hi = phi[:-1] - eta, phi[1:] - eta
        lo, hi = jnp.where(lo + hi > 0, -hi, lo), jnp.where(lo + hi > 0, -lo, hi)
        inner = log_ndtr(hi) + jnp.log(-jnp.expm1(log_ndtr(lo) - log_ndtr(hi)))
        return jnp.concatenate([log_ndtr(phi[:1] - eta), inner, log_ndtr(eta - phi[-1:])])

    def log_partition(self, theta, phi):
        return logsumexp(theta)

    def log_base_measure(self, y, phi):
        return 0.0


T_NODES, T_WEIGHTS = np.polynomial.legendre.leggauss(400)


class VonMisesFisher(Twin):
    """b by quadrature over the angle t to the mean direction: nothing of the size of kappa cancels."""

    support = s.Sphere()
    latent_dim = 0

    def log_partition(self, theta, phi):
        kappa = jnp.sqrt(jnp.sum(theta**2))
        d = theta.shape[0]
        # kappa (cos t - 1) = -2 kappa sin²(t/2), t = pi x³ on (0, 1): dense where kappa is large
        x, w = 0.5 + 0.5 * T_NODES, 0.5 * T_WEIGHTS
        t, dt = np.pi * x**3, 3 * np.pi * x**2
        log_f = -2 * kappa * np.sin(t / 2) ** 2 + np.log(w * dt * np.sin(t) ** (d - 2))
        log_area = np.log(2.0) + 0.5 * (d - 1) * np.log(np.pi) - gammaln(0.5 * (d - 1))
        return kappa + logsumexp(log_f) + log_area

    def log_base_measure(self, y, phi):
        return 0.0


class VonMises(VonMisesFisher):
    support = s.Circle()
    latent_dim = 2

    def T(self, y):
        return jnp.stack([jnp.cos(y), jnp.sin(y)])


class Dirichlet(Twin):
    support = s.Simplex()
    latent_dim = 0
    alpha = staticmethod(jax.nn.softplus)

    def T(self, y):
        return jnp.log(y)

    def link(self, eta, phi):
        return self.alpha(eta)

    def log_partition(self, theta, phi):
        return jnp.sum(gammaln(theta)) - gammaln(jnp.sum(theta))

    def log_base_measure(self, y, phi):
        return -jnp.sum(jnp.log(y))


class DirichletExp(Dirichlet):
    alpha = staticmethod(jnp.exp)


class Wishart(ExponentialFamily):
    support = s.SPD()
    latent_dim = 0

    def __init__(self, phi=None, phi_bounds=(1e-2, 1e5)):
        self.phi = phi
        self.phi_bounds = phi_bounds

    _p = None
    _excess = families.Wishart._excess
    log_hyper = families.Wishart.log_hyper
    with_log_hyper = families.Wishart.with_log_hyper

    def resolve(self, y):
        out = super().resolve(y)
        out._p, out.latent_dim = np.shape(y)[1], np.shape(y)[1] * (np.shape(y)[1] + 1) // 2
        return out

    def phi_of(self, log_hyper):
        return jnp.exp(log_hyper) + self._p - 1

    def link(self, eta, phi):
        p = self._p
        B = jnp.eye(p).at[jnp.tril_indices(p, -1)].set(-eta[p:])
        return -0.5 * phi * (B * jnp.exp(-eta[:p])) @ B.T

    def log_partition(self, theta, phi):
        return -0.5 * phi * jnp.linalg.slogdet(-2 * theta)[1]

    def log_base_measure(self, y, phi):
        p = y.shape[0]
        base = -0.5 * phi * p * np.log(2.0) - multigammaln(0.5 * phi, p)
        return 0.5 * (phi - p - 1) * jnp.linalg.slogdet(y)[1] + base


# the built-in's name in cases.FAMILIES -> its twin
TWINS = {
    "gaussian": Gaussian,
    "gaussian, 3 outputs": Gaussian,
    "multivariate_gaussian": MultivariateGaussian,
    "bernoulli": Bernoulli,
    "binomial": Binomial,
    "poisson": Poisson,
    "poisson, softplus": PoissonSoftplus,
    "negative_binomial": NegativeBinomial,
    "gamma": Gamma,
    "gamma, softplus": GammaSoftplus,
    "inverse_gaussian": InverseGaussian,
    "beta": Beta,
    "categorical": Categorical,
    "multinomial": Multinomial,
    "ordinal": Ordinal,
    "von_mises": VonMises,
    "von_mises_fisher": VonMisesFisher,
    "dirichlet": Dirichlet,
    "dirichlet, exp": DirichletExp,
    "wishart": Wishart,
}


def twin_of(name, family, y):
    """The twin with the built-in's hyperparameters, bound to the same data."""
    twin = TWINS[name]()
    twin.phi = family.phi
    twin.phi_bounds = family.phi_bounds
    if name == "multivariate_gaussian":
        twin._sizes = family._sizes  # units of its covariances
    return twin.resolve(y)


# ---- densities of families that are not written by T, b and h: log p of one row (eta, encoded y, log_hyper) ---------
def logistic_normal(eta, z, h):
    D = eta.shape[0]
    L = jnp.zeros((D, D)).at[jnp.tril_indices(D, -1)].set(h[D:]) + jnp.diag(jnp.exp(h[:D]))
    basis = helmert(D + 1)
    log_y = jax.nn.log_softmax(basis @ z)
    residual = jax.scipy.linalg.solve_triangular(L, z - eta, lower=True)
    return -0.5 * residual @ residual - jnp.sum(h[:D]) - 0.5 * D * LOG_2PI - jnp.sum(log_y) - 0.5 * np.log(D + 1.0)


def helmert(d):
    """Orthonormal contrasts by Gram and Schmidt, one part after the other."""
    columns = []
    for i in range(1, d):
        column = np.r_[np.full(i, 1.0 / i), -1.0, np.zeros(d - i - 1)]
        columns.append(column / np.linalg.norm(column))
    return np.stack(columns, axis=1)


def dirichlet_multinomial(eta, y, h):
    phi, N = jnp.exp(h[0]), jnp.sum(y)
    alpha = phi * jax.nn.softmax(eta)
    counts = gammaln(N + 1) - jnp.sum(gammaln(y + 1))
    return counts + jnp.sum(gammaln(y + alpha) - gammaln(alpha)) - gammaln(N + phi) + gammaln(phi)


def beta_binomial(eta, y, h):
    return dirichlet_multinomial(jnp.stack([eta[0], 0.0]), y, h)


def gaussian_mean_scale(eta, y, h):
    return -0.5 * ((y - eta[0]) * jnp.exp(-eta[1])) ** 2 - eta[1] - 0.5 * LOG_2PI


def student_t(eta, y, h):
    nu, z = jnp.exp(h[0]), (y - eta[0]) * jnp.exp(-eta[1])
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * np.pi)
    return constant - eta[1] - (nu + 1) / 2 * jnp.log1p(z**2 / nu)


def gamma_mean_shape(eta, y, h):
    k, rate = jnp.exp(eta[1]), jnp.exp(eta[1] - eta[0])
    return k * jnp.log(rate) + (k - 1) * jnp.log(y) - rate * y - gammaln(k)


def log_normal(eta, y, h):
    return -0.5 * (jnp.log(y) - eta[0]) ** 2 * jnp.exp(-h[0]) - 0.5 * h[0] - 0.5 * LOG_2PI - jnp.log(y)


def weibull(eta, y, h):
    k, ratio = jnp.exp(h[0]), y * jnp.exp(-eta[0])
    return h[0] - eta[0] + (k - 1) * jnp.log(ratio) - ratio**k


def beta_mean_precision(eta, y, h):
    a, b = jnp.exp(eta[1]) * jax.nn.sigmoid(eta[0]), jnp.exp(eta[1]) * jax.nn.sigmoid(-eta[0])
    return gammaln(a + b) - gammaln(a) - gammaln(b) + (a - 1) * jnp.log(y) + (b - 1) * jnp.log1p(-y)


def negative_binomial_mean_dispersion(eta, y, h):
    r, mu = jnp.exp(-eta[1]), jnp.exp(eta[0])
    counts = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
    return counts + r * (jnp.log(r) - jnp.log(r + mu)) + y * (eta[0] - jnp.log(r + mu))


def von_mises_direction_concentration(eta, y, h):
    theta = jnp.exp(eta[2]) * eta[:2] / jnp.sqrt(1 + jnp.sum(eta[:2] ** 2))
    # log I_0 by the trapezoidal rule on the circle, exact to rounding for the concentrations here
    angles = np.arange(256) * (2 * np.pi / 256)
    log_norm = logsumexp(theta[0] * np.cos(angles) + theta[1] * np.sin(angles)) + np.log(2 * np.pi / 256)
    return theta[0] * jnp.cos(y) + theta[1] * jnp.sin(y) - log_norm


# the built-in's name in cases.FAMILIES -> its log-density
DENSITIES = {
    "gaussian_mean_scale": gaussian_mean_scale,
    "student_t": student_t,
    "gamma_mean_shape": gamma_mean_shape,
    "log_normal": log_normal,
    "weibull": weibull,
    "beta_mean_precision": beta_mean_precision,
    "negative_binomial_mean_dispersion": negative_binomial_mean_dispersion,
    "von_mises_direction_concentration": von_mises_direction_concentration,
    "beta_binomial": beta_binomial,
    "dirichlet_multinomial": dirichlet_multinomial,
    "logistic_normal": logistic_normal,
}


def derivatives(density, eta, y, h, V):
    """log p, u, U, derivatives of <V, U> in eta and h, and those of log p and u in h, for all rows, by JAX."""

    def U(e, y, h):
        return -jax.hessian(density)(e, y, h)

    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        rows = (jnp.asarray(eta), jnp.asarray(y))

        def each(function, *more):
            axes = (0, 0, *(0 for _ in more), None)
            return np.asarray(jax.vmap(function, in_axes=axes)(*rows, *more, jnp.asarray(h)))

        def contracted(e, y, v, h):
            return jnp.sum(v * U(e, y, h))

        return (
            each(density),
            each(jax.grad(density)),
            each(U),
            each(jax.grad(contracted), jnp.asarray(V)),
            each(jax.grad(contracted, argnums=3), jnp.asarray(V)).sum(axis=0),
            each(jax.grad(density, argnums=2)),
            each(jax.jacfwd(jax.grad(density), argnums=2)),
        )
