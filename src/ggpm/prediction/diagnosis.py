"""Diagnosis of the Gaussian posterior: importance weights from it to the posterior that it stands for.

A Gaussian q with sites is ``prior(f) prod_i t_i(f_i)`` up to a constant, so that the weight of a draw f = m + d is

    p(y, f) / q(f) = c prod_i r_i,        log r_i = log p(y_i | f_i) - z_i^T d_i + d_i^T U_i d_i / 2,
    log c = -(z^T m + log|I + U K|) / 2,

a sum over rows without a kernel matrix. The r_i of draws from row i's marginal alone tell how wrong its own site is,
given what the other sites say of it; those of joint draws how wrong all are together, and their mean is the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ggpm.data import frames
from ggpm.data.checks import check_whole
from ggpm.families.base import Family
from ggpm.families.special.adaptive import cholesky_root
from ggpm.fields.base import Approximation
from ggpm.fields.dense.field import DenseProcess
from ggpm.fields.inducing.field import InducingProcess
from ggpm.prediction.pareto import most_k, pareto_k
from ggpm.prediction.terms import root_of

__all__ = ["Diagnosis", "diagnose"]

Array = NDArray[np.float64]

JOINT_MOST = 1000  # latents of all rows up to which they are drawn together: a covariance of that order
NAMED = 5  # rows that warn and are told one by one; `to_frame` has all
BATCH = 2_000_000  # numbers of a batch of rows: some ten arrays of 16 MB
ROUNDING = 1e-8  # of a log weight: a sum over terms of up to 1e6 or so
# Error of a probability of the latent beyond which a row warns. Neither k̂ nor the effective share would do: near a good
# variational Gaussian the weights are nearly alike, and k̂ is the shape of next to nothing (3 or 4 in rows that NUTS
# finds right); and with several latents weights vary that leave the distribution of each as it is. docs/comparison.md
# has what quadrature and NUTS say of the rows on either side.
WRONG = 0.05


@dataclass(frozen=True)
class Diagnosis:
    """Importance weights from the Gaussian posterior to the exact one, row by row and together."""

    k: Array
    """Pareto k̂ of every row's weights, (n,); not a number where the weights are alike, as those of a Gaussian are."""
    effective: Array
    """Effective share of the draws of every row, (n,): one if its Gaussian is exact."""
    moved: Array
    """Standard deviations by which the weights move the row's latent mean, (n,): the largest over latents."""
    error: Array
    """Largest error of a probability ``P(latent <= x)`` of every row, (n,), over x and the row's latents."""
    draws: int
    joint_k: float = float("nan")
    """k̂ of the weights of all rows together. It grows with the number of rows, and is no verdict."""
    log_evidence: float = float("nan")
    """Log evidence by importance sampling; not a number where there are too many rows to draw together."""
    log_evidence_error: float = float("nan")
    """Its standard error over the draws; of little worth where `joint_k` is above one half."""
    approximate_log_evidence: float = field(default=float("nan"), kw_only=True)
    """The log evidence, or bound, of the fit."""

    @property
    def warns(self) -> NDArray[np.bool_]:
        """Rows whose Gaussian is not to be trusted: probabilities of their latent are off by more than 0.05."""
        return ~(self.error <= WRONG)

    def to_frame(self) -> Any:
        """One line for every row: k, effective, moved, error, warns."""
        names = ("k", "effective", "moved", "error", "warns")
        return frames.require("pandas").DataFrame({name: getattr(self, name) for name in names})

    def __repr__(self) -> str:
        warns, most, known = self.warns, most_k(self.draws), self.k[~np.isnan(self.k)]
        heaviest = f"largest k̂ {known.max():.2f}" if known.size else "no k̂ (weights are alike)"
        lines = [
            f"{warns.sum()} of {len(warns)} rows warn: probabilities of their latent are off by more than {WRONG}.",
            f"largest error {self.error.max():.2f}, largest move {self.moved.max():.2f} standard deviations, "
            f"least effective share {self.effective.min():.2f}, {heaviest}.",
        ]
        if warns.any():
            worst = [i for i in np.argsort(-np.nan_to_num(self.error, nan=np.inf), kind="stable")[:NAMED] if warns[i]]
            told = ", ".join(f"{i} (error {self.error[i]:.2f}, k̂ {self.k[i]:.2f})" for i in worst)
            lines.append(f"worst rows: {told}.")
        if heavy := int(np.sum(warns & ~(self.k <= most))):
            lines.append(f"k̂ is above {most:.2g} in {heavy} of those that warn: they may be off by more than they say.")
        if np.isfinite(self.log_evidence):
            lines.append(
                f"log evidence {self.log_evidence:.3f} ± {self.log_evidence_error:.3f} by importance sampling, "
                f"{self.approximate_log_evidence:.3f} by the fit; joint k̂ {self.joint_k:.2f} (no verdict: it grows "
                "with the number of rows)."
            )
        return "\n".join(lines)


