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
from ggpm.families.dirichlet import Dirichlet
from ggpm.families.dirichlet_multinomial import DirichletMultinomial
from ggpm.families.exponential import ExponentialFamily
from ggpm.families.gamma import Gamma
from ggpm.families.gamma_mean_shape import GammaMeanShape
from ggpm.families.gaussian import Gaussian
from ggpm.families.gaussian_mean_scale import GaussianMeanScale
from ggpm.families.inverse_gaussian import InverseGaussian
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
from ggpm.families.wishart import Wishart

_BUILT_IN = (
    Gaussian, MultivariateGaussian, Bernoulli, Binomial, BetaBinomial, Poisson, NegativeBinomial, Gamma,
    InverseGaussian, Beta, Categorical, Multinomial, DirichletMultinomial, Ordinal, VonMises, VonMisesFisher, Dirichlet,
    LogisticNormal, Wishart, GaussianMeanScale, StudentT, GammaMeanShape, BetaMeanPrecision,
    NegativeBinomialMeanDispersion, VonMisesDirectionConcentration,
)  # fmt: skip

FAMILIES: dict[str, type[Family]] = {re.sub(r"(?<!^)(?=[A-Z])", "_", c.__name__).lower(): c for c in _BUILT_IN}

__all__ = ["FAMILIES", "ExponentialFamily", "Family", "ScalarFamily", "get", *(c.__name__ for c in _BUILT_IN)]


def get(family: str | Family) -> Family:
    """The family of that name, or an unfitted copy of the instance.

    >>> get("negative_binomial")
    NegativeBinomial()
    """
    if isinstance(family, Family):
        return clone(family)
    if isinstance(family, str) and family in FAMILIES:
        return FAMILIES[family]()
    if isinstance(family, type) and issubclass(family, Family):
        raise TypeError(f"family must be a name or an instance; got the class itself. Try {family.__name__}().")
    known = ", ".join(sorted(FAMILIES))
    raise ValueError(
        f"unknown family {family!r}: expected one of {known}, or an instance from ggpm.families."
        f"{did_you_mean(family, FAMILIES)}"
    )
