"""Terms: what each summand of the kernel says of the latent, and draws that hang together between rows.

A sum of kernels is a sum of independent processes, f = sum_s f_s. Given the sites, each is Gaussian too:

    E[f_s(x*)] = k_s(x*, X) z,        Var[f_s(x*)] = k_s(x*, x*) - k_s(x*, X) (K + W)^-1 k_s(X, x*),

with the z and W of the whole, so that the means add up. Draws over many rows follow Matheron's rule: with a draw
(g, g*) of the prior at old and new rows and e ~ N(0, W), ``m* + g* - K*^T (K + W)^-1 (g + e)`` is one of the posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.data.rows import batches
from ggpm.fields.dense import DensePosterior, KernelMatrices
from ggpm.fields.dense.matrices import kernel_of
from ggpm.fields.inducing.posterior import InducingPosterior
from ggpm.fields.neighbours.posterior import NeighboursPosterior
from ggpm.kernels import Category, On, Scaled, evaluate, summands, used_columns
from ggpm.kernels.columns import listed
from ggpm.kernels.linalg import solve_lower
from ggpm.prediction.averages import by_rows
from ggpm.prediction.paths import prior_draws, root_of

__all__ = [
    "joint_covariance",
    "joint_draws",
    "mixed_terms",
    "root_of",
    "term_columns",
    "term_names",
    "term_shares",
    "terms",
    "varied",
]

Array = NDArray[np.float64]

EXPLICIT_MOST = 1000  # latents of all new rows up to which their joint covariance is formed: one solve for each


# ---- terms -----------------------------------------------------------------------------------------------------------
def terms(posterior: Any, X: Array) -> dict[str, tuple[Array, Array]]:
    """Mean and standard deviation (m, D) of every summand of the kernels at encoded rows, by name.

    Summands of the same name under different latents are one term.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from ggpm import GGPRegressor
    >>> X = np.arange(4.0)[:, None]
    >>> model = GGPRegressor("poisson", RBF() + ConstantKernel(), optimizer=None).fit(X, np.arange(4))
    >>> len(terms(model.posterior_, X))
    2
    """
    of_field = {DensePosterior: _dense_term, InducingPosterior: _inducing_term, NeighboursPosterior: _neighbours_term}
    term: Any = of_field[type(posterior)]
    lists = [dict(zip(term_names(kernel), summands(kernel))) for kernel in posterior.kernels]
    found = {}
    for name in dict.fromkeys(name for parts in lists for name in parts):
        none = sk.ConstantKernel(0.0, "fixed")  # of a latent whose kernel has no such summand
        parts = [members.get(name, none) for members in lists]
        mean, var = term(posterior, parts, X)
        found[name] = mean, np.sqrt(np.maximum(var, 0.0))  # a variance is never negative: what is below is rounding
    return found


def mixed_terms(weights: Array, found: Sequence[dict[str, tuple[Array, Array]]]) -> dict[str, tuple[Array, Array]]:
    """Mean and standard deviation of terms under an average of models; a term that a model lacks is zero there.

    >>> one, two = {"a": (np.ones((1, 1)), np.zeros((1, 1)))}, {"b": (np.ones((1, 1)), np.zeros((1, 1)))}
    >>> [(name, mean.item(), sd.item()) for name, (mean, sd) in mixed_terms([0.5, 0.5], [one, two]).items()]
    [('a', 0.5, 0.5), ('b', 0.5, 0.5)]
    """
    out = {}
    for name in dict.fromkeys(name for terms_ in found for name in terms_):
        pairs = [(w, *terms_[name]) for w, terms_ in zip(weights, found) if name in terms_]
        mean = np.sum([by_rows(w, m) for w, m, _ in pairs], axis=0)
        square = np.sum([by_rows(w, s * s + m * m) for w, m, s in pairs], axis=0)
        out[name] = pairs[0][1:] if len(found) == 1 else (mean, np.sqrt(np.maximum(square - mean * mean, 0.0)))
    return out


def _dense_term(p: DensePosterior, parts: list[sk.Kernel], X: Array) -> tuple[Array, Array]:
    K = KernelMatrices([np.asfortranarray(evaluate(k, p.X, X).K) for k in parts])
    D = p.z.shape[1]
    mean = np.stack([K.of(j).T @ p.z[:, j] for j in range(D)], axis=1)
    prior = np.stack([np.broadcast_to(k.diag(X), len(X)) for k in parts], axis=1)
    return mean, prior - np.einsum("mjj->mj", p.solution.reduction(K))


def _inducing_term(p: InducingPosterior, parts: list[sk.Kernel], X: Array) -> tuple[Array, Array]:
    D = len(p.v)
    mean, var = np.empty((len(X), D)), np.empty((len(X), D))
    for j in range(D):
        k = kernel_of(j, len(parts))
        a = solve_lower(p.L[k], evaluate(parts[k], X, p.Z).K.T).T
        mean[:, j] = a @ p.v[j]
        aP = a @ p.P[j, :, j]
        var[:, j] = parts[k].diag(X) - np.sum(a * a, axis=1) + np.sum(aP * a, axis=1)
    return mean, var


def _neighbours_term(p: NeighboursPosterior, parts: list[sk.Kernel], X: Array) -> tuple[Array, Array]:
    """From all training rows, because the nearest alone know little of slow terms: one solve for each row.

    With ``K^-1 = Q`` and ``P = Q + U``, z = Q m and ``(K + W)^-1 = Q - Q P^-1 Q``.
    """
    precision, D = p.precision, p.f.shape[1]
    of = [precision.priors[kernel_of(j, len(precision.priors))] for j in range(D)]
    z = np.stack([of[j].dot(p.f[:, j]) for j in range(D)], axis=1)
    mean, var = np.empty((len(X), D)), np.empty((len(X), D))
    for rows in batches(len(X), len(p.X)):
        for j in range(D):
            part = parts[kernel_of(j, len(parts))]
            k = evaluate(part, p.X, X[rows]).K
            Qk = of[j].dot(k)
            mean[rows, j] = k.T @ z[:, j]
            var[rows, j] = part.diag(X[rows]) - np.sum(k * Qk, axis=0)
            right = np.zeros((len(p.X), D))
            for i, column in enumerate(Qk.T):
                right[:, j] = column
                var[rows.start + i, j] += column @ precision.solve(right)[:, j]
    return mean, var


def varied(posterior: Any, name: str) -> Any:
    """The posterior for rows of twice as many columns: this term sees the first half, all others the second.

    So one term can move while the others stay where they are, with the covariances between them.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from ggpm import GGPRegressor
    >>> X = np.arange(4.0)[:, None]
    >>> posterior = GGPRegressor("poisson", RBF() + ConstantKernel(), optimizer=None).fit(X, np.arange(4)).posterior_
    >>> moved = varied(posterior, "RBF").latent(np.hstack([X, 0 * X]))[0]
    >>> np.allclose(moved, posterior.latent(X)[0])  # the constant, which stays, is the same everywhere
    True
    """
    if not isinstance(posterior, DensePosterior | InducingPosterior):
        raise ValueError(f"single terms are moved in dense and inducing posteriors; got {type(posterior).__name__}.")
    count = posterior.inputs.shape[1]
    first, second = list(range(count)), list(range(count, 2 * count))
    kernels = [
        reduce(add, [On(part, first if told == name else second) for told, part in zip(term_names(k), summands(k))])
        for k in posterior.kernels
    ]
    twice = np.hstack([posterior.inputs, posterior.inputs])
    if isinstance(posterior, InducingPosterior):
        return replace(posterior, kernels=kernels, Z=twice)
    return DensePosterior(kernels, twice, posterior.z, posterior.U, posterior.solution)


def term_columns(
    posterior: Any, seen: Callable[[Sequence[sk.Kernel], int], NDArray[np.bool_]] = used_columns
) -> dict[str, NDArray[np.bool_]]:
    """Terms that vary over rows, with masks of the columns that they look at, or look at as ``seen`` says.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from ggpm import GGPRegressor
    >>> X = np.arange(4.0)[:, None]
    >>> model = GGPRegressor("poisson", RBF() + ConstantKernel(), optimizer=None).fit(X, np.arange(4))
    >>> term_columns(model.posterior_)
    {'RBF': array([ True])}
    """
    count = posterior.inputs.shape[1]
    found: dict[str, NDArray[np.bool_]] = {}
    for kernel in posterior.kernels:
        for name, part in zip(term_names(kernel), summands(kernel)):
            found[name] = found.get(name, np.zeros(count, dtype=bool)) | seen([part], count)
    return {name: mask for name, mask in found.items() if mask.any()}


def term_means(posterior: Any, X: Array) -> dict[str, Array]:
    """Means of the terms alone, (m, D) each: they cost no solve for every row."""
    many = len(posterior.kernels)
    if isinstance(posterior, InducingPosterior):
        known, L = posterior.Z, posterior.L
        z = np.stack(
            [solve_lower(L[kernel_of(j, many)], v, transposed=True) for j, v in enumerate(posterior.v)], axis=1
        )
    elif isinstance(posterior, NeighboursPosterior):
        known, priors = posterior.X, posterior.precision.priors
        columns = enumerate(posterior.f.T)
        z = np.stack([priors[kernel_of(j, len(priors))].dot(f) for j, f in columns], axis=1)
    else:
        known, z = posterior.X, posterior.z
    D = z.shape[1]
    found: dict[str, Array] = {}
    for j in range(D):
        kernel = posterior.kernels[kernel_of(j, many)]
        for name, part in zip(term_names(kernel), summands(kernel)):
            mean = found.setdefault(name, np.zeros((len(X), D)))
            for rows in batches(len(X), len(known)):
                mean[rows, j] = evaluate(part, known, X[rows]).K.T @ z[:, j]
    return found


def term_shares(posterior: Any, X: Array) -> dict[str, Array]:
    """Share of each term in the variance of the latent's mean over the rows, (D,) each, of the sum of their own.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from ggpm import GGPRegressor
    >>> X = np.arange(4.0)[:, None]
    >>> model = GGPRegressor("poisson", RBF() + ConstantKernel(), optimizer=None).fit(X, np.arange(4))
    >>> term_shares(model.posterior_, X)
    {'RBF': array([1.]), 'constant': array([0.])}
    """
    varies = term_columns(posterior)  # a constant does not, but for the rounding of its mean
    found = {name: mean.var(axis=0) * (name in varies) for name, mean in term_means(posterior, X).items()}
    total = np.sum(list(found.values()), axis=0)
    return {name: var / np.where(total > 0, total, 1.0) for name, var in found.items()}


def term_names(kernel: sk.Kernel) -> list[str]:
    """Short names of the summands, each once: what kind of kernel on which columns, constants left out.

    >>> term_names(2.0 * On(sk.RBF(), "hour") * Category("station") + sk.WhiteKernel() + sk.ConstantKernel())
    ['RBF(hour) × Category(station)', 'noise', 'constant']
    """
    names: list[str] = []
    for part in summands(kernel):
        name = plain = " × ".join(_factors(part, None)) or "constant"
        count = 1
        while name in names:
            count += 1
            name = f"{plain} ({count})"
        names.append(name)
    return names


def _factors(kernel: sk.Kernel, on: Any) -> list[str]:
    """Names of the factors of a product."""
    if isinstance(kernel, sk.Product):
        return [*_factors(kernel.k1, on), *_factors(kernel.k2, on)]
    if isinstance(kernel, sk.ConstantKernel):
        return []
    if isinstance(kernel, sk.WhiteKernel):
        return ["noise"]
    if isinstance(kernel, On):
        return _factors(kernel.kernel, kernel.columns)
    if isinstance(kernel, Scaled):
        return _factors(kernel.kernel, on)
    columns = kernel.columns if isinstance(kernel, Category) else on
    if columns is None:
        return [type(kernel).__name__]
    return [f"{type(kernel).__name__}({', '.join(map(str, listed(columns)))})"]


# ---- joint draws -----------------------------------------------------------------------------------------------------
def joint_covariance(posterior: Any, X: Array) -> Array:
    """Covariance of the latents of all rows, (m, D, m, D).

    >>> from ggpm import GGPRegressor
    >>> X = np.arange(4.0)[:, None]
    >>> joint_covariance(GGPRegressor("poisson", optimizer=None).fit(X, np.arange(4)).posterior_, X).shape
    (4, 1, 4, 1)
    """
    m = len(X)
    prior = [evaluate(k, X).K for k in posterior.kernels]
    if isinstance(posterior, InducingPosterior):
        D = len(posterior.v)
        A = [solve_lower(L, evaluate(k, X, posterior.Z).K.T).T for k, L in zip(posterior.kernels, posterior.L)]
        out = np.empty((m, D, m, D))
        for j in range(D):
            a = A[kernel_of(j, len(A))]
            for k in range(D):
                out[:, j, :, k] = a @ posterior.P[j, :, k] @ A[kernel_of(k, len(A))].T
            out[:, j, :, j] += prior[kernel_of(j, len(A))] - a @ a.T
        return out
    K = KernelMatrices([evaluate(k, posterior.X, X).K for k in posterior.kernels])
    n, D = posterior.z.shape
    out = KernelMatrices(prior).dense(D)
    for i in range(m):
        for j in range(D):
            b = np.zeros((n, D))
            b[:, j] = K.of(j)[:, i]
            solved = posterior.solution.solve(posterior.U.dot(b))  # (K + W)^-1 b, as (I + U K)^-1 U = (K + W)^-1
            for k in range(D):
                out[:, k, i, j] -= K.of(k).T @ solved[:, k]
    return 0.5 * (out + out.transpose(2, 3, 0, 1))


def joint_draws(posterior: Any, X: Array, size: int, rng: np.random.Generator) -> Array:
    """Draws of the latent, joint over the rows, (size, m, D); exact however they are made.

    From the joint covariance for few rows, from draws of the prior (Matheron's rule, pathwise conditioning) for many,
    which need no matrix of all rows where the kernel is smooth (`ggpm.prediction.paths`); with neighbours row by row,
    each given its nearest.

    >>> from ggpm import GGPRegressor
    >>> X = np.arange(4.0)[:, None]
    >>> model = GGPRegressor("poisson", optimizer=None).fit(X, np.arange(4))
    >>> joint_draws(model.posterior_, X, 3, np.random.default_rng(0)).shape
    (3, 4, 1)
    """
    if isinstance(posterior, NeighboursPosterior):
        return posterior.draw(X, size, rng)
    m, D = len(X), posterior.latent(X[:1])[0].shape[1]
    if m * D <= EXPLICIT_MOST:
        mean = posterior.latent(X)[0]
        root = root_of(joint_covariance(posterior, X).reshape(m * D, m * D))
        return mean + (rng.standard_normal((size, root.shape[1])) @ root.T).reshape(size, m, D)
    if isinstance(posterior, InducingPosterior):
        return _inducing_paths(posterior, X, size, rng)
    if not posterior.U.semidefinite().all():
        raise ValueError(
            f"joint draws over {m} rows need sites of positive precision: take inference='variational', fewer rows "
            "at a time, or joint=False."
        )
    return _dense_paths(posterior, X, size, rng)


def _dense_paths(p: DensePosterior, X: Array, size: int, rng: np.random.Generator) -> Array:
    n, D = p.z.shape
    priors = [prior_draws(k, np.concatenate([p.X, X])) for k in p.kernels]
    w, Q = np.linalg.eigh(p.U.dense())
    site_root = Q * np.sqrt(np.maximum(w, 0.0))[:, None, :]
    out, corrections = np.empty((size, len(X), D)), np.empty((size, n, D))
    for s in range(size):
        g = np.stack([priors[kernel_of(j, len(priors))].draw(rng) for j in range(D)], axis=1)
        e = np.einsum("njk,nk->nj", site_root, rng.standard_normal((n, D)))  # U e for e ~ N(0, W)
        corrections[s] = p.z - p.solution.solve(p.U.dot(g[:n]) + e)
        out[s] = g[n:]
    for rows in batches(len(X), n):
        K = KernelMatrices([evaluate(k, p.X, X[rows]).K for k in p.kernels])
        for j in range(D):
            out[:, rows, j] += corrections[:, :, j] @ K.of(j)
    return out


def _inducing_paths(p: InducingPosterior, X: Array, size: int, rng: np.random.Generator) -> Array:
    """``g* + K_*u K_uu^-1 (u - g_u)`` for draws (g_u, g*) of the prior and u of the posterior."""
    D, M = p.v.shape
    priors = [prior_draws(k, np.concatenate([p.Z, X])) for k in p.kernels]
    # what was added to the diagonal of K_uu, which has no noise of rows, is noise of the inducing values
    shared = [np.sum(prior.root[:M] ** 2, axis=1) for prior in priors]
    jitter = [np.sqrt(np.maximum(np.sum(np.tril(L) ** 2, axis=1) - k, 0.0)) for k, L in zip(shared, p.L)]
    root = root_of(p.P.reshape(D * M, D * M))
    out, corrections = np.empty((size, len(X), D)), np.empty((size, M, D))
    for s in range(size):
        u = p.v + (root @ rng.standard_normal(root.shape[1])).reshape(D, M)
        for j in range(D):
            k = kernel_of(j, len(p.kernels))
            g = priors[k].draw(rng, noisy_from=M)
            own = g[:M] + jitter[k] * rng.standard_normal(M)
            corrections[s, :, j] = solve_lower(p.L[k], u[j] - solve_lower(p.L[k], own), transposed=True)
            out[s, :, j] = g[M:]
    for rows in batches(len(X), M):
        for j in range(D):
            kernel = p.kernels[kernel_of(j, len(p.kernels))]
            out[:, rows, j] += corrections[:, :, j] @ evaluate(kernel, p.Z, X[rows]).K
    return out
