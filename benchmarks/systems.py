"""One task of one system in this process: prints a JSON line with the seconds of every repeat.

Run by `benchmarks/run.py` as ``python systems.py SYSTEM TASK REPEATS``, with the number of BLAS threads set in the
environment. Every system gets the same data, the same kernel (constant times RBF) and starts from the same values.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")


def digits(n):
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:n]
    return X[order] / 16, y[order]


def scalar(kind, n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    eta = 2 * np.sin(2 * X[:, 0]) + X[:, 1]
    y = rng.random(n) < 1 / (1 + np.exp(-eta)) if kind == "bernoulli" else rng.poisson(np.exp(0.5 * eta))
    return X, y.astype(float)


def vector(kind, n, d=3):
    """Simulated angles or compositions, smooth in a two-dimensional input."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2))
    waves = np.stack([np.sin(X[:, 0] * (1 + 0.1 * j) + X[:, 1] + j) for j in range(d)], axis=1)
    if kind == "von_mises":
        return X, np.angle(np.exp(1j * rng.vonmises(2 * waves[:, 0] + X[:, 1], 5.0)))
    alpha = np.log1p(np.exp(2 + 2 * waves))
    g = rng.gamma(alpha) + 1e-12
    return X, g / g.sum(axis=1, keepdims=True)


# ---- ggpm ---------------------------------------------------------------------------------------------------------
def ggpm_model(task):
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    from ggpm import GGPClassifier, GGPRegressor

    name, n, *rest = task.split(":")
    kernel, n = ConstantKernel(1.0) * RBF(1.0), int(n)
    if name == "digits":
        return GGPClassifier(kernel), digits(n)
    if name == "bernoulli":
        return GGPClassifier(kernel), scalar(name, n)
    if name == "poisson":
        return GGPRegressor("poisson", kernel), scalar(name, n)
    if name == "dirichlet":
        return GGPRegressor("dirichlet", kernel), vector(name, n, int(rest[0]))
    return GGPRegressor(name, kernel), vector(name, n)


def ggpm_fit(task):
    model, (X, y) = ggpm_model(task)
    return lambda: float(model.fit(X, y).log_marginal_likelihood_value_)


def ggpm_gradient(task):
    """One evidence with its gradient at fixed hyperparameters, the mode found from scratch."""
    model, (X, y) = ggpm_model(task)
    model.set_params(optimizer=None).fit(X, y)
    return lambda: float(model.log_marginal_likelihood(model.theta_, eval_gradient=True)[0])


def ggpm_predict(task):
    model, (X, y) = ggpm_model(task)
    model.set_params(optimizer=None).fit(X, y)
    rng = np.random.default_rng(1)
    X_new = X[rng.integers(len(X), size=10_000)] + 0.01 * rng.normal(size=(10_000, X.shape[1]))
    return lambda: float(model.predict_latent(X_new)[1].sum())


def ggpm_small(task):
    """A full fit of one family on data from its own prior, default kernel constant times RBF."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    from ggpm import GGPRegressor

    name, n = task.split(":")
    X, y, family = small_data(name, int(n))
    model = GGPRegressor(family, ConstantKernel(1.0) * RBF(1.0))
    return lambda: float(model.fit(X, y).log_marginal_likelihood_value_)


def small_data(name, n):
    from sklearn.base import clone
    from sklearn.gaussian_process.kernels import RBF

    from ggpm import families

    examples = {
        "binomial": [[1, 2]], "multinomial": [[1, 2, 0]], "categorical": [0, 1, 2], "ordinal": [0, 1, 2, 3],
        "dirichlet": [[0.2, 0.3, 0.5]], "von_mises_fisher": [[0.0, 0.6, 0.8]], "bernoulli": [0, 1], "beta": [0.5],
        "multivariate_gaussian": [[1.0, 2.0]], "wishart": [[[2.0, 0.1], [0.1, 1.0]]],
    }  # fmt: skip
    rng = np.random.default_rng(0)
    fresh = families.get(name)
    family = clone(fresh).resolve(np.array(examples.get(name, [1.0])))
    X = rng.uniform(-2, 2, size=(n, 2))
    eta = np.linalg.cholesky(RBF(1.0)(X) + 1e-8 * np.eye(n)) @ rng.normal(size=(n, family.latent_dim)) + 0.5
    trials = rng.integers(1, 12, n).astype(float) if family.countable else None
    y = family.sample(eta, rng, trials)
    if name == "dirichlet":
        y = np.maximum(y, 1e-9) / np.maximum(y, 1e-9).sum(axis=1, keepdims=True)
    return X, y, fresh


def ggpm_taylor(task):
    """Multinomial Taylor with a shared kernel: evidence and gradient for any number of classes."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    from ggpm import GGPRegressor

    n, d = (int(v) for v in task.split(":"))
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2))
    y = rng.multinomial(10, np.full(d, 1 / d), size=n)
    model = GGPRegressor("multinomial", ConstantKernel(1.0) * RBF(1.0), inference="taylor", optimizer=None).fit(X, y)
    return lambda: float(model.log_marginal_likelihood(model.theta_, eval_gradient=True)[0])


