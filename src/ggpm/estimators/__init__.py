"""The three estimators: scikit-learn's conventions around one computation."""

from ggpm.estimators.classifiers import GGPClassifier, GGPOrdinalClassifier
from ggpm.estimators.regressor import GGPRegressor, log_predictive_density_scorer

__all__ = ["GGPClassifier", "GGPOrdinalClassifier", "GGPRegressor", "log_predictive_density_scorer"]
