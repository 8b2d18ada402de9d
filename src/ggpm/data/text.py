"""Words for messages."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A sentence that names the nearest of the known names, with a space before it; empty if none is near.

    >>> did_you_mean("vonmises", ["von_mises", "poisson"])
    " Did you mean 'von_mises'?"
    """
    import difflib

    near = difflib.get_close_matches(str(name).lower(), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
