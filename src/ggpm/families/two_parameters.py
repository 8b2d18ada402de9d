"""Families with two parameters, each a function of the inputs: `TwoParameters` and what makes one of them short.

The latents are a, a location or the mean in a suitable scale, and b, the logarithm of a scale, shape, precision or
dispersion. log p is not concave in both; the expected curvature, block-diagonal where the two are orthogonal, keeps
Newton's steps safe.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ggpm.data.rows import batches
from ggpm.families.base import Array, Family, ScalarFamily
from ggpm.families.curvature import Blocks, Diagonal, Marginals
from ggpm.families.special.lines import log_sum
from ggpm.families.special.stable import HALF_LOG_2PI

# Of predictive densities. The trapezoidal rule in b: its first spacing, at most so much in standard deviations and in b
# itself (narrow latents, wide ones), halved for rows that are not settled; and its radius in standard deviations, for
# y of which both latents' means know and for others.
OUTER_STEP, OUTER_STEP_OF_B, OUTER_REACH, OUTER_REACH_OF_USUAL = 0.75, (0.42, 0.3), 8.0, 6.2
# Standard deviation of b up to which the second holds, and most nodes on each side: a factor of exp(128) between scales
# is more than anything knows.
WIDEST, OUTER_MOST = 128.0, 4096
USUAL, NARROW = 4.0, 0.8  # standard deviations of y from the mean, and of b, up to which y is usual
# In a: the first spacing, stretched like 3 sinh(t/3) from the peak, how far beyond peak and mean nodes go, in standard
# deviations, most Newton steps to find the peak, and how much closer nodes are where the peak is wide, at most.
INNER_STEP, INNER_STRETCH, INNER_REACH, INNER_STEPS = 0.7, 3.0, 7.0, 20
INNER_BENDS, INNER_FINEST = 1.2, 8.0
# The error of either falls exponentially with the spacing: a rule that differs by so much from the one of twice the
# spacing is itself off by about the square of that. What is below the largest by a factor of exp(-16) does not count.
SETTLED, NOTHING, HALVINGS = 4e-4, 16.0, 6
NODES_STEP = 1.25  # integrals whose numbers of nodes differ by less than this factor are summed together
ARRIVED = 0.01  # twice what a Newton step may promise at the peak, which only centres the nodes
STEEPEST = 300.0  # b counts as -300 beyond: the square of exp(300) is still a float, and no data are so precise


class Information(NamedTuple):
    """Expected curvature: entries (aa, ab, bb), each (...), their slopes in a and in b, and in phi (..., p)."""

    entries: tuple[Array, Array | None, Array]
    slopes_a: tuple[Array, Array | None, Array]
    slopes_b: tuple[Array, Array | None, Array]
    slopes_phi: tuple[Array, Array | None, Array] | None = None


class TwoParameters(Family):
    """A family with two latents (a, b), written by the partial derivatives of its log-density.

    A subclass gives ``support``, `log_prob`, `first`, `second`, `third`, `information`, `moment`, `spread`, `sample`,
    and with hyperparameters `phi_partials`. Where ``ab`` of the information is None the parameters are orthogonal.
    """

    latent_dim = 2
    several_modes = True
    parameters: ClassVar[tuple[str, str]] = ("mean", "scale")
    """Names of the parameters that the two latents stand for."""
    latent_variance = (1.0, 1.0)

    @abstractmethod
    def first(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """Derivatives of log p in a and b."""

    @abstractmethod
    def second(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """Derivatives aa, ab and bb."""

    @abstractmethod
    def third(self, eta: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        """Derivatives aaa, aab, abb and bbb."""

    @abstractmethod
    def information(self, eta: Array, y: Array) -> Information:
        """Expectation of minus the second derivatives, with its slopes."""

    def likeliest(self, y: Array) -> Array:
        """About the a that makes y most likely where b is such that y says much."""
        return self.expansion(y)[..., 0]

    def parameter(self, name: str, eta: Array) -> Array:
        return self.moment(eta) if name == self.parameters[0] else np.exp(eta[..., 1])

    def phi_partials(self, eta: Array, y: Array) -> tuple[Array, tuple[Array, Array], tuple[Array, Array, Array]]:
        """Derivatives in phi of log p, of `first` and of `second`, (..., p) each."""
        none = np.zeros((*np.broadcast_shapes(eta.shape[:-1], self._rows(y)), self.log_hyper.size))
        return none, (none, none), (none, none, none)

    def _rows(self, y: Array) -> tuple[int, ...]:
        """Leading shape of an encoded y."""
        return y.shape[: y.ndim - self.support.row_ndim]

    # ---- what inference asks for ---------------------------------------------------------------------------
    def u(self, eta: Array, y: Array) -> Array:
        return np.stack(self.first(eta, y), axis=-1)

    def U(self, eta: Array, y: Array, expected: bool = False) -> Blocks | Diagonal:
        if not expected:
            return Blocks(-_matrix(*self.second(eta, y)))
        aa, ab, bb = self.information(eta, y).entries
        return Diagonal(np.stack([aa, bb], axis=-1)) if ab is None else Blocks(_matrix(aa, ab, bb))

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        if expected:
            found = self.information(eta, y)
            entries, in_a, in_b, in_phi = found.entries, found.slopes_a, found.slopes_b, found.slopes_phi
        else:
            aaa, aab, abb, bbb = (-t for t in self.third(eta, y))
            entries, in_a, in_b = self.second(eta, y), (aaa, aab, abb), (aab, abb, bbb)
            in_phi = tuple(-s for s in self.phi_partials(eta, y)[2])  # type: ignore[assignment]
        diag = V.diag
        weights = [diag[..., 0], None if entries[1] is None else 2.0 * V.dense()[..., 0, 1], diag[..., 1]]

        def pulled(slopes: tuple[Array, Array | None, Array]) -> Array:
            return np.sum([w * s for w, s in zip(weights, slopes) if w is not None and s is not None], axis=0)

        d_phi = np.zeros(self.log_hyper.size)
        if self.log_hyper.size and in_phi is not None:
            for w, s in zip(weights, in_phi):
                if w is not None and s is not None:
                    d_phi = d_phi + np.tensordot(w, s, axes=w.ndim)
        return np.stack([pulled(in_a), pulled(in_b)], axis=-1), d_phi

    # ---- predictive density ----------------------------------------------------------------------------------
    def predictive_log_prob(self, mean: Array, cov: Array, y: Array) -> Array:
        """log E[p(y)] over eta ~ N(mean, cov), (m,): a sum over b, and for each b an integral over a.

        The integrand is a mixture over scales, far from a Gaussian about its mode: a rule centred there misses up to
        several per cent of it.
        """
        sd = np.sqrt(np.maximum(cov[:, 1, 1], 0.0))
        reach = np.where(self._usual(mean, cov, y) & (sd < NARROW), OUTER_REACH_OF_USUAL, OUTER_REACH)
        # nodes on each side of the mean
        of_b = np.where(sd < NARROW, *OUTER_STEP_OF_B)
        half = _rounded(reach * np.hypot(1.0 / OUTER_STEP, np.minimum(sd, WIDEST) / of_b))
        total, rows = np.full(len(mean), -np.inf), np.arange(len(mean))  # total: log of the sum over nodes so far
        for halving in range(HALVINGS + 1):
            left = [rows[:0]]
            for size, far in np.unique(np.stack([half[rows], reach[rows]]), axis=1).T:
                group = rows[(half[rows] == size) & (reach[rows] == far)]
                e = far / size * np.arange(-size, size + 1)[:, None]
                e = e[1::2] if halving else e  # the others were there before
                for part in batches(group.size, 4 * len(e)):
                    some = group[part]
                    values = self._given_deviation(e, mean[some], cov[some], sd[some], y[some]) - 0.5 * e * e
                    fine = np.logaddexp(total[some], _log_sum(values))
                    coarse = total[some] if halving else _log_sum(values[int(size) % 2 :: 2])
                    total[some] = fine
                    left.append(some[_apart(coarse, fine) > SETTLED])
            rows = np.sort(np.concatenate(left))
            rows = rows[half[rows] < OUTER_MOST]
            if rows.size == 0:
                break
            half[rows] *= 2
        return total + np.log(reach / half) - HALF_LOG_2PI

    def _usual(self, mean: Array, cov: Array, y: Array) -> NDArray[np.bool_]:
        """Which y lie where the means of both latents let one expect them."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            width = np.maximum(cov[:, 0, 0], 0.0) + 1.0 / self.information(mean, y).entries[0]
            return np.asarray(np.abs(self.likeliest(y) - mean[:, 0]) < USUAL * np.sqrt(width))

    def _given_deviation(self, e: Array, mean: Array, cov: Array, sd: Array, y: Array) -> Array:
        """log E[p(y)] given that b is e (nodes, 1) standard deviations from its mean, (nodes, m)."""
        b = mean[:, 1] + sd * e
        slope = np.divide(cov[:, 0, 1], sd**2, out=np.zeros_like(sd), where=sd > 0)
        centre = mean[:, 0] + slope * (b - mean[:, 1])
        variance = np.maximum(cov[:, 0, 0] - slope * cov[:, 0, 1], 0.0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            value = self.log_prob_given_b(centre, np.broadcast_to(variance, b.shape), b, y, -0.5 * e * e)
        return np.where(np.isfinite(value), value, -np.inf)

    def prepared(self, b: Array, y: Array) -> tuple[Array, ...]:
        """What `along` takes of b and y, (n,) each."""
        return b, y

    def along(self, a: Array, *prepared: Array) -> Array:
        """log p at a (..., n), for the b and y that were prepared."""
        b, y = prepared
        return self.log_prob(np.stack([a, np.broadcast_to(b, a.shape)], axis=-1), y)

    def bent(self, a: Array, b: Array, y: Array) -> tuple[Array, Array]:
        """Slope of log p in a and a curvature that is not negative, (n,): they find the peak."""
        eta = np.stack([a, b], axis=-1)
        curvature = -self.second(eta, y)[0]
        if np.any(curvature <= 0):
            curvature = np.where(curvature > 0, curvature, self.information(eta, y).entries[0])
        return self.first(eta, y)[0], curvature

    def log_prob_given_b(self, centre: Array, variance: Array, b: Array, y: Array, log_weight: Array) -> Array:
        """log E[p(y)] over a ~ N(centre, variance) at given b, all (nodes, m), y (m,).

        Nodes are centred and scaled at the mode in a, and stretched to reach the tails. Those b that do not count, with
        weights (nodes, 1), are left at Laplace's approximation.
        """
        shape, m = centre.shape, np.tile(y, len(centre))
        centre, b, variance = (x.ravel() for x in np.broadcast_arrays(centre, b, variance))
        sd, prepared = np.sqrt(variance), self.prepared(b, m)
        e, value, H = self._peak(centre, sd, b, m, prepared)
        width = 1.0 / np.sqrt(H)
        reach = np.arcsinh((INNER_REACH + np.abs(e)) / (INNER_STRETCH * width))
        # links bend on the scale of one
        finer = np.clip(INNER_BENDS * sd * width, 1.0, INNER_FINEST)
        out, half = value + np.log(width), _rounded(INNER_STRETCH / INNER_STEP * finer * reach)
        counts = out.reshape(shape) + log_weight
        todo = np.flatnonzero(counts > counts.max(axis=0) - NOTHING)
        for _ in range(HALVINGS + 1):
            left = [todo[:0]]
            for size in np.unique(half[todo]):
                group, nodes = todo[half[todo] == size], np.arange(-size, size + 1)
                tau, both = nodes[:, None] / size, np.stack([np.ones(len(nodes)), nodes % 2 == 0])
                for part in batches(len(group), 8 * size):
                    some = group[part]
                    grows = np.exp(reach[some] * tau)  # exp(t): half of it less or plus its inverse is sinh or cosh
                    falls = grows[::-1]
                    at = (0.5 * INNER_STRETCH * width[some]) * (grows - falls) + e[some]
                    values = self.along(centre[some] + sd[some] * at, *(x[some] for x in prepared)) - 0.5 * at * at
                    values[~np.isfinite(values)] = -np.inf
                    values += np.log(0.5 * (grows + falls))
                    fine, coarse = log_sum(values, both)  # of all nodes, and of every second
                    out[some] = fine + np.log(INNER_STRETCH * width[some] * reach[some] / size) - HALF_LOG_2PI
                    left.append(some[_apart(coarse, fine) > SETTLED])
            todo = np.concatenate(left)
            if not len(todo):
                break
            half[todo] *= 2
        return out.reshape(shape)

    def _peak(
        self, centre: Array, sd: Array, b: Array, y: Array, prepared: tuple[Array, ...]
    ) -> tuple[Array, Array, Array]:
        """Where log p - e²/2 is largest at a = centre + sd e, its value and curvature there, (n,) each."""

        def joint(e: Array, at: NDArray[np.intp] | slice = np.s_[:]) -> Array:
            value = self.along(centre[at] + sd[at] * e, *(x[at] for x in prepared)) - 0.5 * e * e
            return np.where(np.isfinite(value), value, -np.inf)

        # a likelihood that is narrow, with heavy tails, is not felt from afar
        own = np.divide(self.likeliest(y) - centre, sd, out=np.zeros(len(sd)), where=sd > 0)
        e, value, H = np.zeros(len(sd)), joint(np.zeros(len(sd))), np.ones(len(sd))
        better = (there := joint(own)) > value
        e, value = np.where(better, own, e), np.where(better, there, value)
        step, rows = np.ones(len(sd)), np.arange(len(sd))
        for _ in range(INNER_STEPS):
            slope, curvature = self.bent(centre[rows] + sd[rows] * e[rows], b[rows], y[rows])
            H[rows] = 1.0 + np.where(np.isfinite(curvature), sd[rows] ** 2 * curvature, 0.0)
            gradient = sd[rows] * slope - e[rows]
            move = np.where(np.isfinite(gradient), gradient, 0.0) / H[rows]
            left = move * move * H[rows] > ARRIVED
            rows, move = rows[left], move[left]
            if not len(rows):
                break
            trial = e[rows] + step[rows] * move
            new = joint(trial, rows)
            up = new >= value[rows]
            e[rows[up]], value[rows[up]] = trial[up], new[up]
            step[rows] = np.where(up, np.minimum(1.0, 2.0 * step[rows]), 0.25 * step[rows])
        return e, value, H

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        return self.phi_partials(eta, y)[0]

    def u_phi(self, eta: Array, y: Array) -> Array:
        return np.stack(self.phi_partials(eta, y)[1], axis=-2)


def _rounded(count: Array) -> NDArray[np.intp]:
    """Numbers of nodes, few different ones."""
    return np.ceil(NODES_STEP ** np.ceil(np.log(np.maximum(count, 4.0)) / np.log(NODES_STEP))).astype(np.intp)


def _log_sum(values: Array) -> Array:
    return log_sum(values, np.ones(len(values)))


def _apart(coarse: Array, fine: Array) -> Array:
    """Relative difference of a trapezoidal sum (logarithm) and that of every second of its nodes."""
    with np.errstate(invalid="ignore"):  # what cannot be has no density anywhere
        return np.nan_to_num(np.abs(np.expm1(coarse + np.log(2.0) - fine)))


def _matrix(aa: Array, ab: Array, bb: Array) -> Array:
    aa, ab, bb = np.broadcast_arrays(aa, ab, bb)
    return np.stack([np.stack([aa, ab], axis=-1), np.stack([ab, bb], axis=-1)], axis=-2)


class LocationScale(TwoParameters):
    """log p = h(z) - b with z = (t - a) exp(-b), t the observation or its logarithm.

    A subclass gives `profile`, h with three derivatives in z, and `profile_information`.
    """

    def coordinate(self, y: Array) -> tuple[Array, Array | float]:
        """t, and the logarithm of its slope in y."""
        return y, 0.0

    def likeliest(self, y: Array) -> Array:
        return self.coordinate(y)[0]

    @abstractmethod
    def profile(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """h and its first three derivatives."""

    @abstractmethod
    def profile_information(self) -> tuple[float, float | None, float]:
        """Information about (a, b) at exp(b) = 1; None between them where h is symmetric."""

    def normal_scales(self) -> tuple[Array, Array] | None:
        """Logarithms (K,) of the standard deviations of normals, and weights, whose mixture has the density exp(h).

        None if it is no such mixture in t = y.
        """
        return None

    def profile_phi(self, z: Array) -> tuple[Array, Array, Array]:
        """Derivatives in log phi of h and of its first two derivatives."""
        raise NotImplementedError

    def profile_information_phi(self) -> tuple[float, float]:
        """Derivatives in log phi of the information about a and about b."""
        raise NotImplementedError

    def _z(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """z and exp(-b)."""
        r = np.exp(np.minimum(-eta[..., 1], STEEPEST))
        return (self.coordinate(y)[0] - eta[..., 0]) * r, r

    def log_prob(self, eta: Array, y: Array) -> Array:
        return self.profile(self._z(eta, y)[0])[0] - np.maximum(eta[..., 1], -STEEPEST) + self.coordinate(y)[1]

    def first(self, eta: Array, y: Array) -> tuple[Array, Array]:
        (z, r), moves = self._z(eta, y), eta[..., 1] > -STEEPEST
        h1 = self.profile(z)[1]
        return -r * h1, moves * (-z * h1 - 1.0)

    def second(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        (z, r), moves = self._z(eta, y), eta[..., 1] > -STEEPEST
        _, h1, h2, _ = self.profile(z)
        bent = moves * (h1 + z * h2)
        return r * r * h2, r * bent, z * bent

    def third(self, eta: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        (z, r), moves = self._z(eta, y), eta[..., 1] > -STEEPEST
        _, h1, h2, h3 = self.profile(z)
        bent = moves * -(h1 + 3.0 * z * h2 + z * z * h3)
        return -r * r * (r * h3), moves * (-r * r * (2.0 * h2 + z * h3)), r * bent, z * bent

    def information(self, eta: Array, y: Array) -> Information:
        z, r = self._z(eta, y)
        aa, ab, bb = self.profile_information()
        r, zero = r + 0.0 * z, 0.0 * z
        cross = None if ab is None else ab * r
        in_phi = None
        if self.log_hyper.size:
            aa_phi, bb_phi = self.profile_information_phi()
            in_phi = ((aa_phi * r * r)[..., None], None, (bb_phi + zero)[..., None])
        return Information(
            (aa * r * r, cross, bb + zero),
            (zero, None if cross is None else zero, zero),
            (-2.0 * aa * r * r, None if cross is None else -cross, zero),
            in_phi,
        )

    def phi_partials(self, eta: Array, y: Array) -> tuple[Array, tuple[Array, Array], tuple[Array, Array, Array]]:
        if not self.log_hyper.size:
            return super().phi_partials(eta, y)
        z, r = self._z(eta, y)
        h, h1, h2 = self.profile_phi(z)
        bent = h1 + z * h2
        pair, triple = (-r * h1, -z * h1), (r * r * h2, r * bent, z * bent)
        a, b = (v[..., None] for v in pair)
        aa, ab, bb = (v[..., None] for v in triple)
        return h[..., None], (a, b), (aa, ab, bb)


class WithDispersion(TwoParameters):
    """A scalar family with log link whose phi has become a latent: phi = exp(b), or exp(-b) where ``sign`` is -1.

    What the scalar family knows (derivatives in the mean, and their first derivatives in log phi) is used as it is,
    with an array in the place of phi. A subclass gives `curved` and `information_b`.
    """

    sign: ClassVar[float] = 1.0

    @abstractmethod
    def at(self, b: Array) -> ScalarFamily:
        """The scalar family with an array as its phi."""

    @abstractmethod
    def curved(self, a: Array, b: Array, y: Array) -> tuple[Array, Array, Array]:
        """Derivatives bb, abb and bbb of log p."""

    @abstractmethod
    def information_b(self, a: Array, b: Array, y: Array) -> Information:
        """Information of which ``aa`` is not used, nor its slopes."""

    def log_prob(self, eta: Array, y: Array) -> Array:
        return self.at(eta[..., 1]).log_prob_xi(eta[..., 0], y)

    def first(self, eta: Array, y: Array) -> tuple[Array, Array]:
        family = self.at(eta[..., 1])
        (l1, _, _), (lp, _, _) = family.all_derivatives(eta[..., 0], y)
        return l1, self.sign * lp[..., 0]

    def second(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        (_, l2, _), (_, l1_phi, _) = self.at(eta[..., 1]).all_derivatives(eta[..., 0], y)
        return l2, self.sign * l1_phi[..., 0], self.curved(eta[..., 0], eta[..., 1], y)[0]

    def third(self, eta: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        (_, _, l3), (_, _, l2_phi) = self.at(eta[..., 1]).all_derivatives(eta[..., 0], y)
        _, abb, bbb = self.curved(eta[..., 0], eta[..., 1], y)
        return l3, self.sign * l2_phi[..., 0], abb, bbb

    def information(self, eta: Array, y: Array) -> Information:
        a, b = eta[..., 0], eta[..., 1]
        aa, aa_a, aa_phi = self.at(b).information(a, y)
        rest = self.information_b(a, b, y)
        return Information(
            (aa, *rest.entries[1:]), (aa_a, *rest.slopes_a[1:]), (self.sign * aa_phi[..., 0], *rest.slopes_b[1:])
        )

    def bent(self, a: Array, b: Array, y: Array) -> tuple[Array, Array]:
        slope, second = self.at(b).first_two(a, y)
        curvature = -second
        if np.any(other := ~(second < 0)):
            curvature[other] = self.at(b[other]).information(a[other], y[other])[0]
        return slope, curvature

    # ---- in the space of y -----------------------------------------------------------------------------------
    def moment(self, eta: Array, trials: Array | None = None) -> Array:
        return self.at(eta[..., 1]).moment(eta[..., :1])

    def spread(self, eta: Array, trials: Array | None = None) -> Array:
        return self.at(eta[..., 1]).spread(eta[..., :1])

    def cdf(self, eta: Array, y: Array) -> Array:
        """P(Y <= y | eta)."""
        return self.at(eta[..., 1]).cdf(eta[..., :1], y)

    def sf(self, eta: Array, y: Array) -> Array:
        return self.at(eta[..., 1]).sf(eta[..., :1], y)

    def sample(self, eta: Array, rng: np.random.Generator, trials: Array | None = None) -> Array:
        return self.at(eta[..., 1]).sample(eta[..., :1], rng)
