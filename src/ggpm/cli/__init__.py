"""The ``ggpm`` command: fit, predict, evaluate, compare and plot from files (extra: ``pip install ggpm[cli]``).

Exit codes: 0 success; 1 the data or the model are not as they should be (the message says what); 2 wrong usage;
3 the fit did not converge (the model is written all the same); 130 stopped by the user (the best so far is written).
With ``--json`` the result is one JSON object on the standard output; everything for human eyes goes to the standard
error stream. docs/command_line.md has it all.
"""

from __future__ import annotations

import importlib
from typing import Any

try:
    import click
    import rich  # noqa: F401
except ImportError:
    raise SystemExit("The ggpm command needs click, rich, pandas and pyarrow. Try: pip install 'ggpm[cli]'") from None

import numpy as np

from ggpm import __version__
from ggpm.cli.terminal import Fault, in_flags

COMMANDS = {
    "compare": "ggpm.cli.compare",
    "demo": "ggpm.cli.demo",
    "evaluate": "ggpm.cli.evaluate",
    "families": "ggpm.cli.families",
    "fit": "ggpm.cli.fit",
    "plot": "ggpm.cli.plot",
    "predict": "ggpm.cli.predict",
    "report": "ggpm.cli.report",
    "reproduce": "ggpm.paper.command",
}
"""Commands and the modules that hold them, each under its own name; a new command is a file and a line here."""


class Group(click.Group):
    """Turns errors about data into messages, and imports a command only when it is asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, TypeError, np.linalg.LinAlgError, MemoryError, ImportError, OSError) as error:
            raise Fault(in_flags(error)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return getattr(importlib.import_module(COMMANDS[name]), name) if name in COMMANDS else None


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ggpm")
def main() -> None:
    """Gaussian processes for angles, compositions, counts, classes and grades."""
