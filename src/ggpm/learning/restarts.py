"""Searches for sites from several starts, for families whose log p may have several modes in the latent.

With a latent for the mean and one for its noise a function that follows every row, with little noise, and a flat one
with much of it may both be modes, and a search from one start ends in either: of twelve sets of 40 rows with Gaussian
noise one ended 27 nats below the better mode, and of twelve bounds one found no step upwards at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpm.fields.base import Approximation, Process
from ggpm.fields.rows import RowsProcess
from ggpm.learning.engine import find, laplace_for
from ggpm.sites import Rule, Taylor

__all__ = ["best_of"]

Array = NDArray[np.float64]

FAR = 1.0  # nats a row: of 12 climbs that were lower than that after a step none ended higher (angles, three latents)
ALIKE = 1e-3  # nats between Laplace's evidences of one and the same mode, which are known to far less


def best_of(rule: Rule, process: Process) -> Approximation:
    """What `find` ends with from the best of several starts: one that converged, with the highest evidence.

    For families with one mode, and on fields that read rows in chunks, there is one start. A bound is climbed from
    every mode that Laplace's rule finds; from others only if the first climb did not converge.

    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from ggpm.families import GaussianMeanScale
    >>> from ggpm.fields.dense import DenseField
    >>> from ggpm.sites import Laplace
    >>> y = np.array([0.0, 2.0, -1.0])
    >>> process = DenseField(np.arange(3.0)[:, None], y, np.zeros((3, 2))).process(GaussianMeanScale(), [RBF(1.0)])
    >>> best_of(Laplace(), process).log_evidence >= find(Laplace(), process).log_evidence
    True
    """
    if not isinstance(process, RowsProcess) or not process.problem.family.several_modes or rule.depends_on == "y":
        return find(rule, process)
    resolved, hasty = rule.resolved(*process.shape, process.blocks_are_cheap), rule.loosened(process.shape[1])
    if rule.depends_on == "mean":
        # patience leads to modes of little use (a function through every row), or nowhere: only where there is no other
        found = [mode and replace(mode, rule=resolved) for mode in _modes(hasty, process)]
        if rule != hasty and not any(mode is not None and mode.converged for mode in found):
            found = _modes(rule, process)
    else:
        first = _tried(rule, process)
        found, modes = [first], _modes(laplace_for(rule, process.shape[1]), process)
        heights: list[float] = [] if modes[0] is None else [modes[0].log_evidence]
        for mode in modes[1:]:
            if mode is None or not np.isfinite(mode.log_evidence):
                continue
            start = process.remember(replace(mode, rule=resolved))
            new = all(abs(mode.log_evidence - h) > ALIKE for h in heights)
            if first is None or not first.converged or (new and _near(rule, process, start, first.log_evidence)):
                found.append(_tried(rule, process, start))
            heights.append(mode.log_evidence)
    ended = [approximation for approximation in found if approximation is not None]
    # without any the first search says why
    return max(ended, key=lambda a: (a.converged, a.log_evidence)) if ended else find(rule, process)


def _near(rule: Rule, process: RowsProcess, start: Any, height: float) -> bool:
    """Whether a climb is not far below a height after a step: from farther it is long, and leads there at best."""
    step = _tried(replace(rule, max_iter=1), process, start)  # type: ignore[type-var]
    return step is not None and step.log_evidence > height - FAR * process.shape[0]


def _modes(rule: Rule, process: RowsProcess) -> list[Approximation | None]:
    """Where an expansion ends from every start."""
    return [_tried(rule, process), *(_tried(rule, process, _start(process, point)) for point in _points(process))]


def _points(process: RowsProcess) -> Iterator[Array]:
    """Latents to begin from, (n, D): alike in all rows, as the rows are on average, and at the prior mean."""
    problem = process.problem
    yield np.broadcast_to(problem.family.expansion(problem.y).mean(axis=0), process.shape).copy()
    yield np.zeros(process.shape)


def _start(process: RowsProcess, point: Array) -> Any:
    """Start of an expansion at the mean that Taylor's rule has for a point, or None."""
    taylor = _tried(Taylor(point), process)
    return None if taylor is None else taylor.start


def _tried(rule: Rule, process: RowsProcess, start: Any = None) -> Approximation | None:
    # a start from afar may overflow on its way: what it ends with then is not finite, or lower than the others
    quiet = np.errstate() if start is None else np.errstate(over="ignore", invalid="ignore", divide="ignore")
    try:
        with quiet:
            return find(rule, process, start)
    except np.linalg.LinAlgError:
        return None
