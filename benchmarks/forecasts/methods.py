"""Forecasts as practitioners make them, and ggpm's: every method turns training rows and test inputs into a `Forecast`.

Learners that give points (forest, boosting, neighbours, linear) get a density from the errors of their own predictions
out of fold, on the scale that suits the output: Student's on log y and logit y, von Mises and von Mises-Fisher
around predicted directions, normal log-ratios, negative binomial and Dirichlet-multinomial around means; probabilities
of classes are sharpened or blunted and mixed with frequencies. The same errors choose between a few settings of each
learner. Rows of one group are in one fold.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from densities import (
    Beta,
    Classes,
    DirichletMultinomial,
    Forecast,
    Gamma,
    LogisticNormal,
    Mixture,
    NegativeBinomial,
    ProjectedNormal,
    RoundedNormal,
    Scale,
    StudentOn,
    VonMises,
    VonMisesFisher,
)  # fmt: skip
from numpy.typing import NDArray
from scipy import optimize, special
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)  # fmt: skip
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

Array = NDArray[np.float64]
FOLDS = 5  # within the training rows
# Of Dirichlets, and of sizes of negative binomials; beyond it differences of log-gamma functions lose their digits.
LARGEST_LOG_PRECISION = 14.0
LEAST_SHARE = 1e-4  # of a category in the predictions of learners that know no bounds
SCALES = {"positive": Scale("log"), "share": Scale("logit")}


@dataclass(frozen=True)
class Task:
    """Training rows and test inputs of one split. `Z` and `Z_new`: inputs as standardised numbers and indicators."""

    kind: str
    family: str
    X: pd.DataFrame
    y: NDArray
    groups: NDArray | None
    X_new: pd.DataFrame
    trials: Array | None
    """Totals of the counts that are to be predicted."""
    grades: int
    """How many classes or grades there are."""

    def __post_init__(self) -> None:
        both = pd.get_dummies(pd.concat([self.X, self.X_new]), dtype=float).to_numpy(float)
        scaler = StandardScaler().fit(both[: len(self.X)])
        Z = scaler.transform(both)
        object.__setattr__(self, "Z", Z[: len(self.X)])
        object.__setattr__(self, "Z_new", Z[len(self.X) :])

    def folds(self) -> list[tuple[NDArray, NDArray]]:
        if self.groups is not None:
            return list(GroupKFold(FOLDS).split(self.Z, groups=self.groups))
        if self.kind in ("class", "grade"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a class may have fewer rows than there are folds
                return list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(self.Z, self.y))
        return list(KFold(FOLDS, shuffle=True, random_state=0).split(self.Z))

    def trials_of(self, rows: NDArray) -> Array | None:
        return None if self.trials is None else self.y[rows].sum(axis=1)


Method = Callable[[Task], Forecast]
Maker = Callable[[Array, Array | None], Forecast]


def minimum(function: Callable[[Array], float], start: Sequence[float]) -> Array:
    """Where a function of a few parameters is smallest (Nelder and Mead's simplex: no gradients needed)."""
    return optimize.minimize(function, np.asarray(start, float), method="Nelder-Mead", options={"maxiter": 400}).x


# ---- from points to densities ----------------------------------------------------------------------------------------
def targets(kind: str, y: NDArray) -> Array:
    """What a learner of points predicts instead of y, (n,) or (n, q)."""
    if kind == "angle":
        return np.stack([np.cos(y), np.sin(y)], axis=1)
    if kind == "composition":
        return np.log(y[:, :-1] / y[:, -1:])
    if kind == "counts":
        return y / y.sum(axis=1, keepdims=True)
    return SCALES[kind].forward(y) if kind in SCALES else np.asarray(y, float)


def shares(raw: Array) -> Array:
    raw = np.maximum(raw, LEAST_SHARE)
    return raw / raw.sum(axis=1, keepdims=True)


def unit(raw: Array) -> Array:
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def density(kind: str, found: Array, y: NDArray, trials: Array | None) -> Maker:
    """The distribution around predictions whose parameters fit out-of-fold predictions best."""
    if kind == "angle":

        def angle(raw: Array, parameters: Array) -> Forecast:
            # the shorter the predicted vector the less the direction is known
            return VonMises(np.arctan2(raw[:, 1], raw[:, 0]), np.exp(parameters[0]) * _length(raw) ** parameters[1])

        best = minimum(lambda p: -float(angle(found, p).log_prob(y).mean()), [1.0, 1.0])
        return lambda raw, _: angle(raw, best)
    if kind == "direction":
        start = np.log(1 / np.mean(np.sum((unit(found) - y) ** 2, axis=1)) * (y.shape[1] - 1))
        (log_kappa,) = minimum(
            lambda p: -float(VonMisesFisher(unit(found), np.full(len(y), np.exp(p[0]))).log_prob(y).mean()), [start]
        )
        return lambda raw, _: VonMisesFisher(unit(raw), np.full(len(raw), np.exp(log_kappa)))
    if kind == "composition":
        residuals = targets(kind, y) - found
        cov = residuals.T @ residuals / len(y)
        return lambda raw, _: LogisticNormal(raw, np.broadcast_to(cov, (len(raw), *cov.shape)))
    if kind == "counts":
        known = shares(found)

        def precision(p: Array) -> float:
            return float(np.exp(np.minimum(p[0], LARGEST_LOG_PRECISION)))

        best = minimum(lambda p: -float(DirichletMultinomial(known, precision(p), trials).log_prob(y).mean()), [4.0])
        return lambda raw, totals: DirichletMultinomial(shares(raw), precision(best), totals)
    if kind == "count":

        def count(raw: Array, p: Array) -> Forecast:
            size = np.exp(min(p[2], LARGEST_LOG_PRECISION))
            return NegativeBinomial(np.exp(p[0] + p[1] * np.log(np.maximum(raw, 1e-2))), size)

        best = minimum(lambda p: -float(count(found, p).log_prob(y).mean()), [0.0, 1.0, 0.0])
        return lambda raw, _: count(raw, best)
    scale = SCALES[kind]

    def number(raw: Array, p: Array) -> Forecast:
        return StudentOn(scale, raw, np.exp(p[0]), 1 + np.exp(p[1]))

    start = [np.log(np.std(scale.forward(y) - found)), 2.0]
    best = minimum(lambda p: -float(number(found, p).log_prob(y).mean()) + 1e-3 * p[1] ** 2, start)
    return lambda raw, _: number(raw, best)


def _length(raw: Array) -> Array:
    return np.clip(np.linalg.norm(raw, axis=1), 1e-3, 1.0)


def calibrated(found: Array, y: NDArray) -> Maker:
    """Probabilities with the power and the share of plain frequencies that fit out-of-fold ones best."""
    frequency = np.bincount(y.astype(int), minlength=found.shape[1]) / len(y)
    least = 1 / (len(y) + 1)  # no surprise in so many rows does not say that there is none

    def blunted(raw: Array, p: Array) -> Forecast:
        powered = special.softmax(np.exp(p[0]) * np.log(np.maximum(raw, 1e-6)), axis=1)
        mix = least + (1 - least) * special.expit(p[1])
        return Classes((1 - mix) * powered + mix * frequency)

    best = minimum(lambda p: -float(blunted(found, p).log_prob(y).mean()), [0.0, -3.0])
    return lambda raw, _: blunted(raw, best)


def learned(task: Task, candidates: Sequence[Any]) -> Forecast:
    """The candidate with the best density out of fold, learned again on all training rows."""
    discrete = task.kind in ("class", "grade")
    goal = task.y.astype(int) if discrete else targets(task.kind, task.y)

    def answer(model: Any, Z: Array) -> Array:
        if not discrete:
            return np.asarray(model.predict(Z))
        full = np.zeros((len(Z), task.grades))
        full[:, model.classes_.astype(int)] = model.predict_proba(Z)
        return full

    best: tuple[float, Any, Maker] | None = None
    for candidate in candidates:
        first = answer(clone(candidate).fit(task.Z, goal), task.Z[:1])
        found = np.empty((len(goal), *first.shape[1:]))
        for rows, left in task.folds():
            found[left] = answer(clone(candidate).fit(task.Z[rows], goal[rows]), task.Z[left])
        trials = task.trials_of(np.arange(len(goal)))
        make = calibrated(found, task.y) if discrete else density(task.kind, found, task.y, trials)
        value = float(make(found, trials).log_prob(task.y).mean())
        if best is None or value > best[0]:
            best = (value, candidate, make)
    assert best is not None
    return best[2](answer(clone(best[1]).fit(task.Z, goal), task.Z_new), task.trials)


# ---- learners of points ----------------------------------------------------------------------------------------------
def forest(task: Task) -> Forecast:
    """Random forests of 200 trees."""
    kind = RandomForestClassifier if task.kind in ("class", "grade") else RandomForestRegressor
    return learned(task, [kind(200, min_samples_leaf=leaf, max_features=0.5, random_state=0) for leaf in (1, 3, 10)])


def boosting(task: Task) -> Forecast:
    """Gradient boosting on histograms."""
    settings = [
        {"learning_rate": 0.05, "max_iter": count, "max_leaf_nodes": leaves, "min_samples_leaf": 10, "random_state": 0}
        for count, leaves in ((50, 8), (150, 8), (150, 3))
    ]
    if task.kind in ("class", "grade"):
        return learned(task, [HistGradientBoostingClassifier(**s) for s in settings])
    loss = "poisson" if task.kind == "count" else "squared_error"
    models = [HistGradientBoostingRegressor(loss=loss, **s) for s in settings]
    several = targets(task.kind, task.y[:1]).ndim > 1
    return learned(task, [MultiOutputRegressor(model) if several else model for model in models])


def neighbours(task: Task) -> Forecast:
    """k nearest neighbours in standardised inputs, k of 5, 10, 20, 40."""
    kind = KNeighborsClassifier if task.kind in ("class", "grade") else KNeighborsRegressor
    return learned(task, [kind(k, weights=w) for k in (5, 10, 20, 40) for w in ("uniform", "distance")])


class SoftLogit(RegressorMixin, BaseEstimator):
    """Logistic regression whose targets are shares."""

    def __init__(self, C: float = 1.0):
        self.C = C

    def fit(self, Z: Array, y: Array) -> SoftLogit:
        n, K = y.shape
        labels = np.tile(np.arange(K), n)
        self.model_ = LogisticRegression(C=self.C, max_iter=2000)
        self.model_.fit(np.repeat(Z, K, axis=0), labels, sample_weight=y.ravel())
        return self

    def predict(self, Z: Array) -> Array:
        return self.model_.predict_proba(Z)


class OrderedLogit(ClassifierMixin, BaseEstimator):
    """Proportional odds: logit P(y <= k) = cut_k - x w, with a ridge on w."""

    def __init__(self, C: float = 1.0):
        self.C = C

    def fit(self, Z: Array, y: NDArray) -> OrderedLogit:
        self.classes_, codes = np.unique(y, return_inverse=True)
        K, p = len(self.classes_), Z.shape[1]
        below = np.cumsum(np.bincount(codes))[:-1] / len(y)
        gaps = np.diff(special.logit(below))
        start = np.concatenate([[special.logit(below[0])], np.log(np.maximum(gaps, 1e-3)), np.zeros(p)])

        def loss(theta: Array) -> float:
            probability = self._probabilities(theta, Z, K)[np.arange(len(y)), codes]
            return float(-np.log(np.maximum(probability, 1e-12)).sum() + 0.5 / self.C * theta[K - 1 :] @ theta[K - 1 :])

        self.theta_ = optimize.minimize(loss, start, method="L-BFGS-B").x
        return self

    @staticmethod
    def _probabilities(theta: Array, Z: Array, K: int) -> Array:
        cuts = theta[0] + np.concatenate([[0.0], np.cumsum(np.exp(theta[1 : K - 1]))])
        inner = special.expit(cuts - (Z @ theta[K - 1 :])[:, None])
        edges = np.concatenate([np.zeros((len(Z), 1)), inner, np.ones((len(Z), 1))], axis=1)
        return np.diff(edges, axis=1)

    def predict_proba(self, Z: Array) -> Array:
        return self._probabilities(self.theta_, Z, len(self.classes_))


def linear(task: Task) -> Forecast:
    """Linear models: logistic regression, ordered logit, Poisson regression, ridge on the scale of the output."""
    strengths = (0.03, 0.3, 3.0, 30.0)
    if task.kind == "class":
        return learned(task, [LogisticRegression(C=C, max_iter=2000) for C in strengths])
    if task.kind == "grade":
        return learned(task, [OrderedLogit(C) for C in strengths])
    if task.kind == "counts":
        return learned(task, [SoftLogit(C) for C in strengths])
    if task.kind == "count":
        return learned(task, [PoissonRegressor(alpha=0.01 / C, max_iter=1000) for C in strengths])
    return learned(task, [RidgeCV(np.logspace(-2, 4, 13))])


# ---- Gaussian processes of scikit-learn ----------------------------------------------------------------------------
def _kernel(columns: int, own: bool, noise: bool = True) -> Any:
    length = np.full(columns, np.sqrt(columns)) if own else np.sqrt(columns)
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(length, (1e-2, 1e3))
    return kernel + WhiteKernel(0.5, (1e-6, 1e1)) if noise else kernel


def _column(task: Task, goal: Array, own: bool) -> tuple[Any, Array, Array]:
    """A Gaussian process of one column: the fitted kernel, means and deviations of new rows, noise included."""
    model = GaussianProcessRegressor(_kernel(task.Z.shape[1], own), normalize_y=True).fit(task.Z, goal)
    return model.kernel_, *model.predict(task.Z_new, return_std=True)


def _out_of_fold(task: Task, goal: Array, kernel: Any) -> tuple[Array, Array]:
    """Means and deviations of the training rows, each without its fold, with the kernel as learned from all."""
    mean, deviation = np.empty(len(goal)), np.empty(len(goal))
    for rows, left in task.folds():
        model = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True).fit(task.Z[rows], goal[rows])
        mean[left], deviation[left] = model.predict(task.Z[left], return_std=True)
    return mean, deviation


