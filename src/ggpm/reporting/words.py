"""Sentences of a report: what the family is, what the kernel says, and the verdict."""

from __future__ import annotations

from inspect import getdoc
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as sk

from ggpm.families.base import Family
from ggpm.families.ordinal import Ordinal
from ggpm.kernels.additive import Additive
from ggpm.kernels.columns import Category, Cyclic, On, Sphere, listed
from ggpm.kernels.scaled import Scaled
from ggpm.kernels.structure import factors, summands

SMOOTHNESS = {0.5: "rough", 1.5: "once differentiable", 2.5: "twice differentiable"}


def family_in_words(family: Family) -> str:
    """First sentence of the family's documentation.

    >>> from ggpm.families import Poisson
    >>> family_in_words(Poisson()).startswith("Counts")
    True
    """
    text = getdoc(type(family)) or type(family).__name__
    return " ".join(text.split("\n\n")[0].split())


def formula(family: Family, kernels: int) -> str:
    """The model on one line: what y is given the latent functions, and what these are.

    >>> from ggpm.families import Poisson
    >>> formula(Poisson(), 1)
    'yᵢ ~ Poisson(η(xᵢ)),  η ~ GP(0, k)'
    """
    name, D = type(family).__name__, family.latent_dim
    origin = "μ" if np.any(np.asarray(family.origin) != 0) else "0"
    if D == 1:
        return f"yᵢ ~ {name}(η(xᵢ)),  η ~ GP({origin}, k)"
    kernel = "k" if kernels == 1 else "kⱼ"
    level = origin if origin == "0" else "μⱼ"
    dots, last = "" if D == 2 else " …,", str(D).translate(_BELOW)
    return f"yᵢ ~ {name}(η₁(xᵢ),{dots} η{last}(xᵢ)),  ηⱼ ~ GP({level}, {kernel}),  j = 1,{dots} {D}"


_BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def kernel_in_words(kernel: sk.Kernel) -> str:
    """A kernel as a sentence: what functions it makes of which columns.

    >>> kernel_in_words(sk.ConstantKernel(4.0) * sk.RBF(2.0) + sk.WhiteKernel(0.1))
    'a smooth function of all columns with length scale 2, of standard deviation 2; plus noise of every row, of \
standard deviation 0.316'
    """
    return "; plus ".join(_term(part) for part in summands(kernel))


def _term(kernel: sk.Kernel) -> str:
    scale, parts = 1.0, []
    for factor in factors(kernel):
        if isinstance(factor, sk.ConstantKernel):
            scale *= factor.constant_value
        else:
            parts.append(factor)
    sd = f", of standard deviation {np.sqrt(scale):.3g}"
    if not parts:
        return f"a level that all rows share{sd}"
    if len(parts) == 1 and isinstance(parts[0], sk.WhiteKernel):
        return f"noise of every row, of standard deviation {np.sqrt(scale * parts[0].noise_level):.3g}"
    return " times ".join(_function(part, "all columns") for part in parts) + sd


def _function(kernel: sk.Kernel, of: str) -> str:
    """One factor of a product, a function of some columns."""
    if isinstance(kernel, On):
        return _function(kernel.kernel, ", ".join(map(str, listed(kernel.columns))))
    if isinstance(kernel, Scaled):
        return _function(kernel.kernel, of) + (" by their ranks" if any(kernel.knots) else " in units of their spread")
    if isinstance(kernel, Category):
        alike = "" if kernel.length_scale is None else " (the more labels two have in common, the more alike)"
        return f"a level for each {', '.join(map(str, listed(kernel.columns)))}{alike}"
    if isinstance(kernel, Cyclic):
        return f"a cycle of {of} with period {kernel.period:.4g} and length scale {kernel.length_scale:.3g}"
    if isinstance(kernel, Sphere):
        return f"a function on the globe of {of} with length scale {kernel.length_scale:.3g} radii"
    if isinstance(kernel, Additive):
        return f"a sum of functions of each of {of} with length scale {kernel.length_scale:.3g}"
    if isinstance(kernel, sk.DotProduct):
        return f"a linear function of {of}"
    if isinstance(kernel, sk.RBF):  # Matérn kernels are RBFs in scikit-learn
        nu = kernel.nu if isinstance(kernel, sk.Matern) else np.inf
        how = "smooth" if np.isinf(nu) else SMOOTHNESS.get(nu, f"Matérn {nu:g}")
        lengths = np.atleast_1d(kernel.length_scale)
        shown = ", ".join(f"{length:.3g}" for length in lengths[:8]) + (", ..." if len(lengths) > 8 else "")
        return f"a {how} function of {of} with length scale{'s' if len(lengths) > 1 else ''} {shown}"
    return f"{kernel} of {of}"


