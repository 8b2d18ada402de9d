"""Kernels taken apart, and the columns of a fit: terms, which columns each of them looks at, and where these are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as sk

from ggpm.data.columns import Columns
from ggpm.kernels.columns import Category, Cyclic, On, Sphere, listed
from ggpm.kernels.pullbacks import NODES
from ggpm.kernels.scaled import Scaled

__all__ = ["category_columns", "factors", "idle", "placed", "summands", "used_columns", "without_column"]


def placed(kernel: sk.Kernel, columns: Columns) -> sk.Kernel:
    """The kernel with the columns that it names found in X; what does not go together is an error.

    >>> placed(On(sk.RBF(), "hour"), Columns(2, ("station", "hour"))).at
    (1,)
    """
    if isinstance(kernel, On):
        at = tuple(columns.position(name) for name in listed(kernel.columns))
        if not at:
            raise ValueError(f"{kernel!r} looks at no column.")
        return On(placed(kernel.kernel, columns.part(at)), kernel.columns, at)
    if isinstance(kernel, Scaled):
        return kernel.around(placed(kernel.kernel, columns))
    if isinstance(kernel, Category):
        return kernel.of_columns(kernel.columns, tuple(columns.position(name) for name in listed(kernel.columns)))
    if type(kernel) in (sk.Sum, sk.Product):
        return type(kernel)(placed(kernel.k1, columns), placed(kernel.k2, columns))
    if type(kernel) is sk.Exponentiation:
        return sk.Exponentiation(placed(kernel.kernel, columns), kernel.exponent)
    if type(kernel) in NODES and looks(kernel):
        labelled = [columns.called(j) for j, kind in enumerate(columns.kinds) if kind == "category"]
        if labelled:
            raise ValueError(
                f"{kernel!r} looks at every column, but {', '.join(labelled)} holds labels, which have no distances. "
                "Choose its columns with On(kernel, columns) and give labels a Category(column), both from "
                "ggpm.kernels; kernel=None makes such parts by itself."
            )
    return kernel


def looks(kernel: sk.Kernel) -> bool:
    """Whether a simple kernel looks at X at all: constants and white noise do not."""
    return not isinstance(kernel, sk.ConstantKernel | sk.WhiteKernel)


def leaves(kernel: sk.Kernel, at: Sequence[int]) -> Iterator[tuple[sk.Kernel, list[int]]]:
    """Simple kernels inside a placed one, each with the numbers of the columns that it is given."""
    if isinstance(kernel, On | Category):
        inner = [at[int(j)] for j in (listed(kernel.columns) if kernel.at is None else kernel.at)]
        yield from [(kernel, inner)] if isinstance(kernel, Category) else leaves(kernel.kernel, inner)
    elif isinstance(kernel, sk.KernelOperator):
        yield from leaves(kernel.k1, at)
        yield from leaves(kernel.k2, at)
    elif isinstance(kernel, sk.Exponentiation | Scaled):
        yield from leaves(kernel.kernel, at)
    else:
        yield kernel, list(at)


def used_columns(kernels: Sequence[sk.Kernel], count: int) -> NDArray[np.bool_]:
    """Mask of the columns that some kernel looks at.

    >>> used_columns([On(sk.RBF(), [2, 0]) + Category(3) + sk.WhiteKernel()], 5)
    array([ True, False,  True,  True, False])
    """
    return _mask((at for k in kernels for leaf, at in leaves(k, range(count)) if looks(leaf)), count)


def category_columns(kernels: Sequence[sk.Kernel], count: int) -> NDArray[np.bool_]:
    """Mask of the columns whose values are groups to some kernel: means of them would be no groups.

    >>> category_columns([On(sk.RBF(), 0) * Category(2)], 3)
    array([False, False,  True])
    """
    return _mask((at for k in kernels for leaf, at in leaves(k, range(count)) if isinstance(leaf, Category)), count)


def _mask(groups: Iterable[list[int]], count: int) -> NDArray[np.bool_]:
    out = np.zeros(count, dtype=bool)
    for at in groups:
        out[at] = True
    return out


def summands(kernel: sk.Kernel) -> list[sk.Kernel]:
    """The parts of a sum, with products over sums multiplied out no further.

    >>> summands(2.0 * sk.RBF() + Category(0) + sk.WhiteKernel())
    [1.41**2 * RBF(length_scale=1), Category(0), WhiteKernel(noise_level=1)]
    """
    return [*summands(kernel.k1), *summands(kernel.k2)] if isinstance(kernel, sk.Sum) else [kernel]


def factors(kernel: sk.Kernel) -> list[sk.Kernel]:
    """The parts of a product.

    >>> factors(2.0 * sk.RBF())
    [1.41**2, RBF(length_scale=1)]
    """
    return [*factors(kernel.k1), *factors(kernel.k2)] if isinstance(kernel, sk.Product) else [kernel]


def idle(kernel: sk.Kernel, gone: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of the entries of theta that nothing depends on: of functions whose variance is ``gone``, a mask too.

    >>> kernel = sk.ConstantKernel() * sk.RBF() + sk.ConstantKernel() * sk.Matern()
    >>> idle(kernel, np.array([True, False, False, False]))
    array([ True,  True, False, False])
    """
    if _vanishes(kernel, gone):
        return np.ones(gone.size, dtype=bool)
    if isinstance(kernel, sk.KernelOperator):
        first = kernel.k1.n_dims
        return np.concatenate([idle(kernel.k1, gone[:first]), idle(kernel.k2, gone[first:])])
    return np.zeros(gone.size, dtype=bool)


