"""Parts that the pictures share: colours, axes, rows and names, and the table of pictures by kind of output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.text import Hint, Message, did_you_mean

Array = NDArray[np.float64]


def axes_for(ax: Any, **settings: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plots need matplotlib. Try: pip install 'ggpm[plot]'") from None
    projection = settings.pop("projection", None)
    _, ax = plt.subplots(
        subplot_kw={"projection": projection} if projection else None, layout="constrained", **settings
    )
    return ax


def training_data(model: Any) -> tuple[Array, NDArray] | None:
    """Rows and outputs that the model was fitted to, as the user knows them; None if it does not hold them."""
    field = model.fit_.evidence.field
    if not hasattr(field, "y"):
        return None
    y = model.fit_.evidence.family.decode(field.y)
    return field.X, (model.classes_[np.asarray(y).astype(int)] if hasattr(model, "classes_") else y)


def points_of(model: Any, data: Any) -> tuple[Array, NDArray] | None:
    """Points to draw: the given rows, or the training rows; None for nothing."""
    if data is False:
        return None
    if data is None:
        return training_data(model)
    X, y = data
    return model.fit_.columns.encode(X if np.ndim(X) == 2 else np.reshape(X, (len(X), -1))), np.asarray(y)


def inputs_of(model: Any) -> Array:
    return model.fit_.posterior.inputs


def feature_index(model: Any, feature: int | str) -> int:
    names = list(getattr(model, "feature_names_in_", []))
    if isinstance(feature, str):
        if feature not in names:
            known = ", ".join(names) or "the column numbers"
            raise ValueError(f"feature must be one of {known}; got {feature!r}.{did_you_mean(feature, names)}")
        return names.index(feature)
    if not 0 <= feature < model.n_features_in_:
        raise ValueError(f"feature must be a column number below {model.n_features_in_}; got {feature}.")
    return feature


def feature_name(model: Any, feature: int) -> str:
    names = getattr(model, "feature_names_in_", None)
    return str(names[feature]) if names is not None else ("x" if model.n_features_in_ == 1 else f"x{feature}")


def target_name(model: Any, default: str) -> str:
    names = model.target_names_
    return names[0] if names and len(names) == 1 else default


def named_rows(model: Any, X: Array) -> Any:
    """Encoded rows as the model expects them: with their names, labels and times."""
    return model.fit_.columns.decode(X)


def predictive_of(model: Any, X: Any, offset: Any = None) -> Any:
    """The predictive distribution at rows; where an offset was fitted and none is given, without it."""
    return model.predict_dist(X, offset=0.0 if offset is None and model.fit_.offset is not None else offset)


def line_of(model: Any, feature: int, n: int, limits: tuple[float, float] | None) -> tuple[Array, Any]:
    """n values of one feature over its range, and the rows that have them."""
    inputs = inputs_of(model)
    low, high = limits if limits is not None else (inputs[:, feature].min(), inputs[:, feature].max())
    grid = np.linspace(low, high, n)
    X = np.repeat(model.fit_.columns.centre(inputs)[None], n, axis=0)
    X[:, feature] = grid
    return grid, named_rows(model, X)


def legend_beside(ax: Any, title: str | None = None, *, reverse: bool = False) -> None:
    """A legend to the right of the axes, where it covers nothing."""
    ax.legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small", title=title, reverse=reverse
    )


def kind_of_picture(model: Any) -> str:
    """Name of the picture that suits a model: "angles", "ternary", "classes", "ordinal", "bands" or "evidence".

    >>> import ggpm
    >>> x = np.arange(6.0)
    >>> kind_of_picture(ggpm.GGPRegressor("von_mises", optimizer=None).fit(x[:, None], x))
    'angles'
    """
    return PICTURES.get(model.family_.kind, _of_numbers)(model)


def _of_numbers(model: Any) -> str:
    return "bands" if has_bands(model.family_) else "evidence"


def _of_compositions(model: Any) -> str:
    return "ternary" if model.family_.latent_dim == 3 else _of_numbers(model)


def _of_classes(model: Any) -> str:
    if not hasattr(model, "classes_"):  # a regressor on codes has no labels to show
        return "evidence"
    ordered = type(model).__name__ == "GGPOrdinalClassifier" or model.n_features_in_ == 1
    return "ordinal" if ordered else "classes"


PICTURES: dict[str, Callable[[Any], str]] = {
    "angles": lambda model: "angles",
    "compositions": _of_compositions,
    "classes": _of_classes,
    "shares": lambda model: "evidence",
}
"""Choice of the picture by kind of output (`Family.kind`), where it is not that of numbers."""


def has_bands(family: Any) -> bool:
    """Tell whether outputs are ordered, each part for itself."""
    return family.has("cdf") and family.kind not in ("angles", "classes", "shares")


def check_kind(model: Any, condition: bool, what: str) -> None:
    """Raise ValueError, with the picture to take instead, unless the condition holds."""
    if not condition:
        kind = kind_of_picture(model)
        instead: list[str | Hint] = [Hint("plot_class_map" if kind == "classes" else f"plot_{kind}", "picture", kind)]
        if kind == "evidence":
            instead += [" or ", Hint("plot_calibration", "picture", "calibration"), ", which suit every family"]
        family = type(model.family_).__name__
        raise ValueError(Message(f"this picture is for {what}; the model's family is {family}. Try ", *instead, "."))
