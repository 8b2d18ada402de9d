"""The table of what was tried for ``kernel=None``, and of what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ggpm.data import frames

__all__ = ["SearchTable", "Trial"]


@dataclass(frozen=True)
class Trial:
    """One line of the table of a contest: what was tried, on how many rows, and how it did there.

    >>> Trial("RBF", rows=80, loo=-1.23, evidence=-1.3, score=-1.26, seconds=0.1).kept
    False
    """

    name: str
    rows: int
    loo: float
    """Mean leave-one-out log density per row (blocks of rows that hang together are left out together)."""
    evidence: float
    """Log evidence, less what the priors take off it, per row."""
    score: float
    """What candidates on the same rows are ordered by, nats per row."""
    seconds: float
    kept: bool = False
    """Whether it went on to the next rung, or won."""
    without: str = ""
    """Name of the column that it does not look at: a candidate for rows whose label there is new."""


@dataclass(frozen=True)
class SearchTable(Sequence[Trial]):
    """What was tried for ``kernel=None``, in the order in which it was: ``model.search_``.

    Examples
    --------
    >>> SearchTable((Trial("RBF", 80, -1.23, -1.3, -1.26, 0.1), Trial("Matérn 5/2", 80, -1.2, -1.3, -1.25, 0.1, True)))
    kernel      rows    loo  evidence   score  seconds
    RBF           80 -1.230    -1.300  -1.260     0.10
    Matérn 5/2    80 -1.200    -1.300  -1.250     0.10  kept
    """

    trials: tuple[Trial, ...]

    def __len__(self) -> int:
        return len(self.trials)

    def __getitem__(self, k: Any) -> Any:
        return self.trials[k]

    @property
    def winner(self) -> str:
        """Name of the candidate that won."""
        return next(trial.name for trial in reversed(self.trials) if trial.kept and not trial.without)

    @property
    def seconds(self) -> float:
        """Time that all of it took."""
        return sum(trial.seconds for trial in self.trials)

    def to_frame(self) -> Any:
        """The table as a pandas frame.

        >>> SearchTable((Trial("RBF", 80, -1.23, -1.3, -1.26, 0.1, True),)).to_frame().shape
        (1, 8)
        """
        return frames.require("pandas").DataFrame([asdict(trial) for trial in self.trials])

    def __repr__(self) -> str:
        width = max([6, *(len(trial.name) for trial in self.trials)])
        lines = [f"{'kernel':<{width}} {'rows':>5} {'loo':>6} {'evidence':>9} {'score':>7} {'seconds':>8}"]
        without = ""
        for t in self.trials:
            if t.without != without:
                without = t.without
                lines.append(f"without {without}, for labels that are new:")
            line = f"{t.name:<{width}} {t.rows:>5} {t.loo:>6.3f} {t.evidence:>9.3f} {t.score:>7.3f} {t.seconds:>8.2f}"
            lines.append(line + ("  kept" if t.kept else ""))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(index=False, float_format="{:.3f}".format)
