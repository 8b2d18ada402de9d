"""Axes of columns: their names, and dates where a column holds times, which are hours since 1970 inside."""

from __future__ import annotations

from typing import Any

from ggpm.data.columns import time_text
from ggpm.plotting._common import feature_name, inputs_of

HOURS = 24.0  # in a day, the unit of matplotlib's dates


def name_axis(axis: Any, model: Any, feature: int) -> None:
    """Name an axis after a column, with dates at its ticks where the column holds times."""
    axis.set_label_text(feature_with_unit(model, feature))
    if model.fit_.columns.kinds[feature] == "time":
        show_dates(axis)


def feature_with_unit(model: Any, feature: int) -> str:
    """Name of a column, with what its ticks do not tell: the unit of durations, the year that all times share."""
    kind, name = model.fit_.columns.kinds[feature], feature_name(model, feature)
    if kind == "time":
        hours = inputs_of(model)[:, feature]
        first, last = (time_text(end)[:4] for end in (hours.min(), hours.max()))
        return f"{name} ({first})" if first == last else name
    return f"{name} (hours)" if kind == "duration" else name


def show_dates(axis: Any) -> None:
    """Ticks at round dates on an axis of hours since 1970-01-01 00:00, as few as fit beside each other."""
    from matplotlib import dates, ticker

    rule = dates.AutoDateLocator(minticks=3, maxticks=5)
    rule.create_dummy_axis()
    words = dates.ConciseDateFormatter(rule, show_offset=False)
    # there is no line below for the rest of the date: the first tick of a day or a year says which one begins
    words.zero_formats = ["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"]
    words.formats = ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S.%f"]

    class Dates(ticker.Locator):
        def __call__(self) -> Any:
            return self.tick_values(*self.axis.get_view_interval())  # type: ignore[union-attr]

        def tick_values(self, vmin: float, vmax: float) -> Any:
            low, high = (dates.num2date(hours / HOURS) for hours in sorted((vmin, vmax)))
            return rule.tick_values(low, high) * HOURS

    class Words(ticker.Formatter):
        def __call__(self, x: float, pos: Any = None) -> str:
            return dates.num2date(x / HOURS).strftime("%Y-%m-%d %H:%M")

        def format_ticks(self, values: Any) -> list[str]:
            return words.format_ticks([hours / HOURS for hours in values])

    axis.set_major_locator(Dates())
    axis.set_major_formatter(Words())
