"""Is the Gaussian posterior good enough? Importance weights from it to the posterior that it stands for.

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
BATCH = 2_000_000  # numbers of a batch of rows: some ten arrays of 16 MB
# Weights whose effective number is above 95 % of the draws move no average by more than a quarter of its standard
# deviation (Cauchy and Schwarz: by at most sqrt(1/0.95 - 1) = 0.23), whatever the shape of their tail; near a good
# variational Gaussian they are nearly alike, and k̂ tells the shape of next to nothing. Below 90 % they warn even with a
# light tail. Measured on 42 rows with quadrature (tests/test_diagnosis.py): probabilities were off by 0.047 to 0.45 in
# the rows that warn, by 0.025 at most in the others; against NUTS: docs/comparison.md.
ALIKE, UNLIKE = 0.95, 0.90


@dataclass(frozen=True)
class Diagnosis:
    """Importance weights from the Gaussian posterior to the exact one, row by row and together."""

    k: Array
    """Pareto k̂ of every row's weights, (n,)."""
    effective: Array
    """Effective share of the draws of every row, (n,): one if its Gaussian is exact."""
    moved: Array
    """Standard deviations by which the weights move the row's latent mean, (n,): the largest over latents."""
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
        """Rows whose Gaussian is not to be trusted: the weights vary, and have a heavy tail or vary much."""
        heavy = ~(self.k <= most_k(self.draws)) & (self.effective < ALIKE)
        return heavy | ~(self.effective >= UNLIKE)

    def to_frame(self) -> Any:
        """One line for every row: k, effective, moved, warns."""
        columns = {"k": self.k, "effective": self.effective, "moved": self.moved, "warns": self.warns}
        return frames.require("pandas").DataFrame(columns)

    def __repr__(self) -> str:
        n = len(self.k)
        lines = [
            f"{self.warns.sum()} of {n} rows warn: their Gaussian is not to be trusted (k̂ > {most_k(self.draws):.2g} "
            f"with weights that vary, or less than {UNLIKE:.0%} of the draws effective).",
            f"largest k̂ {np.nanmax(self.k, initial=-np.inf):.2f}, least effective share {self.effective.min():.2f}, "
            f"largest move {self.moved.max():.2f} standard deviations.",
        ]
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
    k, effective, moved = np.empty(n), np.empty(n), np.empty(n)
    root = cholesky_root(rows.cov)
    for part in _batches(n, draws * D):
        d = np.einsum("ijk,sik->sij", root[part], rng.standard_normal((draws, len(part), D)))
        log_r = rows.log_ratio(d, part)
        k[part] = pareto_k(log_r)
        w = np.exp(log_r - logsumexp(log_r, axis=0))
        effective[part] = 1.0 / (draws * np.sum(w * w, axis=0))
        sd = np.sqrt(np.einsum("njj->nj", rows.cov[part]))
        # against the plain mean of the same draws: what chance moves both by is no error
        away = np.einsum("si,sij->ij", w - 1.0 / draws, d)
        moved[part] = np.max(np.abs(away) / np.where(sd > 0, sd, 1.0), axis=1)
    joint = {}
    if isinstance(a.process, DenseProcess) and n * D <= JOINT_MOST:
        joint = _together(a, rows, draws, rng)
    return Diagnosis(k, effective, moved, draws, approximate_log_evidence=a.log_evidence, **joint)


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