def gpr(task: Task, own: bool = False) -> Forecast:
    """Gaussian process regression of (cos, sin), coordinates, log-ratios, log y, logit y, log(1 + y) or codes."""
    kind, y = task.kind, task.y
    if kind == "angle":
        model = GaussianProcessRegressor(_kernel(task.Z.shape[1], own) + ConstantKernel(0.3, (1e-3, 1e2)))
        mean, deviation = model.fit(task.Z, targets(kind, y)).predict(task.Z_new, return_std=True)
        return ProjectedNormal(mean, deviation.reshape(len(mean), -1)[:, 0])
    if kind in ("direction", "composition", "counts"):
        goals = np.log((y[:, :-1] + 0.5) / (y[:, -1:] + 0.5)) if kind == "counts" else targets(kind, y)
        columns = [_column(task, goal, own) for goal in goals.T]
        inner = [_out_of_fold(task, goal, kernel) for goal, (kernel, _, _) in zip(goals.T, columns)]
        mean, deviation = (np.stack([c[k] for c in columns], axis=1) for k in (1, 2))
        found, spread = (np.stack([c[k] for c in inner], axis=1) for k in (0, 1))
        if kind == "composition":
            correlation = np.corrcoef(((goals - found) / spread).T)
            return LogisticNormal(mean, deviation[:, :, None] * deviation[:, None, :] * correlation)
        if kind == "counts":
            make = density(kind, _from_ratios(found), y, task.trials_of(np.arange(len(y))))
            return make(_from_ratios(mean), task.trials)
        variance, variance_new = np.mean(spread**2, axis=1), np.mean(deviation**2, axis=1)
        (factor,) = minimum(
            lambda p: -float(VonMisesFisher(unit(found), np.exp(p[0]) / variance).log_prob(y).mean()), [0.0]
        )
        return VonMisesFisher(unit(mean), np.exp(factor) / variance_new)
    _, mean, deviation = _column(task, np.log1p(y) if kind == "count" else targets(kind, y), own)
    if kind in SCALES:
        return StudentOn(SCALES[kind], mean, deviation)
    return RoundedNormal(mean, deviation, None if kind == "count" else task.grades - 1)