# ---- peers --------------------------------------------------------------------------------------------------------
def sklearn_fit(task):
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    name, n = task.split(":")
    X, y = digits(int(n)) if name == "digits" else scalar(name, int(n))
    model = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(1.0))
    return lambda: float(model.fit(X, y).log_marginal_likelihood_value_)


def sklearn_gradient(task):
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    name, n = task.split(":")
    X, y = digits(int(n)) if name == "digits" else scalar(name, int(n))
    model = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(1.0), optimizer=None).fit(X, y)
    theta = np.zeros(2 * (model.n_classes_ if model.n_classes_ > 2 else 1))
    return lambda: float(model.log_marginal_likelihood(theta[:2], eval_gradient=True, clone_kernel=True)[0])


def sklearn_regression(task):
    """A Gaussian process regression with learned noise: the yardstick for small fits."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    X, y, _ = small_data("gaussian", int(task))
    model = GaussianProcessRegressor(ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(1.0), alpha=0.0)
    return lambda: float(model.fit(X, y).log_marginal_likelihood_value_)


def gpboost_fit(task):
    import gpboost

    name, n = task.split(":")
    X, y = scalar(name, int(n))
    likelihood = "bernoulli_logit" if name == "bernoulli" else "poisson"

    def run():
        model = gpboost.GPModel(gp_coords=X, cov_function="gaussian", likelihood=likelihood)
        model.fit(y=y, params={"trace": False})
        return -float(model.get_current_neg_log_likelihood())

    return run


def gpy_fit(task):
    import GPy

    name, n = task.split(":")
    X, y = scalar(name, int(n))

    def run():
        if name == "bernoulli":
            # GPy has no logit link: probit is its nearest likelihood
            likelihood = GPy.likelihoods.Bernoulli()
        else:
            likelihood = GPy.likelihoods.Poisson(gp_link=GPy.likelihoods.link_functions.Log())
        model = GPy.core.GP(
            X, y[:, None], kernel=GPy.kern.RBF(2), likelihood=likelihood,
            inference_method=GPy.inference.latent_function_inference.Laplace(),
        )  # fmt: skip
        model.optimize()
        return float(model.log_likelihood())

    return run


def gpflow_fit(task):
    import gpflow
    import tensorflow as tf

    name, n = task.split(":")
    X, y = digits(int(n)) if name == "digits" else scalar(name, int(n))

    def run():
        if name == "digits":
            likelihood, latents = gpflow.likelihoods.Softmax(10), 10
        elif name == "bernoulli":
            likelihood, latents = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid), 1
        else:
            likelihood, latents = gpflow.likelihoods.Poisson(), 1
        model = gpflow.models.VGP(
            (X, y[:, None].astype(np.int64 if name == "digits" else float)),
            gpflow.kernels.RBF(),
            likelihood,
            num_latent_gps=latents,
        )
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables, options={"maxiter": 100})
        return float(model.elbo())

    return run


TASKS = {
    ("ggpm", "fit"): ggpm_fit, ("ggpm", "gradient"): ggpm_gradient, ("ggpm", "predict"): ggpm_predict,
    ("ggpm", "small"): ggpm_small, ("ggpm", "taylor"): ggpm_taylor, ("sklearn", "fit"): sklearn_fit,
    ("sklearn", "gradient"): sklearn_gradient, ("sklearn", "regression"): sklearn_regression,
    ("gpboost", "fit"): gpboost_fit, ("gpy", "fit"): gpy_fit, ("gpflow", "fit"): gpflow_fit,
}  # fmt: skip


def main() -> None:
    system, task, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
    kind, _, arguments = task.partition("/")
    run = TASKS[system, kind](arguments)
    seconds, value = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        value = run()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "value": value}))


if __name__ == "__main__":
    main()
