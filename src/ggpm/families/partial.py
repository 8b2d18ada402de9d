"""Rows of which some parts are missing: the exact marginal density of what is there.

=============  =======================================================================================
Gaussian       the columns that are there, with their noise (multivariate: its covariance among them)
Dirichlet      parts that sum to the whole are a subcomposition, Dir(alpha_present); parts that sum to
               less leave a rest, which is one amalgamated part, Dir(alpha_present, sum alpha_missing)
multinomial    counts given their total: the softmax over the columns that are there; where the trials are
               known, what is left of them is the count of one amalgamated category
=============  =======================================================================================

Each is a smaller family of the same kind at a latent g(eta): some of the latents, and for the rest one whose alpha is
the sum of theirs. The chain rule through g is done here, once. Encoded y has the values first, zero where there is
none, and then as many columns that are 1 where there is one. Where counts have a rest, the first value that is missing
is that rest, and its mark is -1.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ggpm.data import frames
from ggpm.data.checks import as_numbers
from ggpm.data.text import Message, Row
from ggpm.families.base import Family, bound
from ggpm.families.curvature import Blocks, Marginals
from ggpm.families.dirichlet import Dirichlet
from ggpm.families.gaussian import Gaussian
from ggpm.families.multinomial import Multinomial
from ggpm.families.multivariate_gaussian import MultivariateGaussian
from ggpm.families.wrapped import Wrapped

__all__ = ["Partial", "partly_missing", "with_rests"]

Array = NDArray[np.float64]

KNOWN = (Gaussian, MultivariateGaussian, Dirichlet, Multinomial)
ROUNDED = 0.01  # of the total: parts that miss no more than this are whole, where rows are closed (99 of 100 percent)
EXACT = 1e-6  # the same where they are not, as for whole rows


def partly_missing(y: Any) -> NDArray[np.bool_]:
    """Mask of the rows of an array in which some entries are missing, and not all.

    >>> partly_missing(np.array([[0.2, np.nan], [0.5, 0.5]]))
    array([ True, False])
    """
    y = np.asarray(y)
    if y.ndim != 2 or y.dtype.kind != "f":
        return np.zeros(len(y), dtype=bool)
    missing = np.isnan(y)
    return missing.any(axis=1) & ~missing.all(axis=1)


def with_rests(family: Family, y: Any, trials: Any) -> Any:
    """Counts of which parts are missing, with what is known from the trials: the parts that are left together.

    A single missing part is what is left. Several leave their sum, which stands in the first of them as -1 - sum.

    >>> with_rests(Multinomial(), [[1, 2, np.nan], [np.nan, np.nan, 4]], [5, 10])
    array([[ 1.,  2.,  2.],
           [-7., nan,  4.]])
    """
    if not isinstance(family, Multinomial):
        raise ValueError(
            f"trials in fit and log densities are for multinomial counts of which parts are missing; "
            f"{type(family).__name__} takes none there."
        )
    values = np.array(frames.values_of(y), dtype=float)
    if values.ndim != 2:
        raise ValueError(f"y must have one column per category; got shape {values.shape}.")
    given = as_numbers(trials, "trials", "positive integers")
    if given.shape not in {(), (len(values),)}:
        raise ValueError(f"trials must be one number, or one for each of the {len(values)} rows; got {given.shape}.")
    N = np.broadcast_to(given, (len(values),))
    missing = np.isnan(values)
    rest = N - np.nansum(values, axis=1)
    wrong = ~(np.round(N) == N) | (rest < 0) | (~missing.any(axis=1) & (rest != 0))
    wrong &= ~missing.all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            Message(
                f"trials must be whole numbers that counts add up to; got {N[row]:g} for the counts of row ",
                Row(row),
                f", {np.nansum(values[row]):g} in all.",
            )
        )
    rows = np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1))
    first = missing[rows].argmax(axis=1)
    several = missing[rows].sum(axis=1) > 1
    values[rows, first] = np.where(several, -1.0 - rest[rows], rest[rows])
    return frames.build(kind, values, frames.names_of(y), frames.index_of(y)) if (kind := frames.kind_of(y)) else values


class Partial(Wrapped):
    """A resolved Gaussian, Dirichlet or multinomial family for rows of which parts may be missing.

    Examples
    --------
    >>> family = Partial.resolved(Multinomial(), np.array([[1.0, 2.0, 3.0], [4.0, np.nan, 1.0]]))
    >>> y = family.encode([[4.0, np.nan, 1.0]])
    >>> two = Multinomial().resolve([[4.0, 1.0]])
    >>> (family.log_prob(np.zeros((1, 3)), y) - two.log_prob(np.zeros((1, 2)), np.array([[4.0, 1.0]]))).round(12)
    array([0.])
    """

    @classmethod
    def around(cls, family: Family, y: Array) -> Partial:
        """A family that is resolved, for rows like these; ValueError where it has no density of some parts alone."""
        partial = partly_missing(y)
        if type(family) not in KNOWN:
            raise ValueError(
                Message(
                    f"y has missing parts in {partial.sum()} row(s), first in row ",
                    Row(partial.argmax()),
                    f": {type(family).__name__} has no density of the others alone. Drop or fill those rows (NaN).",
                )
            )
        return cls(family)

    @classmethod
    def resolved(cls, family: Family, y: Array, weight: Array | None = None) -> Partial:
        """The family bound to y, by the rows that are whole."""
        partial = partly_missing(y)
        cls.around(family, y)
        if partial.all():
            raise ValueError("every row of y has missing parts: at least one must be whole.")
        whole = bound(family, y[~partial], None if weight is None else weight[~partial])
        return cls(whole.with_rows(len(y) if weight is None else float(weight.sum())))

    def adapted(self, y: Any, weight: Array | None = None) -> Self:
        whole = ~partly_missing(y)
        return type(self)(self.base.adapted(np.asarray(y)[whole], None if weight is None else weight[whole]))

    # ---- y ---------------------------------------------------------------------------------------------------------
    def encode(self, y: Any) -> Array:
        values = np.asarray(y, dtype=float)
        partial = partly_missing(values)
        d = values.shape[-1]
        out = np.concatenate([np.zeros(values.shape), np.ones(values.shape)], axis=1)
        if not partial.all():
            out[~partial, :d] = self.base.encode(values[~partial])
        for row in np.flatnonzero(partial):
            present = ~np.isnan(values[row])
            rest = present & (values[row] < 0) & isinstance(self.base, Multinomial)  # by `with_rests`
            present &= ~rest
            out[row, :d][present] = self._encoded(values[row, present], int(row))
            out[row, :d][rest] = -1.0 - values[row, rest]
            out[row, d:] = np.where(rest, -1.0, present)
        return out

    def _encoded(self, known: Array, row: int) -> Array:
        """The parts of a row that are there, as the smaller family takes them."""
        base = self.base
        if not isinstance(base, Dirichlet):
            k = max(len(known), 2)  # one count alone is allowed, and says nothing
            return self._small(k).encode(np.append(known, 0.0)[None, :k])[0][: len(known)]
        total, share = base._total, known.sum() / base._total
        tolerance = ROUNDED if base.closure else EXACT
        open_ended = base.closure and total == 1.0  # amounts of any total: what is missing is not known
        if not open_ended and share > 1 + tolerance:
            raise ValueError(
                Message(
                    f"y must be compositions of {total:g}; the parts of row ",
                    Row(row),
                    f" that are there sum to {known.sum():.6g}.",
                )
            )
        whole = open_ended or share > 1 - tolerance
        parts = known / known.sum() * total if whole else np.append(known, total - known.sum())
        return self._small(len(parts)).encode(parts[None])[0][: len(known)]

    def decode(self, y: Array) -> Array:
        d = y.shape[-1] // 2
        known = np.where(y[..., d:] == 1, self.base.decode(y[..., :d]), np.nan)
        return np.where(y[..., d:] == -1, -1.0 - y[..., :d], known)

    def _small(self, k: int, present: NDArray[np.bool_] | None = None) -> Any:
        """The family of so many parts."""
        small: Any = copy.copy(self.base)
        small.latent_dim = k
        if isinstance(small, Dirichlet):
            small.closure, small._parts = False, k
        if isinstance(small, Gaussian):
            small._columns, small._flat = k, False
            if present is not None:
                small = self.base.marginal(present)[0]
        return small

    def _groups(self, y: Array) -> Iterator[_Group]:
        """Rows with the same parts missing, together."""
        d = y.shape[-1] // 2
        values, present = y[:, :d], y[:, d:] == 1
        rest, left = np.zeros(len(y)), np.zeros(len(y), dtype=bool)
        if isinstance(self.base, Dirichlet):
            rest = np.where(present.all(axis=1), 0.0, 1.0 - values.sum(axis=1))
            left = rest > 1e-12
        elif isinstance(self.base, Multinomial):
            counted = y[:, d:] == -1
            rest, left = np.where(counted, values, 0.0).sum(axis=1), counted.any(axis=1)
        keys = np.concatenate([present, left[:, None]], axis=1)
        for key in np.unique(keys, axis=0):
            rows = np.flatnonzero((keys == key).all(axis=1))
            here = key[:-1]
            part = values[rows][:, here]
            if key[-1]:
                part = np.concatenate([part, rest[rows, None]], axis=1)
            jacobian = self.base.marginal(here)[1] if isinstance(self.base, Gaussian) else None
            yield _Group(self._small(part.shape[1], here), rows, here, bool(key[-1]), part, jacobian)

    # ---- density -----------------------------------------------------------------------------------------------------
    def expansion(self, y: Array) -> Array:
        # at the point of rows that are filled in: any will do, and a mode of what is there costs sixty steps
        d = y.shape[-1] // 2
        values, missing = y[:, :d].copy(), y[:, d:] == 0
        if isinstance(self.base, Dirichlet):
            rest = 1.0 - values.sum(axis=1)
            mean = values.sum(axis=1) / (~missing).sum(axis=1)
            each = np.where(rest > 1e-12, rest / np.maximum(missing.sum(axis=1), 1), mean)
            values = np.where(missing, each[:, None], values)
            values /= values.sum(axis=1, keepdims=True)
        return self.base.expansion(values)

    def log_prob(self, eta: Array, y: Array) -> Array:
        out = np.empty(np.broadcast_shapes(eta.shape[:-1], y.shape[:-1]))
        for g in self._groups(y):
            out[..., g.rows] = g.family.log_prob(g.latent(eta[..., g.rows, :]), g.y)
        return out

    def u(self, eta: Array, y: Array) -> Array:
        out = np.zeros(np.broadcast_shapes(eta.shape, (*y.shape[:-1], 1)))
        for g in self._groups(y):
            e = eta[..., g.rows, :]
            out[..., g.rows, :] = np.einsum("...k,...kj->...j", g.family.u(g.latent(e), g.y), g.jacobian(e))
        return out

    def U(self, eta: Array, y: Array, expected: bool = False) -> Blocks:
        D = eta.shape[-1]
        out = np.zeros((*np.broadcast_shapes(eta.shape[:-1], y.shape[:-1]), D, D))
        for g in self._groups(y):
            e = eta[..., g.rows, :]
            J, at = g.jacobian(e), g.latent(e)
            U = np.einsum("...aj,...ab,...bk->...jk", J, g.family.U(at, g.y, expected=expected).dense(), J)
            if g.rest and not expected:
                U = U - g.family.u(at, g.y)[..., -1, None, None] * g.second(e)
            out[..., g.rows, :, :] = U
        return Blocks(out)

    def U_pullback(self, eta: Array, y: Array, V: Marginals, expected: bool = False) -> tuple[Array, Array]:
        out, phi = np.zeros_like(eta), np.zeros(self.log_hyper.size)
        dense = V.dense()
        for g in self._groups(y):
            e, v = eta[g.rows], dense[g.rows]
            J, at = g.jacobian(e), g.latent(e)
            d_latent, d_phi = g.family.U_pullback(at, g.y, Blocks(J @ v @ J.swapaxes(1, 2)), expected=expected)
            d_eta = np.einsum("nk,nkj->nj", d_latent, J)
            phi += g.in_phi(d_phi, phi.size)
            if g.rest:
                second, U = g.second(e), g.family.U(at, g.y, expected=expected).dense()
                d_eta += 2.0 * np.einsum("njl,nj->nl", second, (v @ J.swapaxes(1, 2) @ U)[..., -1])
                if not expected:
                    slope = np.einsum("nk,nkl->nl", -U[:, -1], J)  # of the small family's last u
                    d_eta -= np.einsum("njk,njk->n", v, second)[:, None] * slope
                    d_eta -= g.family.u(at, g.y)[:, -1:] * g.third(e, v)
            out[g.rows] = d_eta
        return out, phi

    def log_prob_phi(self, eta: Array, y: Array) -> Array:
        out = np.zeros((*np.broadcast_shapes(eta.shape[:-1], y.shape[:-1]), self.log_hyper.size))
        for g in self._groups(y):
            found = g.family.log_prob_phi(g.latent(eta[..., g.rows, :]), g.y)
            out[..., g.rows, :] = g.in_phi(found, out.shape[-1])
        return out

    def u_phi(self, eta: Array, y: Array) -> Array:
        out = np.zeros((*np.broadcast_shapes(eta.shape, (*y.shape[:-1], 1)), self.log_hyper.size))
        if out.shape[-1] == 0:
            return out
        for g in self._groups(y):  # Gaussian: the latents that are there are the smaller family's own
            found = g.in_phi(g.family.u_phi(g.latent(eta[..., g.rows, :]), g.y), out.shape[-1])
            out[np.ix_(*map(np.arange, out.shape[:-3]), g.rows, np.flatnonzero(g.present))] = found
        return out


@dataclass(frozen=True)
class _Group:
    """Rows with the same parts, the smaller family that they have, and the map g to its latent."""

    family: Any
    rows: NDArray[np.intp]
    present: NDArray[np.bool_]
    rest: bool
    """Whether the parts that are missing are one amalgamated part, the last of the smaller family."""
    y: Array
    phi_jacobian: Array | None = None
    """Derivatives of the smaller family's log-hyperparameters in those of the whole one, where there are any."""

    def in_phi(self, derivative: Array, size: int) -> Array:
        """A derivative in the smaller family's log-hyperparameters as one in those of the whole one, (..., size)."""
        return derivative if self.phi_jacobian is None or not size else derivative @ self.phi_jacobian

    def latent(self, eta: Array) -> Array:
        own = eta[..., self.present]
        if not self.rest:
            return own
        return np.concatenate([own, self._rest(eta)[0][..., None]], axis=-1)

    def _rest(self, eta: Array) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
        """Latent of the amalgamated part, its derivatives in the sum of alphas, and those of the alphas in eta.

        Of counts, alpha is exp(eta): shares are alphas over their sum.
        """
        e = eta[..., ~self.present]
        if isinstance(self.family, Multinomial):
            value = logsumexp(e, axis=-1)
            share = np.exp(e - value[..., None])  # all in units of the sum of alphas
            one = np.ones(value.shape)
            return value, (one, -one, 2.0 * one), (share, share, share)
        link = self.family._link
        s = link(e).sum(axis=-1)
        value = np.log(s) if self.family.link == "exp" else s + np.log(-np.expm1(-s))
        l1, l2, l3 = link.derivatives(value)
        inverse = 1.0 / l1, -l2 / l1**3, (3.0 * l2**2 - l1 * l3) / l1**5  # of the inverse function
        return value, inverse, link.derivatives(e)

    def jacobian(self, eta: Array) -> Array:
        k = int(self.present.sum()) + self.rest
        J = np.zeros((*eta.shape[:-1], k, eta.shape[-1]))
        J[..., np.arange(self.present.sum()), np.flatnonzero(self.present)] = 1.0
        if self.rest:
            _, (h1, _, _), (a1, _, _) = self._rest(eta)
            J[..., -1, ~self.present] = h1[..., None] * a1
        return J

    def second(self, eta: Array) -> Array:
        """Second derivatives of the latent of the amalgamated part, (..., D, D)."""
        _, (h1, h2, _), (a1, a2, _) = self._rest(eta)
        missing = np.flatnonzero(~self.present)
        block = h2[..., None, None] * a1[..., :, None] * a1[..., None, :]
        block[..., np.arange(len(missing)), np.arange(len(missing))] += h1[..., None] * a2
        out = np.zeros((*eta.shape, eta.shape[-1]))
        out[..., missing[:, None], missing] = block
        return out

    def third(self, eta: Array, V: Array) -> Array:
        """``sum_jk V_jk d^3 g / d eta_j d eta_k d eta_l``, (n, D)."""
        _, (h1, h2, h3), (a1, a2, a3) = self._rest(eta)
        missing = np.flatnonzero(~self.present)
        v = V[:, missing[:, None], missing]
        along = np.einsum("njk,nk->nj", v, a1)
        diagonal = np.einsum("njj->nj", v)
        full = h3[:, None] * np.einsum("nj,nj->n", a1, along)[:, None] * a1
        full += h2[:, None] * (np.einsum("nj,nj->n", diagonal, a2)[:, None] * a1 + 2.0 * along * a2)
        full += h1[:, None] * diagonal * a3
        out = np.zeros_like(eta)
        out[:, missing] = full
        return out
