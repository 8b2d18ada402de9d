"""Posteriors as arrays and back, one form for each field."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.families.base import Family
from ggpm.families.curvature import Blocks, Diagonal, Kronecker, RankOne
from ggpm.fields.base import Field
from ggpm.fields.dense import DenseField, DensePosterior
from ggpm.fields.inducing.posterior import InducingPosterior
from ggpm.fields.neighbours import Neighbours
from ggpm.fields.neighbours.field import NeighboursField
from ggpm.fields.neighbours.posterior import NeighboursPosterior
from ggpm.learning.fit import Fit, RowsNotStored
from ggpm.persistence.checks import take, text
from ggpm.persistence.packing import pack, require, unpack

CURVATURES = {c.__name__: c for c in (Diagonal, RankOne, Kronecker, Blocks)}
# Shapes of the curvatures' arrays in terms of n and D; a star marks those that may be absent.
SHAPES = {
    "Diagonal": {"gamma": "nD"},
    "RankOne": {"gamma": "nD", "omega": "nD", "rho": "n", "nu": "nD*", "gap": "n*"},
    "Kronecker": {"weight": "n", "matrix": "DD"},
    "Blocks": {"values": "nDD"},
}


def posterior_written(fit: Fit) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Entries of the document that tell of a fit's posterior, and its arrays."""
    posterior, field = fit.posterior, fit.evidence.field
    if isinstance(posterior, InducingPosterior):
        return {"posterior": "sparse", "curvature": None}, _sparse_arrays(posterior)
    entries = {"posterior": "exact", "curvature": type(posterior.U).__name__}
    if isinstance(posterior, NeighboursPosterior):
        near = {"kernels": [pack(kernel, "kernel") for kernel in posterior.near],
                "settings": pack(posterior.settings, "neighbours")}  # fmt: skip
        return entries | {"posterior": "neighbours", "neighbours": near}, _neighbours_arrays(posterior, field)
    return entries, _exact_arrays(posterior, field)


def posterior_restored(
    document: dict[str, Any], arrays: dict[str, NDArray], family: Family, kernels: list,
    known: Mapping[str, Mapping[str, type]],
) -> tuple[Any, Field]:  # fmt: skip
    """The posterior that a document tells of, and its rows; arrays that it uses are taken out."""
    form = document.get("posterior")
    if form == "sparse":
        return _sparse(arrays, family, kernels), RowsNotStored()
    if form == "neighbours":
        return _neighbours(document, arrays, family, kernels, known)
    return _exact(text(document, "curvature"), arrays, family, kernels)


def _exact_arrays(posterior: DensePosterior, field: Any) -> dict[str, NDArray]:
    arrays = {"X": posterior.X, "y": field.y, "z": posterior.z, "offset": field.offset}
    return arrays | _curvature_arrays(posterior.U)


def _curvature_arrays(U: Any) -> dict[str, NDArray]:
    if type(U) not in CURVATURES.values():
        raise TypeError(f"sites of type {type(U).__name__} cannot be saved in this version.")
    given = {field.name: getattr(U, field.name) for field in dataclasses.fields(U)}
    return {f"U.{name}": value for name, value in given.items() if value is not None}


def _exact(
    curvature: str, arrays: dict[str, NDArray], family: Family, kernels: list
) -> tuple[DensePosterior, DenseField]:
    X, y, z, offset = (take(arrays, name) for name in ("X", "y", "z", "offset"))
    require(X.ndim == 2 and z.ndim == 2 and len(X) > 0 and X.shape[1] > 0, "X and z must be matrices")
    n, D = z.shape
    require(len(X) == n and y.ndim > 0 and len(y) == n and offset.shape == (n, D), "X, y, z and offset must agree")
    require(family.latent_dim == D, f"the family must have {D} latent dimensions")
    U = _curvature(curvature, arrays, n, D)
    return DensePosterior(kernels, X, z, U), DenseField(X, y, offset)


def _curvature(name: str, arrays: dict[str, NDArray], n: int, D: int) -> Any:
    require(name in CURVATURES, f"unknown curvature {name!r}")
    sizes = {"n": n, "D": D}
    fields = {}
    for field, code in SHAPES[name].items():
        optional, shape = code.endswith("*"), tuple(sizes[c] for c in code.rstrip("*"))
        if optional and f"U.{field}" not in arrays:
            continue
        fields[field] = take(arrays, f"U.{field}", shape)
    return CURVATURES[name](**fields)


def _neighbours_arrays(posterior: NeighboursPosterior, field: Any) -> dict[str, NDArray]:
    rows = {"X": field.X, "y": field.y, "offset": field.offset}
    return rows | {"points": posterior.X, "f": posterior.f} | _curvature_arrays(posterior.U)


def _neighbours(
    document: dict[str, Any], arrays: dict[str, NDArray], family: Family, kernels: list,
    known: Mapping[str, Mapping[str, type]],
) -> tuple[NeighboursPosterior, NeighboursField]:  # fmt: skip
    X, y, offset, points, f = (take(arrays, name) for name in ("X", "y", "offset", "points", "f"))
    require(
        X.ndim == 2 and points.ndim == 2 and f.ndim == 2 and X.size > 0 and points.size > 0, "rows must be matrices"
    )
    (n, features), (N, D) = X.shape, f.shape
    require(points.shape == (N, features) and n >= N, "points and f must agree")
    require(y.ndim > 0 and len(y) == n and offset.shape == (n, D), "X, y and offset must agree")
    require(family.latent_dim == D, f"the family must have {D} latent dimensions")
    U = _curvature(text(document, "curvature"), arrays, N, D)
    about: Any = document.get("neighbours")
    require(isinstance(about, dict) and isinstance(about.get("kernels"), list), "neighbours must be described")
    near = [unpack(kernel, known) for kernel in about["kernels"]]
    settings = unpack(about.get("settings"), known)
    require(all(isinstance(kernel, sk.Kernel) for kernel in near) and bool(near), "neighbours need kernels")
    require(isinstance(settings, Neighbours) and settings.nugget is not None, "neighbours need settings")
    return NeighboursPosterior(kernels, points, f, U, settings, near), NeighboursField(X, y, offset, settings, near)


def _sparse_arrays(posterior: InducingPosterior) -> dict[str, NDArray]:
    factors = {f"L{j}": L for j, L in enumerate(posterior.L)}
    return {"Z": posterior.Z, "v": posterior.v, "P": posterior.P, **factors}


def _sparse(arrays: dict[str, NDArray], family: Family, kernels: list) -> InducingPosterior:
    Z, v = take(arrays, "Z"), take(arrays, "v")
    require(Z.ndim == 2 and v.ndim == 2 and Z.size > 0 and len(Z) == v.shape[1], "Z and v must agree")
    D, M = v.shape
    require(family.latent_dim == D, f"the family must have {D} latent dimensions")
    P = take(arrays, "P", (D, M, D, M))
    L = [np.asfortranarray(take(arrays, f"L{j}", (M, M))) for j in range(len(kernels))]
    return InducingPosterior(kernels, Z, L, v, P)