def verdict(
    family: Family, trust: dict[str, Any], simpler: list[dict[str, Any]], row: str = "held-out row"
) -> list[str]:
    """Three sentences: better than simpler models or not, how far off, and whether its regions keep their promise.

    ``row`` is what rows are called: not held-out where they are training rows.
    """
    density, error = trust["log_density"], trust["error"]
    if simpler:
        gains = ", and ".join(
            f"{times_as_probable(s['gain'], s['gain_standard_error'])} under the {_CALLED[s['name']]} "
            f"({s['gain']:+.2g} ± {s['gain_standard_error']:.2g} nats)"
            for s in simpler
        )
        first = f"A {row} was typically {gains}."
    else:
        first = (
            f"The log predictive density is {density['mean']:.3g} ± {density['standard_error']:.2g} nats per {row}; "
            "the training rows are not at hand to fit simpler models to."
        )
    second = f"Predictions are off by {error['mean']:.3g} ± {error['standard_error']:.2g} ({trust['error_name']})."
    level, found = trust["level"], trust["coverage_at_level"]
    entry = next(c for c in trust["coverage"] if c["level"] == level)
    return [first, second, _on_coverage(level, found, entry["standard_error"], family.finite, row)]


def on_rows_seen(seen: int, n: int) -> str:
    """Warning that rows which should be new are training rows.

    >>> on_rows_seen(9, 9)
    'All 9 rows are training rows, in X and y: what follows tells how well they were fitted, not what new rows would \
show. Give rows that fit has not seen.'
    """
    rows = f"All {n} rows are" if seen == n else f"Of the {n} rows {seen} {'is a' if seen == 1 else 'are'}"
    what = "training row" if seen == 1 and n > 1 else "training rows"
    return (
        f"{rows} {what}, in X and y: what follows tells how well they were fitted, not what new rows would show. "
        "Give rows that fit has not seen."
    )


def phi_in_words(family: Family) -> str:
    """Name of the family's phi in the text.

    >>> from ggpm.families import Gamma, Ordinal
    >>> phi_in_words(Gamma()), phi_in_words(Ordinal(n_levels=3))
    ('dispersion φ', 'cut points')
    """
    return "cut points" if isinstance(family, Ordinal) else "dispersion φ"


_CALLED = {"constant": "best constant", "linear": "linear model"}


def times_as_probable(gain: float, error: float) -> str:
    """A mean difference of log densities in words: its exponential is the geometric mean of their ratios.

    >>> times_as_probable(1.1, 0.1), times_as_probable(-0.7, 0.1), times_as_probable(0.1, 0.1)
    ('3 times as probable as', '0.5 times as probable as', 'as probable, up to chance, as')
    """
    if abs(gain) <= 2 * error:
        return "as probable, up to chance, as"
    if gain > np.log(1000.0):
        return "more than 1000 times as probable as"
    return f"{np.exp(gain):.2g} times as probable as"


def _on_coverage(level: float, found: float, error: float, finite: bool, row: str = "held-out row") -> str:
    """Whether the share of rows within their regions is what was promised, up to chance."""
    said = f"Regions of {level:.0%} hold {found:.0%} of the {row}s"
    if found < level - 2 * error:
        return f"{said}, fewer than promised: the model is too sure of itself."
    if found > level + 2 * error and finite:
        return f"{said}, more than promised: they are sets of whole labels, which hold at least {level:.0%}."
    if found > level + 2 * error:
        return f"{said}, more than promised: they are wider than they need be."
    return f"{said}, as promised up to chance: they can be trusted here."
