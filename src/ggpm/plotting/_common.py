"""Parts that the pictures share: colours, axes, rows and names, and the table of pictures by kind of output."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.data.columns import time_text
from ggpm.data.text import Hint, Message, did_you_mean
from ggpm.kernels import category_columns

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


def plain_text(name: Any) -> str:
    """A name as text: dollars in it do not begin a formula."""
    return str(name).replace("$", r"\$")


def feature_name(model: Any, feature: int) -> str:
    names = getattr(model, "feature_names_in_", None)
    return plain_text(names[feature]) if names is not None else ("x" if model.n_features_in_ == 1 else f"x{feature}")


def target_name(model: Any, default: str) -> str:
    names = model.target_names_
    return plain_text(names[0]) if names and len(names) == 1 else default


def part_names(model: Any, count: int) -> list[str]:
    """Names of the entries of y, in order."""
    names = model.target_names_
    return [plain_text(name) for name in names] if names and len(names) == count else [f"y{j}" for j in range(count)]


def label_columns(model: Any) -> NDArray[np.bool_]:
    """Mask of the columns of labels: categories, booleans, and numbers that are groups to some term of the kernel."""
    kinds = model.fit_.columns.kinds
    groups = category_columns(model.fit_.posterior.kernels, len(kinds))
    return groups | np.isin(kinds, ("category", "boolean"))


def label_text(model: Any, feature: int, code: float) -> str:
    """The label that a code stands for, as text."""
    columns = model.fit_.columns
    if columns.kinds[feature] == "category":
        return plain_text(columns.members[feature].labels[int(code)])
    return str(bool(code)) if columns.kinds[feature] == "boolean" else f"{code:.15g}"


def named_rows(model: Any, X: Array) -> Any:
    """Encoded rows as the model expects them: with their names, labels and times."""
    return model.fit_.columns.decode(X)


def predictive_of(model: Any, X: Any, offset: Any = None) -> Any:
    """The predictive distribution at rows; where an offset was fitted and none is given, without it."""
    return model.predict_dist(X, offset=0.0 if offset is None and model.fit_.offset is not None else offset)


# ---- slices: some columns vary, the others are held ------------------------------------------------------------------
PAD = 0.03  # of the range of the points: markers at its ends are drawn whole


@dataclass(frozen=True)
class Held:
    """Where the columns are that do not vary: at their medians, labels at the most frequent one, unless ``at`` says."""

    model: Any
    at: Mapping[int | str, Any] | None = None

    def __post_init__(self) -> None:
        if self.at is not None and not isinstance(self.at, Mapping):
            raise TypeError(f"at must name columns and their values, such as {{'depth': 2.0}}; got {self.at!r}.")

    @property
    def chosen(self) -> dict[int, Any]:
        """Values by number of the column, as the user wrote them."""
        return {feature_index(self.model, name): value for name, value in (self.at or {}).items()}

    def row(self) -> Array:
        """The row at which columns are held, encoded."""
        columns, inputs = self.model.fit_.columns, inputs_of(self.model)
        out = np.median(inputs, axis=0)
        for j in np.flatnonzero(label_columns(self.model)).tolist():
            values, counts = np.unique(inputs[:, j], return_counts=True)
            out[j] = values[counts.argmax()]
        for j, value in self.chosen.items():
            out[j] = columns.code(j, value)
        return out

    def rows(self, values: Mapping[int, Array]) -> Array:
        """Encoded rows in which these columns vary and the others do not."""
        out = np.repeat(self.row()[None], len(next(iter(values.values()))), axis=0)
        for j, column in values.items():
            if j in self.chosen:
                raise ValueError(f"at holds column {feature_name(self.model, j)}, which is on an axis of the picture.")
            out[:, j] = column
        return out

    def in_words(self, *moving: int, most: int | None = None) -> str:
        """What is held where, for a title, with the values of so many columns; nothing where all vary."""
        row, labels = self.row(), label_columns(self.model)
        decoded = self.model.fit_.columns.decode(row[None])
        values = decoded.iloc[0].tolist() if hasattr(decoded, "iloc") else np.asarray(decoded)[0].tolist()
        for j, value in enumerate(values):
            short = f"{value:.4g}" if isinstance(value, float) else plain_text(value)
            if self.model.fit_.columns.kinds[j] == "time":
                short = time_text(row[j])
            values[j] = label_text(self.model, j, row[j]) if labels[j] else short
        said = {j: f"{feature_name(self.model, j)} = {v}" for j, v in enumerate(values) if j not in moving}
        told = [said.pop(j) for j in self.chosen if j in said]
        out = ["at " + ", ".join(told)] if told else []
        if said:
            ways = {"most frequent label" if labels[j] else "median" for j in said}
            where = "other columns at their " + " or ".join(sorted(ways))
            out.append(f"{where}: {', '.join(said.values())}" if len(said) <= (most or MOST_HELD) else where)
        return "; ".join(out)

    def tell(self, ax: Any, *moving: int, above: str = "", below: str = "") -> None:
        """Write it into the title, in lines that the axes have room for, between other lines."""
        width = ax.get_position().width * ax.figure.get_figwidth()
        words = self.in_words(*moving, most=MOST_HELD if width < WIDE else MOST_HELD_WIDE)
        bound = words.replace(" = ", "\u00a0=\u00a0")  # a name stays with its value
        room = max(24, int(CHARACTERS * width))
        held, below = (textwrap.fill(text, room).replace("\u00a0", " ") for text in (bound, below))
        if lines := "\n".join(filter(None, (above, held, below))):
            ax.set_title(lines, fontsize="small")


MOST_HELD, MOST_HELD_WIDE, WIDE = 3, 8, 4.0  # columns whose values fit into a title; into one of so many inches
CHARACTERS = 13  # of a title in small letters, per inch


def padded(low: float, high: float) -> tuple[float, float]:
    """Limits of an axis on which points at both ends are drawn whole.

    >>> padded(0.0, 1.0)
    (-0.03, 1.03)
    """
    pad = PAD * (high - low)
    return low - pad, high + pad


def legend_beside(ax: Any, title: str | None = None, *, reverse: bool = False) -> None:
    """A legend to the right of the axes, where it covers nothing."""
    ax.legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small", title=title, reverse=reverse
    )


def kind_of_picture(model: Any) -> str:
    """Name of the picture that suits a model: angles, ternary, parts, classes, ordinal, bands or evidence.

    >>> import ggpm
    >>> x = np.arange(6.0)
    >>> kind_of_picture(ggpm.GGPRegressor("von_mises", optimizer=None).fit(x[:, None], x))
    'angles'
    """
    return PICTURES.get(model.family_.kind, _of_numbers)(model)


def _of_numbers(model: Any) -> str:
    return "bands" if has_bands(model.family_) else "evidence"


def _of_compositions(model: Any) -> str:
    return "ternary" if model.family_.support.columns == 3 else "parts"


def _of_classes(model: Any) -> str:
    if not hasattr(model, "classes_"):  # a regressor on codes has no labels to show
        return "evidence"
    ordered = type(model).__name__ == "GGPOrdinalClassifier" or model.n_features_in_ == 1
    return "ordinal" if ordered else "classes"


PICTURES: dict[str, Callable[[Any], str]] = {
    "angles": lambda model: "angles",
    "compositions": _of_compositions,
    "classes": _of_classes,
    "shares": lambda model: "parts",
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
