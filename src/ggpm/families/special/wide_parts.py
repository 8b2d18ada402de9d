"""Laws of the parts of a Dirichlet variable whose parameters are exp(eta), eta normal and wide.

Given alpha, a part is G/(G + G') with gamma variables of shapes exp(a) = alpha_j and exp(b), the sum of the others, and
its logit is log G - log G'. The latent is the sum of three independent normals: one of the part alone, one that moves
all others alike, as wide as both can be, and what is left. Given that, a and b are normal and independent, and what is
left has as many dimensions as there are parts, less one (two if latents are independent): points of a lattice tell its
law to seven digits, as the two normals have made averages over it smooth. The points are counted on a grid of (a, b),
so that their number costs little; the grid is a sum of products of functions of a and of b, which `MixedGamma` turns
into those of log G and log G'.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d
from scipy.special import logsumexp, softmax

from ggpm.families.special.mixed_gammas import MixedGamma, difference
from ggpm.families.special.quadrature import normal_points
from ggpm.families.special.stable import HALF_LOG_2PI, stirling_error
from ggpm.families.special.weighted_lattice import lattice_nodes

Array = NDArray[np.float64]

# Of the lattice: logarithms (base 2) of the number of points in up to two dimensions and in more, their standard
# deviation, and the weight of those that are left out. Probabilities are then off by 1e-7 to 1e-6, by 6e-6 with six
# parts and variances of 1e4 (2e-5 with 2^14 points; with those of `lattice_nodes` as they are, 2e-5 everywhere).
POINTS, SPREAD, LEFT_OUT = (14, 16), 1.7, 1e-8
GRADIENTS = 7  # logarithm (base 2) of the number of points that tell the direction in which a and b change most
# Bins of the grid in a standard deviation of the normals, how many of them make a step of the smoothed grid, and the
# normals' reach; normals narrower than this share of the laws given a and b need no grid that is as close.
BINS, STRIDE, REACH, NARROW, LAW_BINS = 6, 2, 6.0, 0.25, 18
NOTHING, RANK = 1e-13, 1e-8  # shares of the largest that are left out: on the grid, of singular values
MOST_BINS = 2**21  # of a grid
# Cells of a smoothed grid from which on it is made in pieces, as long as this many of the normals: latents are strongly
# correlated.
MANY_CELLS, PIECE = 2**16, 50.0
# Share of the largest variance that latents have at least; the second where the first asks for too much.
KNOWN = 1e-10, 1e-5
SMALLEST, LARGEST = -650.0, 690.0  # logarithms of parameters that floats hold
FARTHEST = 700.0  # |z| beyond which floats do not tell parts from zero
_X, _W = np.polynomial.hermite_e.hermegauss(5)


class WidePart:
    """The law of the logit of part j of one row, whose latent is N(mean, cov), (d,) and (d, d).

    Laws are not to be asked where all parts of a row together have more ``work`` than ``most_work``: latents are
    strongly correlated, or some known and others wide. Nothing is computed before it is asked for, and then kept.

    Examples
    --------
    >>> law = WidePart(np.zeros(2), 25.0 * np.eye(2), 0)  # two parts are alike
    >>> law.upto(np.zeros(1)).round(6), law.beyond().round(4)
    (array([0.5]), array([0.0785, 0.0785]))
    """

    reach, points = FARTHEST, 57
    """Logits up to which there is mass, and how many of them a search for quantiles begins with."""
    most_work = 32_000.0
    """Of a row: 3 s."""

    def __init__(self, mean: Array, cov: Array, j: int):
        self._latent = mean, cov, j

    @cached_property
    def _pieces(self) -> list[_Piece]:
        for known in KNOWN:
            pieces = _pieces(*_centres(*self._latent, known))
            if max(piece.bins for piece in pieces) <= MOST_BINS and _work(pieces) <= self.most_work:
                break
        return pieces

    @cached_property
    def work(self) -> float:
        """Points of all axes: intervals take 0.1 ms for each."""
        return _work(self._pieces) if max(piece.bins for piece in self._pieces) <= MOST_BINS else np.inf

    @cached_property
    def _laws(self) -> list[tuple[MixedGamma, MixedGamma]]:
        """Of log G and log G', side by side."""
        return [piece.laws() for piece in self._pieces]

    @property
    def place(self) -> tuple[float, float]:
        """Centre and width of a grid in z: small shapes leave mass about zero, on the scale of one."""
        mean, cov, j = self._latent
        move = np.where(np.arange(len(mean)) == j, 1.0, -softmax(np.where(np.arange(len(mean)) == j, -np.inf, mean)))
        middle = float(mean[j] - logsumexp(np.delete(mean, j)))
        spread = float(np.sqrt(move @ cov @ move))
        return (0.0 if spread > 0.5 * abs(middle) else middle), min(max(spread, 0.1), 2.0)

    def density(self, z: Array) -> Array:
        """Density of the logit at z (G,)."""
        return self._by_sign(z, beyond=False)

    def upto(self, z: Array) -> Array:
        """P(logit <= z), (G,)."""
        chance = self._by_sign(z, beyond=True)
        return np.where(z < 0, chance, 1.0 - chance)

    def beyond(self) -> Array:
        """P(z < -FARTHEST) and P(z > FARTHEST), (2,)."""
        return self._by_sign(np.array([-FARTHEST, FARTHEST]), beyond=True)

    def _by_sign(self, z: Array, beyond: bool) -> Array:
        out, left = np.zeros(len(z)), z < 0
        for own, others in self._laws:
            for some, X, Y in ((left, others, own), (~left, own, others)):
                if some.any():
                    out[some] += difference(X, Y, np.abs(z[some]), beyond)
        return out


