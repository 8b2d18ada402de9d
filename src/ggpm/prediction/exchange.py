"""Fitted models for ArviZ: draws, log-likelihoods and data in the form that its functions take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import check_whole
from ggpm.families.base import Family
from ggpm.families.between import BEYOND
from ggpm.families.censored import Censored
from ggpm.families.weighted import unweighted
from ggpm.fields.base import Approximation
from ggpm.fields.dense.field import DenseProcess
from ggpm.fields.neighbours.field import NeighboursProcess
from ggpm.prediction.terms import EXPLICIT_MOST, joint_draws, root_of

__all__ = ["own_draws", "to_arviz"]

Array = NDArray[np.float64]

# names of variables and axes, which columns of X get another for
OWN = ("eta", "mean", "y", "y_lower", "y_upper", "row", "latent")


@dataclass(frozen=True)
class Drawn:
    """Rows whose latents were drawn: what was observed there, and under which family."""

    family: Family
    eta: Array
    """Draws of the latent, offset included, (size, n, D)."""
    y: Array | None
    """Encoded y, or None for rows without."""
    inputs: Mapping[str, NDArray]
    """Columns of X by name."""
    trials: Array | None = None


def own_draws(approximation: Approximation, size: int, rng: np.random.Generator) -> Array:
    """Draws of the latents of the training rows, joint over them, (size, n, D), without the offset.

    On a dense field they have the rows' own noise, which draws at new rows of the same inputs have not.

    >>> from ggpm import GGPRegressor
    >>> model = GGPRegressor("poisson", optimizer=None).fit(np.arange(5.0)[:, None], np.arange(5))
    >>> own_draws(model.fit_.approximate(), 3, np.random.default_rng(0)).shape
    (3, 5, 1)
    """
    a, q = approximation, approximation.q
    if isinstance(a.process, NeighboursProcess):
        return q.mean + q.precision.draw(size, rng)[a.process.layout.place].swapaxes(0, 1)
    assert isinstance(a.process, DenseProcess)
    n, D = a.process.shape
    if n * D <= EXPLICIT_MOST or not q.U.semidefinite().all():
        root = root_of(q.solution.sensitivity().covariance().reshape(n * D, n * D))
        return q.mean + (rng.standard_normal((size, root.shape[1])) @ root.T).reshape(size, n, D)
    roots = [root_of(K) for K in a.process.K]
    w, Q = np.linalg.eigh(q.U.dense())
    site_root = Q * np.sqrt(np.maximum(w, 0.0))[:, None, :]
    out = np.empty((size, n, D))
    for s in range(size):  # Matheron's rule, as in `joint_draws`
        g = np.stack([r @ rng.standard_normal(r.shape[1]) for r in (roots * D if len(roots) == 1 else roots)], axis=1)
        e = np.einsum("njk,nk->nj", site_root, rng.standard_normal((n, D)))
        out[s] = q.mean + g - a.process.K.dot(q.solution.solve(q.U.dot(g) + e))
    return out


def _exported(rows: Drawn, chains: int, rng: np.random.Generator, facts: Mapping[str, str]) -> Any:
    """ArviZ's object of rows: groups posterior, posterior_predictive, log_likelihood, observed_data, constant_data."""
    try:
        import arviz
    except ImportError:
        raise ImportError("to_arviz needs ArviZ. Try: pip install 'ggpm[arviz]'") from None

    def chained(values: Array) -> Array:
        return np.asarray(values).reshape(chains, -1, *np.shape(values)[1:])

    eta, family = rows.eta, rows.family
    drawn = family.sample(eta, rng, rows.trials)
    groups: dict[str, Any] = {
        "posterior": {"eta": chained(eta), "mean": chained(family.moment(eta))},
        "posterior_predictive": {"y": chained(drawn)},
        "constant_data": dict(rows.inputs),
    }
    if rows.y is not None:
        y, observed = rows.y, np.asarray(family.decode(rows.y))
        if isinstance(family, Censored):
            lower, upper = np.where(np.abs(observed) == BEYOND, np.copysign(np.inf, observed), observed).T
            known = np.where(lower == upper, lower, np.nan)
            groups["observed_data"] = {"y": known, "y_lower": lower, "y_upper": upper}
        else:
            groups["observed_data"] = {"y": observed if observed.shape == drawn.shape[1:] else y[:, 0]}  # successes
        with np.errstate(over="ignore", invalid="ignore"):
            groups["log_likelihood"] = {"y": chained(family.log_prob(eta, y))}
    dims = {"eta": ["row", "latent"]} | {name: ["row"] for name in ("mean", "y", "y_lower", "y_upper")}
    dims |= {name: ["row"] for name in rows.inputs}
    coords = {"row": np.arange(eta.shape[1]), "latent": np.arange(eta.shape[2])}
    # groups are keywords before version 1, which answers `InferenceData` still, with a warning
    keywords = "posterior" in signature(arviz.from_dict).parameters
    given = groups if keywords else {"data": groups}
    found = arviz.from_dict(**given, coords=coords, dims=dims)
    found.attrs.update(facts)
    return found


