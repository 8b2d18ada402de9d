"""Settings of the neighbours field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ggpm.data.checks import check_whole


@dataclass(frozen=True)
class Neighbours:
    """Settings of a fit by nearest neighbours; ``neighbours=m`` is short for ``neighbours=Neighbours(m)``.

    Parameters
    ----------
    number : int
        Earlier rows that the prior of a row is conditioned on; predictions are made from one training row more.
    ordering : "auto", "maximin" or "coordinate"
        Order of the rows: from coarse to fine, so that early rows cover the whole; or along the first feature that
        varies. "auto" takes the coordinate where one feature alone varies (time series), and "maximin" elsewhere.
    nugget : float or None
        Variance, relative to the prior's, that is added to the prior of every training row: smooth kernels need
        it, because the inverse of the kernel matrix appears here. None: 0 for Matérn with nu = 1/2, and with nu = 3/2
        unless rows lie closer than 1e-3 length scales; 1e-8 there, and for smoother kernels. The one that was used is
        kept as ``posterior_.nugget``.
    learn_rows : int or None
        Most rows from which hyperparameters are learned: of more, a random sample of so many; the posterior is always
        that of all rows. None: all rows.
    solver : "auto", "direct" or "iterative"
        Factorisation of the posterior's precision, without further approximation; or conjugate gradients with probes
        for log-determinant and covariances, whose time and memory are linear in the rows. "auto" is direct on a line
        and up to 50,000 rows times latents that couple, fewer with many features, where nothing is sparse.
    probes : int
        Random vectors of the iterative solver; errors fall with their square root.
        ``posterior_.precision.log_det_error`` is the standard error of the log-determinant.
    leaf : int
        Rows of a part that is not divided further when the posterior is factorised; results do not depend on it.

    Examples
    --------
    >>> Neighbours(20).ordering
    'auto'
    """

    number: int = 20
    ordering: Literal["auto", "maximin", "coordinate"] = "auto"
    nugget: float | None = None
    learn_rows: int | None = 20_000
    leaf: int = 100
    solver: Literal["auto", "direct", "iterative"] = "auto"
    probes: int = 16

    def __post_init__(self) -> None:
        check_whole(self.number, "neighbours", 1)
        check_whole(self.leaf, "leaf", 1)
        check_whole(self.probes, "probes", 2)
        if self.solver not in ("auto", "direct", "iterative"):
            raise ValueError(f"solver must be 'auto', 'direct' or 'iterative'; got {self.solver!r}.")
        if self.learn_rows is not None:
            check_whole(self.learn_rows, "learn_rows", 1)
        if self.ordering not in ("auto", "maximin", "coordinate"):
            raise ValueError(f"ordering must be 'auto', 'maximin' or 'coordinate'; got {self.ordering!r}.")
        if self.nugget is not None and not 0 <= self.nugget < 1:
            raise ValueError(f"nugget must be in [0, 1) or None; got {self.nugget!r}.")
