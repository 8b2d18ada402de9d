"""Neighbours on rough data: a field in the plane against its peers, growth with the rows, a long series.

    python benchmarks/neighbours.py rough --family poisson --rows 5000   full fits: neighbours, inducing points, GPBoost
    python benchmarks/neighbours.py growth --family von_mises             one evaluation with gradient at several sizes
    python benchmarks/neighbours.py fit --family von_mises --rows 300000  a full fit with defaults, and predictions
    python benchmarks/neighbours.py series --rows 1000000                 a full fit to a series of counts
    python benchmarks/neighbours.py dask --rows 20000                     predictions by one and by two workers

The field is Matérn 3/2 with length 0.06 in the unit square. Each command keeps what it measured in
benchmarks/neighbours.json, beside the results of the others. Times are seconds of processor time with one thread of
BLAS unless OMP_NUM_THREADS says otherwise; GPBoost gets one thread, too, and is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.special import gammaln, logsumexp
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from ggpm import GGPRegressor, Laplace, Neighbours, families
from ggpm.fields.neighbours.conditionals import Conditionals, conditional, factor_cliques
from ggpm.fields.neighbours.field import NeighboursField
from ggpm.fields.neighbours.layout import Cliques, Layout
from ggpm.learning.objective import Evidence

RESULTS = Path(__file__).with_name("neighbours.json")
AMPLITUDES = {"poisson": 1.5, "von_mises": 3.0, "dirichlet": 2.5}  # of the latents, for growth and full fits
EXAMPLES = {"poisson": np.zeros(1), "von_mises": np.zeros(1), "dirichlet": np.array([[0.2, 0.3, 0.5]])}
LENGTH, TEST_ROWS = 0.06, 2000  # of the field; rows held out
MANY = 60  # neighbours of the prior that data are drawn from


def drawn(X: np.ndarray, kernel: Any, D: int, rng: np.random.Generator, nugget: float = 0.0) -> np.ndarray:
    """Latents from the prior of many neighbours, which costs no dense factor, (n, D)."""
    layout = Layout(X, [kernel], Neighbours(MANY if len(X) <= 200_000 else MANY // 2))
    prior = Conditionals(layout, kernel, nugget)
    # A f = sqrt(d) e is solved through Q^-1 A^T (e / sqrt(d))
    noise = rng.standard_normal((layout.n_points, D)) / np.sqrt(prior.d)[:, None]
    pulled = prior.A.T @ noise
    return np.stack([prior.covariance_dot(column) for column in pulled.T], axis=1)[layout.place]


def rough_field(name: str, n: int, amplitude: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the unit square and outputs of a family on a rough latent, the last `TEST_ROWS` to be held out."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n + TEST_ROWS, 2))
    family = families.get(name).resolve(EXAMPLES[name])
    f = (AMPLITUDES[name] if amplitude is None else amplitude) * drawn(
        X, Matern(LENGTH, nu=1.5), family.latent_dim, rng
    )
    return X, family.sample(f, rng, None)


def timed(task: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = task()
    return result, round(time.process_time() - start, 2)


def rough(name: str, n: int, neighbours: int, amplitude: float) -> dict[str, Any]:
    """Full fits by Laplace's method from a start that is three times too long, and held-out log densities."""
    X, y = rough_field(name, n, amplitude)
    kernel = ConstantKernel(1.0) * Matern(0.2, nu=1.5) + ConstantKernel(1.0)
    found: dict[str, Any] = {"family": name, "rows": n, "amplitude": amplitude}
    for label, settings in (("neighbours", {"neighbours": neighbours}), ("inducing", {"inducing": 256})):
        model, seconds = timed(
            lambda s=settings: GGPRegressor(name, kernel, inference="laplace", **s).fit(X[:n], y[:n])
        )
        density, predicted = timed(lambda m=model: float(m.log_predictive_density(X[n:], y[n:]).mean()))
        found[label] = {"fit": seconds, "predict": predicted, "log density": density, "kernel": str(model.kernel_)}
        print(label, found[label], flush=True)
    if name == "poisson" and (peer := gpboost(X[:n], y[:n], X[n:], y[n:], neighbours)) is not None:
        found["gpboost"] = peer
        print("gpboost", peer, flush=True)
    return found


