"""Words for messages: advice that a program other than Python can say in its own words, and names that are near."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, Self, SupportsInt

PACKAGE = str(Path(__file__).parents[1] / "_")[:-1]  # of ggpm, with the separator at the end


@dataclass(frozen=True)
class Hint:
    """Advice inside a message, as a Python user reads it and as data for everybody else.

    ``setting`` is the name of what can be set: a parameter of an estimator or a family, "family" or "picture"; None
    for advice that only a Python user can follow. ``value`` is what to set it to: a value, True to switch it on, False
    to leave it out, ``...`` for one that the user must find, None where the setting is only named.

    >>> str(Hint("inference='taylor'", "inference", "taylor"))
    "inference='taylor'"
    """

    python: str
    setting: str | None = None
    value: Any = None

    def __str__(self) -> str:
        return self.python


class Row(Hint):
    """Number of a row inside a message: from 0 for Python users; who shows tables to people counts from 1.

    >>> Message("row ", Row(2), " is off.")
    'row 2 is off.'
    """

    def __init__(self, number: SupportsInt) -> None:
        super().__init__(str(int(number)), "row", int(number))


class Message(str):
    """Text of an error or a warning that remembers which of its parts are hints.

    It is joined from text, hints and errors, whose message is taken over with its hints. Python users read it as any
    other text; who has other words for the hints joins the parts anew.

    >>> advice = Message("row 2 is off. Try ", Hint("Dirichlet(closure=True)", "closure", True), ".")
    >>> advice
    'row 2 is off. Try Dirichlet(closure=True).'
    >>> Message("soil.csv: ", ValueError(advice)).parts[2].setting
    'closure'
    """

    parts: tuple[str | Hint, ...]

    def __new__(cls, *parts: str | Hint | BaseException) -> Self:
        flat: list[str | Hint] = []
        for part in parts:
            if isinstance(part, BaseException):
                part = part.args[0] if part.args and isinstance(part.args[0], Message) else str(part)
            flat.extend(part.parts if isinstance(part, Message) else [part])
        self = super().__new__(cls, "".join(map(str, flat)))
        self.parts = tuple(flat)
        return self

    def __getnewargs__(self) -> tuple[str | Hint, ...]:  # type: ignore[override]  # str has one part, the text
        return self.parts


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A sentence that names the nearest of the known names, with a space before it; empty if none is near.

    >>> did_you_mean("vonmises", ["von_mises", "poisson"])
    " Did you mean 'von_mises'?"
    """
    import difflib

    lower = {word.lower(): word for word in known}
    near = difflib.get_close_matches(str(name).lower(), list(lower), n=1)
    return f" Did you mean {lower[near[0]]!r}?" if near else ""


def see(page: str, words: str) -> str:
    """A link to a page of the documentation, as HTML: ``see("api", "reference")``; the words alone without an address.

    The address of the site is the environment variable ``GGPM_DOCS``, such as that of ``docs/_build/html``, or the
    address of the documentation that the installed package declares.
    """
    home = os.environ.get("GGPM_DOCS") or _declared()
    if not home:
        return escape(words)
    home = Path(home).absolute().as_uri() if "://" not in home else home
    return f'<a href="{escape(home.rstrip("/"))}/{escape(page)}.html">{escape(words)}</a>'


def _declared() -> str | None:
    """The address of the documentation in the package's metadata."""
    try:
        addresses = metadata("ggpm").get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    named = dict(address.split(", ", 1) for address in addresses)
    return named.get("Documentation")


def stacklevel() -> int:
    """The ``stacklevel`` with which a warning of the function that calls this shows the line outside the package.

    >>> stacklevel()
    1
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
