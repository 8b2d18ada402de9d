"""Advice on the field: exact, neighbours or inducing points, from the rows and the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ggpm.data.text import Hint, Message
from ggpm.fields.neighbours.search import is_rough

# Rows up to which exact inference takes seconds; neighbours are faster from 1,000 on (docs/scaling.md).
EXACT_ROWS = 2000
FEW_FEATURES = 3  # in more, twenty neighbours lie in too few directions for a sparse factor to be small or near exact


@dataclass(frozen=True)
class Advice:
    """The field that suits some rows, and why."""

    field: Literal["exact", "neighbours", "inducing"]
    text: Message

    def __str__(self) -> str:
        return str(self.text)


def advise(rows: int, features: int, kernels: Sequence[Any] = ()) -> Advice:
    """The field that suits so many rows of so many features that vary, under kernels if they are known.

    Exact up to a few thousand rows; beyond, neighbours for rough functions of few features, and inducing points for
    smooth ones and for those of many features. What counts as rough is Matérn with nu of at most 3/2; without kernels
    functions of few features are taken to be.

    >>> from sklearn.gaussian_process.kernels import RBF, Matern
    >>> advise(500, 2).field, advise(50_000, 2, [Matern(nu=1.5)]).field, advise(50_000, 2, [RBF()]).field
    ('exact', 'neighbours', 'inducing')
    >>> print(advise(50_000, 9))
    50000 rows of 9 features: inducing=256, because one inducing point serves many rows in every direction.
    """
    what = f"{rows} rows of {features} feature{'' if features == 1 else 's'}: "
    neighbours, inducing = Hint("neighbours=20", "neighbours", 20), Hint("inducing=256", "inducing", 256)
    if rows <= EXACT_ROWS:
        return Advice("exact", Message(what, "exact inference, the default, is fast enough."))
    if features > FEW_FEATURES:
        return Advice(
            "inducing", Message(what, inducing, ", because one inducing point serves many rows in every direction.")
        )
    if kernels and not any(is_rough(kernel) for kernel in kernels):
        return Advice(
            "inducing",
            Message(what, inducing, " for so smooth a kernel; ", neighbours, " if the function is rougher."),
        )
    return Advice(
        "neighbours",
        Message(what, neighbours, ", because inducing points would smooth a rough function of so few features."),
    )
