"""Priors on hyperparameters: the search then ends at the posterior mode (MAP) instead of the evidence's maximum.

A prior is a density of one positive hyperparameter, taken in the coordinate in which the search runs, its
logarithm; so are the modes. `log_marginal_likelihood` stays the evidence: priors act on the search alone.

By default (``priors="auto"``) they are used with kernels that are chosen from the data (``kernel=None``), and none with
a given one. Length scales have weak ones in units of the columns' spreads; where every column has its own, they are
shrunk towards a common one. A classifier's latent has no unit: with classes that can be told apart without error a
larger scale always fits better, with a longer length scale to match, until a bound stops it. So with labels, grades or
proportions of trials, variances have priors too, and so has a phi that data may leave without a bound
(`Family.phi_typical`).

Two kinds have one with given kernels as well: the latents of a direction whose length is another parameter's
(`Family.latents_without_unit`), and parameters after the first, which need not vary at all (`Cost`). ``priors=None``
switches all of it off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from sklearn.gaussian_process.kernels import ConstantKernel, Product

from ggpm.families.wrapped import unwrapped

__all__ = ["Cost", "HalfT", "LogNormal"]

Array = NDArray[np.float64]


class Prior(Protocol):
    """A density of the logarithm of a hyperparameter."""

    def log_density(self, log_value: float) -> tuple[float, float]:
        """Log density and its derivative at the logarithm of the hyperparameter."""
        ...


def _check_positive(prior: Any, *fields: str) -> None:
    for name in fields:
        if not (np.isfinite(getattr(prior, name)) and getattr(prior, name) > 0):
            raise ValueError(f"{name} must be a positive number; got {getattr(prior, name)!r}.")


@dataclass(frozen=True)
class LogNormal:
    """The logarithm of the hyperparameter is normal around log(median) with standard deviation sigma.

    >>> LogNormal(2.0, 1.0).log_density(np.log(2.0))[1]
    -0.0
    """

    median: float
    sigma: float

    def __post_init__(self) -> None:
        _check_positive(self, "median", "sigma")

    @property
    def mode(self) -> float:
        """The logarithm that is most likely."""
        return float(np.log(self.median))

    def log_density(self, log_value: float) -> tuple[float, float]:
        e = (log_value - np.log(self.median)) / self.sigma
        return float(-0.5 * e * e - np.log(self.sigma) - 0.5 * np.log(2 * np.pi)), float(-e / self.sigma)


@dataclass(frozen=True)
class HalfT:
    """The hyperparameter is the absolute value of a Student t variable with the given scale.

    >>> HalfT(1.0, df=4.0).log_density(0.0)[1].round(3)
    np.float64(0.0)
    """

    scale: float
    df: float = 4.0

    def __post_init__(self) -> None:
        _check_positive(self, "scale", "df")

    @property
    def mode(self) -> float:
        """The logarithm that is most likely."""
        return float(np.log(self.scale))

    def log_density(self, log_value: float) -> tuple[float, float]:
        r2 = np.exp(2.0 * (log_value - np.log(self.scale))) / self.df
        constant = np.log(2.0) + gammaln((self.df + 1) / 2) - gammaln(self.df / 2) - 0.5 * np.log(self.df * np.pi)
        value = constant - np.log(self.scale) - 0.5 * (self.df + 1) * np.log1p(r2) + log_value  # + log_value: Jacobian
        return float(value), 1.0 - (self.df + 1) * r2 / (1.0 + r2)


@dataclass(frozen=True)
class Cost:
    """Nats that a variance costs where it is more than nothing: ``-nats s/(s + scale)`` for its root s.

    Flat in the logarithm but for that, as where there is no prior: a function that varies by much more than ``scale``
    is not made smaller, one that hardly varies must bring what it costs, or varies not at all.

    >>> [round(Cost(2.0, 0.2).log_density(2 * np.log(s))[0], 2) for s in (0.002, 0.2, 2.0)]
    [-0.02, -1.0, -1.82]
    """

    nats: float
    scale: float

    mode: ClassVar[float] = -np.inf
    """The logarithm that is most likely: no variance."""

    def __post_init__(self) -> None:
        _check_positive(self, "nats", "scale")

    def log_density(self, log_value: float) -> tuple[float, float]:
        s = np.exp(0.5 * log_value)
        share = s / (s + self.scale)
        return float(-self.nats * share), float(-0.5 * self.nats * share * (1.0 - share))


@dataclass(frozen=True)
class Shrunk:
    """Several hyperparameters near a common one that is not known itself: log h_j = m + d_j, all normal.

    The common m has mean log(median) and standard deviation ``common``, the deviations d_j standard deviation ``own``.

    >>> alike, apart = (Shrunk(1.0, 1.5, 1.0).log_density(np.log(h))[0] for h in ([4.0, 4.0], [1.0, 16.0]))
    >>> bool(alike > apart)
    True
    """

    median: float
    common: float
    own: float

    def log_density(self, log_values: Array) -> tuple[float, Array]:
        """Log density of the logarithms, (p,), and its gradient."""
        e = log_values - np.log(self.median)
        p, s2, t2 = len(e), self.own**2, self.common**2
        # the covariance s² I + t² 11ᵀ by the formulas of Sherman and Morrison
        solved = (e - t2 * e.sum() / (s2 + p * t2)) / s2
        log_det = (p - 1) * np.log(s2) + np.log(s2 + p * t2)
        return float(-0.5 * (e @ solved + log_det + p * np.log(2 * np.pi))), -solved


@dataclass(frozen=True)
class Priors:
    """One prior, or None, for every entry of theta, and priors of several entries together."""

    members: tuple[Prior | None, ...]
    joint: tuple[tuple[slice, Shrunk], ...] = ()

    def log_density(self, theta: Array) -> tuple[float, Array]:
        """Log density at theta and its gradient."""
        value, gradient = 0.0, np.zeros(len(theta))
        for k, prior in enumerate(self.members):
            if prior is not None:
                term, gradient[k] = prior.log_density(float(theta[k]))
                value += term
        for entries, together in self.joint:
            term, slopes = together.log_density(theta[entries])
            value, gradient[entries] = value + term, gradient[entries] + slopes
        return value, gradient

    def height(self, theta: Array) -> float:
        """Log density at theta less that at the priors' own mode: what a theta off the mode costs.

        Densities of different numbers of hyperparameters have different units; heights have none. A prior of yours that
        has no ``mode`` is left out.

        >>> Priors((LogNormal(2.0, 1.0), None)).height(np.log([2.0, 5.0]))
        0.0
        """
        mode = np.array(theta, dtype=np.float64)
        for k, prior in enumerate(self.members):
            mode[k] = getattr(prior, "mode", mode[k])
        for entries, together in self.joint:
            mode[entries] = np.log(together.median)
        return self.log_density(theta)[0] - self.log_density(mode)[0]


# In the default kernel: variance of its first part, length scales in units of where they start, variances of the other
# parts and of the intercept. Two standard deviations are factors of 55, 20 and 55.
AUTO_VARIANCE = LogNormal(10.0, 2.0)
AUTO_LENGTH_SIGMA = 1.5
AUTO_OWN_SIGMA = 1.0  # of one length scale among several, around what they have in common
AUTO_INTERCEPT = LogNormal(1.0, 2.0)
# Of latents e of which e/sqrt(1 + e²) alone counts, times a length. With standard deviations below 1/2 that is e, and
# the length takes up any factor; above 9 it is a direction wherever a draw is, and no factor counts at all. Between
# these, two standard deviations to either side, lies all that data can tell of.
AUTO_DIRECTION = LogNormal(4.0, 1.5)
# Of a parameter after the first, a logarithm or a logit: one nat for each of the two hyperparameters that a function
# has and a constant has not (Akaike 1974). Without it noise of 300 rows makes functions that vary by 0.2, and loses a
# nat of leave-one-out densities.
AUTO_FURTHER = Cost(2.0, 0.2)


def resolve(priors: Any, kernels: Sequence, default_kernel: bool, family: Any, theta: Array) -> Priors | None:
    """The priors of all entries of theta, or None.

    Hyperparameters are called as scikit-learn writes them ("k1__k2__length_scale"), the family's "phi"; ``theta`` is
    where the search starts: default kernels start from length scales of the right size.
    """
    names = names_of(kernels, family)
    if priors is None:
        return None
    if isinstance(priors, str):
        if priors != "auto":
            raise ValueError(f"priors must be 'auto', None or a dictionary; got {priors!r}.")
        return _auto(kernels, names, unwrapped(family), theta, default_kernel)
    if not isinstance(priors, Mapping):
        raise TypeError(f"priors must be 'auto', None or a dictionary of names and priors; got {priors!r}.")
    members: list[Prior | None] = [None] * len(names)
    for wanted, prior in priors.items():
        if not hasattr(prior, "log_density"):
            raise TypeError(f"the prior of {wanted!r} must be LogNormal(...) or HalfT(...); got {prior!r}.")
        found = [k for k, name in enumerate(names) if name == wanted or name.endswith(f"__{wanted}")]
        if not found:
            raise ValueError(f"no learned hyperparameter is called {wanted!r}; there are {', '.join(names) or 'none'}.")
        for k in found:
            members[k] = prior
    return Priors(tuple(members))


def resolved(priors: Any, kernels: Sequence, family: Any, theta: Array) -> Priors | None:
    """The priors of all entries of theta for kernels that were not given, or None."""
    return resolve(priors, kernels, True, family, theta)


def _auto(kernels: Sequence, names: list[str], family: Any, theta: Array, default_kernel: bool) -> Priors | None:
    """Priors of variances of latents without unit or after the first; with a default kernel of length scales, too."""
    members: list[Prior | None] = []
    joint: list[tuple[slice, Shrunk]] = []
    own = tuple(f"{j}__" for j in family.latents_without_unit)
    further = range(family.latent_dim - len(family.parameters) + 1, len(kernels))
    costs = {f"{j}__{name}" for j in further for name in _factors(kernels[j])}
    for name, run in groupby(range(len(names)), key=lambda k: names[k]):
        entries = list(run)
        start = float(np.exp(theta[entries[0]]))
        single: Prior | None = None
        if name.startswith(own) and name.endswith(("constant_value", "noise_level")):
            single = AUTO_DIRECTION
        elif name in costs:
            single = AUTO_FURTHER
        elif not default_kernel:
            pass
        elif name.endswith("length_scale") and len(entries) > 1:
            joint.append((slice(entries[0], entries[-1] + 1), Shrunk(start, AUTO_LENGTH_SIGMA, AUTO_OWN_SIGMA)))
        elif name.endswith("length_scale"):
            single = LogNormal(start, AUTO_LENGTH_SIGMA)
        elif name == "phi" and family.phi_typical is not None:
            single = LogNormal(*family.phi_typical)
        elif (family.finite or family.countable) and name != "phi":
            single = AUTO_INTERCEPT if members else AUTO_VARIANCE
        members += [single] * len(entries)
    return Priors(tuple(members), tuple(joint)) if default_kernel or any(members) else None


def _factors(kernel: Any, prefix: str = "", product: bool = False) -> Iterator[str]:
    """Names of constants that multiply functions: their variances, where a constant alone is a level."""
    if isinstance(kernel, ConstantKernel):
        yield from [f"{prefix}constant_value"] if product else []
    for name in ("k1", "k2", "kernel"):
        if hasattr(kernel, name):
            yield from _factors(getattr(kernel, name), f"{prefix}{name}__", product or isinstance(kernel, Product))


def names_of(kernels: Sequence, family: Any) -> list[str]:
    """Names of the entries of theta, repeated for vector-valued ones; with several kernels their number first."""
    names: list[str] = []
    for j, kernel in enumerate(kernels):
        for h in kernel.hyperparameters:
            if not h.fixed:
                names += [h.name if len(kernels) == 1 else f"{j}__{h.name}"] * h.n_elements
    return names + ["phi"] * (family.log_hyper.size if family.learns_phi else 0)