class _Axis:
    """Bins along a or b, and the normals by which what is in them is spread."""

    def __init__(self, low: float, step: float, size: int, sd: float, narrow: bool):
        self.low, self.step, self.size, self.sd, self.narrow = low, step, size, sd, narrow

    @classmethod
    def of(cls, c: Array, sd: float) -> _Axis:
        low, high = float(c.min()), float(c.max())
        width = float(np.hypot(sd, np.exp(-0.5 * max(high, 0.0))))  # of laws of the logarithm given all else
        narrow = sd < NARROW * width
        step = width / LAW_BINS if narrow else sd / BINS
        beside = 4 if narrow else int(np.ceil(REACH * BINS))
        return cls(low - beside * step, step, int((high - low) / step) + 2 + 2 * beside, sd, narrow)

    @property
    def cells(self) -> int:
        """Number of points where it is smoothed."""
        return self.size if self.narrow else -(-self.size // STRIDE)

    def smoothed(self, grid: Array, axis: int) -> Array:
        """The grid with normals along one of its axes, at every second bin."""
        if self.narrow:
            return grid
        offset = np.arange(-int(REACH * BINS), int(REACH * BINS) + 1) / BINS
        normal = np.exp(-0.5 * offset**2)
        smooth = correlate1d(grid, STRIDE * normal / normal.sum(), axis, mode="constant")
        return smooth[::STRIDE] if axis == 0 else smooth[:, ::STRIDE]

    def law(self, mass: Array) -> MixedGamma:
        """That of the logarithm of the gamma variable, from what is on the grid, (n, r)."""
        if not self.narrow:
            return MixedGamma(self.low + STRIDE * self.step * np.arange(float(len(mass))), mass, self.sd)
        at = self.low + self.step * np.arange(float(len(mass)))
        nodes = (at[:, None] + self.sd * _X).ravel()
        return MixedGamma(nodes, (mass[:, None] * (_W / _W.sum())[:, None]).reshape(len(nodes), -1), 0.0)


@dataclass(frozen=True)
class _Piece:
    """Some of the points, and their grid."""

    axes: tuple[_Axis, _Axis]
    a: Array
    b: Array
    weights: Array

    @property
    def bins(self) -> int:
        """Of the grid."""
        return self.axes[0].size * self.axes[1].size

    @property
    def cells(self) -> int:
        """Of the smoothed grid."""
        return self.axes[0].cells * self.axes[1].cells

    def laws(self) -> tuple[MixedGamma, MixedGamma]:
        """Laws of log G and log G', side by side."""
        grid = self.axes[1].smoothed(self.axes[0].smoothed(self._counted(), 0), 1)
        grid[np.abs(grid) < NOTHING * np.abs(grid).max()] = 0.0  # products of smaller ones would be denormal
        left, values, right = np.linalg.svd(grid, full_matrices=False)
        kept = values > RANK * values[0]
        return self.axes[0].law(left[:, kept] * values[kept]), self.axes[1].law(right[kept].T)

    def _counted(self) -> Array:
        """Weights on the grid, each on four bins along either axis such that cubic functions have the same sums.

        Centres of b are dense next to the smallest: moments have to be right for each of them.
        """
        (i, x), (k, y) = (np.divmod((c - axis.low) / axis.step, 1.0) for c, axis in zip((self.a, self.b), self.axes))
        shape = self.axes[0].size, self.axes[1].size
        bins, grid = i.astype(int) * shape[1] + k.astype(int), np.zeros(shape[0] * shape[1])
        for right, of_x in zip(range(-1, 3), _cubic(x) * self.weights):
            for up, of_y in zip(range(-1, 3), _cubic(y) if of_x.any() else ()):
                if of_y.any():
                    grid += np.bincount(bins + right * shape[1] + up, of_x * of_y, len(grid))
        grid, total = grid.reshape(shape), self.weights.sum()
        for n, z in enumerate((x, y)):  # the fourth moment is right over all
            lost = float(self.weights @ ((1.0 + z) * z * (1.0 - z) * (2.0 - z))) / total / 24.0
            grid = grid + lost * correlate1d(grid, [1.0, -4.0, 6.0, -4.0, 1.0], n, mode="constant")
        return grid


def _cubic(z: Array) -> Array:
    """Weights of -1, 0, 1 and 2, (4, S), for interpolation at z by cubic functions.

    >>> _cubic(np.array([0.0, 0.5])).T
    array([[-0.    ,  1.    ,  0.    , -0.    ],
           [-0.0625,  0.5625,  0.5625, -0.0625]])
    """
    down, up = (1.0 - z) * (2.0 - z), z * (1.0 + z)
    return np.stack([-z * down / 6.0, (1.0 + z) * down / 2.0, up * (2.0 - z) / 2.0, -up * (1.0 - z) / 6.0])


def _pieces(sd: Array, a: Array, b: Array, weights: Array) -> list[_Piece]:
    """All points, or where they lie along a line, about which the grid would be empty, pieces of that."""
    whole = _Piece((_Axis.of(a, sd[0]), _Axis.of(b, sd[1])), a, b, weights)
    if whole.cells <= MANY_CELLS:
        return [whole]
    in_widths = np.stack([a / sd[0], b / sd[1]])
    along = np.linalg.eigh(np.cov(in_widths, aweights=weights))[1][:, 1] @ in_widths
    place = ((along - along.min()) / PIECE).astype(int)
    order = np.argsort(place, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(place[order])) + 1)
    return [_Piece((_Axis.of(a[i], sd[0]), _Axis.of(b[i], sd[1])), a[i], b[i], weights[i]) for i in parts]


