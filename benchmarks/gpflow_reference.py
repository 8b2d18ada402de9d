"""Reference values from GPflow for tests/test_gold.py, and the time of its VGP on the digits.

    pip install gpflow scikit-learn      (in an environment of its own: GPflow pins older packages)
    python benchmarks/gpflow_reference.py bernoulli poisson digits

Prints ELBOs of the full-covariance VGP at fixed hyperparameters, run to convergence with natural gradients, and for
"digits" the seconds of 100 iterations of GPflow's own Scipy (L-BFGS-B) training of all parameters.
"""

from __future__ import annotations

import sys
import time

import numpy as np


def data(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """40 inputs in the plane and outputs from a smooth function; the tests make the same ones."""
    rng = np.random.default_rng(42)
    X = rng.uniform(-2, 2, size=(40, 2))
    f = 1.5 * np.sin(1.3 * X[:, 0]) - X[:, 1]
    if kind == "bernoulli":
        return X, (rng.uniform(size=40) < 1 / (1 + np.exp(-f))).astype(float)
    return X, rng.poisson(np.exp(0.5 * f)).astype(float)


def elbo(kind: str) -> float:
    """ELBO of GPflow's VGP, variance 1.7, length scale 0.9, no hyperparameter learned."""
    import gpflow
    import tensorflow as tf

    X, y = data(kind)
    likelihood = (
        gpflow.likelihoods.Bernoulli(invlink=tf.math.sigmoid) if kind == "bernoulli" else gpflow.likelihoods.Poisson()
    )
    if kind == "bernoulli":  # its default of 20 Gauss-Hermite nodes is exact to about 1e-4 here
        likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 100)
    gpflow.config.set_default_jitter(1e-10)
    model = gpflow.models.VGP((X, y[:, None]), gpflow.kernels.RBF(variance=1.7, lengthscales=0.9), likelihood)
    step = gpflow.optimizers.NaturalGradient(gamma=0.5)
    for _ in range(300):
        step.minimize(model.training_loss, [(model.q_mu, model.q_sqrt)])
    return float(model.elbo())


def digits(iterations: int = 100) -> tuple[float, float]:
    """Seconds for 100 iterations of VGP with a softmax likelihood on 300 digits, and the test log-loss."""
    import gpflow
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(1797)
    train, test = order[:300], order[300:]
    likelihood = gpflow.likelihoods.Softmax(10)
    data = (X[train] / 16, y[train, None].astype(np.int64))
    model = gpflow.models.VGP(data, gpflow.kernels.RBF(), likelihood, num_latent_gps=10)
    start = time.perf_counter()
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": iterations}, compile=True
    )
    seconds = time.perf_counter() - start
    p = model.predict_y(X[test] / 16)[0].numpy()
    p = p / p.sum(axis=1, keepdims=True)
    return seconds, float(-np.mean(np.log(p[np.arange(len(test)), y[test]])))


if __name__ == "__main__":
    for what in sys.argv[1:] or ["bernoulli", "poisson"]:
        print(what, *(digits() if what == "digits" else [elbo(what)]), flush=True)