def _from_ratios(z: Array) -> Array:
    return special.softmax(np.concatenate([z, np.zeros((len(z), 1))], axis=1), axis=1)


def gpc(task: Task) -> Forecast:
    """Gaussian process classification of scikit-learn, one class against the rest, Laplace's method."""
    model = GaussianProcessClassifier(_kernel(task.Z.shape[1], False, noise=False), random_state=0)
    model.fit(task.Z, task.y.astype(int))
    full = np.full((len(task.Z_new), task.grades), 1e-6)
    full[:, model.classes_] = np.maximum(model.predict_proba(task.Z_new), 1e-6)
    return Classes(full / full.sum(axis=1, keepdims=True))


GPBOOST = {"count": "negative_binomial", "positive": "gamma", "share": "beta"}


def gpboost(task: Task) -> Forecast:
    """A Gaussian process of GPBoost with the same likelihood (Laplace's method), a length scale per input."""
    import gpboost as gpb

    scale = 1.0 if task.kind != "positive" else float(np.mean(task.y))
    ones, new = np.ones((len(task.Z), 1)), {"gp_coords_pred": task.Z_new, "X_pred": np.ones((len(task.Z_new), 1))}
    for covariance in ("matern_ard", "matern"):  # where its search breaks down, one length scale for all
        settings = {"gp_coords": task.Z, "cov_function": covariance, "cov_fct_shape": 1.5, "num_parallel_threads": 1}
        model = gpb.GPModel(**settings, likelihood=GPBOOST[task.kind])
        try:
            model.fit(y=task.y / scale, X=ones, params={"trace": False})
            found = model.predict(**new, predict_var=True, predict_response=False)
            break
        except gpb.basic.GPBoostError:
            if covariance == "matern":
                raise
    mean, deviation = np.asarray(found["mu"]), np.sqrt(np.asarray(found["var"]))
    (auxiliary,) = np.asarray(model.get_aux_pars()).ravel()[:1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    latents = [mean + deviation * node for node in nodes]
    makers: dict[str, Callable[[Array], Forecast]] = {
        "count": lambda f: NegativeBinomial(np.exp(f), auxiliary),
        "positive": lambda f: Gamma(scale * np.exp(f), auxiliary),
        "share": lambda f: Beta(np.clip(special.expit(f), 1e-9, 1 - 1e-9), auxiliary),
    }
    return Mixture([makers[task.kind](f) for f in latents], weights / weights.sum())


# ---- ggpm ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ours:
    """A fitted model's predictive distributions."""

    model: Any
    X: Any
    trials: Array | None

    def _distribution(self) -> Any:
        return self.model.predict_dist(self.X, trials=self.trials)

    def log_prob(self, y: NDArray) -> Array:
        return self._distribution().log_prob(y)

    def sample(self, size: int, rng: np.random.Generator) -> NDArray:
        return self._distribution().sample(size, random_state=int(rng.integers(2**31)))

    def depth(self, y: NDArray) -> Array:
        from ggpm.prediction.calibration import coverage_depth

        return coverage_depth(self.model, self.X, y, random_state=0)


def default(task: Task, **settings: Any) -> Forecast:
    """ggpm with nothing chosen but the family; known groups of rows are a category among the inputs, new in test rows.

    Other learners are told of them too: their folds keep groups together.
    """
    from ggpm import GGPRegressor

    X, X_new = task.X, task.X_new
    if task.groups is not None:
        X = X.assign(group=pd.Categorical([str(label) for label in task.groups]))
        X_new = X_new.assign(group=pd.Categorical(["another one"] * len(X_new)))
    return Ours(GGPRegressor(task.family, **settings).fit(X, task.y), X_new, task.trials)


def previous(task: Task) -> Forecast:
    """ggpm's default of version 0.1: one isotropic RBF and a constant on columns as they are, Laplace's method.

    With classes, grades and counts out of trials it had weak priors, around where the search starts.
    """
    from ggpm import GGPRegressor
    from ggpm.kernels import median_distance
    from ggpm.learning.priors import LogNormal

    both = pd.get_dummies(pd.concat([task.X, task.X_new]), dtype=float).to_numpy(float)
    X, X_new = both[: len(task.X)], both[len(task.X) :]
    length = median_distance(X)
    starts = [length / factor for factor in (1, 5, 25)]
    priors = {
        "k1__k1__constant_value": LogNormal(10.0, 2.0),
        "k1__k2__length_scale": LogNormal(length, 1.5),
        "k2__constant_value": LogNormal(1.0, 2.0),
    }
    weak = priors if task.kind in ("class", "grade", "counts") else None
    models = []
    for start in starts:  # it tried three lengths, and kept the one with the best evidence
        kernel = ConstantKernel() * RBF(start, (1e-5 * max(1, start), 1e5 * max(1, start))) + ConstantKernel()
        models.append(GGPRegressor(task.family, kernel, inference="laplace", priors=weak).fit(X, task.y))
    best = max(models, key=lambda model: model.log_marginal_likelihood_value_)
    return Ours(best, X_new, task.trials)


METHODS: dict[str, tuple[Method, tuple[str, ...] | None]] = {
    "ggpm": (default, None),
    "ggpm 0.1": (previous, None),
    "random forest": (forest, None),
    "gradient boosting": (boosting, None),
    "nearest neighbours": (neighbours, None),
    "linear": (linear, None),
    "GPR": (gpr, ("angle", "direction", "composition", "counts", "count", "grade", "positive", "share")),
    "GPR, own lengths": (
        lambda task: gpr(task, own=True),
        ("angle", "direction", "composition", "counts", "count", "grade", "positive", "share"),
    ),
    "GPC": (gpc, ("class", "grade")),
    "GPBoost": (gpboost, tuple(GPBOOST)),
}
GAUSSIAN_PROCESSES = ("GPR", "GPR, own lengths", "GPC", "GPBoost")


def methods_of(kind: str) -> list[str]:
    """Names of the methods that can forecast outputs of a kind."""
    return [name for name, (_, kinds) in METHODS.items() if kinds is None or kind in kinds]
