"""The gold standard: long NUTS runs of the same model, and GPflow's bound.

NUTS is NumPyro's, which comes with the extra "test". The values of GPflow were made by
``benchmarks/gpflow_reference.py`` (GPflow 2.11.2, TensorFlow 2.21) on the data that it defines.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cases import simulate
from ggpm import GGPRegressor, Laplace, Taylor, Variational, families
from ggpm.families.autodiff import _float64

NAMES = ["von_mises", "dirichlet", "categorical", "poisson", "ordinal"]
METHODS = {
    "taylor": Taylor(),
    "laplace": Laplace(),
    "variational, factorised": Variational(sites="factorised", accuracy="fine"),
    "variational, blocks": Variational(sites="blocks", accuracy="fine"),
}
KERNEL = ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(0.25)
N = 20


def log_likelihood(name, family):
    """log p(y | eta) in JAX, written from the definitions of the distributions."""
    import jax.numpy as jnp
    from jax.scipy.special import gammaln, i0e, log_ndtr, logsumexp
    from jax.scipy.stats import norm

    if name == "von_mises":

        def f(eta, y):
            kappa = jnp.sqrt(jnp.sum(eta**2, -1) + 1e-12)
            return eta[:, 0] * jnp.cos(y) + eta[:, 1] * jnp.sin(y) - jnp.log(2 * jnp.pi * i0e(kappa)) - kappa

    elif name == "dirichlet":

        def f(eta, y):
            a = jnp.logaddexp(eta, 0.0)  # softplus
            return jnp.sum((a - 1) * jnp.log(y) - gammaln(a), -1) + gammaln(jnp.sum(a, -1))

    elif name == "categorical":

        def f(eta, y):
            return eta[jnp.arange(len(y)), y.astype(int)] - logsumexp(eta, axis=-1)

    elif name == "poisson":

        def f(eta, y):
            return y * eta[:, 0] - jnp.exp(eta[:, 0]) - gammaln(y + 1)

    else:
        cuts = jnp.asarray(family.phi)

        def f(eta, y):
            upper = jnp.concatenate([cuts, jnp.array([40.0])])[y.astype(int)] - eta[:, 0]
            lower = jnp.concatenate([jnp.array([-40.0]), cuts])[y.astype(int)] - eta[:, 0]
            flip = lower > 0  # the smaller tail keeps its digits
            a, b = jnp.where(flip, -upper, lower), jnp.where(flip, -lower, upper)
            return log_ndtr(b) + jnp.log1p(-jnp.exp(log_ndtr(a) - log_ndtr(b))) + 0 * norm.pdf(a)

    return f


def draws_of_nuts(name, X, y, family, kernel=KERNEL, samples=4000):
    """Draws of the latent at the training rows, (draws, n, D), from a run whose diagnostics are in order."""
    import jax

    with _float64(jax):  # for this run alone
        eta, divergences = _draws(name, X, y, family, kernel, samples)
    assert not jax.config.jax_enable_x64
    assert divergences == 0
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    # 2000 independent draws know a mean to 0.02 sd, as the test below and docs/inference.md take it
    assert effective_sample_size(eta).min() > 2000 and split_gelman_rubin(eta).max() < 1.01
    return eta[0]


def _draws(name, X, y, family, kernel, samples):
    """Draws of the latent (chains, draws, n, D), and the number of divergences."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import MCMC, NUTS

    L = jnp.asarray(np.linalg.cholesky(kernel(X) + 1e-10 * np.eye(len(X))))
    f, D = log_likelihood(name, family), family.latent_dim

    def model():
        x = numpyro.sample("x", dist.Normal(0, 1).expand([len(X), D]).to_event(2))
        eta = numpyro.deterministic("eta", L @ x)
        numpyro.factor("y", jnp.sum(f(eta, jnp.asarray(y))))

    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9), num_warmup=1000, num_samples=samples, num_chains=1, progress_bar=False
    )
    mcmc.run(jax.random.PRNGKey(0))
    eta = np.asarray(mcmc.get_samples(group_by_chain=True)["eta"])
    return eta, int(mcmc.get_extra_fields()["diverging"].sum())


def errors(name, seed=0):
    """For every method: rms error of the latent mean in posterior sds, and the mean ratio of the sds."""
    X, y, family = simulate(name, n=N, seed=seed)
    eta = draws_of_nuts(name, X, y, family)
    mean, sd = eta.mean(axis=0), eta.std(axis=0)
    out = {}
    for label, inference in METHODS.items():
        model = GGPRegressor(family, KERNEL, inference=inference, optimizer=None).fit(X, y)
        m, V = model.predict_latent(X)
        s = np.sqrt(np.einsum("njj->nj", V))
        out[label] = float(np.sqrt(np.mean(((m - mean) / sd) ** 2))), float(np.mean(s / sd))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_variational_blocks_are_close_to_nuts(name):
    """Mean within 0.1 posterior sd (4000 draws know it to 0.02 or so), sds within 5 %; others are far off."""
    found = errors(name)
    error, ratio = found["variational, blocks"]
    assert error < 0.1 and 0.95 < ratio < 1.05, found
    assert 2 * error < min(found["laplace"][0], found["taylor"][0]), found


def reference_data(kind):
    path = Path(__file__).parents[1] / "benchmarks" / "gpflow_reference.py"
    spec = importlib.util.spec_from_file_location("gpflow_reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.data(kind)


GPFLOW_ELBO = {"bernoulli": -22.507947, "poisson": -61.528356}


@pytest.mark.parametrize("kind", GPFLOW_ELBO)
def test_bound_equals_that_of_gpflow(kind):
    X, y = reference_data(kind)
    kernel = ConstantKernel(1.7) * RBF(0.9)
    model = GGPRegressor(families.get(kind), kernel, inference="variational", optimizer=None).fit(X, y)
    np.testing.assert_allclose(model.log_marginal_likelihood_value_, GPFLOW_ELBO[kind], atol=1e-3)


if __name__ == "__main__":  # the table of docs/inference.md
    for name in NAMES:
        cells = [f"{e:.2f} / {r:.2f}" for e, r in errors(name).values()]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
