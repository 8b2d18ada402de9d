"""Predictions against the algebra before them, in units of D + 1 triangular solves.

For n = 300 training rows and 10,000 new ones the mean and variance of the latent take D + 1 triangular solves of order
n with as many right-hand sides; that time, measured in the same process, is the unit. Latents are like those of a fit:
means N(0, 1), standard deviations between 0.1 and 0.7, correlations of 0.3. Prints units, rows per second, peak memory,
and an exclamation mark where units or memory are above their limit; exit code 1 then. With more than three latents
only means, variances and densities have a limit.

    python benchmarks/predictions.py [--rows 10000] [--families poisson von_mises ...] [--large]

With ``--large``, instead: 50,000 angles and a map of 100 x 100 compositions, in seconds of a fitted model.
"""

from __future__ import annotations

import argparse
import os
import time
import tracemalloc

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is imported: ratios of one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.linalg import solve_triangular

from ggpm import Predictive, families

TRAINING = 300
ASKED = ("mean", "var", "log_prob", "interval", "pit", "highest_density")
# Units that a question may take with one latent, with two or three, and with up to ten; peak memory in MB.
LIMITS = {
    "mean": (1.5, 3.0, 6.0),
    "var": (1.5, 3.0, 6.0),
    "log_prob": (1.5, 3.0, 6.0),
    "interval": (4.0, 15.0, np.inf),
    "pit": (4.0, 15.0, np.inf),
    "highest_density": (30.0, 30.0, np.inf),
}
MEMORY = 300.0
FEWER = 20  # questions without a limit, which may take minutes, are asked of one row in so many


def cases() -> dict[str, families.Family]:
    """Families by name, resolved; some of them with several numbers of latents."""

    def parts(d: int) -> np.ndarray:
        return np.full((1, d), 1.0 / d)

    out = {
        "poisson": families.Poisson(),
        "negative_binomial": families.NegativeBinomial(phi=0.4),
        "binomial": families.Binomial(),
        "gamma": families.Gamma(phi=0.3),
        "inverse_gaussian": families.InverseGaussian(phi=0.4),
        "beta": families.Beta(phi=6.0),
        "beta_binomial": families.BetaBinomial(phi=4.0),
        "log_normal": families.LogNormal(phi=0.4),
        "weibull": families.Weibull(phi=1.7),
        "bernoulli": families.Bernoulli(),
        "ordinal": families.Ordinal(phi=[-1.2, 0.1, 0.9]).resolve(np.arange(4)),
        "von_mises": families.VonMises(),
        "von_mises_direction_concentration": families.VonMisesDirectionConcentration(),
        "gaussian_mean_scale": families.GaussianMeanScale(),
        "student_t": families.StudentT(phi=5.0),
        "gamma_mean_shape": families.GammaMeanShape(),
        "beta_mean_precision": families.BetaMeanPrecision(),
        "negative_binomial_mean_dispersion": families.NegativeBinomialMeanDispersion(),
        "hurdle, poisson": families.Hurdle(families.Poisson()),
        "hurdle, gamma": families.Hurdle(families.Gamma(phi=0.3)),
        "zero_inflated, negative_binomial": families.ZeroInflated(families.NegativeBinomial(phi=0.4)),
        "zero_inflated, beta": families.ZeroInflated(families.Beta(phi=6.0)),
        "zero_one_inflated_beta": families.ZeroOneInflatedBeta(phi=6.0),
        "wishart, 2": families.Wishart(phi=5.5).resolve(np.eye(2)[None]),
        "wishart, 3": families.Wishart(phi=6.5).resolve(np.eye(3)[None]),
    }
    for d in (2, 3, 10):
        out[f"dirichlet, {d}"] = families.Dirichlet().resolve(parts(d))
        out[f"von_mises_fisher, {d}"] = families.VonMisesFisher().resolve(np.eye(d)[:1])
        out[f"categorical, {d}"] = families.Categorical(n_classes=d).resolve(np.arange(d))
        out[f"multinomial, {d}"] = families.Multinomial().resolve(np.ones((1, d)))
        noise = 0.3 + 0.7 * np.eye(d)
        out[f"multivariate_gaussian, {d}"] = families.MultivariateGaussian(noise).resolve(np.zeros((1, d)))
    for d in (3, 10):
        out[f"logistic_normal, {d}"] = families.LogisticNormal(0.3 * np.eye(d - 1)).resolve(parts(d))
        out[f"dirichlet_multinomial, {d}"] = families.DirichletMultinomial().resolve(np.ones((1, d)))
    return out


