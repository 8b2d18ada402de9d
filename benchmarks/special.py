"""Special functions, and what families make of them: nanoseconds per value, and largest error against mpmath.

    python benchmarks/special.py [--quick] [--families]

Three tables. *Functions*: the tabulated function, the careful route from which its table is made, and what SciPy has,
each on 10,000 arguments, with the largest error against mpmath (relative; where the value passes zero relative to the
larger of it and one) over arguments from 1e-12 to 1e12, for eta from -700 to 700. *First use*: milliseconds that making
a table takes. *Families* (alone with --families): nanoseconds per row and node of what expectations ask for, at 25
nodes for each of 400 rows, with latents N(0, 4). Processor time, the best of several.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import mpmath as mp
import numpy as np
from scipy import special as scipy_special

from ggpm import families
from ggpm.families.special import BesselRatio, LogGamma1p, SoftplusTerms, bessel, log_gamma, softplus
from ggpm.families.special.careful_bessel import careful_bessel_ratio, careful_log_bessel
from ggpm.families.special.truncated import truncated_log_mass_and_mean, truncated_normal

QUICK = "--quick" in sys.argv
REPEATS = 5 if QUICK else 25
NODES, ROWS = 25, 400
METHODS = ("log_prob", "log_prob_and_u", "u", "U", "u_and_U", "moment", "spread", "cdf")


def nanoseconds(function: Callable[..., object], values: int, *arguments: object) -> float:
    """Best processor time per value of ``function(*arguments)``."""
    function(*arguments)
    best = np.inf
    for _ in range(REPEATS):
        start = time.process_time_ns()
        function(*arguments)
        best = min(best, time.process_time_ns() - start)
    return best / values


def largest_error(got: np.ndarray, reference: list, floor: float = 0.0) -> float:
    pairs = zip(got.tolist(), reference, strict=True)
    return max(float(abs(mp.mpf(g) - r) / max(abs(r), mp.mpf(floor))) for g, r in pairs)


def field_of(name: str, functions: Callable[..., object], *arguments: object) -> object:
    return getattr(functions(*arguments), name)


def scipy_log(nu: float, k: np.ndarray) -> np.ndarray:
    return np.log(scipy_special.ive(nu, k))


def scipy_ratio(nu: float, k: np.ndarray) -> np.ndarray:
    return scipy_special.ive(nu + 1, k) / scipy_special.ive(nu, k)


def bessel_reference(nu: float, k: float) -> dict:
    nu, k = mp.mpf(nu), mp.mpf(k)
    below = mp.besseli(nu, k)
    A = mp.besseli(nu + 1, k) / below
    slope = 1 - A**2 - (2 * nu + 1) * A / k
    log = mp.log(mp.gamma(nu + 1) * (2 / k) ** nu * below) - k
    bend = -2 * A * slope - (2 * nu + 1) * (slope / k - A / k**2)
    c1, rho = A / k, A / k - slope
    return {"log": log, "A": A, "one_minus_A": 1 - A, "c1": c1, "slope": slope, "rho": rho,
            "slope_over_c1": slope / c1, "c1_slope": -rho / k, "A_second": bend}  # fmt: skip


GAMMA = {
    "value": (lambda x: mp.loggamma(1 + x), lambda x: scipy_special.gammaln(1 + x)),
    "digamma": (lambda x: mp.digamma(1 + x), lambda x: scipy_special.digamma(1 + x)),
    "trigamma": (lambda x: mp.polygamma(1, 1 + x), lambda x: scipy_special.zeta(2.0, 1 + x)),
    "tetragamma": (lambda x: mp.polygamma(2, 1 + x), lambda x: -2.0 * scipy_special.zeta(3.0, 1 + x)),
    "excess": (lambda x: x * x * mp.polygamma(1, x) - x, None),
}
SOFTPLUS = {
    "value": (lambda e: mp.log1p(mp.exp(e)), lambda e: -scipy_special.log_expit(-e)),
    "slope": (lambda e: 1 / (1 + mp.exp(-e)), scipy_special.expit),
    "log": (lambda e: mp.log(mp.log1p(mp.exp(e))), lambda e: np.log(-scipy_special.log_expit(-e))),
    "log_slope": (lambda e: 1 / ((1 + mp.exp(-e)) * mp.log1p(mp.exp(e))), None),
}


def show(name: str, fast: float, careful: float | None, scipy: float | None, error: float) -> None:
    cells = "".join(f"{'-' if v is None else format(v, '.1f'):>10}" for v in (fast, careful, scipy))
    print(f"{name:34s}{cells}{error:>12.1e}", flush=True)


def functions() -> None:
    rng = np.random.default_rng(0)
    print(f"{'ns per value':34s}{'table':>10}{'careful':>10}{'SciPy':>10}{'error':>12}")
    few = 30 if QUICK else 120
    for nu in (0.0, 0.5, 1.5, 10.0, 100.0):
        k = np.hypot(*rng.normal(0, 2 * (nu + 1), (2, 10_000)))
        wide = np.concatenate([np.logspace(-12, 12, few), (nu + 2) * rng.uniform(0, 8, few)])
        with mp.workdps(80):
            reference = [bessel_reference(nu, float(v)) for v in wide]
            ratios = nanoseconds(careful_bessel_ratio, k.size, nu, k)
            logs = nanoseconds(careful_log_bessel, k.size, nu, k)
            for field in reference[0]:
                fast = nanoseconds(field_of, k.size, field, BesselRatio, nu, k)
                error = largest_error(getattr(BesselRatio(nu, wide), field), [r[field] for r in reference])
                scipy = None
                if field == "log":
                    scipy = nanoseconds(scipy_log, k.size, nu, k)
                elif field == "A":
                    scipy = nanoseconds(scipy_ratio, k.size, nu, k)
                show(f"Bessel nu = {nu:g}: {field}", fast, logs if field == "log" else ratios, scipy, error)
    x, wide = rng.gamma(1.0, 2.0, 10_000), np.concatenate([np.logspace(-12, 12, few), rng.uniform(0, 50, few)])
    for field, (exact, scipy) in GAMMA.items():
        with mp.workdps(80):
            reference = [exact(mp.mpf(float(v))) for v in wide]
            floor = 1.0 if field in ("value", "digamma") else 0.0
            error = largest_error(getattr(LogGamma1p(wide), field), reference, floor)
        fast = nanoseconds(field_of, x.size, field, LogGamma1p, x)
        show(f"log Gamma(1 + x): {field}", fast, None, scipy and nanoseconds(scipy, x.size, x), error)
    eta, wide = rng.normal(0, 2, 10_000), np.concatenate([np.linspace(-700, 700, few), np.linspace(-30, 30, few)])
    for field, (exact, scipy) in SOFTPLUS.items():
        with mp.workdps(700):
            reference = [exact(mp.mpf(float(v))) for v in wide]
            error = largest_error(getattr(SoftplusTerms(wide), field), reference, 1.0 if field == "log" else 0.0)
        fast = nanoseconds(field_of, eta.size, field, SoftplusTerms, eta)
        show(f"softplus: {field}", fast, None, scipy and nanoseconds(scipy, eta.size, eta), error)
    lo = rng.normal(0, 2, 10_000)
    width = np.full(lo.size, 1.0)
    fast, slow = (nanoseconds(f, lo.size, lo, lo + 1.0, width) for f in (truncated_log_mass_and_mean, truncated_normal))
    wide = np.linspace(-30, 29, few)
    with mp.workdps(500):
        edges = [(min(mp.mpf(float(a)), -mp.mpf(float(a + 1)))) for a in wide]
        reference = [mp.log(mp.ncdf(a + 1) - mp.ncdf(a)) for a in edges]
        error = largest_error(truncated_log_mass_and_mean(wide, wide + 1.0, np.ones_like(wide))[0], reference)
    show("truncated normal: log mass, mean", fast, slow, None, error)


def first_use() -> None:
    print("\nmilliseconds to make a table")
    for name, make in {
        "Bessel nu = 0": lambda: bessel._table(0.0),
        "Bessel nu = 10": lambda: bessel._table(10.0),
        "Bessel nu = 100": lambda: bessel._table(100.0),
        "log Gamma": log_gamma._table,
        "softplus": softplus._table,
    }.items():
        for cached in (bessel._table, log_gamma._table, softplus._table):
            cached.cache_clear()
        start = time.process_time()
        make()
        print(f"{name:34s}{1e3 * (time.process_time() - start):>10.1f}")


FAMILIES = {
    "bernoulli": (families.Bernoulli(), [0, 1]),
    "binomial": (families.Binomial(), [[1, 2]]),
    "poisson": (families.Poisson(), [1]),
    "poisson, softplus": (families.Poisson(link="softplus"), [1]),
    "negative_binomial": (families.NegativeBinomial(phi=0.4), [1]),
    "negative_binomial, softplus": (families.NegativeBinomial(phi=0.4, link="softplus"), [1]),
    "gamma": (families.Gamma(phi=0.3), [1.0]),
    "gamma, softplus": (families.Gamma(phi=0.3, link="softplus"), [1.0]),
    "inverse_gaussian": (families.InverseGaussian(phi=0.4), [1.0]),
    "beta": (families.Beta(phi=6.0), [0.5]),
    "categorical, 4": (families.Categorical(n_classes=4), [0, 1, 2, 3]),
    "multinomial, 3": (families.Multinomial(), [[1, 2, 0]]),
    "ordinal, 4": (families.Ordinal(phi=[-1.2, 0.1, 0.9]), [0, 1, 2, 3]),
    "von_mises": (families.VonMises(), [0.1]),
    "von_mises_fisher, 3": (families.VonMisesFisher(), [[0.0, 0.6, 0.8]]),
    "dirichlet, 3": (families.Dirichlet(), [[0.2, 0.3, 0.5]]),
    "dirichlet, 3, exp": (families.Dirichlet(link="exp"), [[0.2, 0.3, 0.5]]),
    "wishart, 2": (families.Wishart(phi=5.5), [[[1.0, 0.3], [0.3, 0.8]]]),
    "gaussian": (families.Gaussian(phi=0.3), [0.0, 1.0]),
}


def of_families() -> None:
    print("\n" + f"{'ns per row and node':30s}" + "".join(f"{method:>16s}" for method in METHODS))
    for name, (family, example) in FAMILIES.items():
        rng = np.random.default_rng(0)
        family = family.resolve(np.array(example))
        mean = rng.normal(0, 2, (ROWS, family.latent_dim))
        y = family.sample(mean, rng, rng.integers(1, 12, ROWS).astype(float) if family.countable else None)
        if family.kind == "compositions" or name == "beta":  # parts that underflowed
            y = np.clip(y, 1e-12, 1 - 1e-12)
            y = y / y.sum(axis=1, keepdims=True) if y.ndim == 2 else y
        y, eta = family.encode(y), mean + 0.5 * rng.normal(size=(NODES, ROWS, family.latent_dim))
        cells = []
        for method in METHODS:
            if method == "cdf" and not family.has("cdf"):
                cells.append("-")
                continue
            arguments = (eta,) if method in ("moment", "spread") else (eta, y)
            cells.append(f"{nanoseconds(getattr(family, method), NODES * ROWS, *arguments):.0f}")
        print(f"{name:30s}" + "".join(f"{cell:>16s}" for cell in cells), flush=True)


if __name__ == "__main__":
    if "--families" not in sys.argv:
        functions()
        first_use()
    of_families()