def diagnose(approximation: Approximation, draws: int = 4000, random_state: Any = 0) -> Diagnosis:
    """Importance weights of an approximation, per row and, with few rows in memory, of all together.

    >>> from ggpm import GGPRegressor
    >>> model = GGPRegressor("poisson", optimizer=None).fit(np.arange(5.0)[:, None], np.arange(5))
    >>> diagnose(model.fit_.approximate(), draws=500).k.shape
    (5,)
    """
    check_whole(draws, "draws", 25)
    a, rng = approximation, np.random.default_rng(random_state)
    rows = _rows_of(a)
    n, D = rows.mean.shape
    k, effective, moved, error = np.empty((4, n))
    root = cholesky_root(rows.cov)
    for part in _batches(n, draws * D):
        d = np.einsum("ijk,sik->sij", root[part], rng.standard_normal((draws, len(part), D)))
        log_r = rows.log_ratio(d, part)
        # weights that differ by rounding have no tail
        k[part] = np.where(np.ptp(log_r, axis=0) > ROUNDING, pareto_k(log_r), np.nan)
        w = np.exp(log_r - logsumexp(log_r, axis=0))
        effective[part] = 1.0 / (draws * np.sum(w * w, axis=0))
        sd = np.sqrt(np.einsum("njj->nj", rows.cov[part]))
        # against the plain mean of the same draws: what chance moves both by is no error
        away = np.einsum("si,sij->ij", w - 1.0 / draws, d)
        moved[part] = np.max(np.abs(away) / np.where(sd > 0, sd, 1.0), axis=1)
        error[part] = _largest_error(d, w - 1.0 / draws)
    joint = {}
    if isinstance(a.process, DenseProcess) and n * D <= JOINT_MOST:
        joint = _together(a, rows, draws, rng)
    return Diagnosis(k, effective, moved, error, draws, approximate_log_evidence=a.log_evidence, **joint)


def _largest_error(d: Array, excess: Array) -> Array:
    """Largest difference of distribution functions, (rows,), of draws (draws, rows, D) with and without weights."""
    order = np.argsort(d, axis=0)
    steps = np.take_along_axis(np.broadcast_to(excess[..., None], d.shape), order, axis=0)
    return np.max(np.abs(np.cumsum(steps, axis=0)), axis=(0, 2))


@dataclass(frozen=True)
class _Rows:
    """Marginals and sites of the rows, and the likelihood that the sites stand for."""

    family: Family
    y: Array
    offset: Array
    mean: Array
    cov: Array
    z: Array
    U: Array

    def log_ratio(self, d: Array, part: NDArray[np.intp]) -> Array:
        """log r of rows at mean + d, (draws, rows)."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            out = self.family.log_prob(self.mean[part] + self.offset[part] + d, self.y[part])
            out = out - np.einsum("ij,sij->si", self.z[part], d)
            out = out + 0.5 * np.einsum("sij,ijk,sik->si", d, self.U[part], d, optimize=True)
        return np.where(np.isfinite(out), out, -np.inf)


def _rows_of(a: Approximation) -> _Rows:
    if isinstance(a.process, InducingProcess):
        mean_c, cov_c, mean, cov, y, offset = a.process.cavities(a)
        # what a row's own site says is what its marginal knows beyond its cavity
        inverse = np.linalg.inv(cov_c)
        z = np.einsum("ijk,ik->ij", inverse, mean - mean_c)
        return _Rows(a.process.model.family, y, offset, mean, cov, z, np.linalg.inv(cov) - inverse)
    p, q = a.process.problem, a.q
    return _Rows(p.family, p.y, p.offset, q.mean, q.marginals.dense(), q.z, q.U.dense())


def _together(a: Approximation, rows: _Rows, draws: int, rng: np.random.Generator) -> dict[str, float]:
    """Weights of draws of all rows: their k̂, and the evidence that is their mean."""
    n, D = rows.mean.shape
    root = root_of(a.q.solution.sensitivity().covariance().reshape(n * D, n * D))
    total = np.empty(draws)
    for part in _batches(draws, n * D):
        d = (rng.standard_normal((len(part), root.shape[1])) @ root.T).reshape(len(part), n, D)
        total[part] = rows.log_ratio(d, np.arange(n)).sum(axis=1)
    constant = -0.5 * float(np.sum(rows.z * rows.mean)) - 0.5 * a.q.log_det
    log_mean = logsumexp(total) - np.log(draws)
    error = np.std(np.exp(total - log_mean), ddof=1) / np.sqrt(draws)
    return {
        "joint_k": float(pareto_k(total)),
        "log_evidence": float(constant + log_mean),
        "log_evidence_error": float(error),
    }


def _batches(n: int, size: int) -> Iterator[NDArray[np.intp]]:
    step = max(1, BATCH // max(size, 1))
    for start in range(0, n, step):
        yield np.arange(start, min(start + step, n))