def _work(pieces: list[_Piece]) -> float:
    return float(sum(axis.cells for piece in pieces for axis in piece.axes))


def _centres(mean: Array, cov: Array, j: int, known: float) -> tuple[Array, Array, Array, Array]:
    """Standard deviations (2,) of a and b about points a (S,) and b (S,), and weights (S,)."""
    d = len(mean)
    least = known * np.diagonal(cov).max()
    cov = cov + least * np.eye(d)
    own = np.arange(d) == j
    moves = np.stack([own, ~own], axis=1).astype(float)
    # variances that a and b have in common given all differences; both normals take their own share of it
    shared = np.linalg.inv(moves.T @ np.linalg.solve(cov, moves))
    variance = np.diagonal(shared)
    variance = variance * (1.0 - min(abs(shared[0, 1]) / np.sqrt(variance.prod()), 1.0))
    values, axes = np.linalg.eigh(cov - (moves * variance) @ moves.T)
    kept = values > 0.1 * least
    root = axes[:, kept] * np.sqrt(values[kept])
    root = root @ _turn(mean, root, j, np.sqrt(variance))
    x, weights = lattice_nodes(root.shape[1], POINTS[root.shape[1] > 2], (SPREAD,) * d, LEFT_OUT)
    eta = root @ x.T + mean[:, None]
    others = eta[~own]
    top = others.max(axis=0)
    total = np.exp((others - top).astype(np.float32)).sum(axis=0)
    return np.sqrt(variance), eta[j], top + np.log(total.astype(float)), weights


def _turn(mean: Array, root: Array, j: int, sd: Array) -> Array:
    """Axes (D, D) of x, eta = mean + root x, along which a and b change most, in units of their standard deviations."""
    eta = mean + normal_points(root.shape[1], GRADIENTS) @ root.T
    eta[:, j] = -np.inf
    share = np.exp(eta - eta.max(axis=1, keepdims=True))
    slope = share / share.sum(axis=1, keepdims=True) @ root / sd[1]
    square = slope.T @ slope / len(slope) + np.outer(root[j], root[j]) / sd[0] ** 2
    return np.linalg.eigh(square)[1][:, ::-1]


def log_logit_density(a: Array, b: Array, z: Array) -> Array:
    """Log density of the logit z of a beta variable with parameters exp(a) and exp(b).

    By Stirling's formula at the peak z = a - b, and with z - (a - b) = dz what is lost from there to z is
    S log(1 + m (exp(dz) - 1)) - own dz, m = own/S, for the smaller of the two shares: no large numbers cancel.

    >>> float(log_logit_density(np.zeros(1), np.zeros(1), np.zeros(1))[0].round(6))  # uniform: y (1 - y)
    -1.386294
    """
    own, others = (np.exp(np.clip(v, SMALLEST, LARGEST)) for v in (a, b))
    S, less, x = own + others, np.minimum(own, others), a - b
    log_m = -np.logaddexp(0.0, np.abs(x))  # of the smaller share
    peak = 0.5 * (a - np.logaddexp(0.0, x)) - HALF_LOG_2PI
    peak = peak + stirling_error(S) - stirling_error(own) - stirling_error(others)
    dz = np.where(x < 0, 1.0, -1.0) * (z - x)
    step = np.expm1(np.minimum(dz, 30.0))
    near = np.where(log_m > -40.0, S * np.log1p(np.exp(log_m) * step), less * step)
    far = np.where(
        log_m + dz > -37.0, S * np.logaddexp(0.0, log_m + dz), np.exp(np.minimum(np.minimum(a, b) + dz, LARGEST))
    )
    return peak + less * dz - np.where(dz < 30.0, near, far)
