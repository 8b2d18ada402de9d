"""The page of a report: a template whose values are escaped, whatever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggpm.reporting.figures import Picture


def render(title: str, facts: dict[str, Any], pictures: Sequence[Picture]) -> str:
    """The page as text: everything that comes from the user is escaped, pictures alone are not.

    Matplotlib escapes the text within its pictures itself.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise ImportError("reports need jinja2. Try: pip install 'ggpm[report]'") from None
    environment = Environment(
        loader=PackageLoader(__package__ or "", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["number"] = number
    shown = {p.section: {"caption": p.caption, "svg": p.svg} for p in pictures}
    return environment.get_template("page.html").render(title=title, pictures=shown, **facts)


def number(value: Any, digits: int = 4) -> str:
    """A number in few digits; a dash where there is none.

    >>> number(0.123456), number(None), number(1e-12), number(3)
    ('0.1235', '–', '1e-12', '3')
    """
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