def _vanishes(kernel: sk.Kernel, gone: NDArray[np.bool_]) -> bool:
    """Whether the whole kernel is nothing where some of its variances are."""
    if isinstance(kernel, sk.KernelOperator):
        first = kernel.k1.n_dims
        parts = _vanishes(kernel.k1, gone[:first]), _vanishes(kernel.k2, gone[first:])
        return any(parts) if isinstance(kernel, sk.Product) else all(parts)
    if isinstance(kernel, On | Scaled | sk.Exponentiation):
        return _vanishes(kernel.kernel, gone)
    return isinstance(kernel, sk.ConstantKernel) and bool(gone.any())


def without_column(kernel: sk.Kernel, count: int, j: int) -> sk.Kernel:
    """A placed kernel of ``count`` columns that no longer looks at one of them; the others keep what was learned.

    A factor that looks at nothing else is left out of its product, a summand of its sum.

    >>> without_column(2.0 * sk.RBF([1.0, 3.0]) + Category(0), 2, 0)
    1.41**2 * On(RBF(length_scale=3), [1])
    """
    found = _without(kernel, list(range(count)), j)
    return sk.ConstantKernel(1.0, "fixed") if found is None else found


def _without(kernel: sk.Kernel, at: list[int], j: int) -> sk.Kernel | None:
    """The kernel on the columns ``at`` without column j of all, on all columns; None where nothing is left."""
    if isinstance(kernel, On):
        return _without(kernel.kernel, [at[i] for i in _places(kernel)], j)
    if isinstance(kernel, Category):
        places = [at[i] for i in _places(kernel)]
        keep = [i for i, column in enumerate(places) if column != j]
        left = [places[i] for i in keep]
        return kernel.of_columns(left, tuple(left), keep) if left else None
    if isinstance(kernel, sk.Sum):
        parts = [part for part in (_without(k, at, j) for k in (kernel.k1, kernel.k2)) if part is not None]
        return sk.Sum(*parts) if len(parts) == 2 else next(iter(parts), None)
    if isinstance(kernel, sk.Product):
        found = [_without(k, at, j) for k in factors(kernel)]
        left_over = [factor for factor in found if factor is not None]
        seeing = any(looks(leaf) for factor in left_over for leaf, _ in leaves(factor, range(1 + max([j, *at]))))
        if len(left_over) < len(found) and not seeing:
            return None  # a variance times nothing
        return reduce(sk.Product, left_over)
    if isinstance(kernel, sk.Exponentiation):
        inner = _without(kernel.kernel, at, j)
        return None if inner is None else sk.Exponentiation(inner, kernel.exponent)
    if not looks(kernel):
        return kernel
    keep = [i for i, column in enumerate(at) if column != j]
    left = [at[i] for i in keep]
    if len(left) == len(at):
        return On(kernel, left, tuple(left))
    if not left or isinstance(kernel, Sphere | Cyclic | sk.ExpSineSquared):
        return None
    return On(_narrowed(kernel, keep), left, tuple(left))


def _places(kernel: On | Category) -> list[int]:
    return [int(i) for i in (listed(kernel.columns) if kernel.at is None else kernel.at)]


def _narrowed(kernel: sk.Kernel, keep: list[int]) -> sk.Kernel:
    """A kernel of all columns it is given, for some of them: with their own length scales, centres and spreads."""
    if isinstance(kernel, Scaled):
        centre, spread = ([float(values[i]) for i in keep] for values in (kernel.centre, kernel.spread))
        knots = tuple(kernel.knots[i] for i in keep) if kernel.knots else ()
        return Scaled(_narrowed(kernel.kernel, keep), tuple(centre), tuple(spread), knots)
    if isinstance(kernel, sk.Sum | sk.Product):
        return type(kernel)(_narrowed(kernel.k1, keep), _narrowed(kernel.k2, keep))
    if isinstance(kernel, sk.Exponentiation):
        return sk.Exponentiation(_narrowed(kernel.kernel, keep), kernel.exponent)
    if np.ndim(getattr(kernel, "length_scale", 0.0)) == 0:
        return kernel
    params = kernel.get_params()
    bounds = params["length_scale_bounds"]
    if not isinstance(bounds, str) and np.ndim(bounds) == 2:
        params["length_scale_bounds"] = np.asarray(bounds)[keep]
    return type(kernel)(**{**params, "length_scale": np.asarray(kernel.length_scale)[keep]})
