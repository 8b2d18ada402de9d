"""Times to an event: survival curves of rows with their bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ggpm.data.checks import check_level
from ggpm.plotting._common import axes_for, check_kind, legend_beside, padded, predictive_of, target_name
from ggpm.plotting.style import COLOURS, POINTS
from ggpm.prediction.survival import kaplan_meier, survival_function, survival_interval

SHOWN = 8  # curves in one picture that can be told apart


def plot_survival(
    model: Any, X: Any, *, times: Any = None, level: float = 0.9, labels: Sequence[str] | None = None,
    data: Any = None, ax: Any = None,
) -> Any:  # fmt: skip
    """Probability that the event has not come yet, P(Y > t), for each row of X, with its credible band.

    Parameters
    ----------
    model : fitted estimator of positive numbers, censored or not
    X : at most 8 rows
    times : where curves are drawn; None: up to the latest 98 % quantile of the rows
    level : probability of the bands, of families with one latent; others have none
    labels : names of the rows
    data : (time, event), optional
        Draws Kaplan and Meier's estimate of these besides.

    Examples
    --------
    >>> import numpy as np, ggpm
    >>> from matplotlib.figure import Figure
    >>> X, y = np.arange(8.0)[:, None], np.arange(1.0, 9.0)
    >>> model = ggpm.GGPRegressor("weibull", optimizer=None).fit(X, y)
    >>> plot_survival(model, X[[0, 7]], labels=["first", "last"], ax=Figure().subplots()).get_ylabel()
    'P(y > t)'
    """
    family = model.family_
    check_kind(model, family.kind == "numbers" and family.support.low == 0.0 and family.has("cdf"), "positive numbers")
    check_level(level, "level")
    dist = predictive_of(model, X)
    if len(dist) > SHOWN:
        raise ValueError(f"plot_survival draws at most {SHOWN} rows, which can be told apart; got {len(dist)}.")
    if labels is not None and len(labels) != len(dist):
        raise ValueError(f"labels must be one for each of the {len(dist)} rows; got {len(labels)}.")
    at = np.linspace(0.0, float(np.max(dist.quantile(0.98))), 201)[1:] if times is None else np.asarray(times, float)
    curves = survival_function(dist, at)
    bands = survival_interval(dist, at, level) if family.latent_dim == 1 else None
    ax = axes_for(ax, figsize=(7.2, 3.8))
    for i, curve in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        if bands is not None:
            ax.fill_between(at, bands[i, :, 0], bands[i, :, 1], color=colour, alpha=0.18, lw=0)
        ax.plot(at, curve, color=colour, lw=1.8, label=f"row {i}" if labels is None else labels[i])
    if data is not None:
        time, event = data
        ax.step(at, kaplan_meier(time, event, at), where="post", color=POINTS, lw=1.0, label="Kaplan-Meier")
    ax.set(xlim=padded(0.0, at[-1]), ylim=padded(0.0, 1.0), xlabel=target_name(model, "t"), ylabel="P(y > t)")
    legend_beside(ax, None if bands is None else f"with {level:.0%} bands")
    return ax
