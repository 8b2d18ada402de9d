"""Predictive distributions as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ggpm.data import frames
from ggpm.prediction.kinds import kind_of

if TYPE_CHECKING:
    from ggpm.prediction.predictive import Predictive

__all__ = ["summarise"]


def summarise(
    predictive: Predictive,
    level: float = 0.9,
    names: list[str] | None = None,
    classes: NDArray | None = None,
    index: Any = None,
) -> Any:
    """Table with one row per prediction: its centre and its credible region, as a pandas data frame.

    Parameters
    ----------
    predictive : Predictive
    level : float
        Probability of intervals, arcs and credible sets.
    names : list of str, optional
        Names of the outputs, parts or classes.
    classes : array, optional
        The labels, for classifiers.
    index : optional
        Row labels.

    Examples
    --------
    >>> import numpy as np
    >>> from ggpm.families import VonMises
    >>> from ggpm.prediction.predictive import Predictive
    >>> north = Predictive(VonMises(units="degrees"), np.array([[50.0, 0.0]]), 0.1 * np.eye(2)[None])
    >>> summarise(north).round(0).to_dict("list")
    {'mean': [0.0], 'sd': [8.0], 'arc_start': [347.0], 'arc_end': [13.0]}
    """
    pandas = frames.require("pandas")
    return pandas.DataFrame(kind_of(predictive.family).columns(predictive, level, names, classes), index=index)