def gpboost(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray, neighbours: int) -> dict | None:
    """The same by GPBoost's Vecchia approximation with Laplace's, with an intercept for our constant kernel."""
    try:
        import gpboost as gpb
    except ImportError:
        return None
    model = gpb.GPModel(
        gp_coords=X, cov_function="matern", cov_fct_shape=1.5, likelihood="poisson", gp_approx="vecchia",
        num_neighbors=neighbours, num_parallel_threads=1,
    )  # fmt: skip
    _, fitted = timed(lambda: model.fit(y=y.astype(float), X=np.ones((len(y), 1))))
    latent, predicted = timed(
        lambda: model.predict(
            gp_coords_pred=X_new, X_pred=np.ones((len(X_new), 1)), predict_var=True, predict_response=False
        )
    )
    x, w = np.polynomial.hermite_e.hermegauss(60)
    eta = latent["mu"][:, None] + np.sqrt(latent["var"])[:, None] * x
    log_p = y_new[:, None] * eta - np.exp(eta) - gammaln(y_new + 1.0)[:, None]
    density = float(logsumexp(log_p + np.log(w / w.sum()), axis=1).mean())
    return {"fit": fitted, "predict": predicted, "log density": density}


def in_another_process(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """`rough_field`, whose prior of many neighbours needs more memory than the fit: not counted as ours."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(rough_field, name, n).result()


def fit(name: str, n: int, neighbours: int) -> dict[str, Any]:
    """A full fit from a start that is three times too long, with default settings, and predictions of held-out rows."""
    X, y = in_another_process(name, n)
    kernel = ConstantKernel(1.0) * Matern(0.2, nu=1.5) + ConstantKernel(1.0)
    clock = time.perf_counter()
    model, seconds = timed(lambda: GGPRegressor(name, kernel, neighbours=neighbours, verbose=1).fit(X[:n], y[:n]))
    density, predicted = timed(lambda: float(model.log_predictive_density(X[n:], y[n:]).mean()))
    found = {
        "rows": n, "fit": seconds, "predict": predicted, "by the clock": round(time.perf_counter() - clock, 1),
        "log density": density, "kernel": str(model.kernel_), "inference": model.inference_,
        "converged": model.converged_, "error of the log-determinant": model.posterior_.precision.log_det_error,
        "peak GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip
    print(found, flush=True)
    return found


def growth(name: str, sizes: list[int], neighbours: int) -> dict[str, Any]:
    """Layout, one evaluation with gradient from the prior mean, and a prediction, at the true kernel."""
    found: dict[str, Any] = {"family": name, "neighbours": neighbours, "sizes": {}}
    for n in sizes:
        X, y = in_another_process(name, n)
        family = families.get(name).resolve(EXAMPLES[name])
        kernels = [ConstantKernel(AMPLITUDES[name] ** 2) * Matern(LENGTH, nu=1.5)]
        encoded, offset = family.encode(y[:n]), np.zeros((n, family.latent_dim))
        field = NeighboursField(X[:n], encoded, offset, Neighbours(neighbours), kernels)
        _, layout = timed(lambda f=field: f.layout)
        evidence = Evidence(family, kernels, field, Laplace())
        (_, _, a), evaluation = timed(evidence.evaluate)
        _, prediction = timed(partial(a.process.posterior(a).latent, X[n:]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        found["sizes"][n] = {"layout": layout, "evaluation": evaluation, "prediction": prediction, "peak GiB": peak}
        print(n, found["sizes"][n], flush=True)
    logs = np.log(np.array([[n, s["layout"] + s["evaluation"]] for n, s in found["sizes"].items()]))
    found["exponent"] = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]) if len(logs) > 1 else None
    print("exponent", found["exponent"])
    return found


def series(n: int, nu: float, neighbours: int) -> dict[str, Any]:
    """A full fit to counts at unequally spaced times, fifty to a length scale, all rows learned from."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, n / 50, n))[:, None]
    nugget = 0.0 if nu == 0.5 else 1e-8  # of the data: times may be as close as 1e-8 length scales
    y = rng.poisson(np.exp(drawn(X, Matern(1.0, nu=nu), 1, rng, nugget)[:, 0]))
    kernel = ConstantKernel(1.0) * Matern(3.0, nu=nu)
    settings = Neighbours(neighbours, learn_rows=None)
    model, seconds = timed(lambda: GGPRegressor("poisson", kernel, neighbours=settings).fit(X, y))
    X_new = rng.uniform(0.0, n / 50, (100_000, 1))
    _, predicted = timed(lambda: model.predict_latent(X_new))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = {
        "rows": n,
        "nu": nu,
        "neighbours": neighbours,
        "fit": seconds,
        "predict 100,000": predicted,
        "peak GiB": peak,
    }
    print({**found, "kernel": str(model.kernel_), "converged": model.converged_})
    return found


def conditionals(cliques: Cliques, kernel: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows and variances of the prior's factor for some cliques: what a worker does with its share."""
    parts = [conditional(factor_cliques(cliques, rows, pairs, kernel, 0.0)) for rows, pairs in cliques.batches()]
    return np.concatenate([a for a, _ in parts]), np.concatenate([d for _, d in parts])


def workers(n: int, neighbours: int, new: int = 400_000, many: int = 300_000) -> dict[str, Any]:
    """Seconds by the clock of predictions and of the prior's factor by one and two processes, and its share."""
    import dask.array as da
    from distributed import Client

    X, y = rough_field("poisson", n)
    kernel = ConstantKernel(AMPLITUDES["poisson"] ** 2) * Matern(LENGTH, nu=1.5)
    model = GGPRegressor("poisson", kernel, neighbours=neighbours, optimizer=None, inference="laplace").fit(
        X[:n], y[:n]
    )
    _, prior = timed(lambda: Conditionals(Layout(X[:n], [kernel], Neighbours(neighbours)), kernel, 0.0))
    _, evaluation = timed(lambda: model.log_marginal_likelihood(model.theta_, eval_gradient=True))
    found: dict[str, Any] = {"rows": n, "new rows": new, "prior's factor": prior, "evaluation": evaluation}
    X_new = np.random.default_rng(1).uniform(size=(new, 2))
    cliques = Layout(np.random.default_rng(2).uniform(size=(many, 2)), [kernel], Neighbours(neighbours)).cliques
    shares = [Cliques(cliques.X, members) for members in np.array_split(cliques.members, 16)]
    for number in (1, 2):
        with Client(n_workers=number, threads_per_worker=1, dashboard_address=None) as client:
            clock = time.perf_counter()
            client.gather(client.map(partial(conditionals, kernel=kernel), client.scatter(shares)))
            found[f"{number} workers, prior's factor of {many}"] = round(time.perf_counter() - clock, 2)
            lazy = da.from_array(X_new, chunks=(new // 16, 2)).persist()
            model.predict(lazy[: new // 8]).compute()  # every worker has its copy of the posterior
            clock = time.perf_counter()
            model.predict(lazy).compute()
            found[f"{number} workers"] = round(time.perf_counter() - clock, 2)
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("rough", "growth", "fit", "series", "dask"))
    parser.add_argument("--family", default="poisson", choices=sorted(EXAMPLES))
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--neighbours", type=int)
    parser.add_argument("--nu", type=float, default=0.5)
    parser.add_argument("--amplitude", type=float, default=1.0, help="standard deviation of the latents (rough)")
    given = parser.parse_args()
    match given.command:
        case "rough":
            n = (given.rows or [5000])[0]
            key = f"rough {given.family}, {n} rows, amplitude {given.amplitude:g}"
            result = rough(given.family, n, given.neighbours or 20, given.amplitude)
        case "growth":
            key, sizes = f"growth {given.family}", given.rows or [10_000, 30_000, 100_000, 300_000]
            result = growth(given.family, sizes, given.neighbours or 20)
        case "fit":
            key, result = (
                f"fit {given.family}",
                fit(given.family, (given.rows or [300_000])[0], given.neighbours or 20),
            )
        case "dask":
            key, result = "dask", workers((given.rows or [20_000])[0], given.neighbours or 20)
        case _:
            key, result = f"series {given.nu:g}", series((given.rows or [10**6])[0], given.nu, given.neighbours or 1)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, key: result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
