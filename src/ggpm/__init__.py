"""Gaussian processes for outputs that are not plain real numbers.

>>> import numpy as np
>>> from ggpm import GGPRegressor
>>> X = np.linspace(0, 3, 20)[:, None]
>>> GGPRegressor("gamma").fit(X, np.exp(np.sin(X[:, 0]))).predict(X[:1]).shape
(1,)
"""

import importlib
from typing import TYPE_CHECKING, Any

from ggpm import families
from ggpm.calibration import calibration
from ggpm.estimators import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, log_predictive_density_scorer
from ggpm.inference import Laplace, Taylor, Variational
from ggpm.predictive import Predictive

if TYPE_CHECKING:
    from ggpm.persistence import LoadError, load, save
    from ggpm.sparse import Inducing

__version__ = "0.1.0"

__all__ = [
    "GGPClassifier",
    "GGPOrdinalClassifier",
    "GGPRegressor",
    "Inducing",
    "Laplace",
    "LoadError",
    "Predictive",
    "Taylor",
    "Variational",
    "calibration",
    "families",
    "load",
    "log_predictive_density_scorer",
    "save",
]


def __getattr__(name: str) -> Any:
    """Files and inducing points are imported when they are first asked for: most programs need neither."""
    homes = {"LoadError": "persistence", "load": "persistence", "save": "persistence", "Inducing": "sparse.inducing"}
    if name in homes:
        return getattr(importlib.import_module(f"ggpm.{homes[name]}"), name)
    raise AttributeError(f"module 'ggpm' has no attribute {name!r}")
