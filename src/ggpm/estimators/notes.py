"""What a fit says of hyperparameters that ended at their bounds."""

from __future__ import annotations

from inspect import signature

import numpy as np

from ggpm.kernels import idle
from ggpm.learning import priors
from ggpm.learning.fit import Fit

__all__ = ["notes_on_bounds"]


def notes_on_bounds(fit: Fit, chosen: bool) -> list[str]:
    """Name hyperparameters of a fit that ended at a bound, unless that is how a part shows that it is not needed.

    Variances and a family's phi go to the lower ends of their default bounds (or lower ones) in many ordinary
    fits: there is no intercept, no overdispersion, no noise to speak of. One of several length scales goes to the
    upper end of its default bounds when its feature does not matter, that of one of several parameters when the
    parameter does not vary. Student's phi goes there when there are no outliers. A length scale of a function
    without variance may be anything, at a bound or not: the evidence does not depend on it. ``chosen`` tells that the
    kernel was, from the data.

    >>> from ggpm import GGPRegressor
    >>> notes_on_bounds(GGPRegressor("poisson", optimizer=None).fit(np.arange(8.0)[:, None], np.arange(8)).fit_, True)
    []
    """
    evidence, family = fit.evidence, fit.family
    own = signature(type(family)).parameters.get("phi_bounds")
    default_phi = own is not None and np.array_equal(own.default, family.phi_bounds)
    default_phi |= family.default_bounds
    told = []
    names = priors.names_of(evidence.kernels, evidence.family)
    least = chosen or np.exp(evidence.bounds[:, 0]) < 1.01e-5
    # the evidence is flat down there: a search ends near the bound as well as at it
    gone = least & (evidence.theta < evidence.bounds[:, 0] + np.log(10.0))
    ends = np.cumsum([kernel.n_dims for kernel in evidence.kernels])
    rest = [idle(kernel, part) for kernel, part in zip(evidence.kernels, np.split(gone, ends))]
    any_value = np.concatenate([*rest, np.zeros(len(names) - ends[-1], dtype=bool)])
    for name, value, (low, high), free in zip(names, evidence.theta, evidence.bounds, any_value):
        several = names.count(name) > 1 or len(evidence.kernels) > 1
        useless = name.endswith("length_scale") and several and np.exp(high) > 0.99e5
        useless |= name.endswith("length_scale") and chosen and len(evidence.kernels) > 1
        useless |= name == "phi" and default_phi and family.phi_has_limit
        variance = name.endswith(("constant_value", "noise_level", "phi")) and np.exp(low) < 1.01e-5
        variance |= chosen and name.endswith(("constant_value", "noise_level"))
        unneeded = variance or (name == "phi" and default_phi)
        upper, lower = np.isclose(value, high) and not useless, np.isclose(value, low) and not unneeded
        free &= chosen or np.exp(low) < 1.01e-5  # narrower bounds were given for a reason
        if low < high and (upper or lower) and not free:
            side, bound = ("upper", high) if upper else ("lower", low)
            # a family's entries may be of Cholesky factors or cut points: what the user gave is what to name
            where = f"(phi_bounds={family.phi_bounds})" if name == "phi" else f"{np.exp(bound):.6g}"
            told.append(f"{name} at its {side} bound {where}")
    if not told:
        return []
    return [
        f"the search ended with {', '.join(told)}: the optimum may lie beyond. Widen the bounds, or hold the value "
        "fixed if it is meant."
    ]
