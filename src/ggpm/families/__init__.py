"""The families: what an observation is.

One file per family. A family is used by instance or by name (its class name in snake case); users' own
subclasses of `ExponentialFamily` or `Family` are passed as instances.
"""

from __future__ import annotations

import re

from sklearn.base import clone

from ggpm.data.text import did_you_mean
from ggpm.families.base import Family, ScalarFamily
from ggpm.families.bernoulli import Bernoulli
from ggpm.families.beta import Beta
from ggpm.families.beta_binomial import BetaBinomial
from ggpm.families.beta_mean_precision import BetaMeanPrecision
from ggpm.families.binomial import Binomial
from ggpm.families.categorical import Categorical
from ggpm.families.censored import Censored, right_censored
from ggpm.families.dirichlet import Dirichlet
from ggpm.families.dirichlet_multinomial import DirichletMultinomial
from ggpm.families.exponential import ExponentialFamily
from ggpm.families.gamma import Gamma
from ggpm.families.gamma_mean_shape import GammaMeanShape
from ggpm.families.gaussian import Gaussian
from ggpm.families.gaussian_mean_scale import GaussianMeanScale
from ggpm.families.hurdle import Hurdle
from ggpm.families.inverse_gaussian import InverseGaussian
from ggpm.families.log_normal import LogNormal
from ggpm.families.logistic_normal import LogisticNormal
from ggpm.families.multinomial import Multinomial
from ggpm.families.multivariate_gaussian import MultivariateGaussian
from ggpm.families.negative_binomial import NegativeBinomial
from ggpm.families.negative_binomial_mean_dispersion import NegativeBinomialMeanDispersion
from ggpm.families.ordinal import Ordinal
from ggpm.families.poisson import Poisson
from ggpm.families.student_t import StudentT
from ggpm.families.von_mises import VonMises
from ggpm.families.von_mises_direction_concentration import VonMisesDirectionConcentration
from ggpm.families.von_mises_fisher import VonMisesFisher
from ggpm.families.weibull import Weibull
from ggpm.families.wishart import Wishart
from ggpm.families.zero_inflated import ZeroInflated
from ggpm.families.zero_one_inflated_beta import ZeroOneInflatedBeta

_BUILT_IN = (
    Gaussian, MultivariateGaussian, Bernoulli, Binomial, BetaBinomial, Poisson, NegativeBinomial, Gamma,
    InverseGaussian, LogNormal, Weibull, Beta, Categorical, Multinomial, DirichletMultinomial, Ordinal, VonMises,
    VonMisesFisher, Dirichlet, LogisticNormal, Wishart, GaussianMeanScale, StudentT, GammaMeanShape, BetaMeanPrecision,
    NegativeBinomialMeanDispersion, VonMisesDirectionConcentration,
)  # fmt: skip


def _by_name(*classes: type[Family]) -> dict[str, type[Family]]:
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", c.__name__).lower(): c for c in classes}


FAMILIES: dict[str, type[Family]] = _by_name(*_BUILT_IN)
MIXED: dict[str, type[Family]] = _by_name(ZeroOneInflatedBeta)
"""Families of numbers of which some have probabilities of their own."""
WRAPPERS: dict[str, type[Family]] = _by_name(Hurdle, ZeroInflated, Censored)
"""Families around a scalar one; by name both together: "hurdle_gamma", "zero_inflated_poisson", "censored_weibull"."""

__all__ = [
    "FAMILIES", "MIXED", "WRAPPERS", "Censored", "ExponentialFamily", "Family", "Hurdle", "ScalarFamily",
    "ZeroInflated", "ZeroOneInflatedBeta", "get", "right_censored", *(c.__name__ for c in _BUILT_IN),
]  # fmt: skip


def get(family: str | Family) -> Family:
    """The family of that name, or an unfitted copy of the instance.

    >>> get("negative_binomial")
    NegativeBinomial()
    >>> get("hurdle_gamma")
    Hurdle(base=Gamma())
    """
    if isinstance(family, Family):
        return clone(family)
    if isinstance(family, str) and family in FAMILIES | MIXED:
        return (FAMILIES | MIXED)[family]()
    for outer, kind in WRAPPERS.items() if isinstance(family, str) else ():
        inner = str(family).removeprefix(f"{outer}_")
        if inner != family and inner in FAMILIES:
            return kind(FAMILIES[inner]())  # type: ignore[call-arg]
    if isinstance(family, type) and issubclass(family, Family):
        raise TypeError(f"family must be a name or an instance; got the class itself. Try {family.__name__}().")
    known = ", ".join(sorted(FAMILIES | MIXED))
    raise ValueError(
        f"unknown family {family!r}: expected one of {known}, one of {', '.join(WRAPPERS)} before such a name, or an "
        f"instance from ggpm.families.{did_you_mean(family, FAMILIES | MIXED)}"
    )