def latents(D: int, m: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    sd = rng.uniform(0.1, 0.7, (m, D))
    return rng.normal(size=(m, D)), sd[:, :, None] * sd[:, None, :] * (0.7 * np.eye(D) + 0.3)


def seconds(function, repeats: int = 2) -> float:
    """Best of several, in time of this process."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def solve_time(m: int, rng: np.random.Generator) -> float:
    A = rng.normal(size=(TRAINING, TRAINING))
    L = np.linalg.cholesky(A @ A.T + TRAINING * np.eye(TRAINING))
    B = np.asfortranarray(rng.normal(size=(TRAINING, m)))
    return seconds(lambda: solve_triangular(L, B, lower=True, check_finite=False), 5)


def questions(p: Predictive, y: np.ndarray) -> dict:
    return {
        "mean": p.mean,
        "var": p.var,
        "log_prob": lambda: p.log_prob(y),
        "interval": lambda: p.interval(0.9),
        "pit": lambda: p.pit(y),
        "highest_density": lambda: p.highest_density(0.9).contains(y),
    }


def large(rng: np.random.Generator) -> None:
    """Seconds, of the clock and of the processor, for predictions of fitted models at many rows."""
    from ggpm import GGPRegressor

    x = rng.uniform(-3.0, 3.0, (TRAINING, 1))
    angles = GGPRegressor("von_mises").fit(x, np.mod(x[:, 0] + 0.4 * rng.normal(size=TRAINING), 2 * np.pi))
    new = np.linspace(-3.5, 3.5, 50_000)[:, None]
    place = rng.uniform(0.0, 1.0, (TRAINING, 2))
    alpha = 2.0 + 6.0 * np.stack([place[:, 0], place[:, 1], 1.0 - 0.5 * place.sum(axis=1)], axis=1)
    shares = GGPRegressor("dirichlet").fit(place, np.stack([rng.dirichlet(a) for a in alpha]))
    grid = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 100)] * 2), axis=-1).reshape(-1, 2)
    y = rng.uniform(-np.pi, np.pi, len(new))
    asked = {
        "50,000 angles: predict": lambda: angles.predict(new),
        "50,000 angles: 90 % arcs": lambda: angles.predict_dist(new).interval(0.9),
        "50,000 angles: densities": lambda: angles.predict_dist(new).log_prob(y),
        "map of 100 x 100 compositions: means": lambda: shares.predict(grid),
        "map of 100 x 100 compositions: 90 % intervals": lambda: shares.predict_dist(grid).interval(0.9),
    }
    for name, ask in asked.items():
        wall, cpu = time.perf_counter(), time.process_time()
        ask()
        print(f"{name:48s} {time.perf_counter() - wall:7.2f} s  {time.process_time() - cpu:7.2f} s of processor time")


def limit(question: str, D: int) -> float:
    """Units that a question may take with D latents."""
    return LIMITS[question][int(D > 1) + int(D > 3)] if D <= 10 else np.inf


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--families", nargs="*", default=None, help="names that begin like one of these")
    parser.add_argument("--ask", nargs="*", default=ASKED)
    parser.add_argument("--large", action="store_true", help="seconds of fitted models at many rows")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    if options.large:
        large(rng)
        return 0
    within = True
    print(f"{'family':34s} D  " + "".join(f"{name:>25s}" for name in options.ask))
    print(" " * 37 + "".join(f"{'units   rows/s    MB ':>25s}" for _ in options.ask))
    for name, family in cases().items():
        if options.families and not any(name.startswith(start) for start in options.families):
            continue
        D = family.latent_dim
        mean, cov = latents(D, options.rows, rng)
        trials = rng.integers(1, 30, options.rows).astype(float) if family.countable else None
        p = Predictive(family, mean, cov, trials)
        y = p.sample(None, 0)
        if name.startswith("dirichlet,"):  # parts that underflow are not in the support
            y = np.maximum(y, 1e-300)
        unit = (D + 1) * solve_time(options.rows, rng)
        cells = []
        for question in options.ask:
            share = 1 if np.isfinite(limit(question, D)) else FEWER
            ask = questions(p.rows(slice(None, None, share)), y[::share])[question]
            try:
                ask()
            except ValueError:  # no order, no density
                cells.append(f"{'- ':>25s}")
                continue
            taken = share * seconds(ask)
            tracemalloc.start()
            ask()
            peak = tracemalloc.get_traced_memory()[1] / 2**20
            tracemalloc.stop()
            good = taken <= limit(question, D) * unit and peak <= MEMORY
            within &= good
            cells.append(f"{taken / unit:9.2f} {options.rows / taken:8.0f} {peak:5.0f}{' ' if good else '!'}")
        print(f"{name:34s} {D:2d} " + "".join(cells), flush=True)
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
