"""Data frames without importing any: what pandas and polars hand in, and what they get back.

A frame is recognised by the package of its type. Nothing here imports pandas or polars unless a frame of
that kind is to be built, and then its user has loaded it already (or has asked for it by name).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.checks import as_array

KINDS = ("pandas", "polars")


def kind_of(data: Any) -> str | None:
    """ "pandas", "polars" or None.

    >>> kind_of([1.0, 2.0]) is None
    True
    """
    package = type(data).__module__.partition(".")[0]
    return package if package in KINDS else None


def in_a_series(data: Any) -> Any:
    """A bare pandas array (`pandas.Categorical`, `pandas.array`) or index as a series; anything else as it is.

    >>> import pandas as pd
    >>> type(in_a_series(pd.Categorical(["b", "a"]))).__name__
    'Series'
    """
    return require("pandas").Series(data) if kind_of(data) == "pandas" and not hasattr(data, "iloc") else data


def names_of(data: Any) -> list[str] | None:
    """Column names of a frame, the name of a series, or None.

    >>> import pandas as pd
    >>> names_of(pd.DataFrame({"sand": [0.2], "clay": [0.8]}))
    ['sand', 'clay']
    """
    if kind_of(data) is None:
        return None
    if hasattr(data, "columns"):
        return [str(name) for name in data.columns]
    name = getattr(data, "name", None)
    return None if name is None else [str(name)]


def values_of(data: Any) -> Any:
    """The array behind a frame or series of outputs, or any other array-like as an array; None stays None."""
    if data is None:
        return None
    return in_a_series(data).to_numpy() if kind_of(data) else as_array(data, "y")


def missing_rows(data: Any) -> NDArray:
    """Mask of the rows of outputs in which every entry is missing, (n,).

    >>> missing_rows(np.array([[1.0, np.nan], [np.nan, np.nan]]))
    array([False,  True])
    """
    kind = kind_of(data)
    if kind == "pandas":
        mask = in_a_series(data).isna().to_numpy()
    elif kind == "polars":
        mask = (data if hasattr(data, "columns") else data.to_frame()).to_pandas().isna().to_numpy()
    elif data.dtype.kind == "f":
        mask = np.isnan(data)
    elif data.dtype == object:
        flat = [value is None or (isinstance(value, float) and value != value) for value in data.ravel()]
        mask = np.array(flat, dtype=bool).reshape(data.shape)
    else:
        return np.zeros(len(data), dtype=bool)
    return mask.all(axis=tuple(range(1, mask.ndim)))


def order_of(data: Any) -> list | None:
    """The categories of an ordered categorical series (pandas) or of an Enum series (polars), lowest first.

    >>> import pandas as pd
    >>> order_of(pd.Series(pd.Categorical(["b", "a"], categories=["b", "a"], ordered=True)))
    ['b', 'a']
    """
    dtype: Any = getattr(data, "dtype", None)
    if kind_of(data) == "pandas" and getattr(dtype, "ordered", False):
        return list(dtype.categories)
    if kind_of(data) == "polars" and type(dtype).__name__ == "Enum":
        return list(dtype.categories)
    return None


def index_of(data: Any) -> Any:
    """The row labels of a pandas object, or None."""
    return in_a_series(data).index if kind_of(data) == "pandas" else None


def build(kind: str, values: NDArray, names: list[str] | None, index: Any = None) -> Any:
    """A series (1-D values) or a frame (2-D) of the given kind.

    >>> import numpy as np
    >>> build("pandas", np.array([[0.2, 0.8]]), ["sand", "clay"]).columns.tolist()
    ['sand', 'clay']
    """
    library = require(kind)
    if values.ndim == 1:
        name = names[0] if names and len(names) == 1 else None
        if kind == "pandas":
            return library.Series(values, name=name, index=index)
        return library.Series(name or "", values)
    if names is None or len(names) != values.shape[1]:
        names = [str(j) for j in range(values.shape[1])]
    if kind == "pandas":
        return library.DataFrame(values, columns=names, index=index)
    return library.DataFrame(dict(zip(names, values.T)))


def require(kind: str) -> Any:
    """The library, or an error that says how to get it."""
    if kind not in KINDS:
        raise ValueError(f"a data frame library must be one of {', '.join(KINDS)}; got {kind!r}.")
    try:
        return import_module(kind)
    except ImportError:
        raise ImportError(f"this needs {kind}, which is not installed. Try: pip install {kind}") from None