def _drawn(model: Any, X: Any, y: Any, offset: Any, size: int, rng: np.random.Generator) -> Drawn:
    """Draws at the training rows, or at the rows of X."""
    fit, field = model.fit_, model.fit_.evidence.field
    encoded: Array | None
    if X is None:
        if y is not None or offset is not None:
            raise ValueError("y and offset go with X: to_arviz(X, y). Without X they are those of the training rows.")
        if not hasattr(field, "y"):
            raise ValueError("the training rows are not in memory: pass them, to_arviz(X, y).")
        a = fit.approximate()
        family, encoded = unweighted(a.process.problem.family, a.process.problem.y)
        inner, eta = field.X, own_draws(a, size, rng) + a.process.problem.offset
    else:
        mean, _ = model.predict_latent(X, offset=offset)
        family, encoded = fit.family, None if y is None else fit.family.encode(model.codes(y))
        if encoded is not None and len(encoded) != len(mean):
            raise ValueError(f"X and y must have the same rows; got {len(mean)} and {len(encoded)}.")
        inner = fit.columns.encode(X)
        eta = joint_draws(model.posterior_, inner, size, rng) + (mean - model.posterior_.latent(inner)[0])
    shown = fit.columns.decode(inner)
    names = fit.columns.names or [f"x{j}" for j in range(fit.columns.count)]
    inputs = {
        given: np.asarray(shown[:, j] if isinstance(shown, np.ndarray) else shown[name])
        for j, (name, given) in enumerate(zip(names, _renamed(names)))
    }
    trials = encoded.sum(axis=-1) if family.countable and encoded is not None else None
    return Drawn(family, eta, encoded, inputs, trials)


def _renamed(names: Sequence[str]) -> list[str]:
    """Names of columns beside variables and axes of ours: "y" is "x_y", and "x_x_y" where "x_y" is taken.

    >>> _renamed(["y", "x_y", "a"])
    ['x_x_y', 'x_y', 'a']
    """
    taken, out = set(OWN) | set(names), []
    for name in names:
        if name in OWN:
            while name in taken:
                name = f"x_{name}"
            taken.add(name)
        out.append(name)
    return out


def to_arviz(model: Any, X: Any, y: Any, offset: Any, draws: int, chains: int, random_state: Any) -> Any:
    """What the method of estimators gives, which says more of it.

    >>> from ggpm import GGPRegressor
    >>> model = GGPRegressor("poisson", optimizer=None).fit(np.arange(5.0)[:, None], np.arange(5))
    >>> to_arviz(model, None, None, None, 10, 2, 0).observed_data["y"].values
    array([0., 1., 2., 3., 4.])
    """
    check_whole(draws, "draws", 1)
    check_whole(chains, "chains", 1)
    rng = np.random.default_rng(random_state)
    rows = _drawn(model, X, y, offset, draws * chains, rng)
    fit = model.fit_
    facts = {
        "family": type(fit.family).__name__,
        "kernel": "; ".join(map(repr, fit.kernels)),
        "inference_library": "ggpm",
        "inference": type(fit.rule).__name__.lower(),
    }
    if hasattr(model, "classes_"):
        facts["classes"] = ", ".join(map(str, model.classes_))
    return _exported(rows, chains, rng, facts)
