"""Gaussian processes for outputs that are not plain real numbers.

>>> import numpy as np
>>> from ggpm import GGPRegressor
>>> X = np.linspace(0, 3, 20)[:, None]
>>> GGPRegressor("gamma").fit(X, np.exp(np.sin(X[:, 0]))).predict(X[:1]).shape
(1,)
"""

import importlib
from typing import TYPE_CHECKING, Any

from ggpm import _moved, families
from ggpm.estimators import GGPClassifier, GGPOrdinalClassifier, GGPRegressor, log_predictive_density_scorer
from ggpm.prediction.calibration import calibration
from ggpm.prediction.predictive import Predictive
from ggpm.sites import Laplace, Taylor, Variational

if TYPE_CHECKING:
    from ggpm import plotting
    from ggpm.fields.inducing.points import Inducing
    from ggpm.fields.neighbours import Neighbours
    from ggpm.persistence import LoadError, load, save
    from ggpm.prediction.compare import compare
    from ggpm.prediction.conformal import conformal
    from ggpm.prediction.importance import importance
    from ggpm.reporting import report

__version__ = "0.2.0.dev0"

__all__ = [
    "GGPClassifier",
    "GGPOrdinalClassifier",
    "GGPRegressor",
    "Inducing",
    "Laplace",
    "LoadError",
    "Neighbours",
    "Predictive",
    "Taylor",
    "Variational",
    "calibration",
    "compare",
    "conformal",
    "families",
    "importance",
    "load",
    "log_predictive_density_scorer",
    "plotting",
    "report",
    "save",
]

# imported when they are first asked for: most programs need none of them
_LATER = {
    "Inducing": "ggpm.fields.inducing.points",
    "LoadError": "ggpm.persistence",
    "Neighbours": "ggpm.fields.neighbours.settings",
    "compare": "ggpm.prediction.compare",
    "conformal": "ggpm.prediction.conformal",
    "importance": "ggpm.prediction.importance",
    "load": "ggpm.persistence",
    "plotting": "ggpm.plotting",
    "report": "ggpm.reporting",
    "save": "ggpm.persistence",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        module = importlib.import_module(_LATER[name])
        return module if name == "plotting" else getattr(module, name)
    if name in _moved.HOMES:
        return importlib.import_module(f"ggpm.{name}")
    raise AttributeError(f"module 'ggpm' has no attribute {name!r}")


_moved.install()
